// The facts of a file that is being added to a committed step, or completes one (amend.h): by its node, from its creation until its
// last release. Others ask here what an open file is; the files of amend say it.
// Threads: any. Nothing blocks.
#pragma once

#include "core/base/lock.h"
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

// It is open and is not, or not any more, what the step has: its attributes are those of the open file.
bool amend_is_changing(const struct node *n);
// It is open, and what was written since it was published is in a copy, which has no name yet. The lock of its use is held.
bool amend_writes_copy(const struct node *n);
// It is open and was published as it is.
bool amend_is_published(const struct node *n);
// It was not added, and nobody who adds it has it open any more, but for a release that is under way.
bool amend_is_ending(const struct node *n);
bool amend_is_on(const struct node *n); // the file is, or was when it was opened, being added
void amend_end(struct node *n);         // with its last release
void amend_free(struct amend_file *f);  // with its node; NULL is fine
