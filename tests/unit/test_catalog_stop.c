// A catalog whose reading is stopped: wherever that is, soon, and by -EINTR.
#include "tests/support/catalog_files.h"
#include "tests/support/suite.h"

#include "core/array/findings.h"
#include "core/base/util.h"

#include <stdio.h>

#define PAIRS 2000

static struct asked {
	size_t count, until; // it is stopped when it is asked for the until-th time
	bool once;           // and not when it is asked again
} asked;

static bool go_on(void *arg)
{
	struct asked *a = arg;

	return a->once ? a->count++ != a->until : a->count++ < a->until;
}

static struct ckpt_bytes dcp;

static void add(const void *bytes, size_t len)
{
	ckpt_bytes_add(&dcp, bytes, len);
}

static void add_string(const char *text)
{
	uint8_t head[] = {'U', (uint8_t)strlen(text)};

	add(head, sizeof(head));
	add(text, strlen(text));
}

static void add_object(const char *name)
{
	static const char module[] = "ctorch.distributed.checkpoint.metadata\n";

	add(module, strlen(module));
	add(name, strlen(name));
	add("\n)\x81}(", 5);
}

static void add_name(unsigned i)
{
	char name[128];

	snprintf(name, sizeof(name), "a.name.that.is.long.and.like.the.others.%u", i * 7919 % PAIRS);
	add_string(name);
}

// .metadata: pairs of storage_data whose names differ in their last bytes, and an object for so many of them.
static void put_metadata(unsigned objects)
{
	free(dcp.data);
	dcp = (struct ckpt_bytes){0};
	add("\x80\x02", 2);
	add_object("Metadata");
	add_string("state_dict_metadata");
	add("}(", 2);
	for (unsigned i = 0; i < objects; i++) {
		add_name(i);
		add_object("BytesStorageMetadata");
		add("ub", 2);
	}
	add("u", 1);
	add_string("storage_data");
	add("}(", 2);
	for (unsigned i = 0; i < PAIRS; i++) {
		add_object("MetadataIndex");
		add_string("fqn");
		add_name(i);
		add("ubN", 3);
	}
	add("uub.", 4);
}

static void setup(void)
{
	dcp = (struct ckpt_bytes){0};
	put_metadata(0);
	asked = (struct asked){0};
}

static void teardown(void)
{
	free(dcp.data);
}

static int read_source(void *arg, uint64_t offset, void *buf, size_t len)
{
	(void)arg;
	memcpy(buf, dcp.data + offset, len);
	return 0;
}

static int open_file(void *arg, const char *path, struct ckpt_source *ret)
{
	(void)arg;
	(void)path;
	*ret = (struct ckpt_source){.bytes = dcp.len + dcp.zeros, .read = read_source};
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	(void)source;
}

static int each_file(void *arg, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	(void)arg;
	(void)dir;
	return fn(fn_arg, ".metadata", dcp.len);
}

static const struct ckpt_catalog_files files = {.open = open_file, .close = close_file, .each = each_file};

static int read_until(size_t until, bool once, struct ckpt_catalog **ret)
{
	struct ckpt_catalog_stop stop = {.go_on = go_on, .arg = &asked};
	int rc;

	asked = (struct asked){.until = until, .once = once};
	ck_ok(ckpt_catalog_new(ret));
	ckpt_catalog_stop_by(*ret, &stop);
	rc = ckpt_catalog_read(*ret, &files, ".metadata");
	if (!rc)
		rc = ckpt_catalog_end(*ret);
	ckpt_catalog_stop_by(*ret, NULL);
	return rc;
}

START_TEST(it_is_asked_all_the_time_and_ends_wherever_that_says_no)
{
	struct ckpt_catalog *c;
	size_t asks;

	ck_ok(read_until(SIZE_MAX, false, &c));
	ck_assert_uint_eq(ckpt_catalog_faults(c), 0);
	ckpt_catalog_free(c);
	asks = asked.count;
	ck_assert_uint_gt(asks, PAIRS * 8 / 64); // a sort of so many pairs, too
	for (size_t at = 0; at < asks; at += 1 + asks / 20) {
		ck_error(read_until(at, false, &c), EINTR);
		ck_assert_uint_le(asked.count, at + 2);
		ck_assert_uint_eq(ckpt_catalog_count(c), 0);
		ckpt_catalog_free(c);
	}
}
END_TEST

// Nothing is taken from a search that was stopped, also where nobody asks again.
START_TEST(a_stop_in_a_search_is_not_lost)
{
	struct ckpt_catalog *c;
	size_t asks;

	put_metadata(PAIRS);
	ck_ok(read_until(SIZE_MAX, false, &c));
	ck_assert_uint_eq(ckpt_catalog_count(c), PAIRS);
	ckpt_catalog_free(c);
	asks = asked.count;
	for (size_t at = 0; at < asks; at += 1 + asks / 50) {
		ck_error(read_until(at, true, &c), EINTR);
		ckpt_catalog_free(c);
	}
}
END_TEST

START_TEST(what_is_found_in_headers_ends_too)
{
	struct ckpt_catalog_stop stop = {.go_on = go_on, .arg = &asked, .turns = 1000};
	struct ckpt_findings f = {0};
	struct ckpt_catalog *c;

	ckpt_sample_npy(&dcp, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4);
	ck_ok(ckpt_catalog_new(&c));
	ck_ok(ckpt_catalog_read(c, &files, "a.npy"));
	ck_ok(ckpt_catalog_end(c));
	ck_assert_uint_eq(ckpt_catalog_count(c), 1);
	const struct ckpt_findings_side now = {c, &files, "", -1};

	ckpt_catalog_stop_by(c, &stop);
	ck_error(ckpt_findings_of_headers(&f, &now), EINTR);
	ck_error(ckpt_findings_since(&f, &now, &now), EINTR);
	ckpt_findings_done(&f);
	ckpt_catalog_free(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("catalog_stop");
	TCase *stop = tcase_create("stop");

	tcase_add_checked_fixture(stop, setup, teardown);
	tcase_add_test(stop, it_is_asked_all_the_time_and_ends_wherever_that_says_no);
	tcase_add_test(stop, a_stop_in_a_search_is_not_lost);
	tcase_add_test(stop, what_is_found_in_headers_ends_too);
	suite_add_tcase(suite, stop);
	return ckpt_suite_run(suite);
}
