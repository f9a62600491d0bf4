// Two steps, of one store or of two, have the same files: the same paths and types, sizes, modes and times of change, links and bytes.
//
// Bytes are compared by their SHA-256: that of the seal where a file has one, else of what is read. Owners, extended attributes and the times of
// folders do not count.
// Threads: one. Blocks on the disk and the store where files without a seal are read.
#pragma once

#include "core/step/step.h"

// 1: the same; 0; -EIO: a file that has to be read is damaged or gone; ... read: is told of bytes that were read, or NULL.
int ckpt_same_files(struct ckpt_step *a, struct ckpt_step *b, void (*read)(uint64_t bytes));
