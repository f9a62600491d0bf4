// Lists of the rows that are parts of arrays of DeepSpeed's ZeRO, between catalog_zero_join.c, which joins them, and catalog_zero_parts.c,
// which knows their names.
#pragma once

#include "core/array/catalog_rows.h"

// key, in text: of a state of the optimizer; NONE: of the weights; of a fragment its name. group: of a fragment one of CKPT_ZERO_*.
struct ckpt_zero_part {
	uint32_t key, group, rank, row;
};

enum { CKPT_ZERO_FRAGMENT, CKPT_ZERO_MODULE };

// {.c = the catalog} is the empty list.
struct ckpt_zero_parts {
	const struct ckpt_catalog *c;
	struct ckpt_zero_part *at;
	size_t count, cap;
};

const char *ckpt_zero_text(const struct ckpt_catalog *c, uint32_t at); // NONE: ""

// The weights and states among the rows of a rank's file; *stage becomes 2 or 3 if it has weights of one. 0, -ENOMEM.
int ckpt_zero_parts_take(struct ckpt_zero_parts *list, const struct zero_file *f, int *stage);
// Frozen fragments, and what is of the module, among the rows of model states. 0, -ENOMEM.
int ckpt_zero_parts_take_model(struct ckpt_zero_parts *list, const struct zero_file *f);
// The first part of each key of each group, by the group. 0, -ENOMEM.
int ckpt_zero_parts_keys(const struct ckpt_zero_parts *list, struct ckpt_zero_parts *ret_keys);
void ckpt_zero_parts_sort(struct ckpt_zero_parts *list);
void ckpt_zero_parts_done(struct ckpt_zero_parts *list);

// Of sorted lists. NULL: there is none.
const struct ckpt_zero_part *ckpt_zero_parts_find(const struct ckpt_zero_parts *list, uint32_t key, uint32_t group,
						  uint32_t rank);
// The first one of the key and the group; ret_count, which may be NULL: how many.
const struct ckpt_zero_part *ckpt_zero_parts_first(const struct ckpt_zero_parts *list, uint32_t key, uint32_t group,
						   size_t *ret_count);
// A part that two files have.
const struct ckpt_zero_part *ckpt_zero_parts_double(const struct ckpt_zero_parts *list);
