// What expiry makes garbage of, told before it is: who removed the steps need not be asked whether that is right.
#include "core/gc.h"

#include "core/keys.h"
#include "core/step.h"
#include "core/store.h"
#include "core/util.h"

#define PACKS_MAX 65536u // 4 TiB of them
#define WORDS (CKPT_SHA256_LEN / sizeof(uint64_t) + 1)

static void key_of(const uint8_t id[CKPT_SHA256_LEN], uint64_t ret_key[WORDS])
{
	memcpy(ret_key, id, CKPT_SHA256_LEN);
	ret_key[WORDS - 1] = 1; // a key's last word is never 0
}

// Whatever cannot be noted is asked about.
void ckpt_gc_expect(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	struct ckpt_manifest *m;

	if (!step->summary.packed || step->moved || ckpt_step_read_manifest(step, &step->summary, &m))
		return;
	ckpt_lock_take(&s->lock);
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && s->expired_packs.count < PACKS_MAX; i++) {
		struct ckpt_pack pack;
		uint64_t key[WORDS];
		bool is_new;

		ckpt_manifest_pack(m, i, &pack);
		key_of(pack.id, key);
		if (ckpt_keys_add(&s->expired_packs, key, WORDS, &is_new))
			break;
		s->expired_bytes += is_new ? pack.bytes : 0;
	}
	ckpt_lock_drop(&s->lock);
	ckpt_manifest_unref(m);
}

bool ckpt_gc_expects(struct ckpt_store *s, const uint8_t id[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&s->lock);
	uint64_t key[WORDS];

	key_of(id, key);
	return ckpt_keys_has(&s->expired_packs, key, WORDS);
}

size_t ckpt_gc_expected(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);

	return s->expired_packs.count;
}

uint64_t ckpt_gc_expected_bytes(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);

	return s->expired_bytes;
}

void ckpt_gc_expect_no_more(struct ckpt_store *s, size_t expected)
{
	LOCK_SCOPE(&s->lock);

	if (s->expired_packs.count != expected)
		return;
	ckpt_keys_done(&s->expired_packs);
	s->expired_bytes = 0;
}
