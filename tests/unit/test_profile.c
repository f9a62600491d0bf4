// Which acts complete a step, by the table of profiles: by names, and by what a file holds.
#include "core/record/event.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/profile/profile.h"

#include <stdio.h>
#include <sys/mman.h>

static uint64_t all;
static int here; // an empty directory

static void setup(void)
{
	ck_ok(ckpt_profiles_parse("auto", &all));
	here = ckpt_temp_fd();
}

static void teardown(void)
{
	close(here);
}

static int file_of(const void *data, size_t len)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	return fd;
}

static int asked(const char *dir, const char *name, const void *data, size_t len, struct ckpt_completion *ret)
{
	int fd = file_of(data, len), rc;
	struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE, .name = name, .fd = fd, .dir = dir, .dirfd = here};
	size_t row = 0;

	rc = ckpt_profile_completes(all, &deed, &row, ret);
	close(fd);
	return rc;
}

static int closes(const char *dir, const char *name, const char *text)
{
	struct ckpt_completion c;

	return asked(dir, name, text, strlen(text), &c);
}

START_TEST(a_marker_counts_by_what_it_holds)
{
	static const struct {
		const char *dir, *name, *text;
		int rc;
	} cases[] = {
		{"iter_0000100", "metadata.json", "{\"sharded_backend\": \"torch_dist\"}", 0},
		{"any", "metadata.json", "{\"sharded_backend\": \"torch_dist\"}", 0},
		{"any", "metadata.json", "{\"sharded_backend\": 1}", -ENOENT},
		{"any", "metadata.json", "{\"sharded_backend\": \"torch_dist\"", -EINVAL},
		{"any", "metadata.json", "", -EINVAL},
		{"any", "metadata.json", "[]", -EINVAL},
		{"any", "metadata.json", "{} {}", -EINVAL},
		{"run-5", "metadata.json", "{\"step\": 0}", -ENOENT}, // without an index of eformer's
		{"run-5", "metadata.json", "{\"step\": -1}", -ENOENT},
		{"run-5", "metadata.json", "{\"step\": 1.5}", -ENOENT},
		{"any", "metadata.json", "{\"step\": 5}", -ENOENT},
		{"any", "metadata.json", "{\"step\": 5, \"timestamp\": \"now\"}", -ENOENT},
		{"step-5", "metadata.json", "{\"step\": 5, \"timestamp\": \"now\", \"is_temporary\": true}", 0},
		{"step-5", "metadata.json", "{\"step\": -5, \"timestamp\": \"now\", \"is_temporary\": true}", -ENOENT},
		{"step_5", "index", "[[\"step\", 5], []]", 0},
		{"step_5", "index", "[\"step\"]", -ENOENT},
		{"step_5", "index", "", -ENOENT},
		{"step-5", "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"none.safetensors\"}}", -EINVAL},
		{"step-5", "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\"}}", -EINVAL},
		{"step-5", "model.safetensors.index.json", "{\"weight_map\": {}}", -EINVAL},
		{"last.ckpt", "meta.pt", "\x80\x02.", -ENOENT}, // without DCP's .metadata
		{"checkpoint-500", "trainer_state.json",
		 "{\"loss\": NaN, \"a\": [Infinity, -Infinity], \"text\": \"NaN\"}", 0},
		{"checkpoint-500", "trainer_state.json", "{\"loss\": Nan}", -EINVAL},
		{"checkpoint-500", "trainer_state.json", "{\"quote\": \"\\\"NaN", -EINVAL},
		{"checkpoint_500", "trainer_state.json", "{}", 0},
		{"best", "trainer_state.json", "{}", -ENOENT}, // nothing claims it
		{"tmp-checkpoint-500", "trainer_state.json", "{}", -ENOENT},
		{"any", "random_states_0.pkl", "text", -EINVAL},
		{"any", "random_states_0.pkl", "\x80\x02.", 0},
		{"any", "random_states_0.pkl", "\x80\x02", -EINVAL},
		{"any", "random_states_1.pkl", "\x80\x02.", -ENOENT},
		{"any", ".snapshot_metadata", "version: 1", 0},
		{"any", ".snapshot_metadata", "", -EINVAL},
		{"5.partial_save", ".snapshot_metadata", "version: 1", -ENOENT},
		{"100", "commit_success.txt", "done", -ENOENT},
		{"any", "model.safetensors", "{}", -ENOENT},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		ck_assert_msg(closes(cases[i].dir, cases[i].name, cases[i].text) == cases[i].rc, "%s/%s: %s",
			      cases[i].dir, cases[i].name, cases[i].text);
}
END_TEST

START_TEST(no_shorter_marker_is_whole)
{
	static const char text[] = "{\"sharded_backend\": \"torch_dist\", \"version\": 1}";
	struct ckpt_completion c;

	for (size_t len = 0; len < strlen(text); len++)
		ck_assert_int_eq(asked("iter_1", "metadata.json", text, len, &c), -EINVAL);
	ck_assert_int_eq(asked("iter_1", "metadata.json", text, strlen(text), &c), 0);
	ck_assert_str_eq(c.profile, "megatron");
	ck_assert_str_eq(c.event, "close:metadata.json");
	ck_assert_str_eq(c.beside, "");
}
END_TEST

START_TEST(hostile_markers_are_refused)
{
	size_t len = (1 << 20) - 1;
	char *deep = malloc(len);
	struct ckpt_completion c;

	memset(deep, '[', len);
	ck_assert_int_eq(asked("iter_1", "metadata.json", deep, len, &c), -EINVAL);
	memset(deep, 'N', len);
	ck_assert_int_eq(asked("iter_1", "metadata.json", deep, len, &c), -EINVAL);
	ck_assert_int_eq(asked("iter_1", "metadata.json", "{\"a\": \"\0\"}", 10, &c), -EINVAL);
	ck_assert_int_eq(asked("iter_1", "metadata.json", "{\"sharded_backend\": \"\xff\"}", 24, &c), -EINVAL);
	free(deep);
}
END_TEST

// A log of years: it is not read whole, and its end tells.
START_TEST(a_huge_state_is_whole_when_it_ends_as_it_begins)
{
	size_t len = (1 << 20) + 100;
	char *text = malloc(len);
	struct ckpt_completion c;

	memset(text, ' ', len);
	text[1] = '{';
	ck_assert_int_eq(asked("checkpoint-1", "trainer_state.json", text, len, &c), -EINVAL);
	text[len - 2] = '}';
	ck_assert_int_eq(asked("checkpoint-1", "trainer_state.json", text, len, &c), 0);
	free(text);
}
END_TEST

static int names(const char *tracker, const char *text, size_t row, struct ckpt_completion *ret, size_t *ret_row)
{
	int fd = file_of(text, strlen(text)), rc;
	struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE, .name = tracker, .fd = fd, .dirfd = here};

	rc = ckpt_profile_completes(all, &deed, &row, ret);
	*ret_row = row;
	close(fd);
	return rc;
}

START_TEST(trackers_name_a_directory_beside_them)
{
	static const char iteration[] = "latest_checkpointed_iteration.txt";
	struct ckpt_completion c;
	size_t row;

	ck_assert_int_eq(names("latest", " global_step20\n", 0, &c, &row), 0);
	ck_assert_str_eq(c.beside, "global_step20");
	ck_assert_str_eq(c.event, "close:latest");
	ck_assert_int_eq(names("latest", "../up", 0, &c, &row), -ENOENT);
	ck_assert_int_eq(names("latest", "..", 0, &c, &row), -ENOENT);
	ck_assert_int_eq(names("latest", "checkpoint-5.orbax-checkpoint-tmp", 0, &c, &row), -ENOENT);
	ck_assert_int_eq(names("latest", " \n", 0, &c, &row), -EINVAL);
	ck_assert_int_eq(names(iteration, "7\n", 0, &c, &row), 0);
	ck_assert_str_eq(c.beside, "global_step_7");
	ck_assert_int_eq(names(iteration, "7", row, &c, &row), 0);
	ck_assert_str_eq(c.beside, "iter_0000007");
	ck_assert_str_eq(c.event, "close:tracker");
	ck_assert_int_eq(names(iteration, "7", row, &c, &row), -ENOENT);
	ck_assert_int_eq(names(iteration, "release", 0, &c, &row), 0);
	ck_assert_str_eq(c.beside, "release");
	ck_assert_int_eq(names(iteration, "-7", 0, &c, &row), -ENOENT);
	ck_assert_int_eq(names(iteration, "99999999999999999999", 0, &c, &row), -ENOENT);
	ck_assert_int_eq(names(iteration, "7 8", 0, &c, &row), -ENOENT);
}
END_TEST

START_TEST(marks_of_unfinished_steps_name_them)
{
	static const struct {
		const char *name, *beside;
	} cases[] = {{"a-unfinished", "a"},
		     {"-unfinished", NULL},
		     {".-unfinished", NULL},
		     {"..-unfinished", NULL},
		     {"5.partial_save-unfinished", NULL},
		     {"step=5-last-unfinished", "step=5-last"}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ckpt_deed deed = {.act = CKPT_EVENT_UNLINK, .name = cases[i].name, .fd = -1, .dirfd = here};
		struct ckpt_completion c;
		size_t row = 0;

		ck_assert_int_eq(ckpt_profile_completes(all, &deed, &row, &c), cases[i].beside ? 0 : -ENOENT);
		if (cases[i].beside)
			ck_assert_str_eq(c.beside, cases[i].beside);
	}
}
END_TEST

START_TEST(a_name_as_long_as_can_be_is_copied_whole)
{
	char text[CKPT_NAME_MAX + 2];
	struct ckpt_completion c;
	size_t row;

	memset(text, 'x', sizeof(text));
	text[CKPT_NAME_MAX] = '\0';
	ck_assert_int_eq(names("latest", text, 0, &c, &row), 0);
	ck_assert_str_eq(c.beside, text);
	text[CKPT_NAME_MAX] = 'x';
	text[CKPT_NAME_MAX + 1] = '\0';
	ck_assert_int_eq(names("latest", text, 0, &c, &row), -ENOENT);
}
END_TEST

START_TEST(profiles_are_chosen_by_name)
{
	static const char *const wrong[] = {"", "megaton", "auto:dcp", "dcp:", ":dcp", "dcp,megatron", "DCP"};
	uint64_t mask;
	char *text;

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		ck_assert_int_eq(ckpt_profiles_parse(wrong[i], &mask), -EINVAL);
	ck_assert_int_eq(ckpt_profiles_parse("megatron:dcp", &mask), 0);
	ck_assert(ckpt_profile_watches(mask, CKPT_EVENT_CLOSE, NULL, "metadata.json", false));
	ck_assert(ckpt_profile_watches(mask, CKPT_EVENT_CLOSE, NULL, "latest_checkpointed_iteration.txt", true));
	ck_assert(ckpt_profile_watches(mask, CKPT_EVENT_RENAME, ".metadata.tmp", ".metadata", false));
	ck_assert(!ckpt_profile_watches(mask, CKPT_EVENT_RENAME, "metadata", ".metadata", false));
	ck_assert(!ckpt_profile_watches(mask, CKPT_EVENT_CLOSE, NULL, "latest", true));
	ck_assert(!ckpt_profile_watches(mask, CKPT_EVENT_UNLINK, NULL, "x-unfinished", true));
	text = ckpt_profiles_text(mask);
	ck_assert_str_eq(text, "megatron:dcp");
	free(text);
	ck_assert_int_eq(ckpt_profiles_parse("generic", &mask), 0);
	ck_assert_uint_eq(mask, 0);
	text = ckpt_profiles_text(mask);
	ck_assert_str_eq(text, "generic");
	free(text);
	text = ckpt_profiles_text(all);
	ck_assert_str_eq(text, "auto");
	free(text);
}
END_TEST

START_TEST(files_of_other_ranks_may_be_late)
{
	uint64_t mask;

	ck_assert(ckpt_profile_is_late(all, "rng_state_1.pth"));
	ck_assert(ckpt_profile_is_late(all, "random_states_12.pkl"));
	ck_assert(!ckpt_profile_is_late(all, "random_states_0.pkl")); // it completes the step
	ck_assert(!ckpt_profile_is_late(all, "optimizer.pt"));
	ck_assert_int_eq(ckpt_profiles_parse("accelerate", &mask), 0);
	ck_assert(!ckpt_profile_is_late(mask, "rng_state_1.pth"));
	ck_assert(ckpt_profile_is_late(mask, "random_states_1.pkl"));
}
END_TEST

START_TEST(names_say_whose_a_step_may_be_and_what_it_awaits)
{
	ck_assert_str_eq(ckpt_profile_of_temp("5.orbax-checkpoint-tmp-17"), "orbax");
	ck_assert_str_eq(ckpt_profile_of_temp("tmp-checkpoint-5"), "hf-trainer");
	ck_assert_str_eq(ckpt_profile_of_temp("checkpoint_tmp"), "flax");
	ck_assert_str_eq(ckpt_profile_of_temp("checkpoint_tmp_gda"), "flax");
	ck_assert_str_eq(ckpt_profile_of_name("5.partial_save"), "orbax");
	ck_assert_str_eq(ckpt_profile_of_name("iter_0000005"), "megatron");
	ck_assert_ptr_null(ckpt_profile_of_name("100"));
	ck_assert_ptr_nonnull(strstr(ckpt_profile_awaits(all, "checkpoint-5"), "trainer_state.json"));
	ck_assert_ptr_null(ckpt_profile_awaits(0, "checkpoint-5"));
	ck_assert_ptr_nonnull(strstr(ckpt_profile_awaits(all, "5.partial_save"), "rename"));
	ck_assert(ckpt_profile_is_copier("rsync") && !ckpt_profile_is_copier("python3"));
}
END_TEST

static const struct {
	const char *names[3];
	const char *profile; // NULL: nobody claims it
} claimed[] = {
	{{"config.json", "__0_0.distcp"}, "dcp"},
	{{"mp_rank_00_model_states.pt"}, "deepspeed"},
	{{"mp_rank_00"}, "deepspeed"},
	{{"zero_pp_rank_0_mp_rank_00_optim_states.pt"}, "deepspeed"},
	{{"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"}, "deepspeed"},
	{{"random_states_0.pkl", "model.safetensors"}, "accelerate"},
	{{"ocdbt.process_0"}, "orbax"},
	{{"_CHECKPOINT_METADATA"}, "orbax"},
	{{".snapshot_metadata"}, "torchsnapshot"},
	{{"tensorstore_index.json"}, "eformer"},
	{{"training_args.bin", "optimizer.pt"}, "hf-trainer"},
	{{"training_args.bin", "scheduler.pt"}, "hf-trainer"},
	{{"training_args.bin", "global_step500"}, "hf-trainer"},
	{{"training_args.bin"}, NULL},
	{{"optimizer.pt", "scheduler.pt"}, NULL},
	{{"model.safetensors", "rank_00.pt", "distcp"}, NULL},
};

START_TEST(files_that_only_one_framework_writes_claim_a_step)
{
	struct ckpt_claims seen = {0};
	const char *profile;

	for (size_t i = 0; i < ARRAY_LEN(claimed[_i].names) && claimed[_i].names[i]; i++)
		ckpt_profile_see(&seen, claimed[_i].names[i]);
	profile = ckpt_profile_claims(all, &seen);
	ck_assert_msg(claimed[_i].profile ? profile && !strcmp(profile, claimed[_i].profile) : !profile, "%s: %s",
		      claimed[_i].names[0], profile ? profile : "nobody");
	ck_assert_ptr_null(ckpt_profile_claims(0, &seen));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("profile");
	TCase *t = tcase_create("table");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_marker_counts_by_what_it_holds);
	tcase_add_test(t, no_shorter_marker_is_whole);
	tcase_add_test(t, hostile_markers_are_refused);
	tcase_add_test(t, a_huge_state_is_whole_when_it_ends_as_it_begins);
	tcase_add_test(t, trackers_name_a_directory_beside_them);
	tcase_add_test(t, marks_of_unfinished_steps_name_them);
	tcase_add_test(t, a_name_as_long_as_can_be_is_copied_whole);
	tcase_add_test(t, profiles_are_chosen_by_name);
	tcase_add_test(t, files_of_other_ranks_may_be_late);
	tcase_add_test(t, names_say_whose_a_step_may_be_and_what_it_awaits);
	tcase_add_loop_test(t, files_that_only_one_framework_writes_claim_a_step, 0, ARRAY_LEN(claimed));
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
