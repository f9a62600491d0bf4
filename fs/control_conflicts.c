// The folder `.ckptfs/conflicts`: the conflict copies in the steps, which listings of the steps leave out:
//
//   conflicts/STEP/PATH.conflict-HOST     STEP with the folders that it is in, PATH with the directories
//
// Steps without a conflict copy are missing, and so are directories without one. A step that is being changed is shown as its last
// version has it.
//
// The nodes are of SPACE_CONFLICTS, by a hash of their path, and not those of the step: through those the step could be
// written, and the kernel knows a directory in one place only.
#include "fs/control.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/step/attributes.h"
#include "core/step/folders.h"
#include "core/step/removal.h"
#include "core/step/reopened.h"
#include "core/step/store_folder.h"
#include "fs/attr.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define WRITE_BITS ((mode_t)0222)

static const mode_t types[] = {[CKPT_ENTRY_FILE] = S_IFREG, [CKPT_ENTRY_DIR] = S_IFDIR, [CKPT_ENTRY_SYMLINK] = S_IFLNK};

static const struct ckpt_entry a_folder = {.type = CKPT_ENTRY_DIR};

// The target of a path below conflicts/.
struct found {
	struct ckpt_step *step; // a reference; NULL: a folder with steps
	struct ckpt_manifest *m;
	struct ckpt_entry entry; // of a folder a_folder
	bool is_copy;            // it is a conflict copy, or in one; else a directory on the way to one
};

static void found_done(struct found *f)
{
	ckpt_step_unref(f->step);
	if (f->m)
		ckpt_manifest_unref(f->m);
}

// --- In a step --------------------------------------------------------------------------------------------------------

// The entry of dir that this one is, or is below; 0: it is not below dir.
static uint32_t child_towards(const struct ckpt_manifest *m, uint32_t dir, struct ckpt_entry e)
{
	while (e.index && e.parent != dir)
		ckpt_manifest_entry(m, e.parent, &e);
	return e.index;
}

typedef int child_fn(void *arg, uint32_t child);

// Calls fn with the children of dir that are conflict copies or lead to some, maybe more than once.
static int each_towards_copies(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir, child_fn *fn,
			       void *arg)
{
	uint32_t child, count = ckpt_manifest_has_conflicts(m) ? ckpt_manifest_count(m) : 0;
	struct ckpt_entry e;
	int rc = 0;

	for (uint32_t i = 1; i < count && !rc; i++) {
		ckpt_manifest_entry(m, i, &e);
		if (!e.conflict || ckpt_removal_has(step, m, i))
			continue;
		child = child_towards(m, dir, e);
		if (child)
			rc = fn(arg, child);
	}
	return rc;
}

static int stop_at_one(void *arg __attribute__((unused)), uint32_t child __attribute__((unused)))
{
	return 1;
}

static bool leads_to_copies(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir)
{
	return each_towards_copies(step, m, dir, stop_at_one, NULL) == 1;
}

static int find_in_step(struct found *f, const char *path)
{
	uint32_t index;
	int rc = ckpt_step_manifest(f->step, &f->m);

	if (!rc && !ckpt_manifest_has_conflicts(f->m))
		rc = -ENOENT;
	if (!rc)
		rc = ckpt_manifest_lookup(f->m, path, &index);
	if (rc)
		return rc == -ENOTDIR || rc == -ESTALE ? -ENOENT : rc;
	ckpt_manifest_entry(f->m, index, &f->entry);
	ckpt_attributes_apply(f->step, f->m, &f->entry);
	f->is_copy = ckpt_manifest_in_conflict(f->m, index);
	if (f->is_copy)
		return ckpt_removal_has(f->step, f->m, index) ? -ENOENT : 0;
	return f->entry.type == CKPT_ENTRY_DIR && leads_to_copies(f->step, f->m, index) ? 0 : -ENOENT;
}

// --- The way to a step ------------------------------------------------------------------------------------------------

// The committed step of this path, which may be being changed; NULL: there is none.
static int step_at(struct ckpt_fs *fs, const char *path, struct ckpt_step **ret_step)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	CLEANUP_FREE char *folder = slash ? strndup(path, (size_t)(slash - path)) : NULL;
	CLEANUP_FD int fd = -1;
	char id[CKPT_FOLDER_ID_LEN + 1] = "";
	struct ckpt_step *step;
	int rc = slash && !folder ? -ENOMEM : 0;

	if (!rc && slash) {
		fd = ckpt_sys.open(fs->store->tree_fd, folder, O_RDONLY | O_DIRECTORY, 0);
		rc = fd < 0 ? fd : ckpt_store_folder_id(fs->store, fd, false, id);
	}
	if (rc)
		return rc == -ENOTDIR ? -ENOENT : rc;
	step = ckpt_step_find(fs->store, id, name);
	if (!step || ckpt_step_state(step) != CKPT_STEP_COMMITTED) {
		ckpt_step_unref(step);
		return -ENOENT;
	}
	*ret_step = step;
	return 0;
}

// A folder is there although no step in it may have a conflict copy: to say so would need the manifests of all.
static int find(struct ckpt_fs *fs, const char *path, struct found *ret_found)
{
	char upto[PATH_MAX];
	int rc = -ENOENT;

	for (const char *end = strchrnul(path, '/'); rc == -ENOENT; end = strchrnul(end + 1, '/')) {
		snprintf(upto, sizeof(upto), "%.*s", (int)(end - path), path);
		rc = step_at(fs, upto, &ret_found->step);
		if (!rc)
			return find_in_step(ret_found, *end ? end + 1 : "");
		if (!*end)
			break;
	}
	if (rc == -ENOENT && strcmp(path, CKPT_CONTROL_NAME) != 0) { // which has what stands beside steps
		int fd = ckpt_sys.open(fs->store->tree_fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);

		rc = MIN(fd, 0);
		if (fd >= 0)
			ckpt_sys.close(fd);
	}
	return rc == -ENOTDIR || rc == -ELOOP ? -ENOENT : rc;
}

static mode_t type_of_found(const struct found *f)
{
	return types[f->entry.type];
}

// --- Nodes ------------------------------------------------------------------------------------------------------------

// Of a file also by what it is: another one under the same name is another node, with pages of its own in the kernel.
static uint64_t number_of(const char *path, const struct ckpt_entry *e)
{
	const uint64_t is[] = {e->ino, e->bytes, (uint64_t)e->mtime_s, e->mtime_ns};

	return ckpt_checksum(path, strlen(path), e->type == CKPT_ENTRY_FILE ? ckpt_checksum(is, sizeof(is), 0) : 0);
}

// -ESTALE: something else has the name by now.
static int find_node(struct ckpt_fs *fs, struct node *n, struct found *ret_found)
{
	char path[PATH_MAX];
	int rc = control_path(fs, n, NULL, CONTROL_CONFLICTS, path);

	if (!rc)
		rc = find(fs, path, ret_found);
	return rc                                                                                       ? rc
	       : type_of_found(ret_found) != n->type || number_of(path, &ret_found->entry) != n->number ? -ESTALE
													: 0;
}

int control_conflicts_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	CLEANUP(found_done) struct found f = {.entry = a_folder};
	char path[PATH_MAX];
	int rc = control_path(fs, dir, name, CONTROL_CONFLICTS, path);

	if (!rc)
		rc = find(fs, path, &f);
	return rc ? rc
		  : node_get(fs, SPACE_CONFLICTS, number_of(path, &f.entry), type_of_found(&f), dir, name, NULL,
			     ret_node);
}

static void attr_of_found(struct ckpt_fs *fs, struct node *n, const struct found *f, struct stat *ret_attr)
{
	double timeout;

	(void)control_attr(n, ret_attr, &timeout);
	if (!f->is_copy)
		return;
	attr_of_entry(fs, f->step, f->m, &f->entry, ret_attr);
	ret_attr->st_mode &= ~WRITE_BITS;
	ret_attr->st_nlink = S_ISDIR(n->type) ? 2 : 1;
	ret_attr->st_ino = n->number;
}

int control_conflicts_attr(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr)
{
	CLEANUP(found_done) struct found f = {.entry = a_folder};
	int rc = find_node(fs, n, &f);

	if (!rc)
		attr_of_found(fs, n, &f, ret_attr);
	else if ((rc == -ENOENT || rc == -ESTALE) && control_opened_attr(n, ret_attr))
		rc = 0;
	return rc;
}

int control_conflicts_open(struct ckpt_fs *fs, struct node *n, struct ckpt_file **ret_file)
{
	CLEANUP(found_done) struct found f = {.entry = a_folder};
	struct stat attr;
	int rc = find_node(fs, n, &f);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc; // the kernel looks again
	attr_of_found(fs, n, &f, &attr);
	rc = attr_allows(&attr, R_OK) ? control_remember_opened(n, &attr) : -EACCES;
	if (!rc)
		rc = ckpt_file_open(f.step, f.m, f.entry.index, ret_file);
	if (!rc && ckpt_file_fd(*ret_file) < 0)
		ckpt_file_watch(*ret_file);
	return rc;
}

int control_conflicts_readlink(struct ckpt_fs *fs, struct node *n, char ret_target[PATH_MAX])
{
	CLEANUP(found_done) struct found f = {.entry = a_folder};
	int rc = find_node(fs, n, &f);

	if (!rc && !S_ISLNK(n->type))
		rc = -EINVAL;
	if (!rc)
		snprintf(ret_target, PATH_MAX, "%s", f.entry.target ? f.entry.target : "");
	return rc;
}

// --- Listings ---------------------------------------------------------------------------------------------------------

struct paths {
	char **at;
	size_t count, cap;
};

static void paths_done(struct paths *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->at[i]);
	free(p->at);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_reachable(const struct ckpt_folders *folders, const char *id)
{
	bool found = !*id;

	for (size_t i = 0; i < folders->count && !found; i++)
		found = !strcmp(folders->at[i].id, id);
	return found;
}

// Steps whose manifest cannot be read are left out: each use of them says why.
static int add_path(struct paths *p, const struct ckpt_folders *folders, struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	struct ckpt_step_name now;
	bool has;
	int rc;

	if (ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		return 0;
	rc = ckpt_step_manifest(step, &m);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	has = leads_to_copies(step, m, 0);
	ckpt_manifest_unref(m);
	ckpt_step_name(step, &now);
	if (!has || !is_reachable(folders, now.folder_id))
		return 0;
	rc = ckpt_grow((void **)&p->at, &p->cap, p->count + 1, sizeof(*p->at));
	if (rc)
		return rc;
	p->at[p->count] = ckpt_folders_name(folders, now.folder_id, now.name);
	return p->at[p->count] ? (p->count++, 0) : -ENOMEM;
}

// The paths of the steps that have conflict copies, sorted.
static int list_paths(struct ckpt_fs *fs, struct paths *ret_paths)
{
	struct ckpt_folders folders = {0};
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(fs->store, NULL,
				1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING, &steps,
				&count);

	if (rc)
		return rc;
	rc = ckpt_folders_read(fs->store, &folders);
	for (size_t i = 0; i < count && !rc; i++) {
		struct ckpt_step *step = ckpt_step_is_unfinished(steps[i]) ? steps[i]->base : steps[i];

		rc = step ? add_path(ret_paths, &folders, step) : 0;
	}
	ckpt_folders_done(&folders);
	ckpt_step_list_free(steps, count);
	if (!rc && ret_paths->count)
		qsort(ret_paths->at, ret_paths->count, sizeof(*ret_paths->at), by_path);
	return rc;
}

// e is called name in the directory of this path.
static int tell_name(const char *path, const char *name, const struct ckpt_entry *e, control_name_fn *fn, void *arg)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s%s", path, *path ? "/" : "", name);
	return fn(arg, name, types[e->type], number_of(whole, e));
}

// Each next name on the way from the folder to the steps, once: those of one folder may be apart, for "a-b" comes before "a/b".
static int each_in_folder(struct ckpt_fs *fs, const char *path, control_name_fn *fn, void *arg)
{
	CLEANUP(paths_done) struct paths steps = {0};
	CLEANUP(paths_done) struct paths names = {0};
	size_t len = strlen(path);
	int rc = list_paths(fs, &steps);

	for (size_t i = 0; i < steps.count && !rc; i++) {
		const char *rest = steps.at[i] + len + (len > 0);

		if (len && (strncmp(steps.at[i], path, len) != 0 || steps.at[i][len] != '/'))
			continue;
		rc = ckpt_grow((void **)&names.at, &names.cap, names.count + 1, sizeof(*names.at));
		if (!rc && !(names.at[names.count] = strndup(rest, strcspn(rest, "/"))))
			rc = -ENOMEM;
		names.count += !rc;
	}
	if (!rc && names.count)
		qsort(names.at, names.count, sizeof(*names.at), by_path);
	for (size_t i = 0; i < names.count && !rc; i++)
		if (!i || strcmp(names.at[i], names.at[i - 1]) != 0)
			rc = tell_name(path, names.at[i], &a_folder, fn, arg);
	return rc;
}

struct marks {
	uint32_t first;
	bool *of;
};

static int mark(void *arg, uint32_t child)
{
	const struct marks *marks = arg;

	marks->of[child - marks->first] = true;
	return 0;
}

static int each_in_step(const struct found *f, const char *path, control_name_fn *fn, void *arg)
{
	CLEANUP_FREE bool *leads = calloc((size_t)f->entry.child_count + 1, sizeof(*leads));
	struct ckpt_entry e;
	int rc = leads ? 0 : -ENOMEM;

	if (!rc && !f->is_copy)
		rc = each_towards_copies(f->step, f->m, f->entry.index, mark,
					 &(struct marks){f->entry.child_first, leads});
	for (uint32_t i = 0; i < f->entry.child_count && !rc; i++) {
		if (!leads[i] && (!f->is_copy || ckpt_removal_has(f->step, f->m, f->entry.child_first + i)))
			continue;
		ckpt_manifest_entry(f->m, f->entry.child_first + i, &e);
		rc = tell_name(path, e.name, &e, fn, arg);
	}
	return rc;
}

int control_conflicts_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg)
{
	CLEANUP(found_done) struct found f = {.entry = a_folder};
	char path[PATH_MAX];
	int rc = control_path(fs, dir, NULL, CONTROL_CONFLICTS, path);

	if (!rc && *path)
		rc = find(fs, path, &f);
	if (rc)
		return rc == -ENOENT ? 0 : rc; // removed while open: empty, as everywhere
	return f.step ? each_in_step(&f, path, fn, arg) : each_in_folder(fs, path, fn, arg);
}
