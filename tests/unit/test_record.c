#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/record/container.h"

#include <stdio.h>

enum { MUTATIONS = 100000 };

static uint8_t *data;
static size_t len;
static struct ckpt_summary summary;

static void make_sample(void)
{
	void *made;

	ckpt_sample_record(&made, &len);
	data = made;
	ckpt_sample_summary(&summary, "checkpoint-1000", 3);
}

static void done(void)
{
	free(data);
}

// A record of the sample summary with this metadata.
static int encode(const char *metadata, void **ret_data, size_t *ret_len)
{
	struct ckpt_record r = {.store_id = CKPT_SAMPLE_STORE, .summary = summary, .metadata = (char *)metadata};

	return ckpt_record_encode(&r, ret_data, ret_len);
}

START_TEST(what_is_written_is_read)
{
	CLEANUP_FREE void *manifest = NULL;
	struct ckpt_record r;
	size_t manifest_len;

	ckpt_sample_manifest(&manifest, &manifest_len);
	ck_ok(ckpt_record_decode(data, len, &r));
	ck_assert_str_eq(r.store_id, CKPT_SAMPLE_STORE);
	ck_assert_str_eq(r.metadata, "{\"loss\":1.5}");
	ck_assert(r.manifest_len == manifest_len && !memcmp(r.manifest, manifest, manifest_len));
	summary.manifest_bytes = manifest_len;
	ckpt_sha256(manifest, manifest_len, summary.manifest_sha256);
	ck_assert(!memcmp(&r.summary, &summary, sizeof(summary)));
	ckpt_record_done(&r);
	ckpt_record_done(&r);
}
END_TEST

START_TEST(metadata_and_manifest_may_be_missing)
{
	CLEANUP_FREE void *made = NULL;
	struct ckpt_record r;
	size_t made_len;

	ck_ok(encode(NULL, &made, &made_len));
	ck_ok(ckpt_record_decode(made, made_len, &r));
	ck_assert(!r.metadata && !r.manifest && !r.manifest_len);
	ck_assert(!memcmp(&r.summary, &summary, sizeof(summary)));
	ckpt_record_done(&r);
}
END_TEST

START_TEST(a_failed_decode_changes_nothing)
{
	struct ckpt_record r, untouched;

	memset(&r, 0x5a, sizeof(r));
	untouched = r;
	ck_error(ckpt_record_decode(data, len - 1, &r), EBADMSG);
	ck_assert(!memcmp(&r, &untouched, sizeof(r)));
}
END_TEST

START_TEST(metadata_is_limited_utf8)
{
	CLEANUP_FREE char *big = malloc(CKPT_METADATA_BYTES_MAX + 2);
	void *made;
	size_t made_len;

	ck_error(encode("\"\xff\"", &made, &made_len), EINVAL);
	memset(big, ' ', CKPT_METADATA_BYTES_MAX + 1);
	big[CKPT_METADATA_BYTES_MAX + 1] = '\0';
	ck_error(encode(big, &made, &made_len), EFBIG);
	big[CKPT_METADATA_BYTES_MAX] = '\0';
	ck_ok(encode(big, &made, &made_len));
	free(made);
}
END_TEST

START_TEST(hostile_metadata_is_refused)
{
	uint8_t *at = memmem(data, len, "loss", 4);

	ck_assert_ptr_nonnull(at);
	*at = 0;
	ckpt_sample_reseal(data, len);
	ck_error(ckpt_try_record(data, len), EBADMSG);
	*at = 0xff;
	ckpt_sample_reseal(data, len);
	ck_error(ckpt_try_record(data, len), EBADMSG);
	*at = 'L';
	ckpt_sample_reseal(data, len);
	ck_ok(ckpt_try_record(data, len));
}
END_TEST

START_TEST(an_embedded_manifest_must_be_the_one_named)
{
	struct ckpt_record r;
	void *made;
	size_t made_len;

	ck_ok(ckpt_record_decode(data, len, &r));
	((uint8_t *)r.manifest)[100] ^= 1;
	ck_error(ckpt_record_encode(&r, &made, &made_len), EINVAL);
	ckpt_record_done(&r);
	data[len - 64] ^= 1; // in the manifest, the last section
	ckpt_sample_reseal(data, len);
	ck_error(ckpt_try_record(data, len), EBADMSG);
}
END_TEST

START_TEST(a_large_manifest_is_not_embedded)
{
	struct ckpt_record r = {.store_id = CKPT_SAMPLE_STORE, .summary = summary};
	void *made;
	size_t made_len;

	r.manifest_len = CKPT_MANIFEST_EMBED_MAX + 1;
	r.manifest = ckpt_calloc(1, r.manifest_len);
	ck_error(ckpt_record_encode(&r, &made, &made_len), EFBIG);
	ckpt_record_done(&r);
}
END_TEST

// The sections of the sample: 0 the summary, 1 the store, 2 the metadata, 3 the manifest.
#define SECTIONS 4

// What is said of the sample when section `which` has these bytes; NULL: without it.
static int try_with(size_t which, const void *bytes, size_t count)
{
	struct ckpt_container_kind kind = {.major = 1, .bytes_max = SIZE_MAX, .type_count = SECTIONS};
	struct ckpt_section sections[SECTIONS], *s = sections;
	uint32_t types[SECTIONS];
	struct ckpt_container c;
	size_t made_len;
	void *made;
	int rc;

	memcpy(kind.magic, data, sizeof(kind.magic));
	for (size_t i = 0; i < SECTIONS; i++)
		types[i] = ckpt_get32(data + CKPT_CONTAINER_HEADER_BYTES + i * CKPT_CONTAINER_SECTION_BYTES);
	kind.types = types;
	ck_ok(ckpt_container_parse(&kind, data, len, &c));
	for (size_t i = 0; i < SECTIONS; i++) {
		ck_ok(ckpt_container_find(&c, types[i], s));
		if (i == which) {
			s->data = bytes;
			s->len = count;
		}
		s += i != which || bytes;
	}
	ck_ok(ckpt_container_encode(&kind, 0, 0, sections, (size_t)(s - sections), &made, &made_len));
	rc = ckpt_try_record(made, made_len);
	free(made);
	return rc;
}

START_TEST(sections_that_do_not_belong_together_are_refused)
{
	CLEANUP_FREE char *big = malloc(CKPT_METADATA_BYTES_MAX + 1);
	CLEANUP_FREE void *deletion = NULL;
	size_t deletion_len;

	memset(big, ' ', CKPT_METADATA_BYTES_MAX + 1);
	ck_error(try_with(0, NULL, 0), EBADMSG);
	ck_error(try_with(1, NULL, 0), EBADMSG);
	ck_error(try_with(1, CKPT_SAMPLE_STORE, 35), EBADMSG);
	ck_ok(try_with(1, CKPT_SAMPLE_STORE, 36));
	ck_ok(try_with(2, NULL, 0));
	ck_ok(try_with(2, "", 0));
	ck_ok(try_with(2, big, CKPT_METADATA_BYTES_MAX));
	ck_error(try_with(2, big, CKPT_METADATA_BYTES_MAX + 1), EBADMSG);
	summary.deleted = true;
	ck_ok(ckpt_summary_encode(&summary, &deletion, &deletion_len));
	ck_error(try_with(0, deletion, deletion_len), EBADMSG); // and it has a manifest
	ck_error(try_with(3, "", 0), EBADMSG);
}
END_TEST

START_TEST(what_a_reader_refuses_is_not_written)
{
	struct ckpt_record r = {.store_id = "no uuid", .summary = summary};
	void *made;
	size_t made_len;

	ck_error(ckpt_record_encode(&r, &made, &made_len), EINVAL);
	strcpy(r.store_id, CKPT_SAMPLE_STORE);
	r.manifest = "";
	ck_error(ckpt_record_encode(&r, &made, &made_len), EINVAL);
	r.summary.deleted = true;
	ck_error(ckpt_record_encode(&r, &made, &made_len), EINVAL);
	r.manifest = NULL;
	*r.summary.session = '\0'; // of a deletion nothing else may be known
	ck_ok(ckpt_record_encode(&r, &made, &made_len));
	ck_ok(ckpt_try_record(made, made_len));
	free(made);
}
END_TEST

START_TEST(a_name_without_an_end_is_refused)
{
	size_t name_len = CKPT_NAME_MAX + 1, made_len, longer;
	CLEANUP_FREE void *made = NULL;
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_summary s;

	ck_ok(ckpt_summary_encode(&summary, &made, &made_len));
	longer = made_len - strlen(summary.name) + name_len;
	bytes = malloc(longer);
	memset(bytes, 'x', longer);
	memcpy(bytes, made, made_len);
	ckpt_put32(bytes, (uint32_t)longer);
	ckpt_put16(bytes + 6, (uint16_t)name_len);
	ck_error(ckpt_summary_decode(bytes, longer, &s), EBADMSG);
}
END_TEST

// What a writer refuses, and a reader too: each changes one thing of a good summary.
static void bad_version(void)
{
	summary.version = 0;
}

static void bad_name(void)
{
	strcpy(summary.name, "a/b");
}

static void no_name(void)
{
	summary.name[0] = '\0';
}

static void endless_name(void)
{
	memset(summary.name, 'x', sizeof(summary.name));
}

static void bad_folder(void)
{
	strcpy(summary.folder_id, "0123");
}

static void bad_session(void)
{
	strcpy(summary.session, "../../etc");
}

static void bad_event(void)
{
	strcpy(summary.event, "two words");
}

static void endless_profile(void)
{
	memset(summary.profile, 'x', sizeof(summary.profile));
}

static void bad_mode(void)
{
	summary.dir_mode = 0100755;
}

static void bad_number(void)
{
	summary.number = -2;
}

static void bad_files(void)
{
	summary.files = CKPT_STEP_FILES_MAX + 1;
}

static void bad_bytes(void)
{
	summary.bytes = UINT64_C(1) << 63;
}

static void bad_manifest_bytes(void)
{
	summary.manifest_bytes = (uint64_t)CKPT_MANIFEST_BYTES_MAX + 1;
}

static void (*const spoilers[])(void) = {bad_version, bad_name,  no_name,           endless_name, bad_folder,
					 bad_session, bad_event, endless_profile,   bad_mode,     bad_number,
					 bad_files,   bad_bytes, bad_manifest_bytes};

START_TEST(bad_summaries_are_not_written)
{
	void *made;
	size_t made_len;

	spoilers[_i]();
	ck_error(ckpt_summary_encode(&summary, &made, &made_len), EINVAL);
	ck_error(encode(NULL, &made, &made_len), EINVAL);
}
END_TEST

START_TEST(summaries_that_lie_are_refused)
{
	static const struct {
		size_t at;
		uint32_t value;
		int error;
	} lies[] = {
		{0, 0, EBADMSG},          {0, UINT32_MAX, EBADMSG},   {4, 0x000f0000, EBADMSG},
		{4, 0x000f0003, ENOTSUP}, {4, 0x00100001, EBADMSG},   {4, 0xffff0001, EBADMSG},
		{8, 0, EBADMSG},          {104, 16, EBADMSG},         {108, 1, EBADMSG},
		{160, 0, EBADMSG},        {176, 0x2f2e2e2f, EBADMSG}, {212, 'x', EBADMSG},
		{244, 'x', EBADMSG},      {248, 0, EBADMSG},          {280, 0x2f2f2f2f, EBADMSG},
		{280, 0, EBADMSG},
	};
	struct ckpt_summary s;

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		CLEANUP_FREE void *made = NULL;
		size_t made_len;

		ck_ok(ckpt_summary_encode(&summary, &made, &made_len));
		ck_ok(ckpt_summary_decode(made, made_len, &s));
		ckpt_put32((uint8_t *)made + lies[i].at, lies[i].value);
		ck_assert_msg(ckpt_summary_decode(made, made_len, &s) == -lies[i].error, "lie %zu", i);
	}
}
END_TEST

START_TEST(a_deletion_is_one_and_carries_no_manifest)
{
	struct ckpt_summary deletion = summary, there;
	struct ckpt_record r = {.summary = summary}, read;
	CLEANUP_FREE void *made = NULL;
	CLEANUP_FREE void *record = NULL;
	size_t made_len, record_len;

	deletion.deleted = true;
	ck_ok(ckpt_summary_encode(&deletion, &made, &made_len));
	ck_assert_uint_eq(ckpt_get16((uint8_t *)made + 4), 2); // not a step to who does not know deletions
	ck_ok(ckpt_summary_decode(made, made_len, &there));
	ck_assert(there.deleted);
	r.summary.deleted = true;
	memcpy(r.store_id, "00000000-0000-4000-8000-000000000000", sizeof(r.store_id));
	ck_ok(ckpt_record_encode(&r, &record, &record_len));
	ck_ok(ckpt_record_decode(record, record_len, &read));
	ck_assert(read.summary.deleted);
	ckpt_record_done(&read);
	r.manifest = (void *)(uintptr_t) "x";
	r.manifest_len = 1;
	ck_error(ckpt_record_encode(&r, &record, &record_len), EINVAL);
}
END_TEST

START_TEST(summaries_of_every_length_are_safe)
{
	CLEANUP_FREE void *made = NULL;
	struct ckpt_summary s;
	size_t made_len;

	ck_ok(ckpt_summary_encode(&summary, &made, &made_len));
	for (size_t i = 0; i < made_len; i++) {
		CLEANUP_FREE uint8_t *copy = malloc(i ? i : 1);

		memcpy(copy, made, i);
		ck_error(ckpt_summary_decode(copy, i, &s), EBADMSG);
		if (i < 4)
			continue;
		ckpt_put32(copy, (uint32_t)i);
		ck_error(ckpt_summary_decode(copy, i, &s), EBADMSG);
	}
}
END_TEST

START_TEST(longest_name_fits)
{
	CLEANUP_FREE void *made = NULL;
	struct ckpt_summary s;
	size_t made_len;

	memset(summary.name, 'x', CKPT_NAME_MAX);
	summary.name[CKPT_NAME_MAX] = '\0';
	ck_ok(ckpt_summary_encode(&summary, &made, &made_len));
	ck_ok(ckpt_summary_decode(made, made_len, &s));
	ck_assert(!memcmp(&s, &summary, sizeof(s)));
}
END_TEST

START_TEST(no_byte_can_be_changed_unseen)
{
	for (size_t i = 0; i < len; i++) {
		data[i] ^= 0x40;
		ck_error(ckpt_try_record(data, len), EBADMSG);
		data[i] ^= 0x40;
	}
}
END_TEST

START_TEST(every_changed_byte_with_a_right_digest_is_safe)
{
	for (size_t i = 0; i < (len - 32) * 8; i++) {
		data[i / 8] ^= (uint8_t)(1u << (i & 7));
		ckpt_sample_reseal(data, len);
		ckpt_try_record(data, len);
		data[i / 8] ^= (uint8_t)(1u << (i & 7));
		ckpt_put64(data + 32, len);
	}
	ckpt_sample_reseal(data, len);
	ck_ok(ckpt_try_record(data, len));
}
END_TEST

START_TEST(random_mutations_are_safe)
{
	uint64_t state = 7, parsed = 0;
	CLEANUP_FREE void *small = NULL;
	CLEANUP_FREE uint8_t *changed = NULL;
	size_t small_len;

	ck_ok(encode("{\"a\":[1,2,3]}", &small, &small_len));
	changed = malloc(small_len + 64);
	for (int i = 0; i < MUTATIONS; i++) {
		size_t changed_len = small_len;

		memcpy(changed, small, small_len);
		for (uint64_t k = ckpt_sample_random(&state, 3) + 1; k; k--)
			changed_len = ckpt_sample_mutate(&state, changed, changed_len, small_len + 64);
		ckpt_sample_reseal(changed, changed_len);
		parsed += !ckpt_try_record(changed, changed_len);
	}
	ck_assert_uint_gt(parsed, 100);
	ck_assert_uint_lt(parsed, MUTATIONS / 2);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("record");
	TCase *t = tcase_create("record");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, make_sample, done);
	tcase_add_test(t, what_is_written_is_read);
	tcase_add_test(t, metadata_and_manifest_may_be_missing);
	tcase_add_test(t, a_failed_decode_changes_nothing);
	tcase_add_test(t, metadata_is_limited_utf8);
	tcase_add_test(t, hostile_metadata_is_refused);
	tcase_add_test(t, an_embedded_manifest_must_be_the_one_named);
	tcase_add_test(t, a_large_manifest_is_not_embedded);
	tcase_add_test(t, sections_that_do_not_belong_together_are_refused);
	tcase_add_test(t, what_a_reader_refuses_is_not_written);
	tcase_add_test(t, a_name_without_an_end_is_refused);
	tcase_add_loop_test(t, bad_summaries_are_not_written, 0, (int)ARRAY_LEN(spoilers));
	tcase_add_test(t, summaries_that_lie_are_refused);
	tcase_add_test(t, a_deletion_is_one_and_carries_no_manifest);
	tcase_add_test(t, summaries_of_every_length_are_safe);
	tcase_add_test(t, longest_name_fits);
	tcase_add_test(t, no_byte_can_be_changed_unseen);
	tcase_add_test(t, every_changed_byte_with_a_right_digest_is_safe);
	tcase_add_test(t, random_mutations_are_safe);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
