// The bytes of one piece of a catalog, decoded, from any place on.
//
// Bytes without codecs are read where they are asked for. All others are decoded from their beginning: who reads forwards
// decodes once, who goes back begins anew. A piece whose bytes are DECODE_WHOLE_MAX at most is kept decoded.
//
// Codecs: crc32c (the last 4 bytes are the CRC of RFC 3720 of those before, little-endian); zstd (RFC 8878, windows of 8 MiB at
// most); fletcher32 (HDF5's: the last 4 bytes are its sum); shuffle (HDF5's: bytes of elements of 2, 4, 8 or 16 bytes in planes, which
// are read whole, CKPT_DECODE_SHUFFLE_MAX at most); blosc, where its library is there (one frame, whose bytes are as many at most); gzip (RFC 1952), zlib (RFC 1950), deflate (RFC 1951). One after another, in the piece's order. A checksum is compared when
// the last byte that is needed has been read: all behind it is decoded, too, up to DECODE_REST_MAX.
//
// Such a rest is legal: a chunk of zarr may be far larger than its array, and bytes outside of the array are no elements. It may also be a bomb, a
// small file that gives bytes without end. So a longer rest is left alone, and then the checksum at its end is not compared: the elements are
// what the codecs gave, as a reader of a part of a file has it that did not come to the end. It is no error, as the array is whole.
//
// Every byte is from outside: codecs in each other, and a piece that is far larger than its part of the array, would be work without end. The
// caller has a budget for the bytes that all stages give.
//
// Memory: 8 MiB for each zstd in the piece, CKPT_DECODE_SHUFFLE_MAX for each shuffle, three times as much for lzf, five times as much for blosc, and DECODE_WHOLE_MAX. Ownership: the caller's; the source
// lives as long. Threads: one at a time. Blocks as the source does.
// Errors: -EFBIG: the budget is spent; -EBADMSG: the bytes break a rule of their codec, or are too few; -ENOTSUP: a codec that is not known here; -ENOMEM;
// what the source says.
#pragma once

#include "core/array/catalog.h"

#define CKPT_DECODE_WHOLE_MAX (UINT64_C(4) << 20)
#define CKPT_DECODE_REST_MAX (UINT64_C(256) << 20)
#define CKPT_DECODE_SHUFFLE_MAX (UINT64_C(32) << 20)

struct ckpt_decode;

// codecs, offset and bytes are the piece's; needed: so many decoded bytes are read at most. *left is the budget, which lives as long. -ENOTSUP, -ENOMEM; -EBADMSG: without
// codecs there are too few.
int ckpt_decode_new(const struct ckpt_source *file, const struct ckpt_piece *piece, uint64_t needed, uint64_t *left,
		    struct ckpt_decode **ret_decode);
void ckpt_decode_free(struct ckpt_decode *d); // NULL is fine

// offset + len is `needed` at most.
int ckpt_decode_read(struct ckpt_decode *d, uint64_t offset, void *buf, size_t len);
size_t ckpt_decode_bytes(const struct ckpt_decode *d); // what it costs in memory
// Its cost, about, once it has been read.
uint64_t ckpt_decode_bytes_of(const struct ckpt_piece *piece, uint64_t needed);
