// The layer that makes calls again: which, how often, how long it waits, and which it leaves to its caller.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "backends/backoff.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdio.h>

static int64_t now_ns, slept_ns, longest_ns; // a clock that only sleep moves on
static unsigned sleeps;
static bool cancelled;
static unsigned cancel_at; // the sleep in which it is called off

static int64_t fake_mono(void)
{
	return now_ns;
}

static void fake_sleep(int64_t ns)
{
	now_ns += ns;
	slept_ns += ns;
	longest_ns = MAX(longest_ns, ns);
	if (++sleeps == cancel_at)
		cancelled = true;
}

// A store that fails so often with these, and counts.
static struct {
	int errors[64];
	size_t count, calls;
	bool done_anyway; // the change is made, and its answer lost
} below;

static struct ckpt_objects *mem, *o;

static int next_error(void)
{
	size_t n = below.calls++;

	return n < below.count ? below.errors[n] : 0;
}

static int bad_get(struct ckpt_objects *b, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		   struct ckpt_object *ret_object)
{
	int rc = next_error();

	(void)b;
	return rc ? rc : ckpt_objects_get(mem, key, offset, buf, len, ret_len, ret_object);
}

static int bad_head(struct ckpt_objects *b, const char *key, struct ckpt_object *ret_object)
{
	int rc = next_error();

	(void)b;
	return rc ? rc : ckpt_objects_head(mem, key, ret_object);
}

static int bad_put(struct ckpt_objects *b, const char *key, const void *data, size_t len, bool frees,
		   struct ckpt_object *ret_object)
{
	int rc = next_error();

	(void)b, (void)frees;
	if (rc && below.done_anyway)
		ck_ok(ckpt_objects_put(mem, key, data, len, ret_object));
	return rc ? rc : ckpt_objects_put(mem, key, data, len, ret_object);
}

static int bad_remove(struct ckpt_objects *b, const char *key)
{
	int rc = next_error();

	(void)b;
	if (rc && below.done_anyway)
		ck_ok(ckpt_objects_remove(mem, key));
	return rc ? rc : ckpt_objects_remove(mem, key);
}

struct cut {
	ckpt_objects_list_fn *fn;
	void *arg;
	int left, rc;
};

static int cut_off(void *arg, const char *key, const struct ckpt_object *object)
{
	struct cut *c = arg;

	if (c->rc && !c->left--)
		return c->rc;
	return c->fn(c->arg, key, object);
}

// An error comes after two keys.
static int bad_list(struct ckpt_objects *b, const char *prefix, const char *after, ckpt_objects_list_fn *fn, void *arg)
{
	struct cut c = {fn, arg, 2, next_error()};

	(void)b;
	return ckpt_objects_list(mem, prefix, after, cut_off, &c);
}

static void bad_close(struct ckpt_objects *b)
{
	(void)b;
	ckpt_objects_close(mem);
}

static const struct ckpt_objects_ops bad_ops = {.name = "bad",
						.get = bad_get,
						.head = bad_head,
						.put = bad_put,
						.remove = bad_remove,
						.list = bad_list,
						.close = bad_close};
static struct ckpt_objects bad = {&bad_ops};

static void setup(void)
{
	ckpt_sys.mono_ns = fake_mono;
	ckpt_sys.sleep_ns = fake_sleep;
	now_ns = 1;
	ck_ok(ckpt_mem_new(&mem));
	ck_ok(ckpt_retry_new(&bad, &o));
}

static void teardown(void)
{
	ckpt_objects_close(o);
}

static void fail_with(size_t times, int error)
{
	below.calls = 0;
	below.count = times;
	for (size_t i = 0; i < times; i++)
		below.errors[i] = error;
}

static int put(const char *key)
{
	return ckpt_objects_put(o, key, "x", 1, NULL);
}

static int get(const char *key)
{
	char buf[4];
	size_t got;

	return ckpt_objects_get(o, key, 0, buf, sizeof(buf), &got, NULL);
}

START_TEST(what_may_pass_is_made_again)
{
	static const int errors[] = {-EAGAIN, -EIO, -ETIMEDOUT};
	struct ckpt_object object;

	ck_ok(put("m/x"));
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		fail_with(0, 0);
		for (int n = 0; n < 40; n++) // so that it may be done four times more
			ck_ok(get("m/x"));
		fail_with(1, errors[i]);
		ck_ok(get("m/x"));
		ck_assert_uint_eq(below.calls, 2);
		fail_with(1, errors[i]);
		ck_ok(ckpt_objects_head(o, "m/x", &object));
		fail_with(1, errors[i]);
		ck_ok(ckpt_objects_remove(o, "m/x"));
		fail_with(1, errors[i]);
		ck_ok(put("m/x"));
	}
}
END_TEST

START_TEST(what_is_for_good_is_not)
{
	static const int errors[] = {-ENOENT, -EACCES, -EINVAL, -ENOSPC, -EROFS, -ECANCELED, -ENOMEM};

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		fail_with(1, errors[i]);
		ck_assert_int_eq(get("m/x"), errors[i]);
		ck_assert_uint_eq(below.calls, 1);
	}
	ck_assert_uint_eq(sleeps, 0);
}
END_TEST

START_TEST(an_entry_whose_outcome_is_unknown_goes_to_its_caller)
{
	static const char *const keys[] = {"log/1", "snap/1", "parts/a/1", "probe/1"};

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		fail_with(1, -ETIMEDOUT);
		ck_error(put(keys[i]), ETIMEDOUT);
		ck_assert_uint_eq(below.calls, 1);
		fail_with(1, -EIO);
		ck_error(put(keys[i]), EIO);
		ck_assert_uint_eq(below.calls, 1);
		fail_with(1, -EAGAIN);
		ck_ok(put(keys[i]));
	}
}
END_TEST

START_TEST(a_pack_that_was_there_after_all_is_ones_own)
{
	struct ckpt_object object;

	below.done_anyway = true;
	fail_with(1, -EIO);
	ck_ok(ckpt_objects_put(o, "packs/p", "abc", 3, &object));
	ck_assert_uint_eq(object.bytes, 3);
	ck_assert_uint_eq(below.calls, 3); // put, put, head
	below.done_anyway = false;
	ck_error(put("packs/p"), EEXIST); // without a doubt before: another's
	fail_with(1, -EIO);
	ck_error(put("packs/p"), EEXIST); // of another size
	below.done_anyway = true;
	fail_with(1, -ETIMEDOUT);
	ck_ok(ckpt_objects_remove(o, "packs/p"));
}
END_TEST

START_TEST(busy_at_last_hides_no_doubt)
{
	fail_with(1, -EIO);
	for (size_t i = 1; i < ARRAY_LEN(below.errors); i++)
		below.errors[i] = -EAGAIN;
	below.count = ARRAY_LEN(below.errors);
	ck_error(put("packs/p"), EIO);
	ck_assert_uint_gt(below.calls, 1);
}
END_TEST

static int add(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)object;
	strcat(arg, key + 2);
	return !strcmp(key, "m/stop") ? 7 : 0;
}

START_TEST(a_list_goes_on_where_it_was)
{
	char keys[64] = "";

	for (char c = 'a'; c <= 'f'; c++)
		ck_ok(put((char[]){'m', '/', c, '\0'}));
	fail_with(2, -EAGAIN);
	ck_ok(ckpt_objects_list(o, "m/", NULL, add, keys));
	ck_assert_str_eq(keys, "abcdef");
	ck_assert_uint_eq(below.calls, 3);
	*keys = '\0';
	ck_ok(put("m/stop"));
	fail_with(1, -EAGAIN);
	ck_assert_int_eq(ckpt_objects_list(o, "m/", "m/e", add, keys), 7);
	ck_assert_str_eq(keys, "fstop");
}
END_TEST

START_TEST(waits_grow_and_have_a_limit)
{
	struct ckpt_backoff *b;
	struct ckpt_try t;
	int64_t shorter = INT64_MAX;

	ck_ok(ckpt_backoff_new(&b));
	for (int i = 0; i < 2000; i++)
		t = ckpt_backoff_begin(b, NULL, INT64_C(1000000000000));
	ck_ok(ckpt_backoff_wait(b, &t));
	ck_assert_int_lt(longest_ns, 50000000);
	for (int i = 0; i < 60; i++) {
		longest_ns = 0;
		ck_ok(ckpt_backoff_wait(b, &t));
		shorter = MIN(shorter, longest_ns);
		ck_assert_int_lt(longest_ns, 5000000000);
	}
	ck_assert_int_gt(slept_ns, INT64_C(30000000000)); // of 60 between 0 and 5 s
	ck_assert_int_lt(shorter, 2500000000);            // jitter is full
	ckpt_backoff_free(b);
}
END_TEST

START_TEST(a_store_that_is_down_is_asked_ten_times_and_then_a_fifth_more)
{
	size_t calls = 0;

	for (int i = 0; i < 200; i++) {
		fail_with(64, -EAGAIN);
		ck_error(get("m/x"), EAGAIN);
		calls += below.calls;
	}
	ck_assert_uint_ge(calls, 200 + 10);
	ck_assert_uint_le(calls, 200 + 10 + 40);
}
END_TEST

START_TEST(one_failure_in_ten_costs_one_request_in_ten)
{
	size_t calls = 0;

	ck_ok(put("m/x"));
	for (int i = 0; i < 1000; i++) {
		fail_with(i % 10 == 0, -EAGAIN);
		ck_ok(get("m/x"));
		calls += below.calls;
	}
	ck_assert_uint_eq(calls, 1100);
}
END_TEST

// Those that are made again fail as often as others.
START_TEST(a_store_that_refuses_one_request_in_ten_for_long_fails_no_call)
{
	size_t calls = 0;

	ck_ok(put("m/x"));
	for (int i = 0; i < 10000; i++) {
		fail_with(calls % 10 == 9, -EAGAIN);
		ck_ok(get("m/x"));
		calls += below.calls;
		ck_assert_uint_le(below.calls, 2);
	}
	ck_assert_uint_le(calls, 12000);
	ck_assert_uint_ge(calls, 11100);
}
END_TEST

START_TEST(a_call_ends_by_its_deadline_or_when_it_is_called_off)
{
	char buf[4];
	struct ckpt_range range = {.len = 4, .buf = buf};
	struct ckpt_until until = {.deadline_ns = now_ns + 1000000};

	fail_with(64, -EAGAIN);
	ck_error(ckpt_objects_get_ranges(o, "m/x", &range, 1, &until, NULL), EAGAIN);
	ck_assert_int_le(now_ns, until.deadline_ns);
	until = (struct ckpt_until){.cancelled = &cancelled};
	cancel_at = sleeps + 1;
	fail_with(64, -EAGAIN);
	ck_error(ckpt_objects_get_ranges(o, "m/x", &range, 1, &until, NULL), ECANCELED);
	ck_assert_int_le(longest_ns, 50000000);
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&what_may_pass_is_made_again,
		&what_is_for_good_is_not,
		&an_entry_whose_outcome_is_unknown_goes_to_its_caller,
		&a_pack_that_was_there_after_all_is_ones_own,
		&busy_at_last_hides_no_doubt,
		&a_list_goes_on_where_it_was,
		&waits_grow_and_have_a_limit,
		&a_store_that_is_down_is_asked_ten_times_and_then_a_fifth_more,
		&one_failure_in_ten_costs_one_request_in_ten,
		&a_store_that_refuses_one_request_in_ten_for_long_fails_no_call,
		&a_call_ends_by_its_deadline_or_when_it_is_called_off,
	};
	Suite *suite = suite_create("retry");
	TCase *tcase = tcase_create("retry");

	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(tcase, *tests[i]);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
