// Keys and values of the index, as bytes: which table, and the checksum that each value carries. For index*.c only; it
// knows nothing of LMDB.
//
//   's' "store" | "format"                    -> text | u32        what the index belongs to
//   'm' SHA-256                               -> encoded manifest
//   'c' SHA-256 of a chunk                    -> the pack that it is in, and where and how it is there
//   'p' name of a pack                        -> its length and digest, and how many chunks of it are here
//
// value := XXH3(key, payload) payload
// Threads: plain data. Nothing blocks. Errors: -EBADMSG.
#pragma once

#include "core/record/manifest.h"

#define CKPT_INDEX_FORMAT 5u // the value of "format"
#define CKPT_INDEX_TABLE_SELF 's'
#define CKPT_INDEX_TABLE_MANIFEST 'm'
#define CKPT_INDEX_TABLE_CHUNK 'c'
#define CKPT_INDEX_TABLE_PACK 'p'
#define CKPT_INDEX_CHECKSUM_BYTES 8u
#define CKPT_INDEX_SHA_BYTES 32
#define CKPT_INDEX_KEY_MAX (1 + CKPT_INDEX_SHA_BYTES)
#define CKPT_INDEX_CHUNK_BYTES 60u // of the value behind its checksum
#define CKPT_INDEX_PACK_BYTES 44u

struct ckpt_index_key {
	size_t len;
	uint8_t bytes[CKPT_INDEX_KEY_MAX + 1];
};

void ckpt_index_key_self(struct ckpt_index_key *k, const char *name);
// A table whose keys are digests, of manifests and chunks, or names of packs.
void ckpt_index_key_digest(struct ckpt_index_key *k, char table, const uint8_t sha256[CKPT_INDEX_SHA_BYTES]);

// Writes a value of CKPT_INDEX_CHECKSUM_BYTES + len bytes to out.
void ckpt_index_value_write(const struct ckpt_index_key *k, const void *payload, size_t len, void *out);
// The payload of a value; it points into it.
int ckpt_index_value_read(const void *key, size_t key_len, const void *value, size_t len, const void **ret_payload,
			  size_t *ret_len);

// A row of the chunk table: written to out, and read. What was read can be what is stored of a chunk; whether it is, only the
// pack says. ret_chunk->pack is 0. Of the pack it has no digest: the pack table has that.
void ckpt_index_chunk_write(const struct ckpt_chunk *chunk, const struct ckpt_pack *pack,
			    uint8_t out[CKPT_INDEX_CHUNK_BYTES]);
int ckpt_index_value_read_chunk(const void *key, size_t key_len, const void *value, size_t len,
				struct ckpt_chunk *ret_chunk, struct ckpt_pack *ret_pack);
// A row of the pack table. count 0: not all of its chunks are here.
void ckpt_index_pack_write(const struct ckpt_pack *pack, uint32_t count, uint8_t out[CKPT_INDEX_PACK_BYTES]);
int ckpt_index_value_read_pack(const void *key, size_t key_len, const void *value, size_t len,
			       struct ckpt_pack *ret_pack, uint32_t *ret_count);
