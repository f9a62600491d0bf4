#include "core/index.h"

#include "core/guard.h"
#include "core/index_check.h"
#include "core/index_dir.h"
#include "core/index_value.h"
#include "core/sys.h"
#include "core/util.h"
#include "core/uuid.h"

#include <assert.h>
#include <fcntl.h>
#include <lmdb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// One LMDB environment with one unnamed tree; index_value.h has its keys and values.
//
// States: absent -> (make) open; damaged -> (set aside) absent; open -> (reset) open. Damage is looked for once, by
// inspect() in a child, before this process maps the file; after that by the checksum of each value that is read.
//
// Invariants:
//  1. LMDB never sees a page in this process that index_check.c has not accepted or LMDB itself has written.
//  2. Every transaction lives under `gate` held for reading; what moves or replaces the mapping holds it for writing.
//  3. No transaction outlives a public call, and no callback runs under one.
//  4. A directory is open once in a process (`claim`): a second close would drop the locks of the first.
//  5. Only the process that opened touches the environment: never after fork().
//
// Lock order: gate, then LMDB's own.

#define FORMAT 1u
#define READERS_MAX 1024
#define CHECK_SECONDS_MAX 60u
#define BATCH_VERSIONS 1024
#define TRIES_MAX 100
#define READERS_WAIT_NS 1000000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAP_BYTES (UINT64_C(1) << 30)
#else
#define MAP_BYTES (UINT64_C(64) << 30) // address space, not memory
#endif
#define MAP_BYTES_MIN (UINT64_C(1) << 20)

struct ckpt_index {
	char *path;
	char store_id[CKPT_UUID_LEN + 1];
	bool readonly;
	uint64_t map_bytes;
	pid_t pid;
	struct ckpt_index_claim *claim;

	pthread_rwlock_t gate;
	MDB_env *env; // under gate; NULL after a failure to open it again
	MDB_dbi dbi;
	uint64_t map_now;
};

// ---- Errors

static int from_mdb(int rc)
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

static int env_open(const char *path, bool readonly, uint64_t map_bytes, MDB_env **ret_env, uint64_t *ret_map)
{
	unsigned int flags = MDB_NOTLS | MDB_NOMETASYNC | MDB_NORDAHEAD | (readonly ? MDB_RDONLY : 0);
	MDB_env *env = NULL;
	int rc;

	// Where address space is limited (RLIMIT_AS) a smaller map does; it grows when full.
	for (;; map_bytes /= 4) {
		rc = mdb_env_create(&env);
		if (rc)
			return from_mdb(rc);
		rc = mdb_env_set_maxreaders(env, READERS_MAX);
		if (!rc)
			rc = mdb_env_set_mapsize(env, map_bytes);
		if (!rc)
			rc = mdb_env_open(env, path, flags, 0600);
		if (!rc)
			break;
		mdb_env_close(env);
		if (rc != ENOMEM || map_bytes / 4 < MAP_BYTES_MIN)
			return from_mdb(rc);
	}
	mdb_reader_check(env, NULL);
	*ret_env = env;
	*ret_map = map_bytes;
	return 0;
}

// ---- Values

static MDB_val key_val(const struct ckpt_index_key *k)
{
	return (MDB_val){.mv_data = (void *)k->bytes, .mv_size = k->len};
}

static char table_of(const MDB_val *key)
{
	return key->mv_size ? *(const char *)key->mv_data : 0;
}

static int put_value(MDB_txn *txn, MDB_dbi dbi, const struct ckpt_index_key *k, const void *payload, size_t len)
{
	MDB_val key = key_val(k), value = {.mv_size = CKPT_INDEX_CHECKSUM_BYTES + len};
	int rc = mdb_put(txn, dbi, &key, &value, MDB_RESERVE);

	if (!rc)
		ckpt_index_value_write(k, payload, len, value.mv_data);
	return rc;
}

// The payload of a key, valid until the transaction ends. -ENOENT, -EBADMSG.
static int get_value(MDB_txn *txn, MDB_dbi dbi, const struct ckpt_index_key *k, const void **ret_payload,
		     size_t *ret_len)
{
	MDB_val key = key_val(k), value;
	int rc = mdb_get(txn, dbi, &key, &value);

	if (rc)
		return from_mdb(rc);
	return ckpt_index_value_read(k->bytes, k->len, value.mv_data, value.mv_size, ret_payload, ret_len);
}

static int read_version(const MDB_val *key, const MDB_val *value, char *ret_step_key, struct ckpt_summary *ret_summary)
{
	return ckpt_index_value_read_version(key->mv_data, key->mv_size, value->mv_data, value->mv_size, ret_step_key,
					     ret_summary);
}

// ---- The check before the file is mapped

// Whose index this is. -EBADMSG when not ours or not of this format.
static int check_self(MDB_txn *txn, MDB_dbi dbi, const char *store_id)
{
	struct ckpt_index_key key;
	const void *payload;
	size_t len;

	ckpt_index_key_self(&key, "format");
	if (get_value(txn, dbi, &key, &payload, &len) || len != sizeof(uint32_t) || ckpt_get32(payload) != FORMAT)
		return -EBADMSG;
	ckpt_index_key_self(&key, "store");
	if (get_value(txn, dbi, &key, &payload, &len) || len != strlen(store_id) || memcmp(payload, store_id, len))
		return -EBADMSG;
	return 0;
}

// All values but the manifests, which are checked when they are read; of those the keys.
static int check_values(MDB_txn *txn, MDB_dbi dbi)
{
	char step_key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary summary;
	MDB_cursor *cursor;
	MDB_val key, value;
	int rc, r = 0;

	rc = mdb_cursor_open(txn, dbi, &cursor);
	if (rc)
		return from_mdb(rc);
	for (rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST); !rc && !r;
	     rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
		switch (table_of(&key)) {
		case CKPT_INDEX_TABLE_SELF:
			break; // check_self() did
		case CKPT_INDEX_TABLE_MANIFEST:
			r = key.mv_size == 1 + CKPT_INDEX_SHA_BYTES ? 0 : -EBADMSG;
			break;
		case CKPT_INDEX_TABLE_VERSION:
			r = read_version(&key, &value, step_key, &summary);
			break;
		default:
			r = -EBADMSG;
		}
	}
	mdb_cursor_close(cursor);
	if (r)
		return r;
	return rc == MDB_NOTFOUND ? 0 : -EBADMSG;
}

static int check_snapshot(MDB_env *env, const char *store_id)
{
	MDB_txn *txn = NULL;
	MDB_dbi dbi;
	mdb_filehandle_t fd;
	int r = -EBADMSG;

	if (mdb_env_get_fd(env, &fd))
		return -EBADMSG;
	for (int i = 0; i < TRIES_MAX; i++) {
		if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn))
			return -EBADMSG;
		r = ckpt_index_check_snapshot(fd, mdb_txn_id(txn));
		if (r != -EAGAIN)
			break;
		mdb_txn_abort(txn);
		txn = NULL;
	}
	if (!txn)
		return -EBADMSG;
	if (!r && mdb_dbi_open(txn, NULL, 0, &dbi))
		r = -EBADMSG;
	if (!r)
		r = check_self(txn, dbi, store_id);
	if (!r)
		r = check_values(txn, dbi);
	mdb_txn_abort(txn);
	return r;
}

// In a child: the full check. It only reads.
static int verify(void *arg)
{
	const struct ckpt_index *ix = arg;
	MDB_env *env;
	uint64_t map;
	int r = env_open(ix->path, true, ix->map_bytes, &env, &map);

	return r ? r : check_snapshot(env, ix->store_id);
}

// 0: there is a sound index. -ENOENT: none. -EBADMSG: damaged, or not ours.
static int inspect(struct ckpt_index *ix, int dirfd)
{
	CLEANUP_FD int fd = openat(dirfd, CKPT_INDEX_DATA, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : errno == EACCES ? -EACCES : -EBADMSG;
	if (fstat(fd, &st))
		return -EIO;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if (!st.st_size)
		return -ENOENT; // a creation that did not get far
	r = ckpt_index_check_header(fd);
	return r ? r : ckpt_guard_run(verify, ix, CHECK_SECONDS_MAX);
}

// Opens what inspect() has accepted or what is not there yet. Nobody else uses ix yet, or holds the gate.
static int attach(struct ckpt_index *ix)
{
	MDB_txn *txn;
	int rc, r = env_open(ix->path, ix->readonly, ix->map_bytes, &ix->env, &ix->map_now);

	if (r)
		return r;
	rc = mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &txn);
	if (!rc) {
		rc = mdb_dbi_open(txn, NULL, 0, &ix->dbi);
		mdb_txn_abort(txn);
	}
	if (rc) {
		mdb_env_close(ix->env);
		ix->env = NULL;
	}
	return from_mdb(rc);
}

// ---- Transactions

// Grows the map after a full one. 0: try again; -ENOSPC, -EIO.
static int grow_map(struct ckpt_index *ix, uint64_t seen)
{
	int rc = 0;

	pthread_rwlock_wrlock(&ix->gate);
	if (ix->env && ix->map_now == seen) {
		mdb_reader_check(ix->env, NULL);
		rc = seen > UINT64_MAX / 2 ? ENOMEM : mdb_env_set_mapsize(ix->env, seen * 2);
		if (!rc)
			ix->map_now = seen * 2;
	}
	if (rc) { // the old mapping is gone: there is no going on without a new one
		mdb_env_close(ix->env);
		ix->env = NULL;
		if (env_open(ix->path, ix->readonly, seen, &ix->env, &ix->map_now))
			ix->env = NULL;
	}
	pthread_rwlock_unlock(&ix->gate);
	return rc ? -ENOSPC : 0;
}

// Another process has grown the map: take its size.
static int adopt_map(struct ckpt_index *ix)
{
	MDB_envinfo info;
	int rc;

	pthread_rwlock_wrlock(&ix->gate);
	rc = ix->env ? mdb_env_set_mapsize(ix->env, 0) : EIO;
	if (!rc && !mdb_env_info(ix->env, &info))
		ix->map_now = info.me_mapsize;
	if (rc && ix->env) {
		mdb_env_close(ix->env);
		ix->env = NULL;
	}
	pthread_rwlock_unlock(&ix->gate);
	return from_mdb(rc);
}

// LMDB gives an environment up after a failed write of a meta page: opens it anew.
static int reopen(struct ckpt_index *ix)
{
	int r;

	pthread_rwlock_wrlock(&ix->gate);
	if (ix->env)
		mdb_env_close(ix->env);
	ix->env = NULL;
	r = attach(ix);
	pthread_rwlock_unlock(&ix->gate);
	return r;
}

// Begins a transaction and holds the gate until end(). Not after fork().
static int begin(struct ckpt_index *ix, bool write, MDB_txn **ret_txn)
{
	assert(ix->pid == getpid());
	for (int i = 0; i < TRIES_MAX; i++) {
		int rc, r;

		pthread_rwlock_rdlock(&ix->gate);
		rc = ix->env ? mdb_txn_begin(ix->env, NULL, write ? 0 : MDB_RDONLY, ret_txn) : EIO;
		if (!rc)
			return 0;
		if (rc == MDB_READERS_FULL)
			mdb_reader_check(ix->env, NULL);
		pthread_rwlock_unlock(&ix->gate);
		if (rc == MDB_MAP_RESIZED) {
			r = adopt_map(ix);
			if (r)
				return r;
		} else if (rc == MDB_PANIC) {
			r = reopen(ix);
			if (r)
				return r;
		} else if (rc == MDB_READERS_FULL) {
			ckpt_sys.sleep_ns(READERS_WAIT_NS);
		} else {
			return from_mdb(rc);
		}
	}
	return -EIO;
}

static void end(struct ckpt_index *ix, MDB_txn *txn)
{
	if (txn)
		mdb_txn_abort(txn);
	pthread_rwlock_unlock(&ix->gate);
}

typedef int write_fn(struct ckpt_index *ix, MDB_txn *txn, void *arg); // 0, or what LMDB said

// Runs fn in a write transaction and commits, as often as the map has to grow for it.
static int write_txn(struct ckpt_index *ix, write_fn *fn, void *arg)
{
	if (ix->readonly)
		return -EROFS;
	for (;;) {
		MDB_txn *txn;
		uint64_t seen;
		int rc, r = begin(ix, true, &txn);

		if (r)
			return r;
		seen = ix->map_now;
		rc = fn(ix, txn, arg);
		if (!rc) {
			rc = mdb_txn_commit(txn);
			txn = NULL;
		}
		end(ix, txn);
		if (rc != MDB_MAP_FULL)
			return from_mdb(rc);
		r = grow_map(ix, seen);
		if (r)
			return r;
	}
}

// ---- Open, close, reset

static int write_self(struct ckpt_index *ix, MDB_txn *txn, void *arg)
{
	struct ckpt_index_key key;
	uint8_t format[sizeof(uint32_t)];
	int rc;

	(void)arg;
	ckpt_put32(format, FORMAT);
	ckpt_index_key_self(&key, "format");
	rc = put_value(txn, ix->dbi, &key, format, sizeof(format));
	if (rc)
		return rc;
	ckpt_index_key_self(&key, "store");
	return put_value(txn, ix->dbi, &key, ix->store_id, strlen(ix->store_id));
}

static int open_checked(struct ckpt_index *ix, int dirfd, bool *ret_fresh)
{
	int r = inspect(ix, dirfd);
	bool fresh = r == -ENOENT || r == -EBADMSG;

	if (r && (!fresh || ix->readonly))
		return r;
	if (r == -EBADMSG) {
		r = ckpt_index_dir_set_aside(dirfd);
		if (r)
			return r;
	}
	r = attach(ix);
	if (!r && fresh)
		r = write_txn(ix, write_self, NULL);
	if (!r)
		*ret_fresh = fresh;
	return r;
}

static void destroy(struct ckpt_index *ix)
{
	ckpt_index_dir_release(ix->claim);
	pthread_rwlock_destroy(&ix->gate);
	free(ix->path);
	free(ix);
}

static int make(const char *path, const char *store_id, bool readonly, uint64_t map_bytes,
		struct ckpt_index **ret_index)
{
	struct ckpt_index *ix;
	pthread_rwlockattr_t attr;

	if (strlen(store_id) >= sizeof(ix->store_id))
		return -EINVAL;
	ix = ckpt_calloc(1, sizeof(*ix));
	if (!ix)
		return -ENOMEM;
	ix->path = strdup(path);
	if (!ix->path) {
		free(ix);
		return -ENOMEM;
	}
	strcpy(ix->store_id, store_id);
	ix->readonly = readonly;
	ix->map_bytes = map_bytes;
	ix->pid = getpid();
	// Readers come all the time; who wants the gate for writing must not starve.
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&ix->gate, &attr);
	pthread_rwlockattr_destroy(&attr);
	*ret_index = ix;
	return 0;
}

int ckpt_index_open_sized(const char *path, const char *store_id, bool readonly, uint64_t map_bytes,
			  struct ckpt_index **ret_index, bool *ret_fresh)
{
	CLEANUP_FD int dirfd = -1;
	struct ckpt_index *ix;
	int r = ckpt_index_dir_open(path, readonly, &dirfd);

	if (!r)
		r = make(path, store_id, readonly, map_bytes ? map_bytes : MAP_BYTES, &ix);
	if (r)
		return r;
	r = ckpt_index_dir_claim(dirfd, &ix->claim);
	if (r) {
		destroy(ix);
		return r;
	}
	r = open_checked(ix, dirfd, ret_fresh);
	if (r) {
		ckpt_index_close(ix);
		return r;
	}
	*ret_index = ix;
	return 0;
}

int ckpt_index_open(const char *path, const char *store_id, bool readonly, struct ckpt_index **ret_index,
		    bool *ret_fresh)
{
	return ckpt_index_open_sized(path, store_id, readonly, 0, ret_index, ret_fresh);
}

void ckpt_index_close(struct ckpt_index *ix)
{
	if (!ix)
		return;
	if (ix->env && ix->pid == getpid())
		mdb_env_close(ix->env);
	destroy(ix);
}

int ckpt_index_reset(struct ckpt_index *ix)
{
	CLEANUP_FD int dirfd = -1;
	int r;

	if (ix->readonly)
		return -EROFS;
	assert(ix->pid == getpid());
	r = ckpt_index_dir_open(ix->path, false, &dirfd);
	if (r)
		return r;
	// A new file, since LMDB would walk the old one to empty it, and that may be the damaged one.
	pthread_rwlock_wrlock(&ix->gate);
	if (ix->env)
		mdb_env_close(ix->env);
	ix->env = NULL;
	r = ckpt_index_dir_set_aside(dirfd);
	if (!r)
		r = attach(ix);
	pthread_rwlock_unlock(&ix->gate);
	return r ? r : write_txn(ix, write_self, NULL);
}

// ---- Versions

struct put_job {
	const char *const *keys;
	const struct ckpt_summary *summaries;
	size_t count;
	const void *manifest;
	size_t manifest_len;
};

static int put_summary(struct ckpt_index *ix, MDB_txn *txn, const char *step_key, const struct ckpt_summary *s)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_index_key key;
	size_t len = 0;
	int r = ckpt_index_key_version(&key, step_key, s->version);

	if (!r)
		r = ckpt_summary_encode(s, &data, &len);
	return r ? -r : put_value(txn, ix->dbi, &key, data, len);
}

static int put_all(struct ckpt_index *ix, MDB_txn *txn, void *arg)
{
	const struct put_job *job = arg;
	struct ckpt_index_key key;

	for (size_t i = 0; i < job->count; i++) {
		int rc = put_summary(ix, txn, job->keys[i], &job->summaries[i]);

		if (rc)
			return rc;
	}
	if (!job->manifest_len)
		return 0;
	ckpt_index_key_manifest(&key, job->summaries[0].manifest_sha256);
	return put_value(txn, ix->dbi, &key, job->manifest, job->manifest_len);
}

int ckpt_index_put(struct ckpt_index *ix, const char *key, const struct ckpt_summary *summary, const void *manifest,
		   size_t manifest_len)
{
	struct put_job job = {&key, summary, 1, manifest, manifest ? manifest_len : 0};

	return job.manifest_len <= CKPT_MANIFEST_BYTES_MAX ? write_txn(ix, put_all, &job) : -EINVAL;
}

int ckpt_index_put_many(struct ckpt_index *ix, const char *const *keys, const struct ckpt_summary *summaries,
			size_t count)
{
	struct put_job job = {keys, summaries, count, NULL, 0};

	return write_txn(ix, put_all, &job);
}

struct remove_job {
	const char *key;
	uint32_t version;
};

// The manifest goes too, even if another version has the same: it is a cache, and a miss is filled from the store.
static int remove_version(struct ckpt_index *ix, MDB_txn *txn, void *arg)
{
	const struct remove_job *job = arg;
	struct ckpt_index_key version, manifest;
	char step_key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary summary;
	MDB_val key, value;
	int rc = -ckpt_index_key_version(&version, job->key, job->version);

	if (rc)
		return rc;
	key = key_val(&version);
	rc = mdb_get(txn, ix->dbi, &key, &value);
	if (rc)
		return rc;
	if (!read_version(&key, &value, step_key, &summary)) {
		ckpt_index_key_manifest(&manifest, summary.manifest_sha256);
		key = key_val(&manifest);
		rc = mdb_del(txn, ix->dbi, &key, NULL);
		if (rc && rc != MDB_NOTFOUND)
			return rc;
	}
	key = key_val(&version);
	return mdb_del(txn, ix->dbi, &key, NULL);
}

int ckpt_index_remove(struct ckpt_index *ix, const char *key, uint32_t version)
{
	struct remove_job job = {key, version};

	return write_txn(ix, remove_version, &job);
}

int ckpt_index_get(struct ckpt_index *ix, const char *key, uint32_t version, struct ckpt_summary *ret_summary)
{
	char step_key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary summary;
	struct ckpt_index_key k;
	MDB_val key_found, value;
	MDB_txn *txn;
	int r = ckpt_index_key_version(&k, key, version);

	if (!r)
		r = begin(ix, false, &txn);
	if (r)
		return r;
	key_found = key_val(&k);
	r = from_mdb(mdb_get(txn, ix->dbi, &key_found, &value));
	if (!r)
		r = read_version(&key_found, &value, step_key, &summary);
	end(ix, txn);
	if (!r)
		*ret_summary = summary;
	return r;
}

struct batch {
	size_t count;
	struct {
		char key[CKPT_STEP_KEY_MAX];
		struct ckpt_summary summary;
	} rows[BATCH_VERSIONS];
	// Where the next batch goes on: behind this key.
	char last[CKPT_INDEX_KEY_MAX];
	size_t last_len;
};

// Fills b with the versions behind b->last. 0, -EBADMSG, ...
static int read_batch(struct ckpt_index *ix, struct batch *b)
{
	MDB_val key = {.mv_data = b->last, .mv_size = b->last_len}, value;
	MDB_cursor *cursor;
	MDB_txn *txn;
	int rc, r = begin(ix, false, &txn);

	if (r)
		return r;
	b->count = 0;
	rc = mdb_cursor_open(txn, ix->dbi, &cursor);
	if (rc) {
		end(ix, txn);
		return from_mdb(rc);
	}
	rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	if (!rc && key.mv_size == b->last_len && !memcmp(key.mv_data, b->last, b->last_len))
		rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	while (!rc && !r && b->count < BATCH_VERSIONS && table_of(&key) == CKPT_INDEX_TABLE_VERSION) {
		r = read_version(&key, &value, b->rows[b->count].key, &b->rows[b->count].summary);
		if (r)
			break;
		b->count++;
		memcpy(b->last, key.mv_data, key.mv_size);
		b->last_len = key.mv_size;
		rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	end(ix, txn);
	return !r && rc && rc != MDB_NOTFOUND ? from_mdb(rc) : r;
}

int ckpt_index_each(struct ckpt_index *ix, ckpt_index_version_fn *fn, void *arg)
{
	CLEANUP_FREE struct batch *b = malloc(sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->last[0] = CKPT_INDEX_TABLE_VERSION;
	b->last_len = 1;
	do {
		r = read_batch(ix, b);
		for (size_t i = 0; !r && i < b->count; i++)
			r = fn(arg, b->rows[i].key, &b->rows[i].summary);
	} while (!r && b->count == BATCH_VERSIONS);
	return r;
}

// ---- Manifests

// The pages of a map count as ours while we have looked at them. A large value that was copied is not looked at again;
// its pages stay in the kernel's cache, where others' memory comes first.
static void let_go_of_pages(const void *data, size_t len)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)data + page - 1) & ~(page - 1),
			end = ((uintptr_t)data + len) & ~(page - 1);

	if (from < end)
		(void)madvise((void *)from, end - from, MADV_DONTNEED); // a shared, read-only map of a file
}

int ckpt_index_manifest(struct ckpt_index *ix, const uint8_t sha256[CKPT_INDEX_SHA_BYTES], void **ret_data,
			size_t *ret_len)
{
	struct ckpt_index_key key;
	const void *payload;
	void *copy = NULL;
	MDB_txn *txn;
	size_t len = 0;
	int r = begin(ix, false, &txn);

	if (r)
		return r;
	ckpt_index_key_manifest(&key, sha256);
	r = get_value(txn, ix->dbi, &key, &payload, &len);
	if (!r) {
		copy = malloc(len + 1);
		if (copy) {
			memcpy(copy, payload, len);
			let_go_of_pages(payload, len);
		} else {
			r = -ENOMEM;
		}
	}
	end(ix, txn);
	if (r)
		return r;
	*ret_data = copy;
	*ret_len = len;
	return 0;
}

struct manifest_job {
	const uint8_t *sha256;
	const void *data;
	size_t len;
};

static int put_manifest(struct ckpt_index *ix, MDB_txn *txn, void *arg)
{
	const struct manifest_job *job = arg;
	struct ckpt_index_key key;

	ckpt_index_key_manifest(&key, job->sha256);
	return put_value(txn, ix->dbi, &key, job->data, job->len);
}

int ckpt_index_put_manifest(struct ckpt_index *ix, const uint8_t sha256[CKPT_INDEX_SHA_BYTES], const void *data,
			    size_t len)
{
	struct manifest_job job = {sha256, data, len};

	return len <= CKPT_MANIFEST_BYTES_MAX ? write_txn(ix, put_manifest, &job) : -EINVAL;
}

// ---- Figures

// Keys of one table.
static int count_table(struct ckpt_index *ix, MDB_txn *txn, char table, uint64_t *ret_count)
{
	MDB_val key = {.mv_data = &table, .mv_size = 1};
	MDB_cursor *cursor;
	uint64_t count = 0;
	int rc = mdb_cursor_open(txn, ix->dbi, &cursor);

	if (rc)
		return from_mdb(rc);
	for (rc = mdb_cursor_get(cursor, &key, NULL, MDB_SET_RANGE); !rc && table_of(&key) == table;
	     rc = mdb_cursor_get(cursor, &key, NULL, MDB_NEXT))
		count++;
	mdb_cursor_close(cursor);
	if (rc && rc != MDB_NOTFOUND)
		return from_mdb(rc);
	*ret_count = count;
	return 0;
}

int ckpt_index_stat(struct ckpt_index *ix, struct ckpt_index_stat *ret_stat)
{
	struct ckpt_index_stat s = {0};
	mdb_filehandle_t fd;
	struct stat st;
	MDB_stat tree;
	MDB_txn *txn;
	int r = begin(ix, false, &txn);

	if (r)
		return r;
	r = count_table(ix, txn, CKPT_INDEX_TABLE_VERSION, &s.versions);
	if (!r)
		r = count_table(ix, txn, CKPT_INDEX_TABLE_MANIFEST, &s.manifests);
	if (!r)
		r = from_mdb(mdb_stat(txn, ix->dbi, &tree));
	if (!r && (mdb_env_get_fd(ix->env, &fd) || fstat(fd, &st)))
		r = -EIO;
	end(ix, txn);
	if (r)
		return r;
	s.bytes_used = (tree.ms_branch_pages + tree.ms_leaf_pages + tree.ms_overflow_pages) * (uint64_t)tree.ms_psize;
	s.bytes_file = (uint64_t)st.st_size;
	*ret_stat = s;
	return 0;
}
