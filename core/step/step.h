// A step: from the mkdir of its directory, through staging and commit, to an immutable version that is listed.
//
// States, and what moves a step between them:
//   STAGED      ckpt_stage_begin() (stage.h), or a commit that failed; found at open without a record, with its name free
//   COMMITTING  ckpt_commit() (commit.h); changes of the tree wait meanwhile
//   COMMITTED   ckpt_commit() succeeded, or loaded from the store; its current version never changes
//   DELETED     ckpt_delete() (delete.h), or superseded by another session of its name: kept until it expires, reachable
//               only as .ckptfs/trash/NAME; ckpt_undelete() makes it COMMITTED again
//   LEFT        found at open without a record, and cannot have its name; or a reopened step that was given up; or its
//               folder was removed: kept, reachable only as .ckptfs/staged/NAME
//   GONE        aborted, moved into another step, or lost; the object lives on while somebody holds it
//
// On disk a step's files are in sessions/<uuid>/, from the first write to the last read of the raw tier; only the record
// says whether they are a step.
//
// Ownership: reference-counted; the store's table holds one reference while the step has a name. Threads: the fields
// under "guarded" by step->lock; state changes are announced on step->changed. No I/O under the lock.
#pragma once

#include "core/base/lock.h"
#include "core/base/part.h"
#include "core/record/manifest.h"
#include "core/step/version.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ckpt_store;

enum ckpt_step_state {
	CKPT_STEP_STAGED = 1,
	CKPT_STEP_COMMITTING,
	CKPT_STEP_COMMITTED,
	CKPT_STEP_DELETED,
	CKPT_STEP_LEFT,
	CKPT_STEP_GONE,
};

struct ckpt_pending; // a name that a commit will give

// Facts of a step that no later version changes; set once, by its commit. And what it was born with:
struct ckpt_born {
	uint64_t dir_ino;
	uint64_t sequence; // commits of the store at its own
	int64_t first_committed_ns;
	struct ckpt_version *spare; // so that its next version needs no memory; guarded by lock
};

// A module keeps its own facts of a step in a part of it (core/base/part.h): ckpt_staging_of(step) of stage.h, and so on.
struct ckpt_step {
	struct ckpt_store *store;
	int refs;                    // atomic
	struct ckpt_step *hash_next; // guarded by store->lock, as are folder_id, name and key
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	char key[CKPT_STEP_KEY_MAX];
	char session[37];       // uuid of the raw files
	uint64_t incarnation;   // tells objects apart that had the same name
	struct ckpt_step *base; // the committed step that this one reopened (reopen.h), which it holds; set once
	bool reopens;           // it still does: not committed, given up or removed; atomic
	struct ckpt_born born;  // zero before its commit

	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	enum ckpt_step_state state; // set by ckpt_step_set_state_locked()
	int dirfd;                  // STAGED, COMMITTING, LEFT: sessions/<uuid>, opened before the first write; else -1
	struct ckpt_step *into;     // GONE into this one, which it holds; set once
	// COMMITTED: the current one; DELETED: the last that it had; else ckpt_version_none. Another takes its place under store->lock and
	// lock, by who holds acts_lock once it is committed: each of the three keeps it where it is.
	struct ckpt_version *version;
	uint8_t unknown_act; // the last act on it, if its outcome was unknown (core/state/act.h), else 0; guarded by acts_lock
	uint32_t deleted_by; // DELETED: the version that says so, or that came in its place
	int64_t deleted_ns;  // DELETED: when
	// Guarded by store->lock.
	struct ckpt_pending *pending;   // from the start of a commit until its outcome is known
	struct ckpt_manifest *manifest; // COMMITTED, NULL when not in memory
	struct ckpt_step *reopened; // COMMITTED: the staged step that takes its place for now, which it holds; atomic
	struct ckpt_step *lru_next, *lru_prev;
};

// Parts that modules above attach to all steps.
struct ckpt_step_parts {
	struct ckpt_part *const *parts;
	size_t count;
	bool (*is_hidden)(struct ckpt_step *step); // COMMITTED: it is in no listing. Called under store->lock
};
void ckpt_step_parts(const struct ckpt_step_parts *parts); // before the first store is opened

// --- The table ------------------------------------------------------------------------------------------------------

// The step of this name in this folder, staged or committed, with a reference; NULL: none.
struct ckpt_step *ckpt_step_find(struct ckpt_store *s, const char *folder_id, const char *name);
// The committed or deleted step of this session, not what it was called before, with a reference; NULL: none.
struct ckpt_step *ckpt_step_of_session(struct ckpt_store *s, const char *session);
// The committed step of this session, with a reference; NULL: none.
struct ckpt_step *ckpt_step_live_session(struct ckpt_store *s, const char *session);
struct ckpt_step *ckpt_step_ref(struct ckpt_step *step);
void ckpt_step_unref(struct ckpt_step *step); // NULL is fine
enum ckpt_step_state ckpt_step_state(struct ckpt_step *step);
struct ckpt_version *ckpt_step_version(struct ckpt_step *step); // the current one, with a reference
uint64_t ckpt_step_bytes(struct ckpt_step *step);               // logical, of the current one
// Under step->lock.
void ckpt_step_set_version_locked(struct ckpt_step *step, const struct ckpt_summary *is);
// Under step->lock, or with the only reference. A reader without it sees the one state or the other.
void ckpt_step_set_state_locked(struct ckpt_step *step, enum ckpt_step_state state);

// Staged or being committed. A reader without the lock sees what it was or is.
static inline bool ckpt_step_is_unfinished(const struct ckpt_step *step)
{
	enum ckpt_step_state state = __atomic_load_n(&step->state, __ATOMIC_RELAXED);

	return state == CKPT_STEP_STAGED || state == CKPT_STEP_COMMITTING;
}

// True for the states whose files are those of a manifest.
static inline bool ckpt_step_has_manifest(enum ckpt_step_state state)
{
	return state == CKPT_STEP_COMMITTED || state == CKPT_STEP_DELETED;
}

// The step in the place of this one now: the staged step that reopened it (reopen.h), else itself. Takes the reference, gives one.
struct ckpt_step *ckpt_step_now(struct ckpt_step *step);
static inline bool ckpt_step_is_reopened(const struct ckpt_step *base)
{
	return __atomic_load_n(&base->reopened, __ATOMIC_ACQUIRE) != NULL;
}
// Under store->lock: it reopens nothing any more. True: it did.
bool ckpt_step_end_reopen_locked(struct ckpt_step *step);

// What it is called now, whole: a rename may change that at any moment, unless store->lock is held.
struct ckpt_step_name {
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
};
void ckpt_step_name(struct ckpt_step *step, struct ckpt_step_name *ret_name);

// The steps of one folder (folder_id NULL: all) in these states (bits 1 << state), each with a reference, sorted by
// folder and name (memcmp). Committed ones that are being removed are in no list. Free with ckpt_step_list_free.
int ckpt_step_list(struct ckpt_store *s, const char *folder_id, unsigned states, struct ckpt_step ***ret_steps,
		   size_t *ret_count);
void ckpt_step_list_free(struct ckpt_step **steps, size_t count);
// Those of them that wants() takes, in the order of their commits. wants NULL: all; else it is called under store->lock, and must not block.
int ckpt_step_choose(struct ckpt_store *s, const char *folder_id, unsigned states,
		     bool (*wants)(void *arg, struct ckpt_step *step), void *arg, struct ckpt_step ***ret_steps,
		     size_t *ret_count);
// The same steps one by one, in no order, under store->lock: fn must not block. Ends with the first answer that is not 0.
typedef int ckpt_step_fn(void *arg, struct ckpt_step *step);
int ckpt_step_each_locked(struct ckpt_store *s, const char *folder_id, unsigned states, ckpt_step_fn *fn, void *arg);
// Of those only the left ones, which are few and quickly found.
int ckpt_step_each_left_locked(struct ckpt_store *s, ckpt_step_fn *fn, void *arg);
// All that the store has a version of, those in no listing too: reopened, being removed, deleted, expiring.
int ckpt_step_list_stored(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count);
// True when the folder has any step, staged ones too.
bool ckpt_step_any(struct ckpt_store *s, const char *folder_id);
// The same but for those of which passes says true; it is called under store->lock, and must not block.
bool ckpt_step_any_but(struct ckpt_store *s, const char *folder_id, bool (*passes)(struct ckpt_step *step));

// --- Committed, or deleted --------------------------------------------------------------------------------------------

// The current version's manifest, with a reference: from memory, the index or the store. -EBADMSG damaged, -EIO, ...
int ckpt_step_manifest(struct ckpt_step *step, struct ckpt_manifest **ret_manifest);
// That of the version with this summary, from the index or the store. A version has one as long as the store has its step. -ESTALE: an entry
// of the remote's log has put another version in its place.
int ckpt_step_read_manifest(struct ckpt_step *step, const struct ckpt_summary *sum,
			    struct ckpt_manifest **ret_manifest);
// The same of the current one, from there.
int ckpt_step_read_current(struct ckpt_step *step, struct ckpt_manifest **ret_manifest);
// A raw file of a committed step for reading: openat of sessions/<uuid>/<path>, checked against its entry. -EIO: it is gone, or has
// another size; where packs have its bytes too, also when it has another mtime than it was written with. Who wants the bytes asks
// file.h.
int ckpt_step_open_raw(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index, int *ret_fd);
// Whether that file is there now. Blocks for an fstatat(2).
bool ckpt_step_has_raw(const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index);
#define CKPT_RAW_PATH_MAX (36 + 1 + 4096)
int ckpt_step_raw_path(const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index, char *buf,
		       size_t cap);
// The record of a version, whole. Free with ckpt_record_done.
int ckpt_step_record(struct ckpt_step *step, uint32_t version, struct ckpt_record *ret_record);

// --- For the other files of core --------------------------------------------------------------------------------------

struct ckpt_step_table *ckpt_step_table_new(void);
void ckpt_step_table_free(struct ckpt_step_table *t);
struct ckpt_said;                                                                          // core/state/journal.h
int ckpt_step_said(struct ckpt_store *s, const char *session, struct ckpt_said *ret_said); // -ENOENT: nothing
// A step that is not in the table yet. -EEXIST, -ENOMEM.
int ckpt_step_enter(struct ckpt_store *s, const struct ckpt_said *said);
// Under store->lock: commits so far.
uint64_t *ckpt_step_sequence_locked(struct ckpt_store *s);
// Under store->lock, by who has a reference: the step becomes what is said of it. Older news than it has change nothing. False: its name
// is another's, or kept for another.
bool ckpt_step_follow_locked(struct ckpt_step *step, const struct ckpt_said *said);
void ckpt_step_follow(struct ckpt_step *step); // what the log says by now
// A staged step is a left one from now on.
void ckpt_step_leave_locked(struct ckpt_step *step);
// A new, nameless object with one reference; -ENOMEM.
int ckpt_step_new(struct ckpt_store *s, struct ckpt_step **ret_step);
// Under store->lock: enters it into the table (-EEXIST), and takes it out. The table holds a reference of its own; the
// caller holds one too, so that the last reference never goes under the lock.
int ckpt_step_insert_locked(struct ckpt_step *step, const char *folder_id, const char *name);
void ckpt_step_erase_locked(struct ckpt_step *step);
// A left step gets its name in the table: -EEXIST.
int ckpt_step_unleave_locked(struct ckpt_step *step, const char *folder_id, const char *name);
// The same for a step of which nothing is left in the store: GONE.
void ckpt_step_forget_locked(struct ckpt_step *step);
// Under store->lock, which the caller holds with a reference to the step: COMMITTED to DELETED, its name is free.
void ckpt_step_bury_locked(struct ckpt_step *step, uint32_t deleted_by, int64_t deleted_ns);
// Under store->lock: the highest version that deleted steps of this name have used; 0: none. The next goes beyond.
uint32_t ckpt_step_versions_used_locked(const struct ckpt_store *s, const char *folder_id, const char *name);
// Under store->lock: keeps a name for a step that is being committed to it, so that no other step can take it meanwhile.
// -EEXIST: it is taken; -EBUSY: another name is kept for this step already. Release does nothing when none is kept.
int ckpt_step_reserve_locked(struct ckpt_step *step, const char *folder_id, const char *name);
void ckpt_step_release_locked(struct ckpt_step *step);
// Under store->lock: whether this is what the step will be called, or else is. NULL: either will do.
bool ckpt_step_is_called_locked(const struct ckpt_step *step, const char *folder_id, const char *name);
// Under store->lock: no other step has this name, or has it kept for it.
bool ckpt_step_may_take_locked(const struct ckpt_step *step, const char *folder_id, const char *name);
// Manifests in memory: a list of their steps by lru_next and lru_prev, under store->lock. Of step_manifest.c.
struct ckpt_manifest_cache {
	struct ckpt_step *newest, *oldest; // by use
	size_t bytes;
};
struct ckpt_manifest_cache *ckpt_step_manifests_locked(struct ckpt_store *s);
// The last reference goes: the caller frees its manifest.
void ckpt_step_forget_manifest_locked(struct ckpt_step *step);
// Keeps a manifest in memory as the current version's.
void ckpt_step_keep_manifest(struct ckpt_step *step, struct ckpt_manifest *m);
