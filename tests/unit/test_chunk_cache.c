// The cache of chunks: many readers, little room, chunks that cannot be read; what it hands out are the right bytes.
#include "tests/support/fixture.h"
#include "tests/support/formats.h"
#include "tests/support/weights.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/chunk_cache.h"
#include "core/cold/pack.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <pthread.h>
#include <stdio.h>

#define FILES 40
#define BYTES 5000
#define THREADS 8
#define ROUNDS 400

static struct ckpt_step *step;
static struct ckpt_manifest *m;
static struct ckpt_chunk_cache *cache;

static void fill(unsigned file, uint8_t *bytes)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(file * 31 + i * (file + 1));
}

// Each file is a chunk.
static void setup(void)
{
	const struct ckpt_tier_how how = {.pack_bytes = 4 * BYTES};
	struct ckpt_tier_done done;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	for (unsigned i = 0; i < FILES; i++) {
		uint8_t bytes[BYTES];
		char name[16];
		int fd;

		snprintf(name, sizeof(name), "%02u", i);
		fd = ckpt_staged_put(step, name, "");
		fill(i, bytes);
		ck_ok(ckpt_sys.pwrite(fd, bytes, sizeof(bytes), 0));
		close(fd);
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &how, &done));
	ck_ok(ckpt_step_manifest(step, &m));
}

static void teardown(void)
{
	ckpt_chunk_cache_free(cache);
	cache = NULL;
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static bool is_right(unsigned file, struct ckpt_cached *cached)
{
	uint8_t want[BYTES];

	fill(file, want);
	return !memcmp(ckpt_cached_data(cached), want, BYTES);
}

// A file of whole chunks: its words, malloc'ed, and the manifest, with a reference.
#define CHUNKS 3
static uint32_t *save_large(struct ckpt_manifest **ret_manifest)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1};
	struct ckpt_step *large = ckpt_staged_begin(s, "2000");
	uint32_t *words = malloc(CHUNKS * CKPT_CHUNK_BYTES);
	struct ckpt_tier_done done;
	int fd = ckpt_staged_put(large, "large", "");

	ck_assert_ptr_nonnull(words);
	for (uint32_t i = 0; i < CHUNKS * CKPT_CHUNK_BYTES / 4; i++)
		words[i] = i * 2654435761u;
	ck_ok(ckpt_sys.pwrite(fd, words, CHUNKS * CKPT_CHUNK_BYTES, 0));
	close(fd);
	ck_ok(ckpt_commit(large, &ckpt_staged_plain));
	ck_ok(ckpt_seal(large, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(large, &how, &done));
	ck_ok(ckpt_step_manifest(large, ret_manifest));
	ckpt_step_unref(large);
	return words;
}

static void read_large(struct ckpt_manifest *of_large, const uint32_t *words, uint32_t chunk)
{
	struct ckpt_cached *cached;

	ck_ok(ckpt_chunk_cache_get(cache, of_large, chunk, &cached));
	ck_assert_mem_eq(ckpt_cached_data(cached), (const uint8_t *)words + chunk * CKPT_CHUNK_BYTES, CKPT_CHUNK_BYTES);
	ckpt_chunk_cache_let_go(cache, cached, 0);
}

// Its memory goes from one to the next.
START_TEST(whole_chunks_take_turns_where_there_is_room_for_one)
{
	struct ckpt_manifest *of_large;
	uint32_t *words = save_large(&of_large);

	ck_ok(ckpt_chunk_cache_new(s, CKPT_CHUNK_BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	for (uint32_t i = 0; i < 2 * CHUNKS; i++) {
		read_large(of_large, words, i % CHUNKS);
		ck_assert_ptr_null(ckpt_chunk_cache_try(cache, of_large, (i + 1) % CHUNKS));
	}
	ckpt_manifest_unref(of_large);
	free(words);
}
END_TEST

// What this process has, without what is mapped from files.
static int64_t memory(void)
{
	FILE *in = fopen("/proc/self/status", "re");
	long long kib = -1;
	char line[256];

	ck_assert_ptr_nonnull(in);
	while (kib < 0 && fgets(line, sizeof(line), in))
		(void)sscanf(line, "RssAnon: %lld", &kib);
	fclose(in);
	ck_assert_int_ge(kib, 0);
	return kib << 10;
}

START_TEST(what_nobody_asks_for_goes_and_its_memory_with_it)
{
	enum { KEPT_MS = 300 };
	const int64_t most = CHUNKS * (int64_t)CKPT_CHUNK_BYTES - (1 << 20); // the test itself takes some
	struct ckpt_manifest *of_large;
	uint32_t *words = save_large(&of_large);

	ck_ok(ckpt_chunk_cache_new(s, CKPT_CHUNK_CACHE_BYTES, KEPT_MS * INT64_C(1000000), &cache));
	for (int round = 0; round < 2; round++) { // it works on after that
		int64_t there;

		for (uint32_t i = 0; i < CHUNKS; i++)
			read_large(of_large, words, i);
		there = memory();
		for (int i = 0; i < 100 && memory() > there - most; i++)
			ckpt_sys.sleep_ns(KEPT_MS * INT64_C(1000000));
		ck_assert_int_le(memory(), there - most);
		ck_assert_ptr_null(ckpt_chunk_cache_try(cache, of_large, 0));
	}
	ckpt_manifest_unref(of_large);
	free(words);
}
END_TEST

START_TEST(what_is_asked_for_again_and_again_stays)
{
	const int64_t kept_ns = INT64_C(500000000);
	int64_t used_ns = 0;

	ck_ok(ckpt_chunk_cache_new(s, 10 * BYTES, kept_ns, &cache));
	for (int i = 0; i < 40; i++, ckpt_sys.sleep_ns(kept_ns / 10)) {
		struct ckpt_cached *cached = ckpt_chunk_cache_try(cache, m, 0);

		if (!cached) { // this process may have had to wait
			ck_assert_int_ge(ckpt_sys.mono_ns() - used_ns, kept_ns);
			ck_ok(ckpt_chunk_cache_get(cache, m, 0, &cached));
		}
		ck_assert(is_right(0, cached));
		used_ns = ckpt_sys.mono_ns();
		ckpt_chunk_cache_let_go(cache, cached, 0);
	}
}
END_TEST

START_TEST(what_was_read_is_there_until_there_is_no_room)
{
	struct ckpt_cached *cached;

	ck_ok(ckpt_chunk_cache_new(s, 2 * BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	ck_assert_ptr_null(ckpt_chunk_cache_try(cache, m, 0));
	for (unsigned i = 0; i < 2; i++) {
		ck_ok(ckpt_chunk_cache_get(cache, m, i, &cached));
		ck_assert(is_right(i, cached));
		ckpt_chunk_cache_let_go(cache, cached, 0);
	}
	cached = ckpt_chunk_cache_try(cache, m, 0); // now 1 was not asked for the longest
	ck_assert_ptr_nonnull(cached);
	ckpt_chunk_cache_let_go(cache, cached, 0);
	ck_ok(ckpt_chunk_cache_get(cache, m, 2, &cached));
	ckpt_chunk_cache_let_go(cache, cached, 0);
	ck_assert_ptr_null(ckpt_chunk_cache_try(cache, m, 1));
	cached = ckpt_chunk_cache_try(cache, m, 0);
	ck_assert_ptr_nonnull(cached);
	ck_assert(is_right(0, cached));
	ckpt_chunk_cache_let_go(cache, cached, 0);
}
END_TEST

// In whichever pieces, and not before who else holds it has let go of it.
START_TEST(what_was_taken_whole_goes)
{
	struct ckpt_cached *one, *other;

	ck_ok(ckpt_chunk_cache_new(s, 10 * BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	ck_ok(ckpt_chunk_cache_get(cache, m, 0, &one));
	ckpt_chunk_cache_let_go(cache, one, BYTES - 1);
	one = ckpt_chunk_cache_try(cache, m, 0);
	ck_assert_ptr_nonnull(one);
	other = ckpt_chunk_cache_try(cache, m, 0);
	ck_assert_ptr_eq(one, other);
	ckpt_chunk_cache_let_go(cache, one, 1);
	ck_assert(is_right(0, other));
	ckpt_chunk_cache_let_go(cache, other, 0);
	ck_assert_ptr_null(ckpt_chunk_cache_try(cache, m, 0));
	ck_ok(ckpt_chunk_cache_get(cache, m, 0, &one));
	ck_assert(is_right(0, one));
	ckpt_chunk_cache_let_go(cache, one, BYTES - 1); // it counts anew
	one = ckpt_chunk_cache_try(cache, m, 0);
	ck_assert_ptr_nonnull(one);
	ckpt_chunk_cache_let_go(cache, one, 0);
}
END_TEST

START_TEST(one_that_is_larger_than_the_room_is_read_all_the_same)
{
	struct ckpt_cached *cached;

	ck_ok(ckpt_chunk_cache_new(s, 10, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	for (unsigned i = 0; i < 3; i++) {
		ck_ok(ckpt_chunk_cache_get(cache, m, i, &cached));
		ck_assert(is_right(i, cached));
		ckpt_chunk_cache_let_go(cache, cached, 0);
	}
}
END_TEST

START_TEST(a_failure_is_told_and_not_kept)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO};
	struct ckpt_cached *cached;

	ckpt_save_fault(s, &fault);
	ck_ok(ckpt_chunk_cache_new(s, 10 * BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	ck_error(ckpt_chunk_cache_get(cache, m, 0, &cached), EIO);
	ck_assert_ptr_null(ckpt_chunk_cache_try(cache, m, 0));
	ck_ok(ckpt_chunk_cache_get(cache, m, 0, &cached));
	ck_assert(is_right(0, cached));
	ckpt_chunk_cache_let_go(cache, cached, 0);
}
END_TEST

static void add_lie(struct ckpt_manifest_writer *w, const char *name, uint64_t ino, struct ckpt_chunk *chunk,
		    uint32_t bytes)
{
	struct ckpt_entry e = {
		.type = CKPT_ENTRY_FILE, .name = name, .content = CKPT_CONTENT_CHUNKS, .ino = ino, .bytes = bytes};
	uint32_t handle;

	chunk->bytes = bytes;
	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	ck_ok(ckpt_manifest_writer_seal(w, handle, CKPT_SAMPLE_SHA256));
	ck_ok(ckpt_manifest_writer_chunk(w, chunk));
}

// Who wants the longer one would read behind the end of the other.
START_TEST(an_id_of_another_length_is_another_chunk)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_manifest *lies;
	struct ckpt_cached *cached, *other;
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	void *data;
	size_t len;

	ckpt_manifest_chunk(m, 0, &chunk);
	ckpt_manifest_pack(m, chunk.pack - 1, &pack);
	ck_ok(ckpt_manifest_writer_pack(w, &pack, &chunk.pack));
	add_lie(w, "a", 10, &chunk, BYTES);
	add_lie(w, "b", 11, &chunk, 2 * BYTES);
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(data, len, &lies));
	ck_ok(ckpt_chunk_cache_new(s, 10 * BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	ck_ok(ckpt_chunk_cache_get(cache, lies, 0, &cached));
	ck_assert(is_right(0, cached));
	ck_assert_ptr_null(ckpt_chunk_cache_try(cache, lies, 1));
	ck_error(ckpt_chunk_cache_get(cache, lies, 1, &other), EBADMSG);
	ckpt_chunk_cache_let_go(cache, cached, 0);
	ckpt_manifest_unref(lies);
}
END_TEST

// --- Many at once -------------------------------------------------------------------------------------------------------

static unsigned wrong, failed; // atomic

static void *reader(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		unsigned file = (seed = seed * 1664525 + 1013904223) >> 16;
		struct ckpt_cached *cached;

		file %= FILES;
		if (i % 8 == 0)
			ckpt_chunk_cache_expect(cache, m, (file + 1) % FILES);
		cached = ckpt_chunk_cache_try(cache, m, file);
		if (!cached && ckpt_chunk_cache_get(cache, m, file, &cached)) {
			__atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
			continue;
		}
		if (!is_right(file, cached))
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
		ckpt_chunk_cache_let_go(cache, cached, i % 3 ? BYTES / 2 : BYTES);
	}
	return NULL;
}

static void read_by_many(uint64_t room)
{
	pthread_t threads[THREADS];

	wrong = failed = 0;
	ck_ok(ckpt_chunk_cache_new(s, room, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, reader, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

// Room for more chunks than there are, for some, for fewer than there are readers, for none.
START_TEST(many_readers_get_the_right_bytes)
{
	static const uint64_t rooms[] = {100 * BYTES, 10 * BYTES, 3 * BYTES, BYTES, 0};

	read_by_many(rooms[_i]);
	ck_assert_uint_eq(wrong + failed, 0);
}
END_TEST

START_TEST(many_readers_of_a_store_that_fails_get_the_right_bytes_or_none)
{
	struct ckpt_fault fault = {.at = 30, .error = -EIO, .sticky = true};

	ckpt_save_fault(s, &fault);
	read_by_many(3 * BYTES);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_gt(failed, 0);
}
END_TEST

START_TEST(what_is_expected_is_read_behind)
{
	ck_ok(ckpt_chunk_cache_new(s, 10 * BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	ckpt_chunk_cache_expect(cache, m, 7);
	ckpt_chunk_cache_expect(cache, m, 7);
	for (int i = 0; i < 10000; i++) {
		struct ckpt_cached *cached = ckpt_chunk_cache_try(cache, m, 7);

		if (cached) {
			ck_assert(is_right(7, cached));
			ckpt_chunk_cache_let_go(cache, cached, 0);
			return;
		}
		ckpt_sys.sleep_ns(1000000);
	}
	ck_abort_msg("nobody read it");
}
END_TEST

static bool is_there(uint32_t chunk)
{
	struct ckpt_cached *cached = ckpt_chunk_cache_try(cache, m, chunk);

	if (cached)
		ckpt_chunk_cache_let_go(cache, cached, 0);
	return cached;
}

// Who reads ahead may be about to let go of it.
static void await_gone(uint32_t chunk)
{
	for (int tries = 0; is_there(chunk); tries++) {
		ck_assert_int_lt(tries, 2000);
		ckpt_sys.sleep_ns(1000000);
	}
}

// Who reads is about as fast as who reads ahead, and takes what either has read: nothing is left, nor read once more for nobody.
START_TEST(what_was_expected_and_taken_is_not_read_again)
{
	ck_ok(ckpt_chunk_cache_new(s, FILES * BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	for (int round = 0; round < 50; round++) {
		for (uint32_t i = 0; i < FILES; i++) {
			struct ckpt_cached *cached;

			ckpt_chunk_cache_expect(cache, m, i);
			ck_ok(ckpt_chunk_cache_get(cache, m, i, &cached));
			ck_assert(is_right(i, cached));
			ckpt_chunk_cache_let_go(cache, cached, BYTES);
		}
		ckpt_sys.sleep_ns(2000000); // for who would read it again
		for (uint32_t i = 0; i < FILES; i++)
			await_gone(i);
	}
}
END_TEST

#define BESIDE_CHUNKS 8
#define BESIDE_ELEMENTS (BESIDE_CHUNKS * CKPT_CHUNK_BYTES / 2)

static struct ckpt_manifest *beside;
static struct ckpt_weights weights;
static pthread_barrier_t ready;

static void *read_beside(void *arg)
{
	uint32_t chunk = (uint32_t)(uintptr_t)arg;
	struct ckpt_cached *cached;

	pthread_barrier_wait(&ready);
	if (ckpt_chunk_cache_get(cache, beside, chunk, &cached)) {
		__atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	if (memcmp(ckpt_cached_data(cached), weights.bf16 + (chunk - 1) * (size_t)CKPT_CHUNK_BYTES, CKPT_CHUNK_BYTES))
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	ckpt_chunk_cache_let_go(cache, cached, 0);
	return NULL;
}

// Weights, whose file comes first, and their master: each chunk of the first is decoded beside two others.
static void save_beside(void)
{
	const struct ckpt_tier_how how = {.pack_bytes = UINT64_C(16) << 20};
	struct ckpt_step *made = ckpt_staged_begin(s, "3000");
	struct ckpt_tier_done done;
	struct ckpt_seal seal;
	uint32_t index;

	weights = ckpt_weights_make(BESIDE_ELEMENTS, 1);
	ckpt_weights_put(made, "model.safetensors", CKPT_WEIGHTS_SAFETENSORS, weights.bf16, BESIDE_ELEMENTS, 2);
	ckpt_weights_put(made, "optimizer.pt", CKPT_WEIGHTS_TORCH, weights.fp32, BESIDE_ELEMENTS, 4);
	ck_ok(ckpt_commit(made, &ckpt_staged_plain));
	ck_ok(ckpt_seal(made, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(made, &how, &done));
	ck_ok(ckpt_step_manifest(made, &beside));
	ck_ok(ckpt_manifest_lookup(beside, "model.safetensors", &index));
	ck_assert(ckpt_manifest_seal(beside, index, &seal) && seal.count == BESIDE_CHUNKS + 1);
	for (uint32_t i = 0; i < BESIDE_CHUNKS; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(beside, seal.first + 1 + i, &chunk);
		ck_assert_int_eq(chunk.how.codec, CKPT_CODEC_ROUND);
	}
	ckpt_step_unref(made);
}

// Of the cache's room. Under a sanitizer its shadow counts, and memory that it keeps once it is freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PEAK_FACTOR 12
#else
#define PEAK_FACTOR 2
#endif

static int64_t peak(void)
{
	FILE *in = fopen("/proc/self/status", "re");
	long long kib = -1;
	char line[256];

	while (kib < 0 && fgets(line, sizeof(line), in))
		(void)sscanf(line, "VmHWM: %lld", &kib);
	fclose(in);
	return kib << 10;
}

START_TEST(what_is_decoded_beside_others_is_bounded_too)
{
	const uint64_t room = BESIDE_CHUNKS * CKPT_CHUNK_BYTES;
	pthread_t threads[BESIDE_CHUNKS];
	int64_t before;
	FILE *clear;

	save_beside();
	ck_ok(ckpt_chunk_cache_new(s, room, CKPT_CHUNK_CACHE_KEPT_NS, &cache));
	pthread_barrier_init(&ready, NULL, BESIDE_CHUNKS);
	clear = fopen("/proc/self/clear_refs", "we"); // the peak is what there is
	ck_assert(clear && fputs("5", clear) > 0 && !fclose(clear));
	before = peak();
	for (uintptr_t i = 0; i < BESIDE_CHUNKS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, read_beside, (void *)(i + 1)));
	for (int i = 0; i < BESIDE_CHUNKS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(wrong + failed, 0);
	ck_assert_int_le(peak() - before, PEAK_FACTOR * (int64_t)room);
	ckpt_manifest_unref(beside);
	ckpt_weights_done(&weights);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("chunk cache");
	TCase *tcase = tcase_create("cache");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, whole_chunks_take_turns_where_there_is_room_for_one);
	tcase_add_test(tcase, what_nobody_asks_for_goes_and_its_memory_with_it);
	tcase_add_test(tcase, what_is_asked_for_again_and_again_stays);
	tcase_add_test(tcase, what_was_read_is_there_until_there_is_no_room);
	tcase_add_test(tcase, what_was_taken_whole_goes);
	tcase_add_test(tcase, one_that_is_larger_than_the_room_is_read_all_the_same);
	tcase_add_test(tcase, a_failure_is_told_and_not_kept);
	tcase_add_test(tcase, an_id_of_another_length_is_another_chunk);
	tcase_add_loop_test(tcase, many_readers_get_the_right_bytes, 0, 5);
	tcase_add_test(tcase, many_readers_of_a_store_that_fails_get_the_right_bytes_or_none);
	tcase_add_test(tcase, what_is_expected_is_read_behind);
	tcase_add_test(tcase, what_was_expected_and_taken_is_not_read_again);
	tcase_add_test(tcase, what_is_decoded_beside_others_is_bounded_too);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
