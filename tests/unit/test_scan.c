// What a commit takes of a staged tree, and what it refuses: through the commit, as nobody else scans.
#include "tests/support/fixture_step.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static void setup(void)
{
	ckpt_fixture_step_open("1");
}

static int commit(void)
{
	static const struct ckpt_commit how = {.event = "marker", .profile = "generic", .writers_ns = 1000000};

	return ckpt_commit(step, &how);
}

static void put(const char *path, const char *text)
{
	CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
}

static void entry_of(const char *path, struct ckpt_manifest **ret_manifest, struct ckpt_entry *ret_entry)
{
	uint32_t index;

	ck_ok(ckpt_step_manifest(step, ret_manifest));
	ck_ok(ckpt_manifest_lookup(*ret_manifest, path, &index));
	ckpt_manifest_entry(*ret_manifest, index, ret_entry);
}

static void assert_bytes(const char *path, const char *text)
{
	CLEANUP_FD int fd = -1;
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	char there[64];

	entry_of(path, &m, &e);
	ck_ok(ckpt_step_open_raw(step, m, e.index, &fd));
	ck_assert_int_eq(ckpt_sys.pread(fd, there, sizeof(there), 0), (ssize_t)strlen(text));
	ck_assert_mem_eq(there, text, strlen(text));
	ckpt_manifest_unref(m);
}

// Refused with this error and a line that names it; once it is gone the commit succeeds.
static void refused_until_gone(const char *path, int error, const char *named, bool is_dir)
{
	ck_error(commit(), error);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert_msg(ckpt_save_errors(s, named) == 1, "no line names %s", named);
	ck_assert_int_eq(unlinkat(step->dirfd, path, is_dir ? AT_REMOVEDIR : 0), 0);
	ck_ok(commit());
}

// --- What nobody may still write ------------------------------------------------------------------------------------------

START_TEST(a_leaked_descriptor_that_can_write_is_refused)
{
	CLEANUP_FD int fd = -1;

	put("file", "text");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "dir", 0755));
	put("dir/other", "text");
	fd = ckpt_sys.open(step->dirfd, "dir/other", O_RDWR, 0);
	ck_ok(fd);
	ck_error(commit(), EBUSY);
	ck_assert_uint_eq(ckpt_save_errors(s, "dir/other"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	close(TAKE_FD(fd));
	ck_ok(commit());
}
END_TEST

START_TEST(a_shared_mapping_that_can_write_is_refused)
{
	char *map;
	int fd;

	put("file", "text");
	fd = ckpt_sys.open(step->dirfd, "file", O_RDWR, 0);
	ck_ok(fd);
	map = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd); // the mapping writes on
	ck_error(commit(), EBUSY);
	munmap(map, 4);
	ck_ok(commit());
}
END_TEST

START_TEST(readers_are_welcome)
{
	CLEANUP_FD int fd = -1;
	char *map;

	put("file", "text");
	fd = ckpt_sys.open(step->dirfd, "file", O_RDONLY, 0);
	map = mmap(NULL, 4, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_ok(commit());
	ck_assert_mem_eq(map, "text", 4);
	munmap(map, 4);
}
END_TEST

// --- What a step cannot have --------------------------------------------------------------------------------------------

START_TEST(a_planted_fifo_socket_or_device_is_refused)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	CLEANUP_FD int sock = -1;
	char here[PATH_MAX];

	put("file", "text");
	switch (_i) {
	case 0:
		ck_assert_int_eq(mkfifoat(step->dirfd, "planted", 0644), 0);
		break;
	case 1:
		ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
		ck_assert_int_eq(fchdir(step->dirfd), 0);
		strcpy(address.sun_path, "planted");
		sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
		ck_assert_int_eq(chdir(here), 0);
		break;
	default:
		if (geteuid()) // only root can plant one
			return;
		ck_assert_int_eq(mknodat(step->dirfd, "planted", S_IFCHR | 0644, makedev(1, 3)), 0);
	}
	refused_until_gone("planted", EINVAL, "planted", false);
}
END_TEST

START_TEST(a_name_that_a_step_cannot_have_is_refused)
{
	static const struct {
		const char *name, *named;
		int error;
	} names[] = {{"a\nb", "a?b", EINVAL}, {"\x7f", "EINVAL", EINVAL}, {"\xff\xfe", "EILSEQ", EILSEQ}};

	put(names[_i].name, "text");
	refused_until_gone(names[_i].name, names[_i].error, names[_i].named, false);
}
END_TEST

START_TEST(as_many_levels_as_a_step_may_have_and_no_more)
{
	int fd = dup(step->dirfd), deepest = -1;

	for (int level = 1; level <= CKPT_DEPTH_MAX; level++) {
		ck_ok(ckpt_sys.mkdir(fd, "d", 0755));
		if (level == CKPT_DEPTH_MAX)
			deepest = dup(fd);
		int below = ckpt_sys.open(fd, "d", O_RDONLY | O_DIRECTORY, 0);

		close(fd);
		fd = below;
	}
	close(fd);
	ck_error(commit(), E2BIG);
	ck_assert_uint_eq(ckpt_save_errors(s, "too deep"), 1);
	ck_assert_int_eq(unlinkat(deepest, "d", AT_REMOVEDIR), 0);
	close(deepest);
	ck_ok(commit());
}
END_TEST

START_TEST(too_many_attributes_are_refused)
{
	CLEANUP_FD int fd = -1;
	char name[64];
	int n;

	put("file", "text");
	fd = ckpt_sys.open(step->dirfd, "file", O_RDONLY, 0);
	for (n = 0; n < 4000; n++) {
		snprintf(name, sizeof(name), "user.attribute.with.a.long.name.%04d", n);
		if (ckpt_sys.fsetxattr(fd, name, "0123456789", 10, 0))
			break;
	}
	if (n < 2000)
		return; // this filesystem has a lower limit of its own
	int rc = commit();

	ck_assert_msg(rc == -E2BIG || rc == -ENOSPC, "%d", rc);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
}
END_TEST

static enum { AS_IT_IS, TOO_MANY, NO_ATTRIBUTES, OTHERS_TOO, TOO_LARGE } attributes; // what the filesystem has

// In place of the C library's: what a filesystem takes differs.
ssize_t flistxattr(int fd, char *list, size_t size)
{
	static const char others[] = "security.selinux\0user.colour\0system.nfs4_acl";

	switch (attributes) {
	case TOO_MANY:
		errno = ERANGE;
		return -1;
	case NO_ATTRIBUTES:
		errno = EOPNOTSUPP;
		return -1;
	case OTHERS_TOO:
		ck_assert_uint_ge(size, sizeof(others));
		memcpy(list, others, sizeof(others));
		return sizeof(others);
	default:
		return syscall(SYS_flistxattr, fd, list, size);
	}
}

ssize_t fgetxattr(int fd, const char *name, void *value, size_t size)
{
	if (attributes == TOO_LARGE) {
		errno = ERANGE;
		return -1;
	}
	return syscall(SYS_fgetxattr, fd, name, value, size);
}

START_TEST(too_many_attributes_are_not_told_as_too_many_files)
{
	CLEANUP_FD int fd = -1;

	put("file", "text");
	fd = ckpt_sys.open(step->dirfd, "file", O_RDONLY, 0);
	ck_ok(ckpt_sys.fsetxattr(fd, "user.colour", "blue", 4, 0));
	attributes = _i ? TOO_LARGE : TOO_MANY;
	ck_error(commit(), E2BIG);
	attributes = AS_IT_IS;
	ck_assert_uint_eq(ckpt_save_errors(s, "extended attributes"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "too many files"), 0);
	ck_ok(commit());
}
END_TEST

// --- What it keeps --------------------------------------------------------------------------------------------------------

START_TEST(hard_links_symlinks_and_attributes_are_kept)
{
	struct ckpt_manifest *m;
	struct ckpt_entry a, b, link;
	CLEANUP_FD int fd = -1;
	const char *name;
	const void *value;
	size_t len;

	put("a", "text");
	fd = ckpt_sys.open(step->dirfd, "a", O_RDONLY, 0);
	ck_ok(ckpt_sys.fsetxattr(fd, "user.colour", "blue", 4, 0));
	ck_ok(ckpt_sys.fsetxattr(fd, "user.ckptfs.ours", "hidden", 6, 0));
	ck_ok(ckpt_sys.link(step->dirfd, "a", step->dirfd, "b"));
	ck_ok(ckpt_sys.symlink("/etc/passwd", step->dirfd, "out"));
	ck_ok(ckpt_sys.fsetxattr(step->dirfd, "user.root", "", 0, 0));
	ck_ok(commit());
	entry_of("a", &m, &a);
	entry_of("b", &m, &b);
	entry_of("out", &m, &link);
	ck_assert_uint_eq(a.ino, b.ino);
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_str_eq(link.target, "/etc/passwd");
	ck_assert(ckpt_manifest_xattr(m, &b, 0, &name, &value, &len));
	ck_assert_str_eq(name, "user.colour");
	ck_assert_mem_eq(value, "blue", 4);
	ck_assert(!ckpt_manifest_xattr(m, &b, 1, &name, &value, &len));
	ckpt_manifest_entry(m, 0, &a);
	ck_assert(ckpt_manifest_xattr(m, &a, 0, &name, &value, &len));
	ck_assert_str_eq(name, "user.root");
	ck_assert_uint_eq(step->version->is.files, 1);
	ck_assert_uint_eq(step->version->is.bytes, 4);
	for (int i = 0; i < 3; i++)
		ckpt_manifest_unref(m);
}
END_TEST

static bool has_attribute(const char *path, uint32_t i, const char *wanted)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	const char *name;
	const void *value;
	size_t len;
	bool has;

	entry_of(path, &m, &e);
	has = ckpt_manifest_xattr(m, &e, i, &name, &value, &len);
	if (has)
		ck_assert_str_eq(name, wanted);
	ckpt_manifest_unref(m);
	return has;
}

START_TEST(a_filesystem_without_attributes_has_steps_without_them)
{
	put("file", "text");
	attributes = NO_ATTRIBUTES;
	ck_ok(commit());
	attributes = AS_IT_IS;
	ck_assert(!has_attribute("file", 0, ""));
	assert_bytes("file", "text");
}
END_TEST

START_TEST(attributes_of_the_system_are_not_kept)
{
	CLEANUP_FD int fd = -1;

	put("file", "text");
	fd = ckpt_sys.open(step->dirfd, "file", O_RDONLY, 0);
	ck_ok(ckpt_sys.fsetxattr(fd, "user.colour", "blue", 4, 0));
	ck_ok(ckpt_sys.fsetxattr(step->dirfd, "user.colour", "red", 3, 0));
	attributes = OTHERS_TOO;
	ck_ok(commit());
	attributes = AS_IT_IS;
	ck_assert(has_attribute("file", 0, "user.colour"));
	ck_assert(!has_attribute("file", 1, ""));
}
END_TEST

START_TEST(an_empty_step_is_a_step)
{
	struct ckpt_manifest *m;

	ck_ok(commit());
	ck_ok(ckpt_step_manifest(step, &m));
	ck_assert_uint_eq(ckpt_manifest_count(m), 1);
	ckpt_manifest_unref(m);
}
END_TEST

// --- Raw files of a committed step ----------------------------------------------------------------------------------------

START_TEST(a_raw_file_that_is_not_what_the_manifest_says_is_an_error)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	char path[2 * PATH_MAX];
	int fd;

	put("file", "text");
	ck_ok(commit());
	assert_bytes("file", "text");
	entry_of("file", &m, &e);
	snprintf(path, sizeof(path), "%s/sessions/%s/file", dir, step->session);
	ck_assert_int_eq(truncate(path, 3), 0);
	ck_error(ckpt_step_open_raw(step, m, e.index, &fd), EIO);
	ck_assert_int_eq(unlink(path), 0);
	ck_error(ckpt_step_open_raw(step, m, e.index, &fd), EIO);
	ck_assert_int_eq(symlink("/etc/hostname", path), 0);
	ck_error(ckpt_step_open_raw(step, m, e.index, &fd), EIO);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0644), 0);
	ck_error(ckpt_step_open_raw(step, m, e.index, &fd), EIO);
	ck_error(ckpt_step_open_raw(step, m, 0, &fd), EINVAL);
	ckpt_manifest_unref(m);
}
END_TEST

static Suite *scan_suite(void)
{
	Suite *suite = suite_create("scan");
	TCase *tcase = tcase_create("scan");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_step_close);
	tcase_add_test(tcase, a_leaked_descriptor_that_can_write_is_refused);
	tcase_add_test(tcase, a_shared_mapping_that_can_write_is_refused);
	tcase_add_test(tcase, readers_are_welcome);
	tcase_add_loop_test(tcase, a_planted_fifo_socket_or_device_is_refused, 0, 3);
	tcase_add_loop_test(tcase, a_name_that_a_step_cannot_have_is_refused, 0, 3);
	tcase_add_test(tcase, as_many_levels_as_a_step_may_have_and_no_more);
	tcase_add_test(tcase, too_many_attributes_are_refused);
	tcase_add_loop_test(tcase, too_many_attributes_are_not_told_as_too_many_files, 0, 2);
	tcase_add_test(tcase, hard_links_symlinks_and_attributes_are_kept);
	tcase_add_test(tcase, a_filesystem_without_attributes_has_steps_without_them);
	tcase_add_test(tcase, attributes_of_the_system_are_not_kept);
	tcase_add_test(tcase, an_empty_step_is_a_step);
	tcase_add_test(tcase, a_raw_file_that_is_not_what_the_manifest_says_is_an_error);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(scan_suite());
}
