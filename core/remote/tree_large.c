#include "core/remote/tree_large.h"

#include "core/base/source.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/pack.h"
#include "core/remote/tree_look.h"

#include <stdio.h>
#include <sys/stat.h>

#define PACK_BYTES (UINT64_C(64) << 20)
#define MANIFEST_KEY_MAX (sizeof("m/") + CKPT_SHA256_HEX_LEN)

static void key_of(const uint8_t sha256[CKPT_SHA256_LEN], char ret_key[MANIFEST_KEY_MAX])
{
	strcpy(ret_key, "m/");
	ckpt_hex(sha256, CKPT_SHA256_LEN, ret_key + strlen(ret_key));
}

static bool goes_on(const struct ckpt_tree_pace *pace, uint64_t bytes)
{
	return !pace || pace->go_on(pace->arg, bytes);
}

static int read_manifest(struct ckpt_objects *there, const struct ckpt_plain_large *is, struct ckpt_manifest **ret)
{
	struct ckpt_manifest *m;
	char key[MANIFEST_KEY_MAX];
	void *data;
	size_t len;
	int rc;

	key_of(is->manifest, key);
	rc = ckpt_objects_get_all(there, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	if (!rc)
		rc = ckpt_manifest_parse(data, len, &m);
	if (rc)
		return rc;
	if (memcmp(ckpt_manifest_sha256(m), is->manifest, CKPT_SHA256_LEN)) {
		ckpt_manifest_unref(m);
		return -EBADMSG;
	}
	*ret = m;
	return 0;
}

// --- Putting ------------------------------------------------------------------------------------------------------------

struct putting {
	struct ckpt_objects *there;
	const struct ckpt_tree_pace *pace;
	struct ckpt_source source;
	struct ckpt_codec *codec;
	struct ckpt_pack_writer *writer;
	struct ckpt_manifest *before; // NULL: there is none
	uint8_t *plain, *stored;
	struct ckpt_sha256 sum;
	struct ckpt_chunk *chunks;
	size_t count, cap, put; // put: so many of them have their pack
	struct ckpt_pack *packs;
	size_t pack_count, pack_cap;
};

static void putting_done(struct putting *p)
{
	ckpt_codec_free(p->codec);
	ckpt_pack_writer_free(p->writer);
	ckpt_manifest_unref(p->before);
	free(p->plain);
	free(p->stored);
	free(p->chunks);
	free(p->packs);
}

static int add_pack(struct putting *p, const struct ckpt_pack *pack, uint32_t *ret_row)
{
	int rc;

	for (size_t i = 0; i < p->pack_count; i++)
		if (!memcmp(p->packs[i].id, pack->id, sizeof(pack->id))) {
			*ret_row = (uint32_t)i + 1;
			return 0;
		}
	rc = ckpt_grow((void **)&p->packs, &p->pack_cap, p->pack_count + 1, sizeof(*p->packs));
	if (!rc)
		p->packs[p->pack_count++] = *pack;
	*ret_row = (uint32_t)p->pack_count;
	return rc;
}

static int put_pack(struct putting *p)
{
	struct ckpt_pack pack;
	uint32_t row;
	int rc = ckpt_pack_writer_bytes(p->writer) ? ckpt_pack_writer_put(p->writer, p->there, &pack, NULL) : 1;

	if (!rc)
		rc = add_pack(p, &pack, &row);
	for (; !rc && p->put < p->count; p->put++)
		if (!p->chunks[p->put].pack)
			p->chunks[p->put].pack = row;
	return MIN(rc, 0);
}

// One that was put just now, or stands in the version before: 1, it needs no place.
static int find_chunk(struct putting *p, struct ckpt_chunk *chunk)
{
	uint32_t count = p->before ? ckpt_manifest_chunk_count(p->before) : 0;
	struct ckpt_pack pack;
	struct ckpt_chunk was;
	int rc;

	for (size_t i = 0; i < p->count; i++)
		if (!memcmp(p->chunks[i].id, chunk->id, sizeof(chunk->id))) {
			*chunk = p->chunks[i];
			return 1;
		}
	for (uint32_t i = 0; i < count; i++) {
		ckpt_manifest_chunk(p->before, i, &was);
		if (memcmp(was.id, chunk->id, sizeof(was.id)) || was.base_count)
			continue;
		ckpt_manifest_pack(p->before, was.pack - 1, &pack);
		*chunk = was;
		rc = add_pack(p, &pack, &chunk->pack);
		return rc ? rc : 1;
	}
	return 0;
}

static int put_chunk(struct putting *p, struct ckpt_chunk *chunk)
{
	int rc = ckpt_codec_encode(p->codec, p->plain, chunk->bytes, 0, p->stored, &chunk->how);

	if (!rc && ckpt_pack_writer_bytes(p->writer) + chunk->how.bytes > PACK_BYTES)
		rc = put_pack(p);
	return rc ? rc : ckpt_pack_writer_add(p->writer, chunk, p->stored, NULL);
}

static int take_chunk(struct putting *p, uint64_t at, uint32_t bytes)
{
	struct ckpt_chunk chunk = {.bytes = bytes};
	struct ckpt_sha256 id;
	int rc = ckpt_source_read(&p->source, at, p->plain, bytes);

	if (rc)
		return rc == -ENODATA ? -EAGAIN : rc;
	ckpt_sha256_begin(&id);
	ckpt_sha256_add_both(&id, p->plain, bytes, &p->sum, p->plain, bytes);
	ckpt_sha256_end(&id, chunk.id);
	rc = ckpt_grow((void **)&p->chunks, &p->cap, p->count + 1, sizeof(*p->chunks));
	if (!rc)
		rc = find_chunk(p, &chunk);
	if (!rc)
		rc = put_chunk(p, &chunk);
	if (rc >= 0)
		p->chunks[p->count++] = chunk;
	if (rc >= 0 && !goes_on(p->pace, bytes))
		return -EINTR;
	return MIN(rc, 0);
}

static int put_chunks(struct putting *p)
{
	struct ckpt_cuts cuts = {0};
	int rc = ckpt_cuts_init(&cuts, &p->source);

	for (uint64_t at = 0; at < p->source.bytes && !rc;) {
		uint32_t bytes = ckpt_cuts_next(&cuts, at);

		rc = take_chunk(p, at, bytes);
		at += bytes;
	}
	ckpt_cuts_done(&cuts);
	return rc ? rc : put_pack(p);
}

// Chunks that are one row twice name their pack by the first, which has it by now.
static int write_chunks(struct putting *p, struct ckpt_manifest_writer *w)
{
	int rc = 0;

	for (size_t i = 0; i < p->count && !rc; i++) {
		struct ckpt_chunk chunk = p->chunks[i];

		rc = ckpt_manifest_writer_pack(w, &p->packs[chunk.pack - 1], &chunk.pack);
		if (!rc)
			rc = ckpt_manifest_writer_chunk(w, &chunk);
	}
	return rc;
}

static int make_manifest(struct putting *p, const struct ckpt_plain_large *is, void **ret_data, size_t *ret_len)
{
	struct ckpt_entry top = {.type = CKPT_ENTRY_DIR, .name = "", .mode = 0700, .nlink = 2, .ino = 1};
	struct ckpt_entry file = {.type = CKPT_ENTRY_FILE,
				  .content = CKPT_CONTENT_CHUNKS,
				  .name = "content",
				  .mode = 0600,
				  .nlink = 1,
				  .ino = 2,
				  .bytes = is->bytes};
	struct ckpt_manifest_writer *w;
	char session[CKPT_UUID_LEN + 1]; // of no directory: it makes the manifest a new one
	uint32_t root, handle;
	int rc = ckpt_uuid_make(session);

	if (!rc)
		rc = ckpt_manifest_writer_new(&w);
	if (rc)
		return rc;
	rc = ckpt_manifest_writer_session(w, session, &file.session);
	if (!rc)
		rc = ckpt_manifest_writer_add(w, 0, &top, &root);
	if (!rc)
		rc = ckpt_manifest_writer_add(w, root, &file, &handle);
	if (!rc)
		rc = ckpt_manifest_writer_seal(w, handle, is->sha256);
	if (!rc)
		rc = write_chunks(p, w);
	if (!rc)
		rc = ckpt_manifest_writer_finish(w, ret_data, ret_len);
	ckpt_manifest_writer_free(w);
	return rc;
}

static int put_manifest(struct putting *p, struct ckpt_plain_large *is)
{
	CLEANUP_FREE void *data = NULL;
	char key[MANIFEST_KEY_MAX];
	size_t len;
	int rc = make_manifest(p, is, &data, &len);

	if (rc)
		return rc;
	ckpt_sha256(data, len, is->manifest);
	key_of(is->manifest, key);
	rc = ckpt_objects_put(p->there, key, data, len, NULL);
	return rc == -EEXIST ? ckpt_objects_confirm(p->there, key, len) : rc;
}

static int putting_init(struct putting *p)
{
	int rc = ckpt_codec_new(&p->codec);

	if (!rc)
		rc = ckpt_pack_writer_new(&p->writer);
	p->plain = malloc(CKPT_CHUNK_BYTES);
	p->stored = malloc(CKPT_CHUNK_BYTES);
	ckpt_sha256_begin(&p->sum);
	return rc ? rc : p->plain && p->stored ? 0 : -ENOMEM;
}

int ckpt_tree_large_put(struct ckpt_objects *there, int fd, const struct ckpt_plain_large *before,
			const struct ckpt_tree_pace *pace, struct ckpt_plain_large *ret)
{
	CLEANUP(putting_done) struct putting p = {.there = there, .pace = pace};
	struct ckpt_tree_file was;
	struct stat st;
	int rc;

	if (fstat(fd, &st))
		return -errno;
	ckpt_tree_file(&st, &was);
	p.source = ckpt_source_file(fd, was.size);
	rc = putting_init(&p);
	if (!rc && before && read_manifest(there, before, &p.before) == -ENOMEM)
		rc = -ENOMEM;
	if (!rc)
		rc = put_chunks(&p);
	if (!rc && fstat(fd, &st))
		rc = -errno;
	if (!rc && !ckpt_tree_file_is(&was, &st))
		rc = -EAGAIN;
	if (rc)
		return rc;
	*ret = (struct ckpt_plain_large){.bytes = was.size};
	ckpt_sha256_end(&p.sum, ret->sha256);
	return put_manifest(&p, ret);
}

// --- Getting ------------------------------------------------------------------------------------------------------------

static int get_chunks(struct ckpt_objects *there, const struct ckpt_manifest *m, const struct ckpt_seal *seal, int fd,
		      const struct ckpt_tree_pace *pace, struct ckpt_sha256 *sum)
{
	CLEANUP_FREE uint8_t *plain = malloc(CKPT_CHUNK_BYTES_MAX);
	struct ckpt_codec *codec = NULL;
	int rc = plain ? ckpt_codec_new(&codec) : -ENOMEM;
	off_t at = 0;

	for (uint32_t i = 0; i < seal->count && !rc; i++) {
		struct ckpt_chunk chunk;
		ssize_t n;

		ckpt_manifest_chunk(m, seal->first + i, &chunk);
		rc = chunk.pack ? ckpt_chunk_read(there, m, &chunk, codec, plain) : -EBADMSG;
		n = rc ? 0 : ckpt_sys.pwrite(fd, plain, chunk.bytes, at);
		if (n < 0)
			rc = (int)n;
		ckpt_sha256_add(sum, plain, rc ? 0 : chunk.bytes);
		at += chunk.bytes;
		if (!rc && !goes_on(pace, chunk.bytes))
			rc = -EINTR;
	}
	ckpt_codec_free(codec);
	return rc;
}

int ckpt_tree_large_get(struct ckpt_objects *there, const struct ckpt_plain_large *is, int fd,
			const struct ckpt_tree_pace *pace)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_manifest *m;
	struct ckpt_sha256 sum;
	struct ckpt_seal seal;
	struct ckpt_entry e;
	uint32_t index;
	int rc = read_manifest(there, is, &m);

	if (rc)
		return rc;
	ckpt_sha256_begin(&sum);
	rc = ckpt_manifest_lookup(m, "content", &index) || !ckpt_manifest_seal(m, index, &seal) ? -EBADMSG : 0;
	if (!rc) {
		ckpt_manifest_entry(m, index, &e);
		rc = e.bytes != is->bytes ? -EBADMSG : get_chunks(there, m, &seal, fd, pace, &sum);
	}
	ckpt_manifest_unref(m);
	ckpt_sha256_end(&sum, sha256);
	return rc ? rc : memcmp(sha256, is->sha256, sizeof(sha256)) ? -EBADMSG : 0;
}
