#include "core/remote/hold.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/state/act.h"

int64_t ckpt_hold_due(struct ckpt_hold *h, const char *step)
{
	if (strcmp(h->step, step)) {
		memcpy(h->step, step, sizeof(h->step));
		h->due_ns = ckpt_sys.mono_ns() + CKPT_HOLD_NS;
	}
	return h->due_ns;
}

static int append_act(const struct ckpt_act *a, struct ckpt_log *log, const char *node)
{
	struct ckpt_operation op = {.kind = CKPT_ACT_HOLD, .required = true, .actor = ckpt_actor_get()};
	CLEANUP_FREE void *body = NULL;
	int rc = ckpt_act_encode(a, &body, &op.len);

	op.body = body;
	memcpy(op.node, node, sizeof(op.node));
	if (!rc)
		rc = ckpt_sys.random(op.nonce, sizeof(op.nonce));
	return rc ? rc : ckpt_log_append(log, &op, 1, false);
}

// The packs of a manifest ascend.
static uint8_t *names_of(const struct ckpt_manifest *m)
{
	uint32_t count = ckpt_manifest_pack_count(m);
	uint8_t *names = malloc(((size_t)count + 1) * CKPT_SHA256_LEN);

	for (uint32_t i = 0; names && i < count; i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		memcpy(names + (size_t)i * CKPT_SHA256_LEN, pack.id, CKPT_SHA256_LEN);
	}
	if (names)
		memcpy(names + (size_t)count * CKPT_SHA256_LEN, ckpt_manifest_sha256(m), CKPT_SHA256_LEN);
	return names;
}

int ckpt_hold_append(struct ckpt_hold *h, struct ckpt_log *log, const char *node, const struct ckpt_manifest *m,
		     bool is_object)
{
	uint32_t packs = ckpt_manifest_pack_count(m), all = packs + is_object;
	CLEANUP_FREE uint8_t *names = names_of(m);
	int rc = names ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < all && !rc; i += CKPT_ACT_OBJECTS_MAX) {
		struct ckpt_act a = {.kind = CKPT_ACT_HOLD, .objects = names + (size_t)i * CKPT_SHA256_LEN};
		uint32_t count = MIN(all - i, CKPT_ACT_OBJECTS_MAX);

		a.pack_count = MIN(count, packs - i);
		a.manifest_count = count - a.pack_count;
		memcpy(a.step, h->step, sizeof(a.step));
		rc = append_act(&a, log, node);
	}
	if (!rc)
		h->due_ns = ckpt_sys.mono_ns() + CKPT_HOLD_NS;
	return rc;
}
