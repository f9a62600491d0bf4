#include "core/state/state.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/pull.h"
#include "core/state/table.h"

// --- The whole --------------------------------------------------------------------------------------------------------

struct ckpt_state *ckpt_state_new(void)
{
	struct ckpt_state *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	if (!ckpt_table_init(s))
		return s;
	ckpt_state_free(s);
	return NULL;
}

void ckpt_state_free(struct ckpt_state *s)
{
	if (!s)
		return;
	ckpt_shared_done(s);
	ckpt_plains_done(s);
	ckpt_condemned_done(s);
	ckpt_table_done(s);
	free(s->nodes);
	ckpt_values_done(&s->values);
	free(s);
}

// --- Versions ---------------------------------------------------------------------------------------------------------

uint32_t ckpt_state_newest(const struct ckpt_state_step *step)
{
	return step->count ? step->versions[step->count - 1].version : 0;
}

// Room for one more, so that what follows cannot fail.
int ckpt_state_make_room(struct ckpt_state_step *step, size_t versions)
{
	return ckpt_grow((void **)&step->versions, &step->cap, step->count + versions, sizeof(*step->versions));
}

static enum ckpt_state_files files_of(enum ckpt_act_kind kind)
{
	switch (kind) {
	case CKPT_ACT_SAVE:
	case CKPT_ACT_RESTORE:
		return CKPT_FILES_SAVED;
	case CKPT_ACT_AMEND:
	case CKPT_ACT_MERGE:
		return CKPT_FILES_EDITED;
	case CKPT_ACT_REPACK:
		return CKPT_FILES_REPACKED;
	default:
		return CKPT_FILES_SAME;
	}
}

void ckpt_state_add_version(struct ckpt_state_step *step, const struct ckpt_span *record, enum ckpt_act_kind kind,
			    const struct ckpt_state_by *by)
{
	bool deleted = kind == CKPT_ACT_DELETE;

	step->versions[step->count++] = (struct ckpt_state_version){
		.version = deleted ? step->deleted_by : step->is.version,
		.deleted = deleted,
		.pinned = step->is.pinned,
		.temporary = step->is.temporary,
		.files = files_of(kind),
		.committed_ns = deleted ? step->deleted_ns : step->is.committed_ns,
		.record = *record,
		.by = *by,
	};
}

static const struct ckpt_span *last_record(const struct ckpt_state_step *step)
{
	return &step->versions[step->count - 1].record;
}

// --- Acts with a record -------------------------------------------------------------------------------------------------

static void bury(struct ckpt_state_step *step, uint32_t by, int64_t ns)
{
	step->deleted_by = by;
	step->deleted_ns = ns;
}

static int save(struct ckpt_state *s, const struct ckpt_act *a, const struct ckpt_summary *sum,
		const struct ckpt_span *record, const struct ckpt_state_by *by)
{
	struct ckpt_state_step *there = ckpt_table_listed(s, sum->folder_id, sum->name), *step;

	if (ckpt_table_find(s, sum->session) || (there ? strcmp(there->id, a->replaces) != 0 : *a->replaces != '\0'))
		return CKPT_STATE_VOID;
	step = calloc(1, sizeof(*step));
	if (!step || ckpt_state_make_room(step, 1)) {
		ckpt_state_step_free(step);
		return -ENOMEM;
	}
	memcpy(step->id, sum->session, sizeof(step->id));
	step->is = *sum;
	ckpt_state_add_version(step, record, a->kind, by);
	if (there)
		bury(there, sum->version, sum->committed_ns);
	ckpt_table_insert(s, step);
	return 0;
}

// Where several nodes append, one of them may have deleted it just now: then it is changed in the trash.
static bool may_change(const struct ckpt_state *s, const struct ckpt_state_step *step)
{
	return !step->deleted_by || s->host;
}

static bool has_name_of(const struct ckpt_state_step *step, const struct ckpt_summary *sum)
{
	return !strcmp(sum->name, step->is.name) && !strcmp(sum->folder_id, step->is.folder_id);
}

// Another node may have given it another name meanwhile.
static void take_files(struct ckpt_state_step *step, const struct ckpt_summary *sum)
{
	struct ckpt_summary was = step->is;

	step->is = *sum;
	memcpy(step->is.folder_id, was.folder_id, sizeof(was.folder_id));
	memcpy(step->is.name, was.name, sizeof(was.name));
	step->is.number = was.number;
}

static int amend(struct ckpt_state *s, enum ckpt_act_kind kind, const struct ckpt_summary *sum,
		 const struct ckpt_span *record, const struct ckpt_state_by *by)
{
	struct ckpt_state_step *step = ckpt_table_find(s, sum->session);

	if (!step || !may_change(s, step) || sum->version <= ckpt_state_newest(step) ||
	    (!has_name_of(step, sum) && !s->host))
		return CKPT_STATE_VOID;
	if (ckpt_state_make_room(step, 1))
		return -ENOMEM;
	take_files(step, sum);
	ckpt_state_add_version(step, record, kind, by);
	return 0;
}

static int apply_record(struct ckpt_state *s, const char *store_id, const struct ckpt_act *a,
			const struct ckpt_span *at, const struct ckpt_state_by *by)
{
	struct ckpt_span record = {
		.seq = at->seq, .offset = at->offset + (uint32_t)a->record_at, .len = (uint32_t)a->record_len};
	struct ckpt_record r;
	int rc = ckpt_record_decode(a->record, a->record_len, &r);

	if (rc)
		return rc;
	if (strcmp(r.store_id, store_id) || r.summary.deleted || !*r.summary.session)
		rc = -EBADMSG;
	else if (a->kind == CKPT_ACT_SAVE)
		rc = save(s, a, &r.summary, &record, by);
	else
		rc = amend(s, a->kind, &r.summary, &record, by);
	if (!rc && s->plains.version)
		ckpt_condemned_end_holds(s, r.summary.session);
	ckpt_record_done(&r);
	return rc;
}

// --- Others -----------------------------------------------------------------------------------------------------------

static int delete_step(struct ckpt_state_step *step, const struct ckpt_act *a, const struct ckpt_state_by *by)
{
	if (step->deleted_by || step->is.pinned || a->version <= ckpt_state_newest(step))
		return CKPT_STATE_VOID;
	if (ckpt_state_make_room(step, 1))
		return -ENOMEM;
	bury(step, a->version, a->time_ns);
	ckpt_state_add_version(step, last_record(step), a->kind, by);
	return 0;
}

static int undelete(struct ckpt_state *s, struct ckpt_state_step *step, const struct ckpt_act *a,
		    const struct ckpt_state_by *by)
{
	if (!step->deleted_by || a->version <= ckpt_state_newest(step) || a->version <= step->deleted_by ||
	    ckpt_table_listed(s, step->is.folder_id, step->is.name))
		return CKPT_STATE_VOID;
	if (ckpt_state_make_room(step, 1))
		return -ENOMEM;
	step->deleted_by = 0;
	step->deleted_ns = 0;
	step->is.version = a->version;
	step->is.committed_ns = a->time_ns;
	step->is.temporary = false; // or the next commit could end it again
	ckpt_state_add_version(step, last_record(step), a->kind, by);
	return 0;
}

static int rename_step(struct ckpt_state *s, struct ckpt_state_step *step, const struct ckpt_act *a)
{
	if (!may_change(s, step) || (!step->deleted_by && ckpt_table_listed(s, a->folder_id, a->name)))
		return CKPT_STATE_VOID;
	ckpt_table_take_name(s, step);
	memcpy(step->is.folder_id, a->folder_id, sizeof(step->is.folder_id));
	memcpy(step->is.name, a->name, sizeof(step->is.name));
	step->is.number = ckpt_name_number(a->name);
	ckpt_table_give_name(s, step);
	return 0;
}

static int flag(const struct ckpt_state *s, struct ckpt_state_step *step, const struct ckpt_act *a,
		const struct ckpt_state_by *by)
{
	if (!may_change(s, step) || a->version <= ckpt_state_newest(step))
		return CKPT_STATE_VOID;
	if (ckpt_state_make_room(step, 1))
		return -ENOMEM;
	step->is.pinned = a->flags & CKPT_FLAG_PINNED;
	step->is.temporary = a->flags & CKPT_FLAG_TEMPORARY;
	step->is.version = a->version;
	step->is.committed_ns = a->time_ns;
	ckpt_state_add_version(step, last_record(step), a->kind, by);
	return 0;
}

// The node that expires it knows all that it is. A step that took the place of a pinned one has taken over its pin.
bool ckpt_state_was_replaced(const struct ckpt_state_step *step)
{
	return step->deleted_by && !ckpt_state_version(step, step->deleted_by);
}

bool ckpt_state_may_expire(const struct ckpt_state_step *step, uint32_t last)
{
	return step->deleted_by && (!step->is.pinned || ckpt_state_was_replaced(step)) && ckpt_state_last(step) == last;
}

static int apply_plain(struct ckpt_state *s, const struct ckpt_act *a, const struct ckpt_state_by *by)
{
	struct ckpt_state_step *step = ckpt_table_find(s, a->step);

	if (!step)
		return CKPT_STATE_VOID;
	switch (a->kind) {
	case CKPT_ACT_DELETE:
		return delete_step(step, a, by);
	case CKPT_ACT_UNDELETE:
		return undelete(s, step, a, by);
	case CKPT_ACT_RENAME:
		return rename_step(s, step, a);
	case CKPT_ACT_FLAG:
		return flag(s, step, a, by);
	case CKPT_ACT_DROP: // of a changed step alone (shared.h)
		return CKPT_STATE_VOID;
	default: // EXPIRE
		if (!ckpt_state_may_expire(step, a->version))
			return CKPT_STATE_VOID;
		ckpt_table_take_out(s, step);
		ckpt_state_step_free(step);
		return 0;
	}
}

// The place of the node, or that of the next one that is added.
size_t ckpt_state_node_place(const struct ckpt_state *s, const char *node)
{
	size_t i = 0;

	while (i < s->node_count && strcmp(s->nodes[i].node, node))
		i++;
	return i;
}

// So that ckpt_state_add_node() cannot fail.
int ckpt_state_make_node_room(struct ckpt_state *s, size_t nodes)
{
	return ckpt_grow((void **)&s->nodes, &s->node_cap, s->node_count + nodes, sizeof(*s->nodes));
}

void ckpt_state_add_node(struct ckpt_state *s, size_t place, const char *node, uint64_t number)
{
	struct ckpt_state_node *n = &s->nodes[place];

	if (place == s->node_count) {
		s->node_count++;
		memcpy(n->node, node, sizeof(n->node));
		n->number = 0;
	}
	n->number = MAX(n->number, number);
}

static int apply_act(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at, const struct ckpt_state_by *by)
{
	struct ckpt_act a;
	int rc = ckpt_act_decode(op->kind, op->body, op->len, &a);

	if (rc)
		return rc;
	if (a.kind == CKPT_ACT_MERGE && (!s->host || s->plains.version))
		return CKPT_STATE_VOID;
	if (a.kind == CKPT_ACT_SET)
		return ckpt_values_act(&s->values, &a, at->seq, s->plains.version >> CKPT_PLAIN_INDEX_BITS);
	if (ckpt_act_is_on_tree(a.kind))
		return ckpt_plain_act(s, &a, at, by->node);
	if (ckpt_act_is_on_objects(a.kind))
		return ckpt_condemned_act(s, &a);
	return ckpt_act_has_record(a.kind) ? apply_record(s, store_id, &a, at, by) : apply_plain(s, &a, by);
}

int ckpt_state_act(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		   const struct ckpt_span *at)
{
	struct ckpt_state_by by = {.node = (uint32_t)ckpt_state_node_place(s, op->node), .actor = op->actor};
	int rc = ckpt_state_make_node_room(s, 1);

	if (rc)
		return rc;
	if (op->kind < CKPT_ACT_KINDS)
		rc = apply_act(s, store_id, op, at, &by);
	else
		rc = op->required ? -ENOTSUP : CKPT_STATE_VOID;
	if (!rc || (rc > 0 && op->number)) // a void operation has used its number, too
		ckpt_state_add_node(s, by.node, op->node, op->number);
	return rc;
}

int ckpt_state_apply(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at)
{
	if (op->kind == CKPT_PULL_KIND)
		return ckpt_shared_pull(s, store_id, op, at);
	return s->host && op->kind < CKPT_ACT_KINDS ? ckpt_shared_act(s, store_id, op, at, false)
						    : ckpt_state_act(s, store_id, op, at);
}

// --- What it says -------------------------------------------------------------------------------------------------------

const struct ckpt_state_step *ckpt_state_step(const struct ckpt_state *s, const char *id)
{
	return ckpt_table_find(s, id);
}

const struct ckpt_state_step *ckpt_state_listed(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	return ckpt_table_listed(s, folder_id, name);
}

uint32_t ckpt_state_last(const struct ckpt_state_step *step)
{
	return MAX(ckpt_state_newest(step), step->deleted_by);
}

const struct ckpt_state_version *ckpt_state_version(const struct ckpt_state_step *step, uint32_t version)
{
	for (size_t i = step->count; i-- > 0 && step->versions[i].version >= version;)
		if (step->versions[i].version == version)
			return &step->versions[i];
	return NULL;
}

static int by_id(const void *a, const void *b)
{
	return strcmp((*(struct ckpt_state_step *const *)a)->id, (*(struct ckpt_state_step *const *)b)->id);
}

int ckpt_state_steps(const struct ckpt_state *s, const struct ckpt_state_step ***ret_steps, size_t *ret_count)
{
	const struct ckpt_state_step **steps = ckpt_calloc(s->count + 1, sizeof(struct ckpt_state_step *));
	size_t count = 0;

	if (!steps)
		return -ENOMEM;
	for (size_t i = 0; i < s->bucket_count; i++)
		for (struct ckpt_state_step *step = s->of_id[i]; step; step = step->next_of_id)
			steps[count++] = step;
	qsort(steps, count, sizeof(*steps), by_id);
	*ret_steps = steps;
	*ret_count = count;
	return 0;
}

size_t ckpt_state_count(const struct ckpt_state *s)
{
	return s->count;
}

const struct ckpt_value_list *ckpt_state_values(const struct ckpt_state *s)
{
	return &s->values.is;
}

const struct ckpt_state_value *ckpt_state_value(const struct ckpt_state *s, const char *key)
{
	return ckpt_value_find(&s->values.is, key);
}

uint64_t ckpt_state_number(const struct ckpt_state *s, const char *node)
{
	size_t place = ckpt_state_node_place(s, node);

	return place < s->node_count ? s->nodes[place].number : 0;
}

const char *ckpt_state_node(const struct ckpt_state *s, uint32_t index)
{
	return s->nodes[index].node;
}
