// The arrays of a version that `rm --arrays` is about to make are those of the version before without the dropped ones, and no new fault is
// told of a file: so a rewritten file that says something else is never part of a step.
//
// Threads: any. Nothing blocks. Errors: -ENOMEM.
#pragma once

#include "core/array/catalog.h"

// 0; -EBADMSG: they are not; *ret_what, malloc'ed, has the array or the file of which that was found.
int ckpt_rm_check(const struct ckpt_catalog *was, const struct ckpt_catalog *now,
		  bool (*drops)(void *arg, const char *name), void *arg, char **ret_what);
