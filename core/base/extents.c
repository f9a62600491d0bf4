#include "core/base/extents.h"

#include "core/base/util.h"

#include <stdlib.h>

// The first part that ends at `begin` or later; count: none does.
static size_t find(const struct ckpt_extents *s, uint64_t begin)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->list[middle].end < begin)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int insert(struct ckpt_extents *s, size_t at, uint64_t begin, uint64_t end, size_t count_max)
{
	int rc = s->count >= count_max ? -E2BIG : ckpt_grow((void **)&s->list, &s->cap, s->count + 1, sizeof(*s->list));

	if (rc)
		return rc;
	memmove(s->list + at + 1, s->list + at, (s->count - at) * sizeof(*s->list));
	s->list[at] = (struct ckpt_extent){begin, end};
	s->count++;
	return 0;
}

int ckpt_extents_add(struct ckpt_extents *s, uint64_t begin, uint64_t end, size_t count_max)
{
	size_t at = find(s, begin), behind = at;

	if (begin >= end)
		return 0;
	while (behind < s->count && s->list[behind].begin <= end)
		behind++;
	if (behind == at)
		return insert(s, at, begin, end, count_max);
	s->list[at].begin = MIN(s->list[at].begin, begin);
	s->list[at].end = MAX(s->list[behind - 1].end, end);
	memmove(s->list + at + 1, s->list + behind, (s->count - behind) * sizeof(*s->list));
	s->count -= behind - at - 1;
	return 0;
}

bool ckpt_extents_cover(const struct ckpt_extents *s, uint64_t begin, uint64_t end)
{
	size_t at = find(s, begin);

	return begin >= end || (at < s->count && s->list[at].begin <= begin && s->list[at].end >= end);
}

void ckpt_extents_done(struct ckpt_extents *s)
{
	free(s->list);
	*s = (struct ckpt_extents){0};
}
