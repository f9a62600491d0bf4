// The database of the index: one LMDB environment with one unnamed tree, transactions on it, and what keeps them going:
// a map that grows when it is full or another process has grown it, an environment that is opened anew when LMDB has
// given it up. It knows how keys and values are put (index_value.h), not what they say. For index*.c only.
//
// Calling sequence: ckpt_index_db_init(), ckpt_index_db_open(), transactions, ckpt_index_db_done().
// Threads: after the open, any thread, any call. Every call may block on the disk.
// Errors: -errno as in index.h, or where it says "what LMDB said" LMDB's own numbers, for ckpt_index_db_error().
//
// LMDB's types are only named here: who needs them whole includes lmdb.h, and a header must not (tests/lint/layers).
#pragma once

#include "core/base/lock.h"
#include "core/index/index_value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct MDB_env;
struct MDB_txn;
struct MDB_val;

struct ckpt_index_db {
	char *path;
	bool readonly;
	uint64_t map_bytes; // to begin with
	pid_t pid;

	struct ckpt_rwlock gate;
	struct MDB_env *env; // under gate; NULL after a failure to open it again
	unsigned int dbi;    // MDB_dbi
	uint64_t map_now;
};

// That of an open index.
struct ckpt_index;
struct ckpt_index_db *ckpt_index_db_of(struct ckpt_index *ix);

// map_bytes 0: the default. -ENOMEM: there is nothing to end.
int ckpt_index_db_init(struct ckpt_index_db *db, const char *path, bool readonly, uint64_t map_bytes);
void ckpt_index_db_done(struct ckpt_index_db *db);
// Opens what ckpt_index_inspect() has accepted or what is not there yet. Nobody else uses db yet.
int ckpt_index_db_open(struct ckpt_index_db *db);
// Moves the files in dirfd, its directory, aside and opens new ones. A failure leaves db without an environment.
int ckpt_index_db_replace(struct ckpt_index_db *db, int dirfd);

// Begins a transaction and holds the gate until the end. Not after fork().
int ckpt_index_db_begin(struct ckpt_index_db *db, bool write, struct MDB_txn **ret_txn);
void ckpt_index_db_end(struct ckpt_index_db *db, struct MDB_txn *txn); // aborts it; NULL: it is committed
// Runs fn in a write transaction and commits, as often as the map has to grow for it. -EROFS.
typedef int ckpt_index_db_fn(struct ckpt_index_db *db, struct MDB_txn *txn, void *arg); // 0, or what LMDB said
int ckpt_index_db_write(struct ckpt_index_db *db, ckpt_index_db_fn *fn, void *arg);

// An environment that is nobody's: for the look at a file before db opens it.
int ckpt_index_db_env_open(const char *path, bool readonly, uint64_t map_bytes, struct MDB_env **ret_env,
			   uint64_t *ret_map);
// 0 or -errno of what LMDB said.
int ckpt_index_db_error(int rc);

// ---- Keys and values in a transaction

struct MDB_val ckpt_index_db_key(const struct ckpt_index_key *k); // points to its bytes
char ckpt_index_db_table(const struct MDB_val *key);              // CKPT_INDEX_TABLE_*, or another character
// 0, or what LMDB said.
int ckpt_index_db_put(struct MDB_txn *txn, unsigned int dbi, const struct ckpt_index_key *k, const void *payload,
		      size_t len);
// The payload of a key, valid until the transaction ends. -ENOENT, -EBADMSG.
int ckpt_index_db_get(struct MDB_txn *txn, unsigned int dbi, const struct ckpt_index_key *k, const void **ret_payload,
		      size_t *ret_len);
