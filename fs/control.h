// The control directory `.ckptfs` at the root: what the mount says of itself as plain files, the sessions that a dead
// daemon left, the trash, and the policy:
//
//   policy.json             read and written (control_file.h)
//   should_save/N           whether step N is to be saved: "1 permanent fixed_interval" or "0"; in no listing, nor is
//   should_save/FOLDER/N    the same of the run whose steps are in that folder, a name in which is no number
//   preempted               is there when a preemption is known; whoever makes it or removes it says so
//
// The files say what was true when they were opened. Threads: any. Opening may walk the disk (status), and wait for a program of
// the user's (should_save).
#pragma once

#include "fs/fs.h"

#define CONTROL_POLICY_NAME "policy.json"
#define CONTROL_PREEMPTED_NAME "preempted"

enum control_piece {
	CONTROL_NONE,
	CONTROL_DIR,
	CONTROL_STATUS,
	CONTROL_STATUS_JSON,
	CONTROL_ERRORS,
	CONTROL_CONFIG,
	CONTROL_METRICS,
	CONTROL_STAGED,
	CONTROL_TRASH,
	CONTROL_POLICY,
	CONTROL_PREEMPTED,
	CONTROL_SHOULD_SAVE,
	CONTROL_PIECES,
	CONTROL_ANSWER = CONTROL_PIECES, // below should_save: nodes with this number and all above
};

// A name in the control directory (or in a folder of it) becomes a node with one more lookup. -ENOENT.
int control_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node);
// The control directory itself, looked up in the root.
int control_dir(struct ckpt_fs *fs, struct node **ret_node);
// CONTROL_PREEMPTED, as who makes it or removes it: with one more lookup.
int control_preempted(struct ckpt_fs *fs, struct node *dir, struct node **ret_node);
int control_attr(struct node *n, struct stat *ret_attr, double *ret_timeout);
// What a control file says now, malloc'ed. -EIO where it cannot be said, which the error log explains.
int control_text(struct ckpt_fs *fs, struct node *n, char **ret_text, size_t *ret_len);
// The names in a control directory, one after the other: 0 past the last. type is S_IFDIR or S_IFREG.
typedef int control_name_fn(void *arg, const char *name, mode_t type, uint64_t number);
int control_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg);
