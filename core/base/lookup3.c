// Three words take 12 bytes at a time. The last 1 to 12 bytes are mixed in another way, with zeros behind them.
#include "core/base/lookup3.h"

#include "core/base/util.h"

static uint32_t rotated(uint32_t word, unsigned bits)
{
	return word << bits | word >> (32 - bits);
}

static void mix(uint32_t *s)
{
	static const uint8_t bits[] = {4, 6, 8, 16, 19, 4};

	for (unsigned i = 0; i < ARRAY_LEN(bits); i++) {
		uint32_t *a = &s[i % 3], *b = &s[(i + 1) % 3], *c = &s[(i + 2) % 3];

		*a -= *c;
		*a ^= rotated(*c, bits[i]);
		*c += *b;
	}
}

static void mix_last(uint32_t *s)
{
	static const uint8_t bits[] = {14, 11, 25, 16, 4, 14, 24};

	for (unsigned i = 0; i < ARRAY_LEN(bits); i++) {
		uint32_t *c = &s[(i + 2) % 3], *b = &s[(i + 1) % 3];

		*c ^= *b;
		*c -= rotated(*b, bits[i]);
	}
}

void ckpt_lookup3_begin(struct ckpt_lookup3 *l, uint64_t bytes)
{
	uint32_t word = 0xdeadbeef + (uint32_t)bytes;

	*l = (struct ckpt_lookup3){{word, word, word}, bytes};
}

void ckpt_lookup3_add(struct ckpt_lookup3 *l, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len) {
		uint8_t step[CKPT_LOOKUP3_STEP] = {0};
		size_t n = MIN(len, sizeof(step));

		memcpy(step, at, n);
		for (unsigned i = 0; i < 3; i++)
			l->s[i] += ckpt_get32(step + 4 * i);
		if (l->left > sizeof(step))
			mix(l->s);
		else
			mix_last(l->s);
		l->left -= n;
		at += n;
		len -= n;
	}
}

uint32_t ckpt_lookup3_end(const struct ckpt_lookup3 *l)
{
	return l->s[2];
}
