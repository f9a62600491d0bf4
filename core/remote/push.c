#include "core/remote/push.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/remote/early_push.h"
#include "core/remote/near.h"
#include "core/remote/renew.h"
#include "core/remote/upload.h"
#include "core/state/condemned.h"
#include "core/state/difference.h"
#include "core/tier/cool.h"

#include <stdio.h>

// The part of a step that is pushed.
struct item {
	char id[CKPT_UUID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	uint32_t version; // here
	uint32_t
		sent; // the last one that the remote's log has, of this step or of that which it replaces there; 0: none
	bool older;   // than the current one is the version (push_older.h)
	uint32_t begin; // then: the first version of this state of the files
	bool edited;    // and an edit made it
	bool last;      // the current one of a step in whose place another was saved
	bool in_trash;  // of the remote: this node's changes go to the step that took its place (core/save/reunite.h)
	uint32_t deleted_by;
	enum ckpt_act_kind first; // of its acts, as the state has it
	uint64_t number, place;
	size_t count;
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	void *records[CKPT_DIFFERENCE_MAX], *bodies[CKPT_DIFFERENCE_MAX];
};

static void item_done(struct item *it)
{
	for (size_t i = 0; i < CKPT_DIFFERENCE_MAX; i++) {
		free(it->records[i]);
		free(it->bodies[i]);
	}
}

// --- The first of the queue -------------------------------------------------------------------------------------------

struct choice {
	struct item *item;
	const struct ckpt_failure_list *failed;
	bool keeps_deleted, leaves_trash;
	struct ckpt_put_off *put_off; // NULL: none is
};

// One that was saved over meanwhile is another thing to push, and goes before the one that took its place.
static bool is_put_off(const struct choice *c, const char *id, uint64_t number)
{
	for (size_t i = 0; c->put_off && i < c->put_off->count; i++)
		if (!strcmp(c->put_off->ids[i], id) && c->put_off->numbers[i] == number)
			return true;
	return false;
}

// A step that it was saved over is put off, as by a full disk.
static bool is_held_back(const struct choice *c, const struct ckpt_state *state, const struct ckpt_state_step *changed)
{
	bool held = false;

	for (size_t i = 0; c->put_off && i < c->put_off->count && !held; i++) {
		const struct ckpt_state_step *before = ckpt_state_step(state, c->put_off->ids[i]);

		held = before && ckpt_state_follows(state, changed, before);
	}
	return held;
}

static bool is_deletion(const struct ckpt_state_step *changed)
{
	return changed->shared && (changed->gone || changed->deleted_by);
}

// Deleted here and there: nobody waits for what else has changed of it, which may have to wait until it is undeleted.
static bool is_trash(const struct ckpt_state_step *changed)
{
	return !changed->gone && changed->deleted_by && changed->shared && changed->shared->deleted_by;
}

static bool goes_before(const struct ckpt_state *s, const struct ckpt_state_step *a, const struct ckpt_state_step *b)
{
	return is_trash(a) != is_trash(b) ? is_trash(b) : ckpt_state_place(s, a) < ckpt_state_place(s, b);
}

static const struct ckpt_state_step *first(const struct choice *c, const struct ckpt_state *state, bool stuck)
{
	const struct ckpt_state_step *found = NULL;
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	for (size_t i = 0; i < count; i++)
		if (!is_put_off(c, changed[i]->id, changed[i]->latest) &&
		    !ckpt_failure_waits(c->failed, changed[i]->id) && !(c->keeps_deleted && is_deletion(changed[i])) &&
		    !(c->leaves_trash && is_trash(changed[i])) &&
		    ckpt_state_difference(state, changed[i], stuck, acts) && !is_held_back(c, state, changed[i]) &&
		    (!found || goes_before(state, changed[i], found)))
			found = changed[i];
	return found;
}

uint64_t ckpt_push_place(const struct ckpt_state *state, const struct ckpt_failure_list *failed, bool keeps_deleted)
{
	const struct choice all = {.failed = failed, .keeps_deleted = keeps_deleted, .leaves_trash = true};
	const struct ckpt_state_step *step = first(&all, state, false);

	return step ? ckpt_state_place(state, step) : UINT64_MAX;
}

// Versions that come behind an older one change nothing of that, but a step that has another name or is deleted is another thing to push.
static bool is_as_chosen(const struct item *it, const struct ckpt_state *state, const struct ckpt_state_step *step)
{
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	if (!it->older)
		return step->latest == it->number;
	return !step->gone && step->deleted_by == it->deleted_by && !strcmp(step->is.name, it->name) &&
	       ckpt_state_version(step, it->version) && ckpt_state_difference(state, step, false, acts) == it->count &&
	       acts[0].kind == it->first;
}

// It was chosen as it is now; what was expired meanwhile is not to come back.
static int is_still(void *arg, const struct ckpt_state *state)
{
	const struct item *it = arg;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(changed[i]->id, it->id))
			return is_as_chosen(it, state, changed[i]) && !ckpt_state_is_left_out(state, changed[i]);
	return 0;
}

static int choose(void *arg, const struct ckpt_state *state)
{
	struct choice *c = arg;
	struct item *it = c->item;
	const struct ckpt_state_step *step = first(c, state, false), *there;
	bool stuck = !step;

	if (stuck)
		step = first(c, state, true);
	if (!step)
		return 0;
	it->count = ckpt_state_difference(state, step, stuck, it->acts);
	it->first = it->acts[0].kind;
	memcpy(it->id, step->id, sizeof(it->id));
	memcpy(it->name, step->is.name, sizeof(it->name));
	it->version = step->is.version;
	there = step->shared ?: ckpt_state_shared_listed(state, step->is.folder_id, step->is.name);
	it->sent = there ? ckpt_state_last(there) : 0;
	it->number = step->latest;
	it->deleted_by = step->deleted_by;
	it->in_trash = step->shared && step->shared->deleted_by;
	it->place = ckpt_state_place(state, step);
	return 1;
}

// --- Its data ---------------------------------------------------------------------------------------------------------

// The things that an attempt to push has to do with.
struct attempt {
	const struct ckpt_push *of;
	struct ckpt_uploads *own, *uploads; // uploads: own, or those of early
	struct ckpt_early_step *early;      // what was done of a step before its commit; NULL: nothing
	bool is_local;                      // the failure of the preparation: the remote has no part in it
};

static bool is_damage(int rc)
{
	return rc == -EIO || rc == -EBADMSG || rc == -ENOENT;
}

static int add_packs(const struct attempt *a, const struct ckpt_manifest *m)
{
	int rc = 0;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && !rc; i++) {
		char key[CKPT_PACK_KEY_MAX];
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		ckpt_pack_key(pack.id, key);
		rc = ckpt_uploads_add(a->uploads, key, NULL, false);
	}
	return rc;
}

static bool go_on(void *arg, uint64_t bytes)
{
	const struct attempt *a = arg;

	return ckpt_job_go_on(a->of->job, bytes);
}

// A pack goes on its way while the next one is made. Without memory it goes later.
static void send_early(void *arg, const struct ckpt_pack *pack, const uint8_t *sha256)
{
	const struct attempt *a = arg;
	char key[CKPT_PACK_KEY_MAX];

	ckpt_pack_key(pack->id, key);
	(void)ckpt_uploads_add(a->uploads, key, sha256, true);
}

// Raw files stay: they are what this node reads.
static struct ckpt_tier_how how_to_pack(struct attempt *a)
{
	return (struct ckpt_tier_how){.go_on = go_on,
				      .put = send_early,
				      .arg = a,
				      .pack_bytes = a->of->store->settings.pack_bytes,
				      .keeps_raw = true,
				      .early = ckpt_early_step_packing(a->early)};
}

// A new version names new objects where something of it was condemned meanwhile.
static int pack(struct attempt *a, const char *id)
{
	struct ckpt_store *s = a->of->store;
	const struct ckpt_tier_how how = how_to_pack(a);
	struct ckpt_step *step = ckpt_step_live_session(s, id);
	struct ckpt_tier_done done;
	int rc = step ? ckpt_cool_sealed(step, &how, &done) : -ESTALE;

	if (!rc)
		rc = ckpt_renew(step, a->of->job);
	ckpt_step_unref(step);
	return rc;
}

// The record as it is sent: of the version that the step has here, with the number of the act.
static int make_record(struct item *it, size_t i, struct ckpt_record *r)
{
	r->summary.version = it->acts[i].version;
	it->acts[i].record = NULL;
	return ckpt_record_encode(r, &it->records[i], &it->acts[i].record_len);
}

// A HOLD now and then, so that what has arrived is not garbage. The log has nothing new behind it but that. -ETIME: it has.
static int await_arrival(const struct attempt *a, const struct item *it, const struct ckpt_record *r,
			 const struct ckpt_manifest *m)
{
	struct ckpt_hold *hold = a->of->hold;
	int rc;

	do {
		int64_t due_ns = ckpt_hold_due(hold, it->id);

		rc = ckpt_uploads_wait_until(a->uploads, due_ns);
		if (rc == -ETIME)
			rc = ckpt_hold_append(hold, a->of->log, a->of->node, m, !r->manifest);
		else
			return rc;
	} while (!rc);
	return rc == -EEXIST || rc == -EAGAIN ? -ETIME : rc;
}

// The packs and the manifest arrive in any order: nothing names them before the entry does.
static int prepare_manifest(struct attempt *a, const struct item *it, const struct ckpt_record *r,
			    const struct ckpt_manifest *m)
{
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN] = "m/";
	int rc = add_packs(a, m);

	ckpt_hex(r->summary.manifest_sha256, CKPT_SHA256_LEN, key + strlen(key));
	if (!rc && !r->manifest)
		rc = ckpt_uploads_add(a->uploads, key, r->summary.manifest_sha256, false);
	if (!rc)
		rc = await_arrival(a, it, r, m);
	if (rc == -ENODATA)
		rc = -EBADMSG; // a file that ends early
	a->is_local = is_damage(rc) && ckpt_uploads_failed_here(a->uploads);
	return rc;
}

// Behind an entry that condemns something nobody names that (REMOTE.md P4). This node has read all entries before the one that it makes now.
static bool may_be_named(const struct attempt *a, const struct ckpt_record *r, const struct ckpt_manifest *m)
{
	return !ckpt_journal_names_condemned(a->of->store->journal, m, !r->manifest);
}

// -ENODATA: it is not in packs yet, or not in those that may be named.
static int prepare_record(struct attempt *a, struct item *it, size_t i)
{
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = ckpt_step_of_session(a->of->store, it->id);
	struct ckpt_record r;
	int rc = step ? ckpt_step_record(step, it->version, &r) : -ESTALE;

	if (rc) {
		ckpt_step_unref(step);
		return rc == -ENOENT ? -ESTALE : rc;
	}
	rc = ckpt_step_read_manifest(step, &r.summary, &m);
	a->is_local = is_damage(rc); // what this node has changed is on its disk
	if (!rc)
		rc = ckpt_push_is_in_packs(m) && may_be_named(a, &r, m) ? prepare_manifest(a, it, &r, m) : -ENODATA;
	if (!rc)
		rc = make_record(it, i, &r);
	ckpt_manifest_unref(m);
	ckpt_record_done(&r);
	ckpt_step_unref(step);
	return rc;
}

// --- An older version ---------------------------------------------------------------------------------------------------

// The act that has a record, and the versions that acts before it make. NULL: the files stay as they are.
static struct ckpt_act *change_of_files(struct item *it, uint32_t *ret_before)
{
	*ret_before = it->sent;
	for (size_t i = 0; i < it->count; i++) {
		enum ckpt_act_kind kind = it->acts[i].kind;

		if (kind == CKPT_ACT_SAVE || kind == CKPT_ACT_AMEND)
			return &it->acts[i];
		*ret_before = MAX(*ret_before, it->acts[i].version);
	}
	return NULL;
}

// In the place of the current version goes the oldest that the remote's log is to have. 0, -ENOMEM.
static int choose_version(struct attempt *a, struct item *it)
{
	uint32_t before;
	struct ckpt_act *act = change_of_files(it, &before);
	struct ckpt_step *step = act && !it->in_trash ? ckpt_step_of_session(a->of->store, it->id) : NULL;
	struct ckpt_older state;
	int rc = step ? ckpt_push_older_next(a->of->older, step, before, &state) : -ENOENT;

	a->is_local = false;
	ckpt_step_unref(step);
	it->last = step && rc == -ENOENT && it->deleted_by;
	it->older = !rc || it->last;
	if (rc == -ENOENT && !it->last)
		ckpt_push_older_sent(a->of->older, it->id);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	it->edited = state.edited;
	it->begin = state.first;
	it->version = act->version = state.says;
	if (act->kind == CKPT_ACT_AMEND && !state.edited)
		act->kind = CKPT_ACT_RESTORE;
	return 0;
}

struct current {
	struct attempt *a;
	const char *id;
};

static int pack_current(void *arg)
{
	const struct current *c = arg;

	return pack(c->a, c->id);
}

// Failures of this node are local: then the remote has no part in them.
static int prepare_older(struct attempt *a, struct item *it, size_t i)
{
	const struct ckpt_tier_how how = how_to_pack(a);
	struct current current = {a, it->id};
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = ckpt_step_of_session(a->of->store, it->id);
	struct ckpt_record r;
	int rc = step ? ckpt_step_record(step, it->version, &r) : -ESTALE;

	if (rc) {
		ckpt_step_unref(step);
		return rc == -ENOENT ? -ESTALE : rc;
	}
	rc = ckpt_push_older_pack(a->of->older, step, &r, &how, pack_current, &current, &m);
	a->is_local = is_damage(rc) || ckpt_is_full(rc);
	if (!rc)
		rc = prepare_manifest(a, it, &r, m);
	if (!rc)
		rc = make_record(it, i, &r);
	ckpt_manifest_unref(m);
	ckpt_record_done(&r);
	ckpt_step_unref(step);
	return rc;
}

// The versions behind it go on. A save waits for room.
static int pass_over_version(struct attempt *a, const struct item *it, int error)
{
	struct ckpt_step *step = ckpt_step_of_session(a->of->store, it->id);
	int rc = step ? ckpt_push_older_pass(a->of->older, step, it->version, error) : 0;

	ckpt_step_unref(step);
	return rc ? rc : 1;
}

static int prepare(struct attempt *a, struct item *it)
{
	int rc = 0;

	a->is_local = false;
	for (size_t i = 0; i < it->count && !rc; i++)
		if (ckpt_act_has_record(it->acts[i].kind)) {
			rc = it->older ? prepare_older(a, it, i) : prepare_record(a, it, i);
			it->acts[i].record = it->records[i];
		}
	return rc;
}

// --- Sending ------------------------------------------------------------------------------------------------------------

static int make_operation(const struct ckpt_push *p, struct item *it, size_t i, struct ckpt_operation *ret)
{
	size_t len;
	int rc = ckpt_act_encode(&it->acts[i], &it->bodies[i], &len);

	*ret = (struct ckpt_operation){.number = it->number,
				       .kind = (uint16_t)it->acts[i].kind,
				       .required = true,
				       .body = it->bodies[i],
				       .len = len,
				       .actor = ckpt_actor_get()};
	memcpy(ret->node, p->node, CKPT_UUID_LEN + 1);
	return rc ? rc : ckpt_sys.random(ret->nonce, sizeof(ret->nonce));
}

static int send_item(const struct ckpt_push *p, struct item *it)
{
	struct ckpt_operation ops[CKPT_DIFFERENCE_MAX];
	int rc = 0;

	for (size_t i = 0; i < it->count && !rc; i++)
		rc = make_operation(p, it, i, &ops[i]);
	if (!rc)
		rc = ckpt_log_append(p->log, ops, (uint32_t)it->count, false);
	if (!rc)
		ckpt_failures_pushed(p->failures, it->place);
	return rc == -EEXIST || rc == -EAGAIN ? 1 : rc ? rc : 1;
}

static int look_at_number(void *arg, const struct ckpt_state *state)
{
	struct ckpt_failure *failure = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, failure->session);

	failure->number = step ? step->latest : 0;
	return 0;
}

// The next steps go on without it. The attempt may have put some of its files into packs, which is an act.
static int pass_over(const struct ckpt_push *p, const struct item *it, int error)
{
	struct ckpt_failure failure = {.error = error, .place = it->place};
	int rc;

	memcpy(failure.session, it->id, sizeof(failure.session));
	(void)ckpt_journal_look(p->store->journal, look_at_number, &failure);
	rc = ckpt_failures_add(p->failures, &failure);
	if (rc > 0)
		ckpt_errlog_add(
			p->store->errlog, it->name, error,
			"`ckptfs verify` says which files are damaged; save the step again, or delete it",
			"it cannot be uploaded: its files on this node cannot be read (%s); the steps behind it go on",
			strerror(-error));
	return rc < 0 ? rc : 1;
}

// 1: look again, at others; 0: there are too many of them.
static int put_off(struct choice *c)
{
	struct ckpt_put_off *put_off = c->put_off;

	if (put_off->count == ARRAY_LEN(put_off->ids))
		return 0;
	memcpy(put_off->ids[put_off->count], c->item->id, sizeof(c->item->id));
	put_off->numbers[put_off->count++] = c->item->number;
	return 1;
}

// 1: look again; it is packed now, or something else. ret_error: it is damaged.
static int pack_or_put_off(struct attempt *a, struct choice *c, int *ret_error)
{
	int rc = pack(a, c->item->id);

	if (!rc || rc == -EINTR)
		return rc ? rc : 1;
	if (is_damage(rc)) {
		*ret_error = rc;
		return 0;
	}
	return put_off(c);
}

// False: it was thinned meanwhile, with its files, which are no damaged ones.
static bool is_still_to_be_sent(const struct attempt *a, const struct item *it)
{
	struct ckpt_step *step = ckpt_step_of_session(a->of->store, it->id);
	struct ckpt_older state;
	bool is = step && (it->last || (!ckpt_older_unsent(step, it->begin - 1, &state) && state.first == it->begin));

	ckpt_step_unref(step);
	return is;
}

static int end_older(struct attempt *a, struct choice *c, int rc)
{
	// Packs that somebody condemns meanwhile are made another time.
	bool waits = rc == -ESTALE || rc == -ENODATA || (a->is_local && ckpt_is_full(rc) && !c->item->edited);

	if (waits)
		return put_off(c);
	if (!a->is_local)
		return rc;
	if (!is_still_to_be_sent(a, c->item))
		return 1;
	return c->item->last ? pass_over(a->of, c->item, rc) : pass_over_version(a, c->item, rc);
}

// Packs that are on their way already arrive with the rest. Those of a step which was put off are called off.
static void take_early(struct attempt *a, const char *id)
{
	struct ckpt_early_step *early = ckpt_early_push_take(a->of->early, id);

	if (!early)
		return;
	ckpt_early_step_free(a->early);
	a->early = early;
	a->uploads = ckpt_early_step_uploads(early) ? ckpt_early_step_uploads(early) : a->own;
}

static int push(struct attempt *a, char *ret_name)
{
	struct choice c = {.failed = a->of->failed, .keeps_deleted = a->of->keeps_deleted, .put_off = a->of->put_off};
	int rc = 1;

	while (rc > 0) {
		CLEANUP(item_done) struct item it = {0};
		int damage;

		c.item = &it;
		rc = ckpt_journal_look(a->of->store->journal, choose, &c);
		if (!rc && !a->of->put_off->count)
			ckpt_push_older_sent(a->of->older, NULL); // also where its step went meanwhile
		if (rc <= 0)
			return rc;
		memcpy(ret_name, it.name, sizeof(it.name));
		take_early(a, it.id);
		rc = choose_version(a, &it);
		if (!rc)
			rc = prepare(a, &it);
		if (!rc)
			return ckpt_journal_look(a->of->store->journal, is_still, &it) ? send_item(a->of, &it) : 1;
		if (rc == -ETIME)
			return 1;
		if (it.older) {
			rc = end_older(a, &c, rc);
			if (rc == 1 && !is_put_off(&c, it.id, it.number))
				return 1; // what waits for its packs begins anew
			continue;
		}
		damage = a->is_local ? rc : 0;
		if (rc == -ENODATA || rc == -ESTALE)
			rc = pack_or_put_off(a, &c, &damage);
		if (damage)
			return pass_over(a->of, &it, damage); // what waits for its packs begins anew
	}
	return rc;
}

int ckpt_push_next(const struct ckpt_push *p, char ret_name[CKPT_NAME_MAX + 1])
{
	const struct ckpt_uploads_of of = {.here = ckpt_near_here(p->store->objects),
					   .there = ckpt_near_there(p->store->objects),
					   .job = p->job,
					   .tried_ns = *p->tried_ns,
					   .progressed_ns = p->progressed_ns};
	struct attempt a = {.of = p};
	int rc = ckpt_uploads_new(&of, &a.own);

	p->put_off->count = 0;
	if (rc)
		return rc;
	a.uploads = a.own;
	rc = push(&a, ret_name);
	if (rc > 0)
		__atomic_store_n(p->progressed_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	ckpt_early_step_free(a.early);
	ckpt_uploads_free(a.own);
	*p->tried_ns = ckpt_sys.now_ns();
	return rc;
}
