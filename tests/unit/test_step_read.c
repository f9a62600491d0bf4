// The raw files of a committed step, when something else stands in the place of one: an error, never other bytes.
#include "tests/support/save.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "core/sys.h"
#include "core/util.h"

#include <fcntl.h>

static char dir[PATH_MAX];
static struct ckpt_store *s;
static struct ckpt_step *step;
static struct ckpt_manifest *m;
static int session;

static void setup(void)
{
	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "sub/file", "bytes"));
	close(ckpt_staged_put(step, "empty", ""));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_step_manifest(step, &m));
	session = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	ck_ok(session);
}

static void teardown(void)
{
	close(session);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}

static int read_at(const char *path)
{
	uint32_t index;
	int fd, rc;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	rc = ckpt_step_open_raw(step, m, index, &fd);
	if (!rc)
		close(fd);
	return rc;
}

START_TEST(what_is_no_file_has_no_raw_file)
{
	ck_error(read_at(""), EINVAL);
	ck_error(read_at("sub"), EINVAL);
	ck_ok(read_at("sub/file"));
	ck_ok(read_at("empty"));
}
END_TEST

START_TEST(what_stands_in_the_place_of_a_raw_file_is_not_read)
{
	int fd;

	ck_ok(ckpt_sys.unlink(session, "sub/file", 0));
	ck_error(read_at("sub/file"), EIO);
	ck_ok(ckpt_sys.symlink("../empty", session, "sub/file"));
	ck_error(read_at("sub/file"), EIO);
	ck_ok(ckpt_sys.unlink(session, "sub/file", 0));
	ck_ok(ckpt_sys.mkdir(session, "sub/file", 0755));
	ck_error(read_at("sub/file"), EIO);
	ck_ok(ckpt_sys.unlink(session, "sub/file", AT_REMOVEDIR));
	fd = ckpt_sys.open(session, "sub/file", O_WRONLY | O_CREAT | O_EXCL, 0644);
	ck_ok(ckpt_sys.pwrite(fd, "byte", 4, 0));
	ck_error(read_at("sub/file"), EIO);
	ck_ok(ckpt_sys.pwrite(fd, "s", 1, 4));
	ck_ok(read_at("sub/file"));
	close(fd);
	ck_ok(ckpt_sys.unlink(session, "sub/file", 0));
	ck_ok(ckpt_sys.unlink(session, "sub", AT_REMOVEDIR));
	close(ckpt_sys.open(session, "sub", O_WRONLY | O_CREAT | O_EXCL, 0644));
	ck_error(read_at("sub/file"), EIO);
}
END_TEST

START_TEST(an_error_that_may_go_away_is_said_as_it_is)
{
	struct ckpt_sysfault fault = {.at = 1, .error = -EMFILE};
	int rc;

	ckpt_sysfault_begin(&fault);
	rc = read_at("sub/file");
	ckpt_sysfault_end(&fault);
	ck_error(rc, EMFILE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("step read");
	TCase *t = tcase_create("raw files");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_is_no_file_has_no_raw_file);
	tcase_add_test(t, what_stands_in_the_place_of_a_raw_file_is_not_read);
	tcase_add_test(t, an_error_that_may_go_away_is_said_as_it_is);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
