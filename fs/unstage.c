#include "fs/unstage.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/stage/convert.h"
#include "core/store/folders.h"
#include "fs/folder.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>

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
	int rc;

	names_write_lock(fs);
	rc = ckpt_unstage(step, dirfd, name, flags);
	if (!rc && top && top->step == step)
		ckpt_step_unref(__atomic_exchange_n(&top->step, NULL, __ATOMIC_RELAXED));
	names_unlock(fs);
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
