#include "core/state/difference.h"

#include "core/base/util.h"
#include "core/state/table.h"

// --- Questions ----------------------------------------------------------------------------------------------------------

const struct ckpt_state_step *ckpt_state_held_by(const struct ckpt_state *s, uint64_t number)
{
	for (size_t i = 0; i < s->changed_count; i++) {
		const struct ckpt_state_step *c = s->changed[i];

		if (ckpt_state_is_dropped(c) && c->since <= number && (!c->until || number < c->until))
			return c;
	}
	return NULL;
}

const struct ckpt_state_step *ckpt_state_shared_listed(const struct ckpt_state *s, const char *folder_id,
						       const char *name)
{
	const struct ckpt_state_step *step = ckpt_table_listed(s, folder_id, name);

	if (step && !step->since)
		return step;
	for (size_t i = 0; i < s->changed_count; i++) {
		step = s->changed[i]->shared;
		if (step && !step->deleted_by && !strcmp(step->is.name, name) && !strcmp(step->is.folder_id, folder_id))
			return step;
	}
	return NULL;
}

// --- The difference -----------------------------------------------------------------------------------------------------

struct difference {
	const struct ckpt_state_step *c, *theirs;
	struct ckpt_act *acts;
	size_t count;
	uint32_t newest; // version, as the acts so far make it
	int64_t time_ns;
};

static struct ckpt_act *add(struct difference *d, enum ckpt_act_kind kind, uint32_t version)
{
	struct ckpt_act *a = &d->acts[d->count++];

	*a = (struct ckpt_act){.kind = kind, .version = version, .time_ns = d->time_ns};
	memcpy(a->step, d->c->id, sizeof(a->step));
	d->newest = MAX(d->newest, version);
	return a;
}

static bool has_other_name(const struct difference *d)
{
	return strcmp(d->c->is.name, d->theirs->is.name) || strcmp(d->c->is.folder_id, d->theirs->is.folder_id);
}

// It will be said by the SAVE of the step that took its place here, which waits, too.
static bool is_replaced_by_a_changed_one(const struct ckpt_state *s, const struct difference *d)
{
	const struct ckpt_state_step *there = ckpt_table_listed(s, d->theirs->is.folder_id, d->theirs->is.name);

	return ckpt_state_was_replaced(d->c) && there && there->since && !there->shared;
}

// Another step was saved in its place, and is not pushed yet: what the remote's log lacks of this one goes before it.
static bool goes_before_its_successor(const struct ckpt_state *s, const struct ckpt_state_step *c)
{
	const struct ckpt_state_step *there;

	if (c->gone || !ckpt_state_was_replaced(c) || !ckpt_state_has_changed_files(c) || ckpt_state_is_unmerged(c) ||
	    c->versions[c->count - 1].unmerged || (c->shared && c->shared->deleted_by))
		return false;
	there = ckpt_table_listed(s, c->is.folder_id, c->is.name);
	return there && there->since && !there->shared && !ckpt_state_is_dropped(there);
}

// In the remote's log another step has the name of this one.
static const struct ckpt_state_step *has_its_name(const struct ckpt_state *s, const struct ckpt_state_step *c)
{
	const struct ckpt_state_step *there = ckpt_state_shared_listed(s, c->is.folder_id, c->is.name);

	return there && strcmp(there->id, c->id) ? there : NULL;
}

// The step that it replaces would have been deleted by a version of its own. What it has here is over, too.
static uint32_t version_of_save(const struct ckpt_state_step *c, const struct ckpt_state_step *there,
				const struct ckpt_state_step *here)
{
	uint32_t version = c->is.version;

	version = MAX(version, there ? ckpt_state_last(there) + 1 : 0);
	return MAX(version, here && ckpt_state_was_replaced(here) ? ckpt_state_last(here) : 0);
}

// A step that was deleted here, or replaced, goes with it. One that has only another name waits to be renamed.
static void save(const struct ckpt_state *s, struct difference *d)
{
	const struct ckpt_state_step *there = has_its_name(s, d->c);
	const struct ckpt_state_step *here = there ? ckpt_table_find(s, there->id) : NULL;
	struct ckpt_act *a;

	if ((here && !here->deleted_by) || ckpt_state_is_unmerged(d->c) || ckpt_state_is_edit_behind(s, d->c))
		return;
	a = add(d, CKPT_ACT_SAVE, version_of_save(d->c, there, here));
	if (there)
		memcpy(a->replaces, there->id, sizeof(a->replaces));
}

static struct ckpt_act *rename_it(struct difference *d)
{
	struct ckpt_act *a = add(d, CKPT_ACT_RENAME, 0);

	memcpy(a->folder_id, d->c->is.folder_id, sizeof(a->folder_id));
	memcpy(a->name, d->c->is.name, sizeof(a->name));
	return a;
}

static void rename_for_now(const struct ckpt_state *s, struct difference *d)
{
	struct ckpt_act *a = rename_it(d);

	ckpt_name_conflict(a->name, d->c->is.name, s->host, 1);
	for (unsigned n = 2;
	     ckpt_table_listed(s, a->folder_id, a->name) || ckpt_state_shared_listed(s, a->folder_id, a->name); n++)
		ckpt_name_conflict(a->name, d->c->is.name, s->host, n);
}

static void flag(struct difference *d, uint32_t version)
{
	const struct ckpt_summary *is = &d->c->is;

	add(d, CKPT_ACT_FLAG, version)->flags =
		(is->pinned ? CKPT_FLAG_PINNED : 0) | (is->temporary ? CKPT_FLAG_TEMPORARY : 0);
}

// An edit, unless all that was done here since has the files of before: with other metadata, or packed or sealed.
static enum ckpt_act_kind kind_of(const struct ckpt_state_step *c)
{
	uint32_t known = ckpt_state_newest_files(c->shared);
	bool notes = false, repacks = false;

	for (size_t i = c->count; i-- > 0 && c->versions[i].version > known;) {
		if (!ckpt_state_same_files(&c->versions[i]))
			return CKPT_ACT_AMEND;
		notes |= ckpt_state_is_note(c, i);
		repacks |= c->versions[i].files == CKPT_FILES_REPACKED;
	}
	return !notes ? CKPT_ACT_REPACK : repacks ? CKPT_ACT_AMEND : CKPT_ACT_NOTE;
}

// The last act that makes a version makes that which the step has here, or a later one.
static void change_files_or_flags(struct difference *d, bool temporary)
{
	const struct ckpt_state_step *c = d->c;
	uint32_t version = MAX(d->newest + 1, ckpt_state_newest(c));

	if (ckpt_state_is_unmerged(c) && !ckpt_state_keeps_files(c))
		return; // it is put together first
	if (ckpt_state_has_changed_files(c) && !ckpt_state_keeps_files(c))
		add(d, kind_of(c), version);
	else if (c->is.pinned != d->theirs->is.pinned || c->is.temporary != temporary ||
		 d->newest < ckpt_state_newest(c))
		flag(d, version); // one that was set and dropped again has its number
}

static void expire(struct difference *d)
{
	if (d->theirs->is.pinned && !ckpt_state_was_replaced(d->theirs))
		add(d, CKPT_ACT_FLAG, d->newest + 1);
	if (!d->theirs->deleted_by)
		add(d, CKPT_ACT_DELETE, d->newest + 1);
	add(d, CKPT_ACT_EXPIRE, d->newest);
}

// Its name is changed in the trash, where it is in nobody's way. Its files are not pushed: that would hold the deletion up.
static void change_and_delete(struct difference *d)
{
	uint32_t deleted_by = d->c->deleted_by;

	if (d->c->is.pinned != d->theirs->is.pinned || d->c->is.temporary != d->theirs->is.temporary)
		flag(d, MAX(d->newest + 1, d->c->is.version));
	if (d->c->is.pinned) // what took its place here has its pin; in the trash it gets its own back
		add(d, CKPT_ACT_FLAG, d->newest + 1);
	d->time_ns = d->c->deleted_ns;
	add(d, CKPT_ACT_DELETE, MAX(d->newest + 1, deleted_by));
	if (has_other_name(d))
		rename_it(d);
}

static void change(const struct ckpt_state *s, struct difference *d, bool stuck)
{
	const struct ckpt_state_step *c = d->c, *theirs = d->theirs;
	bool back = theirs->deleted_by && !c->deleted_by;

	if (!c->deleted_by && has_its_name(s, c)) {
		if (stuck && !theirs->deleted_by)
			rename_for_now(s, d);
		return;
	}
	if (has_other_name(d) || ckpt_state_is_as_shared(c)) // another name may be on its way
		rename_it(d);
	if (back)
		add(d, CKPT_ACT_UNDELETE, d->newest + 1);
	change_files_or_flags(d, theirs->is.temporary && !back);
}

// Its place is taken by the SAVE of the other one, with a higher version.
static void change_before_its_successor(struct difference *d)
{
	uint32_t version = MAX(d->newest + 1, ckpt_state_newest(d->c));
	enum ckpt_act_kind kind = kind_of(d->c);

	if (kind == CKPT_ACT_AMEND && !has_other_name(d) && version < d->c->deleted_by)
		add(d, kind, version);
}

static void change_or_delete(const struct ckpt_state *s, struct difference *d, bool stuck)
{
	if (d->c->gone)
		expire(d);
	else if (!d->c->deleted_by || d->theirs->deleted_by)
		change(s, d, stuck);
	else if (!is_replaced_by_a_changed_one(s, d))
		change_and_delete(d);
	else if (goes_before_its_successor(s, d->c))
		change_before_its_successor(d);
}

size_t ckpt_state_difference(const struct ckpt_state *s, const struct ckpt_state_step *c, bool stuck,
			     struct ckpt_act ret_acts[CKPT_DIFFERENCE_MAX])
{
	struct difference d = {.c = c, .theirs = c->shared, .acts = ret_acts, .time_ns = c->is.committed_ns};

	if (ckpt_state_is_left_out(s, c))
		return 0;
	if (c->shared) {
		d.newest = ckpt_state_last(c->shared);
		change_or_delete(s, &d, stuck);
	} else if ((!c->deleted_by && !c->gone) || goes_before_its_successor(s, c)) {
		save(s, &d);
	}
	return d.count;
}

bool ckpt_state_follows(const struct ckpt_state *s, const struct ckpt_state_step *c,
			const struct ckpt_state_step *before)
{
	return before != c && !strcmp(c->is.name, before->is.name) && !strcmp(c->is.folder_id, before->is.folder_id) &&
	       goes_before_its_successor(s, before) && (!c->deleted_by || c->deleted_by > before->deleted_by);
}

uint64_t ckpt_state_place(const struct ckpt_state *s, const struct ckpt_state_step *c)
{
	return (c->gone || c->deleted_by) && !goes_before_its_successor(s, c) ? c->latest : c->since;
}
