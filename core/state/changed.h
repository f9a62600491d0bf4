// Changed steps: how one differs from what the remote's log has of it, and the list of them. For the files of core/state
// alone; shared.h has what a changed step is, and the questions that others ask.
// Ownership: the list owns the steps that are gone, the table all others. Threads: as the state's. Nothing blocks.
#pragma once

#include "core/state/shared.h"
#include "core/state/table.h"

#include <string.h>

// --- Comparing ----------------------------------------------------------------------------------------------------------

static inline bool ckpt_state_has_name_of(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return !strcmp(a->is.name, b->is.name) && !strcmp(a->is.folder_id, b->is.folder_id);
}

// The nonce is of the attempt that made the record.
static inline bool ckpt_state_has_files_of(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return !memcmp(a->is.nonce, b->is.nonce, sizeof(a->is.nonce));
}

static inline bool ckpt_state_has_flags_of(const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return a->is.pinned == b->is.pinned && a->is.temporary == b->is.temporary;
}

static inline const struct ckpt_state_version *ckpt_state_last_version(const struct ckpt_state_step *step)
{
	return &step->versions[step->count - 1];
}

// Nothing has changed since `base`, which was the same step.
bool ckpt_state_is_as_it_was(const struct ckpt_state_step *now, const struct ckpt_state_step *base);
// Other files or metadata than the version with this number has, not only another place for the files.
bool ckpt_state_has_new_files(const struct ckpt_state_step *step, uint32_t known);
// An edit is saved as a step of its own, which keeps the directory and its place among the commits.
bool ckpt_state_is_edit_of(const struct ckpt_state_step *edit, const struct ckpt_state_step *step);
// The step whose place this edit took here, while the remote's log still has it there; NULL: there is none.
struct ckpt_state_step *ckpt_state_edited(const struct ckpt_state *s, const struct ckpt_state_step *edit);

// --- The list -----------------------------------------------------------------------------------------------------------

int ckpt_changed_make_room(struct ckpt_state *s, size_t more); // so that adding cannot fail; 0, -ENOMEM
void ckpt_changed_add(struct ckpt_state *s, struct ckpt_state_step *step, uint64_t since);
// A later step has arrived, by its save: what was written after it names that one, should one before it be dropped.
void ckpt_changed_pass(struct ckpt_state *s, uint64_t since);
// Those that are what the remote's log has are changed steps no longer.
void ckpt_changed_end_shared(struct ckpt_state *s);
