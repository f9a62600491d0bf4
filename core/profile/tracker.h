// Trackers and logs among plain files, by their names. A tracker is a small file that is replaced whole and that readers see
// old or new, never in part; a log is written bit by bit, and readers see each bit.
//
// Pure functions: no state, no I/O.
#pragma once

#include <stdbool.h>

// A name that frameworks give a file which says which step is complete, or what a step is: latest, checkpoint, *.json,
// latest_checkpointed_iteration.txt ... A reader must never see a part of it, and a killed writer leaves the old content.
bool ckpt_tracker_is_known(const char *name);
// A name of a log: *.log, *.out, *.err, *.csv, *.jsonl, events.out.*.
bool ckpt_tracker_is_log(const char *name);
