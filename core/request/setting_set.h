// A setting that all nodes of a remote share, set by any process: its mount is asked, or else the store is opened for writing.
//
// Threads: any. Blocks on either, not on the network: the value waits to be pushed.
#pragma once

#include "core/step/settings.h"

// As ckpt_shared_setting_set(); also errors of ckpt_reach() and of the mount. *ret_why: where there is more to say (malloc'ed, or NULL).
int ckpt_setting_set_in(const char *directory, const struct ckpt_setting *setting, const char *value, char **ret_why);
