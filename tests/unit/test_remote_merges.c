// Versions of one step that two nodes have made at the same time, without a save: what each row of REMOTE.md section 4 says of an AMEND. The
// first in the remote's log wins, path by path; what the other node has stays as a conflict copy.
#include "tests/support/two_nodes.h"

#include "core/record/metadata.h"
#include "core/save/amend_move.h"
#include "core/save/version.h"

// --- Acts, each a version ---------------------------------------------------------------------------------------------

static void add(struct node *n, const char *path, const char *text)
{
	struct ckpt_step *step = find(n, NAME);
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(put_added(step, path, text, raw));
	ck_ok(ckpt_amend_add(step, path));
	ckpt_amending_forget(step, path);
	ckpt_step_unref(step);
}

static void take_out(struct node *n, const char *path)
{
	struct ckpt_step *step = find(n, NAME);

	ck_ok(ckpt_amend_remove(step, path));
	ckpt_step_unref(step);
}

static void set_mode(struct node *n, const char *path, uint32_t mode)
{
	const struct ckpt_attributes_new what = {.which = CKPT_ATTRIBUTE_MODE, .mode = mode};
	struct ckpt_step *step = find(n, NAME);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_change_attributes(step, m, &e, &what));
	ck_ok(ckpt_change_publish(step));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
}

static void push(struct node *n)
{
	work(n);
	WAIT_UNTIL(is_idle(n));
}

static bool is_copy(const struct node *n, const char *name, const char *path)
{
	struct ckpt_step *step = find(n, name);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return e.conflict;
}

static size_t listed(const struct node *n)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count;
}

// b is idle when all of it is in the log; a reads that by itself.
static void meet_now(void)
{
	work(&b);
	WAIT_UNTIL(is_idle(&a) && is_idle(&b) && position(&a) == position(&b));
}

static void check_both(const char *path, const char *text)
{
	WAIT_UNTIL(has_text(&b, NAME, path, text));
	WAIT_UNTIL(has_text(&a, NAME, path, text));
}

static void check_errors(const struct node *n, unsigned count)
{
	CLEANUP_FREE char *text = NULL;

	ck_assert_int_ge(ckpt_errlog_text(n->store->errlog, &text), 0);
	ck_assert_msg(ckpt_save_errors(n->store, NAME) == count, "not %u errors:\n%s", count, text);
}

// --- Other paths --------------------------------------------------------------------------------------------------------

// _i: b takes it in at its next turn, or knows it before.
START_TEST(additions_of_other_paths_are_both_there)
{
	add(&b, "new.json", "new of b");
	add(&a, "added", "of a");
	add(&a, "more", "more of a");
	push(&a);
	if (_i)
		take_in(&b, FOLLOWED);
	add(&b, "newer.json", "newer of b");
	meet_now();
	check_both("new.json", "new of b");
	check_both("newer.json", "newer of b");
	check_both("added", "of a");
	check_both("more", "more of a");
	check_both("config.json", "of the save");
	WAIT_UNTIL(listed(&a) == 1);
	check_errors(&b, 0);
}
END_TEST

START_TEST(removals_and_modes_of_other_paths_are_both_there)
{
	take_out(&b, "config.json");
	set_mode(&b, "d/x", 0604);
	add(&a, "added", "of a");
	take_out(&a, "other.json");
	push(&a);
	meet_now();
	check_both("config.json", NULL);
	check_both("other.json", NULL);
	check_both("added", "of a");
	ck_assert_uint_eq(mode_of(&a, "d/x"), 0604);
	ck_assert_uint_eq(mode_of(&b, "d/x"), 0604);
	check_errors(&b, 0);
}
END_TEST

// A step that is put together and not pushed yet meets another version. Each is taken from where the last one ended.
START_TEST(what_comes_after_a_merge_is_no_conflict)
{
	struct ckpt_step *step;
	struct ckpt_manifest *was;

	add(&b, "new.json", "new of b");
	set_mode(&a, "config.json", 0640);
	push(&a);
	take_in(&b, FOLLOWED);
	step = find(&b, NAME);
	ckpt_lock_take(&b.store->acts_lock);
	{
		struct ckpt_step *into;

		ck_ok(ckpt_reunite(step, &into, &was));
		ck_assert_ptr_eq(into, step);
		ckpt_step_unref(into);
	}
	ckpt_lock_drop(&b.store->acts_lock);
	ckpt_manifest_unref(was);
	ckpt_step_unref(step);
	ck_assert_uint_eq(mode_of(&b, "config.json"), 0640);
	set_mode(&a, "config.json", 0600);
	push(&a);
	meet_now();
	ck_assert_uint_eq(mode_of(&b, "config.json"), 0600);
	check_both("new.json", "new of b");
	check_errors(&b, 0);
	check_both(copy_of("config.json"), NULL);
}
END_TEST

// Another node's version has its number in the log by now, which the step has not followed yet.
START_TEST(version_is_read_and_changed_before_the_step_follows)
{
	struct ckpt_manifest *m;
	struct ckpt_step *step;
	uint32_t index;

	add(&b, "new.json", "new of b");
	set_mode(&a, "config.json", 0640);
	push(&a);
	take_in(&b, PULLED);
	step = find(&b, NAME);
	ck_assert(ckpt_follow_is_behind(step));
	ck_ok(ckpt_step_read_current(step, &m));
	ck_ok(ckpt_manifest_lookup(m, "new.json", &index));
	ckpt_manifest_unref(m);
	ck_ok(ckpt_commit_metadata(step, "{\"loss\": 0.5}"));
	ckpt_step_unref(step);
	meet_now();
	check_both("new.json", "new of b");
	check_errors(&b, 0);
}
END_TEST

static bool says(const struct node *n, const char *words)
{
	struct ckpt_step *step = find(n, NAME);
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_record r;
	bool is;

	ck_ok(ckpt_step_record(step, v->is.version, &r));
	is = r.metadata && strstr(r.metadata, words);
	ckpt_record_done(&r);
	ckpt_step_unref(step);
	return is;
}

START_TEST(metrics_of_one_stay_beside_a_file_of_the_other)
{
	add(&b, "new.json", "new of b");
	add(&a, CKPT_METRICS_FILE, "{\"loss\": 0.5}");
	ck_assert(says(&a, "loss") && !says(&b, "loss"));
	push(&a);
	meet_now();
	check_both("new.json", "new of b");
	WAIT_UNTIL(says(&a, "loss") && says(&b, "loss"));
}
END_TEST

static void note(struct node *n, const char *metadata)
{
	struct ckpt_step *step = find(n, NAME);

	ck_ok(ckpt_commit_metadata(step, metadata));
	ckpt_step_unref(step);
}

static void check_says(const char *words)
{
	WAIT_UNTIL(says(&a, words) && says(&b, words));
}

// _i: beside nothing, a file, or other metadata of the other node. The first says a name that the second says, too.
START_TEST(metadata_of_both_stay)
{
	note(&b, "{\"metrics\":{\"acc\":0.5,\"loss\":3}}");
	note(&a, "{\"metrics\":{\"acc\":0.25,\"lr\":7}}");
	if (_i == 1)
		add(&b, "new.json", "of b");
	if (_i == 2)
		add(&a, "new.json", "of a");
	push(&a);
	meet_now();
	check_says("\"acc\":0.25");
	check_says("\"loss\":3");
	check_says("\"lr\":7");
	check_both("new.json", _i == 1 ? "of b" : _i == 2 ? "of a" : NULL);
	check_both("config.json", "of the save");
}
END_TEST

// _i: the second has the file, or the first.
START_TEST(metadata_of_one_stay_beside_a_file_of_the_other)
{
	note(_i ? &b : &a, "{\"extras\":{\"who\":\"me\"}}");
	add(_i ? &a : &b, "new.json", "new");
	push(&a);
	meet_now();
	check_says("\"who\":\"me\"");
	check_both("new.json", "new");
}
END_TEST

// What the second says of a name that the first has not said anew stays.
START_TEST(metadata_that_one_has_not_changed_is_the_others)
{
	note(&a, "{\"metrics\":{\"acc\":0.5,\"loss\":3}}");
	push(&a);
	take_in(&b, FOLLOWED);
	note(&b, "{\"metrics\":{\"loss\":2}}");
	note(&a, "{\"metrics\":{\"acc\":0.75}}");
	push(&a);
	meet_now();
	check_says("\"acc\":0.75");
	check_says("\"loss\":2");
}
END_TEST

static uint32_t top_mode(const struct node *n)
{
	struct ckpt_step *step = find(n, NAME);
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	uint32_t mode = v->is.dir_mode;

	ck_assert_uint_eq(mode_of(n, ""), mode);
	ckpt_step_unref(step);
	return mode;
}

// _i: the second has changed it, or the first, or both.
START_TEST(mode_of_the_step_stays_beside_a_file_of_the_other)
{
	if (_i != 1)
		set_mode(&b, "", 0700);
	else
		add(&b, "new.json", "new");
	if (_i)
		set_mode(&a, "", 0750);
	else
		add(&a, "new.json", "new");
	push(&a);
	meet_now();
	WAIT_UNTIL(top_mode(&a) == (_i ? 0750 : 0700) && top_mode(&b) == top_mode(&a));
	check_both("new.json", _i == 2 ? NULL : "new");
}
END_TEST

static void move(struct node *n, const char *from, const char *to)
{
	struct ckpt_step *step = find(n, NAME);

	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){.from = from, .to = to}));
	ckpt_step_unref(step);
}

START_TEST(addition_to_a_directory_that_the_other_moves_is_in_its_new_place)
{
	move(_i ? &b : &a, "d", "moved");
	add(_i ? &a : &b, "d/new.json", "new");
	push(&a);
	meet_now();
	check_both("moved/x", "of the save");
	check_both("moved/new.json", "new");
	check_both("d", NULL);
	check_errors(&a, 0);
	check_errors(&b, 0);
}
END_TEST

START_TEST(mode_of_a_file_that_the_other_moves_goes_with_it)
{
	move(_i ? &b : &a, "config.json", "d/renamed.json");
	set_mode(_i ? &a : &b, "config.json", 0640);
	push(&a);
	meet_now();
	check_both("d/renamed.json", "of the save");
	check_both("config.json", NULL);
	ck_assert_uint_eq(mode_of(&a, "d/renamed.json"), 0640);
	ck_assert_uint_eq(mode_of(&b, "d/renamed.json"), 0640);
	check_errors(&b, 0);
}
END_TEST

START_TEST(edit_of_a_file_that_the_other_moves_is_in_its_new_place)
{
	move(&b, "config.json", "renamed.json");
	edit_and_push(&a, "config.json", "of the edit");
	meet_now();
	check_both("renamed.json", "of the edit");
	check_both("config.json", NULL);
	WAIT_UNTIL(listed(&b) == 1);
	check_errors(&b, 0);
}
END_TEST

START_TEST(file_that_both_move_has_both_names)
{
	move(&b, "d", "of-b");
	move(&a, "d", "of-a");
	push(&a);
	meet_now();
	check_both("of-a/x", "of the save");
	check_both("of-b/x", "of the save");
	check_both("d", NULL);
	check_errors(&b, 0);
}
END_TEST

// --- The same path ------------------------------------------------------------------------------------------------------

START_TEST(path_that_both_have_added_is_that_of_the_first)
{
	add(&b, "d/new.json", "new of b");
	add(&b, "beside", "of b");
	add(&a, "d/new.json", "new of a");
	push(&a);
	meet_now();
	check_both("d/new.json", "new of a");
	check_both(copy_of("d/new.json"), "new of b");
	check_both("beside", "of b");
	ck_assert(is_copy(&a, NAME, copy_of("d/new.json")) && is_copy(&b, NAME, copy_of("d/new.json")));
	ck_assert(!is_copy(&a, NAME, "d/new.json"));
	WAIT_UNTIL(listed(&b) == 1);
	check_errors(&b, 1);
	check_errors(&a, 0);
}
END_TEST

START_TEST(second_copy_of_a_path_has_a_number)
{
	static char first[PATH_MAX], second[PATH_MAX + 4];

	add(&b, "new.json", "new of b");
	add(&a, "new.json", "new of a");
	push(&a);
	meet_now();
	snprintf(first, sizeof(first), "%s", copy_of("new.json"));
	snprintf(second, sizeof(second), "%s-2", first);
	close_node(&b);
	open_node(&b); // a new node, which has all of it, and does not exchange anything yet
	take_out(&b, "new.json");
	add(&b, "new.json", "newer of b");
	take_out(&a, "new.json");
	add(&a, "new.json", "newer of a");
	push(&a);
	meet_now();
	check_both("new.json", "newer of a");
	check_both(first, "new of b");
	check_both(second, "newer of b");
	ck_assert(is_copy(&a, NAME, first) && is_copy(&a, NAME, second));
}
END_TEST

START_TEST(removal_of_what_the_other_has_changed_is_dropped)
{
	take_out(&b, "config.json");
	set_mode(&a, "config.json", 0640);
	push(&a);
	meet_now();
	check_both("config.json", "of the save");
	ck_assert_uint_eq(mode_of(&b, "config.json"), 0640);
	check_both(copy_of("config.json"), NULL);
	check_errors(&b, 1);
}
END_TEST

// It is what the other node does not have any more: so it stays as a copy alone.
START_TEST(change_of_what_the_other_has_removed_is_a_copy)
{
	set_mode(&b, "d/x", 0604);
	take_out(&a, "d");
	push(&a);
	meet_now();
	check_both("d/x", NULL);
	check_both(copy_of("d/x"), "of the save");
	ck_assert(is_copy(&a, NAME, copy_of("d/x")));
	check_errors(&b, 1);
}
END_TEST

START_TEST(mode_is_a_change_of_its_path)
{
	set_mode(&b, "config.json", 0604);
	set_mode(&a, "config.json", 0640);
	push(&a);
	meet_now();
	ck_assert_uint_eq(mode_of(&a, "config.json"), 0640);
	ck_assert_uint_eq(mode_of(&b, "config.json"), 0640);
	check_both(copy_of("config.json"), "of the save");
	ck_assert_uint_eq(mode_of(&a, copy_of("config.json")), 0604);
}
END_TEST

START_TEST(new_name_is_a_change_of_both_its_paths)
{
	struct ckpt_step *step = find(&b, NAME);

	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){.from = "config.json", .to = "renamed.json"}));
	ckpt_step_unref(step);
	set_mode(&a, "config.json", 0640);
	add(&a, "renamed.json", "of a");
	push(&a);
	meet_now();
	check_both("config.json", "of the save"); // its removal is dropped
	ck_assert_uint_eq(mode_of(&b, "config.json"), 0640);
	check_both("renamed.json", "of a");
	check_both(copy_of("renamed.json"), "of the save");
	check_errors(&b, 2);
}
END_TEST

// --- The step is gone ---------------------------------------------------------------------------------------------------

static const char *session_of(const struct node *n)
{
	static char session[CKPT_UUID_LEN + 1];
	struct ckpt_step *step = find(n, NAME);

	memcpy(session, step->session, sizeof(session));
	ckpt_step_unref(step);
	return session;
}

static void delete_there(void)
{
	struct ckpt_step *step = find(&a, NAME);

	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	push(&a);
}

// _i: and it was amended there before.
START_TEST(amendment_of_what_was_deleted_is_in_the_trash)
{
	const char *session = session_of(&b);
	struct ckpt_step *step;

	add(&b, "new.json", "new of b");
	if (_i)
		add(&a, "added", "of a");
	delete_there();
	meet_now();
	WAIT_UNTIL(is_deleted(&a, session) && is_deleted(&b, session)); // the steps follow a moment after the log
	step = ckpt_step_of_session(a.store, session);
	ck_ok(ckpt_undelete(step));
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(&a) && has_text(&b, NAME, "new.json", "new of b"));
	check_both("new.json", "new of b");
	check_both("added", _i ? "of a" : NULL);
	check_both("config.json", "of the save");
}
END_TEST

// _i: it has removed something only, so that nothing of it is to be saved.
START_TEST(amendment_of_what_has_expired_is_a_step_with_what_it_adds)
{
	const char *session = session_of(&b);
	struct ckpt_step *step;
	static char name[CKPT_NAME_MAX + 1];

	snprintf(name, sizeof(name), "%s", copy_of(NAME));
	if (!_i) {
		add(&b, "new.json", "new of b");
		set_mode(&b, "d/x", 0604);
	}
	take_out(&b, "config.json");
	delete_there();
	step = ckpt_step_of_session(a.store, session);
	ck_ok(ckpt_expire(step));
	ckpt_step_unref(step);
	push(&a);
	meet_now();
	if (_i) {
		WAIT_UNTIL(listed(&a) + listed(&b) == 0);
		return;
	}
	WAIT_UNTIL(has_text(&a, name, "new.json", "new of b"));
	check(name, "new.json", "new of b");
	check(name, "d/x", "of the save");
	check(name, "other.json", NULL);
	ck_assert(has_text(&a, name, "d/x", "of the save") && has_text(&a, name, "other.json", NULL));
	WAIT_UNTIL(listed(&a) == 1);
	WAIT_UNTIL(listed(&b) == 1);
}
END_TEST

// The expiry has come to b.
static bool is_alone(struct ckpt_step *step)
{
	struct ckpt_step_name is;

	while (pull_next(&b))
		;
	follow(&b);
	ckpt_step_name(step, &is);
	return ckpt_step_state(step) == CKPT_STEP_COMMITTED && strstr(is.name, CKPT_NAME_CONFLICT);
}

// The node dies before it deletes the step: the next one does. Nothing says until then that the step is one of this node, without a file.
START_TEST(what_has_expired_without_a_change_to_save_is_deleted_after_a_crash)
{
	const char *session = session_of(&b);
	struct ckpt_manifest *was = NULL;
	struct ckpt_step *step, *into = NULL;
	int rc;

	take_out(&b, "config.json");
	delete_there();
	step = ckpt_step_of_session(a.store, session);
	ck_ok(ckpt_expire(step));
	ckpt_step_unref(step);
	step = ckpt_step_of_session(b.store, session);
	WAIT_UNTIL(is_alone(step));
	{
		LOCK_SCOPE(&b.store->acts_lock);
		rc = ckpt_reunite(step, &into, &was);
	}
	ckpt_step_unref(step);
	ckpt_step_unref(into);
	ckpt_manifest_unref(was);
	ck_assert(!rc || rc == -ENODATA);
	meet_now();
	WAIT_UNTIL(listed(&a) + listed(&b) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote_merges");
	TCase *tcase = tcase_create("versions");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, additions_of_other_paths_are_both_there, 0, 2);
	tcase_add_test(tcase, removals_and_modes_of_other_paths_are_both_there);
	tcase_add_loop_test(tcase, metadata_of_both_stay, 0, 3);
	tcase_add_loop_test(tcase, metadata_of_one_stay_beside_a_file_of_the_other, 0, 2);
	tcase_add_test(tcase, metadata_that_one_has_not_changed_is_the_others);
	tcase_add_loop_test(tcase, mode_of_the_step_stays_beside_a_file_of_the_other, 0, 3);
	tcase_add_test(tcase, metrics_of_one_stay_beside_a_file_of_the_other);
	tcase_add_loop_test(tcase, addition_to_a_directory_that_the_other_moves_is_in_its_new_place, 0, 2);
	tcase_add_loop_test(tcase, mode_of_a_file_that_the_other_moves_goes_with_it, 0, 2);
	tcase_add_test(tcase, edit_of_a_file_that_the_other_moves_is_in_its_new_place);
	tcase_add_test(tcase, file_that_both_move_has_both_names);
	tcase_add_test(tcase, what_comes_after_a_merge_is_no_conflict);
	tcase_add_test(tcase, version_is_read_and_changed_before_the_step_follows);
	tcase_add_test(tcase, path_that_both_have_added_is_that_of_the_first);
	tcase_add_test(tcase, second_copy_of_a_path_has_a_number);
	tcase_add_test(tcase, removal_of_what_the_other_has_changed_is_dropped);
	tcase_add_test(tcase, change_of_what_the_other_has_removed_is_a_copy);
	tcase_add_test(tcase, mode_is_a_change_of_its_path);
	tcase_add_test(tcase, new_name_is_a_change_of_both_its_paths);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("gone");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, amendment_of_what_was_deleted_is_in_the_trash, 0, 2);
	tcase_add_test(tcase, what_has_expired_without_a_change_to_save_is_deleted_after_a_crash);
	tcase_add_loop_test(tcase, amendment_of_what_has_expired_is_a_step_with_what_it_adds, 0, 2);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
