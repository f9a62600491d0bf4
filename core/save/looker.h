// The looker of a mount: a job that watches its staged steps, completes those that are quiet (quiet.h), marks those that were
// interrupted, and tells in the error log of those that are not complete after a minute.
//
// It looks at steps that a client made by mkdir. Temporary forms wait for their rename, and what `ckptfs begin` or a program made wait
// for their commit: of these it only knows for how long nothing has changed.
// A look at a step costs little before it has been left alone for half of commit_quiet; then all its files are looked at, and again
// before it is committed. Between two turns it rests in proportion to the processor time of the last one; without staged steps it sleeps.
//
// Threads: any. Blocks: _end as said. Time is CLOCK_MONOTONIC.
#pragma once

#include "core/step/step.h"

struct ckpt_job;

struct ckpt_looker {
	struct ckpt_store *store;
	struct ckpt_job *job; // of a mount, atomic; woken when there is a staged step. Else NULL
	bool ends;            // of _end
};
CKPT_PART(struct ckpt_store, struct ckpt_looker, ckpt_looker)

int ckpt_looker_start(struct ckpt_store *s); // 0, -ENOMEM, -EAGAIN

// The end of a mount, when its job was stopped and no client has anything open: commits the staged steps that quiet would complete if it had
// the time: those whose makers have all ended with 0, and those that have each file of their neighbour. Begins none after until_ns
// (monotonic); what is left stays staged.
void ckpt_looker_end(struct ckpt_store *s, int64_t until_ns);

// The thing that a staged step waits for, in one line for people: "quiet for 4 s of 10 s", "process 123 (python) is stopped".
#define CKPT_WAITS_FOR_MAX 512
void ckpt_looker_waits_for(struct ckpt_step *step, char ret_text[CKPT_WAITS_FOR_MAX]);
