#include "fs/amend.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/amend.h"
#include "core/commit/remove.h"
#include "core/commit/reopen.h"
#include "core/stage/stage.h"
#include "core/store/store.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/node.h"
#include "fs/ops.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

bool amend_is_on(const struct node *n)
{
	return amend_of(n);
}

// It stays where it is until the node goes: somebody may be looking at it.
void amend_end(struct node *n)
{
	struct amend_file *f = amend_of(n);

	if (!f)
		return;
	__atomic_store_n(&f->on, f->begins > 0, __ATOMIC_RELEASE);
	__atomic_store_n(&f->published, false, __ATOMIC_RELEASE);
	f->changed = false;
	f->closed = 0;
	*f->again = '\0';
}

void amend_free(struct amend_file *f)
{
	if (f)
		ckpt_lock_done(&f->publishing);
	free(f);
}

bool amend_is_changing(const struct node *n)
{
	struct amend_file *f = amend_of(n);

	return f && !is_published(f);
}

bool amend_writes_copy(const struct node *n)
{
	const struct amend_file *f = amend_of(n);

	return f && *f->again;
}

bool amend_is_ending(const struct node *n)
{
	const struct amend_file *f = amend_of(n);

	return f && !f->handles && !f->begins && !is_published(f);
}

bool amend_is_published(const struct node *n)
{
	struct amend_file *f = amend_of(n);

	return f && is_published(f);
}

// The path in the step of a name in this directory.
static int path_of(struct ckpt_fs *fs, struct node *dir, const char *name, struct place *p, char *buf, size_t cap)
{
	int rc = place_of(fs, dir, p);

	if (!rc && (size_t)snprintf(buf, cap, "%s%s%s", p->path, *p->path ? "/" : "", name) >= cap) {
		place_done(p);
		rc = -ENAMETOOLONG;
	}
	return rc;
}

bool amend_is_name(const struct place *p, const char *name)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	return ckpt_amend_is_pending(p->step, path);
}

// Whether the step of the call takes additions as it is.
static int may_amend(const struct call *c)
{
	if (c->fs->mount->readonly || c->fs->store->settings.amend == CKPT_AMEND_DENY || !c->step ||
	    ckpt_step_state(c->step) != CKPT_STEP_COMMITTED || (c->other_step && c->other_step != c->step))
		return -EROFS;
	return ckpt_remove_hides(c->step) ? CALL_REOPENS : 0; // it is being removed, or made anew
}

void amend_show_change(struct ckpt_fs *fs, struct node *dir)
{
	// The kernel may have kept a listing since the name was made.
	(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, dir), 0, 0);
}

// --- mkdir, mknod, symlink ----------------------------------------------------------------------------------------------

static int make_on_disk(struct call *c, int dirfd)
{
	if (c->data)
		return ckpt_sys.symlink(c->data, dirfd, c->name);
	if (S_ISREG(c->mode)) {
		int fd = ckpt_sys.open(dirfd, c->name, O_WRONLY | O_CREAT | O_EXCL, c->mode & 07777);

		if (fd >= 0)
			ckpt_sys.close(fd);
		return MIN(fd, 0);
	}
	return ckpt_sys.mkdir(dirfd, c->name, c->mode & 07777);
}

static int make(struct call *c, const struct place *p, const char *path)
{
	CLEANUP_FD int dirfd = place_open(c->fs, p, O_RDONLY | O_DIRECTORY);
	int rc = dirfd < 0 ? dirfd : check_new_name(c->fs, c->node, p->step, c->name);

	if (!rc)
		rc = ckpt_amend_clear(p->step, dirfd, path);
	if (!rc)
		rc = make_on_disk(c, dirfd);
	if (!rc)
		rc = give_to_client(c->req, dirfd, c->name);
	if (rc)
		return rc;
	rc = ckpt_amend_add(p->step, path);
	if (rc && rc != -EIO) // that one may be in place
		ckpt_sys.unlink(dirfd, c->name, S_ISDIR(c->mode) ? AT_REMOVEDIR : 0);
	return rc;
}

static void run_make(struct call *c)
{
	struct fuse_entry_param e = {0};
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = path_of(c->fs, c->node, c->name, &p, path, sizeof(path));

	if (!rc) {
		rc = p.step ? make(c, &p, path) : -ESTALE;
		place_done(&p);
	}
	if (!rc) {
		amend_show_change(c->fs, c->node);
		rc = lookup_child(c->fs, c->node, c->name, &e);
	}
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

// A name whose file was removed a moment ago, which no version says yet: both are one change of the step.
static bool is_taken_over(const struct place *p, const char *path)
{
	return p->step && ckpt_remove_has_path(p->step, path);
}

int amend_make(struct call *c)
{
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = may_amend(c);

	if (!rc)
		rc = path_of(c->fs, c->node, c->name, &p, path, sizeof(path));
	if (rc)
		return rc;
	rc = is_taken_over(&p, path) ? CALL_REOPENS : 0;
	place_done(&p);
	if (rc)
		return rc;
	c->run = run_make;
	c->committed = NULL;
	call_detach(c); // it waits for the disk
	return CALL_ANSWERED;
}

void amend_release_unanswered(struct ckpt_fs *fs, struct handle *h)
{
	if (h->amend)
		amend_release(fs, NULL, h);
	else
		handle_release(fs, NULL, h);
}

// --- Files: from creation to close --------------------------------------------------------------------------------------

// The kernel has the name locked while a file is made, and an open file keeps what it has.
static int begin_file(struct node *n, bool creates)
{
	struct amend_file *f;
	LOCK_SCOPE(&n->use->lock);

	f = n->use->amend;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			return -ENOMEM;
		ckpt_lock_init(&f->publishing, CKPT_LOCK_PUBLISHING);
	}
	f->changed |= creates;
	f->begins++;
	__atomic_store_n(&f->on, true, __ATOMIC_RELEASE);
	__atomic_store_n(&n->use->amend, f, __ATOMIC_RELEASE);
	return 0;
}

static int cut_off(struct ckpt_fs *fs, struct handle *h)
{
	struct ckpt_step *step;
	int rc = amend_write_begin(fs, h);

	if (rc)
		return rc;
	rc = ckpt_sys.ftruncate(h->fd, 0);
	amend_write_end(h);
	step = rc ? NULL : node_step(fs, h->node);
	if (step)
		ckpt_stage_rewritten(step, h->node->number);
	ckpt_step_unref(step);
	return rc;
}

static void enlist(struct handle *h, struct amend_handle *ah)
{
	LOCK_SCOPE(&h->node->use->lock);
	struct amend_file *f = h->node->use->amend;

	ah->h = h;
	ah->next = f->first;
	f->first = ah;
	f->handles++;
	h->amend = ah;
}

// Whoever began it has it open, or could not.
static void end_beginning(struct node *n)
{
	LOCK_SCOPE(&n->use->lock);

	n->use->amend->begins--;
	if (!n->use->opens)
		amend_end(n);
}

int amend_serve(struct call *c, struct node *n, int fd, int writer, bool creates)
{
	struct amend_handle *ah = calloc(1, sizeof(*ah));
	bool cuts = c->fi.flags & O_TRUNC;
	struct handle *h;
	int rc = ah ? node_use(n) : -ENOMEM;

	c->fi.flags &= ~O_TRUNC; // what was published is not cut off in place
	if (!rc)
		rc = begin_file(n, creates);
	if (!rc) {
		rc = handle_open(c->fs, c->req, n, TAKE_FD(fd), TAKE_FD(writer), c->step, false, &c->fi);
		end_beginning(n);
	}
	if (fd >= 0)
		ckpt_sys.close(fd);
	if (writer >= 0)
		ckpt_sys.close(writer);
	if (rc) {
		free(ah);
		return rc;
	}
	h = handle_of(&c->fi);
	ah->opener = client_process(fuse_req_ctx(c->req)->pid);
	ah->copies = complete_is_copier(ah->opener);
	if (!h->writes && !creates) {
		free(ah);
		return 0;
	}
	enlist(h, ah); // who makes a file and only reads it has it added, too
	rc = cuts && !creates ? cut_off(c->fs, h) : 0;
	if (rc)
		amend_release(c->fs, NULL, h);
	return rc;
}

static int create_on_disk(struct call *c, const struct place *p, const char *path, struct fuse_entry_param *ret_entry)
{
	CLEANUP_FD int dirfd = place_open(c->fs, p, O_RDONLY | O_DIRECTORY);
	CLEANUP_FD int writer = -1, fd = -1;
	int rc = dirfd < 0 ? dirfd : check_new_name(c->fs, c->node, p->step, c->name);

	if (!rc)
		rc = ckpt_amend_clear(p->step, dirfd, path);
	if (rc)
		return rc;
	writer = ckpt_sys.open(dirfd, c->name, O_RDWR | O_CREAT | O_EXCL, c->mode & 07777);
	if (writer < 0)
		return writer;
	(void)ckpt_amend_mark(writer); // it matters to `ckptfs verify` after a crash
	fd = ckpt_sys.open(dirfd, c->name, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		fd = fcntl(writer, F_DUPFD_CLOEXEC, 0); // its mode forbids reading
	rc = fd < 0 ? -errno : adopt_created(c->fs, c->req, c->node, dirfd, c->name, fd, ret_entry);
	if (!rc) {
		rc = ckpt_amend_begin(p->step, path);
		if (!rc)
			rc = amend_serve(c, node_of(c->fs, ret_entry->ino), TAKE_FD(fd), TAKE_FD(writer), true);
		if (rc) {
			ckpt_amend_forget(p->step, path);
			node_forget(c->fs, node_of(c->fs, ret_entry->ino), 1);
		}
	}
	if (rc)
		ckpt_sys.unlink(dirfd, c->name, 0);
	return rc;
}

int amend_create(struct call *c)
{
	struct fuse_entry_param e = {0};
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = may_amend(c);

	if (!rc)
		rc = path_of(c->fs, c->node, c->name, &p, path, sizeof(path));
	if (rc)
		return rc;
	c->fi.flags &= ~O_TRUNC;
	rc = is_taken_over(&p, path) ? CALL_REOPENS : create_on_disk(c, &p, path, &e);
	place_done(&p);
	if (rc == -EAGAIN)
		return CALL_REOPENS; // another did so meanwhile
	if (rc == -EEXIST && !(c->fi.flags & O_EXCL))
		rc = -ESTALE; // somebody came first: the kernel looks the name up again
	if (rc)
		return rc;
	if (fuse_reply_create(c->req, &e, &c->fi) == -ENOENT) {
		amend_release_unanswered(c->fs, handle_of(&c->fi));
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
	}
	return CALL_ANSWERED;
}

// What a file of a committed step is to who opens it for writing, or changes its attributes.
enum standing {
	STEPS,   // it is the step's
	WRITTEN, // others have it open for writing: it is pending, or what they write goes into a copy
	ENDING,  // their last release is under way
};

// A file that was published, and closed by all, is the step's, though the kernel may not have sent the releases yet.
static enum standing look(struct call *c, bool joins)
{
	struct node_use *use = node_used(c->node);
	struct amend_file *f;

	if (!use)
		return STEPS;
	LOCK_SCOPE(&use->lock);
	f = amend_of(c->node);
	if (f)
		amend_see_commit_locked(c->fs, c->node);
	if (!f || (is_published(f) && (f->handles == f->closed || !joins || ckpt_remove_any(c->step))))
		return STEPS;
	if (!f->handles)
		return ENDING;
	if (joins)
		f->begins++;
	else
		f->changes++;
	return WRITTEN;
}

static int join(struct call *c)
{
	int rc = amend_serve(c, c->node, -1, -1, false);

	end_beginning(c->node);
	if (rc)
		return rc;
	if (fuse_reply_open(c->req, &c->fi) == -ENOENT)
		amend_release_unanswered(c->fs, handle_of(&c->fi));
	return CALL_ANSWERED;
}

static void change_pending(struct call *c)
{
	struct node *n = c->node;

	node_ref(c->fs, n); // it is the request's until that is answered
	c->run(c);
	amend_change_end(n);
	node_unref(c->fs, n);
}

#define ENDING_LOOKS_MAX 10000 // a millisecond each

// Another open of it, or a change of its attributes.
int amend_pending(struct call *c)
{
	bool joins = c->opens && (c->fi.flags & O_ACCMODE) != O_RDONLY;
	struct handle *h = c->opens ? NULL : handle_of(&c->fi);
	enum standing is;

	if (h && c->reopens && unwritten_is(h)) {
		c->step = NULL; // finish() drops it
		call_detach(c); // it waits for the disk
		return CALL_ANSWERED;
	}
	// ftruncate(2), also by a fork's leftover, whose file is its own since the commit.
	if (h && c->reopens && (h->amend || (h->writes && !amend_of(c->node)))) {
		c->run(c);
		return CALL_ANSWERED;
	}
	is = look(c, joins);
	// It lost its name while it was looked up, as a killed writer's file does: the step is not reopened for it, and who opens it
	// looks again who has the name.
	if (is == STEPS && c->opens && !node_has_place(c->fs, c->node))
		return -ESTALE;
	if (is == STEPS && joins && !may_amend(c))
		return unwritten_open(c);
	if (is == STEPS)
		return c->edits ? c->edits(c) : c->reopens ? CALL_REOPENS : -EROFS;
	if (is == ENDING) {
		if (c->looks++ >= ENDING_LOOKS_MAX)
			return -EBUSY;
		call_again_soon(c);
		return CALL_ANSWERED;
	}
	if (joins)
		return join(c);
	change_pending(c);
	return CALL_ANSWERED;
}

struct pending_unlink {
	struct node *dir;
	const struct place *place;
	const char *name;
	int dirfd;
	struct live_child child;
};

static int unlink_on_disk(void *arg)
{
	struct pending_unlink *u = arg;
	int rc = stat_live_child(u->dir, u->place, u->dirfd, u->name, &u->child);

	return rc ? rc : ckpt_sys.unlink(u->dirfd, u->name, 0);
}

int amend_remove(struct ckpt_fs *fs, struct node *dir, const struct place *p, const char *name)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];
	struct pending_unlink u = {.dir = dir, .place = p, .name = name};
	struct node *n;
	int rc;

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	rc = ckpt_amend_settle(p->step);
	if (rc)
		return rc;
	if (!ckpt_amend_is_pending(p->step, path))
		return ckpt_reopen_any(p->step) ? -EAGAIN : -ENOENT;
	CLEANUP_FD int dirfd = place_open(fs, p, O_RDONLY | O_DIRECTORY);

	u.dirfd = dirfd;
	rc = dirfd < 0 ? dirfd : ckpt_amend_rename(p->step, path, NULL, unlink_on_disk, &u);
	if (rc)
		return rc;
	n = node_find(fs, SPACE_LIVE, u.child.number);
	if (n) {
		names_write_lock(fs);
		name_drop_locked(fs, n, dir, name);
		names_unlock(fs);
	}
	node_unref(fs, n);
	return 0;
}

struct pending_rename {
	struct call *c;
	const struct place *from;
	int from_fd, to_fd;
};

// Of the file and of its node: who closes it meanwhile finds one name or the other.
static int rename_on_disk(void *arg)
{
	struct pending_rename *r = arg;
	struct call *c = r->c;
	struct live_child child;
	struct node *n;
	int rc = stat_live_child(c->node, r->from, r->from_fd, c->name, &child);

	if (rc)
		return rc;
	names_write_lock(c->fs);
	rc = ckpt_sys.rename(r->from_fd, c->name, r->to_fd, c->other_name, RENAME_NOREPLACE);
	n = rc ? NULL : node_find(c->fs, SPACE_LIVE, child.number);
	if (n) {
		name_drop_locked(c->fs, n, c->node, c->name);
		(void)name_add_locked(c->fs, n, c->other, c->other_name);
	}
	names_unlock(c->fs);
	node_unref(c->fs, n);
	return rc;
}

static int rename_pending(struct call *c, const struct place *from, const char *path, const struct place *to,
			  const char *to_path)
{
	CLEANUP_FD int from_fd = place_open(c->fs, from, O_RDONLY | O_DIRECTORY);
	CLEANUP_FD int to_fd = place_open(c->fs, to, O_RDONLY | O_DIRECTORY);
	struct pending_rename r = {.c = c, .from = from, .from_fd = from_fd, .to_fd = to_fd};
	int rc = from_fd < 0 ? from_fd : to_fd < 0 ? to_fd : check_new_name(c->fs, c->other, c->step, c->other_name);

	if (!rc)
		rc = ckpt_amend_clear(c->step, to_fd, to_path);
	if (!rc)
		rc = ckpt_amend_rename(c->step, path, to_path, rename_on_disk, &r);
	return rc == -EEXIST || rc == -EAGAIN ? CALL_REOPENS : rc;
}

int amend_rename(struct call *c)
{
	char path[sizeof(((struct place *)0)->buf)], to_path[sizeof(path)];
	struct place from, to;
	int rc = may_amend(c);

	if (rc)
		return c->step || c->other_step ? CALL_REOPENS : rc;
	if (c->flags & RENAME_EXCHANGE)
		return CALL_REOPENS;
	rc = path_of(c->fs, c->node, c->name, &from, path, sizeof(path));
	if (rc)
		return rc;
	if (c->step != c->other_step) {
		rc = ckpt_amend_is_pending(c->step, path) ? -EXDEV : CALL_REOPENS;
		place_done(&from);
		return rc;
	}
	rc = path_of(c->fs, c->other, c->other_name, &to, to_path, sizeof(to_path));
	if (!rc) {
		rc = ckpt_amend_is_pending(c->step, path) ? rename_pending(c, &from, path, &to, to_path) : CALL_REOPENS;
		place_done(&to);
	}
	place_done(&from);
	return rc;
}
