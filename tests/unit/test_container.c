#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/record/container.h"

#define ONE CKPT_FOURCC('O', 'N', 'E', '1')
#define TWO CKPT_FOURCC('T', 'W', 'O', '2')
#define LATER CKPT_FOURCC('L', 'A', 'T', 'E')

enum { AT_MAJOR = 8, AT_MINOR = 10, AT_COUNT = 12, AT_REQUIRED = 16, AT_OPTIONAL = 24, AT_ROW = 40, ROW = 24 };

static const uint32_t known[] = {ONE, TWO};
static const struct ckpt_container_kind kind = {
	.magic = {'t', 'e', 's', 't', '-', 'c', 't', 'r'},
	.major = 1,
	.minor = 0,
	.required_known = 1,
	.types = known,
	.type_count = ARRAY_LEN(known),
	.bytes_max = 4096,
};

static uint8_t *data;
static size_t len;

static void make(uint64_t required, uint64_t optional, const struct ckpt_section *sections, size_t count)
{
	void *made;

	free(data);
	ck_ok(ckpt_container_encode(&kind, required, optional, sections, count, &made, &len));
	data = made;
}

static void make_sample(void)
{
	const struct ckpt_section sections[] = {{ONE, true, "abc", 3}, {TWO, false, "12345678", 8}};

	make(1, 0, sections, ARRAY_LEN(sections));
}

static void done(void)
{
	free(data);
	data = NULL;
}

static int parse(void)
{
	struct ckpt_container c;

	return ckpt_container_parse(&kind, data, len, &c);
}

static int parse_resealed(void)
{
	ckpt_sample_reseal(data, len);
	return parse();
}

START_TEST(what_is_written_is_read)
{
	struct ckpt_container c;
	struct ckpt_section s;

	ck_ok(ckpt_container_parse(&kind, data, len, &c));
	ck_assert(c.required == 1 && c.optional == 0 && c.section_count == 2 && c.major == 1);
	ck_ok(ckpt_container_find(&c, ONE, &s));
	ck_assert(s.required && s.len == 3 && !memcmp(s.data, "abc", 3));
	ck_ok(ckpt_container_find(&c, TWO, &s));
	ck_assert(!s.required && s.len == 8 && !memcmp(s.data, "12345678", 8));
	ck_assert(((uintptr_t)s.data - (uintptr_t)data) % 8 == 0);
	ck_error(ckpt_container_find(&c, LATER, &s), ENOENT);
	make(0, 0, NULL, 0);
	ck_ok(parse());
}
END_TEST

START_TEST(every_flipped_bit_is_seen)
{
	for (size_t i = 0; i < len * 8; i++) {
		data[i / 8] ^= (uint8_t)(1u << (i & 7));
		ck_error(parse(), EBADMSG);
		data[i / 8] ^= (uint8_t)(1u << (i & 7));
	}
	ck_ok(parse());
}
END_TEST

START_TEST(every_truncation_is_seen)
{
	size_t whole = len;

	for (len = 0; len < whole; len++) {
		CLEANUP_FREE uint8_t *copy = malloc(len ? len : 1);
		struct ckpt_container c;

		memcpy(copy, data, len);
		ck_error(ckpt_container_parse(&kind, copy, len, &c), EBADMSG);
		ckpt_sample_reseal(copy, len);
		ck_assert_int_lt(ckpt_container_parse(&kind, copy, len, &c), 0);
	}
}
END_TEST

START_TEST(newer_major_and_unknown_required_bits_are_refused)
{
	ckpt_put16(data + AT_MAJOR, 2);
	ck_error(parse_resealed(), ENOTSUP);
	ckpt_put16(data + AT_MAJOR, 0);
	ck_error(parse_resealed(), EBADMSG);
	ckpt_put16(data + AT_MAJOR, 1);
	ckpt_put64(data + AT_REQUIRED, 3);
	ck_error(parse_resealed(), ENOTSUP);
	ckpt_put64(data + AT_REQUIRED, UINT64_C(1) << 63);
	ck_error(parse_resealed(), ENOTSUP);
}
END_TEST

START_TEST(newer_minor_and_optional_bits_are_read)
{
	ckpt_put16(data + AT_MINOR, 9);
	ckpt_put64(data + AT_OPTIONAL, UINT64_MAX);
	ck_ok(parse_resealed());
}
END_TEST

START_TEST(unknown_sections_are_skipped_or_refused_by_their_bit)
{
	struct ckpt_section sections[] = {{ONE, true, "abc", 3}, {LATER, false, "later", 5}, {TWO, true, "x", 1}};
	struct ckpt_container c;
	struct ckpt_section s;

	make(0, 0, sections, ARRAY_LEN(sections));
	ck_ok(ckpt_container_parse(&kind, data, len, &c));
	ck_ok(ckpt_container_find(&c, TWO, &s));
	ck_assert(s.len == 1 && !memcmp(s.data, "x", 1));
	sections[1].required = true;
	make(0, 0, sections, ARRAY_LEN(sections));
	ck_error(parse(), ENOTSUP);
	sections[1].required = false;
	make(0, 0, sections, ARRAY_LEN(sections));
	ckpt_put32(data + AT_ROW + ROW + 4, 2); // a flag that does not exist yet
	ck_error(parse_resealed(), ENOTSUP);
}
END_TEST

START_TEST(section_tables_that_lie_are_refused)
{
	static const struct {
		size_t at;
		uint64_t value;
	} lies[] = {
		{AT_ROW + 8, 0},              // offset: into the header
		{AT_ROW + 8, UINT64_MAX - 7}, // offset: wraps
		{AT_ROW + 8, 96},             // offset: a gap
		{AT_ROW + 16, 0},             // length: a gap behind
		{AT_ROW + 16, UINT64_MAX},    // length: wraps
		{AT_ROW + ROW + 8, 88},       // offset: overlaps the first
		{AT_ROW + ROW + 16, 16},      // length: into the digest
		{AT_ROW + ROW + 16, 7},       // length: what is left is not zero
		{AT_ROW + ROW, ONE},          // type: twice (and flags 0)
	};

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		make_sample();
		ckpt_put64(data + lies[i].at, lies[i].value);
		ck_assert_msg(parse_resealed() == -EBADMSG, "lie %zu", i);
	}
	make_sample();
	ckpt_put32(data + AT_COUNT, CKPT_CONTAINER_SECTIONS_MAX + 1);
	ck_error(parse_resealed(), EBADMSG);
	ckpt_put32(data + AT_COUNT, 3);
	ck_error(parse_resealed(), EBADMSG);
	ckpt_put32(data + AT_COUNT, 1);
	ck_error(parse_resealed(), EBADMSG);
	make_sample();
	data[AT_ROW + 2 * ROW + 3] = 1; // padding
	ck_error(parse_resealed(), EBADMSG);
}
END_TEST

START_TEST(containers_over_the_limit_are_refused)
{
	static const uint8_t big[4096];
	const struct ckpt_section section = {ONE, true, big, sizeof(big)};
	struct ckpt_container_kind small = kind;
	struct ckpt_container c;
	void *made;
	size_t made_len;

	ck_error(ckpt_container_encode(&kind, 0, 0, &section, 1, &made, &made_len), EFBIG);
	small.bytes_max = 100;
	ck_error(ckpt_container_encode(&small, 0, 0, &section, 1, &made, &made_len), EFBIG);
	small.bytes_max = len - 1;
	ck_error(ckpt_container_parse(&small, data, len, &c), EBADMSG);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("container");
	TCase *t = tcase_create("container");

	tcase_add_checked_fixture(t, make_sample, done);
	tcase_add_test(t, what_is_written_is_read);
	tcase_add_test(t, every_flipped_bit_is_seen);
	tcase_add_test(t, every_truncation_is_seen);
	tcase_add_test(t, newer_major_and_unknown_required_bits_are_refused);
	tcase_add_test(t, newer_minor_and_optional_bits_are_read);
	tcase_add_test(t, unknown_sections_are_skipped_or_refused_by_their_bit);
	tcase_add_test(t, section_tables_that_lie_are_refused);
	tcase_add_test(t, containers_over_the_limit_are_refused);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
