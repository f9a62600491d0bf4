// One of the steps that a new one is derived from: which of its arrays the new one has, and which of its files as they are.
//
// Calling sequence: ckpt_derive_side_read(), _choose(), _find_whole(); _share(); _done(). Threads: one. Blocks on the disk or the store.
// Failures are said on stderr, once; calls return 0 or an exit status.
#pragma once

#include "core/view/export.h"
#include "core/view/step_arrays.h"
#include "core/view/whole.h"
#include "tools/listing.h"

struct ckpt_derive_side {
	const char *word; // the step, as the user called it
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_step_arrays *arrays;
	bool *chosen;  // by array of its catalog
	bool *skipped; // the others, and those that stay
	struct ckpt_whole whole;
	bool is_here; // all of its bytes: else its packs may go from a remote before this node has told that it needs them
	char *under; // of its files, in the new step: "", or "NAME/"
	// Of the files that stay:
	uint64_t bytes, copied_bytes; // the second: of those that can neither be linked nor share chunks
	size_t copied_count;
	size_t array_count;
};

// The step, or the files below a path in it.
int ckpt_derive_side_read(struct ckpt_derive_side *s, const struct ckpt_listing *l, const struct ckpt_operand *o,
			  const char *word);
// The arrays that e chooses; without those whose names, as options change them, another side has given already. given: that side, or NULL, which chooses with e.
void ckpt_derive_side_choose(struct ckpt_derive_side *s, const struct ckpt_export *e,
			     const struct ckpt_derive_side *given);
// The files that can stay as they are. format: only of this one; NULL: of any that is written here. changes: nothing can.
int ckpt_derive_side_find_whole(struct ckpt_derive_side *s, const struct ckpt_export *e, const char *format);
// They come below dirfd: as links, as the same chunks, or where neither is possible as copies.
int ckpt_derive_side_share(struct ckpt_derive_side *s, int dirfd);
void ckpt_derive_side_done(struct ckpt_derive_side *s); // before the listing is closed; zeroed is fine
