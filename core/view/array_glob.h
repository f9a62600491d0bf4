// Patterns over names of arrays (ARRAYS.md section 3 of the design): "." matches "." and "/"; "*" any bytes but these two; "**" any bytes; "?" any one
// byte. All others match themselves. A pattern with ":" is over TREE:NAME, else over NAME.
//
// Threads: any. Nothing blocks. Time: pattern times name, at most. A part of a pattern that is longer than CKPT_ARRAY_GLOB_MAX matches nothing.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CKPT_ARRAY_GLOB_MAX 4096

bool ckpt_array_glob(const char *glob, const char *tree, const char *name);
// The same; adds the steps that it took.
bool ckpt_array_glob_counted(const char *glob, const char *tree, const char *name, uint64_t *work);
