// Manifests that are put together path by path: against a model that knows paths and texts alone.
#include "tests/support/merging.h"

static const char *const paths[] = {"a", "b", "d/x", "d/y", "d/e/z", "f/g/h", "f/i"};
#define PATHS ARRAY_LEN(paths)

// The text of each path, a letter; 0: there is none.
struct tree {
	char text[PATHS];
};

// --- Manifests ----------------------------------------------------------------------------------------------------------

static struct ckpt_manifest *make(const struct tree *t, const char *session)
{
	struct building b;

	begin(&b, session);
	for (size_t i = 0; i < PATHS; i++)
		if (t->text[i])
			add_file(&b, paths[i], t->text[i], number_of(paths[i], t->text[i]));
	return finish(b.w);
}

// --- Merging ------------------------------------------------------------------------------------------------------------

static char merged(char was, char own, char other, bool own_wins)
{
	return other == was ? own : own == was || !own_wins ? other : own;
}

static void random_tree(struct tree *t, unsigned *seed, unsigned changes)
{
	for (; changes; changes--)
		t->text[(unsigned)rand_r(seed) % PATHS] = (char)("\0ABC"[rand_r(seed) % 4]);
}

static bool has_dir(const struct ckpt_manifest *m, const char *path)
{
	return text_at(m, path) == '/';
}

static int dirs_at_top(const struct ckpt_manifest *m)
{
	return has_dir(m, "d") + has_dir(m, "f");
}

static void check(const struct tree *was, const struct tree *own, const struct tree *other, bool own_wins)
{
	struct ckpt_manifest *w = make(was, OURS), *a = make(own, OURS), *b = make(other, THEIRS), *is = a;
	int dirs, rc = merge(w, a, b, own_wins, &is, &dirs);

	ck_assert_int_ge(rc, 0);
	for (size_t i = 0; i < PATHS; i++)
		ck_assert_int_eq(text_at(is, paths[i]), merged(was->text[i], own->text[i], other->text[i], own_wins));
	ck_assert_int_eq(dirs, dirs_at_top(is) - dirs_at_top(a));
	ck_assert_str_eq(ckpt_manifest_session(is, 0), OURS);
	ck_assert_ptr_null(ckpt_manifest_session(is, 1));
	if (is != a)
		ckpt_manifest_unref(is);
	ckpt_manifest_unref(w);
	ckpt_manifest_unref(a);
	ckpt_manifest_unref(b);
}

static bool is_copy(const struct ckpt_manifest *m, const char *path, char text)
{
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	return e.conflict && e.nlink == 1 && e.mtime_s == text;
}

// The weaker side's text of a path that both have changed stays beside it. Once: a second merge of the same finds it there.
static void check_copies(const struct tree *was, const struct tree *own, const struct tree *other, bool own_wins)
{
	struct ckpt_manifest *w = make(was, OURS), *a = make(own, OURS), *b = make(other, THEIRS), *is = a, *again;
	unsigned copies = 0, expected = 0, before = conflicts;
	int dirs, rc = merge(w, a, b, own_wins, &is, &dirs);

	ck_assert_int_ge(rc, 0);
	for (size_t i = 0; i < PATHS; i++) {
		char x = was->text[i], y = own->text[i], z = other->text[i], weaker = own_wins ? z : y;
		bool both = x != y && x != z && y != z;
		char copy[80];

		snprintf(copy, sizeof(copy), "%s.conflict-h", paths[i]);
		ck_assert_int_eq(text_at(is, paths[i]), merged(x, y, z, own_wins));
		ck_assert_int_eq(text_at(is, copy), both ? weaker : 0);
		ck_assert(!both || !weaker || is_copy(is, copy, weaker));
		expected += both;
		copies += both && weaker;
	}
	ck_assert_uint_eq(conflicts - before, expected);
	ck_assert_int_eq(ckpt_manifest_has_conflicts(is), copies > 0);
	ck_assert_int_eq(merge(w, is, b, own_wins, &again, &dirs), 1);
	if (is != a)
		ckpt_manifest_unref(is);
	ckpt_manifest_unref(w);
	ckpt_manifest_unref(a);
	ckpt_manifest_unref(b);
}

START_TEST(what_the_weaker_side_has_changed_stays_as_a_copy)
{
	unsigned seed = 2;

	host = "h";
	for (unsigned i = 0; i < 2000; i++) {
		struct tree was = {{0}}, own, other;

		random_tree(&was, &seed, PATHS);
		own = other = was;
		random_tree(&own, &seed, (unsigned)rand_r(&seed) % 6);
		random_tree(&other, &seed, (unsigned)rand_r(&seed) % 6);
		check_copies(&was, &own, &other, rand_r(&seed) & 1);
	}
	ck_assert_uint_gt(conflicts, 400);
}
END_TEST

START_TEST(each_path_is_as_the_side_has_it_that_has_changed_it)
{
	unsigned seed = 1;

	for (unsigned i = 0; i < 2000; i++) {
		struct tree was = {{0}}, own, other;

		random_tree(&was, &seed, PATHS);
		own = other = was;
		random_tree(&own, &seed, (unsigned)rand_r(&seed) % 4);
		random_tree(&other, &seed, (unsigned)rand_r(&seed) % 4);
		check(&was, &own, &other, rand_r(&seed) & 1);
	}
	ck_assert_uint_gt(brought, 100);
}
END_TEST

START_TEST(nothing_is_made_where_the_other_side_has_changed_nothing)
{
	const struct tree was = {"ABCABCA"}, own = {"ABAABCA"};
	struct ckpt_manifest *w = make(&was, OURS), *a = make(&own, OURS), *b = make(&was, THEIRS), *is = NULL;
	int dirs;

	ck_assert_int_eq(merge(w, a, b, true, &is, &dirs), 1);
	ck_assert_int_eq(merge(w, a, a, false, &is, &dirs), 1); // both have the same by now
	ckpt_manifest_unref(w);
	ckpt_manifest_unref(a);
	ckpt_manifest_unref(b);
}
END_TEST

// Of a tree with nothing but one file.
static struct ckpt_manifest *one(const char *path, char text, uint64_t ino)
{
	struct building b;

	begin(&b, OURS);
	add_file(&b, path, text, ino);
	return finish(b.w);
}

START_TEST(directory_in_the_place_of_a_file)
{
	struct ckpt_manifest *file = one("d", 'A', 1001), *dir = one("d/x", 'B', 1002), *edit = one("d", 'C', 1003),
			     *is = NULL;
	int dirs;

	ck_ok(merge(file, file, dir, true, &is, &dirs));
	ck_assert_int_eq(text_at(is, "d/x"), 'B');
	ck_assert_int_eq(dirs, 1);
	ckpt_manifest_unref(is);
	ck_assert_int_eq(merge(file, edit, dir, true, &is, &dirs), 1); // both have changed it
	ck_ok(merge(file, edit, dir, false, &is, &dirs));
	ck_assert_int_eq(text_at(is, "d/x"), 'B');
	ckpt_manifest_unref(is);
	ck_ok(merge(dir, dir, edit, true, &is, &dirs));
	ck_assert_int_eq(text_at(is, "d"), 'C');
	ck_assert_int_eq(dirs, -1);
	ckpt_manifest_unref(is);
	ckpt_manifest_unref(file);
	ckpt_manifest_unref(dir);
	ckpt_manifest_unref(edit);
}
END_TEST

START_TEST(file_in_the_place_of_a_directory_in_which_something_was_changed)
{
	struct ckpt_manifest *dir = one("d/x", 'A', 1001), *changed = one("d/x", 'B', 1002),
			     *file = one("d", 'C', 1003);
	struct ckpt_manifest *is = NULL;
	int dirs;

	ck_assert_int_eq(merge(dir, changed, file, true, &is, &dirs), 1);
	ck_ok(merge(dir, file, changed, false, &is, &dirs));
	ck_assert_int_eq(text_at(is, "d/x"), 'B');
	ckpt_manifest_unref(is);
	ckpt_manifest_unref(dir);
	ckpt_manifest_unref(changed);
	ckpt_manifest_unref(file);
}
END_TEST

START_TEST(one_number_for_two_files_is_two_numbers)
{
	struct building b;
	struct ckpt_manifest *was = one("a", 'A', 1001), *own, *other, *is = NULL;
	int dirs;

	begin(&b, OURS);
	add_file(&b, "a", 'A', 1001);
	add_file(&b, "b", 'B', 1002);
	own = finish(b.w);
	begin(&b, THEIRS);
	add_file(&b, "a", 'A', 1001);
	add_file(&b, "d/x", 'C', 1002);
	other = finish(b.w);
	ck_ok(merge(was, own, other, true, &is, &dirs));
	ck_assert_int_eq(text_at(is, "b"), 'B');
	ck_assert_int_eq(text_at(is, "d/x"), 'C');
	ck_assert_uint_eq(number_at(is, "b"), 1002);
	ck_assert_uint_ne(number_at(is, "d/x"), 1002);
	unref_all(was, own, other, is);
}
END_TEST

// With all that is in it.
START_TEST(directory_of_the_weaker_side_is_a_copy)
{
	struct ckpt_manifest *dir = one("d/x", 'A', 1001), *changed = one("d/x", 'B', 1002),
			     *file = one("d", 'C', 1003), *is = NULL;
	uint32_t index;
	int dirs;

	host = "h";
	ck_ok(merge(dir, changed, file, false, &is, &dirs));
	ck_assert_int_eq(text_at(is, "d"), 'C');
	ck_assert_int_eq(text_at(is, "d.conflict-h/x"), 'B');
	ck_ok(ckpt_manifest_lookup(is, "d.conflict-h/x", &index));
	ck_assert(ckpt_manifest_in_conflict(is, index) && !ckpt_manifest_in_conflict(is, 0));
	ck_ok(ckpt_manifest_lookup(is, "d", &index));
	ck_assert(!ckpt_manifest_in_conflict(is, index));
	ckpt_manifest_unref(is);
	ckpt_manifest_unref(dir);
	ckpt_manifest_unref(changed);
	ckpt_manifest_unref(file);
}
END_TEST

// --- Copies -------------------------------------------------------------------------------------------------------------

static uint64_t number_before(void *arg __attribute__((unused)), bool of_own, uint64_t ino)
{
	return of_own && ino == 2001 ? 1001 : 0;
}

START_TEST(copy_with_another_number_is_no_change)
{
	struct ckpt_manifest *was = one("a", 'A', 1001), *copy = one("a", 'A', 2001), *edit = one("a", 'C', 1003),
			     *is = NULL;
	struct ckpt_merge how = {.was = was,
				 .own = copy,
				 .other = edit,
				 .own_wins = true,
				 .session = OURS,
				 .number_before = number_before,
				 .bring = bring};
	struct ckpt_manifest_writer *w;
	int dirs;

	ck_ok(ckpt_merge(&how, &w, &dirs));
	is = finish(w);
	ck_assert_int_eq(text_at(is, "a"), 'C');
	ckpt_manifest_unref(is);
	how.number_before = NULL;
	ck_assert_int_eq(ckpt_merge(&how, &w, &dirs), 1);
	ckpt_manifest_unref(was);
	ckpt_manifest_unref(copy);
	ckpt_manifest_unref(edit);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("merge");
	TCase *tcase = tcase_create("manifests");

	tcase_add_test(tcase, each_path_is_as_the_side_has_it_that_has_changed_it);
	tcase_add_test(tcase, what_the_weaker_side_has_changed_stays_as_a_copy);
	tcase_add_test(tcase, directory_of_the_weaker_side_is_a_copy);
	tcase_add_test(tcase, nothing_is_made_where_the_other_side_has_changed_nothing);
	tcase_add_test(tcase, directory_in_the_place_of_a_file);
	tcase_add_test(tcase, file_in_the_place_of_a_directory_in_which_something_was_changed);
	tcase_add_test(tcase, one_number_for_two_files_is_two_numbers);
	tcase_add_test(tcase, copy_with_another_number_is_no_change);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
