// The plain tree: the folders and files beside the steps, as the log of a remote says they are.
//
// Acts on it (MKDIR, FILE, REMOVE, MOVE: act.h) stand in the remote's log alone, and come here with its entries, by PULL (shared.h). In a
// node's own log they are void. The state has of the tree exactly what the remote's log says up to the entry that was pulled last. It does
// not know what this node has otherwise in tree/: who carries the tree out compares with the disk.
//
// A folder is known by its id, so that all in it moves with it. A file or symlink is known by its place: the id of its folder and its name.
// At most one entry has a place. A listed step may have the name of one: two nodes have made them, and who carries the tree out decides.
//
// An entry has the version of the act that made it, moved it, or gave it its content: the SEQ of the remote's entry << 16 | the index of
// the operation in that entry, from 0. No two acts make the same version. An act names the version that it replaces, and is void where
// another one is there:
//   MKDIR   the id is new, the folder that it is in is there, its place is free
//   FILE    its folder is there; at its place is a file or link of that version, or nothing
//   REMOVE  the entry has that version; a folder has no entry in it, and no step that the remote's log lists
//   MOVE    the folder has that version; the new place is free, in a folder that is there, and not below itself
//
// Contents stay in the log of this node, in the PULL that brought them, or in the snapshot to which it has jumped (jump.h): neither is
// trimmed then. ckpt_journal_plain() reads one.
//
// Ownership: the state owns what it returns; that is valid up to the next apply. Threads: the caller has a lock. Nothing blocks.
#pragma once

#include "core/base/hash.h"
#include "core/state/state.h"

struct ckpt_plain {
	char folder_id[CKPT_FOLDER_ID_LEN + 1]; // it is in; "": the root
	char id[CKPT_FOLDER_ID_LEN + 1];        // of a folder; "": it is a file or a symlink
	const char *name;
	bool link, large;
	uint32_t mode; // permissions
	uint32_t uid, gid;
	int64_t mtime_ns; // 0 of a folder
	uint64_t version;
	uint32_t node; // that put it, as an index of ckpt_state_node()
	// Of a symlink: its target; of a large file: a ckpt_plain_large (act.h); zeros of a folder and of an empty file.
	struct ckpt_span content;
	uint64_t size;                   // bytes of the file
	uint8_t sha256[CKPT_SHA256_LEN]; // of these, so that equal contents are known unread; zeros of a folder

	// Of core/state.
	bool rooted;  // while a snapshot is checked: it is known to be below the root
	int children; // entries in the folder
	size_t index; // in the list of all
	struct ckpt_plain *next_of_place, *next_of_id;
};

// NULL: none.
const struct ckpt_plain *ckpt_state_plain(const struct ckpt_state *state, const char *folder_id, const char *name);
bool ckpt_state_plain_is_empty(const struct ckpt_state *state, const struct ckpt_plain *folder);  // of steps, too
const struct ckpt_plain *ckpt_state_plain_folder(const struct ckpt_state *state, const char *id); // not the root
// "FOLDER/NAME" of what is, or was, in this folder, malloc'ed. NULL: no memory.
char *ckpt_state_plain_path(const struct ckpt_state *state, const char *folder_id, const char *name);
// All entries, in no order; borrowed. NULL, 0: there are none.
struct ckpt_plain *const *ckpt_state_plains(const struct ckpt_state *state, size_t *ret_count);

// --- For core/state -----------------------------------------------------------------------------------------------------

struct ckpt_plain *ckpt_plain_new(const struct ckpt_plain *of,
				  const char *name); // a copy with that name; NULL: no memory
// These bytes, as many as the span of its content, are that.
bool ckpt_plain_is_content(const struct ckpt_plain *e, const void *data);
// Into its place, which is free, in a folder that may come later. 0; -ENOMEM: it is the caller's.
int ckpt_plain_insert(struct ckpt_state *s, struct ckpt_plain *e);
// Once all of a snapshot are inserted. -EBADMSG: one is in no folder, or in a circle of folders.
int ckpt_plains_check(struct ckpt_state *s);
