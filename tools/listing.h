// A store opened for reading by a verb, and the names in it: a step is called by its folder's path and its own name, as
// the mount shows it.
//
// Calling sequence: ckpt_listing_open(), calls, ckpt_listing_close(). Works beside a mount. Threads: one. Everything may
// block on the disk. Failures are said on stderr here, once; the functions that can fail return 0 or an exit status.
#pragma once

#include "core/folders.h"
#include "core/step.h"
#include "core/store.h"
#include "tools/operand.h"

struct ckpt_listing {
	struct ckpt_store *store;
	struct ckpt_folders folders;
};

int ckpt_listing_open(const char *store, enum ckpt_store_mode mode, struct ckpt_listing *ret_listing);
void ckpt_listing_close(struct ckpt_listing *l);
// Why a store cannot be opened, and what to do about it (or NULL); malloc'ed.
void ckpt_listing_explain(const char *store, int error, char **ret_why, char **ret_hint);

// "checkpoints/1000"; malloc'ed.
char *ckpt_listing_name(const struct ckpt_listing *l, const char *folder_id, const char *name);

// "trash/NAME": a deleted step is meant.
bool ckpt_listing_is_trash(const char *word);

// The id of the folder of this path, "" of the root; NULL: no step was ever in it.
const char *ckpt_listing_folder(const struct ckpt_listing *l, const char *path);
// The step that is `back` places behind the newest of a folder, with a reference; the root of a store whose steps are all
// in folders has the newest of them all. NULL: none.
struct ckpt_step *ckpt_listing_latest(const struct ckpt_listing *l, const char *folder_id, enum ckpt_latest_by by,
				      size_t back);

// The committed step that word names: "1000", "checkpoints/1000", "latest", "latest~2", "checkpoints/latest"; what
// follows is the path in the step, "" for none. *ret_path is malloc'ed. The reference is the caller's.
// "trash/1000" is the deleted one of that name in `ls --trash`, or of that session.
int ckpt_listing_find(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
		      struct ckpt_step **ret_step, char **ret_path);
// The same without a word of what is not found: NULL.
struct ckpt_step *ckpt_listing_look(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
				    char **ret_path);
