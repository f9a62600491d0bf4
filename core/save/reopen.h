// Reopened steps: changes of a committed step, which itself never changes. They are made in a staged step of the same name,
// which begins with all files of the committed one, shared (share.h), and stands in its place until one of these ends it:
//
//   its completion event     ckpt_commit(): the next version of the step; the one before goes to trash
//   rmdir of its directory   ckpt_reopen_remove(): the step is deleted
//   quiet                    nothing has changed, and nobody had it open for writing, for
//                              a tenth of commit_quiet, 1 s at least, if no array data of the version was written over: an edit,
//                              six times commit_quiet if some was: a re-save,
//                              thirty times where a framework's event is awaited for it.
//                            Then it is committed as well; an edit keeps the step's place in the order of commits
//   an orderly end           of the store: as quiet, at once, for what is closed
//   given up                 by quiet, if a file that was written since is cut off, or a writer was killed in the middle of a
//                            file, or before each file of the version with array data was written anew; and by a restart;
//                            and if another node has deleted the step meanwhile, or saved over it
//
// An edit of the step by another node, which came meanwhile (core/step/successor.h), is in what is committed, path by path (merge.h).
//
// Given up, the version before is listed again, as it was, and the changes are kept as a left-over step.
//
// The committed step (`base`) is in the table all the time, hidden while `reopened` names the staged one, which is not.
// Threads: any. Blocks on the disk where said.
#pragma once

#include "core/step/reopened.h"

// The staged step that has the place of a committed one, with a reference: as it is, or begun now, which takes a link for
// each file. What was removed from the step (remove.h) is missing in it. -ESTALE: it is not committed (any more); -EIO: a
// raw file is gone or changed; -ENOSPC ... Failures are in the error log. Blocks on the disk.
int ckpt_reopen(struct ckpt_step *base, struct ckpt_step **ret_step);

// A left-over step that was given up stands in the place of the committed one of its name again. -ENOENT: there is none; -EEXIST
// another does already, or what is staged there is something else; -ESTALE it is not left over.
int ckpt_reopen_resume(struct ckpt_step *step);

// For who completes it by hand: -EINVAL, a file that was written since ends before its own format says so, which is told in the error
// log; 0 if that cannot be said, and for a step that has no base. Blocks on the disk.
int ckpt_reopen_check_whole(struct ckpt_step *step);

// The directory of a reopened step is removed: -ENOTEMPTY, -EBUSY it is being committed; errors of ckpt_delete, after which
// the step is there as it was before. Blocks on the disk.
int ckpt_reopen_remove(struct ckpt_step *step);

// Tells in the error log that the changes of a left-over step, which was found at a start, are not in the step. Once, however often the store is opened.
void ckpt_reopen_tell(const struct ckpt_step *step);
// Under store->lock and step->lock: this staged step, of another name, has the place of base from now on, and its name. The base that
// it had before, or NULL: the caller's reference, to be dropped when no lock is held.
struct ckpt_step *ckpt_reopen_take_locked(struct ckpt_step *step, struct ckpt_step *base);
// For the end of the store: those that are closed and whole are committed. Does not wait for it (commits_running).
void ckpt_reopen_wake_all(struct ckpt_store *s);
