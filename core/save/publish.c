// The record of an attempt: made, put, and asked for again where its put was not answered.
#include "core/save/attempt.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/save/commit.h"
#include "core/save/merge.h"
#include "core/save/share.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/reopened.h"
#include "core/step/store.h"

#include <assert.h>
#include <stdio.h>

// A new version of a step: its directory is the same one, of the same time, but where it is fresh, and its pin stays.
static void stay_the_step(struct ckpt_step *base, bool fresh, struct ckpt_summary *s)
{
	LOCK_SCOPE(&base->lock);

	s->first_committed_ns = base->born.first_committed_ns;
	s->pinned = base->version->is.pinned;
	if (fresh)
		return;
	s->dir_ino = base->born.dir_ino;
	s->dir_mtime_ns = base->version->is.dir_mtime_ns;
}

static void fill_summary(struct attempt *a, size_t manifest_len)
{
	struct ckpt_summary *s = &a->record.summary;
	const struct statx *root = &a->scan.root;
	struct ckpt_store *store = a->step->store;

	memcpy(s->folder_id, a->folder_id, sizeof(s->folder_id));
	memcpy(s->name, a->name, sizeof(s->name));
	memcpy(s->session, a->step->session, sizeof(s->session));
	memcpy(s->event, a->event, sizeof(s->event));
	memcpy(s->profile, a->profile, sizeof(s->profile));
	memcpy(s->manifest_sha256, ckpt_manifest_sha256(a->manifest), 32);
	s->sealed = ckpt_manifest_is_sealed(a->manifest); // there is not a byte in it, or none that is new
	s->packed = ckpt_manifest_is_packed(a->manifest); // by what it has of the version before
	s->manifest_bytes = manifest_len;
	s->version = ckpt_attempts_of(a->step)->attempt_version;
	s->durable = CKPT_DURABLE_NODE;
	s->number = ckpt_name_number(a->name);
	ckpt_manifest_totals(a->manifest, &s->files, &s->bytes);
	s->committed_ns = s->first_committed_ns = ckpt_sys.now_ns();
	s->dir_ino = ckpt_store_ino(root);
	s->dir_mode = root->stx_mode & 07777;
	s->dir_uid = root->stx_uid;
	s->dir_gid = root->stx_gid;
	s->dir_nlink = root->stx_nlink;
	s->dir_mtime_ns = root->stx_mtime.tv_sec * INT64_C(1000000000) + root->stx_mtime.tv_nsec;
	if (__atomic_load_n(&a->step->reopens, __ATOMIC_ACQUIRE))
		stay_the_step(a->step->base, ckpt_reopen_of(a->step)->fresh, s);
	ckpt_lock_take(&store->lock);
	s->sequence = a->keeps_place ? a->step->base->born.sequence : ++*ckpt_step_sequence_locked(store);
	ckpt_lock_drop(&store->lock);
}

// What the marker does not say, the step may.
static int complete_metadata(struct attempt *a)
{
	struct ckpt_step *step = a->step;
	char *metadata;
	int rc = ckpt_metadata_of_staged(step->dirfd, a->metadata, step->store->errlog, a->name, &metadata);

	if (rc)
		return rc;
	free(a->metadata);
	a->metadata = metadata;
	return 0;
}

// Below what the step says itself; what was made permanent since its marker stays so.
static int keep_metadata(struct attempt *a)
{
	struct ckpt_step *base = a->step->base;
	struct ckpt_record before;
	char *metadata;
	uint32_t version;
	int rc;

	assert(base); // nobody else asks for it (commit.h)
	ckpt_lock_take(&base->lock);
	version = base->version->is.version;
	a->record.summary.temporary = base->version->is.temporary;
	ckpt_lock_drop(&base->lock);
	rc = ckpt_step_record(base, version, &before);
	if (rc)
		return rc;
	rc = ckpt_metadata_merge(a->metadata, before.metadata, &metadata);
	ckpt_record_done(&before);
	if (rc)
		return rc == -EFBIG ? 0 : rc; // what it says itself comes first
	free(a->metadata);
	a->metadata = metadata;
	return 0;
}

// What its saver does not say was decided before it was saved.
static int take_decision(struct attempt *a)
{
	char *metadata;
	int rc;

	if (!a->step->store->calls.was_temporary(a->step, a->folder_id, a->name))
		return 0;
	rc = ckpt_metadata_merge(a->metadata, "{\"temporary\":true}", &metadata);
	if (rc)
		return rc == -EFBIG ? 0 : rc; // and it stays
	free(a->metadata);
	a->metadata = metadata;
	return 0;
}

static int describe(struct attempt *a)
{
	int rc = complete_metadata(a);

	if (!rc && a->keeps_metadata)
		return keep_metadata(a);
	if (!rc)
		rc = take_decision(a);
	return rc ? rc : ckpt_metadata_temporary(a->metadata, &a->record.summary.temporary);
}

// *ret_data has been parsed: what cannot be read back is not committed.
static int finish_manifest(struct ckpt_manifest_writer *w, void **ret_data, size_t *ret_len,
			   struct ckpt_manifest **ret_manifest)
{
	void *data, *copy;
	int rc = ckpt_manifest_writer_finish(w, &data, ret_len);

	if (rc)
		return rc;
	copy = malloc(*ret_len);
	if (copy)
		memcpy(copy, data, *ret_len);
	rc = copy ? ckpt_manifest_parse(copy, *ret_len, ret_manifest) : -ENOMEM; // takes copy
	if (rc)
		free(data);
	else
		*ret_data = data;
	return rc;
}

// --- Changes by another node ----------------------------------------------------------------------------------------------

struct bringing {
	struct ckpt_step *step;
	char raw[CKPT_AMENDING_RAW_MAX];
};

// It is in packs: here it has no raw file, and a name for one that no file has.
static int bring(void *arg, struct ckpt_manifest *m __attribute__((unused)), struct ckpt_entry *e)
{
	struct bringing *b = arg;

	if (e->content != CKPT_CONTENT_CHUNKS)
		return -EXDEV;
	e->raw_path = b->raw;
	return ckpt_amending_raw_name(b->raw);
}

static uint64_t number_before(void *arg, bool of_own, uint64_t ino)
{
	struct bringing *b = arg;

	return of_own ? ckpt_share_number_before(b->step, ino) : 0;
}

static int take_merged(struct attempt *a, struct ckpt_manifest_writer *w)
{
	struct ckpt_record *r = &a->record;
	struct ckpt_manifest *merged;
	size_t len;
	void *data;
	int rc = finish_manifest(w, &data, &len, &merged);

	if (rc)
		return rc;
	free(r->manifest);
	r->manifest = data;
	r->manifest_len = len;
	a->scanned = a->manifest;
	a->manifest = merged;
	return 0;
}

// That of the other side stays as an older version.
static int tell_not_merged(const struct attempt *a)
{
	ckpt_errlog_add(a->step->store->errlog, a->name, -EXDEV, "compare them: `ckptfs diff`, `ckptfs cat STEP@V`",
			"another node has changed files of it at the same time, which could not be put together with "
			"the changes made here: its version is an older one now");
	return 0;
}

// Since the step was reopened its base may have got another version, or be another. *ret_dirs: as of ckpt_merge().
static int merge_changes(struct attempt *a, int *ret_dirs)
{
	struct bringing b = {.step = a->step};
	struct ckpt_merge how = {.own = a->manifest,
				 .own_wins = true,
				 .keeps_places = true,
				 .session = a->step->session,
				 .number_before = number_before,
				 .bring = bring,
				 .arg = &b};
	struct ckpt_manifest_writer *w = NULL;
	int rc = ckpt_step_manifest(a->step->base, &how.other);

	*ret_dirs = 0;
	if (rc)
		return rc;
	rc = ckpt_reopen_manifest(a->step, &how.was);
	if (!rc)
		rc = memcmp(ckpt_manifest_sha256(how.was), ckpt_manifest_sha256(how.other), CKPT_SHA256_LEN)
			     ? ckpt_merge(&how, &w, ret_dirs)
			     : 1;
	if (!rc)
		rc = take_merged(a, w);
	if (rc)
		*ret_dirs = 0;
	ckpt_manifest_writer_free(w);
	ckpt_manifest_unref(how.was);
	ckpt_manifest_unref(how.other);
	return rc == -EINVAL || rc == -EXDEV ? tell_not_merged(a) : MIN(rc, 0);
}

// Its number is behind that of each version that the base has by now.
static void renew_version(struct attempt *a)
{
	struct ckpt_attempts *attempts = ckpt_attempts_of(a->step);
	LOCK_SCOPE(&a->step->base->lock);

	attempts->attempt_version = MAX(attempts->attempt_version, a->step->base->version->is.version + 1);
}

static int merge_into(struct attempt *a, int *ret_dirs)
{
	*ret_dirs = 0;
	if (!ckpt_reopen_shares(a->step))
		return 0;
	renew_version(a);
	return merge_changes(a, ret_dirs);
}

int ckpt_attempt_prepare(struct attempt *a)
{
	struct ckpt_record *r = &a->record;
	void *data;
	size_t len;
	int dirs, rc = finish_manifest(a->scan.manifest, &data, &len, &a->manifest);

	if (rc)
		return rc;
	r->manifest = data;
	r->manifest_len = len;
	rc = merge_into(a, &dirs);
	if (rc)
		return rc;
	data = r->manifest;
	len = r->manifest_len;
	fill_summary(a, len);
	r->summary.dir_nlink += r->summary.dir_nlink > 1 ? (uint32_t)dirs : 0;
	memcpy(r->store_id, a->step->store->id, sizeof(r->store_id));
	rc = describe(a);
	r->metadata = a->metadata;
	if (!rc)
		rc = ckpt_sys.random(r->summary.nonce, sizeof(r->summary.nonce));
	if (!rc && len > CKPT_MANIFEST_EMBED_MAX) {
		char key[2 + 64 + 1] = "m/";

		ckpt_hex(r->summary.manifest_sha256, 32, key + 2);
		rc = ckpt_objects_put(a->step->store->objects, key, data, len, NULL);
		if (rc == -EEXIST)
			rc = 0; // the same bytes: the key is their digest
	}
	return rc;
}

// 0: the log has our session, from an earlier attempt whose answer was lost. -ENOENT: it has not.
static int read_outcome(struct attempt *a)
{
	struct ckpt_store *s = a->step->store;
	struct ckpt_record there;
	struct ckpt_said said;
	int rc = ckpt_step_said(s, a->step->session, &said);

	if (rc)
		return rc;
	rc = ckpt_step_record(a->step, said.is.version, &there);
	if (rc)
		return rc;
	// An earlier attempt's manifest may differ in what the attempt itself did, such as a leftover's copy.
	if (memcmp(there.summary.manifest_sha256, a->record.summary.manifest_sha256, 32)) {
		ckpt_manifest_unref(TAKE_PTR(a->manifest));
		free(TAKE_PTR(a->record.manifest));
		a->record.manifest_len = 0;
	}
	a->record.summary = there.summary;
	ckpt_record_done(&there);
	return 0;
}

int ckpt_attempt_publish(struct attempt *a)
{
	struct ckpt_act act = {.kind = CKPT_ACT_SAVE};
	struct ckpt_record r = a->record;
	CLEANUP_FREE void *data = NULL;
	int rc;

	if (r.manifest_len > CKPT_MANIFEST_EMBED_MAX) {
		r.manifest = NULL;
		r.manifest_len = 0;
	}
	rc = ckpt_record_encode(&r, &data, &act.record_len);
	if (rc)
		return rc;
	act.record = data;
	if (__atomic_load_n(&a->step->reopens, __ATOMIC_ACQUIRE) && !strcmp(a->name, a->step->base->name))
		memcpy(act.replaces, a->step->base->session, sizeof(act.replaces));
	rc = ckpt_journal_append(a->step->store->journal, &act, false, &a->unknown);
	if (!rc)
		ckpt_version_copy(a->step, data, act.record_len);
	if (!rc && *act.replaces)
		ckpt_version_copy(a->step->base, NULL, 0);
	return rc == -ESTALE ? -EEXIST : a->unknown ? -EIO : rc;
}

int ckpt_attempt_resolve(struct attempt *a)
{
	struct ckpt_store *s = a->step->store;
	int rc;

	ckpt_lock_take(&s->acts_lock);
	rc = ckpt_follow_settle(s);
	ckpt_lock_drop(&s->acts_lock);
	if (!rc)
		rc = read_outcome(a);
	if (!rc || rc == -ENOENT)
		a->unknown = false;
	return rc;
}
