// deflate, as zips have it, gzip and zlib. The only part that knows zlib.
//
// Threads: any. Nothing blocks. Memory: some 40 KiB for the time of a call.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The first bytes of what a raw stream of deflate (RFC 1951) holds, as many as the room takes and the stored bytes give, which need not be
// all of it. 0; -EBADMSG: it is damaged before that; -ENOMEM.
int ckpt_inflate_begin(const void *stored, size_t stored_bytes, void *plain, size_t room, size_t *ret_bytes);

// CRC-32 as zips have it: of these bytes, behind others whose sum is `before`; 0: none stand in front.
uint32_t ckpt_crc32(uint32_t before, const void *bytes, size_t len);
// Of bytes and of the len bytes behind them, from the sum of each.
uint32_t ckpt_crc32_join(uint32_t before, uint32_t behind, uint64_t len);

// --- In parts ---------------------------------------------------------------------------------------------------------------

enum ckpt_inflate_form {
	CKPT_INFLATE_RAW,  // RFC 1951
	CKPT_INFLATE_ZLIB, // RFC 1950
	CKPT_INFLATE_GZIP, // RFC 1952, one member
};
struct ckpt_inflate; // one at a time

int ckpt_inflate_new(enum ckpt_inflate_form form, struct ckpt_inflate **ret_inflate); // 0, -ENOMEM
void ckpt_inflate_free(struct ckpt_inflate *i);                                       // NULL is fine
void ckpt_inflate_restart(struct ckpt_inflate *i);
// Decodes from `in` into `out`, until one of them or the stream ends, and moves both on. *ret_ended: the stream has. -EBADMSG,
// -ENOMEM.
int ckpt_inflate_decode(struct ckpt_inflate *i, const uint8_t **in, size_t *in_len, uint8_t **out, size_t *out_len,
			bool *ret_ended);
