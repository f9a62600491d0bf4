// Boxes that cover a region, against counting each element.
#include "core/array/cover.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <stdlib.h>

#define DIMS 3u
#define SIDE 6u
#define BOXES_MAX 12u
#define ROUNDS 3000

static uint64_t starts[BOXES_MAX][DIMS], extents[BOXES_MAX][DIMS];
static struct ckpt_box boxes[BOXES_MAX];

static struct ckpt_covered count_each(size_t n, const struct ckpt_box *region)
{
	struct ckpt_covered all = {0};

	for (uint64_t e = 0; e < SIDE * SIDE * SIDE; e++) {
		uint64_t at[DIMS] = {e / (SIDE * SIDE), e / SIDE % SIDE, e % SIDE}, in = 0;
		bool inside = true;

		for (unsigned d = 0; d < DIMS; d++)
			inside &= at[d] >= region->start[d] && at[d] < region->start[d] + region->extent[d];
		for (size_t i = 0; i < n; i++) {
			bool has = true;

			for (unsigned d = 0; d < DIMS; d++)
				has &= at[d] >= starts[i][d] && at[d] < starts[i][d] + extents[i][d];
			in += has;
		}
		all.missing += inside && !in;
		all.doubled += inside && in > 1 ? in - 1 : 0;
	}
	return all;
}

static void random_range(uint64_t *ret_start, uint64_t *ret_extent)
{
	*ret_start = (uint64_t)rand() % SIDE;
	*ret_extent = (uint64_t)rand() % (SIDE - *ret_start + 1);
}

START_TEST(boxes_are_counted_as_their_elements_are)
{
	uint64_t start[DIMS], extent[DIMS];
	const struct ckpt_box region = {start, extent};

	srand(7);
	for (int round = 0; round < ROUNDS; round++) {
		struct ckpt_covered found, want;
		size_t n = (size_t)rand() % (BOXES_MAX + 1);

		for (unsigned d = 0; d < DIMS; d++)
			random_range(&start[d], &extent[d]);
		for (size_t i = 0; i < n; i++) {
			for (unsigned d = 0; d < DIMS; d++)
				random_range(&starts[i][d], &extents[i][d]);
			boxes[i] = (struct ckpt_box){starts[i], extents[i]};
		}
		ck_ok(ckpt_cover(boxes, n, DIMS, &region, &found));
		want = count_each(n, &region);
		ck_assert_uint_eq(found.missing, want.missing);
		ck_assert_uint_eq(found.doubled, want.doubled);
	}
}
END_TEST

START_TEST(one_element_without_dimensions)
{
	const struct ckpt_box nothing = {NULL, NULL}, two[] = {nothing, nothing};
	struct ckpt_covered found;

	ck_ok(ckpt_cover(NULL, 0, 0, &nothing, &found));
	ck_assert_uint_eq(found.missing, 1);
	ck_ok(ckpt_cover(two, 1, 0, &nothing, &found));
	ck_assert_uint_eq(found.missing + found.doubled, 0);
	ck_ok(ckpt_cover(two, 2, 0, &nothing, &found));
	ck_assert_uint_eq(found.doubled, 1);
}
END_TEST

// As a large array of small chunks: 512 x 512 of them, one of which is missing.
START_TEST(a_large_grid_is_no_work)
{
	enum { GRID = 512 };
	static uint64_t at[GRID * GRID][2];
	static struct ckpt_box grid[GRID * GRID];
	const uint64_t origin[2] = {0, 0}, all[2] = {GRID * 1000, GRID * 1000}, one[2] = {1000, 1000};
	struct ckpt_covered found;

	for (size_t i = 0; i < GRID * GRID; i++) {
		at[i][0] = i / GRID * 1000;
		at[i][1] = i % GRID * 1000;
		grid[i] = (struct ckpt_box){at[i], one};
	}
	ck_ok(ckpt_cover(grid, GRID * GRID, 2, &(struct ckpt_box){origin, all}, &found));
	ck_assert_uint_eq(found.missing + found.doubled, 0);
	ck_ok(ckpt_cover(grid + 1, GRID * GRID - 1, 2, &(struct ckpt_box){origin, all}, &found));
	ck_assert_uint_eq(found.missing, 1000 * 1000);
}
END_TEST

// Boxes that lie across each other in many dimensions: as many steps as there are cells, which nobody could wait for.
START_TEST(what_would_take_for_ever_is_refused)
{
	enum { N = 200, ND = 12 };
	static uint64_t at[N][ND], extent[N][ND];
	static struct ckpt_box across[N];
	uint64_t origin[ND] = {0}, all[ND];
	struct ckpt_covered found;

	for (unsigned d = 0; d < ND; d++)
		all[d] = 32;
	srand(3);
	for (size_t i = 0; i < N; i++) {
		for (unsigned d = 0; d < ND; d++) {
			at[i][d] = (uint64_t)rand() % 4;
			extent[i][d] = 24 + (uint64_t)rand() % 4;
		}
		across[i] = (struct ckpt_box){at[i], extent[i]};
	}
	ck_assert_int_eq(ckpt_cover(across, N, ND, &(struct ckpt_box){origin, all}, &found), -E2BIG);
}
END_TEST

// Boxes in each other, each of which is still there at all steps of those inside.
START_TEST(many_in_each_other_are_refused)
{
	enum { N = 150000 };
	static uint64_t at[N], extent[N];
	static struct ckpt_box in[N];
	const uint64_t origin = 0, all = 2 * N;
	struct ckpt_covered found;

	for (size_t i = 0; i < N; i++) {
		at[i] = i;
		extent[i] = 2 * (N - i);
		in[i] = (struct ckpt_box){&at[i], &extent[i]};
	}
	ck_assert_int_eq(ckpt_cover(in, N, 1, &(struct ckpt_box){&origin, &all}, &found), -E2BIG);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cover");
	TCase *tc = tcase_create("cover");

	tcase_add_test(tc, boxes_are_counted_as_their_elements_are);
	tcase_add_test(tc, one_element_without_dimensions);
	tcase_add_test(tc, a_large_grid_is_no_work);
	tcase_add_test(tc, what_would_take_for_ever_is_refused);
	tcase_add_test(tc, many_in_each_other_are_refused);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
