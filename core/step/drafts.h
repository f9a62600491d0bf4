// The drafts of a store that are pending (draft.h): a list, for those who count what they take.
#pragma once

#include "core/step/store.h"

struct ckpt_draft {
	struct ckpt_store *store;
	char session[37];
	char name[CKPT_NAME_MAX + 1];  // of the file in the session
	int dirfd;                     // the session's directory; -1: none (any more)
	struct ckpt_draft *next, **at; // of the store's, from begin to the end; guarded by its lock
};

// Those that are pending; guarded by store->lock.
struct ckpt_drafts {
	struct ckpt_draft *first;
};
CKPT_PART(struct ckpt_store, struct ckpt_drafts, ckpt_drafts)
