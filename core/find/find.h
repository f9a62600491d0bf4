// Which committed step a name means, as the mount and the verbs have it: a path from the root of the store, in which "latest" is
// the newest step of its folder, by the store's setting latest_by, and "latest~N" the one N places behind it.
//
// Threads: any, for a `folders` that nobody reads anew meanwhile. Nothing blocks but the orders `tracker`, which reads a file, and
// `timestamp`, which reads one of each step.
// References are the caller's.
#pragma once

#include "core/step/folders.h"
#include "core/step/latest.h"

// The committed step of this name in this folder; NULL: there is none.
struct ckpt_step *ckpt_find_committed(struct ckpt_store *s, const char *folder_id, const char *name);
// The unfinished session of this id, staged or left over. 0, -ENOENT, -ENOMEM.
int ckpt_find_unfinished(struct ckpt_store *s, const char *session, struct ckpt_step **ret_step);

// The step that is `back` places behind the newest of the folder of this path. The root of a store whose steps are all in
// folders has the newest of them all. 0; -ENOENT there is none; -ENOMEM.
int ckpt_find_newest(struct ckpt_store *s, const struct ckpt_folders *f, const char *folder, enum ckpt_latest_by by,
		     size_t back, struct ckpt_step **ret_step);

// The step that path begins with: "1000", "checkpoints/1000/model.pt", "checkpoints/latest~2". *ret_rest points into path, to
// what is behind its name. newest says which step "latest" is, as ckpt_find_newest(). 0; -ENOENT; -ENOMEM.
typedef int ckpt_find_newest_fn(void *arg, const char *folder, size_t back, struct ckpt_step **ret_step);
int ckpt_find_step(struct ckpt_store *s, const struct ckpt_folders *f, const char *path, ckpt_find_newest_fn *newest,
		   void *arg, struct ckpt_step **ret_step, const char **ret_rest);
// "latest" is 0, "latest~N" is N; -1: another name.
int64_t ckpt_find_back(const char *name);
