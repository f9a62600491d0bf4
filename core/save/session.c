#include "core/save/session.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

static int open_it(const struct ckpt_step *step)
{
	return ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
}

static int make_directories(struct ckpt_step *step, const struct ckpt_manifest *m, const char *top)
{
	int rc = ckpt_sys.mkdir(step->store->trash_fd, top, 0700);

	for (uint32_t i = 1; i < ckpt_manifest_count(m) && !rc; i++) {
		char path[PATH_MAX];
		struct ckpt_entry e;
		int n;

		ckpt_manifest_entry(m, i, &e);
		if (e.type != CKPT_ENTRY_DIR)
			continue;
		n = snprintf(path, sizeof(path), "%s/", top);
		n = ckpt_manifest_path(m, i, path + n, sizeof(path) - (size_t)n);
		rc = n < 0 ? n : ckpt_sys.mkdir(step->store->trash_fd, path, 0700);
	}
	return rc;
}

static int mark(int dirfd, const char *name)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);

	return fd < 0 ? fd : ckpt_sys.fsetxattr(fd, CKPT_PULLED_XATTR, "1", 1, 0);
}

// Whole before it has its name: a parent stands before what is in it in a manifest.
static int make(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	char name[CKPT_TRASH_SESSION_NAME], uuid[CKPT_UUID_LEN + 1];
	struct ckpt_manifest *m;
	int rc = ckpt_uuid_make(uuid);

	if (!rc)
		rc = ckpt_step_manifest(step, &m);
	if (rc)
		return rc;
	snprintf(name, sizeof(name), CKPT_TRASH_DROP "%s", uuid); // what a crash leaves of it goes as such
	rc = make_directories(step, m, name);
	ckpt_manifest_unref(m);
	if (!rc)
		rc = mark(s->trash_fd, name);
	if (!rc)
		rc = ckpt_sys.rename(s->trash_fd, name, s->sessions_fd, step->session, RENAME_NOREPLACE);
	if (!rc)
		rc = ckpt_sys.fsync(s->sessions_fd);
	else
		(void)ckpt_trash_remove(s, name);
	return rc == -EEXIST ? 0 : rc;
}

static bool is_pulled(struct ckpt_step *step)
{
	struct ckpt_said said;

	return !ckpt_step_said(step->store, step->session, &said) && said.pulled;
}

int ckpt_session_open(struct ckpt_step *step)
{
	int fd = open_it(step), rc;

	if (fd != -ENOENT || !step->store->writable || !is_pulled(step))
		return fd;
	rc = make(step);
	return rc ? rc : open_it(step);
}
