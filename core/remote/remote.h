// The remote of a node's store: a log that several nodes append to (REMOTE.md, core/state/shared.h).
//
// A store that has a remote is a whole store by itself: all acts are done here, at the disk's speed, and show at once. Behind, one
// thread reads what others have appended to the remote's log, which shows here then, and pushes what this node has changed: packs
// first, then manifests, then an entry. What was pushed is known by the log alone, so that a crash, a lost answer or a lost network
// leaves nothing to be repaired: the thread goes on where the log says.
//
// Calling sequence: ckpt_remote_open() before the journal, ckpt_remote_catch_up() behind it, before the steps are loaded; _ready() when
// they are; _start(), with work behind; _stop(), _close().
// Ownership: the store has one. Threads: any, after open. Blocks: catch_up on the network; _stop for as long as a request takes.
#pragma once

#include "core/base/part.h"
#include "core/objects/objects.h"
#include "core/remote/failures.h"
#include "core/step/store.h"

struct ckpt_remote;

// NULL: the store has none.
CKPT_PART(struct ckpt_store, struct ckpt_remote *, ckpt_remote)

// The place of a store's remote, as store.json of the node says: {"url": ..., "options": [...], "probed": ...}. NULL, or what is none: it has none.
// The store's objects are those of near.h from then on. why: as of stack.h. 0; -EPROTONOSUPPORT, -EINVAL ...; -ENOMEM.
int ckpt_remote_open(struct ckpt_store *s, const json_t *identity, char why[CKPT_OBJECTS_WHY_MAX]);
// Reads all that others have appended. A store that has read it before goes on without, and says so in the error log. Errors: those of
// the objects; -EBADMSG: the remote's log is damaged; -EREMCHG: it is not that which this node has read before.
int ckpt_remote_catch_up(struct ckpt_remote *r);
void ckpt_remote_ready(
	struct ckpt_remote *r); // of a store that is open for writing. Its plain tree is as the log says then
// The plain tree, to tell it of changes; NULL: the store has no remote.
struct ckpt_tree;
struct ckpt_tree *ckpt_remote_tree(struct ckpt_remote *r);
int ckpt_remote_start(struct ckpt_remote *r); // 0, -ENOMEM, -EAGAIN; r NULL is fine here and below
void ckpt_remote_wake(struct ckpt_remote *r); // there may be something to push
void ckpt_remote_stop(struct ckpt_remote *r);
void ckpt_remote_close(struct ckpt_remote *r); // before the journal and the objects

bool ckpt_remote_proved(const struct ckpt_remote *r);     // as of ckpt_remote_prove(); before _start()
const char *ckpt_remote_url(const struct ckpt_remote *r); // borrowed; NULL of no remote
// The id of this node, as entries of the log have it; borrowed.
const char *ckpt_remote_node(const struct ckpt_remote *r);
// The remote's log is read up to this entry at least: by the thread that does it behind, where there is one. -ETIMEDOUT: that is busy; -ENODATA: the
// log ends before; errors of the objects.
int ckpt_remote_read_to(struct ckpt_remote *r, uint64_t seq);

// The work that waits to be pushed.
struct ckpt_remote_queue {
	uint64_t steps, bytes; // without those of ckpt_remote_failures(); bytes of the files of those whose files wait
	uint64_t due_bytes;    // of those, without what the last exchange has put off, and what waits for another step
	uint64_t
		files; // changes of plain files and folders, and of the policy; at least one until all of the tree was looked at
	int64_t unreachable_ns; // for so long the remote has not answered, monotonic; 0: it has
	int error;              // its last failure since then, -errno; 0: it answers
	bool value;             // the policy or a setting is among them
	bool holds;             // files may wait for a step that is saved after one that was dropped
};
void ckpt_remote_queue(struct ckpt_remote *r, struct ckpt_remote_queue *ret_queue);
// Steps that cannot be pushed, since their bytes on this node are damaged or gone: a copy of the list. Only the process that pushes
// knows them. 0, -ENOMEM.
int ckpt_remote_failures(struct ckpt_remote *r, struct ckpt_failure_list *ret_list);
// The last exchange that came to its end has passed this step over: it was being changed or removed here. Only the process that pushes knows.
bool ckpt_remote_is_put_off(struct ckpt_remote *r, const char *session);
// Packs of steps that are not complete, or not being pushed yet, are removed here: they only save time later. The bytes that were freed. Blocks for
// as long as a chunk takes, and on the disk.
uint64_t ckpt_remote_give_back(struct ckpt_remote *r);
// Exchanges with the remote, each of which reads its log and pushes all that can be pushed: the number of the last one that has begun, and of
// the last one that came to its end. One that begins after a question has a greater number than `begun` was then.
struct ckpt_remote_turns {
	uint64_t begun, ended;
};
struct ckpt_remote_turns ckpt_remote_turns(const struct ckpt_remote *r);
// The time at which the remote has taken something of this node last: an object, or an entry; monotonic. 0: nothing yet.
int64_t ckpt_remote_progressed_ns(const struct ckpt_remote *r);
