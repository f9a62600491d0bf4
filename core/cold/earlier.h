// The step of before whose chunks those of a step may be told as a difference to: the newest one of the same folder that is in packs and
// is itself no such difference, so that to read a chunk at most one other is read. Which chunk belongs to which is found by path and by
// place in the file: an array that has kept its name and shape is cut into the same chunks.
//
// A step told so needs the packs of the other one, whatever becomes of that: its manifest names them, as all that it needs.
//
// Calling sequence: ckpt_earlier_find(), ckpt_earlier_chunk(), ckpt_earlier_free(). The pack of a chunk may be removed until the caller
// pins it (pack_pins.h). Memory: four bytes for each chunk, and a manifest. Threads: any; it is never changed. Blocks on the disk, _find
// alone.
#pragma once

#include "core/step/step.h"

struct ckpt_earlier;

// For the raw files of m, which is step's. most: of so many steps that are in packs one may be it, the newest ones; 0: none. *ret_earlier
// is NULL where there is none. 0, -ENOMEM.
int ckpt_earlier_find(struct ckpt_step *step, const struct ckpt_manifest *m, uint64_t most,
		      struct ckpt_earlier **ret_earlier);
void ckpt_earlier_free(struct ckpt_earlier *e); // NULL is fine
// The manifest of which a chunk is that stands for that row of m, as long as that and with no base; false: there is none. e: may be NULL.
bool ckpt_earlier_chunk(const struct ckpt_earlier *e, uint32_t row, struct ckpt_chunk *ret_chunk,
			const struct ckpt_manifest **ret_manifest);
