// cuFile, the library of GPUDirect Storage: bytes of a file go from the disk into the memory of a GPU, past that of the machine.
//
// It is loaded by dlopen(3), so that nothing here needs it. The functions are declared in cufile.c, by NVIDIA's "cuFile API Reference Guide"
// (docs.nvidia.com/gpudirect-storage/api-reference-guide): no header of NVIDIA is included. It is used only where the driver nvidia-fs is loaded: without
// that the library reads into memory of its own and copies, which the pool does as well.
//
// Calling sequence: open(), once for a pool; register() for each descriptor, read() as often as wanted, deregister() before the descriptor is closed;
// free(). The driver stays open to the end of the process, as a program may use it, too.
// Ownership: the caller's. Threads: any. Blocking: open() and read(). Errors: -ENOENT with why; -EIO: any refusal of the library.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CKPT_CUFILE_WHY_MAX 256

struct ckpt_cufile;

// The places of the library. Tests have one of their own.
extern const char *ckpt_cufile_library, *ckpt_cufile_driver;

// why: CKPT_CUFILE_WHY_MAX bytes: the version of the driver, or the reason of -ENOENT.
int ckpt_cufile_open(char *why, struct ckpt_cufile **ret_cufile);
void ckpt_cufile_free(struct ckpt_cufile *c); // NULL is fine

// fd: a regular file, with O_DIRECT.
int ckpt_cufile_register(struct ckpt_cufile *c, int fd, void **ret_handle);
void ckpt_cufile_deregister(struct ckpt_cufile *c, void *handle);
// All of these bytes, into memory of the calling thread's current device; they are there when it returns. Offsets need no alignment.
int ckpt_cufile_read(struct ckpt_cufile *c, void *handle, void *to, size_t bytes, uint64_t offset);
