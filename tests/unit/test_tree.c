// The plain trees of nodes with one remote, here a directory that they share: they come to be alike, and no content is lost.
#include "tests/support/hooks.h"
#include "tests/support/remote_log.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/snapshots.h"
#include "core/remote/tree.h"
#include "core/save/delete.h"
#include "core/store/open.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES 3
#define FAST 50 // times as fast as the clock goes, by which a node waits between two looks

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

struct node {
	char dir[PATH_MAX], tree[PATH_MAX];
	struct ckpt_store *store;
};

static struct node nodes[NODES];

static int64_t fast_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec * INT64_C(1000000000) + t.tv_nsec) * FAST;
}

// No file is young.
static int64_t later_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (t.tv_sec + 60) * INT64_C(1000000000) + t.tv_nsec;
}

static void mount_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	if (!*n->dir)
		ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
	snprintf(n->tree, sizeof(n->tree), "%.4000s/tree", path);
}

static void open_node(struct node *n)
{
	mount_node(n);
	ck_ok(ckpt_store_work_behind(n->store));
}

static void close_node(struct node *n)
{
	ckpt_store_rest(n->store);
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
}

static void setup(void)
{
	ckpt_hook_set(mono_ns, fast_mono_ns);
	ckpt_hook_set(now_ns, later_ns);
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	memset(nodes, 0, sizeof(nodes));
	for (size_t i = 0; i < NODES; i++)
		open_node(&nodes[i]);
}

static void teardown(void)
{
	for (size_t i = 0; i < NODES; i++)
		close_node(&nodes[i]);
}

// --- A node's tree --------------------------------------------------------------------------------------------------------

static void touch(struct node *n)
{
	ckpt_tree_touch(ckpt_remote_tree(*ckpt_remote_of(n->store)));
}

static void put(struct node *n, const char *path, const char *text)
{
	int fd = openat(n->store->tree_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	touch(n);
}

static void put_while_down(const struct node *n, const char *name, const char *text)
{
	char path[PATH_MAX + 64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", n->tree, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static bool has(struct node *n, const char *path, const char *text)
{
	char is[4096] = "";
	int fd = openat(n->store->tree_fd, path, O_RDONLY);

	if (fd < 0)
		return !text;
	(void)!read(fd, is, sizeof(is) - 1);
	close(fd);
	return text && !strcmp(is, text);
}

static bool all_have(const char *path, const char *text)
{
	for (size_t i = 0; i < NODES; i++)
		if (!has(&nodes[i], path, text))
			return false;
	return true;
}

static bool is_idle(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps && !q.files;
}

static void wake(void)
{
	for (size_t i = 0; i < NODES; i++)
		if (nodes[i].store)
			ckpt_remote_wake(*ckpt_remote_of(nodes[i].store));
	usleep(5000);
}

#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < 4000, "in vain: %s", #is_so);                                            \
			wake();                                                                                        \
		}                                                                                                      \
	} while (0)

static char *listing;
static size_t listing_len, listing_top;
static FILE *listing_file;

static int add_to_listing(const char *path, const struct stat *st, int type, struct FTW *at)
{
	char text[4096] = "";
	int fd;

	(void)at;
	if (strlen(path) <= listing_top)
		return 0;
	if (type == FTW_F && (fd = open(path, O_RDONLY)) >= 0) {
		(void)!read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (type == FTW_SL)
		(void)!readlink(path, text, sizeof(text) - 1);
	fprintf(listing_file, "%s %o %s\n", path + listing_top, st->st_mode, text);
	return 0;
}

static int by_line(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

// Sorted lines of path, mode and content; the caller's.
static char *list(struct node *n)
{
	char top[PATH_MAX + 8], *lines[4096], *sorted = NULL, *save = NULL;
	size_t count = 0, len = 0;
	FILE *out;

	snprintf(top, sizeof(top), "%s", n->tree);
	listing_top = strlen(top);
	listing_file = open_memstream(&listing, &listing_len);
	ck_assert_int_eq(nftw(top, add_to_listing, 16, FTW_PHYS), 0);
	fclose(listing_file);
	for (char *line = strtok_r(listing, "\n", &save); line && count < ARRAY_LEN(lines);
	     line = strtok_r(NULL, "\n", &save))
		lines[count++] = line;
	qsort(lines, count, sizeof(*lines), by_line);
	out = open_memstream(&sorted, &len);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s\n", lines[i]);
	fclose(out);
	free(listing);
	return sorted;
}

static int position_of(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

// All have pushed what they had, and read what the others pushed; twice, for what reading leads to.
static void settle(void)
{
	for (unsigned calm = 0, tries = 0; calm < 20; tries++) {
		uint64_t at[NODES];
		bool alike = true;

		if (tries == 6000) {
			for (size_t i = 0; i < NODES; i++) {
				CLEANUP_FREE char *listed = list(&nodes[i]);
				struct ckpt_remote_queue q;

				ckpt_remote_queue(*ckpt_remote_of(nodes[i].store), &q);
				fprintf(stderr, "node %zu: %llu steps, %llu changes\n%s", i,
					(unsigned long long)q.steps, (unsigned long long)q.files, listed);
			}
			ck_abort_msg("the nodes never come to rest");
		}
		wake();
		for (size_t i = 0; i < NODES; i++) {
			(void)ckpt_journal_look(nodes[i].store->journal, position_of, &at[i]);
			alike &= at[i] == at[0] && is_idle(&nodes[i]);
		}
		calm = alike ? calm + 1 : 0;
	}
}

static void check_alike(void)
{
	CLEANUP_FREE char *first = list(&nodes[0]);

	for (size_t i = 1; i < NODES; i++) {
		CLEANUP_FREE char *other = list(&nodes[i]);

		ck_assert_str_eq(first, other);
	}
}

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

enum { LARGE = 9 << 20 };

static void put_large(struct node *n, const char *name, unsigned seed, size_t len)
{
	CLEANUP_FREE uint32_t *data = malloc(LARGE);
	int fd = openat(n->store->tree_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert(fd >= 0 && data);
	for (size_t i = 0; i < LARGE / sizeof(*data); i++)
		data[i] = (uint32_t)i * 2654435761u + (i > LARGE / 8 ? seed : 0); // the first half is alike
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	close(fd);
	touch(n);
}

static bool is_as_at(const struct node *a, const struct node *b, const char *name)
{
	char cmd[3 * PATH_MAX];

	snprintf(cmd, sizeof(cmd), "cmp -s '%s/%s' '%s/%s'", a->tree, name, b->tree, name);
	return !system(cmd);
}

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

static size_t count_in(const char *listed, const char *part)
{
	size_t count = 0;

	for (const char *at = listed; (at = strstr(at, part)); at++)
		count++;
	return count;
}

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

// --- Steps and trackers -----------------------------------------------------------------------------------------------------

static bool lists(const struct node *n, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", name);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return is;
}

// As a mount does when a client has closed it.
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
	tcase_add_test(t, new_node_that_jumps_has_the_tree);
	tcase_add_test(t, old_node_that_jumps_gets_what_has_changed);
	tcase_add_test(t, tracker_comes_behind_its_step_and_before_what_was_deleted_later);
	tcase_add_test(t, trackers_and_deletions_do_not_wait_for_each_other);
	tcase_add_test(t, folders_that_are_moved_into_each_other_end_nowhere);
	tcase_add_test(t, folder_whose_name_another_has_got_is_the_same_on_all);
	tcase_add_test(t, mode_comes_to_all);
	tcase_add_test(t, steps_in_folders_are_in_them_everywhere);
	tcase_add_checked_fixture(random, setup, teardown);
	tcase_set_timeout(random, 120);
	tcase_add_loop_test(random, whatever_nodes_do_they_come_to_be_alike, 0, ckpt_suite_full() ? 200 : 6);
	suite_add_tcase(s, t);
	suite_add_tcase(s, random);
	return ckpt_suite_run(s);
}
