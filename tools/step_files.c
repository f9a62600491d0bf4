#include "tools/step_files.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/save/share.h"
#include "tools/output.h"

#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <sys/stat.h>

struct linked { // a file that has several names, by its first
	uint64_t ino;
	char path[];
};

struct walk {
	struct ckpt_step_files *f;
	int to;
	void *links;    // of tsearch(3)
	uint64_t shown; // by the bar
};

static int by_ino(const void *a, const void *b)
{
	uint64_t x = ((const struct linked *)a)->ino, y = ((const struct linked *)b)->ino;

	return (x > y) - (x < y);
}

// Leftovers of an earlier copy under this name are in the way.
static int clear(const struct walk *w, const char *path)
{
	return w->f->resumes && unlinkat(w->to, path, 0) && errno != ENOENT ? -errno : 0;
}

// 1: linked to its first name.
static int link_again(struct walk *w, const struct ckpt_entry *e, const char *path)
{
	struct linked *l = ckpt_need(malloc(sizeof(*l) + strlen(path) + 1));
	struct linked **found;
	int rc;

	l->ino = e->ino;
	strcpy(l->path, path);
	found = ckpt_need(tsearch(l, &w->links, by_ino));
	if (*found == l)
		return 0;
	free(l);
	rc = clear(w, path);
	if (rc)
		return rc;
	return linkat(w->to, (*found)->path, w->to, path, 0) ? -errno : 1;
}

// Of a file in packs: a piece of it is there.
static bool copied_piece(void *arg, uint64_t bytes)
{
	struct walk *w = arg;

	w->shown += bytes;
	if (w->f->progress)
		w->f->progress(w->shown);
	return !w->f->stop || !*w->f->stop;
}

static bool is_whole(const struct walk *w, const struct ckpt_entry *e, const char *path)
{
	struct stat st;

	return w->f->resumes && !fstatat(w->to, path, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == e->bytes && (st.st_mode & 07777) == e->mode && st.st_mtim.tv_sec == e->mtime_s &&
	       st.st_mtim.tv_nsec == (long)e->mtime_ns;
}

// The attributes are set once more: so its time of change is of this attempt, and not of the one that was interrupted (stage.h).
// A file that may not be opened is copied again.
static bool keep(const struct walk *w, const struct ckpt_entry *e, const char *path)
{
	CLEANUP_FD int fd = is_whole(w, e, path) ? ckpt_sys.open(w->to, path, O_RDONLY, 0) : -1;

	return fd >= 0 && !ckpt_share_attributes(w->f->step, w->f->m, e->index, fd);
}

static int copy_file(struct walk *w, const struct ckpt_entry *e, const char *path)
{
	const struct ckpt_share_progress progress = {.go_on = copied_piece, .arg = w};
	struct ckpt_step_files *f = w->f;
	int rc = e->nlink > 1 ? link_again(w, e, path) : 0;

	if (rc)
		return MIN(rc, 0);
	if (!keep(w, e, path)) {
		rc = clear(w, path);
		if (!rc)
			rc = ckpt_share_copy_entry(f->step, f->m, e->index, w->to, path, &progress);
		f->copied_bytes += rc ? 0 : e->bytes;
	}
	f->files++;
	f->bytes += e->bytes;
	w->shown = f->bytes;
	if (f->progress)
		f->progress(w->shown);
	return rc;
}

static int copy_symlink(struct walk *w, const struct ckpt_entry *e, const char *path)
{
	struct timespec times[2] = {{0, UTIME_OMIT}, {e->mtime_s, e->mtime_ns}};
	int rc = clear(w, path);

	if (!rc)
		rc = ckpt_sys.symlink(e->target, w->to, path);
	if (!rc && geteuid() == 0 && fchownat(w->to, path, e->uid, e->gid, AT_SYMLINK_NOFOLLOW))
		rc = -errno;
	return rc ? rc : utimensat(w->to, path, times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int make_dir(struct walk *w, const char *path)
{
	int rc = ckpt_sys.mkdir(w->to, path, 0700);

	if (rc == -EEXIST && w->f->resumes)
		return fchmodat(w->to, path, 0700, 0) ? -errno : 0;
	return rc;
}

static int set_dir(struct walk *w, const struct ckpt_entry *e, const char *path)
{
	struct timespec times[2] = {{0, UTIME_OMIT}, {e->mtime_s, e->mtime_ns}};
	CLEANUP_FD int fd = ckpt_sys.open(w->to, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0);
	const char *name;
	const void *value;
	size_t len;
	int rc = MIN(fd, 0);

	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(w->f->m, e, i, &name, &value, &len); i++)
		if (strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS)))
			rc = ckpt_sys.fsetxattr(fd, name, value, len, 0);
	if (!rc && geteuid() == 0 && fchown(fd, e->uid, e->gid))
		rc = -errno;
	if (!rc && fchmod(fd, e->mode))
		rc = -errno;
	return !rc && futimens(fd, times) ? -errno : rc;
}

// Parents come before their children; directories get their modes and times last, the deepest first.
static int copy_entries(struct walk *w, char path[PATH_MAX])
{
	uint32_t count = ckpt_manifest_count(w->f->m);
	struct ckpt_entry e;
	int rc = 0;

	for (uint32_t i = 1; i < count && !rc; i++) {
		if (w->f->stop && *w->f->stop)
			return -EINTR;
		if (ckpt_manifest_in_conflict(w->f->m, i)) // it is in no listing either
			continue;
		ckpt_manifest_entry(w->f->m, i, &e);
		rc = MIN(ckpt_manifest_path(w->f->m, i, path, PATH_MAX), 0);
		if (!rc)
			rc = e.type == CKPT_ENTRY_DIR       ? make_dir(w, path)
			     : e.type == CKPT_ENTRY_SYMLINK ? copy_symlink(w, &e, path)
							    : copy_file(w, &e, path);
	}
	for (uint32_t i = count; i-- > 0 && !rc;) {
		ckpt_manifest_entry(w->f->m, i, &e);
		if (e.type == CKPT_ENTRY_DIR && !ckpt_manifest_in_conflict(w->f->m, i) &&
		    (rc = MIN(ckpt_manifest_path(w->f->m, i, path, PATH_MAX), 0)) == 0)
			rc = set_dir(w, &e, path);
	}
	return rc;
}

int ckpt_step_files_copy(struct ckpt_step_files *f, int dirfd)
{
	struct walk w = {.f = f, .to = dirfd};
	char path[PATH_MAX] = "";
	int rc = copy_entries(&w, path);

	if (rc)
		f->blamed = ckpt_text("%s", path);
	tdestroy(w.links, free);
	return rc;
}
