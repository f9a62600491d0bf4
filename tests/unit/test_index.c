#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/hash.h"
#include "core/index.h"
#include "core/index_check.h"
#include "core/util.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define OTHER_STORE "6f0c3f6e-8f7b-4b43-9a52-0b1c5a7f6d11"
#define SMALL_MAP (UINT64_C(1) << 20)

enum { STEPS = 40, MANIFEST_BYTES = 3000, PAGE = 4096, MANY_STEPS = 1000 };

static char dir[PATH_MAX];
static struct ckpt_index *ix;
static bool fresh;

static void setup(void)
{
	char parent[PATH_MAX];

	ckpt_temp_dir(parent);
	ck_assert_int_lt(snprintf(dir, sizeof(dir), "%.*s/index", PATH_MAX - 10, parent), (int)sizeof(dir));
}

static void teardown(void)
{
	ckpt_index_close(ix);
	ix = NULL;
}

static int open_index(void)
{
	return ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh);
}

static void close_index(void)
{
	ckpt_index_close(ix);
	ix = NULL;
}

static void file_path(const char *name, char path[PATH_MAX])
{
	ck_assert_int_lt(snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 40, dir, name), PATH_MAX);
}

// ---- Rows whose content follows from their number

static void row_of(uint32_t i, char key[CKPT_STEP_KEY_MAX], struct ckpt_summary *s, uint8_t manifest[MANIFEST_BYTES])
{
	char name[32];

	snprintf(name, sizeof(name), "step_%05u", i);
	ckpt_sample_summary(s, name, 1 + i % 3);
	memset(s->folder_id, 0, sizeof(s->folder_id));
	s->sequence = i;
	for (uint32_t k = 0; k < MANIFEST_BYTES; k++)
		manifest[k] = (uint8_t)(k * 31 + i);
	ckpt_put32(manifest, i);
	s->manifest_bytes = MANIFEST_BYTES;
	ckpt_sha256(manifest, MANIFEST_BYTES, s->manifest_sha256);
	ck_ok(ckpt_name_key(s->folder_id, s->name, key));
}

// Manifests of 100 bytes to MANIFEST_BYTES: in the leaf and in pages of their own.
static size_t manifest_len(uint32_t i)
{
	return i % 2 ? 100 : MANIFEST_BYTES;
}

static int put(struct ckpt_index *to, uint32_t i)
{
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary s;
	uint8_t manifest[MANIFEST_BYTES];

	row_of(i, key, &s, manifest);
	return ckpt_index_put(to, key, &s, manifest, manifest_len(i));
}

// 0: the row is there and right; -ENOENT; -ENODATA, it is there without its manifest; -EBADMSG. Anything else ends the
// test.
static int check_row(struct ckpt_index *from, uint32_t i)
{
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary s, found;
	uint8_t manifest[MANIFEST_BYTES];
	void *data;
	size_t len;
	int r;

	row_of(i, key, &s, manifest);
	r = ckpt_index_get(from, key, s.version, &found);
	if (r && r != -ENOENT && r != -EBADMSG)
		ck_abort_msg("version %u: %d", i, r);
	if (!r && memcmp(&s, &found, sizeof(s)))
		ck_abort_msg("row %u is wrong", i);
	if (r)
		return r;
	r = ckpt_index_manifest(from, s.manifest_sha256, &data, &len);
	if (r == -ENOENT)
		return -ENODATA;
	if (!r) {
		if (len != manifest_len(i) || memcmp(data, manifest, len))
			ck_abort_msg("manifest %u is wrong", i);
		free(data);
	}
	if (r && r != -EBADMSG)
		ck_abort_msg("row %u: %d", i, r);
	return r;
}

static void make_index(uint32_t steps)
{
	ck_ok(open_index());
	ck_assert(fresh);
	for (uint32_t i = 0; i < steps; i++)
		ck_ok(put(ix, i));
}

static int count_row(void *arg, const char *key, const struct ckpt_summary *summary)
{
	ck_assert_str_eq(key, summary->name); // names here need no encoding
	return ++*(int *)arg == -1;
}

static int count_rows(struct ckpt_index *from)
{
	int count = 0, r = ckpt_index_each(from, count_row, &count);

	return r ? r : count;
}

// ---- What it is for

START_TEST(what_is_put_is_found_after_reopening)
{
	struct ckpt_index_stat stat;

	make_index(STEPS);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < STEPS; i++)
			ck_ok(check_row(ix, i));
		ck_error(check_row(ix, STEPS), ENOENT);
		ck_assert_int_eq(count_rows(ix), STEPS);
		ck_ok(ckpt_index_stat(ix, &stat));
		ck_assert(stat.versions == STEPS && stat.manifests == STEPS && stat.bytes_used <= stat.bytes_file);
		close_index();
		ck_ok(open_index());
		ck_assert(!fresh);
	}
}
END_TEST

START_TEST(versions_of_a_step_stand_side_by_side)
{
	struct ckpt_summary s;

	make_index(0);
	for (uint32_t version = 1; version < 20; version++) {
		ckpt_sample_summary(&s, "1000", version);
		ck_ok(ckpt_index_put(ix, "1000", &s, NULL, 0));
	}
	for (uint32_t version = 1; version < 20; version++) {
		ck_ok(ckpt_index_get(ix, "1000", version, &s));
		ck_assert_uint_eq(s.version, version);
	}
	ck_ok(ckpt_index_remove(ix, "1000", 3));
	ck_error(ckpt_index_remove(ix, "1000", 3), ENOENT);
	ck_error(ckpt_index_get(ix, "1000", 3, &s), ENOENT);
	ck_error(ckpt_index_get(ix, "100", 1, &s), ENOENT);
	ck_assert_int_eq(count_rows(ix), 18);
}
END_TEST

START_TEST(remove_takes_the_manifest_along)
{
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary s;
	uint8_t manifest[MANIFEST_BYTES];
	void *data;
	size_t len;

	make_index(2);
	row_of(0, key, &s, manifest);
	ck_ok(ckpt_index_remove(ix, key, s.version));
	ck_error(ckpt_index_manifest(ix, s.manifest_sha256, &data, &len), ENOENT);
	ck_ok(ckpt_index_put_manifest(ix, s.manifest_sha256, manifest, MANIFEST_BYTES));
	ck_ok(ckpt_index_manifest(ix, s.manifest_sha256, &data, &len));
	ck_assert(len == MANIFEST_BYTES && !memcmp(data, manifest, len));
	free(data);
	ck_ok(check_row(ix, 1));
}
END_TEST

static int stop_at_three(void *arg, const char *key, const struct ckpt_summary *summary)
{
	(void)key;
	(void)summary;
	return ++*(int *)arg == 3 ? -ECANCELED : 0;
}

static int remove_each(void *arg, const char *key, const struct ckpt_summary *summary)
{
	(void)arg;
	return ckpt_index_remove(ix, key, summary->version); // a write, inside of the callback
}

START_TEST(each_goes_over_many_and_stops_when_told)
{
	enum { MANY = 2500 }; // more than two batches
	CLEANUP_FREE struct ckpt_summary *summaries = ckpt_calloc(MANY, sizeof(*summaries));
	CLEANUP_FREE const char **keys = ckpt_calloc(MANY, sizeof(*keys));
	int count = 0;

	make_index(0);
	for (int i = 0; i < MANY; i++) {
		char name[32];

		snprintf(name, sizeof(name), "step_%05d", i);
		ckpt_sample_summary(&summaries[i], name, 1);
		keys[i] = summaries[i].name;
	}
	ck_ok(ckpt_index_put_many(ix, keys, summaries, MANY));
	ck_assert_int_eq(count_rows(ix), MANY);
	ck_error(ckpt_index_each(ix, stop_at_three, &count), ECANCELED);
	ck_assert_int_eq(count, 3);
	ck_ok(ckpt_index_each(ix, remove_each, NULL));
	ck_assert_int_eq(count_rows(ix), 0);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	char key[CKPT_STEP_KEY_MAX + 1];
	struct ckpt_summary s;

	make_index(0);
	ckpt_sample_summary(&s, "x", 1);
	ck_error(ckpt_index_put(ix, "", &s, NULL, 0), EINVAL);
	memset(key, 'k', sizeof(key));
	key[CKPT_STEP_KEY_MAX] = '\0';
	ck_error(ckpt_index_put(ix, key, &s, NULL, 0), EINVAL);
	key[CKPT_STEP_KEY_MAX - 1] = '\0';
	ck_ok(ckpt_index_put(ix, key, &s, NULL, 0));
	ck_ok(ckpt_index_get(ix, key, 1, &s));
	s.version = 0;
	ck_error(ckpt_index_put(ix, "x", &s, NULL, 0), EINVAL);
}
END_TEST

START_TEST(reset_forgets_everything)
{
	make_index(STEPS);
	ck_ok(ckpt_index_reset(ix));
	ck_assert_int_eq(count_rows(ix), 0);
	ck_error(check_row(ix, 0), ENOENT);
	ck_ok(put(ix, 0));
	ck_ok(check_row(ix, 0));
	close_index();
	ck_ok(open_index());
	ck_assert(!fresh);
	ck_ok(check_row(ix, 0));
}
END_TEST

START_TEST(a_directory_opens_once_in_a_process)
{
	struct ckpt_index *second;
	bool second_fresh;

	make_index(1);
	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &second, &second_fresh), EBUSY);
	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &second, &second_fresh), EBUSY);
	ck_ok(check_row(ix, 0));
	close_index();
	ck_ok(open_index());
}
END_TEST

START_TEST(readonly_reads_and_never_writes)
{
	struct ckpt_summary s;
	char path[PATH_MAX];

	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh), ENOENT);
	make_index(STEPS);
	close_index();
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh));
	ck_assert(!fresh);
	ck_ok(check_row(ix, 1));
	ckpt_sample_summary(&s, "x", 1);
	ck_error(ckpt_index_put(ix, "x", &s, NULL, 0), EROFS);
	ck_error(ckpt_index_remove(ix, "x", 1), EROFS);
	ck_error(ckpt_index_reset(ix), EROFS);
	close_index();
	file_path("data.mdb", path);
	ck_ok(truncate(path, PAGE));
	ck_error(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh), EBADMSG);
	file_path("index.bad", path);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(the_map_grows_when_full)
{
	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	for (uint32_t i = 0; i < 2000; i++)
		ck_ok(put(ix, i));
	for (uint32_t i = 0; i < 2000; i++)
		ck_ok(check_row(ix, i));
	close_index();
	// Opened smaller than it has become.
	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	ck_assert(!fresh);
	ck_assert_int_eq(count_rows(ix), 2000);
}
END_TEST

START_TEST(a_value_larger_than_the_map_fits)
{
	CLEANUP_FREE uint8_t *big = ckpt_calloc(1, 24 << 20);
	const uint8_t sha256[32] = {1};
	void *data;
	size_t len;

	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	ck_ok(ckpt_index_put_manifest(ix, sha256, big, 24 << 20));
	ck_ok(ckpt_index_manifest(ix, sha256, &data, &len));
	ck_assert(len == 24 << 20 && !memcmp(data, big, len));
	free(data);
}
END_TEST

// ---- Threads and processes

enum { THREADS = 4, ROUNDS = 200 };
static atomic_int stop_readers, rows_read;

static void *writer_thread(void *arg)
{
	uint32_t base = *(const uint32_t *)arg * ROUNDS;

	for (uint32_t i = 0; i < ROUNDS; i++)
		if (put(ix, base + i) || check_row(ix, base + i))
			return arg;
	return NULL;
}

static void *reader_thread(void *arg)
{
	uint64_t state = 1;

	while (!atomic_load(&stop_readers)) {
		int r = check_row(ix, (uint32_t)ckpt_sample_random(&state, THREADS * ROUNDS));

		if (r && r != -ENOENT)
			return arg;
		atomic_fetch_add(&rows_read, !r);
		if (!(state & 63) && count_rows(ix) < 0)
			return arg;
	}
	return NULL;
}

START_TEST(readers_and_writers_go_together_while_the_map_grows)
{
	pthread_t writers[THREADS], readers[THREADS];
	uint32_t numbers[THREADS];
	void *result;

	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	for (uint32_t i = 0; i < THREADS; i++) {
		numbers[i] = i;
		ck_ok(-pthread_create(&readers[i], NULL, reader_thread, &numbers[i]));
		ck_ok(-pthread_create(&writers[i], NULL, writer_thread, &numbers[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(writers[i], &result);
		ck_assert_ptr_null(result);
	}
	atomic_store(&stop_readers, 1);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(readers[i], &result);
		ck_assert_ptr_null(result);
	}
	ck_assert_int_gt(atomic_load(&rows_read), 0);
	ck_assert_int_eq(count_rows(ix), THREADS * ROUNDS);
}
END_TEST

// A child process that runs fn and ends with what it returns.
static pid_t start(int (*fn)(void))
{
	pid_t pid = fork();

	if (!pid)
		_exit(fn() ? 1 : 0);
	ck_assert_int_gt(pid, 0);
	return pid;
}

static void join(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", status);
}

// Opens and reads again and again beside the writer: the check at each open meets a file in change.
static int read_beside(void)
{
	for (int i = 0; i < 50; i++) {
		struct ckpt_index *mine;
		bool mine_fresh;
		int r = ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &mine, &mine_fresh);

		if (r)
			return r;
		for (uint32_t k = 0; k < 3; k++)
			if (check_row(mine, k))
				return -EBADMSG;
		r = count_rows(mine);
		if (r < 3)
			return -EBADMSG;
		ckpt_index_close(mine);
	}
	return 0;
}

static int write_beside(void)
{
	int r;

	ix = NULL; // the parent's is not for us
	r = ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh);

	if (r || fresh)
		return -EBADMSG;
	for (uint32_t i = 3; i < 600; i++) {
		r = put(ix, i);
		if (r)
			return r;
	}
	close_index();
	return 0;
}

START_TEST(two_processes_share_it)
{
	pid_t writer, readers[2];

	make_index(3);
	close_index();
	writer = start(write_beside);
	readers[0] = start(read_beside);
	readers[1] = start(read_beside);
	join(readers[0]);
	join(readers[1]);
	join(writer);
	ck_ok(open_index());
	ck_assert_int_eq(count_rows(ix), 600);
}
END_TEST

START_TEST(a_grown_map_is_taken_over_from_another_process)
{
	make_index(3);
	close_index();
	ck_ok(ckpt_index_open_sized(dir, CKPT_SAMPLE_STORE, false, SMALL_MAP, &ix, &fresh));
	join(start(write_beside));
	ck_assert_int_eq(count_rows(ix), 600);
	ck_ok(put(ix, 700));
	ck_ok(check_row(ix, 700));
}
END_TEST

// ---- Damage

static uint8_t *image;
static size_t image_len;

static void load_image(void)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	file_path("data.mdb", path);
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

	file_path("data.mdb", path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

// Opens what is there: it is thrown away, or every row is right, missing by a lost last transaction, or -EBADMSG. (The
// key of a manifest may change unseen into another hash: that is a miss, filled from the store.)
static bool open_damaged(int *ret_wrong)
{
	int missing = 0, bad = 0, rows;

	ck_ok(open_index());
	if (!fresh) {
		for (uint32_t i = 0; i < STEPS; i++) {
			int r = check_row(ix, i);

			missing += r == -ENOENT;
			bad += r == -EBADMSG;
		}
		rows = count_rows(ix);
		ck_assert_msg(rows == -EBADMSG || rows >= STEPS - 1, "%d rows", rows);
		ck_assert_int_le(missing, 1);
	}
	// Whatever it was, it works, or it says so and works after a reset.
	if (put(ix, STEPS) || check_row(ix, STEPS)) {
		ck_ok(ckpt_index_reset(ix));
		ck_ok(put(ix, STEPS));
		ck_ok(check_row(ix, STEPS));
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

	make_index(STEPS);
	close_index();
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

	make_index(STEPS);
	close_index();
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

	make_index(STEPS);
	close_index();
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

	make_index(STEPS);
	close_index();
	for (size_t i = 0; i < 10 * PAGE; i++)
		garbage[i] = (uint8_t)ckpt_sample_random(&state, 256);
	for (size_t pages = 1; pages <= 10; pages++) {
		store_image(garbage, pages * PAGE);
		ck_ok(open_index());
		ck_assert(fresh);
		close_index();
		file_path("index.bad", path);
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

	make_index(STEPS);
	close_index();
	file_path("lock.mdb", path);
	fd = open(path, O_WRONLY | O_TRUNC);
	ck_assert(fd >= 0 && write(fd, "garbage", 7) == 7);
	close(fd);
	ck_ok(open_index());
	ck_assert(!fresh);
	ck_ok(check_row(ix, 0));
}
END_TEST

START_TEST(the_index_of_another_store_is_thrown_away)
{
	make_index(STEPS);
	close_index();
	ck_error(ckpt_index_open(dir, OTHER_STORE, true, &ix, &fresh), EBADMSG);
	ck_ok(ckpt_index_open(dir, OTHER_STORE, false, &ix, &fresh));
	ck_assert(fresh);
	ck_assert_int_eq(count_rows(ix), 0);
}
END_TEST

START_TEST(an_index_of_another_format_is_thrown_away)
{
	uint8_t *at;

	make_index(1);
	close_index();
	load_image();
	// All copies of the value of "format": checksum, then the number. Without a right checksum it is damage, which is
	// treated alike.
	for (uint8_t *from = image; (at = memmem(from, image_len - (size_t)(from - image), "sformat", 7));
	     from = at + 7)
		at[7 + 8] = 2;
	store_image(image, image_len);
	ck_ok(open_index());
	ck_assert(fresh);
	free(image);
}
END_TEST

static int flips(void)
{
	if (getenv("CKPT_TEST_FULL"))
		return 40000;
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

	make_index(STEPS);
	close_index();
	load_image();
	for (int i = 0; i < flips(); i++) {
		size_t at[4];
		uint8_t mask[4];
		uint64_t count = 1 + ckpt_sample_random(&state, 4);

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

	make_index(1);
	close_index();
	file_path("data.mdb", path);
	file_path("elsewhere", target);
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

// ---- Speed

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

START_TEST(a_thousand_steps_open_fast)
{
	enum { BYTES = 100000 }; // the manifest of 1,000 files
	CLEANUP_FREE uint8_t *manifest = ckpt_calloc(1, BYTES);
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary s;
	uint8_t small[MANIFEST_BYTES];
	double begin, opened;

	make_index(0);
	for (uint32_t i = 0; i < MANY_STEPS; i++) {
		row_of(i, key, &s, small);
		ck_ok(ckpt_index_put(ix, key, &s, manifest, BYTES));
	}
	close_index();
	begin = now_ms();
	ck_ok(open_index());
	opened = now_ms();
	ck_assert(!fresh);
	ck_assert_int_eq(count_rows(ix), MANY_STEPS);
	printf("%d steps: opened and checked in %.1f ms, listed in %.1f ms\n", MANY_STEPS, opened - begin,
	       now_ms() - opened);
	ck_assert(opened - begin < 300);
}
END_TEST

static TCase *damage_case(void)
{
	TCase *t = tcase_create("damage");

	tcase_set_timeout(t, getenv("CKPT_TEST_FULL") ? 1200 : 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_page_that_is_both_free_and_used_is_found);
	tcase_add_test(t, every_damaged_page_header_is_survived);
	tcase_add_test(t, truncated_and_grown_files_are_survived);
	tcase_add_test(t, garbage_is_thrown_away_and_one_set_kept);
	tcase_add_test(t, a_damaged_lock_file_is_survived);
	tcase_add_test(t, the_index_of_another_store_is_thrown_away);
	tcase_add_test(t, an_index_of_another_format_is_thrown_away);
	tcase_add_test(t, random_bit_flips_never_crash_and_never_lie);
	tcase_add_test(t, special_files_in_its_place_do_no_harm);
	return t;
}

static Suite *suite(void)
{
	Suite *s = suite_create("index");
	TCase *t = tcase_create("index");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_is_put_is_found_after_reopening);
	tcase_add_test(t, versions_of_a_step_stand_side_by_side);
	tcase_add_test(t, remove_takes_the_manifest_along);
	tcase_add_test(t, each_goes_over_many_and_stops_when_told);
	tcase_add_test(t, bad_arguments_are_refused);
	tcase_add_test(t, reset_forgets_everything);
	tcase_add_test(t, a_directory_opens_once_in_a_process);
	tcase_add_test(t, readonly_reads_and_never_writes);
	tcase_add_test(t, the_map_grows_when_full);
	tcase_add_test(t, a_value_larger_than_the_map_fits);
	tcase_add_test(t, readers_and_writers_go_together_while_the_map_grows);
	tcase_add_test(t, two_processes_share_it);
	tcase_add_test(t, a_grown_map_is_taken_over_from_another_process);
	tcase_add_test(t, a_thousand_steps_open_fast);
	suite_add_tcase(s, t);
	suite_add_tcase(s, damage_case());
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
