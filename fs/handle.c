#include "fs/handle.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/store/room.h"
#include "core/view/array_file.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/call.h"
#include "fs/client.h"
#include "fs/complete_watch.h"
#include "fs/copy_up.h"
#include "fs/unwritten_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define WRITE_OUT_BYTES (1 << 20) // larger ones start towards the disk at their close

int handle_new(struct ckpt_fs *fs, struct node *n, int flags, struct handle **ret_handle)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h || node_use(n)) {
		free(h);
		return -ENOMEM;
	}
	h->node = n;
	h->flags = flags;
	h->fd = -1;
	node_ref(fs, n);
	*ret_handle = h;
	return 0;
}

void handle_uses(struct handle *h, struct ckpt_step *step)
{
	if (step && ckpt_stage_use(step))
		h->left = ckpt_step_ref(step);
}

void handle_free(struct ckpt_fs *fs, struct handle *h)
{
	ckpt_stage_writer_remove(&h->writer);
	if (h->left)
		ckpt_stage_unuse(h->left);
	ckpt_step_unref(h->left);
	if (h->fd >= 0)
		ckpt_sys.close(h->fd);
	ckpt_file_close(h->copy);
	ckpt_array_file_close(h->array);
	free(h->text);
	node_unref(fs, h->node);
	free(h);
}

static int reopen_for_writing(int fd, int flags)
{
	char path[32];
	int out;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	out = open(path,
		   (flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_NOFOLLOW)) | O_RDWR | O_CLOEXEC);
	return out < 0 ? -errno : out;
}

int handle_reopen_fd(int fd, int flags)
{
	return reopen_for_writing(fd, flags & ~O_DIRECT);
}

int handle_reopen(const struct handle *h)
{
	return handle_reopen_fd(h->node->use->fd, h->flags);
}

int handle_writer(const struct handle *h)
{
	int fd;

	if (h->fd < 0)
		return reopen_for_writing(h->node->use->fd, 0);
	fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

// The first open decides how the node is read and written until its last release. Called under the lock of its use.
static void choose_io(struct ckpt_fs *fs, fuse_req_t req, struct node *n, bool writes)
{
	n->use->io = IO_CACHED;
	if (writes && ckpt_room_is_short(*ckpt_room_of(fs->store)))
		return; // a full disk is to be seen by us: we may free some and try again
	if (!fs->passthrough || n->use->fd < 0 || node_twin(n) || amend_is_on(n) || complete_watches_node(fs, n))
		return;
	n->use->backing_id = fuse_passthrough_open(req, n->use->fd);
	if (n->use->backing_id > 0)
		n->use->io = IO_PASSTHROUGH;
}

static void run_write_out(struct call *c)
{
	sync_file_range(c->flags, 0, 0, SYNC_FILE_RANGE_WRITE);
	ckpt_sys.close(c->flags);
}

// So that little is dirty when the step is committed. On a thread of its own: it waits while the disk's queue is full.
static void start_write_out(struct node *n)
{
	struct call c = {.run = run_write_out};
	struct stat st;

	if (fstat(n->use->fd, &st) || st.st_size < WRITE_OUT_BYTES)
		return;
	c.flags = fcntl(n->use->fd, F_DUPFD_CLOEXEC, 0);
	if (c.flags >= 0)
		call_detach(&c);
}

static void let_go_of_backing(fuse_req_t req, struct node *n)
{
	if (n->use->io == IO_PASSTHROUGH && req)
		fuse_passthrough_close(req, n->use->backing_id);
	if (n->use->written)
		start_write_out(n);
	if (n->use->fd >= 0)
		ckpt_sys.close(__atomic_exchange_n(&n->use->fd, -1, __ATOMIC_RELAXED));
	ckpt_file_close(__atomic_exchange_n(&n->use->packed, NULL, __ATOMIC_ACQ_REL));
	n->use->io = IO_NONE;
	n->use->written = false;
	__atomic_store_n(&n->shown, 0, __ATOMIC_RELAXED);
	amend_end(n);
}

int handle_open_file(struct ckpt_fs *fs, struct node *n)
{
	struct statx stx;
	int fd = node_open(fs, n, O_RDONLY | O_NONBLOCK);

	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	if (statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) || !node_is_still(fs, n, &stx)) {
		ckpt_sys.close(fd);
		return -ESTALE;
	}
	return fd;
}

static void tell_damage(struct ckpt_fs *fs, const struct place *p)
{
	ckpt_errlog_add(fs->store->errlog, p->step->name, -EIO, "run `ckptfs verify` on the store",
			"the file of %s in the store is gone or changed", p->path);
}

int open_committed(struct ckpt_fs *fs, const struct place *p, struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_file *file;
	int fd, rc = ckpt_file_open(p->step, m, index, &file);

	if (rc == -EIO)
		tell_damage(fs, p);
	if (rc)
		return rc;
	fd = ckpt_file_take_fd(file);
	if (fd < 0)
		ckpt_file_close(file);
	return fd < 0 ? -EXDEV : fd;
}

// What a node is in its committed step.
struct raw {
	struct place place;
	struct ckpt_manifest *m; // a reference; NULL: nothing was found
	struct ckpt_entry entry;
};

// It tells of a manifest that is damaged, and a line of the error log may wait for its disk: not under a lock.
static int raw_find(struct ckpt_fs *fs, struct node *n, struct raw *ret_raw)
{
	int rc = place_of(fs, n, &ret_raw->place);

	if (rc)
		return rc;
	rc = place_is_committed(&ret_raw->place) ? entry_of_node(n, &ret_raw->place, &ret_raw->m, &ret_raw->entry)
						 : -ESTALE;
	if (rc)
		place_done(&ret_raw->place);
	return rc;
}

// Not under a lock: what is packed or warmed meanwhile is found anew. -EXDEV: there is no such file, and *ret_file reads it.
static int raw_open(const struct raw *raw, struct ckpt_file **ret_file)
{
	int fd, rc = ckpt_file_open(raw->place.step, raw->m, raw->entry.index, ret_file);

	if (rc)
		return rc;
	fd = ckpt_file_take_fd(*ret_file);
	if (fd >= 0)
		*ret_file = NULL;
	else
		ckpt_file_watch(*ret_file);
	return fd < 0 ? -EXDEV : fd;
}

static void raw_done(struct raw *raw)
{
	if (!raw->m)
		return;
	ckpt_manifest_unref(raw->m);
	place_done(&raw->place);
}

// fd or *packed is what was found in the step, else fd says why not; what is taken of it is set to none.
static int back_with(struct ckpt_fs *fs, struct node *n, int *fd, struct ckpt_file **packed)
{
	LOCK_SCOPE(&n->use->lock);

	if (!n->use->opens)
		return -ESTALE; // its last release came meanwhile, and nobody would close the descriptor
	if (n->use->fd >= 0)
		return n->use->fd;
	if (*packed && !n->use->packed)
		__atomic_store_n(&n->use->packed, TAKE_PTR(*packed), __ATOMIC_RELEASE);
	if (n->use->packed)
		return -EXDEV;
	if (*fd == -ESTALE)
		*fd = handle_open_file(fs, n); // the step was reopened since
	if (*fd < 0)
		return *fd;
	__atomic_store_n(&n->use->fd, TAKE_FD(*fd), __ATOMIC_RELAXED); // an fsync looks without the lock
	return n->use->fd;
}

static int back(struct ckpt_fs *fs, struct node *n)
{
	int found, result, fd = __atomic_load_n(&n->use->fd, __ATOMIC_RELAXED);
	struct ckpt_file *packed = NULL;
	struct raw raw = {0};

	if (fd >= 0)
		return fd;
	if (__atomic_load_n(&n->use->packed, __ATOMIC_ACQUIRE))
		return -EXDEV;
	found = raw_find(fs, n, &raw);
	fd = found ? found : raw_open(&raw, &packed);
	result = back_with(fs, n, &fd, &packed);
	if (!found && result == -EIO)
		tell_damage(fs, &raw.place);
	if (fd >= 0)
		ckpt_sys.close(fd);
	ckpt_file_close(packed);
	raw_done(&raw);
	return result;
}

int handle_backing(struct ckpt_fs *fs, struct handle *h)
{
	int fd = h->copy ? ckpt_file_fd(h->copy) : back(fs, h->node);

	return h->copy && fd < 0 ? -EXDEV : fd;
}

struct ckpt_file *handle_packed(const struct handle *h)
{
	return h->copy ? h->copy : __atomic_load_n(&h->node->use->packed, __ATOMIC_ACQUIRE);
}

void handle_back_all(struct ckpt_fs *fs, const struct ckpt_step *step)
{
	struct node **nodes;
	size_t count;

	(void)node_list_unbacked(fs, &nodes, &count);
	for (size_t i = 0; i < count; i++) {
		struct ckpt_step *of = node_step(fs, nodes[i]);

		if (of == step)
			(void)back(fs, nodes[i]); // who reads it is told
		ckpt_step_unref(of);
		node_unref(fs, nodes[i]);
	}
	free(nodes);
}

static void back_node(struct ckpt_fs *fs, uint64_t space, uint64_t number)
{
	struct node *n = node_find(fs, space, number);
	struct node_use *use = n ? node_used(n) : NULL;
	bool is_open = false;

	if (use) {
		ckpt_lock_take(&use->lock);
		is_open = use->opens;
		ckpt_lock_drop(&use->lock);
	}
	if (is_open)
		(void)back(fs, n);
	node_unref(fs, n);
}

void handle_back_file(struct ckpt_fs *fs, const struct ckpt_step *step, uint64_t number)
{
	back_node(fs, node_space(step), number);
	back_node(fs, SPACE_LIVE, number);
	back_node(fs, SPACE_TWIN, number);
}

void handle_back_child(struct ckpt_fs *fs, const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir,
		       const char *name)
{
	struct ckpt_entry e;

	if (ckpt_manifest_child(m, dir, name, &e.index))
		return;
	ckpt_manifest_entry(m, e.index, &e);
	if (e.type == CKPT_ENTRY_FILE)
		handle_back_file(fs, step, e.ino);
}

// Gives the kernel all of a small committed file with its first open, which is a request less than to be asked for it.
// Called under the lock of its use and while nobody has the node open: so no page of it is waiting for a read of ours. What goes
// wrong shows when it is read.
static void fill_cache(struct ckpt_fs *fs, struct node *n, const struct raw *raw)
{
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT(0);
	uint64_t bytes = raw->entry.bytes;
	CLEANUP_FREE char *data = NULL;
	CLEANUP_FD int fd = -1;

	if (n->use->cache_filled ||
	    (raw->m && (raw->entry.content == CKPT_CONTENT_NONE || raw->entry.ino != n->number)))
		return;
	__atomic_store_n(&n->use->cache_filled, true, __ATOMIC_RELAXED);
	if (!raw->m || ckpt_step_open_raw(raw->place.step, raw->m, raw->entry.index, &fd))
		return;
	data = bytes > 0 && bytes <= SMALL_FILE_BYTES ? malloc(bytes) : NULL;
	if (!data || ckpt_sys.pread(fd, data, bytes, 0) != (ssize_t)bytes)
		return;
	buf.buf[0].mem = data;
	buf.buf[0].size = bytes;
	(void)fuse_lowlevel_notify_store(fs->se, node_id(fs, n), 0, &buf, 0);
}

// Of one that is read from packs only its number is known.
static bool packed_leads_elsewhere_locked(struct ckpt_fs *fs, struct node *n)
{
	CLEANUP_FD int fd = node_open(fs, n, O_PATH | O_NOFOLLOW);
	struct statx stx;

	return fd == -ENOENT ||
	       (fd >= 0 && !statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) && !node_is_still(fs, n, &stx));
}

static bool leads_elsewhere_locked(struct ckpt_fs *fs, struct node *n)
{
	CLEANUP_FD int fd = -1;
	struct stat open, named;

	if (n->use->packed)
		return packed_leads_elsewhere_locked(fs, n);
	if (n->use->fd < 0 || amend_writes_copy(n))
		return false;
	fd = node_open(fs, n, O_PATH | O_NOFOLLOW);
	return fd == -ENOENT || (fd >= 0 && !fstat(n->use->fd, &open) && !fstat(fd, &named) &&
				 (open.st_ino != named.st_ino || open.st_dev != named.st_dev));
}

bool handle_leads_elsewhere(struct ckpt_fs *fs, struct node *n)
{
	struct node_use *use = node_used(n);

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	return use->opens && leads_elsewhere_locked(fs, n);
}

// raw: of a committed file, else NULL; looks: what has the name must be the file.
static int node_acquire(struct ckpt_fs *fs, fuse_req_t req, struct node *n, int fd, const struct raw *raw, bool writes,
			bool looks)
{
	LOCK_SCOPE(&n->use->lock);

	if (n->use->opens) {
		if (fd >= 0)
			ckpt_sys.close(fd);
		// A killed writer's file has lost its name, and who writes to it now would write to nothing.
		if (looks && (leads_elsewhere_locked(fs, n) || (amend_is_ending(n) && !node_has_place(fs, n))))
			return -ESTALE;
	} else {
		if (n->use->fd >= 0) { // another's first write came between (unwritten.h)
			if (fd >= 0)
				ckpt_sys.close(fd);
			fd = n->use->fd;
		}
		if (fd < 0 && !raw)
			fd = handle_open_file(fs, n);
		if (fd < 0 && !raw)
			return fd;
		__atomic_store_n(&n->use->fd, fd, __ATOMIC_RELAXED); // node_list_unbacked() looks without the lock
		choose_io(fs, req, n, writes);
		if (fd < 0)
			fill_cache(fs, n, raw);
	}
	__atomic_add_fetch(&n->use->opens, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&n->use->write_opens, writes, __ATOMIC_RELAXED); // a look comes without the lock
	n->use->written |= writes;
	if (writes)
		ckpt_room_opened(*ckpt_room_of(fs->store));
	return 0;
}

static void node_let_go(fuse_req_t req, struct node *n, const struct handle *h)
{
	LOCK_SCOPE(&n->use->lock);

	if (h->writer.process) {
		n->use->saved_by = h->writer.process;
		n->use->saved_ns = ckpt_sys.mono_ns();
	}
	__atomic_sub_fetch(&n->use->write_opens, h->writes, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&n->use->closed_writers, h->closed, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&n->use->ending_writers, h->ending, __ATOMIC_RELAXED);
	if (!__atomic_sub_fetch(&n->use->opens, 1, __ATOMIC_RELAXED))
		let_go_of_backing(req, n);
}

static int truncate_opened(struct handle *h, struct ckpt_step *step)
{
	CLEANUP_FD int fd = handle_writer(h);
	int rc = fd < 0 ? fd : ckpt_sys.ftruncate(fd, 0);

	if (!rc && step)
		ckpt_stage_rewritten(step, h->node->number);
	return rc;
}

static bool is_member(fuse_req_t req, gid_t group)
{
	gid_t groups[256];
	int count;

	if (fuse_req_ctx(req)->gid == group)
		return true;
	count = fuse_req_getgroups(req, (int)ARRAY_LEN(groups), groups); // reads /proc
	for (int i = 0; i < MIN(count, (int)ARRAY_LEN(groups)); i++)
		if (groups[i] == group)
			return true;
	return false;
}

int drop_setuid(fuse_req_t req, int fd)
{
	struct stat st;
	mode_t drop;

	if (fstat(fd, &st) || !(st.st_mode & (S_ISUID | S_ISGID)))
		return 0;
	drop = st.st_mode & S_ISUID;
	if ((st.st_mode & S_ISGID) && ((st.st_mode & S_IXGRP) || !is_member(req, st.st_gid)))
		drop |= S_ISGID;
	return drop && fchmod(fd, st.st_mode & 07777 & ~drop) ? -errno : 0;
}

static bool is_committed(struct ckpt_step *step)
{
	return step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;
}

// made: the file is new, and so nobody's but its name's.
static int prepare_writing(struct ckpt_fs *fs, fuse_req_t req, struct handle *h, struct ckpt_step *step, bool made)
{
	int rc = back(fs, h->node);

	// Who opened it before the step was reopened reads it from packs; the name is that of a raw file since.
	if (rc < 0 && rc != -EXDEV)
		return rc;
	if (rc == -EXDEV || (!made && !is_committed(step) && copy_up_is_due(h->node->use->fd))) {
		rc = copy_up(fs, h->node, h->flags & O_TRUNC, NULL);
		return rc ? rc : -ESTALE;
	}
	// The kernel leaves it to us once it writes through.
	rc = fuse_req_ctx(req)->uid ? drop_setuid(req, h->node->use->fd) : 0;

	if (!rc && h->node->use->io != IO_PASSTHROUGH && h->fd < 0) {
		h->fd = reopen_for_writing(h->node->use->fd, h->flags & ~O_DIRECT);
		rc = MIN(h->fd, 0);
	}
	if (!rc && (h->flags & O_TRUNC))
		rc = truncate_opened(h, step);
	if (!rc && step) {
		h->writer.ino = h->node->number;
		h->writer.pid =
			fuse_req_ctx(req)->pid; // a thread of it: what /proc says more costs more than all the rest
		h->writer.fd = h->node->use->fd;
		h->writer.appends_ns = h->flags & O_APPEND ? ckpt_sys.now_ns() : 0;
		h->writer.late = amend_is_on(h->node) && complete_is_late(fs, h->node);
		ckpt_stage_writer_add(step, &h->writer);
	}
	return rc;
}

static void fill_reply(const struct handle *h, bool committed, struct fuse_file_info *fi)
{
	fi->fh = (uintptr_t)h;
	if (h->node->use->io == IO_PASSTHROUGH) {
		fi->backing_id = h->node->use->backing_id;
	} else {
		// Pages from before the commit are right, too. Whatever changed the file went through this very inode, or
		// through a passthrough open of it: an open without keep_cache, passthrough ones too, drops the pages, and a
		// node serves one way of I/O at a time. A number that comes back on disk as another file finds the old node,
		// but that file was made by such an open, or is empty, which drops them as well.
		fi->keep_cache = committed;
		fi->parallel_direct_writes = 1;
	}
	fi->noflush = !h->writes; // nothing to say at the close of a reader: one round trip less
}

int handle_open(struct ckpt_fs *fs, fuse_req_t req, struct node *n, int fd, int writer, struct ckpt_step *step,
		bool committed, struct fuse_file_info *fi)
{
	bool writes = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC);
	bool made = fd >= 0 && !committed; // only who makes a file has it open already
	struct raw raw = {0};
	struct handle *h;
	int rc = handle_new(fs, n, fi->flags, &h);

	if (rc) {
		if (fd >= 0)
			ckpt_sys.close(fd);
		if (writer >= 0)
			ckpt_sys.close(writer);
		return rc;
	}
	h->fd = writer;
	h->writes = writes;
	ckpt_lock_take(&n->use->lock);
	h->lost_writes_told = n->use->lost_writes;
	ckpt_lock_drop(&n->use->lock);
	if (committed && fd < 0 && !__atomic_load_n(&n->use->cache_filled, __ATOMIC_RELAXED))
		(void)raw_find(fs, n, &raw); // what goes wrong shows when it is read
	rc = committed && writes ? unwritten_enlist(h) : 0;
	if (!rc)
		rc = node_acquire(fs, req, n, fd, committed ? &raw : NULL, writes,
				  writes && fd < 0 && !committed && !is_committed(step));
	raw_done(&raw);
	if (rc) {
		unwritten_strike_off(h);
		// The kernel looks the name up again, but once only: it must not find a shared file.
		if (rc == -ESTALE && writes && !committed)
			(void)copy_up(fs, n, fi->flags & O_TRUNC, NULL);
		handle_free(fs, h);
		return rc;
	}
	if (writes && !committed)
		rc = prepare_writing(fs, req, h, step, made);
	if (rc) {
		handle_release(fs, req, h);
		return rc;
	}
	fill_reply(h, committed, fi);
	return 0;
}

void handle_release(struct ckpt_fs *fs, fuse_req_t req, struct handle *h)
{
	unwritten_strike_off(h);
	ckpt_stage_writer_remove(&h->writer); // before the descriptor that it looks through is closed
	node_let_go(req, h->node, h);
	if (h->writes)
		ckpt_room_closed(*ckpt_room_of(fs->store));
	handle_free(fs, h);
}

// A child that is forked closes what its parent goes on writing, as when it is to become another program.
static bool is_a_childs(const struct handle *h, pid_t tid)
{
	pid_t process, opener;

	if (tid == h->writer.pid)
		return false;
	process = client_process(tid);
	opener = client_process(h->writer.pid);
	return process && opener && process != opener;
}

void handle_flushed(struct handle *h, pid_t tid)
{
	struct stat st;

	if (h->writes && !h->writer.step && !__atomic_exchange_n(&h->ending, true, __ATOMIC_RELAXED))
		__atomic_add_fetch(&h->node->use->ending_writers, 1, __ATOMIC_RELAXED);
	if (!h->writes || !h->writer.step || is_a_childs(h, tid))
		return;
	if (client_was_killed(tid))
		ckpt_stage_writer_killed(&h->writer);
	else if (!fstat(h->node->use->fd, &st))
		ckpt_stage_writer_flushed(&h->writer, (uint64_t)st.st_size,
					  st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
}

// The kernel tells a lost write once to each open file, and all handles of a node share one. So it is kept, and told to
// each handle that was open then. Two at once do not come: the kernel holds the inode's lock during an fsync.
int handle_sync(struct handle *h, bool data_only, int *ret_disk)
{
	struct node *n = h->node;
	int fd = __atomic_load_n(&n->use->fd, __ATOMIC_RELAXED);
	int rc = fd < 0      ? 0
		 : data_only ? ckpt_sys.fdatasync(fd)
			     : ckpt_sys.fsync(fd); // none: a file that never changes

	*ret_disk = rc;
	LOCK_SCOPE(&n->use->lock);
	if (rc && rc != -EIO && rc != -ENOSPC && rc != -EDQUOT)
		return rc; // not of the data
	if (rc) {
		n->use->lost_writes++;
		n->use->lost_write_error = rc;
	}
	if (h->lost_writes_told == n->use->lost_writes)
		return 0;
	h->lost_writes_told = n->use->lost_writes;
	return n->use->lost_write_error;
}

void handle_write_back(void *arg, uint64_t ino)
{
	struct ckpt_fs *fs = arg;
	struct node *n = node_find(fs, SPACE_LIVE, ino);
	bool cached = false;

	if (n && node_used(n)) {
		LOCK_SCOPE(&n->use->lock);
		cached = n->use->io == IO_CACHED; // else the kernel keeps them with the file itself
	}
	// To drop a page of it, the kernel writes it first, and the next store through the mapping makes it ask again.
	if (cached)
		(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, n), 0, 0);
	node_unref(fs, n);
}
