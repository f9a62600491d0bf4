// The files of a step that a new one can have as they are, because each array in them stays as it is.
//
// Arrays stand or fall together, as their files do: those of a file (safetensors, npy, npz, torch); of an index and the files that it
// names; of a directory (dcp, zarr3, orbax), with all other files in it. Where one of them is left out, or becomes another, none stays.
//
// Ownership: the caller's. Threads: any. Blocks as the files do: they are listed, none is opened.
#pragma once

#include "core/array/catalog.h"

#include <stdbool.h>

struct ckpt_whole {
	bool *stays;  // by array of the catalog
	char **files; // sorted paths in the step, each once; malloc'ed
	size_t count;
};

// may_stay: of each array of the catalog. 0; -ENOMEM; what listing the files says.
int ckpt_whole_find(const struct ckpt_catalog *c, const struct ckpt_catalog_files *files, const bool *may_stay,
		    struct ckpt_whole *ret_whole);
void ckpt_whole_done(struct ckpt_whole *w); // zeroed is fine
