// The packs that are in use, by name: what an act is about to name in a version, and what a collection is about to remove.
//
// An act (cooling, repacking) pins a pack before it looks whether the pack is there, and unpins it when its version is applied or the
// act has given up. A new pack is pinned before it is put. A collection condemns a pack before it removes it. Pinned and condemned
// exclude each other: each is decided under one mutex.
//
// A collection removes only what no applied version needs. It reads that step by step, while versions come and go, as follows:
//
//   1. ckpt_pack_pins_begin(): a pack that is pinned now or later counts as pinned until _end(), also when it was unpinned.
//   2. It lists the packs, and reads what the versions need that are applied.
//   3. It condemns each pack that no version needs; one that counts as pinned is refused.
//   4. It removes what it has condemned.
//
// No pack goes that a version needs. Let V be a version that needs P, by an act that had P pinned:
//   - P was unpinned before 1. Then V was applied before 1, and 2 reads it, or a later version of the same step. Where the later
//     one does not need P, nothing does.
//   - P was unpinned after 1, or not yet. Then it counts as pinned, and 3 is refused.
//   - P is pinned after 3. Then the pin is refused, and the act encodes the chunk again. After 4 the pin is granted again, but the
//     act does not find the pack: it looks after it has pinned.
// A version may also keep the packs of the version that it replaces; those were needed by that one.
//
// A pack whose removal failed stays condemned, for the removal may still happen. The next collection tries it again.
//
// Calling sequence: ckpt_pack_pins_new(); calls; _free(). Ownership: the store's. Threads: any. Blocks: never on I/O.
// Not here: pins of other processes, which are locks on disk (file.h), and open files.
#pragma once

#include "core/base/hash.h"
#include "core/base/part.h"

#include <stdbool.h>

struct ckpt_pack_pins;
struct ckpt_store;
// Of each store.
CKPT_PART(struct ckpt_store, struct ckpt_pack_pins *, ckpt_pack_pins)

int ckpt_pack_pins_new(struct ckpt_pack_pins **ret_pins); // 0, -ENOMEM
void ckpt_pack_pins_free(struct ckpt_pack_pins *p);       // NULL is fine

// Pins count. 0; -ESTALE it is condemned; -ENOMEM.
int ckpt_pack_pin(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN]);
void ckpt_pack_unpin(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN]);

// Around a collection. There may be several at once.
void ckpt_pack_pins_begin(struct ckpt_pack_pins *p);
void ckpt_pack_pins_end(struct ckpt_pack_pins *p);
// It counts as pinned.
bool ckpt_pack_is_pinned(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN]);
// 0; -EBUSY it counts as pinned; -EALREADY another collection has condemned it, and is removing it; -ENOMEM.
int ckpt_pack_condemn(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN]);
// By the act that has put the pack and pinned it before that, whose pin ends with it. False: somebody else has pinned it since.
bool ckpt_pack_condemn_own(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN]);
// After each of the two. stays: the removal failed, and may still happen.
void ckpt_pack_condemned_end(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN], bool stays);
// In place of it, where no removal was tried: the pack is not condemned any more, unless one before may still happen.
void ckpt_pack_spare(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN]);
