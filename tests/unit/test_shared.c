// States of several nodes beside the log of one remote: what each row of REMOTE.md section 4 says of acts that met, and that nodes which have
// pushed and pulled all show the same, after anything.
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

static int apply(struct node *n, uint16_t kind, const void *body, size_t len)
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

static int pull(struct node *n, const struct ckpt_pull *pull)
{
	CLEANUP_FREE void *body = NULL;
	size_t len;

	ck_ok(ckpt_pull_encode(pull, &body, &len));
	return apply(n, CKPT_PULL_KIND, body, len);
}

static void attach(struct node *n)
{
	ck_ok(pull(n, &(struct ckpt_pull){.host = n->host}));
}

static void begin(void)
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

static void finish(void)
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

static void *record_of(const struct ckpt_summary *sum, size_t *ret_len)
{
	struct ckpt_record r = {.store_id = STORE, .summary = *sum};
	void *record;

	ck_ok(ckpt_record_encode(&r, &record, ret_len));
	return record;
}

static int act(struct node *n, const struct ckpt_act *a)
{
	CLEANUP_FREE void *body = NULL;
	size_t len;

	ck_ok(ckpt_act_encode(a, &body, &len));
	return apply(n, (uint16_t)a->kind, body, len);
}

static int act_with(struct node *n, enum ckpt_act_kind kind, struct ckpt_summary *sum, const char *replaces)
{
	struct ckpt_act a = {.kind = kind, .merged = merged};
	CLEANUP_FREE void *record = NULL;

	ckpt_put64(sum->nonce, ++nonces);
	a.record = record = record_of(sum, &a.record_len);
	strcpy(a.replaces, replaces);
	return act(n, &a);
}

static struct ckpt_summary fresh(const char *name, uint32_t version)
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

static const struct ckpt_state_step *listed(const struct node *n, const char *name)
{
	return ckpt_state_listed(n->state, "", name);
}

static const struct ckpt_state_step *step_of(const struct node *n, const char *id)
{
	return ckpt_state_step(n->state, id);
}

static uint32_t next_version(const struct ckpt_state_step *step)
{
	return MAX(step->versions[step->count - 1].version, step->deleted_by) + 1;
}

// Over whatever is listed under the name. The id of the new step.
static const char *save(struct node *n, const char *name)
{
	const struct ckpt_state_step *there = listed(n, name);
	struct ckpt_summary sum = fresh(name, there ? next_version(there) : 1);
	static char id[CKPT_UUID_LEN + 1];

	ck_ok(act_with(n, CKPT_ACT_SAVE, &sum, there ? there->id : ""));
	strcpy(id, sum.session);
	return id;
}

// An edit, which is a step of its own and has the place of that one among the commits.
static const char *edit(struct node *n, const char *name)
{
	const struct ckpt_state_step *there = listed(n, name);
	struct ckpt_summary sum = fresh(name, next_version(there));
	static char id[CKPT_UUID_LEN + 1];

	sum.sequence = there->is.sequence;
	ck_ok(act_with(n, CKPT_ACT_SAVE, &sum, there->id));
	strcpy(id, sum.session);
	return id;
}

static int plain(struct node *n, enum ckpt_act_kind kind, const struct ckpt_state_step *step, uint32_t flags)
{
	struct ckpt_act a = {.kind = kind, .version = next_version(step), .flags = flags, .time_ns = 2000};

	strcpy(a.step, step->id);
	if (kind == CKPT_ACT_EXPIRE)
		a.version = ckpt_state_last(step);
	return act(n, &a);
}

static int rename_to(struct node *n, const struct ckpt_state_step *step, const char *name)
{
	struct ckpt_act a = {.kind = CKPT_ACT_RENAME, .time_ns = 2000};

	strcpy(a.step, step->id);
	strcpy(a.name, name);
	return act(n, &a);
}

static int amend(struct node *n, const struct ckpt_state_step *step)
{
	struct ckpt_summary sum = step->is;

	sum.version = next_version(step);
	sum.files++;
	return act_with(n, CKPT_ACT_AMEND, &sum, "");
}

// --- The remote -----------------------------------------------------------------------------------------------------------

static bool pull_next(struct node *n)
{
	uint64_t at = ckpt_state_remote(n->state).seq;

	if (at == end)
		return false;
	ck_ok(pull(n,
		   &(struct ckpt_pull){.host = "", .entry = entries[at + 1].data, .entry_len = entries[at + 1].len}));
	ck_assert_uint_eq(ckpt_state_remote(n->state).seq, at + 1);
	return true;
}

static void pull_all(struct node *n)
{
	while (pull_next(n))
		;
}

struct batch {
	struct ckpt_operation ops[CKPT_DIFFERENCE_MAX];
	void *bodies[CKPT_DIFFERENCE_MAX];
	uint32_t count;
};

static void add_act(struct batch *b, struct node *n, const struct ckpt_state_step *step, struct ckpt_act *a)
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

static void put_entry(struct node *n, const struct batch *b)
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

static void view_done(struct ckpt_state **view)
{
	ckpt_state_free(*view);
}

// The first of its queue, whose place is taken by nobody: what it says of a step in one entry. Then its own view has it, and shows the same.
static const struct ckpt_state_step *first_of(struct node *n, bool stuck, struct ckpt_act *ret_acts, size_t *ret_count)
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
static bool lacks_files(const struct node *n, const struct ckpt_state_step *step)
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
static void merge_all(struct node *n)
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
static bool push_next(struct node *n, bool reads)
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

static int set(struct node *n, const char *key, const char *text)
{
	struct ckpt_act a = {.kind = CKPT_ACT_SET,
			     .before = CKPT_ACT_ANY,
			     .value = text,
			     .value_len = strlen(text),
			     .time_ns = 3000};

	strcpy(a.key, key);
	return act(n, &a);
}

static const char *value(const struct node *n)
{
	const struct ckpt_state_value *v = ckpt_state_value(n->state, CKPT_VALUE_POLICY);

	return v ? v->text : "";
}

// As an entry of the remote's log.
static void put_value(struct node *n, const char *key, uint64_t before, const char *text)
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

static bool push_value(struct node *n)
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

static void push_all(struct node *n)
{
	while (push_value(n))
		;
	for (unsigned i = 0; push_next(n, true); i++)
		ck_assert_uint_lt(i, 1000);
}

static void meet(void)
{
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < NODES; i++)
			push_all(&nodes[i]);
	for (unsigned i = 0; i < NODES; i++)
		pull_all(&nodes[i]);
}

// All nodes that have read as much make the same bytes.
static void put_snapshot(struct node *n)
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

static void jump_to(struct node *n, uint64_t seq)
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
static bool jump(struct node *n)
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

static size_t changes(const struct node *n)
{
	size_t count;

	(void)ckpt_state_changed(n->state, &count);
	return count;
}

static bool is_deleted_alone(const struct ckpt_state_step *step)
{
	return step->since && !step->shared && step->deleted_by;
}

// Its files were changed before it was deleted here: they wait until it is undeleted.
static bool is_deleted_with_changes(const struct ckpt_state_step *step)
{
	return step->since && step->shared && step->deleted_by > step->is.version && step->shared->deleted_by &&
	       ckpt_state_has_changed_files(step);
}

static const struct ckpt_state_step *as_pushed(const struct ckpt_state_step *step)
{
	return step && is_deleted_with_changes(step) ? step->shared : step;
}

// Steps that expired before the log had them, which may have been sent: until the next entry is read.
static size_t expired_alone(const struct node *n)
{
	size_t count, found = 0;
	struct ckpt_state_step *const *changed = ckpt_state_changed(n->state, &count);

	for (size_t i = 0; i < count; i++)
		found += changed[i]->gone && !changed[i]->shared;
	return found;
}

static void check_same(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
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

static void check_same_values(const struct node *n, const struct node *m)
{
	const struct ckpt_value_list *a = ckpt_state_values(n->state), *b = ckpt_state_values(m->state);

	for (size_t i = 0; i < a->count; i++) {
		const struct ckpt_state_value *v = ckpt_value_find(b, a->at[i].key);

		if (ckpt_value_is_shared(a->at[i].key))
			ck_assert_str_eq(a->at[i].text, v ? v->text : "none");
	}
}

static void check_all_same(void)
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

static void replace_by_its_snapshot(struct node *n)
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

// --- Meetings -------------------------------------------------------------------------------------------------------------

#define US (&nodes[0])
#define THEM (&nodes[1])

static char id[CKPT_UUID_LEN + 1], other[CKPT_UUID_LEN + 1];

// A step that all have.
static void share(const char *name)
{
	strcpy(id, save(US, name));
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(listed(&nodes[i], name)->id, id);
}

START_TEST(what_is_pushed_is_no_change_any_more)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_assert_uint_eq(changes(US), 1);
	ck_ok(amend(US, listed(US, "1000")));
	ck_assert_uint_eq(changes(US), 1);
	push_all(US);
	ck_assert_uint_eq(changes(US), 0);
	ck_assert_uint_eq(end, 1); // both as one
	pull_all(THEM);
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_uint_eq(listed(THEM, "1000")->is.version, 2);
	ck_assert_uint_eq(changes(THEM), 0);
	finish();
}
END_TEST

// The bytes of entry at, with another number.
static int pull_numbered(struct node *n, uint64_t at, uint64_t seq)
{
	struct ckpt_operation ops[CKPT_DIFFERENCE_MAX];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_log_entry e;
	uint32_t count = 0;
	size_t len;

	ck_ok(ckpt_log_entry_decode(entries[at].data, entries[at].len, &e));
	ck_assert_uint_le(e.count, CKPT_DIFFERENCE_MAX);
	for (size_t cursor = 0; ckpt_log_entry_next(&e, &cursor, &ops[count]);)
		if (++count == e.count)
			break;
	e.seq = seq;
	ck_ok(ckpt_log_entry_encode(&e, ops, &data, &len));
	return pull(n, &(struct ckpt_pull){.host = "", .entry = data, .entry_len = len});
}

START_TEST(entry_that_is_not_the_next_one_says_nothing)
{
	begin();
	save(US, "1000");
	push_all(US);
	save(US, "1001");
	push_all(US);
	ck_assert_uint_eq(end, 2);
	ck_assert_int_eq(pull_numbered(THEM, 2, 2), CKPT_STATE_VOID); // before the first one
	ck_assert_uint_eq(ckpt_state_remote(THEM->state).seq, 0);
	ck_assert(pull_next(THEM));
	ck_assert_int_eq(pull_numbered(THEM, 2, 3),
			 CKPT_STATE_VOID); // it follows the right one, and has not its number
	ck_assert_uint_eq(ckpt_state_remote(THEM->state).seq, 1);
	ck_assert_ptr_null(listed(THEM, "1001"));
	ck_assert(pull_next(THEM));
	ck_assert_ptr_nonnull(listed(THEM, "1001"));
	ck_assert_int_eq(pull_numbered(THEM, 2, 2), CKPT_STATE_VOID); // once more
	ck_assert_uint_eq(ckpt_state_remote(THEM->state).seq, 2);
	finish();
}
END_TEST

START_TEST(second_of_one_name_gets_another)
{
	begin();
	strcpy(id, save(US, "1000"));
	strcpy(other, save(THEM, "1000"));
	push_all(US);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, id);
		ck_assert_str_eq(listed(&nodes[i], "1000.conflict-h1")->id, other);
		ck_assert_int_eq(listed(&nodes[i], "1000.conflict-h1")->is.number, -1);
	}
	finish();
}
END_TEST

START_TEST(third_of_one_name_gets_a_number)
{
	begin();
	for (unsigned i = 0; i < 2; i++) {
		save(US, "1000");
		save(THEM, "1000");
		meet();
		ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
		meet();
	}
	ck_assert_ptr_nonnull(listed(US, "1000.conflict-h1"));
	ck_assert_ptr_nonnull(listed(US, "1000.conflict-h1-2"));
	finish();
}
END_TEST

START_TEST(long_name_of_a_conflict_is_cut_between_characters)
{
	char name[CKPT_NAME_MAX + 1] = "";
	const struct ckpt_state_step *step;

	begin();
	for (size_t i = 0; i + 2 <= CKPT_NAME_MAX; i += 2)
		strcat(name, "\xc3\xa4");
	save(US, name);
	strcpy(id, save(THEM, name));
	push_all(US);
	push_all(THEM);
	step = step_of(THEM, id);
	ck_ok(ckpt_name_check(step->is.name, strlen(step->is.name)));
	ck_assert_ptr_nonnull(strstr(step->is.name, "\xc3\xa4.conflict-h1"));
	finish();
}
END_TEST

START_TEST(save_over_a_step_that_went_elsewhere_leaves_it_there)
{
	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	ck_assert_uint_ne(step_of(US, id)->deleted_by, 0);
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "best"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "best")->id, id);
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
	}
	finish();
}
END_TEST

START_TEST(save_over_a_step_that_was_amended_takes_it_with_its_amendment)
{
	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert_uint_ne(step_of(&nodes[i], id)->deleted_by, 0);
		ck_assert_uint_eq(step_of(&nodes[i], id)->is.version, 2);
	}
	finish();
}
END_TEST

START_TEST(two_saves_over_one_step_stay_both)
{
	char third[CKPT_UUID_LEN + 1];

	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	strcpy(third, save(THEM, "1000"));
	push_all(US);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert_str_eq(listed(&nodes[i], "1000.conflict-h1")->id, third);
		ck_assert_uint_ne(step_of(&nodes[i], id)->deleted_by, 0);
	}
	finish();
}
END_TEST

START_TEST(deletion_of_what_was_amended_or_renamed_deletes_it)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "best"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_uint_ne(step_of(&nodes[i], id)->deleted_by, 0);
		ck_assert_str_eq(step_of(&nodes[i], id)->is.name, "best");
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

START_TEST(deletion_of_what_was_pinned_is_undone)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(THEM, CKPT_ACT_FLAG, listed(THEM, "1000"), CKPT_FLAG_PINNED));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert(listed(&nodes[i], "1000")->is.pinned);
	finish();
}
END_TEST

START_TEST(pin_of_what_was_deleted_keeps_it_in_the_trash)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = step_of(&nodes[i], id);

		ck_assert(step->deleted_by && step->is.pinned);
		ck_assert_int_eq(plain(&nodes[i], CKPT_ACT_EXPIRE, step, 0), CKPT_STATE_VOID);
	}
	finish();
}
END_TEST

START_TEST(amendment_of_what_was_deleted_goes_to_the_trash)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = step_of(&nodes[i], id);

		ck_assert(step->deleted_by && step->is.files == 5 + 1);
	}
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0)); // who knows the amendment may
	finish();
}
END_TEST

// Nobody needs its files before it comes back, by whichever node.
START_TEST(change_of_what_was_deleted_here_is_pushed_when_it_is_undeleted)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	push_all(US);
	pull_all(THEM);
	ck_assert(step_of(THEM, id)->deleted_by && step_of(THEM, id)->is.files == 5);
	ck_assert_uint_eq(step_of(THEM, id)->count, 2);
	ck_assert_uint_eq(step_of(US, id)->is.files, 5 + 1);
	if (_i)
		replace_by_its_snapshot(US);
	ck_ok(plain(_i ? THEM : US, CKPT_ACT_UNDELETE, step_of(_i ? THEM : US, id), 0));
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = listed(&nodes[i], "1000");

		ck_assert_uint_eq(step->is.files, 5 + 1);
		ck_assert_int_eq(step->versions[step->count - 1].files, CKPT_FILES_EDITED);
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

// The changes of flags go on, and neither is lost.
START_TEST(what_was_deleted_with_changes_may_be_pinned_by_others)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	push_all(US);
	pull_all(THEM);
	ck_ok(plain(THEM, CKPT_ACT_UNDELETE, step_of(THEM, id), 0));
	ck_ok(plain(THEM, CKPT_ACT_FLAG, step_of(THEM, id), CKPT_FLAG_PINNED));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert(listed(&nodes[i], "1000")->is.pinned && listed(&nodes[i], "1000")->is.files == 5 + 1);
	finish();
}
END_TEST

START_TEST(amendment_of_what_has_expired_is_a_step_of_its_own)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	ck_ok(plain(THEM, CKPT_ACT_EXPIRE, step_of(THEM, id), 0));
	if (_i) // the name is taken, or free
		save(THEM, "1000");
	push_all(THEM);
	pull_all(US);
	ck_assert(ckpt_state_is_unmerged(listed(US, "1000.conflict-h0"))); // it has files that have expired
	ck_assert_uint_eq(ckpt_state_unmerged_theirs(listed(US, "1000.conflict-h0")), 0);
	ck_assert_uint_eq(listed(US, "1000.conflict-h0")->merged, 1);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = listed(&nodes[i], "1000.conflict-h0");

		ck_assert_str_eq(step->id, id);
		ck_assert_int_eq(step->is.number, -1);
	}
	finish();
}
END_TEST

// The node waits until both are put together: neither's files are lost in the version that all nodes have.
START_TEST(amendments_of_two_nodes_are_put_together_before_they_are_pushed)
{
	const struct ckpt_state_step *step;
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	push_all(THEM);
	pull_all(US);
	step = listed(US, "1000");
	ck_assert(ckpt_state_is_unmerged(step));
	ck_assert_uint_eq(step->merged, 1);
	ck_assert_uint_eq(ckpt_state_unmerged_theirs(step), 3);
	ck_assert_uint_eq(ckpt_state_difference(US->state, step, false, acts), 0);
	if (_i)
		replace_by_its_snapshot(US);
	ck_ok(amend(US, listed(US, "1000"))); // this one does not have the other's files either
	step = listed(US, "1000");
	ck_assert(ckpt_state_is_unmerged(step));
	merge_all(US);
	step = listed(US, "1000");
	ck_assert_uint_eq(step->merged, 3);
	ck_assert_uint_eq(ckpt_state_difference(US->state, step, false, acts), 1);
	ck_assert_int_eq(acts[0].kind, CKPT_ACT_AMEND);
	ck_ok(amend(THEM, listed(THEM, "1000"))); // and once more meanwhile
	push_all(THEM);
	pull_all(US);
	ck_assert(ckpt_state_is_unmerged(listed(US, "1000")));
	ck_assert_uint_eq(listed(US, "1000")->merged, 3);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	finish();
}
END_TEST

// A merge says which version of the remote's log it has. Without a remote it says nothing, and none is in its log.
START_TEST(merge_of_a_version_that_is_not_there_leaves_it_unmerged)
{
	struct ckpt_summary sum;

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	push_all(THEM);
	pull_all(US);
	for (merged = 0; merged < 10; merged++) {
		if (merged == 2)
			continue;
		sum = listed(US, "1000")->is;
		sum.version = next_version(listed(US, "1000"));
		ck_ok(act_with(US, CKPT_ACT_MERGE, &sum, ""));
		ck_assert(ckpt_state_is_unmerged(listed(US, "1000")));
	}
	finish();
}
END_TEST

static size_t acts_of(const struct node *n, const char *step)
{
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	return ckpt_state_difference(n->state, step_of(n, step), false, acts);
}

// Neither it nor what this node had before it is pushed before it has all that the other one did, once and again. _i: there is such a thing.
START_TEST(edit_of_a_step_that_was_amended_waits_for_the_amendments)
{
	char amended[CKPT_UUID_LEN + 1];
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	begin();
	share("1000");
	ck_assert_int_ge(_i ? amend(US, listed(US, "1000")) : 0, 0);
	strcpy(amended, id);
	strcpy(other, edit(US, "1000"));
	ck_assert_uint_eq(acts_of(US, amended), _i);
	for (unsigned i = 0; i < 3; i++) {
		ck_ok(amend(THEM, listed(THEM, "1000")));
		push_all(THEM);
		pull_all(US);
		ck_assert(ckpt_state_is_edit_behind(US->state, listed(US, "1000")));
		ck_assert(ckpt_state_has_edit_behind(US->state, step_of(US, amended)));
		ck_assert_uint_eq(acts_of(US, amended), 0);
		ck_assert_uint_eq(acts_of(US, other), 0);
		merge_all(US);
		ck_assert(!ckpt_state_is_edit_behind(US->state, listed(US, "1000")));
		ck_assert(listed(US, "1000")->versions[0].unmerged);
		ck_assert_uint_eq(acts_of(US, amended), 0);
		ck_assert_uint_eq(step_of(US, amended)->merged, ckpt_state_last(listed(THEM, "1000")));
	}
	ck_assert_uint_eq(ckpt_state_difference(US->state, step_of(US, other), false, acts), 1);
	ck_assert_uint_gt(acts->version, ckpt_state_last(listed(THEM, "1000")));
	push_all(US);
	ck_assert_uint_eq(step_of(US, amended)->since, 0);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert(ckpt_state_was_replaced(step_of(&nodes[i], amended)));
	}
	finish();
}
END_TEST

// A repacked version has the files that were there before.
START_TEST(amendment_beside_new_packs_is_merged)
{
	struct ckpt_summary sum;

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	sum = listed(THEM, "1000")->is;
	sum.version = 2;
	ck_ok(act_with(THEM, CKPT_ACT_REPACK, &sum, ""));
	push_all(THEM);
	pull_all(US);
	ck_assert(!ckpt_state_is_unmerged(listed(US, "1000")));
	ck_assert_uint_eq(listed(US, "1000")->is.files, 5 + 1);
	meet();
	finish();
}
END_TEST

START_TEST(undeletion_under_a_name_that_was_taken)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	meet();
	ck_ok(plain(US, CKPT_ACT_UNDELETE, step_of(US, id), 0));
	strcpy(other, save(THEM, "1000"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert_str_eq(listed(&nodes[i], "1000.conflict-h0")->id, id);
	}
	finish();
}
END_TEST

// The expiry is nothing then; the deletion stays. _i: the node that has deleted it has read its own snapshot since.
START_TEST(deletion_and_expiry_of_what_was_amended_deletes_it)
{
	begin();
	share("1000");
	ck_ok(amend(THEM, listed(THEM, "1000")));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	if (_i)
		replace_by_its_snapshot(US);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = step_of(&nodes[i], id);

		ck_assert(step && step->deleted_by && step->is.files == 5 + 1);
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

START_TEST(undeletion_of_what_has_expired_is_nothing)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	meet();
	ck_ok(plain(US, CKPT_ACT_UNDELETE, step_of(US, id), 0));
	ck_ok(plain(THEM, CKPT_ACT_EXPIRE, step_of(THEM, id), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_ptr_null(step_of(&nodes[i], id));
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

START_TEST(expiry_of_what_was_undeleted_is_nothing)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	meet();
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	ck_assert_ptr_null(step_of(US, id));
	ck_ok(plain(THEM, CKPT_ACT_UNDELETE, step_of(THEM, id), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, id);
	finish();
}
END_TEST

START_TEST(of_two_new_names_the_later_holds)
{
	begin();
	share("1000");
	ck_ok(rename_to(US, listed(US, "1000"), "mine"));
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "theirs"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(listed(&nodes[i], "mine")->id, id);
	finish();
}
END_TEST

START_TEST(deleted_before_it_was_pushed_is_never_pushed)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	push_all(US);
	ck_assert_uint_eq(end, 0);
	ck_ok(plain(US, CKPT_ACT_UNDELETE, step_of(US, id), 0));
	push_all(US);
	ck_assert_uint_eq(end, 1);
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	push_all(US);
	ck_assert_uint_eq(changes(US), 0);
	pull_all(THEM);
	ck_assert_ptr_null(step_of(THEM, id));
	finish();
}
END_TEST

// Its SAVE may have been sent, and arrives after it is gone here (REMOTE.md P6): then the removal is pushed. _i: after a restart.
START_TEST(removed_while_its_save_was_on_its_way_stays_removed)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_assert(push_next(US, false));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	ck_assert_ptr_null(step_of(US, id));
	if (_i)
		replace_by_its_snapshot(US);
	pull_all(US);
	ck_assert_ptr_null(step_of(US, id));
	if (_i)
		replace_by_its_snapshot(US);
	push_all(US);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_ptr_null(step_of(&nodes[i], id));
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

// Another entry has the slot: it was not sent, or never arrives.
START_TEST(removed_before_it_was_pushed_leaves_nothing_behind_the_next_entry)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	push_all(US);
	ck_assert_uint_eq(end, 0);
	ck_assert_uint_eq(changes(US), 1);
	save(_i ? THEM : US, "2000");
	push_all(_i ? THEM : US);
	pull_all(US);
	ck_assert_uint_eq(changes(US), 0);
	ck_assert_uint_eq(end, 1);
	finish();
}
END_TEST

START_TEST(deletion_stands_behind_what_came_before_it)
{
	const struct ckpt_state_step *step;
	uint64_t place;

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	place = ckpt_state_place(US->state, step_of(US, id));
	save(US, "2000");
	step = listed(US, "2000");
	ck_assert_uint_lt(place, ckpt_state_place(US->state, step));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_assert_uint_gt(ckpt_state_place(US->state, step_of(US, id)), ckpt_state_place(US->state, step));
	finish();
}
END_TEST

// What was written behind the first save names the step, and goes behind its save.
START_TEST(step_that_is_saved_again_before_it_was_pushed_keeps_its_place)
{
	uint64_t place;

	begin();
	save(US, "1000");
	place = ckpt_state_place(US->state, listed(US, "1000"));
	save(US, "2000");
	save(US, "1000");
	ck_assert_uint_eq(ckpt_state_place(US->state, listed(US, "1000")), place);
	push_all(US);
	save(US, "1000");
	ck_assert_uint_gt(ckpt_state_place(US->state, listed(US, "1000")), place);
	meet();
	finish();
}
END_TEST

// The new name may arrive after the step has its old one back (REMOTE.md P6). _i: 1 after a restart; 2 it was never sent.
START_TEST(old_name_that_was_given_back_is_pushed)
{
	begin();
	share("1000");
	ck_ok(rename_to(US, listed(US, "1000"), "new"));
	if (_i < 2)
		ck_assert(push_next(US, false));
	ck_ok(rename_to(US, listed(US, "new"), "1000"));
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert_uint_eq(changes(US), 1);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, id);
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

static int drop(struct node *n, const struct ckpt_state_step *step)
{
	struct ckpt_act a = {.kind = CKPT_ACT_DROP, .version = ckpt_state_last(step), .time_ns = 2000};

	strcpy(a.step, step->id);
	return act(n, &a);
}

static bool is_held(const struct node *n, uint64_t number)
{
	return ckpt_state_held_by(n->state, number);
}

// Before those that cannot be pushed.
static void push_alone(struct node *n, const char *step_id)
{
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	struct batch b = {0};
	size_t count;

	pull_all(n);
	count = ckpt_state_difference(n->state, step_of(n, step_id), false, acts);
	ck_assert_uint_gt(count, 0);
	for (size_t i = 0; i < count; i++)
		add_act(&b, n, step_of(n, step_id), &acts[i]);
	put_entry(n, &b);
	for (uint32_t i = 0; i < b.count; i++)
		free(b.bodies[i]);
	pull_all(n);
}

// _i: after a restart.
START_TEST(files_do_not_wait_for_a_step_that_is_dropped_when_a_later_one_has_arrived)
{
	uint64_t behind, between;

	begin();
	strcpy(id, save(US, "1000"));
	behind = US->number;
	strcpy(other, save(US, "2000"));
	between = US->number;
	push_alone(US, other);
	push_alone(US, save(US, "2500"));
	if (_i)
		replace_by_its_snapshot(US);
	ck_ok(drop(US, listed(US, "1000")));
	ck_assert(!is_held(US, between));
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert(ckpt_state_is_dropped(step_of(US, id)));
	ck_assert(is_held(US, behind) && !is_held(US, US->number));
	save(US, "3000");
	ck_assert(!is_held(US, US->number));
	meet();
	ck_assert(is_held(US, behind) && !is_held(US, US->number));
	finish();
}
END_TEST

// _i: after a restart.
START_TEST(dropped_step_stays_here_and_is_pushed_once_it_is_changed)
{
	uint64_t before, behind;

	begin();
	before = US->number;
	strcpy(id, save(US, "1000"));
	behind = US->number;
	ck_ok(drop(US, listed(US, "1000")));
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert(ckpt_state_is_dropped(step_of(US, id)));
	strcpy(other, save(US, "2000"));
	ck_assert(!is_held(US, before) && is_held(US, behind) && is_held(US, US->number));
	meet();
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert_ptr_null(step_of(THEM, id));
	ck_assert_str_eq(listed(THEM, "2000")->id, other);
	ck_assert_str_eq(listed(US, "1000")->id, id);
	ck_assert_uint_eq(changes(US), 1);
	ck_assert(!is_held(US, before) && is_held(US, behind) && !is_held(US, US->number));
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	ck_assert(!ckpt_state_is_dropped(step_of(US, id)) && !is_held(US, behind));
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_uint_eq(changes(US), 0);
	finish();
}
END_TEST

// It may have been sent before: then it is there.
START_TEST(dropped_step_that_arrives_is_no_change_any_more)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_assert(push_next(US, false));
	ck_ok(drop(US, listed(US, "1000")));
	meet();
	ck_assert_uint_eq(changes(US), 0);
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	finish();
}
END_TEST

START_TEST(dropped_edit_leaves_the_remote_as_it_is_and_takes_what_others_change)
{
	uint32_t theirs;

	begin();
	share("1000");
	theirs = listed(THEM, "1000")->is.version;
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(drop(US, listed(US, "1000")));
	meet();
	ck_assert_uint_eq(listed(THEM, "1000")->is.version, theirs);
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "4000"));
	push_all(THEM);
	pull_all(US);
	ck_assert(ckpt_state_is_dropped(listed(US, "4000")));
	ck_assert(ckpt_state_has_changed_files(listed(US, "4000")));
	ck_assert(!push_next(US, true));
	finish();
}
END_TEST

// _i: the step that was replaced has expired here, and the node has begun again.
START_TEST(what_a_dropped_step_has_replaced_stays_in_the_remote)
{
	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	ck_ok(drop(US, listed(US, "1000")));
	if (_i) {
		ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
		replace_by_its_snapshot(US);
	}
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_str_eq(listed(US, "1000")->id, other);
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, other);
	ck_assert_uint_eq(changes(US), 0);
	finish();
}
END_TEST

// Others wait for its name, or take it for deleted.
START_TEST(what_does_not_wait_or_has_another_name_is_not_dropped)
{
	struct ckpt_act a = {.kind = CKPT_ACT_DROP, .time_ns = 2000};

	begin();
	share("1000");
	ck_assert_int_eq(drop(US, listed(US, "1000")), CKPT_STATE_VOID);
	ck_ok(rename_to(US, listed(US, "1000"), "2000"));
	ck_assert_int_eq(drop(US, listed(US, "2000")), CKPT_STATE_VOID);
	strcpy(other, save(US, "3000"));
	strcpy(a.step, other);
	a.version = listed(US, "3000")->is.version + 1;
	ck_assert_int_eq(act(US, &a), CKPT_STATE_VOID);
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "3000"), 0));
	ck_assert_int_eq(drop(US, step_of(US, other)), CKPT_STATE_VOID);
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "2000"), 0));
	ck_assert_int_eq(drop(US, step_of(US, id)), CKPT_STATE_VOID);
	finish();
}
END_TEST

// _i: after a restart, or over a jump.
START_TEST(policy_of_one_node_is_that_of_all)
{
	begin();
	ck_ok(set(US, CKPT_VALUE_POLICY, "a"));
	ck_ok(set(US, "garbage", "mine"));
	ck_assert_str_eq(value(US), "a");
	if (_i == 1)
		replace_by_its_snapshot(US);
	push_all(US);
	ck_assert_uint_eq(end, 1);
	put_snapshot(US);
	if (_i == 1)
		replace_by_its_snapshot(US);
	if (_i == 2) {
		jump_to(THEM, end);
	} else {
		pull_all(THEM);
	}
	ck_assert_str_eq(value(THEM), "a");
	ck_assert(ckpt_state_value(THEM->state, CKPT_VALUE_POLICY)->pulled);
	ck_assert(!ckpt_state_value(US->state, CKPT_VALUE_POLICY)->pulled);
	ck_assert_ptr_null(ckpt_state_value(THEM->state, "garbage"));
	replace_by_its_snapshot(THEM);
	ck_ok(set(THEM, CKPT_VALUE_POLICY, ""));
	push_all(THEM);
	pull_all(US);
	ck_assert_ptr_null(ckpt_state_value(US->state, CKPT_VALUE_POLICY));
	finish();
}
END_TEST

START_TEST(of_two_policies_the_later_in_the_log_holds)
{
	begin();
	ck_ok(set(US, CKPT_VALUE_POLICY, "a"));
	ck_ok(set(THEM, CKPT_VALUE_POLICY, "b"));
	push_all(US);
	pull_all(THEM);
	ck_assert_str_eq(value(THEM), "b");
	replace_by_its_snapshot(THEM);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(value(&nodes[i]), "b");
	ck_assert(ckpt_state_value(US->state, CKPT_VALUE_POLICY)->pulled);
	finish();
}
END_TEST

// Each has a key of its own. _i: by its entries, or over a jump.
START_TEST(changes_of_different_settings_are_both_kept)
{
	begin();
	ck_ok(set(US, "settingtrash", "=1d"));
	ck_ok(set(US, "settingdelta", "=1"));
	ck_ok(set(THEM, "settinghere", "=2"));
	ck_ok(set(THEM, "settingdelta", "=2"));
	push_all(US);
	put_snapshot(US);
	replace_by_its_snapshot(THEM);
	if (_i == 0)
		pull_all(THEM);
	else
		jump_to(THEM, end);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(ckpt_state_value(nodes[i].state, "settingtrash")->text, "=1d");
		ck_assert_str_eq(ckpt_state_value(nodes[i].state, "settinghere")->text, "=2");
		ck_assert_str_eq(ckpt_state_value(nodes[i].state, "settingdelta")->text, "=2");
	}
	ck_ok(set(US, "settingtrash", ""));
	meet();
	ck_assert_ptr_null(ckpt_state_value(THEM->state, "settingtrash"));
	finish();
}
END_TEST

// A policy is no setting, and takes the place of none: whether it was read before them, as by a jump, or behind them.
START_TEST(policy_counts_for_no_setting)
{
	char key[CKPT_VALUE_KEY_MAX + 1];

	begin();
	for (unsigned i = 0; i < CKPT_VALUE_SETTINGS_MAX; i++) {
		snprintf(key, sizeof(key), "settingx%c%c", 'a' + i / 26, 'a' + i % 26);
		put_value(US, key, CKPT_ACT_ANY, "=1");
		pull_all(US);
	}
	put_value(US, CKPT_VALUE_POLICY, CKPT_ACT_ANY, "a");
	pull_all(US);
	put_value(US, "settingy", CKPT_ACT_ANY, "=1"); // one too many
	pull_all(US);
	put_snapshot(US);
	jump_to(THEM, end);
	pull_all(&nodes[NODES - 1]);
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(value(&nodes[i]), "a");
		ck_assert_ptr_nonnull(ckpt_state_value(nodes[i].state, key));
		ck_assert_ptr_null(ckpt_state_value(nodes[i].state, "settingy"));
	}
	finish();
}
END_TEST

START_TEST(values_that_are_not_shared_are_nobody_elses_matter)
{
	begin();
	ck_ok(set(US, "garbage", "mine"));
	put_value(THEM, "garbage", CKPT_ACT_ANY, "theirs");
	pull_all(THEM);
	put_value(THEM, CKPT_VALUE_POLICY, 7, "theirs");
	pull_all(US);
	ck_assert_str_eq(ckpt_state_value(US->state, "garbage")->text, "mine");
	ck_assert_str_eq(value(US), "");
	finish();
}
END_TEST

START_TEST(all_of_a_store_is_a_change_where_a_remote_is_attached)
{
	begin();
	ckpt_state_free(US->state);
	US->state = ckpt_state_new();
	strcpy(id, save(US, "1000"));
	strcpy(other, save(US, "2000"));
	ck_assert(!ckpt_state_is_attached(US->state));
	attach(US);
	ck_assert(ckpt_state_is_attached(US->state));
	ck_assert_uint_eq(changes(US), 2);
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_str_eq(listed(THEM, "2000")->id, other);
	finish();
}
END_TEST

static void assert_plain_store(const struct ckpt_state *state)
{
	size_t count;

	ck_assert(!ckpt_state_is_attached(state));
	ck_assert_uint_eq(ckpt_state_remote(state).seq, 0);
	(void)ckpt_state_changed(state, &count);
	ck_assert_uint_eq(count, 0);
	(void)ckpt_state_plains(state, &count);
	ck_assert_uint_eq(count, 0);
	(void)ckpt_state_named_objects(state, &count);
	ck_assert_uint_eq(count, 0);
}

START_TEST(a_store_whose_remote_is_detached_is_a_plain_one_with_what_it_had)
{
	CLEANUP_FREE void *bytes = NULL;
	struct ckpt_state *again;
	size_t len;

	begin();
	share("1000");
	share("2000");
	share("3000");
	strcpy(other, save(US, "4000"));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "2000"), CKPT_FLAG_PINNED));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "3000"), 0));
	strcpy(id, ckpt_state_named(US->state, "", "3000", 1)->id);
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	ck_ok(set(THEM, "policy", "{}"));
	push_next(THEM, true);
	pull_all(US);
	ck_ok(set(US, "policy", "{\"a\":1}"));
	ck_assert_uint_eq(changes(US), 4);
	ck_ok(pull(US, &(struct ckpt_pull){.host = ""}));
	assert_plain_store(US->state);
	ck_assert_str_eq(listed(US, "4000")->id, other);
	ck_assert(listed(US, "2000")->is.pinned && !listed(US, "1000"));
	ck_assert_ptr_null(ckpt_state_step(US->state, id));
	ck_assert_str_eq(value(US), "{\"a\":1}");
	ck_assert_int_eq(pull(US, &(struct ckpt_pull){.host = ""}), CKPT_STATE_VOID);

	ck_ok(ckpt_state_encode(US->state, &bytes, &len));
	ck_ok(ckpt_state_decode(bytes, len, &again));
	assert_plain_store(again);
	ckpt_state_free(again);

	attach(US);
	ck_assert_uint_eq(changes(US), 3);
	finish();
}
END_TEST

START_TEST(steps_of_a_store_that_is_attached_are_pushed_in_the_order_of_their_commits)
{
	static const char *const names[] = {"9", "8", "7", "6", "5", "4", "3", "2"};
	struct ckpt_state_step *const *changed;
	size_t count;

	begin();
	ckpt_state_free(US->state);
	US->state = ckpt_state_new();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_summary sum = fresh(names[i], 1);

		sum.sequence = ARRAY_LEN(names) - i;
		ck_ok(act_with(US, CKPT_ACT_SAVE, &sum, ""));
	}
	attach(US);
	changed = ckpt_state_changed(US->state, &count);
	ck_assert_uint_eq(count, ARRAY_LEN(names));
	for (size_t i = 0; i < count; i++)
		ck_assert_str_eq(changed[i]->is.name, names[ARRAY_LEN(names) - 1 - i]);
	finish();
}
END_TEST

START_TEST(changes_of_a_node_stay_over_a_jump)
{
	char third[CKPT_UUID_LEN + 1];

	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	strcpy(other, save(US, "mine"));
	save(THEM, "2000");
	ck_ok(amend(THEM, listed(THEM, "1000")));
	strcpy(third, save(THEM, "mine"));
	push_all(THEM);
	put_snapshot(THEM);
	ck_assert(jump(US));
	ck_assert_uint_eq(changes(US), 2);
	ck_assert(listed(US, "1000")->is.pinned && listed(US, "1000")->is.files == 5 + 1);
	ck_assert_ptr_nonnull(listed(US, "2000"));
	ck_assert_str_eq(listed(US, "mine")->id, third);
	ck_assert_str_eq(listed(US, "mine.conflict-h0")->id, other);
	meet();
	check_all_same();
	finish();
}
END_TEST

START_TEST(jump_ends_changes_of_what_has_expired)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	save(THEM, "2000");
	push_all(THEM);
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	ck_ok(plain(THEM, CKPT_ACT_EXPIRE, step_of(THEM, id), 0));
	push_all(THEM);
	put_snapshot(THEM);
	ck_assert(jump(US));
	ck_assert_ptr_null(step_of(US, id));
	ck_assert_uint_eq(changes(US), 0);
	finish();
}
END_TEST

START_TEST(jump_back_or_without_a_remote_is_void)
{
	const struct ckpt_operation op = {.number = 1, .kind = CKPT_JUMP_KIND, .node = STORE};
	const struct ckpt_log_position at = {.seq = 1};
	struct ckpt_state *to = ckpt_state_new(), *alone = ckpt_state_new();

	begin();
	share("1000");
	ck_assert_int_eq(ckpt_state_jump(US->state, &op, &at, to), CKPT_STATE_VOID);
	ck_assert_int_eq(ckpt_state_jump(US->state, &op, &at, NULL), CKPT_STATE_VOID);
	ck_assert_int_eq(ckpt_state_jump(alone, &op, &at, to), CKPT_STATE_VOID);
	ck_assert_int_eq(ckpt_state_jump(US->state, &op, &(struct ckpt_log_position){.seq = 2}, NULL), -EBADMSG);
	ck_assert_str_eq(listed(US, "1000")->id, id);
	ckpt_state_free(to);
	ckpt_state_free(alone);
	finish();
}
END_TEST

// --- Anything -------------------------------------------------------------------------------------------------------------

static unsigned random_below(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

static void act_at_random(struct node *n, unsigned *seed)
{
	static const char *const values[] = {CKPT_VALUE_POLICY, "settinga", "settingb"};
	const char *const names[] = {"1", "2", "3", "best", "last"};
	const char *name = names[random_below(seed, ARRAY_LEN(names))];
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	const struct ckpt_state_step *step;
	size_t count;

	ck_ok(ckpt_state_steps(n->state, &steps, &count));
	if (!count || (!random_below(seed, 3) && ids < STEPS_MAX)) {
		if (!listed(n, name) || !listed(n, name)->is.pinned)
			(void)(listed(n, name) && random_below(seed, 2) ? edit(n, name) : save(n, name));
		return;
	}
	step = steps[random_below(seed, (unsigned)count)];
	switch (random_below(seed, 8)) {
	case 6:
		ck_ok(set(n, values[random_below(seed, ARRAY_LEN(values))], random_below(seed, 4) ? step->id : ""));
		break;
	case 0:
		ck_assert_int_ge(step->deleted_by ? 0 : amend(n, step), 0);
		break;
	case 1:
		ck_assert_int_ge(plain(n, CKPT_ACT_DELETE, step, 0), 0);
		break;
	case 2:
		ck_assert_int_ge(plain(n, CKPT_ACT_UNDELETE, step, 0), 0);
		break;
	case 3:
		ck_assert_int_ge(step->deleted_by ? plain(n, CKPT_ACT_EXPIRE, step, 0) : 0, 0);
		break;
	case 4:
		ck_assert_int_ge(step->deleted_by ? 0 : rename_to(n, step, name), 0);
		break;
	case 5:
		ck_assert_int_ge(step->deleted_by ? 0 : plain(n, CKPT_ACT_FLAG, step, random_below(seed, 4)), 0);
		break;
	default:
		ck_assert_int_ge(drop(n, step), 0);
		break;
	}
}

// Another act puts it into the queue again.
static unsigned change_what_was_dropped(struct node *n)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	unsigned dropped = 0;
	size_t count;

	ck_ok(ckpt_state_steps(n->state, &steps, &count));
	for (size_t i = 0; i < count; i++)
		if (ckpt_state_is_dropped(steps[i])) {
			ck_ok(plain(n, CKPT_ACT_FLAG, steps[i], 0));
			dropped++;
		}
	return dropped;
}

// An act on what the node knows of the plain tree, which the tree may not allow: it is void for all then.
static struct ckpt_act random_plain_act(const struct node *n, unsigned *seed, char content[32])
{
	static const char *const ids_of[] = {"", "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"}, *const names[] = {"1", "f",
													    "g"};
	const char *folder = ids_of[random_below(seed, 3)], *name = names[random_below(seed, 3)];
	const char *folder_id = ids_of[1 + random_below(seed, 2)];
	const struct ckpt_plain *there = ckpt_state_plain(n->state, folder, name);
	const struct ckpt_plain *moved = ckpt_state_plain_folder(n->state, folder_id);
	struct ckpt_act a = {.kind = CKPT_ACT_MKDIR + random_below(seed, 4), .before = there ? there->version : 0};

	snprintf(content, 32, "%llu", (unsigned long long)++nonces);
	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	if (a.kind == CKPT_ACT_MKDIR || a.kind == CKPT_ACT_MOVE) {
		strcpy(a.id, folder_id);
		a.before = a.kind == CKPT_ACT_MKDIR ? 0 : moved ? moved->version : 1;
	} else if (a.kind == CKPT_ACT_FILE) {
		a.link = random_below(seed, 2);
		a.content = content;
		a.content_len = a.link || random_below(seed, 4) ? strlen(content) : 0;
	} else if (!a.before) {
		a.before = 1;
	}
	return a;
}

static void push_plain_at_random(struct node *n, unsigned *seed)
{
	struct batch b = {0};
	char content[2][32];

	pull_all(n);
	for (unsigned i = 0; i < 2; i++) {
		struct ckpt_act a = random_plain_act(n, seed, content[i]);
		struct ckpt_operation *op = &b.ops[b.count];

		ck_ok(ckpt_act_encode(&a, &b.bodies[b.count], &op->len));
		op->body = b.bodies[b.count++];
		op->kind = (uint16_t)a.kind;
		op->required = true;
		strcpy(op->node, n->id);
	}
	put_entry(n, &b);
	for (uint32_t i = 0; i < b.count; i++)
		free(b.bodies[i]);
}

static size_t plains_of(const struct node *n)
{
	size_t count;

	(void)ckpt_state_plains(n->state, &count);
	return count;
}

static unsigned run_at_random(unsigned seed, size_t *ret_plains, unsigned *ret_dropped)
{
	unsigned jumps = 0;

	begin();
	for (unsigned i = 0; i < 150; i++) {
		struct node *n = &nodes[random_below(&seed, NODES)];

		switch (random_below(&seed, 13)) {
		case 0:
			if (!push_value(n))
				push_next(n, random_below(&seed, 2));
			break;
		case 3:
			put_snapshot(n);
			break;
		case 4:
			jumps += jump(n);
			break;
		case 11:
		case 12:
			push_plain_at_random(n, &seed);
			break;
		case 1:
			pull_next(n);
			break;
		case 2:
			replace_by_its_snapshot(n);
			break;
		default:
			act_at_random(n, &seed);
		}
	}
	meet();
	for (unsigned i = 0; i < NODES; i++)
		*ret_dropped += change_what_was_dropped(&nodes[i]);
	meet();
	check_all_same();
	for (unsigned i = 0; i < NODES; i++)
		put_snapshot(&nodes[i]);
	*ret_plains += plains_of(US);
	finish();
	return jumps;
}

START_TEST(nodes_that_have_met_show_the_same)
{
	unsigned runs = ckpt_suite_seeds(500, 20000), jumps = 0, dropped = 0;
	size_t plains = 0;

	for (unsigned seed = 1; seed <= runs; seed++)
		jumps += run_at_random(seed, &plains, &dropped);
	ck_assert_uint_ge(dropped, runs / 8);
	ck_assert_uint_ge(jumps, runs / 8); // it is about these, too
	ck_assert_uint_ge(plains, runs * 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared");
	TCase *met = tcase_create("meetings"), *any = tcase_create("anything");

	tcase_add_test(met, what_is_pushed_is_no_change_any_more);
	tcase_add_test(met, entry_that_is_not_the_next_one_says_nothing);
	tcase_add_test(met, second_of_one_name_gets_another);
	tcase_add_test(met, third_of_one_name_gets_a_number);
	tcase_add_test(met, long_name_of_a_conflict_is_cut_between_characters);
	tcase_add_test(met, save_over_a_step_that_went_elsewhere_leaves_it_there);
	tcase_add_test(met, save_over_a_step_that_was_amended_takes_it_with_its_amendment);
	tcase_add_loop_test(met, edit_of_a_step_that_was_amended_waits_for_the_amendments, 0, 2);
	tcase_add_test(met, two_saves_over_one_step_stay_both);
	tcase_add_test(met, deletion_of_what_was_amended_or_renamed_deletes_it);
	tcase_add_test(met, deletion_of_what_was_pinned_is_undone);
	tcase_add_test(met, pin_of_what_was_deleted_keeps_it_in_the_trash);
	tcase_add_test(met, amendment_of_what_was_deleted_goes_to_the_trash);
	tcase_add_loop_test(met, change_of_what_was_deleted_here_is_pushed_when_it_is_undeleted, 0, 2);
	tcase_add_test(met, what_was_deleted_with_changes_may_be_pinned_by_others);
	tcase_add_loop_test(met, amendment_of_what_has_expired_is_a_step_of_its_own, 0, 2);
	tcase_add_loop_test(met, amendments_of_two_nodes_are_put_together_before_they_are_pushed, 0, 2);
	tcase_add_test(met, merge_of_a_version_that_is_not_there_leaves_it_unmerged);
	tcase_add_test(met, amendment_beside_new_packs_is_merged);
	tcase_add_test(met, undeletion_under_a_name_that_was_taken);
	tcase_add_loop_test(met, deletion_and_expiry_of_what_was_amended_deletes_it, 0, 2);
	tcase_add_test(met, undeletion_of_what_has_expired_is_nothing);
	tcase_add_test(met, expiry_of_what_was_undeleted_is_nothing);
	tcase_add_test(met, of_two_new_names_the_later_holds);
	tcase_add_test(met, deleted_before_it_was_pushed_is_never_pushed);
	tcase_add_loop_test(met, removed_while_its_save_was_on_its_way_stays_removed, 0, 2);
	tcase_add_loop_test(met, removed_before_it_was_pushed_leaves_nothing_behind_the_next_entry, 0, 2);
	tcase_add_test(met, deletion_stands_behind_what_came_before_it);
	tcase_add_test(met, step_that_is_saved_again_before_it_was_pushed_keeps_its_place);
	tcase_add_loop_test(met, old_name_that_was_given_back_is_pushed, 0, 3);
	tcase_add_loop_test(met, dropped_step_stays_here_and_is_pushed_once_it_is_changed, 0, 2);
	tcase_add_loop_test(met, files_do_not_wait_for_a_step_that_is_dropped_when_a_later_one_has_arrived, 0, 2);
	tcase_add_test(met, dropped_step_that_arrives_is_no_change_any_more);
	tcase_add_test(met, dropped_edit_leaves_the_remote_as_it_is_and_takes_what_others_change);
	tcase_add_loop_test(met, what_a_dropped_step_has_replaced_stays_in_the_remote, 0, 2);
	tcase_add_test(met, what_does_not_wait_or_has_another_name_is_not_dropped);
	tcase_add_loop_test(met, policy_of_one_node_is_that_of_all, 0, 3);
	tcase_add_test(met, of_two_policies_the_later_in_the_log_holds);
	tcase_add_loop_test(met, changes_of_different_settings_are_both_kept, 0, 2);
	tcase_add_test(met, policy_counts_for_no_setting);
	tcase_add_test(met, values_that_are_not_shared_are_nobody_elses_matter);
	tcase_add_test(met, all_of_a_store_is_a_change_where_a_remote_is_attached);
	tcase_add_test(met, a_store_whose_remote_is_detached_is_a_plain_one_with_what_it_had);
	tcase_add_test(met, steps_of_a_store_that_is_attached_are_pushed_in_the_order_of_their_commits);
	tcase_add_test(met, changes_of_a_node_stay_over_a_jump);
	tcase_add_test(met, jump_ends_changes_of_what_has_expired);
	tcase_add_test(met, jump_back_or_without_a_remote_is_void);
	tcase_add_test(any, nodes_that_have_met_show_the_same);
	tcase_set_timeout(any, 300);
	suite_add_tcase(suite, met);
	suite_add_tcase(suite, any);
	return ckpt_suite_run(suite);
}
