#include "core/save/convert.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/commit.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"
#include "core/step/store.h"
#include "core/step/store_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define CHANGES_NS INT64_C(100000000) // how long at once is waited for changes that are under way

// A look at all that is in a folder.
struct look {
	struct ckpt_store *store;
	struct linked {
		uint64_t ino;
		uint32_t names;
	} * linked; // each name of a file that has several
	size_t count, cap;
};

static int look_at_all(struct look *l, int dirfd, int depth);

// What cannot be looked into may hold steps.
static int look_below(struct look *l, int dirfd, const char *name, int depth)
{
	int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd == -ENOTDIR || fd == -ENOENT || fd == -ELOOP ? 0 : fd;
	if (depth <= CKPT_DEPTH_MAX)
		return look_at_all(l, fd, depth);
	ckpt_sys.close(fd);
	return -E2BIG;
}

// A shared file (share.h) is one of its own, however many names its inode has.
static int look_at_links(struct look *l, int dirfd, const char *name)
{
	struct statx stx;
	int rc;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(stx.stx_mode) || stx.stx_nlink == 1 || ckpt_share_is(dirfd, name, &stx))
		return 0;
	rc = ckpt_grow((void **)&l->linked, &l->cap, l->count + 1, sizeof(*l->linked));
	if (!rc)
		l->linked[l->count++] = (struct linked){.ino = stx.stx_ino, .names = stx.stx_nlink};
	return rc;
}

// dirfd is taken. -ENOTEMPTY: this folder, or one below it, holds steps: those are called by it.
static int look_at_all(struct look *l, int dirfd, int depth)
{
	DIR *dir = fdopendir(dirfd);
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		ckpt_sys.close(dirfd);
		return rc;
	}
	rc = ckpt_store_folder_id(l->store, dirfd, false, id);
	rc = rc == -ENOENT ? 0 : rc || !ckpt_step_any(l->store, id) ? rc : -ENOTEMPTY;
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d) {
		if (d->d_type != DT_DIR)
			rc = look_at_links(l, dirfd, d->d_name);
		if (!rc && (d->d_type == DT_DIR || d->d_type == DT_UNKNOWN))
			rc = look_below(l, dirfd, d->d_name, depth + 1);
	}
	closedir(dir);
	return rc;
}

static int by_ino(const void *a, const void *b)
{
	const struct linked *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

// Whether some file has a name outside, too: who writes to it there would write into the step.
static bool any_outside(struct look *l)
{
	size_t same;

	if (l->count)
		qsort(l->linked, l->count, sizeof(*l->linked), by_ino);
	for (size_t i = 0; i < l->count; i += same) {
		for (same = 1; i + same < l->count && l->linked[i + same].ino == l->linked[i].ino;)
			same++;
		if (same < l->linked[i].names)
			return true;
	}
	return false;
}

// dirfd is taken.
static int check_folder(struct ckpt_store *s, int dirfd)
{
	struct look l = {.store = s};
	int rc = look_at_all(&l, dirfd, 0);

	if (!rc && any_outside(&l))
		rc = -EMLINK;
	free(l.linked);
	return rc;
}

static int open_folder(int dirfd, const char *name)
{
	return ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
}

static int new_of_folder(struct ckpt_store *s, int dirfd, const char *folder_id, const char *name,
			 struct ckpt_step **ret_step)
{
	int fd = open_folder(dirfd, name), rc = fd < 0 ? fd : check_folder(s, fd);
	struct ckpt_step *step;

	if (!rc)
		rc = ckpt_stage_new(s, folder_id, name, &step);
	if (rc)
		return rc;
	step->dirfd = open_folder(dirfd, name);
	rc = MIN(step->dirfd, 0);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

// What says where the folder belongs is on disk before it moves. On a folder that stays where it is that says nothing.
static int write_origin(struct ckpt_step *step)
{
	int rc = ckpt_stage_write_origin(step, step->dirfd);

	return rc ? rc : ckpt_sys.fsync(step->dirfd);
}

int ckpt_convert_prepare(struct ckpt_store *s, int dirfd, const char *folder_id, const char *name,
			 struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc = new_of_folder(s, dirfd, folder_id, name, &step);

	if (rc)
		return rc;
	ckpt_staging_of(step)->from_plain = true;
	rc = write_origin(step);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

// Its files are older than it would be as a new step, and would look like a copy.
static int fill_restaged(struct ckpt_step *step)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	char text[24];
	ssize_t n = fgetxattr(step->dirfd, CKPT_NO_ARRAYS_XATTR, text, sizeof(text) - 1);
	struct stat st;

	if (n < 0 || fstat(step->dirfd, &st))
		return -errno;
	text[n] = '\0';
	staged->began_ns = strtoll(text, NULL, 10);
	staged->uid = st.st_uid;
	staged->gid = st.st_gid;
	staged->by_client = true;
	return write_origin(step);
}

int ckpt_restage_prepare(struct ckpt_store *s, int dirfd, const char *folder_id, const char *name,
			 struct ckpt_step **ret_step)
{
	struct ckpt_step *step;
	int rc = new_of_folder(s, dirfd, folder_id, name, &step);

	if (rc)
		return rc;
	rc = fill_restaged(step);
	if (rc)
		ckpt_step_unref(step);
	else
		*ret_step = step;
	return rc;
}

void ckpt_restage_unmark(int dirfd)
{
	(void)fremovexattr(dirfd, CKPT_NO_ARRAYS_XATTR); // a staged directory that says so is no harm
}

int ckpt_convert_sync(struct ckpt_store *s, int dirfd)
{
	int rc = ckpt_sys.fsync(s->sessions_fd);

	return rc ? rc : ckpt_sys.fsync(dirfd);
}

int ckpt_convert(struct ckpt_step *step, int dirfd)
{
	char folder_id[sizeof(step->folder_id)], name[sizeof(step->name)];
	struct ckpt_store *s = step->store;
	int rc;

	memcpy(folder_id, step->folder_id, sizeof(folder_id));
	memcpy(name, step->name, sizeof(name));
	rc = ckpt_sys.rename(dirfd, name, s->sessions_fd, step->session, RENAME_NOREPLACE);
	if (rc)
		return rc;
	ckpt_lock_take(&s->lock);
	rc = ckpt_step_insert_locked(step, folder_id, name);
	ckpt_lock_drop(&s->lock);
	if (rc)
		(void)ckpt_sys.rename(s->sessions_fd, step->session, dirfd, name, RENAME_NOREPLACE);
	return rc;
}

// Through the gate, so that no commit begins before it is gone.
int ckpt_convert_back(struct ckpt_step *step, int dirfd, const char *name)
{
	struct ckpt_store *s = step->store;
	bool left = ckpt_step_state(step) == CKPT_STEP_LEFT;
	int rc = left ? 0 : ckpt_stage_enter(step, false);

	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc;
	rc = ckpt_sys.rename(s->sessions_fd, step->session, dirfd, name, RENAME_NOREPLACE);
	if (!rc)
		ckpt_stage_vanish(step);
	if (!left)
		ckpt_stage_leave(step);
	return rc;
}

static int settle_one(struct ckpt_step *step)
{
	struct ckpt_step *there = ckpt_step_find(step->store, step->folder_id, step->name);
	CLEANUP_FD int fd = -1;
	int rc;

	ckpt_step_unref(there);
	if (there)
		return -EEXIST;
	fd = ckpt_folders_open(step->store, step->folder_id);
	rc = fd < 0 ? fd : ckpt_convert_back(step, fd, step->name);
	if (!rc)
		ckpt_errlog_add(step->store->errlog, step->name, 0, "complete it with a marker in it",
				"the daemon ended while it became a step: it is a plain folder, as before");
	return rc;
}

// One that cannot go back is a left-over step like any.
int ckpt_convert_settle(struct ckpt_store *s)
{
	struct ckpt_step **left;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (ckpt_staging_of(left[i])->from_plain)
			(void)settle_one(left[i]);
	ckpt_step_list_free(left, count);
	return 0;
}

// --- A staged step becomes a plain folder ---------------------------------------------------------------------------------

static void end_attempt_locked(struct ckpt_step *step)
{
	ckpt_attempts_of(step)->commit_result = -ESTALE;
	ckpt_attempts_of(step)->attempts_done = ckpt_attempts_of(step)->attempts;
	pthread_cond_broadcast(&step->changed);
}

// The gate is closed as for a commit: new changes wait, and find what the directory is then.
int ckpt_unstage_begin(struct ckpt_step *step, const int64_t *unless_touched_ns)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	LOCK_SCOPE(&step->lock);

	if (step->state != CKPT_STEP_STAGED)
		return step->state == CKPT_STEP_COMMITTING ? -EBUSY : step->state == CKPT_STEP_GONE ? -ESTALE : -EROFS;
	if (step->base || staged->from_version)
		return -EINVAL;
	if (staged->outcome_unknown)
		return -EBUSY;
	ckpt_step_set_state_locked(step, CKPT_STEP_COMMITTING);
	ckpt_attempts_of(step)->attempts++; // a commit that begins now waits for the end of this, and fails
	__atomic_store_n(&staged->progress_ns, ckpt_sys.mono_ns(),
			 __ATOMIC_RELAXED); // whoever waits looks at it from now on
	while (staged->changers) {
		ckpt_lock_wait_ns(&step->changed, &step->lock, CHANGES_NS);
		__atomic_store_n(&staged->progress_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	}
	if (step->state != CKPT_STEP_COMMITTING) {
		end_attempt_locked(step);
		return -ESTALE; // a change that was under way took it away
	}
	if (!unless_touched_ns || __atomic_load_n(&staged->touched_ns, __ATOMIC_RELAXED) == *unless_touched_ns)
		return 0;
	ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	end_attempt_locked(step);
	return -EAGAIN;
}

// Without it the folder stays plain whatever is made in it, which is no harm.
void ckpt_unstage_mark(struct ckpt_step *step)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)ckpt_staging_of(step)->began_ns);
	(void)ckpt_sys.fsetxattr(step->dirfd, CKPT_NO_ARRAYS_XATTR, text, strlen(text), 0);
}

void ckpt_unstage_cancel(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	if (step->state == CKPT_STEP_COMMITTING)
		ckpt_step_set_state_locked(step, CKPT_STEP_STAGED);
	end_attempt_locked(step);
}

int ckpt_unstage(struct ckpt_step *step, int dirfd, const char *name, unsigned flags)
{
	int rc = ckpt_stage_make_durable(step, true); // a power cut leaves it in one of its places

	if (!rc)
		rc = ckpt_sys.rename(step->store->sessions_fd, step->session, dirfd, name, flags);
	if (rc)
		return rc;
	(void)fremovexattr(step->dirfd, CKPT_ORIGIN_XATTR); // a folder that says so of itself is no harm
	ckpt_stage_vanish(step);
	ckpt_stage_writers_let_go(step);
	ckpt_lock_take(&step->lock);
	end_attempt_locked(step);
	ckpt_lock_drop(&step->lock);
	return 0;
}
