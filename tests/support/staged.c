#include "tests/support/staged.h"

#include "core/save/stage.h"
#include "core/step/removal.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/remove.h"

#include <fcntl.h>

#define MS INT64_C(1000000)

struct ckpt_step *ckpt_staged_begin(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, "", name, 0755, getuid(), getgid(), getpid(), &step));
	return step;
}

int ckpt_staged_put(struct ckpt_step *step, const char *path, const char *text)
{
	int fd = ckpt_sys.open(step->dirfd, path, O_RDWR | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
	return fd;
}

void ckpt_staged_put_array(struct ckpt_step *step, const char *path, char fill, size_t bytes)
{
	static const char header[] = "\x93NUMPY\x01\0\x37\0{'descr': '|u1', 'fortran_order': False, 'shape': (8,)}";
	char data[8];
	CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	memset(data, fill, sizeof(data));
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, header, sizeof(header) - 1, 0));
	ck_ok(ckpt_sys.pwrite(fd, data, bytes, sizeof(header) - 1));
}

int ckpt_staged_remove(struct ckpt_step *step, const char *name)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_top_dir top;
	int rc;

	ckpt_removal_dir_opened(step, &top, 0);
	ckpt_removal_dir_closed(&top);
	rc = ckpt_remove_entry(step, m, 0, name, false, 0);
	ckpt_manifest_unref(m);
	return rc;
}

void ckpt_staged_quiet(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns() - INT64_C(3600000000000),
			 __ATOMIC_RELAXED);
	pthread_cond_broadcast(&step->changed);
}

void ckpt_staged_writer(struct ckpt_step *step, struct ckpt_writer *w, int fd)
{
	struct statx stx;

	ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx), 0);
	*w = (struct ckpt_writer){.ino = ckpt_store_ino(&stx), .pid = 4711, .fd = fd};
	ckpt_stage_writer_add(step, w);
}

void ckpt_staged_close_once(struct ckpt_writer *w)
{
	struct stat st;

	ck_assert_int_eq(fstat(w->fd, &st), 0);
	ckpt_stage_writer_flushed(w, (uint64_t)st.st_size,
				  st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
}

const struct ckpt_commit ckpt_staged_plain = {.event = "marker", .profile = "generic", .writers_ns = 5 * MS};

int ckpt_staged_commit(struct ckpt_step *step, int64_t writers_ns, const char *metadata)
{
	struct ckpt_commit how = ckpt_staged_plain;

	how.writers_ns = writers_ns;
	how.metadata = metadata;
	return ckpt_commit(step, &how);
}

struct ckpt_step *ckpt_staged_one(struct ckpt_store *s, const char *name, const char *path, const char *text)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	close(ckpt_staged_put(step, path, text));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

struct ckpt_manifest *ckpt_staged_manifest(struct ckpt_step *step)
{
	struct ckpt_manifest *m;

	ck_ok(ckpt_step_manifest(step, &m));
	return m;
}

bool ckpt_staged_has(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	uint32_t index;
	int rc = ckpt_manifest_lookup(m, path, &index);

	ckpt_manifest_unref(m);
	return !rc;
}

ssize_t ckpt_staged_read(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, void *buf, size_t cap)
{
	struct ckpt_file *file;
	ssize_t n = ckpt_file_open(step, m, index, &file);
	size_t done = 0;

	if (n)
		return n;
	do {
		n = ckpt_file_read(file, (char *)buf + done, cap - done, done);
		done += (size_t)MAX(n, 0);
	} while (n > 0);
	ckpt_file_close(file);
	return n ? n : (ssize_t)done;
}

void ckpt_staged_check(struct ckpt_step *step, const char *path, const char *text)
{
	size_t len = strlen(text);
	CLEANUP_FREE char *there = malloc(len + 1);
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_assert_int_eq(ckpt_staged_read(step, m, index, there, len + 1), (ssize_t)len);
	ck_assert_mem_eq(there, text, len);
	ckpt_manifest_unref(m);
}
