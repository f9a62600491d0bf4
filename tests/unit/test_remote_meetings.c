// Edits of two nodes that meet in the remote's log, where one of them has made several versions: none undoes another.
#include "tests/support/versions.h"

static void rename_later(const struct node *n, const char *from, const char *to)
{
	struct ckpt_step *step = find(n, NAME);

	go_ahead(60 * S_NS);
	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){from, to, true}));
	ckpt_step_unref(step);
}

static void remove_later(const struct node *n, const char *path)
{
	struct ckpt_step *step = find(n, NAME);

	go_ahead(60 * S_NS);
	ck_ok(ckpt_amend_remove(step, path));
	ckpt_step_unref(step);
}

static void add_later(const struct node *n, const char *path, const char *text)
{
	struct ckpt_step *step = find(n, NAME);
	char raw[CKPT_AMENDING_RAW_MAX];

	go_ahead(60 * S_NS);
	ck_ok(put_added(step, path, text, raw));
	ck_ok(ckpt_amend_add(step, path));
	ckpt_amending_forget(step, path);
	ckpt_step_unref(step);
}

// The versions that a makes of one path, and how the step is behind them.
enum { WRITTEN, RENAMED, BACK, REMOVED, CHAINS };
#define EDITS 3

static void edit_in_chain(int chain, int i)
{
	if (!i)
		edit_later(&a, NAME, "config.json", "3", 60 * S_NS);
	else if (chain == WRITTEN || (chain == REMOVED && i == 1))
		edit_later(&a, NAME, "config.json", i == 1 ? "4" : "5", 60 * S_NS);
	else if (chain == RENAMED && i == 1)
		rename_later(&a, "config.json", "moved.json");
	else if (chain == RENAMED)
		edit_later(&a, NAME, "moved.json", "5", 60 * S_NS);
	else if (i == 1 || chain == REMOVED)
		remove_later(&a, "config.json");
	else
		add_later(&a, "config.json", "5");
}

// Both have it so once all is pushed. A queue is empty for a moment while what has come is put together.
static void wait_for(const char *path, const char *text)
{
	WAIT_UNTIL(has_text(&a, NAME, path, text) && has_text(&b, NAME, path, text));
}

static void wait_for_chain(int chain)
{
	wait_for("config.json", chain == WRITTEN || chain == BACK ? "5" : NULL);
	wait_for("moved.json", chain == RENAMED ? "5" : NULL);
	wait_for(copy_of("config.json"), NULL);
	wait_for(copy_of("moved.json"), NULL);
}

static void wait_for_the_end(void)
{
	WAIT_UNTIL(is_idle(&a) && is_idle(&b) && position(&a) == position(&b));
	check_no_conflict(&a);
	check_no_conflict(&b);
}

static void read_and_reunite(struct node *n)
{
	bool apart;

	follow(n);
	ck_ok(ckpt_reunion_all(n->store, &apart));
	ck_assert(!apart);
}

// The other node's edit: a version that no log has, while those entries come.
enum { AT_ONCE, ONE_BY_ONE, TWICE, AFTER_ITS_OWN, TIMES };

static void edit_before_they_come(int time)
{
	struct ckpt_step *staged;

	if (time == AFTER_ITS_OWN)
		edit_later(&b, NAME, "d/x", "of b", 60 * S_NS);
	for (int i = 0; i < (time == TWICE ? 2 : 1); i++) {
		go_ahead(60 * S_NS);
		staged = reopen(&b);
		edit(staged, i ? "new.json" : "other.json", "of b");
		ck_ok(commit(staged));
		ckpt_step_unref(staged);
	}
}

// An entry of the log is not undone by any entry behind it. That a file is under another name, or gone, is the last thing that happens to it.
static void check_log(void)
{
	static const char *const texts_in_order[] = {"of the save", "3", "4", "5"};
	size_t newest = 0;
	struct node c = {0};

	open_node(&c);
	while (pull_next(&c)) {
		follow(&c);
		for (size_t i = 0; i < newest; i++)
			ck_assert(!has_text(&c, NAME, "config.json", texts_in_order[i]));
		for (size_t i = newest; i < ARRAY_LEN(texts_in_order); i++)
			if (has_text(&c, NAME, "config.json", texts_in_order[i]))
				newest = i;
	}
	close_node(&c);
}

// _i: what a does, how many of these are in the log before it is b's turn, and how b reads them. The rest comes after b's edit.
START_TEST(edit_that_meets_many_versions_undoes_none)
{
	int chain = _i % CHAINS, sent = _i / CHAINS % (EDITS + 1), time = _i / CHAINS / (EDITS + 1);

	for (int i = 0; i < sent; i++)
		edit_in_chain(chain, i);
	push_all(&a);
	reopen_node(&a);
	for (int i = sent; i < EDITS; i++)
		edit_in_chain(chain, i);
	edit_before_they_come(time);
	while (pull_next(&b))
		if (time == ONE_BY_ONE)
			read_and_reunite(&b);
	push_all(&b);
	work(&a);
	wait_for_chain(chain);
	wait_for("other.json", "of b");
	wait_for("new.json", time == TWICE ? "of b" : NULL);
	wait_for("d/x", time == AFTER_ITS_OWN ? "of b" : "of the save");
	wait_for_the_end();
	ck_assert_uint_eq(ckpt_save_errors(a.store, NAME) + ckpt_save_errors(b.store, NAME), 0);
	check_log();
}
END_TEST

// Of one path that both have changed the first in the log wins, with its newest version. _i: how many a has sent before.
START_TEST(edit_of_the_path_that_has_many_versions_is_beside_it)
{
	struct ckpt_step *staged = reopen(&b);

	edit(staged, "config.json", "of b");
	ck_ok(commit(staged));
	ckpt_step_unref(staged);
	for (int i = 0; i < _i; i++)
		edit_in_chain(WRITTEN, i);
	push_all(&a);
	reopen_node(&a);
	for (int i = _i; i < EDITS; i++)
		edit_in_chain(WRITTEN, i);
	push_all(&b);
	work(&a);
	wait_for("config.json", _i ? "5" : "of b");
	wait_for(copy_of("config.json"), _i ? "of b" : "5");
	wait_for_the_end();
}
END_TEST

// Somebody is about the next edit, so that the two cannot be put together: until then nothing of it is pushed.
START_TEST(edit_that_cannot_be_put_together_yet_waits)
{
	struct ckpt_step *staged;

	edit_before_they_come(AT_ONCE);
	staged = reopen(&b);
	ck_ok(ckpt_stage_enter(staged, true));
	edit_in_chain(WRITTEN, 0);
	push_all(&a);
	work(&b);
	WAIT_UNTIL(position(&b) == position(&a));
	edit_in_chain(WRITTEN, 1);
	edit_in_chain(WRITTEN, 2);
	WAIT_UNTIL(is_idle(&a) && position(&b) == position(&a));
	ckpt_stage_leave(staged);
	edit(staged, "new.json", "of b");
	ck_ok(commit(staged));
	ckpt_step_unref(staged);
	wait_for_chain(WRITTEN);
	wait_for("other.json", "of b");
	wait_for("new.json", "of b");
	wait_for_the_end();
	check_log();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote_meetings");
	TCase *tcase = tcase_create("meetings");

	tcase_add_checked_fixture(tcase, setup_versions, teardown_versions);
	tcase_add_loop_test(tcase, edit_that_meets_many_versions_undoes_none, 0, CHAINS * (EDITS + 1) * TIMES);
	tcase_add_loop_test(tcase, edit_of_the_path_that_has_many_versions_is_beside_it, 0, EDITS + 1);
	tcase_add_test(tcase, edit_that_cannot_be_put_together_yet_waits);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
