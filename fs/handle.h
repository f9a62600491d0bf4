// Open files and directories, and the descriptors behind them.
//
// While a node is open, one descriptor reads its backing file; in passthrough the kernel was given that file and does
// the reading and writing itself, each open with the rights of its own flags. A node keeps one backing file and one way
// of I/O from its first open to its last release, because the kernel answers anything else with EIO.
//
// Ownership: a handle belongs to the kernel's open file, from open to release, and holds a reference to its node.
// Threads: any; the lock of node->use guards the node's side. Opening may block on a disk.
#pragma once

#include "core/save/remove.h"
#include "core/step/removal.h"
#include "core/step/staging.h"
#include "fs/fs.h"

struct draft;
struct listing;
struct marker_handle;
struct amend_handle;

struct handle {
	struct node *node;
	int flags; // of open(2)
	int fd;    // writes, where the kernel does not do it itself; else -1
	bool writes;
	unsigned lost_writes_told; // of the node's, those that this handle knows or that are older than it
	struct ckpt_writer writer; // linked while it writes in a staged step
	struct ckpt_step *left;    // a left-over step that it reads: not dropped meanwhile without being asked to
	int64_t rewrites_ns; // its process has saved the file before (unstage.h): when it was opened, by the clock of file times; else 0
	struct draft *draft; // it writes this one: a reference; what follows is for draft.h
	struct handle *draft_next;
	pid_t opener;            // process, 0 not known
	bool flushed;            // its opener has closed a descriptor of it
	bool closed;             // and had no other that writes the file
	bool ending;             // it writes a plain file, and a descriptor of it was closed; atomic
	struct listing *listing; // directories
	struct ckpt_top_dir top; // linked while it is a committed step's own directory
	struct marker_handle *marker;
	bool unwritten, through_latest; // for unwritten.h; the first is atomic
	struct handle *unwritten_next;
	struct amend_handle *amend;    // it writes a file that is being added to a committed step
	struct ckpt_file *copy;        // a file below .ckptfs/conflicts: what reads it
	struct ckpt_array_file *array; // the same of one below STEP/.arrays
	bool array_failed;             // the error log was told; atomic
	char *text;                    // control files: what they said at open, and was written since (control_file.h),
	size_t text_len;
	bool text_made;    // the file is made by this open: that says something, if nothing is written
	bool text_written; // which nobody has judged yet,
	int text_result;   // and how it was judged last
};

static inline struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

int handle_new(struct ckpt_fs *fs, struct node *n, int flags, struct handle **ret_handle);
void handle_free(struct ckpt_fs *fs, struct handle *h);
// The handle is open in this step (NULL: the plain tree), which matters if that is a left-over one.
void handle_uses(struct handle *h, struct ckpt_step *step);

// Opens a regular file's node and fills in the reply. fd (taken, -1: none yet) reads the backing file when the caller
// has it already; writer (taken, -1) writes it, which an open of the same file may not be allowed to do any more. step is the staged step that the node is in, NULL in the plain tree; committed: without
// fd a small file, or one that is in packs, whose backing file is not opened before handle_backing; for writing one that is not
// written yet (unwritten.h).
#define SMALL_FILE_BYTES (128 << 10) // committed files up to this size are read faster through the page cache
int handle_open(struct ckpt_fs *fs, fuse_req_t req, struct node *n, int fd, int writer, struct ckpt_step *step,
		bool committed, struct fuse_file_info *fi);
// The descriptor that reads the handle's file, opened now if it is not yet: most opens of a small committed file find all
// of it in the page cache and need none. -EXDEV: there is none, handle_packed() reads it; -EIO: the raw file is gone or changed,
// which is noted in errors.
int handle_backing(struct ckpt_fs *fs, struct handle *h);
// After that -EXDEV, as long as the handle is open.
struct ckpt_file *handle_packed(const struct handle *h);
// The same for all open files of a committed step, before names in it can change: who has one open reads on.
void handle_back_all(struct ckpt_fs *fs, const struct ckpt_step *step);
// Reads the file that has the node's name. -ESTALE: that is another one by now (a leftover's copy, what replaced it).
int handle_open_file(struct ckpt_fs *fs, struct node *n);
// The same for one file of it, and its twin, which is about to lose its name to another.
void handle_back_file(struct ckpt_fs *fs, const struct ckpt_step *step, uint64_t number);
// The same of the file with this name in the directory at index dir, if it is one.
void handle_back_child(struct ckpt_fs *fs, const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir,
		       const char *name);
// The node is open, and its name is that of another file by now (a leftover's copy, a reopened step's): who opens it is to
// look again.
bool handle_leads_elsewhere(struct ckpt_fs *fs, struct node *n);
// The raw file of a committed node at this place; -EXDEV and -EIO as above.
int open_committed(struct ckpt_fs *fs, const struct place *p, struct ckpt_manifest *m, uint32_t index);
// A draft has let go of it before (draft_release, draft_forsake).
// req NULL: it was answered, in vain, because the connection is gone; what the kernel was given went with it.
void handle_release(struct ckpt_fs *fs, fuse_req_t req, struct handle *h);
// After a FLUSH by this thread: remembers the state in which the process that opened it closed it.
void handle_flushed(struct handle *h, pid_t tid);

// fsync or fdatasync of the node's file: the disk's result in ret_disk, and returned what the handle's client is to be
// told, which may be an error that another handle's fsync found before. Waits for the disk.
int handle_sync(struct handle *h, bool data_only, int *ret_disk);

// For ckpt_store.write_back; arg is the fs. Not from a thread that serves the kernel: the pages come back to those.
void handle_write_back(void *arg, uint64_t ino);

// A write by a user who is not root takes setuid and setgid off. 0 or -errno of fchmod(2).
int drop_setuid(fuse_req_t req, int fd);

// A descriptor that writes the file of a handle that does; the caller closes it. What a handle may do was decided at its open:
// a chmod since then takes nothing away.
int handle_writer(const struct handle *h);
int handle_reopen(const struct handle *h); // the same, and reads it: by the flags of its open
int handle_reopen_fd(int fd, int flags);   // of a file that is not its node's yet
