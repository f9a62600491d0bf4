// HDF5, byte by byte: right files, each byte at its extremes, structures that lead back, and failures. Files of h5py are compared
// in tests/interop/test_catalog_hdf5.py.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>
#include <time.h>

#define NONE UINT64_MAX
#define SECONDS_MAX 5

static struct ckpt_bytes file;
static struct ckpt_catalog *c;

static void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_catalog_free(TAKE_PTR(c));
}

static void read_file(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_bytes(&file, "a.h5", &c));
	ckpt_walk_catalog(c, file.len + file.zeros);
}

static struct ckpt_catalog_array find(const char *name)
{
	struct ckpt_catalog_array a;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		ckpt_catalog_get(c, i, &a);
		if (!strcmp(a.name, name))
			return a;
	}
	ck_abort_msg("%s is missing", name);
}

static struct ckpt_piece piece_of(const char *name, size_t k)
{
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		ckpt_catalog_get(c, i, &a);
		if (strcmp(a.name, name))
			continue;
		ck_assert_uint_lt(k, a.pieces);
		ckpt_catalog_piece(c, i, k, &p);
		return p;
	}
	ck_abort_msg("%s is missing", name);
}

static void check_refused(const char *field, size_t place)
{
	struct ckpt_catalog_fault f;

	read_file();
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_msg(!strcmp(f.field, field), "at %#zx: %s, not %s: %s", place, f.field, field, f.reason);
}

// --- Bytes ------------------------------------------------------------------------------------------------------------

static void at(size_t place)
{
	static const uint8_t zeros[1024];

	ck_assert_uint_le(file.len, place);
	while (file.len < place)
		ckpt_bytes_add(&file, zeros, MIN(sizeof(zeros), place - file.len));
}

static void n(unsigned bytes, uint64_t number)
{
	ckpt_bytes_number(&file, number, bytes);
}

static void patch(size_t place, unsigned bytes, uint64_t number)
{
	ck_assert_uint_le(place + bytes, file.len);
	memcpy(file.data + place, &number, bytes);
}

// Version 1: the body has so many bytes.
static void message(unsigned type, unsigned bytes)
{
	n(2, type);
	n(2, bytes);
	n(4, 0);
}

static void symbol(uint64_t name, uint64_t header, uint64_t kind, uint64_t target)
{
	n(8, name);
	n(8, header);
	n(8, kind);
	n(8, target);
	n(8, 0);
}

static void node(unsigned type, unsigned level, unsigned count)
{
	ckpt_bytes_text(&file, "TREE");
	n(1, type);
	n(1, level);
	n(2, count);
	n(8, NONE);
	n(8, NONE);
}

static void chunk(uint64_t bytes, uint64_t mask, uint64_t start, uint64_t child)
{
	n(4, bytes);
	n(4, mask);
	n(8, start);
	n(8, 0);
	n(8, child);
}

static void put_int32(void)
{
	n(4, 0x810);
	n(4, 4);
	n(2, 0);
	n(2, 32);
}

enum {
	OLD_ROOT = 0x60,
	OLD_HEAP = 0x90,
	OLD_TREE = 0x140,
	OLD_SNOD = 0x180,
	OLD_DATASET = 0x240,
	OLD_MORE = 0x300,
	OLD_CHUNKS = 0x380,
	OLD_LEAF = 0x400,
	OLD_DATA = 0x500,
	OLD_END = 0x560
};

static void put_old_dataset(void)
{
	at(OLD_DATASET);
	n(8, 0x600000 + 1);
	patch(OLD_DATASET, 4, 0x60001);
	n(8, 72);
	patch(OLD_DATASET + 4, 4, 1);
	message(1, 16);
	n(8, 0x101);
	n(8, 10);
	message(3, 16);
	put_int32();
	n(4, 0);
	message(16, 16);
	n(8, OLD_MORE);
	n(8, 104);
	at(OLD_MORE);
	message(5, 16);
	n(4, 0x01020202);
	n(4, 4);
	n(8, 7);
	message(11, 40);
	n(8, 0x201);
	n(8, 0x1000000000002); // shuffle, one value
	n(8, 4);
	n(8, 0x1000000000001); // deflate, one value
	n(8, 9);
	message(8, 24);
	n(3, 0x20203);
	n(8, OLD_CHUNKS);
	n(4, 4);
	n(4, 4);
	n(5, 0);
	at(OLD_CHUNKS);
	node(1, 1, 1);
	chunk(12, 0, 0, OLD_LEAF);
	chunk(0, 0, 12, 0);
	at(OLD_LEAF);
	node(1, 0, 3);
	chunk(12, 0, 0, OLD_DATA);
	chunk(9, 1, 4, OLD_DATA + 12);
	chunk(16, 3, 8, OLD_DATA + 24);
	chunk(0, 0, 12, 0);
	at(OLD_END);
}

// d: int32, 10 elements in chunks of 4. g: a link to the root. s: a soft link.
static void put_old(void)
{
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, "\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0\0\0\0\0", 24);
	n(8, 0);
	n(8, NONE);
	n(8, OLD_END);
	n(8, NONE);
	symbol(0, OLD_ROOT, 0, 0);
	at(OLD_ROOT);
	n(4, 0x10001);
	n(4, 1);
	n(8, 24);
	message(17, 16);
	n(8, OLD_TREE);
	n(8, OLD_HEAP);
	at(OLD_HEAP);
	ckpt_bytes_text(&file, "HEAP");
	n(4, 0);
	n(8, 64);
	n(8, NONE);
	n(8, 0x100);
	at(0x100);
	ckpt_bytes_add(&file, "\0\0\0\0\0\0\0\0d\0\0\0\0\0\0\0s\0\0\0\0\0\0\0to\0\0\0\0\0\0g\0", 34);
	at(OLD_TREE);
	node(0, 0, 1);
	n(8, 0);
	n(8, OLD_SNOD);
	n(8, 32);
	at(OLD_SNOD);
	ckpt_bytes_text(&file, "SNOD");
	n(4, 0x30001);
	symbol(8, OLD_DATASET, 0, 0);
	symbol(32, OLD_ROOT, 1, OLD_TREE);
	symbol(16, NONE, 2, 24);
	put_old_dataset();
}

START_TEST(a_symbol_table_has_a_dataset_of_chunks)
{
	static const uint8_t codecs[3][CKPT_PIECE_CODECS_MAX] = {
		{CKPT_PIECE_ZLIB, CKPT_PIECE_SHUFFLE4}, {CKPT_PIECE_ZLIB}, {CKPT_PIECE_RAW}};
	struct ckpt_catalog_array a;

	put_old();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 3);
	a = find("d");
	ck_assert(!a.why && a.dtype == CKPT_DTYPE_I32 && a.ndim == 1 && a.shape[0] == 10 && a.pieces == 3);
	ck_assert(!strcmp(a.tree, "a.h5") && !strcmp(a.format, "hdf5"));
	ck_assert_mem_eq(a.fill, "\7\0\0\0", 4);
	for (size_t i = 0; i < 3; i++) {
		struct ckpt_piece p = piece_of("d", i);

		ck_assert_mem_eq(p.codecs, codecs[i], sizeof(p.codecs));
		ck_assert(p.offset == OLD_DATA + 12 * i && p.start[0] == 4 * i && p.extent[0] == (i < 2 ? 4 : 2));
	}
	ck_assert(strstr(find("g").why, "second link"));
	ck_assert(strstr(find("s").why, "soft link"));
}
END_TEST

// --- The new form -----------------------------------------------------------------------------------------------------

enum {
	NEW_ROOT = 0x40,
	NEW_MORE = 0x140,
	NEW_PLAIN = 0x200,
	NEW_COMPACT = 0x280,
	NEW_FIXED = 0x300,
	NEW_FAHD = 0x380,
	NEW_FADB = 0x3c0,
	NEW_EXTENSIBLE = 0x400,
	NEW_EAHD = 0x600,
	NEW_EAIB = 0x680,
	NEW_EADB = 0x780,
	NEW_DATA = 0x800,
	NEW_END = 0x840
};

static void message2(unsigned type, unsigned bytes)
{
	n(1, type);
	n(2, bytes);
	n(1, 0);
}

static void hard_link(const char *name, uint64_t address)
{
	message2(6, 12);
	n(2, 1);
	n(1, 1);
	ckpt_bytes_text(&file, name);
	n(8, address);
}

static void begin_header(size_t place, unsigned bytes)
{
	at(place);
	ckpt_bytes_text(&file, "OHDR");
	n(2, 2);
	n(1, bytes);
}

// Of one byte an element; maximum: 0, as large as it is.
static void begin_dataset(size_t place, unsigned layout_bytes, uint64_t elements, uint64_t maximum)
{
	begin_header(place, 4 + 20 + 4 + 12 + 4 + layout_bytes);
	message2(1, 20);
	n(4, 0x01010102);
	n(8, elements);
	n(8, maximum ? maximum : elements);
	message2(3, 12);
	n(4, 0x10);
	n(4, 1);
	n(2, 0);
	n(2, 8);
	message2(8, layout_bytes);
}

static void put_fixed(void)
{
	begin_dataset(NEW_FIXED, 7 + 2 + 8, 3, 0);
	n(2, 0x204);    // version, class
	n(3, 0x010200); // flags, axes, bytes of an extent
	n(2, 0x0101);   // of the chunk, of an element
	n(2, 0x0a03);   // the index, and its pages
	n(8, NEW_FAHD);
	at(NEW_FAHD);
	ckpt_bytes_text(&file, "FAHD");
	n(4, 0x0a080000);
	n(8, 3);
	n(8, NEW_FADB);
	at(NEW_FADB);
	ckpt_bytes_text(&file, "FADB");
	n(2, 0);
	n(8, NEW_FAHD);
	for (uint64_t i = 0; i < 3; i++)
		n(8, NEW_DATA + i);
}

static void put_links(void)
{
	begin_header(NEW_ROOT, 22 + 5 * 16 + 17 + 20);
	message2(2, 18);
	n(2, 0);
	n(8, NONE);
	n(8, NONE);
	hard_link("p", NEW_PLAIN);
	hard_link("c", NEW_COMPACT);
	hard_link("f", NEW_FIXED);
	hard_link("r", NEW_ROOT);
	hard_link("P", NEW_PLAIN);
	message2(6, 13);
	n(2, 0x801);
	n(1, 64);
	n(1, 1);
	ckpt_bytes_text(&file, "e");
	n(2, 5);
	ckpt_bytes_add(&file, "\0b\0w\0", 5);
	n(1, 0);
	message2(16, 16);
	n(8, NEW_MORE);
	n(8, 4 + 16 + 4);
	at(NEW_MORE);
	ckpt_bytes_text(&file, "OCHK");
	hard_link("x", NEW_EXTENSIBLE);
}

static void put_extensible(void)
{
	begin_dataset(NEW_EXTENSIBLE, 7 + 6 + 8, 6, NONE);
	n(2, 0x204);
	n(3, 0x010200);
	n(2, 0x0101);
	n(1, 4);
	n(5, 0x0a0410041f); // as in its header
	n(8, NEW_EAHD);
	at(NEW_EAHD);
	ckpt_bytes_text(&file, "EAHD");
	n(8, UINT64_C(0x0a04100420080000));
	for (int i = 0; i < 6; i++)
		n(8, 1);
	n(8, NEW_EAIB);
	at(NEW_EAIB);
	ckpt_bytes_text(&file, "EAIB");
	n(2, 0);
	n(8, NEW_EAHD);
	for (uint64_t i = 0; i < 4; i++)
		n(8, i == 1 ? NONE : NEW_DATA + i);
	n(8, NEW_EADB);
	for (int i = 0; i < 20; i++)
		n(8, NONE);
	at(NEW_EADB);
	ckpt_bytes_text(&file, "EADB");
	n(2, 0);
	n(8, NEW_EAHD);
	n(4, 0);
	n(8, NEW_DATA + 4);
	n(8, NEW_DATA + 5);
	at(NEW_END);
}

// p and P: 8 bytes in a row; c: 3 in its header; f, x: chunks of one byte in a fixed array of 3, an extensible one of 6; r: the root;
// e: another file.
static void put_new(void)
{
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, "\x89HDF\r\n\x1a\n\2\x08\x08\0", 12);
	n(8, 0);
	n(8, NONE);
	n(8, NEW_END);
	n(8, NEW_ROOT);
	put_links();
	begin_dataset(NEW_PLAIN, 18, 8, 0);
	n(2, 0x103);
	n(8, NEW_DATA);
	n(8, 8);
	begin_dataset(NEW_COMPACT, 7, 3, 0);
	n(4, 0x30003);
	ckpt_bytes_text(&file, "abc");
	put_fixed();
	put_extensible();
}

START_TEST(links_have_datasets_of_each_layout)
{
	static const struct {
		const char *name;
		uint64_t elements, pieces, offset;
	} rows[] = {
		{"p", 8, 1, NEW_DATA},
		{"P", 8, 1, NEW_DATA},
		{"f", 3, 3, NEW_DATA},
		{"x", 6, 5, NEW_DATA},
		{"c", 3, 1, NEW_COMPACT + 7 + 4 + 20 + 4 + 12 + 4 + 4},
	};

	put_new();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 7);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ckpt_catalog_array a = find(rows[i].name);

		ck_assert_msg(!a.why && a.dtype == CKPT_DTYPE_U8 && a.shape[0] == rows[i].elements, "%s", a.name);
		ck_assert_uint_eq(a.pieces, rows[i].pieces);
		ck_assert_uint_eq(piece_of(a.name, 0).offset, rows[i].offset);
	}
	ck_assert_uint_eq(piece_of("f", 2).offset, NEW_DATA + 2);
	ck_assert(piece_of("x", 1).start[0] == 2 && piece_of("x", 4).offset == NEW_DATA + 5 && find("x").fill);
	ck_assert(!find("p").fill && !memcmp(file.data + piece_of("c", 0).offset, "abc", 3));
	ck_assert(strstr(find("r").why, "second link"));
	ck_assert(strstr(find("e").why, "another file"));
}
END_TEST

// --- B-trees of version 2 ---------------------------------------------------------------------------------------------

enum {
	TREE_DATASET = 0x40,
	TREE_HEAD = 0x100,
	TREE_ROOT = 0x140,
	TREE_LEAF = 0x200,
	TREE_DATA = 0x400,
	TREE_END = 0x410
};

static void record(uint64_t address, uint64_t place)
{
	n(8, address);
	n(8, place);
}

static void leaf(size_t place, uint64_t one, uint64_t other)
{
	at(place);
	ckpt_bytes_text(&file, "BTLF");
	n(2, 0x0a00);
	record(TREE_DATA + one, one);
	record(TREE_DATA + other, other);
}

// The root is a dataset of 5 elements of one byte in chunks of one, by a tree of two levels: one record and two leaves of two each.
static void put_records(void)
{
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, "\x89HDF\r\n\x1a\n\2\x08\x08\0", 12);
	n(8, 0);
	n(8, NONE);
	n(8, TREE_END);
	n(8, TREE_DATASET);
	begin_dataset(TREE_DATASET, 7 + 7 + 8, 5, NONE);
	n(2, 0x204);
	n(3, 0x010200);
	n(2, 0x0101);
	n(1, 5); // the index, with the bytes of a node and two percentages
	n(4, 80);
	n(2, 0);
	n(8, TREE_HEAD);
	at(TREE_HEAD);
	ckpt_bytes_text(&file, "BTHD");
	n(2, 0x0a00);
	n(4, 80); // bytes of a node, of a record
	n(2, 16);
	n(2, 1); // depth
	n(2, 0);
	n(8, TREE_ROOT);
	n(2, 1);
	at(TREE_ROOT);
	ckpt_bytes_text(&file, "BTIN");
	n(2, 0x0a00);
	record(TREE_DATA + 2, 2);
	n(8, TREE_LEAF);
	n(1, 2);
	n(8, TREE_LEAF + 0x80);
	n(1, 2);
	leaf(TREE_LEAF, 0, 1);
	leaf(TREE_LEAF + 0x80, 3, 4);
	at(TREE_END);
}

START_TEST(records_of_a_tree_have_chunks)
{
	bool seen[5] = {false};

	put_records();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_uint_eq(find("").pieces, 5);
	for (size_t k = 0; k < 5; k++) {
		struct ckpt_piece p = piece_of("", k);

		ck_assert_uint_lt(p.start[0], 5);
		ck_assert_uint_eq(p.offset, TREE_DATA + p.start[0]);
		ck_assert(!seen[p.start[0]]);
		seen[p.start[0]] = true;
	}
}
END_TEST

// --- What is wrong ----------------------------------------------------------------------------------------------------

struct wrong {
	size_t place;
	unsigned bytes;
	uint64_t value;
	const char *field;
};

static const struct wrong old[] = {
	{8, 1, 4, "superblock"},  // its version
	{13, 1, 0, "superblock"}, // bytes of an address
	{13, 1, 9, "superblock"},
	{13, 1, 16, "superblock"},
	{14, 1, 3, "superblock"},     // bytes of a length
	{64, 8, NONE, "superblock"},  // no root
	{64, 8, NONE - 1, "address"}, // which lies outside
	{64, 8, OLD_TREE, "object header"},
	{OLD_ROOT, 1, 2, "object header"},              // its version
	{OLD_ROOT + 8, 4, 0xffffffff, "object header"}, // its bytes
	{OLD_ROOT + 18, 2, 17, "object header"},        // bytes of a message
	{OLD_ROOT + 18, 2, 8, "symbol table"},
	{OLD_ROOT + 24, 8, NONE, "address"}, // its tree
	{OLD_ROOT + 24, 8, OLD_HEAP, "TREE"},
	{OLD_ROOT + 32, 8, OLD_TREE, "HEAP"},
	{OLD_HEAP + 4, 1, 1, "HEAP"},    // its version
	{OLD_HEAP + 8, 8, NONE, "HEAP"}, // its bytes
	{OLD_HEAP + 8, 8, 33, "HEAP"},   // the name of g has no end
	{OLD_HEAP + 8, 8, 32, "SNOD"},   // and now no begin
	{OLD_HEAP + 24, 8, NONE, "HEAP"},
	{OLD_TREE + 4, 1, 1, "TREE"},      // its kind
	{OLD_TREE + 5, 1, 255, "TREE"},    // its level
	{OLD_TREE + 5, 1, 1, "TREE"},      // its child is no node
	{OLD_TREE + 6, 2, 0xffff, "SNOD"}, // its children
	{OLD_TREE + 32, 8, NONE, "address"},
	{OLD_SNOD + 4, 1, 2, "SNOD"},               // its version
	{OLD_SNOD + 6, 2, 0xffff, "object header"}, // its entries
	{OLD_SNOD + 8, 8, NONE, "SNOD"},            // the name of d
	{OLD_SNOD + 16, 8, NONE, "SNOD"},           // its object
	{OLD_DATASET + 24, 1, 3, "dataspace"},      // its version
	{OLD_DATASET + 25, 1, 33, "dataspace"},     // axes
	{OLD_DATASET + 25, 1, 2, "dataspace"},
	{OLD_DATASET + 32, 8, UINT64_C(1) << 62, "dataspace"},
	{OLD_DATASET + 48, 1, 0x00, "datatype"}, // its version
	{OLD_DATASET + 48, 1, 0x60, "datatype"},
	{OLD_DATASET + 52, 4, 0, "datatype"},                    // its bytes
	{OLD_DATASET + 72, 8, NONE, "object header"},            // where the header goes on
	{OLD_DATASET + 72, 8, OLD_DATASET + 16, "continuation"}, // in itself
	{OLD_DATASET + 80, 8, NONE, "object header"},
	{OLD_MORE + 8, 1, 9, "fill value"},
	{OLD_MORE + 12, 4, 3, "fill value"},
	{OLD_MORE + 12, 4, 9, "fill value"},
	{OLD_MORE + 32, 1, 3, "filters"},
	{OLD_MORE + 33, 1, 255, "filters"},
	{OLD_MORE + 33, 1, 4, "filters"},
	{OLD_MORE + 46, 2, 0xffff, "filters"},
	{OLD_MORE + 80, 1, 6, "layout"}, // its version
	{OLD_MORE + 82, 1, 3, "layout"}, // axes
	{OLD_MORE + 83, 8, OLD_HEAP, "TREE"},
	{OLD_MORE + 83, 8, NONE - 1, "address"},
	{OLD_MORE + 91, 4, 0, "layout"}, // the extent of a chunk
	{OLD_MORE + 95, 4, 8, "layout"}, // the bytes of an element
	{OLD_CHUNKS + 4, 1, 0, "TREE"},
	{OLD_CHUNKS + 5, 1, 2, "TREE"},
	{OLD_CHUNKS + 5, 1, 10, "TREE"},
	{OLD_CHUNKS + 48, 8, OLD_CHUNKS, "TREE"}, // a child is its parent
	{OLD_LEAF + 5, 1, 1, "TREE"},
	{OLD_LEAF + 6, 2, 0xffff, "address"},
	{OLD_LEAF + 32, 8, 1, "TREE"}, // the place of a chunk
	{OLD_LEAF + 48, 8, NONE, "TREE"},
};

static const struct wrong new[] = {
	{9, 1, 0, "superblock"},
	{36, 8, NONE, "superblock"},
	{36, 8, NEW_MORE, "object header"},
	{NEW_ROOT + 4, 1, 1, "object header"},
	{NEW_ROOT + 5, 1, 0xff, "object header"},
	{NEW_ROOT + 8, 2, 0xffff, "object header"}, // bytes of a message
	{NEW_ROOT + 13, 8, NEW_MORE, "FRHP"},
	{NEW_ROOT + 33, 1, 2, "link"},   // the version of p
	{NEW_ROOT + 35, 1, 255, "link"}, // bytes of its name
	{NEW_ROOT + 35, 1, 9, "link"},
	{NEW_ROOT + 34, 1, 3, "link"}, // which has eight bytes
	{NEW_ROOT + 37, 8, NONE, "link"},
	{NEW_ROOT + 37, 8, NONE - 1, "address"},
	{NEW_ROOT + 7 + 22 + 80 + 17 + 4, 8, NEW_ROOT, "OCHK"},
	{NEW_ROOT + 7 + 22 + 80 + 17 + 4, 8, NONE, "address"},
	{NEW_ROOT + 7 + 22 + 80 + 17 + 12, 8, 7, "continuation"},
	{NEW_ROOT + 7 + 22 + 80 + 17 + 12, 8, NONE, "object header"},
	{NEW_PLAIN + 11, 1, 3, "dataspace"},
	{NEW_PLAIN + 23, 8, 7, "dataspace"}, // the largest extent is less
	{NEW_PLAIN + 51, 1, 0, "layout"},
	{NEW_COMPACT + 53, 2, 4, "layout"}, // more bytes than there are
	{NEW_FIXED + 54, 1, 1, "layout"},
	{NEW_FIXED + 55, 1, 0, "layout"},
	{NEW_FIXED + 55, 1, 9, "layout"},
	{NEW_FAHD + 4, 1, 1, "FAHD"},
	{NEW_FAHD + 5, 1, 1, "FAHD"},
	{NEW_FAHD + 6, 1, 7, "FAHD"},   // bytes of an element
	{NEW_FAHD + 7, 1, 255, "FAHD"}, // pages
	{NEW_FAHD + 8, 8, 2, "FAHD"},   // elements
	{NEW_FAHD + 16, 8, NEW_FAHD, "FADB"},
	{NEW_FIXED + 23, 8, NONE, "layout"}, // it may grow without end
	{NEW_EAHD + 6, 1, 255, "EAHD"},
	{NEW_EAHD + 7, 1, 65, "EAHD"},
	{NEW_EAHD + 9, 1, 0, "EAHD"},
	{NEW_EAHD + 9, 1, 3, "EAHD"},
	{NEW_EAHD + 10, 1, 0, "EAHD"},
	{NEW_EAHD + 11, 1, 21, "EAHD"},
	{NEW_EAHD + 56, 8, NEW_EAHD, "EAIB"},
	{NEW_EAIB + 46, 8, NEW_EAIB, "EADB"},
};

static const struct wrong records[] = {
	{TREE_DATASET + 7 + 44 + 7 + 7, 8, TREE_ROOT, "BTHD"},
	{TREE_HEAD + 4, 1, 1, "BTHD"},  // its version
	{TREE_HEAD + 5, 1, 11, "BTHD"}, // records of chunks with filters
	{TREE_HEAD + 6, 4, 25, "BTHD"}, // the bytes of a node: none fits
	{TREE_HEAD + 6, 4, 0, "BTHD"},
	{TREE_HEAD + 10, 2, 0, "BTHD"}, // of a record
	{TREE_HEAD + 10, 2, 15, "BTHD"},
	{TREE_HEAD + 10, 2, 17, "BTHD"},
	{TREE_HEAD + 10, 2, 0xffff, "BTHD"},
	{TREE_HEAD + 12, 2, 0, "BTLF"}, // its depth
	{TREE_HEAD + 12, 2, 2, "BTIN"},
	{TREE_HEAD + 12, 2, 0xffff, "BTHD"},
	{TREE_HEAD + 16, 8, NONE - 1, "address"}, // its root
	{TREE_HEAD + 24, 2, 0xffff, "BTHD"},      // the records of that
	{TREE_ROOT + 6, 8, NONE, "BTHD"},         // the address of a chunk
	{TREE_ROOT + 22, 8, TREE_ROOT, "BTLF"},   // a child is its parent
	{TREE_ROOT + 30, 1, 255, "BTHD"},
};

START_TEST(each_rule_that_is_broken_is_told)
{
	for (size_t i = 0; i < ARRAY_LEN(old); i++) {
		put_old();
		patch(old[i].place, old[i].bytes, old[i].value);
		check_refused(old[i].field, old[i].place);
	}
	for (size_t i = 0; i < ARRAY_LEN(new); i++) {
		put_new();
		patch(new[i].place, new[i].bytes, new[i].value);
		check_refused(new[i].field, new[i].place);
	}
	for (size_t i = 0; i < ARRAY_LEN(records); i++) {
		put_records();
		patch(records[i].place, records[i].bytes, records[i].value);
		check_refused(records[i].field, records[i].place);
	}
}
END_TEST

START_TEST(what_cannot_be_read_has_a_reason)
{
	static const struct {
		size_t place;
		unsigned bytes;
		uint64_t value;
		const char *why;
	} rows[] = {
		{OLD_DATASET + 20, 1, 0, NULL},
		{OLD_DATASET + 44, 1, 2, "another object"},
		{OLD_DATASET + 48, 1, 0x13, "strings"},
		{OLD_DATASET + 48, 1, 0x1f, "not known"},
		{OLD_DATASET + 56, 2, 1, "bits"},
		{OLD_DATASET + 58, 2, 31, "bits"},
		{OLD_MORE + 40, 2, 4, "szip"},
		{OLD_MORE + 40, 2, 999, "filter 999"},
		{OLD_MORE + 48, 4, 3, "filter 2"},
		{OLD_MORE + 81, 1, 3, "virtual"},
		{OLD_MORE + 81, 1, 9, "not known"},
		{OLD_LEAF + 48, 8, OLD_END - 11, "outside of its file"},
		{OLD_LEAF + 24, 4, 0xffffffff, "outside of its file"},
		{OLD_LEAF + 88, 4, 15, "bytes as its shape"},
		{OLD_MORE + 91, 4, 0x40000000, "too large"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		put_old();
		patch(rows[i].place, rows[i].bytes, rows[i].value);
		if (i + 1 == ARRAY_LEN(rows)) // one chunk alone
			patch(OLD_LEAF + 6, 2, 1);
		read_file();
		ck_assert_uint_eq(ckpt_catalog_count(c), 3);
		ck_assert_msg(rows[i].why ? find("d").why && strstr(find("d").why, rows[i].why) : !find("d").why,
			      "row %zu: %s", i, find("d").why);
	}
}
END_TEST

static void (*const puts_of[])(void) = {put_old, put_new, put_records};

// Each byte, and each eight: nothing but arrays that hold, reasons and faults.
START_TEST(each_byte_at_its_extremes_ends_well)
{
	static const uint64_t values[] = {0, 1, 0x7f, 0x80, 0xff, 0x40, 0x60, 0x140, INT64_MAX, NONE, NONE - 1};

	for (int which = 0; which < 3; which++) {
		for (size_t place = 8; place < (which == 2 ? TREE_DATA : OLD_DATA); place++) {
			for (size_t i = 0; i < ARRAY_LEN(values); i++) {
				puts_of[which]();
				patch(place, i < 5 ? 1 : 8, values[i]);
				read_file();
			}
		}
	}
}
END_TEST

START_TEST(no_file_that_is_cut_off_ends_the_reader)
{
	for (int which = 0; which < 3; which++) {
		puts_of[which]();
		for (; file.len; file.len--)
			read_file();
	}
}
END_TEST

// --- What takes long --------------------------------------------------------------------------------------------------

static void check_soon(void)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	read_file();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	ck_assert_int_le(end.tv_sec - begin.tv_sec, SECONDS_MAX);
}

// Nodes of nine levels, all of whose children are the next one: 60 children each are more than anybody could walk.
START_TEST(a_tree_whose_children_are_one_is_refused_soon)
{
	put_old();
	patch(OLD_MORE + 83, 8, OLD_END);
	for (unsigned level = 9; level > 0; level--) {
		uint64_t next = level == 1 ? OLD_LEAF : file.len + 24 + 60 * 32;

		node(1, level, 60);
		for (int i = 0; i < 60; i++)
			chunk(0, 0, 0, next);
	}
	check_soon();
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	// The same without a chunk that would be added.
	patch(OLD_LEAF + 6, 2, 0);
	check_soon();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
}
END_TEST

START_TEST(a_grid_of_chunks_that_are_nowhere_is_refused_soon)
{
	put_new();
	patch(NEW_EXTENSIBLE + 7 + 4 + 4, 8, UINT64_C(1) << 40);
	check_soon();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
}
END_TEST

// Each group has the next one twice: but for those that were seen, there were 2^60 paths.
START_TEST(a_group_is_walked_once)
{
	put_new();
	patch(36, 8, NEW_END);
	for (int i = 0; i < 60; i++) {
		uint64_t next = i == 59 ? NEW_PLAIN : file.len + 7 + 32 + 4;

		begin_header(file.len, 32);
		hard_link("a", next);
		hard_link("b", next);
		n(4, 0);
	}
	check_soon();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 59 + 2);
}
END_TEST

// Groups in each other, more than are followed.
START_TEST(groups_that_are_too_deep_are_listed)
{
	put_new();
	patch(36, 8, NEW_END);
	for (int i = 0; i < 1000; i++) {
		uint64_t next = i == 999 ? NEW_PLAIN : file.len + 7 + 16 + 4;

		begin_header(file.len, 16);
		hard_link("a", next);
		n(4, 0);
	}
	check_soon();
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
}
END_TEST

// --- Failures ---------------------------------------------------------------------------------------------------------

START_TEST(what_the_source_says_is_told)
{
	for (int which = 0; which < 3; which++) {
		puts_of[which]();
		for (file.fails_at = 1; ckpt_catalog_of_bytes(&file, "a.h5", &c); file.fails_at++)
			ck_error(ckpt_catalog_of_bytes(&file, "a.h5", &c), EIO);
		ck_assert_uint_gt(file.fails_at, 2);
		ckpt_catalog_free(TAKE_PTR(c));
		file.fails_at = 0;
	}
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	for (int which = 0; which < 3; which++) {
		puts_of[which]();
		for (uint64_t k = 1;; k++) {
			int rc;

			ckpt_allocfault_begin(k, false);
			rc = ckpt_catalog_of_bytes(&file, "a.h5", &c);
			if (ckpt_allocfault_end() < k) {
				ck_ok(rc);
				ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
				ckpt_catalog_free(TAKE_PTR(c));
				break;
			}
			ck_error(rc, ENOMEM);
		}
	}
}
END_TEST

// --- Other files ------------------------------------------------------------------------------------------------------

START_TEST(bytes_of_the_user_may_stand_in_front)
{
	static const size_t places[] = {512, 1024, 4096};

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		struct ckpt_bytes inner;

		put_old();
		inner = file;
		file = (struct ckpt_bytes){0};
		ckpt_bytes_fill(&file, places[i], 1);
		ckpt_bytes_add(&file, inner.data, inner.len);
		free(inner.data);
		read_file();
		ck_assert_uint_eq(piece_of("d", 0).offset, places[i] + OLD_DATA);
		teardown();
	}
	ckpt_bytes_fill(&file, 4096, 1);
	read_file();
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(keras_has_its_weights_in_a_zip)
{
	struct ckpt_bytes inner;

	for (int method = 0; method < 9; method += 8) {
		struct ckpt_zip_sample z;

		put_old();
		inner = file;
		file = (struct ckpt_bytes){0};
		ckpt_sample_zip_begin(&z, &file);
		ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "config.json", .data = "{}", .len = 2});
		ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "model.weights.h5",
								.data = inner.data,
								.len = inner.len,
								.method = (uint16_t)method});
		ckpt_sample_zip_end(&z, false);
		read_file();
		if (method) {
			ck_assert(strstr(find("model.weights.h5").why, "compressed"));
		} else {
			uint64_t offset = piece_of("d", 0).offset - OLD_DATA;

			ck_assert_mem_eq(file.data + offset, "\x89HDF", 4);
		}
		free(inner.data);
		teardown();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_hdf5");
	TCase *t = tcase_create("catalog_hdf5");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, a_symbol_table_has_a_dataset_of_chunks);
	tcase_add_test(t, links_have_datasets_of_each_layout);
	tcase_add_test(t, records_of_a_tree_have_chunks);
	tcase_add_test(t, each_rule_that_is_broken_is_told);
	tcase_add_test(t, what_cannot_be_read_has_a_reason);
	tcase_add_test(t, each_byte_at_its_extremes_ends_well);
	tcase_add_test(t, no_file_that_is_cut_off_ends_the_reader);
	tcase_add_test(t, a_tree_whose_children_are_one_is_refused_soon);
	tcase_add_test(t, a_grid_of_chunks_that_are_nowhere_is_refused_soon);
	tcase_add_test(t, a_group_is_walked_once);
	tcase_add_test(t, groups_that_are_too_deep_are_listed);
	tcase_add_test(t, what_the_source_says_is_told);
	tcase_add_test(t, without_memory_nothing_is_said);
	tcase_add_test(t, bytes_of_the_user_may_stand_in_front);
	tcase_add_test(t, keras_has_its_weights_in_a_zip);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
