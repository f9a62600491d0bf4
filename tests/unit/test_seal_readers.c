// Sealing by several readers: which of them read what is to be seen nowhere, what is wrong with one file is its own affair, all
// end when one is told to, and behind they leave the processors to others.
#include "core/store/open.h"
#include "core/tier/sealer.h"
#include "tests/support/fixture.h"
#include "tests/support/fixture_step.h"
#include "tests/support/hooks.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/cold/chunk.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>

#define LARGE (2 * (size_t)CKPT_CHUNK_BYTES + 1)
#define SMALL_FILES 40
#define READERS 4

static char large[LARGE];

static void fill(void)
{
	for (size_t i = 0; i < LARGE; i++)
		large[i] = (char)(i * 7 >> 3);
}

static void small_name(unsigned i, char ret_name[16])
{
	snprintf(ret_name, 16, "f%02u", i);
}

static void put_small(void)
{
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		char name[16];

		small_name(i, name);
		close(ckpt_staged_put(step, name, name));
	}
}

static void put_large(const char *name)
{
	int fd = ckpt_staged_put(step, name, "");

	fill();
	ck_ok(ckpt_sys.pwrite(fd, large, LARGE, 0));
	close(fd);
}

static void setup(void)
{
	ckpt_fixture_step_open("1000");
}

static void commit(void)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}

// --- What is sealed -----------------------------------------------------------------------------------------------------

static bool is_sealed(struct ckpt_manifest *m, const char *name, const void *bytes, size_t len)
{
	uint8_t want[CKPT_SHA256_LEN];
	struct ckpt_seal seal;
	uint32_t index;
	size_t at = 0;

	ck_ok(ckpt_manifest_lookup(m, name, &index));
	if (!ckpt_manifest_seal(m, index, &seal))
		return false;
	ckpt_sha256(bytes, len, want);
	ck_assert_mem_eq(seal.sha256, want, sizeof(want));
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		ckpt_sha256((const char *)bytes + at, chunk.bytes, want);
		ck_assert_mem_eq(chunk.id, want, sizeof(want));
		at += chunk.bytes;
	}
	ck_assert_uint_eq(at, len);
	return true;
}

static bool large_is_sealed(const char *name)
{
	struct ckpt_manifest *m;
	bool is;

	ck_ok(ckpt_step_manifest(step, &m));
	is = is_sealed(m, name, large, LARGE);
	ckpt_manifest_unref(m);
	return is;
}

// How many of the small files have their seal: none has another's.
static unsigned small_sealed(void)
{
	struct ckpt_manifest *m;
	unsigned sealed = 0;

	ck_ok(ckpt_step_manifest(step, &m));
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		char name[16];

		small_name(i, name);
		sealed += is_sealed(m, name, name, strlen(name));
	}
	ckpt_manifest_unref(m);
	return sealed;
}

static void shorten(const char *name, off_t len)
{
	char path[CKPT_UUID_LEN + 32];
	CLEANUP_FD int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", step->session, name);
	fd = ckpt_sys.open(s->sessions_fd, path, O_WRONLY, 0);
	ck_ok(fd);
	ck_ok(ckpt_sys.ftruncate(fd, len));
}

// --- Several at once ----------------------------------------------------------------------------------------------------

static pthread_barrier_t meeting; // of all readers, each after its first chunk: with fewer the test would not end
static _Thread_local bool met, reads_whole;
static uint64_t told;                // bytes; atomic
static bool idle, normal, by_caller; // atomic
static unsigned arrived;             // atomic; the reader of headers comes after all of them
static unsigned expected;
static pthread_t caller;

static bool meet(void *arg __attribute__((unused)), uint64_t bytes)
{
	__atomic_add_fetch(&told, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(sched_getscheduler(0) == SCHED_IDLE ? &idle : &normal, true, __ATOMIC_RELAXED);
	if (pthread_equal(pthread_self(), caller))
		__atomic_store_n(&by_caller, true, __ATOMIC_RELAXED);
	if (!met && __atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED) < expected) {
		met = true;
		reads_whole = !bytes;
		pthread_barrier_wait(&meeting);
	}
	return true;
}

static void hold_meeting(unsigned readers)
{
	caller = pthread_self();
	arrived = 0;
	expected = readers;
	pthread_barrier_init(&meeting, NULL, readers);
}

START_TEST(files_are_read_at_once)
{
	const struct ckpt_seal_how how = {.go_on = meet, .readers = READERS};

	put_small();
	put_large("large");
	commit();
	hold_meeting(READERS);
	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(small_sealed(), SMALL_FILES);
	ck_assert(large_is_sealed("large") && step->version->is.sealed);
	ck_assert_uint_eq(told, LARGE + 3 * SMALL_FILES);
	ck_assert(by_caller);
}
END_TEST

// Each reader waits for the other with one of its hashes begun.
START_TEST(two_read_one_large_file)
{
	const struct ckpt_seal_how how = {.go_on = meet, .readers = 2};

	put_large("large");
	commit();
	hold_meeting(2);
	ck_ok(ckpt_seal(step, &how));
	ck_assert(large_is_sealed("large") && step->version->is.sealed);
	ck_assert_uint_eq(told, LARGE);
}
END_TEST

START_TEST(behind_the_caller_only_waits)
{
	const struct ckpt_seal_how how = {.go_on = meet, .behind = true, .readers = READERS};

	put_small();
	put_large("large");
	commit();
	hold_meeting(READERS);
	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(small_sealed(), SMALL_FILES);
	ck_assert(large_is_sealed("large") && step->version->is.sealed);
	ck_assert(!by_caller && idle && !normal);
}
END_TEST

// --- What goes wrong ----------------------------------------------------------------------------------------------------

START_TEST(one_bad_file_keeps_no_other_from_its_seal)
{
	const struct ckpt_seal_how how = {.readers = READERS};

	put_small();
	put_large("large");
	commit();
	shorten("f07", 1);
	ck_error(ckpt_seal(step, &how), EIO);
	ck_assert_uint_eq(small_sealed(), SMALL_FILES - 1);
	ck_assert(large_is_sealed("large") && !step->version->is.sealed);
	ck_assert_uint_eq(ckpt_save_errors(s, "f07"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, ""), 1);
}
END_TEST

static bool whole_fails;
static ssize_t (*real_pread)(int fd, void *buf, size_t len, off_t offset);

static ssize_t pread_that_fails(int fd, void *buf, size_t len, off_t offset)
{
	return offset == LARGE - 1 && reads_whole == whole_fails ? -EIO : real_pread(fd, buf, len, offset);
}

START_TEST(what_one_of_two_could_not_read_has_no_seal)
{
	const struct ckpt_seal_how how = {.go_on = meet, .readers = 2};

	put_large("large");
	commit();
	ckpt_save_settle_all(s);
	hold_meeting(2);
	whole_fails = _i;
	real_pread = ckpt_hooks.pread;
	ckpt_hook_set(pread, pread_that_fails);
	ck_error(ckpt_seal(step, &how), EIO);
	ckpt_hook_set(pread, real_pread);
	ck_assert(!large_is_sealed("large"));
	ck_assert_uint_eq(ckpt_save_errors(s, "large"), 1);
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_assert(large_is_sealed("large"));
}
END_TEST

// It is not the files then. Each reader may have one more in hand.
START_TEST(with_many_bad_files_all_end)
{
	const struct ckpt_seal_how how = {.readers = READERS};
	unsigned errors;

	put_small();
	commit();
	for (unsigned i = 0; i < SMALL_FILES; i++) {
		char name[16];

		small_name(i, name);
		shorten(name, 1);
	}
	ck_error(ckpt_seal(step, &how), EIO);
	errors = ckpt_save_errors(s, "to seal it");
	ck_assert(errors >= 8 && errors < 8 + READERS);
}
END_TEST

// --- An end in the middle -----------------------------------------------------------------------------------------------

static unsigned calls, last_call; // calls: atomic

static bool end_once(void *arg, uint64_t bytes)
{
	meet(arg, bytes);
	return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != last_call;
}

START_TEST(what_one_is_told_ends_all)
{
	struct ckpt_seal_how how = {.go_on = end_once, .readers = READERS};
	unsigned sealed;

	put_small();
	commit();
	hold_meeting(READERS);
	last_call = 2 * READERS;
	ck_error(ckpt_seal(step, &how), EINTR);
	ck_assert_uint_lt(calls, last_call + READERS);
	sealed = small_sealed();
	ck_assert(sealed >= READERS && sealed < SMALL_FILES && !step->version->is.sealed);
	how.go_on = NULL;
	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(small_sealed(), SMALL_FILES);
	ck_assert(step->version->is.sealed);
	ck_assert_uint_eq(ckpt_save_errors(s, ""), 0);
}
END_TEST

START_TEST(an_end_is_heard_in_the_middle_of_a_file)
{
	const struct ckpt_seal_how how = {.go_on = end_once, .readers = READERS};

	for (unsigned i = 0; i < READERS; i++) {
		char name[16];

		small_name(i, name);
		put_large(name);
	}
	commit();
	hold_meeting(READERS);
	last_call = READERS + 1; // all are in their first chunk, or one is in its second
	ck_error(ckpt_seal(step, &how), EINTR);
	ck_assert_uint_lt(calls, last_call + READERS);
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){.readers = READERS}));
	for (unsigned i = 0; i < READERS; i++) {
		char name[16];

		small_name(i, name);
		ck_assert(large_is_sealed(name));
	}
	ck_assert(step->version->is.sealed);
}
END_TEST

// --- The processors of others -------------------------------------------------------------------------------------------

#define MS INT64_C(1000000)

static int64_t clock_ns = 1, slept_ns, waited_ns, waits_ns; // atomic; how long it waits between two looks
static _Thread_local bool is_reader;
static void (*real_sleep)(int64_t ns);

static int64_t fake_clock(void)
{
	return __atomic_load_n(&clock_ns, __ATOMIC_RELAXED);
}

static ssize_t pread_that_takes_time(int fd, void *buf, size_t len, off_t offset)
{
	__atomic_add_fetch(&clock_ns, 10 * MS, __ATOMIC_RELAXED);
	return real_pread(fd, buf, len, offset);
}

static int64_t fake_waited(void)
{
	is_reader = true;
	return __atomic_add_fetch(&waited_ns, waits_ns, __ATOMIC_RELAXED);
}

static void fake_sleep(int64_t ns)
{
	if (!is_reader) {
		real_sleep(ns);
		return;
	}
	__atomic_add_fetch(&slept_ns, ns, __ATOMIC_RELAXED);
	__atomic_add_fetch(&clock_ns, ns, __ATOMIC_RELAXED);
}

// Of three chunks, read behind by one; it looks around after each, and rests after the second and the third.
static int64_t rests(int64_t waits)
{
	uint64_t files = 1, bytes;

	put_large("large");
	commit();
	ckpt_save_settle_all(s);
	waits_ns = waits;
	real_pread = ckpt_hooks.pread;
	real_sleep = ckpt_hooks.sleep_ns;
	ckpt_hook_set(pread, pread_that_takes_time);
	ckpt_hook_set(mono_ns, fake_clock);
	ckpt_hook_set(sleep_ns, fake_sleep);
	ckpt_hook_set(waited_ns, fake_waited);
	ck_ok(ckpt_store_work_behind(s));
	for (int i = 0; i < 10000 && files; i++) {
		ckpt_sealer_pending(s, &files, &bytes);
		real_sleep(MS);
	}
	ck_assert(!files && large_is_sealed("large"));
	return __atomic_load_n(&slept_ns, __ATOMIC_RELAXED);
}

START_TEST(who_does_not_wait_does_not_rest)
{
	ck_assert_int_eq(rests(0), 0);
}
END_TEST

START_TEST(who_waits_rests_longer)
{
	ck_assert_int_eq(rests(7 * MS), INT64_C(2) * 15 * 7 * MS);
}
END_TEST

START_TEST(whoever_waits_long_gets_on)
{
	int64_t rest = rests(1000000 * MS);

	ck_assert(rest > 2 * 900 * MS && rest <= 2 * 1000 * MS);
}
END_TEST

// What the kernel says of this thread grows, if it says anything.
START_TEST(the_kernel_tells_how_long_a_thread_waited)
{
	int64_t before = ckpt_sys.waited_ns();

	ck_assert_int_ge(before, 0);
	ck_assert_int_ge(ckpt_sys.waited_ns(), before);
	ck_assert_int_lt(before, INT64_C(86400) * 1000 * MS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seal readers");
	TCase *tcase = tcase_create("readers");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_step_close);
	tcase_add_test(tcase, files_are_read_at_once);
	tcase_add_test(tcase, two_read_one_large_file);
	tcase_add_test(tcase, behind_the_caller_only_waits);
	tcase_add_test(tcase, one_bad_file_keeps_no_other_from_its_seal);
	tcase_add_loop_test(tcase, what_one_of_two_could_not_read_has_no_seal, 0, 2);
	tcase_add_test(tcase, with_many_bad_files_all_end);
	tcase_add_test(tcase, what_one_is_told_ends_all);
	tcase_add_test(tcase, an_end_is_heard_in_the_middle_of_a_file);
	tcase_add_test(tcase, who_does_not_wait_does_not_rest);
	tcase_add_test(tcase, who_waits_rests_longer);
	tcase_add_test(tcase, whoever_waits_long_gets_on);
	tcase_add_test(tcase, the_kernel_tells_how_long_a_thread_waited);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
