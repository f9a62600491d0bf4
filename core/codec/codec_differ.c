#include "core/codec/codec_differ.h"

#include "core/base/util.h"
#include "core/codec/codec_vector.h"

// --- Expectations -----------------------------------------------------------------------------------------------------

typedef int32_t ints4 __attribute__((vector_size(16)));
typedef float floats4 __attribute__((vector_size(16)));
typedef uint16_t shorts4 __attribute__((vector_size(8)));

CKPT_INLINE ckpt_words load4(const uint8_t *from, unsigned width)
{
	shorts4 narrow;
	ckpt_words x;

	if (width == 2) {
		memcpy(&narrow, from, sizeof(narrow));
		return __builtin_convertvector(narrow, ckpt_words);
	}
	memcpy(&x, from, sizeof(x));
	return x;
}

CKPT_INLINE void store4(uint8_t *to, ckpt_words x, unsigned width)
{
	shorts4 narrow;

	if (width == 2) {
		narrow = __builtin_convertvector(x, shorts4);
		memcpy(to, &narrow, sizeof(narrow));
		return;
	}
	memcpy(to, &x, sizeof(x));
}

CKPT_INLINE ckpt_words spread_sign(ckpt_words x)
{
	return (ckpt_words)((ints4)x >> 31);
}

// As numbers with a sign in the order that the floats have; its own opposite.
CKPT_INLINE ckpt_words ordered(ckpt_words x, unsigned width)
{
	return x ^ (spread_sign(x) & (width == 2 ? 0x7fff0000 : 0x7fffffff));
}

// To the nearest, of two the even one. What becomes of a NaN does not matter, as it is always the same.
CKPT_INLINE ckpt_words rounded_to_bf16(ckpt_words x)
{
	return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}

CKPT_INLINE ckpt_words is_normal(ckpt_words x)
{
	ckpt_words exponent = x & 0x7f800000;

	return (ckpt_words)(exponent != 0) & (ckpt_words)(exponent != 0x7f800000);
}

// One multiplication as IEEE 754 has it, of normal numbers with a normal product: the same on every machine. All else stays.
CKPT_INLINE ckpt_words scaled_by(ckpt_words x, float scale)
{
	ckpt_words y = (ckpt_words)((floats4)x * scale), fit = is_normal(x) & is_normal(y);

	return (y & fit) | (x & ~fit);
}

// Elements of 16 bits stand in the upper half, so that signs and overflows are where those of 32 bits have them.
CKPT_INLINE ckpt_words expected4(const uint8_t *base, const struct ckpt_differ d)
{
	ckpt_words x = load4(base, d.rounded ? 4 : d.width);

	if (d.rounded)
		x = rounded_to_bf16(x);
	if (d.scaled)
		x = scaled_by(x, d.scale);
	if (d.width == 2)
		x <<= 16;
	return d.floats ? ordered(x, d.width) : x;
}

CKPT_INLINE ckpt_words differ4(const uint8_t *plain, const uint8_t *base, const struct ckpt_differ d)
{
	ckpt_words x = load4(plain, d.width);

	if (d.width == 2)
		x <<= 16;
	if (d.floats)
		x = ordered(x, d.width);
	x -= expected4(base, d);
	return d.width == 2 ? (x >> 15 ^ spread_sign(x)) & 0xffff : x << 1 ^ spread_sign(x);
}

CKPT_INLINE void undiffer4(ckpt_words z, const uint8_t *base, const struct ckpt_differ d, uint8_t *plain)
{
	ckpt_words x = z >> 1 ^ -(z & 1);

	if (d.width == 2)
		x <<= 16;
	x += expected4(base, d);
	if (d.floats)
		x = ordered(x, d.width);
	store4(plain, d.width == 2 ? x >> 16 : x, d.width);
}

static unsigned base_width(const struct ckpt_differ *d)
{
	return d->rounded ? 4 : d->width;
}

CKPT_INLINE uint32_t differ_all(const struct ckpt_differ d, const uint8_t *plain, const uint8_t *base, uint32_t count,
				uint32_t *ret_differences)
{
	ckpt_words set = {0};

	for (uint32_t i = 0; i + 4 <= count; i += 4) {
		ckpt_words z = differ4(plain + (size_t)i * d.width, base + (size_t)i * base_width(&d), d);

		set |= z;
		memcpy(ret_differences + i, &z, sizeof(z));
	}
	return set[0] | set[1] | set[2] | set[3];
}

CKPT_INLINE void undiffer_all(const struct ckpt_differ d, const uint32_t *differences, const uint8_t *base,
			      uint32_t count, uint8_t *ret_plain)
{
	for (uint32_t i = 0; i + 4 <= count; i += 4) {
		ckpt_words z;

		memcpy(&z, differences + i, sizeof(z));
		undiffer4(z, base + (size_t)i * base_width(&d), d, ret_plain + (size_t)i * d.width);
	}
}

// The compiler makes a loop of its own of each case.
#define EACH_CASE(d, CALL)                                                                                             \
	do {                                                                                                           \
		if ((d)->rounded)                                                                                      \
			CALL(((struct ckpt_differ){.width = 2, .rounded = true}));                                     \
		else if ((d)->width == 2 && (d)->floats)                                                               \
			CALL(((struct ckpt_differ){.width = 2, .floats = true}));                                      \
		else if ((d)->width == 2)                                                                              \
			CALL(((struct ckpt_differ){.width = 2}));                                                      \
		else if ((d)->scaled)                                                                                  \
			CALL(((struct ckpt_differ){.width = 4, .floats = true, .scaled = true, .scale = (d)->scale})); \
		else if ((d)->floats)                                                                                  \
			CALL(((struct ckpt_differ){.width = 4, .floats = true}));                                      \
		else                                                                                                   \
			CALL(((struct ckpt_differ){.width = 4}));                                                      \
	} while (0)

bool ckpt_differ(const struct ckpt_differ *d, const uint8_t *plain, const uint8_t *base, uint32_t count,
		 uint32_t *ret_differences)
{
	uint32_t whole = count & ~3u, left = count - whole;
	uint8_t last_plain[16] = {0}, last_base[16] = {0};
	uint32_t last[4], set = 0;

#define ALL(which) set |= differ_all(which, plain, base, whole, ret_differences)
	EACH_CASE(d, ALL);
#undef ALL
	memcpy(last_plain, plain + (size_t)whole * d->width, (size_t)left * d->width);
	memcpy(last_base, base + (size_t)whole * base_width(d), (size_t)left * base_width(d));
#define LAST(which) set |= differ_all(which, last_plain, last_base, 4, last)
	EACH_CASE(d, LAST);
#undef LAST
	memcpy(ret_differences + whole, last, left * sizeof(*last));
	return set;
}

void ckpt_undiffer(const struct ckpt_differ *d, const uint32_t *differences, const uint8_t *base, uint32_t count,
		   uint8_t *ret_plain)
{
	uint32_t whole = count & ~3u, left = count - whole;
	uint8_t last_plain[16], last_base[16] = {0};
	uint32_t last[4] = {0};

#define ALL(which) undiffer_all(which, differences, base, whole, ret_plain)
	EACH_CASE(d, ALL);
#undef ALL
	memcpy(last_base, base + (size_t)whole * base_width(d), (size_t)left * base_width(d));
	memcpy(last, differences + whole, left * sizeof(*last));
#define LAST(which) undiffer_all(which, last, last_base, 4, last_plain)
	EACH_CASE(d, LAST);
#undef LAST
	memcpy(ret_plain + (size_t)whole * d->width, last_plain, (size_t)left * d->width);
}

// --- Classes ----------------------------------------------------------------------------------------------------------

// Of a number of n bits, the first of which is 1: 2n, and 1 more where the second is 1, too. Of 0 it is 0, of 1 it is 2. The
// bits behind the second are left.
#define PAIR_BITS_MAX 56u // that can be added to up to 7 with less than 64 coming of it

static unsigned left_of(unsigned class)
{
	return class < 4 ? 0 : class / 2 - 2;
}

// Of four numbers: their classes, how many bits are left, and in their place these. A float's exponent and first bit are just
// what is wanted; it holds 24 bits, so that larger numbers go without their last 8.
CKPT_INLINE ckpt_words classify4(uint32_t *numbers, ckpt_words *ret_left)
{
	ckpt_words z = ckpt_words_get(numbers), large = (ckpt_words)(z >= 1u << 24),
		   held = ((z >> 8) & large) | (z & ~large);
	ckpt_words f = (ckpt_words) __builtin_convertvector((ints4)held, floats4), first, classes;

	first = (ckpt_words) __builtin_convertvector((floats4)(f & 0xffc00000), ints4);
	first = ((first << 8) & large) | (first & ~large);
	classes = ((f >> 22) - 252 + (large & 16)) & (ckpt_words)(z != 0);
	*ret_left = ((classes >> 1) - 2) & (ckpt_words)(classes >= 4);
	ckpt_words_put(numbers, z - first);
	return classes;
}

CKPT_INLINE ckpt_bytes lowest_bytes(const ckpt_words x[4])
{
	return ckpt_bytes_even(ckpt_bytes_even((ckpt_bytes)x[0], (ckpt_bytes)x[1]),
			       ckpt_bytes_even((ckpt_bytes)x[2], (ckpt_bytes)x[3]));
}

static uint64_t classify16(uint32_t *numbers, uint8_t *ret_classes, uint8_t *ret_left)
{
	ckpt_words classes[4] = {0}, left[4] = {0}, sum = {0};

	for (unsigned k = 0; k < 4; k++) {
		classes[k] = classify4(numbers + 4 * k, &left[k]);
		sum += left[k];
	}
	ckpt_bytes_put(ret_classes, lowest_bytes(classes));
	ckpt_bytes_put(ret_left, lowest_bytes(left));
	return sum[0] + sum[1] + sum[2] + sum[3];
}

uint64_t ckpt_differ_classify(uint32_t *numbers, uint32_t count, uint8_t *ret_classes, uint8_t *ret_left)
{
	uint32_t whole = count & ~15u, last[16] = {0}; // of zeros nothing is left
	uint8_t last_classes[16], last_left[16];
	uint64_t bits = 0;

	for (uint32_t i = 0; i < whole; i += 16)
		bits += classify16(numbers + i, ret_classes + i, ret_left + i);
	memcpy(last, numbers + whole, (count - whole) * sizeof(*last));
	bits += classify16(last, last_classes, last_left);
	memcpy(numbers + whole, last, (count - whole) * sizeof(*last));
	memcpy(ret_classes + whole, last_classes, count - whole);
	memcpy(ret_left + whole, last_left, count - whole);
	return bits;
}

struct bits {
	uint64_t word;
	unsigned have; // below 8 between two
	uint8_t *to;
};

CKPT_INLINE void put_bits(struct bits *b, uint64_t more, unsigned count)
{
	b->word |= more << b->have;
	b->have += count;
	ckpt_put64(b->to, b->word);
	b->to += b->have / 8;
	b->word >>= b->have & ~7u;
	b->have %= 8;
}

// Two together where they fit: each has to wait for the one before.
void ckpt_differ_put_bits(const uint32_t *bits, const uint8_t *left, uint32_t count, uint8_t *to)
{
	struct bits b = {.to = to};
	uint32_t i;

	for (i = 0; i + 2 <= count; i += 2) {
		uint64_t first = bits[i], second = bits[i + 1];

		if (left[i] + left[i + 1] <= PAIR_BITS_MAX) {
			put_bits(&b, first | second << left[i], (unsigned)left[i] + left[i + 1]);
		} else {
			put_bits(&b, first, left[i]);
			put_bits(&b, second, left[i + 1]);
		}
	}
	if (i < count)
		put_bits(&b, bits[i], left[i]);
}

// What a class says of its numbers.
struct class
{
	uint32_t first, mask; // the bits that they begin with, where they are; those that are left
	uint32_t left;        // how many
};
#define NO_CLASS (1u << 28) // left of what is none: no piece has as many bits

static void describe_classes(unsigned width, struct class ret_classes[256])
{
	for (unsigned c = 0; c < 256; c++) {
		unsigned left = left_of(c);

		if (c == 1 || c == 3 || c > 16 * width + 1)
			ret_classes[c] = (struct class){.left = NO_CLASS};
		else
			ret_classes[c] = (struct class){c < 4 ? c / 2 : (2 + c % 2) << left, (1u << left) - 1, left};
	}
}

static uint64_t get_some(const uint8_t *from, uint64_t bytes, uint64_t at)
{
	uint64_t word = 0;

	if (at < bytes)
		memcpy(&word, from + at, MIN(bytes - at, sizeof(word)));
	return word;
}

static bool is_zero(const uint8_t *at, uint32_t bytes)
{
	return !bytes || (!at[0] && !memcmp(at, at + 1, bytes - 1));
}

bool ckpt_differ_take_bits(const uint8_t *classes, uint32_t count, unsigned width, const uint8_t *from, uint32_t bytes,
			   uint32_t *ret_differences)
{
	struct class all[256];
	uint64_t at = 0;
	uint32_t i;

	if (bytes >= NO_CLASS / 8)
		return false;
	if (!bytes && is_zero(classes, count)) { // as expected, all of them
		memset(ret_differences, 0, count * sizeof(*ret_differences));
		return true;
	}
	describe_classes(width, all);
	for (i = 0; i < count && at / 8 + sizeof(uint64_t) <= bytes; i++) {
		const struct class *c = &all[classes[i]];

		ret_differences[i] = c->first | ((uint32_t)(ckpt_get64(from + at / 8) >> at % 8) & c->mask);
		at += c->left;
	}
	for (; i < count; i++) {
		const struct class *c = &all[classes[i]];

		ret_differences[i] = c->first | ((uint32_t)(get_some(from, bytes, at / 8) >> at % 8) & c->mask);
		at += c->left;
	}
	return (at + 7) / 8 == bytes;
}
