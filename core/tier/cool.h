// Tiers: a step that is seldom read is cooled: its files' chunks go into packs, encoded and each once, and its raw files are removed.
// Warming writes the raw files again. Clients see no change but of speed.
//
// Cooling makes a version with the same entries that says where the chunks are (edit.h), if some of them have no pack yet. Raw files
// are a matter of this node: neither their removal nor their return makes a version, and a step may have some of them. A chunk was
// decoded from its pack and compared before a raw file that has it is removed.
// Threads: any; one step of a store is cooled at a time, others wait. Blocks on the disk for as long as the step takes to read.
#pragma once

#include "core/cold/packing.h"
#include "core/save/warm.h"

// One step of a store is cooled at a time.
struct ckpt_cool_turn {
	struct ckpt_lock lock; // over the cooling of a step
	unsigned wanted;       // by so many who wait for it; atomic
};
CKPT_PART(struct ckpt_store, struct ckpt_cool_turn, ckpt_cool_turn)

// 0; -EINTR go_on said no: the next attempt finds in packs what this one put there, and removes raw files that are left; -ESTALE the step is not committed (any more);
// -EBUSY it is reopened or being removed; -ENODATA it is not sealed (seal.h); -EIO a file cannot be read or is not what was sealed,
// and stays raw, or the outcome is unknown; -ENOSPC, ... Failures but the first four are in the error log.
// Raw files that a crash, or go_on, has left of an earlier cooling are removed by the next one.
// It waits for another step that is being cooled: a mount that cools behind ends that at the next chunk (cooler.h).
int ckpt_cool(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done);
bool ckpt_cool_is_wanted(const struct ckpt_store *s); // a call waits for the one that cools now
// The same, sealed first where it is not: go_on is told of those bytes, too.
int ckpt_cool_sealed(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done);
// The same of an older version (core/step/older.h), by its sealed manifest: its files are put into packs, and no raw file goes. Chunks
// in condemned packs go into others, from raw files or as these packs have them here. Nothing is put into the log, nothing said. ret_packing
// has the packs pinned, and no buffers, until the caller's ckpt_packing_done(). how: at_once, go_on, put and pack_bytes.
int ckpt_cool_older(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_tier_how *how,
		    struct ckpt_packing *ret_packing, struct ckpt_manifest **ret_manifest);
// What to do about a failure; NULL: nothing better is known than what goes for the error anywhere.
const char *ckpt_tier_hint(int error);
// --- For core/tier and core/remote -----------------------------------------------------------------------------------------------------

// Removes raw files of what is in packs by the current version, where goes() agrees, and counts them. -EINTR how->go_on, asked now and
// then (of 0 bytes), said no; -ESTALE, -EBUSY as above, or it was warmed. Blocks on the disk, under acts_lock for a moment at a time.
struct ckpt_sweep {
	struct ckpt_step *step;
	const struct ckpt_tier_how *how;
	bool (*goes)(void *arg, const struct ckpt_manifest *m, uint32_t index);
	void *arg;
	bool of_deleted; // a step in the trash is no error
};
int ckpt_cool_sweep(const struct ckpt_sweep *of, struct ckpt_tier_done *done);
