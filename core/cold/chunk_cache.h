// The plain bytes of chunks that are being read, or were in part: what is read of a file whose bytes are in packs goes through
// here. One that was read whole goes, since the kernel keeps what it was given; who wants it again decodes it again. Bounded: who
// wants a chunk for which there is no room waits until others have let go of theirs, and so does who would decode one while others
// need as much memory to decode theirs as there may be: three quarters of that room more. What nobody has asked for in a while
// goes, and once nothing is left the rest of the memory, too: an idle mount has none.
//
// Calling sequence: ckpt_chunk_cache_new(); _get(), copy or reply, _let_go(); _free() when nobody reads any more. Who holds a
// chunk may _try others, and waits for none with _get, so that no two wait for each other.
// Ownership: a cache borrows its store. Threads: any; a few of its own read ahead. Blocks: _get, on the store. Errors: those of
// ckpt_chunk_read(). Bytes that are not the right ones are never handed out, and what failed is read anew by who asks next.
#pragma once

#include "core/base/part.h"
#include "core/record/manifest.h"

#define CKPT_CHUNK_CACHE_BYTES (UINT64_C(128) << 20)        // of a store
#define CKPT_CHUNK_CACHE_KEPT_NS (INT64_C(10) * 1000000000) // the kernel keeps what was read, too, and for longer

struct ckpt_store;
struct ckpt_chunk_cache;
struct ckpt_cached; // one chunk, held
CKPT_PART(struct ckpt_store, struct ckpt_chunk_cache *, ckpt_chunk_cache)

// kept_ns: how long after its last use a chunk stays where there is room. 0, -ENOMEM.
int ckpt_chunk_cache_new(struct ckpt_store *s, uint64_t bytes_max, int64_t kept_ns,
			 struct ckpt_chunk_cache **ret_cache);
void ckpt_chunk_cache_free(struct ckpt_chunk_cache *cache); // NULL is fine

// Chunk number `chunk` of m, which is in a pack.
int ckpt_chunk_cache_get(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk,
			 struct ckpt_cached **ret_cached);
// NULL: it is not there, and _get would block.
struct ckpt_cached *ckpt_chunk_cache_try(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk);
// Once more, by who holds it and hands it on: it is let go of once more, too.
void ckpt_chunk_cache_hold(struct ckpt_chunk_cache *cache, struct ckpt_cached *cached);
const uint8_t *ckpt_cached_data(const struct ckpt_cached *cached);
// taken: bytes of it that the caller has passed on. Once that is all of them, the chunk goes.
void ckpt_chunk_cache_let_go(struct ckpt_chunk_cache *cache, struct ckpt_cached *cached, size_t taken);
// It will be asked for soon: read behind, where there is room.
void ckpt_chunk_cache_expect(struct ckpt_chunk_cache *cache, struct ckpt_manifest *m, uint32_t chunk);

// Readers of a store whose answers take long (is_far of objects.h) expect runs: chunks that follow each other in a pack, of which one
// request reads all. Several runs are under way at once, as far as there is room.
bool ckpt_chunk_cache_is_far(const struct ckpt_chunk_cache *cache);
#define CKPT_CHUNK_RUN_BYTES (UINT64_C(32) << 20)
struct ckpt_run_wanted {
	struct ckpt_manifest *m;
	uint32_t first, end; // chunks of m; behind the last
	uint64_t bytes_max;
	const void *reader; // who expects it; is only compared
};
// Once for each reader, before it expects anything; then _forget, once, when it reads no more: what it expects is called off, and what
// was read for it and not touched goes.
void ckpt_chunk_cache_follow(struct ckpt_chunk_cache *cache);
void ckpt_chunk_cache_forget(struct ckpt_chunk_cache *cache, const void *reader);
// So many bytes a reader may expect ahead of where it is: its share of the room.
uint64_t ckpt_chunk_cache_window(struct ckpt_chunk_cache *cache);
// The number of the chunks that will be there when they are asked for, or were there; 0: there is no room now.
uint32_t ckpt_chunk_cache_expect_run(struct ckpt_chunk_cache *cache, const struct ckpt_run_wanted *want);
