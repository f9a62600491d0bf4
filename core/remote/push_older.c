#include "core/remote/push_older.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/objects/objects.h"
#include "core/save/edit.h"
#include "core/state/condemned.h"
#include "core/state/shared.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/tier/seal.h"

#include <limits.h>
#include <stdio.h>

static void forget(struct ckpt_push_older *o)
{
	ckpt_manifest_unref(TAKE_PTR(o->m));
	ckpt_packing_done(&o->packing);
	o->packing = (struct ckpt_packing){0};
	o->version = 0;
}

void ckpt_push_older_sent(struct ckpt_push_older *o, const char *session)
{
	if (!session || !strcmp(o->session, session))
		forget(o);
}

void ckpt_push_older_done(struct ckpt_push_older *o)
{
	forget(o);
	free(TAKE_PTR(o->passed));
	o->passed_count = o->passed_cap = 0;
}

// --- Objects of manifests -----------------------------------------------------------------------------------------------

static void key_of(const uint8_t *sha256, char ret_key[sizeof("m/") + CKPT_SHA256_HEX_LEN])
{
	strcpy(ret_key, "m/");
	ckpt_hex(sha256, CKPT_SHA256_LEN, ret_key + strlen(ret_key));
}

static int has_entry(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_push_object *object = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, object->session);

	return step && (!step->since || (step->shared && ckpt_state_version(step->shared, object->version)));
}

// Another version may have come to the same bytes. -ENOENT: none has.
static int find_named(struct ckpt_store *s, const struct ckpt_push_object *object)
{
	struct ckpt_step *step = ckpt_step_of_session(s, object->session);
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count = 0;
	int rc = step ? ckpt_older_list(step, &list, &count) : -ENOENT;
	uint32_t last = rc || !count ? 0 : list[count - 1].last;
	bool found = false;

	for (uint32_t v = 1; v <= last && !rc && !found; v++) {
		struct ckpt_record r;

		rc = ckpt_step_record(step, v, &r);
		if (!rc) {
			found = !memcmp(r.summary.manifest_sha256, object->sha256, sizeof(object->sha256));
			ckpt_record_done(&r);
		}
		rc = rc == -ENOENT ? 0 : rc;
	}
	ckpt_step_unref(step);
	return rc ? rc : found ? 0 : -ENOENT;
}

// Unless its entry was read, or it is this manifest. The garbage collection of a node does not look at these objects.
static void remove_object(struct ckpt_push_older *o, struct ckpt_store *s, const struct ckpt_manifest *m)
{
	struct ckpt_push_object object = o->object;
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN];

	if (!*object.session || (m && !memcmp(object.sha256, ckpt_manifest_sha256(m), sizeof(object.sha256))))
		return;
	o->object = (struct ckpt_push_object){0};
	LOCK_SCOPE(&s->acts_lock);
	if (ckpt_journal_look(s->journal, has_entry, &object) || find_named(s, &object) != -ENOENT)
		return;
	key_of(object.sha256, key);
	(void)ckpt_objects_remove(s->objects, key);
}

// --- Which ------------------------------------------------------------------------------------------------------------

static struct ckpt_push_passed *passed_of(const struct ckpt_push_older *o, const char *session)
{
	for (size_t i = 0; i < o->passed_count; i++)
		if (!strcmp(o->passed[i].session, session))
			return &o->passed[i];
	return NULL;
}

int ckpt_push_older_next(const struct ckpt_push_older *o, struct ckpt_step *step, uint32_t sent,
			 struct ckpt_older *ret_state)
{
	const struct ckpt_push_passed *p = passed_of(o, step->session);

	return ckpt_older_unsent(step, p ? MAX(sent, p->version) : sent, ret_state);
}

int ckpt_push_older_pass(struct ckpt_push_older *o, struct ckpt_step *step, uint32_t version, int error)
{
	struct ckpt_push_passed *p = passed_of(o, step->session);
	int rc = p ? 0 : ckpt_grow((void **)&o->passed, &o->passed_cap, o->passed_count + 1, sizeof(*o->passed));

	if (rc)
		return rc;
	if (!p) {
		p = &o->passed[o->passed_count++];
		memcpy(p->session, step->session, sizeof(p->session));
	}
	p->version = version;
	remove_object(o, step->store, NULL);
	ckpt_errlog_add(step->store->errlog, step->name, error,
			ckpt_is_full(error)
				? "make room on this node's disk; the newest version is uploaded"
				: "`ckptfs verify` says which files are damaged; the newest version is uploaded",
			ckpt_is_full(error)
				? "version %u, which an edit made, is not uploaded: there is no room for its packs (%s)"
				: "version %u is not uploaded: its files on this node cannot be read (%s)",
			version, strerror(-error));
	return 0;
}

// --- Its files in packs -------------------------------------------------------------------------------------------------

bool ckpt_push_is_in_packs(const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type == CKPT_ENTRY_FILE && e.bytes && e.content != CKPT_CONTENT_CHUNKS)
			return false;
	}
	return true;
}

struct borrowing {
	struct ckpt_step *step;
	const struct ckpt_manifest *m;
	const struct ckpt_manifest *from[2]; // NULL: none
	bool anew;                           // also what is in packs
};

// Raw files of versions are never changed in place: two entries with one have the same bytes.
static bool is_same_file(const struct borrowing *b, uint32_t index, const struct ckpt_manifest *from, uint32_t at)
{
	char is[CKPT_RAW_PATH_MAX], there[CKPT_RAW_PATH_MAX];
	struct ckpt_entry e, f;

	ckpt_manifest_entry(b->m, index, &e);
	ckpt_manifest_entry(from, at, &f);
	return f.type == CKPT_ENTRY_FILE && f.content == CKPT_CONTENT_CHUNKS && f.bytes == e.bytes &&
	       !ckpt_step_raw_path(b->step, b->m, index, is, sizeof(is)) &&
	       !ckpt_step_raw_path(b->step, from, at, there, sizeof(there)) && !strcmp(is, there);
}

// Under the same path, most often. A file that was renamed has kept its number.
static bool find_same(const struct borrowing *b, uint32_t index, const struct ckpt_manifest *from, uint32_t *ret_at)
{
	char path[PATH_MAX];
	struct ckpt_entry e;

	if (ckpt_manifest_path(b->m, index, path, sizeof(path)) > 0 && !ckpt_manifest_lookup(from, path, ret_at) &&
	    is_same_file(b, index, from, *ret_at))
		return true;
	ckpt_manifest_entry(b->m, index, &e);
	return !ckpt_manifest_find_ino(from, e.ino, ret_at) && is_same_file(b, index, from, *ret_at);
}

static bool borrow(void *arg, uint32_t index, const struct ckpt_manifest **ret_from, uint32_t *ret_index)
{
	const struct borrowing *b = arg;
	struct ckpt_entry e;
	uint32_t at;

	ckpt_manifest_entry(b->m, index, &e);
	if (e.content == CKPT_CONTENT_CHUNKS && !b->anew)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(b->from); i++)
		if (b->from[i] && find_same(b, index, b->from[i], &at)) {
			*ret_from = b->from[i];
			*ret_index = at;
			return true;
		}
	return false;
}

// *m, with the places of those files that the current version, or the one that was packed last, has in packs. It takes the place of *m.
static int borrow_places(const struct ckpt_push_older *o, struct ckpt_step *step, bool anew, struct ckpt_manifest **m)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_manifest *current = NULL;
	int rc = ckpt_step_read_manifest(step, &v->is, &current);
	struct borrowing b = {.step = step, .m = *m, .anew = anew};
	struct ckpt_edit d = {
		.step = step, .same_files = true, .bytes_in = borrow, .arg = &b, .m = ckpt_manifest_ref(*m)};

	b.from[0] = rc ? NULL : current;
	b.from[1] = o->m && !strcmp(o->session, step->session) ? o->m : NULL;
	rc = rc == -ENOMEM ? rc : ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = ckpt_edit_make(&d);
	if (!rc) {
		ckpt_manifest_unref(*m);
		*m = TAKE_PTR(d.next);
	}
	ckpt_edit_done(&d);
	ckpt_manifest_unref(current);
	return rc;
}

static int pack_rest(struct ckpt_push_older *o, struct ckpt_step *step, const struct ckpt_tier_how *how,
		     struct ckpt_manifest **m)
{
	const struct ckpt_seal_how seal = {.go_on = how->go_on, .arg = how->arg};
	struct ckpt_manifest *sealed = NULL, *packed = NULL;
	struct ckpt_packing packing;
	int rc = ckpt_seal_older(step, *m, &seal, &sealed);

	if (!rc)
		rc = ckpt_cool_older(step, sealed, how, &packing, &packed);
	ckpt_manifest_unref(sealed);
	if (rc)
		return rc;
	forget(o);
	o->packing = packing;
	ckpt_manifest_unref(*m);
	*m = packed;
	return ckpt_push_is_in_packs(packed) ? 0 : -EIO;
}

static bool may_be_named(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	return !ckpt_journal_names_condemned(step->store->journal, m, false);
}

// Most of what an older version has the current one has, too, which keeps its places for the next time.
static int make_packed(struct ckpt_push_older *o, struct ckpt_step *step, const struct ckpt_tier_how *how,
		       int (*pack)(void *arg), void *pack_arg, struct ckpt_manifest **m)
{
	bool anew = !may_be_named(step, *m);
	int rc = borrow_places(o, step, anew, m);

	if (!rc && (!ckpt_push_is_in_packs(*m) || !may_be_named(step, *m))) {
		rc = pack(pack_arg);
		rc = rc == -EINTR || rc == -ENOMEM ? rc : borrow_places(o, step, anew, m);
	}
	if (!rc && (!ckpt_push_is_in_packs(*m) || !may_be_named(step, *m)))
		rc = pack_rest(o, step, how, m);
	return !rc && !may_be_named(step, *m) ? -ENODATA : rc;
}

// --- The record ---------------------------------------------------------------------------------------------------------

static int put_object(struct ckpt_push_older *o, struct ckpt_step *step, const struct ckpt_record *r, const void *data,
		      size_t len)
{
	struct ckpt_push_object object = {.version = r->summary.version};
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN];
	int rc;

	key_of(r->summary.manifest_sha256, key);
	rc = ckpt_objects_put(step->store->objects, key, data, len, NULL);
	if (rc)
		return rc == -EEXIST ? 0 : rc; // the same bytes: the key is their digest
	memcpy(object.session, step->session, sizeof(object.session));
	memcpy(object.sha256, r->summary.manifest_sha256, sizeof(object.sha256));
	o->object = object;
	return 0;
}

static int put_manifest(struct ckpt_push_older *o, struct ckpt_step *step, const struct ckpt_manifest *m,
			struct ckpt_record *r)
{
	size_t len;
	const void *data = ckpt_manifest_data(m, &len);

	free(TAKE_PTR(r->manifest));
	r->manifest_len = 0;
	memcpy(r->summary.manifest_sha256, ckpt_manifest_sha256(m), CKPT_SHA256_LEN);
	r->summary.manifest_bytes = len;
	r->summary.sealed = ckpt_manifest_is_sealed(m);
	r->summary.packed = ckpt_manifest_is_packed(m);
	if (len > CKPT_MANIFEST_EMBED_MAX)
		return put_object(o, step, r, data, len);
	r->manifest = malloc(len);
	if (!r->manifest)
		return -ENOMEM;
	memcpy(r->manifest, data, len);
	r->manifest_len = len;
	return 0;
}

static void keep(struct ckpt_push_older *o, struct ckpt_step *step, uint32_t version, struct ckpt_manifest *m)
{
	ckpt_manifest_unref(o->m);
	o->m = ckpt_manifest_ref(m);
	o->version = version;
	memcpy(o->session, step->session, sizeof(o->session));
}

int ckpt_push_older_pack(struct ckpt_push_older *o, struct ckpt_step *step, struct ckpt_record *r,
			 const struct ckpt_tier_how *how, int (*pack)(void *arg), void *pack_arg,
			 struct ckpt_manifest **ret_manifest)
{
	bool is_kept = o->m && o->version == r->summary.version && !strcmp(o->session, step->session) &&
		       may_be_named(step, o->m);
	struct ckpt_manifest *m = is_kept ? ckpt_manifest_ref(o->m) : NULL;
	int rc = m ? 0 : ckpt_step_read_manifest(step, &r->summary, &m);

	if (!rc && !is_kept && !(ckpt_push_is_in_packs(m) && may_be_named(step, m)))
		rc = make_packed(o, step, how, pack, pack_arg, &m);
	if (!rc)
		remove_object(o, step->store, m);
	if (!rc && memcmp(r->summary.manifest_sha256, ckpt_manifest_sha256(m), CKPT_SHA256_LEN))
		rc = put_manifest(o, step, m, r);
	if (!rc) {
		keep(o, step, r->summary.version, m);
		*ret_manifest = TAKE_PTR(m);
	}
	ckpt_manifest_unref(m);
	return rc;
}
