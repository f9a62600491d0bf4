// Arrays of a step into device memory. An array is cut into boxes of at most one buffer, each a run of bytes in C order. Readers, which
// are four threads, take the next box: read it into a buffer of the pool, copy it into device memory, give the buffer back. So four
// reads or copies are under way.
//
// Bytes come from the library's set of arrays: it reads raw files, decodes chunks, and asks a remote for those that are not here. Large parts of
// raw files are read past the page cache (load_raw.h): into the same buffers, or by cuFile into device memory without a buffer. After the first
// refusal of cuFile a load does without it.
//
// Invariants: a reader has one buffer, and waits for no other reader; the first error stays; loaded() returns, also with an error, when no
// copy writes device memory any more.
#include "tools/cuda/ckptfs_cuda.h"
#include "tools/cuda/load_raw.h"
#include "tools/cuda/pool.h"

#include "core/array/array.h"
#include "core/base/util.h"
#include "core/ckptfs.h"

#include <stdarg.h>
#include <stdio.h>

#define READERS 4u

struct target { // an array that was asked for
	struct target *next;
	size_t array; // of the set
	uint8_t *at;
	int device;
	bool plain;                    // memory of no device
	struct ckpt_pool_event *event; // it comes when the memory may be written
	// Where its next box begins. A box has all of the dimensions behind `split`, some indices of that, and one of each in front.
	unsigned split;
	uint64_t row;   // bytes of one index of the split dimension
	uint64_t begin; // bytes of the array in front of the box
	uint64_t start[CKPT_ARRAY_DIMS_MAX];
};

struct box {
	const struct target *of;
	uint64_t begin, bytes;
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX];
};

struct ckpt_cuda_load {
	struct ckpt_cuda_pool *pool;
	struct ckpt_array_set *set;
	uint64_t box_bytes; // at most
	pthread_t threads[READERS];
	unsigned thread_count;
	atomic_bool stop, cufile_refused;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct target *first, **last; // all that was asked for
	struct target *now;           // whose boxes are taken
	size_t reading;               // readers that have a box
	bool ends;
	int rc;
	char why[CKPT_CUDA_WHY_MAX];
};

__attribute__((format(printf, 3, 4))) static void fail(struct ckpt_cuda_load *l, int rc, const char *why, ...)
{
	va_list args;

	{
		LOCK_SCOPE(&l->lock);
		if (!l->rc) {
			l->rc = rc;
			va_start(args, why);
			vsnprintf(l->why, sizeof(l->why), why, args);
			va_end(args);
		}
		atomic_store(&l->stop, true);
		pthread_cond_broadcast(&l->changed);
	}
	ckpt_pool_wake(l->pool);
}

static void fail_device(struct ckpt_cuda_load *l, const struct ckpt_array_info *a, int code)
{
	fail(l, code < 0 ? code : l->pool->device->ops->to_errno(code), "%.200s: its copy to the device failed: %s",
	     a->name, code < 0 ? strerror(-code) : l->pool->device->ops->text(code));
}

// --- Boxes ------------------------------------------------------------------------------------------------------------------

// A box with the pages that it begins and ends in fills a buffer, but for the smallest ones.
static uint64_t box_bytes(uint64_t buffer_room)
{
	return buffer_room < 4 * CKPT_POOL_ALIGN ? buffer_room : buffer_room - 2 * CKPT_POOL_ALIGN;
}

// The first dimension of which one index has no more bytes than a box.
static void split(struct target *t, const struct ckpt_array_info *a, uint64_t bytes_max)
{
	t->row = a->bytes;
	for (t->split = 0; t->split < a->ndim; t->split++) {
		t->row /= a->shape[t->split];
		if (t->row <= bytes_max)
			break;
	}
}

static void take_box(struct target *t, const struct ckpt_array_info *a, uint64_t bytes_max, struct box *ret_box)
{
	struct box *b = ret_box;
	unsigned k = t->split;

	*b = (struct box){.of = t, .begin = t->begin, .bytes = a->bytes};
	if (a->ndim) {
		uint64_t count = MIN(a->shape[k] - t->start[k], bytes_max / t->row);

		for (unsigned i = 0; i < a->ndim; i++) {
			b->start[i] = t->start[i];
			b->extent[i] = i < k ? 1 : i == k ? count : a->shape[i];
		}
		b->bytes = count * t->row;
		t->start[k] += count;
		for (; k && t->start[k] == a->shape[k]; k--) {
			t->start[k] = 0;
			t->start[k - 1]++;
		}
	}
	t->begin += b->bytes;
}

// False: there is none, and there will be none.
static bool next_box(struct ckpt_cuda_load *l, struct box *ret_box)
{
	const struct ckpt_array_info *a;
	LOCK_SCOPE(&l->lock);

	while (!l->now && !l->ends && !atomic_load(&l->stop))
		ckpt_lock_wait(&l->changed, &l->lock);
	if (!l->now || atomic_load(&l->stop))
		return false;
	a = ckpt_array_set_at(l->set, l->now->array);
	take_box(l->now, a, l->box_bytes, ret_box);
	if (l->now->begin == a->bytes)
		l->now = l->now->next;
	l->reading++;
	return true;
}

// --- Readers ----------------------------------------------------------------------------------------------------------------

struct reader {
	struct ckpt_cuda_load *load;
	struct ckpt_load_raw raw;
	void *streams[CKPT_DEVICES_MAX];
};

// from: in the buffer.
static int copy_box(struct reader *r, const struct box *box, struct ckpt_pool_buffer *b, const uint8_t *from)
{
	struct ckpt_cuda_pool *p = r->load->pool;
	struct ckpt_device *d = p->device;
	void **stream = &r->streams[box->of->device];
	int code = *stream ? 0 : d->ops->stream_new(d, box->of->device, stream);

	if (!code)
		code = d->ops->wait_for(d, *stream, box->of->event->event);
	if (!code)
		code = d->ops->copy_in(d, box->of->at + box->begin, from, box->bytes, *stream);
	if (!code)
		code = ckpt_pool_record(p, b, box->of->device, *stream);
	if (!code)
		code = ckpt_pool_wait(p, b);
	if (code && *stream) { // no copy reads the buffer when it is given back
		d->ops->stream_free(d, *stream);
		*stream = NULL;
	}
	return code;
}

static int read_box(struct reader *r, const struct box *box, struct ckpt_pool_buffer *b, uint8_t **ret_at)
{
	struct ckpt_cuda_load *l = r->load;
	unsigned ndim = ckpt_array_set_at(l->set, box->of->array)->ndim;

	if (ckpt_load_raw_find(&r->raw, box->of->array, box->begin, box->bytes) &&
	    ckpt_load_raw_read(&r->raw, box->begin, box->bytes, b->at, l->pool->buffer_room, ret_at))
		return 0;
	*ret_at = b->at;
	return ckpt_array_set_read(l->set, box->of->array, ndim ? box->start : NULL, ndim ? box->extent : NULL, b->at);
}

static bool refuse_cufile(struct ckpt_cuda_load *l)
{
	atomic_store(&l->cufile_refused, true);
	return false;
}

// cuFile works on the thread's device and knows no streams: the memory may be written when the event has come. False: the box is to be loaded
// otherwise, or the load has failed.
static bool load_by_cufile(struct reader *r, const struct box *box)
{
	struct ckpt_cuda_load *l = r->load;
	struct ckpt_device *d = l->pool->device;
	const struct target *t = box->of;
	int code;

	if (!l->pool->cufile || t->plain || atomic_load(&l->cufile_refused) ||
	    !ckpt_load_raw_find(&r->raw, t->array, box->begin, box->bytes))
		return false;
	code = d->ops->thread_starts(d, t->device);
	if (!code && !ckpt_load_raw_register(&r->raw))
		return refuse_cufile(l);
	if (!code)
		code = d->ops->event_wait(d, t->event->event);
	if (code) {
		fail_device(l, ckpt_array_set_at(l->set, t->array), code);
		return false;
	}
	return ckpt_load_raw_read_device(&r->raw, box->begin, box->bytes, t->at + box->begin) || refuse_cufile(l);
}

static void load_box(struct reader *r, const struct box *box)
{
	struct ckpt_cuda_load *l = r->load;
	const struct ckpt_array_info *a = ckpt_array_set_at(l->set, box->of->array);
	struct ckpt_pool_buffer *b;
	uint8_t *at;
	int rc, code;

	if (load_by_cufile(r, box))
		return;
	b = ckpt_pool_take(l->pool, &l->stop);
	if (!b)
		return;
	rc = read_box(r, box, b, &at);
	if (rc) {
		fail(l, rc, "%.200s: it cannot be read: %s", a->name, strerror(-rc));
	} else {
		code = copy_box(r, box, b, at);
		if (code)
			fail_device(l, a, code);
	}
	ckpt_pool_give(l->pool, b);
}

static void *read_all(void *arg)
{
	struct ckpt_cuda_load *l = arg;
	struct reader r = {.load = l, .raw = {.set = l->set, .flags = l->pool->flags, .cufile = l->pool->cufile}};
	struct box box;
	int code = l->pool->device->ops->thread_starts(l->pool->device, l->pool->home);

	if (code)
		fail(l, l->pool->device->ops->to_errno(code), "the device: %s", l->pool->device->ops->text(code));
	while (next_box(l, &box)) {
		load_box(&r, &box);
		LOCK_SCOPE(&l->lock);
		l->reading--;
		pthread_cond_broadcast(&l->changed);
	}
	ckpt_load_raw_done(&r.raw);
	for (unsigned k = 0; k < CKPT_DEVICES_MAX; k++)
		if (r.streams[k])
			l->pool->device->ops->stream_free(l->pool->device, r.streams[k]);
	return NULL;
}

// --- A load -----------------------------------------------------------------------------------------------------------------

int ckpt_cuda_load_step(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const char *step, char why[CKPT_CUDA_WHY_MAX],
			struct ckpt_cuda_load **ret_load)
{
	struct ckpt_cuda_load *l;
	int rc = ckpt_pool_check(pool);

	snprintf(why, CKPT_CUDA_WHY_MAX, "%s", rc ? CKPT_POOL_FORKED : "");
	if (rc)
		return rc;
	l = ckpt_calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->pool = pool;
	l->box_bytes = box_bytes(pool->buffer_room);
	l->last = &l->first;
	ckpt_lock_init(&l->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&l->changed, NULL);
	rc = ckpt_array_set_open(ckpt, step, &l->set);
	for (; !rc && l->thread_count < READERS; l->thread_count += !rc)
		rc = -pthread_create(&l->threads[l->thread_count], NULL, read_all, l);
	if (rc) {
		snprintf(why, CKPT_CUDA_WHY_MAX, "%.300s: it cannot be loaded: %s", step, strerror(-rc));
		ckpt_cuda_load_free(l);
	} else {
		*ret_load = l;
	}
	return rc;
}

static int mark(struct ckpt_cuda_load *l, struct target *t, void *stream)
{
	struct ckpt_device *d = l->pool->device;
	bool capturing = false;
	int code = ckpt_pool_device_of(l->pool, t->at, &t->device, &t->plain);

	if (!code)
		code = d->ops->is_capturing(d, t->device, stream, &capturing);
	if (!code && capturing)
		return -EBUSY;
	if (!code)
		code = ckpt_pool_event_take(l->pool, t->device, &t->event);
	if (!code)
		code = d->ops->record(d, t->device, t->event->event, stream);
	if (!code)
		return 0;
	fail_device(l, ckpt_array_set_at(l->set, t->array), code);
	return code < 0 ? code : d->ops->to_errno(code);
}

static int error_of(struct ckpt_cuda_load *l)
{
	LOCK_SCOPE(&l->lock);
	return l->rc;
}

int ckpt_cuda_load_array(struct ckpt_cuda_load *l, const char *name, void *pointer, uint64_t bytes, void *stream)
{
	const struct ckpt_array_info *a;
	struct target *t;
	size_t array;
	int rc = ckpt_pool_check(l->pool);

	if (!rc)
		rc = error_of(l);
	if (!rc)
		rc = ckpt_array_set_find(l->set, name, &array);
	if (rc)
		return rc;
	a = ckpt_array_set_at(l->set, array);
	if (a->why || !a->width)
		return -ENOTSUP;
	if (bytes != a->bytes || (bytes && !pointer))
		return -EINVAL;
	if (!bytes)
		return 0;
	t = ckpt_calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->array = array;
	t->at = pointer;
	split(t, a, l->box_bytes);
	rc = mark(l, t, stream);
	if (rc) {
		ckpt_pool_event_give(l->pool, t->event);
		free(t);
		return rc;
	}
	LOCK_SCOPE(&l->lock);
	*l->last = t;
	l->last = &t->next;
	if (!l->now)
		l->now = t;
	pthread_cond_broadcast(&l->changed);
	return 0;
}

int ckpt_cuda_loaded(struct ckpt_cuda_load *l)
{
	int rc = ckpt_pool_check(l->pool);

	if (rc)
		return rc;
	LOCK_SCOPE(&l->lock);
	while ((l->now && !l->rc) || l->reading)
		ckpt_lock_wait(&l->changed, &l->lock);
	return l->rc;
}

const char *ckpt_cuda_load_why(struct ckpt_cuda_load *l)
{
	if (ckpt_pool_check(l->pool))
		return CKPT_POOL_FORKED;
	LOCK_SCOPE(&l->lock);
	return l->why;
}

void ckpt_cuda_load_free(struct ckpt_cuda_load *l)
{
	struct target *t;

	if (!l || ckpt_pool_check(l->pool))
		return;
	{
		LOCK_SCOPE(&l->lock);
		l->ends = true;
		atomic_store(&l->stop, true);
		pthread_cond_broadcast(&l->changed);
	}
	ckpt_pool_wake(l->pool);
	for (unsigned i = 0; i < l->thread_count; i++)
		pthread_join(l->threads[i], NULL);
	while ((t = l->first)) {
		l->first = t->next;
		ckpt_pool_event_give(l->pool, t->event);
		free(t);
	}
	ckpt_array_set_free(l->set);
	pthread_cond_destroy(&l->changed);
	ckpt_lock_done(&l->lock);
	free(l);
}
