// Which deleted steps make room for others, and the thread of a mount that sees to it.
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/store/room.h"

#include <stdio.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

// --- What goes ----------------------------------------------------------------------------------------------------------

START_TEST(the_oldest_go_as_few_as_make_the_reserve_free)
{
	static const uint64_t bytes[] = {10, 20, 30};
	struct ckpt_room_want want = {.free_bytes = 100, .reserve_bytes = 100, .limit_bytes = UINT64_MAX};

	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 0);
	want.reserve_bytes = 101;
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 1);
	want.reserve_bytes = 110;
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 1);
	want.reserve_bytes = 111;
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 2);
	want.reserve_bytes = 1000; // in vain, and all the same
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 3);
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 0), 0);
}
END_TEST

START_TEST(beyond_the_limit_the_oldest_go_but_the_last_one_stays)
{
	static const uint64_t bytes[] = {10, 20, 30};
	struct ckpt_room_want want = {.free_bytes = 100, .limit_bytes = 60};

	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 0);
	want.limit_bytes = 59;
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 1);
	want.limit_bytes = 30;
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 2);
	want.limit_bytes = 0;
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 2);
	want.reserve_bytes = 131; // which needs the last one, too
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 3), 3);
}
END_TEST

START_TEST(without_inodes_one_goes_whatever_its_bytes_are)
{
	static const uint64_t bytes[] = {0, 20};
	struct ckpt_room_want want = {.free_bytes = 100, .limit_bytes = UINT64_MAX, .no_inodes = true};

	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 2), 1);
	ck_assert_uint_eq(ckpt_room_choose(&want, bytes, 0), 0);
}
END_TEST

START_TEST(the_default_reserve_is_the_newest_step_or_a_gib_or_a_quarter)
{
	ck_assert_uint_eq(ckpt_room_reserve(0, 100 * GIB), GIB);
	ck_assert_uint_eq(ckpt_room_reserve(0, 2 * GIB), GIB / 2);
	ck_assert_uint_eq(ckpt_room_reserve(8 * GIB, 100 * GIB), 8 * GIB);
	ck_assert_uint_eq(ckpt_room_reserve(GIB, 2 * GIB), GIB);
}
END_TEST

// --- The thread ---------------------------------------------------------------------------------------------------------

static struct {
	uint64_t free_bytes;    // atomic
	uint64_t removed_bytes; // atomic; free when trash/ is synced
	unsigned looks;         // atomic
	int trash_fd;           // atomic; -1: nobody looks after room yet
} disk;

static int fake_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	__atomic_add_fetch(&disk.looks, 1, __ATOMIC_RELAXED);
	*ret_free = __atomic_load_n(&disk.free_bytes, __ATOMIC_RELAXED);
	*ret_all = 100 * GIB;
	return 0;
}

// A GiB for each step that is removed.
static int (*real_unlink)(int dirfd, const char *name, int flags);
static int (*real_fsync)(int fd);

static int fake_unlink(int dirfd, const char *name, int flags)
{
	int rc = real_unlink(dirfd, name, flags);

	if (!rc && !strcmp(name, "model.bin"))
		__atomic_add_fetch(&disk.removed_bytes, GIB, __ATOMIC_RELAXED);
	return rc;
}

static int fake_fsync(int fd)
{
	if (fd == __atomic_load_n(&disk.trash_fd, __ATOMIC_RELAXED))
		__atomic_add_fetch(&disk.free_bytes, __atomic_exchange_n(&disk.removed_bytes, 0, __ATOMIC_RELAXED),
				   __ATOMIC_RELAXED);
	return real_fsync(fd);
}

static unsigned looks_now(void)
{
	return __atomic_load_n(&disk.looks, __ATOMIC_RELAXED);
}

static void set_free(uint64_t bytes)
{
	__atomic_store_n(&disk.free_bytes, bytes, __ATOMIC_RELAXED);
}

static void setup(void)
{
	ckpt_fixture_open();
	disk.trash_fd = -1;
	set_free(50 * GIB);
	ckpt_hook_set(room, fake_room);
	real_unlink = ckpt_hooks.unlink;
	ckpt_hook_set(unlink, fake_unlink);
	real_fsync = ckpt_hooks.fsync;
	ckpt_hook_set(fsync, fake_fsync);
	ckpt_save_settle_all(s); // the thread that empties the trash reads the settings
	s->settings.trash_ns = INT64_MAX / 4;
	s->settings.trash_limit = CKPT_SHARE_NONE;
}

static void delete_new(const char *name)
{
	struct ckpt_step *step = ckpt_staged_one(s, name, "model.bin", "bytes");

	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
}

static size_t in_trash(void)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_deleted_list(s, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count;
}

static bool is_in_trash(const char *name)
{
	struct ckpt_step **steps;
	bool found = false;
	size_t count;

	ck_ok(ckpt_deleted_list(s, &steps, &count));
	for (size_t i = 0; i < count; i++)
		found |= !strcmp(steps[i]->name, name);
	ckpt_step_list_free(steps, count);
	return found;
}

static void look_after(void)
{
	struct ckpt_room *room;

	__atomic_store_n(&disk.trash_fd, s->trash_fd, __ATOMIC_RELAXED);
	ck_ok(ckpt_room_new(s, &room));
	__atomic_store_n(ckpt_room_of(s), room, __ATOMIC_RELEASE);
}

static void delete_three(void)
{
	delete_new("1");
	delete_new("2");
	delete_new("3");
}

static bool errors_say(const char *what)
{
	CLEANUP_FREE char *text = NULL;

	ck_ok(ckpt_errlog_text(s->errlog, &text));
	return strstr(text, what);
}

START_TEST(who_finds_no_room_gets_that_of_the_oldest_trash)
{
	delete_three();
	look_after();
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 0));
	ck_assert_uint_eq(in_trash(), 3);
	set_free(0);
	ck_assert(ckpt_room_make(*ckpt_room_of(s), 0)); // the reserve is one GiB
	ck_assert_uint_eq(in_trash(), 2);
	ck_assert(!is_in_trash("1"));
	ck_assert(!ckpt_room_is_short(*ckpt_room_of(s)));
	ck_assert(ckpt_room_make(*ckpt_room_of(s), GIB));
	ck_assert_uint_eq(in_trash(), 1);
	ck_assert(is_in_trash("3"));
}
END_TEST

START_TEST(without_trash_room_is_short_and_the_error_log_says_it_once)
{
	struct ckpt_step *left = ckpt_staged_begin(s, "9");
	int fd = ckpt_staged_put(left, "model.bin", "left over");

	close(fd);
	ckpt_step_unref(left);
	ckpt_fixture_reopen();
	look_after();
	set_free(GIB - 1);
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 0));
	ck_assert(ckpt_room_is_short(*ckpt_room_of(s)));
	ck_assert(errors_say("less than the reserve of 1.0GiB"));
	ck_assert(errors_say("left over from a save"));
	ck_assert(errors_say("ckptfs abort --yes"));
	set_free(0);
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 0));
	ck_assert(errors_say("the disk is full"));
	set_free(2 * GIB);
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 0));
	ck_assert(!ckpt_room_is_short(*ckpt_room_of(s)));
}
END_TEST

START_TEST(while_something_is_open_for_writing_it_looks_and_else_it_sleeps)
{
	unsigned looks = 0;

	delete_three();
	look_after();
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 0));
	ckpt_room_opened(*ckpt_room_of(s));
	set_free(0);
	for (int i = 0; i < 500 && in_trash() > 2; i++)
		ckpt_sys.sleep_ns(20000000);
	ck_assert_uint_eq(in_trash(), 2);
	ckpt_room_closed(*ckpt_room_of(s));
	for (int i = 0; i < 50 && looks != looks_now(); i++) { // until it sleeps
		looks = looks_now();
		ckpt_sys.sleep_ns(3 * CKPT_ROOM_LOOK_NS);
	}
	set_free(0); // nobody writes
	ckpt_sys.sleep_ns(3 * CKPT_ROOM_LOOK_NS);
	ck_assert_uint_eq(looks_now(), looks);
	ck_assert_uint_eq(in_trash(), 2);
	ckpt_room_opened(*ckpt_room_of(s)); // it wakes up
	for (int i = 0; i < 500 && in_trash() > 1; i++)
		ckpt_sys.sleep_ns(20000000);
	ck_assert_uint_eq(in_trash(), 1);
	ckpt_room_closed(*ckpt_room_of(s));
}
END_TEST

START_TEST(what_is_said_ahead_is_made_free_unless_the_disk_is_too_small)
{
	delete_three();
	look_after();
	set_free(2 * GIB);
	ckpt_room_expect(*ckpt_room_of(s), 200 * GIB);
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 0));
	ck_assert_uint_eq(in_trash(), 3);
	ckpt_room_expect(*ckpt_room_of(s), 2 * GIB);
	for (int i = 0; i < 500 && in_trash() > 2; i++)
		ckpt_sys.sleep_ns(20000000);
	ck_assert_uint_eq(in_trash(), 2);
}
END_TEST

START_TEST(the_limit_holds_from_the_deletion_on_and_the_last_one_stays)
{
	s->settings.trash_limit = 0;
	look_after();
	delete_three();
	for (int i = 0; i < 500 && in_trash() > 1; i++)
		ckpt_sys.sleep_ns(20000000);
	(void)ckpt_room_make(*ckpt_room_of(s), 0);
	ck_assert_uint_eq(in_trash(), 1);
	ck_assert(is_in_trash("3"));
}
END_TEST

static char unmovable[sizeof(((struct ckpt_step *)0)->session)];
static int (*real_rename)(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);

static int fail_rename(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	return strcmp(from, unmovable) ? real_rename(from_fd, from, to_fd, to, flags) : -EIO;
}

START_TEST(what_cannot_be_removed_does_not_keep_the_others)
{
	struct ckpt_step **steps;
	size_t count;

	delete_three();
	ck_ok(ckpt_deleted_list(s, &steps, &count));
	for (size_t i = 0; i < count; i++)
		if (!strcmp(steps[i]->name, "1"))
			snprintf(unmovable, sizeof(unmovable), "%s", steps[i]->session);
	ckpt_step_list_free(steps, count);
	real_rename = ckpt_hooks.rename;
	ckpt_hook_set(rename, fail_rename);
	look_after();
	set_free(0);
	ck_assert(ckpt_room_make(*ckpt_room_of(s), 0));
	ck_assert(is_in_trash("1") && !is_in_trash("2") && is_in_trash("3"));
	ck_assert(ckpt_room_make(*ckpt_room_of(s), 4 * GIB));
	ck_assert(is_in_trash("1") && !is_in_trash("3"));
	ck_assert(!ckpt_room_make(*ckpt_room_of(s), 4 * GIB)); // it ends
}
END_TEST

static Suite *room_suite(void)
{
	Suite *suite = suite_create("room");
	TCase *tcase = tcase_create("choice");

	tcase_add_test(tcase, the_oldest_go_as_few_as_make_the_reserve_free);
	tcase_add_test(tcase, beyond_the_limit_the_oldest_go_but_the_last_one_stays);
	tcase_add_test(tcase, without_inodes_one_goes_whatever_its_bytes_are);
	tcase_add_test(tcase, the_default_reserve_is_the_newest_step_or_a_gib_or_a_quarter);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("thread");
	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_close);
	tcase_add_test(tcase, who_finds_no_room_gets_that_of_the_oldest_trash);
	tcase_add_test(tcase, without_trash_room_is_short_and_the_error_log_says_it_once);
	tcase_add_test(tcase, while_something_is_open_for_writing_it_looks_and_else_it_sleeps);
	tcase_add_test(tcase, what_is_said_ahead_is_made_free_unless_the_disk_is_too_small);
	tcase_add_test(tcase, the_limit_holds_from_the_deletion_on_and_the_last_one_stays);
	tcase_add_test(tcase, what_cannot_be_removed_does_not_keep_the_others);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(room_suite());
}
