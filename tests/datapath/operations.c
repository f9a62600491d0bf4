// What is done to the file, and how often. Each operation draws its arguments, makes the call, brings the shadow to the
// same, and compares what was read.
#include "tests/datapath/exercise.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define PIPE_BYTES (64 << 10)
#define PIECES 4

static void set_shown(struct exercise *x, const char *what, size_t at, size_t len)
{
	note(x, "%s %zu+%zu of %zu", what, at, len, x->file.size);
}

// Of what is there already; false: the file is empty.
static bool draw_inside(struct exercise *x, const char *what, size_t *ret_at, size_t *ret_len)
{
	draw_range(x, x->file.size, ret_at, ret_len);
	set_shown(x, what, *ret_at, *ret_len);
	return *ret_len > 0;
}

// --- read(2), write(2) ------------------------------------------------------------------------------------------------

// Also over and past the end.
static void do_read(struct exercise *x)
{
	size_t at, len, want;
	ssize_t n;

	draw_range(x, x->bytes_max, &at, &len);
	set_shown(x, "read", at, len);
	n = pread(x->file.fd, x->got + at, len, (off_t)at);
	must(x, n >= 0, "pread");
	want = at < x->file.size ? MIN(len, x->file.size - at) : 0;
	if ((size_t)n != want)
		violated(x, "pread %zu+%zu: %zd bytes, not %zu", at, len, n, want);
	must_equal(x, x->file.shadow, x->got, at, want, "pread");
}

static void do_write(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t at, len;
	ssize_t n;

	draw_range(x, x->bytes_max, &at, &len);
	set_shown(x, "write", at, len);
	subject_changes(s);
	fill(x, s, at, len);
	n = pwrite(s->fd, s->shadow + at, len, (off_t)at);
	must(x, n == (ssize_t)len, "pwrite");
}

// Cuts the range into pieces of a vector.
static int cut(struct exercise *x, uint8_t *bytes, size_t len, struct iovec *ret_pieces)
{
	int count = 0;

	while (len) {
		size_t some = count == PIECES - 1 ? len : 1 + pick(x, len);

		ret_pieces[count++] = (struct iovec){bytes, some};
		bytes += some;
		len -= some;
	}
	return count;
}

static void do_vectors(struct exercise *x)
{
	struct iovec pieces[PIECES];
	struct subject *s = &x->file;
	size_t at, len;
	int count;

	draw_range(x, x->bytes_max, &at, &len);
	set_shown(x, "pwritev, preadv", at, len);
	subject_changes(s);
	fill(x, s, at, len);
	count = cut(x, s->shadow + at, len, pieces);
	must(x, pwritev(s->fd, pieces, count, (off_t)at) == (ssize_t)len, "pwritev");
	count = cut(x, x->got + at, len, pieces);
	must(x, preadv(s->fd, pieces, count, (off_t)at) == (ssize_t)len, "preadv");
	must_equal(x, s->shadow, x->got, at, len, "preadv");
}

static void do_append(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t len = pick_some(x, 3 * PAGE, x->bytes_max - s->size);
	CLEANUP_FD int fd = -1;

	set_shown(x, "append", s->size, len);
	if (!len)
		return;
	fd = open(s->path, O_WRONLY | O_APPEND | O_CLOEXEC);
	must(x, fd >= 0, "open with O_APPEND");
	subject_changes(s);
	fill(x, s, s->size, len);
	must(x, write(fd, s->shadow + s->size - len, len) == (ssize_t)len, "write with O_APPEND");
	must(x, !close(TAKE_FD(fd)), "close with O_APPEND");
}

// From nothing, as who saves it anew does.
static void do_rewrite(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t len = 1 + pick(x, x->bytes_max);
	CLEANUP_FD int fd = -1;

	set_shown(x, "rewrite", 0, len);
	subject_close(x, s);
	fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	must(x, fd >= 0, "open with O_TRUNC");
	subject_resize(s, 0);
	subject_changes(s);
	fill(x, s, 0, len);
	for (size_t at = 0; at < len;) {
		size_t some = pick_some(x, 16 * PAGE, len - at);

		must(x, write(fd, s->shadow + at, some) == (ssize_t)some, "write after O_TRUNC");
		at += some;
	}
	must(x, !close(TAKE_FD(fd)), "close after O_TRUNC");
	subject_open(x, s, O_RDWR);
}

// --- Mappings ---------------------------------------------------------------------------------------------------------

static uint8_t *map_range(struct exercise *x, size_t at, size_t len, int protection)
{
	size_t from = at / PAGE * PAGE;
	uint8_t *map = mmap(NULL, at + len - from, protection, MAP_SHARED, x->file.fd, (off_t)from);

	must(x, map != MAP_FAILED, "mmap");
	return map;
}

static void do_map_read(struct exercise *x)
{
	size_t at, len, from;
	uint8_t *map;

	if (!draw_inside(x, "read by a new mapping", &at, &len))
		return;
	from = at / PAGE * PAGE;
	map = map_range(x, at, len, PROT_READ);
	memcpy(x->got + at, map + (at - from), len);
	must(x, !munmap(map, at + len - from), "munmap");
	must_equal(x, x->file.shadow, x->got, at, len, "mapped");
}

static void do_map_write(struct exercise *x)
{
	static const char *const how[] = {"store by a new mapping, MS_SYNC", "store by a new mapping, MS_ASYNC",
					  "store by a new mapping"};
	size_t sync = pick(x, ARRAY_LEN(how)), at, len, from;
	uint8_t *map;

	if (!draw_inside(x, how[sync], &at, &len))
		return;
	from = at / PAGE * PAGE;
	map = map_range(x, at, len, PROT_READ | PROT_WRITE);
	if (!sync)
		subject_changes(&x->file);
	fill(x, &x->file, at, len);
	memcpy(map + (at - from), x->file.shadow + at, len);
	if (sync < 2)
		must(x, !msync(map, at + len - from, sync ? MS_ASYNC : MS_SYNC), "msync");
	must(x, !munmap(map, at + len - from), "munmap");
}

// A mapping that stays while the file is written, cut and grown otherwise.
static void do_map_keep(struct exercise *x)
{
	struct subject *s = &x->file;

	if (s->map) {
		note(x, "unmap");
		subject_unmap(x, s);
		return;
	}
	note(x, "map");
	s->map = mmap(NULL, FILE_BYTES_MAX, PROT_READ | (x->read_only ? 0 : PROT_WRITE), MAP_SHARED, s->fd, 0);
	must(x, s->map != MAP_FAILED, "mmap");
}

static void do_look(struct exercise *x)
{
	size_t at, len;

	if (x->file.map && draw_inside(x, "look at the mapping", &at, &len))
		must_equal(x, x->file.shadow, x->file.map, at, len, "the mapping");
}

static void do_poke(struct exercise *x)
{
	size_t at, len;

	if (!x->file.map || !draw_inside(x, "store into the mapping", &at, &len))
		return;
	fill(x, &x->file, at, len);
	memcpy(x->file.map + at, x->file.shadow + at, len);
	if (!pick(x, 4))
		must(x, !msync(x->file.map, FILE_BYTES_MAX, MS_SYNC), "msync");
}

// --- Sizes and holes --------------------------------------------------------------------------------------------------

static void do_truncate(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t size = pick(x, 3) ? pick(x, x->bytes_max + 1) : s->size - pick(x, MIN(s->size, 2 * PAGE) + 1);
	bool by_name = !pick(x, 2);

	set_shown(x, by_name ? "truncate" : "ftruncate", size, 0);
	subject_changes(s);
	must(x, !(by_name ? truncate(s->path, (off_t)size) : ftruncate(s->fd, (off_t)size)), "truncate");
	subject_resize(s, size);
}

static void allocate(struct exercise *x, int mode, const char *what, bool clears)
{
	struct subject *s = &x->file;
	size_t at, len;

	draw_range(x, x->bytes_max, &at, &len);
	set_shown(x, what, at, len);
	must(x, !fallocate(s->fd, mode, (off_t)at, (off_t)len), what);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		s->size = MAX(s->size, at + len);
	if (clears && at < s->size)
		memset(s->shadow + at, 0, MIN(len, s->size - at));
}

static void do_allocate(struct exercise *x)
{
	if (pick(x, 2))
		allocate(x, 0, "fallocate", false);
	else
		allocate(x, FALLOC_FL_KEEP_SIZE, "fallocate with KEEP_SIZE", false);
}

static void do_punch(struct exercise *x)
{
	if (x->punches)
		allocate(x, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch a hole", true);
}

static void do_zero(struct exercise *x)
{
	if (!x->zeroes)
		return;
	if (pick(x, 2))
		allocate(x, FALLOC_FL_ZERO_RANGE, "zero", true);
	else
		allocate(x, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, "zero with KEEP_SIZE", true);
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	return !len || (!bytes[0] && !memcmp(bytes, bytes + 1, len - 1));
}

// A hole may be told as data, data never as a hole. What was stored into a mapping and not written yet is the kernel's
// affair: through FUSE the daemon is asked, who does not know of it.
static void do_seek(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t at = pick(x, s->size);
	off_t data, hole;

	set_shown(x, "seek data and hole", at, 0);
	must(x, !fdatasync(s->fd), "fdatasync");
	data = lseek(s->fd, (off_t)at, SEEK_DATA);
	if (!s->size || data < 0) {
		if (data >= 0 || errno != ENXIO)
			violated(x, "SEEK_DATA %zu: %lld, %s", at, (long long)data, strerror(errno));
		data = (off_t)s->size;
	}
	if (data < (off_t)at || data > (off_t)s->size || !is_zero(s->shadow + at, (size_t)data - at))
		violated(x, "SEEK_DATA %zu: %lld, and there are bytes before it", at, (long long)data);
	hole = s->size ? lseek(s->fd, (off_t)at, SEEK_HOLE) : 0;
	if (s->size && (hole < (off_t)at || hole > (off_t)s->size))
		violated(x, "SEEK_HOLE %zu: %lld", at, (long long)hole);
	if (lseek(s->fd, (off_t)s->size, SEEK_DATA) >= 0 || errno != ENXIO)
		violated(x, "SEEK_DATA at the end finds something");
}

// --- Names ------------------------------------------------------------------------------------------------------------

static void do_rename(struct exercise *x)
{
	struct subject *s = &x->file;
	bool back = pick(x, 2);
	char was[PATH_MAX];
	struct stat st;

	note(x, "rename to %s%s", strrchr(s->other, '/') + 1, back ? " and back" : "");
	must(x, !rename(s->path, s->other), "rename");
	memcpy(was, s->path, sizeof(was));
	memcpy(s->path, s->other, sizeof(was));
	memcpy(s->other, was, sizeof(was));
	if (!stat(was, &st) || errno != ENOENT)
		violated(x, "%s is there after its rename", was);
	must(x, !stat(s->path, &st), "stat after a rename");
	if ((size_t)st.st_size != s->size)
		violated(x, "renamed: %lld bytes, not %zu", (long long)st.st_size, s->size);
	if (!back)
		return;
	must(x, !rename(s->path, s->other), "rename back");
	memcpy(s->other, s->path, sizeof(was));
	memcpy(s->path, was, sizeof(was));
}

// A second name, by which it is written.
static void do_link(struct exercise *x)
{
	struct subject *s = &x->file;
	CLEANUP_FD int fd = -1;
	size_t at, len;

	draw_range(x, x->bytes_max, &at, &len);
	set_shown(x, "write by another name", at, len);
	must(x, !link(s->path, s->other), "link");
	fd = open(s->other, O_RDWR | O_CLOEXEC);
	must(x, fd >= 0, "open of another name");
	subject_changes(s);
	fill(x, s, at, len);
	must(x, pwrite(fd, s->shadow + at, len, (off_t)at) == (ssize_t)len, "pwrite by another name");
	must(x, !unlink(s->other), "unlink of another name");
	must(x, pread(s->fd, x->got + at, len, (off_t)at) == (ssize_t)len, "pread of what was written by another name");
	must_equal(x, s->shadow, x->got, at, len, "written by another name");
}

static bool is_earlier(struct timespec a, struct timespec b)
{
	return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static void do_stat(struct exercise *x)
{
	struct subject *s = &x->file;
	bool by_name = pick(x, 2);
	struct stat st;

	note(x, by_name ? "stat" : "fstat");
	must(x, !(by_name ? stat(s->path, &st) : fstat(s->fd, &st)), "stat");
	if ((size_t)st.st_size != s->size || st.st_nlink != 1)
		violated(x, "stat: %lld bytes and %lu names, not %zu and 1", (long long)st.st_size,
			 (unsigned long)st.st_nlink, s->size);
	if (is_earlier(st.st_mtim, s->mtime))
		violated(x, "its time went back");
	if (s->changed && is_earlier(st.st_mtim, s->then))
		violated(x, "it was changed, and its time is older than that");
	s->mtime = st.st_mtim;
	s->changed = false;
}

// --- Copies in the kernel ---------------------------------------------------------------------------------------------

static void copy(struct exercise *x, struct subject *in, size_t from, struct subject *out, size_t to, size_t len)
{
	off_t at_in = (off_t)from, at_out = (off_t)to;

	if (!len)
		return;
	subject_changes(out);
	for (size_t left = len; left;) {
		ssize_t n = copy_file_range(in->fd, &at_in, out->fd, &at_out, left, 0);

		must(x, n > 0, "copy_file_range");
		left -= (size_t)n;
	}
	memcpy(out->shadow + to, in->shadow + from, len);
	out->size = MAX(out->size, to + len);
	x->moved += len;
}

static void do_copy_within(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t from, to, len;

	if (!draw_inside(x, "copy within, from", &from, &len))
		return;
	to = pick(x, x->bytes_max);
	len = MIN(len, x->bytes_max - to);
	len = MIN(len, from > to ? from - to : to - from); // they may not overlap
	note(x, "  to %zu+%zu", to, len);
	if (len)
		copy(x, s, from, s, to, len);
}

static void do_copy_between(struct exercise *x)
{
	bool here = pick(x, 2);
	struct subject *in = here ? &x->pair : &x->file, *out = here ? &x->file : &x->pair;
	size_t from, to, len;

	if (x->pair.fd < 0)
		subject_open(x, &x->pair, O_RDWR | O_CREAT);
	draw_range(x, in->size, &from, &len);
	to = pick(x, x->bytes_max);
	len = MIN(len, x->bytes_max - to);
	note(x, "copy %s the other file %zu+%zu to %zu", here ? "from" : "to", from, len, to);
	copy(x, in, from, out, to, len);
	must(x, pread(out->fd, x->got + to, len, (off_t)to) == (ssize_t)len, "pread of what was copied");
	must_equal(x, out->shadow, x->got, to, len, "copied");
}

static void do_send(struct exercise *x)
{
	bool splices = pick(x, 2);
	size_t at, len;
	off_t from;
	ssize_t n;

	if (!draw_inside(x, splices ? "splice to a pipe" : "sendfile to a pipe", &at, &len))
		return;
	len = MIN(len, (size_t)PIPE_BYTES / 2); // in pages that are not full a pipe holds less
	from = (off_t)at;
	n = splices ? splice(x->file.fd, &from, x->pipe[1], NULL, len, 0)
		    : sendfile(x->pipe[1], x->file.fd, &from, len);
	must(x, n > 0, "sendfile or splice");
	must(x, read(x->pipe[0], x->got + at, (size_t)n) == n, "read of a pipe");
	must_equal(x, x->file.shadow, x->got, at, (size_t)n, "sent");
}

static void do_splice_in(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t at, len;
	off_t to;

	draw_range(x, x->bytes_max, &at, &len);
	len = MIN(len, (size_t)PIPE_BYTES / 2);
	set_shown(x, "splice from a pipe", at, len);
	subject_changes(s);
	fill(x, s, at, len);
	to = (off_t)at;
	must(x, write(x->pipe[1], s->shadow + at, len) == (ssize_t)len, "write to a pipe");
	for (size_t left = len; left;) {
		ssize_t n = splice(x->pipe[0], NULL, s->fd, &to, left, 0);

		must(x, n > 0, "splice from a pipe");
		left -= (size_t)n;
	}
}

// --- Syncs, opens -----------------------------------------------------------------------------------------------------

static void do_sync(struct exercise *x)
{
	size_t how = pick(x, 8);

	note(x, "sync %zu", how);
	if (how < 3)
		must(x, !fsync(x->file.fd), "fsync");
	else if (how < 6)
		must(x, !fdatasync(x->file.fd), "fdatasync");
	else if (how < 7)
		must(x, !sync_file_range(x->file.fd, 0, 0, SYNC_FILE_RANGE_WRITE), "sync_file_range");
	else
		must(x, !syncfs(x->file.fd), "syncfs");
}

static void do_drop(struct exercise *x)
{
	note(x, "drop pages");
	must(x, !fdatasync(x->file.fd), "fdatasync");
	must(x, !posix_fadvise(x->file.fd, 0, 0, POSIX_FADV_DONTNEED), "posix_fadvise");
}

static void do_reopen(struct exercise *x)
{
	static const int more[] = {0, 0, 0, 0, 0, O_SYNC, O_DSYNC, O_NOATIME};
	int flags = more[pick(x, ARRAY_LEN(more))];

	note(x, "reopen with flags %#x", (unsigned)flags);
	subject_close(x, &x->file);
	subject_open(x, &x->file, (x->read_only ? O_RDONLY : O_RDWR) | flags);
}

// To a mount each close may be the last one, and what is added to a committed step is published by it: what is written
// from then on belongs to the next.
static void do_close_another(struct exercise *x)
{
	int fd = dup(x->file.fd);

	note(x, "close a duplicate");
	must(x, fd >= 0, "dup");
	must(x, !close(fd), "close of a duplicate");
	x->published = x->place == PLACE_AMEND;
}

// --- All --------------------------------------------------------------------------------------------------------------

enum {
	READS = 1 << 0,       // possible before the first change
	REOPENS = 1 << 1,     // not where closing the file publishes it
	UNPUBLISHED = 1 << 3, // on what is published already a rename reopens the step, and ftruncate has ESTALE
	MAKES_NAMES = 1 << 2, // where a second name is one of the same file
};

static const struct operation {
	void (*run)(struct exercise *x);
	unsigned weight, flags;
} operations[] = {
	{do_read, 14, READS},
	{do_write, 14, 0},
	{do_vectors, 3, 0},
	{do_append, 2, REOPENS},
	{do_rewrite, 1, REOPENS},
	{do_map_read, 5, READS},
	{do_map_write, 5, 0},
	{do_map_keep, 2, READS},
	{do_look, 6, READS},
	{do_poke, 6, 0},
	{do_truncate, 5, UNPUBLISHED},
	{do_allocate, 3, 0},
	{do_punch, 3, 0},
	{do_zero, 2, 0},
	{do_seek, 2, READS},
	{do_rename, 2, UNPUBLISHED},
	{do_link, 1, MAKES_NAMES},
	{do_stat, 6, READS},
	{do_copy_within, 3, 0},
	{do_copy_between, 3, 0},
	{do_send, 4, READS},
	{do_splice_in, 2, 0},
	{do_sync, 2, READS},
	{do_drop, 2, READS},
	{do_reopen, 2, READS | REOPENS},
	{do_close_another, 1, READS},
	{direct_read, 3, READS},
	{direct_write, 3, 0},
	{aio_read, 2, READS},
	{aio_write, 2, 0},
};

static bool is_possible(const struct exercise *x, const struct operation *o)
{
	if (x->read_only && !(o->flags & READS))
		return false;
	if ((o->flags & UNPUBLISHED) && x->published)
		return false;
	if ((o->flags & REOPENS) && x->place == PLACE_AMEND)
		return false;
	return !(o->flags & MAKES_NAMES) || x->place == PLACE_STAGED || x->place == PLACE_PLAIN;
}

void operate(struct exercise *x)
{
	const struct operation *o;
	size_t total = 0, at;

	for (size_t i = 0; i < ARRAY_LEN(operations); i++)
		total += operations[i].weight;
	do {
		at = pick(x, total);
		for (o = operations; at >= o->weight; o++)
			at -= o->weight;
	} while (!is_possible(x, o));
	o->run(x);
}
