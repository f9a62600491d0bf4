// Completion of a step in the mount: by its finalize marker (marker.h), or by the last move of its framework (core/profile/profile.h).
//
// Threads: any, but not those that serve the kernel, where it waits for writers and the disk.
#pragma once

#include "core/profile/profile.h"
#include "core/save/commit.h"
#include "fs/call.h"
#include "fs/waiter.h"

// Commits the step, or what has its place; in one of which something was removed, what is left. *ret_step: the step that was committed, a
// reference; NULL: not wanted.
int complete_step(struct ckpt_fs *fs, struct ckpt_step *step, const struct ckpt_commit *how,
		  struct ckpt_step **ret_step);
// The same of a directory of the mount. A plain folder is turned into a step for it, and where that fails is a plain folder
// again. *ret_step, which may be NULL, is the step then: a reference.
int complete_folder(struct ckpt_fs *fs, struct node *dir, const struct ckpt_commit *how, struct ckpt_step **ret_step);

// The same of the plain folder dir, which is called name in above, where `how` names the step: it is renamed to that. 1: it holds a
// step, a log or a file that is open for writing, or no file at all: it is to be renamed as a plain folder.
int complete_renamed(struct ckpt_fs *fs, struct node *dir, struct node *above, const char *name,
		     const struct ckpt_commit *how);

// The plain folder dir, which is called name in above, open as dirfd, is this step from now on, which core/save/convert.h has prepared.
// Other requests about it end before, or begin after as in a staged step. -EALREADY: it is one; -EBUSY: a draft
// is below it; -ESTALE.
int complete_convert(struct ckpt_fs *fs, struct node *dir, const struct node *above, int dirfd, const char *name,
		     struct ckpt_step *step);

// --- What frameworks do last ------------------------------------------------------------------------------------------

#define COMPLETE_LOCKED_NS                                                                                             \
	INT64_C(200000000) // for writers, where the kernel holds the lock of a folder of steps meanwhile

// What an act completes.
struct completing {
	struct ckpt_completion what;
	struct ckpt_step *step; // a reference; or NULL:
	struct node *dir;       // the plain folder that becomes one, a reference
	struct node *folder;    // where the step is, a reference, or NULL
};
// 0: it goes to complete_run(); -ENOENT: nothing; -EINVAL: the file is cut or empty, which is what stands between the step and
// its completion: complete_tell() says so. Else it cannot be said, and what was done is to fail. The file is in dir; the names
// and fd of the deed are the caller's, all else is ours.
// here: steps that dir is or may become, else only what is beside the file.
int complete_decide(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed, bool here,
		    struct completing *ret);
// What this client does says nothing: it copies trees, in no order. Asked while it lives.
bool complete_is_copier(pid_t tid);
// Commits it, and lets go of what decide gave. tid: who waits for it, 0 nobody. What close(2), rename(2) or unlink(2) are to
// answer: a plain folder that cannot be a step is no error of theirs. *ret_step: the step that is committed now, a reference, for who waits
// longer (durable.h); NULL: it is not, or not yet.
int complete_run(struct ckpt_fs *fs, struct completing *c, pid_t tid, struct ckpt_step **ret_step);
void complete_done(struct ckpt_fs *fs, struct completing *c); // instead of it
// In the error log: why the step that dir is, or is to be, is not complete.
void complete_tell(struct ckpt_fs *fs, struct node *dir, const char *name, const char *why);
