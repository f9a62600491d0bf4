// Zips of torch.save() without some of their arrays: what is left in them, what is refused with its reason, and what fails.
// tests/interop/test_rm_torch.py has torch read what is left.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/zip.h"
#include "core/base/util.h"
#include "core/view/drop.h"

#include <stdio.h>
#include <sys/mman.h>

#define TENSOR(key)                                                                                                    \
	"ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" key                     \
	"X\3\0\0\0cpuK\2tQK\0K\2\x85K\1\x85\x89)tR"
#define A "X\1\0\0\0a"
#define X "X\1\0\0\0x"
#define BOTH "\x80\2}(" A TENSOR("0") X TENSOR("1") "u."

#define LEFT "\x80\2}(" A TENSOR("0") "u."
#define LEFT_BYTES "109"
_Static_assert(sizeof(LEFT) - 1 == 109, "of the pickle without x");

static struct ckpt_bytes file;
static struct ckpt_zip_sample zip;
static char *why;
static int fd = -1;
static volatile int stop;
static char listing[512]; // of the new file: NAME=BYTES,

static void setup(void)
{
	fd = memfd_create("new", MFD_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	stop = 0;
}

static void teardown(void)
{
	close(fd);
	free(file.data);
	file = (struct ckpt_bytes){0};
	free(why);
	why = NULL;
}

static bool drops(void *arg, const char *name)
{
	(void)arg;
	return *name == 'x';
}

static int drop(void)
{
	const struct ckpt_drop how = {.drops = drops, .stop = &stop};
	struct ckpt_source from = ckpt_bytes_source(&file);

	free(why);
	why = NULL;
	return ftruncate(fd, 0) ? -errno : ckpt_drop_torch(&how, &from, fd, &why);
}

static int add_member(void *arg, const struct ckpt_zip_member *m)
{
	const struct ckpt_source *s = arg;
	uint64_t at;

	ck_ok(ckpt_zip_data(s, m, &at));
	ck_assert_uint_eq(at % 64, 0);
	ck_assert_uint_le(at + m->bytes, s->bytes);
	snprintf(listing + strlen(listing), sizeof(listing) - strlen(listing), "%.*s=%llu,", (int)m->name_len, m->name,
		 (unsigned long long)m->bytes);
	return 0;
}

static const char *list_new(void)
{
	off_t bytes = lseek(fd, 0, SEEK_END);
	struct ckpt_source s = ckpt_source_file(fd, (uint64_t)bytes);
	struct ckpt_zip z;

	*listing = '\0';
	ck_ok(ckpt_zip_find(&s, &z));
	ck_ok(ckpt_zip_each(&s, &z, add_member, &s));
	return listing;
}

static void add(const char *name, const void *data, size_t len)
{
	ckpt_sample_zip_add(&zip, &(struct ckpt_zip_part){.name = name, .data = data, .len = len});
}

static void make(const void *pickle, size_t len)
{
	ckpt_sample_zip_begin(&zip, &file);
	add("t/data.pkl", pickle, len);
	add("t/.format_version", "1", 1);
	add("t/byteorder", "little", 6);
	add("t/data/0", "01234567", 8);
	add("t/data/1", "abcdefgh", 8);
	add("t/data/2", "??", 2);
	add("t/version", "3\n", 2);
}

#define MAKE(pickle) make(pickle, sizeof(pickle) - 1)

START_TEST(storages_of_dropped_arrays_are_gone_and_no_others)
{
	MAKE(BOTH);
	ckpt_sample_zip_end(&zip, false);
	ck_ok(drop());
	// data/2 was in no array before: nobody knows what it is for.
	ck_assert_str_eq(list_new(), "t/data.pkl=" LEFT_BYTES ",t/byteorder=6,t/data/0=8,t/data/2=2,t/version=2,");
	MAKE("\x80\2}(" A TENSOR("0") X TENSOR("0") "u.");
	ckpt_sample_zip_end(&zip, true);
	ck_ok(drop());
	ck_assert_str_eq(list_new(),
			 "t/data.pkl=" LEFT_BYTES ",t/byteorder=6,t/data/0=8,t/data/1=8,t/data/2=2,t/version=2,");
}
END_TEST

static void check_refusal(const char *words)
{
	ck_error(drop(), EBADMSG);
	ck_assert_msg(why && strstr(why, words), "%s: %s", words, why);
}

START_TEST(what_cannot_be_is_refused_with_the_reason)
{
	static const struct {
		const char *pickle;
		size_t len;
		const char *words;
	} rows[] = {
#define ROW(pickle, words) {pickle, sizeof(pickle) - 1, words}
		ROW("\x80\2}(" A "](" TENSOR("0") "e" X "](" TENSOR("1") "eu.", "x.0 is an item of a list"),
		ROW("\x80\2}(" A TENSOR("0") X "cm\nn\n)R}" A TENSOR("1") "sbu.", "x.a is an attribute"),
		ROW("\x80\2}(" A "}q\1" A TENSOR("0") "s" X "h\1u.", "x.a stands in a dictionary that has two names"),
		ROW("\x80\2}(" A A "Q" X TENSOR("0") "u.", "not what torch writes"),
		ROW("\x80\2}(" A TENSOR("0") X TENSOR("1") "u", "its pickle: it ends too early"),
		ROW("\x80\2}(" A TENSOR("0") X TENSOR("1") "K\1"
							   "0u.",
		    "two places"),
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		make(rows[i].pickle, rows[i].len);
		ckpt_sample_zip_end(&zip, false);
		check_refusal(rows[i].words);
	}
	file.len = 0;
	ckpt_bytes_text(&file, "\x80\2N.");
	check_refusal("before version 1.6");
	MAKE(BOTH);
	ckpt_sample_zip_add(&zip, &(struct ckpt_zip_part){.name = "t/code", .data = "?", .len = 1, .method = 8});
	ckpt_sample_zip_end(&zip, false);
	check_refusal("compressed");
	ckpt_sample_zip_begin(&zip, &file);
	add("t/other", "?", 1);
	ckpt_sample_zip_end(&zip, false);
	check_refusal("breaks a rule");
}
END_TEST

// Many that have the ones behind them in their bytes would make a file of any size.
START_TEST(members_in_each_other_are_refused)
{
	MAKE(BOTH);
	add("t/a", "?", 1);
	ckpt_sample_zip_add(&zip, &(struct ckpt_zip_part){.name = "t/c", .zeros = 5000});
	ckpt_sample_zip_end(&zip, false);
	ck_ok(drop());
	for (size_t i = 0; i + 4 < file.len; i++) // in the directory: the bytes of t/a are those of t/c, too
		if (!memcmp(file.data + i, "PK\1\2", 4) && !memcmp(file.data + i + 46, "t/a", 3)) {
			ckpt_put32(file.data + i + 20, 5050);
			ckpt_put32(file.data + i + 24, 5050);
		}
	check_refusal("breaks a rule");
}
END_TEST

START_TEST(a_stop_a_failed_read_and_short_memory_are_told)
{
	uint64_t n;

	MAKE(BOTH);
	ckpt_sample_zip_end(&zip, false);
	stop = 1;
	ck_error(drop(), EINTR);
	stop = 0;
	for (n = 1;; n++) {
		int rc;

		file.reads = 0;
		file.fails_at = n;
		rc = drop();
		if (file.reads < n) {
			ck_ok(rc);
			break;
		}
		ck_error(rc, EIO);
	}
	ck_assert_uint_gt(n, 10);
	file.fails_at = 0;
	for (n = 1;; n++) {
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = drop();
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			break;
		}
		ck_error(rc, ENOMEM);
	}
	ck_assert_uint_gt(n, 10);
	ck_assert_str_eq(list_new(), "t/data.pkl=" LEFT_BYTES ",t/byteorder=6,t/data/0=8,t/data/2=2,t/version=2,");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("drop torch");
	TCase *t = tcase_create("drop torch");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, storages_of_dropped_arrays_are_gone_and_no_others);
	tcase_add_test(t, what_cannot_be_is_refused_with_the_reason);
	tcase_add_test(t, members_in_each_other_are_refused);
	tcase_add_test(t, a_stop_a_failed_read_and_short_memory_are_told);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
