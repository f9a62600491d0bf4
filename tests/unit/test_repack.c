// Repacking of half-dead packs: what steps need of them is somewhere else afterwards, is the same and is shared as before; what somebody
// else may read, or have back, stays as it is.
#include "core/record/event.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/removal.h"
#include "tests/support/fixture_sharing.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/gc/repack.h"
#include "core/save/delete.h"
#include "core/save/remove.h"
#include "core/step/errlog.h"
#include "core/step/reopened.h"

#include <fcntl.h>
#include <sys/file.h>

static bool is_in(const struct ckpt_pack *pack, struct ckpt_step *step, const char *path)
{
	struct ckpt_chunk chunk;
	struct ckpt_pack there = ckpt_packed_place(step, path, &chunk);

	return !memcmp(there.id, pack->id, sizeof(pack->id));
}

static void check_files(void)
{
	ck_ok(ckpt_packed_read(b, "0", SHARED));
	ck_ok(ckpt_packed_read(b, "1", "one of b"));
	ck_ok(ckpt_packed_read(c, "0", "one of c"));
	ck_ok(ckpt_packed_read(c, "1", SHARED));
}

static void check_repacked(void)
{
	ck_assert_uint_eq(done.repacked_objects, 1);
	ck_assert_uint_eq(done.repacked_bytes, strlen(SHARED));
}

static void check_nothing_repacked(void)
{
	ck_assert_uint_eq(done.repacked_objects, 0);
	ck_assert_uint_eq(done.repacked_bytes, 0);
	ck_assert_uint_eq(done.deleted_objects, 0);
}

// --- What is repacked ---------------------------------------------------------------------------------------------------

START_TEST(a_half_dead_pack_is_repacked_and_goes)
{
	struct ckpt_chunk one, two;
	struct ckpt_pack old = ckpt_packed_place(a, "0", &one), now;
	int64_t committed_ns = b->version->is.committed_ns;
	uint64_t before = ckpt_packs_bytes(s);

	ck_assert(is_in(&old, b, "0") && is_in(&old, c, "1"));
	expire(a);
	gc_all();
	check_repacked();
	ck_assert(done.deleted_objects == 1 && done.deleted_bytes == old.bytes);
	ck_assert(done.live_bytes == before && !done.garbage_bytes);
	ck_assert(!ckpt_packed_is_there(s, &old));
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	now = ckpt_packed_place(b, "0", &one);
	ck_assert(is_in(&now, c, "1") && !is_in(&now, b, "1") && !is_in(&now, c, "0"));
	(void)ckpt_packed_place(c, "1", &two);
	ck_assert_uint_eq(one.offset, two.offset);
	ck_assert_str_eq(b->version->is.event, CKPT_EVENT_REPACK);
	ck_assert(b->version->is.committed_ns == committed_ns && b->version->is.packed && b->version->is.sealed);
	check_files();
	ck_assert_uint_eq(garbage(), 0);
	gc_all();
	check_nothing_repacked();
	ckpt_fixture_sharing_reopen();
	check_files();
	gc_all();
	check_nothing_repacked();
}
END_TEST

START_TEST(what_was_repacked_is_shared_by_who_comes_later)
{
	struct ckpt_chunk chunk;
	struct ckpt_step *later;
	struct ckpt_pack now;

	expire(a);
	gc_all();
	now = ckpt_packed_place(b, "0", &chunk);
	later = ckpt_packed_together(s, "later", SHARED);
	ck_assert(is_in(&now, later, "0"));
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ckpt_step_unref(later);
}
END_TEST

START_TEST(what_is_used_by_half_stays)
{
	struct ckpt_step *whole = ckpt_packed_together(s, "whole", "as long 1.", "as long 2."),
			 *half = ckpt_packed_together(s, "half", "as long 2.");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack = ckpt_packed_place(whole, "0", &chunk);

	ck_assert(is_in(&pack, half, "0"));
	expire(whole);
	gc_all();
	check_nothing_repacked();
	ck_assert(is_in(&pack, half, "0") && ckpt_packed_is_there(s, &pack));
	ck_assert_uint_eq(garbage(), 10);
	ckpt_step_unref(whole);
	whole = ckpt_packed_together(s, "whole", "ten bytes.", "and eleven.");
	ckpt_step_unref(half);
	half = ckpt_packed_together(s, "other half", "ten bytes.");
	pack = ckpt_packed_place(whole, "0", &chunk);
	expire(whole);
	gc_all();
	ck_assert_uint_eq(done.repacked_bytes, 10);
	ck_assert(!ckpt_packed_is_there(s, &pack));
	ck_ok(ckpt_packed_read(half, "0", "ten bytes."));
	ckpt_step_unref(whole);
	ckpt_step_unref(half);
}
END_TEST

START_TEST(what_was_warmed_has_its_chunks_moved_too_and_stays_warm)
{
	struct ckpt_tier_done warmed, cooled;
	uint32_t version;

	ck_ok(ckpt_warm(b, &(struct ckpt_tier_how){0}, &warmed));
	expire(a);
	expire(c);
	gc_all();
	check_repacked();
	ck_assert_int_gt(ckpt_warm_left_ns(b), 0);
	ck_assert(ckpt_packed_is_raw(b, "0") && ckpt_packed_is_raw(b, "1"));
	ck_ok(ckpt_packed_read(b, "0", SHARED));
	version = b->version->is.version;
	cooled = ckpt_packed_cool(b);
	ck_assert(cooled.files == 2 && !cooled.stored_bytes && b->version->is.version == version);
	ck_ok(ckpt_packed_read(b, "0", SHARED));
}
END_TEST

START_TEST(what_is_moved_fills_packs_of_the_usual_size)
{
	struct ckpt_step *many = ckpt_packed_together(s, "many", LONG_1 "1", LONG_1 "2", LONG_2 "3", LONG_2 "4",
						      LONG_2 "5"),
			 *few = ckpt_packed_together(s, "few", LONG_1 "1", LONG_1 "2");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	ckpt_step_unref(many);
	ckpt_step_unref(a);
	a = ckpt_step_find(s, "", "many");
	expire(a);
	s->settings.pack_bytes = 1;
	gc_all();
	ck_assert_uint_eq(done.repacked_bytes, 2 * (strlen(LONG_1) + 1));
	pack = ckpt_packed_place(few, "0", &chunk);
	ck_assert(!is_in(&pack, few, "1"));
	ck_ok(ckpt_packed_read(few, "0", LONG_1 "1"));
	ck_ok(ckpt_packed_read(few, "1", LONG_1 "2"));
	ckpt_step_unref(few);
}
END_TEST

START_TEST(a_dry_run_says_what_would_be_repacked)
{
	const struct ckpt_gc_how look = {.dry_run = true, .force = true};
	struct ckpt_gc_done would;
	size_t packs = ckpt_packed_count(s);

	expire(a);
	ck_ok(ckpt_gc(s, &look, &would));
	ck_assert_uint_eq(ckpt_packed_count(s), packs);
	ck_assert_str_eq(b->version->is.event, "cool");
	gc_all();
	check_repacked();
	ck_assert_mem_eq(&would, &done, sizeof(done));
}
END_TEST

// --- What stays as it is ------------------------------------------------------------------------------------------------

START_TEST(what_is_in_the_trash_keeps_its_packs)
{
	struct ckpt_chunk chunk;
	struct ckpt_pack old = ckpt_packed_place(a, "0", &chunk);

	ck_ok(ckpt_delete(a));
	gc_all();
	check_nothing_repacked();
	ck_ok(ckpt_expire(a));
	ck_ok(ckpt_delete(b));
	gc_all();
	check_nothing_repacked();
	ck_assert(ckpt_packed_is_there(s, &old) && is_in(&old, c, "1"));
	ck_ok(ckpt_undelete(b));
	gc_all();
	check_repacked();
	check_files();
}
END_TEST

START_TEST(what_is_reopened_keeps_its_packs)
{
	struct ckpt_step *again;

	expire(a);
	ck_ok(ckpt_reopen(b, &again));
	gc_all();
	check_nothing_repacked();
	ck_ok(ckpt_stage_abort(again, false));
	ckpt_step_unref(again);
	gc_all();
	check_repacked();
	check_files();
}
END_TEST

START_TEST(what_is_being_removed_keeps_its_packs)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(b);

	expire(a);
	ck_ok(ckpt_remove_entry(b, m, 0, "0", false, 0));
	ckpt_manifest_unref(m);
	gc_all();
	check_nothing_repacked();
	ckpt_removal_forget(b);
	gc_all();
	check_repacked();
	check_files();
}
END_TEST

static int warm_at;

static bool warm_meanwhile(void *arg __attribute__((unused)))
{
	struct ckpt_tier_done warmed;

	if (!--warm_at)
		ck_ok(ckpt_warm(b, &(struct ckpt_tier_how){0}, &warmed));
	return true;
}

// Whenever that is.
START_TEST(what_is_warmed_meanwhile_stays_so)
{
	const struct ckpt_gc_how how = {.force = true, .go_on = warm_meanwhile};

	expire(a);
	warm_at = _i + 1;
	ck_ok(ckpt_gc(s, &how, &done));
	if (warm_at > 0)
		return; // it was over by then
	ck_assert(ckpt_packed_is_raw(b, "0") && ckpt_packed_is_raw(b, "1"));
	check_files();
}
END_TEST

START_TEST(what_another_process_may_read_stays)
{
	int fd = openat(s->dirfd, "sessions", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_SH), 0); // as who has the store open for reading says it
	expire(a);
	gc_all();
	check_nothing_repacked();
	close(fd);
	gc_all();
	check_repacked();
}
END_TEST

static void close_read(struct ckpt_file *f, const char *text)
{
	ckpt_packed_check(f, text);
	ckpt_file_close(f);
}

START_TEST(what_is_open_is_repacked_and_read_where_it_was)
{
	const struct ckpt_gc_how plain = {0}, look = {.dry_run = true};
	struct ckpt_file *f = ckpt_packed_open(b, "0"), *late;
	struct ckpt_chunk chunk;
	struct ckpt_pack old = ckpt_packed_place(a, "0", &chunk);
	struct ckpt_gc_done would;

	expire(a);
	ck_ok(ckpt_gc(s, &look, &would));
	gc_all();
	check_repacked();
	ck_assert_mem_eq(&would, &done, sizeof(done));
	ck_assert(!done.deleted_objects && done.kept[CKPT_GC_OPEN].objects == 1);
	ck_assert(ckpt_packed_is_there(s, &old) && !is_in(&old, b, "0"));
	late = ckpt_packed_open(b, "0");
	close_read(f, SHARED);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert(done.deleted_objects == 1 && !ckpt_packed_is_there(s, &old));
	close_read(late, SHARED);
}
END_TEST

START_TEST(what_is_young_is_not_repacked)
{
	const struct ckpt_gc_how how = {.grace_ns = CKPT_GC_GRACE_NS};

	expire(a);
	ckpt_packed_age(s, DAY_S - 60);
	ck_ok(ckpt_gc(s, &how, &done));
	check_nothing_repacked();
	ckpt_packed_age(s, DAY_S + 60);
	ck_ok(ckpt_gc(s, &how, &done));
	check_repacked();
	ck_assert_uint_eq(done.deleted_objects, 1);
}
END_TEST

// --- Damage, room, and who stops ----------------------------------------------------------------------------------------

START_TEST(a_damaged_chunk_keeps_its_pack)
{
	struct ckpt_step *two = ckpt_packed_together(s, "two", LONG_1 LONG_2 "1", "damaged text", "whole text"),
			 *reader = ckpt_packed_together(s, "reader", "damaged text", "whole text");
	struct ckpt_chunk chunk;
	struct ckpt_pack old = ckpt_packed_place(reader, "0", &chunk);

	expire(two);
	ckpt_packed_spoil(s, &old, chunk.offset);
	for (unsigned times = 1; times < 3; times++) {
		gc_all();
		ck_assert(!done.repacked_objects && !done.deleted_objects && ckpt_packed_is_there(s, &old));
		ck_assert_uint_eq(done.kept[CKPT_GC_DAMAGED].objects, 1);
		ck_assert_uint_eq(ckpt_save_errors(s, "a part of 0 cannot be read"), times);
		ck_assert(is_in(&old, reader, "0") && !is_in(&old, reader, "1"));
		ck_assert_uint_eq(done.repacked_bytes, times == 1 ? strlen("whole text") : 0);
	}
	ck_ok(ckpt_packed_read(reader, "1", "whole text"));
	ck_error(ckpt_packed_read(reader, "0", "damaged text"), EIO);
	ckpt_packed_spoil(s, &old, chunk.offset); // and it is right again
	gc_all();
	ck_assert(done.repacked_objects == 1 && !ckpt_packed_is_there(s, &old));
	ck_ok(ckpt_packed_read(reader, "0", "damaged text"));
	ckpt_step_unref(two);
	ckpt_step_unref(reader);
}
END_TEST

static uint64_t room;

static int some_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	*ret_free = *ret_all = room;
	return 0;
}

START_TEST(without_room_nothing_is_moved)
{
	expire(a);
	ckpt_hook_set(room, some_room);
	room = 2 * strlen(SHARED) - 1;
	gc_all();
	check_nothing_repacked();
	ck_assert_uint_eq(done.kept[CKPT_GC_NO_ROOM].objects, 1);
	ck_assert_uint_eq(done.kept[CKPT_GC_NO_ROOM].bytes, strlen(LONG_1) + strlen(LONG_2));
	room = 2 * strlen(SHARED);
	gc_all();
	check_repacked();
	ck_assert_uint_eq(done.kept[CKPT_GC_NO_ROOM].objects, 0);
}
END_TEST

START_TEST(who_is_told_to_stop_leaves_nothing_half_done)
{
	int left, most = 0;
	const struct ckpt_gc_how how = {.force = true, .go_on = no_more, .arg = &left};
	int rc = -EINTR;

	expire(a);
	for (; rc == -EINTR; most++) {
		left = most;
		rc = ckpt_gc(s, &how, &done);
		check_files();
		if (!strcmp(b->version->is.event, "cool") && !strcmp(c->version->is.event, "cool"))
			ck_assert_uint_eq(ckpt_packed_count(s), 3);
	}
	ck_ok(rc);
	ck_assert_int_gt(most, 6);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_assert_uint_eq(garbage(), 0);
	check_files();
}
END_TEST

// A step has its version, and another one not yet, when it is told to stop.
static void stop_between_versions(void)
{
	int left, most = 0;
	const struct ckpt_gc_how how = {.force = true, .go_on = no_more, .arg = &left};

	for (; strcmp(b->version->is.event, CKPT_EVENT_REPACK) && strcmp(c->version->is.event, CKPT_EVENT_REPACK);
	     most++) {
		left = most;
		ck_error(ckpt_gc(s, &how, &done), EINTR);
	}
	ck_assert_int_ne(strcmp(b->version->is.event, c->version->is.event), 0);
}

// A pack that the round before has put for the one is used for the other.
START_TEST(what_a_round_before_has_put_is_shared)
{
	struct ckpt_chunk chunk;
	struct ckpt_step *first, *second;
	const char *first_path, *second_path;
	struct ckpt_pack now;

	expire(a);
	stop_between_versions();
	first = strcmp(b->version->is.event, CKPT_EVENT_REPACK) ? c : b;
	second = first == b ? c : b;
	first_path = first == b ? "0" : "1";
	second_path = first == b ? "1" : "0";
	now = ckpt_packed_place(first, first_path, &chunk);
	gc_all();
	ck_assert(is_in(&now, second, second_path));
	check_files();
	ck_assert_uint_eq(garbage(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("repack");
	TCase *moved = tcase_create("moved"), *kept = tcase_create("kept"), *limits = tcase_create("limits");

	tcase_add_checked_fixture(moved, ckpt_fixture_sharing_open, ckpt_fixture_sharing_close);
	tcase_add_test(moved, a_half_dead_pack_is_repacked_and_goes);
	tcase_add_test(moved, what_was_repacked_is_shared_by_who_comes_later);
	tcase_add_test(moved, what_is_used_by_half_stays);
	tcase_add_test(moved, what_was_warmed_has_its_chunks_moved_too_and_stays_warm);
	tcase_add_test(moved, what_is_moved_fills_packs_of_the_usual_size);
	tcase_add_test(moved, a_dry_run_says_what_would_be_repacked);
	suite_add_tcase(suite, moved);
	tcase_add_checked_fixture(kept, ckpt_fixture_sharing_open, ckpt_fixture_sharing_close);
	tcase_add_test(kept, what_is_in_the_trash_keeps_its_packs);
	tcase_add_test(kept, what_is_reopened_keeps_its_packs);
	tcase_add_test(kept, what_is_being_removed_keeps_its_packs);
	tcase_add_loop_test(kept, what_is_warmed_meanwhile_stays_so, 0, 20);
	tcase_add_test(kept, what_another_process_may_read_stays);
	tcase_add_test(kept, what_is_open_is_repacked_and_read_where_it_was);
	tcase_add_test(kept, what_is_young_is_not_repacked);
	suite_add_tcase(suite, kept);
	tcase_add_checked_fixture(limits, ckpt_fixture_sharing_open, ckpt_fixture_sharing_close);
	tcase_add_test(limits, a_damaged_chunk_keeps_its_pack);
	tcase_add_test(limits, without_room_nothing_is_moved);
	tcase_add_test(limits, who_is_told_to_stop_leaves_nothing_half_done);
	tcase_add_test(limits, what_a_round_before_has_put_is_shared);
	suite_add_tcase(suite, limits);
	return ckpt_suite_run(suite);
}
