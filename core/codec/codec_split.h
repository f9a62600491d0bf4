// Elements apart into planes and together again: plane i has byte i of each element, 0 the least significant.
//
// With `floats` the bits of each element are first moved so that the exponent has the highest byte to itself: of bf16 and
// fp32 all of it, of fp64 its lower 8 bits; sign (and the rest of the exponent) stand above the mantissa. Without, bits stay.
//
// Pure functions, any thread. Nothing is allocated, nothing fails.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CKPT_PLANES_MAX 8u

// width: 1, 2, 4 or 8; floats: not of 1. plain has count * width bytes, each plane count; planes do not overlap.
void ckpt_split(const uint8_t *plain, uint32_t count, unsigned width, bool floats, uint8_t *const planes[]);
void ckpt_join(const uint8_t *const planes[], uint32_t count, unsigned width, bool floats, uint8_t *plain);

// While true, all of the above go byte by byte, as they do on other processors: for the test that both ways agree. Set it while
// nobody else is here.
extern bool ckpt_split_plainly;

// Floats of 2 or 4 bytes, with exponents that are as small as their range lets them: `base` is taken off, but of 0, and what is
// left has 7 bits and takes the mantissa's first bit with it, which depends on it. The next plane has 7 bits then, the sign's
// the highest of them. false: an exponent does not fit, and the planes mean nothing.
bool ckpt_split_narrow(const uint8_t *plain, uint32_t count, unsigned width, uint8_t base, uint8_t *const planes[]);
void ckpt_join_narrow(const uint8_t *const planes[], uint32_t count, unsigned width, uint8_t base, uint8_t *plain);
// The greatest base for these exponents, a plane of split floats; false: their range is too wide.
bool ckpt_narrow_base(const uint8_t *exponents, uint32_t count, uint8_t *ret_base);

// Bytes of which only the lower bits are used. Groups of 16 bytes stand in each other's unused ones: of 7 bits, each eighth
// group in the highest bit of the seven before it; of 6, each fourth in the two of the three before; of 4, 2 and 1, all of two,
// four or eight in one. What is less than the groups that belong together stays as it is.
static inline bool ckpt_is_packable(unsigned bits)
{
	return bits == 7 || bits == 6 || bits == 4 || bits == 2 || bits == 1;
}
uint32_t ckpt_packed_bytes(uint32_t count, unsigned bits);
void ckpt_pack(const uint8_t *plain, uint32_t count, unsigned bits, uint8_t *packed);
void ckpt_unpack(const uint8_t *packed, uint32_t count, unsigned bits, uint8_t *plain);
