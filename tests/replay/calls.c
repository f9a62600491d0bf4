// The calls of traces, each with its check.
#include "tests/replay/ranks.h"
#include "tests/replay/trace.h"

#include "core/base/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>

#define FILES_MAX 256
#define PIECE_BYTES (1 << 20) // of one write(2)
#define DIRECT_BYTES 4096
#define WALK_FDS 16

static struct {
	uint64_t seed;
	char path[EXPECT_PATH_MAX];
} files[FILES_MAX];

static const char *path_of(int fd)
{
	return files[fd].path;
}

// --- Names ------------------------------------------------------------------------------------------------------------

void make_dir(const char *path)
{
	about_to();
	must(mkdir(path, 0777), "mkdir", path);
}

void make_dirs(const char *path)
{
	char part[PATH_MAX];

	about_to();
	for (const char *end = path; *end; end++) {
		end = strchrnul(end + 1, '/');
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		if (mkdir(part, 0777) && errno != EEXIST)
			rank_ends(errno, "mkdir %s", part);
		if (!*end)
			break;
	}
}

void remove_dir(const char *path)
{
	about_to();
	must(rmdir(path), "rmdir", path);
}

void remove_file(const char *path)
{
	about_to();
	must(unlink(path), "unlink", path);
}

void remove_if_there(const char *path)
{
	about_to();
	if (unlink(path) && errno != ENOENT)
		rank_ends(errno, "unlink %s", path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_DP)
		remove_dir(path);
	else
		remove_file(path);
	return 0;
}

void remove_tree(const char *path)
{
	if (nftw(path, remove_one, WALK_FDS, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
		rank_ends(errno, "rm -r %s", path);
}

void rename_over(const char *from, const char *to)
{
	about_to();
	must(rename(from, to), "rename to", to);
}

void make_symlink(const char *target, const char *path)
{
	about_to();
	must(symlink(target, path), "symlink", path);
}

void cannot_rename(const char *from, const char *to, int error)
{
	about_to();
	if (!rename(from, to))
		rank_ends(0, "rename %s to %s, which is to fail", from, to);
	if (errno != error)
		rank_ends(errno, "rename %s to %s is to fail otherwise (%s)", from, to, strerror(error));
}

void is_older(const char *path, const char *than)
{
	struct stat a, b;

	must(stat(path, &a), "stat", path);
	must(stat(than, &b), "stat", than);
	if (a.st_mtim.tv_sec > b.st_mtim.tv_sec ||
	    (a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec >= b.st_mtim.tv_nsec))
		rank_ends(0, "%s is not older than %s", path, than);
}

const char *path(const char *fmt, ...)
{
	char *text;
	va_list args;
	int len;

	va_start(args, fmt);
	len = vasprintf(&text, fmt, args);
	va_end(args);
	if (len < 0)
		rank_ends(ENOMEM, "%s", fmt);
	return text;
}

bool is_there(const char *path)
{
	struct stat st;

	if (!lstat(path, &st))
		return true;
	if (errno != ENOENT)
		rank_ends(errno, "stat %s", path);
	return false;
}

void list_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char byte;

	if (!dir)
		rank_ends(errno, "opendir %s", path);
	while ((entry = readdir(dir))) {
		int fd = entry->d_type == DT_REG ? openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC) : -1;

		if (entry->d_type == DT_REG)
			must(fd, "open", entry->d_name);
		if (fd >= 0)
			must(pread(fd, &byte, 1, 0), "pread", entry->d_name);
		if (fd >= 0)
			close(fd);
	}
	closedir(dir);
}

// --- Content ----------------------------------------------------------------------------------------------------------

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

// Each open for writing of each file in each attempt has bytes of its own, so that none can be taken for another's.
static void remember(int fd, const char *path, bool writes)
{
	static uint64_t opens;
	uint64_t seed =
		mix((uint64_t)me.shared->attempt << 32 | (uint64_t)(me.number + 1) << 24 | me.life << 20 | opens);

	opens += writes; // reading depends on what an attempt before this one has left
	for (const char *p = path; *p; p++)
		seed = mix(seed ^ (uint64_t)*p);
	if (fd >= FILES_MAX)
		rank_ends(EMFILE, "%s", path);
	files[fd].seed = seed;
	snprintf(files[fd].path, sizeof(files[fd].path), "%s", path);
}

static bool has_arrays(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');

	return *name != '.' && *name != '_' && !(dot && (!strcmp(dot, ".json") || !strcmp(dot, ".ocdbt")));
}

// Weights begin as array data does: without it there is no step.
static void fill(uint8_t *data, size_t len, int fd, uint64_t offset)
{
	static const char begin[] = "\x93NUMPY";
	uint64_t seed = files[fd].seed;

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(mix(seed + (offset + i) / 8) >> (offset + i) % 8 * 8);
	for (size_t i = 0; i < len && offset + i < strlen(begin) && has_arrays(files[fd].path); i++)
		data[i] = (uint8_t)begin[offset + i];
}

// Without O_CLOEXEC, so that a forked child has it whatever it does.
int open_mode(const char *path, int flags, unsigned mode)
{
	int fd;

	about_to();
	fd = open(path, flags, mode);
	if (fd < 0 && errno == EINVAL && (flags & O_DIRECT))
		fd = open(path, flags & ~O_DIRECT, mode);
	remember((int)must(fd, "open", path), path, (flags & O_ACCMODE) != O_RDONLY);
	return fd;
}

int open_file(const char *path, int flags)
{
	return open_mode(path, flags, 0666);
}

int open_direct(const char *path, int flags)
{
	return open_mode(path, flags | O_DIRECT, 0777);
}

static void write_all(int fd, const void *data, size_t len)
{
	while (len) {
		ssize_t n = must(write(fd, data, len), "write", path_of(fd));

		data = (const char *)data + n;
		len -= (size_t)n;
		__atomic_add_fetch(&me.shared->bytes, (uint64_t)n, __ATOMIC_SEQ_CST);
	}
}

// With children everything is written in two halves, and one comes and goes between them: what its close would complete
// is half.
void write_raw(int fd, const void *data, size_t len)
{
	size_t half = me.shared->forking && len > 1 ? len / 2 : 0;

	about_to();
	if (half > DIRECT_BYTES)
		half -= half % DIRECT_BYTES;
	if (half) {
		write_all(fd, data, half);
		fork_children();
	}
	write_all(fd, (const char *)data + half, len - half);
}

void write_bytes(int fd, size_t bytes)
{
	static uint8_t piece[PIECE_BYTES] __attribute__((aligned(DIRECT_BYTES)));
	bool append = must(fcntl(fd, F_GETFL), "fcntl", path_of(fd)) & O_APPEND;
	off_t offset = must(lseek(fd, 0, append ? SEEK_END : SEEK_CUR), "lseek", path_of(fd));

	for (size_t n; bytes; bytes -= n) {
		n = MIN(bytes, sizeof(piece));
		fill(piece, n, fd, (uint64_t)offset);
		write_raw(fd, piece, n);
		offset += (off_t)n;
	}
}

void write_vector(int fd, size_t bytes)
{
	static uint8_t pieces[2][PIECE_BYTES / 2];
	off_t offset = must(lseek(fd, 0, SEEK_CUR), "lseek", path_of(fd));
	struct iovec vector[2];

	about_to();
	for (size_t n; bytes; bytes -= n) {
		n = MIN(bytes, sizeof(pieces));
		fill(pieces[0], n / 2, fd, (uint64_t)offset);
		fill(pieces[1], n - n / 2, fd, (uint64_t)offset + n / 2);
		vector[0] = (struct iovec){pieces[0], n / 2};
		vector[1] = (struct iovec){pieces[1], n - n / 2};
		n = (size_t)must(writev(fd, vector, 2), "writev", path_of(fd));
		offset += (off_t)n;
		__atomic_add_fetch(&me.shared->bytes, n, __ATOMIC_SEQ_CST);
	}
}

void write_at(int fd, int64_t offset, size_t bytes)
{
	CLEANUP_FREE uint8_t *data = malloc(bytes);

	about_to();
	fill(data, bytes, fd, (uint64_t)offset);
	for (size_t done = 0; done < bytes;) {
		ssize_t n = must(pwrite(fd, data + done, bytes - done, offset + (int64_t)done), "pwrite", path_of(fd));

		done += (size_t)n;
		__atomic_add_fetch(&me.shared->bytes, (uint64_t)n, __ATOMIC_SEQ_CST);
	}
}

void write_text(int fd, const char *fmt, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list args;
	int len;

	va_start(args, fmt);
	len = vasprintf(&text, fmt, args);
	va_end(args);
	if (len < 0)
		rank_ends(ENOMEM, "%s", path_of(fd));
	write_raw(fd, text, (size_t)len);
}

void seek_to(int fd, int64_t offset, int whence)
{
	must(lseek(fd, offset, whence), "lseek", path_of(fd));
}

void set_size(int fd, int64_t bytes)
{
	about_to();
	must(ftruncate(fd, bytes), "ftruncate", path_of(fd));
}

void set_mode(int fd, unsigned mode)
{
	about_to();
	must(fchmod(fd, mode), "fchmod", path_of(fd));
}

void reserve(int fd, int64_t offset, int64_t bytes)
{
	about_to();
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, bytes) && errno != EOPNOTSUPP)
		rank_ends(errno, "fallocate %s", path_of(fd));
}

void sync_file(int fd)
{
	about_to();
	must(fsync(fd), "fsync", path_of(fd));
}

void sync_dir(const char *path)
{
	CLEANUP_FD int fd = (int)must(open(path, O_RDONLY | O_DIRECTORY), "open", path);

	about_to();
	must(fsync(fd), "fsync", path);
}

void close_file(int fd)
{
	about_to();
	must(close(fd), "close", path_of(fd));
}

void ask_room(const char *path)
{
	struct statfs st;

	must(statfs(path, &st), "statfs", path);
	if (!st.f_blocks || !st.f_bsize)
		rank_ends(0, "statfs %s has no room at all", path);
}

void put_file(const char *path, size_t bytes)
{
	int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);

	write_bytes(fd, bytes);
	close_file(fd);
}

void put_text(const char *path, const char *text)
{
	int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);

	write_text(fd, "%s", text);
	close_file(fd);
}

void put_synced(const char *path, size_t bytes)
{
	int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);

	write_bytes(fd, bytes);
	sync_file(fd);
	close_file(fd);
}

// --- Locks ------------------------------------------------------------------------------------------------------------

static void set_lock(int fd, int command, short type)
{
	struct flock whole = {.l_type = type, .l_whence = SEEK_SET};

	must(fcntl(fd, command, &whole), "fcntl lock", path_of(fd));
}

void ofd_lock(int fd)
{
	set_lock(fd, F_OFD_SETLKW, F_WRLCK);
}

void ofd_unlock(int fd)
{
	set_lock(fd, F_OFD_SETLK, F_UNLCK);
}

void posix_lock(int fd)
{
	set_lock(fd, F_SETLKW, F_WRLCK);
}

void posix_unlock(int fd)
{
	set_lock(fd, F_SETLK, F_UNLCK);
}

void lock_exclusive(int fd)
{
	must(flock(fd, LOCK_EX | LOCK_NB), "flock", path_of(fd));
}

void unlock(int fd)
{
	must(flock(fd, LOCK_UN), "flock", path_of(fd));
}

void same_file(int fd, int other)
{
	struct stat a, b;

	must(fstat(fd, &a), "fstat", path_of(fd));
	must(fstat(other, &b), "fstat", path_of(other));
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		rank_ends(0, "%s: two files, where it was opened twice", path_of(fd));
}

// --- What a reader has ------------------------------------------------------------------------------------------------

static void digest_of(const struct kept *k, uint8_t *ret_digest)
{
	CLEANUP_FREE uint8_t *data = malloc(k->bytes + 1);

	if (k->map)
		ckpt_sha256(k->map, k->bytes, ret_digest);
	else if (must(pread(k->fd, data, k->bytes, 0), "pread", path_of(k->fd)) != (ssize_t)k->bytes)
		rank_ends(0, "%s is shorter than it was", path_of(k->fd));
	else
		ckpt_sha256(data, k->bytes, ret_digest);
}

static struct kept keep(const char *path, bool mapped)
{
	struct kept k = {.fd = open_file(path, O_RDONLY)};
	struct stat st;

	must(fstat(k.fd, &st), "fstat", path);
	k.bytes = (size_t)st.st_size;
	if (mapped) {
		k.map = mmap(NULL, k.bytes, PROT_READ, MAP_PRIVATE, k.fd, 0);
		if (k.map == MAP_FAILED)
			rank_ends(errno, "mmap %s", path);
	}
	digest_of(&k, k.digest);
	return k;
}

struct kept keep_open(const char *path)
{
	return keep(path, false);
}

struct kept keep_mapped(const char *path)
{
	return keep(path, true);
}

void still_same(const struct kept *k)
{
	uint8_t digest[CKPT_SHA256_LEN];

	if (k->map) // what is in memory anyway would prove nothing
		must(madvise(k->map, k->bytes, MADV_DONTNEED), "madvise", path_of(k->fd));
	digest_of(k, digest);
	if (memcmp(digest, k->digest, sizeof(digest)))
		rank_ends(0, "%s has other bytes for who had it open", path_of(k->fd));
}

void let_kept_go(struct kept *k)
{
	if (k->map)
		munmap(k->map, k->bytes);
	close(k->fd);
}
