// A pickle without some items of its dictionaries and lists. All other values are made by the opcodes that made them before, so that nothing
// of them is lost, whatever they are.
//
// An opcode that makes a value which others still refer to moves to the first of these. Frames are left out, and numbers of memos are explicit.
//
// Ownership: the caller's; ret_out is freed with ckpt_buffer_done(). Threads: any. Blocks as the source does.
// Errors: -EINVAL: this cannot be done to this pickle; -ENOMEM; those of the source.
#pragma once

#include "core/array/buffer.h"
#include "core/array/pickle.h"

// p: of ckpt_pickle_read_places() from the same bytes. cut: a bit for each item, by its number. That of a key takes its value with it.
// A container that loses an item, and is recalled elsewhere in the pickle, is refused.
int ckpt_pickle_edit(const struct ckpt_source *s, uint64_t begin, uint64_t end, const struct ckpt_pickle *p,
		     const uint8_t *cut, struct ckpt_buffer *ret_out);

// *ret_same: `now` has the values of `was` but for the cut items, and values that are one there are one here. Fractions and the bytes of long
// strings are not compared: graphs do not have them. 0, -ENOMEM.
int ckpt_pickle_compare(const struct ckpt_pickle *was, const uint8_t *cut, const struct ckpt_pickle *now,
			bool *ret_same);
// The source of what an edit has made; out lives as long.
struct ckpt_source ckpt_pickle_edited(struct ckpt_buffer *out);
