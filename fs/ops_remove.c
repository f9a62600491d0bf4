// unlink and rmdir: of what is live, of staged steps that are empty, and of committed steps, from which things go one by
// one only in appearance (core/save/remove.h).
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/remove.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/removal.h"
#include "fs/amend.h"
#include "fs/attr.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/client.h"
#include "fs/complete.h"
#include "fs/complete_watch.h"
#include "fs/control.h"
#include "fs/control_file.h"
#include "fs/draft.h"
#include "fs/durable.h"
#include "fs/folder.h"
#include "fs/handle.h"
#include "fs/latest.h"
#include "fs/marker.h"
#include "fs/ops.h"
#include "fs/others.h"

#include <fcntl.h>
#include <sys/stat.h>

// kept: the file itself, for what may come after it has no name (node_keep_locked); consumed.
static void forget_name_in(struct ckpt_fs *fs, struct node *parent, const char *name, uint64_t space, uint64_t number,
			   int kept)
{
	struct node *n = node_find(fs, space, number);

	if (!n) {
		if (kept >= 0)
			ckpt_sys.close(kept);
		return;
	}
	names_write_lock(fs);
	name_drop_locked(fs, n, parent, name);
	node_keep_locked(n, kept);
	names_unlock(fs);
	node_unref(fs, n);
}

static void forget_name(struct ckpt_fs *fs, struct node *parent, const char *name, uint64_t number)
{
	forget_name_in(fs, parent, name, SPACE_LIVE, number, -1);
}

int open_last_name(int dirfd, const char *name, const struct live_child *child)
{
	const struct statx *stx = &child->stx;
	int fd;

	if (child->shared || S_ISLNK(stx->stx_mode) || (!S_ISDIR(stx->stx_mode) && stx->stx_nlink > 1))
		return -1;
	fd = ckpt_sys.open(dirfd, name, O_PATH, 0);
	return MAX(fd, -1);
}

static int remove_child(struct call *c, int flags)
{
	CLEANUP_FD int dirfd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
	CLEANUP_FD int kept = -1;
	struct live_child child;
	int rc = dirfd < 0 ? dirfd : look_at_child(c->fs, c->node, dirfd, c->name, &child);

	if (!rc) {
		kept = open_last_name(dirfd, c->name, &child);
		rc = ckpt_sys.unlink(dirfd, c->name, flags);
	}
	if (!rc)
		forget_name_in(c->fs, c->node, c->name, SPACE_LIVE, child.number, TAKE_FD(kept));
	// After it: what comes later finds nothing to be the new content of.
	if ((!rc || rc == -ENOENT) && !c->step && !(flags & AT_REMOVEDIR) && draft_remove(c->fs, c->node, c->name))
		rc = 0;
	if (!rc && !c->step)
		others_tell_at(c->fs, dirfd, c->name);
	return rc;
}

// In a committed step nothing changes until the step itself goes (core/save/remove.h). -ENOTSUP: the place is in none.
static void retire(struct ckpt_fs *fs, const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir,
		   const char *name)
{
	struct ckpt_entry e;

	if (ckpt_manifest_child(m, dir, name, &e.index))
		return;
	ckpt_manifest_entry(m, e.index, &e);
	node_retire(fs, node_space(step), e.ino);
}

static int remove_committed(struct ckpt_fs *fs, struct node *dir, const char *name, bool want_dir, pid_t tid)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct place p;
	bool first;
	int rc = place_of(fs, dir, &p);

	if (rc)
		return rc;
	if (!p.step || ckpt_step_state(p.step) != CKPT_STEP_COMMITTED) {
		place_done(&p);
		return -ENOTSUP;
	}
	first = !ckpt_removal_hides(p.step);
	rc = fs->mount->readonly ? -EROFS : entry_of_node(dir, &p, &m, &e);
	if (!rc) {
		handle_back_child(fs, p.step, m, e.index, name); // who has it open reads on
		rc = geteuid() != 0 && !(e.mode & S_IWUSR) ? -EACCES
							   : ckpt_remove_entry(p.step, m, e.index, name, want_dir, tid);
		if (rc == -ENOENT && !want_dir)
			rc = amend_remove(fs, dir, &p, name);
		if (!rc && want_dir)
			retire(fs, p.step, m, e.index, name);
		ckpt_manifest_unref(m);
	}
	if (!rc && first && ckpt_removal_hides(p.step))
		folder_touch_above(fs, dir);
	place_done(&p);
	return rc;
}

static int run_committed(struct call *c)
{
	int rc = remove_committed(c->fs, c->node, c->name, c->flags & AT_REMOVEDIR, fuse_req_ctx(c->req)->pid);

	return rc == -ENOTSUP ? -EROFS : rc == -EAGAIN ? CALL_REOPENS : rc;
}

static void run_unlink(struct call *c)
{
	struct ckpt_step *step = NULL;
	int rc = c->step ? -ENOENT : folder_step(c->fs, c->node, c->name, &step);

	if (!rc)
		rc = -EISDIR;
	else if (rc == -ENOENT)
		rc = c->step && ckpt_staging_of(c->step)->add_only ? -EPERM : remove_child(c, 0);

	if ((!rc || rc == -ENOENT) && !c->step && latest_is_name(c->name)) {
		int free = latest_remove(c->fs, c->node);

		rc = rc ? free : 0;
	}
	ckpt_step_unref(step);
	reply_error(c->req, rc);
}

// Who cleans up after a save that was killed takes its mark away, too. It was not there yet when the mark was made.
static bool has_seen_it_made(struct call *c, const struct live_child *mark)
{
	const struct statx_timestamp *made = &mark->stx.stx_ctime;
	int64_t age_ns = client_age_ns(fuse_req_ctx(c->req)->pid);

	return age_ns < 0 || age_ns >= ckpt_sys.now_ns() - (made->tv_sec * INT64_C(1000000000) + made->tv_nsec);
}

// A mark that says "unfinished" goes: what it was for is committed first.
static void run_unlink_completing(struct call *c)
{
	struct ckpt_deed deed = {.act = CKPT_EVENT_UNLINK, .name = c->name, .fd = -1, .tid = fuse_req_ctx(c->req)->pid};
	CLEANUP_FD int dirfd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
	struct completing completing;
	struct ckpt_step *step = NULL;
	struct live_child child;
	int rc = dirfd < 0 ? dirfd : look_at_child(c->fs, c->node, dirfd, c->name, &child);

	rc = !rc && has_seen_it_made(c, &child) ? complete_decide(c->fs, c->node, &deed, false, &completing)
						: -ENOENT; // unlinking says what else is wrong
	if (rc == -ENOENT || rc == -EINVAL)
		rc = 0;
	else if (!rc)
		rc = complete_run(c->fs, &completing, deed.tid, &step);
	if (!rc)
		rc = durable_wait(step, (struct waiter){&c->fs->ending, deed.tid});
	ckpt_step_unref(step);
	if (rc) {
		reply_error(c->req, rc);
		return;
	}
	c->run = run_unlink;
	call_run(c);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_for(req, parent, name, run_unlink);
	int rc;

	c.node = beside_find(c.fs, c.node, name);
	c.committed = run_committed;
	c.reopens = true;
	if (c.node->kind == NODE_CONTROL) {
		reply_error(req, control_unlink(c.fs, c.node, name));
	} else if (c.node->kind != NODE_FILES) {
		reply_error(req, -EPERM);
	} else if (node_is_top(c.node) && marker_is_name(c.fs, name)) {
		rc = remove_committed(c.fs, c.node, name, false, fuse_req_ctx(req)->pid);
		// A marker goes with its last handle.
		reply_error(req, rc == -ENOENT || rc == -ENOTSUP || rc == -EAGAIN ? 0 : rc);
	} else if (complete_watches_unlink(c.fs, c.node, name)) {
		c.run = run_unlink_completing;
		c.waits_for_clients = true;
		call_detach(&c);
	} else {
		call_run(&c);
	}
}

static int remove_step(struct call *c, struct ckpt_step *step)
{
	uint64_t number;
	struct statx stx;
	int rc;

	bool reopened = __atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);

	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED || reopened) {
		struct ckpt_step *listed = reopened ? step->base : step;
		uint64_t space = node_space(listed);

		rc = c->fs->mount->readonly ? -EROFS : reopened ? ckpt_reopen_remove(step) : ckpt_remove_whole(step);
		if (!rc) {
			forget_name_in(c->fs, c->node, c->name, space, listed->born.dir_ino, -1);
			forget_name(c->fs, c->node, c->name, listed->born.dir_ino);
			node_retire(c->fs, space, listed->born.dir_ino);
			node_retire(c->fs, SPACE_LIVE, listed->born.dir_ino);
			folder_touch(c->fs, c->node);
		}
		return rc;
	}
	rc = statx(c->fs->store->sessions_fd, step->session, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx) ? -errno : 0;

	if (rc)
		return rc;
	number = ckpt_store_ino(&stx);
	rc = ckpt_stage_remove(step);
	if (!rc)
		forget_name(c->fs, c->node, c->name, number);
	return rc;
}

// Steps that nobody writes do not hold the folder back, which looks empty. ret_id: the folder's, or "".
static int check_folder(struct call *c, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	struct fuse_entry_param e = {0};
	struct node *n;
	int rc = lookup_child(c->fs, c->node, c->name, &e);

	if (rc)
		return rc;
	n = node_of(c->fs, e.ino);
	*ret_id = '\0';
	rc = folder_id_of(c->fs, n, false, ret_id);
	if ((!rc && !folder_is_idle(c->fs, ret_id)) || draft_is_below(c->fs, n))
		rc = -ENOTEMPTY;
	else if (!rc || rc == -ENOENT)
		rc = 0;
	node_forget(c->fs, n, 1);
	return rc == -ENOTDIR ? 0 : rc; // unlinkat says it better
}

static void run_rmdir(struct call *c)
{
	struct ckpt_step *step = NULL;
	char id[CKPT_FOLDER_ID_LEN + 1] = "";
	int rc = c->step ? -ENOENT : folder_step(c->fs, c->node, c->name, &step);

	if (!rc)
		rc = remove_step(c, step);
	else if (rc == -ENOENT)
		rc = c->step ? 0 : check_folder(c, id);
	if (!rc && !step)
		rc = remove_child(c, AT_REMOVEDIR);
	if (!rc && *id)
		folder_set_aside(c->fs, id);
	if (!rc && !c->step && latest_is_name(c->name))
		(void)latest_remove(c->fs, c->node);
	ckpt_step_unref(step);
	reply_error(c->req, rc);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_for(req, parent, name, run_rmdir);
	struct ckpt_step *step;

	if (c.node->kind != NODE_FILES || (c.node == node_root(c.fs) && !strcmp(name, CKPT_CONTROL_NAME))) {
		reply_error(req, control_refusal(c.node));
		return;
	}
	if (control_arrays_stands(c.fs, c.node, name)) {
		reply_error(req, -EROFS);
		return;
	}
	c.node = beside_find(c.fs, c.node, name);
	c.committed = run_committed;
	c.reopens = true;
	c.flags = AT_REMOVEDIR;
	step = NULL;
	(void)folder_step(c.fs, c.node, name, &step);
	if (beside_any(c.fs, c.node, name, step))
		reply_error(req, -ENOTEMPTY);
	else if (step)
		call_detach(&c); // a deletion waits for the disk
	else
		call_run(&c);
	ckpt_step_unref(step);
}
