#include "fs/attr.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/share.h"
#include "core/step/attributes.h"

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

double node_attr_timeout(const struct node *n)
{
	return node_twin(n) || node_ino(n) != n->number ? TIMEOUT_NONE : TIMEOUT_ATTR;
}

bool attr_allows(const struct stat *attr, int mask)
{
	mode_t given;

	if (geteuid() == 0)
		return !(mask & X_OK) || !S_ISREG(attr->st_mode) || (attr->st_mode & 0111);
	if (attr->st_uid == geteuid())
		given = attr->st_mode >> 6;
	else
		given = group_member(attr->st_gid) ? attr->st_mode >> 3 : attr->st_mode;
	return !((mode_t)mask & ~given & 07);
}
