// The catalog of files, for tests in another language.
//
//	catalog [-o OUT] DIR FILE...
//	                      reads each file, whose path is below DIR, and prints one line of JSON:
//	                      {"arrays": [{tree, name, format, why, dtype, big_endian, shape, fill, pieces: [...]}], "faults": [[file,
//	                      field, reason]]}. Names are in hex, as they may have any byte. Ends with assert() where a call fails.
//	                      With -o the elements of array N, gathered in parts of many sizes, are in OUT/N, or the error is in
//	                      its "gathered". Its shards, gathered as boxes, are asserted to be the same, if it is small.
#include "core/array/gather.h"
#include "core/base/util.h"
#include "tests/interop/folder_files.h"

#include <assert.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>

static int top;
static const char *out; // NULL: nothing is gathered

static json_t *hex(const uint8_t *bytes, size_t len)
{
	char *text = malloc(2 * len + 1);
	json_t *json;

	assert(text);
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[2 * len] = '\0';
	json = json_string(text);
	free(text);
	return json;
}

static json_t *numbers(const uint64_t *list, unsigned count)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(array, json_integer((json_int_t)list[i]));
	return array;
}

static json_t *piece_of(const struct ckpt_piece *p, unsigned ndim)
{
	json_t *codecs = json_array();

	for (int i = 0; i < CKPT_PIECE_CODECS_MAX && p->codecs[i]; i++)
		json_array_append_new(codecs, json_string(ckpt_piece_codec_name(p->codecs[i])));
	return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:o?}", "file", p->file, "offset",
			 (json_int_t)p->offset, "bytes", (json_int_t)p->bytes, "codecs", codecs, "start",
			 numbers(p->start, ndim), "extent", numbers(p->extent, ndim), "strides",
			 numbers(p->strides, ndim), "first", (json_int_t)p->first, "data",
			 p->data ? hex(p->data, (size_t)p->bytes) : NULL);
}

static void resolve(const struct ckpt_catalog_array *a, struct ckpt_piece *p, uint64_t *strides)
{
	struct ckpt_catalog_files files = ckpt_folder_files(&top);
	struct ckpt_source source;
	bool big;
	int rc = files.open(files.arg, p->file, &source);

	assert(!rc);
	rc = ckpt_piece_resolve(&source, a, p, strides, &big);
	assert(!rc || rc == -EINVAL); // then its codec stays
	files.close(files.arg, &source);
}

// So many elements at a time, again and again.
static const uint64_t parts[] = {1, 7, 3, 1000, 64, 100000, 2, 1 << 22};

static int write_elements(struct ckpt_gather *g, FILE *f)
{
	uint64_t all = ckpt_gather_elements(g), n;
	unsigned width = ckpt_gather_width(g);

	for (uint64_t at = 0, i = 0; at < all; at += n, i++) {
		CLEANUP_FREE uint8_t *buf = NULL;
		int rc;

		n = MIN(all - at, parts[i % ARRAY_LEN(parts)]);
		buf = malloc((size_t)(n * width));
		assert(buf);
		rc = ckpt_gather_run(g, at, n, buf);
		if (rc)
			return rc;
		assert(fwrite(buf, width, (size_t)n, f) == n);
	}
	return 0;
}

#define SHARDED_BYTES_MAX (1u << 20)

// The box has ceil(rows / shards) of the axis' rows, as torch.chunk(); the last ones have fewer, or none.
static void check_shard(struct ckpt_gather *g, const struct ckpt_catalog_array *a, const uint8_t *whole, unsigned axis,
			uint64_t shard, uint64_t shards)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX] = {0}, extent[CKPT_ARRAY_DIMS_MAX], rows = a->shape[axis], outer = 1;
	uint64_t each = (rows + shards - 1) / shards, inner = ckpt_gather_width(g);
	CLEANUP_FREE uint8_t *box = malloc(SHARDED_BYTES_MAX);

	assert(box);
	memcpy(extent, a->shape, a->ndim * sizeof(*extent));
	start[axis] = MIN(rows, shard * each);
	extent[axis] = MIN(each, rows - start[axis]);
	for (unsigned i = 0; i < a->ndim; i++)
		*(i < axis ? &outer : &inner) *= i == axis ? 1 : a->shape[i];
	assert(!ckpt_gather_box(g, start, extent, box));
	for (uint64_t i = 0; i < outer; i++)
		assert(!memcmp(box + i * extent[axis] * inner, whole + (i * rows + start[axis]) * inner,
			       extent[axis] * inner));
}

static void check_shards(struct ckpt_gather *g, const struct ckpt_catalog_array *a)
{
	static const uint64_t counts[] = {1, 2, 3, 8};
	uint64_t all = ckpt_gather_elements(g);
	CLEANUP_FREE uint8_t *whole = malloc(SHARDED_BYTES_MAX);

	assert(whole);
	if (all > SHARDED_BYTES_MAX / ckpt_gather_width(g))
		return;
	assert(!ckpt_gather_run(g, 0, all, whole));
	for (unsigned axis = 0; axis < a->ndim; axis++)
		for (size_t n = 0; n < ARRAY_LEN(counts); n++)
			for (uint64_t shard = 0; shard < counts[n]; shard++)
				check_shard(g, a, whole, axis, shard, counts[n]);
}

static const char *gather(const struct ckpt_catalog *c, size_t i, const struct ckpt_catalog_files *files)
{
	struct ckpt_catalog_array a;
	struct ckpt_gather *g;
	char path[4096];
	FILE *f;
	int rc = ckpt_gather_new(c, i, files, &g);

	if (rc)
		return strerrorname_np(-rc);
	snprintf(path, sizeof(path), "%s/%zu", out, i);
	f = fopen(path, "we");
	assert(f);
	rc = write_elements(g, f);
	assert(!fclose(f));
	ckpt_catalog_get(c, i, &a);
	if (!rc)
		check_shards(g, &a);
	ckpt_gather_free(g);
	return rc ? strerrorname_np(-rc) : "yes";
}

static json_t *array_of(const struct ckpt_catalog *c, size_t i, const struct ckpt_catalog_files *files)
{
	uint64_t strides[CKPT_ARRAY_DIMS_MAX];
	json_t *pieces = json_array();
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	ckpt_catalog_get(c, i, &a);
	for (size_t k = 0; k < a.pieces; k++) {
		ckpt_catalog_piece(c, i, k, &p);
		if (!a.why && p.codecs[0] == CKPT_PIECE_TORCH)
			resolve(&a, &p, strides);
		json_array_append_new(pieces, piece_of(&p, a.ndim));
	}
	return json_pack("{s:s, s:o, s:s, s:s?, s:s, s:b, s:o, s:o?, s:o, s:s?}", "tree", a.tree, "name",
			 hex((const uint8_t *)a.name, strlen(a.name)), "format", a.format, "why", a.why, "dtype",
			 ckpt_dtype_name(a.dtype), "big_endian", a.big_endian, "shape", numbers(a.shape, a.ndim),
			 "fill", a.fill ? hex(a.fill, ckpt_dtype_width(a.dtype)) : NULL, "pieces", pieces, "gathered",
			 out ? gather(c, i, files) : NULL);
}

int main(int argc, char **argv)
{
	json_t *arrays = json_array(), *faults = json_array(), *all;
	struct ckpt_catalog_files files;
	struct ckpt_catalog *c;
	int rc;

	if (argc > 2 && !strcmp(argv[1], "-o")) {
		out = argv[2];
		argv += 2;
		argc -= 2;
	}
	assert(argc > 1);
	top = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(top >= 0);
	files = ckpt_folder_files(&top);
	rc = ckpt_catalog_new(&c);
	for (int i = 2; i < argc && !rc; i++)
		rc = ckpt_catalog_read(c, &files, argv[i]);
	if (!rc)
		rc = ckpt_catalog_end(c);
	if (rc)
		fprintf(stderr, "%s\n", strerror(-rc));
	assert(!rc);
	for (size_t i = 0; i < ckpt_catalog_count(c); i++)
		json_array_append_new(arrays, array_of(c, i, &files));
	for (size_t i = 0; i < ckpt_catalog_faults(c); i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(c, i, &f);
		json_array_append_new(faults, json_pack("[s, s, s]", f.file, f.field, f.reason));
	}
	all = json_pack("{s:o, s:o}", "arrays", arrays, "faults", faults);
	assert(all);
	json_dumpf(all, stdout, JSON_COMPACT);
	puts("");
	json_decref(all);
	ckpt_catalog_free(c);
	return 0;
}
