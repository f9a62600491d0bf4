// The removal of what a CONDEMN has named, as a part of a collection. For collect*.c only.
//
// Threads: one, that of the collection; it has some of its own. Blocks on the network.
#pragma once

#include "core/remote/collecting.h"

// Objects that are condemned and not needed are removed once the delay is over, and counted as deleted; others as waiting. 0; -EINTR go_on said no;
// else the error of an object that stays: done->why names each of those, as far as there is room. Others were removed nevertheless, but where the
// store did not answer any more.
int ckpt_collect_remove(struct ckpt_collecting *c);
