// Acts of verbs at rest, in a store with a URL, go to the object store before the process ends: nobody else would send them.
//
// Threads: one. Blocks on the network, with a bar. Failures are said on stderr, once.
#pragma once

#include <stdint.h>

// All that waits in the store at this path; until_ns: monotonic, INT64_MAX: however long it takes. 0, also of a store without a
// remote, and where a mount has it, which pushes; another verb that has it is waited for; or an exit status: it is done on this machine, and waits.
int ckpt_push(const char *path, int64_t until_ns);
// The same, and all that other nodes have appended is read, too.
int ckpt_push_and_read(const char *path, int64_t until_ns);
// The same of the store that verbs of this process have changed (ckpt_listing_written()).
int ckpt_push_done(void);
