// For the commit (commit.c): one attempt at it. commit.c has the order; the parts are here, in that order.
// Files: attempt.c messages; attempt_wait.c writers; attempt_sync.c write-out; publish.c the manifest and the record.
// Threads: the attempt's own, one. Errors: 0 or -errno.
#pragma once

#include "core/base/actor.h"
#include "core/save/scan.h"
#include "core/step/step.h"

struct attempt {
	struct ckpt_step *step;
	struct ckpt_actor actor; // the process that asked for it
	char folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1], key[CKPT_STEP_KEY_MAX];
	char event[32], profile[32];
	char *metadata;
	int64_t writers_ns, began_ns;
	struct ckpt_scan scan;
	struct ckpt_step *left_out; // a session with what the scan left out, or NULL
	struct ckpt_leftover *leftovers;
	uint64_t *late;
	struct ckpt_record record;
	struct ckpt_manifest *manifest;
	struct ckpt_manifest *scanned; // where the manifest has more: changes by another node; else NULL
	struct ckpt_step *before;      // a reference that goes with the attempt, or NULL
	bool leaves_late;
	bool keeps_metadata, keeps_place; // as in ckpt_commit
	bool as_it_is;                    // no name was asked for: the one that the step has when the gate is closed
	bool unknown;                     // this put, or that of an earlier attempt, may or may not have happened
};

// It is still moving: a waiting client takes a long silence for a disk that hangs.
void ckpt_attempt_progress(struct attempt *a);
// One line of the error log: "commit failed: WHAT: PATH", with what to do about it. path, hint: may be NULL. It waits for
// the disk, so the caller holds no lock.
void ckpt_attempt_complain(struct attempt *a, int error, const char *hint, const char *what, const char *path);
void ckpt_attempt_complain_of_scan(struct attempt *a, int error);
void ckpt_attempt_complain_of_publish(struct attempt *a, int error);
void ckpt_attempt_complain_of_name(struct attempt *a, int error);

// Blocks until no change is under way and nobody has a file open for writing, but for leftovers, whose files stand still.
// Late files are left out where a->leaves_late. Failures but -ESTALE are in the error log.
// -EBUSY: one is still at work after a->writers_ns. -EIO: a process was killed while it wrote. -ESTALE: the step is gone.
int ckpt_attempt_wait_for_writers(struct attempt *a);
// The late files that an attempt has left out are waited for again.
void ckpt_attempt_leave_none_locked(struct ckpt_step *step);

// Blocks until all that the scan found unsynced is on disk: its files, and the directories above them. Failures are in
// the error log.
int ckpt_attempt_write_out(struct attempt *a);

// The manifest and the record around it, of what was scanned; a manifest too large to be embedded is stored.
int ckpt_attempt_prepare(struct attempt *a);
// The commit point. What it answers is final, unless a->unknown.
int ckpt_attempt_publish(struct attempt *a);
// The final answer about an earlier attempt's append: 0 it is there and durable, -ENOENT it is not. Its files are on disk since then, so
// nothing else is asked again. Any other answer leaves the outcome unknown.
int ckpt_attempt_resolve(struct attempt *a);
