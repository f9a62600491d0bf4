#include "fs/beside.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/removal.h"
#include "core/step/step.h"
#include "core/step/trash.h"
#include "fs/amend.h"
#include "fs/attr.h"
#include "fs/attr_node.h"
#include "fs/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

// No client can see it: at the root this name is the control directory's.
#define BESIDE_TOP CKPT_CONTROL_NAME
#define BESIDE_ID "%016" PRIx64
#define BESIDE_ID_LEN 16
#define BESIDE_PATH_MAX (sizeof(BESIDE_TOP) + 1 + BESIDE_ID_LEN + 1 + 16)

bool beside_is_name(const char *name)
{
	static const char *const forms[] = {
		".*.sw?",    "4913",          "*~",       ".#*", // vim, nano, emacs
		"#*#",       ".nfs*", // emacs; a server's name for what is removed while it is open
		".DS_Store", ".fuse_hidden*", ".Trash-*", ".ipynb_checkpoints",
	};

	// Each lookup asks, and nearly no name is one.
	if (!strchr(".#4", *name) && !strchr(name, '~'))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		if (!fnmatch(forms[i], name, 0))
			return true;
	return false;
}

// The step is told by when its first version was committed, which it keeps under every name, and the directory by its path.
static int path_beside(struct ckpt_step *step, const char *inside, char ret_path[BESIDE_PATH_MAX])
{
	int64_t first_ns;

	if (step && ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		step = step->base; // it is being changed
	if (!step)
		return -ENOENT;
	ckpt_lock_take(&step->lock);
	first_ns = step->born.first_committed_ns;
	ckpt_lock_drop(&step->lock);
	snprintf(ret_path, BESIDE_PATH_MAX, BESIDE_TOP "/" BESIDE_ID "-%016" PRIx64, (uint64_t)first_ns,
		 ckpt_checksum(inside, strlen(inside), 0));
	return 0;
}

static bool version_has(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m;
	uint32_t index;
	bool has;

	if (!step || ckpt_step_manifest(step, &m)) // it may be gone by now
		return false;
	has = !ckpt_manifest_lookup(m, path, &index);
	ckpt_manifest_unref(m);
	return has;
}

// The step has the name itself, or has removed it since its version: who makes it again then changes the step.
static bool is_own(struct ckpt_fs *fs, const struct place *p, const char *name)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];
	bool committed = place_is_committed(p);
	struct stat st;
	bool own;
	int fd;

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	own = p->step &&
	      ((committed && amend_is_name(p, name)) || version_has(committed ? p->step : p->step->base, path));
	if (own || committed)
		return own;
	fd = place_open(fs, p, O_PATH | O_DIRECTORY);
	own = fd >= 0 && !fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW);
	if (fd >= 0)
		ckpt_sys.close(fd);
	return own;
}

// The path of the directory that the name is in or is to be in, where that is not dir.
static int path_of_name(struct ckpt_fs *fs, struct node *dir, const char *name, char ret_path[BESIDE_PATH_MAX],
			struct ckpt_step **ret_step)
{
	struct place p;
	int rc = dir->kind == NODE_FILES && beside_is_name(name) ? place_of(fs, dir, &p) : -ENOENT;

	if (rc)
		return rc;
	rc = path_beside(p.step, p.path, ret_path);
	if (!rc && is_own(fs, &p, name))
		rc = -ENOENT;
	if (!rc && ret_step)
		*ret_step = ckpt_step_ref(p.step);
	place_done(&p);
	return rc;
}

// It stays as long as the mount: a few for each step in which somebody edited.
static struct node *node_at(struct ckpt_fs *fs, const char *path, struct node *dir)
{
	struct statx stx;
	struct node *n;

	if (statx(fs->store->tree_fd, path, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx) || !S_ISDIR(stx.stx_mode) ||
	    node_get(fs, SPACE_LIVE, ckpt_store_ino(&stx), S_IFDIR, node_root(fs), path, NULL, &n))
		return dir;
	__atomic_store_n(&n->beside, true, __ATOMIC_RELAXED);
	return n;
}

struct node *beside_find(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	char path[BESIDE_PATH_MAX];

	return path_of_name(fs, dir, name, path, NULL) ? dir : node_at(fs, path, dir);
}

// In a directory with setgid what is made has its group, and directories in it are such, too.
static void make_directory(struct ckpt_fs *fs, const char *path, struct node *dir)
{
	struct stat attr;
	double timeout;

	(void)ckpt_sys.mkdir(fs->store->tree_fd, BESIDE_TOP, 0700);
	if (ckpt_sys.mkdir(fs->store->tree_fd, path, 0700) || attr_of_node(fs, dir, &attr, &timeout) ||
	    !(attr.st_mode & S_ISGID))
		return;
	if (fchownat(fs->store->tree_fd, path, (uid_t)-1, attr.st_gid, AT_SYMLINK_NOFOLLOW) ||
	    fchmodat(fs->store->tree_fd, path, S_ISGID | 0700, 0))
		return; // who is not root, and not of that group
}

struct node *beside_make(struct ckpt_fs *fs, struct node *dir, const char *name, pid_t tid)
{
	char path[BESIDE_PATH_MAX];
	struct ckpt_step *step;

	if (fs->mount->readonly || fs->store->settings.amend == CKPT_AMEND_DENY ||
	    path_of_name(fs, dir, name, path, &step))
		return dir;
	ckpt_removal_dir_forget(step, tid); // an rm -r makes nothing
	ckpt_step_unref(step);
	make_directory(fs, path, dir);
	return node_at(fs, path, dir);
}

int beside_open(struct ckpt_fs *fs, struct node *dir)
{
	char path[BESIDE_PATH_MAX];
	struct place p;
	int rc = place_of(fs, dir, &p);

	if (rc)
		return rc;
	rc = path_beside(p.step, p.path, path);
	place_done(&p);
	return rc ? rc : ckpt_sys.open(fs->store->tree_fd, path, O_RDONLY | O_DIRECTORY, 0);
}

bool beside_is_own(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct place p;
	bool own;

	if (place_of(fs, dir, &p))
		return true;
	own = is_own(fs, &p, name);
	place_done(&p);
	return own;
}

// A file that one of the step hides counts for nothing: nobody could remove it.
static bool holds_any(struct ckpt_fs *fs, const struct place *p)
{
	char path[BESIDE_PATH_MAX];
	struct dirent *e;
	bool any = false;
	DIR *d;
	int fd;

	if (path_beside(p->step, p->path, path))
		return false;
	fd = ckpt_sys.open(fs->store->tree_fd, path, O_RDONLY | O_DIRECTORY, 0);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return false;
	while (!any && (e = readdir(d)))
		any = strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !is_own(fs, p, e->d_name);
	closedir(d);
	return any;
}

bool beside_any(struct ckpt_fs *fs, struct node *dir, const char *name, struct ckpt_step *step)
{
	struct place p, above;
	bool any;

	p.step = step ? ckpt_step_ref(step) : NULL;
	p.path = p.buf;
	*p.buf = '\0';
	if (!step) {
		if (place_of(fs, dir, &above))
			return false;
		p.step = above.step ? ckpt_step_ref(above.step) : NULL;
		if (snprintf(p.buf, sizeof(p.buf), "%s%s%s", above.path, *above.path ? "/" : "", name) >=
		    (int)sizeof(p.buf))
			ckpt_step_unref(TAKE_PTR(p.step));
		place_done(&above);
	}
	any = p.step && holds_any(fs, &p);
	place_done(&p);
	return any;
}

// --- At a mount -------------------------------------------------------------------------------------------------------

static bool is_of_any(const char *name, struct ckpt_step **steps, size_t count)
{
	char id[BESIDE_ID_LEN + 1];

	for (size_t i = 0; i < count; i++) {
		snprintf(id, sizeof(id), BESIDE_ID, (uint64_t)steps[i]->born.first_committed_ns);
		if (!strncmp(name, id, BESIDE_ID_LEN))
			return true;
	}
	return false;
}

// rmdir is refused where somebody's file is left; then it goes by the trash.
static void drop(struct ckpt_store *s, int dirfd, const char *name)
{
	char aside[64];
	uint64_t salt;

	if (!ckpt_sys.unlink(dirfd, name, AT_REMOVEDIR) || ckpt_sys.random(&salt, sizeof(salt)))
		return;
	snprintf(aside, sizeof(aside), CKPT_TRASH_COPY "%016" PRIx64 "-beside", salt);
	if (!ckpt_sys.rename(dirfd, name, s->trash_fd, aside, RENAME_NOREPLACE))
		ckpt_trash_remove_behind(*ckpt_trash_of(s), aside);
}

void beside_sweep(struct ckpt_store *s)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, BESIDE_TOP, O_RDONLY | O_DIRECTORY, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct ckpt_step **steps;
	struct dirent *e;
	size_t count;

	if (!d)
		return;
	fd = -1; // closedir() has it
	if (!ckpt_step_list_stored(s, &steps, &count)) {
		while ((e = readdir(d)))
			if (strlen(e->d_name) > BESIDE_ID_LEN && !is_of_any(e->d_name, steps, count))
				drop(s, dirfd(d), e->d_name);
		ckpt_step_list_free(steps, count);
	}
	closedir(d);
}
