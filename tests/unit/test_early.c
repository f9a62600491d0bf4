// Files of staged steps that are read, packed and sent before the commit: what is kept of them, when it is believed, and what is left to
// the commit.
#include "core/cold/closed.h"
#include "core/cold/garbage.h"
#include "core/cold/pack_pins.h"
#include "core/gc/gc.h"
#include "core/jobs/jobs.h"
#include "core/save/stage.h"
#include "core/tier/cool.h"
#include "core/tier/early_pack.h"
#include "core/tier/seal.h"
#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (2 * (size_t)CKPT_CHUNK_BYTES + 1)

static struct ckpt_step *step;
static uint8_t *bytes;       // BYTES of them, which nothing makes smaller
static struct ckpt_job *job; // is woken, and does nothing
static unsigned packs_put;

static int64_t no_turn(void *arg, struct ckpt_job *j)
{
	(void)arg;
	(void)j;
	return INT64_MAX;
}

static void put(void *arg, const struct ckpt_pack *pack, const uint8_t *sha256)
{
	(void)arg;
	(void)pack;
	(void)sha256;
	packs_put++;
}

static ssize_t (*real_pread)(int fd, void *buf, size_t len, off_t at);
static size_t read_bytes;

static ssize_t counting_pread(int fd, void *buf, size_t len, off_t at)
{
	read_bytes += len;
	return real_pread(fd, buf, len, at);
}

static void count_reads(void)
{
	read_bytes = 0;
	real_pread = ckpt_sys.pread;
	ckpt_sys.pread = counting_pread;
}

static const struct ckpt_early_how how = {.put = put, .pack_bytes = 1 << 20};

static void setup(void)
{
	ckpt_fixture_open();
	bytes = malloc(BYTES);
	ck_ok(ckpt_sys.random(bytes, BYTES));
	ck_ok(ckpt_job_new(s->jobs, &(struct ckpt_job_of){"early", CKPT_JOB_HURRIES, no_turn, NULL, true}, &job));
	ckpt_closed_want(s, job);
	step = ckpt_staged_begin(s, "1000");
	packs_put = 0;
}

static void teardown(void)
{
	ckpt_step_unref(step);
	free(bytes);
	ckpt_closed_want(s, NULL);
	ckpt_fixture_close();
}

static uint64_t ino_of(int fd)
{
	struct statx stx;

	ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx), 0);
	return ckpt_store_ino(&stx);
}

// A file that one writer writes and closes; its number.
static uint64_t write_file(const char *name, size_t len)
{
	struct ckpt_writer w = {0};
	int fd = ckpt_staged_put(step, name, "");
	uint64_t ino = ino_of(fd);

	w.ino = ino;
	w.fd = fd;
	ckpt_stage_writer_add(step, &w);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, bytes, len, 0), (ssize_t)len);
	ckpt_stage_writer_remove(&w);
	close(fd);
	return ino;
}

// As when it has been closed for a while.
static struct ckpt_closed_file take(void)
{
	struct ckpt_closed_file file;

	ck_assert(ckpt_closed_take(s, &file));
	return file;
}

static void pack(struct ckpt_early_pack **ret_early)
{
	struct ckpt_closed_file file = take();

	ck_ok(ckpt_early_pack_new(step, &how, ret_early));
	ck_ok(ckpt_early_pack_file(*ret_early, &file));
	ck_ok(ckpt_early_pack_rest(*ret_early));
}

static bool is_known(const char *name, uint64_t ino)
{
	struct ckpt_closed_read read;
	struct stat st;

	ck_assert_int_eq(fstatat(step->dirfd, name, &st, 0), 0);
	if (!ckpt_closed_find(s, ino, &st, &read))
		return false;
	ckpt_closed_read_done(&read);
	return true;
}

START_TEST(file_is_queued_when_its_last_writer_has_closed_it)
{
	struct ckpt_writer one = {0}, two = {0};
	struct ckpt_closed_file file;
	int fd = ckpt_staged_put(step, "model", "");

	ck_assert_int_eq(ckpt_sys.ftruncate(fd, (off_t)BYTES), 0);
	one.ino = two.ino = ino_of(fd);
	one.fd = two.fd = fd;
	ckpt_stage_writer_add(step, &one);
	ckpt_stage_writer_add(step, &two);
	ckpt_stage_writer_remove(&one);
	ck_assert(!ckpt_closed_take(s, &file));
	ckpt_stage_writer_remove(&two);
	file = take();
	ck_assert_uint_eq(file.ino, one.ino);
	ck_assert(!ckpt_closed_take(s, &file) && ckpt_closed_is_current(s, &file));
	ckpt_stage_writer_add(step, &one);
	ck_assert(!ckpt_closed_is_current(s, &file));
	ck_assert(!ckpt_closed_done(s, &file, NULL));
	ckpt_stage_writer_remove(&one);
	file = take();
	ckpt_closed_done(s, &file, NULL);
	close(fd);
}
END_TEST

START_TEST(small_files_and_those_of_no_staged_step_are_not)
{
	struct ckpt_closed_file file;

	write_file("small", (size_t)CKPT_CLOSED_BYTES_MIN - 1);
	ck_assert(!ckpt_closed_take(s, &file));
	ckpt_closed_want(s, NULL);
	write_file("model", BYTES);
	ck_assert(!ckpt_closed_take(s, &file));
}
END_TEST

// Its writer's descriptor may be one that writes: the commit takes a lease, which nobody who could write may keep it from.
START_TEST(queue_keeps_no_commit_waiting)
{
	write_file("model", BYTES);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}
END_TEST

// The queue gives back what it holds.
START_TEST(queue_is_bounded)
{
	struct ckpt_closed_file file;
	char name[16];
	size_t count = 0;

	for (unsigned i = 0; i < CKPT_CLOSED_QUEUE_MAX + 10; i++) {
		struct ckpt_writer w = {0};

		snprintf(name, sizeof(name), "%u", i);
		w.fd = ckpt_staged_put(step, name, "");
		w.ino = ino_of(w.fd);
		ck_assert_int_eq(ckpt_sys.ftruncate(w.fd, (off_t)CKPT_CLOSED_BYTES_MIN), 0);
		ckpt_stage_writer_add(step, &w);
		ckpt_stage_writer_remove(&w);
		close(w.fd);
	}
	for (; ckpt_closed_take(s, &file); count++)
		(void)ckpt_closed_done(s, &file, NULL);
	ck_assert_uint_eq(count, CKPT_CLOSED_QUEUE_MAX);
}
END_TEST

// Neither its raw file nor its packs are read: the raw file is not what it was, and nobody sees it.
START_TEST(seal_and_cool_take_what_was_read_and_packed)
{
	const struct ckpt_tier_how cool = {.pack_bytes = 1 << 20, .keeps_raw = true};
	struct ckpt_tier_how with = cool;
	struct ckpt_early_pack *early;
	struct ckpt_tier_done done;
	struct ckpt_manifest *m;
	struct ckpt_seal seal;
	struct ckpt_entry e;
	uint64_t ino = write_file("model", BYTES);
	uint8_t sha256[CKPT_SHA256_LEN];

	pack(&early);
	ck_assert(is_known("model", ino));
	ck_assert_uint_ge(packs_put, 2);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	with.early = ckpt_early_pack_packing(early);
	count_reads();
	ck_ok(ckpt_cool_sealed(step, &with, &done));
	ck_assert_uint_lt(read_bytes, 65536);
	ck_assert_uint_eq(done.stored_bytes, 0);
	m = ckpt_staged_manifest(step);
	ck_ok(ckpt_manifest_lookup(m, "model", &e.index));
	ckpt_manifest_entry(m, e.index, &e);
	ck_assert(e.content == CKPT_CONTENT_CHUNKS && ckpt_manifest_seal(m, e.index, &seal));
	ckpt_sha256(bytes, BYTES, sha256);
	ck_assert_mem_eq(seal.sha256, sha256, sizeof(sha256));
	ck_assert_uint_eq(seal.count, 3);
	ckpt_early_pack_expect_garbage(early, m);
	ckpt_early_pack_free(early);
	ck_assert_uint_eq(ckpt_garbage_packs(s), 0);
	ckpt_manifest_unref(m);
}
END_TEST

// Each of these may be changed bytes: the file is read again.
START_TEST(changed_file_is_not_believed)
{
	static const struct timespec times[2] = {{5, 0}, {5, 0}};
	struct ckpt_early_pack *early;
	uint64_t ino = write_file("model", BYTES);
	struct ckpt_writer w = {.ino = ino};
	int fd;

	pack(&early);
	ck_assert(is_known("model", ino));
	fd = ckpt_sys.open(step->dirfd, "model", O_RDWR, 0);
	switch (_i) {
	case 0: // past all that we see
		ck_assert_int_eq(ckpt_sys.pwrite(fd, "other", 5, 0), 5);
		break;
	case 1: // with the times of before
		ck_assert_int_eq(futimens(fd, times), 0);
		break;
	case 2:
		w.fd = fd;
		ckpt_stage_writer_add(step, &w);
		ckpt_stage_writer_remove(&w);
		break;
	case 3:
		ckpt_stage_rewritten(step, ino);
		break;
	default:
		ckpt_closed_want(s, NULL);
	}
	ck_assert(!is_known("model", ino));
	close(fd);
	ckpt_early_pack_free(early);
}
END_TEST

static unsigned descriptors(void)
{
	unsigned count = 0;
	DIR *d = opendir("/proc/self/fd");

	while (readdir(d))
		count++;
	closedir(d);
	return count;
}

// While nobody takes files: what was forgotten waits for ckpt_closed_tidy(), and that may be long.
START_TEST(forgotten_file_holds_no_descriptor)
{
	uint64_t ino = write_file("model", BYTES);
	unsigned before = descriptors();
	struct ckpt_writer w = {.ino = ino};

	w.fd = ckpt_sys.open(step->dirfd, "model", O_RDWR, 0);
	for (int i = 0; i < 20; i++) {
		ckpt_stage_writer_add(step, &w);
		ckpt_stage_writer_remove(&w);
	}
	close(w.fd);
	ck_assert_uint_eq(descriptors(), before);
	ck_assert(ckpt_closed_tidy(s)); // the last one
	ck_assert_ptr_null(ckpt_closed_of(s)->gone);
}
END_TEST

// The end of the last handle is not that of a mapping, whose stores need not change ctime.
START_TEST(file_that_is_still_mapped_is_left_to_the_commit)
{
	uint64_t ino = write_file("model", BYTES);
	int fd = ckpt_sys.open(step->dirfd, "model", O_RDWR, 0);
	uint8_t *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct ckpt_early_pack *early;

	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	map[1]++; // its page can be written from now on without a fault
	pack(&early);
	map[1]++;
	ck_assert(!is_known("model", ino));
	ck_assert_uint_eq(packs_put, 0);
	munmap(map, BYTES);
	ckpt_early_pack_free(early);
}
END_TEST

static int no_lease(int fd)
{
	(void)fd;
	return -EINVAL;
}

START_TEST(file_of_a_filesystem_without_leases_is_left_to_the_commit)
{
	__typeof__(ckpt_sys.lease) real = ckpt_sys.lease;
	uint64_t ino = write_file("model", BYTES);
	struct ckpt_early_pack *early;

	ckpt_sys.lease = no_lease;
	pack(&early);
	ckpt_sys.lease = real;
	ck_assert(!is_known("model", ino));
	ck_assert_uint_eq(packs_put, 0);
	ckpt_early_pack_free(early);
}
END_TEST

static bool has_buffers(const struct ckpt_early_pack *early)
{
	const struct ckpt_packing *p = ckpt_early_pack_packing(early);

	return p->writer || p->codec;
}

START_TEST(buffers_go_while_nothing_is_packed)
{
	struct ckpt_early_pack *early;
	struct ckpt_closed_file file;

	write_file("model", BYTES);
	pack(&early);
	ck_assert(!has_buffers(early));
	ck_ok(ckpt_sys.random(bytes, BYTES));
	write_file("more", BYTES);
	file = take();
	ck_ok(ckpt_early_pack_file(early, &file));
	ck_assert(has_buffers(early));
	ck_assert_uint_gt(ckpt_early_pack_making(early), 0);
	ckpt_early_pack_drop(early);
	ck_assert_uint_eq(ckpt_early_pack_making(early), 0);
	ckpt_early_pack_free(early);
}
END_TEST

static int64_t now_ns;

static int64_t fixed_now(void)
{
	return now_ns;
}

static void sleep_nothing(int64_t ns)
{
	(void)ns;
}

// A change in the same tick of the clock would not show.
START_TEST(file_that_is_too_young_is_packed_and_not_believed)
{
	struct ckpt_early_pack *early;
	uint64_t ino = write_file("model", BYTES);
	struct stat st;

	ck_assert_int_eq(fstatat(step->dirfd, "model", &st, 0), 0);
	now_ns = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec + CKPT_CLOSED_SETTLED_FINE_NS;
	ckpt_sys.now_ns = fixed_now;
	ckpt_sys.sleep_ns = sleep_nothing;
	pack(&early);
	ck_assert(packs_put && !is_known("model", ino));
	ckpt_early_pack_free(early);
}
END_TEST

START_TEST(packs_of_a_step_that_is_given_up_are_pinned_until_then_and_garbage_after)
{
	const struct ckpt_gc_how at_once = {.grace_ns = 0};
	struct ckpt_early_pack *early;
	struct ckpt_gc_done done;

	write_file("model", BYTES);
	pack(&early);
	ck_ok(ckpt_gc(s, &at_once, &done));
	ck_assert_uint_eq(done.deleted_objects, 0);
	ck_assert_uint_eq(ckpt_packed_count(s), packs_put);
	ck_ok(ckpt_stage_abort(step, false));
	ckpt_early_pack_expect_garbage(early, NULL);
	ckpt_early_pack_free(early);
	ck_assert_uint_eq(ckpt_garbage_packs(s), packs_put);
	ck_ok(ckpt_gc(s, &at_once, &done)); // all that is there, and not by force
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
}
END_TEST

static bool is_over(void *arg, uint64_t len)
{
	(void)arg;
	(void)len;
	return false;
}

START_TEST(file_that_is_left_in_the_middle_is_read_again_and_its_chunks_are_there)
{
	const struct ckpt_tier_how cool = {.pack_bytes = 1 << 20, .keeps_raw = true};
	struct ckpt_early_how ends = how;
	struct ckpt_early_pack *early;
	struct ckpt_closed_file file;
	struct ckpt_tier_done done;
	struct ckpt_manifest *m;
	uint64_t ino = write_file("model", BYTES);

	ends.go_on = is_over;
	file = take();
	ck_ok(ckpt_early_pack_new(step, &ends, &early));
	ck_error(ckpt_early_pack_file(early, &file), EINTR);
	ck_assert(!is_known("model", ino));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_cool_sealed(step, &cool, &done));
	ck_assert_uint_eq(done.deduplicated_bytes, CKPT_CHUNK_BYTES);
	m = ckpt_staged_manifest(step);
	ckpt_early_pack_expect_garbage(early, m);
	ckpt_early_pack_free(early);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(file_that_was_removed_is_not_packed)
{
	struct ckpt_early_pack *early;

	write_file("model", BYTES);
	ck_ok(ckpt_sys.unlink(step->dirfd, "model", 0));
	pack(&early);
	ck_assert_uint_eq(packs_put, 0);
	ckpt_early_pack_free(early);
}
END_TEST

static ssize_t full_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	(void)fd;
	(void)buf;
	(void)len;
	(void)at;
	return -ENOSPC;
}

START_TEST(full_disk_gets_its_room_back)
{
	__typeof__(ckpt_sys.pwrite) real = ckpt_sys.pwrite;
	struct ckpt_early_pack *early;
	struct ckpt_closed_file file;

	write_file("model", BYTES);
	pack(&early);
	ck_assert_uint_gt(ckpt_packed_count(s), 0);
	ck_ok(ckpt_sys.random(bytes, BYTES));
	write_file("more", BYTES);
	file = take();
	ckpt_sys.pwrite = full_pwrite;
	ck_error(ckpt_early_pack_file(early, &file), ENOSPC);
	ckpt_sys.pwrite = real;
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ck_assert_ptr_null(ckpt_early_pack_packing(early));
	ckpt_early_pack_free(early);
}
END_TEST

// A .npy of this dtype, 4 MiB of random elements.
static void write_array(const char *name, const char *dtype, unsigned width)
{
	char header[129];
	size_t len = CKPT_CHUNK_BYTES, at = 128;
	struct ckpt_writer w = {0};

	memset(header, ' ', sizeof(header));
	memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
	at = (size_t)snprintf(header + 10, sizeof(header) - 10,
			      "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }", dtype, len / width);
	header[10 + at] = ' ';
	header[127] = '\n';
	w.fd = ckpt_staged_put(step, name, "");
	w.ino = ino_of(w.fd);
	ckpt_stage_writer_add(step, &w);
	ck_assert_int_eq(ckpt_sys.pwrite(w.fd, header, 128, 0), 128);
	ck_assert_int_eq(ckpt_sys.pwrite(w.fd, bytes, len, 128), (ssize_t)len);
	ckpt_stage_writer_remove(&w);
	close(w.fd);
}

static uint64_t bytes_packed(const char *name, const char *dtype, unsigned width)
{
	struct ckpt_early_pack *early;
	uint64_t packed;

	packs_put = 0;
	ck_ok(ckpt_sys.random(bytes, BYTES));
	write_array(name, dtype, width);
	pack(&early);
	packed = ckpt_early_pack_packing(early)->put_bytes;
	ckpt_early_pack_free(early);
	return packed;
}

START_TEST(what_other_files_may_make_smaller_is_left_to_the_commit)
{
	struct ckpt_step *before;

	ck_assert_uint_gt(bytes_packed("master.npy", "<f4", 4), 3 << 20);
	ck_assert_uint_lt(bytes_packed("weights.npy", "<u2", 2), 1 << 20); // its header alone
	s->settings.delta = 1;
	ck_assert_uint_eq(bytes_packed("difference.npy", "<f4", 4), 0);
	s->settings.delta = 0;
	before = ckpt_packed_step(s, "900", "text"); // which has no pairs
	ck_assert_uint_gt(bytes_packed("again.npy", "<u2", 2), 3 << 20);
	ckpt_step_unref(before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("early");
	TCase *tcase = tcase_create("early");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, file_is_queued_when_its_last_writer_has_closed_it);
	tcase_add_test(tcase, small_files_and_those_of_no_staged_step_are_not);
	tcase_add_test(tcase, queue_keeps_no_commit_waiting);
	tcase_add_test(tcase, queue_is_bounded);
	tcase_add_test(tcase, seal_and_cool_take_what_was_read_and_packed);
	tcase_add_loop_test(tcase, changed_file_is_not_believed, 0, 5);
	tcase_add_test(tcase, forgotten_file_holds_no_descriptor);
	tcase_add_test(tcase, file_that_is_still_mapped_is_left_to_the_commit);
	tcase_add_test(tcase, file_of_a_filesystem_without_leases_is_left_to_the_commit);
	tcase_add_test(tcase, buffers_go_while_nothing_is_packed);
	tcase_add_test(tcase, file_that_is_too_young_is_packed_and_not_believed);
	tcase_add_test(tcase, packs_of_a_step_that_is_given_up_are_pinned_until_then_and_garbage_after);
	tcase_add_test(tcase, file_that_is_left_in_the_middle_is_read_again_and_its_chunks_are_there);
	tcase_add_test(tcase, file_that_was_removed_is_not_packed);
	tcase_add_test(tcase, full_disk_gets_its_room_back);
	tcase_add_test(tcase, what_other_files_may_make_smaller_is_left_to_the_commit);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
