// Where a pickle ends: found by walking its opcodes, without doing what they say.
//
// Threads: any. Blocks on the source; reads what stands between the opcodes' arguments, which are skipped.
#pragma once

#include "core/base/source.h"

// 0: its last opcode ends at *ret_end, whatever follows. -ENODATA: the source ends first. -EINVAL: this is no pickle of protocol 2
// to 5. -EFBIG: its end is too far to look for. -ENOMEM, -EIO ...
int ckpt_pickle_end(const struct ckpt_source *s, uint64_t *ret_end);
