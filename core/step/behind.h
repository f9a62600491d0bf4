// What a mount does behind (sealer.h, cooler.h): a thread that gives way to everything else that the machine does. It nearly stands
// still while a save runs, or while others want all of the processors.
//
// Threads: any, but for what is said below. Only _stop blocks, for as long as a chunk takes.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_behind;
struct ckpt_store;

// Does what there is to do. When to look again unless woken before, monotonic; 0: at once. Called by the thread alone.
typedef int64_t ckpt_behind_turn(void *arg, struct ckpt_behind *behind);

// s is borrowed; 0, -ENOMEM, -EAGAIN.
int ckpt_behind_new(struct ckpt_store *s, ckpt_behind_turn *turn, void *arg, struct ckpt_behind **ret_behind);
// For tests, which drive the turns themselves: without a thread, each _turn does one on the caller's, and says when the next is due.
int ckpt_behind_new_without_thread(struct ckpt_store *s, ckpt_behind_turn *turn, void *arg,
				   struct ckpt_behind **ret_behind);
int64_t ckpt_behind_turn_once(struct ckpt_behind *behind);
void ckpt_behind_wake(struct ckpt_behind *behind); // there may be something to do
void ckpt_behind_stop(struct ckpt_behind *behind); // it does no more; NULL is fine
void ckpt_behind_free(struct ckpt_behind *behind); // after _stop, when nobody wakes it; NULL is fine
bool ckpt_behind_stops(const struct ckpt_behind *behind);

// Called by the turn before it reads anything. Its work is waited for: it gives way to saves, and shares processors with the rest of
// the machine as any program does.
void ckpt_behind_hurry(struct ckpt_behind *behind);

// For the turn, and for threads of it: after each chunk, by who read it. Rests as it should; false: it is to end.
bool ckpt_behind_go_on(void *behind, uint64_t bytes);
// When what failed so is worth another attempt, monotonic; INT64_MAX: not before it is another version.
int64_t ckpt_behind_again_ns(int error);
// As it is after this: there was no memory, no room, ...
#define CKPT_BEHIND_LATER_NS INT64_C(600000000000)
