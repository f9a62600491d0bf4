#include "core/save/share_chunks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/step/errlog.h"
#include "core/step/staging.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define CHUNKS_XATTR CKPT_OWN_XATTRS "chunks"

// SESSION SHA256 PATH, a blank between them.
#define AT_SHA256 (CKPT_UUID_LEN + 1)
#define AT_PATH (AT_SHA256 + 2 * CKPT_SHA256_LEN + 1)
#define TEXT_MAX (AT_PATH + PATH_MAX)

// The file at path in the current version of step, if it is chunks of these bytes.
static bool is_there(const struct ckpt_manifest *m, const char *path, const char *sha256, uint32_t *ret_index)
{
	char hex[2 * CKPT_SHA256_LEN + 1];
	struct ckpt_entry e;
	struct ckpt_seal seal;

	if (ckpt_manifest_lookup(m, path, ret_index))
		return false;
	ckpt_manifest_entry(m, *ret_index, &e);
	if (e.type != CKPT_ENTRY_FILE || e.content != CKPT_CONTENT_CHUNKS || !ckpt_manifest_seal(m, *ret_index, &seal))
		return false;
	ckpt_hex(seal.sha256, CKPT_SHA256_LEN, hex);
	return !strcmp(hex, sha256);
}

static int write_text(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index, char text[TEXT_MAX])
{
	struct ckpt_manifest *now;
	struct ckpt_entry e;
	struct ckpt_seal seal;
	uint32_t there;
	int len, rc;

	ckpt_manifest_entry(m, index, &e);
	if (e.content != CKPT_CONTENT_CHUNKS || !ckpt_manifest_seal(m, index, &seal))
		return -EXDEV;
	snprintf(text, TEXT_MAX, "%s ", step->session);
	ckpt_hex(seal.sha256, CKPT_SHA256_LEN, text + AT_SHA256);
	len = ckpt_manifest_path(m, index, text + AT_PATH, PATH_MAX);
	rc = len < 0 ? len : ckpt_step_manifest(step, &now);
	if (rc)
		return rc;
	rc = is_there(now, text + AT_PATH, text + AT_SHA256, &there) ? 0 : -EXDEV;
	ckpt_manifest_unref(now);
	text[AT_PATH - 1] = ' ';
	return rc;
}

// The mount may be another user's than root's, who makes the file.
static int give_to_owner(int fd, int dirfd)
{
	struct stat st, is;

	if (fstat(dirfd, &st) || fstat(fd, &is))
		return -errno;
	return st.st_uid == is.st_uid || !fchown(fd, st.st_uid, st.st_gid) ? 0 : -errno;
}

int ckpt_share_chunks(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int dirfd, const char *path)
{
	CLEANUP_FREE char *text = malloc(TEXT_MAX);
	CLEANUP_FD int fd = -1;
	int rc = text ? write_text(step, m, index, text) : -ENOMEM;

	if (rc)
		return rc;
	fd = ckpt_sys.open(dirfd, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	rc = ckpt_sys.fsetxattr(fd, CHUNKS_XATTR, text, strlen(text), XATTR_CREATE);
	if (!rc)
		rc = give_to_owner(fd, dirfd);
	if (!rc && fchmod(fd, 0400)) // the commit opens it
		rc = -errno;
	if (rc)
		ckpt_sys.unlink(dirfd, path, 0);
	return ckpt_is_full(rc) || rc == -E2BIG || rc == -ERANGE ? -EXDEV
								 : rc; // the disk has no room for so long a name
}

int ckpt_share_chunks_find(struct ckpt_store *s, int fd, struct ckpt_pack_hold *hold, struct ckpt_shared_chunks *ret_of)
{
	CLEANUP_FREE char *text = ckpt_calloc(1, TEXT_MAX);
	struct ckpt_shared_chunks of = {0};
	ssize_t len = text ? fgetxattr(fd, CHUNKS_XATTR, text, TEXT_MAX - 1) : 0;
	int rc = 0;

	if (!text)
		return -ENOMEM;
	if (len < 0)
		return errno == EOPNOTSUPP ? -ENODATA : -errno;
	if (len <= AT_PATH || text[AT_SHA256 - 1] != ' ' || text[AT_PATH - 1] != ' ')
		return -EINVAL;
	text[AT_SHA256 - 1] = text[AT_PATH - 1] = '\0';
	of.step = ckpt_step_of_session(s, text);
	if (!of.step)
		return -ESTALE;
	rc = ckpt_step_manifest(of.step, &of.m);
	if (!rc && !is_there(of.m, text + AT_PATH, text + AT_SHA256, &of.index))
		rc = -ESTALE;
	if (!rc)
		rc = ckpt_pack_hold_file(hold, of.m, of.index);
	if (rc)
		ckpt_shared_chunks_done(&of);
	else
		*ret_of = of;
	return rc == -ENODATA ? -ESTALE : rc;
}

void ckpt_shared_chunks_done(struct ckpt_shared_chunks *of)
{
	ckpt_manifest_unref(of->m);
	ckpt_step_unref(of->step);
}

// --- Nothing but the commit takes it for a file -----------------------------------------------------------------------------

// An O_PATH descriptor has no attributes, the path that leads over it has.
static void path_over(int dirfd, const char *name, char ret_path[32 + CKPT_NAME_MAX + 1])
{
	snprintf(ret_path, 32 + CKPT_NAME_MAX + 1, "/proc/self/fd/%d%s%s", dirfd, *name ? "/" : "", name);
}

bool ckpt_share_chunks_may_be(const struct statx *stx)
{
	return stx->stx_mode == (S_IFREG | 0400) && !stx->stx_size;
}

static bool stands_for_chunks(int dirfd, const char *name, const struct statx *stx)
{
	char path[32 + CKPT_NAME_MAX + 1];

	if (!ckpt_share_chunks_may_be(stx))
		return false;
	path_over(dirfd, name, path);
	return (*name ? lgetxattr(path, CHUNKS_XATTR, NULL, 0) : getxattr(path, CHUNKS_XATTR, NULL, 0)) >= 0;
}

static int refuse(struct ckpt_step *step)
{
	struct ckpt_step_name is;

	if (__atomic_exchange_n(&ckpt_staging_of(step)->chunks_told, true, __ATOMIC_RELAXED))
		return -EPERM;
	ckpt_step_name(step, &is);
	ckpt_errlog_add(
		step->store->errlog, is.name, -EPERM,
		"`ckptfs commit` completes the step as it is; `ckptfs abort` drops it",
		"it was derived, and not committed: files of it stand for chunks of another step, and have their "
		"bytes once it is committed");
	return -EPERM;
}

int ckpt_share_chunks_guard(struct ckpt_step *step, int dirfd, const char *name)
{
	struct statx stx;

	if (!step)
		return 0;
	if (statx(dirfd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return errno == ENOENT ? 0 : -errno; // the caller finds so itself
	return stands_for_chunks(dirfd, name, &stx) ? refuse(step) : 0;
}

static int guard_entry(void *arg __attribute__((unused)), int dirfd, const char *name, const struct statx *stx)
{
	return stands_for_chunks(dirfd, name, stx) ? -EPERM : 0;
}

int ckpt_share_chunks_guard_all(struct ckpt_step *step)
{
	int rc = ckpt_walk(step->store->sessions_fd, step->session, guard_entry, NULL);

	return rc == -EPERM ? refuse(step) : rc;
}

int ckpt_share_chunks_drop(int fd)
{
	char path[32 + CKPT_NAME_MAX + 1];

	path_over(fd, "", path);
	return removexattr(path, CHUNKS_XATTR) && errno != ENODATA && errno != EOPNOTSUPP ? -errno : 0;
}
