// Cold files of a store that is far: who reads on finds the next chunks there, one request for several, several requests at once; who
// reads here and there pays for no more; and nothing is read for who has gone.
#include "tests/support/fixture.h"

#include "backends/backends.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/chunk_cache.h"
#include "core/cold/file.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <pthread.h>
#include <stdio.h>

#define CHUNKS 20
#define FILE_BYTES (CHUNKS * (uint64_t)CKPT_CHUNK_BYTES)
#define PACK_CHUNKS 8
#define READ_BYTES ((size_t)1 << 20)
#define ROOM (32 * (uint64_t)CKPT_CHUNK_BYTES)

static struct ckpt_step *step;
static struct ckpt_manifest *m;
static uint32_t file_index;

// The store's objects, with their requests counted, and held while the test wants that.
static struct {
	struct ckpt_objects_ops ops;
	const struct ckpt_objects_ops *below;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	unsigned requests, under_way, most, called_off;
	uint64_t bytes;
	bool held;
	int error;
} far;

static void begin(uint64_t bytes)
{
	LOCK_SCOPE(&far.lock);

	far.requests++;
	far.bytes += bytes;
	far.under_way++;
	far.most = MAX(far.most, far.under_way);
	pthread_cond_broadcast(&far.changed);
}

static int end(const struct ckpt_until *until)
{
	LOCK_SCOPE(&far.lock);

	while (far.held && !(until && until->cancelled && __atomic_load_n(until->cancelled, __ATOMIC_RELAXED)))
		(void)ckpt_lock_wait_ns(&far.changed, &far.lock, 1000000);
	far.under_way--;
	far.called_off += far.held;
	return far.held ? -ECANCELED : far.error;
}

static int far_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		   struct ckpt_object *ret_object)
{
	int rc;

	begin(len);
	rc = end(NULL);
	return rc ? rc : far.below->get(o, key, offset, buf, len, ret_len, ret_object);
}

static int far_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			  const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	uint64_t bytes = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		bytes += ranges[i].len;
	begin(bytes);
	rc = end(until);
	for (size_t i = 0; i < count && !rc; i++)
		rc = far.below->get(o, key, ranges[i].offset, ranges[i].buf, ranges[i].len, &ranges[i].got, ret_object);
	return rc;
}

static void fill(uint32_t chunk, uint32_t *words)
{
	uint64_t x = chunk + 1;

	for (uint32_t i = 0; i < CKPT_CHUNK_BYTES / 4; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		words[i] = (uint32_t)(x >> 32);
	}
}

// A file that no codec makes smaller, in packs of PACK_CHUNKS chunks.
static void save(void)
{
	const struct ckpt_tier_how how = {.pack_bytes = PACK_CHUNKS * (uint64_t)CKPT_CHUNK_BYTES};
	CLEANUP_FREE uint32_t *words = malloc(CKPT_CHUNK_BYTES);
	struct ckpt_tier_done done;
	int fd;

	step = ckpt_staged_begin(s, "1000");
	fd = ckpt_staged_put(step, "model.bin", "");
	for (uint32_t i = 0; i < CHUNKS; i++) {
		fill(i, words);
		ck_ok(ckpt_sys.pwrite(fd, words, CKPT_CHUNK_BYTES, (off_t)i * CKPT_CHUNK_BYTES));
	}
	close(fd);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &how, &done));
	ck_ok(ckpt_step_manifest(step, &m));
	ck_ok(ckpt_manifest_lookup(m, "model.bin", &file_index));
}

static void setup(void)
{
	ckpt_fixture_open();
	save();
	ckpt_save_settle_all(s);
	ckpt_chunk_cache_free(*ckpt_chunk_cache_of(s));
	ck_ok(ckpt_chunk_cache_new(s, ROOM, CKPT_CHUNK_CACHE_KEPT_NS, ckpt_chunk_cache_of(s)));
	ckpt_lock_init(&far.lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&far.changed, NULL);
	far.below = s->objects->ops;
	far.ops = *far.below;
	far.ops.is_far = true;
	far.ops.get = far_get;
	far.ops.get_ranges = far_get_ranges;
	s->objects->ops = &far.ops;
}

static void teardown(void)
{
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_chunk_cache_free(TAKE_PTR(*ckpt_chunk_cache_of(s)));
	s->objects->ops = far.below;
	ckpt_fixture_close();
}

static struct ckpt_file *open_file(void)
{
	struct ckpt_file *f;

	ck_ok(ckpt_file_open(step, m, file_index, &f));
	ck_assert_int_eq(ckpt_file_fd(f), -1);
	return f;
}

// True: these are its bytes.
static bool read_chunk(struct ckpt_file *f, uint32_t chunk)
{
	CLEANUP_FREE uint32_t *want = malloc(CKPT_CHUNK_BYTES), *got = malloc(CKPT_CHUNK_BYTES);

	fill(chunk, want);
	for (size_t at = 0; at < CKPT_CHUNK_BYTES; at += READ_BYTES)
		if (ckpt_file_read(f, (char *)got + at, READ_BYTES, chunk * (uint64_t)CKPT_CHUNK_BYTES + at) !=
		    (ssize_t)READ_BYTES)
			return false;
	return !memcmp(want, got, CKPT_CHUNK_BYTES);
}

START_TEST(a_file_that_is_read_whole_is_got_once_in_few_requests)
{
	struct ckpt_file *f = open_file();

	for (uint32_t i = 0; i < CHUNKS; i++)
		ck_assert(read_chunk(f, i));
	ck_assert_uint_eq(far.bytes, FILE_BYTES);
	// The first chunk alone, the rest of its pack, and the two other packs.
	ck_assert_uint_eq(far.requests, 4);
	ckpt_file_close(f);
}
END_TEST

START_TEST(the_first_byte_takes_one_request_of_one_chunk)
{
	struct ckpt_file *f = open_file();
	char byte;

	ck_assert_int_eq(ckpt_file_read(f, &byte, 1, 0), 1);
	ck_assert_uint_eq(far.requests, 1);
	ck_assert_uint_eq(far.bytes, CKPT_CHUNK_BYTES);
	ckpt_file_close(f);
}
END_TEST

START_TEST(who_reads_here_and_there_gets_no_more)
{
	static const uint32_t chunks[] = {17, 3, 9, 1, 12, 6, 14};
	struct ckpt_file *f = open_file();

	for (size_t i = 0; i < ARRAY_LEN(chunks); i++)
		ck_assert(read_chunk(f, chunks[i]));
	ckpt_sys.sleep_ns(20000000); // for who would read more
	ck_assert_uint_eq(far.bytes, ARRAY_LEN(chunks) * (uint64_t)CKPT_CHUNK_BYTES);
	ckpt_file_close(f);
}
END_TEST

// As much again as was read.
START_TEST(who_begins_in_the_middle_gets_little_ahead)
{
	struct ckpt_file *f = open_file();

	ck_assert(read_chunk(f, 8));
	ck_assert(read_chunk(f, 9));
	ckpt_sys.sleep_ns(20000000);
	ck_assert_uint_ge(far.bytes, 3 * (uint64_t)CKPT_CHUNK_BYTES);
	ck_assert_uint_le(far.bytes, 4 * (uint64_t)CKPT_CHUNK_BYTES);
	ckpt_file_close(f);
}
END_TEST

static void *read_second(void *arg)
{
	return read_chunk(arg, 1) ? NULL : arg;
}

static void hold(bool held)
{
	LOCK_SCOPE(&far.lock);

	far.held = held;
	pthread_cond_broadcast(&far.changed);
}

static void await_under_way(unsigned count)
{
	LOCK_SCOPE(&far.lock);

	for (int tries = 0; far.under_way < count; tries++) {
		ck_assert_int_lt(tries, 5000);
		(void)ckpt_lock_wait_ns(&far.changed, &far.lock, 1000000);
	}
}

START_TEST(several_requests_are_under_way_at_once)
{
	struct ckpt_file *f = open_file();
	pthread_t thread;
	void *wrong;

	ck_assert(read_chunk(f, 0));
	hold(true);
	ck_assert(!pthread_create(&thread, NULL, read_second, f));
	await_under_way(3);
	ck_assert_uint_eq(far.requests, 4);
	hold(false);
	pthread_join(thread, &wrong);
	ck_assert_ptr_null(wrong);
	ckpt_file_close(f);
}
END_TEST

// The chunk that somebody waits for is not lost with who expected the run: it is got again.
START_TEST(what_is_expected_is_called_off_with_its_reader)
{
	struct ckpt_file *f = open_file();
	struct ckpt_cached *cached;

	ck_assert(read_chunk(f, 0));
	hold(true);
	ckpt_chunk_cache_follow(*ckpt_chunk_cache_of(s));
	ck_assert_uint_eq(
		ckpt_chunk_cache_expect_run(
			*ckpt_chunk_cache_of(s),
			&(struct ckpt_run_wanted){
				.m = m, .first = 1, .end = 4, .bytes_max = CKPT_CHUNK_RUN_BYTES, .reader = &hold}),
		3);
	await_under_way(1);
	ckpt_chunk_cache_forget(*ckpt_chunk_cache_of(s), &hold);
	for (int tries = 0; __atomic_load_n(&far.called_off, __ATOMIC_RELAXED) < 1; tries++) {
		ck_assert_int_lt(tries, 5000);
		ckpt_sys.sleep_ns(1000000);
	}
	hold(false);
	ck_ok(ckpt_chunk_cache_get(*ckpt_chunk_cache_of(s), m, 2, &cached));
	ckpt_chunk_cache_let_go(*ckpt_chunk_cache_of(s), cached, 0);
	ckpt_file_close(f);
}
END_TEST

START_TEST(what_was_read_for_one_that_has_gone_goes)
{
	struct ckpt_file *f = open_file();

	ck_assert(read_chunk(f, 0) && read_chunk(f, 1));
	ckpt_file_close(f);
	for (int tries = 0; far.under_way; tries++)
		ckpt_sys.sleep_ns(1000000);
	for (uint32_t i = 0; i < CHUNKS; i++)
		for (int tries = 0;; tries++) { // the thread of the run may be at it
			struct ckpt_cached *cached = ckpt_chunk_cache_try(*ckpt_chunk_cache_of(s), m, i);

			if (!cached)
				break;
			ckpt_chunk_cache_let_go(*ckpt_chunk_cache_of(s), cached, CKPT_CHUNK_BYTES);
			ck_assert_int_lt(tries, 1);
		}
}
END_TEST

START_TEST(a_failure_is_told_and_what_comes_later_is_read)
{
	struct ckpt_file *f = open_file();

	ck_assert(read_chunk(f, 0));
	far.error = -EIO;
	ck_assert(!read_chunk(f, 1));
	far.error = 0;
	for (uint32_t i = 1; i < CHUNKS; i++)
		ck_assert(read_chunk(f, i));
	ckpt_file_close(f);
}
END_TEST

static void *read_all(void *arg)
{
	struct ckpt_file *f;
	void *wrong = NULL;

	if (ckpt_file_open(step, m, file_index, &f))
		return arg;
	for (uint32_t i = 0; i < CHUNKS && !wrong; i++)
		wrong = read_chunk(f, i) ? NULL : arg;
	ckpt_file_close(f);
	return wrong;
}

// With room for few of what they expect.
START_TEST(many_readers_get_the_right_bytes)
{
	static const uint64_t rooms[] = {ROOM, 8 * CKPT_CHUNK_BYTES, 2 * CKPT_CHUNK_BYTES, 0};
	pthread_t threads[4];

	ckpt_chunk_cache_free(*ckpt_chunk_cache_of(s));
	ck_ok(ckpt_chunk_cache_new(s, rooms[_i], CKPT_CHUNK_CACHE_KEPT_NS, ckpt_chunk_cache_of(s)));
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		ck_assert(!pthread_create(&threads[i], NULL, read_all, step));
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("far");
	TCase *tcase = tcase_create("reading");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_file_that_is_read_whole_is_got_once_in_few_requests);
	tcase_add_test(tcase, the_first_byte_takes_one_request_of_one_chunk);
	tcase_add_test(tcase, who_reads_here_and_there_gets_no_more);
	tcase_add_test(tcase, who_begins_in_the_middle_gets_little_ahead);
	tcase_add_test(tcase, several_requests_are_under_way_at_once);
	tcase_add_test(tcase, what_is_expected_is_called_off_with_its_reader);
	tcase_add_test(tcase, what_was_read_for_one_that_has_gone_goes);
	tcase_add_test(tcase, a_failure_is_told_and_what_comes_later_is_read);
	tcase_add_loop_test(tcase, many_readers_get_the_right_bytes, 0, 4);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
