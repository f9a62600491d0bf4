#include "core/index/index_db.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/index/index_dir.h"

#include <assert.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <unistd.h>

// States: no environment -> (open, replace) an environment -> (grow_map, adopt_map or reopen fails, done) none. Without
// one every transaction is -EIO, until replace.
//
// Invariants:
//  1. Every transaction lives under `gate` held for reading; what moves or replaces the mapping holds it for writing.
//  2. Only the process that made db touches its environment: never after fork().
//
// Lock order: gate, then LMDB's own.

#define READERS_MAX 1024
#define LOCK_BYTES ((READERS_MAX + 64) * 64) // a reader is a cache line; the rest is for what comes before them
#define TRIES_MAX 100
#define READERS_WAIT_NS 1000000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAP_BYTES (UINT64_C(1) << 30)
#else
#define MAP_BYTES (UINT64_C(64) << 30) // address space, not memory
#endif
#define MAP_BYTES_MIN (UINT64_C(1) << 20)

// ---- Errors

int ckpt_index_db_error(int rc)
{
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
	case MDB_TXN_FULL:
	case MDB_DBS_FULL:
	case ENOSPC:
	case EDQUOT:
		return -ENOSPC;
	case ENOMEM:
		return -ENOMEM;
	case EACCES:
	case EPERM:
	case EROFS:
		return -EACCES;
	case EINVAL:
	case MDB_BAD_VALSIZE:
		return -EINVAL;
	case MDB_READERS_FULL:
	case MDB_PANIC:
		return -EIO;
	default:
		return rc < 0 ? -EBADMSG : -EIO;
	}
}

// ---- The environment

// LMDB writes its lock file through a mapping: where the disk is full, a page that it has no block for would be the end of
// the process (SIGBUS).
static int lock_file_fill(const char *path)
{
	CLEANUP_FREE char *file = NULL;
	CLEANUP_FD int fd = -1;

	if (asprintf(&file, "%s/" CKPT_INDEX_LOCK, path) < 0)
		return -ENOMEM;
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	return fallocate(fd, 0, 0, LOCK_BYTES) && ckpt_is_full(-errno) ? -ENOSPC : 0;
}

int ckpt_index_db_env_open(const char *path, bool readonly, uint64_t map_bytes, MDB_env **ret_env, uint64_t *ret_map)
{
	unsigned int flags = MDB_NOTLS | MDB_NOMETASYNC | MDB_NORDAHEAD | (readonly ? MDB_RDONLY : 0);
	MDB_env *env = NULL;
	int rc = readonly ? 0 : lock_file_fill(path);

	if (rc)
		return rc;
	// Where address space is limited (RLIMIT_AS) a smaller map does; it grows when full.
	for (;; map_bytes /= 4) {
		rc = mdb_env_create(&env);
		if (rc)
			return ckpt_index_db_error(rc);
		rc = mdb_env_set_maxreaders(env, READERS_MAX);
		if (!rc)
			rc = mdb_env_set_mapsize(env, map_bytes);
		if (!rc)
			rc = mdb_env_open(env, path, flags, 0600);
		if (!rc)
			break;
		mdb_env_close(env);
		if (rc != ENOMEM || map_bytes / 4 < MAP_BYTES_MIN)
			return ckpt_index_db_error(rc);
	}
	mdb_reader_check(env, NULL);
	*ret_env = env;
	*ret_map = map_bytes;
	return 0;
}

int ckpt_index_db_init(struct ckpt_index_db *db, const char *path, bool readonly, uint64_t map_bytes)
{
	*db = (struct ckpt_index_db){
		.path = strdup(path),
		.readonly = readonly,
		.map_bytes = map_bytes ? map_bytes : MAP_BYTES,
		.pid = getpid(),
	};
	if (!db->path)
		return -ENOMEM;
	// Readers come all the time; who wants the gate for writing must not starve.
	ckpt_rwlock_init(&db->gate, CKPT_LOCK_GATE, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	return 0;
}

void ckpt_index_db_done(struct ckpt_index_db *db)
{
	if (db->env && db->pid == getpid())
		mdb_env_close(db->env);
	ckpt_rwlock_done(&db->gate);
	free(db->path);
}

int ckpt_index_db_open(struct ckpt_index_db *db)
{
	MDB_txn *txn;
	int rc, r = ckpt_index_db_env_open(db->path, db->readonly, db->map_bytes, &db->env, &db->map_now);

	if (r)
		return r;
	rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &txn);
	if (!rc) {
		rc = mdb_dbi_open(txn, NULL, 0, &db->dbi);
		mdb_txn_abort(txn);
	}
	if (rc) {
		mdb_env_close(db->env);
		db->env = NULL;
	}
	return ckpt_index_db_error(rc);
}

int ckpt_index_db_replace(struct ckpt_index_db *db, int dirfd)
{
	int r;

	assert(db->pid == getpid());
	// A new file, since LMDB would walk the old one to empty it, and that may be the damaged one.
	ckpt_rwlock_write(&db->gate);
	if (db->env)
		mdb_env_close(db->env);
	db->env = NULL;
	r = ckpt_index_dir_set_aside(dirfd);
	if (!r)
		r = ckpt_index_db_open(db);
	ckpt_rwlock_drop(&db->gate);
	return r;
}

// ---- Transactions

// Grows the map after a full one. 0: try again; -ENOSPC, -EIO.
static int grow_map(struct ckpt_index_db *db, uint64_t seen)
{
	int rc = 0;

	ckpt_rwlock_write(&db->gate);
	if (db->env && db->map_now == seen) {
		mdb_reader_check(db->env, NULL);
		rc = seen > UINT64_MAX / 2 ? ENOMEM : mdb_env_set_mapsize(db->env, seen * 2);
		if (!rc)
			db->map_now = seen * 2;
	}
	if (rc) { // the old mapping is gone: there is no going on without a new one
		mdb_env_close(db->env);
		db->env = NULL;
		if (ckpt_index_db_env_open(db->path, db->readonly, seen, &db->env, &db->map_now))
			db->env = NULL;
	}
	ckpt_rwlock_drop(&db->gate);
	return rc ? -ENOSPC : 0;
}

// Another process has grown the map: take its size.
static int adopt_map(struct ckpt_index_db *db)
{
	MDB_envinfo info;
	int rc;

	ckpt_rwlock_write(&db->gate);
	rc = db->env ? mdb_env_set_mapsize(db->env, 0) : EIO;
	if (!rc && !mdb_env_info(db->env, &info))
		db->map_now = info.me_mapsize;
	if (rc && db->env) {
		mdb_env_close(db->env);
		db->env = NULL;
	}
	ckpt_rwlock_drop(&db->gate);
	return ckpt_index_db_error(rc);
}

// LMDB gives an environment up after a failed write of a meta page: opens it anew.
static int reopen(struct ckpt_index_db *db)
{
	int r;

	ckpt_rwlock_write(&db->gate);
	if (db->env)
		mdb_env_close(db->env);
	db->env = NULL;
	r = ckpt_index_db_open(db);
	ckpt_rwlock_drop(&db->gate);
	return r;
}

int ckpt_index_db_begin(struct ckpt_index_db *db, bool write, MDB_txn **ret_txn)
{
	assert(db->pid == getpid());
	for (int i = 0; i < TRIES_MAX; i++) {
		int rc, r;

		ckpt_rwlock_read(&db->gate);
		rc = db->env ? mdb_txn_begin(db->env, NULL, write ? 0 : MDB_RDONLY, ret_txn) : EIO;
		if (!rc)
			return 0;
		if (rc == MDB_READERS_FULL)
			mdb_reader_check(db->env, NULL);
		ckpt_rwlock_drop(&db->gate);
		if (rc == MDB_MAP_RESIZED) {
			r = adopt_map(db);
			if (r)
				return r;
		} else if (rc == MDB_PANIC) {
			r = reopen(db);
			if (r)
				return r;
		} else if (rc == MDB_READERS_FULL) {
			ckpt_sys.sleep_ns(READERS_WAIT_NS);
		} else {
			return ckpt_index_db_error(rc);
		}
	}
	return -EIO;
}

void ckpt_index_db_end(struct ckpt_index_db *db, MDB_txn *txn)
{
	if (txn)
		mdb_txn_abort(txn);
	ckpt_rwlock_drop(&db->gate);
}

int ckpt_index_db_write(struct ckpt_index_db *db, ckpt_index_db_fn *fn, void *arg)
{
	if (db->readonly)
		return -EROFS;
	for (;;) {
		MDB_txn *txn;
		uint64_t seen;
		int rc, r = ckpt_index_db_begin(db, true, &txn);

		if (r)
			return r;
		seen = db->map_now;
		rc = fn(db, txn, arg);
		if (!rc) {
			rc = mdb_txn_commit(txn);
			txn = NULL;
		}
		ckpt_index_db_end(db, txn);
		if (rc != MDB_MAP_FULL)
			return ckpt_index_db_error(rc);
		r = grow_map(db, seen);
		if (r)
			return r;
	}
}

// ---- Keys and values

MDB_val ckpt_index_db_key(const struct ckpt_index_key *k)
{
	return (MDB_val){.mv_data = (void *)k->bytes, .mv_size = k->len};
}

char ckpt_index_db_table(const MDB_val *key)
{
	return key->mv_size ? *(const char *)key->mv_data : 0;
}

int ckpt_index_db_put(MDB_txn *txn, MDB_dbi dbi, const struct ckpt_index_key *k, const void *payload, size_t len)
{
	MDB_val key = ckpt_index_db_key(k), value = {.mv_size = CKPT_INDEX_CHECKSUM_BYTES + len};
	int rc = mdb_put(txn, dbi, &key, &value, MDB_RESERVE);

	if (!rc)
		ckpt_index_value_write(k, payload, len, value.mv_data);
	return rc;
}

int ckpt_index_db_get(MDB_txn *txn, MDB_dbi dbi, const struct ckpt_index_key *k, const void **ret_payload,
		      size_t *ret_len)
{
	MDB_val key = ckpt_index_db_key(k), value;
	int rc = mdb_get(txn, dbi, &key, &value);

	if (rc)
		return ckpt_index_db_error(rc);
	return ckpt_index_value_read(k->bytes, k->len, value.mv_data, value.mv_size, ret_payload, ret_len);
}
