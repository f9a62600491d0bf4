// A save, for its own tests: what ckptfs_cuda.h does not promise.
#pragma once

#include "tools/cuda/ckptfs_cuda.h"

#define CKPT_SAVE_WRITERS 4u

// Blocks of the save that are written, of all; for progress and tests. Threads: any.
void ckpt_cuda_save_progress(struct ckpt_cuda_save *save, size_t *ret_written, size_t *ret_all);
