// Which backend is for which URL.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/objects/stack.h"

START_TEST(a_directory_is_a_store_of_objects)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_objects *o;

	ck_error(ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = -1, .writable = true}, &o), EBADF);
	ck_ok(ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = fd, .writable = true}, &o));
	ck_assert_str_eq(o->ops->name, "local");
	ck_ok(ckpt_objects_put(o, "m/x", "x", 1, NULL));
	ckpt_objects_close(o);
	ck_ok(ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = fd}, &o));
	ck_error(ckpt_objects_put(o, "m/y", "y", 1, NULL), EROFS);
	ckpt_objects_close(o);
}
END_TEST

START_TEST(a_url_that_no_backend_is_for_is_refused)
{
	static const char *const urls[] = {"s4://bucket/run", "://x", "lo://x"};
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_objects *o = NULL;

	for (size_t i = 0; i < ARRAY_LEN(urls); i++)
		ck_error(ckpt_objects_open(&(struct ckpt_objects_at){.url = urls[i], .dirfd = fd}, &o),
			 EPROTONOSUPPORT);
	ck_assert_ptr_null(o);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stack");
	TCase *tcase = tcase_create("open");

	tcase_add_test(tcase, a_directory_is_a_store_of_objects);
	tcase_add_test(tcase, a_url_that_no_backend_is_for_is_refused);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
