// What is stored of files whose bytes are in packs: each chunk counted once, however many files, or steps, have it.
//
// Calling sequence: zeroed, ckpt_stored_add() or _add_file() as often as wanted, ckpt_stored_done().
// Ownership: the caller's; manifests are borrowed for the call. Threads: one. Nothing blocks. Errors: -ENOMEM.
#pragma once

#include "core/base/keys.h"
#include "core/record/manifest.h"

#define CKPT_STORED_CODECS (CKPT_CODEC_ROUND + 1u)

struct ckpt_stored {
	uint64_t in_bytes;    // of the chunks before they were encoded
	uint64_t out_bytes;   // and as they are stored
	uint64_t again_bytes; // of chunks that were counted before
	struct {
		uint64_t in_bytes, out_bytes;
	} codecs[CKPT_STORED_CODECS]; // by enum ckpt_codec_id
	struct ckpt_keys seen;        // chunks
};

// All files that have chunks in packs, those that have raw files as well too, and what their chunks are decoded beside, which no
// file may have any more: what a version names is kept.
int ckpt_stored_add(struct ckpt_stored *s, const struct ckpt_manifest *m);
// Of one file, its own chunks alone.
int ckpt_stored_add_file(struct ckpt_stored *s, const struct ckpt_manifest *m, uint32_t index);
// And what they are decoded beside: after the chunks of all files, so that each is counted as one of them where it is.
int ckpt_stored_add_bases(struct ckpt_stored *s, const struct ckpt_manifest *m, uint32_t index);
void ckpt_stored_done(struct ckpt_stored *s);
