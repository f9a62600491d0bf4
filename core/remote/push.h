// One entry of what a node has changed, made for the place behind all that was read of the remote's log (REMOTE.md section 3).
#pragma once

#include "core/remote/hold.h"
#include "core/remote/push_older.h"
#include "core/remote/remote.h"
#include "core/log/log.h"

struct ckpt_early_push;

// Steps that cannot be pushed now, passed over by one look until they change: they are being changed or removed on this node.
struct ckpt_put_off {
	char ids[64][CKPT_UUID_LEN + 1];
	uint64_t numbers[64]; // of their newest acts
	size_t count;
};

struct ckpt_push {
	struct ckpt_store *store;
	struct ckpt_log *log; // of the remote; at its end, as far as is known
	const char *node;
	struct ckpt_job *job;
	struct ckpt_failures *failures;         // steps that cannot be pushed are noted there,
	const struct ckpt_failure_list *failed; // and these passed over
	bool keeps_deleted;                     // deletions wait
	int64_t *
		tried_ns; // when the attempt before ended, or this process began (upload.h); is set to the end of this one
	struct ckpt_hold *hold;        // of the step that was tried last
	struct ckpt_push_older *older; // versions that are not the current one
	struct ckpt_early_push *early; // what was sent before its commit; NULL: nothing
	struct ckpt_put_off *put_off;  // set
	int64_t *progressed_ns;        // when the remote has taken something last, monotonic; atomic
};

// The place (core/state/difference.h) of the first step that could be pushed now; UINT64_MAX: none could. Changes of a step that is in the
// trash here and there are pushed last, and so have no place: no plain file waits for them.
uint64_t ckpt_push_place(const struct ckpt_state *state, const struct ckpt_failure_list *failed, bool keeps_deleted);

// The data that it names is in the remote before it is sent. 1: it was appended, or is to be made anew: read the log; 0: nothing waits that
// could be pushed now; -EINTR: it is to end; errors of the objects and of ckpt_log_append(). *ret_name: the step that it was about.
int ckpt_push_next(const struct ckpt_push *p, char ret_name[CKPT_NAME_MAX + 1]);
