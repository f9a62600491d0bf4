// Templates: names, shapes and dtypes beside those of a catalog, by each rule and in each mode.
#include "core/array/match.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define SHAPE(...)                                                                                                     \
	.ndim = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), .shape = (const uint64_t[])                      \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define SCALAR                                                                                                         \
	.ndim = 0, .shape = (const uint64_t[])                                                                         \
	{                                                                                                              \
		0                                                                                                      \
	}

static struct ckpt_catalog *c;
static struct ckpt_names *names;

static void add(const char *tree, const char *name, enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	struct ckpt_catalog_reading r = {.catalog = c, .path = "file", .base = "file"};
	const struct ckpt_catalog_entry entry = {.tree = tree,
						 .name = name,
						 .name_len = strlen(name),
						 .format = "test",
						 .why = dtype ? NULL : "it is a pickle",
						 .dtype = dtype,
						 .ndim = ndim,
						 .shape = shape};

	ck_ok(ckpt_catalog_add(&r, &entry));
}

static void setup(void)
{
	ck_ok(ckpt_catalog_new(&c));
	add("model", "w", CKPT_DTYPE_F32, 2, (const uint64_t[]){4, 6});
	add("model", "stack", CKPT_DTYPE_F32, 3, (const uint64_t[]){2, 4, 6});
	add("model", "none", CKPT_DTYPE_F32, 3, (const uint64_t[]){0, 4, 6});
	add("model", "one", CKPT_DTYPE_I64, 0, NULL);
	add("model", "half", CKPT_DTYPE_BF16, 1, (const uint64_t[]){8});
	add("model", "object", CKPT_DTYPE_NONE, 0, NULL);
	add("ema", "half", CKPT_DTYPE_BF16, 1, (const uint64_t[]){8});
	add("a:b", "c:d", CKPT_DTYPE_U8, 1, (const uint64_t[]){3});
	ck_ok(ckpt_names_new(c, &names));
}

static void teardown(void)
{
	ckpt_names_free(names);
	ckpt_catalog_free(c);
}

// --- One array --------------------------------------------------------------------------------------------------------------

struct row {
	struct ckpt_match_wanted wanted;
	int rc;
	enum ckpt_match_fit fit;
	const char *why; // a part of it
};

static const struct row rows[] = {
	// As it is.
	{{.name = "w"}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "model:w", SHAPE(4, 6)}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "one", SCALAR}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "a:b:c:d", SHAPE(3)}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "c:d"}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "ema:half"}, 0, CKPT_FIT_SAME, NULL},
	// Names.
	{{.name = "half"}, -EEXIST, CKPT_FIT_SAME, "TREE:NAME"},
	{{.name = "half", .rule = CKPT_MATCH_RELAXED}, -EEXIST, CKPT_FIT_SAME, "TREE:NAME"},
	{{.name = "v"}, -ENOENT, CKPT_FIT_SAME, "Missing array for key 'v' in checkpoint."},
	{{.name = "ema:w"}, -ENOENT, CKPT_FIT_SAME, "'ema:w'"},
	{{.name = "em:half"}, -ENOENT, CKPT_FIT_SAME, "'em:half'"},
	{{.name = "v", .rule = CKPT_MATCH_PADDED}, -ENOENT, CKPT_FIT_SAME, "'v'"},
	{{.name = "v", .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_KEPT, NULL},
	// Strict shapes: both are told, the one that was found first.
	{{.name = "w", SHAPE(6, 4)},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "Array shape mismatch for key 'w': got (4, 6), expected (6, 4)."},
	{{.name = "w", SHAPE(24)}, -ERANGE, CKPT_FIT_SAME, "got (4, 6), expected (24,)."},
	{{.name = "one", SHAPE(1)}, -ERANGE, CKPT_FIT_SAME, "got (), expected (1,)."},
	{{.name = "stack", SHAPE(4, 6)}, -ERANGE, CKPT_FIT_SAME, "got (2, 4, 6)"},
	// Relaxed: [0] comes before a reshape, and that before the program's own value.
	{{.name = "w", SHAPE(4, 6), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "stack", SHAPE(4, 6), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_FIRST, NULL},
	{{.name = "none", SHAPE(4, 6), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_KEPT, NULL},
	{{.name = "half", .rule = CKPT_MATCH_RELAXED}, -EEXIST, CKPT_FIT_SAME, NULL},
	{{.name = "w", SHAPE(3, 8), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_RESHAPED, NULL},
	{{.name = "w", SHAPE(24), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_RESHAPED, NULL},
	{{.name = "w", SHAPE(1, 4, 6), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_RESHAPED, NULL},
	{{.name = "one", SHAPE(1, 1), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_RESHAPED, NULL},
	{{.name = "ema:half", SCALAR, .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_FIRST, NULL},
	{{.name = "none", SHAPE(6, 0), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_RESHAPED, NULL},
	{{.name = "w", SHAPE(4, 7), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_KEPT, NULL},
	{{.name = "w", SHAPE(UINT64_MAX, 2), .rule = CKPT_MATCH_RELAXED}, 0, CKPT_FIT_KEPT, NULL},
	// Padded.
	{{.name = "w", SHAPE(4, 6), .rule = CKPT_MATCH_PADDED}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "w", SHAPE(5, 6), .rule = CKPT_MATCH_PADDED}, 0, CKPT_FIT_PADDED, NULL},
	{{.name = "w", SHAPE(5, 9), .rule = CKPT_MATCH_PADDED}, 0, CKPT_FIT_PADDED, NULL},
	{{.name = "w", SHAPE(5, 5), .rule = CKPT_MATCH_PADDED},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "Expected shape (5) smaller than actual (6)"},
	{{.name = "w", SHAPE(3, 6), .rule = CKPT_MATCH_PADDED},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "Expected shape (3) smaller than actual (4)"},
	{{.name = "w", SHAPE(24), .rule = CKPT_MATCH_PADDED},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "Global shape mismatch for loaded ((4, 6)) and expected ((24,)) tensor for key w"},
	// Boxes of the wanted array.
	// A list of another rank would be read beyond its end, or be another box.
	{{.name = "w", .start = (const uint64_t[]){1}, .extent = (const uint64_t[]){3}},
	 -EINVAL,
	 CKPT_FIT_SAME,
	 "the box has rank 0, and w has rank 2"},
	{{.name = "w", .ndim = 1, .start = (const uint64_t[]){1}, .extent = (const uint64_t[]){3}},
	 -EINVAL,
	 CKPT_FIT_SAME,
	 "the box has rank 1, and w has rank 2"},
	{{.name = "w", .ndim = 3, .start = (const uint64_t[]){1, 0, 0}, .extent = (const uint64_t[]){1, 1, 1}},
	 -EINVAL,
	 CKPT_FIT_SAME,
	 "the box has rank 3, and w has rank 2"},
	{{.name = "w", .ndim = 2, .start = (const uint64_t[]){1, 2}, .extent = (const uint64_t[]){3, 4}},
	 0,
	 CKPT_FIT_SAME,
	 NULL},
	{{.name = "w", .ndim = 2, .start = (const uint64_t[]){1, 2}, .extent = (const uint64_t[]){3, 5}},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "dimension 1 of w"},
	{{.name = "w", .ndim = 2, .start = (const uint64_t[]){UINT64_MAX, 2}, .extent = (const uint64_t[]){2, 1}},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "dimension 0"},
	{{.name = "w",
	  SHAPE(8, 6),
	  .rule = CKPT_MATCH_PADDED,
	  .start = (const uint64_t[]){3, 0},
	  .extent = (const uint64_t[]){5, 6}},
	 0,
	 CKPT_FIT_PADDED,
	 NULL},
	{{.name = "w",
	  SHAPE(8, 6),
	  .rule = CKPT_MATCH_PADDED,
	  .start = (const uint64_t[]){4, 0},
	  .extent = (const uint64_t[]){4, 6}},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "Got empty slice for w"},
	{{.name = "stack",
	  SHAPE(4, 6),
	  .rule = CKPT_MATCH_RELAXED,
	  .start = (const uint64_t[]){3, 0},
	  .extent = (const uint64_t[]){2, 6}},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "dimension 0 of stack, which has 4"},
	// Flat ranges of boxes.
	{{.name = "w", .has_flat = true, .flat_start = 20, .flat_count = 4}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "w", .has_flat = true, .flat_start = 20, .flat_count = 5},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "the flat range [20, +5) of w is not in its box"},
	{{.name = "w", .has_flat = true, .flat_start = 1, .flat_count = UINT64_MAX}, -ERANGE, CKPT_FIT_SAME, "[1, +"},
	{{.name = "w", .has_flat = true}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "w", .has_flat = true, .flat_start = 24}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "w", .has_flat = true, .flat_start = 25}, -ERANGE, CKPT_FIT_SAME, "[25, +0) of w"},
	{{.name = "one", .has_flat = true, .flat_count = 1}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "one", .has_flat = true, .flat_count = 2}, -ERANGE, CKPT_FIT_SAME, "[0, +2) of one"},
	{{.name = "w",
	  .ndim = 2,
	  .start = (const uint64_t[]){1, 2},
	  .extent = (const uint64_t[]){3, 4},
	  .has_flat = true,
	  .flat_start = 6,
	  .flat_count = 7},
	 -ERANGE,
	 CKPT_FIT_SAME,
	 "[6, +7) of w"},
	{{.name = "w", SHAPE(8, 6), .rule = CKPT_MATCH_PADDED, .has_flat = true, .flat_start = 40, .flat_count = 8},
	 0,
	 CKPT_FIT_PADDED,
	 NULL},
	// Types.
	{{.name = "w", .dtype = "bfloat16"}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "w", .dtype = "int32"}, -ENOTSUP, CKPT_FIT_SAME, "w is float32 and cannot be read as int32"},
	{{.name = "one", .dtype = "int64"}, 0, CKPT_FIT_SAME, NULL},
	{{.name = "one", .dtype = "float32"}, -ENOTSUP, CKPT_FIT_SAME, "only floating types"},
	{{.name = "w", .dtype = "nonsense"}, -ENOTSUP, CKPT_FIT_SAME, "nonsense"},
	{{.name = "object"}, -ENOTSUP, CKPT_FIT_SAME, "object cannot be read: it is a pickle"},
};

START_TEST(an_array_fits_by_its_rule)
{
	const struct row *row = &rows[_i];
	struct ckpt_match_one one;
	char *why;

	ck_ok(ckpt_match_one(c, names, &row->wanted, &one, &why));
	ck_assert_msg(one.rc == row->rc, "%s: %d (%s)", row->wanted.name, one.rc, why ? why : "-");
	ck_assert_int_eq(!why, !row->rc);
	if (!row->rc)
		ck_assert_int_eq(one.fit, row->fit);
	if (row->why)
		ck_assert_msg(strstr(why, row->why), "%s", why);
	free(why);
}
END_TEST

// --- Modes ------------------------------------------------------------------------------------------------------------------

static const struct {
	int refused;
	enum ckpt_match_fit absent;
	size_t missing, unexpected;
	bool says;
} by_mode[CKPT_NAMES_MODES] = {
	[CKPT_NAMES_ASSUME_OK_UNEXPECTED] = {-ENOENT, CKPT_FIT_SAME, 0, 0, true},
	[CKPT_NAMES_LOG_UNEXPECTED] = {0, CKPT_FIT_ABSENT, 0, 2, true},
	[CKPT_NAMES_LOG_ALL] = {0, CKPT_FIT_ABSENT, 7, 2, true},
	[CKPT_NAMES_RAISE_UNEXPECTED] = {-ENOENT, CKPT_FIT_ABSENT, 0, 2, true},
	[CKPT_NAMES_RAISE_ALL] = {-ENOENT, CKPT_FIT_ABSENT, 7, 2, true},
	[CKPT_NAMES_RETURN_UNEXPECTED] = {0, CKPT_FIT_ABSENT, 0, 2, false},
	[CKPT_NAMES_RETURN_ALL] = {0, CKPT_FIT_ABSENT, 7, 2, false},
	[CKPT_NAMES_IGNORE_ALL] = {0, CKPT_FIT_ABSENT, 0, 0, false},
};

START_TEST(names_are_judged_by_the_mode)
{
	// One by its name, two that are not there.
	const struct ckpt_match_wanted wanted[] = {{.name = "w", SHAPE(4, 6)}, {.name = "x"}, {.name = "y", SHAPE(1)}};
	enum ckpt_match_mode mode = (enum ckpt_match_mode)_i;
	struct ckpt_match m;

	ck_ok(ckpt_match(c, names, wanted, 3, mode, &m));
	ck_assert_int_eq(m.refused, by_mode[mode].refused);
	ck_assert_int_eq(m.ones[0].rc, 0);
	ck_assert_int_eq(m.ones[0].fit, CKPT_FIT_SAME);
	ck_assert_int_eq(m.ones[1].fit, by_mode[mode].absent);
	ck_assert_int_eq(m.ones[2].fit, by_mode[mode].absent);
	ck_assert_int_eq(m.ones[2].rc, mode ? 0 : -ENOENT);
	ck_assert_uint_eq(m.missing_count, by_mode[mode].missing);
	ck_assert_uint_eq(m.unexpected_count, by_mode[mode].unexpected);
	ck_assert_int_eq(m.message != NULL, by_mode[mode].says);
	if (m.unexpected_count) {
		ck_assert_str_eq(m.unexpected[0], "x");
		ck_assert_str_eq(m.unexpected[1], "y");
	}
	if (m.missing_count) {
		ck_assert_str_eq(m.missing[0], "stack");
		ck_assert_str_eq(m.missing[3], "model:half");
		ck_assert_str_eq(m.missing[5], "ema:half");
	}
	if (mode && m.message)
		ck_assert_ptr_nonnull(strstr(m.message, "Unexpected keys: {'x', 'y'}. "));
	if (mode && m.message)
		ck_assert_int_eq(strstr(m.message, "Missing keys: {'stack', ") != NULL, m.missing_count != 0);
	ckpt_match_done(&m);
}
END_TEST

// All that is there is asked for: then no mode has anything to say.
START_TEST(a_template_of_all_names_is_of_no_account)
{
	const struct ckpt_match_wanted wanted[] = {{.name = "w"},          {.name = "stack"},   {.name = "none"},
						   {.name = "one"},        {.name = "c:d"},     {.name = "model:half"},
						   {.name = "model:none"}, {.name = "ema:half"}};
	struct ckpt_match m;

	ck_ok(ckpt_match(c, names, wanted, ARRAY_LEN(wanted), CKPT_NAMES_RAISE_UNEXPECTED, &m));
	ck_assert_int_eq(m.refused, 0);
	ck_assert_ptr_null(m.message);
	ckpt_match_done(&m);
	ck_ok(ckpt_match(c, names, wanted, ARRAY_LEN(wanted), CKPT_NAMES_RAISE_ALL, &m));
	ck_assert_uint_eq(m.missing_count, 1);
	ck_assert_str_eq(m.missing[0], "object");
	ck_assert_int_eq(m.refused, -ENOENT);
	ckpt_match_done(&m);
}
END_TEST

START_TEST(shapes_are_all_told_after_the_names)
{
	static const uint64_t turned[] = {6, 4};
	struct ckpt_match_wanted wanted[26];
	struct ckpt_match m;
	const char *line;
	size_t lines = 1;

	for (unsigned i = 0; i < ARRAY_LEN(wanted) - 1; i++)
		wanted[i] = (struct ckpt_match_wanted){.name = "w", .ndim = 2, .shape = turned};
	wanted[ARRAY_LEN(wanted) - 1] = (struct ckpt_match_wanted){.name = "x"};
	ck_ok(ckpt_match(c, names, wanted, ARRAY_LEN(wanted), CKPT_NAMES_RAISE_UNEXPECTED, &m));
	ck_assert_int_eq(m.refused, -ENOENT);
	ck_assert_int_eq(strncmp(m.message, "Unexpected keys", 15), 0);
	for (line = m.message; (line = strchr(line, '\n')); line++)
		lines++;
	ck_assert_uint_eq(lines, 2 + CKPT_MATCH_LINES_MAX + 1);
	ck_assert_ptr_nonnull(strstr(m.message, "\nand 5 more"));
	ckpt_match_done(&m);
	ck_ok(ckpt_match(c, names, wanted, ARRAY_LEN(wanted), CKPT_NAMES_IGNORE_ALL, &m));
	ck_assert_int_eq(m.refused, -ERANGE);
	ckpt_match_done(&m);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("match");
	TCase *all = tcase_create("match");

	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_loop_test(all, an_array_fits_by_its_rule, 0, ARRAY_LEN(rows));
	tcase_add_loop_test(all, names_are_judged_by_the_mode, 0, CKPT_NAMES_MODES);
	tcase_add_test(all, a_template_of_all_names_is_of_no_account);
	tcase_add_test(all, shapes_are_all_told_after_the_names);
	suite_add_tcase(s, all);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
