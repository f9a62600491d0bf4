// Traces: how frameworks write checkpoints, as the system calls that they make, and the words to say them in.
//
// A trace is run by its ranks, processes that all run the same function in the current directory: at first on a plain
// filesystem, which tells what is to be expected, then in a mount. Every word that is a call ends the process when the call
// fails: the run has then failed, unless it is the fault that the run is about. Paths are relative.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace {
	const char *name; // "T4"
	const char *what; // one line
	int ranks;
	// What there is before anybody looks, by one rank; or NULL.
	void (*before)(void);
	void (*run)(int rank);
	// Names that may be listed at any time and in any state: patterns, folders with '/' at the end. NULL behind the last.
	const char *const *plain;
	// The step of which the store must say this in the end, NULL: none; the event is that of its oldest version.
	const char *step, *profile, *event;
	const char *options; // of the mount; NULL: none
};

extern const struct trace traces[];
extern const size_t trace_count;

// --- To the test ------------------------------------------------------------------------------------------------------

void together(void); // all ranks have come to this point: `|` in a trace
void midpoint(void); // here the daemon may be killed
// The folder or file is complete and listed, as it is now: what an observer may see of it from its first completion on.
void complete(const char *path);
// The same of what is completed by itself, some time later.
void complete_soon(const char *path);
void hidden(const char *path);  // it is in no listing
void missing(const char *path); // it is not even there by its name
// What is complete is changed from here on to the next complete() or gone() of it: it may be out of the listing.
void changing(const char *path);
// The same, by an edit: the step stays listed, and from here on this may be seen of it. A crash may bring back what was before. In a
// mount nobody looks now: who lists a step and then removes something in it would be taken for `rm -r`.
void edited(const char *path);
void gone(const char *path); // it is not there any more

// --- Calls ------------------------------------------------------------------------------------------------------------

void make_dir(const char *path);  // it is new
void make_dirs(const char *path); // mkdir -p
void remove_dir(const char *path);
void remove_file(const char *path);
void remove_if_there(const char *path);
void remove_tree(const char *path); // as rmtree does; nothing there is fine
void rename_over(const char *from, const char *to);
void make_symlink(const char *target, const char *path);
void cannot_rename(const char *from, const char *to, int error);
bool is_there(const char *path);
void is_older(const char *path, const char *than); // by st_mtime
void list_dir(const char *path);                   // opens each file in it too, and reads from it

// A path put together; it lasts as long as the process, which is short.
const char *path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// flags as open(2) has them; the descriptor. What is written to it is this file's, rank's and attempt's.
int open_file(const char *path, int flags);
int open_mode(const char *path, int flags, unsigned mode);
int open_direct(const char *path, int flags); // O_DIRECT where the filesystem has it
void write_bytes(int fd, size_t bytes);       // at its offset
void write_vector(int fd, size_t bytes);      // the same by writev
void write_at(int fd, int64_t offset, size_t bytes);
void write_raw(int fd, const void *data, size_t len);
void write_text(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void seek_to(int fd, int64_t offset, int whence);
void set_size(int fd, int64_t bytes);
void set_mode(int fd, unsigned mode);
void reserve(int fd, int64_t offset, int64_t bytes); // fallocate(FALLOC_FL_KEEP_SIZE), which a filesystem need not have
void sync_file(int fd);
void sync_dir(const char *path);
void close_file(int fd);
void ask_room(const char *path); // statfs

// An open file description's lock on the whole file, and flock(2).
void ofd_lock(int fd);
void ofd_unlock(int fd);
void lock_exclusive(int fd);
void unlock(int fd);
// A lock of the process on the whole file, fcntl(F_SETLKW).
void posix_lock(int fd);
void posix_unlock(int fd);
void same_file(int fd, int other); // both are open on one inode

// What a reader has of a file must stay as it is.
struct kept {
	int fd;
	void *map; // NULL: it is read
	size_t bytes;
	uint8_t digest[32];
};
struct kept keep_open(const char *path);
struct kept keep_mapped(const char *path);
void still_same(const struct kept *k);
void let_kept_go(struct kept *k);

// Forked children that have all descriptors and end, one by a signal: their closes say nothing.
void fork_children(void);
// The same work by a process that is killed when it comes to its end.
void killed_after(void (*work)(int rank), int rank);

// --- Several calls ----------------------------------------------------------------------------------------------------

void put_file(const char *path, size_t bytes);     // O_TRUNC, write, close
void put_text(const char *path, const char *text); // the same with a text
void put_synced(const char *path, size_t bytes);   // with an fsync
