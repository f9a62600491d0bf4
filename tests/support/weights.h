// A model in small: bf16 weights, and the fp32 master that they were rounded from, in files as frameworks write them. What must not
// fail ends the test.
#pragma once

#include "tests/support/staged.h"

#include <stddef.h>
#include <stdint.h>

struct ckpt_weights {
	size_t elements;
	uint8_t *bf16, *fp32; // of 2 and 4 bytes for each
};

// Near zero, as in training; another seed is another model.
struct ckpt_weights ckpt_weights_make(size_t elements, uint64_t seed);
void ckpt_weights_round(struct ckpt_weights *w, size_t first, size_t count); // bf16 anew, where fp32 was changed
void ckpt_weights_train(struct ckpt_weights *w); // all of them a little, as by some steps of training
void ckpt_weights_done(struct ckpt_weights *w);

enum ckpt_weights_file {
	CKPT_WEIGHTS_NPY,         // NumPy has no bf16: u16
	CKPT_WEIGHTS_NPY_STRANGE, // two or four bytes of no known type, as with ml_dtypes
	CKPT_WEIGHTS_SAFETENSORS,
	CKPT_WEIGHTS_TORCH, // which hides the type
	CKPT_WEIGHTS_FILES,
};

// A new file with an array of these elements, of `width` bytes each.
void ckpt_weights_put(struct ckpt_step *step, const char *path, enum ckpt_weights_file file, const uint8_t *data,
		      size_t elements, unsigned width);
// Where the bytes of the array begin in such a file: those to its end, but for torch, are the array's.
size_t ckpt_weights_at(enum ckpt_weights_file file);
// The committed step has such a file, wherever its bytes are: 0, -errno, -EILSEQ other bytes.
int ckpt_weights_read(struct ckpt_step *step, const char *path, enum ckpt_weights_file file, const uint8_t *data,
		      size_t elements, unsigned width);
