// Faults in the calls that core makes of libc by itself, which are not behind ckpt_sys because they change nothing that must
// survive: attributes and listings that are read, owners, modes and times that are set, threads. By number, as sysfault.h and
// allocfault.h do it: the n-th of this process fails, n = 1, 2, 3 ... until none fires, whoever makes it.
//
//	ckpt_callfault_begin(n, -EIO);
//	... the body ...
//	count = ckpt_callfault_end();
//	if (count < n) done;
//
// This header defines those calls for the whole program, so it is for the one file that is a test program.
#pragma once

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static struct ckpt_callfault {
	uint64_t at, count;
	int error;        // errno
	bool on;          // atomic
	const char *name; // of the call that failed
} callfault;

static bool call_fails(const char *name)
{
	struct ckpt_callfault *f = &callfault;

	if (!__atomic_load_n(&f->on, __ATOMIC_ACQUIRE) || __atomic_add_fetch(&f->count, 1, __ATOMIC_RELAXED) != f->at)
		return false;
	f->name = name;
	errno = f->error;
	return true;
}

// A sanitizer's own, else libc's.
static void *call_below(void **kept, const char *name)
{
	char sanitized[64];
	void *fn = __atomic_load_n(kept, __ATOMIC_RELAXED);

	if (fn)
		return fn;
	snprintf(sanitized, sizeof(sanitized), "__interceptor_%s", name);
	fn = dlsym(RTLD_DEFAULT, sanitized);
	if (!fn)
		fn = dlsym(RTLD_NEXT, name);
	if (!fn)
		abort();
	__atomic_store_n(kept, fn, __ATOMIC_RELAXED);
	return fn;
}

// What it answers when it fails, its name, its parameters, and these when it is called below.
#define CALL_FAULT(type, failed, name, parameters, ...)                                                                \
	type name parameters                                                                                           \
	{                                                                                                              \
		static void *below;                                                                                    \
                                                                                                                       \
		if (call_fails(#name))                                                                                 \
			return failed;                                                                                 \
		return ((type(*) parameters)call_below(&below, #name))(__VA_ARGS__);                                   \
	}

CALL_FAULT(int, -1, fstat, (int fd, struct stat *st), fd, st)
CALL_FAULT(int, -1, fstatat, (int fd, const char *path, struct stat *st, int flags), fd, path, st, flags)
CALL_FAULT(int, -1, statx, (int fd, const char *path, int flags, unsigned mask, struct statx *stx), fd, path, flags,
	   mask, stx)
CALL_FAULT(int, -1, fstatfs, (int fd, struct statfs *st), fd, st)
CALL_FAULT(int, -1, faccessat, (int fd, const char *path, int mode, int flags), fd, path, mode, flags)
CALL_FAULT(int, -1, fchown, (int fd, uid_t uid, gid_t gid), fd, uid, gid)
CALL_FAULT(int, -1, fchownat, (int fd, const char *path, uid_t uid, gid_t gid, int flags), fd, path, uid, gid, flags)
CALL_FAULT(int, -1, fchmod, (int fd, mode_t mode), fd, mode)
CALL_FAULT(int, -1, futimens, (int fd, const struct timespec times[2]), fd, times)
CALL_FAULT(int, -1, utimensat, (int fd, const char *path, const struct timespec times[2], int flags), fd, path, times,
	   flags)
CALL_FAULT(ssize_t, -1, readlinkat, (int fd, const char *path, char *buf, size_t cap), fd, path, buf, cap)
CALL_FAULT(ssize_t, -1, fgetxattr, (int fd, const char *name, void *value, size_t cap), fd, name, value, cap)
CALL_FAULT(ssize_t, -1, getxattr, (const char *path, const char *name, void *value, size_t cap), path, name, value, cap)
CALL_FAULT(ssize_t, -1, flistxattr, (int fd, char *names, size_t cap), fd, names, cap)
CALL_FAULT(int, -1, fremovexattr, (int fd, const char *name), fd, name)
CALL_FAULT(DIR *, NULL, fdopendir, (int fd), fd)
CALL_FAULT(struct dirent *, NULL, readdir, (DIR * dir), dir)
CALL_FAULT(char *, NULL, realpath, (const char *path, char *resolved), path, resolved)
CALL_FAULT(int, -1, flock, (int fd, int how), fd, how)
CALL_FAULT(int, EAGAIN, pthread_create,
	   (pthread_t * thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg), thread, attr, start,
	   arg)

static mode_t mode_of(int flags, va_list list)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	static void *below;
	va_list list;
	mode_t mode;

	va_start(list, flags);
	mode = mode_of(flags, list);
	va_end(list);
	return call_fails("open") ? -1
				  : ((int (*)(const char *, int, ...))call_below(&below, "open"))(path, flags, mode);
}

int openat(int dirfd, const char *path, int flags, ...)
{
	static void *below;
	va_list list;
	mode_t mode;

	va_start(list, flags);
	mode = mode_of(flags, list);
	va_end(list);
	return call_fails("openat")
		       ? -1
		       : ((int (*)(int, const char *, int, ...))call_below(&below, "openat"))(dirfd, path, flags, mode);
}

// at 0: none fails, they are counted. error: -errno.
static inline void ckpt_callfault_begin(uint64_t at, int error)
{
	callfault = (struct ckpt_callfault){.at = at, .error = -error};
	__atomic_store_n(&callfault.on, true, __ATOMIC_RELEASE);
}

static inline uint64_t ckpt_callfault_end(void)
{
	__atomic_store_n(&callfault.on, false, __ATOMIC_RELEASE);
	return __atomic_load_n(&callfault.count, __ATOMIC_RELAXED);
}
