// The bytes of a manifest, of what its writer has collected: invariants 3 and 4 of manifest_writer.c.
#include "core/base/util.h"
#include "core/record/manifest_draft.h"

#include <assert.h>

enum { ROOT_HANDLE = 0, NO_STRING = 0 };

// Tables that finish() builds beside the items.
struct layout {
	uint32_t *order;        // handles in the order of the table
	uint32_t *inodes;       // indices sorted by (ino, index)
	uint32_t *session_rank; // by the caller's index
	uint32_t *pack_rank;    // the same
	uint8_t *entries, *xattr_sets, *xattrs, *sessions, *seals, *chunks, *packs, *bases;
	char *strings;
	size_t set_count, xattr_count, strings_len, seal_count, chunk_count, base_count;
};

static int compare_siblings(const void *a, const void *b, void *arg)
{
	const struct ckpt_manifest_writer *w = arg;
	const struct ckpt_draft_item *x = &w->items[*(const uint32_t *)a], *y = &w->items[*(const uint32_t *)b];

	// Names hold no NUL, so that the padding of a short one sorts first, and strcmp sees where it ends.
	if (x->sort_key != y->sort_key)
		return x->sort_key < y->sort_key ? -1 : 1;
	return strcmp(w->text + x->name, w->text + y->name);
}

// Puts the handles breadth-first into l->order, siblings sorted. O(n log n); -EEXIST for a name given twice.
static int order_items(struct ckpt_manifest_writer *w, struct layout *l)
{
	size_t n = w->item_count;
	CLEANUP_FREE uint32_t *grouped = ckpt_calloc(n, sizeof(uint32_t));  // handles, by parent
	CLEANUP_FREE uint32_t *fill = ckpt_calloc(n + 1, sizeof(uint32_t)); // where a parent's next child goes
	uint32_t next = 1;

	if (!grouped || !fill)
		return -ENOMEM;
	for (size_t i = 1; i < n; i++)
		w->items[w->items[i].parent].child_count++;
	for (size_t i = 0; i < n; i++)
		fill[i + 1] = fill[i] + w->items[i].child_count;
	for (uint32_t i = 1; i < n; i++)
		grouped[fill[w->items[i].parent]++] = i;
	l->order[0] = ROOT_HANDLE;
	for (uint32_t i = 0; i < n; i++) {
		struct ckpt_draft_item *dir = &w->items[l->order[i]];
		uint32_t *children = grouped + (fill[l->order[i]] - dir->child_count);

		dir->index = i;
		dir->child_first = next;
		if (dir->child_count > 1)
			qsort_r(children, dir->child_count, sizeof(*children), compare_siblings, w);
		for (uint32_t k = 0; k < dir->child_count; k++) {
			if (k && !compare_siblings(&children[k - 1], &children[k], w))
				return -EEXIST;
			l->order[next++] = children[k];
		}
	}
	return 0;
}

struct ino_row {
	uint64_t ino;
	uint32_t index;
};

static int compare_inos(const void *a, const void *b)
{
	const struct ino_row *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return (x->index > y->index) - (x->index < y->index);
}

static const struct ckpt_draft_seal *seal_of(const struct ckpt_manifest_writer *w, const struct ckpt_draft_item *item)
{
	return item->seal ? &w->seals[item->seal - 1] : NULL;
}

static bool is_packed(const struct ckpt_manifest_writer *w, const struct ckpt_draft_item *item)
{
	const struct ckpt_draft_seal *s = seal_of(w, item);

	for (uint32_t i = 0; s && i < s->count; i++)
		if (!w->chunks[s->first + i].pack)
			return false;
	return s;
}

// Gives hard links the attributes of the first of them and the count. -EINVAL: one inode for different things.
static int join_links(struct ckpt_manifest_writer *w, const struct layout *l, const struct ino_row *rows, size_t count)
{
	struct ckpt_draft_item *first = &w->items[l->order[rows[0].index]];

	if (first->type == CKPT_ENTRY_DIR)
		return count == 1 ? 0 : -EINVAL;
	first->nlink = (uint32_t)count;
	first->first_link = true;
	// Attributes may have been given with any of the names.
	for (size_t i = 1; i < count && !first->xattrs; i++)
		first->xattrs = w->items[l->order[rows[i].index]].xattrs;
	for (size_t i = 1; i < count && !first->seal; i++)
		first->seal = w->items[l->order[rows[i].index]].seal;
	if (first->content == CKPT_CONTENT_RAW && is_packed(w, first))
		first->content = CKPT_CONTENT_CHUNKS;
	for (size_t i = 1; i < count; i++) {
		struct ckpt_draft_item *link = &w->items[l->order[rows[i].index]];

		if (link->content == CKPT_CONTENT_RAW)
			link->content = first->content;
		if (link->type != first->type || link->content != first->content || link->session != first->session)
			return -EINVAL;
		if (link->type == CKPT_ENTRY_SYMLINK && strcmp(w->text + link->extra, w->text + first->extra))
			return -EINVAL;
		link->mode = first->mode;
		link->uid = first->uid;
		link->gid = first->gid;
		link->nlink = first->nlink;
		link->mtime_s = first->mtime_s;
		link->mtime_ns = first->mtime_ns;
		link->bytes = first->bytes;
		link->xattrs = first->xattrs;
		link->seal = 0;
	}
	return 0;
}

static int order_inodes(struct ckpt_manifest_writer *w, struct layout *l)
{
	size_t n = w->item_count, end;
	CLEANUP_FREE struct ino_row *rows = ckpt_calloc(n, sizeof(*rows));
	int r;

	if (!rows)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		rows[i] = (struct ino_row){.ino = w->items[l->order[i]].ino, .index = i};
	qsort(rows, n, sizeof(*rows), compare_inos);
	for (size_t i = 0; i < n; i = end) {
		for (end = i + 1; end < n && rows[end].ino == rows[i].ino; end++)
			;
		r = join_links(w, l, rows + i, end - i);
		if (r)
			return r;
	}
	for (size_t i = 0; i < n; i++)
		l->inodes[i] = rows[i].index;
	return 0;
}

static int compare_xattrs(const void *a, const void *b, void *arg)
{
	const struct ckpt_manifest_writer *w = arg;
	const struct ckpt_draft_xattr *x = a, *y = b;
	uint32_t x_index = w->items[x->handle].index, y_index = w->items[y->handle].index;

	if (x_index != y_index)
		return x_index < y_index ? -1 : 1;
	return strcmp(w->text + x->name, w->text + y->name);
}

// One set per entry that has attributes. -EEXIST for a name given twice.
static int order_xattrs(struct ckpt_manifest_writer *w)
{
	uint32_t sets = 0;

	if (w->xattr_count)
		qsort_r(w->xattrs, w->xattr_count, sizeof(*w->xattrs), compare_xattrs, w);
	for (size_t i = 0; i < w->xattr_count; i++) {
		if (i && !compare_xattrs(&w->xattrs[i - 1], &w->xattrs[i], w))
			return -EEXIST;
		if (!i || w->xattrs[i - 1].handle != w->xattrs[i].handle)
			w->items[w->xattrs[i].handle].xattrs = ++sets;
	}
	return 0;
}

static int compare_session_rows(const void *a, const void *b)
{
	return strcmp(a, b);
}

// The sorted table, and where each of the caller's indices went.
static void layout_sessions(const struct ckpt_manifest_writer *w, struct layout *l)
{
	if (!w->session_count)
		return;
	memcpy(l->sessions, w->sessions, w->session_count * SESSION_BYTES);
	qsort(l->sessions, w->session_count, SESSION_BYTES, compare_session_rows);
	for (size_t i = 0; i < w->session_count; i++) {
		const uint8_t *found =
			bsearch(w->sessions[i], l->sessions, w->session_count, SESSION_BYTES, compare_session_rows);

		l->session_rank[i] = (uint32_t)((size_t)(found - l->sessions) / SESSION_BYTES);
	}
}

static int compare_pack_rows(const void *a, const void *b)
{
	return memcmp(a, b, CKPT_SHA256_LEN);
}

// The same for packs.
static void layout_packs(const struct ckpt_manifest_writer *w, struct layout *l)
{
	for (size_t i = 0; i < w->pack_count; i++) {
		memcpy(l->packs + i * PACK_BYTES + PACK_ID, w->packs[i].id, CKPT_SHA256_LEN);
		ckpt_put64(l->packs + i * PACK_BYTES + PACK_LEN, w->packs[i].bytes);
		memcpy(l->packs + i * PACK_BYTES + PACK_DIGEST, w->packs[i].digest, CKPT_SHA256_LEN);
	}
	if (w->pack_count)
		qsort(l->packs, w->pack_count, PACK_BYTES, compare_pack_rows);
	for (size_t i = 0; i < w->pack_count; i++) {
		const uint8_t *found = bsearch(w->packs[i].id, l->packs, w->pack_count, PACK_BYTES, compare_pack_rows);

		l->pack_rank[i] = (uint32_t)((size_t)(found - l->packs) / PACK_BYTES);
	}
}

// Copies a string with its NUL from text to the heap.
static uint32_t layout_string(const struct ckpt_manifest_writer *w, struct layout *l, uint32_t offset, uint32_t len)
{
	uint32_t at = (uint32_t)l->strings_len;

	memcpy(l->strings + at, w->text + offset, (size_t)len + 1);
	l->strings_len += (size_t)len + 1;
	return at;
}

static void layout_entry(const struct ckpt_manifest_writer *w, struct layout *l, const struct ckpt_draft_item *item)
{
	uint8_t *p = l->entries + (size_t)item->index * ENTRY_BYTES;
	uint32_t name = layout_string(w, l, item->name, item->name_len), a = 0, b = 0;

	if (item->type == CKPT_ENTRY_DIR) {
		a = item->child_first;
		b = item->child_count;
	} else if (item->type == CKPT_ENTRY_SYMLINK) {
		a = layout_string(w, l, item->extra, item->extra_len);
	} else if (item->content != CKPT_CONTENT_NONE) {
		a = l->session_rank[item->session];
		b = item->extra_len ? layout_string(w, l, item->extra, item->extra_len) : NO_STRING;
	}
	p[ENTRY_TYPE] = item->type;
	p[ENTRY_CONTENT] = item->content;
	ckpt_put16(p + ENTRY_NAME_LEN, item->name_len);
	ckpt_put32(p + ENTRY_NAME, name);
	ckpt_put32(p + ENTRY_PARENT, w->items[item->parent].index);
	ckpt_put32(p + ENTRY_A, a);
	ckpt_put32(p + ENTRY_B, b);
	ckpt_put32(p + ENTRY_MODE, item->mode);
	ckpt_put32(p + ENTRY_UID, item->uid);
	ckpt_put32(p + ENTRY_GID, item->gid);
	ckpt_put32(p + ENTRY_NLINK, item->nlink);
	ckpt_put32(p + ENTRY_MTIME_NS, item->mtime_ns);
	ckpt_put64(p + ENTRY_INO, item->ino);
	ckpt_put64(p + ENTRY_SIZE, item->bytes);
	ckpt_put64(p + ENTRY_MTIME_S, (uint64_t)item->mtime_s);
	ckpt_put32(p + ENTRY_XATTRS, item->xattrs);
	ckpt_put32(p + ENTRY_FLAGS, item->conflict ? CKPT_ENTRY_CONFLICT : 0);
}

static void layout_xattrs(const struct ckpt_manifest_writer *w, struct layout *l)
{
	for (size_t i = 0; i < w->xattr_count; i++) {
		const struct ckpt_draft_xattr *x = &w->xattrs[i];
		uint8_t *p = l->xattrs + i * XATTR_BYTES, *set;

		if (!i || w->xattrs[i - 1].handle != x->handle)
			ckpt_put32(l->xattr_sets + l->set_count++ * XSET_BYTES + XSET_FIRST, (uint32_t)i);
		set = l->xattr_sets + (l->set_count - 1) * XSET_BYTES;
		ckpt_put32(set + XSET_COUNT, ckpt_get32(set + XSET_COUNT) + 1);
		ckpt_put32(p + XATTR_NAME, layout_string(w, l, x->name, x->name_len));
		ckpt_put32(p + XATTR_VALUE, layout_string(w, l, x->value, x->value_len));
		ckpt_put32(p + XATTR_VALUE_LEN, x->value_len);
		ckpt_put16(p + XATTR_NAME_LEN, (uint16_t)x->name_len);
		ckpt_put16(p + XATTR_ZERO, 0);
	}
	l->xattr_count = w->xattr_count;
}

static void layout_chunk(const struct layout *l, const struct ckpt_chunk *chunk, uint8_t *p)
{
	memcpy(p + CHUNK_ID, chunk->id, CKPT_SHA256_LEN);
	ckpt_put32(p + CHUNK_LEN, chunk->bytes);
	ckpt_put32(p + CHUNK_PACK, chunk->pack ? l->pack_rank[chunk->pack - 1] : CHUNK_NO_PACK);
	if (!chunk->pack)
		return;
	ckpt_put64(p + CHUNK_OFFSET, chunk->offset);
	ckpt_put32(p + CHUNK_STORED, chunk->how.bytes);
	ckpt_put16(p + CHUNK_CODEC, (uint16_t)chunk->how.codec);
	ckpt_put16(p + CHUNK_WIDTH, (uint16_t)chunk->how.width);
}

// Behind each other, and behind all of them what each has itself: so every row of a chunk, p, has bases of its own.
static void layout_bases(const struct ckpt_manifest_writer *w, struct layout *l, const struct ckpt_chunk *chunk,
			 uint8_t *p)
{
	uint8_t *rows = l->bases + l->base_count * CHUNK_BYTES;
	const struct ckpt_chunk *bases;

	if (!chunk->base_count)
		return;
	bases = &w->bases[chunk->base - 1];
	ckpt_put32(p + CHUNK_BASE, (uint32_t)l->base_count + 1);
	l->base_count += chunk->base_count;
	for (uint32_t i = 0; i < chunk->base_count; i++)
		layout_chunk(l, &bases[i], rows + i * CHUNK_BYTES);
	for (uint32_t i = 0; i < chunk->base_count; i++)
		layout_bases(w, l, &bases[i], rows + i * CHUNK_BYTES);
}

// The number of rows that this makes.
static size_t count_bases(const struct ckpt_manifest_writer *w, const struct ckpt_chunk *chunk)
{
	size_t count = chunk->base_count;

	for (uint32_t i = 0; i < chunk->base_count; i++)
		count += count_bases(w, &w->bases[chunk->base - 1 + i]);
	return count;
}

// In the order of the entries, whatever order they were given in. -EINVAL: the chunks are not the file's bytes, or not where they
// should be.
static int layout_seals(const struct ckpt_manifest_writer *w, struct layout *l)
{
	for (size_t i = 0; i < w->item_count; i++) {
		const struct ckpt_draft_item *item = &w->items[l->order[i]];
		const struct ckpt_draft_seal *s = seal_of(w, item);
		uint8_t *p = l->seals + l->seal_count * SEAL_BYTES;

		// Of hard links the first alone has a seal.
		if (item->content == CKPT_CONTENT_CHUNKS && item->first_link && !is_packed(w, item))
			return -EINVAL;
		if (!s)
			continue;
		if (s->bytes != item->bytes)
			return -EINVAL;
		memcpy(p + SEAL_SHA256, s->sha256, sizeof(s->sha256));
		ckpt_put32(p + SEAL_ENTRY, item->index);
		ckpt_put32(p + SEAL_FIRST, (uint32_t)l->chunk_count);
		ckpt_put32(p + SEAL_COUNT, s->count);
		l->seal_count++;
		for (uint32_t k = 0; k < s->count; k++) {
			uint8_t *row = l->chunks + l->chunk_count++ * CHUNK_BYTES;

			layout_chunk(l, &w->chunks[s->first + k], row);
			layout_bases(w, l, &w->chunks[s->first + k], row);
		}
	}
	return 0;
}

static void layout_free(struct layout *l)
{
	free(l->order);
	free(l->inodes);
	free(l->session_rank);
	free(l->pack_rank);
	free(l->entries);
	free(l->xattr_sets);
	free(l->xattrs);
	free(l->sessions);
	free(l->seals);
	free(l->chunks);
	free(l->packs);
	free(l->bases);
	free(l->strings);
}

static int layout_alloc(const struct ckpt_manifest_writer *w, struct layout *l)
{
	size_t bases = 1;

	for (size_t i = 0; i < w->chunk_count; i++)
		bases += count_bases(w, &w->chunks[i]);
	// One row more than needed, so that an empty table is no NULL.
	l->order = ckpt_calloc(w->item_count, sizeof(uint32_t));
	l->inodes = ckpt_calloc(w->item_count, sizeof(uint32_t));
	l->session_rank = ckpt_calloc(w->session_count + 1, sizeof(uint32_t));
	l->entries = ckpt_calloc(w->item_count, ENTRY_BYTES);
	l->xattr_sets = ckpt_calloc(w->xattr_count + 1, XSET_BYTES);
	l->xattrs = ckpt_calloc(w->xattr_count + 1, XATTR_BYTES);
	l->sessions = ckpt_calloc(w->session_count + 1, SESSION_BYTES);
	l->seals = ckpt_calloc(w->seal_count + 1, SEAL_BYTES);
	l->chunks = ckpt_calloc(w->chunk_count + 1, CHUNK_BYTES);
	l->packs = ckpt_calloc(w->pack_count + 1, PACK_BYTES);
	l->pack_rank = ckpt_calloc(w->pack_count + 1, sizeof(uint32_t));
	l->bases = ckpt_calloc(bases, CHUNK_BYTES);
	l->strings = malloc(w->text_len + 1);
	if (!l->order || !l->inodes || !l->session_rank || !l->entries || !l->xattr_sets || !l->xattrs ||
	    !l->sessions || !l->seals || !l->chunks || !l->packs || !l->pack_rank || !l->bases || !l->strings)
		return -ENOMEM;
	return 0;
}

static bool has_conflicts(const struct ckpt_manifest_writer *w)
{
	for (size_t i = 0; i < w->item_count; i++)
		if (w->items[i].conflict)
			return true;
	return false;
}

static int encode(const struct ckpt_manifest_writer *w, const struct layout *l, void **ret_data, size_t *ret_len)
{
	struct ckpt_section sections[] = {
		{CKPT_SECTION_ENTRIES, true, l->entries, w->item_count * ENTRY_BYTES},
		{CKPT_SECTION_INODES, true, l->inodes, w->item_count * sizeof(uint32_t)},
		{CKPT_SECTION_SESSIONS, true, l->sessions, w->session_count * SESSION_BYTES},
		{CKPT_SECTION_XATTR_SETS, true, l->xattr_sets, l->set_count * XSET_BYTES},
		{CKPT_SECTION_XATTRS, true, l->xattrs, l->xattr_count * XATTR_BYTES},
		{CKPT_SECTION_STRINGS, true, l->strings, l->strings_len},
		{CKPT_SECTION_SEALS, false, l->seals, l->seal_count * SEAL_BYTES},
		{CKPT_SECTION_CHUNKS, w->pack_count > 0, l->chunks, l->chunk_count * CHUNK_BYTES},
		{CKPT_SECTION_PACKS, true, l->packs, w->pack_count * PACK_BYTES},
		{CKPT_SECTION_BASES, true, l->bases, l->base_count * CHUNK_BYTES},
		{CKPT_SECTION_CATALOG, false, w->catalog, w->catalog_len},
	};
	size_t count =
		ARRAY_LEN(sections) - 1 - (l->seal_count ? 0 : 2) - (w->pack_count ? 0 : 1) - (l->base_count ? 0 : 1);
	uint64_t required = (w->pack_count ? CKPT_MANIFEST_CHUNKS : 0) | (l->base_count ? CKPT_MANIFEST_DELTA : 0) |
			    (has_conflicts(w) ? CKPT_MANIFEST_CONFLICTS : 0);

	int rc = -EFBIG;

	if (w->catalog) {
		sections[count] = sections[ARRAY_LEN(sections) - 1];
		rc = ckpt_container_encode(&ckpt_manifest_kind, required, 0, sections, count + 1, ret_data, ret_len);
	}
	// A manifest is whole without its catalog, and a step that it is too large for can still be changed.
	return rc == -EFBIG
		       ? ckpt_container_encode(&ckpt_manifest_kind, required, 0, sections, count, ret_data, ret_len)
		       : rc;
}

int ckpt_manifest_writer_finish(struct ckpt_manifest_writer *w, void **ret_data, size_t *ret_len)
{
	CLEANUP(layout_free) struct layout l = {0};
	int r;

	assert(!w->spent);
	if (!w->item_count)
		return -EINVAL;
	w->spent = true;
	r = layout_alloc(w, &l);
	if (!r)
		r = order_items(w, &l);
	if (!r)
		r = order_xattrs(w);
	if (!r)
		r = order_inodes(w, &l);
	if (r)
		return r;
	layout_sessions(w, &l);
	layout_packs(w, &l);
	for (size_t i = 0; i < w->item_count; i++)
		layout_entry(w, &l, &w->items[l.order[i]]);
	layout_xattrs(w, &l);
	r = layout_seals(w, &l);
	if (!r)
		r = encode(w, &l, ret_data, ret_len);
	return r == -EFBIG ? -E2BIG : r;
}
