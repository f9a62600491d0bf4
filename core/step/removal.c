// Marks are by entry of one manifest, that of the version which they were made in. Whoever comes with another one is answered by
// the entry's path; the marks move to a new version's manifest with its first mark, or when it is put.
#include "core/step/removal.h"

#include "core/base/proc.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/amending.h"

#include <limits.h>

#define READ_NS INT64_C(1000000000) // so long whoever began to read the version before may still read it

// --- The step's own directory --------------------------------------------------------------------------------------------

void ckpt_removal_dir_opened(struct ckpt_step *step, struct ckpt_top_dir *d, pid_t tid)
{
	*d = (struct ckpt_top_dir){
		.step = ckpt_step_ref(step), .tid = tid, .opened_ns = ckpt_sys.mono_ns(), .next = NULL};
	LOCK_SCOPE(&step->lock);
	d->next = ckpt_removing_of(step)->top_dirs;
	if (d->next)
		d->next->prev = d;
	ckpt_removing_of(step)->top_dirs = d;
}

void ckpt_removal_dir_closed(struct ckpt_top_dir *d)
{
	struct ckpt_step *step = d->step;

	if (!step)
		return;
	ckpt_lock_take(&step->lock);
	if (d->next)
		d->next->prev = d->prev;
	if (d->prev)
		d->prev->next = d->next;
	else
		ckpt_removing_of(step)->top_dirs = d->next;
	ckpt_removing_of(step)->top_dirs_closed[ckpt_removing_of(step)->top_dirs_count++ % CKPT_TOP_DIRS_KEPT] =
		(struct ckpt_top_dir_closed){d->tid, ckpt_sys.mono_ns()};
	ckpt_lock_drop(&step->lock);
	ckpt_step_unref(step);
	d->step = NULL;
}

void ckpt_removal_dir_forget(struct ckpt_step *step, pid_t tid)
{
	LOCK_SCOPE(&step->lock);

	for (size_t i = 0; i < CKPT_TOP_DIRS_KEPT; i++)
		if (ckpt_removing_of(step)->top_dirs_closed[i].tid == tid)
			ckpt_removing_of(step)->top_dirs_closed[i].closed_ns = 0;
}

#define OPENERS_MAX 64 // that are looked at

static size_t openers(struct ckpt_step *step, int64_t since_ns, pid_t ret_tids[OPENERS_MAX])
{
	struct ckpt_removing *removing = ckpt_removing_of(step);
	LOCK_SCOPE(&step->lock);
	size_t count = 0;

	for (const struct ckpt_top_dir *d = removing->top_dirs; d && count < OPENERS_MAX; d = d->next)
		ret_tids[count++] = d->tid;
	for (size_t i = 0; i < CKPT_TOP_DIRS_KEPT && count < OPENERS_MAX; i++)
		if (removing->top_dirs_closed[i].closed_ns && removing->top_dirs_closed[i].closed_ns >= since_ns)
			ret_tids[count++] = removing->top_dirs_closed[i].tid;
	return count;
}

bool ckpt_removal_has_open(struct ckpt_step *step, const struct ckpt_process *process, int64_t since_ns)
{
	pid_t tids[OPENERS_MAX], pid = process ? ckpt_process_pid(process) : 0;
	size_t count = openers(step, since_ns, tids);

	for (size_t i = 0; i < count; i++)
		if (tids[i] == pid)
			return true;
	for (size_t i = 0; pid && i < count; i++)
		if (tids[i] && ckpt_proc_process(tids[i]) == pid)
			return true;
	return false;
}

// --- Marks -----------------------------------------------------------------------------------------------------------------

static bool is_current_locked(const struct ckpt_step *step, const struct ckpt_manifest *m)
{
	return !memcmp(step->version->is.manifest_sha256, ckpt_manifest_sha256(m), CKPT_SHA256_LEN);
}

bool ckpt_removal_is_of(const struct ckpt_removal *r, const struct ckpt_manifest *m)
{
	return r->m == m || !memcmp(ckpt_manifest_sha256(r->m), ckpt_manifest_sha256(m), CKPT_SHA256_LEN);
}

static void free_removal(struct ckpt_removal *r)
{
	if (!r)
		return;
	free_removal(r->before);
	for (size_t i = 0; i < REMOVERS_MAX; i++)
		ckpt_process_unref(r->by[i].process);
	ckpt_manifest_unref(r->m);
	free(r);
}

// Those of two versions are kept, at most.
static void set_removal_locked(struct ckpt_step *step, struct ckpt_removal *r)
{
	struct ckpt_removing *removing = ckpt_removing_of(step);

	if (removing->removal) {
		free_removal(TAKE_PTR(removing->removal->before));
		removing->removal->over = true;
		r->before = removing->removal;
	}
	__atomic_store_n(&removing->removal, r, __ATOMIC_RELEASE);
}

static struct ckpt_removal *removal_new(struct ckpt_manifest *m)
{
	struct ckpt_removal *r = calloc(1, sizeof(*r) + ckpt_manifest_count(m));

	if (r)
		r->m = ckpt_manifest_ref(m);
	return r;
}

static void mark(struct ckpt_removal *r, uint32_t index, uint8_t by)
{
	if (r->marked[index])
		return;
	r->marked[index] = by;
	r->by[by - 1].marks++;
	r->marks++;
}

static bool find_in(const struct ckpt_manifest *from, uint32_t index, const struct ckpt_manifest *to,
		    uint32_t *ret_index)
{
	char path[PATH_MAX];

	return ckpt_manifest_path(from, index, path, sizeof(path)) >= 0 && !ckpt_manifest_lookup(to, path, ret_index);
}

void ckpt_removal_over_locked(struct ckpt_removal *r)
{
	r->over = true;
	r->over_ns = ckpt_sys.mono_ns();
}

bool ckpt_removal_rebase_locked(struct ckpt_step *step, struct ckpt_manifest *m)
{
	struct ckpt_removal *was = ckpt_removing_of(step)->removal, *r = removal_new(m);
	uint32_t there;

	if (!r)
		return false;
	memcpy(r->by, was->by, sizeof(r->by));
	for (size_t i = 0; i < REMOVERS_MAX; i++) {
		ckpt_process_ref(r->by[i].process);
		r->by[i].marks = 0;
	}
	for (uint32_t i = 0; i < ckpt_manifest_count(was->m); i++)
		if (was->marked[i] && find_in(was->m, i, m, &there))
			mark(r, there, was->marked[i]);
	r->whole = was->whole;
	set_removal_locked(step, r);
	if (!r->marks && !r->whole)
		ckpt_removal_over_locked(r);
	return true;
}

static bool has_locked(const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index)
{
	const struct ckpt_removal *r = ckpt_removing_of(step)->removal;
	uint32_t there;

	if (r && r->whole)
		return true;
	for (; r; r = r->before)
		if (ckpt_removal_is_of(r, m))
			return r->marked[index];
	r = ckpt_removing_of(step)->removal;
	return r && !r->over && find_in(m, index, r->m, &there) && r->marked[there];
}

bool ckpt_removal_has(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index)
{
	if (!__atomic_load_n(&ckpt_removing_of(step)->removal, __ATOMIC_RELAXED)) // nearly always
		return false;
	LOCK_SCOPE(&step->lock);
	const struct ckpt_removal *r = ckpt_removing_of(step)->removal;

	if (r && r->over && ckpt_sys.mono_ns() - r->over_ns > READ_NS)
		ckpt_removal_forget_locked(step);
	return has_locked(step, m, index);
}

bool ckpt_removal_has_path(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m;
	uint32_t index;
	bool has = false;

	if (!ckpt_removal_any(step) || ckpt_step_manifest(step, &m))
		return false;
	if (!ckpt_manifest_lookup(m, path, &index))
		has = ckpt_removal_has(step, m, index);
	ckpt_manifest_unref(m);
	return has;
}

static bool is_empty_locked(const struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *dir)
{
	for (uint32_t i = 0; i < dir->child_count; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, dir->child_first + i, &e);
		if (!e.conflict && !has_locked(step, m, e.index)) // what nobody sees goes with it
			return false;
	}
	return true;
}

// --- Making one --------------------------------------------------------------------------------------------------------------

static struct ckpt_remover *find_remover_locked(struct ckpt_step *step, const struct ckpt_process *process)
{
	struct ckpt_removal *r = ckpt_removal_active_locked(step);

	for (size_t i = 0; r && i < REMOVERS_MAX; i++)
		if (r->by[i].used && r->by[i].process == process)
			return &r->by[i];
	return NULL;
}

// The last one is of all that find no other place, and of none that is known.
static struct ckpt_remover *new_remover_locked(struct ckpt_removal *r, struct ckpt_process *process, bool recursive)
{
	size_t i = 0;

	while (i < REMOVERS_MAX - 1 && r->by[i].used && r->by[i].marks)
		i++;
	if (i == REMOVERS_MAX - 1)
		process = NULL;
	recursive |= i == REMOVERS_MAX - 1 && r->by[i].recursive;
	ckpt_process_unref(r->by[i].process);
	r->by[i] = (struct ckpt_remover){
		.process = ckpt_process_ref(process),
		.used = true,
		.recursive = recursive,
		.marks = r->by[i].marks,
		.first_ns = ckpt_sys.mono_ns(),
	};
	return &r->by[i];
}

// The marks of the current version; none yet: new ones.
static struct ckpt_removal *begin_locked(struct ckpt_step *step, struct ckpt_manifest *m)
{
	struct ckpt_removal *r = ckpt_removal_active_locked(step);

	if (r && ckpt_removal_is_of(r, m))
		return r;
	if (r)
		return ckpt_removal_rebase_locked(step, m) ? ckpt_removing_of(step)->removal : NULL;
	r = removal_new(m);
	if (r)
		set_removal_locked(step, r);
	return r;
}

int ckpt_removal_mark_locked(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			     const struct ckpt_removal_maker *maker)
{
	struct ckpt_remover *by;
	struct ckpt_removal *r;

	if (step->state != CKPT_STEP_COMMITTED)
		return -EROFS;
	if (ckpt_amending_of(step)->reopening || __atomic_load_n(&step->reopened, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	if (step->version->is.pinned)
		return -EPERM;
	if (!is_current_locked(step, m))
		return -ESTALE; // it has another version since
	if (has_locked(step, m, e->index))
		return -ENOENT;
	if (e->type == CKPT_ENTRY_DIR && !is_empty_locked(step, m, e))
		return -ENOTEMPTY;
	r = begin_locked(step, m);
	if (!r)
		return -ENOMEM;
	by = find_remover_locked(step, maker->process);
	if (!by)
		by = new_remover_locked(r, maker->process, maker->recursive);
	by->last_ns = ckpt_sys.mono_ns();
	mark(r, e->index, (uint8_t)(by - r->by + 1));
	return 0;
}

bool ckpt_removal_is_known(struct ckpt_step *step, const struct ckpt_removal_maker *maker)
{
	LOCK_SCOPE(&step->lock);
	const struct ckpt_remover *by = find_remover_locked(step, maker->process);

	return by && by->marks;
}

// --- All of them -------------------------------------------------------------------------------------------------------------

void ckpt_removal_forget_locked(struct ckpt_step *step)
{
	free_removal(__atomic_exchange_n(&ckpt_removing_of(step)->removal, NULL, __ATOMIC_RELAXED));
}

void ckpt_removal_forget(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_removal_forget_locked(step);
}

bool ckpt_removal_any(struct ckpt_step *step)
{
	if (!__atomic_load_n(&ckpt_removing_of(step)->removal, __ATOMIC_RELAXED)) // nearly always
		return false;
	LOCK_SCOPE(&step->lock);

	return ckpt_removal_active_locked(step) != NULL;
}

bool ckpt_removal_hides(struct ckpt_step *step)
{
	const struct ckpt_removal *r;

	if (!__atomic_load_n(&ckpt_removing_of(step)->removal, __ATOMIC_RELAXED))
		return false;
	LOCK_SCOPE(&step->lock);
	r = ckpt_removal_active_locked(step);
	for (size_t i = 0; r && i < REMOVERS_MAX; i++)
		if (r->by[i].recursive && r->by[i].marks)
			return true;
	return r && r->whole;
}

static bool any_is_in(const struct ckpt_removal *r, const struct ckpt_manifest *m)
{
	uint32_t there;

	for (uint32_t i = 0; i < ckpt_manifest_count(r->m); i++)
		if (r->marked[i] && find_in(r->m, i, m, &there))
			return true;
	return r->whole;
}

void ckpt_removal_carry(struct ckpt_step *step, const struct ckpt_manifest *was, struct ckpt_manifest *is, bool same)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_removal *r = ckpt_removal_active_locked(step);

	if (!memcmp(ckpt_removing_of(step)->removed.is, ckpt_manifest_sha256(was), CKPT_SHA256_LEN) &&
	    (same || ckpt_manifest_same_entries(was, is)))
		memcpy(ckpt_removing_of(step)->removed.is, ckpt_manifest_sha256(is), CKPT_SHA256_LEN);
	// Without memory the next mark does it, or its end; where none is left, this is that.
	if (r && ckpt_removal_is_of(r, was) && !ckpt_removal_rebase_locked(step, is) && !any_is_in(r, is))
		ckpt_removal_over_locked(r);
}

// --- The step itself ---------------------------------------------------------------------------------------------------------

// From here on nothing of it is seen.
int ckpt_removal_hide_all(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	struct ckpt_entry top;
	struct ckpt_removal *r;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return rc;
	ckpt_manifest_entry(m, 0, &top);
	ckpt_lock_take(&step->lock);
	rc = is_empty_locked(step, m, &top) ? 0 : -ENOTEMPTY;
	r = rc ? NULL : begin_locked(step, m);
	if (r)
		r->whole = true;
	else if (!rc)
		rc = -ENOMEM;
	ckpt_lock_drop(&step->lock);
	ckpt_manifest_unref(m);
	return rc;
}

static void removing_done(void *step)
{
	ckpt_removal_forget_locked(step);
}

struct ckpt_part ckpt_removing_part = {.bytes = sizeof(struct ckpt_removing), .done = removing_done};
