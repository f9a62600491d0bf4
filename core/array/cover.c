#include "core/array/cover.h"

#include "core/base/util.h"

struct cover {
	const struct ckpt_box *boxes;
	const struct ckpt_box *region;
	unsigned ndim;
	uint64_t steps_left;
	struct ckpt_covered *found;
};

struct sweep {
	const struct cover *of;
	unsigned dim;
};

static uint64_t begin_of(const struct cover *c, uint32_t box, unsigned dim)
{
	return MAX(c->boxes[box].start[dim], c->region->start[dim]);
}

static uint64_t end_of(const struct cover *c, uint32_t box, unsigned dim)
{
	return MIN(c->boxes[box].start[dim] + c->boxes[box].extent[dim],
		   c->region->start[dim] + c->region->extent[dim]);
}

static int by_begin(const void *a, const void *b, void *arg)
{
	const struct sweep *s = arg;
	uint64_t x = begin_of(s->of, *(const uint32_t *)a, s->dim), y = begin_of(s->of, *(const uint32_t *)b, s->dim);

	return x < y ? -1 : x > y;
}

static bool all_reach_across(const struct cover *c, unsigned dim, const uint32_t *at, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (end_of(c, at[i], dim) - begin_of(c, at[i], dim) != c->region->extent[dim])
			return false;
	return true;
}

static int cover(struct cover *c, unsigned dim, const uint32_t *at, size_t count, uint64_t weight);

// at is sorted by where the boxes begin.
static int sweep(struct cover *c, unsigned dim, const uint32_t *at, size_t count, uint64_t weight)
{
	CLEANUP_FREE uint32_t *active = ckpt_calloc(count, sizeof(*active));
	uint64_t pos = c->region->start[dim], end = pos + c->region->extent[dim];
	size_t next = 0, n = 0;
	int rc = active ? 0 : -ENOMEM;

	while (!rc && pos < end) {
		uint64_t until = end;
		size_t kept = 0;

		if (n + 1 > c->steps_left)
			return -E2BIG;
		c->steps_left -= n + 1;

		for (; next < count && begin_of(c, at[next], dim) <= pos; next++)
			active[n++] = at[next];
		for (size_t i = 0; i < n; i++)
			if (end_of(c, active[i], dim) > pos) {
				until = MIN(until, end_of(c, active[i], dim));
				active[kept++] = active[i];
			}
		n = kept;
		if (next < count)
			until = MIN(until, begin_of(c, at[next], dim));
		rc = cover(c, dim + 1, active, n, weight * (until - pos));
		pos = until;
	}
	return rc;
}

// Of the boxes, all of which are there in the dimensions before.
static int cover(struct cover *c, unsigned dim, const uint32_t *at, size_t count, uint64_t weight)
{
	CLEANUP_FREE uint32_t *sorted = NULL;

	if (!count || dim == c->ndim) {
		for (; dim < c->ndim; dim++)
			weight *= c->region->extent[dim];
		*(count ? &c->found->doubled : &c->found->missing) += weight * (count ? count - 1 : 1);
		return 0;
	}
	if (count > c->steps_left)
		return -E2BIG;
	c->steps_left -= count;
	if (all_reach_across(c, dim, at, count))
		return cover(c, dim + 1, at, count, weight * c->region->extent[dim]);
	sorted = ckpt_calloc(count, sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, at, count * sizeof(*sorted));
	qsort_r(sorted, count, sizeof(*sorted), by_begin, &(struct sweep){c, dim});
	return sweep(c, dim, sorted, count, weight);
}

static bool meets(const struct cover *c, uint32_t box)
{
	for (unsigned i = 0; i < c->ndim; i++)
		if (begin_of(c, box, i) >= end_of(c, box, i))
			return false;
	return true;
}

int ckpt_cover(const struct ckpt_box *boxes, size_t count, unsigned ndim, const struct ckpt_box *region,
	       struct ckpt_covered *ret_covered)
{
	struct cover c = {boxes, region, ndim, CKPT_COVER_STEPS_MAX, ret_covered};
	CLEANUP_FREE uint32_t *at = ckpt_calloc(count + 1, sizeof(*at));
	size_t n = 0;

	if (!at)
		return -ENOMEM;
	*ret_covered = (struct ckpt_covered){0};
	for (uint32_t i = 0; i < count; i++)
		if (meets(&c, i))
			at[n++] = i;
	return cover(&c, 0, at, n, 1);
}
