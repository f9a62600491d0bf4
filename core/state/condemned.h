// Packs and manifests of a remote that somebody has condemned, or holds (REMOTE.md section 7): what the remote's log says of its objects.
//
// A CONDEMN says that some objects are garbage. Who has read it names none of them any more: a pusher puts their chunks into a new pack, and
// its manifest gets a new name. Names are used once: a condemned object never is anything else. Whoever collects garbage removes only what was
// condemned. So a state keeps each such name, 32 bytes, in snapshots, too.
//
// No name is ever forgotten. A node that was away may come back with a step that names the pack, and would put it again. A removal that a
// collector has sent may arrive as late, and remove it. The store has no list of all its nodes, so that no moment is known after which both cannot be.
//
// A HOLD says that a node has put objects for a step which is not in the log yet, and goes on putting. It lasts until the log has an act with a
// record for this step, or condemns one of its objects: who collects lets it hold for some days only, and ends it so. That loses nothing: a step that is
// pushed later gets other names for what was condemned.
//
// Ownership: results are the state's, until the next apply. Threads: as the state's. Nothing blocks.
#pragma once

#include "core/base/hash.h"
#include "core/record/manifest.h"
#include "core/state/journal.h"

// One CONDEMN or HOLD.
struct ckpt_named {
	uint64_t version; // SEQ of the entry of the remote's log, and the place of the act in it, as of plain.h
	char step[CKPT_UUID_LEN + 1]; // that it is held for; "": these are condemned
	uint32_t pack_count, manifest_count;
	uint8_t objects[][CKPT_SHA256_LEN]; // packs, then manifests; each kind ascends
};

// In the order of the log.
const struct ckpt_named *const *ckpt_state_named_objects(const struct ckpt_state *state, size_t *ret_count);
uint64_t ckpt_named_seq(const struct ckpt_named *named); // of the entry
bool ckpt_named_has_pack(const struct ckpt_named *named, const uint8_t name[CKPT_SHA256_LEN]);
bool ckpt_named_has_manifest(const struct ckpt_named *named, const uint8_t sha256[CKPT_SHA256_LEN]);

// The entry that has condemned it; 0: none has.
uint64_t ckpt_state_pack_condemned(const struct ckpt_state *state, const uint8_t name[CKPT_SHA256_LEN]);
uint64_t ckpt_state_manifest_condemned(const struct ckpt_state *state, const uint8_t sha256[CKPT_SHA256_LEN]);
// The newest entry that condemns, even if it names nothing; 0: none does.
uint64_t ckpt_state_last_condemn(const struct ckpt_state *state);

// The same of a journal's state. Of a pack; of a manifest that is an object of its own (m/), or of a pack that it names.
bool ckpt_journal_pack_condemned(struct ckpt_journal *j, const uint8_t name[CKPT_SHA256_LEN]);
bool ckpt_journal_manifest_condemned(struct ckpt_journal *j, const uint8_t sha256[CKPT_SHA256_LEN]);
bool ckpt_journal_names_condemned(struct ckpt_journal *j, const struct ckpt_manifest *m, bool is_object);
