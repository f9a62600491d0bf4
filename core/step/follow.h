// The table of steps follows the log: what other acts have appended, and what came of one whose answer was lost.
//
// Threads: any. Blocks on the disk.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_step;
struct ckpt_store;

// Any thread that begins an act: what came of one before, whose answer was lost, is known, and the steps are as the log says. -EIO: it is
// still not known. Cheap, nearly always.
int ckpt_follow_settle(struct ckpt_store *s);
// Under acts_lock, or refresh_lock: the steps become what the log says. For a writer that are those that it knows: a commit whose answer was
// lost stays as it is until it is asked for again.
int ckpt_follow(struct ckpt_store *s);
// A store opened for reading, beside a mount that writes: steps that came since. Cheap when none did. Any thread.
int ckpt_follow_refresh(struct ckpt_store *s);
// Under acts_lock, by who is about to change the step: it is as the log says, which another node may have changed. Cheap where it is.
int ckpt_follow_step(struct ckpt_step *step);
// Whether the log says more of it than the step knows.
bool ckpt_follow_is_behind(struct ckpt_step *step);
// The value that the log has under this key now (ckpt_journal_get). -ENOENT.
int ckpt_follow_value(struct ckpt_store *s, const char *key, char **ret_value, uint64_t *ret_seq);
// The same of the versions of one step, which do not show otherwise: its files may be elsewhere since. True: there were some.
bool ckpt_follow_newer(struct ckpt_step *step);
