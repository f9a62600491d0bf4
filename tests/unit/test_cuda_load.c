// Arrays of hot, cold and remote steps, loaded into memory of the host device: the bytes, the order, errors at each call.
#include "tests/support/cuda.h"

#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/store/open.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#define SMALL_POOL (UINT64_C(64) << 10) // buffers of 16 KiB
#define STEP "1000"

static struct ckpt_device_host *host;

enum place { HOT, COLD, REMOTE, PLACES };

static void save_into(struct ckpt *ckpt, const struct cuda_arrays *arrays, const char *format)
{
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	const struct ckpt_cuda_plan plan = cuda_plan(arrays, format);
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_save *save;

	ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, STEP, 0, &plan, why, &save), 0);
	ck_assert_int_eq(cuda_give_all(save, arrays, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_commit(save, NULL), 0);
	ckpt_cuda_save_free(save);
	ckpt_cuda_pool_free(pool);
}

static void cool_in(const char *directory)
{
	struct ckpt_tier_done done;
	struct ckpt_store *store;
	struct ckpt_step *step;

	ck_ok(ckpt_store_open(directory, CKPT_STORE_WRITE, NULL, &store));
	step = ckpt_step_find(store, "", STEP);
	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &(struct ckpt_tier_how){.pack_bytes = 1 << 20}, &done));
	ck_assert(step->version->is.packed);
	ckpt_step_unref(step);
	ckpt_store_close(store);
}

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

// A node of the remote, whose thread pulls and pushes.
static struct ckpt_store *open_node(char **ret_path, bool works)
{
	char why[CKPT_OBJECTS_WHY_MAX], dir[PATH_MAX];
	struct ckpt_store *store;

	if (!*ret_path) {
		ckpt_temp_dir(dir);
		setenv("CKPTFS_WORK_DIR", dir, 1);
		ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, ret_path, why));
	}
	ck_ok(ckpt_store_open(*ret_path, CKPT_STORE_WRITE, NULL, &store));
	if (works)
		ck_ok(ckpt_store_work_behind(store));
	return store;
}

static void close_node(struct ckpt_store *store)
{
	ckpt_store_close(store);
}

static bool is_idle(struct ckpt_store *store)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(store), &q);
	return !q.steps;
}

static bool has_step(struct ckpt_store *store)
{
	struct ckpt_step *step = ckpt_step_find(store, "", STEP);
	bool has = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return has;
}

static void wait_until(bool (*is_so)(struct ckpt_store *store), struct ckpt_store *store)
{
	for (unsigned tries = 0; !is_so(store); tries++) {
		ck_assert_uint_lt(tries, 2000);
		ckpt_remote_wake(*ckpt_remote_of(store));
		ckpt_sys.sleep_ns(10000000);
	}
}

// A store that has the step, in this place. Of a remote one this node has no byte of an array.
static struct ckpt *store_with(enum place where, const struct cuda_arrays *arrays, const char *format)
{
	CLEANUP_FREE char *first = NULL, *second = NULL;
	char directory[PATH_MAX];
	struct ckpt_store *node;
	struct ckpt *ckpt;

	if (where != REMOTE) {
		ckpt_temp_dir(directory);
		ck_ok(ckpt_open(directory, CKPT_CREATE, &ckpt));
		save_into(ckpt, arrays, format);
		if (where == COLD)
			cool_in(directory);
		return ckpt;
	}
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	close_node(open_node(&first, false));
	ck_ok(ckpt_open(first, 0, &ckpt));
	save_into(ckpt, arrays, format);
	ckpt_close(ckpt);
	node = open_node(&first, true);
	wait_until(is_idle, node);
	close_node(node);
	node = open_node(&second, true);
	wait_until(has_step, node);
	close_node(node);
	ck_ok(ckpt_open(second, 0, &ckpt));
	return ckpt;
}

// Memory for all arrays, without their bytes.
static struct cuda_arrays empty_like(size_t count, uint64_t scale)
{
	struct cuda_arrays t = cuda_arrays_new(count, scale);

	cuda_fill_all(&t, 5);
	return t;
}

static bool has_bytes(const struct cuda_arrays *t, unsigned seed)
{
	for (size_t i = 0; i < t->count; i++)
		for (uint64_t k = 0; k < t->bytes[i]; k++)
			if (t->at[i][k] != cuda_byte(i, k, seed))
				return false;
	return true;
}

static int ask_all(struct ckpt_cuda_load *load, const struct cuda_arrays *t, void *stream);
static int load_once(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const struct cuda_arrays *t,
		     char why[CKPT_CUDA_WHY_MAX]);

// Without the remote there is nothing to load.
static void check_is_remote(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const struct cuda_arrays *t)
{
	char why[CKPT_CUDA_WHY_MAX], *away;

	ck_assert_int_gt(asprintf(&away, "%s.away", remote_dir), 0);
	ck_assert_int_eq(rename(remote_dir, away), 0);
	ck_assert_int_ne(load_once(pool, ckpt, t, why), 0);
	ck_assert_int_eq(rename(away, remote_dir), 0);
	free(away);
}

static int ask_all(struct ckpt_cuda_load *load, const struct cuda_arrays *t, void *stream)
{
	int rc = 0;

	for (size_t i = t->count; i-- > 0 && !rc;)
		rc = ckpt_cuda_load_array(load, t->arrays[i].name, t->at[i], t->bytes[i], stream);
	return rc;
}

START_TEST(what_was_saved_is_loaded)
{
	static const char *const formats[] = {"raw", "safetensors", "dcp"};
	struct cuda_arrays saved = cuda_arrays_new(50, 9000), t = empty_like(50, 9000);
	struct ckpt *ckpt = store_with((enum place)(_i % PLACES), &saved, formats[_i / PLACES % 3]);
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, _i / PLACES < 3 ? 0 : CKPT_CUDA_DIRECT, &host);
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_load *load;

	ck_assert_uint_gt(cuda_total(&t), 10 * SMALL_POOL);
	if (_i % PLACES == REMOTE)
		check_is_remote(pool, ckpt, &t);
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, "latest", why, &load), 0);
	ck_assert_int_eq(ask_all(load, &t, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_loaded(load), 0);
	ck_assert(has_bytes(&t, 0));
	ckpt_cuda_load_free(load);
	ck_assert_uint_le(ckpt_device_host_pinned(host), SMALL_POOL);
	ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&saved);
	cuda_arrays_free(&t);
}
END_TEST

struct kernel {
	struct cuda_gate gate;
	const struct cuda_arrays *t;
	bool had_old;
};

static void look(void *arg)
{
	struct kernel *k = arg;

	cuda_gate_pass(&k->gate);
	k->had_old = has_bytes(k->t, 5);
}

// Calls of the device when four readers wait for the stream: for each array that has bytes is_capturing, device_of, event_new and record;
// for each reader stream_new, wait_for, copy_in, event_new and record.
static uint64_t calls_until_stuck(const struct cuda_arrays *t)
{
	uint64_t calls = 4 * 5;

	for (size_t i = 0; i < t->count; i++)
		calls += t->bytes[i] ? 4 : 0;
	return calls;
}

// Earlier work of the stream reads the memory as it was. A reader that does not wait makes further calls behind its first copy.
START_TEST(memory_is_written_behind_the_streams_work)
{
	struct cuda_arrays saved = cuda_arrays_new(20, 3000), t = empty_like(20, 3000);
	struct ckpt *ckpt = store_with(HOT, &saved, "raw");
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	struct ckpt_device *d = ckpt_device_host_as_device(host);
	struct kernel k = {.gate = CUDA_GATE_INIT, .t = &t};
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_load *load;
	void *stream;

	ck_assert_uint_eq(pool->buffer_count, 4);
	ck_assert_int_eq(d->ops->stream_new(d, 1, &stream), 0);
	for (size_t i = 0; i < t.count; i++)
		ckpt_device_host_place(host, t.at[i], t.bytes[i], 1);
	ck_assert_int_eq(ckpt_device_host_launch(host, stream, look, &k), 0);
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, STEP, why, &load), 0);
	ckpt_device_host_fail(host, 0, false);
	ck_assert_int_eq(ask_all(load, &t, stream), 0);
	while (ckpt_device_host_calls(host) < calls_until_stuck(&t))
		sched_yield();
	cuda_gate_open(&k.gate);
	ck_assert_int_eq(ckpt_cuda_loaded(load), 0);
	ck_assert(has_bytes(&t, 0));
	ckpt_cuda_load_free(load);
	d->ops->stream_free(d, stream);
	ck_assert(k.had_old);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&saved);
	cuda_arrays_free(&t);
}
END_TEST

START_TEST(plain_memory_needs_no_device_but_that_of_the_pool)
{
	struct cuda_arrays saved = cuda_arrays_new(20, 3000), t = empty_like(20, 3000);
	struct ckpt *ckpt = store_with(HOT, &saved, "raw");
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	struct ckpt_cuda_load *load;

	ck_assert_int_eq(ckpt_device_host_new(0, &host), 0);
	ckpt_device_host_set_current(host, 3);
	ck_assert_int_eq(ckpt_pool_new(ckpt_device_host_as_device(host), SMALL_POOL, 0, why, &pool), 0);
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, STEP, why, &load), 0);
	ck_assert_int_eq(ask_all(load, &t, NULL), 0);
	ck_assert_int_eq(ckpt_cuda_loaded(load), 0);
	ckpt_cuda_load_free(load);
	ck_assert(has_bytes(&t, 0));
	ck_assert_uint_eq(ckpt_device_host_touched(host), 1u << 3);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&saved);
	cuda_arrays_free(&t);
}
END_TEST

START_TEST(arrays_that_the_step_does_not_have_are_refused)
{
	struct cuda_arrays saved = cuda_arrays_new(20, 3000);
	struct ckpt *ckpt = store_with(HOT, &saved, "raw");
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_load *load;

	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, "77", why, &load), -ENOENT);
	ck_assert_str_eq(why, "77: it cannot be loaded: No such file or directory");
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, STEP, why, &load), 0);
	ck_assert_int_eq(ckpt_cuda_load_array(load, "none", saved.at[0], saved.bytes[0], NULL), -ENOENT);
	ck_assert_int_eq(ckpt_cuda_load_array(load, saved.arrays[0].name, saved.at[0], saved.bytes[0] - 1, NULL),
			 -EINVAL);
	ck_assert_int_eq(ckpt_cuda_load_array(load, saved.arrays[0].name, NULL, saved.bytes[0], NULL), -EINVAL);
	ckpt_device_host_capture(host, true);
	ck_assert_int_eq(ckpt_cuda_load_array(load, saved.arrays[0].name, saved.at[0], saved.bytes[0], NULL), -EBUSY);
	ckpt_device_host_capture(host, false);
	ck_assert_int_eq(ckpt_cuda_load_array(load, saved.arrays[0].name, saved.at[0], saved.bytes[0], NULL), 0);
	ck_assert_int_eq(ckpt_cuda_loaded(load), 0);
	ckpt_cuda_load_free(load);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&saved);
}
END_TEST

// --- Errors at each call ----------------------------------------------------------------------------------------------------

static int load_once(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const struct cuda_arrays *t,
		     char why[CKPT_CUDA_WHY_MAX])
{
	struct ckpt_cuda_load *load;
	int rc = ckpt_cuda_load_step(pool, ckpt, STEP, why, &load), asked;

	if (rc)
		return rc;
	asked = ask_all(load, t, NULL);
	rc = ckpt_cuda_loaded(load);
	if (asked)
		ck_assert_int_eq(rc, asked);
	snprintf(why, CKPT_CUDA_WHY_MAX, "%s", ckpt_cuda_load_why(load));
	ckpt_cuda_load_free(load);
	return rc;
}

START_TEST(each_call_of_the_device_may_fail)
{
	struct cuda_arrays saved = cuda_arrays_new(8, 9000), t = empty_like(8, 9000);
	struct ckpt *ckpt = store_with(HOT, &saved, "raw");
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, 0, &host);
	char why[CKPT_CUDA_WHY_MAX];
	uint64_t n = 1;
	int rc;

	for (;; n++) {
		ckpt_device_host_fail(host, n, _i);
		rc = load_once(pool, ckpt, &t, why);
		if (!rc)
			break;
		ck_assert_int_eq(rc, -EIO);
		ck_assert_ptr_nonnull(strstr(why, "failed on demand"));
		ck_assert_uint_eq(pool->free_count, pool->buffer_count);
	}
	ck_assert_uint_gt(n, 30);
	ck_assert(has_bytes(&t, 0));
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&saved);
	cuda_arrays_free(&t);
}
END_TEST

START_TEST(each_call_of_the_disk_may_fail)
{
	struct cuda_arrays saved = cuda_arrays_new(8, 9000), t = empty_like(8, 9000);
	struct ckpt *ckpt = store_with(HOT, &saved, "raw");
	struct ckpt_cuda_pool *pool = cuda_pool(SMALL_POOL, 0, _i % 2 ? CKPT_CUDA_DIRECT : 0, &host);
	char why[CKPT_CUDA_WHY_MAX];
	uint64_t n = 1, failed = 0;
	int rc;

	for (;; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = ckpt_sysfault_error(_i / 2, n)};

		cuda_fill_all(&t, 5);
		ckpt_sysfault_begin(&fault);
		rc = load_once(pool, ckpt, &t, why);
		ckpt_sysfault_end(&fault);
		ck_assert_uint_eq(pool->free_count, pool->buffer_count);
		if (rc)
			ck_assert_str_ne(why, "");
		else // also where a call may fail without harm: the bytes are right
			ck_assert(has_bytes(&t, 0));
		failed += rc != 0;
		if (fault.count < n)
			break;
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_gt(failed, 10);
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
	cuda_arrays_free(&saved);
	cuda_arrays_free(&t);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_load");
	TCase *t = tcase_create("cuda_load");

	tcase_add_loop_test(t, what_was_saved_is_loaded, 0, 2 * 3 * PLACES);
	tcase_add_test(t, memory_is_written_behind_the_streams_work);
	tcase_add_test(t, plain_memory_needs_no_device_but_that_of_the_pool);
	tcase_add_test(t, arrays_that_the_step_does_not_have_are_refused);
	tcase_add_loop_test(t, each_call_of_the_device_may_fail, 0, 2);
	tcase_add_loop_test(t, each_call_of_the_disk_may_fail, 0, 2 * ckpt_sysfault_kinds());
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
