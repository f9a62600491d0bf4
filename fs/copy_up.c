#include "fs/copy_up.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/share.h"
#include "core/step/store.h"
#include "fs/call.h"
#include "fs/node.h"
#include "fs/unwritten_list.h"

#include <fcntl.h>
#include <stdio.h>

static struct ckpt_lock one_at_a_time = CKPT_LOCK_INIT(CKPT_LOCK_COPY_UP);

bool copy_up_is_due(int fd)
{
	struct statx stx;

	return !statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) && S_ISREG(stx.stx_mode) && ckpt_share_is_marked(fd);
}

// The directory and the name of a node, or of what it is the twin of; both get a reference.
static int name_of(struct ckpt_fs *fs, struct node **n, struct node **ret_dir, char ret_name[CKPT_NAME_MAX + 1])
{
	int rc = -ESTALE;

	names_read_lock(fs);
	if ((*n)->twin && !(*n)->names)
		*n = (*n)->twin;
	if ((*n)->names) {
		*ret_dir = (*n)->names->parent;
		node_ref(fs, *ret_dir);
		node_ref(fs, *n);
		snprintf(ret_name, CKPT_NAME_MAX + 1, "%s", (*n)->names->text);
		rc = 0;
	}
	names_unlock(fs);
	return rc;
}

// Under the lock that renames take, too. Another who unlinks and creates meanwhile has the name. The file that has it then is open at fd.
static int place_copy(struct ckpt_fs *fs, struct node *n, struct node *dir, int dirfd, const char *name,
		      const struct ckpt_share_copy *copy, int fd, struct node **ret_twin)
{
	struct statx stx;
	int rc = statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : 0;

	if (rc)
		return rc;
	names_write_lock(fs);
	if (copy->of)
		rc = ckpt_share_copy_place(fs->store, copy, dirfd, name);
	if (!rc)
		*ret_twin = node_adopt_twin_locked(fs, n, ckpt_store_ino(&stx), dir, name);
	if (!rc && copy->of) {
		name_drop_locked(fs, n, dir, name);
		__atomic_store_n(&n->copied, true, __ATOMIC_RELAXED);
	}
	names_unlock(fs);
	return rc;
}

// What the kernel knows of a reopened step is from when it was committed, when names were for long. It takes the lock of the
// directory for it, which who waits for us may have.
static void run_forget_name(struct call *c)
{
	(void)fuse_lowlevel_notify_inval_entry(c->fs->se, node_id(c->fs, c->node), c->name, strlen(c->name));
	node_unref(c->fs, c->node);
}

static void make_kernel_look_again(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct call c = {.run = run_forget_name, .fs = fs, .node = dir, .waits_for_clients = true};

	snprintf(c.name, sizeof(c.name), "%s", name);
	node_ref(fs, dir);
	call_detach(&c);
}

static bool has_twin(struct ckpt_fs *fs, const struct node *n)
{
	struct node *twin = node_find(fs, SPACE_TWIN, n->number);

	node_unref(fs, twin);
	return twin;
}

static int copy_and_place(struct ckpt_fs *fs, struct node *n, bool empty, struct ckpt_step *step, struct node *dir,
			  int dirfd, const char *name)
{
	struct ckpt_share_copy copy;
	CLEANUP_FD int fd = -1;
	struct node *twin = NULL;
	int rc;

	// In a step the commit makes it durable.
	rc = ckpt_share_copy_make(fs->store, dirfd, name, empty, !step && !empty, &copy);
	if (rc || (!copy.of && !has_twin(fs, n)))
		return rc;
	fd = copy.of ? ckpt_sys.open(fs->store->trash_fd, copy.aside, O_RDONLY | O_NOFOLLOW, 0)
		     : ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0);
	rc = fd < 0 ? fd : place_copy(fs, n, dir, dirfd, name, &copy, fd, &twin);
	if (fd < 0 && copy.of)
		ckpt_sys.unlink(fs->store->trash_fd, copy.aside, 0);
	return rc ? rc : unwritten_hand_over(fs, n, twin, step, fd);
}

int copy_up(struct ckpt_fs *fs, struct node *n, bool empty, int *ret_fd)
{
	LOCK_SCOPE(&one_at_a_time);
	char name[CKPT_NAME_MAX + 1];
	struct ckpt_step *step;
	struct node *dir;
	int fd, dirfd, rc = name_of(fs, &n, &dir, name);

	if (rc)
		return rc;
	step = node_step(fs, dir);
	dirfd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	rc = dirfd < 0 ? dirfd : copy_and_place(fs, n, empty, step, dir, dirfd, name);
	if (!rc && step && step->base)
		make_kernel_look_again(fs, dir, name);
	if (!rc && ret_fd) {
		fd = ckpt_sys.open(dirfd, name, O_PATH | O_NOFOLLOW, 0);
		rc = fd < 0 ? -ESTALE : 0;
		*ret_fd = fd;
	}
	if (dirfd >= 0)
		ckpt_sys.close(dirfd);
	ckpt_step_unref(step);
	node_unref(fs, dir);
	node_unref(fs, n);
	return rc == -ENOENT ? -ESTALE : rc;
}
