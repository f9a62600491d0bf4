#include "core/remote/fetch.h"

#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/cold/pack.h"
#include "core/remote/near.h"
#include "core/save/limit.h"
#include "core/state/condemned.h"
#include "core/state/shared.h"
#include "core/step/errlog.h"
#include "core/step/latest.h"

#include <stdio.h>

#define AGAIN_NS INT64_C(60000000000)
#define DISK_PART 20 // of the disk stays free

// --- One pack -----------------------------------------------------------------------------------------------------------

struct afar {
	struct ckpt_objects *there;
	const struct ckpt_fetch_round *round;
	char key[CKPT_PACK_KEY_MAX];
};

static bool goes_on(const struct ckpt_fetch_round *r, uint64_t bytes)
{
	return !r->go_on || r->go_on(r->arg, bytes);
}

static int read_afar(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct afar *a = arg;
	size_t got;
	int rc = goes_on(a->round, len) ? ckpt_objects_get(a->there, a->key, offset, buf, len, &got, NULL) : -EINTR;

	return rc ? rc : got < len ? -ENODATA : 0;
}

// Saves go first: their room stays free. What is copied counts for the limit at once.
static bool has_room(struct ckpt_store *s, uint64_t bytes)
{
	struct ckpt_limit *limit = *ckpt_limit_of(s);
	uint64_t room, all;

	if (ckpt_limit_try(limit, 0, bytes) ||
	    (!ckpt_sys.room(s->dirfd, &room, &all) && room < bytes + ckpt_latest_bytes(s) + all / DISK_PART))
		return false;
	return !ckpt_limit_ask(limit, 0, bytes);
}

static int copy_pack(struct ckpt_store *s, struct ckpt_fetch_round *r, const struct ckpt_pack *pack, const char *key)
{
	struct afar afar = {.there = ckpt_near_there(s->objects), .round = r};
	const struct ckpt_source source = {.bytes = pack->bytes, .read = read_afar, .arg = &afar};
	int rc;

	snprintf(afar.key, sizeof(afar.key), "%s", key);
	rc = ckpt_objects_put_from(ckpt_near_here(s->objects), key, &source, NULL, NULL);
	if (!rc) {
		r->packs++;
		r->bytes += pack->bytes;
	}
	return rc == -EEXIST ? 0 : rc;
}

// The first failure is told: a pack that has gone keeps no other from being copied.
int ckpt_fetch_pack(struct ckpt_store *s, struct ckpt_fetch_round *r, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;
	int rc;

	ckpt_pack_key(pack->id, key);
	rc = ckpt_objects_head(ckpt_near_here(s->objects), key, &object);
	if (rc != -ENOENT)
		return rc;
	rc = has_room(s, pack->bytes) ? copy_pack(s, r, pack, key) : -ENOSPC;
	if (rc == -ENOSPC)
		r->lacking += pack->bytes;
	if (!rc || rc == -EINTR || (r->failed && r->failed != -ENOENT))
		return rc;
	r->failed = rc;
	snprintf(r->key, sizeof(r->key), "%s", key);
	return rc;
}

// A remote that does not answer is not asked for each of them.
static bool may_try(const struct ckpt_fetch_round *r)
{
	return goes_on(r, 0) && (!r->failed || r->failed == -ENOENT || r->failed == -ENOSPC);
}

static void fetch_manifest(struct ckpt_store *s, struct ckpt_fetch_round *r, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && may_try(r); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		if (ckpt_journal_pack_condemned(s->journal, pack.id))
			(void)ckpt_fetch_pack(s, r, &pack);
	}
}

// --- All of them --------------------------------------------------------------------------------------------------------

static bool condemns(const struct ckpt_log_entry *entry)
{
	struct ckpt_operation op;
	size_t cursor = 0;

	while (ckpt_log_entry_next(entry, &cursor, &op))
		if (op.kind == CKPT_ACT_CONDEMN)
			return true;
	return false;
}

// Steps whose files the remote's log does not have: their chunks go into new packs when they are pushed, and so must be here.
struct waiting {
	char (*ids)[CKPT_UUID_LEN + 1];
	size_t count;
};

static int look_for_waiting(void *arg, const struct ckpt_state *state)
{
	struct waiting *w = arg;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	w->ids = ckpt_calloc(count + 1, sizeof(*w->ids));
	for (size_t i = 0; w->ids && i < count; i++)
		if (ckpt_state_has_changed_files(changed[i]))
			memcpy(w->ids[w->count++], changed[i]->id, sizeof(*w->ids));
	return 0;
}

static void fetch_waiting(struct ckpt_store *s, struct ckpt_fetch_round *r)
{
	struct waiting w = {0};

	(void)ckpt_journal_look(s->journal, look_for_waiting, &w);
	for (size_t i = 0; i < w.count && may_try(r); i++) {
		struct ckpt_step *step = ckpt_step_of_session(s, w.ids[i]);
		struct ckpt_manifest *m;

		if (step && !ckpt_step_read_current(step, &m)) {
			fetch_manifest(s, r, m);
			ckpt_manifest_unref(m);
		}
		ckpt_step_unref(step);
	}
	free(w.ids);
}

// Packs that somebody reads go first: they are fewer, and cannot be had again.
void ckpt_fetch_round(struct ckpt_store *s, struct ckpt_fetch_round *r)
{
	struct ckpt_manifest **manifests;
	size_t count;

	if (!ckpt_file_manifests(s, &manifests, &count)) {
		for (size_t i = 0; i < count && may_try(r); i++)
			fetch_manifest(s, r, manifests[i]);
		ckpt_file_manifests_free(manifests, count);
	}
	fetch_waiting(s, r);
}

// --- The job ----------------------------------------------------------------------------------------------------------

static void tell(struct ckpt_store *s, const struct ckpt_fetch_round *r)
{
	char size[CKPT_SIZE_MAX];

	if (r->lacking)
		ckpt_errlog_add(s->errlog, "remote", -ENOSPC, "free some room, or raise work_limit",
				"no room for %s that the object store is about to remove: files that are open, or "
				"changes that are not uploaded yet, may not be readable in an hour",
				ckpt_size_text(r->lacking, size));
	else
		ckpt_errlog_add(s->errlog, "remote", r->failed, NULL,
				"%s cannot be fetched (%s): a file that is open, or a change that is not uploaded yet, "
				"may not be readable in an hour",
				r->key, strerror(-r->failed));
}

// A pack that has gone is not looked for again.
static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct ckpt_store *s = arg;
	struct ckpt_fetch *f = ckpt_fetch_of(s);
	struct ckpt_fetch_round r = {.go_on = ckpt_job_go_on, .arg = job};
	int failed;

	ckpt_fetch_round(s, &r);
	failed = r.lacking ? -ENOSPC : r.failed;
	if (failed && failed != f->told)
		tell(s, &r);
	f->told = failed;
	return failed && failed != -ENOENT ? ckpt_sys.mono_ns() + AGAIN_NS : INT64_MAX;
}

// Its copies are there for an hour only.
int ckpt_fetch_start(struct ckpt_store *s)
{
	return ckpt_job_new(s->jobs, &(struct ckpt_job_of){"fetch", CKPT_JOB_HURRIES, turn, s, false},
			    &ckpt_fetch_of(s)->job);
}

void ckpt_fetch_after(struct ckpt_store *s, const struct ckpt_log_entry *entry)
{
	struct ckpt_job *job = __atomic_load_n(&ckpt_fetch_of(s)->job, __ATOMIC_ACQUIRE);
	struct ckpt_fetch_round r = {0};

	if (!condemns(entry))
		return;
	if (job) {
		(void)ckpt_job_wake(job);
		return;
	}
	ckpt_fetch_round(s, &r);
	if (r.lacking || r.failed)
		tell(s, &r);
}

struct ckpt_part ckpt_fetch_part = {.bytes = sizeof(struct ckpt_fetch)};
