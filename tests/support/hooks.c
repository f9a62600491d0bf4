#include "tests/support/hooks.h"

struct ckpt_sys ckpt_hooks;

// The entry of ckpt_sys for one call: its hook.
#define CALL(type, name, parameters, arguments)                                                                        \
	static type call_##name parameters                                                                             \
	{                                                                                                              \
		return __atomic_load_n(&ckpt_hooks.name, __ATOMIC_SEQ_CST) arguments;                                  \
	}

CALL(int, open, (int dirfd, const char *path, int flags, mode_t mode), (dirfd, path, flags, mode))
CALL(int, close, (int fd), (fd))
CALL(ssize_t, pread, (int fd, void *buf, size_t len, off_t offset), (fd, buf, len, offset))
CALL(ssize_t, pwrite, (int fd, const void *buf, size_t len, off_t offset), (fd, buf, len, offset))
CALL(int, ftruncate, (int fd, off_t len), (fd, len))
CALL(int, fsync, (int fd), (fd))
CALL(int, fdatasync, (int fd), (fd))
CALL(int, syncfs, (int fd), (fd))
CALL(int, mkdir, (int dirfd, const char *name, mode_t mode), (dirfd, name, mode))
CALL(int, symlink, (const char *target, int dirfd, const char *name), (target, dirfd, name))
CALL(int, link, (int from_dirfd, const char *from, int to_dirfd, const char *to), (from_dirfd, from, to_dirfd, to))
CALL(int, rename, (int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags),
     (from_dirfd, from, to_dirfd, to, flags))
CALL(int, unlink, (int dirfd, const char *name, int flags), (dirfd, name, flags))
CALL(int, readdir, (DIR * dir, struct dirent **ret_entry), (dir, ret_entry))
CALL(int, fsetxattr, (int fd, const char *name, const void *value, size_t len, int flags),
     (fd, name, value, len, flags))
CALL(int, lease, (int fd), (fd))
CALL(int, clone, (int from_fd, int to_fd), (from_fd, to_fd))
CALL(int, reflink, (int from_fd, int to_fd), (from_fd, to_fd))
CALL(int, copy_range, (int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t len),
     (from_fd, from, to_fd, to, len))
CALL(int, room, (int fd, uint64_t *ret_free, uint64_t *ret_all), (fd, ret_free, ret_all))
CALL(uint64_t, dirty_bytes, (void), ())
CALL(int64_t, now_ns, (void), ())
CALL(int64_t, mono_ns, (void), ())
CALL(void, sleep_ns, (int64_t ns), (ns))
CALL(int, wait, (pthread_cond_t * changed, pthread_mutex_t *mutex), (changed, mutex))
CALL(int, wait_ns, (pthread_cond_t * changed, pthread_mutex_t *mutex, int64_t ns), (changed, mutex, ns))
CALL(int64_t, waited_ns, (void), ())
CALL(int, random, (void *buf, size_t len), (buf, len))
CALL(int, process_end, (int pidfd, int *ret_wait), (pidfd, ret_wait))

// Before main(), so that no thread is there.
static void __attribute__((constructor)) install(void)
{
	ckpt_hooks = ckpt_sys;
	ckpt_sys = (struct ckpt_sys){
		.open = call_open,
		.close = call_close,
		.pread = call_pread,
		.pwrite = call_pwrite,
		.ftruncate = call_ftruncate,
		.fsync = call_fsync,
		.fdatasync = call_fdatasync,
		.syncfs = call_syncfs,
		.mkdir = call_mkdir,
		.symlink = call_symlink,
		.link = call_link,
		.rename = call_rename,
		.unlink = call_unlink,
		.readdir = call_readdir,
		.fsetxattr = call_fsetxattr,
		.lease = call_lease,
		.clone = call_clone,
		.reflink = call_reflink,
		.copy_range = call_copy_range,
		.room = call_room,
		.dirty_bytes = call_dirty_bytes,
		.now_ns = call_now_ns,
		.mono_ns = call_mono_ns,
		.sleep_ns = call_sleep_ns,
		.wait = call_wait,
		.wait_ns = call_wait_ns,
		.waited_ns = call_waited_ns,
		.random = call_random,
		.process_end = call_process_end,
	};
}

// All entries are pointers to functions, which are of one size.
void ckpt_hooks_restore(const struct ckpt_sys *copy)
{
	typedef void (*__attribute__((may_alias)) entry)(void);
	const entry *from = (const entry *)copy;
	entry *to = (entry *)&ckpt_hooks;

	_Static_assert(sizeof(*copy) % sizeof(entry) == 0, "a table of pointers");
	for (size_t i = 0; i < sizeof(*copy) / sizeof(entry); i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_SEQ_CST);
}
