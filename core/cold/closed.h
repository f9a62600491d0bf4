// Files of staged steps that their last writer has closed, and what was read of them since: their SHA-256, and the chunks that they are
// cut into. So a file is read while its step is still written, and not again after the commit.
//
// States of a file, by its number (ckpt_store_ino()):
//   unknown   nobody wants it, or it is open for writing
//   QUEUED    ckpt_closed_add(): its last writer has closed it
//   TAKEN     ckpt_closed_take(): somebody reads it
//   READ      ckpt_closed_done() with what was read
// ckpt_closed_forget() makes it unknown from any state: somebody has opened it for writing, or has changed its size. What is read
// meanwhile is not kept: each file that is added has a generation of its own.
//
// The end of the last handle is not the end of writing: with passthrough a shared mapping outlives its descriptor, and its stores need not
// change ctime. What was read is what the file holds, if all of these are so:
//   1. A read lease was granted after the file was looked at, and before it was read (core/tier/early_pack.c): nobody had it open for
//      writing or mapped so. The lease is given back at once: whoever opens the file would wait for its end.
//   2. Nobody has opened the file for writing since: ckpt_closed_forget() comes at each such open, under the step's lock, as
//      ckpt_closed_add() does.
//   3. Size, mtime and ctime are those of the look. The first store of a mapping that is younger than the look changes them.
//   4. The file was older than CKPT_CLOSED_SETTLED_NS at the look, so that each later change shows in its ctime.
// Past the mount a file may be changed, too: 1, 3 and 4 see that. The commit asks for a lease of its own (core/save/scan.h).
//
// Ownership: the store's. A file in the queue holds its step and a descriptor; there are CKPT_CLOSED_QUEUE_MAX at most. What was read takes
// 64 bytes for each chunk; beyond CKPT_CLOSED_CHUNKS_MAX nothing is kept. Threads: any. Blocks: never on I/O.
#pragma once

#include "core/base/lock.h"
#include "core/base/part.h"
#include "core/record/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct ckpt_job;
struct ckpt_step;
struct ckpt_store;

#define CKPT_CLOSED_BYTES_MIN (UINT64_C(1) << 20) // smaller ones are read after the commit
#define CKPT_CLOSED_QUEUE_MAX 256u
#define CKPT_CLOSED_CHUNKS_MAX (1u << 18)
#define CKPT_CLOSED_SETTLED_NS INT64_C(2500000000) // times of files move in ticks; of some filesystems in whole seconds
#define CKPT_CLOSED_SETTLED_FINE_NS INT64_C(20000000)

struct ckpt_closed_entry;

struct ckpt_closed {
	struct ckpt_job *job; // takes them; changed under lock, atomic; NULL: nobody does
	struct ckpt_lock lock;
	// Guarded by lock.
	struct ckpt_closed_entry **buckets;     // by number; NULL: there was none yet
	struct ckpt_closed_entry *first, **end; // of the queue
	struct ckpt_closed_entry *gone;         // out of the table, without descriptors: ckpt_closed_tidy() frees them
	size_t queued, chunks;
	uint64_t generation;
};
CKPT_PART(struct ckpt_store, struct ckpt_closed, ckpt_closed)

// The facts that were read of a file. chunks: id and bytes of each, in order; malloc'ed, with pack 0.
struct ckpt_closed_read {
	struct stat st; // from before
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_chunk *chunks;
	size_t count;
};

// A file that is the caller's to read.
struct ckpt_closed_file {
	struct ckpt_step *step; // a reference
	int fd;
	uint64_t ino, generation;
};

// Files are queued from now on, and wake this job of the store. NULL: no more, and what is known is forgotten; before
// the store is closed, as a file in the queue holds its step.
void ckpt_closed_want(struct ckpt_store *s, struct ckpt_job *job);
static inline bool ckpt_closed_is_wanted(const struct ckpt_store *s)
{
	return __atomic_load_n(&ckpt_closed_of(s)->job, __ATOMIC_RELAXED);
}
// Under the step's lock: nobody has it open for writing any more. fd, which reads it, is borrowed. Small files, and those beyond the
// limits, are left out.
void ckpt_closed_add(struct ckpt_step *step, uint64_t ino, int fd);
void ckpt_closed_forget(struct ckpt_store *s, uint64_t ino);
void ckpt_closed_forget_step(const struct ckpt_step *step); // what was read of its files

// Gives back what those who add and forget may not, as they hold locks: references of steps. Whether any file is in the queue.
bool ckpt_closed_tidy(struct ckpt_store *s);
// Removes files from the queue that nobody packs before the commit any more: their step is not staged any more, or they have no name. Their
// descriptors would keep the blocks of removed files, and evictions from the step. The last close of a removed file may block on the disk.
void ckpt_closed_leave(struct ckpt_store *s);
// The first of the queue. False: there is none.
bool ckpt_closed_take(struct ckpt_store *s, struct ckpt_closed_file *ret_file);
// The end of a file that was taken. read: what was read of it, whose chunks are taken; NULL: it is not known. False: it was
// forgotten meanwhile.
bool ckpt_closed_done(struct ckpt_store *s, struct ckpt_closed_file *file, struct ckpt_closed_read *read);
// A file that was taken is still the one that was closed.
bool ckpt_closed_is_current(struct ckpt_store *s, const struct ckpt_closed_file *file);
bool ckpt_closed_is_same(const struct stat *a, const struct stat *b); // 2 of the above
// True: changes of a file from now on show in its ctime.
bool ckpt_closed_is_settled(const struct stat *st, int64_t now_ns);

// The facts that were read of the file, if it is as it was then; a copy. False: it is to be read.
bool ckpt_closed_find(struct ckpt_store *s, uint64_t ino, const struct stat *st, struct ckpt_closed_read *ret_read);
void ckpt_closed_read_done(struct ckpt_closed_read *read);
