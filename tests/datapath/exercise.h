// One run of the exerciser: a file that is written, read, mapped, cut and moved by operations that a seed draws, and a
// shadow of it in memory that says what must be there. Files:
//
//   test_datapath  the program, its variants          places      where the file is, rounds, commits, remounts
//   operations     the calls, and what is drawn       direct      those with O_DIRECT and Linux AIO
//   exercise       the shadow, comparing, complaining readers     16 readers of a committed step
//   soak           mixed work for long                samples     what the daemon takes meanwhile, and the verdict
//
// All that is drawn comes from the seed, so that a run can be had again. A difference, or a call that fails, prints the
// seed, the last operations, what differs and the command that does just that again, and ends the test.
#pragma once

#include "tests/support/world.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define PAGE 4096u

enum place {
	PLACE_STAGED,   // in a staged step
	PLACE_PLAIN,    // in a plain folder, which becomes a step now and then
	PLACE_LINK,     // a hard link of a committed file, a copy from its first change on
	PLACE_REOPENED, // in a committed step, which its first change reopens
	PLACE_AMEND,    // new in a committed step: the daemon serves it until it is closed
	PLACES,
};

// A file and what must be in it.
struct subject {
	char path[PATH_MAX], other[PATH_MAX]; // its name, and the one that it may be renamed to
	int fd;                               // -1: not open
	uint8_t *shadow;                      // FILE_BYTES_MAX, page-aligned, zero from size on
	size_t size;
	uint8_t *map;         // of fd, of all it may grow to; NULL: none
	bool changed;         // by a call that must move mtime, since the last look at it
	struct timespec then; // before the first of those
	struct timespec mtime;
};

// What was committed, or is read by who had it open before it was changed.
struct record {
	char path[PATH_MAX];
	uint8_t *bytes;
	size_t size;
	int fd; // -1; open for reading since then
	uint8_t *map;
};

#define RECORDS 8
#define NOTES 24
#define NOTE_BYTES 120

struct exercise {
	uint64_t seed, random;
	unsigned long ops, op; // to be done; number of this one
	enum place place;
	bool plain; // without ckptfs, on the disk below
	struct world world;
	const char *top; // the mount, or the disk

	struct subject file, pair; // what is copied from one to the other
	size_t bytes_max;          // that they may have in this round
	bool read_only;            // the file was not changed yet in this round, and is open for reading
	bool published;            // PLACE_AMEND: in this round already
	uint8_t *got;              // FILE_BYTES_MAX, page-aligned
	int pipe[2];
	unsigned long aio;    // context; 0: none yet
	bool punches, zeroes; // what the disk below can

	unsigned round, steps;
	struct record records[RECORDS]; // of this and former rounds; bytes NULL: none
	struct record kept;
	char source[PATH_MAX]; // PLACE_LINK: the committed file

	char notes[NOTES][NOTE_BYTES]; // of the last operations, in a ring
	unsigned noted;
	uint64_t moved; // bytes
	unsigned commits, remounts;
	struct timespec started;
};

const char *place_name(enum place place);
const char *mode_name(const struct exercise *x);

// --- Drawing ----------------------------------------------------------------------------------------------------------

uint64_t draw(struct exercise *x);
size_t pick(struct exercise *x, size_t below);                   // below 0: 0
size_t pick_some(struct exercise *x, size_t most, size_t limit); // from 1 to most, but not above limit
// A range that begins before limit and ends at most there, of at least one byte when limit is not 0.
void draw_range(struct exercise *x, size_t limit, size_t *ret_at, size_t *ret_len);
// New bytes for the shadow; the file's size grows with them.
void fill(struct exercise *x, struct subject *s, size_t at, size_t len);

// --- Complaining ------------------------------------------------------------------------------------------------------

// What is done now.
void note(struct exercise *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Ends the test.
void violated(struct exercise *x, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
// errno when not.
void must(struct exercise *x, bool ok, const char *what);
// got[at..at+len) is what the bytes are.
void must_equal(struct exercise *x, const uint8_t *bytes, const uint8_t *got, size_t at, size_t len, const char *what);
// For a store into a mapping that has no page (SIGBUS).
void exercise_watch_signals(struct exercise *x);

// --- The file ---------------------------------------------------------------------------------------------------------

void subject_init(struct subject *s);
void subject_done(struct subject *s);
void subject_open(struct exercise *x, struct subject *s, int flags);
void subject_close(struct exercise *x, struct subject *s);
void subject_resize(struct subject *s, size_t size);
void subject_unmap(struct exercise *x, struct subject *s);
// Before a call that moves the file's mtime.
void subject_changes(struct subject *s);
// By its name: size, every byte, read in one of several ways.
void subject_check(struct exercise *x, const struct subject *s, const char *when);
void bytes_check(struct exercise *x, const char *path, const uint8_t *bytes, size_t size, const char *when);

// --- Operations -------------------------------------------------------------------------------------------------------

void operate(struct exercise *x); // one

void direct_read(struct exercise *x);
void direct_write(struct exercise *x);
void aio_read(struct exercise *x);
void aio_write(struct exercise *x);
// Opens the file with O_DIRECT, or makes the one that is open so where a second one may not be.
int direct_open(struct exercise *x, int flags);
void direct_close(struct exercise *x, int fd);

// --- Places -----------------------------------------------------------------------------------------------------------

void round_begin(struct exercise *x);
void round_end(struct exercise *x);
void exercise_run(struct exercise *x, enum place place, int mode, uint64_t seed, unsigned long ops);
