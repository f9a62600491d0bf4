// The acts that make a step in the remote's log what it is here: what is to be pushed of a changed step (shared.h).
//
// Threads: those of the state. Nothing blocks, nothing is allocated.
#pragma once

#include "core/state/act.h"
#include "core/state/shared.h"

#define CKPT_DIFFERENCE_MAX 6

// In the order in which they are to be appended, at most CKPT_DIFFERENCE_MAX. One with a record has no record yet: it is that of the
// step's newest version, with the number of the act. 0: nothing of it is to be pushed, for now: what is deleted here and was never
// there, unless another step took its place, which is pushed behind it; what was dropped; what another changed step will say; and what waits for a name which another changed step has left here, and not there yet.
// stuck: all of them wait, since they have exchanged their names: one gets another name first.
size_t ckpt_state_difference(const struct ckpt_state *state, const struct ckpt_state_step *changed, bool stuck,
			     struct ckpt_act ret_acts[CKPT_DIFFERENCE_MAX]);
// Its place in the order of what is pushed: the number of the act here before which nothing later may be pushed. A deletion stands
// where it was made, since what came before it may have named the step; all else where the step's first change was. A save over a step that
// was never pushed stands where that one did, and behind it: of two with one place the one that changed first goes first.
uint64_t ckpt_state_place(const struct ckpt_state *state, const struct ckpt_state_step *changed);
// The step was saved, with others in between or not, over `before`, of which something is to be pushed. Once it is in the remote's log, the other has no way there.
bool ckpt_state_follows(const struct ckpt_state *state, const struct ckpt_state_step *changed,
			const struct ckpt_state_step *before);
