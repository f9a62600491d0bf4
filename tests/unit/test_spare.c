// The reserve of a store on a full disk: an act that frees room is put from spare files, whatever is missing: an inode, blocks, quota;
// a put of anything else is not; and once there is room the reserve is made again.
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "backends/spare.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/pin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

// --- A full disk ------------------------------------------------------------------------------------------------------
// Each spare file that is taken or dropped gives room for `gives` more creations and names. Taking one creates nothing.

static pthread_mutex_t full_lock = PTHREAD_MUTEX_INITIALIZER;

// Guarded by full_lock, but for below: the thread that removes makes spare files, too.
static struct {
	struct ckpt_sys below;
	int error; // 0: there is room
	int room;  // creations and names that the disk still has
	int gives;
	int spares; // used
} full;

static int use_room(void)
{
	int rc = 0;

	pthread_mutex_lock(&full_lock);
	if (full.error && full.room <= 0)
		rc = full.error;
	else if (full.error)
		full.room--;
	pthread_mutex_unlock(&full_lock);
	return rc;
}

static void use_spare(int gives)
{
	pthread_mutex_lock(&full_lock);
	full.room += gives;
	full.spares++;
	pthread_mutex_unlock(&full_lock);
}

static int full_open(int dirfd, const char *path, int flags, mode_t mode)
{
	int rc = flags & O_CREAT && faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) ? use_room() : 0;

	return rc ? rc : full.below.open(dirfd, path, flags, mode);
}

static int full_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	int rc = use_room();

	return rc ? rc : full.below.link(from_dirfd, from, to_dirfd, to);
}

static int full_unlink(int dirfd, const char *name, int flags)
{
	int rc = full.below.unlink(dirfd, name, flags);

	if (!rc && ckpt_spare_is(name))
		use_spare(full.gives);
	return rc;
}

static int full_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	int rc = full.below.rename(from_dirfd, from, to_dirfd, to, flags);

	if (!rc && ckpt_spare_is(from))
		use_spare(0);
	return rc;
}

static void fill_disk(int error, int gives)
{
	pthread_mutex_lock(&full_lock);
	full.below = ckpt_hooks;
	full.error = error;
	full.gives = gives;
	full.room = full.spares = 0;
	pthread_mutex_unlock(&full_lock);
	ckpt_hook_set(open, full_open);
	ckpt_hook_set(link, full_link);
	ckpt_hook_set(unlink, full_unlink);
	ckpt_hook_set(rename, full_rename);
}

static void make_room(void)
{
	pthread_mutex_lock(&full_lock);
	full.error = 0;
	pthread_mutex_unlock(&full_lock);
}

static int spares_in(int dirfd)
{
	int count = 0;

	for (int i = 0; i < CKPT_SPARE_COUNT; i++) {
		char name[32];
		struct stat st;

		snprintf(name, sizeof(name), "tmp/" CKPT_SPARE_PREFIX "%d", i);
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		ck_assert_int_ge(st.st_blocks * 512, CKPT_SPARE_BYTES);
		count++;
	}
	return count;
}

// --- The files --------------------------------------------------------------------------------------------------------

START_TEST(an_open_for_writing_makes_all_of_them_and_mends_what_is_half_made)
{
	CLEANUP_FD int fd = ckpt_temp_fd(), half = -1;
	struct ckpt_objects *b;

	ck_ok(mkdirat(fd, "tmp", 0700));
	half = openat(fd, "tmp/" CKPT_SPARE_PREFIX "3", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(half, 0);
	ck_ok(ckpt_local_open(fd, true, &b));
	ck_assert_int_eq(spares_in(fd), CKPT_SPARE_COUNT);
	ckpt_objects_close(b);
	ck_assert_int_eq(spares_in(fd), CKPT_SPARE_COUNT);
}
END_TEST

START_TEST(each_is_taken_or_dropped_once)
{
	CLEANUP_FD int fd = ckpt_temp_fd();

	ck_assert(ckpt_spare_fill(fd));
	for (int i = 0; i < CKPT_SPARE_COUNT; i++) {
		char name[16];

		snprintf(name, sizeof(name), "taken-%d", i);
		if (i % 2)
			ck_assert(ckpt_spare_drop(fd));
		else
			ck_ok(close(ckpt_spare_take(fd, name)));
	}
	ck_assert(!ckpt_spare_drop(fd));
	ck_error(ckpt_spare_take(fd, "taken-x"), ENOSPC);
	ck_assert(ckpt_spare_fill(fd));
	ck_assert(ckpt_spare_drop(fd));
}
END_TEST

// --- Puts -------------------------------------------------------------------------------------------------------------

static const int errors[] = {-ENOSPC, -EDQUOT};

START_TEST(a_put_that_frees_is_done_on_a_full_disk_and_another_is_not)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	char data[3000], found[sizeof(data)];
	struct ckpt_object object;
	struct ckpt_objects *b;
	size_t len;

	memset(data, 'x', sizeof(data));
	ck_ok(ckpt_local_open(fd, true, &b));
	fill_disk(errors[_i], 1);
	ck_error(ckpt_objects_put(b, "parts/1000/1", data, sizeof(data), NULL), -errors[_i]);
	ck_assert_int_eq(full.spares, 0);
	ck_ok(ckpt_objects_put_how(b, "parts/1000/1", data, sizeof(data), true, &object));
	ck_assert_uint_eq(object.bytes, sizeof(data));
	ck_ok(ckpt_objects_get(b, "parts/1000/1", 0, found, sizeof(found), &len, NULL));
	ck_assert_uint_eq(len, sizeof(data));
	ck_assert_mem_eq(found, data, sizeof(data));
	ck_assert_int_lt(spares_in(fd), CKPT_SPARE_COUNT);
	ck_error(ckpt_objects_put_how(b, "parts/1000/1", data, 1, true, NULL), EEXIST);

	make_room();
	ck_ok(ckpt_objects_put(b, "parts/1000/2", data, 1, NULL)); // anything that finds room
	ck_assert_int_eq(spares_in(fd), CKPT_SPARE_COUNT);
	ckpt_objects_close(b);
}
END_TEST

START_TEST(a_put_ends_when_the_reserve_does_and_leaves_nothing)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_objects *b;

	ck_ok(ckpt_local_open(fd, true, &b));
	ck_ok(ckpt_objects_put(b, "parts/1000/1", "x", 1, NULL));
	fill_disk(-ENOSPC, 0); // others are faster
	ck_error(ckpt_objects_put_how(b, "parts/1000/2", "x", 1, true, NULL), ENOSPC);
	ck_assert_int_eq(spares_in(fd), 0);
	ckpt_objects_refill(b); // no room yet
	ck_assert_int_eq(spares_in(fd), 0);
	make_room();
	ckpt_objects_refill(b);
	ck_assert_int_eq(spares_in(fd), CKPT_SPARE_COUNT);
	ckpt_objects_close(b);
}
END_TEST

// --- Acts -------------------------------------------------------------------------------------------------------------

static int act_delete(struct ckpt_step *step)
{
	return ckpt_delete(step);
}

static int act_expire(struct ckpt_step *step)
{
	int rc = ckpt_step_state(step) == CKPT_STEP_DELETED ? 0 : ckpt_delete(step);

	return rc ? rc : ckpt_expire(step);
}

static int act_unpin(struct ckpt_step *step)
{
	return ckpt_pin(step, false);
}

static int act_remove_path(struct ckpt_step *step)
{
	return ckpt_amend_remove(step, "model.bin");
}

static const struct {
	int (*act)(struct ckpt_step *step);
	bool pinned;
} acts[] = {{act_delete, false}, {act_expire, false}, {act_unpin, true}, {act_remove_path, false}};

static struct ckpt_step *step_for(int act)
{
	struct ckpt_step *step = ckpt_staged_one(s, "1000", "model.bin", "one");

	if (acts[act].pinned)
		ck_ok(ckpt_pin(step, true));
	return step;
}

START_TEST(each_act_that_frees_room_needs_none)
{
	int act = _i / (int)ARRAY_LEN(errors);
	struct ckpt_step *step = step_for(act);

	fill_disk(errors[_i % (int)ARRAY_LEN(errors)], 1);
	if (!acts[act].pinned)
		ck_error(ckpt_pin(step, true), -full.error); // frees nothing
	ck_ok(acts[act].act(step));
	make_room();
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	ck_assert_int_eq(spares_in(s->dirfd), CKPT_SPARE_COUNT);
}
END_TEST

// Any call fails once while the act goes through the reserve: it is done, or it says why not and can be done again.
START_TEST(an_act_on_a_full_disk_survives_a_failing_call)
{
	bool fired = true;

	for (uint64_t n = 1; fired; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = -EIO};
		struct ckpt_step *step = step_for(_i);
		struct ckpt_sys whole = ckpt_hooks;
		int rc;

		fill_disk(-ENOSPC, 1);
		ckpt_sysfault_begin(&fault);
		rc = acts[_i].act(step);
		ckpt_sysfault_end(&fault);
		fired = __atomic_load_n(&fault.count, __ATOMIC_RELAXED) >= n;
		ck_assert_int_le(rc, 0);
		if (rc) {
			rc = acts[_i].act(step);
			ck_assert_msg(!rc || rc == -ESTALE || rc == -ENOENT, "call %d: %s", (int)n, strerror(-rc));
		}
		make_room();
		ckpt_hooks_restore(&whole);
		ckpt_step_unref(step);
		ckpt_fixture_close();
		ckpt_fixture_open();
	}
}
END_TEST

static Suite *spare_suite(void)
{
	Suite *suite = suite_create("spare");
	TCase *tcase = tcase_create("files");

	tcase_add_test(tcase, an_open_for_writing_makes_all_of_them_and_mends_what_is_half_made);
	tcase_add_test(tcase, each_is_taken_or_dropped_once);
	tcase_add_loop_test(tcase, a_put_that_frees_is_done_on_a_full_disk_and_another_is_not, 0,
			    (int)ARRAY_LEN(errors));
	tcase_add_test(tcase, a_put_ends_when_the_reserve_does_and_leaves_nothing);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("acts");
	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_loop_test(tcase, each_act_that_frees_room_needs_none, 0, (int)(ARRAY_LEN(acts) * ARRAY_LEN(errors)));
	tcase_add_loop_test(tcase, an_act_on_a_full_disk_survives_a_failing_call, 0, (int)ARRAY_LEN(acts));
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(spare_suite());
}
