// A file that is written, and the catalog read of it. For suites of core/array/catalog*.c.
#pragma once

#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX_MIB 2048 // a sanitizer's own memory is many times ours
#else
#define MEMORY_MAX_MIB 320
#endif

static struct ckpt_bytes file;
static struct ckpt_catalog *c;

static inline void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_catalog_free(c);
	c = NULL;
}

static inline void read_as(const char *path)
{
	ckpt_catalog_free(c);
	c = NULL;
	ck_ok(ckpt_catalog_of_bytes(&file, path, &c));
	ckpt_walk_catalog(c, file.len + file.zeros);
}

static inline struct ckpt_catalog_array array_at(size_t i)
{
	struct ckpt_catalog_array a;

	ck_assert_uint_lt(i, ckpt_catalog_count(c));
	ckpt_catalog_get(c, i, &a);
	return a;
}

// The only fault has this field and word; nothing else was added.
static inline void check_refused(const char *path, const char *field, const char *word)
{
	struct ckpt_catalog_fault f;

	read_as(path);
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_str_eq(f.file, path);
	ck_assert_str_eq(f.field, field);
	ck_assert_msg(strstr(f.reason, word), "%s", f.reason);
}

// Storages 0 of 8 bytes and 1 of 4096; a member of the zip that is compressed, and one that is missing.
static inline void put_torch(const void *pickle, size_t len)
{
	struct ckpt_zip_sample z;

	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data.pkl", .data = pickle, .len = len});
	ckpt_sample_zip_add(&z,
			    &(struct ckpt_zip_part){.name = "x/data/0", .data = "01234567", .len = 8, .padding = 20});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data/2", .data = "0123", .len = 4, .method = 8});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data/1", .zeros = 4096});
	ckpt_sample_zip_end(&z, false);
}

static inline void text(struct ckpt_bytes *b, const char *s)
{
	ckpt_bytes_text(b, "X");
	ckpt_bytes_number(b, strlen(s), 4);
	ckpt_bytes_text(b, s);
}

static inline void number(struct ckpt_bytes *b, int64_t n)
{
	ckpt_bytes_add(b, "\x8a\x08", 2);
	ckpt_bytes_number(b, (uint64_t)n, 8);
}

struct tensor {
	const char *class, *key;
	int64_t numel, offset, shape[2], strides[2];
};

// {"w": tensor}: float32 and two axes.
static inline void put_tensor(const struct tensor *t)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_text(&b, "\x80\x02}(");
	text(&b, "w");
	ckpt_bytes_text(&b, "ctorch._utils\n_rebuild_tensor_v2\n((");
	text(&b, "storage");
	ckpt_bytes_text(&b, "ctorch\n");
	ckpt_bytes_text(&b, t->class);
	ckpt_bytes_text(&b, "\n");
	text(&b, t->key);
	text(&b, "cpu");
	number(&b, t->numel);
	ckpt_bytes_text(&b, "tQ");
	number(&b, t->offset);
	for (int i = 0; i < 2; i++)
		number(&b, t->shape[i]);
	ckpt_bytes_text(&b, "\x86");
	for (int i = 0; i < 2; i++)
		number(&b, t->strides[i]);
	ckpt_bytes_text(&b, "\x86\x89)tRu.");
	put_torch(b.data, b.len);
	free(b.data);
}
