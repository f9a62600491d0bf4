// Hostile encodings of chunks, and chunks of any content. Six bytes say what is done with the rest: what, with which codec and
// width, and how many plain bytes there are. Decoded, it gives bytes or is damage, and nothing behind them is touched; encoded,
// it comes back as it was, and has not grown.

#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/codec/codec.h"

#define PLAIN_MAX (600u << 10) // some pieces
#define HEAD_BYTES 6u

static struct ckpt_codec *codec;

// As long as it must be: a sanitizer sees a byte too much.
static uint8_t *exactly(const uint8_t *bytes, uint32_t count)
{
	uint8_t *copy = malloc(count + !count);

	if (!copy)
		abort();
	memcpy(copy, bytes, count);
	return copy;
}

// What stands for the base: what is encoded with some other bits, or some floats. For 0 bytes none.
static uint8_t *new_base(uint32_t count, const uint8_t *plain, uint32_t bytes)
{
	uint8_t *base = malloc(count + !count);
	uint32_t x = 1;

	if (!base)
		abort();
	for (uint32_t i = 0; i < count; i += 4) {
		uint32_t float_bits, n = MIN(count - i, 4u);

		x = x * 1664525 + 1013904223;
		float_bits = (x & 0x807fffff) | (120 - (uint32_t)__builtin_ctz(x >> 8 | 0x8000)) << 23;
		if (plain && i + 4 <= bytes)
			float_bits = ckpt_get32(plain + i) + i % 64;
		memcpy(base + i, &float_bits, n);
	}
	return base;
}

static void try_decode(const struct ckpt_encoded *how, const uint8_t *stored, uint32_t bytes)
{
	uint32_t base_bytes = ckpt_codec_base_bytes(how->codec, bytes);
	CLEANUP_FREE uint8_t *base = new_base(base_bytes, NULL, 0);
	CLEANUP_FREE uint8_t *plain = malloc(bytes);
	int rc;

	if (!plain)
		return;
	rc = ckpt_codec_decode_beside(codec, how, stored, base, plain, bytes);
	fuzz_assert(rc == 0 || rc == -EBADMSG);
	fuzz_assert(ckpt_codec_name(how->codec) || rc == -EBADMSG);
	if (base_bytes)
		fuzz_assert(ckpt_codec_decode(codec, how, stored, plain, bytes) == -EBADMSG);
}

static void try_encode(const uint8_t *plain, uint32_t bytes, unsigned width, enum ckpt_codec_id with)
{
	uint32_t base_bytes = ckpt_codec_base_bytes(with, bytes);
	CLEANUP_FREE uint8_t *base = new_base(base_bytes, plain, bytes);
	CLEANUP_FREE uint8_t *out = malloc(bytes), *back = malloc(bytes);
	struct ckpt_encoded how = {0};

	if (!out || !back)
		return;
	if (with == CKPT_CODEC_ROUND)
		width = 2;
	if (base_bytes)
		fuzz_assert(!ckpt_codec_encode_beside(codec, plain, bytes, width, with, base, out, &how));
	else
		fuzz_assert(!ckpt_codec_encode(codec, plain, bytes, width, out, &how));
	fuzz_assert(how.bytes && how.bytes <= bytes && ckpt_codec_name(how.codec));
	CLEANUP_FREE uint8_t *stored = exactly(out, how.bytes);
	fuzz_assert(!ckpt_codec_decode_beside(codec, &how, stored, base, back, bytes));
	fuzz_assert(!memcmp(back, plain, bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const unsigned widths[] = {0, 1, 2, 4, 8};
	uint32_t rest, bytes;

	if (!codec && ckpt_codec_new(&codec))
		return 0;
	if (len <= HEAD_BYTES || len - HEAD_BYTES > PLAIN_MAX)
		return 0;
	rest = (uint32_t)(len - HEAD_BYTES);
	bytes = 1 + ckpt_get32(data + 2) % PLAIN_MAX;
	CLEANUP_FREE uint8_t *input = exactly(data + HEAD_BYTES, rest);
	if (data[0] & 0x80)
		try_encode(input, rest, widths[data[1] % ARRAY_LEN(widths)], (enum ckpt_codec_id)(data[0] % 5));
	else
		try_decode(&(struct ckpt_encoded){(enum ckpt_codec_id)data[0], data[1], rest}, input, bytes);
	return 0;
}
