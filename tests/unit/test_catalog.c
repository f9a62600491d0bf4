// The catalog of one file: what is refused with its field, what is listed with its reason, limits, and failures. What real
// writers write is compared in tests/interop/test_catalog.py.
#include "tests/support/catalog_read.h"

// --- gguf -------------------------------------------------------------------------------------------------------------

static void gguf_text(const char *s)
{
	ckpt_bytes_number(&file, strlen(s), 8);
	ckpt_bytes_text(&file, s);
}

static void begin_gguf(uint32_t version, uint64_t tensors, uint64_t pairs)
{
	file.len = file.zeros = 0;
	ckpt_bytes_text(&file, "GGUF");
	ckpt_bytes_number(&file, version, 4);
	ckpt_bytes_number(&file, tensors, 8);
	ckpt_bytes_number(&file, pairs, 8);
}

static void gguf_tensor(uint64_t size, uint32_t type, uint64_t offset)
{
	gguf_text("w");
	ckpt_bytes_number(&file, 1, 4);
	ckpt_bytes_number(&file, size, 8);
	ckpt_bytes_number(&file, type, 4);
	ckpt_bytes_number(&file, offset, 8);
	file.zeros_at = file.len;
	file.zeros = 31 + 64;
}

START_TEST(gguf_that_breaks_a_rule_says_where)
{
	begin_gguf(3, 1, 0);
	gguf_tensor(16, 0, 0);
	read_as("a.gguf");
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	ck_assert_ptr_null(array_at(0).why);
	begin_gguf(3, 1, 0);
	gguf_tensor(32, 2, 0);
	read_as("a.gguf");
	ck_assert_str_eq(array_at(0).why, "Q4_0: blocks of 32 elements in 18 bytes");
	begin_gguf(1, 0, 0);
	check_refused("a.gguf", "version", "version 1");
	begin_gguf(3u << 24, 0, 0);
	check_refused("a.gguf", "version", "big-endian");
	begin_gguf(3, 1, 0);
	check_refused("a.gguf", "tensors", "ends");
	begin_gguf(3, 0, UINT64_MAX);
	check_refused("a.gguf", "metadata", "ends");
	begin_gguf(3, UINT64_MAX, 0);
	gguf_tensor(16, 0, 0);
	check_refused("a.gguf", "tensors", "before byte");
	begin_gguf(3, 1, 0);
	gguf_tensor(24, 0, 0);
	check_refused("a.gguf", "offset", "w lies outside");
	begin_gguf(3, 1, 0);
	gguf_tensor(16, 0, UINT64_MAX - 31);
	check_refused("a.gguf", "offset", "w lies outside");
	begin_gguf(3, 1, 0);
	gguf_tensor(33, 2, 0);
	check_refused("a.gguf", "offset", "w lies outside");
	begin_gguf(3, 0, 1);
	gguf_text("general.alignment");
	ckpt_bytes_number(&file, 4, 4);
	ckpt_bytes_number(&file, 0, 4);
	check_refused("a.gguf", "metadata", "rule");
	begin_gguf(3, 0, 1);
	gguf_text("k");
	ckpt_bytes_number(&file, 9, 4);
	for (int i = 0; i < 100; i++) { // arrays in each other
		ckpt_bytes_number(&file, 9, 4);
		ckpt_bytes_number(&file, 1, 8);
	}
	check_refused("a.gguf", "metadata", "rule");
	begin_gguf(3, 0, 1);
	gguf_text("k");
	ckpt_bytes_number(&file, 9, 4);
	ckpt_bytes_number(&file, 12, 4);
	ckpt_bytes_number(&file, UINT64_MAX / 8 + 1, 8);
	check_refused("a.gguf", "metadata", "rule");
}
END_TEST

// Texts without bytes: 8 bytes for each, in a file of 16 TiB of zeros.
START_TEST(a_long_header_of_gguf_is_refused_soon)
{
	begin_gguf(3, 0, 1);
	gguf_text("k");
	ckpt_bytes_number(&file, 9, 4);
	ckpt_bytes_number(&file, 8, 4);
	ckpt_bytes_number(&file, UINT64_C(1) << 40, 8);
	file.zeros_at = file.len;
	file.zeros = UINT64_C(1) << 44;
	check_refused("a.gguf", "metadata", "too long");
}
END_TEST

// --- dcp --------------------------------------------------------------------------------------------------------------

static void begin_object(struct ckpt_bytes *b, const char *class)
{
	ckpt_bytes_text(b, "c");
	ckpt_bytes_text(b, class);
	ckpt_bytes_text(b, "\n)\x81}(");
}

static void pair(struct ckpt_bytes *b, const char *key, int64_t n)
{
	text(b, key);
	number(b, n);
}

static void two(struct ckpt_bytes *b, const char *key, int64_t one, int64_t other)
{
	text(b, key);
	number(b, one);
	number(b, other);
	ckpt_bytes_text(b, "\x86");
}

struct slice {
	const char *path;
	int64_t offset, length, at[2], size[2];
};

// "w" of 2 times 3 float32, in one piece.
static void put_dcp(const struct slice *s)
{
	struct ckpt_bytes b = {0};

	ckpt_bytes_text(&b, "\x80\x02");
	begin_object(&b, "torch.distributed.checkpoint.metadata\nMetadata");
	text(&b, "state_dict_metadata");
	ckpt_bytes_text(&b, "}(");
	text(&b, "w");
	begin_object(&b, "m\nTensorStorageMetadata");
	text(&b, "properties");
	ckpt_bytes_text(&b, "cm\nTensorProperties\n)\x81(ctorch\nfloat32\ntb");
	two(&b, "size", 2, 3);
	text(&b, "chunks");
	ckpt_bytes_text(&b, "](");
	begin_object(&b, "m\nChunkStorageMetadata");
	two(&b, "offsets", s->at[0], s->at[1]);
	two(&b, "sizes", s->size[0], s->size[1]);
	ckpt_bytes_text(&b, "ubeubu");
	text(&b, "storage_data");
	ckpt_bytes_text(&b, "}(");
	begin_object(&b, "m\nMetadataIndex");
	text(&b, "fqn");
	text(&b, "w");
	two(&b, "offset", 0, 0);
	ckpt_bytes_text(&b, "ub");
	begin_object(&b, "m\n_StorageInfo");
	text(&b, "relative_path");
	text(&b, s->path);
	pair(&b, "offset", s->offset);
	pair(&b, "length", s->length);
	ckpt_bytes_text(&b, "ubuub.");
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, b.data, b.len);
	free(b.data);
}

START_TEST(dcp_lists_what_it_cannot_read_with_the_reason)
{
	static const struct {
		struct slice s;
		const char *why;
	} wrong[] = {
		{{"__0_1.distcp", 0, 8, {0, 0}, {2, 3}}, "missing"},
		{{"../s/__0_0.distcp", 0, 8, {0, 0}, {2, 3}}, "missing"},
		{{"/etc/passwd", 0, 8, {0, 0}, {2, 3}}, "missing"},
		{{"__0_0.distcp", 0, 1 << 20, {0, 0}, {2, 3}}, "outside of its file"},
		{{"__0_0.distcp", INT64_MAX, INT64_MAX, {0, 0}, {2, 3}}, "outside of its file"},
		{{"__0_0.distcp", -1, 8, {0, 0}, {2, 3}}, "where"},
		{{"__0_0.distcp", 0, 8, {1, 0}, {1, 3}}, "lacks a piece"},
		{{"__0_0.distcp", 0, 8, {0, 0}, {-1, 3}}, "box"},
	};
	struct ckpt_piece piece;

	put_dcp(&(struct slice){"__0_0.distcp", 4, 8, {0, 0}, {2, 3}});
	read_as("s/.metadata");
	ck_assert_ptr_null(array_at(0).why);
	ck_assert_str_eq(array_at(0).tree, "s");
	ckpt_catalog_piece(c, 0, 0, &piece);
	ck_assert_str_eq(piece.file, "s/__0_0.distcp");
	ck_assert(piece.offset == 4 && piece.bytes == 8 && piece.codecs[0] == CKPT_PIECE_TORCH);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_dcp(&wrong[i].s);
		read_as("s/.metadata");
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
		ck_assert_uint_eq(array_at(0).pieces, 0);
	}
	put_dcp(&(struct slice){"__0_0.distcp", 0, 8, {0, 0}, {3, 3}});
	check_refused("s/.metadata", "box", "w has a piece outside");
	put_torch("\x80\2N.", 4);
	file.len = 0;
	ckpt_bytes_add(&file, "\x80\2N.", 4);
	file.zeros = 0;
	check_refused("s/.metadata", "pickle", "no Metadata");
}
END_TEST

// A hundred thousand pieces whose place stands in one dictionary of as many items.
START_TEST(dcp_that_takes_long_is_refused_soon)
{
	struct ckpt_bytes b = {0};
	struct timespec begin, end;

	ckpt_bytes_add(&b, "\x80\x02}q\0(", 6);
	for (int i = 0; i < 200000; i++)
		ckpt_bytes_add(&b, "K\1K\1", 4);
	text(&b, "fqn");
	text(&b, "w");
	ckpt_bytes_add(&b,
		       "u0cm\nn\n)\x81h\0bq\1"
		       "0",
		       14);
	begin_object(&b, "torch.distributed.checkpoint.metadata\nMetadata");
	text(&b, "storage_data");
	ckpt_bytes_text(&b, "}(");
	for (int i = 0; i < 200000; i++)
		ckpt_bytes_add(&b, "h\1h\1", 4);
	ckpt_bytes_text(&b, "uub.");
	file.len = file.zeros = 0;
	ckpt_bytes_add(&file, b.data, b.len);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	check_refused("s/.metadata", "storage_data", "MetadataIndex");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_int_lt(end.tv_sec - begin.tv_sec, 20);
	free(b.data);
}
END_TEST

// The bytes of a piece are a torch.save(); what is none stays as it is.
START_TEST(a_piece_of_dcp_is_resolved_or_refused)
{
	uint64_t strides[CKPT_ARRAY_DIMS_MAX], shape[] = {1, 2}, start[] = {0, 0};
	struct ckpt_catalog_array a = {.dtype = CKPT_DTYPE_F32, .ndim = 2, .shape = shape};
	struct ckpt_piece piece = {.start = start, .extent = shape, .codecs = {CKPT_PIECE_TORCH}}, was;
	struct ckpt_source source;
	bool big;

	put_tensor(&(struct tensor){"FloatStorage", "0", 2, 0, {1, 2}, {2, 1}});
	source = ckpt_bytes_source(&file);
	piece.bytes = source.bytes;
	was = piece;
	ck_ok(ckpt_piece_resolve(&source, &a, &piece, strides, &big));
	ck_assert(piece.codecs[0] == CKPT_PIECE_RAW && piece.bytes == 8 && !big && strides[0] == 2);
	ck_assert(!memcmp(file.data + piece.offset, "01234567", 8));
	piece = was;
	shape[0] = 2;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	shape[0] = 1;
	a.dtype = CKPT_DTYPE_I32;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	a.dtype = CKPT_DTYPE_F32;
	piece.bytes++;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	piece.bytes -= 2;
	ck_error(ckpt_piece_resolve(&source, &a, &piece, strides, &big), EINVAL);
	ck_assert_int_eq(piece.codecs[0], CKPT_PIECE_TORCH);
}
END_TEST

// --- zarr -------------------------------------------------------------------------------------------------------------

static void put_text(const char *s)
{
	file.len = file.zeros = 0;
	ckpt_bytes_text(&file, s);
}

#define ZARR2(shape, chunks, dtype, more)                                                                              \
	"{\"zarr_format\":2,\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":" dtype                                \
	",\"compressor\":{\"id\":\"zstd\"},\"order\":\"C\",\"fill_value\":0" more "}"
#define ZARR3(shape, chunk, codecs)                                                                                    \
	"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":" shape ",\"data_type\":\"int8\",\"fill_value\":7,"      \
	"\"chunk_key_encoding\":{\"name\":\"default\"},\"chunk_grid\":{\"name\":\"regular\",\"configuration\":"        \
	"{\"chunk_shape\":" chunk "}},\"codecs\":" codecs "}"
#define SHARDED(chunk)                                                                                                 \
	"[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" chunk                                    \
	",\"codecs\":[{\"name\":\"bytes\"}],"                                                                          \
	"\"index_codecs\":[{\"name\":\"bytes\"}]}}]"

START_TEST(zarr_that_breaks_a_rule_says_where)
{
	static const struct {
		const char *path, *json, *field;
	} wrong[] = {
		{"s/.zarray", "", "JSON"},
		{"s/.zarray", "[", "JSON"},
		{"s/.zarray", "{\"zarr_format\":2}", "shape"},
		{"s/.zarray", ZARR2("[-1,2]", "[1,2]", "\"<f4\"", ""), "shape"},
		{"s/.zarray", ZARR2("[4,4]", "[0,2]", "\"<f4\"", ""), "chunks"},
		{"s/.zarray", ZARR2("[4,4]", "[2]", "\"<f4\"", ""), "chunks"},
		{"s/.zarray", ZARR2("[4,4]", "[9223372036854775807,9]", "\"<f4\"", ""), "chunks"},
		{"s/.zarray", ZARR2("[9223372036854775807,9]", "[1,1]", "\"<f4\"", ""), "shape"},
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "4", ""), "dtype"},
		{"s/.zarray", ZARR2("[4]", "[2]", "\"<f4\"", ",\"shape\":[2]"), "JSON"},
		{"s/zarr.json", "{\"zarr_format\":3}", "zarr_format"},
		{"s/zarr.json", ZARR3("[4]", "[4,4]", "[{\"name\":\"bytes\"}]"), "chunk_grid"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "{}"), "codecs"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "[{}]"), "codecs"},
		{"s/zarr.json", ZARR3("[4]", "[4]", SHARDED("[3]")), "sharding_indexed.chunk_shape"},
		{"s/zarr.json", ZARR3("[4]", "[4]", SHARDED("[0]")), "sharding_indexed.chunk_shape"},
		{"s/zarr.json",
		 ZARR3("[4,4]", "[4,4]",
		       "[{\"name\":\"transpose\",\"configuration\":{\"order\":[0,0]}},{\"name\":\"bytes\"}]"),
		 "transpose.order"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_text(wrong[i].json);
		check_refused(wrong[i].path, wrong[i].field, "");
	}
	put_text("{\"zarr_format\":3,\"node_type\":\"group\"}");
	read_as("s/zarr.json");
	ck_assert_uint_eq(ckpt_catalog_count(c) + ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(zarr_lists_what_it_cannot_read_with_the_reason)
{
	static const struct {
		const char *path, *json, *why;
	} wrong[] = {
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "\"<U4\"", ""), "dtype"},
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "[[\"a\",\"<f4\"]]", ""), "no numbers"},
		{"s/.zarray", ZARR2("[4,4]", "[2,2]", "\"<f4\"", ",\"filters\":[{\"id\":\"delta\"}]"), "filters"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "[{\"name\":\"bytes\"},{\"name\":\"own\"}]"), "codec"},
		{"s/zarr.json", ZARR3("[4]", "[4]", "[{\"name\":\"bytes\"}]"), "bytes as its shape"},
		{"s/zarr.json", ZARR3("[4]", "[4]", SHARDED("[2]")), "outside of its file"},
		{"s/zarr.json", ZARR3("[4]", "[400]", SHARDED("[2]")), "shorter than its index"},
		{"s/zarr.json", ZARR3("[4]", "[4294967296]", SHARDED("[1]")), "too many chunks"},
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put_text(wrong[i].json);
		read_as(wrong[i].path);
		ck_assert_msg(array_at(0).why && strstr(array_at(0).why, wrong[i].why), "%zu: %s", i, array_at(0).why);
	}
	put_text(ZARR2("[3,2]", "[2,2]", "\"<f4\"", ""));
	read_as("s/.zarray");
	ck_assert(!array_at(0).why && array_at(0).pieces == 2 && array_at(0).fill);
	ck_assert_str_eq(array_at(0).name, "s");
	read_as(".zarray");
	ck_assert_str_eq(array_at(0).name, ".");
}
END_TEST

// --- All --------------------------------------------------------------------------------------------------------------

static void put_sample(int which)
{
	static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";

	switch (which) {
	case 0:
		ckpt_sample_npy(&file, 1, "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3)}", 24);
		return;
	case 1:
		ckpt_sample_safetensors(&file, header, 8);
		return;
	case 2:
		put_tensor(&(struct tensor){"FloatStorage", "0", 2, 0, {1, 2}, {2, 1}});
		return;
	case 3:
		begin_gguf(3, 1, 0);
		gguf_tensor(16, 0, 0);
		return;
	case 4:
		put_dcp(&(struct slice){"__0_0.distcp", 0, 8, {0, 0}, {2, 3}});
		return;
	case 5:
		put_text(ZARR2("[3,2]", "[2,2]", "\"<f4\"", ""));
		return;
	case 6:
		put_text(ZARR3("[4]", "[4]", SHARDED("[2]")));
		return;
	default:
		put_text("{\"arrays\":[{\"name\":\"w\",\"dtype\":\"i8\",\"shape\":[2,2],"
			 "\"pieces\":[{\"file\":\"0\",\"flat\":[0,3]},{\"file\":\"0\",\"start\":[1,1],\"extent\":[1,1]}"
			 "]}]}");
	}
}

static const char *const paths[] = {"a.npy",       "a.safetensors", "a.pt",        "a.gguf",
				    "s/.metadata", "s/.zarray",     "s/zarr.json", "s/arrays.json"};

START_TEST(what_cannot_be_read_is_told)
{
	for (int which = 0; which < (int)ARRAY_LEN(paths); which++) {
		put_sample(which);
		for (file.fails_at = 1; ckpt_catalog_of_bytes(&file, paths[which], &c); file.fails_at++)
			ck_error(ckpt_catalog_of_bytes(&file, paths[which], &c), EIO);
		ck_assert_uint_gt(file.fails_at, 1);
		ck_assert_uint_eq(ckpt_catalog_count(c), 1);
		ckpt_catalog_free(TAKE_PTR(c));
		file.fails_at = 0;
	}
}
END_TEST

START_TEST(without_memory_nothing_is_said)
{
	for (int which = 0; which < (int)ARRAY_LEN(paths); which++) {
		put_sample(which);
		for (uint64_t n = 1;; n++) {
			int rc;

			ckpt_allocfault_begin(n, false);
			rc = ckpt_catalog_of_bytes(&file, paths[which], &c);
			if (ckpt_allocfault_end() < n) {
				ck_ok(rc);
				ck_assert_uint_eq(ckpt_catalog_count(c), 1);
				ckpt_catalog_free(TAKE_PTR(c));
				break;
			}
			ck_error(rc, ENOMEM);
		}
	}
}
END_TEST

START_TEST(no_file_that_is_cut_off_ends_the_reader)
{
	for (int which = 0; which < (int)ARRAY_LEN(paths); which++) {
		put_sample(which);
		ckpt_bytes_fill(&file, (size_t)file.zeros, 1);
		for (file.zeros = 0; file.len; file.len--)
			read_as(paths[which]);
	}
}
END_TEST

// A file that is refused leaves no trace but its fault, also where it was refused in its midst.
START_TEST(files_that_are_refused_take_nothing_from_the_others)
{
	size_t len;

	begin_gguf(3, 2, 0);
	gguf_tensor(16, 0, 0);
	len = file.len;
	gguf_tensor(16, 0, 1 << 20);
	ck_assert_uint_gt(file.len, len);
	check_refused("a.gguf", "offset", "w lies outside");
}
END_TEST

START_TEST(an_array_of_too_many_bytes_is_listed_with_the_reason)
{
	static const struct {
		uint64_t elements;
		enum ckpt_dtype dtype;
		bool fits;
	} rows[] = {
		{INT64_MAX / 2, CKPT_DTYPE_U8, true},        {(uint64_t)INT64_MAX / 2 + 1, CKPT_DTYPE_U8, false},
		{UINT64_C(1) << 58, CKPT_DTYPE_C128, false}, {(UINT64_C(1) << 58) - 1, CKPT_DTYPE_C128, true},
		{INT64_MAX, CKPT_DTYPE_C128, false},         {INT64_MAX, CKPT_DTYPE_NONE, true},
	};
	struct ckpt_catalog_reading reading = {.path = "f", .base = "f"};

	ck_ok(ckpt_catalog_new(&c));
	reading.catalog = c;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct ckpt_catalog_entry e = {.name = "w",
						     .name_len = 1,
						     .format = "test",
						     .dtype = rows[i].dtype,
						     .ndim = 1,
						     .shape = &rows[i].elements};

		ck_ok(ckpt_catalog_add(&reading, &e));
		ck_assert_msg(!array_at(i).why == rows[i].fits, "row %zu", i);
	}
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
}
END_TEST

START_TEST(codecs_have_names)
{
	for (int i = 0; i < CKPT_PIECE_CODECS; i++)
		ck_assert_str_ne(ckpt_piece_codec_name(i), "?");
	ck_assert_str_eq(ckpt_piece_codec_name(CKPT_PIECE_CODECS), "?");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog");
	TCase *t = tcase_create("catalog");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, gguf_that_breaks_a_rule_says_where);
	tcase_add_test(t, a_long_header_of_gguf_is_refused_soon);
	tcase_add_test(t, dcp_lists_what_it_cannot_read_with_the_reason);
	tcase_add_test(t, dcp_that_takes_long_is_refused_soon);
	tcase_add_test(t, a_piece_of_dcp_is_resolved_or_refused);
	tcase_add_test(t, zarr_that_breaks_a_rule_says_where);
	tcase_add_test(t, zarr_lists_what_it_cannot_read_with_the_reason);
	tcase_add_test(t, what_cannot_be_read_is_told);
	tcase_add_test(t, without_memory_nothing_is_said);
	tcase_add_test(t, no_file_that_is_cut_off_ends_the_reader);
	tcase_add_test(t, files_that_are_refused_take_nothing_from_the_others);
	tcase_add_test(t, an_array_of_too_many_bytes_is_listed_with_the_reason);
	tcase_add_test(t, codecs_have_names);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
