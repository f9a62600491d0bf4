// The record of a version of a step, as an act of the log has it (core/state/act.h). Who, what, when, and the
// manifest: inside when small, else its SHA-256 and size, stored as "m/<sha256>" before.
//
// The form is the container of FORMAT.md: feature bits, sections, a SHA-256 over all at the end.
// Threads: plain data. Nothing blocks. Ownership: ckpt_record_done() frees what decode allocated.
#pragma once

#include "core/limits.h"
#include "core/record/name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_manifest;

// The facts of a version that a listing needs, without its manifest.
struct ckpt_summary {
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	char session[37];  // uuid of the session that was committed
	char event[32];    // what completed it: "marker", "rename", "verb", ...
	char profile[32];  // "generic", ...
	uint8_t nonce[16]; // of this attempt: tells our own record from another's
	uint8_t manifest_sha256[32];
	uint64_t manifest_bytes;
	uint32_t version;           // from 1
	uint32_t durable;           // bits: CKPT_DURABLE_*
	int64_t number;             // the step number, -1: none
	uint64_t files, bytes;      // logical
	int64_t committed_ns;       // of this version
	int64_t first_committed_ns; // of version 1
	uint64_t sequence;          // commits of this store so far: the order that `latest` follows
	// The step directory's attributes (its mtime is that of version 1, or of the one that was saved over it (replace.h)).
	uint64_t dir_ino;
	uint32_t dir_mode, dir_uid, dir_gid, dir_nlink;
	int64_t dir_mtime_ns;
	bool temporary;
	bool pinned; // not to be deleted (pin.h)
	bool sealed; // every file with bytes has its seal (seal.h)
	bool packed; // the bytes of some file are in packs (cool.h)
	bool deleted; // this version says that the step is gone; all else is that of the version before, which it deletes
};

#define CKPT_DURABLE_NODE 1u  // on this store's local disk
#define CKPT_DURABLE_STORE 2u // in the object store

struct ckpt_record {
	char store_id[37];
	struct ckpt_summary summary;
	char *metadata; // canonical JSON object, NUL-terminated, or NULL; malloc'ed
	void *manifest; // encoded manifest when embedded, else NULL; malloc'ed
	size_t manifest_len;
};

// 0, -ENOMEM, -EFBIG; -EINVAL: what decode would refuse, such as metadata that is not UTF-8 or a manifest that is not
// the one which the summary names. *ret_data is malloc'ed.
int ckpt_record_encode(const struct ckpt_record *r, void **ret_data, size_t *ret_len);
// Checks every byte: the digest, sizes, strings, name and folder id by ckpt_name_check. 0; -EBADMSG damaged or hostile;
// -ENOTSUP a newer format or an unknown required feature; -ENOMEM. On failure *ret is untouched.
int ckpt_record_decode(const void *data, size_t len, struct ckpt_record *ret);
void ckpt_record_done(struct ckpt_record *r);

// The summary alone, as a record and a part of the log hold it: a fixed little-endian form with length prefix. encode: -EINVAL what decode
// would refuse, -ENOMEM. decode: -EBADMSG, -ENOTSUP a newer form.
int ckpt_summary_encode(const struct ckpt_summary *s, void **ret_data, size_t *ret_len);
int ckpt_summary_decode(const void *data, size_t len, struct ckpt_summary *ret);
