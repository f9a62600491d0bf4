// Garbage collection as a mount does it by itself: when, beside whom, and what of it is told.
#include "core/cold/garbage.h"
#include "core/cold/packing.h"
#include "core/record/event.h"
#include "core/store/open.h"
#include "tests/support/fixture_gc.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/gc/repack.h"
#include "core/save/delete.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

// Of the first step is left what the second shares with it: its pack is half-dead.
static struct ckpt_step *make_half_dead(struct ckpt_pack *ret_pack, struct ckpt_chunk *ret_shared)
{
	struct ckpt_step *a = ckpt_packed_together(s, "a", LONG_1, SHARED, LONG_2),
			 *b = ckpt_packed_together(s, "b", SHARED, "one of b");

	*ret_pack = ckpt_packed_place(b, "0", ret_shared);
	expire(a);
	ckpt_step_unref(a);
	ckpt_packed_age(s, DAY_S + 60);
	return b;
}

// --- When ---------------------------------------------------------------------------------------------------------------

static int64_t later_ns; // atomic
static int64_t (*real_mono_ns)(void);

static int64_t mono_later_ns(void)
{
	return real_mono_ns() + __atomic_load_n(&later_ns, __ATOMIC_RELAXED);
}

// What the store's thread does when so much more time has gone by.
static size_t packs_after(int64_t ns)
{
	__atomic_add_fetch(&later_ns, ns, __ATOMIC_RELAXED);
	ckpt_trash_wake(*ckpt_trash_of(s));
	ckpt_trash_drain(*ckpt_trash_of(s));
	return ckpt_packed_count(s);
}

START_TEST(old_garbage_goes)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0", "b1");

	ckpt_trash_drain(*ckpt_trash_of(s));
	real_mono_ns = ckpt_hooks.mono_ns;
	ckpt_hook_set(mono_ns, mono_later_ns);
	expire(a);
	ck_assert_uint_eq(packs_after(CKPT_GC_FIRST_NS), 3); // it is young
	ckpt_packed_age(s, HOUR_S + 60);
	ck_assert_uint_eq(packs_after(CKPT_GC_EVERY_NS - CKPT_GC_FIRST_NS), 3); // it is not yet time
	ck_assert_uint_eq(packs_after(CKPT_GC_FIRST_NS), 2);
	ck_ok(ckpt_packed_read(b, "0", "b0"));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

static uint64_t free_bytes, all_bytes = 8000;

static int some_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	*ret_free = free_bytes;
	*ret_all = all_bytes;
	return 0;
}

START_TEST(on_a_nearly_full_disk_it_goes_at_once_whatever_its_age)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0", "b1");
	struct ckpt_gc_behind behind;
	bool stop = false;
	int64_t next_ns;

	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_hook_set(room, some_room);
	ckpt_gc_behind_begin(&behind);
	expire(a);
	free_bytes = 999;
	ck_assert_int_eq(ckpt_gc_behind(s, &behind, &stop), behind.after_ns); // it was mounted just now
	behind.after_ns = behind.short_after_ns = 0;
	free_bytes = 1000;
	next_ns = ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_assert_int_le(next_ns, ckpt_sys.mono_ns() + CKPT_GC_LOOK_NS); // for it may fill up
	free_bytes = 999;
	behind.short_after_ns = 0;
	ck_assert_int_eq(ckpt_gc_behind(s, &behind, &stop), behind.after_ns);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	expire(b);
	next_ns = ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_assert(next_ns == behind.short_after_ns && next_ns < behind.after_ns);
	ck_assert_int_le(next_ns, ckpt_sys.mono_ns() + CKPT_GC_SHORTAGE_NS);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(on_a_roomy_disk_it_goes_at_once_where_it_is_an_eighth_of_it)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0", "b1");
	struct ckpt_gc_behind behind = {0};
	struct ckpt_chunk chunk;
	struct ckpt_pack pack = ckpt_packed_place(a, "0", &chunk);
	bool stop = false;

	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_hook_set(room, some_room);
	expire(a);
	ck_assert_uint_eq(ckpt_garbage_bytes(s), pack.bytes);
	all_bytes = (pack.bytes + 1) * 8;
	free_bytes = all_bytes / 2;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	behind.short_after_ns = 0;
	all_bytes = pack.bytes * 8;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_assert_uint_eq(ckpt_garbage_bytes(s), 0);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// It is known to be garbage by what steps need, not only expected: this process did not expire them.
START_TEST(what_is_young_is_not_in_vain_and_goes_where_it_is_an_eighth)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0", "b1");
	struct ckpt_gc_behind behind = {0};
	struct ckpt_chunk chunk;
	struct ckpt_pack pack = ckpt_packed_place(a, "0", &chunk);
	bool stop = false;

	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_hook_set(room, some_room);
	expire(a);
	ckpt_garbage_expect_no_more(s, ckpt_garbage_packs(s));
	ck_assert_uint_eq(ckpt_garbage_bytes(s), 0);
	all_bytes = pack.bytes * 8;
	free_bytes = all_bytes / 2;
	ck_assert_int_le(ckpt_gc_behind(s, &behind, &stop), ckpt_sys.mono_ns() + CKPT_GC_SHORTAGE_NS);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_assert(!ckpt_garbage_of(s)->gc_in_vain); // who cools waits for it
	behind.short_after_ns = 0;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_assert_uint_eq(behind.young_bytes, 0);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

static bool until_there_are_two_packs(void *arg __attribute__((unused)), uint64_t bytes __attribute__((unused)))
{
	return ckpt_packed_count(s) < 2;
}

START_TEST(packs_of_an_interrupted_cooling_are_expected_once_the_step_is_gone)
{
	const struct ckpt_tier_how some = {.pack_bytes = 1, .go_on = until_there_are_two_packs},
				   rest = {.pack_bytes = 1};
	struct ckpt_step *a = ckpt_packed_sealed(s, "a", (const char *const[]){"a0", "a1", "a2"}, 3),
			 *b = ckpt_packed_sealed(s, "b", (const char *const[]){"b0"}, 1);
	struct ckpt_tier_done tier;

	ck_error(ckpt_cool(a, &some, &tier), EINTR);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_assert_uint_eq(ckpt_unnamed_of(a)->unnamed_count, 2);
	ck_assert_uint_eq(ckpt_garbage_packs(s), 0);
	ck_ok(ckpt_cool(b, &rest, &tier));
	if (_i) { // it is gone on with
		ck_ok(ckpt_cool(a, &rest, &tier));
		ck_assert_uint_eq(ckpt_unnamed_of(a)->unnamed_count, 0);
		ck_assert_uint_eq(ckpt_garbage_packs(s), 0);
	}
	expire(a);
	ck_assert_uint_eq(ckpt_garbage_packs(s), _i ? 3 : 2);
	ck_ok(ckpt_gc(s, &(struct ckpt_gc_how){0}, &(struct ckpt_gc_done){0}));
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ck_ok(ckpt_packed_read(b, "0", "b0"));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(packs_of_an_interrupted_cooling_are_expected_by_the_next_mount_too)
{
	const struct ckpt_tier_how some = {.pack_bytes = 1, .go_on = until_there_are_two_packs};
	struct ckpt_step *a = ckpt_packed_sealed(s, "a", (const char *const[]){"a0", "a1", "a2"}, 3), *b;
	struct ckpt_tier_done tier;

	ck_error(ckpt_cool(a, &some, &tier), EINTR);
	ckpt_step_unref(a);
	ckpt_fixture_gc_reopen();
	b = ckpt_packed_step(s, "b", "b0");
	a = ckpt_step_find(s, "", "a");
	if (_i)
		expire(a);
	ck_ok(ckpt_gc(s, &(struct ckpt_gc_how){0}, &(struct ckpt_gc_done){0}));
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ck_ok(ckpt_packed_read(b, "0", "b0"));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(on_a_full_disk_a_failure_is_not_tried_again_and_again)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0");
	struct ckpt_gc_behind behind = {0};
	bool stop = false;

	ckpt_hook_set(room, some_room);
	expire(a);
	ckpt_save_spoil_record(b, 100, 1);
	ck_assert_int_gt(ckpt_gc_behind(s, &behind, &stop), ckpt_sys.mono_ns() + CKPT_GC_FIRST_NS);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// What is asked about may be less than half of what is there by the next time.
START_TEST(what_is_asked_about_is_asked_once_and_tried_again)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a long text that nobody expects"), *b = NULL;
	struct ckpt_gc_behind behind = {0};
	unsigned told = ckpt_save_errors(s, "would go at once");
	bool stop = false;
	char text[16];

	ckpt_hook_set(room, some_room);
	free_bytes = 999;
	expire_earlier(a);
	for (int i = 0; i < 3; i++) {
		ckpt_step_unref(b);
		snprintf(text, sizeof(text), "b%d", i);
		b = ckpt_packed_step(s, text, text);
		expire(b);
		behind.after_ns = INT64_MAX;
		behind.short_after_ns = 0; // it is time
		(void)ckpt_gc_behind(s, &behind, &stop);
		ck_assert_uint_eq(ckpt_packed_count(s), 2 + (unsigned)i);
		ck_assert_int_lt(behind.short_after_ns, ckpt_sys.mono_ns() + CKPT_GC_EVERY_NS / 2);
	}
	ck_assert_uint_eq(ckpt_save_errors(s, "would go at once"), told + 1);
	ckpt_step_unref(b);
	b = ckpt_packed_step(s, "a2", "a long text that nobody expects"); // which is needed again
	behind.short_after_ns = 0;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// Somebody has it open, and may for hours.
START_TEST(what_is_in_vain_is_tried_less_and_less_often)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0", "b1");
	struct ckpt_file *f = ckpt_packed_open(a, "0");
	struct ckpt_gc_behind behind = {0};
	int64_t began_ns, pause_ns = 0;
	bool stop = false;

	ckpt_hook_set(room, some_room);
	free_bytes = 999;
	expire(a);
	for (int times = 0; times < 12; times++) {
		began_ns = ckpt_sys.mono_ns();
		behind.after_ns = behind.short_after_ns = 0; // it is time
		(void)ckpt_gc_behind(s, &behind, &stop);
		pause_ns = MIN(2 * pause_ns + CKPT_GC_FIRST_NS, CKPT_GC_EVERY_NS);
		ck_assert_int_ge(behind.short_after_ns, began_ns + pause_ns);
		ck_assert_int_lt(behind.short_after_ns, ckpt_sys.mono_ns() + pause_ns + CKPT_GC_FIRST_NS / 2);
	}
	ck_assert_int_eq(pause_ns, CKPT_GC_EVERY_NS);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ckpt_file_close(f);
	behind.after_ns = 0;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_assert_int_lt(behind.short_after_ns,
			 ckpt_sys.mono_ns() + CKPT_GC_FIRST_NS); // and so it is again for the next
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

static int64_t slept_ns;

static void count_sleep(int64_t ns)
{
	slept_ns += ns;
}

START_TEST(it_stops_soon_and_rests)
{
	struct ckpt_gc_behind behind = {0};
	struct ckpt_chunk shared;
	struct ckpt_pack pack;
	struct ckpt_step *b = make_half_dead(&pack, &shared);
	bool stop = true;

	ckpt_hook_set(sleep_ns, count_sleep);
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_str_eq(b->version->is.event, "cool");
	stop = false;
	behind.after_ns = 0;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_str_eq(b->version->is.event, CKPT_EVENT_REPACK);
	ck_assert_int_gt(slept_ns, 0);
	ck_ok(ckpt_packed_read(b, "0", SHARED));
	ck_assert(!ckpt_packed_is_there(s, &pack));
	ckpt_step_unref(b);
}
END_TEST

static void sleep_longer(int64_t ns __attribute__((unused)))
{
	__atomic_add_fetch(&later_ns, 2 * CKPT_GC_EVERY_NS, __ATOMIC_RELAXED);
}

START_TEST(after_a_long_round_it_has_a_pause)
{
	struct ckpt_gc_behind behind = {0};
	struct ckpt_chunk shared;
	struct ckpt_pack pack;
	struct ckpt_step *b = make_half_dead(&pack, &shared);
	bool stop = false;

	ckpt_trash_drain(*ckpt_trash_of(s));
	real_mono_ns = ckpt_hooks.mono_ns;
	ckpt_hook_set(mono_ns, mono_later_ns);
	ckpt_hook_set(sleep_ns, sleep_longer);
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_str_eq(b->version->is.event, CKPT_EVENT_REPACK);
	ck_assert_int_gt(later_ns, 0);
	ck_assert_int_gt(behind.after_ns, ckpt_sys.mono_ns());
	ckpt_step_unref(b);
}
END_TEST

// --- Beside whom --------------------------------------------------------------------------------------------------------

START_TEST(it_does_not_wait_for_a_cooling)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");
	struct ckpt_gc_behind behind = {0};
	bool stop = false;
	int64_t next_ns;

	expire(a);
	ckpt_packed_age(s, DAY_S + 60);
	ckpt_lock_take(&ckpt_cool_turn_of(s)->lock);
	next_ns = ckpt_gc_behind(s, &behind, &stop);
	ckpt_lock_drop(&ckpt_cool_turn_of(s)->lock);
	ck_assert(next_ns > ckpt_sys.mono_ns() + CKPT_GC_FIRST_NS);
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ck_assert_uint_eq(ckpt_save_errors(s, "gc"), 0);
	ckpt_step_unref(a);
}
END_TEST

static int (*real_fsync)(int fd);
static bool puts_version; // atomic

// When it has put a version it wakes who seals and cools.
static int fsync_slowly(int fd)
{
	char link[32], path[PATH_MAX] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ck_assert_int_gt(readlink(link, path, sizeof(path) - 1), 0);
	if (strstr(path, "/log")) {
		__atomic_store_n(&puts_version, true, __ATOMIC_RELEASE);
		ckpt_sys.sleep_ns(300000000);
	}
	return real_fsync(fd);
}

START_TEST(an_unmount_waits_for_it_before_who_works_behind_is_gone)
{
	struct ckpt_chunk shared;
	struct ckpt_pack pack;
	struct ckpt_step *b = make_half_dead(&pack, &shared);

	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_ok(ckpt_store_work_behind(s));
	ckpt_step_unref(b);
	ckpt_step_unref(TAKE_PTR(other));
	real_mono_ns = ckpt_hooks.mono_ns;
	ckpt_hook_set(mono_ns, mono_later_ns);
	real_fsync = ckpt_hooks.fsync;
	ckpt_hook_set(fsync, fsync_slowly);
	__atomic_add_fetch(&later_ns, CKPT_GC_EVERY_NS, __ATOMIC_RELAXED);
	ckpt_trash_wake(*ckpt_trash_of(s));
	while (!__atomic_load_n(&puts_version, __ATOMIC_ACQUIRE))
		ckpt_sys.sleep_ns(1000000);
	ckpt_store_close(s);
	ckpt_hook_set(fsync, real_fsync);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	b = ckpt_step_find(s, "", "b");
	ck_ok(ckpt_packed_read(b, "0", SHARED));
	ckpt_step_unref(b);
}
END_TEST

// --- What is told -------------------------------------------------------------------------------------------------------

START_TEST(a_failure_is_told_once)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");
	struct ckpt_gc_behind behind = {0};
	bool stop = false;

	ckpt_save_spoil_record(a, 100, 1);
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_save_errors(s, "garbage was not removed"), 1);
	behind.after_ns = 0;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_uint_eq(ckpt_save_errors(s, "garbage was not removed"), 1);
	ckpt_save_spoil_record(a, 100, 1); // and it is right again
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_str_ne(behind.told, ""); // it is not yet an hour
	behind.after_ns = 0;
	(void)ckpt_gc_behind(s, &behind, &stop);
	ck_assert_str_eq(behind.told, "");
	ckpt_step_unref(a);
}
END_TEST

START_TEST(damage_is_told_once)
{
	struct ckpt_gc_behind behind = {0};
	struct ckpt_chunk shared;
	struct ckpt_pack pack;
	struct ckpt_step *b = make_half_dead(&pack, &shared);
	bool stop = false;

	ckpt_packed_spoil(s, &pack, shared.offset);
	for (int times = 0; times < 2; times++) {
		ckpt_packed_age(s, DAY_S + 60);
		behind.after_ns = 0;
		(void)ckpt_gc_behind(s, &behind, &stop);
		ck_assert_uint_eq(ckpt_save_errors(s, "a part of 0 cannot be read"), 1);
	}
	ckpt_step_unref(b);
}
END_TEST

static const struct {
	int error;
	const char *hint; // has this; NULL: there is none
} hints[] = {{-EPERM, "--force"},
	     {-EBADMSG, "ckptfs verify"},
	     {-EIO, "ckptfs verify"},
	     {-ENOTSUP, "newer ckptfs"},
	     {-ENOMEM, NULL}};

START_TEST(a_failure_is_told_with_what_to_do)
{
	for (size_t i = 0; i < ARRAY_LEN(hints); i++) {
		const char *hint = ckpt_gc_hint(hints[i].error);

		ck_assert(hints[i].hint ? hint && strstr(hint, hints[i].hint) : !hint);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gc behind");
	TCase *when = tcase_create("when"), *beside = tcase_create("beside"), *told = tcase_create("told");

	tcase_add_checked_fixture(when, ckpt_fixture_gc_open, ckpt_fixture_gc_close);
	tcase_add_test(when, old_garbage_goes);
	tcase_add_test(when, on_a_nearly_full_disk_it_goes_at_once_whatever_its_age);
	tcase_add_test(when, on_a_roomy_disk_it_goes_at_once_where_it_is_an_eighth_of_it);
	tcase_add_test(when, on_a_full_disk_a_failure_is_not_tried_again_and_again);
	tcase_add_test(when, what_is_young_is_not_in_vain_and_goes_where_it_is_an_eighth);
	tcase_add_loop_test(when, packs_of_an_interrupted_cooling_are_expected_once_the_step_is_gone, 0, 2);
	tcase_add_loop_test(when, packs_of_an_interrupted_cooling_are_expected_by_the_next_mount_too, 0, 2);
	tcase_add_test(when, what_is_asked_about_is_asked_once_and_tried_again);
	tcase_add_test(when, what_is_in_vain_is_tried_less_and_less_often);
	tcase_add_test(when, it_stops_soon_and_rests);
	tcase_add_test(when, after_a_long_round_it_has_a_pause);
	suite_add_tcase(suite, when);
	tcase_add_checked_fixture(beside, ckpt_fixture_gc_open, ckpt_fixture_gc_close);
	tcase_add_test(beside, it_does_not_wait_for_a_cooling);
	tcase_add_test(beside, an_unmount_waits_for_it_before_who_works_behind_is_gone);
	suite_add_tcase(suite, beside);
	tcase_add_checked_fixture(told, ckpt_fixture_gc_open, ckpt_fixture_gc_close);
	tcase_add_test(told, a_failure_is_told_once);
	tcase_add_test(told, damage_is_told_once);
	tcase_add_test(told, a_failure_is_told_with_what_to_do);
	suite_add_tcase(suite, told);
	return ckpt_suite_run(suite);
}
