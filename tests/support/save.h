// A save that needs no FUSE: steps as a client of the mount leaves them, written through ckpt_sys into the session's
// directory, committed, and compared byte for byte with what was written. The bodies of the crash, power-loss and fault
// loops, and a short way to a committed step for unit tests.
//
// Steps are numbered; ckpt_save_steps[] says what is special about each. All take a store that is open for writing,
// ckpt_save_check_* any store. What must not fail ends the test.
#pragma once

#include "tests/support/suite.h"

#include "core/save/commit.h"
#include "core/step/staging.h"
#include "core/step/store.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_fault;

struct ckpt_save_step {
	const char *name;
	const char *temp;      // staged under this name, renamed by the commit; NULL: staged as it is called
	const char *folder;    // of the tree, NULL: the root
	const char *metadata;  // canonical JSON, or NULL
	const char *metadata2; // put as version 2, or NULL
	unsigned files;        // so many small files more: above 64 a commit syncs all at once
	unsigned links;        // so many symlinks of 4000 bytes more: above 16 the manifest is an object of its own
	bool synced;           // the client fsyncs each file and says so
	bool leftover;         // a fork still holds model.bin open for writing, and writes when the commit is over
};

#define CKPT_SAVE_STEPS 5
extern const struct ckpt_save_step ckpt_save_steps[CKPT_SAVE_STEPS];
#define CKPT_SAVE_MANY 1  // the step with many files
#define CKPT_SAVE_LARGE 2 // the step with a large manifest, in a folder

// Who holds model.bin of a leftover step.
struct ckpt_save_holder {
	struct ckpt_writer writer;
	int fd;
};

int ckpt_save_begin(struct ckpt_store *s, unsigned i, struct ckpt_step **ret_step);
void ckpt_save_write(struct ckpt_step *step, unsigned i, struct ckpt_save_holder *holder); // holder: of leftover steps
int ckpt_save_commit(struct ckpt_step *step, unsigned i);
int ckpt_save_metadata(struct ckpt_step *step, unsigned i);
void ckpt_save_release(struct ckpt_save_holder *holder);
// All of these but the second version. Ends with a reference to the committed step.
struct ckpt_step *ckpt_save_one(struct ckpt_store *s, unsigned i);

// --- A whole run ------------------------------------------------------------------------------------------------------

enum ckpt_save_event {
	CKPT_SAVE_BEGUN,       // an fsync in the session is acknowledged
	CKPT_SAVE_COMMITS,     // the commit was asked for
	CKPT_SAVE_COMMITTED,   // and acknowledged
	CKPT_SAVE_METADATA,    // version 2 was asked for
	CKPT_SAVE_METADATA_OK, // and acknowledged
	CKPT_SAVE_EVENTS,
};

// When each event was: what clock() said, plus 1; 0: it did not happen. May lie in memory that is shared with a child.
struct ckpt_save_log {
	uint64_t at[CKPT_SAVE_STEPS][CKPT_SAVE_EVENTS];
};

// Opens the store in dir, saves all steps, closes it.
void ckpt_save_run(const char *dir, struct ckpt_save_log *log, uint64_t (*clock)(void *arg), void *arg);
// What must hold of a store in which that run was cut at this time of the clock (UINT64_MAX: at its last event), by the
// names of the invariants: I1 I2 I3 (whole, acknowledged is listed, nothing else is), I10 (opens), and unfinished
// sessions are there. thorough: then I4, I9 and that an unfinished step can be saved anew.
void ckpt_save_check(const char *dir, const struct ckpt_save_log *log, uint64_t point, bool thorough);

// --- Parts of the check -----------------------------------------------------------------------------------------------

// The committed step number i, with a reference, or NULL.
struct ckpt_step *ckpt_save_find(struct ckpt_store *s, unsigned i);
// I1: every entry, attribute and byte, and nothing more.
void ckpt_save_check_step(struct ckpt_step *step, unsigned i);
// The same but for what its record says: of a step saved under another name, or in its third version.
void ckpt_save_check_files(struct ckpt_step *step, unsigned i);
// Every committed version with all that a listing says of it, one line each; malloc'ed.
char *ckpt_save_listing(struct ckpt_store *s);
// The same of a store that is opened for reading for it.
char *ckpt_save_listing_at(const char *dir);
// How many steps are in this state.
size_t ckpt_save_count(struct ckpt_store *s, enum ckpt_step_state state);
// And how many are unfinished, staged or left over, and not being committed.
size_t ckpt_save_unfinished_count(struct ckpt_store *s);
// The one that is left over, with a reference; the one that is unfinished; and the one that is staged, left over from now on.
struct ckpt_step *ckpt_save_left(struct ckpt_store *s);
struct ckpt_step *ckpt_save_unfinished(struct ckpt_store *s);
struct ckpt_step *ckpt_save_set_aside(struct ckpt_store *s);
// How many lines of the error log hold this text.
unsigned ckpt_save_errors(struct ckpt_store *s, const char *text);
// Until no thread of a commit is left, so that ckpt_sys may be changed.
void ckpt_save_settle(struct ckpt_store *s);
void ckpt_save_settle_all(struct ckpt_store *s); // nor one that empties the trash
// Lays the fault layer over the objects of the store, once no thread of those two kinds uses them. Of two the later one counts.
void ckpt_save_fault(struct ckpt_store *s, struct ckpt_fault *fault);
// A new store in a new directory. From then on the machine seems to have this much to write back: that decides between
// one syncfs and many fsyncs, and must not depend on who else uses it.
extern uint64_t ckpt_save_dirty_bytes;
void ckpt_save_init(char *ret_dir);
struct ckpt_store *ckpt_save_open(const char *dir);

// Changes a byte of the record of the step's version, where the log has it, or mends it. The digest is made right where at is in the header.
void ckpt_save_spoil_record(struct ckpt_step *step, size_t at, uint8_t with);
// A step that is in the log, and that the table of steps does not know.
void ckpt_save_plant(struct ckpt_store *s, const char *name);
