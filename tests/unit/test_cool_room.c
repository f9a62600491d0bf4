// Cooling and warming where there is no room: nothing is half done, and what is given up does not keep the disk full.
#include "core/cold/garbage.h"
#include "core/record/event.h"
#include "core/save/reopen.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/packed.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/step/reopened.h"
#include "core/tier/cool.h"

static const struct ckpt_tier_how plain = {.pack_bytes = 64 << 20};
static struct ckpt_step *step; // of three files, sealed
static struct ckpt_tier_done done;

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_packed_sealed(s, "1000", (const char *const[]){"a", "b", "c"}, 3);
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static ssize_t (*real_pwrite)(int fd, const void *buf, size_t len, off_t offset);
static int writes_left;

static ssize_t full_after_some(int fd, const void *buf, size_t len, off_t offset)
{
	return writes_left-- > 0 ? real_pwrite(fd, buf, len, offset) : -ENOSPC;
}

// What was put until then would keep it full for a day.
START_TEST(a_full_disk_gets_back_what_no_version_names)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1};

	real_pwrite = ckpt_hooks.pwrite;
	writes_left = 2;
	ckpt_hook_set(pwrite, full_after_some);
	ck_error(ckpt_cool(step, &how, &done), ENOSPC);
	ckpt_hook_set(pwrite, real_pwrite);
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ck_assert(!step->version->is.packed);
	ck_ok(ckpt_cool(step, &how, &done));
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_ok(ckpt_packed_read(step, "0", "a"));
}
END_TEST

static unsigned written_under_the_lock;

static ssize_t no_room(int fd __attribute__((unused)), const void *buf __attribute__((unused)),
		       size_t len __attribute__((unused)), off_t offset __attribute__((unused)))
{
	if (pthread_mutex_trylock(&s->acts_lock.mutex))
		written_under_the_lock++;
	else
		pthread_mutex_unlock(&s->acts_lock.mutex);
	return -ENOSPC;
}

// Its files are not written a second time, for which all saves would wait.
START_TEST(a_cold_step_that_finds_no_room_is_not_reopened)
{
	struct ckpt_sys before = ckpt_hooks;
	struct ckpt_step *reopened;

	ck_ok(ckpt_cool(step, &plain, &done));
	ckpt_hook_set(pwrite, no_room);
	ck_error(ckpt_reopen(step, &reopened), ENOSPC);
	ckpt_hooks_restore(&before);
	ck_assert_uint_eq(written_under_the_lock, 0);
	ck_ok(ckpt_reopen(step, &reopened));
	ckpt_step_unref(reopened);
}
END_TEST

static int little_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	*ret_free = 1;
	*ret_all = UINT64_C(1) << 40;
	return 0;
}

START_TEST(a_step_for_which_there_is_no_room_is_not_warmed_in_part)
{
	struct ckpt_sys before = ckpt_hooks;

	ck_ok(ckpt_cool(step, &plain, &done));
	ckpt_hook_set(room, little_room);
	ck_error(ckpt_warm(step, &plain, &done), ENOSPC);
	ck_assert_str_eq(step->version->is.event, CKPT_EVENT_COOL);
	ckpt_hooks_restore(&before);
	ck_ok(ckpt_warm(step, &plain, &done));
}
END_TEST

// They would keep the disk full.
START_TEST(packs_whose_version_finds_no_room_are_gone_or_expected_to_go)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1};
	struct ckpt_fault fault;
	bool fired = true;

	for (uint64_t n = 1; fired; n++) {
		int rc;

		fault = (struct ckpt_fault){.at = n, .error = -ENOSPC, .sticky = true};

		ck_assert_uint_lt(n, 100);
		ckpt_save_fault(s, &fault);
		rc = ckpt_cool(step, &how, &done);
		fired = fault.count >= n;
		fault.at = 0;
		if (rc == -ENOSPC) {
			ck_assert_uint_le(ckpt_packed_count(s), ckpt_garbage_packs(s));
			ck_ok(ckpt_gc(s, &(struct ckpt_gc_how){0}, &(struct ckpt_gc_done){0}));
			ck_assert_uint_eq(ckpt_packed_count(s), 0);
		}
	}
	ck_assert(step->version->is.packed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool room");
	TCase *room = tcase_create("room");

	tcase_add_checked_fixture(room, setup, teardown);
	tcase_add_test(room, a_full_disk_gets_back_what_no_version_names);
	tcase_add_test(room, a_cold_step_that_finds_no_room_is_not_reopened);
	tcase_add_test(room, a_step_for_which_there_is_no_room_is_not_warmed_in_part);
	tcase_add_test(room, packs_whose_version_finds_no_room_are_gone_or_expected_to_go);
	suite_add_tcase(suite, room);
	return ckpt_suite_run(suite);
}
