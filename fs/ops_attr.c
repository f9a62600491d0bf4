#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/stored_here.h"
#include "core/policy/temporary.h"
#include "core/record/metadata.h"
#include "core/cold/closed.h"
#include "core/save/share_chunks.h"
#include "core/save/stage.h"
#include "core/step/attributes.h"
#include "core/step/errlog.h"
#include "core/store/room.h"
#include "core/tier/seal.h"
#include "fs/amend.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/attr_node.h"
#include "fs/attributes.h"
#include "fs/call.h"
#include "fs/control.h"
#include "fs/control_file.h"
#include "fs/copy_up.h"
#include "fs/handle.h"
#include "fs/limit.h"
#include "fs/marker.h"
#include "fs/ops.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

void reply_attr(struct ckpt_fs *fs, fuse_req_t req, struct node *n)
{
	struct stat attr;
	double timeout = TIMEOUT_NONE;
	int rc = attr_of_node(fs, n, &attr, &timeout);

	if (rc)
		reply_error(req, rc);
	else
		fuse_reply_attr(req, &attr, timeout);
}

static void run_getattr(struct call *c)
{
	reply_attr(c->fs, c->req, c->node);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {.run = run_getattr, .req = req, .fs = fs, .node = node_of(fs, ino)};

	(void)fi;
	if (control_is_array(c.node) && !control_arrays_ready(fs, c.node, NULL))
		call_detach(&c);
	else
		reply_attr(fs, req, c.node);
}

static void run_access(struct call *c)
{
	struct stat attr;
	double timeout;
	int rc = attr_of_node(c->fs, c->node, &attr, &timeout);

	reply_error(c->req, rc ? rc : attr_allows(&attr, c->flags & (R_OK | W_OK | X_OK)) ? 0 : -EACCES);
}

void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {.run = run_access, .req = req, .fs = fs, .node = node_of(fs, ino), .flags = mask};

	if (control_is_array(c.node) && !control_arrays_ready(fs, c.node, NULL))
		call_detach(&c);
	else
		run_access(&c);
}

// --- setattr ----------------------------------------------------------------------------------------------------------

static void times_of(const struct stat *attr, int to_set, struct timespec times[2])
{
	times[0] = times[1] = (struct timespec){0, UTIME_OMIT};
	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		times[0].tv_nsec = UTIME_NOW;
	else if (to_set & FUSE_SET_ATTR_ATIME)
		times[0] = attr->st_atim;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		times[1].tv_nsec = UTIME_NOW;
	else if (to_set & FUSE_SET_ATTR_MTIME)
		times[1] = attr->st_mtim;
}

static int set_size_now(struct call *c, const char *path)
{
	CLEANUP_FD int fd = c->fi.fh ? handle_writer(handle_of(&c->fi)) : open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	int rc = fd >= 0 ? 0 : c->fi.fh ? fd : -errno;

	if (!rc)
		rc = limit_set_size(c, fd);
	if (!rc && (c->flags & FUSE_SET_ATTR_KILL_SUID))
		rc = drop_setuid(c->req, fd);
	if (!rc)
		rc = ckpt_sys.ftruncate(fd, c->attr.st_size);
	if (!rc && c->attr.st_size)
		ckpt_room_expect(*ckpt_room_of(c->fs->store), (uint64_t)c->attr.st_size);
	if (!rc && c->step)
		ckpt_closed_forget(c->fs->store, c->node->number);
	if (!rc && c->step && c->attr.st_size == 0)
		ckpt_stage_rewritten(c->step, c->node->number);
	return rc;
}

static int set_size(struct call *c, const char *path)
{
	struct handle *h = handle_of(&c->fi);
	int rc = h && h->amend ? amend_write_begin(c->fs, h) : 0;

	if (rc)
		return rc;
	rc = set_size_now(c, path);
	if (h && h->amend)
		amend_write_end(h);
	return rc;
}

static int set_on_path(struct call *c, const char *path)
{
	uid_t uid = c->flags & FUSE_SET_ATTR_UID ? c->attr.st_uid : (uid_t)-1;
	gid_t gid = c->flags & FUSE_SET_ATTR_GID ? c->attr.st_gid : (gid_t)-1;
	int rc = 0;

	if ((!c->flags || (c->flags & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))) && chown(path, uid, gid))
		return -errno;
	if ((c->flags & FUSE_SET_ATTR_MODE) && chmod(path, c->attr.st_mode & 07777))
		return -errno;
	if (c->flags & FUSE_SET_ATTR_SIZE)
		rc = set_size(c, path);
	if (!rc && (c->flags & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME))) {
		struct timespec times[2];

		times_of(&c->attr, c->flags, times);
		rc = utimensat(AT_FDCWD, path, times, 0) ? -errno : 0;
	}
	return rc;
}

// A file whose time is from before its step is a copy (shutil.copytree).
static void see_copy(struct call *c)
{
	if (c->step && (c->flags & FUSE_SET_ATTR_MTIME) && !(c->flags & FUSE_SET_ATTR_MTIME_NOW) &&
	    S_ISREG(c->node->type) &&
	    c->attr.st_mtim.tv_sec * INT64_C(1000000000) + c->attr.st_mtim.tv_nsec < ckpt_staging_of(c->step)->began_ns)
		__atomic_store_n(&ckpt_staging_of(c->step)->copied, true, __ATOMIC_RELAXED);
}

// A symlink has an owner and times of its own, but chmod and truncate would go through it.
static int set_on_symlink(struct call *c, int fd)
{
	struct timespec times[2];

	if ((c->flags & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) &&
	    fchownat(fd, "", c->flags & FUSE_SET_ATTR_UID ? c->attr.st_uid : (uid_t)-1,
		     c->flags & FUSE_SET_ATTR_GID ? c->attr.st_gid : (gid_t)-1, AT_EMPTY_PATH))
		return -errno;
	if (c->flags & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_SIZE))
		return -EOPNOTSUPP;
	if (!(c->flags & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)))
		return 0;
	times_of(&c->attr, c->flags, times);
	return utimensat(fd, "", times, AT_EMPTY_PATH) ? -errno : 0;
}

// The file itself, whatever its names do meanwhile: an open one by its descriptor, else by an O_PATH one. The descriptor of
// what was added to a committed step is that step's, also where the step was reopened since.
static int open_self(struct ckpt_fs *fs, struct node *n)
{
	struct statx stx;
	struct node_use *use = node_used(n);
	int fd = -1;

	if (use) {
		ckpt_lock_take(&use->lock);
		if (use->fd >= 0 && !amend_is_published(n))
			fd = fcntl(use->fd, F_DUPFD_CLOEXEC, 0);
		ckpt_lock_drop(&use->lock);
	}
	if (fd >= 0)
		return fd;
	fd = node_open(fs, n, O_PATH | O_NOFOLLOW);
	if (fd >= 0 && n != node_root(fs) &&
	    (statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) || !node_is_still(fs, n, &stx))) {
		ckpt_sys.close(fd); // another has its name
		fd = -ESTALE;
	}
	return fd == -ENOENT ? -ESTALE : fd;
}

// The same to be changed: a shared file becomes one of its own first, to which the node does not belong any more.
static int open_own(struct call *c, bool empty, bool *ret_copied)
{
	const struct handle *h = handle_of(&c->fi);
	int fd, rc;

	*ret_copied = false;
	if (h && h->fd >= 0 && node_twin(c->node)) { // nobody's (unwritten.h)
		fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? -errno : fd;
	}
	if (!(h && h->amend) && handle_leads_elsewhere(c->fs, c->node) && c->node->kind == NODE_FILES)
		return -ESTALE;
	fd = open_self(c->fs, c->node);
	*ret_copied = fd >= 0 && !(h && h->amend) && copy_up_is_due(fd);
	if (!*ret_copied)
		return fd;
	ckpt_sys.close(fd);
	rc = copy_up(c->fs, c->node, empty, &fd);
	return rc ? rc : fd;
}

// Nothing to set is chown(2) to nobody: it moves the change time, and takes setuid and setgid off. The kernel asks so for
// everybody, and asks the same before a write by another than the owner, for whom the open did it already.
static bool chowns_to_nobody(struct call *c)
{
	uid_t uid = fuse_req_ctx(c->req)->uid;
	struct stat attr;
	double timeout;

	return !uid || (!attr_of_node(c->fs, c->node, &attr, &timeout) && uid == attr.st_uid);
}

static void set_attr(struct call *c)
{
	bool copied;
	int rc;

	if (c->step && ckpt_staging_of(c->step)->add_only && (c->flags & FUSE_SET_ATTR_SIZE) && !c->fi.fh) {
		reply_error(c->req, -EEXIST);
		return;
	}
	if (!c->flags && !chowns_to_nobody(c)) {
		reply_attr(c->fs, c->req, c->node);
		return;
	}
	CLEANUP_FD int fd = open_own(c, (c->flags & FUSE_SET_ATTR_SIZE) && !c->attr.st_size, &copied);
	char path[32];
	struct statx stx;
	struct stat attr, old;
	double timeout;

	rc = fd < 0 ? fd : ckpt_share_chunks_guard(c->step, fd, ""); // the commit gives it those of another file
	if (!rc) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		rc = S_ISLNK(c->node->type) ? set_on_symlink(c, fd) : set_on_path(c, path);
	}
	if (!rc)
		see_copy(c);
	if (rc) {
		reply_error(c->req, rc);
	} else if (copied && !statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx)) {
		attr_from_statx(c->fs, NULL, &stx, &attr);
		// The kernel cuts the pages of the old file off where it is told that this one ends, and somebody may have it
		// mapped.
		if (!attr_of_node(c->fs, c->node, &old, &timeout))
			attr.st_size = old.st_size;
		fuse_reply_attr(c->req, &attr, TIMEOUT_NONE);
	} else {
		reply_attr(c->fs, c->req, c->node);
	}
}

// What was published is not cut off: the file is a copy then, and no close publishes that before all is set.
static void run_setattr(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	struct node *n = c->node;
	int rc;

	rc = h && (c->flags & FUSE_SET_ATTR_SIZE) && unwritten_is(h) ? unwritten_begin(c->fs, h) : 0;
	if (!rc && h && h->amend && (c->flags & FUSE_SET_ATTR_SIZE)) {
		rc = amend_change_begin(c->fs, h);
	} else if (!rc) {
		set_attr(c);
		return;
	}
	if (rc) {
		reply_error(c->req, rc);
		return;
	}
	node_ref(c->fs, n); // it is the request's until that is answered
	set_attr(c);
	amend_change_end(n);
	node_unref(c->fs, n);
}

#define TIMES                                                                                                          \
	(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW |               \
	 FUSE_SET_ATTR_CTIME)

// What is written may be cut off by who writes it, and `touch` sets times, which are always now.
static void set_control_attr(fuse_req_t req, struct node *n, const struct stat *attr, int to_set,
			     struct fuse_file_info *fi)
{
	bool cuts = (to_set & FUSE_SET_ATTR_SIZE) && fi;
	int rc = n->control == CONTROL_COPY || control_is_array(n)     ? -EROFS
		 : to_set & ~(TIMES | (cuts ? FUSE_SET_ATTR_SIZE : 0)) ? -EPERM
								       : 0;

	if (!rc && cuts)
		rc = control_truncate(handle_of(fi), attr->st_size);
	else if (!rc && to_set)
		control_touch(fs_of(req), n);
	if (rc)
		reply_error(req, rc);
	else
		reply_attr(fs_of(req), req, n);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {
		.run = run_setattr, .req = req, .fs = fs, .node = node_of(fs, ino), .attr = *attr, .flags = to_set};

	if (c.node->kind == NODE_CONTROL) {
		set_control_attr(req, c.node, attr, to_set, fi);
	} else if (c.node->kind == NODE_MARKER) {
		int rc = (to_set & FUSE_SET_ATTR_SIZE) && fi ? marker_truncate(handle_of(fi), attr->st_size) : 0;

		if (rc)
			reply_error(req, rc);
		else
			reply_attr(fs, req, c.node);
	} else {
		if (fi)
			c.fi = *fi;
		c.reopens = c.makes = to_set & FUSE_SET_ATTR_SIZE;
		c.committed = amend_pending;
		c.edits = attributes_set;
		c.copies = true;
		call_run(&c);
	}
}

// --- statfs -----------------------------------------------------------------------------------------------------------

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;

	(void)ino;
	if (fstatvfs(fs_of(req)->store->tree_fd, &st)) {
		reply_error(req, -errno);
		return;
	}
	st.f_namemax = CKPT_NAME_MAX;
	fuse_reply_statfs(req, &st);
}

// --- Extended attributes ----------------------------------------------------------------------------------------------

static bool is_users(const char *name)
{
	return !strncmp(name, "user.", 5);
}

static bool is_a_clients(const char *name)
{
	return is_users(name) && strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS));
}

// *ret_value is malloc'ed.
static int get_live(struct ckpt_fs *fs, struct node *n, const char *name, char **ret_value, size_t *ret_len)
{
	CLEANUP_FD int fd = open_self(fs, n);
	CLEANUP_FREE char *value = malloc(CKPT_XATTR_BYTES_MAX);
	char path[32];
	ssize_t len;

	if (fd < 0)
		return fd;
	if (!value)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = getxattr(path, name, value, CKPT_XATTR_BYTES_MAX);
	if (len < 0)
		return -errno;
	*ret_value = TAKE_PTR(value);
	*ret_len = (size_t)len;
	return 0;
}

static int get_sha256(const struct ckpt_manifest *m, const struct ckpt_entry *e, char **ret_value, size_t *ret_len)
{
	uint8_t digest[CKPT_SHA256_LEN];

	if (!ckpt_seal_sha256(m, e, digest))
		return -ENODATA;
	*ret_value = malloc(CKPT_SHA256_HEX_LEN + 1);
	if (!*ret_value)
		return -ENOMEM;
	ckpt_hex(digest, sizeof(digest), *ret_value);
	*ret_len = CKPT_SHA256_HEX_LEN;
	return 0;
}

static int get_stored(const struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		      char **ret_value, size_t *ret_len)
{
	uint64_t bytes;
	int n, rc = e->type == CKPT_ENTRY_FILE ? ckpt_stored_file(step, m, e, &bytes) : -ENODATA;

	if (rc)
		return rc;
	n = asprintf(ret_value, "%llu", (unsigned long long)bytes);
	if (n < 0)
		*ret_value = NULL;
	*ret_len = (size_t)MAX(n, 0);
	return n < 0 ? -ENOMEM : 0;
}

// What is known of a file's bytes, and is no attribute that anybody set. -ENODATA.
static int get_own(const struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		   const char *name, char **ret_value, size_t *ret_len)
{
	return !strcmp(name, CKPT_SEAL_XATTR)     ? get_sha256(m, e, ret_value, ret_len)
	       : !strcmp(name, CKPT_STORED_XATTR) ? get_stored(step, m, e, ret_value, ret_len)
						  : -ENODATA;
}

static bool is_meta(const char *name)
{
	return !strncmp(name, CKPT_META_XATTRS, strlen(CKPT_META_XATTRS));
}

static int get_meta(struct ckpt_step *step, uint32_t version, const char *name, char **ret_value)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc == -EBADMSG ? -EIO : rc;
	rc = ckpt_metadata_extra(r.metadata, name + strlen(CKPT_META_XATTRS), ret_value);
	ckpt_record_done(&r);
	return rc;
}

static int get_temporary(bool temporary, char **ret_value)
{
	*ret_value = strdup(temporary ? "true" : "false");
	return *ret_value ? 0 : -ENOMEM;
}

// The same of a step, which its directory has.
static int get_of_step(struct ckpt_step *step, const char *name, char **ret_value, size_t *ret_len)
{
	struct ckpt_summary s;
	int rc;

	if (!is_meta(name) && strcmp(name, CKPT_TEMPORARY_XATTR))
		return -ENODATA;
	ckpt_lock_take(&step->lock);
	s = step->version->is;
	ckpt_lock_drop(&step->lock);
	rc = is_meta(name) ? get_meta(step, s.version, name, ret_value) : get_temporary(s.temporary, ret_value);
	*ret_len = rc ? 0 : strlen(*ret_value);
	return rc;
}

static bool is_own(const char *name)
{
	return !strcmp(name, CKPT_SEAL_XATTR) || !strcmp(name, CKPT_STORED_XATTR) ||
	       !strcmp(name, CKPT_TEMPORARY_XATTR) || is_meta(name);
}

static int get_clients(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		       const char *name, char **ret_value, size_t *ret_len)
{
	const struct ckpt_xattr *have;
	struct ckpt_xattrs x;
	int rc = ckpt_attributes_xattrs(step, m, e, &x);

	if (rc)
		return rc;
	have = ckpt_xattrs_find(&x, name);
	rc = have ? 0 : -ENODATA;
	*ret_value = have ? malloc(have->len + 1) : NULL;
	if (have && !*ret_value)
		rc = -ENOMEM;
	if (!rc && have->len)
		memcpy(*ret_value, have->value, have->len);
	if (!rc)
		*ret_len = have->len;
	ckpt_xattrs_done(&x);
	return rc;
}

static int get_committed(struct node *n, const struct place *p, const char *name, char **ret_value, size_t *ret_len)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	int rc = entry_of_node(n, p, &m, &e);

	if (rc)
		return rc;
	rc = *p->path ? get_own(p->step, m, &e, name, ret_value, ret_len)
		      : get_of_step(p->step, name, ret_value, ret_len);
	if (rc == -ENODATA && is_a_clients(name))
		rc = get_clients(p->step, m, &e, name, ret_value, ret_len);
	ckpt_manifest_unref(m);
	return rc;
}

// The protocol of both requests: size 0 asks how much, a buffer that is too small gets ERANGE.
static void reply_value(fuse_req_t req, size_t size, int rc, const char *value, size_t len)
{
	if (rc)
		reply_error(req, rc);
	else if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		reply_error(req, -ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct ckpt_fs *fs = fs_of(req);
	struct node *n = node_of(fs, ino);
	CLEANUP_FREE char *value = NULL;
	size_t len = 0;
	struct place p;
	int rc;

	// `ls -l` asks each file for security.selinux, until it hears that this mount has no such attributes: then 2,000
	// files cost one request instead of 2,000. The kernel itself takes either answer for security.capability.
	if (n->kind != NODE_FILES || S_ISLNK(n->type) || (!is_a_clients(name) && !is_own(name))) {
		reply_error(req, is_users(name) || !strncmp(name, "trusted.", 8) ? -ENODATA : -EOPNOTSUPP);
		return;
	}
	rc = place_of(fs, n, &p);
	if (!rc && place_is_committed(&p))
		rc = get_committed(n, &p, name, &value, &len);
	else if (!rc || rc == -ESTALE)
		rc = get_live(fs, n, name, &value, &len);
	place_done(&p);
	reply_value(req, size, rc, value, len);
}

static int list_live(struct ckpt_fs *fs, struct node *n, char *names, size_t *ret_len)
{
	CLEANUP_FD int fd = open_self(fs, n);
	CLEANUP_FREE char *all = malloc(CKPT_XATTR_BYTES_MAX);
	char path[32];
	ssize_t len;

	if (fd < 0)
		return fd;
	if (!all)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = listxattr(path, all, CKPT_XATTR_BYTES_MAX);
	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *at = all; at < all + len; at += strlen(at) + 1)
		if (is_a_clients(at)) {
			memcpy(names + *ret_len, at, strlen(at) + 1);
			*ret_len += strlen(at) + 1;
		}
	return 0;
}

static int list_committed(struct node *n, const struct place *p, char *names, size_t *ret_len)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct ckpt_xattrs x;
	int rc = entry_of_node(n, p, &m, &e);

	if (rc)
		return rc;
	rc = ckpt_attributes_xattrs(p->step, m, &e, &x);
	for (size_t i = 0; !rc && i < x.count; i++) {
		size_t len = strlen(x.at[i].name) + 1;

		if (!is_a_clients(x.at[i].name) || *ret_len + len > CKPT_XATTR_BYTES_MAX)
			continue;
		memcpy(names + *ret_len, x.at[i].name, len);
		*ret_len += len;
	}
	if (!rc)
		ckpt_xattrs_done(&x);
	ckpt_manifest_unref(m);
	return rc;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct ckpt_fs *fs = fs_of(req);
	struct node *n = node_of(fs, ino);
	CLEANUP_FREE char *names = malloc(CKPT_XATTR_BYTES_MAX);
	size_t len = 0;
	struct place p;
	int rc = names ? 0 : -ENOMEM;

	if (!rc && n->kind == NODE_FILES && !S_ISLNK(n->type)) {
		rc = place_of(fs, n, &p);
		if (!rc && place_is_committed(&p))
			rc = list_committed(n, &p, names, &len);
		else if (!rc || rc == -ESTALE)
			rc = list_live(fs, n, names, &len);
		place_done(&p);
	}
	reply_value(req, size, rc, names, len);
}

// name is the attribute's; data NULL removes it.
static void run_set(struct call *c)
{
	bool copied;
	CLEANUP_FD int fd = open_own(c, false, &copied);
	char path[32];
	int rc = MIN(fd, 0);

	if (!rc)
		rc = ckpt_share_chunks_guard(c->step, fd, "");
	if (!rc) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		rc = (c->data ? setxattr(path, c->name, c->data, c->data_len, c->flags) : removexattr(path, c->name))
			     ? -errno
			     : 0;
	}
	reply_error(c->req, rc);
}

static int refuse(struct call *c, int error, const char *why, const char *hint)
{
	CLEANUP_FREE char *name = ckpt_name_clean(c->name);
	char subject[CKPT_NAME_MAX + 1] = "/";

	names_read_lock(c->fs);
	if (c->node->names)
		snprintf(subject, sizeof(subject), "%s", c->node->names->text);
	names_unlock(c->fs);
	ckpt_errlog_add(c->fs->store->errlog, subject, error, hint, "%s cannot be set: %s", name ? name : "it", why);
	return error;
}

// What such a name means only a staged step's directory can have.
static int may_set_meta(struct call *c)
{
	const char *why = NULL;
	int rc;

	if (!c->step || !node_is_top(c->node))
		return refuse(c, -EINVAL, "it is not the directory of a staged step",
			      "set it on the directory of the step, before the step is completed");
	rc = c->data ? ckpt_metadata_may_set(c->step->dirfd, c->name, c->data, c->data_len, &why) : 0;
	return why ? refuse(c, rc, why, "the step's marker may hold 64 KiB of JSON") : rc;
}

static void run_set_meta(struct call *c)
{
	int rc = may_set_meta(c);

	if (rc)
		reply_error(c->req, rc);
	else
		run_set(c);
}

static int refuse_meta(struct call *c)
{
	return refuse(c, -EROFS, "the step is committed",
		      "write its marker again, with JSON; this makes a new version");
}

static void change_xattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct ckpt_fs *fs = fs_of(req);
	CLEANUP_FREE char *copy = value ? malloc(size + 1) : NULL;
	struct call c = {.run = run_set,
			 .req = req,
			 .fs = fs,
			 .node = node_of(fs, ino),
			 .data = copy,
			 .data_len = size,
			 .flags = flags};

	if (c.node->kind != NODE_FILES || S_ISLNK(c.node->type)) {
		reply_error(req, control_refusal(c.node));
	} else if (!is_a_clients(name) && !is_meta(name)) {
		reply_error(req, strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS)) ? -EOPNOTSUPP : -EPERM);
	} else if (value && !copy) {
		reply_error(req, -ENOMEM);
	} else {
		if (copy)
			memcpy(copy, value, size);
		snprintf(c.name, sizeof(c.name), "%s", name);
		c.committed = is_meta(name) ? refuse_meta : amend_pending;
		c.edits = attributes_set_xattr;
		c.copies = true;
		if (is_meta(name))
			c.run = run_set_meta;
		call_run(&c);
	}
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	change_xattr(req, ino, name, value, size, flags);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	change_xattr(req, ino, name, NULL, 0, 0);
}
