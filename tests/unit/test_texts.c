// Texts by number: each has one, however many there are and however often it is asked for.
#include "core/base/texts.h"

#include "tests/support/allocfault.h"
#include "tests/support/suite.h"

#include <stdio.h>

#define FILES 512
#define ARRAYS 10000

static struct ckpt_texts texts;

static void teardown(void)
{
	ckpt_texts_done(&texts);
}

static size_t number_of(const char *text)
{
	size_t number = SIZE_MAX;

	ck_ok(ckpt_texts_number(&texts, text, &number));
	return number;
}

START_TEST(numbers_count_from_0_and_stay)
{
	ck_assert_uint_eq(number_of("a"), 0);
	ck_assert_uint_eq(number_of(""), 1);
	ck_assert_uint_eq(number_of("ab"), 2);
	ck_assert_uint_eq(number_of("a"), 0);
	ck_assert_uint_eq(number_of(""), 1);
	ck_assert_uint_eq(texts.count, 3);
	ck_assert_str_eq(texts.at[2], "ab");
}
END_TEST

// As `rm --arrays` asks for the files of a large step of torch.distributed.checkpoint.
START_TEST(pieces_of_many_arrays_find_their_files)
{
	static char paths[FILES][64];

	for (size_t file = 0; file < FILES; file++)
		snprintf(paths[file], sizeof(paths[file]), "state/__%zu_0.distcp", file);
	for (size_t array = 0; array < ARRAYS; array++)
		for (size_t file = 0; file < FILES; file++) {
			size_t number;

			// Check notes each assertion, and that takes longer.
			if (ckpt_texts_number(&texts, paths[file], &number) || number != file)
				ck_abort_msg("%s", paths[file]);
		}
	ck_assert_uint_eq(texts.count, FILES);
	ck_assert_uint_ge(texts.slot_count, 2 * FILES);
}
END_TEST

START_TEST(many_texts_have_numbers_of_their_own)
{
	char path[64];

	for (unsigned round = 0; round < 2; round++)
		for (size_t i = 0; i < 5000; i++) {
			snprintf(path, sizeof(path), "%zu/.zarray", i);
			ck_assert_uint_eq(number_of(path), i);
		}
}
END_TEST

START_TEST(without_memory_all_is_as_it_was)
{
	char path[64];

	for (size_t i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%zu", i);
		for (uint64_t n = 1;; n++) {
			size_t number, count = texts.count;
			int rc;

			ckpt_allocfault_begin(n, false);
			rc = ckpt_texts_number(&texts, path, &number);
			if (ckpt_allocfault_end() < n) {
				ck_ok(rc);
				ck_assert_uint_eq(number, i);
				ck_assert(n > 1);
				break;
			}
			ck_error(rc, ENOMEM);
			ck_assert_uint_eq(texts.count, count);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("texts");
	TCase *t = tcase_create("texts");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, numbers_count_from_0_and_stay);
	tcase_add_test(t, pieces_of_many_arrays_find_their_files);
	tcase_add_test(t, many_texts_have_numbers_of_their_own);
	tcase_add_test(t, without_memory_all_is_as_it_was);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
