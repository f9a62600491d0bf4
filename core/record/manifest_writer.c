#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/record/manifest_draft.h"
#include "core/record/name.h"

#include <assert.h>

// The writer: collects entries in the order of the caller. They are laid out in one pass at the end (manifest_encode.c).
//
// States: collecting --finish--> spent (only _free is left).
// Invariants:
//  1. A parent's handle is smaller than its children's; handle 0 is the step's directory.
//  2. Strings live in one growing buffer (`text`) and are named by offset, so that growing moves nothing that is held.
//  3. What finish() encodes parses: hard links are counted here and take the attributes of the first of them, since the
//     caller's stat calls of one file may lie apart in time.
//  4. The same content gives the same bytes, whatever the order of the calls: sessions, siblings, attributes and strings
//     are laid out sorted.

int ckpt_manifest_writer_new(struct ckpt_manifest_writer **ret_writer)
{
	struct ckpt_manifest_writer *w = ckpt_calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*ret_writer = w;
	return 0;
}

void ckpt_manifest_writer_free(struct ckpt_manifest_writer *w)
{
	if (!w)
		return;
	free(w->items);
	free(w->xattrs);
	free(w->seals);
	free(w->chunks);
	free(w->packs);
	free(w->bases);
	free(w->catalog);
	free(w->sessions);
	free(w->text);
	free(w);
}

// Appends len bytes and a NUL. 0, -E2BIG, -ENOMEM.
static int add_text(struct ckpt_manifest_writer *w, const void *data, size_t len, uint32_t *ret_offset)
{
	size_t need = w->text_len + len + 1;
	int r;

	if (len > CKPT_MANIFEST_BYTES_MAX || need > CKPT_MANIFEST_BYTES_MAX)
		return -E2BIG;
	r = ckpt_grow((void **)&w->text, &w->text_cap, need, 1);
	if (r)
		return r;
	if (len)
		memcpy(w->text + w->text_len, data, len);
	w->text[need - 1] = '\0';
	*ret_offset = (uint32_t)w->text_len;
	w->text_len = need;
	return 0;
}

int ckpt_manifest_writer_session(struct ckpt_manifest_writer *w, const char *uuid, uint32_t *ret_index)
{
	int r;

	assert(!w->spent);
	if (!ckpt_uuid_check(uuid))
		return -EINVAL;
	for (size_t i = 0; i < w->session_count; i++) {
		if (!strcmp(w->sessions[i], uuid)) {
			*ret_index = (uint32_t)i;
			return 0;
		}
	}
	r = ckpt_grow((void **)&w->sessions, &w->session_cap, w->session_count + 1, SESSION_BYTES);
	if (r)
		return r;
	memset(w->sessions[w->session_count], 0, SESSION_BYTES);
	memcpy(w->sessions[w->session_count], uuid, CKPT_UUID_LEN);
	*ret_index = (uint32_t)w->session_count++;
	return 0;
}

static int check_content(const struct ckpt_manifest_writer *w, const struct ckpt_entry *e)
{
	size_t len;

	switch (e->type) {
	case CKPT_ENTRY_DIR:
		return e->content == CKPT_CONTENT_NONE ? 0 : -EINVAL;
	case CKPT_ENTRY_SYMLINK:
		if (e->content != CKPT_CONTENT_NONE || !e->target || !e->target[0])
			return -EINVAL;
		return strlen(e->target) <= CKPT_SYMLINK_MAX ? 0 : -ENAMETOOLONG;
	case CKPT_ENTRY_FILE:
		if (e->content == CKPT_CONTENT_NONE)
			return e->bytes || e->raw_path ? -EINVAL : 0;
		if (e->session >= w->session_count || e->bytes > INT64_MAX)
			return -EINVAL;
		if (e->content != CKPT_CONTENT_RAW && (e->content != CKPT_CONTENT_CHUNKS || !e->bytes))
			return -EINVAL;
		if (!e->raw_path)
			return 0;
		len = strlen(e->raw_path);
		if (len > CKPT_MANIFEST_RAW_PATH_MAX)
			return -ENAMETOOLONG;
		return ckpt_manifest_raw_path_ok(e->raw_path, len) ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

static int check_entry(const struct ckpt_manifest_writer *w, uint32_t parent, const struct ckpt_entry *e)
{
	bool root = !w->item_count;
	uint32_t depth = root ? 0 : w->items[parent].depth + 1;
	int r;

	if (root ? e->type != CKPT_ENTRY_DIR || e->name[0] : w->items[parent].type != CKPT_ENTRY_DIR)
		return -EINVAL;
	r = root ? 0 : ckpt_name_check(e->name, strlen(e->name));
	if (!r)
		r = check_content(w, e);
	if (r)
		return r;
	if (!ckpt_manifest_depth_ok(depth, (uint8_t)e->type) || w->item_count == CKPT_STEP_FILES_MAX)
		return -E2BIG;
	if (e->mode & ~07777u || e->mtime_ns >= 1000000000u || !e->ino || e->bytes > INT64_MAX)
		return -EINVAL;
	return 0;
}

// The first eight bytes of a name as a number that sorts as they do.
static uint64_t sort_key(const char *name, size_t len)
{
	uint8_t first[8] = {0};
	uint64_t key;

	memcpy(first, name, MIN(len, sizeof(first)));
	memcpy(&key, first, sizeof(key));
	return __builtin_bswap64(key);
}

int ckpt_manifest_writer_add(struct ckpt_manifest_writer *w, uint32_t parent, const struct ckpt_entry *entry,
			     uint32_t *ret_handle)
{
	const char *extra = entry->type == CKPT_ENTRY_SYMLINK ? entry->target : entry->raw_path;
	struct ckpt_draft_item item = {
		.type = (uint8_t)entry->type,
		.content = (uint8_t)entry->content,
		.conflict = entry->conflict,
		.parent = parent,
		.session = entry->session,
		.mode = entry->mode,
		.uid = entry->uid,
		.gid = entry->gid,
		.nlink = MAX(entry->nlink, 1u),
		.mtime_ns = entry->mtime_ns,
		.ino = entry->ino,
		.bytes = entry->bytes,
		.mtime_s = entry->mtime_s,
	};
	int r;

	assert(!w->spent);
	if (parent >= w->item_count && (w->item_count || parent))
		return -EINVAL;
	r = check_entry(w, parent, entry);
	if (!r)
		r = ckpt_grow((void **)&w->items, &w->item_cap, w->item_count + 1, sizeof(item));
	if (r)
		return r;
	item.depth = w->item_count ? w->items[parent].depth + 1 : 0;
	item.name_len = (uint16_t)strlen(entry->name);
	item.sort_key = sort_key(entry->name, item.name_len);
	r = add_text(w, entry->name, item.name_len, &item.name);
	if (!r && extra && entry->type != CKPT_ENTRY_DIR) {
		item.extra_len = (uint32_t)strlen(extra);
		r = add_text(w, extra, item.extra_len, &item.extra);
	}
	if (r)
		return r;
	if (entry->type == CKPT_ENTRY_SYMLINK)
		item.bytes = item.extra_len;
	if (entry->content == CKPT_CONTENT_NONE)
		item.session = 0;
	*ret_handle = (uint32_t)w->item_count;
	w->items[w->item_count++] = item;
	return 0;
}

int ckpt_manifest_writer_xattr(struct ckpt_manifest_writer *w, uint32_t handle, const char *name, const void *value,
			       size_t len)
{
	struct ckpt_draft_xattr x = {.handle = handle, .name_len = (uint32_t)strnlen(name, CKPT_XATTR_NAME_MAX + 1)};
	struct ckpt_draft_item *item;
	int r;

	assert(!w->spent);
	if (handle >= w->item_count || !x.name_len)
		return -EINVAL;
	item = &w->items[handle];
	if (x.name_len > CKPT_XATTR_NAME_MAX)
		return -ENAMETOOLONG;
	if (len > CKPT_XATTR_BYTES_MAX || item->xattr_bytes + x.name_len + len > CKPT_XATTR_BYTES_MAX)
		return -E2BIG;
	x.value_len = (uint32_t)len;
	r = ckpt_grow((void **)&w->xattrs, &w->xattr_cap, w->xattr_count + 1, sizeof(x));
	if (!r)
		r = add_text(w, name, x.name_len, &x.name);
	if (!r)
		r = add_text(w, value, len, &x.value);
	if (r)
		return r;
	item->xattr_bytes += x.name_len + x.value_len;
	w->xattrs[w->xattr_count++] = x;
	return 0;
}

int ckpt_manifest_writer_seal(struct ckpt_manifest_writer *w, uint32_t handle, const uint8_t sha256[CKPT_SHA256_LEN])
{
	struct ckpt_draft_seal *s;
	int r;

	assert(!w->spent);
	if (handle >= w->item_count || !w->items[handle].bytes || w->items[handle].content == CKPT_CONTENT_NONE ||
	    w->items[handle].seal)
		return -EINVAL;
	r = ckpt_grow((void **)&w->seals, &w->seal_cap, w->seal_count + 1, sizeof(*w->seals));
	if (r)
		return r;
	s = &w->seals[w->seal_count++];
	*s = (struct ckpt_draft_seal){.first = (uint32_t)w->chunk_count};
	memcpy(s->sha256, sha256, sizeof(s->sha256));
	w->items[handle].seal = (uint32_t)w->seal_count;
	return 0;
}

static unsigned depth_of(const struct ckpt_manifest_writer *w, const struct ckpt_chunk *chunk)
{
	unsigned deepest = 0;

	for (uint32_t i = 0; i < chunk->base_count; i++)
		deepest = MAX(deepest, depth_of(w, &w->bases[chunk->base - 1 + i]) + 1);
	return deepest;
}

// It has those that decoding takes, none else, and none that is too deep.
static bool bases_fit(const struct ckpt_manifest_writer *w, const struct ckpt_chunk *chunk)
{
	uint64_t bytes = 0;

	if (!chunk->base != !chunk->base_count || chunk->base_count > CKPT_BASE_PIECES_MAX ||
	    chunk->base + (uint64_t)chunk->base_count > w->base_count + 1)
		return false;
	for (uint32_t i = 0; i < chunk->base_count; i++)
		bytes += w->bases[chunk->base - 1 + i].bytes;
	return bytes == ckpt_codec_base_bytes(chunk->how.codec, chunk->bytes) &&
	       depth_of(w, chunk) <= CKPT_BASE_DEPTH_MAX;
}

int ckpt_manifest_writer_chunk(struct ckpt_manifest_writer *w, const struct ckpt_chunk *chunk)
{
	int r;

	assert(!w->spent && w->seal_count && w->chunk_count < UINT32_MAX); // far more than a manifest can hold
	if (!chunk->bytes || chunk->bytes > CKPT_CHUNK_BYTES_MAX || chunk->pack > w->pack_count || !bases_fit(w, chunk))
		return -EINVAL;
	r = ckpt_grow((void **)&w->chunks, &w->chunk_cap, w->chunk_count + 1, sizeof(*w->chunks));
	if (r)
		return r;
	w->chunks[w->chunk_count++] = *chunk;
	w->seals[w->seal_count - 1].count++;
	w->seals[w->seal_count - 1].bytes += chunk->bytes;
	return 0;
}

int ckpt_manifest_writer_pack(struct ckpt_manifest_writer *w, const struct ckpt_pack *pack, uint32_t *ret_pack)
{
	int r;

	assert(!w->spent);
	// Chunks of one pack come together.
	for (size_t i = 0; i < w->pack_count; i++) {
		size_t k = (w->pack_last + i) % w->pack_count;

		if (memcmp(w->packs[k].id, pack->id, sizeof(pack->id)))
			continue;
		w->pack_last = k;
		*ret_pack = (uint32_t)k + 1;
		return w->packs[k].bytes == pack->bytes &&
				       !memcmp(w->packs[k].digest, pack->digest, sizeof(pack->digest))
			       ? 0
			       : -EINVAL;
	}
	r = ckpt_grow((void **)&w->packs, &w->pack_cap, w->pack_count + 1, sizeof(*w->packs));
	if (r)
		return r;
	w->pack_last = w->pack_count;
	w->packs[w->pack_count++] = *pack;
	*ret_pack = (uint32_t)w->pack_count;
	return 0;
}

int ckpt_manifest_writer_bases(struct ckpt_manifest_writer *w, const struct ckpt_chunk *bases, uint32_t count,
			       uint32_t *ret_base)
{
	int r;

	assert(!w->spent && w->base_count < UINT32_MAX - CKPT_BASE_PIECES_MAX); // the same
	if (count > CKPT_BASE_PIECES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++)
		if (!bases[i].pack || bases[i].pack > w->pack_count || !bases_fit(w, &bases[i]))
			return -EINVAL;
	r = ckpt_grow((void **)&w->bases, &w->base_cap, w->base_count + count, sizeof(*w->bases));
	if (r)
		return r;
	memcpy(w->bases + w->base_count, bases, count * sizeof(*bases));
	*ret_base = (uint32_t)w->base_count + 1;
	w->base_count += count;
	return 0;
}

int ckpt_manifest_writer_catalog(struct ckpt_manifest_writer *w, const void *bytes, size_t len)
{
	void *copy = malloc(len);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, len);
	free(w->catalog);
	w->catalog = copy;
	w->catalog_len = len;
	return 0;
}
