// What may be seen of each step, file step and tracker of a trace: the states that the trace itself declared, on a plain
// filesystem, by complete() and gone() of trace.h. Written to a file by the ranks, read by the test before the real run.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define EXPECT_MAX 16        // things
#define EXPECT_STATES_MAX 16 // of one
#define EXPECT_PATH_MAX 128

struct expected {
	char path[EXPECT_PATH_MAX];
	size_t count;
	char *states[EXPECT_STATES_MAX]; // texts of tree.h; NULL: it is not there any more
};

struct expect {
	struct expected things[EXPECT_MAX];
	size_t count;
	char *last; // what there is in the end, plain files and all
};

// A rank's side: adds a state, text NULL: not there. Ends the process on failure.
void expect_write(const char *file, const char *path, const char *text);
// The test's side. A file that is not there is one without states.
void expect_read(struct expect *e, const char *file);
void expect_done(struct expect *e);
// -1: nothing was declared under this path.
int expect_find(const struct expect *e, const char *path);
// True when the text is one of its states.
bool expect_fits(const struct expected *x, const char *text);
