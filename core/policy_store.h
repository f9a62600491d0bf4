// The policy that a store has: the object "policy/current", in its canonical form. A store without it has the default.
//
// Threads: any. Blocks on the disk.
#pragma once

#include "backends/backend.h"
#include "core/policy.h"

struct ckpt_store;

// 0; -EBADMSG: what is there is no policy, *ret_why says where (malloc'ed, may be NULL); -ENOMEM, -EIO ... *ret_etag names this
// version for a put, what is no policy too, and is "" where the store has none.
int ckpt_policy_load(struct ckpt_store *s, struct ckpt_policy *ret_policy, char ret_etag[CKPT_ETAG_MAX],
		     char **ret_why);
// Replaces the version with this etag: -ESTALE another took its place. Durable when it returns 0. The store may be one that was
// opened for reading, beside a mount. -EIO: the outcome is unknown; -ENOSPC, -EACCES, -EROFS ...
int ckpt_policy_put(struct ckpt_store *s, const struct ckpt_policy *p, const char *etag);

// An object of this folder is made, or takes the place of the version with this etag: -ESTALE.
int ckpt_policy_put_object(struct ckpt_backend *b, const char *key, const char *etag, const char *text);
