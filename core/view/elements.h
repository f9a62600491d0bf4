// The elements of an array, as it is stored or made of others, as bytes: any range of them.
//
// Reads that come nearly in order, as those of several threads that a kernel reads ahead with, decode each piece once: of an array that
// has to be decoded, the last WINDOW bytes are kept.
//
// Ownership: the caller's; catalog and files live as long. Threads: one at a time. Blocks as the files do. Errors: those of gather.h.
#pragma once

#include "core/view/array_choice.h"

#define CKPT_ELEMENTS_WINDOW (4u << 20)

struct ckpt_elements;

int ckpt_elements_open(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		       struct ckpt_elements **ret_elements);
// Of an array of a choice.
int ckpt_elements_open_chosen(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			      struct ckpt_elements **ret_elements);
void ckpt_elements_close(struct ckpt_elements *e); // NULL is fine
// at: from the first element on. All of the range is there. 0, or an error.
int ckpt_elements_read(struct ckpt_elements *e, uint64_t at, void *into, size_t len);

// All elements lie in one file as they are here, from this byte of it on.
bool ckpt_elements_are_plain(const struct ckpt_elements *e, const char **ret_file, uint64_t *ret_offset);
// Its pieces have to be decoded: memory, and one reader.
bool ckpt_elements_are_decoded(const struct ckpt_elements *e);
// The memory of what is open; and all of it closed until the next read.
size_t ckpt_elements_held(const struct ckpt_elements *e);
void ckpt_elements_rest(struct ckpt_elements *e);
