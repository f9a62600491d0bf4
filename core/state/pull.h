// A PULL as bytes, the body of an operation in a node's own log: one entry of the remote's log, and acts of this node that follow it.
// shared.h says what it does; FORMAT.md has every byte.
//
// Ownership: a decoded PULL borrows the body; encode returns malloc'ed bytes. Threads: plain data. Nothing blocks.
// Errors: -EBADMSG damaged or hostile, -ENOTSUP newer, -EINVAL, -EFBIG, -ENOMEM.
#pragma once

#include "core/log/entry.h"
#include "core/record/name.h"

#define CKPT_PULL_KIND 256u // of an operation, beside those of act.h; only in the log of a node
#define CKPT_PULL_HOST_MAX CKPT_NAME_HOST_MAX

struct ckpt_pull {
	const char *
		host; // of this node, for names of conflicts: at most CKPT_PULL_HOST_MAX bytes of a name; of the attaching one only, else ""
	const void *entry; // of the remote's log; its length 0: attaches with a host, detaches without
	size_t entry_len;
	// Acts of this node on top of it, each on a changed step: the bodies.
	const struct ckpt_operation *acts; // kind, body and len are read
	uint32_t act_count;
};
// malloc'ed; -EINVAL, -EFBIG, -ENOMEM.
int ckpt_pull_encode(const struct ckpt_pull *pull, void **ret_body, size_t *ret_len);
// 0: it can be applied, so that it may be appended; -EBADMSG damaged or hostile, -ENOTSUP newer, and required.
int ckpt_pull_check(const char *store_id, const void *body, size_t len);
// Of a body that can be applied and has no entry: it attaches; false: it detaches.
bool ckpt_pull_has_host(const void *body, size_t len);
bool ckpt_pull_is_host(const char *host, size_t len);

// A PULL, decoded.
struct ckpt_pulled {
	char host[CKPT_PULL_HOST_MAX + 1]; // "" but where it attaches
	const uint8_t *acts;
	size_t acts_len;
	uint32_t act_count;
	const uint8_t *entry;
	size_t entry_len; // 0: it attaches, or detaches where host is ""
};
// The acts are checked, with their records; the entry is not looked into.
int ckpt_pull_decode(const char *store_id, const void *body, size_t len, struct ckpt_pulled *ret_pulled);
// Its entry, with all operations checked.
int ckpt_pulled_entry(const struct ckpt_pulled *pulled, const char *store_id, struct ckpt_log_entry *ret_entry);
// The act at *cursor, which is 0 at first: kind, body and len. False: there is no more.
bool ckpt_pulled_next(const struct ckpt_pulled *pulled, size_t *cursor, struct ckpt_operation *ret_act);
