// Whether a store of objects does what a log in it needs (REMOTE.md section 9): a put of a taken key is refused, of many at once
// one wins, and gets and lists show what was put.
#pragma once

#include "core/objects/objects.h"

#define CKPT_PROBE_WHY_MAX 256

// race: with puts of one key by several threads at once, too: that need not be done at each mount. -ENOTSUP: it does not, and
// ret_why says what was tried and what came of it; other errors are the store's own. Its objects, "probe/UUID", are removed;
// a store that refuses that keeps it. Blocks on the store for some ten calls, with race for some forty.
int ckpt_objects_probe(struct ckpt_objects *o, bool race, char ret_why[CKPT_PROBE_WHY_MAX]);
