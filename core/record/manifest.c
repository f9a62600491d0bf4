#include "core/record/manifest.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/record/manifest_layout.h"
#include "core/record/manifest_parsed.h"
#include "core/record/name.h"

#include <assert.h>

// The reader. It trusts nothing before parse() has returned 0, and checks nothing after that.
//
// Why what is parsed is safe (each line is a check below; tests/unit/test_manifest.c breaks each one):
//  1. Every offset and count was compared with the length of its section, in 64 bits, before its first use.
//  2. Children: walking the entries in order, the ranges of the directories follow each other without a gap from entry 1
//     to the last, and each begins behind its directory. So every entry but the first has exactly one parent, before it,
//     and there is no cycle.
//  3. Siblings are strictly sorted: no two names are equal, and binary search finds each.
//  4. Inodes: a list of entry indices strictly sorted by (inode, index) with as many rows as there are entries is a
//     permutation. Equal inodes stand side by side and must agree in all but name, parent and raw path.
//  5. Strings end in NUL inside of the string heap, at the length that is stored. They follow each other in the order of
//     the entries (name, then target or raw path) and then of the attributes, so none is checked twice: the work is
//     bounded by the length of the manifest, whatever a hostile writer thinks of.
//  6. Seals, chunks, packs and bases: manifest_seals.c.

static const uint32_t known_sections[] = {
	CKPT_SECTION_ENTRIES, CKPT_SECTION_INODES,  CKPT_SECTION_SESSIONS, CKPT_SECTION_XATTR_SETS,
	CKPT_SECTION_XATTRS,  CKPT_SECTION_STRINGS, CKPT_SECTION_SEALS,    CKPT_SECTION_CHUNKS,
	CKPT_SECTION_PACKS,   CKPT_SECTION_BASES,   CKPT_SECTION_CATALOG,
};

const struct ckpt_container_kind ckpt_manifest_kind = {
	.magic = CKPT_MANIFEST_MAGIC,
	.major = CKPT_MANIFEST_MAJOR,
	.minor = CKPT_MANIFEST_MINOR,
	.required_known = CKPT_MANIFEST_REQUIRED_KNOWN,
	.types = known_sections,
	.type_count = ARRAY_LEN(known_sections),
	.bytes_max = CKPT_MANIFEST_BYTES_MAX,
};

static const char *name_of(const struct ckpt_manifest *m, const uint8_t *e)
{
	return m->strings + ckpt_get32(e + ENTRY_NAME);
}

// As strcmp, for names with known lengths; sorts as memcmp with the shorter first.
static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int r = memcmp(a, b, MIN(a_len, b_len));

	return r ? r : (a_len > b_len) - (a_len < b_len);
}

// One content has one form: whether a section is required follows from it, too.
static int load_table(const struct ckpt_container *c, uint32_t type, size_t row_bytes, bool required,
		      struct ckpt_table *ret_table)
{
	struct ckpt_section s;

	if (ckpt_container_find(c, type, &s) || s.required != required)
		return -EBADMSG;
	if (s.len % row_bytes)
		return -EBADMSG; // a container is smaller than 4 GiB, so that the count fits
	*ret_table = (struct ckpt_table){.rows = s.data, .count = (uint32_t)(s.len / row_bytes)};
	return 0;
}

// None of its rows, where there is no such section; one that is there has some, and one that is required is there.
static int load_optional_table(const struct ckpt_container *c, uint32_t type, size_t row_bytes, bool required,
			       struct ckpt_table *ret_table)
{
	struct ckpt_section s;
	bool there = !ckpt_container_find(c, type, &s);
	int r = there ? load_table(c, type, row_bytes, required, ret_table) : 0;

	return !r && (there || required) && !ret_table->count ? -EBADMSG : r;
}

// Any bytes: core/array/catalog_encode.h looks into them.
static int load_catalog(struct ckpt_manifest *m, const struct ckpt_container *c)
{
	struct ckpt_section s;

	if (ckpt_container_find(c, CKPT_SECTION_CATALOG, &s))
		return 0;
	if (s.len <= CKPT_CATALOG_STORED_MAX) { // else it breaks a rule: there is none, and the manifest is whole
		m->catalog = s.data;
		m->catalog_len = (size_t)s.len;
	}
	return s.required || !s.len ? -EBADMSG : 0;
}

static int load_sections(struct ckpt_manifest *m, const struct ckpt_container *c)
{
	bool packed = c->required & CKPT_MANIFEST_CHUNKS, based = c->required & CKPT_MANIFEST_DELTA;
	struct ckpt_section strings;

	if (load_table(c, CKPT_SECTION_ENTRIES, ENTRY_BYTES, true, &m->entries) ||
	    load_table(c, CKPT_SECTION_INODES, sizeof(uint32_t), true, &m->inodes) ||
	    load_table(c, CKPT_SECTION_SESSIONS, SESSION_BYTES, true, &m->sessions) ||
	    load_table(c, CKPT_SECTION_XATTR_SETS, XSET_BYTES, true, &m->xattr_sets) ||
	    load_table(c, CKPT_SECTION_XATTRS, XATTR_BYTES, true, &m->xattrs) ||
	    load_optional_table(c, CKPT_SECTION_SEALS, SEAL_BYTES, false, &m->seals) ||
	    load_optional_table(c, CKPT_SECTION_CHUNKS, CHUNK_BYTES, packed, &m->chunks) ||
	    load_optional_table(c, CKPT_SECTION_PACKS, PACK_BYTES, packed, &m->packs) ||
	    load_optional_table(c, CKPT_SECTION_BASES, CHUNK_BYTES, based, &m->bases) || load_catalog(m, c) ||
	    ckpt_container_find(c, CKPT_SECTION_STRINGS, &strings) || !strings.required)
		return -EBADMSG;
	if (!m->entries.count || m->entries.count > CKPT_STEP_FILES_MAX || m->inodes.count != m->entries.count)
		return -EBADMSG;
	if (!m->packs.count != !packed || !m->bases.count != !based)
		return -EBADMSG;
	m->conflicts = c->required & CKPT_MANIFEST_CONFLICTS;
	m->strings = strings.data;
	m->strings_len = (uint32_t)strings.len; // a container is smaller than 4 GiB
	if (!m->strings_len || m->strings[0] || m->strings[m->strings_len - 1])
		return -EBADMSG;
	return 0;
}

// len bytes without NUL, and a NUL behind them, inside of the heap and behind the string before: *at.
static bool string_ok(const struct ckpt_manifest *m, uint32_t *at, uint32_t offset, uint64_t len)
{
	if (offset < *at || offset >= m->strings_len || len >= m->strings_len - offset)
		return false;
	*at = offset + (uint32_t)len + 1;
	return !m->strings[offset + len] && !memchr(m->strings + offset, 0, len);
}

bool ckpt_manifest_raw_path_ok(const char *path, size_t len)
{
	unsigned int components = 0;

	if (len > CKPT_MANIFEST_RAW_PATH_MAX)
		return false;
	for (const char *end = path + len;; path++) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		const char *stop = slash ? slash : end;

		if (++components > CKPT_DEPTH_MAX + 1 || ckpt_name_check(path, (size_t)(stop - path)))
			return false;
		path = stop;
		if (!slash)
			return true;
	}
}

static int check_sessions(const struct ckpt_manifest *m)
{
	const char *previous = NULL;

	for (uint32_t i = 0; i < m->sessions.count; i++) {
		const uint8_t *s = ckpt_table_row(&m->sessions, i, SESSION_BYTES);
		const char *uuid = (const char *)s;

		if (ckpt_get32(s + CKPT_UUID_LEN) || !ckpt_uuid_check(uuid))
			return -EBADMSG;
		if (previous && strcmp(previous, uuid) >= 0)
			return -EBADMSG;
		previous = uuid;
	}
	return 0;
}

static const char *xattr_name(const struct ckpt_manifest *m, const uint8_t *x)
{
	return m->strings + ckpt_get32(x + XATTR_NAME);
}

// The attributes of one set: names strictly sorted, together no more than the limit.
static int check_xattr_set(const struct ckpt_manifest *m, uint32_t first, uint32_t count, uint32_t *at)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *x = ckpt_table_row(&m->xattrs, first + i, XATTR_BYTES);
		uint32_t name_len = ckpt_get16(x + XATTR_NAME_LEN), value = ckpt_get32(x + XATTR_VALUE);
		uint32_t value_len = ckpt_get32(x + XATTR_VALUE_LEN);

		if (!name_len || name_len > CKPT_XATTR_NAME_MAX || ckpt_get16(x + XATTR_ZERO))
			return -EBADMSG;
		if (!string_ok(m, at, ckpt_get32(x + XATTR_NAME), name_len))
			return -EBADMSG;
		if (value < *at || value > m->strings_len || value_len > m->strings_len - value)
			return -EBADMSG;
		*at = value + value_len;
		total += name_len + (uint64_t)value_len;
		if (total > CKPT_XATTR_BYTES_MAX)
			return -EBADMSG;
		if (i && strcmp(xattr_name(m, x - XATTR_BYTES), xattr_name(m, x)) >= 0)
			return -EBADMSG;
	}
	return 0;
}

static int check_xattrs(const struct ckpt_manifest *m, uint32_t *at)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < m->xattr_sets.count; i++) {
		const uint8_t *set = ckpt_table_row(&m->xattr_sets, i, XSET_BYTES);
		uint32_t count = ckpt_get32(set + XSET_COUNT);

		if (ckpt_get32(set + XSET_FIRST) != next || !count || count > m->xattrs.count - next)
			return -EBADMSG;
		if (check_xattr_set(m, next, count, at))
			return -EBADMSG;
		next += count;
	}
	return next == m->xattrs.count ? 0 : -EBADMSG;
}

static bool file_ok(const struct ckpt_manifest *m, const uint8_t *e, uint32_t *at)
{
	uint32_t session = ckpt_get32(e + ENTRY_A), raw = ckpt_get32(e + ENTRY_B);
	size_t len;

	if (e[ENTRY_CONTENT] == CKPT_CONTENT_NONE)
		return !ckpt_get64(e + ENTRY_SIZE) && !session && !raw;
	if (session >= m->sessions.count ||
	    (e[ENTRY_CONTENT] != CKPT_CONTENT_RAW && (e[ENTRY_CONTENT] != CKPT_CONTENT_CHUNKS || !m->packs.count)))
		return false;
	if (!raw)
		return true;
	if (raw >= m->strings_len)
		return false;
	len = strnlen(m->strings + raw, CKPT_MANIFEST_RAW_PATH_MAX + 1);
	return string_ok(m, at, raw, len) && ckpt_manifest_raw_path_ok(m->strings + raw, len);
}

static bool symlink_ok(const struct ckpt_manifest *m, const uint8_t *e, uint32_t *at)
{
	uint64_t len = ckpt_get64(e + ENTRY_SIZE);

	return e[ENTRY_CONTENT] == CKPT_CONTENT_NONE && len && len <= CKPT_SYMLINK_MAX && !ckpt_get32(e + ENTRY_B) &&
	       string_ok(m, at, ckpt_get32(e + ENTRY_A), len);
}

// What an entry says of itself, without its neighbours.
static int check_entry(const struct ckpt_manifest *m, uint32_t i, uint32_t *at)
{
	const uint8_t *e = ckpt_manifest_entry_at(m, i);
	uint32_t name_len = ckpt_get16(e + ENTRY_NAME_LEN);

	if (!string_ok(m, at, ckpt_get32(e + ENTRY_NAME), name_len))
		return -EBADMSG;
	if (i ? ckpt_name_check(name_of(m, e), name_len) != 0 : name_len != 0)
		return -EBADMSG;
	if (ckpt_get32(e + ENTRY_MODE) & ~07777u || ckpt_get32(e + ENTRY_MTIME_NS) >= 1000000000u)
		return -EBADMSG;
	if (ckpt_get64(e + ENTRY_SIZE) > INT64_MAX || !ckpt_get64(e + ENTRY_INO) ||
	    ckpt_get32(e + ENTRY_FLAGS) & ~(i && m->conflicts ? CKPT_ENTRY_CONFLICT : 0))
		return -EBADMSG;
	if (!ckpt_get32(e + ENTRY_NLINK) || ckpt_get32(e + ENTRY_XATTRS) > m->xattr_sets.count)
		return -EBADMSG;
	switch (e[ENTRY_TYPE]) {
	case CKPT_ENTRY_FILE:
		return file_ok(m, e, at) ? 0 : -EBADMSG;
	case CKPT_ENTRY_SYMLINK:
		return symlink_ok(m, e, at) ? 0 : -EBADMSG;
	case CKPT_ENTRY_DIR:
		return e[ENTRY_CONTENT] == CKPT_CONTENT_NONE ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

// The children of directory i stand from `first` on: parent, order.
static int check_children(const struct ckpt_manifest *m, uint32_t i, uint32_t first, uint32_t count)
{
	for (uint32_t k = first; k < first + count; k++) {
		const uint8_t *e = ckpt_manifest_entry_at(m, k), *before = e - ENTRY_BYTES;

		if (ckpt_get32(e + ENTRY_PARENT) != i)
			return -EBADMSG;
		if (k > first && compare_names(name_of(m, before), ckpt_get16(before + ENTRY_NAME_LEN), name_of(m, e),
					       ckpt_get16(e + ENTRY_NAME_LEN)) >= 0)
			return -EBADMSG;
	}
	return 0;
}

static int check_tree(const struct ckpt_manifest *m)
{
	uint32_t n = m->entries.count, next = 1, level_end = 1, depth = 0;
	const uint8_t *root = ckpt_manifest_entry_at(m, 0);

	if (root[ENTRY_TYPE] != CKPT_ENTRY_DIR || ckpt_get32(root + ENTRY_PARENT))
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *e = ckpt_manifest_entry_at(m, i);
		uint32_t count = ckpt_get32(e + ENTRY_B);

		if (i >= next) // nobody's child
			return -EBADMSG;
		if (i == level_end) {
			depth++;
			level_end = next;
		}
		if (!ckpt_manifest_depth_ok(depth, e[ENTRY_TYPE]))
			return -EBADMSG;
		if (e[ENTRY_TYPE] != CKPT_ENTRY_DIR)
			continue;
		if (ckpt_get32(e + ENTRY_A) != next || count > n - next || check_children(m, i, next, count))
			return -EBADMSG;
		next += count;
	}
	return 0; // the last of them was the next before its children, and those end at n
}

// Two entries that share an inode are one file, but for name, parent and where the raw file or target is written down.
static bool same_inode(const struct ckpt_manifest *m, const uint8_t *a, const uint8_t *b)
{
	uint32_t a_word = ckpt_get32(a + ENTRY_A), b_word = ckpt_get32(b + ENTRY_A);

	if (a[ENTRY_TYPE] == CKPT_ENTRY_DIR || memcmp(a, b, ENTRY_NAME_LEN) ||
	    memcmp(a + ENTRY_MODE, b + ENTRY_MODE, ENTRY_FLAGS - ENTRY_MODE))
		return false;
	if (a[ENTRY_TYPE] == CKPT_ENTRY_SYMLINK)
		return !strcmp(m->strings + a_word, m->strings + b_word);
	return a_word == b_word;
}

static uint32_t inode_at(const struct ckpt_manifest *m, uint32_t i)
{
	return ckpt_get32(ckpt_table_row(&m->inodes, i, sizeof(uint32_t)));
}

// The rows of the inode list from `first` on that share one inode: *ret_end is behind the last.
static int check_inode_run(const struct ckpt_manifest *m, uint32_t first, uint64_t ino_before, uint32_t *ret_end)
{
	uint32_t n = m->entries.count, previous = inode_at(m, first), end;
	const uint8_t *e;
	uint64_t ino;

	if (previous >= n)
		return -EBADMSG;
	e = ckpt_manifest_entry_at(m, previous);
	ino = ckpt_get64(e + ENTRY_INO);
	if (ino <= ino_before)
		return -EBADMSG;
	for (end = first + 1; end < n; end++) {
		uint32_t index = inode_at(m, end);

		if (index >= n)
			return -EBADMSG;
		if (ckpt_get64(ckpt_manifest_entry_at(m, index) + ENTRY_INO) != ino)
			break;
		if (index <= previous || !same_inode(m, e, ckpt_manifest_entry_at(m, index)))
			return -EBADMSG;
		previous = index;
	}
	if (e[ENTRY_TYPE] != CKPT_ENTRY_DIR && ckpt_get32(e + ENTRY_NLINK) != end - first)
		return -EBADMSG;
	*ret_end = end;
	return 0;
}

// Order and agreement of the inode list; counts files and bytes, hard links once.
static int check_inodes(struct ckpt_manifest *m)
{
	uint64_t ino = 0;

	for (uint32_t i = 0, end = 0; i < m->entries.count; i = end) {
		const uint8_t *e;

		if (check_inode_run(m, i, ino, &end))
			return -EBADMSG;
		e = ckpt_manifest_entry_at(m, inode_at(m, i));
		ino = ckpt_get64(e + ENTRY_INO);
		if (e[ENTRY_TYPE] != CKPT_ENTRY_FILE)
			continue;
		m->files++;
		m->files_with_bytes += ckpt_get64(e + ENTRY_SIZE) > 0;
		m->packed_files += e[ENTRY_CONTENT] == CKPT_CONTENT_CHUNKS;
		if (__builtin_add_overflow(m->bytes, ckpt_get64(e + ENTRY_SIZE), &m->bytes))
			return -EBADMSG;
	}
	return 0;
}

// The list of inodes is strictly sorted by (inode number, index), which was checked before this is called.
static uint64_t ino_of(const struct ckpt_manifest *m, uint32_t index)
{
	return ckpt_get64(ckpt_manifest_entry_at(m, index) + ENTRY_INO);
}

int ckpt_manifest_find_ino(const struct ckpt_manifest *m, uint64_t ino, uint32_t *ret_index)
{
	uint32_t low = 0, high = m->inodes.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (ino_of(m, inode_at(m, middle)) < ino)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == m->inodes.count || ino_of(m, inode_at(m, low)) != ino)
		return -ENOENT;
	*ret_index = inode_at(m, low);
	return 0;
}

uint32_t ckpt_manifest_first_link(const struct ckpt_manifest *m, uint32_t index)
{
	uint32_t first = index;

	if (ckpt_get32(ckpt_manifest_entry_at(m, index) + ENTRY_NLINK) > 1)
		(void)ckpt_manifest_find_ino(m, ino_of(m, index), &first); // it is there
	return first;
}

static int check_all(struct ckpt_manifest *m)
{
	bool conflicts = false;
	uint32_t at = 0;

	if (check_sessions(m))
		return -EBADMSG;
	for (uint32_t i = 0; i < m->entries.count; i++) {
		if (check_entry(m, i, &at))
			return -EBADMSG;
		conflicts |= ckpt_get32(ckpt_manifest_entry_at(m, i) + ENTRY_FLAGS) != 0;
	}
	if (conflicts != m->conflicts)
		return -EBADMSG;
	if (check_xattrs(m, &at) || check_tree(m))
		return -EBADMSG;
	return check_inodes(m) || ckpt_manifest_check_seals(m) ? -EBADMSG : 0;
}

int ckpt_manifest_parse(void *data, size_t len, struct ckpt_manifest **ret_manifest)
{
	CLEANUP_FREE void *owned = data;
	struct ckpt_manifest checked = {.len = len}, *m;
	struct ckpt_container c;
	int r;

	r = ckpt_container_parse(&ckpt_manifest_kind, data, len, &c);
	if (r)
		return r;
	r = load_sections(&checked, &c);
	if (!r)
		r = check_all(&checked);
	if (r)
		return r;

	ckpt_sha256(data, len, checked.sha256);
	m = malloc(sizeof(*m));
	if (!m)
		return -ENOMEM;
	*m = checked;
	m->data = TAKE_PTR(owned);
	atomic_init(&m->refs, 1);
	*ret_manifest = m;
	return 0;
}

bool ckpt_manifest_catalog(const struct ckpt_manifest *m, const void **ret_bytes, size_t *ret_len)
{
	*ret_bytes = m->catalog;
	*ret_len = m->catalog_len;
	return m->catalog != NULL;
}

struct ckpt_manifest *ckpt_manifest_ref(struct ckpt_manifest *m)
{
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}

void ckpt_manifest_unref(struct ckpt_manifest *m)
{
	if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(m->data);
	free(m);
}

size_t ckpt_manifest_bytes(const struct ckpt_manifest *m)
{
	return sizeof(*m) + m->len;
}

const void *ckpt_manifest_data(const struct ckpt_manifest *m, size_t *ret_len)
{
	*ret_len = m->len;
	return m->data;
}

const uint8_t *ckpt_manifest_sha256(const struct ckpt_manifest *m)
{
	return m->sha256;
}

uint32_t ckpt_manifest_count(const struct ckpt_manifest *m)
{
	return m->entries.count;
}

bool ckpt_manifest_has_conflicts(const struct ckpt_manifest *m)
{
	return m->conflicts;
}

bool ckpt_manifest_in_conflict(const struct ckpt_manifest *m, uint32_t index)
{
	assert(index < m->entries.count);
	while (m->conflicts && index) {
		const uint8_t *e = ckpt_manifest_entry_at(m, index);

		if (ckpt_get32(e + ENTRY_FLAGS) & CKPT_ENTRY_CONFLICT)
			return true;
		index = ckpt_get32(e + ENTRY_PARENT);
	}
	return false;
}

void ckpt_manifest_totals(const struct ckpt_manifest *m, uint64_t *ret_files, uint64_t *ret_bytes)
{
	*ret_files = m->files;
	*ret_bytes = m->bytes;
}

void ckpt_manifest_entry(const struct ckpt_manifest *m, uint32_t index, struct ckpt_entry *ret_entry)
{
	const uint8_t *e;
	uint32_t a, b;

	assert(index < m->entries.count);
	e = ckpt_manifest_entry_at(m, index);
	a = ckpt_get32(e + ENTRY_A);
	b = ckpt_get32(e + ENTRY_B);
	*ret_entry = (struct ckpt_entry){
		.type = e[ENTRY_TYPE],
		.content = e[ENTRY_CONTENT],
		.name = name_of(m, e),
		.index = index,
		.parent = ckpt_get32(e + ENTRY_PARENT),
		.mode = ckpt_get32(e + ENTRY_MODE),
		.uid = ckpt_get32(e + ENTRY_UID),
		.gid = ckpt_get32(e + ENTRY_GID),
		.nlink = ckpt_get32(e + ENTRY_NLINK),
		.ino = ckpt_get64(e + ENTRY_INO),
		.bytes = ckpt_get64(e + ENTRY_SIZE),
		.mtime_s = (int64_t)ckpt_get64(e + ENTRY_MTIME_S),
		.mtime_ns = ckpt_get32(e + ENTRY_MTIME_NS),
		.xattrs = ckpt_get32(e + ENTRY_XATTRS),
		.conflict = ckpt_get32(e + ENTRY_FLAGS) & CKPT_ENTRY_CONFLICT,
	};
	if (ret_entry->type == CKPT_ENTRY_DIR) {
		ret_entry->child_first = a;
		ret_entry->child_count = b;
	} else if (ret_entry->type == CKPT_ENTRY_SYMLINK) {
		ret_entry->target = m->strings + a;
	} else if (ret_entry->content != CKPT_CONTENT_NONE) {
		ret_entry->session = a;
		ret_entry->raw_path = b ? m->strings + b : NULL;
	}
}

// The child of directory dir with this name of len bytes.
static int find_child(const struct ckpt_manifest *m, uint32_t dir, const char *name, size_t len, uint32_t *ret_index)
{
	const uint8_t *d = ckpt_manifest_entry_at(m, dir);
	uint32_t low = ckpt_get32(d + ENTRY_A), high = low + ckpt_get32(d + ENTRY_B);

	if (d[ENTRY_TYPE] != CKPT_ENTRY_DIR)
		return -ENOTDIR;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const uint8_t *e = ckpt_manifest_entry_at(m, middle);
		int r = compare_names(name, len, name_of(m, e), ckpt_get16(e + ENTRY_NAME_LEN));

		if (!r) {
			*ret_index = middle;
			return 0;
		}
		if (r < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -ENOENT;
}

int ckpt_manifest_child(const struct ckpt_manifest *m, uint32_t dir, const char *name, uint32_t *ret_index)
{
	assert(dir < m->entries.count);
	return find_child(m, dir, name, strlen(name), ret_index);
}

int ckpt_manifest_lookup(const struct ckpt_manifest *m, const char *path, uint32_t *ret_index)
{
	uint32_t index = 0;

	while (*path) {
		size_t len = strcspn(path, "/");
		int r = find_child(m, index, path, len, &index);

		if (r)
			return r;
		path += len;
		if (*path && !*++path)
			return -ENOENT; // a slash at the end names nothing
	}
	*ret_index = index;
	return 0;
}

int ckpt_manifest_path(const struct ckpt_manifest *m, uint32_t index, char *buf, size_t cap)
{
	uint32_t chain[CKPT_DEPTH_MAX + 2], depth = 0;
	size_t at = 0;

	assert(index < m->entries.count);
	for (; index; index = ckpt_get32(ckpt_manifest_entry_at(m, index) + ENTRY_PARENT))
		chain[depth++] = index;
	if (!cap)
		return -ENAMETOOLONG;
	buf[0] = '\0';
	while (depth--) {
		const uint8_t *e = ckpt_manifest_entry_at(m, chain[depth]);
		size_t len = ckpt_get16(e + ENTRY_NAME_LEN), slash = at ? 1 : 0;

		if (cap - at <= len + slash)
			return -ENAMETOOLONG;
		if (slash)
			buf[at++] = '/';
		memcpy(buf + at, name_of(m, e), len + 1);
		at += len;
	}
	return (int)at;
}

const char *ckpt_manifest_session(const struct ckpt_manifest *m, uint32_t i)
{
	return i < m->sessions.count ? (const char *)ckpt_table_row(&m->sessions, i, SESSION_BYTES) : NULL;
}

bool ckpt_manifest_xattr(const struct ckpt_manifest *m, const struct ckpt_entry *entry, uint32_t i,
			 const char **ret_name, const void **ret_value, size_t *ret_len)
{
	const uint8_t *set, *x;

	if (!entry->xattrs)
		return false;
	assert(entry->xattrs <= m->xattr_sets.count);
	set = ckpt_table_row(&m->xattr_sets, entry->xattrs - 1, XSET_BYTES);
	if (i >= ckpt_get32(set + XSET_COUNT))
		return false;
	x = ckpt_table_row(&m->xattrs, ckpt_get32(set + XSET_FIRST) + i, XATTR_BYTES);
	*ret_name = xattr_name(m, x);
	*ret_value = m->strings + ckpt_get32(x + XATTR_VALUE);
	*ret_len = ckpt_get32(x + XATTR_VALUE_LEN);
	return true;
}

static bool same_table(const struct ckpt_table *a, const struct ckpt_table *b, size_t row_bytes)
{
	return a->count == b->count && !memcmp(a->rows, b->rows, (size_t)a->count * row_bytes);
}

// But for whether their bytes are raw or in chunks.
static bool same_entries(const struct ckpt_manifest *a, const struct ckpt_manifest *b)
{
	enum { AFTER = ENTRY_CONTENT + 1 };

	if (a->entries.count != b->entries.count)
		return false;
	for (uint32_t i = 0; i < a->entries.count; i++) {
		const uint8_t *x = ckpt_manifest_entry_at(a, i), *y = ckpt_manifest_entry_at(b, i);

		if (x[ENTRY_TYPE] != y[ENTRY_TYPE] || memcmp(x + AFTER, y + AFTER, ENTRY_BYTES - AFTER))
			return false;
	}
	return true;
}

bool ckpt_manifest_same_entries(const struct ckpt_manifest *a, const struct ckpt_manifest *b)
{
	return same_entries(a, b) && same_table(&a->sessions, &b->sessions, SESSION_BYTES) &&
	       same_table(&a->xattr_sets, &b->xattr_sets, XSET_BYTES) &&
	       same_table(&a->xattrs, &b->xattrs, XATTR_BYTES) && a->strings_len == b->strings_len &&
	       !memcmp(a->strings, b->strings, a->strings_len);
}
