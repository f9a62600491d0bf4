// A stream is a thread with a list of work. An event has a ticket for each time that it was recorded: it has come when the work of
// the last ticket is done.
//
// One lock guards all streams and events of a device. Work is done without it.
#include "tools/cuda/device_host.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#define RANGES_MAX 64

enum code { FAILED = 1, NO_MEMORY, NO_THREAD };

struct range {
	const uint8_t *memory;
	size_t bytes;
	int device;
};

struct event {
	unsigned users; // its owner, and work that names it
	uint64_t recorded, come;
	int error;
};

enum kind { COPY, RECORD, WAIT, CALL };

struct work {
	struct work *next;
	enum kind kind;
	void *to;
	const void *from;
	size_t bytes;
	bool fails;
	struct event *event;
	uint64_t ticket;
	void (*call)(void *arg);
	void *arg;
};

struct stream {
	struct ckpt_device_host *device;
	pthread_t thread;
	struct work *first, **last;
	bool ends;
	int error;
	int64_t owed_ns; // of its thread alone
};

struct ckpt_device_host {
	struct ckpt_device device;
	uint64_t rate;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct range ranges[RANGES_MAX];
	size_t range_count;
	uint64_t calls, fail_at, pinned;
	int current;
	uint32_t touched;
	bool late, capturing;
};

static struct ckpt_device_host *host_of(struct ckpt_device *d)
{
	return (struct ckpt_device_host *)d;
}

// One more call; true: it is the one that fails.
static bool counts_locked(struct ckpt_device_host *d)
{
	return ++d->calls == d->fail_at;
}

// The same of a call that needs this device.
static bool counts_on(struct ckpt_device_host *d, int device)
{
	LOCK_SCOPE(&d->lock);
	d->touched |= UINT32_C(1) << device;
	return counts_locked(d);
}

// --- Memory -----------------------------------------------------------------------------------------------------------------

static int pinned_new(struct ckpt_device *device, size_t bytes, void **ret_memory)
{
	struct ckpt_device_host *d = host_of(device);
	LOCK_SCOPE(&d->lock);

	if (counts_locked(d) || posix_memalign(ret_memory, 4096, bytes))
		return NO_MEMORY;
	memset(*ret_memory, 0, bytes); // it is there from the beginning, as what a driver pins
	d->pinned += bytes;
	return 0;
}

static void pinned_free(struct ckpt_device *device __attribute__((unused)), void *memory)
{
	free(memory);
}

static int current(struct ckpt_device *device, int *ret_device)
{
	struct ckpt_device_host *d = host_of(device);
	LOCK_SCOPE(&d->lock);

	*ret_device = d->current;
	return 0;
}

static int thread_starts(struct ckpt_device *device, int of)
{
	struct ckpt_device_host *d = host_of(device);
	LOCK_SCOPE(&d->lock);

	d->touched |= UINT32_C(1) << of;
	return 0;
}

static int memory_new(struct ckpt_device *d __attribute__((unused)), int device __attribute__((unused)), size_t bytes,
		      void **ret_memory)
{
	return posix_memalign(ret_memory, 4096, bytes) ? NO_MEMORY : 0;
}

static int device_of(struct ckpt_device *device, const void *pointer, int *ret_device)
{
	struct ckpt_device_host *d = host_of(device);
	const uint8_t *at = pointer;
	LOCK_SCOPE(&d->lock);

	if (counts_locked(d))
		return FAILED;
	*ret_device = CKPT_DEVICE_NONE;
	for (size_t i = 0; i < d->range_count; i++)
		if (at >= d->ranges[i].memory && at < d->ranges[i].memory + d->ranges[i].bytes)
			*ret_device = d->ranges[i].device;
	return 0;
}

// --- Events -----------------------------------------------------------------------------------------------------------------

static int event_new(struct ckpt_device *d, int device, void **ret_event)
{
	struct event *e;

	if (counts_on(host_of(d), device))
		return FAILED;
	e = ckpt_calloc(1, sizeof(*e));
	if (!e)
		return NO_MEMORY;
	e->users = 1;
	*ret_event = e;
	return 0;
}

static void drop_event_locked(struct event *e)
{
	if (e && !--e->users)
		free(e);
}

static void event_free(struct ckpt_device *device, void *event)
{
	LOCK_SCOPE(&host_of(device)->lock);
	drop_event_locked(event);
}

static int event_wait(struct ckpt_device *device, void *event)
{
	struct ckpt_device_host *d = host_of(device);
	struct event *e = event;
	LOCK_SCOPE(&d->lock);
	uint64_t ticket = e->recorded;

	while (e->come < ticket)
		ckpt_lock_wait(&d->changed, &d->lock);
	return counts_locked(d) ? FAILED : e->error;
}

// --- Streams ----------------------------------------------------------------------------------------------------------------

// A sleep takes longer than it is asked to: the stream owes less time than one, and its sleeps are of a millisecond or more.
static void copy(struct stream *s, const struct work *w)
{
	uint64_t rate = s->device->rate;
	int64_t began = rate ? ckpt_sys.mono_ns() : 0;

	memcpy(w->to, w->from, w->bytes);
	if (!rate)
		return;
	s->owed_ns += (int64_t)((double)w->bytes * 1e9 / (double)rate) - (ckpt_sys.mono_ns() - began);
	if (s->owed_ns < 1000000)
		return;
	began = ckpt_sys.mono_ns();
	ckpt_sys.sleep_ns(s->owed_ns);
	s->owed_ns -= ckpt_sys.mono_ns() - began;
}

// The lock is not held.
static void perform(struct stream *s, const struct work *w)
{
	if (w->kind == COPY && !w->fails)
		copy(s, w);
	else if (w->kind == CALL)
		w->call(w->arg);
}

static void finish_locked(struct stream *s, struct work *w)
{
	struct ckpt_device_host *d = s->device;

	if (w->fails)
		s->error = FAILED;
	if (w->kind == RECORD) {
		w->event->error = s->error;
		w->event->come = MAX(w->event->come, w->ticket);
		pthread_cond_broadcast(&d->changed);
	}
	while (w->kind == WAIT && w->event->come < w->ticket)
		ckpt_lock_wait(&d->changed, &d->lock);
	drop_event_locked(w->event);
	free(w);
}

static void *run(void *arg)
{
	struct stream *s = arg;
	struct ckpt_device_host *d = s->device;
	struct work *w;

	ckpt_lock_take(&d->lock);
	for (;;) {
		while (!s->first && !s->ends)
			ckpt_lock_wait(&d->changed, &d->lock);
		w = s->first;
		if (!w)
			break;
		s->first = w->next;
		if (!s->first)
			s->last = &s->first;
		ckpt_lock_drop(&d->lock);
		perform(s, w);
		ckpt_lock_take(&d->lock);
		finish_locked(s, w);
	}
	ckpt_lock_drop(&d->lock);
	return NULL;
}

static int stream_new(struct ckpt_device *device, int of, void **ret_stream)
{
	struct ckpt_device_host *d = host_of(device);
	struct stream *s;

	if (counts_on(d, of))
		return FAILED;
	s = ckpt_calloc(1, sizeof(*s));
	if (!s)
		return NO_MEMORY;
	s->device = d;
	s->last = &s->first;
	if (pthread_create(&s->thread, NULL, run, s)) {
		free(s);
		return NO_THREAD;
	}
	*ret_stream = s;
	return 0;
}

static void stream_free(struct ckpt_device *device, void *stream)
{
	struct ckpt_device_host *d = host_of(device);
	struct stream *s = stream;

	ckpt_lock_take(&d->lock);
	s->ends = true;
	pthread_cond_broadcast(&d->changed);
	ckpt_lock_drop(&d->lock);
	pthread_join(s->thread, NULL);
	free(s);
}

// counted: it is a call of the table.
static int put(struct ckpt_device_host *d, struct stream *s, const struct work *what, bool counted)
{
	struct work *w = malloc(sizeof(*w));
	LOCK_SCOPE(&d->lock);
	bool fails = counted && counts_locked(d), late = fails && d->late && what->kind == COPY;

	if (!w || (fails && !late)) {
		free(w);
		return w ? FAILED : NO_MEMORY;
	}
	*w = *what;
	w->next = NULL;
	w->fails = late;
	if (w->event) {
		w->event->users++;
		w->ticket = w->kind == RECORD ? ++w->event->recorded : w->event->recorded;
	}
	*s->last = w;
	s->last = &w->next;
	pthread_cond_broadcast(&d->changed);
	return 0;
}

static int is_capturing(struct ckpt_device *device, int of, void *stream __attribute__((unused)), bool *ret_capturing)
{
	struct ckpt_device_host *d = host_of(device);

	if (counts_on(d, of))
		return FAILED;
	LOCK_SCOPE(&d->lock);
	*ret_capturing = d->capturing;
	return 0;
}

// Without a stream there is nothing to wait for.
static int record(struct ckpt_device *d, int device, void *event, void *stream)
{
	const struct work w = {.kind = RECORD, .event = event};

	if (!stream)
		return counts_on(host_of(d), device) ? FAILED : 0;
	return put(host_of(d), stream, &w, true);
}

static int wait_for(struct ckpt_device *d, void *stream, void *event)
{
	const struct work w = {.kind = WAIT, .event = event};

	return put(host_of(d), stream, &w, true);
}

static int copy_memory(struct ckpt_device *d, void *to, const void *from, size_t bytes, void *stream)
{
	const struct work w = {.kind = COPY, .to = to, .from = from, .bytes = bytes};

	return put(host_of(d), stream, &w, true);
}

// --- The device -------------------------------------------------------------------------------------------------------------

static int to_errno(int code)
{
	return code == NO_MEMORY ? -ENOMEM : code == NO_THREAD ? -EAGAIN : -EIO;
}

static const char *text(int code)
{
	return code == NO_MEMORY   ? "out of memory"
	       : code == NO_THREAD ? "no thread can be started"
				   : "failed on demand";
}

static void host_free(struct ckpt_device *device)
{
	struct ckpt_device_host *d = host_of(device);

	pthread_cond_destroy(&d->changed);
	ckpt_lock_done(&d->lock);
	free(d);
}

static const struct ckpt_device_ops host_ops = {
	.current = current,
	.thread_starts = thread_starts,
	.pinned_new = pinned_new,
	.pinned_free = pinned_free,
	.memory_new = memory_new,
	.memory_free = pinned_free,
	.device_of = device_of,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.event_new = event_new,
	.event_free = event_free,
	.is_capturing = is_capturing,
	.record = record,
	.wait_for = wait_for,
	.copy_out = copy_memory,
	.copy_in = copy_memory,
	.event_wait = event_wait,
	.to_errno = to_errno,
	.text = text,
	.free = host_free,
};

int ckpt_device_host_new(uint64_t rate, struct ckpt_device_host **ret_device)
{
	struct ckpt_device_host *d = ckpt_calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->device.ops = &host_ops;
	d->rate = rate;
	ckpt_lock_init(&d->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&d->changed, NULL);
	*ret_device = d;
	return 0;
}

struct ckpt_device *ckpt_device_host_as_device(struct ckpt_device_host *d)
{
	return &d->device;
}

void ckpt_device_host_place(struct ckpt_device_host *d, const void *memory, size_t bytes, int device)
{
	LOCK_SCOPE(&d->lock);
	if (d->range_count < RANGES_MAX)
		d->ranges[d->range_count++] = (struct range){memory, bytes, device};
}

void ckpt_device_host_fail(struct ckpt_device_host *d, uint64_t n, bool late)
{
	LOCK_SCOPE(&d->lock);
	d->calls = 0;
	d->fail_at = n;
	d->late = late;
}

uint64_t ckpt_device_host_calls(struct ckpt_device_host *d)
{
	LOCK_SCOPE(&d->lock);
	return d->calls;
}

uint64_t ckpt_device_host_pinned(struct ckpt_device_host *d)
{
	LOCK_SCOPE(&d->lock);
	return d->pinned;
}

void ckpt_device_host_set_current(struct ckpt_device_host *d, int device)
{
	LOCK_SCOPE(&d->lock);
	d->current = device;
}

uint32_t ckpt_device_host_touched(struct ckpt_device_host *d)
{
	LOCK_SCOPE(&d->lock);
	return d->touched;
}

void ckpt_device_host_capture(struct ckpt_device_host *d, bool capturing)
{
	LOCK_SCOPE(&d->lock);
	d->capturing = capturing;
}

int ckpt_device_host_launch(struct ckpt_device_host *d, void *stream, void (*call)(void *arg), void *arg)
{
	const struct work w = {.kind = CALL, .call = call, .arg = arg};

	return put(d, stream, &w, false);
}
