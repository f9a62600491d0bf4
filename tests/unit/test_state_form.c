// The form of a state: the bytes of a snapshot. The same state has the same, and no others are believed.
#include "tests/support/state_acts.h"

START_TEST(the_same_state_has_the_same_bytes)
{
	CLEANUP_BODY struct body a = recorded(CKPT_ACT_SAVE, A, 1, "x", ""), b = recorded(CKPT_ACT_SAVE, B, 1, "y", "");
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_state *other = ckpt_state_new(), *back;
	size_t len;

	a.op.number = 3;
	b.op.number = 4;
	strcpy(b.op.node, NODE_2);
	ck_fits(apply_to(state, &a, 1));
	ck_fits(apply_to(state, &b, 2));
	ck_fits(apply_to(other, &b, 2));
	ck_fits(apply_to(other, &a, 1));
	bytes_of(state, &bytes, &len);
	assert_bytes(other, bytes, len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	assert_bytes(back, bytes, len);
	ck_assert_uint_eq(ckpt_state_number(back, NODE), 3);
	ck_assert_uint_eq(ckpt_state_number(back, NODE_2), 4);
	ckpt_state_free(back);
	ckpt_state_free(other);
}
END_TEST

START_TEST(a_state_of_bytes_goes_on_as_the_one_that_they_are_of)
{
	CLEANUP_BODY struct body b = fitting((enum ckpt_act_kind)_i);
	CLEANUP_FREE uint8_t *bytes = NULL, *after = NULL;
	struct ckpt_state *back;
	size_t len, after_len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	ck_fits(apply_to(state, &b, 100));
	ck_fits(apply_to(back, &b, 100));
	bytes_of(state, &after, &after_len);
	assert_bytes(back, after, after_len);
	ckpt_state_free(back);
}
END_TEST

static int decode(const void *bytes, size_t len)
{
	CLEANUP_FREE uint8_t *exact = malloc(len);
	struct ckpt_state *s;
	int rc;

	if (len)
		memcpy(exact, bytes, len);
	rc = ckpt_state_decode(exact, len, &s);
	if (rc)
		return rc;
	assert_bytes(s, bytes, len);
	ckpt_state_free(s);
	return 0;
}

START_TEST(each_bit_that_is_flipped_is_seen_or_is_another_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, others = 0;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	ck_ok(decode(bytes, len));
	for (size_t i = 0; i < len * 8; i++) {
		int rc;

		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		rc = decode(bytes, len);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		ck_assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP); // newer: the form of a summary
		others += !rc;
	}
	ck_assert_uint_gt(others, 0);
}
END_TEST

START_TEST(each_length_but_its_own_is_no_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *longer = NULL;
	size_t len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	longer = calloc(1, len + 8);
	memcpy(longer, bytes, len);
	for (size_t n = 0; n <= len + 8; n++)
		if (n != len)
			ck_error(decode(longer, n), EBADMSG);
}
END_TEST

START_TEST(mutations_are_no_state_or_have_one_form)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *mutant = NULL;
	uint64_t random = 1;
	size_t len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	mutant = malloc(len + 64);
	for (unsigned i = 0; i < 50000; i++) {
		size_t mutant_len;
		int rc;

		memcpy(mutant, bytes, len);
		mutant_len = ckpt_sample_mutate(&random, mutant, len, len + 64);
		rc = decode(mutant, mutant_len);
		ck_assert_msg(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP, "mutation %u: %d", i, rc);
	}
}
END_TEST

// The places in the bytes of a state of two nodes and two steps; each step has two versions.
enum {
	TWO_NODES = 16,
	NODE_BYTES = 48,
	TWO_STEPS = TWO_NODES + 2 * NODE_BYTES,
	VERSIONS = 16, // of a step
	VERSION_BYTES = 56,
	SUMMARY = VERSIONS + 2 * VERSION_BYTES,
	SUMMARY_VERSION = SUMMARY + 8,
};

static void make_two(uint8_t **ret_bytes, size_t *ret_len, size_t *ret_step_bytes)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(amend(A, 2, "x"));
	ck_fits(save(B, 1, "y", ""));
	ck_fits(delete (B, 2));
	for (int i = 0; i < 2; i++) {
		CLEANUP_BODY struct body b = recorded(CKPT_ACT_NOTE, A, 1, "x", "");

		strcpy(b.op.node, i ? NODE : NODE_2);
		b.op.number = 5;
		ck_assert_int_eq(apply_to(state, &b, 9), CKPT_STATE_VOID);
	}
	bytes_of(state, ret_bytes, ret_len);
	ck_assert_uint_eq((*ret_len - TWO_STEPS) % 2, 0);
	*ret_step_bytes = (*ret_len - TWO_STEPS) / 2;
}

static void swap(uint8_t *p, uint8_t *q, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t was = p[i];

		p[i] = q[i];
		q[i] = was;
	}
}

static void assert_by(const struct ckpt_state *s, const char *id, uint32_t version, const char *node, uint32_t uid,
		      const char *comm)
{
	const struct ckpt_state_version *v = ckpt_state_version(ckpt_state_step(s, id), version);

	ck_assert_str_eq(ckpt_state_node(s, v->by.node), node);
	ck_assert_uint_eq(v->by.actor.uid, uid);
	ck_assert_str_eq(v->by.actor.comm, comm);
}

static void apply_by(struct body b, const char *node, uint32_t uid, const char *comm, int rc)
{
	b.op.actor.uid = uid;
	strcpy(b.op.actor.comm, comm);
	strcpy(b.op.node, node);
	b.op.number = uid % 7; // 0 too: such a version has its node all the same
	ck_assert_int_eq(apply_to(state, &b, uid + 1), rc);
	body_done(&b);
}

// A version that has the record of another has its own maker; what is void makes nobody one.
START_TEST(each_version_says_who_made_it)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_state *back;
	size_t len;

	apply_by(recorded(CKPT_ACT_SAVE, A, 1, "x", ""), NODE_2, 1000, "python3", 0);
	apply_by(plain(CKPT_ACT_DELETE, A, 2, 0, ""), NODE, 7, "rm", 0);
	apply_by(plain(CKPT_ACT_UNDELETE, A, 3, 0, ""), NODE_2, 0, "ckptfs", 0);
	apply_by(plain(CKPT_ACT_FLAG, A, 4, 1, ""), NODE, CKPT_UID_UNKNOWN, "", 0);
	apply_by(plain(CKPT_ACT_FLAG, A, 4, 0, ""), NODE, 14, "late", CKPT_STATE_VOID);
	apply_by(recorded(CKPT_ACT_AMEND, A, 5, "x", ""), NODE_2, 1001, "\xc3\xa9", 0);
	bytes_of(state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	for (int i = 0; i < 2; i++) {
		const struct ckpt_state *s = i ? back : state;

		assert_by(s, A, 1, NODE_2, 1000, "python3");
		assert_by(s, A, 2, NODE, 7, "rm");
		assert_by(s, A, 3, NODE_2, 0, "ckptfs");
		assert_by(s, A, 4, NODE, CKPT_UID_UNKNOWN, "");
		assert_by(s, A, 5, NODE_2, 1001, "\xc3\xa9");
	}
	ckpt_state_free(back);
}
END_TEST

START_TEST(nodes_and_steps_stand_once_and_in_order)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *kept = NULL;
	size_t len, step_bytes;

	make_two(&bytes, &len, &step_bytes);
	kept = malloc(len);
	memcpy(kept, bytes, len);
	swap(bytes + TWO_NODES, bytes + TWO_NODES + NODE_BYTES, NODE_BYTES);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	memcpy(bytes + TWO_NODES + NODE_BYTES, bytes + TWO_NODES, NODE_BYTES);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	ckpt_put64(bytes + TWO_NODES + 40, 0); // it has published nothing
	ck_ok(decode(bytes, len));
	memcpy(bytes, kept, len);
	swap(bytes + TWO_STEPS, bytes + TWO_STEPS + step_bytes, step_bytes);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	memcpy(bytes + TWO_STEPS, bytes + TWO_STEPS + step_bytes, step_bytes);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	ck_ok(decode(bytes, len));
}
END_TEST

START_TEST(two_listed_steps_of_one_name_are_no_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, step_bytes;

	make_two(&bytes, &len, &step_bytes);
	bytes[len - 1] = 'x'; // the name of B, which is in the trash
	ck_ok(decode(bytes, len));
	ck_fits(undelete(B, 3));
	free(bytes);
	bytes_of(state, &bytes, &len);
	bytes[len - 1] = 'x';
	ck_error(decode(bytes, len), EBADMSG);
}
END_TEST

START_TEST(versions_that_no_act_makes_are_no_state)
{
	static const struct {
		size_t at;     // in a step
		uint32_t a, b; // not of A, which is listed; not of B, which is deleted by its version 2
	} hostile[] = {
		{0, 1, 1}, // deleted by that
		{0, 2, 3},
		{0, 2, 0},
		{4, 0, 0}, // so many versions
		{4, UINT32_MAX, UINT32_MAX},
		{VERSIONS, 0, 0}, // the number of the first one
		{VERSIONS, 2, 2},
		{VERSIONS, 3, 3},
		{VERSIONS + 4, 64, 64}, // flags
		{VERSIONS + 4, 20, 20}, // the first one is a deletion
		{VERSIONS + 4, 8, 8},   // or has files of another
		{VERSIONS + 4, 16, 16},
		{VERSIONS + VERSION_BYTES, 1, 1}, // the number of the second one
		{VERSIONS + VERSION_BYTES, 3, 3},
		{VERSIONS + VERSION_BYTES + 4, 20, 16}, // a deletion, or not
		{VERSIONS + VERSION_BYTES + 4, 20, 4},  // a deletion that has other files
		{VERSIONS + 16, 0, 0},                  // the record: in no entry, no bytes, behind the end
		{VERSIONS + 24, CKPT_LOG_ENTRY_BYTES_MAX, CKPT_LOG_ENTRY_BYTES_MAX},
		{VERSIONS + 28, 0, 0},
		{VERSIONS + 28, CKPT_LOG_ENTRY_BYTES_MAX + 1, CKPT_LOG_ENTRY_BYTES_MAX + 1},
		{VERSIONS + 32, 2, 2}, // the node: there are two
		{VERSIONS + 32, UINT32_MAX, UINT32_MAX},
		{VERSIONS + 40, '\n', '\x7f'}, // the name of a program
		{VERSIONS + 40, 'a' << 8, 0xc3},
		{VERSIONS + 52, 'a' << 24, 'a' << 24},
		{SUMMARY_VERSION, 1, 2}, // the newest that is no deletion
		{SUMMARY_VERSION, 3, 3},
	};
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, step_bytes;

	make_two(&bytes, &len, &step_bytes);
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++)
		for (int which = 0; which < 2; which++) {
			uint8_t *at = bytes + TWO_STEPS + (size_t)which * step_bytes + hostile[i].at;
			uint32_t was = ckpt_get32(at), value = which ? hostile[i].b : hostile[i].a;
			int rc;

			if (!which && !hostile[i].at)
				continue; // as if another had replaced it
			ckpt_put32(at, value);
			rc = decode(bytes, len);
			ckpt_put32(at, was);
			ck_assert_msg(rc == -EBADMSG, "row %zu of step %d: %d", i, which, rc);
		}
	ck_ok(decode(bytes, len));
}
END_TEST

// Two values, of 4 bytes with a key of 3.
START_TEST(values_that_no_act_makes_are_no_state)
{
	enum { FIRST = 16 + NODE_BYTES, HEAD = 16, ONE = HEAD + 7 }; // behind the node
	static const struct {
		size_t at;
		uint8_t is, becomes;
	} hostile[] = {
		{8, 2, 1},                  // so many
		{8, 2, 3},                  //
		{12, 0, 1},                 // zeros
		{FIRST, 2, 0},              // the entry that says so
		{FIRST + 8, 3, 2},          // length of the key
		{FIRST + 10, 0, 1},         // zeros
		{FIRST + 12, 4, 3},         // length of the value
		{FIRST + HEAD, 'o', 'u'},   // the order of keys
		{FIRST + HEAD, 'o', 'O'},   // what is no key
		{FIRST + HEAD + 3, 'v', 0}, // what is no value
		{FIRST + HEAD + 3, 'v', 0xff},
		{FIRST + ONE + HEAD, 't', 'o'}, // of one key
	};
	CLEANUP_FREE uint8_t *bytes = NULL, *shorter = NULL;
	size_t len;

	ck_fits(set("two", CKPT_ACT_ANY, "v222"));
	ck_fits(set("one", CKPT_ACT_ANY, "v111"));
	bytes_of(state, &bytes, &len);
	ck_assert_uint_eq(len, FIRST + 2 * ONE);
	ck_ok(decode(bytes, len));
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		uint8_t *at = bytes + hostile[i].at, was = *at;
		bool is_order = hostile[i].at == FIRST + ONE + HEAD;
		int rc;

		ck_assert_uint_eq(was, hostile[i].is);
		*at = hostile[i].becomes;
		if (is_order)
			memcpy(at, "one", 3);
		rc = decode(bytes, len);
		*at = was;
		if (is_order)
			memcpy(at, "two", 3);
		ck_assert_msg(rc == -EBADMSG, "row %zu: %d", i, rc);
	}
	ck_ok(decode(bytes, len));
	shorter = malloc(len); // an empty value is none
	memcpy(shorter, bytes, len);
	ckpt_put32(shorter + FIRST + ONE + 12, 0);
	ck_error(decode(shorter, len - 4), EBADMSG);
}
END_TEST

START_TEST(without_memory_there_is_no_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s = NULL;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_decode(bytes, len, &s);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0) && !s == !!rc);
		ckpt_state_free(s);
	}
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		void *made = NULL;
		size_t made_len;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_encode(state, &made, &made_len);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0) && !made == !!rc);
		free(made);
		assert_bytes(state, bytes, len);
	}
	for (uint64_t n = 1; n <= 3; n++) {
		struct ckpt_state *s;

		ckpt_allocfault_begin(n, false);
		s = ckpt_state_new();
		ckpt_allocfault_end();
		ck_assert_ptr_null(s);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("state form");
	TCase *bytes = tcase_create("bytes");

	tcase_add_checked_fixture(bytes, begin, end);
	tcase_add_test(bytes, the_same_state_has_the_same_bytes);
	tcase_add_loop_test(bytes, a_state_of_bytes_goes_on_as_the_one_that_they_are_of, CKPT_ACT_SAVE, CKPT_ACT_MKDIR);
	tcase_add_test(bytes, each_bit_that_is_flipped_is_seen_or_is_another_state);
	tcase_add_test(bytes, each_length_but_its_own_is_no_state);
	tcase_add_test(bytes, mutations_are_no_state_or_have_one_form);
	tcase_add_test(bytes, each_version_says_who_made_it);
	tcase_add_test(bytes, nodes_and_steps_stand_once_and_in_order);
	tcase_add_test(bytes, two_listed_steps_of_one_name_are_no_state);
	tcase_add_test(bytes, versions_that_no_act_makes_are_no_state);
	tcase_add_test(bytes, values_that_no_act_makes_are_no_state);
	tcase_add_test(bytes, without_memory_there_is_no_state);
	suite_add_tcase(suite, bytes);
	return ckpt_suite_run(suite);
}
