// The arrays that are chosen, their names, and the part of each that there is: shapes, and the elements themselves.
#include "core/view/array_choice.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>

static struct ckpt_bytes file;
static struct ckpt_catalog *c;
static struct ckpt_catalog_reading reading;
static struct ckpt_array_choice *k;
static struct ckpt_view_why why;

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

static void setup(void)
{
	ck_ok(ckpt_catalog_new(&c));
	reading = (struct ckpt_catalog_reading){.catalog = c, .files = &files, .path = "file", .base = "file"};
}

static void teardown(void)
{
	ckpt_array_choice_free(k);
	ckpt_catalog_free(c);
	free(file.data);
}

// An array of f32: element i of all of them is i.
static void add(const char *tree, const char *name, unsigned ndim, const uint64_t *shape, const char *why_not)
{
	struct ckpt_catalog_entry e = {.tree = tree,
				       .name = name,
				       .name_len = strlen(name),
				       .format = "test",
				       .why = why_not,
				       .dtype = CKPT_DTYPE_F32,
				       .ndim = ndim,
				       .shape = shape};
	uint64_t start[4] = {0}, strides[4], count = 1;
	struct ckpt_piece p = {.file = "file", .offset = file.len, .start = start, .extent = shape, .strides = strides};

	for (unsigned i = ndim; i--; count *= shape[i])
		strides[i] = count;
	for (uint64_t i = 0; i < count; i++) {
		float value = (float)(file.len / 4);

		ckpt_bytes_add(&file, &value, sizeof(value));
	}
	p.bytes = count * 4;
	ck_ok(ckpt_catalog_add(&reading, &e));
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
}

static void choose(const struct ckpt_choice_how *how)
{
	ckpt_array_choice_free(k);
	k = NULL;
	ck_ok(ckpt_array_choice_new(c, how, &k, &why));
}

static void check_names(const char *const *names)
{
	size_t i = 0;

	for (; names[i]; i++) {
		struct ckpt_array_chosen chosen;

		ck_assert_uint_lt(i, ckpt_array_choice_count(k));
		ckpt_array_choice_get(k, i, &chosen);
		ck_assert_str_eq(chosen.name, names[i]);
	}
	ck_assert_uint_eq(ckpt_array_choice_count(k), i);
}
#define NAMES(...) check_names((const char *const[]){__VA_ARGS__, NULL})
#define GLOBS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SHAPE(...)                                                                                                     \
	(sizeof((uint64_t[]){__VA_ARGS__}) / 8), (const uint64_t[])                                                    \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}

// The expression of each has the shape that was promised; what is a run has the elements that it promises.
static void check_parts(void)
{
	for (size_t i = 0; i < ckpt_array_choice_count(k); i++) {
		struct ckpt_array_chosen chosen;
		struct ckpt_expr_reader *r;
		struct ckpt_expr *e;
		float *got;
		uint64_t n;

		ckpt_array_choice_get(k, i, &chosen);
		ck_ok(ckpt_array_choice_expr(k, i, &files, &e));
		ck_assert_int_eq(ckpt_expr_shape(e)->dtype, chosen.dtype);
		ck_assert_uint_eq(ckpt_expr_shape(e)->ndim, chosen.ndim);
		ck_assert_mem_eq(ckpt_expr_shape(e)->at, chosen.shape, chosen.ndim * sizeof(uint64_t));
		n = ckpt_expr_elements(e);
		if (chosen.is_run && n) {
			struct ckpt_piece p;

			got = malloc(n * sizeof(*got));
			ck_ok(ckpt_expr_open(e, &r));
			ck_ok(ckpt_expr_run(r, 0, n, got));
			ckpt_catalog_piece(c, chosen.array, 0, &p);
			for (uint64_t j = 0; j < n; j++)
				ck_assert_float_eq(got[j], (float)(p.offset / 4 + chosen.first + j));
			ckpt_expr_close(r);
			free(got);
		}
		ckpt_expr_unref(e);
	}
}

static void add_model(void)
{
	add("m", "a.w", SHAPE(5, 4), NULL);
	add("m", "a.b", SHAPE(5), NULL);
	add("n", "a.w", SHAPE(3, 2), NULL);
	add("n", "c/d", SHAPE(1, 6, 2), NULL);
	add("n", "bad", SHAPE(2), "its form");
}

START_TEST(globs_choose_and_names_that_come_twice_have_their_tree)
{
	add_model();
	choose(&(struct ckpt_choice_how){0});
	NAMES("m:a.w", "a.b", "n:a.w", "c/d");
	choose(&(struct ckpt_choice_how){.only = GLOBS("a.*"), .not = GLOBS("n:*.*")});
	NAMES("a.w", "a.b");
	choose(&(struct ckpt_choice_how){.only = GLOBS("c.d", "a.b")});
	NAMES("a.b", "c/d");
	choose(&(struct ckpt_choice_how){.only = GLOBS("x")});
	ck_assert_uint_eq(ckpt_array_choice_count(k), 0);
}
END_TEST

static json_t *json_of(const char *text)
{
	return json_loads(text, 0, NULL);
}

START_TEST(renames_and_a_prefix_make_names)
{
	json_t *names =
		json_of("{\"m:a.w\": \"x\", \"n:c/d\": \"y\", \"a.b\": \"z\", \"a.w\": \"no\", \"gone\": \"g\"}");

	add_model();
	choose(&(struct ckpt_choice_how){.renames = names, .prefix = "p/"});
	NAMES("p/x", "p/z", "p/n:a.w", "p/y");
	json_decref(names);
	names = json_of("{\"a.b\": \"c/d\"}");
	ck_assert_int_eq(ckpt_array_choice_new(c, &(struct ckpt_choice_how){.renames = names},
					       &(struct ckpt_array_choice *){NULL}, &why),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(why.why, "two arrays would be called c/d"));
	json_decref(names);
}
END_TEST

START_TEST(slices_of_layers_are_unrolled_and_others_stay)
{
	add("t", "layers.w", SHAPE(4, 2, 3), NULL);
	add("t", "moe_layers/w", SHAPE(2, 2), NULL);
	add("t", "xlayers.w", SHAPE(2, 2), NULL);
	add("t", "layers.b", SHAPE(4), NULL);
	choose(&(struct ckpt_choice_how){.unroll = true, .unroll_axis = 1});
	NAMES("layers_0.w", "layers_1.w", "moe_layers_0/w", "moe_layers_1/w", "xlayers.w", "layers.b");
	check_parts();
	choose(&(struct ckpt_choice_how){.unroll = true, .unroll_axis = 1, .only = GLOBS("xlayers.w", "layers.b")});
	NAMES("xlayers.w.0", "xlayers.w.1", "layers.b");
	check_parts();
}
END_TEST

START_TEST(parts_have_the_rows_that_torch_gives_them)
{
	struct ckpt_array_chosen chosen;

	add("t", "w", SHAPE(10, 3), NULL);
	add("t", "v", SHAPE(1, 7, 2), NULL);
	add("t", "s", 0, NULL, NULL);
	for (unsigned axis = 0; axis < 3; axis++)
		for (uint64_t shards = 1; shards < 13; shards++)
			for (uint64_t i = 1; i <= shards; i++) {
				choose(&(struct ckpt_choice_how){.shard = i, .shards = shards, .axis = axis});
				check_parts();
			}
	choose(&(struct ckpt_choice_how){.shard = 4, .shards = 4});
	ckpt_array_choice_get(k, 0, &chosen);
	ck_assert_uint_eq(chosen.shape[0], 1); // 3, 3, 3, 1
	ck_assert(chosen.is_run);
	ck_assert_uint_eq(chosen.first, 27);
	choose(&(struct ckpt_choice_how){.shard = 6, .shards = 8});
	ckpt_array_choice_get(k, 0, &chosen);
	ck_assert_uint_eq(chosen.shape[0], 0); // 2, 2, 2, 2, 2, 0, 0, 0
	choose(&(struct ckpt_choice_how){.shard = 2, .shards = 2, .axis = 1});
	ckpt_array_choice_get(k, 0, &chosen);
	ck_assert(!chosen.is_run);
	ckpt_array_choice_get(k, 1, &chosen);
	ck_assert(chosen.is_run); // all axes in front of it have one element
	choose(&(struct ckpt_choice_how){.shard = UINT32_MAX, .shards = UINT32_MAX});
	ckpt_array_choice_get(k, 0, &chosen);
	ck_assert_uint_eq(chosen.shape[0], 0);
	choose(&(struct ckpt_choice_how){.dtype = CKPT_DTYPE_BF16});
	check_parts();
	ckpt_array_choice_get(k, 0, &chosen);
	ck_assert(!chosen.is_run && chosen.dtype == CKPT_DTYPE_BF16);
}
END_TEST

START_TEST(what_would_take_too_much_is_refused)
{
	static char stars[4096];
	const char *globs[1024] = {NULL};
	struct ckpt_array_choice *none = NULL;

	add("t", "w", SHAPE(600, 400), NULL);
	add("t", "v", SHAPE(1, 2), NULL);
	ck_assert_int_eq(ckpt_array_choice_new(c, &(struct ckpt_choice_how){.unroll = true, .shard = 1, .shards = 1},
					       &none, &why),
			 0);
	ckpt_array_choice_free(none);
	for (int i = 0; i < 400; i++) {
		char name[32];

		snprintf(name, sizeof(name), "x%d", i);
		add("u", name, SHAPE(400), NULL);
	}
	ck_assert_int_eq(ckpt_array_choice_new(c, &(struct ckpt_choice_how){.unroll = true}, &none, &why), -EFBIG);
	ck_assert_ptr_nonnull(strstr(why.hint, "only="));
	ck_assert_int_eq(
		ckpt_array_choice_new(c, &(struct ckpt_choice_how){.only = GLOBS("x*"), .prefix = stars}, &none, &why),
		0);
	ckpt_array_choice_free(none);
	memset(stars, 'p', sizeof(stars) - 1);
	ck_assert_int_eq(ckpt_array_choice_new(
				 c, &(struct ckpt_choice_how){.only = GLOBS("x1*"), .prefix = stars, .unroll = true},
				 &none, &why),
			 -EFBIG);
	memset(stars, '*', sizeof(stars) - 1);
	add("u", stars, SHAPE(1), NULL);
	for (size_t i = 0; i + 1 < ARRAY_LEN(globs); i++)
		globs[i] = stars;
	ck_assert_int_eq(ckpt_array_choice_new(c, &(struct ckpt_choice_how){.not = globs}, &none, &why), 0);
	ckpt_array_choice_free(none);
	stars[sizeof(stars) - 2] = 'q';
	ck_assert_int_eq(ckpt_array_choice_new(c, &(struct ckpt_choice_how){.not = globs}, &none, &why), -EFBIG);
	ck_assert_ptr_nonnull(strstr(why.hint, "fewer globs"));
}
END_TEST

START_TEST(lists_are_of_names)
{
	static const char *const bad_globs[] = {"{}", "[]", "[1]", "[\"a\", null]", "[\"\"]", "\"a\""};
	static const char *const bad_names[] = {"[]", "{\"a\": 1}", "{\"a\": \"\"}", "{\"\": \"a\"}", "1"};
	json_t *good = json_of("[\"a\", \"b.**\"]");
	const char **globs;

	ck_ok(ckpt_choice_globs(good, &globs, &why));
	ck_assert_str_eq(globs[1], "b.**");
	ck_assert_ptr_null(globs[2]);
	free(globs);
	json_decref(good);
	for (size_t i = 0; i < ARRAY_LEN(bad_globs); i++) {
		json_t *bad = json_loads(bad_globs[i], JSON_DECODE_ANY, NULL);

		ck_assert_int_eq(ckpt_choice_globs(bad, &globs, &why), -EINVAL);
		ck_assert(*why.why && *why.hint);
		json_decref(bad);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad_names); i++) {
		json_t *bad = json_loads(bad_names[i], JSON_DECODE_ANY, NULL);

		ck_assert_int_eq(ckpt_choice_renames(bad, &why), -EINVAL);
		json_decref(bad);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array_choice");
	TCase *tc = tcase_create("array_choice");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, globs_choose_and_names_that_come_twice_have_their_tree);
	tcase_add_test(tc, renames_and_a_prefix_make_names);
	tcase_add_test(tc, slices_of_layers_are_unrolled_and_others_stay);
	tcase_add_test(tc, parts_have_the_rows_that_torch_gives_them);
	tcase_add_test(tc, what_would_take_too_much_is_refused);
	tcase_add_test(tc, lists_are_of_names);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
