// Runs of arrays in the order of a layout, read by another thread: their bytes, arrays that are left out, errors, and an early end.
#include "core/view/read_ahead.h"

#include "core/array/catalog_format.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "tests/support/suite.h"

#include <stdio.h>

#define COUNT 5
#define ROWS 3000 // more than a block of what is transposed
#define LONG 1500 // elements of a row

// Of a file in memory that has one row after another.
static float element(uint64_t i)
{
	return (float)(i % 65521);
}

static unsigned reads, fail_at; // atomic

static int read_at(void *arg, uint64_t offset, void *buf, size_t len)
{
	(void)arg;
	if (__atomic_add_fetch(&reads, 1, __ATOMIC_SEQ_CST) == fail_at)
		return -EIO;
	for (size_t i = 0; i < len / 4; i++)
		((float *)buf)[i] = element(offset / 4 + i);
	return 0;
}

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)arg;
	(void)path;
	*ret_source = (struct ckpt_source){.bytes = (uint64_t)ROWS * LONG * 4, .read = read_at};
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
}

static const struct ckpt_catalog_files files = {.open = open_file, .close = close_file};
static struct ckpt_catalog *catalog;
static struct ckpt_expr *exprs[COUNT]; // the array, a slice of it, NULL, transposed, cast
static struct ckpt_write_array arrays[COUNT];
static struct ckpt_layout *layout;

static void add_array(void)
{
	static const uint64_t shape[] = {ROWS, LONG}, origin[2], strides[] = {LONG, 1};
	struct ckpt_catalog_reading reading = {.catalog = catalog, .files = &files, .path = "file", .base = "file"};
	const struct ckpt_catalog_entry entry = {
		.name = "a", .name_len = 1, .format = "test", .dtype = CKPT_DTYPE_F32, .ndim = 2, .shape = shape};
	const struct ckpt_piece p = {.file = "file",
				     .start = origin,
				     .extent = shape,
				     .strides = strides,
				     .bytes = (uint64_t)ROWS * LONG * 4};

	ck_ok(ckpt_catalog_add(&reading, &entry));
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	ck_ok(ckpt_catalog_end(catalog));
}

static void setup(void)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	static const struct ckpt_write_plan plan = {.arrays = arrays, .count = COUNT};
	char why[CKPT_WRITE_WHY_MAX];

	reads = fail_at = 0;
	ck_ok(ckpt_catalog_new(&catalog));
	add_array();
	ck_ok(ckpt_expr_array(catalog, 0, &files, &exprs[0]));
	ck_ok(ckpt_expr_slice(exprs[0], 0, 3, 5, &exprs[1]));
	exprs[2] = ckpt_expr_ref(exprs[0]);
	ck_ok(ckpt_expr_transpose(exprs[0], (unsigned[]){1, 0}, &exprs[3]));
	ck_ok(ckpt_expr_cast(exprs[0], CKPT_DTYPE_F64, &exprs[4]));
	for (size_t i = 0; i < COUNT; i++) {
		const struct ckpt_expr_shape *s = ckpt_expr_shape(exprs[i]);

		arrays[i] = (struct ckpt_write_array){names[i], names[i], s->dtype, s->ndim, s->at};
	}
	ck_ok(ckpt_layout_new("npy", &plan, why, &layout));
}

static void teardown(void)
{
	ckpt_layout_free(layout);
	for (size_t i = 0; i < COUNT; i++)
		ckpt_expr_unref(exprs[i]);
	ckpt_catalog_free(catalog);
}

static struct ckpt_expr *expr_of(void *arg, size_t array)
{
	(void)arg;
	return array == 2 ? NULL : exprs[array];
}

static double wanted(size_t array, uint64_t i)
{
	return element(array == 1 ? 3 * LONG + i : array == 3 ? i % ROWS * LONG + i / ROWS : i);
}

static void check(const struct ckpt_read_run *run, uint64_t first)
{
	unsigned width = run->array == 4 ? 8 : 4;

	for (uint64_t i = 0; i < run->bytes / width; i++) {
		double number = width == 8 ? ((const double *)run->at)[i] : ((const float *)run->at)[i];

		if (number != wanted(run->array, first / width + i))
			ck_abort_msg("array %zu, element %llu", run->array, (unsigned long long)(first / width + i));
	}
}

START_TEST(runs_are_those_of_the_layout)
{
	static const uint64_t bytes[COUNT] = {ROWS * LONG * 4, 5 * LONG * 4, 0, ROWS * LONG * 4, ROWS * LONG * 8};
	struct ckpt_read_ahead *a;

	ck_ok(ckpt_read_ahead_new(layout, expr_of, NULL, &a));
	for (size_t array = 0; array < COUNT; array++)
		for (uint64_t done = 0; done < bytes[array];) {
			const struct ckpt_read_run *run = ckpt_read_ahead_next(a);

			ck_ok(run->rc);
			ck_assert_uint_eq(run->array, array);
			ck_assert(run->bytes && run->bytes <= CKPT_READ_RUN && run->bytes <= bytes[array] - done);
			check(run, done);
			done += run->bytes;
		}
	ckpt_read_ahead_free(a);
}
END_TEST

// The thread has filled all others by then.
START_TEST(a_run_stays_until_the_next_call)
{
	const struct ckpt_read_run *run;
	struct ckpt_read_ahead *a;
	int64_t began = ckpt_sys.mono_ns();

	ck_ok(ckpt_read_ahead_new(layout, expr_of, NULL, &a));
	run = ckpt_read_ahead_next(a);
	ck_ok(run->rc);
	while (__atomic_load_n(&reads, __ATOMIC_SEQ_CST) < 1 + CKPT_READ_RUNS) {
		ck_assert_int_lt(ckpt_sys.mono_ns() - began, INT64_C(60000000000));
		ckpt_sys.sleep_ns(1000000);
	}
	check(run, 0);
	ckpt_read_ahead_free(a);
}
END_TEST

// At the beginning, and with the ring full.
START_TEST(it_can_end_at_any_time)
{
	for (unsigned taken = 0; taken < 8; taken++) {
		struct ckpt_read_ahead *a;

		ck_ok(ckpt_read_ahead_new(layout, expr_of, NULL, &a));
		for (unsigned i = 0; i < taken; i++)
			ck_ok(ckpt_read_ahead_next(a)->rc);
		ckpt_read_ahead_free(a);
	}
}
END_TEST

START_TEST(an_error_comes_behind_what_was_read)
{
	const struct ckpt_read_run *run;
	struct ckpt_read_ahead *a;
	uint64_t done = 0;

	fail_at = 3;
	ck_ok(ckpt_read_ahead_new(layout, expr_of, NULL, &a));
	while (!(run = ckpt_read_ahead_next(a))->rc) {
		check(run, done);
		done += run->bytes;
	}
	ck_assert_int_eq(run->rc, -EIO);
	ck_assert_uint_eq(run->array, 0);
	ck_assert(done && done < (uint64_t)ROWS * LONG * 4);
	ckpt_read_ahead_free(a);
	ck_assert_uint_eq(reads, fail_at);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("read_ahead");
	TCase *t = tcase_create("read_ahead");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, runs_are_those_of_the_layout);
	tcase_add_test(t, a_run_stays_until_the_next_call);
	tcase_add_test(t, it_can_end_at_any_time);
	tcase_add_test(t, an_error_comes_behind_what_was_read);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
