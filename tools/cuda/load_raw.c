#include "tools/cuda/load_raw.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHESTAT 451 // of each machine; headers before Linux 6.5 do not name it

static bool is_cached(int fd, uint64_t offset, uint64_t bytes)
{
	struct {
		uint64_t offset, bytes;
	} range = {offset, bytes};
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} pages = {0};

	if (syscall(CACHESTAT, fd, &range, &pages, 0))
		return true;
	return pages.cached >= bytes / (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

bool (*ckpt_load_raw_is_cached)(int fd, uint64_t offset, uint64_t bytes) = is_cached;

static bool set_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_DIRECT);
}

static void close_file(struct ckpt_load_raw *r)
{
	if (r->handle)
		ckpt_cufile_deregister(r->cufile, r->handle);
	r->handle = NULL;
	if (r->is_open)
		ckpt_sys.close(r->fd);
	r->is_open = false;
}

// The file of one array is mostly that of the one before.
static bool open_file(struct ckpt_load_raw *r, size_t array)
{
	struct stat st;
	int fd;

	if (ckpt_array_set_open_raw(r->set, array, &fd, &r->offset))
		return false;
	if (fstat(fd, &st) || !set_direct(fd)) {
		ckpt_sys.close(fd);
		return false;
	}
	if (r->is_open && st.st_dev == r->dev && st.st_ino == r->ino) {
		ckpt_sys.close(fd);
		return true;
	}
	close_file(r);
	r->is_open = true;
	r->fd = fd;
	r->dev = st.st_dev;
	r->ino = st.st_ino;
	return true;
}

bool ckpt_load_raw_find(struct ckpt_load_raw *r, size_t array, uint64_t begin, uint64_t bytes)
{
	bool always = r->flags & CKPT_CUDA_DIRECT;

	if (r->flags & CKPT_CUDA_BUFFERED || (!always && bytes < CKPT_LOAD_DIRECT_BYTES))
		return false;
	if (!r->looked || r->array != array) {
		r->has = open_file(r, array);
		r->array = array;
		r->looked = true;
	}
	return r->has && (always || !ckpt_load_raw_is_cached(r->fd, r->offset + begin, bytes));
}

bool ckpt_load_raw_read(struct ckpt_load_raw *r, uint64_t begin, uint64_t bytes, uint8_t *buffer, uint64_t room,
			uint8_t **ret_at)
{
	uint64_t offset = r->offset + begin, front = offset % CKPT_POOL_ALIGN;
	uint64_t whole = (front + bytes + CKPT_POOL_ALIGN - 1) / CKPT_POOL_ALIGN * CKPT_POOL_ALIGN;
	ssize_t n;

	if (whole > room)
		return false;
	n = ckpt_sys.pread(r->fd, buffer, whole, (off_t)(offset - front)); // fewer at the end of the file
	if (n < 0 || (uint64_t)n < front + bytes) {
		r->has = r->has && n != -EINVAL; // a disk of larger blocks
		return false;
	}
	*ret_at = buffer + front;
	return true;
}

bool ckpt_load_raw_register(struct ckpt_load_raw *r)
{
	void *handle;

	if (!r->handle && !ckpt_cufile_register(r->cufile, r->fd, &handle))
		r->handle = handle;
	return r->handle;
}

bool ckpt_load_raw_read_device(struct ckpt_load_raw *r, uint64_t begin, uint64_t bytes, void *to)
{
	return !ckpt_cufile_read(r->cufile, r->handle, to, bytes, r->offset + begin);
}

void ckpt_load_raw_done(struct ckpt_load_raw *r)
{
	close_file(r);
	r->looked = false;
}
