#include "tests/support/catalog_files.h"

#include "core/base/crc32c.h"
#include "core/limits.h"

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

static int catalog_of(const struct ckpt_catalog_files *files, const char *const *paths, size_t count,
		      struct ckpt_catalog **ret_catalog)
{
	struct ckpt_catalog *c = NULL;
	int rc = ckpt_catalog_new(&c);

	for (size_t i = 0; i < count && !rc; i++)
		rc = ckpt_catalog_read(c, files, paths[i]);
	if (!rc)
		rc = ckpt_catalog_end(c);
	if (rc) {
		ckpt_catalog_free(c);
		return rc;
	}
	*ret_catalog = c;
	return 0;
}

int ckpt_catalog_of_bytes(struct ckpt_bytes *b, const char *path, struct ckpt_catalog **ret_catalog)
{
	const struct ckpt_catalog_files files = {.open = open_bytes, .close = close_bytes, .each = each_name, .arg = b};

	b->reads = b->read_end = 0;
	return catalog_of(&files, &path, 1, ret_catalog);
}

#define SUMS_MAX 256

// True: the reader refuses the file for a checksum, which is right now.
static bool correct_sum(struct ckpt_bytes *b, const char *path)
{
	struct ckpt_catalog_fault f;
	struct ckpt_catalog *c = NULL;
	unsigned long long place;
	uint32_t sum;
	int rc = ckpt_catalog_of_bytes(b, path, &c);
	bool is_sum = !rc && ckpt_catalog_faults(c);

	if (is_sum) {
		ckpt_catalog_fault(c, 0, &f);
		is_sum = sscanf(f.reason, "its checksum, byte %llu of the file, is %*8x and should be %8x", &place,
				&sum) == 2;
	}
	if (is_sum) {
		assert(place + sizeof(sum) <= b->len);
		memcpy(b->data + place, &sum, sizeof(sum));
	}
	ckpt_catalog_free(c);
	return is_sum;
}

void ckpt_sample_sums(struct ckpt_bytes *b, const char *path)
{
	for (int i = 0; i < SUMS_MAX && correct_sum(b, path); i++)
		;
}

// --- Several files ----------------------------------------------------------------------------------------------------

#define SAMPLES_MAX 1024

struct sample {
	struct ckpt_sample_file *files;
	size_t count;
};

static int open_sample(void *arg, const char *path, struct ckpt_source *ret_source)
{
	const struct sample *s = arg;

	for (size_t i = 0; i < s->count; i++)
		if (!strcmp(s->files[i].path, path)) {
			*ret_source = ckpt_bytes_source(&s->files[i].bytes);
			return 0;
		}
	return -ENOENT;
}

static int each_sample(void *arg, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	const struct sample *s = arg;
	size_t len = strlen(dir);
	int rc = 0;

	for (size_t i = 0; i < s->count && !rc; i++) {
		const struct ckpt_sample_file *f = &s->files[i];

		if (!len || (!strncmp(f->path, dir, len) && f->path[len] == '/'))
			rc = fn(fn_arg, f->path, f->bytes.len + f->bytes.zeros);
	}
	return rc;
}

int ckpt_catalog_of_files(struct ckpt_sample_file *files, size_t count, const char *path,
			  struct ckpt_catalog **ret_catalog)
{
	struct sample sample = {files, count};
	const struct ckpt_catalog_files step = {
		.open = open_sample, .close = close_bytes, .each = each_sample, .arg = &sample};

	const char *paths[SAMPLES_MAX] = {path};

	assert(count <= SAMPLES_MAX);
	for (size_t i = 0; i < count; i++) {
		files[i].bytes.reads = files[i].bytes.read_end = 0;
		if (!path)
			paths[i] = files[i].path;
	}
	return catalog_of(&step, paths, path ? 1 : count, ret_catalog);
}

void ckpt_sample_block(struct ckpt_bytes *b, uint32_t magic, const void *body, size_t len)
{
	size_t begin = b->len;

	ckpt_bytes_number(b, __builtin_bswap32(magic), 4);
	ckpt_bytes_number(b, len + 18, 8);
	ckpt_bytes_add(b, "\0\0", 2);
	ckpt_bytes_add(b, body, len);
	ckpt_bytes_number(b, ckpt_crc32c(0, b->data + begin, b->len - begin), 4);
}

// --- The walk ---------------------------------------------------------------------------------------------------------

static void walk_piece(const struct ckpt_catalog_array *a, const struct ckpt_piece *p, uint64_t file_bytes)
{
	unsigned __int128 last = p->first;

	assert(p->data ? !p->offset && p->bytes < CKPT_CATALOG_BYTES_MAX
		       : p->offset <= file_bytes && p->bytes <= file_bytes - p->offset);
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

static uint64_t bytes_of(const struct ckpt_sample_file *files, size_t count, const char *path)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(files[i].path, path))
			return files[i].bytes.len + files[i].bytes.zeros;
	return 0;
}

static void walk(const struct ckpt_catalog *c, const struct ckpt_sample_file *files, size_t count, uint64_t file_bytes)
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
			walk_piece(&a, &p, files ? bytes_of(files, count, p.file) : file_bytes);
		}
	}
	for (size_t i = 0; i < ckpt_catalog_faults(c); i++) {
		ckpt_catalog_fault(c, i, &f);
		assert(*f.file && *f.field && *f.reason);
	}
}

void ckpt_walk_catalog(const struct ckpt_catalog *c, uint64_t file_bytes)
{
	walk(c, NULL, 0, file_bytes);
}

void ckpt_walk_catalog_of(const struct ckpt_catalog *c, const struct ckpt_sample_file *files, size_t count)
{
	walk(c, files, count, 0);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_bytes(const void *a, const void *b, size_t len)
{
	return a && b ? !memcmp(a, b, len) : !a == !b;
}

static bool same_pieces(const struct ckpt_catalog *a, const struct ckpt_catalog *b, size_t i, size_t k, unsigned ndim)
{
	size_t len = ndim * sizeof(uint64_t);
	struct ckpt_piece p, q;

	ckpt_catalog_piece(a, i, k, &p);
	ckpt_catalog_piece(b, i, k, &q);
	return same_text(p.file, q.file) && p.offset == q.offset && p.bytes == q.bytes &&
	       !memcmp(p.codecs, q.codecs, sizeof(p.codecs)) && !memcmp(p.start, q.start, len) &&
	       !memcmp(p.extent, q.extent, len) && !memcmp(p.strides, q.strides, len) && p.first == q.first &&
	       same_bytes(p.data, q.data, (size_t)p.bytes);
}

static bool same_arrays(const struct ckpt_catalog *a, const struct ckpt_catalog *b, size_t i)
{
	struct ckpt_catalog_array x, y;
	bool same;

	ckpt_catalog_get(a, i, &x);
	ckpt_catalog_get(b, i, &y);
	same = same_text(x.tree, y.tree) && same_text(x.name, y.name) && same_text(x.format, y.format) &&
	       same_text(x.why, y.why) && x.dtype == y.dtype && x.big_endian == y.big_endian && x.ndim == y.ndim &&
	       !memcmp(x.shape, y.shape, x.ndim * sizeof(*x.shape)) &&
	       same_bytes(x.fill, y.fill, ckpt_dtype_width(x.dtype)) && x.pieces == y.pieces;
	for (size_t k = 0; k < x.pieces && same; k++)
		same = same_pieces(a, b, i, k, x.ndim);
	return same;
}

static bool same_digest(const struct ckpt_catalog *a, const struct ckpt_catalog *b, size_t i)
{
	struct ckpt_catalog_array x, y;

	ckpt_catalog_get(a, i, &x);
	ckpt_catalog_get(b, i, &y);
	return x.digest && y.digest ? !memcmp(x.digest, y.digest, CKPT_ARRAY_DIGEST_LEN) : !x.digest && !y.digest;
}

bool ckpt_same_catalogs(const struct ckpt_catalog *a, const struct ckpt_catalog *b)
{
	bool same = ckpt_catalog_count(a) == ckpt_catalog_count(b) && ckpt_catalog_faults(a) == ckpt_catalog_faults(b);
	struct ckpt_catalog_fault f, g;

	for (size_t i = 0; i < ckpt_catalog_count(a) && same; i++)
		same = same_arrays(a, b, i) && same_digest(a, b, i);
	for (size_t i = 0; i < ckpt_catalog_faults(a) && same; i++) {
		ckpt_catalog_fault(a, i, &f);
		ckpt_catalog_fault(b, i, &g);
		same = same_text(f.file, g.file) && same_text(f.field, g.field) && same_text(f.reason, g.reason);
	}
	return same;
}
