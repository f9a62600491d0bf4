// The graph of a pickle, between pickle.c, which makes it, and pickle_graph.c, which answers questions about it.
#pragma once

#include "core/array/pickle.h"

// TEXT, GLOBAL: a length, b offset in text. TUPLE, LIST, DICT: a count, b first item, c last one.
// OBJECT: a state, b callee, c arguments. PERSISTENT: b id.
struct value {
	uint8_t kind;
	uint32_t a;
	union {
		int64_t number; // BOOL, INT; BYTES: offset in the source, a is the length
		struct {
			uint32_t b, c;
		};
	};
};

struct item {
	uint32_t value, next;
};

struct ckpt_pickle {
	struct value *values;
	struct item *items; // the first is none
	char *text;
	size_t count, cap, item_count, item_cap, text_len, text_cap;
	uint32_t root;
	// By item: the opcode that put it there; it never sinks. NULL: that was not asked for.
	uint64_t *item_at;
	size_t item_at_cap;
	bool places;
};

bool ckpt_value_is_container(const struct ckpt_pickle *p, uint32_t value);
