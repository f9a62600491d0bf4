// .npy: one array, called like its path without ".npy". .safetensors: the arrays of its header.
#include "core/array/catalog_npy.h"

#include "core/array/array_format.h"
#include "core/base/util.h"

// --- npy --------------------------------------------------------------------------------------------------------------

static void strides_of(const struct ckpt_npy *npy, uint64_t strides[CKPT_ARRAY_DIMS_MAX])
{
	uint64_t step = 1;

	for (unsigned i = 0; i < npy->ndim; i++) {
		strides[i] = step;
		step *= MAX(npy->shape[i], UINT64_C(1));
	}
}

int ckpt_catalog_add_npy(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *named, uint64_t offset,
			 uint64_t bytes)
{
	struct ckpt_catalog_entry entry = *named;
	uint64_t strides[CKPT_ARRAY_DIMS_MAX];
	struct ckpt_piece piece = {0};
	struct ckpt_npy npy;
	int rc = ckpt_npy_read(&r->source, offset, bytes, &npy);

	if (rc)
		return rc;
	entry.dtype = npy.dtype;
	entry.big_endian = npy.big_endian;
	entry.ndim = npy.ndim;
	entry.shape = npy.shape;
	entry.why = npy.dtype ? NULL : "its elements are no numbers";
	rc = ckpt_catalog_add(r, &entry);
	if (rc || entry.why)
		return rc;
	strides_of(&npy, strides);
	piece.offset = npy.offset;
	piece.bytes = npy.bytes;
	piece.strides = npy.column_major ? strides : NULL;
	return ckpt_catalog_add_piece(r, &piece);
}

static bool is_npy(const struct ckpt_catalog_reading *r)
{
	return r->head_len >= 6 && !memcmp(r->head, "\x93NUMPY", 6);
}

static int read_npy(struct ckpt_catalog_reading *r)
{
	size_t len = strlen(r->path);
	struct ckpt_catalog_entry entry = {.tree = ".", .name = r->path, .name_len = len, .format = "npy"};
	int rc;

	if (len > 4 && !strcmp(r->path + len - 4, ".npy"))
		entry.name_len -= 4;
	rc = ckpt_catalog_add_npy(r, &entry, 0, r->source.bytes);
	return rc == -EINVAL ? ckpt_catalog_refuse(r, "header", "it is not what NumPy writes for an array of numbers")
			     : rc;
}

const struct ckpt_catalog_format ckpt_catalog_npy = {"npy", is_npy, read_npy};

// --- safetensors ------------------------------------------------------------------------------------------------------

static bool is_safetensors(const struct ckpt_catalog_reading *r)
{
	static const char end[] = ".safetensors";
	size_t len = strlen(r->base);

	return r->head_len > 8 && r->head[8] == '{' && len >= sizeof(end) - 1 &&
	       !strcmp(r->base + len - (sizeof(end) - 1), end);
}

static int add_tensor(struct ckpt_catalog_reading *r, const struct ckpt_array *a)
{
	struct ckpt_catalog_entry entry = {
		.name = a->name,
		.name_len = strlen(a->name),
		.format = "safetensors",
		.why = a->dtype ? NULL : "its dtype is not known",
		.dtype = a->dtype,
		.ndim = a->ndim,
		.shape = a->shape,
	};
	struct ckpt_piece piece = {.offset = a->offset, .bytes = a->bytes};
	int rc = ckpt_catalog_add(r, &entry);

	return rc || entry.why ? rc : ckpt_catalog_add_piece(r, &piece);
}

static int read_safetensors(struct ckpt_catalog_reading *r)
{
	struct ckpt_arrays *arrays = NULL;
	struct ckpt_array a;
	int rc = ckpt_arrays_read(r->path, &r->source, &arrays);

	if (rc)
		return rc;
	if (!arrays)
		return ckpt_catalog_refuse(r, "header", "it breaks a rule of safetensors");
	for (size_t i = 0; i < ckpt_arrays_count(arrays) && !rc; i++) {
		ckpt_arrays_get(arrays, i, &a);
		rc = add_tensor(r, &a);
	}
	ckpt_arrays_free(arrays);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_safetensors = {"safetensors", is_safetensors, read_safetensors};
