// Changes of attributes of what is in a committed step (attributes.h), and their way into a version.
//
// Threads: any. _publish blocks on the disk, and so may the others where no thread can be started.
#pragma once

#include "core/step/attributes.h"

// Of entry e of m, which is the current manifest. What an attribute is already is no change. -EROFS: the step is not committed
// (any more); -EAGAIN it is reopened; -ESTALE it has another version: look again; -ENOMEM.
int ckpt_change_attributes(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			   const struct ckpt_attributes_new *what);
// As setxattr(2), with its flags; value NULL: as removexattr(2). Also -EEXIST, -ENODATA; -ENOSPC the entry has too many of them.
int ckpt_change_xattr(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e, const char *name,
		      const void *value, size_t len, int flags);

// All changes that there are become a version. 0: they are, or there is none; errors of a version's put, which are in the error log.
int ckpt_change_publish(struct ckpt_step *step);
int ckpt_change_publish_locked(struct ckpt_step *step); // under store->acts_lock
// Under store->acts_lock: the changes of a step are changes of an edit of it from now on, which has its place (successor.h). Without memory
// they stay, and are handed on with the next try to publish them.
void ckpt_change_hand_on(struct ckpt_step *step, struct ckpt_step *to);
