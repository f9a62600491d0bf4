// Amends of which an allocation fails: each is done, or answers -ENOMEM and has changed nothing, in memory and on the disk, and
// the second attempt works.
#include "core/save/reopen.h"
#include "core/step/amending.h"
#include "core/store/open.h"
#include "tests/support/allocfault.h"
#include "tests/support/amends.h"
#include "tests/support/fixture_step.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/save/amend.h"
#include "core/step/reopened.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define ALLOCATIONS_MAX 2000
#define SESSIONS 40 // more than a list has room for at first

// --- Each act ---------------------------------------------------------------------------------------------------------

// True: it was made to fail. What a client does again is the same.
static bool faulty(size_t act, uint64_t n)
{
	struct ckpt_step *of;
	size_t done;
	bool fired;
	int rc;

	ck_assert_uint_lt(n, ALLOCATIONS_MAX);
	of = ckpt_amends_step(s, &done);
	ckpt_allocfault_begin(n, false);
	rc = ckpt_amends_attempt(of, act, done);
	ckpt_save_settle_all(s);
	fired = ckpt_allocfault_end() >= n;
	ckpt_step_unref(of);
	ck_assert_msg(!rc || rc == -ENOMEM || rc == -EAGAIN || rc == -EIO, "%s", strerror(-rc));
	if (rc != -EIO)
		ckpt_amends_check(s, act + !rc);
	ckpt_amends_check_at(dir, act + !rc, act + (!rc || rc == -EIO));
	if (rc)
		ck_ok(ckpt_amends_do(s, act));
	ckpt_amends_check(s, act + 1);
	return fired;
}

START_TEST(an_allocation_that_fails_fails_the_act_or_does_no_harm)
{
	bool fired = true;

	for (uint64_t n = 1; fired; n++) {
		ckpt_amends_init(dir);
		s = ckpt_save_open(dir);
		for (size_t i = 0; i < (size_t)_i; i++)
			ck_ok(ckpt_amends_do(s, i));
		ckpt_save_settle_all(s);
		fired = faulty((size_t)_i, n);
		ckpt_store_close(s);
		ckpt_amends_check_at(dir, (size_t)_i + 1, (size_t)_i + 1);
		ckpt_temp_empty(dir, true);
	}
}
END_TEST

// --- Names ------------------------------------------------------------------------------------------------------------

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_one(s, "1000", "model.bin", "committed");
}

static void put(const char *name, const char *text)
{
	char path[CKPT_UUID_LEN + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", step->session, name);
	fd = ckpt_sys.open(s->sessions_fd, path, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
	close(fd);
}

static unsigned renames;

static int count_rename(void *arg __attribute__((unused)))
{
	renames++;
	return 0;
}

START_TEST(a_name_that_there_is_no_memory_for_is_not_given)
{
	int rc;

	ckpt_allocfault_begin_mine(1);
	rc = ckpt_amending_begin(step, "late", NULL);
	ckpt_allocfault_end();
	ck_error(rc, ENOMEM);
	ck_assert(!ckpt_amending_is_pending(step, "late"));
	ck_ok(ckpt_amending_begin(step, "late", NULL));
	ckpt_allocfault_begin_mine(1);
	rc = ckpt_amending_rename(step, "late", "other", count_rename, NULL);
	ckpt_allocfault_end();
	ck_error(rc, ENOMEM);
	ck_assert_uint_eq(renames, 0);
	ck_assert(ckpt_amending_is_pending(step, "late") && !ckpt_amending_is_pending(step, "other"));
	ckpt_allocfault_begin_mine(1);
	rc = ckpt_amending_expect(step, "expected", 7, -1);
	ckpt_allocfault_end();
	ck_error(rc, ENOMEM);
}
END_TEST

// A step that was reopened has files of more than one session, and each has its name in every manifest.
START_TEST(a_step_of_several_sessions_is_added_to_or_is_as_it_was)
{
	struct ckpt_step *changed;
	unsigned failed = 0;
	int rc = -ENOMEM;

	for (int i = 0; i < SESSIONS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		ck_ok(ckpt_reopen(step, &changed));
		close(ckpt_staged_put(changed, name, "of another session"));
		ck_ok(ckpt_commit(changed, &ckpt_staged_plain));
		ckpt_step_unref(step);
		step = changed;
	}
	put("late", "late");
	for (uint64_t n = 1; rc; n++) {
		ck_assert_uint_lt(n, ALLOCATIONS_MAX);
		ckpt_allocfault_begin_mine(n);
		rc = ckpt_amend_add(step, "late");
		ckpt_allocfault_end();
		ck_assert_msg(!rc || rc == -ENOMEM, "%s", strerror(-rc));
		failed += rc != 0;
	}
	ck_assert_uint_gt(failed, 10);
	ckpt_staged_check(step, "late", "late");
	ckpt_staged_check(step, "0", "of another session");
	ckpt_staged_check(step, "model.bin", "committed");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alloc amend");
	TCase *acts = tcase_create("acts"), *names = tcase_create("names");

	tcase_add_loop_test(acts, an_allocation_that_fails_fails_the_act_or_does_no_harm, 0, CKPT_AMEND_ACTS);
	suite_add_tcase(suite, acts);
	tcase_add_checked_fixture(names, setup, ckpt_fixture_step_close);
	tcase_add_test(names, a_name_that_there_is_no_memory_for_is_not_given);
	tcase_add_test(names, a_step_of_several_sessions_is_added_to_or_is_as_it_was);
	suite_add_tcase(suite, names);
	return ckpt_suite_run(suite);
}
