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
	tcase_add_test(tcase, hex_writes_two_digits_a_byte);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(hash_suite());
}
