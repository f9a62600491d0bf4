// Arrays on the host device, and what is saved of them, for test_cuda_*.c.
//
// Failures end the test. Bytes of an array follow from its index and a seed.
#pragma once

#include "tests/support/suite.h"

#include "core/array/write.h"
#include "core/array/write_folder.h"
#include "core/base/util.h"
#include "core/ckptfs.h"
#include "tools/cuda/ckptfs_cuda.h"
#include "tools/cuda/device_host.h"
#include "tools/cuda/pool.h"

#include <fcntl.h>
#include <stdio.h>

struct cuda_arrays {
	size_t count;
	struct ckpt_cuda_array *arrays;
	struct ckpt_write_array *as_written; // the same
	uint8_t **at;
	uint64_t *bytes;
};

static const struct {
	const char *numpy;
	enum ckpt_dtype dtype;
} cuda_dtypes[] = {{"float32", CKPT_DTYPE_F32},
		   {"bfloat16", CKPT_DTYPE_BF16},
		   {"uint8", CKPT_DTYPE_U8},
		   {"int64", CKPT_DTYPE_I64}};

__attribute__((unused)) static uint8_t cuda_byte(size_t array, uint64_t i, unsigned seed)
{
	return (uint8_t)(array * 31 + i * 7 + i / 251 + seed * 101);
}

__attribute__((unused)) static void cuda_fill(struct cuda_arrays *a, size_t i, unsigned seed)
{
	for (uint64_t k = 0; k < a->bytes[i]; k++)
		a->at[i][k] = cuda_byte(i, k, seed);
}

__attribute__((unused)) static void cuda_fill_all(struct cuda_arrays *a, unsigned seed)
{
	for (size_t i = 0; i < a->count; i++)
		cuda_fill(a, i, seed);
}

// Of sizes up to some 5 * scale elements, of shapes of 0 to 3 dimensions, some without elements.
__attribute__((unused)) static struct cuda_arrays cuda_arrays_new(size_t count, uint64_t scale)
{
	struct cuda_arrays a = {.count = count};

	a.arrays = ckpt_calloc(count, sizeof(*a.arrays));
	a.as_written = ckpt_calloc(count, sizeof(*a.as_written));
	a.at = ckpt_calloc(count, sizeof(*a.at));
	a.bytes = ckpt_calloc(count, sizeof(*a.bytes));
	for (size_t i = 0; i < count; i++) {
		uint64_t *shape = ckpt_calloc(3, sizeof(*shape));
		char *name;

		ck_assert_int_gt(asprintf(&name, "layers.%05zu.weight", i), 0);
		shape[0] = i % 11 == 7 ? 0 : 1 + i % 5;
		shape[1] = 1 + (i * 3701 + 11) % scale;
		shape[2] = i % 3 ? 1 : 2;
		if (i % 13 == 1) { // rows of the last dimension alone fit a buffer, or not even these
			shape[1] = 3;
			shape[2] = 4 * scale;
		}
		a.arrays[i] =
			(struct ckpt_cuda_array){name, cuda_dtypes[i % 4].numpy, (unsigned)(3 - i / 3 % 4), shape};
		a.as_written[i] =
			(struct ckpt_write_array){name, name, cuda_dtypes[i % 4].dtype, a.arrays[i].ndim, shape};
		a.bytes[i] = ckpt_dtype_width(cuda_dtypes[i % 4].dtype);
		for (unsigned k = 0; k < a.arrays[i].ndim; k++)
			a.bytes[i] *= shape[k];
		a.at[i] = malloc(a.bytes[i] + 1);
	}
	cuda_fill_all(&a, 0);
	return a;
}

__attribute__((unused)) static void cuda_array_free(struct cuda_arrays *a, size_t i)
{
	free((char *)a->arrays[i].name);
	free((uint64_t *)a->arrays[i].shape);
	free(a->at[i]);
}

__attribute__((unused)) static void cuda_arrays_free(struct cuda_arrays *a)
{
	for (size_t i = 0; i < a->count; i++)
		cuda_array_free(a, i);
	free(a->arrays);
	free(a->as_written);
	free(a->at);
	free(a->bytes);
}

__attribute__((unused)) static struct ckpt_cuda_plan cuda_plan(const struct cuda_arrays *a, const char *format)
{
	return (struct ckpt_cuda_plan){format, a->arrays, a->count, 0};
}

__attribute__((unused)) static uint64_t cuda_total(const struct cuda_arrays *a)
{
	uint64_t all = 0;

	for (size_t i = 0; i < a->count; i++)
		all += a->bytes[i];
	return all;
}

// A pool on a host device of its own.
__attribute__((unused)) static struct ckpt_cuda_pool *cuda_pool(uint64_t bytes, uint64_t rate, unsigned flags,
								struct ckpt_device_host **ret_host)
{
	char why[CKPT_CUDA_WHY_MAX];
	struct ckpt_cuda_pool *pool;

	ck_assert_int_eq(ckpt_device_host_new(rate, ret_host), 0);
	ck_assert_int_eq(ckpt_pool_new(ckpt_device_host_as_device(*ret_host), bytes, flags, why, &pool), 0);
	return pool;
}

// The disk of this directory has O_DIRECT.
__attribute__((unused)) static bool cuda_disk_is_direct(const char *directory)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY);
	int file = openat(fd, "takes-direct", O_WRONLY | O_CREAT | O_DIRECT, 0600);

	(void)unlinkat(fd, "takes-direct", 0);
	close(fd);
	if (file >= 0)
		close(file);
	return file >= 0;
}

// All of them, to this stream. The first error.
__attribute__((unused)) static int cuda_give_all(struct ckpt_cuda_save *save, const struct cuda_arrays *a, void *stream)
{
	int rc = 0;

	for (size_t i = 0; i < a->count && !rc; i++)
		rc = ckpt_cuda_save_array(save, a->arrays[i].name, a->at[i], a->bytes[i], stream);
	return rc;
}

// By the writer of core, one byte behind the other: what a save has to be like.
__attribute__((unused)) static void cuda_write_plainly(const struct cuda_arrays *a, const char *format,
						       uint64_t shard_bytes, const char *dir)
{
	const struct ckpt_write_plan plan = {.arrays = a->as_written, .count = a->count, .shard_bytes = shard_bytes};
	int fd = open(dir, O_RDONLY | O_DIRECTORY), error;
	const struct ckpt_write_target target = ckpt_write_folder(&fd);
	char why[CKPT_WRITE_WHY_MAX];
	struct ckpt_write_range r;
	struct ckpt_layout *l;
	struct ckpt_writer *w;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ckpt_layout_new(format, &plan, why, &l), 0);
	ck_assert_int_eq(ckpt_write_new(l, &target, &w), 0);
	while (ckpt_write_wants(w, &r, &error))
		ck_assert_int_eq(ckpt_write_put(w, a->at[r.array] + r.first, r.bytes), 0);
	ck_assert_int_eq(error, 0);
	ckpt_write_free(w);
	ckpt_layout_free(l);
	close(fd);
}

__attribute__((unused)) static bool cuda_same_folders(const char *one, const char *other)
{
	char *command;
	int status;

	ck_assert_int_gt(asprintf(&command, "diff -r '%s' '%s' >&2", one, other), 0);
	status = system(command);
	free(command);
	return !status;
}

// True: each array of the step has the bytes of the seed.
__attribute__((unused)) static bool cuda_step_has(struct ckpt *ckpt, const char *step, const struct cuda_arrays *a,
						  unsigned seed)
{
	struct ckpt_array_set *set;
	bool same = true;
	size_t at;

	ck_assert_int_eq(ckpt_array_set_open(ckpt, step, &set), 0);
	for (size_t i = 0; i < a->count && same; i++) {
		uint8_t *got = malloc(a->bytes[i] + 1);

		ck_assert_int_eq(ckpt_array_set_find(set, a->arrays[i].name, &at), 0);
		ck_assert_uint_eq(ckpt_array_set_at(set, at)->bytes, a->bytes[i]);
		ck_assert_int_eq(ckpt_array_set_read(set, at, NULL, NULL, got), 0);
		for (uint64_t k = 0; k < a->bytes[i] && same; k++)
			same = got[k] == cuda_byte(i, k, seed);
		free(got);
	}
	ckpt_array_set_free(set);
	return same;
}

__attribute__((unused)) static bool cuda_has_step(struct ckpt *ckpt, const char *name)
{
	struct ckpt_info *info;
	int rc = ckpt_find(ckpt, name, &info);

	ck_assert(!rc || rc == -ENOENT);
	if (!rc)
		ckpt_info_free(info);
	return !rc;
}

// A latch that one thread opens for others.
struct cuda_gate {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool open;
};

#define CUDA_GATE_INIT                                                                                                 \
	{                                                                                                              \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                                \
	}

__attribute__((unused)) static void cuda_gate_open(struct cuda_gate *g)
{
	pthread_mutex_lock(&g->mutex);
	g->open = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->mutex);
}

__attribute__((unused)) static void cuda_gate_pass(void *arg)
{
	struct cuda_gate *g = arg;

	pthread_mutex_lock(&g->mutex);
	while (!g->open)
		pthread_cond_wait(&g->changed, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}
