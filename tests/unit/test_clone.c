// What belongs to a file goes along with a copy of it. The filesystem that says what there is, and will not have it, is ours:
// not every machine has attributes of the system, and few fail.
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/save/clone.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

// --- A filesystem -----------------------------------------------------------------------------------------------------

static const char *attribute = "user.a"; // the only one
static int list_error, get_error, set_error;
static unsigned set;

ssize_t flistxattr(int fd, char *names, size_t cap)
{
	size_t len = strlen(attribute) + 1;

	(void)fd;
	ck_assert_uint_le(len, cap);
	memcpy(names, attribute, len);
	errno = list_error;
	return list_error ? -1 : (ssize_t)len;
}

ssize_t fgetxattr(int fd, const char *name, void *value, size_t cap)
{
	(void)fd;
	ck_assert_str_eq(name, attribute);
	ck_assert_uint_ge(cap, 3);
	memcpy(value, "any", 3);
	errno = get_error;
	return get_error ? -1 : 3;
}

static int fsetxattr_here(int fd, const char *name, const void *value, size_t len, int flags)
{
	(void)fd;
	(void)flags;
	ck_assert_str_eq(name, attribute);
	ck_assert_uint_eq(len, 3);
	ck_assert_mem_eq(value, "any", 3);
	set += !set_error;
	return -set_error;
}

static int from, to;
static struct statx stx;

static void setup(void)
{
	int dirfd = ckpt_temp_fd();

	from = openat(dirfd, "from", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	to = openat(dirfd, "to", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	close(dirfd);
	ck_assert(from >= 0 && to >= 0);
	ck_assert_int_eq(pwrite(from, "text", 4, 0), 4);
	ck_assert_int_eq(fchmod(from, 0751), 0);
	ck_assert_int_eq(statx(from, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx), 0);
	ckpt_hook_set(fsetxattr, fsetxattr_here);
}

static void check_all_but_attributes(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(to, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0751);
	ck_assert_int_eq(st.st_mtim.tv_sec, stx.stx_mtime.tv_sec);
	ck_assert_int_eq(st.st_mtim.tv_nsec, stx.stx_mtime.tv_nsec);
}

// --- Tests ------------------------------------------------------------------------------------------------------------

START_TEST(attributes_of_clients_go_along_and_ours_where_they_are_asked_for)
{
	ck_ok(ckpt_clone_file(from, to, &stx, false));
	ck_assert_uint_eq(set, 1);
	attribute = CKPT_OWN_XATTRS "x";
	ck_ok(ckpt_clone_attributes(from, to, &stx, false));
	ck_assert_uint_eq(set, 1);
	ck_ok(ckpt_clone_attributes(from, to, &stx, true));
	ck_assert_uint_eq(set, 2);
	check_all_but_attributes();
}
END_TEST

START_TEST(who_is_not_root_keeps_what_he_copies)
{
	struct stat st;

	if (geteuid() == 0) {
		ck_assert_int_eq(fchown(to, 65534, 65534), 0);
		ck_assert_int_eq(seteuid(65534), 0);
	}
	stx.stx_uid = stx.stx_gid = 1;
	ck_ok(ckpt_clone_attributes(from, to, &stx, false));
	ck_assert_int_eq(fstat(to, &st), 0);
	ck_assert_uint_eq(st.st_uid, geteuid());
	ck_assert_int_eq(seteuid(getuid()), 0);
	check_all_but_attributes();
	ck_assert_uint_eq(set, 1);
}
END_TEST

// The user's must all be there; of the others those that the disk and our rights allow.
START_TEST(an_attribute_that_cannot_be_had_is_left_out_only_where_it_is_none_of_the_users)
{
	static const int errors[] = {EPERM, EACCES, EOPNOTSUPP, EIO, ENODATA};

	attribute = _i ? "system.a" : "user.a";
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		bool fine = _i && errors[i] != EIO;

		get_error = errors[i];
		ck_assert_int_eq(ckpt_clone_attributes(from, to, &stx, false),
				 fine || errors[i] == ENODATA ? 0 : -errors[i]); // it went since it was listed
		get_error = 0;
		set_error = errors[i];
		ck_assert_int_eq(ckpt_clone_attributes(from, to, &stx, false),
				 fine && errors[i] != ENODATA ? 0 : -errors[i]);
		set_error = 0;
	}
	ck_assert_uint_eq(set, 0);
	ck_ok(ckpt_clone_attributes(from, to, &stx, false));
	ck_assert_uint_eq(set, 1);
}
END_TEST

START_TEST(a_disk_that_has_no_attributes_will_do_and_one_that_fails_will_not)
{
	list_error = EOPNOTSUPP;
	ck_ok(ckpt_clone_attributes(from, to, &stx, false));
	check_all_but_attributes();
	list_error = EIO;
	ck_error(ckpt_clone_attributes(from, to, &stx, false), EIO);
	ck_assert_uint_eq(set, 0);
}
END_TEST

static int clone_nothing(int from_fd, int to_fd)
{
	(void)from_fd;
	(void)to_fd;
	return 0;
}

START_TEST(a_file_that_changed_meanwhile_has_no_copy)
{
	const struct statx now = stx;

	ckpt_hook_set(clone, clone_nothing);
	ck_ok(ckpt_clone_file(from, to, &stx, false));
	stx.stx_size++;
	ck_error(ckpt_clone_file(from, to, &stx, false), EBUSY);
	stx = now;
	stx.stx_mtime.tv_sec--;
	ck_error(ckpt_clone_file(from, to, &stx, false), EBUSY);
	stx = now;
	stx.stx_mtime.tv_nsec ^= 1;
	ck_error(ckpt_clone_file(from, to, &stx, false), EBUSY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clone");
	TCase *tcase = tcase_create("clone");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, attributes_of_clients_go_along_and_ours_where_they_are_asked_for);
	tcase_add_test(tcase, who_is_not_root_keeps_what_he_copies);
	tcase_add_loop_test(tcase, an_attribute_that_cannot_be_had_is_left_out_only_where_it_is_none_of_the_users, 0,
			    2);
	tcase_add_test(tcase, a_disk_that_has_no_attributes_will_do_and_one_that_fails_will_not);
	tcase_add_test(tcase, a_file_that_changed_meanwhile_has_no_copy);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
