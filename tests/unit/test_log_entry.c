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
	tcase_add_test(tcase, each_bit_that_is_flipped_is_seen);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
