#include "core/remote/near.h"

#include "core/base/util.h"

#include <stdio.h>

struct near {
	struct ckpt_objects base;
	struct ckpt_objects_ops ops; // with the name of this stack
	char name[64];
	struct ckpt_objects *here, *there;
};

static struct near *near_of(struct ckpt_objects *o)
{
	return (struct near *)o;
}

// They never change, and so it is all one which of the two is read.
static bool is_shared(const char *key)
{
	return !strncmp(key, "packs/", strlen("packs/")) || !strncmp(key, "m/", strlen("m/"));
}

// An answer that did not come. Behind a network -EIO and -EAGAIN say no more. On this disk they mean damage, and that somebody was quicker.
static int of_there(int rc)
{
	return rc == -EIO || rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static int near_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		    struct ckpt_object *ret_object)
{
	int rc = ckpt_objects_get(near_of(o)->here, key, offset, buf, len, ret_len, ret_object);

	return rc == -ENOENT && is_shared(key)
		       ? of_there(ckpt_objects_get(near_of(o)->there, key, offset, buf, len, ret_len, ret_object))
		       : rc;
}

static int near_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			   const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	int rc = ckpt_objects_get_ranges(near_of(o)->here, key, ranges, count, until, ret_object);

	return rc == -ENOENT && is_shared(key)
		       ? of_there(ckpt_objects_get_ranges(near_of(o)->there, key, ranges, count, until, ret_object))
		       : rc;
}

static int near_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	int rc = ckpt_objects_head(near_of(o)->here, key, ret_object);

	return rc == -ENOENT && is_shared(key) ? of_there(ckpt_objects_head(near_of(o)->there, key, ret_object)) : rc;
}

static int near_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		    struct ckpt_object *ret_object)
{
	return ckpt_objects_put_how(near_of(o)->here, key, data, len, frees, ret_object);
}

static int near_remove(struct ckpt_objects *o, const char *key)
{
	return ckpt_objects_remove(near_of(o)->here, key);
}

static int near_sync(struct ckpt_objects *o, const char *key)
{
	return ckpt_objects_sync(near_of(o)->here, key);
}

static int near_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn, void *arg)
{
	return ckpt_objects_list(near_of(o)->here, prefix, after, fn, arg);
}

static bool near_yield(struct ckpt_objects *o)
{
	return ckpt_objects_yield(near_of(o)->here);
}

static void near_refill(struct ckpt_objects *o)
{
	ckpt_objects_refill(near_of(o)->here);
}

static void near_close(struct ckpt_objects *o)
{
	ckpt_objects_close(near_of(o)->here);
	ckpt_objects_close(near_of(o)->there);
	free(o);
}

int ckpt_near_new(struct ckpt_objects *here, struct ckpt_objects *there, struct ckpt_objects **ret_objects)
{
	struct near *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	snprintf(n->name, sizeof(n->name), "%.20s+%.40s", here->ops->name, there->ops->name);
	n->ops = (struct ckpt_objects_ops){
		.name = n->name,
		.is_far = there->ops->is_far,
		.get = near_get,
		.get_ranges = near_get_ranges,
		.head = near_head,
		.put = near_put,
		.remove = near_remove,
		.sync = near_sync,
		.list = near_list,
		.yield = near_yield,
		.refill = near_refill,
		.close = near_close,
	};
	n->base.ops = &n->ops;
	n->here = here;
	n->there = there;
	*ret_objects = &n->base;
	return 0;
}

struct ckpt_objects *ckpt_near_here(struct ckpt_objects *o)
{
	return near_of(o)->here;
}

struct ckpt_objects *ckpt_near_there(struct ckpt_objects *o)
{
	return near_of(o)->there;
}
