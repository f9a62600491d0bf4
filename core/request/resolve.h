// Which checkpoint a run loads when it starts, in MaxText's order:
//
//   1. resume       the newest complete step of the run itself
//   2. full_state   else the path that it was given to go on from, or
//      parameters   to take the parameters of; to give both is wrong, whatever the run has
//   3. scratch      else none
//
// The run of a store's root is in the root, else in its `checkpoints`, else in the one folder that has steps.
// A step counts when it is committed and the mount lists it: not while it is written, being removed or changed, nor deleted.
// A path leads to a step (through a mount, or below a store's directory: locate.h), to something in a step, to what is plain in a
// store, or to a directory or file elsewhere, which is taken as it is. `.../items/1000` and `.../1000/items` are tried as given, then
// as the other.
//
// Ownership: results own their texts. Threads: any, each with a view of its own. Everything may block on the disk, and on the mount.
#pragma once

#include "core/find/find.h"
#include "core/step/mounts.h"

enum ckpt_resolve_mode {
	CKPT_RESOLVE_SCRATCH,
	CKPT_RESOLVE_RESUME,
	CKPT_RESOLVE_FULL_STATE,
	CKPT_RESOLVE_PARAMETERS,
};
// "scratch", "resume", "full_state", "parameters".
extern const char *const ckpt_resolve_words[];

// A store that is open for reading, and where it is seen; all borrowed.
struct ckpt_view {
	struct ckpt_store *store;
	const struct ckpt_folders *folders;
	const struct ckpt_mounts *mounts;
	const struct ckpt_mounted *first; // by which it is called where that can be; or NULL
	// Of steps that are sought by their age: the step has no place among them. NULL: all have. Called without locks, for the newest ones first.
	bool (*skips)(void *arg, struct ckpt_step *step);
	void *skips_arg;
};

// Opens the store of a view, as ckpt_store_open() does. It does without the index: who opens one looks at it in a child process
// first, and a library forks none for a look.
int ckpt_view_store(const char *directory, struct ckpt_store **ret_store);
// Where the files of a step are in a mount on this machine, malloc'ed; NULL: it is not mounted here. `below` is a path in the step,
// or "". 0, -ENOMEM.
int ckpt_view_path(const struct ckpt_view *v, struct ckpt_step *step, const char *below, char **ret_path);
// As ckpt_find_newest(), but for steps that the mount does not list.
int ckpt_view_newest(const struct ckpt_view *v, const char *folder, enum ckpt_latest_by by,
		     struct ckpt_step **ret_step);
// As ckpt_find_step(), where "latest" and "latest~N" are of those that it lists. A name by itself is that of any step.
int ckpt_view_find(const struct ckpt_view *v, const char *path, struct ckpt_step **ret_step, const char **ret_rest);

// Whether a run was ever in this folder: it had steps, or its `checkpoints` had, or it is a step, or in one.
bool ckpt_view_is_run(const struct ckpt_view *v, const char *folder);

struct ckpt_resolve {
	const char
		*folder; // of the run: a path from the root of the store; one that is not there has no steps. Or a step
	enum ckpt_latest_by by;
	const char *parameters, *full_state; // absolute, or NULL
};

struct ckpt_resolved {
	enum ckpt_resolve_mode mode;
	char *store; // its directory; NULL: what is loaded is in none
	char *step;  // "checkpoints/1000"; NULL: it is in none
	char *path;  // where it can be read; NULL: it is in a store that is not mounted here
};

// 0; -EINVAL both paths are given. Of the path that was given: -ENOENT nothing is there; -EBUSY it is not complete, or being changed;
// -EISDIR it is a folder of steps, not one; errors of ckpt_store_open() where it is in another store. Of the run: -ENOTDIR it is
// inside of a step; -EMLINK it is the root, which has no steps, and several folders have. -ENOMEM, -EIO ...; *ret_of_path says whether it is about the path.
int ckpt_resolve_run(const struct ckpt_view *v, const struct ckpt_resolve *how, struct ckpt_resolved *ret_resolved,
		     bool *ret_of_path);
void ckpt_resolved_done(struct ckpt_resolved *r);
