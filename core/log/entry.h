// An entry of a store's log: the operations that one node appended together. FORMAT.md has every byte.
//
// The meaning of an operation is a matter of core/state: here its body is bytes. A reader that meets a kind which it does not know
// must stop there if the operation is required, and passes over it if not.
//
// Ownership: a decoded entry borrows the caller's bytes; encode returns malloc'ed ones. Threads: plain data. Nothing blocks.
// Errors: -EBADMSG damaged or hostile, -ENOTSUP newer, -EFBIG, -ENOMEM.
#pragma once

#include "core/base/actor.h"
#include "core/base/hash.h"
#include "core/base/uuid.h"
#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_NONCE_LEN 16

struct ckpt_operation {
	char node[CKPT_UUID_LEN + 1];  // where the act was done
	struct ckpt_actor actor;       // the process there that did it
	uint64_t number;               // in the queue of that node: 1, 2, 3 ...; 0: it publishes nothing
	uint8_t nonce[CKPT_NONCE_LEN]; // of this operation: tells our own from another's
	uint16_t kind;
	bool required;
	const void *body;
	size_t len;
};

struct ckpt_log_entry {
	char store_id[CKPT_UUID_LEN + 1];
	uint64_t seq;                    // from 1
	uint8_t before[CKPT_SHA256_LEN]; // the SHA-256 of entry seq - 1, all its bytes; of the first one: zeros
	char node[CKPT_UUID_LEN + 1];    // who put it
	int64_t time_ns;                 // for people
	uint32_t count;                  // of operations, at least 1

	// Decoded: where they are, and the whole of the entry.
	const uint8_t *data;
	size_t data_len;
	const uint8_t *operations;
	size_t operations_len;
};

// -EINVAL: what decode would refuse. -EFBIG: over CKPT_LOG_ENTRY_BYTES_MAX. entry->count says how many operations there are.
int ckpt_log_entry_encode(const struct ckpt_log_entry *entry, const struct ckpt_operation *operations, void **ret_data,
			  size_t *ret_len);
// How many bytes an operation takes in an entry, and what an entry has room for.
size_t ckpt_log_entry_bytes(const struct ckpt_operation *operation);
#define CKPT_LOG_OPERATIONS_BYTES_MAX (CKPT_LOG_ENTRY_BYTES_MAX - 512u)

// Checks every byte, those of each operation too.
int ckpt_log_entry_decode(const void *data, size_t len, struct ckpt_log_entry *ret_entry);
// The operation at *cursor, which is 0 at first and goes on to the next one. False: there is no more. It cannot fail.
bool ckpt_log_entry_next(const struct ckpt_log_entry *entry, size_t *cursor, struct ckpt_operation *ret_operation);
