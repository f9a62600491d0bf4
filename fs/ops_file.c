#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/change.h"
#include "core/save/share_chunks.h"
#include "core/save/stage.h"
#include "core/store/room.h"
#include "fs/amend.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/complete_watch.h"
#include "fs/control.h"
#include "fs/control_file.h"
#include "fs/draft.h"
#include "fs/durable.h"
#include "fs/folder.h"
#include "fs/handle.h"
#include "fs/limit.h"
#include "fs/look_again.h"
#include "fs/marker.h"
#include "fs/ops.h"
#include "fs/others.h"
#include "fs/restage.h"
#include "fs/unstage.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define VIEWS_MAX 4                 // of a read in packs: where chunks are this small, it is copied
#define COPY_READ_BYTES (128 << 10) // reads up to this size are copied; a pipe for splice costs more

// --- create and open --------------------------------------------------------------------------------------------------

// What was made under the name.
struct created {
	int fd;     // reads the file
	int writer; // writes it, where we do and not the kernel; else -1
	bool made;
};

static void created_done(struct created *created)
{
	if (created->fd >= 0)
		ckpt_sys.close(created->fd);
	if (created->writer >= 0)
		ckpt_sys.close(created->writer);
}

// The mode of a new file need not let even its owner write it or read it: only who makes it may, with the descriptor that
// made it. So where we are to write it is made with one that does.
static int make_file(struct call *c, int dirfd, struct created *created)
{
	bool we_write = !c->fs->passthrough && (c->fi.flags & O_ACCMODE) != O_RDONLY;
	// Else read-only and yet new: the kernel opens the file again with the client's flags, and a descriptor of ours that
	// can write would stand in the way of the commit's lease.
	int flags = we_write ? O_RDWR | (c->fi.flags & O_SYNC) : O_RDONLY;
	int fd = ckpt_sys.open(dirfd, c->name, flags | O_CREAT | O_EXCL, c->mode & 07777);

	if (fd < 0)
		return fd;
	created->made = true;
	c->fi.flags &= ~O_TRUNC; // there is nothing to take away
	if (!we_write) {
		created->fd = fd;
		return 0;
	}
	created->writer = fd;
	created->fd = ckpt_sys.open(dirfd, c->name, O_RDONLY | O_NONBLOCK, 0);
	if (created->fd == -EACCES) {
		created->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		return created->fd < 0 ? -errno : 0;
	}
	return MIN(created->fd, 0);
}

static int create_file(struct call *c, int dirfd, struct created *created)
{
	struct ckpt_step *taken;
	int rc = c->step ? -ENOENT : folder_find(c->fs, c->node, c->name, &taken);

	if (!rc) {
		ckpt_step_unref(taken);
		return -EISDIR;
	}
	if (rc != -ENOENT)
		return rc;
	rc = make_file(c, dirfd, created);
	// It has come since it was looked up: the kernel looks again, and asks whether this client may open it.
	return rc == -EEXIST && !(c->fi.flags & O_EXCL) ? -ESTALE : rc;
}

static void reply_created(struct call *c, const struct fuse_entry_param *e)
{
	if (fuse_reply_create(c->req, e, &c->fi) != -ENOENT)
		return;
	amend_release_unanswered(c->fs, handle_of(&c->fi));
	node_forget(c->fs, node_of(c->fs, e->ino), 1);
}

static void run_create(struct call *c)
{
	struct draft *draft = NULL;
	CLEANUP(created_done) struct created created = {.fd = -1, .writer = -1};
	struct fuse_entry_param e = {0};
	CLEANUP_FD int dirfd = -1;
	int rc;

	if (!c->step && !c->settled && restage_is_due(c->fs, c->node, c->name)) {
		restage_then(c, false);
		return;
	}
	rc = check_new_name(c->fs, c->node, c->step, c->name);
	if (!rc) {
		dirfd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
		rc = MIN(dirfd, 0);
	}
	if (!rc)
		rc = limit_create(c);
	if (!rc)
		rc = draft_begin_new(c, dirfd, &draft);
	if (!rc)
		rc = create_file(c, draft ? draft_dirfd(draft) : dirfd, &created);
	if (ckpt_is_full(rc) && ckpt_room_make(*ckpt_room_of(c->fs->store), 0))
		rc = create_file(c, draft ? draft_dirfd(draft) : dirfd, &created);
	if (!rc)
		rc = adopt_created(c->fs, c->req, c->node, draft ? draft_dirfd(draft) : dirfd, c->name, created.fd, &e);
	if (!rc && draft) {
		rc = draft_made(c, draft, node_of(c->fs, e.ino), created.fd);
		e.entry_timeout = TIMEOUT_NONE;
		if (rc)
			node_forget(c->fs, node_of(c->fs, e.ino), 1);
	}
	if (!rc) {
		struct node *n = node_of(c->fs, e.ino);
		int fd = TAKE_FD(created.fd), writer = TAKE_FD(created.writer);

		rc = !draft && complete_watches_close(c->fs, c->node, c->step, c->name)
			     ? amend_serve(c, n, fd, writer, true)
			     : handle_open(c->fs, c->req, n, fd, writer, c->step, false, &c->fi);
		if (!rc && c->step)
			handle_of(&c->fi)->writer.process = c->process;
		if (rc)
			node_forget(c->fs, node_of(c->fs, e.ino), 1);
	}
	if (rc && draft)
		draft_drop_new(c->fs, draft);
	else if (draft)
		draft_joined(c->fs, c->req, draft, handle_of(&c->fi), 0);
	else if (rc && created.made)
		ckpt_sys.unlink(dirfd, c->name, 0); // a create that fails makes nothing
	if (rc)
		reply_error(c->req, rc);
	else
		reply_created(c, &e);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {.run = run_create, .req = req, .fs = fs, .mode = mode, .fi = *fi};

	c.node = beside_make(fs, node_of(fs, parent), name, fuse_req_ctx(req)->pid);
	snprintf(c.name, sizeof(c.name), "%s", name);
	if (c.node->kind == NODE_CONTROL) {
		control_create(&c);
		return;
	}
	if (marker_is_here(fs, c.node, name)) {
		marker_create(&c);
		return;
	}
	c.committed = amend_create;
	c.reopens = c.makes = true;
	limit_run(&c);
}

static void reply_opened(struct ckpt_fs *fs, fuse_req_t req, struct fuse_file_info *fi, int rc)
{
	if (rc)
		reply_error(req, rc);
	else if (fuse_reply_open(req, fi) == -ENOENT)
		amend_release_unanswered(fs, handle_of(fi));
}

// In a session that only adds, who has a file open for writing may be joined; what was closed stays.
static bool was_closed(struct node *n)
{
	struct node_use *use = node_used(n);

	if (!use)
		return true;
	LOCK_SCOPE(&use->lock);
	return !use->write_opens;
}

// Unless the kernel itself has it open already.
static bool is_watched(const struct call *c)
{
	bool is;

	if ((c->fi.flags & O_ACCMODE) == O_RDONLY)
		return false; // it only cuts it off
	names_read_lock(c->fs);
	is = c->node->names && complete_watches_close(c->fs, c->node->names->parent, c->step, c->node->names->text);
	names_unlock(c->fs);
	if (!is || node_use(c->node))
		return false;
	LOCK_SCOPE(&c->node->use->lock);
	return c->node->use->io != IO_PASSTHROUGH;
}

// The bytes of a stand-in for chunks of another step are not there to be written among.
static int guard_write(struct call *c)
{
	CLEANUP_FD int fd = c->step ? node_open(c->fs, c->node, O_PATH | O_NOFOLLOW) : -1;

	return fd < 0 ? 0 : ckpt_share_chunks_guard(c->step, fd, ""); // the open itself finds why
}

// It is emptied as any file, but only by an open that succeeds: after one that fails it still stands for its chunks.
static int empty_of_chunks(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	int fd = c->step ? __atomic_load_n(&h->node->use->fd, __ATOMIC_RELAXED) : -1;
	int rc = fd < 0 ? 0 : ckpt_share_chunks_drop(fd);

	if (rc && h->amend)
		amend_release(c->fs, NULL, h);
	else if (rc)
		handle_release(c->fs, c->req, h);
	return rc;
}

static void run_open_for_writing(struct call *c)
{
	struct draft *draft = NULL;
	int rc = c->step && ckpt_staging_of(c->step)->add_only && was_closed(c->node) ? -EEXIST : 0;
	bool second = false, cuts = c->fi.flags & O_TRUNC;

	if (!rc && node_twin(c->node))
		rc = unwritten_open_staged(c);
	if (!rc && !c->settled)
		second = unstage_by_second_write(c->fs, c->node, c->step, c->process);
	if (second && (c->fi.flags & O_TRUNC)) {
		unstage_then(c, false);
		return;
	}
	if (!rc && !cuts)
		rc = guard_write(c);
	if (!rc)
		rc = limit_open(c);
	if (!rc)
		rc = draft_enter(c, &draft);
	if (rc == -EINPROGRESS)
		return;
	if (!rc)
		rc = !draft && is_watched(c) ? amend_serve(c, c->node, -1, -1, false)
					     : handle_open(c->fs, c->req, c->node, -1, -1, c->step, false, &c->fi);
	if (!rc && cuts)
		rc = empty_of_chunks(c);
	if (draft)
		draft_joined(c->fs, c->req, draft, rc ? NULL : handle_of(&c->fi), rc);
	if (!rc && c->step) {
		handle_of(&c->fi)->writer.process = c->process;
		handle_of(&c->fi)->rewrites_ns = second ? ckpt_sys.now_ns() : 0;
	}
	reply_opened(c->fs, c->req, &c->fi, rc);
}

// Who is not root may not be allowed to, and is told so now. *ret_fd stays -1 where all else is for the first read.
static int open_now(struct ckpt_fs *fs, const struct place *p, struct ckpt_manifest *m, const struct ckpt_entry *e,
		    int *ret_fd)
{
	const struct stat attr = {.st_mode = S_IFREG | e->mode, .st_uid = e->uid, .st_gid = e->gid};
	bool now = e->bytes > SMALL_FILE_BYTES || geteuid() != 0;
	int fd = -EXDEV;

	if (now && (e->content != CKPT_CONTENT_CHUNKS || ckpt_step_has_raw(p->step, m, e->index)))
		fd = open_committed(fs, p, m, e->index);
	else if (geteuid() != 0 && !attr_allows(&attr, R_OK))
		fd = -EACCES;
	if (fd >= 0)
		*ret_fd = fd;
	return fd == -EXDEV ? 0 : MIN(fd, 0);
}

static int guard_read(struct ckpt_fs *fs, struct node *n, struct ckpt_step *step)
{
	CLEANUP_FD int fd = step ? node_open(fs, n, O_PATH | O_NOFOLLOW) : -1;

	return fd < 0 ? 0 : ckpt_share_chunks_guard(step, fd, ""); // the open itself finds why
}

static int open_for_reading(struct ckpt_fs *fs, fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	// It knows the file itself by the name, of which a twin is open that may write it.
	bool leads = unwritten_any(n) && !look_again_is_told(fs, fuse_req_ctx(req)->pid);
	CLEANUP_FD int kept = leads ? -1 : look_again_take(fs, fuse_req_ctx(req)->pid, n);
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct place p;
	bool committed;
	int fd = -1, rc = leads ? -ESTALE : draft_read_check(req, n);

	if (rc)
		return rc;
	rc = place_of(fs, n, &p);
	// The kernel looks again who has the name of what was copied, which others have still open.
	if (rc && (rc != -ESTALE || __atomic_load_n(&n->copied, __ATOMIC_RELAXED)))
		return rc;
	// Without a place it has lost its last name since it was looked up: it opens all the same, as everywhere.
	committed = !rc && place_is_committed(&p) && !amend_is_changing(n);
	rc = !rc && !place_is_committed(&p) && kept < 0 && handle_leads_elsewhere(fs, n) ? -ESTALE : 0;
	if (committed) {
		rc = entry_of_node(n, &p, &m, &e);
		if (!rc) {
			rc = open_now(fs, &p, m, &e, &fd);
			ckpt_manifest_unref(m);
		} else if (rc == -ESTALE && amend_is_on(n)) {
			committed = false; // it is being added at this moment: no version has it yet
			rc = 0;
		}
	} else if (!rc) {
		rc = guard_read(fs, n, p.step);
	}
	if (!rc)
		rc = handle_open(fs, req, n, committed ? fd : TAKE_FD(kept), -1, NULL, committed, fi);
	if (!rc && !committed)
		handle_uses(handle_of(fi), p.step);
	place_done(&p);
	return rc;
}

static void run_open_for_reading(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	int rc = open_for_reading(fs, req, n, fi);

	if (rc == -ESTALE)
		look_again_told(fs, fuse_req_ctx(req)->pid);
	reply_opened(fs, req, fi, rc);
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {.run = run_open_for_writing, .req = req, .fs = fs, .node = node_of(fs, ino), .fi = *fi};

	if (c.node->kind == NODE_CONTROL) {
		c.run = control_open;
		c.waits_for_clients = true; // a program of theirs, which decides
		call_detach(&c);            // or it walks every session
	} else if (c.node->kind == NODE_MARKER) {
		marker_open(req, c.node, fi);
	} else if ((fi->flags & O_ACCMODE) == O_RDONLY && !(fi->flags & O_TRUNC)) {
		run_open_for_reading(req, c.node, fi);
	} else {
		c.opens = c.reopens = c.makes = true;
		c.committed = amend_pending;
		c.before_reopen = limit_reopen;
		c.copies = true;
		limit_run_open(&c);
	}
}

// --- read and write through the daemon --------------------------------------------------------------------------------

// Of a file in packs: all that the kernel asked for, since less would be taken for the end of the file.
struct packed_read {
	struct ckpt_file *packed;
	size_t size;
	uint64_t offset;
};

static ssize_t read_packed(const struct packed_read *r, char *data)
{
	size_t done = 0;
	ssize_t n = 1;

	for (; done < r->size && n > 0; done += (size_t)MAX(n, 0))
		n = ckpt_file_read(r->packed, data + done, r->size - done, r->offset + done);
	return n < 0 ? n : (ssize_t)done;
}

static int reply_copy(fuse_req_t req, const struct packed_read *r)
{
	CLEANUP_FREE char *data = malloc(r->size);
	ssize_t n = data ? read_packed(r, data) : -ENOMEM;

	if (n < 0)
		return (int)n;
	fuse_reply_buf(req, data, (size_t)n);
	return 0;
}

// The same where it lies in memory, in a chunk or more.
struct packed_views {
	struct ckpt_file_view views[VIEWS_MAX];
	struct iovec iov[VIEWS_MAX];
	unsigned count;
	size_t size; // of all
};

static void let_go_of_views(struct packed_views *v, bool used)
{
	for (unsigned i = 0; i < v->count; i++)
		ckpt_file_view_done(&v->views[i], used ? v->iov[i].iov_len : 0);
	v->count = 0;
	v->size = 0;
}

// -EAGAIN: there is one that others, or nobody, have read yet; who holds one waits for no other. -EXDEV: it has to be read.
static int view_packed(const struct packed_read *r, size_t size, bool at_once, struct packed_views *v)
{
	do {
		struct ckpt_file_view *view = &v->views[v->count];
		int rc = v->count == VIEWS_MAX
				 ? -EXDEV
				 : ckpt_file_view(r->packed, r->offset + v->size, at_once || v->count, view);

		if (rc)
			return rc;
		v->iov[v->count++] = (struct iovec){(void *)view->data, MIN(size - v->size, view->len)};
		v->size += v->iov[v->count - 1].iov_len;
	} while (v->size < size);
	return 0;
}

static int wait_for_chunk(const struct packed_read *r, uint64_t offset)
{
	struct ckpt_file_view view;
	int rc = ckpt_file_view(r->packed, offset, false, &view);

	if (!rc)
		ckpt_file_view_done(&view, 0);
	return rc;
}

// Without a copy where it can be.
static int reply_packed(fuse_req_t req, const struct packed_read *r, bool at_once)
{
	uint64_t bytes = ckpt_file_bytes(r->packed);
	size_t size = (size_t)MIN(r->size, bytes - MIN(r->offset, bytes));
	struct packed_views v = {.count = 0};
	int rc = view_packed(r, size, at_once, &v);

	for (unsigned tries = 1; rc == -EAGAIN && !at_once && tries < VIEWS_MAX; tries++) {
		uint64_t missing = r->offset + v.size;

		let_go_of_views(&v, false);
		rc = wait_for_chunk(r, missing);
		if (!rc)
			rc = view_packed(r, size, at_once, &v);
	}
	if (!rc)
		fuse_reply_iov(req, v.iov, (int)v.count);
	let_go_of_views(&v, !rc);
	if (rc == -EXDEV && at_once)
		return -EAGAIN;
	return (rc == -EXDEV || rc == -EAGAIN) && !at_once ? reply_copy(req, r) : rc;
}

static void run_read_packed(struct call *c)
{
	int rc = reply_packed(c->req, (const struct packed_read *)c->data, false);

	if (rc)
		reply_error(c->req, rc);
}

// What has to be fetched and decoded is so on another thread.
static void read_from_packs(fuse_req_t req, struct handle *h, size_t size, off_t offset)
{
	struct packed_read r = {handle_packed(h), size, (uint64_t)offset};
	struct call c = {.run = run_read_packed,
			 .req = req,
			 .fs = fs_of(req),
			 .node = h->node,
			 .data = (char *)&r,
			 .data_len = sizeof(r)};
	int rc = reply_packed(req, &r, true);

	if (rc == -EAGAIN)
		call_detach(&c);
	else if (rc)
		reply_error(req, rc);
}

static void read_file(fuse_req_t req, struct handle *h, size_t size, off_t offset)
{
	int fd = handle_backing(fs_of(req), h);
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT(size);

	if (fd == -EXDEV) {
		read_from_packs(req, h, size, offset);
		return;
	}
	if (fd < 0) {
		reply_error(req, fd);
		return;
	}
	if (size <= COPY_READ_BYTES) {
		CLEANUP_FREE char *data = malloc(size);
		ssize_t n = data ? ckpt_sys.pread(fd, data, size, offset) : -ENOMEM;

		if (n < 0)
			reply_error(req, (int)n);
		else
			fuse_reply_buf(req, data, (size_t)n);
		return;
	}
	buf.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	buf.buf[0].fd = fd;
	buf.buf[0].pos = offset;
	fuse_reply_data(req, &buf, FUSE_BUF_SPLICE_MOVE);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	if (h->text)
		control_read(req, h, size, offset);
	else if (h->array)
		control_arrays_read(req, h, size, offset);
	else if (h->marker)
		marker_read(req, h, size, offset);
	else
		read_file(req, h, size, offset);
}

// A write that the disk did not take is a hole in the file: a commit must not pass over it in silence.
static void remember_failure(struct ckpt_fs *fs, struct handle *h, int rc)
{
	struct ckpt_step *step = node_step(fs, h->node);

	(void)draft_synced(fs, h, rc, rc);
	if (step)
		ckpt_stage_synced(step, h->node->number, 0, 0, rc);
	ckpt_step_unref(step);
}

// The rest of `in`, which is one buffer. *ret_limited: a limit refused it, and not the disk.
static ssize_t write_data(struct ckpt_fs *fs, struct handle *h, struct fuse_bufvec *in, off_t offset,
			  const struct fuse_file_info *fi, bool *ret_limited)
{
	size_t len = fuse_buf_size(in) - in->off;
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(len);
	struct stat st;
	int rc;

	if (h->fd < 0)
		return -EBADF;
	rc = limit_write(fs, h, h->fd, offset, len);
	*ret_limited = rc;
	if (rc)
		return rc;
	if (fi->kill_suidgid && !fstat(h->fd, &st))
		fchmod(h->fd, st.st_mode & 07777 & ~(mode_t)(S_ISUID | (st.st_mode & S_IXGRP ? S_ISGID : 0)));
	out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY;
	out.buf[0].fd = h->fd;
	out.buf[0].pos = offset;
	return fuse_buf_copy(&out, in, FUSE_BUF_SPLICE_MOVE);
}

static ssize_t write_once(struct ckpt_fs *fs, struct handle *h, struct fuse_bufvec *in, off_t offset,
			  const struct fuse_file_info *fi, bool *ret_limited)
{
	int rc = h->amend ? amend_write_begin(fs, h) : 0;
	ssize_t n = rc ? rc : write_data(fs, h, in, offset, fi, ret_limited);

	if (!rc && h->amend)
		amend_write_end(h);
	return n;
}

static ssize_t write_or_make_room(struct ckpt_fs *fs, struct handle *h, struct fuse_bufvec *in, off_t offset,
				  const struct fuse_file_info *fi)
{
	size_t len = fuse_buf_size(in) - in->off;
	bool limited = false;
	ssize_t n = write_once(fs, h, in, offset, fi, &limited);

	// A refused one has taken nothing of `in`. Room is made without the lock of the file.
	if (ckpt_is_full((int)n) && !limited && ckpt_room_make(*ckpt_room_of(fs->store), len))
		n = write_once(fs, h, in, offset, fi, &limited);
	if (ckpt_is_full((int)n) && !limited)
		draft_lacks_room(fs, h);
	return n;
}

static ssize_t write_file(struct ckpt_fs *fs, struct handle *h, struct fuse_bufvec *in, off_t offset,
			  const struct fuse_file_info *fi)
{
	size_t len = fuse_buf_size(in);
	ssize_t n = write_or_make_room(fs, h, in, offset, fi);

	// Of half a write with O_DIRECT the kernel makes EIO, as if the disk were broken: the rest says why it is not taken.
	while (fi->flags & O_DIRECT && n > 0 && (size_t)n < len) {
		ssize_t more = write_or_make_room(fs, h, in, offset + n, fi);

		n = more > 0 ? n + more : more < 0 ? more : -EIO;
	}
	// Pages of a mapping are written behind the client's back: a full disk, and half a write, would be told to nobody,
	// and the pages would show what the disk does not have.
	if (fi->writepage && n >= 0 && (size_t)n < len)
		n = -EIO;
	if (n == -EIO || (fi->writepage && n < 0))
		remember_failure(fs, h, (int)n);
	return n;
}

// What we keep ourselves.
static ssize_t write_text(struct handle *h, struct fuse_bufvec *in, off_t offset)
{
	size_t len = fuse_buf_size(in);
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(len);
	CLEANUP_FREE char *data = malloc(len + 1);
	ssize_t n;

	if (!data)
		return -ENOMEM;
	out.buf[0].mem = data;
	n = fuse_buf_copy(&out, in, 0);
	return n < 0       ? n
	       : h->marker ? marker_write(h, data, (size_t)n, offset)
			   : control_write(h, data, (size_t)n, offset);
}

struct first_write {
	off_t offset;
	char data[];
};

static void run_first_write(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	struct first_write *w = (struct first_write *)c->data;
	struct fuse_bufvec in = FUSE_BUFVEC_INIT(c->data_len - sizeof(*w));
	ssize_t n = unwritten_begin(c->fs, h);

	in.buf[0].mem = w->data;
	if (!n)
		n = write_file(c->fs, h, &in, w->offset, &c->fi);
	if (n < 0)
		reply_error(c->req, (int)n);
	else
		fuse_reply_write(c->req, (size_t)n);
}

// It reopens a step, and copies the file: on a thread of its own.
static int detach_first_write(fuse_req_t req, struct node *n, struct fuse_bufvec *in, off_t offset,
			      struct fuse_file_info *fi)
{
	size_t len = fuse_buf_size(in);
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(len);
	CLEANUP_FREE struct first_write *w = malloc(sizeof(*w) + len);
	struct call c = {.run = run_first_write, .req = req, .fs = fs_of(req), .node = n, .fi = *fi};
	ssize_t got;

	if (!w)
		return -ENOMEM;
	w->offset = offset;
	out.buf[0].mem = w->data;
	got = fuse_buf_copy(&out, in, 0);
	if (got < 0)
		return (int)got;
	c.data = (char *)w;
	c.data_len = sizeof(*w) + (size_t)got;
	call_detach(&c);
	return 0;
}

void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t offset, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	ssize_t n;

	if (unwritten_is(h)) {
		n = detach_first_write(req, node_of(fs_of(req), ino), in, offset, fi);
		if (!n)
			return;
	} else {
		n = h->marker || h->text ? write_text(h, in, offset) : write_file(fs_of(req), h, in, offset, fi);
	}
	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
}

// --- close ------------------------------------------------------------------------------------------------------------

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	if (h->marker) {
		marker_flush(req, h);
		return;
	}
	if (h->text) {
		control_flush(req, h);
		return;
	}
	if (h->amend) {
		amend_flush(req, h);
		return;
	}
	if (h->draft) {
		draft_flush(req, h);
		return;
	}
	handle_flushed(h, fuse_req_ctx(req)->pid);
	if (h->writes)
		others_tell_node(fs_of(req), h->node);
	reply_error(req, 0);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct handle *h = handle_of(fi);

	(void)ino;
	if (h->marker) {
		marker_release(req, h);
		return;
	}
	if (h->amend) {
		amend_release(fs, req, h);
		return;
	}
	if (h->draft) {
		draft_release(req, h);
		return;
	}
	if (h->rewrites_ns)
		unstage_if_rewritten(fs, h);
	if (h->node->kind == NODE_FILES)
		handle_release(fs, req, h);
	else
		control_release(fs, h);
	reply_error(req, 0);
}

// --- sync -------------------------------------------------------------------------------------------------------------

static void run_fsync(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	struct ckpt_step *step = node_step(c->fs, h->node);
	int64_t began = ckpt_sys.now_ns(), ctime_ns = 0;
	struct stat st;
	int rc, disk;

	// What the fsync covers is the state of before it: a change while it runs must show as another change time.
	if (!fstat(__atomic_load_n(&h->node->use->fd, __ATOMIC_RELAXED), &st))
		ctime_ns = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
	rc = handle_sync(h, c->flags, &disk);
	if (step)
		ckpt_stage_synced(step, h->node->number, ctime_ns, began, disk);
	rc = draft_synced(c->fs, h, rc, disk);
	if (!rc && step && !ckpt_step_has_manifest(ckpt_step_state(step)))
		rc = ckpt_stage_make_durable(step, true);
	if (!rc && step)
		rc = ckpt_change_publish(step);
	if (!rc && step && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		rc = durable_wait(step, (struct waiter){&c->fs->ending, fuse_req_ctx(c->req)->pid});
	ckpt_step_unref(step);
	reply_error(c->req, rc);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {
		.run = run_fsync, .req = req, .fs = fs, .node = node_of(fs, ino), .flags = datasync, .fi = *fi};

	if (c.node->kind == NODE_FILES)
		call_detach(&c); // it waits for the disk
	else
		reply_error(req, 0);
}
