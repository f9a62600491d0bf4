// Staged steps that were interrupted, and what becomes of unfinished sessions when their store is opened again:
//   LEFT   -> STAGED    ckpt_stage_restart(), for sessions whose name is free; ckpt_stage_resume()
//   STAGED -> LEFT      ckpt_stage_set_aside(), ckpt_stage_yield()
// The states are those of step.h.
#include "core/save/stage.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/makers.h"
#include "core/save/reopen.h"
#include "core/step/folders.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

// --- The mark ---------------------------------------------------------------------------------------------------------

bool ckpt_stage_is_interrupted(const struct ckpt_step *step)
{
	return __atomic_load_n(&ckpt_staging_of(step)->interrupted, __ATOMIC_ACQUIRE);
}

const char *ckpt_stage_state_name(struct ckpt_step *step)
{
	bool interrupted = ckpt_stage_is_interrupted(step);
	LOCK_SCOPE(&step->lock);

	if (step->state == CKPT_STEP_LEFT)
		return interrupted && !step->store->writable ? "interrupted" : "left";
	return interrupted && step->state == CKPT_STEP_STAGED && !ckpt_staging_of(step)->writers ? "interrupted"
												 : "live";
}

int64_t ckpt_stage_attempt_ns(const struct ckpt_step *step)
{
	return ckpt_stage_is_interrupted(step) ? __atomic_load_n(&ckpt_staging_of(step)->attempt_ns, __ATOMIC_RELAXED)
					       : 0;
}

// Of two attempts the later one counts.
static void set_interrupted(struct ckpt_step *step, int64_t attempt_ns)
{
	int64_t before = __atomic_load_n(&ckpt_staging_of(step)->attempt_ns, __ATOMIC_RELAXED);

	while (before < attempt_ns &&
	       !__atomic_compare_exchange_n(&ckpt_staging_of(step)->attempt_ns, &before, attempt_ns, false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	__atomic_store_n(&ckpt_staging_of(step)->interrupted_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	__atomic_store_n(&ckpt_staging_of(step)->interrupted, true, __ATOMIC_RELEASE);
}

static int staged_dir(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_STAGED ? fcntl(step->dirfd, F_DUPFD_CLOEXEC, 0) : -1;
}

// The mark in memory is enough until the store is closed, and the next open marks the step, too: a failure does no harm.
static void write_mark(struct ckpt_step *step)
{
	CLEANUP_FD int dirfd = staged_dir(step);

	if (dirfd >= 0)
		(void)ckpt_stage_write_origin(step, dirfd);
}

void ckpt_stage_interrupt(struct ckpt_step *step)
{
	set_interrupted(step, ckpt_sys.now_ns());
	write_mark(step);
}

// The next attempt begins after the last change of what is there, even if the clock was set back since. Nothing is written: that
// would be a change, too, and what is mounted every day would never be old enough to be dropped.
static void mark_found(struct ckpt_step *step)
{
	struct ckpt_stage_usage u = {0};

	(void)ckpt_stage_usage(step, &u);
	set_interrupted(step, MAX(u.changed_ns + 1, ckpt_staging_of(step)->began_ns));
}

// What it says of itself has been checked when it was loaded. Its writers are gone, so nothing is known to be on disk.
static int take_name(struct ckpt_step *step)
{
	char folder_id[sizeof(step->folder_id)], name[sizeof(step->name)];
	int rc;

	memcpy(folder_id, step->folder_id, sizeof(folder_id));
	memcpy(name, step->name, sizeof(name));
	LOCK_SCOPE(&step->store->lock);
	if (ckpt_step_state(step) != CKPT_STEP_LEFT)
		return -ESTALE;
	rc = ckpt_step_unleave_locked(step, folder_id, name);
	if (rc)
		return rc;
	LOCK_SCOPE(&step->lock);
	ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	ckpt_staging_of(step)->ours = true;
	ckpt_staging_of(step)->pid = 0; // of a process that is gone
	return 0;
}

int ckpt_stage_resume(struct ckpt_step *step)
{
	int rc = ckpt_step_state(step) == CKPT_STEP_LEFT ? 0 : -ESTALE;

	if (!rc && ckpt_staging_of(step)->is_file)
		rc = -ENOTDIR;
	if (!rc && ckpt_staging_of(step)->from_version) {
		rc = ckpt_reopen_resume(step);
		if (rc != -ENOENT)
			return rc;
		rc = 0; // the step that it comes from is gone: it may have the name
		ckpt_staging_of(step)->from_version = 0;
	}
	if (!rc)
		rc = ckpt_name_check(step->name, strlen(step->name));
	if (!rc)
		rc = ckpt_folders_back(step->store, step->folder_id, step->name);
	if (!rc)
		rc = take_name(step);
	if (!rc)
		mark_found(step);
	return rc;
}

// --- Set aside --------------------------------------------------------------------------------------------------------

// A process that nobody has waited for yet counts as living: it may be a long pause.
bool ckpt_stage_maker_lives_locked(const struct ckpt_step *step)
{
	return step->state == CKPT_STEP_STAGED && ckpt_staging_of(step)->pid > 0 &&
	       (!kill(ckpt_staging_of(step)->pid, 0) || errno == EPERM);
}

static bool is_idle_locked(const struct ckpt_step *step)
{
	return step->state == CKPT_STEP_STAGED && !ckpt_staging_of(step)->outcome_unknown &&
	       !ckpt_staging_of(step)->changers && !ckpt_staging_of(step)->writers &&
	       !ckpt_stage_maker_lives_locked(step) && !__atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);
}

bool ckpt_stage_is_idle(struct ckpt_step *step)
{
	struct ckpt_makers_facts makers;

	ckpt_makers_ask(step, &makers);
	LOCK_SCOPE(&step->lock);
	return is_idle_locked(step) && !makers.living && !makers.later && !makers.stopped;
}

// From the change of its state on nobody enters it.
static int leave_name_locked(struct ckpt_step *step, bool idle, int64_t unless_since_ns)
{
	LOCK_SCOPE(&step->lock);

	if (!idle || !is_idle_locked(step) ||
	    __atomic_load_n(&ckpt_staging_of(step)->touched_ns, __ATOMIC_RELAXED) > unless_since_ns)
		return step->state == CKPT_STEP_STAGED || step->state == CKPT_STEP_COMMITTING ? -EBUSY : -ESTALE;
	ckpt_step_erase_locked(step); // not the last reference: the caller's
	ckpt_step_set_state_locked(step, CKPT_STEP_LEFT);
	return 0;
}

// Unless something in it has changed since then, monotonic.
static int set_aside(struct ckpt_step *step, int64_t unless_since_ns)
{
	bool idle = ckpt_stage_is_idle(step);
	LOCK_SCOPE(&step->store->lock);
	int rc = leave_name_locked(step, idle, unless_since_ns);

	if (!rc)
		ckpt_step_leave_locked(step);
	return rc;
}

int ckpt_stage_set_aside(struct ckpt_step *step)
{
	return set_aside(step, INT64_MAX);
}

int ckpt_stage_yield(struct ckpt_step *step)
{
	if (!ckpt_stage_is_interrupted(step))
		return -EBUSY;
	return set_aside(step, __atomic_load_n(&ckpt_staging_of(step)->interrupted_ns, __ATOMIC_RELAXED));
}

void ckpt_stage_give_way(struct ckpt_store *s, const char *folder_id, const char *name)
{
	struct ckpt_step *there = ckpt_step_find(s, folder_id, name);

	if (there && !ckpt_staging_of(there)->by_client && ckpt_stage_is_interrupted(there))
		(void)ckpt_stage_set_aside(there); // else the name is taken
	ckpt_step_unref(there);
}

// --- At the opening of a store ------------------------------------------------------------------------------------------

static bool can_be_staged(const struct ckpt_step *step)
{
	return *step->name && !ckpt_staging_of(step)->is_file && !ckpt_staging_of(step)->from_version &&
	       !ckpt_staging_of(step)->from_plain;
}

// The newest of a name comes first.
static int by_name_and_age(const void *a, const void *b)
{
	const struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;
	int order = strcmp(x->folder_id, y->folder_id);

	if (!order)
		order = strcmp(x->name, y->name);
	if (!order)
		order = (ckpt_staging_of(x)->began_ns < ckpt_staging_of(y)->began_ns) -
			(ckpt_staging_of(x)->began_ns > ckpt_staging_of(y)->began_ns);
	return order ? order : strcmp(x->session, y->session);
}

static bool same_name(const struct ckpt_step *a, const struct ckpt_step *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->folder_id, b->folder_id);
}

static const char *path_of(const struct ckpt_folders *folders, const char *folder_id)
{
	for (size_t i = 0; i < folders->count; i++)
		if (!strcmp(folders->at[i].id, folder_id))
			return folders->at[i].path;
	return *folder_id ? NULL : ".";
}

// Its folder is there, and neither a step nor anything plain in it has the name.
static bool name_is_free(struct ckpt_step *step, const struct ckpt_folders *folders)
{
	struct ckpt_step *there = ckpt_step_find(step->store, step->folder_id, step->name);
	const char *folder = there ? NULL : path_of(folders, step->folder_id);
	CLEANUP_FD int fd = folder ? ckpt_sys.open(step->store->tree_fd, folder, O_RDONLY | O_DIRECTORY, 0) : -1;
	struct stat st;

	ckpt_step_unref(there);
	return fd >= 0 && fstatat(fd, step->name, &st, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
}

static bool any_in_folder(struct ckpt_step *const *steps, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (*steps[i]->folder_id)
			return true;
	return false;
}

// Of what is in folders that cannot be read nothing is known: it stays left.
static int restart_all(struct ckpt_store *s, struct ckpt_step **steps, size_t count)
{
	struct ckpt_folders folders = {0};
	const struct ckpt_step *staged = NULL;
	int rc = any_in_folder(steps, count) ? ckpt_folders_read(s, &folders) : 0;

	rc = rc == -ENOMEM ? rc : 0;
	for (size_t i = 0; i < count && !rc; i++) {
		if ((staged && same_name(staged, steps[i])) || !name_is_free(steps[i], &folders))
			continue;
		if (!s->writable || !take_name(steps[i])) {
			mark_found(steps[i]);
			staged = steps[i];
		}
	}
	ckpt_folders_done(&folders);
	return rc;
}

int ckpt_stage_restart(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count, kept = 0;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (can_be_staged(steps[i])) {
			struct ckpt_step *step = steps[i];

			steps[i] = steps[kept];
			steps[kept++] = step;
		}
	if (kept) {
		qsort(steps, kept, sizeof(struct ckpt_step *), by_name_and_age);
		rc = restart_all(s, steps, kept);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

int ckpt_stage_load_left(struct ckpt_store *s, const char *session)
{
	struct ckpt_step *step;
	int rc = ckpt_step_new(s, &step);

	if (rc)
		return rc;
	snprintf(step->session, sizeof(step->session), "%s", session);
	step->dirfd = ckpt_sys.open(s->sessions_fd, session, O_RDONLY | O_DIRECTORY, 0);
	if (step->dirfd < 0) {
		rc = step->dirfd;
		ckpt_step_unref(step);
		return rc;
	}
	rc = ckpt_stage_read_origin(step);
	if (rc) {
		ckpt_step_unref(step);
		return rc;
	}
	ckpt_lock_take(&s->lock);
	ckpt_step_leave_locked(step);
	ckpt_lock_drop(&s->lock);
	ckpt_step_unref(step);
	return 0;
}
