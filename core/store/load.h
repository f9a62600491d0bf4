// Opening a store: what its log says, and the unfinished sessions that are in it, come into its table of steps.
//
// The log alone decides what exists (core/state/journal.h); the index spares reading manifests; chunks are looked at when they are wanted
// (dedupe.h). A log with a damaged entry is told in the error log: such a store cannot be written, and who only reads sees it without what
// that entry said. Threads: one, before others start, where nothing else is said. Blocks on the disk.
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct ckpt_store;

// identity: store.json. repairs: as CKPT_STORE_REPAIR does.
int ckpt_load_steps(struct ckpt_store *s, const json_t *identity, bool repairs);
// Sessions that no record names: state LEFT.
int ckpt_load_sessions(struct ckpt_store *s);
