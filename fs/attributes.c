#include "fs/attributes.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/change.h"
#include "core/step/attributes.h"
#include "fs/attr.h"
#include "fs/node.h"
#include "fs/ops.h"

#include <sys/stat.h>

#define TRIES 8         // to find the version that is current
#define LOOKS_MAX 10000 // a millisecond each, while it is being reopened

static int may_edit(const struct call *c)
{
	return c->fs->mount->readonly || c->fs->store->settings.amend == CKPT_AMEND_DENY ? -EROFS : 0;
}

static void set_time(const struct call *c, struct ckpt_attributes_new *ret)
{
	int64_t now_ns = ckpt_sys.now_ns();

	ret->which |= CKPT_ATTRIBUTE_MTIME;
	if (c->flags & FUSE_SET_ATTR_MTIME_NOW) {
		ret->mtime_s = now_ns / 1000000000;
		ret->mtime_ns = (uint32_t)(now_ns % 1000000000);
	} else {
		ret->mtime_s = c->attr.st_mtim.tv_sec;
		ret->mtime_ns = (uint32_t)c->attr.st_mtim.tv_nsec;
	}
}

// The access time is kept nowhere. A new owner takes setuid and setgid off, as on any disk.
static struct ckpt_attributes_new wanted(const struct call *c, const struct ckpt_entry *e)
{
	struct ckpt_attributes_new n = {0};
	bool chowned = !(c->flags & ~FUSE_SET_ATTR_CTIME) || (c->flags & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID));
	mode_t drop = S_ISUID | (e->mode & S_IXGRP ? S_ISGID : 0);

	if (c->flags & FUSE_SET_ATTR_MODE) {
		n.which |= CKPT_ATTRIBUTE_MODE;
		n.mode = c->attr.st_mode & 07777;
	} else if (chowned && e->type == CKPT_ENTRY_FILE && (e->mode & drop)) {
		n.which |= CKPT_ATTRIBUTE_MODE;
		n.mode = e->mode & ~drop;
	}
	if (c->flags & FUSE_SET_ATTR_UID) {
		n.which |= CKPT_ATTRIBUTE_UID;
		n.uid = c->attr.st_uid;
	}
	if (c->flags & FUSE_SET_ATTR_GID) {
		n.which |= CKPT_ATTRIBUTE_GID;
		n.gid = c->attr.st_gid;
	}
	if (c->flags & FUSE_SET_ATTR_MTIME)
		set_time(c, &n);
	return n;
}

// Of an entry of the current manifest. As edit_entry() says.
typedef int edit_fn(struct call *c, struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e);

static int set(struct call *c, struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	struct ckpt_attributes_new n = wanted(c, e);

	if ((c->flags & FUSE_SET_ATTR_SIZE) && (uint64_t)c->attr.st_size != e->bytes)
		return CALL_REOPENS;
	if (e->type == CKPT_ENTRY_SYMLINK && (c->flags & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_SIZE)))
		return -EOPNOTSUPP;
	return ckpt_change_attributes(step, m, e, &n);
}

static int set_xattr(struct call *c, struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	return ckpt_change_xattr(step, m, e, c->name, c->data, c->data_len, c->flags);
}

// 0; CALL_ANSWERED: it is looked at again, as the step is being reopened.
static int edit_entry(struct call *c, edit_fn *fn)
{
	int rc = may_edit(c);

	if (!rc)
		rc = -ESTALE;
	for (int i = 0; i < TRIES && rc == -ESTALE; i++) {
		struct ckpt_manifest *m;
		struct ckpt_entry e;
		struct place p;

		rc = place_of(c->fs, c->node, &p);
		if (rc)
			return rc;
		rc = place_is_committed(&p) ? entry_of_node(c->node, &p, &m, &e) : -EAGAIN;
		if (rc == -ESTALE) {
			place_done(&p);
			return rc;
		}
		if (!rc) {
			rc = fn(c, p.step, m, &e);
			ckpt_manifest_unref(m);
		}
		place_done(&p);
	}
	if (rc == -ESTALE || (rc == -EAGAIN && c->looks++ >= LOOKS_MAX))
		rc = -EBUSY;
	if (rc != -EAGAIN)
		return rc;
	call_again_soon(c);
	return CALL_ANSWERED;
}

int attributes_set(struct call *c)
{
	int rc = edit_entry(c, set);
	struct node *of;

	if (rc)
		return rc;
	of = node_twin(c->node);
	if (of) // the kernel keeps what it knows of the file itself
		(void)fuse_lowlevel_notify_inval_inode(c->fs->se, node_id(c->fs, of), -1, 0);
	reply_attr(c->fs, c->req, c->node);
	return CALL_ANSWERED;
}

int attributes_set_xattr(struct call *c)
{
	int rc = edit_entry(c, set_xattr);

	if (rc)
		return rc;
	reply_error(c->req, 0);
	return CALL_ANSWERED;
}
