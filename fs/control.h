// The control directory `.ckptfs` at the root: what the mount says of itself as plain files, the sessions that a dead
// daemon left, the trash, and the policy:
//
//   policy.json             read and written (control_file.h)
//   should_save/N           whether step N is to be saved: "1 permanent fixed_interval" or "0"; in no listing, nor is
//   should_save/FOLDER/N    the same of the run whose steps are in that folder, a name in which is no number
//   conflicts/STEP/PATH     the conflict copies in steps (control_conflicts.c)
//   STEP/.arrays            the arrays of a step, which is no part of this directory, nor is
//   STEP/.views             views of them (both control_arrays.c)
//   preempted               is there when a preemption is known; whoever makes it or removes it says so
//
// The files say what was true when they were opened. Threads: any. Opening may walk the disk (status), and wait for a program of
// the user's (should_save).
#pragma once

#include "fs/control_piece.h"
#include "fs/fs.h"

#include <limits.h>

struct ckpt_file;

#define CONTROL_POLICY_NAME "policy.json"
#define CONTROL_PREEMPTED_NAME "preempted"

// A name in the control directory (or in a folder of it) becomes a node with one more lookup. -ENOENT.
int control_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node);
// The control directory itself, looked up in the root.
int control_dir(struct ckpt_fs *fs, struct node **ret_node);
// CONTROL_PREEMPTED, as who makes it or removes it: with one more lookup.
int control_preempted(struct ckpt_fs *fs, struct node *dir, struct node **ret_node);
// Of a CONTROL_COPY: of a directory on the way to one.
int control_attr(struct node *n, struct stat *ret_attr, double *ret_timeout);
// The path of n below the directory top, and of name in it (NULL: itself). -ESTALE, -ENAMETOOLONG.
int control_path(struct ckpt_fs *fs, struct node *n, const char *name, enum control_piece top, char ret_path[PATH_MAX]);
// What a control file says now, malloc'ed. -EIO where it cannot be said, which the error log explains.
int control_text(struct ckpt_fs *fs, struct node *n, char **ret_text, size_t *ret_len);
// The names in a control directory, one after the other: 0 past the last. type is S_IFDIR or S_IFREG.
typedef int control_name_fn(void *arg, const char *name, mode_t type, uint64_t number);
int control_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg);

// --- Below conflicts/ (control_conflicts.c) -------------------------------------------------------------------------------
//
// Nothing there can be written. All of it may block on the disk; _each() may read the manifest of every step, and the whole plain
// tree.

// The attributes that a file of a step had when it was opened, for fstat(2) once its version is not there any more. The node is in use.
int control_remember_opened(struct node *n, const struct stat *attr); // 0, -ENOMEM
bool control_opened_attr(struct node *n, struct stat *ret_attr);      // false: nobody has it open

// As control_lookup() and control_each(), in a directory that is CONTROL_CONFLICTS or CONTROL_COPY.
int control_conflicts_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node);
int control_conflicts_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg);
// Of a CONTROL_COPY. -ENOENT, -ESTALE: it is not there any more, and was not opened.
int control_conflicts_attr(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr);
// The bytes of a file whose node is in use (node_use); the caller closes it. -EACCES; -ESTALE it is not there any more; and the
// errors of ckpt_file_open().
int control_conflicts_open(struct ckpt_fs *fs, struct node *n, struct ckpt_file **ret_file);
int control_conflicts_readlink(struct ckpt_fs *fs, struct node *n, char ret_target[PATH_MAX]);

// --- STEP/.arrays and STEP/.views (control_arrays.c) ----------------------------------------------------------------------
//
// Nothing there can be written: EROFS. All of it but _ready() and _stands() may block on the disk or the store, on headers that nobody has
// read yet; it never holds a lock of the mount over that.

#define CONTROL_ARRAYS_NAME ".arrays"
#define CONTROL_VIEWS_NAME ".views"

static inline bool control_is_array(const struct node *n)
{
	return n->kind == NODE_CONTROL && n->control >= CONTROL_ARRAYS && n->control <= CONTROL_VIEW;
}

// The error for a change of n, which is no file of a tree.
static inline int control_refusal(const struct node *n)
{
	return control_is_array(n) ? -EROFS : -EPERM;
}

// .arrays or .views.
bool control_arrays_names(const char *name);
// True: a name in a directory is that of a step's arrays or views, and no entry of the step.
bool control_arrays_stands(struct ckpt_fs *fs, struct node *dir, const char *name);
// True: a question about n, or about this name in it, needs no reading and looks through no array. In the directory of a step: one about
// its arrays.
bool control_arrays_ready(struct ckpt_fs *fs, struct node *n, const char *name);
// .arrays or .views in the directory of a step, with one more lookup. -ENOENT: the step is not committed.
int control_arrays_dir(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node);
// As control_lookup(), control_each() and control_attr().
int control_arrays_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node);
int control_arrays_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg);
int control_arrays_attr(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr);
// A file whose node is in use (node_use); the caller closes it. -EACCES; -ESTALE: the step has another version by now.
struct ckpt_array_file;
int control_arrays_open(struct ckpt_fs *fs, struct node *n, struct ckpt_array_file **ret_file);
// Answers a READ.
struct handle;
void control_arrays_read(fuse_req_t req, struct handle *h, size_t size, off_t offset);
