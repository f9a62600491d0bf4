// Processes that work on one mount at once, what they know of the bytes there without keeping them, and what they share
// with the test.
//
// A file's bytes follow from a key, so any range of it can be compared by any process. The first process that finds
// something wrong says so and ends; the test ends with it.
#pragma once

#include "tests/support/world.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CREW_MAX 24
#define CREW_BUFFER_BYTES ((size_t)1 << 20)
#define LATENCY_BUCKETS 256

enum latency {
	LATENCY_CREATE,
	LATENCY_OPEN, // of a committed file, for reading
	LATENCY_COMMIT,
	LATENCIES,
};

struct crew {
	// Written by the processes, atomically.
	uint64_t reads, bytes, saves, amends, reopened, deletions, walks;
	uint64_t times[LATENCIES][LATENCY_BUCKETS]; // how many took so long
	bool stop, failed;

	pid_t pids[CREW_MAX]; // of the test; 0: it has ended
	unsigned count;
};

// One of them; its memory is its own.
struct worker {
	struct crew *crew;
	const char *mount;
	unsigned number;
	uint64_t random;
	uint8_t *got, *want; // CREW_BUFFER_BYTES, page-aligned
};

struct crew *crew_new(void);
// Runs work in a new process until it returns.
void crew_start(struct crew *crew, const struct world *w, void (*work)(struct worker *me));
// False: a process failed.
bool crew_goes_on(struct crew *crew);
// Tells all to stop, and waits for them. Ends the test when one failed.
void crew_stop(struct crew *crew, const struct world *w);

bool is_stopped(const struct worker *me);
size_t worker_pick(struct worker *me, size_t below);
void worker_fail(struct worker *me, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
void worker_must(struct worker *me, bool ok, const char *what, const char *path);

uint64_t key_of(unsigned worker, unsigned step, const char *name);
void bytes_of(uint64_t key, size_t at, size_t len, uint8_t *ret_bytes);
// What was read of a file at this place is right.
void worker_compare(struct worker *me, const char *path, uint64_t key, size_t at, size_t len, const uint8_t *got);
// The whole file: made, or read and compared. Both take its time into account.
void worker_write(struct worker *me, const char *path, uint64_t key, size_t size);
void worker_check(struct worker *me, const char *path, uint64_t key, size_t size);
// Closes the marker in the folder.
void worker_commit(struct worker *me, const char *folder);

uint64_t now_us(void);
void latency_add(struct crew *crew, enum latency what, uint64_t us);
// The time that so many of a hundred did not take longer than; times of LATENCY_BUCKETS.
double latency_ms(const uint64_t *times, double percent);
