#include "core/tier/cool.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/condemned_chunks.h"
#include "core/cold/dedupe.h"
#include "core/cold/earlier.h"
#include "core/cold/packing.h"
#include "core/cold/plan.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/tier/encode.h"
#include "core/tier/seal.h"
#include "core/tier/sealer.h"

#include <limits.h>

// What a step's chunks are and where they are put is collected in a table by their ids, without a lock that clients want; a
// version that says so is put under that of all acts, unless the one that is there says it already. The raw files go after it
// (cool_sweep.c).
//
// Invariants:
//  1. A chunk is in the table once its bytes were read back from what will be, or is, its pack, and are those of its id.
//  2. A raw file goes only when a version is durable by which all of its chunks are in packs that are durable, and all of them are in
//     the table: what was packed before is read back again.
//  3. Each pack of the table is pinned from before the first look at it to that version (pack_pins.h), so that none of them goes
//     meanwhile.
//  4. What a chunk in the table is decoded beside is in the table. Weights are encoded beside their master after all else, so that
//     it is there; whatever becomes of its file then, the version names its place. What another step has is put there when the
//     first chunk needs it.
//  5. A pack that was put for another step is durable: the index has no others (dedupe.h), and versions name no others.

#define WAIT_NS INT64_C(200000000) // for another step, before it is asked whether to go on
#define BAD_FILES_MAX 8            // that are told one by one; with more it is not the files

struct cooling {
	struct ckpt_step *step;
	const struct ckpt_tier_how *how;
	struct ckpt_tier_done *done;
	struct ckpt_manifest *m;
	struct ckpt_packing packing; // of its chunks base is the row + 1 in bases
	struct ckpt_encode encode;
	uint8_t (*bases)[CKPT_SHA256_LEN]; // ids of what chunks in the table are decoded beside
	size_t base_count, base_cap;
	struct ckpt_plan *plan;
	struct ckpt_earlier *earlier; // may be NULL
	uint8_t *base;                // of the chunk in hand, for CKPT_BASED_BYTES_MAX of weights
	int master_fd;                // of this file, of which the last one was that was a master
	uint32_t master_index;
	bool beside; // those with a master are in hand now, else all others
	bool *bad;   // by index of the entry: it was told that the file is
	unsigned bad_count;
	bool any;   // chunk that is elsewhere by the version that is being made
	bool older; // than the current one is the version: its raw files may be removed meanwhile
	bool anew;  // and it names packs that are condemned
};

// --- Masters ------------------------------------------------------------------------------------------------------------

// How many are below it, one beside the other's.
static unsigned depth_of(const struct cooling *c, const struct ckpt_chunk *chunk)
{
	unsigned deepest = 0;

	for (uint32_t i = 0; i < chunk->base_count; i++)
		deepest = MAX(deepest, depth_of(c, ckpt_packing_find(&c->packing, c->bases[chunk->base - 1 + i])) + 1);
	return deepest;
}

// One behind the other: *first is the row + 1 of the first.
static int add_base(struct cooling *c, const uint8_t *id, uint32_t *first)
{
	int rc = ckpt_grow((void **)&c->bases, &c->base_cap, c->base_count + 1, sizeof(*c->bases));

	if (rc)
		return rc;
	memcpy(c->bases[c->base_count++], id, CKPT_SHA256_LEN);
	if (!*first)
		*first = (uint32_t)c->base_count;
	return 1;
}

// What a chunk may be encoded beside: its master in this step, or what stands in its place in an earlier one.
struct beside {
	enum ckpt_codec_id with;
	const void *bytes; // NULL: nothing
	// Of an earlier one.
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
};

static int take_masters(struct cooling *c, struct ckpt_chunk *chunk, const struct ckpt_planned *planned)
{
	struct ckpt_chunk base;
	int rc = 1;

	chunk->base_count = planned->base_count;
	for (uint32_t i = 0; i < chunk->base_count && rc > 0; i++) {
		ckpt_manifest_chunk(c->m, planned->base_first + i, &base);
		rc = add_base(c, base.id, &chunk->base);
	}
	return MIN(rc, 0);
}

static int take_earlier(struct cooling *c, struct ckpt_chunk *chunk, const struct beside *beside)
{
	int rc = ckpt_packing_find(&c->packing, beside->chunk.id)
			 ? 0
			 : ckpt_packing_use(&c->packing, &beside->chunk, &beside->pack);

	chunk->base_count = 1;
	if (!rc)
		rc = add_base(c, beside->chunk.id, &chunk->base);
	return MIN(rc, 0);
}

// What the chunk as it is stored now is decoded beside.
static int take_bases(struct cooling *c, struct ckpt_chunk *chunk, const struct ckpt_planned *planned,
		      const struct beside *beside)
{
	chunk->base = chunk->base_count = 0;
	return chunk->how.codec == CKPT_CODEC_ROUND   ? take_masters(c, chunk, planned)
	       : chunk->how.codec == CKPT_CODEC_DELTA ? take_earlier(c, chunk, beside)
						      : 0;
}

static int need_base(struct cooling *c)
{
	if (!c->base)
		c->base = malloc(ckpt_codec_base_bytes(CKPT_CODEC_ROUND, CKPT_BASED_BYTES_MAX));
	return c->base ? 0 : -ENOMEM;
}

static int open_master(struct cooling *c, const struct ckpt_planned *planned)
{
	if (c->master_fd >= 0 && c->master_index == planned->base_index)
		return 0;
	if (c->master_fd >= 0)
		close(c->master_fd);
	c->master_fd = -1;
	c->master_index = planned->base_index;
	return ckpt_step_open_raw(c->step, c->m, planned->base_index, &c->master_fd);
}

// Its bytes from the raw file, as they are in the packs, too. None where they are not what was sealed, or not packed, or too deep: then
// the weights are encoded alone.
static int load_master(struct cooling *c, const struct ckpt_planned *planned, struct beside *ret_beside)
{
	uint8_t id[CKPT_SHA256_LEN];
	uint64_t at = planned->base_at;
	uint8_t *to;

	*ret_beside = (struct beside){.with = CKPT_CODEC_ROUND};
	if (!planned->base_count || open_master(c, planned))
		return 0;
	if (need_base(c))
		return -ENOMEM;
	to = c->base;
	for (uint32_t i = 0; i < planned->base_count; i++) {
		const struct ckpt_chunk *placed;
		struct ckpt_chunk base;

		ckpt_manifest_chunk(c->m, planned->base_first + i, &base);
		placed = ckpt_packing_find(&c->packing, base.id);
		if (!placed || depth_of(c, placed) == CKPT_BASE_DEPTH_MAX ||
		    ckpt_sys.pread(c->master_fd, to, base.bytes, (off_t)at) != (ssize_t)base.bytes)
			return 0;
		ckpt_sha256(to, base.bytes, id);
		if (memcmp(id, base.id, sizeof(id)))
			return 0;
		to += base.bytes;
		at += base.bytes;
	}
	ret_beside->bytes = c->base;
	return 0;
}

// None where it cannot be read, or would not be the only one to be read.
static int load_earlier(struct cooling *c, uint32_t row, const struct ckpt_chunk *chunk, struct beside *ret_beside)
{
	const struct ckpt_manifest *m;
	const struct ckpt_chunk *placed;
	struct ckpt_chunk was;
	struct ckpt_pack pack;
	int rc;

	if (!ckpt_earlier_chunk(c->earlier, row, &was, &m) || !memcmp(was.id, chunk->id, sizeof(was.id)))
		return 0;
	placed = ckpt_packing_find(&c->packing, was.id);
	if (placed && placed->base_count)
		return 0;
	ckpt_manifest_pack(m, was.pack - 1, &pack);
	rc = ckpt_packing_hold(&c->packing, &pack);
	if (!rc)
		rc = need_base(c);
	if (!rc)
		rc = ckpt_chunk_read(c->step->store->objects, m, &was, c->packing.codec, c->base);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	*ret_beside = (struct beside){.with = CKPT_CODEC_DELTA, .bytes = c->base, .chunk = was, .pack = pack};
	return 0;
}

// --- Chunks ----------------------------------------------------------------------------------------------------------

// Its bases are in the table by then.
static int encode(struct cooling *c, struct ckpt_chunk *chunk, const struct ckpt_planned *planned,
		  const struct beside *beside)
{
	int rc = ckpt_encode(&c->encode, c->packing.codec, chunk, planned->width, beside->with, beside->bytes);

	return rc ? rc : take_bases(c, chunk, planned, beside);
}

// Into the pack in the making. -EBADMSG: the bytes are not what was sealed.
static int pack_chunk(struct cooling *c, struct ckpt_chunk *chunk, const struct ckpt_planned *planned,
		      const struct beside *beside)
{
	int rc = encode(c, chunk, planned, beside);

	return rc ? rc : ckpt_encode_pack_unsure(&c->encode, &c->packing, chunk);
}

// What was read back from a pack is there. 1, -errno.
static int use_packed(struct cooling *c, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack)
{
	int rc = ckpt_packing_use(&c->packing, chunk, pack);

	return rc ? rc : 1;
}

// What the manifest says of a chunk, or base, that was read back, with all that it is decoded beside. 1; 0: it would be too deep
// by where that is now.
static int use_placed(struct cooling *c, const struct ckpt_chunk *chunk)
{
	struct ckpt_chunk used = *chunk, base;
	struct ckpt_pack pack;
	int rc = 1;

	used.base = 0;
	for (uint32_t i = 0; i < chunk->base_count && rc > 0; i++) {
		ckpt_manifest_base(c->m, chunk->base - 1 + i, &base);
		if (!ckpt_packing_find(&c->packing, base.id))
			rc = use_placed(c, &base);
	}
	for (uint32_t i = 0; i < chunk->base_count && rc > 0; i++) {
		ckpt_manifest_base(c->m, chunk->base - 1 + i, &base);
		rc = depth_of(c, ckpt_packing_find(&c->packing, base.id)) < CKPT_BASE_DEPTH_MAX
			     ? add_base(c, base.id, &used.base)
			     : 0;
	}
	ckpt_manifest_pack(c->m, chunk->pack - 1, &pack);
	return rc > 0 ? use_packed(c, &used, &pack) : rc;
}

// The pack of a chunk of the manifest, and those of all that it is decoded beside.
static int hold_packs(struct cooling *c, const struct ckpt_chunk *chunk)
{
	struct ckpt_chunk base;
	struct ckpt_pack pack;
	int rc;

	ckpt_manifest_pack(c->m, chunk->pack - 1, &pack);
	rc = ckpt_packing_hold(&c->packing, &pack);
	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		ckpt_manifest_base(c->m, chunk->base - 1 + i, &base);
		rc = hold_packs(c, &base);
	}
	return rc;
}

// It was packed before, and the file has a raw file all the same. 1: it is still there.
static int keep_packed(struct cooling *c, const struct ckpt_chunk *chunk)
{
	int rc = hold_packs(c, chunk);

	if (!rc)
		rc = ckpt_chunk_read(c->step->store->objects, c->m, chunk, c->packing.codec, c->encode.back);
	if (rc == -ESTALE || rc == -EBADMSG || rc == -ENOENT || rc == -ENOTSUP || rc == -EIO)
		return 0; // the raw file has its bytes
	return rc ? rc : use_placed(c, chunk);
}

// Another step has put it there. 1: and it is there.
static int share_packed(struct cooling *c, const struct ckpt_chunk *chunk, const struct ckpt_planned *planned,
			const struct beside *beside)
{
	struct ckpt_chunk found;
	struct ckpt_pack pack;
	int rc = ckpt_encode_share(&c->encode, &c->packing, chunk, beside->with, beside->bytes, &found, &pack);

	if (rc > 0 && (rc = take_bases(c, &found, planned, beside)) == 0) {
		c->done->deduplicated_bytes += chunk->bytes;
		rc = use_packed(c, &found, &pack);
	}
	return rc;
}

// This process has put it there before the commit, and has compared it then (early_pack.h). 1: and it is held.
static int take_early(struct cooling *c, const struct ckpt_chunk *chunk)
{
	struct ckpt_chunk found = *chunk;
	struct ckpt_pack pack;
	int rc;

	if (!c->how->early || !ckpt_packing_locate(c->how->early, &found, &pack) || found.bytes != chunk->bytes)
		return 0;
	rc = ckpt_packing_hold(&c->packing, &pack);
	return rc ? (rc == -ESTALE ? 0 : rc) : use_packed(c, &found, &pack);
}

// --- Files --------------------------------------------------------------------------------------------------------------

// From the raw file; fd < 0: there is none, and the pack is read, even a condemned one. -EBADMSG: the bytes are not there, or damaged.
// Those of a raw file are not compared with what was sealed yet.
static int read_plain(struct cooling *c, int fd, uint64_t at, const struct ckpt_chunk *chunk)
{
	ssize_t n;
	int rc;

	if (fd < 0) {
		rc = ckpt_chunk_read(c->step->store->objects, c->m, chunk, c->packing.codec, c->encode.plain);
		return rc == -EIO || rc == -ENOENT || rc == -ESTALE || rc == -ENOTSUP ? -EBADMSG : rc;
	}
	n = ckpt_sys.pread(fd, c->encode.plain, chunk->bytes, (off_t)at);
	if (n < 0)
		return n == -EIO ? -EBADMSG : (int)n;
	return (size_t)n == chunk->bytes ? 0 : -EBADMSG;
}

static int cool_chunk(struct cooling *c, int fd, uint64_t at, uint32_t row)
{
	const struct ckpt_planned *planned = ckpt_plan_chunk(c->plan, row);
	struct ckpt_chunk chunk;
	struct beside beside;
	int rc;

	ckpt_manifest_chunk(c->m, row, &chunk);
	if (c->older && chunk.pack && !ckpt_chunk_is_condemned(c->step->store, c->m, &chunk))
		return 0; // it stays where it is
	if (ckpt_packing_find(&c->packing, chunk.id)) {
		c->done->deduplicated_bytes += chunk.bytes;
		return 0;
	}
	rc = ckpt_encode_need(&c->encode, chunk.bytes);
	if (!rc && chunk.pack)
		rc = keep_packed(c, &chunk);
	if (!rc)
		rc = take_early(c, &chunk);
	if (!rc)
		rc = load_master(c, planned, &beside);
	if (!rc)
		rc = share_packed(c, &chunk, planned, &beside);
	if (!rc && !beside.bytes)
		rc = load_earlier(c, row, &chunk, &beside);
	if (!rc && beside.with == CKPT_CODEC_DELTA)
		rc = share_packed(c, &chunk, planned, &beside);
	if (rc)
		return MIN(rc, 0);
	rc = read_plain(c, fd, at, &chunk);
	return rc ? rc : pack_chunk(c, &chunk, planned, &beside);
}

static void complain(struct cooling *c, uint32_t index)
{
	char path[PATH_MAX] = "a file";

	if (c->older || ckpt_step_state(c->step) != CKPT_STEP_COMMITTED)
		return; // it was removed meanwhile, with its files
	ckpt_manifest_path(c->m, index, path, sizeof(path));
	ckpt_errlog_add(c->step->store->errlog, c->step->name, -EIO,
			"run `ckptfs verify --read-data` on the store; restore the file from another copy",
			"%s cannot be read, or its bytes do not match its SHA-256: it was not cooled", path);
}

static bool is_in_hand(const struct cooling *c, uint32_t row)
{
	return c->beside == (ckpt_plan_chunk(c->plan, row)->base_count > 0);
}

static bool any_in_hand(const struct cooling *c, const struct ckpt_seal *seal)
{
	uint32_t i = 0;

	while (i < seal->count && !is_in_hand(c, seal->first + i))
		i++;
	return i < seal->count;
}

// A cooling that was cut off may have left other names of it than the first.
static int open_any_name(const struct cooling *c, const struct ckpt_entry *e, int *ret_fd)
{
	int rc = ckpt_step_open_raw(c->step, c->m, e->index, ret_fd);

	for (uint32_t i = e->index + 1; rc == -EIO && e->nlink > 1 && i < ckpt_manifest_count(c->m); i++)
		if (ckpt_manifest_first_link(c->m, i) == e->index)
			rc = ckpt_step_open_raw(c->step, c->m, i, ret_fd);
	return rc;
}

static int cool_file(struct cooling *c, const struct ckpt_entry *e, const struct ckpt_seal *seal)
{
	CLEANUP_FD int fd = -1;
	uint64_t at = 0;
	int rc = open_any_name(c, e, &fd);

	if (rc == -EIO && e->content == CKPT_CONTENT_CHUNKS) {
		if (!c->anew)
			return 0; // there is no raw file
		rc = 0;
	}
	if (rc == -EIO)
		rc = -EBADMSG;
	for (uint32_t i = 0; i < seal->count && !rc; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(c->m, seal->first + i, &chunk);
		if (is_in_hand(c, seal->first + i)) {
			rc = cool_chunk(c, fd, at, seal->first + i);
			if (!rc && c->how->go_on && !c->how->go_on(c->how->arg, chunk.bytes))
				rc = -EINTR;
		}
		at += chunk.bytes;
	}
	if (rc != -EBADMSG)
		return rc;
	complain(c, e->index);
	c->bad[e->index] = true;
	return ++c->bad_count < BAD_FILES_MAX ? 0 : -EIO;
}

static int cool_those_in_hand(struct cooling *c)
{
	uint32_t count = ckpt_manifest_count(c->m);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct ckpt_entry e;
		struct ckpt_seal seal;

		ckpt_manifest_entry(c->m, i, &e);
		if (!e.bytes || e.type != CKPT_ENTRY_FILE || ckpt_manifest_first_link(c->m, i) != i || c->bad[i])
			continue;
		if (c->older && !c->anew && e.content == CKPT_CONTENT_CHUNKS)
			continue; // its raw file stays: nothing is read back
		rc = !ckpt_manifest_seal(c->m, i, &seal) ? -ENODATA
		     : any_in_hand(c, &seal)             ? cool_file(c, &e, &seal)
							 : 0;
	}
	return rc;
}

static int cool_files(struct cooling *c)
{
	int rc = ckpt_plan_new(c->step, c->m, c->how->go_on, c->how->arg, &c->plan), put_rc;

	if (!rc)
		rc = ckpt_earlier_find(c->step, c->m, c->step->store->settings.delta, &c->earlier);
	c->bad = ckpt_calloc(ckpt_manifest_count(c->m), sizeof(*c->bad));
	if (!rc && !c->bad)
		rc = -ENOMEM;
	if (!rc)
		rc = cool_those_in_hand(c);
	c->beside = true;
	if (!rc)
		rc = cool_those_in_hand(c);
	if (rc && rc != -EINTR)
		return rc;
	put_rc = ckpt_packing_put(&c->packing); // also what was packed by an end: it is found there another time
	return rc ? rc : put_rc;
}

// --- The version --------------------------------------------------------------------------------------------------------

static bool is_elsewhere(const struct ckpt_chunk *was, const struct ckpt_pack *was_in, const struct ckpt_chunk *is,
			 const struct ckpt_pack *in)
{
	return !was->pack || was->offset != is->offset || memcmp(was_in->id, in->id, sizeof(in->id));
}

// A chunk that the table does not have stays where it is. The content of a file follows from its chunks.
static void locate(void *arg, struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	const struct ckpt_chunk was = *chunk;
	struct cooling *c = arg;
	struct ckpt_pack was_in = {0};

	if (was.pack)
		was_in = *pack;
	if (ckpt_packing_locate(&c->packing, chunk, pack) && was.bytes)
		c->any |= is_elsewhere(&was, &was_in, chunk, pack);
}

static bool base(void *arg, const struct ckpt_chunk *chunk, uint32_t i, struct ckpt_chunk *ret_base)
{
	const struct cooling *c = arg;

	if (!ckpt_packing_find(&c->packing, chunk->id))
		return false;
	*ret_base = (struct ckpt_chunk){0};
	memcpy(ret_base->id, c->bases[chunk->base - 1 + i], sizeof(ret_base->id));
	return true;
}

static int try_put(struct cooling *c, bool *adopted)
{
	struct ckpt_edit d = {.step = c->step,
			      .event = CKPT_EVENT_COOL,
			      .same_files = true,
			      .locate = locate,
			      .base = base,
			      .arg = c};
	int rc = ckpt_edit_begin(&d, adopted);

	c->any = false;
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc && c->any) {
		ckpt_raws_left(c->step, true);
		rc = ckpt_edit_put(&d);
	}
	ckpt_edit_done(&d);
	return rc;
}

static int put(struct cooling *c)
{
	LOCK_SCOPE(&c->step->store->acts_lock);
	bool adopted = false;
	int rc = -EAGAIN;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_put(c, &adopted);
	return rc == -EAGAIN ? -EIO : rc;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static bool is_quiet(int rc)
{
	return !rc || rc == -EINTR || rc == -ESTALE || rc == -EBUSY || rc == -ENODATA;
}

static void cooling_done(struct cooling *c)
{
	c->done->stored_bytes = c->packing.put_bytes;
	ckpt_packing_done(&c->packing);
	ckpt_manifest_unref(c->m);
	ckpt_encode_done(&c->encode);
	free(c->bases);
	free(c->base);
	free(c->bad);
	ckpt_plan_free(c->plan);
	ckpt_earlier_free(c->earlier);
	if (c->master_fd >= 0)
		close(c->master_fd);
}

static void all_named(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->lock);

	free(ckpt_unnamed_of(step)->unnamed);
	ckpt_unnamed_of(step)->unnamed = NULL;
	ckpt_unnamed_of(step)->unnamed_count = 0;
}

// What becomes of the packs that were put. Where the disk is too full for the version, they go as soon as garbage does; else another
// attempt finds them there.
static void settle_packs(struct cooling *c, int rc)
{
	if (rc == -ESTALE || rc == -EBUSY || ckpt_is_full(rc))
		ckpt_packing_expect_garbage(&c->packing);
	else if (rc)
		ckpt_packing_leave(&c->packing, c->step);
	else
		all_named(c->step);
}

// Packs that no version names would keep a full disk full until they are old enough to go as garbage.
static int pack_files(struct cooling *c)
{
	int rc;

	ckpt_dedupe_look(c->step->store);
	rc = ckpt_packing_init(&c->packing, c->step->store, c->how->pack_bytes);
	c->packing.told = c->how->put;
	c->packing.told_arg = c->how->arg;
	if (!rc)
		rc = cool_files(c);
	if (ckpt_is_full(rc))
		ckpt_packing_drop(&c->packing);
	return rc;
}

static int cool(struct cooling *c)
{
	int rc = ckpt_step_state(c->step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(c->step, &c->m) : -ESTALE;

	if (!rc)
		rc = pack_files(c);
	if (ckpt_is_full(rc))
		return rc;
	if (!rc)
		rc = put(c);
	settle_packs(c, rc);
	return rc;
}

// And is where this version says, which may have been put since.
static bool was_read_back(void *arg, const struct ckpt_manifest *m, uint32_t index)
{
	const struct cooling *c = arg;
	struct ckpt_seal seal;

	if (!ckpt_manifest_seal(m, index, &seal))
		return false;
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk, there;
		struct ckpt_pack pack, there_in;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		ckpt_manifest_pack(m, chunk.pack - 1, &pack);
		there = chunk;
		if (!ckpt_packing_locate(&c->packing, &there, &there_in) ||
		    is_elsewhere(&chunk, &pack, &there, &there_in))
			return false;
	}
	return true;
}

static int sweep(struct cooling *c)
{
	return ckpt_cool_sweep(&(struct ckpt_sweep){.step = c->step, .how = c->how, .goes = was_read_back, .arg = c},
			       c->done);
}

// One step of a store at a time: a cooling has buffers for three chunks and their bases.
static int take_turn(struct ckpt_store *s, const struct ckpt_tier_how *how)
{
	struct ckpt_cool_turn *turn = ckpt_cool_turn_of(s);
	int rc = 0;

	if (how->at_once)
		return ckpt_lock_try_ns(&turn->lock, 0) ? 0 : -EBUSY;
	__atomic_add_fetch(&turn->wanted, 1, __ATOMIC_RELAXED);
	while (!rc && !ckpt_lock_try_ns(&turn->lock, WAIT_NS))
		rc = how->go_on && !how->go_on(how->arg, 0) ? -EINTR : 0;
	__atomic_sub_fetch(&turn->wanted, 1, __ATOMIC_RELAXED);
	return rc;
}

bool ckpt_cool_is_wanted(const struct ckpt_store *s)
{
	return __atomic_load_n(&ckpt_cool_turn_of(s)->wanted, __ATOMIC_RELAXED);
}

int ckpt_cool(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done)
{
	struct cooling c = {.step = step, .how = how, .done = ret_done, .master_fd = -1};
	int rc = take_turn(step->store, how);

	*ret_done = (struct ckpt_tier_done){0};
	if (rc)
		return rc;
	rc = cool(&c);
	ckpt_lock_drop(&ckpt_cool_turn_of(step->store)->lock);
	if (!rc && !how->keeps_raw)
		rc = sweep(&c);
	if (!is_quiet(rc) && !c.bad_count)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "nothing is lost: `ckptfs cool` does it again",
				"its files could not be packed");
	if (!rc && c.bad_count)
		rc = -EIO;
	cooling_done(&c);
	return rc;
}

// --- Of an older version ------------------------------------------------------------------------------------------------

static int make_packed(struct cooling *c, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_edit d = {.step = c->step,
			      .same_files = true,
			      .locate = locate,
			      .base = base,
			      .arg = c,
			      .m = ckpt_manifest_ref(c->m)};
	int rc = ckpt_edit_copy(&d, 0);

	if (!rc)
		rc = ckpt_edit_make(&d);
	if (!rc)
		*ret_manifest = TAKE_PTR(d.next);
	ckpt_edit_done(&d);
	return rc;
}

static int cool_older(struct cooling *c, struct ckpt_manifest **ret_manifest)
{
	int rc = pack_files(c);

	if (!rc && c->bad_count)
		rc = -EIO;
	if (!rc)
		rc = make_packed(c, ret_manifest);
	if (!ckpt_is_full(rc))
		ckpt_packing_leave(&c->packing, c->step);
	return rc;
}

int ckpt_cool_older(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_tier_how *how,
		    struct ckpt_packing *ret_packing, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_tier_done done = {0};
	struct cooling c = {.step = step, .how = how, .done = &done, .master_fd = -1, .older = true};
	int rc = take_turn(step->store, how);

	if (rc)
		return rc;
	c.m = ckpt_manifest_ref(m);
	c.anew = ckpt_any_pack_is_condemned(step->store, m);
	rc = cool_older(&c, ret_manifest);
	ckpt_lock_drop(&ckpt_cool_turn_of(step->store)->lock);
	if (!rc) {
		*ret_packing = c.packing;
		ret_packing->told = NULL;
		ckpt_packing_rest(ret_packing);
		c.packing = (struct ckpt_packing){0};
	}
	cooling_done(&c);
	return rc;
}

// --- Sealed first -------------------------------------------------------------------------------------------------------

static void take(struct ckpt_step *step)
{
	__atomic_add_fetch(&ckpt_sealing_of(step)->taken, 1, __ATOMIC_RELAXED);
}

static void give_back(struct ckpt_step *step)
{
	__atomic_sub_fetch(&ckpt_sealing_of(step)->taken, 1, __ATOMIC_RELAXED);
}

// Who adds a file between the two has it sealed, too.
int ckpt_cool_sealed(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done)
{
	const struct ckpt_seal_how seal = {.go_on = how->go_on, .arg = how->arg};
	int rc = -ENODATA;

	*ret_done = (struct ckpt_tier_done){0};
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -ENODATA; i++) {
		take(step);
		rc = ckpt_seal(step, &seal);
		give_back(step);
		if (!rc)
			rc = ckpt_cool(step, how, ret_done);
	}
	return rc == -ENODATA ? -EBUSY : rc;
}

const char *ckpt_tier_hint(int error)
{
	return error == -EBUSY    ? "it is being changed or removed; try again later"
	       : error == -ESTALE ? "it is gone, or was replaced; `ckptfs ls --all` lists the steps"
	       : error == -EINTR  ? "the mount is ending"
	       : error == -EIO    ? "`ckptfs verify --read-data` says which file; .ckptfs/errors in the mount says more"
				  : NULL;
}

static void turn_init(void *store)
{
	ckpt_lock_init(&ckpt_cool_turn_of(store)->lock, CKPT_LOCK_COOL);
}

static void turn_done(void *store)
{
	ckpt_lock_done(&ckpt_cool_turn_of(store)->lock);
}

struct ckpt_part ckpt_cool_turn_part = {.bytes = sizeof(struct ckpt_cool_turn), .init = turn_init, .done = turn_done};
