// A store on a local directory: its identity, its folders, its lock, and the tables of steps that live in it.
//
// Calling sequence: ckpt_store_init() once in the life of a store; ckpt_store_open(), calls, ckpt_store_close().
// Open for writing (the mount, verbs that change something): takes the store's lock, finishes what a crash left, moves
// unfinished sessions to the left ones. Open for reading: takes no lock, changes nothing, works beside a mount.
// Ownership: the store owns its steps, index and objects. Threads: after open, any. Open and close may block on disk.
#pragma once

#include "core/base/keys.h"
#include "core/base/lock.h"
#include "core/index/index.h"
#include "core/jobs/jobs.h"
#include "core/objects/objects.h"
#include "core/state/journal.h"
#include "core/state/record_copy.h"
#include "core/step/errlog.h"
#include "core/step/settings.h"
#include "core/step/step.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define CKPT_STORE_FORMAT 1

struct ckpt_decided;
struct ckpt_tree_change;

// Of modules above, which the store knows nothing else of.
struct ckpt_store_calls {
	// open.c's.
	void (*wake_behind)(struct ckpt_store *s);
	void (*wake_looker)(struct ckpt_store *s); // there is a staged step
	bool (*was_temporary)(struct ckpt_step *step, const char *folder_id, const char *name); // should_save.h
	// Set by a mount before its first commit: brings what clients have changed through mappings of this file, which the
	// kernel may still hold, to the file. Blocks; called without locks, until no commit runs any more.
	void (*write_back)(void *arg, uint64_t ino);
	void *write_back_arg;
	// Set by a mount before its first request: what clients know as `from` is `to` from now on, or again (reopen.h). Called
	// without locks.
	void (*renew)(void *arg, struct ckpt_step *from, struct ckpt_step *to);
	void *renew_arg;
	// The same of a step that was deleted although nobody asked for it, and of an unfinished one that has lost its name.
	void (*gone)(void *arg, struct ckpt_step *step);
	void *gone_arg;
	// Another node has changed files of it. The manifests of before and of now are borrowed.
	void (*changed)(void *arg, struct ckpt_step *step, struct ckpt_manifest *was, struct ckpt_manifest *is);
	void *changed_arg;
	// Set by a remote: before the steps follow the log (follow.h), and after, whoever makes them. Called under acts_lock. -ENOMEM: they do
	// not follow now.
	int (*before_follow)(void *arg);
	void (*after_follow)(void *arg);
	void *follow_arg;
	// Set by a remote whose thread runs: reads all that its log has now. Blocks, for some seconds at most; called without locks. False: it could
	// not. NULL: there is no such thread.
	bool (*read_news)(void *arg);
	void *read_news_arg;
	// Does a change of the plain tree that is another node's, and tells the kernel. -EBUSY: the file is open for writing; else as of
	// ckpt_tree_change(), which is called for it. NULL: nobody uses the tree.
	int (*change_tree)(void *arg, const struct ckpt_tree_change *change);
	void *change_tree_arg;
	// Whether a plain file is open for writing. NULL: none is.
	bool (*is_written)(void *arg, int dirfd, const char *name);
	void *is_written_arg;
	// And of one that was completed by quiet: it is listed now.
	void (*listed)(void *arg, struct ckpt_step *step);
	void *listed_arg;
	// A staged directory shows to be no step (looker.h), and becomes a plain folder if nothing in it has changed since touched_ns,
	// monotonic. no_arrays: it is staged again by the first array file that is made in it. 0; -EAGAIN: something has changed; -errno.
	// Called without locks.
	int (*unstage)(void *arg, struct ckpt_step *step, int64_t touched_ns, bool no_arrays);
	void *unstage_arg;
	// And of each that was committed; with its lock held, so that it must not block.
	void (*committed)(void *arg, struct ckpt_step *step);
	void *committed_arg;
	// A copy of what was decided of steps (decided.h), which the store itself has where no mount decides.
	void (*decided)(void *arg, struct ckpt_decided *ret);
	void *decided_arg;
};

struct ckpt_store {
	// Set at open, then read-only.
	char id[37];
	char boot_id[37]; // of this machine, since its start; "" unknown
	char *path;       // absolute
	int64_t created_ns;
	bool writable;
	bool multigrain; // ctime tells any two changes apart, unless its nanoseconds are 0
	int dirfd, sessions_fd, records_fd, tree_fd, trash_fd, lock_fd;
	struct ckpt_settings settings; // in effect
	struct ckpt_objects *objects;
	struct ckpt_journal *journal; // what the log of the store says
	bool behind; // the table of steps has not followed all of it yet; guarded by acts_lock, or by refresh_lock
	struct ckpt_index *index; // NULL: there is none that can be used, and the disk is full or we only read
	struct ckpt_errlog *errlog;
	// Saves of it: steps that are being committed, and handles open for writing in staged ones.
	struct ckpt_jobs *jobs;

	// Opened for reading: held over a whole look at the log.
	struct ckpt_lock refresh_lock;

	// Held over a whole act on committed steps (new metadata, delete, undelete, move, expire): each finds the names and
	// versions that the one before has left.
	struct ckpt_lock acts_lock;

	// Neither this nor a step's lock is held over I/O.
	struct ckpt_lock lock;
	struct ckpt_step_table *steps; // guarded by lock
	struct {
		int running; // threads of commits and of reopened steps; guarded by lock, announced on ended
		pthread_cond_t ended;
		bool closing; // atomic: those that watch a step end
	} threads;
	struct ckpt_store_calls calls;
};

// Makes an empty store in a directory that is absent or empty. -EEXIST: there is one already; -ENOTEMPTY.
int ckpt_store_init(const char *path);
// The same with settings: what was given of them (core/step/settings.h) the store says from then on; and as a node's part of a remote
// (NULL: of none), whose identity it takes.
struct ckpt_store_of {
	json_t *identity, *remote; // the remote's store.json; where the remote is (core/remote/remote.h)
};
int ckpt_store_init_with(const char *path, const struct ckpt_settings *settings, const struct ckpt_store_of *of);
// A new identity, the caller's; and what one says, checked: errors as of ckpt_store_open.
int ckpt_store_identity_new(json_t **ret_identity);
int ckpt_store_identity_check(const json_t *identity, char ret_id[CKPT_UUID_LEN + 1], int64_t *ret_created_ns);
// The settings that the store says, else the defaults, without opening it; errors as of ckpt_store_open.
int ckpt_store_settings(const char *path, struct ckpt_settings *ret_settings);
// Changes what the store says of a setting, in one durable act, beside a mount too, which learns of it when it is mounted
// again. value is one that the setting takes; NULL: its default again. Errors as of ckpt_store_open; -EROFS, -ENOSPC, ...
int ckpt_store_set(const char *path, const struct ckpt_setting *setting, const char *value);
// True if path looks like a store (has the identity file); says nothing of its health.
bool ckpt_store_probe(const char *path);

void ckpt_store_wake_behind(struct ckpt_store *s); // there may be something to seal or to cool

// Of the records of its steps, beside the log (record_copy.h).
static inline struct ckpt_record_copies ckpt_store_copies(const struct ckpt_store *s)
{
	return (struct ckpt_record_copies){s->journal, s->id, s->records_fd, s->sessions_fd};
}

// For open.c: the identity of the store in s->dirfd, with its id and time; the caller's. And the folders that a store has.
int ckpt_store_identity(struct ckpt_store *s, json_t **ret_identity);
int ckpt_store_make_folders(int dirfd);
// Looks whether the directory is still this store: 0; -ESTALE another one is there by now; errors of ckpt_store_open.
int ckpt_store_check_identity(const struct ckpt_store *s);

// The number under which a file of ours is known for good: from its inode and birth time, so that it needs no record
// and neither rename, remount nor reuse of the inode by the disk's filesystem changes or repeats it.
struct statx;
uint64_t ckpt_store_ino(const struct statx *stx);
#define CKPT_STATX_WANT (STATX_BASIC_STATS | STATX_BTIME)
