// A node: a process with a real store on a real disk, whose bucket is the explorer's.
#pragma once

#include <stdint.h>

// Never returns: it does what comes by the socket, until that is closed. seed: of all that is random to it.
_Noreturn void node_run(int fd, const char *path, uint64_t seed);
