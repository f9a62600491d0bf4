#include "core/remote/renew.h"

#include "core/base/util.h"
#include "core/jobs/jobs.h"
#include "core/base/uuid.h"
#include "core/gc/repack.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/state/condemned.h"
#include "core/step/store.h"

struct renewal {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	bool is_object; // it stands in m/
	struct ckpt_sparse *packs;
	size_t count;
};

static void renewal_done(struct renewal *r)
{
	ckpt_manifest_unref(r->m);
	free(r->packs);
}

static bool go_on(void *job)
{
	return ckpt_job_go_on(job, 0);
}

// As of now. A manifest of at most CKPT_MANIFEST_EMBED_MAX bytes stands in its record.
static int look(struct ckpt_step *step, struct renewal *r)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	int rc = ckpt_step_read_manifest(step, &v->is, &r->m);

	if (rc)
		return rc;
	r->step = step;
	r->is_object = v->is.manifest_bytes > CKPT_MANIFEST_EMBED_MAX;
	r->packs = ckpt_calloc(ckpt_manifest_pack_count(r->m) + 1, sizeof(*r->packs));
	if (!r->packs)
		return -ENOMEM;
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(r->m); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(r->m, i, &pack);
		if (ckpt_journal_pack_condemned(step->store->journal, pack.id))
			r->packs[r->count++] = (struct ckpt_sparse){.pack = pack, .fate = CKPT_SPARSE_CHOSEN};
	}
	return 0;
}

static int move(const struct renewal *r, struct ckpt_job *job)
{
	const struct ckpt_repack_how how = {.quiet = true, .go_on = go_on, .arg = job};
	uint64_t bytes;
	int rc = ckpt_repack(r->step->store, r->packs, r->count, &r->step, 1, &how, &bytes);

	for (size_t i = 0; i < r->count && !rc; i++)
		if (r->packs[i].fate != CKPT_SPARSE_CHOSEN)
			rc = -EBADMSG;
	return rc;
}

// A session that no file is in makes other bytes, and so another name.
static int try_rename(struct ckpt_step *step, bool *adopted)
{
	struct ckpt_edit d = {.step = step, .event = CKPT_EVENT_REPACK, .same_files = true};
	char session[CKPT_UUID_LEN + 1];
	uint32_t index;
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = ckpt_uuid_make(session);
	if (!rc)
		rc = ckpt_manifest_writer_session(d.w, session, &index);
	if (!rc)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc;
}

static int rename_manifest(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->store->acts_lock);
	bool adopted = false;
	int rc = -EAGAIN;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_rename(step, &adopted);
	return rc == -EAGAIN ? -EBUSY : rc;
}

int ckpt_renew(struct ckpt_step *step, struct ckpt_job *job)
{
	CLEANUP(renewal_done) struct renewal r = {0};
	int rc = look(step, &r);

	if (!rc && r.count)
		return move(&r, job);
	if (!rc && ckpt_journal_names_condemned(step->store->journal, r.m, r.is_object))
		rc = rename_manifest(step);
	return rc;
}
