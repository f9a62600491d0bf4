// Removal marks: which are made, whose they are, and how they end.
#include "core/gc/gc.h"
#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/remove.h"
#include "core/step/removal.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static struct ckpt_step *step;
static struct ckpt_manifest *m; // of the version that was committed
static struct ckpt_fault fault;

static void setup(void)
{
	signal(SIGTERM, SIG_DFL); // Check has handlers of its own, which the children would have, too
	signal(SIGINT, SIG_DFL);
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "model.bin", "committed"));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "sub/w", "w"));
	close(ckpt_staged_put(step, "config.json", "{}"));
	close(ckpt_staged_put(step, "late", "late"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_amend_remove(step, "late")); // in the session's directory, and in no version any more
	ck_ok(ckpt_step_manifest(step, &m));
	fault = (struct ckpt_fault){0};
	ckpt_save_fault(s, &fault);
}

static void teardown(void)
{
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static uint32_t index_of(const char *path)
{
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	return index;
}

START_TEST(each_piece_goes_by_the_call_for_it_the_inner_ones_first)
{
	uint32_t sub = index_of("sub");

	ck_error(ckpt_remove_entry(step, m, 0, "model.bin", true, 0), ENOTDIR);
	ck_error(ckpt_remove_entry(step, m, 0, "sub", false, 0), EISDIR);
	ck_error(ckpt_remove_entry(step, m, 0, "sub", true, 0), ENOTEMPTY);
	ck_assert(!ckpt_removal_any(step));
	ck_ok(ckpt_remove_entry(step, m, 0, "model.bin", false, 0));
	ck_ok(ckpt_remove_entry(step, m, 0, "config.json", false, 0));
	ck_error(ckpt_remove_entry(step, m, 0, "sub", true, 0), ENOTEMPTY);
	ck_ok(ckpt_remove_entry(step, m, sub, "w", false, 0));
	ck_error(ckpt_remove_whole(step), ENOTEMPTY);
	ck_ok(ckpt_remove_entry(step, m, 0, "sub", true, 0));
	ck_assert(ckpt_removal_has(step, m, sub) && ckpt_removal_has(step, m, index_of("sub/w")));
	ck_assert(!ckpt_removal_has(step, m, 0));

	ck_ok(ckpt_remove_whole(step));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ck_assert(!ckpt_removal_any(step));
}
END_TEST

// --- Whose marks they are -------------------------------------------------------------------------------------------------

#define WAIT_MS 10000

struct child {
	pid_t pid;
	int end; // one byte into it: it exits with that
};

static struct child child_new(void)
{
	struct child c;
	int pipes[2];

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	c.end = pipes[1];
	c.pid = fork();
	ck_ok(c.pid);
	if (!c.pid) {
		unsigned char status = 0;

		_exit(read(pipes[0], &status, 1) == 1 ? status : 99);
	}
	close(pipes[0]);
	return c;
}

// sig 0: it exits with this status.
static void child_end(struct child *c, int sig, unsigned char status)
{
	if (sig)
		kill(c->pid, sig);
	else
		ck_assert_int_eq(write(c->end, &status, 1), 1);
	ck_assert_int_eq(waitpid(c->pid, NULL, 0), c->pid);
	close(c->end);
}

static struct ckpt_top_dir top;

// As `rm -r` of this process: it has the step's directory open until dir_closed().
static void begin_whole(const struct child *c)
{
	ckpt_removal_dir_opened(step, &top, c->pid);
}

static void remove_by(const struct child *c, const char *name)
{
	ck_ok(ckpt_remove_entry(step, m, 0, name, false, c->pid));
}

// As if what was marked, and who is stopped, were older by so much.
static void let_pass(int64_t ns)
{
	LOCK_SCOPE(&step->lock);

	for (size_t i = 0; ckpt_removing_of(step)->removal && i < REMOVERS_MAX; i++) {
		ckpt_removing_of(step)->removal->by[i].first_ns -= ns;
		ckpt_removing_of(step)->removal->by[i].last_ns -= ns;
		if (ckpt_removing_of(step)->removal->by[i].stopped_ns)
			ckpt_removing_of(step)->removal->by[i].stopped_ns -= ns;
	}
	ckpt_removing_of(step)->removed.ns -= ns;
}

static void until_ended(void)
{
	for (int i = 0; i < WAIT_MS && ckpt_removal_any(step); i++)
		usleep(1000);
	ck_assert(!ckpt_removal_any(step));
	ckpt_lock_take(&s->acts_lock); // what makes the edit holds it until all is remembered
	ckpt_lock_drop(&s->acts_lock);
}

static void is_version(uint32_t version, bool has_model)
{
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert_uint_eq(step->version->is.version, version);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1);
	ck_assert_int_eq(ckpt_staged_has(step, "model.bin"), has_model);
	ckpt_staged_check(step, "sub/w", "w");
}

START_TEST(marks_are_one_edit_a_second_after_the_last)
{
	struct child c = child_new();
	int64_t began = ckpt_sys.mono_ns();

	remove_by(&c, "model.bin");
	ck_assert(!ckpt_removal_hides(step));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1); // listed all the while
	ck_assert(ckpt_removal_has(step, m, index_of("model.bin")));
	usleep(600000);
	remove_by(&c, "config.json");
	until_ended();
	ck_assert_int_ge(ckpt_sys.mono_ns() - began, INT64_C(1500000000));
	is_version(3, false);
	ck_assert(!ckpt_staged_has(step, "config.json"));
	ck_assert(ckpt_removal_has(step, m, index_of("model.bin"))); // for whoever still reads the version before
	child_end(&c, SIGKILL, 0);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	is_version(3, false);
}
END_TEST

static const struct {
	bool whole;
	int sig;
	unsigned char status;
	bool edit;
} ends[] = {
	{false, SIGKILL, 0, false}, {false, SIGTERM, 0, false}, {false, 0, 1, false}, {false, 0, 0, true},
	{true, SIGKILL, 0, false},  {true, SIGINT, 0, false},   {true, 0, 1, false},  {true, 0, 0, true},
};

START_TEST(marks_end_with_their_process)
{
	struct child c = child_new();

	if (ends[_i].whole)
		begin_whole(&c);
	remove_by(&c, "model.bin");
	ck_assert_int_eq(ckpt_removal_hides(step), ends[_i].whole);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), !ends[_i].whole);
	child_end(&c, ends[_i].sig, ends[_i].status);
	ckpt_removal_dir_closed(&top);
	until_ended();
	is_version(ends[_i].edit ? 3 : 2, !ends[_i].edit);
	for (int i = 0; i < WAIT_MS && !ends[_i].edit && !ckpt_save_errors(s, "what it removed is restored"); i++)
		usleep(1000);
	ck_assert_uint_eq(ckpt_save_errors(s, "what it removed is restored"), !ends[_i].edit);
}
END_TEST

START_TEST(a_removal_as_a_whole_waits_while_its_process_lives_and_has_the_directory_open)
{
	struct child c = child_new();

	begin_whole(&c);
	remove_by(&c, "model.bin");
	let_pass(MINUTE_NS);
	usleep(500000);
	ck_assert(ckpt_removal_hides(step)); // it has the directory open
	ckpt_removal_dir_closed(&top);
	until_ended();
	is_version(3, false);
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(a_removal_as_a_whole_that_removes_on_waits)
{
	struct child c = child_new();

	begin_whole(&c);
	ckpt_removal_dir_closed(&top);
	remove_by(&c, "model.bin");
	let_pass(MINUTE_NS - INT64_C(5000000000));
	usleep(500000);
	ck_assert(ckpt_removal_hides(step));
	remove_by(&c, "config.json");
	usleep(500000);
	ck_assert(ckpt_removal_hides(step));
	let_pass(MINUTE_NS);
	until_ended();
	is_version(3, false);
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(marks_of_a_process_that_is_stopped_for_a_minute_are_dropped)
{
	struct child c = child_new();

	begin_whole(&c);
	remove_by(&c, "model.bin");
	kill(c.pid, SIGSTOP);
	usleep(500000);
	ck_assert(ckpt_removal_hides(step));
	let_pass(MINUTE_NS);
	until_ended();
	is_version(2, true);
	ckpt_removal_dir_closed(&top);
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(each_process_has_its_own_marks)
{
	struct child killed = child_new(), other = child_new();

	begin_whole(&killed);
	remove_by(&killed, "model.bin");
	ck_ok(ckpt_remove_entry(step, m, index_of("sub"), "w", false, killed.pid));
	remove_by(&other, "config.json");
	child_end(&killed, SIGKILL, 0);
	ckpt_removal_dir_closed(&top);
	until_ended();
	is_version(3, true);
	ck_assert(!ckpt_staged_has(step, "config.json"));
	child_end(&other, 0, 0);
}
END_TEST

START_TEST(a_directory_that_was_opened_long_before_says_nothing)
{
	struct child c = child_new();

	begin_whole(&c);
	ckpt_removal_dir_closed(&top);
	ckpt_removing_of(step)->top_dirs_closed[0].closed_ns -= MINUTE_NS;
	remove_by(&c, "model.bin");
	ck_assert(!ckpt_removal_hides(step));
	child_end(&c, SIGKILL, 0);
}
END_TEST

// --- The step itself ---------------------------------------------------------------------------------------------------------

static void remove_all(pid_t pid)
{
	struct ckpt_manifest *now = ckpt_staged_manifest(step);
	uint32_t sub;

	(void)ckpt_remove_entry(step, now, 0, "model.bin", false, pid);
	(void)ckpt_remove_entry(step, now, 0, "config.json", false, pid);
	ck_ok(ckpt_manifest_lookup(now, "sub", &sub));
	ck_ok(ckpt_remove_entry(step, now, sub, "w", false, pid));
	ck_ok(ckpt_remove_entry(step, now, 0, "sub", true, pid));
	ckpt_manifest_unref(now);
}

START_TEST(a_deletion_means_the_version_before_the_first_mark)
{
	struct child c = child_new();
	struct ckpt_step **deleted;
	size_t count;

	remove_by(&c, "model.bin");
	until_ended();
	is_version(3, false);
	if (_i) // it was sealed in between
		ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	remove_all(c.pid);
	ck_ok(ckpt_remove_whole(step));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ckpt_staged_check(step, "model.bin", "committed");
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	ck_ok(ckpt_deleted_list(s, &deleted, &count));
	ck_assert_uint_eq(count, 1);
	step = ckpt_step_ref(deleted[0]);
	ckpt_step_list_free(deleted, count);
	ck_ok(ckpt_undelete(step));
	ckpt_staged_check(step, "model.bin", "committed");
	ckpt_staged_check(step, "config.json", "{}");
	ckpt_staged_check(step, "sub/w", "w");
	child_end(&c, SIGKILL, 0);
}
END_TEST

// The version of before is of raw files that are in packs by now: it comes back. Where its packs are gone the deletion means what there is.
START_TEST(a_deletion_after_a_cooling_loses_nothing_that_was_left)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1};
	struct ckpt_tier_done cooled;
	struct ckpt_gc_done done;
	struct child c = child_new();
	int64_t trash_ns = s->settings.trash_ns;

	if (_i)
		ck_ok(ckpt_cool_sealed(step, &how, &cooled));
	remove_by(&c, "model.bin");
	until_ended();
	if (_i) {
		s->settings.trash_ns = 0;
		ck_ok(ckpt_gc(s, &(struct ckpt_gc_how){.force = true}, &done));
		ck_assert_uint_eq(done.deleted_objects, 1);
		s->settings.trash_ns = trash_ns;
	} else {
		ck_ok(ckpt_cool_sealed(step, &how, &cooled));
		ck_assert(!ckpt_packed_is_raw(step, "config.json"));
	}
	remove_all(c.pid);
	ck_ok(ckpt_remove_whole(step));
	ck_ok(ckpt_undelete(step));
	ck_assert_int_eq(ckpt_staged_has(step, "model.bin"), !_i);
	ck_ok(ckpt_packed_read(step, "config.json", "{}"));
	ck_ok(ckpt_packed_read(step, "sub/w", "w"));
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(files_that_were_removed_long_before_are_not_in_the_version_that_a_deletion_means)
{
	struct child c = child_new();

	remove_by(&c, "model.bin");
	until_ended();
	let_pass(MINUTE_NS);
	remove_all(c.pid);
	ck_ok(ckpt_remove_whole(step));
	ck_ok(ckpt_undelete(step));
	ck_assert(!ckpt_staged_has(step, "model.bin"));
	ckpt_staged_check(step, "config.json", "{}");
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(marks_go_on_where_the_step_gets_another_version)
{
	struct child c = child_new();

	begin_whole(&c);
	ckpt_removal_dir_closed(&top);
	ckpt_removing_of(step)->top_dirs_closed[0].closed_ns = 0; // it is no rm -r
	remove_by(&c, "model.bin");
	ck_ok(ckpt_amend_add(step, "late"));
	ck_assert(ckpt_removal_has_path(step, "model.bin"));
	ck_assert(!ckpt_removal_has_path(step, "late"));
	ck_assert(ckpt_removal_has(step, m, index_of("model.bin")));
	ck_ok(ckpt_remove_entry(step, m, index_of("sub"), "w", false, c.pid)); // by whoever has the version before
	until_ended();
	ck_assert_uint_eq(step->version->is.version, 4);
	ck_assert(!ckpt_staged_has(step, "model.bin") && !ckpt_staged_has(step, "sub/w") &&
		  ckpt_staged_has(step, "sub"));
	ckpt_staged_check(step, "late", "late");
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(what_is_pinned_by_then_lacks_what_was_removed_before)
{
	struct child c = child_new();

	remove_by(&c, "model.bin");
	ck_ok(ckpt_pin(step, true));
	ck_error(ckpt_remove_entry(step, m, index_of("sub"), "w", false, c.pid), EPERM);
	until_ended();
	ck_assert(!ckpt_staged_has(step, "model.bin") && ckpt_staged_has(step, "sub/w"));
	ck_assert(ckpt_pin_is(step));
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(an_edit_that_fails_is_tried_again_and_seen_all_the_while)
{
	struct child c = child_new();

	fault = (struct ckpt_fault){.at = 1, .error = -EACCES, .sticky = true};
	remove_by(&c, "model.bin");
	for (int i = 0; i < WAIT_MS && !ckpt_save_errors(s, "the removal is not on disk yet"); i++)
		usleep(1000);
	ck_assert_uint_ge(ckpt_save_errors(s, "the removal is not on disk yet"), 1);
	ck_assert(ckpt_removal_has(step, m, index_of("model.bin")));
	fault.at = 0;
	until_ended();
	is_version(3, false);
	child_end(&c, SIGKILL, 0);
}
END_TEST

static const struct {
	bool whole;
	uint32_t version;
} ended[] = {{false, 3}, {true, 2}};

START_TEST(an_orderly_end_is_the_end_of_marks)
{
	struct child c = child_new();

	if (ended[_i].whole)
		begin_whole(&c);
	remove_by(&c, "model.bin");
	ckpt_removal_dir_closed(&top);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	is_version(ended[_i].version, ended[_i].whole);
	child_end(&c, SIGKILL, 0);
}
END_TEST

START_TEST(more_processes_than_there_is_room_for_remove_all_the_same)
{
	struct child children[REMOVERS_MAX + 2];
	struct ckpt_step *many = ckpt_staged_begin(s, "2000");
	struct ckpt_manifest *of_many;
	char name[16];

	for (size_t i = 0; i < ARRAY_LEN(children); i++) {
		snprintf(name, sizeof(name), "%zu", i);
		close(ckpt_staged_put(many, name, "x"));
	}
	ck_ok(ckpt_commit(many, &ckpt_staged_plain));
	of_many = ckpt_staged_manifest(many);
	for (size_t i = 0; i < ARRAY_LEN(children); i++) {
		children[i] = child_new();
		snprintf(name, sizeof(name), "%zu", i);
		ck_ok(ckpt_remove_entry(many, of_many, 0, name, false, children[i].pid));
	}
	for (int i = 0; i < WAIT_MS && ckpt_removal_any(many); i++)
		usleep(1000);
	ck_assert_uint_eq(many->version->is.files, 0);
	for (size_t i = 0; i < ARRAY_LEN(children); i++)
		child_end(&children[i], SIGKILL, 0);
	ckpt_manifest_unref(of_many);
	ckpt_step_unref(many);
}
END_TEST

START_TEST(where_changes_are_denied_only_a_removal_as_a_whole_begins)
{
	struct child c = child_new();

	s->settings.amend = CKPT_AMEND_DENY;
	ck_error(ckpt_remove_entry(step, m, 0, "model.bin", false, c.pid), EROFS);
	begin_whole(&c);
	remove_by(&c, "model.bin");
	ckpt_removal_dir_closed(&top);
	child_end(&c, 0, 0);
	until_ended();
	is_version(2, true); // what is no deletion in the end is none
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remove");
	TCase *tcase = tcase_create("remove");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, each_piece_goes_by_the_call_for_it_the_inner_ones_first);
	tcase_add_test(tcase, marks_are_one_edit_a_second_after_the_last);
	tcase_add_loop_test(tcase, marks_end_with_their_process, 0, ARRAY_LEN(ends));
	tcase_add_test(tcase, a_removal_as_a_whole_waits_while_its_process_lives_and_has_the_directory_open);
	tcase_add_test(tcase, a_removal_as_a_whole_that_removes_on_waits);
	tcase_add_test(tcase, marks_of_a_process_that_is_stopped_for_a_minute_are_dropped);
	tcase_add_test(tcase, each_process_has_its_own_marks);
	tcase_add_test(tcase, a_directory_that_was_opened_long_before_says_nothing);
	tcase_add_loop_test(tcase, a_deletion_means_the_version_before_the_first_mark, 0, 2);
	tcase_add_loop_test(tcase, a_deletion_after_a_cooling_loses_nothing_that_was_left, 0, 2);
	tcase_add_test(tcase, files_that_were_removed_long_before_are_not_in_the_version_that_a_deletion_means);
	tcase_add_test(tcase, marks_go_on_where_the_step_gets_another_version);
	tcase_add_test(tcase, what_is_pinned_by_then_lacks_what_was_removed_before);
	tcase_add_test(tcase, an_edit_that_fails_is_tried_again_and_seen_all_the_while);
	tcase_add_loop_test(tcase, an_orderly_end_is_the_end_of_marks, 0, ARRAY_LEN(ended));
	tcase_add_test(tcase, more_processes_than_there_is_room_for_remove_all_the_same);
	tcase_add_test(tcase, where_changes_are_denied_only_a_removal_as_a_whole_begins);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
