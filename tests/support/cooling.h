// A step with a large and a small file that is cooled, and questions about its packs and raw files. For suites of core/tier.
#pragma once

#include "core/cold/garbage.h"
#include "core/save/reopen.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/file.h"
#include "core/cold/pack.h"
#include "core/gc/gc.h"
#include "core/save/amend.h"
#include "core/save/remove.h"
#include "core/step/reopened.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define LARGE (2 * (size_t)CKPT_CHUNK_BYTES + 1)

static const struct ckpt_tier_how plain = {.pack_bytes = 64 << 20};
static struct ckpt_step *step;
static struct ckpt_tier_done done;
static char *large; // LARGE bytes

static inline void setup(void)
{
	static const struct timespec times[2] = {{1, 5}, {1000000000, 123456789}};
	int fd;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	fd = ckpt_staged_put(step, "config", "text");
	ck_ok(fchmod(fd, 0640));
	ck_ok(fsetxattr(fd, "user.kind", "x", 1, 0));
	ck_ok(futimens(fd, times));
	close(fd);
	ck_ok(ckpt_sys.link(step->dirfd, "config", step->dirfd, "sub/link"));
	close(ckpt_staged_put(step, "twin", "text"));
	close(ckpt_staged_put(step, "empty", ""));
	ck_ok(ckpt_sys.symlink("config", step->dirfd, "symlink"));
	large = malloc(LARGE);
	for (size_t i = 0; i < LARGE; i++)
		large[i] = (char)(i * 7 >> 3 ^ i >> 20);
	fd = ckpt_staged_put(step, "sub/large", "");
	ck_ok(ckpt_sys.pwrite(fd, large, LARGE, 0));
	close(fd);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
}

static inline void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
	free(large);
}

static inline struct ckpt_manifest *manifest(void)
{
	struct ckpt_manifest *m;

	ck_ok(ckpt_step_manifest(step, &m));
	return m;
}

static inline struct ckpt_entry entry(const char *path)
{
	struct ckpt_manifest *m = manifest();
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_unref(m);
	e.name = e.target = e.raw_path = NULL; // they were the manifest's
	return e;
}

// Field by field: what is between them is not set.
static inline bool is_same_entry(const struct ckpt_entry *a, const struct ckpt_entry *b)
{
	return a->type == b->type && a->content == b->content && a->session == b->session && a->index == b->index &&
	       a->parent == b->parent && a->child_first == b->child_first && a->child_count == b->child_count &&
	       a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->nlink == b->nlink && a->ino == b->ino &&
	       a->bytes == b->bytes && a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns &&
	       a->xattrs == b->xattrs && a->conflict == b->conflict;
}

static inline void check_large(void)
{
	struct ckpt_manifest *m = manifest();
	char *there = malloc(LARGE + 1);
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "sub/large", &index));
	ck_assert_int_eq(ckpt_staged_read(step, m, index, there, LARGE + 1), LARGE);
	ck_assert(!memcmp(there, large, LARGE));
	ckpt_manifest_unref(m);
	free(there);
}

static inline void check_all(void)
{
	ckpt_staged_check(step, "config", "text");
	ckpt_staged_check(step, "sub/link", "text");
	ckpt_staged_check(step, "twin", "text");
	ckpt_staged_check(step, "empty", "");
	check_large();
}

static inline bool has_raw(const char *path)
{
	char raw[PATH_MAX];
	struct stat st;

	snprintf(raw, sizeof(raw), "%s/%s", step->session, path);
	return !fstatat(s->sessions_fd, raw, &st, AT_SYMLINK_NOFOLLOW);
}

static inline int count_one(void *arg, const char *key __attribute__((unused)),
			    const struct ckpt_object *object __attribute__((unused)))
{
	++*(size_t *)arg;
	return 0;
}

static inline size_t packs(void)
{
	size_t count = 0;

	ck_ok(ckpt_objects_list(s->objects, "packs/", NULL, count_one, &count));
	return count;
}

// Flips a bit of every pack at this place, from its end where it is negative.
static inline void damage_packs(off_t at)
{
	CLEANUP_FD int fd = openat(s->dirfd, "packs", O_RDONLY | O_DIRECTORY);
	DIR *list = fdopendir(dup(fd));
	struct dirent *d;

	while ((d = readdir(list))) {
		CLEANUP_FD int one = *d->d_name == '.' ? -1 : openat(fd, d->d_name, O_RDWR);
		off_t where = at < 0 ? lseek(one, 0, SEEK_END) + at : at;
		char byte;

		if (one < 0)
			continue;
		ck_assert_int_eq(pread(one, &byte, 1, where), 1);
		byte ^= 0x10;
		ck_assert_int_eq(pwrite(one, &byte, 1, where), 1);
	}
	closedir(list);
}

static inline void drop_cache(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
}
