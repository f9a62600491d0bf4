#include "tests/support/suite.h"

#include "core/array/number.h"
#include "core/array/scan.h"
#include "core/base/util.h"

#include <math.h>
#include <stdlib.h>

#define COUNT 67 // some vectors, and elements behind them

// What an element is, by its number.
static struct ckpt_scan expected(enum ckpt_dtype dtype, const void *elements)
{
	struct ckpt_scan s = {.dtype = dtype, .all_zero = true};
	double numbers[COUNT];

	ckpt_numbers(dtype, elements, COUNT, numbers);
	for (size_t i = 0; i < COUNT; i++) {
		s.nan += isnan(numbers[i]) != 0;
		s.inf += isinf(numbers[i]) != 0;
		s.all_zero = s.all_zero && numbers[i] == 0;
	}
	return s;
}

static void check(enum ckpt_dtype dtype, const void *elements)
{
	struct ckpt_scan want = expected(dtype, elements), got;
	double numbers[COUNT];

	ckpt_scan_begin(&got, dtype);
	ckpt_scan_add(&got, elements, COUNT, numbers);
	ck_assert_msg(got.nan == want.nan && got.inf == want.inf && got.all_zero == want.all_zero,
		      "%s: %d NaN %d, inf %d %d, zero %d %d", ckpt_dtype_name(dtype), (int)got.nan, (int)want.nan,
		      (int)got.inf, (int)want.inf, got.all_zero, want.all_zero);
}

// One element is another one, at each place: of a half or a byte each there is, of wider ones those with the same upper half.
START_TEST(elements_are_what_their_numbers_are)
{
	uint8_t elements[COUNT * 8];

	for (enum ckpt_dtype dtype = CKPT_DTYPE_NONE; dtype < CKPT_DTYPE_COUNT; dtype++) {
		size_t width = ckpt_dtype_width(dtype), upper = MIN(width, (size_t)2);

		if (!ckpt_is_number(dtype))
			continue;
		for (unsigned code = 0; code < 1u << 8 * upper; code++) {
			size_t at = code % COUNT;

			memset(elements, 0, sizeof(elements));
			memcpy(elements + at * width + width - upper, &code, upper);
			check(dtype, elements);
			elements[((at + 1) % COUNT) * width] = 1; // the least that is no zero, or a NaN's mantissa
			check(dtype, elements);
			elements[at * width] |= 1;
			check(dtype, elements);
		}
	}
}
END_TEST

START_TEST(parts_add_up)
{
	const float first[] = {0, -0.0f, 0}, second[] = {NAN, INFINITY, -INFINITY, 1};
	struct ckpt_scan s;
	double numbers[4];

	ckpt_scan_begin(&s, CKPT_DTYPE_F32);
	ckpt_scan_add(&s, first, ARRAY_LEN(first), numbers);
	ck_assert(s.all_zero && !s.nan && !s.inf);
	ckpt_scan_add(&s, second, ARRAY_LEN(second), numbers);
	ckpt_scan_add(&s, second, ARRAY_LEN(second), numbers);
	ckpt_scan_add(&s, first, ARRAY_LEN(first), numbers);
	ck_assert(!s.all_zero);
	ck_assert_uint_eq(s.nan, 2);
	ck_assert_uint_eq(s.inf, 4);
}
END_TEST

static Suite *scan_suite(void)
{
	Suite *suite = suite_create("scan");
	TCase *tcase = tcase_create("scan");

	tcase_add_test(tcase, elements_are_what_their_numbers_are);
	tcase_add_test(tcase, parts_add_up);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(scan_suite());
}
