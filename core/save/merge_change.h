// The changes of one side of a merge (merge.h): whether an entry of it is another one than both sides began with.
//
// An index is one of an entry; CKPT_MERGE_NONE: there is none. m is how->own or how->other. Threads: any. Nothing blocks.
#pragma once

#include "core/save/merge.h"

#define CKPT_MERGE_NONE UINT32_MAX

bool ckpt_merge_is_dir(const struct ckpt_manifest *m, uint32_t index); // false of none
// The child of dir with this name. None, also where dir is none, or no directory.
uint32_t ckpt_merge_child(const struct ckpt_manifest *m, uint32_t dir, const char *name);
// But for those of ckptfs itself.
bool ckpt_merge_same_xattrs(const struct ckpt_manifest *a, const struct ckpt_entry *x, const struct ckpt_manifest *b,
			    const struct ckpt_entry *y);
// Of two files, e in m and was in how->was.
bool ckpt_merge_same_bytes(const struct ckpt_merge *how, const struct ckpt_manifest *m, const struct ckpt_entry *e,
			   const struct ckpt_entry *was);
// In type, bytes, target, mode, owner or attributes. Names and inode numbers do not count, nor what is in a directory.
bool ckpt_merge_differs(const struct ckpt_merge *how, const struct ckpt_manifest *m, uint32_t index, uint32_t was);
// The entry, or something below it.
bool ckpt_merge_differs_below(const struct ckpt_merge *how, const struct ckpt_manifest *m, uint32_t index,
			      uint32_t was);
