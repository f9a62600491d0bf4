#include "fs/latest.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/step/latest.h"
#include "fs/attr_node.h"
#include "fs/client.h"
#include "fs/folder.h"
#include "fs/latest_led.h"
#include "fs/ops.h"

#define NAME "latest"

bool latest_is_name(const char *name)
{
	return !strcmp(name, NAME);
}

// What nobody removed since it was committed.
static bool is_removed(const struct node *dir, uint64_t newest_sequence)
{
	struct node_use *use = node_used(dir);

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	return newest_sequence <= use->latest_removed;
}

static int find(struct ckpt_fs *fs, struct node *dir, struct ckpt_latest *ret_latest)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = folder_id_of(fs, dir, false, id);

	if (rc)
		return rc == -ENOTDIR ? -ENOENT : rc;
	rc = ckpt_latest_link(fs->store, id, fs->store->settings.latest_by, ret_latest);
	// DeepSpeed opens it for writing, and that would follow a link of ours to a directory.
	return !rc && ret_latest->framework_writes_it ? -ENOENT : rc;
}

static int resolve(struct ckpt_fs *fs, struct node *dir, struct ckpt_latest *ret_latest)
{
	int rc = find(fs, dir, ret_latest);

	return !rc && is_removed(dir, ret_latest->newest_sequence) ? -ENOENT : rc;
}

// Who is the same link: in the same folder, with the same target (FNV-1a).
static uint64_t number_of(const struct node *dir, const char *target)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ dir->number;

	for (; *target; target++)
		h = (h ^ (unsigned char)*target) * UINT64_C(0x100000001b3);
	return h;
}

static int fill_attr(struct ckpt_fs *fs, struct node *dir, const struct ckpt_latest *latest, struct stat *ret_attr)
{
	struct timespec at = {latest->committed_ns / 1000000000, latest->committed_ns % 1000000000};
	struct stat folder;
	double timeout;
	int rc = attr_of_node(fs, dir, &folder, &timeout);

	if (rc)
		return rc;
	*ret_attr = (struct stat){
		.st_ino = number_of(dir, latest->name),
		.st_mode = S_IFLNK | 0777,
		.st_nlink = 1,
		// Where others may write, too, the kernel follows no links but their own and the folder's (protected_symlinks).
		.st_uid = folder.st_uid,
		.st_gid = folder.st_gid,
		.st_size = (off_t)strlen(latest->name),
		.st_blksize = 4096,
		.st_atim = at,
		.st_mtim = at,
		.st_ctim = at,
	};
	return 0;
}

int latest_lookup(struct ckpt_fs *fs, struct node *dir, struct node **ret_node, struct stat *ret_attr)
{
	CLEANUP_FREE char *target = NULL;
	struct ckpt_latest latest;
	struct node *n;
	int rc = resolve(fs, dir, &latest);

	if (!rc)
		rc = fill_attr(fs, dir, &latest, ret_attr);
	if (rc)
		return rc;
	target = strdup(latest.name);
	if (!target)
		return -ENOMEM;
	names_write_lock(fs);
	rc = node_get_locked(fs, SPACE_LATEST, ret_attr->st_ino, S_IFLNK, dir, NAME, NULL, &n);
	if (!rc && !n->target)
		n->target = TAKE_PTR(target);
	names_unlock(fs);
	if (!rc)
		*ret_node = n;
	return rc;
}

bool latest_resolves(struct ckpt_fs *fs, struct node *dir)
{
	struct ckpt_latest latest;

	return !resolve(fs, dir, &latest);
}

bool latest_is_listed(struct ckpt_fs *fs, struct node *dir, uint64_t *ret_number)
{
	struct fuse_entry_param e = {0};
	struct node *n;
	bool ours;

	if (!fs->store->settings.show_latest || lookup_child(fs, dir, NAME, &e))
		return false;
	n = node_of(fs, e.ino);
	ours = n->kind == NODE_LATEST;
	*ret_number = e.attr.st_ino;
	node_forget(fs, n, 1);
	return ours;
}

// The folder that the link is in: a reference, or NULL.
static struct node *folder_of(struct ckpt_fs *fs, const struct node *n)
{
	struct node *dir;

	names_read_lock(fs);
	dir = n->names ? n->names->parent : NULL;
	if (dir)
		node_ref(fs, dir);
	names_unlock(fs);
	return dir;
}

int latest_attr(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	struct node *dir = folder_of(fs, n);
	struct ckpt_latest latest;
	int rc = dir ? resolve(fs, dir, &latest) : -ENOENT;

	if (!rc)
		rc = strcmp(latest.name, n->target) ? -ESTALE : fill_attr(fs, dir, &latest, ret_attr);
	node_unref(fs, dir);
	*ret_timeout = TIMEOUT_NONE;
	return rc == -ENOENT ? -ESTALE : rc;
}

int latest_remove(struct ckpt_fs *fs, struct node *dir)
{
	struct ckpt_latest latest;
	int rc = find(fs, dir, &latest);
	bool there;

	if (!rc)
		rc = node_use(dir);
	if (rc)
		return rc;
	LOCK_SCOPE(&dir->use->lock);
	there = latest.newest_sequence > dir->use->latest_removed;
	dir->use->latest_removed = MAX(dir->use->latest_removed, latest.newest_sequence);
	return there ? 0 : -ENOENT;
}

int latest_follow(struct ckpt_fs *fs, struct node *dir, struct node *n, pid_t tid)
{
	if (client_makes(tid, NAME)) {
		node_forget(fs, n, 1);
		return -ENOENT;
	}
	latest_remember(fs, dir, n, tid);
	return 0;
}
