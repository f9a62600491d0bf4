// The commit. States are those of step.h; this file performs:
//   STAGED     -> COMMITTING  ckpt_commit(), which starts a thread of its own: a client that dies does not stop it
//   COMMITTING -> COMMITTED   finish(), after the log has it
//   COMMITTING -> STAGED      finish(), after anything failed
//
// Invariants:
//  1. From COMMITTING on no change of the tree begins; before the scan all that had begun have ended.
//  2. A lease was refused by no file of the step: nobody can write it any more when the record appears.
//  3. Everything that the manifest names is on disk before the record is put; 0 is answered only after the put.
//  4. A fsync that failed is not tried again: the file counts as lost until a client writes it anew.
//  5. Where the outcome of a put is unknown, the step is frozen, under the name of that put, until the record was read:
//     an attempt that fails for another reason meanwhile changes nothing about it.
//  6. A leftover's file gives its name to a copy only when nothing but the put is left to fail, and has it back if that did.
//  7. Which name a commit gives is decided with the store's and the step's lock held, and again once no change is under
//     way; who wants another is refused.
//  8. The name of a running commit, and of one with an unknown outcome, is reserved: no other step can take it.
#include "core/save/commit.h"

#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/index/indexer.h"
#include "core/save/attempt.h"
#include "core/save/copy.h"
#include "core/save/left_out.h"
#include "core/save/limit.h"
#include "core/save/scan.h"
#include "core/save/stage.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <stdio.h>

#define FOLLOWS_MAX 8  // of a commit: changes of its base by other nodes
#define NAMES_MAX 1000 // that are tried where the own one is taken
#define WATCH_NS INT64_C(100000000)

// --- The attempt ------------------------------------------------------------------------------------------------------

// NULL: as it is called now.
static int take_name_locked(struct attempt *a, const char *folder_id, const char *name)
{
	int rc;

	snprintf(a->folder_id, sizeof(a->folder_id), "%s", folder_id ? folder_id : a->step->folder_id);
	snprintf(a->name, sizeof(a->name), "%s", name ? name : a->step->name);
	rc = ckpt_name_key(a->folder_id, a->name, a->key);
	if (!a->unknown) { // else it is that of the put whose outcome is to be learnt
		uint32_t used = ckpt_step_versions_used_locked(a->step->store, a->folder_id, a->name);

		if (a->step->reopens && a->step->base->version->is.version > used)
			used = a->step->base->version->is.version;
		ckpt_attempts_of(a->step)->attempt_version = used + 1;
	}
	return rc ? rc : ckpt_step_reserve_locked(a->step, a->folder_id, a->name);
}

// Who held the gate when the commit began may have renamed the step: then it is committed as it is called now.
static int settle_name(struct attempt *a)
{
	struct ckpt_step *step = a->step;
	int rc = 0;

	if (!a->as_it_is)
		return 0;
	ckpt_lock_take(&step->store->lock);
	if (strcmp(step->name, a->name) || strcmp(step->folder_id, a->folder_id)) {
		ckpt_step_release_locked(step);
		rc = take_name_locked(a, NULL, NULL);
	}
	ckpt_lock_drop(&step->store->lock);
	if (rc)
		ckpt_attempt_complain_of_name(a, rc);
	return rc;
}

static int put_back_copies(struct attempt *a)
{
	int rc = ckpt_copy_undo(a->step);

	if (rc)
		ckpt_attempt_complain(a, rc, "mend the cause, then complete the step again",
				      "a file that is still open could not get back its place from its copy", NULL);
	return rc;
}

static int take_other_name(struct attempt *a, const char *name, unsigned n)
{
	struct ckpt_store *s = a->step->store;
	char other[CKPT_NAME_MAX + 1], folder_id[CKPT_FOLDER_ID_LEN + 1];
	int rc = ckpt_journal_other_name(s->journal, a->folder_id, name, n, other);

	if (rc)
		return rc;
	memcpy(folder_id, a->folder_id, sizeof(folder_id));
	ckpt_lock_take(&s->lock);
	ckpt_step_release_locked(a->step);
	rc = take_name_locked(a, folder_id, other);
	ckpt_lock_drop(&s->lock);
	if (rc)
		return rc;
	memcpy(a->record.summary.name, other, sizeof(other));
	a->record.summary.number = ckpt_name_number(other);
	a->record.summary.version = ckpt_attempts_of(a->step)->attempt_version;
	return 0;
}

static bool replaces_base(const struct attempt *a)
{
	return ckpt_reopen_shares(a->step) && !strcmp(a->name, a->step->base->name);
}

// A step that another node has saved under this name meanwhile keeps it. -EREMCHG: it has changed the one that is reopened.
static int publish(struct attempt *a)
{
	char name[CKPT_NAME_MAX + 1];
	int rc = ckpt_attempt_publish(a);

	if (rc == -EEXIST && !a->unknown && replaces_base(a))
		return -EREMCHG;
	memcpy(name, a->name, sizeof(name));
	for (unsigned n = 1; rc == -EEXIST && !a->unknown && n <= NAMES_MAX; n++) {
		rc = take_other_name(a, name, n);
		if (!rc)
			rc = ckpt_attempt_publish(a);
		if (rc == -ENOENT)
			return -EEXIST;
	}
	if (!rc && strcmp(name, a->name))
		ckpt_errlog_add(a->step->store->errlog, name, -EEXIST, "compare the two, and rename or delete one",
				"another node has saved a step of this name: this one is %s", a->name);
	return rc;
}

// Another node has changed what it reopens, and it does not know that yet.
static bool has_other_base(struct ckpt_step *step)
{
	return ckpt_reopen_shares(step) && (ckpt_reopen_is_orphan(step) || ckpt_follow_is_behind(step->base));
}

static int attempt_run(struct attempt *a)
{
	int rc = a->unknown ? ckpt_attempt_resolve(a) : -ENOENT;

	a->left_out = TAKE_PTR(ckpt_attempts_of(a->step)->left_out);
	if (rc && rc != -ENOENT)
		ckpt_attempt_complain_of_publish(a, rc);
	if (rc != -ENOENT)
		return rc;
	ckpt_left_out_drop(TAKE_PTR(a->left_out)); // the attempt before has done nothing
	rc = ckpt_attempt_wait_for_writers(a);
	if (rc == -ESTALE)
		ckpt_attempt_complain(a, rc, NULL, "it was removed, or moved into another step, at the same moment",
				      NULL);
	if (rc)
		return rc;
	if (has_other_base(a->step))
		return -EREMCHG;
	rc = settle_name(a);
	if (!rc)
		rc = put_back_copies(a); // of an attempt whose outcome was none, or that could not
	if (rc)
		return rc;
	a->scan.step = a->step;
	a->scan.lease_until_ns = ckpt_sys.mono_ns() + a->writers_ns;
	ckpt_amending_expect_none(a->step); // what an attempt that failed has left
	rc = ckpt_scan_run(&a->scan);
	if (rc) {
		ckpt_attempt_complain_of_scan(a, rc);
		return rc;
	}
	rc = ckpt_left_out_begin(&a->scan, &a->left_out);
	if (rc) {
		ckpt_attempt_complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
				      "files of a killed process could not be kept as a session of their own", NULL);
		return rc;
	}
	rc = ckpt_attempt_write_out(a);
	if (rc)
		return rc;
	rc = ckpt_attempt_prepare(a);
	if (rc) {
		ckpt_attempt_complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
				      "the manifest could not be stored, or the metadata not be read", NULL);
		return rc;
	}
	rc = ckpt_copy_place(a->step);
	if (rc) {
		ckpt_attempt_complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
				      "the copy of a file that is still open could not take its place", NULL);
		return rc;
	}
	rc = publish(a);
	if (rc && rc != -EREMCHG)
		ckpt_attempt_complain_of_publish(a, rc);
	return rc;
}

static void remember_last_locked(struct ckpt_store *s, const struct attempt *a)
{
	struct ckpt_commits *commits = ckpt_commits_of(s);

	commits->last_commit.any = true;
	memcpy(commits->last_commit.name, a->name, sizeof(commits->last_commit.name));
	commits->last_commit.at_ns = a->record.summary.committed_ns;
	commits->last_commit.at_mono_ns = ckpt_sys.mono_ns();
	commits->last_commit.seconds = (double)(commits->last_commit.at_mono_ns - a->began_ns) / 1e9;
	commits->commits++;
	commits->commit_seconds += commits->last_commit.seconds;
}

// Under store->lock alone, for it takes the lock of what it comes from, whose place it takes.
static void take_name_in_table_locked(struct attempt *a)
{
	struct ckpt_step *step = a->step;
	bool reopens = ckpt_step_end_reopen_locked(step);

	if (reopens && !strcmp(step->base->name, a->name) && !strcmp(step->base->folder_id, a->folder_id))
		ckpt_step_bury_locked(step->base, a->record.summary.version, a->record.summary.committed_ns);
	if (reopens) {
		a->before = TAKE_PTR(step->base->base); // nobody asks for that any more
		// Its numbers are those of this one now, should it ever be listed beside it.
		if (!ckpt_reopen_of(step)->fresh) {
			__atomic_store_n(&ckpt_staging_of(step->base)->ours, false, __ATOMIC_RELAXED);
			__atomic_store_n(&ckpt_staging_of(ckpt_reopen_from(step))->ours, false, __ATOMIC_RELAXED);
		}
	}
	if (reopens || strcmp(step->name, a->name) || strcmp(step->folder_id, a->folder_id)) {
		ckpt_step_erase_locked(step);
		if (ckpt_step_insert_locked(step, a->folder_id, a->name))
			abort(); // the name is reserved
	}
}

// The step has its final name in the table and is listed; only then do waiters get their answer.
static void enter_committed_locked(struct attempt *a)
{
	struct ckpt_step *step = a->step;

	remember_last_locked(step->store, a);
	ckpt_step_set_version_locked(step, &a->record.summary);
	ckpt_step_set_state_locked(step, CKPT_STEP_COMMITTED);
	ckpt_amending_expected_locked(step);
	ckpt_stage_forget(step, ckpt_amending_of(step)->pending_files);
	ckpt_limit_freed(*ckpt_limit_of(step->store));
	// Who has the answer may wait for that, too.
	ckpt_trash_committed(*ckpt_trash_of(step->store));
	if (step->store->calls.committed)
		step->store->calls.committed(step->store->calls.committed_arg, step);
}

// Name and state change at once: who comes meanwhile sees a commit that runs under this name, or its end.
static void finish(struct attempt *a, int rc)
{
	struct ckpt_step *step = a->step;
	bool buries;

	if (!rc && a->manifest)
		ckpt_step_keep_manifest(step, a->manifest);
	ckpt_lock_take(&step->store->lock);
	buries = !rc && step->base;
	if (!rc)
		take_name_in_table_locked(a);
	ckpt_lock_take(&step->lock);
	ckpt_commits_of(step->store)->commits_failed += rc != 0;
	if (!rc)
		enter_committed_locked(a);
	else if (step->state == CKPT_STEP_COMMITTING)
		ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	if (!rc || !a->unknown)
		ckpt_attempt_leave_none_locked(step);
	if (!rc || !a->unknown)
		ckpt_step_release_locked(step);
	ckpt_staging_of(step)->outcome_unknown = rc && a->unknown;
	ckpt_attempts_of(step)->commit_result = rc;
	ckpt_attempts_of(step)->attempts_done = ckpt_attempts_of(step)->attempts;
	pthread_cond_broadcast(&step->changed);
	ckpt_lock_drop(&step->lock);
	if (!rc && *ckpt_indexer_of(step->store) && a->record.manifest_len > CKPT_MANIFEST_EMBED_MAX)
		ckpt_indexer_put(*ckpt_indexer_of(step->store), a->record.summary.manifest_sha256,
				 TAKE_PTR(a->record.manifest), a->record.manifest_len);
	ckpt_lock_drop(&step->store->lock);
	ckpt_store_wake_behind(step->store);
	if (buries)
		ckpt_trash_wake(*ckpt_trash_of(step->store));
}

static void attempt_free(struct attempt *a)
{
	if (!a)
		return;
	ckpt_scan_done(&a->scan);
	ckpt_manifest_unref(a->manifest);
	ckpt_manifest_unref(a->scanned);
	free(a->record.manifest);
	free(a->leftovers);
	free(a->late);
	free(a->metadata);
	ckpt_step_unref(a->left_out);
	ckpt_step_unref(a->before);
	ckpt_step_unref(a->step);
	free(a);
}

// The last that an attempt does: a store that waits for it may be gone a moment later.
static void attempt_end(struct attempt *a)
{
	struct ckpt_store *s = a->step->store;

	attempt_free(a);
	ckpt_lock_take(&s->lock);
	s->threads.running--;
	pthread_cond_broadcast(&s->threads.ended);
	ckpt_lock_drop(&s->lock);
}

static void tell_done(const struct attempt *a)
{
	const struct ckpt_summary *s = &a->record.summary;
	char size[CKPT_SIZE_MAX];

	ckpt_log(CKPT_LOG_INFO, "committed %s: %llu file%s, %s, %lld ms, event %s, version %u", a->name,
		 (unsigned long long)s->files, s->files == 1 ? "" : "s", ckpt_size_text(s->bytes, size),
		 (long long)((ckpt_sys.mono_ns() - a->began_ns) / 1000000), s->event, s->version);
}

// Changes of another node are in no file here.
static void tell_merged(const struct attempt *a)
{
	struct ckpt_store *s = a->step->store;

	ckpt_reopen_set_began(a->step, NULL);
	if (a->scanned && s->calls.changed)
		s->calls.changed(s->calls.changed_arg, a->step, a->scanned, a->manifest);
}

static void *attempt_thread(void *arg)
{
	struct attempt *a = arg;
	int rc;

	(void)ckpt_actor_set(&a->actor); // the thread ends with it
	rc = attempt_run(a);
	if (rc && !a->unknown)
		(void)put_back_copies(a);
	if (rc && a->unknown)
		ckpt_attempts_of(a->step)->left_out = TAKE_PTR(a->left_out);
	if (!rc)
		ckpt_left_out_keep(&a->scan, TAKE_PTR(a->left_out)); // while the session's directory is open
	finish(a, rc);
	if (!rc) {
		tell_done(a);
		tell_merged(a);
		ckpt_copy_keep(a->step);
	} else if (!a->unknown) {
		ckpt_left_out_drop(TAKE_PTR(a->left_out));
	}
	attempt_end(a);
	return NULL;
}

// --- The caller's side ------------------------------------------------------------------------------------------------

static struct attempt *attempt_new(struct ckpt_step *step, const struct ckpt_commit *how)
{
	struct attempt *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->step = ckpt_step_ref(step);
	a->actor = ckpt_actor_get();
	snprintf(a->event, sizeof(a->event), "%s", how->event);
	snprintf(a->profile, sizeof(a->profile), "%s", how->profile);
	a->metadata = how->metadata ? strdup(how->metadata) : NULL;
	a->writers_ns = how->writers_ns;
	a->leaves_late = how->leaves_late;
	a->keeps_metadata = how->keeps_metadata;
	a->keeps_place = how->keeps_place;
	a->began_ns = ckpt_sys.mono_ns();
	a->as_it_is = !how->name;
	if (how->metadata && !a->metadata) {
		attempt_free(a);
		return NULL;
	}
	return a;
}

// What a call is to the step: the commit itself, one more that waits for it, or one that comes after it.
enum part { STARTS, JOINS, LATE };

static bool was_touched_locked(const struct ckpt_step *step, int64_t touched_ns)
{
	return ckpt_staging_of(step)->writers || ckpt_staging_of(step)->changers ||
	       __atomic_load_n(&ckpt_staging_of(step)->touched_ns, __ATOMIC_RELAXED) != touched_ns;
}

// Decided under both locks, as is the name: no other commit and no rename is in between. ret_number: the attempt.
static int enter(struct attempt *a, const struct ckpt_commit *how, enum part *ret_part, uint64_t *ret_number)
{
	struct ckpt_step *step = a->step;
	LOCK_SCOPE(&step->store->lock);
	LOCK_SCOPE(&step->lock);
	bool as_wanted = ckpt_step_is_called_locked(step, how->folder_id, how->name);
	int rc = 0;

	switch (step->state) {
	case CKPT_STEP_STAGED:
		*ret_part = STARTS;
		if (how->unless_touched_ns && was_touched_locked(step, *how->unless_touched_ns))
			return -EAGAIN;
		a->unknown = ckpt_staging_of(step)->outcome_unknown;
		rc = take_name_locked(a, how->folder_id, how->name);
		if (rc)
			break;
		ckpt_step_set_state_locked(step, CKPT_STEP_COMMITTING);
		free(ckpt_staging_of(step)->killed.path);
		ckpt_staging_of(step)->killed = (struct ckpt_killed){0}; // what the attempt before was told
		ckpt_attempts_of(step)->attempts++;
		ckpt_staging_of(step)->progress_ns = a->began_ns;
		step->store->threads.running++;
		break;
	case CKPT_STEP_COMMITTING:
		*ret_part = JOINS;
		rc = as_wanted ? 0 : -EBUSY;
		break;
	case CKPT_STEP_COMMITTED:
		*ret_part = LATE;
		rc = as_wanted ? 0 : -EROFS;
		break;
	default:
		*ret_part = LATE;
		rc = -ESTALE;
	}
	if (rc && *ret_part != STARTS)
		snprintf(a->name, sizeof(a->name), "%s", how->name ? how->name : step->name); // for the complaint
	*ret_number = ckpt_attempts_of(step)->attempts;
	return rc;
}

static void complain_of_entry(struct attempt *a, enum part part, int error)
{
	if (error == -ESTALE)
		ckpt_attempt_complain(a, error, "save it anew", "it was dropped, or moved into another step", NULL);
	else if (part == JOINS)
		ckpt_attempt_complain(a, error, "wait for its end", "it is being committed under another name", NULL);
	else if (part == LATE)
		ckpt_attempt_complain(a, error, "it is a step already", "it was committed under another name", NULL);
	else
		ckpt_attempt_complain_of_name(a, error);
}

// On a thread of its own: a client that dies does not stop it. Takes a.
static void start(struct attempt *a)
{
	pthread_attr_t attr;
	pthread_t thread;
	bool failed;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	failed = pthread_create(&thread, &attr, attempt_thread, a);
	pthread_attr_destroy(&attr);
	if (failed) {
		finish(a, -EAGAIN);
		attempt_end(a);
	}
}

// The error log waits for the disk: the lock is given back meanwhile.
static void tell_standstill_locked(struct ckpt_step *step)
{
	struct ckpt_step_name is;

	ckpt_lock_drop(&step->lock);
	ckpt_step_name(step, &is);
	ckpt_errlog_add(step->store->errlog, is.name, -EIO,
			"the disk hangs; the commit continues: complete the step again to wait for it",
			"outcome unknown: the commit made no progress within commit_timeout");
	ckpt_lock_take(&step->lock);
}

static int wait_locked(struct ckpt_step *step, const struct ckpt_commit *how, uint64_t attempt)
{
	int64_t timeout = step->store->settings.commit_timeout_ns;

	while (ckpt_attempts_of(step)->attempts_done < attempt) {
		if (ckpt_sys.mono_ns() - __atomic_load_n(&ckpt_staging_of(step)->progress_ns, __ATOMIC_RELAXED) >
		    timeout) {
			tell_standstill_locked(step);
			return -EIO;
		}
		if (how->abandoned) {
			bool gone;

			ckpt_lock_drop(&step->lock);
			gone = how->abandoned(how->abandoned_arg);
			ckpt_lock_take(&step->lock);
			if (gone)
				return -EINTR;
			if (ckpt_attempts_of(step)->attempts_done >= attempt)
				break;
		}
		ckpt_lock_wait_ns(&step->changed, &step->lock, WATCH_NS);
	}
	return ckpt_attempts_of(step)->commit_result;
}

static int commit_once(struct ckpt_step *step, const struct ckpt_commit *how)
{
	struct attempt *a = attempt_new(step, how);
	bool had_metadata = false;
	enum part part = LATE;
	uint64_t number;
	int rc;

	if (!a)
		return -ENOMEM;
	rc = enter(a, how, &part, &number);
	if (rc && rc != -EAGAIN)
		complain_of_entry(a, part, rc);
	if (!rc && part == STARTS) {
		had_metadata = !a->unknown; // else an earlier attempt's may have won
		start(TAKE_PTR(a));
	}
	attempt_free(a);
	if (!rc && part != LATE) {
		ckpt_lock_take(&step->lock);
		rc = wait_locked(step, how, number);
		ckpt_lock_drop(&step->lock);
	}
	// Who joined another's attempt, or came after it, may bring metadata of his own.
	if (!rc && !had_metadata && how->metadata)
		rc = ckpt_commit_metadata(step, how->metadata);
	return rc;
}

// Another node has changed the step that it reopens: it follows that. -ESTALE: it is gone.
static int follow_base(struct ckpt_step *step)
{
	struct ckpt_step_name is;
	int rc;

	ckpt_lock_take(&step->store->acts_lock);
	rc = ckpt_follow(step->store);
	ckpt_lock_drop(&step->store->acts_lock);
	if (rc || !ckpt_reopen_is_orphan(step))
		return rc;
	ckpt_step_name(step, &is);
	ckpt_errlog_add(step->store->errlog, is.name, -ESTALE, "what was changed is kept: look into .ckptfs/staged",
			"commit failed: another node has deleted the step, or saved over it");
	return -ESTALE;
}

int ckpt_commit(struct ckpt_step *step, const struct ckpt_commit *how)
{
	int rc = ckpt_reopen_shares(step) && ckpt_reopen_is_orphan(step) ? -EREMCHG : commit_once(step, how);

	for (int i = 0; i < FOLLOWS_MAX && rc == -EREMCHG; i++) {
		rc = follow_base(step);
		if (!rc)
			rc = commit_once(step, how);
	}
	return rc == -EREMCHG ? -EBUSY : rc;
}

static void attempts_done(void *step)
{
	ckpt_step_unref(ckpt_attempts_of((struct ckpt_step *)step)->left_out);
}

struct ckpt_part ckpt_attempts_part = {.bytes = sizeof(struct ckpt_attempts), .done = attempts_done};

struct ckpt_part ckpt_commits_part = {.bytes = sizeof(struct ckpt_commits)};
