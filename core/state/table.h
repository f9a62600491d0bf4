// The steps of a state, by id and by name, and what else it has. For the files of core/state alone.
//
// A step is in the table as it is shown here. One that the remote's log has otherwise says so itself (shared.h).
// Ownership: the table owns its steps. Threads: as the state's. Nothing blocks; what does not return an int cannot fail.
#pragma once

#include "core/log/log.h"
#include "core/state/act.h"
#include "core/state/state.h"

struct ckpt_state_node {
	char node[CKPT_UUID_LEN + 1];
	uint64_t number;
};

// The plain tree (plain.h). A version is a SEQ << CKPT_PLAIN_INDEX_BITS | the index of an operation: an entry has fewer.
#define CKPT_PLAIN_INDEX_BITS 16

struct ckpt_plain;

struct ckpt_plains {
	struct ckpt_plain **all; // in no order
	size_t count, cap;
	struct ckpt_plain **of_place, **of_id; // chained
	size_t bucket_count;                   // 0: none yet
	uint64_t version; // that an act makes which is applied now; 0: it is not of the remote's log
};

// CONDEMN and HOLD of the remote's log (condemned.h), in its order.
struct ckpt_named;

struct ckpt_condemned_table {
	struct ckpt_named **all;
	size_t count, cap;
};

struct ckpt_state {
	struct ckpt_state_step **of_id, **of_name; // chained
	size_t bucket_count, count;
	struct ckpt_state_node *nodes;
	size_t node_count, node_cap;
	struct ckpt_values values;

	// Of a store with a remote.
	char *host;                       // of this node, in names of conflicts; NULL: there is no remote
	struct ckpt_log_position remote;  // the entry up to which the remote's log was pulled
	struct ckpt_state_step **changed; // other here than in the remote's log, by the number of the act that began it
	size_t changed_count, changed_cap;
	struct ckpt_plains plains;
	struct ckpt_condemned_table condemned;
};

int ckpt_table_init(struct ckpt_state *s); // 0, -ENOMEM; ckpt_table_done() is due in both cases
void ckpt_table_done(struct ckpt_state *s);

struct ckpt_state_step *ckpt_table_find(const struct ckpt_state *s, const char *id);
struct ckpt_state_step *ckpt_table_listed(const struct ckpt_state *s, const char *folder_id, const char *name);
void ckpt_table_insert(struct ckpt_state *s, struct ckpt_state_step *step);
void ckpt_table_take_out(struct ckpt_state *s, struct ckpt_state_step *step); // it is the caller's
// Around a change of its name.
void ckpt_table_take_name(struct ckpt_state *s, struct ckpt_state_step *step);
void ckpt_table_give_name(struct ckpt_state *s, struct ckpt_state_step *step);
// Each takes the other's steps, plain tree, and what is condemned or held.
void ckpt_table_swap(struct ckpt_state *a, struct ckpt_state *b);
// Of all versions: the node with the place i has the place places[i] from now on.
void ckpt_table_map_nodes(struct ckpt_state *s, const uint32_t *places);
void ckpt_state_step_free(struct ckpt_state_step *step); // NULL is fine
// All of it, but what this node has changed: an unchanged step, in no table. NULL: no memory.
struct ckpt_state_step *ckpt_state_step_clone(const struct ckpt_state_step *of);

// --- Of state.c, for the others -----------------------------------------------------------------------------------------

// The newest version, deletions too.
uint32_t ckpt_state_newest(const struct ckpt_state_step *step);
int ckpt_state_make_room(struct ckpt_state_step *step, size_t versions); // so many more; 0, -ENOMEM
void ckpt_state_add_version(struct ckpt_state_step *step, const struct ckpt_span *record, enum ckpt_act_kind kind,
			    const struct ckpt_state_by *by);
bool ckpt_state_may_expire(const struct ckpt_state_step *step, uint32_t last);
// An operation but for PULL, in a state whose table is the whole of it. Its node has room.
int ckpt_state_act(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		   const struct ckpt_span *at);
// A span of at most this many bytes, which are not none, that may be in a log or in a copy.
bool ckpt_span_check(const struct ckpt_span *at, uint32_t most);
// Of nodes: the place of one, or that of the next that is added; room for so many more, so that adding cannot fail.
size_t ckpt_state_node_place(const struct ckpt_state *s, const char *node);
int ckpt_state_make_node_room(struct ckpt_state *s, size_t nodes);
void ckpt_state_add_node(struct ckpt_state *s, size_t place, const char *node, uint64_t number);

// --- Of form.c --------------------------------------------------------------------------------------------------------------

// As ckpt_state_decode(), of the bytes of a view (jump.h) that was taken at this position.
int ckpt_view_decode(const void *data, size_t len, const struct ckpt_log_position *at, struct ckpt_state **ret_state);

// --- Of the plain tree ----------------------------------------------------------------------------------------------------

// An act on it, by this node; at: where the body is. As ckpt_state_apply().
int ckpt_plain_act(struct ckpt_state *s, const struct ckpt_act *a, const struct ckpt_span *at, uint32_t node);
void ckpt_plains_done(struct ckpt_state *s);
// Adds a copy, whose folder may come later; the node has that place. 0, -ENOMEM.
int ckpt_plains_add_copy(struct ckpt_state *s, const struct ckpt_plain *of, uint32_t node);
void ckpt_plains_map_nodes(struct ckpt_state *s, const uint32_t *places); // as ckpt_table_map_nodes()
// Those of a state by their version, as in a snapshot. malloc'ed; NULL: no memory.
struct ckpt_plain **ckpt_plains_sorted(const struct ckpt_state *s);
// Its bytes in a snapshot, where it is not empty. ranks: of each node, its place there. put: at has room for these. take: from the beginning of data; the remote's
// position and the nodes are there. 0, -EBADMSG, -ENOTSUP, -ENOMEM.
size_t ckpt_plains_bytes(const struct ckpt_state *s);
int ckpt_plains_put(const struct ckpt_state *s, const uint32_t *ranks, uint8_t *at);
int ckpt_plains_take(struct ckpt_state *s, const uint8_t *data, size_t len, size_t *ret_taken);

// --- Of condemned.c -------------------------------------------------------------------------------------------------------

// An act on objects; void where it is not of the remote's log. As ckpt_state_apply().
int ckpt_condemned_act(struct ckpt_state *s, const struct ckpt_act *a);
// The remote's log has files for this step by now: what was held for it is held no more.
void ckpt_condemned_end_holds(struct ckpt_state *s, const char *step);
void ckpt_condemned_done(struct ckpt_state *s);
int ckpt_condemned_copy(struct ckpt_state *to, const struct ckpt_state *from); // into an empty one. 0, -ENOMEM
// Its bytes in a snapshot, where there are any. As of the plain tree above.
size_t ckpt_condemned_bytes(const struct ckpt_state *s);
int ckpt_condemned_put(const struct ckpt_state *s, uint8_t *at);
int ckpt_condemned_take(struct ckpt_state *s, const uint8_t *data, size_t len, size_t *ret_taken);

// --- Of shared.c and shared_pull.c ----------------------------------------------------------------------------------------

// A changed step of a snapshot, with the fields of state.h: step is in the table, or NULL where it is gone. On success it has shared. 0, -ENOMEM.
int ckpt_shared_take(struct ckpt_state *s, const char *id, struct ckpt_state_step *step, struct ckpt_state_step *shared,
		     uint64_t since, uint64_t latest, uint32_t merged);
void ckpt_shared_done(struct ckpt_state *s);
// An act of this node, where there is a remote. of_pull: it came with a PULL, and is applied after that one's entry.
int ckpt_shared_act(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		    const struct ckpt_span *at, bool of_pull);
int ckpt_shared_pull(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at);
