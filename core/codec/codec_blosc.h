// Blosc 1, whole frames from memory to memory. The only part that knows the library, which is optional: without it all is -ENOTSUP.
//
// Bytes are from outside. The header of a frame is checked here before the library sees it: its version, and that its lengths are those
// of the memory.
//
// Threads: any; none is started. Nothing blocks. Memory: some three times CKPT_BLOSC_BLOCK_MAX for the time of a call.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_BLOSC_BLOCK_MAX (8u << 20) // of a block, which the library decodes at once

bool ckpt_blosc_is_there(void);
// The bytes that a frame holds. -EBADMSG: it is none, or has another length; -ENOTSUP: it has larger blocks, or there is no library.
int ckpt_blosc_bytes(const void *frame, size_t frame_bytes, uint32_t *ret_bytes);
// All of them: bytes is as that says. -EBADMSG: it is damaged; -ENOTSUP.
int ckpt_blosc_decode(const void *frame, size_t frame_bytes, void *plain, uint32_t bytes);
