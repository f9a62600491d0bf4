// Waiting, by a verb that has committed a step, until it is in the object store: durability=remote.
//
// Threads: one. Blocks until then. Failures are said on stderr, once.
#pragma once

#include <jansson.h>

// The step of this session, or what has its place since. reply: the mount's answer to the commit, NULL: it was committed at rest, and is
// pushed here. 0: it is there, or the mount does not wait for it, or the store is a local one; else an exit status. A name that was lost to another node is said.
int ckpt_arrival_await(const char *store, const char *word, const char *session, const json_t *reply);

// The row of uploading.failed in the status of a mount that is about this session; NULL: it can be uploaded. Borrowed.
const json_t *ckpt_arrival_failure(const json_t *status, const char *session);
int ckpt_arrival_fail_dropped(const char *word); // it was taken out of the queue; an exit status
int ckpt_arrival_fail(const json_t *failure);    // says what such a row is about; an exit status
