// The policy that a store has: what its log says under the key "policy", in its canonical form. A store without it has the default.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/policy/policy.h"

#include <stdint.h>

struct ckpt_store;

// 0; -EBADMSG: what is there is no policy, *ret_why says where (malloc'ed, may be NULL); -ENOMEM. *ret_seq names this version, of
// what is no policy too, by the entry that set it, and is 0 where the store has none.
int ckpt_policy_load(struct ckpt_store *s, struct ckpt_policy *ret_policy, uint64_t *ret_seq, char **ret_why);
// The same of its version alone.
uint64_t ckpt_policy_seq(struct ckpt_store *s);
// In place of what there is: of two who set one at the same moment the last has it. Durable when it returns 0. The store is open for
// writing. -EIO: the outcome is unknown; -ENOSPC, -EACCES, -EROFS ...
int ckpt_policy_set(struct ckpt_store *s, const struct ckpt_policy *p);

// A program that a policy names is run as our user. So nobody but this user and root may write the log, which says the policy. 0; -EPERM: this
// policy of the store names a program, and others may write the log, *ret_why says where (malloc'ed, may be NULL); -ENOMEM, -EIO ...
int ckpt_policy_check_programs(struct ckpt_store *s, const struct ckpt_policy *p, char **ret_why);
