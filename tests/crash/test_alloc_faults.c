// What core does when any allocation fails, once or from then on: it is done, or it answers -ENOMEM (-EAGAIN: no thread) and
// all is as before, in memory and on the disk; trying again works; and no descriptor is left open.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/allocfault.h"
#include "tests/support/formats.h"
#include "tests/support/history.h"
#include "tests/support/hooks.h"
#include "tests/support/save.h"
#include "tests/support/seen.h"
#include "tests/support/staged.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/policy/should_save.h"
#include "core/save/move.h"

#include <stdio.h>
#include <unistd.h>

#define POINTS_DEFAULT 8 // of each act, and each way; all of them with CKPT_TEST_FULL
#define FEW_POINTS 24    // all of them in any case

// --- The loop ----------------------------------------------------------------------------------------------------------

// Of an act without a fault.
struct outcome {
	struct ckpt_seen after, anew;
	char said[sizeof(((struct ckpt_trial *)0)->said)];
	uint64_t allocations;
};

static void learn(const struct ckpt_trial_act *act, struct outcome *ret)
{
	struct ckpt_trial t;

	ckpt_trial_begin(&t, act);
	ckpt_allocfault_begin(0, false);
	int rc = ckpt_trial_do(&t, act);

	ret->allocations = ckpt_allocfault_end();
	ck_ok(rc);
	ret->after = ckpt_see(&t);
	memcpy(ret->said, t.said, sizeof(ret->said));
	ckpt_trial_end(&t);
	ret->anew = ckpt_see_anew(t.dir);
	ckpt_temp_empty(t.dir, true);
}

static void outcome_done(struct outcome *o)
{
	ckpt_seen_done(&o->after);
	ckpt_seen_done(&o->anew);
}

// The act is done, or all is as before and a second attempt works. False: that one has found it done, and left the rest.
static bool check(struct ckpt_trial *t, const struct ckpt_trial_act *act, int rc, const struct ckpt_seen *before,
		  const struct outcome *good)
{
	struct ckpt_seen is;

	// There may be none when the log has it: then its outcome is unknown, until it is asked for again.
	ck_assert_msg(!rc || rc == -ENOMEM || rc == -EAGAIN || rc == -EIO, "%s", strerror(-rc));
	is = ckpt_see(t);
	if (rc && rc != -EIO && !(act->leaves & CKPT_TRIAL_PARTS))
		ckpt_seen_assert(&is, before, "it failed");
	if (rc) {
		bool unknown = rc == -EIO;

		rc = ckpt_trial_do(t, act);
		ck_assert_msg(!rc || (unknown && rc == -EEXIST), "the second attempt: %s",
			      strerror(-rc)); // it was done
		ckpt_seen_done(&is);
		if (rc)
			return false;
		is = ckpt_see(t);
	}
	ckpt_seen_assert(&is, &good->after, "it was done");
	ck_assert_str_eq(t->said, good->said);
	ckpt_seen_done(&is);
	return true;
}

static void faulty(const struct ckpt_trial_act *act, const struct outcome *good, uint64_t n, bool sticky)
{
	int descriptors = ckpt_open_descriptors(), rc;
	struct ckpt_seen before, anew;
	struct ckpt_trial t;
	bool whole;

	ckpt_trial_begin(&t, act);
	before = ckpt_see(&t);
	ckpt_allocfault_begin(n, sticky);
	rc = ckpt_trial_do(&t, act);
	ckpt_allocfault_end();
	whole = check(&t, act, rc, &before, good);
	ckpt_trial_end(&t);
	anew = ckpt_see_anew(t.dir);
	if (whole && !(act->leaves & CKPT_TRIAL_LATER))
		ckpt_seen_assert(&anew, &good->anew, "it is opened again");
	ckpt_seen_done(&anew);
	ckpt_seen_done(&before);
	ck_assert_int_eq(ckpt_open_descriptors(), descriptors);
	ckpt_temp_empty(t.dir, true);
}

START_TEST(an_allocation_that_fails_fails_the_act_or_does_no_harm)
{
	const struct ckpt_trial_act *act = &ckpt_trial_acts[_i / 2];
	struct outcome good;
	uint64_t step = 1;

	learn(act, &good);
	ck_assert_uint_gt(good.allocations, 0); // else nothing is tried
	if (!ckpt_suite_full() && good.allocations > FEW_POINTS)
		step = MAX(good.allocations / POINTS_DEFAULT, step);
	printf("%s: %llu allocations%s\n", act->name, (unsigned long long)good.allocations,
	       _i % 2 ? ", all from the one on" : "");
	// Threads may make some more, or less.
	for (uint64_t n = 1; n <= good.allocations + 2; n += step) {
		printf("%llu ", (unsigned long long)n);
		fflush(stdout); // where it is, should it crash
		faulty(act, &good, n, _i % 2);
	}
	printf("\n");
	outcome_done(&good);
}
END_TEST

static struct ckpt_writer dying;

static bool writer_dies_without_memory(void *arg __attribute__((unused)))
{
	if (ckpt_stage_writer_is_awaited(&dying)) {
		ckpt_allocfault_begin(1, true);
		ckpt_stage_writer_killed(&dying);
		ckpt_allocfault_end();
		ckpt_stage_writer_remove(&dying);
	}
	return false;
}

START_TEST(a_writer_that_is_killed_fails_the_commit_without_memory_too)
{
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_store *s;
	struct ckpt_step *step;
	char dir[PATH_MAX];
	int fd;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1000");
	fd = ckpt_staged_put(step, "half", "ha");
	how.writers_ns = INT64_C(20000000000);
	how.abandoned = writer_dies_without_memory;
	ckpt_staged_writer(step, &dying, fd);
	ck_error(ckpt_commit(step, &how), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "a file was not written to its end"), 1);
	close(fd);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

// Who holds the gate when the commit begins renames the step, and then memory is gone.
static bool renames_and_leaves(void *arg)
{
	struct ckpt_step *step = arg;

	if (!strcmp(step->name, "2000"))
		return false;
	ckpt_lock_take(&step->store->lock);
	ckpt_step_erase_locked(step);
	ck_ok(ckpt_step_insert_locked(step, "", "2000"));
	ckpt_lock_drop(&step->store->lock);
	ckpt_allocfault_begin(1, false);
	ckpt_stage_leave(step);
	return false;
}

START_TEST(a_step_that_was_renamed_meanwhile_keeps_that_name_where_its_commit_has_no_memory_for_it)
{
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_store *s;
	struct ckpt_step *step;
	char dir[PATH_MAX];

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "file", "text"));
	ckpt_save_settle_all(s); // the one that fails is the commit's, and no other thread's
	ck_ok(ckpt_stage_enter(step, false));
	how.abandoned = renames_and_leaves;
	how.abandoned_arg = step;
	ck_error(ckpt_commit(step, &how), ENOMEM);
	ckpt_allocfault_end();
	ck_assert_uint_eq(ckpt_save_errors(s, "its name could not be kept for it"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_assert_str_eq(step->version->is.name, "2000");
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

// That there is no memory to read a record says nothing about it.
START_TEST(an_outcome_stays_unknown_until_there_is_memory_to_learn_it)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};
	struct ckpt_store *s;
	struct ckpt_step *step;
	char dir[PATH_MAX];
	unsigned failed = 0;
	int rc;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "file", "text"));
	ckpt_save_fault(s, &fault);
	ck_error(ckpt_staged_commit(step, 0, "{}"), EIO);
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	for (uint64_t n = 1;; n++) {
		ckpt_allocfault_begin(n, false);
		rc = ckpt_staged_commit(step, 0, NULL);
		ckpt_save_settle(s);
		ckpt_allocfault_end();
		if (!rc)
			break;
		ck_assert_msg(rc == -ENOMEM || rc == -EAGAIN || rc == -EIO, "%s", strerror(-rc));
		ck_assert_msg(ckpt_staging_of(step)->outcome_unknown, "%s at allocation %llu", strerror(-rc),
			      (unsigned long long)n);
		ck_error(ckpt_stage_enter(step, false), EROFS);
		failed++;
	}
	ck_assert_uint_gt(failed, 3);
	ck_assert_uint_eq(step->version->is.version, 1);
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

// --- What acts do not reach --------------------------------------------------------------------------------------------

// That a file is on disk is written again at worst; that a write was lost is believed of all files then.
START_TEST(a_fsync_that_there_is_no_memory_to_remember_is_no_success)
{
	struct ckpt_step *a, *b, *c;
	struct ckpt_store *s;
	char dir[PATH_MAX];
	int64_t now = ckpt_sys.now_ns(), long_ago = now - INT64_C(3600000000001);

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	a = ckpt_staged_begin(s, "a");
	b = ckpt_staged_begin(s, "b");
	c = ckpt_staged_begin(s, "c");
	close(ckpt_staged_put(c, "file", "text"));
	ckpt_allocfault_begin(1, true);
	ckpt_stage_synced(a, 7, long_ago, now, 0);
	ckpt_allocfault_end();
	ck_assert(!ckpt_stage_is_clean(a, 7, long_ago));
	ck_assert(!ckpt_stage_has_failed(a, 7));
	ckpt_stage_synced(a, 7, 0, 0, -EIO);
	ckpt_allocfault_begin(1, true);
	ckpt_stage_carry(a, b, 7); // the file moves there
	ckpt_allocfault_end();
	ck_assert(ckpt_stage_has_failed(b, 8));
	ckpt_allocfault_begin(1, true);
	ckpt_stage_synced(c, 7, 0, 0, -EIO);
	ckpt_allocfault_end();
	ck_assert(ckpt_stage_has_failed(c, 8));
	ck_error(ckpt_commit(c, &ckpt_staged_plain), EIO);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(c);
	ckpt_store_close(s);
}
END_TEST

START_TEST(a_table_of_steps_that_cannot_grow_has_them_all)
{
	enum { STEPS = 256 }; // as many as it is made for
	struct ckpt_step *step;
	struct ckpt_store *s;
	char dir[PATH_MAX], name[16];
	uint64_t calls, fails_at = 0;
	int count = 0, failed = 0;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	do {
		int rc;

		fails_at += count >= STEPS;
		snprintf(name, sizeof(name), "%d", count);
		ckpt_allocfault_begin_mine(fails_at);
		rc = ckpt_stage_begin(s, "", name, 0755, getuid(), getgid(), getpid(), &step);
		calls = ckpt_allocfault_end();
		ck_assert(!rc || rc == -ENOMEM);
		if (!rc)
			ckpt_step_unref(step);
		count += !rc;
		failed += !!rc;
	} while (count <= STEPS || calls >= fails_at);
	ck_assert_int_gt(failed, 0);
	ck_assert_int_gt(count, STEPS);
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%d", i);
		step = ckpt_step_find(s, "", name);
		ck_assert_ptr_nonnull(step);
		ckpt_step_unref(step);
	}
	ckpt_store_close(s);
}
END_TEST

START_TEST(without_memory_nothing_expires)
{
	const bool stop = false;
	struct ckpt_step *step;
	struct ckpt_store *s;
	char dir[PATH_MAX];
	int64_t next;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	ck_ok(ckpt_stage_begin(s, "", "1.partial_save", 0755, getuid(), getgid(), 0, &step));
	ckpt_allocfault_begin(1, true);
	next = ckpt_stage_expire_before(s, INT64_MAX, &stop);
	ckpt_allocfault_end();
	ck_assert_int_eq(next, INT64_MAX);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_stage_expire_before(s, INT64_MAX, &stop);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

START_TEST(without_memory_no_save_is_seen)
{
	struct ckpt_step *step;
	struct ckpt_store *s;
	char dir[PATH_MAX];
	bool saving;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1");
	ck_ok(ckpt_stage_enter(step, true));
	ckpt_allocfault_begin(1, true);
	saving = ckpt_stage_is_saving(s, "");
	ckpt_allocfault_end();
	ck_assert(!saving);
	ck_assert(ckpt_stage_is_saving(s, ""));
	ckpt_stage_leave(step);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

static int64_t (*real_now)(void);
static int64_t passed_ns;

static int64_t later(void)
{
	return real_now() + passed_ns;
}

static const char *ask(struct ckpt_store *s, int64_t number)
{
	struct ckpt_decide q = {.step = number, .preempted_at = -1};
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decided_step d;

	ck_ok(ckpt_should_save_at_rest(s, &q, &d, &why));
	return !d.save ? "no" : d.permanent ? "permanent" : "temporary";
}

// One that is to be saved for a while, with one failure on the way; true: there was no failure any more.
static bool commit_what_was_decided(uint64_t n, unsigned *ret_failed)
{
	struct ckpt_policy policy = policy_of("{'save':{'time_interval':{'save_interval_secs':60}}}");
	struct ckpt_record r;
	struct ckpt_store *s;
	struct ckpt_step *step;
	char dir[PATH_MAX];
	bool fired;
	int rc;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	ck_ok(ckpt_policy_set(s, &policy));
	ckpt_policy_done(&policy);
	ckpt_step_unref(ckpt_staged_one(s, "1", "file", "text"));
	ck_assert_str_eq(ask(s, 3), "no");
	passed_ns += 60 * HISTORY_SECOND;
	ck_assert_str_eq(ask(s, 4), "temporary");
	step = ckpt_staged_begin(s, "4");
	close(ckpt_staged_put(step, "file", "text"));
	ckpt_save_settle(s);
	ckpt_allocfault_begin(n, false);
	rc = ckpt_staged_commit(step, 0, "{\"metrics\":{\"loss\":1}}");
	ckpt_save_settle(s);
	fired = ckpt_allocfault_end() >= n;
	// There may be none when the log has it: then its outcome is unknown, until it is asked for again.
	ck_assert_msg(!rc || rc == -ENOMEM || rc == -EAGAIN || rc == -EIO, "%s", strerror(-rc));
	if (rc) {
		(*ret_failed)++;
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
		ck_ok(ckpt_staged_commit(step, 0, "{\"metrics\":{\"loss\":1}}"));
	}
	ck_ok(ckpt_step_record(step, 1, &r));
	ck_assert_msg(r.summary.temporary || !rc, "the second attempt had memory to see that it is temporary");
	ck_assert_str_eq(r.metadata, r.summary.temporary ? "{\"metrics\":{\"loss\":1},\"temporary\":true}"
							 : "{\"metrics\":{\"loss\":1}}");
	ckpt_record_done(&r);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	ckpt_temp_empty(dir, true);
	return !fired;
}

START_TEST(a_step_that_was_to_be_temporary_says_so_or_stays_or_is_not_committed)
{
	unsigned failed = 0;
	uint64_t n = 1;

	real_now = ckpt_hooks.now_ns;
	ckpt_hook_set(now_ns, later);
	while (!commit_what_was_decided(n, &failed))
		n++;
	ckpt_hook_set(now_ns, real_now);
	ck_assert_uint_gt(failed, 3);
	ck_assert_uint_lt(failed, n);
}
END_TEST

// A chunk in a pack, beside another one.
static int add_based_file(struct ckpt_manifest_writer *w)
{
	struct ckpt_entry e = {
		.type = CKPT_ENTRY_FILE, .name = "a", .content = CKPT_CONTENT_CHUNKS, .ino = 10, .bytes = 1000};
	struct ckpt_chunk below = {.id = {1}, .bytes = 1000, .offset = 32, .how = {CKPT_CODEC_ZSTD, 0, 900}},
			  chunk = {.id = {2}, .bytes = 1000, .offset = 932, .how = {CKPT_CODEC_DELTA, 4, 900}};
	const struct ckpt_pack pack = {.id = {3}, .bytes = 10000};
	const uint8_t sha256[CKPT_SHA256_LEN] = {4};
	uint32_t handle;
	int rc = ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session);

	if (!rc)
		rc = ckpt_manifest_writer_add(w, 0, &e, &handle);
	if (!rc)
		rc = ckpt_manifest_writer_pack(w, &pack, &chunk.pack);
	below.pack = chunk.pack;
	chunk.base_count = 1;
	if (!rc)
		rc = ckpt_manifest_writer_bases(w, &below, 1, &chunk.base);
	if (!rc)
		rc = ckpt_manifest_writer_seal(w, handle, sha256);
	return rc ? rc : ckpt_manifest_writer_chunk(w, &chunk);
}

static int write_manifest(void **ret_data, size_t *ret_len)
{
	const struct ckpt_entry root = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	struct ckpt_manifest_writer *w;
	uint32_t handle;
	int rc = ckpt_manifest_writer_new(&w);

	if (rc)
		return rc;
	rc = ckpt_manifest_writer_add(w, 0, &root, &handle);
	if (!rc)
		rc = add_based_file(w);
	if (!rc)
		rc = ckpt_manifest_writer_finish(w, ret_data, ret_len);
	ckpt_manifest_writer_free(w);
	return rc;
}

START_TEST(a_manifest_is_written_whole_or_not_without_memory)
{
	CLEANUP_FREE void *good = NULL;
	size_t good_len, len = 0;
	bool fired = true;
	uint64_t n;

	ck_ok(write_manifest(&good, &good_len));
	ck_ok(ckpt_try_manifest(good, good_len));
	for (n = 1; fired; n++) {
		CLEANUP_FREE void *data = NULL;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = write_manifest(&data, &len);
		fired = ckpt_allocfault_end() >= n;
		ck_assert_int_eq(rc, fired ? -ENOMEM : 0);
		ck_assert(fired || (len == good_len && !memcmp(data, good, len)));
	}
	ck_assert_uint_gt(n, 10);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alloc faults");
	TCase *writers = tcase_create("writers"), *commits = tcase_create("commits"), *others = tcase_create("others");

	tcase_add_test(writers, a_writer_that_is_killed_fails_the_commit_without_memory_too);
	suite_add_tcase(suite, writers);
	tcase_add_test(commits,
		       a_step_that_was_renamed_meanwhile_keeps_that_name_where_its_commit_has_no_memory_for_it);
	tcase_add_test(commits, an_outcome_stays_unknown_until_there_is_memory_to_learn_it);
	tcase_add_test(commits, a_step_that_was_to_be_temporary_says_so_or_stays_or_is_not_committed);
	suite_add_tcase(suite, commits);
	tcase_add_test(others, a_fsync_that_there_is_no_memory_to_remember_is_no_success);
	tcase_add_test(others, a_table_of_steps_that_cannot_grow_has_them_all);
	tcase_add_test(others, without_memory_nothing_expires);
	tcase_add_test(others, without_memory_no_save_is_seen);
	tcase_add_test(others, a_manifest_is_written_whole_or_not_without_memory);
	suite_add_tcase(suite, others);

	for (int i = 0; i < (int)ckpt_trial_act_count; i++) {
		TCase *tcase;

		if (ckpt_trial_acts[i].leaves & CKPT_TRIAL_NO_MEMORY)
			continue;
		tcase = tcase_create(ckpt_trial_acts[i].name);
		tcase_add_loop_test(tcase, an_allocation_that_fails_fails_the_act_or_does_no_harm, 2 * i, 2 * i + 2);
		suite_add_tcase(suite, tcase);
	}
	return ckpt_suite_run(suite);
}
