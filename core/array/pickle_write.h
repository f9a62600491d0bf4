// Pickles of protocol 2 (CPython's Lib/pickletools.py has the opcodes), written opcode by opcode.
//
// A value is what its opcodes leave on the stack; a function here writes one value, or an opcode that is named in its comment. Globals are
// written once and then recalled. Errors stay in out.rc.
// Ownership: the caller's; out is taken, or freed with ckpt_buffer_done(). Threads: one. Nothing blocks.
#pragma once

#include "core/array/buffer.h"

#include <stdbool.h>

#define CKPT_PICKLE_GLOBALS_MAX 64

struct ckpt_pickle_writer {
	struct ckpt_buffer out;
	const char *globals[CKPT_PICKLE_GLOBALS_MAX]; // live as long
	unsigned global_count;
};

void ckpt_pickle_write_begin(struct ckpt_pickle_writer *p);
void ckpt_pickle_write_end(struct ckpt_pickle_writer *p);
// These opcodes, none of which has an argument, up to the NUL:
//
//	(  mark                 t  tuple of all behind the mark     \x85 \x86  tuple of one, of two
//	}  empty dictionary     u  items behind the mark into it    ]  empty list     a  the value into it
//	)  empty tuple          R  call of a function with a tuple  \x81  object of a class with a tuple
//	b  state of an object   Q  persistent id                    N  None     \x89  False
void ckpt_pickle_write_ops(struct ckpt_pickle_writer *p, const char *ops);
void ckpt_pickle_write_text(struct ckpt_pickle_writer *p, const char *text);  // UTF-8
void ckpt_pickle_write_number(struct ckpt_pickle_writer *p, uint64_t number); // below 2^63
// name: "MODULE\nNAME\n", which is static.
void ckpt_pickle_write_global(struct ckpt_pickle_writer *p, const char *name);
void ckpt_pickle_write_sizes(struct ckpt_pickle_writer *p, const uint64_t *sizes, unsigned count); // a tuple
