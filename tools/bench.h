// The speed figures: the same work on a plain directory and on a mount whose store lies beside it, in alternating pairs.
//
// What is where: bench.c (the verb: options, which figures, the pairs), bench_figures.c (the table of figures),
// bench_work.c (what is timed: write, commit, read, map, walk), bench_place.c (directories, mount, caches),
// bench_clock.c (time, CPU, memory, signals), bench_store.c (large stores, filled by core without a mount), bench_seal.c,
// bench_cold.c, bench_derive.c, bench_index.c, bench_report.c (table and JSON).
//
// A pair is three runs of a figure: plain, mount, and plain again, which says how much this machine's numbers are worth.
// All functions: 0 or -errno, -EINTR once a signal has asked for the end; what failed is said once, by the verb.
// Threads: the verb's only; bench_work.c has its own inside of one call.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_BULK_FILES 8u // files that share --work-bytes
#define BENCH_SMALL_BYTES (16u << 10)
#define BENCH_SMALL_DIRS 100u
#define BENCH_COMMIT_FILES 1000u
#define BENCH_BIG_STEP_FILES 1000u // in each step of the largest store
#define BENCH_READERS 16u
#define BENCH_CALL_BYTES (1u << 20) // of one read or write
#define BENCH_BUFFER_BYTES (8u << 20)

enum bench_side_name { BENCH_PLAIN, BENCH_MOUNT, BENCH_AGAIN, BENCH_SIDES };

struct ckpt_store;

struct bench_side {
	enum bench_side_name name;
	bool mounted;     // commits by a marker; false under --native
	char *own;        // its directory
	const char *root; // where it works: own, or the plain side's where large files are read
	unsigned made;    // steps made since the last reset
	bool large;       // they are few large files, to be removed at once
};

// What lies in the directories before a figure runs. Made when the next figure needs another one.
enum bench_fixture {
	BENCH_NOTHING, // not even a mount
	BENCH_EMPTY,
	BENCH_BULK,       // step 1 with BENCH_BULK_FILES large files
	BENCH_SMALL,      // step 1 with small files
	BENCH_PLAIN_BULK, // the same in a plain folder
	BENCH_PLAIN_SMALL,
	BENCH_STEPS, // many steps of one file
	BENCH_BIG,   // many steps of BENCH_BIG_STEP_FILES files; store only
};

struct bench_options {
	const char *dir, *mount_options, *only;
	bool quick, native;
	uint64_t pairs, work_bytes, files; // 0: the default
};

struct bench {
	struct bench_options options;
	char *work, *store, *mountpoint; // work holds all that is ours
	struct bench_side side[BENCH_SIDES];
	enum bench_fixture fixture;
	bool mounted;
	bool seals;            // the mount does so, behind
	pid_t daemon;          // 0: not mounted, or not found
	bool hopeless;         // the mount failed, and has said why
	bool root;             // caches can be dropped
	unsigned gone_count;   // trees put away to be removed later
	unsigned char *buffer; // BENCH_BUFFER_BYTES of noise to write
};

enum bench_measure {
	BENCH_RATIO,    // plain time / mount time, by wall clock
	BENCH_EXTRA_MS, // 99th percentile of mount time - plain time
	BENCH_SECONDS,  // the rest are gauged on the mount alone
	BENCH_BYTES,
	BENCH_ERRORS,
	BENCH_TIMES, // what it is compared with
};

struct bench_figure {
	const char *name, *what; // what: the sentence of the table
	enum bench_fixture fixture;
	enum bench_measure measure;
	double target;       // 0: none; at least for a ratio, at most for the others
	bool cpu_too;        // the target holds for the CPU ratio as well
	bool cold;           // needs root, and takes no first run to warm up
	bool per_op;         // the run is one operation on each of the small files
	unsigned threads;    // that write
	uint64_t file_bytes; // of a small file
	bool sync;           // each, by who writes it
	bool seals;          // the mount does so, behind; for the others it does not
	// Once for each side, before any is warmed up; may be NULL.
	int (*begin)(struct bench *b, const struct bench_figure *f, struct bench_side *s);
	int (*prepare)(struct bench *b, const struct bench_figure *f, struct bench_side *s); // may be NULL
	int (*run)(struct bench *b, const struct bench_figure *f, struct bench_side *s);     // timed
	int (*after)(struct bench *b, const struct bench_figure *f, struct bench_side *s);   // may be NULL
	int (*gauge)(struct bench *b, double *ret_value); // instead of the four above
};
extern const struct bench_figure bench_figures[];
extern const size_t bench_figure_count;

int bench_fixture_make(struct bench *b, enum bench_fixture fixture);

// What a figure came to. A number that was not measured is NAN.
struct bench_result {
	const struct bench_figure *figure;
	double value; // in the unit of the measure; ratio for BENCH_RATIO
	double ratio, native_ratio, cpu_ratio, wall_s, plain_wall_s, cpu_s, plain_cpu_s;
	uint64_t pairs;
	uint64_t ops;        // operations in one run, 0: not counted
	const char *skipped; // why it was not measured
	int error;           // -errno: it failed, and the rest means nothing
	bool met;            // true where there is no target
};

// --- bench_place.c --------------------------------------------------------------------------------------------------

int bench_place_open(struct bench *b);             // makes the directories; b->options is set
void bench_place_close(struct bench *b);           // unmounts and removes everything; does what it can
int bench_mount(struct bench *b, unsigned nofile); // the store as it is, or a new one; nofile 0: no limit of ours
int bench_unmount(struct bench *b);
int bench_remount(struct bench *b);
int bench_reset(struct bench *b, struct bench_side *s); // empty, with nothing left to write
int bench_drop_caches(struct bench *b);                 // root only, else -EPERM
int bench_drop_names(struct bench *b);                  // inodes and directory entries only
int bench_sync(struct bench *b);                        // all of the disk below DIR
int bench_remove_tree(const char *path);                // what is absent is no error
// Kept in *ret_path, malloc'ed. NULL on failure.
__attribute__((format(printf, 1, 2))) char *bench_path(const char *format, ...);

// --- bench_clock.c --------------------------------------------------------------------------------------------------

struct bench_time {
	double wall_s, cpu_s; // cpu: this process, the daemon, and the kernel's threads
};
void bench_clock_start(struct bench *b, struct bench_time *ret_start);
void bench_clock_stop(struct bench *b, const struct bench_time *start, struct bench_time *ret_elapsed);
void bench_settle(struct bench *b);           // waits until the daemon is idle, unless it seals
double bench_rss(struct bench *b, bool peak); // of the daemon, bytes; NAN
void bench_rss_reset_peak(struct bench *b);

double bench_now_s(void);
double bench_median(double *values, size_t count); // at least one; they are sorted

void bench_signals_catch(void);
bool bench_stopped(void);
int bench_stop_signal(void); // 0: none came

// --- bench_work.c ---------------------------------------------------------------------------------------------------

// A step is written into where bench_stage_path says, and ends with bench_commit: a marker on the mount; on a plain
// directory fsync of every directory, rename to its name, fsync of the parent. Files are fsynced as they are written
// where sync says so; the mount's commit does it.
char *bench_stage_path(const struct bench_side *s, unsigned step);
int bench_commit(const struct bench_side *s, unsigned step);
int bench_commit_syncfs(const struct bench_side *s, unsigned step); // the plain way with one syncfs for all
int bench_write_file(struct bench *b, int dirfd, const char *name, uint64_t bytes, bool sync);
int bench_write_bulk(struct bench *b, const char *dir, const char *suffix, unsigned threads,
		     bool sync); // of their names
int bench_write_small(struct bench *b, const char *dir, uint64_t files, uint64_t file_bytes, bool sync);
int bench_read_bulk(struct bench *b, const char *dir, bool map);
int bench_walk(const char *dir, bool deep, uint64_t *ret_entries); // lists and stats what is in it, or all below
int bench_read_all(const char *dir);
int bench_read_file(int dirfd, const char *path); // in calls of 128 KiB; -EIO when its size is another

// --- bench_store.c --------------------------------------------------------------------------------------------------

// Fills b->store, not mounted, through core: steps of files_each files, with one syncfs at the end instead of the
// syncs of every commit. large: the first BENCH_READERS steps get a file of that many bytes.
int bench_store_fill(struct bench *b, uint64_t steps, uint64_t files_each, uint64_t file_bytes, uint64_t large);
// What opens a store does it in a process of its own, since LMDB wants no fork after it. Of arg only shared memory comes back.
int bench_in_child(struct bench *b, int (*job)(struct bench *b, void *arg), void *arg);
int bench_ask_child(struct bench *b, int (*job)(struct bench *b, void *ret_value), double *ret_value); // a double
// b->store anew, open in a process that ends with it: nothing is synced any more.
int bench_store_new(struct bench *b, struct ckpt_store **ret_store);
int bench_gauge_mount_cold(struct bench *b, double *ret_value);
int bench_gauge_mount_warm(struct bench *b, double *ret_value);
int bench_gauge_memory_idle(struct bench *b, double *ret_value);
int bench_gauge_memory_load(struct bench *b, double *ret_value);
int bench_gauge_inodes(struct bench *b, double *ret_value);

// --- bench_seal.c ---------------------------------------------------------------------------------------------------

int bench_gauge_seal(struct bench *b, double *ret_value); // until a step is sealed, over what it took to save it

// --- bench_cold.c ---------------------------------------------------------------------------------------------------

// The CPU time of reading a cold step through the mount, over that of SHA-256 and decoding in one process.
int bench_gauge_cold(struct bench *b, double *ret_value);

// --- bench_derive.c -------------------------------------------------------------------------------------------------

int bench_gauge_derive(
	struct bench *b,
	double *ret_value); // bytes of the disk that the links of a step take, committed; and all else meanwhile

// --- bench_index.c --------------------------------------------------------------------------------------------------

int bench_gauge_index(struct bench *b, double *ret_value); // seconds to make it anew, of 100 chunks for each of --files
int bench_gauge_lookup(struct bench *b, double *ret_value); // of a chunk in that, over decoding one

// --- bench_report.c -------------------------------------------------------------------------------------------------

void bench_report_head(const struct bench *b);
void bench_report_table(const struct bench_result *results, size_t count);
void bench_report_json(const struct bench_result *results, size_t count);
