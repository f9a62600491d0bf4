// rename(2): the one request that can be a plain rename, a commit, or the move of a step into another.
//
//   staged step   -> plain folder      temp name to one that is none: a commit; a step's name to another: still staged; a step's name to
//                                      one that is none: it becomes a plain folder
//   staged step   -> staged step       its tree becomes a directory there (Orbax's partial saving does this)
//   committed     -> plain folder      its name changes, in one act; into another step EXDEV
//   plain dir     -> a step's name     a commit, if it may be a step (complete_renamed); else a rename
//   file, dir     -> the same tree     rename
//   file          -> another live tree rename; a directory, an open file or one with other links EXDEV (mv then copies)
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/share_chunks.h"
#include "core/save/stage.h"
#include "core/step/store_folder.h"
#include "core/step/trash.h"
#include "fs/amend.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/complete.h"
#include "fs/complete_watch.h"
#include "fs/control.h"
#include "fs/control_file.h"
#include "fs/draft.h"
#include "fs/durable.h"
#include "fs/folder.h"
#include "fs/latest.h"
#include "fs/ops.h"
#include "fs/others.h"
#include "fs/rename_step.h"
#include "fs/restage.h"
#include "fs/unstage.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// --- Files and directories --------------------------------------------------------------------------------------------

#define ASIDE_MAX 64

struct move {
	int from_fd, to_fd;
	struct live_child from, to;
	int replaced; // to itself (open_last_name), else -1
	bool replaces;
	char aside[ASIDE_MAX]; // in the trash, another name of what is replaced, in case it is to come back; else ""
	bool unstages;         // it shows that the step is a run's folder
};

static int move_open(struct call *c, struct move *m)
{
	m->from_fd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
	if (m->from_fd < 0)
		return m->from_fd;
	m->to_fd = node_open(c->fs, c->other, O_RDONLY | O_DIRECTORY);
	return MIN(m->to_fd, 0);
}

static int move_look(struct call *c, struct move *m)
{
	int rc = look_at_child(c->fs, c->node, m->from_fd, c->name, &m->from);

	// The link of ours is no file that could be moved; mv then makes its like there, and removes it.
	if (rc == -ENOENT && !c->step && latest_is_name(c->name) && latest_resolves(c->fs, c->node))
		return -EXDEV;
	if (!rc)
		m->replaces = !look_at_child(c->fs, c->other, m->to_fd, c->other_name, &m->to);
	return rc;
}

static bool is_open_for_writing(struct ckpt_fs *fs, uint64_t number)
{
	struct node *n = node_find(fs, SPACE_LIVE, number);
	bool open = false;

	if (n && node_used(n)) {
		ckpt_lock_take(&n->use->lock);
		open = n->use->write_opens;
		ckpt_lock_drop(&n->use->lock);
	}
	node_unref(fs, n);
	return open;
}

// A folder that is replaced may look empty on disk and yet hold steps.
static int check_replaced_folder(struct call *c, const struct move *m)
{
	CLEANUP_FD int fd = ckpt_sys.open(m->to_fd, c->other_name, O_RDONLY | O_DIRECTORY, 0);
	struct node *n = node_find(c->fs, SPACE_LIVE, m->to.number);
	bool busy = n && draft_is_below(c->fs, n);
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = fd < 0 ? fd : ckpt_store_folder_id(c->fs->store, fd, false, id);

	node_unref(c->fs, n);
	if (rc)
		return busy ? -ENOTEMPTY : rc == -ENOENT ? 0 : rc; // gone or without an id: it has no steps
	return busy || ckpt_step_any(c->fs->store, id) ? -ENOTEMPTY : 0;
}

static int check_replaced(struct call *c, const struct move *m)
{
	struct ckpt_step *there;
	int rc = c->other_step ? 0 : folder_find(c->fs, c->other, c->other_name, &there);

	if (c->other_step)
		return 0;
	if (!rc) {
		rc = !S_ISDIR(m->from.stx.stx_mode)               ? -EISDIR
		     : c->flags & RENAME_NOREPLACE                ? -EEXIST
		     : ckpt_step_state(there) == CKPT_STEP_STAGED ? ckpt_stage_remove(there)
								  : -ENOTEMPTY;
		ckpt_step_unref(there);
		return rc == -EBUSY ? -ENOTEMPTY : rc;
	}
	if (rc != -ENOENT)
		return rc;
	return m->replaces && S_ISDIR(m->to.stx.stx_mode) ? check_replaced_folder(c, m) : 0;
}

static void move_names(struct call *c, struct move *m)
{
	struct node *from = node_find(c->fs, SPACE_LIVE, m->from.number);
	struct node *to = m->replaces ? node_find(c->fs, SPACE_LIVE, m->to.number) : NULL;
	bool exchange = c->flags & RENAME_EXCHANGE;

	// Two links to one file: rename(2) does nothing and leaves both.
	if (from != to) {
		if (to)
			name_drop_locked(c->fs, to, c->other, c->other_name);
		if (to && !exchange)
			node_keep_locked(to, TAKE_FD(m->replaced));
		if (from) {
			name_drop_locked(c->fs, from, c->node, c->name);
			(void)name_add_locked(c->fs, from, c->other, c->other_name);
		}
		if (to && exchange)
			(void)name_add_locked(c->fs, to, c->node, c->name);
	}
	node_unref(c->fs, from);
	node_unref(c->fs, to);
}

// Two shared files may be one on disk, where a rename of one over the other does nothing. Clients know them as two: the
// name that was to go must.
static int rename_on_disk(struct call *c, const struct move *m)
{
	bool one = m->replaces && m->from.shared && m->to.shared && m->from.number != m->to.number &&
		   ckpt_store_ino(&m->from.stx) == ckpt_store_ino(&m->to.stx);

	return one && !c->flags ? ckpt_sys.unlink(m->from_fd, c->name, 0)
				: ckpt_sys.rename(m->from_fd, c->name, m->to_fd, c->other_name, (unsigned)c->flags);
}

// One file in two trees would be committed with the one, and still be written in the other: link(2) refuses that too.
static bool has_other_links(const struct live_child *child)
{
	return !child->shared && !S_ISDIR(child->stx.stx_mode) && child->stx.stx_nlink > 1;
}

// A file that takes the place of a small one, or the name of a file step: after any crash the name has all of the old
// content or all of the new.
static bool gets_published(const struct call *c, const struct move *m)
{
	return !c->other_step && S_ISREG(m->from.stx.stx_mode) && !(c->flags & RENAME_EXCHANGE) &&
	       (ckpt_name_is_file_step(c->other_name) ||
		(m->replaces && S_ISREG(m->to.stx.stx_mode) && m->to.stx.stx_size <= CKPT_TRACKER_BYTES_MAX));
}

static int write_out_first(const struct call *c, const struct move *m)
{
	int fd, rc;

	if (!gets_published(c, m))
		return 0;
	fd = ckpt_sys.open(m->from_fd, c->name, O_RDONLY | O_NONBLOCK, 0);
	if (fd == -EACCES)
		fd = ckpt_sys.open(m->from_fd, c->name, O_WRONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd == -EACCES ? 0 : fd; // who may neither read nor write it may rename it all the same
	rc = ckpt_sys.fdatasync(fd);
	ckpt_sys.close(fd);
	return rc;
}

static bool may_complete(const struct call *c)
{
	return c->node == c->other && !(c->flags & RENAME_EXCHANGE) &&
	       complete_watches_rename(c->fs, c->other, c->name, c->other_name);
}

static void keep_aside(struct call *c, struct move *m)
{
	uint64_t salt;

	if (ckpt_sys.random(&salt, sizeof(salt)))
		return;
	snprintf(m->aside, sizeof(m->aside), CKPT_TRASH_COPY "%016llx-old", (unsigned long long)salt);
	if (ckpt_sys.link(m->to_fd, c->other_name, c->fs->store->trash_fd, m->aside))
		*m->aside = '\0';
}

// Whether it writes a file of a run's folder a second time.
static bool shows_run(const struct call *c, const struct move *m)
{
	struct node *replaced = c->other_step ? node_find(c->fs, SPACE_LIVE, m->to.number) : NULL;
	bool shows = replaced && unstage_by_second_write(c->fs, replaced, c->other_step, c->process);

	node_unref(c->fs, replaced);
	return shows;
}

static int rename_live(struct call *c, struct move *m)
{
	int rc = check_new_name(c->fs, c->other, c->other_step, c->other_name);

	if (!rc)
		rc = draft_rename_check(c);
	if (!rc)
		rc = move_open(c, m);
	if (!rc) {
		rc = move_look(c, m);
		if (rc == -ENOENT && !(rc = draft_rename_left(c)))
			rc = move_look(c, m);
		if (rc == -ENOENT)
			return draft_rename_only(c);
	}
	if (!rc && c->step != c->other_step)
		rc = ckpt_share_chunks_guard(c->step, m->from_fd, c->name);
	if (!rc)
		rc = check_replaced(c, m);
	if (!rc && m->replaces && c->other_step && ckpt_staging_of(c->other_step)->add_only)
		rc = -EEXIST;
	if (!rc && m->replaces && !c->settled && shows_run(c, m)) {
		m->unstages = true;
		return -EINPROGRESS;
	}
	if (!rc && c->step != c->other_step &&
	    ((c->flags & RENAME_EXCHANGE) || S_ISDIR(m->from.stx.stx_mode) || has_other_links(&m->from) ||
	     is_open_for_writing(c->fs, m->from.number)))
		rc = -EXDEV;
	if (!rc && !c->mode && !c->step && gets_published(c, m))
		return -EINPROGRESS;
	if (!rc)
		rc = write_out_first(c, m);
	if (rc)
		return rc;
	if (m->replaces)
		m->replaced = open_last_name(m->to_fd, c->other_name, &m->to);
	if (may_complete(c) && m->replaces)
		keep_aside(c, m);
	names_write_lock(c->fs);
	rc = rename_on_disk(c, m);
	if (!rc)
		move_names(c, m);
	names_unlock(c->fs);
	if (!rc)
		draft_renamed(c);
	if (!rc && gets_published(c, m) && ckpt_name_is_file_step(c->other_name))
		rc = ckpt_sys.fsync(m->to_fd);
	if (!rc && !c->step && latest_is_name(c->name))
		(void)latest_remove(c->fs, c->node);
	if (!rc && !c->step)
		others_tell_at(c->fs, m->from_fd, c->name);
	if (!rc && !c->other_step)
		others_tell_at(c->fs, m->to_fd, c->other_name);
	if (!rc && c->step && c->other_step && c->step != c->other_step)
		ckpt_stage_carry(c->step, c->other_step, m->from.number);
	return rc;
}

// What a rename completes, and how it is undone.
struct after_rename {
	struct completing completing;
	int error; // nobody can say what
	char aside[ASIDE_MAX];
	bool replaced;
};

// The file has its old name again, and what it replaced, too: 0, or why not.
static int take_name_back(struct call *c, const struct after_rename *after)
{
	struct ckpt_step *step = node_step(c->fs, c->node);
	struct live_child child;
	CLEANUP_FD int dirfd = -1;
	struct node *n = NULL;
	int rc = after->replaced && !*after->aside ? -ESTALE : step ? ckpt_stage_enter(step, true) : 0;

	if (!rc) {
		dirfd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
		rc = dirfd < 0 ? dirfd : look_at_child(c->fs, c->node, dirfd, c->other_name, &child);
		if (!rc) {
			names_write_lock(c->fs);
			rc = ckpt_sys.rename(dirfd, c->other_name, dirfd, c->name, RENAME_NOREPLACE);
			n = rc ? NULL : node_find(c->fs, SPACE_LIVE, child.number);
			if (n) {
				name_drop_locked(c->fs, n, c->node, c->other_name);
				(void)name_add_locked(c->fs, n, c->node, c->name);
			}
			names_unlock(c->fs);
			node_unref(c->fs, n);
		}
		if (!rc && *after->aside)
			rc = ckpt_sys.rename(c->fs->store->trash_fd, after->aside, dirfd, c->other_name,
					     RENAME_NOREPLACE);
		if (step)
			ckpt_stage_leave(step);
	}
	ckpt_step_unref(step);
	return rc;
}

// What the name that was given completes; data is a struct after_rename. A rename that fails has not happened. Where that cannot
// be, the kernel looks both names up again: it would not ask us when it is tried anew, as it knows them for one file.
static void run_complete(struct call *c)
{
	struct after_rename after;
	struct ckpt_fs *fs = c->fs;
	fuse_ino_t dir = node_id(fs, c->node);
	pid_t tid = fuse_req_ctx(c->req)->pid;
	struct ckpt_step *step = NULL;
	char name[CKPT_NAME_MAX + 1], other_name[CKPT_NAME_MAX + 1];
	bool undone;
	int rc;

	memcpy(&after, c->data, sizeof(after));
	memcpy(name, c->name, sizeof(name));
	memcpy(other_name, c->other_name, sizeof(other_name));
	rc = after.error ? after.error : complete_run(fs, &after.completing, tid, &step);
	if (!rc)
		rc = durable_wait(step, (struct waiter){&fs->ending, tid});
	ckpt_step_unref(step);
	undone = !rc || !take_name_back(c, &after);
	if (!rc && *after.aside)
		ckpt_sys.unlink(fs->store->trash_fd, after.aside, 0);
	reply_error(c->req, rc);
	if (!undone) { // the answer has let go of the folder's lock
		(void)fuse_lowlevel_notify_inval_entry(fs->se, dir, name, strlen(name));
		(void)fuse_lowlevel_notify_inval_entry(fs->se, dir, other_name, strlen(other_name));
	}
}

// True: another thread answers, once the step that is complete by this rename is committed.
static bool completes(struct call *c, struct move *m)
{
	struct ckpt_deed deed = {
		.act = CKPT_EVENT_RENAME, .from = c->name, .name = c->other_name, .tid = fuse_req_ctx(c->req)->pid};
	struct after_rename after = {.replaced = m->replaces};
	struct call then = {.run = run_complete,
			    .req = c->req,
			    .fs = c->fs,
			    .node = c->node,
			    .waits_for_clients = true,
			    .data = (char *)&after,
			    .data_len = sizeof(after)};
	CLEANUP_FD int fd = -1;

	if (!may_complete(c) || complete_is_copier(fuse_req_ctx(c->req)->pid))
		return false;
	fd = ckpt_sys.open(m->to_fd, c->other_name, O_RDONLY | O_NONBLOCK, 0);
	deed.fd = fd;
	after.error = fd == -ELOOP || fd == -EACCES ? -ENOENT
		      : fd < 0                      ? fd
						    : complete_decide(c->fs, c->other, &deed, true, &after.completing);
	if (after.error == -ENOENT || after.error == -EINVAL)
		return false;
	memcpy(after.aside, m->aside, sizeof(after.aside));
	*m->aside = '\0';
	snprintf(then.name, sizeof(then.name), "%s", c->name);
	snprintf(then.other_name, sizeof(then.other_name), "%s", c->other_name);
	call_detach(&then); // it waits until nobody changes the step, which this call still does
	return true;
}

static void run_rename_live(struct call *c)
{
	struct move m = {.from_fd = -1, .to_fd = -1, .replaced = -1};
	bool answered;
	int rc;

	if (!c->other_step && !c->settled && restage_is_due(c->fs, c->other, c->other_name)) {
		restage_then(c, true);
		return;
	}
	rc = rename_live(c, &m);
	answered = !rc && completes(c, &m);
	if (*m.aside)
		ckpt_sys.unlink(c->fs->store->trash_fd, m.aside, 0);
	if (m.from_fd >= 0)
		ckpt_sys.close(m.from_fd);
	if (m.to_fd >= 0)
		ckpt_sys.close(m.to_fd);
	if (m.replaced >= 0)
		ckpt_sys.close(m.replaced);
	if (rc != -EINPROGRESS) {
		if (!answered)
			reply_error(c->req, rc);
		return;
	}
	if (m.unstages) {
		unstage_then(c, true);
		return;
	}
	c->mode = 1; // it waits for the disk, on a thread of its own
	call_again(c);
}

// --- A plain folder that gets the name of a step ------------------------------------------------------------------------

static bool has_form(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	bool is;

	return !names_step(fs, dir, name, &is) && is && !ckpt_name_is_temp(name);
}

static bool is_directory(struct ckpt_fs *fs, struct node *parent, const char *name)
{
	CLEANUP_FD int dirfd = node_open(fs, parent, O_RDONLY | O_DIRECTORY);
	struct live_child child;

	return dirfd >= 0 && !look_at_child(fs, parent, dirfd, name, &child) && S_ISDIR(child.stx.stx_mode);
}

// Most renames are of files, to names that no step has anywhere.
static bool may_be_form(struct ckpt_fs *fs, const char *name)
{
	static const struct ckpt_place anywhere = {.root = true};

	return fs->store->settings.steps_at || ckpt_name_is_step(name, &anywhere);
}

// A directory without a step's name gets one, in the plain tree or in a staged step, which that shows to be a run's folder.
static bool gives_step_name(struct call *c)
{
	struct ckpt_step *from, *to;
	bool gives;

	if ((c->flags & ~RENAME_NOREPLACE) || !may_be_form(c->fs, c->other_name))
		return false;
	from = node_step(c->fs, c->node);
	to = node_step(c->fs, c->other);
	gives = from == to && !has_form(c->fs, c->node, c->name) &&
		(to ? unstage_is_shown_by(c->fs, c->other, to, c->other_name)
		    : has_form(c->fs, c->other, c->other_name)) &&
		is_directory(c->fs, c->node, c->name);
	ckpt_step_unref(from);
	ckpt_step_unref(to);
	return gives;
}

static void run_rename_to_step(struct call *c)
{
	struct ckpt_step *run = node_step(c->fs, c->node), *step = NULL;
	int rc = run ? unstage(c->fs, run) : 0;

	ckpt_step_unref(run);
	rc = rc ? 1 : rename_step_commit_folder(c, &step);
	if (rc != 1) {
		rename_step_reply(c, rc, step);
		ckpt_step_unref(step);
		return;
	}
	c->run = run_rename_live;
	c->committed = amend_rename;
	c->reopens = true;
	call_run(c);
}

// --- The request ------------------------------------------------------------------------------------------------------

// 0, -ENOENT, or why nobody can say.
static int names_a_step(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct ckpt_step *step;
	int rc = folder_find(fs, dir, name, &step);

	ckpt_step_unref(step);
	return rc;
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
	       unsigned flags)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {
		.run = run_rename_live,
		.req = req,
		.fs = fs,
		.node = beside_find(fs, node_of(fs, parent), name),
		.other = beside_make(fs, node_of(fs, new_parent), new_name, fuse_req_ctx(req)->pid),
		.other_dir = new_parent,
		.flags = (int)flags,
	};
	int from, to; // whether they name a step

	snprintf(c.name, sizeof(c.name), "%s", name);
	snprintf(c.other_name, sizeof(c.other_name), "%s", new_name);
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
		reply_error(req, -EINVAL);
	} else if (c.other->kind == NODE_CONTROL) {
		reply_error(req, control_refuse(fs, c.other, new_name));
	} else if (c.node->kind == NODE_CONTROL) {
		reply_error(req, control_refuse(fs, c.node, name));
	} else if (c.node->kind != NODE_FILES || c.other->kind != NODE_FILES) {
		reply_error(req, -EPERM);
	} else if (control_arrays_stands(fs, c.node, name) || control_arrays_stands(fs, c.other, new_name)) {
		reply_error(req, -EROFS);
	} else if (!(from = names_a_step(fs, c.node, name)) && __atomic_load_n(&c.other->beside, __ATOMIC_RELAXED)) {
		reply_error(req, -EXDEV); // it would be in no folder of steps
	} else if (!from) {
		c.run = rename_step_run;
		c.waits_for_clients = true; // a commit waits for open writers
		call_detach(&c);
	} else if (from != -ENOENT) {
		reply_error(req, from);
	} else if (gives_step_name(&c)) {
		c.run = run_rename_to_step;
		c.waits_for_clients = true;
		call_detach(&c);
	} else if ((flags & RENAME_EXCHANGE) && (to = names_a_step(fs, c.other, new_name)) != -ENOENT) {
		reply_error(req, to ? to : -EINVAL);
	} else {
		c.committed = amend_rename;
		c.reopens = c.makes = true;
		call_run(&c);
	}
}
