// Packs: what was put comes back chunk by chunk and by the pack's own table; whatever is wrong with one is said, and never gives
// other bytes.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/cold/pack.h"

#include <stdio.h>

#define CHUNKS 5

static struct ckpt_objects *b;
static struct ckpt_codec *codec;
static struct ckpt_pack pack;
static struct ckpt_chunk chunks[CHUNKS];
static uint8_t *plain[CHUNKS], *object;

// One that repeats, one that does not, one of a byte, one of numbers, one of zeros.
static void fill(size_t i, uint8_t *bytes, uint32_t len)
{
	uint32_t seed = 1;

	for (uint32_t k = 0; k < len; k++) {
		seed = seed * 1664525 + 1013904223;
		bytes[k] = (uint8_t)(i == 0   ? k % 7
				     : i == 1 ? seed >> 24
				     : i == 3 ? (k % 4 == 3 ? 0x3f : seed >> 24)
					      : 0);
	}
}

static uint8_t sha256[CKPT_SHA256_LEN]; // of the pack, as it was put

static void read_object(void)
{
	uint8_t is[CKPT_SHA256_LEN];
	char key[CKPT_PACK_KEY_MAX];
	size_t len;
	void *data;

	ckpt_pack_key(pack.id, key);
	ck_ok(ckpt_objects_get_all(b, key, CKPT_PACK_BYTES_MAX, &data, &len, NULL));
	ck_assert_uint_eq(len, pack.bytes);
	object = data;
	ckpt_sha256(data, len, is);
	ck_assert_mem_eq(is, sha256, sizeof(is));
}

static void setup(void)
{
	static const uint32_t lens[CHUNKS] = {100000, 70000, 1, 40000, 4096};
	struct ckpt_pack_writer *w;
	uint8_t *stored = malloc(100000);

	ck_ok(ckpt_mem_new(&b));
	ck_ok(ckpt_codec_new(&codec));
	ck_ok(ckpt_pack_writer_new(&w));
	ck_assert_uint_eq(ckpt_pack_writer_bytes(w), 0);
	for (size_t i = 0; i < CHUNKS; i++) {
		chunks[i] = (struct ckpt_chunk){.bytes = lens[i]};
		plain[i] = malloc(lens[i]);
		fill(i, plain[i], lens[i]);
		ckpt_sha256(plain[i], lens[i], chunks[i].id);
		ck_ok(ckpt_codec_encode(codec, plain[i], lens[i], 0, stored, &chunks[i].how));
		ck_ok(ckpt_pack_writer_add(w, &chunks[i], stored, NULL));
	}
	free(stored);
	ck_ok(ckpt_pack_writer_put(w, b, &pack, sha256));
	ck_assert_uint_eq(ckpt_pack_writer_bytes(w), 0);
	ckpt_pack_writer_free(w);
	read_object();
}

static void teardown(void)
{
	for (size_t i = 0; i < CHUNKS; i++)
		free(plain[i]);
	free(object);
	ckpt_codec_free(codec);
	ckpt_objects_close(b);
}

// The pack is these bytes now.
static void replace(const void *bytes, size_t len)
{
	char key[CKPT_PACK_KEY_MAX];

	ckpt_pack_key(pack.id, key);
	ck_ok(ckpt_objects_remove(b, key));
	ck_ok(ckpt_objects_put(b, key, bytes, len, NULL));
}

static int table(uint64_t bytes)
{
	struct ckpt_pack that = pack;
	struct ckpt_chunk *rows;
	size_t count;
	int rc;

	that.bytes = bytes;
	rc = ckpt_pack_table(b, &that, &rows, &count);
	if (!rc)
		free(rows);
	return rc;
}

static int read_chunk(size_t i)
{
	uint8_t *there = malloc(chunks[i].bytes);
	int rc = ckpt_pack_read(b, &pack, &chunks[i], codec, NULL, there);

	if (!rc)
		ck_assert_mem_eq(there, plain[i], chunks[i].bytes);
	free(there);
	return rc;
}

START_TEST(each_chunk_comes_back)
{
	uint64_t stored = 0;

	for (size_t i = 0; i < CHUNKS; i++) {
		ck_ok(read_chunk(i));
		stored += chunks[i].how.bytes;
	}
	ck_assert_int_eq(chunks[1].how.codec, CKPT_CODEC_NONE);
	ck_assert_int_ne(chunks[0].how.codec, CKPT_CODEC_NONE);
	ck_assert_uint_eq(pack.bytes, 48 + stored + CHUNKS * 64 + 56);
}
END_TEST

START_TEST(each_chunk_is_there_as_it_was_put)
{
	uint64_t stored = 0, bytes = 0;

	for (size_t i = 0; i < CHUNKS; i++) {
		CLEANUP_FREE uint8_t *there = malloc(chunks[i].how.bytes);

		ck_ok(ckpt_pack_read_stored(b, &pack, &chunks[i], there));
		ck_assert_mem_eq(there, object + chunks[i].offset, chunks[i].how.bytes);
		stored += chunks[i].how.bytes;
	}
	ck_ok(ckpt_pack_chunk_bytes(b, &pack, &bytes));
	ck_assert_uint_eq(bytes, stored);
}
END_TEST

START_TEST(its_table_says_what_is_in_it)
{
	struct ckpt_chunk *rows;
	size_t count;

	ck_ok(ckpt_pack_table(b, &pack, &rows, &count));
	ck_assert_uint_eq(count, CHUNKS);
	for (size_t i = 0; i < CHUNKS; i++) {
		ck_assert_mem_eq(rows[i].id, chunks[i].id, CKPT_SHA256_LEN);
		ck_assert(rows[i].bytes == chunks[i].bytes && rows[i].offset == chunks[i].offset);
		ck_assert(rows[i].how.codec == chunks[i].how.codec && rows[i].how.width == chunks[i].how.width &&
			  rows[i].how.bytes == chunks[i].how.bytes);
	}
	free(rows);
}
END_TEST

// The digest is of all bytes but itself and the checksum of the table.
START_TEST(its_header_repeats_its_name_and_its_tail_its_digest)
{
	uint8_t digest[CKPT_SHA256_LEN];
	struct ckpt_pack unknown = pack;
	struct ckpt_chunk *rows;
	size_t count;

	ck_assert_mem_eq(object + 16, pack.id, sizeof(pack.id));
	ckpt_sha256(object, pack.bytes - 40, digest);
	ck_assert_mem_eq(pack.digest, digest, sizeof(digest));
	ck_assert_mem_eq(object + pack.bytes - 40, digest, sizeof(digest));
	memset(unknown.digest, 0, sizeof(unknown.digest));
	ck_ok(ckpt_pack_table(b, &unknown, &rows, &count));
	ck_assert_mem_eq(unknown.digest, digest, sizeof(digest));
	free(rows);
}
END_TEST

START_TEST(two_packs_of_the_same_chunks_are_two)
{
	struct ckpt_pack_writer *w;
	struct ckpt_pack packs[2];

	ck_ok(ckpt_pack_writer_new(&w));
	for (size_t i = 0; i < 2; i++) {
		struct ckpt_chunk one = chunks[2];

		ck_ok(ckpt_pack_writer_add(w, &one, plain[2], NULL));
		ck_ok(ckpt_pack_writer_put(w, b, &packs[i], sha256));
	}
	ck_assert(memcmp(packs[0].id, packs[1].id, CKPT_SHA256_LEN));
	ckpt_pack_writer_free(w);
}
END_TEST

// A raw file has changed on the disk since it was sealed: this is seen whether its bytes are stored as they are, or by a codec.
START_TEST(bytes_of_another_id_are_not_added)
{
	struct ckpt_pack_writer *w;
	uint8_t *stored = malloc(100000);
	unsigned as_they_are = 0;

	ck_ok(ckpt_pack_writer_new(&w));
	for (size_t i = 0; i < CHUNKS; i++) {
		struct ckpt_chunk one = {.bytes = chunks[i].bytes}, wrong;
		uint64_t bytes = ckpt_pack_writer_bytes(w);

		memcpy(one.id, chunks[i].id, sizeof(one.id));
		for (size_t k = 0; k < 2; k++) {
			plain[i][one.bytes - 1] ^= 1;
			ck_ok(ckpt_codec_encode(codec, plain[i], one.bytes, 0, stored, &one.how));
			if (k)
				break; // as it was
			wrong = one;
			ck_error(ckpt_pack_writer_add(w, &wrong, stored, plain[i]), EBADMSG);
			ck_assert_uint_eq(ckpt_pack_writer_bytes(w), bytes);
		}
		as_they_are += one.how.codec == CKPT_CODEC_NONE;
		ck_ok(ckpt_pack_writer_add(w, &one, stored, plain[i]));
		chunks[i] = one;
	}
	ck_assert(as_they_are && as_they_are < CHUNKS);
	ck_ok(ckpt_pack_writer_put(w, b, &pack, sha256));
	for (size_t i = 0; i < CHUNKS; i++)
		ck_ok(read_chunk(i));
	ck_ok(ckpt_pack_check(b, &pack, &chunks[0]));
	ckpt_pack_writer_free(w);
	free(stored);
}
END_TEST

// A put that fails keeps what is to be put.
START_TEST(what_could_not_be_put_is_put_again)
{
	struct ckpt_fault fault = {.at = 1, .error = -ENOSPC};
	struct ckpt_chunk one = chunks[1];
	struct ckpt_pack_writer *w;
	struct ckpt_pack other;

	ck_ok(ckpt_fault_new(b, &fault, &b));
	ck_ok(ckpt_pack_writer_new(&w));
	ck_ok(ckpt_pack_writer_add(w, &one, plain[1], NULL));
	ck_error(ckpt_pack_writer_put(w, b, &other, sha256), ENOSPC);
	ck_assert_uint_ne(ckpt_pack_writer_bytes(w), 0);
	ck_ok(ckpt_pack_writer_put(w, b, &other, sha256));
	ckpt_pack_writer_free(w);
	pack = other;
	chunks[1] = one;
	ck_ok(read_chunk(1));
}
END_TEST

// --- Damage -------------------------------------------------------------------------------------------------------------

static size_t chunk_of(size_t at)
{
	for (size_t i = 0; i < CHUNKS; i++)
		if (at >= chunks[i].offset && at < chunks[i].offset + chunks[i].how.bytes)
			return i;
	return CHUNKS;
}

// Each is found by who looks at all of it; who reads a chunk finds it or has the right bytes: not every bit of a frame counts.
START_TEST(no_flipped_bit_goes_unseen)
{
	uint8_t digest[CKPT_SHA256_LEN];
	size_t seen = 0;

	memcpy(digest, pack.digest, sizeof(digest));
	for (size_t at = 0; at < pack.bytes; at += at < 64 || at + 600 > pack.bytes ? 1 : 997) {
		size_t i = chunk_of(at);
		struct ckpt_chunk bad;

		object[at] ^= (uint8_t)(1u << at % 8);
		replace(object, pack.bytes);
		ck_assert_int_lt(ckpt_pack_check(b, &pack, &bad), 0);
		ck_assert_uint_eq(bad.bytes, i < CHUNKS ? chunks[i].bytes : 0);
		ck_assert_msg((table(pack.bytes) < 0) == (i == CHUNKS), "byte %zu", at);
		memset(pack.digest, 0, sizeof(pack.digest)); // nor to who does not know it
		ck_assert_msg((table(pack.bytes) < 0) == (i == CHUNKS), "byte %zu", at);
		ck_assert_int_lt(ckpt_pack_check(b, &pack, &bad), 0);
		memcpy(pack.digest, digest, sizeof(digest));
		if (i < CHUNKS)
			seen += read_chunk(i) < 0;
		object[at] ^= (uint8_t)(1u << at % 8);
	}
	ck_assert_uint_gt(seen, 50);
	replace(object, pack.bytes);
	ck_ok(table(pack.bytes));
	ck_ok(ckpt_pack_check(b, &pack, &chunks[0]));
}
END_TEST

START_TEST(one_that_is_cut_off_or_longer_is_refused)
{
	static const uint64_t lens[] = {0, 1, 47, 48, 104, 167};
	uint8_t *longer = calloc(1, pack.bytes + 8);

	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		replace(object, lens[i]);
		ck_error(table(lens[i]), EBADMSG);
		ck_error(table(pack.bytes), EBADMSG);
	}
	replace(object, pack.bytes - 1);
	ck_error(table(pack.bytes), EBADMSG);
	ck_error(read_chunk(0), EBADMSG);
	memcpy(longer, object, pack.bytes);
	replace(longer, pack.bytes + 8);
	ck_error(table(pack.bytes), EBADMSG);
	ck_error(read_chunk(0), EBADMSG); // it may be another
	free(longer);
}
END_TEST

START_TEST(one_that_is_not_there_is_missing)
{
	pack.id[5] ^= 1;
	ck_error(table(pack.bytes), ENOENT);
	ck_error(read_chunk(0), ENOENT);
}
END_TEST

// Whole, but under the name of another.
START_TEST(one_that_stands_under_the_name_of_another_is_said_to_be_another)
{
	char key[CKPT_PACK_KEY_MAX];

	pack.id[5] ^= 1;
	ckpt_pack_key(pack.id, key);
	ck_ok(ckpt_objects_put(b, key, object, pack.bytes, NULL));
	ck_error(table(pack.bytes), EMEDIUMTYPE);
	ck_error(ckpt_pack_check(b, &pack, &chunks[0]), EMEDIUMTYPE);
}
END_TEST

// Whole, and under its name, but a manifest says something else of it.
START_TEST(one_with_another_digest_than_the_manifest_says_is_damaged)
{
	pack.digest[31] ^= 1;
	ck_error(table(pack.bytes), EBADMSG);
	ck_error(ckpt_pack_check(b, &pack, &chunks[0]), EBADMSG);
}
END_TEST

// Other bytes of a chunk, of which the rows and the checksum of the table say that they are right: only the digest does not.
START_TEST(other_bytes_are_seen_by_the_digest)
{
	uint8_t *rows = object + pack.bytes - 56 - CHUNKS * 64, *tail = object + pack.bytes - 56;
	struct ckpt_chunk bad;

	object[chunks[1].offset] ^= 1;
	ckpt_put64(rows + 64 + 56, ckpt_checksum(object + chunks[1].offset, chunks[1].how.bytes, 0));
	ckpt_put64(tail + 48, ckpt_checksum(tail, 48, ckpt_checksum(rows, CHUNKS * 64, ckpt_checksum(object, 48, 0))));
	replace(object, pack.bytes);
	ck_ok(table(pack.bytes));
	ck_error(ckpt_pack_check(b, &pack, &bad), EBADMSG);
	ck_assert_uint_eq(bad.bytes, 0);
}
END_TEST

START_TEST(a_newer_one_is_refused_as_newer_and_an_older_one_too)
{
	object[8] = 3;
	replace(object, pack.bytes);
	ck_error(table(pack.bytes), ENOTSUP);
	object[8] = 1;
	replace(object, pack.bytes);
	ck_error(table(pack.bytes), EBADMSG);
}
END_TEST

START_TEST(a_length_that_no_pack_has_is_refused_before_it_is_read)
{
	ck_error(table(CKPT_PACK_BYTES_MAX + 1), EBADMSG);
	ck_error(table(UINT64_MAX), EBADMSG);
}
END_TEST

// A chunk that a manifest puts elsewhere in the pack, or calls otherwise.
START_TEST(a_row_that_is_not_the_chunks_gives_no_bytes)
{
	struct ckpt_chunk was = chunks[0];

	chunks[0].offset++;
	ck_error(read_chunk(0), EBADMSG);
	chunks[0] = was;
	chunks[0].id[0] ^= 1;
	ck_error(read_chunk(0), EBADMSG);
	chunks[0] = was;
	chunks[0].how.bytes--;
	ck_error(read_chunk(0), EBADMSG);
	chunks[0] = was;
	chunks[0].offset = pack.bytes - 1;
	ck_error(read_chunk(0), EBADMSG);
	chunks[0] = was;
	chunks[0].bytes--;
	ck_error(read_chunk(0), EBADMSG);
	chunks[0] = was;
	ck_ok(read_chunk(0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pack");
	TCase *whole = tcase_create("whole"), *damage = tcase_create("damage");

	tcase_add_checked_fixture(whole, setup, teardown);
	tcase_add_test(whole, each_chunk_comes_back);
	tcase_add_test(whole, each_chunk_is_there_as_it_was_put);
	tcase_add_test(whole, its_table_says_what_is_in_it);
	tcase_add_test(whole, its_header_repeats_its_name_and_its_tail_its_digest);
	tcase_add_test(whole, two_packs_of_the_same_chunks_are_two);
	tcase_add_test(whole, bytes_of_another_id_are_not_added);
	tcase_add_test(whole, what_could_not_be_put_is_put_again);
	suite_add_tcase(suite, whole);
	tcase_add_checked_fixture(damage, setup, teardown);
	tcase_add_test(damage, no_flipped_bit_goes_unseen);
	tcase_add_test(damage, one_that_is_cut_off_or_longer_is_refused);
	tcase_add_test(damage, one_that_is_not_there_is_missing);
	tcase_add_test(damage, one_that_stands_under_the_name_of_another_is_said_to_be_another);
	tcase_add_test(damage, one_with_another_digest_than_the_manifest_says_is_damaged);
	tcase_add_test(damage, other_bytes_are_seen_by_the_digest);
	tcase_add_test(damage, a_newer_one_is_refused_as_newer_and_an_older_one_too);
	tcase_add_test(damage, a_length_that_no_pack_has_is_refused_before_it_is_read);
	tcase_add_test(damage, a_row_that_is_not_the_chunks_gives_no_bytes);
	suite_add_tcase(suite, damage);
	return ckpt_suite_run(suite);
}
