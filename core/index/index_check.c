#include "core/index/index_check.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <sys/stat.h>

// file     := meta-page meta-page page*
// page     := header (branch | leaf | overflow)
// branch   := offsets, nodes (child page, key); the first key does not count
// leaf     := offsets, nodes (key, value | first page of an overflow run)
// overflow := value, over as many pages as the header says
//
// Nodes grow from the end of a page downwards and leave no gap, so that their sizes add up.

enum {
	PAGE_PGNO = 0,
	PAGE_FLAGS = 10,
	PAGE_LOWER = 12, // end of the offsets
	PAGE_UPPER = 14, // begin of the nodes
	PAGE_RUN = 12,   // overflow: pages in the run
	PAGE_HEADER = 16,

	META_MAGIC = 16,
	META_VERSION = 20,
	META_FREE = 40, // the tree of free pages; its pad is the page size
	META_MAIN = 88,
	META_LAST_PGNO = 136,
	META_TXNID = 144,
	META_BYTES = 152,

	TREE_PAD = 0,
	TREE_FLAGS = 4,
	TREE_DEPTH = 6,
	TREE_BRANCHES = 8,
	TREE_LEAVES = 16,
	TREE_OVERFLOWS = 24,
	TREE_ENTRIES = 32,
	TREE_ROOT = 40,

	NODE_LO = 0,
	NODE_HI = 2,
	NODE_FLAGS = 4,
	NODE_KEY_LEN = 6,
	NODE_HEADER = 8,
};

#define MAGIC 0xBEEFC0DEu
#define DATA_VERSION 1u
#define FLAG_BRANCH 1u
#define FLAG_LEAF 2u
#define FLAG_OVERFLOW 4u
#define FLAG_META 8u
#define NODE_BIGDATA 1u
#define TREE_INTEGER_KEYS 8u
#define NO_PAGE UINT64_MAX
#define DEPTH_MAX 32
#define KEY_MAX 511
#define META_PAGES 2
#define TRIES_MAX 100

struct meta {
	uint64_t psize, last_pgno, txnid;
	uint8_t bytes[META_BYTES];
};

struct walk {
	int fd;
	uint64_t psize, last_pgno, txnid;
	uint8_t *used;   // one bit per page
	uint8_t *levels; // a page buffer for each level of the tree
	// The tree that is walked now.
	bool free_tree;
	uint32_t depth;
	uint64_t branches, leaves, overflows, entries;
	uint8_t last_key[KEY_MAX];
	size_t last_key_len;    // 0: none yet
	uint8_t bound[KEY_MAX]; // the next key is not smaller than this separator
	size_t bound_len;
};

static int read_at(int fd, void *buf, size_t len, uint64_t offset)
{
	ssize_t n = ckpt_sys.pread(fd, buf, len, (off_t)offset);

	if (n < 0)
		return -EIO;
	return (size_t)n < len ? -EBADMSG : 0;
}

static int read_meta(int fd, uint64_t offset, uint64_t pgno, struct meta *ret_meta)
{
	struct meta m;
	const uint8_t *p = m.bytes;
	int r = read_at(fd, m.bytes, sizeof(m.bytes), offset);

	if (r)
		return r;
	m.psize = ckpt_get32(p + META_FREE + TREE_PAD);
	m.last_pgno = ckpt_get64(p + META_LAST_PGNO);
	m.txnid = ckpt_get64(p + META_TXNID);
	if (ckpt_get64(p + PAGE_PGNO) != pgno || ckpt_get16(p + PAGE_FLAGS) != FLAG_META)
		return -EBADMSG;
	if (ckpt_get32(p + META_MAGIC) != MAGIC || ckpt_get32(p + META_VERSION) != DATA_VERSION)
		return -EBADMSG;
	if (m.psize < 512 || m.psize > 65536 || m.psize & (m.psize - 1) || m.last_pgno < META_PAGES - 1)
		return -EBADMSG;
	if (ckpt_get16(p + META_FREE + TREE_FLAGS) != TREE_INTEGER_KEYS || ckpt_get16(p + META_MAIN + TREE_FLAGS))
		return -EBADMSG;
	*ret_meta = m;
	return 0;
}

static int read_both(int fd, struct meta metas[META_PAGES])
{
	int r = read_meta(fd, 0, 0, &metas[0]);

	if (!r)
		r = read_meta(fd, metas[0].psize, 1, &metas[1]);
	if (!r && metas[0].psize != metas[1].psize)
		r = -EBADMSG;
	return r;
}

// Both as they were at one moment: a writer beside us may end several transactions between the two reads, and a page that
// it is writing may come half old, half new.
static int read_metas(int fd, struct meta metas[META_PAGES])
{
	struct meta before[META_PAGES];
	int r = read_both(fd, metas);

	for (int i = 0; i < TRIES_MAX && !r; i++) {
		memcpy(before, metas, sizeof(before));
		r = read_both(fd, metas);
		if (!r && !memcmp(before, metas, sizeof(before)))
			return 0;
	}
	return r ? r : -EAGAIN;
}

// The file holds all pages up to last_pgno.
static int check_length(int fd, uint64_t psize, uint64_t last_pgno)
{
	struct stat st;
	uint64_t need;

	if (fstat(fd, &st))
		return -EIO;
	if (!S_ISREG(st.st_mode) || last_pgno == UINT64_MAX || __builtin_mul_overflow(last_pgno + 1, psize, &need))
		return -EBADMSG;
	return (uint64_t)st.st_size >= need ? 0 : -EBADMSG;
}

int ckpt_index_check_header(int fd)
{
	struct meta metas[META_PAGES];
	uint64_t newer, older;
	int r = read_metas(fd, metas);

	if (r)
		return r;
	for (int i = 0; i < META_PAGES; i++) {
		r = check_length(fd, metas[i].psize, metas[i].last_pgno);
		if (r)
			return r;
	}
	// Transactions write the two in turn. A writer beside us may have been between them, so this is all to be said.
	newer = MAX(metas[0].txnid, metas[1].txnid);
	older = MIN(metas[0].txnid, metas[1].txnid);
	if (newer && (newer & 1) != (metas[1].txnid == newer))
		return -EBADMSG;
	return newer && newer != older + 1 && newer != older + 3 ? -EBADMSG : 0;
}

static int use_pages(struct walk *w, uint64_t first, uint64_t count)
{
	if (first < META_PAGES || first > w->last_pgno || !count || count > w->last_pgno - first + 1)
		return -EBADMSG;
	for (uint64_t i = first; i < first + count; i++) {
		uint8_t bit = (uint8_t)(1u << (i & 7));

		if (w->used[i >> 3] & bit)
			return -EBADMSG;
		w->used[i >> 3] |= bit;
	}
	return 0;
}

static int compare_keys(const struct walk *w, const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	int r;

	if (w->free_tree) {
		uint64_t x = ckpt_get64(a), y = ckpt_get64(b);

		return (x > y) - (x < y);
	}
	r = memcmp(a, b, MIN(a_len, b_len));
	return r ? r : (a_len > b_len) - (a_len < b_len);
}

static bool key_len_ok(const struct walk *w, size_t len)
{
	return w->free_tree ? len == sizeof(uint64_t) : len > 0 && len <= KEY_MAX;
}

static const uint8_t *node_at(const uint8_t *page, uint32_t i)
{
	return page + ckpt_get16(page + PAGE_HEADER + 2 * (size_t)i);
}

static uint32_t node_data_len(const uint8_t *node)
{
	return ckpt_get16(node + NODE_LO) | (uint32_t)ckpt_get16(node + NODE_HI) << 16;
}

// Header, offsets and sizes of a branch or leaf page; *ret_count: its nodes.
static int check_page(const struct walk *w, const uint8_t *page, uint64_t pgno, uint16_t flags, uint32_t *ret_count)
{
	uint64_t lower = ckpt_get16(page + PAGE_LOWER), upper = ckpt_get16(page + PAGE_UPPER), total = 0;
	uint32_t count;

	if (ckpt_get64(page + PAGE_PGNO) != pgno || ckpt_get16(page + PAGE_FLAGS) != flags)
		return -EBADMSG;
	if (lower < PAGE_HEADER + 2 || lower & 1 || lower > upper || upper > w->psize)
		return -EBADMSG;
	count = (uint32_t)(lower - PAGE_HEADER) / 2;
	if (flags == FLAG_BRANCH && !w->free_tree && count < 2) // LMDB aborts over it
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t offset = ckpt_get16(page + PAGE_HEADER + 2 * (size_t)i), size = NODE_HEADER;
		const uint8_t *node = page + offset;

		if (offset < upper || offset & 1 || offset > w->psize - NODE_HEADER)
			return -EBADMSG;
		size += ckpt_get16(node + NODE_KEY_LEN);
		if (flags == FLAG_LEAF)
			size += ckpt_get16(node + NODE_FLAGS) & NODE_BIGDATA ? sizeof(uint64_t) : node_data_len(node);
		size = (size + 1) & ~UINT64_C(1);
		if (size > w->psize - offset)
			return -EBADMSG;
		total += size;
	}
	if (total != w->psize - upper)
		return -EBADMSG;
	*ret_count = count;
	return 0;
}

// A list of free pages: a count and page numbers, which no list and no tree has used.
static int check_free_list(struct walk *w, const uint8_t *list, uint64_t bytes)
{
	uint64_t count, before = UINT64_MAX;

	if (bytes < sizeof(uint64_t) || bytes % sizeof(uint64_t))
		return -EBADMSG;
	count = ckpt_get64(list);
	if (count > bytes / sizeof(uint64_t) - 1)
		return -EBADMSG;
	for (uint64_t i = 1; i <= count; i++) {
		uint64_t pgno = ckpt_get64(list + i * sizeof(uint64_t));

		if (pgno >= before || use_pages(w, pgno, 1))
			return -EBADMSG;
		before = pgno;
	}
	return 0;
}

static int check_overflow(struct walk *w, uint64_t pgno, uint32_t bytes)
{
	CLEANUP_FREE uint8_t *list = NULL;
	uint8_t header[PAGE_HEADER];
	uint64_t run;
	int r;

	if (pgno < META_PAGES || pgno > w->last_pgno)
		return -EBADMSG;
	r = read_at(w->fd, header, sizeof(header), pgno * w->psize);
	if (r)
		return r;
	run = ckpt_get32(header + PAGE_RUN);
	if (ckpt_get64(header + PAGE_PGNO) != pgno || ckpt_get16(header + PAGE_FLAGS) != FLAG_OVERFLOW)
		return -EBADMSG;
	if (run * w->psize < PAGE_HEADER + (uint64_t)bytes || use_pages(w, pgno, run))
		return -EBADMSG;
	w->overflows += run;
	if (!w->free_tree)
		return 0;
	list = malloc(bytes);
	if (!list)
		return -ENOMEM;
	r = read_at(w->fd, list, bytes, pgno * w->psize + PAGE_HEADER);
	return r ? r : check_free_list(w, list, bytes);
}

static int check_value(struct walk *w, const uint8_t *node)
{
	const uint8_t *key = node + NODE_HEADER, *data = key + ckpt_get16(node + NODE_KEY_LEN);
	uint16_t flags = ckpt_get16(node + NODE_FLAGS);

	if (flags & ~NODE_BIGDATA)
		return -EBADMSG;
	if (w->free_tree && (!ckpt_get64(key) || ckpt_get64(key) > w->txnid))
		return -EBADMSG;
	if (flags & NODE_BIGDATA)
		return check_overflow(w, ckpt_get64(data), node_data_len(node));
	return w->free_tree ? check_free_list(w, data, node_data_len(node)) : 0;
}

static int check_leaf(struct walk *w, const uint8_t *page, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *node = node_at(page, i), *key = node + NODE_HEADER;
		size_t len = ckpt_get16(node + NODE_KEY_LEN);
		int r;

		if (!key_len_ok(w, len))
			return -EBADMSG;
		if (w->last_key_len && compare_keys(w, w->last_key, w->last_key_len, key, len) >= 0)
			return -EBADMSG;
		if (w->bound_len && compare_keys(w, w->bound, w->bound_len, key, len) > 0)
			return -EBADMSG;
		w->bound_len = 0;
		memcpy(w->last_key, key, len);
		w->last_key_len = len;
		r = check_value(w, node);
		if (r)
			return r;
	}
	w->leaves++;
	w->entries += count;
	return 0;
}

static int check_subtree(struct walk *w, uint64_t pgno, uint32_t level);

static int check_branch(struct walk *w, const uint8_t *page, uint32_t count, uint32_t level)
{
	w->branches++;
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *node = node_at(page, i), *key = node + NODE_HEADER;
		uint64_t child = node_data_len(node) | (uint64_t)ckpt_get16(node + NODE_FLAGS) << 32;
		size_t len = ckpt_get16(node + NODE_KEY_LEN);
		int r;

		if (i) {
			if (!key_len_ok(w, len) || compare_keys(w, w->last_key, w->last_key_len, key, len) >= 0)
				return -EBADMSG;
			memcpy(w->bound, key, len);
			w->bound_len = len;
		}
		r = check_subtree(w, child, level + 1);
		if (r)
			return r;
	}
	return 0;
}

// Depth-first, so that keys come by in order. Recursion ends at w->depth <= DEPTH_MAX.
static int check_subtree(struct walk *w, uint64_t pgno, uint32_t level)
{
	uint8_t *page = w->levels + level * w->psize;
	bool leaf = level + 1 == w->depth;
	uint32_t count = 0;
	int r = use_pages(w, pgno, 1);

	if (!r)
		r = read_at(w->fd, page, w->psize, pgno * w->psize);
	if (!r)
		r = check_page(w, page, pgno, leaf ? FLAG_LEAF : FLAG_BRANCH, &count);
	if (r)
		return r;
	return leaf ? check_leaf(w, page, count) : check_branch(w, page, count, level);
}

static int check_tree(struct walk *w, const uint8_t *tree, bool free_tree)
{
	uint64_t root = ckpt_get64(tree + TREE_ROOT);
	int r;

	w->free_tree = free_tree;
	w->depth = ckpt_get16(tree + TREE_DEPTH);
	w->branches = w->leaves = w->overflows = w->entries = 0;
	w->last_key_len = w->bound_len = 0;
	if (w->depth > DEPTH_MAX || (root == NO_PAGE) != !w->depth)
		return -EBADMSG;
	if (root != NO_PAGE) {
		r = check_subtree(w, root, 0);
		if (r)
			return r;
	}
	if (w->branches != ckpt_get64(tree + TREE_BRANCHES) || w->leaves != ckpt_get64(tree + TREE_LEAVES) ||
	    w->overflows != ckpt_get64(tree + TREE_OVERFLOWS) || w->entries != ckpt_get64(tree + TREE_ENTRIES))
		return -EBADMSG;
	return 0;
}

int ckpt_index_check_snapshot(int fd, uint64_t txnid)
{
	CLEANUP_FREE uint8_t *used = NULL, *levels = NULL;
	struct meta metas[META_PAGES];
	const struct meta *m;
	struct walk w = {.fd = fd, .txnid = txnid};
	int r = read_metas(fd, metas);

	if (r)
		return r;
	m = &metas[txnid & 1];
	if (m->txnid != txnid)
		return -EAGAIN;
	r = check_length(fd, m->psize, m->last_pgno);
	if (r)
		return r;
	w.psize = m->psize;
	w.last_pgno = m->last_pgno;
	w.used = used = ckpt_calloc(m->last_pgno / 8 + 1, 1);
	w.levels = levels = ckpt_calloc(DEPTH_MAX, m->psize);
	if (!used || !levels)
		return -ENOMEM;
	r = check_tree(&w, m->bytes + META_MAIN, false);
	return r ? r : check_tree(&w, m->bytes + META_FREE, true);
}
