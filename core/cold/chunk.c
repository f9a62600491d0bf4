#include "core/cold/chunk.h"

#include "core/array/array.h"
#include "core/base/util.h"

static void take_large(struct ckpt_cuts *c, const struct ckpt_arrays *arrays)
{
	for (size_t i = 0; i < ckpt_arrays_count(arrays); i++) {
		struct ckpt_array a;

		ckpt_arrays_get(arrays, i, &a);
		if (a.bytes >= CKPT_CHUNK_ARRAY_MIN)
			c->arrays[c->count++] = (struct ckpt_cut){a.offset, a.offset + a.bytes};
	}
}

int ckpt_cuts_init(struct ckpt_cuts *c, const struct ckpt_source *s)
{
	struct ckpt_arrays *arrays = NULL;
	uint64_t most = s->bytes / CKPT_CHUNK_ARRAY_MIN;
	int rc = most ? ckpt_arrays_read("", s, &arrays) : 0;

	*c = (struct ckpt_cuts){.bytes = s->bytes};
	if (!arrays)
		return rc;
	most = MIN(most, (uint64_t)ckpt_arrays_count(arrays));
	c->arrays = ckpt_calloc((size_t)most + 1, sizeof(*c->arrays));
	if (c->arrays)
		take_large(c, arrays);
	else
		rc = -ENOMEM;
	ckpt_arrays_free(arrays);
	return rc;
}

void ckpt_cuts_done(struct ckpt_cuts *c)
{
	free(TAKE_PTR(c->arrays));
}

uint32_t ckpt_cuts_next(struct ckpt_cuts *c, uint64_t at)
{
	uint64_t end = c->bytes;

	while (c->next < c->count && c->arrays[c->next].end <= at)
		c->next++;
	if (c->next < c->count)
		end = at < c->arrays[c->next].begin ? c->arrays[c->next].begin : c->arrays[c->next].end;
	return (uint32_t)MIN(end - at, (uint64_t)CKPT_CHUNK_BYTES);
}
