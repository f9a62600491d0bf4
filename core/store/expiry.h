// Expiry: deleted steps go, unfinished ones that nobody goes on with, temporary ones, those that the policy keeps no longer, and then the
// packs that nothing needs any more. The job of the trash asks for it (trash.h).
//
// Ownership: the store's. Threads: that of the trash's job. Blocks on the disk.
#pragma once

#include "core/step/trash.h"

struct ckpt_expiry;
CKPT_PART(struct ckpt_store, struct ckpt_expiry *, ckpt_expiry)

int ckpt_expiry_new(struct ckpt_expiry **ret_expiry); // 0, -ENOMEM
void ckpt_expiry_free(struct ckpt_expiry *expiry);    // after the trash; NULL is fine
struct ckpt_trash_looks ckpt_expiry_looks(struct ckpt_expiry *expiry);
