#include "core/guard.h"

#include "core/util.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

// Only what ends the child reaches it; no core file, no handlers of ours.
static void prepare_child(unsigned int seconds)
{
	static const int deadly[] = {SIGALRM, SIGBUS, SIGSEGV, SIGABRT, SIGILL, SIGFPE};
	sigset_t blocked;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
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
	pid_t pid;
	int r;

	if (result == MAP_FAILED)
		return -ENOMEM;
	*result = -EBADMSG;
	pid = fork();
	if (!pid) {
		prepare_child(seconds);
		*result = fn(arg);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	r = pid < 0 ? -ENOMEM : *result;
	munmap(result, sizeof(*result));
	return r;
}
