// Requests about the bytes of open files that are neither reads nor writes: space, copies, holes.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/store/room.h"
#include "core/view/array_file.h"
#include "fs/amend.h"
#include "fs/call.h"
#include "fs/handle.h"
#include "fs/limit.h"
#include "fs/ops.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <sys/stat.h>

#define COPY_RANGE_BYTES                                                                                               \
	((size_t)64 << 20) // of one request: who copies more asks again, and can be interrupted between

// Modes of fallocate(2).
#define TAKES_NOTHING (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)

static int give_space(struct ckpt_fs *fs, struct handle *h, int mode, off_t offset, off_t length, bool *ret_limited)
{
	int fd, rc = h->amend ? amend_write_begin(fs, h) : unwritten_begin(fs, h);

	if (rc)
		return rc;
	fd = handle_writer(h);
	rc = fd < 0 ? fd : mode & TAKES_NOTHING ? 0 : limit_write(fs, h, fd, offset, (uint64_t)length);
	*ret_limited = rc;
	if (!rc && fallocate(fd, mode, offset, length))
		rc = -errno;
	if (fd >= 0)
		ckpt_sys.close(fd);
	if (h->amend)
		amend_write_end(h);
	return rc;
}

struct space {
	int mode;
	off_t offset, length;
};

static void run_fallocate(struct call *c)
{
	const struct space *s = (const struct space *)c->data;
	struct handle *h = handle_of(&c->fi);
	bool limited = false;
	int rc = give_space(c->fs, h, s->mode, s->offset, s->length, &limited);

	if (ckpt_is_full(rc) && !limited && ckpt_room_make(*ckpt_room_of(c->fs->store), (uint64_t)s->length))
		rc = give_space(c->fs, h, s->mode, s->offset, s->length, &limited);
	reply_error(c->req, rc);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	struct space s = {mode, offset, length};
	struct call c = {
		.run = run_fallocate, .req = req, .fs = fs_of(req), .node = node_of(fs_of(req), ino), .fi = *fi};

	c.data = (char *)&s;
	c.data_len = sizeof(s);
	if (h->node->kind != NODE_FILES || !h->writes)
		reply_error(req, h->writes ? -EOPNOTSUPP : -EBADF);
	else
		call_detach(&c); // it waits for the disk
}

struct copy {
	struct handle *in, *out;
	off_t off_in, off_out;
	size_t len;
};

// Who copies asks for more than there is.
static uint64_t left_of(int fd, off_t offset, size_t len)
{
	struct stat st;

	return fstat(fd, &st) ? len : MIN((uint64_t)len, (uint64_t)MAX(st.st_size - offset, 0));
}

static void run_copy(struct call *c)
{
	struct copy *copy = (struct copy *)c->data;
	int in = handle_backing(c->fs, copy->in);
	int rc = in < 0             ? in
		 : copy->out->amend ? amend_write_begin(c->fs, copy->out)
				    : unwritten_begin(c->fs, copy->out);
	ssize_t n = rc;

	if (!rc) {
		CLEANUP_FD int fd = handle_writer(copy->out);

		size_t len = MIN(copy->len, COPY_RANGE_BYTES);

		n = fd < 0 ? fd : limit_write(c->fs, copy->out, fd, copy->off_out, left_of(in, copy->off_in, len));
		if (!n) {
			n = copy_file_range(in, &copy->off_in, fd, &copy->off_out, len, (unsigned)c->flags);
			if (n < 0)
				n = -errno;
		}
		if (copy->out->amend)
			amend_write_end(copy->out);
	}
	if (n < 0)
		reply_error(c->req, (int)n);
	else
		fuse_reply_write(c->req, (size_t)n);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct copy copy = {handle_of(fi_in), handle_of(fi_out), off_in, off_out, len};
	struct call c = {
		.run = run_copy,
		.req = req,
		.fs = fs_of(req),
		.node = copy.out->node,
		.data = (char *)&copy,
		.data_len = sizeof(copy),
		.flags = flags,
	};

	(void)ino_in;
	(void)ino_out;
	if (copy.in->node->kind == NODE_FILES && copy.out->node->kind == NODE_FILES && copy.out->writes)
		call_detach(&c); // it waits for the disk
	else
		reply_error(req, -EXDEV);
}

// In packs nothing is a hole.
static void seek_packed(fuse_req_t req, const struct handle *h, off_t offset, int whence)
{
	uint64_t bytes = h->array ? ckpt_array_file_bytes(h->array) : ckpt_file_bytes(handle_packed(h));

	if (offset < 0 || (uint64_t)offset >= bytes)
		reply_error(req, -ENXIO);
	else if (whence == SEEK_DATA || whence == SEEK_HOLE)
		fuse_reply_lseek(req, whence == SEEK_DATA ? offset : (off_t)bytes);
	else
		reply_error(req, -EINVAL);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	int fd = h->array ? -EXDEV : h->node->kind == NODE_FILES || h->copy ? handle_backing(fs_of(req), h) : -EINVAL;
	off_t at;

	(void)ino;
	if (fd == -EXDEV) {
		seek_packed(req, h, offset, whence);
		return;
	}
	if (fd < 0) {
		reply_error(req, fd);
		return;
	}
	at = lseek(fd, offset, whence); // the offset of this descriptor is used for nothing else
	if (at < 0)
		reply_error(req, -errno);
	else
		fuse_reply_lseek(req, at);
}
