#include "tools/cuda/cufile.h"

#include "core/base/util.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define SUCCESS 0
#define DRIVER_ALREADY_OPEN 5026
#define TYPE_OPAQUE_FD 1

// --- The library's own shapes -----------------------------------------------------------------------------------------------

struct cufile_error { // CUfileError_t
	int error;    // CUfileOpError, from 5001
	int cuda;     // CUresult
};

struct cufile_descriptor { // CUfileDescr_t
	int type;          // CUfileFileHandleType
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops; // of filesystems in user space; NULL
};

struct ckpt_cufile {
	struct cufile_error (*driver_open)(void);
	struct cufile_error (*handle_register)(void **handle, struct cufile_descriptor *descriptor);
	void (*handle_deregister)(void *handle);
	// Bytes that were read; -1: errno says why; below it: a CUfileOpError, negated.
	ssize_t (*read)(void *handle, void *device_pointer, size_t bytes, off_t file_offset, off_t device_offset);
};

const char *ckpt_cufile_library = "libcufile.so.0", *ckpt_cufile_driver = "/proc/driver/nvidia-fs/version";

// --- Opening ----------------------------------------------------------------------------------------------------------------

// The first line of the driver's file.
static bool read_driver(char *text, size_t size)
{
	int fd = open(ckpt_cufile_driver, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[MAX(n, 0)] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return fd >= 0;
}

static bool load(struct ckpt_cufile *c, char *why)
{
	const struct {
		const char *name;
		void *function;
	} names[] = {
		{"cuFileDriverOpen", &c->driver_open},
		{"cuFileHandleRegister", &c->handle_register},
		{"cuFileHandleDeregister", &c->handle_deregister},
		{"cuFileRead", &c->read},
	};
	void *library = dlopen(ckpt_cufile_library, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(why, CKPT_CUFILE_WHY_MAX, "%s", dlerror());
		return false;
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		void *function = dlsym(library, names[i].name);

		if (!function) {
			snprintf(why, CKPT_CUFILE_WHY_MAX, "%s has no %s", ckpt_cufile_library, names[i].name);
			return false;
		}
		memcpy(names[i].function, &function, sizeof(function));
	}
	return true; // it stays loaded: its threads and its driver do, too
}

int ckpt_cufile_open(char *why, struct ckpt_cufile **ret_cufile)
{
	struct ckpt_cufile found = {0}, *c;
	struct cufile_error e;
	char driver[64];

	if (!read_driver(driver, sizeof(driver))) {
		snprintf(why, CKPT_CUFILE_WHY_MAX, "the driver nvidia-fs is not loaded");
		return -ENOENT;
	}
	if (!load(&found, why))
		return -ENOENT;
	e = found.driver_open();
	if (e.error != SUCCESS && e.error != DRIVER_ALREADY_OPEN) {
		snprintf(why, CKPT_CUFILE_WHY_MAX, "cuFileDriverOpen failed with %d, CUDA %d", e.error, e.cuda);
		return -ENOENT;
	}
	c = ckpt_calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = found;
	snprintf(why, CKPT_CUFILE_WHY_MAX, "driver nvidia-fs, %s", driver);
	*ret_cufile = c;
	return 0;
}

void ckpt_cufile_free(struct ckpt_cufile *c)
{
	free(c);
}

// --- Files ------------------------------------------------------------------------------------------------------------------

int ckpt_cufile_register(struct ckpt_cufile *c, int fd, void **ret_handle)
{
	struct cufile_descriptor d = {.type = TYPE_OPAQUE_FD, .handle.fd = fd};

	return c->handle_register(ret_handle, &d).error == SUCCESS ? 0 : -EIO;
}

void ckpt_cufile_deregister(struct ckpt_cufile *c, void *handle)
{
	c->handle_deregister(handle);
}

int ckpt_cufile_read(struct ckpt_cufile *c, void *handle, void *to, size_t bytes, uint64_t offset)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = c->read(handle, to, bytes - done, (off_t)(offset + done), (off_t)done);

		if (n <= 0 || (size_t)n > bytes - done)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}
