// The objects of a node beside those of the remote: packs and manifests that are not on this node are read from the remote.
//
// All else, and all changes, are the node's alone: a remote is written by push.c only.
// Errors: those of objects.h; where the remote gave no answer, -ETIMEDOUT: nothing is known to be damaged, and another time may do.
// Ownership: the layer closes both. Threads: any. Blocks on the disk, and on the network.
#pragma once

#include "core/objects/objects.h"

// 0, -ENOMEM: then both are still the caller's.
int ckpt_near_new(struct ckpt_objects *here, struct ckpt_objects *there, struct ckpt_objects **ret_objects);
// Of such a layer, borrowed.
struct ckpt_objects *ckpt_near_here(struct ckpt_objects *objects);
struct ckpt_objects *ckpt_near_there(struct ckpt_objects *objects);
