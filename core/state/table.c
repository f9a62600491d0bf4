#include "core/state/table.h"

#include "core/base/util.h"

#define BUCKETS_FIRST 256

// FNV-1a
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return (h ^ '/') * UINT64_C(0x100000001b3);
}

static struct ckpt_state_step **id_slot(const struct ckpt_state *s, const char *id)
{
	return &s->of_id[hash(UINT64_C(0xcbf29ce484222325), id) & (s->bucket_count - 1)];
}

static struct ckpt_state_step **name_slot(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	return &s->of_name[hash(hash(UINT64_C(0xcbf29ce484222325), folder_id), name) & (s->bucket_count - 1)];
}

struct ckpt_state_step *ckpt_table_find(const struct ckpt_state *s, const char *id)
{
	struct ckpt_state_step *step = *id_slot(s, id);

	while (step && strcmp(step->id, id))
		step = step->next_of_id;
	return step;
}

struct ckpt_state_step *ckpt_table_listed(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	struct ckpt_state_step *step = *name_slot(s, folder_id, name);

	while (step && (step->deleted_by || strcmp(step->is.name, name) || strcmp(step->is.folder_id, folder_id)))
		step = step->next_of_name;
	return step;
}

void ckpt_table_give_name(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot = name_slot(s, step->is.folder_id, step->is.name);

	step->next_of_name = *slot;
	*slot = step;
}

void ckpt_table_take_name(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot = name_slot(s, step->is.folder_id, step->is.name);

	while (*slot != step)
		slot = &(*slot)->next_of_name;
	*slot = step->next_of_name;
}

struct ckpt_state_step *ckpt_state_step_clone(const struct ckpt_state_step *of)
{
	struct ckpt_state_step *step = calloc(1, sizeof(*step));

	if (!step)
		return NULL;
	*step = *of;
	step->versions = NULL;
	step->shared = NULL;
	step->since = step->latest = step->dropped = step->until = 0;
	step->merged = 0;
	step->count = step->cap = 0;
	if (ckpt_state_make_room(step, of->count)) {
		ckpt_state_step_free(step);
		return NULL;
	}
	memcpy(step->versions, of->versions, of->count * sizeof(*of->versions));
	step->count = of->count;
	return step;
}

void ckpt_state_step_free(struct ckpt_state_step *step)
{
	if (!step)
		return;
	ckpt_state_step_free(step->shared);
	free(step->versions);
	free(step);
}

// Growth is an optimisation: without memory for it the chains get longer.
static void grow(struct ckpt_state *s)
{
	size_t was = s->bucket_count, is = was * 4;
	struct ckpt_state_step **ids = calloc(is, sizeof(struct ckpt_state_step *)), **old = s->of_id;
	struct ckpt_state_step **names = calloc(is, sizeof(struct ckpt_state_step *));

	if (!ids || !names) {
		free(ids);
		free(names);
		return;
	}
	free(s->of_name);
	s->of_id = ids;
	s->of_name = names;
	s->bucket_count = is;
	for (size_t i = 0; i < was; i++)
		for (struct ckpt_state_step *step = old[i], *next; step; step = next) {
			struct ckpt_state_step **slot = id_slot(s, step->id);

			next = step->next_of_id;
			step->next_of_id = *slot;
			*slot = step;
			ckpt_table_give_name(s, step);
		}
	free(old);
}

void ckpt_table_insert(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot;

	if (s->count >= s->bucket_count)
		grow(s);
	slot = id_slot(s, step->id);
	step->next_of_id = *slot;
	*slot = step;
	s->count++;
	ckpt_table_give_name(s, step);
}

void ckpt_table_take_out(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot = id_slot(s, step->id);

	ckpt_table_take_name(s, step);
	while (*slot != step)
		slot = &(*slot)->next_of_id;
	*slot = step->next_of_id;
	s->count--;
}

void ckpt_table_swap(struct ckpt_state *a, struct ckpt_state *b)
{
	struct ckpt_state was = *a;

	a->of_id = b->of_id;
	a->of_name = b->of_name;
	a->bucket_count = b->bucket_count;
	a->count = b->count;
	a->plains = b->plains;
	a->condemned = b->condemned;
	b->of_id = was.of_id;
	b->of_name = was.of_name;
	b->bucket_count = was.bucket_count;
	b->count = was.count;
	b->plains = was.plains;
	b->condemned = was.condemned;
}

void ckpt_table_map_nodes(struct ckpt_state *s, const uint32_t *places)
{
	for (size_t i = 0; i < s->bucket_count; i++)
		for (struct ckpt_state_step *step = s->of_id[i]; step; step = step->next_of_id)
			for (size_t v = 0; v < step->count; v++)
				step->versions[v].by.node = places[step->versions[v].by.node];
}

int ckpt_table_init(struct ckpt_state *s)
{
	s->bucket_count = BUCKETS_FIRST;
	s->of_id = calloc(s->bucket_count, sizeof(struct ckpt_state_step *));
	s->of_name = calloc(s->bucket_count, sizeof(struct ckpt_state_step *));
	return s->of_id && s->of_name ? 0 : -ENOMEM;
}

void ckpt_table_done(struct ckpt_state *s)
{
	for (size_t i = 0; s->of_id && i < s->bucket_count; i++)
		for (struct ckpt_state_step *step = s->of_id[i], *next; step; step = next) {
			next = step->next_of_id;
			ckpt_state_step_free(step);
		}
	free(s->of_id);
	free(s->of_name);
}

const struct ckpt_state_step *ckpt_state_named(const struct ckpt_state *s, const char *folder_id, const char *name,
					       uint32_t version)
{
	const struct ckpt_state_step *step = *name_slot(s, folder_id, name);

	while (step && (strcmp(step->is.name, name) || strcmp(step->is.folder_id, folder_id) ||
			!ckpt_state_version(step, version)))
		step = step->next_of_name;
	return step;
}
