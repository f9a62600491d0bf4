// States of the staged step are those of step.h. This file performs:
//   (none) -> STAGED   ckpt_reopen(), with store->acts_lock held: the step is neither deleted nor moved meanwhile
//   STAGED -> LEFT     give_up(), by a thread of its own that lives as long as the step is reopened
//   STAGED -> GONE     ckpt_reopen_remove(), with the committed one COMMITTED -> DELETED
//
// Invariants:
//  1. base->reopened is set exactly while the staged step's `reopens` is, and both change under store->lock.
//  2. A step with `reopens` is in no chain of the table; it has the name, folder and key of its base.
#include "core/save/reopen.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/save/change.h"
#include "core/save/changes.h"
#include "core/save/commit.h"
#include "core/save/delete.h"
#include "core/save/makers.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/save/warm.h"
#include "core/save/watch.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/removal.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <sys/xattr.h>

// --- The quiet end ------------------------------------------------------------------------------------------------------

#define EDIT_LEAST_NS INT64_C(1000000000) // an edit is a version once nothing has changed for so long
#define EDIT_PART 10                      // or for this part of commit_quiet, if that is more

// By what completed it, or by a file that only a framework writes.
static bool is_claimed(struct ckpt_step *step)
{
	const char *profile = NULL;
	bool completed;

	ckpt_lock_take(&step->base->lock);
	completed = strcmp(step->base->version->is.profile, "generic");
	ckpt_lock_drop(&step->base->lock);
	return completed ||
	       (!ckpt_profile_claims_dir(step->store->settings.profiles, step->dirfd, &profile) && profile);
}

// How long nothing may change before the changes are committed, or given up. With step->lock held.
static int64_t quiet_ns(const struct ckpt_step *step)
{
	const struct ckpt_settings *settings = &step->store->settings;

	if (!__atomic_load_n(&ckpt_reopen_of(step)->rewritten, __ATOMIC_RELAXED))
		return MAX(ckpt_settings_quiet_ns(settings, 1) / EDIT_PART, EDIT_LEAST_NS);
	if (ckpt_staging_of(step)->lost.pid) // a writer was killed: they are given up in any case
		return ckpt_settings_quiet_ns(settings, 1);
	return ckpt_settings_quiet_ns(settings,
				      ckpt_reopen_of(step)->claimed ? CKPT_QUIET_TIMES_CLAIMED : CKPT_QUIET_TIMES);
}

static bool is_closed_locked(const struct ckpt_step *step)
{
	return step->state == CKPT_STEP_STAGED && !ckpt_staging_of(step)->outcome_unknown &&
	       !ckpt_staging_of(step)->changers && !ckpt_staging_of(step)->writers;
}

static int64_t quiet_since_ns(const struct ckpt_step *step)
{
	return __atomic_load_n(&ckpt_staging_of(step)->touched_ns, __ATOMIC_RELAXED);
}

static bool is_quiet_locked(const struct ckpt_step *step)
{
	return is_closed_locked(step) && ckpt_sys.mono_ns() - quiet_since_ns(step) >= quiet_ns(step);
}

#define TOLD_XATTR "user.ckptfs.told"
#define KEPT_HINT                                                                                                      \
	"the changes are kept in .ckptfs/staged: `ckptfs commit` completes them, `ckptfs resume` takes them up "       \
	"again, `ckptfs abort` drops them"

// Its left-over says so itself, lest each open of the store tells of it.
static void remember_told(const struct ckpt_step *step)
{
	if (step->dirfd >= 0)
		(void)ckpt_sys.fsetxattr(step->dirfd, TOLD_XATTR, "1", 1, 0);
}

void ckpt_reopen_tell(const struct ckpt_step *step)
{
	if (fgetxattr(step->dirfd, TOLD_XATTR, NULL, 0) >= 0)
		return;
	remember_told(step);
	ckpt_errlog_add(step->store->errlog, step->name, 0, KEPT_HINT,
			"the daemon ended before its changes were complete: the previous version is restored");
}

static void tell_given_up(const struct ckpt_step *step, const struct ckpt_changes *changes, bool orphan)
{
	struct ckpt_errlog *log = step->store->errlog;

	remember_told(step);
	if (orphan)
		ckpt_errlog_add(
			log, step->name, -ESTALE,
			"what was written is in .ckptfs/staged: copy what you need, then drop it: `ckptfs abort`",
			"another node has deleted it, or saved over it, while it was changed here: the "
			"changes are not in it");
	else if (changes->cut_off)
		ckpt_errlog_add(
			log, step->name, -EINVAL,
			"the changes are kept in .ckptfs/staged: `ckptfs abort` drops them, `ckptfs resume` takes "
			"them up again, to be completed",
			"%s is cut off: the changes are not committed, and the previous version is restored",
			changes->path);
	else if (ckpt_staging_of(step)->lost.pid)
		ckpt_errlog_add(log, step->name, -EINTR, KEPT_HINT,
				"process %d was killed while it wrote a file of it: the previous version is restored",
				(int)ckpt_staging_of(step)->lost.pid);
	else
		ckpt_errlog_add(log, step->name, -EINTR, KEPT_HINT,
				"its changes were interrupted before every array file was written again%s%s: the "
				"previous version is restored",
				*changes->path ? "; not yet: " : "", changes->path);
}

// With acts_lock held: nobody reopens it between its end and the moment when the mount knows it. changes NULL: only if its base is gone.
static bool give_up(struct ckpt_step *step, const struct ckpt_changes *changes)
{
	struct ckpt_store *s = step->store;
	LOCK_SCOPE(&s->acts_lock);
	bool closed, orphan = ckpt_reopen_is_orphan(step);

	if (!orphan && !changes)
		return false;
	ckpt_lock_take(&s->lock);
	ckpt_lock_take(&step->lock);
	closed = is_closed_locked(step);
	if (closed)
		ckpt_step_set_state_locked(step, CKPT_STEP_LEFT); // from here on nobody enters it
	ckpt_lock_drop(&step->lock);
	if (closed) {
		ckpt_step_leave_locked(step);
		ckpt_step_end_reopen_locked(step);
	}
	ckpt_lock_drop(&s->lock);
	if (!closed)
		return false;
	if (!ckpt_reopen_of(step)->fresh && s->calls.renew)
		s->calls.renew(s->calls.renew_arg, step, step->base);
	if (orphan && s->calls.gone)
		s->calls.gone(s->calls.gone_arg, step->base);
	tell_given_up(step, changes, orphan);
	return true;
}

// Nobody waits for it. A successor of its base may be about to come into the table.
static bool end_orphan(struct ckpt_step *step)
{
	bool behind;

	ckpt_lock_take(&step->store->acts_lock);
	behind = step->store->behind && (ckpt_follow(step->store) || step->store->behind);
	ckpt_lock_drop(&step->store->acts_lock);
	if (!behind && give_up(step, NULL))
		return true;
	__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	return false;
}

// A failure is in the log.
static int commit_quietly(struct ckpt_step *step, bool edit)
{
	char profile[sizeof(step->version->is.profile)]; // whoever wrote the version before has changed it
	struct ckpt_commit how = {.event = "quiet", .profile = profile, .keeps_metadata = true, .keeps_place = edit};

	ckpt_lock_take(&step->base->lock);
	memcpy(profile, step->base->version->is.profile, sizeof(profile));
	ckpt_lock_drop(&step->base->lock);
	return ckpt_commit(step, &how);
}

static bool was_killed_in_file(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_staging_of(step)->lost.pid;
}

int ckpt_reopen_check_whole(struct ckpt_step *step)
{
	struct ckpt_changes changes;

	if (!step->base || ckpt_changes_look(step, &changes) || !changes.cut_off)
		return 0;
	ckpt_errlog_add(step->store->errlog, step->name, -EINVAL,
			"`ckptfs abort` drops the changes; or `ckptfs resume` them, and write or remove that file",
			"%s is cut off, and would replace the version before: it is not committed", changes.path);
	return -EINVAL;
}

// Whether nothing more is to be done for it. A re-save has its longer time from its first look on.
static bool end_quietly(struct ckpt_step *step)
{
	struct ckpt_changes changes = {0};
	struct ckpt_makers_facts makers;
	bool ending = __atomic_load_n(&step->store->threads.closing, __ATOMIC_ACQUIRE), lost;
	int64_t since_ns = quiet_since_ns(step);
	int rc;

	if (ckpt_reopen_is_orphan(step))
		return end_orphan(step);
	rc = ckpt_changes_look(step, &changes);
	if (!rc && changes.rewritten &&
	    !__atomic_exchange_n(&ckpt_reopen_of(step)->rewritten, true, __ATOMIC_RELAXED) && !ending)
		return false;
	if (quiet_since_ns(step) != since_ns)
		return false; // changed while we looked
	ckpt_makers_ask(step, &makers);
	ckpt_lock_take(&step->lock);
	ckpt_staging_of(step)->lost.any |= changes.rewritten && makers.killed;
	lost = ckpt_staging_of(step)->lost.any;
	ckpt_lock_drop(&step->lock);
	if (was_killed_in_file(step) || (!rc && (changes.cut_off || (lost && !changes.all_anew))))
		return give_up(step, &changes);
	if (!rc)
		rc = commit_quietly(step, !changes.rewritten);
	if (rc)
		__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns(),
				 __ATOMIC_RELAXED); // the time of the next try
	return !rc;
}

static void wait_locked(struct ckpt_step *step)
{
	int64_t left_ns = quiet_since_ns(step) + quiet_ns(step) - ckpt_sys.mono_ns();

	ckpt_lock_wait_ns(&step->changed, &step->lock, MAX(left_ns, INT64_C(20000000)));
}

// Whether it may have stood still for long enough; false after a wait, too. *ret_ended: there is nothing to watch any more, for who
// completes, drops or removes it ends that it reopens, first of all. At the end of the store what is closed is ended at once.
static bool watch_once(struct ckpt_step *step, bool *ret_ended)
{
	LOCK_SCOPE(&step->lock);
	bool reopens = __atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);

	*ret_ended = !reopens || __atomic_load_n(&step->store->threads.closing, __ATOMIC_ACQUIRE);
	if (*ret_ended)
		return reopens && is_closed_locked(step);
	if (is_quiet_locked(step))
		return true;
	wait_locked(step);
	return false;
}

static void watch(struct ckpt_step *step)
{
	bool ended = false;

	while (!ended)
		if (watch_once(step, &ended))
			ended |= end_quietly(step);
}

// Without a thread it ends by its event, or with the daemon.
static void start_watcher(struct ckpt_step *step)
{
	ckpt_reopen_of(step)->claimed = is_claimed(step);
	(void)ckpt_watch_start(step, watch);
}

static int wake(void *arg __attribute__((unused)), struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	pthread_cond_broadcast(&step->changed);
	return 0;
}

void ckpt_reopen_wake_all(struct ckpt_store *s)
{
	__atomic_store_n(&s->threads.closing, true, __ATOMIC_RELEASE);
	LOCK_SCOPE(&s->lock);
	(void)ckpt_step_each_locked(s, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING, wake, NULL);
}

// --- Reopen -------------------------------------------------------------------------------------------------------------

static int fill(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(step->base, &m);

	if (rc)
		return rc;
	ckpt_reopen_set_began(step, m);
	rc = ckpt_stage_make_session(step, 0700);
	if (!rc) {
		rc = ckpt_share_tree(step->base, m, step->dirfd);
		if (!rc)
			rc = ckpt_share_know(step, m);
		if (!rc)
			rc = ckpt_amending_link(step->base, step->dirfd);
		if (rc)
			ckpt_stage_drop_session(step);
	}
	ckpt_manifest_unref(m);
	return rc;
}

// Its name, owner and folder are those of the base: they are in what the session says of itself, should it be left over.
static int make(struct ckpt_step *base, struct ckpt_step **ret_step)
{
	struct ckpt_store *s = base->store;
	struct ckpt_step *step;
	int rc = ckpt_step_new(s, &step);

	if (rc)
		return rc;
	ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	ckpt_staging_of(step)->ours = true;
	ckpt_staging_of(step)->began_ns = ckpt_sys.now_ns();
	ckpt_staging_of(step)->touched_ns = ckpt_sys.mono_ns();
	step->base = ckpt_step_ref(base);
	ckpt_lock_take(&s->lock);
	memcpy(step->folder_id, base->folder_id, sizeof(step->folder_id));
	memcpy(step->name, base->name, sizeof(step->name));
	memcpy(step->key, base->key, sizeof(step->key));
	ckpt_lock_drop(&s->lock);
	ckpt_lock_take(&base->lock);
	ckpt_staging_of(step)->from_version = base->version->is.version;
	ckpt_staging_of(step)->uid = base->version->is.dir_uid;
	ckpt_staging_of(step)->gid = base->version->is.dir_gid;
	ckpt_lock_drop(&base->lock);
	rc = fill(step);
	if (rc) {
		ckpt_step_unref(step);
		return rc;
	}
	*ret_step = step;
	return 0;
}

static void take_place_locked(struct ckpt_step *step)
{
	__atomic_store_n(&step->reopens, true, __ATOMIC_RELEASE);
	__atomic_store_n(&step->base->reopened, ckpt_step_ref(step), __ATOMIC_RELEASE);
}

struct ckpt_step *ckpt_reopen_take_locked(struct ckpt_step *step, struct ckpt_step *base)
{
	struct ckpt_step *before = step->base;

	ckpt_step_erase_locked(step);
	memcpy(step->folder_id, base->folder_id, sizeof(step->folder_id));
	memcpy(step->name, base->name, sizeof(step->name));
	memcpy(step->key, base->key, sizeof(step->key));
	step->base = ckpt_step_ref(base);
	take_place_locked(step);
	return before;
}

// What is known of the files that were being added comes first: nobody can commit the step before it has its place.
static void take_place(struct ckpt_step *step)
{
	struct ckpt_step *base = step->base;

	ckpt_stage_take_over(base, step);
	__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns(),
			 __ATOMIC_RELAXED); // to make it may have taken long
	ckpt_lock_take(&step->store->lock);
	take_place_locked(step);
	ckpt_lock_drop(&step->store->lock);
}

// After the mount knows that another has its place: who looks at it before finds in it what was there.
static void clear_base(struct ckpt_step *base)
{
	ckpt_lock_take(&base->lock);
	ckpt_removal_forget_locked(base); // the staged one is without what was removed
	ckpt_lock_drop(&base->lock);
	ckpt_amending_unlink(base);
}

static void set_reopening(struct ckpt_step *base, bool reopening)
{
	LOCK_SCOPE(&base->lock);

	ckpt_amending_of(base)->reopening = reopening;
}

// Its files keep their numbers by their raw files. What cannot be warmed, because it is being removed, is copied; but not what
// finds no room, or cannot be read: that would only be tried again, while all other acts wait.
static int warm(struct ckpt_step *base)
{
	const struct ckpt_tier_how how = {0};
	struct ckpt_tier_done done;
	bool packed;
	int rc;

	ckpt_lock_take(&base->lock);
	packed = base->version->is.packed;
	ckpt_lock_drop(&base->lock);
	if (!packed || ckpt_step_is_reopened(base))
		return 0;
	rc = ckpt_warm(base, &how, &done);
	return ckpt_is_full(rc) || rc == -EIO || rc == -EBADMSG || rc == -ENOMEM ? rc : 0;
}

struct twin {
	const struct ckpt_step *of;
	uint64_t dir_ino;
};

static int is_twin(void *arg, struct ckpt_step *step)
{
	const struct twin *t = arg;
	LOCK_SCOPE(&step->lock);

	return step != t->of && step->born.dir_ino == t->dir_ino;
}

// A version that was saved over, moved away since, and this one, had back from the trash: they have their numbers in common, and who
// changes files by their numbers would change those of the other.
static bool has_twin(struct ckpt_step *base)
{
	LOCK_SCOPE(&base->store->lock);
	struct twin t = {.of = base};

	ckpt_lock_take(&base->lock);
	t.dir_ino = base->born.dir_ino;
	ckpt_lock_drop(&base->lock);
	return ckpt_step_each_locked(base->store, NULL, 1u << CKPT_STEP_COMMITTED, is_twin, &t);
}

int ckpt_reopen(struct ckpt_step *base, struct ckpt_step **ret_step)
{
	struct ckpt_store *s = base->store;
	int rc = warm(base);

	if (rc)
		return rc == -EBADMSG ? -EIO : rc;
	LOCK_SCOPE(&s->acts_lock);
	struct ckpt_step *now = ckpt_step_now(ckpt_step_ref(base)), *step;

	if (now != base) {
		*ret_step = now;
		return 0;
	}
	ckpt_step_unref(now);
	if (ckpt_step_state(base) != CKPT_STEP_COMMITTED)
		return -ESTALE;
	rc = has_twin(base) ? -EROFS : ckpt_amending_settle_locked(base);
	if (!rc)
		(void)ckpt_change_publish_locked(base); // else they are in the new version only
	if (!rc) {
		set_reopening(base, true);
		rc = make(base, &step);
		if (!rc)
			take_place(step);
		set_reopening(base, false);
	}
	if (rc) {
		ckpt_errlog_add(s->errlog, base->name, rc,
				rc == -EROFS ? "copy one of the two (`cp -r`), and remove it"
					     : "nothing has changed; remove the cause, then try again",
				rc == -EROFS ? "it cannot be changed: a later version of it was moved to another name"
					     : "it could not be opened for changes");
		return rc == -EBADMSG ? -EIO : rc;
	}
	if (s->calls.renew)
		s->calls.renew(s->calls.renew_arg, base, step);
	clear_base(base);
	start_watcher(step);
	*ret_step = step;
	return 0;
}

// *ret_before is a reference, or NULL.
static int take_up(struct ckpt_step *step, struct ckpt_step *base, struct ckpt_step **ret_before)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	LOCK_SCOPE(&step->store->lock);
	LOCK_SCOPE(&step->lock);

	if (step->state != CKPT_STEP_LEFT)
		return -ESTALE;
	if (staged->changers)
		return -EBUSY;        // it is being dropped
	ckpt_step_erase_locked(step); // it is left over: of no name's chain
	memcpy(step->key, base->key, sizeof(step->key));
	*ret_before = step->base;
	step->base = ckpt_step_ref(base); // nobody looks at it before the step reopens
	__atomic_store_n(&staged->ours, true, __ATOMIC_RELAXED);
	staged->pid = 0; // of a process that is gone
	staged->lost.any = true;
	staged->lost.pid = 0;
	staged->touched_ns = ckpt_sys.mono_ns();
	ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	take_place_locked(step);
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_files(struct ckpt_step *base, const struct ckpt_summary *version)
{
	struct ckpt_manifest *was = NULL, *is = NULL;
	bool same = !ckpt_step_read_manifest(base, version, &was) && !ckpt_step_manifest(base, &is) &&
		    ckpt_manifest_same_entries(was, is);

	ckpt_manifest_unref(was);
	ckpt_manifest_unref(is);
	return same;
}

// The step may have been sealed since that version, or pinned.
static bool is_as_in(struct ckpt_step *base, uint32_t version)
{
	CLEANUP_VERSION struct ckpt_version *now = ckpt_step_version(base);
	struct ckpt_record was, is;
	bool same;

	if (now->is.version == version)
		return true;
	if (ckpt_step_record(base, version, &was))
		return false;
	if (ckpt_step_record(base, now->is.version, &is)) {
		ckpt_record_done(&was);
		return false;
	}
	same = !strcmp(was.summary.session, base->session) && same_text(was.metadata, is.metadata) &&
	       same_files(base, &was.summary);
	ckpt_record_done(&was);
	ckpt_record_done(&is);
	return same;
}

int ckpt_reopen_resume(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	LOCK_SCOPE(&s->acts_lock);
	struct ckpt_step *base = ckpt_step_find(s, step->folder_id, step->name), *before = NULL;
	struct ckpt_manifest *m = NULL;
	int rc = !base                                                                         ? -ENOENT
		 : ckpt_step_state(base) != CKPT_STEP_COMMITTED || ckpt_step_is_reopened(base) ? -EEXIST
											       : 0;

	if (!rc && !is_as_in(base, ckpt_staging_of(step)->from_version)) {
		ckpt_errlog_add(s->errlog, step->name, -EEXIST,
				"copy what you need from .ckptfs/staged, then drop it: `ckptfs abort`",
				"the step has a newer version: these changes would undo it");
		rc = -EEXIST;
	}
	if (!rc)
		rc = ckpt_step_manifest(base, &m);
	if (!rc)
		rc = take_up(step, base, &before);
	if (!rc) {
		ckpt_reopen_set_began(step, m);
		(void)fremovexattr(step->dirfd, TOLD_XATTR);
		if (s->calls.renew)
			s->calls.renew(s->calls.renew_arg, base, step);
		start_watcher(step);
	}
	ckpt_manifest_unref(m);
	ckpt_step_unref(before);
	ckpt_step_unref(base);
	return rc;
}

int ckpt_reopen_remove(struct ckpt_step *step)
{
	int rc = ckpt_stage_enter(step, false);

	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc;
	rc = ckpt_sys.unlink(step->store->sessions_fd, step->session, AT_REMOVEDIR);
	if (!rc) {
		rc = ckpt_delete(step->base);
		ckpt_stage_vanish(step);
	}
	ckpt_stage_leave(step);
	return rc == -EEXIST ? -ENOTEMPTY : rc;
}
