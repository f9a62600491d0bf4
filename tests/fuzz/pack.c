// Hostile packs. Each input is tried as it is and with its digest, its checksum, and where its table is, made right: then what the rows say of
// the chunks is what is hostile.

#include "tests/fuzz/replay.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/cold/pack.h"

#define HEADER 48
#define HEADER_NAME 16
#define ROW 64
#define TAIL 56
#define TAIL_BEFORE_DIGEST 16
#define TAIL_BEFORE_CHECKSUM 48
#define PLAIN_MAX (1u << 20) // of a chunk that is tried: to be faster

static struct ckpt_objects *objects;
static struct ckpt_codec *codec;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_assert(!ckpt_mem_new(&objects));
	fuzz_assert(!ckpt_codec_new(&codec));
	return 0;
}

// What the rows say is read; the ids are not those of the bytes, unless an input has found them.
static void read_chunks(const struct ckpt_pack *pack, const struct ckpt_chunk *chunks, size_t count)
{
	uint64_t end = 0;

	for (size_t i = 0; i < count; i++) {
		const struct ckpt_chunk *c = &chunks[i];
		CLEANUP_FREE uint8_t *plain = c->bytes <= PLAIN_MAX ? malloc(c->bytes) : NULL;
		uint8_t id[CKPT_SHA256_LEN];

		fuzz_assert(ckpt_encoded_ok(&c->how, c->bytes) && c->offset >= end);
		end = c->offset + c->how.bytes;
		fuzz_assert(end <= pack->bytes);
		if (!plain || ckpt_pack_read(objects, pack, c, codec, NULL, plain))
			continue;
		ckpt_sha256(plain, c->bytes, id);
		fuzz_assert(!memcmp(id, c->id, sizeof(id)));
	}
}

static void try_pack(const uint8_t *data, size_t len)
{
	struct ckpt_pack pack = {.bytes = len};
	struct ckpt_chunk *chunks, bad;
	char key[CKPT_PACK_KEY_MAX];
	uint64_t chunk_bytes = 0;
	size_t count;
	int rc;

	memcpy(pack.id, data + HEADER_NAME, sizeof(pack.id));
	ckpt_pack_key(pack.id, key);
	fuzz_assert(!ckpt_objects_put(objects, key, data, len, NULL));
	rc = ckpt_pack_chunk_bytes(objects, &pack, &chunk_bytes);
	fuzz_assert(chunk_bytes < len);
	if (!ckpt_pack_table(objects, &pack, &chunks, &count)) {
		fuzz_assert(count && !rc &&
			    chunks[count - 1].offset + chunks[count - 1].how.bytes == HEADER + chunk_bytes);
		read_chunks(&pack, chunks, count);
		free(chunks);
		(void)ckpt_pack_check(objects, &pack, &bad);
	} else {
		fuzz_assert(ckpt_pack_check(objects, &pack, &bad));
	}
	fuzz_assert(!ckpt_objects_remove(objects, key));
}

static void mend(uint8_t *data, size_t len)
{
	uint8_t *tail = data + len - TAIL;
	uint64_t rows = ckpt_get32(tail) % ((len - HEADER - TAIL) / ROW) + 1, table = len - TAIL - rows * ROW;

	ckpt_put64(tail, rows);
	ckpt_put64(tail + 8, table);
	ckpt_sha256(data, len - TAIL + TAIL_BEFORE_DIGEST, tail + TAIL_BEFORE_DIGEST);
	ckpt_put64(tail + TAIL_BEFORE_CHECKSUM,
		   ckpt_checksum(tail, TAIL_BEFORE_CHECKSUM,
				 ckpt_checksum(data + table, rows * ROW, ckpt_checksum(data, HEADER, 0))));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	CLEANUP_FREE uint8_t *copy = malloc(len ? len : 1);

	if (!copy || len < HEADER + ROW + TAIL || len > PLAIN_MAX)
		return 0;
	try_pack(data, len);
	memcpy(copy, data, len);
	mend(copy, len);
	try_pack(copy, len);
	return 0;
}
