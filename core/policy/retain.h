// Which steps of a store stay by its policy: each folder's are judged by themselves (preserve.h). What does not stay goes to the
// trash, behind (trash.h), after the next commit.
//
// Ownership: ckpt_retain_done() frees. Threads: any. Judging blocks on the disk where the policy asks for metrics; deleting does.
#pragma once

#include "core/policy/history.h"
#include "core/policy/preserve.h"

#define CKPT_RETAIN_MAX 16 // steps at a time: others want acts_lock, too

struct ckpt_retain {
	struct ckpt_history history; // of all folders
	struct ckpt_verdict *verdicts;
};

// 0; -ENOMEM; where metrics are wanted, the error of the first step that cannot be read: then nothing is judged, as it could
// be the best.
int ckpt_retain_judge(struct ckpt_store *s, const struct ckpt_policy *p, int64_t now_ns,
		      struct ckpt_retain *ret_retain);
void ckpt_retain_done(struct ckpt_retain *r); // zeroed is fine

// Deletes those of these steps (NULL: one that is gone), at most CKPT_RETAIN_MAX, that do not stay, judged anew while nobody can delete, pin or change one. 0: ret_results says of each
// what came of it: 0; -ESTALE it is gone, or stays by now; -EBUSY somebody changes it; errors of ckpt_delete(). Else nothing was
// deleted: errors of ckpt_policy_load() and ckpt_retain_judge().
int ckpt_retain(struct ckpt_store *s, struct ckpt_step *const *steps, size_t count, int *ret_results);

// Deletes the permanent steps that the policy does not keep, until *stop; temporary ones are temporary.h's. They are judged while
// nobody can delete, pin or change one, and none is deleted while somebody is about to, or less than over_ns after the newest of
// its folder was committed. When to look again, from now on; INT64_MAX: after the next commit. Where the policy or what it asks for
// cannot be read, nothing is deleted, and the error log says so, but not where *told says that it did.
int64_t ckpt_retain_behind(struct ckpt_store *s, int64_t over_ns, const bool *stop, bool *told);
