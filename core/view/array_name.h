// Names of arrays as paths, and back (ARRAYS.md section 3 of the design): each byte of a name outside [A-Za-z0-9._-] is %XX, "/" makes a folder,
// "." and ".." are %2E and %2E%2E, and a component that is over 255 bytes with its ".npy" is %% and the SHA-256 of what it stands
// for, in hex. A folder never has the name of a file: the dot of ".npy" at the end of a folder's name, and that of "index.json", is %2E.
//
// Threads: any. Nothing blocks.
#pragma once

#include "core/array/catalog.h"

#define CKPT_ARRAY_COMPONENT_MAX 255  // bytes, with ".npy"
#define CKPT_ARRAY_INDEX "index.json" // what stands beside the arrays and lists them

// The path of a name, with ".npy": malloc'ed. An empty component ("a//b", "/a") is "%00". NULL: no memory.
char *ckpt_array_path(const char *name);
// The folder of a tree, whose "/" makes folders, too; "." and "" are the step itself: "". Malloc'ed.
char *ckpt_array_folder(const char *tree);
// The array whose path below .arrays this is: FOLDER/PATH, or PATH alone where no other array has the name. -ENOENT, -ENOMEM.
int ckpt_array_find(const struct ckpt_catalog *c, const char *path, size_t *ret_array);
