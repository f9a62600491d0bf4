#include "tests/replay/tree.h"

#include "core/base/hash.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static int add_file(FILE *out, const char *path, const char *shown)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_FREE char *data = NULL;
	uint8_t digest[CKPT_SHA256_LEN];
	char hex[CKPT_SHA256_HEX_LEN + 1];
	size_t size, got = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	size = (size_t)st.st_size;
	data = malloc(size + 1);
	if (!data)
		return -1;
	// One byte more than there is, so that a file that grows is not taken for whole.
	while (got <= size) {
		ssize_t n = read(fd, data + got, size + 1 - got);

		if (n < 0)
			return -1;
		if (!n)
			break;
		got += (size_t)n;
	}
	ckpt_sha256(data, got, digest);
	ckpt_hex(digest, sizeof(digest), hex);
	fprintf(out, "file %s %o %zu%s %s\n", shown, st.st_mode & 07777, got,
		got == size ? "" : " (stat says otherwise)", hex);
	return 0;
}

static int add_link(FILE *out, const char *path, const char *shown)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target));

	if (n < 0)
		return -1;
	fprintf(out, "link %s %.*s\n", shown, (int)n, target);
	return 0;
}

static int add(FILE *out, const char *path, const char *shown);

static int add_folder(FILE *out, const char *path, const char *shown, mode_t mode)
{
	struct dirent **entries = NULL;
	int count = scandir(path, &entries, NULL, alphasort), rc = 0;

	if (count < 0)
		return -1;
	if (strcmp(path, "."))
		fprintf(out, "folder %s %o\n", shown, mode & 07777);
	for (int i = 0; i < count; i++) {
		CLEANUP_FREE struct dirent *entry = entries[i];
		char below[PATH_MAX], below_shown[PATH_MAX];

		if (rc || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		snprintf(below_shown, sizeof(below_shown), "%s/%s", shown, entry->d_name);
		rc = add(out, below, below_shown);
	}
	free(entries);
	return rc;
}

static int add(FILE *out, const char *path, const char *shown)
{
	struct stat st;

	if (lstat(path, &st))
		return -1;
	if (S_ISDIR(st.st_mode))
		return add_folder(out, path, shown, st.st_mode);
	return S_ISLNK(st.st_mode) ? add_link(out, path, shown) : add_file(out, path, shown);
}

char *tree_text(const char *path)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	int rc, error;

	if (!out)
		return NULL;
	rc = add(out, path, ".");
	error = errno;
	if (fclose(out) || rc) {
		free(text);
		errno = error;
		return NULL;
	}
	return text;
}

char *tree_difference(const char *is, const char *expected)
{
	char *text = NULL;

	while (*is && *expected) {
		size_t a = strcspn(is, "\n"), b = strcspn(expected, "\n");

		if (a != b || memcmp(is, expected, a))
			break;
		is += a + 1;
		expected += b + 1;
	}
	if (asprintf(&text, "it is `%.*s`, not `%.*s`", (int)strcspn(is, "\n"), *is ? is : "-",
		     (int)strcspn(expected, "\n"), *expected ? expected : "-") < 0)
		return NULL;
	return text;
}

bool tree_is_listed(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char folder[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	dir = opendir(folder);
	while (dir && !found && (entry = readdir(dir)))
		found = !strcmp(entry->d_name, name);
	if (dir)
		closedir(dir);
	return found;
}
