#include "core/cold/condemned_chunks.h"

#include "core/state/condemned.h"
#include "core/step/store.h"

bool ckpt_chunk_is_condemned(struct ckpt_store *s, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	struct ckpt_chunk base;
	struct ckpt_pack pack;
	bool is;

	ckpt_manifest_pack(m, chunk->pack - 1, &pack);
	is = ckpt_journal_pack_condemned(s->journal, pack.id);
	for (uint32_t i = 0; i < chunk->base_count && !is; i++) {
		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		is = ckpt_chunk_is_condemned(s, m, &base);
	}
	return is;
}

bool ckpt_any_pack_is_condemned(struct ckpt_store *s, const struct ckpt_manifest *m)
{
	return ckpt_journal_names_condemned(s->journal, m, false);
}
