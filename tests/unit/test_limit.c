// What unfinished work takes on the disk, who is refused for it and told so, and how seldom it is looked at.
#include "core/save/stage.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/draft.h"
#include "core/save/limit.h"
#include "core/save/share.h"
#include "core/step/trash.h"

#include <fcntl.h>

#define MIB (UINT64_C(1) << 20)
#define SECOND_NS INT64_C(1000000000)
#define SOMEBODY 4711
#define OTHER 4712

static void limited(const char *name, const char *size)
{
	ck_ok(ckpt_store_set(dir, ckpt_setting_find(name), size));
	ckpt_fixture_reopen();
}

static void fill(int fd, uint64_t bytes)
{
	static char data[1 << 16];

	memset(data, 'x', sizeof(data));
	for (uint64_t at = 0; at < bytes; at += sizeof(data))
		ck_ok(ckpt_sys.pwrite(fd, data, sizeof(data), (off_t)at));
}

static void put(struct ckpt_step *step, const char *path, uint64_t bytes)
{
	CLEANUP_FD int fd = ckpt_staged_put(step, path, "");

	fill(fd, bytes);
}

static struct ckpt_step *staged(const char *name, uint64_t bytes)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	put(step, "a", bytes);
	return step;
}

static void commit(struct ckpt_step *step)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
}

static void begin_draft(struct ckpt_draft *d, uint64_t bytes)
{
	const struct ckpt_draft_origin origin = {
		.path = "a.pt", .name = "a.pt", .folder_id = "", .pid = 1, .folder_fd = -1};

	ck_ok(ckpt_draft_begin(s, &origin, d));
	CLEANUP_FD int fd = ckpt_sys.open(d->dirfd, d->name, O_RDWR | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	fill(fd, bytes);
}

static uint64_t measured(void)
{
	uint64_t bytes;

	s->settings.work_limit = MIN(s->settings.work_limit, UINT64_C(1) << 40); // without one nobody wants to know
	ck_ok(ckpt_limit_measure(s, &bytes));
	return bytes;
}

// --- Time, and walks --------------------------------------------------------------------------------------------------

// A clock that stands still but for a ms with each name that is read.
static int64_t clock_ns; // atomic
static int (*real_readdir)(DIR *dir, struct dirent **ret_entry);
static unsigned reads; // atomic
static int read_fails;

static int64_t clock_mono_ns(void)
{
	return __atomic_load_n(&clock_ns, __ATOMIC_RELAXED);
}

static void pass(int64_t ns)
{
	__atomic_add_fetch(&clock_ns, ns, __ATOMIC_RELAXED);
}

static int counted_readdir(DIR *d, struct dirent **ret_entry)
{
	pass(1000000);
	__atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
	return read_fails ? read_fails : real_readdir(d, ret_entry);
}

static void setup(void)
{
	clock_ns = SECOND_NS;
	real_readdir = ckpt_hooks.readdir;
	ckpt_hook_set(mono_ns, clock_mono_ns);
	ckpt_hook_set(readdir, counted_readdir);
	ckpt_fixture_open();
}

static unsigned reads_since(void)
{
	return __atomic_exchange_n(&reads, 0, __ATOMIC_RELAXED);
}

// --- What counts ------------------------------------------------------------------------------------------------------

START_TEST(all_that_is_not_completed_counts_as_it_is_on_the_disk)
{
	struct ckpt_step *step = staged("1", MIB);
	struct ckpt_draft d;
	uint64_t bytes;

	ck_assert_ptr_null(*ckpt_limit_of(s));
	ck_error(ckpt_limit_measure(s, &bytes), ENODATA);
	ck_assert_uint_eq(measured(), MIB);
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	put(step, "sub/b", MIB);
	ck_assert_uint_eq(measured(), 2 * MIB);
	ck_ok(ckpt_sys.link(step->dirfd, "a", step->dirfd, "again"));
	ck_assert_uint_eq(measured(), 2 * MIB); // each file once
	close(ckpt_staged_put(step, "hole", ""));
	CLEANUP_FD int hole = ckpt_sys.open(step->dirfd, "hole", O_RDWR, 0);
	ck_ok(ckpt_sys.ftruncate(hole, 1 << 30));
	ck_assert_uint_eq(measured(), 2 * MIB);
	begin_draft(&d, MIB);
	ck_assert_uint_eq(measured(), 3 * MIB);
	ckpt_draft_close(&d); // as by a daemon that dies
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_unfinished_count(s), 2);
	ck_assert_uint_eq(measured(), 3 * MIB);
}
END_TEST

START_TEST(what_is_committed_dropped_or_published_does_not_count)
{
	struct ckpt_step *step = staged("2", MIB);
	struct ckpt_draft d[3];

	commit(staged("1", MIB));
	ck_assert_uint_eq(measured(), MIB);
	ck_ok(ckpt_stage_abort(step, false));
	ckpt_step_unref(step);
	ck_assert_uint_eq(measured(), 0);
	for (size_t i = 0; i < ARRAY_LEN(d); i++)
		begin_draft(&d[i], MIB);
	ck_ok(ckpt_draft_publish(&d[1], s->tree_fd, "a.pt"));
	ck_ok(ckpt_draft_published(&d[1], s->tree_fd, false));
	ck_assert_uint_eq(measured(), 2 * MIB);
	ckpt_draft_drop(&d[0]);
	ck_assert_uint_eq(measured(), MIB);
	ckpt_draft_drop(&d[2]);
	ck_assert_uint_eq(measured(), 0);
}
END_TEST

START_TEST(what_is_shared_with_a_step_does_not_count_until_it_is_not)
{
	struct ckpt_step *from, *step;
	struct ckpt_share_copy copy;

	commit(staged("1", MIB));
	from = ckpt_step_find(s, "", "1");
	ck_ok(ckpt_stage_begin_from(s, "", "2", from, false, &step));
	ck_assert_uint_eq(measured(), 0);
	ck_ok(ckpt_share_copy_make(s, step->dirfd, "a", false, false, &copy));
	ck_ok(ckpt_share_copy_place(s, &copy, step->dirfd, "a"));
	ck_assert_uint_eq(measured(), MIB);
	ckpt_step_unref(step);
	ckpt_step_unref(from);
}
END_TEST

// --- Who is refused ---------------------------------------------------------------------------------------------------

static int begins(const char *name)
{
	struct ckpt_step *step;
	int rc = ckpt_stage_begin(s, "", name, 0755, getuid(), getgid(), getpid(), &step);

	if (!rc)
		ckpt_step_unref(step);
	return rc;
}

// What is written past us is known by the next walk only.
static struct ckpt_step *fills_up(const char *name)
{
	struct ckpt_step *step = staged(name, 2 * MIB);

	pass(SECOND_NS);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 2 * MIB + 1), ENOSPC);
	return step;
}

START_TEST(at_the_limit_nothing_is_begun_until_something_ends_and_then_at_once)
{
	struct ckpt_step *step, *from;
	struct ckpt_draft d;

	limited("work_limit", "2MiB");
	step = fills_up("1");
	ck_error(begins("2"), ENOSPC);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 0), ENOSPC);
	ck_assert_ptr_null(ckpt_step_find(s, "", "2"));
	commit(step);
	from = ckpt_step_find(s, "", "1");
	step = fills_up("2");
	ck_error(ckpt_stage_begin_from(s, "", "3", from, false, &step), ENOSPC);
	ckpt_step_unref(from);
	ck_ok(ckpt_stage_abort(step, false));
	ckpt_step_unref(step);
	begin_draft(&d, 2 * MIB);
	pass(SECOND_NS);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 2 * MIB), ENOSPC);
	ck_error(begins("3"), ENOSPC);
	ckpt_draft_drop(&d);
	ck_ok(begins("3"));
}
END_TEST

START_TEST(what_was_asked_for_counts_until_the_next_walk_finds_it_or_not)
{
	struct ckpt_step *step;

	limited("work_limit", "2MiB");
	step = staged("1", MIB / 2);
	(void)reads_since();
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB));
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB));
	ck_assert_uint_eq(reads_since(), 0);
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, 1)); // nobody has written it
	ck_assert_uint_gt(reads_since(), 0);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB + MIB / 2), ENOSPC);
	ck_assert_uint_eq(reads_since(), 0); // it rests
	pass(SECOND_NS);
	put(step, "b", MIB);
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB));
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB / 2 + 1), ENOSPC);
	pass(SECOND_NS);
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB / 2));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(each_user_but_root_has_a_limit_of_his_own)
{
	bool root = geteuid() == 0;
	uid_t user = root ? SOMEBODY : geteuid();
	struct ckpt_step *step;

	limited("user_limit", "1MiB");
	step = staged("1", MIB);
	if (root)
		ck_assert_int_eq(fchownat(step->dirfd, "a", user, (gid_t)-1, 0), 0);
	put(step, "b", MIB);
	pass(SECOND_NS);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), user, MIB + 1), EDQUOT);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), user, 0), EDQUOT);
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), OTHER, MIB));
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), OTHER, 1), EDQUOT);
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, UINT64_C(1) << 50));
	ck_assert_uint_eq(ckpt_save_errors(s, "user 4712 takes"), 1);
	commit(step);
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), user, MIB));
}
END_TEST

START_TEST(where_it_cannot_be_known_nobody_is_refused)
{
	ckpt_step_unref(staged("1", 2 * MIB));
	limited("work_limit", "1MiB");
	read_fails = -EIO;
	ck_ok(begins("2"));
	ck_assert_uint_eq(ckpt_save_errors(s, "work_limit"), 0);
	read_fails = 0;
	pass(SECOND_NS);
	ck_error(begins("3"), ENOSPC);
}
END_TEST

// --- What is said -----------------------------------------------------------------------------------------------------

START_TEST(it_is_told_at_once_and_then_once_a_minute)
{
	struct ckpt_step *step;

	limited("work_limit", "2MiB");
	step = fills_up("1");
	ck_assert_uint_eq(ckpt_save_errors(s, "unfinished work takes 2MiB of the 2MiB"), 1);
	for (int second = 2; second < 60; second++) {
		ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 0), ENOSPC);
		pass(SECOND_NS / 2);
	}
	ck_assert_uint_eq(ckpt_save_errors(s, "unfinished work takes"), 1);
	pass(60 * SECOND_NS);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 0), ENOSPC);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 0), ENOSPC);
	ck_assert_uint_eq(ckpt_save_errors(s, "unfinished work takes"), 2);
	ckpt_step_unref(step);
}
END_TEST

static bool tells(const char *text)
{
	for (int ms = 0; ms < 5000; ms += 10) {
		if (ckpt_save_errors(s, text))
			return true;
		usleep(10000);
	}
	return false;
}

// Nobody asks: the kernel writes.
START_TEST(who_watches_finds_what_is_written_past_us)
{
	bool root = geteuid() == 0;
	struct ckpt_step *step;

	limited("user_limit", "2MiB");
	limited("work_limit", "3MiB");
	ck_ok(ckpt_limit_watch(*ckpt_limit_of(s)));
	step = staged("1", 2 * MIB);
	if (root)
		ck_assert_int_eq(fchownat(step->dirfd, "a", SOMEBODY, (gid_t)-1, 0), 0);
	for (int i = 0; i < 300 && ckpt_limit_ask(*ckpt_limit_of(s), root ? SOMEBODY : geteuid(), 0) == 0; i++) {
		pass(SECOND_NS);
		usleep(10000);
	}
	ck_assert(tells("takes 2MiB of the 2MiB"));
	put(step, "b", MIB);
	pass(2 * SECOND_NS);
	ck_assert(tells("unfinished work takes 3MiB of the 3MiB"));
	ckpt_step_unref(step);
}
END_TEST

// --- How seldom -------------------------------------------------------------------------------------------------------

START_TEST(it_rests_ten_times_as_long_as_it_has_looked)
{
	struct ckpt_step *step;
	unsigned walk;
	int64_t end_ns;

	limited("work_limit", "2MiB");
	step = fills_up("1");
	end_ns = clock_mono_ns();
	(void)reads_since();
	pass(SECOND_NS);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 0), ENOSPC);
	walk = reads_since();
	ck_assert_int_gt(clock_mono_ns(), end_ns + SECOND_NS);
	end_ns = clock_mono_ns();
	while (!reads_since()) {
		ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 0), ENOSPC);
		pass(1000);
	}
	ck_assert_int_ge(clock_mono_ns(), end_ns + (10 + 1) * walk * INT64_C(1000000));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(where_nothing_is_unfinished_nothing_is_read)
{
	limited("work_limit", "2MiB");
	commit(staged("1", MIB));
	(void)reads_since();
	ck_ok(ckpt_limit_ask(*ckpt_limit_of(s), 0, MIB));
	pass(SECOND_NS);
	ck_error(ckpt_limit_ask(*ckpt_limit_of(s), 0, 2 * MIB + 1), ENOSPC);
	ck_assert_uint_eq(reads_since(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limit");
	TCase *tcase = tcase_create("limit");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_close);
	tcase_add_test(tcase, all_that_is_not_completed_counts_as_it_is_on_the_disk);
	tcase_add_test(tcase, what_is_committed_dropped_or_published_does_not_count);
	tcase_add_test(tcase, what_is_shared_with_a_step_does_not_count_until_it_is_not);
	tcase_add_test(tcase, at_the_limit_nothing_is_begun_until_something_ends_and_then_at_once);
	tcase_add_test(tcase, what_was_asked_for_counts_until_the_next_walk_finds_it_or_not);
	tcase_add_test(tcase, each_user_but_root_has_a_limit_of_his_own);
	tcase_add_test(tcase, where_it_cannot_be_known_nobody_is_refused);
	tcase_add_test(tcase, it_is_told_at_once_and_then_once_a_minute);
	tcase_add_test(tcase, who_watches_finds_what_is_written_past_us);
	tcase_add_test(tcase, it_rests_ten_times_as_long_as_it_has_looked);
	tcase_add_test(tcase, where_nothing_is_unfinished_nothing_is_read);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
