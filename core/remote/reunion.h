// Changes of this node and of others to one step, as the remote's thread puts them together (core/save/reunite.h), and the manifests that this
// reads.
//
// Threads: one, that of the remote. Blocks on the network, and takes acts_lock for each step.
#pragma once

#include <stdbool.h>

struct ckpt_job;
struct ckpt_store;

// Large manifests of steps that others have put come into the index. A manifest that cannot be fetched now is read when it is needed. job: NULL, or whose end
// ends it.
void ckpt_reunion_fetch(struct ckpt_store *s, struct ckpt_job *job);
// Tries each step that is apart. *ret_apart: some are left, which are being changed here now, or cannot be read now: try again at the next turn. 0,
// -ENOMEM.
int ckpt_reunion_all(struct ckpt_store *s, bool *ret_apart);
