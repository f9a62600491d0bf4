#include "core/program.h"

#include "core/sys.h"
#include "core/util.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static bool is_named_by(const char *variable, const char *const *extra)
{
	size_t len = strcspn(variable, "=");

	for (; *extra; extra++)
		if (!strncmp(*extra, variable, len) && (*extra)[len] == '=')
			return true;
	return false;
}

// Pointers to what the two have.
static char **make_environment(const char *const *extra)
{
	size_t count = 1, n = 0;
	char **environment;

	for (char **v = environ; v && *v; v++)
		count++;
	for (const char *const *v = extra; *v; v++)
		count++;
	environment = ckpt_calloc(count, sizeof(*environment));
	for (char **v = environ; environment && v && *v; v++)
		if (!is_named_by(*v, extra))
			environment[n++] = *v;
	for (; environment && *extra; extra++)
		environment[n++] = (char *)*extra;
	return environment;
}

static int spawn(char *const *command, char *const *environment, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t all, none;
	int rc;

	sigfillset(&all);
	sigemptyset(&none);
	if (posix_spawn_file_actions_init(&actions))
		return -ENOMEM;
	if (posix_spawnattr_init(&attr)) {
		posix_spawn_file_actions_destroy(&actions);
		return -ENOMEM;
	}
	rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	if (!rc)
		rc = posix_spawnattr_setflags(&attr,
					      POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!rc)
		rc = posix_spawnattr_setsigmask(&attr, &none);
	if (!rc)
		rc = posix_spawnattr_setsigdefault(&attr, &all);
	if (!rc)
		rc = posix_spawn(ret_pid, command[0], &actions, &attr, command, environment);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

// Until it has ended: 0; -ETIMEDOUT; -EMFILE ...
static int wait_for(pid_t pid, int64_t timeout_ns)
{
	CLEANUP_FD int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	int64_t end_ns = ckpt_sys.mono_ns() + timeout_ns;

	if (fd < 0)
		return -errno;
	for (;;) {
		int64_t left_ms = (end_ns - ckpt_sys.mono_ns() + 999999) / 1000000;
		struct pollfd poller = {.fd = fd, .events = POLLIN};
		int n = poll(&poller, 1, (int)MIN(MAX(left_ms, (int64_t)0), (int64_t)INT_MAX));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (left_ms <= 0)
			return -ETIMEDOUT;
	}
}

int ckpt_program_run(char *const *command, const char *const *extra, int64_t timeout_ns, int *ret_status)
{
	CLEANUP_FREE char **environment = make_environment(extra);
	int status = 0, rc;
	pid_t pid;

	if (!environment)
		return -ENOMEM;
	rc = spawn(command, environment, &pid);
	if (rc)
		return rc;
	rc = wait_for(pid, timeout_ns);
	if (rc)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!rc)
		*ret_status = status;
	return rc;
}
