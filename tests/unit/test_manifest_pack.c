// What a manifest says of files whose bytes are in packs: written in whatever order, and refused where it does not fit.
#include "tests/support/fixture_manifest.h"

#include "core/base/util.h"

#define LEN 1000 // of each chunk

static struct ckpt_pack pack_named(char name, uint64_t bytes)
{
	struct ckpt_pack p = {.bytes = bytes};

	memset(p.id, name, sizeof(p.id));
	return p;
}

static uint32_t add_file(struct ckpt_manifest_writer *w, const char *name, uint64_t ino, enum ckpt_content content,
			 uint64_t bytes)
{
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE,
			       .name = name,
			       .content = content,
			       .ino = ino,
			       .bytes = bytes,
			       .raw_path = "x/y"};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	return handle;
}

static struct ckpt_chunk chunk_in(struct ckpt_manifest_writer *w, char pack, uint64_t offset)
{
	struct ckpt_chunk c = {.bytes = LEN, .offset = offset, .how = {CKPT_CODEC_PLANES, 4, 900}};
	const struct ckpt_pack p = pack_named(pack, 10000);

	memset(c.id, pack + 1, sizeof(c.id));
	ck_ok(ckpt_manifest_writer_pack(w, &p, &c.pack));
	return c;
}

// "cold" with two chunks in two packs, a hard link of it, and "raw", whose first chunk is in a pack, too.
static struct ckpt_manifest_writer *write_sample(bool packs_the_other_way)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	uint32_t cold = add_file(w, "cold", 10, CKPT_CONTENT_CHUNKS, 2 * LEN), raw;
	struct ckpt_pack p = pack_named(packs_the_other_way ? 'q' : 'b', 10000);
	struct ckpt_chunk c;
	uint32_t row;

	add_file(w, "link", 10, CKPT_CONTENT_CHUNKS, 2 * LEN);
	raw = add_file(w, "raw", 11, CKPT_CONTENT_RAW, 2 * LEN);
	ck_ok(ckpt_manifest_writer_pack(w, &p, &row));
	ck_ok(ckpt_manifest_writer_seal(w, cold, CKPT_SAMPLE_SHA256));
	c = chunk_in(w, 'q', 32);
	ck_ok(ckpt_manifest_writer_chunk(w, &c));
	c = chunk_in(w, 'b', 932);
	ck_ok(ckpt_manifest_writer_chunk(w, &c));
	ck_ok(ckpt_manifest_writer_seal(w, raw, CKPT_SAMPLE_SHA256));
	c = chunk_in(w, 'b', 932);
	ck_ok(ckpt_manifest_writer_chunk(w, &c));
	c = (struct ckpt_chunk){.bytes = LEN};
	ck_ok(ckpt_manifest_writer_chunk(w, &c));
	return w;
}

static void setup(void)
{
	ckpt_fixture_manifest_take(write_sample(false));
}

START_TEST(the_writer_says_chunks_where_all_of_them_are_in_packs)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	uint32_t file = add_file(w, "a", 10, CKPT_CONTENT_RAW, LEN);
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct ckpt_chunk c;
	size_t made_len;
	void *made;

	add_file(w, "b", 10, CKPT_CONTENT_RAW, LEN);
	ck_ok(ckpt_manifest_writer_seal(w, file, CKPT_SAMPLE_SHA256));
	c = chunk_in(w, 'b', 932);
	ck_ok(ckpt_manifest_writer_chunk(w, &c));
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	for (uint32_t i = 1; i < 3; i++) {
		ckpt_manifest_entry(m, i, &e);
		ck_assert_int_eq(e.content, CKPT_CONTENT_CHUNKS);
	}
	ck_assert(ckpt_manifest_is_packed(m));
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(files_say_where_their_bytes_are)
{
	struct ckpt_manifest *m = parse();
	struct ckpt_entry e;
	struct ckpt_chunk c;
	struct ckpt_pack p;
	struct ckpt_seal seal;
	uint32_t index;

	ck_assert_uint_eq(ckpt_manifest_pack_count(m), 2);
	ck_assert(ckpt_manifest_is_packed(m) && ckpt_manifest_is_sealed(m));
	ck_ok(ckpt_manifest_lookup(m, "link", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_assert_int_eq(e.content, CKPT_CONTENT_CHUNKS);
	ck_assert_str_eq(e.raw_path, "x/y");
	ck_assert_str_eq(ckpt_manifest_session(m, e.session), CKPT_SAMPLE_SESSION);
	ck_assert(ckpt_manifest_seal(m, index, &seal) && seal.count == 2);
	ckpt_manifest_chunk(m, seal.first, &c);
	ck_assert(c.pack == 2 && c.offset == 32 && c.bytes == LEN && c.how.bytes == 900);
	ck_assert(c.how.codec == CKPT_CODEC_PLANES && c.how.width == 4);
	ckpt_manifest_pack(m, c.pack - 1, &p);
	ck_assert(p.id[0] == 'q' && p.bytes == 10000);
	ckpt_manifest_chunk(m, seal.first + 3, &c); // the second of "raw"
	ck_assert(!c.pack && !c.offset && !c.how.bytes);
	ckpt_walk_manifest(m);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(order_of_the_packs_does_not_matter)
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

START_TEST(finish_or_parse_refuses_a_file_without_its_chunks)
{
	for (int way = 0; way < 2; way++) {
		struct ckpt_manifest_writer *w = ckpt_sample_writer();
		uint32_t file = add_file(w, "cold", 10, CKPT_CONTENT_CHUNKS, LEN);
		const struct ckpt_chunk c = {.bytes = LEN};
		void *made;
		size_t made_len;
		int rc;

		if (way) {
			ck_ok(ckpt_manifest_writer_seal(w, file, CKPT_SAMPLE_SHA256));
			ck_ok(ckpt_manifest_writer_chunk(w, &c));
		}
		rc = ckpt_manifest_writer_finish(w, &made, &made_len);
		ck_assert_int_eq(rc, -EINVAL);
		ckpt_manifest_writer_free(w);
	}
}
END_TEST

START_TEST(writer_refuses_what_cannot_be)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE, .name = "a", .content = CKPT_CONTENT_CHUNKS, .ino = 10};
	const struct ckpt_pack p = pack_named('b', 10000), longer = pack_named('b', 10001);
	struct ckpt_pack other_bytes = p;
	struct ckpt_chunk c = {.bytes = LEN, .pack = 1};
	uint32_t handle;

	ck_ok(ckpt_manifest_writer_session(w, CKPT_SAMPLE_SESSION, &e.session));
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL); // of no bytes
	e.bytes = LEN;
	e.content = (enum ckpt_content)9;
	ck_error(ckpt_manifest_writer_add(w, 0, &e, &handle), EINVAL); // nowhere
	handle = add_file(w, "b", 11, CKPT_CONTENT_CHUNKS, LEN);
	ck_ok(ckpt_manifest_writer_seal(w, handle, CKPT_SAMPLE_SHA256));
	ck_error(ckpt_manifest_writer_chunk(w, &c), EINVAL); // no such pack
	ck_ok(ckpt_manifest_writer_pack(w, &p, &c.pack));
	ck_error(ckpt_manifest_writer_pack(w, &longer, &c.pack), EINVAL);
	other_bytes.digest[31] ^= 1;
	ck_error(ckpt_manifest_writer_pack(w, &other_bytes, &c.pack), EINVAL);
	ckpt_manifest_writer_free(w);
}
END_TEST

START_TEST(the_same_entries_are_so_wherever_the_bytes_are)
{
	struct ckpt_manifest *m = parse(), *other;
	uint8_t *chunks = rows(CKPT_SECTION_CHUNKS);

	// As it was before one chunk of "cold" was in a pack; the rest is not looked at.
	memcpy(chunks, chunks + 3 * CHUNK_BYTES, CHUNK_BYTES);
	entry(1)[ENTRY_CONTENT] = entry(2)[ENTRY_CONTENT] = CKPT_CONTENT_RAW;
	ck_ok(try_it());
	other = parse();
	ck_assert(!ckpt_manifest_is_packed(other));
	ck_assert(ckpt_manifest_same_entries(m, other));
	ckpt_manifest_unref(m);
	ckpt_manifest_unref(other);
}
END_TEST

// One file in the sample's sessions, and what is said of it.
struct said {
	struct ckpt_entry e;
	const char *sessions[2];
	const char *attribute, *value;
};

static struct ckpt_manifest *manifest_of(const struct said *said, bool another)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = said->e, more = {.type = CKPT_ENTRY_FILE, .name = "b", .ino = 11};
	struct ckpt_manifest *m;
	uint32_t handle, session;
	size_t made_len;
	void *made;

	for (size_t i = 0; i < ARRAY_LEN(said->sessions) && said->sessions[i]; i++)
		ck_ok(ckpt_manifest_writer_session(w, said->sessions[i], &session));
	e.name = "a";
	e.ino = 10;
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &handle));
	if (said->attribute)
		ck_ok(ckpt_manifest_writer_xattr(w, handle, said->attribute, said->value, strlen(said->value)));
	if (another) {
		ck_ok(ckpt_manifest_writer_add(w, 0, &more, &handle));
		ck_ok(ckpt_manifest_writer_xattr(w, handle, "user.z", "z", 1));
	}
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	return m;
}

static bool are_the_same(struct ckpt_manifest *a, struct ckpt_manifest *b)
{
	bool same = ckpt_manifest_same_entries(a, b);

	ck_assert_int_eq(ckpt_manifest_same_entries(b, a), same);
	ckpt_manifest_unref(a);
	ckpt_manifest_unref(b);
	return same;
}

#define RAW(path, ...)                                                                                                 \
	{                                                                                                              \
		.type = CKPT_ENTRY_FILE, .content = CKPT_CONTENT_RAW, .bytes = 2, .raw_path = (path), ##__VA_ARGS__    \
	}
// The first of them sorts first, so that the other does not change what the file says of its own.
#define IN_TWO                                                                                                         \
	{                                                                                                              \
		CKPT_SAMPLE_SESSION_2, CKPT_SAMPLE_SESSION                                                             \
	}

START_TEST(entries_that_differ_in_anything_are_not_the_same)
{
	static const struct said is = {RAW("x/y"), IN_TWO, "user.a", "1"};
	static const struct said others[] = {
		{{.type = CKPT_ENTRY_SYMLINK, .target = "xx"}, IN_TWO, "user.a", "1"},
		{RAW("x/y", .mode = 0600), IN_TWO, "user.a", "1"},
		{RAW("x/y", .session = 1), IN_TWO, "user.a", "1"},
		{RAW("x/z"), IN_TWO, "user.a", "1"},
		{RAW("x/yz"), IN_TWO, "user.a", "1"},
		{RAW("x/y"), IN_TWO, "user.b", "1"},
		{RAW("x/y"), IN_TWO, "user.a", "2"},
		{RAW("x/y"), IN_TWO, "user.a", "12"},
		{RAW("x/y"), IN_TWO, NULL, NULL},
		{RAW("x/y"), {CKPT_SAMPLE_SESSION_2}, "user.a", "1"},
		{RAW("x/y"), {CKPT_SAMPLE_SESSION_2, "ffffffff-ffff-4fff-bfff-ffffffffffff"}, "user.a", "1"},
	};
	static const struct said bare = {.e = RAW("x/y"), .sessions = IN_TWO},
				 longer = {.e = RAW("x/yz"), .sessions = IN_TWO};

	ck_assert(are_the_same(manifest_of(&is, false), manifest_of(&is, false)));
	ck_assert(!are_the_same(manifest_of(&bare, false), manifest_of(&longer, false))); // in the last string alone
	ck_assert(are_the_same(manifest_of(&is, true), manifest_of(&is, true)));
	ck_assert(!are_the_same(manifest_of(&is, false), manifest_of(&is, true)));
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		ck_assert_msg(!are_the_same(manifest_of(&is, false), manifest_of(&others[i], false)), "%zu", i);
}
END_TEST

struct attribute {
	const char *name, *value;
	size_t len;
};

// Two empty files with three attributes, so many of them of the first.
static struct ckpt_manifest *attributes_of(const struct attribute *attributes, size_t count, size_t of_first)
{
	struct ckpt_manifest_writer *w = ckpt_sample_writer();
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE, .name = "a", .ino = 10};
	struct ckpt_manifest *m;
	uint32_t first, second;
	size_t made_len;
	void *made;

	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &first));
	e.name = "b";
	e.ino = 11;
	ck_ok(ckpt_manifest_writer_add(w, 0, &e, &second));
	for (size_t i = 0; i < count; i++)
		ck_ok(ckpt_manifest_writer_xattr(w, i < of_first ? first : second, attributes[i].name,
						 attributes[i].value, attributes[i].len));
	ck_ok(ckpt_manifest_writer_finish(w, &made, &made_len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(made, made_len, &m));
	return m;
}

// The strings are the same, byte for byte.
START_TEST(entries_whose_attributes_are_divided_otherwise_are_not_the_same)
{
	static const struct attribute three[] = {{"user.a", "1", 1}, {"user.b", "2", 1}, {"user.c", "3", 1}},
				      early[] = {{"user.a", "1", 1}, {"user.b", "2\0user.c\0003", 10}},
				      late[] = {{"user.a", "1\0user.b\0002", 10}, {"user.c", "3", 1}};

	ck_assert(are_the_same(attributes_of(three, 3, 1), attributes_of(three, 3, 1)));
	ck_assert(!are_the_same(attributes_of(three, 3, 1), attributes_of(three, 3, 2)));
	ck_assert(!are_the_same(attributes_of(early, 2, 1), attributes_of(late, 2, 1)));
}
END_TEST

// --- Damage -------------------------------------------------------------------------------------------------------------

START_TEST(a_packed_chunk_that_cannot_be_is_refused)
{
	static const struct lie lies[] = {
		{CHUNK_OFFSET, 9101},
		{CHUNK_OFFSET + 4, 1},
		{CHUNK_OFFSET + 4, UINT32_MAX},
		{CHUNK_STORED, 0},
		{CHUNK_STORED, LEN},
		{CHUNK_STORED, LEN + 1},
		{CHUNK_PACK, 2},
		{CHUNK_PACK, CHUNK_NO_PACK},
		{CHUNK_BASE, 1},
		{CHUNK_CODEC, 4u << 16 | CKPT_CODEC_NONE},
		{CHUNK_CODEC, 4u << 16 | CKPT_CODEC_ZSTD},
		{CHUNK_CODEC, 4u << 16 | 9},
		{CHUNK_CODEC, CKPT_CODEC_PLANES},
		{CHUNK_CODEC, 1u << 16 | CKPT_CODEC_PLANES},
		{CHUNK_CODEC, 3u << 16 | CKPT_CODEC_PLANES},
		{CHUNK_CODEC, 16u << 16 | CKPT_CODEC_PLANES},
		{CHUNK_ZERO, 1},
	};

	check_lies(CKPT_SECTION_CHUNKS, lies, ARRAY_LEN(lies));
}
END_TEST

// The last chunk, that of a raw file, is in none; and where none is needed, nothing else may be said.
START_TEST(what_is_said_of_a_chunk_in_no_pack_is_refused)
{
	enum { LAST = 3 * CHUNK_BYTES };
	static const struct lie lies[] = {
		{LAST + CHUNK_OFFSET, 1}, {LAST + CHUNK_STORED, 1}, {LAST + CHUNK_CODEC, 1}, {LAST + CHUNK_ZERO, 1}};

	check_lies(CKPT_SECTION_CHUNKS, lies, ARRAY_LEN(lies));
}
END_TEST

START_TEST(a_pack_that_cannot_be_is_refused)
{
	static const struct lie lies[] = {{PACK_ID, 0x7a7a7a7a}, // it would be behind the second
					  {PACK_LEN, 1831},      // the chunk in it goes on to 1832
					  {PACK_LEN + 4, UINT32_MAX},
					  {PACK_ZERO, 1},
					  {PACK_ZERO + 4, 1}};

	check_lies(CKPT_SECTION_PACKS, lies, ARRAY_LEN(lies));
}
END_TEST

START_TEST(a_file_in_packs_without_its_seal_is_refused)
{
	entry(3)[ENTRY_CONTENT] = CKPT_CONTENT_CHUNKS; // one of its chunks is in no pack
	ck_error(try_it(), EBADMSG);
	entry(3)[ENTRY_CONTENT] = CKPT_CONTENT_RAW;
	entry(1)[ENTRY_CONTENT] = entry(2)[ENTRY_CONTENT] = CKPT_CONTENT_RAW; // all of its chunks are
	ck_error(try_it(), EBADMSG);
	entry(1)[ENTRY_CONTENT] = entry(2)[ENTRY_CONTENT] = CKPT_CONTENT_CHUNKS;
	ckpt_put32(rows(CKPT_SECTION_SEALS) + SEAL_ENTRY, 2); // not the first of the hard links
	ck_error(try_it(), EBADMSG);
}
END_TEST

// The feature bit and the section come together.
START_TEST(packs_need_their_feature)
{
	enum { REQUIRED = 16 };

	ckpt_put64(data + REQUIRED, 0);
	ck_error(try_it(), EBADMSG);
	ckpt_put64(data + REQUIRED, CKPT_MANIFEST_CHUNKS | 2);
	ck_error(try_it(), ENOTSUP);
}
END_TEST

// Nor are packs there that who knows nothing of them may skip.
START_TEST(packs_that_nobody_needs_are_refused)
{
	enum { TABLE = 40, ROW_BYTES = 24, ROW_FLAGS = 4, CHUNKS_ROW = 7, PACKS_ROW = 8, REQUIRED = 16 };

	ck_assert_uint_eq(ckpt_get32(data + TABLE + PACKS_ROW * ROW_BYTES), CKPT_SECTION_PACKS);
	ckpt_put64(data + REQUIRED, 0);
	ckpt_put32(data + TABLE + CHUNKS_ROW * ROW_BYTES + ROW_FLAGS, 0);
	ckpt_put32(data + TABLE + PACKS_ROW * ROW_BYTES + ROW_FLAGS, 0);
	ck_error(try_it(), EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest pack");
	TCase *read = tcase_create("read"), *written = tcase_create("written"), *damage = tcase_create("damage");

	tcase_add_checked_fixture(read, setup, ckpt_fixture_manifest_close);
	tcase_add_test(read, files_say_where_their_bytes_are);
	tcase_add_test(read, the_writer_says_chunks_where_all_of_them_are_in_packs);
	tcase_add_test(read, order_of_the_packs_does_not_matter);
	tcase_add_test(read, the_same_entries_are_so_wherever_the_bytes_are);
	tcase_add_test(read, entries_that_differ_in_anything_are_not_the_same);
	tcase_add_test(read, entries_whose_attributes_are_divided_otherwise_are_not_the_same);
	suite_add_tcase(suite, read);
	tcase_add_test(written, finish_or_parse_refuses_a_file_without_its_chunks);
	tcase_add_test(written, writer_refuses_what_cannot_be);
	suite_add_tcase(suite, written);
	tcase_add_checked_fixture(damage, setup, ckpt_fixture_manifest_close);
	tcase_add_test(damage, a_packed_chunk_that_cannot_be_is_refused);
	tcase_add_test(damage, what_is_said_of_a_chunk_in_no_pack_is_refused);
	tcase_add_test(damage, a_pack_that_cannot_be_is_refused);
	tcase_add_test(damage, a_file_in_packs_without_its_seal_is_refused);
	tcase_add_test(damage, packs_need_their_feature);
	tcase_add_test(damage, packs_that_nobody_needs_are_refused);
	suite_add_tcase(suite, damage);
	return ckpt_suite_run(suite);
}
