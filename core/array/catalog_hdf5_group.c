// Links of a group: a symbol table (a B-tree of version 1, whose leaves name objects by a local heap), or link messages, which lie in the
// object header or, of a large group, elsewhere (catalog_hdf5_dense.c).
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"
#include "core/limits.h"

#define SOFT "it is a soft link, which is not followed"
#define EXTERNAL "it is a link into another file, which is not followed"
#define OTHER "it is a link of a kind that is not known"

bool ckpt_hdf5_is_group(const struct ckpt_hdf5_object *o)
{
	return ckpt_hdf5_find(o, CKPT_HDF5_SYMBOL_TABLE) || ckpt_hdf5_find(o, CKPT_HDF5_LINK_INFO) ||
	       ckpt_hdf5_find(o, CKPT_HDF5_LINK) || ckpt_hdf5_find(o, CKPT_HDF5_GROUP_INFO);
}

// --- Symbol tables ----------------------------------------------------------------------------------------------------

struct table {
	struct ckpt_hdf5 *h;
	uint64_t names, names_bytes; // the data of its local heap
	ckpt_hdf5_link_fn *fn;
	void *arg;
};

static int open_heap(struct table *t, uint64_t address)
{
	struct ckpt_hdf5 *h = t->h;
	uint8_t front[28];
	struct ckpt_hdf5_bytes b = {front, 4 + 2 * h->length_bytes + h->offset_bytes, false};
	int rc = ckpt_hdf5_read_block(h, address, "HEAP", front, b.left);

	if (rc)
		return rc;
	if (ckpt_hdf5_take(&b, 4))
		return ckpt_hdf5_refuse(h, "HEAP");
	t->names_bytes = ckpt_hdf5_take_length(h, &b);
	ckpt_hdf5_take_length(h, &b);
	t->names = ckpt_hdf5_take_address(h, &b);
	return t->names > h->bytes || t->names_bytes > h->bytes - t->names ? ckpt_hdf5_refuse(h, "HEAP") : 0;
}

// *ret_name is the caller's.
static int read_name(const struct table *t, uint64_t offset, char **ret_name, size_t *ret_len)
{
	CLEANUP_FREE char *name = NULL;
	size_t cap = 0, len = 0;
	int rc = 0;

	while (!rc) {
		uint64_t left = t->names_bytes - MIN(t->names_bytes, offset + len);
		size_t n = (size_t)MIN(left, UINT64_C(64));
		const char *end;
		void *grown = name;

		if (!n || len > CKPT_ARRAY_NAME_MAX)
			return ckpt_catalog_refuse(t->h->reading, "HEAP",
						   "the name of a link has no end, or is too long");
		rc = ckpt_grow(&grown, &cap, len + n, 1);
		name = grown;
		if (!rc)
			rc = ckpt_hdf5_read(t->h, t->names + offset + len, name + len, n);
		if (rc)
			return rc;
		end = memchr(name + len, '\0', n);
		if (end) {
			*ret_len = (size_t)(end - name);
			*ret_name = TAKE_PTR(name);
			return 0;
		}
		len += n;
	}
	return rc;
}

#define CACHED_SOFT 2

static int take_entry(const struct table *t, struct ckpt_hdf5_bytes *b)
{
	CLEANUP_FREE char *name = NULL;
	struct ckpt_hdf5_link link;
	uint64_t offset = ckpt_hdf5_take(b, t->h->offset_bytes), kind;
	int rc;

	link.address = ckpt_hdf5_take_address(t->h, b);
	kind = ckpt_hdf5_take(b, 4);
	link.why = kind == CACHED_SOFT ? SOFT : NULL;
	if (kind == CACHED_SOFT)
		link.address = CKPT_HDF5_NONE;
	else if (link.address == CKPT_HDF5_NONE)
		return ckpt_hdf5_refuse(t->h, "SNOD");
	if (offset >= t->names_bytes)
		return ckpt_hdf5_refuse(t->h, "SNOD");
	rc = read_name(t, offset, &name, &link.name_len);
	link.name = name;
	return rc ? rc : t->fn(t->arg, &link);
}

static int each_symbol(const struct table *t, uint64_t address)
{
	uint8_t entry[2 * 8 + 24], front[4];
	size_t bytes = 2 * t->h->offset_bytes + 24;
	unsigned count;
	int rc = ckpt_hdf5_read_block(t->h, address, "SNOD", front, sizeof(front));

	if (rc)
		return rc;
	if (front[0] != 1)
		return ckpt_hdf5_refuse(t->h, "SNOD");
	count = ckpt_get16(front + 2);
	for (unsigned i = 0; i < count && !rc; i++) {
		struct ckpt_hdf5_bytes b = {entry, bytes, false};

		rc = ckpt_hdf5_read(t->h, address + 8 + i * bytes, entry, bytes);
		if (!rc)
			rc = take_entry(t, &b);
	}
	return rc;
}

// level: that which the node has; CKPT_HDF5_LEVELS_MAX: any.
static int each_of_tree(const struct table *t, uint64_t address, unsigned level)
{
	struct ckpt_hdf5 *h = t->h;
	uint8_t front[4], child[8];
	uint64_t at = address + 8 + 2 * h->offset_bytes;
	unsigned count;
	int rc = ckpt_hdf5_read_block(h, address, "TREE", front, sizeof(front));

	if (rc)
		return rc;
	if (front[0] != 0 || front[1] >= CKPT_HDF5_LEVELS_MAX || (level < CKPT_HDF5_LEVELS_MAX && front[1] != level))
		return ckpt_hdf5_refuse(h, "TREE");
	count = ckpt_get16(front + 2);
	for (unsigned i = 0; i < count && !rc; i++) {
		struct ckpt_hdf5_bytes b = {child, h->offset_bytes, false};
		uint64_t next;

		at += h->length_bytes;
		rc = ckpt_hdf5_read(h, at, child, h->offset_bytes);
		if (rc)
			break;
		at += h->offset_bytes;
		next = ckpt_hdf5_take_address(h, &b);
		rc = front[1] ? each_of_tree(t, next, front[1] - 1u) : each_symbol(t, next);
	}
	return rc;
}

static int each_of_table(struct ckpt_hdf5 *h, const struct ckpt_hdf5_message *m, ckpt_hdf5_link_fn *fn, void *arg)
{
	struct table t = {.h = h, .fn = fn, .arg = arg};
	struct ckpt_hdf5_bytes body;
	uint64_t tree, heap;
	int rc = ckpt_hdf5_body(h, m, &body);

	if (rc)
		return rc;
	tree = ckpt_hdf5_take_address(h, &body);
	heap = ckpt_hdf5_take_address(h, &body);
	if (body.broken)
		return ckpt_hdf5_refuse(h, "symbol table");
	rc = open_heap(&t, heap);
	return rc ? rc : each_of_tree(&t, tree, CKPT_HDF5_LEVELS_MAX);
}

// --- Link messages ----------------------------------------------------------------------------------------------------

#define NAME_WIDTH 3 // of the flags: the length of the name has 1, 2, 4 or 8 bytes
#define HAS_ORDER 4
#define HAS_KIND 8
#define HAS_CHARSET 16

enum { KIND_HARD = 0, KIND_SOFT = 1, KIND_EXTERNAL = 64 };

int ckpt_hdf5_parse_link(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *body, char *name, struct ckpt_hdf5_link *ret_link)
{
	uint64_t version = ckpt_hdf5_take(body, 1), flags = ckpt_hdf5_take(body, 1), kind = KIND_HARD, len;
	const uint8_t *text;

	if (flags & HAS_KIND)
		kind = ckpt_hdf5_take(body, 1);
	if (flags & HAS_ORDER)
		ckpt_hdf5_take(body, 8);
	if (flags & HAS_CHARSET)
		ckpt_hdf5_take(body, 1);
	len = ckpt_hdf5_take(body, 1u << (flags & NAME_WIDTH));
	text = ckpt_hdf5_skip(body, len);
	if (!text || version != 1 || len > CKPT_ARRAY_NAME_MAX || memchr(text, '\0', (size_t)len))
		return ckpt_hdf5_refuse(h, "link");
	memcpy(name, text, (size_t)len);
	*ret_link = (struct ckpt_hdf5_link){
		.name = name,
		.name_len = (size_t)len,
		.address = kind == KIND_HARD ? ckpt_hdf5_take_address(h, body) : CKPT_HDF5_NONE,
		.why = kind == KIND_HARD       ? NULL
		       : kind == KIND_SOFT     ? SOFT
		       : kind == KIND_EXTERNAL ? EXTERNAL
					       : OTHER,
	};
	return body->broken || (kind == KIND_HARD && ret_link->address == CKPT_HDF5_NONE) ? ckpt_hdf5_refuse(h, "link")
											  : 0;
}

static int take_link(struct ckpt_hdf5 *h, const struct ckpt_hdf5_message *m, ckpt_hdf5_link_fn *fn, void *arg)
{
	CLEANUP_FREE char *name = malloc(m->bytes + 1u);
	struct ckpt_hdf5_bytes body;
	struct ckpt_hdf5_link link;
	int rc = name ? ckpt_hdf5_body(h, m, &body) : -ENOMEM;

	if (!rc)
		rc = ckpt_hdf5_parse_link(h, &body, name, &link);
	return rc ? rc : fn(arg, &link);
}

#define INFO_ORDER 1   // it says the largest order
#define INFO_INDEXED 2 // and has an index by it

static int each_dense(struct ckpt_hdf5 *h, const struct ckpt_hdf5_message *m, ckpt_hdf5_link_fn *fn, void *arg)
{
	struct ckpt_hdf5_bytes body;
	uint64_t flags, heap, index;
	int rc = ckpt_hdf5_body(h, m, &body);

	if (rc)
		return rc;
	ckpt_hdf5_take(&body, 1);
	flags = ckpt_hdf5_take(&body, 1);
	if (flags & INFO_ORDER)
		ckpt_hdf5_take(&body, 8);
	heap = ckpt_hdf5_take_address(h, &body);
	index = ckpt_hdf5_take_address(h, &body);
	if (body.broken)
		return ckpt_hdf5_refuse(h, "link info");
	return heap == CKPT_HDF5_NONE ? 0 : ckpt_hdf5_each_dense_link(h, heap, index, fn, arg);
}

int ckpt_hdf5_each_link(struct ckpt_hdf5 *h, const struct ckpt_hdf5_object *o, ckpt_hdf5_link_fn *fn, void *arg)
{
	int rc = 0;

	for (size_t i = 0; i < o->count && !rc; i++) {
		const struct ckpt_hdf5_message *m = &o->messages[i];

		if (m->type == CKPT_HDF5_SYMBOL_TABLE)
			rc = each_of_table(h, m, fn, arg);
		else if (m->type == CKPT_HDF5_LINK && !m->is_shared)
			rc = take_link(h, m, fn, arg);
		else if (m->type == CKPT_HDF5_LINK_INFO)
			rc = each_dense(h, m, fn, arg);
	}
	return rc;
}
