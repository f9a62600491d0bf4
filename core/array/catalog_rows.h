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

// A file of DeepSpeed's ZeRO, and what its pickle says beside its arrays: catalog_zero.c, catalog_zero_join.c.
struct zero_file {
	uint32_t path;        // in text
	uint32_t row, rows;   // its arrays
	uint32_t param, rest; // of rank 0's model states: the first parameter, and how many
	uint32_t dp, mp;      // its rank
	uint32_t world;       // ranks that share the optimizer's states; 0: it does not say
	uint8_t is_model, is_of_rank;
};

enum zero_kind { ZERO_TRAINED, ZERO_FROZEN, ZERO_BUFFER, ZERO_SHARED };

struct zero_param {
	uint32_t name;  // in text
	uint32_t other; // in text, of a SHARED one: the name of the parameter that has its elements
	uint32_t shape; // in numbers
	uint32_t group; // of a TRAINED one
	uint8_t kind, ndim;
};

struct ckpt_catalog {
	struct promise *promises;
	struct join *joins;
	struct cover *covers;
	size_t promise_count, join_count, cover_count, promise_cap, join_cap, cover_cap;
	struct zero_file *zero_files;
	struct zero_param *zero_params;
	size_t zero_file_count, zero_param_count, zero_file_cap, zero_param_cap;
	struct row *rows;
	struct piece *pieces;
	struct fault *faults;
	char *text;
	uint64_t *numbers;
	size_t count, piece_count, fault_count, text_len, number_count;
	size_t row_cap, piece_cap, fault_cap, text_cap, number_cap;
	uint8_t (*digests)[CKPT_ARRAY_DIGEST_LEN]; // of the rows in front; zeros: it has none
	size_t digest_count, digest_cap;
	size_t bytes;                   // of all of these
	struct ckpt_catalog_stop *stop; // NULL: it is read to its end
};

// Of what is added: -EFBIG, the catalog would be too large. Neither text nor numbers may be those of the catalog.
int ckpt_catalog_room(struct ckpt_catalog *c, void *items, size_t *cap, size_t need, size_t item_bytes);
int ckpt_catalog_add_bytes(struct ckpt_catalog *c, const void *bytes, size_t len,
			   uint32_t *ret_at); // of the text, with a NUL
int ckpt_catalog_add_numbers(struct ckpt_catalog *c, const uint64_t *numbers, unsigned count);
int ckpt_catalog_add_text(struct ckpt_catalog *c, const char *text, uint32_t *ret_at);
int ckpt_catalog_add_fault(struct ckpt_catalog *c, const char *file, const char *field,
			   const char *reason); // 0, -ENOMEM
// All that was added since `before`, a copy of the catalog, is gone; memory stays. The last fault of the file that is read stays, too. 0,
// -ENOMEM.
int ckpt_catalog_take_back(struct ckpt_catalog_reading *r, const struct ckpt_catalog *before);
