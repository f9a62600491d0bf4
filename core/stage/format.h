// Whether a checkpoint file is whole by its own format: the end that its writer puts there last is there. It tells a save
// that was cut from one that came to its end, no more: contents are not looked at.
//
// Threads: any. Blocks on the disk; reads a few blocks, of a safetensors file its header.
#pragma once

#include <stdbool.h>

// name says which format it ought to be; where several share a name (*.pt, *.ckpt, *.bin) the first bytes do.
// 0: whole, or there is no telling; -EINVAL: it is not; -EAGAIN: a .npy file that has only its header; -ENOMEM, -EIO ...
int ckpt_format_check(int fd, const char *name);
// HDF5 that its writer has opened for readers beside it (single writer, multiple readers).
bool ckpt_format_is_swmr(int fd);
