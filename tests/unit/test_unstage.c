// Staged directories that become plain folders, and those that are staged again: also when the power goes at any point.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/convert.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define NAME "epoch_5"
#define AN_HOUR_NS INT64_C(3600000000000)

static struct ckpt_step *begin_in(struct ckpt_store *store)
{
	struct ckpt_step *step;
	int fd;

	ck_ok(ckpt_stage_begin_by_client(store, "", NAME, 0750, getuid(), getgid(), getpid(), &step));
	ckpt_staging_of(step)->began_ns -= AN_HOUR_NS;
	fd = ckpt_staged_put(step, "a.json", "{}");
	ck_ok(ckpt_sys.fsync(fd));
	ck_ok(ckpt_sys.fsync(step->dirfd));
	close(fd);
	return step;
}

static void unstage(struct ckpt_store *store, struct ckpt_step *step)
{
	ck_ok(ckpt_unstage_begin(step, NULL));
	ckpt_unstage_mark(step);
	ck_ok(ckpt_unstage(step, store->tree_fd, NAME, RENAME_NOREPLACE));
}

static struct ckpt_step *restage(struct ckpt_store *store)
{
	struct ckpt_step *step;

	ck_ok(ckpt_restage_prepare(store, store->tree_fd, "", NAME, &step));
	ck_ok(ckpt_convert(step, store->tree_fd));
	ck_ok(ckpt_convert_sync(store, store->tree_fd));
	ckpt_restage_unmark(step->dirfd);
	return step;
}

static bool is_folder(struct ckpt_store *store)
{
	return !faccessat(store->tree_fd, NAME "/a.json", F_OK, AT_SYMLINK_NOFOLLOW);
}

START_TEST(what_has_changed_since_stays_staged)
{
	struct ckpt_step *step = begin_in(s);
	int64_t before_ns, now_ns;

	ck_ok(ckpt_stage_enter(step, false));
	ckpt_stage_leave(step);
	before_ns = ckpt_staging_of(step)->touched_ns;
	ck_ok(ckpt_stage_enter(step, false));
	ckpt_stage_leave(step);
	now_ns = ckpt_staging_of(step)->touched_ns;
	ck_assert_int_gt(now_ns, before_ns);
	ck_error(ckpt_unstage_begin(step, &before_ns), EAGAIN);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_enter(step, false)); // it goes on
	ckpt_stage_leave(step);
	now_ns = ckpt_staging_of(step)->touched_ns;
	ck_ok(ckpt_unstage_begin(step, &now_ns));
	ckpt_unstage_cancel(step);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_step_unref(step);
}
END_TEST

// The step may be older than commit_timeout, and nobody has changed it for as long.
START_TEST(who_waits_for_a_folder_counts_from_its_beginning)
{
	struct ckpt_step *step = begin_in(s);
	int64_t before_ns = ckpt_sys.mono_ns();

	__atomic_store_n(&ckpt_staging_of(step)->progress_ns, before_ns - s->settings.commit_timeout_ns,
			 __ATOMIC_RELAXED);
	ck_ok(ckpt_unstage_begin(step, NULL));
	ck_assert_int_ge(__atomic_load_n(&ckpt_staging_of(step)->progress_ns, __ATOMIC_RELAXED), before_ns);
	ckpt_unstage_cancel(step);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_folder_that_is_staged_again_is_what_it_was)
{
	struct ckpt_step *step = begin_in(s), *again;
	int64_t began_ns = ckpt_staging_of(step)->began_ns;

	unstage(s, step);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
	ck_assert(is_folder(s));
	ckpt_step_unref(step);
	again = restage(s);
	ck_assert(!is_folder(s));
	ck_assert_int_eq(ckpt_staging_of(again)->began_ns, began_ns);
	ck_assert_uint_eq(ckpt_staging_of(again)->uid, getuid());
	ck_assert(ckpt_staging_of(again)->by_client && !ckpt_staging_of(again)->from_plain);
	ck_assert(fgetxattr(again->dirfd, CKPT_NO_ARRAYS_XATTR, NULL, 0) < 0);
	ckpt_step_unref(again);
	ckpt_fixture_reopen();
	again = ckpt_step_find(s, "", NAME);
	ck_assert(again && ckpt_staging_of(again)->by_client && !is_folder(s));
	ck_assert_int_eq(ckpt_staging_of(again)->began_ns, began_ns);
	unstage(s, again);
	ckpt_step_unref(again);
	ckpt_fixture_reopen();
	ck_assert(is_folder(s));
}
END_TEST

START_TEST(a_folder_that_was_none_is_not_staged_again)
{
	struct ckpt_step *step = begin_in(s);

	ck_ok(ckpt_unstage_begin(step, NULL));
	ck_ok(ckpt_unstage(step, s->tree_fd, NAME, RENAME_NOREPLACE));
	ckpt_step_unref(step);
	ck_error(ckpt_restage_prepare(s, s->tree_fd, "", NAME, &step), ENODATA);
	ck_assert(is_folder(s));
}
END_TEST

// At every point: one of the two, with all that is in it. True: it is staged.
static bool check_at(const char *at)
{
	struct ckpt_store *store = ckpt_save_open(at);
	struct ckpt_step *step = ckpt_step_find(store, "", NAME);
	bool staged = step != NULL;

	ck_assert_msg(staged != is_folder(store), "it is %s", staged ? "both" : "neither");
	if (staged) {
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
		ck_ok(faccessat(step->dirfd, "a.json", F_OK, 0));
	}
	ckpt_step_unref(step);
	ckpt_store_close(store);
	return staged;
}

START_TEST(power_cuts_at_every_point_leave_a_staged_step_or_a_folder)
{
	char at[PATH_MAX], out[PATH_MAX];
	struct ckpt_store *store;
	struct ckpt_disk *disk;
	struct ckpt_step *step;
	size_t from, done;

	ckpt_save_init(at);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(at, &disk));
	store = ckpt_save_open(at);
	step = begin_in(store);
	ck_ok(ckpt_stage_make_durable(step, true));
	from = ckpt_disk_count(disk);
	unstage(store, step);
	ckpt_step_unref(step);
	ckpt_step_unref(restage(store));
	done = ckpt_disk_count(disk);
	ckpt_store_close(store);
	ckpt_disk_end(disk);
	for (size_t point = from; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < 12; seed++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			ck_assert_msg(check_at(out) || point < done, "it was staged again, and is a folder");
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
	ckpt_temp_empty(at, true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("unstage");
	TCase *tcase = tcase_create("unstage");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, what_has_changed_since_stays_staged);
	tcase_add_test(tcase, who_waits_for_a_folder_counts_from_its_beginning);
	tcase_add_test(tcase, a_folder_that_is_staged_again_is_what_it_was);
	tcase_add_test(tcase, a_folder_that_was_none_is_not_staged_again);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("power");
	tcase_add_test(tcase, power_cuts_at_every_point_leave_a_staged_step_or_a_folder);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
