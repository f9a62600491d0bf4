#include "tests/support/catalog_files.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int open_bytes(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)path;
	*ret_source = ckpt_bytes_source(arg);
	return 0;
}

static void close_bytes(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
}

// Names that chunks and pieces have; each of them has the bytes of the one file.
static int each_name(void *arg, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	static const char *const names[] = {"__0_0.distcp", "0", "0.0", "1.0", "c/0", "c/0/0", "c/1/0", ".zarray"};
	struct ckpt_bytes *b = arg;
	char path[300];
	int rc = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !rc; i++) {
		snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", names[i]);
		rc = fn(fn_arg, path, b->len + b->zeros);
	}
	return rc;
}

int ckpt_catalog_of_bytes(struct ckpt_bytes *b, const char *path, struct ckpt_catalog **ret_catalog)
{
	const struct ckpt_catalog_files files = {open_bytes, close_bytes, each_name, b};
	struct ckpt_catalog *c = NULL;
	int rc = ckpt_catalog_new(&c);

	b->reads = b->read_end = 0;
	if (!rc)
		rc = ckpt_catalog_read(c, &files, path);
	if (!rc)
		rc = ckpt_catalog_end(c);
	if (rc) {
		ckpt_catalog_free(c);
		return rc;
	}
	*ret_catalog = c;
	return 0;
}

static void walk_piece(const struct ckpt_catalog_array *a, const struct ckpt_piece *p, uint64_t file_bytes)
{
	unsigned __int128 last = p->first;

	assert(p->offset <= file_bytes && p->bytes <= file_bytes - p->offset);
	for (unsigned i = 0; i < a->ndim; i++) {
		assert(p->start[i] <= a->shape[i] && p->extent[i] <= a->shape[i] - p->start[i]);
		if (!p->extent[i])
			return;
		last += (unsigned __int128)(p->extent[i] - 1) * p->strides[i];
	}
	// Elements of bytes that are no numbers are not counted.
	if (!a->why && !p->codecs[0])
		assert((last + 1) * ckpt_dtype_width(a->dtype) <= p->bytes);
}

void ckpt_walk_catalog(const struct ckpt_catalog *c, uint64_t file_bytes)
{
	struct ckpt_catalog_array a;
	struct ckpt_catalog_fault f;
	struct ckpt_piece p;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		ckpt_catalog_get(c, i, &a);
		assert(a.ndim <= CKPT_ARRAY_DIMS_MAX && strlen(a.name) <= UINT16_MAX && *a.tree && *a.format);
		assert(a.why || a.dtype);
		for (size_t k = 0; k < a.pieces; k++) {
			ckpt_catalog_piece(c, i, k, &p);
			walk_piece(&a, &p, file_bytes);
		}
	}
	for (size_t i = 0; i < ckpt_catalog_faults(c); i++) {
		ckpt_catalog_fault(c, i, &f);
		assert(*f.file && *f.field && *f.reason);
	}
}
