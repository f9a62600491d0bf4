// Samples of a range of bytes, and what can be told by them: how many bits a byte carries, how wide the elements are.
//
// Pure functions, any thread. Nothing is allocated, nothing fails.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CKPT_SAMPLE_BYTES 2048u

struct ckpt_sample {
	uint32_t bytes;
	uint8_t at[CKPT_SAMPLE_BYTES];
};

// Parts from all over, each from a multiple of 8; all of it where there is little.
void ckpt_sample_take(const uint8_t *from, uint32_t bytes, struct ckpt_sample *ret_sample);

// The bits that a byte carries if no order is seen in them: of at[0], at[step], ... below count.
double ckpt_sample_bits(const uint8_t *at, uint32_t count, uint32_t step);

// Whether bytes of one value stand together in a good part of it, so that looking for repeats pays.
bool ckpt_sample_runs(const struct ckpt_sample *s);

// Of the elements, in bytes: the smallest at which the bytes of an element differ most in what they carry.
unsigned ckpt_sample_width(const uint8_t *from, uint32_t bytes);
