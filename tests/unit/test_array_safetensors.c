// What arrays are in .safetensors files, and which such files have none: those that break a rule.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>
#include <sys/resource.h>

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

static void begin_header(void)
{
	file.len = 0;
	file.zeros = file.zeros_at = 0;
	ckpt_bytes_number(&file, 0, 8);
}

static void end_header(uint64_t data)
{
	ckpt_put64(file.data, file.len - 8);
	file.zeros = data;
	file.zeros_at = file.len;
}

START_TEST(safetensors_tell_their_arrays)
{
	static const char header[] =
		" {\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[16,28]},\n"
		"\"__metadata__\":{\"format\":\"pt\"},"
		"\"a \\\"\\u00e9, {\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"more\":[1]},"
		"\"scalar\":{\"shape\":[],\"dtype\":\"I64\",\"data_offsets\":[28,36]},"
		"\"none\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[28,28]}} \n ";
	struct ckpt_arrays *a;
	uint64_t data;

	ckpt_sample_safetensors(&file, header + 1, 36);
	data = file.len;
	a = ckpt_bytes_read(&file, "model.safetensors");
	ck_assert_ptr_nonnull(a);
	ck_assert_uint_eq(ckpt_arrays_count(a), 4);
	ckpt_check_array(a, 0, "a \"\xc3\xa9, {", CKPT_DTYPE_F32, data, 16);
	ckpt_check_array(a, 1, "b.weight", CKPT_DTYPE_BF16, data + 16, 12);
	ckpt_check_array(a, 2, "none", CKPT_DTYPE_F64, data + 28, 0);
	ckpt_check_array(a, 3, "scalar", CKPT_DTYPE_I64, data + 28, 8);
	ck_assert(ckpt_array_at(a, 1).ndim == 2 && ckpt_array_at(a, 1).shape[0] == 2 &&
		  ckpt_array_at(a, 1).shape[1] == 3);
	ck_assert(ckpt_array_at(a, 2).ndim == 2 && ckpt_array_at(a, 3).ndim == 0 && !ckpt_array_at(a, 1).column_major);
	ckpt_arrays_free(a);
	ckpt_sample_safetensors(&file, header, 36); // it begins with a space
	ck_assert(!has_arrays("model.safetensors"));
}
END_TEST

START_TEST(safetensors_without_an_array_have_none)
{
	static const char *const whole[] = {"{}", "{ }      ", "{\"__metadata__\":{}}"};
	static const char *const broken[] = {"{",
					     "}",
					     "[]",
					     "{}x",
					     "{,}",
					     "{\"__metadata__\":{}},",
					     "{\"__metadata__\":3}",
					     "{\"__metadata__\":{\"a\":1}}",
					     "{\"__metadata__\":{},\"__metadata__\":{}}",
					     "{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}",
					     "{\"__metadata__\":{]}",
					     "{]"};

	for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
		struct ckpt_arrays *a;

		ckpt_sample_safetensors(&file, whole[i], 0);
		a = ckpt_bytes_read(&file, "a.safetensors");
		ck_assert_msg(a && !ckpt_arrays_count(a), "%s", whole[i]);
		ckpt_arrays_free(a);
		ckpt_sample_safetensors(&file, whole[i], 1);
		ck_assert_msg(!has_arrays("a.safetensors"), "%s and a byte", whole[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
		ckpt_sample_safetensors(&file, broken[i], 0);
		ck_assert_msg(!has_arrays("a.safetensors"), "%s", broken[i]);
	}
}
END_TEST

START_TEST(each_dtype_of_safetensors_has_its_size)
{
	static const struct {
		const char *name;
		enum ckpt_dtype dtype;
		unsigned bytes; // of eight elements
	} types[] = {
		{"BOOL", CKPT_DTYPE_BOOL, 8},
		{"I8", CKPT_DTYPE_I8, 8},
		{"I16", CKPT_DTYPE_I16, 16},
		{"I32", CKPT_DTYPE_I32, 32},
		{"I64", CKPT_DTYPE_I64, 64},
		{"U8", CKPT_DTYPE_U8, 8},
		{"U16", CKPT_DTYPE_U16, 16},
		{"U32", CKPT_DTYPE_U32, 32},
		{"U64", CKPT_DTYPE_U64, 64},
		{"F16", CKPT_DTYPE_F16, 16},
		{"F32", CKPT_DTYPE_F32, 32},
		{"F64", CKPT_DTYPE_F64, 64},
		{"BF16", CKPT_DTYPE_BF16, 16},
		{"F8_E4M3", CKPT_DTYPE_F8E4M3, 8},
		{"F8_E5M2", CKPT_DTYPE_F8E5M2, 8},
		{"C64", CKPT_DTYPE_C64, 64},
		{"F4", CKPT_DTYPE_F4E2M1, 4},
		{"F8_E4M3FNUZ", CKPT_DTYPE_F8E4M3FNUZ, 8},
		{"F8_E5M2FNUZ", CKPT_DTYPE_F8E5M2FNUZ, 8},
		{"F8_E8M0", CKPT_DTYPE_F8E8M0, 8},
		{"F6_E2M3", CKPT_DTYPE_NONE, 6}, // and what is new
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (int off = -1; off <= 1; off++) {
			unsigned bytes = types[i].bytes + (unsigned)off;
			struct ckpt_arrays *a;
			char header[128];

			snprintf(header, sizeof(header),
				 "{\"w\":{\"dtype\":\"%s\",\"shape\":[4,2],\"data_offsets\":[0,%u]}}", types[i].name,
				 bytes);
			ckpt_sample_safetensors(&file, header, bytes);
			a = ckpt_bytes_read(&file, "a.safetensors");
			// Of what is not known any whole number of bits will do.
			ck_assert_msg(!a == (off && types[i].dtype), "%s: %u bytes", types[i].name, bytes);
			if (a)
				ck_assert_int_eq(ckpt_array_at(a, 0).dtype, types[i].dtype);
			ckpt_arrays_free(a);
		}
}
END_TEST

#define W "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}"
#define OF(dtype, shape, offsets) "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

// Eight bytes of data are behind each of these headers.
START_TEST(safetensors_that_break_a_rule_have_no_arrays)
{
	static const char *const broken[] = {
		W,
		W "]",
		W ",}",
		W ",,\"v\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}",
		W "}}",
		W "} x",
		W ",\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}",       // twice
		W ",\"\\u0077\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", // the same
		W ",\"v\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",       // over it
		W ",\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
		W ",\"v\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}",
		W ",\"v\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}",
		W ",\"v\":{\"dtype\":\"U8\",\"shape\":[1],\"dtype\":\"U8\",\"data_offsets\":[8,8]}}",
		W ",\"v\":3}",
		W ",\"v\":null}",
		W ",\"v\":{}}",
		W ",\"\\u0000\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}",
		W ",\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}",
		OF("\"U8\"", "[7]", "[0,7]"), // not all
		OF("\"U8\"", "[7]", "[1,8]"), // a hole
		OF("\"U8\"", "[9]", "[0,9]"), // too much
		OF("\"U8\"", "[8]", "[8,0]"),
		OF("\"U8\"", "[8]", "[0,8,8]"),
		OF("\"U8\"", "[8]", "[0]"),
		OF("\"U8\"", "[8]", "{\"0\":0,\"1\":8}"),
		OF("\"U8\"", "[8]", "[0,8.0]"),
		OF("\"U8\"", "[8]", "[\"0\",\"8\"]"),
		OF("\"U8\"", "[8]", "[-1,7]"),
		OF("\"U8\"", "[8]", "[-8,0]"),
		OF("\"U8\"", "[8]", "[0,9223372036854775807]"),
		OF("\"U8\"", "[8]", "[9223372036854775800,9223372036854775807]"),
		OF("\"U8\"", "[8]", "[0,18446744073709551616]"),
		OF("\"U8\"", "[8]", "[18446744073709551608,18446744073709551616]"),
		OF("\"U8\"", "[-8]", "[0,8]"),
		OF("\"U8\"", "[-2,-4]", "[0,8]"),
		OF("\"U8\"", "[2.0,4]", "[0,8]"),
		OF("\"U64\"", "8", "[0,8]"),
		OF("\"U64\"", "{}", "[0,8]"),
		OF("\"U8\"", "[[8]]", "[0,8]"),
		OF("\"U8\"", "[3,3]", "[0,8]"),
		OF("\"U64\"", "[2305843009213693953]", "[0,8]"), // times 8: 8
		OF("\"F4\"", "[4611686018427387908,4]", "[0,8]"),
		OF("\"?\"", "[3]", "[0,8]"), // a dtype of no whole bits
		OF("\"?\"", "[4294967296,4294967296]", "[0,8]"),
		OF("\"?\"", "[0]", "[0,8]"),
		OF("8", "[8]", "[0,8]"),
		OF("null", "[8]", "[0,8]"),
		"{\"w\":{\"shape\":[8],\"data_offsets\":[0,8]}}",
		"{\"w\":{\"dtype\":\"U64\",\"data_offsets\":[0,8]}}",
		"{\"w\":{\"dtype\":\"U8\",\"shape\":[8]}}",
		OF("\"U8\"", "[8,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,8]"), // 33
		W ",\"v\\\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", // a quote that does not end
	};

	for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
		ckpt_sample_safetensors(&file, broken[i], 8);
		ck_assert_msg(!has_arrays("a.safetensors"), "%s", broken[i]);
	}
	ckpt_sample_safetensors(&file, W "}", 8);
	ck_assert(has_arrays("a.safetensors"));
	ckpt_sample_safetensors(
		&file, OF("\"U8\"", "[8,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,8]"), 8);
	ck_assert(has_arrays("a.safetensors"));
	ckpt_sample_safetensors(&file, OF("\"F4\"", "[4,4]", "[0,8]"), 8);
	ck_assert(has_arrays("a.safetensors"));
}
END_TEST

START_TEST(an_overlap_and_a_hole_of_its_size_are_found)
{
	ckpt_sample_safetensors(&file, W ",\"v\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}", 16);
	ck_assert(!has_arrays("a.safetensors"));
	ckpt_sample_safetensors(&file, W ",\"v\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}", 16);
	ck_assert(has_arrays("a.safetensors"));
}
END_TEST

START_TEST(a_name_has_at_most_65535_bytes)
{
	for (size_t len = CKPT_ARRAY_NAME_MAX; len <= CKPT_ARRAY_NAME_MAX + 1; len++) {
		CLEANUP_FREE char *name = malloc(len + 1);

		memset(name, 'x', len);
		name[len] = '\0';
		begin_header();
		ckpt_bytes_text(&file, "{\"");
		ckpt_bytes_text(&file, name);
		ckpt_bytes_text(&file, "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
		end_header(1);
		ck_assert_int_eq(has_arrays("a.safetensors"), len == CKPT_ARRAY_NAME_MAX);
	}
}
END_TEST

START_TEST(a_shape_whose_product_is_0_only_in_64_bits_is_none)
{
	static const char *const headers[] = {OF("\"U8\"", "[4294967296,4294967296]", "[0,0]"),
					      OF("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"),
					      OF("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"),
					      OF("\"?\"", "[4294967296,4294967296]", "[0,0]"),
					      OF("\"U8\"", "[0,4294967296]", "[0,0]"),
					      OF("\"U8\"", "[4611686018427387904,3,0]", "[0,0]")};

	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		ckpt_sample_safetensors(&file, headers[i], 0);
		ck_assert_msg(has_arrays("a.safetensors") == (i == 4), "%s", headers[i]);
	}
}
END_TEST

START_TEST(a_header_of_more_than_eight_levels_is_none)
{
	ckpt_sample_safetensors(
		&file, W ",\"v\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8],\"x\":[[[[[{}]]]]]}}", 8);
	ck_assert(has_arrays("a.safetensors"));
	ckpt_sample_safetensors(
		&file, W ",\"v\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8],\"x\":[[[[[[{}]]]]]]}}", 8);
	ck_assert(!has_arrays("a.safetensors"));
	ckpt_sample_safetensors(
		&file, W ",\"v\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8],\"x\":\"[[[[[[{\"}}", 8);
	ck_assert(has_arrays("a.safetensors"));
}
END_TEST

// What a header says of its own length is not believed before it is known to fit.
START_TEST(a_header_that_is_longer_than_the_file_or_the_limit_is_not_read)
{
	const uint64_t lens[] = {0,         1, 7, 100, CKPT_ARRAY_HEADER_MAX + 1, UINT32_MAX, INT64_MAX, UINT64_MAX - 8,
				 UINT64_MAX};
	struct ckpt_arrays *a;
	uint64_t allocations;

	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		ckpt_sample_safetensors(&file, "{}      ", lens[i] == CKPT_ARRAY_HEADER_MAX + 1 ? lens[i] : 0);
		ckpt_put64(file.data, lens[i]);
		ckpt_allocfault_begin(0, false);
		ckpt_bytes_arrays(&file, "a.safetensors", &a);
		allocations = ckpt_allocfault_end();
		ck_assert_ptr_null(a);
		if (lens[i] > 8) {
			ck_assert_uint_le(file.read_end, 9);
			ck_assert_uint_eq(allocations, 1); // the set
		}
	}
}
END_TEST

// `{`, and arrays of 8 bytes each that are called first, first + 1 ...; what stands behind each but the last of all is a comma.
static void add_arrays(unsigned first, unsigned count)
{
	char member[128];

	for (unsigned i = first; i < first + count; i++) {
		snprintf(member, sizeof(member), "%s\"w%u\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%u,%u]}",
			 i ? "," : "{", i, 8 * i, 8 * i + 8);
		ckpt_bytes_text(&file, member);
	}
}

// It is parsed in pieces: what must differ, differs over all of them.
START_TEST(a_large_header_is_read_whole)
{
	struct ckpt_arrays *a;

	begin_header();
	add_arrays(0, 20000);
	ckpt_bytes_text(&file, "}");
	end_header(20000 * 8);
	ck_assert_uint_gt(file.len, 1 << 20);
	a = ckpt_bytes_read(&file, "a.safetensors");
	ck_assert_ptr_nonnull(a);
	ck_assert_uint_eq(ckpt_arrays_count(a), 20000);
	for (unsigned i = 0; i < 20000; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%u", i);
		ckpt_check_array(a, i, name, CKPT_DTYPE_F32, file.len + 8 * i, 8);
	}
	ckpt_arrays_free(a);
	file.len -= 1;
	ckpt_bytes_text(&file, ",\"w7\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[160000,160000]}}");
	end_header(20000 * 8);
	ck_assert(!has_arrays("a.safetensors"));
}
END_TEST

// At each comma a piece could end: what is behind is looked at as well.
START_TEST(what_is_wrong_behind_a_piece_is_found)
{
	static const char *const ends[] = {
		"", ",", ",}", "]", "}}", "}x", ",\"v\":3}", ",3}", ",\"__metadata__\":{},\"__metadata__\":{}}"};
	unsigned most = 0;

	// The first piece ends at the comma behind so many.
	for (begin_header(); file.len < 8 + (64 << 10); most++)
		add_arrays(most, 1);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		for (unsigned count = most - 2; count <= most + 2; count++) {
			begin_header();
			add_arrays(0, count);
			ckpt_bytes_text(&file, ends[i]);
			end_header((uint64_t)count * 8);
			ck_assert_msg(!has_arrays("a.safetensors"), "%u arrays and %s", count, ends[i]);
		}
}
END_TEST

static void add_metadata(size_t len)
{
	CLEANUP_FREE char *text = malloc(len + 1);

	memset(text, 'x', len);
	text[len] = '\0';
	memcpy(text, "\\\"]},", 5); // nothing of this ends it
	ckpt_bytes_text(&file, "\"__metadata__\" : {\"settings\":\"");
	ckpt_bytes_text(&file, text);
	ckpt_bytes_text(&file, "\"}");
}

START_TEST(metadata_may_be_large_and_nothing_else)
{
	for (int before = 0; before < 2; before++)
		for (int after = 0; after < 2; after++) {
			struct ckpt_arrays *a;
			unsigned count = 10u * (unsigned)(before + after);

			begin_header();
			if (before)
				add_arrays(0, 10);
			ckpt_bytes_text(&file, before ? "  , " : "{ ");
			add_metadata(3 << 20);
			if (after && !before) {
				ckpt_bytes_text(&file,
						" ,\"w0\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}");
				add_arrays(1, 9);
			} else if (after) {
				add_arrays(10, 10);
			}
			ckpt_bytes_text(&file, " } ");
			end_header(8 * count);
			a = ckpt_bytes_read(&file, "a.safetensors");
			ck_assert_msg(a && ckpt_arrays_count(a) == count, "%d %d", before, after);
			ckpt_arrays_free(a);
		}
	for (int first = 0; first < 2; first++)
		for (int second = 0; second < 2; second++) { // large or not
			begin_header();
			ckpt_bytes_text(&file, "{");
			add_metadata(first ? 2 << 20 : 100 << 10);
			ckpt_bytes_text(&file, ",");
			add_metadata(second ? 2 << 20 : 100 << 10);
			ckpt_bytes_text(&file, "}");
			end_header(0);
			ck_assert(!has_arrays("a.safetensors"));
		}
	begin_header();
	ckpt_bytes_text(&file, "{");
	add_metadata(2 << 20);
	memcpy(file.data + 10, "__metaDATA__", 12);
	ckpt_bytes_text(&file, "}");
	end_header(0);
	ck_assert(!has_arrays("a.safetensors"));
}
END_TEST

// A sanitizer keeps what was freed for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MIB 1024
#else
#define MEMORY_MIB 128
#endif

static long memory_peak_mib(void)
{
	struct rusage usage;

	ck_assert(!getrusage(RUSAGE_SELF, &usage));
	return usage.ru_maxrss >> 10;
}

// The most that a header can hold, in the form that takes the most memory.
START_TEST(the_largest_header_takes_little_memory)
{
	long before;

	begin_header();
	ckpt_bytes_text(&file, "{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
	for (unsigned i = 0; file.len < CKPT_ARRAY_HEADER_MAX - 200; i++) {
		char member[200];

		snprintf(member, sizeof(member),
			 ",\"%x\":{\"dtype\":\"U8\",\"shape\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
			 "0,0,0,0],"
			 "\"data_offsets\":[0,0]}",
			 i);
		ckpt_bytes_text(&file, member);
	}
	ckpt_bytes_text(&file, "}");
	end_header(0);
	before = memory_peak_mib();
	ck_assert(has_arrays("a.safetensors"));
	ck_assert_int_lt(memory_peak_mib() - before, MEMORY_MIB);
	begin_header();
	ckpt_bytes_text(&file, "{\"w\":[");
	while (file.len < CKPT_ARRAY_HEADER_MAX - 200)
		ckpt_bytes_text(&file, "[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],");
	ckpt_bytes_text(&file, "[]]}");
	end_header(0);
	ck_assert(!has_arrays("a.safetensors"));
	ck_assert_int_lt(memory_peak_mib() - before, MEMORY_MIB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array safetensors");
	TCase *tcase = tcase_create("safetensors");

	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, safetensors_tell_their_arrays);
	tcase_add_test(tcase, safetensors_without_an_array_have_none);
	tcase_add_test(tcase, each_dtype_of_safetensors_has_its_size);
	tcase_add_test(tcase, safetensors_that_break_a_rule_have_no_arrays);
	tcase_add_test(tcase, an_overlap_and_a_hole_of_its_size_are_found);
	tcase_add_test(tcase, a_name_has_at_most_65535_bytes);
	tcase_add_test(tcase, a_shape_whose_product_is_0_only_in_64_bits_is_none);
	tcase_add_test(tcase, a_header_of_more_than_eight_levels_is_none);
	tcase_add_test(tcase, a_header_that_is_longer_than_the_file_or_the_limit_is_not_read);
	tcase_add_test(tcase, a_large_header_is_read_whole);
	tcase_add_test(tcase, what_is_wrong_behind_a_piece_is_found);
	tcase_add_test(tcase, metadata_may_be_large_and_nothing_else);
	tcase_add_test(tcase, the_largest_header_takes_little_memory);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
