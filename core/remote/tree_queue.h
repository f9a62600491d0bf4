// The changes of the plain tree that wait to be pushed, in the order in which they were made.
//
// A small file's content is taken when it is closed, since a tracker is to be pushed behind the step that it names and before what came
// later. So each change has a number, that of the newest act in the node's log then: what has at most that number goes first. The queue
// is in memory. After a crash a look at the disk finds what was in it (tree_plan.h), and takes it for later than all that waits.
// Each is compared with what the remote's log says before it is sent: what that says already is no change any more.
//
// Threads: _add any, the rest one. Blocks: _send on the network.
#pragma once

#include "core/base/lock.h"
#include "core/log/log.h"
#include "core/remote/failures.h"
#include "core/remote/tree_large.h"
#include "core/remote/tree_seen.h"
#include "core/state/act.h"

struct ckpt_tree_item {
	struct ckpt_tree_item *next;
	enum ckpt_act_kind kind; // MKDIR, FILE, REMOVE, MOVE
	char folder_id[CKPT_FOLDER_ID_LEN + 1], id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	bool link;
	uint32_t mode, uid, gid;
	uint64_t before; // REMOVE, MOVE: the version that it is of
	uint64_t number;
	void *content; // FILE; of a large one NULL until it is put: where its bytes are then (act.h)
	size_t content_len;
	uint8_t sha256[CKPT_SHA256_LEN]; // of the bytes, once there is a content
	struct ckpt_tree_file file;      // FILE: as it was looked at
	bool large;                      // its bytes are read when its turn comes
	uint64_t put_at;                 // and were put after this entry of the remote's log was read
	char *path;                      // not of a REMOVE: from the top of tree/, as it was then
	int64_t sent_ns;                 // of the one thread: when it was put into the log; 0: not yet
	bool in_flight;                  // of the one thread: it may be in the log, which was not read since
	bool dead;                       // of the queue's: it is not wanted any more; atomic
};

#define CKPT_TREE_TRIED 64u

struct ckpt_tree_queue {
	struct ckpt_lock lock;
	struct ckpt_tree_item *first, **last; // guarded by lock
	size_t count;                         // of those that wait; atomic
	uint64_t held;                        // deletions wait for files up to this number; guarded by lock
	struct {
		uint64_t path;    // its checksum
		int64_t at_ns;    // monotonic
	} tried[CKPT_TREE_TRIED]; // of the one thread: when large files were put or fetched last
	size_t tried_next;
};

void ckpt_tree_queue_init(struct ckpt_tree_queue *q);
void ckpt_tree_queue_done(struct ckpt_tree_queue *q);
// A copy of the item, whose content and path are taken, also on failure. A newer content of a file takes the place of one with the same number;
// folders come before all else. 0, -ENOMEM.
int ckpt_tree_queue_add(struct ckpt_tree_queue *q, const struct ckpt_tree_item *item);
// A content of this path waits that was taken from this file, or a removal: it need not be looked for again.
bool ckpt_tree_queue_has(struct ckpt_tree_queue *q, enum ckpt_act_kind kind, const char *folder_id, const char *name,
			 const struct ckpt_tree_file *file);
size_t ckpt_tree_queue_count(struct ckpt_tree_queue *q); // of those that wait
// Calls fn for each that waits, under the lock.
void ckpt_tree_queue_each(struct ckpt_tree_queue *q, void (*fn)(void *arg, const struct ckpt_tree_item *item),
			  void *arg);
// Items of this kind for a path are not wanted any more.
void ckpt_tree_queue_drop(struct ckpt_tree_queue *q, enum ckpt_act_kind kind, const char *folder_id, const char *name);

struct ckpt_tree_sending {
	struct ckpt_store *store;
	struct ckpt_log *log;
	const char *node;
	struct ckpt_tree_seen_table *seen;
	uint64_t before;                // only what has a lower number is sent: that of the first step that waits
	struct ckpt_failures *failures; // what may name one of these is not sent
	const struct ckpt_tree_pace *pace;
	bool *conflict; // atomic; set: a change was of what is not there any more, and was dropped. A look at the disk decides
};
// After the log was read. Items that it says already leave the queue, and are seen. So do those whose folder it does not have, nor gets.
void ckpt_tree_queue_settle(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to);
// A large file is put, or a version of it is fetched: not again for a while, whatever comes of it. False: that was done just now.
bool ckpt_tree_queue_try(struct ckpt_tree_queue *q, const char *folder_id, const char *name, uint64_t version);
// Deletions of steps wait: a file that was written before them may name a step that they delete.
bool ckpt_tree_queue_holds_deletions(struct ckpt_tree_queue *q);
// One entry of what comes first. 1: it was sent, or is to be made anew: read the log; 0: nothing is to be sent now; else as of ckpt_log_append().
int ckpt_tree_queue_send(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to);
