#include "core/state/step_merge.h"

#include "core/base/util.h"
#include "core/state/changed.h"

static bool is_deleted(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
		       const struct ckpt_state_step *ours)
{
	if (theirs->deleted_by)
		return ours->deleted_by || !base->deleted_by;
	if (!ours->deleted_by || base->deleted_by || theirs->is.pinned)
		return false;
	return !ckpt_state_was_replaced(ours) ||
	       ckpt_state_has_name_of(base, theirs); // what went elsewhere is not in the way
}

static void merge_name(struct ckpt_state_step *is, const struct ckpt_state_step *from)
{
	memcpy(is->is.folder_id, from->is.folder_id, sizeof(is->is.folder_id));
	memcpy(is->is.name, from->is.name, sizeof(is->is.name));
	is->is.number = from->is.number;
}

// This node's files come behind the other's where both have changed theirs; the other's stay as an older version.
static bool has_our_files(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
			  const struct ckpt_state_step *ours)
{
	return !ckpt_state_has_files_of(ours, base) &&
	       (ckpt_state_has_files_of(theirs, base) || ckpt_state_has_new_files(ours, ckpt_state_newest_files(base)));
}

void ckpt_state_merge(const struct ckpt_state_step *base, const struct ckpt_state_step *theirs,
		      struct ckpt_state_step *ours)
{
	bool our_files = has_our_files(base, theirs, ours);
	bool pinned = ours->is.pinned != base->is.pinned ? ours->is.pinned : theirs->is.pinned;
	bool temporary = ours->is.temporary != base->is.temporary ? ours->is.temporary : theirs->is.temporary;
	bool deleted = is_deleted(base, theirs, ours), replaced = ckpt_state_was_replaced(ours);
	const struct ckpt_state_step *named = ckpt_state_has_name_of(ours, base) ? theirs : ours;
	struct ckpt_state_version last = *ckpt_state_last_version(our_files ? ours : theirs),
				  our_last = *ckpt_state_last_version(ours);
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
	if (our_files || !ckpt_state_has_flags_of(&is, theirs))
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
