// Objects that the log of a remote condemns or holds, in a state beside it: what each act does, and what of it a snapshot has.
#include "tests/support/allocfault.h"
#include "tests/support/formats.h"
#include "tests/support/plain_tree.h"
#include "tests/support/suite.h"

#include "core/state/condemned.h"
#include "core/state/jump.h"

#define STEP "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
#define STEP_2 "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"

static const uint8_t names[4][CKPT_SHA256_LEN] = {{1}, {3}, {2}, {4}}; // two packs, two manifests
static const uint8_t others[2][CKPT_SHA256_LEN] = {{5}, {6}};

static struct ckpt_act condemn(void)
{
	return (struct ckpt_act){.kind = CKPT_ACT_CONDEMN, .objects = *names, .pack_count = 2, .manifest_count = 2};
}

static struct ckpt_act condemn_none(void)
{
	return (struct ckpt_act){.kind = CKPT_ACT_CONDEMN};
}

static struct ckpt_act hold(const char *step)
{
	struct ckpt_act a = {.kind = CKPT_ACT_HOLD, .objects = *others, .pack_count = 2};

	strcpy(a.step, step);
	return a;
}

static void put(struct ckpt_act a)
{
	ckpt_tree_add(&a, CKPT_TREE_OTHER);
	ckpt_tree_pull();
}

static size_t rows(void)
{
	size_t count;

	(void)ckpt_state_named_objects(ckpt_tree.state, &count);
	return count;
}

START_TEST(names_are_condemned_as_what_they_are)
{
	const struct ckpt_state *s = ckpt_tree.state;

	ck_assert_uint_eq(ckpt_state_last_condemn(s), 0);
	put(hold(STEP));
	ck_assert_uint_eq(ckpt_state_last_condemn(s), 0);
	put(condemn());
	for (size_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(ckpt_state_pack_condemned(s, names[i]), i < 2 ? 2 : 0);
		ck_assert_uint_eq(ckpt_state_manifest_condemned(s, names[i]), i < 2 ? 0 : 2);
	}
	ck_assert_uint_eq(ckpt_state_pack_condemned(s, others[0]), 0);
	ck_assert_uint_eq(ckpt_state_last_condemn(s), 2);
	put(condemn_none());
	put(condemn_none());
	ck_assert_uint_eq(ckpt_state_last_condemn(s), 4);
	ck_assert_uint_eq(rows(), 3); // the last one alone, of those without names
	ck_assert_uint_eq(ckpt_state_pack_condemned(s, names[1]), 2);
}
END_TEST

START_TEST(a_hold_lasts_until_its_step_has_files)
{
	put(hold(STEP));
	put(hold(STEP));
	put(hold(STEP_2));
	ckpt_tree_add_save(STEP_2, "", "1000");
	ckpt_tree_pull();
	ck_assert_uint_eq(rows(), 2);
	ckpt_tree_add_save(STEP, "", "1000"); // the name is taken: it is void
	ckpt_tree_pull();
	ck_assert_uint_eq(rows(), 2);
	ckpt_tree_add_save(STEP, "", "1001");
	ckpt_tree_pull();
	ck_assert_uint_eq(rows(), 0);
}
END_TEST

// A HOLD is over once one of its objects is condemned. Those of the other kind have other names.
START_TEST(a_hold_ends_when_one_of_its_objects_is_condemned)
{
	struct ckpt_act a = {.kind = CKPT_ACT_CONDEMN, .objects = others[1], .manifest_count = 1};

	put(hold(STEP));
	put(condemn());
	put(a);
	ck_assert_uint_eq(rows(), 3);
	a.pack_count = 1;
	a.manifest_count = 0;
	put(a);
	ck_assert_uint_eq(rows(), 3);
	ck_assert_uint_eq(ckpt_state_pack_condemned(ckpt_tree.state, others[1]), 4);
	ck_assert_uint_eq(ckpt_state_pack_condemned(ckpt_tree.state, others[0]), 0);
}
END_TEST

// A save here is not in the remote's log.
START_TEST(acts_of_the_nodes_own_log_condemn_nothing_and_end_no_hold)
{
	struct ckpt_act a = condemn();
	CLEANUP_FREE void *body = NULL, *save = NULL;
	size_t len;

	put(hold(STEP));
	ck_ok(ckpt_act_encode(&a, &body, &len));
	ckpt_tree.number++;
	ck_assert_int_eq(ckpt_tree_apply(ckpt_tree.state, CKPT_ACT_CONDEMN, body, len), CKPT_STATE_VOID);
	ck_assert_uint_eq(ckpt_state_pack_condemned(ckpt_tree.state, names[0]), 0);
	save = ckpt_tree_save_body(STEP, "", "1000", &len);
	ckpt_tree.number++;
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_ACT_SAVE, save, len));
	ck_assert_uint_eq(rows(), 1);
}
END_TEST

static void make_rich(void)
{
	put(hold(STEP));
	ckpt_tree_add(&(struct ckpt_act){.kind = CKPT_ACT_CONDEMN, .objects = *others, .manifest_count = 1},
		      CKPT_TREE_OTHER);
	put(condemn());
	put(condemn_none());
	put(hold(STEP_2));
}

static int decode(const void *bytes, size_t len)
{
	struct ckpt_state *s;
	int rc = ckpt_state_decode(bytes, len, &s);

	if (rc)
		return rc;
	ckpt_tree_assert_bytes(s, bytes, len); // one form
	ckpt_state_free(s);
	return 0;
}

START_TEST(a_snapshot_has_all_of_it)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_state *back, *view;
	size_t len, count;

	make_rich();
	ck_assert_uint_eq(rows(), 5);
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	ckpt_tree_assert_bytes(back, bytes, len);
	view = ckpt_state_view(back);
	ck_assert_ptr_nonnull(view);
	ck_assert_uint_eq(ckpt_state_pack_condemned(view, names[1]), 2);
	ck_assert_uint_eq(ckpt_state_manifest_condemned(view, others[0]), 2);
	ck_assert_uint_eq(ckpt_state_last_condemn(view), 3);
	(void)ckpt_state_named_objects(view, &count);
	ck_assert_uint_eq(count, 5);
	ckpt_state_free(view);
	ckpt_state_free(back);
}
END_TEST

// Bytes of the part, from its end on: the last row is a HOLD of two names.
enum { HOLD_ROW = 16 + 48 + 64, NONE_ROW = 16 + 48, CONDEMN_ROW = 16 + 48 + 4 * 32 };

START_TEST(what_no_acts_make_is_refused)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	uint8_t *last, *none, *condemned;
	size_t len;

	make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ck_ok(decode(bytes, len));
	last = bytes + len - HOLD_ROW;
	none = last - NONE_ROW;
	condemned = none - CONDEMN_ROW;
	ckpt_put64(last, UINT64_C(5) << 16); // an entry that was not read yet
	ck_error(decode(bytes, len), EBADMSG);
	ckpt_put64(last, ckpt_get64(none)); // the same act twice
	ck_error(decode(bytes, len), EBADMSG);
	ckpt_put64(last, UINT64_C(4) << 16);
	ck_ok(decode(bytes, len));
	ckpt_put16(last + 8, CKPT_ACT_SET);
	ck_error(decode(bytes, len), EBADMSG);
	ckpt_put16(last + 8, CKPT_ACT_HOLD);
	ckpt_put16(last + 10, 1);
	ck_error(decode(bytes, len), EBADMSG);
	ckpt_put16(last + 10, 0);
	for (uint32_t other = 0; other < 2 * HOLD_ROW; other++) {
		ckpt_put32(last + 12, other);
		ck_assert_int_eq(decode(bytes, len), other == HOLD_ROW - 16 ? 0 : -EBADMSG);
	}
	ckpt_put32(last + 12, HOLD_ROW - 16);
	memset(none + 16 + 40, 0, 8);
	memmove(condemned + NONE_ROW, condemned, CONDEMN_ROW); // the one without names comes first
	memset(condemned, 0, NONE_ROW);
	ckpt_put64(condemned, UINT64_C(1) << 16 | 5);
	ckpt_put16(condemned + 8, CKPT_ACT_CONDEMN);
	ckpt_put32(condemned + 12, 48);
	ck_error(decode(bytes, len), EBADMSG);
}
END_TEST

START_TEST(each_byte_that_is_changed_is_seen_or_is_another_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	for (size_t i = 0; i < len; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			int rc;

			bytes[i] ^= (uint8_t)(1u << bit);
			rc = decode(bytes, len);
			ck_assert(!rc || rc == -EBADMSG || rc == -ENOTSUP);
			bytes[i] ^= (uint8_t)(1u << bit);
		}
	for (size_t n = 0; n < len; n++)
		ck_error(decode(bytes, n), EBADMSG);
}
END_TEST

START_TEST(without_memory_nothing_is_changed)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_act first = condemn(), second = hold(STEP);
	uint64_t count = 1;
	size_t len;

	ckpt_tree_add(&first, CKPT_TREE_OTHER);
	ckpt_tree_add(&second, CKPT_TREE_OTHER);
	ckpt_tree.number++;
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &len);
	for (uint64_t n = 1; count + 1 >= n; n++) {
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len);
		count = ckpt_allocfault_end();
		ck_assert(rc == -ENOMEM || !rc);
		if (!rc)
			break; // the one that is not needed may fail
		ck_assert_uint_eq(ckpt_state_remote(ckpt_tree.state).seq, 0);
	}
	ck_assert_uint_eq(rows(), 2); // though it was applied in part before
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	count = 1;
	for (uint64_t n = 1; count + 1 >= n; n++) {
		struct ckpt_state *s = NULL;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_decode(bytes, len, &s);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0));
		ckpt_state_free(s);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("condemned");
	TCase *tcase = tcase_create("condemned");

	tcase_add_checked_fixture(tcase, ckpt_tree_begin, ckpt_tree_end);
	tcase_add_test(tcase, names_are_condemned_as_what_they_are);
	tcase_add_test(tcase, a_hold_lasts_until_its_step_has_files);
	tcase_add_test(tcase, a_hold_ends_when_one_of_its_objects_is_condemned);
	tcase_add_test(tcase, acts_of_the_nodes_own_log_condemn_nothing_and_end_no_hold);
	tcase_add_test(tcase, a_snapshot_has_all_of_it);
	tcase_add_test(tcase, what_no_acts_make_is_refused);
	tcase_add_test(tcase, each_byte_that_is_changed_is_seen_or_is_another_state);
	tcase_add_test(tcase, without_memory_nothing_is_changed);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
