#include "fs/attr_node.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/share_chunks.h"
#include "core/step/attributes.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/control.h"
#include "fs/latest.h"
#include "fs/marker.h"

#include <fcntl.h>

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
		// A file is one of a version, and stays as it is. Without a time the kernel asks for its size at every read(2).
		*ret_timeout = S_ISREG(n->type) ? TIMEOUT_COMMITTED : TIMEOUT_NONE;
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
