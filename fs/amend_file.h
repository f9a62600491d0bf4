// Shared by the files of amend: fs/amend.c (files from creation on), fs/amend_close.c (closes, and writes after one),
// fs/amend_name.c (names) and fs/amend_out.c (moves out of a step).
#pragma once

#include "core/base/lock.h"
#include "core/save/amend.h"
#include "core/step/amending.h"
#include "fs/amend.h"
#include "fs/node.h"

// Guarded by the lock of the node's use, but for the handle's own.
struct amend_file {
	struct ckpt_lock publishing; // one at a time
	bool on;                     // from its creation to the last release (atomic)
	unsigned begins;             // opens under way, which the last release of others must not take it from
	unsigned changes;            // of its attributes under way, before which it is not published
	bool published;              // as it is; who writes now writes into a copy (atomic)
	bool changed;                // made or written since its close last completed something, or was to
	unsigned handles;            // that may still write
	unsigned closed; // of them, those that had a close and no release yet, which the kernel sends when it likes
	char again[40];  // that copy, in the session's directory, until it is published, too; else ""
	struct amend_handle *first;
};

struct amend_handle {
	struct amend_handle *next;
	struct handle *h;
	pid_t opener; // process, 0 not known
	bool dead;    // its process was killed
	bool copies;  // it is a program that copies trees
	bool flushed; // some process has closed a descriptor of it
	bool closed;  // counted by the file
	int result;   // of the last close that counted
};

static inline struct amend_file *amend_of(const struct node *n)
{
	struct node_use *use = node_used(n);

	struct amend_file *f = use ? __atomic_load_n(&use->amend, __ATOMIC_ACQUIRE) : NULL;

	return f && __atomic_load_n(&f->on, __ATOMIC_ACQUIRE) ? f : NULL;
}

static inline bool is_published(const struct amend_file *f)
{
	return __atomic_load_n(&f->published, __ATOMIC_ACQUIRE);
}

static inline void set_published(struct amend_file *f, bool published)
{
	__atomic_store_n(&f->published, published, __ATOMIC_RELEASE);
}

// In a committed step what is neither pending nor a copy is what the step has, whoever committed it. Under the lock of its use.
void amend_see_commit_locked(struct ckpt_fs *fs, struct node *n);
void amend_show_change(struct ckpt_fs *fs, struct node *dir);
// Answers a call that made c->name in c->node, or failed to with rc.
void amend_reply_made(struct call *c, int rc);

// --- Names: fs/amend_name.c ---------------------------------------------------------------------------------------------

// Whether the step of the call takes additions as it is: 0, CALL_REOPENS, -EROFS.
int amend_may(const struct call *c);
// The path in the step of a name in this directory.
int amend_path_of(struct ckpt_fs *fs, struct node *dir, const char *name, struct place *p, char *buf, size_t cap);
// Whether a client may make this name in dir, which is at p, and nothing has it. ret_raw: where what it is for is to stand.
int amend_check_place(const struct call *c, struct node *dir, const struct place *p, const char *name, const char *path,
		      char ret_raw[CKPT_AMENDING_RAW_MAX]);
// Gives the client the new raw file, with the mode of the call and, in a directory with setgid, the group of that.
int amend_give(struct call *c, const struct place *p, int dirfd, const char *raw);

// The two ends of a rename: the directories, and the names in them.
struct amend_ends {
	struct place from, to;
	char path[sizeof(((struct place *)0)->buf)], to_path[sizeof(((struct place *)0)->buf)];
};
// The entry at a path of the step, with a reference to its manifest; -ENOENT, also where it is marked as removed.
int amend_find_entry(struct ckpt_step *step, const char *path, struct ckpt_manifest **ret_m, struct ckpt_entry *ret);
// That of a file that leaves its step: -EXDEV a directory, or a file that is not closed yet.
int amend_find_outgoing(struct call *c, const struct amend_ends *e, struct ckpt_manifest **ret_m,
			struct ckpt_entry *ret);
// The file's name in its step is marked as removed, as unlink(2) does it.
int amend_mark_removed(struct call *c, const struct place *dir);

// --- Moves out: fs/amend_out.c --------------------------------------------------------------------------------------------

int amend_move_out(struct call *c, const struct amend_ends *e); // or CALL_REOPENS
