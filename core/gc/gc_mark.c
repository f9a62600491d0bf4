// Marks the packs that are needed: by steps, versions that nobody here knows, open files, and acts under way. gc.c has the order, and why.
#include "core/gc/gc_round.h"
#include "core/step/removal.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/cold/pack_pins.h"
#include "core/objects/objects.h"
#include "core/step/older.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <stdio.h>

// A step, and the newest version of it that we know.
struct ckpt_gc_known {
	char session[CKPT_UUID_LEN + 1];
	uint32_t version;
};

// --- Packs --------------------------------------------------------------------------------------------------------------

// What has no name of a pack's is not ours to remove.
static int add_pack(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_gc_pack pack = {.pack.bytes = object->bytes, .mtime_ns = object->mtime_ns};
	struct ckpt_gc_round *g = arg;
	int rc = ckpt_pack_of_key(key, pack.pack.id) ? 0 : 1;

	if (rc)
		return 0;
	rc = ckpt_grow((void **)&g->packs, &g->pack_cap, g->pack_count + 1, sizeof(*g->packs));
	if (!rc)
		g->packs[g->pack_count++] = pack;
	return rc ? rc : ckpt_pack_use_pack(&g->use, &pack.pack);
}

int ckpt_gc_list_packs(struct ckpt_gc_round *g)
{
	int rc = ckpt_objects_list(g->store->objects, "packs/", NULL, add_pack, g);

	return rc ? ckpt_gc_fail(g, rc, "the packs cannot be listed") : 0;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_gc_pack *)a)->pack.id, ((const struct ckpt_gc_pack *)b)->pack.id,
		      CKPT_SHA256_LEN);
}

struct ckpt_gc_pack *ckpt_gc_find_pack(const struct ckpt_gc_round *g, const uint8_t id[CKPT_SHA256_LEN])
{
	struct ckpt_gc_pack want;

	memcpy(want.pack.id, id, sizeof(want.pack.id));
	return g->pack_count ? bsearch(&want, g->packs, g->pack_count, sizeof(*g->packs), by_id) : NULL;
}

// One that is not there is missed by who reads it, and by `ckptfs verify`.
static void mark(struct ckpt_gc_round *g, const struct ckpt_manifest *m, enum ckpt_gc_use use, bool fixed)
{
	uint32_t count = ckpt_manifest_pack_count(m);

	for (uint32_t i = 0; i < count; i++) {
		struct ckpt_gc_pack *found;
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		found = ckpt_gc_find_pack(g, pack.id);
		if (!found)
			continue;
		found->use = MAX(found->use, use);
		found->open |= use == CKPT_GC_USE_OPEN;
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

// NULL: it needs none, or its files are gone.
static int read_manifest(struct ckpt_step *step, const struct ckpt_version *v, struct ckpt_manifest **ret_manifest)
{
	int rc;

	*ret_manifest = NULL;
	if (!v->is.version || v->is.deleted)
		return 0;
	rc = ckpt_step_read_manifest(step, &v->is, ret_manifest);
	return rc && rc != -ENOMEM && is_gone(step) ? 0 : rc;
}

// What is reopened or being removed has a part of it elsewhere, and what is deleted is as it will be had back.
static bool can_be_repacked(struct ckpt_step *step)
{
	return ckpt_step_state(step) == CKPT_STEP_COMMITTED && !ckpt_step_is_reopened(step) && !ckpt_removal_any(step);
}

static int add_cold(struct ckpt_gc_round *g, struct ckpt_step *step, const struct ckpt_manifest *m)
{
	int rc = ckpt_grow((void **)&g->cold, &g->cold_cap, g->cold_count + 1, sizeof(struct ckpt_step *));

	if (!rc)
		g->cold[g->cold_count++] = ckpt_step_ref(step);
	return rc ? rc : ckpt_pack_use_add(&g->use, m);
}

static int mark_step(struct ckpt_gc_round *g, struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_manifest *m;
	int rc = read_manifest(step, v, &m);

	if (rc)
		return ckpt_gc_fail(g, rc, "what version %u of %s needs cannot be read: %s", v->is.version, v->is.name,
				    strerror(-rc));
	if (m && ckpt_manifest_pack_count(m)) {
		bool cold = can_be_repacked(step);

		mark(g, m, CKPT_GC_USE_LIVE, !cold);
		rc = cold ? add_cold(g, step, m) : 0;
	}
	ckpt_manifest_unref(m);
	return rc;
}

// Chunks that repacking would move are needed by older versions where they are.
static int mark_version(void *arg, const struct ckpt_manifest *m)
{
	struct ckpt_gc_round *g = arg;

	mark(g, m, CKPT_GC_USE_LIVE, true);
	return ckpt_gc_goes_on(g) ? 0 : -EINTR;
}

static int mark_older(struct ckpt_gc_round *g, struct ckpt_step *step)
{
	int rc = ckpt_older_each_packs(step, mark_version, g);

	if (!rc || rc == -EINTR || is_gone(step))
		return rc == -EINTR ? rc : 0;
	return ckpt_gc_fail(g, rc, "what an older version of %s needs cannot be read: %s", step->name, strerror(-rc));
}

static int by_session(const void *a, const void *b)
{
	return strcmp(((const struct ckpt_gc_known *)a)->session, ((const struct ckpt_gc_known *)b)->session);
}

static int know(struct ckpt_gc_round *g, struct ckpt_step *step)
{
	int rc = ckpt_grow((void **)&g->known, &g->known_cap, g->known_count + 1, sizeof(*g->known));
	struct ckpt_gc_known *known = rc ? NULL : &g->known[g->known_count++];

	if (rc)
		return rc;
	LOCK_SCOPE(&step->lock);
	memcpy(known->session, step->session, sizeof(known->session));
	known->version = step->version->is.version;
	return 0;
}

int ckpt_gc_mark_steps(struct ckpt_gc_round *g)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(g->store, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		rc = ckpt_gc_goes_on(g) ? mark_step(g, steps[i]) : -EINTR;
		if (!rc)
			rc = mark_older(g, steps[i]);
		if (!rc)
			rc = know(g, steps[i]);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

// --- Versions that we do not know ---------------------------------------------------------------------------------------
// A commit whose answer was lost may be in the log, and the table does not know it yet: what it needs stays. One that ends just now is
// there before the table knows it, too.

static bool is_known(const struct ckpt_gc_round *g, const struct ckpt_state_step *step)
{
	struct ckpt_gc_known want, *k;

	memcpy(want.session, step->id, sizeof(want.session));
	k = g->known_count ? bsearch(&want, g->known, g->known_count, sizeof(*g->known), by_session) : NULL;
	return k && k->version >= step->is.version;
}

static int look_for_stranger(void *arg, const struct ckpt_state_step *step)
{
	struct ckpt_gc_round *g = arg;
	int rc;

	if (is_known(g, step))
		return 0;
	rc = ckpt_grow((void **)&g->strangers, &g->stranger_cap, g->stranger_count + 1, sizeof(*g->strangers));
	if (!rc)
		g->strangers[g->stranger_count++] = step->is;
	return rc;
}

static int manifest_of(struct ckpt_gc_round *g, struct ckpt_record *r, struct ckpt_manifest **ret_manifest)
{
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN] = "m/";
	void *data = TAKE_PTR(r->manifest);
	size_t len = r->manifest_len;
	int rc = 0;

	if (!data) {
		ckpt_hex(r->summary.manifest_sha256, CKPT_SHA256_LEN, key + strlen(key));
		rc = ckpt_objects_get_all(g->store->objects, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
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

static int mark_stranger(struct ckpt_gc_round *g, const struct ckpt_summary *it)
{
	struct ckpt_manifest *m;
	struct ckpt_record r;
	int rc = ckpt_journal_record(g->store->journal, it->session, it->version, &r);

	if (rc == -ENOENT)
		return 0; // it has expired meanwhile
	if (!rc) {
		rc = manifest_of(g, &r, &m);
		ckpt_record_done(&r);
	}
	if (rc)
		return ckpt_gc_fail(g, rc == -ENOENT ? -EBADMSG : rc, "what version %u of %s needs cannot be read: %s",
				    it->version, it->name, strerror(-rc));
	mark(g, m, CKPT_GC_USE_LIVE, true);
	ckpt_manifest_unref(m);
	return 0;
}

int ckpt_gc_mark_strangers(struct ckpt_gc_round *g)
{
	int rc;

	if (g->known_count)
		qsort(g->known, g->known_count, sizeof(*g->known), by_session);
	rc = ckpt_journal_each(g->store->journal, look_for_stranger, g);
	for (size_t i = 0; i < g->stranger_count && !rc; i++)
		rc = mark_stranger(g, &g->strangers[i]);
	return rc;
}

// --- Open files ---------------------------------------------------------------------------------------------------------

int ckpt_gc_mark_open_files(struct ckpt_gc_round *g)
{
	struct ckpt_manifest **manifests;
	size_t count;
	int rc = ckpt_file_manifests(g->store, &manifests, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		mark(g, manifests[i], CKPT_GC_USE_OPEN, false);
	ckpt_file_manifests_free(manifests, count);
	if (!ckpt_file_others_read(g->store))
		return 0;
	for (size_t i = 0; i < g->pack_count; i++) { // which files others have open nobody tells us
		g->packs[i].use = MAX(g->packs[i].use, CKPT_GC_USE_OPEN);
		g->packs[i].open = g->packs[i].fixed = true;
	}
	return 0;
}

// Needed as by a step whose version is not there yet.
void ckpt_gc_mark_pinned(struct ckpt_gc_round *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		struct ckpt_gc_pack *p = &g->packs[i];

		if (!ckpt_pack_is_pinned(*ckpt_pack_pins_of(g->store), p->pack.id))
			continue;
		p->use = CKPT_GC_USE_LIVE;
		p->fixed = true;
	}
}

void ckpt_gc_mark_done(struct ckpt_gc_round *g)
{
	for (size_t i = 0; i < g->cold_count; i++)
		ckpt_step_unref(g->cold[i]);
	ckpt_pack_use_done(&g->use);
	free(g->known);
	free(g->strangers);
	free(g->packs);
	free(g->cold);
}
