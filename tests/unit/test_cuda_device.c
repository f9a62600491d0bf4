// GPUs: what there is, in one line, also on machines without one; and a small save and load on the first of them, where there is one.
#include "tests/support/cuda.h"

#include <stdio.h>

START_TEST(what_there_is_is_one_line)
{
	char text[CKPT_CUDA_WHY_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	int rc = ckpt_cuda_describe(text);

	ck_assert_str_ne(text, "");
	ck_assert_ptr_null(strchr(text, '\n'));
	if (!rc)
		return;
	ck_assert_int_eq(rc, -ENODEV);
	ck_assert_int_eq(ckpt_cuda_pool_new(1 << 20, NULL, 0, why, &pool), -ENODEV);
	ck_assert_msg(!strncmp(text, why, strlen(why)), "\"%s\" and \"%s\"", text, why);
}
END_TEST

static int copy_and_wait(struct ckpt_cuda_pool *pool, void *to, const void *from, size_t bytes)
{
	const struct ckpt_device_ops *ops = pool->device->ops;
	void *stream, *event;
	int code;

	ck_assert_int_eq(ops->stream_new(pool->device, 0, &stream), 0);
	ck_assert_int_eq(ops->event_new(pool->device, 0, &event), 0);
	code = ops->copy_out(pool->device, to, from, bytes, stream);
	if (!code)
		code = ops->record(pool->device, 0, event, stream);
	if (!code)
		code = ops->event_wait(pool->device, event);
	ops->event_free(pool->device, event);
	ops->stream_free(pool->device, stream);
	return code;
}

// On the host device everywhere; on a GPU where there is one.
START_TEST(device_memory_is_saved_and_loaded)
{
	static const char *const devices[] = {"host", "cuda"};
	struct cuda_arrays a = cuda_arrays_new(30, 5000);
	const struct ckpt_cuda_plan plan = cuda_plan(&a, "safetensors");
	char dir[PATH_MAX], why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;
	struct ckpt_cuda_save *save;
	struct ckpt_cuda_load *load;
	struct ckpt *ckpt;
	void **at = ckpt_calloc(a.count, sizeof(void *));
	int rc;

	if (!strcmp(devices[_i], "cuda") && ckpt_cuda_describe(why))
		goto out;
	ckpt_temp_dir(dir);
	ck_assert_int_eq(ckpt_open(dir, CKPT_CREATE, &ckpt), 0);
	ck_assert_int_eq(ckpt_cuda_pool_new(1 << 18, devices[_i], 0, why, &pool), 0);
	ck_assert_int_eq(ckpt_cuda_save_step(pool, ckpt, "1", 0, &plan, why, &save), 0);
	for (size_t i = 0; i < a.count; i++) {
		ck_assert_int_eq(pool->device->ops->memory_new(pool->device, 0, a.bytes[i] + 1, &at[i]), 0);
		ck_assert_int_eq(copy_and_wait(pool, at[i], a.at[i], a.bytes[i]), 0);
		ck_assert_int_eq(ckpt_cuda_save_array(save, a.arrays[i].name, at[i], a.bytes[i], NULL), 0);
	}
	ck_assert_int_eq(ckpt_cuda_captured(save), 0);
	cuda_fill_all(&a, 1);
	for (size_t i = 0; i < a.count; i++)
		ck_assert_int_eq(copy_and_wait(pool, at[i], a.at[i], a.bytes[i]), 0);
	rc = ckpt_cuda_commit(save, NULL);
	ck_assert_msg(!rc, "%s", ckpt_cuda_save_why(save));
	ckpt_cuda_save_free(save);
	ck_assert_int_eq(ckpt_cuda_load_step(pool, ckpt, "1", why, &load), 0);
	for (size_t i = 0; i < a.count; i++)
		ck_assert_int_eq(ckpt_cuda_load_array(load, a.arrays[i].name, at[i], a.bytes[i], NULL), 0);
	rc = ckpt_cuda_loaded(load);
	ck_assert_msg(!rc, "%s", ckpt_cuda_load_why(load));
	ckpt_cuda_load_free(load);
	for (size_t i = 0; i < a.count; i++) {
		ck_assert_int_eq(copy_and_wait(pool, a.at[i], at[i], a.bytes[i]), 0);
		for (uint64_t k = 0; k < a.bytes[i]; k++)
			ck_assert_uint_eq(a.at[i][k], cuda_byte(i, k, 0));
		pool->device->ops->memory_free(pool->device, at[i]);
	}
	ckpt_cuda_pool_free(pool);
	ckpt_close(ckpt);
out:
	free(at);
	cuda_arrays_free(&a);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_device");
	TCase *t = tcase_create("cuda_device");

	tcase_add_test(t, what_there_is_is_one_line);
	tcase_add_loop_test(t, device_memory_is_saved_and_loaded, 0, 2);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
