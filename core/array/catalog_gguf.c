// GGUF (ggml's docs/gguf.md), all numbers little-endian:
//
//	file   := "GGUF" version:u32 tensors:u64 pairs:u64 pair* tensor* padding data
//	pair   := key:text type:u32 value
//	tensor := name:text dimensions:u32 size:u64* type:u32 offset:u64     the first size is that of the fastest axis
//	text   := length:u64 bytes
//
// The data begins at the next multiple of general.alignment, 32 without that key, and offsets count from there. Version 1 has
// other lengths; no program has written it since August 2023.
#include "core/array/catalog_format.h"

#include "core/array/array_format.h"
#include "core/array/cursor.h"
#include "core/base/util.h"
#include "core/limits.h"

#define DIMENSIONS_MAX 4
#define ARRAYS_IN_ARRAYS_MAX 4
#define ALIGNMENT 32
#define TYPE_TEXT 8
#define TYPE_ARRAY 9

struct reading {
	struct ckpt_catalog_reading *catalog;
	struct ckpt_cursor cursor;
	uint64_t alignment, tensors, pairs;
	uint64_t data; // where it begins
	char *name;    // of the tensor that is read
};

struct tensor {
	size_t name_len;
	unsigned ndim;
	uint64_t shape[DIMENSIONS_MAX];
	uint64_t type, offset;
};

// ggml_type, by its number: elements of a block and its bytes. One element: a dtype of ours.
//
// Files follow ggml. Its block_q8_1 is two halves and 32 bytes, 36 in all; the table of gguf-py still has two floats there, 40.
static const struct {
	const char *name;
	enum ckpt_dtype dtype;
	uint16_t elements, bytes;
} types[] = {
	[0] = {"F32", CKPT_DTYPE_F32, 1, 4},
	[1] = {"F16", CKPT_DTYPE_F16, 1, 2},
	[2] = {"Q4_0", 0, 32, 18},
	[3] = {"Q4_1", 0, 32, 20},
	[6] = {"Q5_0", 0, 32, 22},
	[7] = {"Q5_1", 0, 32, 24},
	[8] = {"Q8_0", 0, 32, 34},
	[9] = {"Q8_1", 0, 32, 36},
	[10] = {"Q2_K", 0, 256, 84},
	[11] = {"Q3_K", 0, 256, 110},
	[12] = {"Q4_K", 0, 256, 144},
	[13] = {"Q5_K", 0, 256, 176},
	[14] = {"Q6_K", 0, 256, 210},
	[15] = {"Q8_K", 0, 256, 292},
	[16] = {"IQ2_XXS", 0, 256, 66},
	[17] = {"IQ2_XS", 0, 256, 74},
	[18] = {"IQ3_XXS", 0, 256, 98},
	[19] = {"IQ1_S", 0, 256, 50},
	[20] = {"IQ4_NL", 0, 32, 18},
	[21] = {"IQ3_S", 0, 256, 110},
	[22] = {"IQ2_S", 0, 256, 82},
	[23] = {"IQ4_XS", 0, 256, 136},
	[24] = {"I8", CKPT_DTYPE_I8, 1, 1},
	[25] = {"I16", CKPT_DTYPE_I16, 1, 2},
	[26] = {"I32", CKPT_DTYPE_I32, 1, 4},
	[27] = {"I64", CKPT_DTYPE_I64, 1, 8},
	[28] = {"F64", CKPT_DTYPE_F64, 1, 8},
	[29] = {"IQ1_M", 0, 256, 56},
	[30] = {"BF16", CKPT_DTYPE_BF16, 1, 2},
	[34] = {"TQ1_0", 0, 256, 54},
	[35] = {"TQ2_0", 0, 256, 66},
	[39] = {"MXFP4", 0, 32, 17},
	[40] = {"NVFP4", 0, 64, 36},
	[41] = {"Q1_0", 0, 128, 18},
};

// --- Pairs ------------------------------------------------------------------------------------------------------------

static unsigned value_bytes(uint64_t type)
{
	static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

	return type < ARRAY_LEN(bytes) ? bytes[type] : 0;
}

static int skip_text(struct reading *r)
{
	uint64_t len;
	int rc = ckpt_cursor_number(&r->cursor, 8, &len);

	return rc ? rc : ckpt_cursor_skip(&r->cursor, len);
}

static int skip_value(struct reading *r, uint64_t type, int depth);

static int skip_array(struct reading *r, int depth)
{
	uint64_t type, count, bytes;
	int rc = ckpt_cursor_number(&r->cursor, 4, &type);

	if (!rc)
		rc = ckpt_cursor_number(&r->cursor, 8, &count);
	if (rc || depth == ARRAYS_IN_ARRAYS_MAX)
		return rc ? rc : -EINVAL;
	if (value_bytes(type))
		return __builtin_mul_overflow(count, (uint64_t)value_bytes(type), &bytes)
			       ? -EINVAL
			       : ckpt_cursor_skip(&r->cursor, bytes);
	while (!rc && count--)
		rc = skip_value(r, type, depth + 1);
	return rc;
}

static int skip_value(struct reading *r, uint64_t type, int depth)
{
	if (type == TYPE_TEXT)
		return skip_text(r);
	if (type == TYPE_ARRAY)
		return skip_array(r, depth);
	return value_bytes(type) ? ckpt_cursor_skip(&r->cursor, value_bytes(type)) : -EINVAL;
}

static int read_pair(struct reading *r)
{
	static const char alignment[] = "general.alignment";
	char key[sizeof(alignment)] = "";
	uint64_t len, type;
	int rc = ckpt_cursor_number(&r->cursor, 8, &len);

	if (!rc)
		rc = len == sizeof(alignment) - 1 ? ckpt_cursor_take(&r->cursor, key, (size_t)len)
						  : ckpt_cursor_skip(&r->cursor, len);
	if (!rc)
		rc = ckpt_cursor_number(&r->cursor, 4, &type);
	if (rc || strcmp(key, alignment))
		return rc ? rc : skip_value(r, type, 0);
	if (value_bytes(type) != 4)
		return -EINVAL;
	rc = ckpt_cursor_number(&r->cursor, 4, &r->alignment);
	return rc ? rc : r->alignment && !(r->alignment & (r->alignment - 1)) ? 0 : -EINVAL;
}

// --- Tensors ----------------------------------------------------------------------------------------------------------

static int read_tensor(struct reading *r, struct tensor *t)
{
	uint64_t len, ndim;
	int rc = ckpt_cursor_number(&r->cursor, 8, &len);

	if (!rc && len > CKPT_ARRAY_NAME_MAX)
		rc = -EINVAL;
	if (!rc)
		rc = ckpt_cursor_take(&r->cursor, r->name, (size_t)len);
	if (!rc)
		rc = ckpt_cursor_number(&r->cursor, 4, &ndim);
	if (rc || ndim > DIMENSIONS_MAX)
		return rc ? rc : -EINVAL;
	t->name_len = (size_t)len;
	t->ndim = (unsigned)ndim;
	for (unsigned i = t->ndim; i-- > 0 && !rc;)
		rc = ckpt_cursor_number(&r->cursor, 8, &t->shape[i]);
	if (!rc)
		rc = ckpt_cursor_number(&r->cursor, 4, &t->type);
	return rc ? rc : ckpt_cursor_number(&r->cursor, 8, &t->offset);
}

// Whole blocks of the fastest axis. False: that makes no sense.
static bool bytes_of(const struct tensor *t, uint64_t elements, uint64_t *ret_bytes)
{
	uint64_t block = types[t->type].elements, fastest = t->ndim ? t->shape[t->ndim - 1] : 1;

	return !(fastest % block) &&
	       !__builtin_mul_overflow(elements / block, (uint64_t)types[t->type].bytes, ret_bytes);
}

static bool is_type(uint64_t type)
{
	return type < ARRAY_LEN(types) && types[type].name;
}

static int add_tensor(struct reading *r, const struct tensor *t)
{
	struct ckpt_catalog_entry e = {
		.name = r->name, .name_len = t->name_len, .format = "gguf", .ndim = t->ndim, .shape = t->shape};
	struct ckpt_piece piece = {0};
	uint64_t elements, file = r->catalog->source.bytes;
	int rc;

	if (!is_type(t->type))
		e.why = "its type is not known";
	else
		e.dtype = types[t->type].dtype;
	rc = ckpt_catalog_add(r->catalog, &e);
	if (rc || e.why)
		return rc;
	if (!ckpt_array_elements(t->shape, t->ndim, &elements) || !bytes_of(t, elements, &piece.bytes) ||
	    t->offset > file - r->data || piece.bytes > file - r->data - t->offset)
		return ckpt_catalog_refuse(r->catalog, "offset", "%.*s lies outside of the file",
					   (int)MIN(t->name_len, (size_t)128), r->name);
	piece.offset = r->data + t->offset;
	rc = ckpt_catalog_add_piece(r->catalog, &piece);
	return rc || e.dtype ? rc
			     : ckpt_catalog_note(r->catalog, "%s: blocks of %u elements in %u bytes",
						 types[t->type].name, types[t->type].elements, types[t->type].bytes);
}

// Twice over the tensors: where the data begins is known behind them.
static int read_tensors(struct reading *r)
{
	uint64_t begin = r->cursor.at, mask = r->alignment - 1;
	struct tensor t;
	int rc = 0;

	for (uint64_t i = 0; i < r->tensors && !rc; i++)
		rc = read_tensor(r, &t);
	if (rc)
		return rc;
	r->data = (r->cursor.at + mask) & ~mask;
	if (!r->tensors)
		return 0;
	if (r->data > r->catalog->source.bytes)
		return -ENODATA;
	r->cursor.at = begin;
	for (uint64_t i = 0; i < r->tensors && !rc; i++) {
		rc = read_tensor(r, &t);
		if (!rc)
			rc = add_tensor(r, &t);
	}
	return rc;
}

// --- The file ---------------------------------------------------------------------------------------------------------

static int told(struct reading *r, const char *field, int rc)
{
	if (rc == -ENODATA)
		return ckpt_catalog_refuse(r->catalog, field, "the file ends before byte %llu",
					   (unsigned long long)r->cursor.at);
	if (rc == -EFBIG)
		return ckpt_catalog_refuse(r->catalog, field, "the header is too long");
	return rc == -EINVAL ? ckpt_catalog_refuse(r->catalog, field, "it breaks a rule before byte %llu",
						   (unsigned long long)r->cursor.at)
			     : rc;
}

static int read_header(struct reading *r)
{
	uint64_t version;
	int rc = ckpt_cursor_skip(&r->cursor, 4);

	if (!rc)
		rc = ckpt_cursor_number(&r->cursor, 4, &version);
	if (rc)
		return told(r, "version", rc);
	if (version != 2 && version != 3)
		return ckpt_catalog_refuse(r->catalog, "version",
					   version & 0xffff ? "version %llu is not known" : "it is big-endian (%llu)",
					   (unsigned long long)version);
	rc = ckpt_cursor_number(&r->cursor, 8, &r->tensors);
	if (!rc)
		rc = ckpt_cursor_number(&r->cursor, 8, &r->pairs);
	return told(r, "counts", rc);
}

static int read_all(struct reading *r)
{
	int rc = read_header(r);

	for (uint64_t i = 0; i < r->pairs && !rc; i++)
		rc = told(r, "metadata", read_pair(r));
	if (rc)
		return rc;
	rc = read_tensors(r);
	// add_tensor() has said more than this.
	return rc == -EINVAL && r->data ? rc : told(r, "tensors", rc);
}

static bool is_gguf(const struct ckpt_catalog_reading *r)
{
	return r->head_len >= 8 && !memcmp(r->head, "GGUF", 4);
}

static int read_gguf(struct ckpt_catalog_reading *catalog)
{
	struct reading r = {.catalog = catalog, .alignment = ALIGNMENT, .name = malloc(CKPT_ARRAY_NAME_MAX)};
	int rc = ckpt_cursor_init(&r.cursor, &catalog->source, 0, catalog->source.bytes, CKPT_GGUF_HEADER_MAX);

	if (!r.name)
		rc = -ENOMEM;
	if (!rc)
		rc = read_all(&r);
	ckpt_cursor_done(&r.cursor);
	free(r.name);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_gguf = {"gguf", is_gguf, read_gguf};
