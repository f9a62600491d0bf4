// A plain folder that becomes a step, and a staged step that becomes a plain folder.
//
// The folder's directory becomes a session, in one rename, and is committed as any staged step is. Until it is, the folder goes
// back when that fails, and at the next start when its daemon dies meanwhile.
// The directory of a staged step that turns out to be none (a run's folder, a renamed one) becomes a folder in the same way.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

// A plain folder that was a staged step without array data says so: when it was begun, in nanoseconds. The first array file that is
// made in it stages it again.
#define CKPT_NO_ARRAYS_XATTR "user.ckptfs.no_arrays"

// Calling sequence: ckpt_convert_prepare(); ckpt_convert() in one moment with what the caller knows of the folder, or the step
// is let go of; ckpt_convert_sync(); the commit; ckpt_convert_back() if that failed.
//
// A step for the folder dirfd/name, in the folder with this id, which nobody knows yet. Walks what is below it. -ENOTEMPTY: it
// holds steps; -EMLINK a file in it has a hard link outside; -EEXIST there is a step of this name; -ENOTDIR, ...
int ckpt_convert_prepare(struct ckpt_store *s, int dirfd, const char *folder_id, const char *name,
			 struct ckpt_step **ret_step);
// The folder is a staged step from now on, and for sure after the sync. Nobody changes anything below it meanwhile, and the
// name is the folder's still. Does not wait for the disk. -EEXIST, ...
int ckpt_convert(struct ckpt_step *step, int dirfd);
int ckpt_convert_sync(struct ckpt_store *s, int dirfd);
// Its commit failed: it is a plain folder again, and the step GONE. -EEXIST: something else has the name by now, and the step
// stays staged; -EBUSY it is being committed.
int ckpt_convert_back(struct ckpt_step *step, int dirfd, const char *name);
// The same as _prepare() of a folder that was a staged step without array data (CKPT_NO_ARRAYS_XATTR), which is to be one again: one
// that a client made, after a crash, too. -ENODATA: it was none.
int ckpt_restage_prepare(struct ckpt_store *s, int dirfd, const char *folder_id, const char *name,
			 struct ckpt_step **ret_step);
// After ckpt_convert(); and instead of it, where it cannot be: nobody asks again.
void ckpt_restage_unmark(int dirfd);

// For the start: what was being turned into a step is a folder again, where it can be.
int ckpt_convert_settle(struct ckpt_store *s);

// --- A staged step becomes a plain folder ---------------------------------------------------------------------------------
//
// Calling sequence: ckpt_unstage_begin(); ckpt_unstage() in one moment with what the caller knows of the directory;
// ckpt_unstage_cancel() if that failed. Between them no change of the step is under way.

// Waits for the changes of the step that are under way. -EBUSY: it is being committed; -EINVAL: it has reopened a committed step;
// -EROFS, -ESTALE: it is not staged (any more).
// unless_touched_ns, if not NULL: -EAGAIN when something has changed since.
int ckpt_unstage_begin(struct ckpt_step *step, const int64_t *unless_touched_ns);
void ckpt_unstage_mark(struct ckpt_step *step); // as a folder without array data, before it becomes one
// The directory is dirfd/name from now on, and the step GONE; files that are open in it stay so, and belong to no step. flags as of
// rename(2): without RENAME_NOREPLACE an empty directory is replaced. Does not wait for the disk. -EEXIST, -ENOTEMPTY, ...
int ckpt_unstage(struct ckpt_step *step, int dirfd, const char *name, unsigned flags);
void ckpt_unstage_cancel(struct ckpt_step *step);
