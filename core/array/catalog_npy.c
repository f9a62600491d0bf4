// .npy: one array, called like its path without ".npy". .safetensors: the arrays of its header.
#include "core/array/catalog_npy.h"

#include "core/array/array_format.h"
#include "core/base/util.h"
#include "core/codec/codec_zlib.h"
#include "core/limits.h"

// Of a compressed member: a header, and what it takes where nothing is saved.
#define FRONT_BYTES (2 * CKPT_ARRAY_NPY_HEADER_MAX)

// --- npy --------------------------------------------------------------------------------------------------------------

static void strides_of(const struct ckpt_npy *npy, uint64_t strides[CKPT_ARRAY_DIMS_MAX])
{
	uint64_t step = 1;

	for (unsigned i = 0; i < npy->ndim; i++) {
		strides[i] = step;
		step *= MAX(npy->shape[i], UINT64_C(1));
	}
}

static int add_npy(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *named, const struct ckpt_npy *npy,
		   struct ckpt_piece *piece)
{
	struct ckpt_catalog_entry entry = *named;
	uint64_t strides[CKPT_ARRAY_DIMS_MAX];
	int rc;

	entry.dtype = npy->dtype;
	entry.big_endian = npy->big_endian;
	entry.ndim = npy->ndim;
	entry.shape = npy->shape;
	entry.why = npy->opaque ? npy->opaque : npy->dtype ? NULL : "its elements are no numbers";
	// Elements that are decoded are counted from the first byte on.
	if (!entry.why && piece->codecs[0] && npy->offset % ckpt_dtype_width(npy->dtype))
		entry.why = "its elements do not begin at a multiple of their bytes";
	if (!entry.why && piece->codecs[0])
		piece->first = npy->offset / ckpt_dtype_width(npy->dtype);
	rc = ckpt_catalog_add(r, &entry);
	if (rc || entry.why)
		return rc;
	strides_of(npy, strides);
	piece->strides = npy->column_major ? strides : NULL;
	return ckpt_catalog_add_piece(r, piece);
}

int ckpt_catalog_add_npy(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *named, uint64_t offset,
			 uint64_t bytes, const char **ret_broken)
{
	struct ckpt_piece piece = {0};
	struct ckpt_npy npy;
	int rc = ckpt_npy_read(&r->source, offset, bytes, &npy);

	*ret_broken = npy.broken;
	piece.offset = npy.offset;
	piece.bytes = npy.bytes;
	return rc ? rc : add_npy(r, named, &npy, &piece);
}

struct front { // of a member of a zip, decoded
	uint8_t *bytes;
	size_t len;
};

static int read_front(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct front *f = arg;

	if (offset > f->len || len > f->len - offset)
		return -ENODATA;
	memcpy(buf, f->bytes + offset, len);
	return 0;
}

int ckpt_catalog_add_npy_deflated(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *named,
				  uint64_t offset, uint64_t bytes, uint64_t unpacked, const char **ret_broken)
{
	CLEANUP_FREE uint8_t *packed = malloc(FRONT_BYTES);
	CLEANUP_FREE uint8_t *plain = malloc(FRONT_BYTES);
	struct ckpt_piece piece = {.offset = offset, .bytes = bytes, .codecs = {CKPT_PIECE_DEFLATE}};
	struct front front = {.bytes = plain};
	const struct ckpt_source source = {.bytes = unpacked, .read = read_front, .arg = &front};
	size_t take = (size_t)MIN(bytes, (uint64_t)FRONT_BYTES);
	struct ckpt_npy npy = {.broken = CKPT_NPY_BROKEN};
	int rc = packed && plain ? ckpt_source_read(&r->source, offset, packed, take) : -ENOMEM;

	if (!rc)
		rc = ckpt_inflate_begin(packed, take, plain, FRONT_BYTES, &front.len);
	if (!rc)
		rc = ckpt_npy_read(&source, 0, unpacked, &npy);
	*ret_broken = npy.broken;
	if (rc)
		return rc == -EBADMSG || rc == -ENODATA ? -EINVAL : rc;
	return add_npy(r, named, &npy, &piece);
}

static bool is_npy(const struct ckpt_catalog_reading *r)
{
	return r->head_len >= 6 && !memcmp(r->head, "\x93NUMPY", 6);
}

static int read_npy(struct ckpt_catalog_reading *r)
{
	size_t len = strlen(r->path);
	struct ckpt_catalog_entry entry = {.tree = ".", .name = r->path, .name_len = len, .format = "npy"};
	const char *broken;
	int rc;

	if (len > 4 && !strcmp(r->path + len - 4, ".npy"))
		entry.name_len -= 4;
	rc = ckpt_catalog_add_npy(r, &entry, 0, r->source.bytes, &broken);
	return rc == -EINVAL && broken ? ckpt_catalog_refuse(r, "header", "%s", broken) : rc;
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
