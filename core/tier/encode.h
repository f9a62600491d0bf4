// A chunk on its way into a pack: encoded, decoded again and compared. What is cooled, and what is packed before its step is committed
// (early_pack.h), goes through here, so that both choose the same codec.
//
// Calling sequence: zeroed; ckpt_encode_need() before a chunk is read into plain; ckpt_encode(), and ckpt_encode_pack() or
// ckpt_encode_pack_unsure(); ckpt_encode_done(). Ownership: the caller's. Threads: one. Nothing blocks but what says so.
#pragma once

#include "core/codec/codec.h"
#include "core/record/manifest.h"

struct ckpt_packing;

struct ckpt_encode {
	uint8_t *plain, *stored, *back; // of bytes each
	uint32_t bytes;
};

int ckpt_encode_need(struct ckpt_encode *e, uint32_t bytes); // 0, -ENOMEM: then there are no buffers
void ckpt_encode_done(struct ckpt_encode *e);

// The chunk in plain, of which bytes is read and how set. width: of its elements, 0 where it is not known. base: what it may be told
// beside, with that codec; NULL: nothing. Where no codec is smaller nothing is copied. 0; -EIO it does not come back as it was; -ENOMEM.
int ckpt_encode(struct ckpt_encode *e, struct ckpt_codec *codec, struct ckpt_chunk *chunk, unsigned width,
		enum ckpt_codec_id with, const void *base);
// Puts the chunk into the pack in the making. What stands there is decoded, and compared with plain, or has its id. 0; -EIO it is not
// the same; errors of ckpt_packing_add().
int ckpt_encode_pack(struct ckpt_encode *e, struct ckpt_packing *packing, const struct ckpt_chunk *chunk);
// The same where the id is not that of plain for sure. -EBADMSG: it is not, and nothing was added.
int ckpt_encode_pack_unsure(struct ckpt_encode *e, struct ckpt_packing *packing, const struct ckpt_chunk *chunk);

// Another act has put the chunk (id and bytes are read) into a pack of the store. 1: its pack is held (packing.h), and it was read back
// from there, into back; *ret_found is as of ckpt_dedupe_find(), whose with and base these are. 0: it is to be packed; -ENOMEM.
int ckpt_encode_share(struct ckpt_encode *e, struct ckpt_packing *packing, const struct ckpt_chunk *chunk,
		      enum ckpt_codec_id with, const void *base, struct ckpt_chunk *ret_found,
		      struct ckpt_pack *ret_pack);
