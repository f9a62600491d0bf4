// MessagePack, and the files of Orbax and eFormer that say which arrays a tree has: each field at its extremes.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <time.h>

enum { TREE, ARRAY, FILES };

static struct ckpt_sample_file files[FILES] = {{.path = "s/_METADATA"}, {.path = "s/a.w/.zarray"}};
static struct ckpt_catalog *c;

static void teardown(void)
{
	for (int i = 0; i < FILES; i++) {
		free(files[i].bytes.data);
		files[i].bytes = (struct ckpt_bytes){0};
	}
	ckpt_catalog_free(TAKE_PTR(c));
}

static void put(int which, const char *path, const void *bytes, size_t len)
{
	files[which].path = path;
	files[which].bytes.len = files[which].bytes.zeros = 0;
	ckpt_bytes_add(&files[which].bytes, bytes, len);
}

static void put_text(const char *path, const char *text)
{
	put(TREE, path, text, strlen(text));
}

static void read_all(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_files(files, files[ARRAY].bytes.len ? FILES : ARRAY, NULL, &c));
	ckpt_walk_catalog_of(c, files, FILES);
}

static struct ckpt_catalog_array array_at(size_t i)
{
	struct ckpt_catalog_array a;

	ck_assert_uint_lt(i, ckpt_catalog_count(c));
	ckpt_catalog_get(c, i, &a);
	return a;
}

static void check_fault(size_t i, const char *field, const char *word)
{
	struct ckpt_catalog_fault f;

	ck_assert_uint_lt(i, ckpt_catalog_faults(c));
	ckpt_catalog_fault(c, i, &f);
	ck_assert_str_eq(f.file, files[TREE].path);
	ck_assert_msg(!strcmp(f.field, field) && strstr(f.reason, word), "%s: %s", f.field, f.reason);
}

// --- MessagePack ------------------------------------------------------------------------------------------------------

// {"w": extension of this payload}
static void put_extension(uint8_t type, const void *payload, size_t len)
{
	struct ckpt_bytes *b = &files[TREE].bytes;

	put(TREE, "m.msgpack", "\x81\xa1w\xc7", 4);
	ckpt_bytes_number(b, len, 1);
	ckpt_bytes_number(b, type, 1);
	ckpt_bytes_add(b, payload, len);
}

#define EXTENSION(type, payload) put_extension(type, payload, sizeof(payload) - 1)

START_TEST(arrays_of_flax_lie_in_extensions)
{
	struct ckpt_piece p;

	EXTENSION(1, "\x93\x92\2\1\xa5int16\xc4\4abcd");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert(!array_at(0).why && array_at(0).dtype == CKPT_DTYPE_I16 && array_at(0).ndim == 2);
	ck_assert_str_eq(array_at(0).name, "w");
	ckpt_catalog_piece(c, 0, 0, &p);
	ck_assert(!memcmp(files[TREE].bytes.data + p.offset, "abcd", 4) && p.bytes == 4);
	EXTENSION(3, "\x93\x90\xa5int32\xc4\4abcd");
	read_all();
	ck_assert(!array_at(0).why && array_at(0).ndim == 0);
	EXTENSION(2, "\x92\1\2"); // a complex number is no array
	read_all();
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
	put(TREE, "checkpoint_7",
	    "\x82\xa1"
	    "a\x92\xc0\x81\x01\xd7\1\x93\x91\2\xa3"
	    "i16\xc0\xa1z\xc3",
	    20);
	read_all();
	ck_assert_str_eq(array_at(0).name, "a.1.1");
	ck_assert(array_at(0).why && strstr(array_at(0).why, "flax"));
}
END_TEST

START_TEST(an_extension_that_is_no_array_is_listed_with_the_reason)
{
	EXTENSION(1, "");
	read_all();
	check_fault(0, "msgpack", "ends in a value");
	EXTENSION(1, "\xc0");
	read_all();
	ck_assert(strstr(array_at(0).why, "flax"));
	EXTENSION(1, "\x93\x91\xff\xa5int32\xc4\4abcd");
	read_all();
	ck_assert(strstr(array_at(0).why, "flax"));
	EXTENSION(1, "\x93\x91\2\xa5int32\xc4\4abcd");
	read_all();
	ck_assert(strstr(array_at(0).why, "bytes as its shape"));
	EXTENSION(1, "\x93\x92\xcf\x7f\xff\xff\xff\xff\xff\xff\xff\2\xa5int32\xc4\4abcd");
	read_all();
	check_fault(0, "shape", "more elements");
	EXTENSION(1, "\x93\x91\1\xa5"
		     "ihat4\xc4\4abcd");
	read_all();
	ck_assert(strstr(array_at(0).why, "dtype"));
	EXTENSION(1, "\x93\x91\1\xa5int32\xc4\5abcd");
	read_all();
	check_fault(0, "msgpack", "as long as it says");
	EXTENSION(1, "\x93\x91\1\xa5int32\xc6\xff\xff\xff\xff"
		     "abcd");
	read_all();
	check_fault(0, "msgpack", "as long as it says");
}
END_TEST

#define CHUNKED(count, shape, chunks)                                                                                  \
	"\x83\xb9__msgpack_chunked_array__\xc3\xa5shape" shape "\xa6"                                                  \
	"chunks" chunks
#define CHUNK(key, bytes) "\xa1" key "\xc7\x0c\1\x93\x91\2\xa4int8\xc4\2" bytes

static void read_chunked(const char *bytes, size_t len)
{
	put(TREE, "m.msgpack", "\x81\xa1w", 3);
	ckpt_bytes_add(&files[TREE].bytes, bytes, len);
	read_all();
}

START_TEST(an_array_in_chunks_is_one_array)
{
	static const char good[] = CHUNKED(2,
					   "\x82\xa1"
					   "0\2\xa1"
					   "1\2",
					   "\x82" CHUNK("0", "ab") CHUNK("1", "cd"));
	static const char few[] = CHUNKED(2,
					  "\x82\xa1"
					  "0\2\xa1"
					  "1\2",
					  "\x81" CHUNK("0", "ab"));
	static const char many[] = CHUNKED(2,
					   "\x81\xa1"
					   "0\3",
					   "\x82" CHUNK("0", "ab") CHUNK("1", "cd"));
	static const char none[] = CHUNKED(2,
					   "\x81\xa1"
					   "0\xff",
					   "\x81" CHUNK("0", "ab"));
	static const char odd[] = CHUNKED(2,
					  "\x81\xa1"
					  "0\2",
					  "\x81\xa1"
					  "0\xc0");

	read_chunked(good, sizeof(good) - 1);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert(!array_at(0).why && array_at(0).ndim == 2 && array_at(0).pieces == 2);
	read_chunked(few, sizeof(few) - 1);
	ck_assert(strstr(array_at(0).why, "chunks"));
	read_chunked(many, sizeof(many) - 1);
	ck_assert(strstr(array_at(0).why, "chunks"));
	read_chunked(none, sizeof(none) - 1);
	check_fault(0, "msgpack", "shape");
	read_chunked(odd, sizeof(odd) - 1);
	check_fault(0, "msgpack", "chunk is no array");
}
END_TEST

START_TEST(msgpack_that_breaks_a_rule_says_where)
{
	struct ckpt_bytes *b = &files[TREE].bytes;
	struct timespec begin, end;

	put(TREE, "m.msgpack", "\x81\xa1w\xc1", 4);
	read_all();
	check_fault(0, "msgpack", "no value begins so");
	put(TREE, "m.msgpack", "\x81\xc0\xc0", 3);
	read_all();
	check_fault(0, "msgpack", "key");
	put(TREE, "m.msgpack", "\x81\xa1w\xc0\xc0", 5);
	read_all();
	check_fault(0, "msgpack", "behind");
	put(TREE, "m.msgpack", "\xdf\xff\xff\xff\xff\xa1w", 7);
	read_all();
	check_fault(0, "msgpack", "ends");
	put(TREE, "m.msgpack", "\x81\xdb\xff\xff\xff\xff", 6);
	read_all();
	check_fault(0, "msgpack", "key");
	put(TREE, "m.msgpack", "\x81\xa1w\xc6\xff\xff\xff\xff", 8);
	read_all();
	check_fault(0, "msgpack", "ends");
	put(TREE, "m.msgpack", "\x81\xa1w", 3);
	for (int i = 0; i < 100000; i++)
		ckpt_bytes_text(b, "\x91");
	read_all();
	check_fault(0, "msgpack", "deep");
	// A list of four billion small numbers.
	clock_gettime(CLOCK_MONOTONIC, &begin);
	put(TREE, "m.msgpack", "\x81\xa1w\xdd\xff\xff\xff\xff", 8);
	b->zeros_at = b->len;
	b->zeros = UINT64_C(1) << 33;
	read_all();
	check_fault(0, "msgpack", "too many values");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20);
}
END_TEST

// --- Orbax and eFormer ------------------------------------------------------------------------------------------------

static void put_array(void)
{
	static const char json[] =
		"{\"zarr_format\":2,\"shape\":[4],\"chunks\":[2],\"dtype\":\"|i1\",\"compressor\":null,"
		"\"order\":\"C\",\"fill_value\":0}";

	put(ARRAY, "s/a.w/.zarray", json, sizeof(json) - 1);
}

#define METADATA(leaves) "{\"tree_metadata\":{" leaves "}}"
#define LEAF(keys, type) "\"x\":{\"key_metadata\":" keys ",\"value_metadata\":{\"value_type\":\"" type "\"}}"

START_TEST(names_that_orbax_promises_are_there_or_told)
{
	put_array();
	put_text("s/_METADATA", METADATA(LEAF("[{\"key\":\"a\"},{\"key\":\"w\"}]", "jax.Array")));
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	put_text("s/_METADATA", METADATA(LEAF("[{\"key\":\"a\"},{\"key\":\"x\"}]", "np.ndarray")));
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	check_fault(0, "Missing", "a.x");
	put_text("s/_METADATA", METADATA(LEAF("[{\"key\":\"a\"},{\"key\":\"x\"}]", "None")));
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(arrays_that_eformer_promises_are_there_or_told)
{
	put_array();
	put_text("s/tensorstore_index.json",
		 "{\"format\":\"tensorstore\",\"prefixes\":{\"m\":[{\"path\":\"a.w\",\"shape\":[4]}]}}");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	put_text("s/tensorstore_index.json", "{\"format\":\"tensorstore\",\"arrays\":[{\"path\":\"a.w\",\"shape\":[5]},"
					     "{\"path\":\"../s/a.w\",\"shape\":[]}]}");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 2);
	check_fault(0, "shape", "a.w");
	check_fault(1, "Missing", "../s/a.w");
	put_text("s/m_structure.json", "{\"format\":\"pytree-structure\",\"array_relpaths\":[\"a.w\",\"b\"],"
				       "\"leaf_keys_full\":[\"m.a\",\"m.n\"],\"arr_mask\":[true,false]}");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	check_fault(0, "Missing", "b");
	ck_assert_str_eq(array_at(0).name, "m.n");
	ck_assert(strstr(array_at(0).why, "value of the program"));
	put_text("s/protein_structure.json", "no JSON");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(a_tree_that_breaks_a_rule_says_where)
{
	static const struct {
		const char *path, *json, *field;
	} wrong[] = {
		{"s/_METADATA", "", "JSON"},
		{"s/_METADATA", "{}", "tree_metadata"},
		{"s/_METADATA", METADATA("\"x\":1"), "tree_metadata"},
		{"s/_METADATA", METADATA("\"x\":{\"key_metadata\":[]}"), "tree_metadata"},
		{"s/_METADATA", METADATA(LEAF("[1]", "jax.Array")), "key_metadata"},
		{"s/_METADATA", METADATA(LEAF("[{\"key\":1}]", "jax.Array")), "key_metadata"},
		{"s/tensorstore_index.json", "{}", "format"},
		{"s/tensorstore_index.json", "{\"format\":\"zip\"}", "format"},
		{"s/tensorstore_index.json", "{\"format\":\"tensorstore\",\"prefixes\":[]}", "prefixes"},
		{"s/tensorstore_index.json", "{\"format\":\"tensorstore\",\"prefixes\":{\"m\":1}}", "prefixes"},
		{"s/tensorstore_index.json", "{\"format\":\"tensorstore\",\"arrays\":[{\"path\":\"a\"}]}", "arrays"},
		{"s/tensorstore_index.json",
		 "{\"format\":\"tensorstore\",\"arrays\":[{\"path\":\"a\",\"shape\":[-1]}]}", "arrays"},
		{"s/m_structure.json", "{\"format\":\"pytree-structure\"}", "array_relpaths"},
		{"s/m_structure.json", "{\"format\":\"pytree-structure\",\"array_relpaths\":[1]}", "array_relpaths"},
		{"s/m_structure.json",
		 "{\"format\":\"pytree-structure\",\"array_relpaths\":[],\"leaf_keys_full\":[1],\"arr_mask\":[]}",
		 "leaf_keys_full"},
		{"s/m_structure.json",
		 "{\"format\":\"pytree-structure\",\"array_relpaths\":[],\"leaf_keys_full\":[1],\"arr_mask\":[false]}",
		 "leaf_keys_full"},
	};

	put_array();
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_text(wrong[i].path, wrong[i].json);
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
		check_fault(0, wrong[i].field, "");
		ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	}
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	static const char *const paths[] = {"s/_METADATA", "s/tensorstore_index.json", "m.msgpack"};

	put_array();
	for (int which = 0; which < 3; which++) {
		if (which == 0)
			put_text(paths[0], METADATA(LEAF("[{\"key\":\"b\"}]", "jax.Array")));
		else if (which == 1)
			put_text(paths[1], "{\"format\":\"tensorstore\",\"arrays\":[{\"path\":\"b\",\"shape\":[5]}]}");
		else
			EXTENSION(1, "\x93\x92\2\1\xa5int16\xc4\4abcd");
		for (uint64_t n = 1;; n++) {
			int rc;

			ckpt_allocfault_begin(n, false);
			rc = ckpt_catalog_of_files(files, FILES, NULL, &c);
			if (ckpt_allocfault_end() < n) {
				ck_ok(rc);
				ckpt_catalog_free(TAKE_PTR(c));
				break;
			}
			ck_assert_msg(rc == -ENOMEM, "%s, allocation %llu", paths[which], (unsigned long long)n);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_tree");
	TCase *t = tcase_create("catalog_tree");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, arrays_of_flax_lie_in_extensions);
	tcase_add_test(t, an_extension_that_is_no_array_is_listed_with_the_reason);
	tcase_add_test(t, an_array_in_chunks_is_one_array);
	tcase_add_test(t, msgpack_that_breaks_a_rule_says_where);
	tcase_add_test(t, names_that_orbax_promises_are_there_or_told);
	tcase_add_test(t, arrays_that_eformer_promises_are_there_or_told);
	tcase_add_test(t, a_tree_that_breaks_a_rule_says_where);
	tcase_add_test(t, without_memory_nothing_is_said);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
