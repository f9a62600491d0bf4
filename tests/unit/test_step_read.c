// What a committed step has on disk, when something else stands in the place of a raw file, a record or a manifest: an error,
// never other bytes.
#include "core/save/version.h"
#include "core/store/open.h"
#include "tests/support/hooks.h"
#include "tests/support/callfault.h"
#include "tests/support/fixture_step.h"
#include "tests/support/packed.h"
#include "tests/support/sysfault.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/move.h"

#include <fcntl.h>
#include <stdio.h>

static struct ckpt_manifest *m;
static int session;

static void setup(void)
{
	ckpt_fixture_step_open("1000");
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
	ckpt_fixture_step_close();
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

START_TEST(a_file_that_cannot_be_looked_at_is_not_read)
{
	int descriptors = dup(session), after, rc;

	close(descriptors);
	ckpt_callfault_begin(1, -EIO);
	rc = read_at("sub/file");
	ckpt_callfault_end();
	ck_error(rc, EIO);
	ck_assert_str_eq(callfault.name, "fstat");
	after = dup(session);
	ck_assert_int_eq(after, descriptors); // nothing is left open
	close(after);
}
END_TEST

START_TEST(what_is_in_packs_has_no_raw_file)
{
	struct ckpt_step *cold = ckpt_packed_step(s, "2000", "weights");
	struct ckpt_manifest *its = ckpt_staged_manifest(cold);
	uint32_t index;
	int fd;

	ck_ok(ckpt_manifest_lookup(its, "0", &index));
	ck_error(ckpt_step_open_raw(cold, its, index, &fd), EIO);
	ck_ok(ckpt_packed_read(cold, "0", "weights"));
	ckpt_manifest_unref(its);
	ckpt_step_unref(cold);
}
END_TEST

START_TEST(a_step_of_empty_files_has_them)
{
	struct ckpt_step *empty = ckpt_staged_one(s, "2000", "file", "");

	ckpt_staged_check(empty, "file", "");
	ckpt_step_unref(empty);
}
END_TEST

// --- Records and manifests ----------------------------------------------------------------------------------------------

// The step with a manifest that is an object of its own, which nobody has read yet.
static struct ckpt_step *large(bool with_index)
{
	struct ckpt_step *made = ckpt_save_one(s, CKPT_SAVE_LARGE);
	char path[PATH_MAX];

	ckpt_step_unref(made);
	ckpt_manifest_unref(TAKE_PTR(m));
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%.4000s/index", dir);
	if (!with_index)
		ckpt_temp_empty(path, true);
	s = ckpt_save_open(dir);
	step = ckpt_step_find(s, "", "1000");
	return ckpt_save_find(s, CKPT_SAVE_LARGE);
}

static void object_of(const struct ckpt_summary *sum, char *ret)
{
	strcpy(ret, "m/");
	ckpt_hex(sum->manifest_sha256, 32, ret + 2);
}

START_TEST(a_manifest_of_other_bytes_than_the_record_says_is_none)
{
	struct ckpt_step *of = large(false), *other = ckpt_staged_begin(s, "3000");
	char object[2 + 64 + 1], its[2 + 64 + 1];
	struct ckpt_manifest *none;
	CLEANUP_FREE void *data = NULL;
	size_t len;

	for (int i = 0; i < 20; i++) {
		char target[4001], link[8];

		memset(target, 'o', sizeof(target) - 1);
		target[sizeof(target) - 1] = '\0';
		snprintf(link, sizeof(link), "%d", i);
		ck_ok(ckpt_sys.symlink(target, other->dirfd, link));
	}
	ck_ok(ckpt_commit(other, &ckpt_staged_plain));
	object_of(&other->version->is, its);
	object_of(&of->version->is, object);
	ck_ok(ckpt_objects_get_all(s->objects, its, SIZE_MAX, &data, &len, NULL));
	ck_ok(ckpt_objects_remove(s->objects, object));
	ck_ok(ckpt_objects_put(s->objects, object, data, len, NULL)); // whole, but another step's
	ck_error(ckpt_step_manifest(of, &none), EBADMSG);
	ck_assert_uint_eq(ckpt_save_errors(s, "is damaged or missing"), 1);
	ckpt_step_unref(of);
	ckpt_step_unref(other);
}
END_TEST

START_TEST(a_manifest_that_is_missing_is_damage_and_one_that_cannot_be_read_just_now_is_not)
{
	struct ckpt_sysfault fault = {.at = 1, .error = -EIO};
	struct ckpt_step *of = large(false);
	struct ckpt_manifest *none;
	char object[2 + 64 + 1];
	int rc;

	ckpt_sysfault_begin(&fault);
	rc = ckpt_step_manifest(of, &none);
	ckpt_sysfault_end(&fault);
	ck_error(rc, EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "is damaged or missing"), 0);
	object_of(&of->version->is, object);
	ck_ok(ckpt_objects_remove(s->objects, object));
	ck_error(ckpt_step_manifest(of, &none), EBADMSG);
	ck_assert_uint_eq(ckpt_save_errors(s, "is damaged or missing"), 1);
	ckpt_step_unref(of);
}
END_TEST

START_TEST(other_bytes_in_the_index_are_not_believed)
{
	struct ckpt_step *of = large(true);
	struct ckpt_manifest *there;

	ck_ok(ckpt_index_put_manifest(s->index, of->version->is.manifest_sha256, "no manifest", strlen("no manifest")));
	ck_ok(ckpt_step_manifest(of, &there));
	ck_assert_mem_eq(ckpt_manifest_sha256(there), of->version->is.manifest_sha256, CKPT_SHA256_LEN);
	ckpt_manifest_unref(there);
	ckpt_step_unref(of);
}
END_TEST

// One without a session: each manifest of ours has the step's.
START_TEST(a_file_of_no_session_is_in_the_steps)
{
	const struct ckpt_entry root = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1, .nlink = 1, .mode = 0755},
				file = {.type = CKPT_ENTRY_FILE, .name = "empty", .ino = 2, .nlink = 1, .mode = 0644};
	char path[CKPT_RAW_PATH_MAX], want[64];
	struct ckpt_manifest_writer *writer;
	struct ckpt_manifest *none;
	uint32_t handle;
	void *data;
	size_t len;

	ck_ok(ckpt_manifest_writer_new(&writer));
	ck_ok(ckpt_manifest_writer_add(writer, 0, &root, &handle));
	ck_ok(ckpt_manifest_writer_add(writer, handle, &file, &handle));
	ck_ok(ckpt_manifest_writer_finish(writer, &data, &len));
	ckpt_manifest_writer_free(writer);
	ck_ok(ckpt_manifest_parse(data, len, &none));
	ck_ok(ckpt_step_raw_path(step, none, 1, path, sizeof(path)));
	snprintf(want, sizeof(want), "%s/empty", step->session);
	ck_assert_str_eq(path, want);
	ckpt_manifest_unref(none);
}
END_TEST

START_TEST(the_index_has_a_large_manifest_that_the_store_lost)
{
	struct ckpt_step *of = large(true);
	struct ckpt_manifest *there;
	char object[2 + 64 + 1];

	object_of(&of->version->is, object);
	ck_ok(ckpt_objects_remove(s->objects, object));
	ck_ok(ckpt_step_manifest(of, &there));
	ckpt_manifest_unref(there);
	ckpt_step_unref(of);
}
END_TEST

// What is known of it says that its record has the manifest.
START_TEST(a_record_without_the_manifest_that_it_is_to_have_is_damaged)
{
	struct ckpt_step *of = large(false);
	struct ckpt_summary sum = of->version->is;
	struct ckpt_manifest *none;

	sum.manifest_bytes = 1;
	sum.nonce[0] ^= 1; // else the record itself is asked where its manifest is
	ck_error(ckpt_step_read_manifest(of, &sum, &none), EBADMSG);
	sum.version = 7; // of which there is no record
	ck_error(ckpt_step_read_manifest(of, &sum, &none), ENOENT);
	ckpt_step_unref(of);
}
END_TEST

static int (*real_open)(int dirfd, const char *path, int flags, mode_t mode);
static void (*meanwhile)(void);

// The step is changed before anything of it is read.
static int open_beside_a_change(int dirfd, const char *path, int flags, mode_t mode)
{
	ckpt_hook_set(open, real_open);
	meanwhile();
	return real_open(dirfd, path, flags, mode);
}

static void new_version(void)
{
	char text[64];

	snprintf(text, sizeof(text), "{\"metrics\":{\"loss\":%u}}", step->version->is.version);
	ck_ok(ckpt_commit_metadata(step, text));
}

static void new_name(void)
{
	ck_ok(ckpt_move(step, "", strcmp(step->name, "1000") ? "1000" : "best"));
}

static void new_folder(void)
{
	ck_ok(ckpt_move(step, *step->folder_id ? "" : "0123456789abcdef", step->name));
}

START_TEST(a_version_is_read_whatever_becomes_of_its_step_meanwhile)
{
	static void (*const changes[])(void) = {new_version, new_name, new_folder};

	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
		struct ckpt_manifest *there;

		meanwhile = changes[i];
		real_open = ckpt_hooks.open;
		ckpt_hook_set(open, open_beside_a_change);
		ck_ok(ckpt_step_read_manifest(step, &v->is, &there));
		ck_assert_ptr_eq(ckpt_hooks.open, real_open);
		ck_assert_ptr_ne(v, step->version);
		ck_assert_mem_eq(ckpt_manifest_sha256(there), v->is.manifest_sha256, CKPT_SHA256_LEN);
		ckpt_manifest_unref(there);
	}
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
	tcase_add_test(t, a_file_that_cannot_be_looked_at_is_not_read);
	tcase_add_test(t, a_step_of_empty_files_has_them);
	tcase_add_test(t, a_manifest_of_other_bytes_than_the_record_says_is_none);
	tcase_add_test(t, a_manifest_that_is_missing_is_damage_and_one_that_cannot_be_read_just_now_is_not);
	tcase_add_test(t, other_bytes_in_the_index_are_not_believed);
	tcase_add_test(t, a_file_of_no_session_is_in_the_steps);
	tcase_add_test(t, the_index_has_a_large_manifest_that_the_store_lost);
	tcase_add_test(t, a_record_without_the_manifest_that_it_is_to_have_is_damaged);
	tcase_add_test(t, what_is_in_packs_has_no_raw_file);
	tcase_add_test(t, a_version_is_read_whatever_becomes_of_its_step_meanwhile);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
