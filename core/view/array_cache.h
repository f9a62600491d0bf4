// The sets of virtual files (array_dir.h) of the versions, and their views, that were asked for last, so that the headers of a step are read once.
//
//	_get()   ready: a reference
//	         absent: it is made, without a lock; all others who ask for it meanwhile wait for that one, and have its result
//	         failed: all who wait have the error; the next one who asks tries again
//
// Ownership: the cache has a reference to each set that it keeps, and these hold their steps. It is freed before the store is closed.
// Threads: any. Blocks: on the disk or the store, without a lock: other versions go on meanwhile.
// Errors: also -EAGAIN: no thread can be started, which has the stack that hostile files may need.
// Memory: CKPT_ARRAY_CACHE_BYTES of sets that are kept, or the one that was used last, with the set that it is a view of, if they are larger.
// At most CKPT_ARRAY_CACHE_VIEWS are views: names without end cost work, and no memory. A view goes with the set that it is made of.
#pragma once

#include "core/view/array_dir.h"

#define CKPT_ARRAY_CACHE_BYTES ((size_t)64 << 20)
#define CKPT_ARRAY_CACHE_VIEWS 256

struct ckpt_array_cache;

struct ckpt_array_cache *ckpt_array_cache_new(size_t bytes_max); // NULL: no memory
void ckpt_array_cache_free(struct ckpt_array_cache *c);          // NULL is fine; nobody uses it any more

// The set of the current version of a step, which has a manifest. at_once: -EAGAIN while it is not ready. Errors of ckpt_array_dir_new().
int ckpt_array_cache_get(struct ckpt_array_cache *c, struct ckpt_step *step, bool at_once,
			 struct ckpt_array_dir **ret_set);
// The same of a view of it by its name. -ENOENT: there is none; ret_why says why. Errors of ckpt_array_dir_view().
int ckpt_array_cache_view(struct ckpt_array_cache *c, struct ckpt_step *step, const char *name, bool at_once,
			  struct ckpt_array_dir **ret_set, struct ckpt_view_why *ret_why);
// The number of sets kept that are views, and the memory of all.
size_t ckpt_array_cache_views(struct ckpt_array_cache *c);
size_t ckpt_array_cache_held(struct ckpt_array_cache *c);
