// Files that are moved out of a committed step: the other name gets a copy, which is on disk first.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/trash.h"
#include "fs/amend_shared.h"
#include "fs/call.h"
#include "fs/draft.h"
#include "fs/folder.h"
#include "fs/ops.h"
#include "fs/unwritten_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

// The holder of the name in a live tree: 0 nobody, or a file that may go.
static int check_live_target(struct call *c, int to_fd, struct live_child *ret_child, bool *ret_replaces)
{
	struct ckpt_step *there;
	int rc = check_new_name(c->fs, c->other, c->other_step, c->other_name);

	if (!rc && !c->other_step && !folder_find(c->fs, c->other, c->other_name, &there)) {
		ckpt_step_unref(there);
		rc = -EISDIR;
	}
	if (!rc)
		rc = draft_rename_check(c);
	if (!rc && !c->other_step && draft_is_at(c->fs, c->other, c->other_name))
		rc = -EXDEV;
	if (rc)
		return rc;
	*ret_replaces = !look_at_child(c->fs, c->other, to_fd, c->other_name, ret_child);
	if (!*ret_replaces)
		return 0;
	return (c->flags & RENAME_NOREPLACE) || (c->other_step && ckpt_staging_of(c->other_step)->add_only) ? -EEXIST
	       : S_ISDIR(ret_child->stx.stx_mode)                                                           ? -EISDIR
													    : 0;
}

static int sync_file(int dirfd, const char *name)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);

	return fd == -ELOOP || fd == -EACCES ? 0 : fd < 0 ? fd : ckpt_sys.fsync(fd);
}

static struct node *give_to_twin_locked(struct call *c, int to_fd, struct node *n)
{
	struct statx stx;

	if (statx(to_fd, c->other_name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return NULL;
	name_drop_locked(c->fs, n, c->node, c->name);
	if (name_add_locked(c->fs, n, c->other, c->other_name))
		return NULL;
	return node_adopt_twin_locked(c->fs, n, ckpt_store_ino(&stx), c->other, c->other_name);
}

// Two shared files may be one on disk, where rename(2) does nothing: then the name has what it is to have.
static int place_outgoing(struct call *c, int to_fd, const char *aside, struct node *written, struct node **ret_twin)
{
	int trash_fd = c->fs->store->trash_fd;
	struct live_child there;
	CLEANUP_FD int kept = -1;
	bool replaces;
	int rc = check_live_target(c, to_fd, &there, &replaces);

	if (rc)
		return rc;
	kept = replaces ? open_last_name(to_fd, c->other_name, &there) : -1;
	names_write_lock(c->fs);
	rc = ckpt_sys.rename(trash_fd, aside, to_fd, c->other_name, 0);
	if (!rc && replaces) {
		struct node *n = node_find(c->fs, SPACE_LIVE, there.number);

		if (n) {
			name_drop_locked(c->fs, n, c->other, c->other_name);
			node_keep_locked(n, TAKE_FD(kept));
		}
		node_unref(c->fs, n);
	}
	if (!rc && written)
		*ret_twin = give_to_twin_locked(c, to_fd, written);
	names_unlock(c->fs);
	return rc ? rc : ckpt_sys.fsync(to_fd);
}

// The file in the step that is at it: a reference, if somebody may write it who has not yet (unwritten.h). NULL: nobody.
static struct node *find_unwritten(struct call *c, uint64_t number)
{
	uint64_t spaces[] = {node_space(c->step), SPACE_LIVE};

	for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
		struct node *n = node_find(c->fs, spaces[i], number);

		if (n && unwritten_any(n))
			return n;
		node_unref(c->fs, n);
	}
	return NULL;
}

// Its writer writes there later: so it is one of its own at once.
static int move_out_unwritten(struct call *c, int to_fd, const char *aside, struct node *n)
{
	CLEANUP_FD int fd = ckpt_sys.open(c->fs->store->trash_fd, aside, O_RDONLY | O_NOFOLLOW, 0);
	struct node *twin = NULL;
	int rc = fd < 0 ? fd : place_outgoing(c, to_fd, aside, n, &twin);

	return rc ? rc : unwritten_hand_over(c->fs, n, twin, c->other_step, fd);
}

static int move_out_live(struct call *c, const struct amend_ends *e)
{
	CLEANUP_FD int to_fd = node_open(c->fs, c->other, O_RDONLY | O_DIRECTORY);
	int trash_fd = c->fs->store->trash_fd;
	char aside[64];
	struct ckpt_manifest *m;
	struct ckpt_entry it;
	struct node *n;
	uint64_t salt;
	int rc = to_fd < 0 ? to_fd : ckpt_sys.random(&salt, sizeof(salt));

	if (!rc)
		rc = amend_find_outgoing(c, e, &m, &it);
	if (rc)
		return rc;
	snprintf(aside, sizeof(aside), CKPT_TRASH_COPY "%016llx-out", (unsigned long long)salt);
	n = find_unwritten(c, it.ino);
	rc = n ? ckpt_share_copy_entry(c->step, m, it.index, trash_fd, aside, NULL)
	       : ckpt_share_entry(c->step, m, it.index, trash_fd, aside);
	ckpt_manifest_unref(m);
	if (!rc) {
		rc = sync_file(trash_fd, aside);
		if (!rc)
			rc = n ? move_out_unwritten(c, to_fd, aside, n) : place_outgoing(c, to_fd, aside, NULL, NULL);
		ckpt_sys.unlink(trash_fd, aside, 0); // where it still is
	}
	node_unref(c->fs, n);
	return rc ? rc : amend_mark_removed(c, &e->from);
}

int amend_move_out(struct call *c, const struct amend_ends *e)
{
	int rc = c->other_step ? ckpt_stage_enter(c->other_step, true) : 0;

	if (rc)
		return rc == -EROFS ? CALL_REOPENS : rc;
	rc = move_out_live(c, e);
	if (c->other_step)
		ckpt_stage_leave(c->other_step);
	return rc;
}
