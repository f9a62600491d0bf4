#include "tools/stop.h"

#include "tools/progress.h"

#include <signal.h>

volatile int ckpt_stopped;

static void (*before[2])(int); // of SIGINT and SIGTERM

static void on_stop(int number)
{
	ckpt_stopped = number;
}

void ckpt_stop_begin(void)
{
	ckpt_stopped = 0;
	before[0] = signal(SIGINT, on_stop);
	before[1] = signal(SIGTERM, on_stop);
}

int ckpt_stop_end(int status)
{
	ckpt_progress_stop();
	signal(SIGINT, before[0]);
	signal(SIGTERM, before[1]);
	return ckpt_stopped && status ? 128 + ckpt_stopped : status;
}
