// The makers of a staged step: the processes that created, opened for writing, truncated, linked, renamed or made something in it.
// They are kept as long as it is staged. How they ended says whether it may be complete (quiet.h).
//
// Ownership: a step has its own. Threads: any. Guarded by step->lock, which _note, _ask and _forget take. Blocks: _note reads
// small files of /proc for a thread that is seen for the first time; _ask as ckpt_process_ask().
#pragma once

#include "core/base/process.h"
#include "core/step/step.h"

// The thread tid, whose request waits for our answer, makes something in this step; made_it: the step itself. Nothing is done for a
// step that is not staged. Its process's number; 0: not known.
pid_t ckpt_makers_note(struct ckpt_step *step, pid_t tid, bool made_it);

struct ckpt_makers_facts {
	bool any;
	bool unseen;       // some are not known at all: from another pid namespace, or there was no descriptor for them
	bool copied;       // one is a program that copies trees
	bool copier_made;  // such a one made the step's directory, and how it ends says how the copy ended
	bool copier_ended; // some such process has ended with 0
	unsigned living;   // and have not begun a later step beside this one
	unsigned later;    // live, and have
	unsigned stopped, failed, ended, unknown;
	unsigned killed; // of those that failed, by a signal
	// Of each kind one, for people: "process 12 (python) is stopped"; "": none.
	char living_text[CKPT_PROCESS_TEXT_MAX], stopped_text[CKPT_PROCESS_TEXT_MAX],
		failed_text[CKPT_PROCESS_TEXT_MAX], unknown_text[CKPT_PROCESS_TEXT_MAX];
};
void ckpt_makers_ask(struct ckpt_step *step, struct ckpt_makers_facts *ret_facts);
// A new attempt begins: those that have ended count no more.
void ckpt_makers_forget_ended(struct ckpt_step *step);

// --- For stage.c -------------------------------------------------------------------------------------------------------------

// Both locks are held: the makers of `from` are those of `to`, too.
void ckpt_makers_move_locked(struct ckpt_step *from, struct ckpt_step *to);
void ckpt_makers_forget_locked(struct ckpt_step *step);
