#include "tests/support/sysfault.h"

#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

static struct ckpt_sysfault *active;
static struct ckpt_sys below;

// Counts a call: 0, or the error that it is to give.
static int step(bool change)
{
	struct ckpt_sysfault *f = __atomic_load_n(&active, __ATOMIC_ACQUIRE);
	uint64_t n;

	if (!f || (f->changes_only && !change)) // NULL: it has ended since, under a thread of the store's
		return 0;
	n = __atomic_add_fetch(&f->count, 1, __ATOMIC_RELAXED);
	if (f->at == 0 || n < f->at || (n > f->at && !f->sticky))
		return 0;
	if (f->die)
		f->die(f->arg);
	return f->error;
}

static int fault_open(int dirfd, const char *path, int flags, mode_t mode)
{
	int r = step(flags & (O_CREAT | O_TRUNC));

	return r ? r : below.open(dirfd, path, flags, mode);
}

static ssize_t fault_pread(int fd, void *buf, size_t len, off_t offset)
{
	int r = step(false);

	return r ? r : below.pread(fd, buf, len, offset);
}

static ssize_t fault_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	const struct ckpt_sysfault *f = __atomic_load_n(&active, __ATOMIC_ACQUIRE);
	int r = step(true);

	if (r && f && f->torn && len > 1)
		below.pwrite(fd, buf, len / 2, offset);
	return r ? r : below.pwrite(fd, buf, len, offset);
}

static int fault_ftruncate(int fd, off_t len)
{
	int r = step(true);

	return r ? r : below.ftruncate(fd, len);
}

static int fault_fsync(int fd)
{
	int r = step(true);

	return r ? r : below.fsync(fd);
}

static int fault_fdatasync(int fd)
{
	int r = step(true);

	return r ? r : below.fdatasync(fd);
}

static int fault_syncfs(int fd)
{
	int r = step(true);

	return r ? r : below.syncfs(fd);
}

static int fault_mkdir(int dirfd, const char *name, mode_t mode)
{
	int r = step(true);

	return r ? r : below.mkdir(dirfd, name, mode);
}

static int fault_symlink(const char *target, int dirfd, const char *name)
{
	int r = step(true);

	return r ? r : below.symlink(target, dirfd, name);
}

static int fault_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	int r = step(true);

	return r ? r : below.link(from_dirfd, from, to_dirfd, to);
}

static int fault_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	int r = step(true);

	return r ? r : below.rename(from_dirfd, from, to_dirfd, to, flags);
}

static int fault_unlink(int dirfd, const char *name, int flags)
{
	int r = step(true);

	return r ? r : below.unlink(dirfd, name, flags);
}

static int fault_fsetxattr(int fd, const char *name, const void *value, size_t len, int flags)
{
	int r = step(true);

	return r ? r : below.fsetxattr(fd, name, value, len, flags);
}

static int fault_lease(int fd)
{
	int r = step(false);

	return r ? r : below.lease(fd);
}

static int fault_clone(int from_fd, int to_fd)
{
	int r = step(true);

	return r ? r : below.clone(from_fd, to_fd);
}

static int fault_copy_range(int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t len)
{
	int r = step(true);

	return r ? r : below.copy_range(from_fd, from, to_fd, to, len);
}

static int fault_random(void *buf, size_t len)
{
	int r = step(false);

	return r ? r : below.random(buf, len);
}

static const int in_turn[] = {-ENOSPC, -EDQUOT, -EMFILE, -ENOMEM, -EINTR};

int ckpt_sysfault_kinds(void)
{
	return ckpt_suite_full() ? 1 + (int)ARRAY_LEN(in_turn) : 2;
}

int ckpt_sysfault_error(int kind, uint64_t n)
{
	return kind == 0 ? -EIO : in_turn[((uint64_t)kind + n) % ARRAY_LEN(in_turn)];
}

void ckpt_sysfault_begin(struct ckpt_sysfault *fault)
{
	below = ckpt_hooks;
	active = fault;
	ckpt_hook_set(open, fault_open);
	ckpt_hook_set(pread, fault_pread);
	ckpt_hook_set(pwrite, fault_pwrite);
	ckpt_hook_set(ftruncate, fault_ftruncate);
	ckpt_hook_set(fsync, fault_fsync);
	ckpt_hook_set(fdatasync, fault_fdatasync);
	ckpt_hook_set(syncfs, fault_syncfs);
	ckpt_hook_set(mkdir, fault_mkdir);
	ckpt_hook_set(symlink, fault_symlink);
	ckpt_hook_set(link, fault_link);
	ckpt_hook_set(rename, fault_rename);
	ckpt_hook_set(unlink, fault_unlink);
	ckpt_hook_set(fsetxattr, fault_fsetxattr);
	ckpt_hook_set(lease, fault_lease);
	ckpt_hook_set(clone, fault_clone);
	ckpt_hook_set(copy_range, fault_copy_range);
	ckpt_hook_set(random, fault_random);
}

// Field by field: who waits for something may look at the clock meanwhile.
void ckpt_sysfault_end(struct ckpt_sysfault *fault)
{
	(void)fault;
	ckpt_hook_set(open, below.open);
	ckpt_hook_set(pread, below.pread);
	ckpt_hook_set(pwrite, below.pwrite);
	ckpt_hook_set(ftruncate, below.ftruncate);
	ckpt_hook_set(fsync, below.fsync);
	ckpt_hook_set(fdatasync, below.fdatasync);
	ckpt_hook_set(syncfs, below.syncfs);
	ckpt_hook_set(mkdir, below.mkdir);
	ckpt_hook_set(symlink, below.symlink);
	ckpt_hook_set(link, below.link);
	ckpt_hook_set(rename, below.rename);
	ckpt_hook_set(unlink, below.unlink);
	ckpt_hook_set(fsetxattr, below.fsetxattr);
	ckpt_hook_set(lease, below.lease);
	ckpt_hook_set(clone, below.clone);
	ckpt_hook_set(copy_range, below.copy_range);
	ckpt_hook_set(random, below.random);
	__atomic_store_n(&active, NULL, __ATOMIC_RELEASE);
}

void ckpt_sysfault_kill(void *arg)
{
	(void)arg;
	for (;;)
		kill(getpid(), SIGKILL);
}

bool ckpt_sysfault_killed(pid_t child, uint64_t n)
{
	int status;

	ck_assert_int_ge(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !WEXITSTATUS(status),
		      "the run with death at call %llu ended with status %d", (unsigned long long)n, status);
	return WIFSIGNALED(status);
}
