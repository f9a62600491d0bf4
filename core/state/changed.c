#include "core/state/changed.h"

#include "core/base/util.h"

// --- Comparing --------------------------------------------------------------------------------------------------------

static bool is_equal(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return !a->deleted_by == !b->deleted_by && ckpt_state_has_name_of(a, b) && ckpt_state_has_files_of(a, b) &&
	       ckpt_state_has_flags_of(a, b);
}

// The numbers of versions never go back. (The version that took its place has another number where several versions of that were
// pushed as one.)
bool ckpt_state_is_as_shared(const struct ckpt_state_step *c)
{
	return !c->gone && c->shared && is_equal(c, c->shared) && ckpt_state_newest(c) <= ckpt_state_last(c->shared);
}

bool ckpt_state_is_as_it_was(const struct ckpt_state_step *now, const struct ckpt_state_step *base)
{
	return is_equal(now, base) && now->is.version == base->is.version;
}

bool ckpt_state_has_changed_files(const struct ckpt_state_step *changed)
{
	return !changed->gone && (!changed->shared || !ckpt_state_has_files_of(changed, changed->shared));
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

// Other files or metadata than the version with this number has, not only another place for the files.
bool ckpt_state_has_new_files(const struct ckpt_state_step *step, uint32_t known)
{
	for (size_t i = step->count; i-- > 0 && step->versions[i].version > known;)
		if (!ckpt_state_same_files(&step->versions[i]) || ckpt_state_is_note(step, i))
			return true;
	return false;
}

bool ckpt_state_is_unmerged(const struct ckpt_state_step *c)
{
	return c->merged && ckpt_state_has_changed_files(c) &&
	       (!c->shared || ckpt_state_has_new_files(c->shared, c->merged));
}

// An edit is saved as a step of its own, which keeps the directory and its place among the commits.
bool ckpt_state_is_edit_of(const struct ckpt_state_step *edit, const struct ckpt_state_step *step)
{
	return edit != step && edit->is.sequence == step->is.sequence && edit->is.dir_ino == step->is.dir_ino;
}

struct ckpt_state_step *ckpt_state_edited(const struct ckpt_state *s, const struct ckpt_state_step *edit)
{
	const struct ckpt_state_step *there =
		edit->since && !edit->shared ? ckpt_state_shared_listed(s, edit->is.folder_id, edit->is.name) : NULL;
	struct ckpt_state_step *step = there ? ckpt_table_find(s, there->id) : NULL;

	return step && step->since && ckpt_state_was_replaced(step) && ckpt_state_is_edit_of(edit, step) ? step : NULL;
}

bool ckpt_state_is_edit_behind(const struct ckpt_state *s, const struct ckpt_state_step *edit)
{
	const struct ckpt_state_step *step = ckpt_state_edited(s, edit);

	return step && ckpt_state_has_new_files(step->shared, step->merged);
}

bool ckpt_state_has_edit_behind(const struct ckpt_state *s, const struct ckpt_state_step *step)
{
	const struct ckpt_state_step *edit =
		step->since && step->shared ? ckpt_table_listed(s, step->shared->is.folder_id, step->shared->is.name)
					    : NULL;

	return edit && ckpt_state_edited(s, edit) == step && ckpt_state_has_new_files(step->shared, step->merged);
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

int ckpt_changed_make_room(struct ckpt_state *s, size_t more)
{
	return ckpt_grow((void **)&s->changed, &s->changed_cap, s->changed_count + more, sizeof(*s->changed));
}

void ckpt_changed_add(struct ckpt_state *s, struct ckpt_state_step *step, uint64_t since)
{
	step->since = step->latest = since;
	s->changed[s->changed_count++] = step;
}

static void drop_changed(struct ckpt_state *s, size_t i)
{
	memmove(&s->changed[i], &s->changed[i + 1], (--s->changed_count - i) * sizeof(*s->changed));
}

// A later step has arrived, by its save: what was written after it names that one, should one before it be dropped.
void ckpt_changed_pass(struct ckpt_state *s, uint64_t since)
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

void ckpt_changed_end_shared(struct ckpt_state *s)
{
	for (size_t i = s->changed_count; i-- > 0;)
		if (ckpt_state_is_as_shared(s->changed[i]))
			end_change(s, i);
}
