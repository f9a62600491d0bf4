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
