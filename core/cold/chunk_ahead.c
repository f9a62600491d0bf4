// Chunks that are read before they are asked for, one by one or in runs, by threads of the cache: invariants 4 and 5 of
// chunk_cache.c. The same threads let go of what is old.
#include "core/cold/chunk_cache_parts.h"

#include "core/base/util.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/pages.h"
#include "core/step/store.h"

#include <sys/sysinfo.h>

#define RUNS_MAX 16u    // that wait for a thread
#define ROOM_PARTS 8u   // of the room: one is for readers, not for runs
#define WINDOW_PARTS 4u // of the room: three are windows of readers
#define RUN_WAITS_NS INT64_C(1000000000)
#define RUN_WORK_SPARE (UINT64_C(16) << 20) // of work_max, for readers
#define AHEAD_KEPT 6                        // times as long stays what a slow reader will come to

static struct ckpt_ahead *ahead_at(struct ckpt_chunk_cache *cache, size_t i)
{
	return &cache->ahead[(cache->ahead_first + i) % CKPT_CACHE_AHEAD_MAX];
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
void ckpt_ahead_forget_chunk_locked(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t chunk)
{
	size_t i = find_ahead_locked(cache, m, chunk);

	if (i == cache->ahead_count)
		return;
	ckpt_manifest_unref(ahead_at(cache, i)->m);
	for (cache->ahead_count--; i < cache->ahead_count; i++)
		*ahead_at(cache, i) = *ahead_at(cache, i + 1);
}

static int64_t ends_ns(const struct ckpt_chunk_cache *cache, const struct ckpt_cached *c)
{
	return c->used_ns + (c->reader ? AHEAD_KEPT : 1) * cache->kept_ns;
}

// For how long all of the rest may stay; 0: some is left that is old, too, INT64_MAX: nothing is left.
static int64_t drop_old_locked(struct ckpt_chunk_cache *cache)
{
	int64_t now = ckpt_cached_now_ns(), old_ns = now - cache->kept_ns;
	size_t dropped = 0;

	while (cache->oldest && ends_ns(cache, cache->oldest) <= now && dropped < CKPT_CHUNK_BYTES) {
		dropped += cache->oldest->room;
		ckpt_cached_drop_locked(cache, cache->oldest);
	}
	if (cache->oldest)
		return MAX(ends_ns(cache, cache->oldest) - now, 0);
	if (!cache->held && cache->used_ns <= old_ns)
		ckpt_cached_drop_spare_locked(cache);
	return cache->spare_count || cache->codecs ? MAX(cache->used_ns - old_ns, cache->kept_ns / 2) : INT64_MAX;
}

// In one go: between, who wants it could read it, take all of it, and have it go, and it would be read once more for nobody.
static void begin_ahead_locked(struct ckpt_chunk_cache *cache, struct ckpt_ahead *ret_ahead)
{
	struct ckpt_chunk k;

	*ret_ahead = *ahead_at(cache, 0);
	cache->ahead_first = (cache->ahead_first + 1) % CKPT_CACHE_AHEAD_MAX;
	cache->ahead_count--;
	ckpt_manifest_chunk(ret_ahead->m, ret_ahead->chunk, &k);
	if (!ckpt_cached_find_locked(cache, &k) && ckpt_cached_make_room_locked(cache, ckpt_pages_room(k.bytes)))
		ret_ahead->cached = ckpt_cached_add_locked(cache, &k);
}

static struct ckpt_ahead_run *begin_run_locked(struct ckpt_chunk_cache *cache)
{
	struct ckpt_ahead_run *run = cache->waiting;

	if (!run)
		return NULL;
	cache->waiting = run->next;
	cache->waiting_count--;
	run->next = cache->running;
	cache->running = run;
	return run;
}

// A run, or where *ret_run is NULL one chunk. False: the end.
static bool next_ahead(struct ckpt_chunk_cache *cache, struct ckpt_ahead_run **ret_run, struct ckpt_ahead *ret_ahead)
{
	LOCK_SCOPE(&cache->lock);

	while (!cache->stop && !cache->ahead_count && !cache->waiting) {
		int64_t left_ns = drop_old_locked(cache);

		cache->watched = left_ns < INT64_MAX;
		// Others get their turn where some is left that is old: the kernel takes its time to take all pages back.
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
static void read_ahead(struct ckpt_chunk_cache *cache, const struct ckpt_ahead *a)
{
	struct ckpt_chunk k;

	ckpt_manifest_chunk(a->m, a->chunk, &k);
	(void)ckpt_cached_load(cache, a->m, &k, a->cached);
	ckpt_chunk_cache_let_go(cache, a->cached, 0);
}

static void end_chunk_locked(struct ckpt_ahead_run *run, size_t i, int rc)
{
	struct ckpt_chunk_cache *cache = run->cache;
	struct ckpt_cached *c = run->cached[i];

	c->state = rc ? CKPT_CACHED_FAILED : CKPT_CACHED_READY;
	c->error = rc;
	if (rc)
		ckpt_cached_take_out_locked(cache, c);
	if (__atomic_load_n(&run->cancelled, __ATOMIC_RELAXED) && c->reader) {
		c->reader = NULL;
		c->taken = c->bytes; // nobody wants it
	}
	ckpt_cached_let_go_locked(cache, c, 0);
}

static void end_chunk(void *arg, size_t i, int rc)
{
	struct ckpt_ahead_run *run = arg;
	LOCK_SCOPE(&run->cache->lock);

	end_chunk_locked(run, i, rc);
}

static void free_run(struct ckpt_ahead_run *run)
{
	ckpt_manifest_unref(run->m);
	free(run);
}

static void read_run(struct ckpt_chunk_cache *cache, struct ckpt_ahead_run *run)
{
	const struct ckpt_until until = {.cancelled = &run->cancelled};
	struct ckpt_chunk_run of = {.chunks = run->chunks,
				    .plain = run->plain,
				    .count = run->count,
				    .until = &until,
				    .done = end_chunk,
				    .arg = run};
	uint64_t work = ckpt_chunk_run_work(run->chunks, run->count);
	struct ckpt_cache_codec *codec = ckpt_decoding_begin(cache, work, RUN_WORK_SPARE);
	struct ckpt_ahead_run **at = &cache->running;

	ckpt_manifest_pack(run->m, run->chunks[0].pack - 1, &of.pack);
	if (codec)
		ckpt_chunk_read_run(cache->store->objects, &of, codec->codec);
	for (size_t i = 0; i < run->count && !codec; i++)
		end_chunk(run, i, -ENOMEM);
	if (codec)
		ckpt_decoding_end(cache, codec, work);
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
	struct ckpt_ahead a;
	struct ckpt_ahead_run *run;

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
	size_t here = (size_t)MIN(MAX(get_nprocs() - 1, 1), CKPT_CACHE_THREADS_MAX);
	size_t want = cache->store->objects->ops->is_far ? CKPT_CACHE_THREADS_MAX : here;

	if (cache->thread_count < want &&
	    !pthread_create(&cache->threads[cache->thread_count], NULL, ahead_thread, cache))
		cache->thread_count++;
}

void ckpt_ahead_watch_locked(struct ckpt_chunk_cache *cache)
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
	if (cache->ahead_count == CKPT_CACHE_AHEAD_MAX || ckpt_cached_find_locked(cache, &k) ||
	    find_ahead_locked(cache, m, chunk) < cache->ahead_count)
		return;
	*ahead_at(cache, cache->ahead_count++) = (struct ckpt_ahead){.m = ckpt_manifest_ref(m), .chunk = chunk};
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
	ckpt_cached_drop_unexpected_locked(cache, most - MIN(most, room), ckpt_cached_now_ns() - RUN_WAITS_NS);
	return cache->bytes + room <= most;
}

static uint64_t room_of_run_locked(struct ckpt_chunk_cache *cache, const struct ckpt_manifest *m, uint32_t first,
				   uint32_t count)
{
	uint64_t room = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct ckpt_chunk k;

		ckpt_manifest_chunk(m, first + i, &k);
		room += ckpt_cached_find_locked(cache, &k) ? 0 : ckpt_pages_room(k.bytes);
	}
	return room;
}

// Those that are not there yet.
static void fill_run_locked(struct ckpt_ahead_run *run, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct ckpt_chunk *k = &run->chunks[run->count];
		struct ckpt_cached *c;

		ckpt_manifest_chunk(run->m, first + i, k);
		c = ckpt_cached_find_locked(run->cache, k) ? NULL : ckpt_cached_add_locked(run->cache, k);
		if (!c)
			continue;
		c->reader = run->reader;
		run->plain[run->count] = c->data;
		run->cached[run->count++] = c;
	}
}

static void queue_run_locked(struct ckpt_chunk_cache *cache, struct ckpt_ahead_run *run)
{
	struct ckpt_ahead_run **at = &cache->waiting;

	while (*at)
		at = &(*at)->next;
	*at = run;
	cache->waiting_count++;
	pthread_cond_signal(&cache->wanted);
}

// 0: no room, no thread or no memory for it now.
static uint32_t expect_run_locked(struct ckpt_chunk_cache *cache, struct ckpt_ahead_run *run, uint32_t first,
				  uint32_t count)
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
	struct ckpt_ahead_run *run;

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
	count = expect_run_locked(cache, run, want->first, MIN(count, CKPT_CACHE_RUN_CHUNKS_MAX));
	if (!run->count) // else it is the thread's
		free_run(run);
	ckpt_lock_drop(&cache->lock);
	return count;
}

static void call_off_waiting_locked(struct ckpt_chunk_cache *cache, const void *reader)
{
	for (struct ckpt_ahead_run **at = &cache->waiting, *run; (run = *at);) {
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
	for (struct ckpt_ahead_run *run = cache->running; run; run = run->next)
		if (run->reader == reader)
			__atomic_store_n(&run->cancelled, true, __ATOMIC_RELAXED);
	for (struct ckpt_cached *c = cache->oldest, *newer; c; c = newer) {
		newer = c->newer;
		if (c->reader != reader)
			continue;
		ckpt_cached_drop_locked(cache, c);
	}
}

void ckpt_ahead_end(struct ckpt_chunk_cache *cache)
{
	ckpt_lock_take(&cache->lock);
	cache->stop = true;
	pthread_cond_broadcast(&cache->wanted);
	ckpt_lock_drop(&cache->lock);
	for (size_t i = 0; i < cache->thread_count; i++)
		pthread_join(cache->threads[i], NULL);
	for (; cache->ahead_count; cache->ahead_count--)
		ckpt_manifest_unref(ahead_at(cache, cache->ahead_count - 1)->m);
}
