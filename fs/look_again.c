#include "fs/look_again.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "fs/attr.h"
#include "fs/copy_up.h"
#include "fs/handle.h"
#include "fs/unwritten.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TOLD_MAX 256 // of more at once the oldest is forgotten
#define KEPT_NS INT64_C(1000000000)
// A writer that is told a second time fails. Its lookup may wait for a disk.
#define WRITER_KEPT_NS INT64_C(30000000000)

struct told {
	pid_t tid; // 0: nobody
	int64_t at_ns;
	int fd; // of what it found; -1: it has not looked yet
	// The number of what it wants to write; 0: it reads. The node may be forgotten and made again before it looks.
	uint64_t writes;
};

struct look_again {
	struct ckpt_lock lock;
	_Atomic unsigned count; // mostly 0: then nobody takes the lock
	struct told told[TOLD_MAX];
};

struct look_again *look_again_new(void)
{
	struct look_again *t = calloc(1, sizeof(*t));

	if (t)
		ckpt_lock_init(&t->lock, CKPT_LOCK_LEAF);
	return t;
}

static void forget_locked(struct look_again *t, struct told *one)
{
	if (!one->tid)
		return;
	if (one->fd >= 0)
		ckpt_sys.close(one->fd);
	one->tid = 0;
	t->count--;
}

void look_again_free(struct look_again *t)
{
	if (!t)
		return;
	ckpt_lock_take(&t->lock);
	for (size_t i = 0; i < TOLD_MAX; i++)
		forget_locked(t, &t->told[i]);
	ckpt_lock_drop(&t->lock);
	ckpt_lock_done(&t->lock);
	free(t);
}

static bool is_kept(const struct told *one)
{
	return ckpt_sys.mono_ns() - one->at_ns <= (one->writes ? WRITER_KEPT_NS : KEPT_NS);
}

static struct told *find_locked(struct look_again *t, pid_t tid)
{
	for (size_t i = 0; i < TOLD_MAX; i++)
		if (t->told[i].tid == tid)
			return &t->told[i];
	return NULL;
}

static struct told *oldest_locked(struct look_again *t)
{
	struct told *oldest = &t->told[0];

	for (size_t i = 1; i < TOLD_MAX; i++)
		if (t->told[i].at_ns < oldest->at_ns)
			oldest = &t->told[i];
	return oldest;
}

static void tell_locked(struct look_again *t, pid_t tid, uint64_t writes)
{
	struct told *one;

	for (size_t i = 0; i < TOLD_MAX; i++)
		if (t->told[i].tid == tid || !is_kept(&t->told[i]))
			forget_locked(t, &t->told[i]);
	one = find_locked(t, 0);
	if (!one)
		forget_locked(t, one = oldest_locked(t));
	*one = (struct told){.tid = tid, .at_ns = ckpt_sys.mono_ns(), .fd = -1, .writes = writes};
	t->count++;
}

void look_again_told(struct ckpt_fs *fs, pid_t tid)
{
	struct look_again *t = fs->look_again;

	if (!tid)
		return;
	LOCK_SCOPE(&t->lock);
	tell_locked(t, tid, 0);
}

bool look_again_is_told(struct ckpt_fs *fs, pid_t tid)
{
	struct look_again *t = fs->look_again;
	struct told *one;

	if (!tid || !t->count)
		return false;
	LOCK_SCOPE(&t->lock);
	one = find_locked(t, tid);
	return one && is_kept(one);
}

bool look_again_told_writer(struct ckpt_fs *fs, pid_t tid, struct node *n)
{
	struct look_again *t = fs->look_again;
	struct told *one;

	if (!tid)
		return false;
	LOCK_SCOPE(&t->lock);
	one = find_locked(t, tid);
	if (one && one->writes == n->number && is_kept(one)) {
		forget_locked(t, one);
		return false;
	}
	tell_locked(t, tid, n->number);
	return true;
}

// Its open would have to say ESTALE, which the kernel takes once only.
static bool copy_shared(struct ckpt_fs *fs, struct node *n)
{
	struct ckpt_step *step = node_step(fs, n);
	CLEANUP_FD int fd = -1;
	bool copied = false;

	if (!step || !ckpt_stage_enter(step, false)) {
		fd = handle_open_file(fs, n);
		copied = fd >= 0 && copy_up_is_due(fd) && !copy_up(fs, n, false, NULL);
		if (step)
			ckpt_stage_leave(step);
	}
	ckpt_step_unref(step);
	return copied;
}

static void keep_open(struct ckpt_fs *fs, pid_t tid, struct node *n)
{
	struct look_again *t = fs->look_again;
	CLEANUP_FD int fd = handle_open_file(fs, n);
	struct told *one;

	if (fd < 0)
		return;
	LOCK_SCOPE(&t->lock);
	one = find_locked(t, tid); // a thread does one thing at a time, but its place may be another's by now
	if (!one)
		return;
	if (one->fd >= 0)
		ckpt_sys.close(one->fd);
	one->fd = TAKE_FD(fd);
}

bool look_again_found(struct ckpt_fs *fs, pid_t tid, const struct node *dir, const char *name,
		      struct fuse_entry_param *found)
{
	struct look_again *t = fs->look_again;
	struct node *n = node_of(fs, found->ino);
	struct told told = {0};
	struct told *one;

	if (!tid || !t->count || !S_ISREG(found->attr.st_mode))
		return false;
	ckpt_lock_take(&t->lock);
	one = find_locked(t, tid);
	if (one && is_kept(one))
		told = *one;
	ckpt_lock_drop(&t->lock);
	if (!told.tid)
		return false;
	if (told.writes && told.writes != n->number)
		return copy_shared(fs, n);
	if (told.writes)
		return !unwritten_lead(fs, dir, name, found);
	keep_open(fs, tid, n);
	return false;
}

int look_again_take(struct ckpt_fs *fs, pid_t tid, struct node *n)
{
	struct look_again *t = fs->look_again;
	CLEANUP_FD int fd = -1;
	struct told *one;
	struct statx stx;

	if (!tid || !t->count)
		return -1;
	ckpt_lock_take(&t->lock);
	one = find_locked(t, tid);
	if (one && is_kept(one))
		fd = TAKE_FD(one->fd);
	if (one)
		forget_locked(t, one);
	ckpt_lock_drop(&t->lock);
	return fd >= 0 && !statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) && node_is_still(fs, n, &stx)
		       ? TAKE_FD(fd)
		       : -1;
}

void look_again_done(struct ckpt_fs *fs, pid_t tid)
{
	struct look_again *t = fs->look_again;
	struct told *one;

	LOCK_SCOPE(&t->lock);
	one = tid ? find_locked(t, tid) : NULL;
	if (one)
		forget_locked(t, one);
}
