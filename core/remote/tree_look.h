// A look at the plain tree on disk: the folders and plain files below tree/, as they are at the moment.
//
// Threads: one at a time. Blocks on the disk: it walks all of the tree.
#pragma once

#include "core/step/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

// A file is the same, with the same bytes, as long as all of these are.
struct ckpt_tree_file {
	uint64_t ino, size;
	int64_t mtime_ns, ctime_ns;
};

enum ckpt_tree_kind {
	CKPT_TREE_FOLDER,
	CKPT_TREE_FILE,
	CKPT_TREE_LINK,  // symbolic
	CKPT_TREE_OTHER, // a FIFO, a device: it is no other node's matter
};

struct ckpt_tree_entry {
	char folder_id[CKPT_FOLDER_ID_LEN + 1], id[CKPT_FOLDER_ID_LEN + 1]; // of the folder that it is in; its own
	char *path;                                                         // from the top of the tree
	const char *name;                                                   // in path
	enum ckpt_tree_kind kind;
	size_t above;    // the place of the folder that it is in, SIZE_MAX: the top
	bool unreadable; // a folder: what is in it is not known
	struct stat st;
};

struct ckpt_tree_view {
	struct ckpt_tree_entry *at; // a folder stands before what is in it
	size_t count, cap;
	size_t *of_name, *of_id; // indices, sorted: all; the folders
	size_t folder_count;
	bool unknown; // something is not ours to look at, or too deep: what is missing may be there
};

// Folders without an id get one. What goes or comes meanwhile is there or not. -ENOMEM, -EIO ...
int ckpt_tree_look(struct ckpt_store *s, struct ckpt_tree_view *ret_view);
void ckpt_tree_view_done(struct ckpt_tree_view *v);
// NULL: there is none. The top is no entry: its id is "".
struct ckpt_tree_entry *ckpt_tree_find(const struct ckpt_tree_view *v, const char *folder_id, const char *name);
struct ckpt_tree_entry *ckpt_tree_find_folder(const struct ckpt_tree_view *v, const char *id);
// The folder with this id, open; -ENOENT.
int ckpt_tree_open_folder(struct ckpt_store *s, const struct ckpt_tree_view *v, const char *id);

void ckpt_tree_file(const struct stat *st, struct ckpt_tree_file *ret_file);
bool ckpt_tree_file_is(const struct ckpt_tree_file *file, const struct stat *st);
