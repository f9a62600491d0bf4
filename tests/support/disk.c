// The model of disk.h. Three tables: inodes (pinned, so that the kernel gives no number twice), slots (a name in a
// directory), and the journal of steps. A step changes one slot or two, or one inode; durable_at is the sync that
// covered it. disk_state.c builds states from them.
#include "tests/support/hooks.h"
#include "tests/support/disk_journal.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>

static struct ckpt_disk *active;

// ---- Tables

static void *table_add(void **items, size_t *count, size_t *cap, size_t item_bytes)
{
	void *item;

	if (ckpt_grow(items, cap, *count + 1, item_bytes) < 0)
		abort();
	item = (char *)*items + (*count)++ * item_bytes;
	memset(item, 0, item_bytes);
	return item;
}

static void *bytes_copy(const void *data, size_t len)
{
	void *copy = malloc(MAX(len, (size_t)1));

	if (!copy)
		abort();
	if (len)
		memcpy(copy, data, len);
	return copy;
}

static int inode_find(const struct ckpt_disk *d, const struct stat *st)
{
	for (size_t i = 0; i < d->inodes_count; i++)
		if (d->inodes[i].ino == st->st_ino && d->inodes[i].dev == st->st_dev)
			return (int)i;
	return -1;
}

static int inode_of_fd(struct ckpt_disk *d, int fd)
{
	struct stat st;
	int inode = -1;

	if ((fd == AT_FDCWD ? stat(".", &st) : fstat(fd, &st)) == 0)
		inode = inode_find(d, &st);
	d->unknown += inode < 0;
	return inode;
}

static int slot_of(struct ckpt_disk *d, int dir, const char *name)
{
	struct slot *slot;

	for (size_t i = 0; i < d->slots_count; i++)
		if (d->slots[i].dir == dir && strcmp(d->slots[i].name, name) == 0)
			return (int)i;
	slot = table_add((void **)&d->slots, &d->slots_count, &d->slots_cap, sizeof(*slot));
	slot->dir = dir;
	slot->name = bytes_copy(name, strlen(name) + 1);
	slot->base = NONE;
	return (int)d->slots_count - 1;
}

static struct step *step_add(struct ckpt_disk *d, enum step_kind kind)
{
	struct step *step = table_add((void **)&d->steps, &d->steps_count, &d->steps_cap, sizeof(*step));

	*step = (struct step){
		.kind = kind, .inode = NONE, .slot = NONE, .to_slot = NONE, .to_inode = NONE, .durable_at = NEVER};
	return step;
}

// ---- What is there at the start, and what is met later

static void xattr_keep(struct inode *inode, const char *name, const void *value, size_t len)
{
	struct xattr *x =
		table_add((void **)&inode->xattrs, &inode->xattrs_count, &inode->xattrs_cap, sizeof(*inode->xattrs));

	x->name = bytes_copy(name, strlen(name) + 1);
	x->value = bytes_copy(value, len);
	x->len = len;
}

static void xattrs_read(struct inode *inode, int fd)
{
	char names[4096], value[65536];
	ssize_t n = flistxattr(fd, names, sizeof(names));

	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
		ssize_t len = fgetxattr(fd, names + at, value, sizeof(value));

		if (len >= 0 && strncmp(names + at, "user.", 5) == 0)
			xattr_keep(inode, names + at, value, (size_t)len);
	}
}

static void file_read(struct inode *inode, int fd, const struct stat *st)
{
	ssize_t n;

	inode->data = malloc((size_t)st->st_size + 1);
	if (!inode->data)
		abort();
	n = pread(fd, inode->data, (size_t)st->st_size, 0);
	inode->len = n < 0 ? 0 : (size_t)n;
}

// Registers the inode at a name. read: it was there before us, so its content is taken as it is.
static int inode_add(struct ckpt_disk *d, int dirfd, const char *name, bool read)
{
	CLEANUP_FD int fd = -1;
	struct inode *inode;
	struct stat st;
	char target[PATH_MAX];
	ssize_t n;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return NONE;
	inode = table_add((void **)&d->inodes, &d->inodes_count, &d->inodes_cap, sizeof(*inode));
	inode->ino = st.st_ino;
	inode->dev = st.st_dev;
	inode->mode = st.st_mode;
	inode->pin = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(dirfd, name, target, sizeof(target) - 1);
		inode->data = bytes_copy(target, n < 0 ? 0 : (size_t)n);
		inode->len = n < 0 ? 0 : (size_t)n;
	} else if (read && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
		fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0)
			xattrs_read(inode, fd);
		if (fd >= 0 && S_ISREG(st.st_mode))
			file_read(inode, fd, &st);
	}
	return (int)d->inodes_count - 1;
}

static int tree_read(struct ckpt_disk *d, int dir, const char *path)
{
	DIR *stream = opendir(path);
	struct dirent *e;
	int r = 0;

	if (!stream)
		return -errno;
	while (r == 0 && (e = readdir(stream))) {
		char below[PATH_MAX];
		struct stat st;
		int inode, slot;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(stream), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		inode = inode_find(d, &st);
		if (inode < 0)
			inode = inode_add(d, dirfd(stream), e->d_name, true);
		slot = slot_of(d, dir, e->d_name); // may move d->slots
		d->slots[slot].base = inode;
		if (S_ISDIR(st.st_mode)) {
			if (snprintf(below, sizeof(below), "%s/%s", path, e->d_name) >= (int)sizeof(below))
				r = -ENAMETOOLONG;
			else
				r = tree_read(d, inode, below);
		}
	}
	closedir(stream);
	return r;
}

// ---- Paths

// Where a path ends: its directory, open (own: by us), that directory's inode, and the last component.
struct spot {
	int dirfd, own, dir;
	const char *name;
	int inode; // there now, or NONE
};

static void spot_done(const struct spot *at)
{
	ckpt_fd_cleanup(&at->own);
}

static void spot_find(struct ckpt_disk *d, int dirfd, const char *path, struct spot *ret)
{
	const char *slash = strrchr(path, '/');
	struct stat st;

	*ret = (struct spot){dirfd, -1, NONE, path, NONE};
	if (slash) {
		CLEANUP_FREE char *parent = strndup(path, (size_t)(slash - path));

		ret->own = d->below.open(dirfd, parent ? parent : "", O_PATH | O_DIRECTORY, 0);
		ret->dirfd = ret->own;
		ret->name = slash + 1;
	}
	if (slash && ret->own < 0)
		return; // the call itself will say why
	ret->dir = inode_of_fd(d, ret->dirfd);
	if (fstatat(ret->dirfd, ret->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		ret->inode = inode_find(d, &st);
}

static bool spot_exists(const struct spot *at)
{
	struct stat st;

	return fstatat(at->dirfd, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

// The inode at the spot; one that was made behind us is taken as it is.
static int spot_inode(struct ckpt_disk *d, const struct spot *at)
{
	if (at->inode != NONE)
		return at->inode;
	d->unknown++;
	return inode_add(d, at->dirfd, at->name, true);
}

// A name appeared here. A new inode is registered.
static void record_name(struct ckpt_disk *d, const struct spot *at, int inode)
{
	struct step *step;

	if (at->dir == NONE)
		return;
	if (inode == NONE)
		inode = inode_add(d, at->dirfd, at->name, false);
	step = step_add(d, STEP_NAME);
	step->slot = slot_of(d, at->dir, at->name);
	step->inode = inode;
}

// ---- The calls. Each holds the lock over the call and its record: the journal is the order in which things happened.

static bool stopped(struct ckpt_disk *d)
{
	return d->steps_count >= d->stop;
}

static void record_truncate(struct ckpt_disk *d, int inode, off_t len)
{
	struct step *step;

	if (inode == NONE)
		return;
	step = step_add(d, STEP_TRUNCATE);
	step->inode = inode;
	step->offset = (size_t)len;
}

static int disk_open(int dirfd, const char *path, int flags, mode_t mode)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	CLEANUP(spot_done) struct spot at = {.own = -1};
	bool existed;
	int fd;

	if (!(flags & (O_CREAT | O_TRUNC)))
		return d->below.open(dirfd, path, flags, mode);
	spot_find(d, dirfd, path, &at);
	existed = spot_exists(&at);
	if (stopped(d) && (!existed || (flags & O_TRUNC)))
		return -EIO;
	fd = d->below.open(dirfd, path, flags, mode);
	if (fd < 0)
		return fd;
	if (!existed)
		record_name(d, &at, NONE);
	else if (flags & O_TRUNC)
		record_truncate(d, inode_of_fd(d, fd), 0);
	return fd;
}

static ssize_t disk_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	int inode = inode_of_fd(d, fd);
	struct step *step;
	ssize_t n;

	if (stopped(d))
		return -EIO;
	n = d->below.pwrite(fd, buf, len, offset);
	if (n <= 0 || inode == NONE)
		return n;
	step = step_add(d, STEP_WRITE);
	step->inode = inode;
	step->offset = (size_t)offset;
	step->data = bytes_copy(buf, (size_t)n);
	step->len = (size_t)n;
	return n;
}

static int disk_ftruncate(int fd, off_t len)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	int r = stopped(d) ? -EIO : d->below.ftruncate(fd, len);

	if (r == 0)
		record_truncate(d, inode_of_fd(d, fd), len);
	return r;
}

static bool step_is_name(const struct step *step)
{
	return step->slot != NONE;
}

// Whether the fsync (data_only: fdatasync) of an inode covers a step.
static bool sync_covers(const struct ckpt_disk *d, const struct step *step, int inode, bool data_only)
{
	if (step_is_name(step))
		return d->slots[step->to_slot != NONE ? step->to_slot : step->slot].dir == inode;
	return step->inode == inode && !(data_only && step->kind == STEP_XATTR);
}

static void record_sync(struct ckpt_disk *d, int inode, bool all, bool data_only)
{
	size_t at = d->steps_count;
	struct step *step = step_add(d, STEP_SYNC);

	step->inode = inode;
	for (size_t i = 0; i < at; i++)
		if (d->steps[i].durable_at == NEVER && (all || sync_covers(d, &d->steps[i], inode, data_only)))
			d->steps[i].durable_at = at;
}

static int disk_sync(int fd, int (*call)(int fd), bool all, bool data_only)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	int inode = inode_of_fd(d, fd);
	int r = stopped(d) ? -EIO : call(fd);

	if (r == 0 && inode != NONE)
		record_sync(d, inode, all, data_only);
	return r;
}

static int disk_fsync(int fd)
{
	return disk_sync(fd, active->below.fsync, false, false);
}

static int disk_fdatasync(int fd)
{
	return disk_sync(fd, active->below.fdatasync, false, true);
}

static int disk_syncfs(int fd)
{
	return disk_sync(fd, active->below.syncfs, true, false);
}

static int disk_mkdir(int dirfd, const char *name, mode_t mode)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	CLEANUP(spot_done) struct spot at = {.own = -1};
	int r;

	spot_find(d, dirfd, name, &at);
	if (stopped(d))
		return spot_exists(&at) ? -EEXIST : -EIO;
	r = d->below.mkdir(dirfd, name, mode);
	if (r == 0)
		record_name(d, &at, NONE);
	return r;
}

static int disk_symlink(const char *target, int dirfd, const char *name)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	CLEANUP(spot_done) struct spot at = {.own = -1};
	int r;

	spot_find(d, dirfd, name, &at);
	r = stopped(d) ? -EIO : d->below.symlink(target, dirfd, name);
	if (r == 0)
		record_name(d, &at, NONE);
	return r;
}

static int disk_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	CLEANUP(spot_done) struct spot old = {.own = -1}, new = {.own = -1};
	int r;

	spot_find(d, from_dirfd, from, &old);
	spot_find(d, to_dirfd, to, &new);
	r = stopped(d) ? -EIO : d->below.link(from_dirfd, from, to_dirfd, to);
	if (r == 0)
		record_name(d, &new, spot_inode(d, &old));
	return r;
}

static void record_unlink(struct ckpt_disk *d, const struct spot *at)
{
	struct step *step = step_add(d, STEP_UNLINK);

	step->slot = slot_of(d, at->dir, at->name);
	step->inode = at->inode;
}

static void record_rename(struct ckpt_disk *d, const struct spot *old, const struct spot *new, unsigned flags)
{
	struct step *step;

	// Into or out of what we see: as if it appeared, or went.
	if (old->dir == NONE || new->dir == NONE) {
		if (old->dir != NONE)
			record_unlink(d, old);
		record_name(d, new, old->inode);
		return;
	}
	step = step_add(d, flags & RENAME_EXCHANGE ? STEP_EXCHANGE : STEP_RENAME);
	step->inode = old->inode;
	step->to_inode = new->inode;
	step->slot = slot_of(d, old->dir, old->name);
	step->to_slot = slot_of(d, new->dir, new->name);
}

static int disk_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	CLEANUP(spot_done) struct spot old = {.own = -1}, new = {.own = -1};
	int r;

	spot_find(d, from_dirfd, from, &old);
	spot_find(d, to_dirfd, to, &new);
	if (stopped(d))
		return -EIO;
	if (old.inode == NONE && spot_exists(&old))
		old.inode = spot_inode(d, &old);
	r = d->below.rename(from_dirfd, from, to_dirfd, to, flags);
	if (r < 0 || (old.inode != NONE && old.inode == new.inode)) // two names of one file: nothing happens
		return r;
	record_rename(d, &old, &new, flags);
	return r;
}

static int disk_unlink(int dirfd, const char *name, int flags)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	CLEANUP(spot_done) struct spot at = {.own = -1};
	int r;

	spot_find(d, dirfd, name, &at);
	r = stopped(d) ? -EIO : d->below.unlink(dirfd, name, flags);
	if (r < 0 || at.dir == NONE)
		return r;
	record_unlink(d, &at);
	return 0;
}

static int disk_fsetxattr(int fd, const char *name, const void *value, size_t len, int flags)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	int inode = inode_of_fd(d, fd);
	struct step *step;
	int r = stopped(d) ? -EIO : d->below.fsetxattr(fd, name, value, len, flags);

	if (r < 0 || inode == NONE)
		return r;
	step = step_add(d, STEP_XATTR);
	step->inode = inode;
	step->name = bytes_copy(name, strlen(name) + 1);
	step->data = bytes_copy(value, len);
	step->len = len;
	return 0;
}

static int disk_clone(int from_fd, int to_fd)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	int inode = inode_of_fd(d, to_fd);
	struct inode content = {0};
	struct step *step;
	struct stat st;
	int r = stopped(d) ? -EIO : d->below.clone(from_fd, to_fd);

	if (r < 0 || inode == NONE || fstat(from_fd, &st) < 0)
		return r;
	file_read(&content, from_fd, &st);
	step = step_add(d, STEP_WRITE);
	step->inode = inode;
	step->data = content.data;
	step->len = content.len;
	return 0;
}

static int disk_copy_range(int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t len)
{
	struct ckpt_disk *d = active;
	LOCK_SCOPE(&d->lock);
	int inode = inode_of_fd(d, to_fd);
	CLEANUP_FREE char *bytes = malloc(len);
	struct step *step;
	int r = stopped(d) ? -EIO : d->below.copy_range(from_fd, from, to_fd, to, len);

	if (r < 0 || inode == NONE || pread(from_fd, bytes, len, (off_t)from) != (ssize_t)len)
		return r;
	step = step_add(d, STEP_WRITE);
	step->inode = inode;
	step->offset = (size_t)to;
	step->data = bytes_copy(bytes, len);
	step->len = len;
	return 0;
}

// ---- Begin and end

static void disk_install(struct ckpt_disk *d)
{
	d->below = ckpt_hooks;
	active = d;
	ckpt_hook_set(open, disk_open);
	ckpt_hook_set(pwrite, disk_pwrite);
	ckpt_hook_set(ftruncate, disk_ftruncate);
	ckpt_hook_set(fsync, disk_fsync);
	ckpt_hook_set(fdatasync, disk_fdatasync);
	ckpt_hook_set(syncfs, disk_syncfs);
	ckpt_hook_set(mkdir, disk_mkdir);
	ckpt_hook_set(symlink, disk_symlink);
	ckpt_hook_set(link, disk_link);
	ckpt_hook_set(rename, disk_rename);
	ckpt_hook_set(unlink, disk_unlink);
	ckpt_hook_set(fsetxattr, disk_fsetxattr);
	ckpt_hook_set(clone, disk_clone);
	ckpt_hook_set(copy_range, disk_copy_range);
}

int ckpt_disk_begin(const char *dir, struct ckpt_disk **ret_disk)
{
	struct ckpt_disk *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	ckpt_lock_init(&d->lock, CKPT_LOCK_LEAF);
	d->stop = NEVER;
	r = inode_add(d, AT_FDCWD, dir, true) == ROOT ? tree_read(d, ROOT, dir) : -ENOENT;
	if (r < 0) {
		ckpt_disk_free(d);
		return r;
	}
	disk_install(d);
	*ret_disk = d;
	return 0;
}

void ckpt_disk_end(struct ckpt_disk *d)
{
	ckpt_hooks_restore(&d->below);
	active = NULL;
}

void ckpt_disk_free(struct ckpt_disk *d)
{
	if (!d)
		return;
	disk_forget(d);
	for (size_t i = 0; i < d->inodes_count; i++) {
		struct inode *inode = &d->inodes[i];

		ckpt_fd_cleanup(&inode->pin);
		free(inode->data);
		for (size_t x = 0; x < inode->xattrs_count; x++) {
			free(inode->xattrs[x].name);
			free(inode->xattrs[x].value);
		}
		free(inode->xattrs);
	}
	for (size_t i = 0; i < d->slots_count; i++)
		free(d->slots[i].name);
	for (size_t i = 0; i < d->steps_count; i++) {
		free(d->steps[i].name);
		free(d->steps[i].data);
	}
	free(d->inodes);
	free(d->slots);
	free(d->steps);
	ckpt_lock_done(&d->lock);
	free(d);
}

size_t ckpt_disk_count(struct ckpt_disk *d)
{
	LOCK_SCOPE(&d->lock);
	return d->steps_count;
}

void ckpt_disk_stop(struct ckpt_disk *d, size_t point)
{
	LOCK_SCOPE(&d->lock);
	d->stop = point;
}

size_t ckpt_disk_unknown(struct ckpt_disk *d)
{
	LOCK_SCOPE(&d->lock);
	return d->unknown;
}
