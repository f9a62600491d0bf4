// The acts on a store as bytes: what is encoded comes back, each act has one form, and what is damaged or hostile is refused.
#include "tests/support/allocfault.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/state/act.h"

#define STEP "33333333-3333-4333-8333-333333333333"
#define OTHER "44444444-4444-4444-8444-444444444444"
#define FOLDER "0123456789abcdef"
#define FOLDER_2 "fedcba9876543210"

static const char text[] = "{\"keep\":\"\xc3\xa9\"}";
static const char content[] = "of a plain file, with a NUL";
static const uint8_t objects[3][CKPT_SHA256_LEN] = {{2, 1}, {2, 3}, {1}}; // two packs, a manifest
static const char record[] = "the record is bytes to an act";

static struct ckpt_act sample_on_tree(enum ckpt_act_kind kind)
{
	struct ckpt_act a = {.kind = kind, .folder_id = FOLDER, .name = "events-\xc3\xa9"};

	if (kind == CKPT_ACT_MKDIR || kind == CKPT_ACT_MOVE)
		strcpy(a.id, FOLDER_2);
	if (kind == CKPT_ACT_MKDIR || kind == CKPT_ACT_FILE)
		a.mode = 0751, a.uid = 0xfffffffe, a.gid = 100;
	if (kind != CKPT_ACT_MKDIR)
		a.before = 0x0102030405060708;
	if (kind == CKPT_ACT_FILE) {
		a.time_ns = -1763719200000000001;
		a.content = content;
		a.content_len = sizeof(content);
	}
	return a;
}

// One of each kind, with something in each field that the kind has.
static struct ckpt_act sample(enum ckpt_act_kind kind)
{
	struct ckpt_act a = {.kind = kind};

	if (ckpt_act_has_record(kind)) {
		a.merged = kind == CKPT_ACT_MERGE ? 0x01020304 : 0;
		a.record = record;
		a.record_len = sizeof(record);
		if (kind == CKPT_ACT_SAVE)
			strcpy(a.replaces, OTHER);
		return a;
	}
	if (ckpt_act_is_on_tree(kind))
		return sample_on_tree(kind);
	if (ckpt_act_is_on_objects(kind)) {
		a.objects = *objects;
		a.pack_count = 2;
		a.manifest_count = 1;
		strcpy(a.step, kind == CKPT_ACT_HOLD ? STEP : "");
		return a;
	}
	a.time_ns = -1763719200000000001;
	if (kind == CKPT_ACT_SET) {
		strcpy(a.key, "policy");
		a.before = 0x0102030405060708;
		a.value = text;
		a.value_len = strlen(text);
		return a;
	}
	strcpy(a.step, STEP);
	if (kind != CKPT_ACT_RENAME)
		a.version = 0x01020304;
	if (kind == CKPT_ACT_FLAG)
		a.flags = CKPT_FLAG_PINNED | CKPT_FLAG_TEMPORARY;
	if (kind == CKPT_ACT_RENAME) {
		strcpy(a.folder_id, FOLDER);
		strcpy(a.name, "step-\xc3\xa9");
	}
	return a;
}

static void assert_same(const struct ckpt_act *a, const struct ckpt_act *b)
{
	ck_assert_int_eq(a->kind, b->kind);
	ck_assert_str_eq(a->step, b->step);
	ck_assert_uint_eq(a->version, b->version);
	ck_assert_uint_eq(a->flags, b->flags);
	ck_assert_int_eq(a->time_ns, b->time_ns);
	ck_assert_str_eq(a->replaces, b->replaces);
	ck_assert_str_eq(a->folder_id, b->folder_id);
	ck_assert_str_eq(a->name, b->name);
	ck_assert_uint_eq(a->merged, b->merged);
	ck_assert_uint_eq(a->record_len, b->record_len);
	if (a->record_len)
		ck_assert_mem_eq(a->record, b->record, a->record_len);
	ck_assert_str_eq(a->key, b->key);
	ck_assert_uint_eq(a->before, b->before);
	ck_assert_uint_eq(a->value_len, b->value_len);
	if (a->value_len)
		ck_assert_mem_eq(a->value, b->value, a->value_len);
	ck_assert_str_eq(a->id, b->id);
	ck_assert_int_eq(a->link, b->link);
	ck_assert_uint_eq(a->mode, b->mode);
	ck_assert_uint_eq(a->content_len, b->content_len);
	if (a->content_len)
		ck_assert_mem_eq(a->content, b->content, a->content_len);
	ck_assert_uint_eq(a->pack_count, b->pack_count);
	ck_assert_uint_eq(a->manifest_count, b->manifest_count);
	if (a->pack_count)
		ck_assert_mem_eq(a->objects, b->objects, (size_t)(a->pack_count + a->manifest_count) * CKPT_SHA256_LEN);
}

// Decodes bytes of exactly this length. What decodes has no other form: it encodes to the same bytes.
static int decode(enum ckpt_act_kind kind, const void *bytes, size_t len, struct ckpt_act *ret)
{
	static void *exact;
	CLEANUP_FREE void *again = NULL;
	size_t again_len;
	int rc;

	free(exact);
	exact = malloc(len);
	if (len)
		memcpy(exact, bytes, len);
	rc = ckpt_act_decode((uint16_t)kind, exact, len, ret);
	if (rc)
		return rc;
	ck_ok(ckpt_act_encode(ret, &again, &again_len));
	ck_assert_uint_eq(again_len, len);
	ck_assert_mem_eq(again, bytes, len);
	return 0;
}

START_TEST(what_is_encoded_comes_back)
{
	struct ckpt_act a = sample((enum ckpt_act_kind)_i), back;
	CLEANUP_FREE uint8_t *body = NULL;
	size_t len;

	ck_ok(ckpt_act_encode(&a, (void **)&body, &len));
	ck_ok(decode(a.kind, body, len, &back));
	assert_same(&a, &back);
	if (ckpt_act_has_record(a.kind))
		ck_assert_mem_eq(body + back.record_at, record, sizeof(record));
	if (a.content_len)
		ck_assert_mem_eq(body + back.content_at, content, sizeof(content));
}
END_TEST

START_TEST(fields_may_be_at_their_limits)
{
	struct ckpt_act a = sample(CKPT_ACT_SAVE), back;
	CLEANUP_FREE void *body = NULL, *longest = NULL, *least = NULL, *largest = NULL, *none = NULL;
	CLEANUP_FREE char *large = malloc(CKPT_VALUE_BYTES_MAX);
	size_t len;

	a.replaces[0] = '\0'; // replaces none
	ck_ok(ckpt_act_encode(&a, &body, &len));
	ck_ok(decode(a.kind, body, len, &back));
	assert_same(&a, &back);
	a = sample(CKPT_ACT_RENAME);
	a.folder_id[0] = '\0'; // the root
	memset(a.name, 'n', CKPT_NAME_MAX);
	ck_ok(ckpt_act_encode(&a, &longest, &len));
	ck_ok(decode(a.kind, longest, len, &back));
	assert_same(&a, &back);
	a = sample(CKPT_ACT_FLAG);
	a.flags = 0;
	a.version = UINT32_MAX;
	a.time_ns = INT64_MIN;
	ck_ok(ckpt_act_encode(&a, &least, &len));
	ck_ok(decode(a.kind, least, len, &back));
	assert_same(&a, &back);
	a = sample(CKPT_ACT_SET);
	memset(a.key, 'z', CKPT_VALUE_KEY_MAX);
	memset(large, 'v', CKPT_VALUE_BYTES_MAX);
	a.before = CKPT_ACT_ANY;
	a.value = large;
	a.value_len = CKPT_VALUE_BYTES_MAX;
	ck_ok(ckpt_act_encode(&a, &largest, &len));
	ck_ok(decode(a.kind, largest, len, &back));
	assert_same(&a, &back);
	a = (struct ckpt_act){.kind = CKPT_ACT_SET, .key = "a"};
	ck_ok(ckpt_act_encode(&a, &none, &len));
	ck_ok(decode(a.kind, none, len, &back));
	assert_same(&a, &back);
}
END_TEST

static int encode(const struct ckpt_act *a)
{
	void *body;
	size_t len;
	int rc = ckpt_act_encode(a, &body, &len);

	if (!rc)
		free(body);
	return rc;
}

START_TEST(what_cannot_be_is_not_encoded)
{
	static const char *const keys[] = {"", "Policy", "pol-icy", "p0"}, *const values[] = {"a\0b",
											      "a\xff"
											      "b",
											      "ab\xc3"};
	static char large[CKPT_VALUE_BYTES_MAX + 1] = {[0 ... CKPT_VALUE_BYTES_MAX] = 'v'};
	struct ckpt_act a = sample(CKPT_ACT_DELETE);

	a.version = 0;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_DELETE);
	a.flags = CKPT_FLAG_PINNED;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_FLAG);
	a.flags = 4;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_EXPIRE);
	a.version = 0;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_RENAME);
	a.version = 1;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_RENAME);
	strcpy(a.name, "a/b");
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_RENAME);
	a.name[0] = '\0';
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_RENAME);
	a.folder_id[3] = 'G';
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_UNDELETE);
	a.step[0] = '\0';
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_SAVE);
	a.replaces[5] = 'x';
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_SAVE);
	a.record_len = 0;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_AMEND);
	a.record_len = 0;
	ck_error(encode(&a), EINVAL);
	a.record_len = CKPT_LOG_ENTRY_BYTES_MAX + 1;
	ck_error(encode(&a), EFBIG);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		a = sample(CKPT_ACT_SET);
		strcpy(a.key, keys[i]);
		ck_error(encode(&a), EINVAL);
	}
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		a = sample(CKPT_ACT_SET);
		a.value = values[i];
		a.value_len = 3;
		ck_error(encode(&a), EINVAL);
	}
	a = sample(CKPT_ACT_SET);
	a.value = large;
	a.value_len = CKPT_VALUE_BYTES_MAX + 1;
	ck_error(encode(&a), EINVAL);
	a = sample(CKPT_ACT_DELETE);
	a.kind = (enum ckpt_act_kind)0;
	ck_error(encode(&a), EINVAL);
	a.kind = CKPT_ACT_KINDS;
	ck_error(encode(&a), EINVAL);
}
END_TEST

START_TEST(names_of_objects_ascend_and_are_not_too_many)
{
	static uint8_t many[CKPT_ACT_OBJECTS_MAX + 1][CKPT_SHA256_LEN];
	struct ckpt_act a = sample(CKPT_ACT_CONDEMN), back;
	CLEANUP_FREE void *most = NULL;
	CLEANUP_FREE void *none = NULL;
	size_t len;

	for (uint32_t i = 0; i <= CKPT_ACT_OBJECTS_MAX; i++)
		ckpt_put32(many[i], __builtin_bswap32(i));
	a.objects = *many;
	a.pack_count = 2000;
	a.manifest_count = CKPT_ACT_OBJECTS_MAX - 2000;
	ck_ok(ckpt_act_encode(&a, &most, &len));
	ck_ok(decode(a.kind, most, len, &back));
	assert_same(&a, &back);
	a.manifest_count++;
	ck_error(encode(&a), EINVAL);
	a.pack_count = a.manifest_count = 0; // somebody has looked
	ck_ok(ckpt_act_encode(&a, &none, &len));
	ck_ok(decode(a.kind, none, len, &back));
	a.kind = CKPT_ACT_HOLD;
	strcpy(a.step, STEP);
	ck_error(encode(&a), EINVAL);
	for (unsigned i = 0; i < 2; i++) { // one twice, and in the wrong order
		a = sample(CKPT_ACT_HOLD);
		memcpy(many, objects, sizeof(objects));
		memcpy(many[0], objects[1], sizeof(objects[1]));
		memcpy(many[1], objects[1 - i], sizeof(objects[1]));
		a.objects = *many;
		ck_error(encode(&a), EINVAL);
	}
	a = sample(CKPT_ACT_CONDEMN);
	strcpy(a.step, STEP);
	ck_error(encode(&a), EINVAL);
}
END_TEST

START_TEST(each_byte_that_is_changed_is_seen_or_is_another_act)
{
	struct ckpt_act a = sample((enum ckpt_act_kind)_i), back;
	CLEANUP_FREE uint8_t *body = NULL;
	size_t len, accepted = 0;

	ck_ok(ckpt_act_encode(&a, (void **)&body, &len));
	for (size_t i = 0; i < len; i++) {
		uint8_t was = body[i];

		for (unsigned value = 0; value < 256; value++) {
			int rc;

			body[i] = (uint8_t)value;
			rc = decode(a.kind, body, len, &back);
			ck_assert(rc == 0 || rc == -EBADMSG || (rc == -ENOTSUP && _i == CKPT_ACT_FILE));
			accepted += !rc && value != was;
		}
		body[i] = was;
	}
	ck_assert_uint_gt(accepted, 0); // such as another time, or another name
}
END_TEST

// The record has its own length inside: what is cut off is found when that is decoded (test_state.c).
START_TEST(each_length_but_its_own_is_refused)
{
	struct ckpt_act a = sample((enum ckpt_act_kind)_i), back;
	CLEANUP_FREE uint8_t *body = NULL, *longer = NULL;
	size_t len;

	ck_ok(ckpt_act_encode(&a, (void **)&body, &len));
	for (size_t n = 0; n < len; n++) {
		if (ckpt_act_has_record(a.kind) && n >= len - sizeof(record) + 1)
			ck_ok(decode(a.kind, body, n, &back));
		else
			ck_error(decode(a.kind, body, n, &back), EBADMSG);
	}
	if (ckpt_act_has_record(a.kind))
		return;
	longer = calloc(1, len + 8);
	memcpy(longer, body, len);
	for (size_t n = len + 1; n <= len + 8; n++)
		ck_error(decode(a.kind, longer, n, &back), EBADMSG);
}
END_TEST

START_TEST(a_body_is_of_its_kind_alone)
{
	struct ckpt_act back, untouched;
	CLEANUP_FREE void *body = NULL;
	size_t len;

	memset(&back, 0x5a, sizeof(back));
	untouched = back;
	for (enum ckpt_act_kind of = CKPT_ACT_DELETE; of < CKPT_ACT_KINDS; of++) {
		struct ckpt_act a = sample(of);

		free(body);
		ck_ok(ckpt_act_encode(&a, &body, &len));
		for (enum ckpt_act_kind as = CKPT_ACT_DELETE; as < CKPT_ACT_KINDS; as++) {
			bool versioned = (of >= CKPT_ACT_DELETE && of <= CKPT_ACT_EXPIRE) || of == CKPT_ACT_DROP;
			bool as_versioned = (as >= CKPT_ACT_DELETE && as <= CKPT_ACT_FLAG && as != CKPT_ACT_RENAME) ||
					    as == CKPT_ACT_DROP;
			bool fits = of == as || (versioned && as_versioned);
			int rc;

			if (fits || ckpt_act_has_record(as)) // what is in the place of a record is not looked into
				continue;
			rc = ckpt_act_decode((uint16_t)as, body, len, &back);
			ck_assert(rc == -EBADMSG || (rc == -ENOTSUP && as == CKPT_ACT_FILE)); // as if of another type
		}
	}
	ck_error(ckpt_act_decode(0, body, len, &back), EBADMSG);
	ck_error(ckpt_act_decode(CKPT_ACT_KINDS, body, len, &back), EBADMSG);
	ck_error(ckpt_act_decode(UINT16_MAX, body, len, &back), EBADMSG);
	ck_assert(!memcmp(&back, &untouched, sizeof(back)));
}
END_TEST

START_TEST(without_memory_nothing_is_encoded)
{
	struct ckpt_act a = sample((enum ckpt_act_kind)_i);
	int rc;

	ckpt_allocfault_begin(1, false);
	rc = encode(&a);
	ckpt_allocfault_end();
	ck_error(rc, ENOMEM);
	ck_ok(encode(&a));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("act");
	TCase *tcase = tcase_create("act");

	tcase_add_loop_test(tcase, what_is_encoded_comes_back, CKPT_ACT_SAVE, CKPT_ACT_KINDS);
	tcase_add_test(tcase, fields_may_be_at_their_limits);
	tcase_add_test(tcase, what_cannot_be_is_not_encoded);
	tcase_add_test(tcase, names_of_objects_ascend_and_are_not_too_many);
	tcase_add_loop_test(tcase, each_byte_that_is_changed_is_seen_or_is_another_act, CKPT_ACT_SAVE, CKPT_ACT_KINDS);
	tcase_add_loop_test(tcase, each_length_but_its_own_is_refused, CKPT_ACT_SAVE, CKPT_ACT_KINDS);
	tcase_add_test(tcase, a_body_is_of_its_kind_alone);
	tcase_add_loop_test(tcase, without_memory_nothing_is_encoded, CKPT_ACT_SAVE, CKPT_ACT_KINDS);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
