// The one seam to the machine: every system call by which core, fs and the local backend change a disk, and time,
// randomness, sleep and the waits of threads for each other. Tests replace single entries to fail, to die at call n, or to model a disk that loses what was
// not synced; production code never does.
//
// All calls return 0 (or a descriptor, or a byte count) or -errno. Paths are relative to a directory descriptor and are
// resolved beneath it, without following any symlink on the way: -ELOOP or -ENOTDIR; -EXDEV for ".." or '/' that lead out. The last
// component of link, rename and unlink is never followed either.
// Threads: the table is set before threads start and read-only afterwards; each call is as thread-safe as the kernel's.
#pragma once

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct ckpt_sys {
	// openat2(2) with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS; O_CLOEXEC and O_NOFOLLOW are added.
	int (*open)(int dirfd, const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	ssize_t (*pread)(int fd, void *buf, size_t len, off_t offset);        // short only at end of file
	ssize_t (*pwrite)(int fd, const void *buf, size_t len, off_t offset); // all of it, or -errno
	int (*ftruncate)(int fd, off_t len);
	int (*fsync)(int fd);
	int (*fdatasync)(int fd);
	int (*syncfs)(int fd);
	int (*mkdir)(int dirfd, const char *name, mode_t mode);
	int (*symlink)(const char *target, int dirfd, const char *name);
	int (*link)(int from_dirfd, const char *from, int to_dirfd, const char *to); // never follows
	int (*rename)(int from_dirfd, const char *from, int to_dirfd, const char *to,
		      unsigned flags);                         // renameat2 flags
	int (*unlink)(int dirfd, const char *name, int flags); // AT_REMOVEDIR for directories
	int (*readdir)(DIR *dir, struct dirent **ret_entry);   // but "." and ".."; NULL at the end
	int (*fsetxattr)(int fd, const char *name, const void *value, size_t len, int flags);
	// Takes and drops a read lease, on a descriptor opened O_RDONLY: -EAGAIN where anybody may write the file.
	int (*lease)(int fd);
	// The whole content into an empty file: reflink, else copy_file_range, else read and write.
	int (*clone)(int from_fd, int to_fd);
	int (*reflink)(int from_fd, int to_fd); // only so: -EOPNOTSUPP, -EINVAL, -EXDEV where this disk cannot
	// All of these bytes, to another place of another file. Blocks are shared (reflink) where the disk can and both places are alike within
	// a block; other bytes are copied. -ENODATA: `from` ends before.
	int (*copy_range)(int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t len);
	int (*room)(int fd, uint64_t *ret_free,
		    uint64_t *ret_all); // bytes that its filesystem has left for us, and has
	uint64_t (*dirty_bytes)(void);  // of the whole machine, not written back yet; 0 when unknown
	int64_t (*now_ns)(void);        // CLOCK_REALTIME
	int64_t (*mono_ns)(void);       // CLOCK_MONOTONIC
	void (*sleep_ns)(int64_t ns);
	// Every wait for another thread, by lock.h, with the mutex held: as pthread_cond_wait(3); and at most so long, whatever happens to
	// the time of day: ETIMEDOUT.
	int (*wait)(pthread_cond_t *changed, pthread_mutex_t *mutex);
	int (*wait_ns)(pthread_cond_t *changed, pthread_mutex_t *mutex, int64_t ns);
	// For how long this thread could have run and had no processor, since it began; 0 where the kernel does not tell.
	int64_t (*waited_ns)(void);
	int (*random)(void *buf, size_t len);
	// How the process of a pidfd ended, as of wait(2). -EAGAIN: it lives, or its parent has not waited for it; -ENOTTY, -ESRCH: this
	// kernel does not keep it (before Linux 6.15).
	int (*process_end)(int pidfd, int *ret_wait);
};

extern struct ckpt_sys ckpt_sys;

// Of the running kernel; not for tests to replace.
bool ckpt_kernel_is_at_least(int major, int minor);
// True where a file's ctime tells any two changes apart: Linux 6.13, and one of the filesystems that take part in it. Not
// so for a file whose inode has no room for nanoseconds (ext4 with inodes of 128 bytes).
bool ckpt_has_multigrain_times(int dirfd);
// The filesystem of a file is of a kind that shares blocks between files. It may have been made without that.
bool ckpt_shares_blocks(int fd);
