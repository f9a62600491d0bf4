// A layer that fails operations by their number.
#include "backends/backend.h"

#include "core/base/util.h"

#include <stdio.h>

struct fault {
	struct ckpt_backend base;
	struct ckpt_backend_ops ops; // with the name of this stack
	char name[64];
	struct ckpt_backend *below;
	struct ckpt_fault *fault; // the caller's; count is only touched atomically
};

static struct fault *fault_of(struct ckpt_backend *b)
{
	return (struct fault *)b;
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

static int fault_get(struct ckpt_backend *b, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(b);
	int error = fault_step(f);

	return error ? error : ckpt_backend_get(f->below, key, offset, buf, len, ret_len, ret_object);
}

static int fault_head(struct ckpt_backend *b, const char *key, struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(b);
	int error = fault_step(f);

	return error ? error : ckpt_backend_head(f->below, key, ret_object);
}

static int fault_put(struct ckpt_backend *b, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(b);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = ckpt_backend_put_how(f->below, key, data, len, frees, ret_object);
	return error ? fault_change(f, error) : r;
}

static int fault_replace(struct ckpt_backend *b, const char *key, const char *etag, const void *data, size_t len,
			 struct ckpt_object *ret_object)
{
	struct fault *f = fault_of(b);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = ckpt_backend_replace(f->below, key, etag, data, len, ret_object);
	return error ? fault_change(f, error) : r;
}

static int fault_remove(struct ckpt_backend *b, const char *key, const char *etag)
{
	struct fault *f = fault_of(b);
	int error = fault_step(f), r = 0;

	if (!error || f->fault->half)
		r = ckpt_backend_remove(f->below, key, etag);
	return error ? fault_change(f, error) : r;
}

static int fault_list(struct ckpt_backend *b, const char *prefix, const char *after, ckpt_backend_list_fn *fn,
		      void *arg)
{
	struct fault *f = fault_of(b);
	int error = fault_step(f);

	return error ? error : ckpt_backend_list(f->below, prefix, after, fn, arg);
}

static bool fault_yield(struct ckpt_backend *b)
{
	return ckpt_backend_yield(fault_of(b)->below);
}

static void fault_refill(struct ckpt_backend *b)
{
	ckpt_backend_refill(fault_of(b)->below);
}

static void fault_close(struct ckpt_backend *b)
{
	ckpt_backend_close(fault_of(b)->below);
	free(b);
}

int ckpt_backend_fault_new(struct ckpt_backend *below, struct ckpt_fault *fault, struct ckpt_backend **ret_backend)
{
	struct fault *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	snprintf(f->name, sizeof(f->name), "fault(%.50s)", below->ops->name);
	f->ops = (struct ckpt_backend_ops){
		.name = f->name,
		.get = fault_get,
		.head = fault_head,
		.put = fault_put,
		.replace = fault_replace,
		.remove = fault_remove,
		.list = fault_list,
		.yield = fault_yield,
		.refill = fault_refill,
		.close = fault_close,
	};
	f->base.ops = &f->ops;
	f->below = below;
	f->fault = fault;
	*ret_backend = &f->base;
	return 0;
}
