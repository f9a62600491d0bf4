#include "fs/others.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "fs/call.h"
#include "fs/draft.h"
#include "fs/tell.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// --- Changed by others --------------------------------------------------------------------------------------------------

static struct node *node_at(struct ckpt_fs *fs, int dirfd, const char *name)
{
	struct statx stx;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH), CKPT_STATX_WANT, &stx))
		return NULL;
	return node_find(fs, SPACE_LIVE, ckpt_store_ino(&stx));
}

static struct node *node_of_folder(struct ckpt_fs *fs, int dirfd)
{
	struct stat top, st;

	if (fstat(fs->store->tree_fd, &top) || fstat(dirfd, &st))
		return NULL;
	if (top.st_ino != st.st_ino || top.st_dev != st.st_dev)
		return node_at(fs, dirfd, "");
	node_ref(fs, node_root(fs));
	return node_root(fs);
}

static bool is_written(struct node *n)
{
	struct node_use *use = n ? node_used(n) : NULL;

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	return use->write_opens;
}

bool others_is_written(void *arg, int dirfd, const char *name)
{
	struct node *n = node_at(arg, dirfd, name), *dir = node_of_folder(arg, dirfd);
	bool is = is_written(n) || (dir && draft_is_written(arg, dir, name));

	node_unref(arg, n);
	node_unref(arg, dir);
	return is;
}

// The nodes that a change is about; each a reference, or NULL: the kernel knows nothing of it.
struct changed {
	struct node *dir, *there, *from_dir, *moved;
	int kept; // what is there, for who has it open
};

static void look(struct ckpt_fs *fs, const struct ckpt_tree_change *c, struct changed *x)
{
	struct stat st;

	*x = (struct changed){.dir = node_of_folder(fs, c->dirfd), .kept = -1};
	if (c->expect)
		x->there = node_at(fs, c->dirfd, c->name);
	if (c->moves) {
		x->from_dir = node_of_folder(fs, c->from_dirfd);
		x->moved = node_at(fs, c->from_dirfd, c->from);
	}
	if (x->there && !c->aside && !fstatat(c->dirfd, c->name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	    st.st_nlink == 1)
		x->kept = ckpt_sys.open(c->dirfd, c->name, O_PATH, 0);
}

static int change_names(struct ckpt_fs *fs, const struct ckpt_tree_change *c, struct changed *x)
{
	int rc;

	names_write_lock(fs);
	rc = ckpt_tree_change(c);
	if (!rc && x->dir && x->there) {
		name_drop_locked(fs, x->there, x->dir, c->name);
		node_keep_locked(x->there, TAKE_FD(x->kept));
	}
	if (!rc && x->from_dir && x->moved)
		name_drop_locked(fs, x->moved, x->from_dir, c->from);
	names_unlock(fs);
	return rc;
}

static void tell_kernel(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	if (!dir || !fs->se)
		return;
	tell_name(fs->store, fs->se, node_id(fs, dir), name);
	(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, dir), 0, 0);
}

int others_change(void *arg, const struct ckpt_tree_change *c)
{
	struct ckpt_fs *fs = arg;
	struct changed x;
	int rc;

	call_plain_stop();
	look(fs, c, &x);
	rc = (x.dir && draft_is_written(fs, x.dir, c->name)) || (is_written(x.there) && !S_ISDIR(c->expect->st_mode)) ||
			     (is_written(x.moved) && !S_ISDIR(c->moves->st_mode))
		     ? -EBUSY
		     : change_names(fs, c, &x);
	call_plain_go();
	if (!rc) {
		tell_kernel(fs, x.dir, c->name);
		if (c->moves)
			tell_kernel(fs, x.from_dir, c->from);
	}
	if (x.kept >= 0)
		ckpt_sys.close(x.kept);
	node_unref(fs, x.dir);
	node_unref(fs, x.there);
	node_unref(fs, x.from_dir);
	node_unref(fs, x.moved);
	return rc;
}

// --- Changed here -------------------------------------------------------------------------------------------------------

static struct ckpt_tree *tree_of(struct ckpt_fs *fs)
{
	return ckpt_remote_tree(*ckpt_remote_of(fs->store));
}

void others_tell_at(struct ckpt_fs *fs, int dirfd, const char *name)
{
	ckpt_tree_take_name(tree_of(fs), dirfd, name);
}

void others_tell(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	CLEANUP_FD int dirfd = tree_of(fs) ? node_open(fs, dir, O_RDONLY | O_DIRECTORY) : -1;

	if (dirfd >= 0)
		others_tell_at(fs, dirfd, name);
}

void others_tell_node(struct ckpt_fs *fs, struct node *n)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *dir = NULL;
	struct ckpt_step *step;

	if (!tree_of(fs))
		return;
	step = node_step(fs, n);
	names_read_lock(fs);
	if (n->names && !step) {
		dir = n->names->parent;
		node_ref(fs, dir);
		snprintf(name, sizeof(name), "%s", n->names->text);
	}
	names_unlock(fs);
	if (dir)
		others_tell(fs, dir, name);
	node_unref(fs, dir);
	ckpt_step_unref(step);
}
