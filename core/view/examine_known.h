// The elements of a version's arrays, by the findings in an older version of its step: they hold where both have the same arrays in the same
// bytes. So nobody reads a terabyte of arrays again for a line of text beside them. Of arrays that were as in the step before: that is the one that was
// before it when the older version was looked at.
//
// Ownership: the caller's. Threads: any. Blocks on the disk or the store.
#pragma once

#include "core/array/findings.h"
#include "core/base/json.h"
#include "core/step/step.h"
#include "core/view/step_arrays.h"

struct ckpt_examine_known {
	json_t *findings; // as of examine.h, of elements that were all read
};

// now: the arrays of m, from its files. They get the digests that the older version's arrays have.
// 0; -ENOENT: nothing is known; -EINTR; -ENOMEM.
int ckpt_examine_known_find(struct ckpt_step *step, struct ckpt_manifest *m, struct ckpt_step_arrays *now,
			    struct ckpt_examine_known *ret_known);
void ckpt_examine_known_done(struct ckpt_examine_known *k); // {0} is fine

// How many arrays have such a finding; 0 of kinds that headers tell.
uint64_t ckpt_examine_known_count(const struct ckpt_examine_known *k, enum ckpt_array_finding_kind kind);
// The i-th finding in words, of elements and of the kinds that are trouble, or of the others. NULL: there are not so many.
const char *ckpt_examine_known_words(const struct ckpt_examine_known *k, bool troubles, size_t i);
