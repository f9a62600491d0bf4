// The inside of the cache of chunks. For chunk_cache.c (memory and the table), chunk_decoding.c (codecs and what decoding takes)
// and chunk_ahead.c (what is read ahead, and runs) alone. chunk_cache.c has the states and the invariants.
// Locks: `_locked` under the cache's lock. Nothing blocks but what says so.
#pragma once

#include "core/base/lock.h"
#include "core/cold/chunk.h"
#include "core/cold/chunk_cache.h"
#include "core/codec/codec.h"

#include <pthread.h>

#define CKPT_CACHE_BUCKETS 256
#define CKPT_CACHE_AHEAD_MAX 8 // chunks that are waited for at once
#define CKPT_CACHE_THREADS_MAX 4
#define CKPT_CACHE_SPARES_FAR 32u // and with runs, as far as there is room for chunks
#define CKPT_CACHE_RUN_CHUNKS_MAX 64u

enum ckpt_cached_state { CKPT_CACHED_LOADING, CKPT_CACHED_READY, CKPT_CACHED_FAILED };

struct ckpt_cached {
	struct ckpt_cached *next;          // in its bucket
	struct ckpt_cached *newer, *older; // CKPT_CACHED_READY and not held: in the order of use
	uint8_t id[CKPT_SHA256_LEN], *data;
	uint32_t bytes;
	size_t room;        // of data
	int64_t used_ns;    // when it was let go of
	const void *reader; // that expects it and has not touched it yet; only compared
	uint64_t taken;     // bytes of it, by who asked
	unsigned holders;   // guarded by the cache's lock, as all but data
	enum ckpt_cached_state state;
	int error;
};

struct ckpt_ahead {
	struct ckpt_manifest *m; // a reference
	uint32_t chunk;
	struct ckpt_cached *cached; // once it is being read: held
};

// Chunks that one request reads.
struct ckpt_ahead_run {
	struct ckpt_ahead_run *next;
	struct ckpt_chunk_cache *cache;
	struct ckpt_manifest *m; // a reference
	const void *reader;
	bool cancelled; // atomic
	size_t count;
	struct ckpt_cached *cached[CKPT_CACHE_RUN_CHUNKS_MAX]; // held
	struct ckpt_chunk chunks[CKPT_CACHE_RUN_CHUNKS_MAX];
	void *plain[CKPT_CACHE_RUN_CHUNKS_MAX];
};

struct ckpt_cache_codec {
	struct ckpt_cache_codec *next;
	struct ckpt_codec *codec;
};

struct ckpt_chunk_cache {
	struct ckpt_store *store;
	uint64_t bytes_max, work_max;
	int64_t kept_ns;
	struct ckpt_lock lock;
	pthread_cond_t changed; // a chunk was read, or let go of
	pthread_cond_t wanted;  // by the threads that read ahead, and let go of what is old meanwhile
	// Guarded by lock.
	struct ckpt_cached *buckets[CKPT_CACHE_BUCKETS];
	struct ckpt_cached *newest, *oldest;
	uint64_t bytes;
	size_t held;                           // chunks with holders
	int64_t used_ns;                       // when one was let go of last
	bool watched;                          // by a thread that will look whether something is old
	uint8_t *spare[CKPT_CACHE_SPARES_FAR]; // memory of those that went, SPARE_ROOM each
	size_t spare_count;
	struct ckpt_cache_codec *codecs; // that nobody uses
	size_t codec_count;              // of all
	size_t decoding;                 // with one
	uint64_t work_bytes;             // what those need beside it
	struct ckpt_ahead ahead[CKPT_CACHE_AHEAD_MAX];
	size_t ahead_first, ahead_count, thread_count;
	struct ckpt_ahead_run *waiting, *running; // the first is in order
	size_t waiting_count;
	size_t readers; // that expect runs
	pthread_t threads[CKPT_CACHE_THREADS_MAX];
	bool stop;
};

// --- Of chunk_cache.c ----------------------------------------------------------------------------------------------------

// One with this id and length; NULL: it is not there.
struct ckpt_cached *ckpt_cached_find_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk);
// A new one, LOADING and held, which the caller reads; NULL: no memory.
struct ckpt_cached *ckpt_cached_add_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk);
void ckpt_cached_let_go_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c, size_t taken);
void ckpt_cached_take_out_locked(struct ckpt_chunk_cache *cache,
				 struct ckpt_cached *c);                             // of the table; it is still held
void ckpt_cached_drop_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c); // READY and not held
// Chunks that nobody expects, and were let go of before that time, until bytes_max are left.
void ckpt_cached_drop_unexpected_locked(struct ckpt_chunk_cache *cache, uint64_t bytes_max, int64_t before_ns);
bool ckpt_cached_make_room_locked(struct ckpt_chunk_cache *cache, size_t room); // false: what is held has it
// Memory and codecs that are kept for the next chunk.
void ckpt_cached_drop_spare_locked(struct ckpt_chunk_cache *cache);
// Reads one that is LOADING; it is READY or FAILED then. Blocks on the store. Errors: of ckpt_chunk_read().
int ckpt_cached_load(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		     struct ckpt_cached *c);
int64_t ckpt_cached_now_ns(void);

// --- Of chunk_decoding.c -------------------------------------------------------------------------------------------------

// Bytes that decoding it takes beside a codec.
uint64_t ckpt_decoding_work(const struct ckpt_manifest *m, const struct ckpt_chunk *chunk);
// A codec, once so much work fits beside what others decode, with `spare` left. Blocks until then; the caller waits for
// nothing else while it has one. NULL: no memory. _end gives it back.
struct ckpt_cache_codec *ckpt_decoding_begin(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare);
void ckpt_decoding_end(struct ckpt_chunk_cache *cache, struct ckpt_cache_codec *c, uint64_t work);
void ckpt_decoding_drop_codec_locked(struct ckpt_chunk_cache *cache); // one that nobody uses

// --- Of chunk_ahead.c ----------------------------------------------------------------------------------------------------

// A thread looks whether something is old.
void ckpt_ahead_watch_locked(struct ckpt_chunk_cache *cache);
// A reader reads it before it was read ahead.
void ckpt_ahead_forget_chunk_locked(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk);
// Ends the threads, and forgets what waits for them. Blocks for what they read now.
void ckpt_ahead_end(struct ckpt_chunk_cache *cache);
