// A remote's log that another node has written, for tests of who reads it.
#pragma once

#include "core/log/log.h"

#define CKPT_REMOTE_LOG_NODE "33333333-3333-4333-8333-333333333333"

// Appends entries up to number `to`, each with one act. The first six of each ten save a step each, "ckpt-I" for entry I; the others amend the
// third of these, pin the fifth, delete the fourth and let it expire. only_saves: each saves a step. Ends the test on failure.
void ckpt_remote_log_make(struct ckpt_objects *remote, const char *store_id, uint64_t to, bool only_saves);
// How many steps such a log lists.
unsigned ckpt_remote_log_steps(uint64_t to);
// The id of the step that entry i saves.
void ckpt_remote_log_session(uint64_t i, char ret_id[CKPT_UUID_LEN + 1]);
