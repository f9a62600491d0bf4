// Which of the committed steps stay: the answer of a policy, of which `keep` is asked, to all of them at once.
//
// The tree is asked of permanent steps alone: a temporary one never takes the place of one that is kept. Whatever it says,
// there stay the newest step, pinned steps and, of the temporary ones, the newest step alone. The newest is the one that came last, and
// so is the one that was saved last: an old step that was saved anew.
// Threads: any. Nothing blocks.
#pragma once

#include "core/policy/decide.h"

struct ckpt_verdict {
	bool keep;
	const char *why; // the policy or rule, in words
};

// steps are in the order of their first commits; ret_verdicts has room for as many. Metrics are needed by a policy with best_n: what
// is no number counts as none. 0, -ENOMEM.
int ckpt_preserve(const struct ckpt_policy *p, const struct ckpt_policy_step *steps, size_t count, int64_t now_ns,
		  struct ckpt_verdict *ret_verdicts);
