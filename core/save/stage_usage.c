// What unfinished steps take, and for how long nobody has changed them.
#include "core/save/stage.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <fcntl.h>

static int look_at(void *arg, int dirfd __attribute__((unused)), const char *name __attribute__((unused)),
		   const struct statx *stx)
{
	struct ckpt_stage_usage *u = arg;

	u->changed_ns = MAX(u->changed_ns, stx->stx_ctime.tv_sec * INT64_C(1000000000) + stx->stx_ctime.tv_nsec);
	if (S_ISREG(stx->stx_mode)) {
		u->files++;
		u->bytes += stx->stx_size;
	}
	return 0;
}

int ckpt_stage_usage(struct ckpt_step *step, struct ckpt_stage_usage *ret_usage)
{
	struct ckpt_stage_usage u = {0};
	int rc = ckpt_walk(step->store->sessions_fd, step->session, look_at, &u);

	if (rc)
		return rc;
	ckpt_lock_take(&step->lock);
	for (struct ckpt_writer *w = ckpt_staging_of(step)->writers; w; w = w->next)
		u.open_writers++;
	ckpt_lock_drop(&step->lock);
	*ret_usage = u;
	return 0;
}

static bool is_alive(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_stage_maker_lives_locked(step);
}

static int64_t last_change(struct ckpt_step *step)
{
	struct ckpt_stage_usage u;
	struct stat st;

	// It may have gone somewhere else while we looked.
	if (ckpt_stage_usage(step, &u) || u.open_writers ||
	    fstatat(step->store->sessions_fd, step->session, &st, AT_SYMLINK_NOFOLLOW))
		return INT64_MAX; // not now
	return u.changed_ns;
}

// Who was given the session's directory (`ckptfs begin`, the library) writes past us: only the files tell.
static bool is_written_outside(struct ckpt_step *step)
{
	int64_t changed_ns =
		__atomic_load_n(&ckpt_staging_of(step)->touched_ns, __ATOMIC_RELAXED) ? INT64_MAX : last_change(step);

	return changed_ns != INT64_MAX &&
	       changed_ns > ckpt_sys.now_ns() - ckpt_settings_quiet_ns(&step->store->settings, CKPT_QUIET_TIMES);
}

// A step that was saved before and is opened for changes is no save of the run's.
static bool is_saving(struct ckpt_step *step)
{
	int64_t quiet_since_ns = ckpt_sys.mono_ns() - ckpt_settings_quiet_ns(&step->store->settings, CKPT_QUIET_TIMES);

	if (__atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE))
		return false;
	ckpt_lock_take(&step->lock);
	bool busy = step->state == CKPT_STEP_COMMITTING || ckpt_staging_of(step)->writers ||
		    ckpt_staging_of(step)->changers ||
		    (__atomic_load_n(&ckpt_staging_of(step)->touched_ns, __ATOMIC_RELAXED) > quiet_since_ns);
	ckpt_lock_drop(&step->lock);
	// What an interrupted save has left says nothing before somebody writes on in it through us.
	return busy || (!ckpt_stage_is_interrupted(step) && is_written_outside(step));
}

bool ckpt_stage_is_saving(struct ckpt_store *s, const char *folder_id)
{
	struct ckpt_step **steps;
	bool saving = false;
	size_t count;

	if (ckpt_step_list(s, folder_id, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING, &steps, &count))
		return false;
	for (size_t i = 0; i < count && !saving; i++)
		saving = is_saving(steps[i]);
	ckpt_step_list_free(steps, count);
	return saving;
}

// When the session of a committed step was begun; 0: its directory does not say it, or is not there any more.
static int64_t began_ns(struct ckpt_step *step)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	json_t *origin = NULL;
	int64_t ns = 0;

	if (dirfd >= 0 && !ckpt_stage_origin(dirfd, &origin))
		ns = json_integer_value(json_object_get(origin, "began_ns"));
	json_decref(origin);
	return ns;
}

// Whether the committed step was saved by another session since the left one was changed last. A change of the step that was given
// up is not superseded by what was added to the version that it began as.
static bool supersedes(struct ckpt_step *step, const struct ckpt_step *left, int64_t changed_ns, int64_t committed_ns)
{
	int64_t began = began_ns(step);

	return committed_ns > changed_ns &&
	       (began ? began > ckpt_staging_of(left)->began_ns : !ckpt_staging_of(left)->from_version);
}

// When the name of a left-over was completed by another session; INT64_MAX: it was not, or it is one file.
static int64_t completed_ns(struct ckpt_step *left, int64_t changed_ns)
{
	struct ckpt_step *step = ckpt_staging_of(left)->is_file || !*left->name
					 ? NULL
					 : ckpt_step_find(left->store, left->folder_id, left->name);
	int64_t ns = INT64_MAX;

	if (!step)
		return ns;
	ckpt_lock_take(&step->lock);
	if (step->state == CKPT_STEP_COMMITTED)
		ns = step->version->is.committed_ns;
	ckpt_lock_drop(&step->lock);
	if (ns != INT64_MAX && !supersedes(step, left, changed_ns, ns))
		ns = INT64_MAX;
	ckpt_step_unref(step);
	return ns;
}

static bool is_abandoned_temp(struct ckpt_step *step, const char *name)
{
	return ckpt_name_is_temp(name) && !is_alive(step) && !__atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);
}

// Since when a session may go; INT64_MAX: it stays, or nobody knows now. *ret_why says why it may.
static int64_t over_since(struct ckpt_step *step, const char *name, const char **ret_why)
{
	bool is_temp = is_abandoned_temp(step, name);
	int64_t changed_ns;

	if (!is_temp && ckpt_step_state(step) != CKPT_STEP_LEFT)
		return INT64_MAX; // files are not looked at without need
	changed_ns = last_change(step);
	*ret_why = is_temp ? "nobody completed it, or changed it, for so long: it was dropped"
			   : "another session completed the step of this name so long ago: this one was dropped";
	return is_temp || changed_ns == INT64_MAX ? changed_ns : completed_ns(step, changed_ns);
}

int64_t ckpt_stage_expire_before(struct ckpt_store *s, int64_t over_ns, const bool *stop)
{
	int64_t next = INT64_MAX;
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_LEFT, &steps, &count))
		return next;
	for (size_t i = 0; i < count && !__atomic_load_n(stop, __ATOMIC_RELAXED); i++) {
		struct ckpt_step_name now;
		const char *why;
		int64_t since;

		ckpt_step_name(steps[i], &now);
		since = over_since(steps[i], now.name, &why);
		if (since < over_ns && !ckpt_stage_abort(steps[i], true))
			ckpt_errlog_add(s->errlog, now.name, 0, "staging_ttl says when", "%s", why);
		else
			next = MIN(next, MAX(since, over_ns));
	}
	ckpt_step_list_free(steps, count);
	return next;
}
