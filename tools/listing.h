// A store opened for reading by a verb, and the names in it: a step is called by its folder's path and its own name, as
// the mount shows it.
//
// Calling sequence: ckpt_listing_open(), calls, ckpt_listing_close(). Works beside a mount. Threads: one. Everything may
// block on the disk. Failures are said on stderr here, once; the functions that can fail return 0 or an exit status.
#pragma once

#include "core/request/resolve.h"
#include "core/step/folders.h"
#include "core/step/step.h"
#include "core/store/open.h"
#include "tools/operand.h"

struct ckpt_listing {
	struct ckpt_store *store;
	struct ckpt_folders folders;
};

int ckpt_listing_open(const char *store, enum ckpt_store_mode mode, struct ckpt_listing *ret_listing);
// For reading, without the index, so that this process may open the store for writing, too: LMDB takes an index once.
int ckpt_listing_open_beside(const char *store, struct ckpt_listing *ret_listing);
void ckpt_listing_close(struct ckpt_listing *l);
// The path of a store with a URL that was opened for writing; NULL: there was none.
const char *ckpt_listing_written(void);
// Why a store cannot be opened, and what to do about it (or NULL); malloc'ed.
void ckpt_listing_explain(const char *store, int error, char **ret_why, char **ret_hint);

// "checkpoints/1000"; malloc'ed.
char *ckpt_listing_name(const struct ckpt_listing *l, const char *folder_id, const char *name);

// What --by means. 0, or wrong usage.
int ckpt_listing_order(const char *word, enum ckpt_latest_by *ret_by);

// "trash/NAME": a deleted step is meant.
bool ckpt_listing_is_trash(const char *word);

// True when steps were ever in the folder of this path; they are in the root, "".
bool ckpt_listing_is_folder(const struct ckpt_listing *l, const char *path);

// The mounts of this machine, and the listing as seen by that which the operand came by. Both stay the caller's.
struct ckpt_view ckpt_listing_view(const struct ckpt_listing *l, const struct ckpt_operand *o,
				   const struct ckpt_mounts *mounts);

// The committed step that word names: "1000", "checkpoints/1000", "latest", "latest~2", "checkpoints/latest"; what
// follows is the path in the step, "" for none. *ret_path is malloc'ed. The reference is the caller's.
// "trash/1000" is the deleted one of that name in `ls --trash`, or of that session.
int ckpt_listing_find(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
		      struct ckpt_step **ret_step, char **ret_path);
// A version of a step: STEP@VERSION, or STEP@-N, the files before its last N changes; what follows is the path in it.
struct ckpt_at_version {
	struct ckpt_step *named; // STEP
	struct ckpt_step *step;  // which has it: that one, or a deleted one whose place it took
	struct ckpt_version *version;
	char *path;
};
// True for a word of this form that is not the exact name of a step, or of a file of one.
bool ckpt_listing_is_version(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word);
int ckpt_listing_version(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
			 struct ckpt_at_version *ret_at);
void ckpt_at_version_done(struct ckpt_at_version *at);
// What word names, a step or a version of one, with its manifest. References; *ret_path is malloc'ed.
int ckpt_listing_files(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
		       struct ckpt_step **ret_step, struct ckpt_manifest **ret_manifest, char **ret_path);
// The same as _find() without a word of what is not found: NULL.
struct ckpt_step *ckpt_listing_look(const struct ckpt_listing *l, const struct ckpt_operand *operand, const char *word,
				    char **ret_path);
