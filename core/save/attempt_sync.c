// An attempt writes out its files and directories, one by one or with one syncfs. Invariant 4 of commit.c is kept here.
#include "core/save/attempt.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/copy.h"
#include "core/save/stage.h"

#include <fcntl.h>

#define UNSYNCED_EACH_MAX 64           // up to so many are fsynced one by one: exact blame, and no stranger waits
#define FOREIGN_DIRTY_MAX (256u << 20) // other people's dirty bytes that one syncfs may take along

static int sync_path(struct attempt *a, const struct ckpt_unsynced *u, bool dir)
{
	if (!dir && ckpt_stage_has_failed(a->step, u->ino))
		return -EIO; // by another name, a moment ago
	CLEANUP_FD int fd = ckpt_sys.open(a->step->dirfd, u->path, O_RDONLY | (dir ? O_DIRECTORY : O_NONBLOCK), 0);
	int rc = fd < 0 ? fd : dir || u->shared ? ckpt_sys.fsync(fd) : ckpt_sys.fdatasync(fd);

	ckpt_attempt_progress(a);
	if (!rc)
		return 0;
	if (fd < 0) {
		ckpt_attempt_complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
				      "it could not be opened, to be written out", u->path);
		return rc;
	}
	if (!dir && !u->shared) // the data of a shared one was on disk before
		ckpt_stage_synced(a->step, u->ino, 0, 0, rc);
	ckpt_attempt_complain(a, rc,
			      "the data did not reach the disk: write the file anew, then complete the step again",
			      "write-out failed", u->path);
	return rc;
}

static int sync_each(struct attempt *a)
{
	int first = 0;

	for (size_t i = 0; i < a->scan.file_count; i++) {
		int rc = sync_path(a, &a->scan.files[i], false);

		first = first ? first : rc;
	}
	for (size_t i = 0; i < a->scan.dir_count && !first; i++)
		first = sync_path(a, &a->scan.dirs[i], true);
	return first;
}

static int sync_all(struct attempt *a)
{
	int rc = sync_each(a);

	if (rc)
		return rc;
	rc = ckpt_stage_make_durable(a->step, false);
	if (rc)
		ckpt_attempt_complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
				      "the name of its directory could not be written", NULL);
	return rc;
}

// One syncfs for many files is worth a hundred fsyncs, but it also writes what strangers have dirty. It covers the
// directories too: on ext4, xfs and btrfs it commits the journal or tree that holds them.
int ckpt_attempt_write_out(struct attempt *a)
{
	struct ckpt_scan *scan = &a->scan;
	const char *path;
	int rc = ckpt_copy_sync(a->step, &path), lost;

	if (rc) {
		ckpt_attempt_complain(a, rc, "nothing is lost: mend the cause, then complete the step again",
				      "a copy of a file that is still open could not be written", path);
		return rc;
	}
	if (scan->file_count + scan->dir_count <= UNSYNCED_EACH_MAX ||
	    (!scan->file_count && scan->dir_count <= 4 * UNSYNCED_EACH_MAX) ||
	    ckpt_sys.dirty_bytes() > 4 * scan->unsynced_bytes + FOREIGN_DIRTY_MAX)
		return sync_all(a);
	ckpt_attempt_progress(a);
	lost = ckpt_sys.syncfs(a->step->dirfd);
	if (!lost)
		return 0;
	rc = sync_all(a); // each file answers for itself
	if (rc)
		return rc;
	// A stranger's, likely; but a file of ours that has left the memory since cannot answer any more.
	ckpt_attempt_complain(a, lost, "if all is well with the disk and with those files, complete the step again",
			      "write-out of files on the same disk failed, and which ones is not known", NULL);
	return lost;
}
