// diff: which files of two steps differ, and which arrays in them.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "tools/array_diff.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define PIECE CKPT_ARRAY_DIFF_PIECE

struct side {
	const char *word; // as the user called it
	struct ckpt_step *step;
	struct ckpt_manifest *m;
};

// A file of one side.
struct side_file {
	const struct side *side;
	struct ckpt_file *file;
};

struct array_difference {
	char mark;  // + - ~
	char *line; // for people
	json_t *row;
};

struct difference {
	char mark; // + - ~
	char *path;
	bool known; // to have arrays, on both sides; which of them differ is in:
	struct array_difference *at;
	size_t count, cap;
};

struct diff {
	bool arrays;
	struct side a, b;
	struct difference *at;
	size_t count, cap;
	uint64_t same;        // files and links
	uint64_t same_arrays; // of the files that changed
	uint64_t bytes;
	char *buffer; // two pieces
};

static struct difference *add(struct diff *d, char mark, const char *path)
{
	if (ckpt_grow((void **)&d->at, &d->cap, d->count + 1, sizeof(*d->at)))
		ckpt_need(NULL);
	d->at[d->count] = (struct difference){.mark = mark, .path = ckpt_text("%s", path)};
	return &d->at[d->count++];
}

// --- Content ------------------------------------------------------------------------------------------------------------

static int fail_read(const struct side *s, const char *path, int error)
{
	CLEANUP_FREE char *what = ckpt_text("%s/%s", s->word, path);

	return ckpt_fail(what, "`ckptfs verify` says what is damaged", "cannot be read: %s", strerror(-error));
}

static int read_all(void *arg, uint64_t at, void *buf, size_t len)
{
	struct side_file *o = arg;

	for (size_t done = 0; done < len;) {
		ssize_t n = ckpt_file_read(o->file, (char *)buf + done, len - done, at + done);

		if (n <= 0)
			return n ? (int)n : -EIO;
		done += (size_t)n;
	}
	return 0;
}

// All of a piece. False: that was told.
static bool read_piece(struct side_file *o, char *buf, size_t len, uint64_t at, const char *path, int *ret_failed)
{
	int rc = read_all(o, at, buf, len);

	if (rc)
		*ret_failed = fail_read(o->side, path, rc);
	return !rc;
}

// 0 the same, 1 not, or one cannot be read.
static int compare_bytes(struct diff *d, struct side_file *a, struct side_file *b, const char *path, int *ret_failed)
{
	uint64_t bytes = ckpt_file_bytes(a->file);
	char *one = d->buffer, *two = d->buffer + PIECE;

	for (uint64_t at = 0, len; at < bytes; at += len) {
		len = MIN(bytes - at, (uint64_t)PIECE);
		if (!read_piece(a, one, len, at, path, ret_failed) || !read_piece(b, two, len, at, path, ret_failed) ||
		    memcmp(one, two, len))
			return 1;
		ckpt_progress_update(d->bytes + at + len);
	}
	return 0;
}

// What a step has from another without a byte having moved.
static bool is_one_file(const struct ckpt_file *a, const struct ckpt_file *b)
{
	struct stat x, y;

	return ckpt_file_fd(a) >= 0 && ckpt_file_fd(b) >= 0 && !fstat(ckpt_file_fd(a), &x) &&
	       !fstat(ckpt_file_fd(b), &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static bool open_file(struct side_file *o, const struct ckpt_entry *e, const char *path, int *ret_failed)
{
	int rc = ckpt_file_open(o->side->step, o->side->m, e->index, &o->file);

	if (rc)
		*ret_failed = fail_read(o->side, path, rc);
	return !rc;
}

// Two files of one size. 0 the same, 1 not; *ret_failed: the exit status of a failure, which has been said.
static int compare_files(struct diff *d, const struct ckpt_entry *a, const struct ckpt_entry *b, const char *path,
			 int *ret_failed)
{
	struct side_file x = {.side = &d->a}, y = {.side = &d->b};
	int other = 0;

	if (open_file(&x, a, path, ret_failed) && open_file(&y, b, path, ret_failed) && !is_one_file(x.file, y.file))
		other = compare_bytes(d, &x, &y, path, ret_failed);
	ckpt_file_close(x.file);
	ckpt_file_close(y.file);
	return *ret_failed ? 0 : other;
}

// A file that is in packs alone is read as it was sealed, or not at all: then the seals say whether two are the same.
static bool is_cold(const struct side *side, const struct ckpt_entry *e)
{
	return e->content == CKPT_CONTENT_CHUNKS && !ckpt_step_has_raw(side->step, side->m, e->index);
}

static bool is_same_sealed(const struct diff *d, const struct ckpt_entry *a, const struct ckpt_entry *b)
{
	struct ckpt_seal x, y;

	return is_cold(&d->a, a) && is_cold(&d->b, b) && ckpt_manifest_seal(d->a.m, a->index, &x) &&
	       ckpt_manifest_seal(d->b.m, b->index, &y) && !memcmp(x.sha256, y.sha256, sizeof(x.sha256));
}

static bool is_other(struct diff *d, const struct ckpt_entry *a, const struct ckpt_entry *b, const char *path,
		     int *ret_failed)
{
	if (a->type != b->type)
		return true;
	if (a->type == CKPT_ENTRY_SYMLINK)
		return strcmp(a->target, b->target);
	if (a->type == CKPT_ENTRY_DIR)
		return false;
	return a->bytes != b->bytes ||
	       (a->bytes && !is_same_sealed(d, a, b) && compare_files(d, a, b, path, ret_failed));
}

// --- Arrays -------------------------------------------------------------------------------------------------------------

static json_t *shape_of(const struct ckpt_array *array)
{
	json_t *shape = array->dtype || array->ndim ? ckpt_need(json_array()) : json_null();

	for (unsigned i = 0; i < array->ndim; i++)
		json_array_append_new(shape, ckpt_need(json_integer((json_int_t)array->shape[i])));
	return shape;
}

static json_t *row_of(const char *path, const struct ckpt_array *array)
{
	return ckpt_need(json_pack(
		"{s:o, s:o, s:o, s:o}", "path", ckpt_json_text(path), "array", ckpt_json_text(array->name), "dtype",
		ckpt_json_text(array->dtype ? ckpt_dtype_name(array->dtype) : NULL), "shape", shape_of(array)));
}

static char *line_of(const char *name, const struct ckpt_array *array, const struct ckpt_array *was)
{
	CLEANUP_FREE char *kind = ckpt_array_kind(array), *was_kind = was ? ckpt_array_kind(was) : NULL;

	if (!was_kind)
		return ckpt_text("%s  %s", name, kind);
	return strcmp(kind, was_kind) ? ckpt_text("%s  %s, was %s", name, kind, was_kind) : ckpt_text("%s", name);
}

struct telling {
	struct diff *d;
	struct difference *file;
};

static void tell(void *arg, char mark, const struct ckpt_array *array, const struct ckpt_array *was)
{
	struct difference *file = ((struct telling *)arg)->file;
	CLEANUP_FREE char *name = ckpt_array_name(array);

	if (ckpt_grow((void **)&file->at, &file->cap, file->count + 1, sizeof(*file->at)))
		ckpt_need(NULL);
	file->at[file->count++] = (struct array_difference){mark, line_of(name, array, was), row_of(file->path, array)};
}

static void count_bytes(void *arg, uint64_t bytes)
{
	struct diff *d = ((struct telling *)arg)->d;

	d->bytes += bytes;
	ckpt_progress_update(d->bytes);
}

// Of two files that differ. The exit status of a failure, which has been said.
static int compare_arrays(struct diff *d, const struct ckpt_entry *a, const struct ckpt_entry *b,
			  struct difference *file)
{
	struct side_file x = {.side = &d->a}, y = {.side = &d->b};
	struct telling telling = {d, file};
	struct ckpt_array_diff arrays = {
		.path = file->path, .buffer = d->buffer, .tell = tell, .progress = count_bytes, .arg = &telling};
	int rc, failed = 0;

	if (open_file(&x, a, file->path, &failed) && open_file(&y, b, file->path, &failed)) {
		arrays.a = (struct ckpt_source){.bytes = a->bytes, .read = read_all, .arg = &x};
		arrays.b = (struct ckpt_source){.bytes = b->bytes, .read = read_all, .arg = &y};
		rc = ckpt_array_diff(&arrays);
		if (rc < 0)
			failed = fail_read(&d->a, file->path, rc);
		file->known = !rc;
		d->same_arrays += arrays.same;
	}
	ckpt_file_close(x.file);
	ckpt_file_close(y.file);
	return failed;
}

// --- The trees ----------------------------------------------------------------------------------------------------------

// A directory that only one side has is told by what is in it, if there is anything.
static bool is_told(const struct ckpt_entry *e)
{
	return e->type != CKPT_ENTRY_DIR || !e->child_count;
}

// What both have. The exit status of a failure, which has been said.
static int compare_entries(struct diff *d, const struct ckpt_entry *a, const struct ckpt_entry *b, const char *path)
{
	uint64_t before = d->bytes;
	int status = 0;

	if (is_other(d, a, b, path, &status)) {
		struct difference *one = add(d, '~', path);

		if (d->arrays && a->type == CKPT_ENTRY_FILE && b->type == CKPT_ENTRY_FILE)
			status = compare_arrays(d, a, b, one);
	} else if (a->type != CKPT_ENTRY_DIR) {
		d->same++;
	}
	d->bytes = before + (a->type == CKPT_ENTRY_FILE ? a->bytes : 0);
	return status;
}

// What of one step is not in the other; with compare, what is in both.
static int one_side(struct diff *d, const struct side *here, const struct side *there, char mark, bool compare)
{
	char path[PATH_MAX];
	struct ckpt_entry e, other;
	uint32_t index;
	int status = 0;

	for (uint32_t i = 1; i < ckpt_manifest_count(here->m); i++) {
		ckpt_manifest_entry(here->m, i, &e);
		if (ckpt_manifest_path(here->m, i, path, sizeof(path)) < 0)
			return ckpt_fail(here->word, NULL, "a path in it is too long");
		if (ckpt_manifest_lookup(there->m, path, &index)) {
			if (is_told(&e))
				add(d, mark, path);
			continue;
		}
		if (!compare)
			continue;
		ckpt_manifest_entry(there->m, index, &other);
		if (compare_entries(d, &e, &other, path))
			status = 1;
		ckpt_progress_update(d->bytes);
	}
	return status;
}

static int by_path(const void *a, const void *b)
{
	const struct difference *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static int run(struct diff *d)
{
	int status;

	ckpt_progress_start("diff", ckpt_step_bytes(d->a.step), 1);
	status = one_side(d, &d->a, &d->b, '-', true);
	if (!status)
		status = one_side(d, &d->b, &d->a, '+', false);
	ckpt_progress_stop();
	if (d->count)
		qsort(d->at, d->count, sizeof(*d->at), by_path);
	return status;
}

// --- The answer ---------------------------------------------------------------------------------------------------------

static json_t *paths(const struct diff *d, char mark)
{
	json_t *list = ckpt_need(json_array());

	for (size_t i = 0; i < d->count; i++)
		if (d->at[i].mark == mark)
			json_array_append_new(list, ckpt_json_text(d->at[i].path));
	return list;
}

static json_t *rows(const struct diff *d, char mark)
{
	json_t *list = ckpt_need(json_array());

	for (size_t i = 0; i < d->count; i++)
		for (size_t k = 0; k < d->at[i].count; k++)
			if (d->at[i].at[k].mark == mark)
				json_array_append(list, d->at[i].at[k].row);
	return list;
}

// What changed, and may have arrays or not: it was not compared by them.
static json_t *unknown(const struct diff *d)
{
	json_t *list = ckpt_need(json_array());

	for (size_t i = 0; i < d->count; i++)
		if (d->at[i].mark == '~' && !d->at[i].known)
			json_array_append_new(list, ckpt_json_text(d->at[i].path));
	return list;
}

static void print_json(const struct diff *d)
{
	json_t *answer = ckpt_need(json_pack("{s:o, s:o, s:o, s:I}", "added", paths(d, '+'), "removed", paths(d, '-'),
					     "changed", paths(d, '~'), "same", (json_int_t)d->same));

	if (d->arrays)
		json_object_set_new(answer, "arrays",
				    ckpt_need(json_pack("{s:o, s:o, s:o, s:I, s:o}", "added", rows(d, '+'), "removed",
							rows(d, '-'), "changed", rows(d, '~'), "same",
							(json_int_t)d->same_arrays, "unknown", unknown(d))));
	ckpt_output_json(answer);
}

static void print(const struct diff *d)
{
	if (ckpt_output.json) {
		print_json(d);
		return;
	}
	for (size_t i = 0; i < d->count; i++) {
		printf("%c %s\n", d->at[i].mark, d->at[i].path);
		for (size_t k = 0; k < d->at[i].count; k++)
			printf("  %c %s\n", d->at[i].at[k].mark, d->at[i].at[k].line);
	}
}

static void free_difference(struct difference *one)
{
	for (size_t i = 0; i < one->count; i++) {
		free(one->at[i].line);
		json_decref(one->at[i].row);
	}
	free(one->at);
	free(one->path);
}

static int open_side(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *word, struct side *s)
{
	CLEANUP_FREE char *path = NULL;
	int rc = ckpt_listing_files(l, o, word, &s->step, &s->m, &path);

	s->word = word;
	if (!rc && *path)
		rc = ckpt_usage(word, "name the step alone", "a file in a step, where a whole step is wanted");
	return rc;
}

static int diff(struct diff *d, const struct ckpt_operand *o)
{
	struct ckpt_listing l;
	int status = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (status)
		return status;
	status = open_side(&l, o, o->steps[0], &d->a);
	if (!status)
		status = open_side(&l, o, o->steps[1], &d->b);
	if (!status)
		status = run(d);
	if (!status) {
		print(d);
		status = d->count ? 1 : 0;
	}
	ckpt_manifest_unref(d->a.m);
	ckpt_manifest_unref(d->b.m);
	ckpt_step_unref(d->a.step);
	ckpt_step_unref(d->b.step);
	ckpt_listing_close(&l);
	return status;
}

static int diff_option(int key __attribute__((unused)), char *arg __attribute__((unused)), void *input)
{
	((struct diff *)input)->arrays = true;
	return 0;
}

int ckpt_verb_diff(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"arrays", 'a', NULL, 0,
		 "also show which arrays in a changed file were added, removed and changed "
		 "(.safetensors, .npy, .npz, torch.save)",
		 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] A B",
		.doc = "Shows which files were added (+), removed (-) and changed (~) from step A to step "
		       "B; modes, owners and times do not count. Exit status 0: the steps are equal; 1: "
		       "they differ, or the verb failed and says why.\v"
		       "Examples:\n"
		       "  ckptfs diff /ckpt 1000 2000\n"
		       "  ckptfs diff --arrays /ckpt 1000 latest\n"
		       "  ckptfs diff /ckpt 1000@-1 1000\n"
		       "  ckptfs diff --json /data/run42 latest~1 latest",
		.options = options,
		.option = diff_option,
		.operands_min = 2,
		.operands_max = 3,
	};
	struct ckpt_words words;
	struct ckpt_operand o;
	struct diff d = {0};
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &d, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	d.buffer = ckpt_need(malloc((size_t)2 * PIECE));
	rc = o.count == 2 ? diff(&d, &o) : ckpt_usage("diff", "usage: ckptfs diff [STORE] A B", "wants two steps");
	for (size_t i = 0; i < d.count; i++)
		free_difference(&d.at[i]);
	free(d.at);
	free(d.buffer);
	ckpt_operand_done(&o);
	return rc;
}
