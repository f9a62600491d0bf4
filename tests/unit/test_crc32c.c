// CRC-32C against the values of RFC 3720, B.4, and in parts.
#include "tests/support/suite.h"

#include "core/base/crc32c.h"

#include <string.h>

START_TEST(the_sums_are_those_of_the_rfc)
{
	uint8_t bytes[32] = {0};

	ck_assert_uint_eq(ckpt_crc32c(0, "123456789", 9), 0xe3069283u);
	ck_assert_uint_eq(ckpt_crc32c(0, bytes, 32), 0x8a9136aau);
	memset(bytes, 0xff, sizeof(bytes));
	ck_assert_uint_eq(ckpt_crc32c(0, bytes, 32), 0x62a8ab43u);
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	ck_assert_uint_eq(ckpt_crc32c(0, bytes, 32), 0x46dd794eu);
	ck_assert_uint_eq(ckpt_crc32c(0, bytes, 0), 0);
}
END_TEST

START_TEST(a_sum_of_parts_is_that_of_the_whole)
{
	uint8_t bytes[100];

	for (int i = 0; i < 100; i++)
		bytes[i] = (uint8_t)(i * 37);
	for (size_t cut = 0; cut <= sizeof(bytes); cut++)
		ck_assert_uint_eq(ckpt_crc32c(ckpt_crc32c(0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
				  ckpt_crc32c(0, bytes, sizeof(bytes)));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("crc32c");
	TCase *t = tcase_create("crc32c");

	tcase_add_test(t, the_sums_are_those_of_the_rfc);
	tcase_add_test(t, a_sum_of_parts_is_that_of_the_whole);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
