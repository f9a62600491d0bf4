#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/limit.h"
#include "core/save/share.h"
#include "core/save/share_chunks.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/store/room.h"
#include "fs/amend.h"
#include "fs/attr.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/control.h"
#include "fs/draft.h"
#include "fs/folder.h"
#include "fs/limit.h"
#include "fs/marker.h"
#include "fs/ops.h"
#include "fs/others.h"
#include "fs/unstage.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
// --- What a new name must be ------------------------------------------------------------------------------------------

int check_new_name(struct ckpt_fs *fs, struct node *parent, struct ckpt_step *step, const char *name)
{
	int rc;

	if (parent->kind != NODE_FILES || (parent == node_root(fs) && !strcmp(name, CKPT_CONTROL_NAME)))
		return -EPERM;
	if (node_is_top(parent) && marker_is_name(fs, name))
		return -EPERM; // the marker is made by open(2) only
	rc = ckpt_name_check(name, strlen(name));
	if (rc) {
		struct ckpt_step_name now = {.name = "(plain)"};

		if (step)
			ckpt_step_name(step, &now);
		ckpt_errlog_add(fs->store->errlog, now.name, rc, "choose another name",
				"a name with control bytes, too long or not UTF-8 was refused");
	}
	return rc;
}

int give_to_client(fuse_req_t req, int dirfd, const char *name)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct stat dir, st;

	if (geteuid() != 0 || (ctx->uid == 0 && ctx->gid == 0))
		return 0;
	if (fstat(dirfd, &dir) || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	// A directory with setgid gives its group on, as the disk's filesystem has done already.
	if (fchownat(dirfd, name, ctx->uid, dir.st_mode & S_ISGID ? (gid_t)-1 : ctx->gid, AT_SYMLINK_NOFOLLOW))
		return -errno;
	// What the client asked for, and the new owner's file has lost.
	if (S_ISREG(st.st_mode) && (st.st_mode & (S_ISUID | S_ISGID)))
		return fchmodat(dirfd, name, st.st_mode & 07777, 0) ? -errno : 0;
	return 0;
}

// The kernel holds the directory's lock until we answer: nobody renames or removes the new name meanwhile.
int adopt_created(struct ckpt_fs *fs, fuse_req_t req, struct node *parent, int dirfd, const char *name, int fd,
		  struct fuse_entry_param *ret_entry)
{
	int rc = give_to_client(req, dirfd, name);

	return rc ? rc : adopt_file(fs, parent, name, fd, ret_entry);
}

int adopt_file(struct ckpt_fs *fs, struct node *parent, const char *name, int fd, struct fuse_entry_param *ret_entry)
{
	struct statx stx;
	struct node *n;
	int rc = statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : 0;

	if (!rc)
		rc = node_get(fs, SPACE_LIVE, ckpt_store_ino(&stx), S_IFREG, parent, name, NULL, &n);
	if (!rc)
		fill_live(fs, n, &stx, ret_entry);
	return rc;
}

// The directory to make something in, and whether something may be made there.
static int open_parent(struct call *c)
{
	struct ckpt_step *taken;
	int rc = check_new_name(c->fs, c->node, c->step, c->name);

	if (rc)
		return rc;
	rc = c->step ? -ENOENT : folder_step(c->fs, c->node, c->name, &taken);
	if (!rc) {
		ckpt_step_unref(taken);
		return -EEXIST;
	}
	if (rc != -ENOENT)
		return rc;
	if (!c->step && draft_is_at(c->fs, c->node, c->name))
		return -EEXIST;
	return node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
}

static void reply_new(struct call *c, int dirfd, int rc)
{
	struct fuse_entry_param e = {0};

	if (!rc)
		rc = give_to_client(c->req, dirfd, c->name);
	if (!rc)
		rc = lookup_child(c->fs, c->node, c->name, &e);
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

static struct call call_that_makes(fuse_req_t req, fuse_ino_t dir, const char *name, void (*run)(struct call *c))
{
	struct call c = call_for(req, dir, name, run);

	c.node = beside_make(c.fs, c.node, name, fuse_req_ctx(req)->pid);
	return c;
}

// --- mkdir ------------------------------------------------------------------------------------------------------------

static bool matches_steps_at(const char *patterns, const struct place *p, const char *name)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];
	CLEANUP_FREE char *copy = strdup(patterns);
	char *save = NULL;

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	for (char *at = copy ? strtok_r(copy, ":", &save) : NULL; at; at = strtok_r(NULL, ":", &save))
		if (!fnmatch(at, path, FNM_PATHNAME | FNM_PERIOD))
			return true;
	return false;
}

static int describe_folder(struct ckpt_fs *fs, struct node *dir, const struct place *p, struct ckpt_place *ret)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	CLEANUP_FREE char *path = strdup(p->path);
	char *save = NULL, *last = NULL;
	int rc;

	*ret = (struct ckpt_place){.root = dir == node_root(fs)};
	if (!path)
		return -ENOMEM;
	for (char *part = strtok_r(path, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		ret->below_logs |= ckpt_name_is_logs(part);
		last = part;
	}
	ret->in_checkpoints = last && ckpt_name_is_checkpoints(last);
	rc = folder_id_of(fs, dir, false, id);
	ret->holds_steps = !rc && ckpt_step_any(fs->store, id);
	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

int names_step(struct ckpt_fs *fs, struct node *dir, const char *name, bool *ret_step)
{
	const char *patterns = fs->store->settings.steps_at;
	struct ckpt_place folder;
	struct place p;
	int rc;

	*ret_step = ckpt_name_is_temp(name) && !__atomic_load_n(&dir->beside, __ATOMIC_RELAXED);
	if (*ret_step || __atomic_load_n(&dir->beside, __ATOMIC_RELAXED))
		return 0;
	rc = place_of(fs, dir, &p);
	if (rc)
		return rc;
	if (patterns)
		*ret_step = matches_steps_at(patterns, &p, name);
	else
		rc = describe_folder(fs, dir, &p, &folder);
	if (!rc && !patterns)
		*ret_step = ckpt_name_is_step(name, &folder);
	place_done(&p);
	return rc;
}

static int begin_step(struct call *c, const char *folder_id, struct ckpt_step **ret_step)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);
	struct ckpt_store *s = c->fs->store;
	int rc = ckpt_stage_begin_by_client(s, folder_id, c->name, c->mode, ctx->uid, ctx->gid, ctx->pid, ret_step);

	if (ckpt_is_full(rc) && ckpt_room_make(*ckpt_room_of(s), 0))
		rc = ckpt_stage_begin_by_client(s, folder_id, c->name, c->mode, ctx->uid, ctx->gid, ctx->pid, ret_step);
	ckpt_room_expect(*ckpt_room_of(s), 0); // its bytes follow
	return rc;
}

static void run_begin(struct call *c)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct fuse_entry_param e = {0};
	struct ckpt_step *step = NULL;
	struct stat st;
	CLEANUP_FD int dirfd = open_parent(c);
	int rc = MIN(dirfd, 0);

	if (!rc && !fstatat(dirfd, c->name, &st, AT_SYMLINK_NOFOLLOW))
		rc = -EEXIST;
	if (!rc)
		rc = folder_id_of(c->fs, c->node, true, id);
	if (!rc) {
		limit_wait(c);
		rc = begin_step(c, id, &step);
	}
	if (!rc)
		rc = lookup_step(c->fs, c->node, c->name, step, &e);
	ckpt_step_unref(step);
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

// Whether the new directory can have a place of its own, with room for a name below it, and is not too deep for a step.
static int check_new_place(struct call *c)
{
	struct place p;
	size_t len;
	int depth = 0, rc = place_of(c->fs, c->node, &p);

	if (rc)
		return rc;
	for (const char *at = p.path; *at; at++)
		depth += *at == '/';
	len = strlen(p.path) + 1 + strlen(c->name);
	place_done(&p);
	return (c->step && depth + 2 >= CKPT_DEPTH_MAX) || len + 2 + CKPT_NAME_MAX > sizeof(p.buf) ? -ENAMETOOLONG : 0;
}

static void run_mkdir(struct call *c)
{
	CLEANUP_FD int dirfd = open_parent(c);
	int rc = MIN(dirfd, 0);

	if (!rc)
		rc = check_new_place(c);
	if (!rc)
		rc = ckpt_sys.mkdir(dirfd, c->name, c->mode & 07777);
	reply_new(c, dirfd, rc);
}

// In a run's folder that was taken for a step until now.
static void run_begin_in_run(struct call *c)
{
	struct ckpt_step *step = node_step(c->fs, c->node);
	int rc = step ? unstage(c->fs, step) : 0;
	bool begins = false;

	ckpt_step_unref(step);
	if (!rc)
		rc = names_step(c->fs, c->node, c->name, &begins);
	c->run = rc || !begins ? run_mkdir : run_begin;
	if (rc || !begins)
		call_run(c);
	else
		run_begin(c);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct call c = call_that_makes(req, parent, name, run_mkdir);
	struct ckpt_step *step = node_step(c.fs, c.node);
	bool begins = false;
	int rc = step || c.node->kind != NODE_FILES ? 0 : names_step(c.fs, c.node, name, &begins);

	c.mode = mode;
	c.committed = amend_make;
	c.reopens = c.makes = true;
	if (control_is_array(c.node)) {
		reply_error(req, -EROFS);
	} else if (rc) {
		reply_error(req, rc);
	} else if (begins) {
		c.run = run_begin;
		c.waits_for_clients = *ckpt_limit_of(c.fs->store); // until what others have written may go
		call_detach(&c);                                   // it waits for the disk
	} else if (step && unstage_is_shown_by(c.fs, c.node, step, name)) {
		c.run = run_begin_in_run;
		c.waits_for_clients = true; // for changes of the step that are under way
		call_detach(&c);
	} else {
		call_run(&c);
	}
	ckpt_step_unref(step);
}

// --- mknod, symlink, link ---------------------------------------------------------------------------------------------

static void run_mknod(struct call *c)
{
	CLEANUP_FD int dirfd = open_parent(c);
	int rc = dirfd < 0 ? dirfd : limit_create(c);

	if (!rc) {
		int fd = ckpt_sys.open(dirfd, c->name, O_WRONLY | O_CREAT | O_EXCL, c->mode & 07777);

		rc = MIN(fd, 0);
		if (fd >= 0)
			ckpt_sys.close(fd);
	}
	reply_new(c, dirfd, rc);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct call c = call_that_makes(req, parent, name, run_mknod);

	(void)rdev;
	c.mode = mode;
	c.committed = amend_make;
	c.reopens = c.makes = true;
	if (S_ISREG(mode) && !control_is_array(c.node))
		call_run(&c);
	else
		reply_error(req, control_refusal(c.node)); // no devices, FIFOs or sockets
}

static void run_symlink(struct call *c)
{
	CLEANUP_FD int dirfd = open_parent(c);
	int rc = MIN(dirfd, 0);

	if (!rc)
		rc = ckpt_sys.symlink(c->data, dirfd, c->name);
	if (!rc && !c->step)
		others_tell_at(c->fs, dirfd, c->name);
	reply_new(c, dirfd, rc);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct call c = call_that_makes(req, parent, name, run_symlink);
	CLEANUP_FREE char *copy = strdup(target);

	c.data = copy;
	c.data_len = strlen(target);
	c.committed = amend_make;
	c.reopens = c.makes = true;
	if (copy && !control_is_array(c.node))
		call_run(&c);
	else
		reply_error(req, copy ? -EROFS : -ENOMEM);
}

static int readlink_live(struct ckpt_fs *fs, struct node *n, char *target, size_t cap)
{
	CLEANUP_FD int fd = node_open(fs, n, O_PATH | O_NOFOLLOW);
	ssize_t len;

	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	len = readlinkat(fd, "", target, cap - 1);
	if (len < 0)
		return -errno;
	target[len] = '\0';
	return 0;
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct ckpt_fs *fs = fs_of(req);
	struct node *n = node_of(fs, ino);
	char target[PATH_MAX];
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct place p;
	int rc;

	if (n->kind == NODE_LATEST) {
		fuse_reply_readlink(req, n->target);
		return;
	}
	if (n->kind == NODE_CONTROL) {
		rc = control_conflicts_readlink(fs, n, target);
		if (rc)
			reply_error(req, rc);
		else
			fuse_reply_readlink(req, target);
		return;
	}
	rc = place_of(fs, n, &p);
	if (rc) {
		reply_error(req, rc);
		return;
	}
	if (place_is_committed(&p)) {
		rc = entry_of_node(n, &p, &m, &e);
		if (!rc) {
			snprintf(target, sizeof(target), "%s", e.target ? e.target : "");
			ckpt_manifest_unref(m);
		}
	} else {
		rc = readlink_live(fs, n, target, sizeof(target));
	}
	place_done(&p);
	if (rc)
		reply_error(req, rc);
	else
		fuse_reply_readlink(req, target);
}

static int link_live(struct call *c, int dirfd)
{
	char path[32];
	CLEANUP_FD int from = node_open(c->fs, c->other, O_PATH | O_NOFOLLOW);
	int rc = from < 0 ? 0
			  : ckpt_share_chunks_guard(c->other_step, from,
						    ""); // each name of it would be a file of its own

	if (rc)
		return rc;
	if (c->step != c->other_step)
		return -EXDEV;
	if (from < 0)
		return -ESTALE;
	if (draft_is_of(c->fs, c->other))
		return -EBUSY; // its content would show before its end
	// The descriptor is the file itself, whatever happens to its names meanwhile.
	snprintf(path, sizeof(path), "/proc/self/fd/%d", from);
	return linkat(AT_FDCWD, path, dirfd, c->name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

// node is the new parent, other the file.
static void run_link(struct call *c)
{
	CLEANUP_FD int dirfd = open_parent(c);
	struct fuse_entry_param e = {0};
	int rc = dirfd < 0 ? dirfd : link_live(c, dirfd);

	if (!rc)
		rc = lookup_child(c->fs, c->node, c->name, &e);
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

static int share_committed(struct call *c, int dirfd, struct node *n)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct place p;
	int rc = place_of(c->fs, n, &p);

	if (rc)
		return rc;
	rc = place_is_committed(&p) ? entry_of_node(n, &p, &m, &e) : -ESTALE;
	if (!rc) {
		rc = ckpt_share_entry(p.step, m, e.index, dirfd, c->name);
		ckpt_manifest_unref(m);
	}
	place_done(&p);
	return rc;
}

// The same of a committed file, which stands there as a shared one: data is the node.
static void run_share(struct call *c)
{
	CLEANUP_FD int dirfd = open_parent(c);
	struct fuse_entry_param e = {0};
	struct node *n;
	int rc;

	memcpy(&n, c->data, sizeof(n)); // its lookup count is held by the request
	rc = dirfd < 0 ? dirfd : share_committed(c, dirfd, n);
	if (!rc)
		rc = lookup_child(c->fs, c->node, c->name, &e);
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

// It has no raw file that could have another name, and is copied.
static bool is_cold(struct node *n, const struct place *p)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;

	bool is;

	if (entry_of_node(n, p, &m, &e))
		return false;
	is = e.content == CKPT_CONTENT_CHUNKS && !ckpt_step_has_raw(p->step, m, e.index);
	ckpt_manifest_unref(m);
	return is;
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	struct call c = call_that_makes(req, new_parent, new_name, run_link);
	struct node *n = node_of(c.fs, ino);
	bool copies = false;
	struct place p;

	if (n->kind != NODE_FILES || control_is_array(c.node)) {
		reply_error(req, control_is_array(c.node) ? -EROFS : control_refusal(n));
		return;
	}
	if (!place_of(c.fs, n, &p) && place_is_committed(&p)) {
		c.run = run_share;
		c.data = (char *)&n;
		c.data_len = sizeof(struct node *);
		copies = is_cold(n, &p);
	} else {
		c.other = n;
	}
	place_done(&p);
	c.committed = amend_link;
	c.reopens = c.makes = true;
	if (copies)
		call_again(&c);
	else
		call_run(&c);
}
