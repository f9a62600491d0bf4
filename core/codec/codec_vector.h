// Sixteen bytes at a time, in the compiler's own vectors: it makes of them what the processor has, whichever that is.
//
// Pure functions, any thread. Nothing is allocated, nothing fails.
#pragma once

#include <stdint.h>
#include <string.h>

// Before version 14 its analyzer takes the number of elements for that of bits.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wanalyzer-shift-count-overflow"
#endif

#define CKPT_INLINE static inline __attribute__((always_inline))

// Of a variable that is written before it is read: a hardened build would fill it with zeros first, in each turn of a loop.
#if __has_attribute(uninitialized)
#define CKPT_UNFILLED __attribute__((uninitialized))
#else
#define CKPT_UNFILLED
#endif

typedef uint8_t ckpt_bytes __attribute__((vector_size(16)));
typedef uint16_t ckpt_shorts __attribute__((vector_size(16)));
typedef uint32_t ckpt_words __attribute__((vector_size(16)));

CKPT_INLINE ckpt_bytes ckpt_bytes_get(const uint8_t *from)
{
	ckpt_bytes x;

	memcpy(&x, from, sizeof(x));
	return x;
}

CKPT_INLINE void ckpt_bytes_put(uint8_t *to, ckpt_bytes x)
{
	memcpy(to, &x, sizeof(x));
}

CKPT_INLINE ckpt_words ckpt_words_get(const uint32_t *from)
{
	ckpt_words x;

	memcpy(&x, from, sizeof(x));
	return x;
}

CKPT_INLINE void ckpt_words_put(uint32_t *to, ckpt_words x)
{
	memcpy(to, &x, sizeof(x));
}

// Shifts within each byte: of what was masked so that no bit leaves it.
CKPT_INLINE ckpt_bytes ckpt_bytes_up(ckpt_bytes x, int bits)
{
	return (ckpt_bytes)((ckpt_shorts)x << bits);
}

CKPT_INLINE ckpt_bytes ckpt_bytes_down(ckpt_bytes x, int bits)
{
	return (ckpt_bytes)((ckpt_shorts)x >> bits);
}

CKPT_INLINE ckpt_bytes ckpt_bytes_larger(ckpt_bytes a, ckpt_bytes b)
{
	ckpt_bytes a_is = (ckpt_bytes)(a > b);

	return (a & a_is) | (b & ~a_is);
}

// Those of a, then those of b.
CKPT_INLINE ckpt_bytes ckpt_bytes_even(ckpt_bytes a, ckpt_bytes b)
{
	return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

CKPT_INLINE ckpt_bytes ckpt_bytes_odd(ckpt_bytes a, ckpt_bytes b)
{
	return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// One of a, one of b, and so on: of their lower halves, of their upper ones.
CKPT_INLINE ckpt_bytes ckpt_bytes_mixed_low(ckpt_bytes a, ckpt_bytes b)
{
	return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

CKPT_INLINE ckpt_bytes ckpt_bytes_mixed_high(ckpt_bytes a, ckpt_bytes b)
{
	return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
