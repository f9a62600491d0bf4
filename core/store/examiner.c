#include "core/store/examiner.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/record/metadata.h"
#include "core/remote/near.h"
#include "core/remote/remote.h"
#include "core/save/examined.h"
#include "core/step/errlog.h"
#include "core/step/older.h"
#include "core/step/store.h"
#include "core/view/examine.h"
#include "core/view/step_arrays.h"

// --- Which steps --------------------------------------------------------------------------------------------------------

struct turn {
	struct ckpt_step **steps; // in the order of their commits
	size_t count;
	int64_t now_ns;
	int64_t next_ns; // when to look again, at the latest
};

static bool wants_locked(void *arg, struct ckpt_step *step)
{
	const struct ckpt_examining *e = ckpt_examining_of(step);
	struct turn *t = arg;
	LOCK_SCOPE(&step->lock);
	uint32_t version = step->version->is.version;

	if (!step->version->is.sealed || !step->version->is.bytes || e->version == version)
		return false;
	if (e->after_of == version && e->after_ns > t->now_ns) {
		t->next_ns = MIN(t->next_ns, e->after_ns);
		return false;
	}
	return true;
}

static struct turn choose(struct ckpt_store *s)
{
	struct turn t = {.now_ns = ckpt_sys.mono_ns()};
	int rc;

	t.next_ns = t.now_ns + CKPT_JOB_LATER_NS;
	rc = ckpt_step_choose(s, NULL, 1u << CKPT_STEP_COMMITTED, wants_locked, &t, &t.steps, &t.count);
	if (rc)
		t.next_ns = ckpt_job_again_ns(-EBUSY);
	return t;
}

// --- What is here -------------------------------------------------------------------------------------------------------

static bool has_all_raw(struct ckpt_step *step, const struct ckpt_manifest *m, bool *ret_any_lost)
{
	bool all = true;

	*ret_any_lost = false;
	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !*ret_any_lost; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type != CKPT_ENTRY_FILE || !e.bytes || ckpt_step_has_raw(step, m, i))
			continue;
		all = false;
		*ret_any_lost = e.content == CKPT_CONTENT_RAW;
	}
	return all;
}

static bool has_all_packs(struct ckpt_objects *here, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		char key[CKPT_PACK_KEY_MAX];
		struct ckpt_object object;
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		ckpt_pack_key(pack.id, key);
		if (ckpt_objects_head(here, key, &object))
			return false;
	}
	return true;
}

bool ckpt_examiner_is_here(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	struct ckpt_store *s = step->store;
	bool lost;

	if (has_all_raw(step, m, &lost))
		return true;
	return !lost && (!*ckpt_remote_of(s) || has_all_packs(ckpt_near_here(s->objects), m));
}

// --- One step -----------------------------------------------------------------------------------------------------------

struct look {
	struct ckpt_job *job;
	struct ckpt_step *step;
	struct ckpt_version *version;
	uint32_t files; // the version that made them
	struct ckpt_examine how;
	struct ckpt_examined found;
};

static bool go_on(void *arg, uint64_t bytes)
{
	return ckpt_job_go_on(arg, bytes);
}

// Another node's are found there.
static int made_here(struct look *l, bool *ret_here)
{
	struct ckpt_journal *journal = l->step->store->journal;
	struct ckpt_journal_by by;
	struct ckpt_older *list;
	size_t count;
	int rc = ckpt_older_list(l->step, &list, &count);

	if (rc)
		return rc;
	l->files = list[count - 1].first;
	free(list);
	rc = ckpt_journal_by(journal, l->step->session, l->files, &by);
	if (!rc)
		*ret_here = !*ckpt_remote_of(l->step->store) || !strcmp(by.node, ckpt_journal_node(journal));
	return rc;
}

static bool was_looked_at(const struct look *l)
{
	LOCK_SCOPE(&l->step->lock);

	return ckpt_examining_of(l->step)->files == l->files;
}

// 0 with *ret_needed.
static int needs_look(struct look *l, bool *ret_needed)
{
	CLEANUP_FREE char *findings = NULL;
	struct ckpt_record record;
	int rc = ckpt_step_record(l->step, l->version->is.version, &record);

	*ret_needed = false;
	if (rc)
		return rc;
	rc = ckpt_metadata_findings(record.metadata, &findings);
	ckpt_record_done(&record);
	if (rc != -ENODATA)
		return rc;
	rc = made_here(l, ret_needed);
	if (!rc && *ret_needed)
		*ret_needed = !was_looked_at(l);
	return rc;
}

static int examine(void *arg)
{
	struct look *l = arg;

	return ckpt_examine(&l->how, &l->found);
}

// A step before whose bytes are not all here is not compared.
static void take_before(struct look *l)
{
	l->how.before = ckpt_step_before(l->step);
	if (l->how.before && (ckpt_step_manifest(l->how.before, &l->how.before_m) ||
			      !ckpt_examiner_is_here(l->how.before, l->how.before_m))) {
		ckpt_manifest_unref(TAKE_PTR(l->how.before_m));
		ckpt_step_unref(TAKE_PTR(l->how.before));
	}
}

static void tell(struct look *l)
{
	struct ckpt_store *s = l->step->store;
	struct ckpt_examiner *x = ckpt_examiner_of(s);
	struct ckpt_step_name name;

	__atomic_add_fetch(&x->looked, 1, __ATOMIC_RELAXED);
	if (!l->found.worst)
		return;
	__atomic_add_fetch(&x->with_trouble, 1, __ATOMIC_RELAXED);
	ckpt_step_name(l->step, &name);
	ckpt_errlog_add(s->errlog, name.name, 0,
			"`ckptfs check --read-data` lists all; `ckptfs latest --healthy` names the newest step "
			"without trouble",
			"%llu trouble%s in its arrays: %s", (unsigned long long)l->found.troubles,
			l->found.troubles == 1 ? "" : "s", l->found.worst);
}

static int find(struct look *l)
{
	int rc = ckpt_step_manifest(l->step, &l->how.m);

	if (rc || !ckpt_examiner_is_here(l->step, l->how.m))
		return rc;
	take_before(l);
	rc = ckpt_step_arrays_with_stack(examine, l);
	if (!rc && l->found.json)
		rc = ckpt_version_examined(l->step, &(struct ckpt_examined_of){l->how.m, l->found.json,
									       l->found.catalog, l->found.catalog_len});
	if (!rc)
		tell(l);
	return rc;
}

// -EFBIG: metadata of the user's leave no room.
static void settle(struct look *l, int rc)
{
	struct ckpt_examining *e = ckpt_examining_of(l->step);
	uint32_t version = l->version->is.version;
	LOCK_SCOPE(&l->step->lock);

	if (!rc || rc == -EFBIG) {
		e->version = version;
		e->files = l->files;
	} else {
		bool changed = l->step->version->is.version != version; // packed meanwhile: files were gone

		e->after_of = version;
		e->after_ns = changed ? 0 : ckpt_job_again_ns(rc);
	}
}

static int look_at(struct ckpt_store *s, struct ckpt_job *job, struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *version = ckpt_step_version(step);
	struct look l = {.job = job, .step = step, .version = version};
	bool needed;
	int rc;

	l.how = (struct ckpt_examine){
		.step = step, .elements = s->settings.findings == CKPT_FINDINGS_ELEMENTS, .go_on = go_on, .arg = job};
	rc = needs_look(&l, &needed);
	if (!rc && needed)
		rc = find(&l);
	if (rc != -EINTR)
		settle(&l, rc);
	ckpt_examined_done(&l.found);
	ckpt_manifest_unref(l.how.m);
	ckpt_manifest_unref(l.how.before_m);
	ckpt_step_unref(l.how.before);
	return rc;
}

// --- The job ------------------------------------------------------------------------------------------------------------

static int64_t turn(void *store, struct ckpt_job *job)
{
	struct turn t = choose(store);

	for (size_t i = 0; i < t.count; i++) {
		if (!ckpt_job_stops(job))
			(void)look_at(store, job, t.steps[i]);
		ckpt_step_unref(t.steps[i]);
	}
	free(t.steps);
	return t.count ? 0 : t.next_ns;
}

int ckpt_examiner_start(struct ckpt_store *s)
{
	return ckpt_job_new(s->jobs, &(struct ckpt_job_of){"findings", CKPT_JOB_GIVES_WAY, turn, s, false},
			    &ckpt_examiner_of(s)->job);
}

struct ckpt_part ckpt_examining_part = {.bytes = sizeof(struct ckpt_examining)};

struct ckpt_part ckpt_examiner_part = {.bytes = sizeof(struct ckpt_examiner)};
