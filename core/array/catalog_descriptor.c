// arrays.json: arrays in files of raw bytes, as the program says that wrote them.
//
//	{"arrays": [{"name": NAME, "dtype": DTYPE, "shape": [N, ...], "pieces": [PIECE, ...]}, ...]}
//	PIECE   {"file": PATH, "offset": BYTES, "start": [N, ...], "extent": [N, ...], "strides": [N, ...]}, or
//	        {"file": PATH, "offset": BYTES, "flat": [A, B]}
//	DTYPE   "f32", "bf16" ..., or as torch has it: "float32", "bfloat16" ...
//
// Paths are relative to its directory. Without offset a piece begins at byte 0, without start and extent it is the whole array,
// without strides (in elements) it is in C order. flat: the elements A to B - 1 of the array in C order; they have no gaps between them in
// the file, so that strides, start and extent beside it are an error. Numbers are little-endian.
// The tree of its arrays is its directory.
#include "core/array/catalog_listing.h"

#include "core/array/array_format.h"
#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

struct reading {
	struct ckpt_catalog_reading *catalog;
	struct ckpt_catalog_listing listing;
	const char *tree;
	struct ckpt_catalog_entry entry; // the array
	const char *why;                 // it cannot be read
};

static bool is_descriptor(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, "arrays.json");
}

static bool take_number(const json_t *json, uint64_t *ret_number)
{
	if (!json_is_integer(json) || json_integer_value(json) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(json);
	return true;
}

static bool take_numbers(const json_t *list, uint64_t *numbers, unsigned *ret_count)
{
	if (!json_is_array(list) || json_array_size(list) > CKPT_ARRAY_DIMS_MAX)
		return false;
	*ret_count = (unsigned)json_array_size(list);
	for (unsigned i = 0; i < *ret_count; i++)
		if (!take_number(json_array_get(list, i), &numbers[i]))
			return false;
	return true;
}

static enum ckpt_dtype dtype_of(const char *name)
{
	for (int i = 1; name && i < CKPT_DTYPE_COUNT; i++)
		if (!strcmp(ckpt_dtype_name(i), name))
			return i;
	return name ? ckpt_torch_dtype(name, strlen(name)) : CKPT_DTYPE_NONE;
}

bool ckpt_piece_span(const struct ckpt_piece *p, unsigned ndim, enum ckpt_dtype dtype, uint64_t *ret_bytes)
{
	uint64_t last = 0, more;

	*ret_bytes = 0;
	for (unsigned i = 0; i < ndim; i++) {
		if (!p->extent[i])
			return true;
		if (__builtin_mul_overflow(p->extent[i] - 1, p->strides[i], &more) ||
		    __builtin_add_overflow(last, more, &last))
			return false;
	}
	return last < UINT64_MAX && !__builtin_mul_overflow(last + 1, (uint64_t)ckpt_dtype_width(dtype), ret_bytes);
}

void ckpt_piece_order(const struct ckpt_piece *p, unsigned ndim, uint64_t *strides)
{
	uint64_t step = 1;

	for (unsigned i = ndim; i-- > 0;) {
		strides[i] = step;
		if (__builtin_mul_overflow(step, MAX(p->extent[i], UINT64_C(1)), &step))
			step = UINT64_MAX;
	}
}

// False: the box is not what the form says.
static bool take_box(const struct reading *r, const json_t *json, struct ckpt_piece *p, uint64_t *start,
		     uint64_t *extent, uint64_t *strides)
{
	const json_t *starts = json_object_get(json, "start"), *extents = json_object_get(json, "extent"),
		     *steps = json_object_get(json, "strides");
	unsigned ndim = r->entry.ndim, a = ndim, b = ndim, c = ndim;

	memset(start, 0, ndim * sizeof(*start));
	memcpy(extent, r->entry.shape, ndim * sizeof(*extent));
	p->start = start;
	p->extent = extent;
	p->strides = strides;
	if ((starts && !take_numbers(starts, start, &a)) || (extents && !take_numbers(extents, extent, &b)) ||
	    a != ndim || b != ndim)
		return false;
	for (unsigned i = 0; i < ndim; i++)
		if (start[i] > r->entry.shape[i] || extent[i] > r->entry.shape[i] - start[i])
			return false;
	ckpt_piece_order(p, ndim, strides);
	return !steps || (take_numbers(steps, strides, &c) && c == ndim);
}

static bool is_in_file(const struct ckpt_listed *f, const struct ckpt_piece *p)
{
	return p->offset <= f->bytes && p->bytes <= f->bytes - p->offset;
}

// The parts of a box that stand beside a flat range; NULL: none do.
static const char *why_not_flat(const json_t *json)
{
	const json_t *strides = json_object_get(json, "strides");

	if (strides && (!json_is_array(strides) || json_array_size(strides)))
		return "a flat range has no strides: use start, extent and strides";
	if (json_object_get(json, "start") || json_object_get(json, "extent"))
		return "a flat range has no start and extent: use one of the two forms";
	return NULL;
}

static int add_flat(struct reading *r, const json_t *flat, const struct ckpt_listed *file, struct ckpt_piece *p)
{
	uint64_t range[CKPT_ARRAY_DIMS_MAX], elements;
	unsigned count;

	if (!take_numbers(flat, range, &count) || count != 2 || range[0] > range[1] ||
	    !ckpt_array_elements(r->entry.shape, r->entry.ndim, &elements) || range[1] > elements) {
		r->why = "the flat range of a piece is none of its shape";
		return 0;
	}
	if (__builtin_mul_overflow(range[1] - range[0], (uint64_t)ckpt_dtype_width(r->entry.dtype), &p->bytes) ||
	    !is_in_file(file, p)) {
		r->why = CKPT_WHY_OUTSIDE;
		return 0;
	}
	return ckpt_catalog_add_flat(r->catalog, p, range[0], range[1] - range[0]);
}

static int add_piece(struct reading *r, const json_t *json)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX];
	const char *name = json_string_value(json_object_get(json, "file"));
	const json_t *offset = json_object_get(json, "offset"), *flat = json_object_get(json, "flat");
	const struct ckpt_listed *file =
		name ? ckpt_catalog_listing_beside(&r->listing, r->catalog, name, strlen(name)) : NULL;
	struct ckpt_piece p = {.file = file ? file->path : NULL};

	if (!file)
		r->why = CKPT_WHY_NO_FILE;
	else if (offset && !take_number(offset, &p.offset))
		r->why = "the offset of a piece is no number from 0 on";
	else if (flat)
		r->why = why_not_flat(json);
	if (r->why)
		return 0;
	if (flat)
		return add_flat(r, flat, file, &p);
	if (!take_box(r, json, &p, start, extent, strides))
		r->why = "the box of a piece is none of its shape";
	else if (!ckpt_piece_span(&p, r->entry.ndim, r->entry.dtype, &p.bytes) || !is_in_file(file, &p))
		r->why = CKPT_WHY_OUTSIDE;
	return r->why ? 0 : ckpt_catalog_add_piece(r->catalog, &p);
}

static int add_array(struct reading *r, const json_t *json)
{
	const json_t *name = json_object_get(json, "name"), *pieces = json_object_get(json, "pieces"), *piece;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	size_t i;
	int rc;

	r->why = NULL;
	r->entry = (struct ckpt_catalog_entry){.tree = r->tree, .format = "descriptor", .shape = shape};
	r->entry.name = json_string_value(name);
	r->entry.name_len = json_string_length(name);
	if (!r->entry.name)
		return ckpt_catalog_refuse(r->catalog, "name", "it is missing, or no text");
	r->entry.dtype = dtype_of(json_string_value(json_object_get(json, "dtype")));
	if (!take_numbers(json_object_get(json, "shape"), shape, &r->entry.ndim))
		return ckpt_catalog_refuse(r->catalog, "shape", "that of %.128s is no list of numbers from 0 on",
					   r->entry.name);
	if (!r->entry.dtype)
		r->entry.why = "its dtype is not known";
	else if (ckpt_dtype_bits(r->entry.dtype) < 8)
		r->entry.why = "a byte has several of its elements";
	else if (!json_is_array(pieces))
		r->entry.why = "its pieces are no list";
	rc = ckpt_catalog_add(r->catalog, &r->entry);
	if (rc || r->entry.why)
		return rc;
	json_array_foreach(pieces, i, piece)
	{
		rc = add_piece(r, piece);
		if (rc || r->why)
			break;
	}
	return rc || !r->why ? rc : ckpt_catalog_note(r->catalog, "%s", r->why);
}

static int read_descriptor(struct ckpt_catalog_reading *catalog)
{
	CLEANUP_FREE char *tree = catalog->dir_len ? strndup(catalog->path, catalog->dir_len) : strdup(".");
	struct reading r = {.catalog = catalog, .tree = tree};
	json_t *json = NULL, *arrays, *array;
	size_t i;
	int rc = tree ? ckpt_catalog_load_json(catalog, &json) : -ENOMEM;

	arrays = json_object_get(json, "arrays");
	if (!rc && !json_is_array(arrays))
		rc = ckpt_catalog_refuse(catalog, "arrays", "it is missing, or no list");
	if (!rc)
		rc = ckpt_catalog_listing_read(catalog, &r.listing);
	if (!rc)
		json_array_foreach(arrays, i, array)
		{
			rc = add_array(&r, array);
			if (rc)
				break;
		}
	ckpt_catalog_listing_done(&r.listing);
	json_decref(json);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_descriptor = {"descriptor", is_descriptor, read_descriptor};
