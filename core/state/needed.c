#include "core/state/needed.h"

#include "core/base/util.h"
#include "core/state/plain.h"
#include "core/state/shared.h"

static int add_step(struct ckpt_needed *n, const struct ckpt_state_step *step)
{
	int rc = ckpt_grow((void **)&n->at, &n->cap, n->count + step->count, sizeof(*n->at));

	for (size_t i = 0; i < step->count && !rc; i++)
		n->at[n->count++] = step->versions[i].record.seq;
	return rc;
}

static int add_plains(struct ckpt_needed *n, const struct ckpt_state *s)
{
	size_t count;
	struct ckpt_plain *const *all = ckpt_state_plains(s, &count);
	int rc = ckpt_grow((void **)&n->at, &n->cap, n->count + count, sizeof(*n->at));

	for (size_t i = 0; i < count && !rc; i++)
		if (all[i]->content.len)
			n->at[n->count++] = all[i]->content.seq;
	return rc;
}

static int by_seq(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int ckpt_needed_find(const struct ckpt_state *s, struct ckpt_needed *n)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	struct ckpt_state_step *const *changed;
	size_t count = 0;
	int rc = ckpt_state_steps(s, &steps, &count);

	for (size_t i = 0; i < count && !rc; i++)
		rc = add_step(n, steps[i]);
	changed = ckpt_state_changed(s, &count);
	for (size_t i = 0; i < count && !rc; i++)
		if (changed[i]->shared)
			rc = add_step(n, changed[i]->shared);
	if (!rc)
		rc = add_plains(n, s);
	if (n->count)
		qsort(n->at, n->count, sizeof(*n->at), by_seq);
	return rc;
}

void ckpt_needed_done(struct ckpt_needed *n)
{
	free(n->at);
}

bool ckpt_needed_has(void *arg, uint64_t seq)
{
	const struct ckpt_needed *n = arg;

	return n->count && bsearch(&seq, n->at, n->count, sizeof(*n->at), by_seq);
}
