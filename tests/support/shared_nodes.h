// Nodes that have a state each, and share the log of one remote: what they do, push and pull, without a store. For suites of
// core/state; what does not hold ends the test.
#pragma once

#include "tests/support/allocfault.h"
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/condemned.h"
#include "core/state/difference.h"
#include "core/state/jump.h"
#include "core/state/plain.h"
#include "core/state/shared.h"
#include "core/state/state.h"

#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"

enum { NODES = 3, ENTRIES_MAX = 4096, STEPS_MAX = 512, OFFSET = 100 };

struct node {
	char id[CKPT_UUID_LEN + 1], host[8];
	struct ckpt_state *state;
	uint64_t number;
	struct ckpt_objects *objects; // its log, each operation an entry of its own, and copies of snapshots
};

static struct node nodes[NODES];
static struct {
	void *data;
	size_t len;
} entries[ENTRIES_MAX], snapshots[ENTRIES_MAX]; // of the remote's log, from 1, and behind each that has one
static uint64_t end;
static uint64_t nonces;
static uint32_t merged; // of the next MERGE
static unsigned ids;

// --- Nodes --------------------------------------------------------------------------------------------------------------

static inline int apply(struct node *n, uint16_t kind, const void *body, size_t len)
{
	struct ckpt_operation op = {.number = ++n->number, .kind = kind, .required = true, .body = body, .len = len};
	struct ckpt_span at = {.seq = n->number, .offset = OFFSET, .len = (uint32_t)len};
	CLEANUP_FREE uint8_t *entry = ckpt_calloc(1, OFFSET + len);
	char key[CKPT_LOG_KEY_MAX];

	strcpy(op.node, n->id);
	memcpy(entry + OFFSET, body, len);
	ckpt_log_key(n->number, key);
	ck_ok(ckpt_objects_put(n->objects, key, entry, OFFSET + len, NULL));
	return ckpt_state_apply(n->state, STORE, &op, &at);
}

static inline int pull(struct node *n, const struct ckpt_pull *pull)
{
	CLEANUP_FREE void *body = NULL;
	size_t len;

	ck_ok(ckpt_pull_encode(pull, &body, &len));
	return apply(n, CKPT_PULL_KIND, body, len);
}

static inline void attach(struct node *n)
{
	ck_ok(pull(n, &(struct ckpt_pull){.host = n->host}));
}

static inline void begin(void)
{
	end = 0;
	for (unsigned i = 0; i < NODES; i++) {
		snprintf(nodes[i].id, sizeof(nodes[i].id), "22222222-2222-4222-8222-22222222222%u", i);
		snprintf(nodes[i].host, sizeof(nodes[i].host), "h%u", i);
		nodes[i].number = 0;
		nodes[i].state = ckpt_state_new();
		ck_assert_ptr_nonnull(nodes[i].state);
		ck_ok(ckpt_mem_new(&nodes[i].objects));
		attach(&nodes[i]);
	}
	nonces = 0;
	ids = 0;
}

static inline void finish(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		ckpt_state_free(nodes[i].state);
		ckpt_objects_close(nodes[i].objects);
	}
	for (uint64_t i = 1; i <= end; i++) {
		free(entries[i].data);
		free(TAKE_PTR(snapshots[i].data));
	}
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static inline void *record_of(const struct ckpt_summary *sum, size_t *ret_len)
{
	struct ckpt_record r = {.store_id = STORE, .summary = *sum};
	void *record;

	ck_ok(ckpt_record_encode(&r, &record, ret_len));
	return record;
}

static inline int act(struct node *n, const struct ckpt_act *a)
{
	CLEANUP_FREE void *body = NULL;
	size_t len;

	ck_ok(ckpt_act_encode(a, &body, &len));
	return apply(n, (uint16_t)a->kind, body, len);
}

static inline int act_with(struct node *n, enum ckpt_act_kind kind, struct ckpt_summary *sum, const char *replaces)
{
	struct ckpt_act a = {.kind = kind, .merged = merged};
	CLEANUP_FREE void *record = NULL;

	ckpt_put64(sum->nonce, ++nonces);
	a.record = record = record_of(sum, &a.record_len);
	strcpy(a.replaces, replaces);
	return act(n, &a);
}

static inline struct ckpt_summary fresh(const char *name, uint32_t version)
{
	struct ckpt_summary sum;

	ckpt_sample_summary(&sum, name, version);
	snprintf(sum.session, sizeof(sum.session), "aaaaaaaa-aaaa-4aaa-8aaa-%012x", ++ids);
	*sum.folder_id = '\0';
	sum.number = ckpt_name_number(name);
	sum.pinned = sum.temporary = false;
	sum.committed_ns = 1000;
	sum.sequence = ids;
	return sum;
}

static inline const struct ckpt_state_step *listed(const struct node *n, const char *name)
{
	return ckpt_state_listed(n->state, "", name);
}

static inline const struct ckpt_state_step *step_of(const struct node *n, const char *id)
{
	return ckpt_state_step(n->state, id);
}

static inline uint32_t next_version(const struct ckpt_state_step *step)
{
	return MAX(step->versions[step->count - 1].version, step->deleted_by) + 1;
}

// Over whatever is listed under the name. The id of the new step.
static inline const char *save(struct node *n, const char *name)
{
	const struct ckpt_state_step *there = listed(n, name);
	struct ckpt_summary sum = fresh(name, there ? next_version(there) : 1);
	static char id[CKPT_UUID_LEN + 1];

	ck_ok(act_with(n, CKPT_ACT_SAVE, &sum, there ? there->id : ""));
	strcpy(id, sum.session);
	return id;
}

// An edit, which is a step of its own and has the place of that one among the commits.
static inline const char *edit(struct node *n, const char *name)
{
	const struct ckpt_state_step *there = listed(n, name);
	struct ckpt_summary sum = fresh(name, next_version(there));
	static char id[CKPT_UUID_LEN + 1];

	sum.sequence = there->is.sequence;
	ck_ok(act_with(n, CKPT_ACT_SAVE, &sum, there->id));
	strcpy(id, sum.session);
	return id;
}

static inline int plain(struct node *n, enum ckpt_act_kind kind, const struct ckpt_state_step *step, uint32_t flags)
{
	struct ckpt_act a = {.kind = kind, .version = next_version(step), .flags = flags, .time_ns = 2000};

	strcpy(a.step, step->id);
	if (kind == CKPT_ACT_EXPIRE)
		a.version = ckpt_state_last(step);
	return act(n, &a);
}

static inline int rename_to(struct node *n, const struct ckpt_state_step *step, const char *name)
{
	struct ckpt_act a = {.kind = CKPT_ACT_RENAME, .time_ns = 2000};

	strcpy(a.step, step->id);
	strcpy(a.name, name);
	return act(n, &a);
}

static inline int amend(struct node *n, const struct ckpt_state_step *step)
{
	struct ckpt_summary sum = step->is;

	sum.version = next_version(step);
	sum.files++;
	return act_with(n, CKPT_ACT_AMEND, &sum, "");
}

static inline int drop(struct node *n, const struct ckpt_state_step *step)
{
	struct ckpt_act a = {.kind = CKPT_ACT_DROP, .version = ckpt_state_last(step), .time_ns = 2000};

	strcpy(a.step, step->id);
	return act(n, &a);
}

// --- The remote -----------------------------------------------------------------------------------------------------------

static inline bool pull_next(struct node *n)
{
	uint64_t at = ckpt_state_remote(n->state).seq;

	if (at == end)
		return false;
	ck_ok(pull(n,
		   &(struct ckpt_pull){.host = "", .entry = entries[at + 1].data, .entry_len = entries[at + 1].len}));
	ck_assert_uint_eq(ckpt_state_remote(n->state).seq, at + 1);
	return true;
}

static inline void pull_all(struct node *n)
{
	while (pull_next(n))
		;
}

struct batch {
	struct ckpt_operation ops[CKPT_DIFFERENCE_MAX];
	void *bodies[CKPT_DIFFERENCE_MAX];
	uint32_t count;
};

static inline void add_act(struct batch *b, struct node *n, const struct ckpt_state_step *step, struct ckpt_act *a)
{
	struct ckpt_operation *op = &b->ops[b->count];
	CLEANUP_FREE void *record = NULL;

	if (ckpt_act_has_record(a->kind)) {
		struct ckpt_summary sum = step->is;

		sum.version = a->version;
		a->record = record = record_of(&sum, &a->record_len);
	}
	ck_ok(ckpt_act_encode(a, &b->bodies[b->count], &op->len));
	op->body = b->bodies[b->count++];
	op->kind = (uint16_t)a->kind;
	op->required = true;
	op->number = step->since;
	strcpy(op->node, n->id);
}

static inline void put_entry(struct node *n, const struct batch *b)
{
	struct ckpt_log_position at = ckpt_state_remote(n->state);
	struct ckpt_log_entry e = {.seq = at.seq + 1, .time_ns = 1, .count = b->count};

	ck_assert_uint_eq(at.seq, end);
	strcpy(e.store_id, STORE);
	strcpy(e.node, n->id);
	memcpy(e.before, at.sha256, sizeof(e.before));
	end++;
	ck_assert_uint_lt(end, ENTRIES_MAX);
	ck_ok(ckpt_log_entry_encode(&e, b->ops, &entries[end].data, &entries[end].len));
}

static inline void view_done(struct ckpt_state **view)
{
	ckpt_state_free(*view);
}

// The first of its queue, whose place is taken by nobody: what it says of a step in one entry. Then its own view has it, and shows the same.
static inline const struct ckpt_state_step *first_of(struct node *n, bool stuck, struct ckpt_act *ret_acts,
						     size_t *ret_count)
{
	const struct ckpt_state_step *first = NULL;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(n->state, &count);

	for (size_t i = 0; i < count; i++)
		if (ckpt_state_difference(n->state, changed[i], stuck, ret_acts) &&
		    (!first || ckpt_state_place(n->state, changed[i]) < ckpt_state_place(n->state, first)))
			first = changed[i];
	*ret_count = first ? ckpt_state_difference(n->state, first, stuck, ret_acts) : 0;
	return first;
}

// The version of the remote's log that is to be put into it, or into what has its place.
static inline bool lacks_files(const struct node *n, const struct ckpt_state_step *step)
{
	const struct ckpt_state_step *there = NULL;
	bool behind = ckpt_state_is_edit_behind(n->state, step);

	if (behind)
		there = step_of(n, ckpt_state_shared_listed(n->state, step->is.folder_id, step->is.name)->id);
	ck_assert(!behind || ckpt_state_has_edit_behind(n->state, there));
	if (behind || (ckpt_state_is_unmerged(step) && !ckpt_state_keeps_files(step)))
		merged = ckpt_state_unmerged_theirs(behind ? there : step);
	return behind || (ckpt_state_is_unmerged(step) && !ckpt_state_keeps_files(step));
}

// As core/save/reunite.c does, but for the manifests, before anything is pushed.
static inline void merge_all(struct node *n)
{
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(n->state, &count);

	for (size_t i = 0; i < count; i++) {
		struct ckpt_summary sum = changed[i]->is;

		if (ckpt_state_listed(n->state, sum.folder_id, sum.name) != changed[i] &&
		    ckpt_state_is_edit_behind(n->state, changed[i]))
			continue; // another edit has its place
		if (ckpt_state_has_edit_behind(n->state, changed[i]))
			continue; // that edit has its changes
		if (!lacks_files(n, changed[i]))
			continue;
		sum.version = next_version(changed[i]);
		ck_ok(act_with(n, CKPT_ACT_MERGE, &sum, ""));
		ck_assert(!ckpt_state_is_unmerged(ckpt_state_step(n->state, sum.session)));
		ck_assert(!ckpt_state_is_edit_behind(n->state, ckpt_state_step(n->state, sum.session)));
		changed = ckpt_state_changed(n->state, &count);
	}
}

// reads: else the answer was lost, and the node has not looked yet.
static inline bool push_next(struct node *n, bool reads)
{
	const struct ckpt_state_step *first = NULL;
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	struct batch b = {0};
	size_t count;

	pull_all(n);
	merge_all(n);
	for (int stuck = 0; stuck < 2 && !first; stuck++)
		first = first_of(n, stuck, acts, &count);
	if (!first)
		return false;
	for (size_t i = 0; i < count; i++)
		add_act(&b, n, first, &acts[i]);
	put_entry(n, &b);
	for (uint32_t i = 0; i < b.count; i++)
		free(b.bodies[i]);
	if (reads)
		pull_all(n);
	return true;
}

static inline int set(struct node *n, const char *key, const char *text)
{
	struct ckpt_act a = {.kind = CKPT_ACT_SET,
			     .before = CKPT_ACT_ANY,
			     .value = text,
			     .value_len = strlen(text),
			     .time_ns = 3000};

	strcpy(a.key, key);
	return act(n, &a);
}

static inline const char *value(const struct node *n)
{
	const struct ckpt_state_value *v = ckpt_state_value(n->state, CKPT_VALUE_POLICY);

	return v ? v->text : "";
}

// As an entry of the remote's log.
static inline void put_value(struct node *n, const char *key, uint64_t before, const char *text)
{
	struct ckpt_act a = {
		.kind = CKPT_ACT_SET, .before = before, .value = text, .value_len = strlen(text), .time_ns = 3000};
	struct batch b = {.count = 1};

	strcpy(a.key, key);
	ck_ok(ckpt_act_encode(&a, &b.bodies[0], &b.ops[0].len));
	b.ops[0].body = b.bodies[0];
	b.ops[0].kind = CKPT_ACT_SET;
	b.ops[0].required = true;
	strcpy(b.ops[0].node, n->id);
	put_entry(n, &b);
	free(b.bodies[0]);
}

static inline bool push_value(struct node *n)
{
	char pushed[CKPT_VALUE_KEY_MAX + 1];
	const char *text, *key;

	pull_all(n);
	key = ckpt_state_changed_value(n->state, &text);
	if (!key)
		return false;
	strcpy(pushed, key);
	put_value(n, pushed, CKPT_ACT_ANY, text);
	pull_all(n);
	key = ckpt_state_changed_value(n->state, &text);
	ck_assert(!key || strcmp(key, pushed));
	return true;
}

static inline void push_all(struct node *n)
{
	while (push_value(n))
		;
	for (unsigned i = 0; push_next(n, true); i++)
		ck_assert_uint_lt(i, 1000);
}

static inline void meet(void)
{
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < NODES; i++)
			push_all(&nodes[i]);
	for (unsigned i = 0; i < NODES; i++)
		pull_all(&nodes[i]);
}

// All nodes that have read as much make the same bytes.
static inline void put_snapshot(struct node *n)
{
	struct ckpt_log_position at = ckpt_state_remote(n->state);
	CLEANUP(view_done) struct ckpt_state *view = ckpt_state_view(n->state);
	CLEANUP_FREE void *data = NULL;
	size_t len;

	ck_assert_ptr_nonnull(view);
	if (!at.seq)
		return;
	ck_ok(ckpt_jump_snapshot(n->objects, STORE, view, &at, &data, &len));
	if (snapshots[at.seq].data) {
		ck_assert_uint_eq(snapshots[at.seq].len, len);
		ck_assert_mem_eq(snapshots[at.seq].data, data, len);
		return;
	}
	snapshots[at.seq].data = TAKE_PTR(data);
	snapshots[at.seq].len = len;
}

static inline void jump_to(struct node *n, uint64_t seq)
{
	struct ckpt_operation op = {.number = ++n->number, .kind = CKPT_JUMP_KIND, .required = true};
	struct ckpt_log_position at;
	struct ckpt_state *to;

	strcpy(op.node, n->id);
	ck_ok(ckpt_jump_copy_put(n->objects, seq, snapshots[seq].data, snapshots[seq].len));
	ck_ok(ckpt_jump_state(STORE, seq, snapshots[seq].data, snapshots[seq].len, &at, &to));
	ck_assert_int_eq(ckpt_state_jump(n->state, &op, &at, to), 0);
	ckpt_state_free(to);
	ck_assert_uint_eq(ckpt_state_remote(n->state).seq, seq);
}

// To the newest snapshot, once the entry is read that this node may have put.
static inline bool jump(struct node *n)
{
	uint64_t seq = end;

	if (!pull_next(n))
		return false;
	while (seq > ckpt_state_remote(n->state).seq && !snapshots[seq].data)
		seq--;
	if (seq == ckpt_state_remote(n->state).seq)
		return false;
	jump_to(n, seq);
	return true;
}

static inline size_t changes(const struct node *n)
{
	size_t count;

	(void)ckpt_state_changed(n->state, &count);
	return count;
}

static inline bool is_deleted_alone(const struct ckpt_state_step *step)
{
	return step->since && !step->shared && step->deleted_by;
}

// Its files were changed before it was deleted here: they wait until it is undeleted.
static inline bool is_deleted_with_changes(const struct ckpt_state_step *step)
{
	return step->since && step->shared && step->deleted_by > step->is.version && step->shared->deleted_by &&
	       ckpt_state_has_changed_files(step);
}

static inline const struct ckpt_state_step *as_pushed(const struct ckpt_state_step *step)
{
	return step && is_deleted_with_changes(step) ? step->shared : step;
}

// Steps that expired before the log had them, which may have been sent: until the next entry is read.
static inline size_t expired_alone(const struct node *n)
{
	size_t count, found = 0;
	struct ckpt_state_step *const *changed = ckpt_state_changed(n->state, &count);

	for (size_t i = 0; i < count; i++)
		found += changed[i]->gone && !changed[i]->shared;
	return found;
}

static inline void check_same(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	ck_assert_ptr_nonnull(b);
	ck_assert_str_eq(a->is.name, b->is.name);
	ck_assert_uint_eq(a->is.version, b->is.version);
	ck_assert_mem_eq(a->is.nonce, b->is.nonce, sizeof(a->is.nonce));
	ck_assert_uint_eq(a->is.pinned, b->is.pinned);
	ck_assert_uint_eq(a->is.temporary, b->is.temporary);
	ck_assert_uint_eq(a->deleted_by, b->deleted_by);
	ck_assert_uint_eq(a->count, b->count);
}

static inline void check_same_values(const struct node *n, const struct node *m)
{
	const struct ckpt_value_list *a = ckpt_state_values(n->state), *b = ckpt_state_values(m->state);

	for (size_t i = 0; i < a->count; i++) {
		const struct ckpt_state_value *v = ckpt_value_find(b, a->at[i].key);

		if (ckpt_value_is_shared(a->at[i].key))
			ck_assert_str_eq(a->at[i].text, v ? v->text : "none");
	}
}

static inline void check_all_same(void)
{
	for (unsigned i = 0; i < NODES; i++) {
		CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
		size_t count, alone = 0;

		ck_ok(ckpt_state_steps(nodes[i].state, &steps, &count));
		for (size_t k = 0; k < count; k++) {
			alone += is_deleted_alone(steps[k]) || is_deleted_with_changes(steps[k]);
			for (unsigned other_node = 0; other_node < NODES && !is_deleted_alone(steps[k]); other_node++)
				check_same(as_pushed(steps[k]), as_pushed(step_of(&nodes[other_node], steps[k]->id)));
		}
		ck_assert_uint_eq(changes(&nodes[i]), alone + expired_alone(&nodes[i]));
		check_same_values(&nodes[i], &nodes[0]);
		check_same_values(&nodes[0], &nodes[i]);
	}
}

static inline void replace_by_its_snapshot(struct node *n)
{
	struct ckpt_state *back;
	CLEANUP_FREE void *data = NULL, *again = NULL;
	size_t len, again_len;

	ck_ok(ckpt_state_encode(n->state, &data, &len));
	ck_ok(ckpt_state_decode(data, len, &back));
	ck_ok(ckpt_state_encode(back, &again, &again_len));
	ck_assert_uint_eq(len, again_len);
	ck_assert_mem_eq(data, again, len);
	ckpt_state_free(n->state);
	n->state = back;
}

#define US (&nodes[0])
#define THEM (&nodes[1])

static char id[CKPT_UUID_LEN + 1], other[CKPT_UUID_LEN + 1] __attribute__((unused));

// A step that all have.
static inline void share(const char *name)
{
	strcpy(id, save(US, name));
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(listed(&nodes[i], name)->id, id);
}
