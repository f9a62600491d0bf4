// What a name leads to, and how the kernel forgets it.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/share.h"
#include "core/save/share_chunks.h"
#include "core/step/attributes.h"
#include "core/step/removal.h"
#include "core/step/reopened.h"
#include "fs/amend.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/attr_node.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/control.h"
#include "fs/draft.h"
#include "fs/folder.h"
#include "fs/latest.h"
#include "fs/look_again.h"
#include "fs/marker.h"
#include "fs/ops.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
static void fill_entry(struct ckpt_fs *fs, const struct node *n, double timeout, struct fuse_entry_param *e)
{
	e->ino = node_id(fs, n);
	e->generation = n->generation;
	e->attr_timeout = e->entry_timeout = timeout;
}

int lookup_step(struct ckpt_fs *fs, struct node *parent, const char *name, struct ckpt_step *step,
		struct fuse_entry_param *e)
{
	struct ckpt_summary summary;
	struct node *n;
	bool committed;
	int rc = 0;

	ckpt_lock_take(&step->lock);
	committed = step->state == CKPT_STEP_COMMITTED;
	if (committed) {
		summary = step->version->is;
		ckpt_attributes_apply_top_locked(step, &summary);
	} else {
		struct statx stx;

		rc = statx(step->dirfd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -ESTALE : 0;
		if (!rc)
			attr_from_statx(fs, NULL, &stx, &e->attr);
		if (!rc && ckpt_reopen_shares(step))
			e->attr.st_ino = step->base->born.dir_ino;
	}
	ckpt_lock_drop(&step->lock);
	if (rc)
		return rc;
	if (committed)
		attr_from_summary(fs, &summary, &e->attr);
	// A graft, which comes in between under this lock, made a plain directory of it: that must not get its step back. Nor must
	// the directory of a reopened step (node_renew), or it would show the version of before.
	names_write_lock(fs);
	rc = ckpt_step_state(step) == CKPT_STEP_GONE ? -ESTALE
	     : committed && ckpt_step_is_reopened(step)
		     ? -EAGAIN
		     : node_get_locked(fs, node_space(step), e->attr.st_ino, S_IFDIR, parent, name, step, &n);
	names_unlock(fs);
	if (!rc)
		fill_entry(fs, n, committed ? TIMEOUT_COMMITTED : TIMEOUT_ATTR, e);
	return rc;
}

static bool type_is_ours(mode_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

int stat_live_child(struct node *parent, const struct place *p, int dirfd, const char *name,
		    struct live_child *ret_child)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];
	struct live_child c = {0};

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &c.stx))
		return -errno;
	c.shared = ckpt_share_is(dirfd, name, &c.stx);
	c.number = ckpt_store_ino(&c.stx);
	if (c.shared || (p->step && p->step->base)) {
		snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
		c.number = ckpt_share_ino(p->step, path, parent->number, &c.stx, c.shared);
	}
	*ret_child = c;
	return type_is_ours(c.stx.stx_mode) ? 0 : -ENOENT;
}

int look_at_child(struct ckpt_fs *fs, struct node *parent, int dirfd, const char *name, struct live_child *ret_child)
{
	struct place p;
	int rc = place_of(fs, parent, &p);

	if (rc)
		return rc;
	rc = stat_live_child(parent, &p, dirfd, name, ret_child);
	place_done(&p);
	return rc;
}

// Under names_lock: the path that leads to the directory is made and used before a rename can change it.
static int stat_child_locked(struct ckpt_fs *fs, struct node *parent, const char *name, struct live_child *ret_child)
{
	char raw[PATH_MAX];
	struct place p;
	bool pending;
	int fd, rc = place_of_locked(fs, parent, &p);

	if (rc)
		return rc;
	pending = p.step && amend_raw_of(&p, name, raw, sizeof(raw));
	fd = pending ? amend_open_session(fs, &p) : place_open(fs, &p, O_PATH | O_DIRECTORY);
	rc = fd < 0 ? (fd == -ENOENT ? -ESTALE : fd) : stat_live_child(parent, &p, fd, pending ? raw : name, ret_child);
	place_done(&p);
	if (fd >= 0)
		ckpt_sys.close(fd);
	return rc;
}

void fill_live(struct ckpt_fs *fs, const struct node *n, const struct statx *stx, struct fuse_entry_param *ret_entry)
{
	attr_from_statx(fs, n, stx, &ret_entry->attr);
	fill_entry(fs, n, TIMEOUT_NAME, ret_entry);
	ret_entry->attr_timeout = ckpt_share_chunks_may_be(stx) ? TIMEOUT_NONE : node_attr_timeout(n);
	if (__atomic_load_n(&n->file, __ATOMIC_RELAXED))
		ret_entry->entry_timeout = TIMEOUT_NONE; // it becomes that of a copy (copy_up.h)
}

// A name is looked at and remembered under one lock, so that a rename cannot come in between. Names that are known,
// nearly all of them, need it only for reading.
int lookup_live(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry)
{
	struct live_child c;
	struct node *n = NULL;
	int rc;

	names_read_lock(fs);
	rc = stat_child_locked(fs, parent, name, &c);
	if (!rc)
		n = node_get_known(fs, SPACE_LIVE, c.number, c.stx.stx_mode & S_IFMT, parent, name);
	names_unlock(fs);
	if (rc)
		return rc;
	if (!n) {
		names_write_lock(fs);
		rc = stat_child_locked(fs, parent, name, &c);
		if (!rc)
			rc = node_get_locked(fs, SPACE_LIVE, c.number, c.stx.stx_mode & S_IFMT, parent, name, NULL, &n);
		names_unlock(fs);
		if (rc)
			return rc;
	}
	__atomic_store_n(&n->file, c.shared ? ckpt_store_ino(&c.stx) : 0, __ATOMIC_RELAXED);
	fill_live(fs, n, &c.stx, ret_entry);
	return 0;
}

static int look_at_entry(struct ckpt_fs *fs, struct node *parent, const struct place *p, struct ckpt_manifest *m,
			 uint32_t index, struct fuse_entry_param *ret_entry)
{
	struct ckpt_entry e;
	struct node *n;
	int rc;

	ckpt_manifest_entry(m, index, &e);
	ckpt_attributes_apply(p->step, m, &e);
	attr_of_entry(fs, p->step, m, &e, &ret_entry->attr);
	// The step may become one of live numbers, under this lock: then all its nodes are found as such (node_renew).
	// Or it was reopened before: the name may be that of a copy by now.
	names_write_lock(fs);
	rc = node_step_locked(fs, parent) == p->step
		     ? node_get_locked(fs, node_space(p->step), e.ino, ret_entry->attr.st_mode & S_IFMT, parent, e.name,
				       NULL, &n)
		     : -EAGAIN;
	names_unlock(fs);
	if (rc)
		return rc;
	__atomic_store_n(&n->entry, index + 1, __ATOMIC_RELAXED);
	fill_entry(fs, n, TIMEOUT_COMMITTED, ret_entry);
	if (node_ino(n) != n->number) {
		ret_entry->attr.st_ino = node_ino(n);
		ret_entry->attr_timeout = TIMEOUT_NONE;
	}
	return amend_is_changing(n) ? attr_of_node(fs, n, &ret_entry->attr, &ret_entry->attr_timeout) : 0;
}

static int lookup_committed(struct ckpt_fs *fs, struct node *parent, const struct place *p, const char *name,
			    struct fuse_entry_param *ret_entry)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;
	int rc = entry_of_node(parent, p, &m, &e);

	if (rc)
		return rc;
	rc = ckpt_manifest_child(m, e.index, name, &index);
	if (!rc && ckpt_removal_has(p->step, m, index))
		rc = -ENOENT;
	else if (rc == -ENOENT && amend_is_name(p, name))
		rc = lookup_live(fs, parent, name, ret_entry);
	else if (!rc)
		rc = look_at_entry(fs, parent, p, m, index, ret_entry);
	ckpt_manifest_unref(m);
	return rc;
}

static int lookup_own(struct ckpt_fs *fs, struct node *n, struct fuse_entry_param *ret_entry)
{
	double timeout;
	int rc = attr_of_node(fs, n, &ret_entry->attr, &timeout);

	if (rc) {
		node_forget(fs, n, 1);
		return rc;
	}
	fill_entry(fs, n, TIMEOUT_NONE, ret_entry);
	ret_entry->attr_timeout = timeout;
	return 0;
}

static int lookup_latest(struct ckpt_fs *fs, struct node *parent, struct fuse_entry_param *ret_entry)
{
	struct node *n;
	int rc = latest_lookup(fs, parent, &n, &ret_entry->attr);

	if (!rc)
		fill_entry(fs, n, TIMEOUT_NONE, ret_entry);
	return rc;
}

// -EAGAIN: another step has its place since, and has what was being added to this one.
static int lookup_in_step(struct ckpt_fs *fs, struct node *parent, const struct place *p, const char *name,
			  struct fuse_entry_param *ret_entry)
{
	struct ckpt_step *now;
	int rc;

	if (!place_is_committed(p))
		return lookup_live(fs, parent, name, ret_entry);
	rc = lookup_committed(fs, parent, p, name, ret_entry);
	if (rc != -ENOENT)
		return rc;
	now = node_step(fs, parent);
	rc = now == p->step ? rc : -EAGAIN;
	ckpt_step_unref(now);
	return rc;
}

// -EAGAIN: the step has come to be another one meanwhile.
static int look_in_tree_once(struct ckpt_fs *fs, struct node *parent, const char *name,
			     struct fuse_entry_param *ret_entry)
{
	struct ckpt_step *step;
	struct place p;
	int rc = place_of(fs, parent, &p);

	if (rc)
		return rc;
	if (p.step) {
		rc = lookup_in_step(fs, parent, &p, name, ret_entry);
	} else {
		rc = folder_step(fs, parent, name, &step);
		if (!rc)
			rc = lookup_step(fs, parent, name, step, ret_entry);
		else if (rc == -ENOENT)
			rc = draft_lookup_plain(fs, parent, name, ret_entry);
		ckpt_step_unref(step);
		if (rc == -ENOENT && latest_is_name(name))
			rc = lookup_latest(fs, parent, ret_entry);
	}
	place_done(&p);
	return rc;
}

static int lookup_in_tree(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry)
{
	int rc;

	do
		rc = look_in_tree_once(fs, parent, name, ret_entry);
	while (rc == -EAGAIN);
	return rc;
}

int lookup_child(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry)
{
	struct node *n;
	int rc;

	if (parent->kind == NODE_CONTROL) {
		rc = control_lookup(fs, parent, name, &n);
		return rc ? rc : lookup_own(fs, n, ret_entry);
	}
	if (parent == node_root(fs) && !strcmp(name, CKPT_CONTROL_NAME)) {
		rc = control_dir(fs, &n);
		return rc ? rc : lookup_own(fs, n, ret_entry);
	}
	if (marker_is_here(fs, parent, name)) {
		rc = marker_lookup(fs, parent, &n);
		if (rc != -ENOENT)
			return rc ? rc : lookup_own(fs, n, ret_entry);
		// In a step that was completed by another name's marker it may be an ordinary file.
	}
	rc = lookup_in_tree(fs, parent, name, ret_entry);
	if (rc != -ENOENT || !control_arrays_names(name))
		return rc;
	rc = control_arrays_dir(fs, parent, name, &n); // what the step has itself wins
	return rc ? rc : lookup_own(fs, n, ret_entry);
}

// False: the name has a copy of what was found, from a moment ago. Each time another change of the name came between.
static bool lead_writer(fuse_req_t req, const struct node *dir, const char *name, struct fuse_entry_param *found)
{
	struct ckpt_fs *fs = fs_of(req);

	if (look_again_found(fs, fuse_req_ctx(req)->pid, dir, name, found))
		return false;
	return !unwritten_any(node_of(fs, found->ino)) || unwritten_lead(fs, dir, name, found);
}

static void look_up(fuse_req_t req, struct node *dir, const char *name)
{
	struct ckpt_fs *fs = fs_of(req);
	struct fuse_entry_param e = {0};
	int rc = draft_lookup_invited(req, dir, name, &e);

	if (rc)
		rc = lookup_child(fs, dir, name, &e);
	if (!rc && node_of(fs, e.ino)->kind == NODE_LATEST)
		rc = latest_follow(fs, dir, node_of(fs, e.ino), fuse_req_ctx(req)->pid);
	while (!rc && !lead_writer(req, dir, name, &e)) {
		node_forget(fs, node_of(fs, e.ino), 1);
		rc = lookup_child(fs, dir, name, &e);
	}
	if (rc)
		reply_error(req, rc);
	else if (fuse_reply_entry(req, &e) == -ENOENT)
		node_forget(fs, node_of(fs, e.ino), 1);
}

static void run_lookup(struct call *c)
{
	look_up(c->req, c->node, c->name);
}

// Names of arrays are in headers, which may have to be read.
static bool waits_for_headers(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	return (control_is_array(dir) || (control_arrays_names(name) && node_is_top(dir))) &&
	       !control_arrays_ready(fs, dir, name);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = call_for(req, parent, name, run_lookup);

	c.node = beside_find(fs, c.node, name);
	if (waits_for_headers(fs, c.node, name))
		call_detach(&c);
	else
		look_up(req, c.node, name);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	struct ckpt_fs *fs = fs_of(req);

	node_forget(fs, node_of(fs, ino), lookups);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct ckpt_fs *fs = fs_of(req);

	for (size_t i = 0; i < count; i++)
		node_forget(fs, node_of(fs, forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}
