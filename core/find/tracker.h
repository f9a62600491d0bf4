// Trackers: a framework's own word, in a small file beside its steps, for which of them is the newest.
//
//   latest_checkpointed_iteration.txt   of Megatron and ByteCheckpoint: a number, or "release"
//   latest                              of DeepSpeed: a name
//
// Threads: any. Reads a file of the plain tree.
#pragma once

struct ckpt_step;
struct ckpt_store;

// The step that a tracker in this folder (its path, "" for the root, and its id) says, if it is committed, with a reference; NULL:
// there is no tracker, or what it says is not true.
struct ckpt_step *ckpt_tracker_step(struct ckpt_store *s, const char *folder, const char *folder_id);
