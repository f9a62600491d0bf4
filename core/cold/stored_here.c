#include "core/cold/stored_here.h"

#include "core/cold/stored.h"

static bool is_raw(const struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	return e->content == CKPT_CONTENT_RAW ||
	       (e->content == CKPT_CONTENT_CHUNKS && ckpt_step_has_raw(step, m, e->index));
}

uint64_t ckpt_stored_raw(const struct ckpt_step *step, const struct ckpt_manifest *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (ckpt_manifest_first_link(m, i) == i && is_raw(step, m, &e))
			bytes += e.bytes;
	}
	return bytes;
}

static int add_cold(struct ckpt_stored *s, const struct ckpt_step *step, const struct ckpt_manifest *m, bool bases)
{
	int rc = 0;

	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (ckpt_manifest_first_link(m, i) == i && !is_raw(step, m, &e))
			rc = bases ? ckpt_stored_add_bases(s, m, i) : ckpt_stored_add_file(s, m, i);
	}
	return rc;
}

int ckpt_stored_version(const struct ckpt_step *step, const struct ckpt_manifest *m, uint64_t *ret_raw,
			uint64_t *ret_packed)
{
	struct ckpt_stored packed = {0};
	int rc = add_cold(&packed, step, m, false);

	if (!rc)
		rc = add_cold(&packed, step, m, true);
	*ret_raw = ckpt_stored_raw(step, m);
	*ret_packed = packed.out_bytes;
	ckpt_stored_done(&packed);
	return rc;
}

int ckpt_stored_file(const struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		     uint64_t *ret_bytes)
{
	struct ckpt_stored packed = {0};
	bool raw = !e->bytes || is_raw(step, m, e);
	int rc = raw ? 0 : ckpt_stored_add_file(&packed, m, e->index);

	*ret_bytes = raw ? e->bytes : packed.out_bytes;
	ckpt_stored_done(&packed);
	return rc;
}
