#include "fs/amend.h"

#include "core/amend.h"
#include "core/clone.h"
#include "core/errlog.h"
#include "core/remove.h"
#include "core/reopen.h"
#include "core/stage.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"
#include "core/uuid.h"
#include "fs/attr.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/copy_up.h"
#include "fs/node.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// Guarded by the lock of the node's use, but for the handle's own.
struct amend_file {
	bool on;          // from its creation to the last release (atomic)
	bool published;   // as it is; who writes now writes into a copy (atomic)
	unsigned handles; // that may still write
	unsigned closed;  // of them, those that had a close and no release yet, which the kernel sends when it likes
	char again[40];   // that copy, in the session's directory, until it is published, too; else ""
	struct amend_handle *first;
};

struct amend_handle {
	struct amend_handle *next;
	struct handle *h;
	pid_t opener; // process, 0 not known
	bool dead;    // its process was killed
	bool flushed; // once, while it was empty
	bool closed;  // counted by the file
	int result;   // of the last close that counted
};

static struct amend_file *amend_of(const struct node *n)
{
	struct node_use *use = node_used(n);

	struct amend_file *f = use ? __atomic_load_n(&use->amend, __ATOMIC_ACQUIRE) : NULL;

	return f && __atomic_load_n(&f->on, __ATOMIC_ACQUIRE) ? f : NULL;
}

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
	__atomic_store_n(&f->on, false, __ATOMIC_RELEASE);
	__atomic_store_n(&f->published, false, __ATOMIC_RELEASE);
	f->closed = 0;
	*f->again = '\0';
}

static bool is_published(const struct amend_file *f)
{
	return __atomic_load_n(&f->published, __ATOMIC_ACQUIRE);
}

static void set_published(struct amend_file *f, bool published)
{
	__atomic_store_n(&f->published, published, __ATOMIC_RELEASE);
}

bool amend_is_changing(const struct node *n)
{
	struct amend_file *f = amend_of(n);

	return f && !is_published(f);
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
	return ckpt_remove_any(c->step) ? CALL_REOPENS : 0; // some of it is removed: it is being made anew
}

static void show_change(struct ckpt_fs *fs, struct node *dir)
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
		show_change(c->fs, c->node);
		rc = lookup_child(c->fs, c->node, c->name, &e);
	}
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

int amend_make(struct call *c)
{
	int rc = may_amend(c);

	if (rc)
		return rc;
	c->run = run_make;
	c->committed = NULL;
	call_detach(c); // it waits for the disk
	return CALL_ANSWERED;
}

static void release_unanswered(struct call *c)
{
	struct handle *h = handle_of(&c->fi);

	if (h->amend)
		amend_release(c->fs, NULL, h);
	else
		handle_release(c->fs, NULL, h);
}

// --- Files: from creation to close --------------------------------------------------------------------------------------

// The kernel has the name locked while a file is made, and an open file keeps what it has.
static int begin_file(struct node *n)
{
	struct amend_file *f;
	LOCK_SCOPE(&n->use->lock);

	f = n->use->amend ? n->use->amend : calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
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

static void strike_off_locked(struct amend_file *f, struct amend_handle *ah)
{
	struct amend_handle **slot = &f->first;

	while (*slot != ah)
		slot = &(*slot)->next;
	*slot = ah->next;
	f->handles--;
	f->closed -= ah->closed;
}

int amend_serve(struct call *c, struct node *n, int fd, int writer, bool creates)
{
	struct amend_handle *ah = calloc(1, sizeof(*ah));
	bool cuts = c->fi.flags & O_TRUNC;
	struct handle *h;
	int rc = ah ? node_use(n) : -ENOMEM;

	c->fi.flags &= ~O_TRUNC; // what was published is not cut off in place
	if (!rc)
		rc = begin_file(n);
	if (!rc) {
		rc = handle_open(c->fs, c->req, n, TAKE_FD(fd), TAKE_FD(writer), c->step, false, &c->fi);
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

static bool has_writers(struct node *n)
{
	LOCK_SCOPE(&n->use->lock);

	return n->use->amend->handles;
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
	rc = create_on_disk(c, &p, path, &e);
	place_done(&p);
	if (rc == -EAGAIN)
		return CALL_REOPENS; // another did so meanwhile
	if (rc == -EEXIST && !(c->fi.flags & O_EXCL))
		rc = -ESTALE; // somebody came first: the kernel looks the name up again
	if (rc)
		return rc;
	if (fuse_reply_create(c->req, &e, &c->fi) == -ENOENT) {
		release_unanswered(c);
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
	}
	return CALL_ANSWERED;
}

// Another open of it, or a change of its attributes.
int amend_pending(struct call *c)
{
	struct amend_file *f = amend_of(c->node);
	struct handle *h = c->opens ? NULL : handle_of(&c->fi);

	if (f && c->opens && has_writers(c->node) && (c->fi.flags & O_ACCMODE) != O_RDONLY) {
		int rc = amend_serve(c, c->node, -1, -1, false);

		if (rc)
			return rc;
		if (fuse_reply_open(c->req, &c->fi) == -ENOENT)
			release_unanswered(c);
		return CALL_ANSWERED;
	}
	if (f && h && h->amend && c->reopens) { // ftruncate(2)
		c->run(c);
		return CALL_ANSWERED;
	}
	if (!f && h && h->writes && c->reopens) { // what a fork's leftover has is its own since the commit
		c->run(c);
		return CALL_ANSWERED;
	}
	if (!f || is_published(f))
		return c->reopens ? CALL_REOPENS : -EROFS;
	c->run(c);
	return CALL_ANSWERED;
}

int amend_remove(struct ckpt_fs *fs, struct node *dir, const struct place *p, const char *name)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];
	CLEANUP_FD int dirfd = -1;
	struct live_child child;
	struct node *n;
	int rc;

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	rc = ckpt_amend_settle(p->step);
	if (rc)
		return rc;
	if (!ckpt_amend_is_pending(p->step, path))
		return -ENOENT;
	dirfd = place_open(fs, p, O_RDONLY | O_DIRECTORY);
	rc = dirfd < 0 ? dirfd : stat_live_child(dir, p, dirfd, name, &child);
	if (!rc)
		rc = ckpt_sys.unlink(dirfd, name, 0);
	if (rc)
		return rc;
	ckpt_amend_forget(p->step, path);
	n = node_find(fs, SPACE_LIVE, child.number);
	if (n) {
		names_write_lock(fs);
		name_drop_locked(fs, n, dir, name);
		names_unlock(fs);
	}
	node_unref(fs, n);
	return 0;
}

static int rename_pending(struct call *c, const struct place *from, const char *path, const struct place *to,
			  const char *to_path)
{
	CLEANUP_FD int from_fd = place_open(c->fs, from, O_RDONLY | O_DIRECTORY);
	CLEANUP_FD int to_fd = place_open(c->fs, to, O_RDONLY | O_DIRECTORY);
	struct live_child child;
	struct node *n;
	int rc = from_fd < 0 ? from_fd : to_fd < 0 ? to_fd : check_new_name(c->fs, c->other, c->step, c->other_name);

	if (!rc)
		rc = ckpt_amend_clear(c->step, to_fd, to_path);
	if (!rc)
		rc = stat_live_child(c->node, from, from_fd, c->name, &child);
	if (rc)
		return rc == -EEXIST ? CALL_REOPENS : rc;
	names_write_lock(c->fs);
	rc = ckpt_sys.rename(from_fd, c->name, to_fd, c->other_name, RENAME_NOREPLACE);
	n = rc ? NULL : node_find(c->fs, SPACE_LIVE, child.number);
	if (n) {
		name_drop_locked(c->fs, n, c->node, c->name);
		(void)name_add_locked(c->fs, n, c->other, c->other_name);
	}
	names_unlock(c->fs);
	node_unref(c->fs, n);
	return rc ? rc : ckpt_amend_rename(c->step, path, to_path);
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

// --- Files: the close ---------------------------------------------------------------------------------------------------

static int publish_again(struct ckpt_fs *fs, const struct place *p, const char *raw)
{
	char from[CKPT_UUID_LEN + 64], to[CKPT_UUID_LEN + 1 + sizeof(p->buf)];

	if (!place_is_committed(p) && p->step->base) { // it was reopened meanwhile
		snprintf(from, sizeof(from), "%s/%s", p->step->base->session, raw);
		snprintf(to, sizeof(to), "%s/%s", p->step->session, p->path);
		return ckpt_sys.rename(fs->store->sessions_fd, from, fs->store->sessions_fd, to, 0);
	}
	return ckpt_amend_replace(p->step, p->path, raw);
}

// Its node in the directory, for the kernel, which may have a listing without it; and what it is called there.
static struct node *parent_of(struct ckpt_fs *fs, const struct node *n, char *ret_name)
{
	struct node *dir = NULL;

	names_read_lock(fs);
	if (n->names) {
		dir = n->names->parent;
		node_ref(fs, dir);
		snprintf(ret_name, CKPT_NAME_MAX + 1, "%s", n->names->text);
	}
	names_unlock(fs);
	return dir;
}

static int publish_added(struct ckpt_fs *fs, struct node *n, const struct place *p)
{
	struct amend_file *f = amend_of(n);
	char name[CKPT_NAME_MAX + 1];
	struct node *dir;
	int rc = 0;

	if (p->step && ckpt_amend_is_pending(p->step, p->path)) {
		rc = ckpt_amend_add(p->step, p->path);
		if (!rc)
			ckpt_amend_forget(p->step, p->path);
		else if (rc == -EBUSY && ckpt_reopen_any(p->step))
			rc = 0; // it went along: the commit of that has it
	}
	if (!rc && p->step && *f->again) // written since a close
		rc = publish_again(fs, p, f->again);
	if (!rc)
		*f->again = '\0';
	else if (rc != -EIO)
		set_published(f, false); // what is written from now on goes with the next close
	dir = rc ? NULL : parent_of(fs, n, name);
	if (dir)
		show_change(fs, dir);
	node_unref(fs, dir);
	return rc;
}

// While its close is the commit nobody may be able to write it: those that have it open for writing, and have closed it, have
// their descriptors back if the commit fails. What is written after it is a change of the version.
static void let_go_of_file(struct node *n)
{
	LOCK_SCOPE(&n->use->lock);

	for (struct amend_handle *ah = n->use->amend->first; ah; ah = ah->next) {
		ckpt_stage_writer_remove(&ah->h->writer);
		if (ah->h->fd >= 0)
			ckpt_sys.close(TAKE_FD(ah->h->fd));
	}
}

static void take_file_back(struct node *n, struct ckpt_step *step)
{
	LOCK_SCOPE(&n->use->lock);

	for (struct amend_handle *ah = n->use->amend->first; ah; ah = ah->next) {
		if (!ah->h->writes)
			continue;
		ah->h->fd = handle_reopen(ah->h); // a failure shows when it is written
		if (step && ckpt_step_state(step) == CKPT_STEP_STAGED)
			ckpt_stage_writer_add(step, &ah->h->writer);
	}
}

// The close of a file that may complete a step: this one, or from beside.
static int publish_completing(struct ckpt_fs *fs, struct handle *h, pid_t tid)
{
	struct amend_file *f = amend_of(h->node);
	char name[CKPT_NAME_MAX + 1];
	struct node *dir = parent_of(fs, h->node, name);
	struct ckpt_deed deed = {.act = CKPT_ACT_CLOSE, .name = name, .fd = h->node->use->fd};
	struct ckpt_step *step = dir ? node_step(fs, dir) : NULL, *now;
	bool watched = dir && complete_watches_close(fs, dir, step, name), here = false;
	struct completing c;
	int rc = watched ? complete_decide(fs, dir, &deed, true, tid, &c) : -ENOENT;

	if (!rc) {
		here = !*c.what.beside;
		if (here)
			let_go_of_file(h->node);
		rc = complete_run(fs, &c, tid);
	} else if (rc == -EINVAL && !tid && step) { // else more may come
		complete_tell(fs, dir, name, "was closed, and is empty or cut");
		rc = 0;
	} else {
		rc = 0;
	}
	now = dir ? node_step(fs, dir) : NULL;
	if (watched && (!now || ckpt_step_state(now) != CKPT_STEP_COMMITTED)) {
		if (here)
			take_file_back(h->node, now);
		set_published(f, false);
	}
	ckpt_step_unref(now);
	ckpt_step_unref(step);
	node_unref(fs, dir);
	return rc;
}

// What the file is called now, and in which step; the step may have been reopened meanwhile, and its commit then has it. tid: who
// waits for it, 0 nobody any more.
static int publish(struct ckpt_fs *fs, struct handle *h, pid_t tid)
{
	struct amend_file *f = amend_of(h->node);
	struct place p;
	int rc = place_of(fs, h->node, &p);

	if (rc == -ESTALE) {
		set_published(f, false); // it was removed before its close, and is its writer's
		return 0;
	}
	if (rc)
		return rc;
	if (place_is_committed(&p) || *f->again || (p.step && ckpt_amend_is_pending(p.step, p.path)))
		rc = publish_added(fs, h->node, &p);
	else
		rc = publish_completing(fs, h, tid);
	place_done(&p);
	return rc;
}

static void run_flush(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	int rc;

	handle_flushed(h);
	pthread_mutex_lock(&h->node->use->lock);  // of writes none is under way
	set_published(h->node->use->amend, true); // whoever writes from now on writes into a copy
	pthread_mutex_unlock(&h->node->use->lock);
	rc = publish(c->fs, h, fuse_req_ctx(c->req)->pid);
	pthread_mutex_lock(&h->node->use->lock);
	h->amend->result = rc;
	pthread_mutex_unlock(&h->node->use->lock);
	reply_error(c->req, rc);
}

static bool flush_counts(struct handle *h, pid_t tid, int *ret_result)
{
	struct amend_handle *ah = h->amend;
	bool killed = client_was_killed(tid);
	pid_t process = client_process(tid);
	struct amend_file *f;
	struct stat st;

	LOCK_SCOPE(&h->node->use->lock);
	f = h->node->use->amend;
	*ret_result = ah->result;
	if (process && ah->opener && process != ah->opener)
		return false; // a forked child lets go of it
	ah->dead |= killed;
	if (ah->dead)
		return false;
	f->closed += !ah->closed;
	ah->closed = true;
	if (is_published(f) || f->handles != f->closed)
		return false;
	// A shell closes one of two descriptors before it writes: an empty file waits for the second close.
	if (!ah->flushed && !fstat(h->node->use->fd, &st) && !st.st_size) {
		ah->flushed = true;
		return false;
	}
	return true;
}

void amend_flush(fuse_req_t req, struct handle *h)
{
	struct call c = {.run = run_flush, .req = req, .fs = fs_of(req), .node = h->node, .fi = {.fh = (uintptr_t)h}};
	int result;

	if (flush_counts(h, fuse_req_ctx(req)->pid, &result))
		call_detach(&c);
	else
		reply_error(req, result);
}

// The bytes that were published stay: what is written now is in a copy, which is the file of all who have it open.
static int write_again_locked(struct ckpt_fs *fs, struct handle *h, const struct ckpt_step *step)
{
	struct amend_file *f = h->node->use->amend;
	char path[CKPT_UUID_LEN + 64], again[sizeof(f->again)];
	CLEANUP_FD int to = -1, reads = -1;
	struct statx stx;
	uint64_t salt;
	int rc = ckpt_sys.random(&salt, sizeof(salt));

	if (rc)
		return rc;
	snprintf(again, sizeof(again), ".again-%016llx", (unsigned long long)salt);
	snprintf(path, sizeof(path), "%s/%s", step->session, again);
	to = ckpt_sys.open(fs->store->sessions_fd, path, O_RDWR | O_CREAT | O_EXCL, 0600);
	reads = to < 0 ? to : ckpt_sys.open(fs->store->sessions_fd, path, O_RDONLY, 0);
	(void)ckpt_amend_mark(to);
	rc = reads < 0 ? reads : statx(h->node->use->fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : 0;
	if (!rc)
		rc = ckpt_clone_file(h->node->use->fd, to, &stx, false);
	if (!rc && statx(to, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
		rc = -errno;
	if (!rc && dup3(reads, h->node->use->fd, O_CLOEXEC) < 0)
		rc = -errno;
	if (rc) {
		ckpt_sys.unlink(fs->store->sessions_fd, path, 0);
		return rc;
	}
	memcpy(f->again, again, sizeof(again));
	__atomic_store_n(&h->node->file, ckpt_store_ino(&stx), __ATOMIC_RELAXED);
	set_published(f, false);
	return 0;
}

// Each handle writes through a descriptor of its own: it follows the file.
static int follow_locked(struct handle *h)
{
	struct stat ours, now;
	int fd, rc = 0;

	if (h->fd < 0) { // let go of, when its close was the commit
		h->fd = h->writes ? handle_reopen(h) : -EBADF;
		return MIN(h->fd, 0);
	}
	if (fstat(h->fd, &ours) || fstat(h->node->use->fd, &now) || ours.st_ino == now.st_ino)
		return 0;
	fd = handle_reopen(h);
	if (fd < 0 || dup3(fd, h->fd, O_CLOEXEC) < 0)
		rc = fd < 0 ? fd : -errno;
	if (fd >= 0)
		ckpt_sys.close(fd);
	return rc;
}

// Whose session has the published bytes: one that was reopened since shares them. NULL: it was deleted.
static struct ckpt_step *owner_of(struct ckpt_step *step)
{
	return !step || ckpt_step_state(step) == CKPT_STEP_COMMITTED ? step : step->base;
}

int amend_write_begin(struct ckpt_fs *fs, struct handle *h)
{
	struct amend_file *f = h->node->use->amend;
	struct ckpt_step *step = node_step(fs, h->node), *owner;
	int rc = 0;

	if (step && ckpt_step_state(step) == CKPT_STEP_COMMITTING && !ckpt_stage_enter(step, true))
		ckpt_stage_leave(step); // its own close may be the commit: then this is a change of what was committed
	owner = owner_of(step);
	pthread_mutex_lock(&h->node->use->lock);
	if (is_published(f))
		rc = owner ? write_again_locked(fs, h, owner) : -ESTALE;
	if (!rc)
		rc = follow_locked(h);
	ckpt_step_unref(step);
	if (rc)
		pthread_mutex_unlock(&h->node->use->lock);
	return rc;
}

void amend_write_end(struct handle *h)
{
	pthread_mutex_unlock(&h->node->use->lock);
}

// What was written since the last close is not the step's: whoever has the file open reads what is.
static int drop_again(struct ckpt_fs *fs, struct node *n, const struct place *p)
{
	struct amend_file *f = amend_of(n);
	char path[CKPT_UUID_LEN + 64];
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	CLEANUP_FD int fd = -1;
	int rc = ckpt_amend_settle(p->step);

	if (rc || !*f->again || ckpt_amend_has_raw(p->step, p->path, f->again))
		return rc ? rc : -ENOENT;
	rc = ckpt_step_manifest(p->step, &m);
	if (rc)
		return rc;
	rc = ckpt_manifest_lookup(m, p->path, &e.index);
	if (!rc)
		rc = ckpt_step_open_raw(p->step, m, e.index, &fd);
	ckpt_manifest_unref(m);
	if (rc)
		return rc;
	pthread_mutex_lock(&n->use->lock);
	if (dup3(fd, n->use->fd, O_CLOEXEC) < 0)
		rc = -errno;
	__atomic_store_n(&n->file, 0, __ATOMIC_RELAXED);
	set_published(f, true);
	snprintf(path, sizeof(path), "%s/%s", p->step->session, f->again);
	*f->again = '\0';
	pthread_mutex_unlock(&n->use->lock);
	ckpt_sys.unlink(fs->store->sessions_fd, path, 0);
	(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, n), 0, 0);
	return rc;
}

// A killed writer's file, or one that could not be added, is nobody's.
static void drop(struct ckpt_fs *fs, struct handle *h)
{
	struct place p;
	const char *name;
	struct node *dir;
	int rc = -ENOENT;

	names_read_lock(fs);
	dir = h->node->names ? h->node->names->parent : NULL;
	name = h->node->names ? strdup(h->node->names->text) : NULL;
	if (dir)
		node_ref(fs, dir);
	names_unlock(fs);
	if (dir && name && !place_of(fs, h->node, &p)) {
		rc = p.step && place_is_committed(&p) ? drop_again(fs, h->node, &p) : -ENOENT;
		place_done(&p);
	}
	if (dir && name && !place_of(fs, dir, &p)) {
		if (p.step && rc)
			rc = amend_remove(fs, dir, &p, name);
		if (p.step && !rc)
			ckpt_errlog_add(fs->store->errlog, p.step->name, 0, "write it again",
					"a file that was being added was not: %s%s%s: %s", p.path, *p.path ? "/" : "",
					name, h->amend->dead ? "its writer was killed" : "its close failed");
		place_done(&p);
	}
	free((char *)(uintptr_t)name);
	node_unref(fs, dir);
}

static void run_release(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	bool last;

	pthread_mutex_lock(&h->node->use->lock);
	strike_off_locked(h->node->use->amend, h->amend);
	last = !h->node->use->amend->handles;
	pthread_mutex_unlock(&h->node->use->lock);
	if (last && !h->amend->dead && !is_published(amend_of(h->node))) {
		ckpt_stage_writer_remove(&h->writer); // it is closed
		if (h->fd >= 0)
			ckpt_sys.close(TAKE_FD(h->fd));
		h->amend->dead = publish(c->fs, h, 0) != 0; // nobody is left to be told; the error log has it
	}
	if (last && (h->amend->dead || h->amend->result))
		drop(c->fs, h); // unless it was added
	free(TAKE_PTR(h->amend));
	handle_release(c->fs, c->req, h);
	if (c->req)
		reply_error(c->req, 0);
}

void amend_release(struct ckpt_fs *fs, fuse_req_t req, struct handle *h)
{
	struct call c = {.run = run_release, .req = req, .fs = fs, .node = h->node, .fi = {.fh = (uintptr_t)h}};

	call_detach(&c);
}
