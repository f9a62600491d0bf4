// All arrays of a choice as one file, model.safetensors (core/array/write_safetensors.c): its header, then the elements of each array.
//
//	ckpt_joined_plan_new()   the header, and where in the file each array lies: sizes are known before an element is read
//	ckpt_joined_view_open(), _read() as often as wanted, _close()
//
// Ownership: the caller's; the choice lives as long as the plan, plan and files as long as the view. Threads: any; one reads at a time, others
// wait. Blocks as the files do. Memory: the header, 24 bytes for each array, and for a view what CKPT_JOINED_OPEN_MAX arrays have open that
// it read last.
// Errors: those of gather.h.
#pragma once

#include "core/view/array_choice.h"

#include <sys/types.h>

#define CKPT_JOINED_NAME "model.safetensors"
#define CKPT_JOINED_OPEN_MAX 8
#define CKPT_JOINED_HELD_MAX ((size_t)64 << 20) // with more, only the array that was read last stays open

struct ckpt_joined_plan;

// -ENOTSUP: the format cannot have these arrays; ret_why. -ENOMEM.
int ckpt_joined_plan_new(const struct ckpt_array_choice *k, struct ckpt_joined_plan **ret_plan,
			 struct ckpt_view_why *ret_why);
void ckpt_joined_plan_free(struct ckpt_joined_plan *p); // NULL is fine
size_t ckpt_joined_plan_memory(const struct ckpt_joined_plan *p);
uint64_t ckpt_joined_plan_bytes(const struct ckpt_joined_plan *p); // of the file

struct ckpt_joined_view;

int ckpt_joined_view_open(const struct ckpt_joined_plan *p, const struct ckpt_catalog_files *files,
			  struct ckpt_joined_view **ret_view);
void ckpt_joined_view_close(struct ckpt_joined_view *v); // NULL is fine
// As pread(2).
ssize_t ckpt_joined_view_read(struct ckpt_joined_view *v, void *buf, size_t len, uint64_t offset);
// Pieces of some array have codecs: memory, and one reader.
bool ckpt_joined_view_is_decoded(const struct ckpt_joined_view *v);
// The memory of what is open, as of the last read; and all of it closed until the next one.
size_t ckpt_joined_view_held(const struct ckpt_joined_view *v);
void ckpt_joined_view_rest(struct ckpt_joined_view *v);
