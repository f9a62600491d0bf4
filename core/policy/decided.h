// What was decided of steps, so that all who ask get the same answer: a step is decided once. A decision holds for
// CKPT_DECIDED_NS, at most, as long as nothing happens to its step, and only under the policy that decided; the caller says of a
// step when something did.
//
// A run is the folder that its steps are in; each has its own.
//
// So is a preemption that verbs were told of while nothing was mounted; a mount keeps its own.
//
// It is kept by the process that has the store mounted, or by verbs, under the store's lock: as what the log says under the key "decisions".
// Threads: one. Nothing blocks.
#pragma once

#include "core/limits.h"
#include "core/policy/decide.h"
#include "core/record/name.h"

#define CKPT_DECIDED_NS (INT64_C(600) * 1000000000)
#define CKPT_DECIDED_MAX 256 // the oldest go first
#define CKPT_DECIDED_BY_MAX 31
#define CKPT_DECIDED_READ_ONLY "read_only" // the rule by which a store that cannot be written saves nothing
// So long who asks waits for what others ask for: the slowest program of theirs, and some more.
#define CKPT_DECIDED_PATIENCE_S (CKPT_POLICY_EXEC_SECS_MAX + 10)
#define CKPT_DECIDED_PATIENCE_NS (CKPT_DECIDED_PATIENCE_S * INT64_C(1000000000))

#define CKPT_DECIDED_RUNS_MAX 16 // with a clock of their own

struct ckpt_decided_step {
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	int64_t step, at_ns;
	int64_t latest; // the highest step that there was then; -1: none
	bool save, permanent;
	char by[CKPT_DECIDED_BY_MAX + 1]; // "": no policy says yes
};

struct ckpt_decided {
	struct {
		char folder_id[CKPT_FOLDER_ID_LEN + 1];
		int64_t clock_ns; // of time_interval (decide.h)
	} runs[CKPT_DECIDED_RUNS_MAX];
	size_t run_count; // the one that was asked for last is the last
	uint64_t policy;  // the one that decided, by its SEQ (policy_store.h); 0: the default, or none yet
	struct ckpt_decided_step steps[CKPT_DECIDED_MAX];
	size_t count;         // the newest last
	int64_t preempted_at; // at rest: from this step on a preemption is reached; -1: there is none
};

// From `now` on, with no decision, no preemption, and the clock of the run in the root ("").
void ckpt_decided_init(struct ckpt_decided *d, int64_t now_ns);
// From now on it is this policy that decides: nothing that another one has decided holds any more. The clock goes on.
void ckpt_decided_under(struct ckpt_decided *d, uint64_t policy);
// The decision of this step that holds now, NULL: none. changed_ns is when the step was last committed or deleted, INT64_MIN:
// never; latest is the highest step that there is: after a rollback all is decided anew.
const struct ckpt_decided_step *ckpt_decided_find(const struct ckpt_decided *d, const char *folder_id, int64_t step,
						  int64_t now_ns, int64_t changed_ns, int64_t latest);
// In place of what was decided of it before. Both are good until the next one is added.
const struct ckpt_decided_step *ckpt_decided_add(struct ckpt_decided *d, const char *folder_id, int64_t step,
						 int64_t now_ns, int64_t latest, const struct ckpt_decision *decision);
// The run's clock, which begins now if it has none.
int64_t ckpt_decided_clock(struct ckpt_decided *d, const char *folder_id, int64_t now_ns);

// Each run begins anew: its clock is set now. What was decided holds.
void ckpt_decided_restart(struct ckpt_decided *d, int64_t now_ns);

// As JSON; malloc'ed, NULL: no memory. And back: a text that is none says nothing, and is as ckpt_decided_init. 0, -ENOMEM.
char *ckpt_decided_text(const struct ckpt_decided *d);
int ckpt_decided_parse(const char *text, size_t len, int64_t now_ns, struct ckpt_decided *ret);
