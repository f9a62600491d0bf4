// Packs that are expected to be garbage, told before they are: who removed the steps need not be asked whether that is right (gc.h).
//
// Threads: any. Nothing blocks but where it is said.
#pragma once

#include "core/base/keys.h"
#include "core/base/part.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_manifest;
struct ckpt_pack;
struct ckpt_step;
struct ckpt_store;

struct ckpt_garbage {
	struct ckpt_keys expired_packs; // guarded by store->lock
	uint64_t expired_bytes;         // of those; guarded by store->lock
	bool gc_in_vain;                // the last collection behind found nothing that could go; atomic
};
CKPT_PART(struct ckpt_store, struct ckpt_garbage, ckpt_garbage)

// The packs that the step needs are expected to be garbage soon: it is being expired, and its records are still there. m: its manifest, as it
// was read before the locks were taken that are held now; another one: it is read; NULL: it cannot be.
void ckpt_garbage_expect(struct ckpt_step *step, struct ckpt_manifest *m);
// It was put for a step that went meanwhile.
void ckpt_garbage_expect_pack(struct ckpt_store *s, const struct ckpt_pack *pack);
bool ckpt_garbage_expects(struct ckpt_store *s, const uint8_t id[32]);
size_t ckpt_garbage_packs(struct ckpt_store *s); // packs
// The same from one process to the next, by what the log says under the key "expected"; of many, some. What was kept is expected here, too, once it is
// loaded: 0, -EIO ... Who closes the store keeps it. Both block.
int ckpt_garbage_load(struct ckpt_store *s);
void ckpt_garbage_keep(struct ckpt_store *s);
uint64_t ckpt_garbage_bytes(struct ckpt_store *s); // of those packs: other steps may need some of it
void ckpt_garbage_expect_no_more(struct ckpt_store *s,
				 size_t expected); // it went; nothing is done if there is more by now
