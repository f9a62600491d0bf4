// The jobs of a store: what it does in the background, such as to seal, push, cool and expire. One runner has the threads of all.
//
// A job is a function, its turn, which the runner calls when the job is due. The turn returns when it is due next. A job runs on one thread
// at a time. Different jobs run beside each other: a job that waits for a network holds up no other.
// The runner starts a thread when a job is due and no thread is free. One free thread stays and watches the clock; others end after some
// seconds.
//
// Calling sequence: ckpt_jobs_new(), ckpt_job_new() for each job, ckpt_job_wake(); then ckpt_job_stop() for each, and ckpt_jobs_free().
// Ownership: a job belongs to its runner, and lives as long. So a job that was stopped may be woken: nothing happens.
// Threads: any. Blocks: ckpt_job_stop() until the turn that runs has ended; ckpt_jobs_free(), ckpt_jobs_by_hand() until all have. No lock may be
// held over these; ckpt_job_wake() may be called under any lock.
// Errors: -ENOMEM; -EAGAIN: no thread could be started.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_job;
struct ckpt_jobs;

// The order of jobs where threads are short, and how much ckpt_job_go_on() leaves to others.
enum ckpt_job_class {
	CKPT_JOB_PROMPT,    // a client may wait for it
	CKPT_JOB_HURRIES,   // gives way to saves, and shares processors as any program does
	CKPT_JOB_GIVES_WAY, // gives way to saves, and to all else that the machine does
};

// The time of its next turn, unless woken before, monotonic; 0: at once; INT64_MAX: when it is woken.
typedef int64_t ckpt_job_turn(void *arg, struct ckpt_job *job);

struct ckpt_job_of {
	const char *name; // static
	enum ckpt_job_class class;
	ckpt_job_turn *turn;
	void *arg;   // borrowed until ckpt_job_stop() has returned
	bool sleeps; // the first turn comes when it is woken; else at once
};

int ckpt_jobs_new(struct ckpt_jobs **ret_jobs); // 0, -ENOMEM
void ckpt_jobs_free(struct ckpt_jobs *jobs);    // stops all jobs that are left; NULL is fine

// So many more save now: jobs that give way do so. A plain atomic addition.
void ckpt_jobs_saves(struct ckpt_jobs *jobs, int more);
int ckpt_jobs_saving(const struct ckpt_jobs *jobs);

// *ret_job is set before the first turn, and is read with an acquiring load by threads that have no other order with this call.
// 0, -ENOMEM; -EAGAIN only if it does not sleep and there is no thread that could come to it.
int ckpt_job_new(struct ckpt_jobs *jobs, const struct ckpt_job_of *of, struct ckpt_job **ret_job);
// It is due now, or once more after the turn that runs. False: it was stopped, or no thread is free for it and none can be started. It has its
// turn then when that of another job has ended, which may wait for the caller: the caller must not wait. NULL is fine, here and below.
bool ckpt_job_wake(struct ckpt_job *job);
void ckpt_job_stop(struct ckpt_job *job);
// All but the prompt ones are told to end, and nobody waits: before several are stopped one after the other, each of which may wait for a
// network.
void ckpt_jobs_ending(struct ckpt_jobs *jobs);
bool ckpt_job_stops(const struct ckpt_job *job); // the turn is to end

// For the turn, and for threads of it: after each chunk, by the thread that has read it. Rests as it should; false: it is to end.
// job is a struct ckpt_job *, as callbacks take it.
bool ckpt_job_go_on(void *job, uint64_t bytes);
// The time at which work that failed so is worth another attempt, monotonic; INT64_MAX: not before it is another version.
int64_t ckpt_job_again_ns(int error);
// As it is after this: there was no memory, no room, ...
#define CKPT_JOB_LATER_NS INT64_C(600000000000)

// --- For tests ----------------------------------------------------------------------------------------------------------

// From now on no thread runs a job, and the calls below do it: a test decides which turns come before, between and after its own calls.
void ckpt_jobs_by_hand(struct ckpt_jobs *jobs);
// Runs one turn, of the next due job. Its name; NULL: none is due. *ret_due_ns, unless NULL: when the next one is due then.
const char *ckpt_jobs_run_next(struct ckpt_jobs *jobs, int64_t *ret_due_ns);
