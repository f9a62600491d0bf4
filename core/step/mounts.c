#include "core/step/mounts.h"

#include "core/base/util.h"

#include <stdio.h>

// The kernel writes blank, tab, newline and backslash as three octal digits.
static void unescape(char *text)
{
	char *out = text;

	for (const char *p = text; *p; out++)
		if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] && p[3]) {
			*out = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
			p += 4;
		} else {
			*out = *p++;
		}
	*out = '\0';
}

static bool has_option(const char *options, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = options; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, word, len) && (p[len] == ',' || !p[len]))
			return true;
	}
	return false;
}

static void mounted_done(struct ckpt_mounted *m)
{
	free(m->mountpoint);
	free(m->store);
	free(m->root);
	free(m->device);
}

// "36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options". 0; -ENOENT it is not one of ours; -ENOMEM.
static int parse_line(char *line, struct ckpt_mounted *ret)
{
	char *dash = strstr(line, " - "), *fields[6], *type, *source, *rest = line;

	if (!dash)
		return -ENOENT;
	*dash = '\0';
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		fields[i] = strsep(&rest, " ");
		if (!fields[i])
			return -ENOENT;
	}
	rest = dash + 3;
	type = strsep(&rest, " ");
	source = strsep(&rest, " ");
	if (!source || strcmp(type, "fuse.ckptfs"))
		return -ENOENT;
	unescape(fields[3]);
	unescape(fields[4]);
	unescape(source);
	*ret = (struct ckpt_mounted){
		.mountpoint = strdup(fields[4]),
		.store = strdup(source),
		.root = strdup(fields[3]),
		.device = strdup(fields[2]),
		.readonly = has_option(fields[5], "ro") || (rest && has_option(rest, "ro")),
	};
	if (ret->mountpoint && ret->store && ret->root && ret->device)
		return 0;
	mounted_done(ret);
	return -ENOMEM;
}

int ckpt_mounts_read(struct ckpt_mounts *ret_mounts)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	CLEANUP_FREE char *line = NULL;
	size_t line_cap = 0, cap = 0;
	int rc = 0;

	*ret_mounts = (struct ckpt_mounts){0};
	if (!f)
		return -errno;
	while (rc != -ENOMEM && getline(&line, &line_cap, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		rc = ckpt_grow((void **)&ret_mounts->at, &cap, ret_mounts->count + 1, sizeof(*ret_mounts->at));
		if (!rc)
			rc = parse_line(line, &ret_mounts->at[ret_mounts->count]);
		if (!rc)
			ret_mounts->count++;
	}
	fclose(f);
	if (rc != -ENOMEM)
		return 0;
	ckpt_mounts_done(ret_mounts);
	return rc;
}

void ckpt_mounts_done(struct ckpt_mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++)
		mounted_done(&mounts->at[i]);
	free(mounts->at);
	*mounts = (struct ckpt_mounts){0};
}

const struct ckpt_mounted *ckpt_mounts_find(const struct ckpt_mounts *mounts, const char *path, const char **ret_inside)
{
	const struct ckpt_mounted *found = NULL;
	size_t found_len = 0;

	for (size_t i = 0; i < mounts->count; i++) {
		size_t len = strlen(mounts->at[i].mountpoint);

		if (strncmp(path, mounts->at[i].mountpoint, len) || (path[len] && path[len] != '/') || len < found_len)
			continue;
		found = &mounts->at[i];
		found_len = len;
	}
	if (found && ret_inside)
		*ret_inside = path + found_len + strspn(path + found_len, "/");
	return found;
}

// A path in a mount may be seen through a bind mount of one of its folders.
char *ckpt_mounted_name(const struct ckpt_mounted *mounted, const char *inside)
{
	const char *root = mounted->root + strspn(mounted->root, "/");
	char *name;

	return asprintf(&name, "%s%s%s", root, *root && *inside ? "/" : "", inside) < 0 ? NULL : name;
}

// What of a name is below the folder that is seen there; NULL: it is not.
static const char *below_root(const struct ckpt_mounted *m, const char *name)
{
	const char *root = m->root + strspn(m->root, "/");
	size_t len = strlen(root);

	if (strncmp(name, root, len) || (len && name[len] && name[len] != '/'))
		return NULL;
	return name + len + strspn(name + len, "/");
}

int ckpt_mounts_path(const struct ckpt_mounts *mounts, const char *store, const struct ckpt_mounted *first,
		     const char *name, char **ret_path)
{
	bool as_wished = first && !strcmp(first->store, store) && below_root(first, name);
	const struct ckpt_mounted *m = as_wished ? first : NULL;
	const char *below;

	for (size_t i = 0; i < mounts->count && !as_wished; i++) {
		const struct ckpt_mounted *at = &mounts->at[i];

		if (!strcmp(at->store, store) && below_root(at, name) && (!m || (m->readonly && !at->readonly)))
			m = at;
	}
	*ret_path = NULL;
	if (!m)
		return 0;
	below = below_root(m, name);
	return asprintf(ret_path, "%s%s%s", m->mountpoint, *below ? "/" : "", below) < 0 ? -ENOMEM : 0;
}
