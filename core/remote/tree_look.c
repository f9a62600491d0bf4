#include "core/remote/tree_look.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store_folder.h"

#include <fcntl.h>
#include <fts.h>
#include <search.h>
#include <stdio.h>

#define DEPTH_MAX 128

struct look {
	struct ckpt_store *store;
	struct ckpt_tree_view *view;
	size_t above[DEPTH_MAX + 2]; // of each depth, the folder that the walk is in
};

static int64_t ns_of(struct timespec t)
{
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void ckpt_tree_file(const struct stat *st, struct ckpt_tree_file *ret)
{
	*ret = (struct ckpt_tree_file){.ino = st->st_ino,
				       .size = (uint64_t)st->st_size,
				       .mtime_ns = ns_of(st->st_mtim),
				       .ctime_ns = ns_of(st->st_ctim)};
}

bool ckpt_tree_file_is(const struct ckpt_tree_file *file, const struct stat *st)
{
	struct ckpt_tree_file is;

	ckpt_tree_file(st, &is);
	return !memcmp(file, &is, sizeof(is));
}

// --- Walking ------------------------------------------------------------------------------------------------------------

static enum ckpt_tree_kind kind_of(const struct stat *st)
{
	return S_ISDIR(st->st_mode)   ? CKPT_TREE_FOLDER
	       : S_ISREG(st->st_mode) ? CKPT_TREE_FILE
	       : S_ISLNK(st->st_mode) ? CKPT_TREE_LINK
				      : CKPT_TREE_OTHER;
}

static int add(struct look *l, const FTSENT *f, const char *path)
{
	struct ckpt_tree_view *v = l->view;
	int rc = ckpt_grow((void **)&v->at, &v->cap, v->count + 1, sizeof(*v->at));
	char *copy = rc ? NULL : strdup(path);
	const char *slash;

	if (!copy)
		return -ENOMEM;
	slash = strrchr(copy, '/');
	v->at[v->count] = (struct ckpt_tree_entry){
		.path = copy, .name = slash ? slash + 1 : copy, .kind = kind_of(f->fts_statp), .st = *f->fts_statp};
	l->above[f->fts_level] = v->count++;
	return 0;
}

// "": it has none yet.
static int read_id(struct look *l, struct ckpt_tree_entry *e)
{
	CLEANUP_FD int fd = ckpt_sys.open(l->store->tree_fd, e->path, O_RDONLY | O_DIRECTORY, 0);
	int rc = fd < 0 ? fd : ckpt_store_folder_id(l->store, fd, false, e->id);

	return rc == -ENOENT && fd >= 0 ? 0 : rc;
}

static bool is_not_ours(int rc)
{
	return rc == -EACCES || rc == -EPERM || rc == -EROFS || rc == -ENAMETOOLONG;
}

static void hide(struct ckpt_tree_view *v, struct ckpt_tree_entry *e)
{
	e->kind = CKPT_TREE_OTHER;
	v->unknown = true;
}

// 1: it is left out, with all that is in it.
static int look_at(struct look *l, const FTSENT *f, const char *path)
{
	struct ckpt_tree_entry *e;
	int rc;

	if (ckpt_name_check(f->fts_name, strlen(f->fts_name)) ||
	    (f->fts_level == 1 && !strcmp(f->fts_name, CKPT_CONTROL_NAME)))
		return 1;
	if (f->fts_level > DEPTH_MAX) {
		l->view->unknown = true;
		return 1;
	}
	rc = add(l, f, path);
	if (rc)
		return rc;
	e = &l->view->at[l->view->count - 1];
	e->above = f->fts_level > 1 ? l->above[f->fts_level - 1] : SIZE_MAX;
	rc = e->kind == CKPT_TREE_FOLDER ? read_id(l, e) : 0;
	if (!rc)
		return 0;
	if (is_not_ours(rc)) {
		hide(l->view, e);
		return 1;
	}
	free(e->path);
	l->view->count--;
	return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP ? 1 : rc; // it went meanwhile
}

// An entry that cannot be looked at must not be taken for gone.
static int cannot_look(struct look *l, const FTSENT *f)
{
	int level = f->fts_info == FTS_NS ? f->fts_level - 1 : f->fts_level; // of the folder
	size_t at = level >= 1 && level <= DEPTH_MAX ? l->above[level] : SIZE_MAX;

	if (f->fts_errno == ENOENT)
		return 0;
	if (f->fts_errno == ENOMEM || f->fts_errno == EIO)
		return -f->fts_errno;
	l->view->unknown = true;
	if (at < l->view->count)
		l->view->at[at].unreadable = true;
	return level < 1 ? -f->fts_errno : 0;
}

static int visit(struct look *l, FTS *fts, FTSENT *f, size_t top_len)
{
	int rc = 0;

	if (f->fts_level < 1 && (f->fts_info == FTS_NS || f->fts_info == FTS_ERR || f->fts_info == FTS_DNR))
		return f->fts_errno ? -f->fts_errno : -EIO;
	if (f->fts_level < 1 || f->fts_info == FTS_DP)
		return 0;
	if (f->fts_info == FTS_NS || f->fts_info == FTS_ERR || f->fts_info == FTS_DNR || f->fts_info == FTS_DC)
		return cannot_look(l, f);
	rc = look_at(l, f, f->fts_path + top_len);
	if (rc == 1 && f->fts_info == FTS_D)
		(void)fts_set(fts, f, FTS_SKIP);
	return rc < 0 ? rc : 0;
}

static int walk(struct look *l)
{
	char top[64];
	char *paths[] = {top, NULL};
	FTSENT *f;
	FTS *fts;
	int rc = 0;

	snprintf(top, sizeof(top), "/proc/self/fd/%d/.", l->store->tree_fd);
	fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	if (!fts)
		return -errno;
	errno = 0;
	while (!rc && (f = fts_read(fts)))
		rc = visit(l, fts, f, strlen(top) + 1);
	if (!rc && errno)
		rc = -errno;
	fts_close(fts);
	return rc;
}

// --- Ids ------------------------------------------------------------------------------------------------------------------

// Those that folders have, in a tree of tsearch(3).
struct ids {
	void *root;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool has_id(void *arg, const char *id)
{
	const struct ids *ids = arg;

	return tfind(id, &ids->root, by_text);
}

static void keep(void *id)
{
	(void)id; // it is an entry's
}

static int give_id(struct look *l, struct ckpt_tree_entry *e, const struct ckpt_folder_ids *ids)
{
	CLEANUP_FD int fd = ckpt_sys.open(l->store->tree_fd, e->path, O_RDONLY | O_DIRECTORY, 0);

	return fd < 0 ? fd : ckpt_store_folder_make(l->store, fd, ids, e->id);
}

// A folder stands before what is in it, whose id follows from its own. One that went, or gets none, hides what is in it.
static int give_ids(struct look *l, struct ids *ids)
{
	const struct ckpt_folder_ids known = {.has = has_id, .arg = ids};
	struct ckpt_tree_view *v = l->view;
	int rc = 0;

	for (size_t i = 0; i < v->count && !rc; i++) {
		struct ckpt_tree_entry *e = &v->at[i];
		const struct ckpt_tree_entry *above = e->above == SIZE_MAX ? NULL : &v->at[e->above];

		if (above && above->kind == CKPT_TREE_OTHER) {
			hide(v, e);
			strcpy(e->folder_id, "?"); // none that is known
		} else if (above) {
			memcpy(e->folder_id, above->id, sizeof(e->folder_id));
		}
		if (e->kind != CKPT_TREE_FOLDER || *e->id)
			continue;
		rc = give_id(l, e, &known);
		if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || is_not_ours(rc)) {
			hide(v, e);
			rc = 0;
		} else if (!rc && !tsearch(e->id, &ids->root, by_text)) {
			rc = -ENOMEM;
		}
	}
	return rc;
}

static int settle_ids(struct look *l)
{
	struct ids ids = {NULL};
	int rc = 0;

	for (size_t i = 0; i < l->view->count && !rc; i++)
		if (*l->view->at[i].id && !tsearch(l->view->at[i].id, &ids.root, by_text))
			rc = -ENOMEM;
	if (!rc)
		rc = give_ids(l, &ids);
	tdestroy(ids.root, keep);
	return rc;
}

// --- Finding ------------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b, void *arg)
{
	const struct ckpt_tree_view *v = arg;
	const struct ckpt_tree_entry *x = &v->at[*(const size_t *)a], *y = &v->at[*(const size_t *)b];
	int order = strcmp(x->folder_id, y->folder_id);

	return order ? order : strcmp(x->name, y->name);
}

static int by_id(const void *a, const void *b, void *arg)
{
	const struct ckpt_tree_view *v = arg;

	return strcmp(v->at[*(const size_t *)a].id, v->at[*(const size_t *)b].id);
}

static int sort(struct ckpt_tree_view *v)
{
	v->of_name = ckpt_calloc(v->count + 1, sizeof(*v->of_name));
	v->of_id = ckpt_calloc(v->count + 1, sizeof(*v->of_id));
	if (!v->of_name || !v->of_id)
		return -ENOMEM;
	for (size_t i = 0; i < v->count; i++) {
		v->of_name[i] = i;
		if (v->at[i].kind == CKPT_TREE_FOLDER)
			v->of_id[v->folder_count++] = i;
	}
	qsort_r(v->of_name, v->count, sizeof(*v->of_name), by_name, v);
	qsort_r(v->of_id, v->folder_count, sizeof(*v->of_id), by_id, v);
	return 0;
}

struct ckpt_tree_entry *ckpt_tree_find(const struct ckpt_tree_view *v, const char *folder_id, const char *name)
{
	size_t low = 0, high = v->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct ckpt_tree_entry *e = &v->at[v->of_name[mid]];
		int order = strcmp(e->folder_id, folder_id);

		order = order ? order : strcmp(e->name, name);
		if (!order)
			return e;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

struct ckpt_tree_entry *ckpt_tree_find_folder(const struct ckpt_tree_view *v, const char *id)
{
	size_t low = 0, high = v->folder_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct ckpt_tree_entry *e = &v->at[v->of_id[mid]];
		int order = strcmp(e->id, id);

		if (!order)
			return e;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

int ckpt_tree_open_folder(struct ckpt_store *s, const struct ckpt_tree_view *v, const char *id)
{
	const struct ckpt_tree_entry *e = *id ? ckpt_tree_find_folder(v, id) : NULL;

	if (*id && !e)
		return -ENOENT;
	return ckpt_sys.open(s->tree_fd, e ? e->path : ".", O_RDONLY | O_DIRECTORY, 0);
}

int ckpt_tree_look(struct ckpt_store *s, struct ckpt_tree_view *ret_view)
{
	struct look l = {.store = s, .view = ret_view};
	int rc;

	*ret_view = (struct ckpt_tree_view){0};
	rc = walk(&l);
	if (!rc)
		rc = settle_ids(&l);
	if (!rc)
		rc = sort(ret_view);
	if (rc)
		ckpt_tree_view_done(ret_view);
	return rc;
}

void ckpt_tree_view_done(struct ckpt_tree_view *v)
{
	for (size_t i = 0; i < v->count; i++)
		free(v->at[i].path);
	free(v->at);
	free(v->of_name);
	free(v->of_id);
	*v = (struct ckpt_tree_view){0};
}
