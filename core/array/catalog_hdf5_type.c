// Datatypes and dataspaces. Numbers that are stored as NumPy has them have an equal here; all others have a reason.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"

enum { FIXED, FLOAT, TIME, STRING, BITFIELD, OPAQUE, COMPOUND, REFERENCE, ENUM, VARIABLE, ARRAY, COMPLEX };

// --- Numbers ----------------------------------------------------------------------------------------------------------

#define BIG 1u
#define SIGNED 8u

static void parse_fixed(struct ckpt_hdf5_type *t, uint64_t flags, struct ckpt_hdf5_bytes *b)
{
	static const enum ckpt_dtype by_log[2][4] = {
		{CKPT_DTYPE_U8, CKPT_DTYPE_U16, CKPT_DTYPE_U32, CKPT_DTYPE_U64},
		{CKPT_DTYPE_I8, CKPT_DTYPE_I16, CKPT_DTYPE_I32, CKPT_DTYPE_I64},
	};
	uint64_t shift = ckpt_hdf5_take(b, 2), bits = ckpt_hdf5_take(b, 2);

	t->big_endian = flags & BIG && t->bytes > 1;
	for (unsigned i = 0; i < 4; i++)
		if (!shift && t->bytes == 1u << i && bits == 8 * t->bytes)
			t->dtype = by_log[flags & SIGNED ? 1 : 0][i];
	if (!t->dtype)
		t->why = "its integers have bits that are no part of the number, or an unusual length";
}

#define FLOAT_ORDER 0x41u // both bits: VAX
#define NORMALIZED_MASK 0x30u
#define NORMALIZED 0x20u // the first bit of the mantissa is 1, and not stored

static void parse_float(struct ckpt_hdf5_type *t, uint64_t flags, struct ckpt_hdf5_bytes *b)
{
	static const struct {
		uint8_t bytes, sign, exponent_at, exponent_bits, mantissa_bits;
		uint16_t bias;
		enum ckpt_dtype dtype;
	} known[] = {
		{2, 15, 10, 5, 10, 15, CKPT_DTYPE_F16},    {4, 31, 23, 8, 23, 127, CKPT_DTYPE_F32},
		{8, 63, 52, 11, 52, 1023, CKPT_DTYPE_F64}, {2, 15, 7, 8, 7, 127, CKPT_DTYPE_BF16},
		{1, 7, 3, 4, 3, 7, CKPT_DTYPE_F8E4M3},     {1, 7, 2, 5, 2, 15, CKPT_DTYPE_F8E5M2},
	};
	uint64_t shift = ckpt_hdf5_take(b, 2), bits = ckpt_hdf5_take(b, 2), exponent_at = ckpt_hdf5_take(b, 1),
		 exponent_bits = ckpt_hdf5_take(b, 1), mantissa_at = ckpt_hdf5_take(b, 1),
		 mantissa_bits = ckpt_hdf5_take(b, 1), bias = ckpt_hdf5_take(b, 4), order = flags & FLOAT_ORDER;

	t->big_endian = order == BIG && t->bytes > 1;
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (t->bytes == known[i].bytes && bits == 8 * t->bytes && !shift && !mantissa_at &&
		    (flags >> 8 & 255) == known[i].sign && exponent_at == known[i].exponent_at &&
		    exponent_bits == known[i].exponent_bits && mantissa_bits == known[i].mantissa_bits &&
		    bias == known[i].bias && (flags & NORMALIZED_MASK) == NORMALIZED && order <= BIG)
			t->dtype = known[i].dtype;
	if (!t->dtype)
		t->why = "its floating-point format has no equal here";
}

// --- Types of several members -----------------------------------------------------------------------------------------

static int parse(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b, struct ckpt_hdf5_type *t, unsigned depth);

// With its NUL, and before version 3 with zeros up to a multiple of 8 bytes. NULL: it has no end.
static const char *take_name(struct ckpt_hdf5_bytes *b, unsigned version)
{
	const uint8_t *end = b->left ? memchr(b->at, '\0', b->left) : NULL;
	uint64_t len = end ? (uint64_t)(end - b->at) + 1 : UINT64_MAX;

	if (end && version < 3)
		len = (len + 7) & ~UINT64_C(7);
	return (const char *)ckpt_hdf5_skip(b, len);
}

// h5py's bool: FALSE = 0 and TRUE = 1 of one byte.
static int parse_enum(struct ckpt_hdf5 *h, struct ckpt_hdf5_type *t, uint64_t flags, unsigned version,
		      struct ckpt_hdf5_bytes *b, unsigned depth)
{
	struct ckpt_hdf5_type base;
	const char *first, *second;
	const uint8_t *values;
	int rc = parse(h, b, &base, depth + 1);

	t->why = "its elements are names of an enumeration";
	if (rc || (flags & 0xffff) != 2 || base.bytes != 1 || t->bytes != 1)
		return rc;
	first = take_name(b, version);
	second = take_name(b, version);
	values = ckpt_hdf5_skip(b, 2);
	if (!first || !second || !values)
		return ckpt_hdf5_refuse(h, "datatype");
	if (strcmp(first, "FALSE") || strcmp(second, "TRUE") || values[0] != 0 || values[1] != 1)
		return 0;
	t->dtype = CKPT_DTYPE_BOOL;
	t->why = NULL;
	return 0;
}

static unsigned bytes_of(uint64_t number)
{
	unsigned bytes = 1;

	while (number >>= 8)
		bytes++;
	return bytes;
}

// h5py's complex: two floats, "r" and "i".
static int parse_compound(struct ckpt_hdf5 *h, struct ckpt_hdf5_type *t, uint64_t flags, unsigned version,
			  struct ckpt_hdf5_bytes *b, unsigned depth)
{
	struct ckpt_hdf5_type member[2];
	bool is_complex = true;

	t->why = "its elements are records";
	if ((flags & 0xffff) != 2)
		return 0;
	for (unsigned i = 0; i < 2; i++) {
		const char *name = take_name(b, version);
		uint64_t at = ckpt_hdf5_take(b, version < 3 ? 4 : bytes_of(t->bytes)), ndim = 0;
		int rc;

		if (version == 1) {
			ndim = ckpt_hdf5_take(b, 1);
			ckpt_hdf5_skip(b, 27); // what an array of the member would say
		}
		if (!name)
			return ckpt_hdf5_refuse(h, "datatype");
		is_complex &= !strcmp(name, i ? "i" : "r") && at == i * t->bytes / 2 && !ndim;
		rc = parse(h, b, &member[i], depth + 1);
		if (rc)
			return rc;
	}
	if (!is_complex || member[0].dtype != member[1].dtype || member[0].big_endian != member[1].big_endian ||
	    member[0].bytes * 2 != t->bytes)
		return 0;
	t->dtype = member[0].dtype == CKPT_DTYPE_F32   ? CKPT_DTYPE_C64
		   : member[0].dtype == CKPT_DTYPE_F64 ? CKPT_DTYPE_C128
						       : CKPT_DTYPE_NONE;
	t->big_endian = member[0].big_endian;
	t->why = t->dtype ? NULL : t->why;
	return 0;
}

// HDF5 2.0's own complex numbers: the float that both parts are.
static int parse_complex(struct ckpt_hdf5 *h, struct ckpt_hdf5_type *t, struct ckpt_hdf5_bytes *b, unsigned depth)
{
	struct ckpt_hdf5_type part;
	int rc = parse(h, b, &part, depth + 1);

	t->why = "its complex numbers have no equal here";
	if (rc || part.bytes * 2 != t->bytes)
		return rc;
	t->dtype = part.dtype == CKPT_DTYPE_F32   ? CKPT_DTYPE_C64
		   : part.dtype == CKPT_DTYPE_F64 ? CKPT_DTYPE_C128
						  : CKPT_DTYPE_NONE;
	t->big_endian = part.big_endian;
	t->why = t->dtype ? NULL : t->why;
	return 0;
}

#define DEPTH_MAX 4

static int parse(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b, struct ckpt_hdf5_type *t, unsigned depth)
{
	static const char *const whys[] = {
		[TIME] = "its elements are times",
		[STRING] = "its elements are strings",
		[BITFIELD] = "its elements are fields of bits",
		[OPAQUE] = "its elements are bytes whose meaning the file does not say",
		[REFERENCE] = "its elements are references to objects",
		[VARIABLE] = "its elements have a length of their own: strings or sequences",
		[ARRAY] = "its elements are arrays",
	};
	uint64_t head = ckpt_hdf5_take(b, 1), flags = ckpt_hdf5_take(b, 3);
	unsigned class = head & 15, version = (unsigned)head >> 4;
	int rc = 0;

	*t = (struct ckpt_hdf5_type){.bytes = ckpt_hdf5_take(b, 4), .is_opaque = class == OPAQUE};
	if (b->broken || version < 1 || version > 5 || !t->bytes || depth > DEPTH_MAX)
		return ckpt_hdf5_refuse(h, "datatype");
	if (class == FIXED)
		parse_fixed(t, flags, b);
	else if (class == FLOAT)
		parse_float(t, flags, b);
	else if (class == ENUM)
		rc = parse_enum(h, t, flags, version, b, depth);
	else if (class == COMPOUND)
		rc = parse_compound(h, t, flags, version, b, depth);
	else if (class == COMPLEX)
		rc = parse_complex(h, t, b, depth);
	else
		t->why = class < ARRAY_LEN(whys) ? whys[class] : "its datatype is of a kind that is not known";
	return rc || !b->broken ? rc : ckpt_hdf5_refuse(h, "datatype");
}

int ckpt_hdf5_type_parse(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *body, struct ckpt_hdf5_type *ret_type)
{
	return parse(h, body, ret_type, 0);
}

// --- Dataspaces -------------------------------------------------------------------------------------------------------

#define HAS_MAX 1
#define SPACE_NULL 2

int ckpt_hdf5_space_parse(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *body, struct ckpt_hdf5_space *ret_space)
{
	uint64_t version = ckpt_hdf5_take(body, 1), ndim = ckpt_hdf5_take(body, 1), flags = ckpt_hdf5_take(body, 1);
	uint64_t type = version == 2 ? ckpt_hdf5_take(body, 1) : 0;
	uint64_t endless = UINT64_MAX >> (64 - 8 * h->length_bytes);

	if (version == 1)
		ckpt_hdf5_skip(body, 5);
	if (body->broken || (version != 1 && version != 2) || ndim > CKPT_ARRAY_DIMS_MAX)
		return ckpt_hdf5_refuse(h, "dataspace");
	*ret_space = (struct ckpt_hdf5_space){.ndim = (unsigned)ndim, .is_null = type == SPACE_NULL};
	for (unsigned i = 0; i < ndim; i++)
		ret_space->max[i] = ret_space->shape[i] = ckpt_hdf5_take_length(h, body);
	for (unsigned i = 0; flags & HAS_MAX && i < ndim; i++) {
		ret_space->max[i] = ckpt_hdf5_take_length(h, body);
		if (ret_space->max[i] == endless)
			ret_space->max[i] = UINT64_MAX;
		if (ret_space->max[i] < ret_space->shape[i])
			return ckpt_hdf5_refuse(h, "dataspace");
	}
	return body->broken ? ckpt_hdf5_refuse(h, "dataspace") : 0;
}
