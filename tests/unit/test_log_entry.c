// Entries of the log: what is encoded comes back, and what is damaged, hostile or newer is refused.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/log/entry.h"

#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define NODE "22222222-2222-4222-8222-222222222222"

enum { OPERATIONS_MAX = 40, BODY_MAX = 9000 };

static char bodies[OPERATIONS_MAX][BODY_MAX];

static struct ckpt_operation operation(unsigned i, size_t len)
{
	struct ckpt_operation op = {
		.node = NODE, .number = i * 1000003u, .kind = (uint16_t)(i % 700 + 1), .required = i % 2, .len = len};

	for (size_t k = 0; k < len; k++)
		bodies[i][k] = (char)(k * 7 + i);
	memset(op.nonce, (int)i, sizeof(op.nonce));
	op.actor.uid = i * 1000000007u;
	memcpy(op.actor.comm, "fifteen-bytes-x", i % 16);
	op.body = bodies[i];
	return op;
}

static struct ckpt_log_entry entry(uint64_t seq, uint32_t count)
{
	struct ckpt_log_entry e = {.store_id = STORE, .node = NODE, .seq = seq, .time_ns = -5, .count = count};

	if (seq > 1)
		memset(e.before, 0xab, sizeof(e.before));
	return e;
}

static void assert_same(const struct ckpt_operation *a, const struct ckpt_operation *b)
{
	ck_assert_str_eq(a->node, b->node);
	ck_assert_uint_eq(a->actor.uid, b->actor.uid);
	ck_assert_mem_eq(a->actor.comm, b->actor.comm, sizeof(a->actor.comm));
	ck_assert_uint_eq(a->number, b->number);
	ck_assert_mem_eq(a->nonce, b->nonce, sizeof(a->nonce));
	ck_assert_uint_eq(a->kind, b->kind);
	ck_assert_int_eq(a->required, b->required);
	ck_assert_uint_eq(a->len, b->len);
	if (a->len)
		ck_assert_mem_eq(a->body, b->body, a->len);
}

START_TEST(what_is_encoded_comes_back)
{
	unsigned seed = 1;

	for (int round = 0; round < 200; round++) {
		uint32_t count = 1 + (uint32_t)rand_r(&seed) % (round % 2 ? OPERATIONS_MAX : 3);
		struct ckpt_log_entry e = entry(round ? (uint64_t)rand_r(&seed) + 1 : UINT64_MAX, count), back;
		struct ckpt_operation ops[OPERATIONS_MAX], op;
		CLEANUP_FREE void *data = NULL;
		size_t len, cursor = 0;

		for (uint32_t i = 0; i < count; i++)
			ops[i] = operation(i, (size_t)rand_r(&seed) % (BODY_MAX / count));
		if (e.seq == 1)
			memset(e.before, 0, sizeof(e.before));
		ck_ok(ckpt_log_entry_encode(&e, ops, &data, &len));
		ck_ok(ckpt_log_entry_decode(data, len, &back));
		ck_assert_str_eq(back.store_id, STORE);
		ck_assert_str_eq(back.node, NODE);
		ck_assert_uint_eq(back.seq, e.seq);
		ck_assert_mem_eq(back.before, e.before, sizeof(e.before));
		ck_assert_int_eq(back.time_ns, -5);
		ck_assert_uint_eq(back.count, count);
		for (uint32_t i = 0; i < count; i++) {
			ck_assert(ckpt_log_entry_next(&back, &cursor, &op));
			assert_same(&ops[i], &op);
		}
		ck_assert(!ckpt_log_entry_next(&back, &cursor, &op));
	}
}
END_TEST

START_TEST(what_cannot_be_is_not_encoded)
{
	struct ckpt_operation op = operation(1, 10), ops[2];
	struct ckpt_log_entry e = entry(2, 1);
	static char big[CKPT_LOG_ENTRY_BYTES_MAX];
	void *data;
	size_t len;

	e.seq = 1; // the first one has none before it
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	e = entry(1, 1);
	e.seq = 2;
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	e = entry(0, 1);
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	e = entry(2, 0);
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	e = entry(2, 1);
	e.store_id[3] = 'G';
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	e = entry(2, 1);
	op.kind = 0;
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	op = operation(1, 10);
	op.node[0] = '\0';
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	op = operation(1, 10);
	strcpy(op.actor.comm, "a\nb");
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EINVAL);
	op = operation(1, 0);
	op.body = big;
	op.len = CKPT_LOG_OPERATIONS_BYTES_MAX + 1;
	ck_error(ckpt_log_entry_encode(&e, &op, &data, &len), EFBIG);
	e.count = 2;
	op.len = CKPT_LOG_OPERATIONS_BYTES_MAX / 2 + 1;
	ops[0] = ops[1] = op;
	ck_error(ckpt_log_entry_encode(&e, ops, &data, &len), EFBIG);
	ops[0].len = ops[1].len = CKPT_LOG_OPERATIONS_BYTES_MAX / 2 - 100; // what is let in fits
	ck_ok(ckpt_log_entry_encode(&e, ops, &data, &len));
	ck_assert_uint_le(len, CKPT_LOG_ENTRY_BYTES_MAX);
	free(data);
}
END_TEST

// The digest is right, as that of somebody who means harm.
static void reseal(uint8_t *data, size_t len)
{
	ckpt_sha256(data, len - CKPT_SHA256_LEN, data + len - CKPT_SHA256_LEN);
}

static void write_comm(uint8_t *data, size_t len, const char comm[CKPT_COMM_BYTES + 1])
{
	uint8_t *at = memmem(data, len, "fifteen-bytes-x", 16);

	ck_assert_ptr_nonnull(at);
	memcpy(at, comm, CKPT_COMM_BYTES + 1);
	reseal(data, len);
}

// A digest that is right does not let in a name that a terminal would act on.
START_TEST(a_hostile_program_name_is_refused)
{
	static const char *const hostile[] = {"\n",
					      "a\x1b[2J",
					      "\x7f",
					      "\xc2\x9b"
					      "2J",
					      "fifteen-bytes-\xc3", // a character that is cut off
					      "\xff",
					      "\xe2\x80\xae",
					      "\xe2\x80\xa8",
					      "\xe2\x81\xa6",
					      "a\0b",
					      "fifteen-bytes-xy"};
	static const char *const fine[] = {
		"",           "python3", "fifteen-bytes-x", "\xc3\xa9t\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
		" a\\'\"$(b)"};
	struct ckpt_operation op = operation(15, 5), back;
	struct ckpt_log_entry e = entry(7, 1), decoded;
	CLEANUP_FREE uint8_t *data = NULL;
	size_t len;

	ck_ok(ckpt_log_entry_encode(&e, &op, (void **)&data, &len));
	for (size_t i = 0; i < ARRAY_LEN(hostile) + ARRAY_LEN(fine); i++) {
		CLEANUP_FREE uint8_t *copy = malloc(len);
		bool is_hostile = i < ARRAY_LEN(hostile);
		const char *text = is_hostile ? hostile[i] : fine[i - ARRAY_LEN(hostile)];
		char comm[CKPT_COMM_BYTES + 1] = "";
		size_t cursor = 0;

		memcpy(comm, text, !memcmp(text, "a\0", 2) ? 3 : MIN(strlen(text), sizeof(comm)));
		memcpy(copy, data, len);
		write_comm(copy, len, comm);
		ck_assert_int_eq(ckpt_log_entry_decode(copy, len, &decoded), is_hostile ? -EBADMSG : 0);
		ck_assert(is_hostile || ckpt_log_entry_next(&decoded, &cursor, &back));
		ck_assert(is_hostile || !strcmp(back.actor.comm, text));
	}
}
END_TEST

START_TEST(each_bit_that_is_flipped_is_seen)
{
	struct ckpt_operation ops[] = {operation(1, 5), operation(2, 0)}, op;
	struct ckpt_log_entry e = entry(7, 2), back;
	CLEANUP_FREE uint8_t *data = NULL, *hostile = NULL;
	size_t len;

	ck_ok(ckpt_log_entry_encode(&e, ops, (void **)&data, &len));
	hostile = malloc(len);
	for (size_t i = 0; i < len * 8; i++) {
		int rc;

		memcpy(hostile, data, len);
		hostile[i / 8] ^= (uint8_t)(1 << i % 8);
		ck_error(ckpt_log_entry_decode(hostile, len, &back), EBADMSG);
		reseal(hostile, len); // then it is another entry, or none: never a fault
		rc = ckpt_log_entry_decode(hostile, len, &back);
		ck_assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
		for (size_t cursor = 0; !rc && ckpt_log_entry_next(&back, &cursor, &op);)
			ck_assert_ptr_nonnull(op.body);
	}
	for (size_t n = 0; n < len; n++) {
		CLEANUP_FREE uint8_t *cut = malloc(n + 1);

		memcpy(cut, data, n);
		ck_error(ckpt_log_entry_decode(cut, n, &back), EBADMSG);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log entry");
	TCase *tcase = tcase_create("entry");

	tcase_add_test(tcase, what_is_encoded_comes_back);
	tcase_add_test(tcase, what_cannot_be_is_not_encoded);
	tcase_add_test(tcase, a_hostile_program_name_is_refused);
	tcase_add_test(tcase, each_bit_that_is_flipped_is_seen);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
