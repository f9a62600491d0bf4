#include "core/cold/pack.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <assert.h>
#include <stdio.h>

// pack := header chunk* row{chunks} tail

#define PACK_MAJOR 2 // 1: its name was a digest of its table
#define PACK_MINOR 0
#define PIECE_BYTES ((size_t)64 << 10) // copied and hashed at once
static const uint8_t magic[8] = {'c', 'k', 'p', 't', '-', 'p', 'a', 'k'};

enum {
	HEADER_MAGIC = 0,
	HEADER_MAJOR = 8,
	HEADER_MINOR = 10,
	HEADER_ZERO = 12,
	HEADER_NAME = 16,
	HEADER_BYTES = 48,
};

enum {
	ROW_ID = 0,
	ROW_OFFSET = 32,
	ROW_LEN = 40,
	ROW_STORED = 44,
	ROW_CODEC = 48,
	ROW_WIDTH = 50,
	ROW_ZERO = 52,
	ROW_CHECKSUM = 56,
	ROW_BYTES = 64,
};

// The digest is of all bytes before it, and is known when the last chunk is. The checksum is of the header, the rows and the tail
// before it: it shows damage of the table, and of the digest, to a reader that does not read the chunks.
enum {
	TAIL_COUNT = 0,
	TAIL_ZERO = 4,
	TAIL_TABLE = 8,
	TAIL_DIGEST = 16,
	TAIL_CHECKSUM = 48,
	TAIL_BYTES = 56,
};

struct ckpt_pack_writer {
	uint8_t *data; // header and chunks
	uint8_t *rows;
	size_t len, cap, count, rows_cap;
	struct ckpt_sha256 sum; // of data
};

static int begin(struct ckpt_pack_writer *w)
{
	int rc = ckpt_grow((void **)&w->data, &w->cap, HEADER_BYTES, 1);

	if (rc)
		return rc;
	memset(w->data, 0, HEADER_BYTES);
	memcpy(w->data + HEADER_MAGIC, magic, sizeof(magic));
	ckpt_put16(w->data + HEADER_MAJOR, PACK_MAJOR);
	ckpt_put16(w->data + HEADER_MINOR, PACK_MINOR);
	w->len = HEADER_BYTES;
	w->count = 0;
	rc = ckpt_sys.random(w->data + HEADER_NAME, CKPT_SHA256_LEN);
	ckpt_sha256_begin(&w->sum);
	ckpt_sha256_add(&w->sum, w->data, HEADER_BYTES);
	return rc;
}

int ckpt_pack_writer_new(struct ckpt_pack_writer **ret_writer)
{
	struct ckpt_pack_writer *w = ckpt_calloc(1, sizeof(*w));
	int rc = w ? begin(w) : -ENOMEM;

	if (rc)
		ckpt_pack_writer_free(w);
	else
		*ret_writer = w;
	return rc;
}

void ckpt_pack_writer_free(struct ckpt_pack_writer *w)
{
	if (!w)
		return;
	free(w->data);
	free(w->rows);
	free(w);
}

const uint8_t *ckpt_pack_writer_name(const struct ckpt_pack_writer *w)
{
	return w->data + HEADER_NAME;
}

uint64_t ckpt_pack_writer_bytes(const struct ckpt_pack_writer *w)
{
	return w->count ? w->len + w->count * ROW_BYTES + TAIL_BYTES : 0;
}

// Piece by piece: what was copied is still in the processor's cache when it is hashed. check: bytes that may have the chunk's id, or NULL.
static int copy(uint8_t *to, const uint8_t *stored, const uint8_t *check, const struct ckpt_chunk *chunk,
		struct ckpt_sha256 *sum)
{
	uint8_t id[CKPT_SHA256_LEN];
	struct ckpt_sha256 of_id;
	size_t len;

	ckpt_sha256_begin(&of_id);
	for (size_t at = 0; at < chunk->how.bytes; at += len) {
		len = MIN(PIECE_BYTES, chunk->how.bytes - at);
		memcpy(to + at, stored + at, len);
		if (check)
			ckpt_sha256_add_both(sum, to + at, len, &of_id, check + at, len);
		else
			ckpt_sha256_add(sum, to + at, len);
	}
	if (!check)
		return 0;
	ckpt_sha256_add(&of_id, check + chunk->how.bytes, chunk->bytes - chunk->how.bytes); // plain bytes are not fewer
	ckpt_sha256_end(&of_id, id);
	return memcmp(id, chunk->id, sizeof(id)) ? -EBADMSG : 0;
}

int ckpt_pack_writer_add(struct ckpt_pack_writer *w, struct ckpt_chunk *chunk, const void *stored, const void *plain)
{
	struct ckpt_sha256 sum = w->sum;
	bool as_it_is = chunk->how.codec == CKPT_CODEC_NONE;
	uint8_t *row;
	int rc;

	assert(ckpt_encoded_ok(&chunk->how, chunk->bytes));
	if (ckpt_pack_writer_bytes(w) + chunk->how.bytes + ROW_BYTES > CKPT_PACK_BYTES_MAX)
		return -EFBIG;
	// The rows and the tail will stand behind the chunks.
	rc = ckpt_grow((void **)&w->data, &w->cap, w->len + chunk->how.bytes + (w->count + 1) * ROW_BYTES + TAIL_BYTES,
		       1);
	if (!rc)
		rc = ckpt_grow((void **)&w->rows, &w->rows_cap, w->count + 1, ROW_BYTES);
	if (rc)
		return rc;
	rc = copy(w->data + w->len, stored, plain && as_it_is ? w->data + w->len : plain, chunk, &sum);
	if (rc)
		return rc;
	chunk->offset = w->len;
	w->sum = sum;
	w->len += chunk->how.bytes;
	row = w->rows + w->count++ * ROW_BYTES;
	memset(row, 0, ROW_BYTES);
	memcpy(row + ROW_ID, chunk->id, sizeof(chunk->id));
	ckpt_put64(row + ROW_OFFSET, chunk->offset);
	ckpt_put32(row + ROW_LEN, chunk->bytes);
	ckpt_put32(row + ROW_STORED, chunk->how.bytes);
	ckpt_put16(row + ROW_CODEC, (uint16_t)chunk->how.codec);
	ckpt_put16(row + ROW_WIDTH, (uint16_t)chunk->how.width);
	ckpt_put64(row + ROW_CHECKSUM, ckpt_checksum(stored, chunk->how.bytes, 0));
	return 0;
}

// tail: all before the checksum.
static uint64_t table_checksum(const uint8_t *header, const uint8_t *rows, size_t rows_len, const uint8_t *tail)
{
	return ckpt_checksum(tail, TAIL_CHECKSUM,
			     ckpt_checksum(rows, rows_len, ckpt_checksum(header, HEADER_BYTES, 0)));
}

int ckpt_pack_writer_put(struct ckpt_pack_writer *w, struct ckpt_objects *b, struct ckpt_pack *ret_pack,
			 uint8_t *ret_sha256)
{
	size_t rows_len = w->count * ROW_BYTES;
	uint8_t *rows = w->data + w->len, *tail = rows + rows_len;
	struct ckpt_pack pack = {.bytes = ckpt_pack_writer_bytes(w)};
	struct ckpt_sha256 sum = w->sum, all; // it is put again after a failure
	char key[CKPT_PACK_KEY_MAX];
	int rc;

	assert(w->count);
	memcpy(rows, w->rows, rows_len);
	memset(tail, 0, TAIL_BYTES);
	ckpt_put32(tail + TAIL_COUNT, (uint32_t)w->count);
	ckpt_put64(tail + TAIL_TABLE, w->len);
	ckpt_sha256_add(&sum, rows, rows_len + TAIL_DIGEST);
	all = sum;
	ckpt_sha256_end(&sum, pack.digest);
	memcpy(tail + TAIL_DIGEST, pack.digest, sizeof(pack.digest));
	ckpt_put64(tail + TAIL_CHECKSUM, table_checksum(w->data, rows, rows_len, tail));
	ckpt_sha256_add(&all, tail + TAIL_DIGEST, TAIL_BYTES - TAIL_DIGEST);
	if (ret_sha256)
		ckpt_sha256_end(&all, ret_sha256);
	memcpy(pack.id, w->data + HEADER_NAME, sizeof(pack.id));
	ckpt_pack_key(pack.id, key);
	rc = ckpt_objects_put(b, key, w->data, pack.bytes, NULL);
	if (!rc)
		*ret_pack = pack;
	return rc ? rc : begin(w);
}

// --- Reading ------------------------------------------------------------------------------------------------------------

void ckpt_pack_key(const uint8_t id[CKPT_SHA256_LEN], char ret_key[CKPT_PACK_KEY_MAX])
{
	memcpy(ret_key, "packs/", sizeof("packs/"));
	ckpt_hex(id, CKPT_SHA256_LEN, ret_key + strlen("packs/"));
}

bool ckpt_pack_of_key(const char *key, uint8_t ret_id[CKPT_SHA256_LEN])
{
	const char *hex = key + strlen("packs/");

	return !strncmp(key, "packs/", strlen("packs/")) && !ckpt_unhex(hex, CKPT_SHA256_LEN, ret_id);
}

// All of a range, which the pack has if it is as long as it should be.
static int get(struct ckpt_objects *b, const struct ckpt_pack *pack, uint64_t offset, void *buf, size_t len)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;
	size_t got;
	int rc;

	ckpt_pack_key(pack->id, key);
	rc = ckpt_objects_get(b, key, offset, buf, len, &got, &object);
	return rc ? rc : got == len && object.bytes == pack->bytes ? 0 : -EBADMSG;
}

int ckpt_pack_decode(const struct ckpt_chunk *chunk, struct ckpt_codec *codec, const void *stored, const void *base,
		     void *plain)
{
	uint8_t id[CKPT_SHA256_LEN];
	int rc = stored == plain ? 0 : ckpt_codec_decode_beside(codec, &chunk->how, stored, base, plain, chunk->bytes);

	if (rc)
		return rc;
	ckpt_sha256(plain, chunk->bytes, id);
	return memcmp(id, chunk->id, sizeof(id)) ? -EBADMSG : 0;
}

int ckpt_pack_read(struct ckpt_objects *b, const struct ckpt_pack *pack, const struct ckpt_chunk *chunk,
		   struct ckpt_codec *codec, const void *base, void *plain)
{
	bool as_it_is = chunk->how.codec == CKPT_CODEC_NONE;
	void *stored = as_it_is ? plain : ckpt_codec_room(codec, chunk->how.bytes);
	int rc = stored ? get(b, pack, chunk->offset, stored, chunk->how.bytes) : -ENOMEM;

	return rc ? rc : ckpt_pack_decode(chunk, codec, stored, base, plain);
}

int ckpt_pack_read_stored(struct ckpt_objects *b, const struct ckpt_pack *pack, const struct ckpt_chunk *chunk,
			  void *stored)
{
	return get(b, pack, chunk->offset, stored, chunk->how.bytes);
}

// Where its table begins, by its tail.
static int table_at(const struct ckpt_pack *pack, const uint8_t *tail, uint64_t *ret_at)
{
	uint64_t len = (uint64_t)ckpt_get32(tail + TAIL_COUNT) * ROW_BYTES;

	*ret_at = ckpt_get64(tail + TAIL_TABLE);
	return !len || len > pack->bytes - HEADER_BYTES - TAIL_BYTES || *ret_at != pack->bytes - TAIL_BYTES - len
		       ? -EBADMSG
		       : 0;
}

static bool has_good_size(const struct ckpt_pack *pack)
{
	return pack->bytes >= HEADER_BYTES + ROW_BYTES + TAIL_BYTES && pack->bytes <= CKPT_PACK_BYTES_MAX;
}

int ckpt_pack_chunk_bytes(struct ckpt_objects *b, const struct ckpt_pack *pack, uint64_t *ret_bytes)
{
	uint8_t tail[TAIL_BYTES];
	uint64_t at;
	int rc = has_good_size(pack) ? get(b, pack, pack->bytes - TAIL_BYTES, tail, sizeof(tail)) : -EBADMSG;

	if (!rc)
		rc = table_at(pack, tail, &at);
	if (!rc)
		*ret_bytes = at - HEADER_BYTES;
	return rc;
}

static int parse_header(const uint8_t *h)
{
	if (memcmp(h + HEADER_MAGIC, magic, sizeof(magic)))
		return -EBADMSG;
	if (ckpt_get16(h + HEADER_MAJOR) > PACK_MAJOR)
		return -ENOTSUP;
	return ckpt_get16(h + HEADER_MAJOR) < PACK_MAJOR || ckpt_get32(h + HEADER_ZERO) ? -EBADMSG : 0;
}

// A row whose chunk stands where the one before ends.
static int parse_row(const uint8_t *row, uint64_t at, uint64_t end, struct ckpt_chunk *ret_chunk)
{
	struct ckpt_chunk c = {
		.bytes = ckpt_get32(row + ROW_LEN),
		.offset = ckpt_get64(row + ROW_OFFSET),
		.how = {ckpt_get16(row + ROW_CODEC), ckpt_get16(row + ROW_WIDTH), ckpt_get32(row + ROW_STORED)},
	};

	if (c.offset != at || c.how.bytes > end - at || !ckpt_encoded_ok(&c.how, c.bytes) || ckpt_get32(row + ROW_ZERO))
		return -EBADMSG;
	memcpy(c.id, row + ROW_ID, sizeof(c.id));
	*ret_chunk = c;
	return 0;
}

static int parse_table(const uint8_t *table, uint32_t count, uint64_t end, struct ckpt_chunk *chunks)
{
	uint64_t at = HEADER_BYTES;

	for (uint32_t i = 0; i < count; i++) {
		int rc = parse_row(table + (size_t)i * ROW_BYTES, at, end, &chunks[i]);

		if (rc)
			return rc;
		at += chunks[i].how.bytes;
	}
	return at == end ? 0 : -EBADMSG;
}

// A pack's table of its chunks, checked.
struct table {
	uint8_t header[HEADER_BYTES], tail[TAIL_BYTES];
	uint8_t *rows; // as they stand there
	struct ckpt_chunk *chunks;
	size_t count;
};

static void table_done(struct table *t)
{
	free(t->rows);
	free(t->chunks);
}

static int check_table(const struct ckpt_pack *pack, const struct table *t)
{
	static const uint8_t unknown[CKPT_SHA256_LEN];
	bool is_known = memcmp(pack->digest, unknown, sizeof(unknown));

	if (ckpt_get64(t->tail + TAIL_CHECKSUM) != table_checksum(t->header, t->rows, t->count * ROW_BYTES, t->tail) ||
	    ckpt_get32(t->tail + TAIL_ZERO))
		return -EBADMSG;
	if (memcmp(t->header + HEADER_NAME, pack->id, sizeof(pack->id)))
		return -EMEDIUMTYPE;
	return is_known && memcmp(t->tail + TAIL_DIGEST, pack->digest, sizeof(pack->digest)) ? -EBADMSG : 0;
}

static int read_table(struct ckpt_objects *b, const struct ckpt_pack *pack, struct table *t)
{
	uint64_t at;
	int rc = has_good_size(pack) ? get(b, pack, 0, t->header, sizeof(t->header)) : -EBADMSG;

	if (!rc)
		rc = parse_header(t->header);
	if (!rc)
		rc = get(b, pack, pack->bytes - TAIL_BYTES, t->tail, sizeof(t->tail));
	if (!rc)
		rc = table_at(pack, t->tail, &at);
	if (rc)
		return rc;
	t->count = ckpt_get32(t->tail + TAIL_COUNT);
	t->rows = malloc(t->count * ROW_BYTES);
	t->chunks = ckpt_calloc(t->count, sizeof(*t->chunks));
	if (!t->rows || !t->chunks)
		return -ENOMEM;
	rc = get(b, pack, at, t->rows, t->count * ROW_BYTES);
	if (!rc)
		rc = check_table(pack, t);
	return rc ? rc : parse_table(t->rows, (uint32_t)t->count, at, t->chunks);
}

int ckpt_pack_table(struct ckpt_objects *b, struct ckpt_pack *pack, struct ckpt_chunk **ret_chunks, size_t *ret_count)
{
	struct table t = {0};
	int rc = read_table(b, pack, &t);

	if (!rc) {
		memcpy(pack->digest, t.tail + TAIL_DIGEST, sizeof(pack->digest));
		*ret_chunks = TAKE_PTR(t.chunks);
		*ret_count = t.count;
	}
	table_done(&t);
	return rc;
}

// All stored chunks, which follow each other from the header to the rows.
static int check_chunks(struct ckpt_objects *b, const struct ckpt_pack *pack, const struct table *t,
			struct ckpt_sha256 *sum, struct ckpt_chunk *ret_bad)
{
	CLEANUP_FREE uint8_t *stored = NULL;
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < t->count && !rc; i++) {
		const struct ckpt_chunk *c = &t->chunks[i];

		rc = ckpt_grow((void **)&stored, &cap, c->how.bytes, 1);
		if (!rc)
			rc = get(b, pack, c->offset, stored, c->how.bytes);
		if (!rc &&
		    ckpt_checksum(stored, c->how.bytes, 0) != ckpt_get64(t->rows + i * ROW_BYTES + ROW_CHECKSUM)) {
			*ret_bad = *c;
			rc = -EBADMSG;
		}
		if (!rc)
			ckpt_sha256_add(sum, stored, c->how.bytes);
	}
	return rc;
}

int ckpt_pack_check(struct ckpt_objects *b, const struct ckpt_pack *pack, struct ckpt_chunk *ret_bad)
{
	uint8_t digest[CKPT_SHA256_LEN];
	struct ckpt_sha256 sum;
	struct table t = {0};
	int rc = read_table(b, pack, &t);

	*ret_bad = (struct ckpt_chunk){0};
	ckpt_sha256_begin(&sum);
	ckpt_sha256_add(&sum, t.header, sizeof(t.header));
	if (!rc)
		rc = check_chunks(b, pack, &t, &sum, ret_bad);
	if (!rc) {
		ckpt_sha256_add(&sum, t.rows, t.count * ROW_BYTES);
		ckpt_sha256_add(&sum, t.tail, TAIL_DIGEST);
		ckpt_sha256_end(&sum, digest);
		rc = memcmp(digest, t.tail + TAIL_DIGEST, sizeof(digest)) ? -EBADMSG : 0;
	}
	table_done(&t);
	return rc;
}
