// How drafts begin, and opens for writing that join them.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/profile/tracker.h"
#include "core/save/clone.h"
#include "fs/client.h"
#include "fs/draft.h"
#include "fs/draft_table.h"
#include "fs/folder.h"
#include "fs/limit.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// --- Begin ------------------------------------------------------------------------------------------------------------

bool draft_is_limited(const struct handle *h)
{
	return h->draft && !h->draft->tracker;
}

void draft_lacks_room(struct ckpt_fs *fs, const struct handle *h)
{
	LOCK_SCOPE(&fs->drafts->lock);

	if (h->draft)
		h->draft->short_of_room = true;
}

static int make(struct call *c, struct node *dir, const char *name, int dirfd, struct draft **ret_draft)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);
	char id[CKPT_FOLDER_ID_LEN + 1] = "";
	CLEANUP_FREE char *path = NULL;
	int rc = folder_id_of(c->fs, dir, false, id);
	struct draft *d;

	if (rc && rc != -ENOENT && rc != -ENOTDIR && rc != -EACCES)
		return rc;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->fd = d->disk.dirfd = -1;
	d->refs = 1;
	d->dir = dir;
	snprintf(d->name, sizeof(d->name), "%s", name);
	path = draft_path(c->fs, d);
	rc = ckpt_draft_begin(c->fs->store,
			      &(struct ckpt_draft_origin){
				      .path = path ? path : name,
				      .name = name,
				      .folder_id = id,
				      .uid = ctx->uid,
				      .gid = ctx->gid,
				      .pid = client_process(ctx->pid),
				      .folder_fd = dirfd,
				      .folder = dir->number,
			      },
			      &d->disk);
	if (rc) {
		free(d);
		return rc;
	}
	node_ref(c->fs, dir);
	*ret_draft = d;
	return 0;
}

// One that never came into the table.
static void unmake(struct ckpt_fs *fs, struct draft *d)
{
	node_unref(fs, TAKE_PTR(d->dir));
	ckpt_draft_drop(&d->disk);
	draft_unref(fs, d);
}

int draft_begin_new(struct call *c, int dirfd, struct draft **ret_draft)
{
	struct stat st;
	int rc;

	*ret_draft = NULL;
	if (c->step || !ckpt_name_is_file_step(c->name))
		return 0;
	// It came meanwhile: the kernel looks again, and opens it.
	if (draft_is_at(c->fs, c->node, c->name) || !fstatat(dirfd, c->name, &st, AT_SYMLINK_NOFOLLOW))
		return c->fi.flags & O_EXCL ? -EEXIST : -ESTALE;
	rc = limit_draft(c);
	return rc ? rc : make(c, c->node, c->name, dirfd, ret_draft);
}

int draft_dirfd(const struct draft *d)
{
	return d->disk.dirfd;
}

void draft_drop_new(struct ckpt_fs *fs, struct draft *d)
{
	if (!draft_end(fs, d))
		abort(); // nobody else has seen it
	ckpt_draft_drop(&d->disk);
	draft_unref(fs, d);
}

int draft_made(struct call *c, struct draft *d, struct node *n, int fd)
{
	bool made;

	d->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (d->fd < 0)
		return -errno;
	d->joining = 1;
	names_write_lock(c->fs);
	made = drafts_insert(c->fs, d);
	if (made) {
		node_ref(c->fs, n);
		d->node = n;
		n->draft = d;
	}
	names_unlock(c->fs);
	return made ? 0 : -ESTALE;
}

// --- Open -------------------------------------------------------------------------------------------------------------

// -ESTALE: it is. -EBUSY: the draft is being published.
static int invite(struct ckpt_fs *fs, struct draft *d, pid_t tid)
{
	struct invitation *i = NULL;
	bool busy;

	ckpt_lock_take(&fs->drafts->lock);
	busy = d->publishing;
	if (!busy)
		i = *draft_invitation_locked(d, tid);
	if (!busy && !i && (i = calloc(1, sizeof(*i)))) {
		i->next = d->invited;
		d->invited = i;
	}
	if (i)
		*i = (struct invitation){.next = i->next, .tid = tid, .at_ns = ckpt_sys.mono_ns()};
	ckpt_lock_drop(&fs->drafts->lock);
	drafts_watch(fs);
	return busy ? -EBUSY : i ? -ESTALE : -ENOMEM;
}

// The old file of a name that has a draft. A thread that was told to look again and comes back without having looked was
// led here by a descriptor (/proc/self/fd) or by a mount on top of the file: it cannot be led elsewhere, and writes the old
// one, live.
static int enter_old(struct call *c, struct draft *d)
{
	struct ckpt_fs *fs = c->fs;
	pid_t tid = fuse_req_ctx(c->req)->pid;
	struct invitation *i;
	bool unwanted = false;

	ckpt_lock_take(&fs->drafts->lock);
	i = *draft_invitation_locked(d, tid);
	if (i && !i->looked && tid) {
		draft_uninvite_locked(fs->drafts, d, tid);
		unwanted = !d->opened && !d->invited && !d->joining;
	} else {
		i = NULL;
	}
	ckpt_lock_drop(&fs->drafts->lock);
	if (unwanted)
		draft_cancel(fs, d);
	return i ? 0 : invite(fs, d, tid);
}

// A draft's own file: 1: it is none, or not any more.
static int enter_own(struct call *c, struct draft **ret_draft)
{
	struct drafts *t = c->fs->drafts;
	struct draft *d;
	int rc;

	*ret_draft = NULL;
	names_read_lock(c->fs);
	d = c->node->draft;
	ckpt_lock_take(&t->lock);
	if (d)
		d->refs++;
	rc = !d || !d->dir ? 1 : d->publishing ? -EBUSY : draft_wake_locked(d);
	if (!rc) {
		d->joining++;
		draft_uninvite_locked(t, d, fuse_req_ctx(c->req)->pid);
		*ret_draft = d;
	}
	ckpt_lock_drop(&t->lock);
	names_unlock(c->fs);
	if (rc)
		draft_unref(c->fs, d);
	return rc;
}

// The only name that the node is known by, and its folder, with a reference; false: it has none, or more.
static bool only_name(struct ckpt_fs *fs, struct node *n, struct node **ret_dir, char *name, size_t cap)
{
	bool one;

	names_read_lock(fs);
	one = n->names && !n->names->next;
	if (one) {
		*ret_dir = n->names->parent;
		node_ref(fs, *ret_dir);
		snprintf(name, cap, "%s", n->names->text);
	}
	names_unlock(fs);
	return one;
}

struct writers {
	bool any;
	bool live;   // nobody has closed it yet: a fork's leftover of a draft does not count
	bool ending; // a descriptor was closed, and the release may be under way
};

static struct writers writers_of(struct ckpt_fs *fs, uint64_t number)
{
	struct node *n = node_find(fs, SPACE_LIVE, number);
	struct node_use *use = n ? node_used(n) : NULL;
	struct writers are = {0};

	if (use) {
		unsigned closed;

		ckpt_lock_take(&use->lock);
		closed = __atomic_load_n(&use->closed_writers, __ATOMIC_RELAXED);
		are.any = use->write_opens;
		are.live = use->write_opens > closed;
		are.ending = closed || __atomic_load_n(&use->ending_writers, __ATOMIC_RELAXED);
		ckpt_lock_drop(&use->lock);
	}
	node_unref(fs, n);
	return are;
}

// The new file gets what the old one has, but for its content.
static int fill(struct draft *d, int old, const struct statx *stx, bool truncate)
{
	struct stat st;
	int rc = 0, reads;

	d->fd = ckpt_sys.open(d->disk.dirfd, d->disk.name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (d->fd < 0)
		return d->fd;
	if (!truncate)
		rc = ckpt_sys.reflink(old, d->fd);
	if (!rc && fstat(d->fd, &st))
		rc = -errno;
	if (!rc && geteuid() != 0 &&
	    (st.st_uid != stx->stx_uid || (st.st_gid != stx->stx_gid && fchown(d->fd, (uid_t)-1, stx->stx_gid))))
		rc = -EPERM;
	if (!rc)
		rc = ckpt_clone_attributes(old, d->fd, stx, false);
	if (!rc && truncate)
		futimens(d->fd, NULL);
	// What writes it would stand in the way of a commit of its folder.
	reads = rc ? rc : draft_open_file(d, O_RDONLY);
	if (reads >= 0) {
		ckpt_sys.close(d->fd);
		d->fd = reads;
	}
	return rc;
}

static bool may_begin_on(const struct live_child *old, bool step_form, const struct writers *are)
{
	if (!S_ISREG(old->stx.stx_mode))
		return false;
	if (step_form)
		return true;
	// A file of several names, or one that somebody is writing, goes on being the same for all. What is shared with a step
	// (core/save/share.h) is no such one, and of whatever size: it needs a new file anyway, and the kernel looks twice only once.
	if (!old->shared && (old->stx.stx_size > CKPT_TRACKER_BYTES_MAX || old->stx.stx_nlink > 1))
		return false;
	return !are->live;
}

// It goes into the table, if the file that it is to replace still has the name. Until that is sure, all others wait as for a
// publication; its own thread is invited from the start. -ESTALE.
static int enter_table(struct call *c, struct draft *d, int dirfd, const struct statx *old)
{
	struct statx now;
	int rc = -ESTALE;

	d->invited = calloc(1, sizeof(*d->invited));
	if (!d->invited) {
		unmake(c->fs, d);
		return -ENOMEM;
	}
	*d->invited = (struct invitation){.tid = fuse_req_ctx(c->req)->pid, .at_ns = ckpt_sys.mono_ns()};
	d->publishing = true;
	names_write_lock(c->fs);
	if (!drafts_insert(c->fs, d))
		rc = -EBUSY;
	// Who removes or renames looks for a draft after it is done: one that came too late must see that.
	else if (statx(dirfd, d->name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &now) ||
		 ckpt_store_ino(&now) != ckpt_store_ino(old))
		rc = -EAGAIN;
	names_unlock(c->fs);
	if (rc == -EBUSY) {
		unmake(c->fs, d);
		return rc;
	}
	if (rc != -ESTALE)
		draft_cancel(c->fs, d);
	ckpt_lock_take(&c->fs->drafts->lock);
	d->publishing = false;
	pthread_cond_broadcast(&c->fs->drafts->changed);
	ckpt_lock_drop(&c->fs->drafts->lock);
	drafts_watch(c->fs);
	draft_unref(c->fs, d);
	return rc;
}

#define ENDING_LOOKS_MAX 20 // a millisecond apart

// -ENOTSUP: the old file is to be opened as it is. -EBUSY: another thread was quicker to begin one; -EAGAIN: the name leads
// to another file by now. -EINPROGRESS: close(2) has returned to a writer, and the release of it may still be to come.
static int begin_on(struct call *c, struct node *dir, const char *name, bool step_form)
{
	bool truncate = c->fi.flags & O_TRUNC;
	CLEANUP_FD int dirfd = node_open(c->fs, dir, O_RDONLY | O_DIRECTORY);
	CLEANUP_FD int old = -1;
	struct live_child child;
	struct writers are;
	struct draft *d;
	int fd, rc = dirfd < 0 ? dirfd : look_at_child(c->fs, dir, dirfd, name, &child);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	are = writers_of(c->fs, child.number);
	if (are.ending && (!truncate ? are.any : !step_form && are.live) && c->looks++ < ENDING_LOOKS_MAX)
		return -EINPROGRESS;
	old = may_begin_on(&child, step_form, &are) ? ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0) : -1;
	if (old < 0)
		return -ENOTSUP;
	fd = ckpt_sys.open(dirfd, name, O_WRONLY | O_NONBLOCK, 0); // may we?
	if (fd < 0)
		return fd == -ENOENT ? -EAGAIN : fd;
	ckpt_sys.close(fd);
	// What is cut off itself, or empty, is not worth a copy, which would have to be whole. And who writes what others have
	// open for writing, or mapped, wants to see the same as they.
	if (!truncate && (ckpt_format_check(old, name) || are.any))
		return -ENOTSUP;
	rc = step_form ? limit_draft(c) : 0;
	if (!rc)
		rc = make(c, dir, name, -1, &d);
	if (rc)
		return rc;
	d->replaces = true;
	d->tracker = !step_form;
	rc = fill(d, old, &child.stx, truncate);
	if (!rc)
		return enter_table(c, d, dirfd, &child.stx);
	unmake(c->fs, d);
	return rc == -EPERM || !truncate ? -ENOTSUP : rc;
}

static bool may_be_tracker(const char *name, int flags)
{
	return (flags & O_TRUNC) && !(flags & O_APPEND) && !ckpt_tracker_is_log(name);
}

// What the name has may be published, begun or taken away by others at any moment: then it is looked at again here. The
// kernel would do so too, but only once for an open, and that once is needed to lead it to the draft.
static int enter_by_name(struct call *c, struct node *dir, const char *name)
{
	bool step_form = ckpt_name_is_file_step(name);
	int rc;

	if (ckpt_name_check(name, strlen(name)))
		return 0; // no client could have given it, and a session could not be called by it
	do {
		struct draft *d = draft_find(c->fs, dir, name);

		if (d) {
			rc = enter_old(c, d);
			draft_unref(c->fs, d);
			if (rc == -EBUSY) // it is being published
				return rc;
		} else {
			rc = step_form || may_be_tracker(name, c->fi.flags) ? begin_on(c, dir, name, step_form) : 0;
		}
	} while (rc == -EBUSY || rc == -EAGAIN);
	return rc == -ENOTSUP ? 0 : rc;
}

int draft_enter(struct call *c, struct draft **ret_draft)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *dir;
	int rc = 1;

	if (c->step)
		return 0;
	if (drafts_any(c->fs))
		rc = enter_own(c, ret_draft);
	if (rc == 1 && only_name(c->fs, c->node, &dir, name, sizeof(name))) {
		rc = enter_by_name(c, dir, name);
		node_unref(c->fs, dir);
	}
	// Not here: a folder may become a step by the publication, which this call holds up.
	if (rc == -EBUSY || rc == -EINPROGRESS) {
		call_again_soon(c);
		return -EINPROGRESS;
	}
	return rc == 1 ? 0 : rc;
}

void draft_joined(struct ckpt_fs *fs, fuse_req_t req, struct draft *d, struct handle *h, int rc)
{
	pid_t opener = rc ? 0 : client_process(fuse_req_ctx(req)->pid);

	ckpt_lock_take(&fs->drafts->lock);
	d->joining--;
	d->opened = true;
	if (!rc) {
		h->draft = d;
		h->opener = opener;
		h->draft_next = d->writers;
		d->writers = h;
		d->told &= !d->header_ns; // what becomes of it now is another matter
		d->header_ns = 0;
	}
	ckpt_lock_drop(&fs->drafts->lock);
	if (!rc) {
		if (draft_is_watched(d))
			drafts_watch(fs);
		return;
	}
	(void)draft_settle(fs, d, false); // who closed meanwhile has left it to us
	draft_unref(fs, d);
}
