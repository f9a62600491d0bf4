// Nodes with a remote, and plain files in the tree of each. For suites of core/remote/tree*.c.
#pragma once

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

static inline int64_t fast_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec * INT64_C(1000000000) + t.tv_nsec) * FAST;
}

// No file is young.
static inline int64_t later_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (t.tv_sec + 60) * INT64_C(1000000000) + t.tv_nsec;
}

static inline void mount_node(struct node *n)
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

static inline void open_node(struct node *n)
{
	mount_node(n);
	ck_ok(ckpt_store_work_behind(n->store));
}

static inline void close_node(struct node *n)
{
	ckpt_store_rest(n->store);
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
}

static inline void setup(void)
{
	ckpt_hook_set(mono_ns, fast_mono_ns);
	ckpt_hook_set(now_ns, later_ns);
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	memset(nodes, 0, sizeof(nodes));
	for (size_t i = 0; i < NODES; i++)
		open_node(&nodes[i]);
}

static inline void teardown(void)
{
	for (size_t i = 0; i < NODES; i++)
		close_node(&nodes[i]);
}

// --- A node's tree --------------------------------------------------------------------------------------------------------

static inline void touch(struct node *n)
{
	ckpt_tree_touch(ckpt_remote_tree(*ckpt_remote_of(n->store)));
}

static inline void put(struct node *n, const char *path, const char *text)
{
	int fd = openat(n->store->tree_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	touch(n);
}

static inline void put_while_down(const struct node *n, const char *name, const char *text)
{
	char path[PATH_MAX + 64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", n->tree, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static inline bool has(struct node *n, const char *path, const char *text)
{
	char is[4096] = "";
	int fd = openat(n->store->tree_fd, path, O_RDONLY);

	if (fd < 0)
		return !text;
	(void)!read(fd, is, sizeof(is) - 1);
	close(fd);
	return text && !strcmp(is, text);
}

static inline bool all_have(const char *path, const char *text)
{
	for (size_t i = 0; i < NODES; i++)
		if (!has(&nodes[i], path, text))
			return false;
	return true;
}

static inline bool is_idle(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps && !q.files;
}

static inline void wake(void)
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

static inline int add_to_listing(const char *path, const struct stat *st, int type, struct FTW *at)
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

static inline int by_line(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

// Sorted lines of path, mode and content; the caller's.
static inline char *list(struct node *n)
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

static inline int position_of(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

// All have pushed what they had, and read what the others pushed; twice, for what reading leads to.
static inline void settle(void)
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

static inline void check_alike(void)
{
	CLEANUP_FREE char *first = list(&nodes[0]);

	for (size_t i = 1; i < NODES; i++) {
		CLEANUP_FREE char *other = list(&nodes[i]);

		ck_assert_str_eq(first, other);
	}
}

enum { LARGE = 9 << 20 };

static inline void put_large(struct node *n, const char *name, unsigned seed, size_t len)
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

static inline bool is_as_at(const struct node *a, const struct node *b, const char *name)
{
	char cmd[3 * PATH_MAX];

	snprintf(cmd, sizeof(cmd), "cmp -s '%s/%s' '%s/%s'", a->tree, name, b->tree, name);
	return !system(cmd);
}

static inline size_t count_in(const char *listed, const char *part)
{
	size_t count = 0;

	for (const char *at = listed; (at = strstr(at, part)); at++)
		count++;
	return count;
}
