// Rules that change arrays: names, shapes, order, and elements where the order of parts shows.
#include "core/view/array_rules.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>

static struct ckpt_bytes file;
static struct ckpt_catalog *c;
static struct ckpt_array_list list;
static struct ckpt_array_rules_telling telling;
static char notes[1024];

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

// Twelve layers of two elements: each is the number of its layer. And w, [2, 3], from 0 on.
static void add(const char *name, unsigned ndim, const uint64_t *shape, float first, float by)
{
	struct ckpt_catalog_reading reading = {.catalog = c, .files = &files, .path = "file", .base = "file"};
	const struct ckpt_catalog_entry entry = {.name = name,
						 .name_len = strlen(name),
						 .format = "test",
						 .dtype = CKPT_DTYPE_F32,
						 .ndim = ndim,
						 .shape = shape};
	static const uint64_t origin[2];
	const uint64_t strides[2] = {ndim == 2 ? shape[1] : 1, 1};
	uint64_t elements = ndim == 2 ? shape[0] * shape[1] : shape[0];
	struct ckpt_piece p = {.file = "file",
			       .offset = file.len,
			       .bytes = elements * 4,
			       .start = origin,
			       .extent = shape,
			       .strides = strides};

	for (uint64_t i = 0; i < elements; i++, first += by)
		ckpt_bytes_add(&file, &first, sizeof(first));
	ck_ok(ckpt_catalog_add(&reading, &entry));
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
}

static void setup(void)
{
	ck_ok(ckpt_catalog_new(&c));
	for (unsigned i = 0; i < 12; i++) {
		char name[32];

		snprintf(name, sizeof(name), "layers.%u.w", i);
		add(name, 1, (const uint64_t[]){2}, (float)i, 0);
	}
	add("w", 2, (const uint64_t[]){2, 3}, 0, 1);
	ck_ok(ckpt_catalog_end(c));
	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;
		struct ckpt_expr *e;

		ckpt_catalog_get(c, i, &a);
		ck_ok(ckpt_expr_array(c, i, &files, &e));
		ck_ok(ckpt_array_list_add(&list, a.name, a.tree, a.name, e));
		ckpt_expr_unref(e);
	}
}

static void teardown(void)
{
	ckpt_array_list_done(&list);
	ckpt_catalog_free(c);
	free(file.data);
}

static void note(void *arg, const char *text)
{
	(void)arg;
	strcat(strcat(notes, text), "\n");
}

static int try_rules(const char *text)
{
	struct ckpt_array_rules *r = NULL;
	int rc = ckpt_array_rules_parse(text, strlen(text), telling.why, &r);

	telling.note = note;
	if (!rc)
		rc = ckpt_array_rules_apply(r, &list, &telling);
	ckpt_array_rules_free(r);
	return rc;
}

static void apply(const char *text)
{
	int rc = try_rules(text);

	ck_assert_msg(!rc, "%s", telling.why);
}

static struct ckpt_expr *find(const char *name)
{
	for (size_t i = 0; i < list.count; i++)
		if (!strcmp(list.at[i].name, name))
			return list.at[i].expr;
	ck_abort_msg("no %s", name);
	return NULL;
}

static void check(const char *name, size_t count, const float *want)
{
	CLEANUP_FREE float *found = calloc(count, sizeof(*found));
	struct ckpt_expr *e = find(name);
	struct ckpt_expr_reader *r;

	ck_assert_uint_eq(ckpt_expr_elements(e), count);
	ck_ok(ckpt_expr_open(e, &r));
	ck_ok(ckpt_expr_run(r, 0, count, found));
	ckpt_expr_close(r);
	for (size_t i = 0; i < count; i++)
		ck_assert_msg(found[i] == want[i], "%s: element %zu", name, i);
}

START_TEST(layers_are_in_the_order_of_their_numbers)
{
	float want[24];

	for (unsigned i = 0; i < 24; i++)
		want[i] = (float)(i / 2);
	apply("[{\"rename\": [\"nosuch\", \"\"]}, {\"stack\": \"layers.*.w\", \"axis\": 0, \"to\": \"s\"}]");
	ck_assert_uint_eq(list.count, 2);
	check("s", 24, want);
	apply("[{\"unstack\": \"s\", \"axis\": 0, \"to\": \"<{}>\"}]");
	ck_assert_uint_eq(list.count, 13);
	check("<11>", 2, (const float[]){11, 11});
}
END_TEST

START_TEST(numbers_with_zeros_before_them_are_numbers)
{
	apply("[{\"rename\": [\"layers.(1[01]).w\", \"layers.\\\\1.w\"]}, {\"rename\": [\"layers.([0-9]).w\", "
	      "\"layers.00\\\\1.w\"]},"
	      "{\"stack\": \"layers.*.w\", \"axis\": 1, \"to\": \"s\"}]");
	check("s", 24, (const float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}
END_TEST

START_TEST(parts_are_cut_and_joined_in_the_order_that_is_asked_for)
{
	apply("[{\"split\": \"w\", \"axis\": -1, \"into\": [\"a\", \"b\"], \"sizes\": [1, 2]}]");
	check("a", 2, (const float[]){0, 3});
	check("b", 4, (const float[]){1, 2, 4, 5});
	apply("[{\"concat\": [\"b\", \"a\"], \"axis\": 1, \"to\": \"a\"}]");
	check("a", 6, (const float[]){1, 2, 0, 4, 5, 3});
	apply("[{\"transpose\": \"a\", \"axes\": [1, 0]}, {\"pad\": \"a\", \"shape\": [3, 3]}]");
	check("a", 9, (const float[]){1, 4, 0, 2, 5, 0, 0, 3, 0});
	apply("[{\"concat\": [\"layers.0.w\", \"layers.3.w\", \"layers.0.w\"], \"axis\": 0, \"to\": \"twice\"}]");
	check("twice", 6, (const float[]){0, 0, 3, 3, 0, 0});
	ck_assert_uint_eq(list.count, 12);
}
END_TEST

START_TEST(names_are_replaced_at_each_match)
{
	apply("[{\"drop\": \"layers.*.w\"}, {\"rename\": [\"x*\", \"-\"]}]");
	ck_assert_str_eq(list.at[0].name, "-w-");
	apply("[{\"rename\": [\"(-)(w)|(nothing)\", \"\\\\2\\\\1\\\\3\\\\0\\\\\\\\\"]}]");
	ck_assert_str_eq(list.at[0].name, "w--w\\-");
	apply("[{\"rename\": [\"^w|^-\", \"\"]}]");
	ck_assert_str_eq(list.at[0].name, "--w\\-");
	ck_assert_str_eq(notes, "");
	apply("[{\"rename\": [\"q\", \"\"]}, {\"drop\": \"q\"}]");
	ck_assert_str_eq(notes, "rule 1 (rename): no array matches \"q\"\nrule 2 (drop): no array matches \"q\"\n");
}
END_TEST

// Two trees have an array of this name, so that the items are called TREE:NAME.
START_TEST(an_item_with_its_tree_in_its_name_is_found_after_a_rename)
{
	struct ckpt_expr *w = ckpt_expr_ref(find("w"));

	ck_ok(ckpt_array_list_add(&list, "file:x.old", "file", "x.old", w));
	ck_ok(ckpt_array_list_add(&list, "other:x.old", "other", "x.old", w));
	ckpt_expr_unref(w);
	apply("[{\"rename\": [\"old$\", \"new\"]}, {\"transpose\": \"file:x.*\", \"axes\": [1, 0]}, {\"drop\": "
	      "\"layers.*.w\"}]");
	check("file:x.new", 6, (const float[]){0, 3, 1, 4, 2, 5});
	check("other:x.new", 6, (const float[]){0, 1, 2, 3, 4, 5});
	apply("[{\"rename\": [\"^other:\", \"\"]}, {\"drop\": \"x.new\"}]");
	ck_assert_uint_eq(list.count, 1);
	ck_assert_str_eq(notes, "");
}
END_TEST

START_TEST(a_name_is_that_of_one_array)
{
	ck_error(try_rules("[{\"rename\": [\"[0-9]+\", \"\"]}, {\"drop\": \"**\"}]"), EINVAL);
	ck_assert_str_eq(telling.why, "rule 1 (rename): two arrays have the name \"layers..w\" then; give one of them "
				      "another name, or drop it before");
}
END_TEST

START_TEST(what_is_told_is_safe_for_a_terminal)
{
	ck_error(try_rules("[{\"split\": \"\\u001b[31m\\u009b\", \"axis\": 0, \"into\": [\"x\"]}]"), EINVAL);
	ck_assert_str_eq(telling.why, "rule 1 (split): no array has the name \"?[31m?\x9b\"");
	ck_error(try_rules("[{\"drop\": \"x\", \"\\u001b\": 1}]"), EINVAL);
	ck_assert_ptr_null(strchr(telling.why, '\x1b'));
}
END_TEST

START_TEST(long_rules_are_refused)
{
	size_t len = CKPT_RULES_BYTES_MAX + 1;
	CLEANUP_FREE char *text = malloc(len);
	struct ckpt_array_rules *r = NULL;

	ck_assert_ptr_nonnull(text);
	memset(text, ' ', len);
	memcpy(text, "[]", 2);
	ck_error(ckpt_array_rules_parse(text, len, telling.why, &r), EINVAL);
	ck_ok(ckpt_array_rules_parse(text, len - 1, telling.why, &r));
	ck_assert_uint_eq(ckpt_array_rules_count(r), 0);
	ckpt_array_rules_free(r);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rules");
	TCase *tc = tcase_create("rules");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, layers_are_in_the_order_of_their_numbers);
	tcase_add_test(tc, numbers_with_zeros_before_them_are_numbers);
	tcase_add_test(tc, parts_are_cut_and_joined_in_the_order_that_is_asked_for);
	tcase_add_test(tc, names_are_replaced_at_each_match);
	tcase_add_test(tc, an_item_with_its_tree_in_its_name_is_found_after_a_rename);
	tcase_add_test(tc, a_name_is_that_of_one_array);
	tcase_add_test(tc, what_is_told_is_safe_for_a_terminal);
	tcase_add_test(tc, long_rules_are_refused);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
