// States: started (pid lives, pipes are open) -> fed (in_fd is closed) -> ended (the process is a zombie) -> reaped. A failure kills the group in any
// of the first two. The first of the group, which watches the caller, is reaped last: no other process can get its number while the group is killed.
#include "tools/filter.h"

#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100
#define READ_BYTES ((size_t)1 << 20)

// --- Start --------------------------------------------------------------------------------------------------------------

// The first process of the group: it kills the others when the caller has died, which then cannot. Signals that the program sends its group are not
// its end.
static void watch(pid_t caller)
{
	sigset_t all, death;
	int number;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&death);
	sigaddset(&death, SIGTERM);
	(void)close_range(0, ~0U, 0);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	while (getppid() == caller)
		sigwait(&death, &number);
	kill(0, SIGKILL);
	_exit(1);
}

static int start_watcher(struct ckpt_filter *f)
{
	pid_t caller = getpid();

	f->group = fork();
	if (!f->group)
		watch(caller);
	if (f->group < 0)
		return -errno;
	setpgid(f->group, f->group); // the first of both that does it
	return 0;
}

static int set_up(posix_spawnattr_t *attr, posix_spawn_file_actions_t *files, pid_t group, int in, int out)
{
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!rc)
		rc = posix_spawnattr_setpgroup(attr, group);
	if (!rc)
		rc = posix_spawnattr_setsigmask(attr, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, in, STDIN_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, out, STDOUT_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
	return rc;
}

static int spawn(struct ckpt_filter *f, int in, int out)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc;

	posix_spawnattr_init(&attr); // these two cannot fail
	posix_spawn_file_actions_init(&files);
	rc = set_up(&attr, &files, f->group, in, out);
	if (!rc)
		rc = posix_spawn(&f->pid, f->argv[0], &files, &attr, (char *const *)(uintptr_t)f->argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void end_group(const struct ckpt_filter *f)
{
	siginfo_t end;

	kill(-f->group, SIGKILL);
	(void)TEMP_FAILURE_RETRY(waitid(P_PID, (id_t)f->group, &end, WEXITED));
}

static int reap(struct ckpt_filter *f, siginfo_t *end)
{
	int rc;

	kill(-f->group, SIGKILL);
	rc = TEMP_FAILURE_RETRY(waitid(P_PID, (id_t)f->pid, end, WEXITED)) ? -errno : 0;
	end_group(f);
	return rc;
}

static void done(struct ckpt_filter *f)
{
	close_fd(&f->in_fd);
	close_fd(&f->out_fd);
	close_fd(&f->pidfd);
	free(TAKE_PTR(f->buffer));
	sigaction(SIGPIPE, &f->before, NULL);
}

// Both ends of the program's are closed here in any case.
static int start(struct ckpt_filter *f, int in[2], int out[2])
{
	int rc = start_watcher(f);

	f->in_fd = in[1];
	f->out_fd = out[0];
	if (rc)
		return rc;
	rc = spawn(f, in[0], out[1]);
	if (rc) {
		end_group(f);
		return rc;
	}
	f->pidfd = pidfd_open(f->pid, 0);
	if (f->pidfd < 0) {
		siginfo_t end;

		rc = -errno;
		(void)reap(f, &end);
		return rc;
	}
	fcntl(f->in_fd, F_SETFL, O_NONBLOCK);
	fcntl(f->out_fd, F_SETFL, O_NONBLOCK);
	return 0;
}

int ckpt_filter_start(struct ckpt_filter *f)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	int in[2] = {-1, -1}, out[2] = {-1, -1}, rc;

	f->pidfd = f->in_fd = f->out_fd = -1;
	f->got = 0;
	f->status = 0;
	f->until_ns = f->timeout_ns ? ckpt_sys.mono_ns() + f->timeout_ns : INT64_MAX;
	f->buffer = ckpt_need(malloc(READ_BYTES));
	sigaction(SIGPIPE, &ignore, &f->before);
	rc = pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ? -errno : start(f, in, out);
	if (f->in_fd < 0)
		close_fd(&in[1]);
	close_fd(&in[0]);
	close_fd(&out[1]);
	if (rc) {
		done(f);
		return ckpt_fail_errno(f->word, "it is a program that you may run", rc);
	}
	return 0;
}

// --- While it runs ------------------------------------------------------------------------------------------------------

static int fail(struct ckpt_filter *f, int status)
{
	if (!f->status)
		f->status = status;
	return f->status;
}

static int keep(struct ckpt_filter *f, size_t len)
{
	uint64_t max = UINT64_MAX;
	ssize_t n = ckpt_sys.pwrite(f->spool_fd, f->buffer, len, (off_t)f->got);
	int rc;

	if (n < 0)
		return fail(f, ckpt_fail_errno(f->word, "its output is kept beside the new step", (int)n));
	f->got += len;
	rc = f->look(f->arg, f->got, &max);
	if (rc)
		return fail(f, rc);
	if (f->got > max)
		return fail(f, ckpt_fail(f->word, NULL, "its output is longer than its header says: %llu bytes",
					 (unsigned long long)max));
	return 0;
}

static int take_output(struct ckpt_filter *f)
{
	ssize_t n = read(f->out_fd, f->buffer, READ_BYTES);

	if (n > 0)
		return keep(f, (size_t)n);
	if (!n || (errno != EAGAIN && errno != EINTR))
		close_fd(&f->out_fd);
	return 0;
}

static int check_time(struct ckpt_filter *f)
{
	char text[CKPT_DURATION_EXACT_MAX];

	if (ckpt_stopped)
		return fail(f, 1);
	if (ckpt_sys.mono_ns() < f->until_ns)
		return 0;
	return fail(f, ckpt_fail(f->word, "--timeout gives it more time", "was not done after %s and was ended",
				 ckpt_duration_exact(f->timeout_ns, text)));
}

// Of what it waits for: output, room for input where `feeds` says so, and the end of the process, which is *ret_ended.
static int wait_a_moment(struct ckpt_filter *f, bool feeds, bool *ret_room, bool *ret_ended)
{
	struct pollfd fds[] = {{.fd = f->pidfd, .events = POLLIN},
			       {.fd = f->out_fd, .events = POLLIN},
			       {.fd = feeds ? f->in_fd : -1, .events = POLLOUT}};
	int n = poll(fds, ARRAY_LEN(fds), LOOK_MS), rc = check_time(f);

	*ret_ended = n > 0 && fds[0].revents;
	*ret_room = n > 0 && fds[2].revents;
	if (!rc && n > 0 && fds[1].revents)
		rc = take_output(f);
	return rc;
}

int ckpt_filter_put(struct ckpt_filter *f, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len && f->in_fd >= 0) {
		bool room, ended;
		ssize_t n = 0;
		int rc = wait_a_moment(f, true, &room, &ended);

		if (rc)
			return rc;
		if (room)
			n = write(f->in_fd, at, len);
		if (ended || (n < 0 && errno != EAGAIN && errno != EINTR))
			close_fd(&f->in_fd); // it reads no more
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
	}
	return f->status;
}

// --- Its end ------------------------------------------------------------------------------------------------------------

static int await(struct ckpt_filter *f)
{
	bool room, ended = false;
	int rc = 0;

	close_fd(&f->in_fd);
	while (!rc && !ended)
		rc = wait_a_moment(f, false, &room, &ended);
	if (!rc)
		kill(-f->group, SIGKILL); // what it has left behind holds no pipe up
	// The rest of the pipe. A process that left the group may still write: look() bounds that.
	while (!rc && f->out_fd >= 0) {
		uint64_t before = f->got;

		rc = take_output(f);
		if (f->got == before)
			break;
		if (!rc)
			rc = check_time(f);
	}
	return rc;
}

static int judge(const struct ckpt_filter *f, const siginfo_t *end)
{
	static const char hint[] = "what it wrote to stderr may say why; nothing was changed";

	if (end->si_code != CLD_EXITED)
		return ckpt_fail(f->word, hint, "was killed by signal %d (%s)", end->si_status,
				 strsignal(end->si_status));
	return end->si_status ? ckpt_fail(f->word, hint, "ended with status %d", end->si_status) : 0;
}

int ckpt_filter_end(struct ckpt_filter *f, int stop)
{
	int rc = stop ? stop : f->status, error;
	siginfo_t end = {0};

	if (!rc)
		rc = await(f);
	error = reap(f, &end);
	if (!rc)
		rc = error ? ckpt_fail_errno(f->word, "SIGCHLD is ignored here", error) : judge(f, &end);
	done(f);
	return rc;
}
