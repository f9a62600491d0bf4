#include "tests/support/fixture_gc.h"

#include "tests/support/fixture_sharing.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/commit/delete.h"
#include "core/record/container.h"
#include "core/tier/pack_use.h"

#include <fcntl.h>
#include <stdio.h>

struct ckpt_step *other;
struct ckpt_step *a, *b, *c;
const struct ckpt_gc_how all = {.force = true};
struct ckpt_gc_done done;

void ckpt_fixture_gc_open(void)
{
	ckpt_fixture_open();
	other = ckpt_staged_one(s, "other", "file", "other");
}

void ckpt_fixture_gc_reopen(void)
{
	ckpt_step_unref(TAKE_PTR(other));
	ckpt_fixture_reopen();
}

void ckpt_fixture_gc_close(void)
{
	ckpt_step_unref(other);
	ckpt_fixture_close();
}

void expire(struct ckpt_step *step)
{
	ck_ok(ckpt_delete(step));
	ck_ok(ckpt_expire(step));
}

void expire_earlier(struct ckpt_step *step)
{
	expire(step);
	ckpt_gc_expect_no_more(s, ckpt_gc_expected(s));
}

void gc_all(void)
{
	ck_ok(ckpt_gc(s, &all, &done));
}

uint64_t garbage(void)
{
	uint64_t bytes;

	ck_ok(ckpt_pack_use_garbage(s, &bytes));
	return bytes;
}

bool no_more(void *left)
{
	int *times = left;

	return --*times >= 0;
}

void spoil_record(struct ckpt_step *step, size_t at, uint8_t with)
{
	uint8_t record[CKPT_RECORD_BYTES_MAX];
	char path[CKPT_STEP_KEY_MAX + 32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "steps/%s/%u", step->key, step->summary.version);
	fd = openat(s->dirfd, path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	n = pread(fd, record, sizeof(record), 0);
	ck_assert_int_gt(n, CKPT_SHA256_LEN);
	record[at] ^= with;
	if (at < 40)
		ckpt_sha256(record, (size_t)n - CKPT_SHA256_LEN, record + n - CKPT_SHA256_LEN);
	ck_assert_int_eq(pwrite(fd, record, (size_t)n, 0), n);
	close(fd);
}

int hide_version(struct ckpt_step *step)
{
	char path[CKPT_STEP_KEY_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "steps/%s", step->key);
	fd = openat(s->dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(renameat(fd, "3", s->dirfd, "aside"), 0);
	return fd;
}

void show_version(int fd)
{
	ck_assert_int_eq(renameat(s->dirfd, "aside", fd, "3"), 0);
	close(fd);
}

// --- Three steps that share a text --------------------------------------------------------------------------------------

void ckpt_fixture_sharing_open(void)
{
	ckpt_fixture_gc_open();
	a = ckpt_packed_together(s, "a", LONG_1, SHARED, LONG_2);
	b = ckpt_packed_together(s, "b", SHARED, "one of b");
	c = ckpt_packed_together(s, "c", "one of c", SHARED);
}

static void forget_steps(void)
{
	ckpt_step_unref(TAKE_PTR(a));
	ckpt_step_unref(TAKE_PTR(b));
	ckpt_step_unref(TAKE_PTR(c));
}

void ckpt_fixture_sharing_reopen(void)
{
	forget_steps();
	ckpt_fixture_gc_reopen();
	b = ckpt_step_find(s, "", "b");
	c = ckpt_step_find(s, "", "c");
}

void ckpt_fixture_sharing_close(void)
{
	forget_steps();
	ckpt_fixture_gc_close();
}
