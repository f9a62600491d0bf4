// The parts of a codec: planes, packed bytes, differences and their bits, samples. Each against a plain model of it.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/codec/codec_differ.h"
#include "core/codec/codec_sample.h"
#include "core/codec/codec_split.h"

enum { COUNT = 1000 };

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
	ckpt_split_plainly = false;
}

static void fill(void *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)dice();
}

// --- Planes -----------------------------------------------------------------------------------------------------------

struct planes {
	uint8_t at[CKPT_PLANES_MAX][COUNT], *into[CKPT_PLANES_MAX];
	const uint8_t *from[CKPT_PLANES_MAX];
};

static void clear_planes(struct planes *p)
{
	for (unsigned i = 0; i < CKPT_PLANES_MAX; i++) {
		memset(p->at[i], 0, COUNT);
		p->into[i] = p->at[i];
		p->from[i] = p->at[i];
	}
}

enum form { INTEGERS, FLOATS, NARROW };

// Returns whether the exponents fit.
static bool split(const uint8_t *plain, uint32_t count, unsigned width, enum form form, bool plainly,
		  struct planes *ret_planes)
{
	bool fits = true;

	clear_planes(ret_planes);
	ckpt_split_plainly = plainly;
	if (form == NARROW)
		fits = ckpt_split_narrow(plain, count, width, 100, ret_planes->into);
	else
		ckpt_split(plain, count, width, form == FLOATS, ret_planes->into);
	ckpt_split_plainly = false;
	return fits;
}

static void join(const struct planes *p, uint32_t count, unsigned width, enum form form, bool plainly,
		 uint8_t *ret_plain)
{
	ckpt_split_plainly = plainly;
	if (form == NARROW)
		ckpt_join_narrow(p->from, count, width, 100, ret_plain);
	else
		ckpt_join(p->from, count, width, form == FLOATS, ret_plain);
	ckpt_split_plainly = false;
}

// Elements of which the exponents, if that is what they are, are 0 or from 101 to 227.
static void fill_elements(uint8_t *to, uint32_t count, unsigned width, enum form form)
{
	fill(to, (size_t)count * width);
	for (uint32_t i = 0; form == NARROW && i < count; i++) {
		uint8_t *top = to + (size_t)i * width + width - 1, *next = top - 1;
		unsigned e = dice() % 8 ? 101 + (unsigned)(dice() % 127) : 0;

		*top = (uint8_t)((*top & 0x80) | e >> 1);
		*next = (uint8_t)((*next & 0x7f) | e << 7);
	}
}

START_TEST(both_ways_of_splitting_agree)
{
	static const struct {
		unsigned width;
		enum form form;
	} cases[] = {{1, INTEGERS}, {2, INTEGERS}, {4, INTEGERS}, {8, INTEGERS}, {2, FLOATS},
		     {4, FLOATS},   {8, FLOATS},   {2, NARROW},   {4, NARROW}};
	static struct planes fast, slow;
	static uint8_t plain[COUNT * CKPT_PLANES_MAX], back[COUNT * CKPT_PLANES_MAX];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		unsigned width = cases[i].width;

		for (uint32_t count = 0; count <= COUNT; count += 1 + count / 20) {
			fill_elements(plain, count, width, cases[i].form);
			ck_assert(split(plain, count, width, cases[i].form, false, &fast));
			ck_assert(split(plain, count, width, cases[i].form, true, &slow));
			ck_assert_mem_eq(fast.at, slow.at, sizeof(fast.at));
			for (unsigned plainly = 0; plainly < 2; plainly++) {
				memset(back, 0, sizeof(back));
				join(&slow, count, width, cases[i].form, plainly, back);
				ck_assert_mem_eq(back, plain, (size_t)count * width);
			}
		}
	}
}
END_TEST

START_TEST(a_floats_exponent_has_a_plane_to_itself)
{
	static const struct {
		unsigned width;
		uint64_t one, apart, narrow;
	} cases[] = {
		{2, 0x3f80, 0x7f00, 0x3600},
		{2, 0xbfc1, 0x7fc1, 0x3741},
		{4, 0x3f800000, 0x7f000000, 0x36000000},
		{4, 0xbfc12345, 0x7fc12345, 0x37412345},
		{4, 0x80000001, 0x00800001, 0x00400001},
		{8, UINT64_C(0x3ff0000000000000), UINT64_C(0xff30000000000000), 0},
		{8, UINT64_C(0xbff123456789abcd), UINT64_C(0xffb123456789abcd), 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t planes[CKPT_PLANES_MAX] = {0}, *into[CKPT_PLANES_MAX];
		const uint8_t *one = (const uint8_t *)&cases[i].one;

		for (unsigned p = 0; p < CKPT_PLANES_MAX; p++)
			into[p] = &planes[p];
		ckpt_split(one, 1, cases[i].width, true, into);
		ck_assert_uint_eq(ckpt_get64(planes), cases[i].apart);
		if (cases[i].width > 4)
			continue;
		ck_assert(ckpt_split_narrow(one, 1, cases[i].width, 100, into));
		ck_assert_uint_eq(ckpt_get64(planes), cases[i].narrow);
	}
}
END_TEST

START_TEST(an_exponent_that_does_not_fit_is_told)
{
	static uint8_t plain[COUNT * 4];
	static struct planes p;

	for (unsigned e = 0; e < 256; e++) {
		for (uint32_t at = 0; at < 40; at++) {
			fill_elements(plain, 40, 4, NARROW);
			ckpt_put32(plain + 4 * at, e << 23 | 0x80000000);
			ck_assert_int_eq(split(plain, 40, 4, NARROW, false, &p), e == 0 || (e > 100 && e < 228));
			ck_assert_int_eq(split(plain, 40, 4, NARROW, true, &p), e == 0 || (e > 100 && e < 228));
		}
	}
}
END_TEST

START_TEST(a_base_is_found_if_there_is_one)
{
	static uint8_t exponents[COUNT];

	for (int round = 0; round < 3000; round++) {
		unsigned least = 1 + (unsigned)(dice() % 255), most = least + (unsigned)(dice() % (256 - least));
		uint32_t count = 2 + (uint32_t)(dice() % 60);
		uint8_t base[2] = {1, 2};

		for (uint32_t i = 0; i < count; i++)
			exponents[i] = (uint8_t)(dice() % 4 ? least + dice() % (most - least + 1) : 0);
		exponents[dice() % count] = (uint8_t)least;
		uint32_t at = (uint32_t)(dice() % count);
		most = exponents[at] == least ? least : most;
		if (most != least)
			exponents[at] = (uint8_t)most;
		for (unsigned plainly = 0; plainly < 2; plainly++) {
			unsigned low = 256, high = 0;

			for (uint32_t i = 0; i < count; i++) {
				low = exponents[i] ? MIN(low, exponents[i]) : low;
				high = MAX(high, exponents[i]);
			}
			ckpt_split_plainly = plainly;
			ck_assert_int_eq(ckpt_narrow_base(exponents, count, &base[plainly]), high - low < 127);
			if (high - low < 127)
				ck_assert_uint_eq(base[plainly], low - 1);
		}
	}
}
END_TEST

START_TEST(packed_bytes_come_back)
{
	static const struct {
		unsigned bits, groups, packed;
	} cases[] = {{7, 8, 7}, {6, 4, 3}, {4, 2, 1}, {2, 4, 1}, {1, 8, 1}};
	uint8_t plain[COUNT], packed[COUNT + 16], back[COUNT + 16];

	for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
		unsigned bits = cases[c].bits, together = 16 * cases[c].groups;

		ck_assert(ckpt_is_packable(bits));
		for (uint32_t count = 0; count <= COUNT; count += 1 + count / 30) {
			uint32_t bytes = ckpt_packed_bytes(count, bits);

			ck_assert_uint_eq(bytes, count / together * 16 * cases[c].packed + count % together);
			for (uint32_t i = 0; i < count; i++)
				plain[i] = (uint8_t)(dice() & ((1u << bits) - 1));
			memset(packed, 0x5a, sizeof(packed));
			memset(back, 0x5a, sizeof(back));
			ckpt_pack(plain, count, bits, packed);
			ckpt_unpack(packed, count, bits, back);
			ck_assert_mem_eq(back, plain, count);
			ck_assert_uint_eq(packed[bytes], 0x5a);
			ck_assert_uint_eq(back[count], 0x5a);
		}
	}
	for (unsigned bits = 0; bits < 10; bits++)
		ck_assert_int_eq(ckpt_is_packable(bits), bits == 1 || bits == 2 || bits == 4 || bits == 6 || bits == 7);
}
END_TEST

// As FORMAT.md says it.
START_TEST(the_last_group_stands_in_the_others_highest_bits)
{
	uint8_t plain[128], packed[128];

	for (unsigned i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(dice() & 0x7f);
	ckpt_pack(plain, 128, 7, packed);
	for (unsigned i = 0; i < 112; i++)
		ck_assert_uint_eq(packed[i], plain[i] | (plain[112 + i % 16] >> i / 16 & 1) << 7);
	for (unsigned i = 0; i < sizeof(plain); i++)
		plain[i] &= 0x3f;
	ckpt_pack(plain, 64, 6, packed);
	for (unsigned i = 0; i < 48; i++)
		ck_assert_uint_eq(packed[i], plain[i] | (plain[48 + i % 16] >> 2 * (i / 16) & 3) << 6);
	for (unsigned i = 0; i < sizeof(plain); i++)
		plain[i] &= 3;
	ckpt_pack(plain, 64, 2, packed);
	for (unsigned i = 0; i < 16; i++)
		ck_assert_uint_eq(packed[i], plain[i] | plain[16 + i] << 2 | plain[32 + i] << 4 | plain[48 + i] << 6);
}
END_TEST

// --- Differences ------------------------------------------------------------------------------------------------------

static const struct ckpt_differ differs[] = {
	{.width = 2}, {.width = 2, .floats = true}, {.width = 2, .rounded = true},
	{.width = 4}, {.width = 4, .floats = true}, {.width = 4, .floats = true, .scaled = true, .scale = 0.95f},
};

static uint32_t bits_of(const uint8_t *at, unsigned width)
{
	uint32_t x = 0;

	memcpy(&x, at, width);
	return x;
}

static int64_t ordered(uint32_t x, unsigned width)
{
	uint32_t sign = 1u << (8 * width - 1);

	return x & sign ? -(int64_t)(x & ~sign) - 1 : (int64_t)x;
}

static bool is_normal(uint32_t x)
{
	return (x >> 23 & 0xff) && (x >> 23 & 0xff) != 0xff;
}

static uint32_t expected(const struct ckpt_differ *d, const uint8_t *base, uint32_t i)
{
	uint32_t x = bits_of(base + (size_t)i * (d->rounded ? 4 : d->width), d->rounded ? 4 : d->width), y;
	float f;

	if (d->rounded)
		return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
	if (!d->scaled || !is_normal(x))
		return x;
	memcpy(&f, &x, 4);
	f *= d->scale;
	memcpy(&y, &f, 4);
	return is_normal(y) ? y : x;
}

// Of one element, by the definition.
static uint32_t model(const struct ckpt_differ *d, const uint8_t *plain, const uint8_t *base, uint32_t i)
{
	uint32_t x = bits_of(plain + (size_t)i * d->width, d->width), y = expected(d, base, i);
	int64_t difference = d->floats ? ordered(x, d->width) - ordered(y, d->width) : (int64_t)x - y;

	difference = d->width == 2 ? (int16_t)difference : (int32_t)difference;
	return (uint32_t)(difference < 0 ? -2 * difference - 1 : 2 * difference);
}

START_TEST(differences_are_as_defined_and_can_be_undone)
{
	const struct ckpt_differ *d = &differs[_i];
	static uint8_t plain[COUNT * 4], base[COUNT * 4], back[COUNT * 4 + 16];
	static uint32_t differences[COUNT + 4];

	for (uint32_t count = 0; count <= COUNT; count += 1 + count / 10) {
		fill(base, sizeof(base));
		fill(plain, sizeof(plain));
		for (uint32_t i = 0; i < count; i++) {
			if (dice() % 2)
				memcpy(plain + (size_t)i * d->width, base + (size_t)i * d->width, d->width - 1);
			if (dice() % 4 == 0)
				ckpt_put16(plain + (size_t)i * d->width + d->width - 2,
					   (uint16_t)(dice() % 3 ? 0x7f80 : 0xff80));
		}
		memset(back, 0x5a, sizeof(back));
		differences[count] = 77;
		ckpt_differ(d, plain, base, count, differences);
		for (uint32_t i = 0; i < count; i++)
			ck_assert_uint_eq(differences[i], model(d, plain, base, i));
		ck_assert_uint_eq(differences[count], 77);
		ckpt_undiffer(d, differences, base, count, back);
		ck_assert_mem_eq(back, plain, (size_t)count * d->width);
		ck_assert_uint_eq(back[(size_t)count * d->width], 0x5a);
	}
}
END_TEST

START_TEST(whether_all_are_as_expected_is_told)
{
	static uint8_t plain[COUNT * 4], base[COUNT * 4];
	static uint32_t differences[COUNT];

	fill(base, sizeof(base));
	for (uint32_t count = 1; count < 40; count++) {
		memcpy(plain, base, sizeof(base));
		ck_assert(!ckpt_differ(&differs[3], plain, base, count, differences));
		plain[4 * (dice() % count)] ^= 1;
		ck_assert(ckpt_differ(&differs[3], plain, base, count, differences));
	}
}
END_TEST

static unsigned length_of(uint32_t z)
{
	return z ? 32 - (unsigned)__builtin_clz(z) : 0;
}

START_TEST(classes_and_bits_come_back)
{
	static uint32_t numbers[COUNT], bits[COUNT], back[COUNT];
	static uint8_t classes[COUNT], left[COUNT], stream[COUNT * 4 + 8];

	for (unsigned length = 0; length <= 32; length++) {
		for (uint32_t count = 1; count < COUNT; count += 1 + count / 2) {
			uint64_t sum = 0, said;

			for (uint32_t i = 0; i < count; i++) {
				numbers[i] =
					(uint32_t)(dice() & ((UINT64_C(1) << (length ? dice() % length + 1 : 0)) - 1));
				bits[i] = numbers[i];
			}
			numbers[0] = bits[0] = (uint32_t)((UINT64_C(1) << length) - 1);
			said = ckpt_differ_classify(bits, count, classes, left);
			for (uint32_t i = 0; i < count; i++) {
				unsigned n = length_of(numbers[i]);

				ck_assert_uint_eq(classes[i], n < 2 ? 2 * n : 2 * n + (numbers[i] >> (n - 2) & 1));
				ck_assert_uint_eq(left[i], n < 2 ? 0 : n - 2);
				ck_assert_uint_eq(bits[i], n < 2 ? 0 : numbers[i] & ((1u << (n - 2)) - 1));
				sum += left[i];
			}
			ck_assert_uint_eq(said, sum);
			ckpt_differ_put_bits(bits, left, count, stream);

			uint32_t bytes = (uint32_t)((sum + 7) / 8);
			CLEANUP_FREE uint8_t *exact = malloc(bytes + !bytes);

			ck_assert_ptr_nonnull(exact);
			memcpy(exact, stream, bytes);
			ck_assert(ckpt_differ_take_bits(classes, count, 4, exact, bytes, back));
			ck_assert_mem_eq(back, numbers, count * sizeof(*back));
			ck_assert(!ckpt_differ_take_bits(classes, count, 4, stream, bytes + 1, back));
			ck_assert(!bytes || !ckpt_differ_take_bits(classes, count, 4, exact, bytes - 1, back));
		}
	}
}
END_TEST

START_TEST(classes_that_are_none_are_refused)
{
	uint8_t stream[8] = {0};
	uint32_t back;

	for (unsigned width = 2; width <= 4; width += 2) {
		for (unsigned c = 0; c < 256; c++) {
			uint8_t class = (uint8_t)c;
			bool taken = false;

			for (uint32_t bytes = 0; bytes <= sizeof(stream); bytes++)
				taken |= ckpt_differ_take_bits(&class, 1, width, stream, bytes, &back);
			ck_assert_int_eq(taken, c != 1 && c != 3 && c <= 16 * width + 1);
		}
	}
}
END_TEST

// --- Samples ----------------------------------------------------------------------------------------------------------

START_TEST(samples_tell_noise_from_what_repeats)
{
	static uint8_t bytes[200000];
	struct ckpt_sample s;

	fill(bytes, sizeof(bytes));
	ckpt_sample_take(bytes, sizeof(bytes), &s);
	ck_assert_uint_eq(s.bytes, CKPT_SAMPLE_BYTES);
	ck_assert_double_ge(ckpt_sample_bits(s.at, s.bytes, 1), 7.9);
	ck_assert(!ckpt_sample_runs(&s));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] &= 3;
	ckpt_sample_take(bytes, sizeof(bytes), &s);
	ck_assert_double_ge(ckpt_sample_bits(s.at, s.bytes, 1), 1.95);
	ck_assert_double_le(ckpt_sample_bits(s.at, s.bytes, 1), 2.05);
	memset(bytes, 7, sizeof(bytes) / 5);
	ckpt_sample_take(bytes, sizeof(bytes), &s);
	ck_assert(ckpt_sample_runs(&s));
	ckpt_sample_take(bytes, 1, &s);
	ck_assert_uint_eq(s.bytes, 1);
	ck_assert(!ckpt_sample_runs(&s));
	ck_assert_double_eq(ckpt_sample_bits(s.at, 1, 1), 0);
}
END_TEST

START_TEST(the_width_of_elements_is_found)
{
	static uint8_t bytes[1 << 20];

	for (unsigned width = 1; width <= 8; width *= 2) {
		fill(bytes, sizeof(bytes));
		for (size_t i = width - 1; i < sizeof(bytes); i += width)
			bytes[i] = (uint8_t)(0x3a + (bytes[i] & 7));
		ck_assert_uint_eq(ckpt_sample_width(bytes, sizeof(bytes)), width);
		ck_assert_uint_eq(ckpt_sample_width(bytes, 10000), width);
	}
	for (uint32_t n = 1; n < 8; n++)
		ck_assert_uint_eq(ckpt_sample_width(bytes, n), 1);
}
END_TEST

static Suite *parts_suite(void)
{
	Suite *suite = suite_create("codec parts");
	TCase *tcase = tcase_create("parts");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, both_ways_of_splitting_agree);
	tcase_add_test(tcase, a_floats_exponent_has_a_plane_to_itself);
	tcase_add_test(tcase, an_exponent_that_does_not_fit_is_told);
	tcase_add_test(tcase, a_base_is_found_if_there_is_one);
	tcase_add_test(tcase, packed_bytes_come_back);
	tcase_add_test(tcase, the_last_group_stands_in_the_others_highest_bits);
	tcase_add_loop_test(tcase, differences_are_as_defined_and_can_be_undone, 0, (int)ARRAY_LEN(differs));
	tcase_add_test(tcase, whether_all_are_as_expected_is_told);
	tcase_add_test(tcase, classes_and_bits_come_back);
	tcase_add_test(tcase, classes_that_are_none_are_refused);
	tcase_add_test(tcase, samples_tell_noise_from_what_repeats);
	tcase_add_test(tcase, the_width_of_elements_is_found);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(parts_suite());
}
