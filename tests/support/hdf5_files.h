// HDF5 files made byte by byte, for suites that include this: old forms, new ones, and a B-tree of version 2. Checksums are set by seal().
#pragma once

#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"

#define NONE UINT64_MAX

static struct ckpt_bytes file;
static struct ckpt_catalog *c;

static inline void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_catalog_free(TAKE_PTR(c));
}

static inline void read_file(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_bytes(&file, "a.h5", &c));
	ckpt_walk_catalog(c, file.len + file.zeros);
}

static inline struct ckpt_catalog_array find(const char *name)
{
	struct ckpt_catalog_array a;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		ckpt_catalog_get(c, i, &a);
		if (!strcmp(a.name, name))
			return a;
	}
	ck_abort_msg("%s is missing", name);
}

static inline struct ckpt_piece piece_of(const char *name, size_t k)
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

// --- Bytes ------------------------------------------------------------------------------------------------------------

static inline void at(size_t place)
{
	static const uint8_t zeros[1024];

	ck_assert_uint_le(file.len, place);
	while (file.len < place)
		ckpt_bytes_add(&file, zeros, MIN(sizeof(zeros), place - file.len));
}

static inline void n(unsigned bytes, uint64_t number)
{
	ckpt_bytes_number(&file, number, bytes);
}

static inline void patch(size_t place, unsigned bytes, uint64_t number)
{
	ck_assert_uint_le(place + bytes, file.len);
	memcpy(file.data + place, &number, bytes);
}

// Each checksum is right.
static inline void seal(void)
{
	ckpt_sample_sums(&file, "a.h5");
}

// The file, made and sealed once.
static inline void put(struct ckpt_bytes *made, void (*make)(void))
{
	file.len = file.zeros = 0;
	if (made->len) {
		ckpt_bytes_add(&file, made->data, made->len);
		return;
	}
	make();
	seal();
	ckpt_bytes_add(made, file.data, file.len);
}

// Version 1: the body has so many bytes.
static inline void message(unsigned type, unsigned bytes)
{
	n(2, type);
	n(2, bytes);
	n(4, 0);
}

static inline void symbol(uint64_t name, uint64_t header, uint64_t kind, uint64_t target)
{
	n(8, name);
	n(8, header);
	n(8, kind);
	n(8, target);
	n(8, 0);
}

static inline void node(unsigned type, unsigned level, unsigned count)
{
	ckpt_bytes_text(&file, "TREE");
	n(1, type);
	n(1, level);
	n(2, count);
	n(8, NONE);
	n(8, NONE);
}

static inline void chunk(uint64_t bytes, uint64_t mask, uint64_t start, uint64_t child)
{
	n(4, bytes);
	n(4, mask);
	n(8, start);
	n(8, 0);
	n(8, child);
}

static inline void put_int32(void)
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

static inline void put_old_dataset(void)
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
static inline void make_old(void)
{
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

static inline void put_old(void)
{
	static struct ckpt_bytes made;

	put(&made, make_old);
}

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
	NEW_EADB = 0x7c0,
	NEW_DATA = 0x880,
	NEW_END = 0x8c0
};

static inline void message2(unsigned type, unsigned bytes)
{
	n(1, type);
	n(2, bytes);
	n(1, 0);
}

static inline void hard_link(const char *name, uint64_t address)
{
	message2(6, 12);
	n(2, 1);
	n(1, 1);
	ckpt_bytes_text(&file, name);
	n(8, address);
}

static inline void begin_header(size_t place, unsigned bytes)
{
	at(place);
	ckpt_bytes_text(&file, "OHDR");
	n(2, 2);
	n(1, bytes);
}

// Of one byte an element; maximum: 0, as large as it is.
static inline void begin_dataset(size_t place, unsigned layout_bytes, uint64_t elements, uint64_t maximum)
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

static inline void put_fixed(void)
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

static inline void put_links(void)
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

static inline void put_extensible(void)
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
	for (int i = 1; i < 6 + 25; i++) // of data blocks, and of super blocks
		n(8, NONE);
	at(NEW_EADB);
	ckpt_bytes_text(&file, "EADB");
	n(2, 0);
	n(8, NEW_EAHD);
	n(4, 0);
	n(8, NEW_DATA + 4);
	n(8, NEW_DATA + 5);
	for (int i = 2; i < 16; i++)
		n(8, NONE);
	at(NEW_END);
}

// p and P: 8 bytes in a row; c: 3 in its header; f, x: chunks of one byte in a fixed array of 3, an extensible one of 6; r: the root;
// e: another file.
static inline void make_new(void)
{
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

static inline void put_new(void)
{
	static struct ckpt_bytes made;

	put(&made, make_new);
}

// --- B-trees of version 2 ---------------------------------------------------------------------------------------------

enum {
	TREE_DATASET = 0x40,
	TREE_HEAD = 0x100,
	TREE_ROOT = 0x140,
	TREE_LEAF = 0x200,
	TREE_DATA = 0x400,
	TREE_END = 0x410
};

static inline void record(uint64_t address, uint64_t place)
{
	n(8, address);
	n(8, place);
}

static inline void leaf(size_t place, uint64_t one, uint64_t other)
{
	at(place);
	ckpt_bytes_text(&file, "BTLF");
	n(2, 0x0a00);
	record(TREE_DATA + one, one);
	record(TREE_DATA + other, other);
}

// The root is a dataset of 5 elements of one byte in chunks of one, by a tree of two levels: one record and two leaves of two each.
static inline void make_records(void)
{
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

static inline void put_records(void)
{
	static struct ckpt_bytes made;

	put(&made, make_records);
}

static void (*const puts_of[])(void) = {put_old, put_new, put_records};
