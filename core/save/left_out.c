#include "core/save/left_out.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/step/torn.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

static int make_parents(int dirfd, const char *path)
{
	char above[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		int rc;

		snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
		rc = ckpt_sys.mkdir(dirfd, above, 0700);
		if (rc && rc != -EEXIST)
			return rc;
	}
	return 0;
}

// A second name changes the time that tells a file of the earlier attempt (scan.c). Should the commit fail, the mark tells it.
static void mark(int dirfd, const char *path)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, path, O_RDONLY | O_NONBLOCK, 0);

	if (fd >= 0)
		ckpt_torn_mark(fd);
}

static int link_all(const struct ckpt_scan *scan, struct ckpt_step *left)
{
	int rc = 0;

	for (size_t i = 0; i < scan->left_out_count && !rc; i++) {
		const char *path = scan->left_out[i].path;

		mark(scan->step->dirfd, path);
		rc = make_parents(left->dirfd, path);
		if (!rc)
			rc = ckpt_sys.link(scan->step->dirfd, path, left->dirfd, path);
	}
	return rc;
}

// It says the same of itself as the step whose files it has.
static int make_left(struct ckpt_step *step, struct ckpt_step **ret_left)
{
	const struct ckpt_staging *staged = ckpt_staging_of(step);
	struct ckpt_step_name name;
	struct ckpt_step *left;
	int rc = ckpt_step_new(step->store, &left);

	if (rc)
		return rc;
	ckpt_step_name(step, &name);
	snprintf(left->folder_id, sizeof(left->folder_id), "%s", name.folder_id);
	snprintf(left->name, sizeof(left->name), "%s", name.name);
	ckpt_step_set_state_locked(left, CKPT_STEP_LEFT); // nobody else knows it yet
	ckpt_staging_of(left)->began_ns = staged->began_ns;
	ckpt_staging_of(left)->uid = staged->uid;
	ckpt_staging_of(left)->gid = staged->gid;
	ckpt_staging_of(left)->pid = staged->pid;
	ckpt_staging_of(left)->by_client = staged->by_client;
	rc = ckpt_stage_make_session(left, 0700);
	if (rc)
		ckpt_step_unref(left);
	else
		*ret_left = left;
	return rc;
}

int ckpt_left_out_begin(const struct ckpt_scan *scan, struct ckpt_step **ret_left)
{
	struct ckpt_step *left;
	int rc = scan->left_out_count ? make_left(scan->step, &left) : 0;

	*ret_left = NULL;
	if (rc || !scan->left_out_count)
		return rc;
	rc = link_all(scan, left);
	if (!rc)
		rc = ckpt_stage_make_durable(left, true); // their names in the step go once that is committed
	if (rc)
		ckpt_left_out_drop(left);
	else
		*ret_left = left;
	return rc;
}

void ckpt_left_out_drop(struct ckpt_step *left)
{
	if (!left)
		return;
	ckpt_stage_drop_session(left);
	ckpt_step_unref(left);
}

static void tell(const struct ckpt_scan *scan, const struct ckpt_step *left)
{
	char more[32] = "";

	if (scan->left_out_count > 1)
		snprintf(more, sizeof(more), " and %zu more", scan->left_out_count - 1);
	ckpt_errlog_add(
		left->store->errlog, left->name, -EINTR,
		"see `ckptfs sessions`: copy what you need from .ckptfs/staged, then drop it with `ckptfs abort`",
		"%s%s: a killed process had not written it to its end; the step is without it",
		scan->left_out_count ? scan->left_out[0].path : "a file", more);
}

void ckpt_left_out_keep(const struct ckpt_scan *scan, struct ckpt_step *left)
{
	if (!left)
		return;
	for (size_t i = 0; i < scan->left_out_count; i++)
		(void)ckpt_sys.unlink(scan->step->dirfd, scan->left_out[i].path, 0);
	ckpt_lock_take(&left->store->lock);
	ckpt_step_leave_locked(left);
	ckpt_lock_drop(&left->store->lock);
	tell(scan, left);
	ckpt_step_unref(left);
}
