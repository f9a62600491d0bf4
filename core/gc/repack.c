#include "core/gc/repack.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/dedupe.h"
#include "core/cold/packing.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/tier/seal.h"

#include <limits.h>

// Invariants:
//  1. A chunk is in the table of places once its stored bytes were decoded and compared with its id.
//  2. A version names a new pack only when that is durable, and still the old one for each chunk that has no place.
//  3. store->acts_lock is held over a version alone, never while chunks are read or packs are put.

#define DAMAGED_TOLD_MAX 8
#define GIVE_WAY 3 // times as long as it worked it leaves the machine to others
#define REST_MAX_NS INT64_C(1000000000)
#define MOVED                                                                                                          \
	(UINT32_C(1)                                                                                                   \
	 << 31) // in the base of a chunk: its bases are ours, not those of a manifest, which has not so many
#define NAP_NS INT64_C(20000000) // so long at once, to hear of its end

struct repacking {
	struct ckpt_store *store;
	const struct ckpt_repack_how *how;
	struct ckpt_sparse *packs;
	size_t pack_count;
	struct ckpt_packing packing;       // of its chunks base is the row in bases + MOVED
	uint8_t (*bases)[CKPT_SHA256_LEN]; // ids of what chunks in the table are decoded beside, which are there, too
	size_t base_count, base_cap;
	uint8_t *stored, *plain; // of buf_bytes each
	uint32_t buf_bytes;
	int64_t rested_ns; // monotonic
	unsigned damaged_told;
	uint64_t moved_bytes;
	bool named; // a version may name what was put
	bool any;   // chunk that is elsewhere by the version that is being made
};

// --- Which packs --------------------------------------------------------------------------------------------------------

bool ckpt_is_sparse(uint64_t used_bytes, uint64_t unused_bytes)
{
	return used_bytes && used_bytes < unused_bytes;
}

static int by_gain(const void *a, const void *b)
{
	const struct ckpt_sparse *x = *(struct ckpt_sparse *const *)a, *y = *(struct ckpt_sparse *const *)b;
	unsigned __int128 left = (unsigned __int128)x->unused_bytes * y->used_bytes,
			  right = (unsigned __int128)y->unused_bytes * x->used_bytes;

	if (x->stuck != y->stuck)
		return x->stuck - y->stuck;
	return (left < right) - (left > right);
}

static void choose(struct ckpt_sparse **packs, size_t count, uint64_t room, const struct ckpt_repack_how *how)
{
	uint64_t bytes = 0, chunks = 0;

	for (size_t i = 0; i < count; i++) {
		struct ckpt_sparse *p = packs[i];

		if (bytes + p->used_bytes > room) {
			p->fate = CKPT_SPARSE_NO_ROOM;
		} else if (bytes &&
			   (bytes + p->used_bytes > how->bytes_max || chunks + p->used_chunks > how->chunks_max)) {
			p->fate = CKPT_SPARSE_LATER;
		} else {
			p->fate = CKPT_SPARSE_CHOSEN;
			bytes += p->used_bytes;
			chunks += p->used_chunks;
		}
	}
}

void ckpt_repack_choose(struct ckpt_store *s, struct ckpt_sparse *packs, size_t count,
			const struct ckpt_repack_how *how)
{
	CLEANUP_FREE struct ckpt_sparse **order = ckpt_calloc(count + 1, sizeof(struct ckpt_sparse *));
	uint64_t room = 0, all;

	for (size_t i = 0; i < count; i++)
		packs[i].fate = CKPT_SPARSE_NO_ROOM;
	if (!order || ckpt_sys.room(s->dirfd, &room, &all))
		return;
	for (size_t i = 0; i < count; i++)
		order[i] = &packs[i];
	qsort(order, count, sizeof(*order), by_gain);
	choose(order, count, room / 2, how);
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_sparse *)a)->pack.id, ((const struct ckpt_sparse *)b)->pack.id,
		      CKPT_SHA256_LEN);
}

// The pack that is being emptied; NULL: this is none.
static struct ckpt_sparse *sparse_of(const struct repacking *r, const struct ckpt_pack *pack)
{
	const struct ckpt_sparse want = {.pack = *pack};
	struct ckpt_sparse *found =
		r->pack_count ? bsearch(&want, r->packs, r->pack_count, sizeof(*r->packs), by_id) : NULL;

	return found && (found->fate == CKPT_SPARSE_CHOSEN || found->fate == CKPT_SPARSE_DAMAGED ||
			 found->fate == CKPT_SPARSE_NEEDED)
		       ? found
		       : NULL;
}

// A damaged one is that in the first place.
static void still_needed(struct ckpt_sparse *sparse)
{
	if (sparse->fate == CKPT_SPARSE_CHOSEN)
		sparse->fate = CKPT_SPARSE_NEEDED;
}

// --- Chunks -------------------------------------------------------------------------------------------------------------

static int need_room(struct repacking *r, uint32_t bytes)
{
	if (bytes <= r->buf_bytes)
		return 0;
	r->buf_bytes = 0;
	free(r->stored);
	free(r->plain);
	r->stored = malloc(bytes);
	r->plain = malloc(bytes);
	if (!r->stored || !r->plain)
		return -ENOMEM;
	r->buf_bytes = bytes;
	return 0;
}

// Its stored bytes, which are those of its id. -EBADMSG and the like: they are not, or cannot be read.
static int read_stored(struct repacking *r, const struct ckpt_manifest *m, const struct ckpt_pack *pack,
		       const struct ckpt_chunk *chunk)
{
	CLEANUP_FREE uint8_t *base = NULL;
	uint8_t id[CKPT_SHA256_LEN];
	int rc = need_room(r, MAX(chunk->bytes, chunk->how.bytes));

	if (!rc)
		rc = ckpt_pack_read_stored(r->store->objects, pack, chunk, r->stored);
	if (!rc)
		rc = ckpt_chunk_read_bases(r->store->objects, m, chunk, r->packing.codec, &base);
	if (!rc)
		rc = ckpt_codec_decode_beside(r->packing.codec, &chunk->how, r->stored, base, r->plain, chunk->bytes);
	if (rc)
		return rc;
	ckpt_sha256(r->plain, chunk->bytes, id);
	return memcmp(id, chunk->id, sizeof(id)) ? -EBADMSG : 0;
}

static bool is_damage(int rc)
{
	return rc == -EBADMSG || rc == -ENOTSUP || rc == -EIO;
}

static void complain(struct repacking *r, struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index)
{
	char path[PATH_MAX] = "a file";

	if (r->how->quiet || r->damaged_told++ >= DAMAGED_TOLD_MAX)
		return;
	ckpt_manifest_path(m, index, path, sizeof(path));
	ckpt_errlog_add(r->store->errlog, step->name, -EIO,
			"run `ckptfs verify --read-data` on the store; restore the file from another copy",
			"a part of %s cannot be read, or its bytes do not match its SHA-256: its pack stays", path);
}

static int rest(struct repacking *r)
{
	const struct ckpt_repack_how *how = r->how;
	int64_t now_ns = ckpt_sys.mono_ns(), until_ns = now_ns + MIN((now_ns - r->rested_ns) * GIVE_WAY, REST_MAX_NS);

	while (!how->go_on || how->go_on(how->arg)) {
		if (!how->gently || now_ns >= until_ns) {
			r->rested_ns = now_ns;
			return 0;
		}
		ckpt_sys.sleep_ns(MIN(until_ns - now_ns, NAP_NS));
		now_ns = ckpt_sys.mono_ns();
	}
	return -EINTR;
}

// Somebody has put it elsewhere, as a round that did not come to its end. 1: and it is there.
static int share_chunk(struct repacking *r, const struct ckpt_chunk *chunk)
{
	struct ckpt_chunk found;
	struct ckpt_pack pack;
	int rc;

	if (!ckpt_dedupe_find(r->store, chunk, CKPT_CODEC_NONE, false, &found, &pack) || sparse_of(r, &pack))
		return 0;
	rc = need_room(r, chunk->bytes);
	if (!rc)
		rc = ckpt_packing_hold(&r->packing, &pack);
	if (rc)
		return rc == -ESTALE ? 0 : rc;
	if (!ckpt_dedupe_read(r->store, &found, &pack, r->packing.codec, NULL, r->plain))
		return 0;
	rc = ckpt_packing_use(&r->packing, &found, &pack);
	return rc ? rc : 1;
}

// Those that stay where they are. -ESTALE: their step has gone or changed, and nobody else needs them.
static int hold_bases(struct repacking *r, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	int rc = 0;

	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		struct ckpt_chunk base;
		struct ckpt_pack pack;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		if (ckpt_packing_find(&r->packing, base.id))
			continue;
		ckpt_manifest_pack(m, base.pack - 1, &pack);
		rc = ckpt_packing_hold(&r->packing, &pack);
		if (!rc)
			rc = hold_bases(r, m, &base);
	}
	return rc;
}

// Those in packs that stay are where they are, with their own.
static int use_bases(struct repacking *r, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		     uint32_t *ret_base)
{
	struct ckpt_chunk bases[CKPT_BASE_PIECES_MAX];
	int rc = 0;

	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		struct ckpt_pack pack;

		ckpt_manifest_base(m, chunk->base - 1 + i, &bases[i]);
		if (ckpt_packing_find(&r->packing, bases[i].id))
			continue;
		ckpt_manifest_pack(m, bases[i].pack - 1, &pack);
		rc = use_bases(r, m, &bases[i], &bases[i].base);
		if (!rc)
			rc = ckpt_packing_use(&r->packing, &bases[i], &pack);
	}
	if (!rc)
		rc = ckpt_grow((void **)&r->bases, &r->base_cap, r->base_count + chunk->base_count, sizeof(*r->bases));
	if (rc)
		return rc;
	*ret_base = chunk->base_count ? MOVED + (uint32_t)r->base_count : 0;
	for (uint32_t i = 0; i < chunk->base_count; i++)
		memcpy(r->bases[r->base_count++], bases[i].id, CKPT_SHA256_LEN);
	return 0;
}

// How many are below one that has a place, one beside the other's.
static unsigned depth_of(const struct repacking *r, const struct ckpt_chunk *placed)
{
	unsigned deepest = 0;

	for (uint32_t i = 0; i < placed->base_count; i++)
		deepest = MAX(deepest,
			      depth_of(r, ckpt_packing_find(&r->packing, r->bases[placed->base - MOVED + i])) + 1);
	return deepest;
}

// Whether one of its bases is too deep by its place, or stays in a pack that is being emptied, as what is damaged does.
static bool has_base_that_stays(const struct repacking *r, const struct ckpt_manifest *m,
				const struct ckpt_chunk *chunk)
{
	for (uint32_t i = 0; i < chunk->base_count; i++) {
		const struct ckpt_chunk *found;
		struct ckpt_chunk base;
		struct ckpt_pack pack;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		ckpt_manifest_pack(m, base.pack - 1, &pack);
		found = ckpt_packing_find(&r->packing, base.id);
		if (found ? depth_of(r, found) == CKPT_BASE_DEPTH_MAX
			  : sparse_of(r, &pack) || has_base_that_stays(r, m, &base))
			return true;
	}
	return false;
}

// 1: it is damaged, and stays. What it is decoded beside was moved before.
static int move_chunk(struct repacking *r, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	struct ckpt_chunk moved = *chunk;
	struct ckpt_sparse *sparse;
	struct ckpt_pack pack;
	int rc;

	if (!chunk->pack || ckpt_packing_find(&r->packing, chunk->id))
		return 0;
	ckpt_manifest_pack(m, chunk->pack - 1, &pack);
	sparse = sparse_of(r, &pack);
	if (!sparse)
		return 0;
	rc = share_chunk(r, chunk);
	if (rc)
		return MIN(rc, 0);
	rc = has_base_that_stays(r, m, chunk) ? -ESTALE : hold_bases(r, m, chunk);
	if (rc == -ESTALE) {
		still_needed(sparse);
		return 0;
	}
	if (!rc)
		rc = read_stored(r, m, &pack, chunk);
	if (rc == -ENOENT) { // it was listed: another collection has removed it since, with its last step
		still_needed(sparse);
		return 0;
	}
	if (is_damage(rc)) {
		sparse->fate = CKPT_SPARSE_DAMAGED;
		return 1;
	}
	if (!rc)
		rc = use_bases(r, m, chunk, &moved.base);
	if (!rc)
		rc = ckpt_packing_add(&r->packing, &moved, r->stored, NULL);
	if (!rc)
		r->moved_bytes += chunk->how.bytes;
	return rc ? rc : rest(r);
}

// And before it what it is decoded beside, which no file may have any more.
static int move_with_bases(struct repacking *r, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	int rc = 0, worst = 0;

	for (uint32_t i = 0; i < chunk->base_count && rc >= 0; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		rc = move_with_bases(r, m, &base);
		worst = MAX(worst, rc);
	}
	if (rc >= 0)
		rc = move_chunk(r, m, chunk);
	return rc < 0 ? rc : MAX(worst, rc);
}

static int move_file(struct repacking *r, struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_seal seal;
	bool damaged = false;
	int rc = 0;

	if (ckpt_manifest_first_link(m, index) != index || !ckpt_manifest_seal(m, index, &seal))
		return 0;
	for (uint32_t i = 0; i < seal.count && rc >= 0; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		rc = move_with_bases(r, m, &chunk);
		damaged |= rc > 0;
	}
	if (damaged)
		complain(r, step, m, index);
	return MIN(rc, 0);
}

// --- Versions -----------------------------------------------------------------------------------------------------------

static void locate(void *arg, struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	struct repacking *r = arg;

	if ((!chunk->bytes || (chunk->pack && sparse_of(r, pack))) && ckpt_packing_locate(&r->packing, chunk, pack))
		r->any = true;
}

// With no more than its id: locate() knows it.
static bool base(void *arg, const struct ckpt_chunk *chunk, uint32_t i, struct ckpt_chunk *ret_base)
{
	const struct repacking *r = arg;

	if (chunk->base < MOVED)
		return false;
	*ret_base = (struct ckpt_chunk){0};
	memcpy(ret_base->id, r->bases[chunk->base - MOVED + i], sizeof(ret_base->id));
	return true;
}

static int try_put(struct repacking *r, struct ckpt_step *step, bool *adopted)
{
	struct ckpt_edit d = {
		.step = step, .event = CKPT_EVENT_REPACK, .same_files = true, .locate = locate, .base = base, .arg = r};
	int rc = ckpt_edit_begin(&d, adopted);

	r->any = false;
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc && r->any) {
		r->named = true;
		rc = ckpt_edit_put(&d);
	}
	ckpt_edit_done(&d);
	return rc;
}

static int put(struct repacking *r, struct ckpt_step *step)
{
	LOCK_SCOPE(&r->store->acts_lock);
	bool adopted = false;
	int rc = -EAGAIN;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_put(r, step, &adopted);
	return rc == -EAGAIN ? -EBUSY : rc;
}

// It needs the packs that it needed.
static int keep_packs(struct repacking *r, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_sparse *sparse;
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		sparse = sparse_of(r, &pack);
		if (sparse)
			still_needed(sparse);
	}
	return 0;
}

// --- The act ------------------------------------------------------------------------------------------------------------

typedef int step_fn(struct repacking *r, struct ckpt_step *step, const struct ckpt_manifest *m);

static int move_step(struct repacking *r, struct ckpt_step *step, const struct ckpt_manifest *m)
{
	int rc = 0;

	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++)
		rc = move_file(r, step, m, i);
	return rc;
}

static int put_step(struct repacking *r, struct ckpt_step *step, const struct ckpt_manifest *m)
{
	int rc = put(r, step);

	// -EINVAL: by where its bases are now something would be too deep, since another step has one of them in another form.
	return rc == -ESTALE || rc == -EBUSY || rc == -EINVAL ? keep_packs(r, m) : rc;
}

static bool needs_any(const struct repacking *r, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		if (sparse_of(r, &pack))
			return true;
	}
	return false;
}

// What is gone by now needs nothing, or what keeps its packs is seen by who collects them.
static int each_step(struct repacking *r, struct ckpt_step *const *steps, size_t count, step_fn *fn)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		struct ckpt_manifest *m;

		if (r->how->go_on && !r->how->go_on(r->how->arg))
			return -EINTR;
		rc = ckpt_step_manifest(steps[i], &m);
		if (rc) {
			rc = ckpt_step_state(steps[i]) == CKPT_STEP_COMMITTED ? rc : 0;
			continue;
		}
		if (needs_any(r, m))
			rc = fn(r, steps[i], m);
		ckpt_manifest_unref(m);
	}
	return rc;
}

int ckpt_repack(struct ckpt_store *s, struct ckpt_sparse *packs, size_t count, struct ckpt_step *const *steps,
		size_t step_count, const struct ckpt_repack_how *how, uint64_t *ret_bytes)
{
	struct repacking r = {
		.store = s, .how = how, .packs = packs, .pack_count = count, .rested_ns = ckpt_sys.mono_ns()};
	int rc = ckpt_packing_init(&r.packing, s, s->settings.pack_bytes);

	ckpt_dedupe_look(s);
	if (!rc)
		rc = each_step(&r, steps, step_count, move_step);
	if (!rc)
		rc = ckpt_packing_put(&r.packing);
	if (!rc)
		rc = each_step(&r, steps, step_count, put_step);
	if (rc && !r.named)
		ckpt_packing_drop(&r.packing);
	*ret_bytes = r.moved_bytes;
	ckpt_packing_done(&r.packing);
	free(r.stored);
	free(r.plain);
	free(r.bases);
	return rc;
}

// --- Before -------------------------------------------------------------------------------------------------------------

static bool is_repacked(const struct ckpt_summary *sum)
{
	return !strcmp(sum->event, CKPT_EVENT_REPACK);
}

// A version that has all files of the one before. (One that pins it has the event of that.)
static bool has_the_same_files(const struct ckpt_summary *sum)
{
	return is_repacked(sum) || !strcmp(sum->event, CKPT_EVENT_COOL) || !strcmp(sum->event, CKPT_EVENT_SEAL);
}

static int read_before(struct ckpt_step *step, struct ckpt_summary *sum)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, sum->version - 1, &r);

	if (rc)
		return rc;
	if (strcmp(r.summary.session, sum->session) || r.summary.version != sum->version - 1)
		rc = -ESTALE; // another step had its name
	*sum = r.summary;
	ckpt_record_done(&r);
	return rc;
}

void ckpt_repack_each_before(struct ckpt_step *step, void (*fn)(void *arg, const struct ckpt_manifest *m), void *arg)
{
	bool repacked = false;
	struct ckpt_summary sum;

	ckpt_lock_take(&step->lock);
	sum = step->version->is;
	ckpt_lock_drop(&step->lock);
	while (has_the_same_files(&sum) && sum.version > 1) {
		struct ckpt_manifest *m;

		repacked |= is_repacked(&sum);
		if (read_before(step, &sum))
			return;
		if (!repacked || ckpt_step_read_manifest(step, &sum, &m))
			continue;
		fn(arg, m);
		ckpt_manifest_unref(m);
	}
}
