// The looker at staged steps while time goes by, by a clock that the test moves: what each waits for, as people are told,
// and when it is committed, a plain folder, or marked as interrupted. And what becomes of it at an orderly end.
#include "core/save/looker.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/convert.h"
#include "core/save/makers.h"
#include "core/save/stage.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NAME "1000"
#define NEIGHBOUR "500"
#define U INT64_C(30000000000) // commit_quiet
#define LATE_NS (U * 13 / 20)  // a look is due every half unit
#define LONG_AGO 1000000000

static struct ckpt_step *step; // that the test is about
static struct ckpt_writer writer;
static int writer_fd;
static pid_t child;

// --- Time ---------------------------------------------------------------------------------------------------------------

static int64_t (*real_mono_ns)(void);
static int64_t moved_ns; // atomic

// The machine's own time does not count: it may stand still for as long as it likes.
static int64_t moved_mono_ns(void)
{
	return __atomic_load_n(&moved_ns, __ATOMIC_RELAXED);
}

// Each job has its turns when they are due.
static void pass(int64_t ns)
{
	int64_t end_ns = ckpt_sys.mono_ns() + ns, next_ns, left_ns;

	do {
		while (ckpt_jobs_run_next(s->jobs, &next_ns))
			;
		left_ns = MIN(next_ns, end_ns) - ckpt_sys.mono_ns();
		__atomic_add_fetch(&moved_ns, MAX(left_ns, 1), __ATOMIC_RELAXED);
	} while (ckpt_sys.mono_ns() < end_ns);
	(void)ckpt_job_wake(ckpt_looker_of(s)->job);
	while (ckpt_jobs_run_next(s->jobs, NULL))
		;
}

// --- The step -----------------------------------------------------------------------------------------------------------

// As the mount does it.
static int unstage(void *arg __attribute__((unused)), struct ckpt_step *it, int64_t touched_ns, bool no_arrays)
{
	int rc = ckpt_unstage_begin(it, &touched_ns);

	if (rc)
		return rc;
	if (no_arrays)
		ckpt_unstage_mark(it);
	rc = ckpt_unstage(it, s->tree_fd, NAME, RENAME_NOREPLACE);
	if (rc)
		ckpt_unstage_cancel(it);
	return rc;
}

// maker: 0 is nobody known.
static void begin(const char *name, pid_t maker)
{
	ck_ok(ckpt_stage_begin_by_client(s, "", name, 0755, getuid(), getgid(), maker, &step));
}

static void setup_threads(void)
{
	ckpt_fixture_open();
	s->settings.commit_quiet_ns = U;
	s->calls.unstage = unstage;
	writer_fd = -1;
}

static void setup(void)
{
	setup_threads();
	ckpt_jobs_by_hand(s->jobs);
	ck_ok(ckpt_looker_start(s));
	real_mono_ns = ckpt_hooks.mono_ns;
	moved_ns = real_mono_ns();
	ckpt_hook_set(mono_ns, moved_mono_ns);
}

static void end_child(void)
{
	if (child)
		kill(child, SIGKILL);
	while (child && waitpid(child, NULL, 0) != child)
		;
	child = 0;
}

static void teardown(void)
{
	end_child();
	ckpt_stage_writer_remove(&writer);
	if (writer_fd >= 0)
		close(writer_fd);
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static void put(const char *path, const char *text)
{
	close(ckpt_staged_put(step, path, text));
}

static void put_array(void)
{
	ckpt_staged_put_array(step, "a.npy", 'a', 8);
}

static void open_file(const char *path, bool appends)
{
	writer_fd = ckpt_sys.open(step->dirfd, path, O_RDWR | O_CREAT, 0644);
	ck_ok(writer_fd);
	ckpt_staged_writer(step, &writer, writer_fd);
	writer.appends_ns = appends;
}

static void neighbour(const char *text)
{
	struct ckpt_step *it = ckpt_staged_begin(s, NEIGHBOUR);

	ckpt_staged_put_array(it, "a.npy", 'b', 8);
	close(ckpt_staged_put(it, text, "{}"));
	ck_ok(ckpt_commit(it, &ckpt_staged_plain));
	ckpt_step_unref(it);
}

// --- Its makers ---------------------------------------------------------------------------------------------------------

static pid_t nobody(void)
{
	return 0;
}

// A process of this program, which is stopped, and ends so once it goes on.
static pid_t stopped(const char *program, int status)
{
	siginfo_t info;

	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, program);
		raise(SIGSTOP);
		_exit(status);
	}
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WSTOPPED), 0);
	return child;
}

static void let_end(void)
{
	siginfo_t info;

	kill(child, SIGCONT);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
}

static pid_t python(void)
{
	return stopped("python", 0);
}

static pid_t failing(void)
{
	return stopped("python", 3);
}

static pid_t cp(void)
{
	return stopped("cp", 0);
}

static pid_t sftp(void)
{
	return stopped("sftp-server", 0);
}

// --- Situations ---------------------------------------------------------------------------------------------------------

static void nothing(void)
{
}

static void arrays(void)
{
	put_array();
}

static void arrays_of_one_that_ends(void)
{
	put_array();
	let_end();
}

static void all_of_its_neighbour(void)
{
	neighbour("config.json");
	put_array();
	put("config.json", "{}");
}

static void lacks_a_file(void)
{
	neighbour("config.json");
	put_array();
}

static void open_array(void)
{
	put_array();
	open_file("a.npy", false);
}

static void open_log_beside_arrays(void)
{
	put_array();
	put("train.log", "epoch 1\n");
	open_file("train.log", true);
}

static void file_that_is_cut_off(void)
{
	put_array();
	ckpt_staged_put_array(step, "b.npy", 'b', 4);
}

static void open_arrays_of_deepspeed(void)
{
	put("zero_pp_rank_0_optim_states.pt", "");
	open_file("zero_pp_rank_0_optim_states.pt", true);
}

static void log_below_the_top(void)
{
	ck_ok(ckpt_sys.mkdir(step->dirfd, "logs", 0755));
	put("logs/train.log", "epoch 1\n");
	ck_ok(ckpt_sys.symlink("logs", step->dirfd, "latest"));
	open_file("logs/train.log", true);
}

static void arrays_below_the_top(void)
{
	ck_ok(ckpt_sys.mkdir(step->dirfd, "a", 0755));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "a/b", 0755));
	ckpt_staged_put_array(step, "a/b/a.npy", 'a', 8);
	put_array();
}

static void claimed(void)
{
	put_array();
	put("__0_0.distcp", "a shard");
}

static void claimed_of_one_that_ends(void)
{
	claimed();
	let_end();
}

// shutil.copytree()
static void claimed_with_times_of_another(void)
{
	const struct timespec times[2] = {{.tv_sec = LONG_AGO}, {.tv_sec = LONG_AGO}};

	claimed();
	ck_assert_int_eq(utimensat(step->dirfd, "a.npy", times, 0), 0);
}

static void texts(void)
{
	put("samples.json", "{}");
}

static void texts_of_one_that_ends(void)
{
	texts();
	let_end();
}

static void file_of_checkpoints_only(void)
{
	put("random_states_0.pkl", "");
}

static void log_of_a_run(void)
{
	put("train.log", "epoch 1\n");
	open_file("train.log", true);
}

static void log_without_a_line(void)
{
	open_file("train.log", true);
}

static void log_of_what_is_declared(void)
{
	log_of_a_run();
	s->settings.steps_at = strdup("step-*");
}

static void off(void)
{
	put_array();
	s->settings.commit_quiet_ns = 0;
}

static void temporary(void)
{
	ck_ok(ckpt_stage_abort(step, false));
	ckpt_step_unref(step);
	begin("tmp-checkpoint-5", getpid());
	put_array();
}

static void begun_by_a_program(void)
{
	put_array();
	ckpt_staging_of(step)->by_client = false;
}

enum outcome { STAYS, IS_COMMITTED, IS_PLAIN, IS_INTERRUPTED };

static const struct {
	pid_t (*maker)(void);
	void (*prepare)(void);
	const char *waits; // for this, as soon as it was looked at
	int units;         // until it is; 0: it is by then
	enum outcome becomes;
} rows[] = {
	{getpid, arrays, " s of 180 s", 6, IS_COMMITTED},
	{nobody, arrays, " s of 900 s", 30, IS_COMMITTED},
	{getpid, all_of_its_neighbour, " s of 30 s", 1, IS_COMMITTED},
	{getpid, lacks_a_file, "config.json, which 500 has; quiet for ", 30, IS_COMMITTED},
	{cp, arrays_of_one_that_ends, " s of 30 s", 1, IS_COMMITTED},
	{sftp, arrays_of_one_that_ends, " s of 900 s", 30, IS_COMMITTED},
	{getpid, open_array, "the close of a.npy, which process 4711 has open", 0, STAYS},
	{getpid, open_log_beside_arrays, "the close of train.log, which process 4711 has open", 0, STAYS},
	{getpid, file_that_is_cut_off, "the rest of b.npy, which is cut off", 0, STAYS},
	{python, arrays, "(python) is stopped", 0, STAYS},
	{failing, arrays_of_one_that_ends, "", 0, IS_INTERRUPTED},
	{getpid, claimed, "(test_looker_wai", 0, STAYS},
	{nobody, claimed, "a process of another pid namespace", 0, STAYS},
	{python, claimed_of_one_that_ends, "the last file of dcp; quiet for ", 30, IS_COMMITTED},
	{getpid, claimed_with_times_of_another, " s of 180 s", 6, IS_COMMITTED},
	{getpid, texts, "a file with array data, without which it becomes a plain folder", 30, IS_PLAIN},
	{python, texts_of_one_that_ends, "a file with array data, without which it becomes a", 1, IS_PLAIN},
	{getpid, file_of_checkpoints_only, "a file with array data", 0, STAYS},
	{getpid, nothing, "a file with array data", 0, STAYS},
	{getpid, log_of_a_run, "", 0, IS_PLAIN},
	{getpid, log_without_a_line, "a file with array data", 30, IS_PLAIN},
	{getpid, log_of_what_is_declared, "a file with array data", 0, STAYS},
	{getpid, open_arrays_of_deepspeed, "a file with array data", 0, STAYS}, // it is no log
	{getpid, log_below_the_top, "a file with array data", 30, IS_PLAIN},
	{getpid, arrays_below_the_top, " s of 180 s", 6, IS_COMMITTED},
	{getpid, off, ".finalize", 0, STAYS},
	{getpid, temporary, "its rename to a name that is no temporary one", 0, STAYS},
	{getpid, begun_by_a_program, ".finalize", 0, STAYS},
};

static bool is_plain(void)
{
	return ckpt_step_state(step) == CKPT_STEP_GONE && !faccessat(s->tree_fd, NAME, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void check_waits(const char *text)
{
	char what[CKPT_WAITS_FOR_MAX];

	ckpt_looker_waits_for(step, what);
	ck_assert_msg(strstr(what, text), "it waits for \"%s\", not for \"%s\"", what, text);
}

static void check_staged(void)
{
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
}

static void check_interrupted(void)
{
	ck_assert(ckpt_stage_is_interrupted(step));
	ck_assert_uint_eq(ckpt_save_errors(s, "the save was interrupted: process"), 1);
	pass(40 * U);
	check_staged();
	check_waits("it was interrupted, and may have files of two attempts");
	ck_assert_uint_eq(ckpt_save_errors(s, "the step is not complete: it waits for"), 1);
}

// One that a client's mkdir made is told of after a minute, once.
static void check_stays(bool is_told)
{
	pass(40 * U);
	check_staged();
	ck_assert_uint_eq(ckpt_save_errors(s, "the step is not complete: it waits for"), is_told);
}

// Not before its time, and then at the next look.
static void check_becomes(enum outcome outcome, int units)
{
	if (units) {
		pass(units * U - LATE_NS - U / 10);
		check_staged();
		pass(U / 5);
	}
	if (outcome == IS_PLAIN) {
		ck_assert(is_plain());
		return;
	}
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert_str_eq(step->version->is.event, "quiet");
	ck_assert(ckpt_staged_has(step, "a.npy"));
}

START_TEST(a_step_becomes_what_it_is_when_its_time_has_come)
{
	begin(NAME, rows[_i].maker());
	rows[_i].prepare();
	pass(LATE_NS);
	check_waits(rows[_i].waits);
	switch (rows[_i].becomes) {
	case STAYS:
		check_stays(ckpt_staging_of(step)->by_client);
		check_waits(rows[_i].waits);
		break;
	case IS_INTERRUPTED:
		check_interrupted();
		break;
	default:
		check_becomes(rows[_i].becomes, rows[_i].units);
	}
}
END_TEST

// --- Changes and failures -------------------------------------------------------------------------------------------------

// A mapping, or a descriptor that outlived the daemon: no request tells.
START_TEST(a_change_that_no_request_told_of_begins_the_time_anew)
{
	CLEANUP_FD int fd = -1;

	begin(NAME, _i ? 0 : getpid());
	put_array();
	fd = ckpt_sys.open(step->dirfd, "a.npy", O_RDWR, 0);
	pass((_i ? 30 : 6) * U - U / 10);
	ck_ok(ckpt_sys.pwrite(fd, "c", 1, 70));
	close(fd);
	fd = -1;
	pass(U / 2);
	check_staged();
	check_waits(" s of 30 s");
	pass((_i ? 30 : 6) * U - U);
	check_staged();
	pass(U);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
}
END_TEST

// One that is under way, too.
START_TEST(a_change_by_a_request_begins_the_time_anew)
{
	begin(NAME, getpid());
	put_array();
	pass(5 * U);
	ck_ok(ckpt_stage_enter(step, true));
	pass(5 * U);
	check_staged();
	put("config.json", "{}");
	ckpt_stage_leave(step);
	pass(5 * U);
	check_staged();
	pass(U * 3 / 2);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert(ckpt_staged_has(step, "config.json"));
}
END_TEST

// A step that is completed beside it may have a file that it lacks.
START_TEST(a_neighbour_that_comes_meanwhile_counts)
{
	begin(NAME, getpid());
	put_array();
	pass(2 * U);
	check_waits(" s of 180 s");
	neighbour("config.json");
	pass(U);
	check_waits("config.json, which 500 has; quiet for ");
	put("config.json", "{}");
	pass(40 * U);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
}
END_TEST

static struct ckpt_fault fault;
static struct ckpt_sys below;

static int failing_open(int dirfd, const char *path, int flags, mode_t mode)
{
	return dirfd == s->sessions_fd ? -EIO : below.open(dirfd, path, flags, mode);
}

// A disk that is full, or fails: the step is neither listed nor lost, and is committed once it works again.
START_TEST(a_commit_that_fails_is_tried_again)
{
	begin(NAME, getpid());
	put_array();
	pass(U);
	below = ckpt_hooks;
	ckpt_save_fault(s, &fault);
	fault = (struct ckpt_fault){.at = _i ? 0 : 1, .error = -ENOSPC, .sticky = true};
	if (_i)
		ckpt_hook_set(open, failing_open);
	pass(20 * U);
	check_staged();
	fault.at = 0;
	ckpt_hook_set(open, below.open);
	pass(7 * U);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert(ckpt_staged_has(step, "a.npy"));
}
END_TEST

// The answer of the mount then: a file was opened meanwhile, or the name is taken.
static int refuse(void *arg __attribute__((unused)), struct ckpt_step *it __attribute__((unused)),
		  int64_t touched_ns __attribute__((unused)), bool no_arrays __attribute__((unused)))
{
	return -EAGAIN;
}

START_TEST(a_folder_that_cannot_become_plain_now_does_later)
{
	static int (*const calls[])(void *, struct ckpt_step *, int64_t, bool) = {refuse, NULL};

	begin(NAME, getpid());
	if (_i & 1)
		texts();
	else
		log_of_a_run();
	s->calls.unstage = calls[_i / 2];
	pass(40 * U);
	check_staged();
	s->calls.unstage = unstage;
	pass(40 * U);
	ck_assert(is_plain());
}
END_TEST

// --- An interrupted save --------------------------------------------------------------------------------------------------

// The clock of files moves in ticks.
static void write_after_the_mark(void)
{
	struct statx stx;

	do {
		ck_ok(ckpt_sys.unlink(step->dirfd, "a.npy", 0));
		put_array();
		ck_assert_int_eq(statx(step->dirfd, "a.npy", 0, STATX_CTIME, &stx), 0);
	} while (stx.stx_ctime.tv_sec * INT64_C(1000000000) + stx.stx_ctime.tv_nsec < ckpt_stage_attempt_ns(step));
}

// A second attempt that leaves nothing of the first is a save like any.
START_TEST(an_interrupted_step_that_is_written_anew_is_committed)
{
	begin(NAME, failing());
	arrays_of_one_that_ends();
	pass(LATE_NS);
	ck_assert(ckpt_stage_is_interrupted(step));
	end_child();
	ck_ok(ckpt_stage_enter(step, true));
	(void)ckpt_makers_note(step, getpid(), false);
	write_after_the_mark();
	ckpt_stage_leave(step);
	pass(7 * U);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
}
END_TEST

// --- Makers ----------------------------------------------------------------------------------------------------------------

// A loop that goes on with the next step has written this one.
START_TEST(a_claimed_step_whose_maker_has_begun_a_later_one_is_committed)
{
	struct ckpt_step *later;

	begin(NAME, getpid());
	claimed();
	pass(LATE_NS);
	check_waits("(test_looker_wai");
	ck_ok(ckpt_stage_begin_by_client(s, "", "2000", 0755, getuid(), getgid(), getpid(), &later));
	ck_ok(ckpt_stage_enter(later, true));
	pass(U);
	check_waits("the last file of dcp; quiet for");
	pass(30 * U);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ck_assert_int_eq(ckpt_step_state(later), CKPT_STEP_STAGED);
	ckpt_stage_leave(later);
	ckpt_step_unref(later);
}
END_TEST

// A temporary directory that is moved into a step brings those who wrote it: how they end counts.
START_TEST(makers_of_a_directory_that_is_moved_in_are_makers_of_the_step)
{
	struct ckpt_step *part, *into;
	struct ckpt_makers_facts facts;

	begin("part", python());
	part = step;
	put_array();
	if (_i)
		(void)ckpt_makers_note(part, 0, false); // and another whom nobody knows
	begin(NAME, getpid());
	into = step;
	ck_ok(ckpt_stage_graft(part, into, into->dirfd, "part"));
	ckpt_step_unref(part);
	ckpt_makers_ask(into, &facts);
	ck_assert_uint_eq(facts.living, 1);
	ck_assert_uint_eq(facts.stopped, 1);
	ck_assert_uint_eq(facts.unknown, (unsigned)_i);
	pass(LATE_NS);
	check_waits("(python) is stopped");
}
END_TEST

// --- The thread ------------------------------------------------------------------------------------------------------------

static pthread_mutex_t listed_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t listed_changed = PTHREAD_COND_INITIALIZER;
static bool is_listed;

static void note_listed(void *arg __attribute__((unused)), struct ckpt_step *it)
{
	pthread_mutex_lock(&listed_lock);
	is_listed = it == step;
	pthread_cond_broadcast(&listed_changed);
	pthread_mutex_unlock(&listed_lock);
}

START_TEST(the_thread_commits_what_is_quiet_and_the_mount_hears_of_it)
{
	struct ckpt_job *job;

	s->settings.commit_quiet_ns = 1000000;
	s->calls.listed = note_listed;
	begin(NAME, getpid());
	put_array();
	ck_ok(ckpt_looker_start(s));
	job = ckpt_looker_of(s)->job;
	(void)ckpt_job_wake(job);
	pthread_mutex_lock(&listed_lock);
	while (!is_listed) // else the time limit of the test
		pthread_cond_wait(&listed_changed, &listed_lock);
	pthread_mutex_unlock(&listed_lock);
	ckpt_job_stop(job);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ckpt_looker_end(s, INT64_MAX);
}
END_TEST

// --- The end --------------------------------------------------------------------------------------------------------------

static void temporary_text(void)
{
	temporary();
	put("config.json", "{}");
}

static const struct {
	pid_t (*maker)(void);
	void (*prepare)(void);
	bool is_committed;
} ends[] = {
	{getpid, arrays, false},
	{nobody, arrays, false},
	{python, arrays_of_one_that_ends, true},
	{python, arrays, false},
	{failing, arrays_of_one_that_ends, false},
	{nobody, all_of_its_neighbour, true},
	{getpid, all_of_its_neighbour, true},
	{getpid, lacks_a_file, false},
	{getpid, open_array, false},
	{python, texts_of_one_that_ends, false},
	{python, claimed_of_one_that_ends, true},
	{getpid, temporary_text, false},
	{getpid, begun_by_a_program, false},
};

START_TEST(an_orderly_end_commits_what_is_complete)
{
	bool is_late = _i >= (int)ARRAY_LEN(ends);
	int row = _i % (int)ARRAY_LEN(ends);

	begin(NAME, ends[row].maker());
	ends[row].prepare();
	ckpt_looker_end(s, is_late ? 0 : INT64_MAX);
	ck_assert_int_eq(ckpt_step_state(step),
			 ends[row].is_committed && !is_late ? CKPT_STEP_COMMITTED : CKPT_STEP_STAGED);
}
END_TEST

START_TEST(an_end_that_cannot_look_commits_nothing)
{
	begin(NAME, getpid());
	all_of_its_neighbour();
	below = ckpt_hooks;
	ckpt_hook_set(open, failing_open);
	ckpt_looker_end(s, INT64_MAX);
	ckpt_hook_set(open, below.open);
	check_staged();
	ck_ok(ckpt_stage_enter(step, false));
	ckpt_looker_end(s, INT64_MAX); // somebody is about a change
	ckpt_stage_leave(step);
	check_staged();
	ckpt_looker_end(s, INT64_MAX);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("looker waits");
	TCase *time = tcase_create("time"), *changes = tcase_create("changes"), *thread = tcase_create("thread"),
	      *end = tcase_create("end");

	tcase_add_checked_fixture(time, setup, teardown);
	tcase_add_loop_test(time, a_step_becomes_what_it_is_when_its_time_has_come, 0, (int)ARRAY_LEN(rows));
	suite_add_tcase(suite, time);
	tcase_add_checked_fixture(changes, setup, teardown);
	tcase_add_loop_test(changes, a_change_that_no_request_told_of_begins_the_time_anew, 0, 2);
	tcase_add_test(changes, a_change_by_a_request_begins_the_time_anew);
	tcase_add_test(changes, a_neighbour_that_comes_meanwhile_counts);
	tcase_add_loop_test(changes, a_commit_that_fails_is_tried_again, 0, 2);
	tcase_add_loop_test(changes, a_folder_that_cannot_become_plain_now_does_later, 0, 4);
	tcase_add_test(changes, an_interrupted_step_that_is_written_anew_is_committed);
	tcase_add_test(changes, a_claimed_step_whose_maker_has_begun_a_later_one_is_committed);
	tcase_add_loop_test(changes, makers_of_a_directory_that_is_moved_in_are_makers_of_the_step, 0, 2);
	suite_add_tcase(suite, changes);
	tcase_add_checked_fixture(thread, setup_threads, teardown);
	tcase_add_test(thread, the_thread_commits_what_is_quiet_and_the_mount_hears_of_it);
	suite_add_tcase(suite, thread);
	tcase_add_checked_fixture(end, setup, teardown);
	tcase_add_loop_test(end, an_orderly_end_commits_what_is_complete, 0, 2 * (int)ARRAY_LEN(ends));
	tcase_add_test(end, an_end_that_cannot_look_commits_nothing);
	suite_add_tcase(suite, end);
	return ckpt_suite_run(suite);
}
