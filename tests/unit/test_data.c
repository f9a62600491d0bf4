// Which files are array data: by their first bytes, by the layout that they are in, by their size.
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>

static int top;

static void setup(void)
{
	top = ckpt_temp_fd();
}

static void make_dirs(const char *path)
{
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "%s", path);
	for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		ck_assert(!mkdirat(top, part, 0755) || errno == EEXIST);
		*slash = '/';
	}
}

static void put(const char *path, const void *data, size_t len, uint64_t bytes)
{
	CLEANUP_FD int fd = -1;

	make_dirs(path);
	fd = openat(top, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, data, len, 0), (ssize_t)len);
	if (bytes > len)
		ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
}

#define BINARY "\0\1\2\xff\xfe" // of no format
#define TORCH "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"
#define NUMPY_ZIP "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0a.npy"
#define OTHER_ZIP "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0a.txt"
#define BYTES(text) (text), sizeof(text) - 1

static void check(const char *path, const void *data, size_t len, uint64_t bytes, int want)
{
	CLEANUP_FD int fd = -1;

	put(path, data, len, bytes);
	ck_assert_msg(ckpt_data_is(top, path) == want, "%s of %zu bytes: not %d", path, len, want);
	fd = openat(top, path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(ckpt_data_is_open(fd, top, path), want);
}

START_TEST(array_formats_are_known_by_their_first_bytes)
{
	check("model.safetensors", BYTES("\x10\0\0\0\0\0\0\0{\"w\":{}}        "), 0, 1);
	check("any.name", BYTES("\x10\0\0\0\0\0\0\0{\"w\":{}}        "), 0, 1);
	check("model.pt", BYTES(TORCH), 0, 1);
	check("checkpoint", BYTES(TORCH), 0, 1);
	check("arrays.npz", BYTES(NUMPY_ZIP), 0, 1);
	check("a.npy", BYTES("\x93NUMPY\1\0v\0"), 0, 1);
	check("weights.h5", BYTES("\x89HDF\r\n\x1a\n\0\0"), 0, 1);
	check("model.gguf", BYTES("GGUF\3\0\0\0"), 0, 1);
	check("random_states_0.pkl", BYTES("\x80\x02}q\0."), 0, 1);
	check("model.pth", BYTES("\x80\x05}\x94."), 0, 1);
	check("model.keras", BYTES(OTHER_ZIP), 0, 1);
	check("params.msgpack", BYTES("\x82\xa1w\xc4"), 0, 1);
}
END_TEST

START_TEST(an_hdf5_file_may_begin_with_a_block_of_the_user)
{
	uint8_t file[4096] = {0};

	memcpy(file + 1024, "\x89HDF\r\n\x1a\n", 8);
	check("a.h5", file, sizeof(file), 0, 1);
	memset(file, 0, sizeof(file));
	memcpy(file + 1000, "\x89HDF\r\n\x1a\n", 8);
	check("a.h5", file, sizeof(file), 0, 0);
}
END_TEST

START_TEST(other_files_are_none)
{
	check("config.json", BYTES("{\"a\": 1}"), 0, 0);
	check("empty.safetensors", "", 0, 0, 0);
	check("model.safetensors", BYTES("xxxxxxxxxxxxxxxx"), 0, 0);
	check("model.safetensors", BYTES("\xff\xff\xff\xff\0\0\0\0{\"w\":{}}"), 0, 0); // a header of 4 GiB
	check("0.png", BYTES("\x89PNG\r\n\x1a\n\0\0"), 0, 0);
	check("code.zip", BYTES(OTHER_ZIP), 0, 0);
	check("arguments.pickled", BYTES("\x80\x05}\x94."), 0, 0);
	check("small.dat", BYTES(BINARY), 0, 0);
	check("small.msgpack", BYTES("\xc3\0"), 0, 0);
}
END_TEST

START_TEST(a_large_file_of_no_known_format_is_array_data)
{
	check("blob", BYTES(BINARY), CKPT_DATA_LARGE_BYTES, 0);
	check("blob", BYTES(BINARY), CKPT_DATA_LARGE_BYTES + 1, 1);
	check("blob.pickled", BYTES("\x80\x05}\x94."), CKPT_DATA_LARGE_BYTES + 1, 1);
	check("film.mp4",
	      BYTES("\0\0\0\x20"
		    "ftypisom"),
	      CKPT_DATA_LARGE_BYTES + 1, 0);
	check("events.out.tfevents.1",
	      BYTES("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\x80\xb4\xed\x49\xda\x41\x1a\x0d"
		    "brain.Event:2"),
	      CKPT_DATA_LARGE_BYTES + 1, 0);
	check("code.zip", BYTES(OTHER_ZIP), CKPT_DATA_LARGE_BYTES + 1, 0);
}
END_TEST

START_TEST(text_is_none_whatever_its_size_and_place)
{
	char text[4100];

	memset(text, 'x', sizeof(text));
	check("tokenizer.json", text, 4096, CKPT_DATA_LARGE_BYTES + 1, 0);
	check("__0_0.distcp", text, 100, 0, 0);
	memcpy(text + 4095, "\xe2\x82\xac", 3); // the look ends in the middle of it
	check("tokenizer.json", text, sizeof(text), CKPT_DATA_LARGE_BYTES + 1, 0);
	text[4095] = '\xff';
	check("tokenizer.json", text, sizeof(text), CKPT_DATA_LARGE_BYTES + 1, 1);
	text[4095] = 'x';
	text[100] = '\xc3'; // begins a sequence that does not go on
	check("tokenizer.json", text, sizeof(text), CKPT_DATA_LARGE_BYTES + 1, 1);
}
END_TEST

START_TEST(layouts_tell_where_arrays_are)
{
	check("__0_0.distcp", BYTES(BINARY), 0, 1);
	check("ckpt.data-00000-of-00001", BYTES(BINARY), 0, 1);
	check("ckpt.index", BYTES(BINARY), 0, 0);
	check("model/0.0", BYTES(BINARY), 0, 0);
	check("model/.zarray", BYTES("{}"), 0, 0);
	check("model/0.0", BYTES(BINARY), 0, 1);
	check("model/.zattrs", BYTES(BINARY), 0, 0);
	check("three/zarr.json", BYTES("{}"), 0, 0);
	check("three/c/0/1", BYTES(BINARY), 0, 1);
	check("three/notes/1", BYTES(BINARY), 0, 0);
	check("d/0123456789abcdef0123456789abcdef", BYTES(BINARY), 0, 1);
	check("state/ocdbt.process_0/d/0123456789abcdef0123456789abcdef", BYTES(BINARY), 0, 1);
	check("e/0123456789abcdef0123456789abcdef", BYTES(BINARY), 0, 0);
	check("state/d/other", BYTES(BINARY), 0, 0);
	put("state/manifest.ocdbt", BYTES(BINARY), 0);
	check("state/d/other", BYTES(BINARY), 0, 1);
	check("0/model/weight", BYTES(BINARY), 0, 0);
	put(".snapshot_metadata", BYTES("location: 0/model/weight\n"), 0);
	check("0/model/weight", BYTES(BINARY), 0, 1);
	check("0/model/bias", BYTES(BINARY), 0, 0);
}
END_TEST

START_TEST(a_long_snapshot_names_its_last_file_too)
{
	static char text[3 * (64 << 10)];

	memset(text, '-', sizeof(text));
	for (size_t at = (64 << 10) - 20; at <= (64 << 10); at++) { // across the end of a piece
		char name[] = "0/model/weight";

		memcpy(text + at, name, strlen(name));
		put(".snapshot_metadata", text, sizeof(text), 0);
		check(name, BYTES(BINARY), 0, 1);
		memset(text + at, '-', strlen(name));
	}
}
END_TEST

START_TEST(without_a_tree_the_path_tells)
{
	CLEANUP_FD int fd = -1;

	put("x", BYTES(BINARY), 0);
	fd = openat(top, "x", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(ckpt_data_is_open(fd, -1, "__0_0.distcp"), 1);
	ck_assert_int_eq(ckpt_data_is_open(fd, -1, "a/d/0123456789abcdef0123456789abcdef"), 1);
	ck_assert_int_eq(ckpt_data_is_open(fd, -1, "x"), 0);
}
END_TEST

START_TEST(only_regular_files_are_array_data)
{
	put("model.pt", BYTES(TORCH), 0);
	ck_assert_int_eq(symlinkat("model.pt", top, "link.pt"), 0);
	ck_assert_int_eq(mkdirat(top, "dir.pt", 0755), 0);
	ck_assert_int_eq(mkfifoat(top, "pipe.pt", 0644), 0);
	ck_assert_int_eq(ckpt_data_is(top, "link.pt"), 0);
	ck_assert_int_eq(ckpt_data_is(top, "dir.pt"), 0);
	ck_assert_int_eq(ckpt_data_is(top, "pipe.pt"), 0);
	ck_error(ckpt_data_is(top, "none.pt"), ENOENT);
}
END_TEST

START_TEST(a_tree_has_array_data_when_one_file_is)
{
	ck_assert_int_eq(ckpt_data_any(top), 0);
	put("0.png", BYTES("\x89PNG\r\n\x1a\n\0\0"), 0);
	put("deep/er/notes.txt", BYTES("loss"), 0);
	ck_assert_int_eq(symlinkat("..", top, "deep/loop"), 0);
	ck_assert_int_eq(ckpt_data_any(top), 0);
	put("deep/er/trainer_state.json", BYTES("{}"), 0);
	ck_assert_int_eq(ckpt_data_any(top), 0);
	put("deep/er/model.pt", BYTES(TORCH), 0);
	ck_assert_int_eq(ckpt_data_any(top), 1);
}
END_TEST

static struct ckpt_sys real;

static ssize_t failing_pread(int fd, void *buf, size_t len, off_t offset)
{
	(void)fd, (void)buf, (void)len, (void)offset;
	return -EIO;
}

START_TEST(a_disk_that_fails_is_an_error)
{
	put("model.pt", BYTES(TORCH), 0);
	real = ckpt_hooks;
	ckpt_hook_set(pread, failing_pread);
	ck_error(ckpt_data_is(top, "model.pt"), EIO);
	ck_error(ckpt_data_any(top), EIO);
	ckpt_hooks_restore(&real);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("data");
	TCase *tests = tcase_create("data");

	tcase_add_checked_fixture(tests, setup, NULL);
	tcase_add_test(tests, array_formats_are_known_by_their_first_bytes);
	tcase_add_test(tests, an_hdf5_file_may_begin_with_a_block_of_the_user);
	tcase_add_test(tests, other_files_are_none);
	tcase_add_test(tests, a_large_file_of_no_known_format_is_array_data);
	tcase_add_test(tests, text_is_none_whatever_its_size_and_place);
	tcase_add_test(tests, layouts_tell_where_arrays_are);
	tcase_add_test(tests, a_long_snapshot_names_its_last_file_too);
	tcase_add_test(tests, without_a_tree_the_path_tells);
	tcase_add_test(tests, only_regular_files_are_array_data);
	tcase_add_test(tests, a_tree_has_array_data_when_one_file_is);
	tcase_add_test(tests, a_disk_that_fails_is_an_error);
	suite_add_tcase(suite, tests);
	return ckpt_suite_run(suite);
}
