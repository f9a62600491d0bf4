// The removal of raw files that only expired versions name, when the process dies at any call and when the power goes at any point: the step
// has its files, and the next removal takes the rest.
#include "core/save/outdated.h"
#include "core/step/trash.h"
#include "core/store/open.h"
#include "tests/support/amends.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "core/base/util.h"
#include "core/base/walk.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

// A step with all of its versions.
static void make(char *ret_dir)
{
	struct ckpt_store *s;

	ckpt_amends_init(ret_dir);
	s = ckpt_save_open(ret_dir);
	for (size_t i = 0; i < CKPT_AMEND_ACTS; i++)
		ck_ok(ckpt_amends_do(s, i));
	ckpt_store_close(s);
}

static struct ckpt_store *open_expired(const char *dir)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	ckpt_save_settle_all(s);
	s->settings.trash_ns = 0;
	return s;
}

static void expire(struct ckpt_store *s)
{
	static const bool stop = false;

	(void)ckpt_outdated_remove(s, &stop);
	ckpt_save_settle_all(s);
}

static int count_file(void *arg, int dirfd __attribute__((unused)), const char *name __attribute__((unused)),
		      const struct statx *stx)
{
	*(size_t *)arg += S_ISREG(stx->stx_mode);
	return 0;
}

static size_t raw_files(struct ckpt_store *s)
{
	size_t done, count = 0;
	struct ckpt_step *step = ckpt_amends_step(s, &done);

	ck_ok(ckpt_walk(s->sessions_fd, step->session, count_file, &count));
	ckpt_step_unref(step);
	return count;
}

// Of the same step without a cut: before, and after.
static void find_out(size_t *ret_before, size_t *ret_after)
{
	char dir[PATH_MAX];
	struct ckpt_store *s;

	make(dir);
	s = open_expired(dir);
	*ret_before = raw_files(s);
	expire(s);
	*ret_after = raw_files(s);
	ckpt_store_close(s);
	ckpt_temp_empty(dir, true);
	ck_assert_uint_gt(*ret_before, *ret_after);
}

static void check(const char *dir, size_t after)
{
	struct ckpt_store *s;

	ckpt_amends_check_at(dir, CKPT_AMEND_ACTS, CKPT_AMEND_ACTS);
	s = open_expired(dir);
	expire(s);
	ck_assert_uint_eq(raw_files(s), after);
	ckpt_amends_check(s, CKPT_AMEND_ACTS);
	ckpt_store_close(s);
}

static bool died(const char *dir, uint64_t n, struct ckpt_sysfault *fault)
{
	pid_t pid;

	*fault = (struct ckpt_sysfault){.at = n, .die = ckpt_sysfault_kill, .changes_only = true};
	pid = fork();
	if (!pid) {
		struct ckpt_store *s = open_expired(dir);

		ckpt_sysfault_begin(fault);
		expire(s);
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

START_TEST(deaths_at_every_call_lose_nothing_and_leave_nothing)
{
	struct ckpt_sysfault *fault =
		mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t before, after;
	bool again = true;
	uint64_t n;

	ck_assert_ptr_ne(fault, MAP_FAILED);
	find_out(&before, &after);
	for (n = 1; again; n++) {
		char dir[PATH_MAX];

		make(dir);
		again = died(dir, n, fault);
		check(dir, after);
		ckpt_temp_empty(dir, true);
	}
	printf("death: %llu calls\n", (unsigned long long)n - 2);
	ck_assert_uint_gt(n - 2, before - after); // each is moved by one, and removed by another
}
END_TEST

START_TEST(power_cuts_at_every_point_lose_nothing)
{
	struct ckpt_disk *disk;
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_store *s;
	size_t points;

	make(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = open_expired(dir);
	expire(s);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	points = ckpt_disk_count(disk);
	ckpt_temp_dir(out);
	for (size_t point = 0; point <= points; point++)
		for (unsigned k = 0; k < ckpt_suite_seeds(2, 8); k++) {
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			ckpt_amends_check_at(out, CKPT_AMEND_ACTS, CKPT_AMEND_ACTS);
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
	printf("power: %zu points\n", points + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("older crash");
	TCase *death = tcase_create("death"), *power = tcase_create("power");

	tcase_add_test(death, deaths_at_every_call_lose_nothing_and_leave_nothing);
	suite_add_tcase(suite, death);
	tcase_add_test(power, power_cuts_at_every_point_lose_nothing);
	suite_add_tcase(suite, power);
	return ckpt_suite_run(suite);
}
