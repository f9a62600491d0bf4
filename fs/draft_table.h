// What the files of drafts share: fs/draft.c (the table, names), fs/draft_open.c (begin, join), fs/draft_end.c (closes,
// publication) and fs/draft_live.c (what becomes live before its last close; the watch).
#pragma once

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/save/draft.h"
#include "fs/fs.h"

struct invitation {
	struct invitation *next;
	pid_t tid;
	int64_t at_ns;
	bool looked; // the name was looked up again
};

// What was seen of a draft's file at a moment.
struct draft_seen {
	int64_t at_ns; // monotonic; 0: nothing yet
	off_t size;
	struct timespec mtime;
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
	struct ckpt_step *left; // a resting one (draft_left.c): its session, a reference
	struct ckpt_step
		*completed; // the step that its publication has completed, a reference, until its closer takes it
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
	struct draft_seen left_as;    // of one that was left over: as it was then
	struct draft_seen written;    // trackers: when something was first seen in it
	struct draft_seen last_write; // and as it was when it was looked at last
	struct draft_seen synced;     // file steps: at its writer's first fsync
	int64_t looked_ns;            // HDF5: when its superblock was looked at last, monotonic
	int64_t header_ns;            // closed with an array's header alone since, monotonic; 0: it is not
};

struct drafts {
	struct ckpt_lock lock;
	pthread_cond_t changed;
	struct draft *first;
	unsigned count; // atomic too
	bool watching, stop;
};

// Opens the file of a node that is a draft's; names_lock held.
static inline int draft_open_file(const struct draft *d, int flags)
{
	return ckpt_sys.open(d->disk.dirfd, d->disk.name, flags, 0);
}

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
// Starts the watch if it does not run: for drafts that draft_is_watched(), and for invitations that nobody followed.
bool draft_is_watched(const struct draft *d);
void drafts_watch(struct ckpt_fs *fs);
// Publishes or leaves over what nobody writes any more: after an open that failed, too. Blocks. What close(2) is to say.
int draft_settle(struct ckpt_fs *fs, struct draft *d, bool sure);
// "folder/name", for people; malloc'ed, NULL without memory.
char *draft_path(struct ckpt_fs *fs, struct draft *d);
// What it is called now.
void draft_name(struct ckpt_fs *fs, const struct draft *d, char ret_name[CKPT_NAME_MAX + 1]);

// --- Publication (draft_end.c) ----------------------------------------------------------------------------------------

// Under the table's lock: true if there is something to publish and it is ours to do it. Waits for who does it just now, and
// for who is invited: an open can be led elsewhere only once. Who does not come in time may have died. closed: it is
// nobody's to do any more once somebody writes it.
bool draft_claim_locked(struct drafts *t, struct draft *d, bool closed);
void draft_release_claim(struct drafts *t, struct draft *d);

struct draft_publication {
	bool check;       // the format must be whole
	bool durable;     // the name is on disk when it returns
	bool written_out; // the content is, already
};

// With the claim. Whether the name has the new content is then said by d->dir.
int draft_publish(struct ckpt_fs *fs, struct draft *d, const struct draft_publication *how);
// Once: why it was not published. rc 0: a writer was killed, if any was.
void draft_tell_failure(struct ckpt_fs *fs, struct draft *d, int rc);
bool draft_is_lost(int rc); // what the disk says of bytes that it has not taken
void draft_set_lost(struct ckpt_fs *fs, struct draft *d, int rc);

// --- Live (draft_live.c) ----------------------------------------------------------------------------------------------

// At a FLUSH by this thread: the tracker is the standard output or error of its process, so that it is a log.
bool draft_is_output(struct ckpt_fs *fs, struct handle *h, pid_t tid);
void draft_output_is_live(struct ckpt_fs *fs, struct draft *d);
// At a FLUSH of a process that goes on with another descriptor: live, if several processes do so.
void draft_shared_is_live(struct ckpt_fs *fs, struct draft *d);

// --- Left over (draft_left.c) -----------------------------------------------------------------------------------------

bool draft_is_resting_locked(const struct draft *d); // nobody writes it
// The left-over draft of this name, where the table has none and the tree has no file, resting from now on; with a reference.
struct draft *draft_find_left(struct ckpt_fs *fs, struct node *dir, const char *name);
struct draft *draft_check_left(struct ckpt_fs *fs, struct draft *d);
// It is about to be written, or published: -ESTALE, if its session is gone.
int draft_wake_locked(struct draft *d);
// What is over and unwanted: its session goes, too.
void draft_drop(struct ckpt_fs *fs, struct draft *d);
// Publishes a resting draft under its name. Blocks. -EBUSY: somebody writes it. -EINVAL: it is cut off, and would replace a file.
int draft_publish_left(struct ckpt_fs *fs, struct draft *d);
// It is over, and kept as a left-over session (draft_end.c).
void draft_leave(struct ckpt_fs *fs, struct draft *d);
