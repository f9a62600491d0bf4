// A PULL takes the changed steps out of the table, so that the remote's own are there instead, applies the entry to those, and puts each
// changed step back: as it was, ended, or merged. Room for all of it is made before, so that only the entry's acts can fail; a PULL
// that did is applied again, and what it had done by then is void.
#include "core/state/shared.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/table.h"

#define VERSIONS_OF_MERGE 3u // at most so many are added by one

// --- Comparing --------------------------------------------------------------------------------------------------------

static bool has_name_of(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return !strcmp(a->is.name, b->is.name) && !strcmp(a->is.folder_id, b->is.folder_id);
}

// The nonce is of the attempt that made the record.
static bool has_files_of(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return !memcmp(a->is.nonce, b->is.nonce, sizeof(a->is.nonce));
}

static bool has_flags_of(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return a->is.pinned == b->is.pinned && a->is.temporary == b->is.temporary;
}

static bool is_equal(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return !a->deleted_by == !b->deleted_by && has_name_of(a, b) && has_files_of(a, b) && has_flags_of(a, b);
}

// The numbers of versions never go back. (The version that took its place has another number where several versions of that were
// pushed as one.)
bool ckpt_state_is_as_shared(const struct ckpt_state_step *c)
{
	return !c->gone && c->shared && is_equal(c, c->shared) && ckpt_state_newest(c) <= ckpt_state_last(c->shared);
}

static bool is_as_it_was(const struct ckpt_state_step *now, const struct ckpt_state_step *base)
{
	return is_equal(now, base) && now->is.version == base->is.version;
}

bool ckpt_state_has_changed_files(const struct ckpt_state_step *changed)
{
	return !changed->gone && (!changed->shared || !has_files_of(changed, changed->shared));
}

bool ckpt_state_is_dropped(const struct ckpt_state_step *c)
{
	return c->dropped && c->dropped == c->latest;
}

// The remote has a step of this one's place there, which is gone here or replaced.
bool ckpt_state_is_left_out(const struct ckpt_state *s, const struct ckpt_state_step *c)
{
	const struct ckpt_state_step *there;

	if (ckpt_state_is_dropped(c))
		return true;
	if (!c->shared || (!c->gone && !ckpt_state_was_replaced(c)))
		return false;
	there = ckpt_table_listed(s, c->shared->is.folder_id, c->shared->is.name);
	return there && there->since && ckpt_state_is_dropped(there);
}

uint32_t ckpt_state_newest_files(const struct ckpt_state_step *step)
{
	size_t i = step->count;

	while (i > 1 && step->versions[i - 1].files == CKPT_FILES_SAME && !ckpt_state_is_note(step, i - 1))
		i--;
	return step->versions[i - 1].version;
}

bool ckpt_state_was_replaced(const struct ckpt_state_step *step)
{
	return step->deleted_by && !ckpt_state_version(step, step->deleted_by);
}

// Other files or metadata than the version with this number has, not only another place for the files.
static bool has_new_files(const struct ckpt_state_step *step, uint32_t known)
{
	for (size_t i = step->count; i-- > 0 && step->versions[i].version > known;)
		if (!ckpt_state_same_files(&step->versions[i]) || ckpt_state_is_note(step, i))
			return true;
	return false;
}

bool ckpt_state_is_unmerged(const struct ckpt_state_step *c)
{
	return c->merged && ckpt_state_has_changed_files(c) && (!c->shared || has_new_files(c->shared, c->merged));
}

// An edit is saved as a step of its own, which keeps the directory and its place among the commits.
static bool is_edit_of(const struct ckpt_state_step *edit, const struct ckpt_state_step *step)
{
	return edit != step && edit->is.sequence == step->is.sequence && edit->is.dir_ino == step->is.dir_ino;
}

static struct ckpt_state_step *edited(const struct ckpt_state *s, const struct ckpt_state_step *edit)
{
	const struct ckpt_state_step *there =
		edit->since && !edit->shared ? ckpt_state_shared_listed(s, edit->is.folder_id, edit->is.name) : NULL;
	struct ckpt_state_step *step = there ? ckpt_table_find(s, there->id) : NULL;

	return step && step->since && ckpt_state_was_replaced(step) && is_edit_of(edit, step) ? step : NULL;
}

bool ckpt_state_is_edit_behind(const struct ckpt_state *s, const struct ckpt_state_step *edit)
{
	const struct ckpt_state_step *step = edited(s, edit);

	return step && has_new_files(step->shared, step->merged);
}

bool ckpt_state_has_edit_behind(const struct ckpt_state *s, const struct ckpt_state_step *step)
{
	const struct ckpt_state_step *edit =
		step->since && step->shared ? ckpt_table_listed(s, step->shared->is.folder_id, step->shared->is.name)
					    : NULL;

	return edit && edited(s, edit) == step && has_new_files(step->shared, step->merged);
}

uint32_t ckpt_state_unmerged_theirs(const struct ckpt_state_step *c)
{
	return c->shared ? ckpt_state_newest_files(c->shared) : 0;
}

// A step that another node has deleted has the changes of this one, and a step that another one has replaced is its older version.
bool ckpt_state_keeps_files(const struct ckpt_state_step *c)
{
	return c->deleted_by > c->is.version && !ckpt_state_was_replaced(c);
}

// --- Changed steps ------------------------------------------------------------------------------------------------------

static int make_changed_room(struct ckpt_state *s, size_t more)
{
	return ckpt_grow((void **)&s->changed, &s->changed_cap, s->changed_count + more, sizeof(*s->changed));
}

static void add_changed(struct ckpt_state *s, struct ckpt_state_step *step, uint64_t since)
{
	step->since = step->latest = since;
	s->changed[s->changed_count++] = step;
}

static void drop_changed(struct ckpt_state *s, size_t i)
{
	memmove(&s->changed[i], &s->changed[i + 1], (--s->changed_count - i) * sizeof(*s->changed));
}

// A later step has arrived, by its save: what was written after it names that one, should one before it be dropped.
static void pass(struct ckpt_state *s, uint64_t since)
{
	for (size_t i = 0; i < s->changed_count; i++)
		if (s->changed[i]->since < since && (!s->changed[i]->until || since < s->changed[i]->until))
			s->changed[i]->until = since;
}

// It is as the remote's log has it, which stays in its place: with the same numbers on all nodes.
static void end_change(struct ckpt_state *s, size_t i)
{
	struct ckpt_state_step *c = s->changed[i], *shared = TAKE_PTR(c->shared);

	ckpt_table_take_out(s, c);
	ckpt_table_insert(s, shared);
	ckpt_state_step_free(c);
	drop_changed(s, i);
}

static void end_what_is_shared(struct ckpt_state *s)
{
	for (size_t i = s->changed_count; i-- > 0;)
		if (ckpt_state_is_as_shared(s->changed[i]))
			end_change(s, i);
}

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
	if (step && step->since && step->shared && !step->deleted_by && has_files_of(step, step->shared))
		step->merged = ckpt_state_newest_files(step->shared);
	if (!step || step->since)
		return 0;
	step->shared = ckpt_state_step_clone(step);
	if (!step->shared)
		return -ENOMEM;
	add_changed(s, step, number);
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
	    (step->shared && (step->shared->deleted_by || !has_name_of(step, step->shared))))
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
	add_changed(s, step, place->since);
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

		if (c != edit && !c->gone && !c->shared && ckpt_state_was_replaced(c) && is_edit_of(c, step))
			mark_all_unmerged(c);
	}
}

// A version that the remote's log does not have says nothing.
static void set_merged(struct ckpt_state *s, struct ckpt_state_step *step, uint32_t merged)
{
	struct ckpt_state_step *before = merged ? edited(s, step) : NULL;

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

static int own(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op, const struct ckpt_span *at,
	       bool of_pull)
{
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_act a;
	int rc = ckpt_act_decode(op->kind, op->body, op->len, &a);

	if (!rc && (a.kind == CKPT_ACT_SET || ckpt_act_is_of_remote(a.kind)))
		return ckpt_state_act(s, store_id, op, at);
	if (!rc)
		rc = op->number ? id_of(&a, id) : -EBADMSG;
	if (!rc)
		rc = make_changed_room(s, 3);
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
		end_what_is_shared(s);
	return rc;
}

int ckpt_shared_own(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		    const struct ckpt_span *at)
{
	return own(s, store_id, op, at, false);
}

// --- Names of conflicts ---------------------------------------------------------------------------------------------------

// Into the table, under a name that is free.
static void put_back(struct ckpt_state *s, struct ckpt_state_step *step)
{
	char name[CKPT_NAME_MAX + 1];

	memcpy(name, step->is.name, sizeof(name));
	for (unsigned n = 1; !step->deleted_by && ckpt_table_listed(s, step->is.folder_id, step->is.name); n++) {
		ckpt_name_conflict(step->is.name, name, s->host, n);
		step->is.number = -1;
	}
	ckpt_table_insert(s, step);
}

const char *ckpt_state_host(const struct ckpt_state *s)
{
	return s->host;
}

void ckpt_state_other_name(const struct ckpt_state *s, const char *name, unsigned n, char ret_name[CKPT_NAME_MAX + 1])
{
	ckpt_name_conflict(ret_name, name, s->host, n);
}

// --- Merging ----------------------------------------------------------------------------------------------------------

static bool is_deleted(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
		       const struct ckpt_state_step *ours)
{
	if (theirs->deleted_by)
		return ours->deleted_by || !base->deleted_by;
	if (!ours->deleted_by || base->deleted_by || theirs->is.pinned)
		return false;
	return !ckpt_state_was_replaced(ours) || has_name_of(base, theirs); // what went elsewhere is not in the way
}

static const struct ckpt_state_version *last_version(const struct ckpt_state_step *step)
{
	return &step->versions[step->count - 1];
}

static void merge_name(struct ckpt_state_step *is, const struct ckpt_state_step *from)
{
	memcpy(is->is.folder_id, from->is.folder_id, sizeof(is->is.folder_id));
	memcpy(is->is.name, from->is.name, sizeof(is->is.name));
	is->is.number = from->is.number;
}

// Where both have other files, those of this node come behind the others, which stay as an older version.
static bool has_our_files(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
			  const struct ckpt_state_step *ours)
{
	return !has_files_of(ours, base) &&
	       (has_files_of(theirs, base) || has_new_files(ours, ckpt_state_newest_files(base)));
}

// Into ours, which has room for the versions of theirs and VERSIONS_OF_MERGE more.
static void merge(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
		  struct ckpt_state_step *ours)
{
	bool our_files = has_our_files(base, theirs, ours);
	bool pinned = ours->is.pinned != base->is.pinned ? ours->is.pinned : theirs->is.pinned;
	bool temporary = ours->is.temporary != base->is.temporary ? ours->is.temporary : theirs->is.temporary;
	bool deleted = is_deleted(base, theirs, ours), replaced = ckpt_state_was_replaced(ours);
	const struct ckpt_state_step *named = has_name_of(ours, base) ? theirs : ours;
	struct ckpt_state_version last = *last_version(our_files ? ours : theirs), our_last = *last_version(ours);
	struct ckpt_state_step is = {.is = our_files ? ours->is : theirs->is};
	uint32_t our_top = ckpt_state_last(ours), newest = ckpt_state_last(theirs),
		 more = theirs->deleted_by && !deleted; // versions to come
	int64_t deleted_ns = theirs->deleted_by ? theirs->deleted_ns : ours->deleted_ns;

	memcpy(is.id, ours->id, sizeof(is.id));
	is.versions = ours->versions;
	is.cap = ours->cap;
	is.since = ours->since;
	is.latest = ours->latest;
	is.merged = ours->merged;
	is.shared = ours->shared;
	is.dropped = ours->dropped;
	is.until = ours->until;
	is.count = theirs->count;
	memcpy(is.versions, theirs->versions, theirs->count * sizeof(*theirs->versions));
	merge_name(&is, named);
	is.is.pinned = pinned;
	is.is.temporary = temporary;
	is.is.version = theirs->is.version;
	if (our_files || !has_flags_of(&is, theirs))
		more++;
	if (more) {
		is.is.version = MAX(newest + more, our_files ? ours->is.version : 0);
		ckpt_state_add_version(&is, &last.record, our_files ? CKPT_ACT_AMEND : CKPT_ACT_FLAG, &our_last.by);
		is.versions[is.count - 1].unmerged = our_files && our_last.unmerged;
	}
	is.deleted_by = deleted ? theirs->deleted_by : 0;
	is.deleted_ns = deleted ? deleted_ns : 0;
	if (deleted && !is.deleted_by) {
		is.deleted_by = MAX(ckpt_state_newest(&is) + 1, ours->deleted_by);
		if (!replaced)
			ckpt_state_add_version(&is, &last.record, CKPT_ACT_DELETE, &our_last.by);
	}
	if (ckpt_state_last(&is) < our_top) { // numbers never go back
		is.is.version = our_top;
		ckpt_state_add_version(&is, &last.record, CKPT_ACT_FLAG, &our_last.by);
	}
	*ours = is;
}

// --- Pulling ----------------------------------------------------------------------------------------------------------

struct pull {
	struct ckpt_state *s;
	const char *store_id;
	struct ckpt_span at; // of the body
	const uint8_t *body;
	struct ckpt_pulled is;
	struct ckpt_log_entry entry;
	const struct ckpt_state
		*to; // of a jump: what takes the place of all that was read of the remote's log; else NULL
	struct ckpt_state_step **bases; // of each changed step, as the remote had it before; owned
};

// The most versions that a changed step may have in the remote's log afterwards.
static size_t versions_to_come(const struct pull *p, const struct ckpt_state_step *c)
{
	const struct ckpt_state_step *theirs = p->to ? ckpt_table_find(p->to, c->id) : c->shared;

	return (theirs ? theirs->count : 0) + p->entry.count;
}

// The table becomes that of the remote. A changed step holds the place of its base from then on: it has none.
static int lift(struct pull *p)
{
	struct ckpt_state *s = p->s;
	int rc = 0;

	p->bases = ckpt_calloc(s->changed_count + 1, sizeof(struct ckpt_state_step *));
	if (!p->bases)
		return -ENOMEM;
	for (size_t i = 0; i < s->changed_count && !rc; i++) {
		struct ckpt_state_step *c = s->changed[i];
		size_t most = versions_to_come(p, c) + VERSIONS_OF_MERGE;

		if (c->shared && !(p->bases[i] = ckpt_state_step_clone(c->shared)))
			rc = -ENOMEM;
		if (!rc && most > c->count)
			rc = ckpt_state_make_room(c, most - c->count);
	}
	for (size_t i = 0; i < s->changed_count && !rc; i++) {
		struct ckpt_state_step *c = s->changed[i];

		if (!c->gone)
			ckpt_table_take_out(s, c);
	}
	for (size_t i = 0; i < s->changed_count && !rc; i++)
		if (s->changed[i]->shared)
			ckpt_table_insert(s, TAKE_PTR(s->changed[i]->shared));
	return rc;
}

static void bases_done(struct pull *p)
{
	for (size_t i = 0; p->bases && i < p->s->changed_count; i++)
		ckpt_state_step_free(p->bases[i]);
}

static int apply_entry(struct pull *p)
{
	uint64_t version = p->entry.seq << CKPT_PLAIN_INDEX_BITS; // of an entry of the plain tree
	struct ckpt_operation op;
	int rc = 0;

	for (size_t cursor = 0; rc >= 0 && ckpt_log_entry_next(&p->entry, &cursor, &op);) {
		struct ckpt_span at = {.seq = p->at.seq,
				       .offset = p->at.offset + (uint32_t)((const uint8_t *)op.body - p->body),
				       .len = (uint32_t)op.len};

		op.number = MIN(op.number,
				ckpt_state_number(p->s, op.node)); // what others say of our own numbers is not believed
		p->s->plains.version = version++;
		rc = ckpt_state_act(p->s, p->store_id, &op, &at);
	}
	p->s->plains.version = 0;
	return MIN(rc, 0);
}

// It was deleted here and has expired, and the remote's log has neither; another node has changed it meanwhile. The expiry is nothing then, the
// deletion stays (REMOTE.md section 4). Its files here are gone, and so is what this node had changed of it before.
static bool is_deleted_again(const struct ckpt_state_step *c, const struct ckpt_state_step *base,
			     const struct ckpt_state_step *theirs)
{
	return c->gone && base && theirs && !base->deleted_by && !theirs->deleted_by && !theirs->is.pinned &&
	       !is_as_it_was(theirs, base);
}

static void delete_again(const struct ckpt_state_step *theirs, struct ckpt_state_step *c)
{
	struct ckpt_state_version last = *last_version(theirs);

	c->gone = false;
	c->is = theirs->is;
	c->count = theirs->count;
	memcpy(c->versions, theirs->versions, theirs->count * sizeof(*theirs->versions));
	c->deleted_by = ckpt_state_last(theirs) + 1;
	c->deleted_ns = theirs->is.committed_ns;
	ckpt_state_add_version(c, &last.record, CKPT_ACT_DELETE, &last.by);
}

// This node's changes of it are in the edit that took its place, there too by now, together with what others have. Numbers of versions
// never go back.
static bool is_in_its_edit(const struct ckpt_state_step *c, const struct ckpt_state_step *theirs)
{
	return theirs && ckpt_state_was_replaced(c) && ckpt_state_was_replaced(theirs) && last_version(c)->unmerged &&
	       has_name_of(c, theirs) && has_flags_of(c, theirs) && ckpt_state_last(c) <= ckpt_state_last(theirs);
}

// Nothing of it is left to be pushed, or to be shown.
static bool is_over(const struct pull *p, size_t i, bool by_us)
{
	const struct ckpt_state_step *c = p->s->changed[i], *base = p->bases[i], *theirs = c->shared;

	if (c->gone && !base)
		return !theirs || !by_us;
	if (c->gone)
		return !theirs || (!by_us && !is_as_it_was(theirs, base));
	if (is_in_its_edit(c, theirs))
		return true;
	return !theirs && base && has_files_of(c, base);
}

// This node pushes no files before they have the changes of others.
static void note_merged(struct ckpt_state_step *c, const struct ckpt_state_step *base, bool by_us)
{
	bool ours = by_us && (!base || has_new_files(c->shared, ckpt_state_newest_files(base)));

	// The step that took its place here has not the new files, and may be an edit of it: a MERGE of that says so.
	bool same = has_files_of(c, c->shared) && (!ckpt_state_was_replaced(c) || c->shared->deleted_by);

	if (ours || same || !has_new_files(c->shared, c->merged))
		c->merged = ckpt_state_newest_files(c->shared);
}

// It has expired there, and has files of this node: so it is a step of its own, which is not the one that is gone.
static void keep_alone(struct pull *p, struct ckpt_state_step *c)
{
	char name[CKPT_NAME_MAX + 1];

	if (ckpt_state_keeps_files(c))
		return;
	memcpy(name, c->is.name, sizeof(name));
	ckpt_name_conflict(c->is.name, name, p->s->host, 1);
	c->is.number = -1;
	c->deleted_by = 0;
	c->deleted_ns = 0;
}

static void settle(struct pull *p, size_t i, bool by_us)
{
	struct ckpt_state_step *c = p->s->changed[i], *base = p->bases[i];

	if (!by_us && is_deleted_again(c, base, c->shared))
		delete_again(c->shared, c);
	else if (!by_us && base && c->shared && !c->gone && !is_as_it_was(c->shared, base))
		merge(base, c->shared, c);
	if (by_us && !base && c->shared)
		pass(p->s, c->since);
	if (c->shared && !c->gone)
		note_merged(c, base, by_us);
	else if (!c->shared && base && !c->gone && !has_files_of(c, base))
		keep_alone(p, c);
}

static void drop_what_is_over(struct pull *p, bool by_us)
{
	struct ckpt_state *s = p->s;
	size_t kept = 0;

	for (size_t i = 0; i < s->changed_count; i++) {
		struct ckpt_state_step *c = s->changed[i];

		bool over = is_over(p, i, by_us);

		ckpt_state_step_free(p->bases[i]);
		if (!over) {
			s->changed[kept++] = c;
			continue;
		}
		if (c->shared)
			ckpt_table_insert(s, TAKE_PTR(c->shared));
		ckpt_state_step_free(c);
	}
	s->changed_count = kept;
}

// All that the remote has is there before a changed step looks for its name.
static void lower(struct pull *p, bool by_us)
{
	struct ckpt_state *s = p->s;
	size_t count = s->changed_count;

	for (size_t i = 0; i < count; i++)
		s->changed[i]->shared = ckpt_table_find(s, s->changed[i]->id);
	for (size_t i = 0; i < count; i++)
		settle(p, i, by_us);
	for (size_t i = 0; i < count; i++)
		if (s->changed[i]->shared)
			ckpt_table_take_out(s, s->changed[i]->shared);
	drop_what_is_over(p, by_us);
	for (size_t i = 0; i < s->changed_count; i++)
		if (!s->changed[i]->gone)
			put_back(s, s->changed[i]);
	end_what_is_shared(s);
}

// Each is an act of this node on what is there now; it goes on waiting where its step did.
static int apply_acts(struct pull *p, const struct ckpt_operation *pull)
{
	size_t cursor = 0;
	int rc = 0;

	for (uint32_t i = 0; i < p->is.act_count && rc >= 0; i++) {
		struct ckpt_operation op;
		struct ckpt_span at = p->at;

		(void)ckpt_pulled_next(&p->is, &cursor, &op);
		memcpy(op.node, pull->node, sizeof(op.node));
		op.number = pull->number;
		op.actor = pull->actor;
		at.offset += (uint32_t)((const uint8_t *)op.body - p->body);
		at.len = (uint32_t)op.len;
		rc = own(p->s, p->store_id, &op, &at, true);
	}
	return MIN(rc, 0);
}

static int pull_entry(struct pull *p, const struct ckpt_operation *op)
{
	struct ckpt_state *s = p->s;
	struct ckpt_log_position next = {.seq = p->entry.seq};
	int rc;

	if (p->entry.seq != s->remote.seq + 1 || memcmp(p->entry.before, s->remote.sha256, CKPT_SHA256_LEN) != 0)
		return CKPT_STATE_VOID;
	ckpt_sha256(p->is.entry, p->is.entry_len, next.sha256);
	rc = ckpt_state_make_node_room(s, p->entry.count + 1);
	if (!rc)
		rc = make_changed_room(s, p->is.act_count * 3);
	if (!rc && (rc = lift(p)) == 0) {
		rc = apply_entry(p);
		lower(p, !strcmp(p->entry.node, op->node));
	} else {
		bases_done(p);
	}
	free(p->bases);
	if (!rc)
		rc = apply_acts(p, op);
	if (!rc)
		s->remote = next;
	return rc;
}

// Nothing of it can fail once the table is the remote's.
static int jump(struct pull *p, struct ckpt_state *to)
{
	uint32_t *places = ckpt_calloc(to->node_count + 1, sizeof(*places));
	int rc = places ? lift(p) : -ENOMEM;

	if (rc) {
		bases_done(p);
	} else {
		for (size_t i = 0; i < to->node_count; i++) {
			places[i] = (uint32_t)ckpt_state_node_place(p->s, to->nodes[i].node);
			ckpt_state_add_node(p->s, places[i], to->nodes[i].node, 0);
		}
		ckpt_table_map_nodes(to, places);
		ckpt_plains_map_nodes(to, places);
		ckpt_table_swap(p->s, to);
		lower(p, false);
	}
	free(p->bases);
	free(places);
	return rc;
}

// This node has read the entry behind the last one before which it may have put one (REMOTE.md L2): all that came since is by others.
int ckpt_state_jump(struct ckpt_state *s, const struct ckpt_operation *op, const struct ckpt_log_position *at,
		    struct ckpt_state *to)
{
	struct pull p = {.s = s, .to = to};
	int rc = !s->host || at->seq <= s->remote.seq ? CKPT_STATE_VOID : to ? 0 : -EBADMSG;

	if (ckpt_state_make_node_room(s, (to ? to->node_count : 0) + 1))
		return -ENOMEM;
	if (!rc && ckpt_values_jump(&s->values, &to->values.is, op->number))
		rc = -ENOMEM;
	if (!rc)
		rc = jump(&p, to);
	if (!rc)
		s->remote = *at;
	if (rc >= 0)
		ckpt_state_add_node(s, ckpt_state_node_place(s, op->node), op->node, op->number);
	return rc;
}

static int by_commit(const void *a, const void *b)
{
	const struct ckpt_state_step *x = *(const struct ckpt_state_step *const *)a,
				     *y = *(const struct ckpt_state_step *const *)b;

	return x->is.sequence != y->is.sequence ? (x->is.sequence < y->is.sequence ? -1 : 1) : strcmp(x->id, y->id);
}

// All of them begin with one act, so that this order is the one in which they are pushed.
static int attach(struct pull *p, const struct ckpt_operation *op)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	struct ckpt_state *s = p->s;
	size_t count = 0;
	int rc;

	if (s->host)
		return CKPT_STATE_VOID;
	if (p->is.act_count || !op->number)
		return -EBADMSG;
	rc = ckpt_state_steps(s, &steps, &count);
	if (!rc)
		rc = make_changed_room(s, count);
	if (!rc)
		rc = (s->host = strdup(p->is.host)) ? 0 : -ENOMEM;
	if (count)
		qsort(steps, count, sizeof(*steps), by_commit);
	for (size_t i = 0; i < count && !rc; i++)
		add_changed(s, ckpt_table_find(s, steps[i]->id), op->number);
	return rc;
}

// It is the state of a store that never had a remote, with the steps as they are here. Needs no memory.
static int detach(struct pull *p)
{
	struct ckpt_state *s = p->s;

	if (p->is.act_count)
		return -EBADMSG;
	if (!s->host)
		return CKPT_STATE_VOID;
	for (size_t i = 0; i < s->changed_count; i++) {
		struct ckpt_state_step *c = s->changed[i];

		ckpt_state_step_free(TAKE_PTR(c->shared));
		if (c->gone) {
			ckpt_state_step_free(c);
			continue;
		}
		c->since = c->latest = c->dropped = c->until = 0;
		c->merged = 0;
	}
	s->changed_count = 0;
	free(TAKE_PTR(s->host));
	s->remote = (struct ckpt_log_position){0};
	ckpt_plains_done(s);
	ckpt_condemned_done(s);
	s->condemned = (struct ckpt_condemned_table){0};
	ckpt_values_detach(&s->values);
	return 0;
}

static int apply_pull(struct pull *p, const struct ckpt_operation *op)
{
	int rc = ckpt_pull_decode(p->store_id, op->body, op->len, &p->is);

	if (rc)
		return rc;
	if (!p->is.entry_len)
		return *p->is.host ? attach(p, op) : detach(p);
	if (!p->s->host || *p->is.host)
		return p->s->host ? -EBADMSG : CKPT_STATE_VOID;
	rc = ckpt_pulled_entry(&p->is, p->store_id, &p->entry);
	return rc ? rc : pull_entry(p, op);
}

int ckpt_shared_pull(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at)
{
	struct pull p = {.s = s, .store_id = store_id, .at = *at, .body = op->body};
	int rc = ckpt_state_make_node_room(s, 1);

	if (!rc)
		rc = apply_pull(&p, op);
	if (rc >= 0)
		ckpt_state_add_node(s, ckpt_state_node_place(s, op->node), op->node, op->number);
	return rc;
}

// --- What it says -------------------------------------------------------------------------------------------------------

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
	int rc = make_changed_room(s, 1);

	if (!rc && !step)
		step = new_gone(id, shared);
	if (rc || !step)
		return rc ? rc : -ENOMEM;
	step->shared = shared;
	add_changed(s, step, since);
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
