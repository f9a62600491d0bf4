// What is under a step's key in the store and is not what this process put there: another's record, a damaged one, an older one.
#include "tests/support/fixture_step.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/version.h"
#include "core/policy/temporary.h"

#include <stdio.h>

static void setup(void)
{
	ckpt_fixture_step_open("1000");
	close(ckpt_staged_put(step, "model.bin", "weights"));
}

enum lie { OTHER_STORE, OTHER_SESSION, OTHER_VERSION, OTHER_NAME, OTHER_FOLDER, DELETED, NO_RECORD, NO_LIE };

// The record of a version of this step, but for one thing, or NO_LIE, as another process puts it; like is what else it says.
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
	(void)ckpt_objects_remove(s->objects, object, NULL);
	ck_ok(ckpt_objects_put(s->objects, object, data, len, NULL));
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
	ck_ok(ckpt_objects_remove(s->objects, "steps/1000/1", NULL));
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
	ck_ok(ckpt_objects_remove(s->objects, "steps/1000/2", NULL));
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
	ck_ok(ckpt_objects_remove(s->objects, "steps/1000/1", NULL));
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
	ckpt_fixture_reopen();
	ck_error(ckpt_stage_begin(s, "", "1000", 0755, 0, 0, 0, &other), EEXIST);
	step = ckpt_staged_begin(s, "1001");
	how.name = "1000";
	ck_error(ckpt_commit(step, &how), EEXIST);
	ck_assert_uint_eq(step->attempts, 0); // nobody had to wait for it
	ck_error(ckpt_stage_rename(step, "", "1000"), EEXIST);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}
END_TEST

START_TEST(a_version_that_another_process_has_put_is_followed_by_ours)
{
	if (_i) { // nor does it need an index
		ckpt_indexer_close(TAKE_PTR(s->indexer));
		ckpt_store_forgo_index(s);
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	plant(2, &step->summary, NO_LIE);
	ck_ok(ckpt_commit_metadata(step, "{\"temporary\":true}"));
	ck_assert_uint_eq(step->summary.version, 3);
	ck_assert(step->summary.temporary);
	CLEANUP_FREE char *here = ckpt_save_listing(s);
	CLEANUP_FREE char *there = ckpt_save_listing_at(dir);
	ck_assert_str_eq(here, there);
}
END_TEST

START_TEST(a_step_whose_place_another_session_took_takes_no_version)
{
	struct ckpt_step *there;

	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	plant(2, &step->summary, OTHER_SESSION);
	ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), ESTALE);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	there = ckpt_step_find(s, "", "1000");
	ck_assert_str_eq(there->session, s->id); // as planted
	ck_assert_uint_eq(there->summary.version, 2);
	ckpt_step_unref(there);
}
END_TEST

static int (*below_link)(int from_dirfd, const char *from, int to_dirfd, const char *to);
static unsigned links_to_fail;

static int failing_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	return links_to_fail && links_to_fail-- ? -EIO : below_link(from_dirfd, from, to_dirfd, to);
}

// The put may have been done, for all that its answer says: who looks must not take another's for it.
START_TEST(a_put_without_an_answer_does_not_take_what_is_there_for_its_own)
{
	enum lie lie = _i ? OTHER_STORE : NO_LIE;

	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	plant(2, &step->summary, lie);
	below_link = ckpt_sys.link;
	links_to_fail = 1;
	ckpt_sys.link = failing_link;
	ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), EIO);
	ckpt_sys.link = below_link;
	ck_assert_uint_eq(links_to_fail, 0);
	ck_assert_uint_eq(step->summary.version, 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "cannot confirm that its new metadata is stored"), 1);
	if (lie == OTHER_STORE) {
		ck_error(ckpt_commit_metadata(step, "{\"temporary\":true}"), EBADMSG);
		return;
	}
	ck_ok(ckpt_commit_metadata(step, "{\"temporary\":true}"));
	ck_assert_uint_eq(step->summary.version, 3);
}
END_TEST

// --- New metadata -------------------------------------------------------------------------------------------------------

// As much as a record takes, in one of the extras; malloc'ed.
static char *much(const char *name)
{
	char *text = malloc(CKPT_METADATA_BYTES_MAX + 1);
	int frame = snprintf(NULL, 0, "{\"extras\":{\"%s\":\"\"}}", name);

	sprintf(text, "{\"extras\":{\"%s\":\"%*s\"}}", name, (int)CKPT_METADATA_BYTES_MAX - frame, "");
	ck_assert_uint_eq(strlen(text), CKPT_METADATA_BYTES_MAX);
	return text;
}

static void says(const char *metadata, bool temporary)
{
	struct ckpt_record r;

	ck_ok(ckpt_step_record(step, step->summary.version, &r));
	ck_assert_str_eq(r.metadata, metadata);
	ck_assert_int_eq(r.summary.temporary, temporary);
	ckpt_record_done(&r);
}

START_TEST(metadata_that_is_too_much_with_what_was_there_takes_its_place)
{
	CLEANUP_FREE char *first = much("first"), *next = much("next"), *last = much("last");

	ck_ok(ckpt_staged_commit(step, 0, first));
	says(first, false);
	ck_ok(ckpt_commit_metadata(step, next));
	says(next, false);
	ck_assert_uint_eq(ckpt_save_errors(s, "its earlier extras and metrics are dropped"), 1);
	ck_ok(ckpt_commit_metadata(step, next)); // says nothing new
	ck_assert_uint_eq(step->summary.version, 2);
	ck_ok(ckpt_commit_metadata(step, last));
	says(last, false);
	ck_assert_uint_eq(ckpt_save_errors(s, "its earlier extras and metrics are dropped"), 2);
}
END_TEST

START_TEST(a_step_stays_temporary_though_there_is_no_room_to_say_it_again)
{
	CLEANUP_FREE char *first = much("first"), *next = much("next");

	ck_ok(ckpt_staged_commit(step, 0, "{\"temporary\":true}"));
	says("{\"temporary\":true}", true);
	ck_ok(ckpt_commit_metadata(step, first));
	says(first, true);
	ck_ok(ckpt_promote(step));
	ck_ok(ckpt_commit_metadata(step, next));
	says(next, false);
}
END_TEST

// --- Whether our own version is there -------------------------------------------------------------------------------------

static void assert_version(uint32_t version)
{
	CLEANUP_FREE char *here = ckpt_save_listing(s);
	CLEANUP_FREE char *there = ckpt_save_listing_at(dir);

	ck_assert_uint_eq(step->summary.version, version);
	ck_assert_str_eq(here, there);
}

static int settle(void)
{
	LOCK_SCOPE(&s->acts_lock);

	return ckpt_version_settle(step);
}

START_TEST(a_version_that_is_there_is_taken_over_when_it_is_asked_for)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(settle()); // there is none
	assert_version(1);
	plant(2, &step->summary, NO_LIE);
	ck_ok(settle());
	assert_version(2);
	plant(3, &step->summary, OTHER_NAME);
	ck_error(settle(), EBADMSG);
	ck_assert_uint_eq(step->summary.version, 2);
}
END_TEST

START_TEST(no_version_is_taken_over_that_may_not_be_durable)
{
	struct ckpt_fault fault = {.error = -EIO};
	int rc;

	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	plant(2, &step->summary, NO_LIE);
	ck_ok(ckpt_fault_new(s->objects, &fault, &s->objects));
	do {
		ck_assert_uint_eq(step->summary.version, 1);
		fault.count = 0;
		fault.at++;
		rc = settle();
		ck_assert(!rc || rc == -EIO);
	} while (rc);
	ck_assert_uint_ge(fault.at, 3); // one question reads it, another makes sure
	fault.at = 0;
	assert_version(2);
}
END_TEST

static int link_anew(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	ck_ok(ckpt_sys.unlink(to_dirfd, to, 0));
	return below_link(from_dirfd, from, to_dirfd, to);
}

START_TEST(a_version_that_goes_away_while_it_is_asked_for_is_in_the_store_in_the_end)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	plant(2, &step->summary, NO_LIE);
	below_link = ckpt_sys.link;
	ckpt_sys.link = link_anew;
	ck_ok(settle());
	ckpt_sys.link = below_link;
	assert_version(2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("version");
	TCase *t = tcase_create("version");

	tcase_add_checked_fixture(t, setup, ckpt_fixture_step_close);
	tcase_add_test(t, a_commit_takes_nobody_elses_record_for_its_own);
	tcase_add_test(t, no_next_version_is_put_over_what_is_not_the_steps);
	tcase_add_test(t, a_name_whose_record_cannot_be_read_is_given_to_nobody);
	tcase_add_test(t, a_step_whose_record_became_another_one_takes_no_version);
	tcase_add_loop_test(t, a_version_that_another_process_has_put_is_followed_by_ours, 0, 2);
	tcase_add_test(t, a_step_whose_place_another_session_took_takes_no_version);
	tcase_add_loop_test(t, a_put_without_an_answer_does_not_take_what_is_there_for_its_own, 0, 2);
	tcase_add_test(t, a_version_that_is_there_is_taken_over_when_it_is_asked_for);
	tcase_add_test(t, no_version_is_taken_over_that_may_not_be_durable);
	tcase_add_test(t, a_version_that_goes_away_while_it_is_asked_for_is_in_the_store_in_the_end);
	tcase_add_test(t, metadata_that_is_too_much_with_what_was_there_takes_its_place);
	tcase_add_test(t, a_step_stays_temporary_though_there_is_no_room_to_say_it_again);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
