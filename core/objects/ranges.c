// Several ranges of one object. Where the backend has no way of its own, ranges that touch each other, or nearly, are one get.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/objects/door.h"

#include <assert.h>

#define GAP_BYTES_MAX (32u << 10)  // read for nothing, rather than asking once more
#define GROUP_BYTES_MAX (4u << 20) // of one get for several ranges

// Ranges that are read at once: those of sorted[] from first to before end.
struct group {
	size_t first, end;
	uint64_t offset;
	size_t len;
};

static int by_offset(const void *a, const void *b)
{
	uint64_t x = (*(struct ckpt_range *const *)a)->offset, y = (*(struct ckpt_range *const *)b)->offset;

	return (x > y) - (x < y);
}

// The sum, or the largest number where that is too large.
static uint64_t end_of(uint64_t offset, uint64_t len)
{
	uint64_t end;

	return __builtin_add_overflow(offset, len, &end) ? UINT64_MAX : end;
}

static struct group group_from(struct ckpt_range *const *sorted, size_t first, size_t count)
{
	struct group g = {first, first + 1, sorted[first]->offset, sorted[first]->len};
	uint64_t end = end_of(g.offset, g.len);

	for (; g.end < count; g.end++) {
		const struct ckpt_range *next = sorted[g.end];
		uint64_t more = MAX(end, end_of(next->offset, next->len));

		if (next->offset > end_of(end, GAP_BYTES_MAX) || more - g.offset > GROUP_BYTES_MAX)
			break;
		end = more;
	}
	if (g.end > first + 1)
		g.len = (size_t)(end - g.offset);
	return g;
}

static int get_group(struct ckpt_objects *o, const char *key, struct ckpt_range *const *sorted, const struct group *g,
		     struct ckpt_object *ret_object)
{
	CLEANUP_FREE char *buf = g->end > g->first + 1 ? malloc(MAX(g->len, (size_t)1)) : NULL;
	size_t got;
	int r;

	if (g->end == g->first + 1)
		return ckpt_objects_get(o, key, g->offset, sorted[g->first]->buf, g->len, &sorted[g->first]->got,
					ret_object);
	if (!buf)
		return -ENOMEM;
	r = ckpt_objects_get(o, key, g->offset, buf, g->len, &got, ret_object);
	for (size_t i = g->first; i < g->end && !r; i++) {
		size_t at = (size_t)(sorted[i]->offset - g->offset);

		sorted[i]->got = at < got ? MIN(sorted[i]->len, got - at) : 0;
		if (sorted[i]->got)
			memcpy(sorted[i]->buf, buf + at, sorted[i]->got);
	}
	return r;
}

static int is_over(const struct ckpt_until *until)
{
	if (until && until->cancelled && __atomic_load_n(until->cancelled, __ATOMIC_RELAXED))
		return -ECANCELED;
	return until && until->deadline_ns && ckpt_sys.mono_ns() >= until->deadline_ns ? -ETIMEDOUT : 0;
}

static int get_by_groups(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			 const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	CLEANUP_FREE struct ckpt_range **sorted = calloc(count, sizeof(*sorted));
	struct ckpt_object object;
	int r = sorted ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !r; i++)
		sorted[i] = &ranges[i];
	if (!r)
		qsort(sorted, count, sizeof(*sorted), by_offset);
	for (size_t first = 0; first < count && !r;) {
		struct group g = group_from(sorted, first, count);

		r = is_over(until);
		if (!r)
			r = get_group(o, key, sorted, &g, &object);
		if (!r && first && strcmp(object.etag, ret_object->etag) != 0)
			r = -ESTALE;
		*ret_object = object;
		first = g.end;
	}
	return r;
}

static int check_ranges(const struct ckpt_range *ranges, size_t count, const struct ckpt_object *object)
{
	if (!ckpt_object_valid(object))
		return -EIO;
	for (size_t i = 0; i < count; i++)
		if (ranges[i].got != ckpt_objects_get_expected(object, ranges[i].offset, ranges[i].len))
			return -EIO;
	return 0;
}

int ckpt_objects_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			    const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct ckpt_object object;
	int r;

	assert(o && key && ranges && count);
	r = ckpt_objects_key_check(key);
	if (r)
		return r;
	r = o->ops->get_ranges
		    ? ckpt_objects_result_check(o->ops->get_ranges(o, key, ranges, count, until, &object), -ESTALE)
		    : get_by_groups(o, key, ranges, count, until, &object);
	if (!r)
		r = check_ranges(ranges, count, &object);
	if (!r && ret_object)
		*ret_object = object;
	return r;
}
