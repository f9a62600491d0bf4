// MessagePack (spec.md of msgpack), as flax.serialization writes it: *.msgpack and checkpoint_N of flax, and the file `checkpoint` of
// Orbax, which has what its other files lack. Maps and lists in each other, whose names are joined by ".". Of its values these are
// arrays:
//
//	extension 1   an array of NumPy: a packed list of the shape, the name of the dtype, the bytes
//	extension 3   a scalar of NumPy: the same
//	a map whose first key is __msgpack_chunked_array__: shape is {"0": N, ...}, chunks is {"0": flat array, ...}
//
// All others are values of the program, and no arrays. The file is read from front to back; the bytes of arrays are skipped.
#include "core/array/catalog_format.h"

#include "core/array/array_format.h"
#include "core/array/cursor.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define DEPTH_MAX 64
#define VALUES_MAX (8u << 20)
#define READ_MAX ((uint64_t)4 << 30)
#define CHUNKED "__msgpack_chunked_array__"
#define KEY_MAX 4096
#define DTYPE_MAX 32

enum kind { NIL, BOOL, INT, FLOAT, TEXT, BYTES, LIST, MAP, EXTENSION };

struct value {
	enum kind kind;
	uint64_t n;    // a number; bytes of TEXT, BYTES and EXTENSION; values of a LIST, pairs of a MAP
	uint8_t type;  // of an extension
	bool negative; // an INT that is none from 0 on
};

struct packed_array {
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	unsigned ndim;
	enum ckpt_dtype dtype;
	uint64_t offset, bytes;
};

struct reading {
	struct ckpt_catalog_reading *catalog;
	struct ckpt_cursor cursor;
	char *name; // CKPT_ARRAY_NAME_MAX + 1
	size_t name_len;
	size_t values;
};

static int refuse(struct reading *r, const char *what)
{
	return ckpt_catalog_refuse(r->catalog, "msgpack", "byte %llu: %s", (unsigned long long)r->cursor.at, what);
}

// --- Values -----------------------------------------------------------------------------------------------------------

static int take_big(struct reading *r, unsigned bytes, uint64_t *ret_number)
{
	uint8_t number[8];
	int rc = ckpt_cursor_take(&r->cursor, number, bytes);

	*ret_number = 0;
	for (unsigned i = 0; i < bytes && !rc; i++)
		*ret_number = *ret_number << 8 | number[i];
	return rc;
}

static int take_extension(struct reading *r, struct value *v)
{
	return ckpt_cursor_byte(&r->cursor, &v->type);
}

// The first bytes that are no small value: 0xc0 to 0xdf, with the bytes of the number that follows each.
static const struct {
	enum kind kind;
	uint8_t bytes;
} heads[32] = {
	{NIL, 0},       {NIL, 0},       {BOOL, 0},      {BOOL, 0},      {BYTES, 1}, {BYTES, 2}, {BYTES, 4},
	{EXTENSION, 1}, {EXTENSION, 2}, {EXTENSION, 4}, {FLOAT, 4},     {FLOAT, 8}, {INT, 1},   {INT, 2},
	{INT, 4},       {INT, 8},       {INT, 1},       {INT, 2},       {INT, 4},   {INT, 8},   {EXTENSION, 0},
	{EXTENSION, 0}, {EXTENSION, 0}, {EXTENSION, 0}, {EXTENSION, 0}, {TEXT, 1},  {TEXT, 2},  {TEXT, 4},
	{LIST, 2},      {LIST, 4},      {MAP, 2},       {MAP, 4},
};

// The head of a value; what it has inside of it follows.
static int take_value(struct reading *r, struct value *ret_value)
{
	uint8_t head;
	int rc = ckpt_cursor_byte(&r->cursor, &head);

	*ret_value = (struct value){.kind = INT, .n = head};
	if (rc)
		return rc;
	if (++r->values > VALUES_MAX)
		return refuse(r, "it has too many values");
	if (head < 0x80)
		return 0;
	if (head < 0xc0) {
		ret_value->kind = head < 0x90 ? MAP : head < 0xa0 ? LIST : TEXT;
		ret_value->n = head & (head < 0xa0 ? 15 : 31);
		return 0;
	}
	if (head >= 0xe0) {
		ret_value->negative = true;
		return 0;
	}
	if (head == 0xc1)
		return refuse(r, "no value begins so");
	ret_value->kind = heads[head - 0xc0].kind;
	rc = take_big(r, heads[head - 0xc0].bytes, &ret_value->n);
	if (rc)
		return rc;
	if (head >= 0xd0 && head <= 0xd3) // signed
		ret_value->negative = ret_value->n >> (8 * heads[head - 0xc0].bytes - 1) & 1;
	if (head >= 0xd4 && head <= 0xd8)
		ret_value->n = UINT64_C(1) << (head - 0xd4);
	return ret_value->kind == EXTENSION ? take_extension(r, ret_value) : 0;
}

static int pass_inside(struct reading *r, const struct value *v, unsigned depth);

static int pass_value(struct reading *r, unsigned depth)
{
	struct value v;
	int rc = take_value(r, &v);

	return rc ? rc : pass_inside(r, &v, depth);
}

// Passes over what a head promises.
static int pass_inside(struct reading *r, const struct value *v, unsigned depth)
{
	int rc = 0;

	if (v->kind == TEXT || v->kind == BYTES || v->kind == EXTENSION)
		return ckpt_cursor_skip(&r->cursor, v->n);
	if (v->kind != LIST && v->kind != MAP)
		return 0;
	if (depth > DEPTH_MAX)
		return refuse(r, "its values are nested too deep");
	for (uint64_t i = 0; i < v->n && !rc; i++) {
		rc = v->kind == MAP ? pass_value(r, depth + 1) : 0;
		if (!rc)
			rc = pass_value(r, depth + 1);
	}
	return rc;
}

// --- Arrays -----------------------------------------------------------------------------------------------------------

// A list of numbers from 0 on, or a map whose values are. 1: it is none of these, and was passed over.
static int take_shape(struct reading *r, uint64_t *shape, unsigned *ret_ndim)
{
	struct value v, n;
	bool good;
	int rc = take_value(r, &v);

	if (rc)
		return rc;
	good = (v.kind == LIST || v.kind == MAP) && v.n <= CKPT_ARRAY_DIMS_MAX;
	if (!good) {
		rc = pass_inside(r, &v, 0);
		return rc ? rc : 1;
	}
	*ret_ndim = (unsigned)v.n;
	for (unsigned i = 0; i < *ret_ndim && !rc; i++) {
		rc = v.kind == MAP ? pass_value(r, 0) : 0;
		if (!rc)
			rc = take_value(r, &n);
		if (!rc && (n.kind != INT || n.negative)) {
			good = false;
			rc = pass_inside(r, &n, 0);
		}
		shape[i] = n.n;
	}
	return rc ? rc : !good;
}

static int take_dtype(struct reading *r, enum ckpt_dtype *ret_dtype)
{
	char name[DTYPE_MAX];
	struct value v;
	int rc = take_value(r, &v);

	*ret_dtype = CKPT_DTYPE_NONE;
	if (rc || v.kind != TEXT || v.n > sizeof(name))
		return rc ? rc : pass_inside(r, &v, 0);
	rc = ckpt_cursor_take(&r->cursor, name, (size_t)v.n);
	*ret_dtype = ckpt_torch_dtype(name, (size_t)v.n);
	return rc;
}

// The payload of an extension of flax, of which nothing is left then. 1: it is not what flax writes.
static int take_array(struct reading *r, uint64_t bytes, struct packed_array *ret_array)
{
	uint64_t end = r->cursor.at + bytes;
	struct value v;
	int rc = bytes > r->cursor.end - r->cursor.at ? -ENODATA : take_value(r, &v), odd = 0;

	if (!rc && (v.kind != LIST || v.n != 3))
		odd = 1;
	if (!rc && !odd)
		rc = take_shape(r, ret_array->shape, &ret_array->ndim);
	if (rc == 1) {
		odd = 1;
		rc = 0;
	}
	if (!rc && !odd)
		rc = take_dtype(r, &ret_array->dtype);
	if (!rc && !odd) {
		rc = take_value(r, &v);
		odd = v.kind != BYTES;
	}
	if (rc)
		return rc;
	ret_array->offset = r->cursor.at;
	ret_array->bytes = v.n;
	if (r->cursor.at > end || (!odd && v.n != end - r->cursor.at))
		return refuse(r, "an array is not as long as it says");
	rc = ckpt_cursor_skip(&r->cursor, end - r->cursor.at);
	return rc ? rc : odd;
}

static int add_entry(struct reading *r, const struct packed_array *a, const char *why)
{
	struct ckpt_catalog_entry e = {
		.name = r->name,
		.name_len = r->name_len,
		.format = "msgpack",
		.why = why,
		.dtype = a->dtype,
		.ndim = a->ndim,
		.shape = a->shape,
	};

	if (!e.name_len) { // the file is one array
		e.name = r->catalog->base;
		e.name_len = strlen(e.name);
	}
	return ckpt_catalog_add(r->catalog, &e);
}

// Why its elements cannot be read; NULL: they can.
static const char *check_array(const struct packed_array *a)
{
	uint64_t elements;

	if (!a->dtype)
		return "its dtype has no equal here";
	if (!ckpt_array_elements(a->shape, a->ndim, &elements) || a->bytes % ckpt_dtype_width(a->dtype) ||
	    a->bytes / ckpt_dtype_width(a->dtype) != elements)
		return CKPT_WHY_SHORT;
	return NULL;
}

static int add_array(struct reading *r, uint64_t bytes)
{
	struct packed_array a = {0};
	struct ckpt_piece piece;
	const char *why;
	int rc = take_array(r, bytes, &a);

	if (rc == 1)
		return add_entry(r, &(struct packed_array){0}, "it is not what flax writes");
	if (rc)
		return rc;
	why = check_array(&a);
	rc = add_entry(r, &a, why);
	piece = (struct ckpt_piece){.offset = a.offset, .bytes = a.bytes};
	return rc || why ? rc : ckpt_catalog_add_piece(r->catalog, &piece);
}

// --- Arrays in chunks -------------------------------------------------------------------------------------------------

// A chunk is flat, and has the dtype of the first one. The array is added with it.
static int add_chunk(struct reading *r, struct packed_array *whole, uint64_t *at, const char **why)
{
	struct packed_array a = {0};
	struct ckpt_piece piece;
	struct value v;
	uint64_t elements, count;
	int rc = take_value(r, &v);

	if (rc)
		return rc;
	if (v.kind != EXTENSION || v.type != 1)
		return refuse(r, "a chunk is no array");
	rc = take_array(r, v.n, &a);
	if (rc == 1)
		return refuse(r, "a chunk is not what flax writes");
	if (rc)
		return rc;
	if (!whole->dtype) {
		whole->dtype = a.dtype;
		rc = add_entry(r, whole, a.dtype ? NULL : "its dtype has no equal here");
		if (rc || !a.dtype)
			return rc ? rc : 1;
	}
	count = a.bytes / ckpt_dtype_width(whole->dtype);
	if (a.dtype != whole->dtype || check_array(&a) || !ckpt_array_elements(whole->shape, whole->ndim, &elements) ||
	    count > elements - *at) {
		*why = "its chunks are not those of its shape";
		return 0;
	}
	piece = (struct ckpt_piece){.offset = a.offset, .bytes = a.bytes};
	rc = ckpt_catalog_add_flat(r->catalog, &piece, *at, count);
	*at += count;
	return rc;
}

static int take_key(struct reading *r, char *key, size_t *ret_len);

static int add_chunks(struct reading *r, struct packed_array *whole)
{
	char key[KEY_MAX];
	const char *why = NULL;
	uint64_t at = 0, elements;
	struct value v;
	size_t len;
	int rc = take_value(r, &v);

	if (rc)
		return rc;
	if (v.kind != MAP || !v.n)
		return refuse(r, "its chunks are no map");
	for (uint64_t i = 0; i < v.n && !rc; i++) {
		rc = take_key(r, key, &len);
		if (!rc && why)
			rc = pass_value(r, 0);
		else if (!rc)
			rc = add_chunk(r, whole, &at, &why);
		if (rc == 1) { // the dtype: the others are passed over
			why = "its dtype has no equal here";
			rc = 0;
		}
	}
	if (!rc && !why && (!ckpt_array_elements(whole->shape, whole->ndim, &elements) || at != elements))
		why = "its chunks are not those of its shape";
	return rc || !why ? rc : ckpt_catalog_note(r->catalog, "%s", why);
}

// Behind the first key of its map: the others are shape and chunks, in this order.
static int add_chunked(struct reading *r, uint64_t pairs)
{
	struct packed_array whole = {0};
	uint64_t elements;
	char key[KEY_MAX];
	bool shaped = false;
	size_t len;
	int rc = pass_value(r, 0);

	for (uint64_t i = 1; i < pairs && !rc; i++) {
		rc = take_key(r, key, &len);
		if (!rc && len == 5 && !memcmp(key, "shape", len) && !shaped) {
			rc = take_shape(r, whole.shape, &whole.ndim);
			shaped = !rc && ckpt_array_elements(whole.shape, whole.ndim, &elements);
			if (rc == 1 || (!rc && !shaped))
				rc = refuse(r, "the shape of an array in chunks is none");
		} else if (!rc && len == 6 && !memcmp(key, "chunks", len) && shaped && !whole.dtype) {
			rc = add_chunks(r, &whole);
		} else if (!rc) {
			rc = refuse(r, "an array in chunks is not what flax writes");
		}
	}
	return rc;
}

// --- Maps and lists ---------------------------------------------------------------------------------------------------

// Text, or a number, which becomes digits.
static int take_key(struct reading *r, char *key, size_t *ret_len)
{
	struct value v;
	int rc = take_value(r, &v);

	if (rc)
		return rc;
	if (v.kind == INT) {
		*ret_len = (size_t)snprintf(key, KEY_MAX, "%s%llu", v.negative ? "-" : "", (unsigned long long)v.n);
		return 0;
	}
	if ((v.kind != TEXT && v.kind != BYTES) || v.n > KEY_MAX)
		return refuse(r, "a key is no text, or too long");
	*ret_len = (size_t)v.n;
	return ckpt_cursor_take(&r->cursor, key, (size_t)v.n);
}

static int visit(struct reading *r, unsigned depth);

static int visit_child(struct reading *r, const char *key, size_t len, unsigned depth)
{
	size_t before = r->name_len;
	int rc;

	if (before + 1 + len > CKPT_ARRAY_NAME_MAX)
		return refuse(r, "the name of an array is too long");
	if (depth)
		r->name[r->name_len++] = '.';
	memcpy(r->name + r->name_len, key, len);
	r->name_len += len;
	rc = visit(r, depth + 1);
	r->name_len = before;
	return rc;
}

static int visit_map(struct reading *r, uint64_t pairs, unsigned depth)
{
	CLEANUP_FREE char *key = malloc(KEY_MAX);
	size_t len;
	int rc = key ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < pairs && !rc; i++) {
		rc = take_key(r, key, &len);
		if (!rc && !i && len == strlen(CHUNKED) && !memcmp(key, CHUNKED, len))
			return add_chunked(r, pairs);
		if (!rc)
			rc = visit_child(r, key, len, depth);
	}
	return rc;
}

static int visit_list(struct reading *r, uint64_t count, unsigned depth)
{
	char key[24];
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++)
		rc = visit_child(r, key, (size_t)snprintf(key, sizeof(key), "%llu", (unsigned long long)i), depth);
	return rc;
}

static int visit(struct reading *r, unsigned depth)
{
	struct value v;
	int rc = take_value(r, &v);

	if (rc)
		return rc;
	if (depth > DEPTH_MAX)
		return refuse(r, "its values are nested too deep");
	if (v.kind == MAP)
		return visit_map(r, v.n, depth);
	if (v.kind == LIST)
		return visit_list(r, v.n, depth);
	if (v.kind == EXTENSION && (v.type == 1 || v.type == 3))
		return add_array(r, v.n);
	return pass_inside(r, &v, depth);
}

// --- The file ---------------------------------------------------------------------------------------------------------

// A pickle begins like an empty map, and may have such a name.
static bool is_msgpack(const struct ckpt_catalog_reading *r)
{
	static const char end[] = ".msgpack", step[] = "checkpoint_";
	size_t len = strlen(r->base);
	bool named = (len > strlen(end) && !strcmp(r->base + len - strlen(end), end)) || !strcmp(r->base, "checkpoint");

	if (!strncmp(r->base, step, strlen(step)))
		named = len > strlen(step) && strspn(r->base + strlen(step), "0123456789.") == len - strlen(step);
	return named && r->head_len &&
	       ((r->head[0] > 0x80 && r->head[0] < 0x90) || r->head[0] == 0xde || r->head[0] == 0xdf);
}

static int read_msgpack(struct ckpt_catalog_reading *catalog)
{
	struct reading r = {.catalog = catalog};
	int rc = ckpt_cursor_init(&r.cursor, &catalog->source, 0, catalog->source.bytes, READ_MAX);

	r.name = malloc(CKPT_ARRAY_NAME_MAX + 1);
	if (!r.name)
		rc = -ENOMEM;
	if (!rc)
		rc = visit(&r, 0);
	if (rc == -ENODATA)
		rc = refuse(&r, "the file ends in a value");
	else if (rc == -EFBIG)
		rc = refuse(&r, "it takes too much to read");
	else if (!rc && r.cursor.at != catalog->source.bytes)
		rc = refuse(&r, "something is behind its value");
	ckpt_cursor_done(&r.cursor);
	free(r.name);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_msgpack = {"msgpack", is_msgpack, read_msgpack};
