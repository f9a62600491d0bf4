// Left-over drafts: their exact name leads to them where the tree has no file of that name, so that a later writer can go on
// (wget -c). A resting draft is in the table with nobody writing it; its session stays among the left-over ones until
// somebody opens it for writing, or publishes it.
//
// States, and what moves a draft between them:
//   left over   draft_end.c's leave(), or found at the opening of the store: only a session
//   RESTING     draft_find_left(): d->left is its session
//   PENDING     draft_wake_locked(): an open for writing joins it
//   over        draft_commit() publishes it; draft_remove() drops it; its session was aborted
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "fs/draft.h"
#include "fs/draft_table.h"
#include "fs/folder.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <sys/stat.h>

bool draft_is_resting_locked(const struct draft *d)
{
	return d->left && !d->writers && !d->joining;
}

static int64_t born_ns(struct ckpt_fs *fs, struct node *dir)
{
	CLEANUP_FD int fd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	struct statx stx;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) || !(stx.stx_mask & STATX_BTIME))
		return 0;
	return stx.stx_btime.tv_sec * INT64_C(1000000000) + stx.stx_btime.tv_nsec;
}

// Takes the reference to left.
static struct draft *rest(struct ckpt_fs *fs, struct node *dir, struct ckpt_step *left)
{
	struct draft *d = calloc(1, sizeof(*d));
	struct stat st;
	bool made = false;

	if (d) {
		*d = (struct draft){.fd = -1, .refs = 1, .dir = dir, .left = left, .opened = true, .disk.dirfd = -1};
		node_ref(fs, dir);
		memcpy(d->name, left->name, sizeof(left->name));
		if (!ckpt_draft_view(left, &d->disk))
			d->fd = draft_open_file(d, O_RDONLY);
		if (d->fd >= 0 && !fstat(d->fd, &st))
			d->left_as = (struct draft_seen){
				.at_ns = ckpt_sys.mono_ns(), .size = st.st_size, .mtime = st.st_mtim};
		if (d->left_as.at_ns) {
			names_write_lock(fs);
			made = drafts_insert(fs, d);
			names_unlock(fs);
		}
		if (!made) {
			node_unref(fs, TAKE_PTR(d->dir));
			draft_unref(fs, d);
		}
	} else {
		ckpt_step_unref(left);
	}
	return made ? d : NULL;
}

struct draft *draft_find_left(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct ckpt_step *left = ckpt_draft_find(fs->store, dir->number, 0, name);
	int64_t born = left ? born_ns(fs, dir) : 0;

	if (!left || ckpt_staging_of(left)->began_ns >= born)
		return left ? rest(fs, dir, left) : NULL;
	ckpt_step_unref(left); // of a folder that is gone, whose number this one has now
	return NULL;
}

// Its session may have been aborted or taken away by its own verbs: then the draft is over. With a reference, which goes then.
struct draft *draft_check_left(struct ckpt_fs *fs, struct draft *d)
{
	if (!d || !d->left || ckpt_step_state(d->left) == CKPT_STEP_LEFT)
		return d;
	(void)draft_end(fs, d);
	draft_unref(fs, d);
	return NULL;
}

int draft_wake_locked(struct draft *d)
{
	int rc = d->left ? ckpt_draft_retake(d->left, &d->disk) : 0;

	if (!rc)
		ckpt_step_unref(TAKE_PTR(d->left));
	return rc;
}

void draft_drop(struct ckpt_fs *fs, struct draft *d)
{
	struct ckpt_step *left;

	ckpt_lock_take(&fs->drafts->lock);
	left = TAKE_PTR(d->left);
	ckpt_lock_drop(&fs->drafts->lock);
	if (left) {
		(void)ckpt_stage_abort(left, false);
		ckpt_draft_close(&d->disk);
	} else {
		ckpt_draft_drop(&d->disk);
	}
	ckpt_step_unref(left);
}

// --- Publication ------------------------------------------------------------------------------------------------------

int draft_publish_left(struct ckpt_fs *fs, struct draft *d)
{
	struct drafts *t = fs->drafts;
	int rc;

	ckpt_lock_take(&t->lock);
	rc = !draft_is_resting_locked(d) ? -EBUSY : draft_claim_locked(t, d, false) ? 0 : -ESTALE;
	ckpt_lock_drop(&t->lock);
	if (rc)
		return rc;
	rc = draft_wake_locked(d); // nobody else does: it is claimed
	if (!rc)
		rc = draft_publish(fs, d, &(struct draft_publication){.check = d->replaces, .durable = true});
	if (rc && !d->left && d->dir)
		draft_leave(fs, d);
	draft_release_claim(t, d);
	return rc;
}

// The folder of the tree that the session says, with a reference: by its path, if the folder there has the number.
static struct node *folder_of(struct ckpt_fs *fs, struct ckpt_step *left)
{
	struct node *dir = node_root(fs);
	CLEANUP_FREE char *path = ckpt_draft_path(left);
	char *save = NULL, *slash = path ? strrchr(path, '/') : NULL;

	if (!path)
		return NULL;
	*(slash ? slash : path) = '\0';
	node_ref(fs, dir);
	for (char *name = strtok_r(path, "/", &save); name && dir; name = strtok_r(NULL, "/", &save)) {
		struct fuse_entry_param e = {0};
		struct node *below = lookup_child(fs, dir, name, &e) ? NULL : node_of(fs, e.ino);

		if (below) {
			node_ref(fs, below);
			node_forget(fs, below, 1);
		}
		node_unref(fs, dir);
		dir = below;
	}
	if (dir && dir->number != ckpt_staging_of(left)->file_folder) {
		node_unref(fs, dir);
		return NULL;
	}
	return dir;
}

int draft_commit(struct ckpt_fs *fs, struct ckpt_step *left)
{
	struct node *dir = folder_of(fs, left);
	struct draft *d = NULL;
	struct stat st;
	int fd, rc = dir ? 0 : -ENOENT;

	if (!rc) {
		d = draft_check_left(fs, draft_find(fs, dir, left->name));
		if (d && d->left != left)
			rc = -EBUSY;
		else if (!d && !(d = rest(fs, dir, ckpt_step_ref(left))))
			rc = -ESTALE;
	}
	if (!rc) {
		fd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
		d->replaces = fd >= 0 && !fstatat(fd, left->name, &st, AT_SYMLINK_NOFOLLOW);
		if (fd >= 0)
			ckpt_sys.close(fd);
		rc = draft_publish_left(fs, d);
	}
	if (!rc)
		folder_touch(fs, dir);
	draft_unref(fs, d);
	node_unref(fs, dir);
	return rc;
}
