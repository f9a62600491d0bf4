// Pickles (Python's pickle, protocols 2 to 5; CPython's Lib/pickletools.py has the opcodes). Nothing that a pickle names is ever
// imported, called or built: reading one gives a graph of values, in which a call is a value of its own kind.
//
//	ckpt_pickle_end()    where a pickle ends, in constant memory
//	ckpt_pickle_read()   the graph of its values
//
// A graph has the values that the opcodes make. These globals make a container when they are called, as each of them only
// holds what it is given; all other globals stay names, and a call of one is an OBJECT with its callee, arguments and state:
//
//	dict, list, set, frozenset of builtins and __builtin__; OrderedDict, defaultdict, Counter of collections; torch.Size
//
// The graph may have cycles and values that stand in many places: whoever walks it bounds the depth and the number of steps.
//
// Ownership: a graph is the caller's; text in it lives as long. Threads: any; a graph is never changed.
// Memory: CKPT_PICKLE_BYTES_MAX for a graph. Blocks as the source does; the bytes of long strings are skipped.
#pragma once

#include "core/base/source.h"

#include <stdbool.h>

// 0: its last opcode ends at *ret_end, whatever follows. -ENODATA: the source ends first. -EINVAL: this is no pickle of protocol 2
// to 5. -EFBIG: its end is too far to look for. -ENOMEM, -EIO ...
int ckpt_pickle_end(const struct ckpt_source *s, uint64_t *ret_end);

struct ckpt_pickle;

enum ckpt_value_kind {
	CKPT_VALUE_NONE,
	CKPT_VALUE_BOOL,
	CKPT_VALUE_INT,
	CKPT_VALUE_FLOAT,
	CKPT_VALUE_TEXT,
	CKPT_VALUE_BYTES,
	CKPT_VALUE_TUPLE,
	CKPT_VALUE_LIST, // sets, too
	CKPT_VALUE_DICT, // its items are key, value, key, value ...
	CKPT_VALUE_GLOBAL,
	CKPT_VALUE_OBJECT,     // a call, or an instance of a class, with its state
	CKPT_VALUE_PERSISTENT, // a value that stands outside of the pickle
	CKPT_VALUE_OPAQUE,     // any other: a large integer, a long string, a buffer from outside
};

// A value of a graph. 0 is None, and the answer where there is no such value.
typedef uint32_t ckpt_value;
// An item of a container. 0: there is no further one.
typedef uint32_t ckpt_item;

// Why a pickle is refused: text without an end, and the byte of the source.
struct ckpt_pickle_fault {
	const char *what; // static
	uint64_t at;
};

// The pickle that begins at `begin` and ends before `end`. 0: *ret_pickle is the caller's, *ret_end (may be NULL) is behind its last
// opcode. -EINVAL: *ret_fault says why; a limit that is passed is one. -ENOMEM, or what the source says.
int ckpt_pickle_read(const struct ckpt_source *s, uint64_t begin, uint64_t end, struct ckpt_pickle **ret_pickle,
		     uint64_t *ret_end, struct ckpt_pickle_fault *ret_fault);
// The same for who edits it (pickle_edit.h): it knows which opcode has put each item into its container.
int ckpt_pickle_read_places(const struct ckpt_source *s, uint64_t begin, uint64_t end, struct ckpt_pickle **ret_pickle,
			    struct ckpt_pickle_fault *ret_fault);
void ckpt_pickle_free(struct ckpt_pickle *p); // NULL is fine

ckpt_value ckpt_pickle_root(const struct ckpt_pickle *p);
size_t ckpt_pickle_count(const struct ckpt_pickle *p); // of values, which are 0 to this; some belong to no other
size_t ckpt_pickle_bytes(const struct ckpt_pickle *p); // of the memory of the graph
enum ckpt_value_kind ckpt_value_kind(const struct ckpt_pickle *p, ckpt_value v);

// False: it is no such value. An INT is also a BOOL here.
bool ckpt_value_int(const struct ckpt_pickle *p, ckpt_value v, int64_t *ret_number);
// A number from 0 on.
bool ckpt_value_size(const struct ckpt_pickle *p, ckpt_value v, uint64_t *ret_size);
// Those of a tuple, into ret_sizes, which has room for CKPT_ARRAY_DIMS_MAX. False: it is none, or has more.
bool ckpt_value_sizes(const struct ckpt_pickle *p, ckpt_value tuple, uint64_t *ret_sizes, unsigned *ret_count);
// UTF-8 or not, with any byte in it; NULL: it is no text.
const char *ckpt_value_text(const struct ckpt_pickle *p, ckpt_value v, size_t *ret_len);
bool ckpt_value_is_text(const struct ckpt_pickle *p, ckpt_value v, const char *text);
// A global is "MODULE NAME": "collections OrderedDict".
bool ckpt_value_is_global(const struct ckpt_pickle *p, ckpt_value v, const char *name);
const char *ckpt_value_global(const struct ckpt_pickle *p, ckpt_value v, size_t *ret_len); // NULL: it is none
// The place of the bytes of a BYTES in the source.
bool ckpt_value_bytes(const struct ckpt_pickle *p, ckpt_value v, uint64_t *ret_offset, uint64_t *ret_bytes);

// Items of a TUPLE, LIST or DICT; of all others none.
size_t ckpt_value_count(const struct ckpt_pickle *p, ckpt_value v);
ckpt_item ckpt_value_first(const struct ckpt_pickle *p, ckpt_value v);
ckpt_item ckpt_item_next(const struct ckpt_pickle *p, ckpt_item item);
ckpt_value ckpt_item_value(const struct ckpt_pickle *p, ckpt_item item);
size_t ckpt_pickle_items(const struct ckpt_pickle *p); // items are numbers below this
// The item of this number, found by walking to it.
ckpt_value ckpt_value_at(const struct ckpt_pickle *p, ckpt_value v, size_t index);
// The value of a key in a DICT, the last one as in Python. False: there is none.
bool ckpt_value_get(const struct ckpt_pickle *p, ckpt_value v, const char *key, ckpt_value *ret_value);

// Parts of an OBJECT, and the id of a PERSISTENT; of all others 0.
ckpt_value ckpt_value_callee(const struct ckpt_pickle *p, ckpt_value v);
ckpt_value ckpt_value_arguments(const struct ckpt_pickle *p, ckpt_value v);
ckpt_value ckpt_value_state(const struct ckpt_pickle *p, ckpt_value v);
ckpt_value ckpt_value_id(const struct ckpt_pickle *p, ckpt_value v);
