// Opening a store: the steps and the unfinished sessions that are in it come into its table.
//
// The store's own listing decides what exists; the index only spares reading the records. What the index lacks is
// added to it, what it has too much is removed; chunks are looked at when they are wanted (dedupe.h). A record that is damaged, of a newer version or not what its key says
// is left alone, told in the error log, and not listed. Threads: one, before others start. Blocks on the disk.
#pragma once

#include <stdbool.h>

struct ckpt_step;
struct ckpt_store;

int ckpt_load_steps(struct ckpt_store *s, bool index_is_fresh);
// The index as if it had been lost: emptied, and filled from the store, chunks of packs too, beside all that goes on. Waits for a step
// that is being cooled, which lets by. -ENOENT there is none (the disk was full); -EROFS; -EINTR go_on (NULL: always) said no
// meanwhile; errors of index.h and objects.h.
int ckpt_load_index(struct ckpt_store *s, bool (*go_on)(void *arg), void *arg);
// A store opened for reading, beside a mount that writes: steps that came since. Cheap when none did. Any thread.
int ckpt_load_refresh(struct ckpt_store *s);
// The same of the versions of one step, which do not show otherwise: its files may be elsewhere since. True: there were some.
bool ckpt_load_newer(struct ckpt_step *step);
// Sessions that no record names: state LEFT.
int ckpt_load_sessions(struct ckpt_store *s);
