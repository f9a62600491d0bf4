// The log of a store: log/1, log/2, ... Each entry is put only if its place is free, by somebody who has read the one before, and
// is never changed (REMOTE.md section 2, rules L1 to L5). Whoever wins a place knows everything before it.
//
// The position goes over the entries in order, and the caller's function sees each one that it passes: those that are read, those that
// are appended here, and those that settle shows to be there.
//
// Calling sequence: ckpt_log_new(), at the beginning or at the position of a snapshot; ckpt_log_read() to the end; then, again and
// again, ckpt_log_append() of what was made for the state there. When that is -EEXIST, another entry has the place: read it, make
// the operations anew, append again. An own operation may be in it, from an attempt whose answer was lost: its nonce tells.
// An error of which nobody knows what came of it leaves the log unsettled: nothing is sent to any other place before
// ckpt_log_settle() has said.
//
// Ownership: the log borrows the objects. Threads: one at a time; the caller has a lock for it. Blocks: all but position, on the
// objects. Errors: those of the objects, and those named here.
#pragma once

#include "core/log/entry.h"
#include "core/objects/objects.h"

struct ckpt_log;

// An entry, told from any other that may ever stand there. seq 0: before the first.
struct ckpt_log_position {
	uint64_t seq;
	uint8_t sha256[CKPT_SHA256_LEN];
};

#define CKPT_LOG_KEY_MAX (sizeof("log/") + 16)
void ckpt_log_key(uint64_t seq, char ret_key[CKPT_LOG_KEY_MAX]);
uint64_t ckpt_log_number(const char *key); // of "log/SEQ", and of "snap/SEQ", too; 0: it is no such name

struct ckpt_log_numbers {
	uint64_t *at; // ascending
	size_t count, cap;
};
// Those of the objects below "log/", or "snap/"; what it had before is replaced. Errors as of ckpt_objects_list().
int ckpt_log_list(struct ckpt_objects *objects, const char *prefix, struct ckpt_log_numbers *ret_numbers);
void ckpt_log_numbers_done(struct ckpt_log_numbers *numbers); // zeroed is fine

// An error (such as -ENOMEM) keeps the position before the entry.
typedef int ckpt_log_entry_fn(void *arg, const struct ckpt_log_entry *entry);

// from: what was read already, NULL: nothing. trimmed: entries may go by ckpt_log_trim() (snapshot.h), as in a node's own log; an end
// is believed only where no snapshot is behind it. -ENOMEM.
int ckpt_log_new(struct ckpt_objects *objects, const char *store_id, const char *node,
		 const struct ckpt_log_position *from, bool trimmed, ckpt_log_entry_fn *fn, void *arg,
		 struct ckpt_log **ret_log);
void ckpt_log_free(struct ckpt_log *log); // NULL is fine
struct ckpt_log_position ckpt_log_position(const struct ckpt_log *log);

// Each entry behind the position, in order, to the end. An error of the function ends it.
// -EBADMSG: an entry is damaged, is of another store, or does not follow the one before (the store was rolled back, or let
// somebody overwrite an entry). -ESTALE: entries from here on were trimmed: a snapshot has what they said. -ENOTSUP: newer.
int ckpt_log_read(struct ckpt_log *log);

// An entry is there behind the one that is missing at the end of what was read: -EBADMSG. It lists the log; 0.
int ckpt_log_check_end(struct ckpt_log *log);
// Over the entry behind the position, which is damaged or missing: what it said is lost, and the one behind it is not compared with it. For
// who looks at what is left of a log.
int ckpt_log_pass_over(struct ckpt_log *log);

// Puts one entry behind the position, durably, and the position goes behind it. frees: it is of an act that frees room
// (objects.h). -EEXIST: another entry is there. -EIO, -ETIMEDOUT, -ECANCELED: nobody knows, or the function failed; the log is not settled. -EINVAL,
// -EFBIG: no such entry can be (entry.h); -EBUSY: not settled. All else: it was not put.
int ckpt_log_append(struct ckpt_log *log, const struct ckpt_operation *operations, uint32_t count, bool frees);
bool ckpt_log_is_settled(const struct ckpt_log *log);
// Looks what came of it. 0: the entry is there, durably, and the position is behind it. -EEXIST: as from append. -ENOENT: it is not
// there, and what is appended next takes its place, unless it still comes. Other errors: nobody knows yet.
int ckpt_log_settle(struct ckpt_log *log);
