// A plain folder that becomes a step, when any call fails and when the power goes at any point: it is the folder with all
// that it held, or the step, never neither; what was acknowledged is the step; and a second attempt works.
#include "core/save/stage.h"
#include "core/step/store_folder.h"
#include "core/store/open.h"
#include "tests/support/backendfault.h"
#include "tests/support/disk.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/convert.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define NAME "run"
#define CALLS_MAX 1000

static const struct {
	const char *path, *whole, *text;
} files[] = {{"a", NAME "/a", "first"}, {"empty", NAME "/empty", ""}, {"sub/b", NAME "/sub/b", "second"}};

static void make_folder(struct ckpt_store *s)
{
	ck_ok(ckpt_sys.mkdir(s->tree_fd, NAME, 0755));
	ck_ok(ckpt_sys.mkdir(s->tree_fd, NAME "/sub", 0755));
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, files[i].whole, O_RDWR | O_CREAT | O_EXCL, 0644);

		ck_ok(fd);
		ck_ok(ckpt_sys.pwrite(fd, files[i].text, strlen(files[i].text), 0));
	}
}

static void prepare(char *ret_dir)
{
	struct ckpt_store *s;

	ckpt_save_init(ret_dir);
	s = ckpt_save_open(ret_dir);
	make_folder(s);
	ckpt_store_close(s);
}

// As a marker does it. 0, -errno.
static int convert(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME); // of an attempt whose outcome is unknown
	bool prepared = !step;
	int rc = prepared ? ckpt_convert_prepare(s, s->tree_fd, "", NAME, &step) : 0;

	if (rc)
		return rc;
	rc = prepared ? ckpt_convert(step, s->tree_fd) : 0;
	if (rc) {
		ckpt_step_unref(step);
		return rc;
	}
	rc = ckpt_convert_sync(s, s->tree_fd);
	if (!rc)
		rc = ckpt_staged_commit(step, 0, NULL);
	if (rc)
		(void)ckpt_convert_back(step, s->tree_fd, NAME);
	ckpt_step_unref(step);
	return rc;
}

// --- What there is ----------------------------------------------------------------------------------------------------

static bool is_folder(struct ckpt_store *s)
{
	return !faccessat(s->tree_fd, NAME, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void check_folder(struct ckpt_store *s)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, files[i].whole, O_RDONLY, 0);
		char there[64];

		ck_ok(fd);
		ck_assert_int_eq(ckpt_sys.pread(fd, there, sizeof(there), 0), (ssize_t)strlen(files[i].text));
		ck_assert_mem_eq(there, files[i].text, strlen(files[i].text));
	}
}

// True: it is the step.
static bool check(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);
	struct ckpt_manifest *m;

	if (!step) {
		ck_assert_msg(is_folder(s), "it is neither a folder nor a step");
		check_folder(s);
		return false;
	}
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert_msg(!is_folder(s), "it is a folder and a step");
	ck_ok(ckpt_step_manifest(step, &m));
	ck_assert_uint_eq(ckpt_manifest_count(m), 2 + ARRAY_LEN(files));
	ckpt_manifest_unref(m);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		ckpt_staged_check(step, files[i].path, files[i].text);
	ckpt_step_unref(step);
	return true;
}

// The same as a new start finds it; then a second attempt, if it is needed, makes it a step.
static void check_at(const char *dir, bool acknowledged)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	ck_assert_msg(check(s) || !acknowledged, "it was acknowledged, and is a folder");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	ck_ok(convert(s));
	ck_assert(check(s));
	ckpt_store_close(s);
}

// --- Failures ---------------------------------------------------------------------------------------------------------

// dead: the way back failed, too, and the next start is what finds the folder.
static void check_answer(struct ckpt_store *s, const char *dir, int rc, int error, bool dead)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);
	bool staged = step && ckpt_step_state(step) != CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	if (rc && dead) {
		ckpt_store_close(s);
		check_at(dir, false);
		return;
	}
	ck_assert_msg(!rc || rc == error || rc == -EIO, "%s", strerror(-rc));
	ck_assert_msg(!staged || rc == -EIO || error == -EIO, "it was left staged after %s", strerror(-rc));
	if (!staged)
		ck_assert_msg(check(s) == !rc, "%s, and it is %s", strerror(-rc), rc ? "a step" : "a folder");
	if (rc)
		ck_ok(convert(s));
	ck_assert(check(s));
	ckpt_store_close(s);
	check_at(dir, true);
}

static bool faulty_call(uint64_t n, int kind, bool sticky)
{
	int error = ckpt_sysfault_error(kind, n);
	struct ckpt_sysfault fault = {.at = n, .error = error, .sticky = sticky, .torn = true};
	char dir[PATH_MAX];
	struct ckpt_store *s;
	int rc;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(dir);
	s = ckpt_save_open(dir);
	ckpt_save_settle_all(s);
	ckpt_sysfault_begin(&fault);
	rc = convert(s);
	ckpt_save_settle_all(s);
	ckpt_sysfault_end(&fault);
	check_answer(s, dir, rc, error, sticky);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

// Who saves under its name meanwhile has it.
START_TEST(a_folder_whose_name_is_taken_meanwhile_stays_one)
{
	struct ckpt_step *step, *rival;
	char dir[PATH_MAX];
	struct ckpt_store *s;

	prepare(dir);
	s = ckpt_save_open(dir);
	ck_ok(ckpt_convert_prepare(s, s->tree_fd, "", NAME, &step));
	rival = ckpt_staged_begin(s, NAME);
	ck_error(ckpt_convert(step, s->tree_fd), EEXIST);
	check_folder(s);
	ck_assert_int_eq(ckpt_step_state(rival), CKPT_STEP_STAGED);
	ckpt_step_unref(step);
	ckpt_step_unref(rival);
	ckpt_store_close(s);
}
END_TEST

static struct ckpt_sys below;
static int refused; // -errno of an open of the folder in it

static int open_but_for_sub(int dirfd, const char *path, int flags, mode_t mode)
{
	return strcmp(path, "sub") ? below.open(dirfd, path, flags, mode) : refused;
}

static void save_in(struct ckpt_store *s, const char *folder)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, folder, O_RDONLY | O_DIRECTORY, 0);
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step;

	ck_ok(fd);
	ck_ok(ckpt_store_folder_id(s, fd, true, id));
	ck_ok(ckpt_stage_begin(s, id, "1000", 0755, getuid(), getgid(), getpid(), &step));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
}

// Its steps are called by the folder. One that cannot be looked into just now may have some.
START_TEST(a_folder_of_steps_is_none_that_becomes_a_step)
{
	static const int not_now[] = {-EMFILE, -EIO, -ENOMEM, -EACCES};
	struct ckpt_step *step;
	struct ckpt_store *s;
	char dir[PATH_MAX];

	prepare(dir);
	s = ckpt_save_open(dir);
	save_in(s, NAME "/sub");
	ck_error(ckpt_convert_prepare(s, s->tree_fd, "", NAME, &step), ENOTEMPTY);
	below = ckpt_hooks;
	ckpt_hook_set(open, open_but_for_sub);
	for (size_t i = 0; i < ARRAY_LEN(not_now); i++) {
		refused = not_now[i];
		ck_error(ckpt_convert_prepare(s, s->tree_fd, "", NAME, &step), -not_now[i]);
	}
	ckpt_hook_set(open, below.open);
	check_folder(s);
	ckpt_store_close(s);
}
END_TEST

START_TEST(a_folder_that_is_too_deep_for_a_step_stays_one)
{
	char dir[PATH_MAX], path[4 * CKPT_DEPTH_MAX] = NAME;
	struct ckpt_step *step;
	struct ckpt_store *s;

	prepare(dir);
	s = ckpt_save_open(dir);
	for (int depth = 0; depth <= CKPT_DEPTH_MAX; depth++) {
		strcat(path, "/d");
		ck_ok(ckpt_sys.mkdir(s->tree_fd, path, 0755));
		ck_assert_int_eq(ckpt_convert_prepare(s, s->tree_fd, "", NAME, &step),
				 depth < CKPT_DEPTH_MAX ? 0 : -E2BIG);
		if (depth < CKPT_DEPTH_MAX)
			ckpt_step_unref(step);
	}
	check_folder(s);
	ckpt_store_close(s);
}
END_TEST

START_TEST(a_call_that_fails_leaves_the_folder_or_the_step)
{
	uint64_t n = 1;

	while (faulty_call(n, _i / 2, _i % 2))
		n++;
	printf("way %d: %llu calls\n", _i, (unsigned long long)n - 1);
}
END_TEST

static bool faulty_backend(const struct ckpt_fault *how, uint64_t n)
{
	struct ckpt_fault fault = {0};
	char dir[PATH_MAX];
	struct ckpt_store *s;
	bool fired;
	int rc;

	prepare(dir);
	s = ckpt_save_open(dir);
	ckpt_save_fault(s, &fault);
	fault = *how;
	fault.at = n;
	rc = convert(s);
	ckpt_save_settle_all(s);
	fired = fault.count >= n;
	fault.at = 0;
	check_answer(s, dir, rc, how->error, false);
	ckpt_temp_empty(dir, true);
	return fired;
}

START_TEST(a_backend_that_fails_or_loses_answers_leaves_the_folder_or_the_step)
{
	uint64_t n = 1;

	while (faulty_backend(&ckpt_objectsfault_ways[_i], n))
		n++;
}
END_TEST

// --- The power goes ---------------------------------------------------------------------------------------------------

// Call n fails (0: none), and with again it is asked again. False: there is no such call.
static bool cut(uint64_t n, bool again)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO, .changes_only = true};
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	struct ckpt_store *s;
	unsigned seeds = ckpt_suite_seeds(6, 12);
	size_t from, done, states = 0;
	int rc;

	prepare(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	ckpt_save_settle_all(s);
	from = ckpt_disk_count(disk);
	ckpt_sysfault_begin(&fault);
	rc = convert(s);
	ckpt_save_settle_all(s);
	ckpt_sysfault_end(&fault);
	if (rc && again)
		ck_ok(rc = convert(s));
	done = rc ? SIZE_MAX : ckpt_disk_count(disk);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	for (size_t point = from; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < (n ? MAX(seeds / 3, 2u) : seeds); seed++, states++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			check_at(out, point >= done);
			ckpt_temp_empty(out, false);
		}
	if (!n)
		printf("power: %zu states\n", states);
	ckpt_disk_free(disk);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

START_TEST(power_cuts_at_every_point_leave_the_folder_or_the_step)
{
	cut(0, false);
}
END_TEST

START_TEST(power_cuts_after_a_failure_leave_the_folder_or_the_step)
{
	uint64_t n = 1;

	while (cut(n, _i))
		n++;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("convert crash");
	TCase *faults = tcase_create("faults"), *power = tcase_create("power");

	tcase_add_loop_test(faults, a_call_that_fails_leaves_the_folder_or_the_step, 0, 2 * ckpt_sysfault_kinds());
	tcase_add_loop_test(faults, a_backend_that_fails_or_loses_answers_leaves_the_folder_or_the_step, 0,
			    CKPT_BACKENDFAULT_WAYS);
	tcase_add_test(faults, a_folder_whose_name_is_taken_meanwhile_stays_one);
	tcase_add_test(faults, a_folder_of_steps_is_none_that_becomes_a_step);
	tcase_add_test(faults, a_folder_that_is_too_deep_for_a_step_stays_one);
	suite_add_tcase(suite, faults);
	tcase_add_test(power, power_cuts_at_every_point_leave_the_folder_or_the_step);
	tcase_add_loop_test(power, power_cuts_after_a_failure_leave_the_folder_or_the_step, 0, 2);
	suite_add_tcase(suite, power);
	return ckpt_suite_run(suite);
}
