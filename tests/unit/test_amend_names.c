// Names within a committed step: what a rename and a link answer, as rename(2) and link(2) do, and what the step has then.
#include "core/save/amend_move.h"
#include "tests/support/fixture.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/save/reopen.h"
#include "core/step/amending.h"
#include "core/tier/cool.h"

#include <fcntl.h>
#include <stdio.h>

static struct ckpt_step *step;

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "d", 0755));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "d/e", 0755));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "empty", 0755));
	close(ckpt_staged_put(step, "a", "text of a"));
	close(ckpt_staged_put(step, "b", "text of b"));
	close(ckpt_staged_put(step, "none", ""));
	close(ckpt_staged_put(step, "d/e/x", "text of x"));
	close(ckpt_staged_put(step, "eval.json", "{\"loss\": 0.5}"));
	ckpt_staged_put_array(step, "m.npy", 'm', 8);
	ckpt_staged_put_array(step, "n.npy", 'n', 8);
	ck_ok(ckpt_sys.link(step->dirfd, "a", step->dirfd, "a2"));
	ck_ok(ckpt_sys.symlink("a", step->dirfd, "link"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static uint32_t version(void)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.version;
}

static char *deep_name(void)
{
	static char path[PATH_MAX + 2];

	memset(path, 'd', PATH_MAX);
	memcpy(path + PATH_MAX, "/x", 2);
	path[PATH_MAX + 1] = '\0';
	return path;
}

static const struct {
	const char *from, *to; // NULL: one that is too long
	int error;
	enum { MOVE, MOVE_IF_FREE, LINK } act;
} refused[] = {
	{"a", "b", EEXIST, MOVE_IF_FREE},  {"a", "empty", EISDIR, MOVE},          {"link", "d", EISDIR, MOVE},
	{"d", "a", ENOTDIR, MOVE},         {"empty", "d", ENOTEMPTY, MOVE},       {"d", "d/e/d", EINVAL, MOVE},
	{"", "top", EINVAL, MOVE},         {"nothing", "c", ENOENT, MOVE},        {"nothing", "a", ENOENT, MOVE},
	{"a", "nowhere/a", ENOENT, MOVE},  {"a", "b/a", ENOTDIR, MOVE},           {"a", NULL, ENAMETOOLONG, MOVE},
	{"a", "m.npy", EMEDIUMTYPE, MOVE}, // array data is not replaced by an edit
	{"m.npy", "a", EMEDIUMTYPE, MOVE}, {"m.npy", "n.npy", EMEDIUMTYPE, MOVE}, {"a", "b", EEXIST, LINK},
	{"d", "c", EPERM, LINK},           {"nothing", "c", ENOENT, LINK},        {"a", "nowhere/a", ENOENT, LINK},
};

START_TEST(a_name_that_cannot_be_changes_nothing)
{
	const char *to = refused[_i].to ? refused[_i].to : deep_name();
	const struct ckpt_names names = {refused[_i].from, to, refused[_i].act == MOVE};

	ck_error(refused[_i].act == LINK ? ckpt_amend_link_to(step, &names) : ckpt_amend_move(step, &names),
		 refused[_i].error);
	ck_assert_uint_eq(version(), 1);
	ckpt_staged_check(step, "a", "text of a");
	ckpt_staged_check(step, "b", "text of b");
	ckpt_staged_check(step, "d/e/x", "text of x");
}
END_TEST

static const struct {
	const char *from, *to;
	const char *has, *text; // a file of the step then; NULL: none is asked for
	uint32_t version;
	bool links;
} done[] = {
	{"a", "b", "b", "text of a", 2, false},
	{"a", "c", "c", "text of a", 2, false},
	{"a", "d/a", "d/a", "text of a", 2, false},
	{"a", "a2", "a", "text of a", 1, false}, // two links of one file: rename(2) does nothing
	{"none", "c", "c", "", 2, false},
	{"a", "none", "none", "text of a", 2, false},
	{"link", "c", NULL, NULL, 2, false},
	{"link", "b", NULL, NULL, 2, false},
	{"a", "link", "link", "text of a", 2, false},
	{"d", "d", "d/e/x", "text of x", 1, false},
	{"d", "f", "f/e/x", "text of x", 2, false},
	{"d", "empty", "empty/e/x", "text of x", 2, false},
	{"d/e", "e", "e/x", "text of x", 2, false},
	{"m.npy", "d/m.npy", NULL, NULL, 2, false},
	{"a", "c", "a", "text of a", 2, true},
	{"d/e/x", "x", "x", "text of x", 2, true},
};

START_TEST(a_name_is_another_and_the_bytes_stay)
{
	const struct ckpt_names names = {done[_i].from, done[_i].to, true};
	bool same = done[_i].version == 1;

	ck_ok(done[_i].links ? ckpt_amend_link_to(step, &names) : ckpt_amend_move(step, &names));
	ck_assert_uint_eq(version(), done[_i].version);
	ck_assert(ckpt_staged_has(step, done[_i].to));
	ck_assert(ckpt_staged_has(step, done[_i].from) == (same || done[_i].links));
	if (done[_i].has)
		ckpt_staged_check(step, done[_i].has, done[_i].text);
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	ck_assert_uint_eq(version(), done[_i].version);
	if (done[_i].has)
		ckpt_staged_check(step, done[_i].has, done[_i].text);
}
END_TEST

// The bytes are in packs: they are looked at there.
START_TEST(array_data_in_packs_is_known_as_such)
{
	const struct ckpt_tier_how how = {0};
	struct ckpt_tier_done cooled;

	ck_ok(ckpt_cool_sealed(step, &how, &cooled));
	ck_error(ckpt_amend_move(step, &(struct ckpt_names){"a", "m.npy", true}), EMEDIUMTYPE);
	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){"a", "b", true}));
	ckpt_staged_check(step, "b", "text of a");
}
END_TEST

START_TEST(what_an_evaluation_says_is_known_once_its_file_has_the_name)
{
	struct ckpt_record r;

	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){"eval.json", CKPT_METRICS_FILE, true}));
	ck_ok(ckpt_step_record(step, version(), &r));
	ck_assert_str_eq(r.metadata, "{\"metrics\":{\"loss\":0.5}}");
	ckpt_record_done(&r);
}
END_TEST

// --- Answers that are lost ------------------------------------------------------------------------------------------------

static struct ckpt_fault fault;

static int change(int links, const struct ckpt_names *names)
{
	return links ? ckpt_amend_link_to(step, names) : ckpt_amend_move(step, names);
}

// The caller asks again, and is told that it is done; who asks for it a second time is not.
START_TEST(a_second_attempt_finds_what_the_first_did_without_an_answer)
{
	const struct ckpt_names names = {"a", "c", true};

	ckpt_save_fault(s, &fault);
	fault = (struct ckpt_fault){.at = 2, .error = -EIO, .half = true, .sticky = true};
	ck_error(change(_i, &names), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "outcome"), 0);
	ck_assert_uint_eq(ckpt_save_errors(s, "a could not be"), 1);
	fault.at = 0;
	ck_ok(change(_i, &names));
	ck_assert_uint_eq(version(), 2);
	ckpt_staged_check(step, "c", "text of a");
	ck_assert(ckpt_staged_has(step, "a") == (_i == 1));
	ck_error(change(_i, &names), _i ? EEXIST : ENOENT);
}
END_TEST

START_TEST(a_step_that_is_being_changed_gets_no_names)
{
	const struct ckpt_names names = {"a", "c", true};
	struct ckpt_step *changed;

	ck_ok(ckpt_reopen(step, &changed));
	ck_error(change(_i, &names), EBUSY);
	ck_assert_uint_eq(version(), 1);
	ckpt_step_unref(changed);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend names");
	TCase *names = tcase_create("names");

	tcase_add_checked_fixture(names, setup, teardown);
	tcase_add_loop_test(names, a_name_that_cannot_be_changes_nothing, 0, (int)ARRAY_LEN(refused));
	tcase_add_loop_test(names, a_name_is_another_and_the_bytes_stay, 0, (int)ARRAY_LEN(done));
	tcase_add_test(names, array_data_in_packs_is_known_as_such);
	tcase_add_test(names, what_an_evaluation_says_is_known_once_its_file_has_the_name);
	tcase_add_loop_test(names, a_second_attempt_finds_what_the_first_did_without_an_answer, 0, 2);
	tcase_add_loop_test(names, a_step_that_is_being_changed_gets_no_names, 0, 2);
	suite_add_tcase(suite, names);
	return ckpt_suite_run(suite);
}
