// Where files are cut: the same array gives the same chunks wherever it stands, and small ones do not make many.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/cold/chunk.h"

#include <stdio.h>

#define MIN_BYTES ((uint64_t)CKPT_CHUNK_ARRAY_MIN)
#define CHUNK ((uint64_t)CKPT_CHUNK_BYTES)

static struct ckpt_bytes file;

static void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
}

// A file of safetensors with arrays of u8, called w0, w1 ... in order. note makes the header longer. Where the first begins.
static uint64_t make(const uint64_t *bytes, size_t count, const char *note)
{
	uint64_t end = 0;
	char member[256];

	file.len = 0;
	ckpt_bytes_number(&file, 0, 8);
	snprintf(member, sizeof(member), "{\"__metadata__\":{\"note\":\"%s\"}", note);
	ckpt_bytes_text(&file, member);
	for (size_t i = 0; i < count; i++) {
		snprintf(member, sizeof(member),
			 ",\"w%zu\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}", i,
			 (unsigned long long)bytes[i], (unsigned long long)end, (unsigned long long)(end + bytes[i]));
		ckpt_bytes_text(&file, member);
		end += bytes[i];
	}
	ckpt_bytes_text(&file, "}");
	ckpt_put64(file.data, file.len - 8);
	file.zeros_at = file.len;
	file.zeros = end;
	return file.len;
}

// The lengths of the chunks, which are so many.
static void check_cuts(const uint64_t *want, size_t count)
{
	const struct ckpt_source s = ckpt_bytes_source(&file);
	struct ckpt_cuts cuts;
	uint64_t at = 0;

	ckpt_walk_cuts(&s);
	ck_ok(ckpt_cuts_init(&cuts, &s));
	for (size_t i = 0; i < count; i++) {
		uint32_t len;

		ck_assert_msg(at < s.bytes, "there are only %zu chunks", i);
		len = ckpt_cuts_next(&cuts, at);
		ck_assert_msg(len == want[i], "chunk %zu has %u bytes, not %llu", i, len, (unsigned long long)want[i]);
		at += len;
	}
	ck_assert_uint_eq(at, s.bytes);
	ckpt_cuts_done(&cuts);
}

#define CHECK_CUTS(...) check_cuts((const uint64_t[]){__VA_ARGS__}, ARRAY_LEN(((const uint64_t[]){__VA_ARGS__})))

START_TEST(a_file_of_no_known_format_is_cut_every_4_mib)
{
	ckpt_bytes_text(&file, "some words, and then");
	file.zeros_at = file.len;
	CHECK_CUTS(file.len);
	file.zeros = CHUNK - file.len;
	CHECK_CUTS(CHUNK);
	file.zeros++;
	CHECK_CUTS(CHUNK, 1);
	file.zeros += 2 * CHUNK + 6;
	CHECK_CUTS(CHUNK, CHUNK, CHUNK, 7);
}
END_TEST

START_TEST(chunks_begin_with_each_array)
{
	const uint64_t arrays[] = {2 * CHUNK + 5, MIN_BYTES, CHUNK, CHUNK + 1};
	uint64_t header = make(arrays, ARRAY_LEN(arrays), "");

	CHECK_CUTS(header, CHUNK, CHUNK, 5, MIN_BYTES, CHUNK, CHUNK, 1);
}
END_TEST

START_TEST(what_is_small_is_gathered)
{
	const uint64_t arrays[] = {1, MIN_BYTES - 1, CHUNK, MIN_BYTES - 1, 0, 3, 0, 5, MIN_BYTES, 0, 7};
	uint64_t header = make(arrays, ARRAY_LEN(arrays), "");

	CHECK_CUTS(header + MIN_BYTES, CHUNK, MIN_BYTES - 1 + 8, MIN_BYTES, 7);
}
END_TEST

START_TEST(many_small_ones_make_no_more_chunks_than_their_bytes)
{
	enum { COUNT = 200 };
	uint64_t arrays[COUNT], bytes = COUNT * (MIN_BYTES - 1);
	uint64_t header;

	for (size_t i = 0; i < COUNT; i++)
		arrays[i] = MIN_BYTES - 1;
	header = make(arrays, COUNT, "");
	CHECK_CUTS(CHUNK, CHUNK, CHUNK, bytes + header - 3 * CHUNK);
}
END_TEST

// For a small file nothing is read: there are many.
START_TEST(a_file_that_is_smaller_than_any_large_array_is_not_looked_at)
{
	const uint64_t arrays[] = {100, 200};

	uint64_t header = make(arrays, ARRAY_LEN(arrays), "");
	const struct ckpt_source s = ckpt_bytes_source(&file);
	struct ckpt_cuts cuts;

	ck_ok(ckpt_cuts_init(&cuts, &s));
	ck_assert_uint_eq(ckpt_cuts_next(&cuts, 0), header + 300);
	ck_assert_uint_eq(file.reads, 0);
	ckpt_cuts_done(&cuts);
}
END_TEST

// What it is all for: where an array begins and what is around it says nothing of its chunks.
START_TEST(an_array_is_cut_in_the_same_way_wherever_it_stands)
{
	const uint64_t frozen = 3 * CHUNK + 77;
	const uint64_t first[] = {10, frozen, 20}, second[] = {CHUNK + 3, 5, frozen};

	for (int which = 0; which < 2; which++) {
		uint64_t at = which ? make(second, 3, "another header") + CHUNK + 8 : make(first, 3, "") + 10;
		const struct ckpt_source s = ckpt_bytes_source(&file);
		struct ckpt_cuts cuts;
		uint64_t place = 0;

		ck_ok(ckpt_cuts_init(&cuts, &s));
		while (place < at)
			place += ckpt_cuts_next(&cuts, place);
		ck_assert_uint_eq(place, at);
		for (int i = 0; i < 3; i++) {
			ck_assert_uint_eq(ckpt_cuts_next(&cuts, place), CHUNK);
			place += CHUNK;
		}
		ck_assert_uint_eq(ckpt_cuts_next(&cuts, place), 77);
		ckpt_cuts_done(&cuts);
	}
}
END_TEST

// The walk has the bound.
START_TEST(there_are_never_more_chunks_than_the_header_says)
{
	struct ckpt_source s;
	uint64_t random = 1;

	for (int i = 0; i < 300; i++) {
		uint64_t arrays[40];
		size_t count = ckpt_sample_random(&random, ARRAY_LEN(arrays) + 1);

		for (size_t k = 0; k < count; k++)
			arrays[k] =
				ckpt_sample_random(&random, ckpt_sample_random(&random, 2) ? 3 * CHUNK : 2 * MIN_BYTES);
		make(arrays, count, "");
		s = ckpt_bytes_source(&file);
		ckpt_walk_cuts(&s);
	}
}
END_TEST

START_TEST(what_cannot_be_read_or_kept_is_told)
{
	const uint64_t arrays[] = {CHUNK, CHUNK};
	struct ckpt_source s;
	struct ckpt_cuts cuts;

	make(arrays, ARRAY_LEN(arrays), "");
	s = ckpt_bytes_source(&file);
	for (file.fails_at = 1; file.fails_at <= 3; file.fails_at++) {
		file.reads = 0;
		ck_error(ckpt_cuts_init(&cuts, &s), EIO);
		ckpt_cuts_done(&cuts);
	}
	file.fails_at = 0;
	for (uint64_t n = 1;; n++) {
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_cuts_init(&cuts, &s);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			ckpt_cuts_done(&cuts);
			ck_assert_uint_gt(n, 5);
			return;
		}
		ck_error(rc, ENOMEM);
		ckpt_cuts_done(&cuts);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("chunk");
	TCase *tcase = tcase_create("chunk");

	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, a_file_of_no_known_format_is_cut_every_4_mib);
	tcase_add_test(tcase, chunks_begin_with_each_array);
	tcase_add_test(tcase, what_is_small_is_gathered);
	tcase_add_test(tcase, many_small_ones_make_no_more_chunks_than_their_bytes);
	tcase_add_test(tcase, a_file_that_is_smaller_than_any_large_array_is_not_looked_at);
	tcase_add_test(tcase, an_array_is_cut_in_the_same_way_wherever_it_stands);
	tcase_add_test(tcase, there_are_never_more_chunks_than_the_header_says);
	tcase_add_test(tcase, what_cannot_be_read_or_kept_is_told);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
