// The plain tree as it was when it last agreed with the remote's log: of each path the version that it has, and how the file looked.
//
// So a look at the disk tells what this node has changed, and what another node has: by path, for a file may be replaced by another
// one. It is a file of the node's store, `tree.json`. Losing it loses nothing: what agrees is seen again, and of what does not, both stay.
//
// Limit: a content that was sent is seen when the log has it. If the process dies before that, and the user removes the file, the file comes
// back when the content arrives after all: nothing tells it from a file that a power cut took away.
// Threads: one at a time. Load and save block on the disk.
#pragma once

#include "core/remote/tree_look.h"

#define CKPT_TREE_SEEN_FILE "tree.json"

struct ckpt_tree_seen {
	char folder_id[CKPT_FOLDER_ID_LEN + 1], id[CKPT_FOLDER_ID_LEN + 1]; // id: of a folder; "" it is none
	char *name;
	uint64_t version;           // of core/state/plain.h
	struct ckpt_tree_file file; // of no folder
	int64_t pushed_ns;          // when it was sent last, monotonic; 0: not by this process
};

struct ckpt_tree_seen_table {
	struct ckpt_tree_seen *at; // by folder and name
	size_t count, cap;
	bool changed; // since it was saved
};

int ckpt_tree_seen_load(struct ckpt_tree_seen_table *t, int dirfd); // -ENOMEM; what cannot be read is empty
int ckpt_tree_seen_save(struct ckpt_tree_seen_table *t, int dirfd); // if it was changed
void ckpt_tree_seen_done(struct ckpt_tree_seen_table *t);
struct ckpt_tree_seen *ckpt_tree_seen_find(const struct ckpt_tree_seen_table *t, const char *folder_id,
					   const char *name);
struct ckpt_tree_seen *ckpt_tree_seen_folder(const struct ckpt_tree_seen_table *t, const char *id);
// name is copied; id NULL: it is no folder, and file is of it. 0, -ENOMEM.
int ckpt_tree_seen_set(struct ckpt_tree_seen_table *t, const char *folder_id, const char *name, const char *id,
		       uint64_t version, const struct ckpt_tree_file *file);
void ckpt_tree_seen_drop(struct ckpt_tree_seen_table *t, const char *folder_id, const char *name);
