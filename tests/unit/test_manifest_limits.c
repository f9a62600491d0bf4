// What is too much for a manifest is refused while it is made, and what was made up to there can still be finished, where that
// is not too much itself.
#include "tests/support/suite.h"

#include "core/limits.h"
#include "core/record/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ckpt_manifest_writer *w;
static uint32_t root;
static uint64_t inos;

static int add(enum ckpt_entry_type type, uint32_t parent, const char *name, uint32_t *ret_handle)
{
	struct ckpt_entry e = {.type = type, .name = name, .ino = ++inos, .nlink = 1, .mode = 0644};

	return ckpt_manifest_writer_add(w, parent, &e, ret_handle);
}

static void setup(void)
{
	ck_ok(ckpt_manifest_writer_new(&w));
	ck_ok(add(CKPT_ENTRY_DIR, 0, "", &root));
}

static void teardown(void)
{
	ckpt_manifest_writer_free(w);
}

START_TEST(one_entry_too_many_is_refused)
{
	struct ckpt_manifest *m;
	uint32_t handle;
	char name[16];
	void *data;
	size_t len;

	for (uint32_t i = 1; i < CKPT_STEP_FILES_MAX; i++) {
		snprintf(name, sizeof(name), "%u", i);
		ck_ok(add(CKPT_ENTRY_FILE, root, name, &handle));
	}
	ck_error(add(CKPT_ENTRY_FILE, root, "more", &handle), E2BIG);
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ck_ok(ckpt_manifest_parse(data, len, &m));
	ck_assert_uint_eq(ckpt_manifest_count(m), CKPT_STEP_FILES_MAX);
	ck_error(ckpt_manifest_lookup(m, "more", &handle), ENOENT);
	ck_ok(ckpt_manifest_lookup(m, "1048575", &handle));
	ckpt_manifest_unref(m);
}
END_TEST

// All names, values and targets together are less than a manifest may have; with all else they are not.
START_TEST(more_text_than_a_manifest_may_have_is_refused)
{
	enum { VALUE_BYTES = CKPT_XATTR_BYTES_MAX - 100 };
	static char value[VALUE_BYTES];
	uint32_t handle, files = 0;
	char name[16];
	void *data;
	size_t len;
	int rc = 0;

	while (!rc) {
		snprintf(name, sizeof(name), "%u", files++);
		rc = add(CKPT_ENTRY_FILE, root, name, &handle);
		if (!rc)
			rc = ckpt_manifest_writer_xattr(w, handle, "user.a", value, VALUE_BYTES);
	}
	ck_error(rc, E2BIG);
	ck_assert_uint_gt(files, (CKPT_MANIFEST_BYTES_MAX / CKPT_XATTR_BYTES_MAX) - 100);
	for (rc = 0; !rc;) { // whatever room there is left
		snprintf(name, sizeof(name), "%u", files++);
		rc = add(CKPT_ENTRY_FILE, root, name, &handle);
	}
	ck_error(rc, E2BIG);
	ck_error(ckpt_manifest_writer_finish(w, &data, &len), E2BIG);
}
END_TEST

START_TEST(a_catalog_that_is_too_much_is_left_out)
{
	static char value[CKPT_XATTR_BYTES_MAX - 100];
	const uint32_t files = CKPT_MANIFEST_BYTES_MAX / CKPT_XATTR_BYTES_MAX - 64;
	char *catalog = calloc(1, CKPT_CATALOG_STORED_MAX);
	struct ckpt_manifest *m;
	const void *kept;
	size_t len, kept_len;
	uint32_t handle;
	char name[16];
	void *data;

	ck_assert_ptr_nonnull(catalog);
	ck_ok(ckpt_manifest_writer_catalog(w, catalog, CKPT_CATALOG_STORED_MAX));
	free(catalog);
	for (uint32_t i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "%u", i);
		ck_ok(add(CKPT_ENTRY_FILE, root, name, &handle));
		ck_ok(ckpt_manifest_writer_xattr(w, handle, "user.a", value, sizeof(value)));
	}
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ck_assert_uint_gt(len, CKPT_MANIFEST_BYTES_MAX - CKPT_CATALOG_STORED_MAX);
	ck_ok(ckpt_manifest_parse(data, len, &m));
	ck_assert_uint_eq(ckpt_manifest_count(m), files + 1);
	ck_assert(!ckpt_manifest_catalog(m, &kept, &kept_len));
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(a_catalog_of_more_bytes_than_one_may_have_is_none)
{
	char *catalog = calloc(1, CKPT_CATALOG_STORED_MAX + 1);
	struct ckpt_manifest *m;
	const void *kept;
	size_t len, kept_len;
	void *data;

	ck_assert_ptr_nonnull(catalog);
	ck_ok(ckpt_manifest_writer_catalog(w, catalog, CKPT_CATALOG_STORED_MAX + (size_t)_i));
	free(catalog);
	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ck_ok(ckpt_manifest_parse(data, len, &m));
	ck_assert(ckpt_manifest_catalog(m, &kept, &kept_len) == !_i);
	ck_assert_uint_eq(kept_len, _i ? 0 : CKPT_CATALOG_STORED_MAX);
	ckpt_manifest_unref(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest limits");
	TCase *tcase = tcase_create("limits");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_entry_too_many_is_refused);
	tcase_add_test(tcase, more_text_than_a_manifest_may_have_is_refused);
	tcase_add_test(tcase, a_catalog_that_is_too_much_is_left_out);
	tcase_add_loop_test(tcase, a_catalog_of_more_bytes_than_one_may_have_is_none, 0, 2);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
