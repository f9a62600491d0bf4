// A libcufile.so for tests: files are read by pread(2) into the memory of the host device. Calls are counted, and fail on demand.
//
// The shapes are those of NVIDIA's cuFile API, written down here once more, so that the tests see where ours differ.
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct {
	int err;
	int cu_err;
} CUfileError_t;

typedef struct {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
} CUfileDescr_t;

struct fake_cufile {
	atomic_uint calls, fail_at; // those from fail_at on fail; 0: none does
	int open_error;             // of cuFileDriverOpen
	size_t most;                // bytes of a read; 0: all
	atomic_uint reads, files;   // files: registered and not yet deregistered
};

extern struct fake_cufile fake_cufile;
struct fake_cufile fake_cufile;

CUfileError_t cuFileDriverOpen(void);
CUfileError_t cuFileHandleRegister(void **fh, CUfileDescr_t *descr);
void cuFileHandleDeregister(void *fh);
ssize_t cuFileRead(void *fh, void *buf, size_t size, off_t file_offset, off_t buf_offset);

// From that call on, so that each reader meets one that fails, however late it hears of the first.
static int fails(void)
{
	unsigned call = atomic_fetch_add(&fake_cufile.calls, 1) + 1, at = atomic_load(&fake_cufile.fail_at);

	return at && call >= at;
}

CUfileError_t cuFileDriverOpen(void)
{
	return (CUfileError_t){fake_cufile.open_error, 0};
}

// As the real one it takes only what was opened with O_DIRECT. Its own descriptor is without: a real GPU needs no aligned offsets.
CUfileError_t cuFileHandleRegister(void **fh, CUfileDescr_t *descr)
{
	char path[64];
	int *own;

	if (fails() || descr->type != 1 || descr->fs_ops || !(fcntl(descr->handle.fd, F_GETFL) & O_DIRECT))
		return (CUfileError_t){5020, 0};
	own = malloc(sizeof(*own));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", descr->handle.fd);
	*own = open(path, O_RDONLY | O_CLOEXEC);
	*fh = own;
	atomic_fetch_add(&fake_cufile.files, 1);
	return (CUfileError_t){0, 0};
}

void cuFileHandleDeregister(void *fh)
{
	close(*(int *)fh);
	free(fh);
	atomic_fetch_sub(&fake_cufile.files, 1);
}

// A read that fails has written some of it.
ssize_t cuFileRead(void *fh, void *buf, size_t size, off_t file_offset, off_t buf_offset)
{
	size_t n = fake_cufile.most && fake_cufile.most < size ? fake_cufile.most : size;
	unsigned failing = (unsigned)fails();

	if (failing) {
		(void)!pread(*(int *)fh, (char *)buf + buf_offset, n / 2, 0);
		errno = EIO;
		return atomic_load(&fake_cufile.fail_at) % 2 ? -1 : -5010;
	}
	atomic_fetch_add(&fake_cufile.reads, 1);
	return pread(*(int *)fh, (char *)buf + buf_offset, n, file_offset);
}
