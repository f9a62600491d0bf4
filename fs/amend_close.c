// The close of a file that is added to a step, or completes one, and what is written after it.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/save/amend.h"
#include "core/save/clone.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/errlog.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/successor.h"
#include "fs/amend_shared.h"
#include "fs/attr.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/complete_watch.h"
#include "fs/durable.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static void strike_off_locked(struct amend_file *f, struct amend_handle *ah)
{
	struct amend_handle **slot = &f->first;

	while (*slot != ah)
		slot = &(*slot)->next;
	*slot = ah->next;
	f->handles--;
	f->closed -= ah->closed;
}

static int publish_again(struct ckpt_fs *fs, const struct place *p, const char *raw)
{
	char from[CKPT_UUID_LEN + 64], to[CKPT_UUID_LEN + 1 + sizeof(p->buf)];

	if (ckpt_step_is_unfinished(p->step) && p->step->base) { // it was reopened meanwhile
		snprintf(from, sizeof(from), "%s/%s", ckpt_reopen_from(p->step)->session, raw);
		snprintf(to, sizeof(to), "%s/%s", p->step->session, p->path);
		return ckpt_sys.rename(fs->store->sessions_fd, from, fs->store->sessions_fd, to, 0);
	}
	if (p->step->base) { // it was, and is committed by now
		snprintf(from, sizeof(from), "%s/%s", ckpt_reopen_from(p->step)->session, raw);
		snprintf(to, sizeof(to), "%s/%s", p->step->session, raw);
		(void)ckpt_sys.rename(fs->store->sessions_fd, from, fs->store->sessions_fd, to, RENAME_NOREPLACE);
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

#define CHANGE_NS INT64_C(100000)

// What is published is as it is now: whoever writes from now on writes into a copy. ret_again: where the last such copy is.
static void begin_publishing(struct node *n, char ret_again[sizeof(((struct amend_file *)0)->again)])
{
	struct amend_file *f = n->use->amend;

	ckpt_lock_take(&n->use->lock); // of writes none is under way
	while (f->changes) {
		ckpt_lock_drop(&n->use->lock);
		ckpt_sys.sleep_ns(CHANGE_NS);
		ckpt_lock_take(&n->use->lock);
	}
	set_published(f, true);
	memcpy(ret_again, f->again, sizeof(f->again));
	ckpt_lock_drop(&n->use->lock);
}

static void end_publishing(struct node *n, const char *again, int rc)
{
	struct amend_file *f = n->use->amend;
	LOCK_SCOPE(&n->use->lock);

	if (strcmp(f->again, again))
		return; // somebody writes into a copy by now
	if (!rc)
		*f->again = '\0';
	else if (rc != -EIO)
		set_published(f, false); // what is written from now on goes with the next close
}

static int publish_added(struct ckpt_fs *fs, struct node *n, const struct place *p)
{
	char name[CKPT_NAME_MAX + 1], again[sizeof(n->use->amend->again)];
	struct node *dir;
	int rc = 0;

	begin_publishing(n, again);
	if (p->step && ckpt_amending_is_pending(p->step, p->path)) {
		rc = ckpt_amend_add(p->step, p->path);
		if (!rc)
			ckpt_amending_forget(p->step, p->path);
		else if (rc == -EBUSY && ckpt_step_is_reopened(p->step))
			rc = 0; // it went along: the commit of that has it
	}
	if (!rc && p->step && *again) // written since a close
		rc = publish_again(fs, p, again);
	end_publishing(n, again, rc);
	dir = rc ? NULL : parent_of(fs, n, name);
	if (dir)
		amend_show_change(fs, dir);
	node_unref(fs, dir);
	return rc;
}

// While its close is the commit nobody may be able to write it, not even those that have it open and have closed it. Who writes on
// all the same has a descriptor again (follow_locked).
static void let_go_of_file(struct node *n)
{
	LOCK_SCOPE(&n->use->lock);

	for (struct amend_handle *ah = n->use->amend->first; ah; ah = ah->next) {
		ckpt_stage_writer_remove(&ah->h->writer);
		if (ah->h->fd >= 0)
			ckpt_sys.close(TAKE_FD(ah->h->fd));
	}
}

static bool exchange_change(struct handle *h, bool changed)
{
	LOCK_SCOPE(&h->node->use->lock);
	bool was = h->node->use->amend->changed;

	h->node->use->amend->changed = changed;
	return was;
}

// The close of a file that may complete a step: this one, or from beside. Once for what was written: the release that follows,
// or a close of who wrote nothing, may come when the next save is under way.
static int publish_completing(struct ckpt_fs *fs, struct handle *h, pid_t tid, struct ckpt_step **ret_step)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *dir = parent_of(fs, h->node, name);
	struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE, .name = name, .fd = h->node->use->fd, .tid = tid};
	struct ckpt_step *step = dir ? node_step(fs, dir) : NULL;
	bool watched = dir && complete_watches_close(fs, dir, step, name);
	struct completing c;
	int rc = watched && !h->amend->copies && exchange_change(h, false) ? complete_decide(fs, dir, &deed, true, &c)
									   : -ENOENT;

	if (!rc) {
		if (!*c.what.beside)
			let_go_of_file(h->node);
		rc = complete_run(fs, &c, tid, ret_step);
		if (rc)
			exchange_change(h, true); // closing it once more is another attempt
	} else if (rc == -ENOENT) {
		rc = 0;
	} else if (rc == -EINVAL) {
		if (tid)
			exchange_change(h, true); // more may come
		else if (step)
			complete_tell(fs, dir, name, "was closed, and is empty or cut");
		rc = 0;
	} else {
		exchange_change(h, true);
		complete_tell(fs, dir, name, "could not be looked at");
		rc = step || complete_names_step(fs, dir, name) ? rc : 0; // else the folder may be no checkpoint at all
	}
	ckpt_step_unref(step);
	node_unref(fs, dir);
	return rc;
}

static bool has_moved(struct ckpt_fs *fs, struct node *n, const struct place *from)
{
	struct place now;
	bool moved = !place_of(fs, n, &now);

	moved = moved && strcmp(now.path, from->path);
	place_done(&now);
	return moved;
}

// Another node's edit has the place of the step since, and what is pending.
static bool is_in_another_step(struct ckpt_fs *fs, struct node *n, const struct place *from)
{
	struct ckpt_step *now;
	bool is;

	if (!from->step || ckpt_step_state(from->step) != CKPT_STEP_DELETED)
		return false;
	now = node_step(fs, n);
	is = now && now != from->step;
	ckpt_step_unref(now);
	return is;
}

static bool has_copy(struct node *n)
{
	LOCK_SCOPE(&n->use->lock);

	return amend_writes_copy(n);
}

static int publish_at(struct ckpt_fs *fs, struct handle *h, const struct place *p, pid_t tid,
		      struct ckpt_step **ret_step)
{
	int rc;

	if (!place_is_committed(p) && !has_copy(h->node) && !(p->step && ckpt_amending_is_pending(p->step, p->path)))
		return publish_completing(fs, h, tid, ret_step);
	rc = publish_added(fs, h->node, p);
	if (!rc && place_is_committed(p))
		*ret_step = ckpt_step_ref(p->step);
	return rc;
}

// What the file is called now, and in which step; the step may have been reopened meanwhile, and its commit then has it. tid: who
// waits for it, 0 nobody any more.
// *ret_step: the step that has it, or is complete by it, a reference; NULL: none, or not yet.
static int publish(struct ckpt_fs *fs, struct handle *h, pid_t tid, struct ckpt_step **ret_step)
{
	int rc = ckpt_stage_writer_await(&h->writer);
	bool again;

	*ret_step = NULL;

	if (rc)
		return rc;
	LOCK_SCOPE(&h->node->use->amend->publishing);
	do {
		struct place p;

		rc = place_of(fs, h->node, &p);
		if (rc == -ESTALE)
			return 0; // it was removed before its close, and is its writer's
		if (rc)
			return rc;
		ckpt_step_unref(TAKE_PTR(*ret_step));
		rc = publish_at(fs, h, &p, tid, ret_step);
		again = (rc == -ENOENT && has_moved(fs, h->node, &p)) || is_in_another_step(fs, h->node, &p);
		place_done(&p);
	} while (again);
	return rc;
}

// The file goes on being written by the process that closes it, or by the one that opened it: that one will close it, too. A shell
// closes one of two descriptors before it writes, numpy one of two after some of it, and a forked child lets go of all.
static bool is_closed_again(const struct handle *h, pid_t tid)
{
	pid_t opener = h->amend->opener;

	return client_can_write(tid, node_ino(h->node)) ||
	       (opener && client_process(tid) != opener && client_can_write(opener, node_ino(h->node)));
}

static void count_closed_locked(struct amend_file *f, struct amend_handle *ah)
{
	f->closed += !ah->closed;
	ah->closed = true;
	if (ah->h->closed)
		return;
	ah->h->closed = true; // a process that opens the file now need not wait for the release
	__atomic_add_fetch(&ah->h->node->use->closed_writers, 1, __ATOMIC_RELAXED);
}

// The process, or the opener, has closed its last descriptor of the file: those of other opens, which it closed before, are closed now.
static void count_all_closed_locked(struct amend_file *f, struct amend_handle *ah, pid_t process)
{
	count_closed_locked(f, ah);
	for (struct amend_handle *other = f->first; other; other = other->next)
		if (other->flushed && (other->opener == process || other->opener == ah->opener))
			count_closed_locked(f, other);
}

static bool flush_counts(struct handle *h, pid_t tid, int *ret_result)
{
	struct amend_handle *ah = h->amend;
	bool killed = client_was_killed(tid);
	bool waits = is_closed_again(h, tid);
	pid_t process = client_process(tid);
	struct amend_file *f;

	LOCK_SCOPE(&h->node->use->lock);
	f = h->node->use->amend;
	*ret_result = ah->result;
	ah->flushed = true;
	if (waits)
		return false;
	ah->dead |= killed;
	if (ah->dead)
		return false;
	count_all_closed_locked(f, ah, process);
	return !is_published(f) && f->handles == f->closed;
}

static void run_flush(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	pid_t tid = fuse_req_ctx(c->req)->pid;
	struct ckpt_step *step;
	int rc;

	if (flush_counts(h, tid, &rc)) {
		rc = publish(c->fs, h, tid, &step);
		ckpt_lock_take(&h->node->use->lock);
		h->amend->result = rc;
		ckpt_lock_drop(&h->node->use->lock);
		if (!rc)
			rc = durable_wait(step, (struct waiter){&c->fs->ending, tid});
		ckpt_step_unref(step);
	}
	reply_error(c->req, rc);
}

void amend_flush(fuse_req_t req, struct handle *h)
{
	struct call c = {.run = run_flush, .req = req, .fs = fs_of(req), .node = h->node, .fi = {.fh = (uintptr_t)h}};

	c.waits_for_clients = complete_watches_node(c.fs, h->node); // those that write in the step
	handle_flushed(h,
		       fuse_req_ctx(req)->pid); // whatever it completes: a commit need not wait for who has closed it
	call_detach(&c);                        // it waits for the disk, and looks at what a process has open
}

// A raw file lacks the attributes that were set since it was published: the copy gets them.
static int give_attributes(struct ckpt_fs *fs, struct node *n, int to)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct place p;
	int rc = 0;

	if (place_of(fs, n, &p))
		return 0;
	if (place_is_committed(&p) && !entry_of_node(n, &p, &m, &e)) {
		rc = ckpt_attributes_differ(p.step, m, &e) ? ckpt_share_attributes(p.step, m, e.index, to) : 0;
		ckpt_manifest_unref(m);
	}
	place_done(&p);
	return rc;
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
	(void)ckpt_amending_mark(to);
	rc = reads < 0 ? reads : statx(h->node->use->fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : 0;
	if (!rc)
		rc = ckpt_clone_file(h->node->use->fd, to, &stx, false);
	if (!rc)
		rc = give_attributes(fs, h->node, to);
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

	if (fstat(h->fd, &ours) || fstat(h->node->use->fd, &now) || ours.st_ino == now.st_ino)
		return 0;
	fd = handle_reopen(h);
	if (fd < 0 || dup3(fd, h->fd, O_CLOEXEC) < 0)
		rc = fd < 0 ? fd : -errno;
	if (fd >= 0)
		ckpt_sys.close(fd);
	return rc;
}

static bool is_edited_elsewhere(struct ckpt_step *step)
{
	struct ckpt_step *to = ckpt_step_state(step) == CKPT_STEP_DELETED ? ckpt_successor_find(step) : NULL;

	ckpt_step_unref(to);
	return to;
}

// Whose session has the published bytes: one that was reopened since shares them. NULL: it was deleted.
static struct ckpt_step *owner_of(struct ckpt_step *step)
{
	if (!step || ckpt_step_state(step) == CKPT_STEP_COMMITTED || is_edited_elsewhere(step))
		return step;
	return step->base ? ckpt_reopen_from(step) : NULL;
}

void amend_see_commit_locked(struct ckpt_fs *fs, struct node *n)
{
	struct amend_file *f = n->use->amend;
	struct place p;

	if (is_published(f) || *f->again || place_of(fs, n, &p))
		return;
	// One that is reopened meanwhile takes its pending files along.
	if (place_is_committed(&p) && !ckpt_amending_is_pending(p.step, p.path) && !ckpt_step_is_reopened(p.step))
		set_published(f, true);
	place_done(&p);
}

// What was let go of for a commit: if that failed it is staged as before.
static int take_back_locked(struct handle *h, struct ckpt_step *step)
{
	int fd;

	if (!h->writes)
		return -EBADF;
	if (step && ckpt_step_state(step) == CKPT_STEP_COMMITTING)
		return -EBUSY;
	fd = handle_reopen(h);
	if (fd < 0)
		return fd;
	h->fd = fd;
	if (step && ckpt_step_state(step) == CKPT_STEP_STAGED)
		ckpt_stage_writer_add(step, &h->writer);
	return 0;
}

int amend_write_begin(struct ckpt_fs *fs, struct handle *h)
{
	struct amend_file *f = h->node->use->amend;
	struct ckpt_step *step = node_step(fs, h->node), *owner = owner_of(step);
	int rc = 0;

	ckpt_lock_take(&h->node->use->lock);
	f->changed = true;
	amend_see_commit_locked(fs, h->node);
	if (is_published(f))
		rc = owner ? write_again_locked(fs, h, owner) : -ESTALE;
	if (!rc)
		rc = h->fd < 0 ? take_back_locked(h, step) : follow_locked(h);
	ckpt_step_unref(step);
	if (rc)
		ckpt_lock_drop(&h->node->use->lock);
	return rc;
}

void amend_write_end(struct handle *h)
{
	ckpt_lock_drop(&h->node->use->lock);
}

int amend_change_begin(struct ckpt_fs *fs, struct handle *h)
{
	int rc = amend_write_begin(fs, h);

	if (rc)
		return rc;
	h->node->use->amend->changes++;
	amend_write_end(h);
	return 0;
}

void amend_change_end(struct node *n)
{
	LOCK_SCOPE(&n->use->lock);

	n->use->amend->changes--;
}

// What was written since the last close is not the step's: whoever has the file open reads what is.
static int drop_again(struct ckpt_fs *fs, struct node *n, const struct place *p)
{
	struct amend_file *f = amend_of(n);
	char path[CKPT_UUID_LEN + 64];
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	CLEANUP_FD int fd = -1;
	int rc = ckpt_amending_settle(p->step);

	if (rc || !*f->again || ckpt_amending_has_raw(p->step, p->path, f->again))
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
	ckpt_lock_take(&n->use->lock);
	if (dup3(fd, n->use->fd, O_CLOEXEC) < 0)
		rc = -errno;
	__atomic_store_n(&n->file, 0, __ATOMIC_RELAXED);
	set_published(f, true);
	snprintf(path, sizeof(path), "%s/%s", p->step->session, f->again);
	*f->again = '\0';
	ckpt_lock_drop(&n->use->lock);
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
					"the new file was not added to the step: %s%s%s: %s", p.path,
					*p.path ? "/" : "", name,
					h->amend->dead ? "its writer was killed" : "its close failed");
		place_done(&p);
	}
	free((char *)(uintptr_t)name);
	node_unref(fs, dir);
}

// Of a file that would have completed its step.
static void tell_killed(struct ckpt_fs *fs, struct node *n)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *dir = parent_of(fs, n, name);

	if (dir && node_is_top(dir) && complete_watches_node(fs, n) && !complete_is_late(fs, n))
		complete_tell(fs, dir, name, "was open when its writer was killed");
	node_unref(fs, dir);
}

static void run_release(struct call *c)
{
	struct handle *h = handle_of(&c->fi);
	bool last, failed = h->amend->result;
	struct ckpt_step *step;

	if (h->amend->dead)
		tell_killed(c->fs, h->node);
	(void)ckpt_stage_writer_await(&h->writer); // its commit must find it
	ckpt_lock_take(&h->node->use->lock);
	strike_off_locked(h->node->use->amend, h->amend);
	last = !h->node->use->amend->handles;
	ckpt_lock_drop(&h->node->use->lock);
	// A close that said that it failed is believed: the file does not come after all.
	if (last && !h->amend->dead && !failed && !is_published(amend_of(h->node))) {
		ckpt_stage_writer_remove(&h->writer); // it is closed
		if (h->fd >= 0)
			ckpt_sys.close(TAKE_FD(h->fd));
		failed |= publish(c->fs, h, 0, &step) != 0; // nobody is left to be told; the error log has it
		ckpt_step_unref(step);
	}
	if (last && (h->amend->dead || failed))
		drop(c->fs, h); // unless it was added
	free(TAKE_PTR(h->amend));
	handle_release(c->fs, c->req, h);
	if (c->req)
		reply_error(c->req, 0);
}

void amend_release(struct ckpt_fs *fs, fuse_req_t req, struct handle *h)
{
	struct call c = {.run = run_release, .req = req, .fs = fs, .node = h->node, .fi = {.fh = (uintptr_t)h}};

	c.waits_for_clients = complete_watches_node(fs, h->node);
	call_detach(&c);
}
