// The order, of which each step is needed:
//   1. list the packs: one that comes later is not looked at
//   2. read what the steps need, then what versions need that we do not know
//   3. read what open files need, after 2: file.c says why
//   4. the packs that go are condemned, but for those that an act has pinned since 1 (pack_pins.h), the index forgets them, then they go
//   5. what is needed of half-dead packs is moved (repack.c), and from 1 on it is done again: what was emptied is seen as what
//      it is then
#include "core/gc/gc_round.h"

#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/cold/dedupe.h"
#include "core/cold/garbage.h"
#include "core/cold/pack_pins.h"
#include "core/objects/objects.h"
#include "core/step/follow.h"
#include "core/step/store.h"

#include <stdarg.h>
#include <stdio.h>

int ckpt_gc_fail(struct ckpt_gc_round *g, int rc, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	vsnprintf(g->done->why, sizeof(g->done->why), why, args);
	va_end(args);
	return rc;
}

// --- What goes ----------------------------------------------------------------------------------------------------------

static void keep(struct ckpt_gc_round *g, struct ckpt_gc_pack *p, enum ckpt_gc_kept why)
{
	g->done->kept[why].objects++;
	g->done->kept[why].bytes += p->pack.bytes;
	p->goes = false;
}

static bool is_young(const struct ckpt_gc_round *g, const struct ckpt_gc_pack *p)
{
	return g->how->grace_ns && p->mtime_ns > ckpt_sys.now_ns() - g->how->grace_ns;
}

static void choose(struct ckpt_gc_round *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		struct ckpt_gc_pack *p = &g->packs[i];

		*(p->use == CKPT_GC_USE_LIVE ? &g->done->live_bytes : &g->done->garbage_bytes) += p->pack.bytes;
		p->goes = p->use == CKPT_GC_USE_NONE;
		if (p->use == CKPT_GC_USE_OPEN)
			keep(g, p, CKPT_GC_OPEN);
		else if (p->goes && is_young(g, p))
			keep(g, p, CKPT_GC_YOUNG);
	}
}

static uint64_t bytes_that_go(const struct ckpt_gc_round *g)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < g->pack_count; i++)
		bytes += g->packs[i].goes ? g->packs[i].pack.bytes : 0;
	return bytes;
}

static void mark_emptied(void *arg, const struct ckpt_manifest *m)
{
	struct ckpt_gc_round *g = arg;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_gc_pack *found;
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		found = ckpt_gc_find_pack(g, pack.id);
		if (found)
			found->emptied = true;
	}
}

// What steps needed before they were repacked, a moment ago or by one that died or failed then, they say themselves that they do
// not need; and what steps needed that are gone, who removed them.
static void pass_over_expected(struct ckpt_gc_round *g, uint64_t *bytes, uint64_t *all)
{
	(void)ckpt_garbage_load(g->store); // what is not known is asked about
	for (size_t i = 0; i < g->cold_count; i++)
		ckpt_repack_each_before(g->cold[i], mark_emptied, g);
	for (size_t i = 0; i < g->pack_count; i++) {
		const struct ckpt_gc_pack *p = &g->packs[i];

		if (!p->goes || !(p->emptied || ckpt_garbage_expects(g->store, p->pack.id)))
			continue;
		*bytes -= p->pack.bytes;
		*all -= p->pack.bytes;
	}
}

// Most of what is there goes when most of the steps that were cooled are deleted and expired; or when something keeps us from
// seeing what needs it, and then it is all that is left of them: so somebody is asked.
static int brake(struct ckpt_gc_round *g)
{
	uint64_t bytes = bytes_that_go(g), all = g->done->live_bytes + g->done->garbage_bytes;

	if (g->how->force || bytes <= all / 2)
		return 0;
	pass_over_expected(g, &bytes, &all);
	if (bytes <= all / 2)
		return 0;
	for (size_t i = 0; i < g->pack_count; i++)
		if (g->packs[i].goes)
			keep(g, &g->packs[i], CKPT_GC_MOST);
	if (g->how->dry_run)
		return 0;
	return ckpt_gc_fail(g, -EPERM, "%llu of the %llu bytes in packs would go at once", (unsigned long long)bytes,
			    (unsigned long long)all);
}

// From here on no act begins to need what goes. What one has pinned since it was looked at is needed.
static int condemn(struct ckpt_gc_round *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		struct ckpt_gc_pack *p = &g->packs[i];
		int rc = p->goes ? ckpt_pack_condemn(*ckpt_pack_pins_of(g->store), p->pack.id) : 0;

		if (rc == -ENOMEM)
			return rc;
		if (rc == -EBUSY) {
			g->done->garbage_bytes -= p->pack.bytes;
			g->done->live_bytes += p->pack.bytes;
		}
		p->goes &= !rc; // -EALREADY: another collection removes it
		p->condemned = p->goes;
	}
	return 0;
}

static void condemned_end(struct ckpt_gc_round *g, struct ckpt_gc_pack *p, bool stays)
{
	if (p->condemned)
		ckpt_pack_condemned_end(*ckpt_pack_pins_of(g->store), p->pack.id, stays);
	p->condemned = false;
}

static int forget(struct ckpt_gc_round *g)
{
	CLEANUP_FREE struct ckpt_pack *packs = ckpt_calloc(g->pack_count + 1, sizeof(*packs));
	size_t count = 0;

	if (!packs)
		return -ENOMEM;
	for (size_t i = 0; i < g->pack_count; i++)
		if (g->packs[i].goes)
			packs[count++] = g->packs[i].pack;
	ckpt_dedupe_forget(g->store, packs, count);
	return 0;
}

static void count_deleted(struct ckpt_gc_round *g, const struct ckpt_gc_pack *p)
{
	g->done->deleted_objects++;
	g->done->deleted_bytes += p->pack.bytes;
}

static int remove_pack(struct ckpt_gc_round *g, struct ckpt_gc_pack *p)
{
	char key[CKPT_PACK_KEY_MAX];
	int rc;

	if (!ckpt_gc_goes_on(g))
		return -EINTR;
	ckpt_pack_key(p->pack.id, key);
	rc = ckpt_objects_remove(g->store->objects, key);
	condemned_end(g, p, rc && rc != -ENOENT);
	if (!rc || rc == -ENOENT) {
		count_deleted(g, p);
		return 0;
	}
	keep(g, p, CKPT_GC_FAILED);
	return ckpt_gc_fail(g, rc, "%s cannot be removed: %s", key, strerror(-rc));
}

static int remove_packs(struct ckpt_gc_round *g)
{
	int rc = 0;

	for (size_t i = 0; i < g->pack_count && !rc; i++) {
		struct ckpt_gc_pack *p = &g->packs[i];

		if (!p->goes)
			continue;
		if (g->how->dry_run)
			count_deleted(g, p);
		else
			rc = remove_pack(g, p);
	}
	return rc;
}

// --- Half-dead packs ----------------------------------------------------------------------------------------------------

static void note_stuck(struct ckpt_gc_round *g, struct ckpt_gc_stuck *stuck)
{
	stuck->count = 0;
	for (size_t i = 0; i < g->sparse_count && stuck->count < CKPT_GC_STUCK_MAX; i++) {
		const struct ckpt_sparse *sparse = &g->sparse[i];
		bool is = sparse->fate == CKPT_SPARSE_DAMAGED || sparse->fate == CKPT_SPARSE_NEEDED;

		if (!is && !(sparse->stuck && sparse->fate != CKPT_SPARSE_CHOSEN))
			continue;
		memcpy(stuck->ids[stuck->count++], sparse->pack.id, CKPT_SHA256_LEN);
		g->moved_on |= !sparse->stuck;
	}
}

// One that cannot be read is left to `ckptfs verify`.
static int find_sparse(struct ckpt_gc_round *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		const struct ckpt_used_pack *u = &g->use.packs[i];
		struct ckpt_sparse sparse = {
			.pack = u->pack, .used_bytes = u->used_bytes, .used_chunks = u->used_chunks};
		const struct ckpt_gc_pack *p = &g->packs[i];
		int rc;

		if (p->use != CKPT_GC_USE_LIVE || p->fixed || is_young(g, p) || u->used_bytes >= u->pack.bytes / 2)
			continue;
		rc = ckpt_pack_use_unused(u, g->store->objects, &sparse.unused_bytes);
		if (rc == -EBADMSG || rc == -ENOENT || rc == -EIO)
			continue;
		if (!rc && ckpt_is_sparse(sparse.used_bytes, sparse.unused_bytes)) {
			sparse.stuck = ckpt_gc_is_stuck(g->how->repack.stuck, sparse.pack.id);
			rc = ckpt_grow((void **)&g->sparse, &g->sparse_cap, g->sparse_count + 1, sizeof(*g->sparse));
			if (!rc)
				g->sparse[g->sparse_count++] = sparse;
		}
		if (rc)
			return rc;
	}
	return 0;
}

static void keep_sparse(struct ckpt_gc_round *g, const struct ckpt_sparse *sparse, enum ckpt_gc_kept why)
{
	g->done->kept[why].objects++;
	g->done->kept[why].bytes += sparse->unused_bytes;
}

// It would go, but for those who have it open.
static void count_emptied(struct ckpt_gc_round *g, const struct ckpt_sparse *sparse)
{
	struct ckpt_gc_pack *p = ckpt_gc_find_pack(g, sparse->pack.id);

	g->done->repacked_objects++;
	g->moved_on = !g->how->dry_run;
	if (!g->how->dry_run || !p)
		return;
	g->done->repacked_bytes += sparse->used_bytes;
	if (p->open)
		keep(g, p, CKPT_GC_OPEN);
	else
		count_deleted(g, p);
}

static void count_sparse(struct ckpt_gc_round *g)
{
	for (size_t i = 0; i < g->sparse_count; i++) {
		const struct ckpt_sparse *sparse = &g->sparse[i];

		if (sparse->fate == CKPT_SPARSE_CHOSEN)
			count_emptied(g, sparse);
		else if (sparse->fate == CKPT_SPARSE_NO_ROOM)
			keep_sparse(g, sparse, CKPT_GC_NO_ROOM);
		else if (sparse->fate == CKPT_SPARSE_DAMAGED)
			keep_sparse(g, sparse, CKPT_GC_DAMAGED);
		else if (sparse->fate == CKPT_SPARSE_LATER)
			g->done->later_objects++;
	}
}

// What a dry run says is what all rounds would do.
static uint64_t chunks_max(const struct ckpt_gc_how *how)
{
	return how->dry_run && !how->repack.bytes_max ? UINT64_MAX
	       : how->repack.chunks_max               ? how->repack.chunks_max
						      : CKPT_REPACK_CHUNKS_MAX;
}

static int repack(struct ckpt_gc_round *g)
{
	const struct ckpt_repack_how how = {
		.bytes_max = g->how->repack.bytes_max ? g->how->repack.bytes_max : UINT64_MAX,
		.chunks_max = chunks_max(g->how),
		.gently = g->how->repack.gently,
		.quiet = g->how->repack.no_telling,
		.go_on = g->how->go_on,
		.arg = g->how->arg,
	};
	int rc = find_sparse(g);

	if (rc || !g->sparse_count)
		return rc;
	ckpt_repack_choose(g->store, g->sparse, g->sparse_count, &how);
	if (!g->how->dry_run)
		rc = ckpt_repack(g->store, g->sparse, g->sparse_count, g->cold, g->cold_count, &how,
				 &g->done->repacked_bytes);
	if (!rc)
		count_sparse(g);
	if (!rc && !g->how->dry_run)
		note_stuck(g, g->how->repack.stuck);
	return rc && rc != -EINTR && rc != -ENOMEM
		       ? ckpt_gc_fail(g, rc, "what is needed of half-dead packs cannot be put elsewhere: %s",
				      strerror(-rc))
		       : rc;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static int check_store(struct ckpt_gc_round *g)
{
	struct ckpt_store *s = g->store;
	int rc = ckpt_store_check_identity(s);

	if (rc)
		return ckpt_gc_fail(g, rc, rc == -ESTALE ? "another store is in %s by now" : "%s cannot be identified",
				    s->path);
	return 0;
}

// An act with an unknown outcome may need packs: first the log says what became of it.
static int settle(struct ckpt_gc_round *g)
{
	LOCK_SCOPE(&g->store->acts_lock);
	int rc = ckpt_follow_settle(g->store);

	return rc ? ckpt_gc_fail(g, rc, "whether the last act on a step has happened is not known: %s", strerror(-rc))
		  : 0;
}

static int remove_garbage(struct ckpt_gc_round *g)
{
	int rc = g->how->dry_run ? 0 : condemn(g);

	if (!rc && !g->how->dry_run && bytes_that_go(g))
		rc = forget(g);
	if (!rc)
		rc = remove_packs(g);
	for (size_t i = 0; i < g->pack_count; i++)
		if (g->packs[i].condemned) // it ended before their turn came
			ckpt_pack_spare(*ckpt_pack_pins_of(g->store), g->packs[i].pack.id);
	return rc;
}

static int look_and_remove(struct ckpt_gc_round *g)
{
	int rc = ckpt_gc_list_packs(g);

	if (rc || !g->pack_count)
		return rc;
	rc = check_store(g);
	if (!rc)
		rc = settle(g);
	if (!rc)
		rc = ckpt_gc_mark_steps(g);
	if (!rc)
		rc = ckpt_gc_mark_strangers(g);
	if (!rc)
		rc = ckpt_gc_mark_open_files(g);
	if (rc)
		return rc;
	ckpt_gc_mark_pinned(g);
	choose(g);
	rc = brake(g);
	return rc || !bytes_that_go(g) ? rc : remove_garbage(g);
}

static int collect(struct ckpt_gc_round *g)
{
	int rc;

	ckpt_pack_pins_begin(*ckpt_pack_pins_of(g->store));
	rc = look_and_remove(g);
	ckpt_pack_pins_end(*ckpt_pack_pins_of(g->store));
	return rc;
}

static void gc_done(struct ckpt_gc_round *g)
{
	ckpt_gc_mark_done(g);
	free(g->sparse);
}

// What steps need now, and what is open now, is read anew: nothing goes because we believe to have emptied it. And another round
// of repacking, of what the last one has left for later.
static int go_round_again(struct ckpt_gc_round *g)
{
	struct ckpt_gc_how how = *g->how;
	struct ckpt_gc_done done = {0}, *all = g->done;
	struct ckpt_gc_round again = {.store = g->store, .how = &how, .done = &done};
	bool repacks = all->later_objects && !how.repack.bytes_max;
	int rc;

	how.repack.no_telling |= all->kept[CKPT_GC_DAMAGED].objects > 0;
	rc = collect(&again);
	if (!rc && repacks)
		rc = repack(&again);
	all->deleted_bytes += done.deleted_bytes;
	all->deleted_objects += done.deleted_objects;
	all->repacked_bytes += done.repacked_bytes;
	all->repacked_objects += done.repacked_objects;
	if (repacks)
		all->later_objects = done.later_objects;
	// The rest is repack()'s.
	memcpy(all->kept, done.kept, (repacks ? CKPT_GC_KEPT : CKPT_GC_NO_ROOM) * sizeof(*done.kept));
	memcpy(all->why, done.why, sizeof(done.why));
	g->moved_on = again.moved_on;
	gc_done(&again);
	return rc;
}

static void tell_freed(const struct ckpt_gc_done *done)
{
	char size[CKPT_SIZE_MAX];

	if (done->deleted_objects)
		ckpt_log(CKPT_LOG_INFO, "garbage collection removed %zu pack%s, %s", (size_t)done->deleted_objects,
			 done->deleted_objects == 1 ? "" : "s", ckpt_size_text(done->deleted_bytes, size));
}

int ckpt_gc(struct ckpt_store *s, const struct ckpt_gc_how *how, struct ckpt_gc_done *ret_done)
{
	struct ckpt_gc_stuck stuck = {0};
	struct ckpt_gc_how now = *how;
	struct ckpt_gc_round g = {.store = s, .how = &now, .done = ret_done};
	size_t expected;
	int rc;

	*ret_done = (struct ckpt_gc_done){0};
	if (!now.repack.stuck)
		now.repack.stuck = &stuck;
	if (!s->writable)
		return ckpt_gc_fail(&g, -EROFS, "%s is open for reading", s->path);
	expected = ckpt_garbage_packs(s);
	rc = collect(&g);
	if (!rc && !how->repack.none)
		rc = repack(&g);
	while (!rc && g.moved_on)
		rc = go_round_again(&g);
	if (!rc && !how->dry_run && !ret_done->kept[CKPT_GC_YOUNG].objects && !ret_done->kept[CKPT_GC_OPEN].objects)
		ckpt_garbage_expect_no_more(s, expected);
	gc_done(&g);
	if (!how->dry_run)
		tell_freed(ret_done);
	return rc;
}
