#include "core/commit/version.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/commit.h"
#include "core/commit/remove.h"
#include "core/commit/reopen.h"
#include "core/record/metadata.h"
#include "core/store/errlog.h"
#include "core/store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define TRIES_MAX 8

// What is there as this version, if it is one of this step: another's, or our own whose answer was lost.
static int read_version(struct ckpt_step *step, uint32_t version, struct ckpt_record *ret_record)
{
	int rc = ckpt_step_record(step, version, ret_record);

	if (rc)
		return rc;
	if (strcmp(ret_record->store_id, step->store->id) || ret_record->summary.version != version ||
	    strcmp(ret_record->summary.name, step->name) || strcmp(ret_record->summary.folder_id, step->folder_id)) {
		ckpt_record_done(ret_record);
		return -EBADMSG;
	}
	return 0;
}

// True: what has our version is what we put, whose answer was lost.
static bool is_there(struct ckpt_step *step, const struct ckpt_summary *ours)
{
	struct ckpt_record there;
	bool same;

	if (read_version(step, ours->version, &there))
		return false;
	same = !memcmp(there.summary.nonce, ours->nonce, sizeof(ours->nonce));
	ckpt_record_done(&there);
	return same;
}

static void know_durable(struct ckpt_step *step, uint32_t version)
{
	LOCK_SCOPE(&step->lock);

	step->durable = MAX(step->durable, version);
}

int ckpt_version_put_record(struct ckpt_step *step, struct ckpt_record *record, bool frees)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_store *s = step->store;
	struct ckpt_object stored = {0};
	size_t len;
	int rc;

	rc = ckpt_sys.random(record->summary.nonce, sizeof(record->summary.nonce));
	if (!rc)
		rc = ckpt_record_encode(record, &data, &len);
	if (rc)
		return rc;
	snprintf(object, sizeof(object), "steps/%s/%u", step->key, record->summary.version);
	rc = ckpt_objects_put_how(s->objects, object, data, len, frees, &stored);
	// A put over what is there changes nothing, and its -EEXIST says that what is there is durable.
	if (rc == -EIO) {
		int again = ckpt_objects_put_how(s->objects, object, data, len, frees, &stored);

		if (!again || (again == -EEXIST && is_there(step, &record->summary)))
			rc = 0;
	}
	record->summary.stored_ns = stored.mtime_ns;
	if (!rc)
		know_durable(step, record->summary.version);
	// Who reads beside us looks at the time of steps/, which a version in a folder of it does not change.
	if (!rc)
		utimensat(s->dirfd, "steps", NULL, 0);
	return rc;
}

static int put_next(struct ckpt_step *step, uint32_t current, ckpt_version_change_fn *change, void *arg, bool frees,
		    struct ckpt_summary *ret_summary, bool *ret_changed)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, current, &r);

	if (rc)
		return rc;
	if (strcmp(r.summary.session, step->session) || r.summary.version != current || r.summary.deleted) {
		ckpt_record_done(&r);
		return -ESTALE; // it has another name since we looked
	}
	r.summary.committed_ns = ckpt_sys.now_ns();
	rc = change(arg, &r);
	*ret_changed = !rc;
	if (!rc) {
		r.summary.version++; // the sequence stays: it makes no step the latest
		rc = ckpt_version_put_record(step, &r, frees);
	}
	*ret_summary = r.summary;
	ckpt_record_done(&r);
	return rc < 0 ? rc : 0;
}

// Our own version, of a put whose answer was lost, is taken over before the next one is put.
static int adopt(struct ckpt_step *step, uint32_t version)
{
	struct ckpt_record r;
	int rc = read_version(step, version, &r);

	if (rc)
		return rc;
	rc = ckpt_step_load(step->store, &r.summary);
	if (step->store->indexer) // it is in the store, whatever memory there was
		ckpt_indexer_put(step->store->indexer, step->key, &r.summary, NULL, 0);
	ckpt_record_done(&r);
	return rc;
}

int ckpt_version_settle(struct ckpt_step *step)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	CLEANUP_FREE void *data = NULL;
	uint32_t next;
	size_t len;
	int rc;

	ckpt_lock_take(&step->lock);
	next = step->summary.version + 1;
	ckpt_lock_drop(&step->lock);
	snprintf(object, sizeof(object), "steps/%s/%u", step->key, next);
	rc = ckpt_objects_get_all(step->store->objects, object, CKPT_RECORD_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = ckpt_objects_sync(step->store->objects, object); // it is there: it is to last
	return rc ? rc : adopt(step, next);
}

int ckpt_version_make_durable(struct ckpt_step *step)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	uint32_t version, durable;
	int rc;

	ckpt_lock_take(&step->store->lock); // with which its key changes
	ckpt_lock_take(&step->lock);
	version = step->summary.version;
	durable = step->durable;
	snprintf(object, sizeof(object), "steps/%s/%u", step->key, version);
	ckpt_lock_drop(&step->lock);
	ckpt_lock_drop(&step->store->lock);
	if (durable >= version)
		return 0;
	rc = ckpt_objects_sync(step->store->objects, object);
	if (rc)
		return rc;
	know_durable(step, version);
	return 0;
}

int ckpt_version_put(struct ckpt_step *step, ckpt_version_change_fn *change, void *arg, bool frees,
		     struct ckpt_summary *ret_summary, bool *ret_changed)
{
	int rc = -EEXIST;

	for (int i = 0; i < TRIES_MAX && rc == -EEXIST; i++) {
		uint32_t current;

		ckpt_lock_take(&step->lock);
		current = step->summary.version;
		rc = step->state == CKPT_STEP_COMMITTED ? 0 : -ESTALE;
		ckpt_lock_drop(&step->lock);
		if (!rc)
			rc = put_next(step, current, change, arg, frees, ret_summary, ret_changed);
		if (rc == -EEXIST && (rc = adopt(step, current + 1)) == 0)
			rc = -EEXIST;
	}
	return rc;
}

int ckpt_version_flag(struct ckpt_step *step, ckpt_version_change_fn *change, void *arg, bool frees, const char *what)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct ckpt_summary next;
	bool changed;
	bool busy = ckpt_remove_hides(step) || ckpt_reopen_any(step);
	int rc = busy ? -EBUSY : ckpt_version_put(step, change, arg, frees, &next, &changed);

	if (!rc && changed) {
		rc = ckpt_step_load(step->store, &next);
		ckpt_store_wake_behind(step->store);
		if (step->store->indexer)
			ckpt_indexer_put(step->store->indexer, step->key, &next, NULL, 0);
	}
	if (rc && rc != -ESTALE && rc != -EBUSY)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "try it again",
				rc == -EIO ? "outcome unknown: it may or may not be %s" : "it could not be %s", what);
	return rc;
}

// --- New metadata -------------------------------------------------------------------------------------------------------

struct said {
	const char *metadata;
	bool alone; // it was too much with what was there
};

// What it does not say stays.
static int set_metadata(void *arg, struct ckpt_record *r)
{
	CLEANUP_FREE char *merged = NULL;
	struct said *said = arg;
	bool temporary, promoted = false;
	int rc = ckpt_metadata_merge(said->metadata, r->metadata, &merged);

	said->alone = rc == -EFBIG;
	if (said->alone) {
		merged = strdup(said->metadata);
		rc = merged ? 0 : -ENOMEM;
	}
	if (rc)
		return rc;
	if (r->metadata && !strcmp(r->metadata, merged))
		return 1;
	rc = ckpt_metadata_temporary(merged, &temporary);
	if (!rc)
		rc = ckpt_metadata_temporary(r->metadata, &promoted);
	if (rc)
		return rc;
	promoted &= !r->summary.temporary; // what somebody has made permanent stays so
	temporary |= said->alone && r->summary.temporary;
	r->summary.temporary = temporary && !promoted;
	free(r->metadata);
	r->metadata = TAKE_PTR(merged);
	return 0;
}

int ckpt_commit_metadata(struct ckpt_step *step, const char *metadata)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct said said = {.metadata = metadata};
	struct ckpt_summary next;
	bool changed;
	int rc = ckpt_version_put(step, set_metadata, &said, false, &next, &changed);

	if (rc) {
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				"its files stay as they are; write the marker again",
				rc == -EIO ? "outcome unknown: cannot confirm that its new metadata is stored"
					   : "its metadata could not be replaced");
		return rc;
	}
	if (!changed)
		return 0;
	if (said.alone)
		ckpt_errlog_add(step->store->errlog, step->name, -EFBIG,
				"to restore them, write a marker that has all that should stay",
				"its earlier extras and metrics are dropped: together with the new ones they are "
				"more than 64 KiB");
	rc = ckpt_step_load(step->store, &next);
	if (step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, &next, NULL, 0);
	return rc;
}
