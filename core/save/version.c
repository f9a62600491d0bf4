#include "core/save/version.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/removal.h"
#include "core/step/store.h"

#include <stdio.h>

void ckpt_version_copy(struct ckpt_step *step, const void *record, size_t len)
{
	struct ckpt_record_copies copies = ckpt_store_copies(step->store);

	ckpt_record_copy_put(&copies, step->session, record, len);
}

// The step follows its own act. Where another node's edit took its place in the meantime, all steps follow, and clients are told.
static void follow(struct ckpt_step *step, enum ckpt_act_kind kind)
{
	bool deletes = kind == CKPT_ACT_DELETE || kind == CKPT_ACT_EXPIRE;
	struct ckpt_said said;

	if (deletes || ckpt_step_state(step) != CKPT_STEP_COMMITTED ||
	    ckpt_step_said(step->store, step->session, &said) || !said.deleted_by || ckpt_follow(step->store))
		ckpt_step_follow(step);
}

int ckpt_version_act(struct ckpt_step *step, struct ckpt_act *act, bool frees)
{
	bool unknown;
	int rc;

	memcpy(act->step, step->session, sizeof(act->step));
	rc = ckpt_journal_append(step->store->journal, act, frees, &unknown);
	step->unknown_act = unknown ? (uint8_t)act->kind : 0;
	if (rc)
		return rc;
	follow(step, act->kind);
	if (act->kind != CKPT_ACT_EXPIRE &&
	    !(act->kind == CKPT_ACT_MERGE && ckpt_step_state(step) == CKPT_STEP_DELETED))
		ckpt_version_copy(step, act->record, act->record_len);
	return 0;
}

bool ckpt_version_was_done(struct ckpt_step *step, enum ckpt_act_kind kind, enum ckpt_step_state state)
{
	bool done = step->unknown_act == kind && ckpt_step_state(step) == state;

	if (done)
		step->unknown_act = 0;
	return done;
}

static void take_summary(struct ckpt_step *step, struct ckpt_summary *ret, enum ckpt_step_state *ret_state)
{
	LOCK_SCOPE(&step->lock);

	*ret = step->version->is;
	*ret_state = step->state;
}

// how: the kind, and what a MERGE says.
static int put_record(struct ckpt_step *step, const struct ckpt_act *how, struct ckpt_record *r, bool frees)
{
	struct ckpt_act act = *how;
	CLEANUP_FREE void *data = NULL;
	int rc = ckpt_sys.random(r->summary.nonce, sizeof(r->summary.nonce));

	if (!rc)
		rc = ckpt_record_encode(r, &data, &act.record_len);
	act.record = data;
	return rc ? rc : ckpt_version_act(step, &act, frees);
}

// That which deleted it, too.
static int last_version(struct ckpt_step *step, uint32_t *ret_version)
{
	struct ckpt_said said;
	int rc = ckpt_step_said(step->store, step->session, &said);

	if (!rc)
		*ret_version = said.last;
	return rc;
}

static int put_version(struct ckpt_step *step, const struct ckpt_act *how, ckpt_version_change_fn *change, void *arg,
		       bool frees, struct ckpt_summary *ret_summary, bool *ret_changed)
{
	struct ckpt_summary now;
	enum ckpt_step_state state;
	struct ckpt_record r;
	uint32_t last = 0;
	int rc = ckpt_follow_settle(step->store);

	if (!rc)
		rc = ckpt_follow_step(step); // an entry of the remote's log comes at any time
	if (rc)
		return rc;
	take_summary(step, &now, &state);
	if (state == CKPT_STEP_DELETED && how->kind == CKPT_ACT_MERGE)
		rc = last_version(step, &last);
	else
		rc = state == CKPT_STEP_COMMITTED ? 0 : -ESTALE;
	if (!rc)
		rc = ckpt_step_record(step, now.version, &r);
	if (rc == -ENOENT && ckpt_follow_is_behind(step))
		rc = -ESTALE; // one came just now, and gives the version another number
	if (rc)
		return rc;
	r.summary.committed_ns = ckpt_sys.now_ns();
	rc = change(arg, &r);
	*ret_changed = !rc;
	if (!rc) {
		r.summary.version = MAX(now.version, last) + 1; // the sequence stays: it makes no step the latest
		rc = put_record(step, how, &r, frees);
	}
	*ret_summary = r.summary;
	ckpt_record_done(&r);
	return MIN(rc, 0);
}

int ckpt_version_put(struct ckpt_step *step, enum ckpt_act_kind kind, ckpt_version_change_fn *change, void *arg,
		     bool frees, struct ckpt_summary *ret_summary, bool *ret_changed)
{
	return put_version(step, &(struct ckpt_act){.kind = kind}, change, arg, frees, ret_summary, ret_changed);
}

int ckpt_version_merge(struct ckpt_step *step, uint32_t merged, ckpt_version_change_fn *change, void *arg,
		       struct ckpt_summary *ret_summary, bool *ret_changed)
{
	const struct ckpt_act how = {.kind = CKPT_ACT_MERGE, .merged = merged};

	return put_version(step, &how, change, arg, false, ret_summary, ret_changed);
}

static int put_flag(struct ckpt_step *step, uint32_t flag, bool on)
{
	struct ckpt_act act = {.kind = CKPT_ACT_FLAG, .time_ns = ckpt_sys.now_ns()};
	struct ckpt_summary now;
	uint32_t was;
	enum ckpt_step_state state;
	int rc = ckpt_follow_settle(step->store);

	if (!rc)
		rc = ckpt_follow_step(step); // an entry of the remote's log comes at any time
	if (rc)
		return rc;
	take_summary(step, &now, &state);
	if (state != CKPT_STEP_COMMITTED)
		return -ESTALE;
	was = (now.pinned ? CKPT_FLAG_PINNED : 0) | (now.temporary ? CKPT_FLAG_TEMPORARY : 0);
	act.flags = on ? was | flag : was & ~flag;
	act.version = now.version + 1;
	return act.flags == was ? 0 : ckpt_version_act(step, &act, !on);
}

int ckpt_version_flag(struct ckpt_step *step, uint32_t flag, bool on, const char *what)
{
	LOCK_SCOPE(&step->store->acts_lock);
	int rc = ckpt_removal_hides(step) || ckpt_step_is_reopened(step) ? -EBUSY : put_flag(step, flag, on);

	if (!rc)
		ckpt_store_wake_behind(step->store);
	if (rc && rc != -ESTALE && rc != -EBUSY)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "try it again",
				rc == -EIO ? "outcome unknown: it may or may not be %s" : "it could not be %s", what);
	return rc;
}

// --- New metadata -------------------------------------------------------------------------------------------------------

struct said {
	const char *metadata;
	bool adds;  // it is an error if there is no room for both
	bool alone; // it was too much with what was there
};

// The files are the same. They are found again, if there is no room for both.
static int keep_findings(const char *was, char **merged)
{
	CLEANUP_FREE char *findings = NULL;
	char *both;
	int rc = ckpt_metadata_findings(was, &findings);

	if (!rc)
		rc = ckpt_metadata_set_findings(*merged, findings, &both);
	if (rc)
		return rc == -ENODATA || rc == -EFBIG ? 0 : rc;
	free(*merged);
	*merged = both;
	return 0;
}

// Fields that it does not say stay.
static int set_metadata(void *arg, struct ckpt_record *r)
{
	CLEANUP_FREE char *merged = NULL;
	struct said *said = arg;
	bool temporary, promoted = false;
	int rc = ckpt_metadata_merge(said->metadata, r->metadata, &merged);

	said->alone = rc == -EFBIG && !said->adds;
	if (said->alone) {
		merged = strdup(said->metadata);
		rc = merged ? 0 : -ENOMEM;
	}
	if (rc)
		return rc;
	rc = keep_findings(r->metadata, &merged);
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
	int rc = ckpt_version_put(step, CKPT_ACT_NOTE, set_metadata, &said, false, &next, &changed);

	if (rc) {
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				"its files stay as they are; write the marker again",
				rc == -EIO ? "outcome unknown: cannot confirm that its new metadata is stored"
					   : "its metadata could not be replaced");
		return rc;
	}
	if (changed && said.alone)
		ckpt_errlog_add(step->store->errlog, step->name, -EFBIG,
				"to restore them, write a marker that has all that should stay",
				"its earlier extras and metrics are dropped: together with the new ones they are "
				"more than 64 KiB");
	return 0;
}

int ckpt_version_note(struct ckpt_step *step, const char *metadata)
{
	LOCK_SCOPE(&step->store->acts_lock);
	struct said said = {.metadata = metadata, .adds = true};
	struct ckpt_summary next;
	bool changed;
	int rc = ckpt_metadata_is_note(metadata);

	if (!rc)
		rc = ckpt_removal_hides(step) || ckpt_step_is_reopened(step)
			     ? -EBUSY
			     : ckpt_version_put(step, CKPT_ACT_NOTE, set_metadata, &said, false, &next, &changed);
	// The policy may keep steps by a metric.
	if (!rc)
		ckpt_store_wake_behind(step->store);
	if (rc == -EIO)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "try it again",
				"outcome unknown: it may or may not have the metrics and extras of a note");
	return rc;
}
