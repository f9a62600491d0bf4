// Arrays written as files: every write that fails, every allocation that fails, files over 4 GiB, and ranges of odd sizes.
#include "core/array/write.h"
#include "tests/support/allocfault.h"
#include "tests/support/suite.h"

#include "core/array/catalog.h"
#include "core/array/write_folder.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/view/export.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define FORMATS 7

static const uint64_t shape[] = {5, 3};
static const struct ckpt_write_array arrays[] = {
	{"a", "a", CKPT_DTYPE_F32, 2, shape},
	{"b.c", "b.c", CKPT_DTYPE_U16, 2, shape},
	{"d", "d", CKPT_DTYPE_BOOL, 0, NULL},
};

static struct ckpt_write_plan plan(uint64_t shard_bytes)
{
	return (struct ckpt_write_plan){.arrays = arrays, .count = ARRAY_LEN(arrays), .shard_bytes = shard_bytes};
}

static uint64_t shard_of(const char *format)
{
	return !strcmp(format, "npy") || !strcmp(format, "npz") ? 0 : 24;
}

// --- A target that counts, and fails ----------------------------------------------------------------------------------------

static struct {
	unsigned calls, fail_at, created, closed, whole;
	uint64_t size, end; // of the file: promised, and written
} target;

static int call(void)
{
	return ++target.calls == target.fail_at ? -EIO : 0;
}

static int create(void *arg, const char *path, uint64_t bytes, void **ret_file)
{
	(void)arg;
	if (call())
		return -EIO;
	ck_assert(*path && *path != '/');
	target.created++;
	target.size = bytes;
	target.end = 0;
	*ret_file = &target;
	return 0;
}

static int write_at(void *arg, void *file, const void *bytes, size_t len, uint64_t offset)
{
	(void)arg;
	(void)bytes;
	ck_assert(file == &target && len && offset + len <= target.size);
	target.end = MAX(target.end, offset + len);
	return call();
}

static int close_file(void *arg, void *file, bool whole)
{
	(void)arg;
	ck_assert(file == &target);
	target.closed++;
	target.whole += whole;
	return whole ? call() : 0;
}

static const struct ckpt_write_target counting = {.create = create, .write = write_at, .close = close_file};

// All ranges, in parts of so many bytes at most.
static int write_all(const char *format, const struct ckpt_write_target *to, size_t part)
{
	char why[CKPT_WRITE_WHY_MAX] = "";
	const struct ckpt_write_plan p = plan(shard_of(format));
	struct ckpt_layout *l = NULL;
	struct ckpt_writer *w = NULL;
	struct ckpt_write_range range;
	uint64_t done[ARRAY_LEN(arrays)] = {0};
	uint8_t zeros[64] = {0};
	int rc = ckpt_layout_new(format, &p, why, &l), error = 0;

	if (!rc)
		rc = ckpt_write_new(l, to, &w);
	while (!rc && ckpt_write_wants(w, &range, &error)) {
		ck_assert(range.array < ARRAY_LEN(arrays) && range.first == done[range.array] && range.bytes);
		rc = ckpt_write_put(w, zeros, (size_t)MIN(range.bytes, (uint64_t)part));
		done[range.array] += MIN(range.bytes, (uint64_t)part);
	}
	if (!rc && !error) {
		ck_assert(done[0] == 60 && done[1] == 30 && done[2] == 1);
		ck_assert_uint_eq(target.created, ckpt_layout_files(l));
	}
	ck_assert_msg(!*why, "%s", why);
	ckpt_write_free(w);
	ckpt_layout_free(l);
	return rc ? rc : error;
}

START_TEST(every_write_that_fails_ends_it)
{
	const char *format = ckpt_write_format((size_t)_i);

	for (unsigned n = 1;; n++) {
		int rc;

		memset(&target, 0, sizeof(target));
		target.fail_at = n;
		rc = write_all(format, &counting, 7);
		ck_assert_uint_eq(target.created, target.closed);
		if (target.calls < n) {
			ck_ok(rc);
			ck_assert_uint_eq(target.whole, target.created);
			ck_assert_uint_gt(n, 8);
			break;
		}
		ck_assert_int_eq(rc, -EIO);
		ck_assert_uint_eq(target.calls, n); // nothing more was tried
	}
}
END_TEST

START_TEST(every_allocation_that_fails_is_told)
{
	const char *format = ckpt_write_format((size_t)_i);
	char why[CKPT_WRITE_WHY_MAX];
	const struct ckpt_write_plan p = plan(shard_of(format));

	for (uint64_t n = 1;; n++) {
		struct ckpt_layout *l = NULL;
		uint64_t count;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_layout_new(format, &p, why, &l);
		count = ckpt_allocfault_end();
		ck_assert_int_eq(rc, count < n ? 0 : -ENOMEM);
		ckpt_layout_free(l);
		if (count < n)
			break;
	}
}
END_TEST

// --- Sources --------------------------------------------------------------------------------------------------------------

static int find_first(void *arg, uint64_t offset, const void *text, size_t array, uint64_t bytes)
{
	uint64_t *at = arg;

	(void)bytes;
	if (!text)
		at[array] = offset;
	return 0;
}

static uint64_t shared_with(const uint64_t *sources, uint64_t *ret_header)
{
	static const uint64_t large[] = {500000}, larger[] = {900000};
	static const struct ckpt_write_array three[] = {{"a", "a", CKPT_DTYPE_F32, 1, large},
							{"b", "b", CKPT_DTYPE_F32, 1, larger},
							{"c", "c", CKPT_DTYPE_F32, 1, larger}};
	const struct ckpt_write_plan p = {.arrays = three, .count = 3, .sources = sources};
	char why[CKPT_WRITE_WHY_MAX];
	uint64_t at[3], bytes = 0;
	struct ckpt_layout *l;

	ck_ok(ckpt_layout_new("safetensors", &p, why, &l));
	ck_ok(ckpt_layout_each(l, find_first, at));
	ck_assert(at[1] == at[0] + 2000000 && at[2] == at[1] + 3600000);
	for (size_t i = 0; sources && i < 3; i++)
		if (sources[i] != CKPT_WRITE_NO_SOURCE && sources[i] % 4096 == at[i] % 4096)
			bytes += *three[i].shape * 4;
	*ret_header = at[0];
	ckpt_layout_free(l);
	return bytes;
}

// The header is as long as most bytes need it, and no longer where nothing can be shared.
START_TEST(safetensors_lie_as_their_sources_do)
{
	const uint64_t alike[] = {4096 * 7 + 808, 4096 * 9 + 808 + 2000000, 808 + 5600000},
		       two[] = {2048, 4096 + 96, 4096 * 2000 + 96 + 3600000}, odd[] = {3, CKPT_WRITE_NO_SOURCE, 5};
	uint64_t none, header;

	ck_assert_uint_eq(shared_with(NULL, &none), 0);
	ck_assert_uint_lt(none, 4096);
	ck_assert_uint_eq(shared_with(alike, &header), 9200000);
	ck_assert_uint_eq(header % 4096, 808);
	ck_assert_uint_eq(shared_with(two, &header), 7200000);
	ck_assert_uint_eq(shared_with(odd, &header), 0);
	ck_assert_uint_eq(header, none);
}
END_TEST

// --- Large files ------------------------------------------------------------------------------------------------------------

#define LARGE (UINT64_C(5) << 30)

static int sparse_fd;

static int create_sparse(void *arg, const char *path, uint64_t bytes, void **ret_file)
{
	(void)path;
	*ret_file = arg;
	return ckpt_sys.ftruncate(sparse_fd, (off_t)bytes);
}

// Elements are zeros, and stay holes.
static int write_sparse(void *arg, void *file, const void *bytes, size_t len, uint64_t offset)
{
	ssize_t n;

	(void)arg;
	(void)file;
	if (len >= 1 << 20)
		return 0;
	n = ckpt_sys.pwrite(sparse_fd, bytes, len, (off_t)offset);
	return n < 0 ? (int)n : 0;
}

static int close_sparse(void *arg, void *file, bool whole)
{
	(void)arg;
	(void)file;
	ck_assert(whole);
	return 0;
}

static int open_sparse(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)path;
	*ret_source = ckpt_source_file(sparse_fd, (uint64_t)lseek(sparse_fd, 0, SEEK_END));
	return arg ? -EIO : 0;
}

static void close_source(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
}

static void check_large(const char *path)
{
	const struct ckpt_catalog_files files = {.open = open_sparse, .close = close_source};
	struct ckpt_catalog_array a;
	struct ckpt_catalog *c;
	struct ckpt_piece piece;

	ck_ok(ckpt_catalog_new(&c));
	ck_ok(ckpt_catalog_read(c, &files, path));
	ck_ok(ckpt_catalog_end(c));
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 2);
	for (size_t i = 0; i < 2; i++) {
		uint8_t byte = 0;

		ckpt_catalog_get(c, i, &a);
		ck_assert_msg(!a.why, "%s", a.why);
		ckpt_catalog_piece(c, i, 0, &piece);
		ck_assert_uint_eq(piece.bytes, strcmp(a.name, "large") ? 1 : LARGE);
		ck_assert_uint_eq(piece.offset % 64, 0);
		if (piece.bytes == 1) {
			ck_assert(pread(sparse_fd, &byte, 1, (off_t)piece.offset) == 1 && byte == 'x');
			ck_assert_uint_gt(piece.offset, LARGE);
		}
	}
	ckpt_catalog_free(c);
}

// The second member is behind 4 GiB, and its header has to say so.
START_TEST(zips_have_members_and_offsets_over_4_gib)
{
	static const uint64_t large[] = {LARGE}, one[] = {1};
	static const struct ckpt_write_array two[] = {{"large", "large", CKPT_DTYPE_U8, 1, large},
						      {"small", "small", CKPT_DTYPE_U8, 1, one}};
	static uint8_t zeros[16 << 20];
	const char *format = _i ? "torch" : "npz";
	const struct ckpt_write_plan p = {.arrays = two, .count = 2};
	const struct ckpt_write_target to = {.create = create_sparse, .write = write_sparse, .close = close_sparse};
	char why[CKPT_WRITE_WHY_MAX], path[PATH_MAX];
	struct ckpt_write_range range;
	struct ckpt_layout *l;
	struct ckpt_writer *w;
	int error = 0;

	ckpt_temp_dir(path);
	strcat(path, "/f");
	sparse_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(sparse_fd, 0);
	ck_ok(ckpt_layout_new(format, &p, why, &l));
	ck_ok(ckpt_write_new(l, &to, &w));
	while (ckpt_write_wants(w, &range, &error))
		ck_ok(ckpt_write_put(w, range.array ? (const void *)"x" : zeros,
				     (size_t)MIN(range.bytes, (uint64_t)sizeof(zeros))));
	ck_ok(error);
	ckpt_write_free(w);
	ckpt_layout_free(l);
	check_large(_i ? "model.pt" : "model.npz");
}
END_TEST

// --- Folders ----------------------------------------------------------------------------------------------------------------

START_TEST(a_folder_keeps_no_file_that_is_not_whole_and_replaces_none)
{
	int fd = ckpt_temp_fd();
	const struct ckpt_write_target to = ckpt_write_folder(&fd);
	struct stat st;
	void *file;

	ck_ok(to.create(to.arg, "a/b/c", 5, &file));
	ck_assert(!fstatat(fd, "a/b/c", &st, 0) && st.st_size == 5);
	ck_ok(to.write(to.arg, file, "x", 1, 4));
	ck_ok(to.close(to.arg, file, false));
	ck_assert(fstatat(fd, "a/b/c", &st, 0) < 0);
	ck_ok(to.create(to.arg, "a/b/c", 5, &file));
	ck_ok(to.close(to.arg, file, true));
	ck_assert_int_eq(to.create(to.arg, "a/b/c", 5, &file), -EEXIST);
	ck_assert_int_ne(to.create(to.arg, "../c", 5, &file), 0);
	ck_assert_int_ne(to.create(to.arg, "a/b/c/d", 5, &file), 0);
	ck_assert(!fstatat(fd, "a/b/c", &st, 0) && st.st_size == 5);
}
END_TEST

// All bytes of arrays from a file, in parts of so many. Where the format has sums, or the target cannot, nothing happens.
static int copy_all(const char *format, const struct ckpt_write_target *to, int from, bool *ret_sums)
{
	const struct ckpt_write_plan p = plan(0);
	char why[CKPT_WRITE_WHY_MAX];
	struct ckpt_write_range range, known;
	struct ckpt_layout *l;
	struct ckpt_writer *w;
	size_t part = 0;
	int rc = 0, error = 0;

	ck_ok(ckpt_layout_new(format, &p, why, &l));
	*ret_sums = ckpt_layout_has_sums(l);
	ck_assert(ckpt_layout_next(l, &part, &known));
	ck_ok(ckpt_write_new(l, to, &w));
	while (!rc && ckpt_write_wants(w, &range, &error)) {
		if (!known.bytes)
			ck_assert(ckpt_layout_next(l, &part, &known));
		ck_assert(range.array == known.array && range.first == known.first && range.bytes == known.bytes);
		known.bytes = MIN(range.bytes, 7u);
		rc = ckpt_write_copy(w, from, range.first, known.bytes);
		known.first += known.bytes;
		known.bytes = range.bytes - known.bytes;
	}
	if (!rc && !error)
		ck_assert(!ckpt_layout_next(l, &part, &known));
	ckpt_write_free(w);
	ckpt_layout_free(l);
	return rc ? rc : error;
}

START_TEST(bytes_of_a_file_are_copied)
{
	int fd = ckpt_temp_fd();
	const struct ckpt_write_target to = ckpt_write_folder(&fd);
	CLEANUP_FD int from = openat(fd, "from", O_RDWR | O_CREAT, 0600), out = -1;
	uint8_t bytes[60], found[60];
	struct stat st;
	bool sums;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i + 1);
	ck_assert(pwrite(from, bytes, sizeof(bytes), 0) == sizeof(bytes));
	ck_ok(copy_all("safetensors", &to, from, &sums));
	ck_assert(!sums);
	out = openat(fd, "model.safetensors", O_RDONLY);
	ck_assert(!fstat(out, &st) && st.st_size > 91);
	ck_assert(pread(out, found, 60, st.st_size - 91) == 60 && !memcmp(found, bytes, 60));
	ck_assert(pread(out, found, 30, st.st_size - 31) == 30 && !memcmp(found, bytes, 30));
	ck_error(copy_all("npz", &to, from, &sums), EOPNOTSUPP);
	ck_assert(sums);
	memset(&target, 0, sizeof(target));
	ck_error(copy_all("npy", &counting, from, &sums), EOPNOTSUPP);
	ck_assert(!sums);
	ck_ok(ckpt_sys.ftruncate(from, 59));
	ck_error(copy_all("npy", &to, from, &sums), ENODATA);
}
END_TEST

START_TEST(types_have_the_names_of_both)
{
	ck_assert_int_eq(ckpt_export_dtype("bf16"), CKPT_DTYPE_BF16);
	ck_assert_int_eq(ckpt_export_dtype("float32"), CKPT_DTYPE_F32);
	ck_assert_int_eq(ckpt_export_dtype("int32"), CKPT_DTYPE_NONE);
	ck_assert_int_eq(ckpt_export_dtype("float8_e8m0fnu"), CKPT_DTYPE_NONE);
	ck_assert_int_eq(ckpt_export_dtype(""), CKPT_DTYPE_NONE);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("write");
	TCase *faults = tcase_create("faults"), *large = tcase_create("large"), *folder = tcase_create("folder"),
	      *sources = tcase_create("sources");

	tcase_add_loop_test(faults, every_write_that_fails_ends_it, 0, FORMATS);
	tcase_add_loop_test(faults, every_allocation_that_fails_is_told, 0, FORMATS);
	suite_add_tcase(s, faults);
	tcase_add_test(sources, safetensors_lie_as_their_sources_do);
	tcase_add_test(sources, bytes_of_a_file_are_copied);
	suite_add_tcase(s, sources);
	tcase_add_loop_test(large, zips_have_members_and_offsets_over_4_gib, 0, 2);
	suite_add_tcase(s, large);
	tcase_add_test(folder, a_folder_keeps_no_file_that_is_not_whole_and_replaces_none);
	tcase_add_test(folder, types_have_the_names_of_both);
	suite_add_tcase(s, folder);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
