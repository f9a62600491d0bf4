// Files of a staged step that stand for chunks of another one, until the commit.
#include "core/save/share_chunks.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/packed.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/errlog.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct ckpt_step *base, *step; // the file "0" in packs; staged

static void setup(void)
{
	ckpt_fixture_open();
	base = ckpt_packed_step(s, "1000", "in a pack");
	step = ckpt_staged_begin(s, "2000");
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static int share(void)
{
	struct ckpt_manifest *m;
	uint32_t index;
	int rc;

	ck_ok(ckpt_step_manifest(base, &m));
	ck_ok(ckpt_manifest_lookup(m, "0", &index));
	rc = ckpt_share_chunks(base, m, index, step->dirfd, "shared");
	ckpt_manifest_unref(m);
	return rc;
}

// A mount of another user's than root's opens it at the commit.
START_TEST(it_is_the_owners_of_its_folder_whoever_makes_it)
{
	uid_t owner = geteuid() ? geteuid() : 65534;
	struct stat st;

	ck_assert_int_eq(fchown(step->dirfd, owner, (gid_t)-1), 0);
	ck_ok(share());
	ck_assert_int_eq(fstatat(step->dirfd, "shared", &st, 0), 0);
	ck_assert_uint_eq(st.st_uid, owner);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0400);
}
END_TEST

static int no_attribute(int fd, const char *name, const void *value, size_t len, int flags)
{
	(void)fd;
	(void)name;
	(void)value;
	(void)len;
	(void)flags;
	return -ENOSPC;
}

START_TEST(without_room_for_what_it_stands_for_there_is_none)
{
	struct stat st;

	ckpt_hook_set(fsetxattr, no_attribute);
	ck_error(share(), EXDEV);
	ck_assert_int_eq(fstatat(step->dirfd, "shared", &st, 0), -1);
}
END_TEST

START_TEST(it_is_guarded_until_it_is_an_ordinary_file)
{
	char *errors;
	int fd;

	ck_ok(share());
	for (int i = 0; i < 2; i++) {
		ck_error(ckpt_share_chunks_guard(step, step->dirfd, "shared"), EPERM);
		ck_error(ckpt_share_chunks_guard_all(step), EPERM);
	}
	ck_ok(ckpt_share_chunks_guard(NULL, step->dirfd, "shared"));
	ck_ok(ckpt_share_chunks_guard(step, step->dirfd, "nosuch"));
	ck_ok(ckpt_errlog_text(s->errlog, &errors));
	ck_assert_ptr_nonnull(strstr(errors, "stand for chunks"));
	ck_assert_ptr_null(strstr(strstr(errors, "stand for chunks") + 1, "stand for chunks"));
	free(errors);
	fd = ckpt_sys.open(step->dirfd, "shared", O_PATH, 0);
	ck_ok(fd);
	ck_error(ckpt_share_chunks_guard(step, fd, ""), EPERM);
	ck_ok(ckpt_share_chunks_drop(fd));
	ck_ok(ckpt_share_chunks_drop(fd));
	ck_ok(ckpt_share_chunks_guard(step, fd, ""));
	ck_ok(ckpt_share_chunks_guard_all(step));
	ckpt_sys.close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share_chunks");
	TCase *stand_in = tcase_create("stand-in");

	tcase_add_checked_fixture(stand_in, setup, teardown);
	tcase_add_test(stand_in, it_is_the_owners_of_its_folder_whoever_makes_it);
	tcase_add_test(stand_in, without_room_for_what_it_stands_for_there_is_none);
	tcase_add_test(stand_in, it_is_guarded_until_it_is_an_ordinary_file);
	suite_add_tcase(suite, stand_in);
	return ckpt_suite_run(suite);
}
