// What a staged step says of itself, beside its marker.
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/record/metadata.h"
#include "core/step/errlog.h"

#include <fcntl.h>
#include <sys/xattr.h>

struct look {
	int dirfd;
	struct ckpt_errlog *log;
	const char *name;
};

static void leave_out(const struct look *l, const char *what, const char *why)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(what);

	ckpt_errlog_add(l->log, l->name, -EINVAL,
			"give it in the marker, or with `ckptfs commit --metadata`; the files of the step "
			"are unchanged",
			"%s is left out of its metadata: %s", clean ? clean : "some", why);
}

// --- Extended attributes ------------------------------------------------------------------------------------------------

// Names of ours in the list, one after the other; NULL is before the first.
static const char *next_name(const char *names, size_t len, const char *name)
{
	for (name = name ? name + strlen(name) + 1 : names; name < names + len; name += strlen(name) + 1)
		if (!strncmp(name, CKPT_META_XATTRS, strlen(CKPT_META_XATTRS)))
			return name;
	return NULL;
}

// *ret_names is malloc'ed.
static int list_names(int dirfd, char **ret_names, size_t *ret_len)
{
	char *names = malloc(CKPT_XATTR_BYTES_MAX);
	ssize_t len = names ? flistxattr(dirfd, names, CKPT_XATTR_BYTES_MAX) : -1;
	int error = names ? errno : ENOMEM;

	*ret_names = names;
	*ret_len = (size_t)MAX(len, 0);
	return len >= 0 || error == EOPNOTSUPP ? 0 : -error;
}

int ckpt_metadata_may_set(int dirfd, const char *xattr, const char *value, size_t len, const char **ret_why)
{
	const char *key = xattr + strlen(CKPT_META_XATTRS);
	size_t names_len, count = 1, bytes = strlen(xattr) + len;
	CLEANUP_FREE char *names = NULL;
	json_t *parsed = NULL;
	int rc = list_names(dirfd, &names, &names_len);

	if (rc)
		return rc;
	for (const char *n = NULL; (n = next_name(names, names_len, n));) {
		ssize_t have = strcmp(n, xattr) ? fgetxattr(dirfd, n, NULL, 0) : -1;

		count += have >= 0;
		bytes += have >= 0 ? strlen(n) + (size_t)have : 0;
	}
	*ret_why = !*key || !ckpt_name_is_utf8(key, strlen(key)) ? "its name is empty, or no text"
		   : len > CKPT_META_VALUE_MAX                   ? "its value has more than 4 KiB"
		   : count > CKPT_META_XATTRS_MAX                ? "the step has 64 of them already"
		   : bytes > CKPT_META_BYTES_MAX                 ? "the step would have more than 32 KiB of them"
								 : NULL;
	if (*ret_why)
		return -EINVAL;
	rc = ckpt_metadata_value(value, len, &parsed);
	json_decref(parsed);
	if (rc == -EINVAL)
		*ret_why = "its value is neither JSON nor text, or nested too deep";
	return rc;
}

// Who has the store may have set it past the mount.
static int add_extra(const struct look *l, const char *xattr, json_t *extras)
{
	char value[CKPT_META_VALUE_MAX];
	ssize_t len = fgetxattr(l->dirfd, xattr, value, sizeof(value));
	json_t *parsed = NULL;
	int rc = len >= 0 ? ckpt_metadata_value(value, (size_t)len, &parsed) : errno == ERANGE ? -EINVAL : -errno;

	if (rc == -ENODATA) // it has just been removed
		return 0;
	if (!rc && json_object_set_new(extras, xattr + strlen(CKPT_META_XATTRS), parsed))
		rc = ckpt_name_is_utf8(xattr, strlen(xattr)) ? -ENOMEM : -EINVAL;
	if (rc == -EINVAL)
		leave_out(l, xattr, "it is neither JSON nor text, or too large");
	return rc == -EINVAL ? 0 : rc;
}

// {"extras": {...}}, or NULL: there are none.
static int read_extras(const struct look *l, char **ret_json)
{
	CLEANUP_FREE char *names = NULL;
	json_t *extras;
	size_t len;
	int rc = list_names(l->dirfd, &names, &len);

	if (rc || !next_name(names, len, NULL))
		return rc;
	extras = json_object();
	for (const char *n = NULL; !rc && (n = next_name(names, len, n));)
		rc = add_extra(l, n, extras);
	ckpt_json_begin();
	*ret_json = ckpt_json_dump(rc ? NULL : json_pack("{s:O}", "extras", extras), JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(extras);
	return rc ? rc : *ret_json ? 0 : -ENOMEM;
}

// --- metrics.json -------------------------------------------------------------------------------------------------------

// *ret_text is malloc'ed, or NULL where there is none that can be used.
static int read_file(const struct look *l, const char *file, char **ret_text, size_t *ret_len)
{
	CLEANUP_FD int fd = ckpt_sys.open(l->dirfd, file, O_RDONLY | O_NONBLOCK, 0);
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	ssize_t n;

	*ret_text = NULL;
	if (fd == -ENOENT)
		return 0;
	if (fd >= 0 && fstat(fd, &st))
		return -errno;
	if (fd == -ELOOP || (fd >= 0 && (!S_ISREG(st.st_mode) || st.st_size > CKPT_METADATA_BYTES_MAX))) {
		leave_out(l, CKPT_METRICS_FILE,
			  fd < 0 || !S_ISREG(st.st_mode) ? "it is no file" : "it has more than 64 KiB");
		return 0;
	}
	if (fd < 0)
		return fd;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	n = ckpt_sys.pread(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	*ret_len = (size_t)n;
	*ret_text = TAKE_PTR(text);
	return 0;
}

// Of a run that went wrong some metric is no number; the others count.
static void keep_numbers(const struct look *l, json_t *metrics)
{
	const char *name;
	json_t *value;
	bool told = false;
	void *next;

	json_object_foreach_safe(metrics, next, name, value)
	{
		if (json_is_number(value))
			continue;
		if (!told)
			leave_out(l, name, "in " CKPT_METRICS_FILE " it is no finite number");
		told = true;
		json_object_del(metrics, name);
	}
}

// {"metrics": {...}}, or NULL.
static int read_metrics(const struct look *l, const char *file, char **ret_json)
{
	CLEANUP_FREE char *text = NULL;
	json_t *metrics = NULL;
	size_t len;
	int rc = read_file(l, file, &text, &len);

	if (rc || !text)
		return rc;
	ckpt_json_tame(text, len);
	rc = ckpt_json_load(text, len, 0, NULL, &metrics);
	if (rc == -ENOMEM)
		return rc;
	if (!json_is_object(metrics)) {
		leave_out(l, CKPT_METRICS_FILE, rc ? "it is not JSON" : "it is no object of numbers");
		json_decref(metrics);
		return 0;
	}
	keep_numbers(l, metrics);
	ckpt_json_begin();
	*ret_json = ckpt_json_dump(json_pack("{s:o}", "metrics", metrics), JSON_COMPACT | JSON_SORT_KEYS);
	return *ret_json ? 0 : -ENOMEM;
}

// --- All ----------------------------------------------------------------------------------------------------------------

static int add(const struct look *l, const char *what, const char *below, char **json)
{
	char *merged;
	int rc = ckpt_metadata_merge(*json, below, &merged);

	if (rc == -EFBIG) {
		leave_out(l, what, "all of it would be more than 64 KiB");
		return 0;
	}
	if (rc)
		return rc;
	free(*json);
	*json = merged;
	return 0;
}

int ckpt_metadata_of_staged(int dirfd, const char *metadata, struct ckpt_errlog *log, const char *name, char **ret_json)
{
	const struct look l = {dirfd, log, name};
	CLEANUP_FREE char *extras = NULL, *metrics = NULL;
	CLEANUP_FREE char *json = metadata ? strdup(metadata) : NULL;
	int rc = metadata && !json ? -ENOMEM : read_extras(&l, &extras);

	if (!rc)
		rc = read_metrics(&l, CKPT_METRICS_FILE, &metrics);
	if (!rc && extras)
		rc = add(&l, "what " CKPT_META_XATTRS "* say", extras, &json);
	if (!rc && metrics)
		rc = add(&l, CKPT_METRICS_FILE, metrics, &json);
	if (!rc)
		*ret_json = TAKE_PTR(json);
	return rc;
}

int ckpt_metadata_of_metrics(int dirfd, const char *file, struct ckpt_errlog *log, const char *name, char **ret_json)
{
	const struct look l = {dirfd, log, name};

	*ret_json = NULL;
	return read_metrics(&l, file, ret_json);
}
