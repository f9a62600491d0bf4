// Memory for chunks. To have new pages takes as long as to copy them several times: those of a whole chunk are large where the kernel
// has large ones.
//
// Ownership: the caller's. Threads: any. Nothing blocks.
#pragma once

#include <stddef.h>
#include <stdint.h>

size_t ckpt_pages_room(uint32_t bytes); // what so many bytes take
uint8_t *ckpt_pages_new(size_t room);   // NULL: no memory
void ckpt_pages_free(uint8_t *data,
		     size_t room); // the kernel has those of a whole chunk again at once; malloc() might keep them
