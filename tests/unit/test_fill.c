// Elements in a program's memory: boxes with strides, other types and other shapes, against an array in memory.
#include "core/array/fill.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/cast.h"
#include "core/array/catalog_format.h"
#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 300
#define GUARD 0xa5

static struct ckpt_bytes file;
static struct ckpt_catalog *c;
static struct ckpt_gather *g;

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)arg;
	(void)path;
	*ret_source = ckpt_bytes_source(&file);
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
}

static const struct ckpt_catalog_files files = {.open = open_file, .close = close_file};

// An array of f32 whose elements count up from 0, in one piece.
static void make(unsigned ndim, const uint64_t *shape)
{
	struct ckpt_catalog_reading r = {.path = "file", .base = "file"};
	const struct ckpt_catalog_entry entry = {
		.name = "a", .name_len = 1, .format = "test", .dtype = CKPT_DTYPE_F32, .ndim = ndim, .shape = shape};
	uint64_t count = 1;
	struct ckpt_piece p = {.file = "file"};

	for (unsigned k = 0; k < ndim; k++)
		count *= shape[k];
	free(file.data);
	file = (struct ckpt_bytes){0};
	for (uint64_t i = 0; i < count; i++)
		ckpt_bytes_add(&file, &(float){(float)i}, 4);
	p.bytes = file.len;
	ckpt_gather_free(g);
	g = NULL;
	ckpt_catalog_free(c);
	ck_ok(ckpt_catalog_new(&c));
	r.catalog = c;
	ck_ok(ckpt_catalog_add(&r, &entry));
	ck_ok(ckpt_catalog_add_piece(&r, &p));
	ck_ok(ckpt_gather_new(c, 0, &files, &g));
}

static void teardown(void)
{
	ckpt_gather_free(g);
	g = NULL;
	ckpt_catalog_free(c);
	c = NULL;
	free(file.data);
	file = (struct ckpt_bytes){0};
}

static uint64_t up_to(uint64_t n)
{
	return (uint64_t)rand() % n;
}

static double number(enum ckpt_dtype dtype, const uint8_t *at)
{
	float single;

	ckpt_cast(dtype, CKPT_DTYPE_F32, at, 1, &single);
	return (double)single;
}

// --- Against a model --------------------------------------------------------------------------------------------------------

struct trial {
	struct ckpt_fill fill;
	uint64_t shape[3], found[3], start[3], extent[3];
	int64_t strides[3];
	uint8_t *memory;
	size_t bytes;
	int64_t first; // byte of the memory
};

// Memory with gaps; some dimensions go backwards, and their order is any.
static void lay_out(struct trial *t, unsigned width)
{
	unsigned order[3] = {0, 1, 2}, swap = (unsigned)up_to(3), was = order[2];
	int64_t step = width * (1 + (int64_t)up_to(2));

	order[2] = order[swap];
	order[swap] = was;
	t->first = 0;
	for (unsigned k = 3; k-- > 0;) {
		unsigned d = order[k];
		bool back = !up_to(4);

		t->strides[d] = back ? -step : step;
		if (back)
			t->first += step * ((int64_t)t->extent[d] - 1);
		step *= (int64_t)t->extent[d] + (int64_t)up_to(2);
	}
	t->bytes = (size_t)step + width;
	t->memory = malloc(t->bytes);
	memset(t->memory, GUARD, t->bytes);
}

// What element (x, y, z) of the wanted array is to be.
static double wanted(const struct trial *t, const uint64_t *at)
{
	const uint64_t *of = t->fill.fit == CKPT_FIT_PADDED ? t->found : t->shape;

	for (unsigned k = 0; k < 3; k++)
		if (at[k] >= of[k])
			return 0;
	return (double)((at[0] * of[1] + at[1]) * of[2] + at[2]);
}

static void compare(struct trial *t, unsigned width)
{
	uint64_t at[3];

	for (uint64_t x = 0; x < t->extent[0]; x++)
		for (uint64_t y = 0; y < t->extent[1]; y++)
			for (uint64_t z = 0; z < t->extent[2]; z++) {
				uint8_t *p = t->memory + t->first + (int64_t)x * t->strides[0] +
					     (int64_t)y * t->strides[1] + (int64_t)z * t->strides[2];

				at[0] = t->start[0] + x;
				at[1] = t->start[1] + y;
				at[2] = t->start[2] + z;
				ck_assert_double_eq(number(t->fill.to, p), wanted(t, at));
				memset(p, GUARD, width);
			}
	// Nothing between the elements was touched.
	for (size_t i = 0; i < t->bytes; i++)
		ck_assert_uint_eq(t->memory[i], GUARD);
}

static void make_found(struct trial *t)
{
	uint64_t more[4] = {2, t->shape[0], t->shape[1], t->shape[2]}, flat = t->shape[0] * t->shape[1] * t->shape[2];

	switch (t->fill.fit) {
	case CKPT_FIT_FIRST:
		make(4, more);
		return;
	case CKPT_FIT_RESHAPED:
		make(1, &flat);
		return;
	case CKPT_FIT_PADDED:
		for (unsigned k = 0; k < 3; k++)
			t->found[k] = 1 + up_to(t->shape[k]);
		make(3, t->found);
		return;
	default:
		memcpy(t->found, t->shape, sizeof(t->found));
		make(3, t->shape);
	}
}

START_TEST(boxes_are_put_where_the_program_wants_them)
{
	static const enum ckpt_dtype types[] = {CKPT_DTYPE_F32, CKPT_DTYPE_F64, CKPT_DTYPE_F16};

	srand(7);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct trial t = {.fill.fit = (enum ckpt_match_fit)_i};
		unsigned width;

		for (unsigned k = 0; k < 3; k++) {
			t.shape[k] = 1 + up_to(9);
			t.start[k] = up_to(t.shape[k]);
			t.extent[k] = 1 + up_to(t.shape[k] - t.start[k]);
		}
		make_found(&t);
		t.fill.from = CKPT_DTYPE_F32;
		t.fill.to = types[up_to(3)];
		width = ckpt_dtype_width(t.fill.to);
		lay_out(&t, width);
		t.fill.ndim = 3;
		t.fill.shape = t.shape;
		t.fill.found = t.found;
		t.fill.start = t.start;
		t.fill.extent = t.extent;
		t.fill.strides = t.strides;
		t.fill.into = t.memory + t.first;
		ck_ok(ckpt_fill_box(g, &t.fill));
		compare(&t, width);
		free(t.memory);
	}
}
END_TEST

// --- Flat ranges ------------------------------------------------------------------------------------------------------------

// Element i of the box in C order.
static void place(const struct trial *t, uint64_t i, uint64_t *at)
{
	for (unsigned k = 3; k-- > 0;) {
		at[k] = t->start[k] + i % t->extent[k];
		i /= t->extent[k];
	}
}

START_TEST(flat_ranges_of_boxes_follow_each_other)
{
	srand(8);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct trial t = {.fill.fit = (enum ckpt_match_fit)_i};
		uint64_t elements = 1, first, count, at[3];
		unsigned width, gap = (unsigned)up_to(2);
		uint8_t memory[9 * 9 * 9 * 16];
		int64_t step;

		for (unsigned k = 0; k < 3; k++) {
			t.shape[k] = 1 + up_to(9);
			t.start[k] = up_to(t.shape[k]);
			t.extent[k] = 1 + up_to(t.shape[k] - t.start[k]);
			elements *= t.extent[k];
		}
		make_found(&t);
		first = up_to(elements + 1);
		count = up_to(elements - first + 1);
		t.fill.from = CKPT_DTYPE_F32;
		t.fill.to = up_to(2) ? CKPT_DTYPE_F32 : CKPT_DTYPE_F64;
		width = ckpt_dtype_width(t.fill.to);
		step = width * (1 + (int64_t)gap);
		t.fill.ndim = 3;
		t.fill.shape = t.shape;
		t.fill.found = t.found;
		t.fill.start = t.start;
		t.fill.extent = t.extent;
		t.fill.strides = gap ? &step : NULL;
		t.fill.into = memory;
		memset(memory, GUARD, sizeof(memory));
		ck_ok(ckpt_fill_flat(g, &t.fill, first, count));
		for (uint64_t i = 0; i < count; i++) {
			place(&t, first + i, at);
			ck_assert_double_eq(number(t.fill.to, memory + (int64_t)i * step), wanted(&t, at));
			memset(memory + (int64_t)i * step, GUARD, width);
		}
		ck_ok(ckpt_fill_flat(g, &t.fill, up_to(elements + 1), 0));
		for (size_t i = 0; i < sizeof(memory); i++)
			ck_assert_uint_eq(memory[i], GUARD);
		ck_assert_int_eq(ckpt_fill_flat(g, &t.fill, elements + 1, 0), -ERANGE);
		ck_assert_int_eq(ckpt_fill_flat(g, &t.fill, first, elements - first + 1), -ERANGE);
		ck_assert_int_eq(ckpt_fill_flat(g, &t.fill, UINT64_MAX, 1), -ERANGE);
	}
}
END_TEST

// --- Sizes ------------------------------------------------------------------------------------------------------------------

static const struct {
	uint64_t shape[2];
	bool boxed;
	enum ckpt_match_fit fit;
} large[] = {
	{{3, 300000}, false, CKPT_FIT_SAME},    {{300000, 3}, false, CKPT_FIT_SAME},
	{{1, 900000}, true, CKPT_FIT_SAME},     {{700, 900}, true, CKPT_FIT_SAME},
	{{700, 900}, false, CKPT_FIT_RESHAPED}, {{700, 900}, true, CKPT_FIT_RESHAPED},
	{{2, 400000}, true, CKPT_FIT_RESHAPED}, {{900, 700}, false, CKPT_FIT_PADDED},
};

// More than a slab has.
START_TEST(slabs_join_without_a_seam)
{
	const uint64_t *shape = large[_i].shape, flat = shape[0] * shape[1];
	bool boxed = large[_i].boxed, padded = large[_i].fit == CKPT_FIT_PADDED;
	uint64_t start[2] = {0, boxed ? 1 : 0}, extent[2] = {shape[0], shape[1] - start[1]};
	uint64_t found[2] = {shape[0] - (padded ? 2 : 0), shape[1] - (padded ? 1 : 0)};
	double *got = malloc(flat * sizeof(*got));

	if (large[_i].fit == CKPT_FIT_RESHAPED)
		make(1, &flat);
	else
		make(2, found);
	ck_ok(ckpt_fill_box(g, &(struct ckpt_fill){.fit = large[_i].fit,
						   .from = CKPT_DTYPE_F32,
						   .to = CKPT_DTYPE_F64,
						   .ndim = 2,
						   .shape = shape,
						   .found = found,
						   .start = boxed ? start : NULL,
						   .extent = boxed ? extent : NULL,
						   .into = got}));
	for (uint64_t x = 0; x < extent[0]; x++)
		for (uint64_t y = 0; y < extent[1]; y++) {
			uint64_t at = y + start[1];
			bool there = x < found[0] && at < found[1];

			ck_assert(got[x * extent[1] + y] == (there ? (double)(x * found[1] + at) : 0));
		}
	free(got);
}
END_TEST

START_TEST(one_element_and_none)
{
	const uint64_t none[2] = {0, 5};
	struct ckpt_fill fill = {.from = CKPT_DTYPE_F32, .to = CKPT_DTYPE_F64};
	double got = 3;

	make(0, NULL);
	fill.into = &got;
	ck_ok(ckpt_fill_box(g, &fill));
	ck_assert_double_eq(got, 0);
	got = 3;
	make(2, none);
	fill.ndim = 2;
	fill.shape = fill.found = none;
	ck_ok(ckpt_fill_box(g, &fill));
	ck_assert_double_eq(got, 3);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
	const uint64_t shape[2] = {4, 5}, start[2] = {0, 5}, extent[2] = {4, 1}, huge[2] = {UINT64_MAX, UINT64_MAX};
	struct ckpt_fill fill = {
		.from = CKPT_DTYPE_F32, .to = CKPT_DTYPE_F32, .ndim = 2, .shape = shape, .found = shape};
	uint8_t got[80];

	make(2, shape);
	fill.into = got;
	fill.start = start;
	fill.extent = extent;
	ck_assert_int_eq(ckpt_fill_box(g, &fill), -ERANGE);
	fill.start = fill.extent = NULL;
	fill.to = CKPT_DTYPE_I32;
	ck_assert_int_eq(ckpt_fill_box(g, &fill), -ENOTSUP);
	fill.to = CKPT_DTYPE_F32;
	fill.shape = huge;
	ck_assert_int_eq(ckpt_fill_box(g, &fill), -EFBIG);
	ck_assert_int_eq(ckpt_fill_flat(g, &fill, 0, 1), -EFBIG);
	fill.ndim = CKPT_ARRAY_DIMS_MAX + 1;
	ck_assert_int_eq(ckpt_fill_flat(g, &fill, 0, 1), -ERANGE);
	ck_assert_int_eq(ckpt_fill_box(g, &fill), -ERANGE);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("fill");
	TCase *all = tcase_create("fill");

	tcase_add_checked_fixture(all, NULL, teardown);
	tcase_add_loop_test(all, boxes_are_put_where_the_program_wants_them, CKPT_FIT_SAME, CKPT_FIT_KEPT);
	tcase_add_loop_test(all, flat_ranges_of_boxes_follow_each_other, CKPT_FIT_SAME, CKPT_FIT_KEPT);
	tcase_add_loop_test(all, slabs_join_without_a_seam, 0, ARRAY_LEN(large));
	tcase_add_test(all, one_element_and_none);
	tcase_add_test(all, what_cannot_be_is_refused);
	suite_add_tcase(s, all);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
