// The policy that a store has: the object "policy/current", in its canonical form. A store without it has the default.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "core/objects/objects.h"
#include "core/policy/policy.h"

struct ckpt_store;

// 0; -EBADMSG: what is there is no policy, *ret_why says where (malloc'ed, may be NULL); -ENOMEM, -EIO ... *ret_etag names this
// version, of what is no policy too, and is "" where the store has none.
int ckpt_policy_load(struct ckpt_store *s, struct ckpt_policy *ret_policy, char ret_etag[CKPT_ETAG_MAX],
		     char **ret_why);
// The same of its version alone.
int ckpt_policy_etag(struct ckpt_store *s, char ret_etag[CKPT_ETAG_MAX]);
// In place of what there is: of two who set one at the same moment the last has it. Durable when it returns 0. The store may be
// one that was opened for reading, beside a mount. -EIO: the outcome is unknown; -ENOSPC, -EACCES, -EROFS ...
int ckpt_policy_set(struct ckpt_store *s, const struct ckpt_policy *p);

// A program that a policy names is run as our user: only where nobody but him and root could have named it. 0; -EPERM: this policy
// of the store names one, and somebody else could have; *ret_why (malloc'ed, may be NULL).
int ckpt_policy_check_programs(struct ckpt_store *s, const struct ckpt_policy *p, char **ret_why);

// A small object (one of this folder, or gc/expected) is made, or takes the place of the version with this etag: -ESTALE.
int ckpt_policy_put_object(struct ckpt_objects *b, const char *key, const char *etag, const char *text);
