// What a store says of a step: its policy, its steps, the clock, and what was decided before.
#include "core/save/reopen.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/history.h"
#include "tests/support/hooks.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/policy/should_save.h"
#include "core/save/delete.h"
#include "core/save/stage.h"
#include "core/step/folders.h"
#include "core/step/reopened.h"

#include <stdio.h>

static int64_t now_ns; // atomic

static int64_t test_now(void)
{
	return __atomic_load_n(&now_ns, __ATOMIC_RELAXED);
}

static void setup(void)
{
	ckpt_fixture_open();
	now_ns = ckpt_sys.now_ns();
	ckpt_hook_set(now_ns, test_now);
}

static void pass(int64_t seconds)
{
	__atomic_add_fetch(&now_ns, seconds * HISTORY_SECOND, __ATOMIC_RELAXED);
}

static void set_policy(const char *text)
{
	struct ckpt_policy p = policy_of(text);

	ck_ok(ckpt_policy_set(s, &p));
	ckpt_policy_done(&p);
}

static void save_in(const char *folder_id, const char *name, const char *metadata)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, folder_id, name, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "model.bin", "weights"));
	ck_ok(ckpt_staged_commit(step, 5000000, metadata));
	ckpt_step_unref(step);
}

static void save(const char *name, const char *metadata)
{
	save_in("", name, metadata);
}

static const char archive[] = "00000000000000aa", other[] = "00000000000000bb";

// "yes permanent initial" or "no", as of a process that has just begun.
static const char *ask_of(const char *run, int64_t step, bool force)
{
	static char text[64];
	struct ckpt_decide q = {.step = step, .run = run, .force = force, .preempted_at = -1};
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decided_step d;
	int rc = ckpt_should_save_at_rest(s, &q, &d, &why);

	if (rc)
		snprintf(text, sizeof(text), "%s", strerror(-rc));
	else
		snprintf(text, sizeof(text), "%s%s%s",
			 !d.save       ? "no"
			 : d.permanent ? "yes permanent"
				       : "yes temporary",
			 d.save ? " " : "", d.save ? d.by : "");
	return text;
}

static const char *ask(int64_t step, bool force)
{
	return ask_of(NULL, step, force);
}

START_TEST(time_interval_counts_from_the_first_question_and_from_each_save)
{
	set_policy(
		"{'save':{'any':[{'fixed_interval':{'interval':100}},{'time_interval':{'save_interval_secs':900}}]}}");
	ck_assert_str_eq(ask(1, false), "no");
	pass(899);
	ck_assert_str_eq(ask(2, false), "no");
	pass(1);
	ck_assert_str_eq(ask(2, false), "no"); // it was decided
	ck_assert_str_eq(ask(3, false), "yes temporary time_interval");
	ck_assert_str_eq(ask(4, false), "no"); // whether or not that was saved
	pass(500);
	save("10", NULL);
	pass(899);
	ck_assert_str_eq(ask(11, false), "no");
	pass(1);
	ck_assert_str_eq(ask(12, false), "yes temporary time_interval");
	pass(900);
	ck_assert_str_eq(ask(100, false), "yes permanent fixed_interval");
}
END_TEST

static struct ckpt_step *begin(const char *folder_id, const char *name)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, folder_id, name, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "model.bin", "weights"));
	return step;
}

// As by the library: nothing of what is written comes by us.
START_TEST(a_save_of_the_run_is_in_progress_whoever_writes_it)
{
	struct ckpt_step *staged;

	set_policy("{'save':{'continuous':{}}}");
	staged = begin(archive, "1");
	ck_assert_str_eq(ask(1, false), "no"); // there are no steps yet: it may be the run's
	save("2", NULL);
	ck_assert_str_eq(ask(3, false), "yes permanent continuous");
	ck_assert_str_eq(ask_of("", 4, false), "yes permanent continuous");
	ckpt_step_unref(staged);
	staged = begin("", "5");
	ck_assert_str_eq(ask(6, false), "no");
	ck_ok(ckpt_staged_commit(staged, 5000000, NULL));
	ckpt_step_unref(staged);
	ck_assert_str_eq(ask(7, false), "yes permanent continuous");
	staged = begin("", "8");
	pass(3600); // whoever it was has left it behind
	ck_assert_str_eq(ask(9, false), "yes permanent continuous");
	ckpt_step_unref(staged);
}
END_TEST

// What is staged, or deleted, is none of the steps of before.
START_TEST(committed_steps_alone_were_saved)
{
	struct ckpt_step *staged, *step;

	set_policy("{'save':{'initial':{}}}");
	staged = begin("", "5");
	ck_assert_str_eq(ask(6, false), "yes permanent initial");
	ck_ok(ckpt_staged_commit(staged, 5000000, NULL));
	ckpt_step_unref(staged);
	ck_assert_str_eq(ask(7, false), "no");
	step = ckpt_step_find(s, "", "5");
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	ck_assert_str_eq(ask(8, false), "yes permanent initial");
}
END_TEST

// After a rollback it saves what was saved before, and not once more what it has just saved.
START_TEST(eformer_saves_a_step_below_the_latest)
{
	set_policy("{'preset':'eformer'}");
	save("1000", NULL);
	save("500", NULL);
	ck_assert_str_eq(ask(500, false), "no");
	ck_assert_str_eq(ask(1000, false), "yes permanent step_intervals");
	ck_assert_str_eq(ask(0, false), "no");
	set_policy("{'preset':'orbax-v0'}");
	ck_assert_str_eq(ask(500, false), "no");
	ck_assert_str_eq(ask(999, false), "no");
	ck_assert_str_eq(ask(1000, false), "no");
	ck_assert_str_eq(ask(1001, false), "yes permanent fixed_interval");
}
END_TEST

START_TEST(an_old_step_that_is_reopened_is_no_save_in_progress)
{
	struct ckpt_step *step, *changed;

	set_policy("{'save':{'continuous':{}}}");
	save("2", NULL);
	step = ckpt_step_find(s, "", "2");
	ck_ok(ckpt_reopen(step, &changed));
	ck_assert_str_eq(ask(3, false), "yes permanent continuous");
	ck_ok(ckpt_stage_abort(changed, false));
	ckpt_step_unref(changed);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_decision_holds_for_ten_minutes)
{
	set_policy("{'save':{'continuous':{'minimum_interval_secs':300}}}");
	save("3", NULL);
	ck_assert_str_eq(ask(5, false), "no");
	pass(599);
	ckpt_fixture_reopen();
	ck_assert_str_eq(ask(5, false), "no");
	pass(1);
	ck_assert_str_eq(ask(5, false), "yes permanent continuous");
	pass(-400); // the clock is set back: nothing of the future holds
	ck_assert_str_eq(ask(5, false), "no");
}
END_TEST

START_TEST(a_decision_holds_only_under_the_policy_that_made_it)
{
	set_policy("{'save':{'any':[{'fixed_interval':{'interval':5}},{'time_interval':{'save_interval_secs':60}}]}}");
	pass(59);
	ck_assert_str_eq(ask(4, false), "no");
	ck_assert_str_eq(ask(6, false), "no");
	set_policy("{'save':{'initial':{}}}");
	ck_assert_str_eq(ask(4, false), "yes permanent initial");
	set_policy("{'save':{'time_interval':{'save_interval_secs':60}}}");
	pass(59);
	ck_assert_str_eq(ask(4, false), "no"); // the clock of the run goes on
	pass(1);
	ck_assert_str_eq(ask(6, false), "yes temporary time_interval");
}
END_TEST

START_TEST(force_is_what_all_hear_from_then_on)
{
	set_policy("{'save':{'specific_steps':{'steps':[]}}}");
	ck_assert_str_eq(ask(5, false), "no");
	ck_assert_str_eq(ask(5, true), "yes permanent force");
	ck_assert_str_eq(ask(5, false), "yes permanent force");
	set_policy("{'save':{'fixed_interval':{'interval':6}}}");
	ck_assert_str_eq(ask(6, false), "yes permanent fixed_interval");
	ck_assert_str_eq(ask(6, true), "yes permanent fixed_interval"); // it was yes already
}
END_TEST

START_TEST(names_without_a_number_are_no_steps)
{
	set_policy("{'save':{'initial':{}}}");
	save("best", NULL);
	ck_assert_str_eq(ask(5, false), "yes permanent initial");
	save("checkpoint-3", "{\"temporary\":true}");
	ck_assert_str_eq(ask(6, false), "no");
}
END_TEST

START_TEST(a_step_that_is_changed_is_committed_all_the_while)
{
	struct ckpt_step *step, *changed;

	set_policy("{'save':{'initial':{}}}");
	save("3", NULL);
	step = ckpt_step_find(s, "", "3");
	ck_ok(ckpt_reopen(step, &changed));
	ck_assert_str_eq(ask(5, false), "no");
	ck_assert_str_eq(ask(2, false), "no");
	ckpt_step_unref(changed);
	ckpt_step_unref(step);
}
END_TEST

// Which folder is the run's is known only where no other has steps.
START_TEST(steps_of_an_archive_are_not_those_of_the_run)
{
	set_policy("{'save':{'continuous':{'minimum_interval_secs':300}}}");
	save_in(archive, "5000", NULL);
	save_in(archive, "best", NULL);
	ck_assert_str_eq(ask(10, false), "no"); // below it
	save_in(other, "2", NULL);
	ck_assert_str_eq(ask(11, false), "Too many links"); // nobody knows which goes on
	save("3", NULL);
	ck_assert_str_eq(ask(12, false), "no"); // so soon after 3
	ck_assert_str_eq(ask(5001, false), "no");
}
END_TEST

// In the plain tree, with a step if one is named.
static void make_folder(const char *name, const char *step)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	ck_ok(ckpt_sys.mkdir(s->tree_fd, name, 0755));
	if (!step)
		return;
	ck_ok(ckpt_folders_place_folder(s, name, id));
	save_in(id, step, NULL);
}

START_TEST(runs_that_are_named_decide_by_their_own_steps)
{
	set_policy("{'save':{'any':[{'initial':{}},{'continuous':{'minimum_interval_secs':300}}]}}");
	make_folder("a", "100");
	pass(200);
	make_folder("b", "7000");
	make_folder("c", NULL);
	ck_assert_str_eq(ask(101, false), "Too many links");
	pass(100);
	ck_assert_str_eq(ask_of("a", 101, false), "yes permanent continuous");
	ck_assert_str_eq(ask_of("b", 101, false), "no");  // below its latest
	ck_assert_str_eq(ask_of("b", 7001, false), "no"); // too soon
	ck_assert_str_eq(ask_of("c", 101, false), "yes permanent initial");
	ck_assert_str_eq(ask_of("", 101, false), "yes permanent initial");
	ck_assert_str_eq(ask_of("nowhere", 101, false), "yes permanent initial");
	ck_assert_str_eq(ask_of("../steps", 101, false), "Invalid argument");
	pass(500);
	ck_assert_str_eq(ask_of("b", 7001, false), "no"); // it was decided
}
END_TEST

START_TEST(a_run_whose_folder_is_still_to_be_made_has_no_steps)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	set_policy("{'save':{'any':[{'initial':{}},{'time_interval':{'save_interval_secs':900}}]}}");
	save("1000", NULL);
	ck_assert_str_eq(ask_of("run7", 0, false), "yes permanent initial");
	ck_assert_str_eq(ask_of("run8/checkpoints", 0, false), "yes permanent initial");
	set_policy("{'save':{'any':[{'initial':{}}]},'skip_zero':true}");
	ck_assert_str_eq(ask_of("run7", 0, false), "no");
	set_policy("{'save':{'continuous':{}}}");
	ck_assert_str_eq(ask_of("run7", 1, false), "yes permanent continuous");
	ck_assert_int_eq(mkdirat(s->tree_fd, "run7", 0755), 0);
	ck_ok(ckpt_folders_place_folder(s, "run7", id));
	ckpt_step_unref(begin(id, "1"));
	ck_assert_str_eq(ask_of("run7", 1, false), "yes permanent continuous"); // it was decided
	ck_assert_str_eq(ask_of("run7", 2, false), "no");
}
END_TEST

static bool is_temporary(const char *folder_id, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, folder_id, name);
	bool is;

	ck_assert_ptr_nonnull(step);
	is = step->version->is.temporary;
	ckpt_step_unref(step);
	return is;
}

#define BY_TIME "{'save':{'any':[{'fixed_interval':{'interval':100}},{'time_interval':{'save_interval_secs':60}}]}}"

START_TEST(a_step_is_temporary_as_was_decided_unless_its_saver_says_what_it_is)
{
	set_policy(BY_TIME);
	save("1", NULL);
	ck_assert_str_eq(ask(3, false), "no"); // its clock begins
	pass(60);
	ck_assert_str_eq(ask(4, false), "yes temporary time_interval");
	save("step-4", "{\"extras\":{\"a\":1}}");
	ck_assert(is_temporary("", "step-4"));
	pass(60);
	ck_assert_str_eq(ask(5, false), "yes temporary time_interval");
	save("5", "{\"temporary\":false}");
	ck_assert(!is_temporary("", "5"));
	pass(60);
	save("6", NULL); // of which nobody asked
	ck_assert(!is_temporary("", "6"));
	ck_assert_str_eq(ask(100, false), "yes permanent fixed_interval");
	save("100", NULL);
	ck_assert(!is_temporary("", "100"));
	ck_assert_str_eq(ask(101, false), "no");
	save("101", NULL); // and it is saved all the same
	ck_assert(!is_temporary("", "101"));
}
END_TEST

// A step that its saver did not call temporary stays, where there is no room to say that it is.
START_TEST(a_step_without_room_to_say_that_it_is_temporary_stays)
{
	CLEANUP_FREE char *full = malloc(CKPT_METADATA_BYTES_MAX + 1);
	struct ckpt_record r;
	struct ckpt_step *step;

	sprintf(full, "{\"extras\":{\"pad\":\"%*s\"}}", (int)CKPT_METADATA_BYTES_MAX - 21, "");
	ck_assert_uint_eq(strlen(full), CKPT_METADATA_BYTES_MAX);
	set_policy(BY_TIME);
	save("1", NULL);
	ck_assert_str_eq(ask(3, false), "no");
	pass(60);
	ck_assert_str_eq(ask(4, false), "yes temporary time_interval");
	save("4", full);
	ck_assert(!is_temporary("", "4"));
	step = ckpt_step_find(s, "", "4");
	ck_ok(ckpt_step_record(step, 1, &r));
	ck_assert_str_eq(r.metadata, full);
	ckpt_record_done(&r);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_decision_that_holds_no_more_makes_no_step_temporary)
{
	struct ckpt_step *staged;

	set_policy(BY_TIME);
	save("1", NULL);
	ck_assert_str_eq(ask(3, false), "no");
	pass(60);
	ck_assert_str_eq(ask(4, false), "yes temporary time_interval");
	staged = begin("", "4");
	pass(60);
	ck_assert_str_eq(ask(7, false), "yes temporary time_interval");
	pass(601);
	save("7", NULL); // it was begun too late
	ck_assert(!is_temporary("", "7"));
	ck_ok(ckpt_staged_commit(staged, 5000000, NULL));
	ck_assert(is_temporary("", "4")); // but this one only took its time
	ckpt_step_unref(staged);
	pass(60);
	ck_assert_str_eq(ask(9, false), "yes temporary time_interval");
	set_policy("{'save':{'time_interval':{'save_interval_secs':60}}}");
	save("9", NULL);
	ck_assert(!is_temporary("", "9"));
}
END_TEST

START_TEST(a_step_of_a_named_run_is_temporary_as_was_decided_of_that_run)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	set_policy(BY_TIME);
	make_folder("a", "1");
	make_folder("b", "1");
	ck_assert_str_eq(ask_of("a", 3, false), "no");
	pass(60);
	ck_assert_str_eq(ask_of("a", 4, false), "yes temporary time_interval");
	ck_ok(ckpt_folders_place_folder(s, "b", id));
	save_in(id, "4", NULL);
	ck_assert(!is_temporary(id, "4"));
	ck_ok(ckpt_folders_place_folder(s, "a", id));
	save_in(id, "4", NULL);
	ck_assert(is_temporary(id, "4"));
	ck_assert_str_eq(ask_of("new/run", 5, false), "no"); // its clock begins
	pass(60);
	ck_assert_str_eq(ask_of("new/run", 6, false), "yes temporary time_interval");
	ck_assert_int_eq(mkdirat(s->tree_fd, "new", 0755), 0);
	make_folder("new/run", NULL);
	ck_ok(ckpt_folders_place_folder(s, "new/run", id));
	save_in(id, "6", NULL);
	ck_assert(is_temporary(id, "6"));
}
END_TEST

START_TEST(the_first_step_of_a_run_that_nobody_named_is_as_was_decided)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	set_policy(BY_TIME);
	ck_assert_str_eq(ask(3, false), "no");
	pass(60);
	ck_assert_str_eq(ask(4, false), "yes temporary time_interval");
	make_folder("run7", NULL);
	ck_ok(ckpt_folders_place_folder(s, "run7", id));
	save_in(id, "4", NULL);
	ck_assert(is_temporary(id, "4"));
}
END_TEST

START_TEST(what_was_forced_is_over_when_it_is_saved_anew)
{
	struct ckpt_step *step, *changed;

	set_policy("{'save':{'fixed_interval':{'interval':10}}}");
	save("10", NULL);
	pass(1);
	ck_assert_str_eq(ask(10, true), "yes permanent force");
	pass(1);
	step = ckpt_step_find(s, "", "10");
	ck_ok(ckpt_reopen(step, &changed));
	ck_assert_str_eq(ask(10, false), "yes permanent force");
	close(ckpt_staged_put(changed, "more.bin", "other weights"));
	ck_ok(ckpt_staged_commit(changed, 5000000, NULL));
	ck_assert_str_eq(ask(10, false), "no");
	ckpt_step_unref(changed);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_commit_in_another_folder_changes_no_decision)
{
	set_policy("{'save':{'continuous':{'minimum_interval_secs':300}}}");
	save("3", NULL);
	ck_assert_str_eq(ask(5, false), "no");
	pass(400);
	save_in(archive, "5", NULL);
	ck_assert_str_eq(ask(5, false), "no");
	ck_assert_str_eq(ask(6, false), "yes permanent continuous");
}
END_TEST

// What fails makes no decision that others do not hear of: who asks again has one answer, and so have all.
START_TEST(a_call_that_fails_is_an_error_and_nothing_is_decided_twice)
{
	struct ckpt_fault fault = {0};
	bool fired = true;
	uint64_t n;

	set_policy("{'save':{'continuous':{}}}");
	ckpt_save_fault(s, &fault);
	for (n = 1; fired; n++) {
		char first[64];

		for (int half = 0; half < 2; half++) {
			int64_t step = (int64_t)n * 2 + half;

			fault = (struct ckpt_fault){.at = n, .error = -EIO, .half = half};
			snprintf(first, sizeof(first), "%s", ask(step, false));
			fired = fault.count >= n;
			fault.at = 0;
			// The log asks at once for an answer that was lost.
			ck_assert_str_eq(first, fired && !half ? "Input/output error" : "yes permanent continuous");
			ck_assert_str_eq(ask(step, false), "yes permanent continuous");
		}
	}
	ck_assert_uint_gt(n, 2);
}
END_TEST

START_TEST(the_policy_that_was_set_last_is_in_force)
{
	CLEANUP_FREE char *why = NULL, *text = NULL;
	struct ckpt_policy first = policy_of("{'save':{'initial':{}}}"), p;
	struct ckpt_store *reader;
	uint64_t seq, again;

	ck_ok(ckpt_policy_load(s, &p, &seq, &why));
	ck_assert(!seq && !ckpt_policy_seq(s));
	ckpt_policy_done(&p);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader)); // beside a mount
	ck_ok(ckpt_policy_set(s, &first));
	ck_ok(ckpt_policy_load(reader, &p, &seq, &why));
	ck_assert(seq && ckpt_policy_seq(s) == seq && ckpt_policy_seq(reader) == seq);
	ck_ok(ckpt_policy_set(s, &p)); // which it has
	ck_assert_uint_eq(ckpt_policy_seq(s), seq);
	p.skip_zero = true;
	ck_error(ckpt_policy_set(reader, &p), EROFS);
	ck_ok(ckpt_policy_set(s, &p));
	ckpt_policy_done(&p);
	ck_assert_uint_gt(ckpt_policy_seq(reader), seq);
	ck_ok(ckpt_policy_load(reader, &p, &again, &why));
	ckpt_store_close(reader);
	ck_assert_uint_gt(again, seq);
	text = ckpt_policy_text(&p);
	ck_assert_str_eq(text, "{\"keep\":{\"preserve_all\":{}},\"only_after_latest\":true,\"save\":{\"initial\":{}},"
			       "\"skip_duplicate\":true,"
			       "\"skip_zero\":true}");
	ckpt_policy_done(&p);
	ckpt_policy_done(&first);
}
END_TEST

START_TEST(a_damaged_policy_is_told_and_replaced)
{
	static const char *const texts[] = {"          ", "{", "[]", "{\"keep\":{\"latest_n\":{\"n\":-1}}}"};
	struct ckpt_policy p, good = policy_of("{}");
	CLEANUP_FREE char *why = NULL;
	uint64_t seq;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		CLEANUP_FREE char *told = NULL;

		ck_ok(ckpt_policy_set(s, &good));
		ck_ok(ckpt_journal_set(s->journal, "policy", CKPT_ACT_ANY, texts[i]));
		ck_error(ckpt_policy_load(s, &p, &seq, &told), EBADMSG);
		ck_assert(told && seq == ckpt_policy_seq(s));
		ck_assert_str_eq(ask(5, false), "Bad message");
		ck_ok(ckpt_policy_set(s, &good));
		ck_ok(ckpt_policy_load(s, &p, &seq, &why));
		ckpt_policy_done(&p);
	}
	ckpt_policy_done(&good);
}
END_TEST

START_TEST(a_preemption_at_rest_is_seen_by_readers)
{
	struct ckpt_decided *decided = malloc(sizeof(*decided));
	struct ckpt_store *reader;

	set_policy("{'save':{'continuous':{}}}");
	ck_assert_int_eq(ckpt_should_save_preempted_at(s), -1);
	ck_ok(ckpt_should_save_preempt_at_rest(s, 7));
	ck_assert_str_eq(ask(5, false), "yes permanent continuous");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_int_eq(ckpt_should_save_preempted_at(reader), 7);
	ck_ok(ckpt_should_save_preempt_at_rest(s, -1));
	ck_assert_int_eq(ckpt_should_save_preempted_at(reader), -1);
	ckpt_store_close(reader);
	ck_ok(ckpt_should_save_load(s, decided));
	ck_assert_uint_eq(decided->count, 1);
	free(decided);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("should_save");
	TCase *tcase = tcase_create("should_save");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_close);
	tcase_add_test(tcase, time_interval_counts_from_the_first_question_and_from_each_save);
	tcase_add_test(tcase, a_save_of_the_run_is_in_progress_whoever_writes_it);
	tcase_add_test(tcase, committed_steps_alone_were_saved);
	tcase_add_test(tcase, eformer_saves_a_step_below_the_latest);
	tcase_add_test(tcase, an_old_step_that_is_reopened_is_no_save_in_progress);
	tcase_add_test(tcase, a_decision_holds_for_ten_minutes);
	tcase_add_test(tcase, a_decision_holds_only_under_the_policy_that_made_it);
	tcase_add_test(tcase, force_is_what_all_hear_from_then_on);
	tcase_add_test(tcase, names_without_a_number_are_no_steps);
	tcase_add_test(tcase, a_step_that_is_changed_is_committed_all_the_while);
	tcase_add_test(tcase, steps_of_an_archive_are_not_those_of_the_run);
	tcase_add_test(tcase, runs_that_are_named_decide_by_their_own_steps);
	tcase_add_test(tcase, a_run_whose_folder_is_still_to_be_made_has_no_steps);
	tcase_add_test(tcase, a_step_is_temporary_as_was_decided_unless_its_saver_says_what_it_is);
	tcase_add_test(tcase, a_step_without_room_to_say_that_it_is_temporary_stays);
	tcase_add_test(tcase, a_decision_that_holds_no_more_makes_no_step_temporary);
	tcase_add_test(tcase, a_step_of_a_named_run_is_temporary_as_was_decided_of_that_run);
	tcase_add_test(tcase, the_first_step_of_a_run_that_nobody_named_is_as_was_decided);
	tcase_add_test(tcase, what_was_forced_is_over_when_it_is_saved_anew);
	tcase_add_test(tcase, a_commit_in_another_folder_changes_no_decision);
	tcase_add_test(tcase, a_call_that_fails_is_an_error_and_nothing_is_decided_twice);
	tcase_add_test(tcase, the_policy_that_was_set_last_is_in_force);
	tcase_add_test(tcase, a_damaged_policy_is_told_and_replaced);
	tcase_add_test(tcase, a_preemption_at_rest_is_seen_by_readers);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
