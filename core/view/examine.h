// The findings in the arrays of a step (core/array/findings.h), next to the step before, in words that its metadata keep:
//
//	{"arrays": 12, "counts": {"nan": 1}, "first": ["nan model.safetensors:w: 1 of 3000 elements are NaN"], "healthy": false, "looked": "elements"}
//
// looked: "headers", or "elements" where these were read, too; of some arrays they were not: "not_read": 4, where there are some. first: CKPT_EXAMINED_MAX at most, in CKPT_EXAMINED_BYTES_MAX together, trouble first.
//
// Arrays are read up to some times the bytes of the step's files: a few bytes may be those of many arrays.
// An array whose chunks are those of the step before is not read there: their ids say so, where both are sealed.
// The catalog gets the digest of each array that was read (core/array/array_digest.h), and of those that chunks of the seal are all of.
// The arrays of a step before that has digests are not read.
// Nor are elements that an older version of the step has, in the same bytes (examine_known.h).
// Ownership: the caller's. Threads: any; the calling thread needs CKPT_STEP_ARRAYS_STACK bytes of stack, as formats are read in it. Blocks on the disk or the
// store.
#pragma once

#include "core/step/step.h"

#define CKPT_EXAMINED_MAX 16
#define CKPT_EXAMINED_BYTES_MAX 2048

// The committed step before this one in its folder, by its number where both have one, else by when they were committed; a reference. NULL: it is the first,
// or there is no memory.
struct ckpt_step *ckpt_step_before(struct ckpt_step *step);

struct ckpt_examine {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_step *before; // NULL, as before_m: nothing is compared
	struct ckpt_manifest *before_m;
	bool elements;
	bool (*go_on)(
		void *arg,
		uint64_t
			bytes); // after each part of the elements, and now and then while headers are read; false: -EINTR. NULL: on and on
	void *arg;
};
struct ckpt_examined {
	char *json;  // as above; NULL: there are no arrays, and nothing is wrong
	char *worst; // the first trouble, in words; NULL: it is healthy
	uint64_t troubles;
	void *catalog; // encoded, for the manifest; NULL: there are no arrays, the manifest has it, or it is too large to be kept
	size_t catalog_len;
};
// 0; -EINTR; -ENOMEM; what reading files says. Arrays of the step before that cannot be read are not compared.
int ckpt_examine(const struct ckpt_examine *how, struct ckpt_examined *ret);
void ckpt_examined_done(struct ckpt_examined *e);
