// Two nodes that edit a step, so long after each other as the test says; and the versions that it has here and there.
// For suites of core/remote; what does not hold ends the test.
#pragma once

#include "tests/support/two_nodes.h"
#include "tests/support/hooks.h"
#include "core/cold/pack_pins.h"
#include "core/cold/packing.h"
#include "core/remote/collect.h"
#include "core/remote/near.h"
#include "core/remote/reunion.h"
#include "core/save/amend_move.h"
#include "core/save/restore.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#define S_NS INT64_C(1000000000)
#define HOUR_NS (3600 * S_NS)
#define OTHER "2000"
#define VERSIONS_MAX 64

static int64_t (*real_now)(void);
static int64_t ahead_ns;

static inline int64_t later(void)
{
	return real_now() + __atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);
}

static inline void go_ahead(int64_t ns)
{
	__atomic_add_fetch(&ahead_ns, ns, __ATOMIC_RELAXED);
}

static inline void setup_versions(void)
{
	ahead_ns = 0;
	real_now = ckpt_hooks.now_ns;
	ckpt_hook_set(now_ns, later);
	setup();
}

static inline void teardown_versions(void)
{
	teardown();
	ckpt_hook_set(now_ns, real_now);
}

// --- Acts -----------------------------------------------------------------------------------------------------------------

static inline void put_raw(struct ckpt_step *step, const char *text, char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	CLEANUP_FD int dirfd = ckpt_session_open(step), fd = -1;

	ck_ok(ckpt_amending_raw_name(ret_raw));
	fd = ckpt_sys.open(dirfd, ret_raw, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, text, strlen(text), 0), strlen(text));
}

// An edit, so long after the one before.
static inline void edit_later(const struct node *n, const char *name, const char *path, const char *text, int64_t ns)
{
	struct ckpt_step *step = find(n, name);
	char raw[CKPT_AMENDING_RAW_MAX];

	go_ahead(ns);
	put_raw(step, text, raw);
	ck_ok(ckpt_amend_replace(step, path, raw));
	ckpt_step_unref(step);
}

static inline void save(const struct node *n, const char *name, const char *text)
{
	struct ckpt_step *step = ckpt_staged_begin(n->store, name);

	close(ckpt_staged_put(step, "config.json", text));
	close(ckpt_staged_put(step, "other.json", "of the save"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
}

// --- Questions ------------------------------------------------------------------------------------------------------------

// The texts of config.json in all versions of the step that can be opened on this node, the oldest first: each and a comma. Bytes are read.
static inline const char *texts(const struct node *n, const char *name)
{
	static char said[VERSIONS_MAX * 64];
	struct ckpt_step *step = find(n, name), *at;
	struct ckpt_version *v;
	char all[sizeof(said)] = "";

	for (int64_t i = 0; !ckpt_older_find(step, i, &at, &v); i--) {
		struct ckpt_manifest *m;
		char have[64] = "";
		uint32_t index;

		ck_ok(ckpt_step_read_manifest(at, &v->is, &m));
		ck_ok(ckpt_manifest_lookup(m, "config.json", &index));
		ck_ok(ckpt_staged_read(at, m, index, have, sizeof(have) - 1));
		snprintf(said, sizeof(said), "%s,%s", have, all);
		strcpy(all, said);
		ckpt_manifest_unref(m);
		ckpt_version_unref(v);
		ckpt_step_unref(at);
	}
	ckpt_step_unref(step);
	strcpy(said, all);
	return said;
}

// A node that begins with nothing has them from the remote alone.
static inline void check_elsewhere(const char *name, const char *wants)
{
	struct node c = {0};

	open_node(&c);
	while (pull_next(&c))
		;
	follow(&c);
	ck_assert_str_eq(texts(&c, name), wants);
	close_node(&c);
}

// It begins anew, and neither pulls nor pushes.
static inline void reopen_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX], dir[PATH_MAX];
	CLEANUP_FREE char *path = NULL;

	strcpy(dir, n->dir);
	close_node(n);
	strcpy(n->dir, dir);
	setenv("CKPTFS_WORK_DIR", dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static inline void push_all(struct node *n)
{
	work(n);
	WAIT_UNTIL(is_idle(n));
}

// The raw file of the version that is so many states ago, in the folder of sessions.
static inline void raw_of(const struct node *n, const char *name, int64_t ago, char ret_path[CKPT_RAW_PATH_MAX])
{
	struct ckpt_step *step = find(n, name), *at;
	struct ckpt_manifest *m;
	struct ckpt_version *v;
	uint32_t index;

	ck_ok(ckpt_older_find(step, -ago, &at, &v));
	ck_ok(ckpt_step_read_manifest(at, &v->is, &m));
	ck_ok(ckpt_manifest_lookup(m, "config.json", &index));
	ck_ok(ckpt_step_raw_path(at, m, index, ret_path, CKPT_RAW_PATH_MAX));
	ckpt_manifest_unref(m);
	ckpt_version_unref(v);
	ckpt_step_unref(at);
	ckpt_step_unref(step);
}

static inline void lose(const struct node *n, const char *name, int64_t ago)
{
	char path[CKPT_RAW_PATH_MAX];

	raw_of(n, name, ago, path);
	ck_ok(ckpt_sys.unlink(n->store->sessions_fd, path, 0));
}
