// Which steps of a store stay by its policy: each folder's are judged by themselves (preserve.h). Nothing is removed here.
//
// Ownership: ckpt_retain_done() frees. Threads: any. Blocks on the disk where the policy asks for metrics.
#pragma once

#include "core/history.h"
#include "core/preserve.h"

struct ckpt_retain {
	struct ckpt_history history; // of all folders
	struct ckpt_verdict *verdicts;
};

// 0; -ENOMEM; where metrics are wanted, the error of the first step that cannot be read: then nothing is judged, as it could
// be the best.
int ckpt_retain_judge(struct ckpt_store *s, const struct ckpt_policy *p, int64_t now_ns,
		      struct ckpt_retain *ret_retain);
void ckpt_retain_done(struct ckpt_retain *r); // zeroed is fine
