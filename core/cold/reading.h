// Bytes that clients have read of files whose packs are elsewhere, until they are all of a file: then the file is handed on, to be kept.
//
// A file counts as read whole when each of its bytes was given to a client, by whomever, in whatever order and number of openings: the
// kernel keeps what it was given, and does not ask again. Meanwhile a thread writes the chunks that are in memory anyway to a file in
// trash/, so that they are not fetched a second time. It only takes what it can write at once: no reader waits for it.
//
//   - While a save runs, or KEPT_BYTES_MAX are to be written, chunks are passed over.
//   - With the last close the file in trash/ goes, unless all was read. What was read is remembered.
//   - It goes, too, when the disk has no room for it any more, which is asked about once a second, and when others want its room.
//   - A crash leaves nothing: trash/ is emptied at the next open.
//
// Limits: READINGS_MAX files that were read in part, the latest; EXTENTS_MAX parts of each, more are forgotten.
// Calling sequence: ckpt_readings_new(); for each file ckpt_reading_open(), _keep(), _took(), _close(); ckpt_readings_stop(), _free().
// Ownership: the store has one, and is borrowed; a reading is counted. Threads: any. Blocks: _open, _close and _take on the local disk; _stop, for
// as long as a chunk takes to be written.
#pragma once

#include "core/base/extents.h"
#include "core/base/part.h"
#include "core/base/uuid.h"
#include "core/cold/chunk_cache.h"
#include "core/step/step.h"

struct ckpt_readings;
struct ckpt_reading; // of one file

// Of a mount that keeps what was read, atomic; else NULL: then nobody watches.
CKPT_PART(struct ckpt_store, struct ckpt_readings *, ckpt_readings)

struct ckpt_readings_watch {
	// This pack is elsewhere: a file that begins in it is watched. May block on the local disk.
	bool (*is_far)(void *arg, const struct ckpt_pack *pack);
	// A file of so many bytes may be begun, beside others that were begun and lack `promised`. Called by the thread; may block.
	bool (*has_room)(void *arg, uint64_t bytes, uint64_t promised);
	// All of it was read, and what the thread had of it is written. The callee has a reference. Never blocks.
	void (*whole)(void *arg, struct ckpt_reading *reading);
	void *arg;
};
int ckpt_readings_new(struct ckpt_store *s, const struct ckpt_readings_watch *watch,
		      struct ckpt_readings **ret_readings); // 0, -ENOMEM, -EAGAIN
void ckpt_readings_stop(struct ckpt_readings *r);           // it writes and tells no more; NULL is fine, here and below
void ckpt_readings_free(struct ckpt_readings *r);           // after _stop, when no file is open any more
// Others want so much room: files in trash/ go, of what was opened first before others, but for what was read whole. How many bytes went, about;
// 0: there was none. Blocks on the local disk.
uint64_t ckpt_readings_yield(struct ckpt_readings *r, uint64_t bytes);

// That of the file with this index; NULL: it is not watched.
struct ckpt_reading *ckpt_reading_open(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index);
void ckpt_reading_close(struct ckpt_reading *reading);
struct ckpt_reading *ckpt_reading_ref(struct ckpt_reading *reading);
void ckpt_reading_unref(struct ckpt_reading *reading);

// A chunk of the file is in memory, whose first byte stands at offset. The caller holds it.
void ckpt_reading_keep(struct ckpt_reading *reading, struct ckpt_chunk_cache *cache, struct ckpt_cached *cached,
		       uint64_t offset, uint64_t bytes);
// These bytes of it were given to a client.
void ckpt_reading_took(struct ckpt_reading *reading, uint64_t offset, uint64_t bytes);

// --- Of one that was read whole -----------------------------------------------------------------------------------------

struct ckpt_reading_file {
	char session[CKPT_UUID_LEN + 1];
	uint64_t number;                 // its inode's
	uint8_t sha256[CKPT_SHA256_LEN]; // of its seal
	uint64_t bytes;
};
const struct ckpt_reading_file *ckpt_reading_file(const struct ckpt_reading *reading);
uint64_t ckpt_reading_lacks(struct ckpt_reading *reading); // bytes that are not written yet
// The bytes that were written of it get this name in trash/, once. *ret_kept: the parts of it that are there, for the caller to free; between them is
// nothing. -ENOENT: nothing was written; -errno of rename(2).
int ckpt_reading_take(struct ckpt_reading *reading, const char *name, struct ckpt_extents *ret_kept);
