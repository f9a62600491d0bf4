// Elements out of pieces: boxes of every shape against an array in memory, codecs, and what is damaged or missing.
#include "core/array/decode.h"
#include "core/array/gather.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/catalog_format.h"
#include "core/base/util.h"
#include "core/codec/codec_blosc.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#define ROUNDS 400
#define PLAIN ((size_t)6 << 20) // more than is kept decoded

static struct ckpt_bytes file;
static struct ckpt_catalog *c;
static struct ckpt_catalog_reading reading;
static struct ckpt_gather *g;
static unsigned open_files;

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	(void)arg;
	if (strcmp(path, "file"))
		return -ENOENT;
	open_files++;
	*ret_source = ckpt_bytes_source(&file);
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
	open_files--;
}

static const struct ckpt_catalog_files files = {.open = open_file, .close = close_file};

static void begin(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_catalog_free(c);
	ck_ok(ckpt_catalog_new(&c));
	reading = (struct ckpt_catalog_reading){.catalog = c, .files = &files, .path = "file", .base = "file"};
}

static void end(void)
{
	ckpt_gather_free(g);
	g = NULL;
	ck_assert_uint_eq(open_files, 0);
	ckpt_catalog_free(c);
	c = NULL;
	free(file.data);
	file = (struct ckpt_bytes){0};
}

static void add_array(enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape, const uint8_t *fill, bool big)
{
	const struct ckpt_catalog_entry entry = {.name = "a",
						 .name_len = 1,
						 .format = "test",
						 .dtype = dtype,
						 .big_endian = big,
						 .ndim = ndim,
						 .shape = shape,
						 .fill = fill};

	ck_ok(ckpt_catalog_add(&reading, &entry));
}

static void open_array(void)
{
	ckpt_gather_free(g);
	g = NULL;
	ck_ok(ckpt_gather_new(c, 0, &files, &g));
}

// --- Boxes ------------------------------------------------------------------------------------------------------------------

static uint64_t up_to(uint64_t n)
{
	return (uint64_t)rand() % n;
}

// Cuts of [0, size): the parts of one dimension.
static size_t cut(uint64_t size, uint64_t at[8])
{
	size_t n = 0;

	for (uint64_t from = 0; from < size; n++) {
		at[n] = from;
		from = n == 6 ? size : from + 1 + up_to(size - from);
	}
	at[n] = size;
	return n;
}

// The box of a piece in the file, its dimensions in any order, with gaps. whole: the array, 3 dimensions of u16.
static void put_piece(const uint16_t *whole, const uint64_t *shape, const uint64_t *start, const uint64_t *extent)
{
	uint64_t strides[3], step = 1 + up_to(3), first = up_to(5), last = first;
	unsigned order[3] = {0, 1, 2};
	struct ckpt_piece p = {.file = "file",
			       .offset = file.len,
			       .start = start,
			       .extent = extent,
			       .strides = strides,
			       .first = first};
	uint16_t *stored;

	for (unsigned i = 3; i-- > 1;) {
		unsigned k = (unsigned)up_to(i + 1), was = order[i];

		order[i] = order[k];
		order[k] = was;
	}
	for (unsigned i = 3; i-- > 0;) {
		strides[order[i]] = step;
		last += (extent[order[i]] - 1) * step;
		step *= extent[order[i]] + up_to(2);
	}
	stored = ckpt_calloc(last + 1, 2);
	for (uint64_t x = 0; x < extent[0]; x++)
		for (uint64_t y = 0; y < extent[1]; y++)
			for (uint64_t z = 0; z < extent[2]; z++)
				stored[first + x * strides[0] + y * strides[1] + z * strides[2]] =
					whole[((start[0] + x) * shape[1] + start[1] + y) * shape[2] + start[2] + z];
	p.bytes = (last + 1) * 2;
	ckpt_bytes_add(&file, stored, p.bytes);
	free(stored);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
}

static void put_pieces(const uint16_t *whole, const uint64_t *shape)
{
	uint64_t at[3][8], start[3], extent[3];
	size_t n[3];

	for (unsigned d = 0; d < 3; d++)
		n[d] = cut(shape[d], at[d]);
	for (size_t i = 0; i < n[0] * n[1] * n[2]; i++) {
		size_t k[3] = {i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]};

		for (unsigned d = 0; d < 3; d++) {
			start[d] = at[d][k[d]];
			extent[d] = at[d][k[d] + 1] - start[d];
		}
		put_piece(whole, shape, start, extent);
	}
}

static void check_box(const uint16_t *whole, const uint64_t *shape)
{
	uint64_t start[3], extent[3];
	uint16_t *got;

	for (unsigned d = 0; d < 3; d++) {
		start[d] = up_to(shape[d]);
		extent[d] = up_to(shape[d] - start[d] + 1);
	}
	got = ckpt_calloc(extent[0] * extent[1] * extent[2] + 1, 2);
	ck_ok(ckpt_gather_box(g, start, extent, got));
	for (uint64_t i = 0; i < extent[0] * extent[1] * extent[2]; i++) {
		uint64_t x = start[0] + i / (extent[1] * extent[2]), y = start[1] + i / extent[2] % extent[1],
			 z = start[2] + i % extent[2];

		ck_assert_uint_eq(got[i], whole[(x * shape[1] + y) * shape[2] + z]);
	}
	free(got);
}

static void check_run(const uint16_t *whole, uint64_t elements)
{
	uint64_t first = up_to(elements), count = up_to(elements - first + 1);
	uint16_t *got = ckpt_calloc(count + 1, 2);

	ck_ok(ckpt_gather_run(g, first, count, got));
	ck_assert_mem_eq(got, whole + first, count * 2);
	free(got);
}

START_TEST(boxes_and_runs_of_pieces_that_lie_in_any_order)
{
	srand(11);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t shape[3] = {1 + up_to(9), 1 + up_to(9), 1 + up_to(40)}, all = shape[0] * shape[1] * shape[2];
		uint16_t *whole = ckpt_calloc(all, 2);

		for (uint64_t i = 0; i < all; i++)
			whole[i] = (uint16_t)rand();
		begin();
		add_array(CKPT_DTYPE_U16, 3, shape, NULL, false);
		put_pieces(whole, shape);
		open_array();
		for (int i = 0; i < 5; i++) {
			check_box(whole, shape);
			check_run(whole, all);
		}
		free(whole);
		end();
	}
}
END_TEST

START_TEST(one_element_and_none)
{
	const uint64_t none[2] = {3, 0};
	const struct ckpt_piece p = {.file = "file", .offset = 1, .bytes = 4};
	uint32_t got = 0;

	begin();
	ckpt_bytes_text(&file, "-abcd");
	add_array(CKPT_DTYPE_U32, 0, NULL, NULL, true);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
	ck_ok(ckpt_gather_run(g, 0, 1, &got));
	ck_assert_uint_eq(got, 0x61626364);
	end();
	begin();
	add_array(CKPT_DTYPE_U32, 2, none, NULL, false);
	open_array();
	ck_assert_uint_eq(ckpt_gather_elements(g), 0);
	ck_ok(ckpt_gather_run(g, 0, 0, &got));
	end();
}
END_TEST

// --- What is missing --------------------------------------------------------------------------------------------------------

static void put_row(uint64_t start, uint64_t extent)
{
	const struct ckpt_piece p = {
		.file = "file", .offset = start, .bytes = extent, .start = &start, .extent = &extent};

	ck_ok(ckpt_catalog_add_piece(&reading, &p));
}

START_TEST(a_part_that_is_in_no_piece_is_an_error_or_the_fill)
{
	const uint64_t shape = 10;
	uint8_t got[10], fill = '#';

	for (int filled = 0; filled < 2; filled++) {
		begin();
		ckpt_bytes_text(&file, "0123456789");
		add_array(CKPT_DTYPE_U8, 1, &shape, filled ? &fill : NULL, false);
		put_row(0, 3);
		put_row(5, 5);
		open_array();
		ck_ok(ckpt_gather_run(g, 5, 5, got));
		ck_assert_int_eq(ckpt_gather_run(g, 0, 10, got), filled ? 0 : -ENODATA);
		if (filled)
			ck_assert_mem_eq(got, "012##56789", 10);
		end();
	}
}
END_TEST

// Their elements are as many as there should be.
START_TEST(a_piece_that_comes_twice_hides_no_gap)
{
	const uint64_t shape = 10;
	uint8_t got[10];

	begin();
	ckpt_bytes_text(&file, "0123456789");
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	put_row(0, 5);
	put_row(0, 5);
	open_array();
	ck_assert_int_eq(ckpt_gather_run(g, 0, 10, got), -ENODATA);
	ck_ok(ckpt_gather_run(g, 0, 5, got));
	ck_assert_mem_eq(got, "01234", 5);
	end();
}
END_TEST

START_TEST(a_file_that_is_gone_or_short_is_an_error)
{
	const uint64_t shape = 10;
	struct ckpt_piece gone = {.file = "gone", .bytes = 10};
	uint8_t got[10];

	begin();
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &gone));
	open_array();
	ck_assert_int_eq(ckpt_gather_run(g, 0, 1, got), -ENOENT);
	end();
	begin();
	ckpt_bytes_text(&file, "012345678");
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	gone.file = "file";
	gone.bytes = 9;
	ck_ok(ckpt_catalog_add_piece(&reading, &gone));
	open_array();
	ck_assert_int_eq(ckpt_gather_run(g, 0, 1, got), -EBADMSG);
	end();
}
END_TEST

START_TEST(what_has_no_elements_is_refused)
{
	const uint64_t shape = 10;

	for (int i = 0; i < 3; i++) {
		begin();
		add_array(i == 0 ? CKPT_DTYPE_NONE : i == 1 ? CKPT_DTYPE_I4 : CKPT_DTYPE_U8, 1, &shape, NULL, false);
		if (i == 2)
			ck_ok(ckpt_catalog_note(&reading, "of another kind"));
		ck_assert_int_eq(ckpt_gather_new(c, 0, &files, &g), -ENOTSUP);
		end();
	}
}
END_TEST

// --- Codecs -----------------------------------------------------------------------------------------------------------------

static uint8_t *plain;

static uint32_t crc32c(const uint8_t *p, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (; len; len--, p++) {
		crc ^= *p;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
	}
	return ~crc;
}

static void encode_zlib(struct ckpt_bytes *b, int window)
{
	struct ckpt_bytes out = {0};
	z_stream z = {.next_in = b->data, .avail_in = (uInt)b->len};

	ck_assert_int_eq(deflateInit2(&z, 1, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
	ckpt_bytes_fill(&out, deflateBound(&z, b->len) + 64, 1);
	z.next_out = out.data;
	z.avail_out = (uInt)out.len;
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	out.len = z.total_out;
	deflateEnd(&z);
	free(b->data);
	*b = out;
}

static void encode_zstd(struct ckpt_bytes *b, int window)
{
	struct ckpt_bytes out = {0};
	ZSTD_CCtx *z = ZSTD_createCCtx();

	if (window)
		ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, window);
	ckpt_bytes_fill(&out, ZSTD_compressBound(b->len), 1);
	// In two calls: it does not know how much there is, and keeps the window.
	{
		ZSTD_outBuffer to = {out.data, out.len, 0};
		ZSTD_inBuffer from = {b->data, b->len, 0};

		ck_assert(!ZSTD_isError(ZSTD_compressStream2(z, &to, &from, ZSTD_e_continue)));
		ck_assert_uint_eq(ZSTD_compressStream2(z, &to, &from, ZSTD_e_end), 0);
		out.len = to.pos;
	}
	ZSTD_freeCCtx(z);
	free(b->data);
	*b = out;
}

static void encode_shuffle(struct ckpt_bytes *b, size_t width)
{
	size_t count = b->len / width;
	uint8_t *planes = malloc(b->len + 1);

	memcpy(planes, b->data, b->len);
	for (size_t i = 0; i < count * width; i++)
		planes[i % width * count + i / width] = b->data[i];
	memcpy(b->data, planes, b->len);
	free(planes);
}

// As HDF5's specification has it: of words, the upper byte first.
static uint32_t fletcher32(const uint8_t *p, size_t len)
{
	uint64_t one = 0, two = 0;

	for (size_t i = 0; i < len; i += 2) {
		one += (uint64_t)p[i] << 8 | (i + 1 < len ? p[i + 1] : 0);
		two += one;
		one = one > 65535 ? one - 65535 : one;
		two = two > 65535 ? two % 65535 ? two % 65535 : 65535 : two;
	}
	return (uint32_t)(two << 16 | one);
}

// The codecs are in the order in which they are decoded.
static void put_encoded(size_t len, const enum ckpt_piece_codec *codecs)
{
	struct ckpt_piece p = {.file = "file", .offset = 3};
	struct ckpt_bytes b = {0};
	const uint64_t shape = len;
	int n = 0;

	begin();
	ckpt_bytes_add(&b, plain, len);
	while (n < CKPT_PIECE_CODECS_MAX && codecs[n])
		n++;
	for (int i = n; i-- > 0;) {
		p.codecs[i] = (uint8_t)codecs[i];
		if (codecs[i] == CKPT_PIECE_ZSTD)
			encode_zstd(&b, 0);
		else if (codecs[i] == CKPT_PIECE_CRC32C)
			ckpt_bytes_number(&b, crc32c(b.data, b.len), 4);
		else if (codecs[i] == CKPT_PIECE_FLETCHER32)
			ckpt_bytes_number(&b, fletcher32(b.data, b.len), 4);
		else if (ckpt_piece_shuffle_width(codecs[i]))
			encode_shuffle(&b, ckpt_piece_shuffle_width(codecs[i]));
		else
			encode_zlib(&b, codecs[i] == CKPT_PIECE_GZIP ? 31 : codecs[i] == CKPT_PIECE_ZLIB ? 15 : -15);
	}
	ckpt_bytes_text(&file, "???");
	ckpt_bytes_add(&file, b.data, b.len);
	ckpt_bytes_text(&file, "???");
	p.bytes = b.len;
	free(b.data);
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
}

static const enum ckpt_piece_codec rows[][CKPT_PIECE_CODECS_MAX] = {
	{CKPT_PIECE_ZSTD},
	{CKPT_PIECE_GZIP},
	{CKPT_PIECE_ZLIB},
	{CKPT_PIECE_DEFLATE},
	{CKPT_PIECE_CRC32C},
	{CKPT_PIECE_CRC32C, CKPT_PIECE_ZSTD},
	{CKPT_PIECE_ZSTD, CKPT_PIECE_CRC32C},
	{CKPT_PIECE_CRC32C, CKPT_PIECE_GZIP, CKPT_PIECE_CRC32C, CKPT_PIECE_ZSTD},
	{CKPT_PIECE_FLETCHER32},
	{CKPT_PIECE_FLETCHER32, CKPT_PIECE_ZLIB, CKPT_PIECE_SHUFFLE4},
	{CKPT_PIECE_SHUFFLE2, CKPT_PIECE_FLETCHER32},
	{CKPT_PIECE_SHUFFLE8, CKPT_PIECE_SHUFFLE16, CKPT_PIECE_CRC32C},
};

static void setup_plain(void)
{
	plain = malloc(PLAIN);
	for (size_t i = 0; i < PLAIN; i++)
		plain[i] = (uint8_t)(i % 7 ? i >> 9 : i * 31);
}

static void teardown_plain(void)
{
	free(plain);
}

START_TEST(codecs_are_decoded_from_any_place)
{
	const size_t sizes[] = {1, 3, 4, 5, 70000, PLAIN};
	uint8_t *got = malloc(PLAIN);

	srand(5);
	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		put_encoded(sizes[k], rows[_i]);
		for (int i = 0; i < 6; i++) {
			uint64_t first = up_to(sizes[k]), count = up_to(sizes[k] - first + 1);

			ck_ok(ckpt_gather_run(g, first, count, got));
			ck_assert_mem_eq(got, plain + first, count);
		}
		for (uint64_t at = 0, n; at < sizes[k]; at += n) {
			n = MIN(sizes[k] - at, 1 + up_to(sizes[k] / 3 + 1));
			ck_ok(ckpt_gather_run(g, at, n, got + at));
		}
		ck_assert_mem_eq(got, plain, sizes[k]);
		end();
	}
	free(got);
}
END_TEST

// zstd frames here have no checksum, and zlib's have: a flipped bit is found by a checksum, or what comes out has the wrong length or
// bytes that nobody promised. So only those with a checksum are flipped.
START_TEST(a_flipped_bit_is_found_by_a_checksum)
{
	bool has_sum = rows[_i][0] != CKPT_PIECE_ZSTD || rows[_i][1] == CKPT_PIECE_CRC32C;
	uint8_t *got = malloc(PLAIN);

	if (!has_sum || rows[_i][0] == CKPT_PIECE_DEFLATE)
		return;
	srand(9);
	for (int i = 0; i < 40; i++) {
		size_t len = i % 2 ? 70000 : PLAIN;
		int rc;

		put_encoded(len, rows[_i]);
		// A gzip header has fields that say nothing of the bytes.
		file.data[3 + 10 + up_to(file.len - 6 - 10)] ^= (uint8_t)(1 << up_to(8));
		rc = ckpt_gather_run(g, 0, len, got);
		ck_assert_msg(rc == -EBADMSG || !memcmp(got, plain, len), "%d", rc);
		ck_assert(rc == -EBADMSG || rows[_i][0] == CKPT_PIECE_GZIP);
		end();
	}
	free(got);
}
END_TEST

START_TEST(bytes_that_end_early_are_an_error)
{
	uint8_t *got = malloc(PLAIN);

	for (size_t cut_off = 1; cut_off < 70000; cut_off = cut_off * 3 + 1) {
		struct ckpt_piece p;
		struct ckpt_catalog_array a;
		const uint64_t shape = PLAIN;

		put_encoded(PLAIN, rows[_i]);
		ckpt_catalog_piece(c, 0, 0, &p);
		ckpt_catalog_get(c, 0, &a);
		if (p.bytes <= cut_off) {
			end();
			break;
		}
		p.bytes -= cut_off;
		// The same file, in another catalog.
		ckpt_gather_free(g);
		g = NULL;
		{
			struct ckpt_catalog *whole = c;

			ck_ok(ckpt_catalog_new(&c));
			reading.catalog = c;
			add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
			p.file = "file";
			ck_ok(ckpt_catalog_add_piece(&reading, &p));
			ckpt_catalog_free(whole);
		}
		open_array();
		ck_assert_int_eq(ckpt_gather_run(g, 0, PLAIN, got), -EBADMSG);
		end();
	}
	free(got);
}
END_TEST

// A read that fails once leaves nothing wrong behind: the next one begins anew.
START_TEST(a_read_that_failed_is_made_again)
{
	uint8_t *got = malloc(PLAIN);

	for (uint64_t n = 1;; n += 1 + n / 2) {
		int failed = 0;

		put_encoded(PLAIN, rows[_i]);
		file.fails_at = file.reads + n;
		for (uint64_t at = 0; at < PLAIN; at += 1 << 20) {
			int rc = ckpt_gather_run(g, at, 1 << 20, got);

			ck_assert(!rc || rc == -EIO);
			failed += rc == -EIO;
			if (!rc)
				ck_assert_mem_eq(got, plain + at, 1 << 20);
		}
		end();
		if (!failed)
			break;
	}
	free(got);
}
END_TEST

// 2 elements of a chunk that is nothing but 16 GiB of zeros, a frame of zstd inside of another one.
START_TEST(a_bomb_ends)
{
	enum { PART = 16 << 20 };
	const uint64_t shape[] = {2, 1}, extent[] = {2, 1}, start[] = {0, 0}, strides[] = {(UINT64_C(1) << 34) - 1, 1};
	struct ckpt_piece p = {.file = "file",
			       .codecs = {CKPT_PIECE_ZSTD, CKPT_PIECE_ZSTD},
			       .start = start,
			       .extent = extent,
			       .strides = strides};
	uint8_t *zeros = calloc(1, PART), got[2];
	struct ckpt_bytes frame = {0};

	begin();
	ckpt_bytes_add(&frame, zeros, PART);
	encode_zstd(&frame, 0);
	for (int i = 0; i < 1024; i++)
		ckpt_bytes_add(&file, frame.data, frame.len);
	encode_zstd(&file, 0);
	p.bytes = file.len;
	add_array(CKPT_DTYPE_U8, 2, shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
	ck_assert_int_eq(ckpt_gather_run(g, 0, 2, got), -EFBIG);
	end();
	free(frame.data);
	free(zeros);
}
END_TEST

// A wrong checksum behind a rest of zeros, that takes no memory.
static int read_before_rest(uint64_t rest, uint64_t *ret_read)
{
	static const uint8_t wanted[] = {1, 2, 3, 4};
	const uint64_t shape = sizeof(wanted);
	struct ckpt_piece p = {.file = "file", .codecs = {CKPT_PIECE_CRC32C}};
	uint8_t got[sizeof(wanted)];
	int rc;

	begin();
	ckpt_bytes_add(&file, wanted, sizeof(wanted));
	ckpt_bytes_add(&file, "wrong", 4);
	file.zeros = rest;
	file.zeros_at = sizeof(wanted);
	p.bytes = file.len + rest;
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
	rc = ckpt_gather_run(g, 0, sizeof(wanted), got);
	ck_assert(rc || !memcmp(got, wanted, sizeof(wanted)));
	*ret_read = file.read_end;
	end();
	return rc;
}

START_TEST(a_rest_is_checked_up_to_its_limit)
{
	uint64_t read;

	ck_error(read_before_rest(0, &read), EBADMSG);
	ck_error(read_before_rest(CKPT_DECODE_REST_MAX / 2, &read), EBADMSG);
	ck_ok(read_before_rest(2 * CKPT_DECODE_REST_MAX, &read));
	ck_assert(read >= CKPT_DECODE_REST_MAX && read < CKPT_DECODE_REST_MAX + (1 << 20));
}
END_TEST

START_TEST(pieces_that_come_again_and_again_are_refused)
{
	const uint64_t shape = 1000;

	begin();
	ckpt_bytes_fill(&file, 1000, 1);
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	for (int i = 0; i < 100; i++)
		put_row(0, 1000);
	ck_assert_int_eq(ckpt_gather_new(c, 0, &files, &g), -EFBIG);
	end();
}
END_TEST

// Planes are read whole.
START_TEST(planes_that_are_too_large_are_refused)
{
	const uint64_t shape = 16;
	struct ckpt_piece p = {.file = "file", .codecs = {CKPT_PIECE_DEFLATE, CKPT_PIECE_SHUFFLE4}};
	uint8_t got[16];

	for (uint64_t more = 0; more < 2; more++) {
		begin();
		ckpt_bytes_fill(&file, CKPT_DECODE_SHUFFLE_MAX + more, 1);
		memset(file.data, 0, file.len);
		encode_zlib(&file, -15);
		p.bytes = file.len;
		add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
		ck_ok(ckpt_catalog_add_piece(&reading, &p));
		open_array();
		ck_assert_int_eq(ckpt_gather_run(g, 0, 16, got), more ? -EBADMSG : 0);
		end();
	}
}
END_TEST

// It would take as much memory as the window has.
START_TEST(a_window_that_is_too_large_is_refused)
{
	const uint64_t shape = PLAIN;
	struct ckpt_piece p = {.file = "file", .codecs = {CKPT_PIECE_ZSTD}};
	uint8_t byte;

	begin();
	ckpt_bytes_add(&file, plain, PLAIN);
	encode_zstd(&file, 27);
	p.bytes = file.len;
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
	ck_assert_int_eq(ckpt_gather_run(g, 0, 1, &byte), -EBADMSG);
	end();
}
END_TEST

START_TEST(a_codec_that_is_not_known_is_told)
{
	const uint64_t shape = 4;
	const struct ckpt_piece p = {.file = "file", .bytes = 4, .codecs = {CKPT_PIECE_CODECS}};
	uint8_t got[4];

	begin();
	ckpt_bytes_text(&file, "0123");
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
	ck_assert_int_eq(ckpt_gather_run(g, 0, 4, got), -ENOTSUP);
	end();
}
END_TEST

// A frame of blosc that is no shorter than its bytes, which follow its header.
static int gather_frame(size_t place, uint8_t byte, uint8_t got[8])
{
	static const uint8_t frame[] = {2,  1, 0x22, 4, 8,   0,   0,   0,   8,   0,   0,   0,
					24, 0, 0,    0, '0', '1', '2', '3', '4', '5', '6', '7'};
	const uint64_t shape = 8;
	const struct ckpt_piece p = {.file = "file", .bytes = sizeof(frame), .codecs = {CKPT_PIECE_BLOSC}};
	int rc;

	begin();
	ckpt_bytes_add(&file, frame, sizeof(frame));
	if (place < sizeof(frame))
		file.data[place] = byte;
	add_array(CKPT_DTYPE_U8, 1, &shape, NULL, false);
	ck_ok(ckpt_catalog_add_piece(&reading, &p));
	open_array();
	rc = ckpt_gather_run(g, 0, 8, got);
	end();
	return rc;
}

START_TEST(blosc_is_decoded_where_its_library_is)
{
	static const struct {
		size_t place;
		uint8_t byte;
		int rc;
	} wrong[] = {
		{0, 1, -EBADMSG},   {0, 3, -EBADMSG},   {3, 0, -EBADMSG},    {4, 7, -EBADMSG},    {4, 9, -EBADMSG},
		{7, 255, -EBADMSG}, {7, 4, -ENOTSUP},   {8, 0, -EBADMSG},    {11, 255, -EBADMSG}, {11, 1, -ENOTSUP},
		{12, 23, -EBADMSG}, {12, 25, -EBADMSG}, {15, 255, -EBADMSG},
	};
	uint8_t got[8];

	if (!ckpt_blosc_is_there()) {
		ck_assert_int_eq(gather_frame(SIZE_MAX, 0, got), -ENOTSUP);
		return;
	}
	ck_ok(gather_frame(SIZE_MAX, 0, got));
	ck_assert_mem_eq(got, "01234567", 8);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		ck_assert_msg(gather_frame(wrong[i].place, wrong[i].byte, got) == wrong[i].rc, "row %zu", i);
	for (size_t place = 0; place < 24; place++)
		for (unsigned byte = 0; byte < 256; byte++) {
			int rc = gather_frame(place, (uint8_t)byte, got);

			ck_assert(!rc || rc == -EBADMSG || rc == -ENOTSUP);
		}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("gather");
	TCase *boxes = tcase_create("boxes"), *codecs = tcase_create("codecs");

	tcase_add_test(boxes, boxes_and_runs_of_pieces_that_lie_in_any_order);
	tcase_add_test(boxes, one_element_and_none);
	tcase_add_test(boxes, a_part_that_is_in_no_piece_is_an_error_or_the_fill);
	tcase_add_test(boxes, a_piece_that_comes_twice_hides_no_gap);
	tcase_add_test(boxes, a_file_that_is_gone_or_short_is_an_error);
	tcase_add_test(boxes, what_has_no_elements_is_refused);
	tcase_add_test(boxes, pieces_that_come_again_and_again_are_refused);
	suite_add_tcase(s, boxes);
	tcase_add_checked_fixture(codecs, setup_plain, teardown_plain);
	tcase_add_loop_test(codecs, codecs_are_decoded_from_any_place, 0, ARRAY_LEN(rows));
	tcase_add_loop_test(codecs, a_flipped_bit_is_found_by_a_checksum, 0, ARRAY_LEN(rows));
	tcase_add_loop_test(codecs, bytes_that_end_early_are_an_error, 0, ARRAY_LEN(rows));
	tcase_add_loop_test(codecs, a_read_that_failed_is_made_again, 0, ARRAY_LEN(rows));
	tcase_add_test(codecs, a_bomb_ends);
	tcase_add_test(codecs, a_rest_is_checked_up_to_its_limit);
	tcase_add_test(codecs, blosc_is_decoded_where_its_library_is);
	tcase_add_test(codecs, planes_that_are_too_large_are_refused);
	tcase_add_test(codecs, a_window_that_is_too_large_is_refused);
	tcase_add_test(codecs, a_codec_that_is_not_known_is_told);
	suite_add_tcase(s, codecs);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
