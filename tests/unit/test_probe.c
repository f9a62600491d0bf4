// The probe of a store of objects: what does as a log needs passes, and each way not to is named.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/objects/probe.h"

#include <unistd.h>

// A store that breaks one promise, in front of one that keeps all.
enum flaw { NONE, OVERWRITES, DROPS, LAST_WINS, ALL_WIN, LISTS_NOTHING, REFUSES, KEEPS };

static struct flawed {
	struct ckpt_objects base;
	struct ckpt_objects *below;
	enum flaw flaw;
	unsigned puts, at_once; // atomic
	struct ckpt_lock lock;
} flawed;

static int flawed_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		      struct ckpt_object *ret_object)
{
	(void)o;
	return flawed.flaw == DROPS ? -ENOENT
				    : ckpt_objects_get(flawed.below, key, offset, buf, len, ret_len, ret_object);
}

static int flawed_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	(void)o;
	return ckpt_objects_head(flawed.below, key, ret_object);
}

static int flawed_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		      struct ckpt_object *ret_object)
{
	unsigned n = __atomic_fetch_add(&flawed.puts, 1, __ATOMIC_RELAXED);
	bool alone = n < 2; // the probe's first key
	int rc;

	(void)o, (void)frees;
	if (flawed.flaw == REFUSES)
		return -EACCES;
	if (flawed.flaw == LAST_WINS && !alone) { // the first of them is told that it has won
		LOCK_SCOPE(&flawed.lock);

		rc = ckpt_objects_put(flawed.below, key, data, len, ret_object);
		if (rc != -EEXIST)
			return rc;
		ck_ok(ckpt_objects_remove(flawed.below, key));
		ck_ok(ckpt_objects_put(flawed.below, key, data, len, ret_object));
		return -EEXIST;
	}
	rc = ckpt_objects_put(flawed.below, key, data, len, ret_object);
	if (rc != -EEXIST)
		return rc;
	if (flawed.flaw == OVERWRITES) {
		ck_ok(ckpt_objects_remove(flawed.below, key));
		return ckpt_objects_put(flawed.below, key, data, len, ret_object);
	}
	if (flawed.flaw == ALL_WIN && !alone) {
		*ret_object = (struct ckpt_object){.bytes = len, .mtime_ns = 1, .etag = "e"};
		return 0;
	}
	return rc;
}

static int flawed_remove(struct ckpt_objects *o, const char *key)
{
	(void)o;
	return flawed.flaw == KEEPS ? -EACCES : ckpt_objects_remove(flawed.below, key);
}

static int flawed_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		       void *arg)
{
	(void)o;
	return flawed.flaw == LISTS_NOTHING ? 0 : ckpt_objects_list(flawed.below, prefix, after, fn, arg);
}

static const struct ckpt_objects_ops flawed_ops = {.name = "flawed",
						   .get = flawed_get,
						   .head = flawed_head,
						   .put = flawed_put,
						   .remove = flawed_remove,
						   .list = flawed_list};

static int probe(enum flaw flaw, bool race, char *ret_why)
{
	int rc;

	flawed = (struct flawed){.base.ops = &flawed_ops, .flaw = flaw, .lock = CKPT_LOCK_INIT(CKPT_LOCK_ACTS)};
	ck_ok(ckpt_mem_new(&flawed.below));
	rc = ckpt_objects_probe(&flawed.base, race, ret_why);
	return rc;
}

static int count(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)key, (void)object;
	++*(int *)arg;
	return 0;
}

static int left(void)
{
	int n = 0;

	ck_ok(ckpt_objects_list(flawed.below, "", NULL, count, &n));
	ckpt_objects_close(flawed.below);
	return n;
}

START_TEST(a_store_that_keeps_its_promises_passes_and_is_left_as_it_was)
{
	char why[CKPT_PROBE_WHY_MAX];

	ck_ok(probe(NONE, false, why));
	ck_assert_uint_eq(flawed.puts, 2);
	ck_assert_int_eq(left(), 0);
	ck_ok(probe(NONE, true, why));
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(left(), 0);
	ck_ok(probe(KEEPS, false, why)); // who may not delete may write
	ck_assert_int_eq(left(), 1);
}
END_TEST

START_TEST(each_broken_promise_is_named)
{
	static const struct {
		enum flaw flaw;
		bool race;
		const char *why;
	} flaws[] = {
		{OVERWRITES, false, "a put of a key that was taken: it was done"},
		{DROPS, false, "a get right after the put: No such file or directory"},
		{LISTS_NOTHING, false, "a list right after the put: No such file or directory"},
		{ALL_WIN, true, "of 8 puts of one key at once 8 won"},
		{LAST_WINS, true, "a get did not give the bytes of the put that won"},
	};
	char why[CKPT_PROBE_WHY_MAX];

	for (size_t i = 0; i < ARRAY_LEN(flaws); i++) {
		ck_error(probe(flaws[i].flaw, flaws[i].race, why), ENOTSUP);
		ck_assert_str_eq(why, flaws[i].why);
		left();
	}
}
END_TEST

START_TEST(what_the_store_refuses_is_its_own_error)
{
	char why[CKPT_PROBE_WHY_MAX];

	ck_error(probe(REFUSES, true, why), EACCES);
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(left(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("probe");
	TCase *tcase = tcase_create("probe");

	tcase_add_test(tcase, a_store_that_keeps_its_promises_passes_and_is_left_as_it_was);
	tcase_add_test(tcase, each_broken_promise_is_named);
	tcase_add_test(tcase, what_the_store_refuses_is_its_own_error);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
