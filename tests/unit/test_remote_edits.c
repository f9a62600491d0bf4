// Changes of a committed step that are no version yet, when another node's change of the same step comes: none is lost, path by path.
// Entries of the other node are taken in when a test says so, as a PULL that the steps have not followed yet, or have.
#include "tests/support/two_nodes.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "core/save/amend.h"
#include "core/save/change.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/remove.h"
#include "core/save/reopen.h"
#include "core/save/replace.h"
#include "core/save/session.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/remote/arrival.h"
#include "core/save/reunite.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/older.h"
#include "core/step/removal.h"
#include "core/store/open.h"

// --- Edits that are open ------------------------------------------------------------------------------------------------

START_TEST(edit_of_the_same_file_is_the_next_version)
{
	struct ckpt_step *staged = reopen(&b);

	edit(staged, "config.json", "of b");
	edit_and_push(&a, "config.json", "of a");
	take_in(&b, _i);
	ck_ok(commit(staged));
	check(NAME, "config.json", "of b");
	check(NAME, "other.json", "of the save");
	ck_assert(has_older(&b, "config.json", "of a"));
	meet(NAME);
	check_no_conflict(&b);
	check_no_conflict(&a);
	ck_assert(has_older(&a, "config.json", "of a"));
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(edits_of_two_files_are_both_there)
{
	struct ckpt_step *staged = reopen(&b);

	edit_and_push(&a, "other.json", "of a");
	take_in(&b, _i);
	edit(staged, "config.json", "of b"); // after the other's came
	edit(staged, "new.json", "new of b");
	ck_ok(commit(staged));
	check(NAME, "config.json", "of b");
	check(NAME, "new.json", "new of b");
	check(NAME, "other.json", "of a");
	meet(NAME);
	check_no_conflict(&a);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(several_edits_come_while_one_is_open)
{
	struct ckpt_step *staged = reopen(&b);

	for (unsigned i = 0; i < 3; i++) {
		char text[16];

		snprintf(text, sizeof(text), "%u of a", i);
		edit_and_push(&a, i & 1 ? "d/x" : "other.json", text);
		take_in(&b, _i);
	}
	edit(staged, "config.json", "of b");
	ck_ok(commit(staged));
	check(NAME, "config.json", "of b");
	check(NAME, "other.json", "2 of a");
	check(NAME, "d/x", "1 of a");
	meet(NAME);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(removals_are_of_their_side)
{
	struct ckpt_step *staged = reopen(&b);

	edit(staged, "config.json", NULL);
	edit_and_push(&a, "other.json", NULL);
	take_in(&b, _i);
	ck_ok(commit(staged));
	check(NAME, "config.json", NULL);
	check(NAME, "other.json", NULL);
	check(NAME, "d/x", "of the save");
	meet(NAME);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(edit_is_quiet_after_another_came)
{
	struct ckpt_step *staged = reopen(&b);

	edit(staged, "config.json", "of b");
	ck_ok(ckpt_stage_enter(staged, true)); // somebody is about a change
	edit_and_push(&a, "config.json", "of a");
	work(&b);
	WAIT_UNTIL(position(&b) == position(&a));
	ckpt_stage_leave(staged);
	ckpt_staged_quiet(staged);
	WAIT_UNTIL(has_text(&b, NAME, "config.json", "of b"));
	meet(NAME);
	check_no_conflict(&a);
	ck_assert_uint_eq(ckpt_save_errors(b.store, NAME), 0);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(addition_comes_while_an_edit_is_open)
{
	struct ckpt_step *staged = reopen(&b);

	add_and_push(&a, "new.json", "new of a");
	take_in(&b, _i);
	edit(staged, "config.json", "of b");
	ck_ok(commit(staged));
	check(NAME, "config.json", "of b");
	check(NAME, "new.json", "new of a");
	meet(NAME);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(renamed_meanwhile)
{
	struct ckpt_step *staged = reopen(&b), *step = find(&a, NAME);

	edit(staged, "config.json", "of b");
	ck_ok(ckpt_move(step, "", "best"));
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(&a));
	take_in(&b, FOLLOWED);
	ck_assert_str_eq(staged->name, "best");
	ck_ok(commit(staged));
	check("best", "config.json", "of b");
	ck_assert(!has_text(&b, NAME, "config.json", "of b"));
	meet("best");
	ckpt_step_unref(staged);
}
END_TEST

// --- The step is gone -----------------------------------------------------------------------------------------------------

static void check_kept(struct ckpt_step *staged)
{
	char text[16] = "";
	CLEANUP_FD int fd = -1;

	ckpt_staged_quiet(staged);
	for (unsigned i = 0; i < TRIES && ckpt_step_state(staged) != CKPT_STEP_LEFT; i++) {
		ckpt_staged_quiet(staged);
		ckpt_sys.sleep_ns(TRY_NS);
	}
	ck_assert_int_eq(ckpt_step_state(staged), CKPT_STEP_LEFT);
	ck_assert_uint_ge(ckpt_save_errors(b.store, "another node has deleted"), 1);
	fd = openat(staged->dirfd, "config.json", O_RDONLY);
	ck_assert_int_eq(read(fd, text, sizeof(text) - 1), 4);
	ck_assert_str_eq(text, "of b");
}

START_TEST(deleted_meanwhile)
{
	struct ckpt_step *staged = reopen(&b), *step = find(&a, NAME);

	edit(staged, "config.json", "of b");
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(&a));
	take_in(&b, _i);
	ck_error(commit(staged), ESTALE);
	check_kept(staged);
	ck_assert_ptr_null(ckpt_step_find(b.store, "", NAME));
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(saved_over_meanwhile)
{
	const struct ckpt_commit how = {.folder_id = "", .name = NAME, .event = "verb", .profile = "generic"};
	struct ckpt_step *staged = reopen(&b), *step, *replaced;

	edit(staged, "config.json", "of b");
	ck_ok(ckpt_replace_begin(a.store, "", NAME, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "config.json", "saved over"));
	ck_ok(ckpt_replace_commit(step, &how, &replaced));
	ckpt_step_unref(replaced);
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(&a));
	take_in(&b, _i);
	ck_error(commit(staged), ESTALE);
	check_kept(staged);
	check(NAME, "config.json", "saved over");
	ckpt_step_unref(staged);
}
END_TEST

static bool has_plain(const struct node *n, const char *name)
{
	return !faccessat(n->store->tree_fd, name, F_OK, 0);
}

static bool waits_for_nothing(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps && !q.files;
}

// Neither the deletion nor a plain file behind it waits for bytes of the change. _i: it was the other node that has deleted the step.
START_TEST(deletion_waits_for_no_change_before_it)
{
	char session[CKPT_UUID_LEN + 1], raw[CKPT_AMENDING_RAW_MAX];
	struct ckpt_step *step = find(&b, NAME), *theirs = find(&a, NAME);

	memcpy(session, step->session, sizeof(session));
	ck_ok(put_added(step, "new.json", "new of b", raw));
	ck_ok(ckpt_amend_add(step, "new.json"));
	ckpt_amending_forget(step, "new.json");
	ck_ok(ckpt_delete(_i ? theirs : step));
	if (_i) {
		WAIT_UNTIL(is_idle(&a));
		take_in(&b, FOLLOWED);
		ck_assert(is_deleted(&b, session));
	}
	close(openat(b.store->tree_fd, "later", O_WRONLY | O_CREAT, 0644));
	work(&b);
	ckpt_tree_touch(ckpt_remote_tree(*ckpt_remote_of(b.store)));
	WAIT_UNTIL(is_deleted(&a, session) && waits_for_nothing(&b) && has_plain(&a, "later"));
	ck_ok(ckpt_undelete(step));
	WAIT_UNTIL(has_text(&a, NAME, "new.json", "new of b"));
	ckpt_step_unref(step);
	ckpt_step_unref(theirs);
}
END_TEST

// --- Versions that meet ---------------------------------------------------------------------------------------------------

START_TEST(two_edits_that_are_versions_are_one_step)
{
	struct ckpt_step *staged = reopen(&b);

	edit(staged, "config.json", "of b");
	edit(staged, "new.json", "new of b");
	ck_ok(commit(staged));
	ckpt_step_unref(staged);
	if (_i) { // and one more on top of it
		staged = reopen(&b);
		edit(staged, "new.json", "newer of b");
		ck_ok(commit(staged));
		ckpt_step_unref(staged);
	}
	edit_and_push(&a, "other.json", "of a");
	edit_and_push(&a, "config.json", "of a");
	meet(NAME);
	check_no_conflict(&a);
	check_no_conflict(&b);
	check(NAME, "config.json", "of a"); // the first in the log
	check(NAME, copy_of("config.json"), "of b");
	WAIT_UNTIL(has_text(&a, NAME, copy_of("config.json"), "of b"));
	check(NAME, "other.json", "of a");
	check(NAME, "new.json", _i ? "newer of b" : "new of b");
	ck_assert_uint_eq(ckpt_save_errors(b.store, NAME), 1);
}
END_TEST

// It is put into the other node's edit, and who waits for it waits for that: a third node has both then.
START_TEST(edit_has_arrived_when_what_it_was_put_into_has)
{
	struct ckpt_step *staged = reopen(&b), *into;
	struct ckpt_arrival arrival = {0};
	struct ckpt_manifest *was;
	struct node c = {0};
	int rc = -EAGAIN;

	edit(staged, "other.json", "of b");
	ck_ok(commit(staged));
	memcpy(arrival.session, staged->session, sizeof(arrival.session));
	edit_and_push(&a, "config.json", "of a");
	take_in(&b, FOLLOWED);
	ck_error(ckpt_arrival_look(b.store, &arrival), EAGAIN);
	ckpt_lock_take(&b.store->acts_lock);
	ck_ok(ckpt_reunite(staged, &into, &was));
	ckpt_lock_drop(&b.store->acts_lock);
	ck_ok(ckpt_delete(staged));
	ck_error(ckpt_arrival_look(b.store, &arrival), EAGAIN);
	ckpt_manifest_unref(was);
	ckpt_step_unref(into);
	ckpt_step_unref(staged);
	work(&b);
	for (unsigned i = 0; i < TRIES * 10 && rc == -EAGAIN; i++) {
		rc = ckpt_arrival_look(b.store, &arrival);
		ckpt_sys.sleep_ns(TRY_NS / 20);
	}
	ck_ok(rc);
	open_node(&c);
	ck_assert(has_text(&c, NAME, "other.json", "of b"));
	ck_assert(has_text(&c, NAME, "config.json", "of a"));
	close_node(&c);
}
END_TEST

// They are in no edit, but versions of the step itself, whose place another step takes.
START_TEST(changes_that_are_versions_are_in_the_edit_that_comes)
{
	const struct ckpt_attributes_new what = {.which = CKPT_ATTRIBUTE_MODE, .mode = 0604};
	struct ckpt_step *step = find(&b, NAME);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	char raw[CKPT_AMENDING_RAW_MAX];
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_remove_entry(step, m, 0, "config.json", false, 0));
	ckpt_manifest_unref(m);
	ck_ok(ckpt_remove_publish(step));
	ck_ok(put_added(step, "new.json", "new of b", raw));
	ck_ok(ckpt_amend_add(step, "new.json"));
	ckpt_amending_forget(step, "new.json");
	m = ckpt_staged_manifest(step);
	ck_ok(ckpt_manifest_lookup(m, "d/x", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_change_attributes(step, m, &e, &what));
	ck_ok(ckpt_change_publish(step));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	edit_and_push(&a, "other.json", "of a");
	work(&b);
	WAIT_UNTIL(has_text(&b, NAME, "other.json", "of a") && has_text(&b, NAME, "new.json", "new of b"));
	check(NAME, "config.json", NULL);
	ck_assert_uint_eq(mode_of(&b, "d/x"), 0604);
	WAIT_UNTIL(is_idle(&b));
	WAIT_UNTIL(has_text(&a, NAME, "new.json", "new of b"));
	ck_assert(has_text(&a, NAME, "config.json", NULL));
	edit_and_push(&a, "new.json", "newer of a"); // what was put together stays so
	WAIT_UNTIL(position(&a) == position(&b) && has_text(&b, NAME, "new.json", "newer of a"));
	check_no_conflict(&a);
}
END_TEST

// The other way round: the edit is there first, and a change of the step that it has taken the place of comes.
START_TEST(edit_that_is_a_version_has_what_comes_to_the_step_before_it)
{
	struct ckpt_step *step, *staged = reopen(&b);
	struct ckpt_manifest *m;

	edit(staged, "other.json", "of b");
	ck_ok(commit(staged));
	ckpt_step_unref(staged);
	step = find(&a, NAME);
	m = ckpt_staged_manifest(step);
	ck_ok(ckpt_remove_entry(step, m, 0, "config.json", false, 0));
	ckpt_manifest_unref(m);
	ck_ok(ckpt_remove_publish(step));
	ckpt_step_unref(step);
	add_and_push(&a, "new.json", "new of a");
	work(&b);
	WAIT_UNTIL(has_text(&b, NAME, "new.json", "new of a"));
	check(NAME, "other.json", "of b");
	check(NAME, "config.json", NULL);
	meet(NAME);
	check_no_conflict(&a);
	check_no_conflict(&b);
}
END_TEST

// --- Neighbours -----------------------------------------------------------------------------------------------------------

// The act of the other node meanwhile: it edits a file, or adds one.
static void change_there(bool adds, const char *path)
{
	if (adds)
		add_and_push(&a, path, "of a");
	else
		edit_and_push(&a, path, "of a");
}

START_TEST(addition_that_is_open)
{
	struct ckpt_step *step = find(&b, NAME);
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(put_added(step, "new.json", "new of b", raw));
	change_there(_i & 2, _i & 2 ? "added" : "other.json");
	take_in(&b, _i & 1);
	ck_ok(ckpt_amend_add(step, "new.json"));
	ckpt_step_unref(step);
	follow(&b);
	check(NAME, "new.json", "new of b");
	check(NAME, _i & 2 ? "added" : "other.json", "of a");
	meet(NAME);
}
END_TEST

START_TEST(addition_of_a_file_that_the_other_adds_too)
{
	struct ckpt_step *step = find(&b, NAME);
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(put_added(step, "new.json", "new of b", raw));
	change_there(true, "new.json");
	take_in(&b, _i);
	ck_ok(ckpt_amend_add(step, "new.json"));
	ckpt_step_unref(step);
	check(NAME, "new.json", "new of b");
	ck_assert(has_older(&b, "new.json", "of a"));
	meet(NAME);
}
END_TEST

START_TEST(removal_that_is_marked)
{
	struct ckpt_step *step = find(&b, NAME);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);

	ck_ok(ckpt_remove_entry(step, m, 0, "config.json", false, 0));
	ckpt_manifest_unref(m);
	change_there(_i & 2, _i & 2 ? "added" : "other.json");
	take_in(&b, _i & 1);
	ck_ok(ckpt_remove_publish(step));
	ck_assert(!ckpt_removal_any(step));
	ckpt_step_unref(step);
	follow(&b);
	check(NAME, "config.json", NULL);
	check(NAME, _i & 2 ? "added" : "other.json", "of a");
	meet(NAME);
}
END_TEST

START_TEST(removal_of_a_folder_into_which_the_other_puts_a_file)
{
	struct ckpt_step *step = find(&b, NAME);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	uint32_t dir;

	ck_ok(ckpt_manifest_lookup(m, "d", &dir));
	ck_ok(ckpt_remove_entry(step, m, dir, "x", false, 0));
	ck_ok(ckpt_remove_entry(step, m, 0, "d", true, 0));
	ckpt_manifest_unref(m);
	change_there(false, "d/y");
	take_in(&b, _i);
	ck_ok(ckpt_remove_publish(step));
	ckpt_step_unref(step);
	check(NAME, "d/x", NULL);
	check(NAME, "d/y", "of a");
	meet(NAME);
}
END_TEST

START_TEST(attributes_that_are_pending)
{
	const struct ckpt_attributes_new what = {.which = CKPT_ATTRIBUTE_MODE, .mode = 0604};
	struct ckpt_step *step = find(&b, NAME);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "config.json", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_change_attributes(step, m, &e, &what));
	ck_ok(ckpt_change_xattr(step, m, &e, "user.of", "b", 1, 0));
	ckpt_manifest_unref(m);
	change_there(_i & 2, _i & 2 ? "added" : _i & 4 ? "config.json" : "other.json");
	take_in(&b, _i & 1);
	(void)ckpt_change_publish(step); // of a step that has a successor its thread does it
	ckpt_step_unref(step);
	follow(&b);
	WAIT_UNTIL(mode_of(&b, "config.json") == 0604);
	check(NAME, "config.json", _i & 4 && !(_i & 2) ? "of a" : "of the save");
	meet(NAME);
	WAIT_UNTIL(mode_of(&a, "config.json") == 0604);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote_edits");
	TCase *tcase = tcase_create("edits");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, edit_of_the_same_file_is_the_next_version, 0, WAYS);
	tcase_add_loop_test(tcase, edits_of_two_files_are_both_there, 0, WAYS);
	tcase_add_loop_test(tcase, several_edits_come_while_one_is_open, 0, WAYS);
	tcase_add_loop_test(tcase, removals_are_of_their_side, 0, WAYS);
	tcase_add_test(tcase, edit_is_quiet_after_another_came);
	tcase_add_loop_test(tcase, addition_comes_while_an_edit_is_open, 0, WAYS);
	tcase_add_test(tcase, renamed_meanwhile);
	tcase_add_loop_test(tcase, deleted_meanwhile, 0, WAYS);
	tcase_add_loop_test(tcase, saved_over_meanwhile, 0, WAYS);
	tcase_add_loop_test(tcase, deletion_waits_for_no_change_before_it, 0, 2);
	tcase_add_loop_test(tcase, two_edits_that_are_versions_are_one_step, 0, 2);
	tcase_add_test(tcase, edit_has_arrived_when_what_it_was_put_into_has);
	tcase_add_test(tcase, changes_that_are_versions_are_in_the_edit_that_comes);
	tcase_add_test(tcase, edit_that_is_a_version_has_what_comes_to_the_step_before_it);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("neighbours");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, addition_that_is_open, 0, 4);
	tcase_add_loop_test(tcase, addition_of_a_file_that_the_other_adds_too, 0, WAYS);
	tcase_add_loop_test(tcase, removal_that_is_marked, 0, 4);
	tcase_add_loop_test(tcase, removal_of_a_folder_into_which_the_other_puts_a_file, 0, WAYS);
	tcase_add_loop_test(tcase, attributes_that_are_pending, 0, 6);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
