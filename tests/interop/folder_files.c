#include "tests/interop/folder_files.h"

#include "core/base/util.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	int fd = openat(*(int *)arg, path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	assert(!fstat(fd, &st));
	*ret_source = ckpt_source_file(fd, (uint64_t)st.st_size);
	return 0;
}

static void close_file(void *arg, struct ckpt_source *source)
{
	(void)arg;
	close((int)(intptr_t)source->arg);
}

static int each_below(int dirfd, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	int fd = openat(dirfd, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d)
		return -errno;
	while (!rc && (e = readdir(d))) {
		char path[4096];
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", e->d_name);
		assert(!fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW));
		if (S_ISDIR(st.st_mode))
			rc = each_below(dirfd, path, fn, fn_arg);
		else if (S_ISREG(st.st_mode))
			rc = fn(fn_arg, path, (uint64_t)st.st_size);
	}
	closedir(d);
	return rc;
}

static int each_file(void *arg, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	return each_below(*(int *)arg, dir, fn, fn_arg);
}

struct ckpt_catalog_files ckpt_folder_files(const int *fd)
{
	return (struct ckpt_catalog_files){
		.open = open_file, .close = close_file, .each = each_file, .arg = (void *)fd};
}
