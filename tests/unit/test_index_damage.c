// An index that is damaged in any way opens, empty or whole: it never ends the process, hangs, or gives wrong rows.
#include "tests/support/formats.h"
#include "tests/support/rows.h"

#include "core/base/util.h"
#include "core/index/index_value.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define OTHER_STORE "6f0c3f6e-8f7b-4b43-9a52-0b1c5a7f6d11"

enum { ROWS = 40, PAGE = 4096, FLIPS_MAX = 4 };

static char dir[PATH_MAX];
static struct ckpt_index *ix;
static bool fresh;

static void setup(void)
{
	ckpt_rows_dir(dir);
}

static void close_index(void)
{
	ckpt_index_close(TAKE_PTR(ix));
}

static int open_index(void)
{
	return ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh);
}

// An index of so many manifests, closed.
static void make(uint32_t rows)
{
	ckpt_index_close(ckpt_rows_make(dir, rows));
}

static uint8_t *image;
static size_t image_len;

static void load_image(void)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	ckpt_rows_path(dir, "data.mdb", path);
	fd = open(path, O_RDONLY);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	image_len = (size_t)st.st_size;
	image = malloc(image_len + PAGE);
	ck_assert_int_eq(pread(fd, image, image_len, 0), (ssize_t)image_len);
	close(fd);
}

static void store_image(const uint8_t *bytes, size_t len)
{
	char path[PATH_MAX];
	int fd;

	ckpt_rows_path(dir, "data.mdb", path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

// Opens what is there: it is thrown away, or every row is right, missing or -EBADMSG. Two kinds of row can be missing: that
// of a lost last transaction, and one whose key a flip has changed into another hash. The store has both.
static bool open_damaged(int *ret_wrong)
{
	int missing = 0, bad = 0, rows;

	ck_ok(open_index());
	if (!fresh) {
		for (uint32_t i = 0; i < ROWS; i++) {
			int r = ckpt_row_check(ix, i);

			missing += r == -ENOENT;
			bad += r == -EBADMSG;
		}
		rows = ckpt_rows_count(ix);
		ck_assert_msg(rows == -EBADMSG || rows >= ROWS - 1, "%d rows", rows);
		ck_assert_int_le(missing, 1 + FLIPS_MAX);
	}
	// Whatever it was, it works, or it says so and works after a reset.
	if (ckpt_row_put(ix, ROWS) || ckpt_row_check(ix, ROWS)) {
		ck_ok(ckpt_index_reset(ix));
		ck_ok(ckpt_row_put(ix, ROWS));
		ck_ok(ckpt_row_check(ix, ROWS));
	}
	close_index();
	*ret_wrong += bad;
	return fresh;
}

// In LMDB's own format: the newer meta page, and a page by its number.
static uint8_t *newer_meta(void)
{
	return ckpt_get64(image + 144) > ckpt_get64(image + PAGE + 144) ? image : image + PAGE;
}

static uint8_t *page_of(const uint8_t *pgno)
{
	return image + ckpt_get64(pgno) * PAGE;
}

START_TEST(a_page_that_is_both_free_and_used_is_found)
{
	uint8_t *meta, *leaf, *list;
	int wrong = 0;

	make(ROWS);
	load_image();
	meta = newer_meta();
	leaf = page_of(meta + 40 + 40);
	ck_assert_uint_eq(ckpt_get16(leaf + 10), 2); // small enough to be one leaf
	list = leaf + ckpt_get16(leaf + 16) + 8 + 8;
	ck_assert_uint_ge(ckpt_get64(list), 1);
	ckpt_put64(list, 1);
	store_image(image, image_len);
	ck_assert(!open_damaged(&wrong)); // only leaks the others
	memcpy(list + 8, meta + 88 + 40, 8);
	store_image(image, image_len);
	ck_assert(open_damaged(&wrong)); // the root of the tree, free to be written over
	free(image);
}
END_TEST

START_TEST(every_damaged_page_header_is_survived)
{
	int kept = 0, wrong = 0;

	make(ROWS);
	load_image();
	for (size_t page = 0; page < image_len; page += PAGE) {
		for (size_t i = 0; i < 16 + (page < 2 * PAGE ? 136 : 0); i++) {
			image[page + i] ^= 0xff;
			store_image(image, image_len);
			kept += !open_damaged(&wrong);
			image[page + i] ^= 0xff;
		}
	}
	// Headers of pages in use are all checked; free pages and unused fields may be anything.
	ck_assert_int_gt(kept, 0);
	free(image);
}
END_TEST

START_TEST(truncated_and_grown_files_are_survived)
{
	static const size_t odd[] = {0, 1, 100, PAGE - 1, PAGE, PAGE + 100, 2 * PAGE - 1, 2 * PAGE, 3 * PAGE};
	int wrong = 0;

	make(ROWS);
	load_image();
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		store_image(image, odd[i]);
		ck_assert_msg(open_damaged(&wrong), "%zu bytes", odd[i]);
	}
	for (size_t len = 4 * PAGE; len < image_len; len += PAGE) {
		store_image(image, len - PAGE / 2);
		ck_assert_msg(open_damaged(&wrong), "%zu bytes", len);
	}
	memset(image + image_len, 0xa5, PAGE);
	store_image(image, image_len + PAGE);
	ck_assert(!open_damaged(&wrong));
	free(image);
}
END_TEST

START_TEST(garbage_is_thrown_away_and_one_set_kept)
{
	CLEANUP_FREE uint8_t *garbage = malloc(10 * PAGE);
	uint64_t state = 5;
	char path[PATH_MAX];
	struct stat st;

	make(ROWS);
	for (size_t i = 0; i < 10 * PAGE; i++)
		garbage[i] = (uint8_t)ckpt_sample_random(&state, 256);
	for (size_t pages = 1; pages <= 10; pages++) {
		store_image(garbage, pages * PAGE);
		ck_ok(open_index());
		ck_assert(fresh);
		close_index();
		ckpt_rows_path(dir, "index.bad", path);
		ck_assert(!stat(path, &st) && (size_t)st.st_size == pages * PAGE);
	}
	memset(garbage, 0, 10 * PAGE);
	store_image(garbage, 10 * PAGE);
	ck_ok(open_index());
	ck_assert(fresh);
}
END_TEST

START_TEST(a_damaged_lock_file_is_survived)
{
	char path[PATH_MAX];
	int fd;

	make(ROWS);
	ckpt_rows_path(dir, "lock.mdb", path);
	fd = open(path, O_WRONLY | O_TRUNC);
	ck_assert(fd >= 0 && write(fd, "garbage", 7) == 7);
	close(fd);
	ck_ok(open_index());
	ck_assert(!fresh);
	ck_ok(ckpt_row_check(ix, 0));
}
END_TEST

START_TEST(the_index_of_another_store_is_thrown_away)
{
	make(ROWS);
	ck_error(ckpt_index_open(dir, OTHER_STORE, true, &ix, &fresh), EBADMSG);
	ck_ok(ckpt_index_open(dir, OTHER_STORE, false, &ix, &fresh));
	ck_assert(fresh);
	ck_assert_int_eq(ckpt_rows_count(ix), 0);
}
END_TEST

START_TEST(an_index_of_another_format_is_thrown_away)
{
	uint8_t *at, format[4];
	struct ckpt_index_key key;

	make(1);
	load_image();
	ckpt_index_key_self(&key, "format");
	ckpt_put32(format, CKPT_INDEX_FORMAT - 1);
	// All copies of the value of "format", with a right checksum.
	for (uint8_t *from = image; (at = memmem(from, image_len - (size_t)(from - image), "sformat", 7));
	     from = at + 7)
		ckpt_index_value_write(&key, format, sizeof(format), at + 7);
	store_image(image, image_len);
	ck_ok(open_index());
	ck_assert(fresh);
	free(image);
}
END_TEST

static int flips(void)
{
	if (getenv("CKPT_TEST_FULL"))
		return 15000;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 500;
#else
	return 3000;
#endif
}

START_TEST(random_bit_flips_never_crash_and_never_lie)
{
	uint64_t state = 11;
	int wrong = 0, kept = 0;

	make(ROWS);
	load_image();
	for (int i = 0; i < flips(); i++) {
		size_t at[FLIPS_MAX];
		uint8_t mask[FLIPS_MAX];
		uint64_t count = 1 + ckpt_sample_random(&state, FLIPS_MAX);

		for (uint64_t k = 0; k < count; k++) {
			at[k] = ckpt_sample_random(&state, image_len);
			mask[k] = (uint8_t)(1u << ckpt_sample_random(&state, 8));
			image[at[k]] ^= mask[k];
		}
		store_image(image, image_len);
		kept += !open_damaged(&wrong);
		while (count--)
			image[at[count]] ^= mask[count];
	}
	// Some flips hit nothing, some a manifest (found when it is read), some the structure.
	ck_assert_int_gt(kept, 0);
	ck_assert_int_lt(kept, flips());
	ck_assert_int_gt(wrong, 0);
	free(image);
}
END_TEST

START_TEST(special_files_in_its_place_do_no_harm)
{
	char path[PATH_MAX], target[PATH_MAX];

	make(1);
	ckpt_rows_path(dir, "data.mdb", path);
	ckpt_rows_path(dir, "elsewhere", target);
	ck_ok(rename(path, target));
	ck_ok(symlink("elsewhere", path));
	ck_ok(open_index());
	ck_assert(fresh);
	close_index();
	ck_ok(unlink(path));
	ck_ok(mkfifo(path, 0600));
	ck_ok(open_index()); // and does not hang
	ck_assert(fresh);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("index damage");
	TCase *t = tcase_create("damage");

	tcase_set_timeout(t, getenv("CKPT_TEST_FULL") ? 1200 : 120);
	tcase_add_checked_fixture(t, setup, close_index);
	tcase_add_test(t, a_page_that_is_both_free_and_used_is_found);
	tcase_add_test(t, every_damaged_page_header_is_survived);
	tcase_add_test(t, truncated_and_grown_files_are_survived);
	tcase_add_test(t, garbage_is_thrown_away_and_one_set_kept);
	tcase_add_test(t, a_damaged_lock_file_is_survived);
	tcase_add_test(t, the_index_of_another_store_is_thrown_away);
	tcase_add_test(t, an_index_of_another_format_is_thrown_away);
	tcase_add_test(t, random_bit_flips_never_crash_and_never_lie);
	tcase_add_test(t, special_files_in_its_place_do_no_harm);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
