// The committed steps of a store, as policies see them: in the order of their first commits, whatever the clock said. A step whose name has
// no number is none to a policy.
//
// Ownership: ckpt_history_done() frees. Threads: any. Blocks on the disk where metrics are wanted, or the clock was set back between commits.
#pragma once

#include "core/policy/decide.h"
#include "core/step/step.h"

struct ckpt_history {
	struct ckpt_policy_step *steps;
	struct ckpt_step **at; // the same, each with a reference
	uint32_t *versions;    // of each
	size_t count;
};

// folder_id NULL: of all folders. metrics: those of each, which costs reading its record. 0; -ENOMEM; errors of that reading,
// as a step without metrics is not what cannot be read.
int ckpt_history_read(struct ckpt_store *s, const char *folder_id, bool metrics, struct ckpt_history *ret_history);
// The same with metrics, of which those are in `before` that versions have which have not changed since: their records are not read
// again.
int ckpt_history_read_again(struct ckpt_store *s, const char *folder_id, const struct ckpt_history *before,
			    struct ckpt_history *ret_history);
// The same of the run whose next step is asked for: of the root; where it has no steps, of the one folder that has. -EMLINK: several
// have, and nobody knows which of them goes on. ret_folder_id is where the run is, and has CKPT_FOLDER_ID_LEN + 1 bytes.
int ckpt_history_read_run(struct ckpt_store *s, bool metrics, char *ret_folder_id, struct ckpt_history *ret_history);
void ckpt_history_done(struct ckpt_history *h);
