// An operation of a store's log as a line of its history: what was done, to which step, when, and by whom.
//
// Ownership: plain data. Threads: the caller has a lock for the state. Nothing blocks.
// Errors: -EBADMSG damaged or hostile, -ENOTSUP newer, -ENOMEM.
#pragma once

#include "core/record/record.h"
#include "core/state/state.h"

struct ckpt_act_row {
	uint64_t seq;  // of the entry in the node's own log
	int64_t at_ns; // by the clock of the node that did it
	const char *
		word; // "commit", "edit", "restore", "metadata", "delete", "undelete", "expire", "rename", "pin", "unpin", "promote", "temporary",
	// "flags", "policy", "setting", "attach", "pull"; with is_detail: "seal", "cool", "repack", "mkdir", "write", "remove", "move"
	bool is_detail;             // of the bytes of a step, or of the plain tree, and not of a step as users see it
	char id[CKPT_UUID_LEN + 1]; // of the step; "": it concerns none
	char folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1]; // that it had afterwards; "": not known
	char old_folder_id[CKPT_FOLDER_ID_LEN + 1], old_name[CKPT_NAME_MAX + 1]; // of a rename: before; "": not known
	char replaces[CKPT_UUID_LEN + 1]; // of a commit: the step whose place it took; "": none
	uint32_t version;                 // that it made; 0: none
	char event[32];                   // as of the record, or ""
	bool has_size, has_flags;         // what follows is known
	uint64_t files, bytes;
	bool pinned, temporary; // afterwards
	char node[CKPT_UUID_LEN + 1];
	struct ckpt_actor actor;
};

struct ckpt_act_row_from {
	uint64_t seq;
	int64_t time_ns; // of the entry
	// The steps that are known. is_before: as they were right before the operation; else as they are later, so that they may have been
	// renamed since.
	const struct ckpt_state *state;
	bool is_before;
	const struct ckpt_act_row *prior; // rows of operations that the state has not applied yet
	size_t prior_count;
};

#define CKPT_ACT_ROW_NONE 1 // the operation is no act that a user knows
// A PULL attaches: its entry is a matter of the caller (core/state/pull.h). 0; CKPT_ACT_ROW_NONE; -errno.
int ckpt_act_row_of(const struct ckpt_act_row_from *from, const struct ckpt_operation *op,
		    struct ckpt_act_row *ret_row);
