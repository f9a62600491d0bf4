// The index: an LMDB environment that says fast what the store says slowly. A cache in the strict sense: every byte of
// it can be rebuilt from the store, and whatever is missing, stale, damaged or of another store is thrown away and
// rebuilt by the caller; a bad index never ends the process and never gives wrong bytes.
//
// Tables: manifest (SHA-256 -> encoded manifest: the files of a version, path -> file, in searchable form), chunk (SHA-256 ->
// where in which pack), pack (what the chunk table has of it), meta (store id, format). Each value carries its own 64-bit
// checksum. The log says which versions there are (core/state/journal.h): the index does not know them.
//
// Calling sequence: ckpt_index_open(), calls, ckpt_index_close(). Open once per process, after every fork.
// Threads: any thread, any call; writes are serialized by LMDB. No read transaction outlives a call, and callbacks run
// outside of any transaction. Every call may block on the disk.
// Errors: -ENOENT; -EBADMSG damage seen now (the caller calls ckpt_index_reset and rebuilds); -EROFS a write to one that
// was opened readonly; -EINVAL a manifest that is too long, a pack without chunks; -ENOSPC, -ENOMEM, -EIO.
//
// What it does not promise: after a power cut, or a flipped bit in the page that names the newest transaction, it may be
// whole but one transaction old, and any manifest may be missing. So a miss is never an answer: the store has it. With
// -EIO it may have lost its file and stays so until ckpt_index_reset.
#pragma once

#include "core/record/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_index;

// Opens or creates the environment in directory path. The first full check runs in a forked child, so that a damaged
// file kills the child and not us: then the old files are renamed aside (one set kept, "index.bad") and a new, empty
// index is made. *ret_fresh: it was created or thrown away, rebuild it. readonly: never writes, -ENOENT if absent,
// -EBADMSG if damaged. -EBUSY: this process has it open. -EMEDIUMTYPE on a network filesystem or FUSE (by statfs magic).
int ckpt_index_open(const char *path, const char *store_id, bool readonly, struct ckpt_index **ret_index,
		    bool *ret_fresh);
// The same with an address space of map_bytes to begin with (0: the default, 64 GiB); it doubles when full.
int ckpt_index_open_sized(const char *path, const char *store_id, bool readonly, uint64_t map_bytes,
			  struct ckpt_index **ret_index, bool *ret_fresh);
void ckpt_index_close(struct ckpt_index *ix); // NULL is fine
// Forgets everything, keeps the environment open.
int ckpt_index_reset(struct ckpt_index *ix);
uint64_t ckpt_index_resets(const struct ckpt_index *ix); // how often that was since it was opened

// --- Manifests -----------------------------------------------------------------------------------------------------------

// Puts one, in place of what there was of this digest. The index does not compare the two: a reader does. One transaction.
int ckpt_index_put_manifest(struct ckpt_index *ix, const uint8_t sha256[32], const void *data, size_t len);
// The encoded manifest, malloc'ed; the caller checks its SHA-256 by parsing it.
int ckpt_index_manifest(struct ckpt_index *ix, const uint8_t sha256[32], void **ret_data, size_t *ret_len);

// --- Chunks in packs (dedupe.h) ------------------------------------------------------------------------------------------

// All chunks of packs, over what was known of them, in as few transactions as may be: while some are missing, a pack is not `whole`.
struct ckpt_pack_chunks {
	struct ckpt_pack pack;
	const struct ckpt_chunk *chunks;
	size_t count; // 1 to 2^32 - 1
};
int ckpt_index_put_packs(struct ckpt_index *ix, const struct ckpt_pack_chunks *packs, size_t count);
int ckpt_index_put_pack(struct ckpt_index *ix, const struct ckpt_pack *pack, const struct ckpt_chunk *chunks,
			size_t count);
// In which pack a chunk is, or was; a hint. ret_chunk->pack is 0. -ENOENT.
int ckpt_index_chunk(struct ckpt_index *ix, const uint8_t id[32], struct ckpt_chunk *ret_chunk,
		     struct ckpt_pack *ret_pack);
// Every pack, by id; outside of any transaction. A non-zero return of fn ends it and is returned.
typedef int ckpt_index_pack_fn(void *arg, const struct ckpt_pack *pack, bool whole);
int ckpt_index_each_pack(struct ckpt_index *ix, ckpt_index_pack_fn *fn, void *arg);
// The same of chunks, with the pack that each is in, without its digest.
typedef int ckpt_index_chunk_fn(void *arg, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack);
int ckpt_index_each_chunk(struct ckpt_index *ix, ckpt_index_chunk_fn *fn, void *arg);
// Forgets packs, sorted by id, and the chunks that it has in them. It looks at all chunks.
int ckpt_index_drop_packs(struct ckpt_index *ix, const struct ckpt_pack *packs, size_t count);

// --- Figures -------------------------------------------------------------------------------------------------------------

struct ckpt_index_stat {
	uint64_t manifests, chunks, packs, bytes_used, bytes_file;
};
int ckpt_index_stat(struct ckpt_index *ix, struct ckpt_index_stat *ret_stat);
