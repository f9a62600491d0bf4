// Sets of keys: each is new once, however many there are, and of however many words.
#include "core/base/keys.h"

#include "tests/support/allocfault.h"
#include "tests/support/suite.h"

#define MANY 20000

static struct ckpt_keys keys;

static void teardown(void)
{
	ckpt_keys_done(&keys);
}

static bool is_new(const uint64_t *key, size_t words)
{
	bool added;

	ck_ok(ckpt_keys_add(&keys, key, words, &added));
	return added;
}

START_TEST(a_key_is_new_once)
{
	for (unsigned round = 0; round < 2; round++)
		for (uint64_t i = 1; i <= MANY; i++) {
			const uint64_t packed = i << 32;

			ck_assert_int_eq(is_new(&packed, 1), !round);
		}
	ck_assert_uint_eq(keys.count, MANY);
	ck_assert_uint_ge(keys.cap, 2 * MANY);
}
END_TEST

START_TEST(keys_that_differ_in_any_word_are_two)
{
	uint64_t key[] = {0, 0, 0, 0, 32};

	ck_assert(is_new(key, 5) && !is_new(key, 5));
	for (unsigned word = 0; word < 5; word++)
		for (unsigned bit = 0; bit < 64; bit++) {
			key[word] ^= UINT64_C(1) << bit;
			if (key[4])
				ck_assert(is_new(key, 5) && !is_new(key, 5));
			key[word] ^= UINT64_C(1) << bit;
		}
	ck_assert(!is_new(key, 5));
	ck_assert_uint_eq(keys.count, 5 * 64);
}
END_TEST

START_TEST(without_memory_a_set_stays_as_it_was)
{
	uint64_t key = 1;
	bool added;
	int rc;

	while (keys.count * 2 < keys.cap || !keys.cap) {
		ck_assert(is_new(&key, 1));
		key++;
	}
	ckpt_allocfault_begin(1, false);
	rc = ckpt_keys_add(&keys, &key, 1, &added);
	(void)ckpt_allocfault_end();
	ck_error(rc, ENOMEM);
	ck_assert_uint_eq(keys.count, key - 1);
	for (uint64_t i = 1; i < key; i++)
		ck_assert(!is_new(&i, 1));
	ck_assert(is_new(&key, 1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keys");
	TCase *tcase = tcase_create("keys");

	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, a_key_is_new_once);
	tcase_add_test(tcase, keys_that_differ_in_any_word_are_two);
	tcase_add_test(tcase, without_memory_a_set_stays_as_it_was);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
