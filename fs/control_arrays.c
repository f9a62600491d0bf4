// The folders `.arrays` and `.views` in the directory of each committed step, in no listing: the arrays of the step as files of NumPy, whatever
// its files are, and views of them (core/view). A step that has an entry of this name itself has no such folder.
//
// Nodes are found by the path below .arrays or .views, where the first component is the name of a view: folders are those of the step, files those of one version of it, so that pages and handles of
// another version are never mixed up with them. An open file stays that of its version. A step that is being changed shows its last
// version.
#include "fs/control.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/step/errlog.h"
#include "core/view/array_cache.h"
#include "core/view/array_file.h"
#include "fs/attr.h"
#include "fs/call.h"
#include "fs/handle.h"

#include <stdio.h>
#include <sys/stat.h>

// The committed step that n is in; NULL: none.
static struct ckpt_step *step_of(struct ckpt_fs *fs, struct node *n)
{
	struct ckpt_step *step = node_step(fs, n), *base;

	if (step && ckpt_step_is_unfinished(step) && step->base) {
		base = ckpt_step_ref(step->base);
		ckpt_step_unref(step);
		step = base;
	}
	if (step && !ckpt_step_has_manifest(ckpt_step_state(step))) {
		ckpt_step_unref(step);
		step = NULL;
	}
	return step;
}

static void tell(struct ckpt_fs *fs, struct ckpt_step *step, int rc, const char *what, const char *path)
{
	struct ckpt_step_name now;

	ckpt_step_name(step, &now);
	ckpt_errlog_add(fs->store->errlog, now.name, rc, "`ckptfs verify` says what is damaged",
			"%s cannot be read: %s", path ? path : "its arrays", what);
}

static const char *text_of(int rc)
{
	return rc == -ENODATA   ? "a part of it is in no file"
	       : rc == -ENOENT  ? "a file of it is missing"
	       : rc == -EBADMSG ? "its bytes are damaged"
	       : rc == -ENOTSUP ? "its form is not known"
	       : rc == -EFBIG   ? "it would take more work than is allowed"
				: strerror(-rc);
}

// The error that a client gets for a file whose bytes cannot be used.
static int told_as(int rc)
{
	return rc == -ENODATA || rc == -ENOENT || rc == -EBADMSG || rc == -ENOTSUP || rc == -EFBIG ? -EIO : rc;
}

// Once for a name, as long as few others are wrong: programs ask several times, and the log has room for little.
static bool is_told(struct ckpt_fs *fs, const struct ckpt_step *step, const char *name)
{
	uint64_t sum = ckpt_checksum(name, strlen(name), step->incarnation) | 1;

	return __atomic_exchange_n(&fs->views_told[sum >> 1 & (ARRAY_LEN(fs->views_told) - 1)], sum,
				   __ATOMIC_RELAXED) == sum;
}

static void tell_wrong(struct ckpt_fs *fs, struct ckpt_step *step, const char *name, const struct ckpt_view_why *why)
{
	struct ckpt_step_name now;

	if (!*why->why || is_told(fs, step, name))
		return;
	ckpt_step_name(step, &now);
	ckpt_errlog_add(fs->store->errlog, now.name, -ENOENT, why->hint, "no view %s: %s", name, why->why);
}

// A place below .arrays or .views.
struct virtual_path {
	char path[PATH_MAX]; // from there on
	const char *view;    // the name of a view, within path; NULL: none
	const char *in_set;  // the rest of it
	char name[CKPT_NAME_MAX + 1];
};

static bool is_view(const struct node *n)
{
	return n->control == CONTROL_VIEWS || n->control == CONTROL_VIEW;
}

// Of n, or of this name in it.
static int find_place(struct ckpt_fs *fs, struct node *n, const char *name, struct virtual_path *ret_place)
{
	bool views = is_view(n);
	size_t len;
	int rc = control_path(fs, n, name, views ? CONTROL_VIEWS : CONTROL_ARRAYS, ret_place->path);

	if (rc)
		return rc;
	ret_place->view = NULL;
	ret_place->in_set = ret_place->path;
	if (!views || !*ret_place->path)
		return 0;
	len = strcspn(ret_place->path, "/");
	if (len >= sizeof(ret_place->name))
		return -ENAMETOOLONG;
	memcpy(ret_place->name, ret_place->path, len);
	ret_place->name[len] = '\0';
	ret_place->view = ret_place->name;
	ret_place->in_set += len + (ret_place->path[len] == '/');
	return 0;
}

// view: NULL: the arrays themselves.
static int get_set(struct ckpt_fs *fs, struct node *n, const char *view, struct ckpt_array_dir **ret_set)
{
	struct ckpt_step *step = step_of(fs, n);
	struct ckpt_view_why why = {0};
	int rc = !step  ? -ENOENT
		 : view ? ckpt_array_cache_view(fs->arrays, step, view, false, ret_set, &why)
			: ckpt_array_cache_get(fs->arrays, step, false, ret_set);

	if (rc == -ENOENT && *why.why) {
		tell_wrong(fs, step, view, &why);
	} else if (step && rc && rc != -ENOMEM) {
		tell(fs, step, rc, text_of(rc), NULL);
		rc = told_as(rc);
	}
	ckpt_step_unref(step);
	return rc;
}

// --- Paths ------------------------------------------------------------------------------------------------------------

struct found {
	struct ckpt_array_dir *set; // a reference
	uint32_t at;
	uint64_t number;
	mode_t type;
};

static void found_done(struct found *f)
{
	ckpt_array_dir_unref(f->set);
}

static mode_t type_of(const struct ckpt_array_tree *t, uint32_t at)
{
	return ckpt_array_tree_type(t, at) == CKPT_ARRAY_TREE_FOLDER ? S_IFDIR : S_IFREG;
}

// Names come from outside, and anybody may see the numbers. The digest has a secret key, so that nobody can choose two names that share one,
// and with it a node and its pages. A version is known by its manifest, as its number may come again (array_cache.c).
static uint64_t number_of(const struct ckpt_fs *fs, const struct ckpt_array_dir *s, bool views, const char *path,
			  mode_t type)
{
	uint64_t incarnation = ckpt_array_dir_step(s)->incarnation, number;
	uint8_t version[CKPT_SHA256_LEN] = {0}, digest[CKPT_SHA256_LEN];
	struct ckpt_sha256 sum;

	if (!S_ISDIR(type))
		memcpy(version, ckpt_array_dir_version(s)->is.manifest_sha256, sizeof(version));
	ckpt_sha256_begin(&sum);
	ckpt_sha256_add(&sum, fs->array_key, sizeof(fs->array_key));
	ckpt_sha256_add(&sum, &incarnation, sizeof(incarnation));
	ckpt_sha256_add(&sum, version, sizeof(version));
	ckpt_sha256_add(&sum, &views, sizeof(views));
	ckpt_sha256_add(&sum, path, strlen(path));
	ckpt_sha256_end(&sum, digest);
	memcpy(&number, digest, sizeof(number));
	return number;
}

// The file that a view lacks for a reason.
static void tell_lack(struct ckpt_fs *fs, const struct ckpt_array_dir *s, const struct virtual_path *p)
{
	const struct ckpt_view_why *why = ckpt_array_dir_lacks(s);

	if (why && !strcmp(p->in_set, CKPT_JOINED_NAME))
		tell_wrong(fs, ckpt_array_dir_step(s), p->path, why);
}

// n, or what has this name in it.
static int find(struct ckpt_fs *fs, struct node *n, const char *name, struct found *ret_found)
{
	CLEANUP_FREE struct virtual_path *p = malloc(sizeof(*p));
	struct ckpt_array_dir *s = NULL;
	int rc = p ? find_place(fs, n, name, p) : -ENOMEM;

	if (!rc)
		rc = get_set(fs, n, p->view, &s);
	if (!rc)
		rc = ckpt_array_tree_find(ckpt_array_dir_tree(s), p->in_set, &ret_found->at);
	if (rc == -ENOENT && s)
		tell_lack(fs, s, p);
	if (rc) {
		ckpt_array_dir_unref(s);
		return rc == -ENAMETOOLONG ? -ENOENT : rc;
	}
	ret_found->set = s;
	ret_found->type = type_of(ckpt_array_dir_tree(s), ret_found->at);
	ret_found->number = number_of(fs, s, is_view(n), p->path, ret_found->type);
	return 0;
}

// -ESTALE: another version has the name by now.
static int find_node(struct ckpt_fs *fs, struct node *n, struct found *ret_found)
{
	int rc = find(fs, n, NULL, ret_found);

	return rc ? rc : ret_found->type != n->type || ret_found->number != n->number ? -ESTALE : 0;
}

// The entry of a place is known. A path that is not there needs nothing: that is the answer.
static bool knows(struct ckpt_fs *fs, struct ckpt_step *step, const struct virtual_path *p)
{
	struct ckpt_array_dir *s = NULL;
	struct ckpt_view_why why;
	uint32_t at;
	int rc = p->view ? ckpt_array_cache_view(fs->arrays, step, p->view, true, &s, &why)
			 : ckpt_array_cache_get(fs->arrays, step, true, &s);
	bool known =
		!rc && (ckpt_array_tree_find(ckpt_array_dir_tree(s), p->in_set, &at) || ckpt_array_dir_knows(s, at));

	ckpt_array_dir_unref(s);
	return known;
}

bool control_arrays_ready(struct ckpt_fs *fs, struct node *n, const char *name)
{
	CLEANUP_FREE struct virtual_path *p = ckpt_calloc(1, sizeof(*p));
	struct ckpt_step *step = step_of(fs, n);
	bool ready = !step || !p;

	if (!ready) {
		p->in_set = p->path; // of the directory of a step: .arrays or .views itself
		ready = (control_is_array(n) && find_place(fs, n, name, p)) || knows(fs, step, p);
	}
	ckpt_step_unref(step);
	return ready;
}

bool control_arrays_names(const char *name)
{
	return !strcmp(name, CONTROL_ARRAYS_NAME) || !strcmp(name, CONTROL_VIEWS_NAME);
}

bool control_arrays_stands(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct ckpt_step *step = control_arrays_names(name) && node_is_top(dir) ? step_of(fs, dir) : NULL;
	struct ckpt_manifest *m;
	uint32_t index;
	bool stands = false;

	if (step && !ckpt_step_manifest(step, &m)) {
		stands = ckpt_manifest_lookup(m, name, &index);
		ckpt_manifest_unref(m);
	}
	ckpt_step_unref(step);
	return stands;
}

int control_arrays_dir(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	bool views = !strcmp(name, CONTROL_VIEWS_NAME);
	struct ckpt_array_dir *s;
	int rc = node_is_top(dir) ? get_set(fs, dir, NULL, &s) : -ENOENT;

	if (rc)
		return rc;
	rc = node_get(fs, views ? SPACE_VIEWS : SPACE_ARRAYS, number_of(fs, s, views, "", S_IFDIR), S_IFDIR, dir, name,
		      NULL, ret_node);
	ckpt_array_dir_unref(s);
	return rc;
}

int control_arrays_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	CLEANUP(found_done) struct found f = {NULL};
	int rc = find(fs, dir, name, &f);

	return rc ? rc
		  : node_get(fs, is_view(dir) ? SPACE_VIEW : SPACE_ARRAY, f.number, f.type, dir, name, NULL, ret_node);
}

int control_arrays_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg)
{
	CLEANUP(found_done) struct found f = {NULL};
	char path[PATH_MAX];
	size_t len;
	int rc = dir->control == CONTROL_VIEWS ? 0 : find(fs, dir, NULL, &f); // views are without end: none is listed

	if (!f.set && !rc)
		return 0;
	if (!rc)
		rc = control_path(fs, dir, NULL, is_view(dir) ? CONTROL_VIEWS : CONTROL_ARRAYS, path);
	if (rc)
		return rc == -ENOENT || rc == -ESTALE ? 0 : rc; // the step has other arrays by now
	len = strlen(path);
	if (len)
		path[len++] = '/';
	for (uint32_t at = ckpt_array_tree_first(ckpt_array_dir_tree(f.set), f.at); at != CKPT_ARRAY_TREE_NONE && !rc;
	     at = ckpt_array_tree_next(ckpt_array_dir_tree(f.set), at)) {
		const char *name = ckpt_array_tree_name(ckpt_array_dir_tree(f.set), at);
		mode_t type = type_of(ckpt_array_dir_tree(f.set), at);

		if ((size_t)snprintf(path + len, sizeof(path) - len, "%s", name) < sizeof(path) - len)
			rc = fn(arg, name, type, number_of(fs, f.set, is_view(dir), path, type));
	}
	return rc;
}

// --- Attributes -------------------------------------------------------------------------------------------------------

static int attr_of_found(struct ckpt_fs *fs, const struct node *n, const struct found *f, struct stat *ret_attr)
{
	struct ckpt_entry e;
	int rc = ckpt_array_dir_entry(f->set, f->at, &e);

	if (rc)
		return rc;
	e.ino = n->number;
	attr_from_entry(fs, &e, ret_attr);
	return 0;
}

int control_arrays_attr(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr)
{
	CLEANUP(found_done) struct found f = {NULL};
	int rc = find_node(fs, n, &f);

	if (!rc)
		rc = attr_of_found(fs, n, &f, ret_attr);
	else if ((rc == -ENOENT || rc == -ESTALE) && control_opened_attr(n, ret_attr))
		rc = 0;
	return rc;
}

// --- Files ------------------------------------------------------------------------------------------------------------

int control_arrays_open(struct ckpt_fs *fs, struct node *n, struct ckpt_array_file **ret_file)
{
	CLEANUP(found_done) struct found f = {NULL};
	struct stat attr;
	int rc = find_node(fs, n, &f);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc; // the kernel looks again
	rc = attr_of_found(fs, n, &f, &attr);
	if (!rc)
		rc = attr_allows(&attr, R_OK) ? control_remember_opened(n, &attr) : -EACCES;
	if (!rc) {
		rc = ckpt_array_file_open(fs->array_pool, f.set, f.at, ret_file);
		if (rc && rc != -ENOMEM)
			tell(fs, ckpt_array_dir_step(f.set), rc, text_of(rc),
			     ckpt_array_tree_name(ckpt_array_dir_tree(f.set), f.at));
		rc = told_as(rc);
	}
	return rc;
}

// Once for each open file: a client that reads on would fill the log.
static int failed(struct ckpt_fs *fs, struct handle *h, int rc)
{
	struct ckpt_array_dir *s = ckpt_array_file_set(h->array);

	if (rc != -ENOMEM && !__atomic_exchange_n(&h->array_failed, true, __ATOMIC_RELAXED))
		tell(fs, ckpt_array_dir_step(s), rc, text_of(rc),
		     ckpt_array_tree_name(ckpt_array_dir_tree(s), ckpt_array_file_at(h->array)));
	return told_as(rc);
}

struct part {
	size_t size;
	off_t offset;
};

static void reply_part(fuse_req_t req, struct handle *h, struct part part)
{
	CLEANUP_FREE char *data = malloc(part.size);
	ssize_t n = data ? ckpt_array_file_read(h->array, data, part.size, (uint64_t)part.offset) : -ENOMEM;

	if (n < 0)
		reply_error(req, failed(fs_of(req), h, (int)n));
	else
		fuse_reply_buf(req, data, (size_t)n);
}

static void run_read(struct call *c)
{
	reply_part(c->req, handle_of(&c->fi), *(const struct part *)c->data);
}

// Without a copy in between.
static bool reply_raw(fuse_req_t req, const struct handle *h, size_t size, off_t offset)
{
	uint64_t bytes = ckpt_array_file_bytes(h->array), at;
	struct fuse_bufvec buf = FUSE_BUFVEC_INIT((size_t)MIN((uint64_t)size, bytes - MIN((uint64_t)offset, bytes)));

	if (!ckpt_array_file_raw(h->array, (uint64_t)offset, &buf.buf[0].fd, &at))
		return false;
	buf.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	buf.buf[0].pos = (off_t)at;
	fuse_reply_data(req, &buf, FUSE_BUF_SPLICE_MOVE);
	return true;
}

// Files on this disk alone are read here: nothing is waited for.
void control_arrays_read(fuse_req_t req, struct handle *h, size_t size, off_t offset)
{
	struct part part = {size, offset};
	struct call c = {.run = run_read,
			 .req = req,
			 .fs = fs_of(req),
			 .node = h->node,
			 .data = (char *)&part,
			 .data_len = sizeof(part),
			 .fi = {.fh = (uintptr_t)h}};

	if (reply_raw(req, h, size, offset))
		return;
	if (ckpt_array_file_waits(h->array))
		call_detach(&c);
	else
		reply_part(req, h, part);
}
