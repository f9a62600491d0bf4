// zstd, as the codecs use it: whole frames from memory to memory. The only part that knows the library.
//
// Threads: one at a time for each ckpt_zstd. Nothing blocks. Memory: about 1.5 MiB, whatever is given.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckpt_zstd;

int ckpt_zstd_new(struct ckpt_zstd **ret_zstd); // 0, -ENOMEM
void ckpt_zstd_free(struct ckpt_zstd *z);       // NULL is fine

enum ckpt_zstd_how {
	CKPT_ZSTD_FAST,    // zstd's level 1
	CKPT_ZSTD_ENTROPY, // nothing is looked for that repeats: bytes are coded by how often they occur; twice as fast
	CKPT_ZSTD_REPEATS, // the other half, to see what there is of it: only what repeats becomes smaller
};

// One frame that says how much it holds. -ENOSPC: it would have more than room bytes. -ENOMEM.
int ckpt_zstd_encode(struct ckpt_zstd *z, enum ckpt_zstd_how how, const void *plain, uint32_t bytes, void *out,
		     uint32_t room, uint32_t *ret_bytes);

// stored[0..stored_bytes) must be one frame that says it holds `bytes`, and does: else -EBADMSG. -ENOMEM. What is behind them
// in the room may be written, too: the library is faster with room to spare.
int ckpt_zstd_decode(struct ckpt_zstd *z, const void *stored, uint32_t stored_bytes, void *plain, uint32_t bytes,
		     uint32_t room);

// One frame of another program, which need not say how much it holds: malloc'ed into *ret_plain, for the caller. -EBADMSG: it is no
// whole frame, or more than one; -EFBIG: it holds more than max bytes, or takes a window of more than 8 MiB; -ENOMEM.
int ckpt_zstd_unpack(const void *stored, size_t stored_bytes, size_t max, uint8_t **ret_plain, size_t *ret_bytes);
