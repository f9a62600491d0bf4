// Manifests whose tables do not fit together, made section by section: what the writer would never write.
#include "tests/support/fixture_manifest.h"

#include "core/base/util.h"
#include "core/limits.h"

// The section of this type has these bytes from now on.
static void replace(uint32_t type, const void *bytes, size_t count)
{
	struct ckpt_section sections[] = {
		section(CKPT_SECTION_ENTRIES),    section(CKPT_SECTION_INODES), section(CKPT_SECTION_SESSIONS),
		section(CKPT_SECTION_XATTR_SETS), section(CKPT_SECTION_XATTRS), section(CKPT_SECTION_STRINGS),
	};
	void *made;

	for (size_t i = 0; i < ARRAY_LEN(sections); i++)
		if (sections[i].type == type) {
			sections[i].data = bytes;
			sections[i].len = count;
		}
	ck_ok(ckpt_container_encode(&ckpt_manifest_kind, 0, 0, sections, ARRAY_LEN(sections), &made, &len));
	free(data);
	data = made;
}

START_TEST(a_table_with_a_part_of_a_row_is_refused)
{
	static const uint32_t tables[] = {CKPT_SECTION_ENTRIES, CKPT_SECTION_INODES, CKPT_SECTION_SESSIONS,
					  CKPT_SECTION_XATTR_SETS, CKPT_SECTION_XATTRS};

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		ckpt_fixture_manifest_open();
		CLEANUP_FREE uint8_t *rows = malloc(len);
		struct ckpt_section s = section(tables[i]);

		memcpy(rows, s.data, s.len);
		replace(tables[i], rows, s.len - 1);
		ck_error(try_it(), EBADMSG);
	}
}
END_TEST

START_TEST(tables_of_wrong_lengths_are_refused)
{
	size_t many = (size_t)(CKPT_STEP_FILES_MAX + 1) * ENTRY_BYTES;
	CLEANUP_FREE uint8_t *rows = calloc(1, many);

	replace(CKPT_SECTION_ENTRIES, "", 0);
	ck_error(try_it(), EBADMSG);
	ckpt_fixture_manifest_open();
	replace(CKPT_SECTION_ENTRIES, rows, many);
	ck_error(try_it(), EBADMSG);
	ckpt_fixture_manifest_open();
	replace(CKPT_SECTION_INODES, rows, sizeof(uint32_t));
	ck_error(try_it(), EBADMSG);
	ckpt_fixture_manifest_open();
	replace(CKPT_SECTION_STRINGS, "", 0);
	ck_error(try_it(), EBADMSG);
	ckpt_fixture_manifest_open();
	replace(CKPT_SECTION_STRINGS, "\0a", 2);
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(a_step_that_is_a_file_is_refused)
{
	ckpt_fixture_manifest_take(ckpt_sample_writer());
	ck_ok(try_it());
	entry(0)[ENTRY_TYPE] = CKPT_ENTRY_FILE;
	ckpt_put32(entry(0) + ENTRY_A, 0);
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(a_directory_too_deep_is_refused)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "d", .ino = 1};
	uint32_t dir = 0, count = CKPT_DEPTH_MAX + 2;

	for (uint32_t i = 2; i < count; i++) {
		e.ino++;
		ck_ok(ckpt_manifest_writer_add(w, dir, &e, &dir));
	}
	e.ino++;
	e.type = CKPT_ENTRY_FILE;
	ck_ok(ckpt_manifest_writer_add(w, dir, &e, &dir));
	ckpt_fixture_manifest_take(w);
	ck_ok(try_it());
	entry(count - 1)[ENTRY_TYPE] = CKPT_ENTRY_DIR;
	ckpt_put32(entry(count - 1) + ENTRY_A, count);
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(links_of_a_symlink_have_one_target)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = {.type = CKPT_ENTRY_SYMLINK, .name = "a", .target = "there", .ino = 2};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e.name = "b";
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	ckpt_fixture_manifest_take(w);
	ck_ok(try_it());
	rows(CKPT_SECTION_STRINGS)[ckpt_get32(entry(2) + ENTRY_A)] = 'T';
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(sizes_whose_sum_is_too_large_are_refused)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE, .content = CKPT_CONTENT_RAW, .bytes = INT64_MAX, .ino = 1};
	char name[2] = "a";
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	for (; *name < 'd'; ++*name) {
		e.name = name;
		e.ino++;
		ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	}
	ckpt_fixture_manifest_take(w);
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(a_set_with_too_many_attributes_is_refused)
{
	static const char value[CKPT_XATTR_BYTES_MAX / 2];
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE, .name = "f", .ino = 2};
	uint8_t set[XSET_BYTES];
	uint32_t file;

	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &file));
	ck_ok(ckpt_manifest_writer_xattr(w, 0, "user.a", value, sizeof(value)));
	ck_ok(ckpt_manifest_writer_xattr(w, file, "user.b", value, sizeof(value)));
	ckpt_fixture_manifest_take(w);
	ck_ok(try_it());
	ckpt_put32(entry(1) + ENTRY_XATTRS, 0);
	ckpt_put32(set + XSET_FIRST, 0);
	ckpt_put32(set + XSET_COUNT, 2);
	replace(CKPT_SECTION_XATTR_SETS, set, sizeof(set));
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(raw_paths_are_limited)
{
	char path[CKPT_MANIFEST_RAW_PATH_MAX + 2];

	for (size_t i = 0; i < sizeof(path); i++)
		path[i] = i % 2 ? '/' : 'a';
	ck_assert(ckpt_manifest_raw_path_ok(path, 2 * CKPT_DEPTH_MAX + 1));
	ck_assert(!ckpt_manifest_raw_path_ok(path, 2 * CKPT_DEPTH_MAX + 3)); // one directory more
	ck_assert(!ckpt_manifest_raw_path_ok(path, CKPT_MANIFEST_RAW_PATH_MAX + 1));
	ck_assert(!ckpt_manifest_raw_path_ok("a/", 2));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest damage");
	TCase *t = tcase_create("tables");

	tcase_add_checked_fixture(t, ckpt_fixture_manifest_open, ckpt_fixture_manifest_close);
	tcase_add_test(t, a_table_with_a_part_of_a_row_is_refused);
	tcase_add_test(t, tables_of_wrong_lengths_are_refused);
	tcase_add_test(t, a_step_that_is_a_file_is_refused);
	tcase_add_test(t, a_directory_too_deep_is_refused);
	tcase_add_test(t, links_of_a_symlink_have_one_target);
	tcase_add_test(t, sizes_whose_sum_is_too_large_are_refused);
	tcase_add_test(t, a_set_with_too_many_attributes_is_refused);
	tcase_add_test(t, raw_paths_are_limited);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
