// Copies of the records of steps, in records/UUID: one of each step, the newest, under the id of its session. The log alone says what there is;
// the copies are for the day on which it is damaged (ckpt_record_copies_salvage).
//
// A copy is written behind its act and is not waited for, as what it says is in the log. The mode of one whose step is deleted is 0, which
// needs no room and is set before the deletion is answered: so a salvage brings nothing back. Its time says which record it is, so that a
// mount need not read it.
//
// Threads: one for each step. Blocks on the disk. What fails costs nothing but the copy, and is made up for at the next open.
#pragma once

#include "core/state/journal.h"

struct ckpt_record_copies {
	struct ckpt_journal *journal;
	const char *store_id;
	int records_fd, sessions_fd;
};

// Of the step of this session, as the log says it is now. record, len: its record, where the caller has it; NULL: it is read.
void ckpt_record_copy_put(const struct ckpt_record_copies *c, const char *session, const void *record, size_t len);
void ckpt_record_copy_remove(const struct ckpt_record_copies *c, const char *session);
// At an open for writing: what is missing, or is not of this moment, is written; what is of no step is removed. *ret_lost: so many have their
// files and no step: the log has lost entries, and nothing was done.
int ckpt_record_copies_settle(const struct ckpt_record_copies *c, unsigned *ret_lost);
// In a store whose log has lost entries, before its steps are loaded: what the copies say and the log does not is appended to it, and told to
// fn. A name that is taken by now gets ".salvaged" behind it. A copy that is none is removed, where the log has no such step: fn gets its
// session and the error then, and the files of the step stay.
typedef void ckpt_record_salvaged_fn(void *arg, const char *name, int error);
int ckpt_record_copies_salvage(const struct ckpt_record_copies *c, ckpt_record_salvaged_fn *fn, void *arg);
