#include "tools/bench.h"

#include "core/base/util.h"
#include "tools/output.h"
#include "tools/units.h"

#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

// --- Where it ran ---------------------------------------------------------------------------------------------------

static void first_value(const char *path, const char *key, char *ret, size_t cap)
{
	char line[512], *colon;
	FILE *file = fopen(path, "re");

	snprintf(ret, cap, "?");
	while (file && fgets(line, sizeof(line), file)) {
		colon = strchr(line, ':');
		if (strncmp(line, key, strlen(key)) || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		snprintf(ret, cap, "%s", colon);
		break;
	}
	if (file)
		fclose(file);
}

// An ext4 without a journal syncs at other speeds.
static bool lacks_journal(const char *type, const char *source)
{
	const char *device = strrchr(source, '/');
	CLEANUP_FREE char *pattern = bench_path("/proc/fs/jbd2/%s-*", device ? device + 1 : source);
	glob_t found = {0};
	bool lacks = pattern && !strcmp(type, "ext4") && glob(pattern, 0, NULL, &found) == GLOB_NOMATCH;

	globfree(&found);
	return lacks;
}

// Type and source of the filesystem that path is on, from the line of its device in mountinfo.
static void filesystem_of(const char *path, char *ret, size_t cap)
{
	char line[4096], want[32], type[64], source[256], device[32];
	struct stat st;
	FILE *file = fopen("/proc/self/mountinfo", "re");

	snprintf(ret, cap, "?");
	if (file && !stat(path, &st)) {
		snprintf(want, sizeof(want), "%u:%u", major(st.st_dev), minor(st.st_dev));
		while (fgets(line, sizeof(line), file)) {
			const char *rest = strstr(line, " - ");

			if (rest && sscanf(line, "%*d %*d %31s", device) == 1 && !strcmp(device, want) &&
			    sscanf(rest, " - %63s %255s", type, source) == 2)
				snprintf(ret, cap, "%s on %s%s", type, source,
					 lacks_journal(type, source) ? ", no journal" : "");
		}
	}
	if (file)
		fclose(file);
}

void bench_report_head(const struct bench *b)
{
	char cpu[256], filesystem[512], memory[64], work[CKPT_SIZE_MAX];
	const char *options = b->options.mount_options ? b->options.mount_options : "default options";
	struct utsname name;

	first_value("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
	first_value("/proc/meminfo", "MemTotal", memory, sizeof(memory));
	filesystem_of(b->work, filesystem, sizeof(filesystem));
	if (uname(&name))
		return;
	printf("machine     %s, %ld CPUs, %.0f GiB\n", cpu, sysconf(_SC_NPROCESSORS_ONLN),
	       strtod(memory, NULL) / (1024 * 1024));
	printf("kernel      %s %s\n", name.sysname, name.release);
	printf("filesystem  %s\n", filesystem);
	printf("mount       %s\n", b->options.native ? "none: plain against plain" : options);
	printf("work        %s in %u large files, %llu small ones of %u KiB, %llu pairs\n\n",
	       ckpt_size_text(b->options.work_bytes, work), BENCH_BULK_FILES, (unsigned long long)b->options.files,
	       BENCH_SMALL_BYTES >> 10, (unsigned long long)b->options.pairs);
	fflush(stdout);
}

// --- The table ------------------------------------------------------------------------------------------------------

static void put_number(char *text, size_t cap, double value, int digits)
{
	if (isnan(value))
		snprintf(text, cap, "-");
	else
		snprintf(text, cap, "%.*f", digits, value);
}

// In the unit of the measure.
static void put_value(char *text, size_t cap, enum bench_measure measure, double value)
{
	if (measure == BENCH_RATIO)
		put_number(text, cap, value, 2);
	else if (measure == BENCH_EXTRA_MS)
		snprintf(text, cap, "%.1f ms", value);
	else if (measure == BENCH_SECONDS)
		snprintf(text, cap, "%.2f s", value);
	else if (measure == BENCH_TIMES)
		snprintf(text, cap, "%.2f times", value);
	else if (measure == BENCH_BYTES)
		snprintf(text, cap, "%.0f MiB", value / (1024 * 1024));
	else
		snprintf(text, cap, "%.0f", value);
}

static void put_time(char *text, size_t cap, const struct bench_result *r, double seconds)
{
	if (isnan(seconds))
		snprintf(text, cap, "-");
	else if (r->ops)
		snprintf(text, cap, "%.1f us", 1e6 * seconds / (double)r->ops);
	else if (seconds < 1)
		snprintf(text, cap, "%.1f ms", 1e3 * seconds);
	else
		snprintf(text, cap, "%.2f s", seconds);
}

static void put_target(char *text, size_t cap, const struct bench_figure *f)
{
	char value[32];

	put_value(value, sizeof(value), f->measure, f->target);
	if (f->measure == BENCH_RATIO && f->target == 0)
		snprintf(text, cap, "-");
	else
		snprintf(text, cap, "%s %s", f->measure == BENCH_RATIO ? ">=" : "<=", value);
}

static void put_verdict(char *text, size_t cap, const struct bench_result *r)
{
	bool judged = r->figure->target != 0 || r->figure->measure != BENCH_RATIO;

	snprintf(text, cap, "%s", !judged ? "" : r->met ? "met" : "UNMET");
}

enum { CELL = 64 };

static void add_row(struct ckpt_table *t, const struct bench_result *r)
{
	const struct bench_figure *f = r->figure;
	char value[CELL], target[CELL], verdict[CELL], native[CELL], cpu[CELL], mount[CELL], plain[CELL], pairs[CELL];
	const char *cells[] = {f->name, value, target, verdict, native, cpu, mount, plain, pairs, f->what};
	const char *why = r->skipped ? r->skipped : strerror(-r->error);
	const char *empty[] = {f->name, "-", "-", r->skipped ? "skipped" : "FAILED", "", "", "", "", "", why};

	if (r->skipped || r->error) {
		ckpt_table_row(t, empty);
		return;
	}
	put_value(value, CELL, f->measure, r->value);
	put_target(target, CELL, f);
	put_verdict(verdict, CELL, r);
	put_number(native, CELL, r->native_ratio, 2);
	put_number(cpu, CELL, r->cpu_ratio, 2);
	put_time(mount, CELL, r, r->wall_s);
	put_time(plain, CELL, r, r->plain_wall_s);
	snprintf(pairs, CELL, "%llu", (unsigned long long)r->pairs);
	ckpt_table_row(t, cells);
}

void bench_report_table(const struct bench_result *results, size_t count)
{
	static const char *const titles[] = {"FIGURE", "VALUE", "TARGET", "",     "NATIVE",
					     "CPU",    "MOUNT", "PLAIN",  "PAIRS"};
	struct ckpt_table *t = ckpt_table_new();

	for (size_t i = 0; i < ARRAY_LEN(titles); i++)
		ckpt_table_column(t, titles[i], i == 0 || i == 3 ? CKPT_LEFT : CKPT_RIGHT);
	ckpt_table_column(t, "WHAT", CKPT_LEFT);
	for (size_t i = 0; i < count; i++)
		add_row(t, &results[i]);
	ckpt_table_print(t);
}

// --- JSON -----------------------------------------------------------------------------------------------------------

static json_t *number(double value)
{
	return isnan(value) ? json_null() : json_real(value);
}

static json_t *to_json(const struct bench_result *r)
{
	static const char *const measures[] = {"ratio", "extra_ms", "seconds", "bytes", "errors", "times"};
	const struct bench_figure *f = r->figure;
	bool judged = f->target != 0 || f->measure == BENCH_ERRORS;
	json_t *o =
		json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", f->name, "what", f->what, "measure",
			  measures[f->measure], "value", number(r->value), "target", number(judged ? f->target : NAN),
			  "met", judged && !r->skipped ? json_boolean(r->met) : json_null());
	json_t *numbers =
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:s?, s:s?}", "ratio", number(r->ratio),
			  "native_ratio", number(r->native_ratio), "cpu_ratio", number(r->cpu_ratio), "wall_s",
			  number(r->wall_s), "plain_wall_s", number(r->plain_wall_s), "cpu_s", number(r->cpu_s),
			  "plain_cpu_s", number(r->plain_cpu_s), "pairs", (json_int_t)r->pairs, "ops",
			  (json_int_t)r->ops, "skipped", r->skipped, "error", r->error ? strerror(-r->error) : NULL);

	if (json_object_update(ckpt_need(o), ckpt_need(numbers)))
		ckpt_need(NULL);
	json_decref(numbers);
	return o;
}

void bench_report_json(const struct bench_result *results, size_t count)
{
	json_t *all = ckpt_need(json_array());

	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(all, to_json(&results[i])))
			ckpt_need(NULL);
	ckpt_output_json(all);
}
