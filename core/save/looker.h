// The looker of a mount: a thread that watches its staged steps, completes those that are quiet (quiet.h), marks those that were
// interrupted, and tells in the error log of those that are not complete after a minute.
//
// It looks at steps that a client made by mkdir. Temporary forms wait for their rename, and what `ckptfs begin` or a program made wait
// for their commit: of these it only knows for how long nothing has changed.
// A look at a step costs little before it has been left alone for half of commit_quiet; then all its files are looked at, and again
// before it is committed. Between two turns it rests in proportion to the processor time of the last one; without staged steps it sleeps.
//
// Threads: any. Blocks: _stop for as long as a look takes; _end as said. Time is CLOCK_MONOTONIC.
#pragma once

#include "core/step/step.h"

struct ckpt_looker;
// Of a mount, atomic; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_looker *, ckpt_looker)

// s is borrowed. 0, -ENOMEM, -EAGAIN.
int ckpt_looker_new(struct ckpt_store *s, struct ckpt_looker **ret_looker);
void ckpt_looker_wake(struct ckpt_looker *l); // there is a staged step; NULL is fine
void ckpt_looker_stop(struct ckpt_looker *l); // it does no more; NULL is fine
void ckpt_looker_free(struct ckpt_looker *l); // after _stop, when nobody wakes it; NULL is fine

// The end of a mount, after _stop, when no client has anything open: commits the staged steps that quiet would complete if it had
// the time: those whose makers have all ended with 0, and those that have each file of their neighbour. Begins none after until_ns
// (monotonic); what is left stays staged. NULL is fine.
void ckpt_looker_end(struct ckpt_looker *l, int64_t until_ns);

// The thing that a staged step waits for, in one line for people: "quiet for 4 s of 10 s", "process 123 (python) is stopped".
#define CKPT_WAITS_FOR_MAX 512
void ckpt_looker_waits_for(struct ckpt_step *step, char ret_text[CKPT_WAITS_FOR_MAX]);

// One look at all staged steps, as the thread takes it; when the next is due. For tests, which have no thread.
int64_t ckpt_looker_look(struct ckpt_looker *l);
int ckpt_looker_new_without_thread(struct ckpt_store *s, struct ckpt_looker **ret_looker);
