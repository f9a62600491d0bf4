// Which step is the newest of a folder: what `latest` means in the mount and to the verbs.
//
// Only committed steps count, and none that is being removed or is deleted. Steps with a number come before those without
// (a "best" or "release" is never the newest while there is a 1000); among equals the later commit wins.
//
// Threads: any. Nothing blocks: one pass over the steps in memory, under store->lock.
#pragma once

#include "core/record/name.h"
#include "core/step/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_store;

struct ckpt_latest {
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	int64_t committed_ns;
	uint64_t newest_sequence; // of all committed steps that were looked at: grows with each commit there
	bool framework_writes_it; // some step, staged ones too, is of a framework that writes its own `latest` beside them
};

// The step that is `back` places behind the newest of a folder; folder_id NULL: of the whole store. -ENOENT; -ENOMEM, with
// back only.
int ckpt_latest(struct ckpt_store *s, const char *folder_id, enum ckpt_latest_by by, size_t back,
		struct ckpt_latest *ret_latest);
// The same as the link in the mount has it: a step that is being changed through the link counts, too, as it was.
int ckpt_latest_link(struct ckpt_store *s, const char *folder_id, enum ckpt_latest_by by,
		     struct ckpt_latest *ret_latest);
// The bytes of the files of the step that was committed last, in whatever folder; 0: there is none.
uint64_t ckpt_latest_bytes(struct ckpt_store *s);
