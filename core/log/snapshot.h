// Snapshots of what a log says: the whole state behind an entry, so that who reads need not begin with the first one (REMOTE.md,
// L7). The form of the state is a matter of core/state: here it is bytes.
//
// A snapshot is made only from entries that were read. It is whole when it is put, and read back before anything relies on it.
// Threads: any. All block on the objects. Ownership: results are malloc'ed. Errors: those of the objects; -EBADMSG, -ENOTSUP.
#pragma once

#include "core/log/log.h"

#define CKPT_SNAPSHOT_KEY_MAX (sizeof("snap/remote-") + 16)
void ckpt_snapshot_key(uint64_t seq, char ret_key[CKPT_SNAPSHOT_KEY_MAX]);
// "snap/remote-SEQ": the copy that a node has of a snapshot of its remote. It is none of the node's own log.
void ckpt_snapshot_copy_key(uint64_t seq, char ret_key[CKPT_SNAPSHOT_KEY_MAX]);
uint64_t ckpt_snapshot_copy_number(const char *key); // 0: it is no such key

// A snapshot as bytes. One of a remote's log is whole by itself: it has the records that its state names, in bytes of its own.
struct ckpt_snapshot {
	struct ckpt_log_position at;
	const void *state, *records; // records: NULL: it has none
	size_t state_len, records_len;
};
#define CKPT_SNAPSHOT_RECORDS_AT 192u // where records begin, in bytes of the whole
// malloc'ed; -EFBIG, -ENOMEM.
int ckpt_snapshot_encode(const char *store_id, const struct ckpt_snapshot *snapshot, void **ret_data, size_t *ret_len);
// It borrows the data. -EBADMSG: damaged, of another store, or not the one behind this entry.
int ckpt_snapshot_decode(const char *store_id, uint64_t seq, const void *data, size_t len,
			 struct ckpt_snapshot *ret_snapshot);

// The state behind the entry at. 0: it is there, durably, and was read back; also if it was there before. -EFBIG.
int ckpt_snapshot_put(struct ckpt_objects *objects, const char *store_id, const struct ckpt_log_position *at,
		      const void *state, size_t len);
// The one behind this entry. -ENOENT.
int ckpt_snapshot_read(struct ckpt_objects *objects, const char *store_id, uint64_t seq,
		       struct ckpt_log_position *ret_at, void **ret_state, size_t *ret_len);
// The newest one that is whole; those that are damaged are passed over. -ENOENT: none. -ENOTSUP: the newest is of a newer format.
int ckpt_snapshot_newest(struct ckpt_objects *objects, const char *store_id, struct ckpt_log_position *ret_at,
			 void **ret_state, size_t *ret_len);

// Removes what is not needed any more in a log that only this process appends to: the snapshots but the two newest whole ones, and
// the entries before the older of these two, but none from keep_from on, nor one of which is_needed (NULL: none is) says so: something
// that the state names is in it. Nothing where there are not two. A crash in the middle leaves a log that is read as before.
typedef bool ckpt_log_needed_fn(void *arg, uint64_t seq);
int ckpt_log_trim(struct ckpt_objects *objects, const char *store_id, uint64_t keep_from, ckpt_log_needed_fn *is_needed,
		  void *arg);
