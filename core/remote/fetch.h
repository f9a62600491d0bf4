// Packs of files that are open on this node, and of steps that wait to be pushed, once the remote's log condemns them: they are copied to
// this node before they go from the remote, an hour later. A reader of an older version reads on (REMOTE.md R6), and a step that waits has its chunks.
//
// A job copies them, after an entry that condemns something, and after the begin of a mount. The log is read on meanwhile. A pack that would
// exceed work_limit, or leave the disk less than the next step and a part of it, is not copied: it is tried again in a minute, and the
// error log says so once. A remote that does not answer is asked again, too.
// A copy goes as any pack of this node that nothing needs, when the file is closed.
//
// Calling sequence: ckpt_fetch_start() before the remote's job begins; _after() each entry; its job is stopped behind the end of that job.
// Threads: those of the caller, one at a time. Blocks: _round, and _after without a job, on the network
// for as long as the packs take.
#pragma once

#include "core/base/part.h"
#include "core/log/entry.h"
#include "core/step/store.h"

struct ckpt_fetch {
	struct ckpt_job *job; // of a mount; NULL: the store has no remote, or no job for this
	int told;             // the job's: the failure that the error log has; 0: none since all was copied
};
CKPT_PART(struct ckpt_store, struct ckpt_fetch, ckpt_fetch)

int ckpt_fetch_start(struct ckpt_store *s); // 0, -ENOMEM, -EAGAIN

// The entry was read, and the state has it. Without a job packs are copied now.
void ckpt_fetch_after(struct ckpt_store *s, const struct ckpt_log_entry *entry);

struct ckpt_fetch_round {
	bool (*go_on)(void *arg, uint64_t bytes); // after some bytes; false ends it. NULL: on and on
	void *arg;
	// Results.
	uint64_t packs, bytes; // that were copied
	uint64_t lacking;      // bytes of those for which there is no room
	int failed;            // 0, or why a pack could not be copied: -ENOENT it has gone; else it may be tried again
	char key[128];         // of that pack
};
struct ckpt_pack;
// One pack, where it is not here. 0: it is; -EINTR: go_on said no; -ENOSPC; -ENOENT: the remote has not got it; else as of the objects. Adds to the results.
int ckpt_fetch_pack(struct ckpt_store *s, struct ckpt_fetch_round *r, const struct ckpt_pack *pack);
// All that there is now.
void ckpt_fetch_round(struct ckpt_store *s, struct ckpt_fetch_round *r);
