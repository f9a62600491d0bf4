// The catalog that a manifest keeps: it stands for the files that it is of, and for no others; damage in it costs a look at the files.
#include "tests/support/fixture.h"

#include "core/array/catalog_encode.h"
#include "core/array/catalog_format.h"
#include "core/base/util.h"
#include "core/save/change.h"
#include "core/save/examined.h"
#include "core/save/version.h"
#include "core/step/attributes.h"
#include "core/step/errlog.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"
#include "core/view/step_arrays.h"

#include <stdio.h>

#define BYTES 4096

static void put_npy(struct ckpt_step *step, const char *path)
{
	static const char dict[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (4096,), }";
	char head[128], all[BYTES] = {0};
	int fd = ckpt_staged_put(step, path, "");

	memset(head, ' ', sizeof(head));
	memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
	memcpy(head + 10, dict, strlen(dict));
	head[127] = '\n';
	ck_assert_int_eq(pwrite(fd, head, sizeof(head), 0), sizeof(head));
	ck_assert_int_eq(pwrite(fd, all, sizeof(all), sizeof(head)), sizeof(all));
	close(fd);
}

static struct ckpt_step *saved(const char *name)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	put_npy(step, "a.npy");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	return step;
}

static struct ckpt_manifest *manifest_of(struct ckpt_step *step)
{
	struct ckpt_manifest *m;

	ck_ok(ckpt_step_manifest(step, &m));
	return m;
}

// One array of so many bytes behind the header of this file, called "kept": no file says that.
static void keep(struct ckpt_step *step, const char *file, uint64_t bytes)
{
	struct ckpt_manifest *m = manifest_of(step);
	struct ckpt_catalog_reading r = {.path = file, .base = file};
	struct ckpt_examined_of found = {.m = m, .findings = "{}"};
	CLEANUP_FREE void *encoded = NULL;

	ck_ok(ckpt_catalog_new(&r.catalog));
	ck_ok(ckpt_catalog_add(&r, &(struct ckpt_catalog_entry){.name = "kept",
								.name_len = 4,
								.format = "npy",
								.dtype = CKPT_DTYPE_U8,
								.ndim = 1,
								.shape = &bytes}));
	ck_ok(ckpt_catalog_add_piece(&r, &(struct ckpt_piece){.offset = 128, .bytes = bytes}));
	ck_ok(ckpt_catalog_encode(r.catalog, &encoded, &found.catalog_len));
	ckpt_catalog_free(r.catalog);
	found.catalog = encoded;
	ck_ok(ckpt_version_examined(step, &found));
	ckpt_manifest_unref(m);
}

static void keep_bytes(struct ckpt_step *step, const void *bytes, size_t len)
{
	struct ckpt_manifest *m = manifest_of(step);

	ck_ok(ckpt_version_examined(step, &(struct ckpt_examined_of){m, "{}", bytes, len}));
	ckpt_manifest_unref(m);
}

// The name of the only array.
static void check_array(struct ckpt_step *step, const char *name)
{
	struct ckpt_manifest *m = manifest_of(step);
	struct ckpt_step_arrays *arrays;
	struct ckpt_catalog_array a;

	ck_ok(ckpt_step_arrays_read(step, m, "", &arrays));
	ck_assert_uint_eq(ckpt_catalog_count(ckpt_step_arrays_catalog(arrays)), 1);
	ckpt_catalog_get(ckpt_step_arrays_catalog(arrays), 0, &a);
	ck_assert_str_eq(a.name, name);
	ckpt_step_arrays_free(arrays);
	ckpt_manifest_unref(m);
}

static unsigned lines(void)
{
	CLEANUP_FREE char *text = NULL;
	unsigned count = 0;

	ck_ok(ckpt_errlog_text(s->errlog, &text));
	for (const char *at = text; (at = strstr(at, "the catalog of its arrays is damaged")); at++)
		count++;
	return count;
}

START_TEST(a_catalog_that_is_kept_stands_for_the_files)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_manifest *m;
	struct ckpt_step_arrays *arrays;
	void *bytes;
	size_t len;

	check_array(step, "a");
	keep(step, "a.npy", BYTES);
	check_array(step, "kept");
	m = manifest_of(step);
	ck_ok(ckpt_step_arrays_read_files(step, m, "", &arrays));
	ck_ok(ckpt_step_arrays_encode(arrays, &bytes, &len));
	ck_assert(bytes && len);
	free(bytes);
	ckpt_step_arrays_free(arrays);
	ck_ok(ckpt_step_arrays_read(step, m, "", &arrays));
	ck_ok(ckpt_step_arrays_encode(arrays, &bytes, &len)); // the manifest has it
	ck_assert(!bytes);
	ckpt_step_arrays_free(arrays);
	ckpt_manifest_unref(m);
	ck_assert_uint_eq(lines(), 0);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(who_changes_no_file_keeps_it)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_tier_done done;
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;

	keep(step, "a.npy", BYTES);
	m = manifest_of(step);
	ck_ok(ckpt_manifest_lookup(m, "a.npy", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_change_attributes(step, m, &e,
				     &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = 0600}));
	ckpt_manifest_unref(m);
	ck_ok(ckpt_change_publish(step));
	check_array(step, "kept");
	ck_ok(ckpt_cool(step, &(struct ckpt_tier_how){0}, &done));
	check_array(step, "kept");
	ck_ok(ckpt_commit_metadata(step, "{\"extras\":{\"a\":1}}"));
	check_array(step, "kept");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(damage_is_told_once_and_the_files_are_read)
{
	struct ckpt_step *step = saved("1000");

	keep_bytes(step, "\1\0\0\0\3\0\0\0no frame", 16);
	check_array(step, "a");
	check_array(step, "a");
	ck_assert_uint_eq(lines(), 1);
	keep(step, "a.npy", BYTES + 1); // it would end outside of the file
	check_array(step, "a");
	check_array(step, "a");
	ck_assert_uint_eq(lines(), 2);
	keep(step, "b.npy", BYTES); // there is no such file
	check_array(step, "a");
	ck_assert_uint_eq(lines(), 3);
	keep(step, "a.npy", BYTES);
	check_array(step, "kept");
	keep_bytes(step, "\3\0\0\0\3\0\0\0of a newer form", 23);
	check_array(step, "a");
	ck_assert_uint_eq(lines(), 3);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_was_found_in_other_files_is_not_kept)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_manifest *m = manifest_of(step);
	struct ckpt_examined_of found = {m, "{}", "x", 1};
	const void *bytes;
	size_t len;

	ck_assert(ckpt_manifest_catalog(m, &bytes, &len) && len > 1); // that of the seal
	ck_ok(ckpt_version_examined(step, &found));
	ck_error(ckpt_version_examined(step, &found), ESTALE);
	ckpt_manifest_unref(m);
	m = manifest_of(step);
	ck_assert(ckpt_manifest_catalog(m, &bytes, &len) && len == 1);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("step_arrays");
	TCase *t = tcase_create("step_arrays");

	tcase_add_checked_fixture(t, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(t, a_catalog_that_is_kept_stands_for_the_files);
	tcase_add_test(t, who_changes_no_file_keeps_it);
	tcase_add_test(t, damage_is_told_once_and_the_files_are_read);
	tcase_add_test(t, what_was_found_in_other_files_is_not_kept);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
