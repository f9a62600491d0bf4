#include "core/save/reunite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/event.h"
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

#define ORIGINS_MAX 1000 // edits in a row

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

// The version of it that the remote's log has; 0: it has no other files here than there, or nobody has taken its place.
struct shared {
	const char *id;
	uint32_t version;
};

static int look_for_shared(void *arg, const struct ckpt_state *state)
{
	struct shared *sh = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, sh->id);

	if (step && step->since && step->shared && ckpt_state_was_replaced(step) &&
	    ckpt_state_was_replaced(step->shared) && ckpt_state_has_changed_files(step))
		sh->version = step->shared->versions[step->shared->count - 1].version;
	return 0;
}

static uint32_t shared_version(struct ckpt_step *step)
{
	struct shared sh = {.id = step->session};

	(void)ckpt_journal_look(step->store->journal, look_for_shared, &sh);
	return sh.version;
}

static bool is_deleted(struct ckpt_step *step)
{
	return ckpt_step_state(step) == CKPT_STEP_DELETED;
}

static uint32_t version_of(struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);

	return v->is.version;
}

static uint32_t first_version(struct ckpt_step *step)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count = 0;

	return ckpt_older_list(step, &list, &count) || !count ? 0 : list[0].first;
}

// An edit of it that is not pushed yet has its place, and its versions since the one that the edit began with are another node's: which that
// was. 0: there is none.
static uint32_t version_before_edits(struct ckpt_step *step)
{
	struct ckpt_step **steps;
	uint32_t first = 0;
	size_t count;

	if (!is_pulled(step) || ckpt_step_list_stored(step->store, &steps, &count))
		return 0;
	for (size_t i = 0; i < count; i++) {
		uint32_t its = steps[i] == step || !ckpt_successor_is(steps[i], step) || is_pulled(steps[i])
				       ? 0
				       : first_version(steps[i]);

		if (its > 1 && (!first || its < first))
			first = its;
	}
	ckpt_step_list_free(steps, count);
	return first && version_of(step) >= first ? first - 1 : 0;
}

static bool may_be_one(struct ckpt_step *step)
{
	return is_deleted(step) ? shared_version(step) || version_before_edits(step)
				: has_conflict_name(step) && !is_pulled(step);
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
	uint32_t version = is_deleted(step) ? shared_version(step) ?: version_before_edits(step) : 0;

	return version ? read_version(step, version, ret_manifest) : find_origin_of_edit(step, ret_manifest);
}

// --- Bringing its files -------------------------------------------------------------------------------------------------

struct bringing {
	struct ckpt_step *from, *to;
	struct ckpt_manifest *m;
	int dirfd; // of the session that they come to
	char raw[CKPT_AMENDING_RAW_MAX];
	char (*made)[CKPT_AMENDING_RAW_MAX];
	size_t count, cap;
};

static void bringing_done(struct bringing *b)
{
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
static int bring(void *arg, struct ckpt_entry *e)
{
	struct bringing *b = arg;
	int rc = ckpt_amending_raw_name(b->raw);

	e->raw_path = b->raw;
	if (rc || e->content == CKPT_CONTENT_CHUNKS)
		return rc;
	rc = ckpt_grow((void **)&b->made, &b->cap, b->count + 1, sizeof(*b->made));
	if (!rc)
		rc = ckpt_share_entry(b->from, b->m, e->index, b->dirfd, b->raw);
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

static int64_t committed_ns(struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);

	return v->is.committed_ns;
}

// An edit comes second, and is the newer one. Of other changes the clocks say which is: they stay where they are, and are looked at again.
// A change that is not pushed yet is newer than those that were.
static int merge(struct ckpt_edit *d, struct bringing *b, struct ckpt_manifest *was)
{
	struct ckpt_merge how = {.was = was,
				 .own = d->m,
				 .other = b->m,
				 .own_wins = is_deleted(b->from) &&
					     (!is_pulled(d->step) || committed_ns(d->step) > committed_ns(b->from)),
				 .session = d->step->session,
				 .number_before = number_before,
				 .bring = bring,
				 .arg = b};
	int rc;

	d->subdirs = calloc(ckpt_manifest_count(d->m), sizeof(*d->subdirs)); // of those it leaves none out
	b->dirfd = d->subdirs ? ckpt_session_open(d->step) : -ENOMEM;
	rc = b->dirfd < 0 ? b->dirfd : ckpt_merge(&how, &d->w, &d->dirs_in_parent);
	return !rc && b->count ? ckpt_sys.fsync(b->dirfd) : rc;
}

static int try(struct ckpt_step *step, struct ckpt_step *into, struct ckpt_manifest *was, bool *adopted,
	       struct ckpt_manifest **ret_was)
{
	CLEANUP(bringing_done) struct bringing b = {.from = step, .to = into, .dirfd = -1};
	struct ckpt_edit d = {.step = into, .event = CKPT_EVENT_EDIT};
	int rc = ckpt_step_manifest(step, &b.m);

	if (!rc)
		rc = ckpt_edit_begin(&d, adopted);
	if (!rc)
		rc = merge(&d, &b, was);
	if (!rc)
		rc = ckpt_edit_put(&d);
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

static void complain(const struct ckpt_step *step, const struct ckpt_step *into, int error)
{
	ckpt_errlog_add(step->store->errlog, step->name, error, "compare the two, and delete one",
			"it is an edit of %s, which another node has edited, too; the two could not be put together",
			into->name);
}

int ckpt_reunite(struct ckpt_step *step, struct ckpt_step **ret_into, struct ckpt_manifest **ret_was)
{
	struct ckpt_step *into;
	int rc;

	if (ckpt_step_is_reopened(step) || ckpt_removal_any(step))
		return -EBUSY;
	into = ckpt_successor_find(step);
	rc = !into || (!is_pulled(into) && !is_pulled(step)) ? -ENOENT : put(step, into, ret_was);
	if (rc && rc != -ENOENT && rc != -EBUSY && rc != -ESTALE)
		complain(step, into, rc);
	if (rc)
		ckpt_step_unref(into);
	else
		*ret_into = into;
	return rc;
}
