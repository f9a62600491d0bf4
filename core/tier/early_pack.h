// Packs of a staged step: its files are read as soon as their last writer has closed them, once, and their chunks are put into packs before
// the commit. Seal and cool then find it done: what was read is kept (core/cold/closed.h), and chunks are taken from the packing
// here (ckpt_tier_how.early).
//
// A chunk is encoded as cool.c would do it with the file alone. Left to that is what depends on other files: arrays that may be weights
// or a master, where steps of the folder have such pairs or have no packs yet; and all chunks of a store that tells them as
// differences to earlier steps (settings.delta).
// No version names these packs. They are pinned until _free().
//
// About 24 MiB of buffers are in use from _file() to _rest(); otherwise 64 bytes and more for each chunk.
//
// Invariant: a chunk in the packing has been decoded from what is stored, and compared with the bytes that its id was made of. Of one that
// is stored as it is, the bytes in the pack have that id.
// Calling sequence: ckpt_early_pack_new(); _file() for each file; _rest(); _expect_garbage(); _free(). Ownership: the caller's; it holds the step. Threads: one
// at a time; once nobody calls _file(), _rest() or _drop() any more, any may read the packing. Blocks on the disk.
#pragma once

#include "core/cold/closed.h"
#include "core/cold/packing.h"

struct ckpt_early_pack;

struct ckpt_early_how {
	// After each chunk: ends the file by answering false.
	bool (*go_on)(void *arg, uint64_t bytes);
	// A pack was put into the store of this node; sha256 of the whole object.
	void (*put)(void *arg, const struct ckpt_pack *pack, const uint8_t *sha256);
	void *arg;
	uint64_t pack_bytes;
};

int ckpt_early_pack_new(struct ckpt_step *step, const struct ckpt_early_how *how, struct ckpt_early_pack **ret_early);
// NULL is fine.
void ckpt_early_pack_free(struct ckpt_early_pack *early);
// Before that: its packs are garbage, but for those that the version names which the step has by now; m NULL: it has none.
void ckpt_early_pack_expect_garbage(struct ckpt_early_pack *early, const struct ckpt_manifest *m);
// Reads the file, to its end or until somebody writes it again, and ends it (ckpt_closed_done()). A file that somebody can still write, through
// a mapping, is left to the commit; so is each file where the disk's filesystem grants no leases. 0; -EINTR go_on said no; -ENOSPC, -EDQUOT: its packs
// were removed again; -EIO, -ENOMEM, ...: errors of packing.h and of read(2).
int ckpt_early_pack_file(struct ckpt_early_pack *early, struct ckpt_closed_file *file);
uint64_t ckpt_early_pack_making(const struct ckpt_early_pack *early); // the bytes of the pack that was not put yet
// Puts the pack in the making, and frees the buffers. Chunks that could not be put are packed after the commit.
int ckpt_early_pack_rest(struct ckpt_early_pack *early);
// Its packs are removed: the room is short. The bytes that this has freed. Nothing is packed any more.
uint64_t ckpt_early_pack_drop(struct ckpt_early_pack *early);
const struct ckpt_packing *ckpt_early_pack_packing(const struct ckpt_early_pack *early);
