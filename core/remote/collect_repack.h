// Half-dead packs of a remote, of which less than half is needed, as a part of a collection. For collect*.c only.
//
// As for packs of this node (core/gc/repack.h): what listed steps need of one goes into a new pack, and each step gets a version that says so, an
// act REPACK. That is pushed as any other. Then nobody needs the old pack, and a later collection condemns it.
//
// It needs no rule of its own, since nothing is removed here. Packs that others push meanwhile, or name, are as needed as before: a step that
// another node has put into the log by then, and that shares the old pack, keeps it. One that comes behind the CONDEMN finds its chunks condemned, and
// puts them again. Where another node has changed the files of a step first, its version holds and the REPACK is dropped (core/state/shared.h).
// Readers of the old pack have the delay, and then read the new one (core/cold/file.h).
//
// A pack stays as it is that an older version, a step in the trash, a plain file or a HOLD needs; that is younger than the grace time; and that no
// step of this node needs any more, as its REPACK waits to be pushed.
//
// Threads: one, that of the collection. Blocks on the disk and on the network.
#pragma once

#include "core/remote/collecting.h"

// Before the marks are made, behind the listing: what steps need is counted, too. 0, -ENOMEM.
int ckpt_collect_count_use(struct ckpt_collecting *c);
// After them: finds half-dead packs, and moves what is needed of them, but for a dry run. 0; -EINTR go_on said no; else as of ckpt_repack(): done->why
// says it.
int ckpt_collect_repack(struct ckpt_collecting *c);
