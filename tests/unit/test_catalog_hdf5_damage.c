// HDF5 files that are damaged, or made to take long: each rule that is broken, each byte at its extremes, structures that lead back. What
// stands behind a checksum is damaged twice: with the old checksum, and with one that is right.
#include "tests/support/hdf5_files.h"

#include <time.h>

#define SECONDS_MAX 5

static void check_refused(const char *field, size_t place)
{
	struct ckpt_catalog_fault f;

	seal();
	read_file();
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_msg(!strcmp(f.field, field), "at %#zx: %s, not %s: %s", place, f.field, field, f.reason);
}

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
	{NEW_ROOT + 5, 1, 0xff, "OHDR"},
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
	{NEW_ROOT + 7 + 22 + 80 + 17 + 12, 8, NONE, "OCHK"},
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
				if (which && ckpt_catalog_faults(c)) {
					seal();
					read_file();
				}
			}
		}
	}
}
END_TEST

// No byte behind a checksum changes an array, and none is lost without a word.
START_TEST(each_byte_that_changes_is_told_or_does_not_count)
{
	for (int which = 1; which < 3; which++) {
		size_t end = which == 1 ? NEW_DATA : TREE_DATA, told = 0;
		struct ckpt_catalog *good;

		puts_of[which]();
		ck_ok(ckpt_catalog_of_bytes(&file, "a.h5", &good));
		for (size_t place = 0; place < end; place++) {
			file.data[place] ^= (uint8_t)(1u << place % 8);
			read_file();
			told += ckpt_catalog_faults(c) > 0;
			ck_assert_msg(ckpt_catalog_faults(c) || ckpt_same_catalogs(good, c), "byte %#zx", place);
			file.data[place] ^= (uint8_t)(1u << place % 8);
		}
		ck_assert_uint_gt(told, end / 4); // the others lie between structures
		ckpt_catalog_free(good);
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
	seal();
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
	seal();
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
	seal();
	check_soon();
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_hdf5_damage");
	TCase *t = tcase_create("catalog_hdf5_damage");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, each_rule_that_is_broken_is_told);
	tcase_add_test(t, what_cannot_be_read_has_a_reason);
	tcase_add_test(t, each_byte_at_its_extremes_ends_well);
	tcase_add_test(t, each_byte_that_changes_is_told_or_does_not_count);
	tcase_add_test(t, no_file_that_is_cut_off_ends_the_reader);
	tcase_add_test(t, a_tree_whose_children_are_one_is_refused_soon);
	tcase_add_test(t, a_grid_of_chunks_that_are_nowhere_is_refused_soon);
	tcase_add_test(t, a_group_is_walked_once);
	tcase_add_test(t, groups_that_are_too_deep_are_listed);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
