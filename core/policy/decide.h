// Whether a step is to be saved: the answer of a policy, of which save is asked for, to a step, the steps that there are, and
// what else is known at that moment. Nothing is remembered here, and no clock is read: the same question has the same answer,
// but for programs of the user's, which the whole tree asks in this one place, at most once each.
//
// First come the rules, in this order: force says yes; step 0 with skip_zero no; with only_after_latest a step below the latest one
// no; with skip_duplicate the one that was saved last no. Then the tree: `any` is as permanent as its most permanent policy, the first of those;
// `all` as its least; `time_interval` alone says yes for a temporary save. A policy that fails makes no decision where
// another one makes it without, and is an error else.
//
// Such a program has the question in its environment: CKPT_STEP, CKPT_NOW, CKPT_SAVING, CKPT_PREEMPTED, CKPT_STEPS, CKPT_LATEST_STEP,
// CKPT_LATEST_TIME, CKPT_RUN, CKPT_STORE.
//
// Threads: any. Blocks where a program of the user's is run, for its timeout at most.
#pragma once

#include "core/policy/policy.h"

// A committed step, as policies see it.
struct ckpt_policy_step {
	int64_t number;       // from 0
	int64_t committed_ns; // its first version
	uint64_t sequence;    // of its last save, among those of the store; 0: not known
	bool temporary, pinned;
	const json_t *metrics; // an object; NULL: it has none, or none are wanted
};

enum ckpt_decide_answer { CKPT_DECIDE_NO, CKPT_DECIDE_TEMPORARY, CKPT_DECIDE_PERMANENT };

struct ckpt_decide {
	int64_t step; // the one that is asked for
	const char *
		run; // the folder that its steps are in, a path; NULL: the one that is found (history.h). Nothing of it is asked here
	const char *folder, *store; // for programs: that folder's path, "" the root, and the store's; NULL: ""
	bool force;
	const struct ckpt_policy_step *steps; // committed, in the order of their first commits
	size_t count;
	int64_t now_ns;
	int64_t clock_ns; // when time_interval's clock was last set: the start of the run, or what `resets` said later
	bool saving;      // a save is in progress
	int64_t preempted_at;           // from this step on a preemption is reached; -1: there is none
	bool answered;                  // a function of the user's has said
	enum ckpt_decide_answer answer; // this, which stands in place of the policy's tree
	// Asked now and then while a program is run: false ends it, which is -EINTR. NULL: on and on.
	bool (*go_on)(void *arg);
	void *arg;
};

struct ckpt_decision {
	bool save, permanent;
	bool resets;    // time_interval's clock starts anew now
	const char *by; // the policy or rule that says so; NULL: no policy says yes
};

// The highest number of its steps; -1: there is none.
int64_t ckpt_decide_latest(const struct ckpt_decide *question);
// Which of the steps was saved last, an old one that was saved anew too; 0 where there is none.
size_t ckpt_decide_saved_last(const struct ckpt_policy_step *steps, size_t count);
// 0; -ENOMEM; else a policy failed: *ret_why says which and how (malloc'ed, may be NULL).
int ckpt_decide(const struct ckpt_policy *p, const struct ckpt_decide *question, struct ckpt_decision *ret_decision,
		char **ret_why);
