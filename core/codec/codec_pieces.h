// A chunk piece by piece: 256 KiB at a time, each in the form that is smallest for what it holds, apart into planes, or as what
// differs from a base. FORMAT.md section 8.
//
// Threads: one at a time for each ckpt_pieces. Nothing blocks. Memory: 1 MiB.
#pragma once

#include "core/codec/codec_zstd.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_pieces;
int ckpt_pieces_new(struct ckpt_zstd *z, struct ckpt_pieces **ret_pieces); // z is borrowed; 0, -ENOMEM
void ckpt_pieces_free(struct ckpt_pieces *p);                              // NULL is fine

// What a chunk's elements are compared with: the same bytes of another step, or, `rounded`, the fp32 values that they are when
// rounded to bf16.
struct ckpt_base {
	const uint8_t *at; // NULL: nothing
	bool rounded;      // at has two bytes for each; the width is 2
};

// width: 2, 4 or 8. -ENOSPC: it would have more than room bytes. -ENOMEM. *ret_based: decoding takes the base.
int ckpt_pieces_encode(struct ckpt_pieces *p, const uint8_t *plain, uint32_t bytes, unsigned width,
		       struct ckpt_base base, uint8_t *out, uint32_t room, uint32_t *ret_bytes, bool *ret_based);

// -EBADMSG: stored is not the encoding of `bytes` bytes with this width and base. -ENOMEM.
int ckpt_pieces_decode(struct ckpt_pieces *p, const uint8_t *stored, uint32_t stored_bytes, unsigned width,
		       struct ckpt_base base, uint8_t *plain, uint32_t bytes);
