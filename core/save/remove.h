// Removals from a committed step: what is removed is marked in memory, and seen at once; it changes nothing on disk until the
// marks end (remove_end.c). A process has its own marks, and one of these ends them:
//
//   its last one is 1 s old             they are one edit: a version without what is marked
//   rmdir of the step itself            ckpt_remove_whole(): the step is deleted, whatever was marked by whom
//   the process was killed, or failed   they are dropped: the files are there again
//   a crash                             the same
//
// A process that had the step's own directory open within a minute before its first mark is taken for the beginning of `rm -r`,
// which is one act. Its marks end when it has ended with 0, or nobody knows how, or when it has that directory closed and has
// removed nothing for a minute: an edit. They are dropped, too, when it has been stopped for a minute. Only meanwhile the step is
// in no listing; it is reachable by its name, without what is gone. A thread that has added or renamed something in the step since it
// closed the directory listed it for that, and is no such beginning.
//
// A deletion means the version before the first mark: also where marks of the same removal were an edit in the last minute.
// Threads: any; guarded by step->lock. Only _whole blocks on the disk.
#pragma once

#include "core/step/step.h"

// Marks a child of directory dir of m as removed by the thread tid, whose request waits for our answer: a directory (want_dir)
// with nothing left in it, or another entry. -ENOENT, -ENOTDIR, -EISDIR, -ENOTEMPTY, -ENOMEM; -EROFS the step is not committed, or no
// change of it is allowed but its deletion; -EPERM it is pinned, which is told in the error log; -EAGAIN it is being reopened:
// remove it there.
int ckpt_remove_entry(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir, const char *name,
		      bool want_dir, pid_t tid);
// The step itself: deleted, if nothing is left in it (-ENOTEMPTY); errors of ckpt_delete, after which it is whole.
int ckpt_remove_whole(struct ckpt_step *step);

// Whatever is marked now is an edit. 0: so it is, or nothing is marked; errors of a version's put, in the error log. Blocks on the
// disk.
int ckpt_remove_publish(struct ckpt_step *step);

// For remove_end.c and remove.c: until the marks of the step have ended; by a thread of its own.
void ckpt_remove_watch(struct ckpt_step *step);
