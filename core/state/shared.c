// Acts of this node beside a remote's log. Before an act is applied, each step that it may change is kept as that log has it:
// from then on the step is a changed one, which waits to be pushed.
#include "core/state/shared.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/changed.h"

// --- Acts ---------------------------------------------------------------------------------------------------------------

// A MERGE, and an act of a PULL, put a change together with that of another node: what was dropped stays so.
static void set_latest(struct ckpt_state_step *step, uint64_t number, bool of_pull)
{
	if (of_pull && ckpt_state_is_dropped(step))
		step->dropped = number;
	step->latest = number;
}

// Before an act: what it may change is kept as it was. 0, -ENOMEM.
static int keep(struct ckpt_state *s, const char *id, uint64_t number, bool of_pull)
{
	struct ckpt_state_step *step = ckpt_table_find(s, id);

	if (step && step->since)
		set_latest(step, number, of_pull);
	if (step && step->since && step->shared && !step->deleted_by && ckpt_state_has_files_of(step, step->shared))
		step->merged = ckpt_state_newest_files(step->shared);
	if (!step || step->since)
		return 0;
	step->shared = ckpt_state_step_clone(step);
	if (!step->shared)
		return -ENOMEM;
	ckpt_changed_add(s, step, number);
	step->merged = ckpt_state_newest_files(step);
	return 0;
}

// One that the remote's log does not have may be on its way there (REMOTE.md P6): the next entry of that log says so. It is named until then.
static int expire(struct ckpt_state *s, const struct ckpt_act *a, uint64_t number)
{
	struct ckpt_state_step *step = ckpt_table_find(s, a->step);
	int rc = step && ckpt_state_may_expire(step, a->version) ? keep(s, a->step, number, false) : CKPT_STATE_VOID;

	if (rc)
		return rc;
	ckpt_table_take_out(s, step);
	step->gone = true;
	return 0;
}

// The step as the caller has seen it.
static int drop(struct ckpt_state *s, const struct ckpt_act *a)
{
	struct ckpt_state_step *step = ckpt_table_find(s, a->step);

	if (!step || !step->since || step->deleted_by || ckpt_state_last(step) != a->version ||
	    (step->shared && (step->shared->deleted_by || !ckpt_state_has_name_of(step, step->shared))))
		return CKPT_STATE_VOID;
	step->dropped = step->latest;
	return 0;
}

// A step that was never pushed, and is saved again, is pushed where it was saved first: the contents written in between name it.
struct place {
	uint64_t since, until;
};

static struct place place_of_save(const struct ckpt_state *s, const char *replaces, uint64_t number)
{
	const struct ckpt_state_step *was = ckpt_table_find(s, replaces);

	return was && was->since && !was->shared && !ckpt_state_is_dropped(was) ? (struct place){was->since, was->until}
										: (struct place){number, 0};
}

static void add_saved(struct ckpt_state *s, struct ckpt_state_step *step, const struct place *place, uint64_t latest)
{
	ckpt_changed_add(s, step, place->since);
	step->latest = latest;
	step->until = place->until;
}

static int act_on(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		  const struct ckpt_span *at, const struct ckpt_act *a, const char *id, bool of_pull)
{
	bool merges = of_pull || a->kind == CKPT_ACT_MERGE;
	struct place place = place_of_save(s, a->replaces, op->number);
	int rc = keep(s, id, op->number, merges);

	if (!rc)
		rc = keep(s, a->replaces, op->number, merges);
	if (!rc)
		rc = ckpt_state_act(s, store_id, op, at);
	if (!rc && a->kind == CKPT_ACT_SAVE)
		add_saved(s, ckpt_table_find(s, id), &place, op->number);
	return rc;
}

static void mark_all_unmerged(struct ckpt_state_step *step)
{
	uint32_t known = step->shared ? ckpt_state_newest(step->shared) : 0;

	for (size_t i = 0; i < step->count; i++)
		if (step->versions[i].version > known)
			step->versions[i].unmerged = true;
}

// All that this node has of the directory before this edit lacks what the remote's log has of it.
static void set_merged_of_edited(struct ckpt_state *s, struct ckpt_state_step *step, const struct ckpt_state_step *edit,
				 uint32_t merged)
{
	if (!ckpt_state_version(step->shared, merged) || merged <= step->merged)
		return;
	step->merged = merged;
	if (ckpt_state_has_changed_files(step))
		mark_all_unmerged(step);
	for (size_t i = 0; i < s->changed_count; i++) {
		struct ckpt_state_step *c = s->changed[i];

		if (c != edit && !c->gone && !c->shared && ckpt_state_was_replaced(c) && ckpt_state_is_edit_of(c, step))
			mark_all_unmerged(c);
	}
}

// A version that the remote's log does not have says nothing.
static void set_merged(struct ckpt_state *s, struct ckpt_state_step *step, uint32_t merged)
{
	struct ckpt_state_step *before = merged ? ckpt_state_edited(s, step) : NULL;

	if (before)
		set_merged_of_edited(s, before, step, merged);
	else if (step->shared ? ckpt_state_version(step->shared, merged) && merged > step->merged : !merged)
		step->merged = merged;
}

// Those before the one that was put together, which the remote's log does not have, lack the changes of others: pushed, they would undo them.
static void mark_unmerged(struct ckpt_state_step *step)
{
	uint32_t known = step->shared ? ckpt_state_newest(step->shared) : 0;

	for (size_t i = 0; i + 1 < step->count; i++)
		if (step->versions[i].version > known)
			step->versions[i].unmerged = true;
}

// The session of the record is the step: it stands in the record's own place, that of other acts in the act.
static int id_of(const struct ckpt_act *a, char ret_id[CKPT_UUID_LEN + 1])
{
	struct ckpt_record r;
	int rc;

	memcpy(ret_id, a->step, CKPT_UUID_LEN + 1);
	if (!ckpt_act_has_record(a->kind))
		return 0;
	rc = ckpt_record_decode(a->record, a->record_len, &r);
	if (rc)
		return rc;
	memcpy(ret_id, r.summary.session, CKPT_UUID_LEN + 1);
	ckpt_record_done(&r);
	return 0;
}

int ckpt_shared_act(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		    const struct ckpt_span *at, bool of_pull)
{
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_act a;
	int rc = ckpt_act_decode(op->kind, op->body, op->len, &a);

	if (!rc && (a.kind == CKPT_ACT_SET || ckpt_act_is_of_remote(a.kind)))
		return ckpt_state_act(s, store_id, op, at);
	if (!rc)
		rc = op->number ? id_of(&a, id) : -EBADMSG;
	if (!rc)
		rc = ckpt_changed_make_room(s, 3);
	if (!rc)
		rc = ckpt_state_make_node_room(s, 1);
	if (rc)
		return rc;
	rc = a.kind == CKPT_ACT_EXPIRE ? expire(s, &a, op->number)
	     : a.kind == CKPT_ACT_DROP ? drop(s, &a)
				       : act_on(s, store_id, op, at, &a, id, of_pull);
	if (rc >= 0)
		ckpt_state_add_node(s, ckpt_state_node_place(s, op->node), op->node, op->number);
	if (!rc && a.kind == CKPT_ACT_MERGE)
		set_merged(s, ckpt_table_find(s, id), a.merged);
	if (!rc && (of_pull || a.kind == CKPT_ACT_MERGE) && ckpt_act_has_record(a.kind))
		mark_unmerged(ckpt_table_find(s, id));
	// A step that has its old name back stays a changed one: the new name may be on its way (REMOTE.md P6).
	if (of_pull || a.kind == CKPT_ACT_MERGE)
		ckpt_changed_end_shared(s);
	return rc;
}

// --- What it says -------------------------------------------------------------------------------------------------------

const char *ckpt_state_host(const struct ckpt_state *s)
{
	return s->host;
}

void ckpt_state_other_name(const struct ckpt_state *s, const char *name, unsigned n, char ret_name[CKPT_NAME_MAX + 1])
{
	ckpt_name_conflict(ret_name, name, s->host, n);
}

bool ckpt_state_is_attached(const struct ckpt_state *s)
{
	return s->host;
}

struct ckpt_log_position ckpt_state_remote(const struct ckpt_state *s)
{
	return s->remote;
}

struct ckpt_state_step *const *ckpt_state_changed(const struct ckpt_state *s, size_t *ret_count)
{
	*ret_count = s->changed_count;
	return s->changed;
}

const char *ckpt_state_changed_value(const struct ckpt_state *s, const char **ret_text)
{
	return s->host ? ckpt_values_changed(&s->values, ret_text) : NULL;
}

// The step as it was here before it expired. NULL: no memory.
static struct ckpt_state_step *new_gone(const char *id, const struct ckpt_state_step *shared)
{
	struct ckpt_state_step *step = shared ? ckpt_state_step_clone(shared) : ckpt_calloc(1, sizeof(*step));

	if (!step)
		return NULL;
	memcpy(step->id, id, sizeof(step->id));
	step->gone = true;
	return step;
}

int ckpt_shared_take(struct ckpt_state *s, const char *id, struct ckpt_state_step *step, struct ckpt_state_step *shared,
		     uint64_t since, uint64_t latest, uint32_t merged)
{
	int rc = ckpt_changed_make_room(s, 1);

	if (!rc && !step)
		step = new_gone(id, shared);
	if (rc || !step)
		return rc ? rc : -ENOMEM;
	step->shared = shared;
	ckpt_changed_add(s, step, since);
	step->latest = latest;
	step->merged = merged;
	return 0;
}

void ckpt_shared_done(struct ckpt_state *s)
{
	for (size_t i = 0; i < s->changed_count; i++)
		if (s->changed[i]->gone)
			ckpt_state_step_free(s->changed[i]);
	free(s->changed);
	free(s->host);
}
