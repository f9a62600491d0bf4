// GPUs, by the CUDA runtime: the only file that knows it. Built without the runtime it says so, and has no device.
//
// The runtime has a current device for each thread: it is set for what belongs to a device, and set back, as the thread may be the caller's.
// Copies run on streams that do not wait for the default stream. Waiting threads sleep, so that they take no processor.
#include "tools/cuda/device.h"

#include "core/base/util.h"

#include <stdio.h>

#if !CKPT_WITH_CUDA

#define NOT_BUILT "this build has no CUDA: configure it where the CUDA toolkit is found"

void ckpt_device_cuda_find(struct ckpt_device_found *ret_found)
{
	*ret_found = (struct ckpt_device_found){.why = NOT_BUILT};
}

int ckpt_device_cuda_new(char why[CKPT_DEVICE_WHY_MAX], struct ckpt_device **ret_device __attribute__((unused)))
{
	snprintf(why, CKPT_DEVICE_WHY_MAX, NOT_BUILT);
	return -ENODEV;
}

#else

#include <cuda_runtime.h>

// The device of a thread, for the length of a scope.
struct current {
	int before;
	cudaError_t error;
};

static struct current enter(int device)
{
	struct current c = {.error = cudaGetDevice(&c.before)};

	if (c.error == cudaSuccess)
		c.error = cudaSetDevice(device);
	return c;
}

// The result of what was done since enter().
static int leave(const struct current *c, cudaError_t error)
{
	cudaError_t back = cudaSetDevice(c->before);

	return (int)(error != cudaSuccess ? error : back);
}

static int current(struct ckpt_device *d __attribute__((unused)), int *ret_device)
{
	return (int)cudaGetDevice(ret_device);
}

// A new thread is on device 0. leave() would make a context there, in each process of a machine with many GPUs.
// By default a capture of any thread forbids all others to wait for an event.
static int thread_starts(struct ckpt_device *d __attribute__((unused)), int device)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t error = cudaSetDevice(device);

	return (int)(error != cudaSuccess ? error : cudaThreadExchangeStreamCaptureMode(&mode));
}

static int pinned_new(struct ckpt_device *d __attribute__((unused)), size_t bytes, void **ret_memory)
{
	return (int)cudaHostAlloc(ret_memory, bytes, cudaHostAllocPortable);
}

static void pinned_free(struct ckpt_device *d __attribute__((unused)), void *memory)
{
	(void)cudaFreeHost(memory); // at the end of a program the runtime may be gone
}

static int memory_new(struct ckpt_device *d __attribute__((unused)), int device, size_t bytes, void **ret_memory)
{
	struct current c = enter(device);

	return c.error != cudaSuccess ? (int)c.error : leave(&c, cudaMalloc(ret_memory, bytes));
}

static void memory_free(struct ckpt_device *d __attribute__((unused)), void *memory)
{
	(void)cudaFree(memory); // as pinned_free()
}

static int device_of(struct ckpt_device *d __attribute__((unused)), const void *pointer, int *ret_device)
{
	struct cudaPointerAttributes a;
	cudaError_t error = cudaPointerGetAttributes(&a, pointer);

	if (error != cudaSuccess)
		return (int)error;
	*ret_device = a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged ? a.device : CKPT_DEVICE_NONE;
	return 0;
}

static int stream_new(struct ckpt_device *d __attribute__((unused)), int device, void **ret_stream)
{
	struct current c = enter(device);
	cudaStream_t stream;
	cudaError_t error = c.error;
	int code;

	if (error != cudaSuccess)
		return (int)error;
	error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	code = leave(&c, error);
	if (error == cudaSuccess)
		*ret_stream = stream;
	return code;
}

static void stream_free(struct ckpt_device *d __attribute__((unused)), void *stream)
{
	(void)cudaStreamSynchronize(stream); // its error came with an event, or the caller has another
	(void)cudaStreamDestroy(stream);
}

static int event_new(struct ckpt_device *d __attribute__((unused)), int device, void **ret_event)
{
	struct current c = enter(device);
	cudaEvent_t event;
	cudaError_t error = c.error;
	int code;

	if (error != cudaSuccess)
		return (int)error;
	error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync);
	code = leave(&c, error);
	if (error == cudaSuccess)
		*ret_event = event;
	return code;
}

static void event_free(struct ckpt_device *d __attribute__((unused)), void *event)
{
	(void)cudaEventDestroy(event);
}

// The default stream is that of the current device.
static int is_capturing(struct ckpt_device *d __attribute__((unused)), int device, void *stream, bool *ret_capturing)
{
	struct current c = enter(device);
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaError_t error = c.error;

	if (error != cudaSuccess)
		return (int)error;
	error = cudaStreamIsCapturing(stream, &status);
	if (error == cudaErrorStreamCaptureImplicit) { // the default stream, while another one captures
		status = cudaStreamCaptureStatusActive;
		error = cudaSuccess;
	}
	*ret_capturing = status != cudaStreamCaptureStatusNone;
	return leave(&c, error);
}

// The same as is_capturing().
static int record(struct ckpt_device *d __attribute__((unused)), int device, void *event, void *stream)
{
	struct current c = enter(device);

	return c.error != cudaSuccess ? (int)c.error : leave(&c, cudaEventRecord(event, stream));
}

static int wait_for(struct ckpt_device *d __attribute__((unused)), void *stream, void *event)
{
	return (int)cudaStreamWaitEvent(stream, event, 0);
}

static int copy(struct ckpt_device *d __attribute__((unused)), void *to, const void *from, size_t bytes, void *stream)
{
	return (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

static int event_wait(struct ckpt_device *d __attribute__((unused)), void *event)
{
	return (int)cudaEventSynchronize(event);
}

static int to_errno(int code)
{
	switch ((cudaError_t)code) {
	case cudaErrorMemoryAllocation:
		return -ENOMEM;
	case cudaErrorNoDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorInvalidDevice:
		return -ENODEV;
	case cudaErrorInvalidValue:
	case cudaErrorIllegalAddress:
		return -EFAULT;
	default:
		return -EIO;
	}
}

static const char *text(int code)
{
	return cudaGetErrorString((cudaError_t)code);
}

static void cuda_free(struct ckpt_device *d)
{
	free(d);
}

static const struct ckpt_device_ops cuda_ops = {
	.current = current,
	.thread_starts = thread_starts,
	.pinned_new = pinned_new,
	.pinned_free = pinned_free,
	.memory_new = memory_new,
	.memory_free = memory_free,
	.device_of = device_of,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.event_new = event_new,
	.event_free = event_free,
	.is_capturing = is_capturing,
	.record = record,
	.wait_for = wait_for,
	.copy_out = copy,
	.copy_in = copy,
	.event_wait = event_wait,
	.to_errno = to_errno,
	.text = text,
	.free = cuda_free,
};

void ckpt_device_cuda_find(struct ckpt_device_found *ret_found)
{
	struct ckpt_device_found *f = ret_found;
	struct cudaDeviceProp properties;
	cudaError_t error;

	*f = (struct ckpt_device_found){.built = 1};
	error = cudaRuntimeGetVersion(&f->runtime);
	if (error == cudaSuccess)
		error = cudaDriverGetVersion(&f->driver); // 0 without a driver
	if (error == cudaSuccess)
		error = cudaGetDeviceCount(&f->devices);
	if (error == cudaSuccess && f->devices)
		error = cudaGetDeviceProperties(&properties, 0);
	if (error == cudaSuccess && f->devices)
		snprintf(f->name, sizeof(f->name), "%.63s", properties.name);
	if (error != cudaSuccess) {
		f->devices = 0;
		snprintf(f->why, sizeof(f->why), "no GPU can be used: %s", text((int)error));
	} else if (!f->devices) {
		snprintf(f->why, sizeof(f->why), "there is no GPU");
	}
}

int ckpt_device_cuda_new(char why[CKPT_DEVICE_WHY_MAX], struct ckpt_device **ret_device)
{
	struct ckpt_device_found found;
	struct ckpt_device *d;

	ckpt_device_cuda_find(&found);
	if (!found.devices) {
		snprintf(why, CKPT_DEVICE_WHY_MAX, "%s", found.why);
		return -ENODEV;
	}
	d = ckpt_calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->ops = &cuda_ops;
	d->takes_cufile = true;
	*ret_device = d;
	return 0;
}

#endif
