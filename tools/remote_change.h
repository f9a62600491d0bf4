// A local store gets a bucket behind it, and loses it again.
//
// Threads: one. Blocks on the network, with a bar. Failures are said on stderr, once; both return 0 or an exit status.
#pragma once

#include <stdbool.h>

// The store in the directory at path gets the remote at url, with the options that were given with -o (verb.h), and all of it is pushed.
int ckpt_remote_change_add(const char *path, const char *url);
// What is in the remote alone is fetched; then the store has none. Nothing is pushed, and the remote is left as it is.
int ckpt_remote_change_remove(const char *path);
