#include "tools/mounts.h"

#include "core/util.h"
#include "tools/output.h"

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

// "36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options"; false: not one of ours.
static bool parse_line(char *line, struct ckpt_mounted *ret)
{
	char *dash = strstr(line, " - "), *fields[6], *type, *source, *rest = line;

	if (!dash)
		return false;
	*dash = '\0';
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		fields[i] = strsep(&rest, " ");
		if (!fields[i])
			return false;
	}
	rest = dash + 3;
	type = strsep(&rest, " ");
	source = strsep(&rest, " ");
	if (!source || strcmp(type, "fuse.ckptfs"))
		return false;
	unescape(fields[3]);
	unescape(fields[4]);
	unescape(source);
	ret->root = ckpt_text("%s", fields[3]);
	ret->mountpoint = ckpt_text("%s", fields[4]);
	ret->store = ckpt_text("%s", source);
	ret->readonly = has_option(fields[5], "ro") || (rest && has_option(rest, "ro"));
	return true;
}

int ckpt_mounts_read(struct ckpt_mounts *ret_mounts)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	CLEANUP_FREE char *line = NULL;
	size_t line_cap = 0, cap = 0;

	*ret_mounts = (struct ckpt_mounts){0};
	if (!f)
		return -errno;
	while (getline(&line, &line_cap, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (ckpt_grow((void **)&ret_mounts->at, &cap, ret_mounts->count + 1, sizeof(*ret_mounts->at)))
			ckpt_need(NULL);
		if (parse_line(line, &ret_mounts->at[ret_mounts->count]))
			ret_mounts->count++;
	}
	fclose(f);
	return 0;
}

void ckpt_mounts_done(struct ckpt_mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++) {
		free(mounts->at[i].mountpoint);
		free(mounts->at[i].store);
		free(mounts->at[i].root);
	}
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
