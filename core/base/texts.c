#include "core/base/texts.h"

#include "core/base/hash.h"
#include "core/base/util.h"

static uint32_t *slot_of(const struct ckpt_texts *t, const char *text)
{
	for (uint64_t at = ckpt_checksum(text, strlen(text), 0);; at++) {
		uint32_t *slot = &t->slots[at & (t->slot_count - 1)];

		if (!*slot || !strcmp(t->at[*slot - 1], text))
			return slot;
	}
}

static int make_room(struct ckpt_texts *t)
{
	struct ckpt_texts grown = *t;

	if (t->count * 2 < t->slot_count)
		return 0;
	if (t->count >= UINT32_MAX / 2)
		return -ENOMEM;
	grown.slot_count = MAX(t->slot_count * 2, (size_t)64);
	grown.slots = ckpt_calloc(grown.slot_count, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	for (size_t i = 0; i < t->count; i++)
		*slot_of(&grown, t->at[i]) = (uint32_t)i + 1;
	free(t->slots);
	*t = grown;
	return 0;
}

int ckpt_texts_number(struct ckpt_texts *t, const char *text, size_t *ret_number)
{
	uint32_t *slot;
	char *copied;
	int rc = make_room(t);

	if (!rc)
		rc = ckpt_grow((void **)&t->at, &t->cap, t->count + 1, sizeof(*t->at));
	if (rc)
		return rc;
	slot = slot_of(t, text);
	if (!*slot) {
		copied = strdup(text);
		if (!copied)
			return -ENOMEM;
		t->at[t->count++] = copied;
		*slot = (uint32_t)t->count;
	}
	*ret_number = *slot - 1;
	return 0;
}

void ckpt_texts_done(struct ckpt_texts *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->at[i]);
	free(t->at);
	free(t->slots);
	*t = (struct ckpt_texts){0};
}
