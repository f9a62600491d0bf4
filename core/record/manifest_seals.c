#include "core/base/util.h"
#include "core/record/manifest_layout.h"
#include "core/record/manifest_parsed.h"

#include <assert.h>

// The reader of what a manifest says of the bytes of files: seals, their chunks, and where those are.
//
// Why what is parsed is safe, beyond manifest.c:
//  1. Seals: strictly sorted by entry, each of the first name of a file with bytes; their chunks follow each other without a
//     gap, so that none is added up twice. A file that is stored as chunks has a seal, and all of its chunks are in packs.
//  2. Bases: a walk over the chunks in their order meets each row once, and none outside of the table. A chunk and all below it
//     are no deeper than the limit, and none is its own base.

static int check_packs(const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < m->packs.count; i++) {
		const uint8_t *p = ckpt_table_row(&m->packs, i, PACK_BYTES);

		if (ckpt_get64(p + PACK_ZERO) || ckpt_get64(p + PACK_LEN) > INT64_MAX)
			return -EBADMSG;
		if (i && memcmp(p - PACK_BYTES, p, CKPT_SHA256_LEN) >= 0)
			return -EBADMSG;
	}
	return 0;
}

// A chunk of which no more is known than what it is.
static bool is_unpacked(const uint8_t *c)
{
	static const uint8_t zero[CHUNK_BYTES];

	return ckpt_get32(c + CHUNK_PACK) == CHUNK_NO_PACK &&
	       !memcmp(c + CHUNK_OFFSET, zero, CHUNK_LEN - CHUNK_OFFSET) && !ckpt_get32(c + CHUNK_STORED) &&
	       !memcmp(c + CHUNK_BASE, zero, CHUNK_BYTES - CHUNK_BASE);
}

static bool packed_ok(const struct ckpt_manifest *m, const uint8_t *c)
{
	const struct ckpt_encoded how = {ckpt_get16(c + CHUNK_CODEC), ckpt_get16(c + CHUNK_WIDTH),
					 ckpt_get32(c + CHUNK_STORED)};
	uint32_t pack = ckpt_get32(c + CHUNK_PACK);
	uint64_t end;

	return pack < m->packs.count && !ckpt_get32(c + CHUNK_ZERO) &&
	       ckpt_encoded_ok(&how, ckpt_get32(c + CHUNK_LEN)) &&
	       !__builtin_add_overflow(ckpt_get64(c + CHUNK_OFFSET), how.bytes, &end) &&
	       end <= ckpt_get64(ckpt_table_row(&m->packs, pack, PACK_BYTES) + PACK_LEN);
}

// --- Bases --------------------------------------------------------------------------------------------------------------

// A chunk, and what is decoded beside it.
struct lean {
	const uint8_t *chunk;
	const struct lean *above;
};

static uint32_t base_bytes(const uint8_t *c)
{
	uint32_t len = ckpt_get32(c + CHUNK_LEN);

	return len <= CKPT_BASED_BYTES_MAX ? ckpt_codec_base_bytes(ckpt_get16(c + CHUNK_CODEC), len) : 0;
}

// How many rows from `first` on have just so many plain bytes together; 0: none, or too many.
static uint32_t count_bases(const struct ckpt_manifest *m, uint32_t first, uint32_t bytes)
{
	for (uint32_t n = 0; n < CKPT_BASE_PIECES_MAX && n < m->bases.count - first; n++) {
		uint32_t len = ckpt_get32(ckpt_table_row(&m->bases, first + n, CHUNK_BYTES) + CHUNK_LEN);

		if (len > bytes)
			return 0;
		bytes -= len;
		if (!bytes)
			return n + 1;
	}
	return 0;
}

static bool is_same(const uint8_t *c, const uint8_t *other)
{
	return !memcmp(c + CHUNK_ID, other + CHUNK_ID, CKPT_SHA256_LEN);
}

static bool is_known_above(const struct lean *l, const uint8_t *c)
{
	while (l && !is_same(l->chunk, c))
		l = l->above;
	return l;
}

// Two pieces of one base may be the same bytes, but then they are as long.
static bool is_other_piece(const uint8_t *c, const uint8_t *before)
{
	return !is_same(c, before) || ckpt_get32(c + CHUNK_LEN) == ckpt_get32(before + CHUNK_LEN);
}

// What a chunk needs stands where the one before ended, each base of it with its own behind all of them: no row is met twice, so
// that there are no cycles and the work is bounded by the length of the table.
static bool bases_ok(const struct ckpt_manifest *m, const struct lean *l, unsigned depth, uint32_t *next)
{
	uint32_t bytes = base_bytes(l->chunk), first = *next, count;

	if (!bytes)
		return !ckpt_get32(l->chunk + CHUNK_BASE);
	count = depth < CKPT_BASE_DEPTH_MAX ? count_bases(m, first, bytes) : 0;
	if (!count || ckpt_get32(l->chunk + CHUNK_BASE) != first + 1)
		return false;
	*next += count;
	for (uint32_t i = first; i < first + count; i++) {
		const struct lean base = {ckpt_table_row(&m->bases, i, CHUNK_BYTES), l};

		if (is_known_above(l, base.chunk) || !packed_ok(m, base.chunk) ||
		    (i > first && !is_other_piece(base.chunk, base.chunk - CHUNK_BYTES)) ||
		    !bases_ok(m, &base, depth + 1, next))
			return false;
	}
	return true;
}

// --- Seals --------------------------------------------------------------------------------------------------------------

// The chunks of a seal are as long as the file together, and all of them are in packs just where the file's content says so.
static bool chunks_ok(const struct ckpt_manifest *m, const uint8_t *seal, uint64_t bytes, bool packed,
		      uint32_t *next_base)
{
	uint32_t first = ckpt_get32(seal + SEAL_FIRST), count = ckpt_get32(seal + SEAL_COUNT);
	bool are_packed = true;

	for (uint32_t i = first; i < first + count; i++) {
		const uint8_t *c = ckpt_table_row(&m->chunks, i, CHUNK_BYTES);
		uint32_t len = ckpt_get32(c + CHUNK_LEN);

		if (!len || len > CKPT_CHUNK_BYTES_MAX || len > bytes)
			return false;
		if (is_unpacked(c))
			are_packed = false;
		else if (!packed_ok(m, c) || !bases_ok(m, &(struct lean){.chunk = c}, 0, next_base))
			return false;
		bytes -= len;
	}
	return !bytes && are_packed == packed;
}

static int check_seals(const struct ckpt_manifest *m)
{
	uint32_t next_entry = 0, next = 0, next_base = 0, packed_files = 0;

	for (uint32_t i = 0; i < m->seals.count; i++) {
		const uint8_t *s = ckpt_table_row(&m->seals, i, SEAL_BYTES), *e;
		uint32_t entry = ckpt_get32(s + SEAL_ENTRY), count = ckpt_get32(s + SEAL_COUNT);

		if (entry < next_entry || entry >= m->entries.count || ckpt_get32(s + SEAL_ZERO))
			return -EBADMSG;
		e = ckpt_manifest_entry_at(m, entry);
		if (e[ENTRY_TYPE] != CKPT_ENTRY_FILE || !ckpt_get64(e + ENTRY_SIZE) ||
		    ckpt_manifest_first_link(m, entry) != entry)
			return -EBADMSG;
		if (ckpt_get32(s + SEAL_FIRST) != next || count > m->chunks.count - next ||
		    !chunks_ok(m, s, ckpt_get64(e + ENTRY_SIZE), e[ENTRY_CONTENT] == CKPT_CONTENT_CHUNKS, &next_base))
			return -EBADMSG;
		packed_files += e[ENTRY_CONTENT] == CKPT_CONTENT_CHUNKS;
		next_entry = entry + 1;
		next += count;
	}
	return next == m->chunks.count && next_base == m->bases.count && packed_files == m->packed_files ? 0 : -EBADMSG;
}

int ckpt_manifest_check_seals(const struct ckpt_manifest *m)
{
	return check_packs(m) || check_seals(m) ? -EBADMSG : 0;
}

// --- What is known of files ---------------------------------------------------------------------------------------------

bool ckpt_manifest_seal(const struct ckpt_manifest *m, uint32_t index, struct ckpt_seal *ret_seal)
{
	uint32_t low = 0, high = m->seals.count;

	assert(index < m->entries.count);
	if (!high)
		return false;
	index = ckpt_manifest_first_link(m, index);
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (ckpt_get32(ckpt_table_row(&m->seals, middle, SEAL_BYTES) + SEAL_ENTRY) < index)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == m->seals.count || ckpt_get32(ckpt_table_row(&m->seals, low, SEAL_BYTES) + SEAL_ENTRY) != index)
		return false;
	const uint8_t *s = ckpt_table_row(&m->seals, low, SEAL_BYTES);

	memcpy(ret_seal->sha256, s + SEAL_SHA256, CKPT_SHA256_LEN);
	ret_seal->first = ckpt_get32(s + SEAL_FIRST);
	ret_seal->count = ckpt_get32(s + SEAL_COUNT);
	return true;
}

uint32_t ckpt_manifest_chunk_count(const struct ckpt_manifest *m)
{
	return m->chunks.count;
}

static void read_chunk(const struct ckpt_manifest *m, const uint8_t *c, struct ckpt_chunk *ret_chunk)
{
	uint32_t base = ckpt_get32(c + CHUNK_BASE);

	*ret_chunk = (struct ckpt_chunk){
		.bytes = ckpt_get32(c + CHUNK_LEN),
		.pack = ckpt_get32(c + CHUNK_PACK) + 1, // CHUNK_NO_PACK is 0
		.offset = ckpt_get64(c + CHUNK_OFFSET),
		.how = {ckpt_get16(c + CHUNK_CODEC), ckpt_get16(c + CHUNK_WIDTH), ckpt_get32(c + CHUNK_STORED)},
		.base = base,
		.base_count = base ? count_bases(m, base - 1, base_bytes(c)) : 0,
	};
	memcpy(ret_chunk->id, c + CHUNK_ID, CKPT_SHA256_LEN);
}

void ckpt_manifest_chunk(const struct ckpt_manifest *m, uint32_t chunk, struct ckpt_chunk *ret_chunk)
{
	assert(chunk < m->chunks.count);
	read_chunk(m, ckpt_table_row(&m->chunks, chunk, CHUNK_BYTES), ret_chunk);
}

void ckpt_manifest_base(const struct ckpt_manifest *m, uint32_t base, struct ckpt_chunk *ret_chunk)
{
	assert(base < m->bases.count);
	read_chunk(m, ckpt_table_row(&m->bases, base, CHUNK_BYTES), ret_chunk);
}

uint32_t ckpt_manifest_pack_count(const struct ckpt_manifest *m)
{
	return m->packs.count;
}

void ckpt_manifest_pack(const struct ckpt_manifest *m, uint32_t pack, struct ckpt_pack *ret_pack)
{
	assert(pack < m->packs.count);
	const uint8_t *p = ckpt_table_row(&m->packs, pack, PACK_BYTES);

	memcpy(ret_pack->id, p + PACK_ID, CKPT_SHA256_LEN);
	ret_pack->bytes = ckpt_get64(p + PACK_LEN);
	memcpy(ret_pack->digest, p + PACK_DIGEST, CKPT_SHA256_LEN);
}

bool ckpt_manifest_is_sealed(const struct ckpt_manifest *m)
{
	return m->seals.count == m->files_with_bytes;
}

bool ckpt_manifest_is_packed(const struct ckpt_manifest *m)
{
	return m->packed_files > 0;
}
