// A snapshot of a remote's log, and the jump of a node over all entries up to it (REMOTE.md L7, R3).
//
// The snapshot is one object, whole by itself: the steps as the remote's log has them, the records of all their versions, the plain tree,
// and the contents of its files. It is made only of what was read of that log, so that all nodes make the same bytes of the same entries.
// A node that jumps keeps a copy beside its own log (snapshot.h), in which records and contents stand from then on (CKPT_SPAN_COPY), and
// appends a JUMP, which names it.
//
// Ownership: results are malloc'ed. Threads: plain data, but for the functions that take objects: these block on them.
// Errors: -EBADMSG damaged or hostile, -ENOTSUP newer, -EFBIG, -ENOMEM, and those of the objects.
#pragma once

#include "core/log/snapshot.h"
#include "core/state/state.h"

#define CKPT_JUMP_KIND 257u // of an operation, as CKPT_PULL_KIND
#define CKPT_JUMP_BYTES 48u // of its body

// The word of a JUMP: the copy that it means.
struct ckpt_jump {
	uint64_t seq, bytes;
	uint8_t sha256[CKPT_SHA256_LEN];
};
void ckpt_jump_encode(const struct ckpt_jump *jump, uint8_t ret_body[CKPT_JUMP_BYTES]);
int ckpt_jump_decode(const void *body, size_t len, struct ckpt_jump *ret_jump);

// The state that the remote's log says, without what this node has changed, and of values with the shared ones alone: that which all nodes have which have read
// it so far. NULL: no memory.
struct ckpt_state *ckpt_state_view(const struct ckpt_state *state);
// The records are read from the objects of the node whose state it is. The view (ckpt_state_view()) is changed: its records and
// contents are then where they are in the snapshot. -EFBIG: over CKPT_REMOTE_SNAPSHOT_BYTES_MAX.
int ckpt_jump_snapshot(struct ckpt_objects *objects, const char *store_id, struct ckpt_state *view,
		       const struct ckpt_log_position *at, void **ret_data, size_t *ret_len);
// The state of a snapshot. All of it is checked: each record is whole, and of its step, and each content has the SHA-256 of its file.
int ckpt_jump_state(const char *store_id, uint64_t seq, const void *data, size_t len, struct ckpt_log_position *ret_at,
		    struct ckpt_state **ret_state);

// Of the copies that a node has. Puts one, durably. One of other bytes is left from a jump that was not made, and goes.
int ckpt_jump_copy_put(struct ckpt_objects *objects, uint64_t seq, const void *data, size_t len);
// The one that a JUMP means.
int ckpt_jump_copy_read(struct ckpt_objects *objects, const char *store_id, const struct ckpt_jump *jump,
			struct ckpt_log_position *ret_at, struct ckpt_state **ret_state);
// That of the JUMP of an entry, for a state that has read the remote's log up to remote_seq. *ret_at: where it leads, SEQ 0: the entry has none;
// *ret_to NULL: it has none, or one that was passed already. -ESTALE: the copy is gone; -EBADMSG: more than one JUMP.
int ckpt_jump_of_entry(struct ckpt_objects *objects, const char *store_id, const struct ckpt_log_entry *entry,
		       uint64_t remote_seq, struct ckpt_log_position *ret_at, struct ckpt_state **ret_to);
// Removes those in which no record and no content is needed any more (is_needed() with CKPT_SPAN_COPY, as of ckpt_log_trim()), and which no JUMP means
// that is read again from an own snapshot of the node's log.
int ckpt_jump_copies_trim(struct ckpt_objects *objects, const char *store_id, ckpt_log_needed_fn *is_needed, void *arg);
// The object with these bytes.
void ckpt_span_key(const struct ckpt_span *at, char ret_key[CKPT_SNAPSHOT_KEY_MAX]);
