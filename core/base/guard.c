#include "core/base/guard.h"

#include "core/base/util.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Only what ends the child reaches it; no core file, no handlers of ours. Nor may it have our descriptors: when we are
// killed it would keep the store's lock for a moment longer, in which nobody could open the store.
static void prepare_child(pid_t parent, unsigned int seconds)
{
	static const int deadly[] = {SIGALRM, SIGBUS, SIGSEGV, SIGABRT, SIGILL, SIGFPE};
	sigset_t blocked;

	prctl(PR_SET_DUMPABLE, 0);
	(void)close_range(STDERR_FILENO + 1, ~0U, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1); // it was too late for that
	sigfillset(&blocked);
	for (size_t i = 0; i < ARRAY_LEN(deadly); i++) {
		signal(deadly[i], SIG_DFL);
		sigdelset(&blocked, deadly[i]);
	}
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	alarm(seconds);
}

int ckpt_guard_run(ckpt_guard_fn *fn, void *arg, unsigned int seconds)
{
	// Not the exit status: where SIGCHLD is ignored there is none.
	int *result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t parent = getpid(), pid;
	int r;

	if (result == MAP_FAILED)
		return -ENOMEM;
	*result = -EBADMSG;
	pid = fork();
	if (!pid) {
		prepare_child(parent, seconds);
		*result = fn(arg);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	r = pid < 0 ? -ENOMEM : *result;
	munmap(result, sizeof(*result));
	return r;
}
