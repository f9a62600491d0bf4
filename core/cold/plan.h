// What is known of a step's chunks before they are encoded: how wide their elements are, by what the files themselves say of the
// arrays in them (array.h), and of which arrays of bf16 the same values are in the step as fp32: weights and their master.
//
// A master is found by what it holds. The weights are the master rounded, so that a block of either says whether they may belong
// together, whatever the files and arrays are called, and where a format hides the dtype. It is a hint: who encodes beside a master
// sees whether it was one.
//
// Calling sequence: ckpt_plan_new(), ckpt_plan_chunk(), ckpt_plan_free(). Memory: some 24 bytes for each chunk, and 64 for each
// large array. Threads: any; a plan is never changed. Blocks on the disk, _new alone: it reads what array.h reads, and three
// blocks of each array that may be either.
#pragma once

#include "core/step/step.h"

struct ckpt_planned {
	// With base_count: so many chunks from this row on are the master's; they begin at base_at in the raw file of an entry.
	uint64_t base_at;
	uint32_t base_index, base_first;
	uint8_t base_count; // 0: no master is known
	uint8_t width;      // of the elements; 0: not known
};

struct ckpt_plan;
struct ckpt_array;

// The facts that a large array gives of its chunks before the other files of its step are known. 0 where the dtype says nothing. may_pair: beside a
// master, or as one, they may be encoded otherwise.
unsigned ckpt_plan_array(const struct ckpt_array *a, bool *ret_may_pair);

// Of the raw files of m that are sealed. Those that cannot be read, or have no arrays, it knows nothing of. 0; -ENOMEM; -EINTR
// go_on, asked after each large array (of 0 bytes), said no; NULL: on and on.
int ckpt_plan_new(struct ckpt_step *step, struct ckpt_manifest *m, bool (*go_on)(void *arg, uint64_t bytes), void *arg,
		  struct ckpt_plan **ret_plan);
void ckpt_plan_free(struct ckpt_plan *p); // NULL is fine
// By the row of the chunk in m.
const struct ckpt_planned *ckpt_plan_chunk(const struct ckpt_plan *p, uint32_t chunk);
