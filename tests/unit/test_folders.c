// The folders on the way to a step that a verb makes: made where they were not, never in the place of something else.
// tests/fs/test_copy.py has the verb, beside a mount and at rest.
#include "tests/support/fixture.h"

#include "core/base/util.h"
#include "core/step/folders.h"

#include <fcntl.h>
#include <sys/stat.h>

static bool is_dir(const char *path)
{
	struct stat st;

	return !fstatat(s->tree_fd, path, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

static void make_file(const char *path)
{
	int fd = openat(s->tree_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

// As if it had been read from the store.
static void has_step(const char *folder_id, const char *name)
{
	struct ckpt_summary is = {.version = 1, .sequence = 1, .first_committed_ns = 1};

	snprintf(is.folder_id, sizeof(is.folder_id), "%s", folder_id);
	snprintf(is.name, sizeof(is.name), "%s", name);
	snprintf(is.session, sizeof(is.session), "00000000-0000-4000-8000-%012u", (unsigned)strlen(name));
	ck_ok(ckpt_step_enter(s, &(struct ckpt_said){.is = is}));
}

START_TEST(folders_on_the_way_are_made_and_the_last_name_is_not)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	const char *name;

	ck_ok(ckpt_folders_make(s, "1000"));
	ck_assert(!is_dir("1000"));
	for (int i = 0; i < 2; i++) {
		ck_ok(ckpt_folders_make(s, "run/a/1000"));
		ck_assert(is_dir("run") && is_dir("run/a") && !is_dir("run/a/1000"));
	}
	ck_ok(ckpt_folders_place(s, "run/a/1000", id, &name));
	ck_assert_str_eq(name, "1000");
	ck_ok(ckpt_folders_make(s, "run/a/1000"));
	ck_ok(ckpt_folders_make(s, "run/b/1000"));
	ck_assert(is_dir("run/b"));
}
END_TEST

START_TEST(what_is_in_the_way_stays_and_is_said)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	make_file("file");
	ck_assert_int_eq(ckpt_folders_make(s, "file/1000"), -ENOTDIR);
	ck_assert_int_eq(symlinkat("/tmp", s->tree_fd, "link"), 0);
	ck_assert_int_lt(ckpt_folders_make(s, "link/1000"), 0);
	has_step("", "step");
	ck_assert_int_eq(ckpt_folders_make(s, "step/1000"), -EEXIST);
	ck_assert(!is_dir("step"));
	ck_ok(ckpt_folders_make(s, "run/1000"));
	ck_ok(ckpt_folders_place_folder(s, "run", id));
	has_step(id, "inner");
	ck_assert_int_eq(ckpt_folders_make(s, "run/inner/1000"), -EEXIST);
	ck_assert(!is_dir("run/inner"));
	ck_ok(ckpt_folders_make(s, "inner/1000")); // it is a step of another folder
}
END_TEST

START_TEST(what_is_no_name_makes_nothing)
{
	static const char *const paths[] = {"", "/1000", "a//1000", "./1000", "a/../1000", "a/", "new/..", "a\nb/1000"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		ck_assert_int_lt(ckpt_folders_make(s, paths[i]), 0);
	ck_assert(!is_dir("a") && !is_dir("new"));
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("folders");
	TCase *t = tcase_create("folders");

	tcase_add_checked_fixture(t, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(t, folders_on_the_way_are_made_and_the_last_name_is_not);
	tcase_add_test(t, what_is_in_the_way_stays_and_is_said);
	tcase_add_test(t, what_is_no_name_makes_nothing);
	suite_add_tcase(all, t);
	return all;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
