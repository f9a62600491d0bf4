// torch.save() as a zip (torch/serialization.py): TOP/data.pkl is the pickle of the saved object, TOP/data/KEY the bytes of a
// storage, TOP/byteorder "little" or "big". A storage stands in the pickle as the persistent id
//
//	("storage", CLASS, KEY, LOCATION, NUMEL)     torch.FloatStorage ..., or UntypedStorage, whose elements are bytes
//
// and a tensor as the call of a rebuild function of torch/_utils.py with a storage, an offset, sizes and strides. The names of
// arrays are the paths to them: the keys of dictionaries, the numbers of items, and the attributes of objects, joined by ".".
#include "core/array/catalog_torch.h"
#include "core/array/catalog_zero.h"

#include "core/array/array_format.h"
#include "core/base/utf8.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define DEPTH_MAX 256               // of values in each other
#define VISITS_MAX (4u << 20)       // of values on all paths
#define VISIT_BYTES 256             // of a key, that cost as much as one more
#define FLAGS_MAX 64                // of the metadata of a tensor
#define WRAPS_MAX 8                 // a parameter of a subclass of a tensor ...
#define NAME_PART_MAX 32            // digits of a number
#define LATIN1_BYTES_MAX (1u << 20) // of all arrays of a file whose bytes stand as text

// --- dtypes -----------------------------------------------------------------------------------------------------------

static const struct {
	const char *name, *storage;
	enum ckpt_dtype dtype;
} dtypes[] = {
	{"float32", "FloatStorage", CKPT_DTYPE_F32},
	{"float64", "DoubleStorage", CKPT_DTYPE_F64},
	{"float16", "HalfStorage", CKPT_DTYPE_F16},
	{"bfloat16", "BFloat16Storage", CKPT_DTYPE_BF16},
	{"int64", "LongStorage", CKPT_DTYPE_I64},
	{"int32", "IntStorage", CKPT_DTYPE_I32},
	{"int16", "ShortStorage", CKPT_DTYPE_I16},
	{"int8", "CharStorage", CKPT_DTYPE_I8},
	{"uint8", "ByteStorage", CKPT_DTYPE_U8},
	{"bool", "BoolStorage", CKPT_DTYPE_BOOL},
	{"complex64", "ComplexFloatStorage", CKPT_DTYPE_C64},
	{"complex128", "ComplexDoubleStorage", CKPT_DTYPE_C128},
	{"uint16", NULL, CKPT_DTYPE_U16},
	{"uint32", NULL, CKPT_DTYPE_U32},
	{"uint64", NULL, CKPT_DTYPE_U64},
	{"float8_e4m3fn", NULL, CKPT_DTYPE_F8E4M3},
	{"float8_e5m2", NULL, CKPT_DTYPE_F8E5M2},
	{"float8_e4m3fnuz", NULL, CKPT_DTYPE_F8E4M3FNUZ},
	{"float8_e5m2fnuz", NULL, CKPT_DTYPE_F8E5M2FNUZ},
	{"float8_e8m0fnu", NULL, CKPT_DTYPE_F8E8M0},
};

static bool is(const char *text, size_t len, const char *other)
{
	return other && len == strlen(other) && !memcmp(text, other, len);
}

enum ckpt_dtype ckpt_torch_dtype(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
		if (is(name, len, dtypes[i].name))
			return dtypes[i].dtype;
	return CKPT_DTYPE_NONE;
}

// The class of a storage is "torch FloatStorage" or "torch.cuda FloatStorage"; U8 stands for one without a type.
enum ckpt_dtype ckpt_torch_storage_dtype(const char *global, size_t len)
{
	const char *space = memchr(global, ' ', len), *name = space ? space + 1 : global;
	size_t name_len = len - (size_t)(name - global);

	if (is(name, name_len, "UntypedStorage"))
		return CKPT_DTYPE_U8;
	for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
		if (is(name, name_len, dtypes[i].storage))
			return dtypes[i].dtype;
	return CKPT_DTYPE_NONE;
}

// The bytes of an element, also of types that have no equal here; 0: the class is not known.
unsigned ckpt_torch_storage_width(const char *global, size_t len)
{
	static const struct {
		const char *name;
		unsigned bytes;
	} others[] = {
		{"QInt8Storage", 1},    {"QUInt8Storage", 1},   {"QInt32Storage", 4},
		{"QUInt4x2Storage", 1}, {"QUInt2x4Storage", 1}, {"ComplexHalfStorage", 4},
	};
	const char *space = memchr(global, ' ', len), *name = space ? space + 1 : global;

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (is(name, len - (size_t)(name - global), others[i].name))
			return others[i].bytes;
	return ckpt_dtype_width(ckpt_torch_storage_dtype(global, len));
}

// --- The zip ----------------------------------------------------------------------------------------------------------

int ckpt_torch_by_key(const void *one, const void *other)
{
	const struct ckpt_torch_storage *a = one, *b = other;
	int order = memcmp(a->key, b->key, MIN(a->key_len, b->key_len));

	return order ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

// The directory is not kept: names of members are. All of them together are shorter than it is.
static const char *keep_name(struct ckpt_torch *r, const struct ckpt_zip_member *m)
{
	char *name = memcpy(r->names + r->names_len, m->name, m->name_len);

	r->names_len += m->name_len;
	return name;
}

static int find_pickle(void *arg, const struct ckpt_zip_member *m)
{
	static const char end[] = "/data.pkl";
	const size_t len = sizeof(end) - 1;
	struct ckpt_torch *r = arg;

	if (r->has_pickle || m->name_len <= len || memcmp(m->name + m->name_len - len, end, len))
		return 0;
	r->top = *m;
	r->has_pickle = true;
	r->top.name = keep_name(r, m);
	return 0;
}

// The part behind TOP and `part` in the name of a member; NULL: it is another one.
static const char *behind(const struct ckpt_torch *r, const struct ckpt_zip_member *m, const char *part)
{
	size_t top = r->top.name_len - strlen("/data.pkl"), len = strlen(part);

	if (m->name_len < top + len || memcmp(m->name, r->top.name, top) || memcmp(m->name + top, part, len))
		return NULL;
	return m->name + top + len;
}

static int take_member(void *arg, const struct ckpt_zip_member *m)
{
	struct ckpt_torch *r = arg;
	const char *key = behind(r, m, "/data/"), *order = behind(r, m, "/byteorder");
	struct ckpt_torch_storage *s;
	int rc;

	if (order && order == m->name + m->name_len && !r->has_byteorder) {
		r->byteorder = *m;
		r->byteorder.name = keep_name(r, m);
		r->has_byteorder = true;
	}
	if (!key)
		return 0;
	rc = ckpt_grow((void **)&r->storages, &r->cap, r->count + 1, sizeof(*s));
	if (rc)
		return rc;
	s = &r->storages[r->count++];
	*s = (struct ckpt_torch_storage){.key_len = (size_t)(m->name + m->name_len - key), .member = *m};
	s->member.name = keep_name(r, m);
	s->key = s->member.name + (key - m->name);
	return 0;
}

static int take_byteorder(struct ckpt_torch *r)
{
	char text[4] = "";
	uint64_t at;
	int rc;

	if (!r->has_byteorder || !r->byteorder.stored || r->byteorder.bytes < 3)
		return 0;
	rc = ckpt_zip_data(r->source, &r->byteorder, &at);
	if (!rc)
		rc = ckpt_source_read(r->source, at, text, 3);
	r->big_endian = !strcmp(text, "big");
	return rc;
}

static int take_members(struct ckpt_torch *r, const struct ckpt_zip *zip)
{
	int rc;

	r->names = malloc((size_t)MIN(zip->directory_bytes, (uint64_t)CKPT_ZIP_DIRECTORY_MAX) + 1);
	if (!r->names)
		return -ENOMEM;
	rc = ckpt_zip_each(r->source, zip, find_pickle, r);
	if (!rc)
		rc = ckpt_zip_each(r->source, zip, take_member, r);
	if (!rc && r->count)
		qsort(r->storages, r->count, sizeof(*r->storages), ckpt_torch_by_key);
	for (size_t i = 1; i < r->count && !rc; i++)
		if (!ckpt_torch_by_key(&r->storages[i - 1], &r->storages[i]))
			rc = -EINVAL;
	return rc ? rc : take_byteorder(r);
}

// --- Arrays -----------------------------------------------------------------------------------------------------------

static int add_entry(struct ckpt_torch *r, struct ckpt_catalog_entry *e)
{
	e->name = r->name;
	e->name_len = r->name_len;
	e->format = "torch";
	return ckpt_catalog_add(r->catalog, e);
}

static int add_unread(struct ckpt_torch *r, const char *why)
{
	return add_entry(r, &(struct ckpt_catalog_entry){.why = why});
}

// The number of elements between the first and the last of a box, both included; false: too many.
static bool span_of(const uint64_t *shape, const uint64_t *strides, unsigned ndim, uint64_t *ret_span)
{
	uint64_t span = 1, more;

	for (unsigned i = 0; i < ndim; i++) {
		if (!shape[i]) {
			*ret_span = 0;
			return true;
		}
		if (__builtin_mul_overflow(shape[i] - 1, strides[i], &more) ||
		    __builtin_add_overflow(span, more, &span))
			return false;
	}
	*ret_span = span;
	return span <= INT64_MAX;
}

struct view {
	struct ckpt_torch_storage *storage;
	enum ckpt_dtype dtype;
	uint64_t numel; // of the storage, in its own elements
	enum ckpt_dtype storage_dtype;
	uint64_t first, span;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX];
	unsigned ndim;
};

// The storage that a persistent id names. NULL, or why it cannot be read.
static const char *take_storage(struct ckpt_torch *r, ckpt_value value, struct view *view)
{
	const struct ckpt_pickle *p = r->pickle;
	ckpt_value id = ckpt_value_id(p, value);
	struct ckpt_torch_storage want = {0};
	size_t len;
	const char *class;

	if (ckpt_value_count(p, id) < 5 || !ckpt_value_is_text(p, ckpt_value_at(p, id, 0), "storage"))
		return "its storage is not what torch writes";
	// Before torch 0.4 a storage could be a part of another one.
	if (ckpt_value_kind(p, ckpt_value_at(p, id, 5)) == CKPT_VALUE_TUPLE)
		return "its storage is a part of another storage";
	class = ckpt_value_global(p, ckpt_value_at(p, id, 1), &len);
	view->storage_dtype = class ? ckpt_torch_storage_dtype(class, len) : CKPT_DTYPE_NONE;
	want.key = ckpt_value_text(p, ckpt_value_at(p, id, 2), &want.key_len);
	if (!want.key || !ckpt_value_size(p, ckpt_value_at(p, id, 4), &view->numel))
		return "its storage is not what torch writes";
	if (!view->storage_dtype)
		return "the class of its storage is not known";
	view->storage = r->count ? bsearch(&want, r->storages, r->count, sizeof(want), ckpt_torch_by_key) : NULL;
	return view->storage ? NULL : CKPT_WHY_NO_STORAGE;
}

static int find_storage(struct ckpt_torch *r, struct ckpt_torch_storage *s)
{
	int rc = s->offset ? 0 : ckpt_zip_data(r->source, &s->member, &s->offset);

	return rc != -EINVAL ? rc
			     : ckpt_catalog_refuse(r->catalog, "storage", "%.*s has a wrong header in the zip",
						   (int)MIN(s->key_len, (size_t)64), s->key);
}

// The bytes of a storage that is all there, and in which the view lies.
static const char *check_place(const struct ckpt_torch *r, const struct view *v)
{
	uint64_t width = ckpt_dtype_width(v->dtype), end, bytes;

	if (!v->storage->member.stored)
		return "its storage is compressed in the zip";
	if (__builtin_mul_overflow(v->numel, (uint64_t)ckpt_dtype_width(v->storage_dtype), &bytes) ||
	    bytes > v->storage->member.bytes || v->storage->offset > r->source->bytes ||
	    v->storage->member.bytes > r->source->bytes - v->storage->offset)
		return "its storage is shorter than it says";
	if (__builtin_add_overflow(v->first, v->span, &end) || __builtin_mul_overflow(end, width, &end) || end > bytes)
		return v->span ? "it lies outside of its storage" : NULL;
	return NULL;
}

static int add_view(struct ckpt_torch *r, struct view *v, const char *why)
{
	struct ckpt_catalog_entry e = {
		.why = why, .dtype = v->dtype, .ndim = v->ndim, .shape = v->shape, .big_endian = r->big_endian};
	struct ckpt_piece piece = {.strides = v->strides};
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];
	unsigned width = ckpt_dtype_width(v->dtype);
	int rc;

	if (!why && !v->dtype)
		e.why = "its dtype has no equal here";
	rc = e.why ? 0 : find_storage(r, v->storage);
	if (!rc && !e.why)
		e.why = check_place(r, v);
	if (!rc)
		rc = add_entry(r, &e);
	if (rc || e.why)
		return rc;
	piece.offset = v->span ? v->storage->offset + v->first * width : v->storage->offset;
	piece.bytes = v->span * width;
	piece.start = origin;
	piece.extent = v->shape;
	return ckpt_catalog_add_piece(r->catalog, &piece);
}

// A storage that stands for itself.
static int add_storage(struct ckpt_torch *r, ckpt_value value)
{
	struct view v = {.ndim = 1, .strides = {1}};
	const char *why;

	if (r->seen)
		return r->seen(r->seen_arg, r);
	why = take_storage(r, value, &v);
	v.dtype = v.storage_dtype;
	v.shape[0] = v.span = MIN(v.numel, (uint64_t)INT64_MAX);
	return add_view(r, &v, why);
}

static bool has_flag(const struct ckpt_pickle *p, ckpt_value metadata, const char *key)
{
	ckpt_value value;
	int64_t flag;

	// Many tensors may share one large dictionary.
	return ckpt_value_count(p, metadata) <= 2 * FLAGS_MAX && ckpt_value_get(p, metadata, key, &value) &&
	       ckpt_value_int(p, value, &flag) && flag;
}

// The arguments of _rebuild_tensor(), _v2() or _v3(); version 1, 2 or 3.
static int add_tensor(struct ckpt_torch *r, ckpt_value arguments, int version)
{
	const struct ckpt_pickle *p = r->pickle;
	struct view v = {0};
	ckpt_value metadata = version > 1 ? ckpt_value_at(p, arguments, version == 3 ? 7 : 6) : 0;
	const char *why = NULL, *dtype;
	unsigned strides;
	size_t len;

	if (!ckpt_value_size(p, ckpt_value_at(p, arguments, 1), &v.first) ||
	    !ckpt_value_sizes(p, ckpt_value_at(p, arguments, 2), v.shape, &v.ndim) ||
	    !ckpt_value_sizes(p, ckpt_value_at(p, arguments, 3), v.strides, &strides) || strides != v.ndim ||
	    !span_of(v.shape, v.strides, v.ndim, &v.span))
		return add_unread(r, "its shape is not what torch writes");
	why = take_storage(r, ckpt_value_at(p, arguments, 0), &v);
	v.dtype = v.storage_dtype;
	if (version == 3) {
		dtype = ckpt_value_global(p, ckpt_value_at(p, arguments, 6), &len);
		v.dtype = dtype && len > 6 ? ckpt_torch_dtype(dtype + 6, len - 6) : CKPT_DTYPE_NONE;
	}
	if (has_flag(p, metadata, "conj") || has_flag(p, metadata, "neg"))
		why = "it is a conjugated or negated view";
	return add_view(r, &v, why);
}

// --- Arrays of NumPy, whose bytes stand in the pickle -----------------------------------------------------------------

// A numpy.dtype: ("f4", False, True) with the state (3, "<", ...).
static enum ckpt_dtype numpy_dtype(const struct ckpt_pickle *p, ckpt_value dtype, bool *ret_big)
{
	size_t len;
	const char *code;

	if (!ckpt_value_is_global(p, ckpt_value_callee(p, dtype), "numpy dtype"))
		return CKPT_DTYPE_NONE;
	*ret_big = ckpt_value_is_text(p, ckpt_value_at(p, ckpt_value_state(p, dtype), 1), ">");
	code = ckpt_value_text(p, ckpt_value_at(p, ckpt_value_arguments(p, dtype), 0), &len);
	if (!code || len < 2 || len > 3 || strspn(code + 1, "0123456789") != len - 1)
		return CKPT_DTYPE_NONE;
	return ckpt_npy_number(code[0], strtoull(code + 1, NULL, 10));
}

// Protocol 2 has no opcode for bytes. Python writes the call _codecs.encode(TEXT, "latin1"), whose text has a character for each byte.
// bytes has room for cap of them. False: it is no such call, or a character is no byte.
static bool take_latin1(const struct ckpt_pickle *p, ckpt_value call, uint8_t *bytes, size_t cap, size_t *ret_len)
{
	ckpt_value arguments = ckpt_value_arguments(p, call);
	const uint8_t *text;
	size_t len, count = 0;

	if (!ckpt_value_is_global(p, ckpt_value_callee(p, call), "_codecs encode") ||
	    !ckpt_value_is_text(p, ckpt_value_at(p, arguments, 1), "latin1"))
		return false;
	text = (const uint8_t *)ckpt_value_text(p, ckpt_value_at(p, arguments, 0), &len);
	if (!text)
		return false;
	for (size_t i = 0; i < len; count++) {
		size_t step = ckpt_utf8_sequence(text + i, len - i);

		if (count == cap || (step != 1 && (step != 2 || text[i] > 0xc3)))
			return false;
		bytes[count] = (uint8_t)(step == 1 ? text[i] : text[i] << 6 | (text[i + 1] & 0x3f));
		i += step;
	}
	*ret_len = count;
	return true;
}

// The bytes of such a call become the piece's own. 0: *ret_data, malloc'ed, has them. 1: it is no such call, or has more bytes. -ENOMEM.
static int read_latin1(struct ckpt_torch *r, ckpt_value data, uint64_t bytes, struct ckpt_piece *piece,
		       uint8_t **ret_data)
{
	CLEANUP_FREE uint8_t *plain = NULL;
	size_t len;

	if (!bytes || bytes > LATIN1_BYTES_MAX - r->latin1_bytes)
		return 1;
	plain = malloc((size_t)bytes);
	if (!plain)
		return -ENOMEM;
	if (!take_latin1(r->pickle, data, plain, (size_t)bytes, &len))
		return 1;
	r->latin1_bytes += len;
	piece->bytes = len;
	piece->data = *ret_data = TAKE_PTR(plain);
	return 0;
}

static int add_numpy(struct ckpt_torch *r, ckpt_value shape, ckpt_value dtype, bool fortran, ckpt_value data)
{
	const struct ckpt_pickle *p = r->pickle;
	uint64_t numbers[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX], step = 1, elements;
	struct ckpt_catalog_entry e = {.shape = numbers};
	struct ckpt_piece piece = {.strides = fortran ? strides : NULL};
	CLEANUP_FREE uint8_t *plain = NULL;
	int rc = 0;

	if (!ckpt_value_sizes(p, shape, numbers, &e.ndim) || !ckpt_array_elements(numbers, e.ndim, &elements))
		return add_unread(r, "its shape is not what NumPy writes");
	e.dtype = numpy_dtype(p, dtype, &e.big_endian);
	// Protocol 2 has no bytes of no elements, but a call of bytes().
	if (e.dtype && !ckpt_value_bytes(p, data, &piece.offset, &piece.bytes) && elements)
		rc = elements > LATIN1_BYTES_MAX
			     ? 1
			     : read_latin1(r, data, elements * ckpt_dtype_width(e.dtype), &piece, &plain);
	if (rc < 0)
		return rc;
	if (!e.dtype)
		e.why = "its elements are no numbers";
	else if (rc)
		e.why = "its bytes stand in the pickle as text";
	else if (piece.bytes % ckpt_dtype_width(e.dtype) || piece.bytes / ckpt_dtype_width(e.dtype) != elements)
		e.why = CKPT_WHY_SHORT;
	rc = add_entry(r, &e);
	for (unsigned i = 0; i < e.ndim; i++) {
		strides[i] = step;
		step *= MAX(numbers[i], UINT64_C(1));
	}
	return rc || e.why ? rc : ckpt_catalog_add_piece(r->catalog, &piece);
}

// --- Calls ------------------------------------------------------------------------------------------------------------

enum call {
	TENSOR_1,
	TENSOR_2,
	TENSOR_3,
	WRAPPED, // the first argument
	TYPED,   // (function, type, arguments, state)
	NUMPY,   // the state is the array
	NUMPY_BUFFER,
	UNREAD,
};

static const struct {
	const char *name;
	enum call call;
	const char *why;
} calls[] = {
	{"torch._utils _rebuild_tensor", TENSOR_1, NULL},
	{"torch._utils _rebuild_tensor_v2", TENSOR_2, NULL},
	{"torch._utils _rebuild_tensor_v3", TENSOR_3, NULL},
	{"torch._utils _rebuild_parameter", WRAPPED, NULL},
	{"torch._utils _rebuild_parameter_with_state", WRAPPED, NULL},
	{"torch._utils _rebuild_device_tensor_from_cpu_tensor", WRAPPED, NULL},
	{"torch._utils _rebuild_device_tensor_from_numpy", WRAPPED, NULL},
	{"torch._utils _rebuild_xla_tensor", WRAPPED, NULL},
	{"torch._tensor _rebuild_from_type_v2", TYPED, NULL},
	{"torch._tensor _rebuild_from_type", TYPED, NULL},
	{"torch.tensor _rebuild_from_type", TYPED, NULL}, // before torch 1.9
	{"numpy.core.multiarray _reconstruct", NUMPY, NULL},
	{"numpy._core.multiarray _reconstruct", NUMPY, NULL},
	{"numpy.core.numeric _frombuffer", NUMPY_BUFFER, NULL},
	{"numpy._core.numeric _frombuffer", NUMPY_BUFFER, NULL},
	{"torch._utils _rebuild_qtensor", UNREAD, "it is quantized"},
	{"torch._utils _rebuild_sparse_tensor", UNREAD, "it is sparse"},
	{"torch._utils _rebuild_sparse_csr_tensor", UNREAD, "it is sparse"},
	{"torch._utils _rebuild_nested_tensor", UNREAD, "it is nested"},
	{"torch.nested._internal.nested_tensor _rebuild_njt", UNREAD, "it is nested"},
	{"torch._utils _rebuild_meta_tensor_no_storage", UNREAD, "it is a meta tensor, which has no bytes"},
	{"torch._utils _rebuild_wrapper_subclass", UNREAD, "it is a subclass of a tensor without a storage"},
	{"numpy.ma.core _mareconstruct", UNREAD, "it is a masked array"},
	{"torch.storage _load_from_bytes", UNREAD, "it is a torch.save() inside of the pickle"},
};

static int add_call(struct ckpt_torch *r, ckpt_value object, enum call call, ckpt_value arguments)
{
	const struct ckpt_pickle *p = r->pickle;
	ckpt_value state = ckpt_value_state(p, object);
	int64_t fortran = 0;

	switch (call) {
	case NUMPY:
		(void)ckpt_value_int(p, ckpt_value_at(p, state, 3), &fortran);
		return add_numpy(r, ckpt_value_at(p, state, 1), ckpt_value_at(p, state, 2), fortran,
				 ckpt_value_at(p, state, 4));
	case NUMPY_BUFFER:
		return add_numpy(r, ckpt_value_at(p, arguments, 2), ckpt_value_at(p, arguments, 1),
				 ckpt_value_is_text(p, ckpt_value_at(p, arguments, 3), "F"),
				 ckpt_value_at(p, arguments, 0));
	default:
		return add_tensor(r, arguments, call == TENSOR_1 ? 1 : call == TENSOR_2 ? 2 : 3);
	}
}

// The call that makes the array of the object, with its arguments and the reason why it is not read. False: the object is no array.
static bool find_call(const struct ckpt_pickle *p, ckpt_value *object, ckpt_value *ret_arguments, enum call *ret_call,
		      const char **ret_why)
{
	ckpt_value callee = ckpt_value_callee(p, *object), arguments = ckpt_value_arguments(p, *object);

	for (int wraps = 0; wraps < WRAPS_MAX; wraps++) {
		size_t i = 0;

		while (i < ARRAY_LEN(calls) && !ckpt_value_is_global(p, callee, calls[i].name))
			i++;
		if (i == ARRAY_LEN(calls))
			return false;
		if (calls[i].call == TYPED) {
			callee = ckpt_value_at(p, arguments, 0);
			arguments = ckpt_value_at(p, arguments, 2);
		} else if (calls[i].call == WRAPPED) {
			*object = ckpt_value_at(p, arguments, 0);
			callee = ckpt_value_callee(p, *object);
			arguments = ckpt_value_arguments(p, *object);
		} else {
			*ret_arguments = arguments;
			*ret_call = calls[i].call;
			*ret_why = calls[i].why;
			return true;
		}
	}
	*ret_why = "it is wrapped too often";
	return true;
}

// 1: the object is no array.
static int add_object(struct ckpt_torch *r, ckpt_value object)
{
	ckpt_value arguments = 0;
	enum call call = UNREAD;
	const char *why;

	if (!find_call(r->pickle, &object, &arguments, &call, &why))
		return 1;
	if (r->seen)
		return r->seen(r->seen_arg, r);
	return why ? add_unread(r, why) : add_call(r, object, call, arguments);
}

// --- The walk ---------------------------------------------------------------------------------------------------------

static int visit(struct ckpt_torch *r, ckpt_value value, unsigned depth);

static int refuse(struct ckpt_torch *r, const char *why)
{
	return r->catalog ? ckpt_catalog_refuse(r->catalog, r->field, "%s", why) : -EINVAL;
}

// The key joins the name; false: it is too long.
static bool join(struct ckpt_torch *r, const char *key, size_t len, unsigned depth)
{
	if (len > CKPT_ARRAY_NAME_MAX - r->name_len - 1 || r->name_len >= CKPT_ARRAY_NAME_MAX)
		return false;
	if (depth)
		r->name[r->name_len++] = '.';
	memcpy(r->name + r->name_len, key, len);
	r->name_len += len;
	r->visits += len / VISIT_BYTES; // one long key may stand in many places
	return true;
}

static int visit_child(struct ckpt_torch *r, const char *key, size_t len, ckpt_value value, unsigned depth)
{
	size_t before = r->name_len;
	int rc = join(r, key, len, depth) ? visit(r, value, depth + 1) : refuse(r, "the name of an array is too long");

	r->name_len = before;
	return rc;
}

static int visit_number(struct ckpt_torch *r, int64_t number, ckpt_value value, unsigned depth)
{
	char key[NAME_PART_MAX];
	int len = snprintf(key, sizeof(key), "%lld", (long long)number);

	return visit_child(r, key, (size_t)len, value, depth);
}

// Keys that are neither text nor numbers have the number of their place.
static int visit_dict(struct ckpt_torch *r, ckpt_value dict, unsigned depth)
{
	const struct ckpt_pickle *p = r->pickle;
	int64_t place = 0, number;
	int rc = 0;

	for (ckpt_item at = ckpt_value_first(p, dict), value; at && !rc; at = ckpt_item_next(p, value), place++) {
		ckpt_value key = ckpt_item_value(p, at);
		size_t len;
		const char *text = ckpt_value_text(p, key, &len);

		value = ckpt_item_next(p, at);
		r->key = at;
		if (text)
			rc = visit_child(r, text, len, ckpt_item_value(p, value), depth);
		else
			rc = visit_number(r, ckpt_value_int(p, key, &number) ? number : place,
					  ckpt_item_value(p, value), depth);
	}
	return rc;
}

static int visit_items(struct ckpt_torch *r, ckpt_value list, unsigned depth)
{
	const struct ckpt_pickle *p = r->pickle;
	int64_t place = 0;
	int rc = 0;

	for (ckpt_item at = ckpt_value_first(p, list); at && !rc; at = ckpt_item_next(p, at)) {
		r->key = 0;
		rc = visit_number(r, place++, ckpt_item_value(p, at), depth);
	}
	return rc;
}

// Nothing is known of an object but its state and what it was made from, and these may hold arrays. With slots the state is a pair: the
// attributes, or None, and the slots.
static int visit_object(struct ckpt_torch *r, ckpt_value object, unsigned depth)
{
	const struct ckpt_pickle *p = r->pickle;
	ckpt_value state = ckpt_value_state(p, object), slots = 0;
	int rc;

	r->objects++;
	if (ckpt_value_kind(p, state) == CKPT_VALUE_TUPLE && ckpt_value_count(p, state) == 2 &&
	    ckpt_value_kind(p, ckpt_value_at(p, state, 1)) == CKPT_VALUE_DICT) {
		slots = ckpt_value_at(p, state, 1);
		state = ckpt_value_at(p, state, 0);
	}
	rc = ckpt_value_kind(p, state) == CKPT_VALUE_DICT ? visit_dict(r, state, depth) : visit_items(r, state, depth);
	if (!rc && slots)
		rc = visit_dict(r, slots, depth);
	if (!rc)
		rc = visit_items(r, ckpt_value_arguments(p, object), depth);
	r->objects--;
	return rc;
}

static int visit_inside(struct ckpt_torch *r, ckpt_value value, unsigned depth)
{
	int rc;

	switch (ckpt_value_kind(r->pickle, value)) {
	case CKPT_VALUE_DICT:
		return visit_dict(r, value, depth);
	case CKPT_VALUE_TUPLE:
	case CKPT_VALUE_LIST:
		return visit_items(r, value, depth);
	case CKPT_VALUE_PERSISTENT:
		return add_storage(r, value);
	case CKPT_VALUE_OBJECT:
		rc = add_object(r, value);
		return rc == 1 ? visit_object(r, value, depth) : rc;
	default:
		return 0;
	}
}

// A value that is on the path to itself is passed over there.
static int visit(struct ckpt_torch *r, ckpt_value value, unsigned depth)
{
	uint8_t *byte = &r->on_path[value / 8], bit = (uint8_t)(1u << value % 8);
	int rc;

	if (r->visits++ >= VISITS_MAX)
		return refuse(r, "too many paths lead to its values");
	if (*byte & bit)
		return 0;
	if (depth > DEPTH_MAX)
		return refuse(r, "its values are nested too deep");
	*byte |= bit;
	rc = visit_inside(r, value, depth);
	*byte &= (uint8_t)~bit;
	return rc;
}

// --- The file ---------------------------------------------------------------------------------------------------------

static int read_pickle(struct ckpt_torch *r)
{
	struct ckpt_pickle_fault fault;
	uint64_t at, end;
	int rc;

	if (!r->top.stored)
		return ckpt_catalog_refuse(r->catalog, "data.pkl", "it is compressed in the zip");
	rc = ckpt_zip_data(r->source, &r->top, &at);
	if (rc == -EINVAL || __builtin_add_overflow(at, r->top.bytes, &end))
		return ckpt_catalog_refuse(r->catalog, "data.pkl", "it has a wrong header in the zip");
	if (!rc)
		rc = ckpt_pickle_read(r->source, at, end, &r->pickle, NULL, &fault);
	return rc != -EINVAL ? rc
			     : ckpt_catalog_refuse(r->catalog, "data.pkl", "byte %llu of the file: %s",
						   (unsigned long long)fault.at, fault.what);
}

// An object that is an array itself is called like the file, without what is behind the last dot.
static int walk(struct ckpt_torch *r)
{
	const char *base = r->catalog ? r->catalog->base : "", *dot = strrchr(base, '.');
	ckpt_value root = ckpt_pickle_root(r->pickle);

	r->name = malloc(CKPT_ARRAY_NAME_MAX + 1);
	r->on_path = calloc(ckpt_pickle_count(r->pickle) / 8 + 1, 1);
	if (!r->name || !r->on_path)
		return -ENOMEM;
	switch (ckpt_value_kind(r->pickle, root)) {
	case CKPT_VALUE_OBJECT:
	case CKPT_VALUE_PERSISTENT: {
		int rc;

		r->name_len = MIN(dot && dot > base ? (size_t)(dot - base) : strlen(base), (size_t)CKPT_NAME_MAX);
		memcpy(r->name, base, r->name_len);
		rc = ckpt_value_kind(r->pickle, root) == CKPT_VALUE_OBJECT ? add_object(r, root) : add_storage(r, root);
		r->name_len = 0;
		return rc == 1 ? visit_object(r, root, 0) : rc;
	}
	default:
		return visit(r, root, 0);
	}
}

int ckpt_torch_walk(struct ckpt_torch *r)
{
	size_t first_row = ckpt_catalog_count(r->catalog->catalog);
	int rc = walk(r);

	return rc ? rc : ckpt_zero_take(r, first_row);
}

int ckpt_torch_each(struct ckpt_pickle *p, int (*seen)(void *arg, const struct ckpt_torch *r), void *arg)
{
	struct ckpt_torch r = {.pickle = p, .seen = seen, .seen_arg = arg};
	int rc = walk(&r);

	free(r.name);
	free(r.on_path);
	return rc;
}

void ckpt_torch_done(struct ckpt_torch *r)
{
	ckpt_pickle_free(r->pickle);
	free(r->storages);
	free(r->names);
	free(r->name);
	free(r->on_path);
}

int ckpt_catalog_read_torch(struct ckpt_catalog_reading *catalog, const struct ckpt_zip *zip)
{
	struct ckpt_torch r = {.catalog = catalog, .source = &catalog->source, .field = "data.pkl"};
	int rc = take_members(&r, zip);

	if (rc == -EINVAL)
		rc = ckpt_catalog_refuse(catalog, "members", "a member of the zip breaks a rule");
	if (!rc)
		rc = read_pickle(&r);
	if (!rc)
		rc = ckpt_torch_walk(&r);
	ckpt_torch_done(&r);
	return rc;
}
