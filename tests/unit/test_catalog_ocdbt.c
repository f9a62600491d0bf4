// The catalog of OCDBT: databases made byte by byte, with each field at its extremes. What TensorStore and Orbax write is compared in
// tests/interop/test_catalog_jax.py.
#include "tests/support/allocfault.h"
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/base/crc32c.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>
#include <time.h>
#include <zstd.h>

enum { MANIFEST, DATA, NEWER, FILES };

static struct ckpt_sample_file files[FILES] = {
	{.path = "s/manifest.ocdbt"}, {.path = "s/d/0"}, {.path = "s/manifest.0000000000000001"}};
static struct ckpt_catalog *c;

static void teardown(void)
{
	for (int i = 0; i < FILES; i++) {
		free(files[i].bytes.data);
		files[i].bytes = (struct ckpt_bytes){0};
	}
	ckpt_catalog_free(TAKE_PTR(c));
}

static void read_all(void)
{
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_files(files, FILES, files[MANIFEST].path, &c));
	ckpt_walk_catalog_of(c, files, FILES);
}

static struct ckpt_catalog_array array_at(size_t i)
{
	struct ckpt_catalog_array a;

	ck_assert_uint_lt(i, ckpt_catalog_count(c));
	ckpt_catalog_get(c, i, &a);
	return a;
}

static void check_refused(const char *field, const char *word)
{
	struct ckpt_catalog_fault f;

	read_all();
	ck_assert_uint_eq(ckpt_catalog_count(c), 0);
	ck_assert_uint_eq(ckpt_catalog_faults(c), 1);
	ckpt_catalog_fault(c, 0, &f);
	ck_assert_str_eq(f.file, files[MANIFEST].path);
	ck_assert_msg(!strcmp(f.field, field) && strstr(f.reason, word), "%s: %s", f.field, f.reason);
}

// --- Writing ----------------------------------------------------------------------------------------------------------

static void varint(struct ckpt_bytes *b, uint64_t n)
{
	for (; n > 127; n >>= 7)
		ckpt_bytes_number(b, (n & 127) | 128, 1);
	ckpt_bytes_number(b, n, 1);
}

// One data file.
static void put_files(struct ckpt_bytes *b, const char *path)
{
	varint(b, 1);
	varint(b, strlen(path));
	varint(b, 0);
	ckpt_bytes_text(b, path);
}

struct root {
	uint64_t kind, versions, height, file, offset, bytes;
	const char *path;
};

static void put_manifest_at(struct ckpt_bytes *to, const struct root *root)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_add(&b, "0123456789abcdef", 16);
	varint(&b, root->kind);
	varint(&b, 100);
	varint(&b, 8 << 20);
	ckpt_bytes_number(&b, 4, 1);
	varint(&b, 1);
	ckpt_bytes_number(&b, 0, 4);
	if (root->kind != 1) {
		put_files(&b, root->path ? root->path : "d/0");
		varint(&b, root->versions);
		for (uint64_t i = 0; i < MIN(root->versions, UINT64_C(1)); i++) {
			varint(&b, 1);
			ckpt_bytes_number(&b, root->height, 1);
			varint(&b, root->file);
			varint(&b, root->offset);
			varint(&b, root->bytes);
			for (int k = 0; k < 3; k++)
				varint(&b, 0);
			ckpt_bytes_number(&b, 0, 8);
		}
		varint(&b, 0);
	}
	to->len = to->zeros = 0;
	ckpt_sample_block(to, CKPT_SAMPLE_MANIFEST, b.data, b.len);
	free(b.data);
}

static void put_manifest(const struct root *root)
{
	put_manifest_at(&files[MANIFEST].bytes, root);
}

struct pair {
	const char *key, *value; // NULL: it is outside, at
	uint64_t offset, bytes;
};

// A node of the data file, of which keys share nothing.
static uint64_t put_leaf(const struct pair *pairs, size_t count)
{
	struct ckpt_bytes b = {0};
	uint64_t begin = files[DATA].bytes.len;

	ckpt_bytes_number(&b, 0, 1);
	put_files(&b, "d/0");
	varint(&b, count);
	for (size_t i = 1; i < count; i++)
		varint(&b, 0);
	for (size_t i = 0; i < count; i++)
		varint(&b, strlen(pairs[i].key));
	for (size_t i = 0; i < count; i++)
		ckpt_bytes_text(&b, pairs[i].key);
	for (size_t i = 0; i < count; i++)
		varint(&b, pairs[i].value ? strlen(pairs[i].value) : pairs[i].bytes);
	for (size_t i = 0; i < count; i++)
		varint(&b, !pairs[i].value);
	for (size_t i = 0; i < count; i++)
		if (!pairs[i].value)
			varint(&b, 0);
	for (size_t i = 0; i < count; i++)
		if (!pairs[i].value)
			varint(&b, pairs[i].offset);
	for (size_t i = 0; i < count; i++)
		if (pairs[i].value)
			ckpt_bytes_text(&b, pairs[i].value);
	ckpt_sample_block(&files[DATA].bytes, CKPT_SAMPLE_NODE, b.data, b.len);
	free(b.data);
	return begin;
}

struct child {
	const char *key;
	uint64_t shared, file, offset, bytes;
};

static uint64_t put_inner(unsigned height, const struct child *children, size_t count)
{
	struct ckpt_bytes b = {0};
	uint64_t begin = files[DATA].bytes.len;

	ckpt_bytes_number(&b, height, 1);
	put_files(&b, "d/0");
	varint(&b, count);
	for (size_t i = 1; i < count; i++)
		varint(&b, 0);
	for (size_t i = 0; i < count; i++)
		varint(&b, strlen(children[i].key));
	for (size_t i = 0; i < count; i++)
		varint(&b, children[i].shared);
	for (size_t i = 0; i < count; i++)
		ckpt_bytes_text(&b, children[i].key);
	for (size_t i = 0; i < count; i++)
		varint(&b, children[i].file);
	for (size_t i = 0; i < count; i++)
		varint(&b, children[i].offset);
	for (size_t i = 0; i < count; i++)
		varint(&b, children[i].bytes);
	for (size_t i = 0; i < 3 * count; i++)
		varint(&b, 0);
	ckpt_sample_block(&files[DATA].bytes, CKPT_SAMPLE_NODE, b.data, b.len);
	free(b.data);
	return begin;
}

#define ZARRAY                                                                                                         \
	"{\"zarr_format\":2,\"shape\":[4],\"chunks\":[2],\"dtype\":\"|i1\",\"compressor\":null,\"order\":\"C\","       \
	"\"fill_value\":0,\"dimension_separator\":\".\"}"

// One leaf, which is the root.
static void put_database(const struct pair *pairs, size_t count)
{
	uint64_t begin;

	files[DATA].bytes.len = files[NEWER].bytes.len = 0;
	ckpt_bytes_text(&files[DATA].bytes, "abcd"); // values that are outside
	begin = put_leaf(pairs, count);
	put_manifest(&(struct root){.versions = 1, .offset = begin, .bytes = files[DATA].bytes.len - begin});
}

static const struct pair good[] = {{"a/.zarray", ZARRAY, 0, 0}, {"a/0", NULL, 1, 2}, {"a/1", "xy", 0, 0}};

// --- Tests ------------------------------------------------------------------------------------------------------------

START_TEST(values_inside_and_outside_of_a_leaf_are_pieces)
{
	struct ckpt_piece p;

	put_database(good, ARRAY_LEN(good));
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert(!array_at(0).why && array_at(0).pieces == 2);
	ck_assert_str_eq(array_at(0).tree, "s");
	ck_assert_str_eq(array_at(0).name, "a");
	ck_assert_str_eq(array_at(0).format, "ocdbt");
	ckpt_catalog_piece(c, 0, 0, &p);
	ck_assert(!p.data && p.offset == 1 && p.bytes == 2 && !strcmp(p.file, "s/d/0"));
	ckpt_catalog_piece(c, 0, 1, &p);
	ck_assert(p.data && !memcmp(p.data, "xy", 2) && p.offset == 0 && p.bytes == 2 && p.start[0] == 2);
}
END_TEST

START_TEST(a_tree_of_nodes_gives_its_keys_their_prefixes)
{
	const struct pair one[] = {{".zarray", ZARRAY, 0, 0}, {"0", "ab", 0, 0}},
			  other[] = {{"b/.zarray", ZARRAY, 0, 0}};
	uint64_t first = put_leaf(one, 2), second = put_leaf(other, 1), end = files[DATA].bytes.len, root;
	const struct child children[] = {{"a/.z", 2, 0, first, second - first}, {"b", 0, 0, second, end - second}};

	root = put_inner(1, children, 2);
	put_manifest(&(struct root){.versions = 1, .height = 1, .offset = root, .bytes = files[DATA].bytes.len - root});
	read_all();
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ck_assert_uint_eq(ckpt_catalog_count(c), 2);
	ck_assert_str_eq(array_at(0).name, "a");
	ck_assert_uint_eq(array_at(0).pieces, 1);
	ck_assert_str_eq(array_at(1).name, "b");
}
END_TEST

START_TEST(an_empty_database_has_no_arrays)
{
	put_manifest(&(struct root){0});
	read_all();
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
	put_manifest(&(struct root){.versions = 1, .offset = UINT64_MAX, .bytes = UINT64_MAX});
	read_all();
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(the_newest_of_numbered_manifests_is_read)
{
	uint64_t begin;

	put_database(good, ARRAY_LEN(good));
	begin = 4;
	put_manifest_at(&files[NEWER].bytes,
			&(struct root){.versions = 1, .offset = begin, .bytes = files[DATA].bytes.len - begin});
	put_manifest(&(struct root){.kind = 1});
	read_all();
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	put_manifest_at(&files[NEWER].bytes, &(struct root){.versions = 0});
	read_all();
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(the_database_of_a_process_is_a_part_of_the_one_above)
{
	struct ckpt_sample_file part[] = {{.path = "s/ocdbt.process_0/manifest.ocdbt"},
					  {.path = "s/ocdbt.process_0/d/0"},
					  {.path = "s/manifest.ocdbt"}};

	put_database(good, ARRAY_LEN(good));
	for (int i = 0; i < 2; i++)
		part[i].bytes = files[i].bytes;
	ck_ok(ckpt_catalog_of_files(part, 3, part[0].path, &c));
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
	ckpt_catalog_free(TAKE_PTR(c));
	ck_ok(ckpt_catalog_of_files(part, 2, part[0].path, &c)); // the save ended before that was written
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_ptr_null(array_at(0).fill);
	ck_assert_str_eq(array_at(0).tree, "s/ocdbt.process_0");
}
END_TEST

START_TEST(a_manifest_that_breaks_a_rule_says_where)
{
	static const struct root wrong[] = {
		{.kind = 2},
		{.kind = UINT64_MAX},
		{.versions = 2},
		{.versions = UINT64_MAX},
		{.versions = 1, .file = 1, .offset = 4, .bytes = 20},
		{.versions = 1, .file = UINT64_MAX, .offset = 4, .bytes = 20},
		{.versions = 1, .offset = UINT64_MAX, .bytes = 20},
		{.versions = 1, .offset = 4, .bytes = UINT64_MAX},
		{.versions = 1, .offset = 4, .bytes = 20, .path = "d/1"},
		{.versions = 1, .offset = 4, .bytes = 20, .path = "../s/d/0"},
		{.versions = 1, .offset = 4, .bytes = 20, .path = "/s/d/0"},
	};
	struct ckpt_bytes *b = &files[MANIFEST].bytes;

	put_database(good, ARRAY_LEN(good));
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_manifest(&wrong[i]);
		check_refused("manifest", "breaks a rule");
	}
	put_database(good, ARRAY_LEN(good));
	for (size_t i = 0; i < b->len; i++) {
		b->data[i] ^= 0x10;
		check_refused("manifest", i < 4 ? "magic" : i < 12 ? "length" : "checksum");
		b->data[i] ^= 0x10;
	}
	b->len--;
	check_refused("manifest", "length");
	b->len = 17;
	check_refused("manifest", "too few");
}
END_TEST

START_TEST(a_node_that_breaks_a_rule_says_where)
{
	struct ckpt_bytes *b = &files[DATA].bytes;
	uint8_t body[] = {0, 1, 3, 0, 'd', '/', '0', 1, 1, 'k', 1, 0, 'v'}; // a leaf: the key k has the value v
	static const struct {
		uint8_t at, byte;
	} wrong[] = {{0, 1},   {0, 255}, {1, 0x80}, {1, 100}, {2, 2},  {2, 200},  {3, 4},  {3, 255}, {7, 0},    {7, 2},
		     {7, 255}, {8, 2},   {8, 0x80}, {10, 0},  {10, 2}, {10, 255}, {11, 1}, {11, 2},  {11, 0x80}};

	for (size_t i = 0; i <= ARRAY_LEN(wrong); i++) {
		uint8_t was = 0;

		if (i) {
			was = body[wrong[i - 1].at];
			body[wrong[i - 1].at] = wrong[i - 1].byte;
		}
		b->len = 0;
		ckpt_sample_block(b, CKPT_SAMPLE_NODE, body, sizeof(body));
		put_manifest(&(struct root){.versions = 1, .bytes = b->len});
		if (i) {
			check_refused("B+tree node", "d/0");
			body[wrong[i - 1].at] = was;
			continue;
		}
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	}
	for (size_t len = 0; len < sizeof(body); len++) {
		b->len = 0;
		ckpt_sample_block(b, CKPT_SAMPLE_NODE, body, len);
		put_manifest(&(struct root){.versions = 1, .bytes = b->len});
		check_refused("B+tree node", "breaks a rule");
	}
	b->data[3] ^= 1;
	check_refused("B+tree node", "magic");
}
END_TEST

START_TEST(keys_that_do_not_rise_are_refused)
{
	const struct pair twice[] = {{"b", "1", 0, 0}, {"b", "2", 0, 0}},
			  falling[] = {{"b", "1", 0, 0}, {"a", "2", 0, 0}};

	put_database(twice, 2);
	check_refused("B+tree", "order");
	put_database(falling, 2);
	check_refused("B+tree", "order");
}
END_TEST

// Each node names the one before twice: 2^200 paths lead to the leaf, which has no key twice as prefixes differ.
START_TEST(many_paths_to_one_node_are_refused_soon)
{
	struct timespec begin, end;
	const struct pair leaf[] = {{"k", "v", 0, 0}};
	uint64_t at, len;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	at = put_leaf(leaf, 1);
	for (unsigned height = 1; height <= 200; height++) {
		const struct child both[] = {{"a", 1, 0, at, files[DATA].bytes.len - at},
					     {"b", 1, 0, at, files[DATA].bytes.len - at}};

		at = put_inner(height, both, 2);
	}
	len = files[DATA].bytes.len - at;
	put_manifest(&(struct root){.versions = 1, .height = 200, .offset = at, .bytes = len});
	check_refused("B+tree", "too many keys");
	// A node that is its own child: its height is another one.
	files[DATA].bytes.len = 0;
	put_inner(1, (struct child[]){{"a", 1, 0, 0, 35}}, 1);
	ck_assert_uint_eq(files[DATA].bytes.len, 35);
	put_manifest(&(struct root){.versions = 1, .height = 1, .bytes = 35});
	check_refused("B+tree node", "breaks a rule");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20); // of a sanitizer on a busy machine
}
END_TEST

// Keys of 60,000 bytes, of which each repeats the one before: two bytes for each in the file.
START_TEST(keys_that_grow_from_prefixes_take_bounded_memory)
{
	struct ckpt_bytes b = {0}, *data = &files[DATA].bytes;
	const unsigned count = 5000;

	ckpt_bytes_number(&b, 0, 1);
	put_files(&b, "d/0");
	varint(&b, count);
	for (unsigned i = 1; i < count; i++)
		varint(&b, 60000 + i - 1);
	varint(&b, 60000);
	for (unsigned i = 1; i < count; i++)
		varint(&b, 1);
	for (unsigned i = 0; i < 60000 + count - 1; i++)
		ckpt_bytes_text(&b, "k");
	for (unsigned i = 0; i < 2 * count; i++)
		varint(&b, 0);
	ckpt_sample_block(data, CKPT_SAMPLE_NODE, b.data, b.len);
	free(b.data);
	put_manifest(&(struct root){.versions = 1, .bytes = data->len});
	check_refused("B+tree", "too many keys");
}
END_TEST

static void put_packed(const void *body, size_t len, bool says_size)
{
	ZSTD_CCtx *encoder = ZSTD_createCCtx();
	size_t room = ZSTD_compressBound(len), n;
	uint8_t *packed = malloc(room);
	struct ckpt_bytes *b = &files[DATA].bytes;
	uint8_t *block;

	ck_assert(encoder && packed);
	ZSTD_CCtx_setParameter(encoder, ZSTD_c_contentSizeFlag, says_size);
	n = ZSTD_compress2(encoder, packed, room, body, len);
	ck_assert(!ZSTD_isError(n));
	b->len = 0;
	ckpt_sample_block(b, CKPT_SAMPLE_NODE, packed, n);
	block = b->data;
	block[13] = 1;
	b->len -= 4;
	ckpt_bytes_number(b, ckpt_crc32c(0, block, b->len), 4);
	put_manifest(&(struct root){.versions = 1, .bytes = b->len});
	ZSTD_freeCCtx(encoder);
	free(packed);
}

START_TEST(a_node_is_decoded_within_a_limit)
{
	const uint8_t body[] = {0, 1, 3, 0, 'd', '/', '0', 1, 1, 'k', 1, 0, 'v'};
	uint8_t *bomb = calloc(1, CKPT_OCDBT_NODE_MAX + 1u);

	ck_assert_ptr_nonnull(bomb);
	for (int says = 0; says < 2; says++) {
		put_packed(body, sizeof(body), says);
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		put_packed(bomb, CKPT_OCDBT_NODE_MAX + 1u, says);
		check_refused("B+tree node", "too large when decoded");
		put_packed(bomb, CKPT_OCDBT_NODE_MAX, says);
		check_refused("B+tree node", "breaks a rule");
	}
	free(bomb);
}
END_TEST

START_TEST(metadata_that_breaks_a_rule_is_listed_beside_the_other_arrays)
{
	static const struct {
		struct pair metadata;
		const char *why;
	} wrong[] = {
		{{"a/.zarray", "", 0, 0}, "JSON"},
		{{"a/.zarray", "{}", 0, 0}, "shape"},
		{{"a/.zarray", "{\"zarr_format\":2,\"shape\":[4],\"chunks\":[0],\"dtype\":\"|i1\"}", 0, 0}, "chunks"},
		{{"a/.zarray",
		  "{\"zarr_format\":2,\"shape\":[9223372036854775807,9],\"chunks\":[1,1],\"dtype\":\"|i1\"}", 0, 0},
		 "shape"},
		{{"a/.zarray", NULL, 0, 4}, "JSON"},
		{{"a/.zarray", NULL, 1, UINT64_MAX}, "JSON"},
		{{"a/zarr.json", "{\"zarr_format\":3,\"node_type\":\"array\"}", 0, 0}, "shape"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		const struct pair pairs[] = {wrong[i].metadata, {"b/.zarray", ZARRAY, 0, 0}, {"b/0", NULL, 0, 2}};

		put_database(pairs, ARRAY_LEN(pairs));
		read_all();
		ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
		ck_assert_uint_eq(ckpt_catalog_count(c), 2);
		ck_assert_str_eq(array_at(0).name, "a");
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
		ck_assert(!array_at(1).why && array_at(1).pieces == 1);
	}
}
END_TEST

START_TEST(a_value_that_lies_elsewhere_is_told)
{
	static const struct pair wrong[] = {
		{"a/0", NULL, 0, UINT64_MAX}, {"a/0", NULL, UINT64_MAX, 2}, {"a/0", NULL, 1 << 20, 2}};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		const struct pair pairs[] = {{"a/.zarray", ZARRAY, 0, 0}, wrong[i]};

		put_database(pairs, 2);
		read_all();
		ck_assert(array_at(0).why && strstr(array_at(0).why, "missing") && !array_at(0).pieces);
	}
	put_database((struct pair[]){{"a/.zarray", ZARRAY, 0, 0}, {"a/0", "x", 0, 0}}, 2);
	read_all();
	ck_assert(array_at(0).why && strstr(array_at(0).why, "bytes as its shape"));
}
END_TEST

START_TEST(what_cannot_be_read_is_told)
{
	put_database(good, ARRAY_LEN(good));
	for (int which = MANIFEST; which <= DATA; which++) {
		uint64_t *fails = &files[which].bytes.fails_at;

		for (*fails = 1; ckpt_catalog_of_files(files, FILES, files[MANIFEST].path, &c); ++*fails)
			ck_error(ckpt_catalog_of_files(files, FILES, files[MANIFEST].path, &c), EIO);
		ck_assert_uint_gt(*fails, 1);
		ck_assert_uint_eq(ckpt_catalog_count(c), 1);
		ckpt_catalog_free(TAKE_PTR(c));
		*fails = 0;
	}
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	put_database(good, ARRAY_LEN(good));
	for (uint64_t n = 1;; n++) {
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_catalog_of_files(files, FILES, files[MANIFEST].path, &c);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			ck_assert_uint_eq(ckpt_catalog_count(c), 1);
			break;
		}
		ck_error(rc, ENOMEM);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_ocdbt");
	TCase *t = tcase_create("catalog_ocdbt");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, values_inside_and_outside_of_a_leaf_are_pieces);
	tcase_add_test(t, a_tree_of_nodes_gives_its_keys_their_prefixes);
	tcase_add_test(t, an_empty_database_has_no_arrays);
	tcase_add_test(t, the_newest_of_numbered_manifests_is_read);
	tcase_add_test(t, the_database_of_a_process_is_a_part_of_the_one_above);
	tcase_add_test(t, a_manifest_that_breaks_a_rule_says_where);
	tcase_add_test(t, a_node_that_breaks_a_rule_says_where);
	tcase_add_test(t, keys_that_do_not_rise_are_refused);
	tcase_add_test(t, many_paths_to_one_node_are_refused_soon);
	tcase_add_test(t, keys_that_grow_from_prefixes_take_bounded_memory);
	tcase_add_test(t, a_node_is_decoded_within_a_limit);
	tcase_add_test(t, metadata_that_breaks_a_rule_is_listed_beside_the_other_arrays);
	tcase_add_test(t, a_value_that_lies_elsewhere_is_told);
	tcase_add_test(t, what_cannot_be_read_is_told);
	tcase_add_test(t, without_memory_nothing_is_said);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
