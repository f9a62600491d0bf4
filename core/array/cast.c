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

// The two that are cast most, without branches: for the instructions that every processor of this kind has, and for those that this one may have.
#define INLINE static inline __attribute__((always_inline))

INLINE void single_to_upper_half(const uint8_t *p, size_t count, uint8_t *into)
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

INLINE void upper_half_to_single(const uint8_t *p, size_t count, uint8_t *into)
{
	for (size_t i = 0; i < count; i++) {
		uint16_t code;
		uint32_t bits;

		memcpy(&code, p + i * 2, 2);
		bits = (uint32_t)code << 16;
		memcpy(into + i * 4, &bits, 4);
	}
}

static void plain_to_upper_half(const uint8_t *p, size_t count, uint8_t *into)
{
	single_to_upper_half(p, count, into);
}

static void plain_to_single(const uint8_t *p, size_t count, uint8_t *into)
{
	upper_half_to_single(p, count, into);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) static void wide_to_upper_half(const uint8_t *p, size_t count, uint8_t *into)
{
	single_to_upper_half(p, count, into);
}

__attribute__((target("avx2"))) static void wide_to_single(const uint8_t *p, size_t count, uint8_t *into)
{
	upper_half_to_single(p, count, into);
}

static bool is_wide(void)
{
	return __builtin_cpu_supports("avx2");
}

#else

#define wide_to_upper_half plain_to_upper_half
#define wide_to_single plain_to_single

static bool is_wide(void)
{
	return false;
}

#endif

void ckpt_cast(enum ckpt_dtype from, enum ckpt_dtype to, const void *elements, size_t count, void *into)
{
	unsigned width = ckpt_dtype_width(from), to_width = ckpt_dtype_width(to);
	const uint8_t *p = elements;
	uint8_t *out = into;
	double numbers[AT_ONCE];

	if (from == to) {
		memcpy(into, elements, count * width);
		return;
	}
	if (from == CKPT_DTYPE_F32 && to == CKPT_DTYPE_BF16) {
		(is_wide() ? wide_to_upper_half : plain_to_upper_half)(p, count, out);
		return;
	}
	if (from == CKPT_DTYPE_BF16 && to == CKPT_DTYPE_F32) {
		(is_wide() ? wide_to_single : plain_to_single)(p, count, out);
		return;
	}
	for (size_t i = 0, n; i < count; i += n) {
		n = MIN(count - i, (size_t)AT_ONCE);
		ckpt_numbers(from, p + i * width, n, numbers);
		put(to, numbers, n, out + i * to_width);
	}
}
