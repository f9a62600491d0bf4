// Arrays that differ, as people and programs read of them.
//
// Threads: any. Nothing blocks. Texts are malloc'ed and never NULL.
#pragma once

#include "tools/array_diff.h"

#include <jansson.h>

// "w  f32 [2, 3], was f16 [2, 3]: 5 of 6 elements, max abs 0.5, max ulp 3, 1 NaN"
char *ckpt_array_told_line(const struct ckpt_array_told *t);
// {"path", "array", "dtype", "shape"}; of '~' also "was" and by how much; of '?' also "why".
json_t *ckpt_array_told_row(const struct ckpt_array_told *t);
