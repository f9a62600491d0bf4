// What arrays are in zip files, as numpy.savez and torch.save write them; and which zip files are lies.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/zip.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define PART(name_, data_, len_, ...)                                                                                  \
	(&(struct ckpt_zip_part){.name = (name_), .data = (data_), .len = (len_), __VA_ARGS__})

static struct ckpt_bytes file, npy;
static struct ckpt_zip_sample z;

static void teardown(void)
{
	free(file.data);
	free(npy.data);
	file = npy = (struct ckpt_bytes){0};
}

static struct ckpt_arrays *read_file(void)
{
	return ckpt_bytes_read(&file, "a.npz");
}

static bool has_arrays(void)
{
	return ckpt_bytes_has_arrays(&file, "a.npz");
}

static size_t count_arrays(void)
{
	struct ckpt_arrays *a = read_file();
	size_t count;

	ck_assert_ptr_nonnull(a);
	count = ckpt_arrays_count(a);
	ckpt_arrays_free(a);
	return count;
}

static void check_array(const struct ckpt_arrays *a, size_t i, const char *name, enum ckpt_dtype dtype,
			const void *bytes, size_t len)
{
	uint64_t offset = ckpt_array_at(a, i).offset;

	ckpt_check_array(a, i, name, dtype, offset, len);
	ck_assert(!memcmp(file.data + offset, bytes, len));
}

// A .npy file of len bytes that differ by seed.
static struct ckpt_zip_part npy_part(const char *name, const char *descr, size_t len, unsigned seed)
{
	char header[128];

	snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }\n", descr, len);
	ckpt_sample_npy(&npy, 1, header, 0);
	ckpt_bytes_fill(&npy, len, seed);
	return (struct ckpt_zip_part){.name = name, .data = npy.data, .len = npy.len};
}

static void add_npy(const char *name, size_t len, unsigned seed)
{
	struct ckpt_zip_part part = npy_part(name, "|u1", len, seed);

	ckpt_sample_zip_add(&z, &part);
}

static const char storage[] = "what a storage holds, of any type";

// Two arrays as numpy.savez writes them, and a storage as torch.save does: no file has both, and none has to be another for it.
static void sample(bool zip64)
{
	struct ckpt_zip_part part;

	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, PART("top/data.pkl", "\x80\2}.", 4, .zip64 = zip64, .padding = 20));
	part = npy_part("b/weights.npy", "|u1", 100, 1);
	part.zip64 = zip64;
	ckpt_sample_zip_add(&z, &part);
	part = npy_part("a.npy", "|i1", 50, 2);
	part.zip64 = zip64;
	ckpt_sample_zip_add(&z, &part);
	ckpt_sample_zip_add(&z,
			    PART("top/data/17", storage, sizeof(storage), .zip64 = zip64, .padding = 4, .flags = 8));
	ckpt_sample_zip_end(&z, zip64);
}

START_TEST(a_zip_tells_its_arrays)
{
	for (int zip64 = 0; zip64 < 2; zip64++) {
		struct ckpt_arrays *a;

		sample(zip64);
		a = read_file();
		ck_assert_ptr_nonnull(a);
		ck_assert_uint_eq(ckpt_arrays_count(a), 3);
		npy_part("", "|u1", 100, 1);
		check_array(a, 0, "b/weights", CKPT_DTYPE_U8, npy.data + npy.len - 100, 100);
		npy_part("", "|i1", 50, 2);
		check_array(a, 1, "a", CKPT_DTYPE_I8, npy.data + npy.len - 50, 50);
		check_array(a, 2, "data/17", CKPT_DTYPE_NONE, storage, sizeof(storage));
		ckpt_arrays_free(a);
	}
}
END_TEST

// Each in a zip of its own; how many arrays there are beside one that is right.
static size_t beside(const struct ckpt_zip_part *part)
{
	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, part);
	add_npy("right.npy", 10, 3);
	ckpt_sample_zip_end(&z, false);
	return count_arrays() - 1;
}

START_TEST(what_is_compressed_or_no_array_is_bytes_of_the_file)
{
	static const char *const names[] = {"data/0",   "/data/0",   "top/data/",    "top/data/x", "top/data/0x",
					    "top/data", "top/data0", "top/x/data/0", "top/date/0", "top//data/0",
					    "weights",  "npy",       "a.npy/b",      "top/data/0/"};
	struct ckpt_zip_part part;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ck_assert_msg(beside(PART(names[i], storage, sizeof(storage))) == 0, "%s", names[i]);
	ck_assert_uint_eq(beside(PART("top/data/0", storage, sizeof(storage))), 1);
	ck_assert_uint_eq(beside(PART("top/data/0", storage, sizeof(storage), .method = 8)), 0);
	ck_assert_uint_eq(beside(PART("top/data/0", storage, sizeof(storage), .flags = 1)), 0);
	part = npy_part("a.npy", "|u1", 10, 1);
	part.method = 8;
	ck_assert_uint_eq(beside(&part), 0);
	ck_assert_uint_eq(beside(PART("a.npy", "words", 5)), 0);
	ck_assert_uint_eq(beside(PART(".npy", "", 0)), 0);
}
END_TEST

// numpy.savez writes objects so, beside the others.
START_TEST(an_array_of_objects_is_none_and_the_others_are)
{
	struct ckpt_zip_part part = npy_part("objects.npy", "|O", 10, 1);

	ck_assert_uint_eq(beside(&part), 0);
}
END_TEST

START_TEST(a_zip_without_members_has_no_arrays)
{
	for (int zip64 = 0; zip64 < 2; zip64++) {
		ckpt_sample_zip_begin(&z, &file);
		ckpt_sample_zip_add(&z, PART("words", "words", 5));
		ckpt_sample_zip_end(&z, zip64);
		ck_assert_uint_eq(count_arrays(), 0);
	}
	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_end(&z, false);
	ck_assert_uint_eq(count_arrays(), 0);
}
END_TEST

// --- Lies ---------------------------------------------------------------------------------------------------------------

// Where in the file the record of a member is, in the directory.
static uint8_t *record_of(const char *name)
{
	uint8_t *at = file.data + z.directory_at;
	size_t len = strlen(name);

	while (ckpt_get16(at + 28) != len || memcmp(at + 46, name, len)) {
		at += 46 + ckpt_get16(at + 28) + ckpt_get16(at + 30) + ckpt_get16(at + 32);
		ck_assert(at < file.data + file.len);
	}
	return at;
}

static uint8_t *local_of(const char *name)
{
	return file.data + ckpt_get32(record_of(name) + 42);
}

static uint8_t *end_record(void)
{
	return file.data + file.len - 22;
}

START_TEST(a_member_whose_two_headers_differ_is_a_lie)
{
	static const struct {
		size_t at, bytes;
		uint64_t value;
	} lies[] = {{0, 1, 'x'}, {3, 1, 3},           {6, 2, 1},    {8, 2, 8},
		    {26, 2, 4},  {26, 2, UINT16_MAX}, {30, 1, 'A'}, {28, 2, UINT16_MAX}};

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		sample(false);
		memcpy(local_of("a.npy") + lies[i].at, &lies[i].value, lies[i].bytes);
		ck_assert_msg(!has_arrays(), "%zu at %zu", lies[i].bytes, lies[i].at);
	}
}
END_TEST

START_TEST(a_directory_that_says_what_cannot_be_is_a_lie)
{
	static const struct {
		size_t at, bytes;
		uint64_t value;
	} lies[] = {
		{0, 1, 'x'}, // no record
		{20, 4, 10}, // two lengths of what is stored
		{24, 4, 10},
		{20, 4, UINT32_MAX}, // in 64 bits, which are not there
		{24, 4, UINT32_MAX},
		{42, 4, UINT32_MAX},
		{28, 2, UINT16_MAX}, // what does not fit
		{30, 2, UINT16_MAX},
		{32, 2, UINT16_MAX},
		{28, 2, 0},
		{30, 2, 1},
		{34, 2, 1}, // another volume
		{42, 4, 0}, // another member's
		{42, 4, UINT32_MAX - 1},
		{42, 4, 1},
	};

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		sample(false);
		memcpy(record_of("a.npy") + lies[i].at, &lies[i].value, lies[i].bytes);
		ck_assert_msg(!has_arrays(), "%llu at %zu", (unsigned long long)lies[i].value, lies[i].at);
	}
	sample(false);
	ckpt_put16(record_of("a.npy") + 10, 8); // compressed: as no array it is not looked at
	ck_assert_uint_eq(count_arrays(), 2);
}
END_TEST

START_TEST(an_end_that_says_what_cannot_be_is_a_lie)
{
	static const struct {
		size_t at, bytes;
		uint64_t value;
	} lies[] = {{0, 1, 'x'},
		    {10, 2, 3},
		    {10, 2, 5},
		    {10, 2, UINT16_MAX},
		    {12, 4, 10},
		    {12, 4, UINT32_MAX},
		    {12, 4, UINT32_MAX - 1},
		    {16, 4, 0},
		    {16, 4, UINT32_MAX},
		    {16, 4, UINT32_MAX - 1},
		    {20, 2, 1}};

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		sample(false);
		memcpy(end_record() + lies[i].at, &lies[i].value, lies[i].bytes);
		ck_assert_msg(!has_arrays(), "%llu at %zu", (unsigned long long)lies[i].value, lies[i].at);
	}
}
END_TEST

// The record of 56 bytes, then its locator of 20.
START_TEST(a_zip64_end_that_says_what_cannot_be_is_a_lie)
{
	static const uint64_t values[] = {0, 1, UINT32_MAX, (uint64_t)1 << 40, INT64_MAX, UINT64_MAX - 8, UINT64_MAX};
	static const size_t places[] = {32, 40, 48, 64};

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		for (size_t k = 0; k < ARRAY_LEN(values); k++) {
			sample(true);
			ckpt_put64(end_record() - 76 + places[i], values[k]);
			ck_assert_msg(!has_arrays(), "%llx at %zu", (unsigned long long)values[k], places[i]);
		}
	for (size_t at = 20; at <= 76; at += 56) {
		sample(true);
		end_record()[-(ssize_t)at] = 'p';
		ck_assert(!has_arrays());
	}
}
END_TEST

// In the extra field: both lengths, then the place.
START_TEST(a_zip64_member_that_says_what_cannot_be_is_a_lie)
{
	static const uint64_t values[] = {0, 1, UINT32_MAX, INT64_MAX, UINT64_MAX - 60, UINT64_MAX};
	const size_t extra = 46 + strlen("a.npy");

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		for (int field = 0; field < 4; field++) {
			sample(true);
			if (field < 3)
				ckpt_put64(record_of("a.npy") + extra + 4 + 8 * field, values[i]);
			if (field == 3) // so that the lengths agree
				for (int k = 0; k < 2; k++)
					ckpt_put64(record_of("a.npy") + extra + 4 + 8 * k, values[i]);
			// As no array, of 0 bytes and 1, it takes nothing from the others.
			if (field == 3 && values[i] <= 1)
				ck_assert_uint_eq(count_arrays(), 2);
			else
				ck_assert_msg(!has_arrays(), "%llx in %d", (unsigned long long)values[i], field);
		}
	for (unsigned len = 0; len <= 28; len += 4) {
		sample(true);
		ckpt_put16(record_of("a.npy") + extra + 2, (uint16_t)len);
		ck_assert_msg(has_arrays() == (len == 24), "%u", len);
	}
	sample(true);
	ckpt_put16(record_of("a.npy") + extra, 2);
	ck_assert(!has_arrays());
}
END_TEST

static void point_to(const char *name, const char *other)
{
	ckpt_put32(record_of(name) + 42, ckpt_get32(record_of(other) + 42));
}

// As bombs do it: many names for the same bytes.
START_TEST(members_that_overlap_are_a_lie)
{
	static const char packed[35] = "packed, so to say";

	ckpt_sample_zip_begin(&z, &file);
	add_npy("a.npy", 100, 1);
	add_npy("b.npy", 100, 1);
	ckpt_sample_zip_add(&z, PART("c", packed, sizeof(packed), .method = 8));
	ckpt_sample_zip_add(&z, PART("d", packed, sizeof(packed), .method = 8));
	ckpt_sample_zip_end(&z, false);
	ck_assert(has_arrays());
	memcpy(local_of("b.npy") + 30, "a.npy", 5); // by its local header it would do
	ck_assert(!has_arrays());
	memcpy(local_of("b.npy") + 30, "b.npy", 5);
	ck_assert(has_arrays());
	point_to("d", "c");
	ck_assert(!has_arrays());
	point_to("d", "a.npy");
	ck_assert(!has_arrays());
	ckpt_put32(record_of("d") + 42, ckpt_get32(record_of("a.npy") + 42) + 100);
	ck_assert(!has_arrays());
	ckpt_put32(record_of("d") + 42, (uint32_t)z.directory_at);
	ck_assert(!has_arrays());
	ckpt_put32(record_of("d") + 42, (uint32_t)z.directory_at - 34);
	ck_assert(!has_arrays());
}
END_TEST

START_TEST(a_zip_of_more_than_4_gib_is_read)
{
	const uint64_t bytes = (uint64_t)5 << 30;
	struct ckpt_arrays *a;
	uint64_t first;

	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z,
			    PART("top/data/0", storage, sizeof(storage), .zeros = bytes, .zip64 = true, .padding = 30));
	ckpt_sample_zip_add(&z, PART("top/data/1", storage, sizeof(storage), .zip64 = true));
	ckpt_sample_zip_end(&z, true);
	a = read_file();
	ck_assert_ptr_nonnull(a);
	ck_assert_uint_eq(ckpt_arrays_count(a), 2);
	first = 30 + strlen("top/data/0") + 20 + 30;
	ckpt_check_array(a, 0, "data/0", CKPT_DTYPE_NONE, first, bytes + sizeof(storage));
	ckpt_check_array(a, 1, "data/1", CKPT_DTYPE_NONE,
			 first + bytes + sizeof(storage) + 30 + strlen("top/data/0") + 20, sizeof(storage));
	ckpt_arrays_free(a);
}
END_TEST

START_TEST(a_directory_may_have_any_order)
{
	uint8_t record[46 + 5];
	struct ckpt_arrays *a;

	ckpt_sample_zip_begin(&z, &file);
	add_npy("a.npy", 100, 1);
	add_npy("b.npy", 90, 2);
	ckpt_sample_zip_end(&z, false);
	memcpy(record, record_of("a.npy"), sizeof(record));
	memmove(record_of("a.npy"), record_of("b.npy"), sizeof(record));
	memcpy(file.data + z.directory_at + sizeof(record), record, sizeof(record));
	a = read_file();
	ck_assert_ptr_nonnull(a);
	ck_assert_uint_eq(ckpt_arrays_count(a), 2);
	ck_assert_str_eq(ckpt_array_at(a, 0).name, "a");
	ck_assert_str_eq(ckpt_array_at(a, 1).name, "b");
	ckpt_arrays_free(a);
}
END_TEST

START_TEST(two_members_of_one_name_are_a_lie)
{
	ckpt_sample_zip_begin(&z, &file);
	add_npy("a.npy", 100, 1);
	add_npy("a.npy", 90, 2);
	ckpt_sample_zip_end(&z, false);
	ck_assert(!has_arrays());
	ckpt_sample_zip_begin(&z, &file);
	ckpt_sample_zip_add(&z, PART("top/data/0", "1", 1));
	ckpt_sample_zip_add(&z, PART("pot/data/0", "2", 1));
	ckpt_sample_zip_end(&z, false);
	ck_assert(!has_arrays());
}
END_TEST

START_TEST(a_name_with_a_nul_is_a_lie_or_no_array)
{
	uint8_t *local, *record;

	sample(false);
	local = local_of("a.npy");
	record = record_of("a.npy");
	local[30] = record[46] = 0;
	ck_assert_uint_eq(count_arrays(), 2);
}
END_TEST

// It is refused before it is read.
START_TEST(a_directory_that_is_too_large_is_not_read)
{
	for (uint64_t over = 0; over < 2; over++) {
		uint64_t bytes = CKPT_ZIP_DIRECTORY_MAX + over;

		ckpt_sample_zip_begin(&z, &file);
		ckpt_bytes_text(&file, "PK\3\4 and nothing more, but zeros");
		ckpt_sample_zip_end(&z, false);
		file.zeros_at = z.directory_at;
		file.zeros = bytes;
		ckpt_put32(end_record() + 12, (uint32_t)bytes);
		ckpt_put16(end_record() + 10, 1);
		ck_assert(!has_arrays());
		ck_assert_uint_eq(file.reads, over ? 2 : 3); // the head, the end, and the directory
	}
}
END_TEST

START_TEST(a_zip_of_many_members_is_read)
{
	const unsigned count = 30000;
	struct ckpt_arrays *a;
	char name[32];

	ckpt_sample_zip_begin(&z, &file);
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "top/data/%u", i);
		ckpt_sample_zip_add(&z, PART(name, &i, sizeof(i)));
	}
	ckpt_sample_zip_end(&z, false);
	a = read_file();
	ck_assert_ptr_nonnull(a);
	ck_assert_uint_eq(ckpt_arrays_count(a), count);
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "data/%u", i);
		check_array(a, i, name, CKPT_DTYPE_NONE, &i, sizeof(i));
	}
	ckpt_arrays_free(a);
}
END_TEST

// Whatever is changed, what is still read of it keeps its promises.
START_TEST(no_byte_that_is_changed_does_harm)
{
	static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
	unsigned refused = 0;

	for (int zip64 = 0; zip64 < 2; zip64++) {
		sample(zip64);
		for (size_t at = 0; at < file.len; at++)
			for (size_t i = 0; i < ARRAY_LEN(values); i++) {
				uint8_t was = file.data[at];

				file.data[at] = values[i];
				refused += !has_arrays();
				file.data[at] = was;
			}
	}
	ck_assert_uint_gt(refused, 100);
}
END_TEST

START_TEST(no_zip_that_is_cut_off_has_arrays)
{
	for (int zip64 = 0; zip64 < 2; zip64++) {
		sample(zip64);
		while (file.len--)
			ck_assert_msg(!has_arrays(), "%zu bytes", file.len);
	}
}
END_TEST

START_TEST(what_cannot_be_read_is_told)
{
	struct ckpt_arrays *a = NULL;

	sample(true);
	for (file.fails_at = 1; ckpt_bytes_arrays(&file, "a", &a); file.fails_at++) {
		ck_error(ckpt_bytes_arrays(&file, "a", &a), EIO);
		ck_assert_ptr_null(a);
	}
	ck_assert_uint_gt(file.fails_at, 8);
	ck_assert_uint_eq(file.reads, file.fails_at - 1);
	ckpt_arrays_free(a);
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	uint64_t n = 1;

	sample(true);
	for (;; n++) {
		struct ckpt_arrays *a = NULL;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_bytes_arrays(&file, "a", &a);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			ck_assert_uint_eq(ckpt_arrays_count(a), 3);
			ckpt_arrays_free(a);
			break;
		}
		ck_error(rc, ENOMEM);
	}
	ck_assert_uint_gt(n, 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array zip");
	TCase *right = tcase_create("right"), *lies = tcase_create("lies");

	tcase_add_checked_fixture(right, NULL, teardown);
	tcase_add_test(right, a_zip_tells_its_arrays);
	tcase_add_test(right, what_is_compressed_or_no_array_is_bytes_of_the_file);
	tcase_add_test(right, an_array_of_objects_is_none_and_the_others_are);
	tcase_add_test(right, a_zip_without_members_has_no_arrays);
	tcase_add_test(right, a_zip_of_more_than_4_gib_is_read);
	tcase_add_test(right, a_directory_may_have_any_order);
	tcase_add_test(right, a_zip_of_many_members_is_read);
	tcase_add_test(right, what_cannot_be_read_is_told);
	tcase_add_test(right, without_memory_nothing_is_said);
	suite_add_tcase(suite, right);
	tcase_add_checked_fixture(lies, NULL, teardown);
	tcase_add_test(lies, a_member_whose_two_headers_differ_is_a_lie);
	tcase_add_test(lies, a_directory_that_says_what_cannot_be_is_a_lie);
	tcase_add_test(lies, an_end_that_says_what_cannot_be_is_a_lie);
	tcase_add_test(lies, a_zip64_end_that_says_what_cannot_be_is_a_lie);
	tcase_add_test(lies, a_zip64_member_that_says_what_cannot_be_is_a_lie);
	tcase_add_test(lies, members_that_overlap_are_a_lie);
	tcase_add_test(lies, two_members_of_one_name_are_a_lie);
	tcase_add_test(lies, a_name_with_a_nul_is_a_lie_or_no_array);
	tcase_add_test(lies, a_directory_that_is_too_large_is_not_read);
	tcase_add_test(lies, no_byte_that_is_changed_does_harm);
	tcase_add_test(lies, no_zip_that_is_cut_off_has_arrays);
	suite_add_tcase(suite, lies);
	return ckpt_suite_run(suite);
}
