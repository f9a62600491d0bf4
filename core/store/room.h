// The room that deleted steps leave to what is being written. A job of a mount keeps a reserve of the disk free, as far as there
// is trash to free, and keeps the trash below its limit: the oldest deleted step goes first, whole, with the packs that only it needs.
//
// It looks
//   - when a step is deleted, and when a client says ahead what it needs (a new step, a size, fallocate): ckpt_room_expect();
//   - every 200 ms while anything is open for writing, because the kernel writes past us in passthrough;
//   - when a write found no room: ckpt_room_make().
// It sleeps while nothing is open. A look is one statvfs(2), unless room is short or the trash has changed.
//
// The room of a step counts when it can be used: its files are gone and the journal of the disk's filesystem has said so.
// While less than the reserve is free and no trash is left, room is short: what is opened for writing then is written by the daemon
// (ckpt_room_is_short), and the error log says what takes the room.
//
// With a remote the trash is that of all nodes, and nothing of it goes for want of room: copies go that the remote has (core/remote/evict.h).
//
// Calling sequence: ckpt_room_new() in a mount; the calls below; ckpt_room_stop(), ckpt_room_free().
// Ownership: the store's. NULL is a store that nobody looks after: all calls take it and do nothing.
// Threads: any. Only _make and _stop block: until a step or two are gone from the disk.
#pragma once

#include "core/base/part.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ckpt_room;
struct ckpt_step;
struct ckpt_store;

// Of a mount, atomic; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_room *, ckpt_room)

// A deleted step's room on the disk; guarded by step->lock.
struct ckpt_trashed {
	uint64_t bytes;
	uint32_t deleted_by; // of this deletion; 0: not measured yet
};
CKPT_PART(struct ckpt_step, struct ckpt_trashed, ckpt_trashed)

#define CKPT_ROOM_LOOK_NS INT64_C(200000000)
#define CKPT_ROOM_RESERVE_MAX (UINT64_C(1) << 30) // of the default, where no step is larger,
#define CKPT_ROOM_RESERVE_PART 4                  // and so much of the disk at most

// --- What goes ----------------------------------------------------------------------------------------------------------

struct ckpt_room_want {
	uint64_t free_bytes;
	uint64_t reserve_bytes; // to be free, with what is expected
	uint64_t limit_bytes;   // of the trash
	bool no_inodes;         // few are left: whatever is in the trash may give some
};
// How many of the oldest deleted steps go, of which bytes[] says what each takes, the oldest first: as few as make the trash fit its
// limit, of which the last one stays; and as few as make the reserve free, if need be all. No I/O; pure.
size_t ckpt_room_choose(const struct ckpt_room_want *want, const uint64_t *bytes, size_t count);
// The default reserve: of the newest step, or 1 GiB but a quarter of the disk at most, whichever is more.
uint64_t ckpt_room_reserve(uint64_t newest_bytes, uint64_t disk_bytes);

// --- Of a mount ---------------------------------------------------------------------------------------------------------

int ckpt_room_new(struct ckpt_store *s, struct ckpt_room **ret_room); // 0, -ENOMEM, -EAGAIN
void ckpt_room_stop(struct ckpt_room *r);
void ckpt_room_free(struct ckpt_room *r); // after _stop, when nobody calls it any more

// A file is opened for writing, and closed. Two atomic additions: all that an open costs, but for the first after a pause.
void ckpt_room_opened(struct ckpt_room *r);
void ckpt_room_closed(struct ckpt_room *r);
// So many bytes will be written soon (0: a step, or nobody knows); and: the trash has changed.
void ckpt_room_expect(struct ckpt_room *r, uint64_t bytes);
// The disk was full: frees what there is until the reserve, and these bytes, are free. True: something was freed, try again once.
bool ckpt_room_make(struct ckpt_room *r, uint64_t bytes);
bool ckpt_room_is_short(const struct ckpt_room *r);

struct ckpt_room_state {
	uint64_t free_bytes, disk_bytes, reserve_bytes;
	uint64_t trash_bytes; // what would be freed; of packs an upper bound
	size_t trash_steps;
	bool is_short;
};
// Measures now. 0, -ENOMEM, -errno of statvfs(2). Blocks on the disk.
int ckpt_room_measure(struct ckpt_store *s, struct ckpt_room_state *ret_state);
// The same as JSON: {"free_bytes", "disk_bytes", "reserve_bytes", "trash_bytes", "trash_steps", "staged_bytes", "left_over_bytes",
// "garbage_bytes", "short"}; sessions: the rows of `sessions`, which say what those have. null where it cannot be measured. And as a
// line or two of `status`.
json_t *ckpt_room_json(struct ckpt_store *s, const json_t *sessions);
void ckpt_room_print(FILE *f, const json_t *room);

// What a deleted step takes on the disk: its files that no other session shares, and at most what its packs have of it. Known after
// the first call. Blocks on the disk then.
struct ckpt_step;
uint64_t ckpt_room_of_deleted(struct ckpt_step *step);
