// One opcode of a pickle with its argument, between pickle.c and pickle_ops.c.
#pragma once

#include "core/array/cursor.h"

#define CKPT_PICKLE_STOP '.'
#define CKPT_PICKLE_PROTO 0x80
#define CKPT_PICKLE_LINE_MAX 4096

// The argument that follows an opcode.
enum ckpt_pickle_argument {
	CKPT_PICKLE_UNKNOWN, // it is no opcode
	CKPT_PICKLE_NOTHING,
	CKPT_PICKLE_BYTES_1, // so many bytes
	CKPT_PICKLE_BYTES_2,
	CKPT_PICKLE_BYTES_4,
	CKPT_PICKLE_BYTES_8,
	CKPT_PICKLE_LINE, // text to the end of the line
	CKPT_PICKLE_LINES_2,
	CKPT_PICKLE_LENGTH_1, // a length of so many bytes, and as many bytes as it says
	CKPT_PICKLE_LENGTH_4,
	CKPT_PICKLE_LENGTH_8,
};

struct ckpt_pickle_op {
	uint8_t code;
	enum ckpt_pickle_argument argument;
	// The argument of BYTES_*, or the length of LENGTH_*, whose bytes the cursor is in front of, as of lines.
	uint64_t number;
};

// The opcode that every pickle begins with. 0; -EINVAL: this is no pickle of protocol 2 to 5; those of the cursor.
int ckpt_pickle_begin(struct ckpt_cursor *c);
// The next opcode. -EINVAL: it is none; those of the cursor.
int ckpt_pickle_next(struct ckpt_cursor *c, struct ckpt_pickle_op *ret_op);
// Passes over what the cursor is in front of.
int ckpt_pickle_skip(struct ckpt_cursor *c, const struct ckpt_pickle_op *op);
