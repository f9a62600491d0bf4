// The older backend of Megatron-core, zarr: its locks are no arrays, and a chunk that is missing is a gap. What its code writes with the
// library zarr is compared in tests/interop/test_megatron_zarr.py.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

enum { CONFIG, ARRAY, CHUNK, LOCK, LOCK_OF_CHUNK, FILES };

#define JSON(fill, compressor)                                                                                         \
	"{\"zarr_format\":2,\"shape\":[4],\"chunks\":[2],\"dtype\":\"bfloat16\",\"fill_value\":" fill                  \
	",\"compressor\":" compressor ",\"filters\":null,\"order\":\"C\"}"
#define BACKEND(name) "{\"sharded_backend\": \"" name "\", \"sharded_backend_version\": 1}"

static struct ckpt_sample_file files[FILES] = {
	{.path = "i/metadata.json"},  {.path = "i/w/.zarray"}, {.path = "i/w/0"},
	{.path = "i/w.sync/.zarray"}, {.path = "i/w.sync/0"},
};
static struct ckpt_catalog *c;

static void put(int which, const char *text)
{
	files[which].bytes.len = 0;
	ckpt_bytes_text(&files[which].bytes, text);
}

static void setup(void)
{
	put(CONFIG, BACKEND("zarr"));
	put(ARRAY, JSON("null", "null"));
	put(CHUNK, "abcd");
	put(LOCK, "");
	put(LOCK_OF_CHUNK, "");
}

static void teardown(void)
{
	for (int i = 0; i < FILES; i++) {
		free(files[i].bytes.data);
		files[i].bytes = (struct ckpt_bytes){0};
	}
	ckpt_catalog_free(TAKE_PTR(c));
}

static void read_all(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_files(files, FILES, NULL, &c));
	ckpt_walk_catalog_of(c, files, FILES);
}

static struct ckpt_catalog_array only_array(void)
{
	struct ckpt_catalog_array a;

	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ckpt_catalog_get(c, 0, &a);
	return a;
}

START_TEST(a_missing_chunk_is_a_gap)
{
	static const struct {
		const char *config, *array;
		bool filled;
	} samples[] = {
		{BACKEND("zarr"), JSON("null", "null"), false},
		{BACKEND("torch_dist"), JSON("null", "null"), true},
		{"{\"sharded_backend\": 1}", JSON("null", "null"), true},
		{"no JSON", JSON("null", "null"), true},
		{BACKEND("zarr"), JSON("0", "null"), true},
		{BACKEND("zarr"), JSON("null", "{\"id\":\"zstd\"}"), true},
	};

	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		put(CONFIG, samples[i].config);
		put(ARRAY, samples[i].array);
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		ck_assert_msg(!only_array().fill == !samples[i].filled, "%zu", i);
		ck_assert(only_array().pieces == 1 && !only_array().why);
	}
	put(CONFIG, BACKEND("zarr"));
	files[CONFIG].bytes.zeros = 1 << 20;
	put(ARRAY, JSON("null", "null"));
	read_all();
	ck_assert(only_array().fill);
	files[CONFIG].bytes.zeros = 0;
}
END_TEST

START_TEST(a_lock_is_no_array)
{
	struct ckpt_catalog_fault f;

	read_all();
	ck_assert_str_eq(only_array().name, "i/w");
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	// Without the array that it is of, or with bytes, it is a file that breaks rules.
	put(LOCK, "x");
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	put(LOCK, "");
	files[ARRAY].path = "i/v/.zarray";
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_str_eq(f.file, files[LOCK].path);
	files[ARRAY].path = "i/w/.zarray";
}
END_TEST

START_TEST(without_memory_and_bytes_nothing_is_said)
{
	for (uint64_t n = 1;; n++) {
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_catalog_of_files(files, FILES, NULL, &c);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			ckpt_catalog_free(TAKE_PTR(c));
			break;
		}
		ck_error(rc, ENOMEM);
	}
	files[CONFIG].bytes.fails_at = 1;
	ck_error(ckpt_catalog_of_files(files, FILES, files[ARRAY].path, &c), EIO);
	files[CONFIG].bytes.fails_at = 0;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_megatron");
	TCase *t = tcase_create("catalog_megatron");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_missing_chunk_is_a_gap);
	tcase_add_test(t, a_lock_is_no_array);
	tcase_add_test(t, without_memory_and_bytes_nothing_is_said);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
