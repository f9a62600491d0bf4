// Cooling and warming of a committed step: where its bytes are then, what of it clients see (nothing), and what damage does.
#include "tests/support/cooling.h"

// --- Cooling ------------------------------------------------------------------------------------------------------------

START_TEST(the_bytes_are_in_packs_and_the_raw_files_are_gone)
{
	static const char *const paths[] = {"config", "sub/link", "twin", "sub/large"};

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(step->version->is.packed && step->version->is.sealed);
	ck_assert_str_eq(step->version->is.event, "cool");
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		ck_assert_int_eq(entry(paths[i]).content, CKPT_CONTENT_CHUNKS);
		ck_assert_msg(!has_raw(paths[i]), "%s", paths[i]);
	}
	ck_assert(has_raw("empty") && entry("empty").content == CKPT_CONTENT_NONE);
	ck_assert_uint_eq(done.files, 3);
	ck_assert_uint_eq(done.bytes, LARGE + 8);
	ck_assert_uint_eq(packs(), 1);
	ck_assert(done.stored_bytes && done.stored_bytes < LARGE / 4); // it repeats
	check_all();
	drop_cache();
	ck_assert(step->version->is.packed);
	check_all();
}
END_TEST

START_TEST(clients_see_nothing_of_it)
{
	struct ckpt_summary was = step->version->is;
	struct ckpt_entry config = entry("config"), is;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_int_eq(step->version->is.committed_ns, was.committed_ns);
	ck_assert(step->born.sequence == was.sequence && step->version->is.version == was.version + 1);
	ck_assert(step->version->is.files == was.files && step->version->is.bytes == was.bytes);
	is = entry("config");
	config.content = CKPT_CONTENT_CHUNKS;
	ck_assert(is_same_entry(&is, &config));
}
END_TEST

START_TEST(a_cold_step_is_not_cooled_again)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(step->version->is.version == version && packs() == 1);
	ck_assert(!done.files && !done.bytes && !done.stored_bytes);
}
END_TEST

START_TEST(a_step_that_is_not_sealed_stays_raw)
{
	struct ckpt_step *other = ckpt_staged_begin(s, "2000");

	close(ckpt_staged_put(other, "config", "text"));
	ck_ok(ckpt_commit(other, &ckpt_staged_plain));
	ck_error(ckpt_cool(other, &plain, &done), ENODATA);
	ck_assert(!other->version->is.packed && !packs());
	ckpt_staged_check(other, "config", "text");
	ckpt_step_unref(other);
}
END_TEST

START_TEST(packs_have_about_the_size_that_is_asked_for)
{
	const struct ckpt_tier_how small = {.pack_bytes = 1};

	ck_ok(ckpt_cool(step, &small, &done));
	ck_assert_uint_eq(packs(), 4); // three chunks of the large file, one that the two small ones share
	check_all();
}
END_TEST

static bool stop(void *arg, uint64_t bytes __attribute__((unused)))
{
	return --*(int *)arg > 0;
}

START_TEST(who_is_told_to_stop_changes_nothing)
{
	int chunks = 2;
	struct ckpt_tier_how how = {.pack_bytes = 64 << 20, .go_on = stop, .arg = &chunks};
	uint32_t version = step->version->is.version;

	ck_error(ckpt_cool(step, &how, &done), EINTR);
	ck_assert(step->version->is.version == version && !step->version->is.packed && has_raw("sub/large"));
	check_all();
	ck_ok(ckpt_cool(step, &plain, &done));
	chunks = 2;
	ck_error(ckpt_warm(step, &how, &done), EINTR);
	ck_assert(step->version->is.packed && !has_raw("sub/large"));
	check_all();
}
END_TEST

static bool until_packed(void *arg __attribute__((unused)), uint64_t bytes __attribute__((unused)))
{
	LOCK_SCOPE(&step->lock);

	return !step->version->is.packed;
}

START_TEST(who_is_told_to_stop_leaves_raw_files_to_the_next_cooling)
{
	const struct ckpt_tier_how how = {.pack_bytes = 64 << 20, .go_on = until_packed};
	uint32_t version;

	ck_error(ckpt_cool(step, &how, &done), EINTR);
	ck_assert(step->version->is.packed && has_raw("config") && has_raw("sub/large"));
	check_all();
	version = step->version->is.version;
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(!has_raw("config") && !has_raw("sub/large"));
	ck_assert(done.files == 3 && !done.stored_bytes && step->version->is.version == version);
	check_all();
}
END_TEST

// In the session of the committed step, to be added to it.
static bool add_late(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *added = arg;

	if (!*added) {
		CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
		CLEANUP_FD int fd = ckpt_sys.open(dirfd, "late", O_RDWR | O_CREAT | O_EXCL, 0644);

		*added = true;
		ck_ok(ckpt_sys.pwrite(fd, "late", 4, 0));
		ck_ok(ckpt_amend_add(step, "late"));
	}
	return true;
}

START_TEST(what_is_added_meanwhile_stays_raw)
{
	bool added = false;
	struct ckpt_tier_how how = {.pack_bytes = 64 << 20, .go_on = add_late, .arg = &added};

	ck_ok(ckpt_cool(step, &how, &done));
	ck_assert(added && step->version->is.packed && !step->version->is.sealed);
	ck_assert_int_eq(entry("late").content, CKPT_CONTENT_RAW);
	ck_assert_int_eq(entry("sub/large").content, CKPT_CONTENT_CHUNKS);
	ckpt_staged_check(step, "late", "late");
	check_all();
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_int_eq(entry("late").content, CKPT_CONTENT_CHUNKS);
	ckpt_staged_check(step, "late", "late");
	check_all();
}
END_TEST

START_TEST(a_step_that_is_being_removed_is_left_alone)
{
	ck_ok(ckpt_staged_remove(step, "empty"));
	ck_error(ckpt_cool(step, &plain, &done), EBUSY);
	ck_assert(!step->version->is.packed && has_raw("sub/large"));
}
END_TEST

static bool remove_one(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *removed = arg;
	if (packs() && !*removed)
		(void)ckpt_staged_remove(step, "empty");
	*removed = packs() > 0;
	return true;
}

// It is known whose they were: nobody is asked.
START_TEST(packs_of_a_step_that_is_removed_meanwhile_go_with_the_garbage)
{
	bool removed = false;
	const struct ckpt_tier_how how = {.pack_bytes = 1, .go_on = remove_one, .arg = &removed};
	const struct ckpt_gc_how all = {0};
	struct ckpt_gc_done gone;

	ck_error(ckpt_cool(step, &how, &done), EBUSY);
	ck_assert(removed && !step->version->is.packed && packs() > 0);
	ck_assert_uint_eq(ckpt_garbage_packs(s), packs());
	ck_ok(ckpt_gc(s, &all, &gone));
	ck_assert_uint_eq(packs(), 0);
	check_all();
}
END_TEST

// --- Reading ------------------------------------------------------------------------------------------------------------

START_TEST(who_has_the_version_of_before_finds_the_bytes)
{
	struct ckpt_manifest *before = manifest(), *cold;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_manifest_lookup(before, "config", &index));
	ck_assert_int_eq(ckpt_staged_read(step, before, index, there, sizeof(there)), 4);
	cold = manifest();
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert_int_eq(ckpt_staged_read(step, cold, index, there, sizeof(there)), 4);
	ckpt_manifest_unref(before);
	ckpt_manifest_unref(cold);
}
END_TEST

START_TEST(what_was_opened_stays_readable)
{
	struct ckpt_file *raw, *cold;
	struct ckpt_manifest *m = manifest();
	char there[8];
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_ok(ckpt_file_open(step, m, index, &raw));
	ck_ok(ckpt_cool(step, &plain, &done));
	ckpt_manifest_unref(m);
	m = manifest();
	ck_ok(ckpt_file_open(step, m, index, &cold));
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert(ckpt_file_fd(raw) >= 0 && ckpt_file_fd(cold) < 0);
	ck_assert_int_eq(ckpt_file_read(raw, there, sizeof(there), 1), 3);
	ck_assert_mem_eq(there, "ext", 3);
	ck_assert_int_eq(ckpt_file_read(cold, there, sizeof(there), 1), 3);
	ck_assert_mem_eq(there, "ext", 3);
	ck_assert_int_eq(ckpt_file_read(cold, there, sizeof(there), 4), 0);
	ckpt_file_close(raw);
	ckpt_file_close(cold);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(any_place_of_a_cold_file_can_be_read)
{
	static const uint64_t places[] = {0, 1, CKPT_CHUNK_BYTES - 1, CKPT_CHUNK_BYTES, LARGE - 1, 12345};
	struct ckpt_file_view view;
	struct ckpt_manifest *m;
	struct ckpt_file *file;
	char there[100];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	m = manifest();
	ck_ok(ckpt_manifest_lookup(m, "sub/large", &index));
	ck_ok(ckpt_file_open(step, m, index, &file));
	ck_error(ckpt_file_view(file, 0, true, &view), EAGAIN);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		ssize_t n = ckpt_file_read(file, there, sizeof(there), places[i]);

		ck_assert_int_gt(n, 0);
		ck_assert_mem_eq(there, large + places[i], (size_t)n);
		if (places[i] == LARGE - 1) { // a chunk of one byte: it was read whole, and goes
			ck_error(ckpt_file_view(file, places[i], true, &view), EAGAIN);
			continue;
		}
		ck_ok(ckpt_file_view(file, places[i], true, &view));
		ck_assert_uint_ge(view.len, (size_t)n);
		ck_assert_mem_eq(view.data, large + places[i], (size_t)n);
		ckpt_file_view_done(&view, 0);
	}
	ck_assert_int_eq(ckpt_file_read(file, there, sizeof(there), LARGE), 0);
	ck_assert_int_eq(ckpt_file_read(file, there, sizeof(there), UINT64_MAX), 0);
	ckpt_file_close(file);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(damaged_packs_give_an_error_and_never_bytes)
{
	struct ckpt_manifest *m;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	damage_packs(49); // the first chunk, that of "config" and "twin"
	drop_cache();
	m = manifest();
	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_error((int)ckpt_staged_read(step, m, index, there, sizeof(there)), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "a pack that holds config is damaged"), 1);
	check_large();
	ckpt_manifest_unref(m);
	damage_packs(49);
	check_all(); // what failed is read anew
}
END_TEST

// The first of them.
static void remove_pack(const struct ckpt_manifest *m)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_pack pack;

	ckpt_manifest_pack(m, 0, &pack);
	ckpt_pack_key(pack.id, key);
	ck_ok(ckpt_objects_remove(s->objects, key));
}

START_TEST(missing_packs_give_an_error)
{
	struct ckpt_manifest *m;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	m = manifest();
	remove_pack(m);
	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_error((int)ckpt_staged_read(step, m, index, there, sizeof(there)), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "a pack that holds config is missing"), 1);
	ckpt_manifest_unref(m);
}
END_TEST

// By a store beside, whose cache has nothing of it.
START_TEST(who_has_a_cold_file_open_finds_it_once_it_is_warm_and_its_packs_are_gone)
{
	struct ckpt_store *reader;
	struct ckpt_manifest *m;
	struct ckpt_step *seen;
	struct ckpt_file *file;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	seen = ckpt_step_find(reader, "", "1000");
	ck_ok(ckpt_step_manifest(seen, &m));
	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_ok(ckpt_file_open(seen, m, index, &file));
	ck_ok(ckpt_warm(step, &plain, &done));
	remove_pack(m);
	ck_assert_int_eq(ckpt_file_read(file, there, sizeof(there), 1), 3);
	ck_assert_mem_eq(there, "ext", 3);
	ck_assert_uint_eq(ckpt_save_errors(reader, ""), 0);
	ckpt_file_close(file);
	ckpt_manifest_unref(m);
	ckpt_step_unref(seen);
	ckpt_store_close(reader);
}
END_TEST

// --- What is not as it was sealed ---------------------------------------------------------------------------------------

START_TEST(a_raw_file_that_is_damaged_stays_and_is_told)
{
	char raw[PATH_MAX];

	snprintf(raw, sizeof(raw), "%s/sub/large", step->session);
	{
		CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR);

		ck_assert_int_eq(pwrite(fd, "!", 1, LARGE - 1), 1);
	}
	ck_error(ckpt_cool(step, &plain, &done), EIO);
	ck_assert_int_eq(entry("sub/large").content, CKPT_CONTENT_RAW);
	ck_assert(has_raw("sub/large"));
	ck_assert_int_eq(entry("config").content, CKPT_CONTENT_CHUNKS);
	ck_assert_uint_eq(ckpt_save_errors(s, "sub/large cannot be read, or"), 1);
	ckpt_staged_check(step, "config", "text");
}
END_TEST

// --- Changes ------------------------------------------------------------------------------------------------------------

START_TEST(a_cold_step_that_is_reopened_keeps_its_numbers)
{
	struct ckpt_step *now;
	struct ckpt_entry was = entry("sub/large"), is;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_reopen(step, &now));
	ck_assert(has_raw("sub/large"));
	ck_ok(ckpt_sys.unlink(now->dirfd, "twin", 0));
	ck_ok(ckpt_commit(now, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = now;
	is = entry("sub/large");
	ck_assert_uint_eq(is.ino, was.ino);
	check_large();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool");
	TCase *cool = tcase_create("cool"), *reading = tcase_create("reading"), *warm = tcase_create("warm");

	tcase_add_checked_fixture(cool, setup, teardown);
	tcase_add_test(cool, the_bytes_are_in_packs_and_the_raw_files_are_gone);
	tcase_add_test(cool, clients_see_nothing_of_it);
	tcase_add_test(cool, a_cold_step_is_not_cooled_again);
	tcase_add_test(cool, a_step_that_is_not_sealed_stays_raw);
	tcase_add_test(cool, packs_have_about_the_size_that_is_asked_for);
	tcase_add_test(cool, who_is_told_to_stop_changes_nothing);
	tcase_add_test(cool, who_is_told_to_stop_leaves_raw_files_to_the_next_cooling);
	tcase_add_test(cool, what_is_added_meanwhile_stays_raw);
	tcase_add_test(cool, a_step_that_is_being_removed_is_left_alone);
	tcase_add_test(cool, packs_of_a_step_that_is_removed_meanwhile_go_with_the_garbage);
	tcase_add_test(cool, a_raw_file_that_is_damaged_stays_and_is_told);
	suite_add_tcase(suite, cool);
	tcase_add_checked_fixture(reading, setup, teardown);
	tcase_add_test(reading, who_has_the_version_of_before_finds_the_bytes);
	tcase_add_test(reading, what_was_opened_stays_readable);
	tcase_add_test(reading, any_place_of_a_cold_file_can_be_read);
	tcase_add_test(reading, damaged_packs_give_an_error_and_never_bytes);
	tcase_add_test(reading, missing_packs_give_an_error);
	tcase_add_test(reading, who_has_a_cold_file_open_finds_it_once_it_is_warm_and_its_packs_are_gone);
	suite_add_tcase(suite, reading);
	tcase_add_checked_fixture(warm, setup, teardown);
	tcase_add_test(warm, a_cold_step_that_is_reopened_keeps_its_numbers);
	suite_add_tcase(suite, warm);
	return ckpt_suite_run(suite);
}
