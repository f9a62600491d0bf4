// What a manifest says of the bytes of files: written in whatever order, read for each name of a file, and refused where it does not
// fit the files.
#include "tests/support/fixture_manifest.h"

#include "core/base/util.h"

#include <stdio.h>

#define ROWS 2 // chunks of the sample

static uint32_t find(const struct ckpt_manifest *m, const char *path)
{
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	return index;
}

START_TEST(each_name_of_a_file_has_its_seal)
{
	static const char *const names[] = {"params/v.bin", "params/w.bin"}, *const others[] = {"late", "zero",
												"params", ""};
	struct ckpt_manifest *m = parse();
	struct ckpt_chunk chunk;
	struct ckpt_seal seal;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		ck_assert(ckpt_manifest_seal(m, find(m, names[i]), &seal));
		ck_assert_mem_eq(seal.sha256, CKPT_SAMPLE_SHA256, CKPT_SHA256_LEN);
		ck_assert(seal.first == 0 && seal.count == ROWS);
	}
	ckpt_manifest_chunk(m, 0, &chunk);
	ck_assert(chunk.bytes == 4000 && !memcmp(chunk.id, "one", 4));
	ckpt_manifest_chunk(m, 1, &chunk);
	ck_assert(chunk.bytes == 96 && !memcmp(chunk.id, "two", 4));
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		ck_assert_msg(!ckpt_manifest_seal(m, find(m, others[i]), &seal), "%s", others[i]);
	ck_assert(!ckpt_manifest_is_sealed(m)); // "late" is not
	ckpt_manifest_unref(m);
}
END_TEST

// --- Writing ------------------------------------------------------------------------------------------------------------

static uint32_t add_file(struct ckpt_manifest_writer *w, uint32_t parent, const char *name, uint64_t ino,
			 uint64_t bytes)
{
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE,
			       .name = name,
			       .content = bytes ? CKPT_CONTENT_RAW : CKPT_CONTENT_NONE,
			       .ino = ino,
			       .bytes = bytes};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	ck_ok(ckpt_manifest_writer_add(w, parent, &e, &handle));
	return handle;
}

static void seal(struct ckpt_manifest_writer *w, uint32_t handle, const char *id, uint32_t bytes)
{
	struct ckpt_chunk chunk = {.bytes = bytes};

	snprintf((char *)chunk.id, sizeof(chunk.id), "%s", id);
	ck_ok(ckpt_manifest_writer_seal(w, handle, chunk.id));
	ck_ok(ckpt_manifest_writer_chunk(w, &chunk));
}

static void write_two(bool second_first, bool by_other_name, void **ret_data, size_t *ret_len)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	uint32_t a, b, link;

	a = add_file(w, 0, "a", 10, 5);
	b = add_file(w, 0, "b", 11, 7);
	link = add_file(w, 0, "c", 11, 7);
	if (second_first)
		seal(w, by_other_name ? link : b, "of b", 7);
	seal(w, a, "of a", 5);
	if (!second_first)
		seal(w, by_other_name ? link : b, "of b", 7);
	ck_ok(ckpt_manifest_writer_finish(w, ret_data, ret_len));
	ckpt_manifest_writer_free(w);
}

START_TEST(order_and_name_of_the_calls_do_not_matter)
{
	void *first, *other;
	size_t first_len, other_len;
	struct ckpt_manifest *m;

	write_two(false, false, &first, &first_len);
	for (int way = 1; way < 4; way++) {
		write_two(way & 1, way & 2, &other, &other_len);
		ck_assert_uint_eq(first_len, other_len);
		ck_assert_mem_eq(first, other, first_len);
		free(other);
	}
	ck_ok(ckpt_manifest_parse(first, first_len, &m));
	ck_assert(ckpt_manifest_is_sealed(m));
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(what_has_no_bytes_needs_no_seal)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_manifest *m;
	void *made;
	size_t made_len;

	add_file(w, 0, "empty", 10, 0);
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	ck_assert(ckpt_manifest_is_sealed(m));
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(writer_refuses_what_is_no_file_or_twice_one)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	uint32_t file = add_file(w, 0, "a", 10, 5), empty = add_file(w, 0, "b", 11, 0), link;
	const struct ckpt_entry symlink = {.type = CKPT_ENTRY_SYMLINK, .name = "c", .ino = 12, .target = "a"};
	struct ckpt_chunk chunk = {.bytes = 0};

	ck_ok(ckpt_manifest_writer_add(w, 0, &symlink, &link));

	ck_error(ckpt_manifest_writer_seal(w, 0, CKPT_SAMPLE_SHA256), EINVAL); // the directory
	ck_error(ckpt_manifest_writer_seal(w, empty, CKPT_SAMPLE_SHA256), EINVAL);
	ck_error(ckpt_manifest_writer_seal(w, link, CKPT_SAMPLE_SHA256), EINVAL); // its bytes are in the manifest
	ck_error(ckpt_manifest_writer_seal(w, link + 1, CKPT_SAMPLE_SHA256), EINVAL);
	seal(w, file, "of a", 5);
	ck_error(ckpt_manifest_writer_seal(w, file, CKPT_SAMPLE_SHA256), EINVAL);
	ck_error(ckpt_manifest_writer_chunk(w, &chunk), EINVAL);
	chunk.bytes = CKPT_CHUNK_BYTES_MAX + 1;
	ck_error(ckpt_manifest_writer_chunk(w, &chunk), EINVAL);
	ckpt_manifest_writer_free(w);
}
END_TEST

START_TEST(finish_refuses_chunks_that_are_not_the_files_bytes)
{
	for (uint32_t bytes = 4; bytes <= 6; bytes++) {
		struct ckpt_manifest_writer *w = ckpt_sample_writer();
		void *made = NULL;
		size_t made_len;
		int rc;

		seal(w, add_file(w, 0, "a", 10, 5), "of a", bytes);
		rc = ckpt_manifest_writer_finish(w, &made, &made_len);
		ck_assert_int_eq(rc, bytes == 5 ? 0 : -EINVAL);
		ckpt_manifest_writer_free(w);
		free(made);
	}
}
END_TEST

// --- Damage -------------------------------------------------------------------------------------------------------------

START_TEST(a_seal_that_does_not_fit_is_refused)
{
	static const struct lie lies[] = {{SEAL_ENTRY, 0}, {SEAL_ENTRY, 1000}, {SEAL_ENTRY, 7},
					  {SEAL_FIRST, 1}, {SEAL_COUNT, 1},    {SEAL_COUNT, 3},
					  {SEAL_COUNT, 0}, {SEAL_ZERO, 1},     {SEAL_COUNT, UINT32_MAX}};

	check_lies(CKPT_SECTION_SEALS, lies, ARRAY_LEN(lies));
}
END_TEST

START_TEST(a_chunk_that_does_not_fit_is_refused)
{
	static const struct lie lies[] = {
		{CHUNK_OFFSET, 1}, {CHUNK_OFFSET + 4, 1}, {CHUNK_LEN, 0},      {CHUNK_LEN, 3999},
		{CHUNK_LEN, 4001}, {CHUNK_LEN, 4096},     {CHUNK_STORED, 1},   {CHUNK_PACK, 0},
		{CHUNK_BASE, 1},   {CHUNK_BASE + 4, 1},   {CHUNK_BASE + 8, 1}, {CHUNK_LEN, CKPT_CHUNK_BYTES_MAX + 1}};

	check_lies(CKPT_SECTION_CHUNKS, lies, ARRAY_LEN(lies));
}
END_TEST

// With other rows than the writer would write: seals, count of them, chunks, count of them.
static int try_rows(const void *seals, size_t seal_count, const void *chunks, size_t chunk_count)
{
	static const uint32_t types[] = {CKPT_SECTION_ENTRIES,    CKPT_SECTION_INODES, CKPT_SECTION_SESSIONS,
					 CKPT_SECTION_XATTR_SETS, CKPT_SECTION_XATTRS, CKPT_SECTION_STRINGS};
	struct ckpt_section sections[ARRAY_LEN(types) + 2];
	size_t count = ARRAY_LEN(types), made_len;
	void *made;
	int rc;

	for (size_t i = 0; i < count; i++)
		sections[i] = section(types[i]);
	if (seals)
		sections[count++] = (struct ckpt_section){CKPT_SECTION_SEALS, false, seals, seal_count * SEAL_BYTES};
	if (chunks)
		sections[count++] =
			(struct ckpt_section){CKPT_SECTION_CHUNKS, false, chunks, chunk_count * CHUNK_BYTES};
	ck_ok(ckpt_container_encode(&ckpt_manifest_kind, 0, 0, sections, count, &made, &made_len));
	rc = ckpt_try_manifest(made, made_len);
	free(made);
	return rc;
}

START_TEST(rows_that_belong_to_nothing_are_refused)
{
	uint8_t *seals = rows(CKPT_SECTION_SEALS), *chunks = rows(CKPT_SECTION_CHUNKS);
	uint8_t twice[2 * SEAL_BYTES], three[3 * CHUNK_BYTES];

	ck_ok(try_rows(NULL, 0, NULL, 0));
	ck_ok(try_rows(seals, 1, chunks, ROWS));
	ck_error(try_rows(seals, 1, NULL, 0), EBADMSG);
	ck_error(try_rows(NULL, 0, chunks, ROWS), EBADMSG);
	ck_error(try_rows(seals, 1, chunks, 1), EBADMSG);
	memcpy(three, chunks, sizeof(three) - CHUNK_BYTES);
	memcpy(three + ROWS * CHUNK_BYTES, chunks, CHUNK_BYTES);
	ck_error(try_rows(seals, 1, three, 3), EBADMSG);
	memcpy(twice, seals, SEAL_BYTES);
	memcpy(twice + SEAL_BYTES, seals, SEAL_BYTES);
	ck_error(try_rows(twice, 2, chunks, ROWS), EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest seal");
	TCase *read = tcase_create("read"), *written = tcase_create("written"), *damage = tcase_create("damage");

	tcase_add_checked_fixture(read, ckpt_fixture_manifest_open, ckpt_fixture_manifest_close);
	tcase_add_test(read, each_name_of_a_file_has_its_seal);
	suite_add_tcase(suite, read);
	tcase_add_test(written, order_and_name_of_the_calls_do_not_matter);
	tcase_add_test(written, what_has_no_bytes_needs_no_seal);
	tcase_add_test(written, writer_refuses_what_is_no_file_or_twice_one);
	tcase_add_test(written, finish_refuses_chunks_that_are_not_the_files_bytes);
	suite_add_tcase(suite, written);
	tcase_add_checked_fixture(damage, ckpt_fixture_manifest_open, ckpt_fixture_manifest_close);
	tcase_add_test(damage, a_seal_that_does_not_fit_is_refused);
	tcase_add_test(damage, a_chunk_that_does_not_fit_is_refused);
	tcase_add_test(damage, rows_that_belong_to_nothing_are_refused);
	suite_add_tcase(suite, damage);
	return ckpt_suite_run(suite);
}
