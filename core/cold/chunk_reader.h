// A chunk of a manifest, read from its pack, after what it is decoded beside: its bases, each with its own before it.
//
// Memory: the stored bytes, in the codec's room; of one with bases at most 20 MiB beside them for as long as the call takes
// (limits.h). Threads: any, each with a codec of its own. Blocks on the store. Errors: those of ckpt_pack_read().
#pragma once

#include "core/cold/pack.h"

// The plain bytes of a chunk, or base, that m says is in a pack, checked against its id, into plain, which has room for
// chunk->bytes: only the right ones are ever left there with 0 as the answer.
int ckpt_chunk_read(struct ckpt_objects *b, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		    struct ckpt_codec *codec, void *plain);
// What a chunk is decoded beside, malloc'ed; NULL where that is nothing.
int ckpt_chunk_read_bases(struct ckpt_objects *b, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
			  struct ckpt_codec *codec, uint8_t **ret_base);

// How many chunks of m from `first` on, at most up to before `end`, one request can read: they follow each other in one pack,
// and have no bases. Their plain bytes, and those that are stored, are at most bytes_max. At least 1; 0: the first has a base, or is in no pack.
uint32_t ckpt_chunk_run(const struct ckpt_manifest *m, uint32_t first, uint32_t end, uint64_t bytes_max);

// Chunks of one pack without bases, in one request.
struct ckpt_chunk_run {
	struct ckpt_pack pack;
	const struct ckpt_chunk *chunks;
	void *const *plain; // of each, as above
	size_t count;
	const struct ckpt_until *until; // of the request; NULL: none
	// Each is told of once, when its bytes are the right ones, or not to be had.
	void (*done)(void *arg, size_t i, int rc);
	void *arg;
};
// Memory beside the codec's: as much as is stored of those that are encoded (ckpt_chunk_run_work()). Errors: as ckpt_chunk_read(), told to
// done(); -ECANCELED, -ETIMEDOUT by `until`.
void ckpt_chunk_read_run(struct ckpt_objects *b, const struct ckpt_chunk_run *run, struct ckpt_codec *codec);
uint64_t ckpt_chunk_run_work(const struct ckpt_chunk *chunks, size_t count);
