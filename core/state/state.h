// The state of a store, as its log says it from the first entry to some other: its steps, their names, the versions that they
// have, which are in the trash; and the values of the store itself, each under its key.
//
// ckpt_state_apply() is the whole of it: a function of the state and one operation, without I/O, clock or chance, so that all who read
// the same entries have the same state. An operation that does not fit is void, and changes nothing (REMOTE.md, L4).
//
// A step is known by its id, the session that it was saved in. At most one step that is listed has a name; in the trash any number may
// have had it. Versions of a step have ascending numbers, not without gaps.
//
// Ownership: the state owns what it returns; that is valid up to the next apply. Threads: the caller has a lock. Nothing blocks.
#pragma once

#include "core/base/uuid.h"
#include "core/log/entry.h"
#include "core/record/record.h"
#include "core/state/values.h"

// Bytes of an entry; or of the node's copy of a snapshot of its remote (jump.h), which is the one behind entry SEQ of the remote's log: then
// CKPT_SPAN_COPY is set in seq.
struct ckpt_span {
	uint64_t seq;
	uint32_t offset, len;
};
#define CKPT_SPAN_COPY (UINT64_C(1) << 63)

// The process that made a version, and its node, as an index of ckpt_state_node().
struct ckpt_state_by {
	uint32_t node;
	struct ckpt_actor actor;
};

// The origin of the files of a version.
enum ckpt_state_files {
	CKPT_FILES_SAVED = 0, // a save, or an older version that was restored
	CKPT_FILES_EDITED,    // an edit
	CKPT_FILES_SAME,      // they are those of the version before
	CKPT_FILES_REPACKED,  // the same, and their bytes lie elsewhere, or have their seals
};

struct ckpt_state_version {
	uint32_t version;
	bool deleted, pinned, temporary;
	bool unmerged; // of this node: it lacks changes that the remote's log had before it, and is never pushed by itself
	enum ckpt_state_files files;
	int64_t committed_ns;
	struct ckpt_span record; // that says the rest: of this version, or of one before that had the same
	struct ckpt_state_by by; // kept here, because an entry without a record is trimmed
};

struct ckpt_state_step {
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_summary is;              // the newest version that is no deletion, under the name that it has now
	uint32_t deleted_by;                 // the version that says so, or that of what replaced it; 0: it is listed
	int64_t deleted_ns;                  // and when
	struct ckpt_state_version *versions; // ascending
	size_t count, cap;
	// Of a store with a remote, whose log has this step otherwise, or not at all (shared.h); else zeros.
	uint64_t since, latest;  // the numbers of the acts that began it, and that changed it last
	uint32_t merged;         // the newest version there with the files that those here were made of; 0: none
	bool gone;               // it has expired here, and is found no more
	uint64_t dropped, until; // of DROP: `latest` then; and the place of the first step behind it that was pushed
	struct ckpt_state_step *shared; // as the remote's log has it; NULL: it has none
	struct ckpt_state_step *next_of_id, *next_of_name;
};

struct ckpt_state;

struct ckpt_state *ckpt_state_new(void);        // NULL: no memory
void ckpt_state_free(struct ckpt_state *state); // NULL is fine

// at: where the body of the operation is. 0; CKPT_STATE_VOID: only the number of its node has changed; -EBADMSG the body is damaged or
// hostile; -ENOTSUP newer, and required; -ENOMEM. An error changes nothing.
#define CKPT_STATE_VOID 1
int ckpt_state_apply(struct ckpt_state *state, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at);

// NULL: none.
const struct ckpt_state_step *ckpt_state_step(const struct ckpt_state *state, const char *id);
const struct ckpt_state_step *ckpt_state_listed(const struct ckpt_state *state, const char *folder_id,
						const char *name);
// Of those that have this name, listed or not, one that has this version.
const struct ckpt_state_step *ckpt_state_named(const struct ckpt_state *state, const char *folder_id, const char *name,
					       uint32_t version);
const struct ckpt_state_version *ckpt_state_version(const struct ckpt_state_step *step, uint32_t version);
// True for a version whose files are those of the version before.
// The version at this place has other metadata than the one before, and its files: a NOTE.
static inline bool ckpt_state_is_note(const struct ckpt_state_step *step, size_t i)
{
	const struct ckpt_state_version *v = &step->versions[i];

	return i && v->files == CKPT_FILES_SAME && !v->deleted &&
	       (v->record.seq != v[-1].record.seq || v->record.offset != v[-1].record.offset);
}

static inline bool ckpt_state_same_files(const struct ckpt_state_version *v)
{
	return v->files == CKPT_FILES_SAME || v->files == CKPT_FILES_REPACKED;
}
// The number of its newest version, or of that of another step which took its place, if that is higher.
uint32_t ckpt_state_last(const struct ckpt_state_step *step);
// It was deleted by nobody, but another step was saved over it.
bool ckpt_state_was_replaced(const struct ckpt_state_step *step);
// Each step, by its id. Those of an empty state: NULL, 0. The array is the caller's to free; -ENOMEM.
int ckpt_state_steps(const struct ckpt_state *state, const struct ckpt_state_step ***ret_steps, size_t *ret_count);
size_t ckpt_state_count(const struct ckpt_state *state);
// NULL: there is none under this key.
const struct ckpt_state_value *ckpt_state_value(const struct ckpt_state *state, const char *key);
const struct ckpt_value_list *ckpt_state_values(const struct ckpt_state *state); // all that are shown, by key
// The last number that operations of this node have, void ones too; 0: none has.
uint64_t ckpt_state_number(const struct ckpt_state *state, const char *node);
// The UUID of the node of a version that the state has.
const char *ckpt_state_node(const struct ckpt_state *state, uint32_t index);

// As bytes, for a snapshot: the same state has the same, and others are refused. decode: -EBADMSG, -ENOTSUP a newer form, -ENOMEM.
int ckpt_state_encode(const struct ckpt_state *state, void **ret_data, size_t *ret_len);
int ckpt_state_decode(const void *data, size_t len, struct ckpt_state **ret_state);
