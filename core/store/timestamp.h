// When a step was saved by its framework's own word: `timestamp` in the metadata.json at its top, as eFormer writes it, a date in ISO
// 8601. One without a zone is of this machine's.
//
// Threads: any. Reads the manifest and that file of each step; blocks on the disk.
#pragma once

#include "core/base/part.h"

#include <stdint.h>

struct ckpt_step;
struct ckpt_store;

#define CKPT_TIMESTAMP_NONE INT64_MIN         // it says nothing: there is no such file, or nothing of the name in it
#define CKPT_TIMESTAMP_OLDEST (INT64_MIN + 1) // it cannot be read: before all others

// Guarded by step->lock.
struct ckpt_saved {
	struct {
		uint32_t version; // 0: nobody has looked yet
		int64_t ns;
	} saved; // when that version was saved, by its own word
};
CKPT_PART(struct ckpt_step, struct ckpt_saved, ckpt_saved)

// Looks it up in the current version of all committed steps of a folder (NULL: of the store), where nobody has yet: ckpt_saved_of(step).
// 0, -ENOMEM.
int ckpt_timestamp_look(struct ckpt_store *s, const char *folder_id);
// What was found of the current version, under step->lock.
int64_t ckpt_timestamp_locked(const struct ckpt_step *step);
