// The digest of an array: of the bytes of its elements in C order, little-endian, as a file of NumPy has them behind its header. So it does not
// depend on the format of the files.
//
// Of at most 4 MiB it is their SHA-256. Of more it is the SHA-256 of the SHA-256s of each 4 MiB of them, the last one of what is left: chunks
// of a sealed file (core/cold/chunk.h) are mostly those parts, so that nothing is hashed again.
//
//	ckpt_array_digest_begin(), then ckpt_array_digest_add() or ckpt_array_digest_add_part() for all bytes in their order,
//	ckpt_array_digest_end()
//
// Threads: any, one for one struct. Nothing blocks, nothing has to be freed.
#pragma once

#include "core/base/hash.h"

#define CKPT_ARRAY_DIGEST_PART ((uint64_t)4 << 20)

struct ckpt_array_digest {
	struct ckpt_sha256 parts, part;
	uint64_t in_part;              // bytes
	uint8_t last[CKPT_SHA256_LEN]; // the last part that was complete
	bool one, any;                 // part
};

void ckpt_array_digest_begin(struct ckpt_array_digest *d, uint64_t bytes); // of the array
void ckpt_array_digest_add(struct ckpt_array_digest *d, const void *bytes, size_t len);
// A whole part by its SHA-256; nothing of it was added.
void ckpt_array_digest_add_part(struct ckpt_array_digest *d, const uint8_t sha256[CKPT_SHA256_LEN]);
void ckpt_array_digest_end(struct ckpt_array_digest *d, uint8_t ret_digest[CKPT_SHA256_LEN]);
