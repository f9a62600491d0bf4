// Packs in use: pinned and condemned exclude each other, whoever comes first, and what was pinned during a collection stays.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/cold/pack_pins.h"

#include <pthread.h>

static struct ckpt_pack_pins *pins;
static const uint8_t a[CKPT_SHA256_LEN] = {1}, b[CKPT_SHA256_LEN] = {1, [31] = 1};

static void setup(void)
{
	ck_ok(ckpt_pack_pins_new(&pins));
}

static void teardown(void)
{
	ckpt_pack_pins_free(pins);
}

START_TEST(what_is_pinned_is_not_condemned_until_the_last_pin_goes)
{
	ck_ok(ckpt_pack_pin(pins, a));
	ck_ok(ckpt_pack_pin(pins, a));
	ck_error(ckpt_pack_condemn(pins, a), EBUSY);
	ck_ok(ckpt_pack_condemn(pins, b));
	ckpt_pack_unpin(pins, a);
	ck_error(ckpt_pack_condemn(pins, a), EBUSY);
	ckpt_pack_unpin(pins, a);
	ck_assert(!ckpt_pack_is_pinned(pins, a));
	ck_ok(ckpt_pack_condemn(pins, a));
}
END_TEST

START_TEST(what_is_condemned_is_not_pinned_until_it_is_gone)
{
	ck_ok(ckpt_pack_condemn(pins, a));
	ck_error(ckpt_pack_condemn(pins, a), EALREADY);
	ck_error(ckpt_pack_pin(pins, a), ESTALE);
	ck_assert(!ckpt_pack_is_pinned(pins, a));
	ckpt_pack_condemned_end(pins, a, true); // it may go still
	ck_error(ckpt_pack_pin(pins, a), ESTALE);
	ck_ok(ckpt_pack_condemn(pins, a)); // and is tried again
	ckpt_pack_condemned_end(pins, a, false);
	ck_ok(ckpt_pack_pin(pins, a));
	ckpt_pack_unpin(pins, a);
}
END_TEST

START_TEST(what_is_spared_is_as_it_was_before)
{
	ck_ok(ckpt_pack_condemn(pins, a));
	ckpt_pack_spare(pins, a);
	ck_ok(ckpt_pack_pin(pins, a));
	ckpt_pack_unpin(pins, a);
	ck_ok(ckpt_pack_condemn(pins, b));
	ckpt_pack_condemned_end(pins, b, true); // it may go still
	ck_ok(ckpt_pack_condemn(pins, b));
	ckpt_pack_spare(pins, b);
	ck_error(ckpt_pack_pin(pins, b), ESTALE);
}
END_TEST

// Its version may be applied since the collection has read what is needed.
START_TEST(what_was_pinned_during_a_collection_counts_to_the_end_of_all)
{
	ck_ok(ckpt_pack_pin(pins, a));
	ckpt_pack_pins_begin(pins);
	ck_ok(ckpt_pack_pin(pins, b));
	ckpt_pack_unpin(pins, a);
	ckpt_pack_unpin(pins, b);
	ckpt_pack_pins_begin(pins);
	ckpt_pack_pins_end(pins);
	ck_assert(ckpt_pack_is_pinned(pins, a) && ckpt_pack_is_pinned(pins, b));
	ck_error(ckpt_pack_condemn(pins, a), EBUSY);
	ck_error(ckpt_pack_condemn(pins, b), EBUSY);
	ckpt_pack_pins_end(pins);
	ck_assert(!ckpt_pack_is_pinned(pins, a) && !ckpt_pack_is_pinned(pins, b));
	ck_ok(ckpt_pack_condemn(pins, a));
}
END_TEST

START_TEST(an_act_condemns_what_it_has_put_if_nobody_else_has_found_it)
{
	ck_ok(ckpt_pack_pin(pins, a));
	ck_assert(ckpt_pack_condemn_own(pins, a));
	ck_error(ckpt_pack_pin(pins, a), ESTALE);
	ckpt_pack_condemned_end(pins, a, false);
	ck_ok(ckpt_pack_pin(pins, b));
	ck_ok(ckpt_pack_pin(pins, b));
	ckpt_pack_unpin(pins, b); // and has named it meanwhile
	ck_assert(!ckpt_pack_condemn_own(pins, b));
	ck_assert(ckpt_pack_is_pinned(pins, b));
	ckpt_pack_unpin(pins, b);
}
END_TEST

START_TEST(there_may_be_many)
{
	enum { MANY = 5000 };
	uint8_t names[MANY][CKPT_SHA256_LEN];

	for (size_t i = 0; i < MANY; i++) {
		uint64_t number = i;

		ckpt_sha256(&number, sizeof(number), names[i]);
		ck_ok(i % 3 ? ckpt_pack_pin(pins, names[i]) : ckpt_pack_condemn(pins, names[i]));
	}
	for (size_t i = 0; i < MANY; i++) {
		ck_assert(ckpt_pack_is_pinned(pins, names[i]) == (i % 3 > 0));
		if (i % 3)
			ckpt_pack_unpin(pins, names[i]);
		else
			ckpt_pack_condemned_end(pins, names[i], false);
		ck_assert(!ckpt_pack_is_pinned(pins, names[i]));
	}
}
END_TEST

static unsigned holders, removers; // atomic; of one pack
static bool ended;                 // atomic

static void *pin_often(void *arg __attribute__((unused)))
{
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
		if (ckpt_pack_pin(pins, a))
			continue;
		__atomic_add_fetch(&holders, 1, __ATOMIC_SEQ_CST);
		ck_assert_uint_eq(__atomic_load_n(&removers, __ATOMIC_SEQ_CST), 0);
		__atomic_sub_fetch(&holders, 1, __ATOMIC_SEQ_CST);
		ckpt_pack_unpin(pins, a);
	}
	return NULL;
}

static void *condemn_often(void *arg __attribute__((unused)))
{
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
		ckpt_pack_pins_begin(pins);
		if (!ckpt_pack_condemn(pins, a)) {
			__atomic_add_fetch(&removers, 1, __ATOMIC_SEQ_CST);
			ck_assert_uint_eq(__atomic_load_n(&holders, __ATOMIC_SEQ_CST), 0);
			__atomic_sub_fetch(&removers, 1, __ATOMIC_SEQ_CST);
			ckpt_pack_condemned_end(pins, a, false);
		}
		ckpt_pack_pins_end(pins);
	}
	return NULL;
}

START_TEST(nobody_holds_what_is_removed)
{
	pthread_t threads[4];

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		ck_assert(!pthread_create(&threads[i], NULL, i % 2 ? pin_often : condemn_often, NULL));
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	__atomic_store_n(&ended, true, __ATOMIC_RELAXED);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		ck_assert(!pthread_join(threads[i], NULL));
	ck_ok(ckpt_pack_condemn(pins, a));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pack pins");
	TCase *tcase = tcase_create("pins");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_pinned_is_not_condemned_until_the_last_pin_goes);
	tcase_add_test(tcase, what_is_condemned_is_not_pinned_until_it_is_gone);
	tcase_add_test(tcase, what_is_spared_is_as_it_was_before);
	tcase_add_test(tcase, what_was_pinned_during_a_collection_counts_to_the_end_of_all);
	tcase_add_test(tcase, an_act_condemns_what_it_has_put_if_nobody_else_has_found_it);
	tcase_add_test(tcase, there_may_be_many);
	tcase_add_test(tcase, nobody_holds_what_is_removed);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
