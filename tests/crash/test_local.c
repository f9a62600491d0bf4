// The local backend when the machine dies, when the process dies (the power-loss seed for which everything done is
// there), and when a system call fails. One script of puts, replaces and removes is cut at every step of its journal.
//
// What must hold: an acknowledged change is there, whole; one that was on its way is there whole or not at all; nothing
// else changed; the store opens without help, and works.
//
// CKPT_CRASH_SEEDS in the environment: states per point, 24 by default.
#include "tests/support/disk.h"
#include "tests/support/suite.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "backends/spare.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#define SEEDS_DEFAULT 24
#define ABSENT (-1)
#define BYTES_MAX 5000

enum verb { PUT, REMOVE };

static const struct op {
	enum verb verb;
	const char *key;
	size_t bytes;
} script[] = {
	{PUT, "parts/1000/1", 300},  // makes the folder
	{PUT, "parts/1000/2", 10},   // links into it
	{PUT, "m/x", BYTES_MAX},     //
	{PUT, "packs/p", 1},         //
	{PUT, "snap/1", 4},          //
	{PUT, "snap/2", 500},        //
	{REMOVE, "snap/1", 0},       //
	{PUT, "snap/3", 3},          //
	{PUT, "parts/2/1", 100},     //
	{REMOVE, "parts/2/1", 0},    // the folder goes
	{PUT, "parts/2/1", 120},     // and comes back
	{REMOVE, "m/x", 0},          //
	{PUT, "m/x", 40},            //
	{REMOVE, "parts/1000/1", 0}, // the folder stays
	{REMOVE, "parts/1000/2", 0}, //
	{PUT, "parts/1000/1", 0},    // empty
	{PUT, "log/1", 700},         //
};
#define OPS ARRAY_LEN(script)

// When each operation ran, in steps of the journal. ended: acknowledged.
struct events {
	size_t began[OPS], ended[OPS];
};

static size_t content_of(size_t op, char *ret_data)
{
	for (size_t i = 0; i < script[op].bytes; i++)
		ret_data[i] = (char)('A' + (i / 7 + op * 5) % 50);
	return script[op].bytes;
}

static int op_run(struct ckpt_objects *b, size_t op)
{
	char data[BYTES_MAX];
	size_t len = content_of(op, data);

	if (script[op].verb == PUT)
		return ckpt_objects_put(b, script[op].key, data, len, NULL);
	return ckpt_objects_remove(b, script[op].key);
}

static struct ckpt_objects *local_open(const char *dir, bool writable)
{
	CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckpt_objects *b;

	ck_assert_int_ge(fd, 0);
	ck_ok(ckpt_local_open(fd, writable, &b));
	return b;
}

// ---- What is there

// The operation whose bytes the key has, or ABSENT. Anything else fails the test.
static int key_state(struct ckpt_objects *b, const char *key)
{
	CLEANUP_FREE char *data = NULL;
	char expected[BYTES_MAX];
	size_t len;
	int r = ckpt_objects_get_all(b, key, 1 << 20, (void **)&data, &len, NULL);

	if (r == -ENOENT)
		return ABSENT;
	ck_ok(r);
	for (size_t i = 0; i < OPS; i++)
		if (strcmp(script[i].key, key) == 0 && script[i].verb != REMOVE && script[i].bytes == len &&
		    memcmp(expected, data, content_of(i, expected)) == 0)
			return (int)i;
	ck_abort_msg("%s has %zu bytes that nobody wrote", key, len);
}

static int effect_of(size_t op)
{
	return script[op].verb == REMOVE ? ABSENT : (int)op;
}

static bool key_seen_before(size_t op)
{
	for (size_t i = 0; i < op; i++)
		if (strcmp(script[i].key, script[op].key) == 0)
			return true;
	return false;
}

// The key's state must be that after the acknowledged operations, or with the one that was on its way.
static void key_check(struct ckpt_objects *b, const char *key, const struct events *ev, size_t point)
{
	int old = ABSENT, new = ABSENT, state = key_state(b, key);

	for (size_t i = 0; i < OPS; i++) {
		if (strcmp(script[i].key, key) != 0 || ev->began[i] > point)
			continue;
		new = effect_of(i);
		if (ev->ended[i] <= point)
			old = new;
	}
	ck_assert_msg(state == old || state == new, "%s: has %d, not %d or %d", key, state, old, new);
}

static int count_key(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)key, (void)object;
	++*(size_t *)arg;
	return 0;
}

static void store_check(struct ckpt_objects *b, const struct events *ev, size_t point)
{
	size_t present = 0, listed = 0;

	for (size_t i = 0; i < OPS; i++) {
		if (key_seen_before(i))
			continue;
		key_check(b, script[i].key, ev, point);
		present += key_state(b, script[i].key) != ABSENT;
	}
	ck_ok(ckpt_objects_list(b, "", NULL, count_key, &listed));
	ck_assert_uint_eq(listed, present);
}

static void assert_swept(const char *dir)
{
	char path[PATH_MAX + 8];
	struct dirent *e;
	DIR *tmp;

	snprintf(path, sizeof(path), "%s/tmp", dir);
	tmp = opendir(path);
	ck_assert_ptr_nonnull(tmp);
	while ((e = readdir(tmp)))
		ck_assert_msg(e->d_name[0] == '.' || strcmp(e->d_name, "lock") == 0 || ckpt_spare_is(e->d_name),
			      "tmp/%s is left", e->d_name);
	closedir(tmp);
}

static void store_works(struct ckpt_objects *b)
{
	static const char *const keys[] = {"parts/new/1", "parts/1000/9", "m/new", "log/new"};

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		ck_ok(ckpt_objects_put(b, keys[i], "new", 3, NULL));
		ck_ok(ckpt_objects_remove(b, keys[i]));
	}
}

// ---- Cuts

static unsigned seeds(void)
{
	return ckpt_suite_setting("CKPT_CRASH_SEEDS", SEEDS_DEFAULT);
}

static void script_record(const char *dir, struct ckpt_disk **ret_disk, struct events *ret_events)
{
	struct ckpt_objects *b;

	ck_ok(ckpt_disk_begin(dir, ret_disk));
	b = local_open(dir, true);
	for (size_t i = 0; i < OPS; i++) {
		ret_events->began[i] = ckpt_disk_count(*ret_disk);
		ck_ok(op_run(b, i));
		ret_events->ended[i] = ckpt_disk_count(*ret_disk);
	}
	ckpt_objects_close(b);
	ckpt_disk_end(*ret_disk);
	ck_assert_uint_eq(ckpt_disk_unknown(*ret_disk), 0);
}

static void crash_check(struct ckpt_disk *disk, const struct events *ev, size_t point, unsigned seed, const char *out)
{
	struct ckpt_objects *b;

	ck_ok(ckpt_disk_crash(disk, point, seed, out));
	b = local_open(out, false);
	store_check(b, ev, point);
	ckpt_objects_close(b);
	b = local_open(out, true);
	store_check(b, ev, point);
	assert_swept(out);
	store_works(b);
	store_check(b, ev, point);
	ckpt_objects_close(b);
	ckpt_temp_empty(out, false);
}

START_TEST(acknowledged_changes_survive_a_power_cut_at_every_step)
{
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	struct events ev;

	ckpt_temp_dir(dir);
	ckpt_temp_dir(out);
	script_record(dir, &disk, &ev);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < seeds(); seed++)
			crash_check(disk, &ev, point, seed, out);
	ckpt_disk_free(disk);
}
END_TEST

// Runs two puts with call n of the first failing as if its process died there; the second's answer must hold.
static void second_put_check(const char *first, const char *second, uint64_t n, bool *ret_fired)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO, .sticky = true, .changes_only = true};
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_objects *b;
	struct ckpt_disk *disk;
	size_t point;
	int r;

	ckpt_temp_dir(dir);
	ckpt_temp_dir(out);
	ckpt_objects_close(local_open(dir, true));
	ck_ok(ckpt_disk_begin(dir, &disk));
	b = local_open(dir, true);
	ckpt_sysfault_begin(&fault);
	ckpt_objects_put(b, first, "same", 4, NULL);
	ckpt_sysfault_end(&fault);
	r = ckpt_objects_put(b, second, "same", 4, NULL);
	ck_assert(r == 0 || (r == -EEXIST && strcmp(first, second) == 0));
	point = ckpt_disk_count(disk);
	ckpt_objects_close(b);
	ckpt_disk_end(disk);
	for (unsigned seed = 0; seed < seeds(); seed++) {
		CLEANUP_FREE char *data = NULL;
		size_t len;

		ck_ok(ckpt_disk_crash(disk, point, seed, out));
		b = local_open(out, true);
		ck_ok(ckpt_objects_get_all(b, second, 100, (void **)&data, &len, NULL));
		ck_assert_uint_eq(len, 4);
		ck_assert_mem_eq(data, "same", 4);
		ckpt_objects_close(b);
		ckpt_temp_empty(out, false);
	}
	ckpt_disk_free(disk);
	*ret_fired = fault.count >= n;
}

START_TEST(a_put_after_another_died_at_any_step_is_durable)
{
	static const struct {
		const char *first, *second;
	} pairs[] = {
		{"parts/7/1", "parts/7/1"}, // lost to the dead one, which nothing made durable yet
		{"m/x", "m/x"},
		{"parts/7/1", "parts/7/2"}, // in a folder of which nothing made the name durable yet
	};

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		bool fired = true;

		for (uint64_t n = 1; fired; n++) {
			second_put_check(pairs[i].first, pairs[i].second, n, &fired);
			ck_assert_uint_lt(n, 100);
		}
	}
}
END_TEST

// A put or remove with call n of it failing as if its process died there, then a sync: what there is, or is not, stays so.
static void sync_check(const char *key, bool removes, uint64_t n, bool *ret_fired)
{
	struct ckpt_sysfault fault = {.at = n, .error = -EIO, .sticky = true, .changes_only = true};
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_object object;
	struct ckpt_objects *b;
	struct ckpt_disk *disk;
	size_t point;
	int is_there;

	ckpt_temp_dir(dir);
	ckpt_temp_dir(out);
	b = local_open(dir, true);
	if (removes)
		ck_ok(ckpt_objects_put(b, key, "x", 1, NULL));
	ckpt_objects_close(b);
	ck_ok(ckpt_disk_begin(dir, &disk));
	b = local_open(dir, true);
	ckpt_sysfault_begin(&fault);
	if (removes)
		ckpt_objects_remove(b, key);
	else
		ckpt_objects_put(b, key, "x", 1, NULL);
	ckpt_sysfault_end(&fault);
	ck_ok(ckpt_objects_sync(b, key));
	is_there = ckpt_objects_head(b, key, &object);
	point = ckpt_disk_count(disk);
	ckpt_objects_close(b);
	ckpt_disk_end(disk);
	for (unsigned seed = 0; seed < seeds(); seed++) {
		ck_ok(ckpt_disk_crash(disk, point, seed, out));
		b = local_open(out, true);
		ck_assert_int_eq(ckpt_objects_head(b, key, &object), is_there);
		ckpt_objects_close(b);
		ckpt_temp_empty(out, false);
	}
	ckpt_disk_free(disk);
	*ret_fired = fault.count >= n;
}

START_TEST(what_a_sync_found_survives)
{
	static const char *const keys[] = {"parts/7/1", "m/x"};

	for (size_t i = 0; i < 2 * ARRAY_LEN(keys); i++) {
		bool fired = true;

		for (uint64_t n = 1; fired; n++) {
			sync_check(keys[i / 2], i % 2, n, &fired);
			ck_assert_uint_lt(n, 100);
		}
	}
}
END_TEST

// ---- Threads

struct rival {
	struct ckpt_objects *b;
	struct ckpt_disk *disk;
	const char *key;
	size_t ended;
	int result;
};

static void *rival_put(void *arg)
{
	struct rival *rival = arg;

	rival->result = ckpt_objects_put(rival->b, rival->key, rival->key, strlen(rival->key), NULL);
	rival->ended = ckpt_disk_count(rival->disk);
	return NULL;
}

static void rivals_check(const struct rival *rivals, size_t count, size_t point, const char *out)
{
	struct ckpt_objects *b = local_open(out, true);

	for (size_t i = 0; i < count; i++) {
		CLEANUP_FREE char *data = NULL;
		size_t len = 0;
		int r = ckpt_objects_get_all(b, rivals[i].key, 100, (void **)&data, &len, NULL);

		if (rivals[i].ended > point && r == -ENOENT)
			continue;
		ck_ok(r);
		ck_assert_uint_eq(len, strlen(rivals[i].key));
		ck_assert_mem_eq(data, rivals[i].key, len);
	}
	ckpt_objects_close(b);
	ckpt_temp_empty(out, false);
}

START_TEST(puts_into_one_new_folder_at_once_survive_once_acknowledged)
{
	char dir[PATH_MAX], out[PATH_MAX];

	ckpt_temp_dir(out);
	for (int round = 0; round < 10; round++) {
		struct rival rivals[] = {{.key = "parts/9/1"}, {.key = "parts/9/2"}, {.key = "parts/9/1"}};
		pthread_t threads[ARRAY_LEN(rivals)];
		struct ckpt_objects *b;
		struct ckpt_disk *disk;

		ckpt_temp_dir(dir);
		ckpt_objects_close(local_open(dir, true));
		ck_ok(ckpt_disk_begin(dir, &disk));
		b = local_open(dir, true);
		for (size_t i = 0; i < ARRAY_LEN(rivals); i++) {
			rivals[i].b = b;
			rivals[i].disk = disk;
			pthread_create(&threads[i], NULL, rival_put, &rivals[i]);
		}
		for (size_t i = 0; i < ARRAY_LEN(rivals); i++)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(rivals[1].result, 0);
		ck_assert_int_eq(rivals[0].result + rivals[2].result, -EEXIST);
		ckpt_objects_close(b);
		ckpt_disk_end(disk);
		for (size_t point = 0; point <= ckpt_disk_count(disk); point++) {
			for (unsigned seed = 0; seed < MIN(seeds(), 8); seed++) {
				ck_ok(ckpt_disk_crash(disk, point, seed, out));
				rivals_check(rivals, ARRAY_LEN(rivals), point, out);
			}
		}
		ckpt_disk_free(disk);
	}
}
END_TEST

// ---- Failing calls

// An operation that met a fault: the state is the old one, or after -EIO perhaps the new; repeating it succeeds.
static void op_repeat(struct ckpt_objects *b, size_t op, int old, int r)
{
	int state = key_state(b, script[op].key);

	if (r == -EIO && state == effect_of(op)) {
		// Carried out, its answer lost. Repeating says so.
		r = op_run(b, op);
		ck_assert_int_eq(r, script[op].verb == PUT ? -EEXIST : -ENOENT);
		return;
	}
	ck_assert_msg(state == old, "%s: has %d, not %d, after %s", script[op].key, state, old, strerror(-r));
	ck_ok(op_run(b, op));
}

// The script with call n failing. Each operation ends with its effect, if need be by repeating it.
static void fault_run(uint64_t n, int error, bool *ret_fired)
{
	struct ckpt_sysfault fault = {.at = n, .error = error, .torn = true};
	char dir[PATH_MAX];
	struct ckpt_objects *b;

	ckpt_temp_dir(dir);
	b = local_open(dir, true);
	for (size_t i = 0; i < OPS; i++) {
		int old = key_state(b, script[i].key), r;

		ckpt_sysfault_begin(&fault);
		r = op_run(b, i);
		ckpt_sysfault_end(&fault);
		if (r < 0) {
			ck_assert_int_ge(fault.count, n);
			ck_assert(r == error || r == -EIO);
			op_repeat(b, i, old, r);
		}
		ck_assert_int_eq(key_state(b, script[i].key), effect_of(i));
	}
	ckpt_objects_close(b);
	ckpt_objects_close(local_open(dir, true));
	assert_swept(dir);
	ckpt_temp_empty(dir, true);
	*ret_fired = fault.count >= n;
}

START_TEST(a_failing_call_leaves_the_old_or_after_eio_the_new)
{
	for (int kind = 0; kind < ckpt_sysfault_kinds(); kind++) {
		bool fired = true;
		uint64_t n;

		for (n = 1; fired; n++)
			fault_run(n, ckpt_sysfault_error(kind, n), &fired);
		ck_assert_uint_gt(n, 100);
	}
}
END_TEST

START_TEST(a_failing_call_during_open_fails_the_open_or_does_no_harm)
{
	bool fired = true;

	for (uint64_t n = 1; fired; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = -ENOSPC};
		CLEANUP_FD int fd = ckpt_temp_fd();
		struct ckpt_objects *b;
		int r;

		ckpt_sysfault_begin(&fault);
		r = ckpt_local_open(fd, true, &b);
		ckpt_sysfault_end(&fault);
		ck_assert(r == 0 || r == -ENOSPC);
		if (r < 0)
			ck_ok(ckpt_local_open(fd, true, &b));
		store_works(b);
		ckpt_objects_close(b);
		fired = fault.count >= n;
	}
}
END_TEST

static Suite *local_suite(void)
{
	Suite *suite = suite_create("local crash");
	TCase *tcase = tcase_create("crash");

	tcase_set_timeout(tcase, 60);

	tcase_add_test(tcase, acknowledged_changes_survive_a_power_cut_at_every_step);
	tcase_add_test(tcase, a_put_after_another_died_at_any_step_is_durable);
	tcase_add_test(tcase, what_a_sync_found_survives);
	tcase_add_test(tcase, puts_into_one_new_folder_at_once_survive_once_acknowledged);
	tcase_add_test(tcase, a_failing_call_leaves_the_old_or_after_eio_the_new);
	tcase_add_test(tcase, a_failing_call_during_open_fails_the_open_or_does_no_harm);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(local_suite());
}
