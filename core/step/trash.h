// What is on its way out: names in trash/ that are ours to remove, behind, or at the next start.
//
//	drop-UUID           a session that was dropped
//	copy-SALT-NUMBER    a leftover's private copy, or after the commit the file that it took the place of (copy.h)
//
// Anything else there is not touched. No symlink is followed, whatever somebody planted.
// Ownership: the store has one, from open to close. Threads: any.
#pragma once

#include "core/base/part.h"
#include "core/base/uuid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_store;
struct ckpt_trash;

// Of a store that is open for writing; else NULL.
CKPT_PART(struct ckpt_store, struct ckpt_trash *, ckpt_trash)

#define CKPT_TRASH_DROP "drop-"
#define CKPT_TRASH_COPY "copy-"
#define CKPT_TRASH_SESSION_NAME (sizeof(CKPT_TRASH_DROP) + CKPT_UUID_LEN)

// Looks at deleted steps, by the job of the trash. Each says when it is to look again, by the clock of the system; INT64_MAX: when it
// is woken.
struct ckpt_trash_looks {
	int64_t (*deleted)(void *arg, struct ckpt_store *s, const bool *stop);
	int64_t (*over)(void *arg, struct ckpt_store *s, int64_t after_ns,
			const bool *stop); // those that another has replaced so long ago
	void *arg;
	void (*woken)(struct ckpt_store *s); // by ckpt_trash_wake, on its thread
};

// Sees what a process that died has left there, before this one adds to it: it is removed behind, as all else. At most
// CKPT_TRASH_SWEEP_MAX names: the rest at the next start. 0, also when the listing failed; -ENOMEM.
int ckpt_trash_open(struct ckpt_store *s, const struct ckpt_trash_looks *looks, struct ckpt_trash **ret_trash);
// Ends what goes on, after the file that is being removed; the rest stays for the next start. From then on nothing is done. NULL is
// fine for both.
void ckpt_trash_stop(struct ckpt_trash *t);
void ckpt_trash_close(struct ckpt_trash *t);
// Removes a name and all below it, in the background. Without memory the name stays.
void ckpt_trash_remove_behind(struct ckpt_trash *t, const char *name);
// Deleted steps (delete.h) are looked at too: what has expired is removed, now and when its time comes, and then the packs that
// nothing needs any more (gc.h). What goes before its time, for its room, is room.h's, which is woken too.
void ckpt_trash_wake(struct ckpt_trash *t);
// A step was committed: temporary ones may be over (temporary.h), and the policy may keep others no longer (retain.h). They are deleted
// a few seconds later, so that a framework that removes its own after a save has done it by then; where deleted steps are not looked
// at, by a verb, at once.
void ckpt_trash_committed(struct ckpt_trash *t);
// Waits until nothing is left to do, or the trash is stopped.
void ckpt_trash_drain(struct ckpt_trash *t);
// How many names, or looks at deleted steps, it still has to do; NULL: 0.
size_t ckpt_trash_pending(struct ckpt_trash *t);
// Moves a session there, on a full disk too (backends/spare.h), and says what its name is now. Not durable yet; and the name is
// still to be given to ckpt_trash_remove_behind(). 0, -ENOENT there is no such session, ...
int ckpt_trash_take(struct ckpt_store *s, const char *session, char ret_name[CKPT_TRASH_SESSION_NAME]);
// Removes a name at once; blocks for as long as it takes. What cannot be removed stays, and the first error is returned.
int ckpt_trash_remove(struct ckpt_store *s, const char *name);
