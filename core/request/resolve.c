#include "core/request/resolve.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/locate.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

const char *const ckpt_resolve_words[] = {
	[CKPT_RESOLVE_SCRATCH] = "scratch",
	[CKPT_RESOLVE_RESUME] = "resume",
	[CKPT_RESOLVE_FULL_STATE] = "full_state",
	[CKPT_RESOLVE_PARAMETERS] = "parameters",
	NULL,
};

// --- What is seen of a store --------------------------------------------------------------------------------------------

int ckpt_view_store(const char *directory, struct ckpt_store **ret_store)
{
	struct ckpt_settings settings;
	int rc;

	ckpt_settings_init(&settings);
	settings.work_dir = strdup("/dev/null");
	rc = settings.work_dir ? ckpt_store_open(directory, CKPT_STORE_READ, &settings, ret_store) : -ENOMEM;
	ckpt_settings_done(&settings);
	return rc;
}

// "a/1000" of a step, with `below` behind it.
static int name_of(const struct ckpt_view *v, struct ckpt_step *step, const char *below, char **ret_name)
{
	CLEANUP_FREE char *name = NULL;
	struct ckpt_step_name now;

	ckpt_step_name(step, &now);
	name = ckpt_folders_name(v->folders, now.folder_id, now.name);
	if (!name)
		return -ENOMEM;
	return asprintf(ret_name, "%s%s%s", name, *below ? "/" : "", below) < 0 ? -ENOMEM : 0;
}

int ckpt_view_path(const struct ckpt_view *v, struct ckpt_step *step, const char *below, char **ret_path)
{
	CLEANUP_FREE char *name = NULL;
	int rc = name_of(v, step, below, &name);

	return rc ? rc : ckpt_mounts_path(v->mounts, v->store->path, v->first, name, ret_path);
}

// What is being removed or written anew is in no listing of the mount, which alone knows of it: on disk it is whole until that
// has come to its end. A mount that does not answer knows nothing.
static int is_listed(const struct ckpt_view *v, struct ckpt_step *step, bool *ret_listed)
{
	CLEANUP_FREE char *path = NULL;
	struct dirent *d = NULL;
	char *name;
	DIR *dir;
	int rc = ckpt_view_path(v, step, "", &path);

	*ret_listed = true;
	name = path ? strrchr(path, '/') : NULL;
	if (rc || !name)
		return rc;
	*name++ = '\0';
	dir = opendir(*path ? path : "/");
	if (!dir)
		return 0;
	*ret_listed = false;
	while (!*ret_listed && !(rc = ckpt_sys.readdir(dir, &d)) && d)
		*ret_listed = !strcmp(d->d_name, name);
	*ret_listed |= rc != 0;
	closedir(dir);
	return 0;
}

// Those that are not listed have no place.
static int newest_listed(const struct ckpt_view *v, const char *folder, enum ckpt_latest_by by, size_t back,
			 struct ckpt_step **ret_step)
{
	for (size_t place = 0;; place++) {
		struct ckpt_step *step;
		bool listed;
		int rc = ckpt_find_newest(v->store, v->folders, folder, by, place, &step);

		if (rc)
			return rc;
		rc = is_listed(v, step, &listed);
		if (!rc && listed && v->skips)
			listed = !v->skips(v->skips_arg, step);
		if (!rc && listed && !back--) {
			*ret_step = step;
			return 0;
		}
		ckpt_step_unref(step);
		if (rc)
			return rc;
	}
}

int ckpt_view_newest(const struct ckpt_view *v, const char *folder, enum ckpt_latest_by by, struct ckpt_step **ret_step)
{
	return newest_listed(v, folder, by, 0, ret_step);
}

static int newest_by_setting(void *arg, const char *folder, size_t back, struct ckpt_step **ret_step)
{
	const struct ckpt_view *v = arg;

	return newest_listed(v, folder, v->store->settings.latest_by, back, ret_step);
}

int ckpt_view_find(const struct ckpt_view *v, const char *path, struct ckpt_step **ret_step, const char **ret_rest)
{
	struct ckpt_view same = *v;

	return ckpt_find_step(v->store, v->folders, path, newest_by_setting, &same, ret_step, ret_rest);
}

// --- The run ------------------------------------------------------------------------------------------------------------

// A run's folder may have its steps one deeper, in its `checkpoints`.
static bool is_checkpoints_of(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	if (!len)
		return ckpt_name_is_checkpoints(path);
	return !strncmp(path, folder, len) && path[len] == '/' && ckpt_name_is_checkpoints(path + len + 1);
}

// Of this folder alone: where the root has no steps, those of others are not its own.
static int newest_in(const struct ckpt_view *v, const char *folder, enum ckpt_latest_by by, struct ckpt_step **ret_step)
{
	struct ckpt_step_name name;
	int rc = ckpt_view_newest(v, folder, by, ret_step);

	if (rc)
		return rc;
	ckpt_step_name(*ret_step, &name);
	if (*folder || !*name.folder_id)
		return 0;
	ckpt_step_unref(*ret_step);
	return -ENOENT;
}

// The path of the one folder that has steps. -ENOENT none has, or it is gone; -EMLINK several have, and nobody knows which of them is
// the run's.
static int only_folder(const struct ckpt_view *v, const char **ret_folder)
{
	const char *id = NULL;
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(v->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) { // the lists' order is that of the folders
		if (id && strcmp(id, steps[i]->folder_id))
			rc = -EMLINK;
		id = steps[i]->folder_id;
	}
	*ret_folder = NULL;
	for (size_t i = 0; i < v->folders->count && !rc && id; i++)
		if (!strcmp(v->folders->at[i].id, id))
			*ret_folder = v->folders->at[i].path;
	ckpt_step_list_free(steps, count);
	return rc ? rc : *ret_folder ? 0 : -ENOENT;
}

static int newest_of_run(const struct ckpt_view *v, const struct ckpt_resolve *how, struct ckpt_step **ret_step)
{
	const char *rest, *only;
	bool listed;
	int rc = ckpt_view_find(v, how->folder, ret_step, &rest);

	if (!rc) {
		rc = *rest ? -ENOTDIR : is_listed(v, *ret_step, &listed);
		if (!rc && !listed)
			rc = -ENOENT;
		if (rc)
			ckpt_step_unref(*ret_step);
		return rc;
	}
	if (rc == -ENOENT)
		rc = newest_in(v, how->folder, how->by, ret_step);
	for (size_t i = 0; i < v->folders->count && rc == -ENOENT; i++)
		if (is_checkpoints_of(v->folders->at[i].path, how->folder))
			rc = newest_in(v, v->folders->at[i].path, how->by, ret_step);
	if (rc != -ENOENT || *how->folder || ckpt_step_any(v->store, ""))
		return rc;
	rc = only_folder(v, &only);
	return rc ? rc : newest_in(v, only, how->by, ret_step);
}

bool ckpt_view_is_run(const struct ckpt_view *v, const char *folder)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step;
	const char *rest;
	bool is = !ckpt_folders_id(v->folders, folder, strlen(folder), id);

	for (size_t i = 0; i < v->folders->count && !is; i++)
		is = is_checkpoints_of(v->folders->at[i].path, folder);
	if (is || ckpt_view_find(v, folder, &step, &rest))
		return is;
	ckpt_step_unref(step);
	return true;
}

static int take_step(const struct ckpt_view *v, struct ckpt_step *step, const char *below, struct ckpt_resolved *r)
{
	int rc = name_of(v, step, "", &r->step);

	r->store = strdup(v->store->path);
	if (!rc)
		rc = r->store ? ckpt_view_path(v, step, below, &r->path) : -ENOMEM;
	return rc;
}

// --- The path -----------------------------------------------------------------------------------------------------------

// In a step, or it is the step.
static int take_in_step(const struct ckpt_view *v, struct ckpt_step *step, const char *below, struct ckpt_resolved *r)
{
	struct ckpt_manifest *m;
	uint32_t index;
	bool listed;
	int rc = is_listed(v, step, &listed);

	if (!rc && !listed)
		rc = -EBUSY;
	if (!rc && *below) {
		rc = ckpt_step_manifest(step, &m);
		if (!rc) {
			rc = ckpt_manifest_lookup(m, below, &index) ? -ENOENT : 0;
			ckpt_manifest_unref(m);
		}
	}
	return rc ? rc : take_step(v, step, below, r);
}

// What is in the plain tree is read there as well where the store is not mounted.
static int take_plain(const struct ckpt_view *v, const char *name, struct ckpt_resolved *r)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	CLEANUP_FD int fd = *name ? ckpt_sys.open(v->store->tree_fd, name, O_PATH, 0) : -EISDIR;
	int rc;

	if (fd < 0)
		return fd == -ENOTDIR ? -ENOENT : fd;
	if (!ckpt_folders_id(v->folders, name, strlen(name), id) && ckpt_step_any(v->store, id))
		return -EISDIR;
	rc = ckpt_mounts_path(v->mounts, v->store->path, v->first, name, &r->path);
	if (!rc && !r->path && asprintf(&r->path, "%s/tree/%s", v->store->path, name) < 0) {
		r->path = NULL;
		rc = -ENOMEM;
	}
	r->store = strdup(v->store->path);
	return rc ? rc : r->store ? 0 : -ENOMEM;
}

static int take_in_store(const struct ckpt_view *v, const char *name, struct ckpt_resolved *r)
{
	struct ckpt_step *step;
	const char *below;
	int rc = ckpt_view_find(v, name, &step, &below);

	if (rc)
		return rc == -ENOENT ? take_plain(v, name, r) : rc;
	rc = take_in_step(v, step, below, r);
	ckpt_step_unref(step);
	return rc;
}

static int take_in_other_store(const struct ckpt_mounts *mounts, const struct ckpt_location *l, struct ckpt_resolved *r)
{
	struct ckpt_view v = {.mounts = mounts, .first = l->mount};
	struct ckpt_folders folders = {0};
	int rc = ckpt_view_store(l->store, &v.store);

	if (rc)
		return rc;
	v.folders = &folders;
	rc = ckpt_folders_read(v.store, &folders);
	if (!rc)
		rc = take_in_store(&v, l->name, r);
	ckpt_folders_done(&folders);
	ckpt_store_close(v.store);
	return rc;
}

// Nobody says whether it is complete, but a name that a framework gives only to what it is still writing.
static int take_elsewhere(const char *path, struct ckpt_resolved *r)
{
	struct stat st;

	if (stat(path, &st))
		return errno == ENOTDIR ? -ENOENT : -errno;
	if (ckpt_name_is_temp(strrchr(path, '/') + 1))
		return -EBUSY;
	r->path = strdup(path);
	return r->path ? 0 : -ENOMEM;
}

static int take_path(const struct ckpt_view *v, const char *path, struct ckpt_resolved *r)
{
	struct ckpt_location l;
	struct ckpt_view same = *v;
	int rc = ckpt_locate(v->mounts, path, &l);

	if (rc)
		return rc == -ENOENT ? take_elsewhere(path, r) : rc;
	if (l.mount)
		same.first = l.mount;
	rc = strcmp(l.store, v->store->path) ? take_in_other_store(v->mounts, &l, r) : take_in_store(&same, l.name, r);
	ckpt_location_done(&l);
	return rc;
}

// ".../items/1000" of ".../1000/items", and the other way round: *ret_path is NULL where path is neither.
static int other_form(const char *path, char **ret_path)
{
	const char *last = strrchr(path, '/'), *before = last > path ? memrchr(path, '/', (size_t)(last - path)) : NULL;
	bool is_items = before && (!strcmp(last, "/items") || !strncmp(before, "/items/", 7));

	*ret_path = NULL;
	if (!is_items)
		return 0;
	return asprintf(ret_path, "%.*s%s%.*s", (int)(before - path), path, last, (int)(last - before), before) < 0
		       ? -ENOMEM
		       : 0;
}

static int take_path_in_either_form(const struct ckpt_view *v, const char *path, struct ckpt_resolved *r)
{
	CLEANUP_FREE char *other = NULL;
	int rc = take_path(v, path, r);

	if (rc != -ENOENT)
		return rc;
	rc = other_form(path, &other);
	return rc ? rc : other ? take_path(v, other, r) : -ENOENT;
}

// ------------------------------------------------------------------------------------------------------------------------

void ckpt_resolved_done(struct ckpt_resolved *r)
{
	free(r->store);
	free(r->step);
	free(r->path);
	*r = (struct ckpt_resolved){0};
}

int ckpt_resolve_run(const struct ckpt_view *v, const struct ckpt_resolve *how, struct ckpt_resolved *ret_resolved,
		     bool *ret_of_path)
{
	const char *path = how->full_state ? how->full_state : how->parameters;
	struct ckpt_resolved r = {.mode = CKPT_RESOLVE_RESUME};
	struct ckpt_step *step;
	int rc;

	*ret_of_path = false;
	if (how->full_state && how->parameters)
		return -EINVAL;
	rc = newest_of_run(v, how, &step);
	if (!rc) {
		rc = take_step(v, step, "", &r);
		ckpt_step_unref(step);
	} else if (rc == -ENOENT && path) {
		*ret_of_path = true;
		r.mode = how->full_state ? CKPT_RESOLVE_FULL_STATE : CKPT_RESOLVE_PARAMETERS;
		rc = take_path_in_either_form(v, path, &r);
	} else if (rc == -ENOENT) {
		r.mode = CKPT_RESOLVE_SCRATCH;
		rc = 0;
	}
	if (rc)
		ckpt_resolved_done(&r);
	else
		*ret_resolved = r;
	return rc;
}
