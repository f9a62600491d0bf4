// What the daemon takes while it works, looked at every few seconds, and whether that grows without end.
//
// The rule: the first quarter is for warming up; of each third of the rest counts the least value, because work that is
// under way only ever adds to what is always there. Something grows steadily when each third has more than the one before,
// and the last more than the first by a slack: what allocators and caches still move about after the warm-up.
#pragma once

#include "tests/datapath/crew.h"

#include <stdbool.h>
#include <stddef.h>

enum measure {
	MEASURE_MEMORY, // KiB of its own: RSS without what is mapped from files
	MEASURE_MAPPED, // KiB of files in RSS: the program, and of the index as much as was looked at, which the kernel can have back
	MEASURE_DESCRIPTORS,
	MEASURE_THREADS,
	MEASURE_INODES, // known_inodes of status.json
	MEASURES,
};

struct sample {
	uint64_t at_us, saves;
	uint64_t values[MEASURES];
	uint64_t times[LATENCIES][LATENCY_BUCKETS]; // since the beginning
};

struct samples {
	struct sample *all;
	size_t count, cap;
};

void samples_take(struct samples *s, const struct world *w, const struct crew *crew); // ends the test on failure
// About rows lines on stdout, each of the time since the one before.
void samples_print(const struct samples *s, size_t rows);
// Prints what each measure did. False: one grows.
bool samples_are_steady(const struct samples *s);
void samples_done(struct samples *s);
