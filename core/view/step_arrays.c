#include "core/view/step_arrays.h"

#include "core/array/catalog_encode.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

struct ckpt_step_arrays {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_catalog *catalog;
	struct ckpt_catalog_files files;
	bool stored;                             // the catalog is that of the manifest
	struct ckpt_catalog_stop *stop;          // while it is read; else NULL
	const struct ckpt_step_changed *changed; // NULL: nothing is
	bool digests;                            // but for digests
};

struct open_file {
	struct ckpt_step_arrays *of;
	struct ckpt_file *file; // NULL: source
	struct ckpt_source source;
	int fd;
};

// --- Files ------------------------------------------------------------------------------------------------------------------

static int read_file(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct open_file *f = arg;

	if (f->of->stop && !f->of->stop->go_on(f->of->stop->arg))
		return -EINTR;
	if (!f->file)
		return ckpt_source_read(&f->source, offset, buf, len);
	for (size_t done = 0; done < len;) {
		ssize_t n = ckpt_file_read(f->file, (uint8_t *)buf + done, len - done, offset + done);

		if (n <= 0)
			return n ? (int)n : -ENODATA;
		done += (size_t)n;
	}
	return 0;
}

// 0: the file at path is that of the manifest; 1: it is that of *ret_fd, of *ret_bytes.
static int find_changed(const struct ckpt_step_arrays *a, const char *path, int *ret_fd, uint64_t *ret_bytes)
{
	struct stat st;
	int rc = a->changed ? a->changed->file(a->changed->arg, path, ret_fd) : 0;

	if (rc != 1)
		return rc;
	if (fstat(*ret_fd, &st)) {
		rc = -errno;
		ckpt_sys.close(*ret_fd);
		return rc;
	}
	*ret_bytes = (uint64_t)st.st_size;
	return 1;
}

static int find(const struct ckpt_step_arrays *a, const char *path, uint32_t *ret_index, struct ckpt_entry *ret_entry)
{
	int rc = ckpt_manifest_lookup(a->m, path, ret_index);

	if (rc)
		return rc == -ENOTDIR ? -ENOENT : rc;
	ckpt_manifest_entry(a->m, *ret_index, ret_entry);
	return ret_entry->type == CKPT_ENTRY_FILE ? 0 : -ENOENT;
}

int ckpt_step_arrays_open_raw(const struct ckpt_step_arrays *a, const char *path, int *ret_fd)
{
	struct ckpt_file *file;
	struct ckpt_entry e;
	uint32_t index;
	int rc = find(a, path, &index, &e), fd;

	if (!rc)
		rc = ckpt_file_open(a->step, a->m, index, &file);
	if (rc)
		return rc;
	fd = ckpt_file_take_fd(file);
	if (fd < 0) {
		ckpt_file_close(file);
		return -ENOENT;
	}
	*ret_fd = fd;
	return 0;
}

static int open_file(void *arg, const char *path, struct ckpt_source *ret_source)
{
	struct ckpt_step_arrays *a = arg;
	CLEANUP_FREE struct open_file *f = NULL;
	struct ckpt_entry e;
	uint32_t index;
	int rc = find(a, path, &index, &e);

	if (rc)
		return rc;
	f = ckpt_calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->of = a;
	rc = find_changed(a, path, &f->fd, &e.bytes);
	if (rc == 1) {
		f->source = ckpt_source_file(f->fd, e.bytes);
		rc = 0;
	} else if (!rc) {
		rc = ckpt_file_open(a->step, a->m, index, &f->file);
	}
	if (!rc)
		*ret_source = (struct ckpt_source){.bytes = e.bytes, .read = read_file, .arg = TAKE_PTR(f)};
	return rc;
}

static int open_raw(void *arg, const char *path, int *ret_fd)
{
	return ckpt_step_arrays_open_raw(arg, path, ret_fd);
}

static void close_file(void *arg, struct ckpt_source *source)
{
	struct open_file *f = source->arg;

	(void)arg;
	if (f->file)
		ckpt_file_close(f->file);
	else
		ckpt_sys.close(f->fd);
	free(f);
}

// The next one in the tree below top; top: that was the last.
static uint32_t next_below(const struct ckpt_manifest *m, uint32_t top, uint32_t index, const struct ckpt_entry *e)
{
	struct ckpt_entry parent;

	if (e->type == CKPT_ENTRY_DIR && e->child_count && !e->conflict)
		return e->child_first;
	for (uint32_t above = e->parent; index != top; index = above, above = parent.parent) {
		ckpt_manifest_entry(m, above, &parent);
		if (index + 1 < parent.child_first + parent.child_count)
			return index + 1;
	}
	return top;
}

// Without recursion: directories may be in each other more often than a small stack has room for.
static int call(const struct ckpt_step_arrays *a, const char *path, uint64_t bytes,
		int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	int fd, rc = find_changed(a, path, &fd, &bytes);

	if (rc == 1)
		ckpt_sys.close(fd);
	return rc == -ENOENT ? 0 : rc < 0 ? rc : fn(fn_arg, path, bytes);
}

static int each_below(struct ckpt_step_arrays *a, uint32_t top, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	char path[PATH_MAX];
	struct ckpt_entry e;
	uint32_t index = top;
	int rc;

	do {
		ckpt_manifest_entry(a->m, index, &e);
		rc = e.type != CKPT_ENTRY_FILE || e.conflict ? 0 : ckpt_manifest_path(a->m, index, path, sizeof(path));
		rc = MIN(rc, 0);
		if (!rc && e.type == CKPT_ENTRY_FILE && !e.conflict)
			rc = call(a, path, e.bytes, fn, fn_arg);
		index = next_below(a->m, top, index, &e);
	} while (!rc && index != top);
	return rc;
}

static int each_file(void *arg, const char *dir, int (*fn)(void *, const char *, uint64_t), void *fn_arg)
{
	struct ckpt_step_arrays *a = arg;
	uint32_t index;
	int rc = ckpt_manifest_lookup(a->m, dir, &index);

	return rc ? (rc == -ENOTDIR ? -ENOENT : rc) : each_below(a, index, fn, fn_arg);
}

// --- Reading ----------------------------------------------------------------------------------------------------------------

// The paths of the files that have pieces of known arrays.
struct set {
	char **at; // sorted, each malloc'ed
	size_t count, cap;
};

struct reading {
	struct ckpt_step_arrays *of;
	bool metadata; // the first pass: files whose name says that others are their pieces
	struct set pieces;
};

// .zarray, zarr.json, .metadata, manifest.ocdbt: their pieces are in files beside them.
static bool names_others(const char *path)
{
	static const char *const names[] = {".zarray", "zarr.json", ".metadata", "manifest.ocdbt"};
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(base, names[i]))
			return true;
	return false;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has(const struct set *s, const char *path)
{
	return s->count && bsearch(&path, s->at, s->count, sizeof(*s->at), by_text);
}

// All files of pieces, each once.
static int collect_pieces(struct reading *r)
{
	const struct ckpt_catalog *c = r->of->catalog;
	struct set *s = &r->pieces;
	size_t kept = 0;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		for (size_t k = 0; k < a.pieces; k++) {
			struct ckpt_piece p;

			ckpt_catalog_piece(c, i, k, &p);
			if (s->count && !strcmp(s->at[s->count - 1], p.file))
				continue;
			if (ckpt_grow((void **)&s->at, &s->cap, s->count + 1, sizeof(*s->at)) ||
			    !(s->at[s->count] = strdup(p.file)))
				return -ENOMEM;
			s->count++;
		}
	}
	if (s->count)
		qsort(s->at, s->count, sizeof(*s->at), by_text);
	for (size_t i = 0; i < s->count; i++) {
		if (kept && !strcmp(s->at[kept - 1], s->at[i]))
			free(s->at[i]);
		else
			s->at[kept++] = s->at[i];
	}
	s->count = kept;
	return 0;
}

static int take_file(void *arg, const char *path, uint64_t bytes)
{
	struct reading *r = arg;

	// An empty file has nothing to read. It is told where it should have arrays.
	if (!bytes && !ckpt_catalog_is_named_like_arrays(path))
		return 0;
	if (names_others(path) != r->metadata || has(&r->pieces, path))
		return 0;
	return ckpt_catalog_read(r->of->catalog, &r->of->files, path);
}

static int read_below(struct ckpt_step_arrays *a, const char *path)
{
	struct reading r = {.of = a, .metadata = true};
	int rc = each_file(a, path, take_file, &r);

	if (!rc)
		rc = collect_pieces(&r);
	r.metadata = false;
	if (!rc)
		rc = each_file(a, path, take_file, &r);
	if (!rc)
		rc = ckpt_catalog_end(a->catalog);
	for (size_t i = 0; i < r.pieces.count; i++)
		free(r.pieces.at[i]);
	free(r.pieces.at);
	return rc;
}

// --- The catalog of the manifest ----------------------------------------------------------------------------------------------

// A file that pieces are in: the last one, as neighbours mostly have the same.
struct place {
	const char *file;
	uint64_t bytes;
};

static bool find_file(const struct ckpt_manifest *m, const char *file, struct place *at)
{
	struct ckpt_entry e;
	uint32_t index;

	if (at->file && !strcmp(at->file, file))
		return true;
	if (ckpt_manifest_lookup(m, file, &index))
		return false;
	ckpt_manifest_entry(m, index, &e);
	*at = (struct place){file, e.bytes};
	return e.type == CKPT_ENTRY_FILE;
}

// The elements of an array that can be read lie in files of the step.
static bool is_in_files(const struct ckpt_manifest *m, const struct ckpt_catalog *c, size_t i, struct place *at)
{
	struct ckpt_catalog_array a;

	ckpt_catalog_get(c, i, &a);
	for (size_t k = 0; k < a.pieces && !a.why; k++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, i, k, &p);
		if (!p.data && (!find_file(m, p.file, at) || p.offset > at->bytes || p.bytes > at->bytes - p.offset))
			return false;
	}
	return true;
}

static int decode(const struct ckpt_manifest *m, const void *bytes, size_t len, struct ckpt_catalog **ret_catalog)
{
	struct ckpt_catalog *c;
	struct place at = {0};
	int rc = ckpt_catalog_decode(bytes, len, &c);

	if (rc)
		return rc;
	for (size_t i = 0; i < ckpt_catalog_count(c) && !rc; i++)
		rc = is_in_files(m, c, i, &at) ? 0 : -EBADMSG;
	if (rc)
		ckpt_catalog_free(c);
	else
		*ret_catalog = c;
	return rc;
}

static bool is_told(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	struct ckpt_catalog_told *told = ckpt_catalog_told_of(step);
	const uint8_t *sha256 = ckpt_manifest_sha256(m);
	LOCK_SCOPE(&step->lock);
	bool is = !memcmp(told->manifest_sha256, sha256, CKPT_SHA256_LEN);

	memcpy(told->manifest_sha256, sha256, CKPT_SHA256_LEN);
	return is;
}

static bool take_catalog(struct ckpt_step_arrays *a)
{
	struct ckpt_step *step = a->step;
	struct ckpt_step_name name;
	const void *bytes;
	size_t len;
	int rc = ckpt_manifest_catalog(a->m, &bytes, &len) ? decode(a->m, bytes, len, &a->catalog) : -ENODATA;

	if (rc == -EBADMSG && step->store->errlog && !is_told(step, a->m)) {
		ckpt_step_name(step, &name);
		ckpt_errlog_add(step->store->errlog, name.name, rc,
				"no data is lost; `ckptfs check` reads the files, too",
				"the catalog of its arrays is damaged, and its files are read instead");
	}
	return !rc;
}

int ckpt_step_arrays_set_digest(struct ckpt_step_arrays *a, size_t i, const uint8_t digest[CKPT_ARRAY_DIGEST_LEN])
{
	a->digests = true;
	return ckpt_catalog_set_digest(a->catalog, i, digest);
}

int ckpt_step_arrays_encode(struct ckpt_step_arrays *a, void **ret_bytes, size_t *ret_len)
{
	CLEANUP_FREE void *bytes = NULL;
	struct ckpt_catalog *again;
	int rc = a->stored && !a->digests ? -EFBIG : ckpt_catalog_encode(a->catalog, &bytes, ret_len);

	*ret_bytes = NULL;
	if (rc == -EFBIG && a->digests && !a->stored) {
		ckpt_catalog_forget_digests(a->catalog);
		rc = ckpt_catalog_encode(a->catalog, &bytes, ret_len);
	}
	if (!rc)
		rc = decode(a->m, bytes, *ret_len, &again); // what cannot be read back is not kept
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	ckpt_catalog_free(again);
	*ret_bytes = TAKE_PTR(bytes);
	return 0;
}

// --- The stack --------------------------------------------------------------------------------------------------------------

struct call {
	int (*read)(void *arg);
	void *arg;
	int rc;
};

static void *run_call(void *arg)
{
	struct call *c = arg;

	c->rc = c->read(c->arg);
	return NULL;
}

int ckpt_step_arrays_with_stack(int (*read)(void *arg), void *arg)
{
	struct call c = {.read = read, .arg = arg};
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	rc = pthread_attr_setstacksize(&attr, CKPT_STEP_ARRAYS_STACK) ?: pthread_create(&thread, &attr, run_call, &c);
	pthread_attr_destroy(&attr);
	if (rc)
		return -rc;
	pthread_join(thread, NULL);
	return c.rc;
}

// --- The whole ----------------------------------------------------------------------------------------------------------------

static int read_arrays(struct ckpt_step *step, struct ckpt_manifest *m, const char *path, bool use_catalog,
		       struct ckpt_catalog_stop *stop, const struct ckpt_step_changed *changed,
		       struct ckpt_step_arrays **ret_arrays)
{
	struct ckpt_step_arrays *a = ckpt_calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return -ENOMEM;
	a->step = ckpt_step_ref(step);
	a->m = ckpt_manifest_ref(m);
	a->files = (struct ckpt_catalog_files){open_file, close_file, each_file, a, changed ? NULL : open_raw};
	a->stop = stop;
	a->changed = changed;
	a->stored = use_catalog && !*path && take_catalog(a);
	rc = a->stored ? 0 : ckpt_catalog_new(&a->catalog);
	if (!rc)
		ckpt_catalog_stop_by(a->catalog, stop);
	if (!rc && !a->stored)
		rc = read_below(a, path);
	a->stop = NULL; // who reads elements asks himself
	if (rc)
		ckpt_step_arrays_free(a);
	else
		*ret_arrays = a;
	return rc;
}

int ckpt_step_arrays_read(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
			  struct ckpt_step_arrays **ret_arrays)
{
	return read_arrays(step, m, path, true, NULL, NULL, ret_arrays);
}

int ckpt_step_arrays_read_until(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
				struct ckpt_catalog_stop *stop, struct ckpt_step_arrays **ret_arrays)
{
	return read_arrays(step, m, path, true, stop, NULL, ret_arrays);
}

int ckpt_step_arrays_read_files(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
				struct ckpt_step_arrays **ret_arrays)
{
	return read_arrays(step, m, path, false, NULL, NULL, ret_arrays);
}

int ckpt_step_arrays_read_changed(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
				  const struct ckpt_step_changed *changed, struct ckpt_step_arrays **ret_arrays)
{
	return read_arrays(step, m, path, false, NULL, changed, ret_arrays);
}

void ckpt_step_arrays_free(struct ckpt_step_arrays *a)
{
	if (!a)
		return;
	ckpt_catalog_free(a->catalog);
	ckpt_manifest_unref(a->m);
	ckpt_step_unref(a->step);
	free(a);
}

const struct ckpt_catalog *ckpt_step_arrays_catalog(const struct ckpt_step_arrays *a)
{
	return a->catalog;
}

const struct ckpt_catalog_files *ckpt_step_arrays_files(const struct ckpt_step_arrays *a)
{
	return &a->files;
}

struct ckpt_part ckpt_catalog_told_part = {.bytes = sizeof(struct ckpt_catalog_told)};
