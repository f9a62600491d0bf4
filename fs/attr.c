#include "fs/attr.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/share.h"
#include "core/save/share_chunks.h"
#include "core/step/attributes.h"
#include "fs/amend_file.h"
#include "fs/control.h"
#include "fs/latest.h"
#include "fs/marker.h"

#include <fcntl.h>

// What -o uid=, gid= and umask= make of an owner and mode.
static void present(struct ckpt_fs *fs, struct stat *attr)
{
	if (fs->mount->default_owner) {
		attr->st_uid = fs->mount->uid;
		attr->st_gid = fs->mount->gid;
	}
	if (fs->mount->default_umask)
		attr->st_mode &= ~(fs->mount->umask & 0777);
}

void attr_from_statx(struct ckpt_fs *fs, const struct node *n, const struct statx *stx, struct stat *ret_attr)
{
	*ret_attr = (struct stat){
		.st_ino = n ? node_ino(n) : ckpt_store_ino(stx),
		.st_mode = stx->stx_mode,
		.st_nlink = n && __atomic_load_n(&n->file, __ATOMIC_RELAXED) ? 1 : stx->stx_nlink,
		.st_uid = stx->stx_uid,
		.st_gid = stx->stx_gid,
		.st_size = (off_t)stx->stx_size,
		.st_blocks = (blkcnt_t)stx->stx_blocks,
		.st_blksize = (blksize_t)stx->stx_blksize,
		.st_atim = {stx->stx_atime.tv_sec, stx->stx_atime.tv_nsec},
		.st_mtim = {stx->stx_mtime.tv_sec, stx->stx_mtime.tv_nsec},
		.st_ctim = {stx->stx_ctime.tv_sec, stx->stx_ctime.tv_nsec},
	};
	present(fs, ret_attr);
}

static mode_t type_of_entry(const struct ckpt_entry *e)
{
	static const mode_t types[] = {
		[CKPT_ENTRY_FILE] = S_IFREG, [CKPT_ENTRY_DIR] = S_IFDIR, [CKPT_ENTRY_SYMLINK] = S_IFLNK};

	return types[e->type];
}

// A committed entry has one time: that of its last write, or the one that was set since.
void attr_from_entry(struct ckpt_fs *fs, const struct ckpt_entry *e, struct stat *ret_attr)
{
	struct timespec mtime = {e->mtime_s, e->mtime_ns};
	bool dir = e->type == CKPT_ENTRY_DIR;

	*ret_attr = (struct stat){
		.st_ino = e->ino,
		.st_mode = type_of_entry(e) | e->mode,
		.st_nlink = e->nlink,
		.st_uid = e->uid,
		.st_gid = e->gid,
		.st_size = dir ? 4096 : (off_t)e->bytes,
		.st_blocks = dir ? 8 : (blkcnt_t)((e->bytes + 511) / 512),
		.st_blksize = 4096,
		.st_atim = mtime,
		.st_mtim = mtime,
		.st_ctim = mtime,
	};
	present(fs, ret_attr);
}

// The manifest does not say how many blocks a file has, and holes in smaller ones are no matter.
#define HOLES_BYTES_MIN ((uint64_t)1 << 20)

void attr_of_entry(struct ckpt_fs *fs, const struct ckpt_step *step, struct ckpt_manifest *m,
		   const struct ckpt_entry *e, struct stat *ret_attr)
{
	char path[CKPT_RAW_PATH_MAX];
	struct stat raw;

	attr_from_entry(fs, e, ret_attr);
	if (e->type != CKPT_ENTRY_FILE || e->bytes < HOLES_BYTES_MIN ||
	    ckpt_step_raw_path(step, m, e->index, path, sizeof(path)))
		return;
	if (!fstatat(fs->store->sessions_fd, path, &raw, AT_SYMLINK_NOFOLLOW) && raw.st_size == ret_attr->st_size)
		ret_attr->st_blocks = MIN(raw.st_blocks, ret_attr->st_blocks);
}

void attr_from_summary(struct ckpt_fs *fs, const struct ckpt_summary *s, struct stat *ret_attr)
{
	attr_from_entry(fs,
			&(struct ckpt_entry){
				.type = CKPT_ENTRY_DIR,
				.ino = s->dir_ino,
				.mode = s->dir_mode,
				.uid = s->dir_uid,
				.gid = s->dir_gid,
				.nlink = s->dir_nlink,
				.mtime_s = s->dir_mtime_ns / 1000000000,
				.mtime_ns = (uint32_t)(s->dir_mtime_ns % 1000000000),
			},
			ret_attr);
}

bool place_is_committed(const struct place *p)
{
	return p->step && ckpt_step_has_manifest(ckpt_step_state(p->step));
}

int entry_of_node(struct node *n, const struct place *p, struct ckpt_manifest **ret_manifest,
		  struct ckpt_entry *ret_entry)
{
	uint32_t index = __atomic_load_n(&n->entry, __ATOMIC_RELAXED);
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(p->step, &m);

	if (rc)
		return rc == -EBADMSG ? -EIO : rc;
	// The place that it had may be that of an older version.
	if (index && --index < ckpt_manifest_count(m))
		ckpt_manifest_entry(m, index, ret_entry);
	if (!index || index >= ckpt_manifest_count(m) || ret_entry->ino != n->number)
		rc = ckpt_manifest_lookup(m, p->path, &index);
	if (!rc)
		ckpt_manifest_entry(m, index, ret_entry);
	if (rc || (ret_entry->ino != n->number && !node_is_top(n)) || type_of_entry(ret_entry) != n->type) {
		ckpt_manifest_unref(m);
		return -ESTALE;
	}
	__atomic_store_n(&n->entry, index + 1, __ATOMIC_RELAXED);
	ckpt_attributes_apply(p->step, m, ret_entry);
	*ret_manifest = m;
	return 0;
}

static int attr_of_committed(struct ckpt_fs *fs, struct node *n, const struct place *p, struct stat *ret_attr)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	int rc;

	if (!*p->path) {
		struct ckpt_summary summary;

		ckpt_lock_take(&p->step->lock);
		summary = p->step->version->is;
		ckpt_attributes_apply_top_locked(p->step, &summary);
		ckpt_lock_drop(&p->step->lock);
		attr_from_summary(fs, &summary, ret_attr);
		return 0;
	}
	rc = entry_of_node(n, p, &m, &e);
	if (rc)
		return rc;
	attr_of_entry(fs, p->step, m, &e, ret_attr);
	ckpt_manifest_unref(m);
	return 0;
}

// An open file answers for itself, also when it has no name any more.
static int stat_open_file(struct node *n, struct statx *stx)
{
	struct node_use *use = node_used(n);

	if (!use)
		return -ENOENT;
	LOCK_SCOPE(&use->lock);
	if (use->fd < 0)
		return -ENOENT;
	return statx(use->fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, stx) ? -errno : 0;
}

// The same of one that is read from packs, and has no descriptor.
static bool attr_of_packed(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr)
{
	struct node_use *use = node_used(n);
	struct ckpt_entry e;

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	if (!use->packed || use->fd >= 0)
		return false;
	ckpt_file_entry(use->packed, &e);
	attr_from_entry(fs, &e, ret_attr);
	return true;
}

bool node_is_still(struct ckpt_fs *fs, struct node *n, const struct statx *stx)
{
	struct place p;
	bool is = node_is_file(n, stx);

	if (is || place_of(fs, n, &p))
		return is;
	// Known from before the reopening, when its number was all that there was to know.
	is = p.step && p.step->base && ckpt_share_ino(p.step, p.path, 0, stx, true) == n->number;
	place_done(&p);
	if (is)
		__atomic_store_n(&n->file, ckpt_store_ino(stx), __ATOMIC_RELAXED);
	return is;
}

static int stat_live(struct ckpt_fs *fs, struct node *n, struct statx *stx)
{
	int rc = stat_open_file(n, stx);

	if (rc == -ENOENT) {
		CLEANUP_FD int fd = node_open(fs, n, O_PATH | O_NOFOLLOW);

		if (fd < 0)
			return fd == -ENOENT ? -ESTALE : fd;
		rc = statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, stx) ? -errno : 0;
	}
	return rc ? rc : node_is_still(fs, n, stx) ? 0 : -ESTALE;
}

double node_attr_timeout(const struct node *n)
{
	return node_twin(n) || node_ino(n) != n->number ? TIMEOUT_NONE : TIMEOUT_ATTR;
}

static int attr_of_live(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	struct statx stx;
	int rc;

	*ret_timeout = node_attr_timeout(n);
	if (attr_of_packed(fs, n, ret_attr))
		return 0;
	rc = stat_live(fs, n, &stx);
	if (rc)
		return rc;
	attr_from_statx(fs, n, &stx, ret_attr);
	if (ckpt_share_chunks_may_be(&stx))
		*ret_timeout = TIMEOUT_NONE;
	return 0;
}

// A leftover's file is not the step's, or not any more: whoever has it open sees it as it is.
static int attr_of_open(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	if (attr_of_packed(fs, n, ret_attr))
		return 0;
	return stat_open_file(n, &(struct statx){0}) ? -ESTALE : attr_of_live(fs, n, ret_attr, ret_timeout);
}

// A twin that was written after what it is the twin of had lost its name (unwritten.c).
static bool is_nobodys(const struct node *n)
{
	return node_twin(n) && __atomic_load_n(&n->file, __ATOMIC_RELAXED);
}

int attr_of_node(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	struct place p;
	int rc;

	if (n->kind == NODE_CONTROL && n->control == CONTROL_COPY) {
		*ret_timeout = TIMEOUT_NONE;
		return control_conflicts_attr(fs, n, ret_attr);
	}
	if (control_is_array(n)) {
		*ret_timeout = TIMEOUT_NONE;
		return control_arrays_attr(fs, n, ret_attr);
	}
	if (n->kind == NODE_CONTROL)
		return control_attr(n, ret_attr, ret_timeout);
	if (n->kind == NODE_MARKER)
		return marker_attr(n, ret_attr, ret_timeout);
	if (n->kind == NODE_LATEST)
		return latest_attr(fs, n, ret_attr, ret_timeout);
	rc = place_of(fs, n, &p);
	if (rc)
		return rc == -ESTALE ? attr_of_live(fs, n, ret_attr, ret_timeout) : rc;
	if (place_is_committed(&p) && (amend_is_changing(n) || is_nobodys(n))) {
		rc = attr_of_live(fs, n, ret_attr, ret_timeout);
	} else if (place_is_committed(&p)) {
		rc = attr_of_committed(fs, n, &p, ret_attr);
		*ret_timeout = node_attr_timeout(n) == TIMEOUT_NONE ? TIMEOUT_NONE : TIMEOUT_COMMITTED;
		if (rc == -ESTALE)
			rc = attr_of_open(fs, n, ret_attr, ret_timeout);
		else if (!rc && !node_is_top(n))
			ret_attr->st_ino = node_ino(n);
	} else {
		rc = attr_of_live(fs, n, ret_attr, ret_timeout);
	}
	place_done(&p);
	return rc;
}
