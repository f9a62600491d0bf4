#include "core/save/share.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/record/manifest.h"
#include "core/save/clone.h"
#include "core/step/attributes.h"
#include "core/step/removal.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>

#define SHARED_XATTR CKPT_OWN_XATTRS "shared"

// --- One file -----------------------------------------------------------------------------------------------------------

bool ckpt_share_is(int dirfd, const char *name, const struct statx *stx)
{
	char path[32 + CKPT_NAME_MAX + 1];

	if (!S_ISREG(stx->stx_mode) || stx->stx_nlink < 2)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dirfd, name);
	return lgetxattr(path, SHARED_XATTR, NULL, 0) >= 0;
}

bool ckpt_share_is_marked(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); // fgetxattr(2) wants one that reads
	return getxattr(path, SHARED_XATTR, NULL, 0) >= 0;
}

int ckpt_share_mark(int fd)
{
	int rc = ckpt_sys.fsetxattr(fd, SHARED_XATTR, "", 0, XATTR_CREATE);

	return rc == -EEXIST ? 0 : rc;
}

static int make_copy(struct ckpt_store *s, int from, const struct statx *stx, const char *name, bool empty,
		     bool durable)
{
	CLEANUP_FD int to = ckpt_sys.open(s->trash_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
	int rc = to < 0  ? to
		 : empty ? ckpt_clone_attributes(from, to, stx, false)
			 : ckpt_clone_file(from, to, stx, false);

	return rc || !durable ? rc : ckpt_sys.fsync(to);
}

int ckpt_share_copy_make(struct ckpt_store *s, int dirfd, const char *name, bool empty, bool durable,
			 struct ckpt_share_copy *ret_copy)
{
	CLEANUP_FD int from = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	struct ckpt_share_copy copy = {0};
	struct statx stx;
	uint64_t salt;
	int rc = from < 0 ? from : ckpt_sys.random(&salt, sizeof(salt));

	if (!rc && statx(from, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
		rc = -errno;
	if (rc)
		return rc;
	if (S_ISREG(stx.stx_mode) && ckpt_share_is_marked(from)) {
		copy.of = ckpt_store_ino(&stx);
		snprintf(copy.aside, sizeof(copy.aside), CKPT_TRASH_COPY "%016llx-up", (unsigned long long)salt);
		rc = make_copy(s, from, &stx, copy.aside, empty, durable);
		if (rc)
			ckpt_sys.unlink(s->trash_fd, copy.aside, 0);
	}
	*ret_copy = copy;
	return rc;
}

static bool has_name(uint64_t file, int dirfd, const char *name)
{
	struct statx stx;

	return !statx(dirfd, name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx) && ckpt_store_ino(&stx) == file;
}

// An exchange, and not a rename, because it says afterwards what had the name.
static int exchange(struct ckpt_store *s, const struct ckpt_share_copy *copy, int dirfd, const char *name)
{
	int rc = ckpt_sys.rename(s->trash_fd, copy->aside, dirfd, name, RENAME_EXCHANGE);

	if (rc == -EINVAL) // the disk's filesystem cannot do it
		return ckpt_sys.rename(s->trash_fd, copy->aside, dirfd, name, 0);
	if (rc || has_name(copy->of, s->trash_fd, copy->aside))
		return rc == -ENOENT ? -ESTALE : rc;
	(void)ckpt_sys.rename(s->trash_fd, copy->aside, dirfd, name, RENAME_EXCHANGE);
	return -ESTALE;
}

int ckpt_share_copy_place(struct ckpt_store *s, const struct ckpt_share_copy *copy, int dirfd, const char *name)
{
	int rc = has_name(copy->of, dirfd, name) ? exchange(s, copy, dirfd, name) : -ESTALE;

	ckpt_sys.unlink(s->trash_fd, copy->aside, 0); // the copy, or what it took the place of
	return rc;
}

// --- Numbers ------------------------------------------------------------------------------------------------------------

// Not every number is that of the raw file: it may have been shared in that version already, or replaced by an amend.
static bool is_raw_of(struct ckpt_step *base, struct ckpt_manifest *m, const struct ckpt_entry *e, uint64_t own)
{
	CLEANUP_FD int fd = -1;
	struct statx stx;

	return !ckpt_step_open_raw(base, m, e->index, &fd) && !statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) &&
	       ckpt_store_ino(&stx) == own;
}

struct ckpt_number {
	uint64_t own, before, first; // the last: in the version that the mount knew first
	int64_t born_ns;             // a number comes back on disk as another file
};

static int64_t born_ns(const struct statx *stx)
{
	return stx->stx_btime.tv_sec * INT64_C(1000000000) + stx->stx_btime.tv_nsec;
}

static int by_own(const void *a, const void *b)
{
	const struct ckpt_number *x = a, *y = b;

	return (x->own > y->own) - (x->own < y->own);
}

// Of a file that is not shared: it has several names, or its bytes were in packs.
static bool is_copy(struct ckpt_step *step, const char *path, const struct statx *stx, const struct ckpt_entry *e)
{
	return e->type == CKPT_ENTRY_FILE && ckpt_store_ino(stx) != e->ino && !ckpt_share_is(step->dirfd, path, stx);
}

static const struct ckpt_number *find_number(const struct ckpt_step *step, uint64_t own)
{
	struct ckpt_number key = {.own = own};

	return ckpt_sharing_of(step)->number_count ? bsearch(&key, ckpt_sharing_of(step)->numbers,
							     ckpt_sharing_of(step)->number_count, sizeof(key), by_own)
						   : NULL;
}

static uint64_t first_of(const struct ckpt_step *base, uint64_t number)
{
	const struct ckpt_number *n = find_number(base, number);

	return n ? n->first : number;
}

int ckpt_share_know(struct ckpt_step *step, struct ckpt_manifest *m)
{
	struct ckpt_sharing *shared = ckpt_sharing_of(step);
	uint32_t count = ckpt_manifest_count(m);
	size_t cap = 0;
	int rc = 0;

	for (uint32_t i = 1; i < count && !rc; i++) {
		char path[PATH_MAX];
		struct ckpt_entry e;
		struct statx stx;

		ckpt_manifest_entry(m, i, &e);
		if ((e.type != CKPT_ENTRY_DIR && e.type != CKPT_ENTRY_FILE) || ckpt_removal_has(step->base, m, i))
			continue;
		rc = MIN(ckpt_manifest_path(m, i, path, sizeof(path)), 0);
		if (!rc && statx(step->dirfd, path, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
			rc = -errno;
		if (rc || (e.type == CKPT_ENTRY_FILE && !is_copy(step, path, &stx, &e)))
			continue;
		rc = ckpt_grow((void **)&shared->numbers, &cap, shared->number_count + 1, sizeof(*shared->numbers));
		if (!rc)
			shared->numbers[shared->number_count++] = (struct ckpt_number){
				ckpt_store_ino(&stx), e.ino, first_of(step->base, e.ino), born_ns(&stx)};
	}
	if (shared->number_count)
		qsort(shared->numbers, shared->number_count, sizeof(*shared->numbers), by_own);
	return rc;
}

uint64_t ckpt_share_before(const struct ckpt_step *step, const struct statx *stx)
{
	const struct ckpt_number *n = find_number(step, ckpt_store_ino(stx));

	return n && n->born_ns == born_ns(stx) ? n->before : 0;
}

uint64_t ckpt_share_number_before(const struct ckpt_step *step, uint64_t own)
{
	const struct ckpt_number *n = find_number(step, own);

	return n ? n->before : 0;
}

bool ckpt_share_comes_from(const struct ckpt_step *step, const struct statx *stx, uint64_t number)
{
	const struct ckpt_number *n = find_number(step, ckpt_store_ino(stx));

	return n && n->born_ns == born_ns(stx) && (n->before == number || n->first == number);
}

// The number that the file at path has in the version that the step reopens; 0: there was another, or nothing.
static uint64_t file_before(struct ckpt_step *step, const char *path, uint64_t own)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e = {0};
	uint32_t index;
	bool is = false;

	if (ckpt_reopen_manifest(step, &m))
		return 0;
	if (!ckpt_manifest_lookup(m, path, &index)) {
		ckpt_manifest_entry(m, index, &e);
		is = e.type == CKPT_ENTRY_FILE && (e.ino == own || is_raw_of(ckpt_reopen_from(step), m, &e, own));
	}
	ckpt_manifest_unref(m);
	return is ? e.ino : 0;
}

// Of the name and the file behind it: the same file is another in another place, and another file in the same place.
static uint64_t number_of_name(uint64_t dir_ino, const char *name, uint64_t own)
{
	uint64_t h = (dir_ino ^ UINT64_C(0xcbf29ce484222325)) * UINT64_C(0x9e3779b97f4a7c15);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	h = (h ^ own) * UINT64_C(0x9e3779b97f4a7c15);
	h ^= h >> 32;
	return h > 1 ? h : 2;
}

uint64_t ckpt_share_ino(struct ckpt_step *step, const char *path, uint64_t dir_ino, const struct statx *stx,
			bool shared)
{
	uint64_t own = ckpt_store_ino(stx);
	bool dir = S_ISDIR(stx->stx_mode);
	const char *slash;

	if (step && ckpt_reopen_shares(step) && (dir || shared)) {
		uint64_t before = !dir    ? file_before(step, path, own)
				  : *path ? ckpt_share_before(step, stx)
					  : step->base->born.dir_ino;

		if (before)
			return before;
	}
	if (!shared)
		return own;
	slash = strrchr(path, '/');
	return number_of_name(dir_ino, slash ? slash + 1 : path, own);
}

int ckpt_share_seal(struct ckpt_step *step, const char *path, const struct statx *stx, struct ckpt_manifest_writer *w,
		    uint32_t handle)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct ckpt_seal seal;
	uint32_t index;
	int rc = 0;

	if (!ckpt_reopen_shares(step) || ckpt_reopen_manifest(step, &m))
		return 0;
	if (!ckpt_manifest_lookup(m, path, &index) && ckpt_manifest_seal(m, index, &seal)) {
		ckpt_manifest_entry(m, index, &e);
		if (e.bytes == stx->stx_size && is_raw_of(ckpt_reopen_from(step), m, &e, ckpt_store_ino(stx)))
			rc = ckpt_manifest_writer_copy_seal(w, handle, m, &seal);
	}
	ckpt_manifest_unref(m);
	return rc;
}

// --- A whole tree -------------------------------------------------------------------------------------------------------

struct tree {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	int dirfd;
};

static bool is_clients(const char *name)
{
	return !strncmp(name, "user.", 5) && strncmp(name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS));
}

// Removes those that the copy of a raw file has, and that were removed from the entry since.
static int remove_xattrs(const struct ckpt_xattrs *x, int fd)
{
	CLEANUP_FREE char *names = malloc(CKPT_XATTR_BYTES_MAX);
	ssize_t len = names ? flistxattr(fd, names, CKPT_XATTR_BYTES_MAX) : 0;

	if (!names)
		return -ENOMEM;
	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *name = names; name < names + len; name += strlen(name) + 1)
		if (is_clients(name) && !ckpt_xattrs_find(x, name) && fremovexattr(fd, name))
			return -errno;
	return 0;
}

static int set_xattrs(const struct ckpt_xattrs *x, int fd)
{
	int rc = 0;

	for (size_t i = 0; i < x->count && !rc; i++)
		if (is_clients(x->at[i].name))
			rc = ckpt_sys.fsetxattr(fd, x->at[i].name, x->at[i].value, x->at[i].len, 0);
	return rc;
}

static int set_attributes(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *entry, int fd)
{
	struct ckpt_entry e = *entry;
	struct timespec times[2];
	struct ckpt_xattrs x;
	int rc = ckpt_attributes_xattrs(step, m, entry, &x);

	if (rc)
		return rc;
	ckpt_attributes_apply(step, m, &e);
	times[0] = times[1] = (struct timespec){e.mtime_s, e.mtime_ns};
	rc = geteuid() == 0 && fchown(fd, e.uid, e.gid) ? -errno : 0;
	if (!rc && e.type == CKPT_ENTRY_FILE)
		rc = remove_xattrs(&x, fd);
	if (!rc)
		rc = set_xattrs(&x, fd);
	ckpt_xattrs_done(&x);
	if (!rc && fchmod(fd, e.mode))
		rc = -errno;
	return !rc && futimens(fd, times) ? -errno : rc;
}

// As it was written, whatever was changed of it since.
static int set_raw_attributes(const struct ckpt_manifest *m, const struct ckpt_entry *e, int fd)
{
	struct timespec times[2] = {{e->mtime_s, e->mtime_ns}, {e->mtime_s, e->mtime_ns}};
	uint32_t mode = e->mode;
	const void *value;
	const char *name;
	size_t len;
	int rc = 0;

	if (ckpt_attributes_raw(m, e, &mode, &times[1]))
		times[0] = times[1];
	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(m, e, i, &name, &value, &len); i++)
		if (is_clients(name))
			rc = ckpt_sys.fsetxattr(fd, name, value, len, 0);
	if (rc)
		return rc;
	if ((geteuid() == 0 && fchown(fd, e->uid, e->gid)) || fchmod(fd, mode) || futimens(fd, times))
		return -errno;
	return 0;
}

int ckpt_share_attributes(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int fd)
{
	struct ckpt_entry e;

	ckpt_manifest_entry(m, index, &e);
	return set_attributes(step, m, &e, fd);
}

// What has several names within the step has them here: they are one file, and so cannot be shared name by name.
static uint32_t first_link(const struct tree *t, const struct ckpt_entry *e)
{
	struct ckpt_entry other;

	for (uint32_t i = 1; i < e->index; i++) {
		ckpt_manifest_entry(t->m, i, &other);
		if (other.ino == e->ino && !ckpt_removal_has(t->step, t->m, i))
			return i;
	}
	return e->index;
}

static int clone_raw(int from, int to)
{
	struct statx stx;

	return statx(from, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : ckpt_clone_file(from, to, &stx, false);
}

static int copy_bytes(struct ckpt_file *from, int to, const struct ckpt_share_progress *progress)
{
	int fd = ckpt_file_fd(from);

	if (fd >= 0)
		return clone_raw(fd, to);
	return progress ? ckpt_file_copy(from, to, progress->kept, progress->go_on, progress->arg)
			: ckpt_file_copy(from, to, NULL, NULL, NULL);
}

int ckpt_share_copy_entry(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int dirfd, const char *name,
			  const struct ckpt_share_progress *progress)
{
	bool is_there = progress && progress->kept;
	CLEANUP_FD int to = ckpt_sys.open(dirfd, name, O_RDWR | (is_there ? 0 : O_CREAT | O_EXCL), 0600);
	struct ckpt_file *from;
	struct ckpt_entry e;
	int rc = to < 0 ? to : ckpt_file_open(step, m, index, &from);

	if (to < 0 && is_there)
		ckpt_sys.unlink(dirfd, name, 0);
	if (to < 0)
		return rc;
	ckpt_manifest_entry(m, index, &e);
	if (!rc) {
		rc = copy_bytes(from, to, progress);
		ckpt_file_close(from);
	}
	if (!rc)
		rc = progress && progress->raw ? set_raw_attributes(m, &e, to) : set_attributes(step, m, &e, to);
	if (!rc && progress && progress->durable)
		rc = ckpt_sys.fsync(to);
	if (rc)
		ckpt_sys.unlink(dirfd, name, 0);
	return rc;
}

// A second name for the raw file, which is open at fd. The mark comes first: a crash between the two leaves a mark too many,
// never a link too many.
static int link_raw(const struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int fd, int dirfd,
		    const char *name)
{
	char raw[CKPT_RAW_PATH_MAX];
	int rc = ckpt_share_mark(fd);

	if (!rc)
		rc = ckpt_step_raw_path(step, m, index, raw, sizeof(raw));
	return rc ? rc : ckpt_sys.link(step->store->sessions_fd, raw, dirfd, name);
}

// A disk allows only so many names of one file, and who is not root may not mark what he may not write. What is in packs has no
// raw file, or has lost it since it was opened.
static bool wants_copy(int rc)
{
	return rc == -EMLINK || rc == -EACCES || rc == -EPERM || rc == -EIO || rc == -ENOENT || ckpt_is_full(rc);
}

// Attributes that were changed since the raw file was written are not its own: it gets them, if it has no other place and nobody may
// have it open in one.
static int give_own(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e, int fd)
{
	struct stat st;

	if (!ckpt_attributes_differ(step, m, e))
		return 0;
	if (fstat(fd, &st))
		return -errno;
	return st.st_nlink > 1 || ckpt_share_is_marked(fd) ? -EMLINK : set_attributes(step, m, e, fd);
}

static int share_file(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e, int dirfd,
		      const char *name, bool copied)
{
	CLEANUP_FD int from = -1;
	int rc = copied ? -EMLINK : ckpt_step_open_raw(step, m, e->index, &from);

	if (!rc)
		rc = give_own(step, m, e, from);
	if (!rc)
		rc = link_raw(step, m, e->index, from, dirfd, name);
	if (wants_copy(rc))
		rc = ckpt_share_copy_entry(step, m, e->index, dirfd, name, NULL);
	return rc;
}

static int make_symlink(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *entry,
			int dirfd, const char *name)
{
	struct ckpt_entry e = *entry;
	struct timespec times[2];
	int rc = ckpt_sys.symlink(e.target, dirfd, name);

	ckpt_attributes_apply(step, m, &e);
	times[0] = times[1] = (struct timespec){e.mtime_s, e.mtime_ns};
	if (!rc && geteuid() == 0 && fchownat(dirfd, name, e.uid, e.gid, AT_SYMLINK_NOFOLLOW))
		rc = -errno;
	return !rc && utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW) ? -errno : rc;
}

int ckpt_share_entry(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int dirfd, const char *name)
{
	struct ckpt_entry e;

	ckpt_manifest_entry(m, index, &e);
	return e.type == CKPT_ENTRY_DIR       ? -EISDIR
	       : e.type == CKPT_ENTRY_SYMLINK ? make_symlink(step, m, &e, dirfd, name)
					      : share_file(step, m, &e, dirfd, name, false);
}

static int add_file(const struct tree *t, const struct ckpt_entry *e, int dirfd)
{
	uint32_t first = e->nlink > 1 ? first_link(t, e) : e->index;
	char path[PATH_MAX];
	int rc;

	if (first == e->index)
		return share_file(t->step, t->m, e, dirfd, e->name, e->nlink > 1);
	rc = ckpt_manifest_path(t->m, first, path, sizeof(path));
	return rc < 0 ? rc : ckpt_sys.link(t->dirfd, path, dirfd, e->name);
}

static int open_dir(const struct tree *t, uint32_t index)
{
	char path[PATH_MAX];
	int len = ckpt_manifest_path(t->m, index, path, sizeof(path));

	return len < 0 ? len : ckpt_sys.open(t->dirfd, len ? path : ".", O_RDONLY | O_DIRECTORY, 0);
}

static int add_children(const struct tree *t, const struct ckpt_entry *dir)
{
	CLEANUP_FD int dirfd = open_dir(t, dir->index);
	int rc = MIN(dirfd, 0);

	for (uint32_t i = 0; i < dir->child_count && !rc; i++) {
		struct ckpt_entry e;

		if (ckpt_removal_has(t->step, t->m, dir->child_first + i))
			continue;
		ckpt_manifest_entry(t->m, dir->child_first + i, &e);
		rc = e.type == CKPT_ENTRY_DIR    ? ckpt_sys.mkdir(dirfd, e.name, 0700)
		     : e.type == CKPT_ENTRY_FILE ? add_file(t, &e, dirfd)
						 : make_symlink(t->step, t->m, &e, dirfd, e.name);
	}
	return rc;
}

static int each_dir(const struct tree *t, bool attributes, uint32_t index)
{
	struct ckpt_entry e;

	ckpt_manifest_entry(t->m, index, &e);
	if (e.type != CKPT_ENTRY_DIR || ckpt_removal_has(t->step, t->m, index))
		return 0;
	if (!attributes)
		return add_children(t, &e);
	CLEANUP_FD int fd = open_dir(t, index);

	return fd < 0 ? fd : set_attributes(t->step, t->m, &e, fd);
}

// Modes, which may forbid it, and times, which all else would change, come last, those of the inner directories first.
int ckpt_share_tree(struct ckpt_step *step, struct ckpt_manifest *m, int dirfd)
{
	struct tree t = {.step = step, .m = m, .dirfd = dirfd};
	uint32_t count = ckpt_manifest_count(m);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++)
		rc = each_dir(&t, false, i);
	for (uint32_t i = count; i-- > 0 && !rc;)
		rc = each_dir(&t, true, i);
	return rc;
}

static void sharing_done(void *step)
{
	free(ckpt_sharing_of(step)->numbers);
}

struct ckpt_part ckpt_sharing_part = {.bytes = sizeof(struct ckpt_sharing), .done = sharing_done};
