// A large plain file in the remote: what is acknowledged is there, also where the store says "taken" of a key that is free.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/remote/tree_change.h"
#include "core/remote/tree_large.h"

#include <stdio.h>
#include <unistd.h>

static struct ckpt_objects *mem;
static unsigned put_count, wrong_at; // the put with this number, from 1, is not done

static int wrong_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	(void)o;
	return ++put_count == wrong_at ? -EEXIST : ckpt_objects_put_how(mem, key, data, len, frees, ret_object);
}

static int mem_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	(void)o;
	return ckpt_objects_head(mem, key, ret_object);
}

static const struct ckpt_objects_ops ops = {.name = "wrong", .put = wrong_put, .head = mem_head};

static bool go_on(void *arg, uint64_t bytes)
{
	(void)arg, (void)bytes;
	return true;
}

START_TEST(it_was_not_put_where_a_part_of_it_is_missing)
{
	const struct ckpt_tree_pace pace = {.go_on = go_on};
	struct ckpt_objects there = {.ops = &ops};
	struct ckpt_plain_large large;
	FILE *f = tmpfile();

	ck_ok(ckpt_mem_new(&mem));
	for (int i = 0; i < 300000; i++)
		putc(i >> 8 ^ i, f);
	fflush(f);
	wrong_at = (unsigned)_i;
	ck_assert_int_lt(ckpt_tree_large_put(&there, fileno(f), NULL, &pace, &large), 0);
	wrong_at = 0;
	ck_ok(ckpt_tree_large_put(&there, fileno(f), NULL, &pace, &large));
	fclose(f);
	ckpt_objects_close(mem);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("large plain files");
	TCase *tcase = tcase_create("large");

	tcase_add_loop_test(tcase, it_was_not_put_where_a_part_of_it_is_missing, 1, 3); // its pack, its manifest
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
