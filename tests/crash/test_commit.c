// A save when its process dies at any call, and when the power goes at any point: what is listed is whole, what was
// acknowledged is listed, what was not finished is kept aside and can be saved anew, and the store opens without help.
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 6 by default; CKPT_TEST_FULL=1: 12.
// CKPT_CRASH_STRIDE: only each so-many-th point.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/find/find.h"
#include "core/save/replace.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define THOROUGH_EACH 16 // states
#define POINTS_MAX 20000

// --- The process dies -------------------------------------------------------------------------------------------------

static uint64_t no_clock(void *arg)
{
	(void)arg;
	return 0;
}

// Saves in a child that dies at call n; false when it came to its end before. The log survives it.
static bool saved_and_died(const char *dir, uint64_t n, struct ckpt_save_log *log)
{
	struct ckpt_sysfault fault = {.at = n, .die = ckpt_sysfault_kill};
	pid_t pid = fork();

	if (!pid) {
		ckpt_sysfault_begin(&fault);
		ckpt_save_run(dir, log, no_clock, NULL);
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

static struct ckpt_save_log *shared_log(void)
{
	void *log = mmap(NULL, sizeof(struct ckpt_save_log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(log, MAP_FAILED);
	return log;
}

START_TEST(a_save_survives_the_death_of_its_process_at_every_call)
{
	struct ckpt_save_log *log = shared_log();
	uint64_t stride = ckpt_suite_stride(1);
	bool died = true;

	for (uint64_t n = 1; died; n += stride) {
		char dir[PATH_MAX];

		ck_assert_uint_lt(n, POINTS_MAX);
		memset(log, 0, sizeof(*log));
		ckpt_save_init(dir);
		died = saved_and_died(dir, n, log);
		ckpt_save_check(dir, log, UINT64_MAX, n % THOROUGH_EACH == 1 % THOROUGH_EACH || ckpt_suite_full());
		ckpt_temp_empty(dir, true);
		if (!died)
			printf("death: %llu calls\n", (unsigned long long)n - 1);
	}
}
END_TEST

// Death in the middle of opening the store that an earlier death left: the start heals itself however often it fails.
START_TEST(a_start_that_dies_at_every_call_harms_nothing)
{
	struct ckpt_save_log *log = shared_log();
	char dir[PATH_MAX];
	bool died = true;

	ckpt_save_init(dir);
	ck_assert(saved_and_died(dir, 400, log));
	for (uint64_t n = 1; died; n++) {
		struct ckpt_sysfault fault = {.at = n, .die = ckpt_sysfault_kill};
		pid_t pid = fork();

		if (!pid) {
			ckpt_sysfault_begin(&fault);
			ckpt_store_close(ckpt_save_open(dir));
			_exit(0);
		}
		died = ckpt_sysfault_killed(pid, n);
		ckpt_save_check(dir, log, UINT64_MAX, false);
	}
	ckpt_save_check(dir, log, UINT64_MAX, true);
}
END_TEST

// --- The power goes ---------------------------------------------------------------------------------------------------

static uint64_t disk_clock(void *arg)
{
	return ckpt_disk_count(arg);
}

START_TEST(a_save_survives_a_power_cut_at_every_point)
{
	size_t states = 0, stride = ckpt_suite_stride(1);
	unsigned seeds = ckpt_suite_seeds(6, 12);
	struct ckpt_save_log log = {0};
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;

	ckpt_save_dirty_bytes = _i ? UINT64_C(1) << 40 : 0; // others have much to write back: no syncfs
	ckpt_save_init(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ckpt_save_run(dir, &log, disk_clock, disk);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point += stride) {
		for (unsigned seed = 0; seed < seeds; seed++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			ckpt_save_check(out, &log, point, states++ % THOROUGH_EACH == 0);
			ckpt_temp_empty(out, false);
		}
	}
	printf("power: %zu states at %zu points\n", states, ckpt_disk_count(disk) + 1);
	ckpt_disk_free(disk);
}
END_TEST

// Call n of a commit fails once; what an attempt after it acknowledged must be there when the power goes then.
static bool acknowledged_after_a_failure(uint64_t n, const char *out)
{
	static const char *const paths[] = {"config.json", "empty", "model.bin", "shards/0/a.bin"};
	struct ckpt_sysfault fault = {.at = n, .error = -EIO};
	char dir[PATH_MAX];
	struct ckpt_store *s;
	struct ckpt_disk *disk;
	struct ckpt_step *step;
	size_t point;
	int rc;

	ckpt_save_init(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	ck_ok(ckpt_save_begin(s, 0, &step));
	ckpt_save_write(step, 0, NULL);
	ckpt_sysfault_begin(&fault);
	rc = ckpt_save_commit(step, 0);
	ckpt_save_settle(s);
	ckpt_sysfault_end(&fault);
	for (int tries = 0; rc && tries < 2; tries++) {
		for (size_t i = 0; i < ARRAY_LEN(paths) && tries; i++) { // as if written anew
			struct statx stx;

			ck_assert_int_eq(statx(step->dirfd, paths[i], 0, CKPT_STATX_WANT, &stx), 0);
			ckpt_stage_rewritten(step, ckpt_store_ino(&stx));
		}
		rc = ckpt_save_commit(step, 0);
	}
	ck_ok(rc);
	point = ckpt_disk_count(disk);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	for (unsigned seed = 0; seed < 8; seed++) {
		ck_ok(ckpt_disk_crash(disk, point, seed, out));
		s = ckpt_save_open(out);
		step = ckpt_save_find(s, 0);
		ck_assert_msg(step, "acknowledged after a fault at call %llu, and gone", (unsigned long long)n);
		ckpt_save_check_step(step, 0);
		ckpt_step_unref(step);
		ckpt_store_close(s);
		ckpt_temp_empty(out, false);
	}
	ckpt_disk_free(disk);
	ckpt_temp_empty(dir, true);
	return fault.count >= n;
}

START_TEST(an_acknowledgement_after_a_failed_attempt_survives_a_power_cut)
{
	char out[PATH_MAX];

	ckpt_temp_dir(out);
	for (uint64_t n = 1; acknowledged_after_a_failure(n, out); n++)
		ck_assert_uint_lt(n, POINTS_MAX);
}
END_TEST

// It has its file back, and goes on in it: what it syncs from then on is what a power cut leaves.
START_TEST(what_a_leftover_syncs_after_a_failed_commit_survives_a_power_cut)
{
	struct ckpt_fault fault = {.at = 1, .error = -ENOSPC, .sticky = true};
	char dir[PATH_MAX], out[PATH_MAX], path[2 * PATH_MAX];
	struct ckpt_writer writer;
	struct ckpt_disk *disk;
	struct ckpt_store *s;
	struct ckpt_step *step;
	size_t point;
	int fd;

	ckpt_save_init(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	ckpt_save_fault(s, &fault);
	step = ckpt_staged_begin(s, "1");
	snprintf(path, sizeof(path), "%s/sessions/%s/file", out, step->session);
	fd = ckpt_staged_put(step, "file", "text");
	ckpt_staged_writer(step, &writer, fd);
	ckpt_staged_close_once(&writer);
	ck_error(ckpt_staged_commit(step, 30000000, NULL), ENOSPC);
	ckpt_save_settle(s);
	ck_ok(ckpt_sys.pwrite(fd, "more text", 9, 0));
	ck_ok(ckpt_sys.fsync(fd));
	point = ckpt_disk_count(disk);
	ckpt_stage_writer_remove(&writer);
	close(fd);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	for (unsigned seed = 0; seed < 16; seed++) {
		CLEANUP_FD int there = -1;
		char text[16];

		ck_ok(ckpt_disk_crash(disk, point, seed, out));
		ckpt_store_close(ckpt_save_open(out)); // which empties the trash
		there = open(path, O_RDONLY | O_CLOEXEC);
		ck_ok(there);
		ck_assert_int_eq(read(there, text, sizeof(text)), 9);
		ck_assert_mem_eq(text, "more text", 9);
		ckpt_temp_empty(out, false);
	}
	ckpt_disk_free(disk);
}
END_TEST

// The old one with its own file, or the new one; else the test ends.
static bool is_the_new_one(const char *dir)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *step = ckpt_find_committed(s, "", "1000"), **steps;
	size_t count;
	bool is;

	ck_assert_ptr_nonnull(step);
	is = ckpt_staged_has(step, "new.bin");
	ckpt_staged_check(step, is ? "new.bin" : "old.bin", is ? "the new ones" : "the old ones");
	ck_assert(!ckpt_staged_has(step, is ? "old.bin" : "new.bin"));
	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	ck_assert_uint_eq(count, 1);
	ckpt_step_list_free(steps, count);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	return is;
}

START_TEST(a_save_over_a_step_is_the_old_one_or_the_new_one_after_a_power_cut)
{
	const struct ckpt_commit how = {.folder_id = "", .name = "1000", .event = "verb", .profile = "generic"};
	unsigned seeds = ckpt_suite_seeds(4, 12);
	struct ckpt_step *step, *replaced;
	size_t began, committed, news = 0;
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	struct ckpt_store *s;

	ckpt_save_init(dir);
	ckpt_temp_dir(out);
	s = ckpt_save_open(dir);
	ckpt_step_unref(ckpt_staged_one(s, "1000", "old.bin", "the old ones"));
	ckpt_store_close(s);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	ck_ok(ckpt_replace_begin(s, "", "1000", 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "new.bin", "the new ones"));
	began = ckpt_disk_count(disk);
	ck_ok(ckpt_replace_commit(step, &how, &replaced));
	committed = ckpt_disk_count(disk);
	ckpt_step_unref(replaced);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < seeds; seed++) {
			bool is_new;

			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			is_new = is_the_new_one(out);
			ck_assert_msg(point < committed || is_new, "point %zu, seed %u: what was acknowledged is gone",
				      point, seed);
			ck_assert(point > began || !is_new);
			news += is_new;
			ckpt_temp_empty(out, false);
		}
	ck_assert_uint_gt(news, 0);
	ckpt_disk_free(disk);
}
END_TEST

static Suite *commit_suite(void)
{
	Suite *suite = suite_create("commit crash");
	TCase *death = tcase_create("death"), *power = tcase_create("power");

	tcase_add_test(death, a_save_survives_the_death_of_its_process_at_every_call);
	tcase_add_test(death, a_start_that_dies_at_every_call_harms_nothing);
	suite_add_tcase(suite, death);
	tcase_add_loop_test(power, a_save_survives_a_power_cut_at_every_point, 0, 2);
	tcase_add_test(power, a_save_over_a_step_is_the_old_one_or_the_new_one_after_a_power_cut);
	tcase_add_test(power, an_acknowledgement_after_a_failed_attempt_survives_a_power_cut);
	tcase_add_test(power, what_a_leftover_syncs_after_a_failed_commit_survives_a_power_cut);
	suite_add_tcase(suite, power);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(commit_suite());
}
