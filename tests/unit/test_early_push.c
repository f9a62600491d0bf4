// Packs that are sent before a commit, here to a directory: they arrive, are not sent twice, and give way where they must.
#include "core/remote/early_push.h"
#include "tests/support/staged.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/closed.h"
#include "core/cold/garbage.h"
#include "core/jobs/jobs.h"
#include "core/remote/early_list.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/amend.h"
#include "core/save/move.h"
#include "core/save/reopen.h"
#include "core/save/session.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/store/open.h"
#include "core/store/room.h"
#include "tests/support/save.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES ((size_t)9 << 20)
#define NAP_NS INT64_C(5000000)

static char remote_dir[PATH_MAX], work_dir[PATH_MAX], url[PATH_MAX + 8];
static struct ckpt_store *store;
static uint8_t *bytes;

static int64_t (*real_mono_ns)(void);
static int64_t ahead_ns; // atomic

static int64_t mono_ahead(void)
{
	return real_mono_ns() + __atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);
}

// All that is due some time is due now.
static void advance(void)
{
	__atomic_add_fetch(&ahead_ns, INT64_C(10000000000), __ATOMIC_RELAXED);
}

static int (*real_room)(int dirfd, uint64_t *ret_free, uint64_t *ret_all);
static bool is_full; // atomic

static int room(int dirfd, uint64_t *ret_free, uint64_t *ret_all)
{
	int rc = real_room(dirfd, ret_free, ret_all);

	if (__atomic_load_n(&is_full, __ATOMIC_RELAXED)) {
		*ret_free = 20 << 20;
		*ret_all = 1 << 30;
	}
	return rc;
}

static ssize_t (*real_pread)(int fd, void *buf, size_t len, off_t at);
static size_t read_bytes; // of files that are packed; atomic

static ssize_t counting_pread(int fd, void *buf, size_t len, off_t at)
{
	if (len == CKPT_CHUNK_BYTES)
		__atomic_add_fetch(&read_bytes, len, __ATOMIC_RELAXED);
	return real_pread(fd, buf, len, at);
}

// While there are no other threads yet.
static void hook(void)
{
	real_mono_ns = ckpt_sys.mono_ns;
	ckpt_sys.mono_ns = mono_ahead;
	real_room = ckpt_sys.room;
	ckpt_sys.room = room;
	real_pread = ckpt_sys.pread;
	ckpt_sys.pread = counting_pread;
}

static void open_at_rest(void)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &store));
}

static void open_store(void)
{
	open_at_rest();
	ck_ok(ckpt_store_work_behind(store));
}

static void close_store(void)
{
	ckpt_save_settle_all(store);
	ckpt_store_close(store);
}

static void setup_closed(void)
{
	hook();
	ckpt_temp_dir(remote_dir);
	ckpt_temp_dir(work_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	setenv("CKPTFS_WORK_DIR", work_dir, 1);
	bytes = malloc(BYTES);
	ck_ok(ckpt_sys.random(bytes, BYTES));
}

static void setup(void)
{
	setup_closed();
	open_store();
}

static void teardown(void)
{
	close_store();
	free(bytes);
}

static void write_file(struct ckpt_step *step, const char *name)
{
	struct ckpt_writer w = {0};
	struct statx stx;

	w.fd = ckpt_staged_put(step, name, "");
	ck_assert_int_eq(statx(w.fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx), 0);
	w.ino = ckpt_store_ino(&stx);
	ckpt_stage_writer_add(step, &w);
	ck_assert_int_eq(ckpt_sys.pwrite(w.fd, bytes, BYTES, 0), (ssize_t)BYTES);
	ckpt_stage_writer_remove(&w);
	close(w.fd);
}

static unsigned packs_in(const char *top)
{
	char path[PATH_MAX + 8];
	unsigned count = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/packs", top);
	d = opendir(path);
	for (const struct dirent *e; d && (e = readdir(d));)
		count += *e->d_name != '.';
	if (d)
		closedir(d);
	return count;
}

static void await_packs(unsigned count)
{
	while (packs_in(remote_dir) < count)
		ckpt_sys.sleep_ns(NAP_NS);
}

static void await_push(void)
{
	struct ckpt_remote_queue q;

	do {
		ckpt_remote_wake(*ckpt_remote_of(store));
		ckpt_sys.sleep_ns(NAP_NS);
		ckpt_remote_queue(*ckpt_remote_of(store), &q);
	} while (q.steps);
}

START_TEST(packs_arrive_before_the_commit_and_none_after_it)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");

	write_file(step, "model");
	await_packs(1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	await_push();
	ck_assert_uint_eq(packs_in(remote_dir), 1);
	ck_assert_uint_eq(packs_in(store->path), 1);
	ck_assert_uint_eq(ckpt_garbage_packs(store), 0);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(step_that_is_given_up_leaves_garbage_that_is_known)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");

	write_file(step, "model");
	await_packs(1);
	ck_ok(ckpt_stage_abort(step, false));
	while (!ckpt_garbage_packs(store))
		ckpt_sys.sleep_ns(NAP_NS);
	ck_assert_uint_eq(ckpt_garbage_packs(store), 1);
	ckpt_step_unref(step);
}
END_TEST

// The step before it is complete: as another process finds it after the end of this one, and after its kill.
START_TEST(next_process_knows_the_garbage_too)
{
	struct ckpt_early_list list = {0};
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");
	char path[PATH_MAX + 8];

	write_file(step, "model");
	await_packs(1);
	ckpt_step_unref(step);
	snprintf(path, sizeof(path), "%s/early", store->path);
	if (_i) { // what a kill leaves
		ck_assert_int_eq(access(path, F_OK), 0);
		ckpt_early_list_load(&list, store);
		ck_assert_uint_eq(list.count, 1);
		ck_assert_uint_eq(ckpt_garbage_packs(store), 1);
		free(list.ids);
		return;
	}
	close_store();
	ck_assert_int_ne(access(path, F_OK), 0);
	open_store();
	ck_ok(ckpt_garbage_load(store)); // as a collection does
	ck_assert_uint_eq(ckpt_garbage_packs(store), 1);
}
END_TEST

// Each file is taken from the queue, and its descriptor closed, whether it is packed or not.
static void await_queue(void)
{
	bool any = true;

	while (any) {
		ckpt_lock_take(&ckpt_closed_of(store)->lock);
		any = ckpt_closed_of(store)->first;
		ckpt_lock_drop(&ckpt_closed_of(store)->lock);
		ckpt_sys.sleep_ns(NAP_NS);
	}
}

START_TEST(nothing_is_packed_while_room_is_short)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");

	await_push(); // the remote is found to be good
	__atomic_store_n(&is_full, true, __ATOMIC_RELAXED);
	write_file(step, "model");
	await_queue();
	write_file(step, "more"); // the first one is done with when this one is taken
	await_queue();
	ck_assert_uint_eq(packs_in(store->path), 0);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	await_push();
	ck_assert_uint_eq(packs_in(remote_dir), 1);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(save_that_finds_no_room_on_the_disk_gets_that_of_unfinished_steps)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");

	write_file(step, "model");
	await_packs(1);
	ck_assert_uint_eq(packs_in(store->path), 1);
	__atomic_store_n(&is_full, true, __ATOMIC_RELAXED);
	ck_assert(ckpt_room_make(*ckpt_room_of(store), 0));
	ck_assert_uint_eq(packs_in(store->path), 0);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	await_push();
	ck_assert_uint_eq(packs_in(store->path), 1);
	ckpt_step_unref(step);
}
END_TEST

static void run_due(void)
{
	while (ckpt_jobs_run_next(store->jobs, NULL))
		;
}

static void push_by_hand(void)
{
	struct ckpt_remote_queue q;

	do {
		ckpt_remote_wake(*ckpt_remote_of(store));
		run_due();
		ckpt_remote_queue(*ckpt_remote_of(store), &q);
	} while (q.due_bytes);
}

// The step that takes the name of the busy one waits for its new name, which the remote does not have.
static struct ckpt_step *take_its_name(struct ckpt_step *busy)
{
	CLEANUP_FD int dirfd = ckpt_session_open(busy), fd = -1;
	char raw[CKPT_AMENDING_RAW_MAX];

	push_by_hand();
	ck_ok(ckpt_amending_raw_name(raw));
	fd = ckpt_sys.open(dirfd, raw, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, "edit", 4, 0), 4);
	ck_ok(ckpt_amend_replace(busy, "model", raw));
	ck_ok(ckpt_move(busy, "", "901"));
	return ckpt_staged_one(store, "900", "model", "text of another");
}

// A step that is being changed may wait for long. Other steps do not wait for it.
START_TEST(step_that_is_put_off_holds_up_none)
{
	struct ckpt_step *busy, *changed, *step, *waits = NULL;
	struct ckpt_writer w = {0};
	struct ckpt_remote_queue q;
	int fd;

	ckpt_jobs_by_hand(store->jobs);
	busy = ckpt_staged_one(store, "900", "model", "text");
	if (_i)
		waits = take_its_name(busy);
	ck_ok(ckpt_reopen(busy, &changed));
	fd = ckpt_staged_put(changed, "more", "");
	ckpt_staged_writer(changed, &w, fd);
	push_by_hand();
	ckpt_remote_queue(*ckpt_remote_of(store), &q);
	ck_assert_uint_eq(q.steps, _i ? 2 : 1);
	ck_assert(q.bytes);
	step = ckpt_staged_begin(store, "1000");
	write_file(step, "model");
	while (!packs_in(remote_dir)) {
		run_due();
		ckpt_sys.sleep_ns(NAP_NS);
	}
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_step_unref(changed);
	ckpt_step_unref(busy);
	ckpt_step_unref(waits);
	ckpt_step_unref(step);
}
END_TEST

// --- Turn by turn, without a push -----------------------------------------------------------------------------------------

static struct ckpt_early_push *early;
static enum ckpt_early_push_may may;
static int64_t progressed_ns;

static enum ckpt_early_push_may as_set(void *arg)
{
	(void)arg;
	return may;
}

static void setup_by_hand(void)
{
	const struct ckpt_early_push_of of = {.may = as_set, .progressed_ns = &progressed_ns};
	struct ckpt_early_push_of of_store = of;

	setup_closed();
	open_at_rest();
	ckpt_jobs_by_hand(store->jobs);
	store->settings.pack_bytes = 1 << 20; // a pack for each chunk
	of_store.store = store;
	may = CKPT_EARLY_PUSH_GO;
	ck_ok(ckpt_early_push_new(&of_store, &early));
}

static void teardown_by_hand(void)
{
	ckpt_early_push_stop(early);
	ckpt_early_push_free(early);
	ckpt_store_close(store);
	free(bytes);
}

static void renew_bytes(void)
{
	ck_ok(ckpt_sys.random(bytes, BYTES));
}

START_TEST(packs_that_are_given_back_are_gone_and_the_step_is_left_to_its_commit)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");

	write_file(step, "model");
	run_due();
	ck_assert_uint_gt(packs_in(store->path), 1);
	ck_assert_uint_ge(ckpt_early_push_give_back(early), BYTES);
	ck_assert_uint_eq(packs_in(store->path), 0);
	ck_assert_uint_eq(ckpt_early_push_give_back(early), 0);
	renew_bytes();
	write_file(step, "more");
	run_due();
	ck_assert_uint_eq(packs_in(store->path), 0);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
}
END_TEST

static const struct ckpt_objects_ops *ops_here;

static int full_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		    struct ckpt_object *ret_object)
{
	return __atomic_load_n(&is_full, __ATOMIC_RELAXED) ? -ENOSPC
							   : ops_here->put(o, key, data, len, frees, ret_object);
}

// As for a disk on which other programs write, too: only the write shows that it is full.
static void fill_at_write(void)
{
	static struct ckpt_objects_ops ops;
	struct ckpt_objects *here = ckpt_near_here(store->objects);

	ops_here = here->ops;
	ops = *here->ops;
	ops.put = full_put;
	here->ops = &ops;
	ckpt_sys.room = real_room;
}

// The room job, or an eviction, finds the disk full, too.
START_TEST(packs_that_were_dropped_for_want_of_room_are_not_given_back_again)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");

	write_file(step, "model");
	run_due();
	ck_assert_uint_gt(packs_in(store->path), 1);
	if (_i)
		fill_at_write();
	__atomic_store_n(&is_full, true, __ATOMIC_RELAXED);
	renew_bytes();
	write_file(step, "more");
	run_due();
	ck_assert_uint_eq(packs_in(store->path), 0);
	ck_assert_uint_eq(ckpt_early_push_give_back(early), 0);
	__atomic_store_n(&is_full, false, __ATOMIC_RELAXED);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
}
END_TEST

static unsigned open_files_of(const struct ckpt_step *step)
{
	char target[PATH_MAX];
	unsigned count = 0;
	DIR *d = opendir("/proc/self/fd");

	for (const struct dirent *e; (e = readdir(d));) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

		target[MAX(n, 0)] = '\0';
		count += strstr(target, step->session) && strstr(target, "/model");
	}
	closedir(d);
	return count;
}

static void commit(struct ckpt_step *step)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}

static void remove_model(struct ckpt_step *step)
{
	ck_assert_int_eq(unlinkat(step->dirfd, "model", 0), 0);
}

// A descriptor keeps the blocks of a removed file, and an eviction from the step.
START_TEST(queue_lets_go_of_files_that_are_not_packed_any_more)
{
	void (*const acts[])(struct ckpt_step * step) = {commit, remove_model};
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");
	int refs;

	may = CKPT_EARLY_PUSH_WAIT;
	refs = __atomic_load_n(&step->refs, __ATOMIC_RELAXED);
	write_file(step, "model");
	run_due();
	ck_assert_uint_eq(open_files_of(step), 1); // it may be packed yet
	acts[_i % 2](step);
	if (_i < 2) {
		advance();
		run_due();
	} else {
		ck_assert_uint_eq(ckpt_early_push_give_back(early), 0);
	}
	ck_assert_uint_eq(open_files_of(step), 0);
	if (acts[_i % 2] == remove_model)
		ck_assert_int_eq(__atomic_load_n(&step->refs, __ATOMIC_RELAXED), refs);
	ckpt_step_unref(step);
}
END_TEST

// The one that pushes may never come to it: the queue says so.
START_TEST(committed_step_goes_once_nothing_is_to_be_pushed)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");
	struct ckpt_early_step *taken;

	write_file(step, "model");
	run_due();
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	may = _i ? CKPT_EARLY_PUSH_GO : CKPT_EARLY_PUSH_WAIT;
	for (int i = 0; i < 3; i++) {
		advance();
		run_due();
	}
	taken = ckpt_early_push_take(early, step->session);
	ck_assert_int_eq(taken != NULL, !_i);
	ck_assert_int_eq(ckpt_early_step_packing(taken) != NULL, !_i);
	ckpt_early_step_free(taken);
	ckpt_step_unref(step);
}
END_TEST

// --- A remote that is far away ----------------------------------------------------------------------------------------------

static struct ckpt_objects_ops far;
static const struct ckpt_objects_ops *real_ops;
static bool over; // atomic

static int far_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		   struct ckpt_object *ret_object)
{
	return __atomic_load_n(&over, __ATOMIC_RELAXED) ? -EACCES : real_ops->put(o, key, data, len, frees, ret_object);
}

static void go_far(void)
{
	struct ckpt_objects *there = ckpt_near_there(store->objects);

	real_ops = there->ops;
	far = *there->ops;
	far.is_far = true;
	far.put = far_put;
	there->ops = &far;
}

// The first file after the failure is known is not even begun.
START_TEST(after_a_failed_upload_nothing_of_the_step_is_packed)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");
	char name[16];

	go_far();
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; !i || __atomic_load_n(&read_bytes, __ATOMIC_RELAXED); i++) {
		renew_bytes();
		__atomic_store_n(&read_bytes, 0, __ATOMIC_RELAXED);
		snprintf(name, sizeof(name), "%u", i);
		write_file(step, name);
		run_due();
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
}
END_TEST

static unsigned threads(void)
{
	unsigned count = 0;
	DIR *d = opendir("/proc/self/task");

	for (const struct dirent *e; (e = readdir(d));)
		count += *e->d_name != '.';
	closedir(d);
	return count;
}

START_TEST(threads_end_while_nothing_is_sent)
{
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");
	unsigned before = threads();

	go_far();
	write_file(step, "model");
	run_due();
	ck_assert_uint_gt(threads(), before);
	await_packs(packs_in(store->path));
	while (threads() > before) { // an answer may be under way
		advance();
		run_due();
	}
	renew_bytes();
	write_file(step, "more");
	run_due();
	await_packs(packs_in(store->path));
	ckpt_step_unref(step);
}
END_TEST

static void *close_files(void *arg)
{
	struct ckpt_writer w = {.ino = 4711};

	w.fd = ckpt_staged_put(arg, "model", "");
	ck_assert_int_eq(ckpt_sys.ftruncate(w.fd, CKPT_CLOSED_BYTES_MIN), 0);
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		ckpt_stage_writer_add(arg, &w);
		ckpt_stage_writer_remove(&w);
	}
	close(w.fd);
	return NULL;
}

START_TEST(files_are_closed_while_it_ends)
{
	struct ckpt_early_push_of of = {.may = as_set, .progressed_ns = &progressed_ns, .store = store};
	struct ckpt_step *step = ckpt_staged_begin(store, "1000");
	pthread_t thread;

	may = CKPT_EARLY_PUSH_NOT;
	ck_assert_int_eq(pthread_create(&thread, NULL, close_files, step), 0);
	for (int i = 0; i < 300; i++) {
		ckpt_early_push_stop(early);
		ckpt_early_push_free(early);
		ck_ok(ckpt_early_push_new(&of, &early));
		run_due();
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(step_of_which_nothing_was_sent_is_taken_as_none)
{
	ck_assert_ptr_null(ckpt_early_push_take(NULL, "x"));
	ck_assert_ptr_null(ckpt_early_step_packing(NULL));
	ck_assert_ptr_null(ckpt_early_step_uploads(NULL));
	ck_assert_uint_eq(ckpt_early_push_give_back(NULL), 0);
	ckpt_early_step_free(NULL);
	ckpt_early_push_stop(NULL);
	ckpt_early_push_free(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("early_push");
	TCase *tcase = tcase_create("early_push");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, packs_arrive_before_the_commit_and_none_after_it);
	tcase_add_test(tcase, step_that_is_given_up_leaves_garbage_that_is_known);
	tcase_add_loop_test(tcase, next_process_knows_the_garbage_too, 0, 2);
	tcase_add_test(tcase, nothing_is_packed_while_room_is_short);
	tcase_add_test(tcase, save_that_finds_no_room_on_the_disk_gets_that_of_unfinished_steps);
	tcase_add_loop_test(tcase, step_that_is_put_off_holds_up_none, 0, 2);
	tcase_add_test(tcase, step_of_which_nothing_was_sent_is_taken_as_none);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("by hand");
	tcase_add_checked_fixture(tcase, setup_by_hand, teardown_by_hand);
	tcase_add_test(tcase, packs_that_are_given_back_are_gone_and_the_step_is_left_to_its_commit);
	tcase_add_loop_test(tcase, packs_that_were_dropped_for_want_of_room_are_not_given_back_again, 0, 2);
	tcase_add_loop_test(tcase, queue_lets_go_of_files_that_are_not_packed_any_more, 0, 4);
	tcase_add_loop_test(tcase, committed_step_goes_once_nothing_is_to_be_pushed, 0, 2);
	tcase_add_test(tcase, after_a_failed_upload_nothing_of_the_step_is_packed);
	tcase_add_test(tcase, threads_end_while_nothing_is_sent);
	tcase_add_test(tcase, files_are_closed_while_it_ends);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
