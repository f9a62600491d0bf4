// The plain trees of nodes with one remote, here a directory that they share: they come to be alike, and no content is lost.
#include "tests/support/tree_nodes.h"

// --- One thing at a time ----------------------------------------------------------------------------------------------------

START_TEST(file_and_folder_come_to_all)
{
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "run", 0750));
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "run/deep", 0755));
	put(&nodes[0], "run/deep/latest", "1000");
	put(&nodes[0], "empty", "");
	ck_ok(ckpt_sys.symlink("deep/latest", nodes[0].store->tree_fd, "run/link"));
	WAIT_UNTIL(all_have("run/deep/latest", "1000") && all_have("empty", "") && all_have("run/link", "1000"));
	settle();
	check_alike();
}
END_TEST

static size_t count_packs(void)
{
	char dir[PATH_MAX + 8];
	size_t count = 0;
	struct dirent *d;
	DIR *packs;

	snprintf(dir, sizeof(dir), "%s/packs", remote_dir);
	packs = opendir(dir);
	while (packs && (d = readdir(packs)))
		count += *d->d_name != '.';
	if (packs)
		closedir(packs);
	return count;
}

START_TEST(large_file_comes_to_all)
{
	put_large(&nodes[0], "model.pt", 1, LARGE);
	WAIT_UNTIL(is_as_at(&nodes[0], &nodes[1], "model.pt") && is_as_at(&nodes[0], &nodes[2], "model.pt"));
	settle();
	check_alike();
	ck_assert_uint_eq(count_packs(), 1);
	put_large(&nodes[1], "model.pt", 2, LARGE);
	WAIT_UNTIL(is_as_at(&nodes[1], &nodes[0], "model.pt"));
	put_large(&nodes[1], "model.pt", 2, 100); // so small that it stands in the log
	WAIT_UNTIL(is_as_at(&nodes[1], &nodes[0], "model.pt"));
	settle();
	check_alike();
}
END_TEST

START_TEST(newer_content_and_removal_come_to_all)
{
	struct stat before, after;

	put(&nodes[0], "latest", "1000");
	WAIT_UNTIL(all_have("latest", "1000"));
	settle();
	put(&nodes[1], "latest", "2000");
	WAIT_UNTIL(all_have("latest", "2000"));
	settle();
	ck_assert_int_eq(fstatat(nodes[2].store->tree_fd, "latest", &before, 0), 0);
	ck_ok(ckpt_sys.unlink(nodes[2].store->tree_fd, "latest", 0));
	touch(&nodes[2]);
	WAIT_UNTIL(all_have("latest", NULL));
	settle();
	put(&nodes[0], "latest", "3000");
	WAIT_UNTIL(all_have("latest", "3000"));
	ck_assert_int_eq(fstatat(nodes[2].store->tree_fd, "latest", &after, 0), 0);
	ck_assert_int_ne(before.st_ino, after.st_ino);
	check_alike();
}
END_TEST

START_TEST(replaced_file_is_a_new_content_of_its_path)
{
	put(&nodes[0], "latest", "1000");
	WAIT_UNTIL(all_have("latest", "1000"));
	settle();
	put(&nodes[1], "latest.tmp", "2000");
	ck_ok(ckpt_sys.rename(nodes[1].store->tree_fd, "latest.tmp", nodes[1].store->tree_fd, "latest", 0));
	touch(&nodes[1]);
	WAIT_UNTIL(all_have("latest", "2000"));
	settle();
	check_alike();
	ck_assert(all_have("latest.tmp", NULL));
}
END_TEST

START_TEST(of_two_contents_made_at_once_both_stay)
{
	CLEANUP_FREE char *listed = NULL;

	put(&nodes[0], "notes", "first");
	WAIT_UNTIL(all_have("notes", "first"));
	settle();
	close_node(&nodes[1]);
	put(&nodes[0], "notes", "of the one");
	WAIT_UNTIL(is_idle(&nodes[0]) && has(&nodes[2], "notes", "of the one"));
	put_while_down(&nodes[1], "notes", "of the other");
	open_node(&nodes[1]);
	WAIT_UNTIL(all_have("notes", "of the one"));
	settle();
	check_alike();
	listed = list(&nodes[2]);
	ck_assert_uint_eq(count_in(listed, "notes" CKPT_NAME_CONFLICT), 1);
	ck_assert_uint_eq(count_in(listed, "of the other"), 1);
}
END_TEST

START_TEST(folder_that_two_nodes_make_is_one)
{
	for (size_t i = 0; i < NODES; i++) {
		char path[32];

		ck_ok(ckpt_sys.mkdir(nodes[i].store->tree_fd, "ckpts", 0755));
		snprintf(path, sizeof(path), "ckpts/of-%zu", i);
		put(&nodes[i], path, path);
	}
	WAIT_UNTIL(all_have("ckpts/of-0", "ckpts/of-0") && all_have("ckpts/of-1", "ckpts/of-1") &&
		   all_have("ckpts/of-2", "ckpts/of-2"));
	settle();
	check_alike();
}
END_TEST

START_TEST(folder_is_renamed_with_all_that_is_in_it)
{
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "a", 0755));
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "b", 0755));
	put(&nodes[0], "a/file", "text");
	WAIT_UNTIL(all_have("a/file", "text"));
	settle();
	ck_ok(ckpt_sys.rename(nodes[1].store->tree_fd, "a", nodes[1].store->tree_fd, "b/c", 0));
	put(&nodes[2], "a/other", "made meanwhile");
	touch(&nodes[1]);
	WAIT_UNTIL(all_have("b/c/file", "text") && all_have("b/c/other", "made meanwhile"));
	settle();
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "a", 0755)); // another one, that has the name
	put(&nodes[0], "a/file", "of the new one");
	WAIT_UNTIL(all_have("a/file", "of the new one"));
	settle();
	check_alike();
}
END_TEST

START_TEST(folder_that_is_removed_goes_unless_something_new_is_in_it)
{
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "a", 0755));
	put(&nodes[0], "a/file", "text");
	WAIT_UNTIL(all_have("a/file", "text"));
	settle();
	ck_ok(ckpt_sys.unlink(nodes[1].store->tree_fd, "a/file", 0));
	ck_ok(ckpt_sys.unlink(nodes[1].store->tree_fd, "a", AT_REMOVEDIR));
	put(&nodes[2], "a/new", "made meanwhile");
	touch(&nodes[1]);
	WAIT_UNTIL(all_have("a/new", "made meanwhile") && all_have("a/file", NULL));
	settle();
	check_alike();
	ck_ok(ckpt_sys.unlink(nodes[1].store->tree_fd, "a/new", 0));
	ck_ok(ckpt_sys.unlink(nodes[1].store->tree_fd, "a", AT_REMOVEDIR));
	touch(&nodes[1]);
	WAIT_UNTIL(all_have("a", NULL) && all_have("a/new", NULL));
	settle();
	check_alike();
}
END_TEST

// Two nodes, each of which has not seen what the other did. The second has no place for its change; but nothing is sent again and again.
START_TEST(folders_that_are_moved_into_each_other_end_nowhere)
{
	struct node *one = &nodes[0], *other = &nodes[1];
	uint64_t at, later;
	int tree;

	ck_ok(ckpt_sys.mkdir(one->store->tree_fd, "a", 0755));
	ck_ok(ckpt_sys.mkdir(one->store->tree_fd, "b", 0755));
	put(one, "a/x", "of a");
	put(one, "b/y", "of b");
	WAIT_UNTIL(all_have("a/x", "of a") && all_have("b/y", "of b"));
	settle();
	close_node(other);
	ck_ok(ckpt_sys.rename(one->store->tree_fd, "b", one->store->tree_fd, "a/b", 0));
	touch(one);
	WAIT_UNTIL(has(&nodes[2], "a/b/y", "of b"));
	tree = open(other->tree, O_RDONLY | O_DIRECTORY);
	ck_ok(ckpt_sys.rename(tree, "a", tree, "b/a", 0));
	close(tree);
	open_node(other);
	put(other, "b/z", "later");
	for (unsigned i = 0; i < 400; i++)
		wake();
	(void)ckpt_journal_look(one->store->journal, position_of, &at);
	for (unsigned i = 0; i < 200; i++)
		wake();
	(void)ckpt_journal_look(one->store->journal, position_of, &later);
	ck_assert_uint_le(later, at + 4);
	ck_assert(has(one, "a/x", "of a") && has(one, "a/b/y", "of b"));
}
END_TEST

// A node that was away finds that the name is another folder's by now.
START_TEST(folder_whose_name_another_has_got_is_the_same_on_all)
{
	CLEANUP_FREE char *listed = NULL;

	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "run", 0755));
	put(&nodes[0], "run/file", "of the old one");
	WAIT_UNTIL(all_have("run/file", "of the old one"));
	settle();
	close_node(&nodes[1]);
	ck_ok(ckpt_sys.rename(nodes[0].store->tree_fd, "run", nodes[0].store->tree_fd, "run.old", 0));
	ck_ok(ckpt_sys.mkdir(nodes[0].store->tree_fd, "run", 0755));
	put(&nodes[0], "run/file", "of the new one");
	WAIT_UNTIL(has(&nodes[2], "run/file", "of the new one") && has(&nodes[2], "run.old/file", "of the old one"));
	open_node(&nodes[1]);
	WAIT_UNTIL(all_have("run/file", "of the new one") && all_have("run.old/file", "of the old one"));
	settle();
	check_alike();
	listed = list(&nodes[1]);
	ck_assert_ptr_null(strstr(listed, CKPT_NAME_CONFLICT));
}
END_TEST

START_TEST(mode_comes_to_all)
{
	struct stat st;

	put(&nodes[0], "run.sh", "#!/bin/sh");
	WAIT_UNTIL(all_have("run.sh", "#!/bin/sh"));
	settle();
	ck_assert_int_eq(fchmodat(nodes[1].store->tree_fd, "run.sh", 0755, 0), 0);
	touch(&nodes[1]);
	WAIT_UNTIL(!fstatat(nodes[2].store->tree_fd, "run.sh", &st, 0) && (st.st_mode & 0777) == 0755);
	settle();
	check_alike();
}
END_TEST

START_TEST(lost_table_loses_nothing)
{
	struct node *n = &nodes[1];

	put(&nodes[0], "same", "text");
	put(&nodes[0], "changed", "before");
	WAIT_UNTIL(all_have("same", "text") && all_have("changed", "before"));
	settle();
	ck_ok(ckpt_sys.unlink(n->store->dirfd, "tree.json", 0));
	close_node(n);
	put(&nodes[0], "changed", "after");
	WAIT_UNTIL(is_idle(&nodes[0]));
	open_node(n);
	WAIT_UNTIL(all_have("changed", "after"));
	settle();
	check_alike();
}
END_TEST

// --- At random --------------------------------------------------------------------------------------------------------------

static unsigned written;

static void random_path(char *path, size_t cap)
{
	static const char *const folders[] = {"", "", "a/", "b/", "a/b/", "c/"};

	snprintf(path, cap, "%s%c", folders[rand() % ARRAY_LEN(folders)], "xyz"[rand() % 3]);
}

static void write_something(int tree, const char *path)
{
	char text[64];
	int fd = openat(tree, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		return;
	snprintf(text, sizeof(text), "content %u.", ++written);
	(void)!write(fd, text, strlen(text));
	close(fd);
}

static void random_act(int tree)
{
	static const char *const folders[] = {"a", "b", "a/b", "c", "b/c"};
	const char *one = folders[rand() % ARRAY_LEN(folders)], *other = folders[rand() % ARRAY_LEN(folders)];
	char path[64], from[64];

	random_path(path, sizeof(path));
	random_path(from, sizeof(from));
	switch (rand() % 9) {
	case 0:
	case 1:
		(void)ckpt_sys.mkdir(tree, one, 0755);
		break;
	case 2:
		(void)ckpt_sys.unlink(tree, path, 0);
		break;
	case 3:
		(void)ckpt_sys.unlink(tree, one, AT_REMOVEDIR);
		break;
	case 4:
		(void)ckpt_sys.rename(tree, one, tree, other, RENAME_NOREPLACE);
		break;
	case 5:
		(void)ckpt_sys.rename(tree, from, tree, path, RENAME_NOREPLACE);
		break;
	default:
		write_something(tree, path);
	}
}

static void act_while_up(void)
{
	for (unsigned i = 0; i < 12; i++) {
		struct node *n = &nodes[rand() % NODES];

		random_act(n->store->tree_fd);
		touch(n);
		if (!(rand() % 3))
			wake();
		if (!(rand() % 20)) {
			close_node(n);
			open_node(n);
		}
	}
}

// Nobody has seen what another did: each content that a node has then is there afterwards.
static void act_while_down(char *ret_listed[NODES])
{
	for (size_t i = 0; i < NODES; i++)
		close_node(&nodes[i]);
	for (size_t i = 0; i < NODES; i++) {
		int tree = open(nodes[i].tree, O_RDONLY | O_DIRECTORY);

		for (unsigned k = 0; k < 5; k++)
			random_act(tree);
		close(tree);
		ret_listed[i] = list(&nodes[i]);
	}
	for (size_t i = 0; i < NODES; i++)
		open_node(&nodes[i]);
}

static void check_contents(char *before[NODES], unsigned since)
{
	CLEANUP_FREE char *after = list(&nodes[0]);

	for (unsigned k = since; k <= written; k++)
		for (size_t i = 0; i < NODES; i++) {
			char text[32];

			snprintf(text, sizeof(text), "content %u.", k);
			if (strstr(before[i], text))
				ck_assert_msg(strstr(after, text), "%s is lost, of\n%s\n%s", text, before[i], after);
		}
	for (size_t i = 0; i < NODES; i++)
		free(before[i]);
}

START_TEST(whatever_nodes_do_they_come_to_be_alike)
{
	srand((unsigned)_i + 1);
	for (unsigned round = 0; round < 6; round++) {
		char *before[NODES];
		unsigned since = written + 1;
		bool down = rand() % 2;

		if (down)
			act_while_down(before);
		else
			act_while_up();
		settle();
		check_alike();
		if (down)
			check_contents(before, since);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tree");
	TCase *t = tcase_create("tree"), *random = tcase_create("random");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, file_and_folder_come_to_all);
	tcase_add_test(t, large_file_comes_to_all);
	tcase_add_test(t, newer_content_and_removal_come_to_all);
	tcase_add_test(t, replaced_file_is_a_new_content_of_its_path);
	tcase_add_test(t, of_two_contents_made_at_once_both_stay);
	tcase_add_test(t, folder_that_two_nodes_make_is_one);
	tcase_add_test(t, folder_is_renamed_with_all_that_is_in_it);
	tcase_add_test(t, folder_that_is_removed_goes_unless_something_new_is_in_it);
	tcase_add_test(t, lost_table_loses_nothing);
	tcase_add_test(t, folders_that_are_moved_into_each_other_end_nowhere);
	tcase_add_test(t, folder_whose_name_another_has_got_is_the_same_on_all);
	tcase_add_test(t, mode_comes_to_all);
	tcase_add_checked_fixture(random, setup, teardown);
	tcase_set_timeout(random, 120);
	tcase_add_loop_test(random, whatever_nodes_do_they_come_to_be_alike, 0, ckpt_suite_full() ? 200 : 6);
	suite_add_tcase(s, t);
	suite_add_tcase(s, random);
	return ckpt_suite_run(s);
}
