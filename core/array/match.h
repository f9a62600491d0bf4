// A template, which is the arrays that a program wants, beside the arrays that a catalog has: which of them fit, and how.
//
// Shapes, by a rule for each wanted array (the first that holds is taken):
//
//	rule     source                                  same shape  rank + 1, rest the same  as many elements  smaller        else
//	STRICT   strict_shapes=True of eFormer           SAME        refused                  refused           refused        refused
//	RELAXED  strict_shapes=False of eFormer          SAME        FIRST: takes [0]         RESHAPED          KEPT           KEPT
//	PADDED   allow_shape_mismatch of Megatron-core   SAME        refused                  refused           PADDED, zeros  refused
//
// "Smaller" is the array of the catalog, of the same rank, in no dimension larger. KEPT: the program's own value stays. Under
// RELAXED a wanted array that the catalog lacks is KEPT, too.
//
// Names, as StrictHandling of Megatron-core has them. "Unexpected" are wanted arrays that the catalog lacks; "missing" are arrays of the
// catalog that nobody wants:
//
//	mode                   unexpected                     missing    message, result
//	ASSUME_OK_UNEXPECTED   left to the rule for shapes    not known  as that says
//	LOG_UNEXPECTED         ABSENT, listed                 not known  message
//	LOG_ALL                ABSENT, listed                 listed     message
//	RAISE_UNEXPECTED       ABSENT, listed                 not known  message, refused
//	RAISE_ALL              ABSENT, listed                 listed     message, refused
//	RETURN_UNEXPECTED      ABSENT, listed                 not known
//	RETURN_ALL             ABSENT, listed                 listed
//	IGNORE_ALL             ABSENT
//
// Names are judged before shapes. All that is refused for its shape, or for another reason, is in one message, a line each. Upstream:
// eformer/serialization/async_manager.py, megatron/core/dist_checkpointing/validation.py and strategies.
//
// Ownership: the caller's. Strings of a result are its own. Threads: any. Nothing blocks.
#pragma once

#include "core/array/names.h"

enum ckpt_match_rule {
	CKPT_MATCH_STRICT,
	CKPT_MATCH_RELAXED,
	CKPT_MATCH_PADDED,
	CKPT_MATCH_RULES,
};

enum ckpt_match_fit {
	CKPT_FIT_SAME,
	CKPT_FIT_FIRST,
	CKPT_FIT_RESHAPED,
	CKPT_FIT_PADDED,
	CKPT_FIT_KEPT,
	CKPT_FIT_ABSENT,
};

enum ckpt_match_mode {
	CKPT_NAMES_ASSUME_OK_UNEXPECTED,
	CKPT_NAMES_LOG_UNEXPECTED,
	CKPT_NAMES_LOG_ALL,
	CKPT_NAMES_RAISE_UNEXPECTED,
	CKPT_NAMES_RAISE_ALL,
	CKPT_NAMES_RETURN_UNEXPECTED,
	CKPT_NAMES_RETURN_ALL,
	CKPT_NAMES_IGNORE_ALL,
	CKPT_NAMES_MODES,
};

#define CKPT_MATCH_LINES_MAX 20 // of a message; it says how many more there are

struct ckpt_match_wanted {
	const char *name;      // NAME or TREE:NAME
	const char *dtype;     // as NumPy and ml_dtypes call it; NULL: the catalog's
	const uint64_t *shape; // NULL: the catalog's
	unsigned ndim;         // of shape, start and extent; not looked at without them
	enum ckpt_match_rule rule;
	const uint64_t *start, *extent;  // a box of the wanted array; NULL: all of it
	bool has_flat;                   // only a range of the box in C order:
	uint64_t flat_start, flat_count; // of 0 elements or more
};

struct ckpt_match_one {
	int rc; // 0; -ENOENT, -EEXIST: of the name; -ERANGE: of the shape, the box or the range; -EINVAL: the box has another rank; -ENOTSUP: no such elements, or no such cast
	size_t at; // the array of the catalog, unless fit is KEPT or ABSENT without one
	enum ckpt_match_fit fit;
	enum ckpt_dtype from, to;
};

// One wanted array. *ret_why, unless NULL, gets a malloc'ed line where rc is not 0. -ENOMEM; else 0, also for what does not fit.
int ckpt_match_one(const struct ckpt_catalog *c, const struct ckpt_names *names, const struct ckpt_match_wanted *wanted,
		   struct ckpt_match_one *ret_one, char **ret_why);

struct ckpt_match {
	struct ckpt_match_one *ones; // one for each wanted array
	int refused;                 // 0, or the first reason
	char *message;               // NULL: there is nothing to say
	char **missing, **unexpected;
	size_t missing_count, unexpected_count;
};

int ckpt_match(const struct ckpt_catalog *c, const struct ckpt_names *names, const struct ckpt_match_wanted *wanted,
	       size_t count, enum ckpt_match_mode mode, struct ckpt_match *ret_match); // 0, -ENOMEM
void ckpt_match_done(struct ckpt_match *m);
