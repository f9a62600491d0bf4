#include "core/base/keys.h"

#include "core/base/util.h"

static uint64_t *slot_of(const struct ckpt_keys *k, const uint64_t *key, size_t words)
{
	uint64_t mixed = 0, *slot;
	size_t at;

	for (size_t i = 0; i < words; i++)
		mixed = (mixed ^ key[i]) * UINT64_C(0x9e3779b97f4a7c15);
	for (at = (size_t)(mixed ^ mixed >> 32);; at++) {
		slot = k->slots + (at & (k->cap - 1)) * words;
		if (!slot[words - 1] || !memcmp(slot, key, words * sizeof(*key)))
			return slot;
	}
}

static int make_room(struct ckpt_keys *k, size_t words)
{
	struct ckpt_keys grown = {.count = k->count, .cap = MAX(k->cap * 2, (size_t)64)};

	if (k->count * 2 < k->cap)
		return 0;
	grown.slots = ckpt_calloc(grown.cap, words * sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	for (size_t i = 0; i < k->cap; i++) {
		const uint64_t *key = k->slots + i * words;

		if (key[words - 1])
			memcpy(slot_of(&grown, key, words), key, words * sizeof(*key));
	}
	free(k->slots);
	*k = grown;
	return 0;
}

int ckpt_keys_add(struct ckpt_keys *k, const uint64_t *key, size_t words, bool *ret_new)
{
	uint64_t *slot;
	int rc = make_room(k, words);

	if (rc)
		return rc;
	slot = slot_of(k, key, words);
	*ret_new = !slot[words - 1];
	if (*ret_new) {
		memcpy(slot, key, words * sizeof(*key));
		k->count++;
	}
	return 0;
}

bool ckpt_keys_has(const struct ckpt_keys *k, const uint64_t *key, size_t words)
{
	return k->count && slot_of(k, key, words)[words - 1];
}

void ckpt_keys_done(struct ckpt_keys *k)
{
	free(k->slots);
	*k = (struct ckpt_keys){0};
}
