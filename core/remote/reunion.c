#include "core/remote/reunion.h"

#include "core/base/util.h"
#include "core/index/indexer.h"
#include "core/jobs/jobs.h"
#include "core/save/delete.h"
#include "core/save/reunite.h"
#include "core/step/store.h"

// Into the index, where it is large: so no act reads it over the network, while others wait for acts_lock. What cannot be fetched now is
// read when it is needed.
static int fetch_manifest(struct ckpt_store *s, const struct ckpt_summary *is)
{
	struct ckpt_indexer *indexer = *ckpt_indexer_of(s);
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN] = "m/";
	CLEANUP_FREE void *data = NULL;
	uint8_t sha256[CKPT_SHA256_LEN];
	size_t len;
	int rc;

	if (!ckpt_index_manifest(s->index, is->manifest_sha256, &data, &len))
		return 0;
	ckpt_hex(is->manifest_sha256, CKPT_SHA256_LEN, key + strlen(key));
	rc = ckpt_objects_get_all(s->objects, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	ckpt_sha256(data, len, sha256);
	if (!memcmp(sha256, is->manifest_sha256, sizeof(sha256)))
		ckpt_indexer_put(indexer, sha256, TAKE_PTR(data), len);
	return 0;
}

// The manifests that it will read come into the index before, so that nothing is read over the network while others wait for acts_lock.
static void fetch_before_reunion(struct ckpt_step *step)
{
	uint32_t versions[2];
	size_t count = *ckpt_indexer_of(step->store) ? ckpt_reunite_reads(step, versions) : 0;

	for (size_t i = 0; i < count; i++) {
		struct ckpt_record r;

		if (ckpt_step_record(step, versions[i], &r))
			continue;
		if (!r.manifest)
			(void)fetch_manifest(step->store, &r.summary);
		ckpt_record_done(&r);
	}
}

// An edit of this node, under the name of a conflict, is put into the edit of another node that came before it. What cannot be is a step
// of its own, and pushed.
static int reunite(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	struct ckpt_manifest *was = NULL, *is = NULL;
	struct ckpt_step *into;
	int rc;

	fetch_before_reunion(step);
	ckpt_lock_take(&s->acts_lock);
	rc = ckpt_reunite(step, &into, &was);
	ckpt_lock_drop(&s->acts_lock);
	if (rc == -ENODATA)
		return ckpt_delete(step); // why it could not be is in the error log
	if (rc)
		return rc;
	if (!ckpt_step_manifest(into, &is) && s->calls.changed)
		s->calls.changed(s->calls.changed_arg, into, was, is);
	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED && into != step)
		(void)ckpt_delete(step); // why it could not be is in the error log
	ckpt_manifest_unref(was);
	ckpt_manifest_unref(is);
	ckpt_step_unref(into);
	return 0;
}

static bool has_manifest(struct ckpt_store *s, const struct ckpt_said *said)
{
	struct ckpt_step *step = ckpt_step_of_session(s, said->is.session);
	CLEANUP_VERSION struct ckpt_version *v = step ? ckpt_step_version(step) : NULL;

	ckpt_step_unref(step);
	return v && !memcmp(v->is.manifest_sha256, said->is.manifest_sha256, sizeof(v->is.manifest_sha256));
}

void ckpt_reunion_fetch(struct ckpt_store *s, struct ckpt_job *job)
{
	CLEANUP_FREE struct ckpt_said *said = NULL;
	size_t count = 0;

	if (!*ckpt_indexer_of(s) || ckpt_journal_list(s->journal, &said, &count))
		return;
	for (size_t i = 0; i < count && !(job && ckpt_job_stops(job)); i++)
		if (said[i].pulled && said[i].is.manifest_bytes > CKPT_MANIFEST_EMBED_MAX &&
		    !has_manifest(s, &said[i]) && fetch_manifest(s, &said[i].is))
			return;
}

int ckpt_reunion_all(struct ckpt_store *s, bool *ret_apart)
{
	struct ckpt_step **steps;
	uint32_t versions[2];
	size_t count;
	int rc = ckpt_reunite_list(s, &steps, &count);

	if (rc)
		return rc;
	*ret_apart = false;
	for (size_t i = 0; i < count; i++)
		if (reunite(steps[i]) && ckpt_reunite_reads(steps[i], versions))
			*ret_apart = true;
	ckpt_step_list_free(steps, count);
	return 0;
}
