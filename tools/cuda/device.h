// A device whose memory is saved and loaded: a table of functions, so that one file alone knows CUDA.
//
//	device_cuda.c   GPUs, by the CUDA runtime
//	device_host.c   this machine's memory: streams are threads, copies have a set rate, errors come on demand
//
// Each operation is required. It returns 0, or a code of the device's own above 0: to_errno() and text() say what it means.
// copy_out(), copy_in(), record() and wait_for() are put into a stream and return at once; pinned_new(), event_wait() and
// stream_free() block.
// Ownership: what *_new() returns has a *_free(). Memory of a copy lives until an event behind it has come.
// Threads: any, at the same time; a stream is given work by one thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_DEVICES_MAX 32   // of one machine
#define CKPT_DEVICE_NONE (-1) // plain memory of this machine: only device_of() says it

struct ckpt_device;

struct ckpt_device_ops {
	// The device that the calling thread works on.
	int (*current)(struct ckpt_device *d, int *ret_device);
	// Called first by each thread of ours. It works on this device; graphs that the program captures later do not concern it.
	int (*thread_starts)(struct ckpt_device *d, int device);
	// Memory that copies need not stage.
	int (*pinned_new)(struct ckpt_device *d, size_t bytes, void **ret_memory);
	void (*pinned_free)(struct ckpt_device *d, void *memory);
	// Memory of a device, for benchmarks.
	int (*memory_new)(struct ckpt_device *d, int device, size_t bytes, void **ret_memory);
	void (*memory_free)(struct ckpt_device *d, void *memory);
	// Which has this memory: 0 to CKPT_DEVICES_MAX - 1, or CKPT_DEVICE_NONE.
	int (*device_of)(struct ckpt_device *d, const void *pointer, int *ret_device);
	// A stream, or an event, of a device.
	int (*stream_new)(struct ckpt_device *d, int device, void **ret_stream);
	void (*stream_free)(struct ckpt_device *d, void *stream); // when its work is done
	int (*event_new)(struct ckpt_device *d, int device, void **ret_event);
	void (*event_free)(struct ckpt_device *d, void *event); // also one that has not come
	// A graph is being captured from this stream of the device: nothing may be put into it.
	int (*is_capturing)(struct ckpt_device *d, int device, void *stream, bool *ret_capturing);
	// The event comes when all that the stream was given so far is done. device: that of the event and of the stream.
	int (*record)(struct ckpt_device *d, int device, void *event, void *stream);
	// What the stream is given from here on begins when the event has come.
	int (*wait_for)(struct ckpt_device *d, void *stream, void *event);
	int (*copy_out)(struct ckpt_device *d, void *to, const void *from, size_t bytes, void *stream);
	int (*copy_in)(struct ckpt_device *d, void *to, const void *from, size_t bytes, void *stream);
	// Until the event has come. Also the error of work in front of it.
	int (*event_wait)(struct ckpt_device *d, void *event);
	int (*to_errno)(int code); // -ENOMEM, -ENODEV, -EIO
	const char *(*text)(int code);
	void (*free)(struct ckpt_device *d);
};

struct ckpt_device {
	const struct ckpt_device_ops *ops;
	bool takes_cufile; // cuFile can write into its memory
};

#define CKPT_DEVICE_WHY_MAX 256

// What there is of GPUs, for people. Errors are no errors here: why says it.
struct ckpt_device_found {
	int built;     // 1: this build has CUDA
	int devices;   // 0: none
	int runtime;   // version of the CUDA runtime, 13020 for 13.2; 0: none
	int driver;    // the newest version that the driver knows; 0: there is no driver
	char name[64]; // of the first device
	char why[CKPT_DEVICE_WHY_MAX];
};
void ckpt_device_cuda_find(struct ckpt_device_found *ret_found);

// -ENODEV with why: no GPU, no driver, or a build without CUDA.
int ckpt_device_cuda_new(char why[CKPT_DEVICE_WHY_MAX], struct ckpt_device **ret_device);
