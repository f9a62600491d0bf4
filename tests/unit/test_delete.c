// Deleting a step, having it back, saving over its name, and the end of what expired.
#include "core/save/stage.h"
#include "core/save/version.h"
#include "core/step/follow.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/remove.h"
#include "core/step/errlog.h"
#include "core/step/trash.h"
#include "core/store/load.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define NEVER_NS INT64_MAX

static void save(const char *name, const char *text)
{
	ckpt_step_unref(ckpt_staged_one(s, name, "model.bin", text));
}

static void has(const char *name, const char *text) // NULL: there is no such step
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_assert_msg(!step == !text, "%s", name);
	if (step)
		ckpt_staged_check(step, "model.bin", text);
	ckpt_step_unref(step);
}

static void delete (const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
}

// The n-th newest in the trash, with a reference.
static struct ckpt_step *deleted(size_t n)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, 1u << CKPT_STEP_DELETED, &steps, &count));
	for (size_t i = 0; i < count; i++) {
		size_t newer = 0;

		for (size_t j = 0; j < count; j++)
			newer += steps[j]->deleted_by > steps[i]->deleted_by;
		if (newer == n)
			found = ckpt_step_ref(steps[i]);
	}
	ckpt_step_list_free(steps, count);
	ck_assert_ptr_nonnull(found);
	return found;
}

static unsigned names_in(const char *below)
{
	char path[PATH_MAX + 16];
	unsigned count = 0;
	struct dirent *d;
	DIR *at;

	snprintf(path, sizeof(path), "%s/%s", dir, below);
	at = opendir(path);
	while (at && (d = readdir(at)))
		count += d->d_name[0] != '.';
	if (at)
		closedir(at);
	return count;
}

START_TEST(a_deleted_step_is_in_no_listing_and_its_name_is_free)
{
	struct ckpt_step *step, *held;

	save("1000", "the first");
	held = ckpt_step_find(s, "", "1000");
	delete ("1000");
	for (int i = 0; i < 2; i++) {
		has("1000", NULL);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
		step = deleted(0);
		ck_assert_str_eq(step->name, "1000");
		ckpt_staged_check(step, "model.bin", "the first");
		ck_error(ckpt_delete(step), ESTALE);
		ckpt_step_unref(step);
		if (!i) {
			ckpt_staged_check(held, "model.bin", "the first"); // who has it goes on reading
			ckpt_step_unref(held);
		}
		ckpt_fixture_reopen();
	}
	save("1000", "the second");
	has("1000", "the second");
	ckpt_fixture_reopen();
	has("1000", "the second");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
}
END_TEST

START_TEST(an_undeleted_step_is_as_it_was)
{
	CLEANUP_FREE char *before = NULL, *after = NULL;
	struct ckpt_step *step;

	save("1000", "the bytes");
	step = ckpt_step_find(s, "", "1000");
	ck_ok(ckpt_commit_metadata(step, "{\"metrics\":{\"loss\":1.5}}"));
	ck_ok(ckpt_delete(step));
	ck_ok(ckpt_undelete(step));
	ck_error(ckpt_undelete(step), ESTALE);
	ckpt_step_unref(step);
	for (int i = 0; i < 2; i++) {
		struct ckpt_record r;

		has("1000", "the bytes");
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
		step = ckpt_step_find(s, "", "1000");
		ck_assert_uint_eq(step->version->is.version, 4);
		ck_ok(ckpt_step_record(step, 4, &r));
		ck_assert_str_eq(r.metadata, "{\"metrics\":{\"loss\":1.5}}");
		ckpt_record_done(&r);
		ckpt_step_unref(step);
		ckpt_fixture_reopen();
	}
	delete ("1000"); // and again
	ckpt_fixture_reopen();
	has("1000", NULL);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
}
END_TEST

START_TEST(every_step_that_had_a_name_can_be_had_back_when_the_name_is_free)
{
	struct ckpt_step *first, *second;

	save("1000", "the first");
	delete ("1000");
	save("1000", "the second");
	ckpt_fixture_reopen();
	first = deleted(0);
	ck_error(ckpt_undelete(first), EEXIST);
	ckpt_step_unref(first);
	delete ("1000");
	ckpt_fixture_reopen();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 2);
	second = deleted(0);
	first = deleted(1);
	ckpt_staged_check(first, "model.bin", "the first");
	ckpt_staged_check(second, "model.bin", "the second");
	ck_ok(ckpt_undelete(first));
	ck_assert_uint_gt(first->version->is.version, second->deleted_by); // no number of the name is given twice
	ck_error(ckpt_undelete(second), EEXIST);
	ckpt_step_unref(first);
	ckpt_step_unref(second);
	for (int i = 0; i < 2; i++) {
		has("1000", "the first");
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
		ckpt_fixture_reopen();
	}
}
END_TEST

START_TEST(what_is_not_in_the_trash_does_not_expire)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1000");

	close(ckpt_staged_put(step, "model.bin", "the bytes"));
	ck_error(ckpt_expire_at_once(step), ESTALE);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_error(ckpt_expire_at_once(step), ESTALE);
	has("1000", "the bytes");
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	has("1000", "the bytes");
}
END_TEST

START_TEST(what_has_expired_is_gone_from_the_disk_and_nothing_else_is)
{
	bool stop = false;
	int64_t before;

	save("1000", "the first");
	save("2000", "another");
	delete ("1000");
	save("1000", "the second");
	delete ("1000");
	delete ("2000");
	before = ckpt_sys.now_ns();
	save("1000", "the third");
	save("3000", "deleted later");
	delete ("3000");
	ck_assert_int_ge(ckpt_expire_before(s, before, &stop), before); // there is one left
	ckpt_trash_drain(*ckpt_trash_of(s));
	for (int i = 0; i < 2; i++) {
		has("1000", "the third");
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
		ck_assert_uint_eq(names_in("sessions"), 2);
		ck_assert_uint_eq(names_in("trash"), 0);
		ckpt_fixture_reopen();
	}
	ck_assert_int_eq(ckpt_expire_before(s, NEVER_NS, &stop), INT64_MAX);
	ckpt_trash_drain(*ckpt_trash_of(s));
	ckpt_fixture_reopen();
	has("1000", "the third");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	ck_assert_uint_eq(names_in("sessions"), 1);
	save("2000", "from the beginning");
	ckpt_fixture_reopen();
	has("2000", "from the beginning");
}
END_TEST

START_TEST(large_manifests_go_with_their_step)
{
	struct ckpt_step *step = ckpt_save_one(s, CKPT_SAVE_LARGE);

	ck_assert_uint_eq(names_in("m"), 1);
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = deleted(0);
	ckpt_save_check_step(step, CKPT_SAVE_LARGE);
	ck_ok(ckpt_undelete(step));
	ck_ok(ckpt_delete(step));
	ck_ok(ckpt_expire(step));
	ck_error(ckpt_undelete(step), ESTALE);
	ckpt_step_unref(step);
	ck_assert_uint_eq(names_in("m"), 0);
}
END_TEST

static void rename_index(const char *from, const char *to)
{
	char old[PATH_MAX + 16], new[PATH_MAX + 16];

	snprintf(old, sizeof(old), "%s/%s", dir, from);
	snprintf(new, sizeof(new), "%s/%s", dir, to);
	ck_assert_int_eq(rename(old, new), 0);
}

// As when an index elsewhere (work_dir), or none for want of room, was in use meanwhile.
START_TEST(an_index_from_before_an_expiry_is_not_believed)
{
	struct ckpt_step *step;

	save("1000", "the first");
	ckpt_store_close(s);
	rename_index("index", "index.old");
	s = ckpt_save_open(dir);
	delete ("1000");
	step = deleted(0);
	ck_ok(ckpt_expire(step));
	ckpt_step_unref(step);
	save("1000", "the second");
	ckpt_store_close(s);
	rename_index("index", "index.newer");
	rename_index("index.old", "index");
	for (int i = 0; i < 3; i++) {
		ck_ok(ckpt_store_open(dir, i ? CKPT_STORE_WRITE : CKPT_STORE_READ, NULL, &s));
		has("1000", "the second");
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
		if (i < 2)
			ckpt_store_close(s);
	}
}
END_TEST

START_TEST(the_trash_empties_itself_when_the_time_comes)
{
	struct ckpt_settings settings;

	save("1000", "soon gone");
	ckpt_store_close(s);
	ckpt_settings_init(&settings);
	settings.trash_ns = 1;
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, &settings, &s));
	delete ("1000");
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	ck_assert_uint_eq(names_in("sessions"), 0);
	ckpt_settings_done(&settings);
}
END_TEST

START_TEST(a_reader_beside_sees_deletions_and_what_comes_after)
{
	struct ckpt_store *writer = s, *reader;
	struct ckpt_step *step;

	save("1000", "the first");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	delete ("1000");
	usleep(30000); // two changes in one tick look like one
	s = reader;
	ck_ok(ckpt_follow_refresh(s));
	has("1000", NULL);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
	s = writer;
	step = deleted(0);
	ck_ok(ckpt_undelete(step));
	usleep(30000);
	s = reader;
	ck_ok(ckpt_follow_refresh(s));
	has("1000", "the first");
	s = writer;
	ck_ok(ckpt_delete(step));
	ck_ok(ckpt_expire(step));
	ckpt_step_unref(step);
	save("1000", "from the beginning");
	usleep(30000);
	s = reader;
	ck_ok(ckpt_follow_refresh(s));
	ck_ok(ckpt_follow_refresh(s));
	has("1000", "from the beginning");
	s = writer;
	ckpt_store_close(reader);
}
END_TEST

START_TEST(deleted_steps_of_one_name_are_told_apart)
{
	char label[CKPT_NAME_MAX + 1], want[CKPT_NAME_MAX + 1];
	struct ckpt_step *step, **steps;
	size_t count;

	save("1000", "older");
	delete ("1000");
	save("1000", "newer");
	delete ("1000");
	ck_ok(ckpt_stage_begin(s, "0123456789abcdef", "1000", 0755, getuid(), getgid(), getpid(), &step));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	save("7", "other");
	delete ("7");
	ck_ok(ckpt_deleted_list(s, &steps, &count));
	ck_assert_uint_eq(count, 4); // the last to be deleted first
	ckpt_deleted_label(steps, 0, true, label, sizeof(label));
	ck_assert_str_eq(label, "1000");
	ck_assert_str_eq(steps[0]->folder_id, "0123456789abcdef");
	ckpt_deleted_label(steps, 1, true, label, sizeof(label));
	ck_assert_str_eq(label, "1000");
	snprintf(want, sizeof(want), "1000.%.8s", steps[1]->session);
	ckpt_deleted_label(steps, 1, false, label, sizeof(label));
	ck_assert_str_eq(label, want);
	ck_assert_int_gt(steps[1]->deleted_ns, steps[2]->deleted_ns);
	snprintf(want, sizeof(want), "1000.%.8s", steps[2]->session);
	ckpt_deleted_label(steps, 2, true, label, sizeof(label));
	ck_assert_str_eq(label, want);
	ckpt_deleted_label(steps, 3, true, label, sizeof(label));
	ck_assert_str_eq(label, "7");
	ckpt_step_list_free(steps, count);
}
END_TEST

START_TEST(each_refusal_has_its_hint)
{
	static const int refusals[] = {EEXIST, ENOENT, ESTALE};

	ck_assert_str_ne(ckpt_delete_hint(-EPERM), ckpt_delete_hint(-ESTALE));
	ck_assert_ptr_null(ckpt_delete_hint(-ENOSPC)); // what goes for it anywhere
	ck_assert_ptr_null(ckpt_undelete_hint(-ENOSPC));
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(ckpt_undelete_hint(-refusals[i]), ckpt_undelete_hint(-refusals[k]));
}
END_TEST

static unsigned manifests_read, read_under_the_lock;
static int manifest_fd = -1;
static struct ckpt_sys before;

static int open_and_see(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = before.open(dirfd, path, flags, mode);

	if (!strncmp(path, "m/", 2))
		manifest_fd = fd;
	else if (fd == manifest_fd)
		manifest_fd = -1;
	return fd;
}

static ssize_t look_at_lock(int fd, void *buf, size_t len, off_t offset)
{
	if (fd == manifest_fd) {
		bool is_free = !pthread_mutex_trylock(&s->acts_lock.mutex);

		manifests_read++;
		if (is_free)
			pthread_mutex_unlock(&s->acts_lock.mutex);
		else
			read_under_the_lock++;
	}
	return before.pread(fd, buf, len, offset);
}

// One of many files takes its time.
START_TEST(a_manifest_is_not_read_while_others_wait_for_the_lock_of_all_acts)
{
	struct ckpt_step *step = ckpt_save_one(s, CKPT_SAVE_LARGE);
	struct ckpt_index *index = s->index;

	ck_ok(ckpt_delete(step));
	ckpt_save_settle_all(s);
	s->index = NULL; // which has it, too
	before = ckpt_hooks;
	ckpt_hook_set(open, open_and_see);
	ckpt_hook_set(pread, look_at_lock);
	ck_ok(ckpt_expire(step));
	ckpt_hooks_restore(&before);
	s->index = index;
	ck_assert_uint_gt(manifests_read, 0);
	ck_assert_uint_eq(read_under_the_lock, 0);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(nobody_waits_for_a_trash_that_was_stopped)
{
	struct ckpt_trash *t = *ckpt_trash_of(s);

	ckpt_trash_remove_behind(t, "a");
	ckpt_trash_drain(t);
	ck_assert_uint_eq(ckpt_trash_pending(t), 0);
	ckpt_trash_stop(t);
	ckpt_trash_remove_behind(t, "b");
	ckpt_trash_drain(t);
	ck_assert_uint_ge(ckpt_trash_pending(t), 1); // the next start does it
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("delete");
	TCase *tcase = tcase_create("delete");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_deleted_step_is_in_no_listing_and_its_name_is_free);
	tcase_add_test(tcase, deleted_steps_of_one_name_are_told_apart);
	tcase_add_test(tcase, each_refusal_has_its_hint);
	tcase_add_test(tcase, an_undeleted_step_is_as_it_was);
	tcase_add_test(tcase, every_step_that_had_a_name_can_be_had_back_when_the_name_is_free);
	tcase_add_test(tcase, what_is_not_in_the_trash_does_not_expire);
	tcase_add_test(tcase, what_has_expired_is_gone_from_the_disk_and_nothing_else_is);
	tcase_add_test(tcase, large_manifests_go_with_their_step);
	tcase_add_test(tcase, an_index_from_before_an_expiry_is_not_believed);
	tcase_add_test(tcase, a_manifest_is_not_read_while_others_wait_for_the_lock_of_all_acts);
	tcase_add_test(tcase, nobody_waits_for_a_trash_that_was_stopped);
	tcase_add_test(tcase, the_trash_empties_itself_when_the_time_comes);
	tcase_add_test(tcase, a_reader_beside_sees_deletions_and_what_comes_after);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
