#include "fs/amend.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/remove.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "fs/amend_shared.h"
#include "fs/attr.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/draft.h"
#include "fs/look_again.h"
#include "fs/node.h"
#include "fs/ops.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

int amend_path_of(struct ckpt_fs *fs, struct node *dir, const char *name, struct place *p, char *buf, size_t cap)
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
	return ckpt_amending_is_pending(p->step, path);
}

int amend_may(const struct call *c)
{
	if (c->fs->mount->readonly || c->fs->store->settings.amend == CKPT_AMEND_DENY || !c->step ||
	    ckpt_step_state(c->step) != CKPT_STEP_COMMITTED || (c->other_step && c->other_step != c->step))
		return -EROFS;
	return ckpt_removal_hides(c->step) ? CALL_REOPENS : 0; // it is being removed, or made anew
}

void amend_show_change(struct ckpt_fs *fs, struct node *dir)
{
	// The kernel may have kept a listing since the name was made.
	(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, dir), 0, 0);
}

// --- mkdir, mknod, symlink ----------------------------------------------------------------------------------------------

static int make_on_disk(struct call *c, int dirfd, const char *raw)
{
	if (c->data)
		return ckpt_sys.symlink(c->data, dirfd, raw);
	if (S_ISREG(c->mode)) {
		int fd = ckpt_sys.open(dirfd, raw, O_WRONLY | O_CREAT | O_EXCL, c->mode & 07777);

		if (fd >= 0)
			ckpt_sys.close(fd);
		return MIN(fd, 0);
	}
	return ckpt_sys.mkdir(dirfd, raw, c->mode & 07777);
}

static int make(struct call *c, const struct place *p, const char *path)
{
	CLEANUP_FD int dirfd = amend_open_session(c->fs, p);
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = dirfd < 0 ? dirfd : amend_check_place(c, c->node, p, c->name, path, raw);

	if (!rc)
		rc = make_on_disk(c, dirfd, raw);
	if (!rc)
		rc = amend_give(c, p, dirfd, raw);
	if (rc)
		return rc;
	rc = ckpt_amend_add_raw(p->step, path, raw);
	if (rc && rc != -EIO) // that one may be in place
		ckpt_sys.unlink(dirfd, raw, S_ISDIR(c->mode) ? AT_REMOVEDIR : 0);
	return rc;
}

void amend_reply_made(struct call *c, int rc)
{
	struct fuse_entry_param e = {0};

	if (!rc) {
		amend_show_change(c->fs, c->node);
		rc = lookup_child(c->fs, c->node, c->name, &e);
	}
	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_entry(c->req, &e) == -ENOENT)
		node_forget(c->fs, node_of(c->fs, e.ino), 1);
}

static void run_make(struct call *c)
{
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = amend_path_of(c->fs, c->node, c->name, &p, path, sizeof(path));

	if (!rc) {
		rc = p.step ? make(c, &p, path) : -ESTALE;
		place_done(&p);
	}
	amend_reply_made(c, rc);
}

static bool was_array(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m;
	uint32_t index;
	bool was;

	if (ckpt_step_manifest(step, &m))
		return true;
	was = !ckpt_manifest_lookup(m, path, &index) && ckpt_amend_is_array(step, m, index) != 0;
	ckpt_manifest_unref(m);
	return was;
}

static void run_after_removal(struct call *c)
{
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;

	if (!amend_path_of(c->fs, c->node, c->name, &p, path, sizeof(path))) {
		if (p.step && !was_array(p.step, path))
			(void)ckpt_remove_publish(p.step); // if that fails, the step is reopened
		place_done(&p);
	}
	c->run = c->live;
	call_run(c);
}

// The name may be that of a file that was removed a moment ago, which no version says yet. Of array data both are one change of the
// step. But editors remove and make their files again.
static int after_removal(struct call *c, const struct place *p, const char *path)
{
	if (!p->step || !ckpt_removal_has_path(p->step, path))
		return 0;
	if (c->looks++)
		return CALL_REOPENS;
	c->live = c->run;
	c->run = run_after_removal;
	call_detach(c); // it waits for the disk
	return CALL_ANSWERED;
}

int amend_make(struct call *c)
{
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = amend_may(c);

	if (!rc)
		rc = amend_path_of(c->fs, c->node, c->name, &p, path, sizeof(path));
	if (rc)
		return rc;
	rc = after_removal(c, &p, path);
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
	if (h->amend) {
		amend_release(fs, NULL, h);
		return;
	}
	if (h->draft)
		draft_forsake(fs, h);
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

// A new raw file, open for writing and for reading.
static int create_raw(struct call *c, const struct place *p, int dirfd, const char *raw, int *ret_writer, int *ret_fd)
{
	int rc;

	*ret_writer = ckpt_sys.open(dirfd, raw, O_RDWR | O_CREAT | O_EXCL, c->mode & 07777);
	if (*ret_writer < 0)
		return *ret_writer;
	(void)ckpt_amending_mark(*ret_writer); // it matters to `ckptfs verify` after a crash
	*ret_fd = ckpt_sys.open(dirfd, raw, O_RDONLY | O_NONBLOCK, 0);
	if (*ret_fd < 0)
		*ret_fd = fcntl(*ret_writer, F_DUPFD_CLOEXEC, 0); // its mode forbids reading
	rc = *ret_fd < 0 ? -errno : 0;
	return rc ? rc : amend_give(c, p, dirfd, raw);
}

static int create_on_disk(struct call *c, const struct place *p, const char *path, struct fuse_entry_param *ret_entry)
{
	CLEANUP_FD int dirfd = amend_open_session(c->fs, p);
	CLEANUP_FD int writer = -1, fd = -1;
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = dirfd < 0 ? dirfd : amend_check_place(c, c->node, p, c->name, path, raw);

	if (rc)
		return rc;
	rc = create_raw(c, p, dirfd, raw, &writer, &fd);
	if (!rc)
		rc = adopt_file(c->fs, c->node, c->name, fd, ret_entry);
	if (!rc) {
		rc = ckpt_amending_begin(p->step, path, raw);
		if (!rc)
			rc = amend_serve(c, node_of(c->fs, ret_entry->ino), TAKE_FD(fd), TAKE_FD(writer), true);
		if (rc) {
			ckpt_amending_forget(p->step, path);
			node_forget(c->fs, node_of(c->fs, ret_entry->ino), 1);
		}
	}
	if (rc)
		ckpt_sys.unlink(dirfd, raw, 0);
	return rc;
}

int amend_create(struct call *c)
{
	struct fuse_entry_param e = {0};
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = amend_may(c);

	if (!rc)
		rc = amend_path_of(c->fs, c->node, c->name, &p, path, sizeof(path));
	if (rc)
		return rc;
	rc = after_removal(c, &p, path);
	if (!rc) {
		c->fi.flags &= ~O_TRUNC;
		rc = create_on_disk(c, &p, path, &e);
	}
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
	if (!f || (is_published(f) && (f->handles == f->closed || !joins || ckpt_removal_any(c->step))))
		return STEPS;
	if (!f->handles)
		return ENDING;
	if (joins)
		f->begins++;
	else
		f->changes++;
	return WRITTEN;
}

// Whether nothing is at its place in the step any more, by a mark or by a version.
static bool is_gone(const struct call *c)
{
	struct ckpt_manifest *m;
	struct place p;
	uint32_t index;
	bool gone;

	if (place_of(c->fs, c->node, &p))
		return false;
	gone = place_is_committed(&p) && ckpt_removal_has_path(p.step, p.path);
	if (!gone && place_is_committed(&p) && !ckpt_step_manifest(p.step, &m)) {
		gone = ckpt_manifest_lookup(m, p.path, &index) == -ENOENT;
		ckpt_manifest_unref(m);
	}
	place_done(&p);
	return gone;
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
	// Moved out of the step just now: the kernel knows the file under its new name by this node.
	if (is == STEPS && joins && is_gone(c) && look_again_told_writer(c->fs, fuse_req_ctx(c->req)->pid, c->node))
		return -ESTALE;
	if (is == STEPS && joins && !amend_may(c))
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
	const struct place *place;
	const char *path;
	uint64_t number;
};

static int unlink_on_disk(void *arg)
{
	struct pending_unlink *u = arg;
	char inside[CKPT_UUID_LEN + 1 + PATH_MAX], raw[PATH_MAX];
	int fd = u->place->step->store->sessions_fd;
	struct statx stx;

	if (!ckpt_amending_raw_of(u->place->step, u->path, raw, sizeof(raw)))
		return -EAGAIN;
	snprintf(inside, sizeof(inside), "%s/%s", u->place->step->session, raw);
	if (statx(fd, inside, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return -errno;
	u->number = ckpt_store_ino(&stx);
	return ckpt_sys.unlink(fd, inside, 0);
}

int amend_remove(struct ckpt_fs *fs, struct node *dir, const struct place *p, const char *name)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];
	struct pending_unlink u = {.place = p, .path = path};
	struct node *n;
	int rc;

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	rc = ckpt_amending_settle(p->step);
	if (rc)
		return rc;
	if (!ckpt_amending_is_pending(p->step, path))
		return ckpt_step_is_reopened(p->step) ? -EAGAIN : -ENOENT;
	rc = ckpt_amending_rename(p->step, path, NULL, unlink_on_disk, &u);
	if (rc)
		return rc;
	n = node_find(fs, SPACE_LIVE, u.number);
	if (n) {
		names_write_lock(fs);
		name_drop_locked(fs, n, dir, name);
		names_unlock(fs);
	}
	node_unref(fs, n);
	return 0;
}
