#include "core/step/store.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/step/store_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define IDENTITY_FILE "store.json"

static const char *const folders[] = {"sessions", "records", "tree", "trash"};

// --- Identity ---------------------------------------------------------------------------------------------------------

int ckpt_store_identity_check(const json_t *identity, char ret_id[CKPT_UUID_LEN + 1], int64_t *ret_created_ns)
{
	const json_t *format = json_object_get(identity, "format"), *required = json_object_get(identity, "required");
	const char *id = json_string_value(json_object_get(identity, "id")), *feature;

	if (!json_is_integer(format) || json_integer_value(format) < 1)
		return -EBADMSG;
	if (json_integer_value(format) > CKPT_STORE_FORMAT || json_array_size(required) > 1)
		return -ENOTSUP;
	if (!json_is_array(required))
		return -EBADMSG;
	if (!json_array_size(required))
		return -EPROTONOSUPPORT; // made before stores had a log
	feature = json_string_value(json_array_get(required, 0));
	if (!feature || strcmp(feature, "log"))
		return -ENOTSUP;
	if (!id || !ckpt_uuid_check(id))
		return -EBADMSG;
	memcpy(ret_id, id, CKPT_UUID_LEN + 1);
	*ret_created_ns = json_integer_value(json_object_get(identity, "created_ns"));
	return 0;
}

// *ret_identity is the caller's.
int ckpt_store_identity(struct ckpt_store *s, json_t **ret_identity)
{
	json_t *identity = NULL;
	int rc = ckpt_store_file_read(s->dirfd, IDENTITY_FILE, &identity);

	if (rc)
		return rc == -ENOENT ? -EMEDIUMTYPE : rc;
	rc = ckpt_store_identity_check(identity, s->id, &s->created_ns);
	if (rc)
		json_decref(identity);
	else
		*ret_identity = identity;
	return rc;
}

int ckpt_store_check_identity(const struct ckpt_store *s)
{
	struct ckpt_store now = {.dirfd = s->dirfd};
	json_t *identity = NULL;
	int rc = ckpt_store_identity(&now, &identity);

	json_decref(identity);
	return rc ? rc : strcmp(now.id, s->id) ? -ESTALE : 0;
}

static int identity_write(int dirfd, json_t *identity)
{
	CLEANUP_FREE char *text = ckpt_json_dump(json_incref(identity), JSON_INDENT(2)), *line = NULL;

	if (!text || asprintf(&line, "%s\n", text) < 0)
		return -ENOMEM;
	return strlen(line) < CKPT_STORE_FILE_BYTES_MAX ? ckpt_store_file_write(dirfd, IDENTITY_FILE, line) : -EFBIG;
}

// 0: nothing is in it but what `passed` lets pass (NULL: nothing does); -ENOTEMPTY, -ENOMEM ...
static int check_empty(int dirfd, const char *name, int (*passed)(int dirfd, const char *name))
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
		rc = passed ? passed(fd, d->d_name) : -ENOTEMPTY;
	closedir(dir);
	return rc;
}

// Passes the content of a new disk, and the leavings of an init that was cut off: this one goes on where that one ended.
static int check_nothing_yet(int dirfd, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (!strcmp(name, folders[i])) {
			int rc = check_empty(dirfd, name, NULL);

			return rc == -ENOTDIR || rc == -ELOOP ? -ENOTEMPTY : rc; // a file of that name
		}
	return strcmp(name, "lost+found") && strcmp(name, IDENTITY_FILE ".new") ? -ENOTEMPTY : 0;
}

int ckpt_store_make_folders(int dirfd)
{
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		int rc = ckpt_sys.mkdir(dirfd, folders[i], strcmp(folders[i], "tree") ? 0700 : 0755);

		if (rc && rc != -EEXIST)
			return rc;
	}
	return ckpt_sys.fsync(dirfd);
}

static json_t *given_json(const struct ckpt_settings *settings)
{
	json_t *object = json_object();
	const struct ckpt_setting *setting;
	int rc = object ? 0 : -1;

	for (size_t i = 0; !rc && (setting = ckpt_setting_at(i)); i++) {
		CLEANUP_FREE char *value =
			ckpt_setting_is_given(setting, settings) ? ckpt_setting_text(setting, settings) : NULL;

		if (ckpt_setting_is_given(setting, settings))
			rc = json_object_set_new(object, setting->name, value ? json_string(value) : NULL);
	}
	if (rc) {
		json_decref(object);
		return NULL;
	}
	return object;
}

int ckpt_store_identity_new(json_t **ret_identity)
{
	char id[CKPT_UUID_LEN + 1];
	int rc = ckpt_uuid_make(id);

	if (rc)
		return rc;
	ckpt_json_begin();
	*ret_identity = json_pack("{s:i, s:s, s:I, s:[s], s:[]}", "format", CKPT_STORE_FORMAT, "id", id, "created_ns",
				  (json_int_t)ckpt_sys.now_ns(), "required", "log", "optional");
	return *ret_identity ? 0 : -ENOMEM;
}

// That of the remote, as it is there, or a new one; and what is the node's alone.
static int identity_make(int dirfd, const struct ckpt_settings *settings, const struct ckpt_store_of *of)
{
	char node[CKPT_UUID_LEN + 1];
	json_t *identity = of ? json_deep_copy(of->identity) : NULL;
	int rc = of ? (identity ? 0 : -ENOMEM) : ckpt_store_identity_new(&identity);

	if (!rc)
		rc = ckpt_uuid_make(node);
	if (!rc && json_object_set_new(identity, "node", json_string(node)))
		rc = -ENOMEM;
	if (!rc && of && json_object_set(identity, "remote", of->remote))
		rc = -ENOMEM;
	if (!rc && settings && settings->given)
		rc = json_object_set_new(identity, "settings", given_json(settings)) ? -ENOMEM : 0;
	if (!rc)
		rc = identity_write(dirfd, identity);
	json_decref(identity);
	return rc;
}

int ckpt_store_init_with(const char *path, const struct ckpt_settings *settings, const struct ckpt_store_of *of)
{
	CLEANUP_FD int dirfd = -1;
	int rc;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	(void)flock(dirfd, LOCK_EX); // of two who make it at once, each would think that it is his
	if (!faccessat(dirfd, IDENTITY_FILE, F_OK, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	rc = check_empty(dirfd, ".", check_nothing_yet);
	if (!rc)
		rc = ckpt_store_make_folders(dirfd);
	return rc ? rc : identity_make(dirfd, settings, of);
}

int ckpt_store_init(const char *path)
{
	return ckpt_store_init_with(path, NULL, NULL);
}

static void pass_over_bad(void *arg __attribute__((unused)), const char *name __attribute__((unused)))
{
}

int ckpt_store_settings(const char *path, struct ckpt_settings *ret_settings)
{
	struct ckpt_store s = {.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	CLEANUP_FD int dirfd = s.dirfd;
	json_t *identity = NULL;
	int rc = dirfd < 0 ? -errno : ckpt_store_identity(&s, &identity);

	if (rc)
		return rc;
	ckpt_settings_init(ret_settings);
	rc = ckpt_settings_load(ret_settings, json_object_get(identity, "settings"), pass_over_bad, NULL);
	json_decref(identity);
	if (rc)
		ckpt_settings_done(ret_settings);
	return rc;
}

static int identity_set(json_t *identity, const char *name, const char *value)
{
	json_t *settings = json_object_get(identity, "settings");

	if (!json_is_object(settings)) { // none yet, or damage, which ends here
		settings = json_object();
		if (!settings || json_object_set_new(identity, "settings", settings))
			return -ENOMEM;
	}
	if (value)
		return json_object_set_new(settings, name, json_string(value)) ? -ENOMEM : 0;
	(void)json_object_del(settings, name);
	return 0;
}

int ckpt_store_set(const char *path, const struct ckpt_setting *setting, const char *value)
{
	struct ckpt_store s = {.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	CLEANUP_FD int dirfd = s.dirfd; // closing it lets the lock go
	json_t *identity = NULL;
	int rc;

	if (dirfd < 0)
		return -errno;
	// Two who change it at once would write one temporary file. The store's lock is the mount's, for its whole life.
	if (flock(dirfd, LOCK_EX))
		return -errno;
	rc = ckpt_store_identity(&s, &identity);
	if (rc)
		return rc;
	rc = identity_set(identity, setting->name, value);
	if (!rc)
		rc = identity_write(dirfd, identity);
	json_decref(identity);
	return rc;
}

bool ckpt_store_probe(const char *path)
{
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dirfd >= 0 && !faccessat(dirfd, IDENTITY_FILE, F_OK, AT_SYMLINK_NOFOLLOW);
}

void ckpt_store_wake_behind(struct ckpt_store *s)
{
	s->calls.wake_behind(s);
}

// --- What is known of what is in it -----------------------------------------------------------------------------------

// 40 bits of inode number, 24 bits that differ between files that had the same inode one after the other.
uint64_t ckpt_store_ino(const struct statx *stx)
{
	uint64_t born = (uint64_t)stx->stx_btime.tv_sec * 1000000000u + stx->stx_btime.tv_nsec;
	uint64_t salt = stx->stx_mask & STATX_BTIME ? (born * UINT64_C(0x9e3779b97f4a7c15)) >> 40 : 0;
	uint64_t low = (stx->stx_ino ^ stx->stx_ino >> 40) & ((UINT64_C(1) << 40) - 1);

	return salt << 40 | low;
}
