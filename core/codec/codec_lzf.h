// LZF (liblzf 3), whole blocks from memory to memory: the filter of that name that h5py has. The bytes are from outside.
//
//	block   := (literal | match)*
//	literal := n:u8 (< 32) n+1 bytes
//	match   := [length:3 distance:5] [length:u8, where the three bits are all 1] distance:u8
//
// A match is length + 2 bytes of what was decoded, distance + 1 bytes before its end; the five bits are the upper ones of the distance.
//
// Threads: any. Nothing blocks, and nothing is allocated.
#pragma once

#include <stddef.h>

// The bytes that a block holds, of which no more than `most` are counted. -EBADMSG: it ends early, or holds more.
int ckpt_lzf_bytes(const void *block, size_t block_bytes, size_t most, size_t *ret_bytes);
// All of them: bytes is as that says. -EBADMSG: it is damaged.
int ckpt_lzf_decode(const void *block, size_t block_bytes, void *plain, size_t bytes);
