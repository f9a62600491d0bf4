// What elements differ by from what was expected of them, and how that is stored: of each difference its class, which says how
// long it is and its first bit, and behind all of them the bits that are left. Classes are bytes, a plane like others.
//
// Pure functions, any thread. Nothing is allocated, nothing fails.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_differ {
	unsigned width; // 2 or 4
	bool floats;    // the difference counts the floats between two, not what their bits are as integers
	bool rounded;   // the base is fp32, what is expected is its bf16; the width is 2, floats false
	bool scaled;    // fp32 only: what is expected is the base times this
	float scale;
};

// The differences, as numbers without a sign: 0, -1, 1, -2, ... are 0, 1, 2, 3, ... false: all are 0.
bool ckpt_differ(const struct ckpt_differ *d, const uint8_t *plain, const uint8_t *base, uint32_t count,
		 uint32_t *ret_differences);
void ckpt_undiffer(const struct ckpt_differ *d, const uint32_t *differences, const uint8_t *base, uint32_t count,
		   uint8_t *ret_plain);

// The class of each number, how many bits are left, and in its place these. Returns how many that are of all.
uint64_t ckpt_differ_classify(uint32_t *numbers, uint32_t count, uint8_t *ret_classes, uint8_t *ret_left);
// to has room for 8 bytes more than the bits take.
void ckpt_differ_put_bits(const uint32_t *bits, const uint8_t *left, uint32_t count, uint8_t *to);
// false: a class is none of this width, or the classes do not take just these bytes.
bool ckpt_differ_take_bits(const uint8_t *classes, uint32_t count, unsigned width, const uint8_t *from, uint32_t bytes,
			   uint32_t *ret_differences);
