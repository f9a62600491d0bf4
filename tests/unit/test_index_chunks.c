// The index of chunks: which are in which packs, also when there are more than a transaction takes, and when packs are dropped.
#include "tests/support/formats.h"
#include "tests/support/rows.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/index/index_value.h"

#include <stdio.h>

enum { MANY = 10000 }; // more than two transactions, of either kind

static char dir[PATH_MAX];
static struct ckpt_index *ix;

static void setup(void)
{
	ckpt_rows_dir(dir);
	ix = ckpt_rows_make(dir, 3);
}

static void teardown(void)
{
	ckpt_index_close(ix);
}

static void reopen(void)
{
	bool fresh;

	ckpt_index_close(ix);
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ck_assert(!fresh);
}

static struct ckpt_chunk chunk_of(uint32_t i)
{
	struct ckpt_chunk chunk = {.bytes = 100 + i % 7, .offset = 32 + (uint64_t)i * 50};

	chunk.how = (struct ckpt_encoded){CKPT_CODEC_ZSTD, 0, 50};
	ckpt_sha256(&i, sizeof(i), chunk.id);
	return chunk;
}

static struct ckpt_pack pack_of(uint8_t i)
{
	return (struct ckpt_pack){.id = {i}, .bytes = UINT64_C(1) << 24};
}

// Chunks first to first + count - 1.
static void put(uint8_t i, uint32_t first, uint32_t count)
{
	CLEANUP_FREE struct ckpt_chunk *chunks = ckpt_calloc(count, sizeof(*chunks));
	struct ckpt_pack pack = pack_of(i);

	for (uint32_t k = 0; k < count; k++)
		chunks[k] = chunk_of(first + k);
	ck_ok(ckpt_index_put_pack(ix, &pack, chunks, count));
}

// 0: it is in no pack.
static uint8_t pack_that_has(uint32_t i)
{
	struct ckpt_chunk want = chunk_of(i), chunk;
	struct ckpt_pack pack;
	int rc = ckpt_index_chunk(ix, want.id, &chunk, &pack);

	if (rc == -ENOENT)
		return 0;
	ck_ok(rc);
	ck_assert_mem_eq(chunk.id, want.id, sizeof(want.id));
	ck_assert(chunk.bytes == want.bytes && chunk.offset == want.offset && !chunk.pack);
	ck_assert(chunk.how.codec == want.how.codec && chunk.how.width == want.how.width);
	ck_assert_uint_eq(chunk.how.bytes, want.how.bytes);
	ck_assert_uint_eq(pack.bytes, pack_of(1).bytes);
	return pack.id[0];
}

struct seen {
	size_t count;
	uint8_t last[CKPT_SHA256_LEN];
	size_t stop_at;
};

static int see(struct seen *seen, const uint8_t *id)
{
	ck_assert(!seen->count || memcmp(seen->last, id, sizeof(seen->last)) < 0);
	memcpy(seen->last, id, sizeof(seen->last));
	return ++seen->count == seen->stop_at ? -ECANCELED : 0;
}

static int see_chunk(void *arg, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack)
{
	ck_assert_uint_eq(pack_that_has((uint32_t)((chunk->offset - 32) / 50)),
			  pack->id[0]); // outside of a transaction
	return see(arg, chunk->id);
}

static int see_pack(void *arg, const struct ckpt_pack *pack, bool whole)
{
	ck_assert(whole);
	return see(arg, pack->id);
}

static void check_counts(size_t packs, size_t chunks)
{
	struct seen seen_packs = {0}, seen_chunks = {0};
	struct ckpt_index_stat stat;

	ck_ok(ckpt_index_each_pack(ix, see_pack, &seen_packs));
	ck_ok(ckpt_index_each_chunk(ix, see_chunk, &seen_chunks));
	ck_ok(ckpt_index_stat(ix, &stat));
	ck_assert_uint_eq(seen_packs.count, packs);
	ck_assert_uint_eq(seen_chunks.count, chunks);
	ck_assert(stat.packs == packs && stat.chunks == chunks && stat.manifests == 3);
}

// Packs that are put together, wherever one transaction ends.
START_TEST(packs_that_are_put_together_are_all_whole)
{
	static const uint32_t counts[] = {3000, 3000, 9000, 1, 1096, 4096, 7};
	struct ckpt_pack_chunks packs[ARRAY_LEN(counts)];
	struct ckpt_chunk *chunks;
	uint32_t all = 0, at = 0;

	for (size_t i = 0; i < ARRAY_LEN(counts); i++)
		all += counts[i];
	chunks = ckpt_calloc(all, sizeof(*chunks));
	for (uint32_t i = 0; i < all; i++)
		chunks[i] = chunk_of(i);
	for (size_t i = 0; i < ARRAY_LEN(counts); at += counts[i++])
		packs[i] = (struct ckpt_pack_chunks){pack_of((uint8_t)(i + 1)), chunks + at, counts[i]};
	ck_ok(ckpt_index_put_packs(ix, packs, ARRAY_LEN(counts)));
	check_counts(ARRAY_LEN(counts), all);
	at = 0;
	for (size_t i = 0; i < ARRAY_LEN(counts); at += counts[i++]) {
		ck_assert_uint_eq(pack_that_has(at), i + 1);
		ck_assert_uint_eq(pack_that_has(at + counts[i] - 1), i + 1);
	}
	free(chunks);
}
END_TEST

START_TEST(what_is_put_is_found)
{
	struct seen seen = {.stop_at = 5};

	check_counts(0, 0);
	put(1, 0, MANY);
	put(2, MANY, 1);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < MANY; i++)
			ck_assert_uint_eq(pack_that_has(i), 1);
		ck_assert_uint_eq(pack_that_has(MANY), 2);
		ck_assert_uint_eq(pack_that_has(MANY + 1), 0);
		check_counts(2, MANY + 1);
		reopen();
	}
	ck_error(ckpt_index_each_chunk(ix, see_chunk, &seen), ECANCELED);
	ck_assert_uint_eq(seen.count, 5);
}
END_TEST

START_TEST(a_chunk_is_where_it_was_put_last)
{
	put(1, 0, 10);
	put(2, 5, 10);
	for (uint32_t i = 0; i < 15; i++)
		ck_assert_uint_eq(pack_that_has(i), i < 5 ? 1 : 2);
	put(1, 0, 10);
	check_counts(2, 15);
}
END_TEST

START_TEST(what_is_dropped_is_gone_and_nothing_else)
{
	const struct ckpt_pack none = pack_of(9), two[] = {pack_of(1), pack_of(3)};

	put(1, 0, MANY);
	put(2, MANY / 2, MANY);
	put(3, 3 * MANY, 2);
	ck_ok(ckpt_index_drop_packs(ix, &none, 1));
	ck_ok(ckpt_index_drop_packs(ix, NULL, 0));
	check_counts(3, MANY * 3 / 2 + 2);
	ck_ok(ckpt_index_drop_packs(ix, two, 2));
	check_counts(1, MANY);
	for (uint32_t i = 0; i < MANY * 2; i++)
		ck_assert_uint_eq(pack_that_has(i), i >= MANY / 2 && i < MANY * 3 / 2 ? 2 : 0);
	reopen();
	check_counts(1, MANY);
}
END_TEST

static int drop_each(void *arg __attribute__((unused)), const struct ckpt_pack *pack, bool whole)
{
	ck_assert(whole);
	return ckpt_index_drop_packs(ix, pack, 1); // a write, inside of the callback
}

START_TEST(a_callback_can_write)
{
	enum { PACKS = 200 };

	for (uint8_t i = 1; i <= PACKS; i++)
		put(i, i * 10, 10);
	check_counts(PACKS, PACKS * 10);
	ck_ok(ckpt_index_each_pack(ix, drop_each, NULL));
	check_counts(0, 0);
}
END_TEST

START_TEST(a_reset_forgets_chunks_too)
{
	put(1, 0, 10);
	ck_assert_uint_eq(ckpt_index_resets(ix), 0);
	ck_ok(ckpt_index_reset(ix));
	ck_assert_uint_eq(ckpt_index_resets(ix), 1);
	ck_assert_uint_eq(pack_that_has(0), 0);
	put(1, 0, 10);
	ck_assert_uint_eq(pack_that_has(0), 1);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct ckpt_pack pack = pack_of(1);
	bool fresh;

	ck_error(ckpt_index_put_pack(ix, &pack, NULL, 0), EINVAL);
	ckpt_index_close(ix);
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, true, &ix, &fresh));
	ck_error(ckpt_index_drop_packs(ix, &pack, 1), EROFS);
}
END_TEST

// --- Rows that cannot be ------------------------------------------------------------------------------------------------

static void no_bytes(struct ckpt_chunk *c, struct ckpt_pack *p)
{
	(void)p;
	c->bytes = 0;
}

static void too_many_bytes(struct ckpt_chunk *c, struct ckpt_pack *p)
{
	(void)p;
	c->bytes = CKPT_CHUNK_BYTES_MAX + 1;
}

static void behind_the_end(struct ckpt_chunk *c, struct ckpt_pack *p)
{
	c->offset = p->bytes - c->how.bytes + 1;
}

static void overflowing(struct ckpt_chunk *c, struct ckpt_pack *p)
{
	(void)p;
	c->offset = UINT64_MAX - 1;
}

static void no_codec(struct ckpt_chunk *c, struct ckpt_pack *p)
{
	(void)p;
	c->how.codec = 77;
}

static void too_large_a_pack(struct ckpt_chunk *c, struct ckpt_pack *p)
{
	(void)c;
	p->bytes = CKPT_PACK_BYTES_MAX + 1;
}

static void (*const wrongs[])(struct ckpt_chunk *c, struct ckpt_pack *p) = {
	no_bytes, too_many_bytes, behind_the_end, overflowing, no_codec, too_large_a_pack};

START_TEST(a_row_that_cannot_be_is_damage_and_is_dropped)
{
	struct ckpt_chunk chunk = chunk_of(1), found;
	struct ckpt_pack pack = pack_of(1), other = pack_of(2), none = pack_of(3);

	put(2, 5, 1);
	wrongs[_i](&chunk, &pack);
	ck_ok(ckpt_index_put_pack(ix, &pack, &chunk, 1));
	ck_error(ckpt_index_chunk(ix, chunk.id, &found, &pack), EBADMSG);
	ck_error(ckpt_index_each_chunk(ix, see_chunk, &(struct seen){0}), EBADMSG);
	ck_ok(ckpt_index_drop_packs(ix, &none, 1));
	ck_error(ckpt_index_chunk(ix, chunk.id, &found, &pack), ENOENT);
	ck_ok(ckpt_index_chunk(ix, chunk_of(5).id, &found, &pack));
	ck_assert_mem_eq(pack.id, other.id, sizeof(other.id));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("index chunks");
	TCase *tcase = tcase_create("chunks");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_put_is_found);
	tcase_add_test(tcase, packs_that_are_put_together_are_all_whole);
	tcase_add_test(tcase, a_chunk_is_where_it_was_put_last);
	tcase_add_test(tcase, what_is_dropped_is_gone_and_nothing_else);
	tcase_add_test(tcase, a_callback_can_write);
	tcase_add_test(tcase, a_reset_forgets_chunks_too);
	tcase_add_test(tcase, bad_arguments_are_refused);
	tcase_add_loop_test(tcase, a_row_that_cannot_be_is_damage_and_is_dropped, 0, (int)ARRAY_LEN(wrongs));
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
