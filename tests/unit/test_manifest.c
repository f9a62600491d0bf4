#include "tests/support/fixture_manifest.h"

#include "core/base/hash.h"
#include "core/base/util.h"

#include <stdio.h>
#include <time.h>

enum { MUTATIONS = 100000, MANY = 10000 };

// Entries of the sample, in their order: breadth-first, siblings sorted.
enum { ROOT, EMPTY, LATE, PARAMS, ZERO, LINK, V_BIN, W_BIN, SAMPLE_COUNT };

START_TEST(what_is_written_is_read)
{
	static const char *const paths[] = {"",     "empty",    "late",         "params",
					    "zero", "\xc3\xa4", "params/v.bin", "params/w.bin"};
	struct ckpt_manifest *m = parse();
	struct ckpt_entry e;
	uint64_t files, bytes;
	uint32_t index;
	char path[64];

	ck_assert_uint_eq(ckpt_manifest_count(m), SAMPLE_COUNT);
	for (uint32_t i = 0; i < SAMPLE_COUNT; i++) {
		ck_assert_int_eq(ckpt_manifest_path(m, i, path, sizeof(path)), (int)strlen(paths[i]));
		ck_assert_str_eq(path, paths[i]);
	}
	ckpt_manifest_entry(m, PARAMS, &e);
	ck_assert(e.type == CKPT_ENTRY_DIR && e.mode == 0750 && e.mtime_s == -5 && e.mtime_ns == 999999999 &&
		  e.nlink == 2);
	ckpt_manifest_entry(m, LATE, &e);
	ck_assert(e.content == CKPT_CONTENT_RAW && e.bytes == 7 && e.mode == 04755 && e.ino == 11 && e.nlink == 1);
	ck_assert_str_eq(e.raw_path, "x/y");
	ck_assert_str_eq(ckpt_manifest_session(m, e.session), CKPT_SAMPLE_SESSION_2);
	ckpt_manifest_entry(m, LINK, &e);
	ck_assert(e.type == CKPT_ENTRY_SYMLINK && e.bytes == 12);
	ck_assert_str_eq(e.target, "params/w.bin");
	ckpt_manifest_entry(m, W_BIN, &e);
	ck_assert_ptr_null(e.raw_path);
	ck_assert_str_eq(ckpt_manifest_session(m, e.session), CKPT_SAMPLE_SESSION);
	ck_assert_ptr_null(ckpt_manifest_session(m, 2));
	ckpt_manifest_totals(m, &files, &bytes);
	ck_assert_uint_eq(files, 3);
	ck_assert_uint_eq(bytes, 4096 + 7);
	ck_error(ckpt_manifest_lookup(m, "params/", &index), ENOENT);
	ck_error(ckpt_manifest_lookup(m, "/params", &index), ENOENT);
	ck_error(ckpt_manifest_lookup(m, "params/w.bin/x", &index), ENOTDIR);
	ck_error(ckpt_manifest_lookup(m, "param", &index), ENOENT);
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(hard_links_are_one_file)
{
	struct ckpt_manifest *m = parse();
	struct ckpt_entry v, w;
	const char *name;
	const void *value;
	size_t value_len;

	ckpt_manifest_entry(m, V_BIN, &v);
	ckpt_manifest_entry(m, W_BIN, &w);
	ck_assert(v.ino == w.ino && v.nlink == 2 && w.nlink == 2 && v.mode == w.mode && v.xattrs == w.xattrs);
	ck_assert(ckpt_manifest_xattr(m, &w, 0, &name, &value, &value_len));
	ck_assert_str_eq(name, "user.a");
	ck_assert_uint_eq(value_len, 0);
	ck_assert(ckpt_manifest_xattr(m, &w, 1, &name, &value, &value_len));
	ck_assert_str_eq(name, "user.b");
	ck_assert(value_len == 2 && !memcmp(value, "\0\1", 2));
	ck_assert(!ckpt_manifest_xattr(m, &w, 2, &name, &value, &value_len));
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(sha256_is_that_of_all_bytes)
{
	struct ckpt_manifest *m = parse();
	uint8_t digest[32];

	ckpt_sha256(data, len, digest);
	ck_assert(!memcmp(digest, ckpt_manifest_sha256(m), 32));
	ck_assert_ptr_eq(ckpt_manifest_ref(m), m);
	ckpt_manifest_unref(m);
	ck_assert_uint_ge(ckpt_manifest_bytes(m), len);
	ckpt_manifest_unref(m);
	ckpt_manifest_unref(NULL);
}
END_TEST

// Entries in the order of an array of names below one directory.
static void write_names(const char *const *names, size_t count, void **ret_data, size_t *ret_len)
{
	struct ckpt_manifest_writer *w;
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e.type = CKPT_ENTRY_FILE;
	for (size_t i = 0; i < count; i++) {
		e.name = names[i];
		e.ino = 100 + (uint64_t)names[i][0];
		ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	}
	ck_ok(ckpt_manifest_writer_finish(w, ret_data, ret_len));
	ckpt_manifest_writer_free(w);
}

START_TEST(order_of_the_calls_does_not_matter)
{
	static const char *const one[] = {"a", "b", "c-long-name-over-eight-bytes"};
	static const char *const two[] = {"c-long-name-over-eight-bytes", "a", "b"};
	void *first, *second;
	size_t first_len, second_len;

	write_names(one, ARRAY_LEN(one), &first, &first_len);
	write_names(two, ARRAY_LEN(two), &second, &second_len);
	ck_assert(first_len == second_len && !memcmp(first, second, first_len));
	free(first);
	free(second);
}
END_TEST

START_TEST(names_sort_as_bytes)
{
	static const char *const names[] = {"same-eight-b", "\xc3\xa4", "same-eig", "same-eigh", "Z", "a", "1"};
	static const char *const sorted[] = {"1", "Z", "a", "same-eig", "same-eigh", "same-eight-b", "\xc3\xa4"};
	struct ckpt_manifest_writer *w;
	struct ckpt_manifest *m;
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	uint32_t handle;
	void *made;
	size_t made_len;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e.type = CKPT_ENTRY_FILE;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		e.name = names[i];
		e.ino++;
		ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	}
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	for (uint32_t i = 0; i < ARRAY_LEN(sorted); i++) {
		ckpt_manifest_entry(m, i + 1, &e);
		ck_assert_str_eq(e.name, sorted[i]);
	}
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(writer_refuses_what_a_reader_would)
{
	const struct ckpt_entry dir = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	const struct ckpt_entry file = {.type = CKPT_ENTRY_FILE, .name = "f", .ino = 2};
	struct ckpt_manifest_writer *w;
	struct ckpt_entry e = file;
	char path[CKPT_XATTR_NAME_MAX + 2];
	uint32_t handle, f;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_error(ckpt_manifest_writer_add(w, 0, &file, &handle), EINVAL);
	ck_error(ckpt_manifest_writer_add(w, 1, &dir, &handle), EINVAL);
	ck_ok(ckpt_manifest_writer_add(w, 0, &dir, &handle));
	ck_ok(ckpt_manifest_writer_add(w, 0, &file, &f));
	ck_error(ckpt_manifest_writer_add(w, f, &file, &handle), EINVAL);
	ck_error(ckpt_manifest_writer_add(w, 7, &file, &handle), EINVAL);
	ck_error(ckpt_manifest_writer_add(w, 0, &dir, &handle), EINVAL);
	e.name = "a/b";
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	e.name = "\xff";
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EILSEQ);
	e = (struct ckpt_entry){.type = CKPT_ENTRY_FILE, .name = "g", .ino = 0};
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	e = (struct ckpt_entry){.type = CKPT_ENTRY_FILE, .name = "g", .ino = 3, .bytes = 1};
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	e.content = CKPT_CONTENT_RAW; // no session yet
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	ck_error(ckpt_manifest_writer_session(w, "no uuid", &handle), EINVAL);
	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &handle));
	e.raw_path = "../x";
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	e.raw_path = "x//y";
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	e = (struct ckpt_entry){.type = CKPT_ENTRY_SYMLINK, .name = "l", .ino = 4, .target = ""};
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL);
	ck_error(ckpt_manifest_writer_xattr(w, f, "", "", 0), EINVAL);
	ck_error(ckpt_manifest_writer_xattr(w, 9, "user.a", "", 0), EINVAL);
	ck_error(ckpt_manifest_writer_xattr(w, f, "user.a", "", CKPT_XATTR_BYTES_MAX), E2BIG);
	ck_error(ckpt_manifest_writer_xattr(w, f, "user.a", "", CKPT_XATTR_BYTES_MAX + 1), E2BIG);
	memset(path, 'a', sizeof(path));
	path[CKPT_XATTR_NAME_MAX + 1] = '\0';
	ck_error(ckpt_manifest_writer_xattr(w, f, path, "", 0), ENAMETOOLONG);
	ckpt_manifest_writer_free(w);
	ckpt_manifest_writer_free(NULL);
}
END_TEST

START_TEST(writer_refuses_entries_that_do_not_fit_their_type)
{
	char path[CKPT_MANIFEST_RAW_PATH_MAX + 2];
	const struct refused {
		struct ckpt_entry e;
		int error;
	} refused[] = {
		{{.type = CKPT_ENTRY_DIR, .name = "a", .ino = 2, .content = CKPT_CONTENT_RAW}, EINVAL},
		{{.type = 9, .name = "a", .ino = 2}, EINVAL},
		{{.type = CKPT_ENTRY_SYMLINK, .name = "a", .ino = 2, .content = CKPT_CONTENT_RAW, .target = "t"},
		 EINVAL},
		{{.type = CKPT_ENTRY_SYMLINK, .name = "a", .ino = 2}, EINVAL},
		{{.type = CKPT_ENTRY_SYMLINK, .name = "a", .ino = 2, .target = path}, ENAMETOOLONG},
		{{.type = CKPT_ENTRY_FILE, .name = "a", .ino = 2, .raw_path = "p"}, EINVAL},
		{{.type = CKPT_ENTRY_FILE, .name = "a", .ino = 2, .content = CKPT_CONTENT_CHUNKS}, EINVAL},
		{{.type = CKPT_ENTRY_FILE, .name = "a", .ino = 2, .content = CKPT_CONTENT_RAW, .bytes = UINT64_MAX},
		 EINVAL},
		{{.type = CKPT_ENTRY_FILE, .name = "a", .ino = 2, .content = CKPT_CONTENT_RAW, .raw_path = path},
		 ENAMETOOLONG},
		{{.type = CKPT_ENTRY_DIR, .name = "a", .ino = 2, .mode = 0100755}, EINVAL},
		{{.type = CKPT_ENTRY_DIR, .name = "a", .ino = 2, .mtime_ns = 1000000000}, EINVAL},
		{{.type = CKPT_ENTRY_DIR, .name = "a", .ino = 2, .bytes = UINT64_MAX}, EINVAL},
	};
	const struct ckpt_entry root = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	struct ckpt_manifest_writer *w;
	uint32_t handle;
	void *made;
	size_t made_len;

	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	ck_ok(ckpt_manifest_writer_new(&w));
	ck_error(ckpt_manifest_writer_finish(w, &made, &made_len), EINVAL);       // nothing
	ck_error(ckpt_manifest_writer_add(w, 0, &refused[9].e, &handle), EINVAL); // a root with a name
	ck_ok(ckpt_manifest_writer_add(w, 0, &root, &handle));
	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &handle));
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		ck_assert_msg(ckpt_manifest_writer_add(w, 0, &refused[i].e, &handle) == -refused[i].error, "%zu", i);
	ckpt_manifest_writer_free(w);
}
END_TEST

// What finish() says of two files with these names and inodes.
static int finish_two(const char *a, uint64_t a_ino, const char *b, uint64_t b_ino, enum ckpt_entry_type b_type)
{
	struct ckpt_manifest_writer *w;
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	uint32_t handle;
	void *made = NULL;
	size_t made_len;
	int r;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e = (struct ckpt_entry){.type = CKPT_ENTRY_FILE, .name = a, .ino = a_ino};
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e = (struct ckpt_entry){.type = b_type, .name = b, .ino = b_ino};
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	r = ckpt_manifest_writer_finish(w, &made, &made_len);
	ckpt_manifest_writer_free(w);
	free(made);
	return r;
}

START_TEST(finish_refuses_doubled_names_and_inodes)
{
	ck_ok(finish_two("a", 2, "b", 3, CKPT_ENTRY_FILE));
	ck_error(finish_two("a", 2, "a", 3, CKPT_ENTRY_FILE), EEXIST);
	ck_ok(finish_two("a", 2, "b", 2, CKPT_ENTRY_FILE)); // a hard link
	ck_error(finish_two("a", 2, "b", 2, CKPT_ENTRY_DIR), EINVAL);
	ck_error(finish_two("a", 1, "b", 2, CKPT_ENTRY_FILE), EINVAL); // the root's
}
END_TEST

START_TEST(finish_refuses_links_that_differ_and_doubled_attributes)
{
	static const struct ckpt_entry pairs[][2] = {
		{{.type = CKPT_ENTRY_FILE, .content = CKPT_CONTENT_RAW}, {.type = CKPT_ENTRY_FILE}},
		{{.type = CKPT_ENTRY_FILE, .content = CKPT_CONTENT_RAW},
		 {.type = CKPT_ENTRY_FILE, .content = CKPT_CONTENT_RAW, .session = 1}},
		{{.type = CKPT_ENTRY_SYMLINK, .target = "a"}, {.type = CKPT_ENTRY_SYMLINK, .target = "b"}},
		{{.type = CKPT_ENTRY_SYMLINK, .target = "a"}, {.type = CKPT_ENTRY_SYMLINK, .target = "a"}}, // fits
		{{.type = CKPT_ENTRY_FILE}, {.type = CKPT_ENTRY_FILE}},                                     // fits
	};

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1, .raw_path = "of no use"};
		struct ckpt_manifest_writer *w;
		uint32_t handle;
		void *made = NULL;
		size_t made_len;
		int rc;

		ck_ok(ckpt_manifest_writer_new(&w));
		ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &handle));
		ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION_2, &handle));
		ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
		for (int k = 0; k < 2; k++) {
			e = pairs[i][k];
			e.name = k ? "y" : "x";
			e.ino = 2;
			ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
		}
		if (i == 4) {
			ck_ok(ckpt_manifest_writer_xattr(w, handle, "user.a", "", 0));
			ck_ok(ckpt_manifest_writer_xattr(w, handle, "user.a", "", 0));
		}
		rc = ckpt_manifest_writer_finish(w, &made, &made_len);
		ck_assert_msg(rc == (i < 3 ? -EINVAL : i == 3 ? 0 : -EEXIST), "%zu: %d", i, rc);
		ckpt_manifest_writer_free(w);
		free(made);
	}
}
END_TEST

START_TEST(the_longest_symlink_is_read)
{
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	char target[CKPT_SYMLINK_MAX + 1];
	struct ckpt_manifest_writer *w;
	struct ckpt_manifest *m;
	uint32_t handle;
	size_t made_len;
	void *made;

	memset(target, 'x', sizeof(target) - 1);
	target[sizeof(target) - 1] = '\0';
	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e = (struct ckpt_entry){.type = CKPT_ENTRY_SYMLINK,
				.name = "link",
				.target = target,
				.bytes = CKPT_SYMLINK_MAX,
				.ino = 2,
				.nlink = 1};
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	ckpt_manifest_entry(m, 1, &e);
	ck_assert_str_eq(e.target, target);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(depth_is_limited)
{
	struct ckpt_manifest_writer *w;
	struct ckpt_manifest *m;
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	uint32_t dir = 0, handle;
	void *made;
	size_t made_len;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &dir));
	e.name = "d";
	for (unsigned int i = 0; i < CKPT_DEPTH_MAX; i++) {
		e.ino++;
		ck_ok(ckpt_manifest_writer_add(w, dir, &e, &dir));
	}
	e.ino++;
	ck_error(ckpt_manifest_writer_add(w, dir, &e, &handle), E2BIG);
	e.type = CKPT_ENTRY_FILE;
	ck_ok(ckpt_manifest_writer_add(w, dir, &e, &handle));
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
}
END_TEST

// ---- Hostile bytes

#define LIE16(at, field, value)                                                                                        \
	{                                                                                                              \
		at, field, value, 2                                                                                    \
	}
#define LIE32(at, field, value)                                                                                        \
	{                                                                                                              \
		at, field, value, 4                                                                                    \
	}
#define LIE64(at, field, value)                                                                                        \
	{                                                                                                              \
		at, field, value, 8                                                                                    \
	}

static const struct entry_lie {
	uint32_t entry;
	size_t field;
	uint64_t value;
	int bytes;
} lies[] = {
	LIE16(ROOT, ENTRY_NAME_LEN, 1),
	LIE32(ROOT, ENTRY_PARENT, 1),
	LIE16(ROOT, ENTRY_TYPE, CKPT_ENTRY_FILE),
	LIE32(ROOT, ENTRY_A, 0),
	LIE32(ROOT, ENTRY_A, 2),
	LIE32(ROOT, ENTRY_B, 4),
	LIE32(ROOT, ENTRY_B, 6),
	LIE32(ROOT, ENTRY_B, UINT32_MAX),
	LIE32(PARAMS, ENTRY_A, 0), // a cycle: the root's own range
	LIE32(PARAMS, ENTRY_A, PARAMS),
	LIE32(PARAMS, ENTRY_B, 1),
	LIE32(PARAMS, ENTRY_B, 3),
	LIE32(PARAMS, ENTRY_PARENT, PARAMS),
	LIE32(EMPTY, ENTRY_B, 1),
	LIE32(EMPTY, ENTRY_A, 0),
	LIE32(W_BIN, ENTRY_PARENT, ROOT),
	LIE32(W_BIN, ENTRY_PARENT, UINT32_MAX),
	LIE16(W_BIN, ENTRY_TYPE, 0),
	LIE16(W_BIN, ENTRY_TYPE, 4),
	LIE16(W_BIN, ENTRY_TYPE, CKPT_ENTRY_FILE | CKPT_CONTENT_CHUNKS << 8),
	LIE16(W_BIN, ENTRY_TYPE, CKPT_ENTRY_FILE | 9 << 8),
	LIE16(W_BIN, ENTRY_TYPE, CKPT_ENTRY_FILE), // bytes without content
	LIE16(PARAMS, ENTRY_TYPE, CKPT_ENTRY_DIR | CKPT_CONTENT_RAW << 8),
	LIE16(LINK, ENTRY_TYPE, CKPT_ENTRY_SYMLINK | CKPT_CONTENT_RAW << 8),
	LIE16(W_BIN, ENTRY_NAME_LEN, 0),
	LIE16(W_BIN, ENTRY_NAME_LEN, 4),
	LIE16(W_BIN, ENTRY_NAME_LEN, 6),
	LIE16(W_BIN, ENTRY_NAME_LEN, 0xffff),
	LIE32(W_BIN, ENTRY_NAME, 0),
	LIE32(W_BIN, ENTRY_NAME, UINT32_MAX),
	LIE32(W_BIN, ENTRY_NAME, 0x7fffffff),
	LIE32(W_BIN, ENTRY_A, 2),
	LIE32(W_BIN, ENTRY_A, UINT32_MAX),
	LIE32(W_BIN, ENTRY_B, 1),
	LIE32(W_BIN, ENTRY_B, UINT32_MAX),
	LIE32(ZERO, ENTRY_A, 1),
	LIE32(LINK, ENTRY_A, 0),
	LIE32(LINK, ENTRY_A, UINT32_MAX),
	LIE32(LINK, ENTRY_B, 1),
	LIE64(LINK, ENTRY_SIZE, 11),
	LIE64(LINK, ENTRY_SIZE, 13),
	LIE64(LINK, ENTRY_SIZE, 0),
	LIE64(LINK, ENTRY_SIZE, UINT64_MAX),
	LIE64(LINK, ENTRY_SIZE, UINT32_MAX),
	LIE64(W_BIN, ENTRY_SIZE, UINT64_MAX),
	LIE64(W_BIN, ENTRY_SIZE, 4095), // hard links that differ
	LIE64(LATE, ENTRY_SIZE, UINT64_C(1) << 63),
	LIE32(W_BIN, ENTRY_MODE, 0644),
	LIE32(LATE, ENTRY_MODE, 0100644),
	LIE32(LATE, ENTRY_NLINK, 0),
	LIE32(LATE, ENTRY_NLINK, 2),
	LIE32(ROOT, ENTRY_NLINK, 0),
	LIE32(LATE, ENTRY_MTIME_NS, 1000000000),
	LIE64(LATE, ENTRY_INO, 0),
	LIE64(LATE, ENTRY_INO, 12), // that of another file
	LIE64(LATE, ENTRY_INO, 2),  // that of a directory
	LIE64(LATE, ENTRY_INO, 99), // out of order
	LIE32(LATE, ENTRY_XATTRS, 3),
	LIE32(W_BIN, ENTRY_XATTRS, 1), // hard links that differ
	LIE32(LATE, ENTRY_FLAGS, 1),
};

START_TEST(every_lie_is_found)
{
	const struct entry_lie *lie = &lies[_i];
	uint8_t *at = entry(lie->entry) + lie->field;

	ck_assert_msg(memcmp(at, &lie->value, (size_t)lie->bytes), "lie %d is the truth", _i);
	memcpy(at, &lie->value, (size_t)lie->bytes);
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(other_tables_that_lie_are_found)
{
	static const struct {
		uint32_t type;
		size_t at;
		uint32_t value;
	} words[] = {
		{CKPT_SECTION_INODES, 0, UINT32_MAX},
		{CKPT_SECTION_INODES, 0, SAMPLE_COUNT},
		{CKPT_SECTION_INODES, 4, 0},
		{CKPT_SECTION_SESSIONS, 36, 1},
		{CKPT_SECTION_SESSIONS, 0, 0x46303030},
		{CKPT_SECTION_XATTR_SETS, XSET_FIRST, 1},
		{CKPT_SECTION_XATTR_SETS, XSET_COUNT, 0},
		{CKPT_SECTION_XATTR_SETS, XSET_COUNT, 2},
		{CKPT_SECTION_XATTR_SETS, XSET_COUNT, 100},
		{CKPT_SECTION_XATTRS, XATTR_NAME, 0},
		{CKPT_SECTION_XATTRS, XATTR_NAME, UINT32_MAX},
		{CKPT_SECTION_XATTRS, XATTR_VALUE, UINT32_MAX},
		{CKPT_SECTION_XATTRS, XATTR_VALUE, 0},
		{CKPT_SECTION_XATTRS, XATTR_VALUE_LEN, UINT32_MAX},
		{CKPT_SECTION_XATTRS, XATTR_VALUE_LEN, CKPT_XATTR_BYTES_MAX},
		{CKPT_SECTION_XATTRS, XATTR_NAME_LEN, 0},
		{CKPT_SECTION_XATTRS, XATTR_NAME_LEN, 8},
		{CKPT_SECTION_XATTRS, XATTR_NAME_LEN, 0x10009},
		{CKPT_SECTION_STRINGS, 0, 0x61616161},
		{CKPT_SECTION_SESSIONS, 0, 0x66666666},
		// One name of a hard link twice, the other never.
		{CKPT_SECTION_INODES, 16, V_BIN},
	};

	for (uint32_t i = 0; i < ARRAY_LEN(words); i++) {
		ckpt_fixture_manifest_open();
		ckpt_put32(rows(words[i].type) + words[i].at, words[i].value);
		ck_assert_msg(try_it() == -EBADMSG, "word %u", i);
	}
	ckpt_fixture_manifest_open();
	rows(CKPT_SECTION_STRINGS)[section(CKPT_SECTION_STRINGS).len - 1] = 'x';
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(a_directory_outside_of_the_tree_is_found)
{
	struct ckpt_manifest_writer *w;
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e.name = "d";
	e.ino = 2;
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	ckpt_fixture_manifest_take(w);
	ck_ok(try_it());
	// The root is empty, and the other directory its own child.
	ckpt_put32(entry(0) + ENTRY_B, 0);
	ckpt_put32(entry(1) + ENTRY_PARENT, 1);
	ckpt_put32(entry(1) + ENTRY_A, 1);
	ckpt_put32(entry(1) + ENTRY_B, 1);
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(siblings_out_of_order_are_found)
{
	uint32_t name = ckpt_get32(entry(V_BIN) + ENTRY_NAME);

	// Not by swapping rows, which the order of the strings would tell, but by the names themselves.
	rows(CKPT_SECTION_STRINGS)[name] = 'x'; // "x.bin" before "w.bin"
	ck_error(try_it(), EBADMSG);
	rows(CKPT_SECTION_STRINGS)[name] = 'w'; // "w.bin" twice
	ck_error(try_it(), EBADMSG);
	rows(CKPT_SECTION_STRINGS)[name] = 'a';
	ck_ok(try_it());
}
END_TEST

START_TEST(attributes_out_of_order_are_found)
{
	// Row 0 is the root's; then there are "user.a" and "user.b" of one file.
	const uint8_t *row = rows(CKPT_SECTION_XATTRS) + 2 * XATTR_BYTES;
	uint8_t *name = rows(CKPT_SECTION_STRINGS) + ckpt_get32(row + XATTR_NAME);

	ck_assert_str_eq((char *)name, "user.b");
	name[5] = 'a'; // twice
	ck_error(try_it(), EBADMSG);
	name[5] = 'A';
	ck_error(try_it(), EBADMSG);
	name[5] = 'c';
	ck_ok(try_it());
}
END_TEST

START_TEST(missing_sections_are_found)
{
	struct ckpt_container c;

	ck_ok(ckpt_container_parse(&ckpt_manifest_kind, data, len, &c));
	for (uint32_t i = 0; i < c.section_count; i++) {
		uint8_t *row = data + CKPT_CONTAINER_HEADER_BYTES + (size_t)i * CKPT_CONTAINER_SECTION_BYTES;
		uint32_t type = ckpt_get32(row), flags = ckpt_get32(row + 4);

		// Under a name that nobody knows, first to be skipped, then to be refused.
		ckpt_put32(row, CKPT_FOURCC('N', 'O', 'N', 'E'));
		ckpt_put32(row + 4, 0);
		ck_error(try_it(), EBADMSG);
		ckpt_put32(row + 4, 1);
		ck_error(try_it(), ENOTSUP);
		ckpt_put32(row, type);
		ckpt_put32(row + 4, flags);
		ck_ok(try_it());
	}
}
END_TEST

START_TEST(a_section_without_rows_that_should_be_absent_is_refused)
{
	static const uint32_t types[] = {CKPT_SECTION_SEALS, CKPT_SECTION_CHUNKS, CKPT_SECTION_PACKS,
					 CKPT_SECTION_BASES, CKPT_SECTION_CATALOG};
	static const uint32_t there[] = {CKPT_SECTION_ENTRIES,    CKPT_SECTION_INODES, CKPT_SECTION_SESSIONS,
					 CKPT_SECTION_XATTR_SETS, CKPT_SECTION_XATTRS, CKPT_SECTION_STRINGS};
	struct ckpt_section sections[ARRAY_LEN(there) + 1];
	void *made;
	size_t made_len;

	for (size_t i = 0; i < ARRAY_LEN(there); i++)
		sections[i] = section(there[i]);
	for (int with = 0; with < 2; with++) {
		sections[ARRAY_LEN(there)] = (struct ckpt_section){types[_i], false, "", 0};
		ck_ok(ckpt_container_encode(&ckpt_manifest_kind, 0, 0, sections, ARRAY_LEN(there) + with, &made,
					    &made_len));
		ck_assert_int_eq(ckpt_try_manifest(made, made_len), with ? -EBADMSG : 0);
		free(made);
	}
}
END_TEST

START_TEST(a_catalog_is_kept_as_it_is_and_a_reader_may_skip_it)
{
	struct ckpt_manifest_writer *w;
	struct ckpt_manifest *m;
	struct ckpt_section catalog;
	uint32_t handle;
	const void *kept;
	size_t kept_len;

	m = parse();
	ck_assert(!ckpt_manifest_catalog(m, &kept, &kept_len));
	ckpt_manifest_unref(m);
	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_add(
		w, 0, &(struct ckpt_entry){.type = CKPT_ENTRY_DIR, .name = "", .mode = 0755, .nlink = 2, .ino = 1},
		&handle));
	ck_ok(ckpt_manifest_writer_catalog(w, "of before", 9));
	ck_ok(ckpt_manifest_writer_catalog(w, "catalog", 7));
	ckpt_fixture_manifest_take(w);
	ck_ok(try_it());
	m = parse();
	ck_assert(ckpt_manifest_catalog(m, &kept, &kept_len) && kept_len == 7 && !memcmp(kept, "catalog", 7));
	ckpt_manifest_unref(m);
	catalog = section(CKPT_SECTION_CATALOG);
	ck_assert(!catalog.required);
	for (uint8_t *row = data + CKPT_CONTAINER_HEADER_BYTES;; row += CKPT_CONTAINER_SECTION_BYTES) {
		if (ckpt_get32(row) != CKPT_SECTION_CATALOG)
			continue;
		ckpt_put32(row + 4, 1); // one content has one form
		ck_error(try_it(), EBADMSG);
		break;
	}
}
END_TEST

START_TEST(no_byte_can_be_changed_unseen)
{
	for (size_t i = 0; i < len; i++) {
		data[i] ^= 0xff;
		ck_error(ckpt_try_manifest(data, len), EBADMSG);
		data[i] ^= 0xff;
	}
}
END_TEST

START_TEST(every_changed_byte_with_a_right_digest_is_safe)
{
	static const uint8_t masks[] = {0x01, 0x80, 0xff, 0x10};

	for (size_t i = 0; i < len - 32; i++) {
		for (size_t k = 0; k < ARRAY_LEN(masks); k++) {
			data[i] ^= masks[k];
			try_it();
			data[i] ^= masks[k];
			ckpt_put64(data + 32, len); // reseal wrote it
		}
	}
	ck_ok(try_it());
}
END_TEST

START_TEST(every_truncation_with_a_right_digest_is_refused)
{
	for (size_t short_len = 0; short_len < len; short_len++) {
		CLEANUP_FREE uint8_t *copy = malloc(short_len + 1);

		memcpy(copy, data, short_len);
		ckpt_sample_reseal(copy, short_len);
		ck_assert_int_lt(ckpt_try_manifest(copy, short_len), 0);
	}
}
END_TEST

START_TEST(random_mutations_are_safe)
{
	uint64_t state = 42, parsed = 0;
	size_t cap = len + 64;
	CLEANUP_FREE uint8_t *changed = malloc(cap);

	for (int i = 0; i < MUTATIONS; i++) {
		size_t changed_len = len;

		memcpy(changed, data, len);
		for (uint64_t k = ckpt_sample_random(&state, 3) + 1; k; k--)
			changed_len = ckpt_sample_mutate(&state, changed, changed_len, cap);
		ckpt_sample_reseal(changed, changed_len);
		parsed += !ckpt_try_manifest(changed, changed_len);
	}
	// Both kinds came by: some changes only touch what may be anything.
	ck_assert_uint_gt(parsed, 100);
	ck_assert_uint_lt(parsed, MUTATIONS / 2);
}
END_TEST

// ---- Size and speed

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void write_many(uint32_t count, void **ret_data, size_t *ret_len)
{
	struct ckpt_manifest_writer *w;
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .name = "", .ino = 1};
	uint32_t handle, session;
	char name[64];
	int r = 0; // an assertion of Check costs as much as an entry

	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &session));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	e = (struct ckpt_entry){.type = CKPT_ENTRY_FILE, .content = CKPT_CONTENT_RAW, .name = name, .bytes = 1};
	for (uint32_t i = 0; i < count; i++) {
		e.ino = 2 + (i * UINT64_C(7919)) % 1000003;
		snprintf(name, sizeof(name), "model.layers.%07u.weight", (i * 7919u) % 1000003u);
		r |= ckpt_manifest_writer_add(w, 0, &e, &handle);
	}
	ck_ok(r);
	ck_ok(ckpt_manifest_writer_finish(w, ret_data, ret_len));
	ckpt_manifest_writer_free(w);
}

START_TEST(ten_thousand_entries_take_milliseconds)
{
	struct ckpt_manifest *m;
	double begin = now_ms(), written, parsed;
	void *made;
	size_t made_len;

	write_many(MANY, &made, &made_len);
	written = now_ms();
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	parsed = now_ms();
	printf("%d entries, %zu bytes: written in %.1f ms, parsed in %.1f ms\n", MANY, made_len, written - begin,
	       parsed - written);
	ck_assert_uint_eq(ckpt_manifest_count(m), MANY + 1);
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	// Of processor time, and far above what it takes; quadratic work would be far above this.
	ck_assert(written - begin < 100 && parsed - written < 50);
#endif
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("manifest");
	TCase *t = tcase_create("manifest");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, ckpt_fixture_manifest_open, ckpt_fixture_manifest_close);
	tcase_add_test(t, what_is_written_is_read);
	tcase_add_test(t, hard_links_are_one_file);
	tcase_add_test(t, sha256_is_that_of_all_bytes);
	tcase_add_test(t, order_of_the_calls_does_not_matter);
	tcase_add_test(t, names_sort_as_bytes);
	tcase_add_test(t, writer_refuses_what_a_reader_would);
	tcase_add_test(t, finish_refuses_doubled_names_and_inodes);
	tcase_add_test(t, writer_refuses_entries_that_do_not_fit_their_type);
	tcase_add_test(t, finish_refuses_links_that_differ_and_doubled_attributes);
	tcase_add_test(t, the_longest_symlink_is_read);
	tcase_add_test(t, depth_is_limited);
	tcase_add_loop_test(t, every_lie_is_found, 0, (int)ARRAY_LEN(lies));
	tcase_add_test(t, other_tables_that_lie_are_found);
	tcase_add_test(t, a_directory_outside_of_the_tree_is_found);
	tcase_add_test(t, siblings_out_of_order_are_found);
	tcase_add_test(t, attributes_out_of_order_are_found);
	tcase_add_test(t, missing_sections_are_found);
	tcase_add_test(t, a_catalog_is_kept_as_it_is_and_a_reader_may_skip_it);
	tcase_add_loop_test(t, a_section_without_rows_that_should_be_absent_is_refused, 0, 4);
	tcase_add_test(t, no_byte_can_be_changed_unseen);
	tcase_add_test(t, every_changed_byte_with_a_right_digest_is_safe);
	tcase_add_test(t, every_truncation_with_a_right_digest_is_refused);
	tcase_add_test(t, random_mutations_are_safe);
	tcase_add_test(t, ten_thousand_entries_take_milliseconds);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
