// A catalog as bytes: what is read back is what was written, for each kind of array and piece; whatever is wrong is refused.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_encode.h"
#include "core/array/catalog_format.h"
#include "core/array/catalog_form.h"
#include "core/base/util.h"
#include "core/codec/codec_zstd.h"
#include "core/limits.h"

#include <stdio.h>

static struct ckpt_catalog *c, *again;
static void *bytes;
static size_t len;

static void teardown(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ckpt_catalog_free(TAKE_PTR(again));
	free(TAKE_PTR(bytes));
}

static void round_trip(void)
{
	ck_ok(ckpt_catalog_end(c));
	ck_ok(ckpt_catalog_encode(c, &bytes, &len));
	ck_ok(ckpt_catalog_decode(bytes, len, &again));
	ck_assert(ckpt_same_catalogs(c, again));
}

// --- What comes back ----------------------------------------------------------------------------------------------------

static struct ckpt_catalog_reading reading(const char *path)
{
	if (!c)
		ck_ok(ckpt_catalog_new(&c));
	return (struct ckpt_catalog_reading){.catalog = c, .path = path, .base = path};
}

static void add(struct ckpt_catalog_reading *r, const char *name, enum ckpt_dtype dtype, unsigned ndim,
		const uint64_t *shape)
{
	ck_ok(ckpt_catalog_add(r, &(struct ckpt_catalog_entry){.name = name,
							       .name_len = strlen(name),
							       .format = "zarr3",
							       .dtype = dtype,
							       .ndim = ndim,
							       .shape = shape}));
}

START_TEST(an_empty_catalog_comes_back)
{
	(void)reading("a");
	round_trip();
	ck_assert_uint_eq(ckpt_catalog_count(again), 0);
}
END_TEST

START_TEST(each_dtype_order_fill_and_shape_comes_back)
{
	struct ckpt_catalog_reading r = reading("dir/a.bin");
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	uint8_t fill[16] = "\0fill of 16 byte";

	for (unsigned i = 0; i < CKPT_ARRAY_DIMS_MAX; i++)
		shape[i] = i == 3 ? 70000 : 1 + i % 2;
	for (unsigned dtype = 0; dtype < CKPT_DTYPE_COUNT; dtype++) {
		char name[32];

		snprintf(name, sizeof(name), "a.%u\xff", dtype);
		ck_ok(ckpt_catalog_add(&r, &(struct ckpt_catalog_entry){.tree = dtype % 3 ? NULL : ".",
									.name = name,
									.name_len = strlen(name),
									.format = dtype % 2 ? "npy" : "gguf",
									.why = dtype % 5 ? NULL : "nobody reads it",
									.dtype = dtype,
									.big_endian = dtype % 2,
									.ndim = dtype % 7,
									.shape = shape,
									.fill = dtype % 4 == 1 ? fill : NULL}));
	}
	add(&r, "", CKPT_DTYPE_U8, CKPT_ARRAY_DIMS_MAX, shape);
	add(&r, "empty", CKPT_DTYPE_F32, 1, (uint64_t[]){0});
	round_trip();
	ck_assert_uint_eq(ckpt_catalog_count(again), CKPT_DTYPE_COUNT + 2);
}
END_TEST

START_TEST(each_kind_of_piece_comes_back)
{
	static const uint64_t shape[] = {6, 4}, start[] = {2, 0}, extent[] = {4, 2}, strides[] = {1, 9};
	struct ckpt_catalog_reading r = reading("dir/a.bin");
	const struct ckpt_piece pieces[] = {
		{.offset = 0, .bytes = 96},
		{.offset = 96, .bytes = 96}, // at the end of the one before
		{.offset = 96, .bytes = 96}, // the same bytes once more
		{.file = "b", .offset = 192, .bytes = 96},
		{.file = "b", .offset = UINT64_C(1) << 61, .bytes = 97},
		{.offset = 8, .bytes = 32, .start = start, .extent = extent},
		{.offset = 8, .bytes = 300, .start = start, .extent = extent, .strides = strides},
		{.offset = 8, .bytes = 300, .first = 7, .strides = strides},
		{.offset = 8, .bytes = 300, .first = UINT64_MAX, .codecs = {CKPT_PIECE_ZSTD, CKPT_PIECE_CRC32C}},
		{.bytes = 3, .data = (const uint8_t *)"\0\1", .codecs = {CKPT_PIECE_BLOSC}},
		{.bytes = 96,
		 .data = (const uint8_t *)"0123456789012345678901234567890123456789012345678901234567890123456789012345"
					  "678901234567890123456789"},
	};

	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		add(&r, (char[]){(char)('a' + i), '\0'}, CKPT_DTYPE_F32, 2, shape);
		ck_ok(ckpt_catalog_add_piece(&r, &pieces[i]));
		if (i % 2)
			ck_ok(ckpt_catalog_add_piece(&r, &pieces[0]));
	}
	for (unsigned codec = 1; codec < CKPT_PIECE_CODECS; codec++) {
		struct ckpt_piece p = {.bytes = 10, .codecs = {CKPT_PIECE_GZIP, (uint8_t)codec, CKPT_PIECE_TORCH}};

		add(&r, ckpt_piece_codec_name(codec), CKPT_DTYPE_F16, 2, shape);
		ck_ok(ckpt_catalog_add_piece(&r, &p));
	}
	add(&r, "flat", CKPT_DTYPE_F32, 2, shape);
	ck_ok(ckpt_catalog_add_flat(&r, &(struct ckpt_piece){.offset = 4}, 3, 17));
	add(&r, "scalar", CKPT_DTYPE_F64, 0, NULL);
	ck_ok(ckpt_catalog_add_piece(&r, &(struct ckpt_piece){.bytes = 8}));
	round_trip();
}
END_TEST

START_TEST(faults_and_names_that_repeat_come_back)
{
	struct ckpt_catalog_reading r = reading("a");

	add(&r, "twice", CKPT_DTYPE_I8, 1, (uint64_t[]){1});
	add(&r, "twice", CKPT_DTYPE_I8, 1, (uint64_t[]){1});
	ck_ok(ckpt_catalog_tell(&r, "field", "%0300d", 1));
	ck_ok(ckpt_catalog_tell(&r, "f", "\xc3\xa9"));
	round_trip();
	ck_assert_uint_eq(ckpt_catalog_faults(again), 2);
}
END_TEST

START_TEST(ten_thousand_arrays_are_a_few_bytes_each)
{
	struct ckpt_catalog_reading r = reading("model.safetensors");

	for (unsigned i = 0; i < 10000; i++) {
		char name[64];

		snprintf(name, sizeof(name), "model.layers.%u.mlp.%s.weight", i / 4, i % 2 ? "up_proj" : "down_proj");
		add(&r, name, CKPT_DTYPE_BF16, 2, (uint64_t[]){4096, 11008});
		ck_ok(ckpt_catalog_add_piece(
			&r, &(struct ckpt_piece){.offset = UINT64_C(90177536) * i, .bytes = UINT64_C(90177536)}));
	}
	round_trip();
	ck_assert_uint_lt(len, 200000);
}
END_TEST

START_TEST(digests_come_back_for_the_arrays_that_have_one)
{
	struct ckpt_catalog_reading r = reading("a.zarr");
	struct ckpt_catalog_array a;
	uint8_t digest[CKPT_ARRAY_DIGEST_LEN] = {1, 2, 3};

	for (unsigned i = 0; i < 5; i++)
		add(&r, (char[]){(char)('a' + i), '\0'}, CKPT_DTYPE_U8, 0, NULL);
	ck_ok(ckpt_catalog_end(c));
	ck_ok(ckpt_catalog_set_digest(c, 3, digest));
	digest[31] = 9;
	ck_ok(ckpt_catalog_set_digest(c, 1, digest));
	round_trip();
	for (unsigned i = 0; i < 5; i++) {
		ckpt_catalog_get(again, i, &a);
		ck_assert((a.digest != NULL) == (i == 1 || i == 3));
	}
	ckpt_catalog_get(again, 1, &a);
	ck_assert_mem_eq(a.digest, digest, sizeof(digest));
	ckpt_catalog_forget_digests(c);
	ckpt_catalog_get(c, 1, &a);
	ck_assert_ptr_null(a.digest);
}
END_TEST

// --- What is refused ----------------------------------------------------------------------------------------------------

static unsigned form = CKPT_CATALOG_FORM;

static int decode_plain(const void *plain, size_t plain_len)
{
	CLEANUP_FREE uint8_t *stored = malloc(FORM_HEAD + plain_len + 1024);
	struct ckpt_zstd *z;
	uint32_t n;
	int rc;

	ck_ok(ckpt_zstd_new(&z));
	ck_ok(ckpt_zstd_encode(z, CKPT_ZSTD_FAST, plain, (uint32_t)plain_len, stored + FORM_HEAD,
			       (uint32_t)plain_len + 1024, &n));
	ckpt_zstd_free(z);
	ckpt_put32(stored + FORM_VERSION, form);
	ckpt_put32(stored + FORM_PLAIN, (uint32_t)plain_len);
	ckpt_catalog_free(TAKE_PTR(again));
	rc = ckpt_catalog_decode(stored, FORM_HEAD + n, &again);
	return rc;
}

#define PLAIN(text) decode_plain(text, sizeof(text) - 1)
#define WORDS "\2\1a\3npy"        // 0: a, 1: npy
#define ARRAY "\1\0\1x\1\0\6\0\1" // one array: a:x, npy, no reason, u8, one dimension

START_TEST(each_field_is_checked)
{
	ck_ok(PLAIN(WORDS ARRAY "\3\1\3\0\0\0"));
	ck_assert_uint_eq(ckpt_catalog_count(again), 1);
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\3\0\0\0\0"), -EBADMSG); // more than it is
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\3\0\0"), -EBADMSG);     // less
	ck_assert_int_eq(PLAIN("\2\3npy\1a"), -EBADMSG);                 // words out of order
	ck_assert_int_eq(PLAIN("\2\1a\1a\0\0"), -EBADMSG);               // twice
	ck_assert_int_eq(PLAIN("\1\1\0\0\0"), -EBADMSG);                 // with a NUL
	ck_assert_int_eq(PLAIN("\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"), -EBADMSG);
	ck_assert_int_eq(PLAIN("\xff\xff\xff\xff\xff\xff\xff\xff\xff\2"), -EBADMSG); // more than 64 bits
	ck_assert_int_eq(PLAIN(WORDS "\xff\xff\xff\xff\x0f"), -EBADMSG);             // so many arrays
	ck_assert_int_eq(PLAIN(WORDS "\1\2\1x\1\0\6\0\1\3\0\0"), -EBADMSG);          // no such tree
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\2\0\6\0\1\3\0\0"), -EBADMSG);          // no such word as its format
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\0\0\6\0\1\3\0\0"), -ENOTSUP);          // a format that is not known
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\3\6\0\1\3\0\0"), -EBADMSG);          // no such reason
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\x7f\0\1\3\0\0"), -EBADMSG);        // dtype
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\6\x08\1\3\0\0"), -EBADMSG);        // bits
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\6\0\41\3\0\0"), -EBADMSG);         // dimensions
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\0\2\1\3\0\0"), -EBADMSG);          // a fill without a type
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\6\0\2\xff\xff\xff\xff\xff\xff\xff\xff\x7f\4\0\0"), -EBADMSG);
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\0\0"), -EBADMSG);                 // the first piece has no file
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\1\2\0"), -EBADMSG);               // no such file
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\x13\0\0\1\3\0"), -EBADMSG);       // outside of the array
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\x0b\0\0\x7f\0\0\0\0"), -ENOTSUP); // a codec that is not known
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\x0b\0\0\0\1\0\0\0"), -EBADMSG);   // a codec behind the last
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\x83\0\0\1\2\0"), -EBADMSG);       // data that ends early
	ck_assert_int_eq(PLAIN(WORDS ARRAY "\3\1\3\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0"), -EBADMSG);
	ck_assert_int_eq(PLAIN(WORDS "\0\1\1a\1a"), -EBADMSG); // a fault without a reason
}
END_TEST

#define DIGEST "0123456789abcdef0123456789abcdef"

// Stores have catalogs of form 1.
START_TEST(the_form_before_has_no_digests_and_is_read)
{
	struct ckpt_catalog_array a;

	ck_ok(PLAIN(WORDS "\1\0\1x\1\0\6\4\1\3" DIGEST "\1\3\0\0\0"));
	ckpt_catalog_get(again, 0, &a);
	ck_assert(a.digest && !memcmp(a.digest, DIGEST, CKPT_ARRAY_DIGEST_LEN));
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\6\4\1\3"
				     "0123456789abcdef0123456789abcde"),
			 -EBADMSG); // it ends early
	form = CKPT_CATALOG_FORM_PLAIN;
	ck_ok(PLAIN(WORDS ARRAY "\3\1\3\0\0\0"));
	ckpt_catalog_get(again, 0, &a);
	ck_assert_ptr_null(a.digest);
	ck_assert_int_eq(PLAIN(WORDS "\1\0\1x\1\0\6\4\1\3" DIGEST "\1\3\0\0\0"), -EBADMSG);
}
END_TEST

START_TEST(another_form_is_told_from_damage)
{
	(void)reading("a");
	round_trip();
	ckpt_put32((uint8_t *)bytes + FORM_VERSION, CKPT_CATALOG_FORM + 1);
	ckpt_catalog_free(TAKE_PTR(again));
	ck_assert_int_eq(ckpt_catalog_decode(bytes, len, &again), -ENOTSUP);
	ckpt_put32((uint8_t *)bytes + FORM_VERSION, 0);
	ck_assert_int_eq(ckpt_catalog_decode(bytes, len, &again), -ENOTSUP);
	ckpt_put32((uint8_t *)bytes + FORM_VERSION, CKPT_CATALOG_FORM);
	ckpt_put32((uint8_t *)bytes + FORM_PLAIN, CKPT_CATALOG_PLAIN_MAX + 1);
	ck_assert_int_eq(ckpt_catalog_decode(bytes, len, &again), -EBADMSG);
	for (size_t n = 0; n < len; n++)
		ck_assert_int_eq(ckpt_catalog_decode(bytes, n, &again), -EBADMSG);
}
END_TEST

START_TEST(without_memory_nothing_is_made)
{
	struct ckpt_catalog_reading r = reading("a");

	add(&r, "x", CKPT_DTYPE_U8, 1, (uint64_t[]){3});
	ck_ok(ckpt_catalog_add_piece(&r, &(struct ckpt_piece){.bytes = 3}));
	round_trip();
	for (int round = 0; round < 2; round++)
		for (uint64_t n = 1;; n++) {
			void *more = NULL;
			size_t more_len;
			bool fired;
			int rc;

			ckpt_catalog_free(TAKE_PTR(again));
			ckpt_allocfault_begin(n, false);
			rc = round ? ckpt_catalog_decode(bytes, len, &again) : ckpt_catalog_encode(c, &more, &more_len);
			fired = ckpt_allocfault_end() >= n;
			free(more);
			ck_assert_int_eq(rc, fired ? -ENOMEM : 0);
			if (!fired)
				break;
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_encode");
	TCase *t = tcase_create("catalog_encode");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, an_empty_catalog_comes_back);
	tcase_add_test(t, each_dtype_order_fill_and_shape_comes_back);
	tcase_add_test(t, each_kind_of_piece_comes_back);
	tcase_add_test(t, faults_and_names_that_repeat_come_back);
	tcase_add_test(t, ten_thousand_arrays_are_a_few_bytes_each);
	tcase_add_test(t, each_field_is_checked);
	tcase_add_test(t, digests_come_back_for_the_arrays_that_have_one);
	tcase_add_test(t, the_form_before_has_no_digests_and_is_read);
	tcase_add_test(t, another_form_is_told_from_damage);
	tcase_add_test(t, without_memory_nothing_is_made);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
