#include "fs/restage.h"

#include "core/array/data.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/save/convert.h"
#include "core/save/looker.h"
#include "fs/complete.h"
#include "fs/draft.h"
#include "fs/folder.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

// The next folder above n, or n itself, that may have a step's name: a reference. NULL: none, or n is in a step.
static struct node *next_candidate(struct ckpt_fs *fs, struct node *n)
{
	static const struct ckpt_place anywhere = {.root = true};
	struct node *found = NULL;

	names_read_lock(fs);
	for (; n->names && !node_is_top(n) && !found; n = n->names->parent)
		if (ckpt_name_is_step(n->names->text, &anywhere))
			found = n;
	if (found)
		node_ref(fs, found);
	names_unlock(fs);
	return found;
}

static bool had_no_arrays(struct ckpt_fs *fs, struct node *folder)
{
	CLEANUP_FD int fd = node_open(fs, folder, O_RDONLY | O_DIRECTORY);

	return fd >= 0 && fgetxattr(fd, CKPT_NO_ARRAYS_XATTR, NULL, 0) > 0;
}

// Whether it has a step's name where it is now.
static bool has_form(struct ckpt_fs *fs, const struct node *folder)
{
	char name[CKPT_NAME_MAX + 1];
	struct node *above;
	bool is = false;

	if (folder_above(fs, folder, name, &above))
		return false;
	is = !names_step(fs, above, name, &is) && is;
	node_unref(fs, above);
	return is;
}

// The folder that is to be staged again, a reference; NULL: none.
static struct node *folder_of(struct ckpt_fs *fs, struct node *dir)
{
	struct node *folder = next_candidate(fs, dir);

	while (folder && !had_no_arrays(fs, folder)) {
		struct node *above;
		char name[CKPT_NAME_MAX + 1];
		int rc = folder_above(fs, folder, name, &above);

		node_unref(fs, folder);
		folder = rc ? NULL : next_candidate(fs, above);
		if (!rc)
			node_unref(fs, above);
	}
	if (folder && !has_form(fs, folder)) {
		node_unref(fs, folder);
		folder = NULL;
	}
	return folder;
}

bool restage_is_due(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct node *folder;

	if (fs->mount->readonly || fs->store->settings.steps_at || dir->kind != NODE_FILES ||
	    (!ckpt_name_is_file_step(name) && !ckpt_data_is_known(name)))
		return false;
	folder = folder_of(fs, dir);
	node_unref(fs, folder);
	return folder != NULL;
}

static int stage_at(struct ckpt_fs *fs, struct node *folder, struct node *above, int dirfd, const char *name)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step;
	int rc = folder_id_of(fs, above, true, id);

	if (!rc)
		rc = draft_wait_below(fs, folder, COMPLETE_LOCKED_NS);
	if (!rc)
		rc = ckpt_restage_prepare(fs->store, dirfd, id, name, &step);
	if (rc)
		return rc;
	rc = complete_convert(fs, folder, above, dirfd, name, step);
	ckpt_step_unref(step);
	if (!rc)
		rc = ckpt_convert_sync(fs->store, dirfd); // else a crash may leave the plain folder
	ckpt_job_wake(__atomic_load_n(&ckpt_looker_of(fs->store)->job, __ATOMIC_ACQUIRE));
	return rc;
}

// It holds steps, or a file of it has a name outside: that will not change by itself.
static bool is_for_good(int rc)
{
	return !rc || rc == -ENOTEMPTY || rc == -EMLINK || rc == -E2BIG;
}

static void stage(struct ckpt_fs *fs, struct node *folder)
{
	char name[CKPT_NAME_MAX + 1];
	CLEANUP_FD int dirfd = -1, fd = -1;
	struct node *above;
	int rc = folder_above(fs, folder, name, &above);

	if (rc)
		return;
	dirfd = node_open(fs, above, O_RDONLY | O_DIRECTORY);
	fd = node_open(fs, folder, O_RDONLY | O_DIRECTORY);
	rc = dirfd < 0 ? dirfd : fd < 0 ? fd : stage_at(fs, folder, above, dirfd, name);
	if (fd >= 0 && is_for_good(rc))
		ckpt_restage_unmark(fd);
	if (!rc)
		folder_touch(fs, above);
	node_unref(fs, above);
}

// call.flags of a rename are its own: which folder it is, call.looks says.
static void run_restaged(struct call *c)
{
	struct node *folder = folder_of(c->fs, c->looks ? c->other : c->node);
	struct call again = *c;

	if (folder)
		stage(c->fs, folder);
	node_unref(c->fs, folder);
	again.run = c->then;
	again.looks = 0;
	call_run(&again);
}

void restage_then(struct call *c, bool other)
{
	struct call then = *c;

	then.step = then.other_step = NULL;
	then.then = c->run;
	then.run = run_restaged;
	then.settled = true;
	then.looks = other;
	then.waits_for_clients = true;
	call_detach(&then);
}
