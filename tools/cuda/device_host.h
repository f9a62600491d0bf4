// The device that is this machine: all that is done to a GPU, done to plain memory. For machines without one, and for tests.
//
// Calls are numbered, so that a test fails each: pinned_new, device_of, stream_new, event_new, is_capturing, record, wait_for, copy_out,
// copy_in, event_wait. Threads: as device.h; the fields are set before the first call.
#pragma once

#include "tools/cuda/device.h"

struct ckpt_device_host;

// rate: bytes per second of all copies of a stream; 0: as fast as memory.
int ckpt_device_host_new(uint64_t rate, struct ckpt_device_host **ret_device);
struct ckpt_device *ckpt_device_host_as_device(struct ckpt_device_host *d);

// From here on this memory is that of a device. At most 64 ranges.
void ckpt_device_host_place(struct ckpt_device_host *d, const void *memory, size_t bytes, int device);
// Call number n fails, counted from 1 and from here; 0: none. late: a copy is accepted, and fails when its turn comes.
void ckpt_device_host_fail(struct ckpt_device_host *d, uint64_t n, bool late);
uint64_t ckpt_device_host_calls(struct ckpt_device_host *d);
// Bytes of pinned memory that were allocated, all together.
uint64_t ckpt_device_host_pinned(struct ckpt_device_host *d);
// The device that threads of the program work on; 0 at first.
void ckpt_device_host_set_current(struct ckpt_device_host *d, int device);
// Devices of which a stream or an event was made or used: bit n is device n.
uint32_t ckpt_device_host_touched(struct ckpt_device_host *d);
// A graph is being captured from every stream.
void ckpt_device_host_capture(struct ckpt_device_host *d, bool capturing);
// A call on the stream's thread, in its turn: a kernel.
int ckpt_device_host_launch(struct ckpt_device_host *d, void *stream, void (*call)(void *arg), void *arg);
