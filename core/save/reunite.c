#include "core/save/reunite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/event.h"
#include "core/record/metadata.h"
#include "core/save/edit.h"
#include "core/save/merge.h"
#include "core/save/session.h"
#include "core/save/share.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/older.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "core/step/successor.h"

#include <fcntl.h>
#include <stdio.h>

#define ORIGINS_MAX 1000  // edits in a row
#define CONFLICTS_TOLD 64 // paths of one step, each in a line of the error log

// --- Which --------------------------------------------------------------------------------------------------------------

static bool is_pulled(struct ckpt_step *step)
{
	struct ckpt_said said;

	return ckpt_step_said(step->store, step->session, &said) || said.pulled;
}

static bool has_conflict_name(struct ckpt_step *step)
{
	struct ckpt_step_name is;

	ckpt_step_name(step, &is);
	return strstr(is.name, CKPT_NAME_CONFLICT);
}

// The version of it that the remote's log has; 0: it has no other files here than there, or only those that an edit has, or nobody has taken its place.
struct shared {
	const char *id;
	uint32_t version;
};

static int look_for_shared(void *arg, const struct ckpt_state *state)
{
	struct shared *sh = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, sh->id);

	if (step && step->since && step->shared && ckpt_state_was_replaced(step) &&
	    ckpt_state_was_replaced(step->shared) && ckpt_state_has_changed_files(step) &&
	    !step->versions[step->count - 1].unmerged)
		sh->version = step->merged ?: step->shared->versions[step->shared->count - 1].version;
	return 0;
}

static uint32_t shared_version(struct ckpt_step *step)
{
	struct shared sh = {.id = step->session};

	(void)ckpt_journal_look(step->store->journal, look_for_shared, &sh);
	return sh.version;
}

// The version that both began with, and the one that the remote's log has since: 0, that log has the step no more.
struct unmerged {
	const char *id;
	uint32_t was, theirs;
};

static int look_for_unmerged(void *arg, const struct ckpt_state *state)
{
	struct unmerged *u = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, u->id);

	if (!step || !step->since || !ckpt_state_is_unmerged(step) || ckpt_state_keeps_files(step))
		return 0;
	u->was = step->merged;
	u->theirs = ckpt_state_unmerged_theirs(step);
	return 1;
}

static bool is_unmerged(struct ckpt_step *step, struct unmerged *ret)
{
	*ret = (struct unmerged){.id = step->session};
	return ckpt_journal_look(step->store->journal, look_for_unmerged, ret);
}

static int look_for_behind(void *arg, const struct ckpt_state *state)
{
	struct unmerged *u = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, u->id);

	if (!step || !ckpt_state_has_edit_behind(state, step))
		return 0;
	u->was = step->merged;
	u->theirs = ckpt_state_unmerged_theirs(step);
	return 1;
}

// An edit of it that is not pushed yet has its place, and lacks what the remote's log has of it since.
static bool has_edit_behind(struct ckpt_step *step, struct unmerged *ret)
{
	*ret = (struct unmerged){.id = step->session};
	return ckpt_journal_look(step->store->journal, look_for_behind, ret);
}

static bool is_deleted(struct ckpt_step *step)
{
	return ckpt_step_state(step) == CKPT_STEP_DELETED;
}

static uint32_t first_version(struct ckpt_step *step)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count = 0;

	return ckpt_older_list(step, &list, &count) || !count ? 0 : list[0].first;
}

// It has its changes in a step of its own, or in one whose place another has taken.
static bool may_be_apart(struct ckpt_step *step)
{
	struct unmerged u;

	return is_deleted(step) ? shared_version(step) || has_edit_behind(step, &u)
				: has_conflict_name(step) && !is_pulled(step);
}

static bool may_be_one(struct ckpt_step *step)
{
	struct unmerged u;

	return may_be_apart(step) || is_unmerged(step, &u);
}

size_t ckpt_reunite_reads(struct ckpt_step *step, uint32_t ret_versions[2])
{
	struct unmerged u;

	if (!is_unmerged(step, &u) && !has_edit_behind(step, &u))
		return 0;
	ret_versions[0] = u.was;
	ret_versions[1] = u.theirs;
	return u.theirs ? 2 : 1;
}

int ckpt_reunite_list(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count)
{
	struct ckpt_step **steps;
	size_t count, kept = 0;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, &steps, &count);

	for (size_t i = 0; !rc && i < count; i++)
		if (may_be_one(steps[i]))
			steps[kept++] = steps[i];
		else
			ckpt_step_unref(steps[i]);
	if (rc)
		return rc;
	*ret_steps = steps;
	*ret_count = kept;
	return 0;
}

// --- What both began with -----------------------------------------------------------------------------------------------

static uint32_t deleted_by(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_DELETED ? step->deleted_by : 0;
}

// The step whose place it took: an edit of this node before it, which is in no remote's log either; or the one that all nodes have.
static struct ckpt_step *find_before(struct ckpt_step *const *steps, size_t count, const struct ckpt_step *step,
				     uint32_t first)
{
	struct ckpt_step *found = NULL;
	uint32_t least = UINT32_MAX;

	for (size_t i = 0; i < count; i++) {
		uint32_t by = steps[i] == step || !ckpt_successor_is(steps[i], step) ? 0 : deleted_by(steps[i]);

		if (by == first && !is_pulled(steps[i]))
			return steps[i];
		if (by >= first && by < least && is_pulled(steps[i])) {
			found = steps[i];
			least = by;
		}
	}
	return found;
}

static int read_version(struct ckpt_step *step, uint32_t version, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc;
	rc = ckpt_step_read_manifest(step, &r.summary, ret_manifest);
	ckpt_record_done(&r);
	return rc;
}

static int find_origin_of_edit(struct ckpt_step *step, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(step->store, &steps, &count);
	uint32_t first = 0;

	if (rc)
		return rc;
	for (int i = 0; step && i < ORIGINS_MAX && !(i && is_pulled(step)); i++) {
		first = first_version(step);
		step = first ? find_before(steps, count, step, first) : NULL;
	}
	rc = step && first > 1 ? read_version(step, first - 1, ret_manifest) : -ENOENT;
	ckpt_step_list_free(steps, count);
	return rc;
}

static int find_origin(struct ckpt_step *step, struct ckpt_manifest **ret_manifest)
{
	uint32_t version = is_deleted(step) ? shared_version(step) : 0;

	return version ? read_version(step, version, ret_manifest) : find_origin_of_edit(step, ret_manifest);
}

// --- Bringing its files -------------------------------------------------------------------------------------------------

// A path that both have changed.
struct conflict {
	char *path, *copy; // copy: NULL, none
};

struct bringing {
	struct ckpt_step *from, *to;
	struct ckpt_manifest *m;
	int dirfd; // of the session that they come to
	char raw[CKPT_AMENDING_RAW_MAX];
	char (*made)[CKPT_AMENDING_RAW_MAX];
	size_t count, cap;
	struct conflict conflicts[CONFLICTS_TOLD];
	size_t conflict_count; // more than are told, perhaps
	bool keeps;            // conflict copies; and its files come
};

static void bringing_done(struct bringing *b)
{
	for (size_t i = 0; i < MIN(b->conflict_count, ARRAY_LEN(b->conflicts)); i++) {
		free(b->conflicts[i].path);
		free(b->conflicts[i].copy);
	}
	free(b->made);
	if (b->dirfd >= 0)
		ckpt_sys.close(b->dirfd);
}

static int make_durable(int dirfd, const char *raw)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, raw, O_RDONLY | O_NONBLOCK, 0);

	return fd < 0 ? fd : ckpt_sys.fsync(fd);
}

// One that is in packs needs no raw file.
static int bring(void *arg, struct ckpt_manifest *m, struct ckpt_entry *e)
{
	struct bringing *b = arg;
	int rc = ckpt_amending_raw_name(b->raw);

	e->raw_path = b->raw;
	if (rc || e->content == CKPT_CONTENT_CHUNKS)
		return rc;
	rc = ckpt_grow((void **)&b->made, &b->cap, b->count + 1, sizeof(*b->made));
	if (!rc)
		rc = ckpt_share_entry(b->from, m, e->index, b->dirfd, b->raw);
	if (rc)
		return rc;
	memcpy(b->made[b->count++], b->raw, sizeof(b->raw));
	return make_durable(b->dirfd, b->raw);
}

static void unlink_all(const struct bringing *b)
{
	for (size_t i = 0; i < b->count; i++)
		ckpt_sys.unlink(b->dirfd, b->made[i], 0);
}

static uint64_t number_before(void *arg, bool of_own, uint64_t ino)
{
	const struct bringing *b = arg;

	return ckpt_share_number_before(of_own ? b->to : b->from, ino);
}

// --- The version --------------------------------------------------------------------------------------------------------

static int note_conflict(void *arg, const char *path, const char *copy)
{
	struct bringing *b = arg;
	struct conflict *c = &b->conflicts[b->conflict_count];

	if (b->conflict_count++ >= ARRAY_LEN(b->conflicts))
		return 0;
	*c = (struct conflict){.path = strdup(path), .copy = copy ? strdup(copy) : NULL};
	return c->path && (!copy || c->copy) ? 0 : -ENOMEM;
}

static void tell_conflict(const struct ckpt_step *step, const struct conflict *c)
{
	if (c->copy)
		ckpt_errlog_add(
			step->store->errlog, step->name, -EEXIST,
			"compare the two; then `mv` the copy to another name, or `rm` it",
			"%s: another node has changed it first; what this node has is kept beside it as %s, which is "
			"in no listing",
			c->path, c->copy);
	else
		ckpt_errlog_add(step->store->errlog, step->name, -EEXIST, "remove it again if nobody needs it",
				"%s: it was removed here, and another node has changed it first; so it stays", c->path);
}

static void tell_conflicts(const struct ckpt_step *step, const struct bringing *b)
{
	size_t told = MIN(b->conflict_count, ARRAY_LEN(b->conflicts));

	for (size_t i = 0; i < told; i++)
		tell_conflict(step, &b->conflicts[i]);
	if (told < b->conflict_count)
		ckpt_errlog_add(step->store->errlog, step->name, -EEXIST, "`ckptfs ls STEP --all` lists the copies",
				"another node has changed %zu more paths first", b->conflict_count - told);
}

static int take_host(void *arg, const struct ckpt_state *state)
{
	const char *host = ckpt_state_host(state);

	if (host)
		snprintf(arg, CKPT_NAME_HOST_MAX + 1, "%s", host);
	return 0;
}

// The first in the remote's log wins: the changes of this node come second.
static int merge(struct ckpt_edit *d, struct bringing *b, struct ckpt_manifest *was, bool own_wins)
{
	char host[CKPT_NAME_HOST_MAX + 1] = "";
	struct ckpt_merge how = {.was = was,
				 .own = d->m,
				 .other = b->m,
				 .own_wins = own_wins,
				 .session = d->step->session,
				 .host = b->keeps ? host : NULL,
				 .conflict = note_conflict,
				 .number_before = number_before,
				 .bring = bring,
				 .arg = b};
	int rc;

	(void)ckpt_journal_look(d->step->store->journal, take_host, host);

	d->subdirs = calloc(ckpt_manifest_count(d->m), sizeof(*d->subdirs)); // of those it leaves none out
	rc = d->subdirs ? 0 : -ENOMEM;
	if (!rc && b->keeps) { // else nothing comes, and there may be no directory
		b->dirfd = ckpt_session_open(d->step);
		rc = MIN(b->dirfd, 0);
	}
	d->takes_top = true;
	if (!rc)
		rc = ckpt_merge(&how, &d->w, &d->dirs_in_parent);
	return !rc && b->count ? ckpt_sys.fsync(b->dirfd) : rc;
}

static int try(struct ckpt_step *step, struct ckpt_step *into, struct ckpt_manifest *was, bool *adopted,
	       struct ckpt_manifest **ret_was)
{
	CLEANUP(bringing_done) struct bringing b = {.from = step, .to = into, .dirfd = -1, .keeps = true};
	struct ckpt_edit d = {.step = into, .event = CKPT_EVENT_EDIT};
	int rc = ckpt_step_manifest(step, &b.m);

	if (!rc)
		rc = ckpt_edit_begin(&d, adopted);
	if (!rc)
		rc = merge(&d, &b, was, is_pulled(into));
	if (!rc)
		rc = ckpt_edit_put(&d);
	if (!rc)
		tell_conflicts(into, &b);
	if (!rc || rc == 1)
		*ret_was = ckpt_manifest_ref(d.m);
	else if (rc != -EIO) // that one may be in place
		unlink_all(&b);
	ckpt_edit_done(&d);
	ckpt_manifest_unref(b.m);
	return MIN(rc, 0);
}

static int put(struct ckpt_step *step, struct ckpt_step *into, struct ckpt_manifest **ret_was)
{
	struct ckpt_manifest *was;
	bool adopted = false;
	int rc = find_origin(step, &was);

	if (rc)
		return rc;
	rc = -EAGAIN;
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try(step, into, was, &adopted, ret_was);
	ckpt_manifest_unref(was);
	return rc;
}

// --- Versions of one step -----------------------------------------------------------------------------------------------

// Of a step that is gone: nothing but its directory.
static int make_empty(const struct ckpt_step *step, struct ckpt_manifest *was, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_manifest_writer *w;
	uint32_t session, handle;
	struct ckpt_entry root;
	void *data;
	size_t len;
	int rc = ckpt_manifest_writer_new(&w);

	if (rc)
		return rc;
	ckpt_manifest_entry(was, 0, &root);
	rc = ckpt_manifest_writer_session(w, step->session, &session);
	if (!rc)
		rc = ckpt_manifest_writer_add(w, 0, &root, &handle);
	if (!rc)
		rc = ckpt_manifest_writer_finish(w, &data, &len);
	ckpt_manifest_writer_free(w);
	return rc ? rc : ckpt_manifest_parse(data, len, ret_manifest);
}

static int read_both(struct ckpt_step *step, const struct unmerged *u, struct ckpt_manifest **ret_was,
		     struct ckpt_manifest **ret_theirs)
{
	int rc = read_version(step, u->was, ret_was);

	return rc ? rc : u->theirs ? read_version(step, u->theirs, ret_theirs) : make_empty(step, *ret_was, ret_theirs);
}

// Versions that cannot be read any more cannot be put together: the files of this node are the newest version then, as they are. Else the step
// would wait for ever.
static bool is_lost(int rc)
{
	return rc == -ENOENT || rc == -EBADMSG || rc == -EINVAL || rc == -EEXIST || rc == -E2BIG || rc == -EXDEV;
}

static void tell_not_merged(const struct ckpt_step *step, int error)
{
	ckpt_errlog_add(step->store->errlog, step->name, error, "compare them: `ckptfs diff`, `ckptfs cat STEP@V`",
			"another node has changed files of it at the same time, which could not be put together with "
			"the changes made here: its version is an older one now");
}

// b->from has both versions: it is d->step, or the step whose place that took.
static int merge_versions(struct ckpt_edit *d, struct bringing *b, const struct unmerged *u)
{
	struct ckpt_manifest *was = NULL;
	int rc = read_both(b->from, u, &was, &b->m);

	b->keeps = u->theirs;
	if (!rc)
		rc = merge(d, b, was, !u->theirs);
	ckpt_manifest_unref(was);
	if (rc <= 0)
		return rc;
	free(TAKE_PTR(d->subdirs));
	d->dirs_in_parent = 0;
	return ckpt_edit_copy(d, 0);
}

// Words of the record beside the files, such as metrics: each name that the other has said anew since comes over what this node has.
static int take_metadata(struct ckpt_edit *d, struct ckpt_step *from, const struct unmerged *u)
{
	struct ckpt_record was, theirs;
	int rc = ckpt_step_record(from, u->was, &was);

	if (rc)
		return rc;
	rc = ckpt_step_record(from, u->theirs, &theirs);
	if (!rc) {
		rc = ckpt_metadata_changes(theirs.metadata, was.metadata, &d->says);
		ckpt_record_done(&theirs);
	}
	ckpt_record_done(&was);
	return rc;
}

// Into `into`, which is step, or the edit that has its place. lost: why they cannot be put together; 0: it is tried.
static int try_versions(struct ckpt_step *step, struct ckpt_step *into, const struct unmerged *u, int lost,
			bool *adopted, struct ckpt_manifest **ret_was)
{
	CLEANUP(bringing_done) struct bringing b = {.from = step, .to = into, .dirfd = -1};
	struct ckpt_edit d = {
		.step = into, .event = CKPT_EVENT_EDIT, .merges = true, .merged = u->theirs, .needs_files = !u->theirs};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc)
		rc = lost ? ckpt_edit_copy(&d, 0) : merge_versions(&d, &b, u);
	if (!rc && !lost && u->theirs)
		rc = take_metadata(&d, step, u);
	if (!rc)
		rc = ckpt_edit_put(&d);
	if (!rc && lost)
		tell_not_merged(into, lost);
	if (!rc) {
		tell_conflicts(into, &b);
		*ret_was = ckpt_manifest_ref(d.m);
	} else if (rc != -EIO) {
		unlink_all(&b);
	}
	ckpt_edit_done(&d);
	ckpt_manifest_unref(b.m);
	return rc;
}

static int put_versions(struct ckpt_step *step, struct ckpt_step *into, struct ckpt_manifest **ret_was)
{
	bool adopted = false;
	struct unmerged u;
	int rc = -EAGAIN, lost = 0;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
		if (into == step ? !is_unmerged(step, &u) : !has_edit_behind(step, &u))
			return -ENOENT;
		rc = try_versions(step, into, &u, lost, &adopted, ret_was);
		if (is_lost(rc) && !lost) {
			lost = rc;
			rc = -EAGAIN;
		}
	}
	return rc;
}

static void complain(const struct ckpt_step *step, const struct ckpt_step *into, int error)
{
	ckpt_errlog_add(step->store->errlog, step->name, error, "compare the two, and delete one",
			"it is an edit of %s, which another node has edited, too; the two could not be put together",
			into->name);
}

static int reunite_versions(struct ckpt_step *step, struct ckpt_step **ret_into, struct ckpt_manifest **ret_was)
{
	int rc = put_versions(step, step, ret_was);

	if (!rc)
		*ret_into = ckpt_step_ref(step);
	return rc;
}

int ckpt_reunite(struct ckpt_step *step, struct ckpt_step **ret_into, struct ckpt_manifest **ret_was)
{
	struct ckpt_step *into;
	struct unmerged u;
	int rc;

	if (ckpt_step_is_reopened(step) || ckpt_removal_any(step))
		return -EBUSY;
	if (is_unmerged(step, &u) &&
	    (!u.theirs || !may_be_apart(step))) // what has expired has the name of a conflict, too
		return reunite_versions(step, ret_into, ret_was);
	if (!may_be_apart(step))
		return -ENOENT;
	into = ckpt_successor_find(step);
	if (into && !is_pulled(into) && has_edit_behind(step, &u)) {
		rc = put_versions(step, into, ret_was);
	} else {
		rc = !into || (!is_pulled(into) && !is_pulled(step)) ? -ENOENT : put(step, into, ret_was);
		if (rc && rc != -ENOENT && rc != -EBUSY && rc != -ESTALE)
			complain(step, into, rc);
	}
	if (rc)
		ckpt_step_unref(into);
	else
		*ret_into = into;
	return rc;
}
