#include "core/base/sha256_pair.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define SHA_CODE __attribute__((target("sha,sse4.1,ssse3")))
#define INLINE SHA_CODE static inline __attribute__((always_inline))

bool ckpt_sha256_pair_is_there(void)
{
	static int known; // atomic; 1: there, -1: not
	unsigned a, b, c, d;
	bool is;

	switch (__atomic_load_n(&known, __ATOMIC_RELAXED)) {
	case 1:
		return true;
	case -1:
		return false;
	}
	is = __get_cpuid(1, &a, &b, &c, &d) && c & bit_SSE4_1 && c & bit_SSSE3 &&
	     __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_SHA;
	__atomic_store_n(&known, is ? 1 : -1, __ATOMIC_RELAXED);
	return is;
}

// FIPS 180-4, 4.2.2
static const uint32_t constants[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

// The eight words a to h, as the instructions want them.
struct words {
	__m128i abef, cdgh;
};

INLINE struct words load(const uint32_t *h)
{
	__m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0xb1);
	__m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(h + 4)), 0x1b);

	return (struct words){_mm_alignr_epi8(badc, efgh, 8), _mm_blend_epi16(efgh, badc, 0xf0)};
}

INLINE void store(uint32_t *h, struct words w)
{
	__m128i feba = _mm_shuffle_epi32(w.abef, 0x1b), dchg = _mm_shuffle_epi32(w.cdgh, 0xb1);

	_mm_storeu_si128((__m128i *)h, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

INLINE struct words sum(struct words a, struct words b)
{
	return (struct words){_mm_add_epi32(a.abef, b.abef), _mm_add_epi32(a.cdgh, b.cdgh)};
}

INLINE void load_block(const uint8_t *data, __m128i message[4])
{
	const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);

	for (int i = 0; i < 4; i++)
		message[i] =
			_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)), big_endian);
}

INLINE __m128i with_constants(__m128i message, int i)
{
	return _mm_add_epi32(message, _mm_load_si128((const __m128i *)(const void *)(constants + 4 * i)));
}

INLINE void four_rounds(struct words *w, __m128i message)
{
	w->cdgh = _mm_sha256rnds2_epu32(w->cdgh, w->abef, message);
	w->abef = _mm_sha256rnds2_epu32(w->abef, w->cdgh, _mm_shuffle_epi32(message, 0x0e));
}

// The words of the message that replace those in place i: they are used 16 rounds later.
INLINE void schedule(__m128i message[4], int i)
{
	__m128i last = message[(i + 3) & 3], between = _mm_alignr_epi8(last, message[(i + 2) & 3], 4);

	message[i & 3] = _mm_sha256msg2_epu32(
		_mm_add_epi32(_mm_sha256msg1_epu32(message[i & 3], message[(i + 1) & 3]), between), last);
}

// same: both sums take the same blocks, whose schedule is made once.
INLINE void add_blocks(uint32_t *one, const uint8_t *one_data, uint32_t *two, const uint8_t *two_data, size_t count,
		       bool same)
{
	struct words a = load(one), b = load(two);

	for (size_t k = 0; k < count; k++) {
		const struct words a_was = a, b_was = b;
		__m128i message[4], other[4];

		load_block(one_data + k * CKPT_SHA256_BLOCK, message);
		if (!same)
			load_block(two_data + k * CKPT_SHA256_BLOCK, other);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m128i words = with_constants(message[i & 3], i);

			four_rounds(&a, words);
			four_rounds(&b, same ? words : with_constants(other[i & 3], i));
			if (i >= 12)
				continue;
			schedule(message, i);
			if (!same)
				schedule(other, i);
		}
		a = sum(a, a_was);
		b = sum(b, b_was);
	}
	store(one, a);
	store(two, b);
}

SHA_CODE void ckpt_sha256_pair_blocks(uint32_t one[8], const uint8_t *one_data, uint32_t two[8],
				      const uint8_t *two_data, size_t count)
{
	if (one_data == two_data)
		add_blocks(one, one_data, two, two_data, count, true);
	else
		add_blocks(one, one_data, two, two_data, count, false);
}

#else

bool ckpt_sha256_pair_is_there(void)
{
	return false;
}

void ckpt_sha256_pair_blocks(uint32_t one[8], const uint8_t *one_data, uint32_t two[8], const uint8_t *two_data,
			     size_t count)
{
	(void)one;
	(void)one_data;
	(void)two;
	(void)two_data;
	(void)count;
	__builtin_unreachable();
}

#endif
