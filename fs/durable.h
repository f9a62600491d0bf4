// durability=remote: the call that completes a step returns when the step is in the object store, too.
//
// The step is committed on this node before that, listed, and queued. An error of the wait changes nothing of it: asking again waits again.
// Threads: any but those that serve the kernel. Blocks for as long as the push takes; nothing may be held meanwhile.
#pragma once

#include "core/step/step.h"
#include "fs/waiter.h"

// step NULL, or durability=local: 0 at once. -EINTR: the client was killed, or the mount ends; -EIO: the object store has taken nothing for
// commit_timeout, or the step cannot be pushed. The error log has it.
int durable_wait(struct ckpt_step *step, struct waiter waiter);
