// The catalog of one file: what is refused with its field, what is listed with its reason, limits, and failures. What real
// writers write is compared in tests/interop/test_catalog.py.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX_MIB 2048 // a sanitizer's own memory is many times ours
#else
#define MEMORY_MAX_MIB 320
#endif

static struct ckpt_bytes file;
static struct ckpt_catalog *c;

static void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_catalog_free(c);
	c = NULL;
}

static void read_as(const char *path)
{
	ckpt_catalog_free(c);
	c = NULL;
	ck_ok(ckpt_catalog_of_bytes(&file, path, &c));
	ckpt_walk_catalog(c, file.len + file.zeros);
}

static struct ckpt_catalog_array array_at(size_t i)
{
	struct ckpt_catalog_array a;

	ck_assert_uint_lt(i, ckpt_catalog_count(c));
	ckpt_catalog_get(c, i, &a);
	return a;
}

// The only fault has this field and word; nothing else was added.
static void check_refused(const char *path, const char *field, const char *word)
{
	struct ckpt_catalog_fault f;

	read_as(path);
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_str_eq(f.file, path);
	ck_assert_str_eq(f.field, field);
	ck_assert_msg(strstr(f.reason, word), "%s", f.reason);
}

// --- torch ------------------------------------------------------------------------------------------------------------

// Storages 0 of 8 bytes and 1 of 4096; a member of the zip that is compressed, and one that is missing.
static void put_torch(const void *pickle, size_t len)
{
	struct ckpt_zip_sample z;

	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data.pkl", .data = pickle, .len = len});
	ckpt_sample_zip_add(&z,
			    &(struct ckpt_zip_part){.name = "x/data/0", .data = "01234567", .len = 8, .padding = 20});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data/2", .data = "0123", .len = 4, .method = 8});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "x/data/1", .zeros = 4096});
	ckpt_sample_zip_end(&z, false);
}

static void text(struct ckpt_bytes *b, const char *s)
{
	ckpt_bytes_text(b, "X");
	ckpt_bytes_number(b, strlen(s), 4);
	ckpt_bytes_text(b, s);
}

static void number(struct ckpt_bytes *b, int64_t n)
{
	ckpt_bytes_add(b, "\x8a\x08", 2);
	ckpt_bytes_number(b, (uint64_t)n, 8);
}

struct tensor {
	const char *class, *key;
	int64_t numel, offset, shape[2], strides[2];
};

// {"w": tensor}: float32 and two axes.
static void put_tensor(const struct tensor *t)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_text(&b, "\x80\x02}(");
	text(&b, "w");
	ckpt_bytes_text(&b, "ctorch._utils\n_rebuild_tensor_v2\n((");
	text(&b, "storage");
	ckpt_bytes_text(&b, "ctorch\n");
	ckpt_bytes_text(&b, t->class);
	ckpt_bytes_text(&b, "\n");
	text(&b, t->key);
	text(&b, "cpu");
	number(&b, t->numel);
	ckpt_bytes_text(&b, "tQ");
	number(&b, t->offset);
	for (int i = 0; i < 2; i++)
		number(&b, t->shape[i]);
	ckpt_bytes_text(&b, "\x86");
	for (int i = 0; i < 2; i++)
		number(&b, t->strides[i]);
	ckpt_bytes_text(&b, "\x86\x89)tRu.");
	put_torch(b.data, b.len);
	free(b.data);
}

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

// [array]: elements of two bytes, which protocol 2 keeps as a text with a character for each byte.
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
	ckpt_bytes_text(&b, "tb\x89"
			    "c_codecs\nencode\n");
	text(&b, characters);
	text(&b, encoding);
	ckpt_bytes_text(&b, "\x86Rtbe.");
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

// --- gguf -------------------------------------------------------------------------------------------------------------

static void gguf_text(const char *s)
{
	ckpt_bytes_number(&file, strlen(s), 8);
	ckpt_bytes_text(&file, s);
}

static void begin_gguf(uint32_t version, uint64_t tensors, uint64_t pairs)
{
	file.len = file.zeros = 0;
	ckpt_bytes_text(&file, "GGUF");
	ckpt_bytes_number(&file, version, 4);
	ckpt_bytes_number(&file, tensors, 8);
	ckpt_bytes_number(&file, pairs, 8);
}

static void gguf_tensor(uint64_t size, uint32_t type, uint64_t offset)
{
	gguf_text("w");
	ckpt_bytes_number(&file, 1, 4);
	ckpt_bytes_number(&file, size, 8);
	ckpt_bytes_number(&file, type, 4);
	ckpt_bytes_number(&file, offset, 8);
	file.zeros_at = file.len;
	file.zeros = 31 + 64;
}

START_TEST(gguf_that_breaks_a_rule_says_where)
{
	begin_gguf(3, 1, 0);
	gguf_tensor(16, 0, 0);
	read_as("a.gguf");
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_ptr_null(array_at(0).why);
	begin_gguf(3, 1, 0);
	gguf_tensor(32, 2, 0);
	read_as("a.gguf");
	ck_assert_str_eq(array_at(0).why, "Q4_0: blocks of 32 elements in 18 bytes");
	begin_gguf(1, 0, 0);
	check_refused("a.gguf", "version", "version 1");
	begin_gguf(3u << 24, 0, 0);
	check_refused("a.gguf", "version", "big-endian");
	begin_gguf(3, 1, 0);
	check_refused("a.gguf", "tensors", "ends");
	begin_gguf(3, 0, UINT64_MAX);
	check_refused("a.gguf", "metadata", "ends");
	begin_gguf(3, UINT64_MAX, 0);
	gguf_tensor(16, 0, 0);
	check_refused("a.gguf", "tensors", "before byte");
	begin_gguf(3, 1, 0);
	gguf_tensor(24, 0, 0);
	check_refused("a.gguf", "offset", "w lies outside");
	begin_gguf(3, 1, 0);
	gguf_tensor(16, 0, UINT64_MAX - 31);
	check_refused("a.gguf", "offset", "w lies outside");
	begin_gguf(3, 1, 0);
	gguf_tensor(33, 2, 0);
	check_refused("a.gguf", "offset", "w lies outside");
	begin_gguf(3, 0, 1);
	gguf_text("general.alignment");
	ckpt_bytes_number(&file, 4, 4);
	ckpt_bytes_number(&file, 0, 4);
	check_refused("a.gguf", "metadata", "rule");
	begin_gguf(3, 0, 1);
	gguf_text("k");
	ckpt_bytes_number(&file, 9, 4);
	for (int i = 0; i < 100; i++) { // arrays in each other
		ckpt_bytes_number(&file, 9, 4);
		ckpt_bytes_number(&file, 1, 8);
	}
	check_refused("a.gguf", "metadata", "rule");
	begin_gguf(3, 0, 1);
	gguf_text("k");
	ckpt_bytes_number(&file, 9, 4);
	ckpt_bytes_number(&file, 12, 4);
	ckpt_bytes_number(&file, UINT64_MAX / 8 + 1, 8);
	check_refused("a.gguf", "metadata", "rule");
}
END_TEST

// Texts without bytes: 8 bytes for each, in a file of 16 TiB of zeros.
START_TEST(a_long_header_of_gguf_is_refused_soon)
{
	begin_gguf(3, 0, 1);
	gguf_text("k");
	ckpt_bytes_number(&file, 9, 4);
	ckpt_bytes_number(&file, 8, 4);
	ckpt_bytes_number(&file, UINT64_C(1) << 40, 8);
	file.zeros_at = file.len;
	file.zeros = UINT64_C(1) << 44;
	check_refused("a.gguf", "metadata", "too long");
}
END_TEST

// --- dcp --------------------------------------------------------------------------------------------------------------

static void begin_object(struct ckpt_bytes *b, const char *class)
{
	ckpt_bytes_text(b, "c");
	ckpt_bytes_text(b, class);
	ckpt_bytes_text(b, "\n)\x81}(");
}

static void pair(struct ckpt_bytes *b, const char *key, int64_t n)
{
	text(b, key);
	number(b, n);
}

static void two(struct ckpt_bytes *b, const char *key, int64_t one, int64_t other)
{
	text(b, key);
	number(b, one);
	number(b, other);
	ckpt_bytes_text(b, "\x86");
}

struct slice {
	const char *path;
	int64_t offset, length, at[2], size[2];
};

// "w" of 2 times 3 float32, in one piece.
static void put_dcp(const struct slice *s)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_text(&b, "\x80\x02");
	begin_object(&b, "torch.distributed.checkpoint.metadata\nMetadata");
	text(&b, "state_dict_metadata");
	ckpt_bytes_text(&b, "}(");
	text(&b, "w");
	begin_object(&b, "m\nTensorStorageMetadata");
	text(&b, "properties");
	ckpt_bytes_text(&b, "cm\nTensorProperties\n)\x81(ctorch\nfloat32\ntb");
	two(&b, "size", 2, 3);
	text(&b, "chunks");
	ckpt_bytes_text(&b, "](");
	begin_object(&b, "m\nChunkStorageMetadata");
	two(&b, "offsets", s->at[0], s->at[1]);
	two(&b, "sizes", s->size[0], s->size[1]);
	ckpt_bytes_text(&b, "ubeubu");
	text(&b, "storage_data");
	ckpt_bytes_text(&b, "}(");
	begin_object(&b, "m\nMetadataIndex");
	text(&b, "fqn");
	text(&b, "w");
	two(&b, "offset", 0, 0);
	ckpt_bytes_text(&b, "ub");
	begin_object(&b, "m\n_StorageInfo");
	text(&b, "relative_path");
	text(&b, s->path);
	pair(&b, "offset", s->offset);
	pair(&b, "length", s->length);
	ckpt_bytes_text(&b, "ubuub.");
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, b.data, b.len);
	free(b.data);
}

START_TEST(dcp_lists_what_it_cannot_read_with_the_reason)
{
	static const struct {
		struct slice s;
		const char *why;
	} wrong[] = {
		{{"__0_1.distcp", 0, 8, {0, 0}, {2, 3}}, "missing"},
		{{"../s/__0_0.distcp", 0, 8, {0, 0}, {2, 3}}, "missing"},
		{{"/etc/passwd", 0, 8, {0, 0}, {2, 3}}, "missing"},
		{{"__0_0.distcp", 0, 1 << 20, {0, 0}, {2, 3}}, "outside of its file"},
		{{"__0_0.distcp", INT64_MAX, INT64_MAX, {0, 0}, {2, 3}}, "outside of its file"},
		{{"__0_0.distcp", -1, 8, {0, 0}, {2, 3}}, "where"},
		{{"__0_0.distcp", 0, 8, {1, 0}, {1, 3}}, "lacks a piece"},
		{{"__0_0.distcp", 0, 8, {0, 0}, {-1, 3}}, "box"},
	};
	struct ckpt_piece piece;

	put_dcp(&(struct slice){"__0_0.distcp", 4, 8, {0, 0}, {2, 3}});
	read_as("s/.metadata");
	ck_assert_ptr_null(array_at(0).why);
	ck_assert_str_eq(array_at(0).tree, "s");
	ckpt_catalog_piece(c, 0, 0, &piece);
	ck_assert_str_eq(piece.file, "s/__0_0.distcp");
	ck_assert(piece.offset == 4 && piece.bytes == 8 && piece.codecs[0] == CKPT_PIECE_TORCH);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_dcp(&wrong[i].s);
		read_as("s/.metadata");
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
		ck_assert_uint_eq(array_at(0).pieces, 0);
	}
	put_dcp(&(struct slice){"__0_0.distcp", 0, 8, {0, 0}, {3, 3}});
	check_refused("s/.metadata", "box", "w has a piece outside");
	put_torch("\x80\2N.", 4);
	file.len = 0;
	ckpt_bytes_add(&file, "\x80\2N.", 4);
	file.zeros = 0;
	check_refused("s/.metadata", "pickle", "no Metadata");
}
END_TEST

// A hundred thousand pieces whose place stands in one dictionary of as many items.
START_TEST(dcp_that_takes_long_is_refused_soon)
{
	struct ckpt_bytes b = {0};
	struct timespec begin, end;

	ckpt_bytes_add(&b, "\x80\x02}q\0(", 6);
	for (int i = 0; i < 200000; i++)
		ckpt_bytes_add(&b, "K\1K\1", 4);
	text(&b, "fqn");
	text(&b, "w");
	ckpt_bytes_add(&b,
		       "u0cm\nn\n)\x81h\0bq\1"
		       "0",
		       14);
	begin_object(&b, "torch.distributed.checkpoint.metadata\nMetadata");
	text(&b, "storage_data");
	ckpt_bytes_text(&b, "}(");
	for (int i = 0; i < 200000; i++)
		ckpt_bytes_add(&b, "h\1h\1", 4);
	ckpt_bytes_text(&b, "uub.");
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, b.data, b.len);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	check_refused("s/.metadata", "storage_data", "MetadataIndex");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20);
	free(b.data);
}
END_TEST

// The bytes of a piece are a torch.save(); what is none stays as it is.
START_TEST(a_piece_of_dcp_is_resolved_or_refused)
{
	uint64_t strides[CKPT_ARRAY_DIMS_MAX], shape[] = {1, 2}, start[] = {0, 0};
	struct ckpt_catalog_array a = {.dtype = CKPT_DTYPE_F32, .ndim = 2, .shape = shape};
	struct ckpt_piece piece = {.start = start, .extent = shape, .codecs = {CKPT_PIECE_TORCH}}, was;
	struct ckpt_source source;
	bool big;

	put_tensor(&(struct tensor){"FloatStorage", "0", 2, 0, {1, 2}, {2, 1}});
	source = ckpt_bytes_source(&file);
	piece.bytes = source.bytes;
	was = piece;
	ck_ok(ckpt_piece_resolve(&source, &a, &piece, strides, &big));
	ck_assert(piece.codecs[0] == CKPT_PIECE_RAW && piece.bytes == 8 && !big && strides[0] == 2);
	ck_assert(!memcmp(file.data + piece.offset, "01234567", 8));
	piece = was;
	shape[0] = 2;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	shape[0] = 1;
	a.dtype = CKPT_DTYPE_I32;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	a.dtype = CKPT_DTYPE_F32;
	piece.bytes++;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	piece.bytes -= 2;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	ck_assert_int_eq(piece.codecs[0], CKPT_PIECE_TORCH);
}
END_TEST

// --- zarr -------------------------------------------------------------------------------------------------------------

static void put_text(const char *s)
{
	file.len = file.zeros = 0;
	ckpt_bytes_text(&file, s);
}

#define ZARR2(shape, chunks, dtype, more)                                                                              \
	"{\"zarr_format\":2,\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":" dtype                                \
	",\"compressor\":{\"id\":\"zstd\"},\"order\":\"C\",\"fill_value\":0" more "}"
#define ZARR3(shape, chunk, codecs)                                                                                    \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":" shape ",\"data_type\":\"int8\",\"fill_value\":7,"      \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"chunk_grid\":{\"name\":\"regular\",\"configuration\":"        \
	"{\"chunk_shape\":" chunk "}},\"codecs\":" codecs "}"
#define SHARDED(chunk)                                                                                                 \
	"[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" chunk                                    \
	",\"codecs\":[{\"name\":\"bytes\"}],"                                                                          \
	"\"index_codecs\":[{\"name\":\"bytes\"}]}}]"

START_TEST(zarr_that_breaks_a_rule_says_where)
{
	static const struct {
		const char *path, *json, *field;
	} wrong[] = {
		{"s/.zarray", "", "JSON"},
		{"s/.zarray", "[", "JSON"},
		{"s/.zarray", "{\"zarr_format\":2}", "shape"},
		{"s/.zarray", ZARR2("[-1,2]", "[1,2]", "\"<f4\"", ""), "shape"},
		{"s/.zarray", ZARR2("[4,4]", "[0,2]", "\"<f4\"", ""), "chunks"},
		{"s/.zarray", ZARR2("[4,4]", "[2]", "\"<f4\"", ""), "chunks"},
		{"s/.zarray", ZARR2("[4,4]", "[9223372036854775807,9]", "\"<f4\"", ""), "chunks"},
		{"s/.zarray", ZARR2("[9223372036854775807,9]", "[1,1]", "\"<f4\"", ""), "shape"},
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "4", ""), "dtype"},
		{"s/.zarray", ZARR2("[4]", "[2]", "\"<f4\"", ",\"shape\":[2]"), "JSON"},
		{"s/zarr.json", "{\"zarr_format\":3}", "zarr_format"},
		{"s/zarr.json", ZARR3("[4]", "[4,4]", "[{\"name\":\"bytes\"}]"), "chunk_grid"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "{}"), "codecs"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "[{}]"), "codecs"},
		{"s/zarr.json", ZARR3("[4]", "[4]", SHARDED("[3]")), "sharding_indexed.chunk_shape"},
		{"s/zarr.json", ZARR3("[4]", "[4]", SHARDED("[0]")), "sharding_indexed.chunk_shape"},
		{"s/zarr.json",
		 ZARR3("[4,4]", "[4,4]",
		       "[{\"name\":\"transpose\",\"configuration\":{\"order\":[0,0]}},{\"name\":\"bytes\"}]"),
		 "transpose.order"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_text(wrong[i].json);
		check_refused(wrong[i].path, wrong[i].field, "");
	}
	put_text("{\"zarr_format\":3,\"node_type\":\"group\"}");
	read_as("s/zarr.json");
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(zarr_lists_what_it_cannot_read_with_the_reason)
{
	static const struct {
		const char *path, *json, *why;
	} wrong[] = {
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "\"<U4\"", ""), "dtype"},
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "[[\"a\",\"<f4\"]]", ""), "no numbers"},
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "\"<f4\"", ",\"filters\":[{\"id\":\"delta\"}]"), "filters"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "[{\"name\":\"bytes\"},{\"name\":\"own\"}]"), "codec"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "[{\"name\":\"bytes\"}]"), "bytes as its shape"},
		{"s/zarr.json", ZARR3("[4]", "[4]", SHARDED("[2]")), "outside of its file"},
		{"s/zarr.json", ZARR3("[4]", "[400]", SHARDED("[2]")), "shorter than its index"},
		{"s/zarr.json", ZARR3("[4]", "[4294967296]", SHARDED("[1]")), "too many chunks"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_text(wrong[i].json);
		read_as(wrong[i].path);
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
	}
	put_text(ZARR2("[3,2]", "[2,2]", "\"<f4\"", ""));
	read_as("s/.zarray");
	ck_assert(!array_at(0).why && array_at(0).pieces == 2 && array_at(0).fill);
	ck_assert_str_eq(array_at(0).name, "s");
	read_as(".zarray");
	ck_assert_str_eq(array_at(0).name, ".");
}
END_TEST

// --- All --------------------------------------------------------------------------------------------------------------

static void put_sample(int which)
{
	static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";

	switch (which) {
	case 0:
		ckpt_sample_npy(&file, 1, "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3)}", 24);
		return;
	case 1:
		ckpt_sample_safetensors(&file, header, 8);
		return;
	case 2:
		put_tensor(&(struct tensor){"FloatStorage", "0", 2, 0, {1, 2}, {2, 1}});
		return;
	case 3:
		begin_gguf(3, 1, 0);
		gguf_tensor(16, 0, 0);
		return;
	case 4:
		put_dcp(&(struct slice){"__0_0.distcp", 0, 8, {0, 0}, {2, 3}});
		return;
	case 5:
		put_text(ZARR2("[3,2]", "[2,2]", "\"<f4\"", ""));
		return;
	case 6:
		put_text(ZARR3("[4]", "[4]", SHARDED("[2]")));
		return;
	default:
		put_text("{\"arrays\":[{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[2,2],"
			 "\"pieces\":[{\"file\":\"0\",\"flat\":[0,3]},{\"file\":\"0\",\"start\":[1,1],\"extent\":[1,1]}"
			 "]}]}");
	}
}

static const char *const paths[] = {"a.npy",       "a.safetensors", "a.pt",        "a.gguf",
				    "s/.metadata", "s/.zarray",     "s/zarr.json", "s/arrays.json"};

START_TEST(what_cannot_be_read_is_told)
{
	for (int which = 0; which < (int)ARRAY_LEN(paths); which++) {
		put_sample(which);
		for (file.fails_at = 1; ckpt_catalog_of_bytes(&file, paths[which], &c); file.fails_at++)
			ck_error(ckpt_catalog_of_bytes(&file, paths[which], &c), EIO);
		ck_assert_uint_gt(file.fails_at, 1);
		ck_assert_uint_eq(ckpt_catalog_count(c), 1);
		ckpt_catalog_free(TAKE_PTR(c));
		file.fails_at = 0;
	}
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	for (int which = 0; which < (int)ARRAY_LEN(paths); which++) {
		put_sample(which);
		for (uint64_t n = 1;; n++) {
			int rc;

			ckpt_allocfault_begin(n, false);
			rc = ckpt_catalog_of_bytes(&file, paths[which], &c);
			if (ckpt_allocfault_end() < n) {
				ck_ok(rc);
				ck_assert_uint_eq(ckpt_catalog_count(c), 1);
				ckpt_catalog_free(TAKE_PTR(c));
				break;
			}
			ck_error(rc, ENOMEM);
		}
	}
}
END_TEST

START_TEST(no_file_that_is_cut_off_ends_the_reader)
{
	for (int which = 0; which < (int)ARRAY_LEN(paths); which++) {
		put_sample(which);
		ckpt_bytes_fill(&file, (size_t)file.zeros, 1);
		for (file.zeros = 0; file.len; file.len--)
			read_as(paths[which]);
	}
}
END_TEST

// A file that is refused leaves no trace but its fault, also where it was refused in its midst.
START_TEST(files_that_are_refused_take_nothing_from_the_others)
{
	size_t len;

	begin_gguf(3, 2, 0);
	gguf_tensor(16, 0, 0);
	len = file.len;
	gguf_tensor(16, 0, 1 << 20);
	ck_assert_uint_gt(file.len, len);
	check_refused("a.gguf", "offset", "w lies outside");
}
END_TEST

START_TEST(an_array_of_too_many_bytes_is_listed_with_the_reason)
{
	static const struct {
		uint64_t elements;
		enum ckpt_dtype dtype;
		bool fits;
	} rows[] = {
		{INT64_MAX / 2, CKPT_DTYPE_U8, true},        {(uint64_t)INT64_MAX / 2 + 1, CKPT_DTYPE_U8, false},
		{UINT64_C(1) << 58, CKPT_DTYPE_C128, false}, {(UINT64_C(1) << 58) - 1, CKPT_DTYPE_C128, true},
		{INT64_MAX, CKPT_DTYPE_C128, false},         {INT64_MAX, CKPT_DTYPE_NONE, true},
	};
	struct ckpt_catalog_reading reading = {.path = "f", .base = "f"};

	ck_ok(ckpt_catalog_new(&c));
	reading.catalog = c;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct ckpt_catalog_entry e = {.name = "w",
						     .name_len = 1,
						     .format = "test",
						     .dtype = rows[i].dtype,
						     .ndim = 1,
						     .shape = &rows[i].elements};

		ck_ok(ckpt_catalog_add(&reading, &e));
		ck_assert_msg(!array_at(i).why == rows[i].fits, "row %zu", i);
	}
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(codecs_have_names)
{
	for (int i = 0; i < CKPT_PIECE_CODECS; i++)
		ck_assert_str_ne(ckpt_piece_codec_name(i), "?");
	ck_assert_str_eq(ckpt_piece_codec_name(CKPT_PIECE_CODECS), "?");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog");
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
	tcase_add_test(t, members_of_npz_that_are_compressed_are_pieces_or_have_a_reason);
	tcase_add_test(t, gguf_that_breaks_a_rule_says_where);
	tcase_add_test(t, a_long_header_of_gguf_is_refused_soon);
	tcase_add_test(t, dcp_lists_what_it_cannot_read_with_the_reason);
	tcase_add_test(t, dcp_that_takes_long_is_refused_soon);
	tcase_add_test(t, a_piece_of_dcp_is_resolved_or_refused);
	tcase_add_test(t, zarr_that_breaks_a_rule_says_where);
	tcase_add_test(t, zarr_lists_what_it_cannot_read_with_the_reason);
	tcase_add_test(t, what_cannot_be_read_is_told);
	tcase_add_test(t, without_memory_nothing_is_said);
	tcase_add_test(t, no_file_that_is_cut_off_ends_the_reader);
	tcase_add_test(t, files_that_are_refused_take_nothing_from_the_others);
	tcase_add_test(t, an_array_of_too_many_bytes_is_listed_with_the_reason);
	tcase_add_test(t, codecs_have_names);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
