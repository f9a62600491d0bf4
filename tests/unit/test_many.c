// Calls that are made several at a time: each item has one, not too many are under way, and all have ended when it returns.
#include "tests/support/suite.h"

#include "core/base/many.h"
#include "core/base/util.h"

#include <stdatomic.h>

#define ITEMS 1000

static _Atomic unsigned calls[ITEMS], under_way, most;

static void call(void *arg, size_t i)
{
	unsigned now = atomic_fetch_add(&under_way, 1) + 1, seen = atomic_load(&most);

	(void)arg;
	while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
		;
	atomic_fetch_add(&calls[i], 1);
	atomic_fetch_sub(&under_way, 1);
}

START_TEST(each_item_has_one_call)
{
	const struct ckpt_many many = {.count = (size_t)_i, .at_once = _i % 7 ? 4 : 1, .call = call};

	ck_assert(ckpt_many_run(&many));
	ck_assert_uint_eq(under_way, 0);
	ck_assert_uint_le(most, many.at_once);
	for (size_t i = 0; i < ITEMS; i++)
		ck_assert_uint_eq(calls[i], i < (size_t)_i);
}
END_TEST

static bool ten_times(void *arg)
{
	return ++*(unsigned *)arg < 10;
}

START_TEST(none_begins_after_a_no)
{
	unsigned asked = 0, made = 0;
	const struct ckpt_many many = {.count = ITEMS, .at_once = 1, .call = call, .go_on = ten_times, .arg = &asked};

	ck_assert(!ckpt_many_run(&many));
	for (size_t i = 0; i < ITEMS; i++)
		made += calls[i];
	ck_assert_uint_eq(made, 9);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("many");
	TCase *tcase = tcase_create("many");

	tcase_add_loop_test(tcase, each_item_has_one_call, 0, 50);
	tcase_add_test(tcase, none_begins_after_a_no);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
