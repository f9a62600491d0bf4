// A layer that writes one line per call: "put log/0000000000000001 bytes=512 result=0 us=731".
#include "backends/backends.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdio.h>

struct trace {
	struct ckpt_objects base;
	struct ckpt_objects_ops ops; // with the name of this stack
	char name[64];
	struct ckpt_objects *below;
	int fd; // the caller's
};

static struct trace *trace_of(struct ckpt_objects *o)
{
	return (struct trace *)o;
}

// One write per line, so that the lines of threads do not mix. A trace that cannot be written is dropped: it is no
// reason for a save to fail. Returns result.
static int trace_line(const struct trace *t, int64_t started_ns, const char *operation, const char *key, uint64_t bytes,
		      int result)
{
	char line[CKPT_OBJECT_KEY_MAX + 128];
	int len = snprintf(line, sizeof(line), "%s %s bytes=%" PRIu64 " result=%d us=%" PRId64 "\n", operation, key,
			   bytes, result, (ckpt_sys.mono_ns() - started_ns) / 1000);
	ssize_t n = write(t->fd, line, MIN((size_t)len, sizeof(line) - 1));

	(void)n;
	return result;
}

static int trace_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();
	int r = ckpt_objects_get(t->below, key, offset, buf, len, ret_len, ret_object);

	return trace_line(t, started_ns, "get", key, r < 0 ? 0 : *ret_len, r);
}

static int trace_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			    const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();
	int r = ckpt_objects_get_ranges(t->below, key, ranges, count, until, ret_object);
	uint64_t bytes = 0;

	for (size_t i = 0; i < count && !r; i++)
		bytes += ranges[i].got;
	return trace_line(t, started_ns, "get_ranges", key, bytes, r);
}

static int trace_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();
	int r = ckpt_objects_head(t->below, key, ret_object);

	return trace_line(t, started_ns, "head", key, r < 0 ? 0 : ret_object->bytes, r);
}

static int trace_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();
	int r = ckpt_objects_put_how(t->below, key, data, len, frees, ret_object);

	return trace_line(t, started_ns, "put", key, len, r);
}

static int trace_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			  const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();
	int r = ckpt_objects_put_from(t->below, key, source, until, ret_object);

	return trace_line(t, started_ns, "put_from", key, source->bytes, r);
}

static int trace_remove(struct ckpt_objects *o, const char *key)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();

	return trace_line(t, started_ns, "remove", key, 0, ckpt_objects_remove(t->below, key));
}

static int trace_sync(struct ckpt_objects *o, const char *key)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();

	return trace_line(t, started_ns, "sync", key, 0, ckpt_objects_sync(t->below, key));
}

static int trace_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();

	return trace_line(t, started_ns, "list", prefix, 0, ckpt_objects_list(t->below, prefix, after, fn, arg));
}

static bool trace_yield(struct ckpt_objects *o)
{
	return ckpt_objects_yield(trace_of(o)->below);
}

static void trace_refill(struct ckpt_objects *o)
{
	ckpt_objects_refill(trace_of(o)->below);
}

static int trace_abort_uploads(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();

	return trace_line(t, started_ns, "abort_uploads", "", 0,
			  ckpt_objects_abort_uploads(t->below, before_ns, ret_count));
}

static int trace_describe(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg,
			  struct ckpt_rights *ret_rights)
{
	struct trace *t = trace_of(o);
	int64_t started_ns = ckpt_sys.mono_ns();

	return trace_line(t, started_ns, "describe", "", 0, ckpt_objects_describe(t->below, fn, arg, ret_rights));
}

static void trace_why(struct ckpt_objects *o, char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	ckpt_objects_why(trace_of(o)->below, ret_why);
}

static void trace_close(struct ckpt_objects *o)
{
	ckpt_objects_close(trace_of(o)->below);
	free(o);
}

int ckpt_trace_new(struct ckpt_objects *below, int fd, struct ckpt_objects **ret_objects)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	snprintf(t->name, sizeof(t->name), "trace(%.50s)", below->ops->name);
	t->ops = (struct ckpt_objects_ops){
		.name = t->name,
		.is_far = below->ops->is_far,
		.get = trace_get,
		.get_ranges = trace_get_ranges,
		.head = trace_head,
		.put = trace_put,
		.put_from = trace_put_from,
		.remove = trace_remove,
		.sync = trace_sync,
		.list = trace_list,
		.yield = trace_yield,
		.refill = trace_refill,
		.abort_uploads = trace_abort_uploads,
		.describe = trace_describe,
		.why = trace_why,
		.close = trace_close,
	};
	t->base.ops = &t->ops;
	t->below = below;
	t->fd = fd;
	*ret_objects = &t->base;
	return 0;
}
