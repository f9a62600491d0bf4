// Whether a file is whole by its format: each sample is, and no shorter one is.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"
#include "core/profile/format.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define BYTES_MAX 4096

struct sample {
	const char *name;
	uint8_t data[BYTES_MAX];
	size_t len;
};

static int check(const char *name, const void *data, size_t len)
{
	int fd = memfd_create("sample", MFD_CLOEXEC), rc;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	rc = ckpt_format_check(fd, name);
	close(fd);
	return rc;
}

static int check_sample(const struct sample *s)
{
	return check(s->name, s->data, s->len);
}

static void append(struct sample *s, const void *data, size_t len)
{
	ck_assert_uint_le(s->len + len, sizeof(s->data));
	memcpy(s->data + s->len, data, len);
	s->len += len;
}

static void append_text(struct sample *s, const char *text)
{
	append(s, text, strlen(text));
}

static void append_number(struct sample *s, uint64_t value, size_t bytes)
{
	append(s, &value, bytes);
}

// --- Samples ----------------------------------------------------------------------------------------------------------

// One stored file of 40 bytes, its directory and end record; zip64 says the same again in longer fields.
static struct sample zip_sample(const char *name, bool zip64)
{
	struct sample s = {.name = name};
	size_t directory, end;

	append_text(&s, "PK\3\4");
	append(&s, (uint8_t[26]){0}, 26);
	append(&s, (uint8_t[40]){1}, 40);
	directory = s.len;
	append_text(&s, "PK\1\2");
	append(&s, (uint8_t[42]){0}, 42);
	end = s.len;
	if (zip64) {
		append_text(&s, "PK\6\6");
		append_number(&s, 44, 8);
		append(&s, (uint8_t[28]){0}, 28);
		append_number(&s, end - directory, 8);
		append_number(&s, directory, 8);
		append_text(&s, "PK\6\7");
		append_number(&s, 0, 4);
		append_number(&s, end, 8);
		append_number(&s, 1, 4);
	}
	append_text(&s, "PK\5\6");
	append(&s, (uint8_t[8]){0}, 8);
	append_number(&s, zip64 ? UINT32_MAX : end - directory, 4);
	append_number(&s, zip64 ? UINT32_MAX : directory, 4);
	append_number(&s, 0, 2);
	return s;
}

static struct sample safetensors_of(const char *header, size_t bytes)
{
	struct sample s = {.name = "a.safetensors"};

	append_number(&s, strlen(header), 8);
	append_text(&s, header);
	ck_assert_uint_le(s.len + bytes, sizeof(s.data));
	s.len += bytes;
	return s;
}

static struct sample safetensors_sample(void)
{
	return safetensors_of("{\"__metadata__\":{\"a\":\"b\"},\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":"
			      "[0,16]},\"v\":{\"dtype\":\"I8\",\"shape\":[8],\"data_offsets\":[16,24]}}",
			      24);
}

static struct sample npy_of(int version, const char *header, size_t bytes)
{
	struct sample s = {.name = "a.npy"};

	append(&s, "\x93NUMPY", 6);
	append_number(&s, (uint64_t)version, 2);
	append_number(&s, strlen(header), version == 1 ? 2 : 4);
	append_text(&s, header);
	ck_assert_uint_le(s.len + bytes, sizeof(s.data));
	s.len += bytes;
	return s;
}

static struct sample npy_sample(void)
{
	return npy_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n", 24);
}

static struct sample hdf5_sample(int version, size_t user_block)
{
	struct sample s = {.name = "a.h5"};

	s.len = user_block;
	append(&s, "\x89HDF\r\n\x1a\n", 8);
	append_number(&s, (uint64_t)version, 1);
	if (version < 2) {
		append(&s, (uint8_t[]){0, 0, 0, 0, 8, 8, 0}, 7);
		append(&s, (uint8_t[12]){0}, version == 0 ? 8 : 12);
	} else {
		append(&s, (uint8_t[]){8, 8, 0}, 3);
	}
	append_number(&s, 0, 8);
	append_number(&s, UINT64_MAX, 8);
	append_number(&s, user_block + 200, 8);
	s.len = user_block + 200;
	return s;
}

static struct sample pickle_sample(const char *name)
{
	struct sample s = {.name = name};

	append_text(&s, "\x80\x04]\x94(K\1K\2e.");
	return s;
}

// --- Tests ------------------------------------------------------------------------------------------------------------

// starts: from so many bytes on it can be told which format it is.
static void whole_and_no_shorter(const struct sample *s, size_t starts)
{
	ck_assert_msg(!check_sample(s), "%s is whole: %d", s->name, check_sample(s));
	ck_error(check(s->name, s->data, 0), ENODATA);
	for (size_t len = 1; len < s->len; len++) {
		int rc = check(s->name, s->data, len);

		ck_assert_msg(len < starts ? !rc : rc == -EINVAL || (rc == -EAGAIN && !strcmp(s->name, "a.npy")),
			      "%s cut at %zu of %zu: %d", s->name, len, s->len, rc);
	}
}

START_TEST(each_format_is_whole_at_its_end_only)
{
	const struct {
		struct sample sample;
		size_t starts;
	} samples[] = {
		{zip_sample("a.pt", false), 4},
		{zip_sample("a.npz", false), 4},
		{zip_sample("a.keras", false), 4},
		{zip_sample("a.ckpt", false), 4},
		{zip_sample("a.bin", false), 4},
		{zip_sample("a.pth", false), 4},
		{zip_sample("a.pth.tar", false), 4},
		{zip_sample("a.zip", false), 4},
		{zip_sample("checkpoint_7", true), 4},
		{zip_sample("a.pt", true), 4},
		{safetensors_sample(), 9},
		{npy_sample(), 6},
		{hdf5_sample(0, 0), 8},
		{hdf5_sample(1, 0), 8},
		{hdf5_sample(2, 0), 8},
		{hdf5_sample(3, 0), 8},
		{hdf5_sample(0, 512), 520},
		{hdf5_sample(2, 2048), 2056},
		{pickle_sample("a.pth"), 1},
		{pickle_sample("a.bin"), 1},
		{pickle_sample("a.pkl"), 1},
	};

	for (size_t i = 0; i < ARRAY_LEN(samples); i++)
		whole_and_no_shorter(&samples[i].sample, samples[i].starts);
}
END_TEST

// Several arrays in a file, a header and raw bytes, a signature: what follows the end does no harm.
START_TEST(bytes_may_follow_the_end)
{
	struct sample samples[] = {zip_sample("a.npz", false), zip_sample("a.pt", true),
				   safetensors_sample(),       npy_sample(),
				   hdf5_sample(0, 0),          pickle_sample("a.pt")};

	for (size_t i = 0; i < ARRAY_LEN(samples); i++)
		for (int times = 0; times < 3; times++) {
			append_text(&samples[i], "and raw bytes");
			ck_ok(check_sample(&samples[i]));
		}
}
END_TEST

START_TEST(a_zip_may_end_in_a_comment)
{
	struct sample s = zip_sample("a.npz", false);

	s.data[s.len - 2] = 5;
	ck_error(check_sample(&s), EINVAL);
	append_text(&s, "hello");
	ck_ok(check_sample(&s));
	append_text(&s, "!");
	ck_ok(check_sample(&s));
}
END_TEST

START_TEST(a_zip_whose_directory_is_not_there_is_not_whole)
{
	for (int zip64 = 0; zip64 < 2; zip64++)
		for (unsigned field = 0; field < 2; field++) {
			struct sample s = zip_sample("a.npz", zip64);
			uint8_t *at = s.data + s.len - (zip64 ? 22 + 20 + 16 : 10) + field * (zip64 ? 8 : 4);

			memset(at, 0xfe, zip64 ? 8 : 4);
			ck_error(check_sample(&s), EINVAL);
		}
}
END_TEST

START_TEST(a_zip_whose_directory_ends_behind_all_numbers_is_not_whole)
{
	struct sample s = zip_sample("a.npz", true);

	ckpt_put64(s.data + s.len - 22 - 20 - 16, 40);
	ckpt_put64(s.data + s.len - 22 - 20 - 8, UINT64_MAX - 20);
	ck_error(check_sample(&s), EINVAL);
	ckpt_put64(s.data + s.len - 22 - 20 - 8, 20);
	ck_ok(check_sample(&s));
}
END_TEST

START_TEST(safetensors_are_as_long_as_their_header_says)
{
	static const char *const others[] = {
		"[]",
		"{",
		"{\"w\":{\"data_offsets\":[0,-1]}}",
		"{\"w\":{\"data_offsets\":[8,0]}}",
		"{\"w\":{\"data_offsets\":[0]}}",
		"{\"w\":{}}",
		"{\"w\":3}",
	};
	struct sample s = safetensors_of("{}", 0);

	ck_ok(check_sample(&s));
	for (size_t i = 0; i < ARRAY_LEN(others); i++) { // whatever it is, it is not cut off
		s = safetensors_of(others[i], 0);
		ck_ok(check_sample(&s));
	}
	s = safetensors_of("{\"w\":{\"data_offsets\":[0,9223372036854775807]}}", 0);
	ck_error(check_sample(&s), EINVAL);
	s = safetensors_sample();
	memset(s.data, 0xff, 8);
	ck_ok(check_sample(&s));
}
END_TEST

static long memory_peak_mib(void)
{
	struct rusage usage;

	ck_assert(!getrusage(RUSAGE_SELF, &usage));
	return usage.ru_maxrss >> 10;
}

// What that would take in memory is what a hostile file would be made for.
START_TEST(a_huge_header_of_safetensors_is_not_parsed)
{
	static const uint64_t lens[] = {CKPT_SAFETENSORS_PARSED_MAX, CKPT_SAFETENSORS_PARSED_MAX + 1,
					CKPT_SAFETENSORS_HEADER_MAX, CKPT_SAFETENSORS_HEADER_MAX + UINT64_C(1)};
	static const int cut[] = {-EINVAL, -EINVAL, -EINVAL, 0}; // the last is longer than any header
	long before = memory_peak_mib();

	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		CLEANUP_FD int fd = memfd_create("sample", MFD_CLOEXEC);
		uint8_t head[8];

		ckpt_put64(head, lens[i]);
		ck_assert_int_eq(pwrite(fd, head, sizeof(head), 0), sizeof(head));
		ck_assert_int_eq(pwrite(fd, "{", 1, 8), 1);
		ck_assert_int_eq(ftruncate(fd, (off_t)lens[i] + 8), 0);
		ck_ok(ckpt_format_check(fd, "a.safetensors"));
		ck_assert_int_eq(ftruncate(fd, (off_t)lens[i] + 7), 0);
		ck_assert_int_eq(ckpt_format_check(fd, "a.safetensors"), cut[i]);
	}
	ck_assert_int_lt(memory_peak_mib() - before, 64);
}
END_TEST

START_TEST(arrays_are_as_long_as_their_shape_says)
{
	struct sample s;

	static const struct {
		const char *header;
		size_t bytes;
	} whole[] = {
		{"{'descr': '<f8', 'fortran_order': True, 'shape': (), }\n", 8},
		{"{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }\n", 5},
		{"{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }\n", 24},
		{"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2, 1), }\n", 16},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 7), }\n", 0},
		{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (9,), }\n", 1}, // there is no telling
		{"{'descr': '|O', 'fortran_order': False, 'shape': (9,), }\n", 1},
	};

	for (size_t i = 0; i < ARRAY_LEN(whole); i++)
		for (int version = 1; version <= 3; version++) {
			s = npy_of(version, whole[i].header, whole[i].bytes);
			ck_ok(check_sample(&s));
		}
	s = npy_of(1, "{'descr': '<f4', 'shape': (2, 3)}", 24 + 30); // several arrays in a file
	ck_ok(check_sample(&s));
	s = npy_of(4, "{'descr': '<f4', 'shape': (2, 3)}", 3); // of a version to come
	ck_ok(check_sample(&s));
}
END_TEST

START_TEST(shapes_that_no_file_can_have_are_cut_off)
{
	static const char *const bad[] = {
		"{'descr': '<f4', 'shape': (4294967296, 4294967296)}",
		"{'descr': '<f4', 'shape': (4611686018427387904,)}",
		"{'descr': '<f4', 'shape': (99999999999999999999999,)}",
	};
	static const char *const others[] = {
		"{'descr': '<U4611686018427387905', 'shape': (1,)}",
		"{'descr': '<f4', 'shape': (-1,)}",
		"{'descr': '<f4', 'shape': (2, 3",
		"{'descr': '<f4'}",
	};
	struct sample s;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		s = npy_of(1, bad[i], 100);
		ck_error(check_sample(&s), EINVAL);
	}
	for (size_t i = 0; i < ARRAY_LEN(others); i++) { // nothing is said of these
		s = npy_of(1, others[i], 100);
		ck_ok(check_sample(&s));
	}
}
END_TEST

START_TEST(an_array_that_has_only_its_header_is_told_apart)
{
	struct sample s = npy_sample();

	ck_error(check(s.name, s.data, s.len - 24), EAGAIN);
	ck_error(check(s.name, s.data, s.len - 23), EINVAL);
	ck_error(check(s.name, s.data, s.len - 25), EINVAL);
}
END_TEST

START_TEST(hdf5_that_is_open_for_writing_is_not_whole)
{
	struct sample s = hdf5_sample(3, 0);

	s.data[11] = 1;
	ck_error(check_sample(&s), EINVAL);
	s.data[11] = 4; // for readers beside the writer, closed
	ck_ok(check_sample(&s));
	s.data[9] = 3; // no width of an address
	ck_ok(check_sample(&s));
}
END_TEST

static bool is_swmr(const struct sample *s)
{
	CLEANUP_FD int fd = memfd_create("sample", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, s->data, s->len), (ssize_t)s->len);
	return ckpt_format_is_swmr(fd);
}

START_TEST(hdf5_with_readers_beside_its_writer_is_told_apart)
{
	struct sample s = hdf5_sample(3, 0);

	ck_assert(!is_swmr(&s));
	s.data[11] = 1;
	ck_assert(!is_swmr(&s));
	s.data[11] = 5;
	ck_assert(is_swmr(&s));
	ck_ok(check_sample(&s));
	s.data[11] = 4;
	ck_assert(!is_swmr(&s));
	s.data[11] = 5;
	s.data[8] = 2; // has no such flags
	ck_assert(!is_swmr(&s));
	s.len = 11;
	ck_assert(!is_swmr(&s));
}
END_TEST

START_TEST(what_has_no_end_to_be_told_by_is_taken_as_it_is)
{
	static const uint8_t torch[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
					0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.',  7};

	ck_ok(check("a.pt", torch, sizeof(torch)));
	ck_ok(check("a.bin", "words", 5));
	ck_ok(check("a.msgpack", "\x80\x04xyz", 5));
	ck_error(check("a.bin", "", 0), ENODATA);
	ck_ok(check("a.npz", "words", 5));
	ck_ok(check("a.keras", "words and more words and more", 29));
	ck_ok(check("a.npy", "words and more", 14));
	ck_ok(check("a.h5", "words", 5));
	ck_ok(check("tokens.bin", "\x80\2\7\0\7\0", 6)); // numbers of two bytes
}
END_TEST

static int check_strictly(const char *name, const void *data, size_t len)
{
	CLEANUP_FD int fd = memfd_create("sample", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	return ckpt_format_check_strictly(fd, name);
}

START_TEST(without_room_a_file_must_begin_as_its_name_promises)
{
	static const char *const promising[] = {"a.npy", "a.npz", "a.zip", "a.h5", "a.keras", "a.safetensors"};
	const struct sample whole[] = {zip_sample("a.npz", false),
				       zip_sample("a.zip", false),
				       zip_sample("a.keras", false),
				       safetensors_sample(),
				       npy_sample(),
				       hdf5_sample(0, 0),
				       hdf5_sample(2, 2048)};

	for (size_t i = 0; i < ARRAY_LEN(promising); i++) {
		ck_error(check_strictly(promising[i], "words and more", 14), EINVAL);
		ck_error(check_strictly(promising[i], "w", 1), EINVAL);
		ck_error(check_strictly(promising[i], "", 0), EINVAL);
	}
	for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
		ck_ok(check_strictly(whole[i].name, whole[i].data, whole[i].len));
		ck_error(check_strictly(whole[i].name, whole[i].data, whole[i].len - 1), EINVAL);
	}
	ck_ok(check_strictly("a.bin", "words", 5));
	ck_error(check_strictly("a.bin", "", 0), EINVAL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("format");
	TCase *t = tcase_create("format");

	tcase_add_test(t, each_format_is_whole_at_its_end_only);
	tcase_add_test(t, a_zip_may_end_in_a_comment);
	tcase_add_test(t, a_zip_whose_directory_is_not_there_is_not_whole);
	tcase_add_test(t, a_zip_whose_directory_ends_behind_all_numbers_is_not_whole);
	tcase_add_test(t, safetensors_are_as_long_as_their_header_says);
	tcase_add_test(t, a_huge_header_of_safetensors_is_not_parsed);
	tcase_add_test(t, arrays_are_as_long_as_their_shape_says);
	tcase_add_test(t, shapes_that_no_file_can_have_are_cut_off);
	tcase_add_test(t, without_room_a_file_must_begin_as_its_name_promises);
	tcase_add_test(t, bytes_may_follow_the_end);
	tcase_add_test(t, hdf5_with_readers_beside_its_writer_is_told_apart);
	tcase_add_test(t, an_array_that_has_only_its_header_is_told_apart);
	tcase_add_test(t, hdf5_that_is_open_for_writing_is_not_whole);
	tcase_add_test(t, what_has_no_end_to_be_told_by_is_taken_as_it_is);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
