#include "tests/datapath/samples.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>

#define THIRDS 3

static const struct {
	const char *name;
	uint64_t slack, percent; // of the first third, on top
	bool counts;             // for the verdict
} measures[MEASURES] = {
	// Each malloc arena keeps what it once had; which thread has which is chance. And the chunks that are cooled and read,
	// eight of them at once, come and go.
	[MEASURE_MEMORY] = {"memory, KiB", 32 << 10, 10, true},
	// Of the index no more than its size.
	[MEASURE_MAPPED] = {"mapped files, KiB", 6 << 10, 10, true},
	[MEASURE_DESCRIPTORS] = {"descriptors", 12, 0, true},
	[MEASURE_THREADS] = {"threads", 12, 0, true},
	// The kernel decides which inodes it knows: it forgets those of files that are gone, others when it needs memory.
	[MEASURE_INODES] = {"known inodes", 500, 10, false},
};

static uint64_t field_of(const char *path, const char *name)
{
	FILE *in = fopen(path, "re");
	unsigned long long value = 0;
	char line[256];

	ck_assert_ptr_nonnull(in);
	while (fgets(line, sizeof(line), in))
		if (!strncmp(line, name, strlen(name)))
			value = strtoull(line + strlen(name), NULL, 10);
	fclose(in);
	return value;
}

static uint64_t entries_of(const char *path)
{
	DIR *dir = opendir(path);
	uint64_t count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

static uint64_t known_inodes(const struct world *w)
{
	char path[PATH_MAX];
	json_t *status;
	uint64_t count;

	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/.ckptfs/status.json", w->mount), PATH_MAX);
	status = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(status);
	count = (uint64_t)json_integer_value(json_object_get(status, "known_inodes"));
	json_decref(status);
	return count;
}

void samples_take(struct samples *s, const struct world *w, const struct crew *crew)
{
	char path[64];
	struct sample *one;

	ck_assert_int_eq(ckpt_grow((void **)&s->all, &s->cap, s->count + 1, sizeof(*s->all)), 0);
	one = &s->all[s->count++];
	one->at_us = now_us();
	one->saves = crew->saves;
	memcpy(one->times, crew->times, sizeof(one->times));
	snprintf(path, sizeof(path), "/proc/%d/status", w->daemon);
	one->values[MEASURE_MEMORY] = field_of(path, "RssAnon:");
	one->values[MEASURE_MAPPED] = field_of(path, "RssFile:") + field_of(path, "RssShmem:");
	one->values[MEASURE_THREADS] = field_of(path, "Threads:");
	snprintf(path, sizeof(path), "/proc/%d/fd", w->daemon);
	one->values[MEASURE_DESCRIPTORS] = entries_of(path);
	one->values[MEASURE_INODES] = known_inodes(w);
}

static void print_row(const struct sample *since, const struct sample *to, uint64_t start_us)
{
	uint64_t times[LATENCIES][LATENCY_BUCKETS];

	for (size_t i = 0; i < LATENCIES; i++)
		for (size_t k = 0; k < LATENCY_BUCKETS; k++)
			times[i][k] = to->times[i][k] - since->times[i][k];
	printf("%6llu %8llu %8llu %5llu %5llu %8llu %7llu  %7.2f %7.2f  %7.2f %7.2f  %7.2f %7.2f\n",
	       (unsigned long long)(to->at_us - start_us) / 1000000, (unsigned long long)to->values[MEASURE_MEMORY],
	       (unsigned long long)to->values[MEASURE_MAPPED], (unsigned long long)to->values[MEASURE_DESCRIPTORS],
	       (unsigned long long)to->values[MEASURE_THREADS], (unsigned long long)to->values[MEASURE_INODES],
	       (unsigned long long)(to->saves - since->saves), latency_ms(times[LATENCY_COMMIT], 50),
	       latency_ms(times[LATENCY_COMMIT], 99), latency_ms(times[LATENCY_OPEN], 50),
	       latency_ms(times[LATENCY_OPEN], 99), latency_ms(times[LATENCY_CREATE], 50),
	       latency_ms(times[LATENCY_CREATE], 99));
}

void samples_print(const struct samples *s, size_t rows)
{
	size_t step = MAX(s->count / rows, (size_t)1);

	printf("  time   memory   mapped   fds  thr.   inodes   saves  commit ms p50/99   open ms p50/99  create ms "
	       "p50/99\n");
	for (size_t i = step; i < s->count; i += step)
		print_row(&s->all[i - step], &s->all[i], s->all[0].at_us);
	if (s->count > 1) {
		printf("all of it:\n");
		print_row(&s->all[0], &s->all[s->count - 1], s->all[0].at_us);
	}
}

static uint64_t least(const struct samples *s, enum measure m, size_t from, size_t to)
{
	uint64_t value = UINT64_MAX;

	for (size_t i = from; i < to; i++)
		value = MIN(value, s->all[i].values[m]);
	return value;
}

bool samples_are_steady(const struct samples *s)
{
	size_t from = s->count / 4, third = (s->count - from) / THIRDS;
	bool steady = true;

	ck_assert_uint_gt(third, 0);
	for (size_t m = 0; m < MEASURES; m++) {
		uint64_t lows[THIRDS], slack;
		bool grows;

		for (size_t i = 0; i < THIRDS; i++)
			lows[i] = least(s, (enum measure)m, from + i * third, from + (i + 1) * third);
		slack = measures[m].slack + lows[0] * measures[m].percent / 100;
		grows = lows[0] < lows[1] && lows[1] < lows[2] && lows[2] - lows[0] > slack;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
		grows = grows && m != MEASURE_MEMORY; // what was freed is kept for long, to find its use
#endif
		printf("%s: least of each third after the warm-up %llu, %llu, %llu; slack %llu: %s\n", measures[m].name,
		       (unsigned long long)lows[0], (unsigned long long)lows[1], (unsigned long long)lows[2],
		       (unsigned long long)slack,
		       !grows               ? "steady"
		       : measures[m].counts ? "GROWS"
					    : "grows, which is the kernel's affair");
		steady = steady && !(grows && measures[m].counts);
	}
	return steady;
}

void samples_done(struct samples *s)
{
	free(s->all);
}
