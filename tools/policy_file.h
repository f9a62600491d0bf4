// Policies as verbs meet them: in a file, and in a store. Threads: one. Blocks on the disk. Failures are said on stderr here,
// once; the functions return 0 or an exit status.
#pragma once

#include "core/policy/policy.h"
#include "tools/listing.h"

int ckpt_policy_file_read(const char *path, struct ckpt_policy *ret_policy);            // "-": stdin
int ckpt_policy_of_store(const struct ckpt_listing *l, struct ckpt_policy *ret_policy); // what is in force there
