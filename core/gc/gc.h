// Garbage collection: packs that nothing needs are removed, and so are, once what is needed of them is elsewhere (repack.h), those of
// which steps need less than half.
//
// Needed is what is named by the current version of a step, be it listed, reopened, being removed or in the trash; by a version
// in the store that this process does not know (its answer was lost); and by a file that is open. A pack that goes was put longer
// ago than the grace time. What cannot be read may need anything: then nothing goes, and it is said what that was.
//
// Repacked is a pack that is old enough to go and that only listed steps need, and open files of this process. What somebody else may
// read of it, or have back, keeps it as it is.
//
// Steps are cooled, repacked, deleted and collected meanwhile, and nobody waits for anybody: what may begin to need a pack pins it first
// (pack_pins.h). A pack that is pinned counts as needed. The store is open for
// writing, and so nobody else writes there. Readers in other processes are known by a lock (file.h).
// Threads: any, several at once. Blocks on the disk.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_manifest;
struct ckpt_step;
struct ckpt_store;

#define CKPT_GC_GRACE_NS (INT64_C(24) * 3600 * 1000000000)
#define CKPT_GC_WHY_MAX 768

// Half-dead packs that could not be emptied, as what is damaged cannot be. They come after all others, so that they use up no round.
#define CKPT_GC_STUCK_MAX 64 // those beyond are tried as any
struct ckpt_gc_stuck {
	uint8_t ids[CKPT_GC_STUCK_MAX][32];
	size_t count;
};
bool ckpt_gc_is_stuck(const struct ckpt_gc_stuck *stuck, const uint8_t id[32]);

struct ckpt_gc_how {
	int64_t grace_ns; // 0: whatever its age is
	bool dry_run;     // nothing goes: what would is counted as deleted
	bool force;       // even if it is most of what is there
	struct {
		uint64_t bytes_max;          // to move at once; 0: all, in as many rounds as it takes
		uint64_t chunks_max;         // in a round; 0: CKPT_REPACK_CHUNKS_MAX
		bool gently, no_telling;     // as of ckpt_repack_how
		bool none;                   // half-dead packs stay as they are
		struct ckpt_gc_stuck *stuck; // reads and says it; NULL: nothing is known
	} repack;
	// Now and then; ends it by answering false. NULL: on and on.
	bool (*go_on)(void *arg);
	void *arg;
};

// Why garbage stays.
enum ckpt_gc_kept {
	CKPT_GC_YOUNG,  // younger than the grace time
	CKPT_GC_OPEN,   // open files, or another process that reads of packs
	CKPT_GC_MOST,   // too much of all at once (-EPERM)
	CKPT_GC_FAILED, // could not be removed
	CKPT_GC_NO_ROOM, // half-dead, and there is no room for what is needed of it; of these and the next the bytes that are not
	CKPT_GC_DAMAGED, // half-dead, and what is needed of it cannot be read
	CKPT_GC_KEPT
};

struct ckpt_gc_done {
	uint64_t live_bytes, garbage_bytes;        // of packs, before; garbage is what steps do not need
	uint64_t deleted_bytes, deleted_objects;   // those that were emptied by repacking are among them
	uint64_t repacked_bytes, repacked_objects; // chunks that were moved, as stored; packs that were emptied by that
	uint64_t later_objects;                    // half-dead, and beyond what is moved at once
	struct {
		uint64_t objects, bytes;
	} kept[CKPT_GC_KEPT];
	char why[CKPT_GC_WHY_MAX]; // it failed, for people; "" else
};

// More than half of the bytes of all packs go at once only by force, but for those of packs that were emptied by repacking, now or
// before: the versions say that; and of those that steps needed which were expired, as who did it has noted.
// 0. Nothing was removed: -EBADMSG, -ENOTSUP, -EIO what may need packs cannot be read; -EPERM more than half of the bytes of all packs
// would go at once; -ESTALE another store is in the directory. Some may have been: -EINTR go_on said no; -EIO, ... one could
// not be removed, or repacked. With all but -EINTR and -ENOMEM ret_done->why is said.
int ckpt_gc(struct ckpt_store *s, const struct ckpt_gc_how *how, struct ckpt_gc_done *ret_done);
const char *ckpt_gc_hint(int error);                   // what to do about it, or NULL
const char *ckpt_gc_kept_text(enum ckpt_gc_kept kept); // "younger than the grace time"
// {"live_bytes", "garbage_bytes", "deleted_bytes", "deleted_objects", "repacked_bytes", "repacked_objects", "kept": [{"why", "objects",
// "bytes"}]}; malloc'ed; NULL: no memory.
char *ckpt_gc_json(const struct ckpt_gc_done *done);

// As a mount does it by itself, CKPT_GC_FIRST_NS after its start, so that it does not read beside those who wait for that, and then once
// in CKPT_GC_EVERY_NS, and sooner as long as there is more to repack; a failure is in the error log, each once as long as it is the
// same.
//
// Nobody else puts packs here, so that what is garbage is so for certain, whatever its age: the grace time is short. While the disk has
// less than an eighth free, or so much of it is expected to be garbage, or was found to be, there is none, and it comes again as long as something can be
// had, less and less often while it is in vain.
// Threads: one.
#define CKPT_GC_FIRST_NS (INT64_C(20) * 1000000000)
#define CKPT_GC_EVERY_NS (INT64_C(3600) * 1000000000)
#define CKPT_GC_SHORT_GRACE_NS (INT64_C(3600) * 1000000000)
#define CKPT_GC_SHORTAGE_NS (INT64_C(1) * 1000000000) // at least, between two then
#define CKPT_GC_LOOK_NS (INT64_C(60) * 1000000000)    // whether the disk is nearly full, while something could be had
#define CKPT_GC_REPACK_BYTES (UINT64_C(1) << 30)      // at once
struct ckpt_gc_behind {
	int64_t after_ns;       // monotonic
	int64_t short_after_ns; // while there is no grace time
	int64_t in_vain_ns;     // the pause since it removed something, then
	uint64_t young_bytes;   // of garbage that was kept for its grace time
	bool damage_told;
	struct ckpt_gc_stuck stuck;
	char told[CKPT_GC_WHY_MAX];
};
void ckpt_gc_behind_begin(struct ckpt_gc_behind *behind);
// Does it if it is time. When to call it again, monotonic.
int64_t ckpt_gc_behind(struct ckpt_store *s, struct ckpt_gc_behind *behind, const bool *stop);
