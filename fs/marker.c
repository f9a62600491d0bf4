#include "fs/marker.h"

#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/step/errlog.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/durable.h"
#include "fs/folder.h"

#include <fcntl.h>
#include <stdio.h>

// What stat says of the marker while it is open: as its last writer left it.
struct marker {
	off_t size;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};

// Guarded by the node's lock.
struct marker_handle {
	struct ckpt_step *step; // a reference; NULL: of a plain folder, which is to become one
	pid_t opener;           // process, 0 not known
	char *text;
	size_t len;
	bool written;   // since the last attempt
	bool attempted; // result is that of the last attempt
	bool dead;      // completes nothing: a killed process had it, or it only reads what another has open
	int result;
	int refused; // a write that was refused: without it the content is not what was meant
};

bool marker_is_name(struct ckpt_fs *fs, const char *name)
{
	return !strcmp(name, fs->store->settings.marker);
}

bool marker_is_here(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct ckpt_step *step;

	if (!marker_is_name(fs, name) || dir->kind != NODE_FILES || dir == node_root(fs))
		return false;
	if (node_is_top(dir))
		return true;
	step = node_step(fs, dir);
	ckpt_step_unref(step);
	return !step; // a plain folder; what is inside of a step is a file
}

// Markers are found by their step, or by their folder.
static uint64_t number_of(const struct ckpt_step *step, const struct node *dir)
{
	return step ? step->incarnation : dir->number | UINT64_C(1) << 62;
}

// --- Open -------------------------------------------------------------------------------------------------------------

static int marker_handle_new(struct ckpt_fs *fs, fuse_req_t req, struct node *n, struct ckpt_step *step, int flags,
			     struct handle **ret_handle)
{
	struct marker_handle *mh = calloc(1, sizeof(*mh));
	struct handle *h;
	int rc = mh ? handle_new(fs, n, flags, &h) : -ENOMEM;

	if (rc) {
		free(mh);
		return rc;
	}
	mh->step = step ? ckpt_step_ref(step) : NULL;
	mh->opener = client_process(fuse_req_ctx(req)->pid);
	h->writes = (flags & O_ACCMODE) != O_RDONLY;
	h->marker = mh;
	ckpt_lock_take(&n->use->lock);
	n->use->opens++;
	ckpt_lock_drop(&n->use->lock);
	*ret_handle = h;
	return 0;
}

static void marker_handle_free(struct ckpt_fs *fs, struct handle *h)
{
	struct marker_handle *mh = TAKE_PTR(h->marker);

	ckpt_lock_take(&h->node->use->lock);
	h->node->use->opens--;
	ckpt_lock_drop(&h->node->use->lock);
	ckpt_step_unref(mh->step);
	free(mh->text);
	free(mh);
	handle_free(fs, h);
}

static int node_make(struct call *c, struct ckpt_step *step, struct node **ret_node)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);
	struct marker *m = calloc(1, sizeof(*m));
	int rc = m ? node_get(c->fs, SPACE_MARKER, number_of(step, c->node), S_IFREG, c->node, c->name, NULL, ret_node)
		   : -ENOMEM;

	if (!rc && node_use(*ret_node)) {
		node_forget(c->fs, *ret_node, 1);
		rc = -ENOMEM;
	}
	if (rc) {
		free(m);
		return rc;
	}
	*m = (struct marker){.mode = c->mode & 07777, .uid = ctx->uid, .gid = ctx->gid};
	clock_gettime(CLOCK_REALTIME, &m->mtime);
	ckpt_lock_take(&(*ret_node)->use->lock);
	free((*ret_node)->marker);
	(*ret_node)->marker = m;
	ckpt_lock_drop(&(*ret_node)->use->lock);
	return 0;
}

static void fill_open(struct handle *h, struct fuse_file_info *fi)
{
	fi->fh = (uintptr_t)h;
	fi->direct_io = 1;
}

void marker_create(struct call *c)
{
	struct ckpt_step *step = node_step(c->fs, c->node);
	struct fuse_entry_param e = {0};
	struct handle *h = NULL;
	struct node *n;
	double timeout;
	int rc = (step && ckpt_step_state(step) == CKPT_STEP_LEFT) || c->fs->mount->readonly ? -EROFS
											     : node_make(c, step, &n);

	if (!rc) {
		rc = marker_handle_new(c->fs, c->req, n, step, c->fi.flags, &h);
		if (!rc)
			rc = marker_attr(n, &e.attr, &timeout);
		if (rc)
			node_forget(c->fs, n, 1);
	}
	ckpt_step_unref(step);
	if (rc) {
		reply_error(c->req, rc);
		return;
	}
	e.ino = node_id(c->fs, n);
	e.generation = n->generation;
	fill_open(h, &c->fi);
	if (fuse_reply_create(c->req, &e, &c->fi) == -ENOENT) {
		marker_handle_free(c->fs, h);
		node_forget(c->fs, n, 1);
	}
}

int marker_lookup(struct ckpt_fs *fs, struct node *dir, struct node **ret_node)
{
	struct ckpt_step *step = node_step(fs, dir);
	struct node *n = node_find(fs, SPACE_MARKER, number_of(step, dir));
	bool open = false;
	int rc = -ENOENT;

	if (n && node_used(n)) {
		ckpt_lock_take(&n->use->lock);
		open = n->use->opens > 0;
		ckpt_lock_drop(&n->use->lock);
	}
	if (open && (!step || ckpt_step_state(step) != CKPT_STEP_COMMITTED))
		rc = node_get(fs, SPACE_MARKER, number_of(step, dir), S_IFREG, dir, fs->store->settings.marker, NULL,
			      ret_node);
	node_unref(fs, n);
	ckpt_step_unref(step);
	return rc;
}

void marker_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct ckpt_step *step = node_step(fs, n);
	struct handle *h;
	int rc = marker_handle_new(fs, req, n, step, fi->flags, &h);

	if (!rc && (fi->flags & O_ACCMODE) == O_RDONLY)
		h->marker->dead = true;
	ckpt_step_unref(step);
	if (rc) {
		reply_error(req, rc);
		return;
	}
	fill_open(h, fi);
	if (fuse_reply_open(req, fi) == -ENOENT)
		marker_handle_free(fs, h);
}

// --- Content ----------------------------------------------------------------------------------------------------------

int marker_attr(struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	LOCK_SCOPE(&n->use->lock);
	const struct marker *m = n->marker;

	*ret_attr = (struct stat){
		.st_ino = UINT64_C(1) << 63 | n->number,
		.st_mode = S_IFREG | m->mode,
		.st_nlink = 1,
		.st_uid = m->uid,
		.st_gid = m->gid,
		.st_size = m->size,
		.st_blksize = 4096,
		.st_atim = m->mtime,
		.st_mtim = m->mtime,
		.st_ctim = m->mtime,
	};
	*ret_timeout = TIMEOUT_NONE;
	return 0;
}

// Called under the node's lock.
static int resize_locked(struct handle *h, size_t len)
{
	struct marker_handle *mh = h->marker;
	char *text;

	if (len > CKPT_METADATA_BYTES_MAX)
		return -EFBIG;
	text = realloc(mh->text, len + 1);
	if (!text)
		return -ENOMEM;
	if (len > mh->len)
		memset(text + mh->len, 0, len - mh->len);
	mh->text = text;
	mh->len = len;
	h->node->marker->size = (off_t)len;
	clock_gettime(CLOCK_REALTIME, &h->node->marker->mtime);
	return 0;
}

int marker_truncate(struct handle *h, off_t size)
{
	LOCK_SCOPE(&h->node->use->lock);
	int rc;

	if (!h->marker || size < 0)
		return -EINVAL;
	if (size == 0 && h->marker->refused) {
		h->marker->refused = 0;
		h->marker->written = true;
	}
	if ((size_t)size == h->marker->len)
		return 0;
	h->marker->written = true;
	rc = size > CKPT_METADATA_BYTES_MAX ? -EFBIG : resize_locked(h, (size_t)size);
	if (rc)
		h->marker->refused = rc;
	return rc;
}

ssize_t marker_write(struct handle *h, const void *data, size_t len, off_t offset)
{
	LOCK_SCOPE(&h->node->use->lock);
	size_t end;
	int rc;

	if (offset < 0 || __builtin_add_overflow((size_t)offset, len, &end) || end > CKPT_METADATA_BYTES_MAX)
		rc = -EFBIG;
	else
		rc = end > h->marker->len ? resize_locked(h, end) : 0;
	h->marker->written = true;
	if (rc) {
		h->marker->refused = rc;
		return rc;
	}
	memcpy(h->marker->text + offset, data, len);
	return (ssize_t)len;
}

void marker_read(fuse_req_t req, struct handle *h, size_t size, off_t offset)
{
	CLEANUP_FREE char *copy = malloc(size + 1);
	size_t len = 0;

	if (!copy) {
		reply_error(req, -ENOMEM);
		return;
	}
	ckpt_lock_take(&h->node->use->lock);
	if ((size_t)offset < h->marker->len) {
		len = MIN(size, h->marker->len - (size_t)offset);
		memcpy(copy, h->marker->text + offset, len);
	}
	ckpt_lock_drop(&h->node->use->lock);
	fuse_reply_buf(req, copy, len);
}

// --- Completion -------------------------------------------------------------------------------------------------------

// What the marker is to complete, for messages.
static void name_of(struct ckpt_fs *fs, struct handle *h, struct ckpt_step_name *ret_name)
{
	*ret_name = (struct ckpt_step_name){.name = "?"};
	if (h->marker->step) {
		ckpt_step_name(h->marker->step, ret_name);
		return;
	}
	names_read_lock(fs);
	if (h->node->names && h->node->names->parent->names)
		snprintf(ret_name->name, sizeof(ret_name->name), "%s", h->node->names->parent->names->text);
	names_unlock(fs);
}

// Of a plain folder: a second marker of the same handle is for the step that it became.
static int commit_folder(struct ckpt_fs *fs, struct handle *h, const struct ckpt_commit *how,
			 struct ckpt_step **ret_step)
{
	struct node *dir = NULL;
	int rc = -ESTALE;

	names_read_lock(fs);
	if (h->node->names) {
		dir = h->node->names->parent;
		node_ref(fs, dir);
	}
	names_unlock(fs);
	if (dir)
		rc = complete_folder(fs, dir, how, &h->marker->step);
	if (h->marker->step)
		*ret_step = ckpt_step_ref(h->marker->step);
	node_unref(fs, dir);
	return rc;
}

// One attempt with what the handle holds now. tid 0: nobody waits. *ret_step: the step that it has committed, a reference; else NULL.
static int attempt(struct ckpt_fs *fs, struct handle *h, pid_t tid, struct ckpt_step **ret_step)
{
	struct marker_handle *mh = h->marker;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *json = NULL;
	CLEANUP_FREE char *why = NULL;
	struct ckpt_step_name now;
	size_t len;
	int rc;

	*ret_step = NULL;
	ckpt_lock_take(&h->node->use->lock);
	len = mh->len;
	text = malloc(len + 1);
	if (text)
		memcpy(text, mh->text ? mh->text : "", len);
	mh->written = false;
	rc = !text ? -ENOMEM : mh->refused;
	ckpt_lock_drop(&h->node->use->lock);
	if (!rc)
		rc = ckpt_metadata_parse(text, len, &json, &why);
	if (rc) {
		name_of(fs, h, &now);
		ckpt_errlog_add(fs->store->errlog, now.name, rc,
				"the step is unchanged; write the marker again, empty or with correct JSON",
				"the marker's content: %s",
				why            ? why
				: rc == -EFBIG ? "more than 65536 bytes"
					       : "could not be read");
	} else {
		struct waiter waiter = {&fs->ending, tid};
		struct ckpt_commit how = {
			.event = "marker",
			.profile = "generic",
			.metadata = json,
			.writers_ns = fs->store->settings.open_writers_ns,
			.abandoned = waiter_is_gone,
			.abandoned_arg = &waiter,
		};

		rc = mh->step ? complete_step(fs, mh->step, &how, ret_step) : commit_folder(fs, h, &how, ret_step);
	}
	if (!rc)
		folder_touch_above(fs, h->node); // it shows a new step
	return rc;
}

static void run_flush(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	pid_t tid = fuse_req_ctx(c->req)->pid;
	struct ckpt_step *step;
	int rc = attempt(c->fs, h, tid, &step);

	if (!rc)
		rc = durable_wait(step, (struct waiter){&c->fs->ending, tid});
	ckpt_step_unref(step);
	ckpt_lock_take(&h->node->use->lock);
	h->marker->attempted = true;
	h->marker->result = rc;
	ckpt_lock_drop(&h->node->use->lock);
	reply_error(c->req, rc);
}

static struct call call_with(fuse_req_t req, struct handle *h, void (*run)(struct call *c))
{
	return (struct call){
		.run = run,
		.req = req,
		.fs = fs_of(req),
		.node = h->node,
		.fi = {.fh = (uintptr_t)h},
		.waits_for_clients = true, // for open writers
	};
}

// ret_died: a process was killed that had not completed the step.
static bool flush_counts_locked(struct handle *h, bool killed, pid_t process, int *ret_result, bool *ret_died)
{
	struct marker_handle *mh = h->marker;

	*ret_result = 0;
	*ret_died = false;
	// A child that dies with a copy of the descriptor says nothing of the process that opened it.
	if (killed && process && mh->opener && process != mh->opener)
		return false;
	if (killed && !mh->dead) {
		mh->dead = true;
		*ret_died = !mh->attempted || mh->written;
	}
	if (mh->dead)
		return false;
	if (process && mh->opener && process != mh->opener)
		return false; // a forked child lets go of it
	if (mh->attempted && !mh->written) {
		*ret_result = mh->result;
		return false;
	}
	return true;
}

// Decides what a FLUSH means; true: it completes the step.
static bool flush_counts(struct ckpt_fs *fs, struct handle *h, pid_t tid, int *ret_result)
{
	bool killed = client_was_killed(tid), counts, died;
	pid_t process = client_process(tid);
	struct ckpt_step_name now;

	ckpt_lock_take(&h->node->use->lock);
	counts = flush_counts_locked(h, killed, process, ret_result, &died);
	ckpt_lock_drop(&h->node->use->lock);
	if (died) { // told without the lock: the error log waits for the disk
		name_of(fs, h, &now);
		ckpt_errlog_add(fs->store->errlog, now.name, 0, "save again, or complete the step with a new marker",
				"process %d was killed with the marker open: nothing was completed", (int)process);
	}
	return counts;
}

// A shell redirection is open, dup2, close, write, close: at the first close the marker is empty, and the process goes on to
// write it by its other descriptor, whose close then counts.
static bool is_about_to_be_written(struct handle *h, pid_t tid)
{
	struct stat st;
	double timeout;
	bool empty;

	ckpt_lock_take(&h->node->use->lock);
	empty = !h->marker->len && !h->marker->written;
	ckpt_lock_drop(&h->node->use->lock);
	return empty && !marker_attr(h->node, &st, &timeout) && client_can_write(tid, st.st_ino);
}

void marker_flush(fuse_req_t req, struct handle *h)
{
	struct call c = call_with(req, h, run_flush);
	pid_t tid = fuse_req_ctx(req)->pid;
	int result;

	if (flush_counts(c.fs, h, tid, &result) && !is_about_to_be_written(h, tid))
		call_detach(&c);
	else
		reply_error(req, result);
}

static void run_release(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	fuse_req_t req = c->req;
	struct ckpt_step *step;

	(void)attempt(c->fs, h, 0, &step); // nobody is left to be told; the error log has it
	ckpt_step_unref(step);
	marker_handle_free(c->fs, h);
	reply_error(req, 0);
}

void marker_release(fuse_req_t req, struct handle *h)
{
	struct call c = call_with(req, h, run_release);
	bool due;

	ckpt_lock_take(&h->node->use->lock);
	due = !h->marker->dead && (!h->marker->attempted || h->marker->written);
	ckpt_lock_drop(&h->node->use->lock);
	if (due) {
		call_detach(&c);
		return;
	}
	marker_handle_free(c.fs, h);
	reply_error(req, 0);
}
