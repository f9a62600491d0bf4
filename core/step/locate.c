#include "core/step/locate.h"

#include "core/base/util.h"
#include "core/step/store.h"

#include <stdio.h>

// Joins path to the current directory and drops ".", ".." and doubled slashes, without looking at the disk.
static char *lexical(const char *path)
{
	CLEANUP_FREE char *cwd = *path == '/' ? NULL : getcwd(NULL, 0);
	CLEANUP_FREE char *joined = NULL;
	char *rest, *part, *out, *end;

	if (!cwd && *path != '/')
		return NULL;
	if (asprintf(&joined, "%s/%s", cwd ? cwd : "", path) < 0) {
		joined = NULL;
		return NULL;
	}
	out = end = calloc(1, strlen(joined) + 2);
	if (!out)
		return NULL;
	for (rest = joined; (part = strsep(&rest, "/"));) {
		if (!*part || !strcmp(part, "."))
			continue;
		if (!strcmp(part, "..")) {
			while (end > out && *--end != '/')
				;
			*end = '\0';
			continue;
		}
		*end++ = '/';
		end = stpcpy(end, part);
	}
	if (end == out)
		strcpy(out, "/");
	return out;
}

char *ckpt_locate_absolute(const char *path)
{
	char *real = realpath(path, NULL), *whole = real ? real : lexical(path), *slash, *joined;
	CLEANUP_FREE char *parent = NULL, *free_whole = NULL;

	if (real || !whole)
		return whole;
	slash = strrchr(whole, '/');
	if (slash == whole)
		return whole;
	*slash = '\0';
	parent = realpath(whole, NULL);
	*slash = '/';
	if (!parent)
		return whole;
	free_whole = whole;
	return asprintf(&joined, "%s%s", strcmp(parent, "/") ? parent : "", slash) < 0 ? NULL : joined;
}

// The innermost directory above path, or path itself, that is a store: how long its path is; 0: none.
static size_t store_above(char *path)
{
	for (size_t len = strlen(path); len; len--) {
		char end = path[len];
		bool found;

		if (end && end != '/')
			continue;
		path[len] = '\0';
		found = ckpt_store_probe(path);
		path[len] = end;
		if (found)
			return len;
	}
	return 0;
}

int ckpt_locate(const struct ckpt_mounts *mounts, const char *path, struct ckpt_location *ret_location)
{
	CLEANUP_FREE char *copy = strdup(path);
	const char *inside;
	struct ckpt_location l = {.mount = ckpt_mounts_find(mounts, path, &inside)};
	size_t len = 0;

	if (!copy)
		return -ENOMEM;
	if (l.mount) {
		l.store = strdup(l.mount->store);
		l.name = ckpt_mounted_name(l.mount, inside);
	} else {
		len = store_above(copy);
		if (!len)
			return -ENOENT;
		l.store = strndup(path, len);
		l.name = strdup(path + len + strspn(path + len, "/"));
	}
	if (!l.store || !l.name) {
		ckpt_location_done(&l);
		return -ENOMEM;
	}
	*ret_location = l;
	return 0;
}

void ckpt_location_done(struct ckpt_location *l)
{
	free(l->store);
	free(l->name);
	*l = (struct ckpt_location){0};
}
