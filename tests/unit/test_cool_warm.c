// Warming: the raw files of a cold step come back as they were, and packs stand in for those that do not.
#include "tests/support/cooling.h"

START_TEST(warming_brings_the_raw_files_back_as_they_were)
{
	char raw[PATH_MAX], path[PATH_MAX + 32], value[2];
	struct stat one, other;
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert(step->version->is.version == version && step->version->is.packed && step->version->is.sealed);
	ck_assert(done.files == 3 && done.bytes == LARGE + 8);
	ck_assert(has_raw("config") && has_raw("twin") && has_raw("sub/large"));
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	ck_ok(fstatat(s->sessions_fd, raw, &one, 0));
	ck_assert(one.st_size == 4 && (one.st_mode & 07777) == 0640 && one.st_nlink == 2);
	ck_assert(one.st_mtim.tv_sec == 1000000000 && one.st_mtim.tv_nsec == 123456789);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", s->sessions_fd, raw);
	ck_assert_int_eq(getxattr(path, "user.kind", value, sizeof(value)), 1);
	snprintf(raw, sizeof(raw), "%s/sub/link", step->session);
	ck_ok(fstatat(s->sessions_fd, raw, &other, 0));
	ck_assert_uint_eq(other.st_ino, one.st_ino);
	check_all();
	drop_cache();
	check_all();
}
END_TEST

START_TEST(a_warm_step_is_cooled_without_a_new_pack_or_version)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(!done.stored_bytes && done.files == 3 && packs() == 1 && step->version->is.version == version);
	ck_assert(done.bytes == LARGE + 8 && !has_raw("sub/large") && !has_raw("config") && !has_raw("sub/link"));
	check_all();
}
END_TEST

// The raw file is there: what its pack has lost is packed anew.
START_TEST(a_warm_step_whose_pack_is_damaged_is_packed_anew)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	damage_packs(49);
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(done.stored_bytes && packs() == 2);
	drop_cache();
	check_all();
}
END_TEST

START_TEST(only_some_files_are_warmed)
{
	struct ckpt_tier_how how = {.only = "large"};

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &how, &done));
	ck_assert(done.files == 1 && step->version->is.packed);
	ck_assert(has_raw("sub/large") && !has_raw("config"));
	how.only = "sub/*"; // by one of its names a file is wanted
	ck_ok(ckpt_warm(step, &how, &done));
	ck_assert(done.files == 1 && has_raw("config") && has_raw("sub/link") && !has_raw("twin"));
	check_all();
	how.only = "nothing";
	ck_ok(ckpt_warm(step, &how, &done));
	ck_assert_uint_eq(done.files, 0);
}
END_TEST

START_TEST(a_step_with_damaged_packs_stays_cold)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	damage_packs(49);
	drop_cache();
	ck_error(ckpt_warm(step, &plain, &done), EIO);
	ck_assert(step->version->is.packed && step->version->is.version == version);
	ck_assert(!has_raw("sub/large"));
	ck_assert_uint_eq(ckpt_save_errors(s, "its files could not be read from packs"), 1);
	damage_packs(49);
	ck_ok(ckpt_warm(step, &plain, &done));
	check_all();
}
END_TEST

// A leftover of a crash under its name is not taken for it.
START_TEST(a_raw_file_that_was_left_is_replaced)
{
	char raw[PATH_MAX];

	ck_ok(ckpt_cool(step, &plain, &done));
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	{
		CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR | O_CREAT | O_EXCL, 0600);

		ck_assert_int_eq(pwrite(fd, "left", 4, 0), 4);
	}
	ckpt_staged_check(step, "config", "text");
	ck_ok(ckpt_warm(step, &plain, &done));
	ckpt_staged_check(step, "config", "text");
}
END_TEST

START_TEST(the_last_good_copy_stays_beside_a_damaged_pack)
{
	CLEANUP_FD int fd = -1;
	char raw[PATH_MAX];

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	damage_packs(33); // the chunk of config and twin
	drop_cache();
	snprintf(raw, sizeof(raw), "%s/twin", step->session);
	fd = openat(s->sessions_fd, raw, O_RDWR);
	ck_assert_int_eq(pwrite(fd, "t", 1, 0), 1); // neither is it believed
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	ck_ok(unlinkat(s->sessions_fd, raw, 0));
	snprintf(raw, sizeof(raw), "%s/sub/link", step->session);
	ck_ok(unlinkat(s->sessions_fd, raw, 0));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(has_raw("twin") && !has_raw("sub/large"));
	check_large();
}
END_TEST

// Of config, by whatever stands in its place.
static void check_beside(void (*spoil)(const char *raw))
{
	char raw[PATH_MAX];

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	spoil(raw);
	check_all();
	drop_cache();
	check_all();
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert(done.files == 1 && ckpt_packed_is_raw(step, "config") && ckpt_packed_is_raw(step, "sub/link"));
	check_all();
	ck_assert_uint_eq(ckpt_save_errors(s, ""), 0);
}

static void remove_raw(const char *raw)
{
	ck_ok(unlinkat(s->sessions_fd, raw, 0));
}

static void cut_raw(const char *raw)
{
	CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR);

	ck_ok(ftruncate(fd, 3));
}

static void put_another(const char *raw, mode_t type)
{
	remove_raw(raw);
	ck_ok(mknodat(s->sessions_fd, raw, type | 0644, 0));
}

static void replace_raw(const char *raw)
{
	CLEANUP_FD int fd = -1;

	put_another(raw, S_IFREG);
	fd = openat(s->sessions_fd, raw, O_RDWR);
	ck_assert_int_eq(pwrite(fd, "TEXT", 4, 0), 4);
}

static void put_fifo(const char *raw)
{
	put_another(raw, S_IFIFO);
}

START_TEST(packs_stand_in_for_a_raw_file_that_is_gone_or_another)
{
	check_beside(remove_raw);
	check_beside(cut_raw);
	check_beside(replace_raw);
	check_beside(put_fifo);
}
END_TEST

START_TEST(a_raw_file_of_a_step_without_packs_is_not_missed_silently)
{
	char raw[PATH_MAX], there[8];
	struct ckpt_manifest *m = manifest();
	uint32_t index;

	snprintf(raw, sizeof(raw), "%s/twin", step->session);
	remove_raw(raw);
	ck_ok(ckpt_manifest_lookup(m, "twin", &index));
	ck_error((int)ckpt_staged_read(step, m, index, there, sizeof(there)), EIO);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(for_a_day_a_step_stays_warm_across_restarts)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_int_eq(ckpt_warm_left_ns(step), 0);
	ck_ok(ckpt_warm(step, &plain, &done));
	drop_cache();
	ck_assert_int_gt(ckpt_warm_left_ns(step), CKPT_WARM_NS - INT64_C(3600000000000));
	ck_assert_int_le(ckpt_warm_left_ns(step), CKPT_WARM_NS);
	ck_ok(ckpt_cool(step, &plain, &done)); // by who asks for it
	ck_assert_int_eq(ckpt_warm_left_ns(step), 0);
	ck_assert(!has_raw("sub/large"));
}
END_TEST

// The simulated disk keeps all that is written in memory: this step has small files, in two directories.
static void cool_small(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "config", "text"));
	close(ckpt_staged_put(step, "sub/model", "weights"));
	ck_ok(ckpt_sys.link(step->dirfd, "sub/model", step->dirfd, "sub/link"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &plain, &done));
}

// A name that is there is that of the whole file. The simulated disk has no times, and a raw file without its own is not read.
static void check_raw(struct ckpt_step *found, const char *path, const char *text, bool must)
{
	char raw[CKPT_RAW_PATH_MAX], there[16];
	CLEANUP_FD int fd = -1;

	snprintf(raw, sizeof(raw), "%s/%s", found->session, path);
	fd = openat(found->store->sessions_fd, raw, O_RDONLY);
	ck_assert(fd >= 0 || !must);
	if (fd < 0)
		return;
	ck_assert_int_eq(read(fd, there, sizeof(there)), strlen(text));
	ck_assert_mem_eq(there, text, strlen(text));
	ck_assert_int_gt(ckpt_warm_left_ns(found), 0);
}

static void check_small(const char *where, bool warmed)
{
	struct ckpt_store *there;
	struct ckpt_step *found;

	ck_ok(ckpt_store_open(where, CKPT_STORE_WRITE, NULL, &there));
	found = ckpt_step_find(there, "", "1000");
	ck_assert_ptr_nonnull(found);
	check_raw(found, "config", "text", warmed);
	check_raw(found, "sub/model", "weights", warmed);
	check_raw(found, "sub/link", "weights", warmed);
	ckpt_staged_check(found, "config", "text");
	ckpt_staged_check(found, "sub/model", "weights");
	ckpt_staged_check(found, "sub/link", "weights");
	ckpt_step_unref(found);
	ckpt_store_close(there);
}

START_TEST(a_warmed_file_is_on_disk_before_it_has_its_name)
{
	struct ckpt_disk *disk;
	char out[PATH_MAX];

	cool_small();
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ck_ok(ckpt_warm(step, &plain, &done));
	ckpt_disk_end(disk);
	ckpt_step_unref(step);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < 8; seed++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			check_small(out, point == ckpt_disk_count(disk));
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
	ckpt_fixture_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool warm");
	TCase *warm = tcase_create("warm"), *power = tcase_create("power");

	tcase_add_checked_fixture(warm, setup, teardown);
	tcase_add_test(warm, warming_brings_the_raw_files_back_as_they_were);
	tcase_add_test(warm, a_warm_step_is_cooled_without_a_new_pack_or_version);
	tcase_add_test(warm, a_warm_step_whose_pack_is_damaged_is_packed_anew);
	tcase_add_test(warm, only_some_files_are_warmed);
	tcase_add_test(warm, a_step_with_damaged_packs_stays_cold);
	tcase_add_test(warm, a_raw_file_that_was_left_is_replaced);
	tcase_add_test(warm, the_last_good_copy_stays_beside_a_damaged_pack);
	tcase_add_test(warm, packs_stand_in_for_a_raw_file_that_is_gone_or_another);
	tcase_add_test(warm, a_raw_file_of_a_step_without_packs_is_not_missed_silently);
	tcase_add_test(warm, for_a_day_a_step_stays_warm_across_restarts);
	suite_add_tcase(suite, warm);
	tcase_add_test(power, a_warmed_file_is_on_disk_before_it_has_its_name);
	suite_add_tcase(suite, power);
	return ckpt_suite_run(suite);
}
