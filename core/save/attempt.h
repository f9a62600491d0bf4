// For commit.c and publish.c: one attempt at a commit, and its record. Threads: the attempt's own, one.
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

// The manifest and the record around it, of what was scanned; a manifest too large to be embedded is stored.
int ckpt_attempt_prepare(struct attempt *a);
// The commit point. What it answers is final, unless a->unknown.
int ckpt_attempt_publish(struct attempt *a);
// The final answer about an earlier attempt's append: 0 it is there and durable, -ENOENT it is not. Its files are on disk since then, so
// nothing else is asked again. Any other answer leaves the outcome unknown.
int ckpt_attempt_resolve(struct attempt *a);
