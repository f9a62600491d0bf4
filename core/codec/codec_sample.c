#include "core/codec/codec_sample.h"

#include "core/base/util.h"
#include "core/codec/codec_vector.h"

#define PARTS 16u
#define PART_BYTES (CKPT_SAMPLE_BYTES / PARTS)
#define WIDTH_MAX 8u
#define WIDTH_PARTS 64u
#define WIDTH_PART_BYTES 256u
#define WIDER_BITS 0.06 // that a byte must carry less for a greater width: more than chance makes of noise

void ckpt_sample_take(const uint8_t *from, uint32_t bytes, struct ckpt_sample *ret_sample)
{
	uint32_t apart = (bytes - PART_BYTES) / (PARTS - 1) & ~(WIDTH_MAX - 1);

	ret_sample->bytes = MIN(bytes, CKPT_SAMPLE_BYTES);
	if (bytes <= CKPT_SAMPLE_BYTES) {
		memcpy(ret_sample->at, from, bytes);
		return;
	}
	for (uint32_t i = 0; i < PARTS; i++)
		memcpy(ret_sample->at + i * PART_BYTES, from + i * apart, PART_BYTES);
}

typedef float floats __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));

// To some thousandths; of 0 it is no number of use, but one. A float is its exponent, and of what is behind it the logarithm is
// nearly a parabola.
CKPT_INLINE floats log_2(floats x)
{
	ckpt_words bits = (ckpt_words)x;
	floats whole = __builtin_convertvector((ints)(bits >> 23) - 127, floats);
	floats part = (floats)((bits & 0x7fffff) | 0x3f800000) - 1;

	return whole + part + 0.3467f * part * (1 - part);
}

static double bits_of(const uint32_t seen[256], uint32_t count)
{
	floats sums = {0}, total = {(float)count};
	ints values = {0};
	double sum, some;

	if (!count)
		return 0;
	for (unsigned i = 0; i < 256; i += 4) {
		ckpt_words n = ckpt_words_get(seen + i);
		floats x = __builtin_convertvector((ints)n, floats);

		sums += x * log_2(x);
		values -= (ints)(n != 0);
	}
	sum = (double)sums[0] + (double)sums[1] + (double)sums[2] + (double)sums[3];
	some = values[0] + values[1] + values[2] + values[3];
	// A sample shows less than there is, the more so the smaller it is: by this much where all values were seen (Miller and
	// Madow).
	return (double)log_2(total)[0] - sum / count + (some - 1) * 0.7213 / count;
}

double ckpt_sample_bits(const uint8_t *at, uint32_t count, uint32_t step)
{
	uint32_t seen[256] = {0}, n = 0;

	for (uint32_t i = 0; i < count; i += step, n++)
		seen[at[i]]++;
	return bits_of(seen, n);
}

bool ckpt_sample_runs(const struct ckpt_sample *s)
{
	uint32_t runs = 0;

	for (uint32_t i = 0; i + 8 <= s->bytes; i += 8) {
		uint64_t word = ckpt_get64(s->at + i);

		runs += word == (word << 8 | word >> 56);
	}
	return runs >= s->bytes / 8 / 16 + 2;
}

// How often each value was seen in each byte of eight.
static uint32_t count_values(const uint8_t *from, uint32_t bytes, uint32_t seen[WIDTH_MAX][256])
{
	uint32_t apart = (bytes - WIDTH_PART_BYTES) / (WIDTH_PARTS - 1) & ~(WIDTH_MAX - 1);

	if (bytes <= WIDTH_PARTS * WIDTH_PART_BYTES) {
		for (uint32_t i = 0; i < (bytes & ~(WIDTH_MAX - 1)); i++)
			seen[i % WIDTH_MAX][from[i]]++;
		return bytes / WIDTH_MAX;
	}
	for (uint32_t part = 0; part < WIDTH_PARTS; part++)
		for (uint32_t i = 0; i < WIDTH_PART_BYTES; i++)
			seen[i % WIDTH_MAX][from[part * apart + i]]++;
	return WIDTH_PARTS * WIDTH_PART_BYTES / WIDTH_MAX;
}

unsigned ckpt_sample_width(const uint8_t *from, uint32_t bytes)
{
	uint32_t seen[WIDTH_MAX][256] = {0}, count = count_values(from, bytes, seen);
	unsigned best = 1;
	double best_bits = 9;

	for (unsigned width = WIDTH_MAX; width; width /= 2) {
		double bits = 0;

		for (unsigned i = 0; i < width; i++)
			bits += bits_of(seen[i], count * (WIDTH_MAX / width)) / width;
		if (bits < best_bits + WIDER_BITS) {
			best = width;
			best_bits = MIN(best_bits, bits);
		}
		for (unsigned i = 0; i < width / 2; i++)
			for (unsigned v = 0; v < 256; v++)
				seen[i][v] += seen[i + width / 2][v];
	}
	return best;
}
