// The objects of a node beside those of its remote: which of the two is read, and what a failure of each says.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/remote/near.h"

static struct ckpt_objects *o, *here, *there;
static struct ckpt_fault of_here, of_there; // the first read fails so, and all after it

static struct ckpt_objects *failing(struct ckpt_fault *fault)
{
	struct ckpt_objects *mem, *ret;

	*fault = (struct ckpt_fault){.sticky = true};
	ck_ok(ckpt_mem_new(&mem));
	ck_ok(ckpt_fault_new(mem, fault, &ret));
	return ret;
}

static void setup(void)
{
	here = failing(&of_here);
	there = failing(&of_there);
	ck_ok(ckpt_near_new(here, there, &o));
	ck_ok(ckpt_objects_put(here, "packs/a", "ours", 4, NULL));
	ck_ok(ckpt_objects_put(there, "packs/b", "theirs", 6, NULL));
	ck_ok(ckpt_objects_put(there, "log/b", "theirs", 6, NULL));
}

static void teardown(void)
{
	ckpt_objects_close(o);
}

static void fails_with(struct ckpt_fault *fault, int error)
{
	fault->error = error;
	fault->at = fault->count + 1;
}

static int get(const char *key)
{
	char buf[8];
	size_t len;

	return ckpt_objects_get(o, key, 0, buf, sizeof(buf), &len, NULL);
}

static int get_range(const char *key)
{
	char buf[4];
	struct ckpt_range range = {.buf = buf, .len = sizeof(buf)};

	return ckpt_objects_get_ranges(o, key, &range, 1, NULL, NULL);
}

static int head(const char *key)
{
	struct ckpt_object object;

	return ckpt_objects_head(o, key, &object);
}

static int (*const reads[])(const char *key) = {get, get_range, head};

START_TEST(packs_are_read_where_they_are)
{
	ck_ok(reads[_i]("packs/a"));
	ck_ok(reads[_i]("packs/b"));
	ck_error(reads[_i]("packs/c"), ENOENT);
	ck_error(reads[_i]("log/b"), ENOENT);
}
END_TEST

START_TEST(a_remote_that_fails_damages_nothing)
{
	fails_with(&of_there, -EIO);
	ck_error(reads[_i]("packs/b"), ETIMEDOUT);
	fails_with(&of_there, -EAGAIN);
	ck_error(reads[_i]("packs/b"), ETIMEDOUT);
	fails_with(&of_there, -EACCES);
	ck_error(reads[_i]("packs/b"), EACCES);
	ck_ok(reads[_i]("packs/a"));
}
END_TEST

START_TEST(a_failure_of_this_node_is_one)
{
	fails_with(&of_here, -EIO);
	ck_error(reads[_i]("packs/a"), EIO);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("near");
	TCase *tcase = tcase_create("near");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, packs_are_read_where_they_are, 0, ARRAY_LEN(reads));
	tcase_add_loop_test(tcase, a_remote_that_fails_damages_nothing, 0, ARRAY_LEN(reads));
	tcase_add_loop_test(tcase, a_failure_of_this_node_is_one, 0, ARRAY_LEN(reads));
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
