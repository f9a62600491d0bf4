// The formats of arrays, by what is done with them, name and version; beside ours those that a program has registered.
//
// Ours have version 1. A registered format is looked for before ours, the one that came last first; so a program may read a file in its own way.
// A format stays registered to the end of the process.
//
// Threads: any. Nothing blocks. Errors: -EINVAL: no name, or no function; -EEXIST: the action has this name in this version; -ENOMEM.
#pragma once

#include "core/array/catalog_format.h"

#define CKPT_FORMAT_NAME_MAX 63
#define CKPT_FORMATS_MAX 64      // registered ones
#define CKPT_FORMAT_WHY_MAX 2048 // of ckpt_formats_find()

// Its name is copied.
int ckpt_formats_register(const struct ckpt_format *format); // -ENOSPC: there are CKPT_FORMATS_MAX
// A program has registered one: catalogs that other processes made may say other arrays of the same files.
bool ckpt_formats_registered(void);
// 0: action "read" or "write" has a format of this name in this version (0: any). -ENOENT: why has the three and the list of what there is.
int ckpt_formats_find(const char *action, const char *name, unsigned version, char why[CKPT_FORMAT_WHY_MAX]);
