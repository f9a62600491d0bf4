// Files that clients have read whole from a remote, a directory here, are kept on the node; what was read in part, or from packs of the node, is not,
// and what was kept goes before anything else.
#include "tests/support/hooks.h"
#include "tests/support/staged.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/remote/arrival.h"
#include "core/remote/evict.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/warmer.h"
#include "core/save/warm.h"
#include "core/step/store.h"
#include "core/store/room.h"
#include "core/store/open.h"
#include "core/tier/cool.h"
#include "tests/support/save.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ALL UINT64_MAX
#define MODEL "model.bin"
#define OTHER "other.bin"
#define BYTES ((size_t)9 << 20) // of model.bin: three chunks
#define SMALL 1000              // of other.bin
#define DAY_NS (INT64_C(24) * 3600 * 1000000000)

static struct ckpt_store *s;
static struct ckpt_sys real;
static char text[BYTES + 1];

static void setup(void)
{
	char url[PATH_MAX + 8], remote_dir[PATH_MAX], dir[PATH_MAX], why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	real = ckpt_hooks;
	ckpt_temp_dir(remote_dir);
	ckpt_temp_dir(dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	setenv("CKPTFS_WORK_DIR", dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s));
	ck_ok(ckpt_store_work_behind(s));
}

static void teardown(void)
{
	ckpt_hooks_restore(&real);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

static const char *text_of(unsigned seed, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		seed = seed * 1103515245 + 12345;
		text[i] = (char)('!' + (seed >> 16) % 90);
	}
	text[bytes] = '\0';
	return text;
}

static void push(const struct ckpt_step *step)
{
	struct ckpt_arrival a = {0};

	memcpy(a.session, step->session, sizeof(a.session));
	ck_ok(ckpt_arrival_wait(s, &a, &(struct ckpt_arrival_patience){.timeout_ns = INT64_C(20000000000)}));
}

static struct ckpt_step *save(const char *name, unsigned seed)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	close(ckpt_staged_put(step, MODEL, text_of(seed, BYTES)));
	close(ckpt_staged_put(step, OTHER, text_of(seed + 1, SMALL)));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

static bool is_raw(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	uint32_t index;
	bool is;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	is = ckpt_step_has_raw(step, m, index);
	ckpt_manifest_unref(m);
	return is;
}

// A thread may have a file of it open.
static void evict(struct ckpt_step *step, const char *path)
{
	uint64_t freed;

	for (unsigned i = 0; i < 2000 && is_raw(step, path); i++) {
		ck_ok(ckpt_evict_round(s, ALL, &freed, NULL, NULL));
		ckpt_sys.sleep_ns(10000000);
	}
}

// A step that is in the remote alone.
static struct ckpt_step *save_afar(const char *name, unsigned seed)
{
	struct ckpt_step *step = save(name, seed);

	push(step);
	evict(step, MODEL);
	ck_assert(!is_raw(step, MODEL) && !is_raw(step, OTHER));
	return step;
}

static struct ckpt_file *client_opens(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_file *f;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_ok(ckpt_file_open(step, m, index, &f));
	ckpt_file_watch(f);
	ckpt_manifest_unref(m);
	return f;
}

static void read_part(struct ckpt_file *f, uint64_t from, uint64_t to)
{
	static char buf[1 << 20];

	while (from < to) {
		ssize_t n = ckpt_file_read(f, buf, MIN(sizeof(buf), to - from), from);

		ck_assert_int_gt(n, 0);
		from += (uint64_t)n;
	}
}

static void client_reads(struct ckpt_step *step, const char *path, uint64_t from, uint64_t to)
{
	struct ckpt_file *f = client_opens(step, path);

	read_part(f, from, to);
	ckpt_file_close(f);
}

static void wait_raw(struct ckpt_step *step, const char *path)
{
	for (unsigned i = 0; i < 2000 && !is_raw(step, path); i++)
		ckpt_sys.sleep_ns(10000000);
	ck_assert(is_raw(step, path));
}

static void check(struct ckpt_step *step, unsigned seed)
{
	ckpt_staged_check(step, MODEL, text_of(seed, BYTES));
	ckpt_staged_check(step, OTHER, text_of(seed + 1, SMALL));
}

// Bytes that were read before were kept or passed over by now.
static void read_other(struct ckpt_step *step)
{
	client_reads(step, OTHER, 0, SMALL);
	wait_raw(step, OTHER);
}

START_TEST(file_that_was_read_whole_is_kept)
{
	struct ckpt_step *step = save_afar("1000", 1);

	client_reads(step, MODEL, 0, BYTES);
	wait_raw(step, MODEL);
	ck_assert(!is_raw(step, OTHER));
	check(step, 1);
	ck_assert_int_gt(ckpt_warm_left_ns(step), DAY_NS - INT64_C(60000000000));
	ck_assert_int_gt(ckpt_warm_read_ns(step), 0);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(parts_in_any_order_by_several_openings_are_the_whole)
{
	struct ckpt_step *step = save_afar("1000", 1);
	struct ckpt_file *f = client_opens(step, MODEL), *beside = client_opens(step, MODEL);

	read_part(f, BYTES / 2, BYTES - 1);
	read_part(beside, 1, BYTES / 2 + 5);
	ckpt_file_close(f);
	ckpt_file_close(beside);
	client_reads(step, MODEL, BYTES - 1, BYTES);
	read_other(step);
	ck_assert(!is_raw(step, MODEL));
	client_reads(step, MODEL, 0, 1);
	wait_raw(step, MODEL);
	check(step, 1);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(reading_that_is_no_clients_keeps_nothing)
{
	struct ckpt_step *step = save_afar("1000", 1);

	check(step, 1);
	read_other(step);
	ck_assert(!is_raw(step, MODEL));
	ckpt_step_unref(step);
}
END_TEST

// Packed to save room: reading it takes no room again.
START_TEST(file_whose_packs_are_here_stays_cold)
{
	const struct ckpt_tier_how how = {.pack_bytes = UINT64_C(1) << 20};
	struct ckpt_step *afar = save_afar("1000", 1), *step = save("2000", 2);
	struct ckpt_tier_done done;

	push(step);
	ck_ok(ckpt_cool_sealed(step, &how, &done));
	ck_assert(!is_raw(step, MODEL));
	client_reads(step, MODEL, 0, BYTES);
	client_reads(step, OTHER, 0, SMALL);
	read_other(afar);
	ck_assert(!is_raw(step, MODEL) && !is_raw(step, OTHER));
	ckpt_step_unref(afar);
	ckpt_step_unref(step);
}
END_TEST

static uint64_t room_bytes; // atomic

static int some_room(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	(void)fd;
	*ret_free = __atomic_load_n(&room_bytes, __ATOMIC_RELAXED);
	*ret_total = UINT64_C(1) << 32;
	return 0;
}

START_TEST(what_would_leave_saves_too_little_room_is_not_kept)
{
	struct ckpt_step *step = save_afar("1000", 1);

	// The reserve, the next step, and a twentieth.
	__atomic_store_n(&room_bytes, (UINT64_C(1) << 30) + BYTES + SMALL + (UINT64_C(1) << 32) / 20 + BYTES - SMALL,
			 __ATOMIC_RELAXED);
	ckpt_hook_set(room, some_room);
	client_reads(step, MODEL, 0, BYTES);
	read_other(step);
	ck_assert(!is_raw(step, MODEL));
	__atomic_add_fetch(&room_bytes, 2 * SMALL, __ATOMIC_RELAXED);
	client_reads(step, MODEL, 0, BYTES);
	wait_raw(step, MODEL);
	ckpt_step_unref(step);
}
END_TEST

static unsigned asked;  // for room, atomic
static bool may_answer; // atomic

static int late_room(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	__atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&may_answer, __ATOMIC_RELAXED)) // else the time limit of the test
		ckpt_sys.sleep_ns(1000000);
	return some_room(fd, ret_free, ret_total);
}

// The job is busy with another step until both were read whole, and takes them together. Beside a save nobody else asks for room.
START_TEST(file_that_is_too_large_does_not_take_others_with_it)
{
	struct ckpt_step *step = save_afar("1000", 1), *first = save_afar("2000", 3);

	__atomic_store_n(&room_bytes, (UINT64_C(1) << 30) + BYTES + SMALL + (UINT64_C(1) << 32) / 20 + BYTES - SMALL,
			 __ATOMIC_RELAXED);
	ckpt_jobs_saves(s->jobs, 1);
	ckpt_hook_set(room, late_room);
	client_reads(first, OTHER, 0, SMALL);
	while (!__atomic_load_n(&asked, __ATOMIC_RELAXED))
		ckpt_sys.sleep_ns(1000000);
	client_reads(step, MODEL, 0, BYTES);
	client_reads(step, OTHER, 0, SMALL);
	__atomic_store_n(&may_answer, true, __ATOMIC_RELAXED);
	ckpt_jobs_saves(s->jobs, -1);
	wait_raw(step, OTHER);
	ck_assert(!is_raw(step, MODEL) && is_raw(first, OTHER));
	check(step, 1);
	ckpt_step_unref(first);
	ckpt_step_unref(step);
}
END_TEST

static int64_t mono_ahead_ns; // atomic

static int64_t later_mono(void)
{
	return real.mono_ns() + __atomic_load_n(&mono_ahead_ns, __ATOMIC_RELAXED);
}

static unsigned writes_failed; // atomic

static bool is_of_reading(int fd)
{
	char link[64], path[PATH_MAX] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "-read");
}

static ssize_t failing_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	if (!is_of_reading(fd))
		return real.pwrite(fd, buf, len, offset);
	__atomic_add_fetch(&writes_failed, 1, __ATOMIC_RELAXED);
	return -EIO;
}

START_TEST(what_could_not_be_written_meanwhile_is_read_again)
{
	struct ckpt_step *step = save_afar("1000", 1);

	ckpt_hook_set(pwrite, failing_pwrite);
	client_reads(step, MODEL, 0, BYTES);
	wait_raw(step, MODEL);
	ck_assert_uint_ge(__atomic_load_n(&writes_failed, __ATOMIC_RELAXED), 1);
	check(step, 1);
	ckpt_step_unref(step);
}
END_TEST

// Bytes that are passed over meanwhile are read again, once the save is over.
START_TEST(nothing_is_written_beside_a_save)
{
	struct ckpt_step *step = save_afar("1000", 1);

	ckpt_hook_set(pwrite, failing_pwrite);
	ckpt_jobs_saves(s->jobs, 1);
	client_reads(step, MODEL, 0, BYTES);
	ck_assert_uint_eq(__atomic_load_n(&writes_failed, __ATOMIC_RELAXED), 0);
	ckpt_jobs_saves(s->jobs, -1);
	wait_raw(step, MODEL);
	ck_assert_uint_eq(__atomic_load_n(&writes_failed, __ATOMIC_RELAXED), 0);
	check(step, 1);
	ckpt_step_unref(step);
}
END_TEST

static bool has_partial_copy(void)
{
	CLEANUP_FD int fd = openat(s->trash_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fdopendir(fd);
	struct dirent *d;
	bool has = false;

	ck_assert_ptr_nonnull(dir);
	TAKE_FD(fd);
	while ((d = readdir(dir)))
		has |= strstr(d->d_name, "-read") != NULL;
	closedir(dir);
	return has;
}

static void wait_partial_copy(bool there)
{
	while (has_partial_copy() != there) // else the time limit of the test
		ckpt_sys.sleep_ns(1000000);
}

// 0: the room job takes it back, for a save. 1: the thread that writes it finds that the disk is full by now.
START_TEST(partial_copy_of_a_file_that_stays_open_gives_way)
{
	struct ckpt_step *step = save_afar("1000", 1);
	struct ckpt_file *f = client_opens(step, MODEL);

	read_part(f, 0, 1);
	wait_partial_copy(true);
	__atomic_store_n(&room_bytes, SMALL, __ATOMIC_RELAXED);
	ckpt_hook_set(room, some_room);
	if (_i) {
		__atomic_store_n(&mono_ahead_ns, INT64_C(2000000000), __ATOMIC_RELAXED);
		ckpt_hook_set(mono_ns, later_mono);
		read_part(f, BYTES - 1, BYTES);
	} else {
		ck_assert(ckpt_room_make(*ckpt_room_of(s), 0));
	}
	wait_partial_copy(false);
	ckpt_hook_set(room, real.room);
	read_part(f, 0, BYTES);
	ckpt_file_close(f);
	wait_raw(step, MODEL);
	check(step, 1);
	ckpt_step_unref(step);
}
END_TEST

static int64_t ahead_ns; // atomic

static int64_t later(void)
{
	return real.now_ns() + __atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);
}

START_TEST(kept_files_make_room_when_they_are_old)
{
	struct ckpt_step *first = save_afar("1000", 1), *second = save_afar("2000", 2), *saved = save("3000", 3);
	uint64_t freed;

	push(saved);
	ckpt_hook_set(now_ns, later);
	client_reads(first, MODEL, 0, BYTES);
	wait_raw(first, MODEL);
	__atomic_store_n(&ahead_ns, 2 * CKPT_WARMER_STAYS_NS, __ATOMIC_RELAXED);
	client_reads(second, MODEL, 0, BYTES);
	wait_raw(second, MODEL);
	ck_ok(ckpt_evict_read(s, ALL, ckpt_warm_read_ns(first) - 1, &freed, NULL, NULL));
	ck_assert_uint_eq(freed, 0);
	ck_ok(ckpt_evict_read(s, ALL, ckpt_sys.now_ns() - CKPT_WARMER_STAYS_NS, &freed, NULL, NULL));
	ck_assert_uint_ge(freed, BYTES);
	ck_assert(!is_raw(first, MODEL) && is_raw(second, MODEL) && is_raw(saved, MODEL));
	ck_ok(ckpt_evict_round(s, 1, &freed, NULL, NULL));
	ck_assert(!is_raw(second, MODEL) && is_raw(saved, MODEL));
	ckpt_step_unref(first);
	ckpt_step_unref(second);
	ckpt_step_unref(saved);
}
END_TEST

START_TEST(file_that_was_kept_while_the_clock_was_ahead_makes_room)
{
	struct ckpt_step *step = save_afar("1000", 1);
	uint64_t freed;

	__atomic_store_n(&ahead_ns, DAY_NS, __ATOMIC_RELAXED);
	ckpt_hook_set(now_ns, later);
	client_reads(step, MODEL, 0, BYTES);
	wait_raw(step, MODEL);
	__atomic_store_n(&ahead_ns, 0, __ATOMIC_RELAXED);
	ck_ok(ckpt_evict_read(s, ALL, ckpt_sys.now_ns() - CKPT_WARMER_STAYS_NS, &freed, NULL, NULL));
	ck_assert_uint_ge(freed, BYTES);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(step_that_somebody_warmed_is_no_kept_one)
{
	const struct ckpt_tier_how how = {.only = OTHER};
	struct ckpt_step *step = save_afar("1000", 1);
	struct ckpt_tier_done done;

	ck_ok(ckpt_warm(step, &how, &done));
	client_reads(step, MODEL, 0, BYTES);
	wait_raw(step, MODEL);
	ck_assert_int_eq(ckpt_warm_read_ns(step), 0);
	ck_assert_int_gt(ckpt_warm_left_ns(step), 0);
	ckpt_step_unref(step);
}
END_TEST

#define MANY 600 // more than are remembered

START_TEST(of_many_that_were_read_in_part_the_latest_are_remembered)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1000");
	char name[32];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%u", i);
		close(ckpt_staged_put(step, name, text_of(i, 10)));
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	push(step);
	evict(step, "0");
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%u", i);
		client_reads(step, name, 0, 5);
	}
	client_reads(step, "0", 5, 10);
	client_reads(step, name, 5, 10);
	wait_raw(step, name);
	ck_assert(!is_raw(step, "0"));
	client_reads(step, "0", 0, 5);
	wait_raw(step, "0");
	ckpt_step_unref(step);
}
END_TEST

// While pieces are queued, too: nothing is left, and nothing hangs.
START_TEST(store_is_closed_beside_a_reading)
{
	struct ckpt_step *step = save_afar("1000", 1);
	struct ckpt_file *f = client_opens(step, MODEL);

	read_part(f, 0, BYTES);
	ckpt_store_rest(s);
	ckpt_file_close(f);
	ckpt_step_unref(step);
}
END_TEST

// The one in trash/ that a reading writes to; NULL: none yet.
static int open_begun(void)
{
	DIR *dir = fdopendir(dup(s->trash_fd));
	struct dirent *d;
	int fd = -1;

	ck_assert_ptr_nonnull(dir);
	rewinddir(dir);
	while (fd < 0 && (d = readdir(dir)))
		if (strstr(d->d_name, "-read"))
			fd = openat(s->trash_fd, d->d_name, O_RDWR | O_CLOEXEC);
	closedir(dir);
	return fd;
}

// A file that lies on the disk for a while is compared with its seal before clients get it without ckptfs.
START_TEST(what_is_other_bytes_by_then_is_read_again)
{
	struct ckpt_step *step = save_afar("1000", 1);
	struct ckpt_file *f = client_opens(step, MODEL);
	char byte = 0;
	int fd = -1;

	read_part(f, 0, BYTES - 1);
	for (unsigned i = 0; i < 2000 && (fd < 0 || pread(fd, &byte, 1, 0) != 1 || !byte); i++) {
		if (fd >= 0)
			close(fd);
		ckpt_sys.sleep_ns(10000000);
		fd = open_begun();
	}
	ck_assert(fd >= 0 && byte);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 0), 1);
	close(fd);
	read_part(f, BYTES - 1, BYTES);
	ckpt_file_close(f);
	wait_raw(step, MODEL);
	check(step, 1);
	ckpt_step_unref(step);
}
END_TEST

static void *opens_and_closes(void *arg)
{
	struct ckpt_step *step = arg;

	for (unsigned i = 0; i < 400; i++)
		client_reads(step, MODEL, (i % 40) * (BYTES / 40), i % 40 < 39 ? (i % 40 + 1) * (BYTES / 40) : BYTES);
	return NULL;
}

// Several clients that come and go while it is read: no close is between two that share a file in trash/.
START_TEST(clients_that_open_and_close_at_once)
{
	for (unsigned seed = 1; seed < 5; seed++) {
		char name[16];
		struct ckpt_step *step;
		pthread_t threads[4];

		snprintf(name, sizeof(name), "%u000", seed);
		step = save_afar(name, seed);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, opens_and_closes, step), 0);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++)
			pthread_join(threads[i], NULL);
		client_reads(step, OTHER, 0, SMALL);
		wait_raw(step, MODEL);
		check(step, seed);
		ckpt_step_unref(step);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("warmer");
	TCase *tcase = tcase_create("warmer");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, file_that_was_read_whole_is_kept);
	tcase_add_test(tcase, parts_in_any_order_by_several_openings_are_the_whole);
	tcase_add_test(tcase, reading_that_is_no_clients_keeps_nothing);
	tcase_add_test(tcase, file_whose_packs_are_here_stays_cold);
	tcase_add_test(tcase, what_would_leave_saves_too_little_room_is_not_kept);
	tcase_add_test(tcase, file_that_is_too_large_does_not_take_others_with_it);
	tcase_add_test(tcase, what_could_not_be_written_meanwhile_is_read_again);
	tcase_add_test(tcase, nothing_is_written_beside_a_save);
	tcase_add_loop_test(tcase, partial_copy_of_a_file_that_stays_open_gives_way, 0, 2);
	tcase_add_test(tcase, kept_files_make_room_when_they_are_old);
	tcase_add_test(tcase, file_that_was_kept_while_the_clock_was_ahead_makes_room);
	tcase_add_test(tcase, step_that_somebody_warmed_is_no_kept_one);
	tcase_add_test(tcase, of_many_that_were_read_in_part_the_latest_are_remembered);
	tcase_add_test(tcase, store_is_closed_beside_a_reading);
	tcase_add_test(tcase, what_is_other_bytes_by_then_is_read_again);
	tcase_add_test(tcase, clients_that_open_and_close_at_once);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
