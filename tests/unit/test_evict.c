// Copies that go from a work directory: which, and in which order; and that nothing goes which the remote, a directory here, has not.
#include "tests/support/hooks.h"
#include "tests/support/staged.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/arrival.h"
#include "core/remote/evict.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/stage.h"
#include "core/store/open.h"
#include "core/store/room.h"
#include "core/tier/cool.h"
#include "tests/support/save.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ALL UINT64_MAX
#define STEP_BYTES (64u << 10)

static struct ckpt_store *s;
static char remote_dir[PATH_MAX];

// --- The choice ---------------------------------------------------------------------------------------------------------

START_TEST(oldest_go_first_and_kept_ones_and_trash_before_them)
{
	static const struct ckpt_evict_row rows[] = {
		{.sequence = 5, .durable = true},
		{.sequence = 1, .durable = true, .stays = true},
		{.sequence = 2},
		{.sequence = 9, .durable = true, .deleted = true},
		{.sequence = 3, .durable = true, .open = true},
		{.sequence = 4, .durable = true},
		{.sequence = 8, .durable = true, .deleted = true},
		{.sequence = 7, .deleted = true},
		{.sequence = 11, .durable = true, .read_ns = 200},
		{.sequence = 12, .durable = true, .read_ns = 100},
	};
	static const size_t wanted[] = {6, 3, 9, 8, 5, 0};
	size_t order[ARRAY_LEN(rows)];

	ck_assert_uint_eq(ckpt_evict_order(rows, ARRAY_LEN(rows), order), ARRAY_LEN(wanted));
	ck_assert_mem_eq(order, wanted, sizeof(wanted));
	ck_assert_uint_eq(ckpt_evict_order(NULL, 0, order), 0);
}
END_TEST

START_TEST(room_is_left_for_the_next_step_raw_and_packed)
{
	ck_assert_uint_eq(ckpt_evict_target(100, 10), 80);
	ck_assert_uint_eq(ckpt_evict_target(100, 40), 50);
	ck_assert_uint_eq(ckpt_evict_target(100, 0), 100);
	ck_assert_uint_eq(ckpt_evict_target(UINT64_C(1) << 60, UINT64_C(1) << 60), UINT64_C(1) << 59);
}
END_TEST

// --- A round ------------------------------------------------------------------------------------------------------------

static void setup(void)
{
	char url[PATH_MAX + 8], dir[PATH_MAX], why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	ckpt_temp_dir(remote_dir);
	ckpt_temp_dir(dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	setenv("CKPTFS_WORK_DIR", dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s));
}

static void teardown(void)
{
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

// Of random bytes, which no other step has.
static struct ckpt_step *save(const char *name, unsigned seed)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);
	static char text[STEP_BYTES + 1];

	for (size_t i = 0; i < STEP_BYTES; i++) {
		seed = seed * 1103515245 + 12345;
		text[i] = (char)('!' + (seed >> 16) % 90);
	}
	close(ckpt_staged_put(step, "model.bin", text));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

static bool is_open(const struct ckpt_step *step)
{
	DIR *dir = opendir("/proc/self/fd");
	char path[PATH_MAX];
	struct dirent *d;
	bool is = false;

	while (dir && (d = readdir(dir)) && !is) {
		ssize_t n = readlinkat(dirfd(dir), d->d_name, path, sizeof(path) - 1);

		path[MAX(n, 0)] = '\0';
		is = strstr(path, step->session);
	}
	if (dir)
		closedir(dir);
	return is;
}

// A thread may still have a file of it open, for which a round passes it over.
static void push(const struct ckpt_step *step)
{
	struct ckpt_arrival a = {0};

	memcpy(a.session, step->session, sizeof(a.session));
	ck_ok(ckpt_arrival_wait(s, &a, &(struct ckpt_arrival_patience){.timeout_ns = INT64_C(20000000000)}));
	for (unsigned i = 0; i < 2000 && is_open(step); i++)
		ckpt_sys.sleep_ns(10000000);
}

static bool is_raw(const struct ckpt_step *step)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/tree/model.bin", step->session);
	if (!faccessat(s->sessions_fd, path, F_OK, 0))
		return true;
	snprintf(path, sizeof(path), "%s/model.bin", step->session);
	return !faccessat(s->sessions_fd, path, F_OK, 0);
}

static unsigned count_packs(void)
{
	CLEANUP_FREE char *path = NULL;
	struct dirent *d;
	unsigned count = 0;
	DIR *dir;

	ck_assert_int_ge(asprintf(&path, "%s/packs", s->path), 0);
	dir = opendir(path);
	while (dir && (d = readdir(dir)))
		count += *d->d_name != '.';
	if (dir)
		closedir(dir);
	return count;
}

static uint64_t round_of(uint64_t bytes)
{
	uint64_t freed;

	ck_ok(ckpt_evict_round(s, bytes, &freed, NULL, NULL));
	return freed;
}

START_TEST(what_the_remote_has_goes_and_is_read_from_there)
{
	struct ckpt_step *step = save("1000", 1);
	char have[STEP_BYTES + 1] = "";
	struct ckpt_manifest *m;
	uint32_t index;

	ck_assert_uint_eq(round_of(ALL), 0);
	ck_assert(is_raw(step));
	ck_ok(ckpt_store_work_behind(s));
	push(step);
	ck_assert_uint_eq(count_packs(), 1);
	ck_assert_uint_ge(round_of(ALL), STEP_BYTES);
	ck_assert(!is_raw(step));
	ck_assert_uint_eq(count_packs(), 0);
	m = ckpt_staged_manifest(step);
	ck_ok(ckpt_manifest_lookup(m, "model.bin", &index));
	ck_ok(ckpt_staged_read(step, m, index, have, STEP_BYTES));
	ck_assert_uint_eq(strlen(have), STEP_BYTES);
	ckpt_manifest_unref(m);
	ck_assert_uint_eq(round_of(ALL), 0);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(only_as_much_goes_as_is_asked_for)
{
	struct ckpt_step *first = save("1000", 1), *second = save("2000", 2);

	ck_ok(ckpt_store_work_behind(s));
	push(first);
	push(second);
	round_of(1);
	ck_assert(!is_raw(first));
	ck_assert(is_raw(second));
	ck_assert_uint_eq(count_packs(), 1);
	ckpt_step_unref(first);
	ckpt_step_unref(second);
}
END_TEST

// Cooled here, and not pushed: its bytes are in the pack alone, which another step that was pushed has, too.
START_TEST(pack_that_an_unpushed_step_needs_stays)
{
	const struct ckpt_tier_how how = {.pack_bytes = UINT64_C(1) << 20};
	struct ckpt_step *first = save("1000", 1), *second;
	struct ckpt_tier_done done;

	ck_ok(ckpt_store_work_behind(s));
	push(first);
	ckpt_remote_stop(*ckpt_remote_of(s));
	second = save("2000", 1);
	ck_ok(ckpt_cool_sealed(second, &how, &done));
	ck_assert(!is_raw(second) && !ckpt_remote_has(s, second->session));
	ck_assert_uint_eq(count_packs(), 1);
	round_of(ALL);
	ck_assert(!is_raw(first));
	ck_assert_uint_eq(count_packs(), 1);
	ckpt_step_unref(first);
	ckpt_step_unref(second);
}
END_TEST

START_TEST(pinned_and_open_steps_stay)
{
	struct ckpt_step *pinned = save("1000", 1), *open_one = save("2000", 2), *third = save("3000", 3);
	struct ckpt_manifest *m;
	uint32_t index;
	int fd;

	ck_ok(ckpt_pin(pinned, true));
	ck_ok(ckpt_store_work_behind(s));
	push(pinned);
	push(open_one);
	push(third);
	m = ckpt_staged_manifest(open_one);
	ck_ok(ckpt_manifest_lookup(m, "model.bin", &index));
	ck_ok(ckpt_step_open_raw(open_one, m, index, &fd));
	round_of(ALL);
	ck_assert(is_raw(pinned) && is_raw(open_one) && !is_raw(third));
	ck_assert_uint_eq(count_packs(), 2);
	close(fd);
	round_of(ALL);
	ck_assert(is_raw(pinned) && !is_raw(open_one));
	ck_assert_uint_eq(count_packs(), 1);
	ckpt_manifest_unref(m);
	ckpt_step_unref(pinned);
	ckpt_step_unref(open_one);
	ckpt_step_unref(third);
}
END_TEST

START_TEST(deleted_step_goes_and_can_be_had_back)
{
	struct ckpt_step *step = save("1000", 1);

	ck_ok(ckpt_store_work_behind(s));
	push(step);
	ck_ok(ckpt_delete(step));
	for (unsigned i = 0; i < 2000 && !ckpt_remote_has(s, step->session); i++) {
		ckpt_remote_wake(*ckpt_remote_of(s));
		ckpt_sys.sleep_ns(10000000);
	}
	ck_assert_uint_ge(round_of(ALL), STEP_BYTES);
	ck_assert(!is_raw(step));
	ck_ok(ckpt_undelete(step));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ckpt_step_unref(step);
}
END_TEST

static int short_room(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	(void)fd;
	*ret_free = 1000;
	*ret_total = UINT64_C(1) << 40;
	return 0;
}

// The trash is that of all nodes.
START_TEST(short_disk_drops_copies_and_expires_nothing)
{
	struct ckpt_step *step = save("1000", 1), *deleted = save("2000", 2);

	ck_ok(ckpt_store_work_behind(s));
	push(step);
	push(deleted);
	ck_ok(ckpt_delete(deleted));
	for (unsigned i = 0; i < 2000 && !ckpt_remote_has(s, deleted->session); i++) {
		ckpt_remote_wake(*ckpt_remote_of(s));
		ckpt_sys.sleep_ns(10000000);
	}
	ckpt_hook_set(room, short_room);
	for (unsigned i = 0; i < 1000 && (is_raw(step) || is_raw(deleted)); i++) {
		ckpt_room_expect(*ckpt_room_of(s), 0);
		ckpt_sys.sleep_ns(10000000);
	}
	ck_assert(!is_raw(step) && !is_raw(deleted));
	ck_assert_int_eq(ckpt_step_state(deleted), CKPT_STEP_DELETED);
	ck_ok(ckpt_undelete(deleted));
	ckpt_step_unref(step);
	ckpt_step_unref(deleted);
}
END_TEST

// Somebody has removed the pack there: ours is the last.
START_TEST(pack_that_the_remote_has_lost_stays)
{
	struct ckpt_step *step = save("1000", 1);
	char path[PATH_MAX + 8];

	ck_ok(ckpt_store_work_behind(s));
	push(step);
	snprintf(path, sizeof(path), "%s/packs", remote_dir);
	ckpt_temp_empty(path, 0);
	round_of(ALL);
	ck_assert_uint_eq(count_packs(), 1);
	ckpt_step_unref(step);
}
END_TEST

static void remove_manifests(void)
{
	char command[2 * PATH_MAX + 64];

	snprintf(command, sizeof(command), "rm -f '%s'/m/* '%s'/m/*", remote_dir, s->path);
	ck_assert_int_eq(system(command), 0);
}

// The others go, and it is told once. _i: what the remote does not have may need any pack.
START_TEST(step_whose_manifest_cannot_be_read_keeps_no_other)
{
	struct ckpt_step *damaged = ckpt_save_one(s, CKPT_SAVE_LARGE), *step = save("2000", 2), *last = save("3000", 3);
	struct ckpt_index *index = s->index;

	ck_ok(ckpt_store_work_behind(s));
	push(damaged);
	push(step);
	push(last);
	ckpt_store_rest(s);
	if (_i) {
		ckpt_step_unref(damaged);
		damaged = ckpt_save_find(s, CKPT_SAVE_LARGE);
		ck_ok(ckpt_amend_remove(damaged, "config.json"));
	}
	remove_manifests();
	s->index = NULL; // which has them, too
	round_of(1);
	ck_assert(!is_raw(step) && is_raw(last));
	round_of(ALL);
	ck_assert(!is_raw(last));
	ck_assert_uint_eq(count_packs() > 1, _i);
	ck_assert_uint_eq(ckpt_save_errors(s, "its copy here stays"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "damaged or missing"), 1);
	s->index = index;
	ckpt_step_unref(damaged);
	ckpt_step_unref(step);
	ckpt_step_unref(last);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("evict");
	TCase *tcase = tcase_create("choice");

	tcase_add_test(tcase, oldest_go_first_and_kept_ones_and_trash_before_them);
	tcase_add_test(tcase, room_is_left_for_the_next_step_raw_and_packed);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("round");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_the_remote_has_goes_and_is_read_from_there);
	tcase_add_test(tcase, only_as_much_goes_as_is_asked_for);
	tcase_add_test(tcase, pack_that_an_unpushed_step_needs_stays);
	tcase_add_test(tcase, pinned_and_open_steps_stay);
	tcase_add_test(tcase, deleted_step_goes_and_can_be_had_back);
	tcase_add_test(tcase, short_disk_drops_copies_and_expires_nothing);
	tcase_add_test(tcase, pack_that_the_remote_has_lost_stays);
	tcase_add_loop_test(tcase, step_whose_manifest_cannot_be_read_keeps_no_other, 0, 2);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
