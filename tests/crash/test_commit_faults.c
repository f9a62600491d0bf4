// A save when any call behind ckpt_sys fails, once or from then on, and when the store's backend does: the error comes
// out, nothing is listed that was not committed, nothing staged is touched, and the next attempt succeeds - after a
// failed fsync only when the file was written anew, because the data may be gone though a second fsync says otherwise.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/backendfault.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>

#define CALLS_MAX 2000

// --- Who was fsynced, and how it ended ----------------------------------------------------------------------------------

#define SPIED_MAX 4096

static struct {
	struct ckpt_sys below;
	struct ckpt_lock lock;
	uint64_t failed[SPIED_MAX]; // regular files whose fsync failed; an inode number alone may be used again
	size_t failed_count;
	unsigned again; // fsyncs of one of them
} spy = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF)};

static int spied(int fd, int (*call)(int fd))
{
	struct statx stx;
	int rc = call(fd);

	if (statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) || !S_ISREG(stx.stx_mode))
		return rc;
	LOCK_SCOPE(&spy.lock);
	for (size_t i = 0; i < spy.failed_count; i++)
		spy.again += spy.failed[i] == ckpt_store_ino(&stx);
	if (rc && spy.failed_count < SPIED_MAX)
		spy.failed[spy.failed_count++] = ckpt_store_ino(&stx);
	return rc;
}

static int spy_fsync(int fd)
{
	return spied(fd, spy.below.fsync);
}

static int spy_fdatasync(int fd)
{
	return spied(fd, spy.below.fdatasync);
}

// Over the fault layer, so that it sees what that answers.
static void spy_begin(void)
{
	spy.below = ckpt_hooks;
	ckpt_hook_set(fsync, spy_fsync);
	ckpt_hook_set(fdatasync, spy_fdatasync);
}

static void spy_end(void)
{
	ckpt_hooks_restore(&spy.below);
}

static size_t spy_failed_of(struct ckpt_step *step, char ret_path[][64], size_t max)
{
	static const char *const paths[] = {"config.json", "empty", "model.bin", "shards/0/a.bin"};
	size_t count = 0;

	for (size_t p = 0; p < ARRAY_LEN(paths); p++) {
		struct statx stx;

		if (statx(step->dirfd, paths[p], 0, CKPT_STATX_WANT, &stx))
			continue;
		for (size_t i = 0; i < spy.failed_count; i++)
			if (spy.failed[i] == ckpt_store_ino(&stx) && count < max)
				strcpy(ret_path[count++], paths[p]);
	}
	return count;
}

static uint64_t number_of(struct ckpt_step *step, const char *path)
{
	struct statx stx;

	ck_assert_int_eq(statx(step->dirfd, path, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx), 0);
	return ckpt_store_ino(&stx);
}

// --- One faulty save ----------------------------------------------------------------------------------------------------

struct trial {
	char dir[PATH_MAX];
	struct ckpt_store *s;
	struct ckpt_sysfault fault;
	struct ckpt_save_holder holder;
	unsigned i;
};

static void fault_on(struct trial *t)
{
	ckpt_sysfault_begin(&t->fault);
	spy_begin();
}

static void fault_off(struct trial *t)
{
	ckpt_save_settle(t->s);
	spy_end();
	ckpt_sysfault_end(&t->fault);
}

static void assert_not_listed(struct trial *t)
{
	CLEANUP_FREE char *there = ckpt_save_listing_at(t->dir);
	struct ckpt_step *step = ckpt_save_find(t->s, t->i);

	ck_assert_ptr_null(step);
	ck_assert_str_eq(there, "");
}

// The errors that a call may turn into on its way; anything else was made up.
static bool is_answer(const struct trial *t, int rc)
{
	return rc == t->fault.error || rc == -EIO;
}

// A client's second attempt: what was lost is written anew. The tree is otherwise as it was left.
static void commit_again(struct trial *t, struct ckpt_step *step)
{
	char lost[8][64];
	size_t lost_count = spy_failed_of(step, lost, ARRAY_LEN(lost));

	t->fault.at = 0;
	fault_on(t); // for the spy
	if (lost_count && !ckpt_staging_of(step)->outcome_unknown) {
		ck_error(ckpt_save_commit(step, t->i), EIO);
		ck_assert_msg(ckpt_save_errors(t->s, "write-out failed") > 0, "nobody says that %s was lost", lost[0]);
		for (size_t i = 0; i < lost_count; i++)
			ckpt_stage_rewritten(step, number_of(step, lost[i]));
		ck_assert_msg(spy.again == 0, "a file was fsynced again after its fsync failed");
		spy.failed_count = 0;
	}
	ck_ok(ckpt_save_commit(step, t->i));
	fault_off(t);
}

static void check_saved(struct trial *t)
{
	struct ckpt_step *step = ckpt_save_find(t->s, t->i);

	ck_assert_ptr_nonnull(step);
	ckpt_save_check_step(step, t->i);
	ckpt_step_unref(step);
}

// What begin left behind when it failed: nothing.
static void assert_no_sessions(struct trial *t)
{
	struct ckpt_store *s;
	size_t count;

	ck_ok(ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &s));
	count = ckpt_save_unfinished_count(s);
	ckpt_store_close(s);
	ck_assert_msg(count == 0 || t->fault.sticky, "%zu sessions are left of a begin that failed", count);
}

static struct ckpt_step *begin_step(struct trial *t)
{
	struct ckpt_step *step;
	int rc;

	fault_on(t);
	rc = ckpt_save_begin(t->s, t->i, &step);
	fault_off(t);
	if (!rc)
		return step;
	ck_assert_msg(is_answer(t, rc), "begin: %s", strerror(-rc));
	assert_not_listed(t);
	assert_no_sessions(t);
	ck_ok(ckpt_save_begin(t->s, t->i, &step));
	return step;
}

static void assert_frozen(struct ckpt_step *step)
{
	ck_error(ckpt_stage_enter(step, true), EROFS);
	ck_error(ckpt_stage_abort(step, false), EBUSY);
}

// A leftover writes on in the file of the step, unless the faults went on until its copy was to be taken away again.
static void assert_leftover_has_its_file(struct trial *t, struct ckpt_step *step)
{
	struct stat held, there;

	if (!ckpt_save_steps[t->i].leftover || t->fault.sticky)
		return;
	ck_assert_int_eq(fstat(t->holder.fd, &held), 0);
	ck_assert_int_eq(fstatat(step->dirfd, "model.bin", &there, 0), 0);
	ck_assert_uint_eq(held.st_ino, there.st_ino);
}

static void commit_step(struct trial *t, struct ckpt_step *step)
{
	unsigned lines = ckpt_save_errors(t->s, "commit failed");
	int rc;

	fault_on(t);
	rc = ckpt_save_commit(step, t->i);
	fault_off(t);
	if (!rc)
		return;
	ck_assert_msg(is_answer(t, rc), "commit: %s at call %llu", strerror(-rc), (unsigned long long)t->fault.at);
	ck_assert_msg(ckpt_save_errors(t->s, "commit failed") > lines, "%s, and no line says so", strerror(-rc));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	if (ckpt_staging_of(step)->outcome_unknown) {
		ck_assert_int_eq(rc, -EIO);
		assert_frozen(step);
	} else {
		assert_not_listed(t);
		assert_leftover_has_its_file(t, step);
		ck_ok(ckpt_stage_enter(step, false));
		ckpt_stage_leave(step);
	}
	commit_again(t, step);
}

// False when the fault did not come to pass: the save is shorter.
static bool faulty_save(unsigned i, uint64_t n, int kind, bool sticky)
{
	int error = ckpt_sysfault_error(kind, n);
	struct trial t = {.i = i, .fault = {.at = n, .error = error, .sticky = sticky, .torn = true}};
	struct ckpt_step *step;

	ck_assert_uint_lt(n, CALLS_MAX);
	spy.failed_count = 0;
	spy.again = 0;
	ckpt_save_init(t.dir);
	t.s = ckpt_save_open(t.dir);
	step = begin_step(&t);
	if (t.fault.count >= n)
		t.fault.at = 0;
	ckpt_save_write(step, i, &t.holder);
	commit_step(&t, step);
	ckpt_save_release(&t.holder);
	ck_assert_msg(spy.again == 0, "a file was fsynced again after its fsync failed");
	check_saved(&t);
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
	t.s = ckpt_save_open(t.dir);
	check_saved(&t);
	ckpt_store_close(t.s);
	ckpt_temp_empty(t.dir, true);
	return t.fault.count >= n;
}

// Which error it is matters little to the long saves: the default is EIO for all, the others for the first.
static unsigned steps_tried(int kind)
{
	return kind == 0 || ckpt_suite_full() ? CKPT_SAVE_STEPS : 1;
}

START_TEST(a_call_that_fails_during_a_save_fails_the_save_or_does_no_harm)
{
	for (unsigned i = 0; i < steps_tried(_i / 2); i++) {
		uint64_t n = 1;

		while (faulty_save(i, n, _i / 2, _i % 2))
			n++;
		ck_assert_uint_gt(n, 30);
	}
}
END_TEST

// --- New metadata -------------------------------------------------------------------------------------------------------

static bool faulty_metadata(uint64_t n, bool sticky)
{
	struct trial t = {.fault = {.at = n, .error = -EIO, .sticky = sticky}};
	struct ckpt_step *step;
	int rc;

	ckpt_save_init(t.dir);
	t.s = ckpt_save_open(t.dir);
	step = ckpt_save_one(t.s, 0);
	fault_on(&t);
	rc = ckpt_save_metadata(step, 0);
	fault_off(&t);
	ck_assert(!rc || rc == -EIO);
	if (rc)
		ck_assert_uint_ge(ckpt_save_errors(t.s, "EIO"), 1);
	ckpt_save_check_step(step, 0);
	ck_ok(ckpt_save_metadata(step, 0));
	ck_assert_uint_eq(step->version->is.version, 2);
	ckpt_save_check_step(step, 0);
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
	ckpt_temp_empty(t.dir, true);
	return t.fault.count >= n;
}

START_TEST(a_call_that_fails_keeps_the_old_metadata_until_the_next_attempt)
{
	uint64_t n = 1;

	while (faulty_metadata(n, _i))
		ck_assert_uint_lt(n++, CALLS_MAX);
	ck_assert_uint_gt(n, 10);
}
END_TEST

// --- Opening the store --------------------------------------------------------------------------------------------------

// False when the fault did not come to pass: the open is shorter.
static bool faulty_open(const char *dir, enum ckpt_store_mode mode, uint64_t n, int error, const char *steps)
{
	struct ckpt_sysfault fault = {.at = n, .error = error};
	struct ckpt_store *s;
	int rc;

	ckpt_sysfault_begin(&fault);
	rc = ckpt_store_open(dir, mode, NULL, &s);
	ckpt_sysfault_end(&fault);
	if (!rc) {
		CLEANUP_FREE char *there = ckpt_save_listing(s);

		ckpt_store_close(s);
		ck_assert_msg(!strcmp(steps, there), "a fault at call %llu of open hides steps:\n%s",
			      (unsigned long long)n, there);
	}
	CLEANUP_FREE char *after = ckpt_save_listing_at(dir);
	ck_assert_str_eq(steps, after);
	return fault.count >= n;
}

START_TEST(a_call_that_fails_during_open_fails_it_or_hides_nothing)
{
	enum ckpt_store_mode mode = _i % 2 ? CKPT_STORE_WRITE : CKPT_STORE_READ;
	CLEANUP_FREE char *steps = NULL;
	char dir[PATH_MAX];
	struct ckpt_store *s;
	uint64_t n = 1;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	ckpt_step_unref(ckpt_save_one(s, 0));
	ckpt_step_unref(ckpt_save_one(s, 1));
	ckpt_store_close(s);
	steps = ckpt_save_listing_at(dir);
	while (faulty_open(dir, mode, n, ckpt_sysfault_error(_i / 2, n), steps))
		n++;
	ck_assert_uint_gt(n, _i % 2 ? 25 : 8);
}
END_TEST

// --- The backend --------------------------------------------------------------------------------------------------------

// Asks until there is an answer that is not "unknown", with the store well again.
static void backend_save(unsigned i, const struct ckpt_fault *how, bool *ret_fired)
{
	struct trial t = {.i = i};
	struct ckpt_fault fault = *how;
	struct ckpt_step *step;
	int rc;

	ckpt_save_init(t.dir);
	t.s = ckpt_save_open(t.dir);
	ckpt_save_fault(t.s, &fault);
	ck_ok(ckpt_save_begin(t.s, i, &step));
	ckpt_save_write(step, i, &t.holder);
	rc = ckpt_save_commit(step, i);
	ckpt_save_settle(t.s);
	*ret_fired = fault.count >= fault.at;
	fault.at = 0;
	if (rc) {
		ck_assert_msg(rc == how->error || rc == -EIO, "%s", strerror(-rc));
		ck_assert_uint_ge(ckpt_save_errors(t.s, "commit failed"), 1);
		if (ckpt_staging_of(step)->outcome_unknown) {
			ck_assert_uint_ge(ckpt_save_errors(t.s, "outcome unknown"), 1);
			assert_frozen(step);
		} else {
			assert_not_listed(&t);
		}
		ck_ok(ckpt_save_commit(step, i));
		ckpt_save_settle(t.s);
	}
	ckpt_save_release(&t.holder);
	check_saved(&t);
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
	t.s = ckpt_save_open(t.dir);
	check_saved(&t);
	ckpt_store_close(t.s);
	ckpt_temp_empty(t.dir, true);
}

START_TEST(a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end)
{
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_fault how = ckpt_objectsfault_ways[_i];
		bool fired = true;

		for (how.at = 1; fired; how.at++)
			backend_save(i, &how, &fired);
		ck_assert_uint_gt(how.at, 2); // the last one did not come to pass
	}
}
END_TEST

// A commit whose outcome is unknown stays frozen while nothing was learnt about it, whatever else fails meanwhile.
START_TEST(an_unknown_outcome_stays_frozen_until_the_record_was_read)
{
	struct trial t = {.i = 3};
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};
	struct ckpt_step *step;

	ckpt_save_init(t.dir);
	t.s = ckpt_save_open(t.dir);
	ckpt_save_fault(t.s, &fault);
	ck_ok(ckpt_save_begin(t.s, t.i, &step));
	ckpt_save_write(step, t.i, &t.holder);
	ck_error(ckpt_save_commit(step, t.i), EIO);
	ck_assert(ckpt_staging_of(step)->outcome_unknown);
	for (uint64_t n = 1; n < 40; n++) {
		t.fault = (struct ckpt_sysfault){.at = n, .error = -EMFILE, .sticky = true};
		fault_on(&t);
		ck_assert_int_lt(ckpt_save_commit(step, t.i), 0);
		fault_off(&t);
		ck_assert_msg(ckpt_staging_of(step)->outcome_unknown, "thawed after a fault at call %llu",
			      (unsigned long long)n);
		assert_frozen(step);
	}
	fault.at = 0;
	ck_ok(ckpt_save_commit(step, t.i));
	ckpt_save_settle(t.s);
	ckpt_save_release(&t.holder);
	check_saved(&t);
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
}
END_TEST

// That it is there is not enough: it must be known to be durable, too.
START_TEST(an_unknown_outcome_stays_frozen_until_each_question_was_answered)
{
	struct trial t = {.i = 3};
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};
	struct ckpt_step *step;
	uint64_t n = 0;
	int rc;

	ckpt_save_init(t.dir);
	t.s = ckpt_save_open(t.dir);
	ckpt_save_fault(t.s, &fault);
	ck_ok(ckpt_save_begin(t.s, t.i, &step));
	ckpt_save_write(step, t.i, &t.holder);
	ck_error(ckpt_save_commit(step, t.i), EIO);
	ckpt_save_settle(t.s);
	fault.sticky = false;
	fault.half = _i;
	do {
		ck_assert(ckpt_staging_of(step)->outcome_unknown);
		assert_frozen(step);
		fault.count = 0;
		fault.at = ++n;
		rc = ckpt_save_commit(step, t.i);
		ckpt_save_settle(t.s);
		ck_assert_msg(!rc || rc == -EIO, "%s", strerror(-rc));
	} while (ckpt_step_state(step) == CKPT_STEP_STAGED);
	ck_assert_uint_ge(n, 3); // one of them reads, another makes sure
	fault.at = 0;
	ck_ok(ckpt_save_commit(step, t.i)); // its metadata is the same
	ck_assert_uint_eq(step->version->is.version, 1);
	ckpt_save_release(&t.holder);
	check_saved(&t);
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
}
END_TEST

static Suite *faults_suite(void)
{
	Suite *suite = suite_create("commit faults");
	TCase *tcase = tcase_create("faults");

	tcase_add_loop_test(tcase, a_call_that_fails_during_a_save_fails_the_save_or_does_no_harm, 0,
			    2 * ckpt_sysfault_kinds());
	tcase_add_loop_test(tcase, a_call_that_fails_keeps_the_old_metadata_until_the_next_attempt, 0, 2);
	tcase_add_loop_test(tcase, a_call_that_fails_during_open_fails_it_or_hides_nothing, 0,
			    2 * ckpt_sysfault_kinds());
	tcase_add_loop_test(tcase, a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end, 0,
			    CKPT_BACKENDFAULT_WAYS);
	tcase_add_test(tcase, an_unknown_outcome_stays_frozen_until_the_record_was_read);
	tcase_add_loop_test(tcase, an_unknown_outcome_stays_frozen_until_each_question_was_answered, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(faults_suite());
}
