// Names and forms of arrays: patterns, paths, numbers of every type, and the document of all of them.
#include "core/view/array_index.h"
#include "core/view/array_name.h"
#include "core/view/array_glob.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/array/number.h"
#include "core/base/util.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static struct ckpt_catalog *c;
static struct ckpt_catalog_reading reading;

static void setup(void)
{
	ck_ok(ckpt_catalog_new(&c));
	reading = (struct ckpt_catalog_reading){.catalog = c, .path = "f", .base = "f"};
}

static void teardown(void)
{
	ckpt_catalog_free(c);
}

static void add(const char *tree, const char *name, const char *why)
{
	const uint64_t shape[] = {2, 3};
	const struct ckpt_catalog_entry e = {.tree = tree,
					     .name = name,
					     .name_len = strlen(name),
					     .format = "test",
					     .why = why,
					     .dtype = CKPT_DTYPE_F32,
					     .ndim = 2,
					     .shape = shape};

	ck_ok(ckpt_catalog_add(&reading, &e));
}

// --- Patterns ---------------------------------------------------------------------------------------------------------------

static const struct {
	const char *glob, *name;
	bool matches;
} globs[] = {
	{"a.b", "a.b", true},
	{"a.b", "a/b", true},
	{"a/b", "a.b", false},
	{"a.*", "a.b", true},
	{"a.*", "a.b.c", false},
	{"a.*", "a.b/c", false},
	{"a.**", "a.b.c/d", true},
	{"**.weight", "model.layers.0.weight", true},
	{"**.weight", "weight", false},
	{"**", "", true},
	{"*", "", true},
	{"", "", true},
	{"", "a", false},
	{"?", ".", true},
	{"??", "a", false},
	{"model.layers.*.w*", "model.layers.10.weight", true},
	{"model.layers.*.w*", "model.layers.10.attn.weight", false},
	{"**a*b.c", "xa.yab.c", true},
	{"*a**z", "bab.c.z", true},
	{"**.b.**", "a.b.c", true},
	{"**.b.**", "a.b", false},
	{"T:a", "a", true},
	{"T:*", "a", true},
	{"U:a", "a", false},
	{"**:a", "a", true},
};

START_TEST(patterns)
{
	ck_assert_msg(ckpt_array_glob(globs[_i].glob, "T", globs[_i].name) == globs[_i].matches, "%s %s",
		      globs[_i].glob, globs[_i].name);
}
END_TEST

// A pattern from outside takes no time that grows as a power of it.
START_TEST(a_pattern_of_many_stars_ends)
{
	char glob[512] = "", name[4096];

	for (int i = 0; i < 100; i++)
		strcat(glob, i % 3 ? "*a" : "**a");
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	name[sizeof(name) - 2] = 'b';
	ck_assert(!ckpt_array_glob(glob, "T", name));
}
END_TEST

// A star that a "." stops is not tried again from each byte behind a "**".
START_TEST(work_is_pattern_times_name_at_most)
{
	static const char *const hostile[] = {"**a*ab", "**a*a*ab", "**a**a*ab", "*a*a*a*a*b"};
	enum { LEN = 64000 };
	char *name = malloc(LEN + 5);

	ck_assert_ptr_nonnull(name);
	memset(name, 'a', LEN);
	strcpy(name + LEN, ".000");
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		uint64_t work = 0;

		ck_assert(!ckpt_array_glob_counted(hostile[i], "T", name, &work));
		ck_assert_uint_gt(work, 0);
		ck_assert_uint_le(work, (LEN + 8) * (strlen(hostile[i]) + 1));
	}
	free(name);
}
END_TEST

// The words of array_glob.h, as they stand there.
static bool by_the_words(const char *glob, const char *name)
{
	if (!*glob)
		return !*name;
	if (*glob == '*') {
		bool two = glob[1] == '*';

		return by_the_words(glob + 1 + two, name) ||
		       (*name && (two || (*name != '.' && *name != '/')) && by_the_words(glob, name + 1));
	}
	return *name && (*glob == '?' || *glob == *name || (*glob == '.' && *name == '/')) &&
	       by_the_words(glob + 1, name + 1);
}

START_TEST(any_pattern_says_what_the_words_say)
{
	static const char of_glob[] = "ab.*?/*", of_name[] = "ab./";
	char glob[9], name[9];
	unsigned matched = 0;

	srand(7);
	for (unsigned round = 0; round < 200000; round++) {
		size_t glob_len = (size_t)rand() % sizeof(glob), name_len = (size_t)rand() % sizeof(name);

		for (size_t i = 0; i < glob_len; i++)
			glob[i] = of_glob[(size_t)rand() % (sizeof(of_glob) - 1)];
		for (size_t i = 0; i < name_len; i++)
			name[i] = of_name[(size_t)rand() % (sizeof(of_name) - 1)];
		glob[glob_len] = name[name_len] = '\0';
		ck_assert_msg(ckpt_array_glob(glob, "T", name) == by_the_words(glob, name), "%s %s", glob, name);
		matched += by_the_words(glob, name);
	}
	ck_assert_uint_gt(matched, 1000);
}
END_TEST

// --- Paths ------------------------------------------------------------------------------------------------------------------

static const struct {
	const char *name, *path;
} paths[] = {
	{"a", "a.npy"},
	{"layers.0.weight", "layers.0.weight.npy"},
	{"params/decoder/w", "params/decoder/w.npy"},
	{"a b,c=d", "a%20b%2Cc%3Dd.npy"},
	{".", "%2E.npy"},
	{"../x", "%2E%2E/x.npy"},
	{"", "%00.npy"},
	{"/a", "%00/a.npy"},
	{"100%", "100%25.npy"},
	{"\xc3\xa9", "%C3%A9.npy"},
};

START_TEST(names_are_paths)
{
	char *path = ckpt_array_path(paths[_i].name);

	ck_assert_str_eq(path, paths[_i].path);
	free(path);
}
END_TEST

START_TEST(a_long_component_is_its_hash)
{
	char name[400];
	char *path;

	memset(name, 'a', sizeof(name));
	name[251] = '\0';
	path = ckpt_array_path(name);
	ck_assert_uint_eq(strlen(path), 255);
	free(path);
	name[251] = 'a';
	name[252] = '\0';
	path = ckpt_array_path(name);
	ck_assert_str_eq(path, "%%03aaf5773717feae6f704bf2637ae0a9af8b1b26c3493ef29553818378773a04.npy");
	free(path);
}
END_TEST

// Each is longer as a path than any other byte.
START_TEST(a_name_of_slashes_alone_has_a_path)
{
	char *name = malloc(65536), *path;

	memset(name, '/', 65535);
	name[65535] = '\0';
	path = ckpt_array_path(name);
	ck_assert_uint_eq(strlen(path), 65536 * 3 + 65535 + 4);
	free(path);
	free(name);
}
END_TEST

START_TEST(a_name_that_is_not_unique_is_found_by_its_tree_alone)
{
	size_t i = 99;

	add("model.pt", "w", NULL);
	add("ema/model.pt", "w", NULL);
	add("ema/model.pt", "only", NULL);
	add(".", "z/w", NULL);
	ck_assert_int_eq(ckpt_array_find(c, "w.npy", &i), -ENOENT);
	ck_ok(ckpt_array_find(c, "model.pt/w.npy", &i));
	ck_assert_uint_eq(i, 0);
	ck_ok(ckpt_array_find(c, "ema/model.pt/w.npy", &i));
	ck_assert_uint_eq(i, 1);
	ck_ok(ckpt_array_find(c, "only.npy", &i));
	ck_assert_uint_eq(i, 2);
	ck_ok(ckpt_array_find(c, "z/w.npy", &i));
	ck_assert_uint_eq(i, 3);
	ck_assert_int_eq(ckpt_array_find(c, "only", &i), -ENOENT);
}
END_TEST

// --- The document -----------------------------------------------------------------------------------------------------------

static void check_index(size_t rows)
{
	struct ckpt_array_index *x;
	json_t *json;
	char *whole;
	size_t bytes;

	ck_ok(ckpt_array_index_new(c, &x));
	bytes = ckpt_array_index_bytes(x);
	whole = malloc(bytes + 1);
	ck_assert_int_eq(ckpt_array_index_read(x, whole, bytes + 1, 0), (ssize_t)bytes);
	json = json_loadb(whole, bytes, 0, NULL);
	ck_assert_uint_eq(json_array_size(json), rows);
	json_decref(json);
	for (size_t at = 0; at <= bytes; at += 7) {
		char part[300];
		ssize_t n = ckpt_array_index_read(x, part, sizeof(part), at);

		ck_assert_int_eq(n, (ssize_t)MIN(sizeof(part), bytes - at));
		ck_assert_mem_eq(part, whole + at, (size_t)n);
	}
	free(whole);
	ckpt_array_index_free(x);
}

START_TEST(the_index_is_one_document_from_any_place)
{
	check_index(0);
	add("t", "a", NULL);
	check_index(1);
	for (int i = 0; i < 50; i++) {
		char name[300];

		snprintf(name, sizeof(name), "\"n\xff%*d", i * 5, i);
		add("t", name, i % 3 ? NULL : "it is of no use");
	}
	check_index(51);
}
END_TEST

// --- Numbers ----------------------------------------------------------------------------------------------------------------

static double number(enum ckpt_dtype dtype, uint64_t code)
{
	double value;

	ckpt_numbers(dtype, &code, 1, &value);
	return value;
}

START_TEST(numbers_of_every_type)
{
	ck_assert_double_eq(number(CKPT_DTYPE_I8, 0xff), -1);
	ck_assert_double_eq(number(CKPT_DTYPE_U8, 0xff), 255);
	ck_assert_double_eq(number(CKPT_DTYPE_I16, 0x8000), -32768);
	ck_assert_double_eq(number(CKPT_DTYPE_U32, UINT32_MAX), 4294967295.0);
	ck_assert_double_eq(number(CKPT_DTYPE_I64, UINT64_MAX), -1);
	ck_assert_double_eq(number(CKPT_DTYPE_F16, 0x3c00), 1);
	ck_assert_double_eq(number(CKPT_DTYPE_F16, 0x0001), ldexp(1, -24));
	ck_assert_double_eq(number(CKPT_DTYPE_F16, 0xfbff), -65504);
	ck_assert(isinf(number(CKPT_DTYPE_F16, 0x7c00)));
	ck_assert(isnan(number(CKPT_DTYPE_F16, 0x7c01)));
	ck_assert_double_eq(number(CKPT_DTYPE_BF16, 0xbf80), -1);
	ck_assert_double_eq(number(CKPT_DTYPE_F32, 0x40490fdb), (double)3.14159274f);
	ck_assert_double_eq(number(CKPT_DTYPE_F8E4M3, 0x7e), 448);
	ck_assert(isnan(number(CKPT_DTYPE_F8E4M3, 0xff)));
	ck_assert_double_eq(number(CKPT_DTYPE_F8E5M2, 0x7b), 57344);
	ck_assert(isinf(number(CKPT_DTYPE_F8E5M2, 0xfc)));
	ck_assert_double_eq(number(CKPT_DTYPE_F8E4M3FNUZ, 0x7f), 240);
	ck_assert(isnan(number(CKPT_DTYPE_F8E4M3FNUZ, 0x80)));
	ck_assert_double_eq(number(CKPT_DTYPE_F8E5M2FNUZ, 0x7f), 57344);
	ck_assert_double_eq(number(CKPT_DTYPE_F8E8M0, 0x7f), 1);
	ck_assert(isnan(number(CKPT_DTYPE_F8E8M0, 0xff)));
	ck_assert(!ckpt_is_number(CKPT_DTYPE_C64) && !ckpt_is_number(CKPT_DTYPE_I4) && ckpt_is_number(CKPT_DTYPE_BOOL));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("array_view");
	TCase *tc = tcase_create("array_view");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, patterns, 0, ARRAY_LEN(globs));
	tcase_add_test(tc, a_pattern_of_many_stars_ends);
	tcase_add_test(tc, work_is_pattern_times_name_at_most);
	tcase_add_test(tc, any_pattern_says_what_the_words_say);
	tcase_add_loop_test(tc, names_are_paths, 0, ARRAY_LEN(paths));
	tcase_add_test(tc, a_long_component_is_its_hash);
	tcase_add_test(tc, a_name_of_slashes_alone_has_a_path);
	tcase_add_test(tc, a_name_that_is_not_unique_is_found_by_its_tree_alone);
	tcase_add_test(tc, the_index_is_one_document_from_any_place);
	tcase_add_test(tc, numbers_of_every_type);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
