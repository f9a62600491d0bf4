// The needed packs and manifests of a remote, as a part of a collection. For collect*.c only.
//
// Marks stay when they are made again for a later entry of the log: what was needed once is not condemned by this collection.
// Threads: one, that of the collection. Calls block on the disk and on the network. Errors: done->why says it.
#pragma once

#include "core/remote/collecting.h"

// From the state as it is now: c->at is where, and each object is live, and condemned, that is so there.
int ckpt_collect_mark_live(struct ckpt_collecting *c);
// Objects that entries of the log have named, up to c->at: it reads all of it. What cannot be read names nothing.
int ckpt_collect_mark_named(struct ckpt_collecting *c);
