#include "tools/cuda/pool.h"

#include "tools/cuda/device_host.h"

#include "core/base/units.h"
#include "core/base/util.h"

#include <stdio.h>
#include <unistd.h>

static uint64_t buffer_bytes(uint64_t pinned)
{
	uint64_t bytes = MIN(pinned / CKPT_POOL_BUFFERS_MIN, (uint64_t)CKPT_POOL_BUFFER_MAX);

	return bytes / CKPT_POOL_ALIGN * CKPT_POOL_ALIGN;
}

static uint64_t buffer_room(uint64_t pinned, uint64_t bytes)
{
	uint64_t room = bytes + 2 * CKPT_POOL_ALIGN;

	return bytes == CKPT_POOL_BUFFER_MAX && pinned / CKPT_POOL_BUFFERS_MIN >= room ? room : bytes;
}

static int make_buffers(struct ckpt_cuda_pool *p, char *why)
{
	struct ckpt_device *d = p->device;
	void *memory;
	int code;

	p->buffers = ckpt_calloc(p->buffer_count, sizeof(*p->buffers));
	if (!p->buffers)
		return -ENOMEM;
	code = d->ops->current(d, &p->home);
	if (!code)
		code = d->ops->pinned_new(d, p->buffer_count * p->buffer_room, &memory);
	if (code) {
		snprintf(why, CKPT_CUDA_WHY_MAX, "%zu buffers of %llu bytes of pinned memory: %s", p->buffer_count,
			 (unsigned long long)p->buffer_room, d->ops->text(code));
		return d->ops->to_errno(code);
	}
	p->memory = memory;
	for (size_t i = p->buffer_count; i-- > 0;) {
		p->buffers[i] =
			(struct ckpt_pool_buffer){.next = p->free_buffers, .at = p->memory + i * p->buffer_room};
		p->free_buffers = &p->buffers[i];
	}
	p->free_count = p->free_min = p->buffer_count;
	return 0;
}

int ckpt_pool_new(struct ckpt_device *device, uint64_t pinned_bytes, unsigned flags, char *why,
		  struct ckpt_cuda_pool **ret_pool)
{
	struct ckpt_cuda_pool *p = ckpt_calloc(1, sizeof(*p));
	char cufile_why[CKPT_CUFILE_WHY_MAX];
	int rc = p ? 0 : -ENOMEM;

	if (!p) {
		device->ops->free(device);
		return rc;
	}
	p->device = device;
	p->pid = getpid();
	p->flags = flags;
	p->buffer_bytes = buffer_bytes(pinned_bytes);
	p->buffer_room = buffer_room(pinned_bytes, p->buffer_bytes);
	ckpt_lock_init(&p->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&p->changed, NULL);
	if (!p->buffer_bytes) {
		snprintf(why, CKPT_CUDA_WHY_MAX, "a pool has %u bytes of pinned memory or more",
			 CKPT_POOL_BUFFERS_MIN * CKPT_POOL_ALIGN);
		rc = -EINVAL;
	} else {
		p->buffer_count = pinned_bytes / p->buffer_room;
		rc = make_buffers(p, why);
	}
	if (rc) {
		ckpt_cuda_pool_free(p);
		return rc;
	}
	if (device->takes_cufile && !(flags & CKPT_CUDA_BUFFERED))
		(void)ckpt_cufile_open(cufile_why, &p->cufile); // `ckptfs doctor` says why there is none
	*ret_pool = p;
	return 0;
}

static int host_new(const char *rate, char *why, struct ckpt_device **ret_device)
{
	struct ckpt_device_host *host;
	uint64_t bytes = 0;
	int rc = 0;

	if (*rate == ':')
		rc = ckpt_size_parse(rate + 1, &bytes);
	else if (*rate)
		rc = -EINVAL;
	if (rc)
		snprintf(why, CKPT_CUDA_WHY_MAX, "a device is cuda, host or host:BYTES_PER_SECOND");
	else
		rc = ckpt_device_host_new(bytes, &host);
	if (!rc)
		*ret_device = ckpt_device_host_as_device(host);
	return rc;
}

int ckpt_cuda_pool_new(uint64_t pinned_bytes, const char *device, unsigned flags, char why[CKPT_CUDA_WHY_MAX],
		       struct ckpt_cuda_pool **ret_pool)
{
	struct ckpt_device *d;
	int rc;

	*why = '\0';
	if (flags & ~(CKPT_CUDA_BUFFERED | CKPT_CUDA_DIRECT) || flags == (CKPT_CUDA_BUFFERED | CKPT_CUDA_DIRECT)) {
		snprintf(why, CKPT_CUDA_WHY_MAX, "flags are CKPT_CUDA_BUFFERED, CKPT_CUDA_DIRECT or neither");
		return -EINVAL;
	}
	if (!device || !strcmp(device, "cuda"))
		rc = ckpt_device_cuda_new(why, &d);
	else if (!strncmp(device, "host", 4))
		rc = host_new(device + 4, why, &d);
	else
		rc = host_new("?", why, &d);
	return rc ? rc : ckpt_pool_new(d, pinned_bytes, flags, why, ret_pool);
}

void ckpt_cuda_pool_free(struct ckpt_cuda_pool *p)
{
	struct ckpt_device *d;
	struct ckpt_pool_event *e;

	if (!p || ckpt_pool_check(p))
		return;
	d = p->device;
	for (size_t i = 0; p->buffers && i < p->buffer_count; i++)
		for (unsigned k = 0; k < CKPT_DEVICES_MAX; k++)
			if (p->buffers[i].events[k])
				d->ops->event_free(d, p->buffers[i].events[k]);
	for (unsigned k = 0; k < CKPT_DEVICES_MAX; k++)
		while ((e = p->free_events[k])) {
			p->free_events[k] = e->next;
			d->ops->event_free(d, e->event);
			free(e);
		}
	ckpt_cufile_free(p->cufile);
	if (p->memory)
		d->ops->pinned_free(d, p->memory);
	free(p->buffers);
	pthread_cond_destroy(&p->changed);
	ckpt_lock_done(&p->lock);
	d->ops->free(d);
	free(p);
}

int ckpt_pool_check(const struct ckpt_cuda_pool *p)
{
	return p->pid == getpid() ? 0 : -ECHILD;
}

int ckpt_pool_device_of(const struct ckpt_cuda_pool *p, const void *memory, int *ret_device, bool *ret_plain)
{
	int code = p->device->ops->device_of(p->device, memory, ret_device);

	if (code)
		return code;
	*ret_plain = *ret_device == CKPT_DEVICE_NONE;
	if (*ret_plain)
		*ret_device = p->home;
	return *ret_device < CKPT_DEVICES_MAX ? 0 : -ENODEV;
}

// --- Buffers ----------------------------------------------------------------------------------------------------------------

struct ckpt_pool_buffer *ckpt_pool_take(struct ckpt_cuda_pool *p, const atomic_bool *stop)
{
	struct ckpt_pool_buffer *b;
	LOCK_SCOPE(&p->lock);

	while (!p->free_buffers && !atomic_load(stop))
		ckpt_lock_wait(&p->changed, &p->lock);
	if (atomic_load(stop))
		return NULL;
	b = p->free_buffers;
	p->free_buffers = b->next;
	p->free_count--;
	p->free_min = MIN(p->free_min, p->free_count);
	b->recorded = 0;
	return b;
}

void ckpt_pool_give(struct ckpt_cuda_pool *p, struct ckpt_pool_buffer *b)
{
	LOCK_SCOPE(&p->lock);
	b->next = p->free_buffers;
	p->free_buffers = b;
	p->free_count++;
	pthread_cond_broadcast(&p->changed);
}

void ckpt_pool_wake(struct ckpt_cuda_pool *p)
{
	LOCK_SCOPE(&p->lock);
	pthread_cond_broadcast(&p->changed);
}

// --- Events -----------------------------------------------------------------------------------------------------------------

int ckpt_pool_event_take(struct ckpt_cuda_pool *p, int device, struct ckpt_pool_event **ret_event)
{
	struct ckpt_pool_event *e, **list = &p->free_events[device];
	int code;

	{
		LOCK_SCOPE(&p->lock);
		e = *list;
		if (e)
			*list = e->next;
	}
	if (!e) {
		e = ckpt_calloc(1, sizeof(*e));
		if (!e)
			return -ENOMEM;
		code = p->device->ops->event_new(p->device, device, &e->event);
		if (code) {
			free(e);
			return code;
		}
	}
	e->device = device;
	*ret_event = e;
	return 0;
}

void ckpt_pool_event_give(struct ckpt_cuda_pool *p, struct ckpt_pool_event *e)
{
	struct ckpt_pool_event **list;

	if (!e)
		return;
	LOCK_SCOPE(&p->lock);
	list = &p->free_events[e->device];
	e->next = *list;
	*list = e;
}

int ckpt_pool_record(struct ckpt_cuda_pool *p, struct ckpt_pool_buffer *b, int device, void *stream)
{
	struct ckpt_device *d = p->device;
	int code = b->events[device] ? 0 : d->ops->event_new(d, device, &b->events[device]);

	if (!code)
		code = d->ops->record(d, device, b->events[device], stream);
	if (!code)
		b->recorded |= UINT32_C(1) << device;
	return code;
}

int ckpt_pool_wait(struct ckpt_cuda_pool *p, struct ckpt_pool_buffer *b)
{
	int first = 0;

	for (unsigned k = 0; k < CKPT_DEVICES_MAX; k++)
		if (b->recorded & UINT32_C(1) << k) {
			int code = p->device->ops->event_wait(p->device, b->events[k]);

			first = first ? first : code;
		}
	b->recorded = 0;
	return first;
}
