// What is under a step's key in the store and is not what this process put there: another's record, a damaged one, an older one.
#include "tests/support/save.h"
#include "tests/support/staged.h"

#include "core/util.h"

#include <stdio.h>

static char dir[PATH_MAX];
static struct ckpt_store *s;
static struct ckpt_step *step;

static void setup(void)
{
	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "model.bin", "weights"));
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_store_close(s);
}

enum lie { OTHER_STORE, OTHER_SESSION, OTHER_VERSION, OTHER_NAME, OTHER_FOLDER, DELETED, NO_RECORD };

// The record of a version of this step, but for one thing; like is what else it says.
static void plant(uint32_t version, const struct ckpt_summary *like, enum lie lie)
{
	struct ckpt_record r = {.summary = *like};
	char object[64];
	size_t len;
	void *data;

	snprintf(r.store_id, sizeof(r.store_id), "%s", s->id);
	r.summary.version = version;
	if (lie == OTHER_STORE)
		snprintf(r.store_id, sizeof(r.store_id), "%s", step->session);
	else if (lie == OTHER_SESSION)
		snprintf(r.summary.session, sizeof(r.summary.session), "%s", s->id);
	else if (lie == OTHER_VERSION)
		r.summary.version += 7;
	else if (lie == OTHER_NAME)
		snprintf(r.summary.name, sizeof(r.summary.name), "1001");
	else if (lie == OTHER_FOLDER)
		snprintf(r.summary.folder_id, sizeof(r.summary.folder_id), "0123456789abcdef");
	else if (lie == DELETED)
		r.summary.deleted = true;
	ck_ok(ckpt_record_encode(&r, &data, &len));
	if (lie == NO_RECORD)
		memset(data, 'x', len);
	snprintf(object, sizeof(object), "steps/1000/%u", version);
	(void)ckpt_backend_remove(s->backend, object, NULL);
	ck_ok(ckpt_backend_put(s->backend, object, data, len, NULL));
	free(data);
}

static struct ckpt_summary a_summary(void)
{
	struct ckpt_summary summary = {.event = "marker", .profile = "generic", .number = 1000, .dir_mode = 0755};

	snprintf(summary.name, sizeof(summary.name), "1000");
	snprintf(summary.session, sizeof(summary.session), "%s", step->session);
	return summary;
}

START_TEST(a_commit_takes_nobody_elses_record_for_its_own)
{
	static const enum lie lies[] = {OTHER_STORE, OTHER_SESSION, NO_RECORD};
	struct ckpt_summary summary = a_summary();

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		plant(1, &summary, lies[i]);
		ck_error(ckpt_commit(step, &ckpt_staged_plain), EEXIST);
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	}
	ck_ok(ckpt_backend_remove(s->backend, "steps/1000/1", NULL));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_staged_check(step, "model.bin", "weights");
}
END_TEST

START_TEST(no_next_version_is_put_over_what_is_not_the_steps)
{
	static const enum lie lies[] = {OTHER_STORE, OTHER_VERSION, OTHER_NAME, OTHER_FOLDER, NO_RECORD};

	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		plant(2, &step->summary, lies[i]);
		ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), EBADMSG);
		ck_assert_uint_eq(step->summary.version, 1);
	}
	ck_ok(ckpt_backend_remove(s->backend, "steps/1000/2", NULL));
	ck_ok(ckpt_commit_metadata(step, "{\"temporary\":true}"));
	ck_assert_uint_eq(step->summary.version, 2);
}
END_TEST

START_TEST(a_step_whose_record_became_another_one_takes_no_version)
{
	static const enum lie lies[] = {OTHER_SESSION, OTHER_VERSION, DELETED};

	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		plant(1, &step->summary, lies[i]);
		ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), ESTALE);
	}
	plant(1, &step->summary, NO_RECORD);
	ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), EBADMSG);
	ck_ok(ckpt_backend_remove(s->backend, "steps/1000/1", NULL));
	ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), ENOENT);
}
END_TEST

START_TEST(a_name_whose_record_cannot_be_read_is_given_to_nobody)
{
	struct ckpt_commit how = ckpt_staged_plain;
	struct ckpt_step *other;

	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	plant(1, &step->summary, NO_RECORD);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	ck_error(ckpt_stage_begin(s, "", "1000", 0755, 0, 0, 0, &other), EEXIST);
	step = ckpt_staged_begin(s, "1001");
	how.name = "1000";
	ck_error(ckpt_commit(step, &how), EEXIST);
	ck_assert_uint_eq(step->attempts, 0); // nobody had to wait for it
	ck_error(ckpt_stage_rename(step, "", "1000"), EEXIST);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("version");
	TCase *t = tcase_create("version");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_commit_takes_nobody_elses_record_for_its_own);
	tcase_add_test(t, no_next_version_is_put_over_what_is_not_the_steps);
	tcase_add_test(t, a_name_whose_record_cannot_be_read_is_given_to_nobody);
	tcase_add_test(t, a_step_whose_record_became_another_one_takes_no_version);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
