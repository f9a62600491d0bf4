// The names below .arrays: what a path leads to, what a folder lists, and that it is what `ckptfs cat` finds.
#include "core/view/array_tree.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/view/array_name.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct ckpt_catalog *c;
static struct ckpt_array_tree *t;
static struct ckpt_catalog_reading reading;

static void setup(void)
{
	ck_ok(ckpt_catalog_new(&c));
	reading = (struct ckpt_catalog_reading){.catalog = c, .path = "f", .base = "f"};
}

static void teardown(void)
{
	ckpt_array_tree_free(t);
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

// The array that a path leads to; -1: nothing, -2: a folder, -3: the index.
static int at(const char *path)
{
	uint32_t found;

	if (ckpt_array_tree_find(t, path, &found))
		return -1;
	switch (ckpt_array_tree_type(t, found)) {
	case CKPT_ARRAY_TREE_FOLDER:
		return -2;
	case CKPT_ARRAY_TREE_ALL:
		return -3;
	default:
		return (int)ckpt_array_tree_array(t, found);
	}
}

// Each name in a folder leads to itself. How many there are.
static size_t walk(uint32_t folder, const char *path, size_t *arrays)
{
	size_t count = 0;

	for (uint32_t i = ckpt_array_tree_first(t, folder); i != CKPT_ARRAY_TREE_NONE; i = ckpt_array_tree_next(t, i)) {
		char below[PATH_MAX];
		uint32_t found;
		size_t array;

		snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "", ckpt_array_tree_name(t, i));
		ck_ok(ckpt_array_tree_find(t, below, &found));
		ck_assert_uint_eq(found, i);
		count++;
		if (ckpt_array_tree_type(t, i) == CKPT_ARRAY_TREE_FOLDER) {
			ck_assert_uint_gt(walk(i, below, arrays), 0);
		} else if (ckpt_array_tree_type(t, i) == CKPT_ARRAY_TREE_ARRAY) {
			ck_ok(ckpt_array_find(c, below, &array));
			ck_assert_uint_eq(array, ckpt_array_tree_array(t, i));
			++*arrays;
		}
	}
	return count;
}

START_TEST(arrays_are_at_their_whole_paths_and_at_their_names)
{
	size_t arrays = 0;

	add("a.safetensors", "w", NULL);         // 0
	add("a.safetensors", "only/here", NULL); // 1
	add("d/b.safetensors", "w", NULL);       // 2
	add(".", "top", NULL);                   // 3
	add("d", "b.safetensors/w", NULL);       // 4: the path of 2, which came first
	add("d", "unread", "its form");          // 5
	ck_ok(ckpt_array_tree_new(c, &t));
	ck_assert_int_eq(at(""), -2);
	ck_assert_int_eq(at("index.json"), -3);
	ck_assert_int_eq(at("a.safetensors/w.npy"), 0);
	ck_assert_int_eq(at("d/b.safetensors/w.npy"), 2);
	ck_assert_int_eq(at("w.npy"), -1);
	ck_assert_int_eq(at("only"), -2);
	ck_assert_int_eq(at("only/here.npy"), 1);
	ck_assert_int_eq(at("a.safetensors/only/here.npy"), 1);
	ck_assert_int_eq(at("top.npy"), 3);
	ck_assert_int_eq(at("b.safetensors/w.npy"), 4);
	ck_assert_int_eq(at("d/unread.npy"), -1);
	ck_assert_int_eq(at("unread.npy"), -1);
	ck_assert_int_eq(at("top"), -1);
	ck_assert_int_eq(at("top.npy/x"), -1);
	ck_assert_int_eq(at("d/"), -2);
	ck_assert_int_eq(at("/"), -1);
	ck_assert_int_eq(at("//top.npy"), -1);
	walk(CKPT_ARRAY_TREE_TOP, "", &arrays);
	ck_assert_uint_eq(arrays, 6);
}
END_TEST

START_TEST(a_folder_never_has_the_name_of_a_file)
{
	size_t arrays = 0;

	add(".", "a", NULL);
	add(".", "a/b", NULL);
	add(".", "a.npy/c", NULL);
	add(".", "index.json/d", NULL);
	add("x.npy", "e", NULL);
	ck_ok(ckpt_array_tree_new(c, &t));
	ck_assert_int_eq(at("a.npy"), 0);
	ck_assert_int_eq(at("a/b.npy"), 1);
	ck_assert_int_eq(at("a%2Enpy/c.npy"), 2);
	ck_assert_int_eq(at("index%2Ejson/d.npy"), 3);
	ck_assert_int_eq(at("x%2Enpy/e.npy"), 4);
	ck_assert_int_eq(at("e.npy"), 4);
	walk(CKPT_ARRAY_TREE_TOP, "", &arrays);
	ck_assert_uint_eq(arrays, 6);
}
END_TEST

// A name of slashes alone, or of more bytes or components than a path may have, is in no folder and breaks nothing.
START_TEST(names_that_no_path_has_are_left_out)
{
	char *slashes = malloc(65536), *deep = malloc(4001);

	memset(slashes, '/', 65535);
	slashes[65535] = '\0';
	for (size_t i = 0; i < 4000; i++)
		deep[i] = i % 2 ? '/' : 'a';
	deep[3999] = 'a';
	deep[4000] = '\0';
	add(".", slashes, NULL);
	add(".", deep, NULL);
	add(".", "", NULL);
	ck_ok(ckpt_array_tree_new(c, &t));
	ck_assert_int_eq(at("%00.npy"), 2);
	ck_assert_int_eq(at("a"), -1);
	free(slashes);
	free(deep);
}
END_TEST

START_TEST(no_array_at_all)
{
	size_t arrays = 0;

	ck_ok(ckpt_array_tree_new(c, &t));
	ck_assert_uint_eq(walk(CKPT_ARRAY_TREE_TOP, "", &arrays), 1);
	ck_assert_int_eq(at("index.json"), -3);
	ck_assert_int_eq(at("x.npy"), -1);
}
END_TEST

// `count` components, of which the first is a number.
static void fill_path(char *name, unsigned first, unsigned count)
{
	size_t len = (size_t)sprintf(name, "%06u", first);

	for (unsigned i = 1; i < count; i++)
		len += (size_t)sprintf(name + len, "/a");
}

START_TEST(a_path_has_as_many_components_as_one_of_a_file)
{
	char name[512], path[512];

	fill_path(name, 1, CKPT_DEPTH_MAX);
	add(".", name, NULL);
	fill_path(name, 2, CKPT_DEPTH_MAX + 1);
	add(".", name, NULL);
	fill_path(name, 3, CKPT_DEPTH_MAX); // with its folder one too many
	add("f", name, NULL);
	fill_path(name, 4, CKPT_DEPTH_MAX - 1);
	add("f", name, NULL);
	ck_ok(ckpt_array_tree_new(c, &t));
	fill_path(path, 1, CKPT_DEPTH_MAX);
	ck_assert_int_eq(at(strcat(path, ".npy")), 0);
	ck_assert_int_eq(at("000002"), -1);
	ck_assert_int_eq(at("000003"), -1);
	ck_assert_int_eq(at("f/000003"), -1);
	fill_path(path, 4, CKPT_DEPTH_MAX - 1);
	ck_assert_int_eq(at(strcat(path, ".npy")), 3);
}
END_TEST

#define DEEP_ONES 150000

START_TEST(names_have_memory_up_to_a_limit)
{
	char name[512];

	for (unsigned i = 0; i < DEEP_ONES; i++) {
		fill_path(name, i, CKPT_DEPTH_MAX);
		add(".", name, NULL);
	}
	ck_assert_uint_eq(ckpt_catalog_count(c), DEEP_ONES);
	ck_assert_int_eq(ckpt_array_tree_new(c, &t), -EFBIG);
	ck_assert_ptr_null(t);
}
END_TEST

#define MANY 300000

START_TEST(many_names_cost_a_few_bytes_and_steps_each)
{
	struct timespec begin, end;
	char name[64], path[96];

	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "model.layers.%d.weight", i);
		add("m.safetensors", name, NULL);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	ck_ok(ckpt_array_tree_new(c, &t));
	for (int i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "%smodel.layers.%d.weight.npy", i % 2 ? "m.safetensors/" : "", i);
		ck_assert_int_eq(at(path), i);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20); // of a sanitizer on a busy machine
	ck_assert_uint_lt(ckpt_array_tree_bytes(t), UINT64_C(180) * MANY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array_tree");
	TCase *tc = tcase_create("array_tree");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, arrays_are_at_their_whole_paths_and_at_their_names);
	tcase_add_test(tc, a_folder_never_has_the_name_of_a_file);
	tcase_add_test(tc, names_that_no_path_has_are_left_out);
	tcase_add_test(tc, a_path_has_as_many_components_as_one_of_a_file);
	tcase_add_test(tc, names_have_memory_up_to_a_limit);
	tcase_add_test(tc, no_array_at_all);
	tcase_add_test(tc, many_names_cost_a_few_bytes_and_steps_each);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
