// What a manifest says of what chunks are decoded beside: written in one form, copied with it, and no lie about it is believed.
#include "tests/support/fixture_manifest.h"

#include "core/base/util.h"

#define LEN 1000 // of each chunk

static uint32_t add_file(struct ckpt_manifest_writer *w, const char *name, uint64_t ino, uint64_t bytes)
{
	struct ckpt_entry e = {
		.type = CKPT_ENTRY_FILE, .name = name, .content = CKPT_CONTENT_CHUNKS, .ino = ino, .bytes = bytes};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	ck_ok(ckpt_manifest_writer_seal(w, handle, CKPT_SAMPLE_SHA256));
	return handle;
}

// Each in a pack of its own.
static struct ckpt_chunk chunk_named(struct ckpt_manifest_writer *w, char name, enum ckpt_codec_id codec,
				     unsigned width)
{
	struct ckpt_chunk c = {.bytes = LEN, .offset = 32, .how = {codec, width, 900}};
	struct ckpt_pack p = {.bytes = 10000};

	memset(c.id, name, sizeof(c.id));
	memset(p.id, name, sizeof(p.id));
	ck_ok(ckpt_manifest_writer_pack(w, &p, &c.pack));
	return c;
}

static void add_bases(struct ckpt_manifest_writer *w, struct ckpt_chunk *chunk, const struct ckpt_chunk *bases,
		      uint32_t count)
{
	ck_ok(ckpt_manifest_writer_bases(w, bases, count, &chunk->base));
	chunk->base_count = count;
}

static void add_chunk(struct ckpt_manifest_writer *w, const struct ckpt_chunk *chunk)
{
	ck_ok(ckpt_manifest_writer_chunk(w, chunk));
}

// The rows that setup() makes. Of CHNK: d is beside e, which is beside f; w, twice, beside the two m and n. No file has e and f.
enum { D_ROW, M_ROW, N_ROW, W_ROW, AGAIN_ROW };
enum { E_BASE, F_BASE, M_BASE, N_BASE, M_AGAIN_BASE, N_AGAIN_BASE, BASES };

static void add_delta(struct ckpt_manifest_writer *w)
{
	struct ckpt_chunk d = chunk_named(w, 'd', CKPT_CODEC_DELTA, 4), e = chunk_named(w, 'e', CKPT_CODEC_DELTA, 4),
			  f = chunk_named(w, 'f', CKPT_CODEC_PLANES, 4);

	add_bases(w, &e, &f, 1);
	add_bases(w, &d, &e, 1);
	add_file(w, "delta", 10, LEN);
	add_chunk(w, &d);
}

static void add_weights(struct ckpt_manifest_writer *w)
{
	const struct ckpt_chunk master[] = {chunk_named(w, 'm', CKPT_CODEC_PLANES, 4),
					    chunk_named(w, 'n', CKPT_CODEC_ZSTD, 0)};
	struct ckpt_chunk weights = chunk_named(w, 'w', CKPT_CODEC_ROUND, 2);

	add_bases(w, &weights, master, 2);
	add_file(w, "weights", 12, 2 * LEN);
	add_chunk(w, &weights);
	add_chunk(w, &weights);
	add_file(w, "master", 11, 2 * LEN);
	add_chunk(w, &master[0]);
	add_chunk(w, &master[1]);
}

static struct ckpt_manifest_writer *write_sample(bool the_other_way)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();

	if (the_other_way)
		add_weights(w);
	add_delta(w);
	if (!the_other_way)
		add_weights(w);
	return w;
}

static void setup(void)
{
	ckpt_fixture_manifest_take(write_sample(false));
}

static void check_base(const struct ckpt_manifest *m, const struct ckpt_chunk *chunk, uint32_t i, char name,
		       struct ckpt_chunk *ret_base)
{
	struct ckpt_pack p;

	ck_assert_uint_lt(i, chunk->base_count);
	ckpt_manifest_base(m, chunk->base - 1 + i, ret_base);
	ckpt_manifest_pack(m, ret_base->pack - 1, &p);
	ck_assert(ret_base->id[0] == name && p.id[0] == name && ret_base->bytes == LEN && ret_base->offset == 32);
}

START_TEST(chunks_say_what_they_are_decoded_beside)
{
	struct ckpt_manifest *m = parse();
	struct ckpt_chunk c, base, below;

	ckpt_manifest_chunk(m, D_ROW, &c);
	ck_assert_uint_eq(c.base_count, 1);
	check_base(m, &c, 0, 'e', &base);
	ck_assert(base.how.codec == CKPT_CODEC_DELTA && base.base_count == 1);
	check_base(m, &base, 0, 'f', &below);
	ck_assert(below.how.codec == CKPT_CODEC_PLANES && !below.base && !below.base_count);
	for (uint32_t row = W_ROW; row <= AGAIN_ROW; row++) {
		ckpt_manifest_chunk(m, row, &c);
		ck_assert(c.id[0] == 'w' && c.base_count == 2);
		check_base(m, &c, 0, 'm', &base);
		check_base(m, &c, 1, 'n', &base);
		ck_assert_int_eq(base.how.codec, CKPT_CODEC_ZSTD);
	}
	ckpt_manifest_chunk(m, M_ROW, &c);
	ck_assert(!c.base && !c.base_count);
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(one_content_has_one_form)
{
	struct ckpt_manifest_writer *w = write_sample(true);
	void *other;
	size_t other_len;

	ck_ok(ckpt_manifest_writer_finish(w, &other, &other_len));
	ck_assert_uint_eq(other_len, len);
	ck_assert_mem_eq(other, data, len);
	ckpt_manifest_writer_free(w);
	free(other);
}
END_TEST

// As in a version from which the master was removed.
START_TEST(what_is_copied_brings_what_it_needs)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_manifest *from = parse(), *m;
	static const char *const names[] = {"delta", "weights"};
	struct ckpt_chunk c, base;
	size_t made_len;
	void *made;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_entry e;
		struct ckpt_seal seal;
		uint32_t index, handle;

		ck_ok(ckpt_manifest_lookup(from, names[i], &index));
		ckpt_manifest_entry(from, index, &e);
		ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
		ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
		ck_assert(ckpt_manifest_seal(from, index, &seal));
		ck_ok(ckpt_manifest_writer_copy_seal(w, handle, from, &seal));
	}
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	ck_assert_uint_eq(ckpt_manifest_chunk_count(m), 3);
	ck_assert_uint_eq(ckpt_manifest_pack_count(m), 6);
	ckpt_manifest_chunk(m, 0, &c);
	check_base(m, &c, 0, 'e', &base);
	check_base(m, &base, 0, 'f', &base);
	ckpt_manifest_chunk(m, 2, &c);
	check_base(m, &c, 1, 'n', &base);
	ckpt_walk_manifest(m);
	ckpt_manifest_writer_free(w);
	ckpt_manifest_unref(from);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(writer_refuses_bases_that_cannot_be)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_chunk weights = chunk_named(w, 'w', CKPT_CODEC_ROUND, 2),
			  plain = chunk_named(w, 'p', CKPT_CODEC_ZSTD, 0),
			  delta = chunk_named(w, 'd', CKPT_CODEC_DELTA, 4), nowhere = {.bytes = LEN};
	const struct ckpt_chunk three[] = {plain, plain, plain};
	uint32_t base;

	add_file(w, "a", 10, LEN);
	ck_error(ckpt_manifest_writer_chunk(w, &weights), EINVAL); // none
	ck_error(ckpt_manifest_writer_bases(w, three, 3, &base), EINVAL);
	ck_error(ckpt_manifest_writer_bases(w, &nowhere, 1, &base), EINVAL);
	ck_error(ckpt_manifest_writer_bases(w, &weights, 1, &base), EINVAL);
	add_bases(w, &weights, three, 1);
	ck_error(ckpt_manifest_writer_chunk(w, &weights), EINVAL); // half of it
	weights.base_count = 2;
	ck_error(ckpt_manifest_writer_chunk(w, &weights), EINVAL); // the second was never given
	plain.base = 1;
	plain.base_count = 1;
	ck_error(ckpt_manifest_writer_chunk(w, &plain), EINVAL); // it takes none
	for (unsigned depth = 0; depth < CKPT_BASE_DEPTH_MAX; depth++) {
		struct ckpt_chunk below = depth ? delta : three[0];

		add_bases(w, &delta, &below, 1);
		ck_ok(ckpt_manifest_writer_chunk(w, &delta));
	}
	ck_ok(ckpt_manifest_writer_bases(w, &delta, 1, &delta.base));
	ck_error(ckpt_manifest_writer_chunk(w, &delta), EINVAL); // one too deep
	ckpt_manifest_writer_free(w);
}
END_TEST

START_TEST(writer_refuses_bases_that_are_not_there)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_chunk plain = chunk_named(w, 'p', CKPT_CODEC_ZSTD, 0),
			  delta = chunk_named(w, 'd', CKPT_CODEC_DELTA, 4), lost = plain;
	uint32_t base;

	add_file(w, "a", 10, LEN);
	lost.pack = delta.pack + 1;
	ck_error(ckpt_manifest_writer_bases(w, &lost, 1, &base), EINVAL); // in no pack that was given
	delta.base_count = 1;
	ck_error(ckpt_manifest_writer_chunk(w, &delta), EINVAL); // so many, and none of them
	ck_ok(ckpt_manifest_writer_bases(w, &plain, 1, &delta.base));
	delta.base_count = 0;
	ck_error(ckpt_manifest_writer_chunk(w, &delta), EINVAL); // and the other way round
	delta.base_count = CKPT_BASE_PIECES_MAX + 1;
	ck_error(ckpt_manifest_writer_chunk(w, &delta), EINVAL);
	delta.base_count = 1;
	add_chunk(w, &delta);
	ckpt_manifest_writer_free(w);
}
END_TEST

START_TEST(the_deepest_of_the_bases_counts_wherever_it_is)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	const struct ckpt_chunk plain = chunk_named(w, 'p', CKPT_CODEC_ZSTD, 0);
	struct ckpt_chunk deep = chunk_named(w, 'd', CKPT_CODEC_DELTA, 4),
			  weights = chunk_named(w, 'w', CKPT_CODEC_ROUND, 2);

	add_file(w, "a", 10, LEN);
	add_bases(w, &deep, &plain, 1);
	for (unsigned depth = 1; depth < CKPT_BASE_DEPTH_MAX; depth++) {
		const struct ckpt_chunk below = deep;

		add_bases(w, &deep, &below, 1);
	}
	for (int first = 0; first < 2; first++) {
		const struct ckpt_chunk two[] = {first ? deep : plain, first ? plain : deep};

		add_bases(w, &weights, two, 2);
		ck_error(ckpt_manifest_writer_chunk(w, &weights), EINVAL);
	}
	ckpt_manifest_writer_free(w);
}
END_TEST

// --- Lies ---------------------------------------------------------------------------------------------------------------

#define HOW(codec, width) ((uint32_t)(width) << 16 | CKPT_CODEC_##codec)
#define AT(row, field) ((row) * (size_t)CHUNK_BYTES + CHUNK_##field)

START_TEST(a_chunk_that_lies_about_its_base_is_refused)
{
	static const struct lie lies[] = {
		{AT(D_ROW, BASE), 0},
		{AT(D_ROW, BASE), F_BASE + 1},
		{AT(D_ROW, BASE), BASES},
		{AT(D_ROW, BASE), BASES + 1}, // past the end
		{AT(D_ROW, BASE), UINT32_MAX},
		{AT(D_ROW, CODEC), HOW(ROUND, 2)}, // what it has is too short, or has one itself
		{AT(D_ROW, CODEC), HOW(PLANES, 4)},
		{AT(D_ROW, CODEC), HOW(DELTA, 3)},
		{AT(M_ROW, BASE), 1}, // it takes none
		{AT(M_ROW, BASE), M_BASE + 1},
		{AT(M_ROW, CODEC), HOW(DELTA, 4)},
		{AT(W_ROW, BASE), E_BASE + 1},
		{AT(W_ROW, BASE), N_BASE + 1},
		{AT(W_ROW, BASE), M_AGAIN_BASE + 1}, // out of order
		{AT(W_ROW, CODEC), HOW(DELTA, 2)},
		{AT(W_ROW, CODEC), HOW(ROUND, 4)},
		{AT(AGAIN_ROW, BASE), M_BASE + 1}, // another's
		{AT(AGAIN_ROW, BASE), N_AGAIN_BASE + 1},
		{AT(AGAIN_ROW, CODEC), HOW(ZSTD, 0)},
	};

	check_lies(CKPT_SECTION_CHUNKS, lies, ARRAY_LEN(lies));
}
END_TEST

START_TEST(a_base_that_cannot_be_is_refused)
{
	static const struct lie lies[] = {
		{AT(E_BASE, LEN), LEN - 1},
		{AT(E_BASE, LEN), 0},
		{AT(F_BASE, LEN), LEN + 1},
		{AT(M_BASE, LEN), 2 * LEN}, // then the other is left over
		{AT(M_BASE, LEN), LEN - 1},
		{AT(N_BASE, LEN), LEN + 1},
		{AT(N_AGAIN_BASE, LEN), UINT32_MAX},
		{AT(E_BASE, BASE), 0},
		{AT(E_BASE, BASE), E_BASE + 1}, // itself
		{AT(E_BASE, BASE), M_BASE + 1},
		{AT(F_BASE, BASE), E_BASE + 1},
		{AT(F_BASE, CODEC), HOW(DELTA, 4)}, // too deep
		{AT(F_BASE, CODEC), HOW(ROUND, 2)},
		{AT(M_BASE, CODEC), HOW(DELTA, 4)},
		{AT(M_BASE, BASE), 1},
		{AT(M_BASE, PACK), CHUNK_NO_PACK},
		{AT(M_BASE, PACK), 6},
		{AT(M_BASE, OFFSET), 9101},
		{AT(N_BASE, OFFSET) + 4, UINT32_MAX},
		{AT(N_BASE, STORED), 0},
		{AT(N_BASE, STORED), LEN + 1},
		{AT(N_BASE, ZERO), 1},
	};

	check_lies(CKPT_SECTION_BASES, lies, ARRAY_LEN(lies));
}
END_TEST

static void check_ids(uint8_t *to, const uint8_t *from)
{
	uint8_t was[CKPT_SHA256_LEN];

	memcpy(was, to, sizeof(was));
	memcpy(to, from, sizeof(was));
	ck_error(try_it(), EBADMSG);
	memcpy(to, was, sizeof(was));
	ck_ok(try_it());
}

START_TEST(a_chunk_that_is_its_own_base_is_refused)
{
	uint8_t *chunks = rows(CKPT_SECTION_CHUNKS), *bases = rows(CKPT_SECTION_BASES);

	check_ids(bases + E_BASE * CHUNK_BYTES, chunks + D_ROW * CHUNK_BYTES);
	check_ids(bases + F_BASE * CHUNK_BYTES, chunks + D_ROW * CHUNK_BYTES); // by way of the other
	check_ids(bases + F_BASE * CHUNK_BYTES, bases + E_BASE * CHUNK_BYTES);
	check_ids(bases + M_BASE * CHUNK_BYTES, chunks + W_ROW * CHUNK_BYTES);
	check_ids(bases + N_AGAIN_BASE * CHUNK_BYTES, chunks + W_ROW * CHUNK_BYTES);
}
END_TEST

// The same bytes twice are fine.
START_TEST(an_id_of_two_lengths_is_refused)
{
	uint8_t *bases = rows(CKPT_SECTION_BASES), *m = bases + M_BASE * CHUNK_BYTES, *n = bases + N_BASE * CHUNK_BYTES;

	ckpt_put32(m + CHUNK_LEN, LEN - 1);
	ckpt_put32(n + CHUNK_LEN, LEN + 1);
	check_ids(n, m);
	ckpt_put32(m + CHUNK_LEN, LEN);
	ckpt_put32(n + CHUNK_LEN, LEN);
	memcpy(n, m, CKPT_SHA256_LEN);
	ck_ok(try_it());
}
END_TEST

START_TEST(a_chunk_with_a_base_is_no_longer_than_it_may_be)
{
	const struct ckpt_encoded delta = {CKPT_CODEC_DELTA, 4, 900}, rounded = {CKPT_CODEC_ROUND, 2, 900},
				  wide = {CKPT_CODEC_ROUND, 4, 900};

	ck_assert(ckpt_encoded_ok(&delta, CKPT_BASED_BYTES_MAX) && ckpt_encoded_ok(&rounded, CKPT_BASED_BYTES_MAX));
	ck_assert(!ckpt_encoded_ok(&delta, CKPT_BASED_BYTES_MAX + 1));
	ck_assert(!ckpt_encoded_ok(&rounded, CKPT_BASED_BYTES_MAX + 1));
	ck_assert(!ckpt_encoded_ok(&rounded, 900) && !ckpt_encoded_ok(&wide, LEN));
}
END_TEST

// All else is right: d is beside e, that beside f, that beside the m that w had, and the others have one less.
START_TEST(a_base_that_is_too_deep_is_refused)
{
	uint8_t *chunks = rows(CKPT_SECTION_CHUNKS), *bases = rows(CKPT_SECTION_BASES);

	ckpt_put32(bases + F_BASE * CHUNK_BYTES + CHUNK_CODEC, HOW(DELTA, 4));
	ckpt_put32(bases + F_BASE * CHUNK_BYTES + CHUNK_BASE, M_BASE + 1);
	ckpt_put32(chunks + W_ROW * CHUNK_BYTES + CHUNK_BASE, N_BASE + 1);
	ckpt_put32(chunks + AGAIN_ROW * CHUNK_BYTES + CHUNK_BASE, N_AGAIN_BASE + 1);
	ckpt_put32(chunks + AGAIN_ROW * CHUNK_BYTES + CHUNK_CODEC, HOW(DELTA, 2));
	ck_error(try_it(), EBADMSG);
}
END_TEST

START_TEST(a_row_that_is_left_over_is_refused)
{
	uint8_t *again = rows(CKPT_SECTION_CHUNKS) + AGAIN_ROW * CHUNK_BYTES;

	ckpt_put32(again + CHUNK_CODEC, HOW(ZSTD, 0));
	ckpt_put32(again + CHUNK_BASE, 0);
	ck_error(try_it(), EBADMSG);
}
END_TEST

enum { REQUIRED = 16 }; // the features, in the header

// The same sections, with so many bytes of bases.
static int try_rows(size_t bytes)
{
	static const uint32_t types[] = {CKPT_SECTION_ENTRIES,    CKPT_SECTION_INODES, CKPT_SECTION_SESSIONS,
					 CKPT_SECTION_XATTR_SETS, CKPT_SECTION_XATTRS, CKPT_SECTION_STRINGS,
					 CKPT_SECTION_SEALS,      CKPT_SECTION_CHUNKS, CKPT_SECTION_PACKS,
					 CKPT_SECTION_BASES};
	struct ckpt_section sections[ARRAY_LEN(types)];
	void *made;
	size_t made_len;
	int rc;

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		sections[i] = section(types[i]);
	sections[ARRAY_LEN(types) - 1].len = bytes;
	ck_ok(ckpt_container_encode(&ckpt_manifest_kind, ckpt_get64(data + REQUIRED), 0, sections, ARRAY_LEN(types),
				    &made, &made_len));
	rc = ckpt_try_manifest(made, made_len);
	free(made);
	return rc;
}

START_TEST(a_table_of_bases_that_is_too_short_is_refused)
{
	ck_ok(try_rows(BASES * CHUNK_BYTES));
	for (size_t i = 0; i < BASES; i++) {
		ck_error(try_rows(i * CHUNK_BYTES), EBADMSG);
		ck_error(try_rows(i * CHUNK_BYTES + CHUNK_BYTES - 8), EBADMSG);
	}
}
END_TEST

// So that one content has one form.
START_TEST(a_section_that_is_not_as_required_as_it_should_be_is_refused)
{
	enum { TABLE = 40, ROW_BYTES = 24, ROW_FLAGS = 4 };
	uint8_t *flags = data + TABLE + _i * ROW_BYTES + ROW_FLAGS;

	ckpt_put32(flags, !ckpt_get32(flags));
	ckpt_sample_reseal(data, len);
	ck_error(ckpt_try_manifest(data, len), EBADMSG);
}
END_TEST

// Who knows nothing of bases refuses it as newer; and the bit and the section come together.
START_TEST(bases_need_their_feature)
{
	struct ckpt_container_kind older = ckpt_manifest_kind;
	struct ckpt_container c;

	older.required_known = CKPT_MANIFEST_CHUNKS;
	ck_error(ckpt_container_parse(&older, data, len, &c), ENOTSUP);
	ckpt_put64(data + REQUIRED, CKPT_MANIFEST_CHUNKS);
	ck_error(try_it(), EBADMSG);
	ckpt_put64(data + REQUIRED, CKPT_MANIFEST_CHUNKS | CKPT_MANIFEST_DELTA);
	ck_ok(try_it());
}
END_TEST

START_TEST(bases_that_nobody_needs_are_refused)
{
	enum { TABLE = 40, ROW_BYTES = 24, ROW_FLAGS = 4, BASES_ROW = 9 };

	ck_assert_uint_eq(ckpt_get32(data + TABLE + BASES_ROW * ROW_BYTES), CKPT_SECTION_BASES);
	ckpt_put64(data + REQUIRED, CKPT_MANIFEST_CHUNKS);
	ckpt_put32(data + TABLE + BASES_ROW * ROW_BYTES + ROW_FLAGS, 0);
	ck_error(try_it(), EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest base");
	TCase *tcase = tcase_create("base");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_manifest_close);
	tcase_add_test(tcase, chunks_say_what_they_are_decoded_beside);
	tcase_add_test(tcase, one_content_has_one_form);
	tcase_add_test(tcase, what_is_copied_brings_what_it_needs);
	tcase_add_test(tcase, writer_refuses_bases_that_cannot_be);
	tcase_add_test(tcase, writer_refuses_bases_that_are_not_there);
	tcase_add_test(tcase, the_deepest_of_the_bases_counts_wherever_it_is);
	tcase_add_test(tcase, a_chunk_that_lies_about_its_base_is_refused);
	tcase_add_test(tcase, a_base_that_cannot_be_is_refused);
	tcase_add_test(tcase, a_chunk_that_is_its_own_base_is_refused);
	tcase_add_test(tcase, an_id_of_two_lengths_is_refused);
	tcase_add_test(tcase, a_base_that_is_too_deep_is_refused);
	tcase_add_test(tcase, a_row_that_is_left_over_is_refused);
	tcase_add_test(tcase, a_table_of_bases_that_is_too_short_is_refused);
	tcase_add_test(tcase, a_chunk_with_a_base_is_no_longer_than_it_may_be);
	tcase_add_loop_test(tcase, a_section_that_is_not_as_required_as_it_should_be_is_refused, 0, 10);
	tcase_add_test(tcase, bases_need_their_feature);
	tcase_add_test(tcase, bases_that_nobody_needs_are_refused);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
