#include "core/base/run.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define LOOK_MS 100
#define READ_BYTES 4096
#define PIPE_READS (65536 / READ_BYTES)
#define TERM_NS INT64_C(500000000) // what a program has to end well

// --- Start --------------------------------------------------------------------------------------------------------------

static bool has_name_of(const char *const *env, const char *entry)
{
	size_t len = strcspn(entry, "=") + 1;

	for (; env && *env; env++)
		if (!strncmp(*env, entry, len))
			return true;
	return false;
}

// Of borrowed texts; free it. NULL: no memory.
static char **environment(const char *const *env)
{
	size_t count = 0, n = 0;
	char **all;

	for (char **e = environ; e && *e; e++)
		count++;
	for (const char *const *e = env; e && *e; e++)
		count++;
	all = ckpt_calloc(count + 1, sizeof(*all));
	if (!all)
		return NULL;
	for (const char *const *e = env; e && *e; e++)
		all[n++] = (char *)(uintptr_t)*e;
	for (char **e = environ; e && *e; e++)
		if (!has_name_of(env, *e))
			all[n++] = *e;
	return all;
}

static int set_up(posix_spawnattr_t *attr, posix_spawn_file_actions_t *files, int output_fd)
{
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!rc)
		rc = posix_spawnattr_setsigmask(attr, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, output_fd, STDOUT_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(files, output_fd, STDERR_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
	return rc;
}

static int start(const struct ckpt_run *run, int output_fd, pid_t *ret_pid)
{
	CLEANUP_FREE char **env = environment(run->env);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc;

	if (!env)
		return -ENOMEM;
	posix_spawnattr_init(&attr); // these two cannot fail
	posix_spawn_file_actions_init(&files);
	rc = set_up(&attr, &files, output_fd);
	if (!rc)
		rc = posix_spawn(ret_pid, run->argv[0], &files, &attr, (char *const *)(uintptr_t)run->argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

// --- While it runs ------------------------------------------------------------------------------------------------------

struct child {
	pid_t pid;
	int pidfd, output_fd;
	struct ckpt_ran *ran;
	size_t len; // of the output so far
};

// The end of it stays.
static void keep(struct child *c, const char *text, size_t len)
{
	size_t room = sizeof(c->ran->output) - 1, over;

	if (len > room) {
		text += len - room;
		len = room;
	}
	over = c->len + len > room ? c->len + len - room : 0;
	memmove(c->ran->output, c->ran->output + over, c->len - over);
	memcpy(c->ran->output + c->len - over, text, len);
	c->len += len - over;
	c->ran->output[c->len] = '\0';
}

// What there is; false: nobody will write any more.
static bool read_output(struct child *c)
{
	char text[READ_BYTES];
	ssize_t n = read(c->output_fd, text, sizeof(text));

	if (n > 0)
		keep(c, text, (size_t)n);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

// True: it has ended.
static bool wait_a_moment(struct child *c, bool *reads)
{
	struct pollfd fds[] = {{.fd = c->pidfd, .events = POLLIN},
			       {.fd = *reads ? c->output_fd : -1, .events = POLLIN}};

	if (poll(fds, ARRAY_LEN(fds), LOOK_MS) <= 0)
		return false;
	if (fds[1].revents)
		*reads = read_output(c);
	return fds[0].revents;
}

static int watch(const struct ckpt_run *run, struct child *c)
{
	int64_t until_ns = ckpt_sys.mono_ns() + run->timeout_ns;
	bool reads = true;
	int rc = 0;

	while (!wait_a_moment(c, &reads)) {
		bool late = ckpt_sys.mono_ns() >= until_ns;

		if (rc && late) {
			kill(-c->pid, SIGKILL);
			until_ns = INT64_MAX;
		} else if (!rc && (late || (run->go_on && !run->go_on(run->arg)))) {
			rc = late ? -ETIMEDOUT : -EINTR;
			kill(-c->pid, SIGTERM);
			until_ns = ckpt_sys.mono_ns() + TERM_NS;
		}
	}
	for (int i = 0; i < PIPE_READS && reads; i++) // of what is left in it; others may write on
		reads = read_output(c);
	return rc;
}

int ckpt_run(const struct ckpt_run *run, struct ckpt_ran *ret_ran)
{
	struct child c = {.ran = ret_ran};
	siginfo_t end = {0};
	int fds[2], rc;

	*ret_ran = (struct ckpt_ran){0};
	if (run->go_on && !run->go_on(run->arg))
		return -EINTR;
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	rc = start(run, fds[1], &c.pid);
	close(fds[1]);
	c.output_fd = fds[0];
	if (!rc) {
		c.pidfd = pidfd_open(c.pid, 0);
		if (c.pidfd < 0) { // no descriptors: it cannot be watched
			rc = -errno;
			kill(-c.pid, SIGKILL);
		} else {
			fcntl(c.output_fd, F_SETFL, O_NONBLOCK);
			rc = watch(run, &c);
			close(c.pidfd);
		}
		// Until it is reaped nobody else has its number, which is that of its group.
		if (rc == -ETIMEDOUT || rc == -EINTR)
			kill(-c.pid, SIGKILL);
		if (TEMP_FAILURE_RETRY(waitid(P_PID, (id_t)c.pid, &end, WEXITED)) && !rc)
			rc = -errno; // ECHILD: this process ignores its children, or waits for any
		ret_ran->status = end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
	}
	close(c.output_fd);
	return rc;
}

const char *ckpt_run_last_line(struct ckpt_ran *ran)
{
	size_t len = strlen(ran->output);
	char *newline;

	while (len && strchr(" \t\r\n", ran->output[len - 1]))
		len--;
	ran->output[len] = '\0';
	newline = strrchr(ran->output, '\n');
	return newline ? newline + 1 : ran->output;
}
