// Opening a store: what its log says, and the unfinished sessions that are in it, come into its table of steps.
//
// The log alone decides what exists (core/state/journal.h); the index spares reading manifests; chunks are looked at when they are wanted
// (dedupe.h). A log with a damaged entry is told in the error log: such a store cannot be written, and who only reads sees it without what
// that entry said. Threads: one, before others start, where nothing else is said. Blocks on the disk.
#pragma once

#include <stdbool.h>

struct ckpt_step;
struct ckpt_store;

int ckpt_load_steps(struct ckpt_store *s, bool repairs); // as CKPT_STORE_REPAIR does
// Any thread that begins an act: what came of one before, whose answer was lost, is known, and the steps are as the log says. -EIO: it is
// still not known. Cheap, nearly always.
int ckpt_load_settle(struct ckpt_store *s);
// Under acts_lock, or refresh_lock: the steps become what the log says. For a writer that are those that it knows: a commit whose answer was
// lost stays as it is until it is asked for again.
int ckpt_load_follow(struct ckpt_store *s);
// The index as if it had been lost: emptied, then given the chunks of all packs, beside all that goes on. Waits for a step
// that is being cooled, which lets by. -ENOENT there is none (the disk was full); -EROFS; -EINTR go_on (NULL: always) said no
// meanwhile; errors of index.h and objects.h.
int ckpt_load_index(struct ckpt_store *s, bool (*go_on)(void *arg), void *arg);
// A store opened for reading, beside a mount that writes: steps that came since. Cheap when none did. Any thread.
int ckpt_load_refresh(struct ckpt_store *s);
// The same of the versions of one step, which do not show otherwise: its files may be elsewhere since. True: there were some.
bool ckpt_load_newer(struct ckpt_step *step);
// Sessions that no record names: state LEFT.
int ckpt_load_sessions(struct ckpt_store *s);
