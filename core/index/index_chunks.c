#include "core/index/index.h"

#include "core/base/util.h"
#include "core/index/index_db.h"

#include <lmdb.h>

// Which chunks are in which packs. A row of the pack table says that all chunks of a pack are in the chunk table (count), or that
// some are missing (count 0), as while they are put or dropped: whoever finds that puts or drops them anew.

#define PUT_ROWS 4096  // in one transaction
#define READ_ROWS 1024 // looked at in one transaction

struct row {
	uint8_t key[1 + CKPT_INDEX_SHA_BYTES];
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	uint32_t count; // of a row of the pack table
	bool bad;
};

// --- Putting ------------------------------------------------------------------------------------------------------------

// How far it has come: packs before this one, and so many chunks of it.
struct put_place {
	size_t pack, chunk;
};

struct put_job {
	const struct ckpt_pack_chunks *packs;
	size_t count;
	struct put_place from, to; // of this transaction, which may be tried again
};

static int put_pack_row(struct ckpt_index_db *db, MDB_txn *txn, const struct ckpt_pack *pack, uint32_t count)
{
	uint8_t value[CKPT_INDEX_PACK_BYTES];
	struct ckpt_index_key key;

	ckpt_index_key_digest(&key, CKPT_INDEX_TABLE_PACK, pack->id);
	ckpt_index_pack_write(pack, count, value);
	return ckpt_index_db_put(txn, db->dbi, &key, value, sizeof(value));
}

static int put_chunk_row(struct ckpt_index_db *db, MDB_txn *txn, const struct ckpt_pack *pack,
			 const struct ckpt_chunk *chunk)
{
	uint8_t value[CKPT_INDEX_CHUNK_BYTES];
	struct ckpt_index_key key;

	ckpt_index_key_digest(&key, CKPT_INDEX_TABLE_CHUNK, chunk->id);
	ckpt_index_chunk_write(chunk, pack, value);
	return ckpt_index_db_put(txn, db->dbi, &key, value, sizeof(value));
}

// Some more of the pack at job->to; which is whole with its last chunk.
static int put_some(struct ckpt_index_db *db, MDB_txn *txn, struct put_job *job, size_t some)
{
	const struct ckpt_pack_chunks *p = &job->packs[job->to.pack];
	bool ends = job->to.chunk + some == p->count;
	int rc = put_pack_row(db, txn, &p->pack, ends ? (uint32_t)p->count : 0);

	for (size_t i = 0; i < some && !rc; i++)
		rc = put_chunk_row(db, txn, &p->pack, &p->chunks[job->to.chunk + i]);
	job->to =
		ends ? (struct put_place){job->to.pack + 1, 0} : (struct put_place){job->to.pack, job->to.chunk + some};
	return rc;
}

static int put_rows(struct ckpt_index_db *db, MDB_txn *txn, void *arg)
{
	struct put_job *job = arg;
	int rc = 0;

	job->to = job->from;
	for (size_t left = PUT_ROWS, some; left && job->to.pack < job->count && !rc; left -= some) {
		some = MIN(left, job->packs[job->to.pack].count - job->to.chunk);
		rc = put_some(db, txn, job, some);
	}
	return rc;
}

int ckpt_index_put_packs(struct ckpt_index *ix, const struct ckpt_pack_chunks *packs, size_t count)
{
	struct put_job job = {.packs = packs, .count = count};
	int r = 0;

	for (size_t i = 0; i < count; i++)
		if (!packs[i].count || packs[i].count > UINT32_MAX)
			return -EINVAL;
	for (; job.from.pack < count && !r; job.from = job.to)
		r = ckpt_index_db_write(ckpt_index_db_of(ix), put_rows, &job);
	return r;
}

int ckpt_index_put_pack(struct ckpt_index *ix, const struct ckpt_pack *pack, const struct ckpt_chunk *chunks,
			size_t count)
{
	const struct ckpt_pack_chunks one = {*pack, chunks, count};

	return ckpt_index_put_packs(ix, &one, 1);
}

// --- Reading ------------------------------------------------------------------------------------------------------------

static int get_row(struct ckpt_index_db *db, MDB_txn *txn, char table, const uint8_t *id, struct ckpt_index_key *k,
		   MDB_val *ret_key, MDB_val *ret_value)
{
	ckpt_index_key_digest(k, table, id);
	*ret_key = ckpt_index_db_key(k);
	return ckpt_index_db_error(mdb_get(txn, db->dbi, ret_key, ret_value));
}

static int read_chunk(struct ckpt_index_db *db, MDB_txn *txn, const uint8_t id[32], struct ckpt_chunk *ret_chunk,
		      struct ckpt_pack *ret_pack)
{
	struct ckpt_index_key k;
	MDB_val key, value;
	uint32_t count;
	int r = get_row(db, txn, CKPT_INDEX_TABLE_CHUNK, id, &k, &key, &value);

	if (!r)
		r = ckpt_index_value_read_chunk(key.mv_data, key.mv_size, value.mv_data, value.mv_size, ret_chunk,
						ret_pack);
	if (!r)
		r = get_row(db, txn, CKPT_INDEX_TABLE_PACK, ret_pack->id, &k, &key, &value);
	return r ? r
		 : ckpt_index_value_read_pack(key.mv_data, key.mv_size, value.mv_data, value.mv_size, ret_pack, &count);
}

int ckpt_index_chunk(struct ckpt_index *ix, const uint8_t id[32], struct ckpt_chunk *ret_chunk,
		     struct ckpt_pack *ret_pack)
{
	struct ckpt_index_db *db = ckpt_index_db_of(ix);
	MDB_txn *txn;
	int r = ckpt_index_db_begin(db, false, &txn);

	if (r)
		return r;
	r = read_chunk(db, txn, id, ret_chunk, ret_pack);
	ckpt_index_db_end(db, txn);
	return r;
}

struct batch {
	char table;
	size_t count;
	struct row rows[READ_ROWS];
	// Where the next batch goes on: behind this key.
	uint8_t last[1 + CKPT_INDEX_SHA_BYTES];
	size_t last_len;
};

static void read_row(char table, const MDB_val *key, const MDB_val *value, struct row *ret_row)
{
	*ret_row = (struct row){0};
	memcpy(ret_row->key, key->mv_data, sizeof(ret_row->key));
	ret_row->bad = table == CKPT_INDEX_TABLE_CHUNK
			       ? ckpt_index_value_read_chunk(key->mv_data, key->mv_size, value->mv_data, value->mv_size,
							     &ret_row->chunk, &ret_row->pack)
			       : ckpt_index_value_read_pack(key->mv_data, key->mv_size, value->mv_data, value->mv_size,
							    &ret_row->pack, &ret_row->count);
}

static int read_rows(struct batch *b, MDB_cursor *cursor)
{
	MDB_val key = {.mv_data = b->last, .mv_size = b->last_len}, value;
	int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);

	if (!rc && key.mv_size == b->last_len && !memcmp(key.mv_data, b->last, b->last_len))
		rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	while (!rc && b->count < READ_ROWS && ckpt_index_db_table(&key) == b->table) {
		if (key.mv_size != sizeof(b->last))
			return -EBADMSG;
		read_row(b->table, &key, &value, &b->rows[b->count++]);
		rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	}
	if (b->count) {
		memcpy(b->last, b->rows[b->count - 1].key, sizeof(b->last));
		b->last_len = sizeof(b->last);
	}
	return rc && rc != MDB_NOTFOUND ? ckpt_index_db_error(rc) : 0;
}

// The rows behind b->last. 0, -EBADMSG, ...
static int read_batch(struct ckpt_index_db *db, struct batch *b)
{
	MDB_cursor *cursor;
	MDB_txn *txn;
	int rc, r = ckpt_index_db_begin(db, false, &txn);

	if (r)
		return r;
	b->count = 0;
	rc = mdb_cursor_open(txn, db->dbi, &cursor);
	r = ckpt_index_db_error(rc);
	if (!rc) {
		r = read_rows(b, cursor);
		mdb_cursor_close(cursor);
	}
	ckpt_index_db_end(db, txn);
	return r;
}

// In batches, with none of the locks of LMDB held over fn.
static int each_batch(struct ckpt_index_db *db, char table, int (*fn)(void *arg, struct batch *b), void *arg)
{
	CLEANUP_FREE struct batch *b = malloc(sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->table = table;
	b->last[0] = (uint8_t)table;
	b->last_len = 1;
	do {
		r = read_batch(db, b);
		if (!r)
			r = fn(arg, b);
	} while (!r && b->count == READ_ROWS);
	return r;
}

struct each {
	ckpt_index_pack_fn *pack_fn;
	ckpt_index_chunk_fn *chunk_fn;
	void *arg;
};

static int call_each(void *arg, struct batch *b)
{
	const struct each *e = arg;
	int r = 0;

	for (size_t i = 0; i < b->count && !r; i++) {
		struct row *row = &b->rows[i];

		r = row->bad      ? -EBADMSG
		    : e->chunk_fn ? e->chunk_fn(e->arg, &row->chunk, &row->pack)
				  : e->pack_fn(e->arg, &row->pack, row->count);
	}
	return r;
}

int ckpt_index_each_pack(struct ckpt_index *ix, ckpt_index_pack_fn *fn, void *arg)
{
	return each_batch(ckpt_index_db_of(ix), CKPT_INDEX_TABLE_PACK, call_each,
			  &(struct each){.pack_fn = fn, .arg = arg});
}

int ckpt_index_each_chunk(struct ckpt_index *ix, ckpt_index_chunk_fn *fn, void *arg)
{
	return each_batch(ckpt_index_db_of(ix), CKPT_INDEX_TABLE_CHUNK, call_each,
			  &(struct each){.chunk_fn = fn, .arg = arg});
}

// --- Dropping -----------------------------------------------------------------------------------------------------------

struct drop {
	struct ckpt_index_db *db;
	const struct ckpt_pack *packs;
	size_t count;
	struct batch *batch; // of chunks
	bool last;           // the packs themselves, after their chunks
};

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_pack *)a)->id, ((const struct ckpt_pack *)b)->id, CKPT_SHA256_LEN);
}

// What is damaged is of no use to anybody.
static bool is_dropped(const struct drop *d, const struct row *row)
{
	return row->bad || bsearch(&row->pack, d->packs, d->count, sizeof(*d->packs), by_id);
}

// An operation that was put since the batch was read stays.
static int drop_row(struct ckpt_index_db *db, MDB_txn *txn, const struct drop *d, struct row *row)
{
	MDB_val key = {.mv_data = row->key, .mv_size = sizeof(row->key)}, value;
	struct row now;
	int rc = mdb_get(txn, db->dbi, &key, &value);

	if (rc)
		return rc == MDB_NOTFOUND ? 0 : rc;
	read_row(d->batch->table, &key, &value, &now);
	return is_dropped(d, &now) ? mdb_del(txn, db->dbi, &key, NULL) : 0;
}

static int drop_rows(struct ckpt_index_db *db, MDB_txn *txn, void *arg)
{
	const struct drop *d = arg;
	int rc = 0;

	for (size_t i = 0; i < d->batch->count && !rc; i++)
		if (is_dropped(d, &d->batch->rows[i]))
			rc = drop_row(db, txn, d, &d->batch->rows[i]);
	return rc;
}

static int drop_batch(void *arg, struct batch *b)
{
	struct drop *d = arg;
	bool any = false;

	for (size_t i = 0; i < b->count && !any; i++)
		any = is_dropped(d, &b->rows[i]);
	d->batch = b;
	return any ? ckpt_index_db_write(d->db, drop_rows, d) : 0;
}

static int drop_packs(struct ckpt_index_db *db, MDB_txn *txn, void *arg)
{
	const struct drop *d = arg;
	int rc = 0;

	for (size_t i = 0; i < d->count && !rc; i++) {
		struct ckpt_index_key k;
		MDB_val key;

		if (!d->last) {
			rc = put_pack_row(db, txn, &d->packs[i], 0);
			continue;
		}
		ckpt_index_key_digest(&k, CKPT_INDEX_TABLE_PACK, d->packs[i].id);
		key = ckpt_index_db_key(&k);
		rc = mdb_del(txn, db->dbi, &key, NULL);
		if (rc == MDB_NOTFOUND)
			rc = 0;
	}
	return rc;
}

int ckpt_index_drop_packs(struct ckpt_index *ix, const struct ckpt_pack *packs, size_t count)
{
	struct drop d = {.db = ckpt_index_db_of(ix), .packs = packs, .count = count};
	int r = count ? ckpt_index_db_write(d.db, drop_packs, &d) : 0;

	if (!r && count)
		r = each_batch(d.db, CKPT_INDEX_TABLE_CHUNK, drop_batch, &d);
	d.last = true;
	if (!r && count)
		r = ckpt_index_db_write(d.db, drop_packs, &d);
	return r;
}
