// CRC-32C (Castagnoli), as zarr and OCDBT have it behind their bytes.
//
// Threads: any. Nothing blocks, and nothing fails.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Of these bytes, behind others whose sum is `before`; 0: none stand in front.
uint32_t ckpt_crc32c(uint32_t before, const void *bytes, size_t len);
