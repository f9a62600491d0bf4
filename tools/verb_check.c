// check: what is wrong with the arrays of a step.
#include "tools/healthy.h"
#include "tools/verb.h"

#include "core/array/findings.h"
#include "core/base/util.h"
#include "core/view/array_row.h"
#include "core/view/examine.h"
#include "core/view/step_arrays.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>

enum { KEY_READ_DATA = 0x100, KEY_AGAINST };

static const struct argp_option options[] = {
	{"read-data", KEY_READ_DATA, NULL, 0, "read the elements: NaN, infinities, nothing but zeros, no change", 0},
	{"against", KEY_AGAINST, "STEP", 0, "compare with this step, not with the one before", 0},
	{0},
};

// A step, its arrays, and a path in it.
struct side {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_step_arrays *arrays;
	char *path;
	struct ckpt_findings_side is;
};

struct check {
	bool read_data;
	const char *against; // NULL: the step before
	struct side now, before;
	struct ckpt_findings found;
	uint64_t bytes; // read
};

static int on_option(int key, char *arg, void *input)
{
	struct check *v = input;

	if (key == KEY_READ_DATA)
		v->read_data = true;
	else
		v->against = arg;
	return 0;
}

// --- Two steps --------------------------------------------------------------------------------------------------------------

static int64_t number_of(struct ckpt_step *step)
{
	struct ckpt_version *version = ckpt_step_version(step);
	int64_t number = version->is.number;

	ckpt_version_unref(version);
	return number;
}

static int read_side(struct side *s, const char *word)
{
	int rc = ckpt_step_arrays_read_files(s->step, s->m, s->path, &s->arrays);

	if (rc)
		return ckpt_fail(word, "`ckptfs ls STORE STEP` lists its files; `ckptfs verify` says what is damaged",
				 "its arrays cannot be read: %s", strerror(-rc));
	s->is = (struct ckpt_findings_side){ckpt_step_arrays_catalog(s->arrays), ckpt_step_arrays_files(s->arrays),
					    s->path, number_of(s->step)};
	return 0;
}

static int open_side(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *word, struct side *s)
{
	int rc = ckpt_listing_files(l, o, word, &s->step, &s->m, &s->path);

	return rc ? rc : read_side(s, word);
}

static int open_before(const struct ckpt_listing *l, const struct ckpt_operand *o, struct check *v)
{
	int rc;

	if (v->against)
		return open_side(l, o, v->against, &v->before);
	v->before.step = ckpt_step_before(v->now.step);
	if (!v->before.step)
		return 0;
	v->before.path = ckpt_text("%s", v->now.path);
	rc = ckpt_step_manifest(v->before.step, &v->before.m);
	if (!rc)
		rc = ckpt_step_arrays_read(v->before.step, v->before.m, v->before.path, &v->before.arrays);
	if (!rc)
		v->before.is = (struct ckpt_findings_side){ckpt_step_arrays_catalog(v->before.arrays),
							   ckpt_step_arrays_files(v->before.arrays), v->before.path,
							   number_of(v->before.step)};
	else if (rc != -ENOENT) // the step before is another step's trouble
		ckpt_note("%s cannot be read, so nothing is compared with it: %s", v->before.step->name, strerror(-rc));
	return 0;
}

static void side_done(struct side *s)
{
	ckpt_step_arrays_free(s->arrays);
	ckpt_manifest_unref(s->m);
	ckpt_step_unref(s->step);
	free(s->path);
}

// --- Looking ----------------------------------------------------------------------------------------------------------------

static bool go_on(void *arg, uint64_t bytes)
{
	struct check *v = arg;

	v->bytes += bytes;
	ckpt_progress_update(v->bytes);
	return true;
}

static uint64_t all_bytes(const struct ckpt_catalog *c)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		if (!a.why && ckpt_findings_may_read(c, i))
			bytes += ckpt_array_bytes(&a);
	}
	return bytes;
}

static int look(struct check *v, struct ckpt_findings_reading *how)
{
	const struct ckpt_findings_side *before = v->before.arrays ? &v->before.is : NULL;
	int rc = ckpt_findings_of_headers(&v->found, &v->now.is);

	if (!rc && before)
		rc = ckpt_findings_since(&v->found, &v->now.is, before);
	if (!rc && v->read_data) {
		ckpt_progress_start("arrays", all_bytes(v->now.is.catalog), 1);
		rc = ckpt_findings_of_elements(&v->found, &v->now.is, before, how);
		ckpt_progress_stop();
	}
	return rc;
}

// --- The answer -------------------------------------------------------------------------------------------------------------

static char *where(const struct ckpt_array_finding *f)
{
	return f->file ? ckpt_text("%s", f->file) : ckpt_text("%s:%s", f->tree, f->name);
}

static void print_table(const struct check *v)
{
	struct ckpt_table *t = ckpt_table_new();

	ckpt_table_column(t, "FINDING", CKPT_LEFT);
	ckpt_table_column(t, "WHERE", CKPT_LEFT);
	ckpt_table_column(t, "WHAT", CKPT_LEFT);
	for (size_t i = 0; i < v->found.count; i++) {
		const struct ckpt_array_finding *f = &v->found.at[i];
		CLEANUP_FREE char *place = where(f);

		ckpt_table_row(t, (const char *const[]){ckpt_array_finding_word(f->kind), place, f->detail});
	}
	ckpt_table_print(t);
}

static uint64_t all_findings(const struct check *v)
{
	uint64_t all = 0;

	for (int kind = 0; kind < CKPT_FINDING_KINDS; kind++)
		all += v->found.counts[kind];
	return all;
}

static json_t *as_json(const struct check *v, const struct ckpt_findings_reading *how, bool healthy)
{
	json_t *rows = ckpt_need(json_array()), *document;

	for (size_t i = 0; i < v->found.count; i++) {
		const struct ckpt_array_finding *f = &v->found.at[i];
		json_t *row = json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "kind", ckpt_array_finding_word(f->kind),
					"trouble", ckpt_array_finding_is_trouble(f->kind), "file",
					ckpt_json_text(f->file), "tree", ckpt_json_text(f->tree), "name",
					ckpt_json_text(f->name), "what", ckpt_json_text(f->detail));

		json_array_append_new(rows, ckpt_need(row));
	}
	document = json_pack("{s:b, s:I, s:I, s:I, s:o, s:I, s:o}", "healthy", healthy, "arrays",
			     (json_int_t)ckpt_catalog_count(v->now.is.catalog), "read", (json_int_t)how->arrays,
			     "not_read", (json_int_t)how->not_read, "before",
			     ckpt_json_text(v->before.arrays ? v->before.step->name : NULL), "count",
			     (json_int_t)all_findings(v), "findings", rows);
	return ckpt_need(document);
}

static int answer(const struct check *v, const char *word, const struct ckpt_findings_reading *how)
{
	uint64_t all = all_findings(v);
	bool kept = true, healthy = ckpt_findings_healthy(&v->found);

	// Headers do not show what was found in the elements once.
	if (!v->read_data && !*v->now.path && !ckpt_healthy_by_metadata(v->now.step, &kept) && !kept && healthy) {
		ckpt_note("%s: trouble was found in its elements when it was sealed: `ckptfs info` has it, --read-data "
			  "reads them again",
			  word);
		healthy = false;
	}
	if (ckpt_output.json)
		ckpt_output_json(as_json(v, how, healthy));
	else if (v->found.count)
		print_table(v);
	if (fflush(stdout))
		return 1;
	if (all > v->found.count)
		ckpt_note("%s: %" PRIu64 " more findings are not shown", word, all - v->found.count);
	if (how->not_read)
		ckpt_note("%s: %" PRIu64 " arrays were not read, as most of their elements are not stored", word,
			  how->not_read);
	ckpt_note("%s: %zu arrays%s, %" PRIu64 " finding%s: %s", word, ckpt_catalog_count(v->now.is.catalog),
		  v->read_data ? "" : " by their headers (--read-data reads their elements)", all, all == 1 ? "" : "s",
		  healthy ? "healthy" : "not healthy");
	return !healthy;
}

static int run(struct check *v, const struct ckpt_operand *o)
{
	struct ckpt_findings_reading how = {.go_on = go_on, .arg = v};
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = open_side(&l, o, o->steps[0], &v->now);
	if (!rc)
		rc = open_before(&l, o, v);
	if (!rc) {
		rc = look(v, &how);
		rc = rc ? ckpt_fail_errno(o->steps[0], NULL, rc) : answer(v, o->steps[0], &how);
	}
	ckpt_findings_done(&v->found);
	side_done(&v->now);
	side_done(&v->before);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_verb_check(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP[/PATH]",
		.doc = "Checks the arrays of a step: what is missing, doubled, broken, or other than in the step "
		       "before.\v"
		       "Trouble is a broken file, an array or elements that are missing, and NaN: then the exit status "
		       "is 1. All else "
		       "are notes. Only headers are read, unless --read-data is given. `ckptfs verify` checks bytes; "
		       "this, "
		       "what they mean.\n\n"
		       "Examples:\n"
		       "  ckptfs check /data/run42 latest\n"
		       "  ckptfs check /data/run42 1000 --read-data --against 900\n"
		       "  ckptfs check s3://bucket/run42 1000 --json",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = 2,
	};
	struct check v = {0};
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count != 1)
		rc = ckpt_usage("check", "usage: ckptfs check [STORE] STEP", "wants one step");
	else
		rc = run(&v, &o);
	ckpt_operand_done(&o);
	return rc;
}
