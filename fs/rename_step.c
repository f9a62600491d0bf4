#include "fs/rename_step.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/commit.h"
#include "core/save/move.h"
#include "core/save/stage.h"
#include "core/step/removal.h"
#include "core/step/reopened.h"
#include "core/step/store_folder.h"
#include "fs/complete.h"
#include "fs/draft.h"
#include "fs/durable.h"
#include "fs/folder.h"
#include "fs/ops.h"
#include "fs/unstage.h"

#include <fcntl.h>
#include <sys/stat.h>

// The directory of this step in the mount has another name, and maybe another parent, from now on.
static void move_name(struct call *c, struct node *n)
{
	names_write_lock(c->fs);
	name_drop_locked(c->fs, n, c->node, c->name);
	// Without memory for the name the node has none, and the kernel looks it up again.
	(void)name_add_locked(c->fs, n, c->other, c->other_name);
	names_unlock(c->fs);
}

// An empty plain folder makes room, as rename(2) says. It may look empty on disk and yet hold steps.
static int remove_empty_folder(struct call *c, int dirfd, const struct stat *st)
{
	struct ckpt_fs *fs = c->fs;
	char id[CKPT_FOLDER_ID_LEN + 1];
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, c->other_name, O_RDONLY | O_DIRECTORY, 0);
	int rc = fd < 0 ? fd : ckpt_store_folder_id(fs->store, fd, false, id);
	struct node *n;

	if (!rc)
		return ckpt_step_any(fs->store, id) ? -ENOTEMPTY : ckpt_sys.unlink(dirfd, c->other_name, AT_REMOVEDIR);
	if (rc != -ENOENT)
		return rc;
	n = node_find(fs, SPACE_LIVE, st->st_ino);
	rc = n && draft_is_below(fs, n) ? -ENOTEMPTY : 0;
	names_write_lock(fs);
	if (!rc)
		rc = ckpt_sys.unlink(dirfd, c->other_name, AT_REMOVEDIR);
	if (!rc && n)
		name_drop_locked(fs, n, c->other, c->other_name);
	names_unlock(fs);
	node_unref(fs, n);
	return rc == -EEXIST ? -ENOTEMPTY : rc;
}

// Of what has the new name: 0 nothing, or something empty that was dropped on the way. step NULL: it is none yet.
static int clear_target(struct call *c, const char *folder_id, struct ckpt_step *step)
{
	struct ckpt_step *there = ckpt_step_find(c->fs->store, folder_id, c->other_name);
	CLEANUP_FD int dirfd = -1;
	struct stat st;
	int rc;

	if (there && there == step) {
		ckpt_step_unref(there);
		return 0;
	}
	if (there) {
		rc = c->flags & RENAME_NOREPLACE ? -EEXIST : ckpt_stage_remove(there);
		ckpt_step_unref(there);
		return rc == -EROFS || rc == -EBUSY ? -ENOTEMPTY : rc;
	}
	dirfd = node_open(c->fs, c->other, O_RDONLY | O_DIRECTORY);
	if (dirfd < 0)
		return dirfd;
	if (fstatat(dirfd, c->other_name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (c->flags & RENAME_NOREPLACE)
		return -EEXIST;
	return S_ISDIR(st.st_mode) ? remove_empty_folder(c, dirfd, &st) : -ENOTDIR;
}

static struct ckpt_commit commit_as(struct call *c, const char *folder_id, struct waiter *waiter)
{
	return (struct ckpt_commit){
		.folder_id = folder_id,
		.name = c->other_name,
		.event = "rename",
		.profile = ckpt_profile_of_temp(c->name),
		.writers_ns = MIN(COMPLETE_LOCKED_NS, c->fs->store->settings.open_writers_ns),
		.leaves_late = true, // the kernel holds locks meanwhile: other ranks' files join at their close
		.abandoned = waiter_is_gone,
		.abandoned_arg = waiter,
	};
}

static void touch_folders(struct call *c)
{
	folder_touch(c->fs, c->other);
	if (c->node != c->other)
		folder_touch(c->fs, c->node);
}

// A step's name to another keeps it staged, as does one that was staged without such a name (`ckptfs begin`).
static int rename_staged(struct call *c, struct ckpt_step *step, const char *folder_id)
{
	bool was_form, is_form;
	int rc = names_step(c->fs, c->node, c->name, &was_form);

	if (!rc)
		rc = names_step(c->fs, c->other, c->other_name, &is_form);
	if (rc)
		return rc;
	return is_form || !was_form ? ckpt_stage_rename(step, folder_id, c->other_name)
				    : unstage_as(c->fs, step, c->other, c->other_name);
}

static int rename_step(struct call *c, struct ckpt_step *step)
{
	struct ckpt_fs *fs = c->fs;
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = check_new_name(fs, c->other, NULL, c->other_name);

	if (!rc)
		rc = folder_id_of(fs, c->other, true, id);
	if (!rc)
		rc = clear_target(c, id, step);
	if (rc)
		return rc;
	if (ckpt_name_is_temp(c->name) && !ckpt_name_is_temp(c->other_name)) {
		struct waiter waiter = {&fs->ending, fuse_req_ctx(c->req)->pid};
		struct ckpt_commit how = commit_as(c, id, &waiter);

		rc = ckpt_commit(step, &how);
	} else {
		rc = rename_staged(c, step, id);
	}
	if (!rc)
		touch_folders(c);
	return rc;
}

static int move_step(struct call *c, struct ckpt_step *step, const struct ckpt_step *into)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int rc = c->fs->mount->readonly ? -EROFS : into ? -EXDEV : check_new_name(c->fs, c->other, NULL, c->other_name);

	if (!rc && ckpt_removal_hides(step))
		rc = -EBUSY; // somebody is removing it
	if (!rc)
		rc = folder_id_of(c->fs, c->other, true, id);
	if (!rc)
		rc = clear_target(c, id, step);
	if (!rc)
		rc = ckpt_move(step, id, c->other_name);
	if (!rc)
		touch_folders(c);
	return rc;
}

// Into another staged step: the directory's node stops being the top of a step.
static int graft_step(struct call *c, struct ckpt_step *step, struct node *n, struct ckpt_step *into)
{
	CLEANUP_FD int dirfd = -1;
	int rc = check_new_name(c->fs, c->other, into, c->other_name);

	if (!rc)
		rc = ckpt_stage_enter(into, true);
	if (rc)
		return rc;
	dirfd = node_open(c->fs, c->other, O_RDONLY | O_DIRECTORY);
	rc = MIN(dirfd, 0);
	if (!rc) {
		names_write_lock(c->fs);
		rc = ckpt_stage_graft(step, into, dirfd, c->other_name);
		if (!rc && n) {
			ckpt_step_unref(__atomic_exchange_n(&n->step, NULL, __ATOMIC_RELAXED));
			name_drop_locked(c->fs, n, c->node, c->name);
			(void)name_add_locked(c->fs, n, c->other, c->other_name);
		}
		names_unlock(c->fs);
	}
	ckpt_stage_leave(into);
	return rc;
}

// The staged step that a renamed one comes into, NULL: none. A step's name in it shows that it is a run's folder.
static struct ckpt_step *step_of_target(struct call *c)
{
	struct ckpt_step *into = node_step(c->fs, c->other);

	if (into && unstage_is_shown_by(c->fs, c->other, into, c->other_name) && !unstage(c->fs, into))
		ckpt_step_unref(TAKE_PTR(into));
	return into;
}

#define EDIT_LOOKS_MAX 35
#define EDIT_LOOK_NS INT64_C(100000000)

// Reopened for an edit, and nobody has a file of it open for writing.
static bool is_edited(struct ckpt_step *step)
{
	struct ckpt_step *now = ckpt_step_is_reopened(step) ? ckpt_step_now(ckpt_step_ref(step)) : NULL;
	struct ckpt_stage_usage usage;
	// A re-save of arrays is none, and waits for longer than a rename should.
	bool is = now && now != step && !__atomic_load_n(&ckpt_reopen_of(now)->rewritten, __ATOMIC_RELAXED) &&
		  !ckpt_stage_usage(now, &usage) && !usage.open_writers;

	ckpt_step_unref(now);
	return is;
}

// The step of this name, a reference; one whose text was edited is committed again in a moment, and is waited for.
static struct ckpt_step *find_settled(struct ckpt_store *s, const char *id, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, id, name);

	for (unsigned i = 0; i < EDIT_LOOKS_MAX && step && is_edited(step); i++) {
		ckpt_step_unref(step);
		ckpt_sys.sleep_ns(EDIT_LOOK_NS);
		step = ckpt_step_find(s, id, name);
	}
	return step;
}

// A step that is one now, under its new name, is to be in the object store, too, if that is wanted. Where it is not, the rename has happened
// all the same: the kernel looks both names up again.
void rename_step_reply(struct call *c, int rc, struct ckpt_step *step)
{
	struct fuse_session *se = c->fs->se;
	fuse_ino_t from = node_id(c->fs, c->node), to = node_id(c->fs, c->other);
	bool waits = !rc && step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	if (waits)
		rc = durable_wait(step, (struct waiter){&c->fs->ending, fuse_req_ctx(c->req)->pid});
	reply_error(c->req, rc);
	if (!rc || !waits)
		return;
	(void)fuse_lowlevel_notify_inval_entry(se, from, c->name, strlen(c->name));
	(void)fuse_lowlevel_notify_inval_entry(se, to, c->other_name, strlen(c->other_name));
}

// Runs on a thread of its own. step is found again by its name: the kernel has locked the folder, so it is the same.
void rename_step_run(struct call *c)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step = NULL, *into = step_of_target(c);
	struct fuse_entry_param e = {0};
	struct node *n = NULL;
	int rc = folder_id_of(c->fs, c->node, false, id);

	if (!rc) {
		step = find_settled(c->fs->store, id, c->name);
		rc = step ? lookup_child(c->fs, c->node, c->name, &e) : -ENOENT;
	}
	if (!rc) {
		n = node_of(c->fs, e.ino);
		if (c->flags & ~RENAME_NOREPLACE)
			rc = -EINVAL;
		else if (ckpt_step_is_reopened(step))
			rc = -EBUSY; // it has the name of the version that it is to replace
		else if (ckpt_step_state(step) == CKPT_STEP_COMMITTED)
			rc = move_step(c, step, into);
		else if (into)
			rc = graft_step(c, step, n, into);
		else
			rc = rename_step(c, step);
		if (!rc && !into)
			move_name(c, n);
		node_forget(c->fs, n, 1);
	}
	rename_step_reply(c, rc, step);
	ckpt_step_unref(step);
	ckpt_step_unref(into);
}

// 1: it is renamed as a plain folder. *ret_step: it is committed as this step, a reference.
int rename_step_commit_folder(struct call *c, struct ckpt_step **ret_step)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct waiter waiter = {&c->fs->ending, fuse_req_ctx(c->req)->pid};
	struct ckpt_commit how = commit_as(c, id, &waiter);
	struct fuse_entry_param e = {0};
	struct node *n;
	int rc = c->fs->mount->readonly ? -EROFS : check_new_name(c->fs, c->other, NULL, c->other_name);

	if (!rc)
		rc = folder_id_of(c->fs, c->other, true, id);
	if (!rc)
		rc = clear_target(c, id, NULL);
	if (!rc)
		rc = lookup_child(c->fs, c->node, c->name, &e);
	if (rc)
		return rc;
	n = node_of(c->fs, e.ino);
	rc = complete_renamed(c->fs, n, c->node, c->name, &how);
	if (!rc) {
		move_name(c, n);
		touch_folders(c);
		*ret_step = node_step(c->fs, n);
	}
	node_forget(c->fs, n, 1);
	return rc;
}
