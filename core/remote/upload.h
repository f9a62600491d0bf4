// Objects of a node on their way into the remote: several at once, where each answer takes long.
//
// The bytes are read from the node's disk while they are sent: an object under way takes next to no memory.
// An object is sent once in the life of a struct ckpt_uploads, however often it is added.
//
// Calling sequence: ckpt_uploads_new(); _add() for each object; _wait() before an entry that names them is made; _free(), which calls off
// what is under way.
// Ownership: stores and `job` are borrowed. Threads: _new to _free belong to one thread; the unit has up to CKPT_UPLOADS_AT_ONCE of
// its own. Blocks: _wait until all has arrived, or one has failed; _free until what is under way has noticed.
#pragma once

#include "core/base/hash.h"
#include "core/objects/objects.h"

#define CKPT_UPLOADS_AT_ONCE 8

struct ckpt_uploads;
struct ckpt_job;

struct ckpt_uploads_of {
	struct ckpt_objects *here, *there;
	struct ckpt_job *job; // whose threads give way as it does; its end calls off what is under way
	int64_t tried_ns; // an object of this node that is younger was never sent: nobody asks whether it is there; by the node's clock
	int64_t *progressed_ns; // atomic: set, monotonic, when one was sent; NULL: nobody asks
};

int ckpt_uploads_new(const struct ckpt_uploads_of *of, struct ckpt_uploads **ret_uploads); // 0, -ENOMEM
void ckpt_uploads_free(struct ckpt_uploads *uploads);                                      // NULL is fine
// It is sent when its turn comes, in the order of these calls. sha256: of its bytes, which are not read for it then; they are damaged here if
// the remote finds another one. NULL: not known, or said before. may_go: nobody needs it yet; it may be removed here meanwhile, and is forgotten then. 0, -ENOMEM.
int ckpt_uploads_add(struct ckpt_uploads *uploads, const char *key, const uint8_t *sha256, bool may_go);
// 0: all that was added is in the remote. Else the first failure, after which nothing is begun: that of the objects; -ENOENT: one is
// neither here nor there; -EINTR: `job` ends.
int ckpt_uploads_wait(struct ckpt_uploads *uploads);
// The same, but -ETIME at this time, monotonic, at the earliest: what is under way goes on.
int ckpt_uploads_wait_until(struct ckpt_uploads *uploads, int64_t until_ns);
// That failure is of this node: what is to be sent is damaged here (-EBADMSG), cannot be read, or is neither here nor there.
bool ckpt_uploads_failed_here(struct ckpt_uploads *uploads);
// Its threads end, each after the object that it sends; those that are begun later have threads again.
void ckpt_uploads_rest(struct ckpt_uploads *uploads);
// Objects that are not in the remote yet; after a failure those that are under way. Any thread.
size_t ckpt_uploads_left(struct ckpt_uploads *uploads);
