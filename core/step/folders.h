// Where the folders are that hold steps: a step is called by its folder's path and its own name, as the mount shows it.
// The paths are those of the moment; a folder can be renamed at any time.
//
// Calling sequence: ckpt_folders_read(), names, ckpt_folders_done(). Threads: one at a time. Reading walks the whole
// plain tree, which may take long.
#pragma once

#include "core/step/store.h"

struct ckpt_folders {
	struct ckpt_folder {
		char id[CKPT_FOLDER_ID_LEN + 1];
		char *path; // from the root of the store, without slashes at its ends
	} * at;             // but for the root
	size_t count, cap;
};

// Walks only if some step is in a folder. -ENOMEM; folders that cannot be read are left out.
int ckpt_folders_read(struct ckpt_store *s, struct ckpt_folders *ret_folders);
void ckpt_folders_done(struct ckpt_folders *f);
// Whether a step can have its name in its folder again: 0; -ENOENT the folder is gone, -EEXIST something plain has the name.
int ckpt_folders_back(struct ckpt_store *s, const char *folder_id, const char *name);
// The folder with this id in the plain tree, open; -ENOENT: nothing has the id any more.
int ckpt_folders_open(struct ckpt_store *s, const char *folder_id);
// Where a new step of this path ("checkpoints/2000") would be: its folder's id, given where it has none, and the name, which
// points into path. -ENOENT, -ENOTDIR: no such folder; -EEXIST: something plain has the name; -EINVAL ... not a name.
int ckpt_folders_place(struct ckpt_store *s, const char *path, char ret_id[CKPT_FOLDER_ID_LEN + 1],
		       const char **ret_name);
// Before that: the folders on the way are there, made where they were not. -EEXIST: a step has the name of one; -ENOTDIR: a file has;
// -EINVAL ... not a name. What was made stays after a failure. They are on disk once an id is given (store_folder.h).
int ckpt_folders_make(struct ckpt_store *s, const char *path);
// As ckpt_folders_place(), of the folder alone, "" being the root.
int ckpt_folders_place_folder(struct ckpt_store *s, const char *path, char ret_id[CKPT_FOLDER_ID_LEN + 1]);
// The id of the folder of this path of len bytes, "" of the root; "?<id>" is one that is gone. -ENOENT: no step was ever in it.
int ckpt_folders_id(const struct ckpt_folders *f, const char *path, size_t len, char ret_id[CKPT_FOLDER_ID_LEN + 1]);
// "checkpoints/1000", or "?<id>/1000" when the folder is gone; malloc'ed. NULL: no memory.
char *ckpt_folders_name(const struct ckpt_folders *f, const char *folder_id, const char *name);
