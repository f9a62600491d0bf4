// A directory as a store of objects.
//
// An object is a file log/.., m/.. or packs/.. with the object's key as its path. States of a put, and the
// function that goes on from each:
//
//   (nothing)  --stage_write-->   staged: written and fsynced as tmp/<random>, known to nobody; on a full disk, for an act
//                                 that frees room, a spare file (spare.h) becomes that file
//   staged     --publish_link-->  published: linked into a folder that exists; or
//   staged     --publish_folder--> published: the folder, prepared as tmp/<random>.d and fsynced, renamed into place
//   published  --sync_folders-->  durable: acknowledged. An error here is "outcome unknown": nothing is written again.
//
// Invariants:
//  1. A file at a key is complete and its data is on the disk before it appears there; it never changes afterwards.
//  2. Only link and rename with RENAME_NOREPLACE publish a put, so that one of many wins.
//  3. An acknowledgement follows the fsync of every folder on the object's way that this store may have just made. Who
//     loses a put syncs too: the winner may have died before it did.
//  4. Files in tmp/ are unlinked by their maker, or by an open that holds the only presence lock.
//  5. Nothing here follows a symlink (core/base/sys.h) or reads what is not a regular file.
#include "backends/backends.h"

#include "backends/spare.h"
#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#define LOCK_NAME "lock"
#define LOCK_AT_PRESENCE 1 // byte of tmp/lock held shared by every writable open, exclusively by a sweep
#define PUBLISH_TRIES_MAX 64
#define STAGE_NAME_MAX 40
#define DIRENTS_BYTES (64u << 10)

static const char *const folders[] = {"log", "m", "packs", "parts", "probe", "snap"};

struct local {
	struct ckpt_objects base;
	int root;
	int tmp;             // -1 unless writable
	int presence;        // holds the presence lock; -1 unless writable
	bool spares_missing; // some were used, or there was no room for them; atomic
};

// A key taken apart: "parts/1000/1" is top "parts", folder "1000", parent "parts/1000", leaf "1". Of the identity, which is in no folder,
// the first three are the store's directory.
struct place {
	char parent[CKPT_OBJECT_KEY_MAX + 1];
	char top[8];
	const char *folder; // in parent; NULL when the key has two components
	const char *leaf;   // in the key
};

struct stage {
	char name[STAGE_NAME_MAX];
	struct ckpt_object object;
};

static struct local *local_of(struct ckpt_objects *o)
{
	return (struct local *)o;
}

// ---- Places and errors

static void place_of(const char *key, struct place *ret)
{
	const char *slash = strchr(key, '/'), *leaf = slash ? strrchr(key, '/') + 1 : key;

	if (!slash) { // the identity
		*ret = (struct place){.parent = ".", .top = ".", .leaf = key};
		return;
	}
	memcpy(ret->parent, key, (size_t)(leaf - 1 - key));
	ret->parent[leaf - 1 - key] = '\0';
	assert((size_t)(slash - key) < sizeof(ret->top));
	memcpy(ret->top, key, (size_t)(slash - key));
	ret->top[slash - key] = '\0';
	ret->folder = slash + 1 == leaf ? NULL : ret->parent + (slash - key) + 1;
	ret->leaf = leaf;
}

// What a failed system call means to a caller of a store. Planted things (ELOOP, ENXIO ..) end up as -EIO at the door.
static int read_error(int r)
{
	return r == -ENOTDIR ? -ENOENT : r;
}

static int write_error(int r)
{
	return r == -ENOENT || r == -ENOTDIR ? -EIO : r;
}

static int folder_open(const struct local *l, const char *path)
{
	return ckpt_sys.open(l->root, path, O_RDONLY | O_DIRECTORY, 0);
}

// ---- Locks

static int lock_open(const struct local *l)
{
	return ckpt_sys.open(l->tmp, LOCK_NAME, O_RDWR | O_CREAT | O_NONBLOCK, 0600);
}

static int lock_set(int fd, short type, off_t byte, bool wait)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int r;

	do
		r = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

// ---- Reading

static int object_open(const struct local *l, const char *key, int *ret_fd, struct stat *ret_st)
{
	CLEANUP_FD int fd = -1;

	// O_NONBLOCK: a planted FIFO must not hold us.
	fd = ckpt_sys.open(l->root, key, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return read_error(fd);
	if (fstat(fd, ret_st) < 0)
		return -errno;
	if (S_ISDIR(ret_st->st_mode))
		return -ENOENT;
	if (!S_ISREG(ret_st->st_mode))
		return -EIO;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int64_t mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static void object_of_stat(const struct stat *st, struct ckpt_object *ret_object)
{
	ret_object->bytes = (uint64_t)st->st_size;
	ret_object->mtime_ns = mtime_ns(st);
	// A file never changes: its inode and time tell it from another one that has the key.
	snprintf(ret_object->etag, CKPT_ETAG_MAX, "i%llx-%llx-%llx", (unsigned long long)st->st_ino,
		 (unsigned long long)st->st_size, (unsigned long long)mtime_ns(st));
}

static int local_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	CLEANUP_FD int fd = -1;
	struct stat st;
	ssize_t n = 0;
	int r = object_open(local_of(o), key, &fd, &st);

	if (r < 0)
		return r;
	if (offset < (uint64_t)st.st_size)
		n = ckpt_sys.pread(fd, buf, (size_t)MIN((uint64_t)len, (uint64_t)st.st_size - offset), (off_t)offset);
	if (n < 0)
		return (int)n;
	if (ret_object)
		object_of_stat(&st, ret_object);
	*ret_len = (size_t)n;
	return 0;
}

static int local_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	CLEANUP_FD int fd = -1;
	struct stat st;
	int r = object_open(local_of(o), key, &fd, &st);

	if (r == 0)
		object_of_stat(&st, ret_object);
	return r;
}

// ---- Writing

static int stage_fill(int fd, const void *data, size_t len, bool spare, struct ckpt_object *ret_object)
{
	struct stat st;
	ssize_t n = ckpt_sys.pwrite(fd, data, len, 0);
	int r;

	if (n < 0)
		return (int)n;
	r = spare ? ckpt_sys.ftruncate(fd, (off_t)len) : 0;
	if (r < 0)
		return r;
	r = ckpt_sys.fsync(fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	object_of_stat(&st, ret_object);
	return 0;
}

static int stage_write(const struct local *l, const void *data, size_t len, bool spare, struct stage *ret_stage)
{
	CLEANUP_FD int fd = -1;
	uint8_t random[16];
	int r = ckpt_sys.random(random, sizeof(random));

	if (r < 0)
		return r;
	ckpt_hex(random, sizeof(random), ret_stage->name);
	fd = spare ? ckpt_spare_take(l->tmp, ret_stage->name) : -ENOSPC;
	if (fd == -ENOSPC) // of the reserve: the last one was dropped for this
		fd = ckpt_sys.open(l->tmp, ret_stage->name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return write_error(fd);
	r = stage_fill(fd, data, len, spare, &ret_stage->object);
	if (r < 0)
		ckpt_sys.unlink(l->tmp, ret_stage->name, 0);
	return r;
}

// Makes the names of the folder, and of itself in its own, durable. Any error means that nobody knows.
static int sync_folders(const struct local *l, const struct place *at, int parent_fd)
{
	CLEANUP_FD int top_fd = -1;

	if (ckpt_sys.fsync(parent_fd) < 0)
		return -EIO;
	if (!at->folder)
		return 0;
	top_fd = folder_open(l, at->top);
	return top_fd < 0 || ckpt_sys.fsync(top_fd) < 0 ? -EIO : 0;
}

// 0; -EEXIST lost; -ENOENT the folder went away meanwhile.
static int publish_link(const struct local *l, const struct place *at, int parent_fd, const struct stage *stage)
{
	int r = ckpt_sys.link(l->tmp, stage->name, parent_fd, at->leaf);

	if (r < 0 && r != -EEXIST)
		return r;
	return sync_folders(l, at, parent_fd) < 0 ? -EIO : r;
}

// The folder that is to appear, holding the staged file under its name.
static int prepare_folder(const struct local *l, const struct place *at, const struct stage *stage, const char *name)
{
	CLEANUP_FD int fd = -1;
	int r = ckpt_sys.mkdir(l->tmp, name, 0700);

	if (r < 0)
		return r;
	fd = ckpt_sys.open(l->tmp, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	r = ckpt_sys.link(l->tmp, stage->name, fd, at->leaf);
	return r < 0 ? r : ckpt_sys.fsync(fd);
}

static void prepare_undo(const struct local *l, const struct place *at, const char *name)
{
	CLEANUP_FD int fd = ckpt_sys.open(l->tmp, name, O_RDONLY | O_DIRECTORY, 0);

	if (fd >= 0)
		ckpt_sys.unlink(fd, at->leaf, 0);
	ckpt_sys.unlink(l->tmp, name, AT_REMOVEDIR);
}

// 0; -EAGAIN the folder appeared meanwhile.
static int publish_folder(const struct local *l, const struct place *at, const struct stage *stage)
{
	CLEANUP_FD int top_fd = folder_open(l, at->top);
	char name[STAGE_NAME_MAX + 2];
	int r;

	if (top_fd < 0)
		return write_error(top_fd);
	snprintf(name, sizeof(name), "%s.d", stage->name);
	r = prepare_folder(l, at, stage, name);
	if (r == 0)
		r = ckpt_sys.rename(l->tmp, name, top_fd, at->folder, RENAME_NOREPLACE);
	if (r < 0) {
		prepare_undo(l, at, name);
		return r == -EEXIST ? -EAGAIN : write_error(r);
	}
	return ckpt_sys.fsync(top_fd) < 0 ? -EIO : 0;
}

static int publish(const struct local *l, const struct place *at, const struct stage *stage)
{
	// The folder may come and go while we look: other puts make it, removes of its last object take it away.
	for (int tries = 0; tries < PUBLISH_TRIES_MAX; tries++) {
		CLEANUP_FD int parent_fd = folder_open(l, at->parent);
		int r;

		if (parent_fd >= 0)
			r = publish_link(l, at, parent_fd, stage);
		else if (parent_fd == -ENOENT && at->folder)
			r = publish_folder(l, at, stage);
		else
			return write_error(parent_fd);
		if (r != -ENOENT && r != -EAGAIN)
			return r;
	}
	return -EIO;
}

static int put_once(const struct local *l, const char *key, const void *data, size_t len, bool spare,
		    struct ckpt_object *ret_object)
{
	struct place at;
	struct stage stage;
	int r;

	place_of(key, &at);
	r = stage_write(l, data, len, spare, &stage);
	if (r < 0)
		return r;
	r = publish(l, &at, &stage);
	ckpt_sys.unlink(l->tmp, stage.name, 0);
	if (r == 0)
		*ret_object = stage.object;
	return r;
}

// A spare file takes the bytes. What else is missing, of blocks or for the name, is given back by others, one with each try.
static int put_from_spares(struct local *l, const char *key, const void *data, size_t len,
			   struct ckpt_object *ret_object)
{
	int r;

	do
		r = put_once(l, key, data, len, true, ret_object);
	while (ckpt_is_full(r) && ckpt_spare_drop(l->tmp));
	__atomic_store_n(&l->spares_missing, true, __ATOMIC_RELEASE);
	return r;
}

static void spares_refill(struct local *l)
{
	// Before the look: another thread may use some meanwhile.
	if (__atomic_load_n(&l->spares_missing, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&l->spares_missing, false, __ATOMIC_ACQ_REL) && !ckpt_spare_fill(l->tmp))
		__atomic_store_n(&l->spares_missing, true, __ATOMIC_RELEASE);
}

static int local_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	struct local *l = local_of(o);
	int r;

	if (l->tmp < 0)
		return -EROFS;
	r = put_once(l, key, data, len, false, ret_object);
	if (frees && ckpt_is_full(r))
		r = put_from_spares(l, key, data, len, ret_object);
	spares_refill(l);
	return r;
}

static bool local_yield(struct ckpt_objects *o)
{
	struct local *l = local_of(o);
	bool yielded = l->tmp >= 0 && ckpt_spare_drop(l->tmp);

	__atomic_store_n(&l->spares_missing, true, __ATOMIC_RELEASE);
	return yielded;
}

static void local_refill(struct ckpt_objects *o)
{
	spares_refill(local_of(o));
}

// Takes an empty folder away. A put into it at this moment fills it first, or finds it gone and makes it anew. Nothing
// waits for it: a folder that is not empty, or comes back empty after a power cut, is no object.
static void folder_trim(const struct local *l, const struct place *at)
{
	CLEANUP_FD int top_fd = folder_open(l, at->top);

	if (top_fd >= 0)
		ckpt_sys.unlink(top_fd, at->folder, AT_REMOVEDIR);
}

// A remove that went before may have failed in its fsync: what is gone is durably so once this answers -ENOENT.
static int sync_missing(const struct local *l, const struct place *at)
{
	CLEANUP_FD int fd = folder_open(l, at->parent);

	if (fd == -ENOENT && at->folder)
		fd = folder_open(l, at->top);
	return fd < 0 ? read_error(fd) : ckpt_sys.fsync(fd) < 0 ? -EIO : -ENOENT;
}

static int local_remove(struct ckpt_objects *o, const char *key)
{
	struct local *l = local_of(o);
	CLEANUP_FD int parent_fd = -1;
	struct ckpt_object object;
	struct place at;
	int r;

	if (l->tmp < 0)
		return -EROFS;
	place_of(key, &at);
	r = local_head(o, key, &object); // a planted thing stays
	if (r == 0) {
		parent_fd = folder_open(l, at.parent);
		r = parent_fd < 0 ? read_error(parent_fd) : ckpt_sys.unlink(parent_fd, at.leaf, 0);
	}
	if (r == -ENOENT) // also: another remove was first
		return sync_missing(l, &at);
	if (r < 0)
		return r;
	if (ckpt_sys.fsync(parent_fd) < 0)
		return -EIO;
	if (at.folder)
		folder_trim(l, &at);
	return 0;
}

static int local_sync(struct ckpt_objects *o, const char *key)
{
	const struct local *l = local_of(o);
	CLEANUP_FD int parent_fd = -1;
	struct place at;

	place_of(key, &at);
	parent_fd = folder_open(l, at.parent);
	if (parent_fd == -ENOENT)
		return sync_missing(l, &at);
	return parent_fd < 0 ? read_error(parent_fd) : sync_folders(l, &at, parent_fd);
}

// ---- Listing

struct item {
	char *key;
	struct ckpt_object object;
};

// Collected whole, then sorted: '/' sorts after '-', so that walking folder by folder is not the order of the keys.
struct listing {
	const struct local *l;
	const char *prefix;
	const char *after;
	struct item *items;
	size_t count, cap;
	char path[CKPT_OBJECT_KEY_MAX + CKPT_NAME_MAX + 2]; // of the folder being read, ends in '/'
	char *dirents[2];                                   // one buffer per level
};

static void listing_done(struct listing *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->items[i].key);
	free(list->items);
	free(list->dirents[0]);
	free(list->dirents[1]);
}

// Whether a folder, path ending in '/', can hold a key that is asked for.
static bool folder_wanted(const struct listing *list)
{
	size_t len = strlen(list->path), prefix_len = strlen(list->prefix);

	return memcmp(list->path, list->prefix, MIN(len, prefix_len)) == 0 &&
	       strncmp(list->path, list->after, len) >= 0;
}

static int item_add(struct listing *list, const struct stat *st)
{
	struct item *item;

	if (strncmp(list->path, list->prefix, strlen(list->prefix)) != 0 || strcmp(list->path, list->after) <= 0 ||
	    ckpt_objects_key_check(list->path) < 0)
		return 0;
	if (ckpt_grow((void **)&list->items, &list->cap, list->count + 1, sizeof(*list->items)) < 0)
		return -ENOMEM;
	item = &list->items[list->count];
	memset(item, 0, sizeof(*item));
	item->key = strdup(list->path);
	if (!item->key)
		return -ENOMEM;
	list->count++;
	if (S_ISREG(st->st_mode))
		object_of_stat(st, &item->object);
	return 0;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int list_folder(struct listing *list, int level);

// One name in the folder list->path: a folder to enter, an object, or a planted thing, which is shown as an object.
static int list_entry(struct listing *list, int fd, const struct dirent64 *e, int level)
{
	size_t len = strlen(list->path), name_len = strlen(e->d_name);
	struct stat st = {.st_mode = S_IFDIR};
	int r = 0;

	if (is_dots(e->d_name))
		return 0;
	if (name_len > CKPT_NAME_MAX || len + name_len + 1 > CKPT_OBJECT_KEY_MAX)
		return 0; // no key of ours
	memcpy(list->path + len, e->d_name, name_len + 1);
	if (e->d_type != DT_DIR && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = errno == ENOENT ? 0 : -errno; // removed meanwhile
	else if (!S_ISDIR(st.st_mode))
		r = item_add(list, &st);
	else if (level == 0) {
		memcpy(list->path + len + name_len, "/", 2);
		if (folder_wanted(list))
			r = list_folder(list, 1);
	}
	list->path[len] = '\0';
	return r;
}

static int list_folder(struct listing *list, int level)
{
	CLEANUP_FD int fd = ckpt_sys.open(list->l->root, list->path, O_RDONLY | O_DIRECTORY, 0);
	char *buf = list->dirents[level];

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd; // removed meanwhile, or a store that nobody opened for writing yet
	for (;;) {
		ssize_t n = getdents64(fd, buf, DIRENTS_BYTES);
		const struct dirent64 *e;

		if (n < 0)
			return errno == ENOENT ? 0 : -errno;
		if (n == 0)
			return 0;
		for (ssize_t at = 0; at < n; at += e->d_reclen) {
			int r;

			e = (const struct dirent64 *)(buf + at);
			r = list_entry(list, fd, e, level);
			if (r < 0)
				return r;
		}
	}
}

static int list_identity(struct listing *list)
{
	struct stat st;

	strcpy(list->path, CKPT_OBJECT_IDENTITY);
	if (fstatat(list->l->root, list->path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return item_add(list, &st);
}

static int item_compare(const void *a, const void *b)
{
	return strcmp(((const struct item *)a)->key, ((const struct item *)b)->key);
}

static int local_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	CLEANUP(listing_done) struct listing list = {.l = local_of(o), .prefix = prefix, .after = after};
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(list.dirents); i++) {
		list.dirents[i] = malloc(DIRENTS_BYTES);
		if (!list.dirents[i])
			return -ENOMEM;
	}
	for (size_t i = 0; i < ARRAY_LEN(folders) && r == 0; i++) {
		snprintf(list.path, sizeof(list.path), "%s/", folders[i]);
		if (folder_wanted(&list))
			r = list_folder(&list, 0);
	}
	if (r == 0)
		r = list_identity(&list);
	if (r < 0)
		return r;
	if (list.count)
		qsort(list.items, list.count, sizeof(*list.items), item_compare);
	for (size_t i = 0; i < list.count && r == 0; i++) {
		// A folder moved by hand during the walk can show a name twice.
		if (i > 0 && strcmp(list.items[i].key, list.items[i - 1].key) == 0)
			continue;
		r = fn(arg, list.items[i].key, &list.items[i].object);
	}
	return r;
}

// ---- Opening and closing

static void local_close(struct ckpt_objects *o)
{
	struct local *l = local_of(o);

	ckpt_fd_cleanup(&l->presence);
	ckpt_fd_cleanup(&l->tmp);
	ckpt_fd_cleanup(&l->root);
	free(l);
}

static void local_free(struct local **l)
{
	if (*l)
		local_close(&(*l)->base);
}

static void sweep_folder(const struct local *l, const char *name);

// What a put that died left in tmp/: files, and folders with one file. Whatever else is there stays.
static void sweep_entry(const struct local *l, int dirfd, const char *name)
{
	if (is_dots(name) || (dirfd == l->tmp && (strcmp(name, LOCK_NAME) == 0 || ckpt_spare_is(name))))
		return;
	if (ckpt_sys.unlink(dirfd, name, 0) < 0 && dirfd == l->tmp)
		sweep_folder(l, name);
}

static void sweep_folder(const struct local *l, const char *name)
{
	int fd = ckpt_sys.open(l->tmp, name, O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool top = strcmp(name, ".") == 0;
	struct dirent *e;

	if (!dir) {
		ckpt_fd_cleanup(&fd);
		return;
	}
	while ((e = readdir(dir)))
		sweep_entry(l, top ? l->tmp : fd, e->d_name);
	closedir(dir);
	if (!top)
		ckpt_sys.unlink(l->tmp, name, AT_REMOVEDIR);
}

// Announces us in tmp/; sweeps it first when nobody else is there.
static int presence_open(struct local *l)
{
	CLEANUP_FD int fd = lock_open(l);
	int r;

	if (fd < 0)
		return fd;
	r = lock_set(fd, F_WRLCK, LOCK_AT_PRESENCE, false);
	if (r == 0)
		sweep_folder(l, ".");
	else if (r != -EAGAIN && r != -EACCES)
		return r;
	r = lock_set(fd, F_RDLCK, LOCK_AT_PRESENCE, true);
	if (r == 0)
		l->presence = TAKE_FD(fd);
	if (r == 0)
		l->spares_missing = !ckpt_spare_fill(l->tmp);
	return r;
}

static int folder_make(const struct local *l, const char *name, dev_t dev, int *ret_fd)
{
	CLEANUP_FD int fd = -1;
	struct stat st;
	int r = ckpt_sys.mkdir(l->root, name, 0700);

	if (r < 0 && r != -EEXIST)
		return r;
	fd = folder_open(l, name);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != dev)
		return -EXDEV;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int writable_open(struct local *l)
{
	struct stat st;
	int r;

	if (fstat(l->root, &st) < 0)
		return -errno;
	r = folder_make(l, "tmp", st.st_dev, &l->tmp);
	for (size_t i = 0; i < ARRAY_LEN(folders) && r == 0; i++) {
		CLEANUP_FD int fd = -1;

		r = folder_make(l, folders[i], st.st_dev, &fd);
	}
	// Also where the folders were there: who made them may have died before this.
	if (r == 0)
		r = ckpt_sys.fsync(l->root);
	return r < 0 ? r : presence_open(l);
}

static const struct ckpt_objects_ops local_ops = {
	.name = "local",
	.get = local_get,
	.head = local_head,
	.put = local_put,
	.remove = local_remove,
	.sync = local_sync,
	.yield = local_yield,
	.refill = local_refill,
	.list = local_list,
	.close = local_close,
};

int ckpt_local_open(int dirfd, bool writable, struct ckpt_objects **ret_objects)
{
	CLEANUP(local_free) struct local *l = calloc(1, sizeof(*l));
	int r = 0;

	if (!l)
		return -ENOMEM;
	*l = (struct local){.base.ops = &local_ops, .tmp = -1, .presence = -1};
	l->root = ckpt_sys.open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (l->root < 0)
		return l->root;
	if (writable)
		r = writable_open(l);
	if (r < 0)
		return r;
	*ret_objects = &TAKE_PTR(l)->base;
	return 0;
}
