// A layer that fails operations by their number.
#include "backends/backends.h"

#include "core/base/util.h"

#include <stdio.h>

struct fault {
	struct ckpt_objects base;
	struct ckpt_objects_ops ops; // with the name of this stack
	char name[64];
	struct ckpt_objects *below;
	struct ckpt_fault *fault; // the caller's; count is only touched atomically
};

static struct fault *fault_of(struct ckpt_objects *o)
{
	return (struct fault *)o;
}

// Counts one operation: 0, or the error that it is to give.
static int fault_step(struct fault *f)
{
	uint64_t n = __atomic_add_fetch(&f->fault->count, 1, __ATOMIC_RELAXED);

	if (f->fault->at == 0 || n < f->fault->at || (n > f->fault->at && !f->fault->sticky))
		return 0;
	return f->fault->error;
}

// What a change that was hit answers: with half it was carried out, and its answer is lost.
static int fault_change(const struct fault *f, int error)
{
	return f->fault->half ? -EIO : error;
}

static int fault_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : ckpt_objects_get(f->below, key, offset, buf, len, ret_len, ret_object);
}

static int fault_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			    const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : ckpt_objects_get_ranges(f->below, key, ranges, count, until, ret_object);
}

static int fault_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : ckpt_objects_head(f->below, key, ret_object);
}

static int fault_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = ckpt_objects_put_how(f->below, key, data, len, frees, ret_object);
	return error ? fault_change(f, error) : r;
}

static int fault_replace(struct ckpt_objects *o, const char *key, const char *etag, const void *data, size_t len,
			 struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = ckpt_objects_replace(f->below, key, etag, data, len, ret_object);
	return error ? fault_change(f, error) : r;
}

static int fault_remove(struct ckpt_objects *o, const char *key, const char *etag)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = ckpt_objects_remove(f->below, key, etag);
	return error ? fault_change(f, error) : r;
}

static int fault_sync(struct ckpt_objects *o, const char *key)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : ckpt_objects_sync(f->below, key);
}

static int fault_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : ckpt_objects_list(f->below, prefix, after, fn, arg);
}

static bool fault_yield(struct ckpt_objects *o)
{
	return ckpt_objects_yield(fault_of(o)->below);
}

static void fault_refill(struct ckpt_objects *o)
{
	ckpt_objects_refill(fault_of(o)->below);
}

static void fault_close(struct ckpt_objects *o)
{
	ckpt_objects_close(fault_of(o)->below);
	free(o);
}

int ckpt_fault_new(struct ckpt_objects *below, struct ckpt_fault *fault, struct ckpt_objects **ret_objects)
{
	struct fault *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	snprintf(f->name, sizeof(f->name), "fault(%.50s)", below->ops->name);
	f->ops = (struct ckpt_objects_ops){
		.name = f->name,
		.get = fault_get,
		.get_ranges = fault_get_ranges,
		.head = fault_head,
		.put = fault_put,
		.replace = fault_replace,
		.remove = fault_remove,
		.sync = fault_sync,
		.list = fault_list,
		.yield = fault_yield,
		.refill = fault_refill,
		.close = fault_close,
	};
	f->base.ops = &f->ops;
	f->below = below;
	f->fault = fault;
	*ret_objects = &f->base;
	return 0;
}
