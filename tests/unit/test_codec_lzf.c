// LZF: blocks written by hand, each byte at its extremes, and blocks that are cut off. Those of h5py are in
// tests/interop/test_catalog_hdf5.py.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/codec/codec_lzf.h"

#define MOST 4096

static int decode(const uint8_t *block, size_t len, char *plain, size_t *ret_bytes)
{
	int rc = ckpt_lzf_bytes(block, len, MOST, ret_bytes);

	return rc ? rc : ckpt_lzf_decode(block, len, plain, *ret_bytes);
}

static const struct {
	const char *block, *plain;
	size_t len;
} rows[] = {
	{"", "", 0},
	{"\0a", "a", 2},
	{"\2abc\x20\2", "abcabc", 6},      // three bytes, three before
	{"\0a\xc0\0", "aaaaaaaaa", 4},     // a match into itself
	{"\0a\xe0\1\0", "aaaaaaaaaaa", 5}, // 7 + 1 + 2
	{"\3abcd\x40\1\0e", "abcdcdcde", 9},
};

START_TEST(blocks_are_decoded)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char plain[MOST];
		size_t bytes;

		ck_assert_int_eq(decode((const uint8_t *)rows[i].block, rows[i].len, plain, &bytes), 0);
		ck_assert_uint_eq(bytes, strlen(rows[i].plain));
		ck_assert(!memcmp(plain, rows[i].plain, bytes));
	}
}
END_TEST

START_TEST(a_block_that_breaks_a_rule_is_refused)
{
	static const struct {
		const char *block;
		size_t len;
	} bad[] = {
		{"\1a", 2},                        // one literal is missing
		{"\0", 1},                         // all are
		{"\0a\x20", 3},                    // the distance is
		{"\0a\xe0\1", 4},   {"\x20\0", 2}, // a match with nothing before it
		{"\0a\x20\1", 4},                  // it begins before the first byte
		{"\0a\x3f\xff", 4},
	};
	char plain[MOST];
	size_t bytes;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(decode((const uint8_t *)bad[i].block, bad[i].len, plain, &bytes) == -EBADMSG, "%zu", i);
}
END_TEST

START_TEST(no_more_is_decoded_than_is_asked_for)
{
	static const uint8_t block[] = {0, 'a', 0xe0, 255, 0}; // 1 + 264 bytes
	char plain[300];
	size_t bytes;

	ck_assert_int_eq(ckpt_lzf_bytes(block, sizeof(block), 264, &bytes), -EBADMSG);
	ck_assert_int_eq(ckpt_lzf_bytes(block, sizeof(block), 265, &bytes), 0);
	ck_assert_uint_eq(bytes, 265);
	memset(plain, 'x', sizeof(plain));
	ck_assert_int_eq(ckpt_lzf_decode(block, sizeof(block), plain, 264), -EBADMSG);
	ck_assert_int_eq(plain[264], 'x');
	ck_assert_int_eq(ckpt_lzf_decode(block, sizeof(block), plain, 266), -EBADMSG);
	ck_assert_int_eq(plain[265], 'x');
}
END_TEST

// Whatever the bytes are: nothing outside of the two buffers, which the sanitizer knows.
START_TEST(each_byte_at_its_extremes_ends_well)
{
	static const uint8_t values[] = {0, 1, 31, 32, 0x7f, 0xdf, 0xe0, 0xff};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (size_t len = 1; len <= rows[i].len; len++)
			for (size_t at = 0; at < len * ARRAY_LEN(values); at++) {
				CLEANUP_FREE uint8_t *block = malloc(len);
				CLEANUP_FREE char *plain = NULL;
				size_t bytes;

				ck_assert_ptr_nonnull(block);
				memcpy(block, rows[i].block, len);
				block[at / ARRAY_LEN(values)] = values[at % ARRAY_LEN(values)];
				if (ckpt_lzf_bytes(block, len, MOST, &bytes))
					continue;
				plain = malloc(MAX(bytes, (size_t)1));
				ck_assert_ptr_nonnull(plain);
				(void)ckpt_lzf_decode(block, len, plain, bytes);
			}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("codec_lzf");
	TCase *t = tcase_create("codec_lzf");

	tcase_add_test(t, blocks_are_decoded);
	tcase_add_test(t, a_block_that_breaks_a_rule_is_refused);
	tcase_add_test(t, no_more_is_decoded_than_is_asked_for);
	tcase_add_test(t, each_byte_at_its_extremes_ends_well);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
