#include "core/save/scan.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/save/copy.h"
#include "core/save/share.h"
#include "core/save/share_chunks.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/torn.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>

struct walk {
	struct ckpt_scan *scan;
	char path[PATH_MAX]; // of the directory being walked, "" for the root; then of the entry
	size_t path_len;
	uint64_t dir_ino;          // of the directory being walked
	struct ckpt_manifest *was; // that a reopened step began with, if it has conflict copies; else NULL
	int depth;
};

static int64_t time_ns(struct statx_timestamp t)
{
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int remember(struct ckpt_unsynced **list, size_t *count, size_t *cap, const char *path, uint64_t ino,
		    bool shared)
{
	int rc = ckpt_grow((void **)list, cap, *count + 1, sizeof(**list));
	char *copy = rc ? NULL : strdup(path);

	if (!copy)
		return -ENOMEM;
	(*list)[(*count)++] = (struct ckpt_unsynced){.path = copy, .ino = ino, .shared = shared};
	return 0;
}

// --- Extended attributes ----------------------------------------------------------------------------------------------

static bool xattr_is_the_users(const char *name)
{
	return !strncmp(name, "user.", 5) && strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS));
}

int ckpt_scan_xattrs(struct ckpt_manifest_writer *w, uint32_t handle, int fd)
{
	char quick[1024];
	CLEANUP_FREE char *names = NULL;
	CLEANUP_FREE char *value = NULL;
	ssize_t len = flistxattr(fd, quick, sizeof(quick));
	int rc = 0;

	if (len == 0 || (len < 0 && errno == EOPNOTSUPP))
		return 0;
	if (len < 0 && errno != ERANGE)
		return -errno;
	names = malloc(CKPT_XATTR_BYTES_MAX);
	value = malloc(CKPT_XATTR_BYTES_MAX);
	if (!names || !value)
		return -ENOMEM;
	len = flistxattr(fd, names, CKPT_XATTR_BYTES_MAX);
	if (len < 0)
		return errno == ERANGE ? -E2BIG : -errno;
	for (const char *name = names; name < names + len && !rc; name += strlen(name) + 1) {
		ssize_t n;

		if (!xattr_is_the_users(name))
			continue;
		n = fgetxattr(fd, name, value, CKPT_XATTR_BYTES_MAX);
		rc = n < 0 ? -errno : ckpt_manifest_writer_xattr(w, handle, name, value, (size_t)n);
	}
	return rc == -ERANGE ? -E2BIG : rc;
}

static int add_xattrs(struct ckpt_scan *scan, uint32_t handle, int fd)
{
	int rc = ckpt_scan_xattrs(scan->manifest, handle, fd);

	scan->blamed_xattrs |= rc == -E2BIG;
	return rc;
}

// --- Entries ----------------------------------------------------------------------------------------------------------

// One that has its name still is in no listing afterwards either.
static bool is_conflict(const struct walk *w)
{
	struct ckpt_entry e = {0};
	uint32_t index;

	if (w->was && !ckpt_manifest_lookup(w->was, w->path, &index))
		ckpt_manifest_entry(w->was, index, &e);
	return e.conflict;
}

static void fill(const struct walk *w, struct ckpt_entry *e, const char *name, const struct statx *stx, bool shared)
{
	*e = (struct ckpt_entry){
		.name = name,
		.mode = stx->stx_mode & 07777,
		.uid = stx->stx_uid,
		.gid = stx->stx_gid,
		.nlink = stx->stx_nlink,
		.ino = ckpt_share_ino(w->scan->step, w->path, w->dir_ino, stx, shared),
		.mtime_s = stx->stx_mtime.tv_sec,
		.mtime_ns = stx->stx_mtime.tv_nsec,
		.conflict = is_conflict(w),
	};
}

static int stat_fd(int fd, struct statx *stx)
{
	return statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, stx) ? -errno : 0;
}

static bool is_leftover(const struct ckpt_scan *scan, uint64_t ino)
{
	for (size_t i = 0; i < scan->leftover_count; i++)
		if (scan->leftovers[i].ino == ino)
			return true;
	return false;
}

static bool is_late(const struct ckpt_scan *scan, uint64_t ino)
{
	for (size_t i = 0; i < scan->late_count; i++)
		if (scan->late[i] == ino)
			return true;
	return false;
}

// Who has just closed the file may keep it for a moment more: in the daemon between the end of the handle and that of
// its descriptor, in the kernel until the last reference is put.
static int take_lease(const struct ckpt_scan *scan, int fd)
{
	int rc;

	while ((rc = ckpt_sys.lease(fd)) == -EAGAIN && ckpt_sys.mono_ns() < scan->lease_until_ns)
		ckpt_sys.sleep_ns(1000000);
	return rc;
}

// A file of an earlier attempt that ends early: the attempt was interrupted in it. A format that cannot be read says nothing.
static bool is_cut_off(const struct walk *w, int fd, const char *name, const struct statx *stx)
{
	int64_t attempt_ns = ckpt_stage_attempt_ns(w->scan->step);

	return attempt_ns && time_ns(stx->stx_ctime) < attempt_ns && ckpt_format_check(fd, name) == -EINVAL;
}

// The number is that of the file that stands for it, which is no raw file of the version.
static int add_chunks(struct walk *w, const struct ckpt_shared_chunks *of, const char *name, uint32_t parent,
		      const struct statx *stx)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	struct ckpt_seal seal;
	struct ckpt_entry e;
	uint32_t handle;
	int rc = ckpt_amending_raw_name(raw);

	ckpt_manifest_entry(of->m, of->index, &e);
	ckpt_attributes_apply(of->step, of->m, &e);
	e.name = name;
	e.ino = ckpt_store_ino(stx);
	e.nlink = 1;
	e.conflict = false;
	e.raw_path = raw;
	if (!rc)
		rc = ckpt_manifest_writer_session(w->scan->manifest, w->scan->step->session, &e.session);
	if (!rc)
		rc = ckpt_manifest_writer_add(w->scan->manifest, parent, &e, &handle);
	if (!rc)
		rc = ckpt_attributes_write(of->step, of->m, &e, w->scan->manifest, handle);
	if (!rc && !ckpt_manifest_seal(of->m, of->index, &seal))
		rc = -ESTALE;
	return rc ? rc : ckpt_manifest_writer_copy_seal(w->scan->manifest, handle, of->m, &seal);
}

// -ENODATA: it is an ordinary file.
static int add_shared_chunks(struct walk *w, int fd, const char *name, uint32_t parent, const struct statx *stx)
{
	struct ckpt_shared_chunks of;
	int rc = stx->stx_size ? -ENODATA : ckpt_share_chunks_find(w->scan->step->store, fd, &w->scan->packs, &of);

	if (rc)
		return rc;
	rc = add_chunks(w, &of, name, parent, stx);
	ckpt_shared_chunks_done(&of);
	return rc;
}

static int add_file(struct walk *w, int dirfd, const char *name, uint32_t parent)
{
	struct ckpt_scan *scan = w->scan;
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	bool copied = false, shared;
	struct ckpt_entry e;
	struct statx stx;
	uint32_t handle;
	int rc = fd < 0 ? fd : stat_fd(fd, &stx);

	if (rc)
		return rc;
	rc = add_shared_chunks(w, fd, name, parent, &stx);
	if (rc != -ENODATA)
		return rc;
	if (is_late(scan, ckpt_store_ino(&stx)))
		return ckpt_amending_expect(scan->step, w->path, ckpt_store_ino(&stx), fd);
	if (ckpt_torn_is(fd, &stx) || is_cut_off(w, fd, name, &stx))
		return remember(&scan->left_out, &scan->left_out_count, &scan->left_out_cap, w->path, 0, false);
	if (is_leftover(scan, ckpt_store_ino(&stx))) {
		int copy;

		if (ckpt_stage_has_failed(scan->step, ckpt_store_ino(&stx)))
			return -EIO; // a copy would have what is in memory, or what is on disk: nobody knows
		rc = ckpt_copy_make(scan->step, w->path, fd, &stx, &copy);
		if (rc)
			return rc;
		ckpt_sys.close(TAKE_FD(fd));
		fd = copy;
		copied = true;
	}
	rc = take_lease(scan, fd);
	if (!rc)
		rc = stat_fd(fd, &stx);
	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc;
	shared = !copied && ckpt_share_is(dirfd, name, &stx);
	fill(w, &e, name, &stx, shared);
	e.type = CKPT_ENTRY_FILE;
	e.bytes = stx.stx_size;
	e.content = e.bytes ? CKPT_CONTENT_RAW : CKPT_CONTENT_NONE;
	if (ckpt_stage_has_failed(scan->step, e.ino))
		return -EIO;
	if (!copied && !ckpt_stage_is_clean(scan->step, e.ino, time_ns(stx.stx_ctime))) {
		rc = remember(&scan->files, &scan->file_count, &scan->file_cap, w->path, e.ino, shared);
		scan->unsynced_bytes += shared ? 0 : e.bytes;
	}
	if (!rc)
		rc = ckpt_manifest_writer_add(scan->manifest, parent, &e, &handle);
	if (!rc && shared)
		rc = ckpt_share_seal(scan->step, w->path, &stx, scan->manifest, handle);
	return rc ? rc : add_xattrs(scan, handle, fd);
}

static int add_symlink(struct walk *w, int dirfd, const char *name, uint32_t parent, const struct statx *stx)
{
	char target[PATH_MAX];
	struct ckpt_entry e;
	uint32_t handle;
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	fill(w, &e, name, stx, false);
	e.type = CKPT_ENTRY_SYMLINK;
	e.bytes = (uint64_t)n;
	e.target = target;
	return ckpt_manifest_writer_add(w->scan->manifest, parent, &e, &handle);
}

static int walk_dir(struct walk *w, int dirfd, uint32_t handle, uint64_t ino);

static int add_dir(struct walk *w, int dirfd, const char *name, uint32_t parent)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	struct ckpt_entry e;
	struct statx stx;
	uint32_t handle;
	int rc = fd < 0 ? fd : stat_fd(fd, &stx);

	if (rc)
		return rc;
	fill(w, &e, name, &stx, false);
	e.type = CKPT_ENTRY_DIR;
	rc = ckpt_manifest_writer_add(w->scan->manifest, parent, &e, &handle);
	if (!rc)
		rc = add_xattrs(w->scan, handle, fd);
	return rc ? rc : walk_dir(w, TAKE_FD(fd), handle, e.ino);
}

static int add_entry(struct walk *w, int dirfd, const char *name, uint32_t parent)
{
	struct statx stx;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return -errno;
	if (S_ISREG(stx.stx_mode))
		return add_file(w, dirfd, name, parent);
	if (S_ISLNK(stx.stx_mode))
		return add_symlink(w, dirfd, name, parent, &stx);
	if (S_ISDIR(stx.stx_mode))
		return add_dir(w, dirfd, name, parent);
	return -EINVAL; // the mount makes no devices, FIFOs or sockets: somebody was in the store
}

static int visit(struct walk *w, int dirfd, const char *name, uint32_t parent)
{
	size_t len = w->path_len, name_len = strlen(name);
	int rc;

	if (len + 1 + name_len >= sizeof(w->path))
		return -ENAMETOOLONG;
	w->path_len += (size_t)sprintf(w->path + len, len ? "/%s" : "%s", name);
	rc = ckpt_name_check(name, name_len);
	if (!rc)
		rc = add_entry(w, dirfd, name, parent);
	if (rc && !w->scan->blamed)
		w->scan->blamed = strdup(w->path);
	w->path_len = len;
	w->path[len] = '\0';
	__atomic_store_n(&ckpt_staging_of(w->scan->step)->progress_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	return rc;
}

// dirfd is taken.
static int walk_dir(struct walk *w, int dirfd, uint32_t handle, uint64_t ino)
{
	uint64_t above = w->dir_ino;
	DIR *dir = fdopendir(dirfd);
	struct dirent *d;
	int rc;

	if (!dir) {
		rc = -errno;
		close(dirfd);
		return rc;
	}
	rc = w->depth >= CKPT_DEPTH_MAX ? -E2BIG : 0;
	if (!rc)
		rc = remember(&w->scan->dirs, &w->scan->dir_count, &w->scan->dir_cap, w->path_len ? w->path : ".", 0,
			      false);
	w->depth++;
	w->dir_ino = ino;
	while (!rc) {
		rc = ckpt_sys.readdir(dir, &d);
		if (rc || !d)
			break;
		rc = visit(w, dirfd, d->d_name, handle);
	}
	w->depth--;
	w->dir_ino = above;
	closedir(dir);
	return rc;
}

static int run(struct walk *w)
{
	struct ckpt_scan *scan = w->scan;
	struct ckpt_entry root;
	uint32_t handle, session;
	int fd, rc = ckpt_manifest_writer_new(&scan->manifest);

	if (!rc)
		rc = ckpt_manifest_writer_session(scan->manifest, scan->step->session, &session);
	if (rc)
		return rc;
	fd = ckpt_sys.open(scan->step->dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	rc = stat_fd(fd, &scan->root);
	fill(w, &root, "", &scan->root, false);
	root.type = CKPT_ENTRY_DIR;
	if (!rc)
		rc = ckpt_manifest_writer_add(scan->manifest, 0, &root, &handle);
	if (!rc)
		rc = add_xattrs(scan, handle, fd);
	if (rc) {
		ckpt_sys.close(fd);
		return rc;
	}
	return walk_dir(w, fd, handle, root.ino);
}

int ckpt_scan_run(struct ckpt_scan *scan)
{
	CLEANUP_FREE struct walk *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	w->scan = scan;
	scan->packs.store = scan->step->store;
	rc = ckpt_reopen_conflicts(scan->step, &w->was);
	if (!rc)
		rc = run(w);
	ckpt_manifest_unref(w->was);
	return rc;
}

static void free_list(struct ckpt_unsynced *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(list[i].path);
	free(list);
}

void ckpt_scan_done(struct ckpt_scan *scan)
{
	ckpt_manifest_writer_free(scan->manifest);
	ckpt_pack_hold_done(&scan->packs);
	free_list(scan->files, scan->file_count);
	free_list(scan->dirs, scan->dir_count);
	free_list(scan->left_out, scan->left_out_count);
	free(scan->blamed);
}
