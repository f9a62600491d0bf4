// The watch of processes, with real ones: how they are doing, how they ended, and that a number that is used again is another process.
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/base/process.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PATIENCE_NS INT64_C(30000000000)
#define NAP_NS INT64_C(1000000)

// --- Children ---------------------------------------------------------------------------------------------------------

// One that does this, and ends with 0 where it returns. It dies with us.
static pid_t child(void (*act)(void))
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL); // Check has handlers
	setrlimit(RLIMIT_CORE, &(struct rlimit){0});
	act();
	_exit(0);
}

static void wait_for_ever(void)
{
	for (;;)
		pause();
}

static void exit_3(void)
{
	_exit(3);
}

static void exit_0(void)
{
}

static void reap(pid_t pid)
{
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void await_zombie(pid_t pid)
{
	siginfo_t info;

	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static struct ckpt_process *watch(pid_t pid)
{
	struct ckpt_process *p = ckpt_process_of(pid);

	ck_assert_ptr_nonnull(p);
	return p;
}

static void is(struct ckpt_process *p, enum ckpt_process_state state, int code)
{
	struct ckpt_process_status status = ckpt_process_ask(p);

	ck_assert_int_eq(status.state, state);
	ck_assert_int_eq(status.code, code);
}

static void becomes(struct ckpt_process *p, enum ckpt_process_state state)
{
	int64_t until_ns = ckpt_sys.mono_ns() + PATIENCE_NS;

	while (ckpt_process_ask(p).state != state) {
		ck_assert_msg(ckpt_sys.mono_ns() < until_ns, "it is %d, not %d", ckpt_process_ask(p).state, state);
		ckpt_sys.sleep_ns(NAP_NS);
	}
}

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

// --- Ends -------------------------------------------------------------------------------------------------------------

START_TEST(it_lives_until_it_ends)
{
	pid_t pid = child(wait_for_ever);
	struct ckpt_process *p = watch(pid);

	ck_assert_int_eq(ckpt_process_pid(p), pid);
	ck_assert_str_eq(ckpt_process_program(p), "test_process");
	is(p, CKPT_PROCESS_LIVES, 0);
	kill(pid, SIGKILL);
	reap(pid);
	is(p, CKPT_PROCESS_KILLED, SIGKILL);
	is(p, CKPT_PROCESS_KILLED, SIGKILL);
	ckpt_process_unref(p);
}
END_TEST

// Stopped, it cannot end before it is watched.
static void (*after_the_stop)(void);

static void stop_first(void)
{
	raise(SIGSTOP);
	after_the_stop();
}

static struct ckpt_process *watch_end_of(void (*act)(void), pid_t *ret_pid)
{
	struct ckpt_process *p;

	after_the_stop = act;
	*ret_pid = child(stop_first);
	p = watch(*ret_pid);
	becomes(p, CKPT_PROCESS_STOPPED);
	kill(*ret_pid, SIGCONT);
	return p;
}

START_TEST(its_exit_status_is_known_after_its_parent_waited_for_it)
{
	pid_t pid;
	struct ckpt_process *p = watch_end_of(exit_0, &pid);

	reap(pid);
	is(p, CKPT_PROCESS_ENDED, 0);
	ckpt_process_unref(p);
	p = watch_end_of(exit_3, &pid);
	reap(pid);
	is(p, CKPT_PROCESS_FAILED, 3);
	ckpt_process_unref(p);
}
END_TEST

START_TEST(its_exit_status_is_known_before_its_parent_waits_for_it)
{
	pid_t pid;
	struct ckpt_process *p = watch_end_of(exit_0, &pid), *q = watch_end_of(exit_3, &pid);

	await_zombie(ckpt_process_pid(p));
	await_zombie(ckpt_process_pid(q));
	is(p, CKPT_PROCESS_ENDED, 0);
	is(q, CKPT_PROCESS_FAILED, 3);
	reap(ckpt_process_pid(p));
	reap(ckpt_process_pid(q));
	is(p, CKPT_PROCESS_ENDED, 0);
	is(q, CKPT_PROCESS_FAILED, 3);
	ckpt_process_unref(p);
	ckpt_process_unref(q);
}
END_TEST

static const int deadly[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP,   SIGABRT, SIGBUS,
			     SIGFPE,  SIGKILL, SIGUSR1, SIGSEGV, SIGUSR2,   SIGPIPE, SIGALRM,
			     SIGTERM, SIGXCPU, SIGXFSZ, SIGPROF, SIGVTALRM, SIGIO,   SIGSYS};

START_TEST(each_signal_that_kills_is_known)
{
	bool is_reaped = _i % 2;
	int sig = deadly[_i / 2];
	pid_t pid;
	struct ckpt_process *p = watch_end_of(wait_for_ever, &pid);

	kill(pid, sig);
	if (is_reaped)
		reap(pid);
	else
		await_zombie(pid);
	is(p, CKPT_PROCESS_KILLED, sig);
	ckpt_process_unref(p);
	if (!is_reaped)
		reap(pid);
}
END_TEST

static void *crash(void *arg __attribute__((unused)))
{
	ckpt_sys.sleep_ns(NAP_NS);
	abort();
}

static void *end_well(void *arg __attribute__((unused)))
{
	ckpt_sys.sleep_ns(20 * NAP_NS);
	_exit(0);
}

static void crash_in_a_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, crash, NULL);
	wait_for_ever();
}

static void end_the_first_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, end_well, NULL);
	syscall(SYS_exit, 7);
}

START_TEST(a_crash_of_any_thread_kills_it)
{
	pid_t pid;
	struct ckpt_process *p = watch_end_of(crash_in_a_thread, &pid);

	reap(pid);
	is(p, CKPT_PROCESS_KILLED, SIGABRT);
	ckpt_process_unref(p);
}
END_TEST

START_TEST(it_ends_with_its_last_thread)
{
	pid_t pid;
	struct ckpt_process *p = watch_end_of(end_the_first_thread, &pid);

	becomes(p, CKPT_PROCESS_ENDED);
	reap(pid);
	is(p, CKPT_PROCESS_ENDED, 0);
	ckpt_process_unref(p);
}
END_TEST

// --- Stopped ----------------------------------------------------------------------------------------------------------

START_TEST(a_stop_is_seen_and_its_end_too)
{
	pid_t pid = child(wait_for_ever);
	struct ckpt_process *p = watch(pid);

	kill(pid, SIGSTOP);
	becomes(p, CKPT_PROCESS_STOPPED);
	kill(pid, SIGCONT);
	becomes(p, CKPT_PROCESS_LIVES);
	kill(pid, SIGKILL);
	reap(pid);
	is(p, CKPT_PROCESS_KILLED, SIGKILL);
	ckpt_process_unref(p);
}
END_TEST

START_TEST(a_debugger_stops_it)
{
	pid_t pid = child(wait_for_ever);
	struct ckpt_process *p = watch(pid);

	ck_assert_int_eq(ptrace(PTRACE_ATTACH, pid, NULL, NULL), 0);
	becomes(p, CKPT_PROCESS_STOPPED);
	ck_assert_int_eq(waitpid(pid, NULL, __WALL), pid);
	ck_assert_int_eq(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
	becomes(p, CKPT_PROCESS_LIVES);
	kill(pid, SIGKILL);
	reap(pid);
	ckpt_process_unref(p);
}
END_TEST

static bool put(const char *path, const char *text)
{
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static const struct freezer {
	const char *at, *file, *freeze, *thaw;
} freezers[] = {
	{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
	{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
	{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
};

// As `docker pause` does it.
START_TEST(a_frozen_group_stops_it)
{
	const struct freezer *f = &freezers[_i];
	char group[PATH_MAX / 2], procs[PATH_MAX], state[PATH_MAX], number[16];
	struct ckpt_process *p;
	bool frozen;
	pid_t pid;

	snprintf(group, sizeof(group), "%s/ckptfs-test-%d", f->at, (int)getpid());
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
	snprintf(state, sizeof(state), "%s/%s", group, f->file);
	if (mkdir(group, 0700) || access(state, W_OK)) {
		rmdir(group);
		fprintf(stderr, "SKIPPED: no groups can be frozen at %s\n", f->at);
		return;
	}
	pid = child(wait_for_ever);
	p = watch(pid);
	snprintf(number, sizeof(number), "%d", (int)pid);
	frozen = put(procs, number) && put(state, f->freeze);
	if (frozen)
		becomes(p, CKPT_PROCESS_STOPPED);
	ck_assert(put(state, f->thaw));
	becomes(p, CKPT_PROCESS_LIVES);
	kill(pid, SIGKILL);
	reap(pid);
	while (rmdir(group) && errno == EBUSY)
		ckpt_sys.sleep_ns(NAP_NS);
	ck_assert(frozen);
	ckpt_process_unref(p);
}
END_TEST

// --- Not known --------------------------------------------------------------------------------------------------------

START_TEST(no_number_is_no_process)
{
	pid_t pid = child(exit_0);

	ck_assert_ptr_null(ckpt_process_of(0));
	ck_assert_ptr_null(ckpt_process_ref(NULL));
	is(NULL, CKPT_PROCESS_UNKNOWN, 0);
	ck_assert_int_eq(ckpt_process_pid(NULL), 0);
	ck_assert_str_eq(ckpt_process_program(NULL), "");
	reap(pid);
	ck_assert_ptr_null(ckpt_process_of(pid));
	ckpt_process_unref(NULL);
}
END_TEST

static int no_end(int pidfd __attribute__((unused)), int *ret_wait __attribute__((unused)))
{
	return -ENOTTY;
}

START_TEST(on_an_old_kernel_only_a_zombie_tells)
{
	struct ckpt_process *p, *q;
	pid_t pid, zombie;

	ckpt_hook_set(process_end, no_end);
	p = watch_end_of(exit_0, &pid);
	q = watch_end_of(exit_3, &zombie);
	reap(pid);
	await_zombie(zombie);
	is(p, CKPT_PROCESS_UNKNOWN, 0);
	is(q, CKPT_PROCESS_FAILED, 3);
	reap(zombie);
	is(q, CKPT_PROCESS_FAILED, 3);
	ckpt_process_unref(p);
	ckpt_process_unref(q);
}
END_TEST

// The parent waits for it between two looks of ours.
static pid_t to_be_reaped;
static int (*real_end)(int pidfd, int *ret_wait);

static int reap_at_first(int pidfd, int *ret_wait)
{
	(void)pidfd;
	(void)ret_wait;
	reap(to_be_reaped);
	ckpt_hook_set(process_end, real_end);
	return -EAGAIN;
}

START_TEST(a_zombie_that_goes_while_it_is_looked_at_is_known)
{
	struct ckpt_process *p = watch_end_of(exit_3, &to_be_reaped);

	await_zombie(to_be_reaped);
	real_end = ckpt_hooks.process_end;
	ckpt_hook_set(process_end, reap_at_first);
	is(p, CKPT_PROCESS_FAILED, 3);
	ckpt_process_unref(p);
}
END_TEST

// Another user's: the kernel shows 0, which must not be taken for its status.
START_TEST(a_zombie_that_we_may_not_read_counts_as_stopped)
{
	struct ckpt_process *p;
	pid_t pid;

	if (geteuid()) {
		fprintf(stderr, "SKIPPED: needs root\n");
		return;
	}
	p = watch_end_of(exit_3, &pid);
	await_zombie(pid);
	ck_assert_int_eq(setresuid(4711, 4711, 4711), 0);
	is(p, CKPT_PROCESS_STOPPED, 0);
	reap(pid);
	is(p, CKPT_PROCESS_FAILED, 3);
	ckpt_process_unref(p);
}
END_TEST

// --- Which process ----------------------------------------------------------------------------------------------------

static void *sleep_on(void *arg __attribute__((unused)))
{
	wait_for_ever();
	return NULL;
}

static void start_threads(void)
{
	pthread_t thread;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, sleep_on, NULL);
	wait_for_ever();
}

static size_t threads_of(pid_t pid, pid_t *ret_tids, size_t cap)
{
	char path[64];
	struct dirent *e;
	size_t count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.' && count < cap)
			ret_tids[count++] = (pid_t)strtol(e->d_name, NULL, 10);
	closedir(dir);
	return count;
}

START_TEST(all_its_threads_and_files_share_one_handle)
{
	pid_t pid = child(start_threads), tids[8];
	struct ckpt_process *p = watch(pid);
	unsigned before = open_descriptors();

	while (threads_of(pid, tids, ARRAY_LEN(tids)) < 5)
		ckpt_sys.sleep_ns(NAP_NS);
	for (int i = 0; i < 1000; i++) {
		struct ckpt_process *q = ckpt_process_of(tids[i % 5]);

		ck_assert_ptr_eq(q, p);
		ckpt_process_unref(q);
	}
	ck_assert_uint_eq(open_descriptors(), before);
	ckpt_process_unref(p);
	ck_assert_uint_eq(open_descriptors(), before - 1);
	p = watch(tids[3]);
	ck_assert_int_eq(ckpt_process_pid(p), pid);
	kill(pid, SIGKILL);
	reap(pid);
	is(p, CKPT_PROCESS_KILLED, SIGKILL);
	ck_assert_uint_eq(open_descriptors(), before - 1); // what has ended needs no descriptor
	ckpt_process_unref(p);
}
END_TEST

static pid_t clone_as(pid_t pid)
{
	struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
	pid_t made;

	// The kernel lets go of the number of a thread a little after its process has gone.
	while ((made = (pid_t)syscall(SYS_clone3, &args, sizeof(args))) < 0 && errno == EEXIST)
		ckpt_sys.sleep_ns(NAP_NS);
	if (!made) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		wait_for_ever();
	}
	return made;
}

#define LONG_AGO_NS INT64_C(300000000) // no number comes back faster than that

START_TEST(the_same_number_again_is_another_process)
{
	pid_t pid = child(wait_for_ever), again;
	struct ckpt_process *p = watch(pid), *q;

	kill(pid, SIGKILL);
	reap(pid);
	again = clone_as(pid);
	if (again < 0 && errno == EPERM) {
		fprintf(stderr, "SKIPPED: needs root\n");
		return;
	}
	ck_assert_int_eq(again, pid);
	ckpt_sys.sleep_ns(LONG_AGO_NS);
	q = watch(pid);
	ck_assert_ptr_ne(q, p);
	is(p, CKPT_PROCESS_KILLED, SIGKILL);
	is(q, CKPT_PROCESS_LIVES, 0);
	ckpt_process_unref(p);
	p = watch(pid);
	ck_assert_ptr_eq(p, q);
	ckpt_process_unref(p);
	kill(pid, SIGKILL);
	reap(pid);
	is(q, CKPT_PROCESS_KILLED, SIGKILL);
	ckpt_process_unref(q);
}
END_TEST

START_TEST(the_number_of_a_thread_again_is_another_process)
{
	pid_t pid = child(start_threads), tids[8], other, tid;
	struct ckpt_process *p, *q;

	while (threads_of(pid, tids, ARRAY_LEN(tids)) < 5)
		ckpt_sys.sleep_ns(NAP_NS);
	tid = tids[4] == pid ? tids[3] : tids[4];
	p = watch(tid);
	kill(pid, SIGKILL);
	reap(pid);
	other = clone_as(tid);
	if (other < 0 && errno == EPERM) {
		fprintf(stderr, "SKIPPED: needs root\n");
		return;
	}
	ckpt_sys.sleep_ns(LONG_AGO_NS);
	q = watch(tid);
	ck_assert_ptr_ne(q, p);
	ck_assert_int_eq(ckpt_process_pid(q), tid);
	is(p, CKPT_PROCESS_KILLED, SIGKILL);
	is(q, CKPT_PROCESS_LIVES, 0);
	kill(tid, SIGKILL);
	reap(tid);
	ckpt_process_unref(p);
	ckpt_process_unref(q);
}
END_TEST

// A daemon of the writer's: its parent is gone, init waits for it, and it is watched all the same.
static int grandchild_pipe[2];

static void fork_and_exit(void)
{
	pid_t pid = fork();

	if (!pid)
		wait_for_ever();
	if (write(grandchild_pipe[1], &pid, sizeof(pid)) != sizeof(pid))
		_exit(1);
}

START_TEST(a_child_of_a_child_is_watched_for_itself)
{
	struct ckpt_process *p, *q;
	pid_t pid, grandchild;

	ck_assert_int_eq(pipe(grandchild_pipe), 0);
	p = watch_end_of(fork_and_exit, &pid);
	ck_assert_int_eq(read(grandchild_pipe[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	q = watch(grandchild);
	reap(pid);
	is(p, CKPT_PROCESS_ENDED, 0);
	is(q, CKPT_PROCESS_LIVES, 0);
	kill(grandchild, SIGTERM);
	becomes(q, CKPT_PROCESS_KILLED);
	is(q, CKPT_PROCESS_KILLED, SIGTERM);
	ckpt_process_unref(p);
	ckpt_process_unref(q);
}
END_TEST

// Threads that ask for one process, and for its state, while it ends.
static pid_t asked_for;

static void *ask_all_the_time(void *arg)
{
	struct ckpt_process *p = arg;
	struct ckpt_process_status status;

	do {
		struct ckpt_process *q = ckpt_process_of(asked_for);

		status = ckpt_process_ask(p);
		ckpt_process_unref(q);
	} while (status.state == CKPT_PROCESS_LIVES);
	return (void *)(uintptr_t)(status.state == CKPT_PROCESS_KILLED);
}

START_TEST(threads_may_ask_at_once)
{
	unsigned before = open_descriptors();

	for (int round = 0; round < 20; round++) {
		struct ckpt_process *p;
		pthread_t threads[4];
		void *killed;

		asked_for = child(wait_for_ever);
		p = watch(asked_for);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_all_the_time, p), 0);
		kill(asked_for, SIGKILL);
		reap(asked_for);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
			pthread_join(threads[i], &killed);
			ck_assert_ptr_nonnull(killed);
		}
		ckpt_process_unref(p);
		ck_assert_uint_eq(open_descriptors(), before);
	}
}
END_TEST

START_TEST(people_are_told_in_words)
{
	char text[CKPT_PROCESS_TEXT_MAX], want[CKPT_PROCESS_TEXT_MAX];
	pid_t pid = child(wait_for_ever);
	struct ckpt_process *p = watch(pid);

	ckpt_process_text(p, (struct ckpt_process_status){CKPT_PROCESS_STOPPED, 0}, text);
	snprintf(want, sizeof(want), "process %d (test_process) is stopped", (int)pid);
	ck_assert_str_eq(text, want);
	ckpt_process_text(p, (struct ckpt_process_status){CKPT_PROCESS_FAILED, 3}, text);
	snprintf(want, sizeof(want), "process %d (test_process) ended with exit status 3", (int)pid);
	ck_assert_str_eq(text, want);
	ckpt_process_text(p, (struct ckpt_process_status){CKPT_PROCESS_KILLED, 9}, text);
	snprintf(want, sizeof(want), "process %d (test_process) was killed by signal 9", (int)pid);
	ck_assert_str_eq(text, want);
	ckpt_process_text(NULL, ckpt_process_ask(NULL), text);
	ck_assert_str_eq(text, "a process of another pid namespace");
	ckpt_process_unref(p);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("process");
	TCase *tc = tcase_create("process");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, it_lives_until_it_ends);
	tcase_add_test(tc, its_exit_status_is_known_after_its_parent_waited_for_it);
	tcase_add_test(tc, its_exit_status_is_known_before_its_parent_waits_for_it);
	tcase_add_loop_test(tc, each_signal_that_kills_is_known, 0, 2 * (int)ARRAY_LEN(deadly));
	tcase_add_test(tc, a_crash_of_any_thread_kills_it);
	tcase_add_test(tc, it_ends_with_its_last_thread);
	tcase_add_test(tc, a_stop_is_seen_and_its_end_too);
	tcase_add_test(tc, a_debugger_stops_it);
	tcase_add_loop_test(tc, a_frozen_group_stops_it, 0, (int)ARRAY_LEN(freezers));
	tcase_add_test(tc, no_number_is_no_process);
	tcase_add_test(tc, on_an_old_kernel_only_a_zombie_tells);
	tcase_add_test(tc, a_zombie_that_goes_while_it_is_looked_at_is_known);
	tcase_add_test(tc, a_zombie_that_we_may_not_read_counts_as_stopped);
	tcase_add_test(tc, all_its_threads_and_files_share_one_handle);
	tcase_add_test(tc, the_same_number_again_is_another_process);
	tcase_add_test(tc, the_number_of_a_thread_again_is_another_process);
	tcase_add_test(tc, a_child_of_a_child_is_watched_for_itself);
	tcase_add_test(tc, threads_may_ask_at_once);
	tcase_add_test(tc, people_are_told_in_words);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
