#include "backends/profiles.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX (1 << 20)
#define SECTION_MAX 192

struct ckpt_profiles {
	char *credentials, *config; // NULL: there is no such file
};

static int check(const char *path, const struct stat *st, char *ret_why, size_t why_size)
{
	int rc = 0;

	if (!S_ISREG(st->st_mode) || st->st_size > FILE_BYTES_MAX)
		rc = -EFBIG;
	else if ((st->st_uid != geteuid() && st->st_uid != 0) || st->st_mode & (S_IWGRP | S_IWOTH))
		rc = -EACCES;
	if (rc)
		snprintf(ret_why, why_size, "%s: %s", path,
			 rc == -EFBIG ? "not a file of profiles, or a too large one"
				      : "others may write it, or it is another user's: nothing is read from it");
	else if (st->st_mode & (S_IRGRP | S_IROTH))
		ckpt_log(CKPT_LOG_WARN, "%s can be read by other users", path);
	return rc;
}

static int load(const char *path, char **ret_text, char *ret_why, size_t why_size)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	ssize_t n;
	int rc;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0 || fstat(fd, &st)) {
		rc = -errno;
		snprintf(ret_why, why_size, "%s: %s", path, strerror(-rc));
		return rc;
	}
	rc = check(path, &st, ret_why, why_size);
	if (rc)
		return rc;
	*ret_text = calloc(1, (size_t)st.st_size + 1);
	if (!*ret_text)
		return -ENOMEM;
	n = pread(fd, *ret_text, (size_t)st.st_size, 0);
	if (n < 0) {
		rc = -errno;
		snprintf(ret_why, why_size, "%s: %s", path, strerror(-rc));
	}
	return rc;
}

static void path_of(const char *variable, const char *name, char *ret_path, size_t size)
{
	const char *path = getenv(variable), *home = getenv("HOME");

	if (path && *path)
		snprintf(ret_path, size, "%s", path);
	else
		snprintf(ret_path, size, "%s/.aws/%s", home && *home ? home : "/root", name);
}

int ckpt_profiles_load(struct ckpt_profiles **ret_profiles, char *ret_why, size_t why_size)
{
	struct ckpt_profiles *p = calloc(1, sizeof(*p));
	char path[PATH_MAX];
	int rc = p ? 0 : -ENOMEM;

	if (!rc) {
		path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials", path, sizeof(path));
		rc = load(path, &p->credentials, ret_why, why_size);
	}
	if (!rc) {
		path_of("AWS_CONFIG_FILE", "config", path, sizeof(path));
		rc = load(path, &p->config, ret_why, why_size);
	}
	if (rc)
		ckpt_profiles_free(p);
	else
		*ret_profiles = p;
	return rc;
}

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void ckpt_profiles_free(struct ckpt_profiles *p)
{
	if (!p)
		return;
	wipe(p->credentials);
	wipe(p->config);
	free(p);
}

// --- Lines --------------------------------------------------------------------------------------------------------------

struct line {
	const char *text;
	size_t len;
};

static struct line trim(const char *text, size_t len)
{
	while (len && strchr(" \t\r", *text))
		text++, len--;
	while (len && strchr(" \t\r", text[len - 1]))
		len--;
	return (struct line){text, len};
}

static bool is(struct line l, const char *word)
{
	return strlen(word) == l.len && !strncasecmp(l.text, word, l.len);
}

// "[profile  NAME]" as "profile NAME".
static bool is_section(struct line l, const char *section)
{
	struct line inner = l.len >= 2 && l.text[0] == '[' && l.text[l.len - 1] == ']' ? trim(l.text + 1, l.len - 2)
										       : (struct line){"", 0};
	char name[SECTION_MAX];
	size_t at = 0;

	for (size_t i = 0; i < inner.len && at + 1 < sizeof(name); i++) {
		char c = inner.text[i] == '\t' ? ' ' : inner.text[i];

		if (c != ' ' || !at || name[at - 1] != ' ')
			name[at++] = c;
	}
	name[at] = '\0';
	return at && !strcmp(name, section);
}

// The value of a setting of a section; an empty line where there is none. name NULL: the section itself.
static struct line find(const char *text, const char *section, const char *name)
{
	bool inside = false;

	for (size_t len; text && *text; text += len + (text[len] == '\n')) {
		struct line l;
		const char *equals;

		len = strcspn(text, "\n");
		l = trim(text, len);
		if (l.len && *l.text == '[') {
			inside = is_section(l, section);
			if (inside && !name)
				return l;
		}
		equals = l.len ? memchr(l.text, '=', l.len) : NULL;
		if (inside && name && equals && !strchr(" \t#;[", *text) &&
		    is(trim(l.text, (size_t)(equals - l.text)), name))
			return trim(equals + 1, l.len - (size_t)(equals + 1 - l.text));
	}
	return (struct line){"", 0};
}

static bool give(struct line l, char *ret_value, size_t size)
{
	bool fits = l.len && l.len < size;

	if (fits)
		memcpy(ret_value, l.text, l.len);
	ret_value[fits ? l.len : 0] = '\0';
	return fits;
}

static void config_section(const char *profile, char section[SECTION_MAX])
{
	snprintf(section, SECTION_MAX, "%s%s", strcmp(profile, "default") ? "profile " : "", profile);
}

bool ckpt_profiles_have(const struct ckpt_profiles *p, const char *profile)
{
	char section[SECTION_MAX];

	config_section(profile, section);
	return find(p->credentials, profile, NULL).len || find(p->config, section, NULL).len ||
	       (!strcmp(profile, "default") && find(p->config, "profile default", NULL).len);
}

void ckpt_profiles_get(const struct ckpt_profiles *p, const char *profile, const char *name, char *ret_value,
		       size_t size)
{
	char section[SECTION_MAX];

	config_section(profile, section);
	if (!give(find(p->credentials, profile, name), ret_value, size) &&
	    !give(find(p->config, section, name), ret_value, size) && !strcmp(profile, "default"))
		give(find(p->config, "profile default", name), ret_value, size);
}

void ckpt_profiles_session(const struct ckpt_profiles *p, const char *session, const char *name, char *ret_value,
			   size_t size)
{
	char section[SECTION_MAX];

	snprintf(section, sizeof(section), "sso-session %s", session);
	give(find(p->config, section, name), ret_value, size);
}
