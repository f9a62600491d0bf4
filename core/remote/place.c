#include "core/remote/place.h"

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/objects/probe.h"
#include "core/objects/stack.h"
#include "core/step/shared_settings.h"
#include "core/step/store.h"
#include "core/step/store_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDENTITY_READS 4
#define NAME_BYTES_MAX 40 // of the URL's last part, for people
#define HASH_DIGITS 16

// --- The directory ----------------------------------------------------------------------------------------------------

static char *base_directory(void)
{
	const char *work = getenv("CKPTFS_WORK_DIR"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n;

	if (work && *work == '/')
		return strdup(work);
	if (!geteuid())
		return strdup("/var/lib/ckptfs");
	n = state && *state == '/' ? asprintf(&path, "%s/ckptfs", state)
				   : asprintf(&path, "%s/.local/state/ckptfs", home && *home == '/' ? home : "");
	return n < 0 ? NULL : path;
}

// "run42-9f86d081884c7d65": a part to read, and one that tells URLs apart.
static char *directory_name(const char *url)
{
	char hex[CKPT_SHA256_HEX_LEN + 1] = "", *name;
	uint8_t sha256[CKPT_SHA256_LEN];
	size_t len = strlen(url), start;

	while (len && url[len - 1] == '/')
		len--;
	ckpt_sha256(url, len, sha256);
	ckpt_hex(sha256, HASH_DIGITS / 2, hex);
	for (start = len; start && len - start < NAME_BYTES_MAX && url[start - 1] != '/';)
		start--;
	return asprintf(&name, "%.*s-%s", (int)(len - start), url + start, hex) < 0 ? NULL : name;
}

static int make_directories(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int rc;

		*slash = '\0';
		rc = mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
		*slash = '/';
		if (rc)
			return rc;
	}
	return 0;
}

static int name_directory(const struct ckpt_remote_at *at, char **ret_path)
{
	CLEANUP_FREE char *base = at->work_dir ? NULL : base_directory(), *name = directory_name(at->url);
	char *path;

	if (!name || (!at->work_dir && !base))
		return -ENOMEM;
	if (at->work_dir)
		path = strdup(at->work_dir);
	else if (asprintf(&path, "%s/%s", base, name) < 0)
		path = NULL;
	*ret_path = path;
	return path ? 0 : -ENOMEM;
}

// --- What the remote is -------------------------------------------------------------------------------------------------

// The file has no hash in it, and a work directory that took a wrong id from it would never fit its remote. A bit that flips on the way does
// not do so twice: two reads that are the same are right.
static int read_identity(struct ckpt_objects *objects, void **ret_data, size_t *ret_len)
{
	CLEANUP_FREE void *before = NULL;
	size_t before_len = 0;

	for (int i = 0; i < IDENTITY_READS; i++) {
		CLEANUP_FREE void *data = NULL;
		size_t len;
		int rc = ckpt_objects_get_all(objects, CKPT_OBJECT_IDENTITY, CKPT_STORE_FILE_BYTES_MAX, &data, &len,
					      NULL);

		if (rc)
			return rc;
		if (before && len == before_len && !memcmp(before, data, len)) {
			*ret_data = TAKE_PTR(data);
			*ret_len = len;
			return 0;
		}
		free(before);
		before = TAKE_PTR(data);
		before_len = len;
	}
	return -EIO;
}

static int try_identity(struct ckpt_objects *objects, json_t **ret_identity)
{
	char id[CKPT_UUID_LEN + 1];
	CLEANUP_FREE void *data = NULL;
	int64_t created_ns;
	size_t len;
	int rc = read_identity(objects, &data, &len);

	if (rc)
		return rc == -EFBIG ? -EMEDIUMTYPE : rc;
	rc = ckpt_json_load(data, len, JSON_REJECT_DUPLICATES, NULL, ret_identity);
	if (rc)
		return rc == -EINVAL ? -EMEDIUMTYPE : rc;
	rc = ckpt_store_identity_check(*ret_identity, id, &created_ns);
	if (rc)
		json_decref(*ret_identity);
	return rc;
}

// A line that flips the same bit twice is not to say that there is no store.
int ckpt_remote_identity(struct ckpt_objects *objects, json_t **ret_identity)
{
	int rc = try_identity(objects, ret_identity);

	return rc == -EMEDIUMTYPE ? try_identity(objects, ret_identity) : rc;
}

static int put_identity(struct ckpt_objects *objects)
{
	CLEANUP_FREE char *text = NULL;
	json_t *identity;
	int rc = ckpt_store_identity_new(&identity);

	if (rc)
		return rc;
	text = ckpt_json_dump(identity, JSON_INDENT(2));
	return text ? ckpt_objects_put(objects, CKPT_OBJECT_IDENTITY, text, strlen(text), NULL) : -ENOMEM;
}

// Of two who make it at once, both have what the first has made.
static int make_identity(struct ckpt_objects *objects, json_t **ret_identity)
{
	int rc = put_identity(objects);

	return !rc || rc == -EEXIST ? ckpt_remote_identity(objects, ret_identity) : rc;
}

// A store whose puts do not tell who was first would lose steps: nobody may write there.
static int probe(struct ckpt_objects *objects, bool race, char *why)
{
	char tried[CKPT_PROBE_WHY_MAX];
	int rc = ckpt_objects_probe(objects, race, tried);

	if (rc != -ENOTSUP)
		return rc;
	snprintf(why, CKPT_OBJECTS_WHY_MAX, "%s", tried);
	return -EPROTO;
}

static int open_remote(const struct ckpt_remote_at *at, char *why, struct ckpt_objects **ret_objects)
{
	return ckpt_objects_open(
		&(struct ckpt_objects_at){
			.url = at->url, .dirfd = -1, .writable = at->make, .options = at->options, .why = why},
		ret_objects);
}

static int learn_identity(const struct ckpt_remote_at *at, json_t **ret_identity, char *why)
{
	struct ckpt_objects *objects;
	int rc = open_remote(at, why, &objects);

	if (rc)
		return rc;
	rc = at->make ? probe(objects, true, why) : 0;
	if (!rc)
		rc = ckpt_remote_identity(objects, ret_identity);
	if (rc == -ENOENT && at->make)
		rc = make_identity(objects, ret_identity);
	if (rc && !*why)
		ckpt_objects_why(objects, why);
	ckpt_objects_close(objects);
	return rc;
}

static json_t *remote_json(const struct ckpt_remote_at *at)
{
	json_t *options = json_array();
	bool ok = options;

	for (size_t i = 0; ok && at->options && at->options[i]; i++)
		ok = !json_array_append_new(options, json_string(at->options[i]));
	if (!ok) {
		json_decref(options);
		return NULL;
	}
	return json_pack("{s:s, s:o}", "url", at->url, "options", options);
}

static int make_store(const struct ckpt_remote_at *at, const char *path, char *why)
{
	struct ckpt_store_of of = {.remote = remote_json(at)};
	int rc = of.remote ? learn_identity(at, &of.identity, why) : -ENOMEM;

	if (!rc && at->make && json_object_set_new(of.remote, "probed", json_true()))
		rc = -ENOMEM;
	if (!rc)
		rc = ckpt_store_init_with(path, at->settings, &of);
	json_decref(of.identity);
	json_decref(of.remote);
	return rc == -EEXIST ? 0 : rc; // another mount has made it just now
}

// --- The whole --------------------------------------------------------------------------------------------------------

static bool is_url(const char *a, const char *b)
{
	size_t a_len = strlen(a), b_len = strlen(b);

	while (a_len && a[a_len - 1] == '/')
		a_len--;
	while (b_len && b[b_len - 1] == '/')
		b_len--;
	return a_len == b_len && !memcmp(a, b, a_len);
}

// 1: identity was changed; 0; -errno.
typedef int change_fn(json_t *identity, void *arg);

// Of two who change it at once, each would lose what the other has said.
static int change_identity(const char *path, change_fn *change, void *arg)
{
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); // closing it lets the lock go
	CLEANUP_FREE char *text = NULL;
	json_t *identity;
	int rc = dirfd < 0 || flock(dirfd, LOCK_EX) ? -errno : 0;

	if (!rc)
		rc = ckpt_store_file_read(dirfd, CKPT_OBJECT_IDENTITY, &identity);
	if (rc)
		return rc;
	rc = change(identity, arg);
	if (rc > 0) {
		text = ckpt_json_dump(json_incref(identity), JSON_INDENT(2));
		rc = text ? ckpt_store_file_write(dirfd, CKPT_OBJECT_IDENTITY, text) : -ENOMEM;
	}
	json_decref(identity);
	return rc;
}

static const char *endpoint_of(const json_t *remote)
{
	const json_t *option;
	size_t i;

	json_array_foreach(json_object_get(remote, "options"), i, option)
	{
		const char *text = json_string_value(option);

		if (text && !strncmp(text, "endpoint=", strlen("endpoint=")))
			return text;
	}
	return "";
}

// Options that are said now hold from now on: the server has moved, or the keys are others.
static int take_options(json_t *identity, void *arg)
{
	const struct ckpt_remote_at *at = arg;
	json_t *was = json_object_get(identity, "remote"), *probed = json_object_get(was, "probed"), *remote;
	const char *url = json_string_value(json_object_get(was, "url"));
	int rc = 0;

	if (!url || !is_url(url, at->url))
		return -EEXIST;
	if (!at->options)
		return 0;
	remote = remote_json(at);
	if (!remote)
		return -ENOMEM;
	if (json_equal(json_object_get(remote, "options"), json_object_get(was, "options"))) {
		json_decref(remote);
		return 0;
	}
	if (probed && !strcmp(endpoint_of(remote), endpoint_of(was)))
		rc = json_object_set(remote, "probed", probed);
	return json_object_set_new(identity, "remote", remote) || rc ? -ENOMEM : 1;
}

int ckpt_remote_known(const struct ckpt_remote_at *at, char **ret_path, json_t **ret_remote)
{
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FD int dirfd = -1;
	json_t *identity, *remote;
	const char *url;
	int rc = name_directory(at, &path);

	if (rc)
		return rc;
	dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = dirfd < 0 ? -errno : ckpt_store_file_read(dirfd, CKPT_OBJECT_IDENTITY, &identity);
	if (rc)
		return rc;
	remote = json_object_get(identity, "remote");
	url = json_string_value(json_object_get(remote, "url"));
	rc = url && is_url(url, at->url) ? 0 : -ENOENT;
	if (!rc) {
		*ret_remote = json_incref(remote);
		*ret_path = TAKE_PTR(path);
	}
	json_decref(identity);
	return rc;
}

static int check_store(const struct ckpt_remote_at *at, const char *path)
{
	return change_identity(path, take_options, (void *)at);
}

static bool has_other_options(const struct ckpt_remote_at *at, const char *path)
{
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	json_t *identity, *said = remote_json(at);
	bool other = false;

	if (said && dirfd >= 0 && !ckpt_store_file_read(dirfd, CKPT_OBJECT_IDENTITY, &identity)) {
		other = !json_equal(json_object_get(said, "options"),
				    json_object_get(json_object_get(identity, "remote"), "options"));
		json_decref(identity);
	}
	json_decref(said);
	return other;
}

// Before they are kept: those that do not work would hold for what comes next. A mount keeps them untried, since it works without the network.
static int try_options(const struct ckpt_remote_at *at, const char *path, char *why)
{
	struct ckpt_objects *objects;
	json_t *identity;
	int rc = !at->make && at->options && has_other_options(at, path) ? open_remote(at, why, &objects) : 1;

	if (rc)
		return MIN(rc, 0);
	rc = ckpt_remote_identity(objects, &identity);
	if (!rc)
		json_decref(identity);
	else if (!*why)
		ckpt_objects_why(objects, why);
	ckpt_objects_close(objects);
	return rc;
}

bool ckpt_remote_is_at(const char *path)
{
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	json_t *identity;
	bool is;

	if (dirfd < 0 || ckpt_store_file_read(dirfd, CKPT_OBJECT_IDENTITY, &identity))
		return false;
	is = json_is_object(json_object_get(identity, "remote"));
	json_decref(identity);
	return is;
}

// Those of store.json; NULL without memory, or where they are none.
static const char **options_of(const json_t *remote)
{
	const json_t *list = json_object_get(remote, "options"), *option;
	const char **options = ckpt_calloc(json_array_size(list) + 1, sizeof(*options));
	size_t i;

	json_array_foreach(list, i, option)
	{
		if (!options || !json_is_string(option)) {
			free(options);
			return NULL;
		}
		options[i] = json_string_value(option);
	}
	return options;
}

static int try_it(const json_t *remote, char *why)
{
	CLEANUP_FREE const char **options = options_of(remote);
	struct ckpt_remote_at at = {
		.url = json_string_value(json_object_get(remote, "url")), .options = options, .make = true};
	struct ckpt_objects *objects;
	int rc = options ? open_remote(&at, why, &objects) : -ENOMEM;

	if (rc)
		return rc;
	rc = probe(objects, false, why);
	if (rc && !*why)
		ckpt_objects_why(objects, why);
	ckpt_objects_close(objects);
	return rc;
}

static int keep_proof(json_t *identity, void *tried)
{
	json_t *remote = json_object_get(identity, "remote");

	if (!json_equal(remote, tried))
		return 0; // it is another by now
	return json_object_set_new(remote, "probed", json_true()) ? -ENOMEM : 1;
}

bool ckpt_remote_is_proved(const json_t *remote)
{
	return json_is_true(json_object_get(remote, "probed"));
}

int ckpt_remote_prove(const char *path, char why[CKPT_OBJECTS_WHY_MAX])
{
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	json_t *identity, *remote;
	int rc = dirfd < 0 ? -errno : ckpt_store_file_read(dirfd, CKPT_OBJECT_IDENTITY, &identity);

	*why = '\0';
	if (rc)
		return rc;
	remote = json_object_get(identity, "remote");
	if (remote && !ckpt_remote_is_proved(remote)) {
		rc = try_it(remote, why);
		if (!rc)
			rc = change_identity(path, keep_proof, remote);
	}
	json_decref(identity);
	return rc;
}

int ckpt_remote_place(const struct ckpt_remote_at *at, char **ret_path, char why[CKPT_OBJECTS_WHY_MAX])
{
	char *path = NULL;
	int rc;

	*why = '\0';
	rc = name_directory(at, &path);
	if (!rc)
		rc = make_directories(path);
	if (!rc && !ckpt_store_probe(path))
		rc = make_store(at, path, why);
	if (!rc)
		rc = try_options(at, path, why);
	if (!rc)
		rc = check_store(at, path);
	if (rc)
		free(path);
	else
		*ret_path = path;
	return rc;
}

// Keys that are none of ours are in no list; objects of probes may be left of a process that was killed.
static int find_of_store(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)arg;
	(void)object;
	return strncmp(key, "probe/", strlen("probe/")) ? -ENOTEMPTY : 0;
}

static int check_empty(struct ckpt_objects *objects)
{
	struct ckpt_object object;
	int rc = ckpt_objects_head(objects, CKPT_OBJECT_IDENTITY, &object);

	if (rc != -ENOENT)
		return rc ? rc : -EEXIST;
	return ckpt_objects_list(objects, "", NULL, find_of_store, NULL);
}

int ckpt_remote_make(const struct ckpt_remote_at *at, char why[CKPT_OBJECTS_WHY_MAX])
{
	struct ckpt_objects *objects;
	int rc;

	*why = '\0';
	rc = open_remote(at, why, &objects);
	if (rc)
		return rc;
	rc = check_empty(objects);
	if (!rc)
		rc = probe(objects, true, why);
	if (!rc)
		rc = put_identity(objects);
	if (rc && !*why)
		ckpt_objects_why(objects, why);
	ckpt_objects_close(objects);
	return rc;
}

// --- A remote for a store that has none, and none for one that has ------------------------------------------------------

// As the remote has it: without what is the node's alone.
static int put_identity_of(struct ckpt_store *s, struct ckpt_objects *objects)
{
	static const char *const fields[] = {"format", "id", "created_ns", "required", "optional"};
	CLEANUP_FREE char *text = NULL;
	json_t *identity, *theirs = json_object();
	int rc = theirs ? ckpt_store_identity(s, &identity) : -ENOMEM;

	if (!rc) {
		for (size_t i = 0; i < ARRAY_LEN(fields) && !rc; i++)
			if (json_object_get(identity, fields[i]) &&
			    json_object_set(theirs, fields[i], json_object_get(identity, fields[i])))
				rc = -ENOMEM;
		json_decref(identity);
	}
	text = rc ? NULL : ckpt_json_dump(json_incref(theirs), JSON_INDENT(2));
	json_decref(theirs);
	if (!rc)
		rc = text ? ckpt_objects_put(objects, CKPT_OBJECT_IDENTITY, text, strlen(text), NULL) : -ENOMEM;
	return rc;
}

static int find_any(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)arg;
	(void)key;
	(void)object;
	return -EEXIST;
}

// One that was cut off before the store itself knew its remote has put the identity and nothing else.
static int check_same(struct ckpt_store *s, struct ckpt_objects *objects)
{
	json_t *identity;
	int rc = ckpt_remote_identity(objects, &identity);

	if (rc)
		return rc;
	rc = strcmp(json_string_value(json_object_get(identity, "id")), s->id) ? -EREMCHG : 0;
	json_decref(identity);
	if (!rc)
		rc = ckpt_objects_list(objects, "log/", NULL, find_any, NULL);
	return rc;
}

static int make_same(struct ckpt_store *s, struct ckpt_objects *objects, char *why)
{
	int there = check_same(s, objects), rc = there == -ENOENT ? check_empty(objects) : there;

	if (!rc)
		rc = probe(objects, true, why);
	if (rc || !there)
		return rc;
	rc = put_identity_of(s, objects);
	return rc == -EEXIST ? check_same(s, objects) : rc;
}

static int set_remote(json_t *identity, void *remote)
{
	if (json_object_get(identity, "remote"))
		return -EALREADY;
	return json_object_set(identity, "remote", remote) ? -ENOMEM : 1;
}

// Before store.json knows the remote: a store that is killed here has none, and its settings are those of store.json.
static int add_settings(struct ckpt_store *s)
{
	json_t *identity;
	int rc = ckpt_store_identity(s, &identity);

	if (rc)
		return rc;
	rc = ckpt_shared_settings_add(s, json_object_get(identity, "settings"));
	json_decref(identity);
	return rc;
}

int ckpt_remote_add(const struct ckpt_remote_at *at, struct ckpt_store *s, char why[CKPT_OBJECTS_WHY_MAX])
{
	struct ckpt_remote_at makes = *at;
	struct ckpt_objects *objects;
	json_t *remote;
	int rc;

	*why = '\0';
	if (ckpt_remote_is_at(s->path))
		return -EALREADY;
	makes.make = true;
	rc = open_remote(&makes, why, &objects);
	if (rc)
		return rc;
	rc = make_same(s, objects, why);
	if (rc && !*why)
		ckpt_objects_why(objects, why);
	ckpt_objects_close(objects);
	if (!rc)
		rc = add_settings(s);
	if (rc)
		return rc;
	remote = remote_json(at);
	if (!remote || json_object_set_new(remote, "probed", json_true()))
		rc = -ENOMEM;
	if (!rc)
		rc = change_identity(s->path, set_remote, remote);
	json_decref(remote);
	return rc;
}

static int unset_remote(json_t *identity, void *store)
{
	json_t *settings = json_object_get(identity, "settings");
	const char *durability;
	int rc;

	if (json_object_del(identity, "remote"))
		return 0;
	if (!json_is_object(settings)) { // none yet, or damage, which ends here
		settings = json_object();
		if (!settings || json_object_set_new(identity, "settings", settings))
			return -ENOMEM;
	}
	rc = ckpt_shared_settings_keep(store, settings);
	if (rc)
		return rc;
	durability = json_string_value(json_object_get(settings, "durability"));
	if (durability && !strcmp(durability, "remote"))
		(void)json_object_del(settings, "durability");
	return 1;
}

int ckpt_remote_forget(struct ckpt_store *s)
{
	return change_identity(s->path, unset_remote, s);
}
