// By how much elements differ, of every pair of types that has an order.
#include "core/array/difference.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <float.h>
#include <math.h>

static struct ckpt_difference d;

static void compare(enum ckpt_dtype a, const void *x, enum ckpt_dtype b, const void *y, size_t count)
{
	d = (struct ckpt_difference){0};
	ckpt_difference_add(&d, a, x, b, y, count);
}

static void check(uint64_t differ, uint64_t nan, uint64_t inf, double max_abs, uint64_t max_ulp)
{
	ck_assert_uint_eq(d.differ, differ);
	ck_assert_uint_eq(d.nan, nan);
	ck_assert_uint_eq(d.inf, inf);
	ck_assert_double_eq(d.max_abs, max_abs);
	ck_assert_uint_eq(d.max_ulp, max_ulp);
}

START_TEST(floats_differ_by_bits_value_and_codes)
{
	const float x[] = {1, 0.0f, NAN, 1, INFINITY, INFINITY, FLT_MAX, -FLT_TRUE_MIN},
		    y[] = {1, -0.0f, NAN, NAN, -INFINITY, INFINITY, 0, FLT_TRUE_MIN};

	compare(CKPT_DTYPE_F32, x, CKPT_DTYPE_F32, y, 6);
	ck_assert_uint_eq(d.elements, 6);
	check(3, 1, 1, 0, 0);
	compare(CKPT_DTYPE_F32, x + 7, CKPT_DTYPE_F32, y + 7, 1);
	check(1, 0, 0, 2 * (double)FLT_TRUE_MIN, 2);
	compare(CKPT_DTYPE_F32, x + 6, CKPT_DTYPE_F32, y + 6, 1);
	check(1, 0, 0, (double)FLT_MAX, 0x7f7fffff);
	compare(CKPT_DTYPE_F64, (double[]){DBL_MAX}, CKPT_DTYPE_F64, (double[]){-DBL_MAX}, 1);
	check(1, 0, 0, DBL_MAX, 2 * UINT64_C(0x7fefffffffffffff));
}
END_TEST

START_TEST(codes_are_those_of_the_coarser_type)
{
	const float x[] = {1 + 0x1p-8f, 1 + 0x1p-9f, 3e38f};
	const uint16_t low[] = {0x3f80, 0x3f82, 0x7f80 - 1};
	const uint16_t half[] = {0x3c00, 0x3c00, 0x7bff};
	const uint8_t fnuz[] = {0x7f};

	compare(CKPT_DTYPE_F32, x, CKPT_DTYPE_BF16, low, 1); // a tie, to even
	check(1, 0, 0, 0x1p-8, 0);
	compare(CKPT_DTYPE_F32, x, CKPT_DTYPE_BF16, low, 2);
	check(2, 0, 0, 0x1p-6 - 0x1p-9, 2);
	compare(CKPT_DTYPE_BF16, low, CKPT_DTYPE_F32, x, 2);
	check(2, 0, 0, 0x1p-6 - 0x1p-9, 2);
	compare(CKPT_DTYPE_F16, half + 2, CKPT_DTYPE_F32, x + 2, 1); // too large for it
	check(1, 0, 0, (double)3e38f - 65504, 1);
	compare(CKPT_DTYPE_F8E4M3FNUZ, fnuz, CKPT_DTYPE_F32, x + 2, 1);
	check(1, 0, 0, (double)3e38f - 240, 1);
	compare(CKPT_DTYPE_BF16, low, CKPT_DTYPE_F16, half, 1);
	check(0, 0, 0, 0, 0);
}
END_TEST

START_TEST(integers_are_exact)
{
	const int64_t small[] = {INT64_MIN, 1 + (INT64_C(1) << 53)};
	const uint64_t large[] = {UINT64_MAX, INT64_C(1) << 53};

	compare(CKPT_DTYPE_I64, small + 1, CKPT_DTYPE_U64, large + 1, 1);
	check(1, 0, 0, 1, 0);
	compare(CKPT_DTYPE_I64, small, CKPT_DTYPE_U64, large, 1);
	check(1, 0, 0, 0x1p64 + 0x1p63, 0);
	compare(CKPT_DTYPE_I8, (int8_t[]){-1, 3}, CKPT_DTYPE_U8, (uint8_t[]){255, 3}, 2);
	check(1, 0, 0, 256, 0);
	compare(CKPT_DTYPE_I16, (int16_t[]){-2}, CKPT_DTYPE_F32, (float[]){-2.5f}, 1);
	check(1, 0, 0, 0.5, 0);
	ck_assert(!ckpt_difference_has_ulp(CKPT_DTYPE_I16, CKPT_DTYPE_F32));
}
END_TEST

START_TEST(a_complex_element_is_one)
{
	const float x[] = {1, 2, 3, 4}, y[] = {1, 2.5f, 2, NAN};
	const double same[] = {1, 2, 3, 4};

	compare(CKPT_DTYPE_C64, x, CKPT_DTYPE_C64, y, 2);
	ck_assert_uint_eq(d.elements, 2);
	check(2, 1, 0, 1, 0x400000);
	compare(CKPT_DTYPE_C64, x, CKPT_DTYPE_C128, same, 2);
	check(0, 0, 0, 0, 0);
	ck_assert(!ckpt_difference_is_known(CKPT_DTYPE_C64, CKPT_DTYPE_F32));
	ck_assert(!ckpt_difference_is_known(CKPT_DTYPE_F32, CKPT_DTYPE_C64));
	ck_assert(!ckpt_difference_is_known(CKPT_DTYPE_I4, CKPT_DTYPE_I4));
}
END_TEST

// In a long run, at each place of a part, the one element that differs is found.
START_TEST(one_of_many_is_found)
{
	static uint16_t x[2000], y[2000];

	for (size_t i = 0; i < ARRAY_LEN(x); i += 97) {
		y[i] = 7;
		compare(CKPT_DTYPE_BF16, x, CKPT_DTYPE_BF16, y, ARRAY_LEN(x));
		check(1, 0, 0, 7 * 0x1p-133, 7);
		y[i] = 0;
	}
	compare(CKPT_DTYPE_BF16, x, CKPT_DTYPE_BF16, y, ARRAY_LEN(x));
	check(0, 0, 0, 0, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("difference");
	TCase *tc = tcase_create("difference");

	tcase_add_test(tc, floats_differ_by_bits_value_and_codes);
	tcase_add_test(tc, codes_are_those_of_the_coarser_type);
	tcase_add_test(tc, integers_are_exact);
	tcase_add_test(tc, a_complex_element_is_one);
	tcase_add_test(tc, one_of_many_is_found);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
