#include "tests/support/formats.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/record/container.h"

#include <assert.h>
#include <stdio.h>

static uint32_t add(struct ckpt_manifest_writer *w, uint32_t parent, struct ckpt_entry entry)
{
	uint32_t handle = 0;
	int r = ckpt_manifest_writer_add(w, parent, &entry, &handle);

	assert(!r);
	return handle;
}

struct ckpt_manifest_writer *ckpt_sample_writer(void)
{
	struct ckpt_manifest_writer *w;

	assert(!ckpt_manifest_writer_new(&w));
	add(w, 0, (struct ckpt_entry){.type = CKPT_ENTRY_DIR, .name = "", .ino = 1});
	return w;
}

void ckpt_sample_manifest(void **ret_data, size_t *ret_len)
{
	struct ckpt_manifest_writer *w;
	uint32_t one, two, root, params, file, link;

	assert(!ckpt_manifest_writer_new(&w));
	assert(!ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &one));
	assert(!ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION_2, &two));
	root = add(w, 0, (struct ckpt_entry){.type = CKPT_ENTRY_DIR, .name = "", .mode = 0755, .nlink = 4, .ino = 1});
	params = add(w, root,
		     (struct ckpt_entry){.type = CKPT_ENTRY_DIR,
					 .name = "params",
					 .mode = 0750,
					 .nlink = 2,
					 .ino = 2,
					 .mtime_s = -5,
					 .mtime_ns = 999999999});
	add(w, root, (struct ckpt_entry){.type = CKPT_ENTRY_DIR, .name = "empty", .mode = 0700, .nlink = 2, .ino = 3});
	file = add(w, params,
		   (struct ckpt_entry){.type = CKPT_ENTRY_FILE,
				       .name = "w.bin",
				       .content = CKPT_CONTENT_RAW,
				       .session = one,
				       .mode = 0644,
				       .ino = 10,
				       .bytes = 4096});
	link = add(w, params,
		   (struct ckpt_entry){.type = CKPT_ENTRY_FILE,
				       .name = "v.bin",
				       .content = CKPT_CONTENT_RAW,
				       .session = one,
				       .raw_path = "params/w.bin",
				       .mode = 0600,
				       .ino = 10,
				       .bytes = 4096});
	add(w, root,
	    (struct ckpt_entry){.type = CKPT_ENTRY_FILE,
				.name = "late",
				.content = CKPT_CONTENT_RAW,
				.session = two,
				.raw_path = "x/y",
				.mode = 04755,
				.ino = 11,
				.bytes = 7});
	add(w, root, (struct ckpt_entry){.type = CKPT_ENTRY_FILE, .name = "zero", .mode = 0644, .ino = 12});
	add(w, root,
	    (struct ckpt_entry){
		    .type = CKPT_ENTRY_SYMLINK, .name = "\xc3\xa4", .target = "params/w.bin", .mode = 0777, .ino = 13});
	assert(!ckpt_manifest_writer_xattr(w, link, "user.b", "\0\1", 2));
	assert(!ckpt_manifest_writer_xattr(w, link, "user.a", "", 0));
	assert(!ckpt_manifest_writer_xattr(w, root, "user.note", "hello", 5));
	(void)file;
	assert(!ckpt_manifest_writer_seal(w, link, CKPT_SAMPLE_SHA256));
	assert(!ckpt_manifest_writer_chunk(w, &(struct ckpt_chunk){.id = "one", .bytes = 4000}));
	assert(!ckpt_manifest_writer_chunk(w, &(struct ckpt_chunk){.id = "two", .bytes = 96}));
	assert(!ckpt_manifest_writer_finish(w, ret_data, ret_len));
	ckpt_manifest_writer_free(w);
}

void ckpt_sample_summary(struct ckpt_summary *ret_summary, const char *name, uint32_t version)
{
	struct ckpt_summary s = {
		.folder_id = "0123456789abcdef",
		.session = CKPT_SAMPLE_SESSION,
		.event = "marker",
		.profile = "generic",
		.nonce = {1, 2, 3},
		.manifest_sha256 = {9, 8, 7},
		.manifest_bytes = 1000,
		.version = version,
		.durable = CKPT_DURABLE_NODE,
		.number = 1000,
		.files = 5,
		.bytes = UINT64_C(1) << 40,
		.committed_ns = 1763719200000000001,
		.first_committed_ns = 1763719200000000000,
		.sequence = 17,
		.dir_ino = 1,
		.dir_mode = 0755,
		.dir_uid = 1000,
		.dir_gid = 100,
		.dir_nlink = 4,
		.dir_mtime_ns = -1,
		.temporary = true,
	};

	snprintf(s.name, sizeof(s.name), "%s", name);
	*ret_summary = s;
}

void ckpt_sample_record(void **ret_data, size_t *ret_len)
{
	struct ckpt_record r = {.store_id = CKPT_SAMPLE_STORE, .metadata = (char *)"{\"loss\":1.5}"};

	ckpt_sample_summary(&r.summary, "checkpoint-1000", 3);
	ckpt_sample_manifest(&r.manifest, &r.manifest_len);
	r.summary.manifest_bytes = r.manifest_len;
	ckpt_sha256(r.manifest, r.manifest_len, r.summary.manifest_sha256);
	assert(!ckpt_record_encode(&r, ret_data, ret_len));
	free(r.manifest);
}

void ckpt_sample_reseal(void *data, size_t len)
{
	uint8_t *p = data;

	if (len < CKPT_CONTAINER_HEADER_BYTES + CKPT_CONTAINER_DIGEST_BYTES)
		return;
	ckpt_put64(p + 32, len);
	ckpt_sha256(p, len - CKPT_CONTAINER_DIGEST_BYTES, p + len - CKPT_CONTAINER_DIGEST_BYTES);
}

static void walk_xattrs(const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	const char *name, *before = NULL;
	const void *value;
	size_t len, total = 0;

	for (uint32_t i = 0; ckpt_manifest_xattr(m, e, i, &name, &value, &len); i++) {
		CLEANUP_FREE void *copy = malloc(len + 1);

		assert(copy && name[0] && strlen(name) <= 255);
		if (len)
			memcpy(copy, value, len);
		assert(!before || strcmp(before, name) < 0);
		before = name;
		total += strlen(name) + len;
	}
	assert(total <= CKPT_XATTR_BYTES_MAX && (e->xattrs != 0) == (before != NULL));
}

static void walk_children(const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	uint32_t found;

	if (e->type != CKPT_ENTRY_DIR) {
		assert(ckpt_manifest_child(m, e->index, "x", &found) == -ENOTDIR);
		return;
	}
	for (uint32_t i = e->child_first; i < e->child_first + e->child_count; i++) {
		struct ckpt_entry child;

		assert(i > e->index && i < ckpt_manifest_count(m));
		ckpt_manifest_entry(m, i, &child);
		assert(child.parent == e->index);
		assert(!ckpt_manifest_child(m, e->index, child.name, &found) && found == i);
	}
	assert(ckpt_manifest_child(m, e->index, "\x7f none", &found) == -ENOENT);
}

static void walk_bases(const struct ckpt_manifest *m, const struct ckpt_chunk *chunk, unsigned depth)
{
	uint64_t bytes = 0;

	assert(depth <= CKPT_BASE_DEPTH_MAX && chunk->base_count <= CKPT_BASE_PIECES_MAX);
	for (uint32_t i = 0; i < chunk->base_count; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		assert(base.pack && base.pack <= ckpt_manifest_pack_count(m) &&
		       memcmp(base.id, chunk->id, sizeof(base.id)));
		assert(ckpt_encoded_ok(&base.how, base.bytes));
		bytes += base.bytes;
		walk_bases(m, &base, depth + 1);
	}
	assert(bytes == ckpt_codec_base_bytes(chunk->how.codec, chunk->bytes));
}

static void walk_chunks(const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	uint32_t first = ckpt_manifest_first_link(m, e->index);
	struct ckpt_seal seal, of_first;
	struct ckpt_chunk chunk;
	uint64_t bytes = 0;

	assert(first <= e->index);
	if (!ckpt_manifest_seal(m, e->index, &seal)) {
		assert(!ckpt_manifest_is_sealed(m) || e->content == CKPT_CONTENT_NONE || !e->bytes);
		assert(e->content != CKPT_CONTENT_CHUNKS);
		return;
	}
	assert(e->content != CKPT_CONTENT_NONE && ckpt_manifest_seal(m, first, &of_first));
	assert(seal.first == of_first.first && seal.count == of_first.count);
	for (uint32_t i = 0; i < seal.count; i++) {
		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		assert(chunk.bytes && chunk.bytes <= CKPT_CHUNK_BYTES_MAX);
		assert(chunk.pack
			       ? chunk.pack <= ckpt_manifest_pack_count(m) && ckpt_encoded_ok(&chunk.how, chunk.bytes)
			       : e->content == CKPT_CONTENT_RAW);
		walk_bases(m, &chunk, 0);
		bytes += chunk.bytes;
	}
	assert(bytes == e->bytes);
}

void ckpt_walk_manifest(const struct ckpt_manifest *m)
{
	uint32_t count = ckpt_manifest_count(m), found, claimed = 1;
	uint64_t files, bytes, files_seen = 0;

	assert(count);
	for (uint32_t i = 0; i < count; i++) {
		char path[(CKPT_DEPTH_MAX + 2) * (CKPT_NAME_MAX + 1)];
		struct ckpt_entry e;
		int len;

		ckpt_manifest_entry(m, i, &e);
		assert(e.index == i && (i ? e.parent < i : e.parent == 0));
		assert(i ? !ckpt_name_check(e.name, strlen(e.name)) : !e.name[0]);
		len = ckpt_manifest_path(m, i, path, sizeof(path));
		assert(len >= 0 && (size_t)len == strlen(path));
		assert(!ckpt_manifest_lookup(m, path, &found) && found == i);
		assert(ckpt_manifest_path(m, i, path, (size_t)len) == -ENAMETOOLONG);
		assert(e.mode <= 07777 && e.mtime_ns < 1000000000 && e.nlink && e.ino && e.bytes <= INT64_MAX);
		assert((e.type == CKPT_ENTRY_SYMLINK) == (e.target != NULL));
		assert(!e.target || strlen(e.target) == e.bytes);
		assert(e.content != CKPT_CONTENT_RAW || strlen(ckpt_manifest_session(m, e.session)) == 36);
		assert(!e.raw_path || e.raw_path[0] != '/');
		assert(!e.raw_path || strlen(e.raw_path));
		files_seen += e.type == CKPT_ENTRY_FILE;
		claimed += e.child_count;
		walk_children(m, &e);
		walk_xattrs(m, &e);
		walk_chunks(m, &e);
	}
	ckpt_manifest_totals(m, &files, &bytes);
	assert(claimed == count && files <= files_seen);
}

int ckpt_try_manifest(const void *data, size_t len)
{
	void *copy = malloc(len ? len : 1); // exactly as long, so that ASan sees a byte too much
	struct ckpt_manifest *m;
	int r;

	assert(copy);
	if (len)
		memcpy(copy, data, len);
	r = ckpt_manifest_parse(copy, len, &m);
	assert(!r || r == -EBADMSG || r == -ENOTSUP);
	if (!r) {
		ckpt_walk_manifest(m);
		ckpt_manifest_unref(m);
	}
	return r;
}

int ckpt_try_record(const void *data, size_t len)
{
	CLEANUP_FREE void *copy = malloc(len ? len : 1), *again = NULL;
	struct ckpt_record first, second;
	size_t again_len;
	int r;

	assert(copy);
	if (len)
		memcpy(copy, data, len);
	r = ckpt_record_decode(copy, len, &first);
	assert(!r || r == -EBADMSG || r == -ENOTSUP);
	if (r)
		return r;
	if (first.manifest)
		ckpt_try_manifest(first.manifest, first.manifest_len);
	assert(!ckpt_record_encode(&first, &again, &again_len));
	assert(!ckpt_record_decode(again, again_len, &second));
	assert(!memcmp(&first.summary, &second.summary, sizeof(first.summary)));
	assert(!first.metadata == !second.metadata && first.manifest_len == second.manifest_len);
	ckpt_record_done(&first);
	ckpt_record_done(&second);
	return 0;
}

uint64_t ckpt_sample_random(uint64_t *state, uint64_t limit)
{
	uint64_t x = *state ? *state : 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return limit ? (x >> 11) % limit : 0;
}

size_t ckpt_sample_mutate(uint64_t *state, uint8_t *data, size_t len, size_t cap)
{
	static const uint32_t telling[] = {0, 1, 2, 0x7f, 0xff, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff};
	uint64_t kind = ckpt_sample_random(state, 8);

	if (kind == 0 && len > 1)
		return ckpt_sample_random(state, len);
	if (kind == 1 && len < cap) {
		data[len] = (uint8_t)ckpt_sample_random(state, 256);
		return len + 1;
	}
	if (kind <= 3 && len >= 4) {
		size_t at = ckpt_sample_random(state, len - 3) & ~(size_t)3;

		ckpt_put32(data + at, telling[ckpt_sample_random(state, ARRAY_LEN(telling))]);
		return len;
	}
	for (uint64_t i = ckpt_sample_random(state, 4) + 1; i && len; i--)
		data[ckpt_sample_random(state, len)] ^= (uint8_t)(1u << ckpt_sample_random(state, 8));
	return len;
}
