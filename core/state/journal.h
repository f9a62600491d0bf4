// The log of a store with the state that it says, as this process knows both.
//
// An act is: prepare all that it needs, append one operation, and it has happened. Acts of several threads that append at the same time
// share an entry, and its flushes to the disk: the first of them puts what has come by then, and who comes meanwhile waits for the next.
//
// Ownership: the journal borrows the objects; records are the caller's. Threads: any. Blocks on the objects: all but each, step, said and list.
// Errors: those of the objects, and those named here.
#pragma once

#include "core/log/log.h"
#include "core/state/act.h"
#include "core/state/shared.h"
#include "core/state/state.h"

struct ckpt_journal;

enum ckpt_journal_mode {
	CKPT_JOURNAL_READ,   // beside a process that writes, or alone
	CKPT_JOURNAL_WRITE,  // alone
	CKPT_JOURNAL_REPAIR, // alone: ckpt_journal_snapshot() leaves a log that can be written again
};

// Reads the newest snapshot and the entries behind it. What was found is durable then, but for who reads. An entry that is damaged, or does
// not follow the one before, is *ret_damaged (0: none is): to write is -EBADMSG then; others pass over such entries, and have what the
// rest says.
// node: the id of this one, that its operations have.
int ckpt_journal_open(struct ckpt_objects *objects, const char *store_id, const char *node, enum ckpt_journal_mode mode,
		      struct ckpt_journal **ret_journal, uint64_t *ret_damaged);
void ckpt_journal_close(struct ckpt_journal *j);             // NULL is fine
const char *ckpt_journal_node(const struct ckpt_journal *j); // the id of this node; borrowed
uint64_t ckpt_journal_damaged(struct ckpt_journal *j);       // the first entry that was passed over; 0: none

// 0: it has happened, durably. -ESTALE: the state does not allow it, nothing has changed. *ret_unknown: whether nobody knows what came of
// it (-EIO, -ETIMEDOUT, -ECANCELED); ckpt_journal_settle() says. All else: it was not appended. frees: it frees room (objects.h).
// The act has the actor of the calling thread (core/base/actor.h).
int ckpt_journal_append(struct ckpt_journal *j, const struct ckpt_act *act, bool frees, bool *ret_unknown);
// Asks for the outcome of an append whose answer was lost. 0: there is none, or it was not done. 1: the state has changed since the last
// call, by that append or by one that a later append has settled. -EIO ...: it is still not known. Cheap when nothing is unknown.
int ckpt_journal_settle(struct ckpt_journal *j);
// For who only reads, beside a process that writes: what was appended since. 1: the state has changed; 0.
int ckpt_journal_refresh(struct ckpt_journal *j);

// Calls fn for each step, in no order, under a lock: it must not block, nor call the journal. Ends with its first answer that is not 0.
typedef int ckpt_journal_fn(void *arg, const struct ckpt_state_step *step);
int ckpt_journal_each(struct ckpt_journal *j, ckpt_journal_fn *fn, void *arg);
// The same for one step, by its id; -ENOENT.
int ckpt_journal_step(struct ckpt_journal *j, const char *id, ckpt_journal_fn *fn, void *arg);

// A step, as the log says it is.
struct ckpt_said {
	struct ckpt_summary is;
	uint32_t deleted_by, last; // last: ckpt_state_last()
	int64_t deleted_ns;
	bool pulled; // the log of a remote has it, as it is here or was
};
int ckpt_journal_said(struct ckpt_journal *j, const char *id, struct ckpt_said *ret_said); // -ENOENT
// All of them, by id. malloc'ed; -ENOMEM.
int ckpt_journal_list(struct ckpt_journal *j, struct ckpt_said **ret_list, size_t *ret_count);

// A version, whole, under the name that the step has now; of a deletion without metadata and manifest. What the step has not is looked
// for among those that have its name, too: it may have taken the place of one of them. -ENOENT; -EBADMSG damaged. Free with
// ckpt_record_done.
int ckpt_journal_record(struct ckpt_journal *j, const char *id, uint32_t version, struct ckpt_record *ret_record);

// The process that made a version, and its node. The version is found as for its record. -ENOENT.
struct ckpt_journal_by {
	char node[CKPT_UUID_LEN + 1];
	struct ckpt_actor actor;
};
int ckpt_journal_by(struct ckpt_journal *j, const char *id, uint32_t version, struct ckpt_journal_by *ret_by);

// Of a node's log beside that of a remote (shared.h): so many, in order, that share entries. One that does not fit is passed over: what it
// says is known. -EBADMSG, -ENOTSUP: an entry cannot be applied, and nothing was appended. The outcome of those that failed otherwise
// is unknown; they may be made again.
int ckpt_journal_pull(struct ckpt_journal *j, const struct ckpt_pull *pulls, size_t count);
// Over all entries of the remote up to seq, by a snapshot of it that was checked (ckpt_jump_state()). Errors as of a PULL. This node has read
// the entry that follows the last one before which it may have put one, and puts none meanwhile.
int ckpt_journal_jump(struct ckpt_journal *j, uint64_t seq, const void *data, size_t len);
// Another name for a new step whose own another node has taken: the n-th, from 1. -ENOENT: the store has no remote, and so no other node;
// -EEXIST: that name is taken, too.
int ckpt_journal_other_name(struct ckpt_journal *j, const char *folder_id, const char *name, unsigned n,
			    char ret_name[CKPT_NAME_MAX + 1]);
// Calls fn with the state, under a lock: it must not block, nor call the journal. Its answer.
typedef int ckpt_journal_look_fn(void *arg, const struct ckpt_state *state);
int ckpt_journal_look(struct ckpt_journal *j, ckpt_journal_look_fn *fn, void *arg);

// The content of a plain file, or the target of a symlink, that had this version when the caller looked (plain.h). malloc'ed, and a NUL is
// behind it. -ENOENT: it is another one by now, or none; -EBADMSG damaged, or the entry is gone; beside a process that writes: refresh.
int ckpt_journal_plain(struct ckpt_journal *j, const char *folder_id, const char *name, uint64_t version,
		       void **ret_content, size_t *ret_len);

// The bytes that the state has there. malloc'ed, and a NUL is behind them. -ENOENT: the entry is not there any more; -EBADMSG.
int ckpt_journal_read(struct ckpt_journal *j, const struct ckpt_span *at, void **ret_data);

// Values of the store itself, each under a key (act.h).
//
// Sets one in the place of the value with that SEQ (0: of none); CKPT_ACT_ANY: of any. "": there is to be none any more. Nothing is appended
// where the value is there already. -ESTALE: another value is there. Else errors as of append; an outcome that is unknown (-EIO,
// -ETIMEDOUT, -ECANCELED) is settled by the next call here.
int ckpt_journal_set(struct ckpt_journal *j, const char *key, uint64_t before, const char *value);
// The value, malloc'ed (NULL: not wanted), and the SEQ of the entry that says so, which tells it from each other value that the key had. -ENOENT.
int ckpt_journal_get(struct ckpt_journal *j, const char *key, char **ret_value, uint64_t *ret_seq);

// Puts a snapshot when it is time for one, or at once (now), and removes the entries that nobody needs any more.
int ckpt_journal_snapshot(struct ckpt_journal *j, bool now);
struct ckpt_log_position ckpt_journal_position(struct ckpt_journal *j);
