// Which plain files are trackers, and which are logs, by their names.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/profile/tracker.h"

START_TEST(known_trackers_are_told_by_their_names)
{
	static const char *const known[] = {
		"latest",
		"latest_checkpointed_iteration.txt",
		"latest.txt",
		"my_latest",
		"run_latest_step",
		"checkpoint",
		"trainer_state.json",
		"iteration.txt",
		"last_iteration_7.txt",
	};
	static const char *const others[] = {"lates", "checkpoints", "checkpoint.txt", ".json",
					     "json",  "train.log",   "iteration",      "notes.txt"};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		ck_assert_msg(ckpt_tracker_is_known(known[i]), "%s", known[i]);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		ck_assert_msg(!ckpt_tracker_is_known(others[i]), "%s", others[i]);
}
END_TEST

START_TEST(logs_are_told_by_their_names)
{
	static const char *const logs[] = {"train.log", "slurm-1.out",   "job.err",
					   "loss.csv",  "metrics.jsonl", "events.out.tfevents.1"};
	static const char *const others[] = {"log",          ".log",        "train.log.txt",     "out",
					     "metrics.json", "events.out.", "myevents.out.1.txt"};

	for (size_t i = 0; i < ARRAY_LEN(logs); i++)
		ck_assert_msg(ckpt_tracker_is_log(logs[i]), "%s", logs[i]);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		ck_assert_msg(!ckpt_tracker_is_log(others[i]), "%s", others[i]);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tracker");
	TCase *t = tcase_create("tracker");

	tcase_add_test(t, known_trackers_are_told_by_their_names);
	tcase_add_test(t, logs_are_told_by_their_names);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
