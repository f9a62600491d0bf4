// What unfinished steps take, and for how long nobody has changed them.
#include "core/stage/stage.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/store/errlog.h"
#include "core/store/store.h"

#include <signal.h>

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
	for (struct ckpt_writer *w = step->writers; w; w = w->next)
		u.open_writers++;
	ckpt_lock_drop(&step->lock);
	*ret_usage = u;
	return 0;
}

// Who made it is still there: it may be a long pause.
static bool is_alive(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->state == CKPT_STEP_STAGED && step->pid > 0 && (!kill(step->pid, 0) || errno == EPERM);
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
	int64_t changed_ns = __atomic_load_n(&step->touched_ns, __ATOMIC_RELAXED) ? INT64_MAX : last_change(step);

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
	bool busy = step->state == CKPT_STEP_COMMITTING || step->writers || step->changers ||
		    (__atomic_load_n(&step->touched_ns, __ATOMIC_RELAXED) > quiet_since_ns);
	ckpt_lock_drop(&step->lock);
	return busy || is_written_outside(step);
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

int64_t ckpt_stage_expire_before(struct ckpt_store *s, int64_t changed_ns, const bool *stop)
{
	int64_t next = INT64_MAX;
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_LEFT, &steps, &count))
		return next;
	for (size_t i = 0; i < count && !__atomic_load_n(stop, __ATOMIC_RELAXED); i++) {
		struct ckpt_step_name now;
		int64_t changed;

		ckpt_step_name(steps[i], &now);
		if (is_alive(steps[i]) || !ckpt_name_is_temp(now.name) ||
		    __atomic_load_n(&steps[i]->reopens, __ATOMIC_ACQUIRE))
			continue;
		changed = last_change(steps[i]);
		if (changed < changed_ns && !ckpt_stage_abort(steps[i], true))
			ckpt_errlog_add(s->errlog, now.name, 0, "staging_ttl says when",
					"nobody completed it, or changed it, for so long: it was dropped");
		else
			next = MIN(next, MAX(changed, changed_ns));
	}
	ckpt_step_list_free(steps, count);
	return next;
}
