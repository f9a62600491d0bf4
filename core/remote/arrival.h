// The arrival of a step of this node in the remote's log, and waiting for it (REMOTE.md P7).
//
// Threads: any. Blocks: _wait alone, which holds nothing meanwhile: all else in the store goes on.
#pragma once

#include "core/step/store.h"

// The step of this session is in the remote's log as it is here. A store without a remote: false.
bool ckpt_remote_has(struct ckpt_store *s, const char *session);

// The step that a client has completed: that of a session, or a later one which took its place as an edit does, or another save.
struct ckpt_arrival {
	char session[CKPT_UUID_LEN + 1]; // set by the caller; it moves on
	char name[CKPT_NAME_MAX + 1];    // the name that it has now; "" until it was looked at
};
// 0: it is there as it is here, or was deleted here since, so that nobody waits for it; -EAGAIN: not yet; -ECANCELED: it was taken out of
// the queue (queue.h).
int ckpt_arrival_look(struct ckpt_store *s, struct ckpt_arrival *a);

struct ckpt_arrival_patience {
	int64_t timeout_ns;           // in which the remote has taken nothing
	bool (*abandoned)(void *arg); // asked again and again: true ends the wait
	void *arg;
};
// Until look() says 0. -ECANCELED: as look(); -EINTR: abandoned; -ETIMEDOUT; else it cannot be pushed, since its bytes here are damaged or gone, as the error log says.
// The step stays queued then.
int ckpt_arrival_wait(struct ckpt_store *s, struct ckpt_arrival *a, const struct ckpt_arrival_patience *patience);
