// Files that a commit leaves out: torn files (core/step/torn.h), and files of an interrupted attempt that are cut off. They are kept
// as a left session of the same name, until somebody drops it or its time is over (`staging_ttl`).
//
// Calling sequence: ckpt_left_out_begin() before the record is put, so that each file has a second name when the step is
// listed without it; then ckpt_left_out_keep() after the put, while scan->step->dirfd is open, or ckpt_left_out_drop() if there was none. Of a put that turns out to have been done by
// an attempt before, scan is empty: its files keep both names. A crash in between
// leaves the session, or a file in the step's directory that no manifest names: neither is listed.
// Ownership: *ret_left is a reference, which keep and drop take. Threads: the attempt's own. All calls block on the disk.
#pragma once

#include "core/save/scan.h"
#include "core/step/step.h"

// scan->left_out of a step that is being committed. 0, with NULL where nothing is left out; -errno: nothing has changed.
int ckpt_left_out_begin(const struct ckpt_scan *scan, struct ckpt_step **ret_left);
void ckpt_left_out_keep(const struct ckpt_scan *scan, struct ckpt_step *left);
void ckpt_left_out_drop(struct ckpt_step *left);
