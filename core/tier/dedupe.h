// Which chunks are in packs already, of whatever step: what is cooled names those instead of storing their bytes again.
//
// The index has a row for each chunk of each pack. A cache in the strict sense: a hit is read back and compared before it is
// believed, a miss costs room alone, and what the index lacks is put there from the tables of the packs. All packs that it has are
// durable: that of an act that failed before it was is made so first.
//
// Calling sequence, with store->packs_lock held: ckpt_dedupe_look() before the first ckpt_dedupe_find(); ckpt_dedupe_add() after each
// pack that was put; ckpt_dedupe_forget() before packs are removed. Threads: those that hold the lock. Blocks on the disk. A store
// whose index cannot be used finds nothing, and nothing else goes wrong.
#pragma once

#include "core/codec/codec.h"
#include "core/record/manifest.h"

#include <stdbool.h>
#include <stddef.h>

struct ckpt_store;

// The index knows the packs that there are, and no others. Most often there is nothing to do.
void ckpt_dedupe_look(struct ckpt_store *s);
// A pack that has this chunk (id and bytes are read of it), where it is there, and its plain bytes, which were read from there;
// ret_found->pack is 0. False: none is known that has them. base: what it may be beside, by the codec `with`, or NULL; no pack says what
// a chunk in it is decoded beside, so that those that are can be had with the right one alone.
bool ckpt_dedupe_find(struct ckpt_store *s, const struct ckpt_chunk *chunk, struct ckpt_codec *codec,
		      enum ckpt_codec_id with, const void *base, void *plain, struct ckpt_chunk *ret_found,
		      struct ckpt_pack *ret_pack);
// In which pack it would look for it; -ENOENT: in none.
int ckpt_dedupe_where(struct ckpt_store *s, const struct ckpt_chunk *chunk, struct ckpt_pack *ret_pack);
// A pack that was put: it is durable. chunks NULL: there was no memory for them, and the pack is looked at another time.
void ckpt_dedupe_add(struct ckpt_store *s, const struct ckpt_pack *pack, const struct ckpt_chunk *chunks, size_t count);
// Sorted by id. Where the index cannot be written, as on a full disk, it may go on saying that chunks are in them: then they are
// not found there, and it forgets them another time.
void ckpt_dedupe_forget(struct ckpt_store *s, const struct ckpt_pack *packs, size_t count);
