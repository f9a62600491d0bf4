// The arrays of a catalog by their names: TREE:NAME, or NAME where only one tree has it.
//
// Ownership: the caller's; the catalog lives as long. Threads: any once it is made. Nothing blocks. Memory: 8 bytes for each array.
#pragma once

#include "core/array/catalog.h"

struct ckpt_names;

int ckpt_names_new(const struct ckpt_catalog *c, struct ckpt_names **ret_names); // 0, -ENOMEM
void ckpt_names_free(struct ckpt_names *n);                                      // NULL is fine

// -ENOENT; -EEXIST: several trees have it.
int ckpt_names_find(const struct ckpt_names *n, const char *name, size_t *ret_i);
// No other tree has the name of array i.
bool ckpt_names_is_unique(const struct ckpt_names *n, size_t i);
