// lookup3 against the values of its author's driver5(), and in parts.
#include "tests/support/suite.h"

#include "core/base/lookup3.h"
#include "core/base/util.h"

static uint32_t sum(const void *bytes, size_t len)
{
	struct ckpt_lookup3 l;

	ckpt_lookup3_begin(&l, len);
	ckpt_lookup3_add(&l, bytes, len);
	return ckpt_lookup3_end(&l);
}

START_TEST(the_sums_are_those_of_its_author)
{
	ck_assert_uint_eq(sum("", 0), 0xdeadbeefu);
	ck_assert_uint_eq(sum("Four score and seven years ago", 30), 0x17770551u);
}
END_TEST

START_TEST(a_sum_of_parts_is_that_of_the_whole)
{
	uint8_t bytes[100];

	for (int i = 0; i < 100; i++)
		bytes[i] = (uint8_t)(i * 37);
	for (size_t len = 1; len <= sizeof(bytes); len++)
		for (size_t cut = 0; cut <= len; cut += CKPT_LOOKUP3_STEP) {
			struct ckpt_lookup3 l;

			ckpt_lookup3_begin(&l, len);
			ckpt_lookup3_add(&l, bytes, cut);
			ckpt_lookup3_add(&l, bytes + cut, len - cut);
			ck_assert_uint_eq(ckpt_lookup3_end(&l), sum(bytes, len));
		}
}
END_TEST

START_TEST(each_byte_counts)
{
	uint8_t bytes[40] = {0};
	const uint32_t zeros = sum(bytes, sizeof(bytes));

	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = 1;
		ck_assert_uint_ne(sum(bytes, sizeof(bytes)), zeros);
		bytes[i] = 0;
	}
	for (size_t len = 0; len < sizeof(bytes); len++)
		ck_assert_uint_ne(sum(bytes, len), zeros);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lookup3");
	TCase *t = tcase_create("lookup3");

	tcase_add_test(t, the_sums_are_those_of_its_author);
	tcase_add_test(t, a_sum_of_parts_is_that_of_the_whole);
	tcase_add_test(t, each_byte_counts);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
