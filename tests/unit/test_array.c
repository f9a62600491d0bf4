// What arrays are in .npy files, and in what is none of the formats; dtypes; and failures. The other formats have tests of
// their own.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"

static struct ckpt_bytes file;

static void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
}

static bool has_arrays(const char *name)
{
	return ckpt_bytes_has_arrays(&file, name);
}

// --- dtypes -------------------------------------------------------------------------------------------------------------

START_TEST(dtypes_have_the_numbers_of_the_format)
{
	static const struct {
		const char *name;
		unsigned bits;
	} want[] = {{"?", 0},    {"bool", 8},  {"i8", 8},     {"i16", 16},       {"i32", 32},       {"i64", 64},
		    {"u8", 8},   {"u16", 16},  {"u32", 32},   {"u64", 64},       {"f16", 16},       {"f32", 32},
		    {"f64", 64}, {"bf16", 16}, {"f8e4m3", 8}, {"f8e5m2", 8},     {"c64", 64},       {"c128", 128},
		    {"i4", 4},   {"u4", 4},    {"f4e2m1", 4}, {"f8e4m3fnuz", 8}, {"f8e5m2fnuz", 8}, {"f8e8m0", 8}};

	ck_assert_uint_eq(ARRAY_LEN(want), CKPT_DTYPE_COUNT);
	for (unsigned i = 0; i < ARRAY_LEN(want); i++) {
		ck_assert_str_eq(ckpt_dtype_name(i), want[i].name);
		ck_assert_uint_eq(ckpt_dtype_bits(i), want[i].bits);
		ck_assert_uint_eq(ckpt_dtype_width(i), want[i].bits == 4 ? 1 : want[i].bits / 8);
	}
	ck_assert_str_eq(ckpt_dtype_name(CKPT_DTYPE_COUNT), "?");
	ck_assert_uint_eq(ckpt_dtype_bits(CKPT_DTYPE_COUNT), 0);
}
END_TEST

// --- npy ----------------------------------------------------------------------------------------------------------------

static void check_npy(const char *header, uint64_t data, enum ckpt_dtype dtype, unsigned ndim)
{
	for (int version = 1; version <= 3; version++)
		for (int off = -1; off <= 1; off++) {
			struct ckpt_arrays *a;

			if (!data && off < 0)
				continue;
			ckpt_sample_npy(&file, version, header, data + (uint64_t)off);
			a = ckpt_bytes_read(&file, "some/where/weights.npy");
			ck_assert_msg(!a == !!off, "version %d: %s and %+d bytes", version, header, off);
			if (!a)
				continue;
			ckpt_check_array(a, 0, "weights", dtype, file.len, data);
			ck_assert_uint_eq(ckpt_array_at(a, 0).ndim, ndim);
			ck_assert_int_eq(ckpt_array_at(a, 0).column_major, strstr(header, "True") != NULL);
			ckpt_arrays_free(a);
		}
}

START_TEST(npy_tells_its_array)
{
	check_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n", 24, CKPT_DTYPE_F32, 2);
	check_npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3)}\n", 48, CKPT_DTYPE_F64, 2);
	check_npy("{\"shape\":(5,),\"fortran_order\":False,\"descr\":\"|b1\"}", 5, CKPT_DTYPE_BOOL, 1);
	check_npy("{ 'descr' : '<i8' , 'fortran_order' : False , 'shape' : ( 2L , 2L , ) , } \n\n", 32, CKPT_DTYPE_I64,
		  2);
	check_npy("{'descr': '<c16', 'fortran_order': False, 'shape': (), }\n", 16, CKPT_DTYPE_C128, 0);
	check_npy("{'descr': '>i1', 'fortran_order': False, 'shape': (4,), }\n", 4, CKPT_DTYPE_I8, 1);
	check_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 7), }\n", 0, CKPT_DTYPE_U8, 2);
	// What has a size, and no number of ours.
	check_npy("{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }\n", 16, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }\n", 24, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '|S10', 'fortran_order': False, 'shape': (2,), }\n", 20, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }\n", 6, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '<f16', 'fortran_order': False, 'shape': (3,), }\n", 48, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (3,), }\n", 24, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '<m8', 'fortran_order': False, 'shape': (3,), }\n", 24, CKPT_DTYPE_NONE, 1);
	check_npy("{'descr': '<U0', 'fortran_order': False, 'shape': (3,), }\n", 0, CKPT_DTYPE_NONE, 1);
}
END_TEST

#define NPY(descr, shape) "{'descr': " descr ", 'fortran_order': False, 'shape': " shape ", }\n"

START_TEST(npy_that_breaks_a_rule_has_no_array)
{
	static const struct {
		const char *header;
		uint64_t data;
	} broken[] = {
		{NPY("'|O'", "(8,)"), 8}, // a pickle
		{NPY("'O8'", "(1,)"), 8},
		{NPY("'|O8'", "(1,)"), 8},
		{NPY("[('a', '<f4')]", "(2,)"), 8},
		{NPY("[('a', '|O')]", "(2,)"), 8},
		{NPY("('<f4', (2,))", "(1,)"), 8},
		{NPY("'f4'", "(2,)"), 8},
		{NPY("'=f4'", "(2,)"), 8},
		{NPY("'<f4 '", "(2,)"), 8},
		{NPY("'<f4[ns]'", "(2,)"), 8},
		{NPY("'<M8[ns'", "(1,)"), 8},
		{NPY("'<M4'", "(2,)"), 8},
		{NPY("'|f4'", "(2,)"), 8},
		{NPY("'<f3'", "(1,)"), 3},
		{NPY("'<f04'", "(2,)"), 8},
		{NPY("'<f'", "(2,)"), 8},
		{NPY("'<'", "(2,)"), 8},
		{NPY("''", "(2,)"), 8},
		{NPY("'<i16'", "(1,)"), 16},
		{NPY("'<x8'", "(1,)"), 8},
		{NPY("'\\x3cf4'", "(2,)"), 8},
		{NPY("'<f4\"", "(2,)"), 8},
		{NPY("'<U2147483648'", "(0,)"), 0},
		{NPY("'<U4611686018427387905'", "(1,)"), 4}, // times 4: 4
		{NPY("'|S18446744073709551624'", "(1,)"), 8},
		{NPY("'<f4'", "(2)"), 8},
		{NPY("'<f4'", "2"), 8},
		{NPY("'<f4'", "[2]"), 8},
		{NPY("'<f4'", "(2,,)"), 8},
		{NPY("'<f4'", "(,)"), 4},
		{NPY("'<f4'", "(,2)"), 8},
		{NPY("'<f4'", "(1 2)"), 8},
		{NPY("'<f4'", "(-2,)"), 8},
		{NPY("'<f4'", "(+2,)"), 8},
		{NPY("'<f4'", "(0x2,)"), 8},
		{NPY("'<f4'", "(02,)"), 8},
		{NPY("'<f4'", "(2.0,)"), 8},
		{NPY("'<f4'", "(1+1,)"), 8},
		{NPY("'<f4'", "(2,"), 8},
		{NPY("'<f4'", "((2,),)"), 8},
		{NPY("'<f4'", "(4294967296, 4294967296)"), 0}, // the product is 0 in 64 bits
		{NPY("'<f4'", "(0, 4294967296, 4294967296)"), 0},
		{NPY("'<f4'", "(9223372036854775808, 0)"), 0},
		{NPY("'<f4'", "(4611686018427387906,)"), 8}, // times 4: 8
		{NPY("'<f4'", "(18446744073709551618,)"), 8},
		{NPY("'|u1'", "(8,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), 8}, // 33
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }x", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n{}", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), ,}", 8},
		{"{'descr': '<f4', 'fortran_order': False 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': Falsey, 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': False}", 4},
		{"{'fortran_order': False, 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'fortran_order': False, 'shape': (2,)}", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", 8},
		{"{'descr': '<f4', 'fortran_order': False, 'shapes': (2,)}", 8},
		{"{descr: '<f4', 'fortran_order': False, 'shape': (2,)}", 8},
		{"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", 8},
		{"('descr', '<f4')", 8},
		{"dict(descr='<f4', fortran_order=False, shape=(2,))", 8},
		{"{", 8},
		{"", 8},
	};

	for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
		ckpt_sample_npy(&file, 1, broken[i].header, broken[i].data);
		ck_assert_msg(!has_arrays("a.npy"), "%s", broken[i].header);
	}
	ckpt_sample_npy(&file, 1, NPY("'|u1'", "(8,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), 8);
	ck_assert(has_arrays("a.npy"));
}
END_TEST

START_TEST(npy_of_other_versions_is_not_known)
{
	static const uint16_t versions[] = {0, 4, 0x101, 0x102, 0x103, 255};

	for (size_t i = 0; i < ARRAY_LEN(versions); i++)
		for (int form = 1; form <= 2; form++) { // of the length of the header
			ckpt_sample_npy(&file, form, NPY("'<f4'", "(2,)"), 8);
			ckpt_put16(file.data + 6, versions[i]);
			ck_assert_msg(!has_arrays("a.npy"), "%d", versions[i]);
		}
	ckpt_sample_npy(&file, 2, NPY("'<f4'", "(2,)"), 8);
	file.data[0] = 'x';
	ck_assert(!has_arrays("a.npy"));
}
END_TEST

START_TEST(a_long_header_of_npy_is_not_read)
{
	for (size_t len = CKPT_ARRAY_NPY_HEADER_MAX; len <= CKPT_ARRAY_NPY_HEADER_MAX + 1; len++) {
		CLEANUP_FREE char *header = malloc(len + 1);

		memset(header, ' ', len);
		header[len] = '\0';
		memcpy(header, NPY("'<f4'", "(2,)"), strlen(NPY("'<f4'", "(2,)")));
		ckpt_sample_npy(&file, 2, header, 8);
		ck_assert_int_eq(has_arrays("a.npy"), len == CKPT_ARRAY_NPY_HEADER_MAX);
		ck_assert_int_eq(file.read_end > 12, len == CKPT_ARRAY_NPY_HEADER_MAX);
	}
	for (int version = 1; version < 3; version++) {
		ckpt_sample_npy(&file, version, NPY("'<f4'", "(2,)"), 8);
		memset(file.data + 8, 0xff, version == 1 ? 2 : 4);
		ck_assert(!has_arrays("a.npy"));
		ck_assert_uint_le(file.read_end, 12);
	}
}
END_TEST

START_TEST(the_array_of_npy_is_called_like_the_file)
{
	static const char *const names[][2] = {
		{"a.npy", "a"}, {"x/y.z.npy", "y.z"}, {".npy", ""},   {"", ""},
		{"a", "a"},     {"x.npy/", ""},       {"npy", "npy"}, {"a.npy.part", "a.npy.part"}};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_arrays *a;

		ckpt_sample_npy(&file, 1, NPY("'<f4'", "(2,)"), 8);
		a = ckpt_bytes_read(&file, names[i][0]);
		ck_assert_ptr_nonnull(a);
		ckpt_check_array(a, 0, names[i][1], CKPT_DTYPE_F32, file.len, 8);
		ckpt_arrays_free(a);
	}
}
END_TEST

// --- All ----------------------------------------------------------------------------------------------------------------

static const char tensors[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
			      "\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}";

static void sample(int which)
{
	if (which)
		ckpt_sample_npy(&file, 2, NPY("'<f4'", "(2, 2)"), 16);
	else
		ckpt_sample_safetensors(&file, tensors, 16);
}

START_TEST(what_has_no_known_format_has_no_arrays)
{
	static const char *const texts[] = {"",
					    "{",
					    "12345678",
					    "12345678{",
					    "some words, more than nine of them",
					    "\x80\4]q.....................",
					    "\x89HDF\r\n\x1a\n......................",
					    "PK\3\4",
					    "PK\5\6PK\5\6PK\5\6",
					    "\x93NUMPY",
					    "\x93NUMPY\1"};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		file.len = 0;
		ckpt_bytes_text(&file, texts[i]);
		ck_assert_msg(!has_arrays("a.safetensors"), "%s", texts[i]);
	}
}
END_TEST

// The name is no reason to believe anything.
START_TEST(the_content_says_which_format_it_is)
{
	sample(0);
	ck_assert(has_arrays("a.npy"));
	sample(1);
	ck_assert(has_arrays("a.safetensors"));
}
END_TEST

START_TEST(no_file_that_is_cut_off_has_arrays)
{
	for (int which = 0; which < 2; which++) {
		sample(which);
		ckpt_bytes_fill(&file, 16, 1);
		file.zeros = 0;
		ck_assert(has_arrays("a"));
		while (file.len--)
			ck_assert_msg(!has_arrays("a"), "%zu bytes of %d", file.len, which);
	}
}
END_TEST

START_TEST(what_cannot_be_read_is_told)
{
	for (int which = 0; which < 2; which++) {
		struct ckpt_arrays *a = NULL;

		sample(which);
		for (file.fails_at = 1; ckpt_bytes_arrays(&file, "a", &a); file.fails_at++) {
			ck_error(ckpt_bytes_arrays(&file, "a", &a), EIO);
			ck_assert_ptr_null(a);
		}
		ck_assert_uint_gt(file.fails_at, 2);
		ck_assert_uint_eq(file.reads, file.fails_at - 1);
		ckpt_arrays_free(a);
		file.fails_at = 0;
	}
}
END_TEST

static int refuse(void *arg __attribute__((unused)), uint64_t offset __attribute__((unused)),
		  void *buf __attribute__((unused)), size_t len __attribute__((unused)))
{
	return -EINVAL;
}

START_TEST(a_source_that_refuses_is_no_file_without_arrays)
{
	const struct ckpt_source s = {.bytes = 100, .read = refuse};
	struct ckpt_arrays *a;

	ck_error(ckpt_arrays_read("a", &s, &a), EIO);
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	for (int which = 0; which < 2; which++) {
		uint64_t n = 1;

		sample(which);
		for (;; n++) {
			struct ckpt_arrays *a = NULL;
			int rc;

			ckpt_allocfault_begin(n, false);
			rc = ckpt_bytes_arrays(&file, "a", &a);
			if (ckpt_allocfault_end() < n) {
				ck_ok(rc);
				ck_assert_uint_eq(ckpt_arrays_count(a), which ? 1 : 2);
				ckpt_arrays_free(a);
				break;
			}
			ck_error(rc, ENOMEM);
		}
		ck_assert_uint_gt(n, 4);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array");
	TCase *npy = tcase_create("npy"), *all = tcase_create("all");

	tcase_add_checked_fixture(npy, NULL, teardown);
	tcase_add_test(npy, npy_tells_its_array);
	tcase_add_test(npy, npy_that_breaks_a_rule_has_no_array);
	tcase_add_test(npy, npy_of_other_versions_is_not_known);
	tcase_add_test(npy, a_long_header_of_npy_is_not_read);
	tcase_add_test(npy, the_array_of_npy_is_called_like_the_file);
	suite_add_tcase(suite, npy);
	tcase_add_checked_fixture(all, NULL, teardown);
	tcase_add_test(all, dtypes_have_the_numbers_of_the_format);
	tcase_add_test(all, what_has_no_known_format_has_no_arrays);
	tcase_add_test(all, the_content_says_which_format_it_is);
	tcase_add_test(all, no_file_that_is_cut_off_has_arrays);
	tcase_add_test(all, what_cannot_be_read_is_told);
	tcase_add_test(all, a_source_that_refuses_is_no_file_without_arrays);
	tcase_add_test(all, without_memory_nothing_is_said);
	suite_add_tcase(suite, all);
	return ckpt_suite_run(suite);
}
