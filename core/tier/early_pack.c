#include "core/tier/early_pack.h"

#include "core/array/array.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/dedupe.h"
#include "core/cold/plan.h"
#include "core/step/step.h"
#include "core/step/store.h"
#include "core/tier/encode.h"

#include <errno.h>

#define NAPS_MAX 3                  // until a file is settled
#define LEASE_NS INT64_C(500000000) // until who has just closed it has let go of it (core/save/scan.c)
#define LEASE_NAP_NS INT64_C(5000000)

struct ckpt_early_pack {
	struct ckpt_step *step; // a reference
	struct ckpt_early_how how;
	struct ckpt_packing packing;
	struct ckpt_encode encode;
	bool reads_only;   // differences to earlier steps are taller: what is packed now would be in their way
	bool leaves_pairs; // to cool.c
	bool dropped;
};

// --- What is left to the commit -----------------------------------------------------------------------------------------

static bool has_pairs(const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_chunk_count(m); i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, i, &chunk);
		if (chunk.pack && chunk.how.codec == CKPT_CODEC_ROUND)
			return true;
	}
	return false;
}

struct newest {
	struct ckpt_step *step; // a reference
};

static int find_newest_locked(void *arg, struct ckpt_step *step)
{
	struct newest *n = arg;
	bool packed;

	ckpt_lock_take(&step->lock);
	packed = step->version->is.packed;
	ckpt_lock_drop(&step->lock);
	if (!packed || (n->step && n->step->born.sequence > step->born.sequence))
		return 0;
	n->step = step; // it has a name, and so a reference, while the lock is held
	return 0;
}

// By the newest step of the folder that is in packs: what saves into a folder saves the same kind of files.
static bool may_have_pairs(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	struct ckpt_manifest *m = NULL;
	struct newest n = {0};
	struct ckpt_step_name name;
	bool may;

	ckpt_step_name(step, &name);
	ckpt_lock_take(&s->lock);
	(void)ckpt_step_each_locked(s, name.folder_id, 1u << CKPT_STEP_COMMITTED, find_newest_locked, &n);
	if (n.step)
		ckpt_step_ref(n.step);
	ckpt_lock_drop(&s->lock);
	may = !n.step || ckpt_step_manifest(n.step, &m) || has_pairs(m);
	ckpt_manifest_unref(m);
	ckpt_step_unref(n.step);
	return may;
}

int ckpt_early_pack_new(struct ckpt_step *step, const struct ckpt_early_how *how, struct ckpt_early_pack **ret_early)
{
	struct ckpt_early_pack *e = ckpt_calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return -ENOMEM;
	e->step = ckpt_step_ref(step);
	e->how = *how;
	e->reads_only = step->store->settings.delta;
	e->leaves_pairs = !e->reads_only && may_have_pairs(step);
	ckpt_dedupe_look(step->store);
	rc = ckpt_packing_init(&e->packing, step->store, how->pack_bytes);
	e->packing.told = how->put;
	e->packing.told_arg = how->arg;
	if (rc)
		ckpt_early_pack_free(e);
	else
		*ret_early = e;
	return rc;
}

void ckpt_early_pack_expect_garbage(struct ckpt_early_pack *e, const struct ckpt_manifest *m)
{
	ckpt_packing_expect_unnamed(&e->packing, m);
}

void ckpt_early_pack_free(struct ckpt_early_pack *e)
{
	if (!e)
		return;
	ckpt_packing_done(&e->packing);
	ckpt_encode_done(&e->encode);
	ckpt_closed_forget_step(e->step);
	ckpt_step_unref(e->step);
	free(e);
}

// --- A file -------------------------------------------------------------------------------------------------------------

struct reading {
	struct ckpt_early_pack *early;
	struct ckpt_closed_file *file;
	struct ckpt_closed_read read;
	size_t cap; // of its chunks
	struct ckpt_cuts cuts;
	struct ckpt_arrays *arrays; // NULL: it has none
	size_t array;               // the first that does not end before the chunk in hand
	struct ckpt_sha256 whole;
};

static void reading_done(struct reading *r)
{
	ckpt_closed_read_done(&r->read);
	ckpt_cuts_done(&r->cuts);
	ckpt_arrays_free(r->arrays);
}

// 1 of closed.h. -ESTALE: somebody can write it, or nobody knows.
static int take_lease(const struct reading *r)
{
	const struct ckpt_early_how *how = &r->early->how;
	int64_t until_ns = ckpt_sys.mono_ns() + LEASE_NS;
	int rc;

	while ((rc = ckpt_sys.lease(r->file->fd)) == -EAGAIN && ckpt_sys.mono_ns() < until_ns) {
		if (how->go_on && !how->go_on(how->arg, 0))
			return -EINTR;
		ckpt_sys.sleep_ns(LEASE_NAP_NS);
	}
	return rc ? -ESTALE : 0;
}

static int begin(struct reading *r)
{
	struct ckpt_source source;
	int rc;

	for (int i = 0; i < NAPS_MAX; i++) {
		if (fstat(r->file->fd, &r->read.st))
			return -errno;
		if (ckpt_closed_is_settled(&r->read.st, ckpt_sys.now_ns()))
			break;
		ckpt_sys.sleep_ns(CKPT_CLOSED_SETTLED_FINE_NS);
	}
	rc = take_lease(r);
	if (!rc)
		rc = ckpt_packing_ready(&r->early->packing);
	if (rc)
		return rc;
	source = ckpt_source_file(r->file->fd, (uint64_t)r->read.st.st_size);
	rc = ckpt_cuts_init(&r->cuts, &source);
	if (!rc)
		rc = ckpt_arrays_read("", &source, &r->arrays);
	ckpt_sha256_begin(&r->whole);
	return rc;
}

// 0 between the large arrays, as the plan of a step has it.
static unsigned width_at(struct reading *r, uint64_t at, bool *ret_may_pair)
{
	struct ckpt_array a;

	*ret_may_pair = false;
	for (; r->arrays && r->array < ckpt_arrays_count(r->arrays); r->array++) {
		ckpt_arrays_get(r->arrays, r->array, &a);
		if (a.bytes < CKPT_CHUNK_ARRAY_MIN || a.offset + a.bytes <= at)
			continue;
		return a.offset <= at ? ckpt_plan_array(&a, ret_may_pair) : 0;
	}
	return 0;
}

static int pack_chunk(struct ckpt_early_pack *e, const struct ckpt_chunk *read, unsigned width)
{
	struct ckpt_chunk chunk = *read, found;
	struct ckpt_pack pack;
	int rc;

	if (ckpt_packing_find(&e->packing, chunk.id))
		return 0;
	rc = ckpt_encode_share(&e->encode, &e->packing, &chunk, CKPT_CODEC_NONE, NULL, &found, &pack);
	if (rc)
		return rc < 0 ? rc : ckpt_packing_use(&e->packing, &found, &pack);
	rc = ckpt_encode(&e->encode, e->packing.codec, &chunk, width, CKPT_CODEC_NONE, NULL);
	return rc ? rc : ckpt_encode_pack(&e->encode, &e->packing, &chunk);
}

// A file of one chunk has its hash.
static void add_to_sums(struct reading *r, const uint8_t *plain, uint32_t bytes, uint8_t *ret_id)
{
	struct ckpt_sha256 id;

	ckpt_sha256_begin(&id);
	if (bytes == (uint64_t)r->read.st.st_size)
		ckpt_sha256_add(&id, plain, bytes);
	else
		ckpt_sha256_add_both(&id, plain, bytes, &r->whole, plain, bytes);
	ckpt_sha256_end(&id, ret_id);
}

static int read_chunk(struct reading *r, uint64_t at, uint32_t bytes)
{
	struct ckpt_early_pack *e = r->early;
	struct ckpt_chunk chunk = {.bytes = bytes};
	bool may_pair;
	unsigned width = width_at(r, at, &may_pair);
	ssize_t n;
	int rc = ckpt_encode_need(&e->encode, bytes);

	if (!rc)
		rc = ckpt_grow((void **)&r->read.chunks, &r->cap, r->read.count + 1, sizeof(*r->read.chunks));
	if (rc)
		return rc;
	n = ckpt_sys.pread(r->file->fd, e->encode.plain, bytes, (off_t)at);
	if (n < 0)
		return (int)n;
	if ((size_t)n != bytes)
		return -ESTALE; // it was cut off meanwhile
	add_to_sums(r, e->encode.plain, bytes, chunk.id);
	r->read.chunks[r->read.count++] = chunk;
	return e->reads_only || (may_pair && e->leaves_pairs) ? 0 : pack_chunk(e, &chunk, width);
}

static int read_all(struct reading *r)
{
	const struct ckpt_early_how *how = &r->early->how;
	uint64_t all = (uint64_t)r->read.st.st_size;
	uint32_t bytes;
	int rc = 0;

	for (uint64_t at = 0; at < all && !rc; at += bytes) {
		bytes = ckpt_cuts_next(&r->cuts, at);
		rc = read_chunk(r, at, bytes);
		if (!rc && !ckpt_closed_is_current(r->early->step->store, r->file))
			return -ESTALE;
		if (!rc && how->go_on && !how->go_on(how->arg, bytes))
			return at + bytes < all ? -EINTR : 0;
	}
	return rc;
}

// Changes of now on show, and there were none meanwhile. A file of one chunk has its hash.
static bool is_certain(struct reading *r, int64_t began_ns)
{
	struct stat st;

	if (r->read.count == 1)
		memcpy(r->read.sha256, r->read.chunks[0].id, sizeof(r->read.sha256));
	else
		ckpt_sha256_end(&r->whole, r->read.sha256);
	return ckpt_closed_is_settled(&r->read.st, began_ns) && !fstat(r->file->fd, &st) &&
	       ckpt_closed_is_same(&st, &r->read.st);
}

static bool has_name(const struct reading *r)
{
	struct stat st;

	return !fstat(r->file->fd, &st) && st.st_nlink;
}

int ckpt_early_pack_file(struct ckpt_early_pack *e, struct ckpt_closed_file *file)
{
	CLEANUP(reading_done) struct reading r = {.early = e, .file = file};
	int64_t began_ns = 0;
	bool certain = false;
	int rc = e->dropped || !has_name(&r) ? -ESTALE : begin(&r);

	if (!rc) {
		began_ns = ckpt_sys.now_ns();
		rc = read_all(&r);
	}
	if (!rc)
		certain = is_certain(&r, began_ns);
	(void)ckpt_closed_done(e->step->store, file, certain ? &r.read : NULL);
	if (ckpt_is_full(rc))
		(void)ckpt_early_pack_drop(e);
	return rc == -ESTALE ? 0 : rc;
}

uint64_t ckpt_early_pack_making(const struct ckpt_early_pack *e)
{
	return e->packing.writer ? ckpt_pack_writer_bytes(e->packing.writer) : 0;
}

static void free_buffers(struct ckpt_early_pack *e)
{
	ckpt_packing_rest(&e->packing);
	ckpt_encode_done(&e->encode);
}

int ckpt_early_pack_rest(struct ckpt_early_pack *e)
{
	int rc = ckpt_packing_put(&e->packing);

	free_buffers(e);
	if (ckpt_is_full(rc))
		(void)ckpt_early_pack_drop(e);
	return rc;
}

// Its table names what has gone: nobody takes a chunk from it any more.
uint64_t ckpt_early_pack_drop(struct ckpt_early_pack *e)
{
	free_buffers(e);
	e->dropped = true;
	return ckpt_packing_drop(&e->packing);
}

const struct ckpt_packing *ckpt_early_pack_packing(const struct ckpt_early_pack *e)
{
	return e->dropped ? NULL : &e->packing;
}
