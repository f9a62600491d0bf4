// Parts of a range, in any order: beside a map of its bytes.
#include "core/base/extents.h"

#include "core/base/util.h"
#include "tests/support/allocfault.h"
#include "tests/support/suite.h"

#define BYTES 64
#define ROUNDS 100
#define MANY SIZE_MAX

static struct ckpt_extents extents;

static void teardown(void)
{
	ckpt_extents_done(&extents);
}

static void add(uint64_t begin, uint64_t end)
{
	ck_ok(ckpt_extents_add(&extents, begin, end, MANY));
}

static bool map_covers(const bool *map, uint64_t begin, uint64_t end)
{
	for (uint64_t i = begin; i < end; i++)
		if (!map[i])
			return false;
	return true;
}

static void check(const bool *map)
{
	for (uint64_t begin = 0; begin < BYTES; begin++)
		for (uint64_t end = begin; end <= BYTES; end++)
			if (ckpt_extents_cover(&extents, begin, end) != map_covers(map, begin, end))
				ck_abort_msg("%u to %u", (unsigned)begin, (unsigned)end);
	for (size_t i = 0; i < extents.count; i++) {
		ck_assert_uint_lt(extents.list[i].begin, extents.list[i].end);
		if (i)
			ck_assert_uint_lt(extents.list[i - 1].end, extents.list[i].begin);
	}
}

START_TEST(parts_in_any_order_cover_what_a_map_of_bytes_says)
{
	unsigned seed = 7;

	for (unsigned round = 0; round < ROUNDS; round++) {
		bool map[BYTES] = {0};

		for (unsigned i = 0; i < 10; i++) {
			uint64_t begin = (unsigned)rand_r(&seed) % BYTES, len = (unsigned)rand_r(&seed) % 9;
			uint64_t end = MIN(begin + len, (uint64_t)BYTES);

			add(begin, end);
			memset(map + begin, true, end - begin);
			check(map);
		}
		ckpt_extents_done(&extents);
	}
}
END_TEST

START_TEST(whole_only_once_the_last_byte_was_added)
{
	add(0, 10);
	add(11, 20);
	ck_assert(!ckpt_extents_cover(&extents, 0, 20));
	add(10, 10);
	ck_assert(!ckpt_extents_cover(&extents, 0, 20));
	add(10, 11);
	ck_assert(ckpt_extents_cover(&extents, 0, 20) && !ckpt_extents_cover(&extents, 0, 21));
	ck_assert_uint_eq(extents.count, 1);
	add(UINT64_MAX - 1, UINT64_MAX);
	ck_assert(ckpt_extents_cover(&extents, UINT64_MAX - 1, UINT64_MAX));
}
END_TEST

START_TEST(no_more_parts_than_the_limit_but_those_that_join)
{
	ck_ok(ckpt_extents_add(&extents, 0, 1, 2));
	ck_ok(ckpt_extents_add(&extents, 10, 11, 2));
	ck_assert_int_eq(ckpt_extents_add(&extents, 5, 6, 2), -E2BIG);
	ck_assert(!ckpt_extents_cover(&extents, 5, 6));
	ck_ok(ckpt_extents_add(&extents, 1, 10, 2));
	ck_assert(ckpt_extents_cover(&extents, 0, 11));
	ck_ok(ckpt_extents_add(&extents, 20, 21, 2));
}
END_TEST

START_TEST(part_for_which_there_is_no_memory_is_not_added)
{
	int rc;

	ckpt_allocfault_begin(1, false);
	rc = ckpt_extents_add(&extents, 3, 4, MANY);
	(void)ckpt_allocfault_end();
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert(!ckpt_extents_cover(&extents, 3, 4));
	add(3, 4);
	ck_assert(ckpt_extents_cover(&extents, 3, 4));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("extents");
	TCase *tcase = tcase_create("extents");

	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, parts_in_any_order_cover_what_a_map_of_bytes_says);
	tcase_add_test(tcase, whole_only_once_the_last_byte_was_added);
	tcase_add_test(tcase, no_more_parts_than_the_limit_but_those_that_join);
	tcase_add_test(tcase, part_for_which_there_is_no_memory_is_not_added);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
