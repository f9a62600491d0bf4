// libckptfs_cuda: arrays in the memory of GPUs, saved into a step and loaded from one. Training waits for the copy out of device memory,
// not for the disk.
//
//	struct ckpt_cuda_pool *pool;
//	struct ckpt_cuda_save *save;
//	char why[CKPT_CUDA_WHY_MAX];
//	int rc = ckpt_cuda_pool_new(UINT64_C(4) << 30, NULL, 0, why, &pool);    // once: 4 GiB of pinned memory
//
//	struct ckpt_cuda_array arrays[] = {{"layer.weight", "bfloat16", 2, shape}, ...};
//	struct ckpt_cuda_plan plan = {"safetensors", arrays, count, 0};
//	rc = ckpt_cuda_save_step(pool, ckpt, "run7/2000", 0, &plan, why, &save);
//	rc = ckpt_cuda_save_array(save, "layer.weight", pointer, bytes, stream);   // each array, in any order; returns at once
//	rc = ckpt_cuda_captured(save);                                             // arrays may change again
//	rc = ckpt_cuda_commit(save, "{\"metrics\":{\"loss\":1.5}}");               // the step is listed, whole, and on disk
//	ckpt_cuda_save_free(save);
//
//	struct ckpt_cuda_load *load;
//	rc = ckpt_cuda_load_step(pool, ckpt, "run7/latest", why, &load);
//	rc = ckpt_cuda_load_array(load, "layer.weight", pointer, bytes, stream);   // returns at once
//	rc = ckpt_cuda_loaded(load);                                               // all arrays are in place
//	ckpt_cuda_load_free(load);
//
// Order: an array is copied behind all that its stream had been given when ckpt_cuda_save_array() or ckpt_cuda_load_array() was called.
// A stream is a cudaStream_t of the array's device; NULL is its default stream. Copies run on streams of the library.
// Devices: memory of any, and of none, goes through one pool. The pool's own device is that of the thread that makes it: call
// cudaSetDevice() first. Memory that no device has is copied by its streams, and takes a stream of it.
// Memory: that of the pool, whatever the size of the state, and that of the plan. A state that is larger streams through the pool.
// Ownership: what is returned through ret_* is the caller's, and has a function that frees it, which takes NULL. Texts of a plan are copied.
// The memory of an array is the caller's: it lives, and is not written to, until ckpt_cuda_captured() or ckpt_cuda_loaded() has returned.
// Threads: a pool may be used by any number of threads, saves and loads at once; any other object by one thread at a time.
// Blocking: ckpt_cuda_save_array() and ckpt_cuda_load_array() do not wait for copies or for the disk. captured, commit and loaded do.
// Errors: 0, or -errno. The first error of a save or a load stays, and is the result of all later calls; the step is not
// committed. ..._why() says it in words. -ECHILD: the process is a fork of the one that made the pool: CUDA does not work in it.
// There the functions that free do nothing.
// -EBUSY: a graph is being captured from the stream. -EFAULT, -EIO, -ENODEV: the device.
// Memory that no device has, as that of malloc(3), is taken, too.
#ifndef CKPTFS_CUDA_H
#define CKPTFS_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_CUDA_PUBLIC __attribute__((visibility("default")))
#else
#define CKPT_CUDA_PUBLIC
#endif

#define CKPT_CUDA_WHY_MAX 512

struct ckpt; // ckptfs.h

// --- The pool -----------------------------------------------------------------------------------------------------------

struct ckpt_cuda_pool;

// How files are written, and raw files are read. Neither: written past the page cache where the disk can; read so in large parts that it does not have.
#define CKPT_CUDA_BUFFERED 1u // through the page cache
#define CKPT_CUDA_DIRECT 2u   // past it: O_DIRECT; -EINVAL of a save where the disk cannot, and a load reads otherwise

// Pinned memory, 16 KiB or more, allocated here and kept. device: NULL or "cuda"; "host": none, its place is taken by threads, for machines
// without a GPU; "host:12G": copies at 12 GiB per second. -ENODEV: no GPU, no driver, or this build has no CUDA; -ENOMEM; -EINVAL.
CKPT_CUDA_PUBLIC int ckpt_cuda_pool_new(uint64_t pinned_bytes, const char *device, unsigned flags,
					char why[CKPT_CUDA_WHY_MAX], struct ckpt_cuda_pool **ret_pool);
// After all saves and loads that use it.
CKPT_CUDA_PUBLIC void ckpt_cuda_pool_free(struct ckpt_cuda_pool *pool);

// GPUs and their driver, in one line: "NVIDIA H200, 1 device, driver 13.0, runtime 13.2", or why there is none. 0, or -ENODEV.
CKPT_CUDA_PUBLIC int ckpt_cuda_describe(char text[CKPT_CUDA_WHY_MAX]);
// GPUDirect Storage, by which loads read raw files into GPUs without pinned memory, in one line: its driver, or why it is not used. It is tried: the
// driver is opened. 0, -ENOENT, -ENOMEM.
CKPT_CUDA_PUBLIC int ckpt_cuda_describe_gpudirect(char text[CKPT_CUDA_WHY_MAX]);

// --- Saving -------------------------------------------------------------------------------------------------------------

struct ckpt_cuda_array {
	const char *name;  // UTF-8; no other array has it
	const char *dtype; // "float32", "bfloat16" ..., as NumPy and ml_dtypes call it
	unsigned ndim;     // 0: one element
	const uint64_t *shape;
};

// Elements are in C order. Offsets of all arrays are known from it, before any byte is.
struct ckpt_cuda_plan {
	const char
		*format; // "raw", which has arrays.json; "safetensors", "dcp", "torch", or what `ckptfs export` writes
	const struct ckpt_cuda_array *arrays;
	size_t count;
	uint64_t shard_bytes; // of a file, at most; a larger array is alone; 0: one file
};

struct ckpt_cuda_save;

// Begins a step, as ckpt_begin() of ckptfs.h, with its flags and errors. -ENOENT: there is no such format; -ENOTSUP: it cannot have this plan;
// why says which array, and which rule.
CKPT_CUDA_PUBLIC int ckpt_cuda_save_step(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const char *name,
					 unsigned flags, const struct ckpt_cuda_plan *plan, char why[CKPT_CUDA_WHY_MAX],
					 struct ckpt_cuda_save **ret_save);
// Into a folder that is there: of a step that is staged by other means, or of no store. No file of it is replaced: -EEXIST. What says of others
// what they hold is written behind them; each file is on disk when ckpt_cuda_commit() returns.
CKPT_CUDA_PUBLIC int ckpt_cuda_save_folder(struct ckpt_cuda_pool *pool, const char *directory,
					   const struct ckpt_cuda_plan *plan, char why[CKPT_CUDA_WHY_MAX],
					   struct ckpt_cuda_save **ret_save);
// An array of the plan, once. -ENOENT: the plan has none of this name; -EALREADY: it was given before; -EINVAL: it has another number of bytes.
CKPT_CUDA_PUBLIC int ckpt_cuda_save_array(struct ckpt_cuda_save *save, const char *name, const void *pointer,
					  uint64_t bytes, void *stream);
// Until all bytes of all arrays are copied out of their memory. -ENODATA: an array of the plan was not given.
CKPT_CUDA_PUBLIC int ckpt_cuda_captured(struct ckpt_cuda_save *save);
// Until all files are written, and then as ckpt_save_commit() of ckptfs.h; metadata: NULL, or of a step. After a failure of the commit alone
// it may be called again.
CKPT_CUDA_PUBLIC int ckpt_cuda_commit(struct ckpt_cuda_save *save, const char *metadata);
// Why it failed; "": it did not. As long as the save lives.
CKPT_CUDA_PUBLIC const char *ckpt_cuda_save_why(struct ckpt_cuda_save *save);
// One that was not committed is given up: its copies end first, and its step is aborted. In a folder its files stay.
CKPT_CUDA_PUBLIC void ckpt_cuda_save_free(struct ckpt_cuda_save *save);

// --- Loading ------------------------------------------------------------------------------------------------------------

struct ckpt_cuda_load;

// The arrays of a step, whatever format its files have, as ckpt_array_set_open() of ckptfs.h has them: raw files, and chunks here or at a remote.
CKPT_CUDA_PUBLIC int ckpt_cuda_load_step(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const char *step,
					 char why[CKPT_CUDA_WHY_MAX], struct ckpt_cuda_load **ret_load);
// name: TREE:NAME, or NAME. -ENOENT; -EEXIST: several have it; -ENOTSUP: its elements cannot be read; -EINVAL: it has another number of bytes.
CKPT_CUDA_PUBLIC int ckpt_cuda_load_array(struct ckpt_cuda_load *load, const char *name, void *pointer, uint64_t bytes,
					  void *stream);
// Until all that was asked for is in place.
CKPT_CUDA_PUBLIC int ckpt_cuda_loaded(struct ckpt_cuda_load *load);
CKPT_CUDA_PUBLIC const char *ckpt_cuda_load_why(struct ckpt_cuda_load *load);
CKPT_CUDA_PUBLIC void ckpt_cuda_load_free(struct ckpt_cuda_load *load);

#ifdef __cplusplus
}
#endif

#endif
