#include "core/index/index_inspect.h"

#include "core/base/guard.h"
#include "core/base/util.h"
#include "core/index/index_check.h"
#include "core/index/index_db.h"
#include "core/index/index_dir.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK_SECONDS_MAX 60u
#define TRIES_MAX 100

// Whose index this is. -EBADMSG when not ours or not of this format.
static int check_self(MDB_txn *txn, MDB_dbi dbi, const char *store_id)
{
	struct ckpt_index_key key;
	const void *payload;
	size_t len;

	ckpt_index_key_self(&key, "format");
	if (ckpt_index_db_get(txn, dbi, &key, &payload, &len) || len != sizeof(uint32_t) ||
	    ckpt_get32(payload) != CKPT_INDEX_FORMAT)
		return -EBADMSG;
	ckpt_index_key_self(&key, "store");
	if (ckpt_index_db_get(txn, dbi, &key, &payload, &len) || len != strlen(store_id) ||
	    memcmp(payload, store_id, len))
		return -EBADMSG;
	return 0;
}

// The keys of manifests, chunks and packs. Their values are checked when they are read.
static int check_keys(MDB_txn *txn, MDB_dbi dbi)
{
	MDB_cursor *cursor;
	MDB_val key;
	int rc, r = 0;

	rc = mdb_cursor_open(txn, dbi, &cursor);
	if (rc)
		return ckpt_index_db_error(rc);
	for (rc = mdb_cursor_get(cursor, &key, NULL, MDB_FIRST); !rc && !r;
	     rc = mdb_cursor_get(cursor, &key, NULL, MDB_NEXT)) {
		switch (ckpt_index_db_table(&key)) {
		case CKPT_INDEX_TABLE_SELF:
			break; // check_self() did
		case CKPT_INDEX_TABLE_MANIFEST:
		case CKPT_INDEX_TABLE_CHUNK:
		case CKPT_INDEX_TABLE_PACK:
			r = key.mv_size == 1 + CKPT_INDEX_SHA_BYTES ? 0 : -EBADMSG;
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
		r = check_keys(txn, dbi);
	mdb_txn_abort(txn);
	return r;
}

struct look {
	const char *path, *store_id;
	uint64_t map_bytes;
};

// In a child: the full check. It only reads.
static int verify(void *arg)
{
	const struct look *look = arg;
	MDB_env *env;
	uint64_t map;
	int r = ckpt_index_db_env_open(look->path, true, look->map_bytes, &env, &map);

	return r ? r : check_snapshot(env, look->store_id);
}

int ckpt_index_inspect(int dirfd, const char *path, const char *store_id, uint64_t map_bytes)
{
	CLEANUP_FD int fd = openat(dirfd, CKPT_INDEX_DATA, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct look look = {path, store_id, map_bytes};
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
	return r ? r : ckpt_guard_run(verify, &look, CHECK_SECONDS_MAX);
}
