// What is stored of files in packs: each chunk once, of hard links one, of raw files their bytes.
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/stored.h"
#include "core/cold/stored_here.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

static struct ckpt_store *store; // of which this knows the directory of sessions alone
static struct ckpt_step *step;
static struct ckpt_manifest *m;
static char dir[PATH_MAX];

static uint32_t add_file(struct ckpt_manifest_writer *w, const char *name, uint64_t ino, uint64_t bytes,
			 enum ckpt_content content)
{
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE,
			       .content = content,
			       .name = name,
			       .mode = 0644,
			       .nlink = 1,
			       .ino = ino,
			       .bytes = bytes};
	uint32_t handle;

	if (content != CKPT_CONTENT_NONE)
		ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	return handle;
}

// pack 0: none.
static void add_chunk(struct ckpt_manifest_writer *w, char id, uint32_t bytes, uint32_t stored, char pack, uint64_t at)
{
	struct ckpt_chunk chunk = {.bytes = bytes};

	memset(chunk.id, id, sizeof(chunk.id));
	if (pack) {
		struct ckpt_pack p = {.bytes = 100000};

		memset(p.id, pack, sizeof(p.id));
		ck_ok(ckpt_manifest_writer_pack(w, &p, &chunk.pack));
		chunk.offset = at;
		chunk.how.codec = stored < bytes ? CKPT_CODEC_ZSTD : CKPT_CODEC_NONE;
		chunk.how.bytes = stored;
	}
	ck_ok(ckpt_manifest_writer_chunk(w, &chunk));
}

static void put_raw(const char *name, off_t bytes)
{
	static const struct timespec times[2];
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", CKPT_SAMPLE_SESSION, name);
	fd = openat(store->sessions_fd, path, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_assert_int_ge(fd, 0);
	ck_ok(ftruncate(fd, bytes));
	ck_ok(futimens(fd, times));
	close(fd);
}

static void open_store(void)
{
	store = ckpt_calloc(1, sizeof(*store));
	step = ckpt_calloc(1, sizeof(*step));
	step->store = store;
	ckpt_temp_dir(dir);
	store->sessions_fd = open(dir, O_RDONLY | O_DIRECTORY);
	ck_ok(mkdirat(store->sessions_fd, CKPT_SAMPLE_SESSION, 0755));
	put_raw("warm", 10);
	put_raw("again", 299); // of another size: it is none
}

// cold and its link: 100 bytes in 30 and 50 in 50; again: the first of them twice, and the same bytes in another pack; warm: in
// a pack, and there is its raw file; raw: sealed, and not.
static void setup(void)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	void *data;
	size_t len;

	open_store();
	ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "cold", 101, 150, CKPT_CONTENT_CHUNKS), CKPT_SAMPLE_SHA256));
	add_chunk(w, 'a', 100, 30, 'P', 32);
	add_chunk(w, 'b', 50, 50, 'P', 62);
	add_file(w, "link", 101, 150, CKPT_CONTENT_CHUNKS);
	ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "again", 102, 300, CKPT_CONTENT_CHUNKS), CKPT_SAMPLE_SHA256));
	add_chunk(w, 'a', 100, 30, 'P', 32);
	add_chunk(w, 'a', 100, 30, 'P', 32);
	add_chunk(w, 'a', 100, 20, 'Q', 32);
	ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "warm", 103, 10, CKPT_CONTENT_CHUNKS), CKPT_SAMPLE_SHA256));
	add_chunk(w, 'c', 10, 9, 'Q', 52);
	ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "raw", 104, 1000, CKPT_CONTENT_RAW), CKPT_SAMPLE_SHA256));
	add_chunk(w, 'd', 1000, 0, 0, 0);
	add_file(w, "unsealed", 105, 5000, CKPT_CONTENT_RAW);
	add_file(w, "empty", 106, 0, CKPT_CONTENT_NONE);
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(data, len, &m));
}

static void teardown(void)
{
	ckpt_manifest_unref(m);
	close(store->sessions_fd);
	ckpt_temp_empty(dir, true);
	free(store);
	free(step);
}

static uint64_t of_file(const char *path)
{
	struct ckpt_entry e;
	uint64_t bytes;

	ck_ok(ckpt_manifest_lookup(m, path, &e.index));
	ckpt_manifest_entry(m, e.index, &e);
	ck_ok(ckpt_stored_file(step, m, &e, &bytes));
	return bytes;
}

START_TEST(each_chunk_counts_once)
{
	struct ckpt_stored s = {0};

	for (int i = 0; i < 2; i++) {
		ck_ok(ckpt_stored_add(&s, m));
		ck_assert_uint_eq(s.in_bytes, 100 + 50 + 100 + 10);
		ck_assert_uint_eq(s.out_bytes, 30 + 50 + 20 + 9);
		ck_assert_uint_eq(s.again_bytes, 200 + (uint64_t)i * (150 + 300 + 10));
		ck_assert_uint_eq(s.codecs[CKPT_CODEC_NONE].out_bytes, 50);
		ck_assert_uint_eq(s.codecs[CKPT_CODEC_NONE].in_bytes, 50);
		ck_assert_uint_eq(s.codecs[CKPT_CODEC_ZSTD].out_bytes, 59);
		ck_assert_uint_eq(s.codecs[CKPT_CODEC_ZSTD].in_bytes, 210);
	}
	ckpt_stored_done(&s);
}
END_TEST

START_TEST(a_version_is_what_is_raw_and_the_chunks_of_what_is_not)
{
	uint64_t raw, packed;

	ck_assert_uint_eq(ckpt_stored_raw(step, m), 10 + 1000 + 5000);
	ck_ok(ckpt_stored_version(step, m, &raw, &packed));
	ck_assert_uint_eq(raw, 6010);
	ck_assert_uint_eq(packed, 30 + 50 + 20);
}
END_TEST

START_TEST(a_file_is_its_chunks_or_its_bytes)
{
	ck_assert_uint_eq(of_file("cold"), 80);
	ck_assert_uint_eq(of_file("link"), 80);
	ck_assert_uint_eq(of_file("again"), 50);
	ck_assert_uint_eq(of_file("warm"), 10);
	ck_assert_uint_eq(of_file("raw"), 1000);
	ck_assert_uint_eq(of_file("unsealed"), 5000);
	ck_assert_uint_eq(of_file("empty"), 0);
}
END_TEST

// The table grows, and finds all of them again.
START_TEST(many_chunks_count_once_each)
{
	enum { COUNT = 5000 };
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_stored s = {0};
	struct ckpt_manifest *many;
	void *data;
	size_t len;

	ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "f", 101, COUNT * 2, CKPT_CONTENT_CHUNKS), CKPT_SAMPLE_SHA256));
	for (uint32_t i = 0; i < COUNT * 2; i++)
		add_chunk(w, (char)i, 1, 1, i % 2 ? 'P' : 'Q', 32 + i % COUNT);
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(data, len, &many));
	ck_ok(ckpt_stored_add(&s, many));
	ck_assert_uint_eq(s.out_bytes, COUNT);
	ck_assert_uint_eq(s.again_bytes, COUNT);
	ckpt_stored_done(&s);
	ckpt_manifest_unref(many);
}
END_TEST

// Weights of 100 bytes in 30, beside a master of 200 in 150, which a file has, or had.
static void check_weights(bool master)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_chunk weights = {.bytes = 100,
				     .id = "w",
				     .offset = 32,
				     .how = {CKPT_CODEC_ROUND, 2, 30},
				     .base_count = 1},
			  base = {.bytes = 200, .id = "m", .offset = 62, .how = {CKPT_CODEC_PLANES, 4, 150}};
	const struct ckpt_pack p = {.bytes = 1000};
	struct ckpt_stored s = {0};
	struct ckpt_manifest *both;
	struct ckpt_entry e;
	uint64_t raw, bytes;
	void *data;
	size_t len;

	ck_ok(ckpt_manifest_writer_pack(w, &p, &weights.pack));
	base.pack = weights.pack;
	ck_ok(ckpt_manifest_writer_bases(w, &base, 1, &weights.base));
	ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "a", 101, 100, CKPT_CONTENT_CHUNKS), CKPT_SAMPLE_SHA256));
	ck_ok(ckpt_manifest_writer_chunk(w, &weights));
	if (master) {
		ck_ok(ckpt_manifest_writer_seal(w, add_file(w, "m", 102, 200, CKPT_CONTENT_CHUNKS),
						CKPT_SAMPLE_SHA256));
		ck_ok(ckpt_manifest_writer_chunk(w, &base));
	}
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(data, len, &both));
	ck_ok(ckpt_stored_add(&s, both));
	ck_assert_uint_eq(s.in_bytes, 300);
	ck_assert_uint_eq(s.out_bytes, 180);
	ck_assert_uint_eq(s.again_bytes, 0);
	ck_assert_uint_eq(s.codecs[CKPT_CODEC_ROUND].out_bytes, 30);
	ck_ok(ckpt_stored_version(step, both, &raw, &bytes));
	ck_assert(!raw && bytes == 180);
	ckpt_manifest_entry(both, 1, &e);
	ck_ok(ckpt_stored_file(step, both, &e, &bytes));
	ck_assert_uint_eq(bytes, 30);
	ckpt_stored_done(&s);
	ckpt_manifest_unref(both);
}

START_TEST(a_master_counts_once_whether_a_file_has_it_or_not)
{
	check_weights(true);
	check_weights(false);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stored");
	TCase *t = tcase_create("stored");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, each_chunk_counts_once);
	tcase_add_test(t, a_version_is_what_is_raw_and_the_chunks_of_what_is_not);
	tcase_add_test(t, a_file_is_its_chunks_or_its_bytes);
	tcase_add_test(t, many_chunks_count_once_each);
	tcase_add_test(t, a_master_counts_once_whether_a_file_has_it_or_not);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
