// Two SHA-256 sums at once, by the processor's own instructions. A round of one sum waits for the round before; rounds of another sum fill
// that wait, so that two sums take about the time of one.
// libcrypto has no call for this. It makes all other sums, and tests compare the two.
//
// Pure functions, any thread, nothing blocks, no errors.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_SHA256_BLOCK 64

// False: this processor has no such instructions, and _blocks() is not to be called.
bool ckpt_sha256_pair_is_there(void);
// count blocks of one_data go into the eight words of one, and as many of two_data into those of two. The data may be the same.
void ckpt_sha256_pair_blocks(uint32_t one[8], const uint8_t *one_data, uint32_t two[8], const uint8_t *two_data,
			     size_t count);
