// Staging: a step while it is written. Its files are ordinary files in sessions/<uuid>/, which the kernel reads and
// writes directly; what is here are the acts on the step as a whole, and the gate that a commit closes.
//
// Ownership: steps are reference-counted (step.h); a writer belongs to whoever serves the handle and outlives its entry
// here. Threads: any. Calls that touch the disk may block on it; gate and writer calls only where said.
#pragma once

#include "core/step/staging.h"

struct json_t;

// What a session's directory says of who began it, and of what it is.
#define CKPT_ORIGIN_XATTR "user.ckptfs.session"

// The folder of all sessions, on its way to the disk; guarded by store->lock, announced on idle.
struct ckpt_sessions {
	uint64_t wanted, synced; // by so many; for so many of these
	bool syncing;
};
CKPT_PART(struct ckpt_store, struct ckpt_sessions, ckpt_sessions)

// A new staged step with an empty directory of this mode and owner. It is on disk with the first fsync of something in it, or with its
// commit (ckpt_stage_make_durable). -EEXIST: the name is taken; -ENOSPC,
// -EDQUOT: also where unfinished work has reached a limit (limit.h).
int ckpt_stage_begin(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid, gid_t gid,
		     pid_t pid, struct ckpt_step **ret_step);
// The same for the thread tid of a client, whose request waits for our answer: quiet may complete such a step (looker.h).
int ckpt_stage_begin_by_client(struct ckpt_store *s, const char *folder_id, const char *name, mode_t mode, uid_t uid,
			       gid_t gid, pid_t tid, struct ckpt_step **ret_step);
// The same with all that a committed or deleted step has, shared (share.h); from NULL: empty. add_only: a file that a client has
// closed is not changed any more.
int ckpt_stage_begin_from(struct ckpt_store *s, const char *folder_id, const char *name, struct ckpt_step *from,
			  bool add_only, struct ckpt_step **ret_step);
// The session's directory is found after a power cut, with_directory: also as it is now. Once that was so, it costs nothing. Several that
// come at the same time share a flush. Errors of fsync(2).
int ckpt_stage_make_durable(struct ckpt_step *step, bool with_directory);
// A staged step takes another name, still staged. -EEXIST; -EBUSY while committing.
int ckpt_stage_rename(struct ckpt_step *step, const char *folder_id, const char *name);
// The session's directory becomes a directory of another staged step, under to_dirfd/to_name; the step is GONE, its
// writers are now those of the other. -EBUSY while committing; errors of rename(2).
int ckpt_stage_graft(struct ckpt_step *step, struct ckpt_step *into, int to_dirfd, const char *to_name);
// A left step is staged again, under its name. -EEXIST the name is taken; -ENOENT its folder is gone; -EINVAL it does not
// say which name it had; -ESTALE it is not left over (any more); -ENOTDIR it is one file.
int ckpt_stage_resume(struct ckpt_step *step);
// Whether nobody writes a staged step: nothing of it is open for writing, being changed or committed, and its makers have ended.
bool ckpt_stage_is_idle(struct ckpt_step *step);
// A staged step that is idle becomes a left one: its name is free. -EBUSY: it is not idle; -ESTALE: it is not staged.
int ckpt_stage_set_aside(struct ckpt_step *step);
// Removes a staged step that has no files; -ENOTEMPTY.
int ckpt_stage_remove(struct ckpt_step *step);
// Drops a staged or left step: out of sight at once, for which it takes a rename; its files go behind (trash.h). Open
// files stay readable.
// -EPERM: a left session, while there are records that cannot be read and might name it. -EBUSY: being committed, or
// with unless_used somebody reads it.
int ckpt_stage_abort(struct ckpt_step *step, bool unless_used);
// Drops the unfinished steps that are over since before this time and that nobody has open, until *stop: those with a temp name
// (a framework gives it only to what it is still writing), since their last change; and left steps whose name was completed by
// another session, since it was. When the oldest of what is left was over; INT64_MAX: there is none.
int64_t ckpt_stage_expire_before(struct ckpt_store *s, int64_t over_ns, const bool *stop);
// --- Interrupted sessions -----------------------------------------------------------------------------------------------
//
// A session is interrupted when its writer was killed, or the daemon or the machine was restarted, before it was completed. It
// stays staged under its name, and a new attempt may write on in it. Files whose ctime is older than the attempt belong to
// the earlier one. Each open marks the sessions that it stages. A mark that a killed writer left is in the session's own
// directory, too, with the id of the boot in which it was killed.

// The writer of a staged step was killed: marks it. What other writers still change belongs to the next attempt. Any thread;
// writes one attribute.
void ckpt_stage_interrupt(struct ckpt_step *step);
bool ckpt_stage_is_interrupted(const struct ckpt_step *step);
// What `sessions` calls an unfinished session: "live", "interrupted" or "left". An interrupted one that is written again is live.
const char *ckpt_stage_state_name(struct ckpt_step *step);
// When the attempt that writes it now began, as a ctime of its files in ns; 0: it was never interrupted.
int64_t ckpt_stage_attempt_ns(const struct ckpt_step *step);
// At the opening of a store, after ckpt_load_sessions(): left sessions that say their name become staged under it again, if the name
// is free; of several with one name the newest. Files (draft.h), reopened steps that were given up and folders that were being turned
// into steps stay left. Opened for reading: nothing is staged, those that would be are marked as interrupted. -ENOMEM.
int ckpt_stage_restart(struct ckpt_store *s);

// Before `ckptfs save` or the library begins the name: an interrupted session of it that such a save made, and nobody writes, is
// left. What a client made with mkdir keeps its name: the client comes back to it.
void ckpt_stage_give_way(struct ckpt_store *s, const char *folder_id, const char *name);

// A complete step of another node has its name: an interrupted step that is idle, and that nobody has gone on with since, becomes a left
// one. -EBUSY: it is none of these; -ESTALE: it is not staged.
int ckpt_stage_yield(struct ckpt_step *step);

// Somebody has something of a left step open; used returns false when it is none (any more).
bool ckpt_stage_use(struct ckpt_step *step);
void ckpt_stage_unuse(struct ckpt_step *step);

// Changes of a staged tree happen between these two. enter: 0 staged; -EAGAIN a commit is running and wait is false,
// else it waits for its end (commit_timeout without progress: -EBUSY); -EROFS committed; -ESTALE gone.
int ckpt_stage_enter(struct ckpt_step *step, bool wait);
void ckpt_stage_leave(struct ckpt_step *step);
void ckpt_stage_touch(struct ckpt_step *step); // as if something had just been changed: it does not stand still yet

void ckpt_stage_writer_add(struct ckpt_step *step, struct ckpt_writer *w);
void ckpt_stage_writer_remove(struct ckpt_writer *w);
// The step is staged no more: what they still write keeps nothing else from working (store.h).
void ckpt_stage_writers_save_no_more_locked(struct ckpt_step *step);
// Those of a step that is GONE: their files belong to no step.
void ckpt_stage_writers_let_go(struct ckpt_step *step);
// Before its file is closed: waits for the end of a commit that has left it out. Then the file is staged as before, or pending in
// a committed step (amend.h): 0. -EIO nobody knows which; -EBUSY it takes too long.
int ckpt_stage_writer_await(struct ckpt_writer *w);
void ckpt_stage_writer_flushed(struct ckpt_writer *w, uint64_t bytes, int64_t mtime_ns);
// Until no commit of the step runs: 0; -EBUSY it takes too long. Gives the step's lock back meanwhile.
int ckpt_stage_wait_locked(struct ckpt_step *step);
// A commit waits for it, or its step is reopened: somebody believes that its file will be whole.
bool ckpt_stage_writer_is_awaited(struct ckpt_writer *w);
// It was closed once, and its file has not changed since.
bool ckpt_stage_writer_stands_still(const struct ckpt_writer *w);
// Its process was killed before it closed the file: a staged file is torn (torn.h). A commit that awaits it fails, also where memory
// is too short to say which file it was; quiet does not complete the reopened step. Writes an extended attribute.
void ckpt_stage_writer_killed(struct ckpt_writer *w);
// Where its file is in the step, for messages; ret_path has PATH_MAX bytes. Under the step's lock.
void ckpt_stage_writer_path_locked(const struct ckpt_step *step, const struct ckpt_writer *w, char *ret_path);

// A client's fsync of a file: error 0 remembers that its data is on disk as of this ctime, so that the commit need not
// write it again; an error makes commits fail until the file is written anew (truncated or replaced).
void ckpt_stage_synced(struct ckpt_step *step, uint64_t ino, int64_t ctime_ns, int64_t began_ns, int error);
void ckpt_stage_rewritten(struct ckpt_step *step, uint64_t ino);
// A file of one staged step was renamed into another: what is known of its fsyncs goes with it (a graft takes all along).
void ckpt_stage_carry(struct ckpt_step *from, struct ckpt_step *to, uint64_t ino);

// What `sessions` and `status` say of a staged or left step; walks its files.
struct ckpt_stage_usage {
	uint64_t files, bytes;
	int64_t changed_ns; // the last change of it, and of what is in it
	unsigned open_writers;
};
int ckpt_stage_usage(struct ckpt_step *step, struct ckpt_stage_usage *ret_usage);
// A save is in progress in this folder, NULL: in any. A step is being committed or written, or was changed within six times
// commit_quiet. What its client has left behind is none, nor is a committed step that is reopened. Walks the files of those that were begun
// for who writes them past the mount.
bool ckpt_stage_is_saving(struct ckpt_store *s, const char *folder_id);

// --- For other files of core: reopen.c, commit.c, load.c -----------------------------------------------------------------------------------------------------

// A staged step that nobody else knows, with its name and a session's id, but without the session. -EEXIST: the name is taken.
int ckpt_stage_new(struct ckpt_store *s, const char *folder_id, const char *name, struct ckpt_step **ret_step);
bool ckpt_stage_maker_lives_locked(const struct ckpt_step *step);
// To the session's directory. Its name is that of the step by the end of the call.
int ckpt_stage_write_origin(struct ckpt_step *step, int dirfd);
// A new session for a step that nobody else knows yet, whose name, owner and folder are set: its directory is empty, open as
// step->dirfd, and not durable yet. And the way back: what is in it goes behind.
int ckpt_stage_make_session(struct ckpt_step *step, mode_t mode);
void ckpt_stage_drop_session(struct ckpt_step *step);
// Who writes in one step writes in another from now on, and what is known of the first one's files is known there.
void ckpt_stage_take_over(struct ckpt_step *from, struct ckpt_step *to);
// On disk already, as of this ctime; and: a write of it was lost.
bool ckpt_stage_is_clean(struct ckpt_step *step, uint64_t ino, int64_t ctime_ns);
bool ckpt_stage_has_failed(struct ckpt_step *step, uint64_t ino);
// Closes and frees what only a staged step needs; nobody else may be using the step, or step->lock is held. keeps_synced: but for lost
// writes, while files of it are still being added (amend.h).
void ckpt_stage_forget(struct ckpt_step *step, bool keeps_synced);
// The step is GONE: its session is nobody's any more, or a committed step's.
void ckpt_stage_vanish(struct ckpt_step *step);
// A left-over session is the caller's from now on, and in no list: -ESTALE if it is none any more, -EBUSY.
int ckpt_stage_retake(struct ckpt_step *step);
// What the directory says, or NULL where it says nothing that can be read. -ENOMEM, or -errno of getxattr(2).
int ckpt_stage_origin(int dirfd, struct json_t **ret_origin);
// Adds a left-over session to the table.
int ckpt_stage_load_left(struct ckpt_store *s, const char *session);
// Reads who began the session, under which name, from the session's directory. A session that does not say: name "". -ENOMEM.
int ckpt_stage_read_origin(struct ckpt_step *step);
