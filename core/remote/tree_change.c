#include "core/remote/tree_change.h"

#include "core/base/sys.h"
#include "core/remote/tree_look.h"

#include <fcntl.h>

// The time of a folder changes with each name in it.
static bool is_as_expected(const struct ckpt_tree_change *c)
{
	struct ckpt_tree_file was;
	struct stat st;

	if (fstatat(c->dirfd, c->name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT && !c->expect;
	if (!c->expect || (st.st_mode & S_IFMT) != (c->expect->st_mode & S_IFMT))
		return false;
	ckpt_tree_file(c->expect, &was);
	return S_ISDIR(st.st_mode) ? st.st_ino == c->expect->st_ino : ckpt_tree_file_is(&was, &st);
}

static bool is_what_moves(const struct ckpt_tree_change *c)
{
	struct stat st;

	return !c->moves ||
	       (!fstatat(c->from_dirfd, c->from, &st, AT_SYMLINK_NOFOLLOW) && st.st_ino == c->moves->st_ino);
}

// The place is free then, or, of a file, still taken: the rename that follows replaces it in one act.
static int put_aside(const struct ckpt_tree_change *c)
{
	if (S_ISDIR(c->expect->st_mode))
		return ckpt_sys.rename(c->dirfd, c->name, c->dirfd, c->aside, RENAME_NOREPLACE);
	return ckpt_sys.link(c->dirfd, c->name, c->dirfd, c->aside);
}

static void take_back(const struct ckpt_tree_change *c, bool is_folder)
{
	if (is_folder)
		(void)ckpt_sys.rename(c->dirfd, c->aside, c->dirfd, c->name, RENAME_NOREPLACE);
	else
		(void)ckpt_sys.unlink(c->dirfd, c->aside, 0);
}

int ckpt_tree_change(const struct ckpt_tree_change *c)
{
	bool is_folder = c->expect && S_ISDIR(c->expect->st_mode), is_free = !c->expect || (c->aside && is_folder);
	bool is_aside = false;
	int rc = is_as_expected(c) && is_what_moves(c) ? 0 : -EAGAIN;

	if (!rc && c->expect && c->aside) {
		rc = put_aside(c);
		is_aside = !rc;
	}
	if (!rc && c->from)
		rc = ckpt_sys.rename(c->from_dirfd, c->from, c->dirfd, c->name, is_free ? RENAME_NOREPLACE : 0);
	else if (!rc && !is_free)
		rc = ckpt_sys.unlink(c->dirfd, c->name, is_folder ? AT_REMOVEDIR : 0);
	if (rc && is_aside)
		take_back(c, is_folder);
	return rc == -EEXIST ? -ENOTEMPTY : rc;
}
