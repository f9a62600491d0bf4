#include "core/array/number.h"

#include "core/base/util.h"

#include <math.h>

bool ckpt_is_number(enum ckpt_dtype dtype)
{
	return dtype != CKPT_DTYPE_NONE && dtype != CKPT_DTYPE_C64 && dtype != CKPT_DTYPE_C128 &&
	       ckpt_dtype_bits(dtype) >= 8;
}

struct small {
	unsigned mantissa; // bits
	int bias;
	bool has_infinity; // the largest exponent is infinity and NaNs, as in IEEE 754
	bool unsigned_zero;
};

static double small_float(unsigned code, unsigned bits, const struct small *f)
{
	unsigned exponent_bits = bits - 1 - f->mantissa, mantissa = code & ((1u << f->mantissa) - 1),
		 exponent = code >> f->mantissa & ((1u << exponent_bits) - 1), sign = code >> (bits - 1),
		 top = (1u << exponent_bits) - 1;
	double value;

	if (f->unsigned_zero && code == 1u << (bits - 1))
		return NAN;
	if (f->has_infinity && exponent == top)
		value = mantissa ? NAN : INFINITY;
	else if (!f->has_infinity && !f->unsigned_zero && exponent == top && mantissa == (1u << f->mantissa) - 1)
		return NAN;
	else if (!exponent)
		value = ldexp(mantissa, 1 - f->bias - (int)f->mantissa);
	else
		value = ldexp(mantissa | 1u << f->mantissa, (int)exponent - f->bias - (int)f->mantissa);
	return sign ? -value : value;
}

static double byte_float(enum ckpt_dtype dtype, unsigned code)
{
	static const struct small e4m3 = {3, 7, false, false}, e5m2 = {2, 15, true, false}, e4m3z = {3, 8, false, true},
				  e5m2z = {2, 16, false, true};

	switch (dtype) {
	case CKPT_DTYPE_F8E4M3:
		return small_float(code, 8, &e4m3);
	case CKPT_DTYPE_F8E5M2:
		return small_float(code, 8, &e5m2);
	case CKPT_DTYPE_F8E4M3FNUZ:
		return small_float(code, 8, &e4m3z);
	case CKPT_DTYPE_F8E5M2FNUZ:
		return small_float(code, 8, &e5m2z);
	default: // F8E8M0
		return code == 0xff ? NAN : ldexp(1, (int)code - 127);
	}
}

static void bytes_to_numbers(enum ckpt_dtype dtype, const uint8_t *p, size_t count, double *into)
{
	double table[256];

	for (unsigned i = 0; i < 256; i++)
		table[i] = byte_float(dtype, i);
	for (size_t i = 0; i < count; i++)
		into[i] = table[p[i]];
}

static double half(uint16_t code)
{
	static const struct small f = {10, 15, true, false};

	return small_float(code, 16, &f);
}

static double upper_half(uint16_t code)
{
	uint32_t bits = (uint32_t)code << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

#define EACH(type, expression)                                                                                         \
	do {                                                                                                           \
		for (size_t i = 0; i < count; i++) {                                                                   \
			type v;                                                                                        \
			memcpy(&v, p + i * sizeof(v), sizeof(v));                                                      \
			into[i] = (expression);                                                                        \
		}                                                                                                      \
	} while (0)

void ckpt_numbers(enum ckpt_dtype dtype, const void *elements, size_t count, double *into)
{
	const uint8_t *p = elements;

	switch (dtype) {
	case CKPT_DTYPE_BOOL:
	case CKPT_DTYPE_U8:
		EACH(uint8_t, v);
		break;
	case CKPT_DTYPE_I8:
		EACH(int8_t, v);
		break;
	case CKPT_DTYPE_I16:
		EACH(int16_t, v);
		break;
	case CKPT_DTYPE_U16:
		EACH(uint16_t, v);
		break;
	case CKPT_DTYPE_I32:
		EACH(int32_t, v);
		break;
	case CKPT_DTYPE_U32:
		EACH(uint32_t, v);
		break;
	case CKPT_DTYPE_I64:
		EACH(int64_t, (double)v);
		break;
	case CKPT_DTYPE_U64:
		EACH(uint64_t, (double)v);
		break;
	case CKPT_DTYPE_F16:
		EACH(uint16_t, half(v));
		break;
	case CKPT_DTYPE_BF16:
		EACH(uint16_t, upper_half(v));
		break;
	case CKPT_DTYPE_F32:
		EACH(float, (double)v);
		break;
	case CKPT_DTYPE_F64:
		EACH(double, v);
		break;
	default:
		bytes_to_numbers(dtype, p, count, into);
	}
}
