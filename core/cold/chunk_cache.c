#include "core/cold/chunk_cache.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/chunk_reader.h"
#include "core/step/store.h"

#include <assert.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>

// A chunk is LOADING while one thread reads it, which the others that want it wait for; READY from then on, until nobody holds it and
// all of it was taken, or room is wanted. One that failed is in the table no more, and goes with who waited for it.
//
// What was taken is in the page cache of the kernel, or where who asked wants it: a second copy would only keep its memory from the
// next chunk, which is read from end to end in a few that are warm.
//
// Invariants, under the lock:
//  1. `bytes` is the room of all chunks that have memory, those that failed and are still held included.
//  2. Who waits for room holds nothing, so that what is held is let go of in the end; and where nothing is held, there is room for
//     one chunk, whatever its size. Who reads one holds it and waits for a codec, whose holders wait for nothing.
//  3. What is needed to decode has its own bound, `work_max`, which only one that decodes alone passes.

#define BUCKETS 256
#define AHEAD_MAX 8 // chunks that are waited for at once
#define THREADS_MAX 4
#define CODECS_MAX 16                   // decode at once
#define CODEC_BYTES (UINT64_C(6) << 20) // of one, with room for what is stored of a chunk
#define SPARES 4u                       // as many chunks as one reader has under way
#define WORK_PARTS 4 // of the room for chunks; so many less one are for codecs and what they decode beside

enum state { LOADING, READY, FAILED };

struct ckpt_cached {
	struct ckpt_cached *next;          // in its bucket
	struct ckpt_cached *newer, *older; // READY and not held: in the order of use
	uint8_t id[CKPT_SHA256_LEN], *data;
	uint32_t bytes;
	size_t room;      // of data
	int64_t used_ns;  // when it was let go of
	uint64_t taken;   // bytes of it, by who asked
	unsigned holders; // guarded by the cache's lock, as all but data
	enum state state;
	int error;
};

struct ahead {
	struct ckpt_manifest *m; // a reference
	uint32_t chunk;
	struct ckpt_cached *cached; // once it is being read: held
};

struct codec {
	struct codec *next;
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
	struct ckpt_cached *buckets[BUCKETS];
	struct ckpt_cached *newest, *oldest;
	uint64_t bytes;
	size_t held;            // chunks with holders
	int64_t used_ns;        // when one was let go of last
	bool watched;           // by a thread that will look whether something is old
	uint8_t *spare[SPARES]; // memory of those that went, SPARE_ROOM each
	size_t spare_count;
	struct codec *codecs; // that nobody uses
	size_t codec_count;   // of all
	size_t decoding;      // with one
	uint64_t work_bytes;  // what those need beside it
	struct ahead ahead[AHEAD_MAX];
	size_t ahead_first, ahead_count, thread_count;
	pthread_t threads[THREADS_MAX];
	bool stop;
};

int ckpt_chunk_cache_new(struct ckpt_store *s, uint64_t bytes_max, int64_t kept_ns, struct ckpt_chunk_cache **ret_cache)
{
	struct ckpt_chunk_cache *cache = ckpt_calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	cache->store = s;
	cache->bytes_max = bytes_max;
	cache->work_max = bytes_max / WORK_PARTS * (WORK_PARTS - 1);
	cache->kept_ns = kept_ns;
	ckpt_lock_init(&cache->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&cache->changed, NULL);
	pthread_cond_init(&cache->wanted, NULL);
	*ret_cache = cache;
	return 0;
}

// --- Memory -------------------------------------------------------------------------------------------------------------
// To have new pages takes as long as to copy them several times. So those of a whole chunk are large where the kernel has large
// ones, and go to the next chunk. They are the kernel's again once no chunk wants them, which malloc() might keep.

#define PAGES ((size_t)2 << 20)
#define SPARE_ROOM ((size_t)CKPT_CHUNK_BYTES)

static size_t room_for(uint32_t bytes)
{
	return bytes < PAGES ? bytes : (bytes + PAGES - 1) / PAGES * PAGES;
}

static uint8_t *new_pages(size_t room)
{
	uint8_t *all = mmap(NULL, room + PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (all == MAP_FAILED)
		return NULL;
	before = (PAGES - (uintptr_t)all % PAGES) % PAGES;
	if (before)
		(void)munmap(all, before);
	(void)munmap(all + before + room, PAGES - before);
	(void)madvise(all + before, room, MADV_HUGEPAGE);
	return all + before;
}

static uint8_t *new_memory(size_t room)
{
	return room < PAGES ? malloc(room) : new_pages(room);
}

static void free_memory(uint8_t *data, size_t room)
{
	if (room < PAGES)
		free(data);
	else
		(void)munmap(data, room);
}

static uint8_t *take_memory_locked(struct ckpt_chunk_cache *cache, size_t room)
{
	return room == SPARE_ROOM && cache->spare_count ? cache->spare[--cache->spare_count] : new_memory(room);
}

static void give_memory_locked(struct ckpt_chunk_cache *cache, uint8_t *data, size_t room)
{
	if (room == SPARE_ROOM && cache->spare_count < SPARES)
		cache->spare[cache->spare_count++] = data;
	else
		free_memory(data, room);
}

static void drop_codec_locked(struct ckpt_chunk_cache *cache)
{
	struct codec *codec = cache->codecs;

	cache->codecs = codec->next;
	cache->codec_count--;
	ckpt_codec_free(codec->codec);
	free(codec);
}

// What is for the next chunk.
static void drop_spare_locked(struct ckpt_chunk_cache *cache)
{
	while (cache->spare_count)
		free_memory(cache->spare[--cache->spare_count], SPARE_ROOM);
	while (cache->codecs)
		drop_codec_locked(cache);
}

// --- The table ----------------------------------------------------------------------------------------------------------

static struct ckpt_cached **bucket_of(struct ckpt_chunk_cache *cache, const uint8_t *id)
{
	return &cache->buckets[id[0]];
}

// As long as it should be, too: who lies about that in a manifest gets no bytes behind the end of another's.
static struct ckpt_cached *find_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk)
{
	struct ckpt_cached *c = *bucket_of(cache, chunk->id);

	while (c && (c->bytes != chunk->bytes || memcmp(c->id, chunk->id, CKPT_SHA256_LEN)))
		c = c->next;
	return c;
}

static void take_out_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	struct ckpt_cached **at = bucket_of(cache, c->id);

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

static void unlink_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	*(c->newer ? &c->newer->older : &cache->newest) = c->older;
	*(c->older ? &c->older->newer : &cache->oldest) = c->newer;
	c->newer = c->older = NULL;
}

static void link_newest_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	c->older = cache->newest;
	*(c->older ? &c->older->newer : &cache->oldest) = c;
	cache->newest = c;
}

static void free_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	cache->bytes -= c->room;
	give_memory_locked(cache, c->data, c->room);
	free(c);
}

static void hold_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	if (c->holders++)
		return;
	cache->held++;
	if (c->state == READY)
		unlink_locked(cache, c);
}

// Not ckpt_sys: who changes that need not wait for threads of a cache.
static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void watch_locked(struct ckpt_chunk_cache *cache);

static void let_go_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c, size_t taken)
{
	c->taken += taken;
	if (--c->holders)
		return;
	cache->held--;
	c->used_ns = cache->used_ns = now_ns();
	if (c->state == READY && c->taken < c->bytes) {
		link_newest_locked(cache, c);
	} else {
		if (c->state == READY) // else it is out of the table already
			take_out_locked(cache, c);
		free_locked(cache, c);
	}
	pthread_cond_broadcast(&cache->changed);
	if (!cache->watched)
		watch_locked(cache);
}

static void drop_oldest_locked(struct ckpt_chunk_cache *cache)
{
	struct ckpt_cached *c = cache->oldest;

	unlink_locked(cache, c);
	take_out_locked(cache, c);
	free_locked(cache, c);
}

static bool make_room_locked(struct ckpt_chunk_cache *cache, size_t room)
{
	while (cache->bytes + room > cache->bytes_max && cache->oldest)
		drop_oldest_locked(cache);
	return cache->bytes + room <= cache->bytes_max || !cache->held;
}

// A new one, which the caller reads; NULL: no memory.
static struct ckpt_cached *add_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk)
{
	struct ckpt_cached *c = ckpt_calloc(1, sizeof(*c)), **bucket = bucket_of(cache, chunk->id);

	if (!c)
		return NULL;
	c->room = room_for(chunk->bytes);
	c->data = take_memory_locked(cache, c->room);
	if (!c->data) {
		free(c);
		return NULL;
	}
	memcpy(c->id, chunk->id, sizeof(c->id));
	c->bytes = chunk->bytes;
	c->state = LOADING;
	c->next = *bucket;
	*bucket = c;
	cache->bytes += c->room;
	hold_locked(cache, c);
	return c;
}

// --- Reading ------------------------------------------------------------------------------------------------------------

static struct codec *codec_new(void)
{
	struct codec *c = ckpt_calloc(1, sizeof(*c));

	if (c && ckpt_codec_new(&c->codec)) {
		free(c);
		return NULL;
	}
	return c;
}

// What decoding it takes, beside a codec: what it is decoded beside, which may be decoded beside others itself, and what is stored of
// one that is unusually large.
static uint64_t work_of(const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	uint64_t own = ckpt_codec_base_bytes(chunk->how.codec, chunk->bytes), most = 0;

	for (uint32_t i = 0; i < chunk->base_count; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		most = MAX(most, work_of(m, &base));
	}
	return own + most + (chunk->how.bytes > CKPT_CHUNK_BYTES ? chunk->how.bytes : 0);
}

static bool may_decode_locked(struct ckpt_chunk_cache *cache, uint64_t work)
{
	size_t codecs = cache->codec_count + !cache->codecs;

	return codecs <= CODECS_MAX &&
	       (!cache->decoding || codecs * CODEC_BYTES + cache->work_bytes + work <= cache->work_max);
}

// One that is free, or may be made: then it is NULL. Who has one waits for nothing else.
static struct codec *wait_for_codec(struct ckpt_chunk_cache *cache, uint64_t work)
{
	LOCK_SCOPE(&cache->lock);
	struct codec *c;

	while (!may_decode_locked(cache, work)) {
		if (cache->codecs && cache->codecs->next)
			drop_codec_locked(cache);
		else
			ckpt_lock_wait(&cache->changed, &cache->lock);
	}
	c = cache->codecs;
	if (c)
		cache->codecs = c->next;
	else
		cache->codec_count++;
	cache->decoding++;
	cache->work_bytes += work;
	return c;
}

static void give_codec(struct ckpt_chunk_cache *cache, struct codec *c, uint64_t work)
{
	LOCK_SCOPE(&cache->lock);

	cache->decoding--;
	cache->work_bytes -= work;
	if (c) {
		c->next = cache->codecs;
		cache->codecs = c;
	} else {
		cache->codec_count--;
	}
	pthread_cond_broadcast(&cache->changed);
}

static struct codec *take_codec(struct ckpt_chunk_cache *cache, uint64_t work)
{
	struct codec *c = wait_for_codec(cache, work);

	if (c)
		return c;
	c = codec_new();
	if (!c)
		give_codec(cache, NULL, work);
	return c;
}

static int read_chunk(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		      void *plain)
{
	uint64_t work = work_of(m, chunk);
	struct codec *codec = take_codec(cache, work);
	int rc;

	if (!codec)
		return -ENOMEM;
	rc = ckpt_chunk_read(cache->store->objects, m, chunk, codec->codec, plain);
	give_codec(cache, codec, work);
	return rc;
}

static int load(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		struct ckpt_cached *c)
{
	int rc = read_chunk(cache, m, chunk, c->data);
	LOCK_SCOPE(&cache->lock);

	c->state = rc ? FAILED : READY;
	c->error = rc;
	if (rc)
		take_out_locked(cache, c);
	pthread_cond_broadcast(&cache->changed);
	return rc;
}

static struct ahead *ahead_at(struct ckpt_chunk_cache *cache, size_t i)
{
	return &cache->ahead[(cache->ahead_first + i) % AHEAD_MAX];
}

// Its place in the queue; as many as there are: none.
static size_t find_ahead_locked(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk)
{
	size_t i = 0;

	while (i < cache->ahead_count && (ahead_at(cache, i)->m != m || ahead_at(cache, i)->chunk != chunk))
		i++;
	return i;
}

// It is here before it was read ahead, and may be gone again by then.
static void expect_no_more_locked(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk)
{
	size_t i = find_ahead_locked(cache, m, chunk);

	if (i == cache->ahead_count)
		return;
	ckpt_manifest_unref(ahead_at(cache, i)->m);
	for (cache->ahead_count--; i < cache->ahead_count; i++)
		*ahead_at(cache, i) = *ahead_at(cache, i + 1);
}

// Held, by who reads it (*ret_mine) or who waits for that; NULL: no memory.
static struct ckpt_cached *find_or_add(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t index,
				       const struct ckpt_chunk *chunk, bool *ret_mine)
{
	LOCK_SCOPE(&cache->lock);
	struct ckpt_cached *c;

	while (!(c = find_locked(cache, chunk)) && !make_room_locked(cache, room_for(chunk->bytes)))
		ckpt_lock_wait(&cache->changed, &cache->lock);
	*ret_mine = !c;
	if (!c) {
		expect_no_more_locked(cache, m, index);
		return add_locked(cache, chunk);
	}
	hold_locked(cache, c);
	while (c->state == LOADING)
		ckpt_lock_wait(&cache->changed, &cache->lock);
	return c;
}

int ckpt_chunk_cache_get(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk,
			 struct ckpt_cached **ret_cached)
{
	struct ckpt_cached *c;
	struct ckpt_chunk k;
	bool mine;
	int rc;

	ckpt_manifest_chunk(m, chunk, &k);
	assert(k.pack);
	c = find_or_add(cache, m, chunk, &k, &mine);
	if (!c)
		return -ENOMEM;
	rc = mine ? load(cache, m, &k, c) : c->error; // it is not LOADING: it changes no more
	if (rc)
		ckpt_chunk_cache_let_go(cache, c, 0);
	else
		*ret_cached = c;
	return rc;
}

struct ckpt_cached *ckpt_chunk_cache_try(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk)
{
	LOCK_SCOPE(&cache->lock);
	struct ckpt_cached *c;
	struct ckpt_chunk k;

	ckpt_manifest_chunk(m, chunk, &k);
	c = find_locked(cache, &k);
	if (!c || c->state != READY)
		return NULL;
	hold_locked(cache, c);
	return c;
}

const uint8_t *ckpt_cached_data(const struct ckpt_cached *cached)
{
	return cached->data;
}

void ckpt_chunk_cache_let_go(struct ckpt_chunk_cache *cache, struct ckpt_cached *cached, size_t taken)
{
	LOCK_SCOPE(&cache->lock);

	let_go_locked(cache, cached, taken);
}

// --- Reading ahead ------------------------------------------------------------------------------------------------------

// For how long all of the rest may stay; 0: some is left that is old, too, INT64_MAX: nothing is left.
static int64_t drop_old_locked(struct ckpt_chunk_cache *cache)
{
	int64_t old_ns = now_ns() - cache->kept_ns;
	size_t dropped = 0;

	while (cache->oldest && cache->oldest->used_ns <= old_ns && dropped < CKPT_CHUNK_BYTES) {
		dropped += cache->oldest->room;
		drop_oldest_locked(cache);
	}
	if (cache->oldest)
		return MAX(cache->oldest->used_ns - old_ns, 0);
	if (!cache->held && cache->used_ns <= old_ns)
		drop_spare_locked(cache);
	return cache->spare_count || cache->codecs ? MAX(cache->used_ns - old_ns, cache->kept_ns / 2) : INT64_MAX;
}

// In one go: between, who wants it could read it, take all of it, and have it go, and it would be read once more for nobody.
static void begin_ahead_locked(struct ckpt_chunk_cache *cache, struct ahead *ret_ahead)
{
	struct ckpt_chunk k;

	*ret_ahead = *ahead_at(cache, 0);
	cache->ahead_first = (cache->ahead_first + 1) % AHEAD_MAX;
	cache->ahead_count--;
	ckpt_manifest_chunk(ret_ahead->m, ret_ahead->chunk, &k);
	if (!find_locked(cache, &k) && make_room_locked(cache, room_for(k.bytes)))
		ret_ahead->cached = add_locked(cache, &k);
}

static bool next_ahead(struct ckpt_chunk_cache *cache, struct ahead *ret_ahead)
{
	LOCK_SCOPE(&cache->lock);

	while (!cache->stop && !cache->ahead_count) {
		int64_t left_ns = drop_old_locked(cache);

		cache->watched = left_ns < INT64_MAX;
		// Where some is left that is old, this lets others by: to take all pages back takes the kernel its time.
		(void)ckpt_lock_wait_ns(&cache->wanted, &cache->lock, left_ns);
	}
	if (cache->stop)
		return false;
	begin_ahead_locked(cache, ret_ahead);
	return true;
}

// Nobody waits for it: what fails is read anew by who wants it.
static void read_ahead(struct ckpt_chunk_cache *cache, const struct ahead *a)
{
	struct ckpt_chunk k;

	ckpt_manifest_chunk(a->m, a->chunk, &k);
	(void)load(cache, a->m, &k, a->cached);
	ckpt_chunk_cache_let_go(cache, a->cached, 0);
}

static void *ahead_thread(void *arg)
{
	struct ckpt_chunk_cache *cache = arg;
	struct ahead a;

	while (next_ahead(cache, &a)) {
		if (a.cached)
			read_ahead(cache, &a);
		ckpt_manifest_unref(a.m);
	}
	return NULL;
}

// One less than there are processors: who reads takes one himself.
static void start_thread_locked(struct ckpt_chunk_cache *cache)
{
	size_t want = (size_t)MIN(MAX(get_nprocs() - 1, 1), THREADS_MAX);

	if (cache->thread_count < want &&
	    !pthread_create(&cache->threads[cache->thread_count], NULL, ahead_thread, cache))
		cache->thread_count++;
}

static void watch_locked(struct ckpt_chunk_cache *cache)
{
	if (!cache->thread_count)
		start_thread_locked(cache);
	cache->watched = cache->thread_count;
	pthread_cond_signal(&cache->wanted);
}

void ckpt_chunk_cache_expect(struct ckpt_chunk_cache *cache, struct ckpt_manifest *m, uint32_t chunk)
{
	LOCK_SCOPE(&cache->lock);
	struct ckpt_chunk k;

	ckpt_manifest_chunk(m, chunk, &k);
	if (cache->ahead_count == AHEAD_MAX || find_locked(cache, &k) ||
	    find_ahead_locked(cache, m, chunk) < cache->ahead_count)
		return;
	*ahead_at(cache, cache->ahead_count++) = (struct ahead){.m = ckpt_manifest_ref(m), .chunk = chunk};
	start_thread_locked(cache);
	pthread_cond_signal(&cache->wanted);
}

void ckpt_chunk_cache_free(struct ckpt_chunk_cache *cache)
{
	if (!cache)
		return;
	ckpt_lock_take(&cache->lock);
	cache->stop = true;
	pthread_cond_broadcast(&cache->wanted);
	ckpt_lock_drop(&cache->lock);
	for (size_t i = 0; i < cache->thread_count; i++)
		pthread_join(cache->threads[i], NULL);
	assert(!cache->held);
	for (; cache->ahead_count; cache->ahead_count--)
		ckpt_manifest_unref(ahead_at(cache, cache->ahead_count - 1)->m);
	cache->bytes_max = 0;
	make_room_locked(cache, 0);
	drop_spare_locked(cache);
	pthread_cond_destroy(&cache->changed);
	pthread_cond_destroy(&cache->wanted);
	ckpt_lock_done(&cache->lock);
	free(cache);
}

struct ckpt_part ckpt_chunk_cache_part = {.bytes = sizeof(struct ckpt_chunk_cache *)};
