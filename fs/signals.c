#include "fs/signals.h"

#include "core/base/log.h"
#include "fs/call.h"
#include "fs/decider.h"
#include "fs/end.h"
#include "fs/fs.h"

#include <signal.h>

#define ANSWER_NS INT64_C(300000000) // who was let go has an answer by then

static void make_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR1);
}

// What clients wait for is answered first, then the loop ends.
static void end(struct ckpt_fs *fs, int which)
{
	ckpt_log(CKPT_LOG_INFO, "%s: unmounting", strsignal(which));
	end_begin(fs);
	call_drain(END_PATIENCE_NS + ANSWER_NS);
	fuse_session_exit(fs->se);
}

static void *signals_thread(void *arg)
{
	struct signals *s = arg;
	sigset_t set;
	int which;

	make_set(&set);
	while (!sigwait(&set, &which) && !__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		if (which != SIGUSR1) {
			end(s->fs, which);
			break;
		}
		ckpt_log(CKPT_LOG_INFO, "%s: a preemption is near", strsignal(which));
		decider_preempt(s->fs->decider, 0);
	}
	return NULL;
}

void signals_block(void)
{
	sigset_t set;

	make_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); // who mounts may ignore it, and then nobody knows how a program ended
}

int signals_start(struct signals *s, struct ckpt_fs *fs)
{
	*s = (struct signals){.fs = fs};
	return pthread_create(&s->thread, NULL, signals_thread, s) ? -EAGAIN : 0;
}

void signals_stop(struct signals *s)
{
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	pthread_kill(s->thread, SIGTERM);
	pthread_join(s->thread, NULL);
}
