// What the files of drafts share: fs/draft.c (the table, names), fs/draft_open.c (begin, join) and fs/draft_end.c (closes,
// publication, the watch).
#pragma once

#include "core/base/lock.h"
#include "fs/draft.h"

struct invitation {
	struct invitation *next;
	pid_t tid;
	int64_t at_ns;
	bool looked; // the name was looked up again
};

struct draft {
	struct ckpt_draft disk;
	int fd; // reads the file
	bool tracker;

	// Guarded by the table's lock; dir, name and node change only with names_lock held for writing, too.
	struct draft *next;
	int refs;
	struct node *dir; // a reference; NULL: over
	char name[CKPT_NAME_MAX + 1];
	struct node *node;      // a reference; NULL: nobody has looked it up yet
	struct handle *writers; // by draft_next
	unsigned joining;       // opens for writing under way
	struct invitation *invited;
	bool replaces;      // there is an old file
	bool opened;        // somebody has had it open
	bool publishing;    // announced on changed
	bool killed;        // a writer was
	bool told;          // that it was not published is in errors
	pid_t closer;       // process that closed it last, 0 not known
	bool copied;        // somebody who did so is a program that copies trees
	bool decided;       // whether it completes its folder
	bool short_of_room; // a write of it was refused
	int lost;           // what the disk said of bytes that it has not taken
	int64_t written_ns; // trackers: when something was first seen in it, monotonic; 0: not yet
};

struct drafts {
	struct ckpt_lock lock;
	pthread_cond_t changed;
	struct draft *first;
	unsigned count; // atomic too
	bool watching, stop;
};

static inline bool drafts_any(struct ckpt_fs *fs)
{
	return __atomic_load_n(&fs->drafts->count, __ATOMIC_RELAXED);
}

// With names_lock held for writing. False: another thread has put one there under this name.
bool drafts_insert(struct ckpt_fs *fs, struct draft *d);
// Where the thread's is or would be, and without it; under the table's lock.
struct invitation **draft_invitation_locked(struct draft *d, pid_t tid);
void draft_uninvite_locked(struct drafts *t, struct draft *d, pid_t tid);
// Out of the table and without its name; false if it was over already.
bool draft_end(struct ckpt_fs *fs, struct draft *d);
// Under names_lock for writing: out of the table, and its node is an ordinary one; drop_name: without this name.
void draft_end_locked(struct ckpt_fs *fs, struct draft *d, bool drop_name);
// Starts the watch if it does not run: for trackers, and for invitations that nobody followed.
void drafts_watch(struct ckpt_fs *fs);
// Publishes or leaves over what nobody writes any more: after an open that failed, too. Blocks. What close(2) is to say.
int draft_settle(struct ckpt_fs *fs, struct draft *d, bool sure);
// "folder/name", for people; malloc'ed, NULL without memory.
char *draft_path(struct ckpt_fs *fs, struct draft *d);
