#include "core/array/array_format.h"

#include "core/base/util.h"
#include "core/limits.h"

struct row {
	uint64_t offset, bytes;
	uint32_t name, shape; // where in the two below: no header has so many
	uint8_t dtype, ndim;
	bool column_major;
};

struct ckpt_arrays {
	struct row *rows;
	char *names; // each ends in a NUL
	uint64_t *dims;
	size_t count, names_len, dims_count;
	size_t row_cap, names_cap, dims_cap;
};

// --- dtypes -------------------------------------------------------------------------------------------------------------

static const struct {
	const char *name;
	unsigned bits;
} dtypes[CKPT_DTYPE_COUNT] = {
	[CKPT_DTYPE_NONE] = {"?", 0},
	[CKPT_DTYPE_BOOL] = {"bool", 8},
	[CKPT_DTYPE_I8] = {"i8", 8},
	[CKPT_DTYPE_I16] = {"i16", 16},
	[CKPT_DTYPE_I32] = {"i32", 32},
	[CKPT_DTYPE_I64] = {"i64", 64},
	[CKPT_DTYPE_U8] = {"u8", 8},
	[CKPT_DTYPE_U16] = {"u16", 16},
	[CKPT_DTYPE_U32] = {"u32", 32},
	[CKPT_DTYPE_U64] = {"u64", 64},
	[CKPT_DTYPE_F16] = {"f16", 16},
	[CKPT_DTYPE_F32] = {"f32", 32},
	[CKPT_DTYPE_F64] = {"f64", 64},
	[CKPT_DTYPE_BF16] = {"bf16", 16},
	[CKPT_DTYPE_F8E4M3] = {"f8e4m3", 8},
	[CKPT_DTYPE_F8E5M2] = {"f8e5m2", 8},
	[CKPT_DTYPE_C64] = {"c64", 64},
	[CKPT_DTYPE_C128] = {"c128", 128},
	[CKPT_DTYPE_I4] = {"i4", 4},
	[CKPT_DTYPE_U4] = {"u4", 4},
	[CKPT_DTYPE_F4E2M1] = {"f4e2m1", 4},
	[CKPT_DTYPE_F8E4M3FNUZ] = {"f8e4m3fnuz", 8},
	[CKPT_DTYPE_F8E5M2FNUZ] = {"f8e5m2fnuz", 8},
	[CKPT_DTYPE_F8E8M0] = {"f8e8m0", 8},
};

const char *ckpt_dtype_name(enum ckpt_dtype dtype)
{
	return dtypes[dtype < CKPT_DTYPE_COUNT ? dtype : CKPT_DTYPE_NONE].name;
}

const char *ckpt_dtype_numpy(enum ckpt_dtype dtype)
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

enum ckpt_dtype ckpt_dtype_called(const char *numpy)
{
	for (enum ckpt_dtype d = CKPT_DTYPE_NONE + 1; d < CKPT_DTYPE_COUNT; d++)
		if (!strcmp(ckpt_dtype_numpy(d), numpy))
			return d;
	return CKPT_DTYPE_NONE;
}

unsigned ckpt_dtype_bits(enum ckpt_dtype dtype)
{
	return dtypes[dtype < CKPT_DTYPE_COUNT ? dtype : CKPT_DTYPE_NONE].bits;
}

unsigned ckpt_dtype_width(enum ckpt_dtype dtype)
{
	return (ckpt_dtype_bits(dtype) + 7) / 8;
}

// --- What a format adds -------------------------------------------------------------------------------------------------

bool ckpt_array_elements(const uint64_t *shape, unsigned ndim, uint64_t *ret_elements)
{
	uint64_t product = 1;
	bool empty = false;

	// A 0 that stands before the rest would hide that the rest is too much.
	for (unsigned i = 0; i < ndim; i++) {
		if (shape[i] > INT64_MAX)
			return false;
		if (!shape[i])
			empty = true;
		else if (__builtin_mul_overflow(product, shape[i], &product) || product > INT64_MAX)
			return false;
	}
	*ret_elements = empty ? 0 : product;
	return true;
}

int ckpt_arrays_add(struct ckpt_arrays *a, const struct ckpt_array *array, size_t name_len)
{
	struct row *row;

	if (name_len > CKPT_ARRAY_NAME_MAX || memchr(array->name, '\0', name_len))
		return -EINVAL;
	if (ckpt_grow((void **)&a->rows, &a->row_cap, a->count + 1, sizeof(*a->rows)) ||
	    ckpt_grow((void **)&a->names, &a->names_cap, a->names_len + name_len + 1, 1) ||
	    ckpt_grow((void **)&a->dims, &a->dims_cap, a->dims_count + array->ndim + 1, sizeof(*a->dims)))
		return -ENOMEM;
	row = &a->rows[a->count++];
	*row = (struct row){
		.offset = array->offset,
		.bytes = array->bytes,
		.name = (uint32_t)a->names_len,
		.shape = (uint32_t)a->dims_count,
		.dtype = (uint8_t)array->dtype,
		.ndim = (uint8_t)array->ndim,
		.column_major = array->column_major,
	};
	memcpy(a->names + a->names_len, array->name, name_len);
	a->names[a->names_len + name_len] = '\0';
	a->names_len += name_len + 1;
	for (unsigned i = 0; i < array->ndim; i++)
		a->dims[a->dims_count++] = array->shape[i];
	return 0;
}

// --- The set ------------------------------------------------------------------------------------------------------------

static int by_place(const void *one, const void *other)
{
	const struct row *x = one, *y = other;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name; // as they stood in the header
}

static int by_name(const void *one, const void *other)
{
	return strcmp(*(const char *const *)one, *(const char *const *)other);
}

// Each within the file, none over another.
static int check_places(const struct ckpt_arrays *a, uint64_t file_bytes)
{
	uint64_t end = 0;

	for (size_t i = 0; i < a->count; i++) {
		const struct row *row = &a->rows[i];

		if (row->offset < end || row->offset > file_bytes || row->bytes > file_bytes - row->offset)
			return -EINVAL;
		end = row->offset + row->bytes;
	}
	return 0;
}

static int check_names(const struct ckpt_arrays *a)
{
	CLEANUP_FREE const char **names = ckpt_calloc(a->count + 1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < a->count; i++)
		names[i] = a->names + a->rows[i].name;
	qsort(names, a->count, sizeof(*names), by_name);
	for (size_t i = 1; i < a->count; i++)
		if (!strcmp(names[i - 1], names[i]))
			return -EINVAL;
	return 0;
}

// -EINVAL too where it begins like no format.
static int read_format(struct ckpt_arrays *a, const char *name, const struct ckpt_source *s)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
	size_t len = strlen(base);
	uint8_t head[9];
	int rc = ckpt_source_read(s, 0, head, sizeof(head));

	if (rc)
		return rc;
	if (len >= 4 && !strcmp(base + len - 4, ".npy"))
		len -= 4;
	if (!memcmp(head, "\x93NUMPY", 6))
		return ckpt_arrays_npy(a, base, len, s, 0, s->bytes);
	if (!memcmp(head, "PK\3\4", 4) || !memcmp(head, "PK\5\6", 4))
		return ckpt_arrays_zip(a, s);
	return head[8] == '{' ? ckpt_arrays_safetensors(a, s) : -EINVAL;
}

int ckpt_arrays_read(const char *name, const struct ckpt_source *s, struct ckpt_arrays **ret_arrays)
{
	struct ckpt_arrays *a = calloc(1, sizeof(*a));
	int rc = a ? read_format(a, name, s) : -ENOMEM;

	if (!rc) {
		if (a->count)
			qsort(a->rows, a->count, sizeof(*a->rows), by_place);
		rc = check_places(a, s->bytes);
	}
	if (!rc)
		rc = check_names(a);
	if (rc)
		ckpt_arrays_free(TAKE_PTR(a));
	if (rc && rc != -EINVAL)
		return rc;
	*ret_arrays = a;
	return 0;
}

int ckpt_safetensors_bytes(const struct ckpt_source *s, uint64_t *ret_bytes, const char **ret_why)
{
	struct ckpt_arrays *a = calloc(1, sizeof(*a));
	int rc;

	*ret_why = NULL;
	rc = a ? ckpt_arrays_safetensors_bytes(a, s, ret_bytes, ret_why) : -ENOMEM;
	if (!rc) {
		rc = check_names(a);
		*ret_why = rc == -EINVAL ? CKPT_ARRAYS_TWICE : NULL;
	}
	ckpt_arrays_free(a);
	return rc;
}

void ckpt_arrays_free(struct ckpt_arrays *a)
{
	if (!a)
		return;
	free(a->rows);
	free(a->names);
	free(a->dims);
	free(a);
}

size_t ckpt_arrays_count(const struct ckpt_arrays *a)
{
	return a->count;
}

void ckpt_arrays_get(const struct ckpt_arrays *a, size_t i, struct ckpt_array *ret_array)
{
	const struct row *row = &a->rows[i];

	*ret_array = (struct ckpt_array){
		.name = a->names + row->name,
		.dtype = row->dtype,
		.ndim = row->ndim,
		.shape = a->dims + row->shape,
		.offset = row->offset,
		.bytes = row->bytes,
		.column_major = row->column_major,
	};
}
