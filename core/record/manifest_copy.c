#include "core/record/manifest.h"

// What one manifest says of the bytes of a file, said in another: packs and bases come along.

// No deeper than a manifest that was parsed may be.
static int copy_place(struct ckpt_manifest_writer *w, const struct ckpt_manifest *from, struct ckpt_chunk *chunk)
{
	struct ckpt_chunk bases[CKPT_BASE_PIECES_MAX];
	struct ckpt_pack pack;
	int r;

	if (!chunk->pack)
		return 0;
	ckpt_manifest_pack(from, chunk->pack - 1, &pack);
	r = ckpt_manifest_writer_pack(w, &pack, &chunk->pack);
	for (uint32_t i = 0; i < chunk->base_count && !r; i++) {
		ckpt_manifest_base(from, chunk->base - 1 + i, &bases[i]);
		r = copy_place(w, from, &bases[i]);
	}
	return r || !chunk->base_count ? r : ckpt_manifest_writer_bases(w, bases, chunk->base_count, &chunk->base);
}

int ckpt_manifest_writer_copy_seal(struct ckpt_manifest_writer *w, uint32_t handle, const struct ckpt_manifest *from,
				   const struct ckpt_seal *seal)
{
	int r = ckpt_manifest_writer_seal(w, handle, seal->sha256);

	for (uint32_t i = 0; i < seal->count && !r; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(from, seal->first + i, &chunk);
		r = copy_place(w, from, &chunk);
		if (!r)
			r = ckpt_manifest_writer_chunk(w, &chunk);
	}
	return r;
}
