#include "core/array/difference.h"

#include "core/array/cast.h"
#include "core/array/number.h"
#include "core/base/util.h"

#include <float.h>
#include <math.h>

#define AT_ONCE 512 // numbers

static bool is_complex(enum ckpt_dtype t)
{
	return t == CKPT_DTYPE_C64 || t == CKPT_DTYPE_C128;
}

static bool is_integer(enum ckpt_dtype t)
{
	return t >= CKPT_DTYPE_BOOL && t <= CKPT_DTYPE_U64;
}

// The type of the parts of a complex number.
static enum ckpt_dtype part_of(enum ckpt_dtype t)
{
	return t == CKPT_DTYPE_C64 ? CKPT_DTYPE_F32 : t == CKPT_DTYPE_C128 ? CKPT_DTYPE_F64 : t;
}

bool ckpt_difference_is_known(enum ckpt_dtype a, enum ckpt_dtype b)
{
	return is_complex(a) ? is_complex(b) : ckpt_is_number(a) && ckpt_is_number(b);
}

bool ckpt_difference_has_ulp(enum ckpt_dtype a, enum ckpt_dtype b)
{
	return ckpt_is_floating(part_of(a)) && ckpt_is_floating(part_of(b));
}

static unsigned mantissa(enum ckpt_dtype t)
{
	switch (t) {
	case CKPT_DTYPE_F64:
		return 52;
	case CKPT_DTYPE_F32:
		return 23;
	case CKPT_DTYPE_F16:
		return 10;
	case CKPT_DTYPE_BF16:
		return 7;
	case CKPT_DTYPE_F8E4M3:
	case CKPT_DTYPE_F8E4M3FNUZ:
		return 3;
	default:
		return 2;
	}
}

// A run of numbers of both sides, of types without parts.
struct run {
	enum ckpt_dtype a, b;
	const uint8_t *x, *y;
	size_t count;
	bool *differs; // count of them
};

// --- Integers ---------------------------------------------------------------------------------------------------------------

static __int128 integer(enum ckpt_dtype t, const uint8_t *p, size_t i)
{
	unsigned width = ckpt_dtype_width(t);
	uint64_t bits = 0;

	memcpy(&bits, p + i * width, width);
	switch (t) {
	case CKPT_DTYPE_I8:
		return (int8_t)bits;
	case CKPT_DTYPE_I16:
		return (int16_t)bits;
	case CKPT_DTYPE_I32:
		return (int32_t)bits;
	case CKPT_DTYPE_I64:
		return (int64_t)bits;
	default:
		return bits;
	}
}

static void add_integers(struct ckpt_difference *d, const struct run *r)
{
	for (size_t i = 0; i < r->count; i++) {
		__int128 by = integer(r->a, r->x, i) - integer(r->b, r->y, i);

		r->differs[i] = by;
		d->max_abs = fmax(d->max_abs, (double)(by < 0 ? -by : by));
	}
}

// --- Floating numbers -------------------------------------------------------------------------------------------------------

// Codes in the order of their numbers: neighbours differ by 1, and both zeros are 0.
static __int128 ordered(enum ckpt_dtype t, const uint8_t *p, size_t i, double value)
{
	unsigned bits = ckpt_dtype_bits(t);
	uint64_t code = 0, sign = UINT64_C(1) << (bits - 1);

	memcpy(&code, p + i * (bits / 8), bits / 8);
	// The one NaN of a type without infinity stands for a number that is too large.
	code = (t == CKPT_DTYPE_F8E4M3FNUZ || t == CKPT_DTYPE_F8E5M2FNUZ) && code == sign ? sign : code & ~sign;
	return signbit(value) ? -(__int128)code : (__int128)code;
}

static void add_floating(struct ckpt_difference *d, const struct run *r)
{
	enum ckpt_dtype coarse = mantissa(r->b) < mantissa(r->a) ? r->b : r->a;
	bool has_ulp = ckpt_difference_has_ulp(r->a, r->b);
	uint8_t x_codes[AT_ONCE * 8], y_codes[AT_ONCE * 8];
	double x[AT_ONCE], y[AT_ONCE];

	ckpt_numbers(r->a, r->x, r->count, x);
	ckpt_numbers(r->b, r->y, r->count, y);
	if (has_ulp) {
		ckpt_cast(r->a, coarse, r->x, r->count, x_codes);
		ckpt_cast(r->b, coarse, r->y, r->count, y_codes);
	}
	for (size_t i = 0; i < r->count; i++) {
		unsigned width = ckpt_dtype_width(r->a);
		bool equal = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
		__int128 ulp;

		r->differs[i] = r->a == r->b ? memcmp(r->x + i * width, r->y + i * width, width) != 0 : !equal;
		if (equal)
			continue;
		if (isnan(x[i]) || isnan(y[i])) {
			d->nan++;
		} else if (isinf(x[i]) || isinf(y[i])) {
			d->inf++;
		} else {
			d->max_abs = fmax(d->max_abs, fmin(fabs(x[i] - y[i]), DBL_MAX));
			ulp = has_ulp ? ordered(coarse, x_codes, i, x[i]) - ordered(coarse, y_codes, i, y[i]) : 0;
			d->max_ulp = MAX(d->max_ulp, (uint64_t)(ulp < 0 ? -ulp : ulp));
		}
	}
}

// --- Both -------------------------------------------------------------------------------------------------------------------

void ckpt_difference_add(struct ckpt_difference *d, enum ckpt_dtype a, const void *x, enum ckpt_dtype b, const void *y,
			 size_t count)
{
	size_t parts = is_complex(a) ? 2 : 1, left = count * parts;
	bool differs[AT_ONCE];
	struct run r = {part_of(a), part_of(b), x, y, 0, differs};

	d->elements += count;
	for (; left; left -= r.count) {
		size_t x_bytes, y_bytes;

		r.count = MIN(left, (size_t)AT_ONCE);
		x_bytes = r.count * ckpt_dtype_width(r.a);
		y_bytes = r.count * ckpt_dtype_width(r.b);
		if (a != b || memcmp(r.x, r.y, x_bytes)) {
			if (is_integer(a) && is_integer(b))
				add_integers(d, &r);
			else
				add_floating(d, &r);
			for (size_t i = 0; i < r.count; i += parts)
				d->differ += differs[i] || differs[i + parts - 1];
		}
		r.x += x_bytes;
		r.y += y_bytes;
	}
}
