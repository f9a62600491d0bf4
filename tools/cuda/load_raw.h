// Parts of an array, read from its raw file past the page cache: with O_DIRECT into pinned memory, or by cuFile into that of the device.
//
// O_DIRECT takes whole blocks of the disk. The pages that have a part are read with all that they have, and the part begins somewhere in the first of
// them; so offsets need no alignment, and no byte goes through the page cache. A part is read so if one of these holds:
//   - CKPT_CUDA_DIRECT was said of the pool.
//   - Nothing was said, the part has CKPT_LOAD_DIRECT_BYTES or more, and less than half of it is in the page cache, as cachestat(2) of Linux 6.5 says.
// Each other part is left to the caller, who reads it by the library. So is each that fails here: the library then says what is wrong.
//
// Raw files are reached on the node's disk, not through a mount: ckpt_open() of a mount opens the store below it. Their descriptor is their pin.
//
// Calling sequence: zeroed but for set, flags and cufile; find(), and then read(), or register() and read_device(), as often as wanted; done().
// Ownership: the caller's. It has one file open at most. The set lives longer. Threads: one. Blocks on the disk.
#pragma once

#include "tools/cuda/pool.h"

#include "core/ckptfs.h"

#include <sys/stat.h>

// Measured with the loader on a virtual disk and ext4, whose read-ahead is 8 MiB: 96 MiB of safetensors, cold, the host device, two busy processors.
// Medians of 11 to 15 loads each, by turns, in MiB/s:
//   parts of         8 MiB            6 MiB   4 MiB   2 MiB
//   page cache       295, 251, 212    306     342     372
//   O_DIRECT         436, 356, 329    260     269     289
// O_DIRECT took two thirds of the time in the kernel or less. It is used where it is not slower: for whole buffers of a large pool.
// A plain file of 192 MiB, read by four threads in 8 MiB: 307 to 416 with O_DIRECT, 144 to 459 without.
#define CKPT_LOAD_DIRECT_BYTES (UINT64_C(7) << 20)

struct ckpt_load_raw {
	struct ckpt_array_set *set;
	unsigned flags; // of the pool
	struct ckpt_cufile *cufile;
	bool is_open;
	int fd;       // with O_DIRECT
	void *handle; // of cuFile; NULL: none yet
	dev_t dev;
	ino_t ino;
	bool looked; // for the file of this array
	size_t array;
	bool has; // and found it
	uint64_t offset;
};

// The bytes [begin, begin + bytes) of an array are to be read directly, and its file is open.
bool ckpt_load_raw_find(struct ckpt_load_raw *r, size_t array, uint64_t begin, uint64_t bytes);
// Of what find() found: into the buffer, which is aligned to CKPT_POOL_ALIGN and has room bytes; *ret_at is where the part begins. False: it is to be
// read otherwise.
bool ckpt_load_raw_read(struct ckpt_load_raw *r, uint64_t begin, uint64_t bytes, uint8_t *buffer, uint64_t room,
			uint8_t **ret_at);
// cuFile knows the file that find() found. False: it refuses it.
bool ckpt_load_raw_register(struct ckpt_load_raw *r);
// As read(), by cuFile, into memory of the calling thread's current device. False: part of it may have been written.
bool ckpt_load_raw_read_device(struct ckpt_load_raw *r, uint64_t begin, uint64_t bytes, void *to);
void ckpt_load_raw_done(struct ckpt_load_raw *r);

// At least half of these bytes of a file are in the page cache, or nobody can say it. Tests replace it.
extern bool (*ckpt_load_raw_is_cached)(int fd, uint64_t offset, uint64_t bytes);
