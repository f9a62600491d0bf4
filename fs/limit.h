// The limits of unfinished work (core/save/limit.h) at the requests of clients: who may begin to write, and go on.
//
// Asked are files of staged steps, and drafts that are no trackers. Never asked is what ends a step, by its name: it is what makes
// room. Nor who reads, removes, renames or cuts off, what is added to a committed step, or who joins a draft that another writes.
// 0; -ENOSPC, -EDQUOT. Threads: any. Blocks: where the answer would be no, as long as a walk takes.
// In the work directory of a store with a remote the answer is no only if waiting would not help (core/remote/evict.h): who begins to write
// waits before that, on a thread of its own. Of writes that come to the daemon a few wait; its threads are for all requests.
#pragma once

#include "fs/call.h"
#include "fs/handle.h"

// call_run(), once there is room, or none will come: of a call that creates c->name in c->node, or opens c->node for writing.
void limit_run(struct call *c);
void limit_run_open(struct call *c);
void limit_wait(struct call *c);  // the same of a new step, whose bytes will follow, on the thread of the call
int limit_create(struct call *c); // of c->name in c->node
int limit_open(struct call *c);   // of c->node for writing
int limit_reopen(struct call *c); // of c->node for writing, for which its step is reopened
// The same before the first write to a file that was opened without one (unwritten.h): of the step's owner.
int limit_first_write(struct ckpt_fs *fs, struct ckpt_step *step);
int limit_draft(struct call *c);            // that is to begin
int limit_set_size(struct call *c, int fd); // fd is of c->node
// Before so many bytes are written there; fd is of the handle's file.
int limit_write(struct ckpt_fs *fs, const struct handle *h, int fd, off_t offset, uint64_t bytes);
