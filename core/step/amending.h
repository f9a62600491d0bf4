// Files that are being added to a committed step (amend.h).
//
// A file is pending from its creation to its close: it is in no version and in no listing, and its name in the session's
// directory is taken. A step that is reopened meanwhile (reopen.h) takes its pending files along. What a crash leaves
// pending is nobody's: its place is cleared for who comes next.
//
// Paths are those in the step. Threads: any. Blocks on the disk where said.
#pragma once

#include "core/step/step.h"

struct ckpt_amending {
	bool had_pending;  // some file of it was, or is, being added; atomic
	bool pending_away; // and those that are, are being linked elsewhere: lookups wait, on step->changed
	struct ckpt_pending_file *pending_files;  // being added; set under step->lock, read without
	struct ckpt_pending_file *expected_files; // left to be added by the running commit, or that of unknown outcome
	bool amend_unknown;                       // the last amend may be on disk (atomic; set under acts_lock)
	bool reopening; // the step that takes its place is being made, with all that is not removed yet
};
CKPT_PART(struct ckpt_step, struct ckpt_amending, ckpt_amending)

#define CKPT_AMENDING_RAW_MAX 40
// A new raw name, which nothing has. Errors of the random source.
int ckpt_amending_raw_name(char ret_raw[CKPT_AMENDING_RAW_MAX]);
// 0: neither the current version nor a pending file has this path. -EEXIST one has.
int ckpt_amending_check_free(struct ckpt_step *step, const char *path);
// An amend whose answer was lost is in the step's version or is not, from now on; its file is not pending where it is. -EIO it is
// still unknown: what it wrote must stay. Most often there is none. Blocks on the disk.
int ckpt_amending_settle(struct ckpt_step *step);
int ckpt_amending_settle_locked(struct ckpt_step *step); // with store->acts_lock held
// Whether the step has these bytes of a replacement.
bool ckpt_amending_has_raw(struct ckpt_step *step, const char *path, const char *raw);
// A file that is pending, or was: a crash may leave it in the session's directory, where it harms nobody.
#define CKPT_AMENDING_XATTR "user.ckptfs.added"
int ckpt_amending_mark(int fd);

// A new file stands there, open for writing. -EAGAIN: the step is not committed any more, or reopened; -ENOMEM.
// raw: under this name in the session's directory; NULL: under its path.
int ckpt_amending_begin(struct ckpt_step *step, const char *path, const char *raw);
bool ckpt_amending_is_pending(struct ckpt_step *step, const char *path);
// The place of a pending file in the session's directory. False: none is pending there; or the place is too long.
bool ckpt_amending_raw_of(struct ckpt_step *step, const char *path, char *ret_raw, size_t cap);
// A pending file gets another path, which is free, or none (to NULL), while it is neither added nor linked into a step that is being
// reopened: change does what else belongs to it. Its raw name stays. Errors of change; -EAGAIN: it is not pending any more, or the step is
// reopened.
int ckpt_amending_rename(struct ckpt_step *step, const char *path, const char *to, int (*change)(void *arg), void *arg);
void ckpt_amending_forget(struct ckpt_step *step, const char *path);

// For commit.c and scan.c. A file that has a writer, and which the commit that runs leaves out, is pending from its end on, if it is
// still open then. fd is open on it.
int ckpt_amending_expect(struct ckpt_step *step, const char *path, uint64_t ino, int fd);
void ckpt_amending_expect_none(struct ckpt_step *step);
void ckpt_amending_expected_locked(struct ckpt_step *step); // the step is committed, its lock held

// For reopen.c, while the step takes no new ones: the pending files have names below dirfd, too; and then no others.
int ckpt_amending_link(struct ckpt_step *step, int dirfd);
void ckpt_amending_unlink(struct ckpt_step *step);
// Another step has the place of `from` (successor.h): its pending files are those of that. move brings a raw file there: 0, and where it is
// in ret_raw; -errno: that file stays. Under store->acts_lock.
int ckpt_amending_hand_on(struct ckpt_step *from, struct ckpt_step *to,
			  int (*move)(void *arg, const char *raw, char ret_raw[CKPT_AMENDING_RAW_MAX]), void *arg);
// A pending file is somewhere below this directory.
bool ckpt_amending_any_below(struct ckpt_step *step, const char *path);
