// Two nodes of one remote, in one process, for suites that include this: a has a step, which b has, too.
#pragma once

#include "tests/support/staged.h"
#include "tests/support/suite.h"
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
#include "tests/support/save.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "1000"
#define TRIES 2000
#define TRY_NS INT64_C(10000000)

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
	bool works; // its thread pulls and pushes
};

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];
static struct node a, b;

// --- Nodes --------------------------------------------------------------------------------------------------------------

static inline void open_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static inline void work(struct node *n)
{
	if (!n->works)
		ck_ok(ckpt_store_work_behind(n->store));
	n->works = true;
}

static inline void close_node(struct node *n)
{
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	*n = (struct node){0};
}

static inline bool is_idle(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps;
}

#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < TRIES, "in vain: %s", #is_so);                                           \
			ckpt_remote_wake(*ckpt_remote_of(a.store));                                                    \
			ckpt_remote_wake(*ckpt_remote_of(b.store));                                                    \
			ckpt_sys.sleep_ns(TRY_NS);                                                                     \
		}                                                                                                      \
	} while (0)

static inline int where_it_is(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

static inline uint64_t position(const struct node *n)
{
	uint64_t seq;

	ck_ok(ckpt_journal_look(n->store->journal, where_it_is, &seq));
	return seq;
}

// The next entry of the remote's log comes into that of the node; false: there is none.
static inline bool pull_next(struct node *n)
{
	char path[PATH_MAX + 32];
	static char entry[1u << 18];
	ssize_t len;

	snprintf(path, sizeof(path), "%s/log/%016llx", remote_dir, (unsigned long long)position(n) + 1);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	len = read(fd, entry, sizeof(entry));
	ck_assert_int_gt(len, 0);
	ck_ok(ckpt_journal_pull(n->store->journal,
				&(struct ckpt_pull){.host = "", .entry = entry, .entry_len = (size_t)len}, 1));
	return true;
}

static inline void pull(struct node *n)
{
	ck_assert(pull_next(n));
	while (pull_next(n))
		;
}

static inline void follow(struct node *n)
{
	LOCK_SCOPE(&n->store->acts_lock);

	ck_ok(ckpt_follow(n->store));
}

// The way in which the other node's acts come: only into the log, so that an act finds it out, or into the steps, too.
enum { PULLED, FOLLOWED, WAYS };

static inline void take_in(struct node *n, int way)
{
	pull(n);
	if (way == FOLLOWED)
		follow(n);
}

// --- The step -----------------------------------------------------------------------------------------------------------

static inline struct ckpt_step *find(const struct node *n, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", name);

	ck_assert_ptr_nonnull(step);
	return step;
}

static inline bool has_text(const struct node *n, const char *name, const char *path, const char *text)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", name);
	struct ckpt_manifest *m;
	char have[64] = "";
	uint32_t index;
	bool has;

	if (!step || ckpt_step_state(step) != CKPT_STEP_COMMITTED || ckpt_step_is_reopened(step)) {
		ckpt_step_unref(step);
		return false;
	}
	m = ckpt_staged_manifest(step);
	has = !ckpt_manifest_lookup(m, path, &index);
	if (has && text)
		ck_ok(ckpt_staged_read(step, m, index, have, sizeof(have) - 1));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return text ? has && !strcmp(have, text) : !has;
}

static inline void check(const char *name, const char *path, const char *text)
{
	ck_assert_msg(has_text(&b, name, path, text), "%s of %s is not \"%s\"", path, name, text ? text : "gone");
}

static inline void edit(struct ckpt_step *staged, const char *path, const char *text)
{
	ck_ok(ckpt_stage_enter(staged, true));
	(void)ckpt_sys.unlink(staged->dirfd, path, 0);
	if (text)
		close(ckpt_staged_put(staged, path, text));
	ckpt_stage_leave(staged);
}

static inline struct ckpt_step *reopen(const struct node *n)
{
	struct ckpt_step *step = find(n, NAME), *staged;

	ck_ok(ckpt_reopen(step, &staged));
	ckpt_step_unref(step);
	return staged;
}

static inline int commit(struct ckpt_step *staged)
{
	const struct ckpt_commit how = {
		.event = "quiet", .profile = "generic", .keeps_metadata = true, .keeps_place = true};

	return ckpt_commit(staged, &how);
}

static inline void edit_and_push(struct node *n, const char *path, const char *text)
{
	struct ckpt_step *staged = reopen(n);

	edit(staged, path, text);
	ck_ok(commit(staged));
	ckpt_step_unref(staged);
	work(n);
	WAIT_UNTIL(is_idle(n));
}

// A step that both nodes have.
static inline void setup(void)
{
	struct ckpt_step *step;

	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	open_node(&a);
	step = ckpt_staged_begin(a.store, NAME);
	close(ckpt_staged_put(step, "config.json", "of the save"));
	close(ckpt_staged_put(step, "other.json", "of the save"));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "d", 0755));
	close(ckpt_staged_put(step, "d/x", "of the save"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
	open_node(&b);
	work(&a);
	WAIT_UNTIL(is_idle(&a));
	take_in(&b, FOLLOWED);
}

static inline void teardown(void)
{
	close_node(&a);
	close_node(&b);
}

// Both nodes have pushed, and have the same step of this name.
static inline void meet(const char *name)
{
	static const char *const paths[] = {"config.json", "other.json", "d/x", "new.json"};

	work(&b);
	WAIT_UNTIL(is_idle(&a) && is_idle(&b) && position(&a) == position(&b));
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		char text[64] = "";
		struct ckpt_step *step = find(&b, name);
		struct ckpt_manifest *m = ckpt_staged_manifest(step);
		uint32_t index;
		bool has = !ckpt_manifest_lookup(m, paths[i], &index);

		if (has)
			ck_ok(ckpt_staged_read(step, m, index, text, sizeof(text) - 1));
		ckpt_manifest_unref(m);
		ckpt_step_unref(step);
		WAIT_UNTIL(has_text(&a, name, paths[i], has ? text : NULL));
	}
}

static inline void check_no_conflict(const struct node *n)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	ck_assert_uint_eq(count, 1);
	ckpt_step_list_free(steps, count);
}

// Some older version has this text.
static inline bool has_older(const struct node *n, const char *path, const char *text)
{
	struct ckpt_step *step = find(n, NAME), *at;
	struct ckpt_version *v;
	bool found = false;

	for (int64_t i = -1; !found && !ckpt_older_find(step, i, &at, &v); i--) {
		struct ckpt_manifest *m;
		char have[64] = "";
		uint32_t index;

		ck_ok(ckpt_step_read_manifest(at, &v->is, &m));
		if (!ckpt_manifest_lookup(m, path, &index))
			ck_ok(ckpt_staged_read(at, m, index, have, sizeof(have) - 1));
		found = !strcmp(have, text);
		ckpt_manifest_unref(m);
		ckpt_version_unref(v);
		ckpt_step_unref(at);
	}
	ckpt_step_unref(step);
	return found;
}

static inline uint32_t mode_of(const struct node *n, const char *path)
{
	struct ckpt_step *step = find(n, NAME);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return e.mode;
}

static inline int put_added(struct ckpt_step *step, const char *path, const char *text,
			    char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	CLEANUP_FD int dirfd = ckpt_session_open(step), fd = -1;

	ck_ok(dirfd);
	ck_ok(ckpt_amending_raw_name(ret_raw));
	fd = ckpt_sys.open(dirfd, ret_raw, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
	return ckpt_amending_begin(step, path, ret_raw);
}

static inline void add_and_push(struct node *n, const char *path, const char *text)
{
	struct ckpt_step *step = find(n, NAME);
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(put_added(step, path, text, raw));
	ck_ok(ckpt_amend_add(step, path));
	ckpt_amending_forget(step, path);
	ckpt_step_unref(step);
	work(n);
	WAIT_UNTIL(is_idle(n));
}

static inline bool is_deleted(const struct node *n, const char *session)
{
	struct ckpt_step *step = ckpt_step_of_session(n->store, session);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_DELETED;

	ckpt_step_unref(step);
	return is;
}

// The conflict copy of a file of b.
static inline const char *copy_of(const char *path)
{
	static char copy[PATH_MAX];
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	char of_name[CKPT_NAME_MAX + 1], host[CKPT_NAME_HOST_MAX + 1];

	ck_ok(gethostname(host, sizeof(host)));
	ckpt_name_conflict(of_name, name, host, 1);
	snprintf(copy, sizeof(copy), "%.*s%s", (int)(name - path), path, of_name);
	return copy;
}
