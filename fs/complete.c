#include "fs/complete.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/profile/tracker.h"
#include "core/save/convert.h"
#include "core/save/remove.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/latest.h"
#include "core/step/removal.h"
#include "fs/client.h"
#include "fs/draft.h"
#include "fs/folder.h"
#include "fs/one_save.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>

// --- Plain folders ----------------------------------------------------------------------------------------------------

static void complain_of_folder(struct ckpt_fs *fs, const char *name, int error)
{
	ckpt_errlog_add(
		fs->store->errlog, name, error,
		error == -ENOTEMPTY ? "complete each of its steps with a marker of its own"
		: error == -EMLINK  ? "copy the folder (`cp -r`), or remove the links, then write the marker again"
				    : "nothing has changed; remove the cause, then write the marker again",
		error == -ENOTEMPTY ? "the folder holds steps, so it cannot become a step"
		: error == -EMLINK ? "a file in the folder has a hard link outside it: a change there would change the "
				     "step"
		: error == -EBUSY  ? "a file in the folder is still being written"
				   : "the folder could not be turned into a step");
}

int complete_convert(struct ckpt_fs *fs, struct node *dir, const struct node *above, int dirfd, const char *name,
		     struct ckpt_step *step)
{
	int rc;

	call_plain_stop();
	names_write_lock(fs);
	if (node_is_top(dir))
		rc = -EALREADY;
	else if (!dir->names || dir->names->parent != above || strcmp(dir->names->text, name))
		rc = -ESTALE; // renamed since
	else if (draft_is_below_locked(fs, dir))
		rc = -EBUSY;
	else
		rc = ckpt_convert(step, dirfd);
	if (!rc)
		__atomic_store_n(&dir->step, ckpt_step_ref(step), __ATOMIC_RELAXED);
	names_unlock(fs);
	call_plain_go();
	return rc;
}

static int convert(struct ckpt_fs *fs, struct node *dir, struct node *above, int dirfd, const char *id,
		   const char *name, struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc = ckpt_convert_prepare(fs->store, dirfd, id, name, &step);

	if (rc)
		return rc;
	rc = complete_convert(fs, dir, above, dirfd, name, step);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

static int convert_back(struct ckpt_fs *fs, struct node *dir, int dirfd, const char *name, struct ckpt_step *step)
{
	int rc;

	names_write_lock(fs);
	rc = ckpt_convert_back(step, dirfd, name);
	if (!rc)
		ckpt_step_unref(__atomic_exchange_n(&dir->step, NULL, __ATOMIC_RELAXED));
	names_unlock(fs);
	return rc;
}

#define LOOK_AGAIN_NS INT64_C(100000000)
#define OTHERS_LOOK_NS INT64_C(20000000)
#define OTHERS_LATER_NS INT64_C(500000000)
#define OTHERS_NS INT64_C(600000000000) // for what others write, when who waits for the answer has gone on

// Nobody waits for the commit any more: if it fails, the folder is a plain one again. node is the folder, other what it is in:
// both are references.
static void run_convert_back(struct call *c)
{
	struct ckpt_step *step = node_step(c->fs, c->node);
	CLEANUP_FD int dirfd = node_open(c->fs, c->other, O_RDONLY | O_DIRECTORY);

	while (step && ckpt_step_state(step) == CKPT_STEP_COMMITTING &&
	       !__atomic_load_n(&c->fs->ending, __ATOMIC_ACQUIRE))
		ckpt_sys.sleep_ns(LOOK_AGAIN_NS);
	if (step && dirfd >= 0 && ckpt_step_state(step) == CKPT_STEP_STAGED)
		(void)convert_back(c->fs, c->node, dirfd, c->name, step);
	else if (step && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		folder_touch(c->fs, c->other);
	ckpt_step_unref(step);
	node_unref(c->fs, c->node);
	node_unref(c->fs, c->other);
}

static void convert_back_later(struct ckpt_fs *fs, struct node *dir, struct node *above, const char *name)
{
	struct call c = {.run = run_convert_back, .fs = fs, .node = dir, .other = above, .waits_for_clients = true};

	snprintf(c.name, sizeof(c.name), "%s", name);
	node_ref(fs, dir);
	node_ref(fs, above);
	call_detach(&c);
}

static int complete_in(struct ckpt_fs *fs, struct node *dir, struct node *above, const char *name,
		       const struct ckpt_commit *how, struct ckpt_step **ret_step)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step = NULL;
	CLEANUP_FD int dirfd = node_open(fs, above, O_RDONLY | O_DIRECTORY);
	int rc = dirfd < 0 ? dirfd : folder_id_of(fs, above, true, id);

	// What is still being written in it belongs to the step: it has its time to be closed, as in any.
	if (!rc)
		rc = draft_wait_below(fs, dir, fs->store->settings.open_writers_ns);
	if (!rc)
		rc = node_is_top(dir) ? -EALREADY : convert(fs, dir, above, dirfd, id, name, &step);
	if (rc == -EALREADY) { // by another marker, which may be at it
		step = node_step(fs, dir);
		rc = step ? complete_step(fs, step, how, ret_step) : -ESTALE;
		ckpt_step_unref(step);
		return rc;
	}
	if (rc) {
		complain_of_folder(fs, name, rc);
		return rc;
	}
	rc = ckpt_convert_sync(fs->store, dirfd);
	if (!rc)
		rc = ckpt_commit(step, how);
	if (rc && convert_back(fs, dir, dirfd, name, step) == -EBUSY)
		convert_back_later(fs, dir, above, name);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

int complete_folder(struct ckpt_fs *fs, struct node *dir, const struct ckpt_commit *how, struct ckpt_step **ret_step)
{
	char name[CKPT_NAME_MAX + 1];
	struct ckpt_step *step = NULL;
	struct node *above;
	int rc = folder_above(fs, dir, name, &above);

	if (rc)
		return rc;
	rc = complete_in(fs, dir, above, name, how, &step);
	if (!rc)
		folder_touch(fs, above);
	node_unref(fs, above);
	if (ret_step)
		*ret_step = step;
	else
		ckpt_step_unref(step);
	return rc;
}

int complete_step(struct ckpt_fs *fs, struct ckpt_step *of, const struct ckpt_commit *how, struct ckpt_step **ret_step)
{
	struct ckpt_step *step = ckpt_step_now(ckpt_step_ref(of));
	bool removed = ckpt_step_state(step) == CKPT_STEP_COMMITTED && ckpt_removal_any(step);
	int rc = removed && (fs->mount->readonly || fs->store->settings.amend == CKPT_AMEND_DENY) ? -EROFS : 0;

	if (!rc && removed)
		rc = ckpt_remove_publish(step);
	if (!rc)
		rc = ckpt_commit(step, how);
	if (!rc && ret_step)
		*ret_step = ckpt_step_ref(step);
	ckpt_step_unref(step);
	return rc;
}

// --- Plain folders that are renamed to a step's name ------------------------------------------------------------------

#define CLOSE_LOOK_NS INT64_C(5000000)

static int look_for_log(void *arg, int dirfd, const char *name, const struct statx *stx)
{
	bool *any_file = arg;

	(void)dirfd;
	*any_file |= S_ISREG(stx->stx_mode);
	return !S_ISDIR(stx->stx_mode) && ckpt_tracker_is_log(name);
}

// 1: it is none. A close that was answered may still have to reach us.
static int check_content(struct ckpt_fs *fs, const struct node *dir, int above_fd, const char *name)
{
	int64_t end_ns = ckpt_sys.mono_ns() + COMPLETE_LOCKED_NS;
	bool any_file = false;
	int rc = ckpt_walk(above_fd, name, look_for_log, &any_file);

	if (rc || !any_file)
		return rc ? rc : 1;
	while (node_any_written_below(fs, dir, NULL, NULL) || draft_is_below(fs, dir)) {
		if (ckpt_sys.mono_ns() >= end_ns)
			return 1;
		ckpt_sys.sleep_ns(CLOSE_LOOK_NS);
	}
	return 0;
}

static bool says_none(int rc)
{
	return rc == -ENOTEMPTY || rc == -EMLINK || rc == -EBUSY || rc == -EALREADY || rc == -EEXIST || rc == -E2BIG;
}

int complete_renamed(struct ckpt_fs *fs, struct node *dir, struct node *above, const char *name,
		     const struct ckpt_commit *how)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	CLEANUP_FD int dirfd = node_open(fs, above, O_RDONLY | O_DIRECTORY);
	struct ckpt_step *step;
	int rc = dirfd < 0 ? dirfd : check_content(fs, dir, dirfd, name);

	if (!rc)
		rc = folder_id_of(fs, above, true, id);
	if (!rc)
		rc = convert(fs, dir, above, dirfd, id, name, &step);
	if (rc)
		return says_none(rc) ? 1 : rc;
	rc = ckpt_convert_sync(fs->store, dirfd);
	if (!rc)
		rc = ckpt_commit(step, how);
	if (rc && convert_back(fs, dir, dirfd, name, step) == -EBUSY)
		convert_back_later(fs, dir, above, name);
	ckpt_step_unref(step);
	return rc;
}

// --- What frameworks do last ------------------------------------------------------------------------------------------

// What a step is now, if its framework could still complete it: not a copy. Takes the reference.
static struct ckpt_step *unfinished(struct ckpt_step *step)
{
	enum ckpt_step_state state;

	step = ckpt_step_now(step);
	state = ckpt_step_state(step);
	if ((state == CKPT_STEP_STAGED || state == CKPT_STEP_COMMITTING) &&
	    !__atomic_load_n(&ckpt_staging_of(step)->copied, __ATOMIC_RELAXED))
		return step;
	ckpt_step_unref(step);
	return NULL;
}

// Whether a plain folder may become a step without anybody having said so by a marker: not what its owner has said is none, nor
// what holds logs, nor a part of a larger checkpoint.
static bool may_convert(struct ckpt_fs *fs, struct node *dir)
{
	char mark[CKPT_NAME_MAX + 32] = "";
	CLEANUP_FD int above = -1;
	struct node *folder = NULL;
	bool may = !fs->store->settings.steps_at;
	struct stat st;

	names_read_lock(fs);
	if (!dir->names || (dir->names->parent->names && ckpt_profile_is_part(dir->names->text)))
		may = false;
	for (const struct node *n = dir; may && n->names; n = n->names->parent)
		may = !ckpt_name_is_logs(n->names->text);
	if (may && dir->names->parent->names) {
		snprintf(mark, sizeof(mark), "%s-unfinished", dir->names->parent->names->text);
		folder = dir->names->parent->names->parent;
		node_ref(fs, folder);
	}
	names_unlock(fs);
	if (folder)
		above = node_open(fs, folder, O_RDONLY | O_DIRECTORY);
	if (above >= 0 && !fstatat(above, mark, &st, AT_SYMLINK_NOFOLLOW))
		may = false;
	node_unref(fs, folder);
	return may;
}

// The directory that the file is in.
static int decide_here(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed, struct completing *c)
{
	struct ckpt_step *step = node_step(fs, dir);
	int rc;

	if (step && !node_is_top(dir)) {
		ckpt_step_unref(step);
		return -ENOENT;
	}
	if (step) {
		c->step = unfinished(step);
		return c->step ? 0 : -ENOENT;
	}
	rc = may_convert(fs, dir) ? one_save_check(fs, dir, deed) : -ENOENT;
	if (rc)
		return rc;
	node_ref(fs, dir);
	c->dir = dir;
	return 0;
}

// The plain folder of this name, if it looks like what the framework writes.
static int decide_plain(struct ckpt_fs *fs, struct node *folder, const struct ckpt_deed *deed, struct completing *c)
{
	struct fuse_entry_param e = {0};
	struct ckpt_step *step;
	CLEANUP_FD int dirfd = -1;
	struct node *n;
	int rc = lookup_child(fs, folder, c->what.beside, &e);

	if (rc)
		return rc;
	n = node_of(fs, e.ino);
	step = node_step(fs, n);
	rc = -ENOENT;
	if (!step && n->kind == NODE_FILES && S_ISDIR(n->type)) {
		dirfd = node_open(fs, n, O_RDONLY | O_DIRECTORY);
		rc = dirfd < 0 ? dirfd : ckpt_profile_knows(&c->what, dirfd);
	}
	if (!rc)
		rc = may_convert(fs, n) ? one_save_check(fs, n, deed) : -ENOENT;
	if (!rc) {
		node_ref(fs, n);
		c->dir = n;
	}
	ckpt_step_unref(step);
	node_forget(fs, n, 1);
	return rc;
}

static int decide_beside(struct ckpt_fs *fs, struct node *folder, const struct ckpt_deed *deed, struct completing *c)
{
	struct ckpt_step *step;
	CLEANUP_FD int dirfd = -1;
	int rc = folder_step(fs, folder, c->what.beside, &step);

	if (rc)
		return rc == -ENOENT ? decide_plain(fs, folder, deed, c) : rc;
	c->step = unfinished(step);
	if (!c->step)
		return -ENOENT;
	dirfd = ckpt_sys.open(fs->store->sessions_fd, c->step->session, O_RDONLY | O_DIRECTORY, 0);
	rc = dirfd < 0 ? dirfd : ckpt_profile_knows(&c->what, dirfd);
	if (rc) {
		ckpt_step_unref(TAKE_PTR(c->step));
		return rc;
	}
	node_ref(fs, folder);
	c->folder = folder;
	return 0;
}

static int decide(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed, struct completing *c)
{
	int rc, cut = -ENOENT;

	for (size_t row = 0;;) {
		size_t before = row;

		rc = ckpt_profile_completes(fs->store->settings.profiles, deed, &row, &c->what);
		if (!rc)
			rc = *c->what.beside ? decide_beside(fs, dir, deed, c) : decide_here(fs, dir, deed, c);
		if (rc == -EINVAL)
			cut = rc;
		if (rc != -ENOENT || row == before)
			return rc == -ENOENT ? cut : rc;
	}
}

bool complete_is_copier(pid_t tid)
{
	char comm[CLIENT_COMM_BYTES];

	return client_comm(tid, comm) && ckpt_profile_is_copier(comm);
}

// Without array data it is no step.
static int check_arrays(struct ckpt_fs *fs, const struct completing *c)
{
	CLEANUP_FD int dirfd =
		c->step ? ckpt_sys.open(fs->store->sessions_fd, c->step->session, O_RDONLY | O_DIRECTORY, 0)
			: node_open(fs, c->dir, O_RDONLY | O_DIRECTORY);
	int rc = dirfd < 0 ? dirfd : ckpt_data_any(dirfd);

	return rc == 1 ? 0 : rc ? rc : -ENOENT;
}

int complete_decide(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed, bool here,
		    struct completing *ret)
{
	char name[CKPT_NAME_MAX + 1];
	CLEANUP_FD int dirfd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	struct ckpt_deed at = *deed;
	struct node *above = NULL;
	int rc = -ENOENT;

	*ret = (struct completing){0};
	if (fs->mount->readonly || dirfd == -ESTALE || dirfd == -EACCES)
		return -ENOENT;
	if (dirfd < 0)
		return dirfd;
	at.dirfd = dirfd;
	if (here && dir != node_root(fs) && !folder_above(fs, dir, name, &above)) {
		at.dir = name;
		rc = decide(fs, dir, &at, ret);
	}
	if (rc == -ENOENT && !node_is_top(dir)) {
		at.dir = NULL;
		rc = decide(fs, dir, &at, ret);
	}
	if (!rc)
		rc = check_arrays(fs, ret);
	if (rc)
		complete_done(fs, ret);
	node_unref(fs, above);
	return rc == -EACCES ? -ENOENT : rc; // what a daemon without root may not read it does not know
}

void complete_done(struct ckpt_fs *fs, struct completing *c)
{
	ckpt_step_unref(c->step);
	node_unref(fs, c->dir);
	node_unref(fs, c->folder);
	*c = (struct completing){0};
}

struct like {
	const struct ckpt_completion *what;
	int dirfd;
	char *name;
};

static int look_for_like(const struct like *l, struct ckpt_manifest *m)
{
	struct ckpt_entry e;
	struct stat st;

	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		ckpt_manifest_entry(m, i, &e);
		if (e.parent || !ckpt_profile_awaits_like(l->what, e.name) ||
		    !fstatat(l->dirfd, e.name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		snprintf(l->name, CKPT_NAME_MAX + 1, "%s", e.name);
		return 1;
	}
	return 0;
}

// 1: the newest step beside it has a file *ret_name that this one is to have, too.
static int lacks_like(struct ckpt_fs *fs, const struct completing *c, int dirfd, char *ret_name)
{
	struct like l = {&c->what, dirfd, ret_name};
	struct ckpt_latest latest;
	struct ckpt_step_name is;
	struct ckpt_step *neighbour;
	struct ckpt_manifest *m;
	int rc;

	if (!c->step || !c->what.awaits_like)
		return 0;
	ckpt_step_name(c->step, &is);
	if (ckpt_latest(fs->store, is.folder_id, CKPT_LATEST_BY_COMMIT, 0, &latest))
		return 0;
	neighbour = ckpt_step_find(fs->store, latest.folder_id, latest.name);
	rc = neighbour && ckpt_step_state(neighbour) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(neighbour, &m)
									    : -ENOENT;
	ckpt_step_unref(neighbour);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = look_for_like(&l, m);
	ckpt_manifest_unref(m);
	return rc;
}

// 1: *ret_name is still to be written by somebody else.
static int lacks(struct ckpt_fs *fs, const struct completing *c, char *ret_name)
{
	CLEANUP_FD int dirfd = -1;

	if (c->step && ckpt_step_state(c->step) != CKPT_STEP_STAGED)
		return 0; // it goes on, or does not, as it does without us
	dirfd = c->step ? ckpt_sys.open(fs->store->sessions_fd, c->step->session, O_RDONLY | O_DIRECTORY, 0)
			: node_open(fs, c->dir, O_RDONLY | O_DIRECTORY);
	if (dirfd == -ENOENT || dirfd == -ESTALE || dirfd == -EACCES)
		return 0;
	if (dirfd < 0)
		return dirfd;
	return ckpt_profile_lacks(&c->what, dirfd, c->step && c->step->base, ret_name)
		       ?: lacks_like(fs, c, dirfd, ret_name);
}

static bool is_passing(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

// 0: it lacks nothing; 1: it does after all that time; -EINTR: nobody waits. Meanwhile the step does not stand still (reopen.h).
static int wait_for_others(struct ckpt_fs *fs, const struct completing *c, pid_t tid, int64_t timeout_ns,
			   int64_t look_ns, char *ret_name)
{
	struct waiter waiter = {&fs->ending, tid};
	int64_t end_ns = ckpt_sys.mono_ns() + timeout_ns;
	int rc;

	while (((rc = lacks(fs, c, ret_name)) == 1 || is_passing(rc)) && ckpt_sys.mono_ns() < end_ns) {
		if (waiter_is_gone(&waiter))
			return -EINTR;
		if (c->step)
			ckpt_stage_touch(c->step);
		ckpt_sys.sleep_ns(look_ns);
	}
	return rc;
}

static void name_of(struct ckpt_fs *fs, const struct completing *c, char *ret_name)
{
	struct node *above = NULL;
	struct ckpt_step_name is;

	*ret_name = '\0';
	if (c->step)
		ckpt_step_name(c->step, &is);
	if (c->step)
		snprintf(ret_name, CKPT_NAME_MAX + 1, "%s", is.name);
	else if (!folder_above(fs, c->dir, ret_name, &above))
		node_unref(fs, above);
}

static void run_later(struct call *call)
{
	char lacking[CKPT_NAME_MAX + 1] = "a file", step[CKPT_NAME_MAX + 1];
	struct completing c;
	int rc;

	memcpy(&c, call->data, sizeof(c));
	rc = wait_for_others(call->fs, &c, 0, OTHERS_NS, OTHERS_LATER_NS, lacking);
	if (!rc) {
		(void)complete_run(call->fs, &c, 0, NULL); // the error log has why not
		return;
	}
	name_of(call->fs, &c, step);
	if (rc != -EINTR)
		ckpt_errlog_add(call->fs->store->errlog, step, rc < 0 ? rc : 0,
				"`ckptfs commit` completes the step as it is, `ckptfs abort` drops it",
				"%s was not written: the step is not complete, and the mount does not wait for it "
				"any more",
				lacking);
	complete_done(call->fs, &c);
}

// Who did the last act goes on: his training would end by an error here. The step is none until the file is there.
static int complete_later(struct ckpt_fs *fs, struct completing *c, const char *lacking)
{
	struct call call = {
		.run = run_later, .fs = fs, .data = (char *)c, .data_len = sizeof(*c), .waits_for_clients = true};
	char step[CKPT_NAME_MAX + 1];

	name_of(fs, c, step);
	ckpt_errlog_add(fs->store->errlog, step, 0, "look at that rank; `ckptfs commit` completes the step as it is",
			"the step is not complete: %s is missing or not whole; the mount waits for it for "
			"%lld minutes",
			lacking, (long long)(OTHERS_NS / 60000000000));
	call_detach(&call);
	*c = (struct completing){0};
	return 0;
}

// --- Frameworks that go on writing behind their last file -----------------------------------------------------------------

// For long enough nothing has been open in it, or has changed.
static bool is_settled(struct ckpt_fs *fs, const struct completing *c, int64_t since_ns)
{
	int64_t now = ckpt_sys.mono_ns();

	if (c->dir)
		return now - since_ns >= CKPT_SETTLE_NS && !node_any_written_below(fs, c->dir, NULL, NULL);
	LOCK_SCOPE(&c->step->lock);
	for (const struct ckpt_writer *w = ckpt_staging_of(c->step)->writers; w; w = w->next)
		if (!w->late && !ckpt_stage_writer_stands_still(w)) // a fork may hold what its parent has closed
			return false;
	return !ckpt_staging_of(c->step)->changers &&
	       now - MAX(since_ns, __atomic_load_n(&ckpt_staging_of(c->step)->touched_ns, __ATOMIC_RELAXED)) >=
		       CKPT_SETTLE_NS;
}

static bool is_there(const struct completing *c)
{
	return c->dir ? !node_is_top(c->dir) : ckpt_step_state(c->step) == CKPT_STEP_STAGED;
}

static void run_settle(struct call *call)
{
	struct ckpt_fs *fs = call->fs;
	int64_t since_ns = ckpt_sys.mono_ns();
	struct waiter waiter = {&fs->ending, 0};
	struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE, .name = ""};
	struct completing c;

	memcpy(&c, call->data, sizeof(c));
	while (is_there(&c) && !is_settled(fs, &c, since_ns) && !waiter_is_gone(&waiter))
		ckpt_sys.sleep_ns(OTHERS_LATER_NS);
	c.what.settles = false;
	if (is_there(&c) && !waiter_is_gone(&waiter) && (c.step || !one_save_check(fs, c.dir, &deed)))
		(void)complete_run(fs, &c, 0, NULL); // the error log has why not
	else
		complete_done(fs, &c);
}

static int complete_settled(struct ckpt_fs *fs, struct completing *c)
{
	struct call call = {
		.run = run_settle, .fs = fs, .data = (char *)c, .data_len = sizeof(*c), .waits_for_clients = true};

	call_detach(&call);
	*c = (struct completing){0};
	return 0;
}

int complete_run(struct ckpt_fs *fs, struct completing *c, pid_t tid, struct ckpt_step **ret_step)
{
	char lacking[CKPT_NAME_MAX + 1];
	struct waiter waiter = {&fs->ending, tid};
	struct ckpt_commit how = {
		.event = c->what.event,
		.profile = c->what.profile,
		.metadata = c->what.metadata,
		.writers_ns = fs->store->settings.open_writers_ns,
		.leaves_late = c->what.leaves_late,
		.abandoned = waiter_is_gone,
		.abandoned_arg = &waiter,
	};
	int rc;

	if (ret_step)
		*ret_step = NULL;
	if (c->what.settles)
		return complete_settled(fs, c);
	if (c->what.act == CKPT_EVENT_UNLINK)
		how.writers_ns = MIN(how.writers_ns, COMPLETE_LOCKED_NS);
	rc = wait_for_others(fs, c, tid, how.writers_ns, OTHERS_LOOK_NS, lacking);
	if (rc == 1)
		return complete_later(fs, c, lacking);
	if (rc) {
		rc = c->dir ? 0 : rc;
		complete_done(fs, c);
		return rc;
	}
	rc = c->step ? complete_step(fs, c->step, &how, ret_step) : complete_folder(fs, c->dir, &how, ret_step);

	if (!rc && c->folder)
		folder_touch(fs, c->folder);
	if (c->dir)
		rc = 0;
	complete_done(fs, c);
	return rc;
}

void complete_tell(struct ckpt_fs *fs, struct node *dir, const char *name, const char *why)
{
	char step[CKPT_NAME_MAX + 1];
	struct node *above;

	if (folder_above(fs, dir, step, &above))
		return;
	node_unref(fs, above);
	ckpt_errlog_add(fs->store->errlog, step, 0,
			"save again; or, if all of it is there, complete it with `ckptfs commit`",
			"the step is not complete: %s %s", name, why);
}
