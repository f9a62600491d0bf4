// The file of torch.save() (torch/serialization.py, torch/_utils.py) in a layout, from here on in the file.
#pragma once

#include "core/array/write_layout.h"

// The arrays [first, end) of the plan as a dictionary; alone: the tensor itself, of the one array.
void ckpt_torch_add(struct ckpt_layout *l, size_t first, size_t end, bool alone);
// The dtype as a global of pickles: "torch\nfloat32\n". NULL: torch has none.
const char *ckpt_torch_global(enum ckpt_dtype dtype);
