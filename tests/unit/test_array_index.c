// The document of all arrays, where one of them has very many pieces: memory and time are about its text.
#include "core/view/array_index.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"
#include "core/view/array_row.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define PIECES 500000
#define PART_BYTES (1u << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX_MIB 2048 // a sanitizer's own memory is many times ours
#else
#define MEMORY_MAX_MIB 256
#endif

static struct ckpt_catalog *c;
static struct ckpt_catalog_reading reading;

static void setup(void)
{
	ck_ok(ckpt_catalog_new(&c));
	reading = (struct ckpt_catalog_reading){.catalog = c, .path = "f", .base = "f"};
}

static void teardown(void)
{
	ckpt_catalog_free(c);
}

static void add(const char *name, uint64_t pieces)
{
	const struct ckpt_catalog_entry e = {.tree = "t",
					     .name = name,
					     .name_len = strlen(name),
					     .format = "test",
					     .dtype = CKPT_DTYPE_F32,
					     .ndim = 1,
					     .shape = &pieces};

	ck_ok(ckpt_catalog_add(&reading, &e));
	for (uint64_t i = 0; i < pieces; i++) {
		const uint64_t extent = 1;
		const struct ckpt_piece p = {
			.file = "chunks\xff", .offset = i * 4, .bytes = 4, .start = &i, .extent = &extent};

		ck_ok(ckpt_catalog_add_piece(&reading, &p));
	}
}

static void read_parts(void)
{
	CLEANUP_FREE char *part = malloc(PART_BYTES);
	struct timespec begin, end;
	struct ckpt_array_index *x;
	uint64_t at = 0;
	ssize_t n;
	char last = 0;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	ck_ok(ckpt_array_index_new(c, &x));
	while ((n = ckpt_array_index_read(x, part, PART_BYTES, at)) > 0) {
		at += (uint64_t)n;
		last = part[n - 1];
	}
	ck_assert_uint_eq(at, ckpt_array_index_bytes(x));
	ck_assert_uint_gt(at, UINT64_C(60) * PIECES);
	ck_assert_int_eq(last, '\n');
	ckpt_array_index_free(x);
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20); // of a sanitizer on a busy machine
}

START_TEST(many_pieces_cost_as_much_as_their_text)
{
	struct rusage usage;
	int status;
	pid_t child = fork();

	if (!child) {
		add("small", 1);
		add("large", PIECES);
		add("behind", 1);
		read_parts();
		getrusage(RUSAGE_SELF, &usage);
		_exit(usage.ru_maxrss >> 10 < MEMORY_MAX_MIB ? 0 : 1);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

// A row as text, and as a value, and its head are the same array.
START_TEST(a_row_has_every_field)
{
	const uint64_t shape[] = {2, 3}, start[] = {1, 0}, extent[] = {1, 3};
	const struct ckpt_catalog_entry e = {.tree = "t",
					     .name = "\"\xff\n",
					     .name_len = 3,
					     .format = "test",
					     .why = "of \"no\" use",
					     .dtype = CKPT_DTYPE_F32,
					     .ndim = 2,
					     .shape = shape};
	const struct ckpt_piece plain = {.file = "a", .offset = 7, .bytes = 12, .start = start, .extent = extent};
	struct ckpt_piece coded = plain;
	struct ckpt_row_text t = {0};
	json_t *row, *head;

	coded.codecs[0] = CKPT_PIECE_CRC32C;
	coded.codecs[1] = CKPT_PIECE_ZSTD;
	ck_ok(ckpt_catalog_add(&reading, &e));
	ck_ok(ckpt_catalog_add_piece(&reading, &plain));
	ck_ok(ckpt_catalog_add_piece(&reading, &coded));
	ck_ok(ckpt_array_row_text(c, 0, &t));
	ck_ok(ckpt_row_text_add(&t, "", 1));
	ck_assert_str_eq(t.at,
			 "{\"name\": \"\\\"\xef\xbf\xbd\\n\", \"tree\": \"t\", \"dtype\": \"float32\", "
			 "\"shape\": [2, 3], \"bytes\": 24, \"format\": \"test\", \"pieces\": ["
			 "{\"file\": \"a\", \"offset\": 7, \"bytes\": 12, \"start\": [1, 0], \"extent\": [1, 3]}, "
			 "{\"file\": \"a\", \"offset\": 7, \"bytes\": 12, \"start\": [1, 0], \"extent\": [1, 3], "
			 "\"codecs\": [\"crc32c\", \"zstd\"]}], \"why\": \"of \\\"no\\\" use\", \"digest\": null}");
	ckpt_row_text_done(&t);
	row = ckpt_array_row(c, 0);
	head = ckpt_array_head(c, 0);
	ck_assert_int_eq(json_integer_value(json_object_get(head, "pieces")), 2);
	ck_assert_uint_eq(json_array_size(json_object_get(row, "pieces")), 2);
	json_object_del(row, "pieces");
	json_object_del(head, "pieces");
	ck_assert(json_equal(row, head));
	json_decref(row);
	json_decref(head);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array_index");
	TCase *t = tcase_create("array_index");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, many_pieces_cost_as_much_as_their_text);
	tcase_add_test(t, a_row_has_every_field);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
