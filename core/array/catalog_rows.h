// The rows of a catalog, between catalog.c, which adds them, and catalog_end.c, which joins and compares them.
#pragma once

#include "core/array/catalog_format.h"

#define NONE UINT32_MAX

struct row {
	const char *format;
	uint32_t tree, name, why; // in text; why: NONE
	uint32_t shape;           // in numbers
	uint32_t fill;            // in text; NONE
	uint32_t piece, pieces;   // of the pieces: the first, and how many
	uint8_t dtype, ndim, big_endian;
};

struct piece {
	uint64_t offset, bytes, first;
	uint32_t file; // in text
	uint32_t data; // in text; NONE
	uint32_t box;  // in numbers: start, extent, strides
	uint8_t codecs[CKPT_PIECE_CODECS_MAX];
};

struct fault {
	uint32_t file, field, reason;
};

struct promise {
	uint32_t index, tree, name; // in text
	uint32_t file;              // in text; NONE
	uint32_t shape;             // in numbers
	uint8_t ndim;
};

struct join {
	uint32_t from, to; // in text
};

struct cover {
	uint32_t index, tree; // in text
};

struct ckpt_catalog {
	struct promise *promises;
	struct join *joins;
	struct cover *covers;
	size_t promise_count, join_count, cover_count, promise_cap, join_cap, cover_cap;
	struct row *rows;
	struct piece *pieces;
	struct fault *faults;
	char *text;
	uint64_t *numbers;
	size_t count, piece_count, fault_count, text_len, number_count;
	size_t row_cap, piece_cap, fault_cap, text_cap, number_cap;
	size_t bytes; // of all of these
};

// Of the text: -EFBIG, the catalog would be too large.
int ckpt_catalog_add_text(struct ckpt_catalog *c, const char *text, uint32_t *ret_at);
int ckpt_catalog_add_fault(struct ckpt_catalog *c, const char *file, const char *field,
			   const char *reason); // 0, -ENOMEM
