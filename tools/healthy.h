// Steps without trouble in their arrays, for `latest --healthy` and `resolve --healthy`.
//
// A step that nobody has looked at yet is looked at here: its elements, too, where all of its bytes are on this node, else its headers alone, and a
// note says so. One that cannot be read counts as healthy, with a note: its bytes are what `ckptfs verify` is for. Nothing is written.
// Threads: one. Blocks on the disk or the store for as long as the step takes to read.
#pragma once

#include "core/request/resolve.h"

// By what the metadata of its version keep: 0; -ENODATA: nobody has looked yet; what reading the record says.
int ckpt_healthy_by_metadata(struct ckpt_step *step, bool *ret_healthy);
// The view passes over steps with trouble from now on, and says so on stderr.
void ckpt_healthy_only(struct ckpt_view *v);
