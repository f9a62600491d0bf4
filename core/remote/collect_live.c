// Marks the objects that are needed (collect.h has the order, and why).
#include "core/remote/collect_live.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "core/record/record.h"
#include "core/remote/ahead.h"
#include "core/state/act.h"
#include "core/state/condemned.h"
#include "core/state/jump.h"
#include "core/state/plain.h"
#include "core/state/shared.h"

#include <stdio.h>
#include <string.h>

#define TRIES 8 // the node's own log is trimmed meanwhile: then what stands in it is elsewhere
#define MANIFEST_KEY_MAX (sizeof("m/") + CKPT_SHA256_HEX_LEN)

// --- What one version needs ---------------------------------------------------------------------------------------------

// The two ways in which an object may be meant.
typedef void mark_fn(struct ckpt_collect_object *o);

static void mark_live(struct ckpt_collect_object *o)
{
	o->live = true;
}

static void mark_held_object(struct ckpt_collect_object *o)
{
	o->live = o->fixed = true;
}

static void mark_named(struct ckpt_collect_object *o)
{
	o->was_named = true;
}

static void mark(const struct ckpt_collect_list *list, const uint8_t *name, mark_fn *fn)
{
	struct ckpt_collect_object *o = ckpt_collect_find(list, name);

	if (o)
		fn(o);
}

static int mark_packs(struct ckpt_collecting *c, const struct ckpt_manifest *m, mark_fn *fn)
{
	bool counts = fn == mark_live && c->counts_use;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_collect_object *o;
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		o = ckpt_collect_find(&c->packs, pack.id);
		if (!o)
			continue;
		fn(o);
		o->fixed |= fn == mark_live && c->is_fixed;
	}
	return counts && !c->is_fixed ? ckpt_pack_use_add(&c->use, m) : 0;
}

// data is taken.
static int mark_manifest(struct ckpt_collecting *c, void *data, size_t len, const uint8_t *sha256, mark_fn *fn)
{
	struct ckpt_manifest *m;
	int rc = ckpt_manifest_parse(data, len, &m);

	if (rc)
		return rc;
	if (memcmp(ckpt_manifest_sha256(m), sha256, CKPT_SHA256_LEN))
		rc = -EBADMSG;
	else
		rc = mark_packs(c, m, fn);
	ckpt_manifest_unref(m);
	return rc;
}

// One that is read once is known: it never changes. 1: it is.
static int is_read(struct ckpt_collecting *c, const uint8_t *sha256, mark_fn *fn)
{
	uint64_t key[2];
	bool is_new;
	int rc;

	memcpy(key, sha256, sizeof(key));
	key[1] |= 1;
	key[0] ^= fn == mark_live;
	rc = ckpt_keys_add(&c->read, key, 2, &is_new);
	return rc ? rc : !is_new;
}

// An object of its own; of this node's or of the remote.
static int mark_manifest_object(struct ckpt_collecting *c, const uint8_t *sha256, mark_fn *fn)
{
	char key[MANIFEST_KEY_MAX] = "m/";
	void *data = NULL;
	size_t len;
	int rc;

	mark(&c->manifests, sha256, fn);
	ckpt_hex(sha256, CKPT_SHA256_LEN, key + strlen(key));
	rc = ckpt_objects_get_all(c->store->objects, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	return rc ? rc : mark_manifest(c, data, len, sha256, fn);
}

static int mark_record(struct ckpt_collecting *c, struct ckpt_record *r, mark_fn *fn)
{
	const uint8_t *sha256 = r->summary.manifest_sha256;
	int rc = is_read(c, sha256, fn);

	if (rc)
		return MIN(rc, 0);
	if (!r->manifest)
		return mark_manifest_object(c, sha256, fn);
	return mark_manifest(c, TAKE_PTR(r->manifest), r->manifest_len, sha256, fn);
}

// --- Versions -----------------------------------------------------------------------------------------------------------

// Marks are to be made again where the first attempt failed.
static void forget_read(struct ckpt_collecting *c)
{
	ckpt_keys_done(&c->read);
	c->read = (struct ckpt_keys){0};
}

// An older version that was over when it was condemned, and would not be now: a pin, or another setting. It is not to be had any more.
static bool has_gone(struct ckpt_collecting *c, const struct ckpt_record *r)
{
	return !r->manifest && ckpt_journal_manifest_condemned(c->store->journal, r->summary.manifest_sha256);
}

static int mark_version(struct ckpt_collecting *c, const struct ckpt_state_step *step,
			const struct ckpt_state_version *v, bool is_older)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_record r;
	int rc = ckpt_collect_goes_on(c) ? ckpt_journal_read(c->store->journal, &v->record, &data) : -EINTR;

	c->is_fixed = is_older || step->deleted_by;
	if (!rc)
		rc = ckpt_record_decode(data, v->record.len, &r);
	if (!rc) {
		rc = mark_record(c, &r, mark_live);
		if (rc == -ENOENT && is_older && has_gone(c, &r))
			rc = 0;
		ckpt_record_done(&r);
	}
	return rc && rc != -EINTR ? ckpt_collect_fail(c, rc == -ENOENT ? -EBADMSG : rc,
						      "what version %u of %s needs cannot be read: %s", v->version,
						      step->is.name, strerror(-rc))
				  : rc;
}

// Versions that follow each other with the same files are one state of these: the newest says where the bytes are (core/step/older.h).
// One that was replaced longer ago than deleted steps are kept is no more to be had. One that was restored just before, perhaps by a clock
// that is late, may not be in the log yet: so it stays a delay longer.
static int mark_step(struct ckpt_collecting *c, const struct ckpt_state_step *step)
{
	int64_t over_ns =
		ckpt_time_between(c->how->delay_ns, ckpt_time_between(c->store->settings.trash_ns, c->now_ns));
	const struct ckpt_state_version *says = NULL;
	int rc = 0;

	for (size_t i = 0; i < step->count && !rc; i++) {
		const struct ckpt_state_version *v = &step->versions[i];

		if (says && !ckpt_state_same_files(v) && (step->is.pinned || v->committed_ns > over_ns))
			rc = mark_version(c, step, says, true);
		if (!v->deleted)
			says = v;
	}
	return rc || !says ? rc : mark_version(c, step, says, false);
}

static int mark_plain(struct ckpt_collecting *c, const struct ckpt_plain *e)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_plain_large large;
	int rc = e->large ? ckpt_journal_read(c->store->journal, &e->content, &data) : 0;

	c->is_fixed = true;
	if (!rc && e->large) {
		ckpt_plain_large_decode(data, &large);
		rc = is_read(c, large.manifest, mark_live);
		if (!rc)
			rc = mark_manifest_object(c, large.manifest, mark_live);
	}
	return rc < 0 ? ckpt_collect_fail(c, rc == -ENOENT ? -EBADMSG : rc, "what the file %s needs cannot be read: %s",
					  e->name, strerror(-rc))
		      : 0;
}

// --- Condemned and held -------------------------------------------------------------------------------------------------

static void mark_condemned(struct ckpt_collecting *c, const struct ckpt_named *n)
{
	for (uint32_t i = 0; i < n->pack_count + n->manifest_count; i++) {
		const struct ckpt_collect_list *list = i < n->pack_count ? &c->packs : &c->manifests;
		struct ckpt_collect_object *o = ckpt_collect_find(list, n->objects[i]);

		if (o && !o->condemned)
			o->condemned = ckpt_named_seq(n);
	}
}

static int mark_held(struct ckpt_collecting *c, const struct ckpt_named *n)
{
	int64_t put_ns;
	int rc = ckpt_collect_entry_time(c, ckpt_named_seq(n), &put_ns);

	if (rc)
		return rc;
	if (ckpt_time_between(put_ns, c->now_ns) > CKPT_COLLECT_HOLD_NS)
		return 0;
	for (uint32_t i = 0; i < n->pack_count + n->manifest_count; i++)
		mark(i < n->pack_count ? &c->packs : &c->manifests, n->objects[i], mark_held_object);
	return 0;
}

static int mark_named_objects(struct ckpt_collecting *c, const struct ckpt_state *view)
{
	size_t count;
	const struct ckpt_named *const *all = ckpt_state_named_objects(view, &count);
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		if (*all[i]->step)
			rc = mark_held(c, all[i]);
		else
			mark_condemned(c, all[i]);
	return rc;
}

// --- All of it ----------------------------------------------------------------------------------------------------------

struct look {
	struct ckpt_log_position at;
	struct ckpt_state *view; // NULL: no memory
};

static int look_at(void *arg, const struct ckpt_state *state)
{
	struct look *look = arg;

	look->at = ckpt_state_remote(state);
	look->view = ckpt_state_view(state);
	return 0;
}

static int mark_view(struct ckpt_collecting *c, const struct ckpt_state *view)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count = 0, plain_count;
	struct ckpt_plain *const *plains = ckpt_state_plains(view, &plain_count);
	int rc = ckpt_state_steps(view, &steps, &count);

	for (size_t i = 0; i < count && !rc; i++)
		rc = mark_step(c, steps[i]);
	for (size_t i = 0; i < plain_count && !rc; i++)
		rc = mark_plain(c, plains[i]);
	return rc ? rc : mark_named_objects(c, view);
}

int ckpt_collect_mark_live(struct ckpt_collecting *c)
{
	int rc = -EBADMSG;

	for (int i = 0; i < TRIES && rc == -EBADMSG; i++) {
		struct look look;

		(void)ckpt_journal_look(c->store->journal, look_at, &look);
		if (!look.view)
			return -ENOMEM;
		c->at = look.at;
		*c->done->why = '\0';
		rc = mark_view(c, look.view);
		ckpt_state_free(look.view);
		if (rc)
			forget_read(c);
	}
	return rc;
}

// --- What the log has named ---------------------------------------------------------------------------------------------

static int mark_entry(struct ckpt_collecting *c, const struct ckpt_ahead_entry *e)
{
	struct ckpt_log_entry entry;
	struct ckpt_operation op;
	size_t cursor = 0;
	int rc = ckpt_log_entry_decode(e->data, e->len, &entry) ? 1 : 0;

	while (!rc && ckpt_log_entry_next(&entry, &cursor, &op)) {
		struct ckpt_plain_large large;
		struct ckpt_record r;
		struct ckpt_act a;

		if (ckpt_act_decode(op.kind, op.body, op.len, &a))
			continue;
		if (a.kind == CKPT_ACT_FILE && a.large) {
			ckpt_plain_large_decode(a.content, &large);
			rc = mark_manifest_object(c, large.manifest, mark_named);
		} else if (ckpt_act_has_record(a.kind) && !ckpt_record_decode(a.record, a.record_len, &r)) {
			if (!r.manifest)
				mark(&c->manifests, r.summary.manifest_sha256, mark_named);
			rc = mark_record(c, &r, mark_named);
			ckpt_record_done(&r);
		}
		rc = rc == -ENOMEM ? rc : 0;
	}
	return MIN(rc, 0);
}

int ckpt_collect_mark_named(struct ckpt_collecting *c)
{
	struct ckpt_log_position at = {0};
	size_t count = 1;
	int rc = 0;

	while (!rc && count && at.seq < c->at.seq) {
		struct ckpt_ahead_entry entries[CKPT_AHEAD_MAX];

		if (!ckpt_collect_goes_on(c))
			return -EINTR;
		count = ckpt_ahead_read(c->there, &at, MIN((uint64_t)CKPT_AHEAD_MAX, c->at.seq - at.seq), entries);
		for (size_t i = 0; i < count && !rc; i++)
			rc = mark_entry(c, &entries[i]);
		ckpt_ahead_free(entries, count);
	}
	return rc;
}
