// lookup3, a hash of 32 bits by Bob Jenkins (lookup3.c, 2006: hashlittle() with the initial value 0). HDF5 has it as a checksum
// (HDF5 File Format Specification 3.0; H5_checksum_lookup3() in the library's H5checksum.c).
//
// Calling sequence: begin, add as often as it takes, end. The number of all bytes stands first in it: so begin is told.
// Threads: one for each struct. Nothing blocks, and nothing fails.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CKPT_LOOKUP3_STEP 12u

struct ckpt_lookup3 {
	uint32_t s[3];
	uint64_t left; // bytes that have not been added
};

void ckpt_lookup3_begin(struct ckpt_lookup3 *l, uint64_t bytes);
// len is a multiple of CKPT_LOOKUP3_STEP, except for the last bytes.
void ckpt_lookup3_add(struct ckpt_lookup3 *l, const void *bytes, size_t len);
uint32_t ckpt_lookup3_end(const struct ckpt_lookup3 *l);
