#include "fs/folder.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "core/step/follow.h"
#include "core/step/store_folder.h"
#include "fs/tell.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

int folder_id_of(struct ckpt_fs *fs, struct node *dir, bool make, char *ret_id)
{
	struct ckpt_step *step;
	int fd, rc = 0;

	*ret_id = '\0';
	if (dir == node_root(fs))
		return 0;
	step = node_step(fs, dir);
	if (step || dir->kind != NODE_FILES || !S_ISDIR(dir->type)) {
		ckpt_step_unref(step);
		return -ENOTDIR;
	}
	if (node_use(dir))
		return -ENOMEM;
	ckpt_lock_take(&dir->use->lock);
	if (dir->use->folder_known && !make) { // who makes a step needs to know that the id is on disk
		memcpy(ret_id, dir->use->folder, sizeof(dir->use->folder));
		ckpt_lock_drop(&dir->use->lock);
		return *ret_id ? 0 : -ENOENT;
	}
	ckpt_lock_drop(&dir->use->lock);
	fd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	rc = ckpt_store_folder_id(fs->store, fd, make, ret_id);
	ckpt_sys.close(fd);
	if (rc && rc != -ENOENT)
		return rc;
	ckpt_lock_take(&dir->use->lock);
	// That it has none is not for keeping beside another mount, which may give it one, nor over an id that came meanwhile.
	if (*ret_id || (!*dir->use->folder && !fs->mount->readonly)) {
		dir->use->folder_known = true;
		memcpy(dir->use->folder, ret_id, sizeof(dir->use->folder));
	}
	ckpt_lock_drop(&dir->use->lock);
	return rc;
}

int folder_above(struct ckpt_fs *fs, const struct node *dir, char *ret_name, struct node **ret_above)
{
	int rc = -ESTALE;

	names_read_lock(fs);
	if (dir->names) {
		snprintf(ret_name, CKPT_NAME_MAX + 1, "%s", dir->names->text);
		*ret_above = dir->names->parent;
		node_ref(fs, *ret_above);
		rc = 0;
	}
	names_unlock(fs);
	return rc;
}

static bool is_staged(struct ckpt_step *step)
{
	return ckpt_step_state(step) == CKPT_STEP_STAGED;
}

bool folder_is_idle(struct ckpt_fs *fs, const char *id)
{
	struct ckpt_step **steps;
	bool idle = !ckpt_step_any_but(fs->store, id, is_staged);
	size_t count;

	if (!idle || ckpt_step_list(fs->store, id, 1u << CKPT_STEP_STAGED, &steps, &count))
		return false;
	for (size_t i = 0; i < count && idle; i++)
		idle = ckpt_stage_is_idle(steps[i]);
	ckpt_step_list_free(steps, count);
	return idle;
}

// With a reference; NULL: the kernel knows nothing of it.
static struct node *find_top_of_session(struct ckpt_fs *fs, const struct ckpt_step *step)
{
	struct statx stx;

	if (statx(fs->store->sessions_fd, step->session, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return NULL;
	return node_find(fs, SPACE_LIVE, ckpt_store_ino(&stx));
}

// Nobody is told: the kernel has forgotten what was in the folder, which it holds.
static void drop_name_of(struct ckpt_fs *fs, const struct ckpt_step *step)
{
	struct node *top = find_top_of_session(fs, step);

	if (!top)
		return;
	names_write_lock(fs);
	if (top->names)
		name_drop_locked(fs, top, top->names->parent, top->names->text);
	names_unlock(fs);
	node_unref(fs, top);
}

void folder_set_aside(struct ckpt_fs *fs, const char *id)
{
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(fs->store, id, 1u << CKPT_STEP_STAGED, &steps, &count))
		return; // they stay staged until the next open
	for (size_t i = 0; i < count; i++)
		if (!ckpt_stage_set_aside(steps[i]))
			drop_name_of(fs, steps[i]);
	ckpt_step_list_free(steps, count);
}

void folder_touch(struct ckpt_fs *fs, struct node *dir)
{
	CLEANUP_FD int fd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);

	if (fd >= 0)
		futimens(fd, (struct timespec[]){{0, UTIME_OMIT}, {0, UTIME_NOW}});
	// Attributes only: that takes no lock which a request could hold.
	(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, dir), -1, 0);
}

void folder_touch_above(struct ckpt_fs *fs, struct node *n)
{
	struct node *folder = NULL;

	names_read_lock(fs);
	while (n && n->names && !node_is_top(n))
		n = n->names->parent;
	if (n && n->names && node_is_top(n))
		folder = n->names->parent;
	if (folder)
		node_ref(fs, folder);
	names_unlock(fs);
	if (folder && folder->kind == NODE_FILES)
		folder_touch(fs, folder);
	node_unref(fs, folder);
}

void folder_forget(struct ckpt_fs *fs, struct node *top)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *folder = NULL;

	names_write_lock(fs);
	if (top->names) {
		folder = top->names->parent;
		node_ref(fs, folder);
		snprintf(name, sizeof(name), "%s", top->names->text);
		name_drop_locked(fs, top, folder, name);
	}
	names_unlock(fs);
	if (folder)
		tell_name(fs->store, fs->se, node_id(fs, folder), name);
	if (folder && folder->kind == NODE_FILES)
		folder_touch(fs, folder);
	node_unref(fs, folder);
}

// Its nodes are where they were before. A left one was staged, and has no number yet.
void folder_step_gone(void *fs, struct ckpt_step *step)
{
	bool ours = __atomic_load_n(&ckpt_staging_of(step)->ours, __ATOMIC_RELAXED);
	struct node *top = ckpt_step_state(step) == CKPT_STEP_LEFT
				   ? find_top_of_session(fs, step)
				   : node_find(fs, ours ? SPACE_LIVE : step->incarnation, step->born.dir_ino);

	if (top)
		folder_forget(fs, top);
	node_unref(fs, top);
}

void folder_step_listed(void *fs, struct ckpt_step *step)
{
	struct node *top = node_find(fs, SPACE_LIVE, step->born.dir_ino);

	if (top)
		folder_touch_above(fs, top);
	node_unref(fs, top);
}

int folder_find(struct ckpt_fs *fs, struct node *dir, const char *name, struct ckpt_step **ret_step)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = folder_id_of(fs, dir, false, id);

	*ret_step = NULL;
	if (rc == -ENOTDIR || rc == -ESTALE || rc == -EACCES)
		return -ENOENT; // it has none, is gone, or hides what it has
	if (rc)
		return rc;
	if (fs->mount->readonly)
		(void)ckpt_follow_refresh(fs->store); // what cannot be read is not there yet
	*ret_step = ckpt_step_find(fs->store, id, name);
	return *ret_step ? 0 : -ENOENT;
}

int folder_step(struct ckpt_fs *fs, struct node *dir, const char *name, struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	enum ckpt_step_state state;
	int rc = folder_find(fs, dir, name, &step);

	*ret_step = NULL;
	if (rc)
		return rc;
	step = ckpt_step_now(step);
	state = ckpt_step_state(step);
	if (state == CKPT_STEP_STAGED || state == CKPT_STEP_COMMITTING || state == CKPT_STEP_COMMITTED) {
		*ret_step = step;
		return 0;
	}
	ckpt_step_unref(step);
	return -ENOENT;
}
