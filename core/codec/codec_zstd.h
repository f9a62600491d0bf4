// zstd, as the codecs use it: whole frames from memory to memory. The only part that knows the library.
//
// Threads: one at a time for each ckpt_zstd. Nothing blocks. Memory: about 1.5 MiB, whatever is given.
#pragma once

#include <stdbool.h>
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

// --- Frames of others, in parts ------------------------------------------------------------------------------------------

// Frames behind each other, as they come. Windows of 8 MiB at most. Memory: that, once such a frame comes.
struct ckpt_zstd_stream;

int ckpt_zstd_stream_new(struct ckpt_zstd_stream **ret_stream); // 0, -ENOMEM
void ckpt_zstd_stream_free(struct ckpt_zstd_stream *s);         // NULL is fine
void ckpt_zstd_stream_begin(struct ckpt_zstd_stream *s);        // anew
// Decodes from `in` into `out`, until one of them ends, and moves both on. *ret_whole: the last frame has ended. -EBADMSG: no frame, or
// too large a window; -ENOMEM.
int ckpt_zstd_stream_decode(struct ckpt_zstd_stream *s, const uint8_t **in, size_t *in_len, uint8_t **out,
			    size_t *out_len, bool *ret_whole);
