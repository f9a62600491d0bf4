// The layers fault and trace, and the checked door in front of a backend that breaks the contract.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>

static int count_key(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)key, (void)object;
	++*(int *)arg;
	return 0;
}

static struct ckpt_objects *fault_make(struct ckpt_fault *fault)
{
	struct ckpt_objects *b;

	ck_ok(ckpt_mem_new(&b));
	ck_ok(ckpt_fault_new(b, fault, &b));
	return b;
}

START_TEST(fault_fails_the_operation_with_its_number_and_does_not_do_it)
{
	for (uint64_t at = 1; at <= 6; at++) {
		struct ckpt_fault fault = {.at = at, .error = -ENOSPC};
		struct ckpt_objects *b = fault_make(&fault);
		struct ckpt_object object;
		char buf[4];
		size_t got;
		int listed = 0;

		ck_assert_int_eq(ckpt_objects_put(b, "m/x", "x", 1, &object), at == 1 ? -ENOSPC : 0);
		ck_assert_int_eq(ckpt_objects_head(b, "m/x", &object), at == 2 ? -ENOSPC : at == 1 ? -ENOENT : 0);
		ck_assert_int_eq(ckpt_objects_get(b, "m/x", 0, buf, 4, &got, NULL), at == 3   ? -ENOSPC
										    : at == 1 ? -ENOENT
											      : 0);
		ck_assert_int_eq(ckpt_objects_remove(b, "m/x"), at == 4 ? -ENOSPC : at == 1 ? -ENOENT : 0);
		ck_assert_int_eq(ckpt_objects_list(b, "", NULL, count_key, &listed), at == 5 ? -ENOSPC : 0);
		ck_assert_int_eq(listed, at == 4);
		ck_assert_int_eq(ckpt_objects_sync(b, "m/x"), at == 6 ? -ENOSPC : 0);
		ck_assert_uint_eq(fault.count, 6);
		ckpt_objects_close(b);
	}
}
END_TEST

START_TEST(a_sticky_fault_stays)
{
	struct ckpt_fault fault = {.at = 2, .error = -ENOSPC, .sticky = true};
	struct ckpt_objects *b = fault_make(&fault);

	ck_ok(ckpt_objects_put(b, "m/1", "x", 1, NULL));
	ck_error(ckpt_objects_put(b, "m/2", "x", 1, NULL), ENOSPC);
	ck_error(ckpt_objects_put(b, "m/3", "x", 1, NULL), ENOSPC);
	fault.at = 0;
	ck_ok(ckpt_objects_put(b, "m/2", "x", 1, NULL));
	ckpt_objects_close(b);
}
END_TEST

START_TEST(half_a_fault_does_the_change_and_loses_the_answer)
{
	struct ckpt_fault fault = {.at = 1, .error = -ENOSPC, .half = true};
	struct ckpt_objects *b = fault_make(&fault);
	struct ckpt_object object;

	ck_error(ckpt_objects_put(b, "m/1", "x", 1, NULL), EIO);
	ck_ok(ckpt_objects_head(b, "m/1", &object));
	fault.at = fault.count + 1;
	ck_error(ckpt_objects_head(b, "m/1", &object), ENOSPC);
	fault.at = fault.count + 1;
	ck_error(ckpt_objects_remove(b, "m/1"), EIO);
	ck_error(ckpt_objects_head(b, "m/1", &object), ENOENT);
	ckpt_objects_close(b);
}
END_TEST

START_TEST(trace_writes_a_line_per_call)
{
	CLEANUP_FD int dir = ckpt_temp_fd();
	CLEANUP_FD int fd = openat(dir, "trace", O_RDWR | O_CREAT, 0600);
	static const char *const expected[] = {
		"put m/x bytes=3 result=0 us=",  "put m/x bytes=3 result=-17 us=", "get m/x bytes=2 result=0 us=",
		"head m/x bytes=3 result=0 us=", "list m/ bytes=0 result=0 us=",   "remove m/x bytes=0 result=0 us=",
		"sync m/x bytes=0 result=0 us="};
	struct ckpt_object object;
	struct ckpt_objects *b;
	char text[1000] = "", *line = text;
	size_t got;
	int listed = 0;

	ck_ok(ckpt_mem_new(&b));
	ck_ok(ckpt_trace_new(b, fd, &b));
	ck_ok(ckpt_objects_put(b, "m/x", "abc", 3, NULL));
	ck_error(ckpt_objects_put(b, "m/x", "abc", 3, NULL), EEXIST);
	ck_ok(ckpt_objects_get(b, "m/x", 1, text, 10, &got, NULL));
	ck_ok(ckpt_objects_head(b, "m/x", &object));
	ck_ok(ckpt_objects_list(b, "m/", NULL, count_key, &listed));
	ck_ok(ckpt_objects_remove(b, "m/x"));
	ck_ok(ckpt_objects_sync(b, "m/x"));
	ckpt_objects_close(b);
	ck_assert_int_gt(pread(fd, text, sizeof(text) - 1, 0), 0);
	for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
		ck_assert_msg(strncmp(line, expected[i], strlen(expected[i])) == 0, "%s", line);
		line = strchr(line, '\n') + 1;
	}
	ck_assert_str_eq(line, "");
}
END_TEST

static void say_why(struct ckpt_objects *b, char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	(void)b;
	strcpy(ret_why, "the disk is on fire");
}

START_TEST(a_cause_comes_through_every_layer)
{
	struct ckpt_fault fault = {0};
	struct ckpt_objects_ops ops;
	struct ckpt_objects *b, *mem;
	char why[CKPT_OBJECTS_WHY_MAX] = "x";

	ck_ok(ckpt_mem_new(&mem));
	ckpt_objects_why(mem, why);
	ck_assert_str_eq(why, "");
	ops = *mem->ops;
	ops.why = say_why;
	mem->ops = &ops;
	ck_ok(ckpt_fault_new(mem, &fault, &b));
	ck_ok(ckpt_retry_new(b, &b));
	ck_ok(ckpt_trace_new(b, -1, &b));
	ck_assert_str_eq(b->ops->name, "trace(retry(fault(mem)))");
	ckpt_objects_why(b, why);
	ck_assert_str_eq(why, "the disk is on fire");
	ckpt_objects_close(b);
}
END_TEST

// ---- The door

static struct {
	int result;
	size_t got;
	struct ckpt_object object;
	const char *keys[4];
} wrong;

static int wrong_get(struct ckpt_objects *b, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	(void)b, (void)key, (void)offset, (void)buf, (void)len;
	*ret_len = wrong.got;
	if (ret_object)
		*ret_object = wrong.object;
	return wrong.result;
}

static int wrong_head(struct ckpt_objects *b, const char *key, struct ckpt_object *ret_object)
{
	(void)b, (void)key;
	*ret_object = wrong.object;
	return wrong.result;
}

static int wrong_put(struct ckpt_objects *b, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	(void)data, (void)len, (void)frees;
	return wrong_head(b, key, ret_object);
}

static int wrong_list(struct ckpt_objects *b, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	int r = 0;

	(void)b, (void)prefix, (void)after;
	for (size_t i = 0; i < ARRAY_LEN(wrong.keys) && wrong.keys[i] && r == 0; i++)
		r = fn(arg, wrong.keys[i], &wrong.object);
	return r ? 0 : wrong.result; // forgets what fn said
}

static const struct ckpt_objects_ops wrong_ops = {
	.name = "wrong", .get = wrong_get, .head = wrong_head, .put = wrong_put, .list = wrong_list};
static struct ckpt_objects wrong_backend = {&wrong_ops};

START_TEST(the_door_refuses_gets_of_a_wrong_length)
{
	struct ckpt_object object;
	char buf[8];
	size_t got = 77;

	wrong.object = (struct ckpt_object){.bytes = 10, .etag = "e"};
	wrong.got = 9;
	ck_error(ckpt_objects_get(&wrong_backend, "m/x", 0, buf, 8, &got, NULL), EIO);
	wrong.got = 7;
	ck_error(ckpt_objects_get(&wrong_backend, "m/x", 0, buf, 8, &got, &object), EIO);
	wrong.got = 8;
	wrong.object.etag[0] = '\0';
	ck_error(ckpt_objects_get(&wrong_backend, "m/x", 0, buf, 8, &got, &object), EIO);
	ck_assert_uint_eq(got, 77);
	strcpy(wrong.object.etag, "e");
	ck_ok(ckpt_objects_get(&wrong_backend, "m/x", 0, buf, 8, &got, &object));
	wrong.got = 2;
	ck_ok(ckpt_objects_get(&wrong_backend, "m/x", 8, buf, 8, &got, &object));
}
END_TEST

START_TEST(the_door_refuses_objects_without_etag_or_of_another_size)
{
	struct ckpt_object object;

	wrong.object = (struct ckpt_object){.bytes = 2};
	ck_error(ckpt_objects_head(&wrong_backend, "m/x", &object), EIO);
	ck_error(ckpt_objects_put(&wrong_backend, "m/x", "ab", 2, NULL), EIO);
	strcpy(wrong.object.etag, "e");
	ck_error(ckpt_objects_put(&wrong_backend, "m/x", "abc", 3, NULL), EIO);
	ck_ok(ckpt_objects_put(&wrong_backend, "m/x", "ab", 2, NULL));
	memset(wrong.object.etag, 'e', CKPT_ETAG_MAX);
	ck_error(ckpt_objects_head(&wrong_backend, "m/x", &object), EIO);
}
END_TEST

START_TEST(the_door_lets_only_the_vocabulary_through)
{
	static const struct {
		int error, expected;
	} errors[] = {
		{ENOENT, ENOENT}, {ENOSPC, ENOSPC}, {EDQUOT, EDQUOT}, {EROFS, EROFS},         {EACCES, EACCES},
		{ENOMEM, ENOMEM}, {EIO, EIO},       {EPERM, EACCES},  {EEXIST, EIO},          {ESTALE, EIO},
		{ELOOP, EIO},     {EINTR, EIO},     {EAGAIN, EAGAIN}, {ETIMEDOUT, ETIMEDOUT}, {ECANCELED, ECANCELED},
		{ENOTDIR, EIO}};
	struct ckpt_object object;

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		wrong.result = -errors[i].error;
		ck_error(ckpt_objects_head(&wrong_backend, "m/x", &object), errors[i].expected);
	}
	wrong.result = -EEXIST;
	ck_error(ckpt_objects_put(&wrong_backend, "m/x", "", 0, NULL), EEXIST);
	wrong.result = 5;
	ck_error(ckpt_objects_head(&wrong_backend, "m/x", &object), EIO);
}
END_TEST

START_TEST(the_door_ends_a_list_that_breaks_its_order)
{
	static const char *const lists[][4] = {{"m/b", "m/a"},    {"m/a", "m/a"}, {"m/a", "parts/1"},
					       {"m/a", "m/../x"}, {"m/a", "m/"},  {"tmp/x"}};

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		int listed = 0;

		memcpy(wrong.keys, lists[i], sizeof(wrong.keys));
		ck_error(ckpt_objects_list(&wrong_backend, "m/", NULL, count_key, &listed), EIO);
		ck_assert_int_eq(listed, lists[i][1] ? 1 : 0);
	}
	memcpy(wrong.keys, (const char *[4]){"m/a", "m/b"}, sizeof(wrong.keys));
	ck_ok(ckpt_objects_list(&wrong_backend, "m/", NULL, count_key, &(int){0}));
	ck_error(ckpt_objects_list(&wrong_backend, "m/", "m/a", count_key, &(int){0}), EIO);
}
END_TEST

// ---- Ranges, where the backend has no way of its own

static struct {
	unsigned count;
	uint64_t bytes;
	const char *etag;
} gets;

static int counted_get(struct ckpt_objects *b, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		       struct ckpt_object *ret_object)
{
	(void)b, (void)key, (void)offset;
	memset(buf, 'x', len);
	*ret_len = len;
	*ret_object = (struct ckpt_object){.bytes = UINT64_MAX, .etag = "1"};
	if (gets.etag && gets.count)
		strcpy(ret_object->etag, gets.etag);
	gets.count++;
	gets.bytes += len;
	return 0;
}

static const struct ckpt_objects_ops counted_ops = {.name = "counted", .get = counted_get};
static struct ckpt_objects counted_backend = {&counted_ops};

static int get_two(uint64_t first, size_t first_len, uint64_t second, size_t second_len)
{
	static char bufs[2][5 << 20];
	struct ckpt_range ranges[] = {{.offset = first, .len = first_len, .buf = bufs[0]},
				      {.offset = second, .len = second_len, .buf = bufs[1]}};

	gets.count = 0;
	gets.bytes = 0;
	return ckpt_objects_get_ranges(&counted_backend, "packs/p", ranges, 2, NULL, NULL);
}

START_TEST(ranges_near_each_other_are_one_get)
{
	const size_t kib = 1024, mib = kib * kib;

	ck_ok(get_two(0, 100, 100, 50));
	ck_assert(gets.count == 1 && gets.bytes == 150);
	ck_ok(get_two(5000, 100, 0, 50)); // in any order, with what is between them
	ck_assert(gets.count == 1 && gets.bytes == 5100);
	ck_ok(get_two(0, 100, 10, 20)); // one inside of the other
	ck_assert(gets.count == 1 && gets.bytes == 100);
	ck_ok(get_two(0, 100, 100 + 33 * kib, 50)); // too far
	ck_assert(gets.count == 2 && gets.bytes == 150);
	ck_ok(get_two(0, 3 * mib, 3 * mib, 2 * mib)); // too much for one buffer
	ck_assert(gets.count == 2 && gets.bytes == 5 * mib);
}
END_TEST

START_TEST(ranges_of_two_versions_are_estale)
{
	gets.etag = "2";
	ck_error(get_two(0, 1, 1 << 20, 1), ESTALE);
	ck_ok(get_two(0, 1, 1, 1));
}
END_TEST

static Suite *layers_suite(void)
{
	Suite *suite = suite_create("layers");
	TCase *tcase = tcase_create("layers");

	tcase_add_test(tcase, fault_fails_the_operation_with_its_number_and_does_not_do_it);
	tcase_add_test(tcase, a_sticky_fault_stays);
	tcase_add_test(tcase, half_a_fault_does_the_change_and_loses_the_answer);
	tcase_add_test(tcase, trace_writes_a_line_per_call);
	tcase_add_test(tcase, a_cause_comes_through_every_layer);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("door");
	tcase_add_test(tcase, the_door_refuses_gets_of_a_wrong_length);
	tcase_add_test(tcase, the_door_refuses_objects_without_etag_or_of_another_size);
	tcase_add_test(tcase, the_door_lets_only_the_vocabulary_through);
	tcase_add_test(tcase, the_door_ends_a_list_that_breaks_its_order);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("ranges");
	tcase_add_test(tcase, ranges_near_each_other_are_one_get);
	tcase_add_test(tcase, ranges_of_two_versions_are_estale);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(layers_suite());
}
