// The history of a store, newest first: each act that its log still has (act_row.h).
//
// A node's log keeps all entries from the older of its two newest snapshots on, and before that single ones, which records or contents are
// in (core/log/snapshot.h). The entries from the snapshot on are applied in order to its state, which says what each act was done to, and
// which acts are void. Those before are read one by one, the newest first, and only as long as more rows are wanted.
// An entry of the remote that was pulled is told as acts of its node. An act of this node that comes back so is not told again.
//
// Memory: the rows that are wanted, and the state. A log of one node's acts is read once; for one step, the entries behind the snapshot twice.
// Ownership: rows are valid in the call of the function alone. Threads: one. Blocks on the objects.
#pragma once

#include "core/find/act_row.h"
#include "core/objects/objects.h"

struct ckpt_timeline_want {
	size_t most;      // rows; 0: all
	int64_t since_ns; // INT64_MIN: always
	bool details;     // also rows with is_detail
	// Of which steps; both NULL: of all, and of none.
	const char *id;               // this one, and those whose place it took
	const char *folder_id, *name; // and those that had this folder and name at the time
};

struct ckpt_timeline_end {
	size_t rows;
	uint64_t damaged, damaged_count; // the first entry that cannot be read, and how many were met; 0: none
	int64_t whole_from_ns; // rows from before are missing that the log does not have any more; INT64_MIN: none is missing
};

typedef int ckpt_timeline_fn(void *arg, const struct ckpt_act_row *row);
// Beside a process that writes, too. Ends with the first answer of fn that is not 0. -ENOTSUP newer; -ENOMEM; errors of the objects.
// A damaged entry is none: all others are told.
int ckpt_timeline_read(struct ckpt_objects *objects, const char *store_id, const char *node,
		       const struct ckpt_timeline_want *want, ckpt_timeline_fn *fn, void *arg,
		       struct ckpt_timeline_end *ret_end);
