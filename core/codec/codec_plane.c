#include "core/codec/codec_plane.h"

#include "core/base/util.h"
#include "core/codec/codec_sample.h"
#include "core/codec/codec_split.h"

// plane := form bytes
enum form {
	RAW = 0,      // count bytes
	ZSTD = 1,     // length of the frame u32, frame
	CONSTANT = 2, // the byte that all are
	PACKED = 8,   // + bits: of each byte the lower ones (codec_split.h); the others are zero
};

#define WORTH_BITS 0.15 // that a frame must save of each byte: zstd itself gives up at less

int ckpt_output_put(struct ckpt_output *out, const void *bytes, uint32_t count)
{
	if (out->room < count)
		return -ENOSPC;
	memcpy(out->at, bytes, count);
	out->at += count;
	out->room -= count;
	return 0;
}

int ckpt_output_put8(struct ckpt_output *out, unsigned byte)
{
	return ckpt_output_put(out, &(uint8_t){(uint8_t)byte}, 1);
}

const uint8_t *ckpt_input_take(struct ckpt_input *in, uint32_t count)
{
	const uint8_t *at = in->at;

	if (in->left < count)
		return NULL;
	in->at += count;
	in->left -= count;
	return at;
}

// --- Put --------------------------------------------------------------------------------------------------------------

static unsigned bits_set(const uint8_t *at, uint32_t count)
{
	uint64_t set = 0;
	uint32_t i;

	for (i = 0; i + 32 <= count; i += 32)
		set |= ckpt_get64(at + i) | ckpt_get64(at + i + 8) | ckpt_get64(at + i + 16) | ckpt_get64(at + i + 24);
	for (; i < count; i++)
		set |= at[i];
	set |= set >> 32;
	set |= set >> 16;
	return (unsigned)(set | set >> 8) & 0xff;
}

// How many bits any byte has, from the lowest. Mostly it is 8, and the sample says so.
static unsigned bits_used(const uint8_t *plane, uint32_t count, const struct ckpt_sample *s)
{
	unsigned set = bits_set(s->at, s->bytes);

	if (set < 0x80)
		set |= bits_set(plane, count);
	return 32 - (unsigned)__builtin_clz(set | 1);
}

// -ENOSPC: it is not smaller than limit.
static int put_frame(struct ckpt_zstd *z, const uint8_t *plane, uint32_t count, enum ckpt_zstd_how how, uint32_t limit,
		     struct ckpt_output *out)
{
	const uint32_t before = 1 + sizeof(uint32_t);
	uint32_t frame = 0;
	int rc;

	if (MIN(out->room, limit) <= before)
		return -ENOSPC;
	rc = ckpt_zstd_encode(z, how, plane, count, out->at + before, MIN(out->room, limit) - before, &frame);
	if (rc)
		return rc;
	out->at[0] = ZSTD;
	ckpt_put32(out->at + 1, frame);
	out->at += before + frame;
	out->room -= before + frame;
	return 0;
}

static int put_packed(const uint8_t *plane, uint32_t count, unsigned bits, struct ckpt_output *out)
{
	uint32_t bytes = ckpt_packed_bytes(count, bits);

	if (out->room < 1 + bytes)
		return -ENOSPC;
	out->at[0] = (uint8_t)(PACKED + bits);
	ckpt_pack(plane, count, bits, out->at + 1);
	out->at += 1 + bytes;
	out->room -= 1 + bytes;
	return 0;
}

// What a plane that is not coded takes; ret_bits: 8 where packing gains nothing.
static uint32_t uncoded_bytes(const uint8_t *plane, uint32_t count, const struct ckpt_sample *s, unsigned *ret_bits)
{
	unsigned bits = bits_used(plane, count, s);

	while (bits < 8 && !ckpt_is_packable(bits))
		bits++;
	*ret_bits = bits;
	return bits < 8 ? ckpt_packed_bytes(count, bits) : count;
}

int ckpt_plane_put(struct ckpt_zstd *z, const uint8_t *plane, uint32_t count, struct ckpt_output *out)
{
	struct ckpt_sample sample;
	uint32_t uncoded;
	unsigned bits;
	int rc = -ENOSPC;

	if (!memcmp(plane, plane + 1, count - 1)) {
		rc = ckpt_output_put8(out, CONSTANT);
		return rc ? rc : ckpt_output_put8(out, plane[0]);
	}
	ckpt_sample_take(plane, count, &sample);
	uncoded = uncoded_bytes(plane, count, &sample, &bits);
	if (ckpt_sample_runs(&sample))
		rc = put_frame(z, plane, count, CKPT_ZSTD_FAST, uncoded, out);
	else if (ckpt_sample_bits(sample.at, sample.bytes, 1) < bits - WORTH_BITS)
		rc = put_frame(z, plane, count, CKPT_ZSTD_ENTROPY, uncoded, out);
	if (rc != -ENOSPC)
		return rc;
	if (bits < 8)
		return put_packed(plane, count, bits, out);
	rc = ckpt_output_put8(out, RAW);
	return rc ? rc : ckpt_output_put(out, plane, count);
}

// --- Take -------------------------------------------------------------------------------------------------------------

static int take_frame(struct ckpt_zstd *z, struct ckpt_input *in, uint32_t count, uint8_t *room, uint32_t room_bytes)
{
	const uint8_t *length = ckpt_input_take(in, sizeof(uint32_t)), *frame;

	if (!length)
		return -EBADMSG;
	frame = ckpt_input_take(in, ckpt_get32(length));
	return frame ? ckpt_zstd_decode(z, frame, ckpt_get32(length), room, count, room_bytes) : -EBADMSG;
}

static int take_packed(struct ckpt_input *in, uint32_t count, unsigned bits, uint8_t *room)
{
	const uint8_t *packed = ckpt_input_take(in, ckpt_packed_bytes(count, bits));

	if (!packed)
		return -EBADMSG;
	ckpt_unpack(packed, count, bits, room);
	return 0;
}

int ckpt_plane_take(struct ckpt_zstd *z, struct ckpt_input *in, uint32_t count, uint8_t *room, uint32_t room_bytes,
		    const uint8_t **ret_plane)
{
	const uint8_t *form = ckpt_input_take(in, 1), *bytes;

	if (!form)
		return -EBADMSG;
	*ret_plane = room;
	switch (*form) {
	case RAW:
		*ret_plane = ckpt_input_take(in, count);
		return *ret_plane ? 0 : -EBADMSG;
	case ZSTD:
		return take_frame(z, in, count, room, room_bytes);
	case CONSTANT:
		bytes = ckpt_input_take(in, 1);
		if (!bytes)
			return -EBADMSG;
		memset(room, *bytes, count);
		return 0;
	default:
		return *form > PACKED && ckpt_is_packable(*form - PACKED) ? take_packed(in, count, *form - PACKED, room)
									  : -EBADMSG;
	}
}
