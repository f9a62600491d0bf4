// Patterns over names of arrays (ARRAYS.md section 3 of the design): "." matches "." and "/"; "*" any bytes but these two; "**" any bytes; "?" any one
// byte. All others match themselves. A pattern with ":" is over TREE:NAME, else over NAME.
//
// Threads: any. Nothing blocks. Time: pattern times name.
#pragma once

#include <stdbool.h>

bool ckpt_array_glob(const char *glob, const char *tree, const char *name);
