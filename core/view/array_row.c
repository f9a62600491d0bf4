#include "core/view/array_row.h"

#include "core/base/util.h"
#include "core/record/name.h"

const char *ckpt_array_dtype(enum ckpt_dtype dtype)
{
	static const char *const names[CKPT_DTYPE_COUNT] = {
		[CKPT_DTYPE_BOOL] = "bool",
		[CKPT_DTYPE_I8] = "int8",
		[CKPT_DTYPE_I16] = "int16",
		[CKPT_DTYPE_I32] = "int32",
		[CKPT_DTYPE_I64] = "int64",
		[CKPT_DTYPE_U8] = "uint8",
		[CKPT_DTYPE_U16] = "uint16",
		[CKPT_DTYPE_U32] = "uint32",
		[CKPT_DTYPE_U64] = "uint64",
		[CKPT_DTYPE_F16] = "float16",
		[CKPT_DTYPE_F32] = "float32",
		[CKPT_DTYPE_F64] = "float64",
		[CKPT_DTYPE_BF16] = "bfloat16",
		[CKPT_DTYPE_F8E4M3] = "float8_e4m3fn",
		[CKPT_DTYPE_F8E5M2] = "float8_e5m2",
		[CKPT_DTYPE_C64] = "complex64",
		[CKPT_DTYPE_C128] = "complex128",
		[CKPT_DTYPE_I4] = "int4",
		[CKPT_DTYPE_U4] = "uint4",
		[CKPT_DTYPE_F4E2M1] = "float4_e2m1fn",
		[CKPT_DTYPE_F8E4M3FNUZ] = "float8_e4m3fnuz",
		[CKPT_DTYPE_F8E5M2FNUZ] = "float8_e5m2fnuz",
		[CKPT_DTYPE_F8E8M0] = "float8_e8m0fnu",
	};

	return names[dtype];
}

uint64_t ckpt_array_bytes(const struct ckpt_catalog_array *a)
{
	uint64_t bits = ckpt_dtype_bits(a->dtype);

	for (unsigned i = 0; i < a->ndim; i++)
		bits *= a->shape[i]; // the catalog refuses what has no size
	return (bits + 7) / 8;
}

static json_t *text(const char *bytes)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(bytes);

	return clean ? json_string(clean) : NULL;
}

static json_t *numbers(const uint64_t *list, unsigned count)
{
	json_t *array = json_array();

	for (unsigned i = 0; array && i < count; i++)
		if (json_array_append_new(array, json_integer((json_int_t)list[i]))) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *piece_row(const struct ckpt_piece *p, unsigned ndim)
{
	json_t *codecs = p->codecs[0] ? json_array() : NULL, *row;

	for (int i = 0; i < CKPT_PIECE_CODECS_MAX && p->codecs[i]; i++)
		(void)json_array_append_new(codecs, json_string(ckpt_piece_codec_name(p->codecs[i])));
	row = json_pack("{s:o, s:I, s:I, s:o, s:o, s:o*}", "file", text(p->file), "offset", (json_int_t)p->offset,
			"bytes", (json_int_t)p->bytes, "start", numbers(p->start, ndim), "extent",
			numbers(p->extent, ndim), "codecs", codecs);
	return row;
}

static json_t *pieces_of(const struct ckpt_catalog *c, size_t i, const struct ckpt_catalog_array *a)
{
	json_t *list = json_array();

	for (size_t k = 0; list && k < a->pieces; k++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, i, k, &p);
		if (json_array_append_new(list, piece_row(&p, a->ndim))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

json_t *ckpt_array_row(const struct ckpt_catalog *c, size_t i)
{
	struct ckpt_catalog_array a;

	ckpt_catalog_get(c, i, &a);
	return json_pack("{s:o, s:o, s:s?, s:o, s:I, s:s, s:o, s:s?}", "name", text(a.name), "tree", text(a.tree),
			 "dtype", ckpt_array_dtype(a.dtype), "shape", numbers(a.shape, a.ndim), "bytes",
			 (json_int_t)ckpt_array_bytes(&a), "format", a.format, "pieces", pieces_of(c, i, &a), "why",
			 a.why);
}
