#include "tools/stop.h"

#include "core/base/util.h"
#include "tools/progress.h"

volatile int ckpt_stopped;

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
static void (*before[ARRAY_LEN(stops)])(int);

static void on_stop(int number)
{
	ckpt_stopped = number;
}

void ckpt_stop_signals(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < ARRAY_LEN(stops); i++)
		sigaddset(set, stops[i]);
}

// A SIGHUP that is ignored stays so, for nohup.
void ckpt_stop_begin(void)
{
	ckpt_stopped = 0;
	for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
		before[i] = signal(stops[i], on_stop);
		if (stops[i] == SIGHUP && before[i] == SIG_IGN)
			signal(SIGHUP, SIG_IGN);
	}
}

int ckpt_stop_end(int status)
{
	ckpt_progress_stop();
	for (size_t i = 0; i < ARRAY_LEN(stops); i++)
		signal(stops[i], before[i]);
	return ckpt_stopped && status ? 128 + ckpt_stopped : status;
}
