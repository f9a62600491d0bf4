// The ids of folders that hold steps: an attribute of the folder in the plain tree.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/store.h"

// Folders whose id is on disk for sure; guarded by store->lock.
struct ckpt_synced_folders {
	struct ckpt_synced_folder *first;
};
CKPT_PART(struct ckpt_store, struct ckpt_synced_folders, ckpt_synced_folders)

// The id of a folder in tree/ that holds steps (xattr on it); made when missing and make is true, else -ENOENT. Another
// error says nothing of it.
// One that is made follows from the store, the folder above and the name, unless a folder that was renamed has it: then it is random. A
// folder above that has none gets one, too. dirfd is the folder. ret_id has CKPT_FOLDER_ID_LEN + 1 bytes.
int ckpt_store_folder_id(struct ckpt_store *s, int dirfd, bool make, char *ret_id);
// The same, by who knows which ids there are: with many new folders a walk for each would take long.
struct ckpt_folder_ids {
	bool (*has)(void *arg, const char *id);
	void *arg;
};
int ckpt_store_folder_make(struct ckpt_store *s, int dirfd, const struct ckpt_folder_ids *ids, char *ret_id);
// An empty directory gets the id that another node has given the folder. -errno.
int ckpt_store_folder_set(int dirfd, const char *id);
