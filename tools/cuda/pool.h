// Pinned memory in buffers of one size, and events: what saves and loads of a device share.
//
// Ownership: a pool lives longer than the saves and loads that use it. Threads: any. Memory: what it was made with, and no more.
#pragma once

#include "tools/cuda/ckptfs_cuda.h"
#include "tools/cuda/cufile.h"
#include "tools/cuda/device.h"

#include "core/base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define CKPT_POOL_ALIGN 4096u // of O_DIRECT
#define CKPT_POOL_BUFFER_MAX (8u << 20)
#define CKPT_POOL_BUFFERS_MIN 4u

struct ckpt_pool_buffer {
	struct ckpt_pool_buffer *next;
	uint8_t *at;
	// Of the copies into it or out of it, one for each device.
	void *events[CKPT_DEVICES_MAX];
	uint32_t recorded; // devices whose event is to be waited for
};

struct ckpt_pool_event {
	struct ckpt_pool_event *next;
	void *event;
	int device;
};

struct ckpt_cuda_pool {
	struct ckpt_device *device;
	pid_t pid; // of the process that may use it
	// The device of the thread that made it. Plain memory is copied by its streams: a process touches no device that the
	// program does not use.
	int home;
	unsigned flags;
	struct ckpt_cufile *cufile; // NULL: loads go through the buffers
	uint8_t *memory;
	uint64_t buffer_bytes;
	// Of a buffer: buffer_bytes, and in a large pool two pages more, for a part of a file with the pages that it begins and ends in.
	uint64_t buffer_room;
	size_t buffer_count;
	struct ckpt_pool_buffer *buffers;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct ckpt_pool_buffer *free_buffers;
	struct ckpt_pool_event *free_events[CKPT_DEVICES_MAX];
	size_t free_count, free_min;
};

// Takes the device. why: CKPT_CUDA_WHY_MAX bytes. -EINVAL: too little memory.
int ckpt_pool_new(struct ckpt_device *device, uint64_t pinned_bytes, unsigned flags, char *why,
		  struct ckpt_cuda_pool **ret_pool);
#define CKPT_POOL_FORKED "this process is a fork of the one that made the pool, and CUDA does not work in it"
// -ECHILD: this process is a fork of the one that made it. Nothing of it may be used, nor its lock: a thread may hold it.
int ckpt_pool_check(const struct ckpt_cuda_pool *p);
// The device whose streams copy this memory, and whether it is plain memory of the machine. A code of the device; -ENODEV.
int ckpt_pool_device_of(const struct ckpt_cuda_pool *p, const void *memory, int *ret_device, bool *ret_plain);

// Blocks until one is free. NULL: *stop is true, and ckpt_pool_wake() was called.
struct ckpt_pool_buffer *ckpt_pool_take(struct ckpt_cuda_pool *p, const atomic_bool *stop);
void ckpt_pool_give(struct ckpt_cuda_pool *p, struct ckpt_pool_buffer *b);
void ckpt_pool_wake(struct ckpt_cuda_pool *p);

// A code of the device, as are the next two.
int ckpt_pool_event_take(struct ckpt_cuda_pool *p, int device, struct ckpt_pool_event **ret_event);
void ckpt_pool_event_give(struct ckpt_cuda_pool *p, struct ckpt_pool_event *e); // NULL is fine
// The buffer's event of the device comes behind what the stream has now.
int ckpt_pool_record(struct ckpt_cuda_pool *p, struct ckpt_pool_buffer *b, int device, void *stream);
// Until all that was recorded has come; the first error of any.
int ckpt_pool_wait(struct ckpt_cuda_pool *p, struct ckpt_pool_buffer *b);
