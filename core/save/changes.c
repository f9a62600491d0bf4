#include "core/save/changes.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/profile/format.h"
#include "core/save/share.h"
#include "core/step/reopened.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

struct look {
	struct ckpt_step *step;
	struct ckpt_manifest *m; // of the version before
	struct ckpt_changes *changes;
	bool kept; // some file with array data is as before
};

static void name_path(struct ckpt_changes *changes, const char *path)
{
	snprintf(changes->path, sizeof(changes->path), "%.500s", path);
}

// --- Files of the version -----------------------------------------------------------------------------------------------

// The same inode, or a copy that was made for its attributes: then it has the size and the time of before.
static bool is_as_before(const struct look *l, const struct ckpt_entry *e, const struct stat *now)
{
	char raw[CKPT_RAW_PATH_MAX];
	struct stat before;

	if (!S_ISREG(now->st_mode))
		return false;
	if (!ckpt_step_raw_path(ckpt_reopen_from(l->step), l->m, e->index, raw, sizeof(raw)) &&
	    !fstatat(l->step->store->sessions_fd, raw, &before, AT_SYMLINK_NOFOLLOW) && before.st_ino == now->st_ino)
		return true;
	return (uint64_t)now->st_size == e->bytes && now->st_mtim.tv_sec == e->mtime_s &&
	       (uint32_t)now->st_mtim.tv_nsec == e->mtime_ns;
}

// Of a file whose bytes are in packs by now, the one that is there in its place says it.
static int is_array_data(const struct look *l, uint32_t index, const char *path)
{
	CLEANUP_FD int fd = -1;
	int rc = ckpt_step_open_raw(ckpt_reopen_from(l->step), l->m, index, &fd);

	if (rc && rc != -EIO)
		return rc;
	rc = rc ? ckpt_data_is(l->step->dirfd, path) : ckpt_data_is_open(fd, l->step->dirfd, path);
	return rc == -ENOENT ? 0 : rc;
}

static int look_at_entry(struct look *l, uint32_t index)
{
	char path[PATH_MAX];
	struct ckpt_entry e;
	struct stat now;
	bool same;
	int rc;

	ckpt_manifest_entry(l->m, index, &e);
	if (e.type != CKPT_ENTRY_FILE || e.content == CKPT_CONTENT_NONE)
		return 0;
	rc = ckpt_manifest_path(l->m, index, path, sizeof(path));
	if (rc < 0)
		return rc;
	if (fstatat(l->step->dirfd, path, &now, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno; // removed, or it has another name
	same = is_as_before(l, &e, &now);
	if (same ? l->kept : l->changes->rewritten)
		return 0; // known without it
	rc = is_array_data(l, index, path);
	if (rc <= 0)
		return rc;
	if (same)
		name_path(l->changes, path);
	l->kept |= same;
	l->changes->rewritten |= !same;
	return 0;
}

// --- Files that were written since ----------------------------------------------------------------------------------------

static int look_at_file(void *arg, int dirfd, const char *name, const struct statx *stx)
{
	struct look *l = arg;
	CLEANUP_FD int fd = -1;
	int rc;

	if (!S_ISREG(stx->stx_mode) || !stx->stx_size)
		return 0;
	fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	if (ckpt_share_is_marked(fd))
		return 0; // its bytes are of the version
	rc = ckpt_format_check(fd, name);
	if (rc != -EINVAL)
		return rc == -EAGAIN ? 0 : rc;
	l->changes->cut_off = true;
	name_path(l->changes, name);
	return 1;
}

int ckpt_changes_look(struct ckpt_step *step, struct ckpt_changes *ret_changes)
{
	struct look l = {.step = step, .changes = ret_changes};
	uint32_t count;
	int rc = ckpt_reopen_manifest(step, &l.m);

	*ret_changes = (struct ckpt_changes){0};
	if (rc)
		return rc;
	count = ckpt_manifest_count(l.m);
	for (uint32_t i = 1; i < count && !rc; i++)
		rc = look_at_entry(&l, i);
	if (!rc)
		rc = ckpt_walk(step->store->sessions_fd, step->session, look_at_file, &l);
	ret_changes->all_anew = ret_changes->rewritten && !l.kept;
	ckpt_manifest_unref(l.m);
	return MIN(rc, 0);
}
