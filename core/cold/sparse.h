// Bytes of a file in which what is zero becomes holes: it takes no more room than it did, if it was sparse.
#pragma once

#include <stddef.h>
#include <stdint.h>

// To an empty place of the file; its size is not set where it ends with zeros. 0, -errno of pwrite(2).
int ckpt_sparse_write(int fd, const uint8_t *data, size_t len, uint64_t offset);
