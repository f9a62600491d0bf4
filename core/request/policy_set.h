// The policy of a store, set by any process: its mount is asked, or else the store is opened for writing.
//
// Threads: any. Blocks on either.
#pragma once

#include "core/policy/policy.h"

// As ckpt_policy_set(); also errors of ckpt_reach() and of the mount. *ret_why: where there is more to say (malloc'ed, or NULL).
int ckpt_policy_set_in(const char *directory, struct ckpt_policy *p, char **ret_why);
