// A step: from the mkdir of its directory, through staging and commit, to an immutable version that is listed.
//
// States, and what moves a step between them:
//   STAGED      ckpt_step_begin(), or a commit that failed
//   COMMITTING  ckpt_commit() (commit.h); changes of the tree wait meanwhile
//   COMMITTED   ckpt_commit() succeeded, or loaded from the store; its current version never changes
//   LEFT        found at open without a record: kept, reachable only as .ckptfs/staged/NAME
//   GONE        aborted, moved into another step, or lost; the object lives on while somebody holds it
//
// On disk a step's files are in sessions/<uuid>/, from the first write to the last read of the raw tier; only the record
// says whether they are a step.
//
// Ownership: reference-counted; the store's table holds one reference while the step has a name. Threads: the fields
// under "guarded" by step->lock; state changes are announced on step->changed. No I/O under the lock.
#pragma once

#include "core/manifest.h"
#include "core/record.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ckpt_store;

enum ckpt_step_state {
	CKPT_STEP_STAGED = 1,
	CKPT_STEP_COMMITTING,
	CKPT_STEP_COMMITTED,
	CKPT_STEP_LEFT,
	CKPT_STEP_GONE,
};

// A handle open for writing in a staged step, kept by whoever serves it; linked into its step.
struct ckpt_writer {
	struct ckpt_writer *next, *prev;
	struct ckpt_step *step;
	uint64_t ino;       // of the file
	pid_t pid;          // of the opener, 0 unknown
	bool flushed;       // somebody closed a descriptor of it; then the file was like this:
	uint64_t flush_bytes;
	int64_t flush_mtime_ns;
	int fd;             // reads the file; borrowed
};

struct ckpt_step {
	struct ckpt_store *store;
	int refs;                      // atomic
	struct ckpt_step *hash_next;   // guarded by store->lock, as are folder_id, name and key
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	char key[CKPT_STEP_KEY_MAX];
	char session[37];              // uuid of the raw files
	uint64_t incarnation;          // tells objects apart that had the same name
	bool ours;                     // staged by this process: file numbers are known to be our own

	pthread_mutex_t lock;
	pthread_cond_t changed;
	// Guarded by lock.
	enum ckpt_step_state state;
	int dirfd;                     // STAGED, COMMITTING, LEFT: sessions/<uuid>, opened before the first write; else -1
	int changers;                  // changes of the tree in progress
	int committers;                // threads in ckpt_commit for this step
	struct ckpt_writer *writers;
	uid_t uid;
	gid_t gid;
	pid_t pid;                     // who made it
	int64_t began_ns;
	int64_t progress_ns;           // of the running commit, monotonic
	int commit_result;             // of the last attempt
	struct ckpt_synced *synced;    // files that a client has fsynced, and those whose fsync failed
	struct ckpt_summary summary;   // COMMITTED
	struct ckpt_manifest *manifest; // COMMITTED, NULL when not loaded
	struct ckpt_step *lru_next, *lru_prev; // guarded by store->lock
};

// --- The table ------------------------------------------------------------------------------------------------------

// The step of this name in this folder, staged or committed, with a reference; NULL: none.
struct ckpt_step *ckpt_step_find(struct ckpt_store *s, const char *folder_id, const char *name);
struct ckpt_step *ckpt_step_ref(struct ckpt_step *step);
void ckpt_step_unref(struct ckpt_step *step); // NULL is fine
enum ckpt_step_state ckpt_step_state(struct ckpt_step *step);

// The steps of one folder (folder_id NULL: all) in these states (bits 1 << state), each with a reference, sorted by
// folder and name (memcmp). Free with ckpt_step_list_free.
int ckpt_step_list(struct ckpt_store *s, const char *folder_id, unsigned states, struct ckpt_step ***ret_steps,
		   size_t *ret_count);
void ckpt_step_list_free(struct ckpt_step **steps, size_t count);
// True when the folder has any step, staged ones too.
bool ckpt_step_any(struct ckpt_store *s, const char *folder_id);

// --- Staging --------------------------------------------------------------------------------------------------------

// A new staged step with an empty directory of this mode and owner: durable when it returns. -EEXIST: the name is taken.
int ckpt_step_begin(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid, gid_t gid,
		    pid_t pid, struct ckpt_step **ret_step);
// A staged step takes another name, still staged. -EEXIST; -EBUSY while committing.
int ckpt_step_rename(struct ckpt_step *step, const char *folder_id, const char *name);
// The session's directory becomes a directory of another staged step, under to_dirfd/to_name; the step is GONE.
int ckpt_step_graft(struct ckpt_step *step, struct ckpt_step *into, int to_dirfd, const char *to_name);
// Drops a staged or left step and its files; with `empty` only if it has none (-ENOTEMPTY). Open files stay readable.
int ckpt_step_abort(struct ckpt_step *step, bool empty);

// Changes of a staged tree happen between these two. enter: 0 staged; -EAGAIN a commit is running and wait is false,
// else it waits for its end (commit_timeout without progress: -EBUSY); -EROFS committed; -ESTALE gone.
int ckpt_step_enter(struct ckpt_step *step, bool wait);
void ckpt_step_leave(struct ckpt_step *step);

void ckpt_step_writer_add(struct ckpt_step *step, struct ckpt_writer *w);
void ckpt_step_writer_remove(struct ckpt_writer *w);
void ckpt_step_writer_flushed(struct ckpt_writer *w, uint64_t bytes, int64_t mtime_ns);

// A client's fsync of a file: error 0 remembers that its data is on disk as of this ctime, so that the commit need not
// write it again; an error makes commits fail until the file is written anew (truncated or replaced).
void ckpt_step_synced(struct ckpt_step *step, uint64_t ino, int64_t ctime_ns, int64_t began_ns, int error);
void ckpt_step_rewritten(struct ckpt_step *step, uint64_t ino);

// What `sessions` and `status` say of a staged or left step; walks its files.
struct ckpt_step_usage {
	uint64_t files, bytes;
	unsigned open_writers;
};
int ckpt_step_usage(struct ckpt_step *step, struct ckpt_step_usage *ret_usage);

// --- Committed ------------------------------------------------------------------------------------------------------

// The current version's manifest, with a reference: from memory, the index or the store. -EBADMSG damaged, -EIO, ...
int ckpt_step_manifest(struct ckpt_step *step, struct ckpt_manifest **ret_manifest);
// A raw file of a committed step for reading: openat of sessions/<uuid>/<path>, checked against its entry (-EIO when it
// is gone or is not what the manifest says).
int ckpt_step_open_raw(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int *ret_fd);
// The record of a version, whole. Free with ckpt_record_done.
int ckpt_step_record(struct ckpt_step *step, uint32_t version, struct ckpt_record *ret_record);

// --- For the other files of core --------------------------------------------------------------------------------------

struct ckpt_step_table *ckpt_step_table_new(void);
void ckpt_step_table_free(struct ckpt_step_table *t);
// Adds a step as read from the store, or replaces the summary of the one that is there by a newer version.
int ckpt_step_load(struct ckpt_store *s, const struct ckpt_summary *summary);
// Adds a left-over session. dirfd is taken on success.
int ckpt_step_load_left(struct ckpt_store *s, const char *session, int dirfd);
bool ckpt_step_is_clean(struct ckpt_step *step, uint64_t ino, int64_t ctime_ns);
bool ckpt_step_has_failed(struct ckpt_step *step, uint64_t ino);
// Under store->lock: moves the step to another name in the table.
int ckpt_step_rekey_locked(struct ckpt_step *step, const char *folder_id, const char *name);
