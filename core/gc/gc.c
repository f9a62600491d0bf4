// The order, of which each step is needed:
//   1. list the packs: one that comes later is not looked at
//   2. read what the steps need, then what versions need that we do not know
//   3. read what open files need, after 2: file.c says why
//   4. those versions are made durable, the index forgets the packs that go, then they go
//   5. what is needed of half-dead packs is moved (repack.c), and from 1 on it is done again: what was emptied is seen as what
//      it is then
#include "core/gc/gc.h"

#include "backends/backend.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/remove.h"
#include "core/commit/reopen.h"
#include "core/commit/version.h"
#include "core/gc/repack.h"
#include "core/store/errlog.h"
#include "core/store/store.h"
#include "core/tier/cool.h"
#include "core/tier/cooler.h"
#include "core/tier/dedupe.h"
#include "core/tier/file.h"
#include "core/tier/pack.h"
#include "core/tier/pack_use.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#define TRIES 4 // to read of a step that is being changed

enum use { NO_USE, OPEN, LIVE };

struct pack {
	struct ckpt_pack pack;
	int64_t mtime_ns;
	enum use use;
	bool goes;
	bool open;    // and it may be LIVE as well
	bool fixed;   // by what cannot be repacked
	bool emptied; // by repacking
	char etag[CKPT_ETAG_MAX];
};

// A name of the store, and the newest version of it that we know.
struct known {
	char *key;
	uint32_t version;
};

// A record that is there, and of which nobody here knows.
struct stranger {
	char key[CKPT_STEP_KEY_MAX];
	uint32_t version;
};

struct gc {
	struct ckpt_store *store;
	const struct ckpt_gc_how *how;
	struct ckpt_gc_done *done;
	struct pack *packs; // by id, as they are listed
	size_t pack_count, pack_cap;
	struct known *known; // by key
	size_t known_count, known_cap;
	struct stranger *strangers;
	size_t stranger_count, stranger_cap;
	struct ckpt_step **cold; // that need packs and can be repacked; references
	size_t cold_count, cold_cap;
	struct ckpt_pack_use use; // what those need, in the order of packs
	struct ckpt_sparse *sparse;
	size_t sparse_count, sparse_cap;
	bool moved_on;    // a pack was emptied, or is known to be stuck
	int64_t until_ns; // it waits for packs_lock, monotonic
};

__attribute__((format(printf, 3, 4))) static int fail(struct gc *g, int rc, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	vsnprintf(g->done->why, sizeof(g->done->why), why, args);
	va_end(args);
	return rc;
}

static bool goes_on(const struct gc *g)
{
	return !g->how->go_on || g->how->go_on(g->how->arg);
}

// --- Packs --------------------------------------------------------------------------------------------------------------

// What has no name of a pack's is not ours to remove.
static int add_pack(void *arg, const char *key, const struct ckpt_object *object)
{
	struct pack pack = {.pack.bytes = object->bytes, .mtime_ns = object->mtime_ns};
	struct gc *g = arg;
	int rc = ckpt_pack_of_key(key, pack.pack.id) ? 0 : 1;

	if (rc)
		return 0;
	snprintf(pack.etag, sizeof(pack.etag), "%s", object->etag);
	rc = ckpt_grow((void **)&g->packs, &g->pack_cap, g->pack_count + 1, sizeof(*g->packs));
	if (!rc)
		g->packs[g->pack_count++] = pack;
	return rc ? rc : ckpt_pack_use_pack(&g->use, &pack.pack);
}

static int list_packs(struct gc *g)
{
	int rc = ckpt_backend_list(g->store->backend, "packs/", NULL, add_pack, g);

	return rc ? fail(g, rc, "the packs cannot be listed") : 0;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct pack *)a)->pack.id, ((const struct pack *)b)->pack.id, CKPT_SHA256_LEN);
}

static struct pack *find_pack(const struct gc *g, const struct ckpt_manifest *m, uint32_t i)
{
	struct pack want;

	ckpt_manifest_pack(m, i, &want.pack);
	return g->pack_count ? bsearch(&want, g->packs, g->pack_count, sizeof(*g->packs), by_id) : NULL;
}

// One that is not there is missed by who reads it, and by `ckptfs verify`.
static void mark(struct gc *g, const struct ckpt_manifest *m, enum use use, bool fixed)
{
	uint32_t count = ckpt_manifest_pack_count(m);

	for (uint32_t i = 0; i < count; i++) {
		struct pack *found = find_pack(g, m, i);

		if (!found)
			continue;
		found->use = MAX(found->use, use);
		found->open |= use == OPEN;
		found->fixed |= fixed;
	}
}

// --- Steps that we know -------------------------------------------------------------------------------------------------

// Its files are out of sight and nobody can have it back, or it is gone by now. With acts_lock held nobody is removing it.
static bool is_gone(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->acts_lock);

	switch (ckpt_step_state(step)) {
	case CKPT_STEP_GONE:
		return true;
	case CKPT_STEP_DELETED:
		return faccessat(step->store->sessions_fd, step->session, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
	default:
		return false;
	}
}

// What was moved is another step by now, which has its own versions.
static bool take_summary(struct ckpt_step *step, struct ckpt_summary *ret_summary)
{
	LOCK_SCOPE(&step->store->lock); // with which a name goes, and whether it was moved
	LOCK_SCOPE(&step->lock);

	*ret_summary = step->summary;
	return ret_summary->version && !ret_summary->deleted && !step->moved;
}

// -EAGAIN: it has another version, or name, than a moment ago.
static int read_manifest(struct ckpt_step *step, struct ckpt_summary *ret_sum, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_summary now;
	int rc;

	*ret_manifest = NULL;
	if (!take_summary(step, ret_sum))
		return 0;
	rc = ckpt_step_read_manifest(step, ret_sum, ret_manifest);
	if (!rc || rc == -ENOMEM)
		return rc;
	if (is_gone(step) || !take_summary(step, &now))
		return 0;
	return now.version != ret_sum->version || strcmp(now.name, ret_sum->name) ||
			       strcmp(now.folder_id, ret_sum->folder_id)
		       ? -EAGAIN
		       : rc;
}

// What is reopened or being removed has a part of it elsewhere, and what is deleted is as it will be had back.
static bool can_be_repacked(struct ckpt_step *step)
{
	ckpt_remove_give_up(step);
	return ckpt_step_state(step) == CKPT_STEP_COMMITTED && !ckpt_reopen_any(step) && !ckpt_remove_any(step);
}

static int add_cold(struct gc *g, struct ckpt_step *step, const struct ckpt_manifest *m)
{
	int rc = ckpt_grow((void **)&g->cold, &g->cold_cap, g->cold_count + 1, sizeof(struct ckpt_step *));

	if (!rc)
		g->cold[g->cold_count++] = ckpt_step_ref(step);
	return rc ? rc : ckpt_pack_use_add(&g->use, m);
}

static int mark_step(struct gc *g, struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	struct ckpt_summary sum;
	int rc = -EAGAIN;

	for (int tries = 0; tries < TRIES && rc == -EAGAIN; tries++)
		rc = read_manifest(step, &sum, &m);
	if (rc)
		return fail(g, rc, "what version %u of %s needs cannot be read: %s", sum.version, sum.name,
			    strerror(-rc));
	if (m && ckpt_manifest_pack_count(m)) {
		bool cold = can_be_repacked(step);

		mark(g, m, LIVE, !cold || ckpt_cooler_keeps_warm(step));
		rc = cold ? add_cold(g, step, m) : 0;
	}
	ckpt_manifest_unref(m);
	return rc;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct known *)a)->key, ((const struct known *)b)->key);
}

static int know(struct gc *g, struct ckpt_step *step)
{
	struct known known = {0};
	int rc;

	ckpt_lock_take(&g->store->lock);
	ckpt_lock_take(&step->lock);
	known.key = strdup(step->key);
	known.version = MAX(step->summary.version, step->deleted_by);
	ckpt_lock_drop(&step->lock);
	ckpt_lock_drop(&g->store->lock);
	rc = known.key ? ckpt_grow((void **)&g->known, &g->known_cap, g->known_count + 1, sizeof(*g->known)) : -ENOMEM;
	if (rc)
		free(known.key);
	else
		g->known[g->known_count++] = known;
	return rc;
}

static int mark_steps(struct gc *g)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(g->store, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		rc = goes_on(g) ? mark_step(g, steps[i]) : -EINTR;
		if (!rc)
			rc = know(g, steps[i]);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

// --- Versions that we do not know ---------------------------------------------------------------------------------------
// A put whose answer was lost may be there, and what it needs with it: at the next start it is the step. One of a commit that
// ends just now is there before we know it, too, and needs nothing in packs.

static uint32_t known_version(const struct gc *g, const char *key)
{
	const struct known *end = g->known + g->known_count, *k;
	struct known want = {.key = (char *)(uintptr_t)key};
	uint32_t version = 0;

	k = g->known_count ? bsearch(&want, g->known, g->known_count, sizeof(*g->known), by_key) : NULL;
	if (!k)
		return 0;
	while (k > g->known && !strcmp(k[-1].key, key))
		k--;
	for (; k < end && !strcmp(k->key, key); k++) // one after the other may have had the name
		version = MAX(version, k->version);
	return version;
}

static int look_at_record(void *arg, const char *object, const struct ckpt_object *info __attribute__((unused)))
{
	struct gc *g = arg;
	struct stranger it;
	int rc;

	if (!ckpt_name_of_record(object, it.key, &it.version))
		return fail(g, -EBADMSG, "%s is no record", object);
	if (it.version <= known_version(g, it.key))
		return 0;
	rc = ckpt_grow((void **)&g->strangers, &g->stranger_cap, g->stranger_count + 1, sizeof(*g->strangers));
	if (!rc)
		g->strangers[g->stranger_count++] = it;
	return rc;
}

static int manifest_of(struct gc *g, struct ckpt_record *r, struct ckpt_manifest **ret_manifest)
{
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN] = "m/";
	void *data = TAKE_PTR(r->manifest);
	size_t len = r->manifest_len;
	int rc = 0;

	if (!data) {
		ckpt_hex(r->summary.manifest_sha256, CKPT_SHA256_LEN, key + strlen(key));
		rc = ckpt_backend_get_all(g->store->backend, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	}
	if (!rc)
		rc = ckpt_manifest_parse(data, len, ret_manifest);
	if (rc)
		return rc;
	if (!memcmp(ckpt_manifest_sha256(*ret_manifest), r->summary.manifest_sha256, CKPT_SHA256_LEN))
		return 0;
	ckpt_manifest_unref(*ret_manifest);
	return -EBADMSG;
}

static int mark_record(struct gc *g, const struct stranger *it, struct ckpt_record *r)
{
	struct ckpt_manifest *m;
	int rc = strcmp(r->store_id, g->store->id) || r->summary.version != it->version ? -EBADMSG : 0;

	if (rc || r->summary.deleted)
		return rc;
	rc = manifest_of(g, r, &m);
	if (rc)
		return rc;
	mark(g, m, LIVE, true);
	ckpt_manifest_unref(m);
	return 0;
}

static int mark_stranger(struct gc *g, const struct stranger *it)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_record r;
	size_t len;
	int rc;

	snprintf(object, sizeof(object), "steps/%s/%u", it->key, it->version);
	rc = ckpt_backend_get_all(g->store->backend, object, CKPT_RECORD_BYTES_MAX, &data, &len, NULL);
	if (rc == -ENOENT)
		return 0; // it was void, or has expired meanwhile
	if (!rc)
		rc = ckpt_record_decode(data, len, &r);
	if (!rc) {
		rc = mark_record(g, it, &r);
		ckpt_record_done(&r);
	}
	return rc ? fail(g, rc == -ENOENT ? -EBADMSG : rc, "%s cannot be read: %s", object, strerror(-rc)) : 0;
}

static int mark_strangers(struct gc *g)
{
	int rc;

	if (g->known_count)
		qsort(g->known, g->known_count, sizeof(*g->known), by_key);
	rc = ckpt_backend_list(g->store->backend, "steps/", NULL, look_at_record, g);
	if (rc && !*g->done->why)
		fail(g, rc, "the records cannot be listed");
	for (size_t i = 0; i < g->stranger_count && !rc; i++)
		rc = mark_stranger(g, &g->strangers[i]);
	return rc;
}

// --- Open files ---------------------------------------------------------------------------------------------------------

static int mark_open_files(struct gc *g)
{
	struct ckpt_manifest **manifests;
	size_t count;
	int rc = ckpt_file_manifests(g->store, &manifests, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		mark(g, manifests[i], OPEN, false);
	ckpt_file_manifests_free(manifests, count);
	if (!ckpt_file_others_read(g->store))
		return 0;
	for (size_t i = 0; i < g->pack_count; i++) { // which files others have open nobody tells us
		g->packs[i].use = MAX(g->packs[i].use, OPEN);
		g->packs[i].open = g->packs[i].fixed = true;
	}
	return 0;
}

// --- What goes ----------------------------------------------------------------------------------------------------------

static void keep(struct gc *g, struct pack *p, enum ckpt_gc_kept why)
{
	g->done->kept[why].objects++;
	g->done->kept[why].bytes += p->pack.bytes;
	p->goes = false;
}

static bool is_young(const struct gc *g, const struct pack *p)
{
	return g->how->grace_ns && p->mtime_ns > ckpt_sys.now_ns() - g->how->grace_ns;
}

static void choose(struct gc *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		struct pack *p = &g->packs[i];

		*(p->use == LIVE ? &g->done->live_bytes : &g->done->garbage_bytes) += p->pack.bytes;
		p->goes = p->use == NO_USE;
		if (p->use == OPEN)
			keep(g, p, CKPT_GC_OPEN);
		else if (p->goes && is_young(g, p))
			keep(g, p, CKPT_GC_YOUNG);
	}
}

static uint64_t bytes_that_go(const struct gc *g)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < g->pack_count; i++)
		bytes += g->packs[i].goes ? g->packs[i].pack.bytes : 0;
	return bytes;
}

static void mark_emptied(void *arg, const struct ckpt_manifest *m)
{
	struct gc *g = arg;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct pack *found = find_pack(g, m, i);

		if (found)
			found->emptied = true;
	}
}

// What steps needed before they were repacked, a moment ago or by one that died or failed then, they say themselves that they do
// not need; and what steps needed that are gone, who removed them.
static void pass_over_expected(struct gc *g, uint64_t *bytes, uint64_t *all)
{
	(void)ckpt_gc_expected_load(g->store); // what is not known is asked about
	for (size_t i = 0; i < g->cold_count; i++)
		ckpt_repack_each_before(g->cold[i], mark_emptied, g);
	for (size_t i = 0; i < g->pack_count; i++) {
		const struct pack *p = &g->packs[i];

		if (!p->goes || !(p->emptied || ckpt_gc_expects(g->store, p->pack.id)))
			continue;
		*bytes -= p->pack.bytes;
		*all -= p->pack.bytes;
	}
}

// Most of what is there goes when most of the steps that were cooled are deleted and expired; or when something keeps us from
// seeing what needs it, and then it is all that is left of them: so somebody is asked.
static int brake(struct gc *g)
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
	return fail(g, -EPERM, "%llu of the %llu bytes in packs would go at once", (unsigned long long)bytes,
		    (unsigned long long)all);
}

// What a version needs that is not durable yet is not all that is needed after a power cut.
static int make_durable(struct gc *g)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(g->store, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		rc = goes_on(g) ? ckpt_version_make_durable(steps[i]) : -EINTR;
		if (rc && rc != -EINTR)
			fail(g, rc, "whether %s will be as it is cannot be said: %s", steps[i]->name, strerror(-rc));
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

static int forget(struct gc *g)
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

static void count_deleted(struct gc *g, const struct pack *p)
{
	g->done->deleted_objects++;
	g->done->deleted_bytes += p->pack.bytes;
}

static int remove_pack(struct gc *g, struct pack *p)
{
	char key[CKPT_PACK_KEY_MAX];
	int rc;

	if (!goes_on(g))
		return -EINTR;
	ckpt_pack_key(p->pack.id, key);
	rc = ckpt_backend_remove(g->store->backend, key, *p->etag ? p->etag : NULL);
	if (!rc || rc == -ENOENT) {
		count_deleted(g, p);
		return 0;
	}
	keep(g, p, CKPT_GC_FAILED);
	return fail(g, rc, "%s cannot be removed: %s", key, strerror(-rc));
}

static int remove_packs(struct gc *g)
{
	int rc = 0;

	for (size_t i = 0; i < g->pack_count && !rc; i++) {
		struct pack *p = &g->packs[i];

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

static void note_stuck(struct gc *g, struct ckpt_gc_stuck *stuck)
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
static int find_sparse(struct gc *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		const struct ckpt_used_pack *u = &g->use.packs[i];
		struct ckpt_sparse sparse = {
			.pack = u->pack, .used_bytes = u->used_bytes, .used_chunks = u->used_chunks};
		const struct pack *p = &g->packs[i];
		int rc;

		if (p->use != LIVE || p->fixed || is_young(g, p) || u->used_bytes >= u->pack.bytes / 2)
			continue;
		rc = ckpt_pack_use_unused(u, g->store->backend, &sparse.unused_bytes);
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

static void keep_sparse(struct gc *g, const struct ckpt_sparse *sparse, enum ckpt_gc_kept why)
{
	g->done->kept[why].objects++;
	g->done->kept[why].bytes += sparse->unused_bytes;
}

// It would go, but for those who have it open.
static void count_emptied(struct gc *g, const struct ckpt_sparse *sparse)
{
	const struct pack want = {.pack = sparse->pack};
	struct pack *p = bsearch(&want, g->packs, g->pack_count, sizeof(*g->packs), by_id);

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

static void count_sparse(struct gc *g)
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

static int repack(struct gc *g)
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
		       ? fail(g, rc, "what is needed of half-dead packs cannot be put elsewhere: %s", strerror(-rc))
		       : rc;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static int check_store(struct gc *g)
{
	struct ckpt_store *s = g->store;
	int rc = ckpt_store_check_identity(s);

	if (rc)
		return fail(g, rc, rc == -ESTALE ? "another store is in %s by now" : "%s cannot be identified",
			    s->path);
	return s->unreadable_count ? fail(g, -EBADMSG, "a record of %s cannot be read", s->unreadable[0]) : 0;
}

static int collect(struct gc *g)
{
	int rc = list_packs(g);

	if (rc || !g->pack_count)
		return rc;
	rc = check_store(g);
	if (!rc)
		rc = mark_steps(g);
	if (!rc)
		rc = mark_strangers(g);
	if (!rc)
		rc = mark_open_files(g);
	if (rc)
		return rc;
	choose(g);
	rc = brake(g);
	if (rc || !bytes_that_go(g))
		return rc;
	if (!g->how->dry_run)
		rc = make_durable(g);
	if (!rc && !g->how->dry_run)
		rc = forget(g);
	return rc ? rc : remove_packs(g);
}

static void gc_done(struct gc *g)
{
	for (size_t i = 0; i < g->known_count; i++)
		free(g->known[i].key);
	for (size_t i = 0; i < g->cold_count; i++)
		ckpt_step_unref(g->cold[i]);
	ckpt_pack_use_done(&g->use);
	free(g->known);
	free(g->strangers);
	free(g->packs);
	free(g->cold);
	free(g->sparse);
}

// What steps need now, and what is open now, is read anew: nothing goes because we believe to have emptied it. And another round
// of repacking, of what the last one has left for later.
static int go_round_again(struct gc *g)
{
	struct ckpt_gc_how how = *g->how;
	struct ckpt_gc_done done = {0}, *all = g->done;
	struct gc again = {.store = g->store, .how = &how, .done = &done};
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

static bool sweeps_on(void *arg, uint64_t bytes __attribute__((unused)))
{
	return goes_on(arg);
}

// What a crash left of the raw files when it was cooled, or who was told to stop then.
static void sweep_raws(struct gc *g)
{
	for (size_t i = 0; i < g->cold_count && goes_on(g); i++)
		ckpt_cool_sweep(g->cold[i], sweeps_on, g);
}

static bool waits_on(void *arg)
{
	const struct gc *g = arg;

	return goes_on(g) && (!g->how->wait_ns || ckpt_sys.mono_ns() < g->until_ns);
}

static int take_packs(struct gc *g)
{
	int rc;

	g->until_ns = ckpt_sys.mono_ns() + g->how->wait_ns;
	rc = ckpt_store_take_packs(g->store, g->how->at_once, waits_on, g);
	return rc == -EINTR && goes_on(g) ? -EBUSY : rc;
}

int ckpt_gc(struct ckpt_store *s, const struct ckpt_gc_how *how, struct ckpt_gc_done *ret_done)
{
	struct ckpt_gc_stuck stuck = {0};
	struct ckpt_gc_how now = *how;
	struct gc g = {.store = s, .how = &now, .done = ret_done};
	size_t expected;
	int rc;

	*ret_done = (struct ckpt_gc_done){0};
	if (!now.repack.stuck)
		now.repack.stuck = &stuck;
	if (!s->writable)
		return fail(&g, -EROFS, "%s is open for reading", s->path);
	rc = take_packs(&g);
	if (rc)
		return rc;
	expected = ckpt_gc_expected(s);
	rc = collect(&g);
	if (!rc && !how->dry_run)
		sweep_raws(&g);
	if (!rc)
		rc = repack(&g);
	while (!rc && g.moved_on)
		rc = go_round_again(&g);
	if (!rc && !how->dry_run && !ret_done->kept[CKPT_GC_YOUNG].objects && !ret_done->kept[CKPT_GC_OPEN].objects)
		ckpt_gc_expect_no_more(s, expected);
	ckpt_lock_drop(&s->packs_lock);
	gc_done(&g);
	return rc;
}
