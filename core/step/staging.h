// The facts of a staged step, as those know it who write in it, look at it or commit it (stage.h).
#pragma once

#include "core/step/step.h"

// A handle open for writing in a staged step, kept by whoever serves it; linked into its step.
struct ckpt_writer {
	struct ckpt_writer *next, *prev;
	struct ckpt_step *step; // which it holds; NULL: not linked
	uint64_t ino;           // of the file
	pid_t pid;              // of the opener, 0 unknown
	pid_t process;          // the same of its process, where it is a maker of the step
	bool late;              // a commit that leaves late files (commit.h) does not wait for it
	bool left;              // one has left it out, and may still run
	bool saves;             // it counts as one that saves (store.h), as long as its step is staged
	bool flushed;           // somebody closed a descriptor of it; then the file was like this:
	uint64_t flush_bytes;
	int64_t flush_mtime_ns;
	int fd; // reads the file; borrowed
	// For the looker (looker.c).
	int64_t appends_ns; // opened with O_APPEND: then, by the clock of file times; else 0
	int64_t log_ns;     // a log that was seen to be written first then, monotonic; 0: not yet
	char kind;          // what its name says; 0: not asked yet
};

struct ckpt_makers;
struct ckpt_still;
struct ckpt_synced;

// A writer that was killed while a commit waited for its file.
struct ckpt_killed {
	bool any;
	bool late;  // none but writers of late files, without which a commit may go on
	pid_t pid;  // of one of them
	char *path; // of its file; NULL: there was no memory to keep it
};

struct ckpt_staging {
	// Set before the step has a name.
	bool add_only;         // a closed file is not opened for writing again, nor replaced
	bool from_plain;       // its session is a plain folder that is being turned into a step
	bool by_client;        // a client made its directory: quiet may complete it (looker.h)
	uint32_t from_version; // its session began as the files of this version of the step of its name; 0: it did not
	bool is_file;          // LEFT: one plain file (draft.h), no step
	uint64_t file_folder;  // and the number of the folder that it was to be in; 0: not known
	// Atomic.
	bool durable;     // the name of its directory is on disk
	bool ours;        // staged by this process: file numbers are known to be our own
	bool chunks_told; // errors says that files of it stand for chunks (share_chunks.h)
	bool copied;      // a file was given older times than it has, as copies have: no event counts
	bool interrupted; // an earlier attempt to write it was cut off. LEFT: it would be STAGED if the store were open for writing
	int64_t touched_ns;     // the last change or end of a writer, monotonic
	int64_t attempt_ns;     // the attempt that writes it now began then, by the clock of file times; 0: the first
	int64_t interrupted_ns; // it was interrupted then, monotonic
	// Guarded by step->lock.
	int changers; // changes of the tree in progress
	int users;    // LEFT: open handles in it
	struct ckpt_writer *writers;
	struct ckpt_makers *makers; // of what is in it (makers.h)
	struct ckpt_still *still;   // for how long nothing has changed, and what that is waited for (looker.h),
	void (*still_free)(struct ckpt_still *still); // and how it is freed
	bool still_used, still_over;                  // a look runs; it frees `still` at its end
	uid_t uid;
	gid_t gid;
	pid_t pid; // of its maker
	int64_t began_ns;
	struct ckpt_synced *synced; // files that a client has fsynced, and those whose fsync failed
	bool synced_lost;           // a failure could not be remembered by file
	struct {
		bool any;
		pid_t pid; // killed in the middle of a file; 0: its daemon ended
	} lost;            // it reopens: a writer did not come to its end
	// And of the commit that runs, or ran last.
	struct ckpt_killed killed;
	int64_t progress_ns;  // monotonic
	bool outcome_unknown; // it may be on disk: nothing may change until it is asked again
};
CKPT_PART(struct ckpt_step, struct ckpt_staging, ckpt_staging)
