// Temporary steps: those whose commit said so, with `"temporary": true` in the marker or in their framework's own words. Each is over
// once a newer step is committed in its folder, and goes to the trash then, behind (trash.h). A step that was there before it and is
// changed late is no newer one.
//
// Whether it is over is what the versions in the store say, and so the same after a restart: nothing is deleted at a start, and what
// is left of before is seen after the first commit. It stays where it was made permanent, had back from the trash, or pinned meanwhile, or where what came
// after it is gone; and for now where somebody changes it, removes it, or adds a file to it.
// Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

// Of a committed step's directory, by which clients see it: "true" or "false". Read by name, in no list.
#define CKPT_TEMPORARY_XATTR CKPT_OWN_XATTRS "temporary"

// The step is permanent from now on. Idempotent, durable, and errors as of ckpt_pin() (pin.h).
int ckpt_promote(struct ckpt_step *step);

// Deletes the temporary steps that are over for so long, until *stop. When to look again, from now on; INT64_MAX: after the next
// commit. What fails is in the error log and left for then.
int64_t ckpt_temporary_expire(struct ckpt_store *s, int64_t over_ns, const bool *stop);
