// A layer that makes calls again. Pages of a list and parts of an upload are made again below it, by s3.c itself.
#include "backends/backends.h"

#include "backends/backoff.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdio.h>

#define ACT_NS INT64_C(60000000000)

struct retry {
	struct ckpt_objects base;
	struct ckpt_objects_ops ops; // with the name of this stack
	char name[64];
	struct ckpt_objects *below;
	struct ckpt_backoff *backoff;
};

static struct retry *retry_of(struct ckpt_objects *o)
{
	return (struct retry *)o;
}

static bool is_unknown(int rc)
{
	return rc == -EIO || rc == -ETIMEDOUT;
}

// True: make the call again; it has waited. rc stays, or becomes -ECANCELED.
static bool again(struct retry *r, struct ckpt_try *t, bool repeats, int *rc)
{
	int waited;

	if (*rc != -EAGAIN && !(repeats && is_unknown(*rc)))
		return false;
	if (t->until && t->until->deadline_ns && ckpt_sys.mono_ns() >= t->until->deadline_ns)
		return false;
	waited = ckpt_backoff_wait(r->backoff, t);
	if (waited == -ECANCELED)
		*rc = waited;
	return !waited;
}

static int retry_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	struct retry *r = retry_of(o);
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, NULL, ACT_NS);
	int rc;

	do
		rc = ckpt_objects_get(r->below, key, offset, buf, len, ret_len, ret_object);
	while (again(r, &t, true, &rc));
	return rc;
}

static int retry_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			    const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct retry *r = retry_of(o);
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, until, ACT_NS);
	int rc;

	do
		rc = ckpt_objects_get_ranges(r->below, key, ranges, count, until, ret_object);
	while (again(r, &t, true, &rc));
	return rc;
}

static int retry_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	struct retry *r = retry_of(o);
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, NULL, ACT_NS);
	int rc;

	do
		rc = ckpt_objects_head(r->below, key, ret_object);
	while (again(r, &t, true, &rc));
	return rc;
}

static bool is_of_one_writer(const char *key)
{
	return !strncmp(key, "packs/", 6) || !strncmp(key, "m/", 2);
}

// After a put of unknown outcome the object that stands there is that one.
static int take_own(struct retry *r, const char *key, size_t len, struct ckpt_object *ret_object)
{
	int rc = retry_head(&r->base, key, ret_object);

	if (rc == -ENOENT)
		return -EIO; // it was there a moment ago
	return rc || ret_object->bytes == len ? rc : -EEXIST;
}

// One of the two ways to put something.
struct put {
	const char *key;
	const void *data;
	size_t len;
	bool frees;
	const struct ckpt_source *source; // NULL: data
	const struct ckpt_until *until;
};

static int put_once(struct retry *r, const struct put *p, struct ckpt_object *ret_object)
{
	return p->source ? ckpt_objects_put_from(r->below, p->key, p->source, p->until, ret_object)
			 : ckpt_objects_put_how(r->below, p->key, p->data, p->len, p->frees, ret_object);
}

static int put(struct retry *r, const struct put *p, struct ckpt_object *ret_object)
{
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, p->until, ACT_NS);
	bool repeats = is_of_one_writer(p->key), may_be_done = false;
	int rc;

	for (;;) {
		rc = put_once(r, p, ret_object);
		if (rc == -EEXIST && may_be_done)
			return take_own(r, p->key, p->len, ret_object);
		may_be_done = may_be_done || is_unknown(rc);
		if (!again(r, &t, repeats, &rc))
			// Busy at last says nothing of the one before.
			return rc == -EAGAIN && may_be_done ? -EIO : rc;
	}
}

static int retry_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	return put(retry_of(o), &(struct put){.key = key, .data = data, .len = len, .frees = frees}, ret_object);
}

static int retry_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			  const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	const struct put p = {.key = key, .len = (size_t)source->bytes, .source = source, .until = until};

	return put(retry_of(o), &p, ret_object);
}

static int retry_remove(struct ckpt_objects *o, const char *key)
{
	struct retry *r = retry_of(o);
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, NULL, ACT_NS);
	bool may_be_done = false;
	int rc;

	for (;;) {
		rc = ckpt_objects_remove(r->below, key);
		if (rc == -ENOENT && may_be_done)
			return 0;
		may_be_done = may_be_done || is_unknown(rc);
		if (!again(r, &t, true, &rc))
			return rc == -EAGAIN && may_be_done ? -EIO : rc;
	}
}

static int retry_sync(struct ckpt_objects *o, const char *key)
{
	struct retry *r = retry_of(o);
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, NULL, ACT_NS);
	int rc;

	do
		rc = ckpt_objects_sync(r->below, key);
	while (again(r, &t, true, &rc));
	return rc;
}

// A list goes on behind the last key that it has given.
struct relay {
	ckpt_objects_list_fn *fn;
	void *arg;
	char last[CKPT_OBJECT_KEY_MAX + 1];
	bool ended; // by fn, with this result
	int result;
};

static int pass_on(void *arg, const char *key, const struct ckpt_object *object)
{
	struct relay *l = arg;

	strcpy(l->last, key);
	l->result = l->fn(l->arg, key, object);
	l->ended = l->result != 0;
	return l->result;
}

static int retry_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	struct retry *r = retry_of(o);
	struct ckpt_try t = ckpt_backoff_begin(r->backoff, NULL, ACT_NS);
	struct relay l = {.fn = fn, .arg = arg};
	int rc;

	strcpy(l.last, after);
	do
		rc = ckpt_objects_list(r->below, prefix, l.last, pass_on, &l);
	while (!l.ended && again(r, &t, true, &rc));
	return l.ended ? l.result : rc;
}

static bool retry_yield(struct ckpt_objects *o)
{
	return ckpt_objects_yield(retry_of(o)->below);
}

static void retry_refill(struct ckpt_objects *o)
{
	ckpt_objects_refill(retry_of(o)->below);
}

// Those that are left the next call gives up.
static int retry_abort_uploads(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count)
{
	return ckpt_objects_abort_uploads(retry_of(o)->below, before_ns, ret_count);
}

// A server that does not answer is to be told of at once.
static int retry_describe(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg,
			  struct ckpt_rights *ret_rights)
{
	return ckpt_objects_describe(retry_of(o)->below, fn, arg, ret_rights);
}

static void retry_why(struct ckpt_objects *o, char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	ckpt_objects_why(retry_of(o)->below, ret_why);
}

static void retry_close(struct ckpt_objects *o)
{
	struct retry *r = retry_of(o);

	ckpt_objects_close(r->below);
	ckpt_backoff_free(r->backoff);
	free(r);
}

int ckpt_retry_new(struct ckpt_objects *below, struct ckpt_objects **ret_objects)
{
	struct retry *r = calloc(1, sizeof(*r));

	if (!r || ckpt_backoff_new(&r->backoff)) {
		free(r);
		return -ENOMEM;
	}
	snprintf(r->name, sizeof(r->name), "retry(%.50s)", below->ops->name);
	r->ops = (struct ckpt_objects_ops){
		.name = r->name,
		.is_far = below->ops->is_far,
		.get = retry_get,
		.get_ranges = retry_get_ranges,
		.head = retry_head,
		.put = retry_put,
		.put_from = retry_put_from,
		.remove = retry_remove,
		.sync = retry_sync,
		.list = retry_list,
		.yield = retry_yield,
		.refill = retry_refill,
		.abort_uploads = retry_abort_uploads,
		.describe = retry_describe,
		.why = retry_why,
		.close = retry_close,
	};
	r->base.ops = &r->ops;
	r->below = below;
	*ret_objects = &r->base;
	return 0;
}
