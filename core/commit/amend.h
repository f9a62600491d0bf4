// Amends: what is added to a committed step, or taken from it, after its commit. Each is a new version of the step with the
// same session; what it adds stands in the session's directory, where no version of before names it. No version changes.
//
// A file is pending from its creation to its close: it is in no version and in no listing, and its name in the session's
// directory is taken. A step that is reopened meanwhile (reopen.h) takes its pending files along. What a crash leaves
// pending is nobody's: its place is cleared for who comes next.
//
// Paths are those in the step. Threads: any. Blocks on the disk where said.
#pragma once

#include "core/store/step.h"

struct ckpt_amending {
	bool had_pending;  // some file of it was, or is, being added; atomic
	bool pending_away; // and those that are, are being linked elsewhere: lookups wait, on step->changed
	struct ckpt_pending_file *pending_files;  // being added; set under step->lock, read without
	struct ckpt_pending_file *expected_files; // left to be added by the running commit, or that of unknown outcome
	bool amend_unknown;                       // the last amend may be on disk (atomic; set under acts_lock)
	bool reopening; // the step that takes its place is being made, with all that is not removed yet
};
CKPT_PART(struct ckpt_step, struct ckpt_amending, ckpt_amending)

#define CKPT_AMEND_RAW_MAX 40
// A new raw name, which nothing has. Errors of the random source.
int ckpt_amend_raw_name(char ret_raw[CKPT_AMEND_RAW_MAX]);
// 0: neither the current version nor a pending file has this path. -EEXIST one has.
int ckpt_amend_check_free(struct ckpt_step *step, const char *path);
// An amend whose answer was lost is in the step's version or is not, from now on; its file is not pending where it is. -EIO it is
// still unknown: what it wrote must stay. Most often there is none. Blocks on the disk.
int ckpt_amend_settle(struct ckpt_step *step);
int ckpt_amend_settle_locked(struct ckpt_step *step); // with store->acts_lock held
// Whether the step has these bytes of a replacement.
bool ckpt_amend_has_raw(struct ckpt_step *step, const char *path, const char *raw);
// A file that is pending, or was: a crash may leave it in the session's directory, where it harms nobody.
#define CKPT_EVENT_AMEND "amend" // of its versions
#define CKPT_AMEND_XATTR "user.ckptfs.added"
int ckpt_amend_mark(int fd);

// A new file stands there, open for writing. -EAGAIN: the step is not committed any more, or reopened; -ENOMEM.
// raw: under this name in the session's directory; NULL: under its path.
int ckpt_amend_begin(struct ckpt_step *step, const char *path, const char *raw);
bool ckpt_amend_is_pending(struct ckpt_step *step, const char *path);
// Where in the session's directory a pending file is. False: none is pending there; or the place is too long.
bool ckpt_amend_raw_of(struct ckpt_step *step, const char *path, char *ret_raw, size_t cap);
// A pending file gets another path, which is free, or none (to NULL), while it is neither added nor linked into a step that is being
// reopened: change does what else belongs to it. Its raw name stays. Errors of change; -EAGAIN: it is not pending any more, or the step is
// reopened.
int ckpt_amend_rename(struct ckpt_step *step, const char *path, const char *to, int (*change)(void *arg), void *arg);
void ckpt_amend_forget(struct ckpt_step *step, const char *path);

// A pending file is part of the step, or what stands in the session's directory at path: a file, symlink or empty directory, durable
// when it returns 0. -EEXIST there is one; -ESTALE the step is not committed any more; -EIO a write was lost or the outcome is unknown,
// asking again gives the final answer; ... Failures are in the error log. Blocks on the disk.
int ckpt_amend_add(struct ckpt_step *step, const char *path);
int ckpt_amend_add_raw(struct ckpt_step *step, const char *path,
		       const char *raw); // the same of what stands at raw there
// The same where a file or symlink with this name may be, which the new one takes the place of. Nobody asks what either holds.
int ckpt_amend_add_over(struct ckpt_step *step, const char *path, const char *raw);
// The same for a file that has other bytes from now on: they are in the session's directory under raw, and the version of before
// keeps the old. It keeps its inode number.
int ckpt_amend_replace(struct ckpt_step *step, const char *path, const char *raw);
// What is at path, with all below it, is not part of the step any more; the version of before still has it. Errors as above,
// and -ENOENT; -EPERM the step is pinned; -EINVAL for the step itself. Blocks on the disk.
int ckpt_amend_remove(struct ckpt_step *step, const char *path);

// For commit.c and scan.c. A file that has a writer, and which the commit that runs leaves out, is pending from its end on, if it is
// still open then. fd is open on it.
int ckpt_amend_expect(struct ckpt_step *step, const char *path, uint64_t ino, int fd);
void ckpt_amend_expect_none(struct ckpt_step *step);
void ckpt_amend_expected_locked(struct ckpt_step *step); // the step is committed, its lock held

// For reopen.c, while the step takes no new ones: the pending files have names below dirfd, too; and then no others.
int ckpt_amend_link(struct ckpt_step *step, int dirfd);
void ckpt_amend_unlink(struct ckpt_step *step);
// A pending file is somewhere below this directory.
bool ckpt_amend_any_below(struct ckpt_step *step, const char *path);
