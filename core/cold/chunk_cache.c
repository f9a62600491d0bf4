#include "core/cold/chunk_cache.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/pages.h"
#include "core/step/store.h"

#include <assert.h>
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
//  4. A chunk of a run is in the table from the call that expects it on, LOADING and held by the run. So the reader that comes to it
//     waits for the run, and asks for nothing by itself. There is a thread to read the run before it has any chunk.
//  5. A run takes room that is free, or of chunks that nobody expects: what was read ahead and not touched yet makes room for readers
//     alone.

#define BUCKETS 256
#define AHEAD_MAX 8 // chunks that are waited for at once
#define THREADS_MAX 4
#define CODECS_MAX 16                   // decode at once
#define CODEC_BYTES (UINT64_C(6) << 20) // of one, with room for what is stored of a chunk
#define SPARES 4u                       // as many chunks as one reader has under way
#define SPARES_FAR 32u                  // and with runs, as far as there is room for chunks
#define RUN_CHUNKS_MAX 64u
#define RUNS_MAX 16u    // that wait for a thread
#define ROOM_PARTS 8u   // of the room: one is for readers, not for runs
#define WINDOW_PARTS 4u // of the room: three are windows of readers
#define RUN_WAITS_NS INT64_C(1000000000)
#define RUN_WORK_SPARE (UINT64_C(16) << 20) // of work_max, for readers
#define AHEAD_KEPT 6                        // times as long stays what a slow reader will come to
#define WORK_PARTS 4 // of the room for chunks; so many less one are for codecs and what they decode beside

enum state { LOADING, READY, FAILED };

struct ckpt_cached {
	struct ckpt_cached *next;          // in its bucket
	struct ckpt_cached *newer, *older; // READY and not held: in the order of use
	uint8_t id[CKPT_SHA256_LEN], *data;
	uint32_t bytes;
	size_t room;        // of data
	int64_t used_ns;    // when it was let go of
	const void *reader; // that expects it and has not touched it yet; only compared
	uint64_t taken;     // bytes of it, by who asked
	unsigned holders;   // guarded by the cache's lock, as all but data
	enum state state;
	int error;
};

struct ahead {
	struct ckpt_manifest *m; // a reference
	uint32_t chunk;
	struct ckpt_cached *cached; // once it is being read: held
};

// Chunks that one request reads.
struct run {
	struct run *next;
	struct ckpt_chunk_cache *cache;
	struct ckpt_manifest *m; // a reference
	const void *reader;
	bool cancelled; // atomic
	size_t count;
	struct ckpt_cached *cached[RUN_CHUNKS_MAX]; // held
	struct ckpt_chunk chunks[RUN_CHUNKS_MAX];
	void *plain[RUN_CHUNKS_MAX];
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
	size_t held;                // chunks with holders
	int64_t used_ns;            // when one was let go of last
	bool watched;               // by a thread that will look whether something is old
	uint8_t *spare[SPARES_FAR]; // memory of those that went, SPARE_ROOM each
	size_t spare_count;
	struct codec *codecs; // that nobody uses
	size_t codec_count;   // of all
	size_t decoding;      // with one
	uint64_t work_bytes;  // what those need beside it
	struct ahead ahead[AHEAD_MAX];
	size_t ahead_first, ahead_count, thread_count;
	struct run *waiting, *running; // the first is in order
	size_t waiting_count;
	size_t readers; // that expect runs
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
	return cache->store->objects->ops->is_far && cache->spare_count < SPARES_FAR &&
	       cache->bytes + (cache->spare_count + 1) * SPARE_ROOM <= cache->bytes_max;
}

static void give_memory_locked(struct ckpt_chunk_cache *cache, uint8_t *data, size_t room)
{
	if (room == SPARE_ROOM && may_spare_locked(cache))
		cache->spare[cache->spare_count++] = data;
	else
		ckpt_pages_free(data, room);
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
		ckpt_pages_free(cache->spare[--cache->spare_count], SPARE_ROOM);
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

static void drop_locked(struct ckpt_chunk_cache *cache, struct ckpt_cached *c)
{
	unlink_locked(cache, c);
	take_out_locked(cache, c);
	free_locked(cache, c);
}

// Chunks that nobody expects, and were let go of before.
static void drop_unexpected_locked(struct ckpt_chunk_cache *cache, uint64_t bytes_max, int64_t before_ns)
{
	for (struct ckpt_cached *c = cache->oldest, *newer; c && cache->bytes > bytes_max; c = newer) {
		newer = c->newer;
		if (!c->reader && c->used_ns <= before_ns)
			drop_locked(cache, c);
	}
}

// Of those that are expected the newest go first: their readers are farthest from them.
static bool make_room_locked(struct ckpt_chunk_cache *cache, size_t room)
{
	drop_unexpected_locked(cache, cache->bytes_max - MIN(cache->bytes_max, (uint64_t)room), INT64_MAX);
	while (cache->bytes + room > cache->bytes_max && cache->newest)
		drop_locked(cache, cache->newest);
	return cache->bytes + room <= cache->bytes_max || !cache->held;
}

// A new one, which the caller reads; NULL: no memory.
static struct ckpt_cached *add_locked(struct ckpt_chunk_cache *cache, const struct ckpt_chunk *chunk)
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

// spare: what is left for others.
static bool may_decode_locked(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare)
{
	size_t codecs = cache->codec_count + !cache->codecs;

	return codecs <= CODECS_MAX &&
	       (!cache->decoding || codecs * CODEC_BYTES + cache->work_bytes + work + spare <= cache->work_max);
}

// One that is free, or may be made: then it is NULL. Who has one waits for nothing else.
static struct codec *wait_for_codec(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare)
{
	LOCK_SCOPE(&cache->lock);
	struct codec *c;

	while (!may_decode_locked(cache, work, spare)) {
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

static struct codec *take_codec(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare)
{
	struct codec *c = wait_for_codec(cache, work, spare);

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
	struct codec *codec = take_codec(cache, work, 0);
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

	while (!(c = find_locked(cache, chunk)) && !make_room_locked(cache, ckpt_pages_room(chunk->bytes)))
		ckpt_lock_wait(&cache->changed, &cache->lock);
	*ret_mine = !c;
	if (!c) {
		expect_no_more_locked(cache, m, index);
		return add_locked(cache, chunk);
	}
	hold_locked(cache, c);
	c->reader = NULL;
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
	do { // another reader's run may be called off
		c = find_or_add(cache, m, chunk, &k, &mine);
		if (!c)
			return -ENOMEM;
		rc = mine ? load(cache, m, &k, c) : c->error; // it is not LOADING: it changes no more
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
	c = find_locked(cache, &k);
	if (!c || c->state != READY)
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

	let_go_locked(cache, cached, taken);
}

// --- Reading ahead ------------------------------------------------------------------------------------------------------

static int64_t ends_ns(const struct ckpt_chunk_cache *cache, const struct ckpt_cached *c)
{
	return c->used_ns + (c->reader ? AHEAD_KEPT : 1) * cache->kept_ns;
}

// For how long all of the rest may stay; 0: some is left that is old, too, INT64_MAX: nothing is left.
static int64_t drop_old_locked(struct ckpt_chunk_cache *cache)
{
	int64_t now = now_ns(), old_ns = now - cache->kept_ns;
	size_t dropped = 0;

	while (cache->oldest && ends_ns(cache, cache->oldest) <= now && dropped < CKPT_CHUNK_BYTES) {
		dropped += cache->oldest->room;
		drop_locked(cache, cache->oldest);
	}
	if (cache->oldest)
		return MAX(ends_ns(cache, cache->oldest) - now, 0);
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
	if (!find_locked(cache, &k) && make_room_locked(cache, ckpt_pages_room(k.bytes)))
		ret_ahead->cached = add_locked(cache, &k);
}

static struct run *begin_run_locked(struct ckpt_chunk_cache *cache)
{
	struct run *run = cache->waiting;

	if (!run)
		return NULL;
	cache->waiting = run->next;
	cache->waiting_count--;
	run->next = cache->running;
	cache->running = run;
	return run;
}

// A run, or where *ret_run is NULL one chunk. False: the end.
static bool next_ahead(struct ckpt_chunk_cache *cache, struct run **ret_run, struct ahead *ret_ahead)
{
	LOCK_SCOPE(&cache->lock);

	while (!cache->stop && !cache->ahead_count && !cache->waiting) {
		int64_t left_ns = drop_old_locked(cache);

		cache->watched = left_ns < INT64_MAX;
		// Where some is left that is old, this lets others by: to take all pages back takes the kernel its time.
		(void)ckpt_lock_wait_ns(&cache->wanted, &cache->lock, left_ns);
	}
	if (cache->stop)
		return false;
	*ret_run = begin_run_locked(cache);
	if (!*ret_run)
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

static void end_chunk_locked(struct run *run, size_t i, int rc)
{
	struct ckpt_chunk_cache *cache = run->cache;
	struct ckpt_cached *c = run->cached[i];

	c->state = rc ? FAILED : READY;
	c->error = rc;
	if (rc)
		take_out_locked(cache, c);
	if (__atomic_load_n(&run->cancelled, __ATOMIC_RELAXED) && c->reader) {
		c->reader = NULL;
		c->taken = c->bytes; // nobody wants it
	}
	let_go_locked(cache, c, 0);
}

static void end_chunk(void *arg, size_t i, int rc)
{
	struct run *run = arg;
	LOCK_SCOPE(&run->cache->lock);

	end_chunk_locked(run, i, rc);
}

static void free_run(struct run *run)
{
	ckpt_manifest_unref(run->m);
	free(run);
}

static void read_run(struct ckpt_chunk_cache *cache, struct run *run)
{
	const struct ckpt_until until = {.cancelled = &run->cancelled};
	struct ckpt_chunk_run of = {.chunks = run->chunks,
				    .plain = run->plain,
				    .count = run->count,
				    .until = &until,
				    .done = end_chunk,
				    .arg = run};
	uint64_t work = ckpt_chunk_run_work(run->chunks, run->count);
	struct codec *codec = take_codec(cache, work, RUN_WORK_SPARE);
	struct run **at = &cache->running;

	ckpt_manifest_pack(run->m, run->chunks[0].pack - 1, &of.pack);
	if (codec)
		ckpt_chunk_read_run(cache->store->objects, &of, codec->codec);
	for (size_t i = 0; i < run->count && !codec; i++)
		end_chunk(run, i, -ENOMEM);
	if (codec)
		give_codec(cache, codec, work);
	ckpt_lock_take(&cache->lock);
	while (*at != run)
		at = &(*at)->next;
	*at = run->next;
	ckpt_lock_drop(&cache->lock);
	free_run(run);
}

static void *ahead_thread(void *arg)
{
	struct ckpt_chunk_cache *cache = arg;
	struct ahead a;
	struct run *run;

	while (next_ahead(cache, &run, &a)) {
		if (run) {
			read_run(cache, run);
			continue;
		}
		if (a.cached)
			read_ahead(cache, &a);
		ckpt_manifest_unref(a.m);
	}
	return NULL;
}

// One less than there are processors: who reads takes one himself. A thread that waits for a far store needs none.
static void start_thread_locked(struct ckpt_chunk_cache *cache)
{
	size_t here = (size_t)MIN(MAX(get_nprocs() - 1, 1), THREADS_MAX);
	size_t want = cache->store->objects->ops->is_far ? THREADS_MAX : here;

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

// --- Runs ---------------------------------------------------------------------------------------------------------------

bool ckpt_chunk_cache_is_far(const struct ckpt_chunk_cache *cache)
{
	return cache->store->objects->ops->is_far;
}

void ckpt_chunk_cache_follow(struct ckpt_chunk_cache *cache)
{
	LOCK_SCOPE(&cache->lock);

	cache->readers++;
}

uint64_t ckpt_chunk_cache_window(struct ckpt_chunk_cache *cache)
{
	LOCK_SCOPE(&cache->lock);

	return cache->bytes_max / WINDOW_PARTS * (WINDOW_PARTS - 1) / MAX(cache->readers, (size_t)1);
}

static bool has_room_for_run_locked(struct ckpt_chunk_cache *cache, uint64_t room)
{
	uint64_t most = cache->bytes_max - cache->bytes_max / ROOM_PARTS;

	// A chunk that was used just now is being read, piece by piece.
	drop_unexpected_locked(cache, most - MIN(most, room), now_ns() - RUN_WAITS_NS);
	return cache->bytes + room <= most;
}

static uint64_t room_of_run_locked(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t first,
				   uint32_t count)
{
	uint64_t room = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct ckpt_chunk k;

		ckpt_manifest_chunk(m, first + i, &k);
		room += find_locked(cache, &k) ? 0 : ckpt_pages_room(k.bytes);
	}
	return room;
}

// Those that are not there yet.
static void fill_run_locked(struct run *run, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct ckpt_chunk *k = &run->chunks[run->count];
		struct ckpt_cached *c;

		ckpt_manifest_chunk(run->m, first + i, k);
		c = find_locked(run->cache, k) ? NULL : add_locked(run->cache, k);
		if (!c)
			continue;
		c->reader = run->reader;
		run->plain[run->count] = c->data;
		run->cached[run->count++] = c;
	}
}

static void queue_run_locked(struct ckpt_chunk_cache *cache, struct run *run)
{
	struct run **at = &cache->waiting;

	while (*at)
		at = &(*at)->next;
	*at = run;
	cache->waiting_count++;
	pthread_cond_signal(&cache->wanted);
}

// 0: no room, no thread or no memory for it now.
static uint32_t expect_run_locked(struct ckpt_chunk_cache *cache, struct run *run, uint32_t first, uint32_t count)
{
	start_thread_locked(cache);
	while (count && !has_room_for_run_locked(cache, room_of_run_locked(cache, run->m, first, count)))
		count /= 2;
	if (!count || !cache->thread_count || cache->waiting_count == RUNS_MAX)
		return 0;
	fill_run_locked(run, first, count);
	if (run->count)
		queue_run_locked(cache, run);
	return count;
}

uint32_t ckpt_chunk_cache_expect_run(struct ckpt_chunk_cache *cache, const struct ckpt_run_wanted *want)
{
	uint32_t count = ckpt_chunk_run(want->m, want->first, want->end, want->bytes_max);
	struct run *run;

	if (!count) {
		ckpt_chunk_cache_expect(cache, want->m, want->first);
		return 1;
	}
	run = ckpt_calloc(1, sizeof(*run));
	if (!run)
		return 0;
	run->cache = cache;
	run->m = ckpt_manifest_ref(want->m);
	run->reader = want->reader;
	ckpt_lock_take(&cache->lock);
	count = expect_run_locked(cache, run, want->first, MIN(count, RUN_CHUNKS_MAX));
	if (!run->count) // else it is the thread's
		free_run(run);
	ckpt_lock_drop(&cache->lock);
	return count;
}

static void call_off_waiting_locked(struct ckpt_chunk_cache *cache, const void *reader)
{
	for (struct run **at = &cache->waiting, *run; (run = *at);) {
		if (run->reader != reader) {
			at = &run->next;
			continue;
		}
		*at = run->next;
		cache->waiting_count--;
		for (size_t i = 0; i < run->count; i++)
			end_chunk_locked(run, i, -ECANCELED);
		free_run(run);
	}
}

void ckpt_chunk_cache_forget(struct ckpt_chunk_cache *cache, const void *reader)
{
	LOCK_SCOPE(&cache->lock);

	cache->readers--;
	call_off_waiting_locked(cache, reader);
	for (struct run *run = cache->running; run; run = run->next)
		if (run->reader == reader)
			__atomic_store_n(&run->cancelled, true, __ATOMIC_RELAXED);
	for (struct ckpt_cached *c = cache->oldest, *newer; c; c = newer) {
		newer = c->newer;
		if (c->reader != reader)
			continue;
		drop_locked(cache, c);
	}
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
