// Nodes that share the log of a remote, and jump to snapshots of each other. For suites of core/state/jump.h; what does not hold
// ends the test.
#pragma once

#include "tests/support/formats.h"
#include "tests/support/remote_log.h"
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/record/container.h"
#include "core/state/journal.h"
#include "core/state/jump.h"
#include "core/state/plain.h"
#include "core/state/table.h"

#include <inttypes.h>
#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define OTHER_STORE "11111111-1111-4111-8111-111111111112"

enum { ENTRIES = 40 };

static struct ckpt_objects *remote;

// A node beside the remote.
struct node {
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_objects *objects;
	struct ckpt_fault fault;
	struct ckpt_journal *j;
};

static struct node a, b;

static inline void open_node(struct node *n)
{
	uint64_t damaged;

	ck_ok(ckpt_journal_open(n->objects, STORE, n->id, CKPT_JOURNAL_WRITE, &n->j, &damaged));
	ck_assert_uint_eq(damaged, 0);
}

static inline void new_node(struct node *n, unsigned i)
{
	*n = (struct node){0};
	snprintf(n->id, sizeof(n->id), "22222222-2222-4222-8222-22222222222%u", i);
	ck_ok(ckpt_mem_new(&n->objects));
	ck_ok(ckpt_fault_new(n->objects, &n->fault, &n->objects));
	open_node(n);
	ck_ok(ckpt_journal_pull(n->j, &(struct ckpt_pull){.host = "h"}, 1));
}

static inline void close_node(struct node *n)
{
	ckpt_journal_close(TAKE_PTR(n->j));
	ckpt_objects_close(n->objects);
}

static inline void reopen(struct node *n)
{
	ckpt_journal_close(TAKE_PTR(n->j));
	open_node(n);
}

static inline void setup(void)
{
	ck_ok(ckpt_mem_new(&remote));
	ckpt_remote_log_make(remote, STORE, ENTRIES, false);
	new_node(&a, 0);
	new_node(&b, 1);
}

static inline void teardown(void)
{
	close_node(&a);
	close_node(&b);
	ckpt_objects_close(remote);
}

// --- What nodes do --------------------------------------------------------------------------------------------------------

static inline int take_remote(void *arg, const struct ckpt_state *state)
{
	*(struct ckpt_log_position *)arg = ckpt_state_remote(state);
	return 0;
}

static inline uint64_t position(struct node *n)
{
	struct ckpt_log_position at;

	(void)ckpt_journal_look(n->j, take_remote, &at);
	return at.seq;
}

static inline void read_up_to(struct node *n, uint64_t to)
{
	for (uint64_t seq = position(n) + 1; seq <= to; seq++) {
		CLEANUP_FREE void *data = NULL;
		char key[CKPT_LOG_KEY_MAX];
		size_t len;

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_get_all(remote, key, CKPT_LOG_ENTRY_BYTES_MAX, &data, &len, NULL));
		ck_ok(ckpt_journal_pull(n->j, &(struct ckpt_pull){.host = "", .entry = data, .entry_len = len}, 1));
	}
	ck_assert_uint_eq(position(n), to);
}

struct snapshot {
	struct ckpt_log_position at;
	uint8_t *data;
	size_t len;
};

static inline void done(struct snapshot *s)
{
	free(s->data);
}

struct view {
	struct ckpt_log_position at;
	struct ckpt_state *state;
};

static inline int take_view(void *arg, const struct ckpt_state *state)
{
	struct view *v = arg;

	v->at = ckpt_state_remote(state);
	v->state = ckpt_state_view(state);
	return 0;
}

static inline void snapshot_of(struct node *n, struct snapshot *ret)
{
	struct view v;

	(void)ckpt_journal_look(n->j, take_view, &v);
	ck_assert_ptr_nonnull(v.state);
	ret->at = v.at;
	ck_ok(ckpt_jump_snapshot(n->objects, STORE, v.state, &v.at, (void **)&ret->data, &ret->len));
	ckpt_state_free(v.state);
}

static inline int jump(struct node *n, const struct snapshot *s)
{
	return ckpt_journal_jump(n->j, s->at.seq, s->data, s->len);
}

// Two nodes that have read the same make the same snapshot: all that they know of the remote is in it.
static inline void check_same(struct node *x, struct node *y)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0};

	ck_assert_uint_eq(position(x), position(y));
	snapshot_of(x, &s);
	snapshot_of(y, &t);
	ck_assert_uint_eq(s.len, t.len);
	ck_assert_mem_eq(s.data, t.data, s.len);
}

struct plains {
	struct ckpt_plain *at; // their names are not theirs
	size_t count;
};

static inline int list_plains(void *arg, const struct ckpt_state *state)
{
	struct plains *p = arg;
	struct ckpt_plain *const *all = ckpt_state_plains(state, &p->count);

	p->at = ckpt_calloc(p->count + 1, sizeof(*p->at));
	for (size_t i = 0; i < p->count; i++) {
		p->at[i] = *all[i];
		p->at[i].name = strdup(all[i]->name);
		ck_assert_str_eq(ckpt_state_node(state, all[i]->node), CKPT_REMOTE_LOG_NODE);
	}
	return 0;
}

// Each file of the log has the number of the entry that put it as its content.
static inline void check_plains(struct node *n, unsigned count)
{
	struct plains p;

	(void)ckpt_journal_look(n->j, list_plains, &p);
	ck_assert_uint_eq(p.count, count);
	for (size_t i = 0; i < p.count; i++) {
		const struct ckpt_plain *e = &p.at[i];
		CLEANUP_FREE char *is = NULL;
		char want[64] = "";
		size_t len;

		if (strcmp(e->name, "none"))
			snprintf(want, sizeof(want), "content of %" PRIu64, e->version >> CKPT_PLAIN_INDEX_BITS);
		if (!*e->id) {
			ck_ok(ckpt_journal_plain(n->j, e->folder_id, e->name, e->version, (void **)&is, &len));
			ck_assert_uint_eq(len, strlen(want));
			ck_assert_str_eq(is, want);
		}
		free((void *)(uintptr_t)e->name);
	}
	free(p.at);
}

static inline void check_records(struct node *n, unsigned steps)
{
	struct ckpt_said *list;
	size_t count;

	ck_ok(ckpt_journal_list(n->j, &list, &count));
	ck_assert_uint_eq(count, steps);
	for (size_t i = 0; i < count; i++) {
		struct ckpt_record r;

		ck_ok(ckpt_journal_record(n->j, list[i].is.session, list[i].is.version, &r));
		ck_assert_str_eq(r.summary.name, list[i].is.name);
		ckpt_record_done(&r);
	}
	free(list);
}

static inline bool has_copy(struct node *n, uint64_t seq)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_object object;

	ckpt_snapshot_copy_key(seq, key);
	return !ckpt_objects_head(n->objects, key, &object);
}
