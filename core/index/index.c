#include "core/index/index.h"

#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/index/index_db.h"
#include "core/index/index_dir.h"
#include "core/index/index_inspect.h"
#include "core/index/index_value.h"

#include <lmdb.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// What the index is asked. Its other rooms:
//   index_db       the LMDB environment, its transactions, what a transaction reads and puts
//   index_inspect  the look at the file before it is mapped    index_check  its pages, without LMDB
//   index_dir      the directory, and who has it open          index_value  keys and values as bytes
//   index_chunks   which chunks are in which packs
//
// States: absent -> (ckpt_index_db_open) open; damaged -> (set aside) absent; open -> (reset) open. Damage is looked for
// once, by ckpt_index_inspect() in a child, before this process maps the file; after that by the checksum of each value
// that is read.
//
// Invariants (those of transactions are in index_db.c):
//  1. LMDB never sees a page in this process that index_check.c has not accepted or LMDB itself has written.
//  2. No transaction outlives a public call, and no callback runs under one.
//  3. A directory is open once in a process (`claim`): a second close would drop the locks of the first.

struct ckpt_index {
	struct ckpt_index_db db;
	char store_id[CKPT_UUID_LEN + 1];
	struct ckpt_index_claim *claim;
	uint64_t resets; // atomic
};

struct ckpt_index_db *ckpt_index_db_of(struct ckpt_index *ix)
{
	return &ix->db;
}

// ---- Open, close, reset

static int write_self(struct ckpt_index_db *db, MDB_txn *txn, void *arg)
{
	const char *store_id = arg;
	struct ckpt_index_key key;
	uint8_t format[sizeof(uint32_t)];
	int rc;

	ckpt_put32(format, CKPT_INDEX_FORMAT);
	ckpt_index_key_self(&key, "format");
	rc = ckpt_index_db_put(txn, db->dbi, &key, format, sizeof(format));
	if (rc)
		return rc;
	ckpt_index_key_self(&key, "store");
	return ckpt_index_db_put(txn, db->dbi, &key, store_id, strlen(store_id));
}

static int open_checked(struct ckpt_index *ix, int dirfd, bool *ret_fresh)
{
	int r = ckpt_index_inspect(dirfd, ix->db.path, ix->store_id, ix->db.map_bytes);
	bool fresh = r == -ENOENT || r == -EBADMSG;

	if (r && (!fresh || ix->db.readonly))
		return r;
	if (r == -EBADMSG) {
		r = ckpt_index_dir_set_aside(dirfd);
		if (r)
			return r;
	}
	r = ckpt_index_db_open(&ix->db);
	if (!r && fresh)
		r = ckpt_index_db_write(&ix->db, write_self, ix->store_id);
	if (!r)
		*ret_fresh = fresh;
	return r;
}

static int make(const char *path, const char *store_id, bool readonly, uint64_t map_bytes,
		struct ckpt_index **ret_index)
{
	struct ckpt_index *ix;
	int r;

	if (strlen(store_id) >= sizeof(ix->store_id))
		return -EINVAL;
	ix = ckpt_calloc(1, sizeof(*ix));
	if (!ix)
		return -ENOMEM;
	r = ckpt_index_db_init(&ix->db, path, readonly, map_bytes);
	if (r) {
		free(ix);
		return r;
	}
	strcpy(ix->store_id, store_id);
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
		r = make(path, store_id, readonly, map_bytes, &ix);
	if (r)
		return r;
	r = ckpt_index_dir_claim(dirfd, &ix->claim);
	if (!r)
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
	ckpt_index_db_done(&ix->db); // before others may open the directory: invariant 3
	ckpt_index_dir_release(ix->claim);
	free(ix);
}

int ckpt_index_reset(struct ckpt_index *ix)
{
	CLEANUP_FD int dirfd = -1;
	int r;

	if (ix->db.readonly)
		return -EROFS;
	__atomic_fetch_add(&ix->resets, 1, __ATOMIC_RELAXED);
	r = ckpt_index_dir_open(ix->db.path, false, &dirfd);
	if (!r)
		r = ckpt_index_db_replace(&ix->db, dirfd);
	return r ? r : ckpt_index_db_write(&ix->db, write_self, ix->store_id);
}

uint64_t ckpt_index_resets(const struct ckpt_index *ix)
{
	return __atomic_load_n(&ix->resets, __ATOMIC_RELAXED);
}

// ---- Manifests

struct put_job {
	const uint8_t *sha256;
	const void *data;
	size_t len;
};

static int put_manifest(struct ckpt_index_db *db, MDB_txn *txn, void *arg)
{
	const struct put_job *job = arg;
	struct ckpt_index_key key;

	ckpt_index_key_digest(&key, CKPT_INDEX_TABLE_MANIFEST, job->sha256);
	return ckpt_index_db_put(txn, db->dbi, &key, job->data, job->len);
}

int ckpt_index_put_manifest(struct ckpt_index *ix, const uint8_t sha256[CKPT_INDEX_SHA_BYTES], const void *data,
			    size_t len)
{
	struct put_job job = {sha256, data, len};

	return len <= CKPT_MANIFEST_BYTES_MAX ? ckpt_index_db_write(&ix->db, put_manifest, &job) : -EINVAL;
}

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
	int r = ckpt_index_db_begin(&ix->db, false, &txn);

	if (r)
		return r;
	ckpt_index_key_digest(&key, CKPT_INDEX_TABLE_MANIFEST, sha256);
	r = ckpt_index_db_get(txn, ix->db.dbi, &key, &payload, &len);
	if (!r) {
		copy = malloc(len + 1);
		if (copy) {
			memcpy(copy, payload, len);
			let_go_of_pages(payload, len);
		} else {
			r = -ENOMEM;
		}
	}
	ckpt_index_db_end(&ix->db, txn);
	if (r)
		return r;
	*ret_data = copy;
	*ret_len = len;
	return 0;
}

// ---- Figures

// Keys of one table.
static int count_table(struct ckpt_index_db *db, MDB_txn *txn, char table, uint64_t *ret_count)
{
	MDB_val key = {.mv_data = &table, .mv_size = 1};
	MDB_cursor *cursor;
	uint64_t count = 0;
	int rc = mdb_cursor_open(txn, db->dbi, &cursor);

	if (rc)
		return ckpt_index_db_error(rc);
	for (rc = mdb_cursor_get(cursor, &key, NULL, MDB_SET_RANGE); !rc && ckpt_index_db_table(&key) == table;
	     rc = mdb_cursor_get(cursor, &key, NULL, MDB_NEXT))
		count++;
	mdb_cursor_close(cursor);
	if (rc && rc != MDB_NOTFOUND)
		return ckpt_index_db_error(rc);
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
	int r = ckpt_index_db_begin(&ix->db, false, &txn);

	if (r)
		return r;
	r = count_table(&ix->db, txn, CKPT_INDEX_TABLE_MANIFEST, &s.manifests);
	if (!r)
		r = count_table(&ix->db, txn, CKPT_INDEX_TABLE_CHUNK, &s.chunks);
	if (!r)
		r = count_table(&ix->db, txn, CKPT_INDEX_TABLE_PACK, &s.packs);
	if (!r)
		r = ckpt_index_db_error(mdb_stat(txn, ix->db.dbi, &tree));
	if (!r && (mdb_env_get_fd(ix->db.env, &fd) || fstat(fd, &st)))
		r = -EIO;
	ckpt_index_db_end(&ix->db, txn);
	if (r)
		return r;
	s.bytes_used = (tree.ms_branch_pages + tree.ms_leaf_pages + tree.ms_overflow_pages) * (uint64_t)tree.ms_psize;
	s.bytes_file = (uint64_t)st.st_size;
	*ret_stat = s;
	return 0;
}
