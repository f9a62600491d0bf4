// A folder as an output: files are created in it, and none is replaced.
//
// Nothing is durable until the caller has synced the folder's disk; a name is there from create() on. So the folder gets its own name when all is
// written.
#pragma once

#include "core/array/write_target.h"

// fd: of the folder, borrowed. A file that is not whole is removed.
struct ckpt_write_target ckpt_write_folder(const int *fd);
