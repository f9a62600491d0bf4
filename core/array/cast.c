#include "core/array/cast.h"

#include "core/array/number.h"
#include "core/base/util.h"

#include <math.h>

#define AT_ONCE 1024 // elements that go by way of doubles

struct form {
	unsigned bits, mantissa;
	int bias;
	uint32_t largest; // code of the largest number, without its sign
	uint32_t infinity, nan;
	bool unsigned_zero; // and one NaN without a sign
};

static const struct form *form_of(enum ckpt_dtype dtype)
{
	static const struct form forms[CKPT_DTYPE_COUNT] = {
		[CKPT_DTYPE_F16] = {16, 10, 15, 0x7bff, 0x7c00, 0x7e00, false},
		[CKPT_DTYPE_BF16] = {16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, false},
		[CKPT_DTYPE_F8E4M3] = {8, 3, 7, 0x7e, 0x7f, 0x7f, false},
		[CKPT_DTYPE_F8E5M2] = {8, 2, 15, 0x7b, 0x7c, 0x7e, false},
		[CKPT_DTYPE_F8E4M3FNUZ] = {8, 3, 8, 0x7f, 0x80, 0x80, true},
		[CKPT_DTYPE_F8E5M2FNUZ] = {8, 2, 16, 0x7f, 0x80, 0x80, true},
	};

	return forms[dtype].bits ? &forms[dtype] : NULL;
}

bool ckpt_is_floating(enum ckpt_dtype dtype)
{
	return dtype == CKPT_DTYPE_F32 || dtype == CKPT_DTYPE_F64 || form_of(dtype);
}

// A carry into the exponent is what it is to be.
static uint32_t to_even(double places)
{
	uint32_t whole = (uint32_t)places;
	double rest = places - whole;

	return whole + (rest > 0.5 || (rest == 0.5 && whole & 1));
}

static uint32_t encode(double value, const struct form *f)
{
	uint32_t sign = signbit(value) ? 1u << (f->bits - 1) : 0, code;
	int exponent;

	if (isnan(value))
		return f->unsigned_zero ? f->nan : f->nan | sign;
	if (isinf(value))
		return f->unsigned_zero ? f->infinity : f->infinity | sign;
	value = fabs(value);
	if (value == 0)
		return f->unsigned_zero ? 0 : sign;
	frexp(value, &exponent);
	exponent = MAX(exponent - 1, 1 - f->bias);
	if (exponent + f->bias > 1 << (f->bits - 1 - f->mantissa))
		code = f->largest + 1;
	else
		code = to_even(ldexp(value, (int)f->mantissa - exponent)) +
		       ((uint32_t)(exponent + f->bias - 1) << f->mantissa);
	if (code > f->largest)
		code = f->infinity;
	return f->unsigned_zero && (!code || code == f->infinity) ? code : code | sign;
}

static void put(enum ckpt_dtype to, const double *numbers, size_t count, uint8_t *into)
{
	const struct form *f = form_of(to);

	for (size_t i = 0; i < count; i++) {
		float single = (float)numbers[i];
		uint32_t code = f ? encode(numbers[i], f) : 0;

		if (to == CKPT_DTYPE_F64)
			memcpy(into + i * 8, &numbers[i], 8);
		else if (to == CKPT_DTYPE_F32)
			memcpy(into + i * 4, &single, 4);
		else
			memcpy(into + i * (f->bits / 8), &code, f->bits / 8);
	}
}

// Those that are cast most, without branches: for the instructions that every processor of this kind has, and for those that this one may have.
#define INLINE static inline __attribute__((always_inline))

INLINE void f32_to_bf16(const uint8_t *p, size_t count, uint8_t *into)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t bits, rounded;
		uint16_t code;

		memcpy(&bits, p + i * 4, 4);
		rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
		code = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
		memcpy(into + i * 2, &code, 2);
	}
}

INLINE void bf16_to_f32(const uint8_t *p, size_t count, uint8_t *into)
{
	for (size_t i = 0; i < count; i++) {
		uint16_t code;
		uint32_t bits;

		memcpy(&code, p + i * 2, 2);
		bits = (uint32_t)code << 16;
		memcpy(into + i * 4, &bits, 4);
	}
}

// Numbers below 2^-14 have the steps of 2^-24 that numbers from 0.5 on have in f32: adding 0.5 rounds them.
INLINE void f32_to_f16(const uint8_t *p, size_t count, uint8_t *into)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t bits, magnitude, normal, small, code;
		uint16_t half;
		float sum;

		memcpy(&bits, p + i * 4, 4);
		magnitude = bits & 0x7fffffff;
		normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
		memcpy(&sum, &magnitude, 4);
		sum += 0.5f;
		memcpy(&small, &sum, 4);
		small -= 126u << 23;
		code = magnitude < 113u << 23 ? small : normal;
		code = magnitude >= 0x477ff000 ? 0x7c00 : code; // rounds to 2^16, or is infinite
		code = magnitude > 0x7f800000 ? 0x7e00 : code;
		half = (uint16_t)(code | (bits >> 16 & 0x8000));
		memcpy(into + i * 2, &half, 2);
	}
}

// A subnormal number's mantissa stands behind 2^-14, which is taken off again.
INLINE void f16_to_f32(const uint8_t *p, size_t count, uint8_t *into)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t magnitude, bits, small;
		uint16_t half;
		float number;

		memcpy(&half, p + i * 2, 2);
		magnitude = half & 0x7fff;
		small = (magnitude << 13) + (113u << 23);
		memcpy(&number, &small, 4);
		number -= 0x1p-14f;
		memcpy(&small, &number, 4);
		bits = magnitude < 0x400 ? small : (magnitude << 13) + (112u << 23);
		bits = magnitude >= 0x7c00 ? 0x7f800000 : bits;
		bits = magnitude > 0x7c00 ? 0x7fc00000 : bits;
		bits |= (uint32_t)(half & 0x8000) << 16;
		memcpy(into + i * 4, &bits, 4);
	}
}

typedef void cast_fn(const uint8_t *p, size_t count, uint8_t *into);

#define CAST(of, name, attribute)                                                                                      \
	attribute static void name(const uint8_t *p, size_t count, uint8_t *into)                                      \
	{                                                                                                              \
		of(p, count, into);                                                                                    \
	}
#define CASTS(suffix, attribute)                                                                                       \
	CAST(f32_to_bf16, f32_to_bf16_##suffix, attribute)                                                             \
	CAST(bf16_to_f32, bf16_to_f32_##suffix, attribute)                                                             \
	CAST(f32_to_f16, f32_to_f16_##suffix, attribute)                                                               \
	CAST(f16_to_f32, f16_to_f32_##suffix, attribute)
#define TABLE(suffix)                                                                                                  \
	{                                                                                                              \
		f32_to_bf16_##suffix, bf16_to_f32_##suffix, f32_to_f16_##suffix, f16_to_f32_##suffix                   \
	}

CASTS(plain, )
#if defined(__x86_64__)
CASTS(wide, __attribute__((target("avx2"))))
#endif

// NULL: there is none for these two.
static cast_fn *find_cast(enum ckpt_dtype from, enum ckpt_dtype to)
{
	static cast_fn *const plain[] = TABLE(plain);
	unsigned which = from == CKPT_DTYPE_F32 && to == CKPT_DTYPE_BF16   ? 0
			 : from == CKPT_DTYPE_BF16 && to == CKPT_DTYPE_F32 ? 1
			 : from == CKPT_DTYPE_F32 && to == CKPT_DTYPE_F16  ? 2
			 : from == CKPT_DTYPE_F16 && to == CKPT_DTYPE_F32  ? 3
									   : 4;

	if (which == 4)
		return NULL;
#if defined(__x86_64__)
	static cast_fn *const wide[] = TABLE(wide);

	if (__builtin_cpu_supports("avx2"))
		return wide[which];
#endif
	return plain[which];
}

void ckpt_cast(enum ckpt_dtype from, enum ckpt_dtype to, const void *elements, size_t count, void *into)
{
	unsigned width = ckpt_dtype_width(from), to_width = ckpt_dtype_width(to);
	const uint8_t *p = elements;
	uint8_t *out = into;
	cast_fn *fast = find_cast(from, to);
	double numbers[AT_ONCE];

	if (from == to) {
		memcpy(into, elements, count * width);
		return;
	}
	if (fast) {
		fast(p, count, out);
		return;
	}
	for (size_t i = 0, n; i < count; i += n) {
		n = MIN(count - i, (size_t)AT_ONCE);
		ckpt_numbers(from, p + i * width, n, numbers);
		put(to, numbers, n, out + i * to_width);
	}
}
