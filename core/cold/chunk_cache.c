#include "core/cold/chunk_cache.h"

#include "core/base/util.h"
#include "core/cold/chunk_cache_parts.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/pages.h"
#include "core/step/store.h"

#include <assert.h>
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
//  4. A chunk of a run is in the table from the call that expects it on, LOADING and held by the run. So the reader that comes to it
//     waits for the run, and asks for nothing by itself. There is a thread to read the run before it has any chunk.
//  5. A run takes room that is free, or of chunks that nobody expects: what was read ahead and not touched yet makes room for readers
//     alone.

#define SPARES 4u    // as many chunks as one reader has under way
#define WORK_PARTS 4 // of the room for chunks; so many less one are for codecs and what they decode beside

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
// Pages go to the next chunk. They are the kernel's again once no chunk wants them.

#define SPARE_ROOM ((size_t)CKPT_CHUNK_BYTES)

static uint8_t *take_memory_locked(struct ckpt_chunk_cache *cache, size_t room)
{
	return room == SPARE_ROOM && cache->spare_count ? cache->spare[--cache->spare_count] : ckpt_pages_new(room);
}

static bool may_spare_locked(const struct ckpt_chunk_cache *cache)
{
	if (cache->spare_count < SPARES)
		return true;
	return cache->store->objects->ops->is_far && cache->spare_count < CKPT_CACHE_SPARES_FAR &&
	       cache->bytes + (cache->spare_count + 1) * SPARE_ROOM <= cache->bytes_max;
}

static void give_memory_locked(struct ckpt_chunk_cache *cache, uint8_t *data, size_t room)
{
	if (room == SPARE_ROOM && may_spare_locked(cache))
		cache->spare[cache->spare_count++] = data;
	else
		ckpt_pages_free(data, room);
}

// What is for the next chunk.
void ckpt_cached_drop_spare_locked(struct ckpt_chunk_cache *cache)
{
	while (cache->spare_count)
		ckpt_pages_free(cache->spare[--cache->spare_count], SPARE_ROOM);
	while (cache->codecs)
		ckpt_decoding_drop_codec_locked(cache);
}

// --- The table ----------------------------------------------------------------------------------------------------------

static struct ckpt_cached **bucket_of(struct ckpt_chunk_cache *cache, const uint8_t *id)
{
	return &cache->buckets[id[0]];
}

// The length has to be right, too: a manifest that lies about it gets no bytes behind the end of another's.
struct ckpt_cached *ckpt_cached_find_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk)
{
	struct ckpt_cached *c = *bucket_of(cache, chunk->id);

	while (c && (c->bytes != chunk->bytes || memcmp(c->id, chunk->id, CKPT_SHA256_LEN)))
		c = c->next;
	return c;
}

void ckpt_cached_take_out_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
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
	if (c->state == CKPT_CACHED_READY)
		unlink_locked(cache, c);
}

// Not ckpt_sys: who changes that need not wait for threads of a cache.
int64_t ckpt_cached_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void ckpt_cached_let_go_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c, size_t taken)
{
	c->taken += taken;
	if (--c->holders)
		return;
	cache->held--;
	c->used_ns = cache->used_ns = ckpt_cached_now_ns();
	if (c->state == CKPT_CACHED_READY && c->taken < c->bytes) {
		link_newest_locked(cache, c);
	} else {
		if (c->state == CKPT_CACHED_READY) // else it is out of the table already
			ckpt_cached_take_out_locked(cache, c);
		free_locked(cache, c);
	}
	pthread_cond_broadcast(&cache->changed);
	if (!cache->watched)
		ckpt_ahead_watch_locked(cache);
}

void ckpt_cached_drop_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	unlink_locked(cache, c);
	ckpt_cached_take_out_locked(cache, c);
	free_locked(cache, c);
}

// Chunks that nobody expects, and were let go of before.
void ckpt_cached_drop_unexpected_locked(struct ckpt_chunk_cache *cache, uint64_t bytes_max, int64_t before_ns)
{
	for (struct ckpt_cached *c = cache->oldest, *newer; c && cache->bytes > bytes_max; c = newer) {
		newer = c->newer;
		if (!c->reader && c->used_ns <= before_ns)
			ckpt_cached_drop_locked(cache, c);
	}
}

// Of those that are expected the newest go first: their readers are farthest from them.
bool ckpt_cached_make_room_locked(struct ckpt_chunk_cache *cache, size_t room)
{
	ckpt_cached_drop_unexpected_locked(cache, cache->bytes_max - MIN(cache->bytes_max, (uint64_t)room), INT64_MAX);
	while (cache->bytes + room > cache->bytes_max && cache->newest)
		ckpt_cached_drop_locked(cache, cache->newest);
	return cache->bytes + room <= cache->bytes_max || !cache->held;
}

// A new one, which the caller reads; NULL: no memory.
struct ckpt_cached *ckpt_cached_add_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk)
{
	struct ckpt_cached *c = ckpt_calloc(1, sizeof(*c)), **bucket = bucket_of(cache, chunk->id);

	if (!c)
		return NULL;
	c->room = ckpt_pages_room(chunk->bytes);
	c->data = take_memory_locked(cache, c->room);
	if (!c->data) {
		free(c);
		return NULL;
	}
	memcpy(c->id, chunk->id, sizeof(c->id));
	c->bytes = chunk->bytes;
	c->state = CKPT_CACHED_LOADING;
	c->next = *bucket;
	*bucket = c;
	cache->bytes += c->room;
	hold_locked(cache, c);
	return c;
}

// --- Reading ------------------------------------------------------------------------------------------------------------

static int read_chunk(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		      void *plain)
{
	uint64_t work = ckpt_decoding_work(m, chunk);
	struct ckpt_cache_codec *codec = ckpt_decoding_begin(cache, work, 0);
	int rc;

	if (!codec)
		return -ENOMEM;
	rc = ckpt_chunk_read(cache->store->objects, m, chunk, codec->codec, plain);
	ckpt_decoding_end(cache, codec, work);
	return rc;
}

int ckpt_cached_load(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		     struct ckpt_cached *c)
{
	int rc = read_chunk(cache, m, chunk, c->data);
	LOCK_SCOPE(&cache->lock);

	c->state = rc ? CKPT_CACHED_FAILED : CKPT_CACHED_READY;
	c->error = rc;
	if (rc)
		ckpt_cached_take_out_locked(cache, c);
	pthread_cond_broadcast(&cache->changed);
	return rc;
}

// Held, by who reads it (*ret_mine) or who waits for that; NULL: no memory.
static struct ckpt_cached *find_or_add(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t index,
				       const struct ckpt_chunk *chunk, bool *ret_mine)
{
	LOCK_SCOPE(&cache->lock);
	struct ckpt_cached *c;

	while (!(c = ckpt_cached_find_locked(cache, chunk)) &&
	       !ckpt_cached_make_room_locked(cache, ckpt_pages_room(chunk->bytes)))
		ckpt_lock_wait(&cache->changed, &cache->lock);
	*ret_mine = !c;
	if (!c) {
		ckpt_ahead_forget_chunk_locked(cache, m, index);
		return ckpt_cached_add_locked(cache, chunk);
	}
	hold_locked(cache, c);
	c->reader = NULL;
	while (c->state == CKPT_CACHED_LOADING)
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
	do { // another reader's run may be called off
		c = find_or_add(cache, m, chunk, &k, &mine);
		if (!c)
			return -ENOMEM;
		rc = mine ? ckpt_cached_load(cache, m, &k, c)
			  : c->error; // it is not CKPT_CACHED_LOADING: it changes no more
		if (rc)
			ckpt_chunk_cache_let_go(cache, c, 0);
	} while (rc == -ECANCELED && !mine);
	if (!rc)
		*ret_cached = c;
	return rc;
}

struct ckpt_cached *ckpt_chunk_cache_try(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk)
{
	LOCK_SCOPE(&cache->lock);
	struct ckpt_cached *c;
	struct ckpt_chunk k;

	ckpt_manifest_chunk(m, chunk, &k);
	c = ckpt_cached_find_locked(cache, &k);
	if (!c || c->state != CKPT_CACHED_READY)
		return NULL;
	hold_locked(cache, c);
	c->reader = NULL;
	return c;
}

void ckpt_chunk_cache_hold(struct ckpt_chunk_cache *cache, struct ckpt_cached *cached)
{
	LOCK_SCOPE(&cache->lock);

	hold_locked(cache, cached);
}

const uint8_t *ckpt_cached_data(const struct ckpt_cached *cached)
{
	return cached->data;
}

void ckpt_chunk_cache_let_go(struct ckpt_chunk_cache *cache, struct ckpt_cached *cached, size_t taken)
{
	LOCK_SCOPE(&cache->lock);

	ckpt_cached_let_go_locked(cache, cached, taken);
}

void ckpt_chunk_cache_free(struct ckpt_chunk_cache *cache)
{
	if (!cache)
		return;
	ckpt_ahead_end(cache);
	assert(!cache->held);
	cache->bytes_max = 0;
	ckpt_cached_make_room_locked(cache, 0);
	ckpt_cached_drop_spare_locked(cache);
	pthread_cond_destroy(&cache->changed);
	pthread_cond_destroy(&cache->wanted);
	ckpt_lock_done(&cache->lock);
	free(cache);
}

struct ckpt_part ckpt_chunk_cache_part = {.bytes = sizeof(struct ckpt_chunk_cache *)};
