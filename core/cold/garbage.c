// What expiry makes garbage of, told before it is: who removed the steps need not be asked whether that is right.
#include "core/cold/garbage.h"

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/keys.h"
#include "core/base/util.h"
#include "core/cold/packing.h"
#include "core/state/journal.h"
#include "core/step/step.h"
#include "core/step/store.h"

#define KEY "expected"   // of what the log says
#define KEPT_MAX 900     // packs; as text they fit into a value
#define PACKS_MAX 65536u // 4 TiB of them
#define WORDS (CKPT_SHA256_LEN / sizeof(uint64_t) + 1)

static void key_of(const uint8_t id[CKPT_SHA256_LEN], uint64_t ret_key[WORDS])
{
	memcpy(ret_key, id, CKPT_SHA256_LEN);
	ret_key[WORDS - 1] = 1; // a key's last word is never 0
}

static int expect_locked(struct ckpt_store *s, const struct ckpt_pack *pack)
{
	uint64_t key[WORDS];
	bool is_new;
	int rc;

	if (ckpt_garbage_of(s)->expired_packs.count >= PACKS_MAX)
		return -ENOSPC;
	key_of(pack->id, key);
	rc = ckpt_keys_add(&ckpt_garbage_of(s)->expired_packs, key, WORDS, &is_new);
	ckpt_garbage_of(s)->expired_bytes += !rc && is_new ? pack->bytes : 0;
	return rc;
}

// Whatever cannot be noted is asked about.
void ckpt_garbage_expect_pack(struct ckpt_store *s, const struct ckpt_pack *pack)
{
	LOCK_SCOPE(&s->lock);

	(void)expect_locked(s, pack);
}

static void expect_unnamed_locked(const struct ckpt_step *step)
{
	for (size_t i = 0; i < ckpt_unnamed_of(step)->unnamed_count; i++)
		(void)expect_locked(step->store, &ckpt_unnamed_of(step)->unnamed[i]);
}

static void expect_packs_of(struct ckpt_store *s, const struct ckpt_manifest *m)
{
	LOCK_SCOPE(&s->lock);

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		if (expect_locked(s, &pack))
			break;
	}
}

void ckpt_garbage_expect(struct ckpt_step *step, struct ckpt_manifest *m)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_store *s = step->store;
	bool is_it = m && !memcmp(ckpt_manifest_sha256(m), v->is.manifest_sha256, CKPT_SHA256_LEN);

	ckpt_lock_take(&s->lock);
	expect_unnamed_locked(step);
	ckpt_lock_drop(&s->lock);
	// One that was warmed has packs, too, for its next cooling; so has what was reopened, which warms it.
	if (!m)
		return;
	if (is_it)
		m = ckpt_manifest_ref(m);
	else if (ckpt_step_read_manifest(step, &v->is, &m))
		return;
	expect_packs_of(s, m);
	ckpt_manifest_unref(m);
}

// --- For who collects next ----------------------------------------------------------------------------------------------

static int add_text_locked(struct ckpt_store *s, const char *text)
{
	uint8_t id[CKPT_SHA256_LEN];
	uint64_t key[WORDS];
	bool is_new;

	if (!text || ckpt_unhex(text, sizeof(id), id))
		return -EINVAL;
	key_of(id, key);
	return ckpt_garbage_of(s)->expired_packs.count < PACKS_MAX
		       ? ckpt_keys_add(&ckpt_garbage_of(s)->expired_packs, key, WORDS, &is_new)
		       : 0;
}

// A damaged list says nothing. *ret_count: its packs.
static int load(struct ckpt_store *s, size_t *ret_count)
{
	CLEANUP_FREE char *text = NULL;
	json_t *root = NULL, *packs, *pack;
	uint64_t seq;
	size_t i;
	int rc = ckpt_journal_get(s->journal, KEY, &text, &seq);

	*ret_count = 0;
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = ckpt_json_load(text, strlen(text), JSON_REJECT_DUPLICATES, NULL, &root);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	packs = json_object_get(root, "packs");
	ckpt_lock_take(&s->lock);
	json_array_foreach(packs, i, pack) if (add_text_locked(s, json_string_value(pack))) break;
	ckpt_lock_drop(&s->lock);
	*ret_count = json_array_size(packs);
	json_decref(root);
	return 0;
}

int ckpt_garbage_load(struct ckpt_store *s)
{
	size_t count;

	return load(s, &count);
}

static json_t *packs_of(struct ckpt_store *s)
{
	json_t *packs = json_array();
	LOCK_SCOPE(&s->lock);

	for (size_t i = 0; i < ckpt_garbage_of(s)->expired_packs.cap && json_array_size(packs) < KEPT_MAX; i++) {
		const uint64_t *key = ckpt_garbage_of(s)->expired_packs.slots + i * WORDS;
		char text[CKPT_SHA256_LEN * 2 + 1];

		if (!key[WORDS - 1])
			continue;
		ckpt_hex((const uint8_t *)key, CKPT_SHA256_LEN, text);
		json_array_append_new(packs, json_string(text));
	}
	return packs;
}

static int expect_unnamed_of_locked(void *arg __attribute__((unused)), struct ckpt_step *step)
{
	expect_unnamed_locked(step);
	return 0;
}

// What was put for a step and is in no version of it yet nobody knows of when we are gone. Where it is cooled on, it is needed.
static void expect_all_unnamed(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);

	(void)ckpt_step_each_locked(s, NULL, ~0u, expect_unnamed_of_locked, NULL);
}

void ckpt_garbage_keep(struct ckpt_store *s)
{
	CLEANUP_FREE char *text = NULL;
	size_t count;

	expect_all_unnamed(s);
	if (!ckpt_garbage_packs(s) || load(s, &count) || ckpt_garbage_packs(s) == count)
		return;
	ckpt_json_begin();
	text = ckpt_json_dump(json_pack("{s:o}", "packs", packs_of(s)), JSON_COMPACT);
	if (text)
		(void)ckpt_journal_set(s->journal, KEY, CKPT_ACT_ANY, text);
}

// ------------------------------------------------------------------------------------------------------------------------

bool ckpt_garbage_expects(struct ckpt_store *s, const uint8_t id[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&s->lock);
	uint64_t key[WORDS];

	key_of(id, key);
	return ckpt_keys_has(&ckpt_garbage_of(s)->expired_packs, key, WORDS);
}

size_t ckpt_garbage_packs(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);

	return ckpt_garbage_of(s)->expired_packs.count;
}

uint64_t ckpt_garbage_bytes(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);

	return ckpt_garbage_of(s)->expired_bytes;
}

void ckpt_garbage_expect_no_more(struct ckpt_store *s, size_t expected)
{
	ckpt_lock_take(&s->lock);
	if (ckpt_garbage_of(s)->expired_packs.count == expected) {
		ckpt_keys_done(&ckpt_garbage_of(s)->expired_packs);
		ckpt_garbage_of(s)->expired_bytes = 0;
	}
	ckpt_lock_drop(&s->lock);
	(void)ckpt_journal_set(s->journal, KEY, CKPT_ACT_ANY, "");
}

static void garbage_done(void *store)
{
	ckpt_keys_done(&ckpt_garbage_of(store)->expired_packs);
}

struct ckpt_part ckpt_garbage_part = {.bytes = sizeof(struct ckpt_garbage), .done = garbage_done};
