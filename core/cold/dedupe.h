// Which chunks are in packs already, of whatever step: what is cooled names those instead of storing their bytes again.
//
// The index has a row for each chunk of each pack. A cache in the strict sense: a hit is read back and compared before it is
// believed, a miss costs room alone, and what the index lacks is put there from the tables of the packs. All packs that it has are
// durable: that of an act that failed before it was is made so first.
//
// Calling sequence: ckpt_dedupe_look() before the first ckpt_dedupe_find(). For each chunk _find(), then the pack is pinned
// (pack_pins.h), then _read(): a pack that was found may be removed until it is pinned. ckpt_dedupe_add() after each
// pack that was put; ckpt_dedupe_forget() before packs are removed. Threads: any. Blocks on the disk. A store
// whose index cannot be used finds nothing, and nothing else goes wrong.
#pragma once

#include "core/base/lock.h"
#include "core/base/part.h"
#include "core/codec/codec.h"
#include "core/record/manifest.h"

#include <stdbool.h>
#include <stddef.h>

struct ckpt_store;

struct ckpt_looked {
	struct ckpt_lock lock;  // over a look at all packs
	uint64_t packs_indexed; // up to that reset of the index, plus 1, it knows all packs; 0: it does not; atomic
};
CKPT_PART(struct ckpt_store, struct ckpt_looked, ckpt_looked)

// The index knows the packs that there are, and no others. Most often there is nothing to do, and while another thread does it
// nothing is done.
void ckpt_dedupe_look(struct ckpt_store *s);
// The index as if it had been lost: emptied, then given the chunks of all packs, beside all that goes on. Waits for a look of
// another thread. -ENOENT there is none (the disk was full); -EROFS; -EINTR go_on (NULL: always) said no meanwhile; errors of index.h.
int ckpt_dedupe_rebuild(struct ckpt_store *s, bool (*go_on)(void *arg), void *arg);
// A pack that may have this chunk (id and bytes are read of it), and where it would be in it; ret_found->pack is 0. False: none is
// known that has it. with: the codec by which it may be beside a base, if there is one; no pack says what a chunk in it is decoded
// beside, so that such a chunk can be read with the right base alone.
bool ckpt_dedupe_find(struct ckpt_store *s, const struct ckpt_chunk *chunk, enum ckpt_codec_id with, bool has_base,
		      struct ckpt_chunk *ret_found, struct ckpt_pack *ret_pack);
// Reads the chunk that was found into plain, with the base where there is one. False: it is not there.
bool ckpt_dedupe_read(struct ckpt_store *s, const struct ckpt_chunk *found, const struct ckpt_pack *pack,
		      struct ckpt_codec *codec, const void *base, void *plain);
// A pack that was put: it is durable. chunks NULL: there was no memory for them, and the pack is looked at another time.
void ckpt_dedupe_add(struct ckpt_store *s, const struct ckpt_pack *pack, const struct ckpt_chunk *chunks, size_t count);
// Sorted by id. Where the index cannot be written, as on a full disk, it may go on saying that chunks are in them: then they are
// not found there, and it forgets them another time.
void ckpt_dedupe_forget(struct ckpt_store *s, const struct ckpt_pack *packs, size_t count);
