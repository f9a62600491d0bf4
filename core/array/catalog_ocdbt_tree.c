// The manifest and the nodes of OCDBT (TensorStore: kvstore/ocdbt, "Storage format").
//
//	block      magic (u32, big-endian), length of the block (u64), version 0, compression (0 none, 1 zstd), body, CRC-32C of all
//	           before it (u32). Numbers are varints where no size is said
//	manifest   body: config, data files, versions (the latest is the last one), references to nodes of older versions.
//	           Of the kind "numbered" the newest is the file manifest.XXXXXXXXXXXXXXXX, in hexadecimal digits
//	config     uuid (16 bytes), kind (0 single, 1 numbered), two limits, arity (u8), compression, its level (u32) if there is one
//	node       body: height (u8), data files, count, then columns of so many entries. Height 0: a leaf, whose entries are keys and
//	           values; else entries are nodes of the height below
//	files      count, then columns: prefix shared with the path before, rest, length of the base, bytes of the rest. A path is
//	           relative to the database and to the bases of all nodes above
//
// Columns have no lengths: one ends where its numbers end. So each is passed over once, and then all are read side by side.
//
// Every byte is from outside. Heights sink on the way down, so no path is a cycle; keys rise along the leaves, and all that is decoded
// is spent, so many paths to one node end soon.
#include "core/array/catalog_ocdbt.h"

#include "core/base/crc32c.h"
#include "core/base/util.h"
#include "core/codec/codec_zstd.h"
#include "core/limits.h"

#define NONE CKPT_OCDBT_NONE
#define MANIFEST_MAGIC 0x0cdb3a2au
#define NODE_MAGIC 0x0cdb20deu
#define HEAD_BYTES 12 // magic and length
#define SUM_BYTES 4
#define NODE_COST 4096  // of reading one, beside its bytes
#define PATH_MAX_ 65535 // of a key or a path of OCDBT
#define DATA_FILES_MAX (1u << 20)
#define UUID_BYTES 16
#define KIND_NUMBERED 1

struct bytes {
	const uint8_t *at, *end;
};

struct ref { // of a node
	uint64_t offset, bytes;
	uint32_t file;
	uint32_t prefix, prefix_len; // of all keys below; in text
	uint32_t base;               // of all paths below; in text
	uint8_t height;
};

struct data_file {
	uint32_t file; // NONE: it is missing
	uint32_t base; // in text, if it was asked for
};

struct data_files {
	struct data_file *list;
	uint64_t count;
};

struct reading {
	struct ckpt_ocdbt *table;
	struct ref *stack;
	size_t depth, cap;
	char *path, *key; // room for one each
};

// --- Memory -----------------------------------------------------------------------------------------------------------

static int refuse_manifest(struct reading *r, const char *what)
{
	return ckpt_catalog_refuse(r->table->reading, "manifest", "%s", what);
}

static int room(struct reading *r, void *items, size_t *cap, size_t need, size_t item_bytes)
{
	struct ckpt_ocdbt *t = r->table;
	size_t before = *cap, want = before ? before : 64;
	void *grown;

	if (need <= before)
		return 0;
	while (want < need)
		want += want / 2;
	if (want > CKPT_OCDBT_BYTES_MAX / item_bytes || t->bytes + (want - before) * item_bytes > CKPT_OCDBT_BYTES_MAX)
		return ckpt_catalog_refuse(t->reading, "B+tree", "it has too many keys");
	grown = realloc(*(void **)items, want * item_bytes);
	if (!grown)
		return -ENOMEM;
	*(void **)items = grown;
	*cap = want;
	t->bytes += (want - before) * item_bytes;
	return 0;
}

static int add_text(struct reading *r, const void *bytes, size_t len, uint32_t *ret_at)
{
	struct ckpt_ocdbt *t = r->table;
	int rc = room(r, &t->text, &t->text_cap, t->text_len + len + 1, 1);

	if (rc)
		return rc;
	*ret_at = (uint32_t)t->text_len;
	memcpy(t->text + t->text_len, bytes, len);
	t->text[t->text_len + len] = '\0';
	t->text_len += len + 1;
	return ckpt_catalog_spend(t->reading, len);
}

// --- Numbers and columns ----------------------------------------------------------------------------------------------

static bool take_byte(struct bytes *b, uint8_t *ret_byte)
{
	if (b->at == b->end)
		return false;
	*ret_byte = *b->at++;
	return true;
}

// Seven bits in each byte, the lowest first; the highest bit says that there are more.
static bool take_number(struct bytes *b, uint64_t *ret_number)
{
	uint64_t number = 0;
	uint8_t byte;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (!take_byte(b, &byte) || (shift == 63 && byte > 1))
			return false;
		number |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128)) {
			*ret_number = number;
			return true;
		}
	}
	return false;
}

static bool skip(struct bytes *b, uint64_t bytes)
{
	if (bytes > (uint64_t)(b->end - b->at))
		return false;
	b->at += bytes;
	return true;
}

// The column that begins here, and what is behind it. The sum of its numbers.
static bool take_column(struct bytes *b, uint64_t count, struct bytes *ret_column, uint64_t *ret_sum)
{
	uint64_t sum = 0, number;

	*ret_column = *b;
	for (uint64_t i = 0; i < count; i++)
		if (!take_number(b, &number) || __builtin_add_overflow(sum, number, &sum))
			return false;
	ret_column->end = b->at;
	*ret_sum = sum;
	return true;
}

// The same of a column whose sum means nothing.
static bool pass_column(struct bytes *b, uint64_t count, struct bytes *ret_column)
{
	uint64_t number;

	*ret_column = *b;
	for (uint64_t i = 0; i < count; i++)
		if (!take_number(b, &number))
			return false;
	ret_column->end = b->at;
	return true;
}

static bool take_run(struct bytes *b, uint64_t bytes, struct bytes *ret_run)
{
	*ret_run = *b;
	if (!skip(b, bytes))
		return false;
	ret_run->end = b->at;
	return true;
}

// Every entry takes a byte at least.
static bool take_count(struct bytes *b, uint64_t *ret_count)
{
	return take_number(b, ret_count) && *ret_count <= (uint64_t)(b->end - b->at);
}

// --- Blocks -----------------------------------------------------------------------------------------------------------

// Checks the head and the sum. NULL, or the rule that they break.
static const char *check_block(const uint8_t *block, uint64_t bytes, uint32_t magic)
{
	if (__builtin_bswap32(ckpt_get32(block)) != magic)
		return "its magic is another one";
	if (ckpt_get64(block + 4) != bytes)
		return "its length is another one";
	if (ckpt_crc32c(0, block, (size_t)bytes - SUM_BYTES) != ckpt_get32(block + bytes - SUM_BYTES))
		return "its checksum is another one";
	return NULL;
}

// The body, decoded: it is in *memory then, which may be another one. NULL, or why not; -ENOMEM in *ret_rc.
static const char *unpack(uint8_t **memory, uint64_t bytes, struct bytes *ret_body, int *ret_rc)
{
	struct bytes b = {*memory + HEAD_BYTES, *memory + bytes - SUM_BYTES};
	uint64_t version, compression;
	uint8_t *plain;
	size_t plain_bytes;
	int rc;

	*ret_rc = 0;
	if (!take_number(&b, &version) || version || !take_number(&b, &compression) || compression > 1)
		return "its version or compression is not known";
	*ret_body = b;
	if (!compression)
		return NULL;
	rc = ckpt_zstd_unpack(b.at, (size_t)(b.end - b.at), CKPT_OCDBT_NODE_MAX, &plain, &plain_bytes);
	if (rc == -ENOMEM) {
		*ret_rc = rc;
		return "";
	}
	if (rc)
		return rc == -EFBIG ? "it is too large when decoded" : "zstd does not decode it";
	free(*memory);
	*memory = plain;
	*ret_body = (struct bytes){plain, plain + plain_bytes};
	return NULL;
}

// A block of a source. *ret_memory is the caller's in any case, and may be NULL.
static int read_block(struct reading *r, const struct ckpt_source *source, uint64_t offset, uint64_t bytes,
		      uint32_t magic, uint8_t **ret_memory, struct bytes *ret_body)
{
	const char *field = magic == MANIFEST_MAGIC ? "manifest" : "B+tree node", *why = NULL;
	struct ckpt_catalog_reading *catalog = r->table->reading;
	int rc = ckpt_catalog_spend(catalog, NODE_COST + MIN(bytes, (uint64_t)CKPT_OCDBT_NODE_MAX));

	*ret_memory = NULL;
	if (rc)
		return rc;
	if (bytes < HEAD_BYTES + 2 + SUM_BYTES || bytes > CKPT_OCDBT_NODE_MAX)
		return ckpt_catalog_refuse(catalog, field, "it has %llu bytes: too few or too many",
					   (unsigned long long)bytes);
	*ret_memory = malloc((size_t)bytes);
	rc = *ret_memory ? ckpt_source_read(source, offset, *ret_memory, (size_t)bytes) : -ENOMEM;
	if (rc == -EINVAL || rc == -ENODATA)
		return ckpt_catalog_refuse(catalog, field, "it lies outside of its file");
	if (rc)
		return rc;
	why = check_block(*ret_memory, bytes, magic);
	if (!why)
		why = unpack(ret_memory, bytes, ret_body, &rc);
	if (rc)
		return rc;
	if (why)
		return ckpt_catalog_refuse(catalog, field, "byte %llu: %s", (unsigned long long)offset, why);
	return ckpt_catalog_spend(catalog, (uint64_t)(ret_body->end - ret_body->at));
}

// --- Data files -------------------------------------------------------------------------------------------------------

static uint32_t find_file(const struct ckpt_ocdbt *t, const char *path)
{
	const struct ckpt_listed *found = ckpt_catalog_listing_find(&t->listing, path);

	return found ? (uint32_t)(found - t->listing.files) : NONE;
}

// The directory and the bases of the nodes above, in r->path.
static size_t begin_path(struct reading *r, const char *base)
{
	const struct ckpt_catalog_reading *catalog = r->table->reading;
	size_t len = catalog->dir_len;

	memcpy(r->path, catalog->path, len);
	if (len)
		r->path[len++] = '/';
	memcpy(r->path + len, base, strlen(base));
	return len + strlen(base);
}

// The table of data files. bases: children are looked for with them. False: it breaks a rule; *ret_rc, or that.
static bool take_files(struct reading *r, struct bytes *b, uint32_t base, bool bases, struct data_files *ret_files,
		       int *ret_rc)
{
	struct bytes prefixes, rests, base_lens, text;
	const char *above = base == NONE ? "" : r->table->text + base;
	size_t above_len = strlen(above), dir = begin_path(r, above) - above_len, head = dir + above_len;
	uint64_t count, sum, prefix = 0, rest, base_len, len = 0;

	*ret_rc = 0;
	if (!take_count(b, &count) || count > DATA_FILES_MAX || !pass_column(b, count ? count - 1 : 0, &prefixes) ||
	    !take_column(b, count, &rests, &sum) || !pass_column(b, count, &base_lens) || !take_run(b, sum, &text))
		return false;
	ret_files->list = ckpt_calloc(count + 1, sizeof(*ret_files->list));
	ret_files->count = count;
	if (!ret_files->list)
		*ret_rc = -ENOMEM;
	for (uint64_t i = 0; i < count && !*ret_rc; i++) {
		struct data_file *f = &ret_files->list[i];

		if ((i && !take_number(&prefixes, &prefix)) || !take_number(&rests, &rest) ||
		    !take_number(&base_lens, &base_len) || prefix > len || rest > PATH_MAX_ ||
		    above_len + prefix + rest > PATH_MAX_ || base_len > prefix + rest)
			return false;
		memcpy(r->path + head + prefix, text.at, (size_t)rest);
		text.at += rest;
		len = prefix + rest;
		r->path[head + len] = '\0';
		f->file = memchr(r->path, '\0', (size_t)(head + len)) ? NONE : find_file(r->table, r->path);
		f->base = NONE;
		*ret_rc = ckpt_catalog_spend(r->table->reading, head + len);
		if (bases && !*ret_rc)
			*ret_rc = add_text(r, r->path + dir, (size_t)(above_len + base_len), &f->base);
	}
	return !*ret_rc;
}

// The range of a data file, if all of it is there.
static uint32_t place_of(const struct reading *r, const struct data_files *files, uint64_t id, uint64_t offset,
			 uint64_t bytes)
{
	uint32_t file = id < files->count ? files->list[id].file : NONE;

	if (file != NONE &&
	    (offset > r->table->listing.files[file].bytes || bytes > r->table->listing.files[file].bytes - offset))
		return NONE;
	return file;
}

// --- Nodes ------------------------------------------------------------------------------------------------------------

struct keys { // of the entries of a node, as columns
	struct bytes prefixes, rests, text;
	size_t len; // of the last one, in r->key
	bool any;
};

// The next key: behind the prefix of the node, in r->key.
static bool take_key(struct reading *r, const struct ref *ref, struct keys *k)
{
	uint64_t prefix = 0, rest;
	size_t relative = k->any ? k->len - ref->prefix_len : 0;

	if ((k->any && !take_number(&k->prefixes, &prefix)) || !take_number(&k->rests, &rest) || prefix > relative ||
	    rest > PATH_MAX_ || ref->prefix_len + prefix + rest > PATH_MAX_)
		return false;
	if (!k->any)
		memcpy(r->key, r->table->text + ref->prefix, ref->prefix_len);
	memcpy(r->key + ref->prefix_len + prefix, k->text.at, (size_t)rest);
	k->text.at += rest;
	k->len = ref->prefix_len + (size_t)(prefix + rest);
	k->any = true;
	return true;
}

// Keys rise along all leaves. One with a NUL is none of zarr.
static int add_entry(struct reading *r, size_t key_len, struct ckpt_ocdbt_entry e)
{
	struct ckpt_ocdbt *t = r->table;
	const struct ckpt_ocdbt_entry *last = t->count ? &t->entries[t->count - 1] : NULL;
	int order = last ? memcmp(t->text + last->key, r->key, MIN(last->key_len, key_len)) : -1, rc;

	if (order > 0 || (!order && last->key_len >= key_len))
		return ckpt_catalog_refuse(t->reading, "B+tree", "its keys are not in order");
	if (memchr(r->key, '\0', key_len))
		return 0;
	e.key_len = (uint32_t)key_len;
	rc = add_text(r, r->key, key_len, &e.key);
	if (!rc)
		rc = room(r, &t->entries, &t->cap, t->count + 1, sizeof(e));
	if (!rc)
		t->entries[t->count++] = e;
	return rc;
}

struct values { // of a leaf, as columns
	struct bytes lengths, kinds, ids, offsets, inside;
};

static bool take_value(struct reading *r, const struct data_files *files, struct values *v, struct ckpt_ocdbt_entry *e,
		       int *ret_rc)
{
	uint64_t kind, id;

	*e = (struct ckpt_ocdbt_entry){.file = NONE, .data = NONE};
	*ret_rc = 0;
	if (!take_number(&v->lengths, &e->bytes) || !take_number(&v->kinds, &kind))
		return false;
	if (!kind) {
		if (e->bytes > (uint64_t)(v->inside.end - v->inside.at))
			return false;
		*ret_rc = add_text(r, v->inside.at, (size_t)e->bytes, &e->data);
		v->inside.at += e->bytes;
		return true;
	}
	if (kind > 1 || !take_number(&v->ids, &id) || !take_number(&v->offsets, &e->offset))
		return false;
	e->file = place_of(r, files, id, e->offset, e->bytes);
	return true;
}

static bool read_leaf(struct reading *r, struct bytes *b, const struct ref *ref, const struct data_files *files,
		      uint64_t count, int *ret_rc)
{
	struct ckpt_ocdbt_entry e;
	struct keys keys = {0};
	struct values v;
	uint64_t sum, outside;

	*ret_rc = 0;
	if (!pass_column(b, count - 1, &keys.prefixes) || !take_column(b, count, &keys.rests, &sum) ||
	    !take_run(b, sum, &keys.text) || !pass_column(b, count, &v.lengths) ||
	    !take_column(b, count, &v.kinds, &outside) || outside > count || !pass_column(b, outside, &v.ids) ||
	    !pass_column(b, outside, &v.offsets))
		return false;
	v.inside = *b;
	for (uint64_t i = 0; i < count && !*ret_rc; i++) {
		if (!take_key(r, ref, &keys) || !take_value(r, files, &v, &e, ret_rc))
			return false;
		// A value in the node is of the file that has the node.
		if (!*ret_rc && e.data != NONE)
			e.file = ref->file;
		if (!*ret_rc)
			*ret_rc = add_entry(r, keys.len, e);
	}
	return !*ret_rc && v.inside.at == v.inside.end;
}

static void reverse(struct ref *refs, size_t count)
{
	for (size_t i = 0; i < count / 2; i++) {
		struct ref other = refs[i];

		refs[i] = refs[count - 1 - i];
		refs[count - 1 - i] = other;
	}
}

// Children lie on the stack in reverse: the first one is read next.
static bool read_inner(struct reading *r, struct bytes *b, const struct ref *ref, const struct data_files *files,
		       uint64_t count, int *ret_rc)
{
	struct bytes common, ids, offsets, lengths, other;
	size_t first = r->depth;
	struct keys keys = {0};
	uint64_t sum, shared, id;

	*ret_rc = 0;
	if (!pass_column(b, count - 1, &keys.prefixes) || !take_column(b, count, &keys.rests, &sum) ||
	    !pass_column(b, count, &common) || !take_run(b, sum, &keys.text) || !pass_column(b, count, &ids) ||
	    !pass_column(b, count, &offsets) || !pass_column(b, count, &lengths) || !pass_column(b, count, &other) ||
	    !pass_column(b, count, &other) || !pass_column(b, count, &other) || b->at != b->end)
		return false;
	for (uint64_t i = 0; i < count && !*ret_rc; i++) {
		struct ref child = {.height = (uint8_t)(ref->height - 1), .base = NONE};

		if (!take_key(r, ref, &keys) || !take_number(&common, &shared) || !take_number(&ids, &id) ||
		    !take_number(&offsets, &child.offset) || !take_number(&lengths, &child.bytes) ||
		    shared > keys.len - ref->prefix_len)
			return false;
		child.file = place_of(r, files, id, child.offset, child.bytes);
		if (child.file == NONE)
			return false;
		child.base = files->list[id].base;
		child.prefix_len = ref->prefix_len + (uint32_t)shared;
		*ret_rc = add_text(r, r->key, child.prefix_len, &child.prefix);
		if (!*ret_rc)
			*ret_rc = room(r, &r->stack, &r->cap, r->depth + 1, sizeof(child));
		if (!*ret_rc)
			r->stack[r->depth++] = child;
	}
	reverse(r->stack + first, r->depth - first);
	return !*ret_rc;
}

static int read_body(struct reading *r, struct bytes b, const struct ref *ref)
{
	struct data_files files = {0};
	uint64_t count;
	uint8_t height;
	int rc = 0;
	bool good = take_byte(&b, &height) && height == ref->height &&
		    take_files(r, &b, ref->base, height > 0, &files, &rc) && take_count(&b, &count) && count;

	if (good && height)
		good = read_inner(r, &b, ref, &files, count, &rc);
	else if (good)
		good = read_leaf(r, &b, ref, &files, count, &rc);
	free(files.list);
	if (rc || good)
		return rc;
	return ckpt_catalog_refuse(r->table->reading, "B+tree node",
				   "%s, byte %llu: its body breaks a rule, or a file is missing that it names",
				   r->table->listing.files[ref->file].path, (unsigned long long)ref->offset);
}

static int read_node(struct reading *r, const struct ref *ref)
{
	const struct ckpt_catalog_files *files = r->table->reading->files;
	uint8_t *memory = NULL;
	struct ckpt_source source;
	struct bytes body;
	int rc = files->open(files->arg, r->table->listing.files[ref->file].path, &source);

	if (rc)
		return rc;
	rc = read_block(r, &source, ref->offset, ref->bytes, NODE_MAGIC, &memory, &body);
	files->close(files->arg, &source);
	if (!rc)
		rc = read_body(r, body, ref);
	free(memory);
	return rc;
}

static int read_tree(struct reading *r, const struct ref *root)
{
	int rc = room(r, &r->stack, &r->cap, 1, sizeof(*root));

	if (!rc)
		r->stack[r->depth++] = *root;
	while (!rc && r->depth) {
		struct ref next = r->stack[--r->depth];

		rc = read_node(r, &next);
	}
	return rc;
}

// --- Manifest ---------------------------------------------------------------------------------------------------------

static bool take_config(struct bytes *b, uint64_t *ret_kind)
{
	uint64_t ignored, compression;

	return skip(b, UUID_BYTES) && take_number(b, ret_kind) && take_number(b, &ignored) &&
	       take_number(b, &ignored) && skip(b, 1) && take_number(b, &compression) && compression <= 1 &&
	       (!compression || skip(b, 4));
}

// The root of the last version. False: it breaks a rule; *ret_any false: it has no version, or no key.
static bool take_root(struct reading *r, struct bytes *b, const struct data_files *files, struct ref *ret_root,
		      bool *ret_any)
{
	struct bytes generations, heights, ids, offsets, lengths, other;
	uint64_t count, id = 0;

	*ret_any = false;
	if (!take_count(b, &count))
		return false;
	if (!count)
		return true;
	if (!pass_column(b, count, &generations) || !take_run(b, count, &heights) || !pass_column(b, count, &ids) ||
	    !pass_column(b, count, &offsets) || !pass_column(b, count, &lengths) || !pass_column(b, count, &other) ||
	    !pass_column(b, count, &other) || !pass_column(b, count, &other) || count > UINT64_MAX / 8 ||
	    !take_run(b, 8 * count, &other))
		return false;
	for (uint64_t i = 0; i < count; i++)
		if (!take_byte(&heights, &ret_root->height) || !take_number(&ids, &id) ||
		    !take_number(&offsets, &ret_root->offset) || !take_number(&lengths, &ret_root->bytes))
			return false;
	if (ret_root->offset == UINT64_MAX && ret_root->bytes == UINT64_MAX)
		return true;
	ret_root->file = place_of(r, files, id, ret_root->offset, ret_root->bytes);
	if (ret_root->file == NONE)
		return false;
	ret_root->base = files->list[id].base;
	*ret_any = true;
	return true;
}

static int read_manifest(struct reading *r, const struct ckpt_source *source, bool numbered);

// The newest of the numbered manifests is the last one in the order of names.
static int read_numbered(struct reading *r)
{
	static const char name[] = "manifest.", digits[] = "0123456789abcdef";
	struct ckpt_ocdbt *t = r->table;
	const struct ckpt_catalog_files *files = t->reading->files;
	size_t dir = begin_path(r, name) - strlen(name), head = dir + strlen(name);
	struct ckpt_source source;
	int rc;

	for (size_t i = t->listing.count; i-- > 0;) {
		const char *path = t->listing.files[i].path;

		if (strlen(path) != head + 16 || memcmp(path, r->path, head) || strspn(path + head, digits) != 16)
			continue;
		rc = files->open(files->arg, path, &source);
		if (rc)
			return rc;
		rc = read_manifest(r, &source, true);
		files->close(files->arg, &source);
		return rc;
	}
	return 0;
}

static int read_manifest(struct reading *r, const struct ckpt_source *source, bool numbered)
{
	struct ref root = {.base = NONE};
	struct data_files files = {0};
	uint8_t *memory = NULL;
	bool any = false, good;
	struct bytes body;
	uint64_t kind;
	int rc = read_block(r, source, 0, source->bytes, MANIFEST_MAGIC, &memory, &body);

	good = !rc && take_config(&body, &kind) && kind <= KIND_NUMBERED;
	if (good && (numbered || kind != KIND_NUMBERED))
		good = take_files(r, &body, NONE, true, &files, &rc) && take_root(r, &body, &files, &root, &any);
	free(files.list);
	free(memory);
	if (!rc && !good)
		rc = refuse_manifest(r, "its body breaks a rule, or a file is missing that it names");
	if (!rc && !numbered && kind == KIND_NUMBERED)
		return read_numbered(r);
	if (rc || !any)
		return rc;
	rc = add_text(r, "", 0, &root.prefix);
	return rc ? rc : read_tree(r, &root);
}

int ckpt_ocdbt_read(struct ckpt_catalog_reading *catalog, struct ckpt_ocdbt *ret_table)
{
	struct reading r = {.table = ret_table};
	int rc;

	*ret_table = (struct ckpt_ocdbt){.reading = catalog};
	r.path = malloc(catalog->dir_len + 1 + PATH_MAX_ + 1);
	r.key = malloc(PATH_MAX_ + 1);
	rc = r.path && r.key ? ckpt_catalog_listing_read(catalog, &ret_table->listing) : -ENOMEM;
	if (!rc)
		rc = read_manifest(&r, &catalog->source, false);
	free(r.stack);
	free(r.path);
	free(r.key);
	return rc;
}

void ckpt_ocdbt_done(struct ckpt_ocdbt *t)
{
	ckpt_catalog_listing_done(&t->listing);
	free(t->entries);
	free(t->text);
}
