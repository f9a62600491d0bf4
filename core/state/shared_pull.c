// A PULL takes the changed steps out of the table, so that the remote's own are there instead, applies the entry to those, and puts each
// changed step back: as it was, ended, or merged. Room for all of it is made before, so that only the entry's acts can fail; a PULL
// that did is applied again, and what it had done by then is void.
#include "core/state/shared.h"

#include "core/base/util.h"
#include "core/state/changed.h"
#include "core/state/step_merge.h"

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
		size_t most = versions_to_come(p, c) + CKPT_VERSIONS_OF_MERGE;

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
	       !ckpt_state_is_as_it_was(theirs, base);
}

static void delete_again(const struct ckpt_state_step *theirs, struct ckpt_state_step *c)
{
	struct ckpt_state_version last = *ckpt_state_last_version(theirs);

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
	return theirs && ckpt_state_was_replaced(c) && ckpt_state_was_replaced(theirs) &&
	       ckpt_state_last_version(c)->unmerged && ckpt_state_has_name_of(c, theirs) &&
	       ckpt_state_has_flags_of(c, theirs) && ckpt_state_last(c) <= ckpt_state_last(theirs);
}

// Nothing of it is left to be pushed, or to be shown.
static bool is_over(const struct pull *p, size_t i, bool by_us)
{
	const struct ckpt_state_step *c = p->s->changed[i], *base = p->bases[i], *theirs = c->shared;

	if (c->gone && !base)
		return !theirs || !by_us;
	if (c->gone)
		return !theirs || (!by_us && !ckpt_state_is_as_it_was(theirs, base));
	if (is_in_its_edit(c, theirs))
		return true;
	return !theirs && base && ckpt_state_has_files_of(c, base);
}

// This node pushes no files before they have the changes of others.
static void note_merged(struct ckpt_state_step *c, const struct ckpt_state_step *base, bool by_us)
{
	bool ours = by_us && (!base || ckpt_state_has_new_files(c->shared, ckpt_state_newest_files(base)));

	// The step that took its place here has not the new files, and may be an edit of it: a MERGE of that says so.
	bool same = ckpt_state_has_files_of(c, c->shared) && (!ckpt_state_was_replaced(c) || c->shared->deleted_by);

	if (ours || same || !ckpt_state_has_new_files(c->shared, c->merged))
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
	else if (!by_us && base && c->shared && !c->gone && !ckpt_state_is_as_it_was(c->shared, base))
		ckpt_state_merge(base, c->shared, c);
	if (by_us && !base && c->shared)
		ckpt_changed_pass(p->s, c->since);
	if (c->shared && !c->gone)
		note_merged(c, base, by_us);
	else if (!c->shared && base && !c->gone && !ckpt_state_has_files_of(c, base))
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
	ckpt_changed_end_shared(s);
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
		rc = ckpt_shared_act(p->s, p->store_id, &op, &at, true);
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
		rc = ckpt_changed_make_room(s, p->is.act_count * 3);
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
		rc = ckpt_changed_make_room(s, count);
	if (!rc)
		rc = (s->host = strdup(p->is.host)) ? 0 : -ENOMEM;
	if (count)
		qsort(steps, count, sizeof(*steps), by_commit);
	for (size_t i = 0; i < count && !rc; i++)
		ckpt_changed_add(s, ckpt_table_find(s, steps[i]->id), op->number);
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
