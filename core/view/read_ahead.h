// The bytes of arrays in the order of a layout, read by a thread while its caller writes those before.
//
//	ckpt_read_ahead_new(); ckpt_read_ahead_next() for each run; ckpt_read_ahead_free()
//
// Runs of an array have CKPT_READ_RUN bytes, the last one fewer. Where no thread can be started the caller's reads.
//
// Ownership: the caller's; layout and expressions live as long. Threads: one at a time for one struct ckpt_read_ahead; expressions are read by
// a thread of its own. Blocks as the files of the expressions do. Memory: CKPT_READ_RUNS runs, a block of what is transposed, and what the
// readers hold (expr.h).
#pragma once

#include "core/array/expr.h"
#include "core/array/write.h"

#define CKPT_READ_RUN ((uint64_t)1 << 20)
#define CKPT_READ_RUNS 4

struct ckpt_read_ahead;

struct ckpt_read_run {
	int rc; // not 0: the array cannot be read (gather.h), and nothing comes after it
	size_t array;
	uint64_t bytes;
	uint8_t *at;
};

// expr_of: of an array of the plan; NULL: it is left out. Called by the other thread. -ENOMEM.
int ckpt_read_ahead_new(const struct ckpt_layout *l, struct ckpt_expr *(*expr_of)(void *arg, size_t array), void *arg,
			struct ckpt_read_ahead **ret_ahead);
void ckpt_read_ahead_free(struct ckpt_read_ahead *a); // NULL is fine
// There is a next one. It lives until the next call.
const struct ckpt_read_run *ckpt_read_ahead_next(struct ckpt_read_ahead *a);
