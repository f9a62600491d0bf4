// core/base/hash.h against the vectors of FIPS 180-2.
#include "tests/support/suite.h"

#include "core/base/hash.h"
#include "core/base/util.h"

static void assert_sha256(const void *data, size_t len, const char *expected)
{
	uint8_t digest[CKPT_SHA256_LEN];
	char hex[CKPT_SHA256_HEX_LEN + 1];

	ckpt_sha256(data, len, digest);
	ckpt_hex(digest, sizeof(digest), hex);
	ck_assert_str_eq(hex, expected);
}

START_TEST(sha256_gives_the_digests_of_the_standard)
{
	CLEANUP_FREE char *million = malloc(1000000);

	ck_assert_ptr_nonnull(million);
	memset(million, 'a', 1000000);
	assert_sha256(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	assert_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_sha256(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

static void assert_same(struct ckpt_sha256 *is, const void *data, size_t len)
{
	uint8_t digest[CKPT_SHA256_LEN], expected[CKPT_SHA256_LEN];

	ckpt_sha256_end(is, digest);
	ckpt_sha256(data, len, expected);
	ck_assert_mem_eq(digest, expected, sizeof(digest));
}

// Each has had other bytes before, so that their blocks begin at different ones; the last byte goes to both alone.
START_TEST(two_sums_at_once_are_those_of_each_alone)
{
	static const size_t before[] = {0, 1, 55, 63, 64, 100}, lens[] = {1, 255, 256, 257, 319, 320, 1000, 4096};
	uint8_t one[5000], two[5000];

	for (size_t i = 0; i < sizeof(one); i++) {
		one[i] = (uint8_t)(i * i >> 3);
		two[i] = (uint8_t)(i * 7 + (i >> 8));
	}
	for (size_t i = 0; i < ARRAY_LEN(before) * ARRAY_LEN(before); i++)
		for (size_t k = 0; k < ARRAY_LEN(lens) * ARRAY_LEN(lens); k++) {
			size_t a = before[i / ARRAY_LEN(before)], b = before[i % ARRAY_LEN(before)];
			size_t a_len = lens[k / ARRAY_LEN(lens)], b_len = lens[k % ARRAY_LEN(lens)];
			const uint8_t *other = i % 3 ? two : one; // also the same bytes
			struct ckpt_sha256 sum, other_sum;

			ckpt_sha256_begin(&sum);
			ckpt_sha256_begin(&other_sum);
			ckpt_sha256_add(&sum, one, a);
			ckpt_sha256_add(&other_sum, other, b);
			ckpt_sha256_add_both(&sum, one + a, a_len, &other_sum, other + b, b_len);
			ckpt_sha256_add_both(&sum, one + a + a_len, 1, &other_sum, other + b + b_len, 1);
			assert_same(&sum, one, a + a_len + 1);
			assert_same(&other_sum, other, b + b_len + 1);
		}
}
END_TEST

// A sum counts its bits in two words, the first of which is full after 512 MiB.
START_TEST(two_long_sums_at_once_are_those_of_each_alone)
{
	static uint8_t data[1 << 20];
	struct ckpt_sha256 one, two, expected;
	uint8_t digest[CKPT_SHA256_LEN], is[CKPT_SHA256_LEN];

	ckpt_sha256_begin(&one);
	ckpt_sha256_begin(&two);
	ckpt_sha256_begin(&expected);
	for (int i = 0; i < 513; i++) {
		ckpt_sha256_add_both(&one, data, sizeof(data), &two, data, sizeof(data));
		ckpt_sha256_add(&expected, data, sizeof(data));
	}
	ckpt_sha256_end(&expected, digest);
	ckpt_sha256_end(&one, is);
	ck_assert_mem_eq(is, digest, sizeof(is));
	ckpt_sha256_end(&two, is);
	ck_assert_mem_eq(is, digest, sizeof(is));
}
END_TEST

START_TEST(hex_writes_two_digits_a_byte)
{
	static const uint8_t bytes[] = {0x00, 0x0f, 0xa5, 0xff};
	char hex[9];

	ckpt_hex(bytes, sizeof(bytes), hex);
	ck_assert_str_eq(hex, "000fa5ff");
	ckpt_hex(NULL, 0, hex);
	ck_assert_str_eq(hex, "");
}
END_TEST

static Suite *hash_suite(void)
{
	Suite *suite = suite_create("hash");
	TCase *tcase = tcase_create("hash");

	tcase_add_test(tcase, sha256_gives_the_digests_of_the_standard);
	tcase_add_test(tcase, two_sums_at_once_are_those_of_each_alone);
	tcase_add_test(tcase, two_long_sums_at_once_are_those_of_each_alone);
	tcase_add_test(tcase, hex_writes_two_digits_a_byte);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(hash_suite());
}
