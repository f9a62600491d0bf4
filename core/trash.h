// What is on its way out: names in trash/ that are ours to remove, now or at the next start.
//
//	drop-UUID           a session that was dropped
//	copy-SALT-NUMBER    a leftover's private copy, or after the commit the file that it took the place of (copy.h)
//
// Anything else there is not touched. No symlink is followed, whatever somebody planted.
#pragma once

#include <stddef.h>

struct ckpt_store;
struct ckpt_trash_sweep;

#define CKPT_TRASH_DROP "drop-"
#define CKPT_TRASH_COPY "copy-"

// Removes one name and all below it; what it cannot remove stays for the next start. Blocks for as long as it takes.
int ckpt_trash_remove(struct ckpt_store *s, const char *name);
// Sees what a daemon that died has left there, before this one adds to it, and removes it on a thread of its own, which
// is not started when there is nothing. At most CKPT_TRASH_SWEEP_MAX names: the rest at the next start. 0, also when
// the listing failed; -ENOMEM.
int ckpt_trash_sweep_start(struct ckpt_store *s, struct ckpt_trash_sweep **ret_sweep);
// Ends it, after the file that it is removing. NULL is fine.
void ckpt_trash_sweep_stop(struct ckpt_trash_sweep *sweep);
