// One plane as it is stored: the smallest of four forms (FORMAT.md section 8), and the bytes that are written and read on the
// way.
//
// Threads: one at a time for each ckpt_zstd. Nothing blocks.
#pragma once

#include "core/codec/codec_zstd.h"

#include <stdint.h>

struct ckpt_output {
	uint8_t *at;
	uint32_t room;
};

struct ckpt_input {
	const uint8_t *at;
	uint32_t left;
};

int ckpt_output_put(struct ckpt_output *out, const void *bytes, uint32_t count); // 0, -ENOSPC
int ckpt_output_put8(struct ckpt_output *out, unsigned byte);
const uint8_t *ckpt_input_take(struct ckpt_input *in, uint32_t count); // NULL: there are not as many

// count: 1 or more. -ENOSPC, -ENOMEM.
int ckpt_plane_put(struct ckpt_zstd *z, const uint8_t *plane, uint32_t count, struct ckpt_output *out);
// *ret_plane: count bytes, in room or in what is read. room has room_bytes, count or more; all of them may be written.
// -EBADMSG, -ENOMEM.
int ckpt_plane_take(struct ckpt_zstd *z, struct ckpt_input *in, uint32_t count, uint8_t *room, uint32_t room_bytes,
		    const uint8_t **ret_plane);
