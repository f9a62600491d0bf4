// The catalog of files that torch has written, with a zip and without.
#include "tests/support/catalog_read.h"

// --- torch with a zip ----------------------------------------------------------------------------------------

START_TEST(a_tensor_lies_in_its_storage)
{
	const struct tensor good[] = {
		{"FloatStorage", "0", 2, 0, {1, 2}, {2, 1}},      {"FloatStorage", "0", 2, 1, {5, 1}, {0, 1}},
		{"BFloat16Storage", "0", 4, 0, {2, 2}, {1, 2}},   {"DoubleStorage", "0", 1, 1, {0, 7}, {7, 1}},
		{"ByteStorage", "1", 4096, 4095, {1, 1}, {1, 1}},
	};
	struct ckpt_piece piece;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		put_tensor(&good[i]);
		read_as("d/a.pt");
		ck_assert_uint_eq(ckpt_catalog_count(c), 1);
		ck_assert_msg(!array_at(0).why, "%zu: %s", i, array_at(0).why);
		ck_assert_str_eq(array_at(0).name, "w");
		ck_assert_str_eq(array_at(0).tree, "d/a.pt");
		ckpt_catalog_piece(c, 0, 0, &piece);
		ck_assert_str_eq(piece.file, "d/a.pt");
		ck_assert_int_eq(piece.strides[0], good[i].strides[0]);
		if (i == 1)
			ck_assert(!memcmp(file.data + piece.offset, "4567", 4) && piece.bytes == 4);
	}
}
END_TEST

START_TEST(a_tensor_that_lies_elsewhere_is_listed_with_the_reason)
{
	static const struct {
		struct tensor t;
		const char *why;
	} wrong[] = {
		{{"FloatStorage", "0", 2, 1, {1, 2}, {2, 1}}, "outside"},
		{{"FloatStorage", "0", 3, 0, {1, 2}, {2, 1}}, "shorter"},
		{{"FloatStorage", "0", 2, 0, {2, 2}, {1, 2}}, "outside"},
		{{"FloatStorage", "0", 2, INT64_MAX, {1, 2}, {2, 1}}, "outside"},
		{{"FloatStorage", "0", INT64_MAX, 0, {1, 2}, {2, 1}}, "shorter"},
		{{"FloatStorage", "0", 2, 0, {2, 2}, {INT64_MAX, INT64_MAX}}, "shape"},
		{{"FloatStorage", "0", 2, 0, {2, 1}, {INT64_MAX - 1, 1}}, "outside"},
		{{"FloatStorage", "0", 2, -1, {1, 2}, {2, 1}}, "shape"},
		{{"FloatStorage", "0", 2, 0, {-1, 2}, {2, 1}}, "shape"},
		{{"FloatStorage", "0", 2, 0, {1, 2}, {2, -1}}, "shape"},
		{{"FloatStorage", "0", -1, 0, {1, 2}, {2, 1}}, "storage"},
		{{"FloatStorage", "3", 2, 0, {1, 2}, {2, 1}}, "missing"},
		{{"FloatStorage", "../0", 2, 0, {1, 2}, {2, 1}}, "missing"},
		{{"FloatStorage", "2", 1, 0, {1, 1}, {1, 1}}, "compressed"},
		{{"system", "0", 2, 0, {1, 2}, {2, 1}}, "class"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_tensor(&wrong[i].t);
		read_as("a.pt");
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
		ck_assert_uint_eq(array_at(0).pieces, 0);
	}
	put_tensor(&(struct tensor){"FloatStorage", "0", 2, 0, {INT64_MAX, 2}, {0, 0}});
	check_refused("a.pt", "shape", "w has more elements");
}
END_TEST

// [array]: elements of two bytes, which protocol 2 keeps as a text with a character for each byte. NULL: as no bytes are kept.
static void put_numpy(const char *characters, int64_t elements, const char *encoding)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_text(&b, "\x80\x02](cnumpy.core.multiarray\n_reconstruct\n)R(");
	number(&b, 1);
	number(&b, elements);
	ckpt_bytes_text(&b, "\x85"
			    "cnumpy\ndtype\n");
	text(&b, "u2");
	ckpt_bytes_text(&b, "\x85R(");
	number(&b, 3);
	text(&b, "<");
	ckpt_bytes_text(&b, "tb\x89");
	if (characters) {
		ckpt_bytes_text(&b, "c_codecs\nencode\n");
		text(&b, characters);
		text(&b, encoding);
		ckpt_bytes_text(&b, "\x86R");
	} else {
		ckpt_bytes_text(&b, "c__builtin__\nbytes\n)R");
	}
	ckpt_bytes_text(&b, "tbe.");
	put_torch(b.data, b.len);
	free(b.data);
}

START_TEST(an_array_of_numpy_whose_bytes_are_text_is_read)
{
	static const struct {
		const char *characters;
		int64_t elements;
		const char *encoding;
	} wrong[] = {
		{"abc\xc4\x80", 2, "latin1"}, {"abcde", 2, "latin1"},           {"abcd", 2, "utf8"},
		{"ab\xffz", 2, "latin1"},     {"abc\xe2\x82\xac", 2, "latin1"},
	};
	struct ckpt_piece piece;

	put_numpy("a\xc3\xbf\xc2\x80z", 2, "latin1");
	read_as("a.pt");
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_msg(!array_at(0).why, "%s", array_at(0).why);
	ck_assert_uint_eq(array_at(0).pieces, 1);
	ckpt_catalog_piece(c, 0, 0, &piece);
	ck_assert_uint_eq(piece.bytes, 4);
	ck_assert(piece.data && !memcmp(piece.data, "a\xff\x80z", 4));
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_numpy(wrong[i].characters, wrong[i].elements, wrong[i].encoding);
		read_as("a.pt");
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, "as text"), "%zu: %s", i, array_at(0).why);
		ck_assert_uint_eq(array_at(0).pieces, 0);
	}
	put_numpy(NULL, 0, NULL);
	read_as("a.pt");
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_msg(!array_at(0).why, "%s", array_at(0).why);
	put_numpy(NULL, 1, NULL);
	read_as("a.pt");
	ck_assert_ptr_nonnull(array_at(0).why);
	put_numpy("abc", 2, "latin1");
	read_as("a.pt");
	ck_assert_ptr_nonnull(array_at(0).why);
	ck_assert_uint_eq(array_at(0).pieces, 0);
}
END_TEST

static void check_pickle_refused(const void *pickle, size_t len, const char *word)
{
	put_torch(pickle, len);
	check_refused("a.pt", "data.pkl", word);
}

// n dictionaries or lists in each other, of which each has the one before twice: 2^n paths.
static void put_tree(struct ckpt_bytes *b, unsigned n)
{
	ckpt_bytes_text(b, "\x80\x02");
	ckpt_bytes_text(b, "]q");
	ckpt_bytes_number(b, 0, 1);
	for (unsigned i = 1; i < n; i++) {
		ckpt_bytes_text(b, "]q");
		ckpt_bytes_number(b, i, 1);
		for (int k = 0; k < 2; k++) {
			ckpt_bytes_text(b, "h");
			ckpt_bytes_number(b, i - 1, 1);
			ckpt_bytes_text(b, "a");
		}
	}
	ckpt_bytes_text(b, ".");
}

START_TEST(what_takes_long_to_walk_is_refused_soon)
{
	struct ckpt_bytes b = {0};
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	put_tree(&b, 200);
	check_pickle_refused(b.data, b.len, "paths");
	b.len = 0;
	ckpt_bytes_text(&b, "\x80\x02");
	for (int i = 0; i < 100000; i++)
		ckpt_bytes_text(&b, "]");
	for (int i = 1; i < 100000; i++)
		ckpt_bytes_text(&b, "a");
	ckpt_bytes_text(&b, ".");
	check_pickle_refused(b.data, b.len, "deep");
	// Two lists that have each other a million times.
	b.len = 0;
	ckpt_bytes_add(&b, "\x80\x02]q\0]q\1(", 9);
	for (int i = 0; i < 1000000; i++)
		ckpt_bytes_add(&b, "h\0", 2);
	ckpt_bytes_add(&b, "e0h\0(", 5);
	for (int i = 0; i < 1000000; i++)
		ckpt_bytes_add(&b, "h\1", 2);
	ckpt_bytes_text(&b, "e.");
	check_pickle_refused(b.data, b.len, "paths");
	// One long key a million times.
	b.len = 0;
	ckpt_bytes_add(&b, "\x80\x02X\x60\xea\0\0", 7);
	ckpt_bytes_fill(&b, 60000, 1);
	ckpt_bytes_add(&b,
		       "q\0"
		       "0}(",
		       5);
	for (int i = 0; i < 1000000; i++)
		ckpt_bytes_add(&b, "h\0N", 3);
	ckpt_bytes_text(&b, "u.");
	check_pickle_refused(b.data, b.len, "paths");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20); // of a sanitizer on a busy machine
	free(b.data);
}
END_TEST

#define REFUSED(pickle, word) check_pickle_refused(pickle, sizeof(pickle) - 1, word)

START_TEST(a_torch_file_that_breaks_a_rule_says_where)
{
	struct ckpt_zip_sample z;

	REFUSED("\x80\2}X\1\0\0\0as.", "needs a container");
	REFUSED("\x80\2", "ends too early");
	put_torch("\x80\2]q\0h\0a.", 9); // it only holds itself
	read_as("a.pt");
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
	put_torch("\x80\2cos\nsystem\nX\2\0\0\0rm\x85R.", 24);
	read_as("a.pt");
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data.pkl", .data = "N.", .len = 2, .method = 8});
	ckpt_sample_zip_end(&z, false);
	check_refused("a.pt", "data.pkl", "compressed");
	ckpt_sample_zip_begin(&z, &file);
	for (int i = 0; i < 2; i++)
		ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data/0", .data = "N.", .len = 2});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data.pkl", .data = "\x80\2N.", .len = 4});
	ckpt_sample_zip_end(&z, false);
	check_refused("a.pt", "members", "breaks a rule");
	file.len -= 4;
	check_refused("a.pt", "central directory", "missing");
}
END_TEST

// --- torch without a zip ----------------------------------------------------------------------------------------------

static const char legacy_magic[] = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

// {"w": two float32}, whose storage says that it has `numel` elements; keys are a pickle.
static void put_legacy(const char *class, const char *keys, uint64_t numel, size_t bytes)
{
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, legacy_magic, sizeof(legacy_magic) - 1);
	ckpt_bytes_add(&file, "\x80\2M\xe9\3.\x80\2}.", 10);
	ckpt_bytes_text(&file, "\x80\2}(");
	text(&file, "w");
	ckpt_bytes_text(&file, "ctorch._utils\n_rebuild_tensor_v2\n((");
	text(&file, "storage");
	ckpt_bytes_text(&file, "ctorch\n");
	ckpt_bytes_text(&file, class);
	ckpt_bytes_text(&file, "\n");
	text(&file, "7");
	text(&file, "cpu");
	ckpt_bytes_add(&file, "K\2NtQK\0K\2\x85K\1\x85\x89}tRu.", 19);
	ckpt_bytes_text(&file, keys);
	ckpt_bytes_number(&file, numel, 8);
	ckpt_bytes_add(&file, "01234567", bytes);
}

static void put_keys(const char *class, char key, uint64_t numel, size_t bytes)
{
	struct ckpt_bytes keys = {0};

	ckpt_bytes_text(&keys, "\x80\2](U\1");
	ckpt_bytes_add(&keys, &key, 1);
	ckpt_bytes_add(&keys, "e.", 3);
	put_legacy(class, (char *)keys.data, numel, bytes);
	free(keys.data);
}

// The object names one storage millions of times: `h 1 Q 0`.
START_TEST(a_storage_that_is_named_often_is_kept_once)
{
	struct rusage usage;
	int status;
	pid_t child = fork();

	if (!child) {
		ckpt_bytes_add(&file, legacy_magic, sizeof(legacy_magic) - 1);
		ckpt_bytes_add(&file, "\x80\2M\xe9\3.\x80\2}.", 10);
		ckpt_bytes_text(&file, "\x80\2(");
		text(&file, "storage");
		ckpt_bytes_text(&file, "ctorch\nFloatStorage\n");
		text(&file, "7");
		text(&file, "cpu");
		ckpt_bytes_add(&file,
			       "K\2Ntq\1"
			       "0",
			       7);
		for (int i = 0; i < 5750000; i++)
			ckpt_bytes_add(&file, "h\1Q0", 4);
		ckpt_bytes_add(&file,
			       "}.\x80\2](U\1"
			       "7e.",
			       11);
		ckpt_bytes_number(&file, 2, 8);
		ckpt_bytes_add(&file, "01234567", 8);
		read_as("a.pt");
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		getrusage(RUSAGE_SELF, &usage);
		_exit(usage.ru_maxrss >> 10 < MEMORY_MAX_MIB ? 0 : 1);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

// {0: storage 0, 1: storage 1 ...}, each of another key.
START_TEST(storages_of_many_keys_are_all_kept)
{
	struct ckpt_bytes keys = {0};
	char key[16];

	ckpt_bytes_add(&file, legacy_magic, sizeof(legacy_magic) - 1);
	ckpt_bytes_add(&file, "\x80\2M\xe9\3.\x80\2}.", 10);
	ckpt_bytes_text(&file, "\x80\2](");
	ckpt_bytes_text(&keys, "\x80\2](");
	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "%d", i % 100);
		ckpt_bytes_text(&file, "(");
		text(&file, "storage");
		ckpt_bytes_text(&file, "ctorch\nFloatStorage\n");
		text(&file, key);
		text(&file, "cpu");
		ckpt_bytes_add(&file, "K\2NtQ", 5);
		if (i < 100)
			text(&keys, key);
	}
	ckpt_bytes_text(&file, "e.");
	ckpt_bytes_text(&keys, "e.");
	ckpt_bytes_add(&file, keys.data, keys.len);
	free(keys.data);
	for (int i = 0; i < 100; i++) {
		ckpt_bytes_number(&file, 2, 8);
		ckpt_bytes_add(&file, "01234567", 8);
	}
	read_as("a.pt");
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 200);
	for (size_t i = 0; i < 200; i++)
		ck_assert_msg(!array_at(i).why, "%s", array_at(i).why);
}
END_TEST

START_TEST(torch_without_a_zip_has_its_storages_at_the_end)
{
	struct ckpt_piece piece;

	put_keys("FloatStorage", '7', 2, 8);
	read_as("a.pt");
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_msg(!array_at(0).why, "%s", array_at(0).why);
	ckpt_catalog_piece(c, 0, 0, &piece);
	ck_assert(!memcmp(file.data + piece.offset, "01234567", 8) && piece.bytes == 8);
	put_keys("FloatStorage", '7', 1, 8);
	read_as("a.pt");
	ck_assert(strstr(array_at(0).why, "shorter"));
	put_keys("DoubleStorage", '7', 1, 8);
	read_as("a.pt");
	ck_assert(strstr(array_at(0).why, "shorter"));
	put_keys("FloatStorage", '8', 2, 8);
	check_refused("a.pt", "keys", "none of those");
	put_keys("FloatStorage", '7', 2, 7);
	check_refused("a.pt", "storages", "7 lies outside");
	put_keys("FloatStorage", '7', UINT64_MAX / 4 + 1, 8);
	check_refused("a.pt", "storages", "7 lies outside");
	put_keys("FloatStorage", '7', UINT64_MAX, 8);
	check_refused("a.pt", "storages", "7 lies outside");
	put_keys("system", '7', 2, 8);
	check_refused("a.pt", "keys", "none of those");
	put_legacy("FloatStorage", "\x80\2].", 2, 8); // no key
	read_as("a.pt");
	ck_assert(strstr(array_at(0).why, "shorter"));
	file.data[17] = 'X'; // a string without an end
	check_refused("a.pt", "version", "");
	file.data[17] = 'M';
	file.len = 24;
	check_refused("a.pt", "system", "");
	file.len = 25;
	check_refused("a.pt", "object", "");
}
END_TEST

static void put_tar(const char *name, char kind, size_t bytes)
{
	uint8_t block[512] = {0};

	memcpy(block, name, strlen(name));
	snprintf((char *)block + 124, 12, "%011zo", bytes);
	block[156] = (uint8_t)kind;
	memcpy(block + 257, "ustar", 5);
	ckpt_bytes_add(&file, block, sizeof(block));
	memset(block, 'x', sizeof(block));
	for (size_t at = 0; at < bytes; at += sizeof(block))
		ckpt_bytes_add(&file, block, sizeof(block));
}

// Python writes attributes in front of each file whose time has a fraction.
START_TEST(a_tar_archive_of_torch_is_listed_with_the_reason)
{
	static const struct {
		const char *first, *second;
		size_t count;
	} rows[] = {{"sys_info", "pickle", 1},
		    {"sys_info", "pickles", 0},
		    {"sys_info.txt", "pickle", 0},
		    {"README", "pickle", 0}};

	for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
		bool has_attributes = i % 2;
		struct ckpt_catalog_array a;

		file.len = 0;
		if (has_attributes)
			put_tar("././@PaxHeader", 'x', 30);
		put_tar(rows[i / 2].first, '0', 700);
		if (has_attributes)
			put_tar("././@PaxHeader", 'x', 30);
		put_tar(rows[i / 2].second, '\0', 0);
		read_as("a.pt");
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		ck_assert_uint_eq(ckpt_catalog_count(c), rows[i / 2].count);
		if (!rows[i / 2].count)
			continue;
		ckpt_catalog_get(c, 0, &a);
		ck_assert(!*a.name && !strcmp(a.format, "torch") && strstr(a.why, "tar archive"));
		for (file.len--; file.len > 64; file.len--) { // cut off
			read_as("a.pt");
			ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
		}
	}
}
END_TEST

// A member that is compressed: a block of deflate that is stored, of so many bytes that say `claimed`.
static void put_deflated(const char *npy, size_t len, unsigned claimed, uint16_t flags)
{
	struct ckpt_zip_sample z;
	struct ckpt_bytes b = {0};

	ckpt_bytes_number(&b, 1, 1);
	ckpt_bytes_number(&b, claimed, 2);
	ckpt_bytes_number(&b, ~claimed & 0xffff, 2);
	ckpt_bytes_add(&b, npy, len);
	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){
					.name = "w.npy", .data = b.data, .len = b.len, .method = 8, .flags = flags});
	ckpt_sample_zip_end(&z, false);
	free(b.data);
	read_as("a.npz");
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_str_eq(array_at(0).name, "w");
}

START_TEST(members_of_npz_that_are_compressed_are_pieces_or_have_a_reason)
{
	struct ckpt_bytes npy = {0};
	struct ckpt_piece piece;

	// The zip says that it holds as many bytes as are stored: five more than the header.
	ckpt_sample_npy(&npy, 1, "{'descr': '|i1', 'fortran_order': False, 'shape': (5,)}", 0);
	put_deflated((char *)npy.data, npy.len, (unsigned)npy.len, 0);
	ck_assert_msg(!array_at(0).why, "%s", array_at(0).why);
	ckpt_catalog_piece(c, 0, 0, &piece);
	ck_assert(piece.codecs[0] == CKPT_PIECE_DEFLATE && piece.first == npy.len && array_at(0).pieces == 1);
	put_deflated((char *)npy.data, npy.len, (unsigned)npy.len, 1);
	ck_assert(strstr(array_at(0).why, "encrypted"));
	put_deflated((char *)npy.data, npy.len, 20, 0); // behind it is no block
	ck_assert(strstr(array_at(0).why, "header"));
	put_deflated((char *)npy.data, 20, 60000, 0); // it ends in its header
	ck_assert(strstr(array_at(0).why, "header"));
	put_deflated((char *)npy.data, 0, 0, 0);
	ck_assert(strstr(array_at(0).why, "header"));
	free(npy.data);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog torch");
	TCase *t = tcase_create("catalog");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, a_tensor_lies_in_its_storage);
	tcase_add_test(t, a_tensor_that_lies_elsewhere_is_listed_with_the_reason);
	tcase_add_test(t, what_takes_long_to_walk_is_refused_soon);
	tcase_add_test(t, an_array_of_numpy_whose_bytes_are_text_is_read);
	tcase_add_test(t, a_torch_file_that_breaks_a_rule_says_where);
	tcase_add_test(t, a_storage_that_is_named_often_is_kept_once);
	tcase_add_test(t, storages_of_many_keys_are_all_kept);
	tcase_add_test(t, torch_without_a_zip_has_its_storages_at_the_end);
	tcase_add_test(t, a_tar_archive_of_torch_is_listed_with_the_reason);
	tcase_add_test(t, members_of_npz_that_are_compressed_are_pieces_or_have_a_reason);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
