// Findings: trouble in the arrays of a checkpoint, from its catalog alone, from its elements, and next to the checkpoint before.
//
//	ckpt_findings_of_headers()   what files lack or break, arrays that no reader knows, elements in no file or in several
//	ckpt_findings_since()        another shape or type than before, arrays and ranks that are not there any more
//	ckpt_findings_of_elements()  NaN, infinities, zeros alone, the same bytes as before
//
// A GAP or a NaN is trouble; most other kinds are notes, for some run they are as they should be: masks have infinities, frozen
// layers do not change, a run goes on with fewer ranks.
//
// The step before has the same trees and names. A tree that it has not is looked for with its own number in the place of this step's
// ("global_step100/...").
//
// Ownership: the caller's. Threads: one for one struct ckpt_findings. Memory: CKPT_FINDINGS_MAX are kept, the others are counted; 2 MiB
// beside what gather.h says. Blocks as the files do.
#pragma once

#include "core/array/catalog.h"

#define CKPT_FINDINGS_MAX 10000

enum ckpt_array_finding_kind {
	CKPT_FINDING_BROKEN,     // a file breaks a rule of its format
	CKPT_FINDING_MISSING,    // an index names an array that is in no file
	CKPT_FINDING_EXTRA,      // a file has an array that its index does not name
	CKPT_FINDING_GAP,        // elements are in no file
	CKPT_FINDING_DOUBLED,    // elements are in several places
	CKPT_FINDING_UNREADABLE, // an array whose elements no reader knows
	CKPT_FINDING_DAMAGED,    // its elements cannot be read
	CKPT_FINDING_NAN,
	CKPT_FINDING_INF,
	CKPT_FINDING_ZERO, // nothing but zeros
	CKPT_FINDING_SAME, // as in the step before, where others have changed
	CKPT_FINDING_SHAPE,
	CKPT_FINDING_DTYPE,
	CKPT_FINDING_GONE, // the step before has it
	CKPT_FINDING_RANKS,
	CKPT_FINDING_KINDS,
};
const char *ckpt_array_finding_word(enum ckpt_array_finding_kind kind); // "gap"
bool ckpt_array_finding_is_trouble(enum ckpt_array_finding_kind kind);

struct ckpt_array_finding {
	enum ckpt_array_finding_kind kind;
	char *file;        // that it is about; NULL: an array
	char *tree, *name; // NULL: a file
	char *detail;      // "12 of 4096 elements are in no file"
};

// {0} is the empty one.
struct ckpt_findings {
	struct ckpt_array_finding *at;
	size_t count, cap;
	uint64_t counts[CKPT_FINDING_KINDS]; // of all, also of those that are not kept
};
void ckpt_findings_done(struct ckpt_findings *f);
bool ckpt_findings_healthy(const struct ckpt_findings *f); // none is trouble

// A checkpoint.
struct ckpt_findings_side {
	const struct ckpt_catalog *catalog; // ended
	const struct ckpt_catalog_files *files;
	const char *path; // its files are those below; "": all
	int64_t number;   // -1: it has none
};

int ckpt_findings_of_headers(struct ckpt_findings *f,
			     const struct ckpt_findings_side *now); // 0, -ENOMEM, -EINTR, -errno
int ckpt_findings_since(struct ckpt_findings *f, const struct ckpt_findings_side *now,
			const struct ckpt_findings_side *before); // the same

enum ckpt_findings_known {
	CKPT_FINDINGS_NOT_KNOWN,
	CKPT_FINDINGS_SAME,
	CKPT_FINDINGS_CHANGED,
};

struct ckpt_findings_reading {
	// True: an array of now has the bytes of one of before, of the same shape and type, by what is known of both: then the latter is not read.
	// NULL: nothing is known.
	enum ckpt_findings_known (*same)(void *arg, size_t now, size_t before);
	void *same_arg;
	// The digests of arrays (array_digest.h). Where the one of before has its own, it is not read either. NULL: none are made.
	void (*take_digest)(void *arg, size_t now,
			    const uint8_t digest[CKPT_ARRAY_DIGEST_LEN]); // of each that was read to its end
	bool (*know_digest)(void *arg, size_t now,
			    uint8_t ret_digest[CKPT_ARRAY_DIGEST_LEN]); // without its elements; false: not known
	void *digest_arg;
	// After each part of the elements: bytes since the last call. False: that is enough, -EINTR. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
	uint64_t bytes_max; // of all arrays that are read, decoded; 0: any
	uint64_t arrays,
		not_read; // counts arrays that were read; those that are not, as most of their elements are not stored, or beyond bytes_max
};
// before: NULL where there is none. What cannot be read is a finding. 0, -ENOMEM, -EINTR.
int ckpt_findings_of_elements(struct ckpt_findings *f, const struct ckpt_findings_side *now,
			      const struct ckpt_findings_side *before, struct ckpt_findings_reading *how);

// A few bytes may say that an array has 2^60 elements, all of them the fill or the same one: to read these would not end.
bool ckpt_findings_may_read(const struct ckpt_catalog *c, size_t array);
const char *ckpt_findings_why(int error); // of gather.h, in words
// "global_step100" for "global_step200": the tree with each run of digits that is the number `from` replaced by `to`, unless one of
// them is -1; malloc'ed. NULL: no memory.
char *ckpt_findings_tree(const char *tree, int64_t from, int64_t to);
