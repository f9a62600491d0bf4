// The acts on a store, as the bodies of operations in its log (core/log/entry.h): bytes alone. FORMAT.md has every one of them; state.h
// says what they do.
//
// SAVE to FLAG and MERGE are acts on a step, which is meant by its id, the session that it was saved in: so an act follows its step to whatever name
// that has by then. MKDIR to MOVE are acts on the plain tree, the folders and files beside the steps, CONDEMN and HOLD on objects of the
// remote: these are only in the log of a remote.
//
// Ownership: a decoded act borrows the body; encode returns malloc'ed bytes. Threads: plain data. Nothing blocks.
// Errors: -EBADMSG damaged or hostile, -ENOTSUP newer, -EINVAL what decode would refuse, -EFBIG, -ENOMEM.
#pragma once

#include "core/base/hash.h"
#include "core/base/uuid.h"
#include "core/limits.h"
#include "core/record/name.h"

#include <stddef.h>
#include <stdint.h>

enum ckpt_act_kind {
	CKPT_ACT_SAVE = 1, // a new step, by its record; in the place of another or of none
	CKPT_ACT_AMEND,    // the next version of a step, by its record: files were added, edited, removed
	CKPT_ACT_REPACK,   // the same: its bytes lie elsewhere, or have their seals
	CKPT_ACT_RESTORE,  // the same: it has the files of an older version again
	CKPT_ACT_NOTE,     // the same: its metadata are others
	CKPT_ACT_DELETE,   // to the trash, as a version
	CKPT_ACT_UNDELETE, // back, as a version, and permanent
	CKPT_ACT_EXPIRE,   // nothing is left of it
	CKPT_ACT_RENAME,   // its folder and name are others
	CKPT_ACT_FLAG,     // pinned, temporary, as a version
	CKPT_ACT_SET,      // a value of the store itself, under a key, in the place of the one that is there
	CKPT_ACT_MKDIR,    // a plain folder, by its id
	CKPT_ACT_FILE,     // a plain file or symlink; in the place of another or of none
	CKPT_ACT_REMOVE,   // a plain file or symlink is gone, or a folder with nothing in it
	CKPT_ACT_MOVE,     // a plain folder, with all that is in it, has another place
	CKPT_ACT_CONDEMN, // packs and manifests of the remote are garbage: nobody names them from then on (condemned.h)
	CKPT_ACT_HOLD,    // packs and manifests are there for a step that is not in the log yet
	CKPT_ACT_DROP,    // what waits to be pushed of a step is not pushed; only in the log of a node (shared.h)
	CKPT_ACT_MERGE, // as AMEND: the files have the changes of other nodes up to a version (shared.h); only in the log of a node
	CKPT_ACT_KINDS, // the first that is none
};

#define CKPT_FLAG_PINNED 1u
#define CKPT_FLAG_TEMPORARY 2u
#define CKPT_ACT_ANY UINT64_MAX
#define CKPT_STATE_VERSION_MAX (UINT32_MAX / 2) // of what others say: there is always a next one
#define CKPT_ACT_MODE_MAX 07777u                // permissions of a plain file or folder, without its type

struct ckpt_act {
	enum ckpt_act_kind kind;
	char step[CKPT_UUID_LEN + 1]; // with a record: as the session in that; CONDEMN: ""
	uint32_t
		version; // that it makes; EXPIRE: that deleted the step; DROP: its last one; RENAME: 0. With a record: as in that
	uint32_t flags;  // FLAG: CKPT_FLAG_*, those that are not set, too
	int64_t time_ns; // all but those with a record; FILE: when it was modified; other acts on the tree: 0
	char replaces[CKPT_UUID_LEN +
		      1]; // SAVE: the listed step of that name, which goes to the trash; "": none has it
	char folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1]; // RENAME, MKDIR to MOVE; the new ones
	const void *record;                                              // SAVE to NOTE, MERGE: as of record.h
	size_t record_len;
	size_t record_at; // decoded: its place in the body
	uint32_t
		merged; // MERGE: the newest version in the remote's log whose files it has; 0: that log has the step no more
	char key[CKPT_VALUE_KEY_MAX + 1]; // SET: of a to z
	// SET: the SEQ of the value that is there; 0: none is; CKPT_ACT_ANY: whatever is there. FILE to MOVE: the version that is there (plain.h);
	// 0: none is, of FILE alone.
	uint64_t before;
	const char *value; // SET: UTF-8 without a NUL, which nothing stands behind; empty: there is none any more
	size_t value_len;  // at most CKPT_VALUE_BYTES_MAX
	char id[CKPT_FOLDER_ID_LEN + 1]; // MKDIR, MOVE: of the folder itself
	bool link;                       // FILE: the content is the target of a symlink
	bool large;                      // FILE: the content says where the bytes are (ckpt_plain_large)
	uint32_t mode, uid, gid;         // MKDIR, FILE: mode at most CKPT_ACT_MODE_MAX
	const void *content;             // FILE
	// At most CKPT_PLAIN_INLINE_MAX; of a symlink 1 to CKPT_PLAIN_TARGET_MAX, of a large one CKPT_PLAIN_LARGE_BYTES.
	size_t content_len;
	size_t content_at; // decoded: its place in the body
	// CONDEMN, HOLD: names of packs, and behind them those of manifests, CKPT_SHA256_LEN bytes each; each kind ascends. Together at most
	// CKPT_ACT_OBJECTS_MAX. A CONDEMN may have none: somebody has looked, and found none.
	const uint8_t *objects;
	uint32_t pack_count, manifest_count;
};
#define CKPT_ACT_OBJECTS_MAX 4096u

// The bytes of a large plain file are chunks in packs, as a manifest of this one file says.
#define CKPT_PLAIN_LARGE_BYTES 72u
struct ckpt_plain_large {
	uint64_t bytes;                    // more than CKPT_PLAIN_INLINE_MAX
	uint8_t sha256[CKPT_SHA256_LEN];   // of them
	uint8_t manifest[CKPT_SHA256_LEN]; // its key is m/ and that
};
void ckpt_plain_large_encode(const struct ckpt_plain_large *large, uint8_t ret_content[CKPT_PLAIN_LARGE_BYTES]);
void ckpt_plain_large_decode(const uint8_t content[CKPT_PLAIN_LARGE_BYTES], struct ckpt_plain_large *ret_large);

bool ckpt_act_has_record(enum ckpt_act_kind kind);
bool ckpt_act_is_on_tree(enum ckpt_act_kind kind); // the plain one
bool ckpt_act_is_on_objects(enum ckpt_act_kind kind);
bool ckpt_act_is_of_remote(enum ckpt_act_kind kind);      // only in the log of a remote: one of these two
bool ckpt_act_is_target(const void *content, size_t len); // of a symlink
bool ckpt_act_is_key(const char *key, size_t len);
bool ckpt_act_is_value(const char *value, size_t len);
int ckpt_act_encode(const struct ckpt_act *act, void **ret_body, size_t *ret_len);
// The record itself is not looked into: record.h decodes it.
int ckpt_act_decode(uint16_t kind, const void *body, size_t len, struct ckpt_act *ret_act);
