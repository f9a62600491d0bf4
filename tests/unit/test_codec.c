// core/codec/codec.h: what is stored of a chunk gives its bytes again, whatever they are, and hostile bytes give none beyond them.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/limits.h"

#include <stdio.h>
#include <sys/mman.h>

#define MANY (600u << 10) // bytes: pieces that are full, and one that is not
#define GUARD 64u         // bytes behind a buffer that nobody may write

static uint64_t state;

static uint64_t dice(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void setup(void)
{
	state = 88172645463325252u;
}

// About as weights are: the sum of some small numbers.
static float weight(void)
{
	int32_t sum = 0;

	for (int i = 0; i < 6; i++)
		sum += (int32_t)(dice() & 0xffff) - 0x8000;
	return (float)sum * 1e-6f;
}

// --- Samples ----------------------------------------------------------------------------------------------------------

static void fill_fp32(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4)
		memcpy(to + i, &(float){weight()}, 4);
}

static void fill_bf16(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 2 <= bytes; i += 2) {
		float x = weight();

		memcpy(to + i, (const uint8_t *)&x + 2, 2);
	}
}

// Sign, 5 bits of exponent, 10 of mantissa; made by hand as not every compiler has the type.
static void fill_fp16(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 2 <= bytes; i += 2)
		ckpt_put16(to + i,
			   (uint16_t)((dice() & 0x83ff) | (uint64_t)(10 - __builtin_ctzll(dice() | 256)) << 10));
}

static void fill_fp64(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8)
		memcpy(to + i, &(double){weight() * (1 + (double)dice() * 0x1p-90)}, 8);
}

static void fill_squares(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		float x = weight();

		memcpy(to + i, &(float){x * x}, 4);
	}
}

static void fill_int8(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)(int8_t)(weight() * 200);
}

static void fill_fp8(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)((dice() & 0x87) | (uint64_t)(9 - __builtin_ctzll(dice() | 64)) << 3);
}

static void fill_int64(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8)
		ckpt_put64(to + i, dice() % 50000);
}

static void fill_text(uint8_t *to, size_t bytes)
{
	static const char words[] =
		"\"model.layers.12.self_attn.q_proj.weight\": {\"dtype\": \"BF16\", \"shape\": [4096, 4096]}, ";

	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)words[i % (sizeof(words) - 1)];
	for (size_t i = 0; i < bytes; i += 40)
		to[i] = (uint8_t)('0' + dice() % 10);
}

static void fill_noise(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)dice();
}

static void fill_zeros(uint8_t *to, size_t bytes)
{
	memset(to, 0, bytes);
}

static void fill_ones(uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4)
		memcpy(to + i, &(float){1}, 4);
}

// What no arithmetic would keep: NaNs with payloads, infinities, both zeros, denormals.
static void fill_odd_floats(uint8_t *to, size_t bytes)
{
	static const uint32_t odd[] = {0x7fc00000, 0xffc12345, 0x7f800001, 0xff800000, 0x7f800000, 0,
				       0x80000000, 1,          0x807fffff, 0x00800000, 0xffffffff, 0x7fffffff};

	for (size_t i = 0; i + 4 <= bytes; i += 4)
		ckpt_put32(to + i, odd[dice() % ARRAY_LEN(odd)] ^ (uint32_t)(dice() % 64 ? 0 : dice()));
}

// Arrays of several types in one chunk, between them a header.
static void fill_mixed(uint8_t *to, size_t bytes)
{
	size_t fifth = bytes / 5 & ~(size_t)15;

	fill_text(to, fifth);
	fill_bf16(to + fifth, fifth);
	fill_fp32(to + 2 * fifth, fifth);
	fill_zeros(to + 3 * fifth, fifth);
	fill_noise(to + 4 * fifth, bytes - 4 * fifth);
}

// Rows that were never used, as of an embedding's moments: zeros, in between something.
static void fill_sparse(uint8_t *to, size_t bytes)
{
	memset(to, 0, bytes);
	for (size_t i = 0; i + 4096 <= bytes; i += 4096 * (1 + dice() % 8))
		fill_fp32(to + i, 4096);
}

// The same noise again, from farther than a probe sees.
static void fill_repeated(uint8_t *to, size_t bytes)
{
	const size_t apart = 800 * 256;

	fill_noise(to, MIN(bytes, apart));
	for (size_t i = apart; i < bytes; i++)
		to[i] = to[i - apart];
}

struct kind {
	const char *name;
	void (*fill)(uint8_t *to, size_t bytes);
	unsigned width;
	double least; // original / stored, of MANY bytes, that it takes no luck to reach
};

static const struct kind kinds[] = {
	{"bf16", fill_bf16, 2, 1.4},         {"fp16", fill_fp16, 2, 1.15},   {"fp32", fill_fp32, 4, 1.15},
	{"squares", fill_squares, 4, 1.15},  {"fp64", fill_fp64, 8, 1.05},   {"int8", fill_int8, 1, 1.1},
	{"fp8", fill_fp8, 1, 1.1},           {"int64", fill_int64, 8, 3.5},  {"text", fill_text, 1, 5},
	{"noise", fill_noise, 4, 1},         {"zeros", fill_zeros, 4, 1000}, {"ones", fill_ones, 4, 1000},
	{"odd", fill_odd_floats, 4, 1.2},    {"mixed", fill_mixed, 2, 1.2},  {"sparse", fill_sparse, 4, 2},
	{"repeated", fill_repeated, 4, 1.5},
};

// --- Round trips ------------------------------------------------------------------------------------------------------

// As encoded, in memory that ends with it: a sanitizer sees whoever reads on.
static uint8_t *encoded(struct ckpt_codec *c, const uint8_t *plain, uint32_t bytes, unsigned width,
			struct ckpt_encoded *ret_how)
{
	uint8_t *out = malloc(bytes), *exact;

	ck_assert_ptr_nonnull(out);
	ck_ok(ckpt_codec_encode(c, plain, bytes, width, out, ret_how));
	ck_assert_uint_le(ret_how->bytes, bytes);
	exact = malloc(ret_how->bytes);
	ck_assert_ptr_nonnull(exact);
	memcpy(exact, out, ret_how->bytes);
	free(out);
	return exact;
}

// Returns original / stored.
static double assert_round_trip(struct ckpt_codec *c, const uint8_t *plain, uint32_t bytes, unsigned width)
{
	struct ckpt_encoded how = {0};
	CLEANUP_FREE uint8_t *stored = encoded(c, plain, bytes, width, &how), *back = malloc(bytes + GUARD);

	ck_assert_ptr_nonnull(back);
	memset(back, 0x5a, bytes + GUARD);
	ck_ok(ckpt_codec_decode(c, &how, stored, back, bytes));
	ck_assert_mem_eq(back, plain, bytes);
	for (size_t i = 0; i < GUARD; i++)
		ck_assert_uint_eq(back[bytes + i], 0x5a);
	ck_assert_ptr_nonnull(ckpt_codec_name(how.codec));
	return (double)bytes / how.bytes;
}

static struct ckpt_codec *new_codec(void)
{
	struct ckpt_codec *c = NULL;

	ck_ok(ckpt_codec_new(&c));
	return c;
}

static uint8_t *filled(const struct kind *k, size_t bytes)
{
	uint8_t *plain = calloc(1, bytes);

	ck_assert_ptr_nonnull(plain);
	k->fill(plain, bytes);
	return plain;
}

START_TEST(arrays_become_smaller_and_come_back)
{
	const struct kind *k = &kinds[_i];
	CLEANUP_FREE uint8_t *plain = filled(k, MANY);
	struct ckpt_codec *c = new_codec();
	double ratio = assert_round_trip(c, plain, MANY, k->width), found = assert_round_trip(c, plain, MANY, 0);

	ck_assert_msg(ratio >= k->least, "%s: %.3f, not %.3f", k->name, ratio, k->least);
	ck_assert_msg(found >= k->least, "%s, of unknown width: %.3f, not %.3f", k->name, found, k->least);
	ckpt_codec_free(c);
}
END_TEST

START_TEST(any_length_comes_back)
{
	static const uint32_t lengths[] = {1,      2,      3,      4,      5,      7,      8,     9,    15,    16,
					   17,     31,     33,     63,     65,     100,    127,   128,  129,   255,
					   257,    1000,   2047,   2048,   2049,   4095,   4097,  8191, 65535, 65537,
					   131071, 131073, 262143, 262144, 262145, 262147, 524289};
	const struct kind *k = &kinds[_i];
	CLEANUP_FREE uint8_t *plain = filled(k, lengths[ARRAY_LEN(lengths) - 1] + 8);
	struct ckpt_codec *c = new_codec();

	for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
		for (unsigned width = 0; width <= CKPT_CODEC_WIDTH_MAX; width = width ? 2 * width : 1)
			assert_round_trip(c, plain + dice() % 8, lengths[i], width);
	ckpt_codec_free(c);
}
END_TEST

START_TEST(an_array_that_begins_anywhere_is_found)
{
	const struct kind *k = &kinds[_i];
	CLEANUP_FREE uint8_t *plain = filled(k, MANY);
	struct ckpt_codec *c = new_codec();

	for (unsigned at = 0; at < 8; at++) {
		double ratio = assert_round_trip(c, plain + at, MANY - 8, k->width);

		ck_assert_msg(ratio >= k->least, "%s from byte %u: %.3f, not %.3f", k->name, at, ratio, k->least);
	}
	ckpt_codec_free(c);
}
END_TEST

START_TEST(the_largest_chunk_comes_back)
{
	CLEANUP_FREE uint8_t *plain = malloc(CKPT_CHUNK_BYTES_MAX);
	struct ckpt_codec *c = new_codec();

	ck_assert_ptr_nonnull(plain);
	fill_mixed(plain, CKPT_CHUNK_BYTES_MAX);
	ck_assert_double_ge(assert_round_trip(c, plain, CKPT_CHUNK_BYTES_MAX, 0), 1.2);
	ckpt_codec_free(c);
}
END_TEST

// --- Hostile bytes ----------------------------------------------------------------------------------------------------

// Bytes that end with a page which nobody may touch: whoever goes on reading or writing ends there, without a sanitizer too.
#define FENCED_MAX (1u << 20)

enum fence { FOR_STORED, FOR_PLAIN, FENCES };

// The same again in each call; `which` tells apart what is needed at once.
static uint8_t *fenced(enum fence which, size_t bytes)
{
	static uint8_t *all[FENCES];

	ck_assert_uint_le(bytes, FENCED_MAX);
	if (!all[which]) {
		all[which] = mmap(NULL, FENCED_MAX + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert(all[which] != MAP_FAILED);
		ck_ok(mprotect(all[which], FENCED_MAX, PROT_READ | PROT_WRITE));
	}
	return all[which] + FENCED_MAX - bytes;
}

// -EBADMSG, or other bytes; nothing behind them is written, and nothing behind what is stored is read.
static int decode_hostile(struct ckpt_codec *c, const struct ckpt_encoded *how, const uint8_t *stored, uint32_t bytes)
{
	uint8_t *exact = fenced(FOR_STORED, how->bytes);
	int rc;

	memcpy(exact, stored, how->bytes);
	rc = ckpt_codec_decode(c, how, exact, fenced(FOR_PLAIN, bytes), bytes);
	ck_assert(rc == 0 || rc == -EBADMSG);
	return rc;
}

START_TEST(truncated_or_longer_is_refused)
{
	const struct kind *k = &kinds[_i];
	const uint32_t bytes = 5000;
	CLEANUP_FREE uint8_t *plain = filled(k, bytes);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {0};
	CLEANUP_FREE uint8_t *stored = encoded(c, plain, bytes, k->width, &how);
	CLEANUP_FREE uint8_t *longer = calloc(1, how.bytes + 1);

	ck_assert_ptr_nonnull(longer);
	memcpy(longer, stored, how.bytes);
	for (uint32_t n = 0; n < how.bytes; n++) {
		struct ckpt_encoded shorter = how;

		shorter.bytes = n;
		ck_error(decode_hostile(c, &shorter, stored, bytes), EBADMSG);
	}
	how.bytes++;
	ck_error(decode_hostile(c, &how, longer, bytes), EBADMSG);
	how.bytes--;
	if (strcmp(k->name, "zeros") && strcmp(k->name, "sparse")) { // of zeros at the end it is not said how many
		ck_error(decode_hostile(c, &how, stored, bytes - 1), EBADMSG);
		ck_error(decode_hostile(c, &how, stored, bytes + 1), EBADMSG);
	}
	ckpt_codec_free(c);
}
END_TEST

START_TEST(a_changed_bit_writes_nowhere_else)
{
	const struct kind *k = &kinds[_i];
	const uint32_t bytes = 3000;
	CLEANUP_FREE uint8_t *plain = filled(k, bytes);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {0};
	CLEANUP_FREE uint8_t *stored = encoded(c, plain, bytes, k->width, &how);

	for (uint32_t bit = 0; bit < 8 * how.bytes; bit++) {
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
		decode_hostile(c, &how, stored, bytes);
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ckpt_codec_free(c);
}
END_TEST

START_TEST(what_is_stored_is_not_taken_for_another_codec)
{
	CLEANUP_FREE uint8_t *plain = filled(&kinds[0], 5000);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {0};
	CLEANUP_FREE uint8_t *stored = encoded(c, plain, 5000, 2, &how);

	ck_assert_int_eq(how.codec, CKPT_CODEC_PLANES);
	for (unsigned codec = 0; codec < 300; codec++) {
		for (unsigned width = 0; width < 300; width++) {
			struct ckpt_encoded other = {(enum ckpt_codec_id)codec, width, how.bytes};

			if (codec != CKPT_CODEC_PLANES || width != 2)
				ck_error(decode_hostile(c, &other, stored, 5000), EBADMSG);
		}
	}
	ckpt_codec_free(c);
}
END_TEST

START_TEST(names_are_said_of_codecs_only)
{
	static const char *const names[] = {"none", "zstd", "planes", "delta", "round"};

	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		ck_assert_str_eq(ckpt_codec_name((enum ckpt_codec_id)i), names[i]);
	ck_assert_ptr_null(ckpt_codec_name((enum ckpt_codec_id)ARRAY_LEN(names)));
	ck_assert_ptr_null(ckpt_codec_name((enum ckpt_codec_id) - 1));
}
END_TEST

// --- Beside a base ----------------------------------------------------------------------------------------------------

// A training step later: some rate of change, and what decays.
static void fill_next(const uint8_t *base, uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		float x;

		memcpy(&x, base + i, 4);
		x = x * 0.999f + weight() * 0.001f;
		memcpy(to + i, &x, 4);
	}
}

static void fill_rounded(const uint8_t *base, uint8_t *to, size_t bytes)
{
	for (size_t i = 0; i + 2 <= bytes; i += 2) {
		uint32_t x = ckpt_get32(base + 2 * i);

		ckpt_put16(to + i, (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16));
	}
}

static double assert_based(struct ckpt_codec *c, const uint8_t *plain, uint32_t bytes, unsigned width,
			   enum ckpt_codec_id with, const uint8_t *base, struct ckpt_encoded *ret_how)
{
	CLEANUP_FREE uint8_t *stored = malloc(bytes), *back = malloc(bytes + GUARD);
	struct ckpt_encoded how = {0};

	ck_assert(stored && back);
	memset(back, 0x5a, bytes + GUARD);
	ck_ok(ckpt_codec_encode_beside(c, plain, bytes, width, with, base, stored, &how));
	ck_ok(ckpt_codec_decode_beside(c, &how, stored, base, back, bytes));
	ck_assert_mem_eq(back, plain, bytes);
	for (size_t i = 0; i < GUARD; i++)
		ck_assert_uint_eq(back[bytes + i], 0x5a);
	*ret_how = how;
	return (double)bytes / how.bytes;
}

START_TEST(a_step_beside_the_one_before_is_smaller)
{
	CLEANUP_FREE uint8_t *base = malloc(MANY), *next = malloc(MANY);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how;

	ck_assert(base && next);
	fill_fp32(base, MANY);
	fill_next(base, next, MANY);
	ck_assert_double_ge(assert_based(c, next, MANY, 4, CKPT_CODEC_DELTA, base, &how), 1.5);
	ck_assert_int_eq(how.codec, CKPT_CODEC_DELTA);
	ck_assert_uint_eq(how.width, 4);
	for (size_t i = 0; i + 4 <= MANY; i += 4)
		ckpt_put32(next + i, ckpt_get32(base + i) + (uint32_t)(dice() % 200) - 100);
	ck_assert_double_ge(assert_based(c, next, MANY, 0, CKPT_CODEC_DELTA, base, &how), 3.5);
	memcpy(next, base, MANY);
	ck_assert_double_ge(assert_based(c, next, MANY, 4, CKPT_CODEC_DELTA, base, &how), 10000);
	ckpt_codec_free(c);
}
END_TEST

START_TEST(bf16_beside_their_master_are_next_to_nothing)
{
	CLEANUP_FREE uint8_t *master = malloc(2 * MANY), *rounded = malloc(MANY);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how;

	ck_assert(master && rounded);
	fill_fp32(master, 2 * MANY);
	fill_rounded(master, rounded, MANY);
	ck_assert_double_ge(assert_based(c, rounded, MANY, 2, CKPT_CODEC_ROUND, master, &how), 10000);
	ck_assert_int_eq(how.codec, CKPT_CODEC_ROUND);
	for (size_t i = 0; i + 2 <= MANY; i += 200)
		rounded[i] ^= 1; // some were rounded otherwise
	ck_assert_double_ge(assert_based(c, rounded, MANY, 0, CKPT_CODEC_ROUND, master, &how), 10);
	ckpt_codec_free(c);
}
END_TEST

// Whatever the base is, and with any of them: NaNs, integers, nothing in common.
START_TEST(any_base_gives_the_bytes_back)
{
	static const uint32_t lengths[] = {1, 2, 3, 5, 8, 17, 100, 1001, 20000};
	const struct kind *k = &kinds[_i];
	CLEANUP_FREE uint8_t *plain = filled(k, 530000);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how;

	for (size_t other = 0; other < ARRAY_LEN(kinds); other++) {
		CLEANUP_FREE uint8_t *base = filled(&kinds[other], 1060000);

		for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
			unsigned at = (unsigned)(dice() % 8);

			for (unsigned width = 0; width <= CKPT_CODEC_WIDTH_MAX; width = width ? 2 * width : 1)
				assert_based(c, plain + at, lengths[i], width, CKPT_CODEC_DELTA, base + at, &how);
			assert_based(c, plain + at, lengths[i], 2, CKPT_CODEC_ROUND, base, &how);
		}
		if (other % 4 == 0)
			assert_based(c, plain, 262144 + 3, 4, CKPT_CODEC_DELTA, base, &how);
	}
	ckpt_codec_free(c);
}
END_TEST

START_TEST(a_base_that_is_missing_is_damage)
{
	CLEANUP_FREE uint8_t *base = malloc(MANY), *next = malloc(MANY), *stored = malloc(MANY);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {0};

	ck_assert(base && next && stored);
	fill_fp32(base, MANY);
	fill_next(base, next, MANY);
	ck_ok(ckpt_codec_encode_beside(c, next, MANY, 4, CKPT_CODEC_DELTA, base, stored, &how));
	ck_error(ckpt_codec_decode(c, &how, stored, next, MANY), EBADMSG);
	how.codec = CKPT_CODEC_PLANES;
	ck_error(ckpt_codec_decode_beside(c, &how, stored, base, next, MANY), EBADMSG);
	ck_assert_uint_eq(ckpt_codec_base_bytes(CKPT_CODEC_DELTA, CKPT_CHUNK_BYTES_MAX), CKPT_CHUNK_BYTES_MAX);
	ck_assert_uint_eq(ckpt_codec_base_bytes(CKPT_CODEC_ROUND, CKPT_CHUNK_BYTES_MAX), 2 * CKPT_CHUNK_BYTES_MAX);
	ck_assert_uint_eq(ckpt_codec_base_bytes(CKPT_CODEC_PLANES, 5), 0);
	ckpt_codec_free(c);
}
END_TEST

// Each bit of a small one, each length: the base is read no further than it goes.
START_TEST(changed_bits_beside_a_base_write_nowhere_else)
{
	enum { BYTES = 1500 };
	enum ckpt_codec_id with = _i ? CKPT_CODEC_ROUND : CKPT_CODEC_DELTA;
	CLEANUP_FREE uint8_t *base = malloc(_i ? 2 * BYTES : BYTES), *plain = malloc(BYTES), *out = malloc(BYTES),
			     *back = malloc(BYTES);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {0};

	ck_assert(base && plain && out && back);
	fill_fp32(base, _i ? 2 * BYTES : BYTES);
	_i ? fill_rounded(base, plain, BYTES) : fill_next(base, plain, BYTES);
	plain[300] ^= 1;
	plain[301] ^= 9;
	ck_ok(ckpt_codec_encode_beside(c, plain, BYTES, _i ? 2 : 4, with, base, out, &how));
	ck_assert_int_eq(how.codec, with);
	CLEANUP_FREE uint8_t *stored = malloc(how.bytes);
	ck_assert_ptr_nonnull(stored);
	memcpy(stored, out, how.bytes);
	for (uint32_t bit = 0; bit < 8 * how.bytes; bit++) {
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
		int rc = ckpt_codec_decode_beside(c, &how, stored, base, back, BYTES);
		stored[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert(rc == 0 || rc == -EBADMSG);
	}
	for (uint32_t n = 0; n < how.bytes; n++) {
		struct ckpt_encoded shorter = {how.codec, how.width, n};
		uint8_t *exact = fenced(FOR_STORED, n);

		memcpy(exact, out, n);
		ck_error(ckpt_codec_decode_beside(c, &shorter, exact, base, back, BYTES), EBADMSG);
	}
	ckpt_codec_free(c);
}
END_TEST

// --- zstd -------------------------------------------------------------------------------------------------------------

// Frames that say they hold more or less than they should, two frames, a frame that can be skipped, one of a dictionary.
START_TEST(forged_frames_are_refused)
{
	enum { BYTES = 100000 };
	CLEANUP_FREE uint8_t *plain = filled(&kinds[8], BYTES), *stored = malloc(2 * BYTES), *back = malloc(BYTES);
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {0}, forged;
	static const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};

	ck_assert(stored && back);
	ck_ok(ckpt_codec_encode(c, plain, BYTES, 1, stored, &how));
	ck_assert_int_eq(how.codec, CKPT_CODEC_ZSTD);
	ck_ok(ckpt_codec_decode(c, &how, stored, back, BYTES));
	// Magic 4, descriptor 1, with one segment, then the content's size.
	ck_assert_uint_eq(stored[4] & 0x20, 0x20);
	for (uint32_t size = BYTES - 1; size <= BYTES + 1; size += 2) {
		uint32_t was = ckpt_get32(stored + 5);

		ckpt_put32(stored + 5, size);
		ck_error(ckpt_codec_decode(c, &how, stored, back, BYTES), EBADMSG);
		ck_error(ckpt_codec_decode(c, &how, stored, back, size < BYTES ? size : BYTES), EBADMSG);
		ckpt_put32(stored + 5, was);
	}
	forged = how;
	forged.bytes += sizeof(skippable);
	memcpy(stored + how.bytes, skippable, sizeof(skippable));
	ck_error(ckpt_codec_decode(c, &forged, stored, back, BYTES), EBADMSG);
	memmove(stored + sizeof(skippable), stored, how.bytes);
	memcpy(stored, skippable, sizeof(skippable));
	ck_error(ckpt_codec_decode(c, &forged, stored, back, BYTES), EBADMSG);
	ckpt_codec_free(c);
}
END_TEST

static bool resident_kib(long *ret_kib)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;
	bool read = f && fscanf(f, "%*d %ld", &pages) == 1;

	if (f)
		fclose(f);
	*ret_kib = pages * (sysconf(_SC_PAGESIZE) >> 10);
	return read;
}

// What says that it is very much larger takes no memory for it.
START_TEST(bombs_take_no_memory)
{
	uint8_t stored[64] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0}, back[1000]; // the size has 8 bytes
	struct ckpt_codec *c = new_codec();
	struct ckpt_encoded how = {CKPT_CODEC_ZSTD, 0, sizeof(stored)};
	long before = 0, after = 0;

	ck_assert(resident_kib(&before));
	for (int i = 0; i < 1000; i++) {
		ckpt_put64(stored + 5, (UINT64_C(1) << (10 + i % 54)) - 1);
		for (unsigned k = 13; k < sizeof(stored); k++)
			stored[k] = (uint8_t)dice();
		ck_error(ckpt_codec_decode(c, &how, stored, back, sizeof(back)), EBADMSG);
	}
	ck_assert(resident_kib(&after));
	ck_assert_int_le(after - before, 16 << 10);
	ckpt_codec_free(c);
}
END_TEST

// --- Never more than others -------------------------------------------------------------------------------------------

START_TEST(never_larger_than_zstd_makes_it)
{
	const struct kind *k = &kinds[_i];
	CLEANUP_FREE uint8_t *plain = filled(k, 3 * MANY), *out = malloc(3 * MANY);
	struct ckpt_codec *c = new_codec();

	ck_assert_ptr_nonnull(out);
	for (unsigned width = 1; width <= CKPT_CODEC_WIDTH_MAX; width *= 2) {
		struct ckpt_encoded how = {0}, zstd = {0};

		ck_ok(ckpt_codec_encode(c, plain, 3 * MANY, 1, out, &zstd)); // bytes are for zstd only
		ck_assert(zstd.codec == CKPT_CODEC_ZSTD || zstd.codec == CKPT_CODEC_NONE);
		ck_ok(ckpt_codec_encode(c, plain, 3 * MANY, width, out, &how));
		ck_assert_msg(how.bytes <= zstd.bytes + 200, "%s, width %u: %u, zstd %u", k->name, width, how.bytes,
			      zstd.bytes);
	}
	ckpt_codec_free(c);
}
END_TEST

static Suite *codec_suite(void)
{
	const int all = (int)ARRAY_LEN(kinds);
	Suite *suite = suite_create("codec");
	TCase *round = tcase_create("round"), *hostile = tcase_create("hostile"), *base = tcase_create("base");

	tcase_add_checked_fixture(round, setup, NULL);
	tcase_add_loop_test(round, arrays_become_smaller_and_come_back, 0, all);
	tcase_add_loop_test(round, any_length_comes_back, 0, all);
	tcase_add_loop_test(round, an_array_that_begins_anywhere_is_found, 0, all);
	tcase_add_loop_test(round, never_larger_than_zstd_makes_it, 0, all);
	tcase_add_test(round, the_largest_chunk_comes_back);
	suite_add_tcase(suite, round);
	tcase_add_checked_fixture(hostile, setup, NULL);
	tcase_add_loop_test(hostile, truncated_or_longer_is_refused, 0, all);
	tcase_add_loop_test(hostile, a_changed_bit_writes_nowhere_else, 0, all);
	tcase_add_test(hostile, what_is_stored_is_not_taken_for_another_codec);
	tcase_add_test(hostile, names_are_said_of_codecs_only);
	tcase_add_test(hostile, forged_frames_are_refused);
	tcase_add_test(hostile, bombs_take_no_memory);
	suite_add_tcase(suite, hostile);
	tcase_add_checked_fixture(base, setup, NULL);
	tcase_add_test(base, a_step_beside_the_one_before_is_smaller);
	tcase_add_test(base, bf16_beside_their_master_are_next_to_nothing);
	tcase_add_loop_test(base, any_base_gives_the_bytes_back, 0, all);
	tcase_add_test(base, a_base_that_is_missing_is_damage);
	tcase_add_loop_test(base, changed_bits_beside_a_base_write_nowhere_else, 0, 2);
	suite_add_tcase(suite, base);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(codec_suite());
}
