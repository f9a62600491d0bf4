// A store whose index could not be made, as the disk is full: each act does what it does with one, only slower.
#include "core/index/indexer.h"
#include "tests/support/seen.h"

#include "core/base/util.h"
#include "core/save/move.h"

static void forgo_index(struct ckpt_trial *t)
{
	if (!t->s || !t->s->writable)
		return;
	ckpt_indexer_close(TAKE_PTR(*ckpt_indexer_of(t->s)));
	ckpt_index_close(TAKE_PTR(t->s->index));
}

static bool needs_index(const struct ckpt_trial_act *act)
{
	return !strcmp(act->name, "index");
}

START_TEST(an_act_without_an_index_ends_as_one_with)
{
	const struct ckpt_trial_act *act = &ckpt_trial_acts[_i];
	struct ckpt_seen with, without, anew;
	struct ckpt_trial t;

	if (needs_index(act))
		return;
	ckpt_trial_begin(&t, act);
	ck_ok(ckpt_trial_do(&t, act));
	with = ckpt_see(&t);
	ckpt_trial_end(&t);
	ckpt_trial_begin(&t, act);
	forgo_index(&t);
	ck_ok(ckpt_trial_do(&t, act));
	without = ckpt_see(&t);
	ckpt_seen_assert(&without, &with, "it was done without an index");
	ckpt_seen_done(&without);
	ckpt_trial_end(&t);
	without = ckpt_see_anew(t.dir);
	anew = ckpt_see_anew(t.dir); // by the index that the open before has made
	ckpt_seen_assert(&anew, &without, "it is opened again");
	ckpt_seen_done(&with);
	ckpt_seen_done(&without);
	ckpt_seen_done(&anew);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("no index");

	for (int i = 0; i < (int)ckpt_trial_act_count; i++) {
		TCase *tcase = tcase_create(ckpt_trial_acts[i].name);

		tcase_add_loop_test(tcase, an_act_without_an_index_ends_as_one_with, i, i + 1);
		suite_add_tcase(suite, tcase);
	}
	return ckpt_suite_run(suite);
}
