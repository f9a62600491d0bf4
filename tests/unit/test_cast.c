// f32 as bf16 and f16 and back, which go by the widest instructions there are: against what IEEE 754 says or the way by f64, one number at a
// time, and ends of all lengths.
#include "core/array/cast.h"
#include "core/base/util.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>

#define COUNT 4099

static float of_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static float of_half(uint16_t code)
{
	return of_bits((uint32_t)code << 16);
}

// code is the nearest to f of it and its two neighbours; of two it is the even one.
static void check_nearest(float f, uint16_t code)
{
	float here = of_half(code), magnitude = fabsf(f);
	uint16_t largest = 0x7f7f;

	if (isnan(f)) {
		ck_assert(isnan(here) && !signbit(f) == !signbit(here));
		return;
	}
	ck_assert(!signbit(f) == !signbit(here));
	code &= 0x7fff;
	if (isinf(here)) {
		ck_assert(isinf(f) || (double)magnitude >= (of_half(largest) + 0x1p128) / 2);
		return;
	}
	for (int side = -1; side <= 1; side += 2) {
		double other = code + side < 0               ? INFINITY
			       : code == largest && side > 0 ? 0x1p128
							     : of_half((uint16_t)(code + side));
		double mine = fabs((double)of_half(code) - magnitude), its = fabs(other - magnitude);

		ck_assert(mine < its || (mine == its && !(code & 1)));
	}
}

START_TEST(singles_become_the_nearest_upper_halves)
{
	static uint32_t bits[COUNT];
	static uint16_t codes[COUNT + 1];

	srand((unsigned)_i);
	for (size_t i = 0; i < COUNT; i++) {
		bits[i] = (uint32_t)rand() << 16 ^ (uint32_t)rand();
		if (i % 3 == 0) // halfway, or nearly
			bits[i] = (bits[i] & 0xffff0000) | (0x7fffu + (uint32_t)rand() % 3);
		if (i % 5 == 0) // infinity, NaN, the largest, or zero and the smallest
			bits[i] = (bits[i] & 0x8000ffff) | (i % 2 ? 0x7f800000u - (uint32_t)rand() % 2 * 0x8000 : 0);
	}
	for (size_t count = 0; count < COUNT; count += count < 70 ? 1 : 1343) {
		memset(codes, 0x55, sizeof(codes));
		ckpt_cast(CKPT_DTYPE_F32, CKPT_DTYPE_BF16, bits + COUNT - count, count, codes);
		for (size_t i = 0; i < count; i++)
			check_nearest(of_bits(bits[COUNT - count + i]), codes[i]);
		ck_assert_uint_eq(codes[count], 0x5555);
	}
}
END_TEST

START_TEST(upper_halves_are_singles)
{
	static uint16_t codes[1 << 16];
	static uint32_t bits[(1 << 16) + 1];

	for (size_t i = 0; i < 1 << 16; i++)
		codes[i] = (uint16_t)i;
	for (size_t count = 0; count <= 1 << 16; count = count < 70 ? count + 1 : count * 3) {
		memset(bits, 0x55, sizeof(bits));
		ckpt_cast(CKPT_DTYPE_BF16, CKPT_DTYPE_F32, codes + (1 << 16) - count, count, bits);
		for (size_t i = 0; i < count; i++)
			ck_assert_uint_eq(bits[i], (uint32_t)((1 << 16) - count + i) << 16);
		ck_assert_uint_eq(bits[count], 0x55555555);
	}
}
END_TEST

// By f64, which is exact, one step at a time.
static void cast_slowly(enum ckpt_dtype from, enum ckpt_dtype to, const void *elements, size_t count, void *into)
{
	double *numbers = malloc(count * sizeof(*numbers) + 1);

	ckpt_cast(from, CKPT_DTYPE_F64, elements, count, numbers);
	ckpt_cast(CKPT_DTYPE_F64, to, numbers, count, into);
	free(numbers);
}

// Each half, what lies halfway to the next one, and its neighbours; numbers of all sizes; NaN of all kinds.
START_TEST(singles_become_halves)
{
	static uint32_t bits[(1 << 16) * 8];
	static uint16_t codes[ARRAY_LEN(bits) + 1], want[ARRAY_LEN(bits)];
	size_t n = 0;

	for (uint32_t half = 0; half < 1 << 16; half++) {
		uint16_t code = (uint16_t)half, next = (uint16_t)(half + 1);
		float here, there, middle;
		uint32_t at;

		cast_slowly(CKPT_DTYPE_F16, CKPT_DTYPE_F32, &code, 1, &here);
		cast_slowly(CKPT_DTYPE_F16, CKPT_DTYPE_F32, &next, 1, &there);
		middle = isinf(there) ? copysignf(65520, here) : (here + there) / 2;
		memcpy(&at, &middle, 4);
		memcpy(&bits[n++], &here, 4);
		for (uint32_t i = 0; i < 3; i++)
			bits[n++] = at + i - 1;
		bits[n++] = half << 16 | (half * 0x9e3779b9 >> 16);
		bits[n++] = 0x7f800000 | half << 15;
		bits[n++] = 0x38000000 + half * 977;
		bits[n++] = half * 0x10001;
	}
	ck_assert_uint_eq(n, ARRAY_LEN(bits));
	cast_slowly(CKPT_DTYPE_F32, CKPT_DTYPE_F16, bits, n, want);
	for (size_t skip = 0; skip < n; skip = skip < 40 ? skip + 1 : n - (n - skip) / 3) {
		memset(codes, 0x55, sizeof(codes));
		ckpt_cast(CKPT_DTYPE_F32, CKPT_DTYPE_F16, bits + skip, n - skip, codes);
		for (size_t i = skip; i < n; i++)
			if (codes[i - skip] != want[i])
				ck_abort_msg("%08x: %04x, not %04x", bits[i], codes[i - skip], want[i]);
		ck_assert_uint_eq(codes[n - skip], 0x5555);
	}
}
END_TEST

START_TEST(halves_are_singles)
{
	static uint16_t codes[1 << 16];
	static uint32_t bits[1 << 16], want[1 << 16];

	for (size_t i = 0; i < 1 << 16; i++)
		codes[i] = (uint16_t)i;
	cast_slowly(CKPT_DTYPE_F16, CKPT_DTYPE_F32, codes, 1 << 16, want);
	for (size_t skip = 0; skip < 40; skip++) {
		ckpt_cast(CKPT_DTYPE_F16, CKPT_DTYPE_F32, codes + skip, (1 << 16) - skip, bits);
		for (size_t i = skip; i < 1 << 16; i++)
			if (bits[i - skip] != want[i])
				ck_abort_msg("%04zx: %08x, not %08x", i, bits[i - skip], want[i]);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cast");
	TCase *t = tcase_create("cast");

	tcase_add_loop_test(t, singles_become_the_nearest_upper_halves, 0, 8);
	tcase_add_test(t, upper_halves_are_singles);
	tcase_add_test(t, singles_become_halves);
	tcase_add_test(t, halves_are_singles);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
