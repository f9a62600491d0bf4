#include "core/view/array_name.h"

#include "core/base/hash.h"
#include "core/base/util.h"

#include <stdio.h>

#define SUFFIX ".npy"
#define EMPTY "%00" // no name has a NUL

static bool stands_for_itself(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
	       c == '-';
}

// The dot that a folder must not have as it is: with it a file could have the folder's name. SIZE_MAX: it has none.
static size_t folder_dot(const char *component, size_t len)
{
	if (len >= strlen(SUFFIX) && !memcmp(component + len - strlen(SUFFIX), SUFFIX, strlen(SUFFIX)))
		return len - strlen(SUFFIX);
	return len == strlen(CKPT_ARRAY_INDEX) && !memcmp(component, CKPT_ARRAY_INDEX, len)
		       ? strcspn(CKPT_ARRAY_INDEX, ".")
		       : SIZE_MAX;
}

// One component into `out`, which has room for three times its bytes. The bytes that it took.
static size_t escape(const char *component, size_t len, bool folder, char *out)
{
	bool dots = (len == 1 && component[0] == '.') || (len == 2 && !memcmp(component, "..", 2));
	size_t n = 0, dot = folder ? folder_dot(component, len) : SIZE_MAX;

	for (size_t i = 0; i < len; i++) {
		if (!dots && i != dot && stands_for_itself(component[i]))
			out[n++] = component[i];
		else
			n += (size_t)sprintf(out + n, "%%%02X", (unsigned char)component[i]);
	}
	return n;
}

static size_t hash(const char *component, size_t len, char *out)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	size_t n = 2;

	ckpt_sha256(component, len, sha256);
	memcpy(out, "%%", 2);
	for (size_t i = 0; i < sizeof(sha256); i++)
		n += (size_t)sprintf(out + n, "%02x", sha256[i]);
	return n;
}

// suffix: bytes that follow; none: it is a folder.
static size_t put_component(const char *component, size_t len, size_t suffix, char *out)
{
	size_t n;

	if (!len) {
		memcpy(out, EMPTY, strlen(EMPTY));
		return strlen(EMPTY);
	}
	n = escape(component, len, !suffix, out);
	return n + suffix > CKPT_ARRAY_COMPONENT_MAX ? hash(component, len, out) : n;
}

static char *path_of(const char *name, const char *suffix)
{
	size_t len = strlen(name), n = 0;
	// Four bytes for an empty component and its slash, three for any other byte.
	char *out = malloc(len * 4 + 2 * CKPT_SHA256_LEN + 64);

	if (!out)
		return NULL;
	for (const char *at = name;; out[n++] = '/') {
		size_t part = strcspn(at, "/");

		n += put_component(at, part, at[part] ? 0 : strlen(suffix), out + n);
		at += part;
		if (!*at++)
			break;
	}
	memcpy(out + n, suffix, strlen(suffix) + 1);
	return out;
}

char *ckpt_array_path(const char *name)
{
	return path_of(name, SUFFIX);
}

char *ckpt_array_folder(const char *tree)
{
	return !*tree || !strcmp(tree, ".") ? strdup("") : path_of(tree, "");
}

// FOLDER/PATH, or PATH: 2, 1; 0: another one.
static int is_path_of(const struct ckpt_catalog_array *a, const char *path, int *ret_rank)
{
	CLEANUP_FREE char *folder = ckpt_array_folder(a->tree), *file = ckpt_array_path(a->name);
	size_t len = folder ? strlen(folder) : 0;

	if (!folder || !file)
		return -ENOMEM;
	if (len && !strncmp(path, folder, len) && path[len] == '/' && !strcmp(path + len + 1, file))
		*ret_rank = 2;
	else
		*ret_rank = strcmp(path, file) ? 0 : len ? 1 : 2;
	return 0;
}

// A whole path wins over a name.
int ckpt_array_find(const struct ckpt_catalog *c, const char *path, size_t *ret_array)
{
	size_t found = 0, named = 0;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;
		int rank, rc;

		ckpt_catalog_get(c, i, &a);
		rc = is_path_of(&a, path, &rank);
		if (rc)
			return rc;
		if (rank == 2) {
			*ret_array = i;
			return 0;
		}
		named += rank == 1;
		found = rank == 1 ? i : found;
	}
	*ret_array = found;
	return named == 1 ? 0 : -ENOENT;
}
