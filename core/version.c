// New metadata for a committed step: a version of its own, put like the first one. Nothing is locked meanwhile: who finds
// his version taken reads what is there, and goes one further.
#include "core/commit.h"

#include "core/errlog.h"
#include "core/metadata.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"

#include <stdio.h>

#define TRIES_MAX 8

// What is there as this version, if it is one of this step: another's, or our own whose answer was lost.
static int adopt_version(struct ckpt_step *step, uint32_t version)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc;
	if (strcmp(r.store_id, step->store->id) || r.summary.version != version || strcmp(r.summary.name, step->name) ||
	    strcmp(r.summary.folder_id, step->folder_id)) {
		ckpt_record_done(&r);
		return -EBADMSG;
	}
	pthread_mutex_lock(&step->lock);
	if (version > step->summary.version)
		step->summary = r.summary;
	pthread_mutex_unlock(&step->lock);
	if (step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, &r.summary, NULL, 0);
	ckpt_record_done(&r);
	return 0;
}

// The current record with other metadata, put as the next version. -EEXIST: there is one.
static int put_next_version(struct ckpt_step *step, const struct ckpt_summary *current, const char *metadata,
			    struct ckpt_summary *ret_summary)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_store *s = step->store;
	struct ckpt_record r;
	size_t len;
	int rc = ckpt_step_record(step, current->version, &r);

	if (rc)
		return rc;
	*ret_summary = r.summary;
	if (r.metadata && !strcmp(r.metadata, metadata)) {
		ckpt_record_done(&r);
		return 0;
	}
	free(r.metadata);
	r.metadata = strdup(metadata);
	r.summary.version++; // the sequence stays: new metadata makes no step the latest
	r.summary.committed_ns = ckpt_sys.now_ns();
	r.summary.temporary = ckpt_metadata_temporary(metadata);
	rc = r.metadata ? ckpt_sys.random(r.summary.nonce, sizeof(r.summary.nonce)) : -ENOMEM;
	if (!rc)
		rc = ckpt_record_encode(&r, &data, &len);
	if (!rc) {
		snprintf(object, sizeof(object), "steps/%s/%u", step->key, r.summary.version);
		rc = ckpt_backend_put(s->backend, object, data, len, NULL);
	}
	if (!rc)
		*ret_summary = r.summary;
	ckpt_record_done(&r);
	return rc;
}

int ckpt_commit_metadata(struct ckpt_step *step, const char *metadata)
{
	struct ckpt_summary current, next;
	int rc = -EEXIST;

	for (int i = 0; i < TRIES_MAX && rc == -EEXIST; i++) {
		pthread_mutex_lock(&step->lock);
		current = step->summary;
		rc = step->state == CKPT_STEP_COMMITTED ? 0 : -ESTALE;
		pthread_mutex_unlock(&step->lock);
		if (!rc)
			rc = put_next_version(step, &current, metadata, &next);
		// The next round compares with what is there, and goes one further.
		if (rc == -EEXIST && (rc = adopt_version(step, current.version + 1)) == 0)
			rc = -EEXIST;
	}
	if (rc) {
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				"its files stay as they are; write the marker again",
				rc == -EIO ? "outcome unknown: its new metadata may or may not be in place"
					   : "its metadata could not be replaced");
		return rc;
	}
	pthread_mutex_lock(&step->lock);
	if (next.version > step->summary.version)
		step->summary = next;
	else
		next.version = 0;
	pthread_mutex_unlock(&step->lock);
	if (next.version && step->store->indexer)
		ckpt_indexer_put(step->store->indexer, step->key, &next, NULL, 0);
	return 0;
}
