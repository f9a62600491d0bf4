// arrays: the arrays of a step, of any format, and what is in them.
#include "tools/verb.h"

#include "core/array/findings.h"
#include "core/array/gather.h"
#include "core/array/number.h"
#include "core/base/util.h"
#include "core/view/array_glob.h"
#include "core/view/array_row.h"
#include "core/view/step_arrays.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <math.h>
#include <stdio.h>

#define AT_ONCE (64u << 10) // elements

enum { KEY_STATS = 0x100 };

static const struct argp_option options[] = {
	{"stats", KEY_STATS, NULL, 0, "read the elements: min, max, mean, and how many are NaN or infinite", 0},
	{0},
};

struct arrays {
	bool stats;
	const char *glob; // NULL: all
	const char *word; // the step, as the user called it
	struct ckpt_step_arrays *of;
};

static int on_option(int key, char *arg, void *input)
{
	struct arrays *v = input;

	(void)key;
	(void)arg;
	v->stats = true;
	return 0;
}

// --- What is in them --------------------------------------------------------------------------------------------------------

#define SCALE 0x1p-64 // a power of two, so that nothing is rounded; a sum of 2^63 numbers does not overflow

struct stats {
	double min, max, sum;     // sum: times SCALE
	uint64_t count, nan, inf; // count: of finite ones
};

static void add_numbers(struct stats *s, const double *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double v = numbers[i];

		if (isnan(v)) {
			s->nan++;
		} else if (isinf(v)) {
			s->inf++;
		} else {
			s->min = s->count ? fmin(s->min, v) : v;
			s->max = s->count ? fmax(s->max, v) : v;
			s->sum += v * SCALE;
			s->count++;
		}
	}
}

static int read_stats(struct ckpt_gather *g, enum ckpt_dtype dtype, struct stats *s, uint64_t *bytes)
{
	CLEANUP_FREE uint8_t *elements = ckpt_need(malloc((size_t)AT_ONCE * ckpt_gather_width(g)));
	CLEANUP_FREE double *numbers = ckpt_need(malloc(AT_ONCE * sizeof(double)));
	uint64_t all = ckpt_gather_elements(g);

	for (uint64_t at = 0, n; at < all; at += n) {
		int rc;

		n = MIN(all - at, (uint64_t)AT_ONCE);
		rc = ckpt_gather_run(g, at, n, elements);
		if (rc)
			return rc;
		ckpt_numbers(dtype, elements, (size_t)n, numbers);
		add_numbers(s, numbers, (size_t)n);
		*bytes += n * ckpt_gather_width(g);
		ckpt_progress_update(*bytes);
	}
	return 0;
}

static json_t *number(const struct stats *s, double value)
{
	return s->count && isfinite(value) ? ckpt_need(json_real(value)) : json_null();
}

static void set_stats(json_t *row, const struct stats *s)
{
	json_object_set_new(row, "min", number(s, s->min));
	json_object_set_new(row, "max", number(s, s->max));
	json_object_set_new(row, "mean", number(s, s->sum / (double)s->count / SCALE));
	json_object_set_new(row, "nan", ckpt_need(json_integer((json_int_t)s->nan)));
	json_object_set_new(row, "inf", ckpt_need(json_integer((json_int_t)s->inf)));
}

// What cannot be read is said in its row; the exit status.
static int add_stats(const struct arrays *v, size_t i, json_t *row, uint64_t *bytes)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(v->of);
	struct ckpt_catalog_array a;
	struct ckpt_gather *g = NULL;
	struct stats s = {0};
	int rc;

	ckpt_catalog_get(c, i, &a);
	if (a.why || !ckpt_is_number(a.dtype))
		return 0;
	if (!ckpt_findings_may_read(c, i)) {
		json_object_set_new(row, "why", ckpt_need(json_string("its elements are mostly not stored")));
		return 0;
	}
	rc = ckpt_gather_new(c, i, ckpt_step_arrays_files(v->of), &g);
	if (!rc)
		rc = read_stats(g, a.dtype, &s, bytes);
	ckpt_gather_free(g);
	if (rc) {
		json_object_set_new(row, "why", ckpt_need(json_string(ckpt_findings_why(rc))));
		return ckpt_fail(a.name, "`ckptfs verify` says what is damaged", "cannot be read: %s",
				 ckpt_findings_why(rc));
	}
	set_stats(row, &s);
	return 0;
}

// --- Rows -------------------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b)
{
	json_t *const *x = a, *const *y = b;
	int order =
		strcmp(json_string_value(json_object_get(*x, "tree")), json_string_value(json_object_get(*y, "tree")));

	return order ? order
		     : strcmp(json_string_value(json_object_get(*x, "name")),
			      json_string_value(json_object_get(*y, "name")));
}

static json_t *sorted(json_t **rows, size_t count)
{
	json_t *list = ckpt_need(json_array());

	if (count)
		qsort(rows, count, sizeof(json_t *), by_name);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, rows[i]);
	return list;
}

static uint64_t all_bytes(const struct ckpt_catalog *c)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		bytes += ckpt_array_bytes(&a);
	}
	return bytes;
}

static int make_rows(const struct arrays *v, json_t **ret_rows)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(v->of);
	size_t all = ckpt_catalog_count(c), count = 0;
	CLEANUP_FREE json_t **rows = ckpt_need(ckpt_calloc(all + 1, sizeof(json_t *)));
	uint64_t bytes = 0;
	int status = 0;

	if (v->stats)
		ckpt_progress_start("arrays", all_bytes(c), 1);
	for (size_t i = 0; i < all; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		if (v->glob && !ckpt_array_glob(v->glob, a.tree, a.name))
			continue;
		rows[count] = ckpt_need(ckpt_output.json ? ckpt_array_row(c, i) : ckpt_array_head(c, i));
		if (v->stats && add_stats(v, i, rows[count], &bytes))
			status = 1;
		count++;
	}
	if (v->stats)
		ckpt_progress_stop();
	*ret_rows = sorted(rows, count);
	return status;
}

// --- The answer -------------------------------------------------------------------------------------------------------------

static char *shape_text(const json_t *row)
{
	char *text = json_dumps(json_object_get(row, "shape"), JSON_COMPACT);

	return ckpt_need(text);
}

static char *number_text(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);

	return json_is_real(value)      ? ckpt_text("%.6g", json_real_value(value))
	       : json_is_integer(value) ? ckpt_text("%lld", (long long)json_integer_value(value))
					: ckpt_text("-");
}

static void print_table(const struct arrays *v, const json_t *rows)
{
	static const char *const numbers[] = {"min", "max", "mean", "nan", "inf"};
	struct ckpt_table *t = ckpt_table_new();
	const json_t *row;
	size_t i;

	ckpt_table_column(t, "TREE", CKPT_LEFT);
	ckpt_table_column(t, "NAME", CKPT_LEFT);
	ckpt_table_column(t, "DTYPE", CKPT_LEFT);
	ckpt_table_column(t, "SHAPE", CKPT_LEFT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "FORMAT", CKPT_LEFT);
	ckpt_table_column(t, "PIECES", CKPT_RIGHT);
	for (size_t k = 0; v->stats && k < ARRAY_LEN(numbers); k++)
		ckpt_table_column(t, (const char *[]){"MIN", "MAX", "MEAN", "NAN", "INF"}[k], CKPT_RIGHT);
	json_array_foreach(rows, i, row)
	{
		const char *dtype = json_string_value(json_object_get(row, "dtype")), *cells[12];
		char size[CKPT_SIZE_MAX], pieces[24];
		CLEANUP_FREE char *shape = shape_text(row);
		char *texts[ARRAY_LEN(numbers)];

		snprintf(pieces, sizeof(pieces), "%lld", (long long)json_integer_value(json_object_get(row, "pieces")));
		cells[0] = json_string_value(json_object_get(row, "tree"));
		cells[1] = json_string_value(json_object_get(row, "name"));
		cells[2] = dtype ? dtype : "?";
		cells[3] = shape;
		cells[4] = ckpt_size_text((uint64_t)json_integer_value(json_object_get(row, "bytes")), size);
		cells[5] = json_string_value(json_object_get(row, "format"));
		cells[6] = pieces;
		for (size_t k = 0; k < ARRAY_LEN(numbers); k++)
			cells[7 + k] = texts[k] = number_text(row, numbers[k]);
		ckpt_table_row(t, cells);
		for (size_t k = 0; k < ARRAY_LEN(numbers); k++)
			free(texts[k]);
	}
	ckpt_table_print(t);
}

// On stderr: what is in the step, and is in no row, or cannot be read.
static void tell_faults(const struct ckpt_catalog *c, const json_t *rows)
{
	const json_t *row;
	size_t i;

	for (i = 0; i < ckpt_catalog_faults(c); i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(c, i, &f);
		ckpt_note("%s: %s: %s", f.file, f.field, f.reason);
	}
	json_array_foreach(rows, i, row)
	{
		const char *why = json_string_value(json_object_get(row, "why"));

		if (why)
			ckpt_note("%s:%s cannot be read: %s", json_string_value(json_object_get(row, "tree")),
				  json_string_value(json_object_get(row, "name")), why);
	}
}

static int list(const struct arrays *v)
{
	json_t *rows;
	int status = make_rows(v, &rows);

	if (!ckpt_output.json)
		print_table(v, rows);
	if (!fflush(stdout))
		tell_faults(ckpt_step_arrays_catalog(v->of), rows);
	if (v->glob && !json_array_size(rows) && ckpt_catalog_count(ckpt_step_arrays_catalog(v->of)))
		ckpt_note("%s: no array matches %s; `*` stops at `.` and `/`, `**` does not", v->word, v->glob);
	if (ckpt_output.json)
		ckpt_output_json(rows);
	else
		json_decref(rows);
	return status;
}

static int run(struct arrays *v, const struct ckpt_operand *o)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = NULL;
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	v->word = o->steps[0];
	v->glob = o->count > 1 ? o->steps[1] : NULL;
	rc = ckpt_listing_files(&l, o, v->word, &step, &m, &path);
	if (!rc) {
		rc = ckpt_step_arrays_read(step, m, path, &v->of);
		if (rc)
			rc = ckpt_fail(v->word,
				       "`ckptfs ls STORE STEP` lists its files; `ckptfs verify` says what is damaged",
				       "its arrays cannot be read: %s", strerror(-rc));
	}
	if (!rc)
		rc = list(v);
	ckpt_step_arrays_free(v->of);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_verb_arrays(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP[/PATH] [GLOB]",
		.doc = "Lists the arrays of a step: name, dtype, shape, size, whatever format its files have.\v"
		       "Formats: npy, npz, safetensors, torch.save, torch.distributed.checkpoint, DeepSpeed's ZeRO, "
		       "zarr 2 and 3, OCDBT (Orbax), HDF5, .keras, flax's msgpack, GGUF, arrays.json. Only headers "
		       "are read. A GLOB is over names: `*` stops at `.` and `/`, `**` does not; with a colon it is "
		       "over TREE:NAME. In a mount the arrays are files: STEP/.arrays/NAME.npy.\n\n"
		       "Examples:\n"
		       "  ckptfs arrays /data/run42 latest\n"
		       "  ckptfs arrays /data/run42 1000 'model.**.weight' --stats\n"
		       "  ckptfs arrays s3://bucket/run42 1000 --json",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = 3,
	};
	struct arrays v = {0};
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (!o.count || o.count > 2)
		rc = ckpt_usage("arrays", "usage: ckptfs arrays [STORE] STEP [GLOB]",
				"wants a step, and at most a pattern");
	else
		rc = run(&v, &o);
	ckpt_operand_done(&o);
	return rc;
}
