// Arrays made of others: boxes and runs of random expressions, next to the same made element by element.
#include "core/array/expr.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 600
#define OPS_MAX 7
#define ELEMENTS_MAX 4000

static struct ckpt_bytes file;
static struct ckpt_catalog *c;
static unsigned open_files;

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)arg;
	(void)path;
	open_files++;
	*ret_source = ckpt_bytes_source(&file);
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
	open_files--;
}

static const struct ckpt_catalog_files files = {.open = open_file, .close = close_file};

// --- The same, in memory --------------------------------------------------------------------------------------------------

struct model {
	struct ckpt_expr *expr;
	struct ckpt_expr_shape shape;
	uint32_t *at; // f32 as bits, or half of that as bf16
	uint64_t count;
};

static uint64_t up_to(uint64_t n)
{
	return (uint64_t)rand() % n;
}

static void indices(const struct ckpt_expr_shape *s, uint64_t i, uint64_t *at)
{
	for (unsigned k = s->ndim; k-- > 0; i /= s->at[k])
		at[k] = i % s->at[k];
}

static uint64_t place(const struct ckpt_expr_shape *s, const uint64_t *at)
{
	uint64_t i = 0;

	for (unsigned k = 0; k < s->ndim; k++)
		i = i * s->at[k] + at[k];
	return i;
}

static struct model model_of(struct ckpt_expr *e)
{
	struct model m = {.expr = e, .shape = *ckpt_expr_shape(e), .count = 1};

	for (unsigned i = 0; i < m.shape.ndim; i++)
		m.count *= m.shape.at[i];
	ck_assert_uint_eq(m.count, ckpt_expr_elements(e));
	m.at = calloc(m.count + 1, sizeof(*m.at));
	ck_assert_ptr_nonnull(m.at);
	return m;
}

static void model_done(struct model *m)
{
	ckpt_expr_unref(m->expr);
	free(m->at);
}

// Small numbers, which bf16 has too.
static void add_array(const char *name, unsigned ndim, const uint64_t *shape)
{
	struct ckpt_catalog_reading reading = {.catalog = c, .files = &files, .path = "file", .base = "file"};
	const struct ckpt_catalog_entry entry = {.name = name,
						 .name_len = strlen(name),
						 .format = "test",
						 .dtype = CKPT_DTYPE_F32,
						 .ndim = ndim,
						 .shape = shape};
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];
	uint64_t strides[CKPT_ARRAY_DIMS_MAX], elements = 1;
	struct ckpt_piece p = {
		.file = "file", .offset = file.len, .start = origin, .extent = shape, .strides = strides};

	for (unsigned i = ndim; i-- > 0; elements *= shape[i])
		strides[i] = elements;
	p.bytes = elements * 4;
	for (uint64_t i = 0; i < elements; i++) {
		float number = (float)up_to(128);

		ckpt_bytes_add(&file, &number, sizeof(number));
	}
	ck_ok(ckpt_catalog_add(&reading, &entry));
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
}

static struct model leaf(size_t array)
{
	struct ckpt_catalog_array a;
	struct ckpt_expr *e;
	struct ckpt_piece p;
	struct model m;
	struct ckpt_expr_place place;

	ckpt_catalog_get(c, array, &a);
	ckpt_catalog_piece(c, array, 0, &p);
	ck_ok(ckpt_expr_array(c, array, &files, &e));
	ck_assert(ckpt_expr_is_part(e, &place) && place.catalog == c && place.files == &files);
	ck_assert_uint_eq(place.array, array);
	ck_assert_uint_eq(place.first, 0);
	m = model_of(e);
	memcpy(m.at, file.data + p.offset, m.count * 4);
	return m;
}

// --- Operations -----------------------------------------------------------------------------------------------------------

static struct model slice(const struct model *of)
{
	unsigned axis = (unsigned)up_to(of->shape.ndim);
	uint64_t start = up_to(of->shape.at[axis] + 1), extent = up_to(of->shape.at[axis] - start + 1), at[32];
	struct ckpt_expr *e;
	struct model m;

	ck_ok(ckpt_expr_slice(of->expr, axis, start, extent, &e));
	m = model_of(e);
	for (uint64_t i = 0; i < m.count; i++) {
		indices(&m.shape, i, at);
		at[axis] += start;
		m.at[i] = of->at[place(&of->shape, at)];
	}
	return m;
}

static struct model take(const struct model *of)
{
	unsigned axis = (unsigned)up_to(of->shape.ndim);
	uint64_t index = up_to(of->shape.at[axis]), at[32];
	struct ckpt_expr *e;
	struct model m;

	ck_ok(ckpt_expr_take(of->expr, axis, index, &e));
	m = model_of(e);
	ck_assert_uint_eq(m.shape.ndim, of->shape.ndim - 1);
	for (uint64_t i = 0; i < m.count; i++) {
		indices(&m.shape, i, at);
		memmove(at + axis + 1, at + axis, (m.shape.ndim - axis) * sizeof(*at));
		at[axis] = index;
		m.at[i] = of->at[place(&of->shape, at)];
	}
	return m;
}

static struct model transpose(const struct model *of)
{
	unsigned axes[32];
	struct ckpt_expr *e;
	struct model m;

	for (unsigned i = 0; i < of->shape.ndim; i++) {
		unsigned k = (unsigned)up_to(i + 1);

		axes[i] = axes[k];
		axes[k] = i;
	}
	ck_ok(ckpt_expr_transpose(of->expr, axes, &e));
	m = model_of(e);
	for (uint64_t i = 0; i < m.count; i++) {
		uint64_t at[32], from[32];

		indices(&m.shape, i, at);
		for (unsigned k = 0; k < m.shape.ndim; k++)
			from[axes[k]] = at[k];
		m.at[i] = of->at[place(&of->shape, from)];
	}
	return m;
}

// Axes are joined, or one is split, or gets others of one element around it.
static struct model reshape(const struct model *of)
{
	uint64_t shape[32], left = of->count;
	unsigned ndim = 0;
	struct ckpt_expr *e;
	struct model m;

	if (!left || up_to(3) == 0) {
		for (unsigned i = 0; i < of->shape.ndim; i++) {
			if (up_to(2))
				shape[ndim++] = 1;
			if (of->shape.at[i] != 1)
				shape[ndim++] = of->shape.at[i];
		}
	} else {
		while (left > 1 && ndim < 5) {
			uint64_t part = 1 + up_to(left < 12 ? left : 12);

			while (left % part)
				part--;
			shape[ndim++] = part;
			left /= part;
		}
		shape[ndim++] = left;
	}
	ck_ok(ckpt_expr_reshape(of->expr, ndim, shape, &e));
	m = model_of(e);
	memcpy(m.at, of->at, m.count * sizeof(*m.at));
	return m;
}

static struct model pad(const struct model *of)
{
	uint64_t shape[32], at[32];
	struct ckpt_expr *e;
	struct model m;

	for (unsigned i = 0; i < of->shape.ndim; i++)
		shape[i] = of->shape.at[i] + up_to(3);
	ck_ok(ckpt_expr_pad(of->expr, shape, &e));
	m = model_of(e);
	for (uint64_t i = 0; i < of->count; i++) {
		indices(&of->shape, i, at);
		m.at[place(&m.shape, at)] = of->at[i];
	}
	return m;
}

// With a part of itself.
static struct model concat(const struct model *of)
{
	unsigned axis = (unsigned)up_to(of->shape.ndim);
	uint64_t extent = up_to(of->shape.at[axis] + 1), at[32];
	struct ckpt_expr *e, *part;
	struct model m;

	ck_ok(ckpt_expr_slice(of->expr, axis, 0, extent, &part));
	ck_ok(ckpt_expr_concat((struct ckpt_expr *[]){of->expr, part, of->expr}, 3, axis, &e));
	ckpt_expr_unref(part);
	m = model_of(e);
	for (uint64_t i = 0; i < m.count; i++) {
		indices(&m.shape, i, at);
		if (at[axis] >= of->shape.at[axis])
			at[axis] -= of->shape.at[axis];
		else
			goto found;
		if (at[axis] >= extent)
			at[axis] -= extent;
	found:
		m.at[i] = of->at[place(&of->shape, at)];
	}
	return m;
}

static struct model stack(const struct model *of)
{
	unsigned axis = (unsigned)up_to(of->shape.ndim + 1);
	uint64_t at[32];
	struct ckpt_expr *e;
	struct model m;

	ck_ok(ckpt_expr_stack((struct ckpt_expr *[]){of->expr, of->expr}, 2, axis, &e));
	m = model_of(e);
	for (uint64_t i = 0; i < m.count; i++) {
		indices(&m.shape, i, at);
		memmove(at + axis, at + axis + 1, (of->shape.ndim - axis) * sizeof(*at));
		m.at[i] = of->at[place(&of->shape, at)];
	}
	return m;
}

static struct model one_more(const struct model *of)
{
	static struct model (*const ops[])(const struct model *) = {reshape, transpose, pad, slice,
								    stack,   concat,    take};
	size_t op = up_to(sizeof(ops) / sizeof(ops[0]));

	if (!of->shape.ndim || (op == 6 && !of->count))
		return reshape(of);
	return ops[op](of);
}

// --- Tests ------------------------------------------------------------------------------------------------------------------

static void begin(void)
{
	file = (struct ckpt_bytes){0};
	ck_ok(ckpt_catalog_new(&c));
}

static void end(void)
{
	ck_assert_uint_eq(open_files, 0);
	ckpt_catalog_free(c);
	free(file.data);
}

static void add_some(void)
{
	add_array("a", 3, (uint64_t[]){4, 3, 5});
	add_array("b", 2, (uint64_t[]){7, 9});
	add_array("c", 0, NULL);
	add_array("d", 1, (uint64_t[]){30});
	add_array("e", 2, (uint64_t[]){0, 3});
	ck_ok(ckpt_catalog_end(c));
}

// True: the elements of the file from there on are those of m.
static bool check_place(const struct model *m)
{
	struct ckpt_expr_place at;
	struct ckpt_piece p;

	if (!ckpt_expr_is_part(m->expr, &at) || m->shape.dtype != CKPT_DTYPE_F32)
		return false;
	ckpt_catalog_piece(c, at.array, 0, &p);
	ck_assert_uint_le(p.offset + (at.first + m->count) * 4, file.len);
	ck_assert(!memcmp(file.data + p.offset + at.first * 4, m->at, m->count * 4));
	return true;
}

// Slices of slices, some of which lie behind each other.
START_TEST(a_part_that_lies_together_is_found)
{
	unsigned together = 0, apart = 0;

	begin();
	add_some();
	for (unsigned seed = 0; seed < 300; seed++) {
		struct model m, next;

		srand(seed);
		m = leaf(0);
		for (unsigned i = 0; i < 3; i++) {
			next = m.shape.ndim && up_to(4) ? slice(&m) : reshape(&m);
			model_done(&m);
			m = next;
		}
		*(check_place(&m) ? &together : &apart) += m.count > 1;
		model_done(&m);
	}
	ck_assert_uint_gt(together, 10);
	ck_assert_uint_gt(apart, 10);
	end();
}
END_TEST

static void check_parts(const struct model *m)
{
	struct ckpt_expr_reader *r;
	uint32_t *into = calloc(m->count + 1, sizeof(*into));

	(void)check_place(m);
	ck_ok(ckpt_expr_open(m->expr, &r));
	ck_ok(ckpt_expr_run(r, 0, m->count, into));
	ck_assert(!memcmp(into, m->at, m->count * sizeof(*into)));
	for (unsigned round = 0; round < 4 && m->count; round++) {
		uint64_t start[32], first = up_to(m->count), count = up_to(m->count - first + 1), at[32];
		uint64_t extent[32];
		const struct ckpt_expr_shape box = {m->shape.dtype, m->shape.ndim, extent};

		ck_ok(ckpt_expr_run(r, first, count, into));
		ck_assert(!memcmp(into, m->at + first, count * sizeof(*into)));
		count = 1;
		for (unsigned i = 0; i < m->shape.ndim; i++) {
			start[i] = up_to(m->shape.at[i]);
			count *= extent[i] = 1 + up_to(m->shape.at[i] - start[i]);
		}
		ck_ok(ckpt_expr_box(r, start, extent, into));
		for (uint64_t i = 0; i < count; i++) {
			indices(&box, i, at);
			for (unsigned k = 0; k < box.ndim; k++)
				at[k] += start[k];
			ck_assert_uint_eq(into[i], m->at[place(&m->shape, at)]);
		}
		if (round == 2) {
			ckpt_expr_rest(r);
			ck_assert_uint_eq(ckpt_expr_held(r), 0);
			ck_assert_uint_eq(open_files, 0);
		}
	}
	ckpt_expr_close(r);
	free(into);
}

START_TEST(parts_are_those_of_the_whole)
{
	begin();
	add_some();
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct model m = leaf(up_to(5));

		srand(round);
		for (uint64_t ops = up_to(OPS_MAX); ops && m.count < ELEMENTS_MAX; ops--) {
			struct model next = one_more(&m);

			model_done(&m);
			m = next;
		}
		check_parts(&m);
		model_done(&m);
	}
	end();
}
END_TEST

START_TEST(a_cast_is_over_and_below_others)
{
	struct ckpt_expr *narrow, *turned, *wide;
	uint32_t elements[63];
	uint16_t halves[63];
	struct ckpt_expr_reader *r;
	struct model m;

	begin();
	add_some();
	m = leaf(1);
	ck_ok(ckpt_expr_cast(m.expr, CKPT_DTYPE_BF16, &narrow));
	ck_ok(ckpt_expr_transpose(narrow, (unsigned[]){1, 0}, &turned));
	ck_ok(ckpt_expr_cast(turned, CKPT_DTYPE_F32, &wide));
	ck_assert_uint_eq(ckpt_expr_shape(turned)->dtype, CKPT_DTYPE_BF16);
	ck_assert_uint_eq(ckpt_expr_levels(m.expr), 0);
	ck_assert_uint_eq(ckpt_expr_levels(wide), 3);
	ck_ok(ckpt_expr_open(turned, &r));
	ck_ok(ckpt_expr_run(r, 0, 63, halves));
	ckpt_expr_close(r);
	ck_ok(ckpt_expr_open(wide, &r));
	ck_ok(ckpt_expr_box(r, (uint64_t[]){0, 0}, (uint64_t[]){9, 7}, elements));
	ckpt_expr_close(r);
	for (unsigned i = 0; i < 63; i++) {
		ck_assert_uint_eq(elements[i], m.at[i % 7 * 9 + i / 7]);
		ck_assert_uint_eq(halves[i], elements[i] >> 16);
	}
	ckpt_expr_unref(narrow);
	ckpt_expr_unref(turned);
	ckpt_expr_unref(wide);
	model_done(&m);
	end();
}
END_TEST

#define refused(call) ck_assert_int_eq(call, -EINVAL)

START_TEST(parts_that_do_not_fit_are_refused)
{
	struct model a, b;
	struct ckpt_expr *e, *next;

	begin();
	add_some();
	a = leaf(0);
	b = leaf(1);
	refused(ckpt_expr_slice(a.expr, 3, 0, 1, &e));
	refused(ckpt_expr_slice(a.expr, 0, 4, 1, &e));
	refused(ckpt_expr_slice(a.expr, 0, 5, 0, &e));
	refused(ckpt_expr_slice(a.expr, 0, 1, UINT64_MAX, &e));
	refused(ckpt_expr_take(a.expr, 0, 4, &e));
	refused(ckpt_expr_take(a.expr, 3, 0, &e));
	refused(ckpt_expr_transpose(a.expr, (unsigned[]){0, 1, 1}, &e));
	refused(ckpt_expr_transpose(a.expr, (unsigned[]){0, 1, 3}, &e));
	refused(ckpt_expr_reshape(a.expr, 2, (uint64_t[]){6, 11}, &e));
	refused(ckpt_expr_reshape(a.expr, 33, (uint64_t[33]){0}, &e));
	refused(ckpt_expr_pad(a.expr, (uint64_t[]){4, 2, 5}, &e));
	refused(ckpt_expr_concat((struct ckpt_expr *[]){a.expr, b.expr}, 2, 0, &e));
	refused(ckpt_expr_concat((struct ckpt_expr *[]){a.expr}, 1, 3, &e));
	refused(ckpt_expr_stack((struct ckpt_expr *[]){a.expr, b.expr}, 2, 0, &e));
	refused(ckpt_expr_cast(a.expr, CKPT_DTYPE_I32, &e));
	ck_assert_int_eq(ckpt_expr_pad(b.expr, (uint64_t[]){UINT64_C(1) << 40, UINT64_C(1) << 40}, &e), -EOVERFLOW);
	// As wide as it is deep: what a few rules can ask for.
	e = ckpt_expr_ref(a.expr);
	while (!ckpt_expr_concat((struct ckpt_expr *[]){e, e, e, e}, 4, 0, &next)) {
		ckpt_expr_unref(e);
		e = next;
	}
	ckpt_expr_unref(e);
	model_done(&a);
	model_done(&b);
	end();
}
END_TEST

static int count_arrays(void *arg, const struct ckpt_catalog *catalog, size_t array)
{
	ck_assert_ptr_eq(catalog, c);
	((unsigned *)arg)[array]++;
	return 0;
}

// Files of one array are open at a time where there are many of them: descriptors are few.
START_TEST(a_stack_of_many_holds_few)
{
	enum { MANY = 200 };
	struct ckpt_expr *parts[MANY], *e;
	uint32_t all[MANY * 6];
	unsigned counts[MANY] = {0};
	struct ckpt_expr_reader *r;

	begin();
	for (unsigned i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "layers.%u", i);
		add_array(name, 2, (uint64_t[]){2, 3});
	}
	ck_ok(ckpt_catalog_end(c));
	for (unsigned i = 0; i < MANY; i++)
		ck_ok(ckpt_expr_array(c, i, &files, &parts[i]));
	ck_ok(ckpt_expr_stack(parts, MANY, 1, &e));
	for (unsigned i = 0; i < MANY; i++)
		ckpt_expr_unref(parts[i]);
	ck_assert_uint_eq(ckpt_expr_shape(e)->at[1], MANY);
	ck_ok(ckpt_expr_each(e, count_arrays, counts));
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_uint_eq(counts[i], 1);
	ck_ok(ckpt_expr_open(e, &r));
	ck_ok(ckpt_expr_run(r, 0, MANY * 6, all));
	ck_assert_uint_ge(open_files, 1);
	ck_assert_uint_le(open_files, 65);
	for (unsigned i = 0; i < MANY * 6; i++) {
		unsigned row = i / (MANY * 3), layer = i / 3 % MANY;

		ck_assert(!memcmp(&all[i], file.data + (layer * 6 + row * 3 + i % 3) * 4, 4));
	}
	ckpt_expr_close(r);
	ckpt_expr_unref(e);
	end();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("expr");
	TCase *tc = tcase_create("expr");

	tcase_add_test(tc, a_part_that_lies_together_is_found);
	tcase_add_test(tc, parts_are_those_of_the_whole);
	tcase_add_test(tc, a_cast_is_over_and_below_others);
	tcase_add_test(tc, parts_that_do_not_fit_are_refused);
	tcase_add_test(tc, a_stack_of_many_holds_few);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
