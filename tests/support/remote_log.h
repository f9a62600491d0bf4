// A remote's log that another node has written, for tests of who reads it.
#pragma once

#include "core/log/log.h"
#include "core/state/act.h"

#define CKPT_REMOTE_LOG_NODE "33333333-3333-4333-8333-333333333333"

// Appends entries up to number `to`, each with one act on a step. The first six of each ten save a step each, "ckpt-I" for entry I; the others amend the
// third of these, pin the fifth, delete the fourth and let it expire. only_saves: each saves a step. Else each ten make
// a folder, too, put three plain files there, one of them anew, one empty, one a symlink that is removed, and move the folder. Ends the test on failure.
void ckpt_remote_log_make(struct ckpt_objects *remote, const char *store_id, uint64_t to, bool only_saves);
// The number of steps that such a log lists.
unsigned ckpt_remote_log_steps(uint64_t to);
// The number of entries that the plain tree has then.
unsigned ckpt_remote_log_plains(uint64_t to);
// Appends one entry with this act on the plain tree.
void ckpt_remote_log_add(struct ckpt_objects *remote, const char *store_id, const struct ckpt_act *act);
// The id of the step that entry i saves.
void ckpt_remote_log_session(uint64_t i, char ret_id[CKPT_UUID_LEN + 1]);
