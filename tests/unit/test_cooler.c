// Cooling behind: which steps, and in whose way it is not.
#include "core/cold/garbage.h"
#include "core/save/stage.h"
#include "core/store/open.h"
#include "core/tier/cooler.h"
#include "core/tier/sealer.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/packed.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define STEPS 4
#define TRIES 5000 // of a millisecond each
#define LARGE (1u << 20)

static struct ckpt_step *steps[STEPS]; // in the order of their commits

static void put_large(struct ckpt_step *step, char first)
{
	static char bytes[LARGE];
	int fd = ckpt_staged_put(step, "large", "");

	for (size_t i = 0; i < LARGE; i++)
		bytes[i] = (char)(first + (char)(i >> 12));
	ck_assert_int_eq(ckpt_sys.pwrite(fd, bytes, LARGE, 0), LARGE);
	close(fd);
}

static void setup(void)
{
	ckpt_fixture_open();
	for (unsigned i = 0; i < STEPS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", 1000 * (i + 1));
		steps[i] = ckpt_staged_begin(s, name);
		close(ckpt_staged_put(steps[i], "file", name));
		put_large(steps[i], (char)('a' + 5 * i));
		ck_ok(ckpt_commit(steps[i], &ckpt_staged_plain));
	}
	s->settings.hot = 2;
}

static void teardown(void)
{
	for (unsigned i = 0; i < STEPS; i++)
		ckpt_step_unref(steps[i]);
	ckpt_fixture_close();
}

static bool is_cold(unsigned i)
{
	LOCK_SCOPE(&steps[i]->lock);

	return steps[i]->version->is.packed;
}

static bool is_sealed(unsigned i)
{
	LOCK_SCOPE(&steps[i]->lock);

	return steps[i]->version->is.sealed;
}

static bool has_raw(unsigned i)
{
	char path[CKPT_RAW_PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/file", steps[i]->session);
	return !fstatat(s->sessions_fd, path, &st, 0);
}

// Until all are sealed, and nothing is to be cooled any more.
static void wait_idle(void)
{
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t files, cooling, bytes;

		ckpt_sealer_pending(s, &files, &bytes);
		ckpt_cooler_pending(s, &cooling, &bytes);
		if (!files && !cooling)
			return;
		ckpt_sys.sleep_ns(1000000);
	}
	ck_abort_msg("it does not come to an end");
}

static void wait_raw_gone(unsigned i)
{
	for (int tries = 0; tries < TRIES && has_raw(i); tries++)
		ckpt_sys.sleep_ns(1000000);
	ck_assert(!has_raw(i));
}

START_TEST(all_but_the_newest_are_cooled)
{
	uint64_t cooling, bytes;

	ckpt_cooler_pending(s, &cooling, &bytes);
	ck_assert(!cooling && !bytes);
	ck_ok(ckpt_store_work_behind(s));
	wait_idle();
	for (unsigned i = 0; i < STEPS; i++) {
		ck_assert(is_sealed(i));
		ck_assert_int_eq(is_cold(i), i < 2);
	}
	wait_raw_gone(0);
	wait_raw_gone(1);
	ck_assert(has_raw(2) && has_raw(3));
	ckpt_staged_check(steps[0], "file", "1000");
	ckpt_staged_check(steps[3], "file", "4000");
}
END_TEST

START_TEST(what_is_pinned_stays_until_it_is_not)
{
	ck_ok(ckpt_pin(steps[0], true));
	ck_ok(ckpt_store_work_behind(s));
	wait_idle();
	ck_assert(!is_cold(0) && is_cold(1));
	ck_ok(ckpt_pin(steps[0], false));
	wait_idle();
	ck_assert(is_cold(0));
}
END_TEST

static void find_steps(void)
{
	for (unsigned i = 0; i < STEPS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", 1000 * (i + 1));
		steps[i] = ckpt_step_find(s, "", name);
		ck_assert_ptr_nonnull(steps[i]);
	}
}

static void warmed_at(unsigned i, int64_t ns)
{
	CLEANUP_FD int fd = openat(s->sessions_fd, steps[i]->session, O_RDONLY | O_DIRECTORY);
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)ns);
	ck_ok(fsetxattr(fd, "user.ckptfs.warm", text, strlen(text), XATTR_REPLACE));
}

START_TEST(what_was_warmed_stays_for_a_day)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1 << 20};
	struct ckpt_tier_done done;

	for (unsigned i = 0; i < 2; i++) {
		ck_ok(ckpt_cool_sealed(steps[i], &how, &done));
		ck_ok(ckpt_warm(steps[i], &how, &done));
	}
	warmed_at(0, ckpt_sys.now_ns() - CKPT_WARM_NS + INT64_C(600000000000));
	warmed_at(1, ckpt_sys.now_ns() - CKPT_WARM_NS - 1);
	for (unsigned i = 0; i < STEPS; i++)
		ckpt_step_unref(steps[i]);
	ckpt_fixture_reopen();
	find_steps();
	s->settings.hot = 2;
	ck_ok(ckpt_store_work_behind(s));
	wait_raw_gone(1);
	wait_idle();
	ck_assert(has_raw(0));
}
END_TEST

// It goes on when that is over.
START_TEST(a_call_that_cools_is_let_by)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1 << 20, .at_once = true};
	struct ckpt_tier_done done;

	ckpt_lock_take(&ckpt_cool_turn_of(s)->lock);
	ck_error(ckpt_cool(steps[0], &how, &done), EBUSY);
	ck_ok(ckpt_store_work_behind(s));
	for (int tries = 0; tries < TRIES && !(is_sealed(0) && is_sealed(1)); tries++)
		ckpt_sys.sleep_ns(1000000);
	ckpt_sys.sleep_ns(50000000);
	ck_assert(!is_cold(0) && !is_cold(1));
	ckpt_lock_drop(&ckpt_cool_turn_of(s)->lock);
	for (int tries = 0; tries < TRIES && !(is_cold(0) && is_cold(1)); tries++)
		ckpt_sys.sleep_ns(1000000);
	ck_assert(is_cold(0) && is_cold(1));
}
END_TEST

static int64_t (*real_mono_ns)(void);
static int64_t jumped_ns; // atomic

static int64_t mono_later_ns(void)
{
	return real_mono_ns() + __atomic_load_n(&jumped_ns, __ATOMIC_RELAXED);
}

// While a save runs it rests for as long as it works, and longer; but it has not worked while there was nothing to do.
START_TEST(who_was_idle_for_an_hour_does_not_rest_for_seven)
{
	struct ckpt_writer writer = {0};
	struct ckpt_step *staged;

	real_mono_ns = ckpt_hooks.mono_ns;
	ckpt_hook_set(mono_ns, mono_later_ns);
	ck_ok(ckpt_store_work_behind(s));
	wait_idle();
	__atomic_store_n(&jumped_ns, INT64_C(3600000000000), __ATOMIC_RELAXED);
	staged = ckpt_staged_begin(s, "5000");
	ckpt_staged_writer(staged, &writer, ckpt_staged_put(staged, "file", "text"));
	s->settings.hot = 1;
	ckpt_job_wake(*ckpt_cooler_of(s));
	for (int tries = 0; tries < TRIES && !is_cold(2); tries++)
		ckpt_sys.sleep_ns(1000000);
	ck_assert(is_cold(2));
	ckpt_stage_writer_remove(&writer);
	ckpt_step_unref(staged);
	ckpt_store_rest(s);
	ckpt_hook_set(mono_ns, real_mono_ns);
}
END_TEST

static int (*real_room)(int fd, uint64_t *ret_free, uint64_t *ret_all);
static int times_full; // atomic

// Meanwhile it gets another version.
static int full_at_first(int fd, uint64_t *ret_free, uint64_t *ret_all)
{
	int rc = real_room(fd, ret_free, ret_all);

	if (__atomic_sub_fetch(&times_full, 1, __ATOMIC_RELAXED) < 0)
		return rc;
	*ret_free = 1;
	ck_ok(ckpt_pin(steps[0], true));
	ck_ok(ckpt_pin(steps[0], false));
	return rc;
}

START_TEST(what_is_another_version_meanwhile_is_looked_at_anew)
{
	real_room = ckpt_hooks.room;
	ckpt_hook_set(room, full_at_first);
	times_full = 1;
	s->settings.hot = STEPS - 1;
	ck_ok(ckpt_store_work_behind(s));
	for (int tries = 0; tries < TRIES && !is_cold(0); tries++)
		ckpt_sys.sleep_ns(1000000);
	ck_assert(is_cold(0));
}
END_TEST

static int no_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	*ret_free = LARGE;
	*ret_all = 100 * (uint64_t)LARGE;
	return 0;
}

START_TEST(on_a_full_disk_nothing_is_cooled)
{
	ckpt_hook_set(room, no_room);
	ck_ok(ckpt_store_work_behind(s));
	wait_idle();
	ck_assert(is_sealed(0) && !is_cold(0) && !is_cold(1));
}
END_TEST

static uint64_t percent; // atomic

static int some_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	*ret_free = __atomic_load_n(&percent, __ATOMIC_RELAXED) * LARGE;
	*ret_all = 100 * (uint64_t)LARGE;
	return 0;
}

// The packs of a step that expired are garbage, and gc comes later.
START_TEST(garbage_of_ours_goes_before_more_packs_come)
{
	ckpt_hook_set(room, some_room);
	percent = 24;
	ck_ok(ckpt_seal(steps[0], &(struct ckpt_seal_how){0}));
	ck_assert_uint_gt(ckpt_packed_cool(steps[0]).files, 0);
	ck_ok(ckpt_delete(steps[0]));
	ck_ok(ckpt_expire(steps[0]));
	ck_assert_uint_gt(ckpt_garbage_packs(s), 0);
	s->settings.hot = 1;
	ck_ok(ckpt_store_work_behind(s));
	wait_idle();
	ck_assert(!is_cold(1));
	__atomic_store_n(&percent, 25, __ATOMIC_RELAXED);
	ckpt_lock_take(&steps[1]->lock);
	ckpt_cooling_of(steps[1])->cool_after_ns = 0; // the time until it looks again is over
	ckpt_lock_drop(&steps[1]->lock);
	ckpt_store_wake_behind(s);
	for (int tries = 0; tries < TRIES && !is_cold(1); tries++)
		ckpt_sys.sleep_ns(1000000);
	ck_assert(is_cold(1));
}
END_TEST

START_TEST(with_all_hot_nothing_is_cooled)
{
	s->settings.hot = CKPT_HOT_ALL;
	ck_ok(ckpt_store_work_behind(s));
	ck_assert_ptr_null(*ckpt_cooler_of(s));
	wait_idle();
	ck_assert(is_sealed(0) && !is_cold(0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cooler");
	TCase *behind = tcase_create("behind");

	tcase_add_checked_fixture(behind, setup, teardown);
	tcase_add_test(behind, all_but_the_newest_are_cooled);
	tcase_add_test(behind, what_is_pinned_stays_until_it_is_not);
	tcase_add_test(behind, what_was_warmed_stays_for_a_day);
	tcase_add_test(behind, a_call_that_cools_is_let_by);
	tcase_add_test(behind, who_was_idle_for_an_hour_does_not_rest_for_seven);
	tcase_add_test(behind, what_is_another_version_meanwhile_is_looked_at_anew);
	tcase_add_test(behind, on_a_full_disk_nothing_is_cooled);
	tcase_add_test(behind, garbage_of_ours_goes_before_more_packs_come);
	tcase_add_test(behind, with_all_hot_nothing_is_cooled);
	suite_add_tcase(suite, behind);
	return ckpt_suite_run(suite);
}
