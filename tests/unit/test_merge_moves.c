// Merges in which a side has moved files and directories: what the other side has changed goes with them, and nothing is lost.
#include "tests/support/merging.h"

// A second merge of the same finds all of it there.
static void check_again(struct ckpt_manifest *was, struct ckpt_manifest *is, struct ckpt_manifest *other, bool own_wins)
{
	struct ckpt_manifest *again;
	int dirs;

	if (!own_wins)
		return;
	ck_assert_int_eq(merge(was, is, other, own_wins, &again, &dirs), 1);
}

// The merge of own and other is these lines, whatever numbers they have; of the two sides either may be `own`.
static void check_moves(const struct line *was, const struct line *one_side, const struct line *other_side,
			const struct line *expected, bool own_wins)
{
	struct ckpt_manifest *w = tree_of(OURS, was);

	for (int turn = 0; turn < 2; turn++) {
		struct ckpt_manifest *own = tree_of(OURS, turn ? other_side : one_side),
				     *other = tree_of(THEIRS, turn ? one_side : other_side), *is = NULL;
		uint32_t count = 1;
		struct ckpt_entry top, own_top;
		int dirs;

		ck_ok(merge(w, own, other, own_wins, &is, &dirs));
		for (const struct line *l = expected; l->path; l++, count++)
			ck_assert_msg(text_at(is, l->path) == l->text, "%s is '%c', turn %d", l->path,
				      text_at(is, l->path), turn);
		ck_assert_uint_eq(ckpt_manifest_count(is), count);
		ckpt_manifest_entry(is, 0, &top);
		ckpt_manifest_entry(own, 0, &own_top);
		ck_assert_int_eq((int)top.nlink - (int)own_top.nlink, dirs);
		check_again(w, is, other, own_wins);
		ckpt_manifest_unref(is);
		ckpt_manifest_unref(own);
		ckpt_manifest_unref(other);
	}
	ckpt_manifest_unref(w);
}

// Of a file, of what is in a directory, into a directory that is new, and over another file.
START_TEST(change_of_what_the_other_side_has_moved_is_in_its_new_place)
{
	bool own_wins = _i & 1;

	host = _i & 2 ? "h" : NULL;
	check_moves(LINES({"a", 'A', 1}), LINES({"b", 'A', 1}), LINES({"a", 'B', 2}), LINES({"b", 'B', 0}), own_wins);
	check_moves(LINES({"d", '/', 1}, {"d/x", 'A', 2}), LINES({"e", '/', 1}, {"e/x", 'A', 2}),
		    LINES({"d", '/', 1}, {"d/x", 'B', 3}, {"d/y", 'C', 4}),
		    LINES({"e", '/', 0}, {"e/x", 'B', 0}, {"e/y", 'C', 0}), own_wins);
	check_moves(LINES({"a", 'A', 1}), LINES({"n", '/', 5}, {"n/m", '/', 6}, {"n/m/a", 'A', 1}),
		    LINES({"a", 'B', 2}), LINES({"n", '/', 0}, {"n/m", '/', 0}, {"n/m/a", 'B', 0}), own_wins);
	check_moves(LINES({"a", 'A', 1}, {"b", 'B', 2}), LINES({"b", 'A', 1}), LINES({"a", 'C', 3}, {"b", 'B', 2}),
		    LINES({"b", 'C', 0}), own_wins);
	ck_assert_uint_eq(conflicts, 0);
}
END_TEST

START_TEST(moves_of_both_sides_are_followed)
{
	bool own_wins = _i;

	host = "h";
	// Each has changed what the other has moved.
	check_moves(LINES({"a", 'A', 1}, {"b", 'B', 2}), LINES({"x", 'A', 1}, {"b", 'C', 3}),
		    LINES({"a", 'D', 4}, {"y", 'B', 2}), LINES({"x", 'D', 0}, {"y", 'C', 0}), own_wins);
	// One has moved the directory, the other a file out of it, which the first has changed.
	check_moves(LINES({"d", '/', 1}, {"d/x", 'A', 2}), LINES({"e", '/', 1}, {"e/x", 'B', 3}),
		    LINES({"d", '/', 1}, {"y", 'A', 2}), LINES({"e", '/', 0}, {"y", 'B', 0}), own_wins);
	// One has exchanged two names.
	check_moves(LINES({"a", 'A', 1}, {"b", 'B', 2}), LINES({"a", 'B', 2}, {"b", 'A', 1}),
		    LINES({"a", 'C', 3}, {"b", 'D', 4}), LINES({"a", 'D', 0}, {"b", 'C', 0}), own_wins);
	ck_assert_uint_eq(conflicts, 0);
}
END_TEST

// What is not followed is merged path by path: nothing is lost.
START_TEST(moves_that_do_not_fit_together_lose_nothing)
{
	bool own_wins = _i;

	host = "h";
	// To two places: it has both names.
	check_moves(LINES({"d", '/', 1}, {"d/x", 'A', 2}), LINES({"e", '/', 1}, {"e/x", 'A', 2}),
		    LINES({"f", '/', 1}, {"f/x", 'A', 2}),
		    LINES({"e", '/', 0}, {"e/x", 'A', 0}, {"f", '/', 0}, {"f/x", 'A', 0}), own_wins);
	// Into each other.
	check_moves(LINES({"a", '/', 1}, {"a/x", 'A', 2}, {"b", '/', 3}, {"b/y", 'B', 4}),
		    LINES({"b", '/', 3}, {"b/y", 'B', 4}, {"b/a", '/', 1}, {"b/a/x", 'A', 2}),
		    LINES({"a", '/', 1}, {"a/x", 'A', 2}, {"a/b", '/', 3}, {"a/b/y", 'B', 4}),
		    LINES({"a", '/', 0}, {"a/b", '/', 0}, {"a/b/y", 'B', 0}, {"b", '/', 0}, {"b/a", '/', 0},
			  {"b/a/x", 'A', 0}),
		    own_wins);
	ck_assert_uint_eq(conflicts, 0);
}
END_TEST

// The new place is another file's on the other side: the change stays in the old one, as a copy if it is the weaker side's.
START_TEST(move_to_a_name_that_the_other_side_has_taken_is_a_conflict)
{
	const struct line *moved = LINES({"b", 'A', 1}), *changed = LINES({"a", 'C', 3}, {"b", 'B', 2});
	struct ckpt_manifest *was = tree_of(OURS, LINES({"a", 'A', 1})), *own = tree_of(OURS, _i ? moved : changed),
			     *other = tree_of(THEIRS, _i ? changed : moved), *is = NULL;
	int dirs;

	host = "h";
	ck_ok(merge(was, own, other, true, &is, &dirs));
	ck_assert_int_eq(text_at(is, "b"), _i ? 'A' : 'B');
	ck_assert_int_eq(text_at(is, "b.conflict-h"), _i ? 'B' : 'A');
	ck_assert_int_eq(text_at(is, _i ? "a.conflict-h" : "a"), 'C');
	unref_all(was, own, other, is);
}
END_TEST

START_TEST(link_that_the_other_side_has_made_is_one)
{
	const struct line *links = LINES({"a", 'A', 1}, {"b", 'A', 1});
	struct ckpt_manifest *was = tree_of(OURS, LINES({"a", 'A', 1})),
			     *own = tree_of(OURS, LINES({"a", 'A', 1}, {"c", 'C', 2})), *other = tree_of(OURS, links),
			     *is = NULL;
	struct ckpt_entry e;
	uint32_t index;
	int dirs;

	ck_ok(merge(was, own, other, true, &is, &dirs));
	ck_ok(ckpt_manifest_lookup(is, "b", &index));
	ckpt_manifest_entry(is, index, &e);
	ck_assert_uint_eq(e.nlink, 2);
	ck_assert_str_eq(e.raw_path, "a");
	ck_assert_uint_eq(number_at(is, "a"), 1);
	ck_assert_int_eq(text_at(is, "c"), 'C');
	unref_all(was, own, other, is);
}
END_TEST

// --- Random moves -------------------------------------------------------------------------------------------------------

#define LINES_MAX 12

struct forest {
	struct line lines[LINES_MAX + 1]; // sorted, so that a directory comes before what is in it
	char paths[LINES_MAX][64];
	size_t count;
};

static int by_path(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static void plant(struct forest *f, const char (*paths_of)[64], const struct line *lines, size_t count)
{
	char kept[LINES_MAX][64];

	memcpy(kept, paths_of, count * sizeof(*kept));
	f->count = count;
	for (size_t i = 0; i < count; i++) {
		f->lines[i] = lines[i];
		memcpy(f->paths[i], kept[i], sizeof(kept[i]));
		f->lines[i].path = f->paths[i];
	}
	f->lines[count] = (struct line){0};
	qsort(f->lines, count, sizeof(*lines), by_path);
}

static bool has_path(const struct forest *f, const char *path)
{
	for (size_t i = 0; i < f->count; i++)
		if (!strcmp(f->lines[i].path, path))
			return true;
	return false;
}

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (!path[len] || path[len] == '/');
}

// A random name at the top, or in a directory that is not too deep.
static bool random_place(const struct forest *f, unsigned *seed, char ret_path[64])
{
	const struct line *dir = &f->lines[(unsigned)rand_r(seed) % (f->count + 1)];
	char name = (char)('a' + rand_r(seed) % 4);

	if (!dir->path || dir->text != '/' || strlen(dir->path) > 8)
		snprintf(ret_path, 64, "%c", name);
	else
		snprintf(ret_path, 64, "%.8s/%c", dir->path, name);
	return !has_path(f, ret_path);
}

// What is at and below `from` goes to `to`; to NULL: it is removed.
static void rename_line(struct forest *f, const char *from, const char *to)
{
	char to_paths[LINES_MAX][64], old[64];
	struct line lines[LINES_MAX];
	size_t count = 0;

	snprintf(old, sizeof(old), "%s", from);
	for (size_t i = 0; i < f->count; i++) {
		const char *path = f->lines[i].path;

		if (is_below(path, old) && !to)
			continue;
		lines[count] = f->lines[i];
		if (is_below(path, old))
			snprintf(to_paths[count++], 64, "%.30s%.30s", to, path + strlen(old));
		else
			snprintf(to_paths[count++], 64, "%s", path);
	}
	plant(f, to_paths, lines, count);
}

static void add_random(struct forest *f, unsigned *seed, char *text, uint64_t *number)
{
	struct line line = {.text = rand_r(seed) % 3 ? (*text)++ : '/', .number = (*number)++};
	char all[LINES_MAX][64];
	struct line lines[LINES_MAX];

	if (f->count == LINES_MAX || !random_place(f, seed, all[0]))
		return;
	line.path = all[0];
	lines[0] = line;
	for (size_t i = 0; i < f->count; i++) {
		lines[i + 1] = f->lines[i];
		memcpy(all[i + 1], f->lines[i].path, strlen(f->lines[i].path) + 1);
	}
	plant(f, all, lines, f->count + 1);
}

static void change_randomly(struct forest *f, unsigned *seed, char *text, uint64_t *number)
{
	struct line *l = f->count ? &f->lines[(unsigned)rand_r(seed) % f->count] : NULL;
	char to[64];

	switch (rand_r(seed) % 6) {
	case 0:
	case 1:
	case 2:
		if (l && random_place(f, seed, to) && !is_below(to, l->path))
			rename_line(f, l->path, to);
		return;
	case 3:
		if (l && l->text != '/') {
			l->text = (*text)++;
			l->number = (*number)++;
		}
		return;
	case 4:
		if (l && rand_r(seed) & 1)
			rename_line(f, l->path, NULL);
		return;
	default:
		add_random(f, seed, text, number);
	}
}

static bool has_text(const struct ckpt_manifest *m, char text)
{
	struct ckpt_entry e;

	for (uint32_t i = 1; i < ckpt_manifest_count(m); i++) {
		ckpt_manifest_entry(m, i, &e);
		if (e.type == CKPT_ENTRY_FILE && e.mtime_s == text)
			return true;
	}
	return false;
}

static void check_texts(const struct forest *side, char first, const struct ckpt_manifest *is)
{
	for (size_t i = 0; i < side->count; i++)
		if (side->lines[i].text != '/' && side->lines[i].text >= first)
			ck_assert_msg(has_text(is, side->lines[i].text), "the new text at %s is lost",
				      side->lines[i].path);
}

static void copy_forest(struct forest *f, const struct forest *of)
{
	char paths_of[LINES_MAX][64];

	for (size_t i = 0; i < of->count; i++)
		memcpy(paths_of[i], of->lines[i].path, strlen(of->lines[i].path) + 1);
	plant(f, paths_of, of->lines, of->count);
}

// Both sides may do anything: the merge is one, and each text that one of them has written is in it.
START_TEST(no_new_text_of_either_side_is_lost)
{
	unsigned seed = 3;

	host = "h";
	for (unsigned round = 0; round < 5000; round++) {
		struct forest was = {0}, own = {0}, other = {0};
		struct ckpt_manifest *w, *a, *b, *is = NULL;
		uint64_t number = 1;
		char text = '0' + 1, first; // '/' is a directory
		int dirs, rc;

		for (int i = 0; i < 7; i++)
			add_random(&was, &seed, &text, &number);
		copy_forest(&own, &was);
		copy_forest(&other, &was);
		first = text;
		for (int i = rand_r(&seed) % 5; i >= 0; i--)
			change_randomly(&own, &seed, &text, &number);
		for (int i = rand_r(&seed) % 5; i >= 0; i--)
			change_randomly(&other, &seed, &text, &number);
		w = tree_of(OURS, was.lines);
		a = tree_of(OURS, own.lines);
		b = tree_of(THEIRS, other.lines);
		is = a;
		rc = merge(w, a, b, rand_r(&seed) & 1, &is, &dirs);
		ck_assert_msg(rc >= 0, "round %u: %d", round, rc);
		check_texts(&own, first, is);
		check_texts(&other, first, is);
		if (is != a)
			ckpt_manifest_unref(is);
		unref_all(w, a, b, NULL);
	}
}
END_TEST

// Names of `own` that are open for writing stay: its moves are followed, those of the other side are not.
START_TEST(side_that_keeps_its_places_has_none_of_the_moves)
{
	const struct line *moved = LINES({"b", 'A', 1}), *changed = LINES({"a", 'B', 2});
	struct ckpt_manifest *was = tree_of(OURS, LINES({"a", 'A', 1})), *own = tree_of(OURS, _i ? moved : changed),
			     *other = tree_of(THEIRS, _i ? changed : moved), *is = NULL;
	struct ckpt_merge how = {.was = was,
				 .own = own,
				 .other = other,
				 .own_wins = true,
				 .keeps_places = true,
				 .session = OURS,
				 .bring = bring};
	struct ckpt_manifest_writer *w;
	int dirs;

	ck_ok(ckpt_merge(&how, &w, &dirs));
	is = finish(w);
	ck_assert_int_eq(text_at(is, "a"), _i ? 0 : 'B');
	ck_assert_int_eq(text_at(is, "b"), _i ? 'B' : 'A');
	unref_all(was, own, other, is);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("merge_moves");
	TCase *tcase = tcase_create("manifests");

	tcase_add_loop_test(tcase, change_of_what_the_other_side_has_moved_is_in_its_new_place, 0, 4);
	tcase_add_loop_test(tcase, moves_of_both_sides_are_followed, 0, 2);
	tcase_add_loop_test(tcase, moves_that_do_not_fit_together_lose_nothing, 0, 2);
	tcase_add_loop_test(tcase, move_to_a_name_that_the_other_side_has_taken_is_a_conflict, 0, 2);
	tcase_add_test(tcase, no_new_text_of_either_side_is_lost);
	tcase_add_test(tcase, link_that_the_other_side_has_made_is_one);
	tcase_add_loop_test(tcase, side_that_keeps_its_places_has_none_of_the_moves, 0, 2);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
