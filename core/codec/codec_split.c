#include "core/codec/codec_split.h"

#include "core/base/util.h"
#include "core/codec/codec_vector.h"

bool ckpt_split_plainly;

// A float's two highest bytes, sign s, exponent e, mantissa m, and what becomes of them. The others stay.
//
//	bf16, fp32	seeeeeee emmmmmmm -> eeeeeeee smmmmmmm
//	fp64		seeeEEEE EEEEmmmm -> EEEEEEEE seeemmmm
//
// With `narrow` they go on from there:
//
//	eeeeeeee sMmmmmmm -> nnnnnnnM 0smmmmmm, where n is e - base, or 0 where e is
struct how {
	bool floats, narrow;
	uint8_t base;
};

// How far the exponent moves up.
CKPT_INLINE int shift_of(unsigned width)
{
	return width == CKPT_PLANES_MAX ? 4 : 1;
}

// --- Byte by byte -----------------------------------------------------------------------------------------------------

static void float_apart(uint8_t *high, uint8_t *next, int shift)
{
	uint8_t h = *high, n = *next, low = (uint8_t)(0xff >> shift);

	*high = (uint8_t)(h << shift | n >> (8 - shift));
	*next = (uint8_t)((h & ~low) | (n & low));
}

static void float_together(uint8_t *high, uint8_t *next, int shift)
{
	uint8_t h = *high, n = *next, low = (uint8_t)(0xff >> shift);

	*high = (uint8_t)((n & ~low) | h >> shift);
	*next = (uint8_t)(h << (8 - shift) | (n & low));
}

// Whether it fits.
static bool narrow_one(uint8_t *high, uint8_t *next, uint8_t base)
{
	uint8_t e = *high > base ? (uint8_t)(*high - base) : 0, n = *next;
	bool fits = e < 128 && (e || !*high);

	*high = (uint8_t)(e << 1 | (n >> 6 & 1));
	*next = (uint8_t)((n & 0x3f) | (n >> 1 & 0x40));
	return fits;
}

static void widen_one(uint8_t *high, uint8_t *next, uint8_t base)
{
	uint8_t x = *high, n = *next;

	*high = (uint8_t)(x >> 1 ? (x >> 1) + base : 0);
	*next = (uint8_t)((n & 0x3f) | (x & 1) << 6 | (n & 0x40) << 1);
}

static bool split_from(const uint8_t *plain, uint32_t from, uint32_t count, unsigned width, struct how how,
		       uint8_t *const planes[])
{
	bool fits = true;

	for (uint32_t i = from; i < count; i++) {
		for (unsigned p = 0; p < width; p++)
			planes[p][i] = plain[(size_t)i * width + p];
		if (how.floats)
			float_apart(&planes[width - 1][i], &planes[width - 2][i], shift_of(width));
		if (how.narrow)
			fits &= narrow_one(&planes[width - 1][i], &planes[width - 2][i], how.base);
	}
	return fits;
}

static void join_from(const uint8_t *const planes[], uint32_t from, uint32_t count, unsigned width, struct how how,
		      uint8_t *plain)
{
	for (uint32_t i = from; i < count; i++) {
		uint8_t *element = plain + (size_t)i * width;

		for (unsigned p = 0; p < width; p++)
			element[p] = planes[p][i];
		if (how.narrow)
			widen_one(&element[width - 1], &element[width - 2], how.base);
		if (how.floats)
			float_together(&element[width - 1], &element[width - 2], shift_of(width));
	}
}

// --- Sixteen bytes at a time ------------------------------------------------------------------------------------------

static bool is_any_set(ckpt_bytes x)
{
	uint64_t halves[2];

	memcpy(halves, &x, sizeof(halves));
	return halves[0] | halves[1];
}

CKPT_INLINE void apart16(ckpt_bytes *high, ckpt_bytes *next, int shift)
{
	const uint8_t low = (uint8_t)(0xff >> shift), to = (uint8_t)(0xff << shift);
	ckpt_bytes h = *high, n = *next;

	*high = (ckpt_bytes_up(h, shift) & to) | ckpt_bytes_down(n & (uint8_t)~low, 8 - shift);
	*next = (h & (uint8_t)~low) | (n & low);
}

CKPT_INLINE void together16(ckpt_bytes *high, ckpt_bytes *next, int shift)
{
	const uint8_t low = (uint8_t)(0xff >> shift), from = (uint8_t)(0xff << shift);
	ckpt_bytes h = *high, n = *next;

	*high = (n & (uint8_t)~low) | ckpt_bytes_down(h & from, shift);
	*next = ckpt_bytes_up(h & (uint8_t)~from, 8 - shift) | (n & low);
}

// *bad gets bits where an exponent does not fit.
CKPT_INLINE void narrow16(ckpt_bytes *high, ckpt_bytes *next, uint8_t base, ckpt_bytes *bad)
{
	ckpt_bytes e = (*high - base) & (ckpt_bytes)(*high > base), n = *next;

	*bad |= (e & 0x80) | ((ckpt_bytes)(e == 0) & *high);
	*high = ckpt_bytes_up(e & 0x7f, 1) | ckpt_bytes_down(n & 0x40, 6);
	*next = (n & 0x3f) | ckpt_bytes_down(n & 0x80, 1);
}

CKPT_INLINE void widen16(ckpt_bytes *high, ckpt_bytes *next, uint8_t base)
{
	ckpt_bytes x = *high, n = *next, e = ckpt_bytes_down(x & 0xfe, 1);

	*high = (e + base) & (ckpt_bytes)(e != 0);
	*next = (n & 0x3f) | ckpt_bytes_up(x & 1, 6) | ckpt_bytes_up(n & 0x40, 1);
}

// In each round neighbours part: even and odd bytes, then even and odd ones of these, and so on. Returns how many were split.
CKPT_INLINE uint32_t split_sixteens(const uint8_t *plain, uint32_t count, unsigned width, struct how how,
				    uint8_t *const planes[], ckpt_bytes *bad)
{
	uint32_t i;

	for (i = 0; i + 16 <= count; i += 16) {
		CKPT_UNFILLED ckpt_bytes v[CKPT_PLANES_MAX], w[CKPT_PLANES_MAX];

		for (unsigned k = 0; k < width; k++)
			v[k] = ckpt_bytes_get(plain + (size_t)i * width + 16 * k);
		for (unsigned half = width / 2; half; half /= 2) {
			for (unsigned k = 0; k < width; k += 2) {
				w[k / 2] = ckpt_bytes_even(v[k], v[k + 1]);
				w[width / 2 + k / 2] = ckpt_bytes_odd(v[k], v[k + 1]);
			}
			for (unsigned k = 0; k < width; k++)
				v[k] = w[k];
		}
		if (how.floats)
			apart16(&v[width - 1], &v[width - 2], shift_of(width));
		if (how.narrow)
			narrow16(&v[width - 1], &v[width - 2], how.base, bad);
		for (unsigned k = 0; k < width; k++)
			ckpt_bytes_put(planes[k] + i, v[k]);
	}
	return i;
}

CKPT_INLINE uint32_t join_sixteens(const uint8_t *const planes[], uint32_t count, unsigned width, struct how how,
				   uint8_t *plain)
{
	uint32_t i;

	for (i = 0; i + 16 <= count; i += 16) {
		CKPT_UNFILLED ckpt_bytes v[CKPT_PLANES_MAX], w[CKPT_PLANES_MAX];

		for (unsigned k = 0; k < width; k++)
			v[k] = ckpt_bytes_get(planes[k] + i);
		if (how.narrow)
			widen16(&v[width - 1], &v[width - 2], how.base);
		if (how.floats)
			together16(&v[width - 1], &v[width - 2], shift_of(width));
		for (unsigned half = width / 2; half; half /= 2) {
			for (unsigned k = 0; k < width / 2; k++) {
				w[2 * k] = ckpt_bytes_mixed_low(v[k], v[width / 2 + k]);
				w[2 * k + 1] = ckpt_bytes_mixed_high(v[k], v[width / 2 + k]);
			}
			for (unsigned k = 0; k < width; k++)
				v[k] = w[k];
		}
		for (unsigned k = 0; k < width; k++)
			ckpt_bytes_put(plain + (size_t)i * width + 16 * k, v[k]);
	}
	return i;
}

// The compiler makes a loop of its own of each case.
#define EACH_CASE(width, how, CALL)                                                                                    \
	do {                                                                                                           \
		if ((width) == 2 && (how).narrow)                                                                      \
			CALL(2, ((struct how){true, true, (how).base}));                                               \
		else if ((width) == 2 && (how).floats)                                                                 \
			CALL(2, ((struct how){.floats = true}));                                                       \
		else if ((width) == 2)                                                                                 \
			CALL(2, ((struct how){0}));                                                                    \
		else if ((width) == 4 && (how).narrow)                                                                 \
			CALL(4, ((struct how){true, true, (how).base}));                                               \
		else if ((width) == 4 && (how).floats)                                                                 \
			CALL(4, ((struct how){.floats = true}));                                                       \
		else if ((width) == 4)                                                                                 \
			CALL(4, ((struct how){0}));                                                                    \
		else if ((how).floats)                                                                                 \
			CALL(8, ((struct how){.floats = true}));                                                       \
		else                                                                                                   \
			CALL(8, ((struct how){0}));                                                                    \
	} while (0)

static bool split(const uint8_t *plain, uint32_t count, unsigned width, struct how how, uint8_t *const planes[])
{
	ckpt_bytes bad = {0};
	uint32_t from = 0;

	if (width == 1) {
		memcpy(planes[0], plain, count);
		return true;
	}
#define SPLIT(w, h) from = split_sixteens(plain, count, w, h, planes, &bad)
	if (!ckpt_split_plainly)
		EACH_CASE(width, how, SPLIT);
#undef SPLIT
	return split_from(plain, from, count, width, how, planes) && !is_any_set(bad);
}

static void join(const uint8_t *const planes[], uint32_t count, unsigned width, struct how how, uint8_t *plain)
{
	uint32_t from = 0;

	if (width == 1) {
		memcpy(plain, planes[0], count);
		return;
	}
#define JOIN(w, h) from = join_sixteens(planes, count, w, h, plain)
	if (!ckpt_split_plainly)
		EACH_CASE(width, how, JOIN);
#undef JOIN
	join_from(planes, from, count, width, how, plain);
}

void ckpt_split(const uint8_t *plain, uint32_t count, unsigned width, bool floats, uint8_t *const planes[])
{
	split(plain, count, width, (struct how){.floats = floats}, planes);
}

void ckpt_join(const uint8_t *const planes[], uint32_t count, unsigned width, bool floats, uint8_t *plain)
{
	join(planes, count, width, (struct how){.floats = floats}, plain);
}

bool ckpt_split_narrow(const uint8_t *plain, uint32_t count, unsigned width, uint8_t base, uint8_t *const planes[])
{
	return split(plain, count, width, (struct how){true, true, base}, planes);
}

void ckpt_join_narrow(const uint8_t *const planes[], uint32_t count, unsigned width, uint8_t base, uint8_t *plain)
{
	join(planes, count, width, (struct how){true, true, base}, plain);
}

// The least of those that are not 0, less 1: zeros, and what is denormal, have 0, however far from it the others are.
bool ckpt_narrow_base(const uint8_t *exponents, uint32_t count, uint8_t *ret_base)
{
	ckpt_bytes least = {0}, most = {0}; // least: of what is taken off 256, the largest
	uint8_t l = 0, m = 0;
	uint32_t i = 0;

	for (; i + 16 <= count && !ckpt_split_plainly; i += 16) {
		ckpt_bytes e = ckpt_bytes_get(exponents + i);

		least = ckpt_bytes_larger(least, -e);
		most = ckpt_bytes_larger(most, e);
	}
	for (; i < count; i++) {
		l = MAX(l, (uint8_t)-exponents[i]);
		m = MAX(m, exponents[i]);
	}
	for (unsigned k = 0; k < 16; k++) {
		l = MAX(l, least[k]);
		m = MAX(m, most[k]);
	}
	*ret_base = (uint8_t)(255 - l);
	return !m || m + l <= 255 + 127;
}

// --- Packed -----------------------------------------------------------------------------------------------------------

// Groups that belong together: so many plain ones, so many packed ones.
struct packing {
	unsigned plain, packed;
};

static struct packing packing_of(unsigned bits)
{
	return bits == 7 ? (struct packing){8, 7} : bits == 6 ? (struct packing){4, 3} : (struct packing){8 / bits, 1};
}

uint32_t ckpt_packed_bytes(uint32_t count, unsigned bits)
{
	struct packing p = packing_of(bits);
	uint32_t all = count / (16 * p.plain);

	return all * 16 * p.packed + count % (16 * p.plain);
}

// Of 7 and 6 bits: the last group is spread over the others, 8 - bits of it to each, the lowest first.
CKPT_INLINE void pack_spread(const uint8_t *plain, unsigned bits, unsigned groups, uint8_t *packed)
{
	const uint8_t high = (uint8_t)(0xff << bits), above = (uint8_t)(0xff << (8 - bits));
	ckpt_bytes last = ckpt_bytes_get(plain + 16 * groups);

	for (unsigned i = 0; i < groups; i++) {
		ckpt_bytes_put(packed + 16 * i,
			       ckpt_bytes_get(plain + 16 * i) | (ckpt_bytes_up(last, (int)bits) & high));
		last = ckpt_bytes_down(last & above, (int)(8 - bits));
	}
}

CKPT_INLINE void unpack_spread(const uint8_t *packed, unsigned bits, unsigned groups, uint8_t *plain)
{
	const uint8_t high = (uint8_t)(0xff << bits);
	ckpt_bytes last = {0};

	for (unsigned i = groups; i--;) {
		ckpt_bytes x = ckpt_bytes_get(packed + 16 * i);

		last = ckpt_bytes_up(last, (int)(8 - bits)) | ckpt_bytes_down(x & high, (int)bits);
		ckpt_bytes_put(plain + 16 * i, x & (uint8_t)~high);
	}
	ckpt_bytes_put(plain + 16 * groups, last);
}

// Of 4, 2 and 1: all in one, the first the lowest.
CKPT_INLINE void pack_joined(const uint8_t *plain, unsigned bits, uint8_t *packed)
{
	ckpt_bytes x = {0};

	for (unsigned i = 8 / bits; i--;)
		x = ckpt_bytes_up(x, (int)bits) | ckpt_bytes_get(plain + 16 * i);
	ckpt_bytes_put(packed, x);
}

CKPT_INLINE void unpack_joined(const uint8_t *packed, unsigned bits, uint8_t *plain)
{
	const uint8_t high = (uint8_t)(0xff << bits);
	ckpt_bytes x = ckpt_bytes_get(packed);

	for (unsigned i = 0; i < 8 / bits; i++) {
		ckpt_bytes_put(plain + 16 * i, x & (uint8_t)~high);
		x = ckpt_bytes_down(x & high, (int)bits);
	}
}

static void pack_groups(const uint8_t *plain, unsigned bits, uint8_t *packed)
{
	switch (bits) {
	case 7:
		pack_spread(plain, 7, 7, packed);
		break;
	case 6:
		pack_spread(plain, 6, 3, packed);
		break;
	default:
		pack_joined(plain, bits, packed);
		break;
	}
}

static void unpack_groups(const uint8_t *packed, unsigned bits, uint8_t *plain)
{
	switch (bits) {
	case 7:
		unpack_spread(packed, 7, 7, plain);
		break;
	case 6:
		unpack_spread(packed, 6, 3, plain);
		break;
	default:
		unpack_joined(packed, bits, plain);
		break;
	}
}

void ckpt_pack(const uint8_t *plain, uint32_t count, unsigned bits, uint8_t *packed)
{
	const struct packing p = packing_of(bits);
	uint32_t all = count / (16 * p.plain);

	for (uint32_t i = 0; i < all; i++)
		pack_groups(plain + (size_t)i * 16 * p.plain, bits, packed + (size_t)i * 16 * p.packed);
	memcpy(packed + (size_t)all * 16 * p.packed, plain + (size_t)all * 16 * p.plain, count % (16 * p.plain));
}

void ckpt_unpack(const uint8_t *packed, uint32_t count, unsigned bits, uint8_t *plain)
{
	const struct packing p = packing_of(bits);
	uint32_t all = count / (16 * p.plain);

	for (uint32_t i = 0; i < all; i++)
		unpack_groups(packed + (size_t)i * 16 * p.packed, bits, plain + (size_t)i * 16 * p.plain);
	memcpy(plain + (size_t)all * 16 * p.plain, packed + (size_t)all * 16 * p.packed, count % (16 * p.plain));
}
