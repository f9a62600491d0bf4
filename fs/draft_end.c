// How drafts end: closes, publication, and what is left over. draft_live.c has those that become live before.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/profile/tracker.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "core/step/errlog.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/complete_watch.h"
#include "fs/draft.h"
#include "fs/draft_table.h"
#include "fs/durable.h"
#include "fs/folder.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define WAIT_NS INT64_C(250000000)
#define NEARLY_FULL_BYTES ((uint64_t)16 << 20)
#define INVITED_NS INT64_C(1000000000) // a thread that was told to look again does so at once, unless it cannot

static void tell(struct ckpt_fs *fs, struct draft *d, int error, const char *hint, const char *what)
{
	CLEANUP_FREE char *path = draft_path(fs, d);

	ckpt_errlog_add(fs->store->errlog, path ? path : d->disk.name, error, hint, "%s", what);
}

// Once: why it was not published. rc 0: a writer was killed, if any was.
void draft_tell_failure(struct ckpt_fs *fs, struct draft *d, int rc)
{
	bool told;

	ckpt_lock_take(&fs->drafts->lock);
	told = d->told || !d->dir || rc == -EAGAIN || (!rc && !d->killed);
	d->told |= !told;
	ckpt_lock_drop(&fs->drafts->lock);
	if (told)
		return;
	tell(fs, d, rc,
	     "what was written is kept: write it again, continue it by its name, or publish it "
	     "with `ckptfs commit` (`ckptfs sessions` lists it)",
	     !rc             ? "a writer was killed: its content was not published, and the old file is unchanged"
	     : rc == -EINVAL ? "the file is cut off (not whole by its format): it was not published, and the old "
			       "file is unchanged"
			     : "the new content could not be published: the old file is unchanged");
}

// --- Publication --------------------------------------------------------------------------------------------------------

static bool all_closed_locked(const struct draft *d)
{
	for (const struct handle *h = d->writers; h; h = h->draft_next)
		if (!h->closed)
			return false;
	return !d->joining;
}

static bool is_awaited_locked(const struct draft *d)
{
	int64_t now = ckpt_sys.mono_ns();

	for (const struct invitation *i = d->invited; i; i = i->next)
		if (now - i->at_ns < INVITED_NS)
			return true;
	return false;
}

// Under the table's lock: true if there is something to publish and it is ours to do it. Waits for who does it just now, and
// for who is invited: an open can be led elsewhere only once. Who does not come in time may have died. closed: it is
// nobody's to do any more once somebody writes it.
bool draft_claim_locked(struct drafts *t, struct draft *d, bool closed)
{
	while (!(closed && !all_closed_locked(d)) && (d->publishing || (d->dir && is_awaited_locked(d))))
		ckpt_lock_wait_ns(&t->changed, &t->lock, WAIT_NS);
	if (closed && !all_closed_locked(d))
		return false;
	d->publishing = d->dir;
	return d->publishing;
}

void draft_release_claim(struct drafts *t, struct draft *d)
{
	LOCK_SCOPE(&t->lock);
	d->publishing = false;
	pthread_cond_broadcast(&t->changed);
}

// Who opened it for writing since the claim waits for its end, so nothing is written but by descriptors that were closed
// already in name only. The name is the draft's, or nobody's any more. *ret_dirfd, name: where it is now.
static int take_name(struct ckpt_fs *fs, struct draft *d, int *ret_dirfd, char name[CKPT_NAME_MAX + 1])
{
	struct node *old = NULL, *dir = NULL;
	struct ckpt_step *taken, *into;
	struct live_child child;
	int rc = 0, fd = -1;

	*ret_dirfd = -1;
	names_read_lock(fs);
	if (d->dir) {
		dir = d->dir;
		node_ref(fs, dir);
		memcpy(name, d->name, sizeof(d->name));
	}
	names_unlock(fs);
	if (!dir)
		return 0;
	fd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	rc = folder_step(fs, dir, name, &taken);
	into = node_step(fs, dir); // its folder has become a step meanwhile
	rc = !rc ? -EEXIST : into ? -EROFS : rc != -ENOENT ? rc : MIN(fd, 0);
	ckpt_step_unref(taken);
	ckpt_step_unref(into);
	if (!rc && !look_at_child(fs, dir, fd, name, &child))
		old = node_find(fs, SPACE_LIVE, child.number);
	names_write_lock(fs);
	if (!rc && d->dir == dir && !strcmp(d->name, name)) {
		rc = ckpt_draft_publish(&d->disk, fd, d->name);
		if (!rc) {
			// Else who has found the old file just now could not be led to the new one any more: an open is led
			// elsewhere only once.
			if (old && child.stx.stx_nlink > 1 && !child.shared)
				name_drop_locked(fs, old, d->dir, d->name);
			draft_end_locked(fs, d, false);
			*ret_dirfd = TAKE_FD(fd);
		}
	} else if (!rc && d->dir) {
		rc = -EAGAIN; // it was renamed just now
	}
	names_unlock(fs);
	node_unref(fs, old);
	node_unref(fs, dir);
	if (fd >= 0)
		ckpt_sys.close(fd);
	return rc;
}

bool draft_is_lost(int rc)
{
	return rc == -EIO || ckpt_is_full(rc);
}

void draft_set_lost(struct ckpt_fs *fs, struct draft *d, int rc)
{
	LOCK_SCOPE(&fs->drafts->lock);
	d->lost = rc;
}

// For who closes it, and waits longer once others can go on. Takes the reference.
static void keep_completed(struct ckpt_fs *fs, struct draft *d, struct ckpt_step *step)
{
	struct ckpt_step *before;

	ckpt_lock_take(&fs->drafts->lock);
	before = d->completed;
	d->completed = step;
	ckpt_lock_drop(&fs->drafts->lock);
	ckpt_step_unref(before);
}

static struct ckpt_step *take_completed(struct ckpt_fs *fs, struct draft *d)
{
	LOCK_SCOPE(&fs->drafts->lock);

	return TAKE_PTR(d->completed);
}

// A tracker that says which step is complete: that is committed first. It names one that is not only where others are still to
// write into that (complete_run()).
static int complete_named(struct ckpt_fs *fs, struct draft *d)
{
	struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE, .name = d->disk.name, .fd = d->fd};
	struct completing completing;
	struct ckpt_step *step = NULL;
	struct node *dir = NULL;
	bool copied;
	pid_t closer;
	int rc = -ENOENT;

	ckpt_lock_take(&fs->drafts->lock);
	copied = d->copied;
	closer = deed.tid = d->closer;
	ckpt_lock_drop(&fs->drafts->lock);
	names_read_lock(fs);
	if (d->dir) {
		dir = d->dir;
		node_ref(fs, dir);
	}
	names_unlock(fs);
	if (dir && !copied && complete_watches_close(fs, dir, NULL, d->disk.name))
		rc = complete_decide(fs, dir, &deed, false, &completing);
	if (!rc)
		rc = complete_run(fs, &completing, closer, &step);
	else if (rc == -ENOENT || rc == -EINVAL)
		rc = 0;
	keep_completed(fs, d, step);
	node_unref(fs, dir);
	return rc;
}

static void write_on(struct handle *h)
{
	int fd = handle_reopen(h);

	if (fd >= 0) {
		(void)dup3(fd, h->fd, O_CLOEXEC);
		ckpt_sys.close(fd);
	}
}

static bool decide_once(struct ckpt_fs *fs, struct draft *d)
{
	LOCK_SCOPE(&fs->drafts->lock);
	bool first =
		(d->tracker || !d->dir) && !d->copied && !d->killed && !d->decided; // a file step: once it is published

	d->decided |= first;
	return first;
}

// A file whose content says that its folder is a complete step, after its publication. The kernel has no descriptor of such a
// file (complete_watches_node), and ours that writes it is closed for the commit. tid: who waits, 0 nobody.
static int complete_folder_of(struct ckpt_fs *fs, struct node *n, struct handle *h, pid_t tid,
			      struct ckpt_step **ret_step)
{
	struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE, .tid = tid};
	CLEANUP_FD int fd = -1;
	char name[CKPT_NAME_MAX + 1];
	struct completing completing;
	struct node *dir = NULL;
	int rc = 0;

	names_read_lock(fs);
	if (n->names && !n->draft) {
		dir = n->names->parent;
		node_ref(fs, dir);
		snprintf(name, sizeof(name), "%s", n->names->text);
	}
	names_unlock(fs);
	if (dir && !node_is_top(dir) && complete_watches_close(fs, dir, NULL, name)) {
		fd = node_open(fs, n, O_RDONLY);
		deed.name = name;
		deed.fd = fd;
		if (fd >= 0 && !complete_decide(fs, dir, &deed, true, &completing)) {
			if (h && h->fd >= 0)
				(void)dup3(fd, h->fd,
					   O_CLOEXEC); // who writes just now is told, and nobody else's file is hit
			if (*completing.what.beside)
				complete_done(fs, &completing); // that was done before
			else
				rc = complete_run(fs, &completing, tid, ret_step);
			if (h && h->fd >= 0 && !node_is_top(dir))
				write_on(h);
		}
	}
	node_unref(fs, dir);
	return rc;
}

// The kernel itself tells a writer that there is no room for its bytes: that it was told nobody else knows, and that it closes
// its file then says nothing.
static bool is_nearly_full(int fd)
{
	struct statvfs st;

	return !fstatvfs(fd, &st) && (uint64_t)st.f_bavail * st.f_frsize < NEARLY_FULL_BYTES;
}

static bool is_written_by_kernel(struct node *n)
{
	struct node_use *use = node_used(n);

	if (!use)
		return false;
	LOCK_SCOPE(&use->lock);
	return use->io == IO_PASSTHROUGH;
}

static bool may_have_lacked_room(struct ckpt_fs *fs, struct draft *d)
{
	struct node *n = NULL;
	bool lacked;

	names_read_lock(fs);
	if (d->node) {
		n = d->node;
		node_ref(fs, n);
	}
	names_unlock(fs);
	ckpt_lock_take(&fs->drafts->lock);
	lacked = d->short_of_room;
	ckpt_lock_drop(&fs->drafts->lock);
	lacked = lacked || (n && is_written_by_kernel(n) && is_nearly_full(d->fd));
	node_unref(fs, n);
	return lacked;
}

// An empty file is one that somebody emptied, to make room or as a placeholder, unless there was no room for its first byte.
static int check_format(struct ckpt_fs *fs, struct draft *d)
{
	char name[sizeof(d->name)];
	int rc;

	draft_name(fs, d, name);
	if (may_have_lacked_room(fs, d))
		return ckpt_format_check_strictly(d->fd, name);
	rc = ckpt_format_check(d->fd, name);
	return rc == -ENODATA ? 0 : rc;
}

int draft_publish(struct ckpt_fs *fs, struct draft *d, const struct draft_publication *how)
{
	int dirfd, rc = how->check && !d->tracker ? check_format(fs, d) : 0;
	char name[sizeof(d->name)];

	if (rc)
		return rc;
	if (!how->written_out) {
		rc = ckpt_draft_write_out(&d->disk, d->fd);
		if (draft_is_lost(rc))
			draft_set_lost(fs, d, rc);
	}
	if (!rc && d->tracker && !d->killed)
		rc = complete_named(fs, d);
	if (!rc)
		do
			rc = take_name(fs, d, &dirfd, name);
		while (rc == -EAGAIN);
	if (rc || dirfd < 0) // or the name went meanwhile
		return rc;
	rc = ckpt_draft_published(&d->disk, dirfd, how->durable);
	if (rc)
		tell(fs, d, rc, "save again", "the new content is visible, but its name may not survive a crash");
	ckpt_tree_take_name(ckpt_remote_tree(*ckpt_remote_of(fs->store)), dirfd, name);
	ckpt_sys.close(dirfd);
	return rc;
}

// --- Closes -----------------------------------------------------------------------------------------------------------

void draft_leave(struct ckpt_fs *fs, struct draft *d)
{
	CLEANUP_FREE char *path = draft_path(fs, d);
	char name[sizeof(d->name)];
	uint64_t folder = 0;
	struct stat st;
	bool was;

	if (d->tracker && !fstat(d->fd, &st) && !st.st_size) { // it was about to be written
		draft_cancel(fs, d);
		return;
	}

	names_write_lock(fs);
	was = d->dir;
	if (was) {
		memcpy(name, d->name, sizeof(name));
		folder = d->dir->number;
		draft_end_locked(fs, d, true);
	}
	names_unlock(fs);
	if (was && path)
		(void)ckpt_draft_move(&d->disk, path, name, folder); // else its former name leads to it
	if (was && ckpt_draft_leave(&d->disk))
		tell(fs, d, -EIO, "the next mount shows it",
		     "what was written could not be listed among the left-over sessions");
}

// A file that says nothing of a step is shown as its killed writer left it: what a run wrote last is what is looked for then.
static bool has_last_words(const struct draft *d)
{
	struct stat st;

	return d->tracker && !ckpt_tracker_is_known(d->name) && !fstat(d->fd, &st) && st.st_size > 0;
}

// It was left over, and who has opened it since has written nothing: HDF5 opens so whatever has the name that it is to make.
static bool is_as_left(const struct draft *d)
{
	struct stat st;

	return d->left_as.at_ns && !fstat(d->fd, &st) && st.st_size == d->left_as.size &&
	       st.st_mtim.tv_sec == d->left_as.mtime.tv_sec && st.st_mtim.tv_nsec == d->left_as.mtime.tv_nsec;
}

// sure: the process that closed it last lived, and said so by its close. Otherwise, and when an older file is replaced or the disk
// is full, or a limit was reached, the format must be whole.
int draft_settle(struct ckpt_fs *fs, struct draft *d, bool sure)
{
	struct drafts *t = fs->drafts;
	bool last, check, header, unwritten = is_as_left(d);
	int rc;

	ckpt_lock_take(&t->lock);
	if (!d->opened || !draft_claim_locked(t, d, true)) {
		ckpt_lock_drop(&t->lock);
		return 0;
	}
	// Who wrote with one that was killed is told that it was for nothing.
	rc = d->killed && !has_last_words(d) ? -EIO : d->lost;
	check = d->replaces || d->short_of_room || !sure;
	ckpt_lock_drop(&t->lock);
	if (!rc && !unwritten)
		rc = draft_publish(
			fs, d,
			&(struct draft_publication){.check = check || is_nearly_full(d->fd), .durable = !d->tracker});
	ckpt_lock_take(&t->lock);
	// What is lost can be published by nobody: who opens it from now on must not share in that.
	last = d->dir && (d->killed || d->lost ? all_closed_locked(d) : !d->writers && !d->joining);
	header = last && rc == -EAGAIN;
	d->header_ns = header ? ckpt_sys.mono_ns() : 0;
	ckpt_lock_drop(&t->lock);
	if (rc != -EINVAL || sure || last) // else it may be a fork's close, which is no end
		draft_tell_failure(fs, d, rc);
	// An array that has only its header yet is about to be mapped and filled (numpy's open_memmap): it is opened again.
	if (last && !header)
		draft_leave(fs, d);
	draft_release_claim(t, d);
	if (header)
		drafts_watch(fs);
	return rc == -EAGAIN ? 0 : rc;
}

static void count_closed(struct handle *h)
{
	h->closed = true;
	__atomic_add_fetch(&h->node->use->closed_writers, 1, __ATOMIC_RELAXED);
}

// The process has let go of the last descriptor with which it could write: what it has closed before is closed now. What it
// is just opening, in another thread, is not.
static void close_locked(struct draft *d, pid_t process)
{
	for (struct handle *h = d->writers; h; h = h->draft_next)
		if (!h->closed && h->flushed && h->opener == process)
			count_closed(h);
}

static void run_flush(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	struct draft *d = h->draft;
	pid_t tid = fuse_req_ctx(c->req)->pid, process = client_process(tid);
	bool killed = client_was_killed(tid), copied = complete_is_copier(tid);
	struct ckpt_step *step = NULL;
	int rc = 0;

	if (draft_is_output(c->fs, h, tid))
		draft_output_is_live(c->fs, d);
	// A forked child that lets go of it, or dies with it, says nothing of the process that opened it.
	if (process && h->opener && process != h->opener) {
		reply_error(c->req, 0);
		return;
	}
	ckpt_lock_take(&c->fs->drafts->lock);
	h->flushed = true;
	d->killed |= killed;
	d->closer = process;
	d->copied |= copied;
	ckpt_lock_drop(&c->fs->drafts->lock);
	if (killed && !has_last_words(d))
		draft_tell_failure(c->fs, d, 0);
	if (killed || !client_can_write(tid, node_ino(h->node))) {
		ckpt_lock_take(&c->fs->drafts->lock);
		close_locked(d, h->opener);
		ckpt_lock_drop(&c->fs->drafts->lock);
		rc = draft_settle(c->fs, d, process != 0);
		step = take_completed(c->fs, d);
		if (!rc && !step && decide_once(c->fs, d))
			rc = complete_folder_of(c->fs, h->node, h, tid, &step);
		if (!rc)
			rc = durable_wait(step, (struct waiter){&c->fs->ending, tid});
		ckpt_step_unref(step);
	} else {
		draft_shared_is_live(c->fs, d);
	}
	reply_error(c->req, rc);
}

static struct call call_with(fuse_req_t req, struct handle *h, void (*run)(struct call *c))
{
	return (struct call){
		.run = run,
		.req = req,
		.fs = fs_of(req),
		.node = h->node,
		.waits_for_clients = true, // for those that are invited
		.fi = {.fh = (uintptr_t)h},
	};
}

static bool is_over(struct ckpt_fs *fs, const struct draft *d)
{
	LOCK_SCOPE(&fs->drafts->lock);

	return !d->dir && !d->publishing;
}

void draft_flush(fuse_req_t req, struct handle *h)
{
	struct call c = call_with(req, h, run_flush);

	if (is_over(c.fs, h->draft) && !complete_watches_node(c.fs, h->node))
		reply_error(req, 0);
	else
		call_detach(&c); // it waits for the disk
}

// The draft that the handle wrote, with its reference.
static struct draft *unlink_writer(struct ckpt_fs *fs, struct handle *h)
{
	LOCK_SCOPE(&fs->drafts->lock);
	struct draft *d = TAKE_PTR(h->draft);
	struct handle **slot = &d->writers;

	while (*slot != h)
		slot = &(*slot)->draft_next;
	*slot = h->draft_next;
	return d;
}

void draft_forsake(struct ckpt_fs *fs, struct handle *h)
{
	draft_unref(fs, unlink_writer(fs, h));
}

static void run_release(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	struct draft *d = unlink_writer(c->fs, h);
	bool sure = h->opener;
	struct node *n;

	if (!h->closed)
		count_closed(h);
	(void)draft_settle(c->fs, d, sure); // nobody is left to be told; the error log has it
	n = h->node;
	node_ref(c->fs, n);
	handle_release(c->fs, c->req, h);
	if (decide_once(c->fs, d))
		(void)complete_folder_of(c->fs, n, NULL, 0, NULL);
	node_unref(c->fs, n);
	draft_unref(c->fs, d);
	reply_error(c->req, 0);
}

void draft_release(fuse_req_t req, struct handle *h)
{
	struct call c = call_with(req, h, run_release);

	if (is_over(c.fs, h->draft) && !complete_watches_node(c.fs, h->node))
		run_release(&c);
	else
		call_detach(&c);
}
