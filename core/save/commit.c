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

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define FOLLOWS_MAX 8                  // of a commit: changes of its base by other nodes
#define NAMES_MAX 1000                 // that are tried where the own one is taken
#define UNSYNCED_EACH_MAX 64           // up to so many are fsynced one by one: exact blame, and no stranger waits
#define FOREIGN_DIRTY_MAX (256u << 20) // other people's dirty bytes that one syncfs may take along
#define LEFTOVER_STILL_NS INT64_C(1000000000) // so long must a file stand still whose descriptor somebody closed
#define WATCH_NS INT64_C(100000000)
#define WRITERS_NS INT64_C(20000000) // between two looks at them

static void progress(struct attempt *a)
{
	__atomic_store_n(&ckpt_staging_of(a->step)->progress_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
}

static void complain(struct attempt *a, int error, const char *hint, const char *what, const char *path)
{
	ckpt_errlog_add(a->step->store->errlog, a->name, error, hint, "commit failed: %s%s%s", what, path ? ": " : "",
			path ? path : "");
}

// --- Writers ----------------------------------------------------------------------------------------------------------

// Once it is closed it is waited for like any, which is not for long.
static bool is_left(const struct attempt *a, const struct ckpt_writer *w)
{
	return a->leaves_late && w->late && !w->flushed;
}

static bool any_to_wait_for_locked(const struct attempt *a)
{
	for (const struct ckpt_writer *w = ckpt_staging_of(a->step)->writers; w; w = w->next)
		if (!is_left(a, w))
			return true;
	return false;
}

// NULL: all that are waited for stand still.
static const struct ckpt_writer *one_at_work_locked(const struct attempt *a)
{
	for (const struct ckpt_writer *w = ckpt_staging_of(a->step)->writers; w; w = w->next)
		if (!is_left(a, w) && !ckpt_stage_writer_stands_still(w))
			return w;
	return NULL;
}

static int leave_late_locked(struct attempt *a)
{
	size_t count = 0;

	for (const struct ckpt_writer *w = ckpt_staging_of(a->step)->writers; w; w = w->next)
		count += is_left(a, w);
	a->late = count ? calloc(count, sizeof(*a->late)) : NULL;
	if (count && !a->late)
		return -ENOMEM;
	for (struct ckpt_writer *w = ckpt_staging_of(a->step)->writers; w; w = w->next) {
		w->left = is_left(a, w);
		if (w->left)
			a->late[a->scan.late_count++] = w->ino;
	}
	a->scan.late = a->late;
	return 0;
}

static void leave_none_locked(struct ckpt_step *step)
{
	for (struct ckpt_writer *w = ckpt_staging_of(step)->writers; w; w = w->next)
		w->left = false;
}

static int take_leftovers_locked(struct attempt *a)
{
	size_t count = 0, i = 0;

	for (struct ckpt_writer *w = ckpt_staging_of(a->step)->writers; w; w = w->next)
		count++;
	a->leftovers = calloc(count + 1, sizeof(*a->leftovers));
	if (!a->leftovers)
		return -ENOMEM;
	for (struct ckpt_writer *w = ckpt_staging_of(a->step)->writers; w; w = w->next) {
		if (is_left(a, w))
			continue;
		a->leftovers[i++] = (struct ckpt_leftover){.ino = w->ino, .pid = w->pid};
	}
	a->scan.leftovers = a->leftovers;
	a->scan.leftover_count = i;
	return 0;
}

// The error log waits for the disk: what is found under the lock is told without it.
static void tell_of_leftovers(struct attempt *a)
{
	for (size_t i = 0; i < a->scan.leftover_count; i++)
		ckpt_errlog_add(a->step->store->errlog, a->name, 0,
				"close the file in all processes before the step is completed",
				"still open for writing by process %d, closed by another: committed as it was then",
				(int)a->leftovers[i].pid);
}

struct blamed {
	bool any;
	bool killed;
	pid_t pid;
	char path[PATH_MAX];
};

static void blame_writer_locked(struct attempt *a, const struct ckpt_writer *w, struct blamed *ret_blamed)
{
	ret_blamed->any = true;
	ret_blamed->pid = w->pid;
	ckpt_stage_writer_path_locked(a->step, w, ret_blamed->path);
}

static bool blame_killed_locked(struct attempt *a, struct blamed *ret_blamed)
{
	const struct ckpt_killed *killed = &ckpt_staging_of(a->step)->killed;

	if (!killed->any || (killed->late && a->leaves_late))
		return false;
	ret_blamed->any = ret_blamed->killed = true;
	ret_blamed->pid = killed->pid;
	snprintf(ret_blamed->path, sizeof(ret_blamed->path), "%s", killed->path ? killed->path : "(its name is lost)");
	return true;
}

static void complain_of_writer(struct attempt *a, const struct blamed *blamed)
{
	char hint[128];

	if (blamed->killed) {
		snprintf(hint, sizeof(hint),
			 "process %d was killed while it wrote it; save again, or complete the step if it is whole",
			 (int)blamed->pid);
		complain(a, -EIO, hint, "a file was not written to its end", blamed->path);
		return;
	}
	snprintf(hint, sizeof(hint), "process %d has it open for writing; close it and complete the step again",
		 (int)blamed->pid);
	complain(a, -EBUSY, hint, "a file is still being written", blamed->path);
}

// A mapping keeps its file's handle as a leftover does, and through a daemon its stores reach the file only when the
// kernel writes them back: a file that stands still says nothing before that. Gives the lock back meanwhile.
static int write_back_locked(struct attempt *a)
{
	struct ckpt_step *step = a->step;
	size_t count = 0, i = 0;
	uint64_t *files;

	for (struct ckpt_writer *w = ckpt_staging_of(step)->writers; w; w = w->next)
		count++;
	files = calloc(count + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	for (struct ckpt_writer *w = ckpt_staging_of(step)->writers; w; w = w->next)
		files[i++] = w->ino;
	ckpt_lock_drop(&step->lock);
	for (i = 0; i < count; i++) {
		step->store->calls.write_back(step->store->calls.write_back_arg, files[i]);
		progress(a);
	}
	free(files);
	ckpt_lock_take(&step->lock);
	return 0;
}

// Until nobody has a file open for writing, or those who do are forks' leftovers that stood still for a while.
static int wait_for_writers_locked(struct attempt *a, struct blamed *ret_blamed)
{
	struct ckpt_step *step = a->step;
	int64_t began = ckpt_sys.mono_ns(), still_since = 0;
	bool written_back = !step->store->calls.write_back;
	int rc;

	while (ckpt_staging_of(step)->changers || (any_to_wait_for_locked(a) && step->state == CKPT_STEP_COMMITTING)) {
		int64_t now = ckpt_sys.mono_ns();
		const struct ckpt_writer *at_work = one_at_work_locked(a);
		bool still = !ckpt_staging_of(step)->changers && !at_work;

		progress(a);
		if (!still)
			still_since = 0;
		else if (!still_since)
			still_since = now;
		if (still && now - still_since >= MIN(LEFTOVER_STILL_NS, a->writers_ns)) {
			if (written_back)
				break;
			if (write_back_locked(a))
				return -ENOMEM;
			written_back = true;
			continue;
		}
		if (!ckpt_staging_of(step)->changers && at_work && now - began >= a->writers_ns) {
			blame_writer_locked(a, at_work, ret_blamed);
			return -EBUSY;
		}
		ckpt_lock_wait_ns(&step->changed, &step->lock, WRITERS_NS);
	}
	if (step->state != CKPT_STEP_COMMITTING)
		return -ESTALE; // who held the gate may have taken the step away
	if (blame_killed_locked(a, ret_blamed))
		return -EIO;
	rc = any_to_wait_for_locked(a) ? take_leftovers_locked(a) : 0;
	return rc ? rc : leave_late_locked(a);
}

static int wait_for_writers(struct attempt *a)
{
	struct blamed blamed = {0};
	int rc;

	ckpt_lock_take(&a->step->lock);
	rc = wait_for_writers_locked(a, &blamed);
	ckpt_lock_drop(&a->step->lock);
	if (blamed.any)
		complain_of_writer(a, &blamed);
	tell_of_leftovers(a);
	return rc;
}

// --- Write-out --------------------------------------------------------------------------------------------------------

static int sync_path(struct attempt *a, const struct ckpt_unsynced *u, bool dir)
{
	if (!dir && ckpt_stage_has_failed(a->step, u->ino))
		return -EIO; // by another name, a moment ago
	CLEANUP_FD int fd = ckpt_sys.open(a->step->dirfd, u->path, O_RDONLY | (dir ? O_DIRECTORY : O_NONBLOCK), 0);
	int rc = fd < 0 ? fd : dir || u->shared ? ckpt_sys.fsync(fd) : ckpt_sys.fdatasync(fd);

	progress(a);
	if (!rc)
		return 0;
	if (fd < 0) {
		complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
			 "it could not be opened, to be written out", u->path);
		return rc;
	}
	if (!dir && !u->shared) // the data of a shared one was on disk before
		ckpt_stage_synced(a->step, u->ino, 0, 0, rc);
	complain(a, rc, "the data did not reach the disk: write the file anew, then complete the step again",
		 "write-out failed", u->path);
	return rc;
}

static int sync_each(struct attempt *a)
{
	int first = 0;

	for (size_t i = 0; i < a->scan.file_count; i++) {
		int rc = sync_path(a, &a->scan.files[i], false);

		first = first ? first : rc;
	}
	for (size_t i = 0; i < a->scan.dir_count && !first; i++)
		first = sync_path(a, &a->scan.dirs[i], true);
	return first;
}

static int sync_all(struct attempt *a)
{
	int rc = sync_each(a);

	if (rc)
		return rc;
	rc = ckpt_stage_make_durable(a->step, false);
	if (rc)
		complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
			 "the name of its directory could not be written", NULL);
	return rc;
}

// One syncfs for many files is worth a hundred fsyncs, but it also writes what strangers have dirty. It covers the
// directories too: on ext4, xfs and btrfs it commits the journal or tree that holds them.
static int write_out(struct attempt *a)
{
	struct ckpt_scan *scan = &a->scan;
	const char *path;
	int rc = ckpt_copy_sync(a->step, &path), lost;

	if (rc) {
		complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
			 "a copy of a file that is still open could not be written", path);
		return rc;
	}
	if (scan->file_count + scan->dir_count <= UNSYNCED_EACH_MAX ||
	    (!scan->file_count && scan->dir_count <= 4 * UNSYNCED_EACH_MAX) ||
	    ckpt_sys.dirty_bytes() > 4 * scan->unsynced_bytes + FOREIGN_DIRTY_MAX)
		return sync_all(a);
	progress(a);
	lost = ckpt_sys.syncfs(a->step->dirfd);
	if (!lost)
		return 0;
	rc = sync_all(a); // each file answers for itself
	if (rc)
		return rc;
	// A stranger's, likely; but a file of ours that has left the memory since cannot answer any more.
	complain(a, lost, "if all is well with the disk and with those files, complete the step again",
		 "write-out of files on the same disk failed, and which ones is not known", NULL);
	return lost;
}

// --- The attempt ------------------------------------------------------------------------------------------------------

static void complain_of_scan(struct attempt *a, int error)
{
	const char *path = a->scan.blamed;

	switch (error) {
	case -EBUSY:
		complain(a, error,
			 "a shared mapping or a leaked descriptor can still change it; end it and complete the step "
			 "again",
			 "somebody can still write a file", path);
		break;
	case -EIO:
		complain(a, error, "write the file anew, then complete the step again",
			 "a write of a file was lost before", path);
		break;
	case -EINVAL:
	case -EILSEQ:
	case -ENAMETOOLONG:
		complain(a, error, "rename it, then complete the step again", "a name that a step cannot have", path);
		break;
	case -ESTALE:
		complain(a, error, "`ckptfs abort` it, then derive it again",
			 "the step that a file shares its chunks with is gone, or was changed", path);
		break;
	case -E2BIG:
		if (a->scan.blamed_xattrs)
			complain(a, error, "remove some, then complete the step again",
				 "more than 64 KiB of extended attributes", path);
		else
			complain(a, error, "fewer than 1,048,576 files, at most 64 levels deep",
				 "too many files or too deep", path);
		break;
	default:
		complain(a, error, "nothing is lost: mend the cause, then complete the step again",
			 "the files could not be read", path);
	}
}

static void complain_of_publish(struct attempt *a, int error)
{
	if (a->unknown)
		complain(a, error, "look at the disk; completing the step again gives the final answer",
			 "outcome unknown: the record may be there, the disk did not confirm it", NULL);
	else if (error == -EEXIST)
		complain(a, error, "choose another name, or remove that step first", "there is a step of this name",
			 NULL);
	else
		complain(a, error, "nothing is lost: mend the cause, then complete the step again",
			 "the record could not be written", NULL);
}

static void complain_of_name(struct attempt *a, int error)
{
	if (error == -EBUSY)
		complain(a, error, "complete it under that name again, which gives the final answer",
			 "the outcome of its commit under another name is unknown", NULL);
	else if (error == -EEXIST)
		complain(a, error, "choose another name, or remove that step first", "there is a step of this name",
			 NULL);
	else
		complain(a, error, "nothing is lost: mend the cause, then complete the step again",
			 "its name could not be kept for it", NULL);
}

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
		complain_of_name(a, rc);
	return rc;
}

static int put_back_copies(struct attempt *a)
{
	int rc = ckpt_copy_undo(a->step);

	if (rc)
		complain(a, rc, "mend the cause, then complete the step again",
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
		complain_of_publish(a, rc);
	if (rc != -ENOENT)
		return rc;
	ckpt_left_out_drop(TAKE_PTR(a->left_out)); // the attempt before has done nothing
	rc = wait_for_writers(a);
	if (rc == -ESTALE)
		complain(a, rc, NULL, "it was removed, or moved into another step, at the same moment", NULL);
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
		complain_of_scan(a, rc);
		return rc;
	}
	rc = ckpt_left_out_begin(&a->scan, &a->left_out);
	if (rc) {
		complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
			 "files of a killed process could not be kept as a session of their own", NULL);
		return rc;
	}
	rc = write_out(a);
	if (rc)
		return rc;
	rc = ckpt_attempt_prepare(a);
	if (rc) {
		complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
			 "the manifest could not be stored, or the metadata not be read", NULL);
		return rc;
	}
	rc = ckpt_copy_place(a->step);
	if (rc) {
		complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
			 "the copy of a file that is still open could not take its place", NULL);
		return rc;
	}
	rc = publish(a);
	if (rc && rc != -EREMCHG)
		complain_of_publish(a, rc);
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
		leave_none_locked(step);
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
		complain(a, error, "save it anew", "it was dropped, or moved into another step", NULL);
	else if (part == JOINS)
		complain(a, error, "wait for its end", "it is being committed under another name", NULL);
	else if (part == LATE)
		complain(a, error, "it is a step already", "it was committed under another name", NULL);
	else
		complain_of_name(a, error);
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
