#include "core/store/store.h"

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/commit/reopen.h"
#include "core/gc/gc.h"
#include "core/objects/stack.h"
#include "core/stage/convert.h"
#include "core/stage/looker.h"
#include "core/stage/stage.h"
#include "core/store/load.h"
#include "core/store/room.h"
#include "core/store/store_file.h"
#include "core/store/trash.h"
#include "core/tier/chunk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define IDENTITY_FILE "store.json"
#define PACKS_WAIT_NS INT64_C(200000000) // before it is asked whether to go on

static const char *const folders[] = {"sessions", "records", "tree", "trash"};

// --- Identity ---------------------------------------------------------------------------------------------------------

static int identity_check(struct ckpt_store *s, const json_t *identity)
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
	memcpy(s->id, id, CKPT_UUID_LEN + 1);
	s->created_ns = json_integer_value(json_object_get(identity, "created_ns"));
	return 0;
}

// *ret_identity is the caller's.
static int identity_read(struct ckpt_store *s, json_t **ret_identity)
{
	json_t *identity = NULL;
	int rc = ckpt_store_file_read(s->dirfd, IDENTITY_FILE, &identity);

	if (rc)
		return rc == -ENOENT ? -EMEDIUMTYPE : rc;
	rc = identity_check(s, identity);
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
	int rc = identity_read(&now, &identity);

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

// What is in a new disk, and what an init that was cut off has left: it goes on where that one ended.
static int check_nothing_yet(int dirfd, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (!strcmp(name, folders[i])) {
			int rc = check_empty(dirfd, name, NULL);

			return rc == -ENOTDIR || rc == -ELOOP ? -ENOTEMPTY : rc; // a file of that name
		}
	return strcmp(name, "lost+found") && strcmp(name, IDENTITY_FILE ".new") ? -ENOTEMPTY : 0;
}

static int make_folders(int dirfd)
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

static int identity_make(int dirfd, const struct ckpt_settings *settings)
{
	char id[CKPT_UUID_LEN + 1];
	json_t *identity;
	int rc = ckpt_uuid_make(id);

	if (rc)
		return rc;
	ckpt_json_begin();
	identity = json_pack("{s:i, s:s, s:I, s:[s], s:[]}", "format", CKPT_STORE_FORMAT, "id", id, "created_ns",
			     (json_int_t)ckpt_sys.now_ns(), "required", "log", "optional");
	if (!identity)
		return -ENOMEM;
	if (settings && settings->given)
		rc = json_object_set_new(identity, "settings", given_json(settings)) ? -ENOMEM : 0;
	if (!rc)
		rc = identity_write(dirfd, identity);
	json_decref(identity);
	return rc;
}

int ckpt_store_init_with(const char *path, const struct ckpt_settings *settings)
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
		rc = make_folders(dirfd);
	return rc ? rc : identity_make(dirfd, settings);
}

int ckpt_store_init(const char *path)
{
	return ckpt_store_init_with(path, NULL);
}

static void pass_over_bad(void *arg __attribute__((unused)), const char *name __attribute__((unused)))
{
}

int ckpt_store_settings(const char *path, struct ckpt_settings *ret_settings)
{
	struct ckpt_store s = {.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	CLEANUP_FD int dirfd = s.dirfd;
	json_t *identity = NULL;
	int rc = dirfd < 0 ? -errno : identity_read(&s, &identity);

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
	rc = identity_read(&s, &identity);
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

// --- Open and close ---------------------------------------------------------------------------------------------------

// Each folder of ours is a directory of the store's own filesystem: no symlink, no mount on top.
static int folder_open(struct ckpt_store *s, const char *name, int *ret_fd)
{
	struct stat store, folder;
	int fd = ckpt_sys.open(s->dirfd, name, O_RDONLY | O_DIRECTORY, 0), rc;

	if (fd < 0)
		return fd == -ELOOP || fd == -ENOTDIR ? -EBADMSG : fd;
	rc = fstat(s->dirfd, &store) || fstat(fd, &folder) ? -errno : store.st_dev != folder.st_dev ? -EXDEV : 0;
	if (rc)
		ckpt_sys.close(fd);
	else
		*ret_fd = fd;
	return rc;
}

void ckpt_store_forgo_index(struct ckpt_store *s)
{
	ckpt_index_close(TAKE_PTR(s->index));
	ckpt_errlog_add(s->errlog, "index", -ENOSPC, "free room on the disk; the next mount builds the index",
			"the disk is full: the store is used without an index, which is slower");
}

static int index_open(struct ckpt_store *s)
{
	CLEANUP_FREE char *path = NULL;
	bool fresh; // it fills as manifests are put and packs are looked at
	int rc;

	if (asprintf(&path, "%s/index", s->settings.work_dir ? s->settings.work_dir : s->path) < 0)
		return -ENOMEM;
	rc = ckpt_index_open(path, s->id, !s->writable, &s->index, &fresh);
	// Something that is no directory took its place: nothing in it is needed.
	if (rc == -ENOTDIR && s->writable && !unlink(path))
		rc = ckpt_index_open(path, s->id, false, &s->index, &fresh);
	if (rc && !s->writable) {
		s->index = NULL; // the store says the same, slower
		return 0;
	}
	if (ckpt_is_full(rc)) { // who is to make room must get in
		ckpt_store_forgo_index(s);
		return 0;
	}
	return rc == -EMEDIUMTYPE ? -EREMOTE : rc == -ENOENT ? -ENXIO : rc; // not of the store itself
}

// A value that is none keeps nobody from the store: it counts as not said.
static void tell_bad_setting(void *arg, const char *name)
{
	struct ckpt_store *s = arg;

	ckpt_errlog_add(s->errlog, IDENTITY_FILE, -EINVAL, "set it with `ckptfs config STORE KEY=VALUE`",
			"the value of %s is wrong and is ignored", name);
}

static int store_open_parts(struct ckpt_store *s, bool repair)
{
	json_t *identity = NULL;
	int rc = identity_read(s, &identity);

	s->multigrain = ckpt_has_multigrain_times(s->dirfd);
	if (!rc && s->writable && !(rc = ckpt_holder_take(s)))
		rc = make_folders(s->dirfd);
	if (!rc)
		rc = folder_open(s, "sessions", &s->sessions_fd);
	if (!rc)
		rc = folder_open(s, "records", &s->records_fd);
	if (!rc)
		rc = folder_open(s, "tree", &s->tree_fd);
	if (!rc)
		rc = folder_open(s, "trash", &s->trash_fd);
	if (!rc)
		rc = ckpt_errlog_open(s->dirfd, s->writable, &s->errlog);
	if (!rc)
		rc = ckpt_settings_load(&s->settings, json_object_get(identity, "settings"), tell_bad_setting, s);
	json_decref(identity);
	if (!rc)
		rc = ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = s->dirfd, .writable = s->writable},
				       &s->objects);
	if (!rc)
		rc = ckpt_chunk_cache_new(s, CKPT_CHUNK_CACHE_BYTES, CKPT_CHUNK_CACHE_KEPT_NS, &s->chunk_cache);
	if (!rc && s->writable)
		rc = ckpt_limit_new(s, &s->limit);
	if (!rc)
		rc = index_open(s);
	if (!rc)
		rc = ckpt_load_steps(s, repair);
	// Those of a store that somebody else has for writing are his, and live for all we know.
	if (!rc && (s->writable || ckpt_store_holder(s->path, NULL)))
		rc = ckpt_load_sessions(s);
	if (!rc && s->writable)
		rc = ckpt_convert_settle(s);
	if (!rc)
		rc = ckpt_stage_restart(s);
	if (!rc && s->writable && s->index)
		rc = ckpt_indexer_new(s->index, &s->indexer);
	if (!rc && s->writable)
		rc = ckpt_trash_open(s, &s->trash);
	return rc;
}

int ckpt_store_open(const char *path, enum ckpt_store_mode mode, const struct ckpt_settings *settings,
		    struct ckpt_store **ret_store)
{
	struct ckpt_store *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->dirfd = s->sessions_fd = s->records_fd = s->tree_fd = s->trash_fd = s->lock_fd = -1;
	ckpt_lock_init(&s->refresh_lock, CKPT_LOCK_REFRESH);
	ckpt_lock_init(&s->packs_lock, CKPT_LOCK_PACKS);
	ckpt_lock_init(&s->acts_lock, CKPT_LOCK_ACTS);
	ckpt_lock_init(&s->lock, CKPT_LOCK_STORE);
	pthread_cond_init(&s->idle, NULL);
	s->writable = mode != CKPT_STORE_READ;
	ckpt_boot_id(s->boot_id);
	s->steps = ckpt_step_table_new();
	s->path = realpath(path, NULL);
	rc = !s->path ? -errno : !s->steps ? -ENOMEM : 0;
	if (!rc && settings)
		rc = ckpt_settings_copy(&s->settings, settings);
	else
		ckpt_settings_init(&s->settings);
	if (!rc) {
		s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = s->dirfd < 0 ? (errno == ENOTDIR ? -EMEDIUMTYPE : -errno)
				  : store_open_parts(s, mode == CKPT_STORE_REPAIR);
	}
	if (rc) {
		ckpt_store_close(s);
		return rc;
	}
	*ret_store = s;
	return 0;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		ckpt_sys.close(fd);
}

// What is not sealed is not cooled.
int ckpt_store_work_behind(struct ckpt_store *s)
{
	bool seals = s->writable && s->settings.seal, cools = seals && s->settings.hot != CKPT_HOT_ALL;
	struct ckpt_sealer *sealer = NULL;
	struct ckpt_cooler *cooler = NULL;
	struct ckpt_room *room = NULL;
	struct ckpt_looker *looker = NULL;
	int rc = seals ? ckpt_sealer_new(s, &sealer) : 0;

	__atomic_store_n(&s->sealer, sealer, __ATOMIC_RELEASE);
	if (!rc && cools)
		rc = ckpt_cooler_new(s, &cooler);
	__atomic_store_n(&s->cooler, cooler, __ATOMIC_RELEASE);
	if (!rc && s->writable)
		rc = ckpt_room_new(s, &room);
	__atomic_store_n(&s->room, room, __ATOMIC_RELEASE);
	if (!rc && s->writable)
		rc = ckpt_looker_new(s, &looker);
	__atomic_store_n(&s->looker, looker, __ATOMIC_RELEASE);
	return rc ? rc : ckpt_limit_watch(s->limit);
}

void ckpt_store_wake_behind(struct ckpt_store *s)
{
	ckpt_sealer_wake(__atomic_load_n(&s->sealer, __ATOMIC_ACQUIRE));
	ckpt_cooler_wake(__atomic_load_n(&s->cooler, __ATOMIC_ACQUIRE));
}

int ckpt_store_take_packs(struct ckpt_store *s, bool at_once, bool (*go_on)(void *arg), void *arg)
{
	int rc = 0;

	if (at_once)
		return ckpt_lock_try_ns(&s->packs_lock, 0) ? 0 : -EBUSY;
	__atomic_add_fetch(&s->packs_wanted, 1, __ATOMIC_RELAXED);
	while (!rc && !ckpt_lock_try_ns(&s->packs_lock, PACKS_WAIT_NS))
		rc = go_on && !go_on(arg) ? -EINTR : 0;
	__atomic_sub_fetch(&s->packs_wanted, 1, __ATOMIC_RELAXED);
	return rc;
}

bool ckpt_store_packs_wanted(const struct ckpt_store *s)
{
	return __atomic_load_n(&s->packs_wanted, __ATOMIC_RELAXED);
}

void ckpt_store_complete(struct ckpt_store *s, int64_t until_ns)
{
	ckpt_looker_stop(s->looker);
	ckpt_looker_end(s->looker, until_ns);
}

void ckpt_store_rest(struct ckpt_store *s)
{
	if (!s || !s->steps) // NULL: an open that failed before anything
		return;
	ckpt_looker_stop(s->looker);
	ckpt_sealer_stop(s->sealer);
	ckpt_cooler_stop(s->cooler);
	ckpt_limit_stop(s->limit);
	ckpt_reopen_wake_all(s);
	ckpt_room_stop(s->room);
	ckpt_trash_stop(s->trash);
	LOCK_SCOPE(&s->lock);
	while (s->commits_running)
		ckpt_lock_wait(&s->idle, &s->lock);
}

void ckpt_store_close(struct ckpt_store *s)
{
	if (!s)
		return;
	const int fds[] = {s->sessions_fd, s->records_fd, s->tree_fd, s->trash_fd, s->lock_fd, s->dirfd};

	ckpt_store_rest(s);
	ckpt_room_free(s->room);
	ckpt_trash_close(s->trash);
	if (s->writable && s->objects && s->steps)
		ckpt_gc_expected_keep(s);
	if (s->writable && s->journal)
		(void)ckpt_journal_snapshot(s->journal, false);
	ckpt_sealer_free(s->sealer);
	ckpt_cooler_free(s->cooler);
	ckpt_looker_free(TAKE_PTR(s->looker));
	ckpt_limit_free(s->limit);
	ckpt_indexer_close(s->indexer);
	ckpt_chunk_cache_free(s->chunk_cache);
	ckpt_step_table_free(s->steps);
	ckpt_index_close(s->index);
	ckpt_journal_close(s->journal);
	ckpt_objects_close(s->objects);
	ckpt_errlog_close(s->errlog);
	ckpt_holder_drop(s);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close_if_open(fds[i]);
	ckpt_settings_done(&s->settings);
	ckpt_store_forget_folders(s);
	ckpt_keys_done(&s->expired_packs);
	free(s->path);
	pthread_cond_destroy(&s->idle);
	ckpt_lock_done(&s->lock);
	ckpt_lock_done(&s->acts_lock);
	ckpt_lock_done(&s->packs_lock);
	ckpt_lock_done(&s->refresh_lock);
	free(s);
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
