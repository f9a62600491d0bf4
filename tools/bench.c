#include "tools/bench.h"

#include "core/base/util.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"
#include "tools/verb.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- Options --------------------------------------------------------------------------------------------------------

enum { OPT_QUICK = 0x100, OPT_NATIVE, OPT_ONLY, OPT_PAIRS, OPT_WORK_BYTES, OPT_FILES };

static const struct argp_option options[] = {
	{"quick", OPT_QUICK, NULL, 0, "a quick look, not exact: 3 pairs, 256 MiB, 1,000 files", 0},
	{"pairs", OPT_PAIRS, "N", 0, "how often each figure is taken (default 11)", 0},
	{"only", OPT_ONLY, "GLOB", 0, "only figures whose name matches: 'save-*', '@(list|walk-*)'", 0},
	{"mount-options", 'o', "OPTS", 0,
	 "mount with these options: no_passthrough; seal=yes: with the background work of a "
	 "save, too",
	 0},
	{"work-bytes", OPT_WORK_BYTES, "SIZE", 0, "bytes in the large files together (default 2GiB)", 0},
	{"files", OPT_FILES, "N", 0,
	 "how many small files (default 10000); the listing has as many steps, the largest "
	 "store 100 times as many files",
	 0},
	{"native", OPT_NATIVE, NULL, 0, "measure a plain directory instead of the mount: the noise of this machine", 0},
	{0},
};

static const char doc[] = "Measures saving, restoring and listing on a mount against the plain filesystem that "
			  "DIR is on.\v"
			  "Each figure is measured in turns: plain, mount, and plain again. The ratio is plain "
			  "time / mount time, so 1.00 is native speed; the column NATIVE is the same for plain "
			  "against plain. DIR needs room for three times the large files. All files are "
			  "removed at the end. Cold figures need root.\n"
			  "\n"
			  "Examples:\n"
			  "  ckptfs bench /data\n"
			  "  ckptfs bench --only 'save-*' --pairs 21 --json /data\n";

#define WORK_BYTES_MIN (BENCH_BULK_FILES * UINT64_C(4096)) // below, a file would have nothing but its header
#define WORK_BYTES_MAX (UINT64_C(1) << 40)
#define FILES_MAX 100000u
#define PAIRS_MAX 1000u

static int parse_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	if (ckpt_size_parse(text, ret_number) || *ret_number < min || *ret_number > max)
		return ckpt_usage(option, NULL, "'%s' is not between %llu and %llu", text, (unsigned long long)min,
				  (unsigned long long)max);
	return 0;
}

static int parse_only(const char *glob)
{
	char names[1024] = "they are";
	size_t len = strlen(names);

	for (size_t i = 0; i < bench_figure_count; i++) {
		if (!fnmatch(glob, bench_figures[i].name, FNM_EXTMATCH))
			return 0;
		len += (size_t)snprintf(names + len, sizeof(names) - len, " %s", bench_figures[i].name);
		assert(len < sizeof(names));
	}
	return ckpt_usage("--only", names, "no figure is called '%s'", glob);
}

static int set_option(int key, char *arg, void *input)
{
	struct bench_options *o = input;

	switch (key) {
	case OPT_QUICK:
		o->quick = true;
		return 0;
	case OPT_NATIVE:
		o->native = true;
		return 0;
	case OPT_ONLY:
		o->only = arg;
		return parse_only(arg);
	case 'o':
		o->mount_options = arg;
		return 0;
	case OPT_PAIRS:
		return parse_number("--pairs", arg, 1, PAIRS_MAX, &o->pairs);
	case OPT_WORK_BYTES:
		return parse_number("--work-bytes", arg, WORK_BYTES_MIN, WORK_BYTES_MAX, &o->work_bytes);
	case OPT_FILES:
		return parse_number("--files", arg, BENCH_SMALL_DIRS, FILES_MAX, &o->files);
	default:
		return 0;
	}
}

static void set_defaults(struct bench_options *o)
{
	if (!o->pairs)
		o->pairs = o->quick ? 3 : 11;
	if (!o->work_bytes)
		o->work_bytes = o->quick ? UINT64_C(256) << 20 : UINT64_C(2) << 30;
	if (!o->files)
		o->files = o->quick ? 1000 : 10000;
}

static bool wanted(const struct bench *b, const struct bench_figure *f)
{
	return !b->options.only || fnmatch(b->options.only, f->name, FNM_EXTMATCH) == 0;
}

// --- Pairs ----------------------------------------------------------------------------------------------------------

struct pairs {
	struct bench_time *times; // [pair][side]
	uint64_t count;
};

static const struct bench_time *at(const struct pairs *p, uint64_t pair, enum bench_side_name side)
{
	return &p->times[(size_t)pair * BENCH_SIDES + side];
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

// The value below which `share` of the pairs lie; at one half the median.
static int quantile(const struct pairs *p, double (*of)(const struct pairs *p, uint64_t pair), double share,
		    double *ret_value)
{
	CLEANUP_FREE double *values = ckpt_calloc(p->count, sizeof(*values));
	uint64_t rank = (uint64_t)ceil(share * (double)p->count);

	if (!values)
		return -ENOMEM;
	for (uint64_t i = 0; i < p->count; i++)
		values[i] = of(p, i);
	qsort(values, p->count, sizeof(*values), compare);
	*ret_value = values[rank > 0 ? rank - 1 : 0];
	if (share == 0.5 && p->count % 2 == 0)
		*ret_value = (values[p->count / 2 - 1] + values[p->count / 2]) / 2;
	return 0;
}

static double ratio_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_PLAIN)->wall_s / at(p, pair, BENCH_MOUNT)->wall_s;
}

static double native_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_PLAIN)->wall_s / at(p, pair, BENCH_AGAIN)->wall_s;
}

static double cpu_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_PLAIN)->cpu_s / at(p, pair, BENCH_MOUNT)->cpu_s;
}

static double wall_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_MOUNT)->wall_s;
}

static double plain_wall_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_PLAIN)->wall_s;
}

static double cpu_s_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_MOUNT)->cpu_s;
}

static double plain_cpu_s_of(const struct pairs *p, uint64_t pair)
{
	return at(p, pair, BENCH_PLAIN)->cpu_s;
}

static double extra_ms_of(const struct pairs *p, uint64_t pair)
{
	return 1e3 * (wall_of(p, pair) - plain_wall_of(p, pair));
}

static int summarize(const struct pairs *p, struct bench_result *ret)
{
	int r = quantile(p, ratio_of, 0.5, &ret->ratio);

	ret->pairs = p->count;
	r = r ? r : quantile(p, native_of, 0.5, &ret->native_ratio);
	r = r ? r : quantile(p, cpu_of, 0.5, &ret->cpu_ratio);
	r = r ? r : quantile(p, wall_of, 0.5, &ret->wall_s);
	r = r ? r : quantile(p, plain_wall_of, 0.5, &ret->plain_wall_s);
	r = r ? r : quantile(p, cpu_s_of, 0.5, &ret->cpu_s);
	r = r ? r : quantile(p, plain_cpu_s_of, 0.5, &ret->plain_cpu_s);
	if (ret->figure->measure == BENCH_EXTRA_MS)
		return r ? r : quantile(p, extra_ms_of, 0.99, &ret->value);
	ret->value = ret->ratio;
	return r;
}

static int run_side(struct bench *b, const struct bench_figure *f, struct bench_side *s, struct bench_time *ret_time)
{
	struct bench_time start;
	int r = f->prepare ? f->prepare(b, f, s) : 0;

	if (r)
		return r;
	bench_clock_start(b, &start);
	r = f->run(b, f, s);
	bench_clock_stop(b, &start, ret_time);
	if (!r && f->after)
		r = f->after(b, f, s);
	return !r && bench_stopped() ? -EINTR : r;
}

static void tell_pair(const struct bench_figure *f, const struct pairs *p, uint64_t pair)
{
	const struct bench_time *plain = at(p, pair, BENCH_PLAIN), *mount = at(p, pair, BENCH_MOUNT),
				*again = at(p, pair, BENCH_AGAIN);

	ckpt_note_verbose("%s pair %llu: wall (CPU) ms: plain %.1f (%.1f), mount %.1f (%.1f), plain again %.1f (%.1f)",
			  f->name, (unsigned long long)pair + 1, plain->wall_s * 1e3, plain->cpu_s * 1e3,
			  mount->wall_s * 1e3, mount->cpu_s * 1e3, again->wall_s * 1e3, again->cpu_s * 1e3);
}

// Each pair starts with another side, so that none always comes after the same.
static int run_pairs(struct bench *b, const struct bench_figure *f, struct pairs *p)
{
	struct bench_time unused;
	int r = 0;

	for (int i = 0; i < BENCH_SIDES && f->begin && !r; i++)
		r = f->begin(b, f, &b->side[i]);
	for (int i = 0; i < BENCH_SIDES && !f->cold && !r; i++)
		r = run_side(b, f, &b->side[i], &unused);
	for (uint64_t pair = 0; pair < p->count && !r; pair++)
		for (unsigned i = 0; i < BENCH_SIDES && !r; i++) {
			enum bench_side_name side = (pair + i) % BENCH_SIDES;

			r = run_side(b, f, &b->side[side], &p->times[(size_t)pair * BENCH_SIDES + side]);
			if (!r && i + 1 == BENCH_SIDES)
				tell_pair(f, p, pair);
		}
	return r;
}

static int measure(struct bench *b, const struct bench_figure *f, struct bench_result *ret)
{
	struct pairs p = {.count = b->options.pairs};
	CLEANUP_FREE struct bench_time *times = NULL;
	int r;

	b->seals = f->seals; // of the mount that the fixture makes
	if (f->fixture == BENCH_EMPTY || f->fixture != b->fixture) {
		r = bench_fixture_make(b, f->fixture);
		if (r)
			return r;
	}
	if (f->gauge) {
		ret->pairs = 1;
		return f->gauge(b, &ret->value);
	}
	if (f->measure == BENCH_EXTRA_MS && !b->options.quick)
		p.count = MAX(p.count, 30); // a percentile of few is their worst
	p.times = times = ckpt_calloc((size_t)p.count * BENCH_SIDES, sizeof(*times));
	if (!times)
		return -ENOMEM;
	r = run_pairs(b, f, &p);
	return r ? r : summarize(&p, ret);
}

static bool is_met(const struct bench_result *r)
{
	const struct bench_figure *f = r->figure;

	if (f->measure == BENCH_RATIO)
		return f->target == 0 || (r->value >= f->target && (!f->cpu_too || r->cpu_ratio >= f->target));
	return r->value <= f->target;
}

static int take(struct bench *b, const struct bench_figure *f, struct bench_result *ret)
{
	*ret = (struct bench_result){.figure = f,
				     .value = NAN,
				     .ratio = NAN,
				     .native_ratio = NAN,
				     .cpu_ratio = NAN,
				     .wall_s = NAN,
				     .plain_wall_s = NAN,
				     .cpu_s = NAN,
				     .plain_cpu_s = NAN};
	if (f->cold && !b->root)
		ret->skipped = "only root can drop caches";
	else if (f->gauge && b->options.native)
		ret->skipped = "needs a mount";
	if (ret->skipped)
		return 0;
	if (f->per_op)
		ret->ops = MAX(b->options.files / BENCH_SMALL_DIRS, 1) * BENCH_SMALL_DIRS;
	ret->error = measure(b, f, ret);
	ret->met = !ret->error && is_met(ret);
	if (ret->error)
		b->fixture = BENCH_NOTHING; // whatever it left
	return ret->error;
}

// --- The verb -------------------------------------------------------------------------------------------------------

static int run(struct bench *b, struct bench_result *results, size_t *ret_count)
{
	int failed = 0;

	ckpt_progress_start("figures", bench_figure_count, 0);
	for (size_t i = 0; i < bench_figure_count && !bench_stopped() && !b->hopeless; i++) {
		const struct bench_figure *f = &bench_figures[i];

		ckpt_progress_update(i);
		if (!wanted(b, f))
			continue;
		if (take(b, f, &results[*ret_count])) {
			if (bench_stopped())
				break;
			ckpt_progress_hide();
			failed = ckpt_fail_errno(f->name, NULL, results[*ret_count].error);
		}
		++*ret_count;
	}
	ckpt_progress_stop();
	return failed;
}

static int bench(struct bench *b)
{
	CLEANUP_FREE struct bench_result *results = ckpt_need(ckpt_calloc(bench_figure_count, sizeof(*results)));
	size_t count = 0;
	int status = 1, r;

	bench_signals_catch();
	r = bench_place_open(b);
	if (r && !bench_stopped()) {
		ckpt_fail_errno(b->options.dir, NULL, r);
	} else if (!r) {
		if (!ckpt_output.json)
			bench_report_head(b);
		status = run(b, results, &count);
	}
	bench_place_close(b);
	if (r || (bench_stopped() && count == 0))
		return bench_stopped() ? 128 + bench_stop_signal() : status;
	if (ckpt_output.json)
		bench_report_json(results, count);
	else
		bench_report_table(results, count);
	return bench_stopped() ? 128 + bench_stop_signal() : status; // what was measured before is worth showing
}

int ckpt_verb_bench(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "DIR",
		.doc = doc,
		.options = options,
		.option = set_option,
		.operands_min = 1,
		.operands_max = 1,
	};
	struct ckpt_words words;
	struct bench b = {0};

	ckpt_verb_parse(&syntax, argc, argv, &b.options, &words);
	b.options.dir = words.at[0];
	set_defaults(&b.options);
	return bench(&b);
}
