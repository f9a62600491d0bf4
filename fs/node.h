// Nodes: what the kernel knows by a nodeid. A node is a file, directory or symlink of the plain tree or of a step, a
// marker, or a piece of the control directory.
//
// A tree is the plain tree, or the files of one step; the node at its top knows which. A node finds its place by
// climbing along its names, so a commit, a rename or a graft changes one node and not those below. No descriptor is
// kept per node, only per open file.
//
// Identity: nodes of live files (plain, staged, or committed by this process) are found by their file's number, so hard
// links share a node; nodes of steps that were read from the store are found by step and number.
// Lifetime: a node lives while the kernel knows it (lookup count), something refers to it (references: open handles,
// names below it, calls under way), or both.
// Threads: any. names_lock is held for reading while a path is built and used, and for writing while names change.
#pragma once

#include "core/base/lock.h"
#include "core/step/step.h"

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct ckpt_file;
struct ckpt_fs;
struct draft;
struct marker;
struct amend_file;

enum node_kind {
	NODE_FILES, // in a tree
	NODE_MARKER,
	NODE_CONTROL,
	NODE_LATEST, // the link in a folder of steps (latest.h)
};

enum node_io {
	IO_NONE,        // not open
	IO_PASSTHROUGH, // the kernel reads and writes the backing file
	IO_CACHED,      // through the daemon and the page cache
};

struct node_name {
	struct node_name *next;
	struct node *parent; // a reference
	char text[];
};

// What is known of a node once it was open.
struct node_use {
	struct ckpt_lock lock; // guards what follows, and a marker
	enum node_io io;
	unsigned opens, write_opens;
	unsigned closed_writers; // of them, those of drafts that their openers have closed (draft.h); atomic
	unsigned
		ending_writers; // and those of plain files of which a descriptor was closed: the release may be under way; atomic
	int fd;                 // reads the backing file while opens > 0, else -1 (handle_backing)
	int backing_id;           // IO_PASSTHROUGH
	struct ckpt_file *packed; // the same where there is no such file: its bytes are in packs; atomic
	int nameless;             // O_PATH, once it has lost its last name (node_keep_locked); else -1
	bool written;             // since fd was opened
	struct handle *unwritten; // those of its twin that may write it and have not (unwritten.h)
	pid_t saved_by; // the process that had it open for writing in a staged step last, and closed it then, monotonic
	int64_t saved_ns;
	struct amend_file *amend; // it is being added to a committed step (amend.h), or was; atomic
	uint32_t
		listed_version; // committed directories: of the listing that the kernel keeps, once there was more than one
	bool cache_filled;      // the kernel was given all of a small committed file once (atomic)
	unsigned lost_writes;                // how often an fsync said that something was not written
	int lost_write_error;                // what it said last
	bool folder_known;                   // plain directories: folder is what its disk says
	char folder[CKPT_FOLDER_ID_LEN + 1]; // "": it holds no steps
	uint64_t latest_removed;             // plain directories: up to this commit `latest` is removed (latest.h)
};

struct node {
	struct node *hash_next;
	uint64_t space; // identity, with number; guarded by the table
	_Atomic uint64_t
		number; // the st_ino too, but for shown; it changes once, when a twin becomes the file of its copy
	uint64_t
		file; // the number of the file behind it where that is another: a shared one (core/save/share.h); else 0 (atomic)
	// The number by which clients know it until its last release: that of before its first write gave it a copy; else 0 (atomic).
	uint64_t shown;
	uint64_t generation;
	uint64_t lookups; // the kernel's count, guarded by the table
	int refs;         // ours, guarded by the table
	enum node_kind kind;
	mode_t type;             // S_IFREG, S_IFDIR, S_IFLNK
	struct node_name *names; // guarded by names_lock
	struct ckpt_step *step;  // the top of a step: a reference, guarded by names_lock; else NULL (node_is_top)
	uint32_t entry;          // index + 1 in the step's manifest; 0 not looked up yet (atomic)
	struct node *twin; // a reference: until it has names of its own it has those of that one (unwritten.h); atomic
	bool given;        // a twin whose handles have the file of the copy: it gets no more of them (unwritten.c)
	struct draft *draft; // new content that is not published yet (draft.h), guarded by names_lock; else NULL
	int control;         // NODE_CONTROL: which piece (control_piece.h)
	bool copied;         // its name is that of its copy (copy_up.h); atomic
	bool beside;         // it stands beside a step, or below such a directory (beside.h); atomic
	union {
		struct marker *marker; // NODE_MARKER: what was written last
		char *target;          // NODE_LATEST, set with its first lookup
		struct stat *
			opened; // a file below .ckptfs/conflicts or STEP/.arrays, as of its last open; guarded by the lock of use
	};
	struct node_use *use; // NULL while it was never open, as most are that are only looked at (node_use, node_used)
};

struct node_table *node_table_new(void); // NULL: no memory
void node_table_free(struct node_table *t);

struct node *node_of(struct ckpt_fs *fs, fuse_ino_t ino);
fuse_ino_t node_id(struct ckpt_fs *fs, const struct node *n);
// Whether it is the top of a step just now; without a lock.
static inline bool node_is_top(const struct node *n)
{
	return __atomic_load_n(&n->step, __ATOMIC_RELAXED) != NULL;
}
struct node *node_root(struct ckpt_fs *fs);
// Whether stx is of the file that the node is, which may have lost its name to another. Directories are who has the name.
bool node_is_file(const struct node *n, const struct statx *stx);

// The node of this identity, made when missing, with one more lookup count and the name (parent, name). step is set on
// the top of a step. -ENOMEM.
int node_get(struct ckpt_fs *fs, uint64_t space, uint64_t number, mode_t type, struct node *parent, const char *name,
	     struct ckpt_step *step, struct node **ret_node);
// A node of our own making: markers, control pieces and `latest`, found by (space, number) like all.
#define SPACE_LIVE UINT64_C(0)
#define SPACE_CONTROL UINT64_MAX
#define SPACE_MARKER (UINT64_MAX - 1)
#define SPACE_LATEST (UINT64_MAX - 2)
#define SPACE_TWIN (UINT64_MAX - 3)
#define SPACE_CONFLICTS (UINT64_MAX - 4) // control pieces, too (control_conflicts.c)
#define SPACE_ARRAYS (UINT64_MAX - 5)    // the same (control_arrays.c)
#define SPACE_ARRAY (UINT64_MAX - 6)
#define SPACE_VIEWS (UINT64_MAX - 7)
#define SPACE_VIEW (UINT64_MAX - 8)
#define SPACE_OURS_MIN SPACE_VIEW // the numbers of ours begin here; below are those of steps
// NULL: the plain tree. Under names_lock, where it must still be true when a node is made by it.
uint64_t node_space(const struct ckpt_step *step);

// The twin of a file, made where it is missing, with one more lookup count. -ESTALE: the file has lost this name. -ENOMEM.
int node_get_twin(struct ckpt_fs *fs, struct node *n, const struct node *parent, const char *name,
		  struct node **ret_twin);
// The twin has the name of its file by now. It is a twin until its handles have that file, too.
bool node_is_adopted(struct ckpt_fs *fs, const struct node *twin);

// n loses this name to a file with this number (its own, if it can be written in place), which n's twin is from now on. A reference
// of that; NULL: n has no twin, or no such name. Under names_write_lock.
struct node *node_adopt_twin_locked(struct ckpt_fs *fs, struct node *n, uint64_t number, struct node *parent,
				    const char *name);
// It is nobody's twin any more.
void node_end_twin(struct ckpt_fs *fs, struct node *twin);
static inline struct node *node_twin(const struct node *n)
{
	return __atomic_load_n(&n->twin, __ATOMIC_ACQUIRE);
}

static inline uint64_t node_ino(const struct node *n) // the st_ino
{
	uint64_t shown = __atomic_load_n(&n->shown, __ATOMIC_RELAXED);

	return shown ? shown : n->number;
}

// Makes n->use where it is missing. -ENOMEM. It stays as long as the node: who has a handle need not ask.
int node_use(struct node *n);
static inline struct node_use *node_used(const struct node *n)
{
	return __atomic_load_n(&n->use, __ATOMIC_ACQUIRE);
}

void node_ref(struct ckpt_fs *fs, struct node *n);
void node_unref(struct ckpt_fs *fs, struct node *n);
void node_forget(struct ckpt_fs *fs, struct node *n, uint64_t lookups);
size_t node_count(struct ckpt_fs *fs);

// The same under names_lock for writing; and: only if the node and this name of it are known already (names_lock held
// either way), else NULL.
int node_get_locked(struct ckpt_fs *fs, uint64_t space, uint64_t number, mode_t type, struct node *parent,
		    const char *name, struct ckpt_step *step, struct node **ret_node);
struct node *node_get_known(struct ckpt_fs *fs, uint64_t space, uint64_t number, mode_t type, const struct node *parent,
			    const char *name);
// A directory that the kernel has removed is dead to it, whatever becomes of it: one that comes back is another node from now on.
void node_retire(struct ckpt_fs *fs, uint64_t space, uint64_t number);
// The node of this identity with a reference (node_unref), or NULL.
struct node *node_find(struct ckpt_fs *fs, uint64_t space, uint64_t number);

// --- Names and places -----------------------------------------------------------------------------------------------

void names_read_lock(struct ckpt_fs *fs);
void names_write_lock(struct ckpt_fs *fs);
void names_unlock(struct ckpt_fs *fs);
// Under names_lock for writing.
int name_add_locked(struct ckpt_fs *fs, struct node *n, struct node *parent, const char *name);
void name_drop_locked(struct ckpt_fs *fs, struct node *n, const struct node *parent, const char *name);
// What has lost its last name is still somebody's working directory, or is about to be opened by who has just looked it up.
// fd (O_PATH, consumed; -1: none) leads node_open to it, and keeps the disk from giving its number away, as long as the
// kernel knows the node. For files that have no other link: what has none can never come under a name again, or into a step.
void node_keep_locked(struct node *n, int fd);

// Where a node is. For a step, path is inside it; "" is its top. The step is a reference.
struct place {
	struct ckpt_step *step; // NULL: the plain tree
	char *path;             // points into buf
	char buf[4096];
};
// -ESTALE: it has no name any more. -ENAMETOOLONG. Free with place_done().
int place_of(struct ckpt_fs *fs, struct node *n, struct place *ret_place);
bool node_has_place(struct ckpt_fs *fs, struct node *n); // no name on its way was taken from it
int place_of_locked(struct ckpt_fs *fs, struct node *n, struct place *ret_place); // names_lock held
void place_done(struct place *p);
// The step that a node is in (a reference), NULL for the plain tree and for nodes without a place.
struct ckpt_step *node_step(struct ckpt_fs *fs, struct node *n);
struct ckpt_step *node_step_locked(struct ckpt_fs *fs, struct node *n); // names_lock held; no reference

// The directory of a step in the mount is of another one now: from is committed and to has reopened it, or the other way
// round; or both are committed, and to is an edit of from, by another node.
void node_renew(struct ckpt_fs *fs, struct ckpt_step *from, struct ckpt_step *to);

// The nodes that are open and have no descriptor behind them, which small committed files may do without: references in a
// malloc'ed array.
int node_list_unbacked(struct ckpt_fs *fs, struct node ***ret_nodes, size_t *ret_count);

// Whether some file below the directory is open for writing, but for those that pass_over (NULL: none) is true of. It must not block.
typedef bool node_name_fn(void *arg, const struct node_name *name);
bool node_any_written_below(struct ckpt_fs *fs, const struct node *dir, node_name_fn *pass_over, void *arg);

// Opens the node's file in a live tree (plain, staged, left), or a committed directory's raw one; or what is kept of it
// without a name. -ESTALE, -errno.
int node_open(struct ckpt_fs *fs, struct node *n, int flags);
// The same for the place of a node that was located before.
int place_open(struct ckpt_fs *fs, const struct place *p, int flags);
