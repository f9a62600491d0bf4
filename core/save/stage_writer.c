// Who has a file of a step open for writing.
#include "core/save/stage.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/closed.h"
#include "core/step/store.h"
#include "core/step/torn.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void saves_no_more(struct ckpt_step *step, struct ckpt_writer *w)
{
	ckpt_jobs_saves(step->store->jobs, -(int)w->saves);
	w->saves = false;
}

void ckpt_stage_writers_save_no_more_locked(struct ckpt_step *step)
{
	for (struct ckpt_writer *w = ckpt_staging_of(step)->writers; w; w = w->next)
		saves_no_more(step, w);
}

void ckpt_stage_writer_add(struct ckpt_step *step, struct ckpt_writer *w)
{
	LOCK_SCOPE(&step->lock);

	w->saves = true;
	ckpt_jobs_saves(step->store->jobs, 1);
	ckpt_closed_forget(step->store, w->ino);
	w->step = ckpt_step_ref(step);
	w->prev = NULL;
	w->next = ckpt_staging_of(step)->writers;
	if (w->next)
		w->next->prev = w;
	ckpt_staging_of(step)->writers = w;
}

// A graft may move the writer to another step at any moment: lock, look again, and only then believe it.
static struct ckpt_step *lock_step_of(struct ckpt_writer *w)
{
	for (;;) {
		struct ckpt_step *step = __atomic_load_n(&w->step, __ATOMIC_ACQUIRE);

		if (!step)
			return NULL;
		ckpt_lock_take(&step->lock);
		if (__atomic_load_n(&w->step, __ATOMIC_ACQUIRE) == step)
			return step;
		ckpt_lock_drop(&step->lock);
	}
}

static bool is_last_of_file(const struct ckpt_step *step, const struct ckpt_writer *w)
{
	for (const struct ckpt_writer *other = ckpt_staging_of(step)->writers; other; other = other->next)
		if (other != w && other->ino == w->ino)
			return false;
	return true;
}

void ckpt_stage_writer_remove(struct ckpt_writer *w)
{
	struct ckpt_step *step = lock_step_of(w);

	if (!step)
		return;
	if (w->next)
		w->next->prev = w->prev;
	if (w->prev)
		w->prev->next = w->next;
	else
		ckpt_staging_of(step)->writers = w->next;
	w->next = w->prev = NULL;
	__atomic_store_n(&w->step, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	saves_no_more(step, w);
	if (step->state == CKPT_STEP_STAGED && is_last_of_file(step, w))
		ckpt_closed_add(step, w->ino, w->fd);
	pthread_cond_broadcast(&step->changed);
	ckpt_lock_drop(&step->lock);
	ckpt_step_unref(step);
}

void ckpt_stage_writers_let_go(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_writer *w;

	while ((w = ckpt_staging_of(step)->writers)) {
		ckpt_staging_of(step)->writers = w->next;
		w->next = w->prev = NULL;
		__atomic_store_n(&w->step, NULL, __ATOMIC_RELEASE);
		saves_no_more(step, w);
		ckpt_step_unref(step); // not the last: the caller's
	}
	pthread_cond_broadcast(&step->changed);
}

int ckpt_stage_writer_await(struct ckpt_writer *w)
{
	struct ckpt_step *step = lock_step_of(w);
	int rc = 0;

	if (!step)
		return 0;
	ckpt_step_ref(step);
	if (w->left && step->state == CKPT_STEP_COMMITTING)
		rc = ckpt_stage_wait_locked(step);
	if (!rc && w->left && step->state == CKPT_STEP_STAGED && ckpt_staging_of(step)->outcome_unknown)
		rc = -EIO;
	ckpt_lock_drop(&step->lock);
	ckpt_step_unref(step);
	return rc;
}

void ckpt_stage_writer_flushed(struct ckpt_writer *w, uint64_t bytes, int64_t mtime_ns)
{
	struct ckpt_step *step = lock_step_of(w);

	if (!step)
		return;
	w->flushed = true;
	// What was written through this one and closed has not been written by a fork's leftover of an earlier one.
	for (struct ckpt_writer *other = ckpt_staging_of(step)->writers; other; other = other->next)
		if (other->ino == w->ino && other->flushed) {
			other->flush_bytes = bytes;
			other->flush_mtime_ns = mtime_ns;
		}
	ckpt_lock_drop(&step->lock);
}

// A commit waits for it, or its step is reopened: somebody believes that its file will be whole.
static bool is_awaited_locked(const struct ckpt_step *step, const struct ckpt_writer *w)
{
	return step->state == CKPT_STEP_COMMITTING ? !w->flushed && !w->left
						   : __atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);
}

bool ckpt_stage_writer_is_awaited(struct ckpt_writer *w)
{
	struct ckpt_step *step = lock_step_of(w);
	bool awaited;

	if (!step)
		return false;
	awaited = is_awaited_locked(step, w);
	ckpt_lock_drop(&step->lock);
	return awaited;
}

void ckpt_stage_writer_path_locked(const struct ckpt_step *step, const struct ckpt_writer *w, char *ret_path)
{
	char link[64], target[PATH_MAX];
	const char *inside;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", w->fd);
	n = readlink(link, target, sizeof(target) - 1);
	target[MAX(n, (ssize_t)0)] = '\0';
	inside = strstr(target, step->session);
	snprintf(ret_path, PATH_MAX, "%s", inside ? inside + strlen(step->session) + 1 : target);
}

bool ckpt_stage_writer_stands_still(const struct ckpt_writer *w)
{
	struct stat st;

	return w->flushed && w->fd >= 0 && !fstat(w->fd, &st) && (uint64_t)st.st_size == w->flush_bytes &&
	       st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec == w->flush_mtime_ns;
}

static void fail_awaited_locked(struct ckpt_step *step, struct ckpt_writer *w)
{
	struct ckpt_killed *killed;
	char path[PATH_MAX];

	if (__atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE)) {
		ckpt_staging_of(step)->lost.any = true;
		ckpt_staging_of(step)->lost.pid = w->pid;
	}
	killed = &ckpt_staging_of(step)->killed;
	if (!killed->any || (killed->late && !w->late)) {
		ckpt_stage_writer_path_locked(step, w, path);
		free(killed->path);
		*killed = (struct ckpt_killed){.any = true, .late = w->late, .pid = w->pid, .path = strdup(path)};
	}
	pthread_cond_broadcast(&step->changed);
}

void ckpt_stage_writer_killed(struct ckpt_writer *w)
{
	struct ckpt_step *step = lock_step_of(w);
	bool torn;

	if (!step)
		return;
	// Changes of a committed step are given up whole, or completed by somebody who has looked at them (reopen.h).
	torn = step->state == CKPT_STEP_STAGED && !step->base && !ckpt_stage_writer_stands_still(w);
	if (is_awaited_locked(step, w))
		fail_awaited_locked(step, w);
	ckpt_lock_drop(&step->lock);
	if (torn)
		ckpt_torn_mark(w->fd);
}
