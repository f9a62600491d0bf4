// An attempt waits for those who have a file of its step open for writing. A leftover is the descriptor of a process
// that was forked and keeps it open after another has closed it: its file only has to stand still for a while.
#include "core/save/attempt.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <limits.h>
#include <stdio.h>

#define LEFTOVER_STILL_NS INT64_C(1000000000) // so long must a file stand still whose descriptor somebody closed
#define WRITERS_NS INT64_C(20000000)          // between two looks at them

// A closed one is waited for like any, which is not for long.
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

void ckpt_attempt_leave_none_locked(struct ckpt_step *step)
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
		ckpt_attempt_complain(a, -EIO, hint, "a file was not written to its end", blamed->path);
		return;
	}
	snprintf(hint, sizeof(hint), "process %d has it open for writing; close it and complete the step again",
		 (int)blamed->pid);
	ckpt_attempt_complain(a, -EBUSY, hint, "a file is still being written", blamed->path);
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
		ckpt_attempt_progress(a);
	}
	free(files);
	ckpt_lock_take(&step->lock);
	return 0;
}

// Waits until nobody has a file open for writing, or those who do are forks' leftovers that stood still for a while.
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

		ckpt_attempt_progress(a);
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

int ckpt_attempt_wait_for_writers(struct attempt *a)
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
