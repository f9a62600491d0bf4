// Plain files of many nodes and their steps: trackers come after the steps that they name, and nodes that jump have both.
#include "tests/support/tree_nodes.h"

static bool lists(const struct node *n, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", name);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return is;
}

// The same as a mount's act when a client has closed it.
static void put_tracker(struct node *n, const char *text)
{
	put(n, "latest", text);
	ckpt_tree_take_name(ckpt_remote_tree(*ckpt_remote_of(n->store)), n->store->tree_fd, "latest");
}

// One node saves a step, then says so, then deletes the one before. Another never sees a tracker without its step.
// Another node has put entries of steps, so many that a snapshot behind them is worth a jump; the first node puts that.
static void put_snapshot_far(void)
{
	struct node *n = &nodes[0];
	uint64_t seq;

	close_node(n);
	mount_node(n);
	(void)ckpt_journal_look(n->store->journal, position_of, &seq);
	ckpt_remote_log_make(ckpt_near_there(n->store->objects), n->store->id, seq + 100, true);
	close_node(n);
	mount_node(n);
	ck_ok(ckpt_snapshots_put(n->store, true));
	ck_ok(ckpt_store_work_behind(n->store));
}

static int count_copy(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)object;
	*(unsigned *)arg += ckpt_snapshot_copy_number(key) != 0;
	return 0;
}

static unsigned jumps_of(const struct node *n)
{
	unsigned copies = 0;

	ck_ok(ckpt_objects_list(ckpt_near_here(n->store->objects), "snap/", NULL, count_copy, &copies));
	return copies;
}

static bool are_alike(void)
{
	CLEANUP_FREE char *first = list(&nodes[0]), *second = list(&nodes[1]), *third = list(&nodes[2]);

	return !strcmp(first, second) && !strcmp(first, third) && is_as_at(&nodes[0], &nodes[1], "run/model.pt") &&
	       is_as_at(&nodes[0], &nodes[2], "run/model.pt");
}

// With a large file, which comes later than the entry is read that names it.
static void wait_for_all(void)
{
	settle();
	WAIT_UNTIL(are_alike());
	settle();
	check_alike();
}

static void make_rich_tree(void)
{
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "run", 0750));
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "run/deep", 0755));
	put(&nodes[0], "run/deep/latest", "1000");
	put(&nodes[0], "gone", "is removed");
	put(&nodes[0], "empty", "");
	put_large(&nodes[0], "run/model.pt", 1, LARGE);
	ck_ok(ckpt_sys.symlink("deep/latest", nodes[0].store->tree_fd, "run/link"));
	put(&nodes[1], "config", "of the second");
	wait_for_all();
}

START_TEST(new_node_that_jumps_has_the_tree)
{
	make_rich_tree();
	close_node(&nodes[2]);
	*nodes[2].dir = '\0'; // a new one, with an empty work directory
	put_snapshot_far();
	open_node(&nodes[2]);
	ck_assert_uint_eq(jumps_of(&nodes[2]), 1);
	wait_for_all();
	ck_assert(all_have("run/deep/latest", "1000") && all_have("run/link", "1000") &&
		  all_have("config", "of the second"));
	put(&nodes[1], "config", "newer");
	put(&nodes[2], "run/deep/latest", "2000");
	WAIT_UNTIL(all_have("config", "newer") && all_have("run/deep/latest", "2000"));
	wait_for_all();
	close_node(&nodes[2]);
	open_node(&nodes[2]);
	wait_for_all();
}
END_TEST

// It was away while the tree changed, and has changed it itself.
START_TEST(old_node_that_jumps_gets_what_has_changed)
{
	CLEANUP_FREE char *listed = NULL;

	make_rich_tree();
	close_node(&nodes[2]);
	put(&nodes[0], "empty", "no more");
	put(&nodes[0], "config", "of the first");
	ck_ok(ckpt_sys.unlink(nodes[0].store->tree_fd, "gone", 0));
	ck_ok(ckpt_sys.rename(nodes[1].store->tree_fd, "run/deep", nodes[1].store->tree_fd, "deeper",
			      RENAME_NOREPLACE));
	touch(&nodes[0]);
	touch(&nodes[1]);
	WAIT_UNTIL(has(&nodes[1], "gone", NULL) && has(&nodes[0], "deeper/latest", "1000") &&
		   has(&nodes[1], "empty", "no more") && has(&nodes[1], "config", "of the first"));
	WAIT_UNTIL(is_idle(&nodes[0]) && is_idle(&nodes[1]));
	put_snapshot_far();
	put_while_down(&nodes[2], "config", "of the third");
	put_while_down(&nodes[2], "new", "made meanwhile");
	open_node(&nodes[2]);
	ck_assert_uint_eq(jumps_of(&nodes[2]), 1);
	wait_for_all();
	ck_assert(all_have("gone", NULL) && all_have("deeper/latest", "1000") && all_have("empty", "no more") &&
		  all_have("run/deep/latest", NULL) && all_have("new", "made meanwhile"));
	listed = list(&nodes[2]);
	ck_assert(has(&nodes[2], "config", "of the first"));
	ck_assert_uint_eq(count_in(listed, "config" CKPT_NAME_CONFLICT), 1);
	ck_assert_uint_eq(count_in(listed, "of the third"), 1);
}
END_TEST

START_TEST(tracker_comes_behind_its_step_and_before_what_was_deleted_later)
{
	static const unsigned saved[] = {0, 1};
	struct ckpt_step *first;

	ck_assert(!ckpt_save_steps[saved[0]].folder && !ckpt_save_steps[saved[1]].folder);
	first = ckpt_save_one(nodes[0].store, saved[0]);
	put_tracker(&nodes[0], ckpt_save_steps[saved[0]].name);
	ckpt_step_unref(ckpt_save_one(nodes[0].store, saved[1]));
	put_tracker(&nodes[0], ckpt_save_steps[saved[1]].name);
	ck_ok(ckpt_delete(first));
	ckpt_step_unref(first);
	for (unsigned tries = 0; tries < 4000 && lists(&nodes[1], ckpt_save_steps[saved[0]].name) +
							 !has(&nodes[1], "latest", ckpt_save_steps[saved[1]].name);
	     tries++) {
		for (size_t i = 0; i < ARRAY_LEN(saved); i++) {
			const char *name = ckpt_save_steps[saved[i]].name;

			if (has(&nodes[1], "latest", name) && !lists(&nodes[1], name))
				ck_assert_msg(!has(&nodes[1], "latest", name), "%s is not there", name);
		}
		wake();
	}
	ck_assert(has(&nodes[1], "latest", ckpt_save_steps[saved[1]].name));
	settle();
	check_alike();
}
END_TEST

// Each step is deleted when the next one is saved, faster than they are pushed: all of it comes through, and nothing waits for ever.
START_TEST(trackers_and_deletions_do_not_wait_for_each_other)
{
	static const unsigned saved[] = {0, 1, 4};
	struct ckpt_step *before, *step;

	ckpt_step_unref(ckpt_save_one(nodes[0].store, saved[0]));
	put_tracker(&nodes[0], ckpt_save_steps[saved[0]].name);
	WAIT_UNTIL(has(&nodes[1], "latest", ckpt_save_steps[saved[0]].name));
	settle();
	close_node(&nodes[0]);
	mount_node(&nodes[0]); // it pushes nothing yet
	before = ckpt_save_find(nodes[0].store, saved[0]);
	for (size_t i = 1; i < ARRAY_LEN(saved); i++) {
		ck_assert(!ckpt_save_steps[saved[i]].folder);
		step = ckpt_save_one(nodes[0].store, saved[i]);
		put_tracker(&nodes[0], ckpt_save_steps[saved[i]].name);
		ck_ok(ckpt_delete(before));
		ckpt_step_unref(before);
		before = step;
	}
	ckpt_step_unref(before);
	ck_ok(ckpt_store_work_behind(nodes[0].store));
	WAIT_UNTIL(has(&nodes[1], "latest", ckpt_save_steps[saved[2]].name) &&
		   !lists(&nodes[1], ckpt_save_steps[saved[0]].name));
	settle();
	ck_assert(lists(&nodes[1], ckpt_save_steps[saved[2]].name) &&
		  !lists(&nodes[1], ckpt_save_steps[saved[1]].name));
	check_alike();
}
END_TEST

START_TEST(steps_in_folders_are_in_them_everywhere)
{
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		ckpt_step_unref(ckpt_save_one(nodes[0].store, i));
	settle();
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_find(nodes[1].store, i);

		ck_assert_ptr_nonnull(step);
		ckpt_save_check_files(step, i);
		ckpt_step_unref(step);
	}
	check_alike();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tree steps");
	TCase *t = tcase_create("tree");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, new_node_that_jumps_has_the_tree);
	tcase_add_test(t, old_node_that_jumps_gets_what_has_changed);
	tcase_add_test(t, tracker_comes_behind_its_step_and_before_what_was_deleted_later);
	tcase_add_test(t, trackers_and_deletions_do_not_wait_for_each_other);
	tcase_add_test(t, steps_in_folders_are_in_them_everywhere);
	tcase_set_timeout(t, 60);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
