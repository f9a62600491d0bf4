// diff: which files of two steps differ.
#include "tools/verb.h"

#include "core/sys.h"
#include "core/util.h"
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
};

struct difference {
	char mark; // + - ~
	char *path;
};

struct diff {
	bool arrays;
	struct side a, b;
	struct difference *at;
	size_t count, cap;
	uint64_t same; // files and links
	uint64_t bytes;
	char *buffer; // two pieces
};

static void add(struct diff *d, char mark, const char *path)
{
	if (ckpt_grow((void **)&d->at, &d->cap, d->count + 1, sizeof(*d->at)))
		ckpt_need(NULL);
	d->at[d->count++] = (struct difference){mark, ckpt_text("%s", path)};
}

// --- Content ------------------------------------------------------------------------------------------------------------

// 0 the same, 1 not, -errno.
static int compare_bytes(struct diff *d, int a, int b)
{
	char *one = d->buffer, *two = d->buffer + PIECE;

	for (off_t at = 0;;) {
		ssize_t n = ckpt_sys.pread(a, one, PIECE, at), m = ckpt_sys.pread(b, two, PIECE, at);

		if (n < 0 || m < 0)
			return (int)MIN(n, m);
		if (n != m || memcmp(one, two, (size_t)n))
			return 1;
		if (!n)
			return 0;
		at += n;
		ckpt_progress_update(d->bytes + (uint64_t)at);
	}
}

static int fail_read(const struct side *s, const char *path, int error)
{
	CLEANUP_FREE char *what = ckpt_text("%s/%s", s->word, path);

	return ckpt_fail(what, "`ckptfs verify` says what is damaged", "cannot be read: %s", strerror(-error));
}

// Two files of one size. 0 the same, 1 not; *ret_failed: the exit status of a failure, which has been said.
static int compare_files(struct diff *d, const struct ckpt_entry *a, const struct ckpt_entry *b, const char *path,
			 int *ret_failed)
{
	CLEANUP_FD int fd_a = -1;
	CLEANUP_FD int fd_b = -1;
	struct stat st_a, st_b;
	int rc = ckpt_step_open_raw(d->a.step, d->a.m, a->index, &fd_a);

	if (rc) {
		*ret_failed = fail_read(&d->a, path, rc);
		return 0;
	}
	rc = ckpt_step_open_raw(d->b.step, d->b.m, b->index, &fd_b);
	if (rc) {
		*ret_failed = fail_read(&d->b, path, rc);
		return 0;
	}
	if (!fstat(fd_a, &st_a) && !fstat(fd_b, &st_b) && st_a.st_ino == st_b.st_ino && st_a.st_dev == st_b.st_dev)
		return 0;
	rc = compare_bytes(d, fd_a, fd_b);
	if (rc < 0)
		*ret_failed = fail_read(&d->a, path, rc);
	return rc > 0;
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
	return a->bytes != b->bytes || (a->bytes && compare_files(d, a, b, path, ret_failed));
}

// --- The trees ----------------------------------------------------------------------------------------------------------

// A directory that only one side has is told by what is in it, if there is anything.
static bool is_told(const struct ckpt_entry *e)
{
	return e->type != CKPT_ENTRY_DIR || !e->child_count;
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
		if (is_other(d, &e, &other, path, &status))
			add(d, '~', path);
		else if (e.type != CKPT_ENTRY_DIR)
			d->same++;
		d->bytes += e.type == CKPT_ENTRY_FILE ? e.bytes : 0;
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

	ckpt_progress_start("diff", d->a.step->summary.bytes, 1);
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

static void print(const struct diff *d)
{
	if (ckpt_output.json) {
		ckpt_output_json(
			ckpt_need(json_pack("{s:o, s:o, s:o, s:I}", "added", paths(d, '+'), "removed", paths(d, '-'),
					    "changed", paths(d, '~'), "same", (json_int_t)d->same)));
		return;
	}
	for (size_t i = 0; i < d->count; i++)
		printf("%c %s\n", d->at[i].mark, d->at[i].path);
}

static int open_side(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *word, struct side *s)
{
	CLEANUP_FREE char *path = NULL;
	int rc = ckpt_listing_find(l, o, word, &s->step, &path);

	s->word = word;
	if (rc)
		return rc;
	if (*path)
		return ckpt_usage(word, "name the step alone", "a file in a step, where a whole step is wanted");
	rc = ckpt_step_manifest(s->step, &s->m);
	return rc ? ckpt_fail(word, "`ckptfs verify` says what is damaged", "its list of files cannot be read: %s",
			      strerror(-rc))
		  : 0;
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
		{"arrays", 'a', NULL, 0, "arrays instead of files; comes with arrays, in a later version", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] A B",
		.doc = "Shows which files were added (+), removed (-) and changed (~) from step A to step B; modes, "
		       "owners and times do not count. Exit status 0: none; 1: they differ, or a failure that is "
		       "said.\v"
		       "Examples:\n"
		       "  ckptfs diff /ckpt 1000 2000\n"
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
	if (d.arrays)
		return ckpt_usage("--arrays", "leave it out: files are compared",
				  "comes with arrays, in a later version");
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	d.buffer = ckpt_need(malloc((size_t)2 * PIECE));
	rc = o.count == 2 ? diff(&d, &o) : ckpt_usage("diff", "usage: ckptfs diff [STORE] A B", "wants two steps");
	for (size_t i = 0; i < d.count; i++)
		free(d.at[i].path);
	free(d.at);
	free(d.buffer);
	ckpt_operand_done(&o);
	return rc;
}
