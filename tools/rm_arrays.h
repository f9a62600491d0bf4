// rm --arrays: arrays of a step go, by the beginning of their names, in one new version of it.
#pragma once

#include "tools/operand.h"

// word: a step, or the files below a path in one. 0 or an exit status.
int ckpt_rm_arrays(const struct ckpt_operand *o, const char *word, const char *prefix);
