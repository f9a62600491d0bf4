// DeepSpeed's ZeRO: parameters whose elements, and those of the optimizer's states, lie as flat ranges over the files of several ranks.
// catalog_zero.c takes from each file what its pickle says beside its arrays; catalog_zero_join.c makes whole arrays of all of them.
#pragma once

#include "core/array/catalog_rows.h"
#include "core/array/catalog_torch.h"

// Of a file whose arrays are the rows from first_row on. A file that is none of ZeRO's adds nothing, one that makes no sense a fault. 0, -ENOMEM.
int ckpt_zero_take(struct ckpt_torch *r, size_t first_row);

// Once, after the last file: adds the whole arrays. The ranks' parts of them are rows no more, unless an array could not be made whole.
// Numbers that do not add up are a fault, or why an array cannot be read. 0, -ENOMEM.
int ckpt_zero_join(struct ckpt_catalog *c);
