// A layer that fails operations by their number.
#include "backends/backends.h"

#include "core/base/util.h"

#include <stddef.h>
#include <stdio.h>

// It takes the place of the backend's own table of functions, so that all who have the object meet it.
struct fault {
	struct ckpt_objects_ops ops; // with the name of this stack
	const struct ckpt_objects_ops *below;
	char name[64];
	struct ckpt_fault *fault; // the caller's; count is only touched atomically
};

static struct fault *fault_of(struct ckpt_objects *o)
{
	return (struct fault *)((uintptr_t)o->ops - offsetof(struct fault, ops));
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

	return error ? error : f->below->get(o, key, offset, buf, len, ret_len, ret_object);
}

static int fault_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			    const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : f->below->get_ranges(o, key, ranges, count, until, ret_object);
}

static int fault_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : f->below->head(o, key, ret_object);
}

static int fault_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = f->below->put(o, key, data, len, frees, ret_object);
	return error ? fault_change(f, error) : r;
}

static int fault_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			  const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = f->below->put_from(o, key, source, until, ret_object);
	return error ? fault_change(f, error) : r;
}

static int fault_remove(struct ckpt_objects *o, const char *key)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = f->below->remove(o, key);
	return error ? fault_change(f, error) : r;
}

static int fault_sync(struct ckpt_objects *o, const char *key)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error || !f->below->sync ? error : f->below->sync(o, key);
}

static int fault_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? error : f->below->list(o, prefix, after, fn, arg);
}

static int fault_abort_uploads(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count)
{
	struct fault *f = fault_of(o);
	int error = fault_step(f);

	return error ? fault_change(f, error) : f->below->abort_uploads(o, before_ns, ret_count);
}

static void fault_close(struct ckpt_objects *o)
{
	struct fault *f = fault_of(o);

	o->ops = f->below;
	free(f);
	o->ops->close(o);
}

int ckpt_fault_new(struct ckpt_objects *below, struct ckpt_fault *fault, struct ckpt_objects **ret_objects)
{
	struct fault *f;

	*ret_objects = below;
	if (below->ops->close == fault_close) { // of two the later one counts
		fault_of(below)->fault = fault;
		return 0;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	snprintf(f->name, sizeof(f->name), "fault(%.50s)", below->ops->name);
	f->ops = *below->ops;
	f->ops.name = f->name;
	f->ops.get = fault_get;
	f->ops.get_ranges = below->ops->get_ranges ? fault_get_ranges : NULL;
	f->ops.head = fault_head;
	f->ops.put = fault_put;
	f->ops.put_from = below->ops->put_from ? fault_put_from : NULL;
	f->ops.remove = fault_remove;
	f->ops.sync = fault_sync;
	f->ops.list = fault_list;
	f->ops.abort_uploads = below->ops->abort_uploads ? fault_abort_uploads : NULL;
	f->ops.close = fault_close;
	f->below = below->ops;
	f->fault = fault;
	below->ops = &f->ops;
	return 0;
}
