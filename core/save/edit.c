#include "core/save/edit.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/index/indexer.h"
#include "core/record/metadata.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/removal.h"
#include "core/step/store.h"

#include <limits.h>
#include <stdio.h>

static bool may_change(const struct ckpt_edit *d)
{
	enum ckpt_step_state state = ckpt_step_state(d->step);

	return state == CKPT_STEP_COMMITTED || (d->merges && state == CKPT_STEP_DELETED);
}

int ckpt_edit_begin(struct ckpt_edit *d, bool *adopted)
{
	struct ckpt_step *step = d->step;
	int rc;

	*adopted |= __atomic_load_n(&ckpt_amending_of(step)->amend_unknown, __ATOMIC_RELAXED);
	rc = ckpt_amending_settle_locked(step);
	d->adopted = *adopted;
	if (!rc)
		rc = ckpt_follow_step(step);
	if (!rc)
		rc = may_change(d) ? ckpt_step_manifest(step, &d->m) : -ESTALE;
	if (!rc)
		d->committed_ns =
			step->version->is.committed_ns; // of a committed step it changes under acts_lock alone
	if (!rc && ckpt_step_is_reopened(step))
		rc = -EBUSY; // what it shows is another, which has its files
	if (!rc && !d->leaves_out && ckpt_removal_hides(step))
		rc = -EBUSY; // it is being removed
	if (!rc && d->attributes)
		d->attributes_mark = ckpt_attributes_mark(step);
	return rc;
}

// From the rows of m, or wherever it is now, to those of w: with what it is decoded beside, whether a file still has that or not.
static int copy_place(struct ckpt_edit *d, struct ckpt_chunk *chunk)
{
	struct ckpt_chunk bases[CKPT_BASE_PIECES_MAX];
	struct ckpt_pack pack;
	int rc = 0;

	if (chunk->pack)
		ckpt_manifest_pack(d->m, chunk->pack - 1, &pack);
	if (d->locate)
		d->locate(d->arg, chunk, &pack);
	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		if (!d->base || !d->base(d->arg, chunk, i, &bases[i]))
			ckpt_manifest_base(d->m, chunk->base - 1 + i, &bases[i]);
		rc = copy_place(d, &bases[i]);
	}
	if (!rc && chunk->base_count)
		rc = ckpt_manifest_writer_bases(d->w, bases, chunk->base_count, &chunk->base);
	return rc || !chunk->pack ? rc : ckpt_manifest_writer_pack(d->w, &pack, &chunk->pack);
}

static int copy_chunk(struct ckpt_edit *d, uint32_t index)
{
	struct ckpt_chunk chunk;
	int rc;

	ckpt_manifest_chunk(d->m, index, &chunk);
	rc = copy_place(d, &chunk);
	return rc ? rc : ckpt_manifest_writer_chunk(d->w, &chunk);
}

static int copy_seal(struct ckpt_edit *d, uint32_t index)
{
	uint32_t first = ckpt_manifest_first_link(d->m, index), at = index;
	const struct ckpt_manifest *from = d->m;
	struct ckpt_seal seal;
	bool elsewhere = d->bytes_in && d->bytes_in(d->arg, first, &from, &at);
	int rc;

	if (d->sealed[first] || !ckpt_manifest_seal(from, at, &seal))
		return 0;
	d->sealed[first] = true;
	if (elsewhere)
		return ckpt_manifest_writer_copy_seal(d->w, d->handles[index], from, &seal);
	rc = ckpt_manifest_writer_seal(d->w, d->handles[index], seal.sha256);
	for (uint32_t i = 0; i < seal.count && !rc; i++)
		rc = copy_chunk(d, seal.first + i);
	return rc;
}

static void count_subdirs(struct ckpt_edit *d)
{
	struct ckpt_entry e;

	if (d->moved) {
		ckpt_manifest_entry(d->m, d->moved, &e);
		d->subdirs[e.parent] += e.type == CKPT_ENTRY_DIR;
	}
	for (uint32_t i = 1; d->leaves_out && i < ckpt_manifest_count(d->m); i++) {
		ckpt_manifest_entry(d->m, i, &e);
		d->subdirs[e.parent] += e.type == CKPT_ENTRY_DIR && d->leaves_out(d->arg, i);
	}
}

static int copy_xattrs(struct ckpt_edit *d, const struct ckpt_entry *e, uint32_t handle)
{
	const void *value;
	const char *name;
	size_t len;
	int rc = 0;

	if (d->attributes)
		return ckpt_attributes_write(d->step, d->m, e, d->w, handle);
	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(d->m, e, i, &name, &value, &len); i++)
		rc = ckpt_manifest_writer_xattr(d->w, handle, name, value, len);
	return rc;
}

// A raw file stays where it is, whatever the name of its entry is from now on.
static int keep_raw(struct ckpt_edit *d, struct ckpt_entry *e, char path[PATH_MAX])
{
	int len = e->type != CKPT_ENTRY_FILE || e->raw_path ? 0 : ckpt_manifest_path(d->m, e->index, path, PATH_MAX);

	if (len > 0)
		e->raw_path = path;
	return MIN(len, 0);
}

// Of hard links all say the same.
static bool is_empty_file(const struct ckpt_edit *d, const struct ckpt_entry *e)
{
	return d->names && e->type == CKPT_ENTRY_FILE && e->content == CKPT_CONTENT_NONE;
}

static int put_entry(struct ckpt_edit *d, struct ckpt_entry *e, uint32_t parent, uint32_t *ret_handle)
{
	const char *session = is_empty_file(d, e)               ? d->step->session
			      : e->content != CKPT_CONTENT_NONE ? ckpt_manifest_session(d->m, e->session)
								: NULL;
	int rc;

	if (is_empty_file(d, e))
		e->content = CKPT_CONTENT_RAW;
	rc = session ? ckpt_manifest_writer_session(d->w, session, &e->session) : 0;

	if (!rc)
		rc = ckpt_manifest_writer_add(d->w, parent, e, ret_handle);
	return rc ? rc : copy_xattrs(d, e, *ret_handle);
}

// moves: at or below the entry that moves.
static int copy_entry(struct ckpt_edit *d, uint32_t index, uint32_t removed, bool moves)
{
	char path[PATH_MAX];
	struct ckpt_entry e;
	uint32_t parent;
	int rc;

	ckpt_manifest_entry(d->m, index, &e);
	d->handles[index] = CKPT_EDIT_GONE;
	parent = moves && index == d->moved ? d->moved_to : e.parent;
	if (index && (index == removed || d->handles[parent] == CKPT_EDIT_GONE ||
		      (d->leaves_out && d->leaves_out(d->arg, index))))
		return 0;
	if (d->attributes)
		ckpt_attributes_apply(d->step, d->m, &e);
	e.nlink -= d->subdirs[index];
	if (index == d->parent)
		e.nlink = (uint32_t)((int)e.nlink + d->dirs_in_parent);
	rc = moves ? keep_raw(d, &e, path) : 0;
	if (moves && index == d->moved) {
		e.name = d->moved_name;
		e.conflict = false; // who gives it a name wants to see it
	}
	if (!rc)
		rc = put_entry(d, &e, index ? d->handles[parent] : 0, &d->handles[index]);
	return rc || e.content == CKPT_CONTENT_NONE ? rc : copy_seal(d, index);
}

int ckpt_edit_link(struct ckpt_edit *d, uint32_t index, uint32_t parent, const char *name)
{
	char path[PATH_MAX];
	struct ckpt_entry e;
	uint32_t handle;
	int rc;

	ckpt_manifest_entry(d->m, index, &e);
	if (d->attributes)
		ckpt_attributes_apply(d->step, d->m, &e);
	rc = keep_raw(d, &e, path);
	e.name = name;
	e.conflict = false;
	return rc ? rc : put_entry(d, &e, d->handles[parent], &handle);
}

// A directory has its handle before what is in it: what moves comes last, for where it goes may come after it in m.
static int copy_entries(struct ckpt_edit *d, uint32_t removed)
{
	uint32_t count = ckpt_manifest_count(d->m);
	CLEANUP_FREE bool *moves = calloc(count, sizeof(*moves));
	struct ckpt_entry e;
	int rc = moves ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < count && !rc; i++) {
		ckpt_manifest_entry(d->m, i, &e);
		moves[i] = d->moved && (i == d->moved || moves[e.parent]);
		if (!moves[i])
			rc = copy_entry(d, i, removed, false);
	}
	for (uint32_t i = d->moved; d->moved && i < count && !rc; i++)
		if (moves[i])
			rc = copy_entry(d, i, removed, true);
	return rc;
}

// That of m is of the files of m.
static int copy_catalog(struct ckpt_edit *d)
{
	bool same = d->same_files || d->only_attributes || d->restores;
	const void *bytes = d->catalog;
	size_t len = d->catalog_len;

	if (!bytes && (!same || !ckpt_manifest_catalog(d->m, &bytes, &len)))
		return 0;
	return ckpt_manifest_writer_catalog(d->w, bytes, len);
}

int ckpt_edit_copy(struct ckpt_edit *d, uint32_t removed)
{
	uint32_t count = ckpt_manifest_count(d->m);
	uint32_t own; // in every manifest of the step, so that no other step has the same bytes
	int rc = ckpt_manifest_writer_new(&d->w);

	d->handles = calloc(count, sizeof(*d->handles));
	d->sealed = calloc(count, sizeof(*d->sealed));
	d->subdirs = calloc(count, sizeof(*d->subdirs));
	if (!rc && (!d->handles || !d->sealed || !d->subdirs))
		rc = -ENOMEM;
	if (!rc)
		count_subdirs(d);
	if (!rc)
		rc = ckpt_manifest_writer_session(d->w, d->step->session, &own);
	if (!rc)
		rc = copy_catalog(d);
	return rc ? rc : copy_entries(d, removed);
}

int ckpt_edit_make(struct ckpt_edit *d)
{
	void *copy;
	int rc = ckpt_manifest_writer_finish(d->w, &d->data, &d->len);

	if (rc)
		return rc;
	copy = malloc(d->len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, d->data, d->len);
	return ckpt_manifest_parse(copy, d->len, &d->next); // what cannot be read back is not put
}

void ckpt_edit_done(struct ckpt_edit *d)
{
	ckpt_manifest_writer_free(d->w);
	ckpt_manifest_unref(d->m);
	ckpt_manifest_unref(d->next);
	free(d->handles);
	free(d->sealed);
	free(d->subdirs);
	free(d->data);
	free(d->says);
}

// --- The version --------------------------------------------------------------------------------------------------------

static int set_metadata(struct ckpt_edit *d, struct ckpt_record *r)
{
	char *merged;
	int rc = d->says ? ckpt_metadata_merge(d->says, r->metadata, &merged) : 0;

	if (rc == -EFBIG) {
		ckpt_errlog_add(d->step->store->errlog, d->step->name, rc, "write a marker with less in it",
				CKPT_METRICS_FILE
				" is left out of its metadata: together it would be more than 64 KiB");
		return 0;
	}
	if (rc || !d->says)
		return rc;
	free(r->metadata);
	r->metadata = merged;
	return 0;
}

// Findings are those of the files of a version.
static bool has_other_files(const struct ckpt_edit *d)
{
	return d->restores || (!d->same_files && !d->only_attributes &&
			       memcmp(ckpt_manifest_sha256(d->next), ckpt_manifest_sha256(d->m), CKPT_SHA256_LEN));
}

static int set_findings(struct ckpt_record *r, const char *findings)
{
	char *metadata;
	int rc = ckpt_metadata_set_findings(r->metadata, findings, &metadata);

	if (rc)
		return rc;
	free(r->metadata);
	r->metadata = metadata;
	return 0;
}

static void take_top(const struct ckpt_edit *d, struct ckpt_summary *s)
{
	struct ckpt_entry top;

	ckpt_manifest_entry(d->next, 0, &top);
	s->dir_mode = top.mode;
	s->dir_uid = top.uid;
	s->dir_gid = top.gid;
}

static int set_manifest(void *arg, struct ckpt_record *r)
{
	struct ckpt_edit *d = arg;
	char key[2 + 64 + 1] = "m/";
	int rc;

	if (!d->restores && memcmp(r->summary.manifest_sha256, ckpt_manifest_sha256(d->m), 32))
		return -EAGAIN; // an amend before, whose answer was lost, is there after all
	rc = set_metadata(d, r);
	if (!rc && (d->findings || has_other_files(d)))
		rc = set_findings(r, d->findings);
	if (rc)
		return rc;
	free(TAKE_PTR(r->manifest));
	r->manifest_len = 0;
	memcpy(r->summary.manifest_sha256, ckpt_manifest_sha256(d->next), 32);
	r->summary.manifest_bytes = d->len;
	ckpt_manifest_totals(d->next, &r->summary.files, &r->summary.bytes);
	r->summary.dir_nlink -= d->subdirs[0];
	if (!d->parent)
		r->summary.dir_nlink = (uint32_t)((int)r->summary.dir_nlink + d->dirs_in_parent);
	if (d->restores)
		r->summary.dir_nlink = d->restores->dir_nlink;
	if (d->attributes) {
		LOCK_SCOPE(&d->step->lock);
		ckpt_attributes_apply_top_locked(d->step, &r->summary);
	}
	if (d->takes_top)
		take_top(d, &r->summary);
	if (d->same_files)
		r->summary.committed_ns = d->committed_ns;
	r->summary.sealed = ckpt_manifest_is_sealed(d->next);
	r->summary.packed = ckpt_manifest_is_packed(d->next);
	if (d->event)
		snprintf(r->summary.event, sizeof(r->summary.event), "%s", d->event);
	if (d->len > CKPT_MANIFEST_EMBED_MAX) {
		ckpt_hex(r->summary.manifest_sha256, 32, key + 2);
		rc = ckpt_objects_put_how(d->step->store->objects, key, d->data, d->len, d->frees, NULL);
		return rc == -EEXIST ? 0 : rc; // the same bytes: the key is their digest
	}
	r->manifest = malloc(d->len);
	if (!r->manifest)
		return -ENOMEM;
	memcpy(r->manifest, d->data, d->len);
	r->manifest_len = d->len;
	return 0;
}

static enum ckpt_act_kind kind_of(const struct ckpt_edit *d)
{
	return d->restores ? CKPT_ACT_RESTORE : d->same_files ? CKPT_ACT_REPACK : CKPT_ACT_AMEND;
}

// The log has another version, which another node has made.
static int follow_others(struct ckpt_step *step)
{
	int rc = ckpt_follow(step->store);

	return rc ? rc : ckpt_step_state(step) == CKPT_STEP_COMMITTED ? -EAGAIN : -ESTALE;
}

static bool has_no_files(const struct ckpt_manifest *m)
{
	uint64_t files, bytes;

	ckpt_manifest_totals(m, &files, &bytes);
	return !files;
}

int ckpt_edit_put(struct ckpt_edit *d)
{
	struct ckpt_step *step = d->step;
	struct ckpt_summary next;
	bool changed;
	int rc = ckpt_edit_make(d);

	if (!rc && d->needs_files && has_no_files(d->next))
		return -ENODATA;
	if (!rc && d->only_attributes &&
	    !memcmp(ckpt_manifest_sha256(d->next), ckpt_manifest_sha256(d->m), CKPT_SHA256_LEN)) {
		ckpt_attributes_put(step, d->attributes_mark, d->m);
		return 0;
	}
	if (!rc)
		rc = d->merges ? ckpt_version_merge(step, d->merged, set_manifest, d, &next, &changed)
			       : ckpt_version_put(step, kind_of(d), set_manifest, d, d->frees, &next, &changed);
	if (rc == -EIO)
		__atomic_store_n(&ckpt_amending_of(step)->amend_unknown, true, __ATOMIC_RELAXED);
	if (!rc && !may_change(d)) // by another node, a moment ago: it is a version in the trash
		rc = -ESTALE;
	if (rc)
		return rc == -ESTALE ? follow_others(step) : rc;
	ckpt_step_keep_manifest(step, d->next);
	if (!d->restores)
		ckpt_removal_carry(step, d->m, d->next, d->only_attributes);
	if (d->attributes)
		ckpt_attributes_put(step, d->attributes_mark, d->m);
	ckpt_store_wake_behind(step->store);
	if (*ckpt_indexer_of(step->store) && d->len > CKPT_MANIFEST_EMBED_MAX)
		ckpt_indexer_put(*ckpt_indexer_of(step->store), next.manifest_sha256, TAKE_PTR(d->data), d->len);
	return 0;
}
