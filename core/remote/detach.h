// A node's store that parts with its remote, and is a plain local store from then on.
//
// store.json alone says whether a store has a remote (place.h). So parting is one durable act, ckpt_remote_forget(), and this is what comes
// before and after it: all that is in the remote only is copied here, while the store is open for writing; and the next open for writing
// finds a log that still says that the store is attached, and ends that. The remote is only read.
//
// Ownership: the store is the caller's. Threads: one. Blocks: _fetch on the network, _end on the disk.
#pragma once

#include "core/remote/fetch.h"

// Something that stays in the remote alone. step NULL: a plain file of this path, borrowed. current: the version that the step shows, or that
// it would show if it were not in the trash. error: -ENOENT the remote has not got it, either; else why it could not be copied.
typedef void ckpt_detach_lack_fn(void *arg, struct ckpt_step *step, const char *path, bool current, int error);

// Copies the packs and manifests of all versions that can be opened, makes the directories of their steps, and says what it could not. Plain files were carried out when the store was
// opened: those are named of which another node's version is not here. fetch: go_on and its results. 0; -EINTR: go_on said no; -ENOMEM, or an
// error of the disk.
int ckpt_detach_fetch(struct ckpt_store *s, struct ckpt_fetch_round *fetch, ckpt_detach_lack_fn *lacks, void *arg);

// Of a store without a remote that is being opened for writing, before its steps are loaded: does nothing where its log says that it has none, too.
int ckpt_detach_end(struct ckpt_store *s);
