// Codecs: what is stored of a chunk instead of its bytes. Lossless, chosen for each chunk by what is smallest.
// FORMAT.md section 8 has every byte.
//
//   none     the bytes themselves; never larger than the chunk, so that every chunk can be stored
//   zstd     one frame: text, pickles, whatever repeats
//   planes   arrays of numbers: the bytes of equal weight of all elements stand together, floats with their exponent in a byte
//            of its own; exponents take less room then, and the noise of mantissas is stored as it is
//   delta    arrays as what differs from a base, the same range of another step, where that is less
//   round    bf16 weights as what differs from their fp32 master, rounded: nothing, as a rule
//
// Calling sequence: one ckpt_codec for each thread, then ckpt_codec_encode() and ckpt_codec_decode() as often as there are
// chunks. Ownership: the caller's buffers, borrowed for the call. Memory: about 4 MiB, and to encode as much as the largest
// chunk so far for which two codecs were tried in full. Threads: one at a time for each ckpt_codec. Nothing blocks.
// Errors: -EBADMSG damaged or hostile, -ENOMEM.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum ckpt_codec_id {
	CKPT_CODEC_NONE = 0,
	CKPT_CODEC_ZSTD = 1,
	CKPT_CODEC_PLANES = 2,
	CKPT_CODEC_DELTA = 3,
	CKPT_CODEC_ROUND = 4,
};

#define CKPT_CODEC_WIDTH_MAX 8u

struct ckpt_codec;
int ckpt_codec_new(struct ckpt_codec **ret_codec);
void ckpt_codec_free(struct ckpt_codec *c); // NULL is fine

// What is stored of a chunk: all that decoding needs beside the bytes.
struct ckpt_encoded {
	enum ckpt_codec_id codec;
	unsigned width; // of an element, for all but none and zstd: 2, 4 or 8; else 0
	uint32_t bytes; // as stored
};

// The smallest form of a chunk, 1 to CKPT_CHUNK_BYTES_MAX bytes, into out, which has room for `bytes` bytes and does not
// overlap. width: of the elements, a power of two up to 8; 0: not known, it is found by sampling. A wrong width costs room,
// never a byte. 0, -ENOMEM: what out holds means nothing, and ret_how is not written.
int ckpt_codec_encode(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width, void *out,
		      struct ckpt_encoded *ret_how);

// The same beside a base, which is taken where it saves some percent: what then comes out is `with`, else a codec that takes
// none. with: CKPT_CODEC_DELTA, and base has `bytes` bytes; or CKPT_CODEC_ROUND, base has twice as many, and width is 2 or 0.
int ckpt_codec_encode_beside(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width,
			     enum ckpt_codec_id with, const void *base, void *out, struct ckpt_encoded *ret_how);
// The same, but what is stored as it is was not copied: with CKPT_CODEC_NONE out means nothing.
int ckpt_codec_try(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width, enum ckpt_codec_id with,
		   const void *base, void *out, struct ckpt_encoded *ret_how);

// Bytes from a store are hostile, and so is how: -EBADMSG when they are not the encoding of exactly `bytes` plain bytes,
// which may be found after some were written. Nothing outside of plain[0..bytes) is. -ENOMEM. What comes out of a changed base
// is anything: who gives one has made sure of it, and of what comes out.
int ckpt_codec_decode(struct ckpt_codec *c, const struct ckpt_encoded *how, const void *stored, void *plain,
		      uint32_t bytes);
int ckpt_codec_decode_beside(struct ckpt_codec *c, const struct ckpt_encoded *how, const void *stored, const void *base,
			     void *plain, uint32_t bytes);

// Room for so many bytes, as those that are to be decoded, until the next call of it, or of an encoding. 4 MiB, or what was asked for last
// where that is more; NULL: no memory.
void *ckpt_codec_room(struct ckpt_codec *c, uint32_t bytes);

// The bytes of the base that decoding so many takes; 0: it takes none.
uint32_t ckpt_codec_base_bytes(enum ckpt_codec_id codec, uint32_t bytes);

// Whether it can be what is stored of a chunk of so many bytes. One with a base has no more than CKPT_BASED_BYTES_MAX.
bool ckpt_encoded_ok(const struct ckpt_encoded *how, uint32_t bytes);

// "none", "zstd", ...; NULL for a number that is no codec.
const char *ckpt_codec_name(enum ckpt_codec_id codec);
