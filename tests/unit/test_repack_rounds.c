// Repacking in rounds: how much each moves, what comes later, and that what was emptied goes although it is most of what there is.
#include "tests/support/fixture_sharing.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/gc/repack.h"
#include "core/save/delete.h"

static void check_repacked(void)
{
	ck_assert_uint_eq(done.repacked_objects, 1);
	ck_assert_uint_eq(done.repacked_bytes, strlen(SHARED));
}

static void check_files(void)
{
	ck_ok(ckpt_packed_read(b, "0", SHARED));
	ck_ok(ckpt_packed_read(b, "1", "one of b"));
	ck_ok(ckpt_packed_read(c, "0", "one of c"));
	ck_ok(ckpt_packed_read(c, "1", SHARED));
}

// --- The brake ----------------------------------------------------------------------------------------------------------

// Nearly all that is there is emptied, and goes.
START_TEST(what_was_emptied_goes_without_force)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *large = ckpt_packed_together(s, "large", LONG_1 LONG_2 "1", LONG_1 LONG_2 "2", "one of two"),
			 *small = ckpt_packed_together(s, "small", "one of two");
	struct ckpt_chunk chunk;
	struct ckpt_pack old = ckpt_packed_place(large, "0", &chunk);

	expire(a);
	expire(b);
	expire(c);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	expire(large);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert(done.repacked_objects == 1 && done.deleted_objects == 1);
	ck_assert(!ckpt_packed_is_there(s, &old));
	ck_ok(ckpt_packed_read(small, "0", "one of two"));
	ckpt_step_unref(large);
	ckpt_step_unref(small);
}
END_TEST

// Who died between the version and the removal leaves the same: it is said by the version, not by who did it.
START_TEST(what_was_emptied_goes_without_force_after_a_failure)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_file *f = ckpt_packed_open(b, "0");
	struct ckpt_chunk chunk;
	struct ckpt_pack old = ckpt_packed_place(a, "0", &chunk);

	expire_earlier(a); // nobody has noted it
	expire_earlier(c);
	gc_all();
	ck_assert(done.repacked_objects == 1 && ckpt_packed_is_there(s, &old));
	ckpt_file_close(f);
	ck_assert_uint_gt(old.bytes, ckpt_packs_bytes(s) / 2);
	ckpt_fixture_sharing_reopen();
	ck_assert_ptr_null(c);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert(done.deleted_objects == 1 && !ckpt_packed_is_there(s, &old));
	ck_ok(ckpt_packed_read(b, "0", SHARED));
}
END_TEST

// What has happened to the step since is nothing that needs them.
START_TEST(what_was_emptied_goes_without_force_when_the_step_was_warmed_and_cooled_since)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_file *f = ckpt_packed_open(b, "0");
	struct ckpt_tier_done tier;
	struct ckpt_chunk chunk;
	struct ckpt_pack old = ckpt_packed_place(a, "0", &chunk);

	expire_earlier(a); // nobody has noted it
	expire_earlier(c);
	gc_all();
	ck_assert(done.repacked_objects == 1 && ckpt_packed_is_there(s, &old));
	ckpt_file_close(f);
	ck_ok(ckpt_warm(b, &(struct ckpt_tier_how){0}, &tier));
	if (_i)
		(void)ckpt_packed_cool(b);
	ck_assert_uint_gt(old.bytes, ckpt_packs_bytes(s) / 2);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert(done.deleted_objects == 1 && !ckpt_packed_is_there(s, &old));
	ck_ok(ckpt_packed_read(b, "0", SHARED));
}
END_TEST

START_TEST(other_garbage_does_not_go_with_what_was_emptied)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *large;

	expire(a);
	gc_all();
	check_repacked();
	large = ckpt_packed_together(s, "large", LONG_1 LONG_2 LONG_1, LONG_2 LONG_2 LONG_1, LONG_1 LONG_2 LONG_2);
	expire_earlier(large);
	ck_error(ckpt_gc(s, &plain, &done), EPERM);
	ckpt_step_unref(large);
}
END_TEST

// --- Rounds -------------------------------------------------------------------------------------------------------------

// What gives most is moved first.
START_TEST(more_than_is_moved_at_once_comes_later)
{
	const struct ckpt_gc_how some = {.force = true, .repack.bytes_max = 24};
	struct ckpt_step *large = ckpt_packed_together(s, "large", LONG_1 LONG_2 LONG_1, "one of two"),
			 *small = ckpt_packed_together(s, "small", "one of two");
	struct ckpt_chunk chunk;
	struct ckpt_pack first = ckpt_packed_place(large, "0", &chunk), second = ckpt_packed_place(a, "0", &chunk);

	expire(a);
	expire(large);
	ck_ok(ckpt_gc(s, &some, &done));
	ck_assert(done.repacked_bytes == strlen("one of two") && done.later_objects == 1);
	ck_assert(!ckpt_packed_is_there(s, &first) && ckpt_packed_is_there(s, &second));
	ck_ok(ckpt_gc(s, &some, &done));
	check_repacked();
	ck_assert(!done.later_objects && !ckpt_packed_is_there(s, &second));
	check_files();
	ck_ok(ckpt_packed_read(small, "0", "one of two"));
	ckpt_step_unref(large);
	ckpt_step_unref(small);
}
END_TEST

// Two half-dead packs, of which the first gives more.
static struct ckpt_step *large, *small;

static void make_second(struct ckpt_pack *ret_first, struct ckpt_pack *ret_second)
{
	struct ckpt_chunk chunk;

	large = ckpt_packed_together(s, "large", LONG_1 LONG_2 LONG_1, "one of two");
	small = ckpt_packed_together(s, "small", "one of two");
	*ret_first = ckpt_packed_place(large, "1", &chunk);
	*ret_second = ckpt_packed_place(a, "0", &chunk);
	expire(a);
	expire(large);
	ckpt_step_unref(large);
}

START_TEST(all_is_moved_in_as_many_rounds_as_it_takes)
{
	const struct ckpt_gc_how how = {.force = true, .repack.chunks_max = 1},
				 look = {.force = true, .dry_run = true, .repack.chunks_max = 1};
	struct ckpt_pack first, second;
	struct ckpt_gc_done would;

	make_second(&first, &second);
	ck_ok(ckpt_gc(s, &look, &would));
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert_uint_eq(done.repacked_objects, 2);
	ck_assert_uint_eq(done.repacked_bytes, strlen(SHARED) + strlen("one of two"));
	ck_assert(!done.later_objects && done.deleted_objects == 2);
	ck_assert(!ckpt_packed_is_there(s, &first) && !ckpt_packed_is_there(s, &second));
	ck_assert_mem_eq(&would, &done, sizeof(done));
	check_files();
	ck_ok(ckpt_packed_read(small, "0", "one of two"));
	ckpt_step_unref(small);
}
END_TEST

// A round that it would use up each time: in one act, or in several.
START_TEST(what_is_stuck_comes_after_all_others)
{
	struct ckpt_gc_stuck stuck = {0};
	const struct ckpt_gc_how how = {.force = true,
					.repack = {.bytes_max = _i ? 0 : 24, .chunks_max = 1, .stuck = &stuck}};
	struct ckpt_pack first, second;
	struct ckpt_chunk chunk;

	make_second(&first, &second);
	(void)ckpt_packed_place(small, "0", &chunk);
	ckpt_packed_spoil(s, &first, chunk.offset);
	ck_ok(ckpt_gc(s, &how, &done));
	if (!_i) {
		ck_assert(!done.repacked_objects && done.later_objects == 1);
		ck_assert_uint_eq(done.kept[CKPT_GC_DAMAGED].objects, 1);
		ck_ok(ckpt_gc(s, &how, &done));
	}
	check_repacked();
	ck_assert(ckpt_packed_is_there(s, &first) && !ckpt_packed_is_there(s, &second));
	ck_assert_uint_eq(stuck.count, 1);
	check_files();
	ckpt_packed_spoil(s, &first, chunk.offset); // and it is right again
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert(done.repacked_objects == 1 && !ckpt_packed_is_there(s, &first));
	ck_assert_uint_eq(stuck.count, 0);
	ck_ok(ckpt_packed_read(small, "0", "one of two"));
	ckpt_step_unref(small);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("repack rounds");
	TCase *brake = tcase_create("brake"), *rounds = tcase_create("rounds");

	tcase_add_checked_fixture(brake, ckpt_fixture_sharing_open, ckpt_fixture_sharing_close);
	tcase_add_test(brake, what_was_emptied_goes_without_force);
	tcase_add_test(brake, what_was_emptied_goes_without_force_after_a_failure);
	tcase_add_loop_test(brake, what_was_emptied_goes_without_force_when_the_step_was_warmed_and_cooled_since, 0, 2);
	tcase_add_test(brake, other_garbage_does_not_go_with_what_was_emptied);
	suite_add_tcase(suite, brake);
	tcase_add_checked_fixture(rounds, ckpt_fixture_sharing_open, ckpt_fixture_sharing_close);
	tcase_add_test(rounds, more_than_is_moved_at_once_comes_later);
	tcase_add_test(rounds, all_is_moved_in_as_many_rounds_as_it_takes);
	tcase_add_loop_test(rounds, what_is_stuck_comes_after_all_others, 0, 2);
	suite_add_tcase(suite, rounds);
	return ckpt_suite_run(suite);
}
