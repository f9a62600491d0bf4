// Which checkpoint a run loads: each rule of the order and each form of a path, on a store that nobody has mounted.
// tests/fs/test_resolve.py has those of mounts.
#include "core/save/stage.h"
#include "tests/support/fixture.h"

#include "core/base/util.h"
#include "core/request/resolve.h"
#include "core/save/delete.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define ITEMS "run/checkpoints/items"

static char run_id[CKPT_FOLDER_ID_LEN + 1], items_id[CKPT_FOLDER_ID_LEN + 1];

// As if it had been read from the store: sequence, time of the first commit, time of the directory.
static void loaded(const char *folder_id, const char *name, uint64_t sequence, int64_t first_ns, int64_t mtime_ns)
{
	static unsigned sessions;
	struct ckpt_summary summary = {
		.version = 1,
		.number = ckpt_name_number(name),
		.sequence = sequence,
		.first_committed_ns = first_ns,
		.dir_mtime_ns = mtime_ns,
	};

	snprintf(summary.folder_id, sizeof(summary.folder_id), "%s", folder_id);
	snprintf(summary.name, sizeof(summary.name), "%s", name);
	snprintf(summary.session, sizeof(summary.session), "00000000-0000-4000-8000-%012u", ++sessions);
	ck_ok(ckpt_step_enter(s, &(struct ckpt_said){.is = summary}));
}

static void write_tracker(const char *name, const char *text)
{
	CLEANUP_FD int fd = openat(s->tree_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static int resolve(const struct ckpt_resolve *how, struct ckpt_resolved *ret)
{
	const struct ckpt_mounts none = {0};
	struct ckpt_folders folders;
	const struct ckpt_view v = {.store = s, .folders = &folders, .mounts = &none};
	bool of_path;
	int rc;

	ck_ok(ckpt_folders_read(s, &folders));
	rc = ckpt_resolve_run(&v, how, ret, &of_path);
	ckpt_folders_done(&folders);
	return rc;
}

static void fails(struct ckpt_resolve how, int error)
{
	struct ckpt_resolved r;

	ck_error(resolve(&how, &r), error);
}

// step and path NULL: there is none.
static void is(struct ckpt_resolve how, enum ckpt_resolve_mode mode, const char *step, const char *path)
{
	struct ckpt_resolved r;

	ck_ok(resolve(&how, &r));
	ck_assert_str_eq(ckpt_resolve_words[r.mode], ckpt_resolve_words[mode]);
	ck_assert_pstr_eq(r.step, step);
	ck_assert_pstr_eq(r.path, path);
	ckpt_resolved_done(&r);
}

static void by(enum ckpt_latest_by order, const char *step)
{
	is((struct ckpt_resolve){.folder = "", .by = order}, step ? CKPT_RESOLVE_RESUME : CKPT_RESOLVE_SCRATCH, step,
	   NULL);
}

START_TEST(each_order_has_its_newest)
{
	by(CKPT_LATEST_BY_STEP, NULL);
	//                            commit  first  mtime
	loaded("", "iter_0000300", 1, 40, 10);
	loaded("", "iter_0000100", 4, 30, 20);
	loaded("", "iter_0000200", 3, 50, 40);
	loaded("", "iter_0000400", 2, 50, 30);
	loaded("", "release", 9, 90, 90); // without a number: behind all that have one
	by(CKPT_LATEST_BY_STEP, "iter_0000400");
	by(CKPT_LATEST_BY_COMMIT, "iter_0000100");
	by(CKPT_LATEST_BY_TIMESTAMP, "iter_0000400"); // of two of the same time the higher number
	by(CKPT_LATEST_BY_MTIME, "iter_0000200");
	by(CKPT_LATEST_BY_TRACKER, NULL);
	write_tracker("latest_checkpointed_iteration.txt", "300\n");
	by(CKPT_LATEST_BY_TRACKER, "iter_0000300");
	write_tracker("latest_checkpointed_iteration.txt", "release");
	by(CKPT_LATEST_BY_TRACKER, "release");
	write_tracker("latest_checkpointed_iteration.txt", "500");
	by(CKPT_LATEST_BY_TRACKER, NULL);
	write_tracker("latest", "iter_0000200\n");
	by(CKPT_LATEST_BY_TRACKER, "iter_0000200");
}
END_TEST

START_TEST(a_time_that_is_not_known_is_the_oldest)
{
	loaded("", "900", 9, 0, 0);
	loaded("", "100", 1, 1, 1);
	by(CKPT_LATEST_BY_TIMESTAMP, "100");
	by(CKPT_LATEST_BY_MTIME, "100");
	by(CKPT_LATEST_BY_STEP, "900");
}
END_TEST

START_TEST(only_steps_that_are_whole_count)
{
	struct ckpt_step *whole = ckpt_staged_one(s, "1000", "f", "x"), *gone = ckpt_staged_one(s, "2000", "f", "x");
	struct ckpt_step *staged = ckpt_staged_begin(s, "3000");

	ck_ok(ckpt_delete(gone));
	for (enum ckpt_latest_by order = CKPT_LATEST_BY_COMMIT; order <= CKPT_LATEST_BY_MTIME; order++)
		by(order, "1000");
	is((struct ckpt_resolve){.folder = "2000"}, CKPT_RESOLVE_SCRATCH, NULL, NULL);
	is((struct ckpt_resolve){.folder = "3000"}, CKPT_RESOLVE_SCRATCH, NULL, NULL);
	ckpt_step_unref(whole);
	ckpt_step_unref(gone);
	ckpt_step_unref(staged);
}
END_TEST

// run/checkpoints/1000 with items/f, run/checkpoints/items/2000, run/checkpoints/3000
static void make_run(void)
{
	static const char *const folders[] = {"run", "run/checkpoints", ITEMS, "plain"};
	struct ckpt_step *step;
	const char *name;

	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		ck_assert_int_eq(mkdirat(s->tree_fd, folders[i], 0755), 0);
	ck_ok(ckpt_folders_place(s, "run/checkpoints/1000", run_id, &name));
	ck_ok(ckpt_folders_place(s, ITEMS "/2000", items_id, &name));
	ck_ok(ckpt_stage_begin(s, run_id, "1000", 0755, getuid(), getgid(), getpid(), &step));
	ck_assert_int_eq(mkdirat(step->dirfd, "items", 0755), 0);
	close(ckpt_staged_put(step, "items/f", "x"));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
	loaded(items_id, "2000", 50, 5, 5);
	loaded(run_id, "3000", 51, 6, 6);
}

START_TEST(a_run_is_a_folder_its_checkpoints_or_a_step)
{
	static const struct {
		const char *folder, *step;
	} cases[] = {
		{"run/checkpoints", "run/checkpoints/3000"},
		{"run", "run/checkpoints/3000"}, // one deeper, when it has none itself
		{ITEMS, ITEMS "/2000"},
		{"run/checkpoints/1000", "run/checkpoints/1000"},
		{"run/checkpoints/latest~1", "run/checkpoints/1000"},
		{"plain", NULL},
		{"nowhere", NULL},
		{"checkpoints", NULL},
	};

	make_run();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		is((struct ckpt_resolve){.folder = cases[i].folder, .by = CKPT_LATEST_BY_STEP},
		   cases[i].step ? CKPT_RESOLVE_RESUME : CKPT_RESOLVE_SCRATCH, cases[i].step, NULL);
	fails((struct ckpt_resolve){.folder = "run/checkpoints/1000/items"}, ENOTDIR);
	fails((struct ckpt_resolve){.folder = "", .parameters = "/proc"}, EMLINK); // whose steps are those?
}
END_TEST

static void load_in(const char *folder, const char *step)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	ck_assert_int_eq(mkdirat(s->tree_fd, folder, 0755), 0);
	ck_ok(ckpt_folders_place_folder(s, folder, id));
	loaded(id, step, 1, 1, 1);
}

START_TEST(a_store_without_steps_in_its_root_has_those_of_its_checkpoints_or_only_folder)
{
	const struct ckpt_resolve root = {.folder = "", .by = CKPT_LATEST_BY_STEP, .parameters = "/proc"};

	is(root, CKPT_RESOLVE_PARAMETERS, NULL, "/proc");
	load_in("b", "7");
	is(root, CKPT_RESOLVE_RESUME, "b/7", NULL);
	load_in("a", "9");
	fails(root, EMLINK);
	load_in("checkpoints", "3");
	is(root, CKPT_RESOLVE_RESUME, "checkpoints/3", NULL);
	loaded("", "1", 9, 9, 9);
	is(root, CKPT_RESOLVE_RESUME, "1", NULL);
}
END_TEST

START_TEST(a_path_counts_only_for_a_run_without_steps)
{
	struct ckpt_resolve how = {.folder = "run", .parameters = "/"};

	make_run();
	is(how, CKPT_RESOLVE_RESUME, "run/checkpoints/3000", NULL);
	how.parameters = "/nowhere at all";
	is(how, CKPT_RESOLVE_RESUME, "run/checkpoints/3000", NULL);
	how.folder = "plain";
	fails(how, ENOENT); // and is not scratch
	how.parameters = "/proc";
	is(how, CKPT_RESOLVE_PARAMETERS, NULL, "/proc");
	how = (struct ckpt_resolve){.folder = "plain", .full_state = "/proc"};
	is(how, CKPT_RESOLVE_FULL_STATE, NULL, "/proc");
	how.parameters = "/proc";
	fails(how, EINVAL);
	how.folder = "run";
	fails(how, EINVAL);
}
END_TEST

START_TEST(a_path_below_the_store_is_a_step_in_either_form)
{
	static const struct {
		const char *path, *step; // NULL: error
		int error;
	} cases[] = {
		{"run/checkpoints/1000", "run/checkpoints/1000", 0},
		{"run/checkpoints/1000/items", "run/checkpoints/1000", 0},
		{"run/checkpoints/items/1000", "run/checkpoints/1000", 0},
		{"run/checkpoints/1000/items/f", "run/checkpoints/1000", 0},
		{ITEMS "/2000", ITEMS "/2000", 0},
		{"run/checkpoints/2000/items", ITEMS "/2000", 0},
		{"run/checkpoints/latest~1", "run/checkpoints/1000", 0},
		{"run/checkpoints/9/items", NULL, ENOENT},
		{"run/checkpoints/items/9", NULL, ENOENT},
		{"run/checkpoints/1000/nothing", NULL, ENOENT},
		{"run/checkpoints/1000/items/f/f", NULL, ENOENT},
		{"nowhere", NULL, ENOENT},
		{"run/checkpoints", NULL, EISDIR},
		{"", NULL, EISDIR},
	};

	make_run();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char path[PATH_MAX + 64];
		struct ckpt_resolve how = {.folder = "plain", .full_state = path};

		snprintf(path, sizeof(path), "%s%s%s", s->path, *cases[i].path ? "/" : "", cases[i].path);
		if (cases[i].step)
			is(how, CKPT_RESOLVE_FULL_STATE, cases[i].step, NULL);
		else
			fails(how, cases[i].error);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("resolve");
	TCase *t = tcase_create("resolve");

	tcase_add_checked_fixture(t, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(t, each_order_has_its_newest);
	tcase_add_test(t, a_time_that_is_not_known_is_the_oldest);
	tcase_add_test(t, only_steps_that_are_whole_count);
	tcase_add_test(t, a_run_is_a_folder_its_checkpoints_or_a_step);
	tcase_add_test(t, a_store_without_steps_in_its_root_has_those_of_its_checkpoints_or_only_folder);
	tcase_add_test(t, a_path_counts_only_for_a_run_without_steps);
	tcase_add_test(t, a_path_below_the_store_is_a_step_in_either_form);
	suite_add_tcase(all, t);
	return all;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
