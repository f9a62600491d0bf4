// diff: which files of two steps differ, and which arrays.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/view/step_arrays.h"
#include "tools/array_told.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define PIECE (1u << 20)

struct side {
	const char *word; // as the user called it
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_step_arrays *arrays;
};

// A file of one side.
struct side_file {
	const struct side *side;
	struct ckpt_file *file;
};

struct array_difference {
	char mark;  // + - ~ ?
	char *line; // for people
	json_t *row;
};

struct difference {
	char mark; // + - ~
	char *path;
	unsigned known; // to have arrays, in a: 1, in b: 2
};

struct diff {
	bool arrays;
	struct side a, b;
	struct difference *at;
	size_t count, cap;
	struct array_difference *arrays_at;
	size_t array_count, array_cap;
	uint64_t same; // files and links
	uint64_t same_arrays;
	uint64_t bytes;
	char *buffer; // two pieces
};

static void add(struct diff *d, char mark, const char *path)
{
	if (ckpt_grow((void **)&d->at, &d->cap, d->count + 1, sizeof(*d->at)))
		ckpt_need(NULL);
	d->at[d->count++] = (struct difference){.mark = mark, .path = ckpt_text("%s", path)};
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

	if (is_other(d, a, b, path, &status))
		add(d, '~', path);
	else if (a->type != CKPT_ENTRY_DIR)
		d->same++;
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

// --- Arrays -------------------------------------------------------------------------------------------------------------

static const struct difference *find(const struct diff *d, const char *path)
{
	const struct difference key = {.path = (char *)path};

	return d->count ? bsearch(&key, d->at, d->count, sizeof(*d->at), by_path) : NULL;
}

// Both steps have the file at this path, and it is the same.
static bool is_same_file(void *arg, const char *path)
{
	const struct diff *d = arg;
	uint32_t a, b;

	return !ckpt_manifest_lookup(d->a.m, path, &a) && !ckpt_manifest_lookup(d->b.m, path, &b) && !find(d, path);
}

static bool is_as_sealed(void *arg, char which, const char *path)
{
	const struct diff *d = arg;
	const struct side *side = which == 'a' ? &d->a : &d->b;
	struct ckpt_entry e;
	uint32_t index;

	if (ckpt_manifest_lookup(side->m, path, &index))
		return false;
	ckpt_manifest_entry(side->m, index, &e);
	return is_cold(side, &e);
}

static void tell(void *arg, const struct ckpt_array_told *told)
{
	struct diff *d = arg;

	if (ckpt_grow((void **)&d->arrays_at, &d->array_cap, d->array_count + 1, sizeof(*d->arrays_at)))
		ckpt_need(NULL);
	d->arrays_at[d->array_count++] =
		(struct array_difference){told->mark, ckpt_array_told_line(told), ckpt_array_told_row(told)};
}

static void count_bytes(void *arg, uint64_t bytes)
{
	struct diff *d = arg;

	d->bytes += bytes;
	ckpt_progress_update(d->bytes);
}

static int read_arrays(struct side *s)
{
	int rc = ckpt_step_arrays_read(s->step, s->m, "", &s->arrays);

	return rc ? ckpt_fail(s->word, "`ckptfs verify` says what is damaged", "its arrays cannot be read: %s",
			      strerror(-rc))
		  : 0;
}

static struct ckpt_array_diff_side arrays_of(const struct side *s)
{
	struct ckpt_version *version = ckpt_step_version(s->step);
	struct ckpt_array_diff_side of = {ckpt_step_arrays_catalog(s->arrays), ckpt_step_arrays_files(s->arrays),
					  version->is.number};

	ckpt_version_unref(version);
	return of;
}

// The files that have arrays, or pieces of them, are known.
static void know_files(struct diff *d, const struct side *s, unsigned bit)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(s->arrays);
	struct ckpt_catalog_array a;
	struct difference *known;
	struct ckpt_piece p;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		ckpt_catalog_get(c, i, &a);
		for (size_t k = 0; k <= a.pieces; k++) {
			if (k < a.pieces)
				ckpt_catalog_piece(c, i, k, &p);
			known = (struct difference *)find(d, k < a.pieces ? p.file : a.tree);
			if (known)
				known->known |= bit;
		}
	}
}

static int compare_arrays(struct diff *d)
{
	struct ckpt_array_diff arrays = {.is_same_file = is_same_file,
					 .is_as_sealed = is_as_sealed,
					 .tell = tell,
					 .progress = count_bytes,
					 .arg = d};
	int rc = read_arrays(&d->a);

	if (!rc)
		rc = read_arrays(&d->b);
	if (rc)
		return rc;
	if (!d->count) {
		d->same_arrays = ckpt_catalog_count(ckpt_step_arrays_catalog(d->a.arrays));
		return 0;
	}
	know_files(d, &d->a, 1);
	know_files(d, &d->b, 2);
	arrays.a = arrays_of(&d->a);
	arrays.b = arrays_of(&d->b);
	d->bytes = 0;
	ckpt_progress_start("diff of arrays", ckpt_step_bytes(d->a.step), 1);
	rc = ckpt_array_diff(&arrays);
	ckpt_progress_stop();
	d->same_arrays = arrays.same;
	if (rc)
		rc = fail_read(arrays.failed == 'b' ? &d->b : &d->a, arrays.failed_array, rc);
	free(arrays.failed_array);
	return rc;
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
	if (!status && d->arrays)
		status = compare_arrays(d);
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

	for (size_t i = 0; i < d->array_count; i++)
		if (d->arrays_at[i].mark == mark)
			json_array_append(list, d->arrays_at[i].row);
	return list;
}

// What changed, and may have arrays or not: it was not compared by them.
static json_t *unknown(const struct diff *d)
{
	json_t *list = ckpt_need(json_array());

	for (size_t i = 0; i < d->count; i++)
		if (d->at[i].mark == '~' && d->at[i].known != 3)
			json_array_append_new(list, ckpt_json_text(d->at[i].path));
	return list;
}

static void print_json(const struct diff *d)
{
	json_t *answer = ckpt_need(json_pack("{s:o, s:o, s:o, s:I}", "added", paths(d, '+'), "removed", paths(d, '-'),
					     "changed", paths(d, '~'), "same", (json_int_t)d->same));

	if (d->arrays)
		json_object_set_new(
			answer, "arrays",
			ckpt_need(json_pack("{s:o, s:o, s:o, s:I, s:o, s:o}", "added", rows(d, '+'), "removed",
					    rows(d, '-'), "changed", rows(d, '~'), "same", (json_int_t)d->same_arrays,
					    "unknown", unknown(d), "unread", rows(d, '?'))));
	ckpt_output_json(answer);
}

static void print(const struct diff *d)
{
	if (ckpt_output.json) {
		print_json(d);
		return;
	}
	for (size_t i = 0; i < d->count; i++)
		printf("%c %s\n", d->at[i].mark, d->at[i].path);
	for (size_t i = 0; i < d->array_count; i++)
		printf("  %c %s\n", d->arrays_at[i].mark, d->arrays_at[i].line);
}

static void diff_done(struct diff *d)
{
	for (size_t i = 0; i < d->count; i++)
		free(d->at[i].path);
	for (size_t i = 0; i < d->array_count; i++) {
		free(d->arrays_at[i].line);
		json_decref(d->arrays_at[i].row);
	}
	free(d->arrays_at);
	free(d->at);
	free(d->buffer);
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
		status = d->count || d->array_count ? 1 : 0;
	}
	ckpt_step_arrays_free(d->a.arrays);
	ckpt_step_arrays_free(d->b.arrays);
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
		 "also show which arrays were added, removed and changed, and by how much, whatever the formats of "
		 "their files",
		 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] A B",
		.doc = "Shows which files were added (+), removed (-) and changed (~) from step A to step "
		       "B; modes, owners and times do not count. Exit status 0: the steps are equal; 1: "
		       "they differ, or the verb failed and says why.\v"
		       "With --arrays the lines of arrays (+ - ~) come after those of files. Arrays are found by name, "
		       "by "
		       "TREE:NAME where a step has several of the name. `max ulp` counts the numbers of the coarser of "
		       "the two types that lie between; `?` marks an array that cannot be compared.\n\n"
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
	diff_done(&d);
	ckpt_operand_done(&o);
	return rc;
}
