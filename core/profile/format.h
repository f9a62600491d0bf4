// Whether a checkpoint file is cut off: it begins as a format that is known, and ends before that format says. It tells a save
// that was cut from one that came to its end, no more: contents are not looked at, and what follows the end does no harm.
//
// Threads: any. Blocks on the disk; reads a few blocks, of a safetensors file its header, of a pickle what is no bytes.
#pragma once

#include <stdbool.h>

// The first bytes say which format it has; of safetensors, which has no magic number, the name does.
// 0: it is not, or there is no telling; -EINVAL: it is; -ENODATA: it is empty; -EAGAIN: a .npy file that has only its header;
// -ENOMEM, -EIO ...
int ckpt_format_check(int fd, const char *name);
// The same where it is known that there was no room, or hardly any: what is empty is cut off, and what does not begin as its
// name promises (*.npy, *.npz, *.zip, *.h5, *.keras, *.safetensors), since HDF5 has its first block written last. -EINVAL.
int ckpt_format_check_strictly(int fd, const char *name);
// HDF5 that its writer has opened for readers beside it (single writer, multiple readers).
bool ckpt_format_is_swmr(int fd);
