// Where pickles end: samples are what CPython writes, each argument kind once.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"
#include "core/array/pickle.h"

#include <sys/mman.h>

static int end_of(const void *data, size_t len, uint64_t *ret_end)
{
	CLEANUP_FD int fd = memfd_create("pickle", MFD_CLOEXEC);
	struct ckpt_source s = ckpt_source_file(fd, len);

	ck_assert_int_eq(pwrite(fd, data, len, 0), (ssize_t)len);
	return ckpt_pickle_end(&s, ret_end);
}

#define SAMPLE(text)                                                                                                   \
	{                                                                                                              \
		text, sizeof(text) - 1                                                                                 \
	}

static const struct {
	const char *data;
	size_t len;
} samples[] = {
	SAMPLE("\x80\2N."),
	SAMPLE("\x80\2]q\0(K\1M\1\2J\1\2\3\4e."),
	SAMPLE("\x80\2}q\0X\3\0\0\0keyG\0\1\2\3\4\5\6\7s."),
	SAMPLE("\x80\3csome\nthing\nq\0.q."), // ends before what looks like another opcode
	SAMPLE("\x80\3C\2..q\0."),
	SAMPLE("\x80\2U\2..T\1\0\0\0.B\1\0\0\0.t."),
	SAMPLE("\x80\4\x95\x0a\0\0\0\0\0\0\0\x8c\1a\x94\x8a\1\1\x8b\1\0\0\0.t."),
	SAMPLE("\x80\5\x8d\1\0\0\0\0\0\0\0.\x8e\1\0\0\0\0\0\0\0.\x96\1\0\0\0\0\0\0\0.t."),
	SAMPLE("\x80\2I01\nF1.5\nL1L\nS'.'\nV.\np1\ng1\nP.\nia\nb\nj\1\0\0\0r\1\0\0\0h\1\x82\1\x83\1\0\x84\1\0\0\0t."),
	SAMPLE("\x80\2(012QRabde}l]ost)u\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98."),
};

START_TEST(a_pickle_ends_at_its_stop_whatever_follows)
{
	char data[200];
	uint64_t end;

	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		size_t len = samples[i].len - (i == 3 ? 2 : 0);

		memcpy(data, samples[i].data, len);
		memset(data + len, '.', sizeof(data) - len);
		ck_ok(end_of(data, sizeof(data), &end));
		ck_assert_uint_eq(end, len);
		ck_ok(end_of(data, len, &end));
		for (size_t cut = 0; cut < len; cut++)
			ck_error(end_of(data, cut, &end), ENODATA);
	}
}
END_TEST

START_TEST(other_bytes_are_no_pickle)
{
	char line[5000] = "\x80\2V";
	uint64_t end;

	ck_error(end_of("\x80\2\7\0\7\0.", 7, &end), EINVAL);
	ck_error(end_of("\x80\1N.", 4, &end), EINVAL);
	ck_error(end_of("\x80\6N.", 4, &end), EINVAL);
	ck_error(end_of("(lp0\n.", 6, &end), EINVAL);
	ck_error(end_of("\x80\4\x8e\0\0\0\0\0\0\1\1.", 12, &end), EINVAL); // more bytes than any file has
	memset(line + 3, 'x', sizeof(line) - 3);
	ck_error(end_of(line, sizeof(line), &end), EINVAL);
}
END_TEST

// Its bytes are skipped and need not be there; the opcodes after it are read.
START_TEST(a_large_argument_is_skipped)
{
	CLEANUP_FD int fd = memfd_create("pickle", MFD_CLOEXEC);
	uint64_t len = (uint64_t)8 << 30, end;
	uint8_t head[] = {0x80, 4, 0x8e, 0, 0, 0, 0, 2, 0, 0, 0};
	struct ckpt_source s = ckpt_source_file(fd, sizeof(head) + len + 1);

	ck_assert_int_eq(pwrite(fd, head, sizeof(head), 0), sizeof(head));
	ck_assert_int_eq(ftruncate(fd, (off_t)(sizeof(head) + len)), 0);
	ck_assert_int_eq(pwrite(fd, ".", 1, (off_t)(sizeof(head) + len)), 1);
	ck_ok(ckpt_pickle_end(&s, &end));
	ck_assert_uint_eq(end, sizeof(head) + len + 1);
	s.bytes--;
	ck_error(ckpt_pickle_end(&s, &end), ENODATA);
	s.bytes--;
	ck_error(ckpt_pickle_end(&s, &end), ENODATA);
}
END_TEST

static int read_nones(void *arg, uint64_t offset, void *buf, size_t len)
{
	(void)arg;
	memset(buf, 'N', len);
	if (!offset)
		memcpy(buf, "\x80\2", 2);
	return 0;
}

START_TEST(one_that_is_too_long_to_walk_through_is_given_up)
{
	struct ckpt_source s = {.bytes = CKPT_PICKLE_WALK_MAX + 1, .read = read_nones};
	uint64_t end;

	ck_error(ckpt_pickle_end(&s, &end), EFBIG);
	s.bytes = CKPT_PICKLE_WALK_MAX;
	ck_error(ckpt_pickle_end(&s, &end), ENODATA);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pickle");
	TCase *t = tcase_create("pickle");

	tcase_add_test(t, a_pickle_ends_at_its_stop_whatever_follows);
	tcase_add_test(t, other_bytes_are_no_pickle);
	tcase_add_test(t, a_large_argument_is_skipped);
	tcase_add_test(t, one_that_is_too_long_to_walk_through_is_given_up);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
