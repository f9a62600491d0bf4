#include "fs/unstage.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/profile/profile.h"
#include "core/record/name.h"
#include "core/save/convert.h"
#include "core/save/share_chunks.h"
#include "core/step/folders.h"
#include "fs/folder.h"
#include "fs/handle.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define TICK_NS INT64_C(20000000) // times of files move in ticks

// The node of a staged step's directory, with a reference; NULL: the kernel does not know it.
static struct node *top_of(struct ckpt_fs *fs, struct ckpt_step *step)
{
	struct statx stx;
	bool is;

	ckpt_lock_take(&step->lock);
	is = step->dirfd >= 0 && !statx(step->dirfd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx);
	ckpt_lock_drop(&step->lock);
	return is ? node_find(fs, SPACE_LIVE, ckpt_store_ino(&stx)) : NULL;
}

// The folder that the step is in, as a node with a reference, or NULL; *ret_fd opens it, or says why not.
static struct node *folder_of(struct ckpt_fs *fs, struct ckpt_step *step, const struct node *top, int *ret_fd)
{
	struct ckpt_step_name is;
	struct node *folder = NULL;

	if (top) {
		names_read_lock(fs);
		folder = top->names ? top->names->parent : NULL;
		if (folder)
			node_ref(fs, folder);
		names_unlock(fs);
	}
	ckpt_step_name(step, &is);
	*ret_fd = folder ? node_open(fs, folder, O_RDONLY | O_DIRECTORY) : ckpt_folders_open(fs->store, is.folder_id);
	return folder;
}

// dirfd/name is what it becomes. The gate is closed.
static int unstage_at(struct ckpt_fs *fs, struct ckpt_step *step, struct node *top, int dirfd, const char *name,
		      unsigned flags)
{
	int rc = ckpt_share_chunks_guard_all(step);

	if (!rc) {
		names_write_lock(fs);
		rc = ckpt_unstage(step, dirfd, name, flags);
		if (!rc && top && top->step == step)
			ckpt_step_unref(__atomic_exchange_n(&top->step, NULL, __ATOMIC_RELAXED));
		names_unlock(fs);
	}
	if (rc)
		ckpt_unstage_cancel(step);
	return rc;
}

static int unstage_if(struct ckpt_fs *fs, struct ckpt_step *step, const int64_t *touched_ns, bool no_arrays)
{
	struct node *top = top_of(fs, step), *folder;
	CLEANUP_FD int dirfd = -1;
	struct ckpt_step_name is;
	int rc;

	folder = folder_of(fs, step, top, &dirfd);
	rc = dirfd < 0 ? dirfd : ckpt_unstage_begin(step, touched_ns);
	if (!rc) {
		if (no_arrays)
			ckpt_unstage_mark(step);
		ckpt_step_name(step, &is); // no rename comes in between any more
		rc = unstage_at(fs, step, top, dirfd, is.name, RENAME_NOREPLACE);
	}
	if (!rc && folder)
		folder_touch(fs, folder);
	node_unref(fs, folder);
	node_unref(fs, top);
	return rc;
}

int unstage(struct ckpt_fs *fs, struct ckpt_step *step)
{
	return unstage_if(fs, step, NULL, false);
}

int unstage_by_looker(void *arg, struct ckpt_step *step, int64_t touched_ns, bool no_arrays)
{
	return unstage_if(arg, step, &touched_ns, no_arrays);
}

int unstage_as(struct ckpt_fs *fs, struct ckpt_step *step, struct node *dir, const char *name)
{
	struct node *top = top_of(fs, step);
	CLEANUP_FD int dirfd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	int rc = dirfd < 0 ? dirfd : ckpt_unstage_begin(step, NULL);

	if (!rc)
		rc = unstage_at(fs, step, top, dirfd, name, 0);
	node_unref(fs, top);
	return rc;
}

// DeepSpeed's part of a checkpoint of the Trainer: checkpoint-500/global_step500.
static bool is_part_of(const char *name, const char *step_name)
{
	return (ckpt_name_matches("global_step#", name) || ckpt_name_matches("global_step_#", name)) &&
	       ckpt_name_number(name) == ckpt_name_number(step_name);
}

bool unstage_is_shown_by(struct ckpt_fs *fs, struct node *dir, struct ckpt_step *step, const char *name)
{
	struct ckpt_step_name is;
	bool shown = false;

	if (fs->store->settings.steps_at || ckpt_step_state(step) != CKPT_STEP_STAGED || ckpt_name_is_temp(name))
		return false;
	ckpt_step_name(step, &is);
	if (ckpt_name_is_temp(is.name) || is_part_of(name, is.name))
		return false;
	return !names_step(fs, dir, name, &shown) && shown;
}

// --- A second write ---------------------------------------------------------------------------------------------------

static bool may_be_run(struct ckpt_fs *fs, struct ckpt_step *step)
{
	struct ckpt_step_name is;

	if (fs->store->settings.steps_at || !ckpt_staging_of(step)->by_client || step->base ||
	    ckpt_step_state(step) != CKPT_STEP_STAGED)
		return false;
	ckpt_step_name(step, &is);
	return !ckpt_name_is_temp(is.name);
}

static bool was_saved_by(struct ckpt_fs *fs, struct node *n, pid_t process)
{
	struct node_use *use = process ? node_used(n) : NULL;

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	return use->saved_by == process && !use->write_opens &&
	       ckpt_sys.mono_ns() - use->saved_ns >= ckpt_settings_quiet_ns(&fs->store->settings, 1);
}

// Its only name, and the top directory of the step, in which it is: a reference. NULL: it is elsewhere.
static struct node *top_with(struct ckpt_fs *fs, const struct node *n, const struct ckpt_step *step, char *ret_name)
{
	struct node *top = NULL;

	names_read_lock(fs);
	if (n->names && !n->names->next && n->names->parent->step == step) {
		top = n->names->parent;
		node_ref(fs, top);
		snprintf(ret_name, CKPT_NAME_MAX + 1, "%s", n->names->text);
	}
	names_unlock(fs);
	return top;
}

static bool is_whole_array(struct ckpt_fs *fs, struct node *n, const char *name)
{
	CLEANUP_FD int fd = node_open(fs, n, O_RDONLY | O_NONBLOCK);

	return fd >= 0 && !ckpt_format_check(fd, name) && ckpt_data_is_open(fd, -1, name) == 1;
}

static bool is_claimed(struct ckpt_fs *fs, struct node *top)
{
	CLEANUP_FD int fd = node_open(fs, top, O_RDONLY | O_DIRECTORY);
	const char *profile = NULL;

	return fd < 0 || ckpt_profile_claims_dir(fs->store->settings.profiles, fd, &profile) || profile;
}

bool unstage_by_second_write(struct ckpt_fs *fs, struct node *n, struct ckpt_step *step, pid_t process)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *top;
	bool is;

	if (!step || !was_saved_by(fs, n, process) || !may_be_run(fs, step))
		return false;
	top = top_with(fs, n, step, name);
	is = top && is_whole_array(fs, n, name) && !is_claimed(fs, top) && !node_any_written_below(fs, top, NULL, NULL);
	node_unref(fs, top);
	return is;
}

// The node is a reference.
static void run_rewritten(struct call *c)
{
	struct ckpt_step *step = node_step(c->fs, c->node);
	char name[CKPT_NAME_MAX + 1];
	struct node *top = step ? top_with(c->fs, c->node, step, name) : NULL;

	if (top && may_be_run(c->fs, step) && is_whole_array(c->fs, c->node, name))
		(void)unstage(c->fs, step);
	node_unref(c->fs, top);
	ckpt_step_unref(step);
	node_unref(c->fs, c->node);
}

void unstage_if_rewritten(struct ckpt_fs *fs, const struct handle *h)
{
	struct call c = {.run = run_rewritten, .fs = fs, .node = h->node, .waits_for_clients = true};
	struct stat st;

	if (fstat(h->node->use->fd, &st) ||
	    st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec < h->rewrites_ns - TICK_NS)
		return;
	node_ref(fs, h->node);
	call_detach(&c);
}

// call.looks says of which directory.
static void run_unstaged(struct call *c)
{
	struct ckpt_step *step = node_step(c->fs, c->looks ? c->other : c->node);
	struct call again = *c;

	if (step)
		(void)unstage(c->fs, step); // else it goes on as a step
	ckpt_step_unref(step);
	again.run = c->then;
	again.looks = 0;
	call_run(&again);
}

void unstage_then(struct call *c, bool other)
{
	struct call then = *c;

	then.step = then.other_step = NULL;
	then.then = c->run;
	then.run = run_unstaged;
	then.settled = true;
	then.looks = other;
	then.waits_for_clients = true; // for changes of the step that are under way
	call_detach(&then);
}
